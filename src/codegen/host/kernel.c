/* codegen/host/kernel.c -- a fusion's kernel: the strategy that fills it, and the walk of the plainest one. */
#include <config.h>

#include "codegen/host/host.h"
#include "codegen/model/cost.h"

/* The walk of the host: nested loops. Units are pieces of the outermost ones. A kernel in a region is one unit, whose
 * bounds are constants: the elements that do not fill a vector are then computed in narrower ones. */
weft_status *gen_host_walk(gen_walk *w, bool split, int64_t *units)
{
  gen_frame *f = w->f;
  weft_arena *arena = f->e.arena;
  gen_nest nest;

  WEFT_TRY(gen_nest_of(arena, f->comp, w->roots, w->count, hlo_shape_leaf(f->fusion->shape, w->first), &nest));
  WEFT_TRY(gen_nest_join(arena, f->comp, w->roots, w->count, &nest));
  w->period = WEFT_MAX(nest.period, 1);
  gen_ssa begin = split && !f->nested ? f->begin : NULL;
  return gen_emit_nest(&f->e, &nest, gen_widest_bytes(f->comp), begin, f->end, units, gen_walk_body, w);
}

static weft_status *emit_by_strategy(gen_part *part, gen_kernel_spec *spec)
{
  WEFT_TRY(gen_decide(part->target, part->arena, spec->fusion, &spec->info->strategy));
  switch (spec->info->strategy) {
  case GEN_STRATEGY_REGION: return gen_emit_region_kernel(part, spec);
  case GEN_STRATEGY_SMALL_LOOP: part->unrolled_scalars = true; return gen_emit_small_loop_kernel(part, spec);
  case GEN_STRATEGY_SCATTER: return gen_emit_scatter_kernel(part, spec);
  case GEN_STRATEGY_PICK: return gen_emit_select_and_scatter_kernel(part, spec);
  case GEN_STRATEGY_UPDATE: return gen_emit_dus_kernel(part, spec);
  case GEN_STRATEGY_ROWS: return gen_emit_row_kernel(part, spec);
  case GEN_STRATEGY_COLUMNS: return gen_emit_column_kernel(part, spec);
  case GEN_STRATEGY_TURN: return gen_emit_transpose_kernel(part, spec);
  case GEN_STRATEGY_LOOP: return gen_emit_loop_kernel(part, spec);
  default: return gen_wrong_form(spec->info->strategy);
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
