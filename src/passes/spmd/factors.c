/* passes/spmd/factors.c -- which dimensions of an operation's operands and results belong together (factors.h). */
#include <config.h>

#include "passes/spmd/factors.h"

#include <stdlib.h>
#include <string.h>

#include "passes/spmd/custom.h"
#include "passes/spmd/parts.h"
#include "passes/util.h"

enum { MAX_USES = 2 * HLO_MAX_RANK };

static int add_factor(spmd_factors *f, int64_t size)
{
  f->factor[f->count] = (spmd_factor){.size = size};
  return f->count++;
}

static void use(spmd_factors *f, int tensor, int64_t dim, int factor)
{
  spmd_tensor *t = &f->tensors[tensor];
  int at = t->use_count;

  if (at == MAX_USES) return;
  while (at > 0 && t->uses[at - 1].dim > dim) {
    t->uses[at] = t->uses[at - 1];
    at--;
  }
  t->uses[at] = (spmd_use){(uint8_t)dim, (uint8_t)factor};
  t->use_count++;
}

static int result_tensor(const spmd_factors *f) { return f->operand_count; }

/* Dimension d of all tensors of the result's rank is one factor; the dimensions in `but` stay whole. */
static void same_dims(spmd_factors *f, int rank, hlo_ints but)
{
  for (int d = 0; d < rank; d++) {
    int64_t size = f->tensors[result_tensor(f)].shape->dims[d];
    int factor;
    if (pass_ints_contain(but, d)) continue;
    factor = add_factor(f, size);
    for (int t = 0; t < f->tensor_count; t++)
      if (f->tensors[t].shape->rank == rank && f->tensors[t].shape->dims[d] == size) use(f, t, d, factor);
  }
}

static const hlo_ints none = {0};

/* Dimensions of several tensors along which elements change places, or are left out or added. They are cut alike as
 * far as all sizes allow, but are computed whole. */
static void moved(spmd_factors *f, int count, const int *tensors, const int64_t *dims, bool is_fetched)
{
  int64_t size = 0;
  int factor;

  if (f->count == SPMD_MAX_FACTORS) return;
  for (int i = 0; i < count; i++) {
    if (f->tensors[tensors[i]].shape->dims[dims[i]] == 0) return;
    size = weft_gcd(size, f->tensors[tensors[i]].shape->dims[dims[i]]);
  }
  factor = add_factor(f, size);
  f->factor[factor].is_moved = true;
  f->factor[factor].is_fetched = is_fetched;
  for (int i = 0; i < count; i++) use(f, tensors[i], dims[i], factor);
}

static void moved_dim(spmd_factors *f, int64_t dim, int a, int b, bool is_fetched)
{
  moved(f, 2, (int[]){a, b}, (int64_t[]){dim, dim}, is_fetched);
}

/* A factor of some tensors for which each partition handles its own rows. If it belongs to one tensor only, an
 * operand, it is reduced. */
static void own_rows(spmd_factors *f, int64_t dim, int count, const int *tensors)
{
  int factor;

  if (f->count == SPMD_MAX_FACTORS) return;
  factor = add_factor(f, f->tensors[tensors[0]].shape->dims[dim]);
  f->factor[factor].in_parts = true;
  f->factor[factor].is_reduced = count == 1;
  for (int i = 0; i < count; i++) use(f, tensors[i], dim, factor);
}

/* ---- one function for each kind of operation ------------------------------------------------------------------- */

typedef void factor_rule(const hlo_instr *instr, spmd_factors *f);

static void elementwise(const hlo_instr *instr, spmd_factors *f)
{
  f->passes_through = true;
  f->is_additive = instr->op == HLO_ADD || instr->op == HLO_SUBTRACT || instr->op == HLO_SELECT;
  f->is_linear = f->is_additive || instr->op == HLO_MULTIPLY || instr->op == HLO_DIVIDE || instr->op == HLO_CONVERT ||
                 instr->op == HLO_NEGATE || instr->op == HLO_COPY || instr->op == HLO_REDUCE_PRECISION ||
                 instr->op == HLO_REAL || instr->op == HLO_IMAG || instr->op == HLO_COMPLEX;
  same_dims(f, f->tensors[result_tensor(f)].shape->rank, none);
}

static void identity(const hlo_instr *instr, spmd_factors *f)
{
  (void)instr;
  f->passes_through = f->is_linear = true;
  same_dims(f, f->tensors[result_tensor(f)].shape->rank, none);
}

static void nullary(const hlo_instr *instr, spmd_factors *f) { same_dims(f, instr->shape->rank, none); }

static void reverse(const hlo_instr *instr, spmd_factors *f)
{
  f->is_linear = f->passes_through = true;
  same_dims(f, instr->shape->rank, none);
  for (int i = 0; i < instr->dims.count; i++)
    f->factor[instr->dims.v[i]].is_moved = f->factor[instr->dims.v[i]].is_fetched = true;
}

/* The elements of the dimension that the attribute names are mixed; the other dimensions are left alone. */
static void all_but_dims(const hlo_instr *instr, spmd_factors *f)
{
  int tensors[MAX_USES];
  int64_t dims[MAX_USES];

  f->is_linear = f->is_additive = instr->op != HLO_SORT;
  f->passes_through = true;
  same_dims(f, f->tensors[result_tensor(f)].shape->rank, instr->dims);
  for (int t = 0; t < f->tensor_count && t < MAX_USES; t++) {
    tensors[t] = t;
    dims[t] = instr->dims.v[0];
  }
  if (f->tensor_count <= MAX_USES) moved(f, f->tensor_count, tensors, dims, instr->op == HLO_CONCATENATE);
}

static void broadcast(const hlo_instr *instr, spmd_factors *f)
{
  f->is_linear = true;
  for (int d = 0; d < instr->shape->rank; d++) {
    int factor = add_factor(f, instr->shape->dims[d]);
    use(f, 1, d, factor);
    for (int i = 0; i < instr->dims.count; i++)
      if (instr->dims.v[i] == d && f->tensors[0].shape->dims[i] == instr->shape->dims[d]) use(f, 0, i, factor);
  }
}

static void transpose(const hlo_instr *instr, spmd_factors *f)
{
  f->is_linear = f->passes_through = true;
  for (int d = 0; d < instr->shape->rank; d++) {
    int factor = add_factor(f, instr->shape->dims[d]);
    use(f, 1, d, factor);
    use(f, 0, instr->dims.v[d], factor);
  }
}

/* Cuts both lists of dimensions into their common factors: [6, 4] and [2, 12] are 2 x 3 x 4. */
static void reshape(const hlo_instr *instr, spmd_factors *f)
{
  const hlo_shape *from = f->tensors[0].shape, *to = instr->shape;
  int64_t left[2] = {1, 1};
  int at[2] = {-1, -1};

  f->is_linear = f->passes_through = true;
  if (hlo_shape_elems(from) == 0) return;
  for (;;) {
    int64_t size;
    int factor;
    while (left[0] == 1 && at[0] + 1 < from->rank) left[0] = from->dims[++at[0]];
    while (left[1] == 1 && at[1] + 1 < to->rank) left[1] = to->dims[++at[1]];
    if (left[0] == 1 || left[1] == 1) return;
    /* left[] are the minor parts that remain: the larger one continues only if the smaller one divides it */
    size = WEFT_MIN(left[0], left[1]);
    if (left[0] % size || left[1] % size || f->count == SPMD_MAX_FACTORS) {
      /* their common divisor is major in both; the walk then goes on to where both sides end together */
      int64_t a = left[0], b = left[1], gcd = weft_gcd(a, b);
      if (gcd > 1 && f->count < SPMD_MAX_FACTORS) {
        factor = add_factor(f, gcd);
        use(f, 0, at[0], factor);
        use(f, 1, at[1], factor);
      }
      while (a != b) {
        if (a < b) a *= from->dims[++at[0]];
        else b *= to->dims[++at[1]];
      }
      left[0] = left[1] = 1;
      continue;
    }
    factor = add_factor(f, size);
    use(f, 0, at[0], factor);
    use(f, 1, at[1], factor);
    left[0] /= size;
    left[1] /= size;
  }
}

static int64_t nth_major(const hlo_shape *s, int i)
{
  return s->layout ? s->layout->minor_to_major[s->rank - 1 - i] : i;
}

/* The same memory with another layout, beside calls of foreign code: the dimensions by their order in memory. */
static void bitcast(const hlo_instr *instr, spmd_factors *f)
{
  const hlo_shape *from = f->tensors[0].shape, *to = instr->shape;

  f->is_linear = f->passes_through = true;
  for (int i = 0; i < to->rank && from->type == to->type && from->rank == to->rank; i++) {
    int factor;
    if (from->dims[nth_major(from, i)] != to->dims[nth_major(to, i)]) return;
    factor = add_factor(f, to->dims[nth_major(to, i)]);
    use(f, 0, nth_major(from, i), factor);
    use(f, 1, nth_major(to, i), factor);
  }
}

static void bitcast_convert(const hlo_instr *instr, spmd_factors *f)
{
  int rank = WEFT_MIN(f->tensors[0].shape->rank, instr->shape->rank);

  f->passes_through = true;
  for (int d = 0; d < rank; d++) {
    int factor = add_factor(f, instr->shape->dims[d]);
    use(f, 0, d, factor);
    use(f, 1, d, factor);
  }
}

/* A dimension that has one size in all of `tensors` is taken whole and becomes a factor. Of the other dimensions a
 * slice moves rows, and a dynamic slice or update may be computed in parts. */
static void kept_dims(const hlo_instr *instr, spmd_factors *f, const int *tensors, int count)
{
  /* of the dimensions of which a dynamic slice takes a part, the longest one, which may be cut; -1: none */
  int longest = -1;

  f->is_linear = true;
  f->passes_through = true;
  for (int d = 0; d < instr->shape->rank; d++) {
    int factor;
    bool same = true;
    for (int i = 0; i < count; i++) same &= f->tensors[tensors[i]].shape->dims[d] == instr->shape->dims[d];
    if (!same && instr->op == HLO_SLICE) moved_dim(f, d, 0, result_tensor(f), true);
    if (!same && instr->op == HLO_DYNAMIC_UPDATE_SLICE) {
      if (spmd_parts_can_index(instr, 2 + d, d)) own_rows(f, d, 2, (int[]){0, result_tensor(f)});
      else moved_dim(f, d, 0, result_tensor(f), false);
    }
    if (!same && instr->op == HLO_DYNAMIC_SLICE && spmd_parts_can_index(instr, 1 + d, d) &&
        (longest < 0 || f->tensors[0].shape->dims[d] > f->tensors[0].shape->dims[longest]))
      longest = d;
    if (!same) continue;
    factor = add_factor(f, instr->shape->dims[d]);
    for (int i = 0; i < count; i++) use(f, tensors[i], d, factor);
  }
  if (longest >= 0) own_rows(f, longest, 1, (int[]){0});
}

static void slice(const hlo_instr *instr, spmd_factors *f) { kept_dims(instr, f, (int[]){0, result_tensor(f)}, 2); }
static void update_slice(const hlo_instr *instr, spmd_factors *f)
{
  kept_dims(instr, f, (int[]){0, 1, result_tensor(f)}, 3);
  f->is_additive = true;
}

static void pad(const hlo_instr *instr, spmd_factors *f)
{
  for (int d = 0; d < instr->shape->rank; d++) {
    const hlo_pad_dim *p = &instr->u.pad.dims[d];
    int factor;
    if (p->low || p->high || p->interior) {
      moved_dim(f, d, 0, 2, p->interior == 0);
      continue;
    }
    factor = add_factor(f, instr->shape->dims[d]);
    use(f, 0, d, factor);
    use(f, 2, d, factor);
  }
  f->passes_through = true;
  f->is_linear = hlo_is_constant_scalar(instr->operands[1], 0); /* otherwise each part of a sum would be padded */
}

static void window(const hlo_instr *instr, spmd_factors *f)
{
  int cumulative = -1;
  bool reverse, can_fetch = instr->op == HLO_REDUCE_WINDOW && instr->operand_count == 2 &&
                            pass_is_identity(hlo_reducer_op(instr->called[0]),
                                             instr->operands[1]); /* the initial value also fills rows outside */

  if (instr->op == HLO_REDUCE_WINDOW && !spmd_parts_is_cumulative(instr, &cumulative, &reverse)) cumulative = -1;
  for (int d = 0; d < instr->u.window->rank; d++) {
    const hlo_window_dim *w = &instr->u.window->dims[d];
    int factor;
    if (w->size != 1 || w->stride != 1 || w->pad_low || w->pad_high || w->base_dilation != 1) {
      if (d == cumulative) own_rows(f, d, 2, (int[]){0, result_tensor(f)});
      else moved_dim(f, d, 0, result_tensor(f), can_fetch && w->base_dilation == 1);
      continue;
    }
    factor = add_factor(f, f->tensors[0].shape->dims[d]);
    for (int t = 0; t < f->tensor_count; t++)
      if (f->tensors[t].shape->rank == instr->u.window->rank) use(f, t, d, factor);
  }
}

static void reduce(const hlo_instr *instr, spmd_factors *f)
{
  int inputs = instr->operand_count / 2, kept = 0;
  hlo_opcode op = hlo_reducer_op(instr->called[0]);
  bool combines = inputs > 1 || (op != HLO_OPCODE_COUNT && pass_is_identity(op, instr->operands[1]));

  f->reducer = op;
  f->is_linear = op == HLO_ADD && inputs == 1 && combines;
  for (int d = 0; d < f->tensors[0].shape->rank; d++) {
    bool reduced = pass_ints_contain(instr->dims, d);
    int factor;
    if (reduced && !combines) continue;
    factor = add_factor(f, f->tensors[0].shape->dims[d]);
    f->factor[factor].is_reduced = reduced;
    f->factor[factor].in_parts = reduced && inputs > 1;
    for (int t = 0; t < inputs; t++) use(f, t, d, factor);
    if (reduced) continue;
    for (int t = f->operand_count; t < f->tensor_count; t++) use(f, t, kept, factor);
    kept++;
  }
}

static void dot(const hlo_instr *instr, spmd_factors *f)
{
  const hlo_dot_attrs *a = instr->u.dot;
  int out = 0;

  if (instr->operand_count != 2) return;
  f->reducer = HLO_ADD;
  f->is_linear = true;
  for (int i = 0; i < a->lhs_batch.count; i++) {
    int factor = add_factor(f, instr->shape->dims[out]);
    use(f, 0, a->lhs_batch.v[i], factor);
    use(f, 1, a->rhs_batch.v[i], factor);
    use(f, 2, out++, factor);
  }
  for (int side = 0; side < 2; side++)
    for (int d = 0; d < f->tensors[side].shape->rank; d++) {
      int factor;
      if (pass_ints_contain(side ? a->rhs_batch : a->lhs_batch, d) ||
          pass_ints_contain(side ? a->rhs_contracting : a->lhs_contracting, d))
        continue;
      factor = add_factor(f, instr->shape->dims[out]);
      use(f, side, d, factor);
      use(f, 2, out++, factor);
    }
  for (int i = 0; i < a->lhs_contracting.count; i++) {
    int factor = add_factor(f, f->tensors[0].shape->dims[a->lhs_contracting.v[i]]);
    f->factor[factor].is_reduced = true;
    use(f, 0, a->lhs_contracting.v[i], factor);
    use(f, 1, a->rhs_contracting.v[i], factor);
  }
}

/* Batch and features; for grouped convolutions, the groups; and spatial dimensions with the edges of their
 * neighbours. */
static void convolution(const hlo_instr *instr, spmd_factors *f)
{
  const hlo_conv_attrs *c = instr->u.conv;
  int64_t groups = c->feature_group_count;
  int factor;

  f->reducer = HLO_ADD;
  f->is_linear = true;
  for (int i = 0; i < c->lhs_spatial.count; i++)
    moved(f, 2, (int[]){0, 2}, (int64_t[]){c->lhs_spatial.v[i], c->out_spatial.v[i]},
          c->window.dims[i].base_dilation == 1);
  if (c->batch_group_count != 1) return;
  factor = add_factor(f, f->tensors[0].shape->dims[c->lhs_batch]);
  use(f, 0, c->lhs_batch, factor);
  use(f, 2, c->out_batch, factor);
  factor = add_factor(f, groups > 1 ? groups : instr->shape->dims[c->out_feature]);
  use(f, 1, c->rhs_out_feature, factor);
  use(f, 2, c->out_feature, factor);
  if (groups > 1) {
    use(f, 0, c->lhs_feature, factor);
    return;
  }
  factor = add_factor(f, f->tensors[0].shape->dims[c->lhs_feature]);
  f->factor[factor].is_reduced = true;
  use(f, 0, c->lhs_feature, factor);
  use(f, 1, c->rhs_in_feature, factor);
}

/* The n-th dimension of `rank` dimensions that is in neither list; -1 if there is none. */
static int nth_but(int rank, hlo_ints a, hlo_ints b, int n)
{
  for (int d = 0; d < rank; d++)
    if (!pass_ints_contain(a, d) && !pass_ints_contain(b, d) && n-- == 0) return d;
  return -1;
}

/* The dimension of the results (or updates) for dimension `d` of the indices, which is not that of the index vector. */
static int batch_dim(int rank, hlo_ints offset_dims, int64_t index_vector_dim, int d)
{
  return nth_but(rank, offset_dims, none, d > index_vector_dim ? d - 1 : d);
}

/* Shared by gather and scatter: `big` is indexed, `small` holds the slices. */
typedef struct indexing {
  int big, indices, small;
  hlo_ints window, collapsed, batching, index_batching;
  int64_t index_vector_dim;
  const int64_t *slice_sizes; /* NULL: the sizes of small */
} indexing;

static void index_factors(spmd_factors *f, const indexing *x, bool cut_indices, int also /* tensor like big, or -1 */)
{
  const hlo_shape *big = f->tensors[x->big].shape, *indices = f->tensors[x->indices].shape,
                  *small = f->tensors[x->small].shape;

  for (int i = 0; i < x->window.count; i++) {
    int d = nth_but(big->rank, x->collapsed, x->batching, i), factor;
    if (d < 0 || small->dims[x->window.v[i]] != big->dims[d]) continue;
    factor = add_factor(f, big->dims[d]);
    use(f, x->big, d, factor);
    use(f, x->small, x->window.v[i], factor);
    if (also >= 0) use(f, also, d, factor);
  }
  for (int d = 0; d < indices->rank; d++) {
    int to, factor, batch = -1;
    if (d == x->index_vector_dim || (to = batch_dim(small->rank, x->window, x->index_vector_dim, d)) < 0) continue;
    for (int i = 0; i < x->index_batching.count; i++)
      if (x->index_batching.v[i] == d) batch = (int)x->batching.v[i];
    if (batch < 0 && !cut_indices) continue;
    factor = add_factor(f, indices->dims[d]);
    f->factor[factor].is_reduced = batch < 0 && also >= 0; /* each partition scatters its part of the updates */
    use(f, x->indices, d, factor);
    use(f, x->small, to, factor);
    if (batch >= 0) use(f, x->big, batch, factor);
    if (batch >= 0 && also >= 0) use(f, also, batch, factor);
  }
}

/* The longest dimension from which single rows are taken; -1: there is none. */
static int longest_indexed(const hlo_instr *instr, hlo_ints single, hlo_ints map)
{
  const hlo_shape *shape = instr->operands[0]->shape;
  int longest = -1;

  for (int i = 0; i < map.count; i++)
    if (pass_ints_contain(single, map.v[i]) && spmd_parts_can_index(instr, 1, map.v[i]) &&
        (longest < 0 || shape->dims[map.v[i]] > shape->dims[longest]))
      longest = (int)map.v[i];
  return longest;
}

static void gather(const hlo_instr *instr, spmd_factors *f)
{
  const hlo_gather_attrs *g = instr->u.gather;
  indexing x = {.big = 0, .indices = 1, .small = 2, .window = g->offset_dims, .collapsed = g->collapsed_slice_dims,
                .batching = g->operand_batching_dims, .index_batching = g->start_indices_batching_dims,
                .index_vector_dim = g->index_vector_dim};
  int longest;

  f->is_linear = true;
  index_factors(f, &x, true, -1);
  if ((longest = longest_indexed(instr, g->collapsed_slice_dims, g->start_index_map)) >= 0)
    own_rows(f, longest, 1, (int[]){0});
}

static void scatter(const hlo_instr *instr, spmd_factors *f)
{
  const hlo_scatter_attrs *s = instr->u.scatter;
  indexing x = {.big = 0, .indices = 1, .small = 2, .window = s->update_window_dims, .collapsed = s->inserted_window_dims,
                .batching = s->input_batching_dims, .index_batching = s->scatter_indices_batching_dims,
                .index_vector_dim = s->index_vector_dim};

  if (instr->operand_count != 3) return;
  f->is_linear = f->is_additive = true;
  f->reducer = hlo_reducer_op(instr->called[0]);
  f->counted_once = 0;
  index_factors(f, &x, f->reducer == HLO_ADD && instr->shape->type != WEFT_PRED, 3);
  for (int i = 0; i < s->scatter_dims_to_operand_dims.count; i++) {
    int64_t d = s->scatter_dims_to_operand_dims.v[i];
    if (pass_ints_contain(s->inserted_window_dims, d) && spmd_parts_can_index(instr, 1, d))
      own_rows(f, d, 2, (int[]){0, 3});
  }
}

/* Matrices in the last two dimensions. The right-hand sides of a solve are independent too. */
static void matrices(const hlo_instr *instr, spmd_factors *f)
{
  int rank = instr->shape->rank;

  f->is_linear = false;
  for (int d = 0; d < rank - 2; d++) {
    int factor = add_factor(f, instr->shape->dims[d]);
    for (int t = 0; t < f->tensor_count; t++) use(f, t, d, factor);
  }
  if (instr->op == HLO_TRIANGULAR_SOLVE) {
    int d = instr->u.triangular.left_side ? rank - 1 : rank - 2, factor = add_factor(f, instr->shape->dims[d]);
    use(f, 1, d, factor);
    use(f, 2, d, factor);
  }
}

static void leading(spmd_factors *f, int count)
{
  for (int d = 0; d < count; d++) {
    int64_t size = f->tensors[0].shape->rank > d ? f->tensors[0].shape->dims[d] : 0;
    bool same = true;
    int factor;
    for (int t = 0; t < f->tensor_count; t++)
      same &= f->tensors[t].shape->rank > d && f->tensors[t].shape->dims[d] == size;
    if (!same) continue;
    factor = add_factor(f, size);
    for (int t = 0; t < f->tensor_count; t++) use(f, t, d, factor);
  }
}

static void fft(const hlo_instr *instr, spmd_factors *f)
{
  f->is_linear = true;
  leading(f, instr->shape->rank - instr->dims.count);
  for (int d = instr->shape->rank - instr->dims.count; d < instr->shape->rank; d++) moved_dim(f, d, 0, 1, false);
}
static void topk(const hlo_instr *instr, spmd_factors *f) { leading(f, instr->operands[0]->shape->rank - 1); }

/* A call with a sharding rule, or with a frontend attribute that says how many of its leading dimensions are a
 * batch. */
static void custom_call(const hlo_instr *instr, spmd_factors *f)
{
  const char *batch = hlo_frontend_attribute(instr, "num_batch_dims"),
             *rule = hlo_frontend_attribute(instr, "xla.sdy.sharding_rule");
  bool custom = spmd_custom_of(instr) != NULL;
  static const char *const markers[] = {"Sharding", "LayoutConstraint", "annotate_device_placement", "MoveToHost", "MoveToDevice",
                                        "InspectSharding"};

  if (rule && (custom || !batch) && spmd_rule_factors(rule, f)) {
    for (int i = 0; i < f->count; i++) f->factor[i].is_moved |= !custom; /* foreign code does not know about tiles */
    return;
  }
  for (size_t i = 0; i < WEFT_COUNT(markers); i++)
    if (strcmp(instr->u.custom->target, markers[i]) == 0 && instr->operand_count == 1) {
      identity(instr, f);
      return;
    }
  if (strcmp(instr->u.custom->target, "TopK") == 0 && instr->operand_count == 1) {
    leading(f, instr->operands[0]->shape->rank - 1);
  } else if (batch) {
    leading(f, WEFT_MIN(atoi(batch), HLO_MAX_RANK));
  }
}

/* Collectives between partitions of a manual region: if they are cut along other axes, each part communicates for
 * itself. */
static void collective(const hlo_instr *instr, spmd_factors *f)
{
  (void)instr;
  f->passes_through = true;
  for (int i = 0; i < f->operand_count && f->tensor_count == 2 * f->operand_count; i++) {
    const hlo_shape *shape = f->tensors[i].shape;
    for (int d = 0; d < shape->rank && f->count < SPMD_MAX_FACTORS; d++) {
      int factor;
      if (instr->op != HLO_ALL_REDUCE && pass_ints_contain(instr->dims, d)) continue;
      factor = add_factor(f, shape->dims[d]);
      use(f, i, d, factor);
      use(f, f->operand_count + i, d, factor);
    }
  }
}

static void all_to_all(const hlo_instr *instr, spmd_factors *f)
{
  if (instr->operand_count == 1 && instr->dims.count == 1) collective(instr, f);
}

static const struct { hlo_opcode op; factor_rule *rule; } rules[] = {
    {HLO_ALL_GATHER, collective}, {HLO_ALL_REDUCE, collective}, {HLO_ALL_TO_ALL, all_to_all}, {HLO_BITCAST, bitcast},
    {HLO_BITCAST_CONVERT, bitcast_convert},
    {HLO_BROADCAST, broadcast}, {HLO_CHOLESKY, matrices}, {HLO_COLLECTIVE_BROADCAST, collective},
    {HLO_COLLECTIVE_PERMUTE, collective}, {HLO_CONCATENATE, all_but_dims}, {HLO_CONSTANT, nullary},
    {HLO_CONVOLUTION, convolution}, {HLO_CUSTOM_CALL, custom_call}, {HLO_DOT, dot}, {HLO_DYNAMIC_SLICE, slice},
    {HLO_DYNAMIC_UPDATE_SLICE, update_slice}, {HLO_FFT, fft}, {HLO_GATHER, gather}, {HLO_IOTA, nullary}, {HLO_MAP, elementwise},
    {HLO_PAD, pad}, {HLO_REDUCE, reduce}, {HLO_REDUCE_SCATTER, collective}, {HLO_REDUCE_WINDOW, window}, {HLO_RESHAPE, reshape},
    {HLO_REVERSE, reverse}, {HLO_SCATTER, scatter}, {HLO_SELECT_AND_SCATTER, window}, {HLO_SLICE, slice}, {HLO_SORT, all_but_dims},
    {HLO_TOPK, topk}, {HLO_TRANSPOSE, transpose}, {HLO_TRIANGULAR_SOLVE, matrices},
};

static bool is_array_leaf(const hlo_shape *shape) { return hlo_shape_is_array(shape); }

static weft_status *new_factors(int operand_count, int tensor_count, weft_arena *arena, spmd_factors *out)
{
  *out = (spmd_factors){
    .operand_count = operand_count, .tensor_count = tensor_count, .reducer = HLO_OPCODE_COUNT, .counted_once = -1};
  out->tensors = WEFT_ARENA_ARRAY(arena, spmd_tensor, tensor_count);
  WEFT_TRY_ALLOC(out->tensors);
  for (int t = 0; t < tensor_count; t++) {
    out->tensors[t].uses = WEFT_ARENA_ARRAY(arena, spmd_use, MAX_USES);
    WEFT_TRY_ALLOC(out->tensors[t].uses);
  }
  return NULL;
}

weft_status *spmd_factors_of(const hlo_instr *instr, weft_arena *arena, spmd_factors *out)
{
  bool is_tuple = hlo_shape_is_tuple(instr->shape), arrays = true;
  int results = is_tuple ? instr->shape->rank : 1;

  WEFT_TRY(new_factors(instr->operand_count, instr->operand_count + results, arena, out));
  for (int i = 0; i < instr->operand_count; i++) {
    out->tensors[i].shape = instr->operands[i]->shape;
    arrays &= is_array_leaf(out->tensors[i].shape);
  }
  for (int i = 0; i < results; i++) {
    out->tensors[instr->operand_count + i].shape = is_tuple ? instr->shape->elements[i] : instr->shape;
    arrays &= is_array_leaf(out->tensors[instr->operand_count + i].shape);
  }
  if (!arrays || results == 0) return NULL;
  if (hlo_opcode_is_elementwise(instr->op)) {
    elementwise(instr, out);
    return NULL;
  }
  for (size_t i = 0; i < WEFT_COUNT(rules); i++)
    if (rules[i].op == instr->op) rules[i].rule(instr, out);
  return NULL;
}

weft_status *spmd_factors_alike(const hlo_shape *shape, int tensor_count, weft_arena *arena, spmd_factors *out)
{
  WEFT_TRY(new_factors(tensor_count - 1, tensor_count, arena, out));
  for (int t = 0; t < tensor_count; t++) out->tensors[t].shape = shape;
  out->passes_through = out->is_linear = true;
  same_dims(out, shape->rank, none);
  return NULL;
}

/* ---- axes of factors --------------------------------------------------------------------------------------------- */

void spmd_factor_axes(const spmd_grid *grid, const spmd_factors *f, int t, const spmd_sharding *s, spmd_axes *out_axes)
{
  const spmd_tensor *tensor = &f->tensors[t];
  int dim = -1, at = 0;
  bool open = true; /* the factors of this dimension so far are cut completely */

  for (int i = 0; i < f->count; i++) out_axes[i].count = 0;
  for (int u = 0; u < tensor->use_count; u++) {
    spmd_axes *axes = &out_axes[tensor->uses[u].factor];
    int64_t left = f->factor[tensor->uses[u].factor].size;
    if (tensor->uses[u].dim != dim) {
      dim = tensor->uses[u].dim;
      at = 0;
      open = true;
    }
    while (open && at < s->dims[dim].count && left % grid->sizes[s->dims[dim].v[at]] == 0) {
      left /= grid->sizes[s->dims[dim].v[at]];
      spmd_axes_push(axes, s->dims[dim].v[at++]);
    }
    open &= left == 1;
    if (f->factor[tensor->uses[u].factor].is_moved && at < s->dims[dim].count) axes->count = 0; /* all or nothing */
  }
}

bool spmd_factor_sharding(const spmd_grid *grid, const spmd_factors *f, int t, const spmd_axes *axes,
                          spmd_sharding *out, int *out_factor)
{
  const spmd_tensor *tensor = &f->tensors[t];
  int dim = -1;
  bool open = true;

  for (int d = 0; d < out->rank; d++) out->dims[d].count = 0;
  for (int u = 0; u < tensor->use_count; u++) {
    int factor = tensor->uses[u].factor;
    if (tensor->uses[u].dim != dim) {
      dim = tensor->uses[u].dim;
      open = true;
    }
    *out_factor = factor;
    if (!open && axes[factor].count) return false;
    for (int i = 0; i < axes[factor].count; i++) spmd_axes_push(&out->dims[dim], axes[factor].v[i]);
    open &= spmd_axes_size(grid, &axes[factor], 0) == f->factor[factor].size;
  }
  return true;
}
