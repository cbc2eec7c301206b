/* base/dtype.h -- element types, by the numbers and names of XLA, PJRT and MLIR (table: dtype.def).
 * In memory every element of a narrow type takes a whole byte, value in the low bits, upper bits zero
 * (sign-extended for s1, s2, s4); pred is 0 or 1 in a byte; complex is (re, im). */
#ifndef WEFT_BASE_DTYPE_H
#define WEFT_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

WEFT_PUBLIC_BEGIN

typedef enum weft_dtype {
#define X(NAME, name, bits, proto, pjrt, mlir, class) WEFT_##NAME,
#include "base/dtype.def"
#undef X
  WEFT_DTYPE_COUNT
} weft_dtype;

typedef enum weft_dtype_class {
  WEFT_CLASS_NONE,
  WEFT_CLASS_PRED,
  WEFT_CLASS_SINT,
  WEFT_CLASS_UINT,
  WEFT_CLASS_FLOAT,
  WEFT_CLASS_COMPLEX,
} weft_dtype_class;

const char *weft_dtype_name(weft_dtype type);      /* "f32", static */
const char *weft_dtype_mlir_name(weft_dtype type); /* "f32", "i1", "ui8"; static */
int weft_dtype_bits(weft_dtype type);              /* logical width; 0 for types without elements */
weft_dtype_class weft_dtype_class_of(weft_dtype type);

/* Bytes of one element in memory: 0 for tuple, token, opaque. */
size_t weft_dtype_bytes(weft_dtype type);

int weft_dtype_to_proto(weft_dtype type);
weft_dtype weft_dtype_from_proto(int number); /* WEFT_INVALID if unknown */
int weft_dtype_to_pjrt(weft_dtype type);
weft_dtype weft_dtype_from_pjrt(int number);

/* By the name in HLO text, `length` bytes long; WEFT_INVALID if there is no such type. */
weft_dtype weft_dtype_from_name(const char *name, size_t length);

static inline bool weft_dtype_is_float(weft_dtype type) { return weft_dtype_class_of(type) == WEFT_CLASS_FLOAT; }
static inline bool weft_dtype_is_complex(weft_dtype type) { return weft_dtype_class_of(type) == WEFT_CLASS_COMPLEX; }
static inline bool weft_dtype_is_signed(weft_dtype type) { return weft_dtype_class_of(type) == WEFT_CLASS_SINT; }
static inline bool weft_dtype_is_unsigned(weft_dtype type) { return weft_dtype_class_of(type) == WEFT_CLASS_UINT; }
static inline bool weft_dtype_is_integer(weft_dtype type)
{
  return weft_dtype_is_signed(type) || weft_dtype_is_unsigned(type);
}
static inline bool weft_dtype_is_array(weft_dtype type) { return weft_dtype_class_of(type) != WEFT_CLASS_NONE; }

/* The component type: f32 for c64, f64 for c128, else the type itself.  The way back: c64 for f32, c128 for f64,
 * else WEFT_INVALID. */
weft_dtype weft_dtype_component(weft_dtype type);
weft_dtype weft_dtype_complex_of(weft_dtype type);

/* The layout of a float type, for conversion code. */
typedef struct weft_float_format {
  int exponent_bits, mantissa_bits, bias;
  bool has_sign, has_inf, has_nan;
  bool nan_is_negative_zero; /* fnuz: the only NaN is 0x80, and there is no -0 */
  bool has_zero;             /* false for f8e8m0fnu */
} weft_float_format;
const weft_float_format *weft_dtype_float_format(weft_dtype type); /* NULL unless a float */

/* Conversions of one element to and from float or double, as XLA's converts do them.  Rounding is to nearest, ties
 * to even (f8e8m0fnu: ties up).  A value past the finite range becomes inf; NaN if the type has no inf; the largest
 * finite value if it has neither (f6, f4).  NaN becomes -0 in a type without NaN, and zero becomes NaN in a type
 * without zero.  `bits` holds the element in its low bits. */
float weft_float_decode(weft_dtype type, uint64_t bits);  /* any float type but f64 */
uint64_t weft_float_encode(weft_dtype type, float value); /* any float type but f64 */
double weft_float_decode_f64(weft_dtype type, uint64_t bits);
uint64_t weft_float_encode_f64(weft_dtype type, double value); /* rounds once; only f8e8m0fnu goes through f32 */

WEFT_PUBLIC_END

#endif
