/* codegen/host/kernel.c -- a fusion's kernel: the strategy that fills it, and the plainest one, loops over the results. */
#include <config.h>

#include "codegen/host/host.h"
#include "codegen/model/cost.h"

/* ---- elementwise-like fusions ------------------------------------------------------------------------------------------------ */

typedef struct loop_ctx {
  gen_frame *f;
  int first, count; /* the results walked together */
  int period;       /* elements of each at once */
} loop_ctx;

/* All values are computed before the first is stored: a result may lie on an operand. */
static weft_status *loop_body(void *ctx, gen_emit *e, gen_affine linear)
{
  loop_ctx *l = ctx;
  gen_frame *f = l->f;
  gen_value *values = WEFT_ARENA_ARRAY(e->arena, gen_value, l->period * l->count);

  WEFT_TRY_ALLOC(values);
  for (int i = 0; i < l->period; i++)
    for (int r = 0; r < l->count; r++) {
      const hlo_shape *shape = hlo_shape_leaf(f->fusion->shape, l->first + r);
      const gen_index *at = gen_delinearize(e, shape, gen_affine_offset(linear, i));
      WEFT_TRY(gen_emit_leaf(e, &f->env, f->comp->root, l->first + r, at, &values[i * l->count + r]));
    }
  for (int r = 0; r < l->count; r++) gen_store_joined(e, &f->results[l->first + r], linear, values + r, l->count, l->period);
  return NULL;
}

weft_status *gen_emit_loop_kernel(gen_part *part, gen_kernel_spec *spec)
{
  gen_frame frame, *f = &frame;
  gen_kernel *info = spec->info;
  const hlo_shape *shape = spec->fusion->shape;
  int leaves = hlo_shape_leaf_count(shape), widest = gen_widest_bytes(spec->fusion->called[0]);
  bool together = true;
  int64_t units = 0;

  for (int r = 0; r < leaves; r++) {
    const hlo_shape *leaf = hlo_shape_leaf(shape, r);
    if (!hlo_shape_is_array(leaf)) return WEFT_ERR(UNIMPLEMENTED, "codegen: a fusion with a %s result", weft_dtype_name(leaf->type));
    together = together && hlo_shape_elems(leaf) == hlo_shape_elems(hlo_shape_leaf(shape, 0));
  }
  WEFT_TRY(gen_frame_open(part, spec, 0, f));
  HLO_FOREACH(x, f->comp) WEFT_TRY(gen_hoist(&f->e, &f->env, x));
  const hlo_instr **roots = WEFT_ARENA_ARRAY(part->arena, const hlo_instr *, leaves);
  WEFT_TRY_ALLOC(roots);
  for (int first = 0; first < leaves; first += together ? leaves : 1) {
    loop_ctx ctx = {f, first, together ? leaves : 1, 1};
    gen_nest nest;
    for (int r = 0; r < ctx.count; r++) {
      gen_env *env = &f->env;
      int leaf = first + r;
      roots[r] = f->comp->root;
      gen_resolve(&env, &roots[r], &leaf);
    }
    WEFT_TRY(gen_nest_of(part->arena, f->comp, roots, ctx.count, hlo_shape_leaf(shape, first), &nest));
    WEFT_TRY(gen_nest_join(part->arena, f->comp, roots, ctx.count, &nest));
    ctx.period = WEFT_MAX(nest.period, 1);
    WEFT_TRY(gen_emit_nest(&f->e, &nest, widest, together ? f->begin : NULL, f->end, &units, loop_body, &ctx));
  }
  gen_frame_close(f);
  info->phase_count = 1;
  info->phases[0] = (gen_phase){.units = together ? units : 1};
  return NULL;
}

weft_status *gen_wrong_strategy(const gen_kernel_spec *spec)
{
  return WEFT_ERR(INTERNAL, "codegen: the fusion does not have the form of the strategy \"%s\"", gen_strategy_name(spec->info->strategy));
}

static weft_status *emit_by_strategy(gen_part *part, gen_kernel_spec *spec)
{
  WEFT_TRY(gen_decide(part->arena, spec->fusion, &spec->info->strategy));
  switch (spec->info->strategy) {
  case GEN_STRATEGY_REGION: return gen_emit_region_kernel(part, spec);
  case GEN_STRATEGY_SMALL_LOOP: return gen_emit_small_loop_kernel(part, spec);
  case GEN_STRATEGY_SCATTER: return gen_emit_scatter_kernel(part, spec);
  case GEN_STRATEGY_PICK: return gen_emit_select_and_scatter_kernel(part, spec);
  case GEN_STRATEGY_UPDATE: return gen_emit_dus_kernel(part, spec);
  case GEN_STRATEGY_ROWS: return gen_emit_row_kernel(part, spec);
  case GEN_STRATEGY_COLUMNS: return gen_emit_column_kernel(part, spec);
  case GEN_STRATEGY_TURN: return gen_emit_transpose_kernel(part, spec);
  case GEN_STRATEGY_LOOP: return gen_emit_loop_kernel(part, spec);
  default: return gen_wrong_strategy(spec);
  }
}

weft_status *gen_emit_kernel(gen_part *part, gen_kernel_spec *spec)
{
  bool outer = part->raw_narrow;

  part->raw_narrow = gen_only_moves_narrow(spec->fusion->called[0]);
  weft_status *st = emit_by_strategy(part, spec);
  part->raw_narrow = outer;
  if (!st) gen_price(part->target, part->arena, spec->fusion, spec->info);
  return st;
}
