/* passes/dot_canonicalizer.c -- dot-canonicalizer: every dot becomes
 *     lhs [B, M, K] or [B, K, M]   x   rhs [B, K, N] or [B, N, K]   ->   [B, M, N]
 * with one contracting dimension and at most one batch dimension (B is absent when there is none), which is what GEMM
 * does: a swapped operand is a transposed one.  Dimensions are merged by reshapes; an operand that is itself a
 * transpose is read without that transpose if no other one is needed then; and an operand is transposed only if no GEMM
 * can address it as it is. A transpose of a transpose becomes one first. Canonical dots whose operands are transposes
 * are folded too, so the pass is run again after simplification. A dot whose result is only read transposed (JAX writes
 * the gradient of a weight so) becomes the dot of the swapped operands where that gives the same result: the transpose
 * of a product is the product of the transposes in the opposite order. So does a dot of batches if the transpose of the
 * swapped one's result keeps the innermost dimension, and the other did not (attention writes its result [batch, heads,
 * features, queries], and reads it [batch, queries, heads, features]).
 * Where the transpose only reorders dimensions of one operand, or those of the batch, and the operands are small, these
 * are transposed instead of the result. A large operand that is a transpose is read without that one, and the result,
 * which is small, is transposed where free dimensions come in another order then (gradients of grouped heads).
 *
 * A large operand that has its contracting dimensions in the middle, [A, K, C], as einsums with per-head weights have,
 * is not transposed if the other operand is small: the small operand is repeated for each index of A instead, and A
 * becomes a batch dimension. */
#include <config.h>

#include "base/swap.h"
#include "codegen/model/weights.h"
#include "passes/build.h"
#include "passes/passes.h"

typedef struct dims_list { int count; int64_t v[HLO_MAX_RANK]; } dims_list;

/* One operand, with its dimensions sorted into the three roles, in the order that the result needs. */
typedef struct side {
  hlo_instr *x;
  dims_list batch, free, contract;
  bool contract_first; /* [B, K, free] instead of [B, free, K] */
  bool transpose;      /* no order fits: the operand is transposed to the preferred one */
} side;

static void append(dims_list *list, const dims_list *more)
{
  for (int i = 0; i < more->count; i++) list->v[list->count++] = more->v[i];
}

static dims_list order_of(const side *s, bool contract_first)
{
  dims_list order = s->batch;

  append(&order, contract_first ? &s->contract : &s->free);
  append(&order, contract_first ? &s->free : &s->contract);
  return order;
}

/* True if reading x's dimensions in that order reads its memory in order. */
static bool is_in_memory_order(const hlo_shape *shape, const dims_list *order)
{
  int64_t last = -1;

  for (int i = 0; i < order->count; i++) {
    if (shape->dims[order->v[i]] == 1) continue;
    if (order->v[i] < last) return false;
    last = order->v[i];
  }
  return true;
}

static bool fits(side *s, bool prefer_contract_first)
{
  for (int flip = 0; flip < 2; flip++) {
    dims_list order = order_of(s, prefer_contract_first ^ flip);
    if (!is_in_memory_order(s->x->shape, &order)) continue;
    s->contract_first = prefer_contract_first ^ flip;
    return true;
  }
  s->contract_first = prefer_contract_first;
  return false;
}

/* Decides how the operand is read: through its own transpose, as it is, or through a new transpose. */
static void settle(side *s, bool prefer_contract_first)
{
  side before = *s;

  if (s->x->op == HLO_TRANSPOSE) {
    dims_list *lists[] = {&before.batch, &before.free, &before.contract};
    for (int l = 0; l < 3; l++)
      for (int i = 0; i < lists[l]->count; i++) lists[l]->v[i] = s->x->dims.v[lists[l]->v[i]];
    before.x = s->x->operands[0];
    if (fits(&before, prefer_contract_first)) {
      *s = before;
      return;
    }
  }
  s->transpose = !fits(s, prefer_contract_first);
}

static int64_t size_of(const hlo_shape *shape, const dims_list *dims)
{
  int64_t size = 1;

  for (int i = 0; i < dims->count; i++) size *= shape->dims[dims->v[i]];
  return size;
}

static side sort_dims(hlo_instr *x, hlo_ints batch, hlo_ints contract)
{
  side s = {.x = x};

  for (int i = 0; i < batch.count; i++) s.batch.v[s.batch.count++] = batch.v[i];
  for (int i = 0; i < contract.count; i++) s.contract.v[s.contract.count++] = contract.v[i];
  for (int64_t d = 0; d < x->shape->rank; d++)
    if (!pass_ints_contain(batch, d) && !pass_ints_contain(contract, d)) s.free.v[s.free.count++] = d;
  return s;
}

/* Sorts the contracting pairs, which may come in any order, by their order in the memory of the operand of `by`. */
static void sort_pairs(dims_list *by, dims_list *with)
{
  for (int i = 1; i < by->count; i++)
    for (int j = i; j > 0 && by->v[j - 1] > by->v[j]; j--) {
      WEFT_SWAP(by->v[j], by->v[j - 1]);
      WEFT_SWAP(with->v[j], with->v[j - 1]);
    }
}

static double transposed_bytes(const side *s) { return s->transpose ? (double)hlo_shape_total_bytes(s->x->shape) : 0; }

static void settle_both(side *lhs, side *rhs)
{
  side l = *lhs, r = *rhs;

  sort_pairs(&l.contract, &r.contract);
  settle(&l, false);
  settle(&r, true);
  if (l.transpose || r.transpose) { /* the other memory order may suit both operands better */
    side l2 = *lhs, r2 = *rhs;
    sort_pairs(&r2.contract, &l2.contract);
    settle(&l2, false);
    settle(&r2, true);
    if (transposed_bytes(&l2) + transposed_bytes(&r2) < transposed_bytes(&l) + transposed_bytes(&r)) {
      l = l2;
      r = r2;
    }
  }
  *lhs = l;
  *rhs = r;
}

static bool is_canonical(const hlo_instr *dot)
{
  const hlo_dot_attrs *a = dot->u.dot;
  int batch = a->lhs_batch.count, rank = batch + 2;

  return batch <= 1 && dot->operands[0]->shape->rank == rank && dot->operands[1]->shape->rank == rank &&
         a->lhs_contracting.count == 1 && (batch == 0 || (a->lhs_batch.v[0] == 0 && a->rhs_batch.v[0] == 0)) &&
         dot->operands[0]->op != HLO_TRANSPOSE && dot->operands[1]->op != HLO_TRANSPOSE;
}

/* The operand as [B, free, K] or [B, K, free]; *contracting receives the position of K. */
static hlo_instr *shaped(pass_build *b, const side *s, int64_t *contracting)
{
  dims_list order = order_of(s, s->contract_first);
  hlo_instr *x = s->transpose ? pb_transpose(b, s->x, order.v) : s->x;
  const hlo_shape *shape = s->x->shape;
  int64_t dims[3], free = size_of(shape, &s->free), k = size_of(shape, &s->contract);
  int rank = 0;

  if (s->batch.count) dims[rank++] = size_of(shape, &s->batch);
  *contracting = rank + !s->contract_first;
  dims[rank++] = s->contract_first ? k : free;
  dims[rank++] = s->contract_first ? free : k;
  return pb_reshape(b, x, rank, dims);
}

/* `dot` with other attributes and operands, and a result of another shape. */
static hlo_instr *changed_dot(pass_build *b, const hlo_instr *dot, hlo_dot_attrs *attrs, const hlo_shape *shape,
                              hlo_instr *const operands[2])
{
  hlo_instr *result = pb_instr(b, HLO_DOT, shape, 2, operands);

  if (result) {
    result->u.dot = attrs;
    result->extra = dot->extra;
    result->metadata = dot->metadata;
  }
  return result;
}

static weft_status *canonicalize(hlo_instr *dot, bool *changed);

static double bytes_of(const hlo_instr *x) { return (double)hlo_shape_total_bytes(x->shape); }

/* The number of free dimensions that lie in memory before the contracting ones; 0 if the operand does not have the
 * form [A, K, C] with contiguous K, apart from dimensions of 1. */
static int free_before_contracting(const side *s)
{
  const hlo_shape *shape = s->x->shape;
  dims_list order = {0};
  int before = 0;

  while (before < s->free.count && s->free.v[before] < s->contract.v[0]) before++;
  for (int i = 0; i < before; i++) order.v[order.count++] = s->free.v[i];
  append(&order, &s->contract);
  for (int i = before; i < s->free.count; i++) order.v[order.count++] = s->free.v[i];
  return is_in_memory_order(shape, &order) ? before : 0;
}

/* The dot with the dimensions A of `big` as batch dimensions, and `small` repeated along them. The result's
 * dimensions are A, then those of lhs, then those of rhs; if big is the rhs, A moves back behind those of lhs. */
static weft_status *batch_middle(hlo_instr *dot, const side *big, const side *small, bool big_is_lhs, int count,
                                 bool *changed)
{
  weft_arena *arena = &dot->parent->module->arena;
  const hlo_shape *other = small->x->shape;
  int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK], iota[HLO_MAX_RANK], contract[HLO_MAX_RANK], perm[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(dot);
  hlo_dot_attrs *attrs = weft_arena_memdup(arena, dot->u.dot, sizeof *attrs);
  hlo_instr *repeated, *operands[2], *result;
  int rank = 0;

  WEFT_TRY_ALLOC(attrs);
  for (int i = 0; i < count; i++) {
    iota[i] = i;
    dims[i] = big->x->shape->dims[big->free.v[i]];
  }
  for (int i = 0; i < other->rank; i++) {
    map[i] = count + i;
    dims[count + i] = other->dims[i];
  }
  for (int i = 0; i < small->contract.count; i++) contract[i] = count + small->contract.v[i];
  repeated = pb_broadcast(&b, small->x, count + other->rank, dims, map);
  operands[!big_is_lhs] = big->x;
  operands[big_is_lhs] = repeated;
  attrs->lhs_batch = pb_ints(&b, count, big_is_lhs ? big->free.v : iota);
  attrs->rhs_batch = pb_ints(&b, count, big_is_lhs ? iota : big->free.v);
  attrs->lhs_contracting = pb_ints(&b, big->contract.count, big_is_lhs ? big->contract.v : contract);
  attrs->rhs_contracting = pb_ints(&b, big->contract.count, big_is_lhs ? contract : big->contract.v);
  /* the number of free dimensions of lhs in the result, if big is the rhs: A goes behind these */
  int first_free = small->free.count;
  for (int i = 0; i < dot->shape->rank; i++) {
    perm[i] = big_is_lhs ? i : i < first_free ? count + i : i < first_free + count ? i - first_free : i;
    dims[rank++] = 0;
  }
  for (int i = 0; i < rank; i++) dims[perm[i]] = dot->shape->dims[i];
  result = changed_dot(&b, dot, attrs, hlo_shape_array(arena, dot->shape->type, rank, dims), operands);
  *changed = true;
  WEFT_TRY(pass_build_replace(&b, dot, pb_transpose(&b, result, perm)));
  return canonicalize(result, changed);
}

static weft_status *canonicalize(hlo_instr *dot, bool *changed)
{
  weft_arena *arena = &dot->parent->module->arena;
  hlo_dot_attrs *attrs;
  pass_build b = PASS_BUILD_AT(dot);
  hlo_instr *operands[2], *result;
  int64_t lhs_k, rhs_k, zero = 0, dims[3];
  int rank = 0, has_batch = dot->u.dot->lhs_batch.count > 0;
  side lhs = sort_dims(dot->operands[0], dot->u.dot->lhs_batch, dot->u.dot->lhs_contracting);
  side rhs = sort_dims(dot->operands[1], dot->u.dot->rhs_batch, dot->u.dot->rhs_contracting);

  if (dot->u.dot->sparsity || dot->operand_count != 2 || is_canonical(dot)) return NULL;
  settle_both(&lhs, &rhs);
  for (int i = 0; i < 2 && !has_batch; i++) {
    const side *big = i ? &lhs : &rhs, *small = i ? &rhs : &lhs;
    int count = big->transpose && big->contract.count && !small->transpose ? free_before_contracting(big) : 0;
    double repeats = 1;
    for (int k = 0; k < count; k++) repeats *= (double)big->x->shape->dims[big->free.v[k]];
    if (count && small->x->shape->rank + count <= HLO_MAX_RANK &&
        bytes_of(small->x) * repeats + 2 * bytes_of(dot) < bytes_of(big->x))
      return batch_middle(dot, big, small, i, count, changed);
  }
  if (has_batch) dims[rank++] = size_of(lhs.x->shape, &lhs.batch);
  dims[rank++] = size_of(lhs.x->shape, &lhs.free);
  dims[rank++] = size_of(rhs.x->shape, &rhs.free);
  operands[0] = shaped(&b, &lhs, &lhs_k);
  operands[1] = shaped(&b, &rhs, &rhs_k);
  if (!b.error && operands[0] == dot->operands[0] && operands[1] == dot->operands[1] && rank == dot->shape->rank)
    return NULL; /* it is canonical already: its transposes do not fold */

  attrs = weft_arena_memdup(arena, dot->u.dot, sizeof *attrs);
  WEFT_TRY_ALLOC(attrs);
  attrs->lhs_batch = attrs->rhs_batch = pb_ints(&b, has_batch, &zero);
  attrs->lhs_contracting = pb_ints(&b, 1, &lhs_k);
  attrs->rhs_contracting = pb_ints(&b, 1, &rhs_k);
  result = changed_dot(&b, dot, attrs, hlo_shape_array(arena, dot->shape->type, rank, dims), operands);
  *changed = true;
  return pass_build_replace(&b, dot, pb_reshape_like(&b, result, dot->shape));
}

/* Is it a dot whose result nothing but one instruction reads? */
static bool is_read_by_one(const hlo_instr *dot)
{
  return dot->op == HLO_DOT && dot->user_count == 1 && dot != dot->parent->root && !dot->u.dot->sparsity;
}

/* The innermost dimension of more than one element. */
static int innermost(const hlo_shape *shape)
{
  int d = shape->rank - 1;

  while (d > 0 && shape->dims[d] == 1) d--;
  return d;
}

/* Does the library of a CPU read the right operand as it is stored? On the left it could not (narrow-weights). */
static bool has_stored_weights(const pass_ctx *ctx, const hlo_instr *dot)
{
  gen_stored stored;
  int64_t lhs_bytes = (int64_t)weft_dtype_bytes(dot->operands[0]->shape->type),
          rhs_bytes = (int64_t)weft_dtype_bytes(dot->operands[1]->shape->type);

  return pass_target(ctx)->block_threads <= 1 &&
         (rhs_bytes < lhs_bytes ||
          gen_dot_reads_stored(pass_target(ctx), dot, true, ctx->options->rounds_narrow, &stored));
}

/* The dot that gives `transpose` directly, or by a cheaper transpose: its operands are swapped. */
static weft_status *absorb_transpose(hlo_instr *transpose, const pass_ctx *ctx, bool *changed)
{
  weft_arena *arena = &transpose->parent->module->arena;
  hlo_instr *dot = transpose->operands[0], *operands[2], *result;
  pass_build b = PASS_BUILD_AT(transpose);
  hlo_dot_attrs *attrs;
  int64_t perm[HLO_MAX_RANK], dims[HLO_MAX_RANK];

  if (!is_read_by_one(dot) || has_stored_weights(ctx, dot)) return NULL;
  const hlo_dot_attrs *a = dot->u.dot;
  int batch = a->lhs_batch.count, rank = dot->shape->rank;
  int lhs_free = dot->operands[0]->shape->rank - batch - a->lhs_contracting.count, rhs_free = rank - batch - lhs_free;
  bool absorbs = true;
  for (int i = 0; i < rank; i++) { /* dimension dims.v[i] of the result is perm[i] of the swapped dot's */
    int64_t d = transpose->dims.v[i];
    perm[i] = d < batch ? d : d < batch + lhs_free ? d + rhs_free : d - lhs_free;
    dims[perm[i]] = dot->shape->dims[d];
    absorbs = absorbs && perm[i] == i;
  }
  const hlo_shape *swapped = hlo_shape_array(arena, dot->shape->type, rank, dims);
  WEFT_TRY_ALLOC(swapped);
  int last = innermost(transpose->shape);
  if (!absorbs &&
      (batch == 0 || rank == 0 || transpose->dims.v[last] == innermost(dot->shape) || perm[last] != innermost(swapped)))
    return NULL;
  attrs = weft_arena_memdup(arena, a, sizeof *attrs);
  WEFT_TRY_ALLOC(attrs);
  attrs->lhs_batch = a->rhs_batch;
  attrs->rhs_batch = a->lhs_batch;
  attrs->lhs_contracting = a->rhs_contracting;
  attrs->rhs_contracting = a->lhs_contracting;
  if (a->precision_count == 2) {
    attrs->precision =
      weft_arena_memdup(arena, (hlo_precision[]){a->precision[1], a->precision[0]}, 2 * sizeof(hlo_precision));
    WEFT_TRY_ALLOC(attrs->precision);
  }
  operands[0] = dot->operands[1];
  operands[1] = dot->operands[0];
  result = changed_dot(&b, dot, attrs, swapped, operands);
  *changed = true;
  return pass_build_replace(&b, transpose, absorbs ? result : pb_transpose(&b, result, perm));
}

/* A small operand with its dimensions in the order batch, free, contracting, each in the order in which `wanted` (the
 * transpose's dimensions, of which `first` belongs to the first free one) has them in the result. `*batches` and
 * `*sums` become the new places of the batch and contracting dimensions. */
static hlo_instr *in_order(pass_build *b, hlo_instr *x, const int64_t *wanted, int first, hlo_ints *batches,
                           hlo_ints *sums)
{
  side s = sort_dims(x, *batches, *sums);
  int64_t perm[HLO_MAX_RANK], iota[HLO_MAX_RANK];
  int count = 0;

  for (int i = 0; i < s.batch.count; i++) perm[count++] = s.batch.v[wanted[i]];
  for (int i = 0; i < s.free.count; i++) perm[count++] = s.free.v[wanted[first + i] - first];
  for (int i = 0; i < s.contract.count; i++) perm[count++] = s.contract.v[i];
  for (int i = 0; i < count; i++) iota[i] = i;
  *batches = pb_ints(b, s.batch.count, iota);
  *sums = pb_ints(b, s.contract.count, iota + s.batch.count + s.free.count);
  return pb_transpose(b, x, perm);
}

/* The dot that gives `transpose` directly, of small operands that are transposed: where the dimensions of the batch, of
 * lhs and of rhs stay together, each in another order (grouped heads of attention: the scores of [queries, groups]
 * become those of [groups, queries]). */
static weft_status *transpose_operands(hlo_instr *transpose, bool *changed)
{
  weft_arena *arena = &transpose->parent->module->arena;
  hlo_instr *dot = transpose->operands[0], *operands[2], *result;
  pass_build b = PASS_BUILD_AT(transpose);
  hlo_dot_attrs *attrs;
  bool moved[3] = {false};

  if (!is_read_by_one(dot)) return NULL;
  const hlo_dot_attrs *a = dot->u.dot;
  int batch = a->lhs_batch.count, rank = dot->shape->rank;
  int rhs_first = dot->operands[0]->shape->rank - a->lhs_contracting.count, first[] = {batch, rhs_first};
  for (int i = 0; i < rank; i++) {
    int64_t d = transpose->dims.v[i];
    int group = i < batch ? 0 : i < rhs_first ? 1 : 2;
    if (group != (d < batch ? 0 : d < rhs_first ? 1 : 2)) return NULL;
    moved[group] = moved[group] || d != i;
  }
  for (int s = 0; s < 2; s++)
    if ((moved[0] || moved[1 + s]) && 2 * bytes_of(dot->operands[s]) > bytes_of(dot)) return NULL;
  attrs = weft_arena_memdup(arena, a, sizeof *attrs);
  WEFT_TRY_ALLOC(attrs);
  hlo_ints *batches[] = {&attrs->lhs_batch, &attrs->rhs_batch};
  hlo_ints *sums[] = {&attrs->lhs_contracting, &attrs->rhs_contracting};
  for (int s = 0; s < 2; s++)
    operands[s] = moved[0] || moved[1 + s]
                    ? in_order(&b, dot->operands[s], transpose->dims.v, first[s], batches[s], sums[s])
                    : dot->operands[s];
  result = changed_dot(&b, dot, attrs, transpose->shape, operands);
  *changed = true;
  return pass_build_replace(&b, transpose, result);
}

static void sort_dims_list(dims_list *list)
{
  for (int i = 1; i < list->count; i++)
    for (int j = i; j > 0 && list->v[j - 1] > list->v[j]; j--) WEFT_SWAP(list->v[j], list->v[j - 1]);
}

/* Could a product address x, of which `batch` and `sums` are given, with the others in the order of memory? */
static bool fits_in_order(const hlo_instr *x, const dims_list *batch, dims_list sums, dims_list free)
{
  side s = {.x = (hlo_instr *)x, .batch = *batch, .contract = sums, .free = free};

  sort_dims_list(&s.contract);
  return fits(&s, false);
}

/* The dot reads its large operand `number`, a transpose, without that transpose; the result is transposed instead. */
static weft_status *read_untransposed(hlo_instr *dot, int number, bool *changed)
{
  weft_arena *arena = &dot->parent->module->arena;
  hlo_instr *turned = dot->operands[number], *other = dot->operands[1 - number], *operands[2], *result;
  pass_build b = PASS_BUILD_AT(dot);
  const hlo_dot_attrs *a = dot->u.dot;
  int64_t dims[HLO_MAX_RANK], perm[HLO_MAX_RANK];

  if (turned->op != HLO_TRANSPOSE || a->sparsity || bytes_of(turned) < 2 * (bytes_of(dot) + bytes_of(other)))
    return NULL;
  side s = sort_dims(turned, number ? a->rhs_batch : a->lhs_batch, number ? a->rhs_contracting : a->lhs_contracting);
  dims_list *lists[] = {&s.batch, &s.contract, &s.free};
  for (int l = 0; l < 3; l++)
    for (int i = 0; i < lists[l]->count; i++) lists[l]->v[i] = turned->dims.v[lists[l]->v[i]];
  dims_list free = s.free;
  sort_dims_list(&free);
  if (!fits_in_order(turned->operands[0], &s.batch, s.contract, free)) return NULL;
  int rank = dot->shape->rank, first = number ? rank - s.free.count : s.batch.count;
  for (int i = 0; i < rank; i++) dims[i] = dot->shape->dims[perm[i] = i];
  for (int i = 0; i < s.free.count; i++) {
    int place = 0;
    while (free.v[place] != s.free.v[i]) place++;
    perm[first + i] = first + place;
    dims[first + place] = dot->shape->dims[first + i];
  }
  const hlo_shape *shape = hlo_shape_array(arena, dot->shape->type, rank, dims);
  hlo_dot_attrs *attrs = weft_arena_memdup(arena, a, sizeof *attrs);
  WEFT_TRY_ALLOC(shape && attrs);
  *(number ? &attrs->rhs_batch : &attrs->lhs_batch) = pb_ints(&b, s.batch.count, s.batch.v);
  *(number ? &attrs->rhs_contracting : &attrs->lhs_contracting) = pb_ints(&b, s.contract.count, s.contract.v);
  operands[number] = turned->operands[0];
  operands[1 - number] = other;
  result = changed_dot(&b, dot, attrs, shape, operands);
  *changed = true;
  return pass_build_replace(&b, dot, pb_transpose(&b, result, perm));
}

/* A transpose of a transpose becomes one, which a dot may absorb. */
static weft_status *merge_transposes(hlo_instr *transpose, bool *changed)
{
  hlo_instr *inner = transpose->operands[0];
  pass_build b = PASS_BUILD_AT(transpose);
  int64_t perm[HLO_MAX_RANK];

  if (inner->op != HLO_TRANSPOSE || pass_has_control_edges(transpose) || pass_has_control_edges(inner)) return NULL;
  for (int i = 0; i < transpose->shape->rank; i++) perm[i] = inner->dims.v[transpose->dims.v[i]];
  *changed = true;
  WEFT_TRY(pass_build_replace(&b, transpose, pb_transpose(&b, inner->operands[0], perm)));
  return hlo_is_dead(inner) ? hlo_remove(inner) : NULL;
}

static weft_status *dot_canonicalizer_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  HLO_FOREACH_COMPUTATION(comp, module) {
    HLO_FOREACH(instr, comp)
      if (instr->op == HLO_TRANSPOSE) WEFT_TRY(merge_transposes(instr, changed));
    HLO_FOREACH(instr, comp)
      if (instr->op == HLO_TRANSPOSE) WEFT_TRY(absorb_transpose(instr, ctx, changed));
    HLO_FOREACH(instr, comp)
      if (instr->op == HLO_TRANSPOSE) WEFT_TRY(transpose_operands(instr, changed));
    for (int i = 0; i < 2; i++)
      HLO_FOREACH(instr, comp)
        if (instr->op == HLO_DOT) WEFT_TRY(read_untransposed(instr, i, changed));
    HLO_FOREACH(instr, comp)
      if (instr->op == HLO_DOT) WEFT_TRY(canonicalize(instr, changed));
  }
  return NULL;
}
const hlo_pass pass_dot_canonicalizer = {"dot-canonicalizer", dot_canonicalizer_run};
