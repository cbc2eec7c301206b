/* codegen/nvptx/radix.c -- sorts by a single key: elements are dealt by a few bits of their keys at a time, the lowest
 * bits first.
 *
 * Each pass is stable and has three launches. Slices are cut into parts, and a block takes a part, tile by tile.
 *
 *   count    how many elements of each part have each digit
 *   prefix   for each digit, how many elements the parts before a part have; and how many the slice has
 *   deal     a block brings its tile into the order of the digits in shared memory, and stores it from there, so that
 *            neighbouring threads store to neighbouring places
 *
 * Each pass moves the element of the key's operand unchanged, and a companion: nothing, one element of a second
 * operand, or the element's position. The last launches take the elements of all other operands by that position. The
 * first pass reads the operands and the last one writes the results; those between go from one half of the scratch to
 * the other. There are two passes at least, since a result may lie on its operand. */
#include <config.h>

#include "codegen/nvptx/sort.h"

enum {
  THREADS = 256, WARPS = THREADS / GEN_WARP,
  MOST_DIGIT_BITS = 8,  /* no more digits than a block has threads */
  TILE_BYTES = 32768,   /* of shared memory, for the elements of a tile */
  MOST_ITEMS = 16,      /* elements of a tile for each thread */
  PARTS_A_CORE = 4,
  PREFIX_THREADS = 128,
  LEAST_SLICE = 2048,   /* shorter slices are merged */
  LEAST_ELEMS = 4096,   /* sorts of fewer elements for each byte of the key are merged */
};

typedef struct radix {
  gen_sorting *s;
  const gen_key *key;
  int with;              /* the operand whose elements go with the keys; -1: none */
  bool numbered;         /* positions go with the keys */
  weft_dtype type, load; /* size of a key's element, and of its companion */
  int bits, digits, passes, items;
  int64_t parts, part;   /* parts of a slice, and the elements of each but the last */
} radix;

static int64_t tile_of(const radix *r) { return (int64_t)r->items * THREADS; }
static bool has_load(const radix *r) { return r->numbered || r->with >= 0; }
static int64_t all_of(const radix *r) { return r->s->slices * r->s->n; }

/* ---- scratch --------------------------------------------------------------------------------------------------- */

static int64_t array_bytes(const radix *r, weft_dtype type)
{
  return WEFT_ALIGN_UP(all_of(r) * (int64_t)weft_dtype_bytes(type), (int64_t)GEN_SORT_ALIGN);
}

/* Where the scratch has its arrays: both halves of the keys, both halves of their companions, the counts of the parts,
 * those of the slices, and what gen_sort_take needs. */
static int64_t loads_at(const radix *r, int half)
{
  return 2 * array_bytes(r, r->type) + half * array_bytes(r, r->load);
}

static int64_t counts_at(const radix *r) { return loads_at(r, has_load(r) ? 2 : 0); }

static int64_t totals_at(const radix *r)
{
  return counts_at(r) + WEFT_ALIGN_UP(r->s->slices * r->parts * r->digits * 4, (int64_t)GEN_SORT_ALIGN);
}

static int64_t gathered_at(const radix *r)
{
  return totals_at(r) + WEFT_ALIGN_UP(r->s->slices * r->digits * 4, (int64_t)GEN_SORT_ALIGN);
}

static gen_buffer array_at(const radix *r, gen_emit *e, int64_t offset, weft_dtype type, int64_t elems)
{
  return (gen_buffer){.ptr = gen_byte_ptr(e, r->s->f->shared, offset), .type = type, .elems = elems};
}

/* One of two arrays, by `half`, an i64. */
static gen_buffer half_at(const radix *r, gen_emit *e, int64_t offset, weft_dtype type, gen_ssa half)
{
  gen_buffer array = array_at(r, e, offset, type, all_of(r));
  gen_ssa by = LLVMBuildNSWMul(e->b, half, gen_i64(e, array_bytes(r, type)), "");

  array.ptr = LLVMBuildInBoundsGEP2(e->b, e->part->i8, array.ptr, &by, 1, "");
  return array;
}

static gen_affine within(gen_emit *e, gen_ssa at, const gen_buffer *array)
{
  return gen_affine_value(e, at, 0, array->elems - 1);
}

/* The number of a digit's counter: of a part, or of a slice. */
static gen_affine counter_of(gen_emit *e, const gen_buffer *array, gen_ssa row, int64_t columns, gen_ssa column)
{
  gen_ssa before = LLVMBuildNSWMul(e->b, row, gen_i64(e, columns), "");
  return within(e, LLVMBuildNSWAdd(e->b, before, column, ""), array);
}

static gen_buffer counts(const radix *r, gen_emit *e)
{
  return array_at(r, e, counts_at(r), WEFT_U32, r->s->slices * r->parts * r->digits);
}

static gen_buffer totals(const radix *r, gen_emit *e)
{
  return array_at(r, e, totals_at(r), WEFT_U32, r->s->slices * r->digits);
}

/* ---- the part of a block --------------------------------------------------------------------------------------- */

/* A block's work while its kernel is emitted. `first`: the pass reads the operands. */
typedef struct share {
  const radix *r;
  bool first, last;
  gen_team team;
  gen_ssa tid, slice, part, from, to;  /* i64; the part's elements are [from, to) of the slice */
  gen_ssa shift, half;                 /* i64: the digit's lowest bit; which half the pass reads; it writes the other */
} share;

static void open_share(share *w, gen_emit *e)
{
  const radix *r = w->r;
  gen_ssa block = gen_wide(e, gen_block_id(e));

  w->team = gen_team_of(e, THREADS);
  w->tid = gen_wide(e, w->team.id);
  w->slice = LLVMBuildUDiv(e->b, block, gen_i64(e, r->parts), "");
  w->part = LLVMBuildURem(e->b, block, gen_i64(e, r->parts), "");
  w->from = LLVMBuildNSWMul(e->b, w->part, gen_i64(e, r->part), "");
  gen_ssa end = LLVMBuildNSWAdd(e->b, w->from, gen_i64(e, r->part), "");
  w->to = gen_intrinsic2(e, "llvm.umin", end, gen_i64(e, r->s->n));
}

/* Element `at` of the slice in an array of the scratch. */
static gen_affine in_scratch(const share *w, gen_emit *e, const gen_buffer *array, gen_ssa at)
{
  gen_ssa before = LLVMBuildNSWMul(e->b, w->slice, gen_i64(e, w->r->s->n), "");
  return within(e, LLVMBuildNSWAdd(e->b, before, at, ""), array);
}

/* The bits of the key's element at `at`, before the pass. */
static gen_ssa element(const share *w, gen_emit *e, gen_ssa at)
{
  const gen_sorting *s = w->r->s;
  gen_affine place;

  if (w->first) {
    gen_buffer in = gen_sort_bits(s->f->operands[w->r->key->operand]);
    place = gen_sort_place(s, e, w->slice, at, s->n);
    return gen_load(e, &in, place).re;
  }
  gen_buffer in = half_at(w->r, e, 0, w->r->type, w->half);
  place = in_scratch(w, e, &in, at);
  return gen_load(e, &in, place).re;
}

/* The companion of the element. */
static gen_ssa load_of(const share *w, gen_emit *e, gen_ssa at)
{
  const gen_sorting *s = w->r->s;
  gen_affine place;

  if (w->first && w->r->numbered) return LLVMBuildTrunc(e->b, at, e->part->i32, "");
  if (w->first) {
    gen_buffer in = gen_sort_bits(s->f->operands[w->r->with]);
    place = gen_sort_place(s, e, w->slice, at, s->n);
    return gen_load(e, &in, place).re;
  }
  gen_buffer in = half_at(w->r, e, loads_at(w->r, 0), w->r->load, w->half);
  place = in_scratch(w, e, &in, at);
  return gen_load(e, &in, place).re;
}

/* Stores a key or a companion to place `at` of the slice. */
static void put(const share *w, gen_emit *e, bool is_key, gen_ssa at, gen_ssa v)
{
  const gen_sorting *s = w->r->s;
  gen_buffer out;
  gen_affine place;

  if (w->last && (is_key || !w->r->numbered)) {
    out = gen_sort_bits(s->f->results[is_key ? w->r->key->operand : w->r->with]);
    place = gen_sort_place(s, e, w->slice, at, s->n);
  } else {
    gen_ssa other = LLVMBuildXor(e->b, w->half, gen_i64(e, 1), "");
    out = half_at(w->r, e, is_key ? 0 : loads_at(w->r, 0), is_key ? w->r->type : w->r->load, other);
    place = in_scratch(w, e, &out, at);
  }
  gen_store(e, &out, place, (gen_value){v, NULL});
}

/* The digit of an element, an i32. */
static gen_ssa digit_of(const share *w, gen_emit *e, gen_ssa bits)
{
  return gen_sort_digit(e, w->r->key, bits, w->shift, w->r->digits);
}

/* ---- counting -------------------------------------------------------------------------------------------------- */

static void add_shared(gen_emit *e, const gen_shared *array, gen_ssa at, gen_ssa v)
{
  gen_ssa place = gen_element_ptr(e, &array->buffer, array->element, at);
  LLVMBuildAtomicRMW(e->b, LLVMAtomicRMWBinOpAdd, place, v, LLVMAtomicOrderingMonotonic, false);
}

static weft_status *count_launch(radix *r, bool first)
{
  share w = {.r = r, .first = first};
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop steps;
  gen_if has_digit, adds;

  WEFT_TRY(gen_grid_open(r->s->g, !first, &f));
  r->s->f = &f;
  w.shift = first ? gen_i64(e, 0) : f.begin;
  w.half = f.end;
  open_share(&w, e);
  gen_shared table = gen_shared_array(e, e->part->i32, r->digits);
  gen_ssa own = gen_icmp(e, LLVMIntULT, w.tid, gen_i64(e, r->digits));
  gen_if_begin(e, &has_digit, own);
  gen_shared_put(e, &table, w.tid, gen_small(e, 0));
  gen_if_end(e, &has_digit);
  gen_barrier(e);
  gen_loop_begin(e, &steps, w.from, w.to, THREADS, 0, r->s->n, 1);
  gen_ssa at = LLVMBuildNSWAdd(e->b, e->vars[steps.var].value, w.tid, "");
  gen_ssa inside = gen_icmp(e, LLVMIntULT, at, w.to);
  gen_ssa bits = element(&w, e, gen_select(e, inside, at, w.from));
  gen_ssa digit = gen_select(e, inside, digit_of(&w, e, bits), gen_small(e, r->digits)), is_first, below;
  gen_ssa count = gen_sort_lanes(e, &w.team, digit, &is_first, &below);
  gen_if_begin(e, &adds, LLVMBuildAnd(e->b, is_first, inside, ""));
  add_shared(e, &table, gen_wide(e, digit), count);
  gen_if_end(e, &adds);
  gen_loop_end(e, &steps);
  gen_barrier(e);
  gen_buffer out = counts(r, e);
  gen_if_begin(e, &has_digit, own);
  gen_ssa row = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, w.slice, gen_i64(e, r->digits), ""), w.tid, "");
  gen_affine place = counter_of(e, &out, row, r->parts, w.part);
  gen_store(e, &out, place, (gen_value){gen_shared_get(e, &table, w.tid), NULL});
  gen_if_end(e, &has_digit);
  return gen_grid_close(r->s->g, &f, r->s->slices * r->parts, THREADS);
}

/* ---- prefixes -------------------------------------------------------------------------------------------------- */

/* A warp takes a digit of a slice. */
static weft_status *prefix_launch(radix *r)
{
  int64_t rows = r->s->slices * r->digits, teams = PREFIX_THREADS / GEN_WARP;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop steps;
  gen_if exists, inside_row, is_last;

  WEFT_TRY(gen_grid_open(r->s->g, false, &f));
  r->s->f = &f;
  gen_team team = gen_team_of(e, GEN_WARP);
  gen_ssa before = LLVMBuildNSWMul(e->b, gen_wide(e, gen_block_id(e)), gen_i64(e, teams), "");
  gen_ssa row = LLVMBuildNSWAdd(e->b, before, gen_wide(e, team.warp), ""), sum = gen_alloca(e, e->part->i32, "sum");
  gen_ssa count = gen_alloca(e, e->part->i32, "count");
  gen_if_begin(e, &exists, gen_icmp(e, LLVMIntULT, row, gen_i64(e, rows)));
  gen_buffer table = counts(r, e), sums = totals(r, e);
  LLVMBuildStore(e->b, gen_small(e, 0), sum);
  gen_loop_static(e, &steps, 0, r->parts, GEN_WARP);
  gen_ssa part = LLVMBuildNSWAdd(e->b, e->vars[steps.var].value, gen_wide(e, team.lane), "");
  gen_ssa inside = gen_icmp(e, LLVMIntULT, part, gen_i64(e, r->parts));
  LLVMBuildStore(e->b, gen_small(e, 0), count);
  gen_affine place = counter_of(e, &table, row, r->parts, part);
  gen_if_begin(e, &inside_row, inside);
  LLVMBuildStore(e->b, gen_load(e, &table, place).re, count);
  gen_if_end(e, &inside_row);
  gen_ssa own = LLVMBuildLoad2(e->b, e->part->i32, count, "");
  gen_ssa up_to = gen_sort_sum_lanes(e, &team, own), so_far = LLVMBuildLoad2(e->b, e->part->i32, sum, "");
  gen_if_begin(e, &inside_row, inside);
  gen_ssa first = LLVMBuildAdd(e->b, so_far, LLVMBuildSub(e->b, up_to, own, ""), "");
  gen_store(e, &table, place, (gen_value){first, NULL});
  gen_if_end(e, &inside_row);
  gen_ssa all = gen_shuffle_from(e, &team, (gen_value){up_to, NULL}, GEN_WARP - 1).re;
  LLVMBuildStore(e->b, LLVMBuildAdd(e->b, so_far, all, ""), sum);
  gen_loop_end(e, &steps);
  gen_if_begin(e, &is_last, gen_icmp(e, LLVMIntEQ, team.lane, gen_small(e, 0)));
  gen_affine at = within(e, row, &sums);
  gen_store(e, &sums, at, (gen_value){LLVMBuildLoad2(e->b, e->part->i32, sum, ""), NULL});
  gen_if_end(e, &is_last);
  gen_if_end(e, &exists);
  return gen_grid_close(r->s->g, &f, (rows + teams - 1) / teams, PREFIX_THREADS);
}

/* ---- dealing --------------------------------------------------------------------------------------------------- */

/* The arrays that a block has in shared memory. */
typedef struct desk {
  gen_shared ranks;  /* for each warp and digit: how many elements have come; then, how many come before the warp's */
  gen_shared base;   /* of each digit: its next place in the slice */
  gen_shared local;  /* of each digit: its first place in the tile */
  gen_shared sums;   /* of each warp, for sums over the block */
  gen_shared keys, loads;
} desk;

static desk open_desk(const radix *r, gen_emit *e)
{
  desk d = {
    .ranks = gen_shared_array(e, e->part->i32, (int64_t)WARPS * (r->digits + 1)),
    .base = gen_shared_array(e, e->part->i32, r->digits),
    .local = gen_shared_array(e, e->part->i32, r->digits),
    .sums = gen_shared_array(e, e->part->i32, WARPS),
    .keys = gen_shared_array(e, gen_register_type(e->part, r->type), tile_of(r)),
  };

  if (has_load(r)) d.loads = gen_shared_array(e, gen_register_type(e->part, r->load), tile_of(r));
  return d;
}

/* The sum of `v`, an i32, over the threads before this one. Whoever calls it again waits for the block first. */
static gen_ssa sum_of_block(gen_emit *e, const gen_team *team, const desk *d, gen_ssa v)
{
  gen_ssa up_to = gen_sort_sum_lanes(e, team, v), before = LLVMBuildSub(e->b, up_to, v, "");
  gen_if is_last;

  gen_if_begin(e, &is_last, gen_icmp(e, LLVMIntEQ, team->lane, gen_small(e, GEN_WARP - 1)));
  gen_shared_put(e, &d->sums, gen_wide(e, team->warp), up_to);
  gen_if_end(e, &is_last);
  gen_barrier(e);
  for (int w = 0; w < WARPS - 1; w++) {
    gen_ssa is_before = gen_icmp(e, LLVMIntUGT, team->warp, gen_small(e, w));
    gen_ssa theirs = gen_shared_get(e, &d->sums, gen_i64(e, w));
    before = LLVMBuildAdd(e->b, before, gen_select(e, is_before, theirs, gen_small(e, 0)), "");
  }
  return before;
}

/* The first place of each digit's elements of this part. */
static void find_bases(const share *w, gen_emit *e, const desk *d, gen_ssa own)
{
  const radix *r = w->r;
  gen_buffer sums = totals(r, e), table = counts(r, e);
  gen_ssa digit = gen_select(e, own, w->tid, gen_i64(e, 0));
  gen_ssa row = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, w->slice, gen_i64(e, r->digits), ""), digit, "");
  gen_affine at = within(e, row, &sums), place = counter_of(e, &table, row, r->parts, w->part);
  gen_ssa all = gen_select(e, own, gen_load(e, &sums, at).re, gen_small(e, 0));
  gen_ssa first = sum_of_block(e, &w->team, d, all);
  gen_if has_digit;

  gen_if_begin(e, &has_digit, own);
  gen_shared_put(e, &d->base, w->tid, LLVMBuildAdd(e->b, first, gen_load(e, &table, place).re, ""));
  gen_if_end(e, &has_digit);
}

/* The place in `ranks` of this thread's warp, or of warp number `warp`, for a digit, an i32. */
static gen_ssa rank_at(const share *w, gen_emit *e, gen_ssa warp, gen_ssa digit)
{
  gen_ssa row = LLVMBuildMul(e->b, warp, gen_small(e, w->r->digits + 1), "");
  return gen_wide(e, LLVMBuildAdd(e->b, row, digit, ""));
}

/* What a thread has of a tile. mark: the digit of an element, and above RANK_SHIFT its number among those of the digit
 * that the warp has. One register holds both, since a thread that has many registers leaves room for few others. */
typedef struct hand {
  gen_ssa bits[MOST_ITEMS], load[MOST_ITEMS], mark[MOST_ITEMS];
} hand;
enum { RANK_SHIFT = 16 };

/* Takes the thread's elements. A warp has neighbouring elements, of which a thread has every 32nd. */
static void take(const share *w, gen_emit *e, gen_ssa tile, hand *h)
{
  const radix *r = w->r;
  gen_ssa warp = LLVMBuildNSWMul(e->b, gen_wide(e, w->team.warp), gen_i64(e, GEN_WARP * r->items), "");
  gen_ssa own = LLVMBuildNSWAdd(e->b, warp, gen_wide(e, w->team.lane), "");
  gen_ssa first = LLVMBuildNSWAdd(e->b, tile, own, "");

  gen_ssa inside[MOST_ITEMS];
  for (int k = 0; k < r->items; k++) {
    gen_ssa at = LLVMBuildNSWAdd(e->b, first, gen_i64(e, k * GEN_WARP), "");
    inside[k] = gen_icmp(e, LLVMIntULT, at, w->to);
    at = gen_select(e, inside[k], at, w->from);
    h->bits[k] = element(w, e, at);
    h->load[k] = has_load(r) ? load_of(w, e, at) : NULL;
  }
  for (int k = 0; k < r->items; k++)
    h->mark[k] = gen_select(e, inside[k], digit_of(w, e, h->bits[k]), gen_small(e, r->digits));
}

/* Numbers the elements of each digit that the warp has, in their order. */
static void rank(const share *w, gen_emit *e, const desk *d, hand *h)
{
  gen_if stores;

  for (int k = 0; k < w->r->items; k++) {
    gen_ssa is_first, below, count = gen_sort_lanes(e, &w->team, h->mark[k], &is_first, &below);
    gen_ssa at = rank_at(w, e, w->team.warp, h->mark[k]), so_far = gen_shared_get(e, &d->ranks, at);
    gen_ssa rank = LLVMBuildShl(e->b, LLVMBuildAdd(e->b, so_far, below, ""), gen_small(e, RANK_SHIFT), "");
    h->mark[k] = LLVMBuildOr(e->b, h->mark[k], rank, "");
    gen_warp_barrier(e, w->team.mask);
    gen_if_begin(e, &stores, is_first);
    gen_shared_put(e, &d->ranks, at, LLVMBuildAdd(e->b, so_far, count, ""));
    gen_if_end(e, &stores);
    gen_warp_barrier(e, w->team.mask);
  }
}

/* Makes each warp's counts the counts of the warps before it. Returns how many elements the thread's digit has. */
static gen_ssa sum_warps(const share *w, gen_emit *e, const desk *d, gen_ssa own)
{
  gen_ssa digit = LLVMBuildTrunc(e->b, w->tid, e->part->i32, ""), sum = gen_alloca(e, e->part->i32, "sum");
  gen_if has_digit;

  LLVMBuildStore(e->b, gen_small(e, 0), sum);
  gen_if_begin(e, &has_digit, own);
  gen_ssa so_far = gen_small(e, 0);
  for (int v = 0; v < WARPS; v++) {
    gen_ssa at = rank_at(w, e, gen_small(e, v), digit), count = gen_shared_get(e, &d->ranks, at);
    gen_shared_put(e, &d->ranks, at, so_far);
    so_far = LLVMBuildAdd(e->b, so_far, count, "");
  }
  LLVMBuildStore(e->b, so_far, sum);
  gen_if_end(e, &has_digit);
  return LLVMBuildLoad2(e->b, e->part->i32, sum, "");
}

static void clear_ranks(const share *w, gen_emit *e, const desk *d)
{
  int64_t all = (int64_t)WARPS * (w->r->digits + 1);
  gen_loop loop;

  gen_loop_begin(e, &loop, w->tid, gen_i64(e, all), THREADS, 0, all, 1);
  gen_shared_put(e, &d->ranks, e->vars[loop.var].value, gen_small(e, 0));
  gen_loop_end(e, &loop);
}

/* Puts the thread's elements to their places in the tile. */
static void sort_tile(const share *w, gen_emit *e, const desk *d, const hand *h)
{
  gen_if present;

  for (int k = 0; k < w->r->items; k++) {
    gen_ssa digit = LLVMBuildAnd(e->b, h->mark[k], gen_small(e, (1 << RANK_SHIFT) - 1), "");
    gen_ssa rank = LLVMBuildLShr(e->b, h->mark[k], gen_small(e, RANK_SHIFT), "");
    gen_if_begin(e, &present, gen_icmp(e, LLVMIntULT, digit, gen_small(e, w->r->digits)));
    gen_ssa before = gen_shared_get(e, &d->ranks, rank_at(w, e, w->team.warp, digit));
    gen_ssa first = gen_shared_get(e, &d->local, gen_wide(e, digit));
    gen_ssa place = gen_wide(e, LLVMBuildAdd(e->b, LLVMBuildAdd(e->b, first, before, ""), rank, ""));
    gen_shared_put(e, &d->keys, place, h->bits[k]);
    if (has_load(w->r)) gen_shared_put(e, &d->loads, place, h->load[k]);
    gen_if_end(e, &present);
  }
}

/* Stores the sorted tile, of `length` elements. */
static void store_tile(const share *w, gen_emit *e, const desk *d, gen_ssa length)
{
  gen_if present;

  for (int k = 0; k < w->r->items; k++) {
    gen_ssa at = LLVMBuildNSWAdd(e->b, w->tid, gen_i64(e, k * THREADS), "");
    gen_if_begin(e, &present, gen_icmp(e, LLVMIntULT, at, length));
    gen_ssa bits = gen_shared_get(e, &d->keys, at), digit = gen_wide(e, digit_of(w, e, bits));
    gen_ssa base = gen_shared_get(e, &d->base, digit), first = gen_shared_get(e, &d->local, digit);
    gen_ssa to = LLVMBuildNSWAdd(e->b, gen_wide(e, base), LLVMBuildNSWSub(e->b, at, gen_wide(e, first), ""), "");
    put(w, e, true, to, bits);
    if (has_load(w->r)) put(w, e, false, to, gen_shared_get(e, &d->loads, at));
    gen_if_end(e, &present);
  }
}

static void deal_tile(const share *w, gen_emit *e, const desk *d, gen_ssa tile, gen_ssa own)
{
  gen_if has_digit;
  hand h;

  clear_ranks(w, e, d);
  gen_barrier(e);
  take(w, e, tile, &h);
  rank(w, e, d, &h);
  gen_barrier(e);
  gen_ssa count = sum_warps(w, e, d, own), first = sum_of_block(e, &w->team, d, count);
  gen_if_begin(e, &has_digit, own);
  gen_shared_put(e, &d->local, w->tid, first);
  gen_if_end(e, &has_digit);
  gen_barrier(e);
  sort_tile(w, e, d, &h);
  gen_barrier(e);
  gen_ssa left = LLVMBuildNSWSub(e->b, w->to, tile, "");
  store_tile(w, e, d, gen_intrinsic2(e, "llvm.umin", left, gen_i64(e, tile_of(w->r))));
  gen_barrier(e);
  gen_if_begin(e, &has_digit, own);
  gen_ssa base = gen_shared_get(e, &d->base, w->tid);
  gen_shared_put(e, &d->base, w->tid, LLVMBuildAdd(e->b, base, count, ""));
  gen_if_end(e, &has_digit);
}

static weft_status *deal_launch(radix *r, bool first, bool last)
{
  share w = {.r = r, .first = first, .last = last};
  bool numbered = !first && !last;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop tiles;

  WEFT_TRY(gen_grid_open(r->s->g, numbered, &f));
  r->s->f = &f;
  w.shift = numbered ? f.begin : gen_i64(e, first ? 0 : (int64_t)(r->passes - 1) * r->bits);
  w.half = numbered ? f.end : gen_i64(e, first ? 1 : r->passes % 2); /* the first pass writes half 0 */
  open_share(&w, e);
  desk d = open_desk(r, e);
  gen_ssa own = gen_icmp(e, LLVMIntULT, w.tid, gen_i64(e, r->digits));
  find_bases(&w, e, &d, own);
  gen_loop_begin(e, &tiles, w.from, w.to, tile_of(r), 0, r->s->n, 1);
  deal_tile(&w, e, &d, e->vars[tiles.var].value, own);
  gen_loop_end(e, &tiles);
  return gen_grid_close(r->s->g, &f, r->s->slices * r->parts, THREADS);
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

bool gen_radix_fits(const gen_sorting *s)
{
  if (s->instr->op != HLO_SORT || s->key_count != 1 || !gen_key_is_bits(s->keys[0].type)) return false;
  int64_t least = LEAST_ELEMS * (int64_t)weft_dtype_bytes(s->keys[0].type);
  return s->n >= LEAST_SLICE && s->slices * s->n >= least;
}

static void shape_of(radix *r)
{
  const gen_sorting *s = r->s;
  int key_bytes = (int)weft_dtype_bytes(r->key->type), key_bits = r->key->type == WEFT_PRED ? 1 : 8 * key_bytes;
  int second = s->operands == 2 ? 1 - r->key->operand : -1;

  r->with = second >= 0 && weft_dtype_bytes(s->instr->operands[second]->shape->type) <= 8 ? second : -1;
  r->numbered = s->operands > 1 && r->with < 0;
  r->type = gen_sort_bits((gen_buffer){.type = r->key->type}).type;
  r->load = r->with < 0 ? WEFT_U32 : gen_sort_bits((gen_buffer){.type = s->instr->operands[r->with]->shape->type}).type;
  r->passes = WEFT_MAX((key_bits + MOST_DIGIT_BITS - 1) / MOST_DIGIT_BITS, 2);
  r->bits = (key_bits + r->passes - 1) / r->passes;
  r->digits = 1 << r->bits;
  int bytes = key_bytes + (has_load(r) ? (int)weft_dtype_bytes(r->load) : 0);
  r->items = WEFT_MIN(MOST_ITEMS, TILE_BYTES / (THREADS * bytes));
  int64_t most = (s->n + tile_of(r) - 1) / tile_of(r);
  r->parts = WEFT_MAX(WEFT_MIN((int64_t)s->g->part->target->cores * PARTS_A_CORE / s->slices, most), 1);
  r->part = (most + r->parts - 1) / r->parts * tile_of(r); /* a tile may be no power of 2 */
  r->parts = (s->n + r->part - 1) / r->part;
}

weft_status *gen_radix(gen_sorting *s)
{
  radix r = {.s = s, .key = &s->keys[0]};
  gen_grid *g = s->g;
  enum { COUNT = 3, PREFIX = 1, DEAL = 5 }; /* the launches that are repeated */

  shape_of(&r);
  g->spec->info->shared_bytes = gathered_at(&r) + (r.numbered ? gen_sort_take_bytes(s, r.key->operand) : 0);
  WEFT_TRY(count_launch(&r, true));
  WEFT_TRY(prefix_launch(&r));
  WEFT_TRY(deal_launch(&r, true, false));
  for (int pass = 1; pass < r.passes; pass++) {
    int64_t half = (pass - 1) % 2, shift = (int64_t)pass * r.bits;
    WEFT_TRY(pass == 1 ? count_launch(&r, false) : gen_grid_again(g, COUNT));
    gen_grid_numbers(g, shift, half);
    WEFT_TRY(gen_grid_again(g, PREFIX));
    if (pass == r.passes - 1) {
      WEFT_TRY(deal_launch(&r, false, true));
    } else {
      WEFT_TRY(pass == 1 ? deal_launch(&r, false, false) : gen_grid_again(g, DEAL));
      gen_grid_numbers(g, shift, half);
    }
  }
  return r.numbered ? gen_sort_take(s, loads_at(&r, (r.passes - 1) % 2), gathered_at(&r), r.key->operand) : NULL;
}
