/* passes/conv_canonicalizer.c -- conv-canonicalizer: every convolution takes a form that convolution libraries have, if
 * there is one (convolution.h).
 *
 *   the gradient of a transposed convolution's filter exchanges its operands, so that it is the gradient of a filter
 *   padding and base dilation that no library has become a pad of the lhs
 *   a window that is reversed in some dimensions only becomes a reverse of the rhs
 *   the dimensions of all three arrays come into the same order, channels last or channels first, by transposes: the
 *   order whose channels lie where those of the lhs lie
 *
 * A convolution without such a form (more than three spatial dimensions, sparsity) stays as it is. */
#include <config.h>

#include "passes/build.h"
#include "passes/convolution.h"
#include "passes/passes.h"

/* ---- reading ---- */

/* The size of y by the sizes of x and w; 0 if the window does not fit. */
static int64_t output_size(int64_t x, int64_t w, int64_t pad, int64_t stride, int64_t dilation)
{
  int64_t room = x + 2 * pad - ((w - 1) * dilation + 1);
  return room < 0 ? 0 : room / stride + 1;
}

static pass_conv_kind kind_of(const hlo_instr *conv)
{
  const hlo_conv_attrs *a = conv->u.conv;
  double window = 1, out = 1;
  bool is_plain = a->feature_group_count == 1;

  /* the form of the gradient of the filter of a grouped product */
  if (a->batch_group_count != 1) return PASS_CONV_FILTER;

  for (int i = 0; i < a->window.rank; i++) {
    const hlo_window_dim *d = &a->window.dims[i];
    if (d->base_dilation > 1) return PASS_CONV_DATA;
    if (d->reversal) is_plain = false;
    window *= (double)d->size;
    out *= (double)conv->shape->dims[a->out_spatial.v[i]];
  }
  return is_plain && window > out ? PASS_CONV_FILTER : PASS_CONV_FORWARD;
}

/* The roles of the dimensions, and the sizes of n, c and k. */
static void read_roles(const hlo_instr *conv, pass_conv *c)
{
  const hlo_conv_attrs *a = conv->u.conv;
  const int64_t *lhs = conv->operands[0]->shape->dims, *out = conv->shape->dims;

  c->lhs = (pass_conv_array){a->lhs_batch, a->lhs_feature, a->lhs_spatial.v};
  c->rhs = (pass_conv_array){a->rhs_in_feature, a->rhs_out_feature, a->rhs_spatial.v};
  c->out = (pass_conv_array){a->out_batch, a->out_feature, a->out_spatial.v};
  c->n = lhs[a->lhs_batch];
  c->c = lhs[a->lhs_feature];
  c->k = out[a->out_feature];
  switch (c->kind) {
  case PASS_CONV_FORWARD:
    c->rhs.outer = a->rhs_out_feature;
    c->rhs.channel = a->rhs_in_feature;
    break;
  case PASS_CONV_DATA:
    c->c = out[a->out_feature];
    c->k = lhs[a->lhs_feature];
    break;
  case PASS_CONV_FILTER:
    c->lhs = (pass_conv_array){a->lhs_feature, a->lhs_batch, a->lhs_spatial.v};
    c->out = (pass_conv_array){a->out_feature, a->out_batch, a->out_spatial.v};
    c->n = lhs[a->lhs_feature];
    c->c = lhs[a->lhs_batch];
    break;
  }
}

/* Sizes, padding and steps of one spatial dimension; false: the kind does not have such a dimension. */
static bool read_spatial(const hlo_instr *conv, int i, pass_conv *c)
{
  const hlo_conv_attrs *a = conv->u.conv;
  const hlo_window_dim *d = &a->window.dims[i];
  int64_t lhs = conv->operands[0]->shape->dims[a->lhs_spatial.v[i]], out = conv->shape->dims[a->out_spatial.v[i]];

  switch (c->kind) {
  case PASS_CONV_FORWARD:
    c->x_size[i] = lhs, c->w_size[i] = d->size, c->y_size[i] = out;
    c->pad[i] = d->pad_low, c->stride[i] = d->stride, c->dilation[i] = d->window_dilation;
    if (d->base_dilation != 1) return false;
    break;
  case PASS_CONV_DATA:
    c->x_size[i] = out, c->w_size[i] = d->size, c->y_size[i] = lhs;
    c->pad[i] = (d->size - 1) * d->window_dilation - d->pad_low;
    c->stride[i] = d->base_dilation, c->dilation[i] = d->window_dilation;
    if (d->stride != 1) return false;
    break;
  case PASS_CONV_FILTER:
    c->x_size[i] = lhs, c->w_size[i] = out, c->y_size[i] = d->size;
    c->pad[i] = d->pad_low, c->stride[i] = d->window_dilation, c->dilation[i] = d->stride;
    if (d->base_dilation != 1 || d->reversal) return false;
    break;
  }
  return c->pad[i] >= 0 &&
         output_size(c->x_size[i], c->w_size[i], c->pad[i], c->stride[i], c->dilation[i]) == c->y_size[i];
}

static bool read_as(const hlo_instr *conv, pass_conv_kind kind, pass_conv *c)
{
  const hlo_conv_attrs *a = conv->u.conv;

  bool is_filter = kind == PASS_CONV_FILTER;
  int64_t other_groups = is_filter ? a->feature_group_count : a->batch_group_count;

  *c = (pass_conv){
    .kind = kind, .spatial = a->window.rank, .groups = is_filter ? a->batch_group_count : a->feature_group_count};
  if (other_groups != 1 || a->sparsity || a->window.rank > PASS_CONV_SPATIAL) return false;
  if (kind == PASS_CONV_DATA && c->groups != 1) return false;
  read_roles(conv, c);
  for (int i = 0; i < a->window.rank; i++) {
    if (a->window.dims[i].reversal != a->window.dims[0].reversal) return false;
    if (!read_spatial(conv, i, c)) return false;
  }
  bool reversal = a->window.rank && a->window.dims[0].reversal;
  /* the gradient of the input reads the filter backwards where the product itself reads it forwards */
  c->reversed = kind == PASS_CONV_DATA ? !reversal : reversal;
  return true;
}

bool pass_conv_read(const hlo_instr *conv, pass_conv *out_conv)
{
  pass_conv_kind kind = kind_of(conv);

  return read_as(conv, kind, out_conv) || (kind == PASS_CONV_FILTER && read_as(conv, PASS_CONV_FORWARD, out_conv));
}

/* The dimensions in the order of libraries. */
static void order_of(const pass_conv *conv, const pass_conv_array *array, bool channels_last, int64_t *order)
{
  int rank = 0;

  order[rank++] = array->outer;
  if (!channels_last) order[rank++] = array->channel;
  for (int i = 0; i < conv->spatial; i++) order[rank++] = array->spatial[i];
  if (channels_last) order[rank++] = array->channel;
}

bool pass_conv_is_ordered(const pass_conv *conv, const pass_conv_array *array, bool channels_last)
{
  int64_t order[PASS_CONV_SPATIAL + 2];

  order_of(conv, array, channels_last, order);
  for (int i = 0; i < conv->spatial + 2; i++)
    if (order[i] != i) return false;
  return true;
}

/* ---- rewriting ---- */

/* A copy of the convolution's attributes with a window of its own. */
static hlo_conv_attrs *copy_attrs(weft_arena *arena, const hlo_conv_attrs *a, hlo_window_dim **out_dims)
{
  hlo_conv_attrs *attrs = weft_arena_memdup(arena, a, sizeof *a);

  *out_dims = weft_arena_memdup(arena, a->window.dims, (size_t)a->window.rank * sizeof **out_dims);
  if (!attrs || !*out_dims) return NULL;
  attrs->window.dims = *out_dims;
  return attrs;
}

static hlo_instr *conv_of(pass_build *b, const hlo_shape *shape, hlo_instr *lhs, hlo_instr *rhs, const hlo_instr *like,
                          const hlo_conv_attrs *attrs)
{
  hlo_instr *conv = pb_instr(b, HLO_CONVOLUTION, shape, 2, (hlo_instr *[]){lhs, rhs});

  if (!conv) return NULL;
  conv->u.conv = attrs;
  conv->extra = like->extra;
  conv->metadata = like->metadata;
  return conv;
}

/* True if the padded array has a size that a shape can have. */
static bool pad_fits(const hlo_shape *x, const hlo_pad_dim *pads)
{
  int64_t dims[HLO_MAX_RANK];
  hlo_shape padded = *x;

  for (int i = 0; i < x->rank; i++)
    dims[i] = x->dims[i] + pads[i].low + pads[i].high + (x->dims[i] > 0 ? (x->dims[i] - 1) * pads[i].interior : 0);
  padded.dims = dims;
  return hlo_shape_is_sane(&padded);
}

/* Padding and base dilation of the window become a pad of the lhs.  *out_conv is the new convolution; NULL: the
 * convolution has neither, or the padded array would be too large. */
static weft_status *pad_lhs(hlo_instr *conv, hlo_instr **out_conv)
{
  weft_arena *arena = &conv->parent->module->arena;
  const hlo_conv_attrs *a = conv->u.conv;
  hlo_pad_dim pads[HLO_MAX_RANK] = {0};
  hlo_window_dim *dims;
  bool is_needed = false;
  pass_build b = PASS_BUILD_AT(conv);
  hlo_conv_attrs *attrs = copy_attrs(arena, a, &dims);

  *out_conv = NULL;
  WEFT_TRY_ALLOC(attrs);
  for (int i = 0; i < a->window.rank; i++) {
    hlo_window_dim *d = &dims[i];
    is_needed |= d->pad_low != 0 || d->pad_high != 0 || d->base_dilation != 1;
    pads[a->lhs_spatial.v[i]] = (hlo_pad_dim){d->pad_low, d->pad_high, d->base_dilation - 1};
    d->pad_low = d->pad_high = 0;
    d->base_dilation = 1;
  }
  if (!is_needed || !pad_fits(conv->operands[0]->shape, pads)) return NULL;
  hlo_instr *padded = pb_pad(&b, conv->operands[0], pb_scalar(&b, conv->operands[0]->shape->type, 0), pads);
  *out_conv = conv_of(&b, conv->shape, padded, conv->operands[1], conv, attrs);
  return pass_build_replace(&b, conv, *out_conv);
}

/* True if the convolution is the gradient of a transposed convolution's filter: the lhs has base dilation,
 * the rhs is the gradient of the output, which is a larger array still, and the result is the small filter. */
static bool is_transposed_filter(const hlo_instr *conv)
{
  const hlo_conv_attrs *a = conv->u.conv;
  double lhs = 1, window = 1, out = 1;
  bool is_dilated = false;

  if (a->batch_group_count != 1 || a->feature_group_count != 1 || a->sparsity) return false;
  for (int i = 0; i < a->window.rank; i++) {
    const hlo_window_dim *d = &a->window.dims[i];
    if (d->reversal || d->window_dilation != 1) return false;
    is_dilated |= d->base_dilation > 1;
    lhs *= (double)conv->operands[0]->shape->dims[a->lhs_spatial.v[i]];
    window *= (double)d->size;
    out *= (double)conv->shape->dims[a->out_spatial.v[i]];
  }
  return is_dilated && out > 0 && lhs > out && window > out;
}

/* The window when the operands are exchanged.  In one dimension, with base dilation b and stride s,
 *
 *   out[r] = sum over j of lhs[j] * rhs[j * b + low - r * s]
 *
 * which is, from the last r backwards, a window over the rhs with window dilation b, stride s and the padding
 * (size of out - 1) * s - low.  `pads` is that padding as a pad of the rhs. */
static void exchange_window(const hlo_instr *conv, hlo_window_dim *dims, hlo_pad_dim *pads)
{
  const hlo_conv_attrs *a = conv->u.conv;

  for (int i = 0; i < a->window.rank; i++) {
    const hlo_window_dim *d = &a->window.dims[i];
    int64_t lhs = conv->operands[0]->shape->dims[a->lhs_spatial.v[i]];
    int64_t reach = (conv->shape->dims[a->out_spatial.v[i]] - 1) * d->stride;
    int64_t low = reach - d->pad_low, high = reach + (lhs - 1) * d->base_dilation + 1 - d->size - low;
    dims[i].size = lhs;
    dims[i].pad_low = low, dims[i].pad_high = high;
    dims[i].window_dilation = d->base_dilation, dims[i].base_dilation = 1;
    pads[a->rhs_spatial.v[i]] = (hlo_pad_dim){low, high, 0};
  }
}

/* Exchanges the operands of such a gradient: libraries would take it for the gradient of an input by a filter that is
 * as large as an image.  *out_conv is the new convolution, whose result is read backwards; NULL: there is none. */
static weft_status *exchange_operands(hlo_instr *conv, hlo_instr **out_conv)
{
  weft_arena *arena = &conv->parent->module->arena;
  const hlo_conv_attrs *a = conv->u.conv;
  hlo_pad_dim pads[HLO_MAX_RANK] = {0};
  hlo_window_dim *dims;
  pass_build b = PASS_BUILD_AT(conv);

  *out_conv = NULL;
  if (!is_transposed_filter(conv)) return NULL;
  hlo_conv_attrs *attrs = copy_attrs(arena, a, &dims);
  WEFT_TRY_ALLOC(attrs);
  exchange_window(conv, dims, pads);
  if (!pad_fits(conv->operands[1]->shape, pads)) return NULL;
  attrs->lhs_batch = a->rhs_out_feature, attrs->lhs_feature = a->rhs_in_feature, attrs->lhs_spatial = a->rhs_spatial;
  attrs->rhs_out_feature = a->lhs_batch, attrs->rhs_in_feature = a->lhs_feature, attrs->rhs_spatial = a->lhs_spatial;
  attrs->out_batch = a->out_feature, attrs->out_feature = a->out_batch;
  if (a->precision_count == 2) {
    hlo_precision swapped[] = {a->precision[1], a->precision[0]};
    attrs->precision = weft_arena_memdup(arena, swapped, sizeof swapped);
    WEFT_TRY_ALLOC(attrs->precision);
  }
  *out_conv = conv_of(&b, conv->shape, conv->operands[1], conv->operands[0], conv, attrs);
  hlo_instr *result = pb_op1(&b, HLO_REVERSE, *out_conv);
  if (result) result->dims = pb_ints(&b, a->window.rank, a->out_spatial.v);
  return pass_build_replace(&b, conv, result);
}

/* The dimensions in which the window is reversed: all of them, or, if `is_mixed`, only some. */
static int reversed_dims(const hlo_conv_attrs *a, int64_t *dims, bool *is_mixed)
{
  int count = 0;

  for (int i = 0; i < a->window.rank; i++)
    if (a->window.dims[i].reversal) dims[count++] = a->rhs_spatial.v[i];
  *is_mixed = count > 0 && count < a->window.rank;
  return count;
}

/* Libraries read a filter backwards in all dimensions or in none, and an output in none: a window that is
 * reversed in some dimensions, or whose rhs is an output, becomes a reverse of the rhs.  *out_conv is the new
 * convolution; NULL: there is no such window. */
static weft_status *reverse_rhs(hlo_instr *conv, hlo_instr **out_conv)
{
  weft_arena *arena = &conv->parent->module->arena;
  int64_t reversed[HLO_MAX_RANK];
  bool is_mixed;
  int count = reversed_dims(conv->u.conv, reversed, &is_mixed);
  pass_build b = PASS_BUILD_AT(conv);
  hlo_window_dim *dims;

  *out_conv = NULL;
  if (!is_mixed && (count == 0 || conv->u.conv->batch_group_count == 1)) return NULL;
  hlo_conv_attrs *attrs = copy_attrs(arena, conv->u.conv, &dims);
  WEFT_TRY_ALLOC(attrs);
  for (int i = 0; i < attrs->window.rank; i++) dims[i].reversal = false;
  hlo_instr *rhs = pb_op1(&b, HLO_REVERSE, conv->operands[1]);
  if (rhs) rhs->dims = pb_ints(&b, count, reversed);
  *out_conv = conv_of(&b, conv->shape, conv->operands[0], rhs, conv, attrs);
  return pass_build_replace(&b, conv, *out_conv);
}

/* The array with its dimensions in the order of libraries. */
static hlo_instr *ordered(pass_build *b, hlo_instr *x, const pass_conv *c, const pass_conv_array *array,
                          bool channels_last)
{
  int64_t order[PASS_CONV_SPATIAL + 2];

  order_of(c, array, channels_last, order);
  return pb_transpose(b, x, order);
}

static weft_status *order_dims(hlo_instr *conv, const pass_conv *c, bool channels_last)
{
  weft_arena *arena = &conv->parent->module->arena;
  pass_build b = PASS_BUILD_AT(conv);
  int64_t order[PASS_CONV_SPATIAL + 2], dims[PASS_CONV_SPATIAL + 2], back[PASS_CONV_SPATIAL + 2],
    spatial[PASS_CONV_SPATIAL];
  int64_t outer = 0, channel = channels_last ? c->spatial + 1 : 1;
  hlo_window_dim *window;
  hlo_conv_attrs *attrs = copy_attrs(arena, conv->u.conv, &window);

  WEFT_TRY_ALLOC(attrs);
  hlo_instr *lhs = ordered(&b, conv->operands[0], c, &c->lhs, channels_last);
  hlo_instr *rhs = ordered(&b, conv->operands[1], c, &c->rhs, channels_last);
  order_of(c, &c->out, channels_last, order);
  for (int i = 0; i < c->spatial + 2; i++) {
    dims[i] = conv->shape->dims[order[i]];
    back[order[i]] = i;
  }
  for (int i = 0; i < c->spatial; i++) spatial[i] = i + 1 + !channels_last;
  attrs->lhs_spatial = attrs->rhs_spatial = attrs->out_spatial = pb_ints(&b, c->spatial, spatial);
  bool is_filter = c->kind == PASS_CONV_FILTER, is_forward = c->kind == PASS_CONV_FORWARD;
  attrs->lhs_batch = attrs->out_batch = is_filter ? channel : outer;
  attrs->lhs_feature = attrs->out_feature = is_filter ? outer : channel;
  attrs->rhs_in_feature = is_forward ? channel : outer;
  attrs->rhs_out_feature = is_forward ? outer : channel;
  hlo_instr *result =
    conv_of(&b, hlo_shape_array(arena, conv->shape->type, c->spatial + 2, dims), lhs, rhs, conv, attrs);
  return pass_build_replace(&b, conv, pb_transpose(&b, result, back));
}

static weft_status *canonicalize(hlo_instr *conv, bool *changed)
{
  hlo_instr *forward, *exchanged, *padded;
  pass_conv c;

  if (conv->u.conv->window.rank > PASS_CONV_SPATIAL) return NULL;
  WEFT_TRY(reverse_rhs(conv, &forward));
  if (forward) conv = forward, *changed = true;
  WEFT_TRY(exchange_operands(conv, &exchanged));
  if (exchanged) conv = exchanged, *changed = true;
  if (!pass_conv_read(conv, &c)) {
    WEFT_TRY(pad_lhs(conv, &padded));
    if (!padded) return NULL;
    *changed = true;
    conv = padded;
    if (!pass_conv_read(conv, &c)) return NULL;
  }
  bool channels_last = c.lhs.channel == conv->operands[0]->shape->rank - 1;
  if (pass_conv_is_ordered(&c, &c.lhs, channels_last) && pass_conv_is_ordered(&c, &c.rhs, channels_last) &&
      pass_conv_is_ordered(&c, &c.out, channels_last))
    return NULL;
  *changed = true;
  return order_dims(conv, &c, channels_last);
}

static weft_status *conv_canonicalizer_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module) {
    HLO_FOREACH(instr, comp)
      if (instr->op == HLO_CONVOLUTION) WEFT_TRY(canonicalize(instr, changed));
  }
  return NULL;
}
const hlo_pass pass_conv_canonicalizer = {"conv-canonicalizer", conv_canonicalizer_run};
