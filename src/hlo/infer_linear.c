/* hlo/infer_linear.c -- shape inference: reductions, windows, linear algebra, sorting, gather and scatter. */
#include <inttypes.h>

#include "hlo/infer_internal.h"

/* The dimensions of a result while they are collected. */
typedef struct dim_list {
  int rank;
  int64_t dims[HLO_MAX_RANK];
  bool dynamic[HLO_MAX_RANK];
} dim_list;

static weft_status *push(const hlo_instr *in, dim_list *list, int64_t size, bool dynamic)
{
  if (list->rank == HLO_MAX_RANK) return INFER_FAIL(in, "the result has rank over %d", HLO_MAX_RANK);
  list->dims[list->rank] = size;
  list->dynamic[list->rank++] = dynamic;
  return NULL;
}

static weft_status *push_dim(const hlo_instr *in, dim_list *list, const hlo_shape *s, int64_t dim)
{
  return push(in, list, s->dims[dim], infer_is_dynamic(s, dim));
}

static weft_status *finish(const hlo_instr *in, weft_dtype type, const dim_list *list, const hlo_shape **out)
{
  return infer_array(in, type, list->rank, list->dims, list->dynamic, out);
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* Checks the N inputs, the N scalar inits and the function (acc..., value...) -> (acc...) of reduce and
 * reduce-window.  Writes N to *out_count. */
static weft_status *need_reducer(const hlo_instr *in, int *out_count)
{
  int n = in->operand_count / 2;
  const hlo_shape *x = infer_operand(in, 0);
  weft_dtype *types = WEFT_ARENA_ARRAY(infer_arena(in), weft_dtype, in->operand_count);

  WEFT_TRY_ALLOC(types);
  if (in->operand_count % 2)
    return INFER_FAIL(in, "%d operands: as many inits as inputs are needed", in->operand_count);
  for (int i = 0; i < n; i++) {
    WEFT_TRY(infer_need_array(in, i));
    WEFT_TRY(infer_need_scalar(in, n + i, WEFT_INVALID));
    if (!hlo_shape_same_dims(x, infer_operand(in, i)))
      return INFER_FAIL(in, "dimensions differ: %s (operand 0), %s (operand %d)", SHAPE_TEXT(x),
                        SHAPE_TEXT(infer_operand(in, i)), i);
    types[i] = infer_operand(in, n + i)->type; /* the accumulator's type is the init's */
    types[n + i] = infer_operand(in, i)->type;
  }
  WEFT_TRY(infer_need_calls(in, 1));
  WEFT_TRY(infer_need_scalar_function(in, 0, 2 * n, types, n, types));
  *out_count = n;
  return NULL;
}

/* Results with the dimensions of `list` and the element types of the inits; a tuple if the function gives a tuple. */
static weft_status *reduced(const hlo_instr *in, int n, const dim_list *list, const hlo_shape **out)
{
  const hlo_shape **elements = WEFT_ARENA_ARRAY(infer_arena(in), const hlo_shape *, n);

  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < n; i++) WEFT_TRY(finish(in, infer_operand(in, n + i)->type, list, &elements[i]));
  if (hlo_shape_is_tuple(in->called[0]->root->shape)) return infer_tuple(in, n, elements, out);
  return infer_one_or_tuple(in, n, elements, out);
}

weft_status *infer_reduce(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);
  dim_list list = {0};
  int n = 0;

  WEFT_TRY(need_reducer(in, &n));
  WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, x->rank));
  for (int d = 0; d < x->rank; d++)
    if (!infer_contains(in->dims, d)) WEFT_TRY(push_dim(in, &list, x, d));
  return reduced(in, n, &list, out);
}

/* The number of window positions in a dimension of that size, after padding and dilation. */
static weft_status *window_positions(const hlo_instr *in, const hlo_window_dim *w, int d, int64_t size, int64_t *out)
{
  int64_t base = 0, window = 0;

  if (w->size < 1 || w->stride < 1 || w->window_dilation < 1 || w->base_dilation < 1)
    return INFER_FAIL(in,
                      "window dimension %d: size %" PRId64 ", stride %" PRId64 ", dilations %" PRId64 " and %" PRId64
                      ": all must be at least 1",
                      d, w->size, w->stride, w->window_dilation, w->base_dilation);
  if ((size > 0 &&
       (__builtin_mul_overflow(size - 1, w->base_dilation, &base) || __builtin_add_overflow(base, 1, &base))) ||
      __builtin_add_overflow(base, w->pad_low, &base) || __builtin_add_overflow(base, w->pad_high, &base) ||
      __builtin_mul_overflow(w->size - 1, w->window_dilation, &window) || __builtin_add_overflow(window, 1, &window))
    return INFER_FAIL(in, "window dimension %d is over 2^63", d);
  *out = base < window ? 0 : (base - window) / w->stride + 1;
  return NULL;
}

static weft_status *windowed(const hlo_instr *in, const hlo_shape *x, const hlo_window *window, dim_list *list)
{
  if (!window || window->rank != x->rank)
    return INFER_FAIL(in, "a window of rank %d over %s", window ? window->rank : 0, SHAPE_TEXT(x));
  for (int d = 0; d < x->rank; d++) {
    int64_t size = 0;
    WEFT_TRY(window_positions(in, &window->dims[d], d, x->dims[d], &size));
    WEFT_TRY(push(in, list, size, infer_is_dynamic(x, d)));
  }
  return NULL;
}

weft_status *infer_reduce_window(const hlo_instr *in, const hlo_shape **out)
{
  dim_list list = {0};
  int n = 0;

  WEFT_TRY(need_reducer(in, &n));
  WEFT_TRY(windowed(in, infer_operand(in, 0), in->u.window, &list));
  return reduced(in, n, &list, out);
}

weft_status *infer_select_and_scatter(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0), *source = infer_operand(in, 1);
  dim_list list = {0};

  for (int i = 0; i < 2; i++) WEFT_TRY(infer_need_array(in, i));
  WEFT_TRY(infer_need_same_type(in, 0, 1));
  WEFT_TRY(infer_need_scalar(in, 2, x->type));
  WEFT_TRY(windowed(in, x, in->u.window, &list));
  if (source->rank != list.rank)
    return INFER_FAIL(in, "the source is %s, expected rank %d", SHAPE_TEXT(source), list.rank);
  for (int d = 0; d < list.rank; d++)
    if (source->dims[d] != list.dims[d])
      return INFER_FAIL(in, "source dimension %d has size %" PRId64 ", the window has %" PRId64 " positions", d,
                        source->dims[d], list.dims[d]);
  WEFT_TRY(infer_need_calls(in, 2));
  WEFT_TRY(infer_need_scalar_function(in, 0, 2, (weft_dtype[]){x->type, x->type}, 1, (weft_dtype[]){WEFT_PRED}));
  WEFT_TRY(infer_need_scalar_function(in, 1, 2, (weft_dtype[]){x->type, x->type}, 1, (weft_dtype[]){x->type}));
  return infer_array(in, x->type, x->rank, x->dims, x->dynamic, out);
}

weft_status *infer_map(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);
  weft_dtype *types = WEFT_ARENA_ARRAY(infer_arena(in), weft_dtype, in->operand_count);

  WEFT_TRY_ALLOC(types);
  for (int i = 0; i < in->operand_count; i++) {
    WEFT_TRY(infer_need_array(in, i));
    if (!hlo_shape_same_dims(x, infer_operand(in, i)))
      return INFER_FAIL(in, "dimensions differ: %s (operand 0), %s (operand %d)", SHAPE_TEXT(x),
                        SHAPE_TEXT(infer_operand(in, i)), i);
    types[i] = infer_operand(in, i)->type;
  }
  for (int i = 0; i < in->dims.count; i++)
    if (in->dims.count != x->rank || in->dims.v[i] != i)
      return INFER_FAIL(in, "dimensions must be 0, 1, ... up to the rank of %s", SHAPE_TEXT(x));
  WEFT_TRY(infer_need_calls(in, 1));
  weft_dtype result = in->called[0]->root->shape->type;
  WEFT_TRY(infer_need_scalar_function(in, 0, in->operand_count, types, 1, &result));
  return infer_array(in, result, x->rank, x->dims, x->dynamic, out);
}

/* The shape `slice` with a dimension of size `n` inserted at `dim`. */
static weft_status *stacked(const hlo_instr *in, const hlo_shape *slice, int64_t dim, int64_t n, const hlo_shape **out)
{
  int64_t dims[HLO_MAX_RANK];

  if (!hlo_shape_is_array(slice) || slice->rank == HLO_MAX_RANK || dim > slice->rank)
    return INFER_FAIL(in, "slices of %s cannot be stacked along dimension %" PRId64, SHAPE_TEXT(slice), dim);
  for (int d = 0; d <= slice->rank; d++) dims[d] = d < dim ? slice->dims[d] : d == dim ? n : slice->dims[d - 1];
  return infer_array(in, slice->type, slice->rank + 1, dims, NULL, out);
}

/* The length of a scan without inputs, which is only given by its result shape. */
static weft_status *length_as_given(const hlo_instr *in, int64_t dim, int64_t *out)
{
  const hlo_shape *given = NULL;

  WEFT_TRY(infer_given(in, &given));
  if (hlo_shape_is_tuple(given) && given->rank > 0) given = given->elements[0];
  if (!hlo_shape_is_array(given) || dim >= given->rank)
    return INFER_FAIL(in, "the result %s has no dimension %" PRId64, SHAPE_TEXT(in->shape), dim);
  *out = given->dims[dim];
  return NULL;
}

/* Operands: the inputs, then num_carries inits.  The computation takes slices of the inputs and the carries, and
 * gives slices of the outputs and the new carries.  The result has the stacked outputs and the last carries. */
weft_status *infer_scan(const hlo_instr *in, const hlo_shape **out)
{
  int inputs = in->operand_count - (int)in->u.scan.num_carries;
  int64_t n = 0;

  if (in->u.scan.num_carries < 0 || in->u.scan.num_carries > in->operand_count)
    return INFER_FAIL(in, "%" PRId64 " carries of %d operands", in->u.scan.num_carries, in->operand_count);
  WEFT_TRY(infer_need_calls(in, 1));
  const hlo_computation *f = in->called[0];
  const hlo_shape *root = f->root->shape;
  int results = hlo_shape_is_tuple(root) ? root->rank : 1, outputs = results - (int)in->u.scan.num_carries;
  if (in->dims.count != 1 || in->dims.v[0] < 0)
    return INFER_FAIL(in, "%d dimensions given, expected 1", in->dims.count);
  if (inputs == 0 && outputs == 0) return INFER_FAIL(in, "neither inputs nor outputs");
  if (f->param_count != in->operand_count || outputs < 0)
    return INFER_FAIL(in, "the computation takes %d and gives %d values: %d operands, %" PRId64 " carries",
                      f->param_count, results, in->operand_count, in->u.scan.num_carries);
  const hlo_shape **elements = WEFT_ARENA_ARRAY(infer_arena(in), const hlo_shape *, results);
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < inputs; i++) {
    const hlo_shape *x = infer_operand(in, i), *whole;
    WEFT_TRY(infer_need_array(in, i));
    if (in->dims.v[0] >= x->rank || (i > 0 && x->dims[in->dims.v[0]] != n))
      return INFER_FAIL(in, "%s (operand %d) has no dimension %" PRId64 " of the common size", SHAPE_TEXT(x), i,
                        in->dims.v[0]);
    n = x->dims[in->dims.v[0]];
    WEFT_TRY(stacked(in, f->params[i]->shape, in->dims.v[0], n, &whole));
    if (!hlo_shape_equal(whole, x, false))
      return INFER_FAIL(in, "the computation takes slices of %s, not of %s (operand %d)", SHAPE_TEXT(whole),
                        SHAPE_TEXT(x), i);
  }
  if (inputs == 0 && outputs > 0) WEFT_TRY(length_as_given(in, in->dims.v[0], &n));
  for (int i = 0; i < results; i++) {
    const hlo_shape *part = hlo_shape_is_tuple(root) ? root->elements[i] : root;
    int carry = inputs + i - outputs;
    if (i < outputs) {
      WEFT_TRY(stacked(in, part, in->dims.v[0], n, &elements[i]));
      continue;
    }
    elements[i] = infer_operand(in, carry);
    if (!hlo_shape_equal(part, elements[i], false) || !hlo_shape_equal(f->params[carry]->shape, part, false))
      return INFER_FAIL(in, "a carry of %s (operand %d) is %s and becomes %s", SHAPE_TEXT(elements[i]), carry,
                        SHAPE_TEXT(f->params[carry]->shape), SHAPE_TEXT(part));
  }
  /* A single result may be a tuple of one element, if the program gives such a shape, whatever the computation
   * gives. */
  if (results == 1 && !hlo_shape_is_tuple(in->shape ? in->shape : root)) {
    *out = elements[0];
    return NULL;
  }
  return infer_tuple(in, results, elements, out);
}

weft_status *infer_sort(const hlo_instr *in, const hlo_shape **out)
{
  int n = in->operand_count;
  const hlo_shape *x = infer_operand(in, 0);
  const hlo_shape **elements = WEFT_ARENA_ARRAY(infer_arena(in), const hlo_shape *, n);
  weft_dtype *types = WEFT_ARENA_ARRAY(infer_arena(in), weft_dtype, 2 * (size_t)n);

  WEFT_TRY_ALLOC(elements);
  WEFT_TRY_ALLOC(types);
  WEFT_TRY(infer_need_array(in, 0));
  if (in->dims.count != 1) return INFER_FAIL(in, "%d dimensions given, expected 1", in->dims.count);
  WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, x->rank));
  for (int i = 0; i < n; i++) {
    const hlo_shape *y = infer_operand(in, i);
    WEFT_TRY(infer_need_array(in, i));
    if (!hlo_shape_same_dims(x, y))
      return INFER_FAIL(in, "dimensions differ: %s (operand 0), %s (operand %d)", SHAPE_TEXT(x), SHAPE_TEXT(y), i);
    types[2 * i] = types[2 * i + 1] = y->type;
    elements[i] = y;
  }
  WEFT_TRY(infer_need_calls(in, 1));
  WEFT_TRY(infer_need_scalar_function(in, 0, 2 * n, types, 1, (weft_dtype[]){WEFT_PRED}));
  return infer_one_or_tuple(in, n, elements, out);
}

weft_status *infer_topk(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0), *parts[2];
  int64_t dims[HLO_MAX_RANK];

  WEFT_TRY(infer_need_array(in, 0));
  if (x->rank < 1 || in->u.topk.k < 0 || in->u.topk.k > x->dims[x->rank - 1])
    return INFER_FAIL(in, "k = %" PRId64 " of %s", in->u.topk.k, SHAPE_TEXT(x));
  for (int d = 0; d < x->rank; d++) dims[d] = d == x->rank - 1 ? in->u.topk.k : x->dims[d];
  WEFT_TRY(infer_array(in, x->type, x->rank, dims, NULL, &parts[0]));
  WEFT_TRY(infer_array(in, WEFT_S32, x->rank, dims, NULL, &parts[1]));
  return infer_tuple(in, 2, parts, out);
}

/* ---- linear algebra ---------------------------------------------------------------------------------------------- */

/* The element type of a product is free.  It is the left operand's if the program gives no shape. */
static weft_dtype product_type(const hlo_instr *in)
{
  return in->shape && hlo_shape_is_array(in->shape) ? in->shape->type : infer_operand(in, 0)->type;
}

/* Paired dimensions of lhs and rhs must have equal sizes. */
static weft_status *need_pairs(const hlo_instr *in, const char *what, hlo_ints lhs_dims, hlo_ints rhs_dims)
{
  const hlo_shape *lhs = infer_operand(in, 0), *rhs = infer_operand(in, 1);

  if (lhs_dims.count != rhs_dims.count)
    return INFER_FAIL(in, "%d %s dimensions of lhs, %d of rhs", lhs_dims.count, what, rhs_dims.count);
  for (int i = 0; i < lhs_dims.count; i++)
    if (lhs->dims[lhs_dims.v[i]] != rhs->dims[rhs_dims.v[i]])
      return INFER_FAIL(in, "%s sizes differ: %" PRId64 " (lhs dim %" PRId64 "), %" PRId64 " (rhs dim %" PRId64 ")",
                        what, lhs->dims[lhs_dims.v[i]], lhs_dims.v[i], rhs->dims[rhs_dims.v[i]], rhs_dims.v[i]);
  return NULL;
}

/* Both lists name dimensions of one operand, and no dimension may be in both. */
static weft_status *need_disjoint(const hlo_instr *in, const char *what, hlo_ints a, hlo_ints b, int rank)
{
  WEFT_TRY(infer_need_dims(in, what, a, rank));
  WEFT_TRY(infer_need_dims(in, what, b, rank));
  for (int i = 0; i < a.count; i++)
    if (infer_contains(b, a.v[i]))
      return INFER_FAIL(in, "%s: dimension %" PRId64 " is batch and contracting", what, a.v[i]);
  return NULL;
}

static weft_status *need_dot_dims(const hlo_instr *in, bool pairs)
{
  const hlo_dot_attrs *a = in->u.dot;

  if (!a) return INFER_FAIL(in, "no dimension numbers");
  if (a->sparsity) return WEFT_ERR(UNIMPLEMENTED, "%s: sparsity_config is not supported", hlo_opcode_name(in->op));
  for (int i = 0; i < in->operand_count; i++) WEFT_TRY(infer_need_array(in, i));
  WEFT_TRY(need_disjoint(in, "lhs dimensions", a->lhs_batch, a->lhs_contracting, infer_operand(in, 0)->rank));
  WEFT_TRY(need_disjoint(in, "rhs dimensions", a->rhs_batch, a->rhs_contracting, infer_operand(in, 1)->rank));
  WEFT_TRY(need_pairs(in, "batch", a->lhs_batch, a->rhs_batch));
  return pairs ? need_pairs(in, "contracting", a->lhs_contracting, a->rhs_contracting) : NULL;
}

static weft_status *push_free(const hlo_instr *in, dim_list *list, const hlo_shape *s, hlo_ints batch,
                              hlo_ints contracting, hlo_ints group)
{
  for (int d = 0; d < s->rank; d++)
    if (!infer_contains(batch, d) && !infer_contains(contracting, d) && !infer_contains(group, d))
      WEFT_TRY(push_dim(in, list, s, d));
  return NULL;
}

weft_status *infer_dot(const hlo_instr *in, const hlo_shape **out) /* and scaled-dot */
{
  const hlo_dot_attrs *a = in->u.dot;
  dim_list list = {0};

  WEFT_TRY(need_dot_dims(in, true));
  const hlo_shape *lhs = infer_operand(in, 0), *rhs = infer_operand(in, 1);
  for (int i = 0; i < a->lhs_batch.count; i++) WEFT_TRY(push_dim(in, &list, lhs, a->lhs_batch.v[i]));
  WEFT_TRY(push_free(in, &list, lhs, a->lhs_batch, a->lhs_contracting, (hlo_ints){0}));
  WEFT_TRY(push_free(in, &list, rhs, a->rhs_batch, a->rhs_contracting, (hlo_ints){0}));
  return finish(in, product_type(in), &list, out);
}

/* Group sizes are [groups], or have further dimensions before it, one for each of these dimensions of lhs: the batch
 * dimensions, then, before the ragged dimension, the dimensions of its kind (contracting or free).  If the ragged
 * dimension is a batch dimension, only the batch dimensions before it count. */
static weft_status *need_group_sizes(const hlo_instr *in, hlo_ints contracting, bool batch)
{
  const hlo_dot_attrs *a = in->u.dot;
  const hlo_shape *lhs = infer_operand(in, 0), *sizes = infer_operand(in, 2);
  int64_t outer[HLO_MAX_RANK], ragged = a->lhs_ragged.v[0];
  int n = 0;

  if (sizes->rank == 1) return NULL;
  for (int i = 0; i < a->lhs_batch.count && !(batch && a->lhs_batch.v[i] == ragged); i++)
    outer[n++] = a->lhs_batch.v[i];
  for (int i = 0; i < contracting.count && contracting.v[i] != ragged; i++) outer[n++] = contracting.v[i];
  for (int i = 0; !batch && contracting.count == 0 && i < ragged; i++)
    if (!infer_contains(a->lhs_batch, i) && !infer_contains(a->lhs_contracting, i)) outer[n++] = i;
  bool agree = sizes->rank == n + 1;
  for (int i = 0; agree && i < n; i++) agree = sizes->dims[i] == lhs->dims[outer[i]];
  return agree ? NULL
               : INFER_FAIL(in, "group sizes are %s, which does not fit %s (lhs)", SHAPE_TEXT(sizes), SHAPE_TEXT(lhs));
}

/* The ragged dimension of lhs is free (rhs has a group dimension), contracting (the result has one), or batch. */
weft_status *infer_ragged_dot(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_dot_attrs *a = in->u.dot;
  dim_list list = {0};

  WEFT_TRY(need_dot_dims(in, true));
  const hlo_shape *lhs = infer_operand(in, 0), *rhs = infer_operand(in, 1), *sizes = infer_operand(in, 2);
  if (a->lhs_ragged.count != 1) return INFER_FAIL(in, "%d ragged dimensions of lhs, expected 1", a->lhs_ragged.count);
  WEFT_TRY(infer_need_dims(in, "lhs_ragged_dims", a->lhs_ragged, lhs->rank));
  WEFT_TRY(infer_need_dims(in, "rhs_group_dims", a->rhs_group, rhs->rank));
  if (!weft_dtype_is_integer(sizes->type) || sizes->rank < 1)
    return INFER_FAIL(in, "group sizes are %s, expected integers of rank 1 or more", SHAPE_TEXT(sizes));
  int64_t groups = sizes->dims[sizes->rank - 1], ragged = a->lhs_ragged.v[0];
  bool contracting = infer_contains(a->lhs_contracting, ragged), batch = infer_contains(a->lhs_batch, ragged);
  int want = contracting || batch ? 0 : 1;
  WEFT_TRY(need_group_sizes(in, contracting ? a->lhs_contracting : (hlo_ints){0}, batch));
  for (int i = 0; i < a->rhs_group.count; i++)
    if (infer_contains(a->rhs_batch, a->rhs_group.v[i]) || infer_contains(a->rhs_contracting, a->rhs_group.v[i]))
      return INFER_FAIL(in, "dimension %" PRId64 " of rhs is a group dimension and a batch or contracting one",
                        a->rhs_group.v[i]);
  if (a->rhs_group.count != want)
    return INFER_FAIL(in, "%d group dimensions of rhs, expected %d", a->rhs_group.count, want);
  if (want && rhs->dims[a->rhs_group.v[0]] != groups)
    return INFER_FAIL(in, "the group dimension of rhs has size %" PRId64 ", there are %" PRId64 " groups",
                      rhs->dims[a->rhs_group.v[0]], groups);
  if (contracting) WEFT_TRY(push(in, &list, groups, false));
  for (int i = 0; i < a->lhs_batch.count; i++) WEFT_TRY(push_dim(in, &list, lhs, a->lhs_batch.v[i]));
  WEFT_TRY(push_free(in, &list, lhs, a->lhs_batch, a->lhs_contracting, (hlo_ints){0}));
  WEFT_TRY(push_free(in, &list, rhs, a->rhs_batch, a->rhs_contracting, a->rhs_group));
  return finish(in, product_type(in), &list, out);
}

/* The batch, feature and spatial dimensions together must be a permutation of all dimensions. */
static weft_status *need_conv_dims(const hlo_instr *in, const char *what, int64_t a, int64_t b, hlo_ints spatial,
                                   int rank)
{
  int64_t all[HLO_MAX_RANK + 2] = {a, b};

  if (spatial.count + 2 != rank)
    return INFER_FAIL(in, "%s: %d spatial dimensions of rank %d", what, spatial.count, rank);
  for (int i = 0; i < spatial.count; i++) all[2 + i] = spatial.v[i];
  return infer_need_dims(in, what, (hlo_ints){rank, all}, rank);
}

weft_status *infer_convolution(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_conv_attrs *c = in->u.conv;
  const hlo_shape *lhs = infer_operand(in, 0), *rhs = infer_operand(in, 1);
  int64_t dims[HLO_MAX_RANK];
  bool dynamic[HLO_MAX_RANK] = {0};

  if (!c) return INFER_FAIL(in, "no dimension numbers");
  for (int i = 0; i < 2; i++) WEFT_TRY(infer_need_array(in, i));
  int rank = lhs->rank;
  WEFT_TRY(need_conv_dims(in, "lhs dimensions", c->lhs_batch, c->lhs_feature, c->lhs_spatial, rank));
  WEFT_TRY(need_conv_dims(in, "rhs dimensions", c->rhs_in_feature, c->rhs_out_feature, c->rhs_spatial, rhs->rank));
  WEFT_TRY(need_conv_dims(in, "result dimensions", c->out_batch, c->out_feature, c->out_spatial, rank));
  if (rhs->rank != rank || c->window.rank != rank - 2)
    return INFER_FAIL(in, "a window of rank %d for %s (lhs), %s (rhs)", c->window.rank, SHAPE_TEXT(lhs),
                      SHAPE_TEXT(rhs));
  int64_t batch = lhs->dims[c->lhs_batch], in_feature = lhs->dims[c->lhs_feature],
          kernel_in = rhs->dims[c->rhs_in_feature], kernel_out = rhs->dims[c->rhs_out_feature],
          feature_groups = c->feature_group_count, batch_groups = c->batch_group_count, expected;
  if (feature_groups < 1 || batch_groups < 1 || (feature_groups > 1 && batch_groups > 1))
    return INFER_FAIL(in, "feature_group_count %" PRId64 ", batch_group_count %" PRId64, feature_groups, batch_groups);
  if (__builtin_mul_overflow(kernel_in, feature_groups, &expected) || in_feature != expected)
    return INFER_FAIL(in, "features differ: %" PRId64 " (lhs), %" PRId64 " x %" PRId64 " groups (rhs)", in_feature,
                      kernel_in, feature_groups);
  if (kernel_out % feature_groups || kernel_out % batch_groups || batch % batch_groups)
    return INFER_FAIL(in, "%" PRId64 " output features and batch %" PRId64 " are not divisible by the group counts",
                      kernel_out, batch);
  dims[c->out_batch] = batch / batch_groups;
  dynamic[c->out_batch] = infer_is_dynamic(lhs, c->lhs_batch);
  dims[c->out_feature] = kernel_out;
  for (int i = 0; i < rank - 2; i++) {
    const hlo_window_dim *w = &c->window.dims[i];
    if (w->size != rhs->dims[c->rhs_spatial.v[i]] && w->size != 0)
      return INFER_FAIL(in, "window size %" PRId64 " differs from %" PRId64 " (rhs dim %" PRId64 ")", w->size,
                        rhs->dims[c->rhs_spatial.v[i]], c->rhs_spatial.v[i]);
    hlo_window_dim whole = *w;
    if (w->size == 0) whole.size = 1; /* an empty kernel: every position is an empty sum */
    WEFT_TRY(window_positions(in, &whole, i, lhs->dims[c->lhs_spatial.v[i]], &dims[c->out_spatial.v[i]]));
  }
  return infer_array(in, product_type(in), rank, dims, dynamic, out);
}

weft_status *infer_cholesky(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);

  WEFT_TRY(infer_need_array(in, 0));
  if (!weft_dtype_is_float(x->type) && !weft_dtype_is_complex(x->type))
    return INFER_FAIL(in, "element type %s is not allowed", weft_dtype_name(x->type));
  if (x->rank < 2 || x->dims[x->rank - 1] != x->dims[x->rank - 2])
    return INFER_FAIL(in, "%s is not a (batch of) square matrices", SHAPE_TEXT(x));
  return infer_array(in, x->type, x->rank, x->dims, x->dynamic, out);
}

weft_status *infer_triangular_solve(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *a = infer_operand(in, 0), *b = infer_operand(in, 1);

  for (int i = 0; i < 2; i++) WEFT_TRY(infer_need_array(in, i));
  WEFT_TRY(infer_need_same_type(in, 0, 1));
  if (!weft_dtype_is_float(a->type) && !weft_dtype_is_complex(a->type))
    return INFER_FAIL(in, "element type %s is not allowed", weft_dtype_name(a->type));
  if (a->rank < 2 || a->rank != b->rank || a->dims[a->rank - 1] != a->dims[a->rank - 2])
    return INFER_FAIL(in, "%s (a) is not square or its rank differs from %s (b)", SHAPE_TEXT(a), SHAPE_TEXT(b));
  int solved = b->rank - (in->u.triangular.left_side ? 2 : 1);
  for (int d = 0; d < a->rank; d++)
    if ((d < a->rank - 2 || d == solved) && a->dims[d] != b->dims[d])
      return INFER_FAIL(in, "sizes of dimension %d differ: %" PRId64 " (a), %" PRId64 " (b)", d, a->dims[d],
                        b->dims[d]);
  if (in->u.triangular.transpose_a == HLO_TRANSPOSE_INVALID) return INFER_FAIL(in, "no transpose_a");
  return infer_array(in, b->type, b->rank, b->dims, b->dynamic, out);
}

/* The length of an FFT or IFFT may differ from the operand's size.  Then the operand is cut off or filled up with
 * zeros, and the result, which has the operand's size, gets as much of the transform as fits. */
weft_status *infer_fft(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);
  int64_t dims[HLO_MAX_RANK], lengths[HLO_MAX_RANK];
  hlo_fft_type type = in->u.fft_type;
  int n = in->dims.count, rank = x->rank;
  bool others = false;

  WEFT_TRY(infer_need_array(in, 0));
  if (n < 1 || n > 3 || n > rank) return INFER_FAIL(in, "%d lengths for %s, expected 1 to 3", n, SHAPE_TEXT(x));
  if (type == HLO_FFT_RFFT ? x->type != WEFT_F32 && x->type != WEFT_F64 : !weft_dtype_is_complex(x->type))
    return INFER_FAIL(in, "element type %s is not allowed", weft_dtype_name(x->type));
  for (int d = 0; d < rank; d++) dims[d] = lengths[d] = x->dims[d];
  for (int i = 0; i < n; i++) {
    int64_t length = in->dims.v[i], size = x->dims[rank - n + i];
    bool half = type == HLO_FFT_IRFFT && i == n - 1;
    bool fits = size == (half ? length / 2 + 1 : length) ||
                (length == 0 && size == 0); /* IRFFT to length 0: of no element or of one */
    lengths[rank - n + i] = length;
    others |= !fits;
    if (length < 0 || (!fits && (type == HLO_FFT_RFFT || type == HLO_FFT_IRFFT)))
      return INFER_FAIL(in, "length %" PRId64 " does not match dimension %d of %s", length, rank - n + i,
                        SHAPE_TEXT(x));
    if (half) dims[rank - n + i] = length;
  }
  /* only for its check: the filled-up operand may be too large */
  if (others) WEFT_TRY(infer_array(in, x->type, rank, lengths, NULL, out));
  if (type == HLO_FFT_RFFT && dims[rank - 1] > 0) dims[rank - 1] = dims[rank - 1] / 2 + 1;
  weft_dtype result = type == HLO_FFT_RFFT    ? weft_dtype_complex_of(x->type)
                      : type == HLO_FFT_IRFFT ? weft_dtype_component(x->type)
                                              : x->type;
  return infer_array(in, result, rank, dims, x->dynamic, out);
}

/* ---- batch normalisation ----------------------------------------------------------------------------------------- */

/* Operand 0 is the data.  Operands in the bit set `vectors` have one element per feature, others the data's shape. */
static weft_status *need_features(const hlo_instr *in, unsigned vectors, const hlo_shape **out_feature)
{
  const hlo_shape *x = infer_operand(in, 0);
  int64_t feature = in->u.batch_norm.feature_index;

  WEFT_TRY(infer_need_array(in, 0));
  if (!weft_dtype_is_float(x->type)) return INFER_FAIL(in, "element type %s is not allowed", weft_dtype_name(x->type));
  if (feature < 0 || feature >= x->rank)
    return INFER_FAIL(in, "feature_index %" PRId64 " of %s", feature, SHAPE_TEXT(x));
  for (int i = 1; i < in->operand_count; i++) {
    const hlo_shape *y = infer_operand(in, i);
    WEFT_TRY(infer_need_array(in, i));
    if (vectors >> i & 1 ? y->rank != 1 || y->dims[0] != x->dims[feature] : !hlo_shape_same_dims(x, y))
      return INFER_FAIL(in, "operand %d is %s for data %s with %" PRId64 " features", i, SHAPE_TEXT(y), SHAPE_TEXT(x),
                        x->dims[feature]);
  }
  return infer_array(in, infer_operand(in, 1)->type, 1, &x->dims[feature], NULL, out_feature);
}

weft_status *infer_batch_norm_training(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *f;

  WEFT_TRY(need_features(in, 0x6, &f));
  return infer_tuple(in, 3, (const hlo_shape *[]){infer_operand(in, 0), f, f}, out);
}

weft_status *infer_batch_norm_inference(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_features(in, 0x1e, out));
  *out = infer_operand(in, 0);
  return NULL;
}

weft_status *infer_batch_norm_grad(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *f;

  WEFT_TRY(need_features(in, 0xe, &f));
  return infer_tuple(in, 3, (const hlo_shape *[]){infer_operand(in, 0), f, f}, out);
}

/* ---- gather and scatter ------------------------------------------------------------------------------------------ */

/* The dimension of the indices that is batch dimension number `i`: index_vector_dim is skipped. */
static int64_t batch_dim(int64_t index_vector_dim, int i) { return i < index_vector_dim ? i : i + 1; }

/* Checks what gather and scatter have in common: `map` assigns the entries of an index vector to dimensions of the
 * operand; batching dimensions are paired. */
static weft_status *need_indices(const hlo_instr *in, const hlo_shape *x, const hlo_shape *indices, hlo_ints map,
                                 hlo_ints dropped, hlo_ints batching, hlo_ints indices_batching,
                                 int64_t index_vector_dim)
{
  if (!hlo_shape_is_array(indices) || !weft_dtype_is_integer(indices->type))
    return INFER_FAIL(in, "the indices are %s, expected integers", SHAPE_TEXT(indices));
  if (index_vector_dim < 0 || index_vector_dim > indices->rank)
    return INFER_FAIL(in, "index_vector_dim %" PRId64 " of indices %s", index_vector_dim, SHAPE_TEXT(indices));
  int64_t length = index_vector_dim == indices->rank ? 1 : indices->dims[index_vector_dim];
  if (map.count != length) return INFER_FAIL(in, "%d dimensions are indexed by vectors of %" PRId64, map.count, length);
  WEFT_TRY(infer_need_dims(in, "indexed dimensions", map, x->rank));
  WEFT_TRY(infer_need_dims(in, "collapsed (inserted) dimensions", dropped, x->rank));
  WEFT_TRY(infer_need_dims(in, "batching dimensions of the operand", batching, x->rank));
  WEFT_TRY(infer_need_dims(in, "batching dimensions of the indices", indices_batching, indices->rank));
  if (batching.count != indices_batching.count)
    return INFER_FAIL(in, "%d batching dimensions of the operand, %d of the indices", batching.count,
                      indices_batching.count);
  for (int i = 0; i < batching.count; i++) {
    if (infer_contains(dropped, batching.v[i]) || infer_contains(map, batching.v[i]))
      return INFER_FAIL(in, "dimension %" PRId64 " is batching and also indexed or collapsed", batching.v[i]);
    if (indices_batching.v[i] == index_vector_dim || x->dims[batching.v[i]] != indices->dims[indices_batching.v[i]])
      return INFER_FAIL(in, "batching dimensions differ: %" PRId64 " of %s, %" PRId64 " of %s", batching.v[i],
                        SHAPE_TEXT(x), indices_batching.v[i], SHAPE_TEXT(indices));
  }
  return NULL;
}

weft_status *infer_gather(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_gather_attrs *g = in->u.gather;
  const hlo_shape *x = infer_operand(in, 0), *indices = infer_operand(in, 1);
  dim_list list = {0};
  int64_t window[HLO_MAX_RANK];
  int window_rank = 0, batch_rank, taken = 0, batched = 0;

  if (!g) return INFER_FAIL(in, "no dimension numbers");
  for (int i = 0; i < 2; i++) WEFT_TRY(infer_need_array(in, i));
  WEFT_TRY(need_indices(in, x, indices, g->start_index_map, g->collapsed_slice_dims, g->operand_batching_dims,
                        g->start_indices_batching_dims, g->index_vector_dim));
  if (g->slice_sizes.count != x->rank)
    return INFER_FAIL(in, "%d slice sizes for %s", g->slice_sizes.count, SHAPE_TEXT(x));
  for (int d = 0; d < x->rank; d++) {
    bool gone = infer_contains(g->collapsed_slice_dims, d) || infer_contains(g->operand_batching_dims, d);
    if (g->slice_sizes.v[d] < 0 || g->slice_sizes.v[d] > x->dims[d] || (gone && g->slice_sizes.v[d] > 1))
      return INFER_FAIL(in, "slice size %" PRId64 " of dimension %d of %s", g->slice_sizes.v[d], d, SHAPE_TEXT(x));
    if (!gone) window[window_rank++] = g->slice_sizes.v[d];
  }
  if (g->offset_dims.count != window_rank)
    return INFER_FAIL(in, "%d offset dimensions for slices of rank %d", g->offset_dims.count, window_rank);
  batch_rank = indices->rank - (g->index_vector_dim < indices->rank);
  WEFT_TRY(infer_need_dims(in, "offset_dims", g->offset_dims, WEFT_MIN(batch_rank + window_rank, HLO_MAX_RANK)));
  for (int d = 0; d < batch_rank + window_rank; d++) {
    if (infer_contains(g->offset_dims, d)) WEFT_TRY(push(in, &list, window[taken++], false));
    else WEFT_TRY(push_dim(in, &list, indices, batch_dim(g->index_vector_dim, batched++)));
  }
  return finish(in, x->type, &list, out);
}

weft_status *infer_scatter(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_scatter_attrs *s = in->u.scatter;
  int n = in->operand_count / 2;
  const hlo_shape *x = infer_operand(in, 0), *indices = infer_operand(in, n);
  const hlo_shape **elements = WEFT_ARENA_ARRAY(infer_arena(in), const hlo_shape *, n);
  weft_dtype *types = WEFT_ARENA_ARRAY(infer_arena(in), weft_dtype, 2 * (size_t)n);
  int64_t window[HLO_MAX_RANK];
  int window_rank = 0, batch_rank;

  WEFT_TRY_ALLOC(elements);
  WEFT_TRY_ALLOC(types);
  if (!s) return INFER_FAIL(in, "no dimension numbers");
  if (in->operand_count % 2 == 0)
    return INFER_FAIL(in, "%d operands: inputs, indices and as many updates are needed", in->operand_count);
  for (int i = 0; i < in->operand_count; i++) WEFT_TRY(infer_need_array(in, i));
  WEFT_TRY(need_indices(in, x, indices, s->scatter_dims_to_operand_dims, s->inserted_window_dims,
                        s->input_batching_dims, s->scatter_indices_batching_dims, s->index_vector_dim));
  for (int d = 0; d < x->rank; d++)
    if (!infer_contains(s->inserted_window_dims, d) && !infer_contains(s->input_batching_dims, d))
      window[window_rank++] = x->dims[d];
  if (s->update_window_dims.count != window_rank)
    return INFER_FAIL(in, "%d update_window_dims for windows of rank %d", s->update_window_dims.count, window_rank);
  batch_rank = indices->rank - (s->index_vector_dim < indices->rank);
  for (int i = 0; i < n; i++) {
    const hlo_shape *y = infer_operand(in, i), *u = infer_operand(in, n + 1 + i);
    int taken = 0, batched = 0;
    if (!hlo_shape_same_dims(x, y))
      return INFER_FAIL(in, "dimensions differ: %s (operand 0), %s (operand %d)", SHAPE_TEXT(x), SHAPE_TEXT(y), i);
    WEFT_TRY(infer_need_same_type(in, i, n + 1 + i));
    if (u->rank != window_rank + batch_rank)
      return INFER_FAIL(in, "updates %s, expected rank %d", SHAPE_TEXT(u), window_rank + batch_rank);
    WEFT_TRY(infer_need_dims(in, "update_window_dims", s->update_window_dims, u->rank));
    for (int d = 0; d < u->rank; d++) {
      bool in_window = infer_contains(s->update_window_dims, d);
      int64_t most = in_window ? window[taken++] : indices->dims[batch_dim(s->index_vector_dim, batched++)];
      if (in_window ? u->dims[d] > most : u->dims[d] != most)
        return INFER_FAIL(in, "dimension %d of updates %s has to be %s%" PRId64, d, SHAPE_TEXT(u),
                          in_window ? "at most " : "", most);
    }
    types[i] = types[n + i] = y->type;
    elements[i] = y;
  }
  WEFT_TRY(infer_need_calls(in, 1));
  WEFT_TRY(infer_need_scalar_function(in, 0, 2 * n, types, n, types));
  return infer_one_or_tuple(in, n, elements, out);
}
