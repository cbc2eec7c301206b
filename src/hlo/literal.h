/* hlo/literal.h -- values known at compile time. */
#ifndef WEFT_HLO_LITERAL_H
#define WEFT_HLO_LITERAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "hlo/shape.h"

/* An array, or a tuple of literals.  Immutable once it is in a module.  The data of an array are dense and
 * row-major, whatever layout the shape has, with weft_dtype_bytes() bytes for each element, and 64-byte aligned. */
typedef struct hlo_literal {
  const hlo_shape *shape;
  void *data;                            /* array: hlo_shape_bytes() bytes; NULL for tuple and token */
  const struct hlo_literal **elements;   /* tuple */
  bool elided;                           /* written `{...}` in text: the data are made up */
} hlo_literal;

/* Makes a zeroed literal in `arena`.  `shape` is borrowed; its layout is ignored.
 * Errors: RESOURCE_EXHAUSTED; INVALID_ARGUMENT for a dynamic shape or one that is not sane (hlo_shape_is_sane). */
WEFT_NODISCARD weft_status *hlo_literal_new(weft_arena *arena, const hlo_shape *shape, hlo_literal **out_literal);

/* Make a scalar, rounded to `type` as HLO convert would. */
WEFT_NODISCARD weft_status *hlo_literal_scalar_f64(weft_arena *arena, weft_dtype type, double value,
                                                   hlo_literal **out_literal);
WEFT_NODISCARD weft_status *hlo_literal_scalar_s64(weft_arena *arena, weft_dtype type, int64_t value,
                                                   hlo_literal **out_literal);

/* The value of element `index` (row-major).  Exact for every type up to f64 / s64; u64 wraps. */
double hlo_literal_get_f64(const hlo_literal *lit, int64_t index);  /* real part of complex */
double hlo_literal_get_imag(const hlo_literal *lit, int64_t index); /* 0 unless complex */
int64_t hlo_literal_get_s64(const hlo_literal *lit, int64_t index); /* integer and pred types */
/* Store a value by the rules of HLO convert (float to integer saturates, NaN gives 0; integers wrap). */
void hlo_literal_set_f64(hlo_literal *lit, int64_t index, double re, double im);
void hlo_literal_set_s64(hlo_literal *lit, int64_t index, int64_t value);

/* True for bitwise equal data and equal shapes (layouts are not compared). */
bool hlo_literal_equal(const hlo_literal *a, const hlo_literal *b);
/* True if every element has the same bits as the first (false for empty, elided and tuples). */
bool hlo_literal_is_splat(const hlo_literal *lit);
/* True for a splat or scalar that equals `value`; unlike ==, -0 and 0 differ. */
bool hlo_literal_is_all(const hlo_literal *lit, double value);

#endif
