/* hlo/text_literal.c -- the values of constants in HLO text: `5`, `{ {1, 2}, {3, 4} }`, `(1, nan(0x7))`, `{...}`. */
#include <config.h>

#include "hlo/text_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { MAX_EMPTY_BRACES = 1000 };
/* Limit of the {...} constants in one text together, because the text's size does not bound their memory. */
enum { MAX_ELIDED_BYTES = 1 << 30 };

/* ---- bits of floats ---- */

/* Width of the mantissa field, which holds the payload of a NaN; 0 for types whose NaNs have none. */
static int payload_bits(weft_dtype type)
{
  if (type == WEFT_F64) return 52;
  const weft_float_format *format = weft_dtype_float_format(type);
  return format && format->has_nan && format->has_inf ? format->mantissa_bits : 0;
}

static void store(hlo_literal *lit, int64_t slot, weft_dtype type, uint64_t bits)
{
  size_t bytes = weft_dtype_bytes(type);

  memcpy((char *)lit->data + (size_t)slot * bytes, &bits, bytes); /* little-endian, as every host Weft runs on */
}

static uint64_t load(const hlo_literal *lit, int64_t slot, weft_dtype type)
{
  size_t bytes = weft_dtype_bytes(type);
  uint64_t bits = 0;

  memcpy(&bits, (const char *)lit->data + (size_t)slot * bytes, bytes);
  return bits;
}

/* ---- reading ---- */

/* Reads a float into `slot`, an index in components of type `type`. */
static weft_status *read_float(hlo_reader *r, hlo_literal *lit, int64_t slot, weft_dtype type)
{
  const char *at = r->p;
  bool negative = *at == '-';
  double value;
  uint64_t bits;

  if (strncmp(at + negative, "nan", 3) == 0) {
    int width = payload_bits(type);
    uint64_t payload = 0;

    bits = weft_float_encode_f64(type, NAN);
    hlo_rd_skip(r, 3u + negative);
    if (hlo_rd_accept(r, '(')) {
      char *end;

      payload = strtoull(r->p, &end, 16);
      if (strncmp(r->p, "0x", 2) != 0 || end == r->p + 2 || *end != ')')
        return hlo_rd_expected(r, "a NaN's payload as 0x...");
      if (width == 0 || payload >> width || payload == 0)
        return hlo_rd_error(r, at, "a NaN of %s cannot have this payload", weft_dtype_name(type));
      hlo_rd_skip(r, (size_t)(end + 1 - r->p));
      bits = (bits & ~((UINT64_C(1) << width) - 1)) | payload;
    }
    if (negative && width) bits |= UINT64_C(1) << (weft_dtype_bits(type) - 1);
    store(lit, slot, type, bits);
    return NULL;
  }
  WEFT_TRY(hlo_rd_double(r, &value));
  if (type == WEFT_F64) {
    memcpy(&bits, &value, sizeof bits);
  } else if (type == WEFT_F32) {
    float narrow = (float)value;
    bits = 0;
    memcpy(&bits, &narrow, sizeof narrow);
  } else {
    bits = weft_float_encode_f64(type, value);
  }
  store(lit, slot, type, bits);
  return NULL;
}

static weft_status *read_integer(hlo_reader *r, hlo_literal *lit, int64_t index, weft_dtype type)
{
  int bits = weft_dtype_bits(type);
  const char *at = r->p;
  int64_t value;

  if (type == WEFT_PRED && (hlo_rd_peek_word(r).length > 0)) {
    bool truth;
    WEFT_TRY(hlo_rd_bool(r, &truth));
    store(lit, index, type, truth);
    return NULL;
  }
  if (type == WEFT_PRED) WEFT_TRY(hlo_rd_int_in(r, 0, 1, &value));
  else if (bits == 64) WEFT_TRY(hlo_rd_int(r, &value)); /* s64 and u64 each also take values of the other, by wrap */
  else if (weft_dtype_is_signed(type))
    WEFT_TRY(hlo_rd_int_in(r, -(INT64_C(1) << (bits - 1)), (INT64_C(1) << (bits - 1)) - 1, &value));
  else WEFT_TRY(hlo_rd_int_in(r, 0, (INT64_C(1) << bits) - 1, &value));
  if (*r->p == '.') return hlo_rd_error(r, at, "expected an integer: the element type is %s", weft_dtype_name(type));
  store(lit, index, type, (uint64_t)value);
  return NULL;
}

static weft_status *read_element(hlo_reader *r, hlo_literal *lit, int64_t index)
{
  weft_dtype type = lit->shape->type;

  if (weft_dtype_is_float(type)) return read_float(r, lit, index, type);
  if (!weft_dtype_is_complex(type)) return read_integer(r, lit, index, type);
  if (!hlo_rd_accept(r, '(')) return read_float(r, lit, index * 2, weft_dtype_component(type));
  WEFT_TRY(read_float(r, lit, index * 2, weft_dtype_component(type)));
  WEFT_TRY(hlo_rd_expect(r, ','));
  WEFT_TRY(read_float(r, lit, index * 2 + 1, weft_dtype_component(type)));
  return hlo_rd_expect(r, ')');
}

/* Reads the braces of dimension `dim` and everything inside; *index counts elements.  Recursion is as deep as the
 * rank, at most 32. */
static weft_status *read_elements(hlo_reader *r, hlo_literal *lit, int dim, int64_t *index)
{
  const hlo_shape *shape = lit->shape;

  if (dim == shape->rank) return read_element(r, lit, (*index)++);
  WEFT_TRY(hlo_rd_expect(r, '{'));
  for (int64_t i = 0; i < shape->dims[dim]; i++) {
    if (hlo_rd_at(r, '}'))
      return hlo_rd_error(r, r->p, "dimension %d has %" PRId64 " elements, the shape %" PRId64, dim, i,
                          shape->dims[dim]);
    /* as in XLA, a comma may be missing before a brace */
    if (i > 0 && !hlo_rd_at(r, '{')) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(read_elements(r, lit, dim + 1, index));
  }
  if (hlo_rd_at(r, ','))
    return hlo_rd_error(r, r->p, "dimension %d has more than the shape's %" PRId64 " elements", dim, shape->dims[dim]);
  return hlo_rd_expect(r, '}');
}

static bool at_ellipsis(const hlo_reader *r)
{
  hlo_reader ahead = *r;

  return hlo_rd_accept(&ahead, '{') && strncmp(ahead.p, "...", 3) == 0;
}

/* A zeroed literal for few bytes of text.  The total of such literals is limited to MAX_ELIDED_BYTES. */
static weft_status *new_unpaid(hlo_reader *r, const hlo_shape *shape, hlo_literal **out)
{
  if ((uint64_t)hlo_shape_bytes(shape) > MAX_ELIDED_BYTES - r->elided_bytes)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "elided constants of more than %d bytes", (int)MAX_ELIDED_BYTES);
  r->elided_bytes += (size_t)hlo_shape_bytes(shape);
  return hlo_literal_new(r->arena, shape, out);
}

/* Sets denormal numbers to 0, which XLA:CPU takes them for. */
static void flush_denormals(weft_dtype type, hlo_literal *lit)
{
  int64_t count = hlo_shape_bytes(lit->shape) / (int64_t)sizeof(uint64_t);
  uint64_t *wide = lit->data;
  uint32_t *single = lit->data;

  if (type == WEFT_F64 || type == WEFT_C128)
    for (int64_t i = 0; i < count; i++)
      if ((wide[i] >> 52 & 0x7ff) == 0) wide[i] = 0;
  if (type == WEFT_F32 || type == WEFT_C64)
    for (int64_t i = 0; i < hlo_shape_bytes(lit->shape) / (int64_t)sizeof(uint32_t); i++)
      if ((single[i] >> 23 & 0xff) == 0) single[i] = 0;
}

/* Makes up the data that `{...}` omits as XLA does, so that a program has the same results in both: words that count
 * up through the whole text, and bytes behind the last whole word (see kDots in xla/hlo/parser/hlo_parser.cc). */
static void fill_elided(hlo_reader *r, hlo_literal *lit)
{
  int64_t bytes = hlo_shape_bytes(lit->shape), words = bytes / 4;
  weft_dtype type = lit->shape->type;
  uint32_t *word = lit->data;
  int bits = type == WEFT_PRED ? 1 : weft_dtype_bits(type);
  uint8_t *byte = lit->data, mask = bits < 8 ? (uint8_t)((1u << bits) - 1) : 0xff;

  for (int64_t i = 0; i < words; i++) word[i] = r->elided_words++;
  for (int64_t i = 0; i < bytes % 4; i++) byte[words + i] = r->elided_rest++;
  if (mask != 0xff)
    for (int64_t i = 0; i < bytes; i++) byte[i] &= mask;
  flush_denormals(type, lit);
}

static weft_status *read_elided(hlo_reader *r, const hlo_shape *shape, hlo_literal **out)
{
  const char *at = r->p;

  if (hlo_shape_is_dynamic(shape)) return hlo_rd_error(r, at, "a constant of dynamic shape");
  hlo_rd_skip(r, 1);
  hlo_rd_skip(r, 3);
  WEFT_TRY(hlo_rd_expect(r, '}'));
  WEFT_TRY(new_unpaid(r, shape, out));
  (*out)->elided = true;
  fill_elided(r, *out);
  return NULL;
}

static weft_status *read_tuple(hlo_reader *r, const hlo_shape *shape, const hlo_literal **out)
{
  hlo_literal *lit = WEFT_ARENA_NEW(r->arena, hlo_literal);

  WEFT_TRY_ALLOC(lit);
  lit->shape = shape;
  lit->elements = WEFT_ARENA_ARRAY(r->arena, const hlo_literal *, shape->rank);
  WEFT_TRY_ALLOC(lit->elements);
  WEFT_TRY(hlo_rd_expect(r, '('));
  for (int i = 0; i < shape->rank; i++) {
    if (i > 0) WEFT_TRY(hlo_rd_expect(r, ','));
    /* as deep as the shape, whose depth is bounded */
    WEFT_TRY(hlo_rd_literal(r, shape->elements[i], &lit->elements[i]));
  }
  *out = lit;
  return hlo_rd_expect(r, ')');
}

weft_status *hlo_rd_literal(hlo_reader *r, const hlo_shape *shape, const hlo_literal **out)
{
  const char *at = r->p;
  hlo_literal *lit;
  int64_t index = 0;

  if (hlo_shape_is_tuple(shape)) return read_tuple(r, shape, out);
  if (!hlo_shape_is_array(shape)) return hlo_rd_error(r, at, "no constant can be a %s", weft_dtype_name(shape->type));
  if (at_ellipsis(r)) {
    WEFT_TRY(read_elided(r, shape, &lit));
    *out = lit;
    return NULL;
  }
  if (hlo_shape_is_dynamic(shape)) return hlo_rd_error(r, at, "a constant of dynamic shape");
  if (shape->rank > 0 && hlo_shape_elems(shape) > 0 &&
      !hlo_rd_at(r, '{')) { /* as in XLA, a single value is the first element; the others are 0 */
    WEFT_TRY(new_unpaid(r, shape, &lit));
    *out = lit;
    return read_element(r, lit, 0);
  }
  /* Each element takes at least one byte of text, so the text's size bounds the memory. */
  if (hlo_shape_elems(shape) > r->end - r->p)
    return hlo_rd_error(r, at, "the text is too short for the %" PRId64 " elements of this constant",
                        hlo_shape_elems(shape));
  WEFT_TRY(hlo_literal_new(r->arena, shape, &lit));
  *out = lit;
  /* A shape without elements may be written with any braces: {} serves for every rank. */
  if (hlo_shape_elems(shape) == 0) {
    const char *ignored;
    return hlo_rd_braces(r, &ignored);
  }
  return read_elements(r, lit, 0, &index);
}

/* ---- printing ---- */

static void print_float(FILE *out, const hlo_literal *lit, int64_t slot, weft_dtype type)
{
  uint64_t bits = load(lit, slot, type);
  double value = type == WEFT_F64 ? weft_float_decode_f64(type, bits) : (double)weft_float_decode(type, bits);

  if (isnan(value)) {
    int width = payload_bits(type);
    uint64_t payload = width ? bits & ((UINT64_C(1) << width) - 1) : 0;

    fputs(signbit(value) && width ? "-nan" : "nan", out);
    if (width && payload != UINT64_C(1) << (width - 1)) fprintf(out, "(0x%" PRIx64 ")", payload);
    return;
  }
  if (isinf(value)) {
    fputs(value < 0 ? "-inf" : "inf", out);
    return;
  }
  /* The first width whose text reads back as the same value; the last width always does. */
  static const int digits_of_double[] = {6, 15, 17}, digits_of_float[] = {3, 6, 9};
  const int *digits = type == WEFT_F64 ? digits_of_double : digits_of_float;
  char text[40];
  for (int i = 0; i < 3; i++) {
    snprintf(text, sizeof text, "%.*g", digits[i], value);
    if (strtod(text, NULL) == value || (type != WEFT_F64 && (float)strtod(text, NULL) == (float)value)) break;
  }
  fputs(text, out);
  if (value == 0 && signbit(value)) fputs(".0", out); /* XLA would read -0 as an integer, which loses the sign */
}

static void print_element(FILE *out, const hlo_literal *lit, int64_t index)
{
  weft_dtype type = lit->shape->type;

  if (type == WEFT_PRED) {
    fputs(load(lit, index, type) ? "true" : "false", out);
  } else if (weft_dtype_is_float(type)) {
    print_float(out, lit, index, type);
  } else if (weft_dtype_is_complex(type)) {
    fputc('(', out);
    print_float(out, lit, index * 2, weft_dtype_component(type));
    fputs(", ", out);
    print_float(out, lit, index * 2 + 1, weft_dtype_component(type));
    fputc(')', out);
  } else if (weft_dtype_is_signed(type)) {
    fprintf(out, "%" PRId64, hlo_literal_get_s64(lit, index));
  } else {
    fprintf(out, "%" PRIu64, load(lit, index, type));
  }
}

static void print_elements(FILE *out, const hlo_literal *lit, int dim, int64_t *index)
{
  const hlo_shape *shape = lit->shape;

  if (dim == shape->rank) {
    print_element(out, lit, (*index)++);
    return;
  }
  fputs(dim == shape->rank - 1 ? "{" : "{ ", out);
  for (int64_t i = 0; i < shape->dims[dim]; i++) {
    if (i > 0) fputs(dim == shape->rank - 1 ? "," : ", ", out);
    print_elements(out, lit, dim + 1, index);
  }
  fputs(dim == shape->rank - 1 ? "}" : " }", out);
}

/* The number of `{}` that write a shape without elements in full. */
static int64_t empty_braces(const hlo_shape *shape)
{
  int64_t count = 1;

  for (int i = 0; i < shape->rank && shape->dims[i] != 0 && count <= MAX_EMPTY_BRACES; i++)
    count *= WEFT_MIN(shape->dims[i], MAX_EMPTY_BRACES + 1);
  return count;
}

void hlo_pr_literal(FILE *out, const hlo_literal *literal, int64_t most)
{
  const hlo_shape *shape = literal->shape;
  int64_t index = 0;

  if (hlo_shape_is_tuple(shape)) {
    fputc('(', out);
    for (int i = 0; i < shape->rank; i++) {
      if (i > 0) fputs(", ", out);
      hlo_pr_literal(out, literal->elements[i], most);
    }
    fputc(')', out);
  } else if (!hlo_shape_is_array(shape)) {
    fputs("token", out);
  } else if (literal->elided || (most && hlo_shape_elems(shape) > most)) {
    fputs("{...}", out);
  } else if (hlo_shape_elems(shape) == 0 && empty_braces(shape) > MAX_EMPTY_BRACES) {
    fputs("{}", out);
  } else {
    print_elements(out, literal, 0, &index);
  }
}
