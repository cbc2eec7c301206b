/* passes/element_loops.c -- element-loops: a while that changes arrays element by element (gen_element_loop) becomes
 * one kernel (kCustom, "loop"), in which each vector of elements makes all of its rounds with its state in registers,
 * and threads share the elements. The arrays of the state are then read and written once, instead of once a round; and
 * in a loop that goes on until all elements are done, as jax.vmap makes of a while_loop, a vector whose elements are
 * done stops. The results are the arrays that are used after the loop; a loop of which a number is used is left
 * alone. */
#include <config.h>

#include "codegen/model/strategy.h"
#include "passes/fusion.h"
#include "passes/passes.h"
#include "passes/while_loop.h"

/* Are the elements of the state that are used after the loop arrays that it changes? */
static bool has_array_results(const while_loop *w, const gen_element_loop *form)
{
  int results = 0;

  for (int i = 0; i < w->count; i++) {
    if (!while_is_used(w, i)) continue;
    if (!gen_element_loop_changes(form, i) || hlo_shape_is_scalar(w->after[i]->shape)) return false;
    results++;
  }
  return results > 0 && results <= HLO_MAX_RANK;
}

static weft_status *make_kernel(const void *ctx, while_loop *w, pass_map *map, hlo_instr **out)
{
  gen_element_loop form;
  bool fits;

  (void)ctx;
  WEFT_TRY(gen_element_loop_of(map->arena, w->loop, &form, &fits));
  if (!fits || !has_array_results(w, &form)) return NULL;
  WEFT_TRY(while_outline(w, map, "loop_fusion", true, out));
  return pass_fusion_classify(*out, "loop");
}

static weft_status *element_loops_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  return while_make_kernels(module, ctx->scratch, make_kernel, NULL, changed);
}
const hlo_pass pass_element_loops = {"element-loops", element_loops_run};
