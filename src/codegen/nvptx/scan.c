/* codegen/nvptx/scan.c -- prefixes: a reduce-window whose windows end (or begin) at each element of a dimension.
 *
 *   along the innermost dimension   a team of threads takes a row, tile by tile: each thread scans a few neighbours,
 *                                   the threads of a warp combine their sums by shuffles, warps through shared memory
 *   along any other                 a thread takes a column and walks along it; neighbouring threads have neighbouring
 *                                   columns
 *
 * Each element is read once and each result is written once. If the slices are too few to fill the device, they are cut
 * into parts. A first launch then reduces each part, and the second one combines, for each part, the sums of the parts
 * before it: every element is read twice.
 *
 * Only the grouping of operands differs from that of a loop, and it is the same in every run; the initial value comes
 * first in each prefix, and once. Narrow floats are summed in f32 and rounded when they are stored. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum {
  WIDE_TEAM = 256,     /* threads of a long row */
  SHORT_ROW = 1024,    /* elements of a row that one warp scans */
  MOST_VECTOR = 4,     /* neighbours of a thread */
  BLOCK_THREADS = 128, /* of a block with several teams */
  PARTS_A_CORE = 4,
  MOST_PARTS = 64,     /* of a column, whose thread combines all of them */
  LEAST_TILES = 8,     /* of a part of a row */
  LEAST_STEPS = 64,    /* of a part of a column */
  BUSY_THREADS = 256,  /* of a multiprocessor: with fewer columns these are cut */
  UNROLL = 4,
};

typedef struct scanning {
  gen_grid *g;
  gen_frame *f;
  gen_scan form;
  weft_dtype type;
  int team, vector;    /* of a row; team 0: columns */
  int64_t slices, parts, part; /* parts of a slice, and the elements of each but the last */
  gen_acc acc;         /* for gen_partial and gen_combine */
  const hlo_computation *reducer; /* NULL: a single operation, acc.op */
  weft_status *error;  /* the first one of the reducer */
} scanning;

/* ---- elements -------------------------------------------------------------------------------------------------- */

/* The place of element `at`, counted in the direction of the scan, of a slice. */
static gen_affine place_of(const scanning *s, gen_emit *e, gen_ssa slice, gen_ssa at)
{
  if (s->form.is_reverse) at = LLVMBuildNSWSub(e->b, gen_i64(e, s->form.n - 1), at, "");
  if (s->form.inner == 1) {
    gen_ssa row = LLVMBuildNSWMul(e->b, slice, gen_i64(e, s->form.n), "");
    return gen_affine_value(e, LLVMBuildNSWAdd(e->b, row, at, ""), 0, s->slices * s->form.n - 1);
  }
  gen_ssa outer = LLVMBuildUDiv(e->b, slice, gen_i64(e, s->form.inner), "");
  gen_ssa inner = LLVMBuildURem(e->b, slice, gen_i64(e, s->form.inner), "");
  gen_ssa row = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, outer, gen_i64(e, s->form.n), ""), at, "");
  gen_ssa linear = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, row, gen_i64(e, s->form.inner), ""), inner, "");
  return gen_affine_value(e, linear, 0, s->slices * s->form.n - 1);
}

/* `before` comes before `after` in the direction of the scan. The operands of a reducer that is a computation keep the
 * order that they have in the array. */
static gen_value combine(scanning *s, gen_emit *e, gen_value before, gen_value after)
{
  const gen_value args[] = {s->form.is_reverse ? after : before, s->form.is_reverse ? before : after}, *result;

  if (!s->reducer) return gen_combine(e, s->form.op, s->type, before, after);
  if (s->error || (s->error = gen_emit_apply(e, s->reducer, args, &result))) return before;
  return result[0];
}

static gen_value choose(gen_emit *e, gen_ssa cond, gen_value yes, gen_value no)
{
  yes.re = gen_select(e, cond, yes.re, no.re);
  if (yes.im) yes.im = gen_select(e, cond, yes.im, no.im);
  return yes;
}

/* ---- parts ----------------------------------------------------------------------------------------------------- */

static gen_buffer partials(const scanning *s, gen_emit *e)
{
  return gen_partial(e, s->f, &s->acc, 0, s->slices * s->parts);
}

/* The place of a partial result. The partial results of a row's parts lie side by side; so do those of neighbouring
 * columns. */
static gen_affine partial_at(const scanning *s, gen_emit *e, gen_ssa slice, gen_ssa part)
{
  gen_ssa major = s->team ? slice : part, minor = s->team ? part : slice;
  gen_ssa row = LLVMBuildNSWMul(e->b, major, gen_i64(e, s->team ? s->parts : s->slices), "");

  return gen_affine_value(e, LLVMBuildNSWAdd(e->b, row, minor, ""), 0, s->slices * s->parts - 1);
}

/* The combination of the initial value and the sums of the parts before a part. If the reducer is an operation, the
 * threads of the team share the work. */
static weft_status *before_part(scanning *s, gen_emit *e, const gen_team *team, gen_ssa slice, gen_ssa part,
                                gen_value *out)
{
  gen_value init = gen_load(e, &s->f->operands[1], gen_affine_const(0)), sum = gen_acc_slot(e, s->type, 1),
            empty = init;
  gen_loop loop;

  *out = init;
  if (s->parts == 1) return NULL;
  if (s->reducer) team = NULL;
  else empty = gen_identity(e, s->form.op, s->type);
  gen_buffer from = partials(s, e);
  gen_acc_set(e, sum, empty);
  gen_loop_begin(e, &loop, team ? gen_wide(e, team->id) : gen_i64(e, 0), part, team ? team->count : 1, 0, s->parts, 1);
  gen_affine at = partial_at(s, e, slice, e->vars[loop.var].value);
  gen_value so_far = gen_acc_get(e, sum);
  gen_acc_set(e, sum, combine(s, e, so_far, gen_load(e, &from, at)));
  gen_loop_end(e, &loop);
  gen_value all = gen_acc_get(e, sum);
  if (team) WEFT_TRY(gen_team_combine(e, team, &s->acc, 1, &empty, &all));
  *out = s->reducer ? all : combine(s, e, init, all);
  return NULL;
}

/* The first element of a part, and the one behind its last. */
static void bounds_of(const scanning *s, gen_emit *e, gen_ssa part, gen_ssa *from, gen_ssa *to)
{
  *from = LLVMBuildNSWMul(e->b, part, gen_i64(e, s->part), "");
  gen_ssa end = LLVMBuildNSWAdd(e->b, *from, gen_i64(e, s->part), "");
  *to = gen_intrinsic2(e, "llvm.umin", end, gen_i64(e, s->form.n));
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Combines `v` over the threads of the team: *before is the combination of the threads before this one, if there are
 * any (*has_before), *all that of all threads. */
static void scan_team(scanning *s, gen_emit *e, const gen_team *team, const gen_shared shared[2], gen_value v,
                      gen_value *before, gen_ssa *has_before, gen_value *all)
{
  gen_value sum = v, last;
  gen_if is_last;

  for (int distance = 1; distance < GEN_WARP; distance *= 2) {
    gen_ssa has = LLVMBuildICmp(e->b, LLVMIntUGE, team->lane, gen_small(e, distance), "");
    gen_value other = gen_shuffle_up(e, team, sum, distance);
    sum = choose(e, has, combine(s, e, other, sum), sum);
  }
  gen_ssa has_lanes = LLVMBuildICmp(e->b, LLVMIntNE, team->lane, gen_small(e, 0), "");
  *before = gen_shuffle_up(e, team, sum, 1);
  *has_before = has_lanes;
  if (team->count == GEN_WARP) {
    *all = gen_shuffle_from(e, team, sum, GEN_WARP - 1);
    return;
  }
  gen_if_begin(e, &is_last, LLVMBuildICmp(e->b, LLVMIntEQ, team->lane, gen_small(e, GEN_WARP - 1), ""));
  gen_shared_put(e, &shared[0], gen_wide(e, team->warp), sum.re);
  if (sum.im) gen_shared_put(e, &shared[1], gen_wide(e, team->warp), sum.im);
  gen_if_end(e, &is_last);
  gen_barrier(e);
  gen_ssa has_warps = LLVMBuildICmp(e->b, LLVMIntNE, team->warp, gen_small(e, 0), "");
  gen_value earlier = {NULL, NULL};
  for (int w = 0; w < team->count / GEN_WARP; w++) {
    gen_ssa goes_before = LLVMBuildICmp(e->b, LLVMIntUGT, team->warp, gen_small(e, w), "");
    last.re = gen_shared_get(e, &shared[0], gen_i64(e, w));
    last.im = sum.im ? gen_shared_get(e, &shared[1], gen_i64(e, w)) : NULL;
    *all = w ? combine(s, e, *all, last) : last;
    earlier = w ? choose(e, goes_before, *all, earlier) : last;
  }
  gen_barrier(e); /* the next tile overwrites the shared memory */
  gen_value both = choose(e, has_lanes, combine(s, e, earlier, *before), earlier);
  *before = choose(e, has_warps, both, *before);
  *has_before = LLVMBuildOr(e->b, has_warps, has_lanes, "");
}

/* The neighbours from `place` on, of which there are s->vector. They are one access, aligned to its size. */
static void load_neighbours(const scanning *s, gen_emit *e, gen_affine place, gen_value *out)
{
  const gen_buffer *x = &s->f->operands[0];

  if (s->vector == 1) {
    out[0] = gen_load(e, x, place);
    return;
  }
  LLVMTypeRef element = gen_storage_type(e->part, x->type);
  gen_ssa at = gen_element_ptr(e, x, element, gen_affine_ssa(e, place));
  gen_ssa all = LLVMBuildLoad2(e->b, LLVMVectorType(element, (unsigned)s->vector), at, "");
  LLVMSetAlignment(all, (unsigned)(s->vector * (int)gen_type_bytes(e->part, element)));
  gen_annotate(e, x, all, true);
  for (int k = 0; k < s->vector; k++)
    out[k].re = gen_from_storage(e, x->type, LLVMBuildExtractElement(e->b, all, gen_small(e, k), ""));
}

static void store_neighbours(const scanning *s, gen_emit *e, gen_affine place, const gen_value *v)
{
  const gen_buffer *out = &s->f->results[0];

  if (s->vector == 1) {
    gen_store(e, out, place, v[0]);
    return;
  }
  LLVMTypeRef element = gen_storage_type(e->part, out->type);
  gen_ssa all = LLVMGetPoison(LLVMVectorType(element, (unsigned)s->vector));
  for (int k = 0; k < s->vector; k++)
    all = LLVMBuildInsertElement(e->b, all, gen_to_storage(e, out->type, v[k].re), gen_small(e, k), "");
  gen_ssa store = LLVMBuildStore(e->b, all, gen_element_ptr(e, out, element, gen_affine_ssa(e, place)));
  LLVMSetAlignment(store, (unsigned)(s->vector * (int)gen_type_bytes(e->part, element)));
  gen_annotate(e, out, store, false);
}

/* One tile of a row: this thread's elements begin at `first`. Stores them behind `carry` if `stores`; returns the sum
 * of the tile. The elements of a thread are all inside of the part or all outside, if there are several. Only the last
 * tile of a slice has elements outside, and nobody reads its sum. */
static gen_value scan_tile(scanning *s, gen_emit *e, const gen_team *team, const gen_shared *shared, gen_ssa slice,
                           gen_ssa first, gen_ssa to, gen_value carry, bool stores)
{
  gen_value sums[MOST_VECTOR] = {0}, before, all;
  gen_ssa inside = gen_icmp(e, LLVMIntULT, first, to), has_before;
  gen_if store;

  gen_affine place = place_of(s, e, slice, gen_select(e, inside, first, gen_i64(e, 0)));
  load_neighbours(s, e, place, sums);
  for (int k = 1; k < s->vector; k++) sums[k] = combine(s, e, sums[k - 1], sums[k]);
  scan_team(s, e, team, shared, sums[s->vector - 1], &before, &has_before, &all);
  if (stores) {
    before = choose(e, has_before, combine(s, e, carry, before), carry);
    gen_if_begin(e, &store, inside);
    for (int k = 0; k < s->vector; k++) sums[k] = combine(s, e, before, sums[k]);
    store_neighbours(s, e, place, sums);
    gen_if_end(e, &store);
  }
  return all;
}

/* A team takes a part of a row: it scans it, or only reduces it. */
static weft_status *rows_launch(scanning *s, bool stores)
{
  int teams = s->team == GEN_WARP ? BLOCK_THREADS / GEN_WARP : 1;
  int64_t items = s->slices * s->parts, tile = (int64_t)s->team * s->vector;
  gen_shared shared[2] = {{.type = NULL}};
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop tiles;
  gen_if exists, first;

  WEFT_TRY(gen_grid_open(s->g, false, &f));
  s->f = &f;
  gen_team team = gen_team_of(e, s->team);
  LLVMTypeRef type = gen_register_type(e->part, s->type);
  for (int half = 0; half < 1 + weft_dtype_is_complex(s->type) && teams == 1; half++)
    shared[half] = gen_shared_array(e, type, s->team / GEN_WARP);
  gen_ssa item = gen_wide(e, gen_block_id(e));
  if (teams > 1) {
    item = LLVMBuildNSWMul(e->b, item, gen_i64(e, teams), "");
    item = LLVMBuildNSWAdd(e->b, item, gen_wide(e, team.warp), "");
    gen_if_begin(e, &exists, gen_icmp(e, LLVMIntULT, item, gen_i64(e, items)));
  }
  gen_ssa slice = LLVMBuildUDiv(e->b, item, gen_i64(e, s->parts), "");
  gen_ssa part = LLVMBuildURem(e->b, item, gen_i64(e, s->parts), ""), from, to;
  bounds_of(s, e, part, &from, &to);
  gen_value carry = gen_acc_slot(e, s->type, 1);
  gen_value before = gen_load(e, &s->f->operands[1], gen_affine_const(0));
  if (stores) WEFT_TRY(before_part(s, e, &team, slice, part, &before));
  gen_acc_set(e, carry, before);
  gen_loop_begin(e, &tiles, from, to, tile, 0, s->form.n, 1);
  int mark = gen_memo_push(e);
  gen_ssa own = LLVMBuildNSWMul(e->b, gen_wide(e, team.id), gen_i64(e, s->vector), "");
  gen_ssa at = LLVMBuildNSWAdd(e->b, e->vars[tiles.var].value, own, "");
  gen_value so_far = gen_acc_get(e, carry), sum = scan_tile(s, e, &team, shared, slice, at, to, so_far, stores);
  gen_value with_sum = combine(s, e, so_far, sum);
  /* the sum of a part begins with its first element, not with the initial value */
  if (!stores) with_sum = choose(e, gen_icmp(e, LLVMIntEQ, e->vars[tiles.var].value, from), sum, with_sum);
  gen_acc_set(e, carry, with_sum);
  gen_memo_pop(e, mark);
  gen_loop_end(e, &tiles);
  if (!stores) {
    gen_buffer out = partials(s, e);
    gen_if_begin(e, &first, LLVMBuildICmp(e->b, LLVMIntEQ, team.id, gen_small(e, 0), ""));
    gen_affine place = partial_at(s, e, slice, part);
    gen_store(e, &out, place, gen_acc_get(e, carry));
    gen_if_end(e, &first);
  }
  if (teams > 1) gen_if_end(e, &exists);
  return gen_grid_close(s->g, &f, (items + teams - 1) / teams, s->team * teams);
}

/* ---- columns --------------------------------------------------------------------------------------------------- */

/* Steps [from, to) along a column, `unroll` of them in an iteration. */
static void walk_column(scanning *s, gen_emit *e, gen_ssa slice, gen_ssa from, gen_ssa to, int unroll, gen_value sum,
                        bool stores)
{
  gen_value v[UNROLL];
  gen_loop loop;

  gen_loop_begin(e, &loop, from, to, unroll, 0, s->form.n - unroll + 1, 1);
  for (int u = 0; u < unroll; u++) {
    gen_ssa at = LLVMBuildNSWAdd(e->b, e->vars[loop.var].value, gen_i64(e, u), "");
    v[u] = gen_load(e, &s->f->operands[0], place_of(s, e, slice, at));
  }
  for (int u = 0; u < unroll; u++) {
    gen_ssa at = LLVMBuildNSWAdd(e->b, e->vars[loop.var].value, gen_i64(e, u), "");
    gen_acc_set(e, sum, combine(s, e, gen_acc_get(e, sum), v[u]));
    if (!stores) continue;
    gen_affine place = place_of(s, e, slice, at);
    gen_store(e, &s->f->results[0], place, gen_acc_get(e, sum));
  }
  gen_loop_end(e, &loop);
}

typedef struct column_walk {
  scanning *s;
  bool stores;
} column_walk;

/* Thread `at`: neighbouring columns first, then their parts. */
static weft_status *walk_part(void *ctx, gen_emit *e, gen_affine at)
{
  column_walk *w = ctx;
  scanning *s = w->s;
  gen_ssa slice = gen_affine_ssa(e, gen_affine_digit(e, at, 1, s->slices)), from, to;
  gen_ssa part = gen_affine_ssa(e, gen_affine_digit(e, at, s->slices, 0));
  gen_value sum = gen_acc_slot(e, s->type, 1), before;

  bounds_of(s, e, part, &from, &to);
  if (w->stores) {
    WEFT_TRY(before_part(s, e, NULL, slice, part, &before));
  } else { /* no part is empty */
    before = gen_load(e, &s->f->operands[0], place_of(s, e, slice, from));
    from = LLVMBuildNSWAdd(e->b, from, gen_i64(e, 1), "");
  }
  gen_acc_set(e, sum, before);
  gen_ssa length = LLVMBuildNSWSub(e->b, to, from, "");
  gen_ssa whole = LLVMBuildNSWAdd(e->b, from, LLVMBuildAnd(e->b, length, gen_i64(e, -UNROLL), ""), "");
  walk_column(s, e, slice, from, whole, UNROLL, sum, w->stores);
  walk_column(s, e, slice, whole, to, 1, sum, w->stores);
  if (w->stores) return NULL;
  gen_buffer out = partials(s, e);
  gen_affine at_part = partial_at(s, e, slice, part);
  gen_store(e, &out, at_part, gen_acc_get(e, sum));
  return NULL;
}

static weft_status *columns_launch(scanning *s, bool stores)
{
  int64_t threads = s->slices * s->parts;
  column_walk walk = {s, stores};
  gen_frame f;

  WEFT_TRY(gen_grid_open(s->g, false, &f));
  s->f = &f;
  WEFT_TRY(gen_grid_each(&f, threads, walk_part, &walk));
  return gen_grid_close_each(s->g, &f, threads);
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

/* Chooses teams and parts. */
static void shape_of(const gen_target *target, scanning *s)
{
  int64_t n = s->form.n, wanted, unit, least;
  int width = WEFT_MAX(weft_dtype_bytes(s->type), 1);

  if (s->form.inner == 1) {
    s->vector = n % MOST_VECTOR == 0 && !s->form.is_reverse && !weft_dtype_is_complex(s->type)
                  ? WEFT_MIN(MOST_VECTOR, WEFT_MAX(16 / width, 1))
                  : 1;
    bool many = s->slices >= (int64_t)target->cores * PARTS_A_CORE;
    s->team = n <= SHORT_ROW && (many || n <= SHORT_ROW / 4) ? GEN_WARP : WIDE_TEAM;
    unit = (int64_t)s->team * s->vector;
    least = unit * LEAST_TILES;
    wanted = (int64_t)target->cores * PARTS_A_CORE / s->slices;
  } else {
    unit = UNROLL;
    least = LEAST_STEPS;
    wanted = WEFT_MIN((int64_t)target->cores * BUSY_THREADS / s->slices, MOST_PARTS);
  }
  s->parts = WEFT_MAX(WEFT_MIN(wanted, n / least), 1);
  s->part = WEFT_ALIGN_UP((n + s->parts - 1) / s->parts, unit);
  s->parts = (n + s->part - 1) / s->part;
}

weft_status *gen_grid_scan(gen_grid *g)
{
  const hlo_instr *instr = g->spec->fusion;
  scanning s = {.g = g, .type = instr->shape->type};

  if (!gen_scan_of(instr, &s.form)) return WEFT_ERR(INTERNAL, "\"%s\" is no scan", instr->name);
  if (s.form.op == HLO_OPCODE_COUNT) s.reducer = instr->called[0];
  s.slices = hlo_shape_elems(instr->shape) / s.form.n;
  s.acc = (gen_acc){.op = s.form.op, .type = s.type, .leaves = 1};
  shape_of(g->part->target, &s);
  if (s.parts > 1) {
    g->spec->info->shared_bytes = s.slices * s.parts * GEN_PARTIAL_BYTES;
    WEFT_TRY(s.team ? rows_launch(&s, false) : columns_launch(&s, false));
  }
  WEFT_TRY(s.team ? rows_launch(&s, true) : columns_launch(&s, true));
  return s.error;
}
