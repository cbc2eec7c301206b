/* stablehlo/mlir.c -- types, attributes and names of the generic layer; decoding of dense constants. */
#include "stablehlo/mlir.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ------------------------------------------------------------------------------------------------------- */

const mlir_type *mlir_element_type(weft_dtype dtype)
{
#define X(NAME, name, bits, proto, pjrt, mlir, class) [WEFT_##NAME] = {.kind = MLIR_ELEMENT, .dtype = WEFT_##NAME},
  static const mlir_type types[WEFT_DTYPE_COUNT] = {
#include "base/dtype.def"
  };
#undef X
  return &types[dtype];
}

weft_dtype mlir_dtype_from_name(const char *name, size_t size)
{
  if (size == 3 && memcmp(name, "si1", 3) == 0) return WEFT_S1;
  if (size > 2 && name[0] == 's' && name[1] == 'i') return mlir_dtype_from_name(name + 1, size - 1);
  for (int t = WEFT_PRED; t < WEFT_DTYPE_COUNT; t++) {
    const char *spelling = weft_dtype_mlir_name((weft_dtype)t);
    if (weft_dtype_is_array((weft_dtype)t) && strlen(spelling) == size && memcmp(spelling, name, size) == 0)
      return (weft_dtype)t;
  }
  return WEFT_INVALID;
}

weft_status *mlir_new_tensor(weft_arena *arena, const mlir_type *element, int rank, const int64_t *dims,
                             const int64_t *bounds, const mlir_type **out)
{
  mlir_type *t = WEFT_ARENA_NEW(arena, mlir_type);
  int64_t bytes = 16;

  WEFT_TRY_ALLOC(t);
  if (rank > HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "a tensor of rank %d, over %d", rank, HLO_MAX_RANK);
  for (int i = 0; i < rank; i++) {
    if (dims[i] < 0 && dims[i] != MLIR_DYNAMIC) return WEFT_ERR(INVALID_ARGUMENT, "a dimension of %" PRId64, dims[i]);
    if (dims[i] != MLIR_DYNAMIC && bounds && bounds[i] != MLIR_DYNAMIC)
      return WEFT_ERR(INVALID_ARGUMENT,
                      "dimension %d of size %" PRId64 " has a bound, which is for sizes that are not known", i,
                      dims[i]);
    if (dims[i] > 0 && __builtin_mul_overflow(bytes, dims[i], &bytes))
      return WEFT_ERR(INVALID_ARGUMENT, "a tensor of more than 2^63 bytes");
  }
  *t = (mlir_type){.kind = MLIR_TENSOR,
                   .rank = rank,
                   .element = element,
                   .quant = element->quant,
                   .dtype = element->kind == MLIR_INDEX ? WEFT_S64 : element->dtype};
  t->dims = weft_arena_memdup(arena, dims, (size_t)rank * sizeof(*dims));
  WEFT_TRY_ALLOC(t->dims);
  if (bounds) {
    t->bounds = weft_arena_memdup(arena, bounds, (size_t)rank * sizeof(*bounds));
    WEFT_TRY_ALLOC(t->bounds);
  }
  *out = t;
  return NULL;
}

weft_status *mlir_check_quant(const mlir_quant *q)
{
  double least = weft_float_decode_f64(q->expressed, weft_dtype_float_format(q->expressed)->has_zero ? 1 : 0);
  int bits = weft_dtype_bits(q->storage);
  bool is_signed = weft_dtype_is_signed(q->storage);
  int64_t lowest = is_signed ? -((int64_t)1 << (bits - 1)) : 0, highest = ((int64_t)1 << (bits - is_signed)) - 1;

  if (q->min < lowest || q->min >= q->max || q->max > highest)
    return WEFT_ERR(INVALID_ARGUMENT, "stored values from %" PRId64 " to %" PRId64 " of %s (quantized_type C3)", q->min,
                    q->max, weft_dtype_name(q->storage));
  for (int i = 0; i < q->count; i++) {
    double held = weft_float_decode_f64(q->expressed, weft_float_encode_f64(q->expressed, q->scales[i]));
    if (!(q->scales[i] >= least) || !isfinite(held))
      return WEFT_ERR(INVALID_ARGUMENT, "scale %g is out of %s's range (quantized_type C4)", q->scales[i],
                      weft_dtype_name(q->expressed));
    if (q->zeros[i] < q->min || q->zeros[i] > q->max)
      return WEFT_ERR(INVALID_ARGUMENT,
                      "zero point %" PRId64 " is not from %" PRId64 " to %" PRId64 " (quantized_type C7)", q->zeros[i],
                      q->min, q->max);
  }
  return NULL;
}

/* ---- references -------------------------------------------------------------------------------------------------- */

/* Counts are kept in shared types and attributes.  The recursion ends at these, so it is as deep as one alias or entry
 * nests. */
static void count_type(const mlir_type *shared)
{
  mlir_type *t = (mlir_type *)(uintptr_t)shared;
  int64_t sum = 1;
  int deepest = 0;

  if (t->parts || t->count + t->result_count == 0) return;
  for (int i = 0; i < t->count + t->result_count; i++) {
    count_type(t->elements[i]);
    sum += WEFT_MAX(t->elements[i]->parts, 1);
    deepest = WEFT_MAX(deepest, t->elements[i]->depth);
  }
  t->parts = (int)WEFT_MIN(sum, MLIR_MAX_PARTS + 1);
  t->depth = deepest + 1;
}

static void count_attr(const mlir_attr *shared)
{
  mlir_attr *a = (mlir_attr *)(uintptr_t)shared;
  bool is_dict = a->kind == MLIR_DICT;
  int count = is_dict ? a->u.dict.count : a->kind == MLIR_ARRAY ? a->u.array.count : 0, deepest = 0;
  int64_t sum = 1;

  if (a->type) count_type(a->type);
  if (a->parts || (count == 0 && !a->type)) return;
  if (a->type) sum += WEFT_MAX(a->type->parts, 1);
  if (a->type) deepest = a->type->depth;
  for (int i = 0; i < count; i++) {
    const mlir_attr *item = is_dict ? a->u.dict.items[i].value : a->u.array.items[i];
    count_attr(item);
    sum += WEFT_MAX(item->parts, 1);
    deepest = WEFT_MAX(deepest, item->depth);
  }
  a->parts = (int)WEFT_MIN(sum, MLIR_MAX_PARTS + 1);
  a->depth = deepest + 1;
}

static weft_status *refer(mlir_program *program, int parts, int inner, int depth)
{
  program->parts += parts;
  if (program->parts > MLIR_MAX_PARTS)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "types and attributes that refer to others have over %d parts", MLIR_MAX_PARTS);
  if (inner + depth > MLIR_MAX_DEPTH)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "types and attributes that refer to others nest over %d deep", MLIR_MAX_DEPTH);
  return NULL;
}

weft_status *mlir_refer_type(mlir_program *program, const mlir_type *t, int depth)
{
  count_type(t);
  return refer(program, t->parts, t->depth, depth);
}

weft_status *mlir_refer_attr(mlir_program *program, const mlir_attr *a, int depth)
{
  count_attr(a);
  return refer(program, a->parts, a->depth, depth);
}

bool mlir_type_is_dynamic(const mlir_type *t)
{
  if (t->kind == MLIR_UNRANKED) return true;
  for (int i = 0; t->kind == MLIR_TENSOR && i < t->rank; i++)
    if (t->dims[i] == MLIR_DYNAMIC) return true;
  for (int i = 0; i < t->count + t->result_count; i++)
    if (mlir_type_is_dynamic(t->elements[i])) return true;
  return false;
}

static bool quant_equal(const mlir_quant *a, const mlir_quant *b)
{
  if (a == b) return true;
  return a && b && a->storage == b->storage && a->expressed == b->expressed && a->axis == b->axis &&
         a->count == b->count && a->min == b->min && a->max == b->max &&
         memcmp(a->scales, b->scales, (size_t)a->count * sizeof(double)) == 0 &&
         memcmp(a->zeros, b->zeros, (size_t)a->count * sizeof(int64_t)) == 0;
}

bool mlir_type_equal(const mlir_type *a, const mlir_type *b)
{
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank || a->count != b->count ||
      a->result_count != b->result_count || !quant_equal(a->quant, b->quant))
    return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i] ||
        (a->bounds ? a->bounds[i] : MLIR_DYNAMIC) != (b->bounds ? b->bounds[i] : MLIR_DYNAMIC))
      return false;
  for (int i = 0; i < a->count + a->result_count; i++)
    if (!mlir_type_equal(a->elements[i], b->elements[i])) return false;
  if (a->kind == MLIR_OTHER) return strcmp(a->text, b->text) == 0;
  return a->kind != MLIR_TENSOR || a->element->kind == b->element->kind;
}

int64_t mlir_tensor_elems(const mlir_type *t)
{
  int64_t n = 1;

  for (int i = 0; i < t->rank; i++) n *= t->dims[i] == MLIR_DYNAMIC ? 0 : t->dims[i];
  return n;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

const mlir_attr *mlir_attr_of(const mlir_op *op, const char *name)
{
  for (int i = 0; i < op->attr_count; i++)
    if (op->attrs[i].name[0] == name[0] && strcmp(op->attrs[i].name, name) == 0) return op->attrs[i].value;
  return NULL;
}

const mlir_attr *mlir_dict_get(const mlir_attr *dict, const char *name)
{
  for (int i = 0; dict && dict->kind == MLIR_DICT && i < dict->u.dict.count; i++)
    if (strcmp(dict->u.dict.items[i].name, name) == 0) return dict->u.dict.items[i].value;
  return NULL;
}

int64_t mlir_attr_int(const mlir_attr *a, int64_t fallback)
{
  return a && (a->kind == MLIR_INT || a->kind == MLIR_BOOL) ? a->u.i : fallback;
}

double mlir_attr_double(const mlir_attr *a, double fallback)
{
  if (a && a->kind == MLIR_FLOAT) return a->u.f;
  return a && a->kind == MLIR_INT ? (double)a->u.i : fallback;
}

bool mlir_attr_bool(const mlir_attr *a, bool fallback)
{
  if (a && a->kind == MLIR_UNIT) return true;
  return a && (a->kind == MLIR_INT || a->kind == MLIR_BOOL) ? a->u.i != 0 : fallback;
}

const char *mlir_attr_text(const mlir_attr *a, const char *fallback)
{
  return a && (a->kind == MLIR_STRING || a->kind == MLIR_SYMBOL || a->kind == MLIR_ENUM) ? a->u.text.s : fallback;
}

/* Numbers in an array of arrays, in order; a first call with v NULL counts. */
static weft_status *flatten(const mlir_attr *a, int depth, int *count, int64_t *v)
{
  if (a->kind == MLIR_INT || a->kind == MLIR_BOOL) {
    if (v) v[*count] = a->u.i;
    ++*count;
    return NULL;
  }
  if (a->kind != MLIR_ARRAY || depth > MLIR_MAX_DEPTH) return WEFT_ERR(INVALID_ARGUMENT, "expected a list of integers");
  for (int i = 0; i < a->u.array.count; i++) WEFT_TRY(flatten(a->u.array.items[i], depth + 1, count, v));
  return NULL;
}

weft_status *mlir_attr_ints(const mlir_program *program, const mlir_module *module, weft_arena *arena,
                            const mlir_attr *a, hlo_ints *out)
{
  int count = 0;
  int64_t *v, elems, n;
  bool splat;

  *out = (hlo_ints){0};
  if (!a) return NULL;
  if (a->kind != MLIR_DENSE) {
    WEFT_TRY(flatten(a, 0, &count, NULL));
    v = WEFT_ARENA_ARRAY(arena, int64_t, count);
    WEFT_TRY_ALLOC(v);
    count = 0;
    WEFT_TRY(flatten(a, 0, &count, v));
    *out = (hlo_ints){count, v};
    return NULL;
  }
  elems = mlir_tensor_elems(a->type);
  if ((!weft_dtype_is_integer(a->type->dtype) && a->type->dtype != WEFT_PRED) || elems > INT32_MAX)
    return WEFT_ERR(INVALID_ARGUMENT, "expected a list of integers");
  WEFT_TRY(mlir_dense_size(program, module, a, &n, &splat));
  if (a->form == MLIR_DENSE_BLOB && a->type->dtype == WEFT_S64 && !splat) { /* most lists of artifacts have this form */
    out->count = (int)elems;
    out->v = weft_arena_memdup(arena, a->u.text.s, (size_t)elems * sizeof(int64_t));
    WEFT_TRY_ALLOC(out->v);
    return NULL;
  }
  /* A splat stands for many numbers in few bytes. Valid lists of dimensions and paddings are short, since the rank
   * bounds them. */
  if (splat && elems > 1 << 20) return WEFT_ERR(INVALID_ARGUMENT, "a list of %" PRId64 " integers", elems);
  hlo_literal lit = {.shape = hlo_shape_array(arena, a->type->dtype, 1, &elems)};
  WEFT_TRY_ALLOC(lit.shape);
  lit.data = weft_arena_alloc_array(arena, (size_t)elems + 1, weft_dtype_bytes(a->type->dtype));
  v = WEFT_ARENA_ARRAY(arena, int64_t, elems);
  WEFT_TRY_ALLOC(lit.data);
  WEFT_TRY_ALLOC(v);
  WEFT_TRY(mlir_dense_read(program, module, a, lit.data));
  for (int64_t i = 0; i < elems; i++) v[i] = hlo_literal_get_s64(&lit, splat ? 0 : i);
  *out = (hlo_ints){(int)elems, v};
  return NULL;
}

/* ---- dense constants --------------------------------------------------------------------------------------------- */

/* A cursor in the text of a dense constant. */
typedef struct dense_text {
  const mlir_program *program;
  const char *p, *end;
} dense_text;

static weft_status *dense_fail(const mlir_program *program, const char *at, const char *what)
{
  char buf[64];
  bool inside = at >= program->input && at <= program->input + program->size;

  return WEFT_ERR(INVALID_ARGUMENT, "%s: dense constant: %s",
                  inside ? mlir_position(program, (size_t)(at - program->input), buf, sizeof buf) : "constant", what);
}

static void dense_space(dense_text *d)
{
  while (d->p < d->end) {
    if (*d->p == ' ' || *d->p == '\n' || *d->p == '\t' || *d->p == '\r') {
      d->p++;
    } else if (*d->p == '/' && d->p + 1 < d->end && d->p[1] == '/') {
      while (d->p < d->end && *d->p != '\n') d->p++;
    } else {
      return;
    }
  }
}

static bool dense_accept(dense_text *d, char c)
{
  dense_space(d);
  if (d->p == d->end || *d->p != c) return false;
  d->p++;
  return true;
}

static void store_bits(weft_dtype type, uint64_t bits, char *out)
{
  switch (weft_dtype_bytes(type)) {
  case 1: *(uint8_t *)out = (uint8_t)bits; break;
  case 2: memcpy(out, &(uint16_t){(uint16_t)bits}, 2); break;
  case 4: memcpy(out, &(uint32_t){(uint32_t)bits}, 4); break;
  default: memcpy(out, &bits, 8); break;
  }
}

static void store_float(weft_dtype type, double v, char *out)
{
  store_bits(type,
             type == WEFT_F64 ? ((union {
                                  double d;
                                  uint64_t u;
                                }){v})
                                  .u
             : type == WEFT_F32 ? ((union {
                                    float f;
                                    uint32_t u;
                                  }){(float)v})
                                    .u
                                : weft_float_encode_f64(type, v),
             out);
}

/* Whether `v` with that sign fits the integer type; stored as two's complement. */
static bool integer_fits(weft_dtype type, bool negative, uint64_t magnitude)
{
  int bits = type == WEFT_PRED ? 1 : weft_dtype_bits(type);
  bool is_signed = weft_dtype_is_signed(type);

  if (negative) return is_signed && magnitude <= (uint64_t)1 << (bits - 1);
  return bits == 64 || magnitude < (uint64_t)1 << bits; /* signed types take their bit pattern, too, as MLIR does */
}

/* A decimal that a double holds exactly by one multiplication or division (Clinger 1990): most that are printed.
 * False: not that simple, nothing taken. */
static bool simple_decimal(dense_text *d, double *out)
{
  static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const char *p = d->p;
  uint64_t mantissa = 0;
  int digits = 0, exponent = 0;
  bool negative = p < d->end && *p == '-', seen_point = false;

  for (p += negative; p < d->end; p++) {
    if (*p == '.' && !seen_point) {
      seen_point = true;
    } else if (*p >= '0' && *p <= '9') {
      mantissa = 10 * mantissa + (uint64_t)(*p - '0');
      if (++digits > 18) return false;
      exponent -= seen_point;
    } else {
      break;
    }
  }
  if (digits == 0) return false;
  if (p < d->end && (*p == 'e' || *p == 'E')) {
    int e = 0, e_digits = 0;
    bool minus = ++p < d->end && *p == '-';
    if (p < d->end && (*p == '-' || *p == '+')) p++;
    for (; p < d->end && *p >= '0' && *p <= '9' && e_digits < 4; p++, e_digits++) e = 10 * e + (*p - '0');
    if (e_digits == 0) return false;
    exponent += minus ? -e : e;
  }
  if (p < d->end && *p != ',' && *p != ']' && *p != ')' && *p != ' ' && *p != '\n') return false;
  if (mantissa >> 53 || exponent < -22 || exponent > 22) return false;
  double v = exponent < 0 ? (double)mantissa / powers[-exponent] : (double)mantissa * powers[exponent];
  *out = negative ? -v : v;
  d->p = p;
  return true;
}

static weft_status *dense_number(dense_text *d, weft_dtype type, char *out)
{
  const char *start;
  char token[128];
  bool negative = false, is_float = weft_dtype_is_float(type);
  size_t n;
  double decimal;

  dense_space(d);
  start = d->p;
  if (is_float && simple_decimal(d, &decimal)) {
    store_float(type, decimal, out);
    return NULL;
  }
  while (d->p < d->end && (*d->p == '-' || *d->p == '+' || *d->p == '.' || (*d->p >= '0' && *d->p <= '9') ||
                           (*d->p >= 'a' && *d->p <= 'z') || (*d->p >= 'A' && *d->p <= 'Z')))
    d->p++;
  n = (size_t)(d->p - start);
  if (n == 0 || n >= sizeof token) return dense_fail(d->program, start, "expected a number");
  memcpy(token, start, n);
  token[n] = '\0';
  if (strcmp(token, "true") == 0 || strcmp(token, "false") == 0) {
    if (is_float) return dense_fail(d->program, start, "a truth value among floats");
    store_bits(type, token[0] == 't', out);
    return NULL;
  }
  const char *digits = token;
  char *stop = NULL;
  if (*digits == '-') {
    negative = true;
    digits++;
  }
  if (*digits < '0' || *digits > '9') return dense_fail(d->program, start, "expected a number");
  bool hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
  if (is_float && !hex) {
    double v = strtod(token, &stop);
    if (*stop) return dense_fail(d->program, start, "expected a number");
    store_float(type, v, out);
    return NULL;
  }
  errno = 0;
  uint64_t v = strtoull(digits, &stop, hex ? 16 : 10);
  if (*stop || errno) return dense_fail(d->program, start, "expected an integer");
  if (is_float) { /* hexadecimal: the bits */
    if (weft_dtype_bits(type) < 64 && v >> weft_dtype_bits(type))
      return dense_fail(d->program, start, "more bits than the type has");
    store_bits(type, v, out);
    return NULL;
  }
  if (!integer_fits(type, negative, v)) return dense_fail(d->program, start, "out of the range of its type");
  int bits = weft_dtype_bits(type);
  if (negative) v = -v;
  if (weft_dtype_is_signed(type) && bits < 64) v = (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits));
  store_bits(type, v, out);
  return NULL;
}

static weft_status *dense_element(dense_text *d, weft_dtype type, char *out)
{
  if (!weft_dtype_is_complex(type)) return dense_number(d, type, out);
  weft_dtype part = weft_dtype_component(type);
  if (!dense_accept(d, '(')) return dense_fail(d->program, d->p, "expected (real, imaginary)");
  WEFT_TRY(dense_number(d, part, out));
  if (!dense_accept(d, ',')) return dense_fail(d->program, d->p, "expected ','");
  WEFT_TRY(dense_number(d, part, out + weft_dtype_bytes(part)));
  if (!dense_accept(d, ')')) return dense_fail(d->program, d->p, "expected ')'");
  return NULL;
}

/* Nested lists, one level per dimension. */
static weft_status *dense_list(dense_text *d, const mlir_type *t, int dim, char **out)
{
  if (dim == t->rank) {
    WEFT_TRY(dense_element(d, t->dtype, *out));
    *out += weft_dtype_bytes(t->dtype);
    return NULL;
  }
  if (!dense_accept(d, '[')) return dense_fail(d->program, d->p, "expected '['");
  for (int64_t i = 0; i < t->dims[dim]; i++) {
    if (i > 0 && !dense_accept(d, ',')) return dense_fail(d->program, d->p, "expected ',': too few elements");
    WEFT_TRY(dense_list(d, t, dim + 1, out));
  }
  if (!dense_accept(d, ']')) return dense_fail(d->program, d->p, "expected ']': too many elements");
  return NULL;
}

/* Values of hex digits, 0x80 for all else: large constants are mostly this. */
static const uint8_t hex_digit[256] = {
    [0 ... '0' - 1] = 0x80, ['0'] = 0, ['1'] = 1, ['2'] = 2, ['3'] = 3, ['4'] = 4, ['5'] = 5, ['6'] = 6, ['7'] = 7,
    ['8'] = 8, ['9'] = 9, ['9' + 1 ... 'A' - 1] = 0x80, ['A'] = 10, ['B'] = 11, ['C'] = 12, ['D'] = 13, ['E'] = 14,
    ['F'] = 15, ['F' + 1 ... 'a' - 1] = 0x80, ['a'] = 10, ['b'] = 11, ['c'] = 12, ['d'] = 13, ['e'] = 14, ['f'] = 15,
    ['f' + 1 ... 255] = 0x80};

/* `bytes` bytes from hex digits. */
static weft_status *hex_bytes(const mlir_program *program, const char *hex, size_t digits, size_t bytes, char *out)
{
  if (digits != 2 * bytes) return dense_fail(program, hex, "the hex string has not the size of the type");
  for (size_t i = 0; i < bytes; i++) {
    unsigned high = hex_digit[(uint8_t)hex[2 * i]], low = hex_digit[(uint8_t)hex[2 * i + 1]];
    if ((high | low) & 0x80) return dense_fail(program, hex + 2 * i, "not a hex digit");
    out[i] = (char)(high << 4 | low);
  }
  return NULL;
}

/* Brings raw elements into the form of literals: bool to 0 or 1, narrow integers to sign-extended bytes. */
static void normalize_bytes(weft_dtype type, char *data, int64_t n)
{
  int bits = weft_dtype_bits(type);

  if (type == WEFT_PRED)
    for (int64_t i = 0; i < n; i++) data[i] = data[i] != 0;
  else if (bits < 8 && weft_dtype_is_signed(type))
    for (int64_t i = 0; i < n; i++) data[i] = (char)((int8_t)(uint8_t)((uint8_t)data[i] << (8 - bits)) >> (8 - bits));
  else if (bits < 8)
    for (int64_t i = 0; i < n; i++) data[i] &= (char)((1 << bits) - 1);
}

/* The hex string between quotes of dense<"0x...">, if it is that. */
static bool hex_string(const mlir_attr *a, const char **hex, size_t *digits)
{
  const char *s = a->u.text.s;
  size_t n = a->u.text.size;

  if (n < 4 || s[0] != '"' || s[n - 1] != '"' || s[1] != '0' || (s[2] != 'x' && s[2] != 'X')) return false;
  *hex = s + 3;
  *digits = n - 4;
  return true;
}

/* A resource's digits, behind the 4-byte alignment that starts its blob. */
static bool resource_digits(const mlir_module *module, const mlir_attr *a, const char **hex, size_t *digits)
{
  for (int i = 0; i < module->resource_count; i++)
    if (strcmp(module->resources[i].name, a->u.text.s) == 0 && module->resources[i].size >= 8) {
      *hex = module->resources[i].hex + 8;
      *digits = module->resources[i].size - 8;
      return true;
    }
  return false;
}

static bool is_splat(const mlir_module *module, const mlir_attr *a, int64_t n)
{
  const char *hex;
  size_t digits;

  if (n <= 1) return false;
  switch (a->form) {
  case MLIR_DENSE_TEXT:
    if (hex_string(a, &hex, &digits)) return digits == 2 * weft_dtype_bytes(a->type->dtype);
    return a->u.text.size > 0 && a->u.text.s[0] != '[';
  case MLIR_DENSE_RESOURCE:
    return resource_digits(module, a, &hex, &digits) && digits == 2 * weft_dtype_bytes(a->type->dtype);
  default: return a->splat;
  }
}

bool mlir_is_elided(const mlir_attr *a)
{
  return a->kind == MLIR_DENSE && a->form == MLIR_DENSE_RESOURCE && strcmp(a->u.text.s, "__elided__") == 0;
}

weft_status *mlir_dense_size(const mlir_program *program, const mlir_module *module, const mlir_attr *a,
                             int64_t *out_count, bool *out_splat)
{
  int64_t n = mlir_tensor_elems(a->type);
  const char *hex;
  size_t size = a->u.text.size;

  *out_splat = is_splat(module, a, n);
  *out_count = *out_splat ? 1 : n;
  if (a->form == MLIR_DENSE_RESOURCE && !resource_digits(module, a, &hex, &size))
    return WEFT_ERR(INVALID_ARGUMENT, "there is no resource \"%s\"", a->u.text.s);
  /* The readers have checked the size of blobs; text needs a character for each element at least. */
  if ((a->form == MLIR_DENSE_TEXT || a->form == MLIR_DENSE_RESOURCE) && (uint64_t)*out_count > size)
    return dense_fail(program, a->u.text.s, "too few elements for its type");
  return NULL;
}

weft_status *mlir_dense_read(const mlir_program *program, const mlir_module *module, const mlir_attr *a, void *out)
{
  const mlir_type *t = a->type;
  size_t element = weft_dtype_bytes(t->dtype), digits = 0;
  int64_t n;
  bool splat;
  const char *hex = NULL;
  char *data = out;

  WEFT_TRY(mlir_dense_size(program, module, a, &n, &splat));
  switch (a->form) {
  case MLIR_DENSE_TEXT:
    if (hex_string(a, &hex, &digits)) {
      WEFT_TRY(hex_bytes(program, hex, digits, (size_t)n * element, out));
    } else {
      dense_text d = {program, a->u.text.s, a->u.text.s + a->u.text.size};
      dense_space(&d);
      if (n == 0) return NULL; /* dense<> and dense<[]>, any value for no element */
      if (t->rank == 0 || *d.p != '[') {
        WEFT_TRY(dense_element(&d, t->dtype, out));
      } else {
        WEFT_TRY(dense_list(&d, t, 0, &data));
      }
      dense_space(&d);
      if (d.p != d.end) return dense_fail(program, d.p, "more than its type holds");
      return NULL;
    }
    break;
  case MLIR_DENSE_RESOURCE:
    (void)resource_digits(module, a, &hex, &digits); /* it is there: mlir_dense_size */
    WEFT_TRY(hex_bytes(program, hex, digits, (size_t)n * element, out));
    break;
  case MLIR_DENSE_BITS:
    for (int64_t i = 0; i < n; i++) data[i] = (char)(a->u.text.s[i / 8] >> (i % 8) & 1);
    return NULL;
  case MLIR_DENSE_BLOB: memcpy(out, a->u.text.s, (size_t)n * element); break;
  }
  normalize_bytes(t->dtype, out, n);
  return NULL;
}

/* ---- names and positions ----------------------------------------------------------------------------------------- */

const char *mlir_position(const mlir_program *program, size_t offset, char *buf, size_t size)
{
  int line = 1;
  size_t start = 0;

  if (!program->is_text) {
    snprintf(buf, size, "byte %zu", offset);
    return buf;
  }
  for (size_t i = 0; i < offset && i < program->size; i++)
    if (program->input[i] == '\n') {
      line++;
      start = i + 1;
    }
  snprintf(buf, size, "%d:%zu", line, offset - start + 1);
  return buf;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

struct mlir_entry {
  struct mlir_entry *next;
  const char *text;
  uint32_t size, hash;
  void *value;
};

uint32_t mlir_hash(const char *text, size_t size)
{
  uint32_t h = 2166136261u;

  for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
  return h;
}

static struct mlir_entry *find_entry(const mlir_table *table, const char *text, size_t size, uint32_t hash)
{
  struct mlir_entry *e = table->bucket_count ? table->buckets[hash & (uint32_t)(table->bucket_count - 1)] : NULL;

  while (e && (e->hash != hash || e->size != size || memcmp(e->text, text, size) != 0)) e = e->next;
  return e;
}

void *mlir_table_get(const mlir_table *table, const char *text, size_t size)
{
  const struct mlir_entry *e = find_entry(table, text, size, mlir_hash(text, size));

  return e ? e->value : NULL;
}

static weft_status *grow_table(weft_arena *arena, mlir_table *table)
{
  int wanted = table->bucket_count ? 4 * table->bucket_count : 64;
  struct mlir_entry **buckets = WEFT_ARENA_ARRAY(arena, struct mlir_entry *, wanted);

  WEFT_TRY_ALLOC(buckets);
  for (int i = 0; i < table->bucket_count; i++)
    for (struct mlir_entry *e = table->buckets[i], *next; e; e = next) {
      struct mlir_entry **bucket = &buckets[e->hash & (uint32_t)(wanted - 1)];
      next = e->next;
      e->next = *bucket;
      *bucket = e;
    }
  table->buckets = buckets;
  table->bucket_count = wanted;
  return NULL;
}

weft_status *mlir_table_slot(weft_arena *arena, mlir_table *table, const char *text, size_t size, void ***out_slot)
{
  uint32_t hash = mlir_hash(text, size);
  struct mlir_entry *e = find_entry(table, text, size, hash), **bucket;

  if (!e) {
    if (table->count >= table->bucket_count) WEFT_TRY(grow_table(arena, table));
    e = WEFT_ARENA_NEW(arena, struct mlir_entry);
    WEFT_TRY_ALLOC(e);
    bucket = &table->buckets[hash & (uint32_t)(table->bucket_count - 1)];
    *e = (struct mlir_entry){.next = *bucket, .text = text, .size = (uint32_t)size, .hash = hash};
    *bucket = e;
    table->count++;
  }
  *out_slot = &e->value;
  return NULL;
}

/* ---- kinds of operations ----------------------------------------------------------------------------------------- */

int mlir_version_suffix(const char *name, size_t size, size_t *out_size)
{
  size_t digit = size;
  int version = 0;

  *out_size = size;
  while (digit > 0 && name[digit - 1] >= '0' && name[digit - 1] <= '9') digit--;
  if (digit == size || size - digit > 3 || digit < 3 || name[digit - 1] != 'v' || name[digit - 2] != '_') return 0;
  for (size_t i = digit; i < size; i++) version = 10 * version + (name[i] - '0');
  *out_size = digit - 2;
  return version;
}

/* Refuses versions of VHLO operations newer than known. */
static weft_status *check_version(const mlir_program *program, const char *name, int version)
{
  static const char *const second[] = { /* operations that have a second version; all others have one */
      "all_gather", "all_reduce", "all_to_all", "cbrt", "collective_broadcast", "composite", "cosine", "custom_call",
      "dot_general", "dynamic_conv", "dynamic_gather", "exponential", "exponential_minus_one", "gather", "log",
      "log_plus_one", "logistic", "recv", "rsqrt", "scatter", "send", "sine", "sqrt", "tan", "tanh"};
  int newest = 1;

  for (size_t i = 0; i < WEFT_COUNT(second); i++)
    if (strcmp(second[i], name) == 0) newest = 2;
  if (version > newest)
    return WEFT_ERR(UNIMPLEMENTED, "vhlo.%s_v%d: versions up to %d are known%s%s", name, version, newest,
                    program->producer ? "; the producer is " : "", program->producer ? program->producer : "");
  return NULL;
}

static weft_status *new_kind(mlir_program *program, const char *name, size_t size, mlir_op_kind **out)
{
  static const struct { const char *prefix; shlo_dialect dialect; } dialects[] = { /* the first that fits */
      {"mhlo.acos", SHLO_CHLO}, {"mhlo.asin", SHLO_CHLO}, {"mhlo.atanh", SHLO_CHLO}, {"mhlo.cosh", SHLO_CHLO},
      {"mhlo.erf", SHLO_CHLO}, {"mhlo.mulhi", SHLO_CHLO}, {"mhlo.scan", SHLO_CHLO}, {"mhlo.sinh", SHLO_CHLO},
      {"stablehlo.", SHLO_STABLEHLO}, {"vhlo.", SHLO_STABLEHLO}, {"mhlo.", SHLO_STABLEHLO}, {"chlo.", SHLO_CHLO},
      {"func.", SHLO_FUNC}, {"check.", SHLO_CHECK}, {"interpreter.", SHLO_INTERPRETER}, {"sdy.", SHLO_SDY},
      {"builtin.", SHLO_BUILTIN}, {"arith.constant", SHLO_STABLEHLO}, {"tensor.cast", SHLO_BUILTIN}};
  static const struct { const char *name; shlo_dialect dialect; } bare[] = {
      {"return", SHLO_FUNC}, {"call", SHLO_FUNC}, {"func", SHLO_FUNC}, {"module", SHLO_BUILTIN}};
  mlir_op_kind *kind = WEFT_ARENA_NEW(&program->arena, mlir_op_kind);
  int version = 0;

  WEFT_TRY_ALLOC(kind);
  kind->dialect = SHLO_OTHER;
  for (size_t i = 0; i < WEFT_COUNT(dialects) && kind->dialect == SHLO_OTHER; i++) {
    size_t prefix = strcspn(dialects[i].prefix, ".") + 1, whole = strlen(dialects[i].prefix);
    if (size <= prefix || size < whole || memcmp(name, dialects[i].prefix, whole) != 0) continue;
    kind->dialect = dialects[i].dialect;
    kind->is_vhlo = name[0] == 'v';
    if (kind->is_vhlo) version = mlir_version_suffix(name, size, &size);
    name += prefix;
    size -= prefix;
  }
  if (kind->dialect == SHLO_OTHER && size == strlen("shape.assuming_yield") &&
      memcmp(name, "shape.assuming_yield", size) == 0)
    kind->dialect = SHLO_FUNC, name = "return", size = strlen("return"); /* what ends a region is a return */
  kind->name = weft_arena_strndup(&program->arena, name, size);
  WEFT_TRY_ALLOC(kind->name);
  WEFT_TRY(check_version(program, kind->name, version));
  /* Functions may stand without their dialect's name, and VHLO has some of its own. */
  for (size_t i = 0; i < WEFT_COUNT(bare); i++)
    if (strcmp(kind->name, bare[i].name) == 0 &&
        (kind->dialect == SHLO_OTHER || (version > 0 && bare[i].name[0] != 'r')))
      kind->dialect = bare[i].dialect;
  *out = kind;
  return NULL;
}

weft_status *mlir_kind(mlir_program *program, const char *spelling, size_t size, mlir_op_kind **out)
{
  void **slot;

  WEFT_TRY(mlir_table_slot(&program->arena, &program->kinds, spelling, size, &slot));
  if (!*slot) WEFT_TRY(new_kind(program, spelling, size, (mlir_op_kind **)slot));
  *out = *slot;
  return NULL;
}

weft_status *mlir_spread(weft_arena *arena, mlir_op *op)
{
  static const char *const grouped[] = {
      "dimension_numbers", "dot_dimension_numbers", "scatter_dimension_numbers", "ragged_dot_dimension_numbers",
      "channel_handle", "algorithm"};
  mlir_named_attr *all;
  int count = op->attr_count, group_count = 0, groups[WEFT_COUNT(grouped)];

  for (int i = 0; i < op->attr_count; i++)
    for (size_t g = 0; g < WEFT_COUNT(grouped) && group_count < (int)WEFT_COUNT(groups); g++) {
      if (op->attrs[i].value->kind != MLIR_DICT || strcmp(op->attrs[i].name, grouped[g]) != 0) continue;
      groups[group_count++] = i;
      count += op->attrs[i].value->u.dict.count;
    }
  if (group_count == 0) return NULL;
  all = WEFT_ARENA_ARRAY(arena, mlir_named_attr, count);
  WEFT_TRY_ALLOC(all);
  memcpy(all, op->attrs, (size_t)op->attr_count * sizeof *all);
  count = op->attr_count;
  for (int g = 0; g < group_count; g++) {
    const mlir_attr *a = all[groups[g]].value;
    bool channel = strcmp(all[groups[g]].name, "channel_handle") == 0;
    for (int k = 0; k < a->u.dict.count; k++) {
      all[count] = a->u.dict.items[k];
      if (channel) all[count].name = strcmp(all[count].name, "handle") == 0 ? "channel_id" : "channel_type";
      count++;
    }
    all[groups[g]].name = ""; /* taken apart */
  }
  op->attrs = all;
  op->attr_count = count;
  return NULL;
}
