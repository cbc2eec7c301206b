/* passes/conv_patches.c -- conv-patches: convolutions that a GPU's library does not have become
 * products of patches: all convolutions where the library is not installed (pass_options.has_dnn), and
 * those of other element types than floats.
 *
 *   patches[n, o, r, c] = x[n, o * stride + r * dilation, c]     a slice of the padded x for each position r
 *   y[n, o, k] = sum over r, c of patches * w[r, c, k]           a dot
 *   w[r, c, k] = sum over n, o of patches * y                    a dot, for the gradient of the filter
 *
 * Groups are a batch dimension of the dot.  Patches take as many times the memory of x as the window has positions; a
 * window of more than MOST_POSITIONS is left as it is. */
#include <config.h>

#include "passes/build.h"
#include "passes/convolution.h"
#include "passes/passes.h"

enum { MOST_POSITIONS = 400, /* operands of one concatenate */ MOST_RANK = HLO_MAX_RANK - 3 };

typedef struct patches {
  pass_build b;
  const hlo_instr *conv;
  int spatial;
  bool is_filter;        /* the result is the filter, the rhs is the output of the product */
  int64_t groups;
  int64_t n, c, k, positions, places;            /* places: of the window on x */
  int64_t size[MOST_RANK], out[MOST_RANK], stride[MOST_RANK], dilation[MOST_RANK];
} patches;

static bool library_has(const hlo_instr *conv)
{
  weft_dtype type = conv->shape->type;
  pass_conv c;

  for (int i = 0; i < 2; i++)
    if (conv->operands[i]->shape->type != type) return false;
  return (type == WEFT_F16 || type == WEFT_BF16 || type == WEFT_F32 || type == WEFT_F64) && pass_conv_read(conv, &c);
}

/* Do the padded x and the patches have sizes that a shape can have? */
static bool sizes_fit(const patches *p)
{
  const hlo_conv_attrs *a = p->conv->u.conv;
  const hlo_shape *lhs = p->conv->operands[0]->shape;
  double each = (double)p->n * (double)p->c * (double)weft_dtype_bytes(lhs->type), padded = each, all = each;

  for (int i = 0; i < p->spatial; i++) {
    const hlo_window_dim *d = &a->window.dims[i];
    double size = (double)lhs->dims[a->lhs_spatial.v[i]];
    if (size > 0) size = (size - 1) * (double)d->base_dilation + 1;
    size += (double)d->pad_low + (double)d->pad_high;
    padded *= size > 1 ? size : 1;
    all *= (double)p->size[i] * (double)p->out[i];
  }
  return padded < 0x1p62 && all < 0x1p62;
}

/* The window as it slides over x, whichever of the three arrays is computed. */
static bool read(hlo_instr *conv, patches *p)
{
  const hlo_conv_attrs *a = conv->u.conv;
  const int64_t *lhs = conv->operands[0]->shape->dims, *out = conv->shape->dims;
  double window = 1, places = 1;

  *p = (patches){.b = PASS_BUILD_AT(conv), .conv = conv, .spatial = a->window.rank, .positions = 1, .places = 1};
  if (a->sparsity || p->spatial > MOST_RANK) return false;
  for (int i = 0; i < p->spatial; i++)
    window *= (double)a->window.dims[i].size, places *= (double)out[a->out_spatial.v[i]];
  p->is_filter = a->batch_group_count > 1 || (a->feature_group_count == 1 && window > places);
  p->groups = p->is_filter ? a->batch_group_count : a->feature_group_count;
  p->n = lhs[p->is_filter ? a->lhs_feature : a->lhs_batch];
  p->c = lhs[p->is_filter ? a->lhs_batch : a->lhs_feature];
  p->k = out[a->out_feature];
  for (int i = 0; i < p->spatial; i++) {
    const hlo_window_dim *d = &a->window.dims[i];
    int64_t there = out[a->out_spatial.v[i]];
    p->size[i] = p->is_filter ? there : d->size;
    p->out[i] = p->is_filter ? d->size : there;
    p->stride[i] = p->is_filter ? d->window_dilation : d->stride;
    p->dilation[i] = p->is_filter ? d->stride : d->window_dilation;
    if (p->size[i] < 1 || p->out[i] < 1) return false; /* a window of no elements: the sums are empty */
    p->places *= p->out[i];
    if (p->size[i] > MOST_POSITIONS || (p->positions *= p->size[i]) > MOST_POSITIONS) return false;
  }
  return sizes_fit(p);
}

/* Dimensions [first, spatial..., last], of an array whose dimensions those are. */
static hlo_instr *ordered(patches *p, hlo_instr *x, int64_t first, hlo_ints spatial, int64_t last)
{
  int64_t order[HLO_MAX_RANK];

  order[0] = first;
  for (int i = 0; i < p->spatial; i++) order[i + 1] = spatial.v[i];
  order[p->spatial + 1] = last;
  return pb_transpose(&p->b, x, order);
}

/* The rhs [in feature, spatial..., out feature], read forwards. */
static hlo_instr *forward_rhs(patches *p)
{
  const hlo_conv_attrs *a = p->conv->u.conv;
  hlo_instr *rhs = ordered(p, p->conv->operands[1], a->rhs_in_feature, a->rhs_spatial, a->rhs_out_feature);
  int64_t reversed[HLO_MAX_RANK];
  int count = 0;

  for (int i = 0; i < p->spatial; i++)
    if (a->window.dims[i].reversal) reversed[count++] = i + 1;
  if (count == 0) return rhs;
  hlo_instr *out = pb_op1(&p->b, HLO_REVERSE, rhs);
  if (out) out->dims = pb_ints(&p->b, count, reversed);
  return out;
}

/* The lhs [n, spatial..., c], with its padding and base dilation. */
static hlo_instr *padded_lhs(patches *p)
{
  const hlo_conv_attrs *a = p->conv->u.conv;
  hlo_instr *x = p->is_filter ? ordered(p, p->conv->operands[0], a->lhs_feature, a->lhs_spatial, a->lhs_batch)
                              : ordered(p, p->conv->operands[0], a->lhs_batch, a->lhs_spatial, a->lhs_feature);
  hlo_pad_dim pads[HLO_MAX_RANK] = {0};
  bool is_needed = false;

  for (int i = 0; i < p->spatial; i++) {
    const hlo_window_dim *d = &a->window.dims[i];
    is_needed |= d->pad_low || d->pad_high || d->base_dilation != 1;
    pads[i + 1] = (hlo_pad_dim){d->pad_low, d->pad_high, d->base_dilation - 1};
  }
  return is_needed ? pb_pad(&p->b, x, pb_scalar(&p->b, p->conv->operands[0]->shape->type, 0), pads) : x;
}

/* The elements of x at position `r` of the window, as [n * places, 1, c]. */
static hlo_instr *slice_at(patches *p, hlo_instr *x, const int64_t *r)
{
  int64_t starts[HLO_MAX_RANK] = {0}, limits[HLO_MAX_RANK], strides[HLO_MAX_RANK],
          flat[] = {p->n * p->places, 1, p->c};
  hlo_instr *slice = NULL;

  if (p->b.error) return NULL;
  for (int d = 0; d < p->spatial + 2; d++) limits[d] = x->shape->dims[d], strides[d] = 1;
  for (int i = 0; i < p->spatial; i++) {
    starts[i + 1] = r[i] * p->dilation[i];
    limits[i + 1] = starts[i + 1] + (p->out[i] - 1) * p->stride[i] + 1;
    strides[i + 1] = p->stride[i];
  }
  p->b.error = hlo_add_slice(p->b.comp, p->b.before, x, starts, limits, strides, &slice);
  return pb_reshape(&p->b, slice, 3, flat);
}

/* [n * places, positions, c] */
static hlo_instr *all_patches(patches *p)
{
  hlo_instr *parts[MOST_POSITIONS], *x = padded_lhs(p);
  int64_t r[MOST_RANK] = {0};
  int count = 0;

  for (bool more = true; more && !p->b.error;) {
    parts[count++] = slice_at(p, x, r);
    int d = p->spatial - 1;
    while (d >= 0 && ++r[d] == p->size[d]) r[d--] = 0;
    more = d >= 0;
  }
  return count == 1 ? parts[0] : pb_concat(&p->b, 1, count, parts);
}

static hlo_instr *multiply(patches *p, hlo_instr *lhs, hlo_instr *rhs, int batch, hlo_ints lhs_contracting,
                           hlo_ints rhs_contracting, int64_t lhs_batch, int64_t rhs_batch, int rank,
                           const int64_t *dims)
{
  weft_arena *arena = &p->b.comp->module->arena;
  const hlo_conv_attrs *a = p->conv->u.conv;
  hlo_instr *dot =
    pb_instr(&p->b, HLO_DOT, hlo_shape_array(arena, p->conv->shape->type, rank, dims), 2, (hlo_instr *[]){lhs, rhs});
  hlo_dot_attrs *attrs = WEFT_ARENA_NEW(arena, hlo_dot_attrs);

  if (!p->b.error && !attrs) p->b.error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (p->b.error) return NULL;
  attrs->lhs_contracting = lhs_contracting;
  attrs->rhs_contracting = rhs_contracting;
  attrs->lhs_batch = pb_ints(&p->b, batch, &lhs_batch);
  attrs->rhs_batch = pb_ints(&p->b, batch, &rhs_batch);
  attrs->precision_count = a->precision_count;
  attrs->precision = a->precision;
  dot->u.dot = attrs;
  return dot;
}

/* y as [n * places, k] */
static hlo_instr *product(patches *p)
{
  int64_t m = p->n * p->places, g = p->groups, cg = p->c / g, kg = p->k / g;
  int64_t seen[] = {m, p->positions, g, cg}, filter[] = {cg, p->positions, g, kg}, out[] = {g, m, kg}, flat[] = {m, p->k};
  hlo_instr *x = pb_reshape(&p->b, all_patches(p), 4, seen), *w = pb_reshape(&p->b, forward_rhs(p), 4, filter);
  /* x [m, r, g, cg], w [cg, r, g, kg] */
  hlo_instr *y =
    multiply(p, x, w, 1, pb_ints(&p->b, 2, (int64_t[]){1, 3}), pb_ints(&p->b, 2, (int64_t[]){1, 0}), 2, 2, 3, out);

  return pb_reshape(&p->b, pb_transpose(&p->b, y, (int64_t[]){1, 0, 2}), 2, flat);
}

/* w as [positions, c / groups, k] */
static hlo_instr *gradient(patches *p)
{
  int64_t m = p->n * p->places, g = p->groups, cg = p->c / g, kg = p->k / g;
  int64_t seen[] = {m, p->positions, g, cg}, product_dims[] = {m, g, kg}, out[] = {g, p->positions, cg, kg},
          flat[] = {p->positions, cg, p->k};
  hlo_instr *x = pb_reshape(&p->b, all_patches(p), 4, seen), *y = pb_reshape(&p->b, forward_rhs(p), 3, product_dims);
  hlo_instr *w =
    multiply(p, x, y, 1, pb_ints(&p->b, 1, (int64_t[]){0}), pb_ints(&p->b, 1, (int64_t[]){0}), 2, 1, 4, out);

  return pb_reshape(&p->b, pb_transpose(&p->b, w, (int64_t[]){1, 2, 0, 3}), 3, flat);
}

/* The result, whose dimensions are [first, spatial..., last] or, of a filter, [spatial...,
 * first, last], as those of the convolution. */
static hlo_instr *arranged(patches *p, hlo_instr *x)
{
  const hlo_conv_attrs *a = p->conv->u.conv;
  const int64_t *out = p->conv->shape->dims;
  int64_t dims[HLO_MAX_RANK], back[HLO_MAX_RANK];
  int rank = 0;

  if (!p->is_filter) back[a->out_batch] = rank, dims[rank++] = p->n;
  for (int i = 0; i < p->spatial; i++) back[a->out_spatial.v[i]] = rank, dims[rank++] = out[a->out_spatial.v[i]];
  if (p->is_filter) back[a->out_batch] = rank, dims[rank++] = out[a->out_batch];
  back[a->out_feature] = rank, dims[rank++] = p->k;
  return pb_transpose(&p->b, pb_reshape(&p->b, x, rank, dims), back);
}

static weft_status *conv_patches_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;
  patches p;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(conv, comps.v[i]) {
      if (conv->op != HLO_CONVOLUTION || (ctx->options->has_dnn && library_has(conv)) || pass_has_control_edges(conv) ||
          !read(conv, &p))
        continue;
      *changed = true;
      WEFT_TRY(pass_build_replace(&p.b, conv, arranged(&p, p.is_filter ? gradient(&p) : product(&p))));
    }
  return NULL;
}
const hlo_pass pass_conv_patches = {"conv-patches", conv_patches_run};
