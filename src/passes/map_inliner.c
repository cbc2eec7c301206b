/* map-inliner: map(x..., f) becomes f's body on whole arrays: the parameters stand for the operands, scalar constants
 * are broadcast, elementwise instructions take the map's dimensions.  f may hold only elementwise instructions,
 * constants and parameters; anything else is UNIMPLEMENTED, naming it.  Maps of maps that double at every level are
 * refused, as flatten refuses such calls. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

enum { INLINE_LIMIT = 2 << 20 }; /* instructions added */

static weft_status *inline_map(hlo_instr *map, pass_map *values, int64_t *added)
{
  const hlo_computation *f = map->called[0];
  weft_arena *arena = &map->parent->module->arena;
  pass_build b = PASS_BUILD_AT(map);

  *added += f->instr_count;
  if (*added > INLINE_LIMIT)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "the maps below \"%s\" have over %d instructions when inlined", map->name, INLINE_LIMIT);
  for (hlo_instr *instr = f->first; instr; instr = instr->next) {
    hlo_instr *operands[3], *value;
    if (instr->op == HLO_PARAMETER) {
      value = map->operands[instr->u.parameter_number];
    } else if (instr->op == HLO_CONSTANT) {
      value = pb_fill(&b, pb_clone(&b, instr, NULL), map->shape);
    } else if (hlo_opcode_is_elementwise(instr->op)) {
      for (int i = 0; i < instr->operand_count; i++) operands[i] = pass_map_get(values, instr->operands[i]->id);
      value = pb_clone(&b, instr, operands);
      if (value) value->shape = hlo_shape_with_type(arena, map->shape, instr->shape->type);
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

static weft_status *map_inliner_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map values = {.arena = ctx->scratch};
  int64_t added = 0;

  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op != HLO_MAP) continue;
      WEFT_TRY(inline_map(instr, &values, &added));
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_map_inliner = {"map-inliner", map_inliner_run};
