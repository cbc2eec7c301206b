/* tests/base/dtype_test.c -- element types: names, widths, rounding to narrow floats. */
#include "test.h"

#include <math.h>

#include "base/dtype.h"

TEST(numbers_and_names_lead_back_to_the_type)
{
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++) {
    const char *name = weft_dtype_name((weft_dtype)t);
    T_EQ_INT(weft_dtype_from_name(name, strlen(name)), t);
    T_EQ_INT(weft_dtype_from_proto(weft_dtype_to_proto((weft_dtype)t)), t);
    if (weft_dtype_to_pjrt((weft_dtype)t)) T_EQ_INT(weft_dtype_from_pjrt(weft_dtype_to_pjrt((weft_dtype)t)), t);
  }
}

/* A decoded value is representable, so encoding gives the same bits (NaNs aside). */
TEST(every_narrow_float_survives_decode_and_encode)
{
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++) {
    weft_dtype type = (weft_dtype)t;
    if (!weft_dtype_is_float(type) || weft_dtype_bits(type) > 16) continue;
    for (uint64_t bits = 0; bits < UINT64_C(1) << weft_dtype_bits(type); bits++) {
      double value = weft_float_decode_f64(type, bits);
      uint64_t again = weft_float_encode_f64(type, value);
      if (isnan(value)) {
        T_TRUE(isnan(weft_float_decode_f64(type, again)));
        continue;
      }
      if (again != bits || weft_float_encode(type, (float)value) != bits)
        fail_msg("%s: 0x%" PRIx64 " is %g, which encodes as 0x%" PRIx64, weft_dtype_name(type), bits, value, again);
    }
  }
}

/* Values from the OCP 8-bit, OCP microscaling and IEEE 754 format tables.  3.0 lies half-way between two powers of two:
 * ml_dtypes and XLA round such ties of f8e8m0fnu upwards. */
TEST(known_values)
{
  static const struct { weft_dtype type; double value; uint64_t bits; } cases[] = {
    {WEFT_F16, 65504, 0x7bff}, {WEFT_F16, 65520, 0x7c00}, {WEFT_F16, 0x1p-24, 1}, {WEFT_F16, 0x1p-25, 0},
    {WEFT_BF16, 1.0, 0x3f80}, {WEFT_F8E4M3FN, 448, 0x7e}, {WEFT_F8E4M3FN, 465, 0x7f}, {WEFT_F8E4M3FN, 0x1p-9, 1},
    {WEFT_F8E5M2, 57344, 0x7b}, {WEFT_F8E5M2, INFINITY, 0x7c}, {WEFT_F8E4M3FNUZ, 240, 0x7f},
    {WEFT_F8E5M2FNUZ, 57344, 0x7f}, {WEFT_F8E8M0FNU, 1.0, 127}, {WEFT_F8E8M0FNU, 0x1p127, 254}, {WEFT_F8E8M0FNU, 3, 129},
    {WEFT_F8E8M0FNU, 6, 130}, {WEFT_F8E8M0FNU, 2.5, 128}, {WEFT_F8E8M0FNU, 0.75, 127},
    {WEFT_F6E2M3FN, 7.5, 0x1f}, {WEFT_F6E3M2FN, 28, 0x1f}, {WEFT_F4E2M1FN, 6, 7}, {WEFT_F4E2M1FN, 100, 7},
    {WEFT_F8E4M3, 240, 0x77}, {WEFT_F8E3M4, 15.5, 0x6f},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    if (weft_float_encode_f64(cases[i].type, cases[i].value) != cases[i].bits)
      fail_msg("%s of %g: got 0x%" PRIx64 ", want 0x%" PRIx64, weft_dtype_name(cases[i].type), cases[i].value,
               weft_float_encode_f64(cases[i].type, cases[i].value), cases[i].bits);
}

TEST_MAIN(UNIT(numbers_and_names_lead_back_to_the_type), UNIT(every_narrow_float_survives_decode_and_encode),
          UNIT(known_values))
