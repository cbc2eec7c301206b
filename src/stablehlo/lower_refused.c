/* stablehlo/lower_refused.c -- operations that cannot be lowered and that nothing may need.
 *
 * XLA drops operations that nothing reads before it looks at them closely. Since bodies are read in parts, it is
 * known only at the end whether something reads a value. Until then custom calls stand for the results of operations
 * that were refused, and what reads such a result is refused with it. */
#include <string.h>

#include "stablehlo/lower.h"

typedef struct lower_refusal lower_refusal;
struct lower_refusal { weft_status *why; lower_refusal *next; };

/* The attributes of a placeholder. Its target is the address PLACEHOLDER itself, so that a custom call of that name
 * in a program is not taken for one. */
typedef struct placeholder { hlo_custom_call_attrs attrs; const lower_refusal *refusal; } placeholder;
static const char PLACEHOLDER[] = "weft.refused";

static const lower_refusal *refusal_of(const hlo_instr *in)
{
  if (in->op != HLO_CUSTOM_CALL || !in->u.custom || in->u.custom->target != PLACEHOLDER) return NULL;
  return ((const placeholder *)(const void *)in->u.custom)->refusal;
}

static const lower_refusal *read_refused(const mlir_op *op, int depth)
{
  const lower_refusal *r = NULL;

  for (int i = 0; i < op->operand_count && !r; i++)
    if (op->operands[i]->instr) r = refusal_of(op->operands[i]->instr);
  for (int k = 0; k < op->region_count && !r && depth <= MLIR_MAX_DEPTH; k++)
    for (const mlir_block *b = op->regions[k].first; b && !r; b = b->next)
      for (const mlir_op *inner = b->first; inner && !r; inner = inner->next) r = read_refused(inner, depth + 1);
  return r;
}

weft_status *lower_reads_refused(lowering *l, const mlir_op *op)
{
  const lower_refusal *r = read_refused(op, 0);

  (void)l;
  return r ? weft_status_dup(r->why) : NULL;
}

/* An operation of arith, shape or tensor. They have no effects; jaxlib knows more of them than Weft does. */
static bool is_of_sizes(const mlir_op *op)
{
  return op->dialect == SHLO_OTHER && (strncmp(op->name, "arith.", 6) == 0 || strncmp(op->name, "shape.", 6) == 0 ||
                                       strncmp(op->name, "tensor.", 7) == 0);
}

/* True if the operation does more than give results, so that it stays even if nothing reads them; and for operations
 * that XLA keeps as if they did. */
static bool has_effect(const mlir_op *op, int depth)
{
  static const char *const effects[] = {
      "all_gather", "all_reduce", "all_to_all", "async_done", "async_start", "collective_broadcast", "collective_permute",
      "collective_reduce", "composite", "infeed", "optimization_barrier", "outfeed", "partition_id", "ragged_all_to_all", "recv",
      "reduce_scatter", "replica_id", "rng", "send"};

  if (op->dialect != SHLO_STABLEHLO && op->dialect != SHLO_CHLO && !is_of_sizes(op)) return true;
  for (size_t i = 0; i < WEFT_COUNT(effects); i++)
    if (strcmp(op->name, effects[i]) == 0) return true;
  if (strcmp(op->name, "custom_call") == 0 && mlir_attr_bool(mlir_attr_of(op, "has_side_effect"), false)) return true;
  for (int k = 0; k < op->region_count; k++)
    for (const mlir_block *b = op->regions[k].first; b; b = b->next)
      for (const mlir_op *inner = b->first; inner; inner = inner->next)
        if (depth > MLIR_MAX_DEPTH || (strcmp(inner->name, "return") != 0 && has_effect(inner, depth + 1))) return true;
  return false;
}

/* True if operands [first, first + 3) are lists of one type with an entry for each dimension of operand 0. */
static bool are_lists(const mlir_op *op, int first)
{
  const mlir_type *list = op->operands[first]->type;

  return list->kind == MLIR_TENSOR && list->rank == 1 && list->dims[0] == op->operands[0]->type->rank &&
         mlir_type_equal(list, op->operands[first + 1]->type) && mlir_type_equal(list, op->operands[first + 2]->type);
}

static bool are_constants(const mlir_op *op, int first)
{
  for (int i = first; i < first + 3; i++)
    if (!op->operands[i]->instr || op->operands[i]->instr->op != HLO_CONSTANT) return false;
  return true;
}

/* True if nothing but the values of operands can be wrong about the operation. XLA does not look at them before it
 * drops what nothing reads, except for a pad's where they are constants. */
static bool is_wrong_by_values(const mlir_op *op)
{
  bool slices = strcmp(op->name, "real_dynamic_slice") == 0, pads = strcmp(op->name, "dynamic_pad") == 0;

  if (op->dialect != SHLO_STABLEHLO || !(slices || pads) || op->result_count != 1 ||
      op->operand_count != (slices ? 4 : 5))
    return false;
  const mlir_type *x = op->operands[0]->type, *result = op->results[0].type;
  if (x->kind != MLIR_TENSOR || result->kind != MLIR_TENSOR || !mlir_type_equal(x->element, result->element))
    return false;
  if (slices) return are_lists(op, 1);
  const mlir_type *value = op->operands[1]->type;
  return value->kind == MLIR_TENSOR && value->rank == 0 && mlir_type_equal(value->element, x->element) &&
         result->rank == x->rank && are_lists(op, 2) && !are_constants(op, 2);
}

static weft_status *add_placeholder(lowering *l, mlir_value *value, const lower_refusal *refusal)
{
  placeholder *p = WEFT_ARENA_NEW(l->arena, placeholder);
  const hlo_shape *shape = NULL;

  WEFT_TRY_ALLOC(p);
  weft_status_ignore(lower_static_shape(l, value->type, &shape));
  /* the shape does not matter, because what reads the placeholder is refused without a look at it */
  if (!shape) WEFT_TRY_ALLOC(shape = hlo_shape_array(l->arena, WEFT_PRED, 0, NULL));
  WEFT_TRY(hlo_add(l->comp, NULL, HLO_CUSTOM_CALL, shape, 0, NULL, NULL, &value->instr));
  p->attrs.target = PLACEHOLDER;
  p->refusal = refusal;
  value->instr->u.custom = &p->attrs;
  return NULL;
}

weft_status *lower_refuse(lowering *l, const mlir_op *op, const lower_place *before, weft_status *why)
{
  lower_refusal *r;

  if (op->result_count == 0 || has_effect(op, 0)) return why;
  if (weft_status_code(why) != WEFT_UNIMPLEMENTED &&
      (weft_status_code(why) != WEFT_INVALID_ARGUMENT || !is_wrong_by_values(op)))
    return why;
  if (!lower_find_rule(op) && !is_of_sizes(op)) return why; /* there is no such operation */
  r = WEFT_ARENA_NEW(&l->scratch, lower_refusal);
  if (!r) return why;
  *r = (lower_refusal){why, l->refusals};
  l->refusals = r;
  lower_unbind(l, before->undo_count);
  l->comp = before->comp;
  l->depth = before->depth;
  while (l->comp->last != before->last) WEFT_TRY(hlo_remove(l->comp->last));
  for (int i = 0; i < op->result_count; i++) WEFT_TRY(add_placeholder(l, &op->results[i], r));
  return NULL;
}

static weft_status *why_refused(const lowering *l, const lower_refusal *r, const hlo_computation *comp)
{
  weft_status *why = weft_status_dup(r->why);

  for (int i = 0; i < l->function_count; i++)
    if (l->functions[i].comp == comp) WEFT_TRY_NOTE(why, "function \"%s\"", l->functions[i].name);
  return why;
}

/* What is left after a sweep from the end to the start is needed. */
weft_status *lower_check_refused(lowering *l)
{
  for (hlo_computation *comp = l->module->last; comp; comp = comp->prev)
    for (hlo_instr *in = comp->last, *prev; in; in = prev) {
      prev = in->prev;
      if (hlo_is_dead(in)) WEFT_TRY(hlo_remove(in));
    }
  WEFT_TRY(hlo_module_gc(l->module));
  HLO_FOREACH_COMPUTATION(comp, l->module)
    HLO_FOREACH(in, comp) {
      const lower_refusal *r = refusal_of(in);
      if (r) return why_refused(l, r, comp);
    }
  return NULL;
}

void lower_free_refused(lowering *l)
{
  for (lower_refusal *r = l->refusals; r; r = r->next) weft_status_free(r->why);
}
