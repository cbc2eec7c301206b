/* stablehlo/lower_repeat.c -- an operation like an earlier one becomes what that one became.
 * Programs repeat themselves: layers, steps of optimizers.  An operation of the same kind, attributes, region and types of
 * operands and results needs neither its rule nor checks nor inference again: the instructions of the earlier one are made
 * again, with this one's operands, and share its attributes, shapes and computations.  What is known is a cache of fixed size;
 * readers that share attributes and regions between operations (bytecode) gain most.
 * Left out is what depends on more than that: values of operands (sizes), regions that see outer values, effects, the order
 * of transfers. */
#include <string.h>

#include "stablehlo/lower.h"

enum { FORMS = 1024, PROBES = 8, MOST_OPERANDS = 5, MOST_MADE = 3 };

/* What an operation has become, in numbers: below MOST_OPERANDS its operands, from there on the instructions made. */
struct lower_form {
  const mlir_op_kind *kind;                  /* NULL: there is none here */
  uint64_t hash;
  const mlir_named_attr *attrs;              /* NULL: none */
  const mlir_block *region;                  /* likewise */
  const mlir_type *types[MOST_OPERANDS + 1]; /* of the operands, then of the result */
  const hlo_shape *shapes[MOST_OPERANDS];    /* of the operands */
  const hlo_instr *first;                    /* of those made, which follow each other in their computation */
  uint8_t operand_count, made, result;
  uint8_t operands[MOST_MADE][MOST_OPERANDS];
  unsigned equal;                            /* pairs of operands that are one: which of them is meant where is not known */
};

static const mlir_named_attr *attrs_of(const mlir_op *op) { return op->attr_count > 0 ? op->attrs : NULL; }
static const mlir_block *region_of(const mlir_op *op) { return op->region_count > 0 ? op->regions[0].first : NULL; }

static unsigned equal_pairs(const mlir_op *op)
{
  unsigned pairs = 0, bit = 1;

  for (int i = 1; i < op->operand_count; i++)
    for (int k = 0; k < i; k++, bit <<= 1)
      if (op->operands[i]->instr == op->operands[k]->instr) pairs |= bit;
  return pairs;
}

static bool is_form(const lower_form *f, const mlir_op *op)
{
  if (f->kind != op->kind || f->attrs != attrs_of(op) || f->region != region_of(op) || f->operand_count != op->operand_count ||
      f->types[op->operand_count] != op->results[0].type)
    return false;
  for (int i = 0; i < op->operand_count; i++) {
    const hlo_shape *shape = op->operands[i]->instr->shape;
    if (f->types[i] != op->operands[i]->type || (f->shapes[i] != shape && !hlo_shape_equal(f->shapes[i], shape, true))) return false;
  }
  return !f->equal || !(f->equal & ~equal_pairs(op));
}

static uint64_t mix(uint64_t hash, const void *p) { return (hash ^ (uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15); }

static inline uint64_t hash_of(const mlir_op *op)
{
  uint64_t hash = mix(mix(mix((uintptr_t)op->kind, attrs_of(op)), region_of(op)), op->results[0].type);

  for (int i = 0; i < op->operand_count; i++) hash = mix(hash, op->operands[i]->type);
  return hash;
}

/* Where the form of that hash is kept, or may be: its own place, a free one, or the last of those where it is looked for. */
static lower_form *find_place(const lowering *l, uint64_t hash)
{
  lower_form *place = NULL;

  for (uint64_t at = hash >> 32, end = at + PROBES; at != end; at++) {
    place = &l->forms[at & (FORMS - 1)];
    if (place->hash == hash || !place->kind) break;
  }
  return place;
}

weft_status *lower_find_form(lowering *l, const mlir_op *op, lower_form **out)
{
  *out = NULL;
  if (l->inline_calls || op->result_count != 1 || op->operand_count > MOST_OPERANDS) return NULL;
  if ((op->attr_count > 0 && !op->shares_attrs) || (op->region_count > 0 && !op->shares_region)) return NULL;
  for (int i = 0; i < op->operand_count; i++)
    if (!op->operands[i]->instr || op->operands[i]->instr->parent != l->comp) return NULL;
  if (!l->forms) l->forms = WEFT_ARENA_ARRAY(&l->scratch, lower_form, FORMS);
  WEFT_TRY_ALLOC(l->forms);
  *out = find_place(l, hash_of(op));
  return NULL;
}

weft_status *lower_repeat(lowering *l, const mlir_op *op, const lower_form *f, bool *out_done)
{
  hlo_instr *values[MOST_OPERANDS + MOST_MADE], *operands[MOST_OPERANDS];
  const hlo_instr *in = f->first;

  *out_done = is_form(f, op);
  if (!*out_done) return NULL;
  for (int i = 0; i < op->operand_count; i++) values[i] = op->operands[i]->instr;
  for (int k = 0; k < f->made; k++, in = in->next) {
    for (int i = 0; i < in->operand_count; i++) operands[i] = values[f->operands[k][i]];
    WEFT_TRY(hlo_add_again(l->comp, in, operands, &values[MOST_OPERANDS + k]));
  }
  op->results[0].instr = values[f->result];
  return NULL;
}

/* Operations whose computations see their operands' elements alone. */
static bool applies_region(hlo_opcode op)
{
  return op == HLO_REDUCE || op == HLO_REDUCE_WINDOW || op == HLO_SCATTER || op == HLO_SORT || op == HLO_MAP;
}

/* Whether `in` follows from its operands, attributes and computations alone. */
static bool is_pure(const hlo_instr *in)
{
  return !in->extra && (in->called_count == 0 || applies_region(in->op)) && in->operand_count <= MOST_OPERANDS &&
         in->op != HLO_SET_DIMENSION_SIZE && in->op != HLO_CUSTOM_CALL && in->op != HLO_GET_TUPLE_ELEMENT &&
         !hlo_opcode_is_collective(in->op) && !hlo_opcode_is_async(in->op) && !hlo_opcode_has_side_effect(in->op) &&
         !(in->op == HLO_CONSTANT && in->u.literal->elided);
}

/* The number of `x`, false if it has none; in *used the operands that are it. */
static bool number_of(const lower_form *f, const mlir_op *op, const hlo_instr *x, unsigned *used, uint8_t *out)
{
  const hlo_instr *made = f->first;
  bool known = false;

  for (int i = op->operand_count - 1; i >= 0; i--) {
    if (op->operands[i]->instr != x) continue;
    *used |= 1u << i;
    *out = (uint8_t)i;
    known = true;
  }
  for (int k = 0; k < f->made && !known; k++, made = made->next) {
    *out = (uint8_t)(MOST_OPERANDS + k);
    known = made == x;
  }
  return known;
}

void lower_note_form(lowering *l, const mlir_op *op, const hlo_instr *before, lower_form *slot)
{
  lower_form f = {.kind = op->kind, .hash = hash_of(op), .attrs = attrs_of(op), .region = region_of(op), .equal = equal_pairs(op),
                  .operand_count = (uint8_t)op->operand_count, .first = before ? before->next : l->comp->first};
  unsigned used = 0;

  for (int i = 0; i < op->operand_count; i++) {
    f.types[i] = op->operands[i]->type;
    f.shapes[i] = op->operands[i]->instr->shape;
  }
  f.types[op->operand_count] = op->results[0].type;
  for (const hlo_instr *in = f.first; in; in = in->next, f.made++) {
    if (f.made == MOST_MADE || !is_pure(in)) return;
    for (int k = 0; k < in->operand_count; k++)
      if (!number_of(&f, op, in->operands[k], &used, &f.operands[f.made][k])) return;
  }
  if (!number_of(&f, op, op->results[0].instr, &used, &f.result)) return;
  if (used == (1u << op->operand_count) - 1) *slot = f; /* an operand that is not used was asked for its value */
}
