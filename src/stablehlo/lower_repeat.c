/* stablehlo/lower_repeat.c -- an operation like an earlier one becomes what that one became.
 * Programs repeat themselves: layers, steps of optimizers.  An operation of the same kind, attributes and types of operands
 * and results needs neither its rule nor checks nor inference again: the instructions of the earlier one are copied, with
 * this one's operands, and share its attributes and shapes.  What is known is a cache of fixed size; readers that share
 * attributes between operations (bytecode) gain most.
 * Left out is what depends on more than that: values of operands (sizes), regions, effects, the order of transfers. */
#include <string.h>

#include "stablehlo/lower.h"

enum { FORMS = 512, MOST_OPERANDS = 5, MOST_MADE = 3 };

struct lower_form {
  const mlir_op_kind *kind;
  const mlir_named_attr *attrs;             /* NULL: none */
  const mlir_type *types[MOST_OPERANDS + 1]; /* of the operands, then of the result */
  hlo_instr *operands[MOST_OPERANDS];
  hlo_instr *first;                         /* of those made, which follow each other in their computation */
  int made;
};

static bool may_repeat(const lowering *l, const mlir_op *op)
{
  if (l->inline_calls || op->result_count != 1 || op->region_count > 0 || op->operand_count > MOST_OPERANDS) return false;
  if (op->attr_count > 0 && !op->shares_attrs) return false;
  for (int i = 0; i < op->operand_count; i++)
    if (!op->operands[i]->instr || op->operands[i]->instr->parent != l->comp) return false;
  return true;
}

static const mlir_named_attr *attrs_of(const mlir_op *op) { return op->attr_count > 0 ? op->attrs : NULL; }

static bool is_form(const lower_form *f, const mlir_op *op)
{
  if (f->kind != op->kind || f->attrs != attrs_of(op) || f->types[op->operand_count] != op->results[0].type) return false;
  for (int i = 0; i < op->operand_count; i++)
    if (f->types[i] != op->operands[i]->type || !hlo_shape_equal(f->operands[i]->shape, op->operands[i]->instr->shape, true))
      return false;
  return op->operand_count == MOST_OPERANDS || !f->operands[op->operand_count];
}

static uint64_t mix(uint64_t hash, const void *p) { return (hash ^ (uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15); }

weft_status *lower_find_form(lowering *l, const mlir_op *op, lower_form **out)
{
  uint64_t hash = mix(mix((uintptr_t)op->kind, attrs_of(op)), op->result_count ? op->results[0].type : NULL);

  *out = NULL;
  if (!may_repeat(l, op)) return NULL;
  if (!l->forms) l->forms = WEFT_ARENA_ARRAY(&l->scratch, lower_form, FORMS);
  WEFT_TRY_ALLOC(l->forms);
  for (int i = 0; i < op->operand_count; i++) hash = mix(hash, op->operands[i]->type);
  *out = &l->forms[hash >> 32 & (FORMS - 1)];
  return NULL;
}

/* What stands for `x`, an operand of one of the form's instructions: an operand of `op`, or a copy. */
static hlo_instr *counterpart(const lower_form *f, const mlir_op *op, hlo_instr *const *copies, int made, const hlo_instr *x)
{
  const hlo_instr *in = f->first;

  for (int i = 0; i < op->operand_count; i++)
    if (f->operands[i] == x) return op->operands[i]->instr;
  for (int i = 0; i < made; i++, in = in->next)
    if (in == x) return copies[i];
  return NULL;
}

weft_status *lower_repeat(lowering *l, const mlir_op *op, const lower_form *f, bool *out_done)
{
  hlo_instr *copies[MOST_MADE], *operands[MOST_OPERANDS];
  const hlo_instr *in = f->first;

  *out_done = f->kind && is_form(f, op);
  if (!*out_done) return NULL;
  for (int k = 0; k < f->made; k++, in = in->next) {
    for (int i = 0; i < in->operand_count; i++) operands[i] = counterpart(f, op, copies, k, in->operands[i]);
    WEFT_TRY(hlo_add(l->comp, NULL, in->op, in->shape, in->operand_count, operands, NULL, &copies[k]));
    copies[k]->dims = in->dims; /* all but `extra`, which says where the other comes from */
    copies[k]->u = in->u;
  }
  op->results[0].instr = copies[f->made - 1];
  return NULL;
}

/* Whether `in` follows from its operands and attributes alone. */
static bool is_pure(const hlo_instr *in)
{
  return !in->extra && in->called_count == 0 && in->operand_count <= MOST_OPERANDS && in->op != HLO_SET_DIMENSION_SIZE &&
         in->op != HLO_CUSTOM_CALL && in->op != HLO_GET_TUPLE_ELEMENT && !hlo_opcode_is_collective(in->op) &&
         !hlo_opcode_is_async(in->op) && !hlo_opcode_has_side_effect(in->op) &&
         !(in->op == HLO_CONSTANT && in->u.literal->elided);
}

void lower_note_form(lowering *l, const mlir_op *op, const hlo_instr *before, lower_form *slot)
{
  lower_form f = {.kind = op->kind, .attrs = attrs_of(op), .first = before ? before->next : l->comp->first};
  unsigned used = 0;

  for (int i = 0; i < op->operand_count; i++) {
    f.types[i] = op->operands[i]->type;
    f.operands[i] = op->operands[i]->instr;
    for (int k = 0; k < i; k++)
      if (f.operands[k] == f.operands[i]) return; /* which of them is meant where cannot be told */
  }
  f.types[op->operand_count] = op->results[0].type;
  for (const hlo_instr *in = f.first; in; in = in->next) {
    if (f.made == MOST_MADE || !is_pure(in)) return;
    for (int k = 0; k < in->operand_count; k++) {
      bool known = false;
      for (int i = 0; i < op->operand_count; i++) {
        if (f.operands[i] != in->operands[k]) continue;
        used |= 1u << i;
        known = true;
      }
      for (const hlo_instr *made = f.first; made != in && !known; made = made->next) known = made == in->operands[k];
      if (!known) return;
    }
    f.made++;
  }
  /* An operand that is not used was asked for its value. */
  if (f.made == 0 || used != (1u << op->operand_count) - 1 || op->results[0].instr != l->comp->last) return;
  *slot = f;
}
