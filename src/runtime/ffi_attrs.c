/* runtime/ffi_attrs.c -- Attributes of a typed custom call, from the text of an MLIR dictionary:
 *
 *   dict   := '{' [ entry { ',' entry } ] '}'          entry := (word | string) [ '=' value ]
 *   value  := number [ ':' type ] | true | false | string | dict | 'array' '<' type [ ':' number { ',' number } ] '>'
 *           | '[' [ value { ',' value } ] ']' (scalars of one type)
 *           | 'dense' '<' [ number | '[' numbers ']' | '"0x' digits '"' ] '>' ':' 'tensor' '<' { n 'x' } type '>'
 *
 * A number without type is i64, or f64 when it has a point or exponent; a name without value is true.  The text may
 * come from an untrusted source: nesting is bounded, and memory is a multiple of the text's length. */
#include <config.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "hlo/literal.h"
#include "runtime/ffi.h"

enum { MAX_DEPTH = 16, MOST_ELEMENTS = 1 << 20 /* of a dense array, which may repeat one element */ };

typedef struct cursor {
  const char *start, *at;
  weft_arena *arena;
  int depth;
} cursor;

static weft_status *syntax(const cursor *c, const char *what)
{
  return WEFT_ERR(INVALID_ARGUMENT, "custom-call attributes: %s at byte %zu of \"%.200s\"", what,
                  (size_t)(c->at - c->start), c->start);
}

static void skip_space(cursor *c)
{
  while (isspace((unsigned char)*c->at)) c->at++;
}

static bool accept(cursor *c, char what)
{
  skip_space(c);
  if (*c->at != what) return false;
  c->at++;
  return true;
}

static weft_status *expect(cursor *c, char what)
{
  char message[] = "expected ' '";

  if (accept(c, what)) return NULL;
  message[10] = what;
  return syntax(c, message);
}

static bool is_word(char ch) { return isalnum((unsigned char)ch) || ch == '_' || ch == '.' || ch == '$' || ch == '-'; }

static bool accept_word(cursor *c, const char *word)
{
  size_t n = strlen(word);

  skip_space(c);
  if (strncmp(c->at, word, n) != 0 || is_word(c->at[n])) return false;
  c->at += n;
  return true;
}

/* A quoted string with \\ \" \n \t and \XX (two hexadecimal digits), or a bare word. */
static weft_status *parse_string(cursor *c, bool quoted_only, XLA_FFI_ByteSpan *out)
{
  char *to;
  size_t n = 0;

  skip_space(c);
  if (*c->at != '"') {
    const char *from = c->at;
    while (is_word(*c->at)) c->at++;
    if (quoted_only || c->at == from) return syntax(c, "expected a name");
    *out = (XLA_FFI_ByteSpan){weft_arena_strndup(c->arena, from, (size_t)(c->at - from)), (size_t)(c->at - from)};
    WEFT_TRY_ALLOC(out->ptr);
    return NULL;
  }
  size_t most = 1; /* the decoded string is never longer than the text between the quotes */
  while (c->at[most] && c->at[most] != '"') most += c->at[most] == '\\' && c->at[most + 1] ? 2 : 1;
  to = weft_arena_alloc(c->arena, most);
  WEFT_TRY_ALLOC(to);
  for (c->at++; *c->at != '"'; c->at++) {
    if (!*c->at) return syntax(c, "string without end");
    if (*c->at != '\\') {
      to[n++] = *c->at;
      continue;
    }
    c->at++;
    if (isxdigit((unsigned char)c->at[0]) && isxdigit((unsigned char)c->at[1])) {
      char hex[3] = {c->at[0], c->at[1], 0};
      to[n++] = (char)strtol(hex, NULL, 16);
      c->at++;
    } else if (*c->at == 'n' || *c->at == 't' || *c->at == '\\' || *c->at == '"') {
      to[n++] = *c->at == 'n' ? '\n' : *c->at == 't' ? '\t' : *c->at;
    } else {
      return syntax(c, "unknown escape");
    }
  }
  c->at++;
  *out = (XLA_FFI_ByteSpan){to, n};
  return NULL;
}

/* i32, si8, ui8, i1, f32, bf16, ...: MLIR's names. */
static weft_status *parse_type(cursor *c, weft_dtype *out)
{
  char name[32];
  size_t n = 0;

  skip_space(c);
  while (isalnum((unsigned char)c->at[n]) && n + 1 < sizeof name) {
    name[n] = c->at[n];
    n++;
  }
  name[n] = 0;
  const char *wanted = strncmp(name, "si", 2) == 0 ? name + 1 : name; /* si32 is our i32 */
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++)
    if (weft_dtype_is_array((weft_dtype)t) && strcmp(weft_dtype_mlir_name((weft_dtype)t), wanted) == 0) {
      *out = (weft_dtype)t;
      c->at += n;
      return NULL;
    }
  return syntax(c, "unknown element type");
}

/* The text of a number, kept until its type is known. */
typedef struct number {
  const char *text;
  bool is_float, is_bool, truth;
} number;

static weft_status *parse_number(cursor *c, number *out)
{
  char *end;

  skip_space(c);
  *out = (number){.text = c->at};
  if (accept_word(c, "true")) {
    out->is_bool = out->truth = true;
    return NULL;
  }
  if (accept_word(c, "false")) {
    out->is_bool = true;
    return NULL;
  }
  if (strncmp(c->at, "0x", 2) == 0 || strncmp(c->at, "-0x", 3) == 0) {
    (void)strtoull(c->at, &end, 16);
  } else {
    (void)strtod(c->at, &end);
    for (const char *p = c->at; p < end; p++)
      out->is_float |= *p == '.' || *p == 'e' || *p == 'E' || isalpha((unsigned char)*p);
  }
  if (end == c->at) return syntax(c, "expected a value");
  c->at = end;
  return NULL;
}

/* Stores the low bytes of `bits`: inf and NaN are written as hexadecimal bits. */
static void store_bits(uint64_t bits, size_t bytes, void *to) { memcpy(to, &bits, bytes); }

static void store_number(const number *x, weft_dtype type, void *to)
{
  hlo_shape shape = HLO_SCALAR_SHAPE(type);
  hlo_literal lit = {.shape = &shape, .data = to};

  if (x->is_bool) hlo_literal_set_s64(&lit, 0, x->truth);
  else if (weft_dtype_is_float(type) && x->text[0] == '0' && x->text[1] == 'x')
    store_bits(strtoull(x->text, NULL, 16), weft_dtype_bytes(type), to);
  else if (weft_dtype_is_float(type) || weft_dtype_is_complex(type))
    hlo_literal_set_f64(&lit, 0, strtod(x->text, NULL), 0);
  else if (*x->text == '-') hlo_literal_set_s64(&lit, 0, strtoll(x->text, NULL, 0));
  else hlo_literal_set_s64(&lit, 0, (int64_t)strtoull(x->text, NULL, 0));
}

static weft_dtype default_type(const number *x) { return x->is_bool ? WEFT_PRED : x->is_float ? WEFT_F64 : WEFT_S64; }

/* Reads numbers up to `close` as an array. The element type is the one written after a number, else `type`; if that
 * is WEFT_INVALID, the default of the first number. */
static weft_status *parse_numbers(cursor *c, char close, weft_dtype type, XLA_FFI_Array **out)
{
  XLA_FFI_Array *array = WEFT_ARENA_NEW(c->arena, XLA_FFI_Array);
  size_t most = 1;

  for (const char *p = c->at; *p && *p != close; p++) most += *p == ',';
  number *numbers = WEFT_ARENA_ARRAY(c->arena, number, most);
  WEFT_TRY_ALLOC(array && numbers);
  if (!accept(c, close)) {
    do {
      if (array->size == most) return syntax(c, "expected the end of the list");
      WEFT_TRY(parse_number(c, &numbers[array->size++]));
      if (accept(c, ':')) WEFT_TRY(parse_type(c, &type));
    } while (accept(c, ','));
    WEFT_TRY(expect(c, close));
  }
  if (type == WEFT_INVALID) type = array->size ? default_type(&numbers[0]) : WEFT_S64;
  size_t bytes = weft_dtype_bytes(type);
  array->dtype = weft_dtype_to_proto(type);
  array->data = weft_arena_alloc_array(c->arena, array->size, bytes);
  WEFT_TRY_ALLOC(array->data);
  for (size_t i = 0; i < array->size; i++) store_number(&numbers[i], type, (char *)array->data + i * bytes);
  *out = array;
  return NULL;
}

/* "0x0100FF..." as `count` elements, little-endian, an i1 in a byte. The digits of one element stand for all. */
static weft_status *parse_hex(cursor *c, weft_dtype type, size_t count, XLA_FFI_Array **out)
{
  XLA_FFI_Array *array = WEFT_ARENA_NEW(c->arena, XLA_FFI_Array);
  size_t one = weft_dtype_bytes(type), digits, given;
  unsigned char *to;

  if (strncmp(c->at, "\"0x", 3) != 0) return syntax(c, "expected \"0x");
  c->at += 3;
  digits = strspn(c->at, "0123456789abcdefABCDEF");
  given = digits / 2;
  if (digits % 2 || c->at[digits] != '"' || (given != count * one && given != one))
    return syntax(c, "hexadecimal digits of another length");
  WEFT_TRY_ALLOC(array);
  *array = (XLA_FFI_Array){.dtype = weft_dtype_to_proto(type), .size = count};
  array->data = to = weft_arena_alloc_array(c->arena, count, one);
  WEFT_TRY_ALLOC(to);
  for (size_t i = 0; i < count * one; i++) {
    const char *from = c->at + 2 * (i % given);
    to[i] = (unsigned char)strtol((char[]){from[0], from[1], 0}, NULL, 16);
  }
  *out = array;
  return NULL;
}

/* Repeats the only element of `array` `count` times. */
static weft_status *repeat(cursor *c, size_t count, XLA_FFI_Array *array)
{
  size_t one = weft_dtype_bytes(weft_dtype_from_proto(array->dtype));
  char *to = weft_arena_alloc_array(c->arena, count, one);

  WEFT_TRY_ALLOC(to);
  for (size_t i = 0; i < count; i++) memcpy(to + i * one, array->data, one);
  array->data = to;
  array->size = count;
  return NULL;
}

/* After the word tensor: how many elements, and of what. */
static weft_status *parse_tensor(cursor *c, size_t *out_count, weft_dtype *out_type)
{
  *out_count = 1;
  WEFT_TRY(expect(c, '<'));
  skip_space(c);
  while (isdigit((unsigned char)*c->at)) {
    char *end;
    size_t dim = strtoull(c->at, &end, 10);
    c->at = end;
    WEFT_TRY(expect(c, 'x'));
    if (__builtin_mul_overflow(*out_count, dim, out_count) || *out_count > MOST_ELEMENTS)
      return syntax(c, "too many elements");
  }
  WEFT_TRY(parse_type(c, out_type));
  return expect(c, '>');
}

/* After the word dense. */
static weft_status *parse_dense(cursor *c, XLA_FFI_Array **out)
{
  weft_dtype type;
  size_t count;

  WEFT_TRY(expect(c, '<'));
  skip_space(c);
  cursor inner = *c;
  bool is_list = *c->at == '[', is_empty = *c->at == '>', is_hex = *c->at == '"';
  c->at += strcspn(c->at, ">");
  WEFT_TRY(expect(c, '>'));
  WEFT_TRY(expect(c, ':'));
  if (!accept_word(c, "tensor")) return syntax(c, "expected tensor");
  WEFT_TRY(parse_tensor(c, &count, &type));
  if (is_hex) return parse_hex(&inner, type, count, out);
  if (is_list) WEFT_TRY(expect(&inner, '['));
  WEFT_TRY(parse_numbers(&inner, is_list ? ']' : '>', type, out));
  if (!is_list && (*out)->size == 1) return repeat(c, count, *out);
  return (*out)->size == count && (is_list || is_empty) ? NULL : syntax(c, "dense list of another length");
}

static weft_status *parse_dict(cursor *c, XLA_FFI_Attrs *out);

static weft_status *parse_value(cursor *c, XLA_FFI_AttrType *type, void **out)
{
  weft_dtype element = WEFT_INVALID;

  skip_space(c);
  if (*c->at == '"') {
    XLA_FFI_ByteSpan *span = WEFT_ARENA_NEW(c->arena, XLA_FFI_ByteSpan);
    WEFT_TRY_ALLOC(span);
    *type = XLA_FFI_AttrType_STRING;
    *out = span;
    return parse_string(c, true, span);
  }
  if (*c->at == '{') {
    XLA_FFI_Attrs *dict = WEFT_ARENA_NEW(c->arena, XLA_FFI_Attrs);
    WEFT_TRY_ALLOC(dict);
    *type = XLA_FFI_AttrType_DICTIONARY;
    *out = dict;
    return parse_dict(c, dict);
  }
  *type = XLA_FFI_AttrType_ARRAY;
  if (accept(c, '[')) return parse_numbers(c, ']', WEFT_INVALID, (XLA_FFI_Array **)out);
  if (accept_word(c, "dense")) return parse_dense(c, (XLA_FFI_Array **)out);
  if (accept_word(c, "array")) {
    WEFT_TRY(expect(c, '<'));
    WEFT_TRY(parse_type(c, &element));
    if (!accept(c, ':')) skip_space(c);
    return parse_numbers(c, '>', element, (XLA_FFI_Array **)out);
  }
  XLA_FFI_Scalar *scalar = WEFT_ARENA_NEW(c->arena, XLA_FFI_Scalar);
  number x;
  WEFT_TRY_ALLOC(scalar);
  WEFT_TRY(parse_number(c, &x));
  element = default_type(&x);
  if (accept(c, ':')) WEFT_TRY(parse_type(c, &element));
  scalar->dtype = weft_dtype_to_proto(element);
  scalar->value = weft_arena_alloc(c->arena, 16);
  WEFT_TRY_ALLOC(scalar->value);
  store_number(&x, element, scalar->value);
  *type = XLA_FFI_AttrType_SCALAR;
  *out = scalar;
  return NULL;
}

typedef struct entry {
  XLA_FFI_ByteSpan name;
  XLA_FFI_AttrType type;
  void *value;
  struct entry *next;
} entry;

static int compare_names(const XLA_FFI_ByteSpan *a, const XLA_FFI_ByteSpan *b)
{
  int order = memcmp(a->ptr, b->ptr, a->len < b->len ? a->len : b->len);

  return order ? order : (a->len > b->len) - (a->len < b->len);
}

static int compare_entries(const void *a, const void *b)
{
  return compare_names(&(*(entry *const *)a)->name, &(*(entry *const *)b)->name);
}

static weft_status *parse_dict(cursor *c, XLA_FFI_Attrs *out)
{
  entry *first = NULL, **sorted;
  int64_t count = 0;

  if (++c->depth > MAX_DEPTH) return syntax(c, "dictionaries nest too deep");
  WEFT_TRY(expect(c, '{'));
  if (!accept(c, '}')) {
    do {
      entry *e = WEFT_ARENA_NEW(c->arena, entry);
      WEFT_TRY_ALLOC(e);
      WEFT_TRY(parse_string(c, false, &e->name));
      if (accept(c, '=')) {
        WEFT_TRY(parse_value(c, &e->type, &e->value));
      } else {
        static const uint8_t yes = 1;
        static const XLA_FFI_Scalar unit = {1 /* pred */, (void *)&yes};
        e->type = XLA_FFI_AttrType_SCALAR;
        e->value = (void *)&unit;
      }
      e->next = first;
      first = e;
      count++;
    } while (accept(c, ','));
    WEFT_TRY(expect(c, '}'));
  }
  c->depth--;
  sorted = WEFT_ARENA_ARRAY(c->arena, entry *, count);
  *out = (XLA_FFI_Attrs){
    .struct_size = sizeof *out,
    .size = count,
    .types = WEFT_ARENA_ARRAY(c->arena, XLA_FFI_AttrType, count),
    .names = WEFT_ARENA_ARRAY(c->arena, XLA_FFI_ByteSpan *, count),
    .attrs = WEFT_ARENA_ARRAY(c->arena, void *, count),
  };
  WEFT_TRY_ALLOC(sorted && out->types && out->names && out->attrs);
  for (int64_t i = 0; first; first = first->next) sorted[i++] = first;
  qsort(sorted, (size_t)count, sizeof *sorted, compare_entries);
  for (int64_t i = 0; i < count; i++) {
    if (i > 0 && compare_names(&sorted[i - 1]->name, &sorted[i]->name) == 0) return syntax(c, "a name is there twice");
    out->types[i] = sorted[i]->type;
    out->names[i] = &sorted[i]->name;
    out->attrs[i] = sorted[i]->value;
  }
  return NULL;
}

weft_status *rt_ffi_attrs_parse(weft_arena *arena, const char *text, XLA_FFI_Attrs *out_attrs)
{
  cursor c = {text, text, arena, 0};

  skip_space(&c);
  if (!*c.at) c.start = c.at = "{}";
  WEFT_TRY(parse_dict(&c, out_attrs));
  skip_space(&c);
  return *c.at ? syntax(&c, "text after the dictionary") : NULL;
}
