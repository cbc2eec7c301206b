/* codegen/nvptx/turn.c -- loops that read transposed arrays, by tiles in shared memory. A tile is 32 x 32 elements of
 * two loops: the result's innermost loop, and loop h, which is innermost in the transposed operand. The block computes
 * each transposed value with neighbouring threads along h, so that they read neighbouring elements, and leaves the
 * values in shared memory. It takes them from there with neighbouring threads along the result's innermost loop,
 * computes the rest of the fusion, and stores. A row of the tile has one element more than the tile is wide, so that
 * the threads of a warp use different banks of shared memory in both directions. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum { TILE = 32, PITCH = TILE + 1, WARPS = 8, STEPS = TILE / WARPS };

typedef struct tiles {
  gen_frame *f;
  gen_turned form;
  gen_shared arrays[GEN_MOST_TURNED][2];
  gen_affine outer;     /* linear index of the loops other than the two */
  int64_t h_tiles, col_tiles, outer_count;
  gen_ssa h, col;       /* where the tile begins; i64 */
  gen_ssa lane, warp;   /* i64 */
} tiles;

static int last_loop(const tiles *t) { return t->form.nest.count - 1; }

/* `first` + `step`, or the last index of the loop if that is beyond. *inside says whether it is not. */
static gen_affine clamped(gen_emit *e, gen_ssa first, gen_ssa step, int64_t extent, gen_ssa *inside)
{
  gen_ssa at = LLVMBuildNSWAdd(e->b, first, step, "");

  *inside = LLVMBuildICmp(e->b, LLVMIntULT, at, gen_i64(e, extent), "");
  if (extent % TILE) at = gen_select(e, *inside, at, gen_i64(e, extent - 1));
  return gen_affine_value(e, at, 0, extent - 1);
}

static gen_affine linear_of(const tiles *t, gen_emit *e, gen_affine h, gen_affine col)
{
  const gen_nest *nest = &t->form.nest;
  gen_affine sum = gen_affine_add(e, t->outer, gen_affine_scale(e, h, nest->stride[t->form.h]));

  return gen_affine_add(e, sum, gen_affine_scale(e, col, nest->stride[last_loop(t)]));
}

static gen_ssa warp_row(const tiles *t, gen_emit *e, int s)
{
  return LLVMBuildNSWAdd(e->b, t->warp, gen_i64(e, (int64_t)s * WARPS), "");
}

/* Lanes along h: the element at (h = lane, column = row) of the tile goes to row `row`, place `lane`. */
static weft_status *fill(tiles *t, gen_emit *e)
{
  const gen_nest *nest = &t->form.nest;
  gen_ssa unused;

  for (int s = 0; s < STEPS; s++) {
    gen_ssa row = warp_row(t, e, s), at;
    gen_affine h = clamped(e, t->h, t->lane, nest->extent[t->form.h], &unused);
    gen_affine col = clamped(e, t->col, row, nest->extent[last_loop(t)], &unused), linear = linear_of(t, e, h, col);
    at = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, row, gen_i64(e, PITCH), ""), t->lane, "");
    for (int k = 0; k < t->form.turned_count; k++) {
      const hlo_instr *x = t->form.turned[k];
      gen_value v;
      WEFT_TRY(gen_emit_leaf(e, &t->f->env, x, 0, gen_delinearize(e, x->shape, linear), &v));
      gen_shared_put(e, &t->arrays[k][0], at, v.re);
      if (v.im) gen_shared_put(e, &t->arrays[k][1], at, v.im);
    }
  }
  return NULL;
}

/* Lanes along the result's innermost loop: the results at (h = row, column = lane). */
static weft_status *take(tiles *t, gen_emit *e)
{
  const gen_nest *nest = &t->form.nest;
  gen_value values[GEN_MOST_TURNED];

  for (int s = 0; s < STEPS; s++) {
    gen_ssa row = warp_row(t, e, s), is_row, is_col;
    gen_affine h = clamped(e, t->h, row, nest->extent[t->form.h], &is_row);
    gen_affine col = clamped(e, t->col, t->lane, nest->extent[last_loop(t)], &is_col);
    gen_ssa at = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, t->lane, gen_i64(e, PITCH), ""), row, "");
    gen_if inside;

    gen_if_begin(e, &inside, LLVMBuildAnd(e->b, is_row, is_col, ""));
    int mark = gen_memo_push(e);
    for (int k = 0; k < t->form.turned_count; k++) {
      bool is_complex = weft_dtype_is_complex(t->form.turned[k]->shape->type);
      values[k].re = gen_shared_get(e, &t->arrays[k][0], at);
      values[k].im = is_complex ? gen_shared_get(e, &t->arrays[k][1], at) : NULL;
      gen_source source = {.kind = GEN_SOURCE_VALUE, .values = &values[k]};
      WEFT_TRY(gen_env_bind(e, &t->f->env, t->form.turned[k], source));
    }
    WEFT_TRY(gen_store_results(t->f, e, linear_of(t, e, h, col)));
    gen_memo_pop(e, mark);
    gen_if_end(e, &inside);
  }
  t->f->env.bound_count = 0;
  return NULL;
}

/* Finds the tile of this block: the tiles along the result's innermost loop follow each other. */
static void open_tile(tiles *t, gen_emit *e)
{
  const gen_nest *nest = &t->form.nest;
  int64_t below = 1, blocks = t->h_tiles * t->col_tiles * t->outer_count;
  gen_affine block = gen_affine_var(
    e, gen_add_var(e, (gen_var){.value = gen_wide(e, gen_block_id(e)), .lo = 0, .hi = blocks, .align = 1}));
  gen_affine outer = gen_affine_digit(e, block, t->h_tiles * t->col_tiles, 0);
  gen_team team = gen_team_of(e, WARPS * GEN_WARP);

  t->lane = gen_wide(e, team.lane), t->warp = gen_wide(e, team.warp);
  t->col = gen_affine_ssa(e, gen_affine_scale(e, gen_affine_digit(e, block, 1, t->col_tiles), TILE));
  t->h = gen_affine_ssa(e, gen_affine_scale(e, gen_affine_digit(e, block, t->col_tiles, t->h_tiles), TILE));
  t->outer = gen_affine_const(0);
  for (int g = last_loop(t) - 1; g >= 0; g--) {
    if (g == t->form.h) continue;
    gen_affine digit = gen_affine_digit(e, outer, below, nest->extent[g]);
    t->outer = gen_affine_add(e, t->outer, gen_affine_scale(e, digit, nest->stride[g]));
    below *= nest->extent[g];
  }
}

weft_status *gen_grid_turn(gen_grid *g)
{
  tiles t = {.outer_count = 1};
  gen_frame f;
  bool is_turned;

  WEFT_TRY(gen_turned_of(g->part->arena, g->spec->fusion, &t.form, &is_turned));
  if (!is_turned) return gen_wrong_form(g->spec->info->strategy);
  const gen_nest *nest = &t.form.nest;
  t.h_tiles = (nest->extent[t.form.h] + TILE - 1) / TILE;
  t.col_tiles = (nest->extent[last_loop(&t)] + TILE - 1) / TILE;
  for (int k = 0; k < last_loop(&t); k++)
    if (k != t.form.h) t.outer_count *= nest->extent[k];
  WEFT_TRY(gen_grid_open(g, false, &f));
  t.f = &f;
  for (int k = 0; k < t.form.turned_count; k++) {
    weft_dtype type = t.form.turned[k]->shape->type;
    for (int half = 0; half < (weft_dtype_is_complex(type) ? 2 : 1); half++)
      t.arrays[k][half] = gen_shared_array(&f.e, gen_register_type(g->part, type), TILE * PITCH);
  }
  open_tile(&t, &f.e);
  int mark = gen_memo_push(&f.e);
  WEFT_TRY(fill(&t, &f.e));
  gen_memo_pop(&f.e, mark);
  gen_barrier(&f.e);
  WEFT_TRY(take(&t, &f.e));
  return gen_grid_close(g, &f, t.h_tiles * t.col_tiles * t.outer_count, WARPS * GEN_WARP);
}
