/* stablehlo/mlir_attrs.c -- attributes out of MLIR text, in the forms of every dialect that we read. */
#include "stablehlo/mlir_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
  while (ps->p < ps->end && (text_is_word(*ps->p) || *ps->p == '-' ||
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
  while (!hex && q < ps->end && text_is_digit(*q)) q++;
  bool is_float = !hex && q < ps->end && (*q == '.' || ((*q == 'e' || *q == 'E') && q > digits));
  WEFT_TRY(text_new_attr(ps, is_float ? MLIR_FLOAT : MLIR_INT, &a));
  if (is_float) {
    WEFT_TRY(text_real(ps, &a->u.f));
  } else if (hex) {
    char token[24], *stop;
    size_t n = 0;
    for (q += 2; q < ps->end && text_hex_value(*q) >= 0 && n < sizeof token - 1; q++) token[n++] = *q;
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
      double value = a->type->dtype == WEFT_F64 ? ((union {
                                                    int64_t i;
                                                    double d;
                                                  }){a->u.i})
                                                    .d
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
  text_skip_space(ps);
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
  if (text_peek(ps) == '"') WEFT_TRY(text_raw_string(ps, &word, &size));
  else if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected the name of a resource");
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
  WEFT_TRY(
    conv_bracket(ps, attrs, 'b', "input_batch_dimension", 'f', "input_feature_dimension", "input_spatial_dimensions"));
  WEFT_TRY(text_expect(ps, 'x'));
  WEFT_TRY(conv_bracket(ps, attrs, 'i', "kernel_input_feature_dimension", 'o', "kernel_output_feature_dimension",
                        "kernel_spatial_dimensions"));
  if (!text_accept_str(ps, "->")) return text_fail(ps, ps->p, "expected '->'");
  return conv_bracket(ps, attrs, 'b', "output_batch_dimension", 'f', "output_feature_dimension",
                      "output_spatial_dimensions");
}

/* key = value, ... up to '>'. */
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

  text_skip_space(ps);
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
  if (*out) return mlir_refer_attr(ps->program, *out, ps->depth);
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
  if (text_is_type_word(word, size)) {
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

  if (text_is_digit((char)c) || c == '-') return number_attr(ps, out);
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
  case '{': WEFT_TRY(text_dict(ps, &attrs)); return dict_of(ps, NULL, 0, &attrs, out);
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
    if (ps->p + 1 < ps->end && text_is_digit(ps->p[1])) return text_sub_axis(ps, out);
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
  WEFT_TRY(text_enter(ps));
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
