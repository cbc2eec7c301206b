/* stablehlo/lower_repeat.c -- an operation that equals an earlier one is lowered by repetition.
 *
 * Programs repeat themselves: layers, steps of optimizers. An operation of the same kind, attributes, region and
 * types of operands and results as an earlier one needs neither its rule nor checks nor inference again. The
 * instructions of the earlier operation are made again with the new operands, and share their attributes, shapes and
 * computations. The memory of earlier operations is a cache of fixed size. Readers that share attributes and regions
 * between operations (bytecode) gain most. Operations that depend on more than that are left out: on the values of
 * operands (sizes), on outer values in regions, on effects, on the order of transfers. */
#include <string.h>

#include "stablehlo/lower.h"

enum { FORMS = 1024, PROBES = 8, MOST_OPERANDS = 5, MOST_MADE = 3 };

/* What an operation has become, as numbers: below MOST_OPERANDS its operands, from there on the instructions made. */
struct lower_form {
  const mlir_op_kind *kind;
  const mlir_named_attr *attrs;              /* NULL: none */
  const mlir_block *region;                  /* likewise */
  const mlir_type *result_type;
  /* of the instructions made, which follow each other in their computation */
  const hlo_instr *first;
  uint8_t operand_count, made, result;
  uint8_t numbers[MOST_MADE][MOST_OPERANDS]; /* of the operands of these instructions */
  /* pairs of operands that are the same value, so that it is not known which of them is meant */
  unsigned equal;
  struct { const mlir_type *type; const hlo_shape *shape; } operands[MOST_OPERANDS];
};

static const mlir_named_attr *attrs_of(const mlir_op *op) { return op->attr_count > 0 ? op->attrs : NULL; }
static const mlir_block *region_of(const mlir_op *op) { return op->region_count > 0 ? op->regions[0].first : NULL; }

static unsigned equal_pairs(int count, hlo_instr *const *operands)
{
  unsigned pairs = 0, bit = 1;

  for (int i = 1; i < count; i++)
    for (int k = 0; k < i; k++, bit <<= 1)
      if (operands[i] == operands[k]) pairs |= bit;
  return pairs;
}

/* `operands`: the instructions that hold the operands of `op`. */
static inline bool is_form(const lower_form *f, const mlir_op *op, hlo_instr *const *operands)
{
  if (f->kind != op->kind || f->attrs != attrs_of(op) || f->region != region_of(op) ||
      f->operand_count != op->operand_count || f->result_type != op->results[0].type)
    return false;
  for (int i = 0; i < op->operand_count; i++) {
    const hlo_shape *shape = operands[i]->shape, *expected = f->operands[i].shape;
    if (f->operands[i].type != op->operands[i]->type) return false;
    if (WEFT_UNLIKELY(expected != shape) && !hlo_shape_equal(expected, shape, true)) return false;
  }
  return WEFT_LIKELY(!f->equal) || !(f->equal & ~equal_pairs(op->operand_count, operands));
}

static uint64_t mix(uint64_t hash, const void *p) { return (hash ^ (uintptr_t)p >> 4) * UINT64_C(0x9e3779b97f4a7c15); }

/* The slot in which the form of `op` is kept or may be kept: its own (*out_known), a free one, or the last of those
 * in which it is looked up. is_form compares the types of operands, because few operations differ in these alone. */
static inline lower_form **find_place(const lowering *l, const mlir_op *op, hlo_instr *const *operands, bool *out_known)
{
  uint64_t at = mix(mix(mix((uintptr_t)op->kind, attrs_of(op)), region_of(op)), op->results[0].type) >> 32;
  lower_form **place = NULL;

  *out_known = false;
  for (uint64_t end = at + PROBES; at != end && !*out_known; at++) {
    place = &l->forms[at & (FORMS - 1)];
    if (!*place) break;
    *out_known = is_form(*place, op, operands);
  }
  return place;
}

static weft_status *make_again(lowering *l, const mlir_op *op, const lower_form *f,
                               hlo_instr *values[MOST_OPERANDS + MOST_MADE])
{
  const hlo_instr *in = f->first;
  const hlo_metadata *metadata = NULL;
  hlo_instr *operands[MOST_OPERANDS];

  if (op->location) WEFT_TRY(lower_metadata(l, op->location, &metadata));
  for (int k = 0; k < f->made; k++, in = in->next) {
    for (int i = 0; i < in->operand_count; i++) operands[i] = values[f->numbers[k][i]];
    WEFT_TRY(hlo_add_again(l->comp, in, operands, &values[MOST_OPERANDS + k]));
    values[MOST_OPERANDS + k]->metadata = metadata;
  }
  op->results[0].instr = values[f->result];
  return NULL;
}

weft_status *lower_repeat(lowering *l, const mlir_op *op, lower_form ***out_place, bool *out_done)
{
  hlo_instr *values[MOST_OPERANDS + MOST_MADE];

  *out_place = NULL;
  *out_done = false;
  if (l->inline_calls || op->result_count != 1 || op->operand_count > MOST_OPERANDS) return NULL;
  if ((op->attr_count > 0 && !op->shares_attrs) || (op->region_count > 0 && !op->shares_region)) return NULL;
  for (int i = 0; i < op->operand_count; i++) {
    values[i] = op->operands[i]->instr;
    if (!values[i] || values[i]->parent != l->comp) return NULL;
  }
  if (WEFT_UNLIKELY(!l->forms)) WEFT_TRY_ALLOC(l->forms = WEFT_ARENA_ARRAY(&l->scratch, lower_form *, FORMS));
  *out_place = find_place(l, op, values, out_done);
  return *out_done ? make_again(l, op, **out_place, values) : NULL;
}

/* Operations whose computations see only the elements of their operands. */
static bool applies_region(hlo_opcode op)
{
  return op == HLO_REDUCE || op == HLO_REDUCE_WINDOW || op == HLO_SCATTER || op == HLO_SORT || op == HLO_MAP;
}

/* True if `in` follows from its operands, attributes and computations alone. */
static bool is_pure(const hlo_instr *in)
{
  return !in->extra && (in->called_count == 0 || applies_region(in->op)) && in->operand_count <= MOST_OPERANDS &&
         in->op != HLO_SET_DIMENSION_SIZE && in->op != HLO_CUSTOM_CALL && in->op != HLO_GET_TUPLE_ELEMENT &&
         !hlo_opcode_is_collective(in->op) && !hlo_opcode_is_async(in->op) && !hlo_opcode_has_side_effect(in->op) &&
         !(in->op == HLO_CONSTANT && in->u.literal->elided);
}

/* The number of `x`, false if it has none; *used receives the operands that it is. */
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

weft_status *lower_note_form(lowering *l, const mlir_op *op, const hlo_instr *before, lower_form **place)
{
  lower_form f = {.kind = op->kind, .attrs = attrs_of(op), .region = region_of(op),
                  .operand_count = (uint8_t)op->operand_count, .result_type = op->results[0].type,
                  .first = before ? before->next : l->comp->first};
  hlo_instr *operands[MOST_OPERANDS];
  unsigned used = 0;

  for (int i = 0; i < op->operand_count; i++) {
    operands[i] = op->operands[i]->instr;
    f.operands[i].type = op->operands[i]->type;
    f.operands[i].shape = operands[i]->shape;
  }
  f.equal = equal_pairs(op->operand_count, operands);
  for (const hlo_instr *in = f.first; in; in = in->next, f.made++) {
    if (f.made == MOST_MADE || !is_pure(in)) return NULL;
    for (int k = 0; k < in->operand_count; k++)
      if (!number_of(&f, op, in->operands[k], &used, &f.numbers[f.made][k])) return NULL;
  }
  if (!number_of(&f, op, op->results[0].instr, &used, &f.result)) return NULL;
  if (used != (1u << op->operand_count) - 1) return NULL; /* an operand that is not used was asked for its value */
  if (!*place) WEFT_TRY_ALLOC(*place = WEFT_ARENA_NEW(&l->scratch, lower_form));
  **place = f;
  return NULL;
}
