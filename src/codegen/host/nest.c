/* codegen/host/nest.c -- loops over the elements of an array, in vectors where that pays, cut into units. */
#include <config.h>

#include "codegen/host/host.h"

enum { UNIT_GOAL = 1024, MOST_LANES = 64 };

static bool is_fixed(gen_ssa a) { return LLVMIsAConstantInt(a) != NULL; }

int gen_choose_lanes(const gen_target *target, int widest_bytes, int64_t extent)
{
  int most = target->vector_bytes / widest_bytes, best = 1;
  int64_t best_cost = extent * 2;

  for (int w = most; w > 1; w /= 2) {
    int64_t cost = extent / w * 3 + extent % w * 2;
    if (extent >= w && cost < best_cost) best = w, best_cost = cost;
  }
  return best;
}

/* The elements [lo, hi) in vectors, of which only whole ones are taken. */
static weft_status *emit_vectors(gen_emit *e, gen_ssa lo, gen_ssa hi, int64_t least, int64_t most, int lanes,
                                 int64_t align, gen_body_fn *body, void *ctx)
{
  gen_loop loop;
  int outer_lanes = e->lanes;

  gen_loop_begin(e, &loop, lo, hi, lanes, least, most, align % lanes == 0 ? lanes : 1);
  e->vars[loop.var].lane = lanes > 1;
  e->lanes = lanes > 1 ? lanes : outer_lanes;
  int mark = gen_memo_push(e);
  WEFT_TRY(body(ctx, e, gen_affine_var(e, loop.var)));
  gen_memo_pop(e, mark);
  e->lanes = outer_lanes;
  gen_loop_end(e, &loop);
  e->vars[loop.var].lane = false;
  return NULL;
}

/* How many elements from lo on are left for narrower vectors so that the whole ones end at hi, and lie at multiples of
 * their size as lo does not. 0: the elements that are left are the last ones. */
static int64_t elements_before(int64_t lo, int64_t hi, int lanes)
{
  int64_t left = (hi - lo) % lanes;

  return left >= GEN_LEAST_TAIL && hi - lo > lanes && lo % lanes && (lo + left) % lanes == 0 ? left : 0;
}

weft_status *gen_emit_lanes(gen_emit *e, gen_ssa lo, gen_ssa hi, int64_t least, int64_t most, int lanes, int64_t align,
                            gen_body_fn *body, void *ctx)
{
  bool fixed = is_fixed(lo) && is_fixed(hi);
  int64_t from = fixed ? LLVMConstIntGetSExtValue(lo) : 0, to = fixed ? LLVMConstIntGetSExtValue(hi) : 0;

  if (lanes <= 1) return emit_vectors(e, lo, hi, least, most, 1, 1, body, ctx);
  if (fixed) {
    int64_t left = WEFT_MAX(to - from, 0) % lanes, before = elements_before(from, to, lanes);
    gen_ssa seam = gen_i64(e, before ? from + left : to - left);
    if (before) WEFT_TRY(emit_vectors(e, seam, hi, least, most, lanes, align, body, ctx));
    else WEFT_TRY(emit_vectors(e, lo, seam, least, most, lanes, align, body, ctx));
    if (left == 0) return NULL;
    for (lanes /= 2; lanes > left;) lanes /= 2;
    if (before) hi = seam;
    else lo = seam;
    return gen_emit_lanes(e, lo, hi, least, most, lanes >= GEN_LEAST_TAIL ? lanes : 1, align, body, ctx);
  }
  gen_ssa length = LLVMBuildNSWSub(e->b, hi, lo, "");
  gen_ssa whole = LLVMBuildNSWAdd(e->b, lo, LLVMBuildAnd(e->b, length, gen_i64(e, -(int64_t)lanes), ""), "");
  WEFT_TRY(emit_vectors(e, lo, whole, least, most, lanes, align, body, ctx));
  return emit_vectors(e, whole, hi, least, most, 1, 1, body, ctx);
}

typedef struct nest_walk {
  const gen_nest *nest;
  int widest;
  gen_body_fn *body;
  void *ctx;
  gen_affine outer; /* linear index of the loops entered so far */
  gen_ssa begin, end;
  int64_t block;    /* elements of a unit when the innermost loop is cut into blocks; 0: it is not */
} nest_walk;

static weft_status *lanes_body(void *ctx, gen_emit *e, gen_affine i)
{
  nest_walk *w = ctx;
  return w->body(w->ctx, e, gen_affine_add(e, w->outer, gen_affine_scale(e, i, w->nest->stride[w->nest->count - 1])));
}

static gen_ssa const_max(gen_emit *e, gen_ssa a, int64_t b)
{
  if (is_fixed(a)) return gen_i64(e, WEFT_MAX(LLVMConstIntGetSExtValue(a), b));
  return b == 0 ? a : gen_intrinsic2(e, "llvm.smax", a, gen_i64(e, b));
}

static gen_ssa const_min(gen_emit *e, gen_ssa a, int64_t b)
{
  if (is_fixed(a)) return gen_i64(e, WEFT_MIN(LLVMConstIntGetSExtValue(a), b));
  return gen_intrinsic2(e, "llvm.smin", a, gen_i64(e, b));
}

static weft_status *walk_level(gen_emit *e, nest_walk *w, int g);

/* The elements [lo, hi) of a loop over [0, end) in whole vectors, the last of which may begin within the one before.
 * Only where hi is `end` is it no multiple of `lanes`, and there are at least `lanes` elements. */
static weft_status *walk_overlapping(gen_emit *e, nest_walk *w, gen_ssa lo, gen_ssa hi, int64_t end, int lanes)
{
  gen_loop loop;
  int outer_lanes = e->lanes;

  gen_loop_begin(e, &loop, lo, hi, lanes, 0, end, 1);
  gen_ssa first = gen_intrinsic2(e, "llvm.smin", e->vars[loop.var].value, gen_i64(e, end - lanes));
  int var = gen_add_var(e, (gen_var){.value = first, .lo = 0, .hi = end, .align = 1, .lane = true});
  int mark = gen_memo_push(e);
  e->lanes = lanes;
  WEFT_TRY(lanes_body(w, e, gen_affine_var(e, var)));
  e->lanes = outer_lanes;
  e->vars[var].lane = false;
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

/* The elements [lo, hi) of the piece [from, to) of the innermost loop. Which elements share a vector must not depend on
 * the ranges that units are divided into, since a value may be summed in another order in a vector (emit/dot.c). Blocks
 * begin at multiples of every vector. A piece may begin elsewhere: then its first elements are computed one by one. */
static weft_status *walk_lanes(gen_emit *e, nest_walk *w, gen_ssa lo, gen_ssa hi, int64_t from, int64_t to,
                               int64_t align)
{
  int64_t extent = w->block ? WEFT_MIN(to - from, w->block) : to - from;
  int lanes = gen_choose_lanes(e->part->target, w->widest, extent);

  if (w->nest->overlaps) {
    for (lanes = e->part->target->vector_bytes / w->widest; lanes > extent;) lanes /= 2;
    if (lanes > 1 && from == 0) return walk_overlapping(e, w, lo, hi, to, lanes);
  }
  if (from % lanes == 0) return gen_emit_lanes(e, lo, hi, from, to, lanes, from ? 1 : align, lanes_body, w);
  if (is_fixed(lo) && is_fixed(hi)) return gen_emit_lanes(e, lo, hi, from, to, lanes, 1, lanes_body, w);
  gen_ssa seam = gen_intrinsic2(e, "llvm.smax", lo, gen_i64(e, WEFT_ALIGN_UP(from, lanes)));
  seam = gen_intrinsic2(e, "llvm.smin", seam, hi);
  WEFT_TRY(gen_emit_lanes(e, lo, seam, from, to, 1, 1, lanes_body, w));
  return gen_emit_lanes(e, seam, hi, from, to, lanes, lanes, lanes_body, w);
}

/* Level g over [lo, hi), piece by piece if it has cuts. */
static weft_status *walk_range(gen_emit *e, nest_walk *w, int g, gen_ssa lo, gen_ssa hi, int64_t align)
{
  const gen_nest *nest = w->nest;
  gen_affine outer = w->outer;
  bool innermost = g == nest->count - 1;

  for (int c = 0; c <= nest->cut_count[g]; c++) {
    int64_t from = c ? nest->cuts[g][c - 1] : 0, to = c < nest->cut_count[g] ? nest->cuts[g][c] : nest->extent[g];
    gen_ssa piece_lo = const_max(e, lo, from), piece_hi = const_min(e, hi, to);
    if (nest->cut_count[g] && !(is_fixed(piece_lo) && is_fixed(piece_hi)))
      /* if the range does not reach this piece, the piece is empty */
      piece_hi = gen_intrinsic2(e, "llvm.smax", piece_lo, piece_hi);
    if (innermost) {
      WEFT_TRY(walk_lanes(e, w, piece_lo, piece_hi, from, to, align));
      continue;
    }
    gen_loop loop;
    gen_loop_begin(e, &loop, piece_lo, piece_hi, 1, from, to, 1);
    int mark_ = gen_memo_push(e);
    w->outer = gen_affine_add(e, outer, gen_affine_scale(e, gen_affine_var(e, loop.var), nest->stride[g]));
    WEFT_TRY(walk_level(e, w, g + 1));
    w->outer = outer;
    gen_memo_pop(e, mark_);
    gen_loop_end(e, &loop);
  }
  return NULL;
}

static weft_status *walk_level(gen_emit *e, nest_walk *w, int g)
{
  return walk_range(e, w, g, gen_i64(e, 0), gen_i64(e, w->nest->extent[g]), 64);
}

weft_status *gen_emit_nest(gen_emit *e, const gen_nest *nest, int widest_bytes, gen_ssa begin, gen_ssa end,
                           int64_t *out_units, gen_body_fn *body, void *ctx)
{
  int widest = WEFT_MAX(widest_bytes / WEFT_MAX(nest->vectors, 1), 1);
  nest_walk w = {nest, widest, body, ctx, gen_affine_const(0), begin, end, 0};
  int last = nest->count - 1, folded = 1;
  int64_t inner = nest->extent[last], outer = 1, product;
  int64_t block = nest->block ? nest->block : e->part->target->block_bytes / widest_bytes / WEFT_MAX(nest->period, 1);

  block = WEFT_MAX(block / MOST_LANES * MOST_LANES, MOST_LANES);
  for (int g = 0; g < last; g++) outer *= nest->extent[g];
  if (outer * inner == 0) return *out_units = 0, NULL;
  if (!begin) { /* no units: all of it, once */
    *out_units = 1;
    return walk_level(e, &w, 0);
  }
  if (last == 0) { /* one loop: blocks of it */
    w.block = block;
    *out_units = (inner + block - 1) / block;
    gen_ssa lo = gen_i64(e, 0), hi = gen_i64(e, inner);
    if (*out_units > 1) {
      lo = LLVMBuildNSWMul(e->b, begin, gen_i64(e, block), "");
      hi = const_min(e, LLVMBuildNSWMul(e->b, end, gen_i64(e, block), ""), inner);
    }
    return walk_range(e, &w, 0, lo, hi, 64);
  }
  product = nest->extent[0];
  if (product < UNIT_GOAL)
    while (folded < last && product < UNIT_GOAL) product *= nest->extent[folded++];
  bool blocks = folded == last && outer < 64 && inner >= 2 * block && nest->cut_count[last] == 0;
  int64_t per_row = blocks ? (inner + block - 1) / block : 1;
  *out_units = product * per_row;
  if (folded == 1 && !blocks) return walk_range(e, &w, 0, begin, end, 1);

  gen_loop loop;
  gen_loop_begin(e, &loop, begin, end, 1, 0, *out_units, 1);
  int mark_ = gen_memo_push(e);
  gen_affine unit = gen_affine_var(e, loop.var), row = gen_affine_digit(e, unit, per_row, 0);
  int64_t below = product;
  for (int g = 0; g < folded; g++) {
    below /= nest->extent[g];
    gen_affine digit = gen_affine_digit(e, row, below, g == 0 ? 0 : nest->extent[g]);
    w.outer = gen_affine_add(e, w.outer, gen_affine_scale(e, digit, nest->stride[g]));
  }
  if (blocks) {
    gen_ssa lo = gen_affine_ssa(e, gen_affine_scale(e, gen_affine_digit(e, unit, 1, per_row), block));
    gen_ssa hi = const_min(e, LLVMBuildNSWAdd(e->b, lo, gen_i64(e, block), ""), inner);
    w.block = block;
    WEFT_TRY(walk_range(e, &w, last, lo, hi, 64));
  } else {
    WEFT_TRY(walk_level(e, &w, folded));
  }
  gen_memo_pop(e, mark_);
  gen_loop_end(e, &loop);
  return NULL;
}
