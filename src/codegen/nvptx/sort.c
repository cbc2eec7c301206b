/* codegen/nvptx/sort.c -- sorts by any comparator, and the first k elements of rows: stable, by merging.
 *
 * What is sorted are positions. Runs of 1, 2, 4, ... positions are merged in pairs: the thread of a position counts, by
 * binary search, the positions of the other run that go before its own, and so knows its place in the merged run.
 *
 *   first launch    each block merges the runs of its tile, in shared memory
 *   merges          one launch each, from one half of the scratch to the other; none if a tile holds a whole slice
 *   gather          the elements at the sorted positions go to scratch, since a result may lie on its operand
 *   store           from there to the results
 *
 * Where a tile holds a whole slice, the first launch stores the results. A comparator that is no strict weak order, and
 * no plain comparison, gives some elements of the slice in some order. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum { TILE = 1024, BLOCK_THREADS = 128, MOST_OPERANDS = 64, SCRATCH_ALIGN = 256 };

typedef struct sorting {
  gen_grid *g;
  gen_frame *f;
  const hlo_instr *instr;
  int operands;
  int64_t n, inner, slices;   /* elements of a slice, the step between them, how many slices */
  int64_t kept;               /* elements of a slice that are stored: k of a top-k */
  int64_t tile, tiles;        /* elements of a tile, a power of 2; tiles of a slice */
} sorting;

static bool is_topk(const sorting *s) { return s->instr->op == HLO_TOPK; }

/* ---- elements -------------------------------------------------------------------------------------------------- */

/* Where position `at` of the slice is in an array whose slices have `length` elements. */
static gen_affine place_of(const sorting *s, gen_emit *e, gen_ssa slice, gen_ssa at, int64_t length)
{
  gen_ssa outer = LLVMBuildUDiv(e->b, slice, gen_i64(e, s->inner), "");
  gen_ssa inner = LLVMBuildURem(e->b, slice, gen_i64(e, s->inner), "");
  gen_ssa row = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, outer, gen_i64(e, length), ""), at, "");
  gen_ssa linear = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, row, gen_i64(e, s->inner), ""), inner, "");

  return gen_affine_value(e, linear, 0, WEFT_MAX(s->slices * length - 1, 1));
}

/* The bits of an element as an integer, or as complex numbers if they are too many: they are moved as they are. */
static gen_buffer as_bits(gen_buffer buffer)
{
  static const weft_dtype types[] = {[1] = WEFT_U8, [2] = WEFT_U16, [4] = WEFT_U32, [8] = WEFT_U64, [16] = WEFT_C128};

  buffer.type = types[weft_dtype_bytes(buffer.type)];
  return buffer;
}

/* If the comparator is a comparison of one operand's two elements, for less or greater: the operand, else -1. */
static int key_of(const hlo_instr *sort, bool *greater)
{
  const hlo_instr *root = sort->called[0]->root;

  if (root->op != HLO_COMPARE || root->operands[0]->op != HLO_PARAMETER || root->operands[1]->op != HLO_PARAMETER)
    return -1;
  int64_t left = root->operands[0]->u.parameter_number, right = root->operands[1]->u.parameter_number;
  if (left / 2 != right / 2 || left == right) return -1;
  if (root->u.compare.direction != HLO_LT && root->u.compare.direction != HLO_GT) return -1;
  *greater = (root->u.compare.direction == HLO_GT) != (left > right);
  return (int)(left / 2);
}

/* An integer that orders floats as IEEE's total order does. */
static gen_ssa total_order(gen_emit *e, gen_ssa v)
{
  bool wide = LLVMTypeOf(v) == e->part->f64;
  gen_ssa bits = LLVMBuildBitCast(e->b, v, wide ? e->part->i64 : e->part->i32, "");
  gen_ssa flip = LLVMBuildLShr(e->b, LLVMBuildAShr(e->b, bits, gen_i(bits, wide ? 63 : 31), ""), gen_i(bits, 1), "");

  return LLVMBuildXor(e->b, bits, flip, "");
}

/* Is the key of `a` less than that of `b`, in a total order? */
static gen_ssa is_less(gen_emit *e, weft_dtype type, gen_ssa a, gen_ssa b, bool merge_zeros)
{
  gen_ssa keys[2] = {a, b};
  bool is_float = weft_dtype_is_float(type);

  for (int k = 0; k < 2 && is_float; k++) {
    gen_ssa zero = gen_fcmp(e, LLVMRealOEQ, keys[k], gen_f(keys[k], 0));
    if (merge_zeros) keys[k] = gen_select(e, zero, gen_f(keys[k], 0), keys[k]);
    keys[k] = total_order(e, keys[k]);
  }
  return gen_icmp(e, is_float || weft_dtype_is_signed(type) ? LLVMIntSLT : LLVMIntULT, keys[0], keys[1]);
}

/* Does position `a` of the slice go before position `b`? A plain comparison of floats becomes one in total order, in
 * which 0 and -0 are equal: merging needs an order of NaNs too. */
static weft_status *goes_before(const sorting *s, gen_emit *e, gen_ssa slice, gen_ssa a, gen_ssa b, gen_ssa *out)
{
  gen_affine place[2] = {place_of(s, e, slice, a, s->n), place_of(s, e, slice, b, s->n)};
  bool greater = is_topk(s) && s->instr->u.topk.largest;
  int key = is_topk(s) ? 0 : key_of(s->instr, &greater);
  gen_value args[2 * MOST_OPERANDS];
  const gen_value *r;

  for (int i = 0; i < s->operands; i++)
    for (int k = 0; k < 2; k++) args[2 * i + k] = gen_load(e, &s->f->operands[i], place[k]);
  weft_dtype type = s->instr->operands[WEFT_MAX(key, 0)]->shape->type;
  if (key >= 0 && !weft_dtype_is_complex(type)) {
    *out = is_less(e, type, args[2 * key + greater].re, args[2 * key + !greater].re, !is_topk(s));
    return NULL;
  }
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
  WEFT_TRY(goes_before(s, e, slice, one, two, &before));
  gen_ssa counts = LLVMBuildXor(e->b, before, is_right, "");
  gen_ssa next = LLVMBuildAdd(e->b, middle, gen_i64(e, 1), "");
  LLVMBuildStore(e->b, gen_select(e, counts, next, l), low);
  LLVMBuildStore(e->b, gen_select(e, counts, h, middle), high);
  gen_while_end(e, &search);
  *out = LLVMBuildSub(e->b, LLVMBuildLoad2(e->b, e->part->i64, low, ""), lo, "");
  return NULL;
}

/* Moves position number `i` of a list of `length` from its run of `width` to its place in the merged run. Of a top-k only
 * the first k places of a run matter. */
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
    hi = gen_intrinsic2(e, "llvm.umin", hi, LLVMBuildAdd(e->b, lo, gen_i64(e, s->kept), ""));
    gen_if_begin(e, &matters, gen_icmp(e, LLVMIntULT, number, gen_i64(e, s->kept)));
  }
  WEFT_TRY(rank_of(s, e, slice, from, lo, hi, mine, is_right, &rank));
  gen_ssa place = LLVMBuildAdd(e->b, i, rank, ""); /* of a left run; a right one begins at `middle` instead of `pair` */
  place = gen_select(e, is_right, LLVMBuildSub(e->b, place, LLVMBuildSub(e->b, middle, pair, ""), ""), place);
  if (is_topk(s)) {
    gen_if stays;
    gen_if_begin(e, &stays, gen_icmp(e, LLVMIntULT, LLVMBuildSub(e->b, place, pair, ""), gen_i64(e, s->kept)));
    list_put(e, to, place, mine);
    gen_if_end(e, &stays);
    gen_if_end(e, &matters);
    return NULL;
  }
  list_put(e, to, place, mine);
  return NULL;
}

/* ---- scratch --------------------------------------------------------------------------------------------------- */

static int64_t list_bytes(const sorting *s) { return WEFT_ALIGN_UP(s->slices * s->n * 4, (int64_t)SCRATCH_ALIGN); }

/* Half 0 or 1 of the positions. */
static gen_buffer positions(const sorting *s, gen_emit *e, gen_ssa half)
{
  gen_ssa offset = LLVMBuildNSWMul(e->b, half, gen_i64(e, list_bytes(s)), "");
  gen_ssa at = LLVMBuildInBoundsGEP2(e->b, e->part->i8, s->f->shared, &offset, 1, "");
  return (gen_buffer){.ptr = at, .type = WEFT_S32, .elems = s->slices * s->n};
}

/* The sorted elements of operand `k`, or, with k = operands, what follows them. */
static int64_t gathered_offset(const sorting *s, int k)
{
  int64_t offset = 2 * list_bytes(s);

  for (int i = 0; i < k; i++)
    offset += WEFT_ALIGN_UP(hlo_shape_bytes(s->instr->operands[i]->shape), (int64_t)SCRATCH_ALIGN);
  return offset;
}

/* ---- launches -------------------------------------------------------------------------------------------------- */

/* Stores the element at position `from` of the slice as number `to` of the sorted ones. The element of every thread is
 * loaded before any is stored, since a result may lie on its operand: `together` says that a barrier sees to that. */
static void store_sorted(const sorting *s, gen_emit *e, gen_ssa slice, gen_ssa from, gen_ssa to, gen_ssa present,
                         bool together)
{
  gen_value v[MOST_OPERANDS];
  gen_affine place = place_of(s, e, slice, from, s->n);
  gen_if stores;

  for (int i = 0; i < s->operands; i++) {
    gen_buffer in = as_bits(s->f->operands[i]);
    v[i] = gen_load(e, &in, place);
  }
  if (together) gen_barrier(e);
  gen_ssa kept = gen_icmp(e, LLVMIntULT, to, gen_i64(e, s->kept));
  gen_if_begin(e, &stores, present ? LLVMBuildAnd(e->b, present, kept, "") : kept);
  gen_affine at = place_of(s, e, slice, to, s->kept);
  for (int i = 0; i < s->operands; i++) {
    gen_buffer out = as_bits(s->f->results[i]);
    gen_store(e, &out, at, v[i]);
  }
  if (is_topk(s)) {
    const gen_buffer *indices = &s->f->results[1];
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
  int64_t teams = threads / s->tile, items = s->slices * s->tiles;
  gen_frame f;
  gen_emit *e = &f.e;

  WEFT_TRY(gen_grid_open(s->g, false, &f));
  s->f = &f;
  gen_ssa tid = gen_wide(e, gen_thread_id(e)), i = LLVMBuildAnd(e->b, tid, gen_i64(e, s->tile - 1), "");
  gen_ssa team = LLVMBuildSub(e->b, tid, i, ""), number = LLVMBuildUDiv(e->b, tid, gen_i64(e, s->tile), "");
  gen_ssa item = LLVMBuildNSWMul(e->b, gen_wide(e, gen_block_id(e)), gen_i64(e, teams), "");
  item = LLVMBuildNSWAdd(e->b, item, number, "");
  gen_ssa exists = gen_icmp(e, LLVMIntULT, item, gen_i64(e, items));
  item = gen_intrinsic2(e, "llvm.umin", item, gen_i64(e, items - 1));
  gen_ssa slice = LLVMBuildUDiv(e->b, item, gen_i64(e, s->tiles), "");
  gen_ssa first = LLVMBuildNSWMul(e->b, LLVMBuildURem(e->b, item, gen_i64(e, s->tiles), ""), gen_i64(e, s->tile), "");
  gen_ssa length =
    gen_intrinsic2(e, "llvm.umin", LLVMBuildNSWSub(e->b, gen_i64(e, s->n), first, ""), gen_i64(e, s->tile));
  gen_ssa present = LLVMBuildAnd(e->b, exists, gen_icmp(e, LLVMIntULT, i, length), "");

  gen_shared shared = gen_shared_array(e, e->part->i32, 2 * threads);
  list at_first = {.shared = &shared, .first = team}, sorted = at_first, other = at_first;
  other.first = LLVMBuildNSWAdd(e->b, team, gen_i64(e, threads), "");
  /* A comparator that is no order could leave places empty. They then hold a position of the slice, which is safe. */
  gen_ssa own = gen_intrinsic2(e, "llvm.umin", LLVMBuildNSWAdd(e->b, first, i, ""), gen_i64(e, s->n - 1));
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
      out.first = LLVMBuildNSWMul(e->b, slice, gen_i64(e, s->n), "");
      list_put(e, &out, LLVMBuildNSWAdd(e->b, first, i, ""), mine);
    }
    gen_if_end(e, &stores);
  }
  return gen_grid_close(s->g, &f, (items + teams - 1) / teams, threads);
}

/* The slice and the position that a thread of a launch over all elements has. */
static void split(const sorting *s, gen_emit *e, gen_affine at, int64_t length, gen_ssa *slice, gen_ssa *position)
{
  *slice = gen_affine_ssa(e, gen_affine_digit(e, at, length, 0));
  *position = gen_affine_ssa(e, gen_affine_digit(e, at, 1, length));
  (void)s;
}

/* A launch's numbers: the width of the runs, and which half of the scratch has them. */
static weft_status *merge_element(void *ctx, gen_emit *e, gen_affine at)
{
  const sorting *s = ctx;
  gen_ssa slice, i, other = LLVMBuildXor(e->b, s->f->end, gen_i64(e, 1), "");

  split(s, e, at, s->n, &slice, &i);
  gen_ssa first = LLVMBuildNSWMul(e->b, slice, gen_i64(e, s->n), "");
  list from = {.scratch = positions(s, e, s->f->end), .first = first}, to = {.scratch = positions(s, e, other), .first = first};
  return merge_one(s, e, slice, &from, &to, i, s->f->begin, gen_i64(e, s->n));
}

static weft_status *merge_launches(sorting *s, int64_t *half)
{
  const gen_target *target = s->g->part->target;
  int64_t all = s->slices * s->n;
  gen_frame f;

  WEFT_TRY(gen_grid_open(s->g, true, &f));
  s->f = &f;
  WEFT_TRY(gen_grid_each(&f, all, merge_element, s));
  WEFT_TRY(gen_grid_close(s->g, &f, gen_grid_blocks(target, all), gen_grid_threads(target)));
  *half = 0;
  for (int64_t width = s->tile; width < s->n; width *= 2, *half ^= 1)
    WEFT_TRY(gen_grid_repeat(s->g, width == s->tile, width, *half));
  return NULL;
}

/* ctx of the last launches: `half` has the sorted positions. */
typedef struct ending {
  sorting *s;
  int64_t half;
} ending;

static gen_ssa sorted_position(const ending *end, gen_emit *e, gen_ssa slice, gen_ssa i)
{
  const sorting *s = end->s;
  list sorted = {.scratch = positions(s, e, gen_i64(e, end->half)), .first = LLVMBuildNSWMul(e->b, slice, gen_i64(e, s->n), "")};

  return list_get(e, &sorted, i);
}

static weft_status *take_first(void *ctx, gen_emit *e, gen_affine at)
{
  ending *end = ctx;
  gen_ssa slice, i;

  split(end->s, e, at, end->s->kept, &slice, &i);
  store_sorted(end->s, e, slice, sorted_position(end, e, slice, i), i, NULL, false);
  return NULL;
}

static weft_status *gather_element(void *ctx, gen_emit *e, gen_affine at)
{
  ending *end = ctx;
  sorting *s = end->s;
  gen_ssa slice, i;

  split(s, e, at, s->n, &slice, &i);
  gen_affine from = place_of(s, e, slice, sorted_position(end, e, slice, i), s->n), to = place_of(s, e, slice, i, s->n);
  for (int k = 0; k < s->operands; k++) {
    gen_buffer in = as_bits(s->f->operands[k]), out = in;
    out.ptr = gen_byte_ptr(e, s->f->shared, gathered_offset(s, k));
    out.scope = out.noalias = NULL;
    gen_store(e, &out, to, gen_load(e, &in, from));
  }
  return NULL;
}

static weft_status *store_gathered(void *ctx, gen_emit *e, gen_affine at)
{
  sorting *s = ((ending *)ctx)->s;

  for (int k = 0; k < s->operands; k++) {
    gen_buffer out = as_bits(s->f->results[k]), in = out;
    in.ptr = gen_byte_ptr(e, s->f->shared, gathered_offset(s, k));
    in.scope = in.noalias = NULL;
    gen_store(e, &out, at, gen_load(e, &in, at));
  }
  return NULL;
}

static weft_status *each_element(ending *end, int64_t n, gen_body_fn *body)
{
  gen_grid *g = end->s->g;
  gen_frame f;

  WEFT_TRY(gen_grid_open(g, false, &f));
  end->s->f = &f;
  WEFT_TRY(gen_grid_each(&f, n, body, end));
  return gen_grid_close(g, &f, gen_grid_blocks(g->part->target, n), gen_grid_threads(g->part->target));
}

weft_status *gen_grid_sort(gen_grid *g)
{
  const hlo_instr *instr = g->spec->fusion;
  const hlo_shape *shape = instr->operands[0]->shape;
  sorting s = {.g = g, .instr = instr, .operands = instr->operand_count, .inner = 1, .tile = 1};
  int64_t dim = instr->op == HLO_TOPK ? shape->rank - 1 : instr->dims.v[0];
  ending end = {.s = &s};

  if (s.operands > MOST_OPERANDS) return WEFT_ERR(UNIMPLEMENTED, "nvptx: a sort of %d operands", s.operands);
  s.n = s.kept = shape->dims[dim];
  if (is_topk(&s)) s.kept = instr->u.topk.k;
  if (s.n > INT32_MAX) return WEFT_ERR(UNIMPLEMENTED, "nvptx: a sort of %lld elements", (long long)s.n);
  if (hlo_shape_elems(shape) == 0 || s.kept == 0) return NULL;
  for (int64_t d = dim + 1; d < shape->rank; d++) s.inner *= shape->dims[d];
  s.slices = hlo_shape_elems(shape) / s.n;
  while (s.tile < WEFT_MIN(s.n, TILE)) s.tile *= 2;
  s.tiles = (s.n + s.tile - 1) / s.tile;
  if (s.tiles > 1) g->spec->info->shared_bytes = gathered_offset(&s, is_topk(&s) ? 0 : s.operands);
  WEFT_TRY(tile_launch(&s));
  if (s.tiles == 1) return NULL;
  WEFT_TRY(merge_launches(&s, &end.half));
  if (is_topk(&s)) return each_element(&end, s.slices * s.kept, take_first);
  WEFT_TRY(each_element(&end, s.slices * s.n, gather_element));
  return each_element(&end, s.slices * s.n, store_gathered);
}
