/* hlo/eval_reduce.c -- Operations that call a computation for each element: map, the reductions, scatter, scan. */
#include <config.h>

#include <string.h>

#include "hlo/eval_internal.h"

/* ---- folds ------------------------------------------------------------------------------------------------------- */

typedef struct { _Alignas(16) char bytes[16]; } slot;

/* A reduction acc = fn(acc, value) of n values at once.  A sum of floats (n = 1), or a product of floats narrower
 * than f32, is kept wide and rounded once at its end, so that a sum does not depend on the order, which HLO leaves
 * open.  With stepwise_sums every step is rounded as in kernels: to f32 for floats narrower than f32, else to the
 * type; in windows always to the type. */
typedef struct fold {
  eval_fn *fn; /* borrowed */
  int n;
  hlo_opcode op; /* HLO_ADD or HLO_MULTIPLY: kept wide in `sum`; HLO_OPCODE_COUNT: computed by fn */
  bool in_f32;
  weft_dtype sum_type;
  eval_scalar sum;
  slot *acc;
  const void **args;   /* accumulators, then values */
  void **results;      /* the accumulators */
} fold;

static weft_status *fold_init(fold *f, eval_ctx *ctx, eval_fn *fn, int n, weft_dtype type, bool of_window)
{
  f->fn = fn;
  f->n = n;
  bool is_narrow = weft_dtype_is_float(type) && weft_dtype_bits(type) < 32;
  hlo_opcode op = n == 1 ? eval_fn_float_op(fn) : HLO_OPCODE_COUNT;

  if (of_window && ctx->options->stepwise_sums) is_narrow = false;
  if (op == HLO_MULTIPLY ? !is_narrow : op == HLO_ADD ? ctx->options->stepwise_sums && !is_narrow : true)
    op = HLO_OPCODE_COUNT;
  f->op = op;
  f->in_f32 = ctx->options->stepwise_sums;
  f->sum_type = type;
  f->acc = WEFT_ARENA_ARRAY(ctx->arena, slot, n);
  f->args = WEFT_ARENA_ARRAY(ctx->arena, const void *, 2 * n);
  f->results = WEFT_ARENA_ARRAY(ctx->arena, void *, n);
  WEFT_TRY_ALLOC(f->acc && f->args && f->results);
  for (int i = 0; i < n; i++) f->args[i] = f->results[i] = f->acc[i].bytes;
  return NULL;
}

static void fold_begin(fold *f, const hlo_literal *const *inits)
{
  for (int i = 0; i < f->n; i++) memcpy(f->acc[i].bytes, inits[i]->data, weft_dtype_bytes(inits[i]->shape->type));
  if (f->op != HLO_OPCODE_COUNT) f->sum = eval_load(f->sum_type, f->acc[0].bytes);
}

/* Combines element `offset` of each input with the accumulators. */
static weft_status *fold_add(fold *f, const hlo_literal *const *inputs, int64_t offset)
{
  if (f->op != HLO_OPCODE_COUNT) {
    eval_scalar x = eval_load(f->sum_type, eval_at(inputs[0], offset));
    f->sum.re = f->op == HLO_ADD ? f->sum.re + x.re : f->sum.re * x.re;
    f->sum.im += x.im;
    if (f->in_f32) f->sum.re = (float)f->sum.re;
    return NULL;
  }
  for (int i = 0; i < f->n; i++) f->args[f->n + i] = eval_at(inputs[i], offset);
  return eval_fn_call(f->fn, f->args, f->results);
}

static void fold_end(fold *f, hlo_literal *const *results, int64_t offset)
{
  if (f->op != HLO_OPCODE_COUNT) eval_store(f->sum_type, f->acc[0].bytes, f->sum);
  for (int i = 0; i < f->n; i++)
    memcpy(eval_at(results[i], offset), f->acc[i].bytes, weft_dtype_bytes(results[i]->shape->type));
}

/* Makes the results of an operation: one array, or a tuple of arrays. */
static weft_status *make_results(eval_ctx *ctx, const hlo_shape *shape, hlo_literal ***out_arrays,
                                 const hlo_literal **out)
{
  bool is_tuple = hlo_shape_is_tuple(shape);
  int n = is_tuple ? shape->rank : 1;
  hlo_literal **arrays = WEFT_ARENA_ARRAY(ctx->arena, hlo_literal *, n);

  WEFT_TRY_ALLOC(arrays);
  for (int i = 0; i < n; i++) WEFT_TRY(eval_result(ctx, is_tuple ? shape->elements[i] : shape, &arrays[i]));
  *out_arrays = arrays;
  *out = arrays[0];
  return is_tuple ? eval_result_tuple(ctx, shape, (const hlo_literal **)arrays, out) : NULL;
}

/* ---- map and reduce ---------------------------------------------------------------------------------------------- */

weft_status *eval_map(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                      const hlo_literal **out)
{
  WEFT_AUTO(eval_fn) fn = NULL;
  const void **args = WEFT_ARENA_ARRAY(ctx->arena, const void *, instr->operand_count);
  hlo_literal *result;
  int64_t count;

  WEFT_TRY_ALLOC(args);
  WEFT_TRY(eval_fn_new(ctx, instr->called[0], &fn));
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  count = hlo_shape_elems(result->shape);
  for (int64_t k = 0; k < count; k++) {
    void *to = eval_at(result, k);
    for (int i = 0; i < instr->operand_count; i++) args[i] = eval_at(operands[i], k);
    WEFT_TRY(eval_fn_call(fn, args, &to));
  }
  *out = result;
  return NULL;
}

weft_status *eval_reduce(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                         const hlo_literal **out)
{
  WEFT_AUTO(eval_fn) fn = NULL;
  const hlo_shape *in = operands[0]->shape;
  int n = instr->operand_count / 2, kept = 0, folded = 0, kept_dim[HLO_MAX_RANK], folded_dim[HLO_MAX_RANK];
  int64_t kept_size[HLO_MAX_RANK], folded_size[HLO_MAX_RANK], outer[HLO_MAX_RANK] = {0}, at[HLO_MAX_RANK], k = 0;
  hlo_literal **results;
  fold f;

  for (int d = 0; d < in->rank; d++) {
    if (eval_contains(instr->dims, d)) {
      folded_dim[folded] = d;
      folded_size[folded++] = in->dims[d];
    } else {
      kept_dim[kept] = d;
      kept_size[kept++] = in->dims[d];
    }
  }
  WEFT_TRY(make_results(ctx, instr->shape, &results, out));
  WEFT_TRY(eval_fn_new(ctx, instr->called[0], &fn));
  WEFT_TRY(fold_init(&f, ctx, fn, n, in->type, false));
  if (hlo_shape_elems(results[0]->shape) == 0) return NULL;
  do {
    int64_t inner[HLO_MAX_RANK] = {0};
    fold_begin(&f, operands + n);
    if (hlo_shape_elems(in) > 0) {
      do {
        for (int d = 0; d < kept; d++) at[kept_dim[d]] = outer[d];
        for (int d = 0; d < folded; d++) at[folded_dim[d]] = inner[d];
        WEFT_TRY(fold_add(&f, operands, eval_offset(in->rank, in->dims, at)));
      } while (eval_next(folded, folded_size, inner));
    }
    fold_end(&f, results, k++);
    WEFT_TRY(eval_check_deadline(ctx));
  } while (eval_next(kept, kept_size, outer));
  return NULL;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* The index in the base array (without dilation) of place `inner` of the window at `outer`; false in padding and
 * holes. */
static bool window_position(const hlo_window *w, const hlo_shape *base, const int64_t *outer, const int64_t *inner,
                            int64_t *at)
{
  for (int d = 0; d < w->rank; d++) {
    const hlo_window_dim *dim = &w->dims[d];
    int64_t x = outer[d] * dim->stride + inner[d] * dim->window_dilation - dim->pad_low;
    if (x < 0 || x % dim->base_dilation != 0) return false;
    at[d] = x / dim->base_dilation;
    if (at[d] >= base->dims[d]) return false;
  }
  return true;
}

static void window_sizes(const hlo_window *w, int64_t *sizes)
{
  for (int d = 0; d < w->rank; d++) sizes[d] = w->dims[d].size;
}

weft_status *eval_reduce_window(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                const hlo_literal **out)
{
  WEFT_AUTO(eval_fn) fn = NULL;
  const hlo_shape *in = operands[0]->shape;
  const hlo_window *w = instr->u.window;
  int64_t sizes[HLO_MAX_RANK], outer[HLO_MAX_RANK] = {0}, at[HLO_MAX_RANK], k = 0;
  int n = instr->operand_count / 2;
  hlo_literal **results;
  fold f;

  window_sizes(w, sizes);
  WEFT_TRY(make_results(ctx, instr->shape, &results, out));
  WEFT_TRY(eval_fn_new(ctx, instr->called[0], &fn));
  WEFT_TRY(fold_init(&f, ctx, fn, n, in->type, true));
  if (hlo_shape_elems(results[0]->shape) == 0) return NULL;
  do {
    int64_t inner[HLO_MAX_RANK] = {0};
    fold_begin(&f, operands + n);
    do {
      if (window_position(w, in, outer, inner, at))
        WEFT_TRY(fold_add(&f, operands, eval_offset(in->rank, in->dims, at)));
    } while (eval_next(in->rank, sizes, inner));
    fold_end(&f, results, k++);
    WEFT_TRY(eval_check_deadline(ctx));
  } while (eval_next(in->rank, results[0]->shape->dims, outer));
  return NULL;
}

/* Each source element goes to the place in its window that `select` prefers; there `scatter` combines it. */
weft_status *eval_select_and_scatter(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  WEFT_AUTO(eval_fn) select = NULL;
  WEFT_AUTO(eval_fn) scatter = NULL;
  const hlo_literal *in = operands[0], *source = operands[1], *init = operands[2];
  const hlo_window *w = instr->u.window;
  int64_t sizes[HLO_MAX_RANK], outer[HLO_MAX_RANK] = {0}, at[HLO_MAX_RANK], k = 0, count;
  hlo_literal *result;

  window_sizes(w, sizes);
  WEFT_TRY(eval_fn_new(ctx, instr->called[0], &select));
  WEFT_TRY(eval_fn_new(ctx, instr->called[1], &scatter));
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  count = hlo_shape_elems(result->shape);
  for (int64_t i = 0; i < count; i++) memcpy(eval_at(result, i), init->data, weft_dtype_bytes(result->shape->type));
  if (hlo_shape_elems(source->shape) == 0 || count == 0) return NULL;
  do {
    int64_t inner[HLO_MAX_RANK] = {0}, chosen = -1;
    do {
      uint8_t keep = 1;
      void *keep_at = &keep;
      if (!window_position(w, in->shape, outer, inner, at)) continue;
      int64_t candidate = eval_offset(in->shape->rank, in->shape->dims, at);
      if (chosen >= 0)
        WEFT_TRY(eval_fn_call(select, (const void *[]){eval_at(in, chosen), eval_at(in, candidate)}, &keep_at));
      if (chosen < 0 || !keep) chosen = candidate;
    } while (eval_next(w->rank, sizes, inner));
    if (chosen >= 0) {
      void *to = eval_at(result, chosen);
      WEFT_TRY(eval_fn_call(scatter, (const void *[]){to, eval_at(source, k)}, &to));
    }
    k++;
  } while (eval_next(w->rank, source->shape->dims, outer));
  return NULL;
}

/* ---- scatter ----------------------------------------------------------------------------------------------------- */

/* The index in the operand of update element `idx`; false if the window does not lie inside as a whole.  XLA then
 * skips the whole window; the StableHLO specification skips single elements. */
static bool scatter_position(const hlo_scatter_attrs *s, const hlo_literal *indices, const hlo_shape *operand,
                             const hlo_shape *updates, const int64_t *idx, int64_t *to)
{
  int64_t at[HLO_MAX_RANK + 1] = {0}, start[HLO_MAX_RANK] = {0};
  int batch = 0, window = 0;

  for (int d = 0; d < updates->rank; d++) {
    if (eval_contains(s->update_window_dims, d)) continue;
    if (batch == s->index_vector_dim) batch++;
    at[batch++] = idx[d];
  }
  for (int i = 0; i < s->input_batching_dims.count; i++)
    start[s->input_batching_dims.v[i]] = at[s->scatter_indices_batching_dims.v[i]];
  for (int i = 0; i < s->scatter_dims_to_operand_dims.count; i++) {
    at[s->index_vector_dim] = i;
    int64_t value = hlo_literal_get_s64(indices, eval_offset(indices->shape->rank, indices->shape->dims, at));
    start[s->scatter_dims_to_operand_dims.v[i]] = value;
  }
  for (int d = 0; d < operand->rank; d++) {
    bool is_point = eval_contains(s->inserted_window_dims, d) || eval_contains(s->input_batching_dims, d);
    int64_t update_dim = is_point ? 0 : s->update_window_dims.v[window++];
    int64_t size = is_point ? 1 : updates->dims[update_dim];
    if (start[d] < 0 || start[d] > operand->dims[d] - size) return false;
    to[d] = start[d] + (is_point ? 0 : idx[update_dim]);
  }
  return true;
}

weft_status *eval_scatter(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                          const hlo_literal **out)
{
  WEFT_AUTO(eval_fn) fn = NULL;
  int n = (instr->operand_count - 1) / 2;
  const hlo_literal *indices = operands[n], *const *updates = operands + n + 1;
  const hlo_shape *shape = operands[0]->shape, *update_shape = updates[0]->shape;
  int64_t idx[HLO_MAX_RANK] = {0}, to[HLO_MAX_RANK], k = 0;
  const void **args = WEFT_ARENA_ARRAY(ctx->arena, const void *, 2 * n);
  void **old = WEFT_ARENA_ARRAY(ctx->arena, void *, n);
  hlo_literal **results;

  WEFT_TRY_ALLOC(args && old);
  WEFT_TRY(eval_fn_new(ctx, instr->called[0], &fn));
  WEFT_TRY(make_results(ctx, instr->shape, &results, out));
  for (int i = 0; i < n; i++) memcpy(results[i]->data, operands[i]->data, (size_t)hlo_shape_bytes(operands[i]->shape));
  if (hlo_shape_elems(update_shape) == 0) return NULL;
  do {
    if (scatter_position(instr->u.scatter, indices, shape, update_shape, idx, to)) {
      int64_t offset = eval_offset(shape->rank, shape->dims, to);
      for (int i = 0; i < n; i++) {
        args[i] = old[i] = eval_at(results[i], offset);
        args[n + i] = eval_at(updates[i], k);
      }
      WEFT_TRY(eval_fn_call(fn, args, old));
    }
    k++;
  } while (eval_next(update_shape->rank, update_shape->dims, idx));
  return NULL;
}

/* ---- scan -------------------------------------------------------------------------------------------------------- */

/* Copies slice `turn` along dimension d between a whole array and an array in which that dimension is missing or of
 * size 1. */
static void copy_slice(const hlo_literal *whole, int64_t d, int64_t turn, const hlo_literal *slice, bool out_of_whole)
{
  const hlo_shape *s = whole->shape;
  int64_t outer = 1, inner_bytes = (int64_t)weft_dtype_bytes(s->type);

  for (int i = 0; i < d; i++) outer *= s->dims[i];
  for (int i = (int)d + 1; i < s->rank; i++) inner_bytes *= s->dims[i];
  for (int64_t o = 0; o < outer; o++) {
    char *in_whole = (char *)whole->data + (o * s->dims[d] + turn) * inner_bytes;
    char *in_slice = (char *)slice->data + o * inner_bytes;
    memcpy(out_of_whole ? in_slice : in_whole, out_of_whole ? in_whole : in_slice, (size_t)inner_bytes);
  }
}

/* (ys..., carries) = fn(slices..., carries...) along dimension d. */
weft_status *eval_scan(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                       const hlo_literal **out)
{
  const hlo_computation *comp = instr->called[0];
  int carries = (int)instr->u.scan.num_carries, inputs = instr->operand_count - carries;
  int outputs = (hlo_shape_is_tuple(instr->shape) ? instr->shape->rank : 1) - carries;
  bool is_tuple = hlo_shape_is_tuple(instr->shape);
  const hlo_shape *counted = inputs > 0 ? operands[0]->shape : is_tuple ? instr->shape->elements[0] : instr->shape;
  int64_t d = instr->dims.v[0], turns = counted->dims[d];
  const hlo_literal **args = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, instr->operand_count);
  hlo_literal **results;

  WEFT_TRY_ALLOC(args);
  WEFT_TRY(make_results(ctx, instr->shape, &results, out));
  for (int i = inputs; i < instr->operand_count; i++) args[i] = operands[i];
  for (int64_t t = 0; t < turns; t++) {
    int64_t turn = instr->u.scan.is_reverse ? turns - 1 - t : t;
    const hlo_literal *value;
    for (int i = 0; i < inputs; i++) {
      hlo_literal *slice;
      WEFT_TRY(eval_result(ctx, comp->params[i]->shape, &slice));
      copy_slice(operands[i], d, turn, slice, true);
      args[i] = slice;
    }
    WEFT_TRY(eval_computation(ctx, comp, args, &value));
    const hlo_literal *const *values = hlo_shape_is_tuple(value->shape) ? value->elements : &value;
    for (int i = 0; i < outputs; i++) copy_slice(results[i], d, turn, values[i], false);
    for (int i = 0; i < carries; i++) args[inputs + i] = values[outputs + i];
    WEFT_TRY(eval_check_deadline(ctx));
  }
  for (int i = 0; i < carries; i++)
    memcpy(results[outputs + i]->data, args[inputs + i]->data, (size_t)hlo_shape_bytes(args[inputs + i]->shape));
  return NULL;
}

/* ---- sort and top-k ---------------------------------------------------------------------------------------------- */

/* What a merge sort of the positions 0..n-1 needs to compare two of them. */
typedef struct order {
  weft_status *(*before)(const struct order *o, int64_t a, int64_t b, bool *out);
  const hlo_literal *const *arrays;
  int array_count;
  int64_t base, stride; /* position p is element base + p * stride */
  eval_fn *fn;          /* sort */
  const void **args;
  bool largest;         /* top-k */
} order;

static weft_status *merge_sort(const order *o, int64_t *list, int64_t *spare, int64_t n)
{
  for (int64_t width = 1; width < n; width *= 2) {
    for (int64_t lo = 0; lo < n; lo += 2 * width) {
      int64_t mid = WEFT_MIN(lo + width, n), hi = WEFT_MIN(lo + 2 * width, n), a = lo, b = mid;
      for (int64_t k = lo; k < hi; k++) {
        bool take_b = a == mid;
        /* equal elements: a first, so the sort is stable */
        if (a < mid && b < hi) WEFT_TRY(o->before(o, list[b], list[a], &take_b));
        spare[k] = take_b ? list[b++] : list[a++];
      }
    }
    memcpy(list, spare, (size_t)n * sizeof *list);
  }
  return NULL;
}

static weft_status *before_by_computation(const order *o, int64_t a, int64_t b, bool *out)
{
  uint8_t less = 0;
  void *to = &less;

  for (int i = 0; i < o->array_count; i++) {
    o->args[2 * i] = eval_at(o->arrays[i], o->base + a * o->stride);
    o->args[2 * i + 1] = eval_at(o->arrays[i], o->base + b * o->stride);
  }
  WEFT_TRY(eval_fn_call(o->fn, o->args, &to));
  *out = less;
  return NULL;
}

weft_status *eval_sort(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                       const hlo_literal **out)
{
  WEFT_AUTO(eval_fn) fn = NULL;
  const hlo_shape *shape = operands[0]->shape;
  int64_t d = instr->dims.v[0], n = shape->dims[d], inner = 1, count = hlo_shape_elems(shape);
  int64_t *list = WEFT_ARENA_ARRAY(ctx->arena, int64_t, n), *spare = WEFT_ARENA_ARRAY(ctx->arena, int64_t, n);
  const void **args = WEFT_ARENA_ARRAY(ctx->arena, const void *, 2 * instr->operand_count);
  hlo_literal **results;

  WEFT_TRY_ALLOC(list && spare && args);
  WEFT_TRY(eval_fn_new(ctx, instr->called[0], &fn));
  WEFT_TRY(make_results(ctx, instr->shape, &results, out));
  for (int i = (int)d + 1; i < shape->rank; i++) inner *= shape->dims[i];
  for (int64_t slice = 0; n > 0 && slice < count / n; slice++) {
    order o = {before_by_computation, operands, instr->operand_count, slice / inner * n * inner + slice % inner, inner,
               fn, args, false};
    for (int64_t p = 0; p < n; p++) list[p] = p;
    WEFT_TRY(merge_sort(&o, list, spare, n));
    for (int i = 0; i < instr->operand_count; i++)
      for (int64_t p = 0; p < n; p++)
        memcpy(eval_at(results[i], o.base + p * inner), eval_at(operands[i], o.base + list[p] * inner),
               weft_dtype_bytes(results[i]->shape->type));
    WEFT_TRY(eval_check_deadline(ctx));
  }
  return NULL;
}

static weft_status *before_by_value(const order *o, int64_t a, int64_t b, bool *out)
{
  int c = eval_compare_total(o->arrays[0]->shape->type, eval_at(o->arrays[0], o->base + a),
                             eval_at(o->arrays[0], o->base + b));
  *out = o->largest ? c > 0 : c < 0;
  return NULL;
}

/* The first k elements of each row in total order; equal elements in the order of their positions. */
weft_status *eval_topk(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                       const hlo_literal **out)
{
  const hlo_shape *shape = operands[0]->shape;
  int64_t n = shape->dims[shape->rank - 1], k = instr->u.topk.k, count = hlo_shape_elems(shape);
  int64_t *list = WEFT_ARENA_ARRAY(ctx->arena, int64_t, n), *spare = WEFT_ARENA_ARRAY(ctx->arena, int64_t, n);
  hlo_literal **results;

  WEFT_TRY_ALLOC(list && spare);
  WEFT_TRY(make_results(ctx, instr->shape, &results, out));
  for (int64_t row = 0; n > 0 && row < count / n; row++) {
    order o = {before_by_value, operands, 1, row * n, 1, NULL, NULL, instr->u.topk.largest};
    for (int64_t p = 0; p < n; p++) list[p] = p;
    WEFT_TRY(merge_sort(&o, list, spare, n));
    for (int64_t p = 0; p < k; p++) {
      memcpy(eval_at(results[0], row * k + p), eval_at(operands[0], o.base + list[p]), weft_dtype_bytes(shape->type));
      hlo_literal_set_s64(results[1], row * k + p, list[p]);
    }
  }
  return NULL;
}
