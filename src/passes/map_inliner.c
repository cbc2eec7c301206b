/* map-inliner: map(x..., f) becomes f's body on whole arrays: the parameters stand for the operands, scalar constants
 * are broadcast, elementwise instructions and maps take the map's dimensions.  f may hold only those, constants and
 * parameters; anything else is UNIMPLEMENTED, naming it.  Maps of maps that double at every level are refused, as flatten
 * refuses such calls; those that only nest cost what they hold, since the outermost goes first. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

enum { INLINE_LIMIT = 2 << 20 }; /* instructions added */

static weft_status *inline_map(hlo_instr *map, pass_map *values, int64_t *added)
{
  const hlo_computation *f = map->called[0];
  weft_arena *arena = &map->parent->module->arena;
  pass_build b = PASS_BUILD_AT(map);
  hlo_instr **operands = NULL;
  int capacity = 0;

  *added += f->instr_count;
  if (*added > INLINE_LIMIT)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "the maps below \"%s\" have over %d instructions when inlined", map->name, INLINE_LIMIT);
  for (hlo_instr *instr = f->first; instr; instr = instr->next) {
    hlo_instr *value;
    if (instr->op == HLO_PARAMETER) {
      value = map->operands[instr->u.parameter_number];
    } else if (instr->op == HLO_CONSTANT) {
      value = pb_fill(&b, pb_clone(&b, instr, NULL), map->shape);
    } else if (hlo_opcode_is_elementwise(instr->op) || instr->op == HLO_MAP) {
      WEFT_TRY(pass_mapped_operands(instr, values, &operands, &capacity));
      value = pb_clone(&b, instr, operands);
      if (value) value->shape = hlo_shape_with_type(arena, map->shape, instr->shape->type);
      if (value && instr->op == HLO_MAP) value->dims = map->dims;
    } else {
      weft_status_ignore(pass_build_finish(&b));
      return WEFT_ERR(UNIMPLEMENTED, "map: its computation \"%s\" holds a %s, which is not elementwise", f->name,
                      hlo_opcode_name(instr->op));
    }
    if (b.error) return pass_build_finish(&b);
    WEFT_TRY_ALLOC(value->shape);
    WEFT_TRY(pass_map_set(values, instr->id, value));
  }
  return pass_build_replace(&b, map, pass_map_get(values, f->root->id));
}

/* Callers first: what was inlined is met again in the caller, and computations that only maps call stay as they are. */
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
