/* stablehlo/vhlo.c -- attributes, types and properties in the encodings of the builtin, vhlo, stablehlo and sdy
 * dialects (facts: programs.md 9.4-9.6).  All give the same mlir_attr and mlir_type forms as the text reader.
 * Attributes of sdy that no lowering asks for (parameters of its collectives) are opaque bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stablehlo/bytecode.h"

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static weft_status *new_attr(bc_reader *r, bc_cursor *c, mlir_attr_kind kind, mlir_attr **out)
{
  *out = WEFT_ARENA_NEW(r->arena, mlir_attr);
  WEFT_TRY_ALLOC(*out);
  (*out)->kind = kind;
  (*out)->position = (size_t)((const char *)c->p - r->program->input);
  return NULL;
}

static weft_status *text_attr(bc_reader *r, bc_cursor *c, mlir_attr_kind kind, const char *s, size_t size,
                              const mlir_attr **out)
{
  mlir_attr *a;

  WEFT_TRY(new_attr(r, c, kind, &a));
  a->u.text.s = s;
  a->u.text.size = size;
  *out = a;
  return NULL;
}

static weft_status *int_attr(bc_reader *r, bc_cursor *c, int64_t v, const mlir_attr **out)
{
  mlir_attr *a;

  WEFT_TRY(new_attr(r, c, MLIR_INT, &a));
  a->u.i = v;
  *out = a;
  return NULL;
}

static weft_status *string(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  bc_string s;

  WEFT_TRY(bc_string_ref(r, c, &s));
  return text_attr(r, c, MLIR_STRING, s.s, s.size, out);
}

/* An enumeration: bytecode holds its number, and its word becomes the attribute. */
static weft_status *word(bc_reader *r, bc_cursor *c, const char *const *words, size_t count, const mlir_attr **out)
{
  const uint8_t *at = c->p;
  uint64_t v = 0;

  WEFT_TRY(bc_varint(r, c, &v));
  if (v >= count || !words[v]) return bc_fail(r, at, "value %" PRIu64 " of an enumeration of %zu", v, count);
  return text_attr(r, c, MLIR_ENUM, words[v], strlen(words[v]), out);
}
#define WORD(r, c, out, ...) \
  word((r), (c), (const char *const[]){__VA_ARGS__}, WEFT_COUNT(((const char *const[]){__VA_ARGS__})), (out))

/* Two's complement of `bits` bits: one byte up to 8, else a signed varint; over 64 a list of those. */
static weft_status *integer(bc_reader *r, bc_cursor *c, int bits, int64_t *out)
{
  uint8_t byte = 0;

  if (bits <= 8) {
    WEFT_TRY(bc_byte(r, c, &byte));
    *out = byte;
  } else if (bits <= 64) {
    WEFT_TRY(bc_svarint(r, c, out));
  } else {
    int count;
    WEFT_TRY(bc_count(r, c, &count));
    for (int i = 0; i < count; i++) {
      int64_t part;
      WEFT_TRY(bc_svarint(r, c, &part));
      if (i == 0) *out = part;
    }
  }
  return NULL;
}

static int bits_of(const mlir_type *t)
{
  if (t->kind == MLIR_INDEX) return 64;
  return t->dtype == WEFT_PRED ? 1 : weft_dtype_bits(t->dtype);
}

static weft_status *integer_attr(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  mlir_attr *a;

  WEFT_TRY(new_attr(r, c, MLIR_INT, &a));
  WEFT_TRY(bc_type_ref(r, c, &a->type));
  int bits = bits_of(a->type);
  if (bits == 0) return bc_fail(r, c->p, "an integer of a type that has none");
  WEFT_TRY(integer(r, c, bits, &a->u.i));
  bool is_signed = !weft_dtype_is_unsigned(a->type->dtype) && bits > 1;
  if (bits < 64) { /* the bits above the width are undefined */
    uint64_t v = (uint64_t)a->u.i << (64 - bits);
    a->u.i = is_signed ? (int64_t)v >> (64 - bits) : (int64_t)(v >> (64 - bits));
  }
  *out = a;
  return NULL;
}

static weft_status *double_bits(bc_reader *r, bc_cursor *c, double *out)
{
  int64_t v = 0;

  WEFT_TRY(bc_svarint(r, c, &v));
  memcpy(out, &v, sizeof *out);
  return NULL;
}

static weft_status *float_attr(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  mlir_attr *a;
  int64_t v = 0;

  WEFT_TRY(new_attr(r, c, MLIR_FLOAT, &a));
  WEFT_TRY(bc_type_ref(r, c, &a->type));
  if (!weft_dtype_is_float(a->type->dtype)) return bc_fail(r, c->p, "a float of a type that is none");
  WEFT_TRY(integer(r, c, weft_dtype_bits(a->type->dtype), &v));
  if (a->type->dtype == WEFT_F64) memcpy(&a->u.f, &v, sizeof v);
  else a->u.f = weft_float_decode_f64(a->type->dtype, (uint64_t)v);
  *out = a;
  return NULL;
}

/* Reads the number of an array's items.  The caller sets the items in *out_items. */
static weft_status *new_list(bc_reader *r, bc_cursor *c, mlir_attr **out, const mlir_attr ***out_items)
{
  int count;

  WEFT_TRY(new_attr(r, c, MLIR_ARRAY, out));
  WEFT_TRY(bc_count(r, c, &count));
  *out_items = WEFT_ARENA_ARRAY(r->arena, const mlir_attr *, count);
  WEFT_TRY_ALLOC(*out_items);
  (*out)->u.array.count = count;
  (*out)->u.array.items = *out_items;
  return NULL;
}

static weft_status *list(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  mlir_attr *a;
  const mlir_attr **items;

  WEFT_TRY(new_list(r, c, &a, &items));
  for (int i = 0; i < a->u.array.count; i++) WEFT_TRY(bc_attr_ref(r, c, &items[i]));
  *out = a;
  return NULL;
}

static weft_status *int_list(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  mlir_attr *a;
  const mlir_attr **items;

  WEFT_TRY(new_list(r, c, &a, &items));
  for (int i = 0; i < a->u.array.count; i++) {
    int64_t v;
    WEFT_TRY(bc_svarint(r, c, &v));
    WEFT_TRY(int_attr(r, c, v, &items[i]));
  }
  *out = a;
  return NULL;
}

/* Keys are attributes that hold strings. */
static weft_status *dictionary(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  mlir_attr *a;
  mlir_named_attr *items;
  int count;

  WEFT_TRY(new_attr(r, c, MLIR_DICT, &a));
  WEFT_TRY(bc_count(r, c, &count));
  items = WEFT_ARENA_ARRAY(r->arena, mlir_named_attr, count);
  WEFT_TRY_ALLOC(items);
  for (int i = 0; i < count; i++) {
    const mlir_attr *key;
    WEFT_TRY(bc_attr_ref(r, c, &key));
    items[i].name = mlir_attr_text(key, NULL);
    if (!items[i].name) return bc_fail(r, c->p, "a key that is no string");
    WEFT_TRY(bc_attr_ref(r, c, &items[i].value));
  }
  a->u.dict.count = count;
  a->u.dict.items = items;
  *out = a;
  return NULL;
}

static weft_status *fields(bc_reader *r, bc_cursor *c, int count, const mlir_named_attr *items, const mlir_attr **out)
{
  mlir_attr *a;

  WEFT_TRY(new_attr(r, c, MLIR_DICT, &a));
  a->u.dict.items = weft_arena_memdup(r->arena, items, (size_t)count * sizeof(*items));
  WEFT_TRY_ALLOC(a->u.dict.items);
  a->u.dict.count = count;
  *out = a;
  return NULL;
}
#define FIELDS(r, c, out, ...) \
  fields((r), (c), WEFT_COUNT(((mlir_named_attr[]){__VA_ARGS__})), (const mlir_named_attr[]){__VA_ARGS__}, (out))

/* A tensor's elements: little-endian, or one of them for all; i1 packed, as 0x00
 * or 0xFF for all, or (old) a byte each. */
static weft_status *dense(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  mlir_attr *a;
  bc_cursor blob;

  WEFT_TRY(new_attr(r, c, MLIR_DENSE, &a));
  WEFT_TRY(bc_type_ref(r, c, &a->type));
  WEFT_TRY(bc_blob(r, c, &blob));
  if (a->type->kind != MLIR_TENSOR || mlir_type_is_dynamic(a->type))
    return bc_fail(r, blob.p, "a constant of a type that is no static tensor");
  uint64_t size = (uint64_t)(blob.end - blob.p), n = (uint64_t)mlir_tensor_elems(a->type);
  uint64_t element = weft_dtype_bytes(a->type->dtype);
  a->u.text.s = (const char *)blob.p;
  a->u.text.size = (size_t)size;
  a->form = MLIR_DENSE_BLOB;
  if (a->type->dtype == WEFT_PRED && (size == (n + 7) / 8 || size == 1)) {
    a->form = MLIR_DENSE_BITS;
    a->splat = n > 1 && size == 1 && (*blob.p == 0x00 || *blob.p == 0xFF);
    if (!a->splat && size != (n + 7) / 8) return bc_fail(r, blob.p, "1 byte for %" PRIu64 " truth values", n);
  } else if (n > 1 && size == element) {
    a->splat = true;
  } else if (!(n == 0 && size == element) && (n > SIZE_MAX / element || size != n * element)) { /* 0: a splat, too */
    return bc_fail(r, blob.p, "%" PRIu64 " bytes for %" PRIu64 " elements of %s", size, n,
                   weft_dtype_name(a->type->dtype));
  }
  *out = a;
  return NULL;
}

/* array<T: ...>: element type, count, bytes */
static weft_status *dense_array(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  mlir_attr *a;
  const mlir_attr **items;
  bc_cursor blob;
  uint64_t count = 0;

  WEFT_TRY(new_attr(r, c, MLIR_ARRAY, &a));
  WEFT_TRY(bc_type_ref(r, c, &a->type));
  WEFT_TRY(bc_varint(r, c, &count));
  WEFT_TRY(bc_blob(r, c, &blob));
  size_t element = weft_dtype_bytes(a->type->dtype);
  if (element == 0 || element > 8 || count > (uint64_t)(blob.end - blob.p) ||
      count * element != (uint64_t)(blob.end - blob.p))
    return bc_fail(r, blob.p, "%td bytes for an array of %" PRIu64, blob.end - blob.p, count);
  items = WEFT_ARENA_ARRAY(r->arena, const mlir_attr *, count);
  WEFT_TRY_ALLOC(items);
  for (uint64_t i = 0; i < count; i++) {
    mlir_attr *item;
    uint64_t v = 0;
    memcpy(&v, blob.p + i * element, element);
    WEFT_TRY(new_attr(r, c, weft_dtype_is_float(a->type->dtype) ? MLIR_FLOAT : MLIR_INT, &item));
    if (item->kind == MLIR_INT) {
      int shift = 64 - 8 * (int)element;
      item->u.i = weft_dtype_is_signed(a->type->dtype) ? (int64_t)(v << shift) >> shift : (int64_t)v;
    } else if (a->type->dtype == WEFT_F64) {
      memcpy(&item->u.f, &v, sizeof v);
    } else {
      item->u.f = weft_float_decode_f64(a->type->dtype, v);
    }
    items[i] = item;
  }
  a->u.array.count = (int)count;
  a->u.array.items = items;
  *out = a;
  return NULL;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

/* Locations are opaque: nothing reads them, and their chains are deep. */
static weft_status *opaque(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  WEFT_TRY(text_attr(r, c, MLIR_OPAQUE, "", 0, out));
  c->p = c->end;
  return NULL;
}

static weft_status *builtin_attr(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  const uint8_t *at = c->p;
  uint64_t code = 0;
  mlir_attr *a;
  const mlir_attr *inner;

  WEFT_TRY(bc_varint(r, c, &code));
  switch (code) {
  case 0: return list(r, c, out);
  case 1: return dictionary(r, c, out);
  case 2: return string(r, c, out);
  case 3: {
    const mlir_type *type;
    WEFT_TRY(string(r, c, out));
    return bc_type_ref(r, c, &type);
  }
  case 4: /* FlatSymbolRef */
    WEFT_TRY(bc_attr_ref(r, c, &inner));
    if (inner->kind != MLIR_STRING) return bc_fail(r, at, "a symbol that is no string");
    return text_attr(r, c, MLIR_SYMBOL, inner->u.text.s, inner->u.text.size, out);
  case 5: { /* SymbolRef: the innermost name says which function */
    const mlir_attr *rest;
    WEFT_TRY(bc_attr_ref(r, c, &inner));
    WEFT_TRY(list(r, c, &rest));
    if (rest->u.array.count > 0) inner = rest->u.array.items[rest->u.array.count - 1];
    *out = inner;
    return NULL;
  }
  case 6:
    WEFT_TRY(new_attr(r, c, MLIR_TYPE, &a));
    *out = a;
    return bc_type_ref(r, c, &a->type);
  case 7:
    WEFT_TRY(new_attr(r, c, MLIR_UNIT, &a));
    *out = a;
    return NULL;
  case 8: return integer_attr(r, c, out);
  case 9: return float_attr(r, c, out);
  case 10: case 11: case 12: case 13: case 14: case 15: case 21: case 22: return opaque(r, c, out);
  case 17: return dense_array(r, c, out);
  case 18: return dense(r, c, out);
  default:
    return WEFT_ERR(UNIMPLEMENTED, "byte %td: builtin attribute %" PRIu64 " is not supported",
                    at - (const uint8_t *)r->program->input, code);
  }
}

static weft_status *result_accuracy(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  mlir_attr *atol, *rtol;
  const mlir_attr *ulps, *mode;
  int64_t n;

  WEFT_TRY(new_attr(r, c, MLIR_FLOAT, &atol));
  WEFT_TRY(new_attr(r, c, MLIR_FLOAT, &rtol));
  WEFT_TRY(double_bits(r, c, &atol->u.f));
  WEFT_TRY(double_bits(r, c, &rtol->u.f));
  WEFT_TRY(bc_svarint(r, c, &n));
  WEFT_TRY(int_attr(r, c, n, &ulps));
  WEFT_TRY(bc_attr_ref(r, c, &mode));
  return FIELDS(r, c, out, {"atol", atol}, {"rtol", rtol}, {"ulps", ulps}, {"mode", mode});
}

static weft_status *vhlo_attr(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  const uint8_t *at = c->p;
  uint64_t code = 0, v = 0;
  int64_t n, m;
  mlir_attr *a;
  const mlir_attr *x, *y, *z;
  bool flag;

  WEFT_TRY(bc_varint(r, c, &code));
  switch (code) {
  case 1: return list(r, c, out);
  case 2:
    WEFT_TRY(bc_varint(r, c, &v));
    WEFT_TRY(new_attr(r, c, MLIR_BOOL, &a));
    a->u.i = v != 0;
    *out = a;
    return NULL;
  case 3: return WORD(r, c, out, "EQ", "NE", "GE", "GT", "LE", "LT");
  case 4: return WORD(r, c, out, "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED");
  case 5:
    return WORD(r, c, out, "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
                "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI");
  case 6: return dictionary(r, c, out);
  case 7: return WORD(r, c, out, "FFT", "IFFT", "RFFT", "IRFFT");
  case 8: return float_attr(r, c, out);
  case 9: return integer_attr(r, c, out);
  case 10:
    WEFT_TRY(int_list(r, c, &x));
    WEFT_TRY(bc_svarint(r, c, &n));
    WEFT_TRY(int_attr(r, c, n, &y));
    WEFT_TRY(int_list(r, c, &z));
    return FIELDS(r, c, out, {"output_tuple_indices", x}, {"operand_index", y}, {"operand_tuple_indices", z});
  case 11: return WORD(r, c, out, "DEFAULT", "HIGH", "HIGHEST");
  case 12: return WORD(r, c, out, "DEFAULT", "THREE_FRY", "PHILOX");
  case 13: return WORD(r, c, out, NULL, "UNIFORM", "NORMAL");
  case 14: return string(r, c, out);
  case 15: return dense(r, c, out);
  case 16: return WORD(r, c, out, "TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT");
  case 17:
    WEFT_TRY(new_attr(r, c, MLIR_TYPE, &a));
    *out = a;
    return bc_type_ref(r, c, &a->type);
  case 18: WEFT_TRY(int_list(r, c, &x)); return FIELDS(r, c, out, {"bounds", x});
  case 19: return WORD(r, c, out, "DEFAULT", "HIGHEST", "TOLERANCE");
  case 20: return result_accuracy(r, c, out);
  case 21:
    WEFT_TRY(bc_svarint(r, c, &n));
    WEFT_TRY(bc_svarint(r, c, &m));
    WEFT_TRY(int_attr(r, c, n, &x));
    WEFT_TRY(int_attr(r, c, m, &y));
    return FIELDS(r, c, out, {"pre_size", x}, {"size", y});
  case 22:
    WEFT_TRY(bc_attr_ref(r, c, &x));
    WEFT_TRY(bc_varint(r, c, &v));
    if (v == 0) return FIELDS(r, c, out, {"name", x});
    WEFT_TRY(bc_attr_ref(r, c, &y));
    return FIELDS(r, c, out, {"name", x}, {"sub_axis_info", y});
  case 23:
    WEFT_TRY(bc_attr_ref(r, c, &x));
    WEFT_TRY(bc_attr_ref(r, c, &y));
    return FIELDS(r, c, out, {"mesh", x}, {"axes", y});
  case 24:
    WEFT_TRY(bc_attr_ref(r, c, &x));
    WEFT_TRY(bc_svarint(r, c, &n));
    WEFT_TRY(int_attr(r, c, n, &y));
    return FIELDS(r, c, out, {"name", x}, {"size", y});
  case 25:
    WEFT_TRY(bc_attr_ref(r, c, &x));
    WEFT_TRY(bc_varint(r, c, &v));
    flag = v != 0;
    if (!flag) return FIELDS(r, c, out, {"axes", x});
    WEFT_TRY(bc_attr_ref(r, c, &y));
    return FIELDS(r, c, out, {"axes", x}, {"device_ids", y});
  default:
    return WEFT_ERR(UNIMPLEMENTED, "byte %td: vhlo attribute %" PRIu64 " of producer %.64s is not known",
                    at - (const uint8_t *)r->program->input, code, r->program->producer);
  }
}

/* The stablehlo dialect itself, which programs that are not portable artifacts use (JAX passes single operations
 * so). */
static weft_status *stablehlo_attr(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  enum { INT, INTS };
  /* numbers of dimensions, as they follow each other */
  static const struct { int code; struct { const char *name; int kind; } fields[10]; } records[] = {
      {1, {{"handle", INT}, {"type", INT}}},
      {4, {{"input_batch_dimension", INT}, {"input_feature_dimension", INT}, {"input_spatial_dimensions", INTS},
           {"kernel_input_feature_dimension", INT}, {"kernel_output_feature_dimension", INT}, {"kernel_spatial_dimensions", INTS},
           {"output_batch_dimension", INT}, {"output_feature_dimension", INT}, {"output_spatial_dimensions", INTS}}},
      {5, {{"lhs_batching_dimensions", INTS}, {"rhs_batching_dimensions", INTS}, {"lhs_contracting_dimensions", INTS},
           {"rhs_contracting_dimensions", INTS}}},
      {7, {{"offset_dims", INTS}, {"collapsed_slice_dims", INTS}, {"operand_batching_dims", INTS},
           {"start_indices_batching_dims", INTS}, {"start_index_map", INTS}, {"index_vector_dim", INT}}},
      {11, {{"update_window_dims", INTS}, {"inserted_window_dims", INTS}, {"input_batching_dims", INTS},
            {"scatter_indices_batching_dims", INTS}, {"scatter_dims_to_operand_dims", INTS}, {"index_vector_dim", INT}}},
      {13, {{"bounds", INTS}}},
      {14, {{"output_tuple_indices", INTS}, {"operand_index", INT}, {"operand_tuple_indices", INTS}}},
  };
  const uint8_t *at = c->p;
  uint64_t code = 0;

  WEFT_TRY(bc_varint(r, c, &code));
  for (size_t i = 0; i < WEFT_COUNT(records); i++) {
    mlir_named_attr items[WEFT_COUNT(records[i].fields)];
    int count = 0;
    if ((uint64_t)records[i].code != code) continue;
    for (; count < (int)WEFT_COUNT(items) && records[i].fields[count].name; count++) {
      int64_t n;
      items[count].name = records[i].fields[count].name;
      if (records[i].fields[count].kind == INTS) {
        WEFT_TRY(int_list(r, c, &items[count].value));
        continue;
      }
      WEFT_TRY(bc_svarint(r, c, &n));
      WEFT_TRY(int_attr(r, c, n, &items[count].value));
    }
    return fields(r, c, count, items, out);
  }
  switch (code) {
  case 2: return WORD(r, c, out, "EQ", "NE", "GE", "GT", "LE", "LT");
  case 3: return WORD(r, c, out, "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED");
  case 6: return WORD(r, c, out, "FFT", "IFFT", "RFFT", "IRFFT");
  case 8: return WORD(r, c, out, "DEFAULT", "HIGH", "HIGHEST");
  case 9: return WORD(r, c, out, "DEFAULT", "THREE_FRY", "PHILOX");
  case 10: return WORD(r, c, out, NULL, "UNIFORM", "NORMAL");
  case 12: return WORD(r, c, out, "TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT");
  case 16: return WORD(r, c, out, "DEFAULT", "HIGHEST", "TOLERANCE");
  case 17: return result_accuracy(r, c, out);
  default:
    return WEFT_ERR(UNIMPLEMENTED, "byte %td: stablehlo attribute %" PRIu64 " is not supported",
                    at - (const uint8_t *)r->program->input, code);
  }
}

static weft_status *chlo_attr(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  uint64_t code = 0;

  WEFT_TRY(bc_varint(r, c, &code));
  if (code == 0) return WORD(r, c, out, "EQ", "NE", "GE", "GT", "LE", "LT");
  if (code == 1) return WORD(r, c, out, "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED");
  return WEFT_ERR(UNIMPLEMENTED, "chlo attribute %" PRIu64 " is not supported", code);
}

/* Which dimensions of an operation go together. */
static weft_status *sharding_rule(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  static const char *const names[] = {"factor_sizes", "operands", "results", "reduction", "need_replication", "permutation",
                                      "blocked_propagation"};
  mlir_named_attr items[WEFT_COUNT(names)];
  uint8_t custom;

  for (size_t i = 0; i < WEFT_COUNT(names); i++) {
    items[i].name = names[i];
    WEFT_TRY(i == 1 || i == 2 ? list(r, c, &items[i].value) : int_list(r, c, &items[i].value));
  }
  WEFT_TRY(bc_byte(r, c, &custom));
  return fields(r, c, WEFT_COUNT(names), items, out);
}

/* Meshes and shardings, in the fields that mlir.h names. */
static weft_status *sdy_attr(bc_reader *r, bc_cursor *c, const mlir_attr **out)
{
  uint64_t code = 0, index;
  uint8_t closed;
  int64_t n, m;
  bool flag;
  const mlir_attr *x, *y, *z, *w;

  WEFT_TRY(bc_varint(r, c, &code));
  switch (code) {
  case 0: case 7: case 16: return list(r, c, out); /* manual axes; a sharding per value */
  case 1:
    WEFT_TRY(string(r, c, &x));
    WEFT_TRY(bc_svarint(r, c, &n));
    WEFT_TRY(int_attr(r, c, n, &y));
    return FIELDS(r, c, out, {"name", x}, {"size", y});
  case 2:
    WEFT_TRY(list(r, c, &x));
    WEFT_TRY(int_list(r, c, &y));
    return FIELDS(r, c, out, {"axes", x}, {"device_ids", y});
  case 3:
    WEFT_TRY(bc_svarint(r, c, &n));
    WEFT_TRY(bc_svarint(r, c, &m));
    WEFT_TRY(int_attr(r, c, n, &x));
    WEFT_TRY(int_attr(r, c, m, &y));
    return FIELDS(r, c, out, {"pre_size", x}, {"size", y});
  case 4:
    WEFT_TRY(string(r, c, &x));
    WEFT_TRY(bc_flagged(r, c, &index, &flag));
    if (!flag) return FIELDS(r, c, out, {"name", x});
    if (index >= (uint64_t)r->attr_count) return bc_fail(r, c->p, "attribute %" PRIu64 " of %d", index, r->attr_count);
    WEFT_TRY(bc_attr(r, (int)index, &y));
    return FIELDS(r, c, out, {"name", x}, {"sub_axis_info", y});
  case 5:
    WEFT_TRY(list(r, c, &x));
    WEFT_TRY(bc_byte(r, c, &closed));
    WEFT_TRY(bc_flagged(r, c, &index, &flag)); /* a priority of propagation */
    WEFT_TRY(int_attr(r, c, closed != 0, &y));
    return FIELDS(r, c, out, {"axes", x}, {"is_closed", y});
  case 6: case 15: case 17:
    WEFT_TRY(bc_attr_ref(r, c, &x));
    WEFT_TRY(list(r, c, &y));
    WEFT_TRY(list(r, c, &z));
    if (code == 6) return FIELDS(r, c, out, {"mesh", x}, {"dims", y}, {"replicated", z});
    WEFT_TRY(list(r, c, &w));
    if (code == 17) WEFT_TRY(bc_varint(r, c, &index)); /* how unreduced axes combine */
    return FIELDS(r, c, out, {"mesh", x}, {"dims", y}, {"replicated", z}, {"unreduced", w});
  case 8: return int_list(r, c, out); /* the factors of a dimension */
  case 9: return list(r, c, out);     /* the dimensions of a tensor */
  case 10: return sharding_rule(r, c, out);
  default: return opaque(r, c, out);
  }
}

weft_status *bc_decode_attr(bc_reader *r, const char *dialect, bc_cursor *c, const mlir_attr **out)
{
  if (strcmp(dialect, "builtin") == 0) return builtin_attr(r, c, out);
  if (strcmp(dialect, "vhlo") == 0) return vhlo_attr(r, c, out);
  if (strcmp(dialect, "sdy") == 0) return sdy_attr(r, c, out);
  if (strcmp(dialect, "stablehlo") == 0) return stablehlo_attr(r, c, out);
  if (strcmp(dialect, "chlo") == 0) return chlo_attr(r, c, out);
  return WEFT_ERR(UNIMPLEMENTED, "attributes of the dialect \"%.64s\" are not known", dialect);
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static weft_status *plain_type(bc_reader *r, mlir_type_kind kind, const mlir_type **out)
{
  mlir_type *t = WEFT_ARENA_NEW(r->arena, mlir_type);

  WEFT_TRY_ALLOC(t);
  t->kind = kind;
  t->dtype = kind == MLIR_INDEX ? WEFT_S64 : WEFT_INVALID;
  *out = t;
  return NULL;
}

static weft_status *type_list(bc_reader *r, bc_cursor *c, int *out_count, const mlir_type ***out)
{
  WEFT_TRY(bc_count(r, c, out_count));
  *out = WEFT_ARENA_ARRAY(r->arena, const mlir_type *, *out_count);
  WEFT_TRY_ALLOC(*out);
  for (int i = 0; i < *out_count; i++) WEFT_TRY(bc_type_ref(r, c, &(*out)[i]));
  return NULL;
}

static weft_status *tuple_type(bc_reader *r, bc_cursor *c, mlir_type_kind kind, const mlir_type **out)
{
  const mlir_type *t;
  const mlir_type **elements;
  int count;

  WEFT_TRY(type_list(r, c, &count, &elements));
  WEFT_TRY(plain_type(r, kind, &t));
  ((mlir_type *)(uintptr_t)t)->count = count;
  ((mlir_type *)(uintptr_t)t)->elements = elements;
  *out = t;
  return NULL;
}

static weft_status *function_type(bc_reader *r, bc_cursor *c, const mlir_type **out)
{
  int inputs, results;
  const mlir_type **in, **res, **all;
  mlir_type *t = WEFT_ARENA_NEW(r->arena, mlir_type);

  WEFT_TRY_ALLOC(t);
  WEFT_TRY(type_list(r, c, &inputs, &in));
  WEFT_TRY(type_list(r, c, &results, &res));
  all = WEFT_ARENA_ARRAY(r->arena, const mlir_type *, inputs + results);
  WEFT_TRY_ALLOC(all);
  for (int i = 0; i < inputs; i++) all[i] = in[i];
  for (int i = 0; i < results; i++) all[inputs + i] = res[i];
  *t = (mlir_type){.kind = MLIR_FUNCTION, .count = inputs, .result_count = results, .elements = all};
  *out = t;
  return NULL;
}

/* Gives an error (taken) the position `at`; NULL for NULL. */
static weft_status *positioned(bc_reader *r, const uint8_t *at, weft_status *st)
{
  weft_status *out = st ? bc_fail(r, at, "%s", weft_status_message(st)) : NULL;

  weft_status_free(st);
  return out;
}

static weft_status *shaped_type(bc_reader *r, bc_cursor *c, mlir_type_kind kind, const mlir_attr *encoding,
                                const mlir_type **out)
{
  int64_t dims[HLO_MAX_RANK], bounds[HLO_MAX_RANK];
  const uint8_t *at = c->p;
  const mlir_type *element;
  const mlir_attr *list = encoding && encoding->kind == MLIR_DICT ? mlir_dict_get(encoding, "bounds") : encoding;
  int rank = 0;

  if (kind != MLIR_UNRANKED) WEFT_TRY(bc_count(r, c, &rank));
  if (rank > HLO_MAX_RANK) return bc_fail(r, at, "a tensor of rank %d", rank);
  for (int i = 0; i < rank; i++) {
    WEFT_TRY(bc_svarint(r, c, &dims[i]));
    bounds[i] = list && list->kind == MLIR_ARRAY && list->u.array.count == rank
                  ? mlir_attr_int(list->u.array.items[i], MLIR_DYNAMIC)
                  : MLIR_DYNAMIC;
    if (bounds[i] < 0 && bounds[i] != MLIR_DYNAMIC) return bc_fail(r, at, "a negative bound");
  }
  WEFT_TRY(bc_type_ref(r, c, &element));
  if (element->kind != MLIR_ELEMENT && element->kind != MLIR_INDEX && element->kind != MLIR_QUANTIZED)
    return bc_fail(r, at, "a tensor of something that is no element type");
  WEFT_TRY(positioned(r, at, mlir_new_tensor(r->arena, element, rank, dims, list ? bounds : NULL, out)));
  ((mlir_type *)(uintptr_t)*out)->kind = kind;
  r->program->has_dynamic_types |= mlir_type_is_dynamic(*out);
  return NULL;
}

/* Encoding first, then the tensor. */
static weft_status *encoded_tensor(bc_reader *r, bc_cursor *c, const mlir_type **out)
{
  const mlir_attr *encoding;

  WEFT_TRY(bc_attr_ref(r, c, &encoding));
  return shaped_type(r, c, MLIR_TENSOR, encoding, out);
}

static weft_status *complex_type(bc_reader *r, bc_cursor *c, const mlir_type **out)
{
  const mlir_type *part;

  WEFT_TRY(bc_type_ref(r, c, &part));
  if (weft_dtype_complex_of(part->dtype) == WEFT_INVALID) return bc_fail(r, c->p, "no complex type of that");
  *out = mlir_element_type(weft_dtype_complex_of(part->dtype));
  return NULL;
}

enum { QUANT_SIGNED = 1 }; /* of flags */

static weft_status *quantized_type(bc_reader *r, bc_cursor *c, bool per_axis, const mlir_type **out)
{
  mlir_quant *q = WEFT_ARENA_NEW(r->arena, mlir_quant);
  mlir_type *t = WEFT_ARENA_NEW(r->arena, mlir_type);
  const uint8_t *at = c->p;
  const mlir_type *storage, *expressed;
  uint64_t flags = 0, axis = 0;
  int zeros_count = 1;
  double *scales;
  int64_t *zeros;

  WEFT_TRY_ALLOC(q);
  WEFT_TRY_ALLOC(t);
  WEFT_TRY(bc_varint(r, c, &flags));
  WEFT_TRY(bc_type_ref(r, c, &storage));
  WEFT_TRY(bc_type_ref(r, c, &expressed));
  q->axis = -1;
  q->count = 1;
  if (per_axis) {
    WEFT_TRY(bc_varint(r, c, &axis));
    if (axis >= HLO_MAX_RANK) return bc_fail(r, at, "quantized dimension %" PRIu64, axis);
    q->axis = (int)axis;
    WEFT_TRY(bc_svarint(r, c, &q->min));
    WEFT_TRY(bc_svarint(r, c, &q->max));
    WEFT_TRY(bc_count(r, c, &q->count));
  }
  scales = WEFT_ARENA_ARRAY(r->arena, double, q->count);
  WEFT_TRY_ALLOC(scales);
  for (int i = 0; i < q->count; i++) WEFT_TRY(double_bits(r, c, &scales[i]));
  if (per_axis) WEFT_TRY(bc_count(r, c, &zeros_count));
  if (zeros_count != q->count) return bc_fail(r, at, "%d scales and %d zeros", q->count, zeros_count);
  zeros = WEFT_ARENA_ARRAY(r->arena, int64_t, q->count);
  WEFT_TRY_ALLOC(zeros);
  for (int i = 0; i < q->count; i++) WEFT_TRY(bc_svarint(r, c, &zeros[i]));
  if (!per_axis) {
    WEFT_TRY(bc_svarint(r, c, &q->min));
    WEFT_TRY(bc_svarint(r, c, &q->max));
  }
  q->scales = scales;
  q->zeros = zeros;
  q->storage = storage->dtype;
  q->expressed = expressed->dtype;
  if (!weft_dtype_is_integer(q->storage) || weft_dtype_bits(q->storage) > 32 || !weft_dtype_is_float(q->expressed))
    return bc_fail(r, at, "a quantized type of %s for %s", weft_dtype_name(q->storage), weft_dtype_name(q->expressed));
  if (!(flags & QUANT_SIGNED) && weft_dtype_is_signed(q->storage)) { /* signless storage, unsigned by its flag */
    static const weft_dtype unsigned_of[WEFT_DTYPE_COUNT] = {
        [WEFT_S2] = WEFT_U2, [WEFT_S4] = WEFT_U4, [WEFT_S8] = WEFT_U8, [WEFT_S16] = WEFT_U16, [WEFT_S32] = WEFT_U32};
    q->storage = unsigned_of[q->storage];
  }
  WEFT_TRY(positioned(r, at, mlir_check_quant(q)));
  *t = (mlir_type){.kind = MLIR_QUANTIZED, .dtype = q->storage, .quant = q};
  *out = t;
  return NULL;
}

static weft_status *builtin_type(bc_reader *r, bc_cursor *c, const mlir_type **out)
{
  static const weft_dtype floats[] = {[3] = WEFT_BF16, [4] = WEFT_F16, [5] = WEFT_F32, [6] = WEFT_F64};
  const uint8_t *at = c->p;
  uint64_t code = 0, v = 0;
  char name[16];
  weft_dtype dtype;

  WEFT_TRY(bc_varint(r, c, &code));
  switch (code) {
  case 0: /* width << 2 | 0 signless, 1 signed, 2 unsigned */
    WEFT_TRY(bc_varint(r, c, &v));
    snprintf(name, sizeof name, "%si%" PRIu64, (v & 3) == 2 ? "u" : "", WEFT_MIN(v >> 2, 99999));
    dtype = mlir_dtype_from_name(name, strlen(name));
    if (dtype == WEFT_INVALID) return bc_fail(r, at, "no integer type of %" PRIu64 " bits", v >> 2);
    *out = mlir_element_type(dtype);
    return NULL;
  case 1: return plain_type(r, MLIR_INDEX, out);
  case 2: return function_type(r, c, out);
  case 3: case 4: case 5: case 6: *out = mlir_element_type(floats[code]); return NULL;
  case 9: return complex_type(r, c, out);
  case 12: return plain_type(r, MLIR_NONE, out);
  case 13: return shaped_type(r, c, MLIR_TENSOR, NULL, out);
  case 14: return encoded_tensor(r, c, out);
  case 15: return tuple_type(r, c, MLIR_TUPLE, out);
  case 18: return shaped_type(r, c, MLIR_UNRANKED, NULL, out);
  default:
    return WEFT_ERR(UNIMPLEMENTED, "byte %td: builtin type %" PRIu64 " is not supported",
                    at - (const uint8_t *)r->program->input, code);
  }
}

static weft_status *vhlo_type(bc_reader *r, bc_cursor *c, const mlir_type **out)
{
  static const weft_dtype elements[] = {
      [0] = WEFT_PRED, [2] = WEFT_BF16, [3] = WEFT_F16, [4] = WEFT_F32, [5] = WEFT_F64, [6] = WEFT_F8E4M3FN,
      [7] = WEFT_F8E5M2, [10] = WEFT_S4, [11] = WEFT_S8, [12] = WEFT_S16, [13] = WEFT_S32, [14] = WEFT_S64,
      [15] = WEFT_U4, [16] = WEFT_U8, [17] = WEFT_U16, [18] = WEFT_U32, [19] = WEFT_U64, [27] = WEFT_F8E4M3FNUZ,
      [28] = WEFT_F8E5M2FNUZ, [29] = WEFT_F8E4M3B11FNUZ, [31] = WEFT_S2, [32] = WEFT_U2, [35] = WEFT_F8E4M3,
      [36] = WEFT_F8E3M4, [37] = WEFT_F4E2M1FN, [38] = WEFT_F6E2M3FN, [39] = WEFT_F6E3M2FN, [40] = WEFT_F8E8M0FNU};
  const uint8_t *at = c->p;
  uint64_t code = 0;

  WEFT_TRY(bc_varint(r, c, &code));
  if (code < WEFT_COUNT(elements) && elements[code] != WEFT_INVALID) {
    *out = mlir_element_type(elements[code]);
    return NULL;
  }
  switch (code) {
  case 1: return complex_type(r, c, out);
  case 8: return function_type(r, c, out);
  case 9: return plain_type(r, MLIR_INDEX, out);
  case 20: return shaped_type(r, c, MLIR_TENSOR, NULL, out);
  case 21: return encoded_tensor(r, c, out);
  case 22: return plain_type(r, MLIR_TOKEN, out);
  case 23: return tuple_type(r, c, MLIR_TUPLE, out);
  case 24: return quantized_type(r, c, false, out);
  case 25: return shaped_type(r, c, MLIR_UNRANKED, NULL, out);
  case 30: return quantized_type(r, c, true, out);
  case 33: return plain_type(r, MLIR_NONE, out);
  case 26: case 34: /* witness; tf32, which only names a precision */
    WEFT_TRY(plain_type(r, MLIR_OTHER, out));
    ((mlir_type *)(uintptr_t)*out)->text = code == 34 ? "tf32" : "witness";
    return NULL;
  case 41: return shaped_type(r, c, MLIR_BUFFER, NULL, out);
  case 42: return tuple_type(r, c, MLIR_FUTURE, out);
  default:
    return WEFT_ERR(UNIMPLEMENTED, "byte %td: vhlo type %" PRIu64 " of producer %.64s is not known",
                    at - (const uint8_t *)r->program->input, code, r->program->producer);
  }
}

weft_status *bc_decode_type(bc_reader *r, const char *dialect, bc_cursor *c, const mlir_type **out)
{
  if (strcmp(dialect, "builtin") == 0) return builtin_type(r, c, out);
  if (strcmp(dialect, "vhlo") == 0) return vhlo_type(r, c, out);
  if (strcmp(dialect, "stablehlo") == 0) { /* a type that stands in an attribute of another dialect's operation */
    uint64_t code;
    WEFT_TRY(bc_varint(r, c, &code));
    if (code == 0) return plain_type(r, MLIR_TOKEN, out);
  }
  return WEFT_ERR(UNIMPLEMENTED, "types of the dialect \"%.64s\" are not known", dialect);
}

/* ---- properties -------------------------------------------------------------------------------------------------- */

/* Inherent attributes in the order in which they are stored, which is alphabetical. `?` marks an optional attribute.
 * `version`: the row is for that version only; 0: for all. Operations of stablehlo that are not listed have the
 * attributes of vhlo's. */
static const struct { const char *dialect, *op; int version; const char *attrs; } properties[] = {
    {"builtin", "module", 0, "?sym_name ?sym_visibility"},
    {"chlo", "constant", 0, "value"},
    {"chlo", "constant_like", 0, "value"},
    {"chlo", "top_k", 0, "k"},
    {"func", "call", 0, "?arg_attrs callee ?no_inline ?res_attrs"},
    {"func", "func", 0, "?arg_attrs function_type ?no_inline ?res_attrs sym_name ?sym_visibility"},
    {"func", "call", 0, "?arg_attrs callee ?no_inline ?res_attrs"},
    {"sdy", "all_gather", 0, "gathering_axes out_sharding"},
    {"sdy", "all_reduce", 0, "out_sharding reduction_axes"},
    {"sdy", "all_slice", 0, "out_sharding slicing_axes"},
    {"sdy", "all_to_all", 0, "out_sharding params"},
    {"sdy", "collective_permute", 0, "out_sharding"},
    {"sdy", "constant", 0, "value"},
    {"sdy", "manual_computation", 0, "in_shardings manual_axes out_shardings"},
    {"sdy", "mesh", 0, "mesh sym_name"},
    {"sdy", "named_computation", 0, "?in_shardings name ?out_shardings"},
    {"sdy", "propagation_barrier", 0, "allowed_direction"},
    {"sdy", "reduce_scatter", 0, "out_sharding reduce_scatter_axes"},
    {"sdy", "reshard", 0, "sharding"},
    {"sdy", "sharding_constraint", 0, "sharding"},
    {"sdy", "sharding_group", 0, "group_id"},
    {"stablehlo", "all_gather", 0, "all_gather_dim ?channel_handle replica_groups ?use_global_device_ids"},
    {"stablehlo", "all_reduce", 0, "?channel_handle replica_groups ?use_global_device_ids"},
    {"stablehlo", "all_to_all", 0, "?channel_handle concat_dimension replica_groups split_count split_dimension"},
    {"stablehlo", "cbrt", 0, "?result_accuracy"},
    {"stablehlo", "cholesky", 0, "?lower"},
    {"stablehlo", "collective_broadcast", 0, "?channel_handle ?has_dynamic_root replica_groups"},
    {"stablehlo", "collective_permute", 0, "?channel_handle source_target_pairs"},
    {"stablehlo", "compare", 0, "?compare_type comparison_direction"},
    {"stablehlo", "composite", 0, "?composite_attributes decomposition name ?version"},
    {"stablehlo", "convolution", 0,
     "batch_group_count dimension_numbers feature_group_count ?lhs_dilation ?padding ?precision_config ?rhs_dilation "
     "?window_reversal ?window_strides"},
    {"stablehlo", "cosine", 0, "?result_accuracy"},
    {"stablehlo", "custom_call", 0,
     "?api_version ?backend_config call_target_name ?called_computations ?has_side_effect ?operand_layouts "
     "?output_operand_aliases ?result_layouts ?result_tilings"},
    {"stablehlo", "dot", 0, "?precision_config"},
    {"stablehlo", "dot_general", 0, "?algorithm dot_dimension_numbers ?precision_config"},
    {"stablehlo", "exponential", 0, "?result_accuracy"},
    {"stablehlo", "exponential_minus_one", 0, "?result_accuracy"},
    {"stablehlo", "gather", 0, "dimension_numbers ?indices_are_sorted slice_sizes"},
    {"stablehlo", "log", 0, "?result_accuracy"},
    {"stablehlo", "log_plus_one", 0, "?result_accuracy"},
    {"stablehlo", "logistic", 0, "?result_accuracy"},
    {"stablehlo", "reduce_scatter", 0, "?channel_handle replica_groups scatter_dimension ?use_global_device_ids"},
    {"stablehlo", "reduce_window", 0, "?base_dilations ?padding ?window_dilations window_dimensions ?window_strides"},
    {"stablehlo", "rsqrt", 0, "?result_accuracy"},
    {"stablehlo", "scatter", 0, "?indices_are_sorted scatter_dimension_numbers ?unique_indices"},
    {"stablehlo", "select_and_scatter", 0, "?padding ?window_dimensions ?window_strides"},
    {"stablehlo", "sine", 0, "?result_accuracy"},
    {"stablehlo", "sort", 0, "?dimension ?is_stable"},
    {"stablehlo", "sqrt", 0, "?result_accuracy"},
    {"stablehlo", "tan", 0, "?result_accuracy"},
    {"stablehlo", "tanh", 0, "?result_accuracy"},
    {"vhlo", "all_gather", 0, "all_gather_dim channel_id replica_groups use_global_device_ids"},
    {"vhlo", "all_reduce", 0, "channel_id replica_groups use_global_device_ids"},
    {"vhlo", "all_to_all", 0, "channel_id concat_dimension replica_groups split_count split_dimension"},
    {"vhlo", "batch_norm_grad", 0, "epsilon feature_index"},
    {"vhlo", "batch_norm_inference", 0, "epsilon feature_index"},
    {"vhlo", "batch_norm_training", 0, "epsilon feature_index"},
    {"vhlo", "broadcast", 0, "broadcast_sizes"},
    {"vhlo", "broadcast_in_dim", 0, "broadcast_dimensions"},
    {"vhlo", "call", 0, "callee"},
    {"vhlo", "cbrt", 2, "result_accuracy"},
    {"vhlo", "cholesky", 0, "lower"},
    {"vhlo", "collective_broadcast", 1, "channel_id replica_groups"},
    {"vhlo", "collective_broadcast", 2, "channel_id has_dynamic_root replica_groups"},
    {"vhlo", "collective_permute", 0, "channel_id source_target_pairs"},
    {"vhlo", "collective_reduce", 0, "channel_id has_dynamic_root replica_groups use_global_device_ids"},
    {"vhlo", "compare", 0, "compare_type comparison_direction"},
    {"vhlo", "composite", 0, "composite_attributes decomposition name version"},
    {"vhlo", "concatenate", 0, "dimension"},
    {"vhlo", "constant", 0, "value"},
    {"vhlo", "convolution", 0,
     "batch_group_count feature_group_count input_batch_dimension input_feature_dimension input_spatial_dimensions "
     "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions lhs_dilation "
     "output_batch_dimension output_feature_dimension output_spatial_dimensions padding precision_config rhs_dilation "
     "window_reversal window_strides"},
    {"vhlo", "cosine", 2, "result_accuracy"},
    {"vhlo", "cross-replica-sum", 0, "replica_groups"},
    {"vhlo", "custom_call", 1,
     "api_version backend_config call_target_name called_computations has_side_effect operand_layouts "
     "output_operand_aliases result_layouts"},
    {"vhlo", "custom_call", 2,
     "api_version backend_config call_target_name called_computations has_side_effect operand_layouts "
     "output_operand_aliases result_layouts result_tilings"},
    {"vhlo", "dot", 0, "precision_config"},
    {"vhlo", "dot_general", 1,
     "lhs_batching_dimensions lhs_contracting_dimensions precision_config rhs_batching_dimensions "
     "rhs_contracting_dimensions"},
    {"vhlo", "dot_general", 2,
     "accumulation_type allow_imprecise_accumulation lhs_batching_dimensions lhs_component_count "
     "lhs_contracting_dimensions lhs_precision_type num_primitive_operations precision_config rhs_batching_dimensions "
     "rhs_component_count rhs_contracting_dimensions rhs_precision_type"},
    {"vhlo", "dynamic_broadcast_in_dim", 0,
     "broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions"},
    {"vhlo", "dynamic_conv", 1,
     "batch_group_count feature_group_count input_batch_dimension input_feature_dimension input_spatial_dimensions "
     "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions lhs_dilation "
     "output_batch_dimension output_feature_dimension output_spatial_dimensions padding precision_config rhs_dilation "
     "window_reversal window_strides"},
    {"vhlo", "dynamic_conv", 2,
     "batch_group_count feature_group_count input_batch_dimension input_feature_dimension input_spatial_dimensions "
     "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions lhs_dilation "
     "output_batch_dimension output_feature_dimension output_spatial_dimensions precision_config rhs_dilation "
     "window_reversal window_strides"},
    {"vhlo", "dynamic_gather", 1, "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims start_index_map"},
    {"vhlo", "dynamic_gather", 2,
     "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims start_index_map "
     "start_indices_batching_dims"},
    {"vhlo", "dynamic_iota", 0, "iota_dimension"},
    {"vhlo", "dynamic_slice", 0, "slice_sizes"},
    {"vhlo", "einsum", 0, "einsum_config"},
    {"vhlo", "exponential", 2, "result_accuracy"},
    {"vhlo", "exponential_minus_one", 2, "result_accuracy"},
    {"vhlo", "fft", 0, "fft_length fft_type"},
    {"vhlo", "func", 0, "arg_attrs function_type res_attrs sym_name sym_visibility"},
    {"vhlo", "gather", 1,
     "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes start_index_map"},
    {"vhlo", "gather", 2,
     "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims operand_batching_dims slice_sizes "
     "start_index_map start_indices_batching_dims"},
    {"vhlo", "get_dimension_size", 0, "dimension"},
    {"vhlo", "get_tuple_element", 0, "index"},
    {"vhlo", "infeed", 0, "infeed_config layout"},
    {"vhlo", "iota", 0, "iota_dimension"},
    {"vhlo", "log", 2, "result_accuracy"},
    {"vhlo", "log_plus_one", 2, "result_accuracy"},
    {"vhlo", "logistic", 2, "result_accuracy"},
    {"vhlo", "map", 0, "dimensions"},
    {"vhlo", "outfeed", 0, "outfeed_config"},
    {"vhlo", "pad", 0, "edge_padding_high edge_padding_low interior_padding"},
    {"vhlo", "recv", 1, "channel_id channel_type is_host_transfer"},
    {"vhlo", "recv", 2, "channel_id channel_type is_host_transfer source_target_pairs"},
    {"vhlo", "reduce", 0, "dimensions"},
    {"vhlo", "reduce_precision", 0, "exponent_bits mantissa_bits"},
    {"vhlo", "reduce_scatter", 0, "channel_id replica_groups scatter_dimension use_global_device_ids"},
    {"vhlo", "reduce_window", 0, "base_dilations padding window_dilations window_dimensions window_strides"},
    {"vhlo", "reverse", 0, "dimensions"},
    {"vhlo", "rng", 0, "rng_distribution"},
    {"vhlo", "rng_bit_generator", 0, "rng_algorithm"},
    {"vhlo", "rsqrt", 2, "result_accuracy"},
    {"vhlo", "scatter", 1,
     "index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims unique_indices "
     "update_window_dims"},
    {"vhlo", "scatter", 2,
     "index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims scatter_dims_to_operand_dims "
     "scatter_indices_batching_dims unique_indices update_window_dims"},
    {"vhlo", "select_and_scatter", 0, "padding window_dimensions window_strides"},
    {"vhlo", "send", 1, "channel_id channel_type is_host_transfer"},
    {"vhlo", "send", 2, "channel_id channel_type is_host_transfer source_target_pairs"},
    {"vhlo", "set_dimension_size", 0, "dimension"},
    {"vhlo", "sine", 2, "result_accuracy"},
    {"vhlo", "slice", 0, "limit_indices start_indices strides"},
    {"vhlo", "sort", 0, "dimension is_stable"},
    {"vhlo", "sqrt", 2, "result_accuracy"},
    {"vhlo", "tan", 2, "result_accuracy"},
    {"vhlo", "tanh", 2, "result_accuracy"},
    {"vhlo", "torch_index_select", 0, "batch_dims dim"},
    {"vhlo", "transpose", 0, "permutation"},
    {"vhlo", "triangular_solve", 0, "left_side lower transpose_a unit_diagonal"},
    {"vhlo", "unary_einsum", 0, "einsum_config"},
};

weft_status *bc_list_properties(bc_reader *r, bc_op_name *op)
{
  const char *names = "", *base = op->kind->name;
  size_t ignored;
  int version = mlir_version_suffix(op->spelling, strlen(op->spelling), &ignored), count = 0;
  bc_property *list;

  for (size_t i = 0; i < WEFT_COUNT(properties); i++) {
    bool inherits = strcmp(op->dialect, "stablehlo") == 0 && strcmp(properties[i].dialect, "vhlo") == 0;
    if (strcmp(properties[i].op, base) != 0 || (!inherits && strcmp(properties[i].dialect, op->dialect) != 0) ||
        (properties[i].version && properties[i].version != version) || (inherits && *names))
      continue;
    names = properties[i].attrs;
  }
  list = WEFT_ARENA_ARRAY(r->arena, bc_property, strlen(names) / 2 + 1);
  WEFT_TRY_ALLOC(list);
  while (*names) {
    bool optional = *names == '?';
    size_t size = strcspn(names += optional, " ");
    list[count] = (bc_property){weft_arena_strndup(r->arena, names, size), optional};
    WEFT_TRY_ALLOC(list[count++].name);
    names += size + (names[size] == ' ');
  }
  op->property_count = count;
  op->properties = list;
  return NULL;
}

weft_status *bc_decode_properties(bc_reader *r, const bc_op_name *op, bc_properties *p)
{
  mlir_named_attr *attrs = WEFT_ARENA_ARRAY(r->arena, mlir_named_attr, op->property_count);
  bc_cursor c = p->bytes;
  int count = 0;

  WEFT_TRY_ALLOC(attrs);
  for (int i = 0; i < op->property_count; i++) {
    uint64_t index = 0;
    const uint8_t *at = c.p;
    if (c.p == c.end && op->properties[i].optional) break; /* the producer is older than this one */
    WEFT_TRY(bc_varint(r, &c, &index));
    if (op->properties[i].optional && !(index & 1)) continue;
    if (op->properties[i].optional) index >>= 1;
    if (index >= (uint64_t)r->attr_count) return bc_fail(r, at, "attribute %" PRIu64 " of %d", index, r->attr_count);
    WEFT_TRY(bc_attr(r, (int)index, &attrs[count].value));
    attrs[count++].name = op->properties[i].name;
  }
  if (c.p != c.end) return bc_fail(r, c.p, "%td bytes of properties that %s does not have", c.end - c.p, op->spelling);
  mlir_op parts = {.attrs = attrs, .attr_count = count};
  WEFT_TRY(mlir_spread(r->arena, &parts));
  p->op = op;
  p->count = parts.attr_count;
  p->attrs = parts.attrs;
  return NULL;
}

/* ---- locations --------------------------------------------------------------------------------------------------- */

enum { CALL_SITE = 10, FILE_LINE_COLUMN, FUSED, FUSED_WITH_METADATA, NAMED, UNKNOWN, FILE_RANGE = 22 };

static weft_status *location_ref(bc_reader *r, bc_cursor *c, const mlir_location **out)
{
  int index;

  WEFT_TRY(bc_index(r, c, r->attr_count, &index));
  return bc_location(r, index, out);
}

static int clamp_line(uint64_t n) { return (int)WEFT_MIN(n, (uint64_t)INT32_MAX); }

/* line | line, column | line, columns | line, column, end line, end column */
static weft_status *file_range(bc_reader *r, bc_cursor *c, mlir_location *loc)
{
  uint64_t v[4] = {0};
  int count;

  WEFT_TRY(bc_count(r, c, &count));
  if (count > 4) return bc_fail(r, c->p, "%d numbers of a place in a file", count);
  for (int i = 0; i < count; i++) WEFT_TRY(bc_varint(r, c, &v[i]));
  loc->line = loc->end_line = clamp_line(v[0]);
  loc->column = loc->end_column = clamp_line(v[1]);
  if (count == 3) loc->end_column = clamp_line(v[2]);
  if (count == 4) {
    loc->end_line = clamp_line(v[2]);
    loc->end_column = clamp_line(v[3]);
  }
  return NULL;
}

static weft_status *fused_location(bc_reader *r, bc_cursor *c, mlir_location *loc)
{
  const mlir_location **parts;

  WEFT_TRY(bc_count(r, c, &loc->rest_count));
  parts = WEFT_ARENA_ARRAY(r->arena, const mlir_location *, loc->rest_count);
  WEFT_TRY_ALLOC(parts);
  for (int i = 0; i < loc->rest_count; i++) WEFT_TRY(location_ref(r, c, &parts[i]));
  loc->rest = parts;
  return NULL;
}

/* `entry` is marked busy while it is decoded: a location that contains itself, or is nested too deep, counts as
 * unknown. */
static weft_status *decode_location(bc_reader *r, bc_cursor c, mlir_location *loc)
{
  const mlir_attr *name;
  uint64_t code = 0, line = 0, column = 0;

  WEFT_TRY(bc_varint(r, &c, &code));
  switch (code) {
  case CALL_SITE: WEFT_TRY(location_ref(r, &c, &loc->inner)); return location_ref(r, &c, &loc->caller);
  case FILE_LINE_COLUMN: case FILE_RANGE:
    WEFT_TRY(bc_attr_ref(r, &c, &name));
    loc->file = mlir_attr_text(name, "");
    if (code == FILE_RANGE) return file_range(r, &c, loc);
    WEFT_TRY(bc_varint(r, &c, &line));
    WEFT_TRY(bc_varint(r, &c, &column));
    loc->line = loc->end_line = clamp_line(line);
    loc->column = loc->end_column = clamp_line(column);
    return NULL;
  case FUSED: case FUSED_WITH_METADATA: return fused_location(r, &c, loc);
  case NAMED:
    WEFT_TRY(bc_attr_ref(r, &c, &name));
    loc->name = mlir_attr_text(name, NULL);
    return location_ref(r, &c, &loc->inner);
  default: return NULL;
  }
}

weft_status *bc_new_location(bc_reader *r, bc_entry *e, const mlir_location **out)
{
  mlir_location *loc;

  *out = NULL;
  if (e->busy || r->depth >= MLIR_MAX_DEPTH || !e->custom || e->value) return NULL;
  if ((int)e->dialect != r->builtin) return NULL;
  loc = WEFT_ARENA_NEW(r->arena, mlir_location);
  WEFT_TRY_ALLOC(loc);
  e->busy = true;
  r->depth++;
  WEFT_TRY(decode_location(r, bc_entry_bytes(r, e), loc));
  r->depth--;
  e->busy = false;
  e->value = loc;
  e->is_location = true;
  *out = loc;
  return NULL;
}
