/* stablehlo/mlir_text.c -- MLIR text: lexing, types, attributes, generic operations, regions, modules.
 * Recursive descent over the bytes of the input; nesting is bounded by MLIR_MAX_DEPTH. */
#include "base/quote.h"
#include "stablehlo/mlir_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists and errors -------------------------------------------------------------------------------------------- */

weft_status *text_grow(text_parser *ps, void *items, int count, int *capacity, size_t size)
{
  WEFT_TRY_ALLOC(weft_arena_reserve(ps->arena, items, capacity, (int64_t)count + 1, 4, size));
  return NULL;
}

weft_status *text_push(text_parser *ps, text_list *list, const void *item)
{
  WEFT_TRY(text_grow(ps, &list->items, list->count, &list->capacity, sizeof(void *)));
  list->items[list->count++] = (void *)(uintptr_t)item;
  return NULL;
}

weft_status *text_add_attr(text_parser *ps, text_attrs *attrs, const char *name, const mlir_attr *value)
{
  WEFT_TRY(text_grow(ps, &attrs->items, attrs->count, &attrs->capacity, sizeof(mlir_named_attr)));
  attrs->items[attrs->count++] = (mlir_named_attr){name, value};
  return NULL;
}

weft_status *text_fail(text_parser *ps, const char *at, const char *fmt, ...)
{
  const char *begin = ps->program->input, *end = begin + ps->program->size;
  char message[512], position[64], quote[WEFT_QUOTE_BYTES] = "";
  va_list ap;

  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  mlir_position(ps->program, (size_t)(at - begin), position, sizeof position);
  if (ps->program->is_text && begin <= at && at <= end) weft_quote(begin, end, at, quote);
  return WEFT_ERR(INVALID_ARGUMENT, "%s: %s%s", position, message, quote);
}

weft_status *text_enter(text_parser *ps)
{
  if (++ps->depth > MLIR_MAX_DEPTH) return text_fail(ps, ps->p, "nested deeper than %d", MLIR_MAX_DEPTH);
  return NULL;
}

/* ---- lexing ------------------------------------------------------------------------------------------------------ */

void text_skip_space(text_parser *ps)
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
  text_skip_space(ps);
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

  text_skip_space(ps);
  if ((size_t)(ps->end - ps->p) < n || memcmp(ps->p, str, n) != 0) return false;
  ps->p += n;
  return true;
}

bool text_accept_word(text_parser *ps, const char *word)
{
  const char *start;
  size_t n = strlen(word);

  text_skip_space(ps);
  start = ps->p;
  if (!text_accept_str(ps, word)) return false;
  if (start + n < ps->end && text_is_word(start[n])) {
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
  text_skip_space(ps);
  if (ps->p == ps->end || !text_is_letter(*ps->p)) return false;
  *word = ps->p;
  while (ps->p < ps->end && text_is_word(*ps->p)) ps->p++;
  *size = (size_t)(ps->p - *word);
  return true;
}

int text_hex_value(char c)
{
  return text_is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
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
    } else if (c + 2 < q && text_hex_value(c[1]) >= 0 && text_hex_value(c[2]) >= 0) {
      s[n++] = (char)(text_hex_value(c[1]) << 4 | text_hex_value(c[2]));
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

weft_status *text_raw_string(text_parser *ps, const char **out, size_t *out_size)
{
  const char *start = ps->p + 1, *stop = memchr(start, '"', (size_t)(ps->end - start));

  if (!stop) return text_fail(ps, start, "a string without end");
  *out = start;
  *out_size = (size_t)(stop - start);
  ps->p = stop + 1;
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

  text_skip_space(ps);
  start = ps->p;
  negative = ps->p < ps->end && *ps->p == '-';
  if (negative) ps->p++;
  if (ps->p == ps->end || !text_is_digit(*ps->p)) return text_fail(ps, start, "expected an integer");
  for (; ps->p < ps->end && text_is_digit(*ps->p); ps->p++)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*ps->p - '0'), &v))
      return text_fail(ps, start, "an integer over 2^64");
  *out = negative ? (int64_t)-v : (int64_t)v;
  return NULL;
}

/* A number token as strtod sees it. */
weft_status *text_real(text_parser *ps, double *out)
{
  char token[64];
  size_t n = 0;
  char *stop;

  text_skip_space(ps);
  while (ps->p + n < ps->end && n < sizeof token - 1 &&
         (text_is_digit(ps->p[n]) || strchr("+-.eE", ps->p[n]) != NULL) && ps->p[n]) {
    token[n] = ps->p[n];
    n++;
  }
  token[n] = '\0';
  *out = strtod(token, &stop);
  if (n == 0 || stop == token) return text_fail(ps, ps->p, "expected a number");
  ps->p += stop - token;
  return NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

weft_status *text_value_name(text_parser *ps, const char **name, size_t *size)
{
  WEFT_TRY(text_expect(ps, '%'));
  *name = ps->p;
  while (ps->p < ps->end && (text_is_word(*ps->p) || *ps->p == '-')) ps->p++;
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
  WEFT_TRY(text_grow(ps, &ps->names, ps->name_count, &ps->name_capacity, sizeof(text_name)));
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

/* ---- operations -------------------------------------------------------------------------------------------------- */

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
  text_skip_space(ps);
  at = ps->p;
  WEFT_TRY(text_function_type(ps, &type));
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
  const mlir_location *location;
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
  text_skip_space(ps);
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
  WEFT_TRY(text_location(ps, &location));
  if (location) op->location = location; /* otherwise a location that stood before a region stays */
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
  text_list names = {0}, types = {0}, locations = {0};

  WEFT_TRY(text_expect(ps, '^'));
  if (!text_word(ps, &word, &size)) {
    int64_t number;
    WEFT_TRY(text_integer(ps, &number));
  }
  if (text_accept(ps, '(')) {
    while (!text_accept(ps, ')')) {
      const mlir_type *t;
      const mlir_location *location;
      if (names.count > 0) WEFT_TRY(text_expect(ps, ','));
      text_peek(ps);
      WEFT_TRY(text_push(ps, &names, ps->p));
      WEFT_TRY(text_value_name(ps, &word, &size));
      WEFT_TRY(text_expect(ps, ':'));
      WEFT_TRY(text_type(ps, &t));
      WEFT_TRY(text_push(ps, &types, t));
      WEFT_TRY(text_location(ps, &location));
      WEFT_TRY(text_push(ps, &locations, location));
    }
  }
  WEFT_TRY(text_expect(ps, ':'));
  block->arg_count = names.count;
  block->args = WEFT_ARENA_ARRAY(ps->arena, mlir_value, names.count);
  WEFT_TRY_ALLOC(block->args);
  block->arg_locations = (const mlir_location **)locations.items;
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
  WEFT_TRY(text_enter(ps));
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

/* ---- modules ----------------------------------------------------------------------------------------------------- */

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
  text_skip_space(ps);
  start = ps->p;
  if (text_accept_word(ps, "loc")) {
    ps->p = start;
    WEFT_TRY(text_location_alias(ps, name, size));
    ps->p = start; /* the text is then read once more, as an attribute without meaning */
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
    if (text_is_letter((char)c)) {
      if (!text_word(ps, &word, &size)) return text_fail(ps, ps->p, "expected a name");
    } else if (c == '"') {
      const char *text;
      size_t length;
      WEFT_TRY(text_raw_string(ps, &text, &length));
      if (text_peek(ps) == ':') {
        word = text;
        size = length;
      }
      if (!word || word == text || length < 2 || text[0] != '0' || text[1] != 'x') continue;
      mlir_resource r = {weft_arena_strndup(ps->arena, word, size), text + 2, length - 2};
      WEFT_TRY_ALLOC(r.name);
      WEFT_TRY(text_grow(ps, &ps->resources, ps->module->resource_count, &ps->resource_capacity, sizeof r));
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
  for (const char *line = p; line && line < end;
       line = memchr(line, '\n', (size_t)(end - line)), line = line ? line + 1 : NULL)
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
    *ps = (text_parser){.program = program,
                        .arena = &program->arena,
                        .p = p,
                        .end = stop,
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

/* ---- text inside bytecode ---------------------------------------------------------------------------------------- */

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
