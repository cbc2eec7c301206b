/* passes/convolution.h -- an HLO convolution in the terms of convolution libraries: input x, filter w, output y.
 *
 *   y[n, k, o] = sum over c, r of x[n, c, o * stride + r * dilation - pad] * w[k, c, r]
 *
 * HLO writes this product and both of its gradients as convolution.  A library computes one array from the two others:
 *   FORWARD   y of x (lhs) and w (rhs)
 *   DATA      x of y (lhs) and w (rhs): the lhs has base dilation, which is the stride
 *   FILTER    w of x (lhs) and y (rhs): the window's dilation is the stride, and the window is large */
#ifndef WEFT_PASSES_CONVOLUTION_H
#define WEFT_PASSES_CONVOLUTION_H

#include "hlo/hlo.h"

enum { PASS_CONV_SPATIAL = 3 }; /* spatial dimensions that libraries have at most */

typedef enum pass_conv_kind { PASS_CONV_FORWARD, PASS_CONV_DATA, PASS_CONV_FILTER } pass_conv_kind;

/* How the dimensions of an array lie: [outer, spatial..., channel] or [outer, channel, spatial...] in a library. */
typedef struct pass_conv_array {
  int64_t outer, channel;         /* dimensions of the HLO array */
  const int64_t *spatial;
} pass_conv_array;

typedef struct pass_conv {
  pass_conv_kind kind;
  int spatial;
  bool reversed;                  /* the filter is read backwards */
  int64_t groups;                 /* of channels: w has c / groups of them; HLO's groups of the batch for FILTER */
  int64_t n, c, k;
  int64_t x_size[PASS_CONV_SPATIAL], w_size[PASS_CONV_SPATIAL], y_size[PASS_CONV_SPATIAL];
  int64_t pad[PASS_CONV_SPATIAL], stride[PASS_CONV_SPATIAL], dilation[PASS_CONV_SPATIAL];
  pass_conv_array lhs, rhs, out;
} pass_conv;

/* Reads a convolution.  false: libraries have no such form: padding that differs between the two sides or is negative,
 * base dilation together with a stride or with groups, groups of both kinds, a window
 * that is reversed in some dimensions only. */
bool pass_conv_read(const hlo_instr *conv, pass_conv *out_conv);

/* True if the dimensions of a dense row-major array lie in the order of libraries, with the channels last or not. */
bool pass_conv_is_ordered(const pass_conv *conv, const pass_conv_array *array, bool channels_last);

#endif
