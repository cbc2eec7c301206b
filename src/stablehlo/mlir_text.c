/* stablehlo/mlir_text.c -- MLIR text: lexing, types, attributes, generic operations, regions, modules.
 * Recursive descent over the bytes of the input; nesting is bounded by MLIR_MAX_DEPTH. */
#include "stablehlo/mlir_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists and errors --------------------------------------------------------------------------------------------- */

static weft_status *grow(text_parser *ps, void *items, int count, int *capacity, size_t size)
{
  int bigger = *capacity ? 2 * *capacity : 4;
  void *fresh;

  if (count < *capacity) return NULL;
  fresh = weft_arena_alloc_array(ps->arena, (size_t)bigger, size);
  WEFT_TRY_ALLOC(fresh);
  if (count > 0) memcpy(fresh, *(void **)items, (size_t)count * size);
  *(void **)items = fresh;
  *capacity = bigger;
  return NULL;
}

weft_status *text_push(text_parser *ps, text_list *list, const void *item)
{
  WEFT_TRY(grow(ps, &list->items, list->count, &list->capacity, sizeof(void *)));
  list->items[list->count++] = (void *)(uintptr_t)item;
  return NULL;
}

weft_status *text_add_attr(text_parser *ps, text_attrs *attrs, const char *name, const mlir_attr *value)
{
  WEFT_TRY(grow(ps, &attrs->items, attrs->count, &attrs->capacity, sizeof(mlir_named_attr)));
  attrs->items[attrs->count++] = (mlir_named_attr){name, value};
  return NULL;
}

weft_status *text_fail(text_parser *ps, const char *at, const char *fmt, ...)
{
  char message[512], position[64];
  va_list ap;

  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  mlir_position(ps->program, (size_t)(at - ps->program->input), position, sizeof position);
  return WEFT_ERR(INVALID_ARGUMENT, "%s: %s", position, message);
}

static weft_status *enter(text_parser *ps)
{
  if (++ps->depth > MLIR_MAX_DEPTH) return text_fail(ps, ps->p, "nested deeper than %d", MLIR_MAX_DEPTH);
  return NULL;
}

/* ---- lexing ------------------------------------------------------------------------------------------------------- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '$'; }

static void skip_space(text_parser *ps)
{
  while (ps->p < ps->end) {
    char c = *ps->p;
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      ps->p++;
    } else if (c == '/' && ps->p + 1 < ps->end && ps->p[1] == '/') {
      const char *line = memchr(ps->p, '\n', (size_t)(ps->end - ps->p));
      ps->p = line ? line : ps->end;
    } else {
      return;
    }
  }
}

int text_peek(text_parser *ps)
{
  skip_space(ps);
  return ps->p < ps->end ? (unsigned char)*ps->p : -1;
}

bool text_accept(text_parser *ps, char c)
{
  if (text_peek(ps) != (unsigned char)c) return false;
  ps->p++;
  return true;
}

bool text_accept_str(text_parser *ps, const char *str)
{
  size_t n = strlen(str);

  skip_space(ps);
  if ((size_t)(ps->end - ps->p) < n || memcmp(ps->p, str, n) != 0) return false;
  ps->p += n;
  return true;
}

bool text_accept_word(text_parser *ps, const char *word)
{
  const char *start;
  size_t n = strlen(word);

  skip_space(ps);
  start = ps->p;
  if (!text_accept_str(ps, word)) return false;
  if (start + n < ps->end && is_word(start[n])) {
    ps->p = start;
    return false;
  }
  return true;
}

weft_status *text_expect(text_parser *ps, char c)
{
  if (text_accept(ps, c)) return NULL;
  if (ps->p == ps->end) return text_fail(ps, ps->p, "expected '%c', found the end", c);
  return text_fail(ps, ps->p, "expected '%c', found '%c'", c, *ps->p);
}

weft_status *text_expect_word(text_parser *ps, const char *word)
{
  if (text_accept_word(ps, word)) return NULL;
  return text_fail(ps, ps->p, "expected '%s'", word);
}

bool text_word(text_parser *ps, const char **word, size_t *size)
{
  skip_space(ps);
  if (ps->p == ps->end || !is_letter(*ps->p)) return false;
  *word = ps->p;
  while (ps->p < ps->end && is_word(*ps->p)) ps->p++;
  *size = (size_t)(ps->p - *word);
  return true;
}

static int hex_value(char c)
{
  return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

weft_status *text_string(text_parser *ps, char **out, size_t *out_size)
{
  const char *start, *q;
  char *s;
  size_t n = 0;

  WEFT_TRY(text_expect(ps, '"'));
  start = ps->p;
  for (q = start; q < ps->end && *q != '"'; q++)
    if (*q == '\\') q++;
  if (q >= ps->end) return text_fail(ps, start, "a string without end");
  s = weft_arena_alloc(ps->arena, (size_t)(q - start) + 1);
  WEFT_TRY_ALLOC(s);
  for (const char *c = start; c < q; c++) {
    if (*c != '\\') {
      s[n++] = *c;
    } else if (c[1] == 'n' || c[1] == 't' || c[1] == '"' || c[1] == '\\') {
      c++;
      s[n++] = *c == 'n' ? '\n' : *c == 't' ? '\t' : *c;
    } else if (c + 2 < q && hex_value(c[1]) >= 0 && hex_value(c[2]) >= 0) {
      s[n++] = (char)(hex_value(c[1]) << 4 | hex_value(c[2]));
      c += 2;
    } else {
      return text_fail(ps, c, "an escape that MLIR does not have");
    }
  }
  ps->p = q + 1;
  *out = s;
  *out_size = n;
  return NULL;
}

weft_status *text_balanced(text_parser *ps, char close, const char **out, size_t *out_size)
{
  const char *start = ps->p;
  char stack[MLIR_MAX_DEPTH];
  int depth = 0;

  for (; ps->p < ps->end; ps->p++) {
    char c = *ps->p;
    if (c == '>' && ps->p > start && ps->p[-1] == '-') continue; /* an arrow */
    if (c == close && depth == 0) {
      *out = start;
      *out_size = (size_t)(ps->p - start);
      return NULL;
    }
    if (c == '"') {
      for (ps->p++; ps->p < ps->end && *ps->p != '"'; ps->p++)
        if (*ps->p == '\\') ps->p++;
    } else if (c == '<' || c == '(' || c == '[' || c == '{') {
      if (depth == MLIR_MAX_DEPTH) return text_fail(ps, ps->p, "nested deeper than %d", MLIR_MAX_DEPTH);
      stack[depth++] = c == '<' ? '>' : c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (depth > 0 && c == stack[depth - 1]) {
      depth--;
    }
  }
  ps->p = start;
  return text_fail(ps, start, "no '%c' closes this", close);
}

weft_status *text_integer(text_parser *ps, int64_t *out)
{
  const char *start;
  bool negative;
  uint64_t v = 0;

  skip_space(ps);
  start = ps->p;
  negative = ps->p < ps->end && *ps->p == '-';
  if (negative) ps->p++;
  if (ps->p == ps->end || !is_digit(*ps->p)) return text_fail(ps, start, "expected an integer");
  for (; ps->p < ps->end && is_digit(*ps->p); ps->p++)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*ps->p - '0'), &v))
      return text_fail(ps, start, "an integer over 2^64");
  *out = negative ? (int64_t)-v : (int64_t)v;
  return NULL;
}

/* A number token as strtod sees it. */
static weft_status *real(text_parser *ps, double *out)
{
  char token[64];
  size_t n = 0;
  char *stop;

  skip_space(ps);
  while (ps->p + n < ps->end && n < sizeof token - 1 &&
         (is_digit(ps->p[n]) || strchr("+-.eE", ps->p[n]) != NULL) && ps->p[n]) {
    token[n] = ps->p[n];
    n++;
  }
  token[n] = '\0';
  *out = strtod(token, &stop);
  if (n == 0 || stop == token) return text_fail(ps, ps->p, "expected a number");
  ps->p += stop - token;
  return NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

weft_status *text_value_name(text_parser *ps, const char **name, size_t *size)
{
  WEFT_TRY(text_expect(ps, '%'));
  *name = ps->p;
  while (ps->p < ps->end && (is_word(*ps->p) || *ps->p == '-')) ps->p++;
  *size = (size_t)(ps->p - *name);
  if (*size == 0) return text_fail(ps, ps->p, "expected the name of a value");
  return NULL;
}

static text_name *find_name(text_parser *ps, const char *name, size_t size)
{
  uint32_t hash = mlir_hash(name, size);

  if (ps->bucket_count == 0) return NULL;
  for (int i = ps->buckets[hash & (uint32_t)(ps->bucket_count - 1)]; i >= 0; i = ps->names[i].next)
    if (ps->names[i].hash == hash && ps->names[i].size == size && memcmp(ps->names[i].name, name, size) == 0)
      return &ps->names[i];
  return NULL;
}

static void link_name(text_parser *ps, int i)
{
  int *bucket = &ps->buckets[ps->names[i].hash & (uint32_t)(ps->bucket_count - 1)];

  ps->names[i].next = *bucket;
  *bucket = i;
}

weft_status *text_define(text_parser *ps, const char *name, size_t size, mlir_value *values, int count)
{
  if (find_name(ps, name, size)) return text_fail(ps, name, "%%%.*s is defined twice", (int)WEFT_MIN(size, 64), name);
  WEFT_TRY(grow(ps, &ps->names, ps->name_count, &ps->name_capacity, sizeof(text_name)));
  if (ps->name_count >= ps->bucket_count) {
    int wanted = ps->bucket_count ? 4 * ps->bucket_count : 64;
    ps->buckets = WEFT_ARENA_ARRAY(ps->arena, int, wanted);
    WEFT_TRY_ALLOC(ps->buckets);
    ps->bucket_count = wanted;
    for (int i = 0; i < wanted; i++) ps->buckets[i] = -1;
    for (int i = 0; i < ps->name_count; i++) link_name(ps, i);
  }
  ps->names[ps->name_count] =
      (text_name){.name = name, .size = (uint32_t)size, .hash = mlir_hash(name, size), .values = values, .count = count};
  link_name(ps, ps->name_count++);
  return NULL;
}

/* Forgets the names defined since `mark`: the newest are at the heads of their buckets. */
static void forget_names(text_parser *ps, int mark)
{
  while (ps->name_count > mark) {
    const text_name *n = &ps->names[--ps->name_count];
    ps->buckets[n->hash & (uint32_t)(ps->bucket_count - 1)] = n->next;
  }
}

weft_status *text_use(text_parser *ps, mlir_value **out)
{
  const char *name;
  size_t size;
  int64_t index = 0;

  WEFT_TRY(text_value_name(ps, &name, &size));
  const text_name *n = find_name(ps, name, size);
  if (!n) return text_fail(ps, name - 1, "%%%.*s is not defined", (int)WEFT_MIN(size, 64), name);
  if (ps->p < ps->end && *ps->p == '#') {
    ps->p++;
    WEFT_TRY(text_integer(ps, &index));
  }
  if (index < 0 || index >= n->count)
    return text_fail(ps, name - 1, "%%%.*s has %d values", (int)WEFT_MIN(size, 64), name, n->count);
  *out = &n->values[index];
  return NULL;
}

/* ---- types -------------------------------------------------------------------------------------------------------- */

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
  skip_space(ps);
  while (ps->p < ps->end && (is_digit(*ps->p) || *ps->p == '?')) {
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

/* An error that does not know where it is. */
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

/* Quotes the text of a type as a key: up to the bracket that closes it, if near. */
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

static weft_status *function_type(text_parser *ps, const mlir_type **out)
{
  text_list types = {0};
  mlir_type *t;

  WEFT_TRY(grow(ps, &types.items, 0, &types.capacity, sizeof(void *))); /* () -> () has elements, too: none */
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
    WEFT_TRY(grow(ps, &scales, count, &scale_capacity, sizeof(double)));
    WEFT_TRY(grow(ps, &zeros, count, &zero_capacity, sizeof(int64_t)));
    WEFT_TRY(real(ps, &scales[count]));
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

  while (n > 0 && is_digit(word[n - 1])) n--;
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
    WEFT_TRY(function_type(ps, out));
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
  if (*out) return NULL;
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
static bool type_word(const char *word, size_t size)
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
  if (text_peek(ps) == '(') return function_type(ps, out);
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
  WEFT_TRY(enter(ps));
  WEFT_TRY(bare_type(ps, out));
  ps->depth--;
  return NULL;
}

/* ---- attributes --------------------------------------------------------------------------------------------------- */

weft_status *text_new_attr(text_parser *ps, mlir_attr_kind kind, mlir_attr **out)
{
  *out = WEFT_ARENA_NEW(ps->arena, mlir_attr);
  WEFT_TRY_ALLOC(*out);
  (*out)->kind = kind;
  (*out)->position = (size_t)(ps->p - ps->program->input);
  return NULL;
}

weft_status *text_word_attr(text_parser *ps, mlir_attr_kind kind, const char *s, size_t size, const mlir_attr **out)
{
  mlir_attr *a;

  WEFT_TRY(text_new_attr(ps, kind, &a));
  a->u.text.s = weft_arena_strndup(ps->arena, s, size);
  a->u.text.size = size;
  WEFT_TRY_ALLOC(a->u.text.s);
  *out = a;
  return NULL;
}

/* @a, @"a b", @a::@b */
weft_status *text_symbol(text_parser *ps, const mlir_attr **out)
{
  const char *start;
  char *s;
  size_t n;

  WEFT_TRY(text_expect(ps, '@'));
  if (ps->p < ps->end && *ps->p == '"') {
    WEFT_TRY(text_string(ps, &s, &n));
    return text_word_attr(ps, MLIR_SYMBOL, s, n, out);
  }
  start = ps->p;
  while (ps->p < ps->end && (is_word(*ps->p) || *ps->p == '-' ||
                             (*ps->p == ':' && ps->p + 2 < ps->end && ps->p[1] == ':' && ps->p[2] == '@')))
    ps->p += *ps->p == ':' ? 3 : 1;
  if (ps->p == start) return text_fail(ps, ps->p, "expected a symbol");
  return text_word_attr(ps, MLIR_SYMBOL, start, (size_t)(ps->p - start), out);
}

/* A number with an optional `: type`. */
static weft_status *number_attr(text_parser *ps, const mlir_attr **out)
{
  const char *start = ps->p, *q = start;
  mlir_attr *a;

  if (*q == '-') q++;
  bool hex = q + 1 < ps->end && q[0] == '0' && q[1] == 'x';
  const char *digits = q;
  while (!hex && q < ps->end && is_digit(*q)) q++;
  bool is_float = !hex && q < ps->end && (*q == '.' || ((*q == 'e' || *q == 'E') && q > digits));
  WEFT_TRY(text_new_attr(ps, is_float ? MLIR_FLOAT : MLIR_INT, &a));
  if (is_float) {
    WEFT_TRY(real(ps, &a->u.f));
  } else if (hex) {
    char token[24], *stop;
    size_t n = 0;
    for (q += 2; q < ps->end && hex_value(*q) >= 0 && n < sizeof token - 1; q++) token[n++] = *q;
    token[n] = '\0';
    a->u.i = (int64_t)strtoull(token, &stop, 16);
    if (n == 0 || n > 16) return text_fail(ps, start, "expected hex digits");
    if (*start == '-') a->u.i = (int64_t)-(uint64_t)a->u.i;
    ps->p = q;
  } else {
    WEFT_TRY(text_integer(ps, &a->u.i));
  }
  if (!ps->bare_numbers && text_accept(ps, ':')) {
    WEFT_TRY(text_type(ps, &a->type));
    if (weft_dtype_is_float(a->type->dtype) && a->kind == MLIR_INT) { /* hexadecimal: the bits */
      double value = a->type->dtype == WEFT_F64 ? ((union { int64_t i; double d; }){a->u.i}).d
                                                : weft_float_decode_f64(a->type->dtype, (uint64_t)a->u.i);
      a->u.f = hex ? value : (double)a->u.i;
      a->kind = MLIR_FLOAT;
    }
  }
  *out = a;
  return NULL;
}

static weft_status *array_attr(text_parser *ps, char close, const mlir_attr **out)
{
  mlir_attr *a;
  text_list items = {0};

  WEFT_TRY(text_new_attr(ps, MLIR_ARRAY, &a));
  while (!text_accept(ps, close)) {
    const mlir_attr *item;
    if (items.count > 0) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(text_attr(ps, &item));
    WEFT_TRY(text_push(ps, &items, item));
  }
  a->u.array.count = items.count;
  a->u.array.items = (const mlir_attr *const *)items.items;
  *out = a;
  return NULL;
}

/* array<i64: 1, 2> */
static weft_status *dense_array_attr(text_parser *ps, const mlir_attr **out)
{
  const mlir_type *element;

  WEFT_TRY(text_expect(ps, '<'));
  WEFT_TRY(text_type(ps, &element));
  if (!text_accept(ps, ':') && text_peek(ps) != '>') return text_fail(ps, ps->p, "expected ':'");
  WEFT_TRY(array_attr(ps, '>', out));
  ((mlir_attr *)(uintptr_t)*out)->type = element;
  return NULL;
}

/* dense<...> : type; the elements are read when they are needed. */
static weft_status *dense_attr(text_parser *ps, const mlir_attr **out)
{
  mlir_attr *a;
  const char *close;

  WEFT_TRY(text_expect(ps, '<'));
  WEFT_TRY(text_new_attr(ps, MLIR_DENSE, &a));
  skip_space(ps);
  a->u.text.s = ps->p;
  if (ps->p < ps->end && *ps->p == '"') {
    close = memchr(ps->p + 1, '"', (size_t)(ps->end - ps->p - 1));
    if (!close) return text_fail(ps, ps->p, "a string without end");
    ps->p = close + 1;
    a->u.text.size = (size_t)(ps->p - a->u.text.s);
  } else {
    close = memchr(ps->p, '>', (size_t)(ps->end - ps->p));
    if (!close) return text_fail(ps, ps->p, "no '>' closes this dense constant");
    ps->p = close;
    while (close > a->u.text.s && strchr(" \n\t\r", close[-1]) != NULL) close--;
    a->u.text.size = (size_t)(close - a->u.text.s);
  }
  WEFT_TRY(text_expect(ps, '>'));
  WEFT_TRY(text_expect(ps, ':'));
  WEFT_TRY(text_type(ps, &a->type));
  if (a->type->kind != MLIR_TENSOR || mlir_type_is_dynamic(a->type))
    return text_fail(ps, a->u.text.s, "a dense constant needs the type of a static tensor");
  *out = a;
  return NULL;
}

static weft_status *resource_attr(text_parser *ps, const mlir_attr **out)
{
  mlir_attr *a;
  const char *word;
  size_t size;

  WEFT_TRY(text_expect(ps, '<'));
  WEFT_TRY(text_new_attr(ps, MLIR_DENSE, &a));
  if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected the name of a resource");
  a->form = MLIR_DENSE_RESOURCE;
  a->u.text.s = weft_arena_strndup(ps->arena, word, size);
  a->u.text.size = size;
  WEFT_TRY_ALLOC(a->u.text.s);
  WEFT_TRY(text_expect(ps, '>'));
  WEFT_TRY(text_expect(ps, ':'));
  WEFT_TRY(text_type(ps, &a->type));
  if (a->type->kind != MLIR_TENSOR || mlir_type_is_dynamic(a->type))
    return text_fail(ps, word, "a dense constant needs the type of a static tensor");
  *out = a;
  return NULL;
}

weft_status *text_int_attr(text_parser *ps, int64_t v, const mlir_attr **out)
{
  mlir_attr *a;

  WEFT_TRY(text_new_attr(ps, MLIR_INT, &a));
  a->u.i = v;
  *out = a;
  return NULL;
}

static weft_status *ints_attr(text_parser *ps, int count, const int64_t *v, const mlir_attr **out)
{
  mlir_attr *a;
  const mlir_attr **items = WEFT_ARENA_ARRAY(ps->arena, const mlir_attr *, count);

  WEFT_TRY_ALLOC(items);
  for (int i = 0; i < count; i++) WEFT_TRY(text_int_attr(ps, v[i], &items[i]));
  WEFT_TRY(text_new_attr(ps, MLIR_ARRAY, &a));
  a->u.array.count = count;
  a->u.array.items = items;
  *out = a;
  return NULL;
}

/* One bracket of convolution dimension numbers: two letters and the spatial numbers, in the order of the operand. */
static weft_status *conv_bracket(text_parser *ps, text_attrs *attrs, char first, const char *first_name, char second,
                                 const char *second_name, const char *spatial_name)
{
  int64_t spatial[HLO_MAX_RANK], position = 0, where[2] = {-1, -1};
  int count = 0;
  const mlir_attr *a;

  for (int i = 0; i < HLO_MAX_RANK; i++) spatial[i] = -1;
  WEFT_TRY(text_expect(ps, '['));
  do {
    int c = text_peek(ps);
    if (c == first || c == second) {
      where[c == second] = position;
      ps->p++;
    } else if (c == '?') {
      ps->p++;
    } else {
      int64_t number;
      const char *at = ps->p;
      WEFT_TRY(text_integer(ps, &number));
      if (number < 0 || number >= HLO_MAX_RANK || spatial[number] >= 0)
        return text_fail(ps, at, "spatial dimension %" PRId64, number);
      spatial[number] = position;
      count = WEFT_MAX(count, (int)number + 1);
    }
    position++;
  } while (text_accept(ps, ','));
  WEFT_TRY(text_expect(ps, ']'));
  WEFT_TRY(text_int_attr(ps, where[0], &a));
  WEFT_TRY(text_add_attr(ps, attrs, first_name, a));
  WEFT_TRY(text_int_attr(ps, where[1], &a));
  WEFT_TRY(text_add_attr(ps, attrs, second_name, a));
  WEFT_TRY(ints_attr(ps, count, spatial, &a));
  return text_add_attr(ps, attrs, spatial_name, a);
}

weft_status *text_conv_dims(text_parser *ps, text_attrs *attrs)
{
  WEFT_TRY(conv_bracket(ps, attrs, 'b', "input_batch_dimension", 'f', "input_feature_dimension",
                        "input_spatial_dimensions"));
  WEFT_TRY(text_expect(ps, 'x'));
  WEFT_TRY(conv_bracket(ps, attrs, 'i', "kernel_input_feature_dimension", 'o', "kernel_output_feature_dimension",
                        "kernel_spatial_dimensions"));
  if (!text_accept_str(ps, "->")) return text_fail(ps, ps->p, "expected '->'");
  return conv_bracket(ps, attrs, 'b', "output_batch_dimension", 'f', "output_feature_dimension",
                      "output_spatial_dimensions");
}

/* key = value, ... up to '>'; what VHLO holds is its own. */
static weft_status *struct_body(text_parser *ps, bool vhlo, text_attrs *attrs)
{
  while (text_peek(ps) != '>') {
    const char *word, *key;
    size_t size;
    const mlir_attr *value;
    if (attrs->count > 0) WEFT_TRY(text_expect(ps, ','));
    if (text_peek(ps) == '>') break; /* a comma behind the last field */
    if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected a field");
    key = weft_arena_strndup(ps->arena, word, size);
    WEFT_TRY_ALLOC(key);
    WEFT_TRY(text_expect(ps, '='));
    if (vhlo && text_peek(ps) == '#' && (ps->end - ps->p < 5 || memcmp(ps->p, "#vhlo", 5) != 0))
      return text_fail(ps, ps->p, "%s of VHLO is of another dialect", key);
    WEFT_TRY(text_attr(ps, &value));
    WEFT_TRY(text_add_attr(ps, attrs, key, value));
  }
  return NULL;
}

static weft_status *dict_of(text_parser *ps, const char *name, size_t size, const text_attrs *attrs,
                            const mlir_attr **out)
{
  mlir_attr *a;

  WEFT_TRY(text_new_attr(ps, MLIR_DICT, &a));
  a->u.dict.count = attrs->count;
  a->u.dict.items = attrs->items;
  if (name) {
    a->u.dict.name = weft_arena_strndup(ps->arena, name, size);
    WEFT_TRY_ALLOC(a->u.dict.name);
  }
  *out = a;
  return NULL;
}

weft_status *text_dict_attr(text_parser *ps, const text_attrs *attrs, const mlir_attr **out)
{
  return dict_of(ps, NULL, 0, attrs, out);
}

/* True if `word =` comes next. */
static bool field_follows(text_parser *ps)
{
  const char *start, *word;
  size_t size;

  skip_space(ps);
  start = ps->p;
  bool yes = text_word(ps, &word, &size) && text_peek(ps) == '=';
  ps->p = start;
  return yes;
}

static bool word_is(const char *word, size_t size, const char *s)
{
  return size == strlen(s) && memcmp(word, s, size) == 0;
}

/* vhlo.dict_v1's: {#vhlo.string_v1<"key"> = #vhlo.integer_v1<1 : i32>, ...} */
static weft_status *vhlo_dict(text_parser *ps, const mlir_attr **out)
{
  text_attrs attrs = {0};

  WEFT_TRY(text_expect(ps, '{'));
  while (!text_accept(ps, '}')) {
    const mlir_attr *key, *value;
    if (attrs.count > 0) WEFT_TRY(text_expect(ps, ','));
    const char *start = ps->p;
    if (text_peek(ps) != '#') return text_fail(ps, start, "expected a key of VHLO: #vhlo.string_v1<...>");
    WEFT_TRY(text_attr(ps, &key));
    if (key->kind != MLIR_STRING) return text_fail(ps, start, "a key that is no string");
    WEFT_TRY(text_expect(ps, '='));
    WEFT_TRY(text_attr(ps, &value));
    WEFT_TRY(text_add_attr(ps, &attrs, key->u.text.s, value));
  }
  return text_dict_attr(ps, &attrs, out);
}

/* The inside of #name<...>: fields, an enumeration's word, a wrapped attribute (vhlo), or text kept as it is. */
static weft_status *dialect_attr_body(text_parser *ps, const char *name, size_t size, const mlir_attr **out)
{
  text_attrs attrs = {0};
  const char *word;
  size_t word_size;
  bool vhlo = size >= 4 && memcmp(name, "vhlo", 4) == 0;

  if (word_is(name, size, "stablehlo") || word_is(name, size, "vhlo") || word_is(name, size, "chlo") ||
      word_is(name, size, "mhlo")) { /* #stablehlo<comparison_direction LT> */
    if (!text_word(ps, &word, &word_size)) return text_fail(ps, ps->p, "expected a kind of attribute");
    if (!text_word(ps, &word, &word_size)) return text_fail(ps, ps->p, "expected a word");
    return text_word_attr(ps, MLIR_ENUM, word, word_size, out);
  }
  if (word_is(name, size, "stablehlo.conv") || word_is(name, size, "mhlo.conv")) {
    if (text_accept_word(ps, "raw")) {
      WEFT_TRY(struct_body(ps, false, &attrs));
    } else {
      WEFT_TRY(text_conv_dims(ps, &attrs));
    }
    return dict_of(ps, name, size, &attrs, out);
  }
  if (word_is(name, size, "stablehlo.bounds") || word_is(name, size, "mhlo.bounds")) {
    WEFT_TRY(array_attr(ps, '>', out));
    ps->p--; /* the caller takes the bracket */
    return NULL;
  }
  if (word_is(name, size, "sdy") && text_accept_word(ps, "manual_axes")) return text_sdy_manual_axes(ps, out);
  if (word_is(name, size, "sdy.sharding")) return text_sdy_sharding(ps, out);
  if (word_is(name, size, "sdy.sharding_per_value")) return text_sdy_per_value(ps, out);
  if (word_is(name, size, "sdy.mesh")) return text_sdy_mesh(ps, out);
  if (field_follows(ps)) {
    WEFT_TRY(struct_body(ps, vhlo, &attrs));
    return dict_of(ps, name, size, &attrs, out);
  }
  if (word_is(name, size, "vhlo.dict_v1")) return vhlo_dict(ps, out);
  if (vhlo && text_peek(ps) != '>') return text_attr(ps, out);
  if (size < 4 || memcmp(name, "sdy.", 4) != 0) {
    const char *start = ps->p;
    if (text_word(ps, &word, &word_size) && text_peek(ps) == '>')
      return text_word_attr(ps, MLIR_ENUM, word, word_size, out);
    ps->p = start;
  }
  WEFT_TRY(text_balanced(ps, '>', &word, &word_size));
  return text_word_attr(ps, MLIR_OPAQUE, word, word_size, out);
}

/* After '#': an alias or #dialect.name<...> */
static weft_status *hash_attr(text_parser *ps, const mlir_attr **out)
{
  const char *word;
  size_t size;

  if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected the name of an attribute");
  if (ps->p < ps->end && *ps->p == '<') {
    ps->p++;
    WEFT_TRY(dialect_attr_body(ps, word, size, out));
    return text_expect(ps, '>');
  }
  *out = mlir_table_get(&ps->attr_aliases, word, size);
  if (*out) return NULL;
  return text_fail(ps, word - 1, "#%.*s is not defined", (int)WEFT_MIN(size, 64), word);
}

static weft_status *word_or_type_attr(text_parser *ps, const mlir_attr **out)
{
  const char *word, *start = ps->p;
  size_t size;
  mlir_attr *a;

  if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected an attribute");
  if (word_is(word, size, "true") || word_is(word, size, "false")) {
    WEFT_TRY(text_new_attr(ps, MLIR_BOOL, &a));
    a->u.i = word[0] == 't';
    *out = a;
    return NULL;
  }
  if (word_is(word, size, "unit")) {
    WEFT_TRY(text_new_attr(ps, MLIR_UNIT, &a));
    *out = a;
    return NULL;
  }
  int next = ps->p < ps->end ? *ps->p : -1;
  if (next == '<') {
    if (word_is(word, size, "dense")) return dense_attr(ps, out);
    if (word_is(word, size, "dense_resource")) return resource_attr(ps, out);
    if (word_is(word, size, "array")) return dense_array_attr(ps, out);
  }
  if (word_is(word, size, "loc") && next == '(') {
    const mlir_location *ignored;
    ps->p = start;
    WEFT_TRY(text_location(ps, &ignored));
    WEFT_TRY(text_new_attr(ps, MLIR_UNIT, &a));
    *out = a;
    return NULL;
  }
  if (type_word(word, size)) {
    ps->p = start;
    WEFT_TRY(text_new_attr(ps, MLIR_TYPE, &a));
    *out = a;
    return text_type(ps, &a->type);
  }
  if (next == '<') { /* affine_map<...> and the like */
    ps->p++;
    WEFT_TRY(text_balanced(ps, '>', &word, &size));
    WEFT_TRY(text_word_attr(ps, MLIR_OPAQUE, word, size, out));
    return text_expect(ps, '>');
  }
  return text_word_attr(ps, MLIR_ENUM, word, size, out);
}

/* (2)4: the part of a mesh axis of size 4 behind a part of size 2 */
weft_status *text_sub_axis(text_parser *ps, const mlir_attr **out)
{
  text_attrs attrs = {0};
  int64_t pre_size, size;
  const mlir_attr *a;

  WEFT_TRY(text_expect(ps, '('));
  WEFT_TRY(text_integer(ps, &pre_size));
  WEFT_TRY(text_expect(ps, ')'));
  WEFT_TRY(text_integer(ps, &size));
  WEFT_TRY(text_int_attr(ps, pre_size, &a));
  WEFT_TRY(text_add_attr(ps, &attrs, "pre_size", a));
  WEFT_TRY(text_int_attr(ps, size, &a));
  WEFT_TRY(text_add_attr(ps, &attrs, "size", a));
  return dict_of(ps, NULL, 0, &attrs, out);
}

static weft_status *bare_attr(text_parser *ps, const mlir_attr **out)
{
  int c = text_peek(ps);
  mlir_attr *a;
  char *s;
  size_t n;
  text_attrs attrs = {0};

  if (is_digit((char)c) || c == '-') return number_attr(ps, out);
  switch (c) {
  case '"':
    WEFT_TRY(text_string(ps, &s, &n));
    WEFT_TRY(text_new_attr(ps, MLIR_STRING, &a));
    a->u.text.s = s;
    a->u.text.size = n;
    if (!ps->bare_numbers && text_peek(ps) == ':') {
      const mlir_type *t;
      ps->p++;
      WEFT_TRY(text_type(ps, &t));
    }
    *out = a;
    return NULL;
  case '@': return text_symbol(ps, out);
  case '[': ps->p++; return array_attr(ps, ']', out);
  case '{':
    WEFT_TRY(text_dict(ps, &attrs));
    return dict_of(ps, NULL, 0, &attrs, out);
  case '#': ps->p++; return hash_attr(ps, out);
  case '?': ps->p++; return text_int_attr(ps, MLIR_DYNAMIC, out);
  case '<': /* a nameless struct: <lhs_precision_type = tf32, ...> */
    ps->p++;
    if (field_follows(ps)) {
      WEFT_TRY(struct_body(ps, false, &attrs));
      WEFT_TRY(dict_of(ps, NULL, 0, &attrs, out));
    } else {
      const char *text;
      WEFT_TRY(text_balanced(ps, '>', &text, &n));
      WEFT_TRY(text_word_attr(ps, MLIR_OPAQUE, text, n, out));
    }
    return text_expect(ps, '>');
  case '(':
    if (ps->p + 1 < ps->end && is_digit(ps->p[1])) return text_sub_axis(ps, out);
    __attribute__((fallthrough));
  case '!':
    WEFT_TRY(text_new_attr(ps, MLIR_TYPE, &a));
    *out = a;
    return text_type(ps, &a->type);
  default: return word_or_type_attr(ps, out);
  }
}

weft_status *text_attr(text_parser *ps, const mlir_attr **out)
{
  WEFT_TRY(enter(ps));
  WEFT_TRY(bare_attr(ps, out));
  ps->depth--;
  return NULL;
}

weft_status *text_dict(text_parser *ps, text_attrs *attrs)
{
  int before = attrs->count;

  WEFT_TRY(text_expect(ps, '{'));
  while (!text_accept(ps, '}')) {
    const char *word;
    char *key;
    size_t size;
    const mlir_attr *value;
    mlir_attr *unit;
    if (attrs->count > before) WEFT_TRY(text_expect(ps, ','));
    if (text_peek(ps) == '"') {
      WEFT_TRY(text_string(ps, &key, &size));
    } else {
      if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected the name of an attribute");
      key = weft_arena_strndup(ps->arena, word, size);
      WEFT_TRY_ALLOC(key);
    }
    if (text_accept(ps, '=')) {
      WEFT_TRY(text_attr(ps, &value));
    } else {
      WEFT_TRY(text_new_attr(ps, MLIR_UNIT, &unit));
      value = unit;
    }
    WEFT_TRY(text_add_attr(ps, attrs, key, value));
  }
  return NULL;
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

weft_status *text_new_op(text_parser *ps, const char *spelling, size_t size, mlir_op **out)
{
  mlir_op *op = WEFT_ARENA_NEW(ps->arena, mlir_op);

  WEFT_TRY_ALLOC(op);
  WEFT_TRY(mlir_kind(ps->program, spelling, size, &op->kind));
  op->name = op->kind->name;
  op->dialect = op->kind->dialect;
  op->position = (size_t)(ps->p - ps->program->input);
  *out = op;
  return NULL;
}

weft_status *text_set_results(text_parser *ps, mlir_op *op, int count, const mlir_type *const *types)
{
  op->result_count = count;
  op->results = WEFT_ARENA_ARRAY(ps->arena, mlir_value, count);
  WEFT_TRY_ALLOC(op->results);
  for (int i = 0; i < count; i++) op->results[i].type = types[i];
  return NULL;
}

void text_append(mlir_block *block, mlir_op *op)
{
  if (block->last) block->last->next = op;
  else block->first = op;
  block->last = op;
}

/* "d.op"(operands) [successors] <{properties}> ({regions}) {attributes} : (types) -> types, after the name */
static weft_status *generic_op(text_parser *ps, mlir_op *op, text_attrs *attrs)
{
  text_list operands = {0}, regions = {0};
  const mlir_type *type;
  const char *at;

  WEFT_TRY(text_expect(ps, '('));
  while (!text_accept(ps, ')')) {
    mlir_value *v;
    if (operands.count > 0) WEFT_TRY(text_expect(ps, ','));
    WEFT_TRY(text_use(ps, &v));
    WEFT_TRY(text_push(ps, &operands, v));
  }
  if (text_peek(ps) == '[') return text_fail(ps, ps->p, "operations with successor blocks are not supported");
  if (text_accept_str(ps, "<{")) {
    ps->p--;
    WEFT_TRY(text_dict(ps, attrs));
    WEFT_TRY(text_expect(ps, '>'));
  }
  if (text_accept(ps, '(')) {
    do {
      mlir_region *region = WEFT_ARENA_NEW(ps->arena, mlir_region);
      WEFT_TRY_ALLOC(region);
      WEFT_TRY(text_region(ps, region, NULL));
      WEFT_TRY(text_push(ps, &regions, region));
    } while (text_accept(ps, ','));
    WEFT_TRY(text_expect(ps, ')'));
  }
  if (text_peek(ps) == '{') WEFT_TRY(text_dict(ps, attrs));
  WEFT_TRY(text_expect(ps, ':'));
  skip_space(ps);
  at = ps->p;
  WEFT_TRY(function_type(ps, &type));
  if (type->count != operands.count)
    return text_fail(ps, at, "%d operand types for %d operands", type->count, operands.count);
  op->operand_count = operands.count;
  op->operands = (mlir_value **)operands.items;
  op->regions = WEFT_ARENA_ARRAY(ps->arena, mlir_region, regions.count);
  WEFT_TRY_ALLOC(op->regions);
  for (int i = 0; i < regions.count; i++) op->regions[op->region_count++] = *(mlir_region *)regions.items[i];
  return text_set_results(ps, op, type->result_count, type->elements + type->count);
}

/* Names of results on the left of an operation. */
typedef struct result_name { const char *name; size_t size; int64_t count; } result_name;

static weft_status *parse_op(text_parser *ps, mlir_block *block)
{
  result_name few[8], *names = few;
  int name_count = 0, capacity = WEFT_COUNT(few);
  int64_t result_count = 0;
  const char *word, *at;
  size_t size;
  mlir_op *op;
  text_attrs attrs = {0};

  while (text_peek(ps) == '%') {
    if (name_count == capacity) {
      result_name *grown = WEFT_ARENA_ARRAY(ps->arena, result_name, 2 * capacity);
      WEFT_TRY_ALLOC(grown);
      memcpy(grown, names, (size_t)capacity * sizeof *grown);
      names = grown;
      capacity *= 2;
    }
    result_name *r = &names[name_count];
    WEFT_TRY(text_value_name(ps, &r->name, &r->size));
    r->count = 1;
    if (text_accept(ps, ':')) WEFT_TRY(text_integer(ps, &r->count));
    if (r->count < 1 || r->count > 1 << 20) return text_fail(ps, r->name, "%" PRId64 " results", r->count);
    result_count += r->count;
    name_count++;
    if (!text_accept(ps, ',')) {
      WEFT_TRY(text_expect(ps, '='));
      break;
    }
  }
  skip_space(ps);
  at = ps->p;
  bool generic = text_peek(ps) == '"';
  if (generic) {
    const char *close = memchr(at + 1, '"', (size_t)(ps->end - at - 1));
    if (!close) return text_fail(ps, at, "a string without end");
    word = at + 1;
    size = (size_t)(close - word);
    ps->p = close + 1;
  } else if (!text_word(ps, &word, &size)) {
    return text_fail(ps, ps->p, "expected an operation");
  }
  WEFT_TRY(text_new_op(ps, word, size, &op));
  op->position = (size_t)(at - ps->program->input);
  if (generic) {
    WEFT_TRY_NOTE(generic_op(ps, op, &attrs), "in \"%.*s\"", (int)WEFT_MIN(size, 64), word);
  } else {
    WEFT_TRY_NOTE(text_pretty_op(ps, op, &attrs), "in %.*s", (int)WEFT_MIN(size, 64), word);
  }
  WEFT_TRY(text_location(ps, &op->location));
  op->attrs = attrs.items;
  op->attr_count = attrs.count;
  WEFT_TRY(mlir_spread(ps->arena, op));
  if (name_count > 0 && result_count != op->result_count)
    return text_fail(ps, at, "%d results, %" PRId64 " are named", op->result_count, result_count);
  for (int i = 0, at_result = 0; i < name_count; at_result += (int)names[i++].count)
    WEFT_TRY(text_define(ps, names[i].name, names[i].size, &op->results[at_result], (int)names[i].count));
  text_append(block, op);
  return NULL;
}

/* ^label(%a: T loc(...), ...): */
static weft_status *block_label(text_parser *ps, mlir_block *block)
{
  const char *word;
  size_t size;
  text_list names = {0}, types = {0};
  const mlir_location *ignored;

  WEFT_TRY(text_expect(ps, '^'));
  if (!text_word(ps, &word, &size)) {
    int64_t number;
    WEFT_TRY(text_integer(ps, &number));
  }
  if (text_accept(ps, '(')) {
    while (!text_accept(ps, ')')) {
      const mlir_type *t;
      if (names.count > 0) WEFT_TRY(text_expect(ps, ','));
      text_peek(ps);
      WEFT_TRY(text_push(ps, &names, ps->p));
      WEFT_TRY(text_value_name(ps, &word, &size));
      WEFT_TRY(text_expect(ps, ':'));
      WEFT_TRY(text_type(ps, &t));
      WEFT_TRY(text_push(ps, &types, t));
      WEFT_TRY(text_location(ps, &ignored));
    }
  }
  WEFT_TRY(text_expect(ps, ':'));
  block->arg_count = names.count;
  block->args = WEFT_ARENA_ARRAY(ps->arena, mlir_value, names.count);
  WEFT_TRY_ALLOC(block->args);
  for (int i = 0; i < names.count; i++) {
    const char *resume = ps->p;
    ps->p = names.items[i];
    weft_status *st = text_value_name(ps, &word, &size);
    ps->p = resume;
    WEFT_TRY(st);
    block->args[i].type = types.items[i];
    WEFT_TRY(text_define(ps, word, size, &block->args[i], 1));
  }
  return NULL;
}

weft_status *text_region(text_parser *ps, mlir_region *region, const text_arguments *args)
{
  int mark = ps->name_count;
  mlir_block *block = WEFT_ARENA_NEW(ps->arena, mlir_block);

  WEFT_TRY_ALLOC(block);
  WEFT_TRY(enter(ps));
  WEFT_TRY(text_expect(ps, '{'));
  *region = (mlir_region){.first = block, .block_count = 1};
  if (args) {
    block->arg_count = args->count;
    block->args = args->values;
    block->arg_locations = args->locations;
  }
  for (int i = 0; i < block->arg_count; i++)
    WEFT_TRY(text_define(ps, args->names[i], args->sizes[i], &args->values[i], 1));
  while (!text_accept(ps, '}')) {
    if (text_peek(ps) < 0) return text_fail(ps, ps->p, "expected '}', found the end");
    if (text_peek(ps) != '^') {
      WEFT_TRY(parse_op(ps, block));
      continue;
    }
    if (block->first || block->arg_count > 0) {
      mlir_block *next = WEFT_ARENA_NEW(ps->arena, mlir_block);
      WEFT_TRY_ALLOC(next);
      block = block->next = next;
      region->block_count++;
    }
    WEFT_TRY(block_label(ps, block));
  }
  forget_names(ps, mark);
  ps->depth--;
  return NULL;
}

/* ---- modules ------------------------------------------------------------------------------------------------------ */

/* #name = attribute, #name = loc(...), !name = type */
static weft_status *alias(text_parser *ps)
{
  bool is_type = *ps->p == '!';
  const char *name, *start;
  size_t size;
  void **slot;

  ps->p++;
  if (!text_word(ps, &name, &size)) return text_fail(ps, ps->p, "expected the name of an alias");
  WEFT_TRY(text_expect(ps, '='));
  WEFT_TRY(mlir_table_slot(ps->arena, is_type ? &ps->type_aliases : &ps->attr_aliases, name, size, &slot));
  if (is_type) return text_type(ps, (const mlir_type **)slot);
  skip_space(ps);
  start = ps->p;
  if (text_accept_word(ps, "loc")) {
    ps->p = start;
    WEFT_TRY(text_location_alias(ps, name, size));
    ps->p = start; /* and an attribute that says nothing */
  }
  return text_attr(ps, (const mlir_attr **)slot);
}

/* {-# dialect_resources: { builtin: { name: "0x..." } } #-}: every pair of a name and a hex string counts. */
static weft_status *resources(text_parser *ps)
{
  const char *word = NULL;
  size_t size = 0;

  while (!text_accept_str(ps, "#-}")) {
    int c = text_peek(ps);
    if (c < 0) return text_fail(ps, ps->p, "resources without end");
    if (is_letter((char)c)) {
      if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected a name");
    } else if (c == '"') {
      const char *start = ps->p + 1, *stop = memchr(start, '"', (size_t)(ps->end - start));
      if (!stop) return text_fail(ps, start, "a string without end");
      ps->p = stop + 1;
      if (!word || stop - start < 2 || start[0] != '0' || start[1] != 'x') continue;
      mlir_resource r = {weft_arena_strndup(ps->arena, word, size), start + 2, (size_t)(stop - start) - 2};
      WEFT_TRY_ALLOC(r.name);
      WEFT_TRY(grow(ps, &ps->resources, ps->module->resource_count, &ps->resource_capacity, sizeof r));
      ps->resources[ps->module->resource_count++] = r;
      ps->module->resources = ps->resources;
    } else {
      ps->p++;
    }
  }
  return NULL;
}

/* One chunk between `// -----` lines. */
static weft_status *parse_module(text_parser *ps)
{
  mlir_block *top = WEFT_ARENA_NEW(ps->arena, mlir_block);
  int c;

  WEFT_TRY_ALLOC(top);
  while ((c = text_peek(ps)) >= 0) {
    if (c == '#' || c == '!') {
      WEFT_TRY(alias(ps));
    } else if (text_accept_str(ps, "{-#")) {
      WEFT_TRY(resources(ps));
    } else {
      WEFT_TRY(parse_op(ps, top));
    }
  }
  if (top->first && !top->first->next && top->first->dialect == SHLO_BUILTIN) {
    ps->module->op = top->first;
  } else { /* functions without a module around them */
    WEFT_TRY(text_new_op(ps, "builtin.module", strlen("builtin.module"), &ps->module->op));
    ps->module->op->regions = WEFT_ARENA_NEW(ps->arena, mlir_region);
    WEFT_TRY_ALLOC(ps->module->op->regions);
    ps->module->op->region_count = 1;
    ps->module->op->regions[0] = (mlir_region){top, 1};
  }
  ps->module->name = mlir_attr_text(mlir_attr_of(ps->module->op, "sym_name"), NULL);
  return NULL;
}

/* The next line that is a `// -----` separator; *after is behind it. */
static const char *separator(const char *p, const char *end, const char **after)
{
  for (const char *line = p; line && line < end; line = memchr(line, '\n', (size_t)(end - line)), line = line ? line + 1 : NULL)
    if (end - line >= 8 && memcmp(line, "// -----", 8) == 0) {
      const char *stop = memchr(line, '\n', (size_t)(end - line));
      *after = stop ? stop + 1 : end;
      return line;
    }
  *after = end;
  return end;
}

weft_status *mlir_read_text(mlir_program *program)
{
  const char *p = program->input, *end = p + program->size, *after;
  int count = 1;
  text_parser *ps = WEFT_ARENA_NEW(&program->arena, text_parser);

  WEFT_TRY_ALLOC(ps);
  for (const char *q = p; separator(q, end, &after) != end; q = after) count++;
  program->is_text = true;
  program->modules = WEFT_ARENA_ARRAY(&program->arena, mlir_module, count);
  WEFT_TRY_ALLOC(program->modules);
  for (int i = 0; i < count; i++) {
    const char *stop = separator(p, end, &after);
    *ps = (text_parser){.program = program, .arena = &program->arena, .p = p, .end = stop,
                        .module = &program->modules[program->module_count]};
    WEFT_TRY(parse_module(ps));
    if (ps->module->op->regions && ps->module->op->regions[0].first && ps->module->op->regions[0].first->first)
      program->module_count++; /* an empty chunk is no module */
    p = after;
  }
  if (program->module_count == 0) {
    ps->p = end;
    return text_fail(ps, program->input, "there is no function in it");
  }
  return NULL;
}

/* ---- text inside bytecode ----------------------------------------------------------------------------------------- */

static weft_status *parse_alone(mlir_program *program, const char *text, size_t size, const mlir_type **type,
                                const mlir_attr **attr)
{
  text_parser *ps = WEFT_ARENA_NEW(&program->arena, text_parser);

  WEFT_TRY_ALLOC(ps);
  *ps = (text_parser){.program = program, .arena = &program->arena, .p = text, .end = text + size};
  if (type) {
    WEFT_TRY(text_type(ps, type));
  } else {
    WEFT_TRY(text_attr(ps, attr));
  }
  if (text_peek(ps) >= 0) return text_fail(ps, ps->p, "more than one type or attribute");
  return NULL;
}

weft_status *mlir_parse_type_text(mlir_program *program, const char *text, size_t size, const mlir_type **out)
{
  return parse_alone(program, text, size, out, NULL);
}

weft_status *mlir_parse_attr_text(mlir_program *program, const char *text, size_t size, const mlir_attr **out)
{
  return parse_alone(program, text, size, NULL, out);
}
