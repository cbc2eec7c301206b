/* passes/spmd/custom.c -- asks a client for a custom-call's program on tiles, and puts its instructions in place of
 * the call. */
#include <config.h>

#include "passes/spmd/custom.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "hlo/infer.h"
#include "passes/passes.h"

/* ---- registered partitioners ----------------------------------------------------------------------------------- */

typedef struct registration {
  struct registration *next; /* an older one */
  pass_custom_partitioner partitioner;
  size_t size;
  char target[];
} registration;

static weft_mutex lock = WEFT_MUTEX_INITIALIZER;
static registration *registrations;

weft_status *pass_register_custom_partitioner(const char *target, size_t size,
                                              const pass_custom_partitioner *partitioner)
{
  registration *r = malloc(sizeof *r + size + 1);

  WEFT_TRY_ALLOC(r);
  r->partitioner = *partitioner;
  r->size = size;
  memcpy(r->target, target, size);
  r->target[size] = '\0';
  weft_mutex_lock(&lock);
  r->next = registrations;
  registrations = r;
  weft_mutex_unlock(&lock);
  return NULL;
}

const pass_custom_partitioner *pass_custom_partitioner_of(const char *target)
{
  const registration *r;

  weft_mutex_lock(&lock);
  r = registrations;
  weft_mutex_unlock(&lock);
  while (r && strcmp(r->target, target) != 0) r = r->next; /* entries never change and are never removed */
  return r ? &r->partitioner : NULL;
}

const pass_custom_partitioner *spmd_custom_of(const hlo_instr *instr)
{
  return instr->op == HLO_CUSTOM_CALL ? pass_custom_partitioner_of(instr->u.custom->target) : NULL;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static weft_status *result_to_hlo(spmd_mover *m, const hlo_shape *shape, spmd_sharding *const *leaves,
                                  const hlo_sharding **out)
{
  const hlo_sharding **elements;
  hlo_sharding *tuple;

  if (!hlo_shape_is_tuple(shape)) return spmd_sharding_to_hlo(m->grid, leaves[0], m->arena, out);
  elements = WEFT_ARENA_ARRAY(m->arena, const hlo_sharding *, shape->rank);
  tuple = WEFT_ARENA_NEW(m->arena, hlo_sharding);
  WEFT_TRY_ALLOC(elements);
  WEFT_TRY_ALLOC(tuple);
  for (int i = 0; i < shape->rank; i++) WEFT_TRY(spmd_sharding_to_hlo(m->grid, leaves[i], m->arena, &elements[i]));
  *tuple = (hlo_sharding){.kind = HLO_SHARDING_TUPLE, .tuple_count = shape->rank, .elements = elements};
  *out = tuple;
  return NULL;
}

/* A sharding of the answer as axes. It must give the tile that the body has. */
static weft_status *from_hlo(spmd_mover *m, const hlo_sharding *given, const hlo_shape *whole, const hlo_shape *tile,
                             weft_arena *scratch, spmd_sharding *out)
{
  const hlo_shape *local;
  bool fits;

  WEFT_TRY(spmd_sharding_of(m->grid, given, whole, scratch, out, &fits));
  if (!fits) return WEFT_ERR(UNIMPLEMENTED, "a custom partitioner's sharding over a mesh that does not fit the others");
  WEFT_TRY(spmd_local_shape(m->grid, out, whole, scratch, &local));
  if (!hlo_shape_equal(local, tile, false))
    return WEFT_ERR(
      UNIMPLEMENTED,
      "a custom partitioner's program whose tiles are not those of its shardings (uneven ones are not supported)");
  return NULL;
}

/* Prepares the module of a client's answer: its collectives get channels of their own, and its calls are inlined. */
static weft_status *prepare(spmd_mover *m, hlo_module *module, weft_arena *scratch)
{
  static const pass_options options = {0};
  pass_ctx ctx = {.options = &options, .scratch = scratch};
  int64_t last = 0, first = m->next_channel;
  bool changed = false;

  WEFT_TRY(hlo_verify(module));
  WEFT_TRY(pass_call_inliner.run(module, &ctx, &changed));
  WEFT_TRY(pass_flatten.run(module, &ctx, &changed));
  for (hlo_computation *c = module->first; c; c = c->next)
    HLO_FOREACH(instr, c) {
      hlo_collective_attrs *attrs;
      if (!hlo_opcode_is_collective(instr->op) || !instr->u.collective || instr->u.collective->channel_id <= 0)
        continue;
      attrs = weft_arena_memdup(&module->arena, instr->u.collective, sizeof *attrs);
      WEFT_TRY_ALLOC(attrs);
      last = WEFT_MAX(last, attrs->channel_id);
      if (__builtin_add_overflow(attrs->channel_id, first, &attrs->channel_id))
        return WEFT_ERR(INVALID_ARGUMENT, "channel ids beyond all bounds");
      instr->u.collective = attrs;
    }
  m->next_channel = first + last + 1;
  return NULL;
}

static weft_status *take_answer(spmd_mover *m, const hlo_instr *instr, const pass_partitioned_call *answer,
                                weft_arena *scratch, spmd_custom_call *out)
{
  const hlo_computation *entry = answer->module->entry;
  bool is_tuple = hlo_shape_is_tuple(instr->shape);
  int leaves = hlo_shape_leaf_count(instr->shape);

  if (entry->param_count != instr->operand_count || hlo_shape_leaf_count(entry->root->shape) != leaves ||
      hlo_shape_is_tuple(entry->root->shape) != is_tuple || (is_tuple && instr->shape->rank != leaves) ||
      (is_tuple && (answer->result->kind != HLO_SHARDING_TUPLE || answer->result->tuple_count != leaves)))
    return WEFT_ERR(INVALID_ARGUMENT,
                    "a custom partitioner's program has %d operands and %d results, its call %d and %d",
                    entry->param_count, hlo_shape_leaf_count(entry->root->shape), instr->operand_count, leaves);
  out->operands = WEFT_ARENA_ARRAY(scratch, spmd_sharding, instr->operand_count);
  out->results = WEFT_ARENA_ARRAY(scratch, spmd_sharding *, leaves);
  WEFT_TRY_ALLOC(out->operands);
  WEFT_TRY_ALLOC(out->results);
  for (int i = 0; i < instr->operand_count; i++)
    WEFT_TRY_NOTE(
      from_hlo(m, answer->operands[i], instr->operands[i]->shape, entry->params[i]->shape, scratch, &out->operands[i]),
      "operand %d", i);
  for (int i = 0; i < leaves; i++) {
    out->results[i] = WEFT_ARENA_NEW(scratch, spmd_sharding);
    WEFT_TRY_ALLOC(out->results[i]);
    WEFT_TRY_NOTE(from_hlo(m, is_tuple ? answer->result->elements[i] : answer->result,
                           is_tuple ? instr->shape->elements[i] : instr->shape,
                           is_tuple ? entry->root->shape->elements[i] : entry->root->shape, scratch, out->results[i]),
                  "result %d", i);
  }
  return hlo_computation_clone(m->module, entry, "partitioned", instr->parent, &out->body);
}

weft_status *spmd_custom_ask(spmd_mover *m, const hlo_instr *instr, const pass_custom_partitioner *custom,
                             spmd_sharding *const *operands, spmd_sharding *const *results, weft_arena *scratch,
                             spmd_custom_call *out)
{
  pass_partitioned_call answer = {0};
  const hlo_sharding **given = WEFT_ARENA_ARRAY(m->arena, const hlo_sharding *, instr->operand_count), *result;
  weft_status *st;

  WEFT_TRY_ALLOC(given);
  for (int i = 0; i < instr->operand_count; i++) {
    if (!hlo_shape_is_array(instr->operands[i]->shape))
      return WEFT_ERR(UNIMPLEMENTED, "a custom partitioner for operands that are no arrays");
    WEFT_TRY(spmd_sharding_to_hlo(m->grid, operands[i], m->arena, &given[i]));
  }
  WEFT_TRY(result_to_hlo(m, instr->shape, results, &result));
  WEFT_TRY_NOTE(custom->partition(custom->self, instr, given, result, m->arena, &answer),
                "partitioning custom-call \"%s\"", instr->u.custom->target);
  st = prepare(m, answer.module, scratch);
  if (!st) st = take_answer(m, instr, &answer, scratch, out);
  hlo_module_free(answer.module);
  return st;
}

weft_status *spmd_custom_inline(pass_build *b, spmd_custom_call *call, hlo_instr *const *operands, weft_arena *scratch,
                                hlo_instr **out)
{
  pass_map made = {.arena = scratch};

  HLO_FOREACH(instr, call->body) {
    hlo_instr **args = WEFT_ARENA_ARRAY(scratch, hlo_instr *, instr->operand_count), *copy;
    WEFT_TRY_ALLOC(args);
    for (int i = 0; i < instr->operand_count; i++) args[i] = pass_map_get(&made, instr->operands[i]->id);
    copy = instr->op == HLO_PARAMETER ? operands[instr->u.parameter_number] : pb_clone(b, instr, args);
    WEFT_TRY(pass_build_finish(b));
    WEFT_TRY(pass_map_set(&made, instr->id, copy));
  }
  *out = pass_map_get(&made, call->body->root->id);
  hlo_computation_remove(call->body);
  return NULL;
}

weft_status *spmd_custom_inspect(spmd_mover *m, const hlo_instr *instr, const pass_custom_partitioner *custom,
                                 const spmd_sharding *operand)
{
  const hlo_sharding *s;

  WEFT_TRY(spmd_sharding_to_hlo(m->grid, operand, m->arena, &s));
  return custom->inspect(custom->self, instr, s);
}
