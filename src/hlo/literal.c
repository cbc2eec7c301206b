/* hlo/literal.c -- values known at compile time (literal.h). */
#include <config.h>

#include "hlo/literal.h"

#include <math.h>
#include <string.h>

#include "base/options.h"

weft_status *hlo_literal_new(weft_arena *arena, const hlo_shape *shape, hlo_literal **out_literal)
{
  hlo_literal *lit;
  char text[256];

  *out_literal = NULL;
  if (!hlo_shape_is_sane(shape) || hlo_shape_is_dynamic(shape))
    return WEFT_ERR(INVALID_ARGUMENT, "no literal can have the shape %s", hlo_shape_format(shape, text, sizeof text));
  lit = WEFT_ARENA_NEW(arena, hlo_literal);
  WEFT_TRY_ALLOC(lit);
  lit->shape = shape;
  if (hlo_shape_is_tuple(shape)) {
    lit->elements = WEFT_ARENA_ARRAY(arena, const hlo_literal *, shape->rank);
    WEFT_TRY_ALLOC(lit->elements);
    for (int i = 0; i < shape->rank; i++)
      WEFT_TRY(hlo_literal_new(arena, shape->elements[i], (hlo_literal **)&lit->elements[i]));
  } else if (hlo_shape_is_array(shape)) {
    int64_t bytes = hlo_shape_bytes(shape);
    char *data = (uint64_t)bytes < SIZE_MAX - 64 ? weft_arena_alloc(arena, (size_t)bytes + 64) : NULL;
    if (!data)
      return WEFT_ERR(RESOURCE_EXHAUSTED, "no memory for a literal %s of %s",
                      hlo_shape_format(shape, text, sizeof text), WEFT_BYTES(bytes));
    lit->data = (void *)WEFT_ALIGN_UP((uintptr_t)data, (uintptr_t)64);
  }
  *out_literal = lit;
  return NULL;
}

/* The raw bits of element `index`; for complex arrays, of component `index`.  At most 8 bytes each. */
static uint64_t load_bits(const void *data, size_t bytes, int64_t index)
{
  uint64_t bits = 0;

  memcpy(&bits, (const char *)data + (size_t)index * bytes, bytes); /* little-endian, as every host Weft runs on */
  return bits;
}

static void store_bits(void *data, size_t bytes, int64_t index, uint64_t bits)
{
  memcpy((char *)data + (size_t)index * bytes, &bits, bytes);
}

static double get_component(const hlo_literal *lit, int64_t index, int part)
{
  weft_dtype component = weft_dtype_component(lit->shape->type);
  uint64_t bits = load_bits(lit->data, weft_dtype_bytes(component), index * 2 + part);

  return weft_float_decode_f64(component, bits);
}

double hlo_literal_get_f64(const hlo_literal *lit, int64_t index)
{
  weft_dtype type = lit->shape->type;

  if (weft_dtype_is_complex(type)) return get_component(lit, index, 0);
  if (weft_dtype_is_float(type))
    return weft_float_decode_f64(type, load_bits(lit->data, weft_dtype_bytes(type), index));
  if (type == WEFT_U64) return (double)(uint64_t)hlo_literal_get_s64(lit, index);
  return (double)hlo_literal_get_s64(lit, index);
}

double hlo_literal_get_imag(const hlo_literal *lit, int64_t index)
{
  return weft_dtype_is_complex(lit->shape->type) ? get_component(lit, index, 1) : 0;
}

int64_t hlo_literal_get_s64(const hlo_literal *lit, int64_t index)
{
  weft_dtype type = lit->shape->type;
  size_t bytes = weft_dtype_bytes(type);
  uint64_t bits;

  if (weft_dtype_is_float(type) || weft_dtype_is_complex(type)) return (int64_t)hlo_literal_get_f64(lit, index);
  bits = load_bits(lit->data, bytes, index);
  if (type == WEFT_PRED) return bits != 0;
  if (!weft_dtype_is_signed(type)) return (int64_t)bits;
  {
    int unused = 64 - (int)bytes * 8;
    return (int64_t)(bits << unused) >> unused;
  }
}

/* Keeps the low bits of an integer.  Narrow signed types are stored sign-extended to their byte. */
static uint64_t wrap_integer(weft_dtype type, int64_t value)
{
  int unused = 64 - weft_dtype_bits(type);

  if (type == WEFT_PRED) return value != 0;
  if (weft_dtype_is_signed(type)) return (uint64_t)((int64_t)((uint64_t)value << unused) >> unused);
  return (uint64_t)value << unused >> unused;
}

/* Float to integer: rounds toward zero, saturates, NaN gives 0. */
static int64_t saturate_to_integer(weft_dtype type, double value)
{
  int bits = weft_dtype_bits(type);

  if (isnan(value)) return 0;
  if (weft_dtype_is_signed(type)) {
    double bound = ldexp(1, bits - 1);
    if (value >= bound) return (int64_t)((UINT64_C(1) << (bits - 1)) - 1);
    if (value < -bound) return -(int64_t)((UINT64_C(1) << (bits - 1)) - 1) - 1;
    return (int64_t)value;
  }
  if (value <= -1) return 0;
  if (value >= ldexp(1, bits)) return (int64_t)(UINT64_MAX >> (64 - bits));
  return value < 0 ? 0 : (int64_t)(uint64_t)value;
}

void hlo_literal_set_f64(hlo_literal *lit, int64_t index, double re, double im)
{
  weft_dtype type = lit->shape->type;

  if (weft_dtype_is_complex(type)) {
    weft_dtype component = weft_dtype_component(type);
    size_t bytes = weft_dtype_bytes(component);
    store_bits(lit->data, bytes, index * 2, weft_float_encode_f64(component, re));
    store_bits(lit->data, bytes, index * 2 + 1, weft_float_encode_f64(component, im));
  } else if (weft_dtype_is_float(type)) {
    store_bits(lit->data, weft_dtype_bytes(type), index, weft_float_encode_f64(type, re));
  } else if (type == WEFT_PRED) {
    store_bits(lit->data, 1, index, re != 0);
  } else {
    store_bits(lit->data, weft_dtype_bytes(type), index, wrap_integer(type, saturate_to_integer(type, re)));
  }
}

void hlo_literal_set_s64(hlo_literal *lit, int64_t index, int64_t value)
{
  weft_dtype type = lit->shape->type;

  if (weft_dtype_is_float(type) || weft_dtype_is_complex(type)) hlo_literal_set_f64(lit, index, (double)value, 0);
  else store_bits(lit->data, weft_dtype_bytes(type), index, wrap_integer(type, value));
}

static weft_status *new_scalar(weft_arena *arena, weft_dtype type, hlo_literal **out_literal)
{
  hlo_shape *shape = hlo_shape_array(arena, type, 0, NULL);

  *out_literal = NULL;
  WEFT_TRY_ALLOC(shape);
  return hlo_literal_new(arena, shape, out_literal);
}

weft_status *hlo_literal_scalar_f64(weft_arena *arena, weft_dtype type, double value, hlo_literal **out_literal)
{
  WEFT_TRY(new_scalar(arena, type, out_literal));
  hlo_literal_set_f64(*out_literal, 0, value, 0);
  return NULL;
}

weft_status *hlo_literal_scalar_s64(weft_arena *arena, weft_dtype type, int64_t value, hlo_literal **out_literal)
{
  WEFT_TRY(new_scalar(arena, type, out_literal));
  hlo_literal_set_s64(*out_literal, 0, value);
  return NULL;
}

bool hlo_literal_equal(const hlo_literal *a, const hlo_literal *b)
{
  if (a == b) return true;
  if (!hlo_shape_equal(a->shape, b->shape, false) || a->elided != b->elided) return false;
  if (a->elements) {
    for (int i = 0; i < a->shape->rank; i++)
      if (!hlo_literal_equal(a->elements[i], b->elements[i])) return false;
    return true;
  }
  return !a->data || memcmp(a->data, b->data, (size_t)hlo_shape_bytes(a->shape)) == 0;
}

bool hlo_literal_is_splat(const hlo_literal *lit)
{
  size_t bytes = weft_dtype_bytes(lit->shape->type);
  int64_t count;

  if (!lit->data || lit->elided) return false;
  count = hlo_shape_elems(lit->shape);
  /* equal to itself, moved by one element */
  return count > 0 && memcmp(lit->data, (const char *)lit->data + bytes, (size_t)(count - 1) * bytes) == 0;
}

bool hlo_literal_is_all(const hlo_literal *lit, double value)
{
  if (!hlo_literal_is_splat(lit)) return false;
  return hlo_literal_get_f64(lit, 0) == value && hlo_literal_get_imag(lit, 0) == 0 &&
         signbit(hlo_literal_get_f64(lit, 0)) == signbit(value);
}
