/* codegen/emit/loop.c -- kernels that make each element of their results on its own. */
#include <config.h>

#include "codegen/emit/emit.h"

weft_status *gen_store_results(gen_frame *f, gen_emit *e, gen_affine linear)
{
  gen_value v[HLO_MAX_RANK];

  for (int r = 0; r < f->result_count; r++)
    WEFT_TRY(gen_emit_leaf(e, &f->env, f->comp->root, r,
                           gen_delinearize(e, hlo_shape_leaf(f->fusion->shape, r), linear), &v[r]));
  for (int r = 0; r < f->result_count; r++) gen_store(e, &f->results[r], linear, v[r]);
  return NULL;
}

weft_status *gen_walk_body(void *ctx, gen_emit *e, gen_affine linear)
{
  gen_walk *w = ctx;
  gen_frame *f = w->f;
  int places = WEFT_MAX(w->places, 1), of_place = w->period * w->count;
  gen_value *values = WEFT_ARENA_ARRAY(e->arena, gen_value, places * of_place);

  WEFT_TRY_ALLOC(values);
  for (int p = 0; p < places; p++)
    for (int i = 0; i < w->period; i++)
      for (int r = 0; r < w->count; r++) {
        const hlo_shape *shape = hlo_shape_leaf(f->fusion->shape, w->first + r);
        const gen_index *at = gen_delinearize(e, shape, gen_affine_offset(linear, p * w->apart + i));
        gen_value *v = &values[p * of_place + i * w->count + r];
        WEFT_TRY(gen_emit_leaf(e, &f->env, f->comp->root, w->first + r, at, v));
      }
  for (int p = 0; p < places; p++)
    for (int r = 0; r < w->count; r++) {
      gen_affine at = gen_affine_offset(linear, p * w->apart);
      e->part->walker->store(e, &f->results[w->first + r], at, values + p * of_place + r, w->count, w->period);
    }
  return NULL;
}

weft_status *gen_emit_loop_kernel(gen_part *part, gen_kernel_spec *spec)
{
  gen_frame frame, *f = &frame;
  gen_kernel *info = spec->info;
  const hlo_shape *shape = spec->fusion->shape;
  int leaves = hlo_shape_leaf_count(shape);
  bool together = true;
  int64_t most = 0, units = 0;

  for (int r = 0; r < leaves; r++) {
    const hlo_shape *leaf = hlo_shape_leaf(shape, r);
    if (!hlo_shape_is_array(leaf))
      return WEFT_ERR(UNIMPLEMENTED, "codegen: a fusion with a %s result", weft_dtype_name(leaf->type));
    together = together && hlo_shape_elems(leaf) == hlo_shape_elems(hlo_shape_leaf(shape, 0));
  }
  WEFT_TRY(gen_frame_open(part, spec, 0, f));
  HLO_FOREACH(x, f->comp) WEFT_TRY(gen_hoist(&f->e, &f->env, x));
  const hlo_instr **roots = WEFT_ARENA_ARRAY(part->arena, const hlo_instr *, leaves);
  WEFT_TRY_ALLOC(roots);
  for (int first = 0; first < leaves; first += together ? leaves : 1) {
    gen_walk w = {.f = f, .first = first, .count = together ? leaves : 1, .roots = roots, .period = 1};
    for (int r = 0; r < w.count; r++) {
      gen_env *env = &f->env;
      int leaf = first + r;
      roots[r] = f->comp->root;
      gen_resolve(&env, &roots[r], &leaf);
    }
    WEFT_TRY(part->walker->walk(&w, together, &units));
    most = WEFT_MAX(most, units);
  }
  gen_frame_close(f);
  info->phase_count = 1;
  info->phases[0] = (gen_phase){.units = most};
  return NULL;
}
