/* codegen/nvptx/columns.c -- columns over a grid: a block takes 32 neighbouring columns and a part of the reduced rows.
 * Each warp of the block takes every eighth of these rows, 32 columns side by side, and the warps' sums are combined in
 * shared memory in the order of the warps. Where the columns do not fill the device, the rows are cut into parts whose
 * sums a second launch combines in order. A reducer that is no single operation is applied in order, by one thread a
 * column. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum { WARPS = 8, UNROLL = 4, BLOCKS_A_CORE = 4, LEAST_PART = WARPS * UNROLL * 2 };
_Static_assert(WARPS *GEN_WARP == GEN_BLOCK_THREADS, "in a region, the block has as many threads");

typedef struct columns {
  gen_grid *g;
  gen_frame *f;
  gen_columns form;
  int64_t reduced;     /* elements that make one result */
  int64_t parts, part; /* of the reduced elements: how many, and the size of each but the last */
  gen_acc *accs;
  gen_value *slots;
  int count;
} columns;

static weft_status *open_kernel(columns *c, gen_frame *f)
{
  WEFT_TRY(gen_grid_open(c->g, false, f));
  c->f = f;
  WEFT_TRY(gen_accs_of(&f->e, c->form.reduces, c->form.reduce_count, &c->accs, &c->count));
  c->slots = WEFT_ARENA_ARRAY(f->e.arena, gen_value, c->count);
  WEFT_TRY_ALLOC(c->slots);
  return NULL;
}

/* Combines the reduced element number `row` of the column `kept` into the slots. */
static weft_status *step(columns *c, gen_emit *e, gen_affine kept, gen_affine row)
{
  gen_affine at[HLO_MAX_RANK];
  int64_t stride = 1;

  for (int k = c->form.walk_count - 1; k >= 0; k--) {
    int64_t size = c->form.in->dims[c->form.walk[k]];
    at[c->form.walk[k]] = gen_affine_digit(e, row, stride, size);
    stride *= size;
  }
  return gen_accs_step(e, &c->f->env, c->accs, c->count, c->slots, gen_columns_index(e, &c->form, kept, at));
}

/* Rows [lo, hi), `apart` from one step to the next, `unroll` of them in an iteration. */
static weft_status *rows(columns *c, gen_emit *e, gen_affine kept, gen_ssa lo, gen_ssa hi, int apart, int unroll)
{
  gen_loop loop;

  gen_loop_begin(e, &loop, lo, hi, (int64_t)apart * unroll, 0, c->reduced - (int64_t)apart * (unroll - 1), 1);
  int mark = gen_memo_push(e);
  for (int u = 0; u < unroll; u++)
    WEFT_TRY(step(c, e, kept, gen_affine_offset(gen_affine_var(e, loop.var), (int64_t)u * apart)));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

static weft_status *finish(columns *c, gen_emit *e, gen_affine kept)
{
  gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, c->count);

  WEFT_TRY_ALLOC(v);
  for (int i = 0; i < c->count; i++) v[i] = gen_acc_get(e, c->slots[i]);
  return gen_columns_finish(c->f, e, kept, c->accs, c->count, v);
}

static weft_status *start(columns *c, gen_emit *e, bool initial)
{
  for (int i = 0; i < c->count; i++) {
    gen_value first = {NULL, NULL};
    c->slots[i] = gen_acc_slot(e, c->accs[i].type, 1);
    if (initial) WEFT_TRY(gen_acc_init(e, &c->f->env, &c->accs[i], &first));
    else first = gen_identity(e, c->accs[i].op, c->accs[i].type);
    gen_acc_set(e, c->slots[i], first);
  }
  return NULL;
}

/* ---- one thread a column --------------------------------------------------------------------------------------- */

static weft_status *in_order(void *ctx, gen_emit *e, gen_affine kept)
{
  columns *c = ctx;

  WEFT_TRY(start(c, e, true));
  WEFT_TRY(rows(c, e, kept, gen_i64(e, 0), gen_i64(e, c->reduced), 1, 1));
  return finish(c, e, kept);
}

static weft_status *combine_parts(void *ctx, gen_emit *e, gen_affine kept)
{
  columns *c = ctx;
  gen_loop loop;

  WEFT_TRY(start(c, e, true));
  gen_loop_static(e, &loop, 0, c->parts, 1);
  gen_affine at = gen_affine_add(e, gen_affine_scale(e, gen_affine_var(e, loop.var), c->form.results), kept);
  for (int i = 0; i < c->count; i++) {
    gen_buffer partial = gen_partial(e, c->f, &c->accs[i], i, c->form.results * c->parts);
    gen_value sum = gen_acc_get(e, c->slots[i]);
    gen_acc_set(e, c->slots[i], gen_combine(e, c->accs[i].op, c->accs[i].type, sum, gen_load(e, &partial, at)));
  }
  gen_loop_end(e, &loop);
  return finish(c, e, kept);
}

static weft_status *each_column(columns *c, gen_body_fn *body)
{
  gen_frame f;

  WEFT_TRY(open_kernel(c, &f));
  WEFT_TRY(gen_grid_each(&f, c->form.results, body, c));
  return gen_grid_close_each(c->g, &f, c->form.results);
}

/* ---- a block for 32 columns ------------------------------------------------------------------------------------ */

/* Combines the slots of all warps into those of the first warp. */
static void combine_warps(columns *c, gen_emit *e, gen_ssa warp, gen_ssa lane)
{
  gen_shared(*arrays)[2] = weft_arena_alloc(e->arena, sizeof *arrays * (size_t)c->count);
  gen_ssa at = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, warp, gen_i64(e, GEN_WARP), ""), lane, "");
  gen_if first;

  for (int i = 0; i < c->count; i++) {
    gen_value v = gen_acc_get(e, c->slots[i]);
    gen_ssa halves[] = {v.re, v.im};
    for (int k = 0; k < 2 && halves[k]; k++) {
      arrays[i][k] = gen_shared_array(e, LLVMTypeOf(halves[k]), WARPS * GEN_WARP);
      gen_shared_put(e, &arrays[i][k], at, halves[k]);
    }
  }
  gen_barrier(e);
  gen_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, warp, gen_i64(e, 0), ""));
  for (int i = 0; i < c->count; i++) {
    gen_value sum = gen_acc_get(e, c->slots[i]);
    for (int w = 1; w < WARPS; w++) {
      gen_ssa place = LLVMBuildNSWAdd(e->b, lane, gen_i64(e, w * GEN_WARP), "");
      gen_value v = {gen_shared_get(e, &arrays[i][0], place), sum.im ? gen_shared_get(e, &arrays[i][1], place) : NULL};
      sum = gen_combine(e, c->accs[i].op, c->accs[i].type, sum, v);
    }
    gen_acc_set(e, c->slots[i], sum);
  }
  gen_if_end(e, &first);
}

/* Stores what the first warp has: the results, or the partial results of part `part`. */
static weft_status *store_columns(columns *c, gen_emit *e, gen_affine kept, gen_affine part)
{
  if (c->parts == 1) {
    for (int i = 0; i < c->count; i++) {
      gen_value init;
      WEFT_TRY(gen_acc_init(e, &c->f->env, &c->accs[i], &init));
      gen_acc_set(e, c->slots[i], gen_combine(e, c->accs[i].op, c->accs[i].type, init, gen_acc_get(e, c->slots[i])));
    }
    return finish(c, e, kept);
  }
  for (int i = 0; i < c->count; i++) {
    gen_buffer partial = gen_partial(e, c->f, &c->accs[i], i, c->form.results * c->parts);
    gen_affine at = gen_affine_add(e, gen_affine_scale(e, part, c->form.results), kept);
    gen_store(e, &partial, at, gen_acc_get(e, c->slots[i]));
  }
  return NULL;
}

static weft_status *by_blocks(columns *c)
{
  int64_t strips = (c->form.results + GEN_WARP - 1) / GEN_WARP, apart = WARPS * UNROLL;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_blocks blocks;
  gen_if first;

  WEFT_TRY(open_kernel(c, &f));
  gen_team team = gen_team_of(e, WARPS * GEN_WARP);
  gen_ssa lane = gen_wide(e, team.lane), warp = gen_wide(e, team.warp);
  int var = gen_add_var(
    e,
    (gen_var){.value = gen_blocks_begin(e, &blocks, strips * c->parts), .lo = 0, .hi = strips * c->parts, .align = 1});
  gen_affine block = gen_affine_var(e, var), part = gen_affine_digit(e, block, strips, 0);
  gen_ssa column = gen_affine_ssa(e, gen_affine_scale(e, gen_affine_digit(e, block, 1, strips), GEN_WARP));
  column = LLVMBuildNSWAdd(e->b, column, lane, "");
  gen_ssa is_column = LLVMBuildICmp(e->b, LLVMIntULT, column, gen_i64(e, c->form.results), "");
  /* beyond the last column: the sum is not used */
  column = gen_select(e, is_column, column, gen_i64(e, c->form.results - 1));
  gen_affine kept = gen_affine_value(e, column, 0, c->form.results - 1);

  gen_ssa lo = gen_affine_ssa(e, gen_affine_scale(e, part, c->part)), hi = gen_i64(e, c->reduced);
  if (c->parts > 1) hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWAdd(e->b, lo, gen_i64(e, c->part), ""), hi);
  gen_ssa length = LLVMBuildNSWSub(e->b, hi, lo, "");
  gen_ssa whole = LLVMBuildNSWAdd(e->b, lo, LLVMBuildAnd(e->b, length, gen_i64(e, -apart), ""), "");
  WEFT_TRY(start(c, e, false));
  if (c->part >= apart) {
    WEFT_TRY(rows(c, e, kept, LLVMBuildNSWAdd(e->b, lo, warp, ""), whole, WARPS, UNROLL));
    lo = whole;
  }
  WEFT_TRY(rows(c, e, kept, LLVMBuildNSWAdd(e->b, lo, warp, ""), hi, WARPS, 1));
  combine_warps(c, e, warp, lane);
  gen_ssa stores = LLVMBuildAnd(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, warp, gen_i64(e, 0), ""), is_column, "");
  gen_if_begin(e, &first, stores);
  int mark = gen_memo_push(e);
  WEFT_TRY(store_columns(c, e, kept, part));
  gen_memo_pop(e, mark);
  gen_if_end(e, &first);
  gen_blocks_end(e, &blocks);
  return gen_grid_close(c->g, &f, strips * c->parts, WARPS * GEN_WARP);
}

/* Cuts the reduced rows into parts if the columns alone give the device too few blocks. */
static void cut(columns *c)
{
  int64_t strips = (c->form.results + GEN_WARP - 1) / GEN_WARP;
  int64_t wanted = c->g->part->block ? 1 : (int64_t)c->g->part->target->cores * BLOCKS_A_CORE / strips;

  c->parts = WEFT_MAX(WEFT_MIN(wanted, c->reduced / LEAST_PART), 1);
  c->part = (c->reduced + c->parts - 1) / c->parts;
  c->parts = (c->reduced + c->part - 1) / c->part;
}

weft_status *gen_grid_columns(gen_grid *g)
{
  columns c = {.g = g, .reduced = 1, .parts = 1};
  gen_emit probe = {.part = g->part, .arena = g->part->arena};
  bool is_columns;

  WEFT_TRY(gen_columns_of(g->part->arena, g->spec->fusion->called[0], &c.form, &is_columns));
  if (!is_columns) return gen_wrong_form(g->spec->info->strategy);
  for (int k = 0; k < c.form.walk_count; k++) c.reduced *= c.form.in->dims[c.form.walk[k]];
  WEFT_TRY(gen_accs_of(&probe, c.form.reduces, c.form.reduce_count, &c.accs, &c.count));
  if (!gen_accs_are_plain(c.accs, c.count)) return each_column(&c, in_order);
  cut(&c);
  if (c.parts > 1) g->spec->info->shared_bytes = c.count * c.form.results * c.parts * GEN_PARTIAL_BYTES;
  WEFT_TRY(by_blocks(&c));
  return c.parts > 1 ? each_column(&c, combine_parts) : NULL;
}
