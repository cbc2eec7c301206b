/* passes/map_inliner.c -- map-inliner: map(x..., f) becomes f's body on whole arrays. The operands take the places
 * of the parameters, scalar constants are broadcast, and elementwise instructions and maps get the map's dimensions.
 * f may contain only those, constants and parameters; anything else is UNIMPLEMENTED and named. Maps of maps that
 * double at every level are refused, as flatten refuses such calls. Maps that only nest cost no more than their
 * contents, because the outermost goes first. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

enum { INLINE_LIMIT = 2 << 20 }; /* instructions added */

static const hlo_instr *first_not_pointwise(const hlo_computation *f)
{
  HLO_FOREACH(instr, f)
    if (instr->op != HLO_PARAMETER && instr->op != HLO_CONSTANT && instr->op != HLO_MAP &&
        !hlo_opcode_is_elementwise(instr->op))
      return instr;
  return NULL;
}

bool pass_is_pointwise(const hlo_computation *f) { return !first_not_pointwise(f); }

static hlo_instr *apply_one(pass_build *b, const hlo_instr *instr, const hlo_shape *dims, pass_map *values,
                            hlo_instr ***operands, int *capacity)
{
  int64_t all_dims[HLO_MAX_RANK];
  hlo_instr *value;

  if (instr->op == HLO_CONSTANT) return pb_fill(b, pb_clone(b, instr, NULL), dims);
  b->error = pass_mapped_operands(instr, values, operands, capacity);
  value = pb_clone(b, instr, *operands);
  if (!value) return NULL;
  for (int d = 0; d < dims->rank; d++) all_dims[d] = d;
  if (instr->op == HLO_MAP) value->dims = pb_ints(b, dims->rank, all_dims);
  value->shape = hlo_shape_with_type(&b->comp->module->arena, dims, instr->shape->type);
  if (!value->shape) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  return value;
}

hlo_instr *pb_apply(pass_build *b, const hlo_computation *f, hlo_instr *const *arguments, const hlo_shape *dims,
                    pass_map *values)
{
  hlo_instr **operands = NULL;
  int capacity = 0;

  HLO_FOREACH(instr, f) {
    hlo_instr *value = instr->op == HLO_PARAMETER ? arguments[instr->u.parameter_number]
                                                  : apply_one(b, instr, dims, values, &operands, &capacity);
    if (!b->error) b->error = pass_map_set(values, instr->id, value);
    if (b->error) return NULL;
  }
  return pass_map_get(values, f->root->id);
}

static weft_status *inline_map(hlo_instr *map, pass_map *values, int64_t *added)
{
  const hlo_computation *f = map->called[0];
  const hlo_instr *odd = first_not_pointwise(f);
  pass_build b = PASS_BUILD_AT(map);

  *added += f->instr_count;
  if (*added > INLINE_LIMIT)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "the maps below \"%s\" have over %d instructions when inlined", map->name,
                    INLINE_LIMIT);
  if (odd)
    return WEFT_ERR(UNIMPLEMENTED, "map: its computation \"%s\" holds a %s, which is not elementwise", f->name,
                    hlo_opcode_name(odd->op));
  return pass_build_replace(&b, map, pb_apply(&b, f, map->operands, map->shape, values));
}

/* Callers first: maps inside an inlined body are met again in the caller, and computations that only maps call stay
 * as they are. */
static weft_status *map_inliner_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map values = {.arena = ctx->scratch};
  bool *stays = WEFT_ARENA_ARRAY(ctx->scratch, bool, module->next_computation_id);
  int64_t added = 0;

  WEFT_TRY_ALLOC(stays);
  stays[module->entry->id] = true;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      for (int i = 0; i < instr->called_count; i++) stays[instr->called[i]->id] |= instr->op != HLO_MAP;

  for (hlo_computation *comp = module->last; comp; comp = comp->prev)
    for (hlo_instr *instr = stays[comp->id] ? comp->first : NULL, *next; instr; instr = next) {
      hlo_instr *before = instr->prev;
      next = instr->next;
      if (instr->op != HLO_MAP) continue;
      WEFT_TRY(inline_map(instr, &values, &added));
      next = before ? before->next : comp->first;
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_map_inliner = {"map-inliner", map_inliner_run};
