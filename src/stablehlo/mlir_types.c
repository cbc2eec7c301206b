/* stablehlo/mlir_types.c -- types out of MLIR text: builtin, quantized, and those of the dialects. */
#include "stablehlo/mlir_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static weft_status *new_type(text_parser *ps, mlir_type_kind kind, mlir_type **out)
{
  *out = WEFT_ARENA_NEW(ps->arena, mlir_type);
  WEFT_TRY_ALLOC(*out);
  (*out)->kind = kind;
  return NULL;
}

/* The dimensions of a shaped type up to its element type: 2x?x */
static weft_status *dimensions(text_parser *ps, int *rank, int64_t *dims)
{
  *rank = 0;
  text_skip_space(ps);
  while (ps->p < ps->end && (text_is_digit(*ps->p) || *ps->p == '?')) {
    const char *start = ps->p;
    int64_t dim = MLIR_DYNAMIC;
    if (*ps->p == '?') {
      ps->p++;
    } else {
      WEFT_TRY(text_integer(ps, &dim));
      if (dim < 0) return text_fail(ps, start, "a dimension over 2^63");
    }
    if (!text_accept(ps, 'x')) return text_fail(ps, ps->p, "expected 'x' after a dimension");
    if (*rank == HLO_MAX_RANK) return text_fail(ps, start, "rank over %d", HLO_MAX_RANK);
    dims[(*rank)++] = dim;
  }
  return NULL;
}

/* Gives an error (taken) the position `at`; NULL for NULL. */
static weft_status *positioned(text_parser *ps, const char *at, weft_status *st)
{
  weft_status *out = st ? text_fail(ps, at, "%s", weft_status_message(st)) : NULL;

  weft_status_free(st);
  return out;
}

static weft_status *shaped_type(text_parser *ps, mlir_type_kind kind, const mlir_type **out)
{
  int64_t dims[HLO_MAX_RANK], bound_values[HLO_MAX_RANK];
  const int64_t *bounds = NULL;
  int rank = 0;
  const mlir_type *element;
  const char *start = ps->p;

  WEFT_TRY(text_expect(ps, '<'));
  bool unranked = text_accept_str(ps, "*x");
  if (!unranked) WEFT_TRY(dimensions(ps, &rank, dims));
  WEFT_TRY(text_type(ps, &element));
  if (element->kind != MLIR_ELEMENT && element->kind != MLIR_INDEX && element->kind != MLIR_QUANTIZED)
    return text_fail(ps, start, "a tensor of something that is no element type");
  while (text_accept(ps, ',')) { /* encoding: bounds */
    const mlir_attr *encoding, *list;
    WEFT_TRY(text_attr(ps, &encoding));
    list = encoding->kind == MLIR_DICT ? mlir_dict_get(encoding, "bounds") : encoding;
    if (!list || list->kind != MLIR_ARRAY) continue;
    if (list->u.array.count != rank) return text_fail(ps, start, "%d bounds for rank %d", list->u.array.count, rank);
    for (int i = 0; i < rank; i++) {
      bound_values[i] = mlir_attr_int(list->u.array.items[i], MLIR_DYNAMIC);
      if (bound_values[i] < 0 && bound_values[i] != MLIR_DYNAMIC) return text_fail(ps, start, "a negative bound");
    }
    bounds = bound_values;
  }
  WEFT_TRY(text_expect(ps, '>'));
  WEFT_TRY(positioned(ps, start, mlir_new_tensor(ps->arena, element, rank, dims, bounds, out)));
  if (unranked || kind == MLIR_BUFFER) ((mlir_type *)(uintptr_t)*out)->kind = unranked ? MLIR_UNRANKED : MLIR_BUFFER;
  ps->program->has_dynamic_types |= mlir_type_is_dynamic(*out);
  return NULL;
}

/* The length of a type's text up to the bracket that closes it, for use as a key; 0: the bracket is not near. */
static size_t type_span(const char *p, const char *end)
{
  int depth = 0;

  for (size_t n = 0; n < 120 && p + n < end; n++) {
    if (p[n] == '<') depth++;
    if (p[n] == '>' && --depth == 0) return n + 1;
    if (p[n] == '"' || p[n] == '#') return 0;
  }
  return 0;
}

static weft_status *tensor_type(text_parser *ps, const mlir_type **out)
{
  size_t n = type_span(ps->p, ps->end);
  text_cached_type *slot = &ps->cache[mlir_hash(ps->p, n) % TEXT_TYPE_CACHE];
  const char *start = ps->p;

  if (n > 0 && slot->size == n && memcmp(slot->text, start, n) == 0) {
    ps->p += n;
    *out = slot->type;
    return NULL;
  }
  WEFT_TRY(shaped_type(ps, MLIR_TENSOR, out));
  if (n > 0 && ps->p == start + n) *slot = (text_cached_type){start, n, *out};
  return NULL;
}

weft_status *text_type_list(text_parser *ps, text_list *types)
{
  if (!text_accept(ps, '(')) {
    const mlir_type *t;
    WEFT_TRY(text_type(ps, &t));
    return text_push(ps, types, t);
  }
  if (text_accept(ps, ')')) return NULL;
  WEFT_TRY(text_types(ps, types));
  return text_expect(ps, ')');
}

weft_status *text_types(text_parser *ps, text_list *types)
{
  do {
    const mlir_type *t;
    WEFT_TRY(text_type(ps, &t));
    WEFT_TRY(text_push(ps, types, t));
  } while (text_accept(ps, ','));
  return NULL;
}

weft_status *text_function_type(text_parser *ps, const mlir_type **out)
{
  text_list types = {0};
  mlir_type *t;

  WEFT_TRY(text_grow(ps, &types.items, 0, &types.capacity, sizeof(void *))); /* () -> () has elements, too: none */
  WEFT_TRY(text_type_list(ps, &types));
  WEFT_TRY(new_type(ps, MLIR_FUNCTION, &t));
  t->count = types.count;
  if (!text_accept_str(ps, "->")) return text_fail(ps, ps->p, "expected '->'");
  WEFT_TRY(text_type_list(ps, &types));
  t->result_count = types.count - t->count;
  t->elements = (const mlir_type *const *)types.items;
  *out = t;
  return NULL;
}

static weft_status *tuple_type(text_parser *ps, mlir_type_kind kind, const mlir_type **out)
{
  text_list types = {0};
  mlir_type *t;

  WEFT_TRY(text_expect(ps, '<'));
  if (text_peek(ps) != '>') WEFT_TRY(text_types(ps, &types));
  WEFT_TRY(text_expect(ps, '>'));
  WEFT_TRY(new_type(ps, kind, &t));
  t->count = types.count;
  t->elements = (const mlir_type *const *)types.items;
  *out = t;
  return NULL;
}

/* <storage[<min:max>]:expressed[:axis], scale[:zero]> or {scale[:zero], ...} */
static weft_status *quantized_type(text_parser *ps, const mlir_type **out)
{
  mlir_quant *q = WEFT_ARENA_NEW(ps->arena, mlir_quant);
  double *scales = NULL;
  int64_t *zeros = NULL, axis = -1;
  int count = 0, scale_capacity = 0, zero_capacity = 0;
  const char *word, *start = ps->p;
  size_t size;
  mlir_type *t;
  const mlir_type *expressed;

  WEFT_TRY_ALLOC(q);
  WEFT_TRY(text_expect(ps, '<'));
  if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected a storage type");
  char name[16];
  int prefix = word[0] == 'u' && size > 1 && word[1] != 'i'; /* u8 here, ui8 elsewhere */
  if (size < 2 || size > 8 || word[0] == 's') return text_fail(ps, word, "not a storage type");
  snprintf(name, sizeof name, "%s%.*s", prefix ? "ui" : "", (int)size - prefix, word + prefix);
  q->storage = mlir_dtype_from_name(name, strlen(name));
  if (!weft_dtype_is_integer(q->storage)) return text_fail(ps, word, "not a storage type");
  int bits = weft_dtype_bits(q->storage);
  bool is_signed = weft_dtype_is_signed(q->storage);
  if (bits > 32) return text_fail(ps, word, "a storage type of more than 32 bits");
  q->min = is_signed ? -((int64_t)1 << (bits - 1)) : 0;
  q->max = is_signed ? ((int64_t)1 << (bits - 1)) - 1 : ((int64_t)1 << bits) - 1;
  if (text_accept(ps, '<')) {
    WEFT_TRY(text_integer(ps, &q->min));
    WEFT_TRY(text_expect(ps, ':'));
    WEFT_TRY(text_integer(ps, &q->max));
    WEFT_TRY(text_expect(ps, '>'));
  }
  WEFT_TRY(text_expect(ps, ':'));
  WEFT_TRY(text_type(ps, &expressed));
  if (!weft_dtype_is_float(expressed->dtype)) return text_fail(ps, start, "the expressed type is not a float");
  q->expressed = expressed->dtype;
  if (text_accept(ps, ':')) {
    if (text_peek(ps) == '{') return WEFT_ERR(UNIMPLEMENTED, "quantization of sub-channels (blocks) is not supported");
    WEFT_TRY(text_integer(ps, &axis));
    if (axis < 0 || axis >= HLO_MAX_RANK) return text_fail(ps, start, "quantized dimension %" PRId64, axis);
  }
  WEFT_TRY(text_expect(ps, ','));
  bool list = text_accept(ps, '{');
  do {
    WEFT_TRY(text_grow(ps, &scales, count, &scale_capacity, sizeof(double)));
    WEFT_TRY(text_grow(ps, &zeros, count, &zero_capacity, sizeof(int64_t)));
    WEFT_TRY(text_real(ps, &scales[count]));
    zeros[count] = 0;
    if (text_accept(ps, ':')) WEFT_TRY(text_integer(ps, &zeros[count]));
    count++;
  } while (list && text_accept(ps, ','));
  if (list) WEFT_TRY(text_expect(ps, '}'));
  WEFT_TRY(text_expect(ps, '>'));
  q->axis = (int)axis;
  q->count = count;
  q->scales = scales;
  q->zeros = zeros;
  WEFT_TRY_NOTE(positioned(ps, start, mlir_check_quant(q)), "a quantized type");
  WEFT_TRY(new_type(ps, MLIR_QUANTIZED, &t));
  t->dtype = q->storage;
  t->quant = q;
  *out = t;
  return NULL;
}

/* VHLO's own spellings: !vhlo.tensor_v1<4x!vhlo.f32_v1>, !vhlo.i32_v1, !vhlo.func_v1<(..) -> ..>, ... */
static weft_status *vhlo_type(text_parser *ps, const char *word, size_t size, const mlir_type **out)
{
  char name[32];
  size_t n = size;

  while (n > 0 && text_is_digit(word[n - 1])) n--;
  if (n < 3 || word[n - 1] != 'v' || word[n - 2] != '_' || n - 2 >= sizeof name)
    return text_fail(ps, word, "not a type of the vhlo dialect");
  snprintf(name, sizeof name, "%.*s", (int)(n - 2), word);
  if (strcmp(name, "tensor") == 0 || strcmp(name, "ranked_tensor") == 0) return tensor_type(ps, out);
  if (strcmp(name, "unranked_tensor") == 0) return shaped_type(ps, MLIR_TENSOR, out);
  if (strcmp(name, "tuple") == 0) return tuple_type(ps, MLIR_TUPLE, out);
  if (strcmp(name, "complex") == 0) {
    const mlir_type *part;
    WEFT_TRY(text_expect(ps, '<'));
    WEFT_TRY(text_type(ps, &part));
    *out = mlir_element_type(weft_dtype_complex_of(part->dtype));
    return text_expect(ps, '>');
  }
  mlir_type *t;
  if (strcmp(name, "token") == 0) {
    WEFT_TRY(new_type(ps, MLIR_TOKEN, &t));
    *out = t;
    return NULL;
  }
  if (strcmp(name, "func") == 0) {
    WEFT_TRY(text_expect(ps, '<'));
    WEFT_TRY(text_function_type(ps, out));
    return text_expect(ps, '>');
  }
  if (strcmp(name, "none") == 0 || strcmp(name, "index") == 0) {
    WEFT_TRY(new_type(ps, name[0] == 'n' ? MLIR_NONE : MLIR_INDEX, &t));
    t->dtype = name[0] == 'n' ? WEFT_INVALID : WEFT_S64;
    *out = t;
    return NULL;
  }
  if (strcmp(name, "bool") == 0) snprintf(name, sizeof name, "i1");
  weft_dtype dtype = mlir_dtype_from_name(name, strlen(name));
  if (dtype == WEFT_INVALID) return text_fail(ps, word, "not a type that is known: %s", name);
  *out = mlir_element_type(dtype);
  return NULL;
}

static weft_status *dialect_type(text_parser *ps, const mlir_type **out)
{
  const char *word, *body = "";
  size_t size, body_size = 0;
  mlir_type *t;

  if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected the name of a type");
#define IS(s) (size == strlen(s) && memcmp(word, s, size) == 0)
  if (IS("stablehlo.token") || IS("mhlo.token")) {
    WEFT_TRY(new_type(ps, MLIR_TOKEN, &t));
    *out = t;
    return NULL;
  }
  if (IS("quant.uniform")) return quantized_type(ps, out);
  if (IS("stablehlo.future")) return tuple_type(ps, MLIR_FUTURE, out);
#undef IS
  if (size > 5 && memcmp(word, "vhlo.", 5) == 0) return vhlo_type(ps, word + 5, size - 5, out);
  *out = mlir_table_get(&ps->type_aliases, word, size);
  if (*out) return mlir_refer_type(ps->program, *out, ps->depth);
  if (ps->p < ps->end && *ps->p == '<') {
    ps->p++;
    WEFT_TRY(text_balanced(ps, '>', &body, &body_size));
    WEFT_TRY(text_expect(ps, '>'));
  }
  WEFT_TRY(new_type(ps, MLIR_OTHER, &t));
  t->text = weft_arena_printf(ps->arena, "!%.*s<%.*s>", (int)size, word, (int)WEFT_MIN(body_size, 4096), body);
  WEFT_TRY_ALLOC(t->text);
  *out = t;
  return NULL;
}

/* True if a type can be read here by its word (not: `(` functions). */
bool text_is_type_word(const char *word, size_t size)
{
  static const char *const words[] = {"tensor", "tuple", "complex", "memref", "index", "none"};

  for (size_t i = 0; i < WEFT_COUNT(words); i++)
    if (size == strlen(words[i]) && memcmp(word, words[i], size) == 0) return true;
  return mlir_dtype_from_name(word, size) != WEFT_INVALID;
}

static weft_status *bare_type(text_parser *ps, const mlir_type **out)
{
  const char *word;
  size_t size;
  mlir_type *t;

  if (text_peek(ps) == '!') {
    ps->p++;
    return dialect_type(ps, out);
  }
  if (text_peek(ps) == '(') return text_function_type(ps, out);
  if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected a type");
#define IS(s) (size == strlen(s) && memcmp(word, s, size) == 0)
  if (IS("tensor")) return tensor_type(ps, out);
  if (IS("tuple")) return tuple_type(ps, MLIR_TUPLE, out);
  if (IS("memref")) return shaped_type(ps, MLIR_BUFFER, out);
  if (IS("complex")) {
    const mlir_type *part;
    WEFT_TRY(text_expect(ps, '<'));
    WEFT_TRY(text_type(ps, &part));
    if (weft_dtype_complex_of(part->dtype) == WEFT_INVALID) return text_fail(ps, word, "no complex type of that");
    *out = mlir_element_type(weft_dtype_complex_of(part->dtype));
    return text_expect(ps, '>');
  }
  if (IS("index") || IS("none")) {
    WEFT_TRY(new_type(ps, IS("index") ? MLIR_INDEX : MLIR_NONE, &t));
    t->dtype = IS("index") ? WEFT_S64 : WEFT_INVALID;
    *out = t;
    return NULL;
  }
#undef IS
  weft_dtype dtype = mlir_dtype_from_name(word, size);
  if (dtype == WEFT_INVALID) return text_fail(ps, word, "\"%.*s\" is not a type", (int)WEFT_MIN(size, 64), word);
  *out = mlir_element_type(dtype);
  return NULL;
}

weft_status *text_type(text_parser *ps, const mlir_type **out)
{
  WEFT_TRY(text_enter(ps));
  WEFT_TRY(bare_type(ps, out));
  ps->depth--;
  return NULL;
}
