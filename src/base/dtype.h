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

/* By HLO name, `length` bytes; WEFT_INVALID if there is none. */
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

/* f32 for c64, f64 for c128, else the type itself; and back (WEFT_INVALID where there is none). */
weft_dtype weft_dtype_component(weft_dtype type);
weft_dtype weft_dtype_complex_of(weft_dtype type);

/* How a float narrower than f32 is laid out, for conversion code. */
typedef struct weft_float_format {
  int exponent_bits, mantissa_bits, bias;
  bool has_sign, has_inf, has_nan;
  bool nan_is_negative_zero; /* fnuz: the only NaN is 0x80, and there is no -0 */
  bool has_zero;             /* false for f8e8m0fnu */
} weft_float_format;
const weft_float_format *weft_dtype_float_format(weft_dtype type); /* NULL unless a float */

/* One element to and from double / float: round to nearest even; a value past the finite range becomes inf where
 * the type has one, else NaN where it has that, else the largest finite value (f6, f4: saturating); NaN becomes -0
 * where there is no NaN, and zero NaN where there is no zero; f8e8m0fnu rounds ties up: all as XLA's converts do.  `bits` holds the element in its low bits. */
float weft_float_decode(weft_dtype type, uint64_t bits);  /* any float type but f64 */
uint64_t weft_float_encode(weft_dtype type, float value); /* any float type but f64 */
double weft_float_decode_f64(weft_dtype type, uint64_t bits);
uint64_t weft_float_encode_f64(weft_dtype type, double value); /* rounds once, not through f32 */

WEFT_PUBLIC_END

#endif
