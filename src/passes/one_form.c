/* passes/one_form.c -- one-form: operations that HLO lets a program write in several forms get the form that later
 * passes know.
 *
 *   a reducer that gives a tuple of one      gives that element; a reduce or reduce-window with it gives an array, in a
 *                                            tuple
 *   fft of other lengths than the array's    the array cut or filled up with zeros, and its transform likewise
 *   all-reduce to floats of another width    of the converted operands
 *   custom-call "TopK"                       topk, which XLA writes so in programs it has optimised */
#include <config.h>

#include <string.h>

#include "passes/build.h"
#include "passes/passes.h"

static bool reduces(hlo_opcode op)
{
  return op == HLO_REDUCE || op == HLO_REDUCE_WINDOW || op == HLO_SELECT_AND_SCATTER || op == HLO_SCATTER ||
         op == HLO_SORT || op == HLO_ALL_REDUCE || op == HLO_ALL_REDUCE_START || op == HLO_REDUCE_SCATTER;
}

/* A copy of `comp` that returns the one element of its result. Other callers may call `comp` itself. */
static weft_status *without_tuple(hlo_computation *comp, hlo_computation *before, pass_map *copies,
                                  hlo_computation **out)
{
  if (!(*out = pass_map_get(copies, comp->id))) {
    WEFT_TRY(hlo_computation_clone(comp->module, comp, comp->name, before, out));
    pass_build b = PASS_BUILD_IN(*out);
    hlo_instr *tuple = (*out)->root;
    hlo_instr *one = tuple->op == HLO_TUPLE ? tuple->operands[0] : pb_gte(&b, tuple, 0);
    WEFT_TRY(pass_build_finish(&b));
    (*out)->root = one;
    if (tuple->op == HLO_TUPLE) WEFT_TRY(hlo_remove(tuple));
    return pass_map_set(copies, comp->id, *out);
  }
  return NULL;
}

static weft_status *unwrap_reducer(hlo_instr *instr, pass_map *copies, bool *changed)
{
  hlo_computation *called[2];
  bool any = false;

  for (int i = 0; i < instr->called_count; i++) {
    const hlo_shape *root = instr->called[i]->root->shape;
    called[i] = instr->called[i];
    if (!hlo_shape_is_tuple(root) || root->rank != 1) continue;
    WEFT_TRY(without_tuple(instr->called[i], instr->parent, copies, &called[i]));
    any = true;
  }
  if (!any) return NULL;
  *changed = true;
  WEFT_TRY(hlo_set_called(instr, instr->called_count, called));
  if (instr->operand_count != 2 || !hlo_shape_is_tuple(instr->shape)) return NULL;
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *one = pb_clone(&b, instr, NULL);
  if (one) one->shape = instr->shape->elements[0];
  return pass_build_replace(&b, instr, pb_tuple(&b, 1, &one));
}

/* x with those sizes: each dimension is cut off at its end, or filled up with zeros. */
static hlo_instr *resized(pass_build *b, hlo_instr *x, const int64_t *dims)
{
  hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};
  bool grows = false;

  for (int d = 0; x && d < x->shape->rank; d++) {
    if (dims[d] < x->shape->dims[d]) x = pb_slice_dim(b, x, d, 0, dims[d]);
    if (!x) return NULL;
    pads[d].high = dims[d] - x->shape->dims[d];
    grows |= pads[d].high > 0;
  }
  return grows ? pb_pad(b, x, pb_scalar(b, x->shape->type, 0), pads) : x;
}

static weft_status *fit_fft(hlo_instr *fft, bool *changed)
{
  const hlo_shape *s = fft->operands[0]->shape;
  int64_t dims[HLO_MAX_RANK];
  bool fits = true, is_empty = false;
  pass_build b = PASS_BUILD_AT(fft);

  if (fft->u.fft_type != HLO_FFT_FFT && fft->u.fft_type != HLO_FFT_IFFT) return NULL;
  for (int d = 0; d < s->rank; d++) {
    int i = d - (s->rank - fft->dims.count);
    dims[d] = i < 0 ? s->dims[d] : fft->dims.v[i];
    fits &= dims[d] == s->dims[d];
    is_empty |= dims[d] == 0 || s->dims[d] == 0;
  }
  if (fits) return NULL;
  *changed = true;
  if (is_empty) return pass_build_replace(&b, fft, pb_splat(&b, fft, 0));
  hlo_instr *x = resized(&b, fft->operands[0], dims), *y = x ? pb_clone(&b, fft, &x) : NULL;
  if (y) y->shape = x->shape;
  return pass_build_replace(&b, fft, resized(&b, y, s->dims));
}

static weft_status *convert_operands(hlo_instr *all_reduce, bool *changed)
{
  pass_build b = PASS_BUILD_AT(all_reduce);

  for (int i = 0; i < all_reduce->operand_count; i++) {
    hlo_instr *x = all_reduce->operands[i];
    const hlo_shape *result = hlo_shape_is_tuple(all_reduce->shape) ? all_reduce->shape->elements[i]
                                                                    : all_reduce->shape;
    if (x->shape->type == result->type) continue;
    x = pb_convert(&b, x, result->type);
    WEFT_TRY(pass_build_finish(&b));
    WEFT_TRY(hlo_set_operand(all_reduce, i, x));
    *changed = true;
  }
  return NULL;
}

/* The comparator decides which end of the order is wanted. */
static weft_status *topk_of_custom_call(hlo_instr *call, bool *changed)
{
  const hlo_shape *result = call->shape, *x;
  pass_build b = PASS_BUILD_AT(call);
  bool largest;

  if (strcmp(call->u.custom->target, "TopK") != 0 || call->operand_count != 1 || call->called_count != 1 ||
      !hlo_shape_is_tuple(result) || result->rank != 2 || result->elements[1]->type != WEFT_S32 ||
      pass_has_control_edges(call))
    return NULL;
  x = call->operands[0]->shape;
  if (!pass_compares_two(call->called[0], &largest) || x->rank == 0 || result->elements[0]->type != x->type)
    return NULL;
  for (int e = 0; e < 2; e++)
    for (int d = 0; d < x->rank; d++)
      if (result->elements[e]->rank != x->rank || result->elements[e]->dims[d] > x->dims[d] ||
          (d < x->rank - 1 && result->elements[e]->dims[d] != x->dims[d]))
        return NULL;
  if (result->elements[0]->dims[x->rank - 1] != result->elements[1]->dims[x->rank - 1]) return NULL;
  hlo_instr *top = pb_instr(&b, HLO_TOPK, result, 1, call->operands);
  WEFT_TRY(pass_build_finish(&b));
  top->u.topk.k = result->elements[0]->dims[x->rank - 1];
  top->u.topk.largest = largest;
  top->u.topk.is_stable = true;
  *changed = true;
  return hlo_replace(call, top);
}

static weft_status *one_form_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map copies = {.arena = ctx->scratch};

  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_ALL_REDUCE || instr->op == HLO_ALL_REDUCE_START) WEFT_TRY(convert_operands(instr, changed));
      if (instr->op == HLO_CUSTOM_CALL) WEFT_TRY(topk_of_custom_call(instr, changed));
      else if (instr->op == HLO_FFT) WEFT_TRY(fit_fft(instr, changed));
      else if (reduces(instr->op)) WEFT_TRY(unwrap_reducer(instr, &copies, changed));
    }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_one_form = {"one-form", one_form_run};
