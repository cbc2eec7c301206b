/* codegen/nvptx/sort.c -- sorts by any comparator, and the first k elements of rows: stable, by merging. Sorts of
 * longer slices by a single key are by radix instead (block_radix.c, radix.c).
 *
 * What is sorted are positions. Runs of 1, 2, 4, ... positions are merged in pairs: the thread of a position counts, by
 * binary search, the positions of the other run that go before its own, and so knows its place in the merged run.
 *
 *   first launch    each block merges the runs of its tile, in shared memory
 *   merges          one launch each, from one half of the scratch to the other; none if a tile holds a whole slice
 *   gather          the elements at the sorted positions go to scratch, since a result may lie on its operand
 *   store           from there to the results
 *
 * Where a tile holds a whole slice, the first launch stores the results. A comparator that orders by keys
 * (model/keys.h) is a comparison of integers. One that is no strict weak order, and orders by no keys, gives
 * some elements of the slice in some order. */
#include <config.h>

#include "codegen/nvptx/sort.h"

enum { TILE = GEN_SORT_TILE, BLOCK_THREADS = 128 };

typedef struct sorting {
  gen_sorting base;           /* first */
  int64_t tile, tiles;        /* elements of a tile, a power of 2; tiles of a slice */
} sorting;

static bool is_topk(const sorting *s) { return s->base.instr->op == HLO_TOPK; }

/* ---- the order ------------------------------------------------------------------------------------------------- */

/* The same of an element in registers, where floats narrower than f32 are f32. */
static gen_ssa key_of(gen_emit *e, const gen_key *key, gen_ssa v)
{
  gen_part *p = e->part;

  if (LLVMTypeOf(v) == p->f64)
    return gen_sort_key(e, key, LLVMBuildBitCast(e->b, v, p->i64, ""), UINT64_C(0x7ff) << 52);
  if (LLVMTypeOf(v) == p->f32) return gen_sort_key(e, key, LLVMBuildBitCast(e->b, v, p->i32, ""), UINT64_C(0xff) << 23);
  if (LLVMTypeOf(v) == p->i1) v = LLVMBuildZExt(e->b, v, p->i8, "");
  return gen_sort_key(e, key, v, 0);
}

/* Does element `place[0]` go before element `place[1]`, by the keys from number `k` on? */
static gen_ssa is_less(const gen_sorting *s, gen_emit *e, const gen_affine *place, int k)
{
  const gen_key *key = &s->keys[k];
  gen_ssa keys[2], less, equal, rest;

  for (int i = 0; i < 2; i++) keys[i] = key_of(e, key, gen_load(e, &s->f->operands[key->operand], place[i]).re);
  less = gen_icmp(e, LLVMIntULT, keys[0], keys[1]);
  if (k + 1 == s->key_count) return less;
  equal = gen_icmp(e, LLVMIntEQ, keys[0], keys[1]);
  rest = is_less(s, e, place, k + 1);
  return LLVMBuildOr(e->b, less, LLVMBuildAnd(e->b, equal, rest, ""), "");
}

/* Does position `a` of the slice go before position `b`? */
static weft_status *goes_before(const gen_sorting *s, gen_emit *e, gen_ssa slice, gen_ssa a, gen_ssa b, gen_ssa *out)
{
  gen_affine place[2] = {gen_sort_place(s, e, slice, a, s->n)};
  gen_value args[2 * GEN_SORT_OPERANDS];
  const gen_value *r;

  place[1] = gen_sort_place(s, e, slice, b, s->n);
  if (s->key_count) {
    *out = is_less(s, e, place, 0);
    return NULL;
  }
  for (int i = 0; i < s->operands; i++)
    for (int k = 0; k < 2; k++) args[2 * i + k] = gen_load(e, &s->f->operands[i], place[k]);
  int mark = gen_memo_push(e);
  WEFT_TRY(gen_emit_apply(e, s->instr->called[0], args, &r));
  gen_memo_pop(e, mark);
  *out = r[0].re;
  return NULL;
}

/* ---- merging --------------------------------------------------------------------------------------------------- */

/* Positions in memory: in shared memory, or in the scratch. `first` is where those of the slice or tile begin. */
typedef struct list {
  const gen_shared *shared; /* or NULL */
  gen_buffer scratch;
  gen_ssa first;
} list;

static gen_ssa list_get(gen_emit *e, const list *l, gen_ssa at)
{
  at = LLVMBuildNSWAdd(e->b, l->first, at, "");
  gen_ssa v = l->shared ? gen_shared_get(e, l->shared, at) : gen_load_plain(e, &l->scratch, e->part->i32, at, 1);
  return gen_wide(e, v);
}

static void list_put(gen_emit *e, const list *l, gen_ssa at, gen_ssa v)
{
  v = LLVMBuildTrunc(e->b, v, e->part->i32, "");
  at = LLVMBuildNSWAdd(e->b, l->first, at, "");
  if (l->shared) gen_shared_put(e, l->shared, at, v);
  else gen_store_plain(e, &l->scratch, e->part->i32, at, v);
}

/* Counts in *out the positions from[lo, hi) that go before `mine`; if `is_right`, the equal ones too. */
static weft_status *rank_of(const sorting *s, gen_emit *e, gen_ssa slice, const list *from, gen_ssa lo, gen_ssa hi,
                            gen_ssa mine, gen_ssa is_right, gen_ssa *out)
{
  gen_ssa low = gen_alloca(e, e->part->i64, "low"), high = gen_alloca(e, e->part->i64, "high"), before;
  gen_while search;

  LLVMBuildStore(e->b, lo, low);
  LLVMBuildStore(e->b, hi, high);
  gen_while_begin(e, &search);
  gen_ssa l = LLVMBuildLoad2(e->b, e->part->i64, low, ""), h = LLVMBuildLoad2(e->b, e->part->i64, high, "");
  gen_while_test(e, &search, gen_icmp(e, LLVMIntULT, l, h));
  gen_ssa middle = LLVMBuildLShr(e->b, LLVMBuildAdd(e->b, l, h, ""), gen_i64(e, 1), "");
  gen_ssa other = list_get(e, from, middle);
  gen_ssa one = gen_select(e, is_right, mine, other), two = gen_select(e, is_right, other, mine);
  WEFT_TRY(goes_before(&s->base, e, slice, one, two, &before));
  gen_ssa counts = LLVMBuildXor(e->b, before, is_right, "");
  gen_ssa next = LLVMBuildAdd(e->b, middle, gen_i64(e, 1), "");
  LLVMBuildStore(e->b, gen_select(e, counts, next, l), low);
  LLVMBuildStore(e->b, gen_select(e, counts, h, middle), high);
  gen_while_end(e, &search);
  *out = LLVMBuildSub(e->b, LLVMBuildLoad2(e->b, e->part->i64, low, ""), lo, "");
  return NULL;
}

/* Moves position number `i` of a list of `length` from its run of `width` to its place in the merged run. Of a top-k
 * only the first k places of a run matter. */
static weft_status *merge_one(const sorting *s, gen_emit *e, gen_ssa slice, const list *from, const list *to, gen_ssa i,
                              gen_ssa width, gen_ssa length)
{
  gen_ssa both = LLVMBuildShl(e->b, width, gen_i64(e, 1), ""), mine = list_get(e, from, i), rank;
  gen_ssa pair = LLVMBuildAnd(e->b, i, LLVMBuildNeg(e->b, both, ""), "");
  gen_ssa is_right = gen_icmp(e, LLVMIntNE, LLVMBuildAnd(e->b, i, width, ""), gen_i64(e, 0));
  gen_ssa middle = gen_intrinsic2(e, "llvm.umin", LLVMBuildAdd(e->b, pair, width, ""), length);
  gen_ssa end = gen_intrinsic2(e, "llvm.umin", LLVMBuildAdd(e->b, pair, both, ""), length);
  gen_ssa lo = gen_select(e, is_right, pair, middle), hi = gen_select(e, is_right, middle, end);
  gen_if matters;

  if (is_topk(s)) {
    gen_ssa number = LLVMBuildAnd(e->b, i, LLVMBuildSub(e->b, width, gen_i64(e, 1), ""), "");
    hi = gen_intrinsic2(e, "llvm.umin", hi, LLVMBuildAdd(e->b, lo, gen_i64(e, s->base.kept), ""));
    gen_if_begin(e, &matters, gen_icmp(e, LLVMIntULT, number, gen_i64(e, s->base.kept)));
  }
  WEFT_TRY(rank_of(s, e, slice, from, lo, hi, mine, is_right, &rank));
  gen_ssa place = LLVMBuildAdd(e->b, i, rank, ""); /* of a left run; a right one begins at `middle` instead of `pair` */
  place = gen_select(e, is_right, LLVMBuildSub(e->b, place, LLVMBuildSub(e->b, middle, pair, ""), ""), place);
  if (is_topk(s)) {
    gen_if stays;
    gen_if_begin(e, &stays, gen_icmp(e, LLVMIntULT, LLVMBuildSub(e->b, place, pair, ""), gen_i64(e, s->base.kept)));
    list_put(e, to, place, mine);
    gen_if_end(e, &stays);
    gen_if_end(e, &matters);
    return NULL;
  }
  list_put(e, to, place, mine);
  return NULL;
}

/* ---- scratch --------------------------------------------------------------------------------------------------- */

static int64_t list_bytes(const sorting *s)
{
  return WEFT_ALIGN_UP(s->base.slices * s->base.n * 4, (int64_t)GEN_SORT_ALIGN);
}

/* Half 0 or 1 of the positions. */
static gen_buffer positions(const sorting *s, gen_emit *e, gen_ssa half)
{
  gen_ssa offset = LLVMBuildNSWMul(e->b, half, gen_i64(e, list_bytes(s)), "");
  gen_ssa at = LLVMBuildInBoundsGEP2(e->b, e->part->i8, s->base.f->shared, &offset, 1, "");
  return (gen_buffer){.ptr = at, .type = WEFT_S32, .elems = s->base.slices * s->base.n};
}

/* ---- launches -------------------------------------------------------------------------------------------------- */

/* Stores the element at position `from` of the slice as number `to` of the sorted ones. The element of every thread is
 * loaded before any is stored, since a result may lie on its operand: `together` says that a barrier sees to that. */
static void store_sorted(const sorting *s, gen_emit *e, gen_ssa slice, gen_ssa from, gen_ssa to, gen_ssa present,
                         bool together)
{
  gen_value v[GEN_SORT_OPERANDS];
  gen_affine place = gen_sort_place(&s->base, e, slice, from, s->base.n);
  gen_if stores;

  for (int i = 0; i < s->base.operands; i++) {
    gen_buffer in = gen_sort_bits(s->base.f->operands[i]);
    v[i] = gen_load(e, &in, place);
  }
  if (together) gen_barrier(e);
  gen_ssa kept = gen_icmp(e, LLVMIntULT, to, gen_i64(e, s->base.kept));
  gen_if_begin(e, &stores, present ? LLVMBuildAnd(e->b, present, kept, "") : kept);
  gen_affine at = gen_sort_place(&s->base, e, slice, to, s->base.kept);
  for (int i = 0; i < s->base.operands; i++) {
    gen_buffer out = gen_sort_bits(s->base.f->results[i]);
    gen_store(e, &out, at, v[i]);
  }
  if (is_topk(s)) {
    const gen_buffer *indices = &s->base.f->results[1];
    gen_ssa index = gen_cast(e, LLVMTrunc, from, gen_register_type(e->part, indices->type));
    gen_store(e, indices, at, (gen_value){index, NULL});
  }
  gen_if_end(e, &stores);
}

/* The runs of a tile, merged in shared memory. Two lists take turns. */
static weft_status *merge_tile(const sorting *s, gen_emit *e, const gen_shared *shared, int threads, gen_ssa slice,
                               gen_ssa team, gen_ssa i, gen_ssa length, gen_ssa present)
{
  gen_loop passes;
  gen_if moves;

  if (s->tile == 1) return NULL;
  gen_loop_static(e, &passes, 0, __builtin_ctzll((uint64_t)s->tile), 1);
  gen_ssa pass = e->vars[passes.var].value, odd = LLVMBuildAnd(e->b, pass, gen_i64(e, 1), "");
  gen_ssa half = LLVMBuildNSWMul(e->b, odd, gen_i64(e, threads), "");
  list from = {.shared = shared, .first = LLVMBuildNSWAdd(e->b, half, team, "")}, to = {.shared = shared};
  to.first = LLVMBuildNSWAdd(e->b, LLVMBuildNSWSub(e->b, gen_i64(e, threads), half, ""), team, "");
  gen_if_begin(e, &moves, present);
  WEFT_TRY(merge_one(s, e, slice, &from, &to, i, LLVMBuildShl(e->b, gen_i64(e, 1), pass, ""), length));
  gen_if_end(e, &moves);
  gen_barrier(e);
  gen_loop_end(e, &passes);
  return NULL;
}

static weft_status *tile_launch(sorting *s)
{
  int threads = (int)WEFT_MAX(s->tile, BLOCK_THREADS);
  int64_t teams = threads / s->tile, items = s->base.slices * s->tiles;
  gen_frame f;
  gen_emit *e = &f.e;

  WEFT_TRY(gen_grid_open(s->base.g, false, &f));
  s->base.f = &f;
  gen_ssa tid = gen_wide(e, gen_thread_id(e)), i = LLVMBuildAnd(e->b, tid, gen_i64(e, s->tile - 1), "");
  gen_ssa team = LLVMBuildSub(e->b, tid, i, ""), number = LLVMBuildUDiv(e->b, tid, gen_i64(e, s->tile), "");
  gen_ssa item = LLVMBuildNSWMul(e->b, gen_wide(e, gen_block_id(e)), gen_i64(e, teams), "");
  item = LLVMBuildNSWAdd(e->b, item, number, "");
  gen_ssa exists = gen_icmp(e, LLVMIntULT, item, gen_i64(e, items));
  item = gen_intrinsic2(e, "llvm.umin", item, gen_i64(e, items - 1));
  gen_ssa slice = LLVMBuildUDiv(e->b, item, gen_i64(e, s->tiles), "");
  gen_ssa first = LLVMBuildNSWMul(e->b, LLVMBuildURem(e->b, item, gen_i64(e, s->tiles), ""), gen_i64(e, s->tile), "");
  gen_ssa length =
    gen_intrinsic2(e, "llvm.umin", LLVMBuildNSWSub(e->b, gen_i64(e, s->base.n), first, ""), gen_i64(e, s->tile));
  gen_ssa present = LLVMBuildAnd(e->b, exists, gen_icmp(e, LLVMIntULT, i, length), "");

  gen_shared shared = gen_shared_array(e, e->part->i32, 2 * threads);
  list at_first = {.shared = &shared, .first = team}, sorted = at_first, other = at_first;
  other.first = LLVMBuildNSWAdd(e->b, team, gen_i64(e, threads), "");
  /* A comparator that is no order could leave places empty. They then hold a position of the slice, which is safe. */
  gen_ssa own = gen_intrinsic2(e, "llvm.umin", LLVMBuildNSWAdd(e->b, first, i, ""), gen_i64(e, s->base.n - 1));
  list_put(e, &at_first, i, own);
  list_put(e, &other, i, own);
  gen_barrier(e);
  WEFT_TRY(merge_tile(s, e, &shared, threads, slice, team, i, length, present));
  if (__builtin_ctzll((uint64_t)s->tile) % 2) sorted.first = other.first;
  gen_ssa mine = list_get(e, &sorted, i);
  if (s->tiles == 1) {
    store_sorted(s, e, slice, mine, i, present, true);
  } else {
    gen_if stores;
    gen_if_begin(e, &stores, present);
    for (int half = 0; half < 2; half++) {
      list out = {.scratch = positions(s, e, gen_i64(e, half))};
      out.first = LLVMBuildNSWMul(e->b, slice, gen_i64(e, s->base.n), "");
      list_put(e, &out, LLVMBuildNSWAdd(e->b, first, i, ""), mine);
    }
    gen_if_end(e, &stores);
  }
  return gen_grid_close(s->base.g, &f, (items + teams - 1) / teams, threads);
}

/* A launch's numbers: the width of the runs, and which half of the scratch has them. */
static weft_status *merge_element(void *ctx, gen_emit *e, gen_affine at)
{
  const sorting *s = ctx;
  gen_ssa slice, i, other = LLVMBuildXor(e->b, s->base.f->end, gen_i64(e, 1), "");

  gen_sort_split(e, at, s->base.n, &slice, &i);
  gen_ssa first = LLVMBuildNSWMul(e->b, slice, gen_i64(e, s->base.n), "");
  list from = {.scratch = positions(s, e, s->base.f->end), .first = first}, to = {.scratch = positions(s, e, other), .first = first};
  return merge_one(s, e, slice, &from, &to, i, s->base.f->begin, gen_i64(e, s->base.n));
}

static weft_status *merge_launches(sorting *s, int64_t *half)
{
  int64_t all = s->base.slices * s->base.n;
  gen_frame f;

  WEFT_TRY(gen_grid_open(s->base.g, true, &f));
  s->base.f = &f;
  WEFT_TRY(gen_grid_each(&f, all, merge_element, s));
  WEFT_TRY(gen_grid_close_each(s->base.g, &f, all));
  *half = 0;
  int kernel = s->base.g->out->launch_count - 1;
  for (int64_t width = s->tile; width < s->base.n; width *= 2, *half ^= 1) {
    if (width > s->tile) WEFT_TRY(gen_grid_again(s->base.g, kernel));
    gen_grid_numbers(s->base.g, width, *half);
  }
  return NULL;
}

static gen_ssa sorted_position(const sorting *s, gen_emit *e, int64_t half, gen_ssa slice, gen_ssa i)
{
  gen_ssa number = gen_i64(e, half), first = LLVMBuildNSWMul(e->b, slice, gen_i64(e, s->base.n), "");
  list sorted = {.scratch = positions(s, e, number), .first = first};

  return list_get(e, &sorted, i);
}

/* ctx of the last launch of a top-k: `half` has the sorted positions. */
typedef struct ending {
  sorting *s;
  int64_t half;
} ending;

static weft_status *take_first(void *ctx, gen_emit *e, gen_affine at)
{
  ending *end = ctx;
  gen_ssa slice, i;

  gen_sort_split(e, at, end->s->base.kept, &slice, &i);
  gen_ssa from = sorted_position(end->s, e, end->half, slice, i);
  store_sorted(end->s, e, slice, from, i, NULL, false);
  return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static void read_order(gen_sorting *s)
{
  const hlo_instr *instr = s->instr;

  if (instr->op == HLO_TOPK) {
    s->keys[0] = (gen_key){.type = instr->operands[0]->shape->type, .descending = instr->u.topk.largest};
    s->key_count = 1;
  } else if (!gen_keys_of(instr->called[0], s->keys, &s->key_count)) {
    s->key_count = 0;
  }
}

static weft_status *merge(sorting *s)
{
  int64_t half = 0, lists = 2 * list_bytes(s);

  while (s->tile < WEFT_MIN(s->base.n, TILE)) s->tile *= 2;
  s->tiles = (s->base.n + s->tile - 1) / s->tile;
  if (s->tiles > 1) s->base.g->spec->info->shared_bytes = lists + (is_topk(s) ? 0 : gen_sort_take_bytes(&s->base, -1));
  WEFT_TRY(tile_launch(s));
  if (s->tiles == 1) return NULL;
  WEFT_TRY(merge_launches(s, &half));
  if (is_topk(s)) return gen_sort_each(&s->base, s->base.slices * s->base.kept, take_first, &(ending){s, half});
  return gen_sort_take(&s->base, half * list_bytes(s), lists, -1);
}

weft_status *gen_grid_sort(gen_grid *g)
{
  const hlo_instr *instr = g->spec->fusion;
  const hlo_shape *shape = instr->operands[0]->shape;
  sorting s = {.base = {.g = g, .instr = instr, .operands = instr->operand_count, .inner = 1}, .tile = 1};
  int64_t dim = instr->op == HLO_TOPK ? shape->rank - 1 : instr->dims.v[0];

  if (s.base.operands > GEN_SORT_OPERANDS)
    return WEFT_ERR(UNIMPLEMENTED, "nvptx: a sort of %d operands", s.base.operands);
  s.base.n = s.base.kept = shape->dims[dim];
  if (is_topk(&s)) s.base.kept = instr->u.topk.k;
  if (s.base.n > INT32_MAX) return WEFT_ERR(UNIMPLEMENTED, "nvptx: a sort of %lld elements", (long long)s.base.n);
  if (hlo_shape_elems(shape) == 0 || s.base.kept == 0) return NULL;
  for (int64_t d = dim + 1; d < shape->rank; d++) s.base.inner *= shape->dims[d];
  s.base.slices = hlo_shape_elems(shape) / s.base.n;
  read_order(&s.base);
  if (gen_block_radix_fits(&s.base)) return gen_block_radix(&s.base);
  return gen_radix_fits(&s.base) ? gen_radix(&s.base) : merge(&s);
}
