/* tests/fuzz/mutate_text.c -- changes of program texts, HLO or MLIR, by what the two have in common.
 *   statement  a line, with the lines that its brackets span: an operation with its regions, a computation, a function
 *   value      a name that a statement or a function's head defines, with the text of its type
 *   key        a word before '=' within a statement; its value is the number, word or bracketed group after it
 * A statement of the donor is adapted: its result gets a new name, and its operands become values of the receiver,
 * of the same types where there are some. */
#include <config.h>

#include "base/macros.h"
#include "mutate.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 15, MOST_STATEMENTS = 2048, MOST_VALUES = 2048, MOST_EDITS = 2048, TRIES = 24 };

typedef enum kind { SPACE, LINE, WORD, NUMBER, STRING, PUNCT, OPEN, CLOSE } kind;

typedef struct token {
  uint32_t start, size;
  kind kind;
  int depth; /* of the brackets around it; an opening and its closing bracket have the same */
} token;

/* Tokens [first, end), of which `name` is the name that is defined (-1: none) and `op` the operation's (-1). */
typedef struct statement {
  int first, end, name, op;
} statement;

typedef struct value {
  int token;
  uint64_t type; /* a hash of its text without spaces and layouts */
} value;

typedef struct text {
  const char *data;
  size_t size;
  bool is_hlo;
  int count, statement_count, value_count;
  token tokens[MOST_TOKENS];
  statement statements[MOST_STATEMENTS];
  value values[MOST_VALUES];
} text;

typedef struct edit {
  size_t at, drop, order;
  const char *with; /* malloc'd */
} edit;

typedef struct edits {
  edit list[MOST_EDITS];
  size_t count;
} edits;

/* ---- reading ---- */

static bool is_name_start(char c) { return isalpha((unsigned char)c) || strchr("_%@#!^", c); }
static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '$' || c == '-'; }

static size_t token_size(const char *s, const char *end, const token *last, kind *out)
{
  const char *p = s + 1;
  bool after_dims = last && (last->kind == NUMBER || (last->kind == PUNCT && s[-1] == '?')) && last->size > 0;

  *out = PUNCT;
  if (*s == '\n') return *out = LINE, 1;
  if (isspace((unsigned char)*s)) {
    while (p < end && *p != '\n' && isspace((unsigned char)*p)) p++;
    return *out = SPACE, (size_t)(p - s);
  }
  if (*s == '"') {
    while (p < end && *p != '"' && *p != '\n') p += 1 + (*p == '\\' && p + 1 < end);
    return *out = STRING, (size_t)((p < end ? p + 1 : end) - s);
  }
  if (*s == '-' && p < end && *p == '>') return 2;
  if (strchr("([{<", *s) && *s) return *out = OPEN, 1;
  if (strchr(")]}>", *s) && *s) return *out = CLOSE, 1;
  if (*s == 'x' && after_dims) return 1; /* 4x5xf32 */
  if (isdigit((unsigned char)*s) || (*s == '-' && p < end && isdigit((unsigned char)*p))) {
    while (p < end && isdigit((unsigned char)*p)) p++;
    if (p < end && *p == '.')
      for (p++; p < end && isdigit((unsigned char)*p);) p++;
    if (p + 1 < end && *p == 'e' && (isdigit((unsigned char)p[1]) || p[1] == '-' || p[1] == '+'))
      for (p += 2; p < end && isdigit((unsigned char)*p);) p++;
    return *out = NUMBER, (size_t)(p - s);
  }
  if (!is_name_start(*s)) return 1;
  while (p < end && is_name(*p) && !(*p == '-' && p + 1 < end && p[1] == '>')) p++;
  return *out = WORD, (size_t)(p - s);
}

static bool read_tokens(text *t)
{
  const char *end = t->data + t->size;
  int depth = 0;

  for (const char *s = t->data; s < end && t->count < MOST_TOKENS; s += t->tokens[t->count - 1].size) {
    token *now = &t->tokens[t->count];
    now->start = (uint32_t)(s - t->data);
    now->size = (uint32_t)token_size(s, end, t->count ? now - 1 : NULL, &now->kind);
    if (now->kind == CLOSE && depth > 0) depth--;
    now->depth = depth;
    if (now->kind == OPEN) depth++;
    t->count++;
  }
  return t->count > 0;
}

static bool is(const text *t, int at, const char *word)
{
  return at >= 0 && at < t->count && strlen(word) == t->tokens[at].size &&
         memcmp(t->data + t->tokens[at].start, word, t->tokens[at].size) == 0;
}

static bool same(const text *t, int at, const text *u, int other)
{
  const token *a = &t->tokens[at], *b = &u->tokens[other];

  return a->size == b->size && memcmp(t->data + a->start, u->data + b->start, a->size) == 0;
}

static int skip_space(const text *t, int at)
{
  while (at < t->count && t->tokens[at].kind == SPACE) at++;
  return at;
}

/* The token after the group, or the single token, that begins at `at`. */
static int group_end(const text *t, int at)
{
  if (at >= t->count || t->tokens[at].kind != OPEN) return at + 1;
  for (int i = at + 1; i < t->count; i++)
    if (t->tokens[i].kind == CLOSE && t->tokens[i].depth <= t->tokens[at].depth) return i + 1;
  return t->count;
}

/* A value of a key: a number, word or string with the groups that follow it, or a group. */
static int operand_end(const text *t, int at)
{
  int end = group_end(t, at);

  while (end < t->count && t->tokens[end].kind == OPEN) end = group_end(t, end);
  return WEFT_MIN(end, t->count);
}

static uint64_t type_hash(const text *t, int first, int end)
{
  uint64_t h = 1469598103934665603u;

  for (int i = first; i < end; i++) {
    if (t->tokens[i].kind == SPACE || t->tokens[i].kind == LINE) continue;
    if (t->is_hlo && is(t, i, "{")) {
      i = group_end(t, i) - 1;
      continue;
    }
    for (uint32_t k = 0; k < t->tokens[i].size; k++)
      h = (h ^ (uint8_t)t->data[t->tokens[i].start + k]) * 1099511628211u;
  }
  return h;
}

static void add_value(text *t, int token, int first, int end)
{
  if (t->value_count < MOST_VALUES && first < end)
    t->values[t->value_count++] = (value){token, type_hash(t, first, end)};
}

/* HLO: NAME = TYPE OPCODE(...).  MLIR: NAME = OPCODE ... : TYPE or : (...) -> TYPE */
static void read_result(text *t, statement *s, int equals)
{
  int type = skip_space(t, equals + 1), end = type, depth = t->tokens[s->first].depth;

  if (t->is_hlo) {
    end = operand_end(t, type);
    s->op = skip_space(t, end);
    add_value(t, s->name, type, end);
    return;
  }
  s->op = type;
  for (int i = s->end - 1; i > equals; i--)
    if (t->tokens[i].depth == depth && (is(t, i, "->") || is(t, i, ":"))) {
      add_value(t, s->name, i + 1, s->end);
      return;
    }
}

static void read_statement(text *t, int first)
{
  int depth = t->tokens[first].depth, at = skip_space(t, first), end = first;

  if (at >= t->count || t->tokens[at].kind == LINE || t->tokens[at].kind == CLOSE ||
      t->statement_count == MOST_STATEMENTS)
    return;
  while (end < t->count && !(t->tokens[end].kind == LINE && t->tokens[end].depth <= depth)) end++;
  statement *s = &t->statements[t->statement_count++];
  *s = (statement){.first = first, .end = WEFT_MIN(end + 1, t->count), .name = -1, .op = -1};
  if (is(t, at, "ROOT")) at = skip_space(t, at + 1);
  int equals = skip_space(t, at + 1);
  if (is(t, equals, ":")) equals = skip_space(t, skip_space(t, equals + 1) + 1); /* %0:2 = */
  if (t->tokens[at].kind == WORD && is(t, equals, "=")) {
    s->name = at;
    read_result(t, s, equals);
  }
}

static bool read_text(text *t, mut_bytes b)
{
  t->data = (const char *)b.data;
  t->size = b.size;
  t->is_hlo = false;
  t->count = t->statement_count = t->value_count = 0;
  if (!read_tokens(t)) return false;
  for (int i = 0; i < t->count; i++) t->is_hlo |= is(t, i, "ENTRY") || is(t, i, "HloModule");
  for (int i = 0; i < t->count; i++) {
    if (i == 0 || t->tokens[i - 1].kind == LINE) read_statement(t, i);
    /* A function's or a block's argument. */
    if (!t->is_hlo && t->tokens[i].kind == WORD && t->data[t->tokens[i].start] == '%' && is(t, i + 1, ":"))
      add_value(t, i, skip_space(t, i + 2), operand_end(t, skip_space(t, i + 2)));
  }
  return true;
}

/* ---- edits ---- */

static void replace(edits *e, size_t at, size_t drop, const char *with, size_t size)
{
  if (e->count == MOST_EDITS) return;
  e->list[e->count] = (edit){at, drop, e->count, strndup(with, size)};
  e->count++;
}

static void replace_tokens(edits *e, const text *t, int first, int end, const char *with, size_t size)
{
  const token *last = &t->tokens[end - 1];

  replace(e, t->tokens[first].start, last->start + last->size - t->tokens[first].start, with, size);
}

static const char *text_of(const text *t, int first, int end, size_t *size)
{
  const token *last = &t->tokens[end - 1];

  *size = last->start + last->size - t->tokens[first].start;
  return t->data + t->tokens[first].start;
}

static int by_place(const void *a, const void *b)
{
  const edit *x = a, *y = b;

  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return x->order < y->order ? -1 : 1;
}

static bool put_edited(mut_job *job, const char *data, size_t size, edits *e)
{
  size_t at = 0, count = e->count;

  qsort(e->list, e->count, sizeof *e->list, by_place);
  for (size_t i = 0; i < e->count; i++) {
    if (e->list[i].at >= at && e->list[i].with) {
      mut_put(job, data + at, e->list[i].at - at);
      mut_put(job, e->list[i].with, strlen(e->list[i].with));
      at = e->list[i].at + e->list[i].drop;
    }
    free((char *)e->list[i].with);
  }
  mut_put(job, data + at, size - at);
  e->count = 0;
  return count > 0;
}

/* Other words for token `at`, or for all tokens that are equal to it. */
static void replace_word(edits *e, const text *t, int at, const char *with, size_t size, bool everywhere)
{
  for (int i = 0; i < t->count; i++)
    if (i == at || (everywhere && t->tokens[i].kind == t->tokens[at].kind && same(t, i, t, at)))
      replace(e, t->tokens[i].start, t->tokens[i].size, with, size);
}

static int random_token(mut_job *job, const text *t, kind kind)
{
  for (int tries = 0; tries < TRIES; tries++) {
    int at = (int)mut_below(job, (size_t)t->count);
    if (t->tokens[at].kind == kind) return at;
  }
  return -1;
}

static const statement *random_operation(mut_job *job, const text *t)
{
  for (int tries = 0; tries < TRIES && t->statement_count; tries++) {
    const statement *s = &t->statements[mut_below(job, (size_t)t->statement_count)];
    if (s->name >= 0) return s;
  }
  return NULL;
}

static const value *value_named(const text *t, const text *u, int word)
{
  for (int i = t->value_count - 1; i >= 0; i--)
    if (same(t, t->values[i].token, u, word)) return &t->values[i];
  return NULL;
}

/* A value of the receiver that stands before token `before` in the same computation or function, of type `type` if
 * there is one; NULL: there is none at all. */
static const value *visible(mut_job *job, const text *t, int before, uint64_t type)
{
  const value *found = NULL, *any = NULL;
  size_t equal = 0, all = 0;
  int body = 0;

  for (int i = 0; i < before; i++) /* where the function or computation begins */
    if (t->is_hlo ? t->tokens[i].kind == LINE && t->tokens[i].depth == 0 : is(t, i, "func.func") || is(t, i, "func"))
      body = i;
  for (int i = 0; i < t->value_count; i++) {
    const value *v = &t->values[i];
    if (v->token < body || v->token >= before || t->tokens[v->token].depth > t->tokens[before].depth + 1) continue;
    if (v->type == type && mut_below(job, ++equal) == 0) found = v;
    if (mut_below(job, ++all) == 0) any = v;
  }
  return found && mut_below(job, 16) ? found : any;
}

/* ---- changes: each adds edits, or gives false ---- */

static bool change_number(mut_job *job, const text *t, edits *e)
{
  int at = random_token(job, t, NUMBER), other = random_token(job, t, NUMBER);
  char with[32];

  if (at < 0 || other < 0) return false;
  snprintf(with, sizeof with, "%.*s", (int)WEFT_MIN(t->tokens[at].size, 20u), t->data + t->tokens[at].start);
  long long old = strtoll(with, NULL, 10);
  switch (mut_below(job, 5)) {
  case 0: snprintf(with, sizeof with, "%lld", (long long)mut_boundary(job)); break;
  case 1: snprintf(with, sizeof with, "%lld", (long long)((unsigned long long)old + 1)); break;
  case 2: snprintf(with, sizeof with, "%lld", (long long)((unsigned long long)old - 1)); break;
  case 3: snprintf(with, sizeof with, "%d", (int)mut_below(job, 5)); break;
  default:
    snprintf(with, sizeof with, "%.*s", (int)WEFT_MIN(t->tokens[other].size, 30u), t->data + t->tokens[other].start);
  }
  replace_word(e, t, at, with, strlen(with), mut_below(job, 3));
  return true;
}

static bool change_type(mut_job *job, const text *t, edits *e)
{
  static const char *const hlo[] = {"pred", "s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64", "c64", "c128",
                                    "f8e4m3fn", "f8e5m2", "f4e2m1fn", "s2", "u2", "s1", "token"};
  static const char *const mlir[] = {"i1", "i4", "ui4", "i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64", "f16", "bf16", "f32", "f64", "complex<f32>",
                                     "complex<f64>", "f8E4M3FN", "f8E5M2", "f4E2M1FN", "i2", "ui2", "index"};
  const char *const *names = t->is_hlo ? hlo : mlir;
  size_t count = t->is_hlo ? WEFT_COUNT(hlo) : WEFT_COUNT(mlir);

  for (int tries = 0; tries < TRIES; tries++) {
    int at = random_token(job, t, WORD);
    for (size_t i = 0; at >= 0 && i < count; i++) {
      if (!is(t, at, names[i])) continue;
      const char *with = names[mut_below(job, count)];
      replace_word(e, t, at, with, strlen(with), mut_below(job, 4));
      return true;
    }
  }
  return false;
}

static int commas(const text *t, int open)
{
  int count = 0, end = group_end(t, open);

  for (int i = open + 1; i < end; i++) count += is(t, i, ",") && t->tokens[i].depth == t->tokens[open].depth + 1;
  return count;
}

/* Another operation with as many operands. */
static bool change_operation(mut_job *job, const text *t, const text *donor, edits *e)
{
  const statement *s = random_operation(job, t);

  for (int tries = 0; s && tries < TRIES; tries++) {
    const statement *from = random_operation(job, donor);
    size_t size;
    if (!from || from->op >= donor->count || s->op >= t->count || same(t, s->op, donor, from->op)) continue;
    if (t->is_hlo && commas(t, s->op + 1) != commas(donor, from->op + 1)) continue;
    const char *with = text_of(donor, from->op, from->op + 1, &size);
    replace_word(e, t, s->op, with, size, false);
    return true;
  }
  return false;
}

static bool change_operand(mut_job *job, const text *t, edits *e)
{
  for (int tries = 0; tries < TRIES; tries++) {
    int at = random_token(job, t, WORD);
    const value *now = at < 0 ? NULL : value_named(t, t, at),
                *other = now && now->token != at ? visible(job, t, at, now->type) : NULL;
    if (!other || same(t, other->token, t, at)) continue;
    size_t size;
    const char *with = text_of(t, other->token, other->token + 1, &size);
    replace_word(e, t, at, with, size, false);
    return true;
  }
  return false;
}

/* The value of a key for another one of the same key. */
static bool splice_key(mut_job *job, const text *t, const text *donor, edits *e)
{
  int found = -1;
  size_t seen = 0, size;

  for (int tries = 0; tries < TRIES; tries++) {
    int key = random_token(job, t, WORD), equals = key < 0 ? 0 : skip_space(t, key + 1),
        now = skip_space(t, equals + 1);
    if (key < 0 || !is(t, equals, "=") || now >= t->count || t->data[t->tokens[key].start] == '%' ||
        value_named(t, t, key))
      continue;
    for (int i = 0; i + 2 < donor->count; i++)
      if (same(t, key, donor, i) && is(donor, skip_space(donor, i + 1), "=") && (donor->data != t->data || i != key) &&
          mut_below(job, ++seen) == 0)
        found = i;
    if (found < 0) continue;
    int first = skip_space(donor, skip_space(donor, found + 1) + 1);
    if (first >= donor->count) return false;
    const char *with = text_of(donor, first, operand_end(donor, first), &size);
    replace_tokens(e, t, now, operand_end(t, now), with, size);
    return true;
  }
  return false;
}

/* A bracketed group for another one with the same bracket: a shape, a list, a region,
 * operands; everywhere or in one place. */
static bool splice_group(mut_job *job, const text *t, const text *donor, edits *e)
{
  for (int tries = 0; tries < TRIES; tries++) {
    int at = random_token(job, t, OPEN), from = random_token(job, donor, OPEN);
    size_t size, old_size, most = mut_below(job, 4) ? 64 : 2048;
    if (at < 0 || from < 0 || !same(t, at, donor, from)) continue;
    const char *with = text_of(donor, from, WEFT_MIN(group_end(donor, from), donor->count), &size);
    const char *old = text_of(t, at, group_end(t, at), &old_size);
    if (size > most || old_size > most || (size == old_size && memcmp(with, old, size) == 0)) continue;
    bool everywhere = mut_below(job, 2);
    for (int i = 0; i < t->count; i++) {
      size_t here;
      if (i != at && (!everywhere || t->tokens[i].kind != OPEN)) continue;
      const char *place = text_of(t, i, group_end(t, i), &here);
      if (i == at || (here == old_size && memcmp(place, old, here) == 0))
        replace(e, t->tokens[i].start, here, with, size);
    }
    return true;
  }
  return false;
}

/* An element of a list twice, or away. */
static bool change_list(mut_job *job, const text *t, edits *e)
{
  for (int tries = 0; tries < TRIES; tries++) {
    int at = random_token(job, t, PUNCT);
    if (at < 0 || !is(t, at, ",")) continue;
    int end = at + 1;
    while (end < t->count && !((t->tokens[end].kind == CLOSE && t->tokens[end].depth < t->tokens[at].depth) ||
                               (is(t, end, ",") && t->tokens[end].depth == t->tokens[at].depth)))
      end++;
    size_t size;
    const char *element = text_of(t, at, end, &size);
    if (mut_below(job, 2)) replace_tokens(e, t, at, end, "", 0);
    else replace(e, t->tokens[at].start, 0, element, size);
    return true;
  }
  return false;
}

static bool drop_statement(mut_job *job, const text *t, edits *e)
{
  const statement *s = t->statement_count ? &t->statements[mut_below(job, (size_t)t->statement_count)] : NULL;

  if (!s) return false;
  for (int i = s->end; s->name >= 0 && i < t->count; i++)
    if (t->tokens[i].kind == WORD && same(t, i, t, s->name) && mut_below(job, 8)) return false; /* it is used */
  replace_tokens(e, t, s->first, s->end, "", 0);
  return true;
}

/* A statement that starts at the outermost depth or next to it, and spans several lines: a computation or function. */
static bool is_block(const text *t, const statement *s)
{
  size_t size;
  const char *words = text_of(t, s->first, s->end, &size);

  return s->name < 0 && t->tokens[s->first].depth <= (t->is_hlo ? 0 : 1) && memchr(words, '{', size) &&
         memchr(words, '\n', size - 1);
}

/* The donor's computation or function whose name is word `at` of the donor, -1. */
static const statement *block_named(const text *t, const text *u, int word)
{
  for (int i = 0; i < t->statement_count; i++)
    for (int k = t->statements[i].first;
         is_block(t, &t->statements[i]) && k < WEFT_MIN(t->statements[i].first + 6, t->count); k++)
      if (t->tokens[k].kind == WORD && same(t, k, u, word)) return &t->statements[i];
  return NULL;
}

/* A computation or function of the donor, before one of the receiver. */
static bool add_block(const text *t, const text *donor, const statement *block, edits *e)
{
  size_t size;

  for (int i = 0; i < t->statement_count; i++) {
    if (!is_block(t, &t->statements[i])) continue;
    const char *words = text_of(donor, block->first, block->end, &size);
    replace(e, t->tokens[t->statements[i].first].start, 0, words, size);
    return true;
  }
  return false;
}

static bool splice_block(mut_job *job, const text *t, const text *donor, edits *e)
{
  for (int tries = 0; tries < TRIES && donor->statement_count; tries++) {
    const statement *s = &donor->statements[mut_below(job, (size_t)donor->statement_count)];
    if (is_block(donor, s) && !(donor->is_hlo && is(donor, skip_space(donor, s->first), "ENTRY")))
      return add_block(t, donor, s, e);
  }
  return false;
}

/* The donor's statement with a new result and operands of the receiver; what it calls comes with it. */
static bool splice_statement(mut_job *job, const text *t, const text *donor, edits *e)
{
  const statement *s = random_operation(job, donor), *place = random_operation(job, t);
  static edits within;
  char name[32];
  mut_job inner = {.most = 1 << 16};
  size_t size;

  if (!s || !place || t->is_hlo != donor->is_hlo || !(inner.out = malloc(inner.most))) return false;
  int first = skip_space(donor, s->first);
  bool is_percent = donor->data[donor->tokens[s->name].start] == '%';
  snprintf(name, sizeof name, "%sm%zu", is_percent ? "%" : "", mut_below(job, 100000));
  const char *words = text_of(donor, first, s->end, &size);
  size_t base = donor->tokens[first].start;
  within.count = 0;
  if (is(donor, first, "ROOT")) replace(&within, 0, 4, "", 0);
  for (int i = first; i < s->end; i++) {
    if (donor->tokens[i].kind != WORD) continue;
    const value *now = value_named(donor, donor, i);
    if (i == s->name) {
      replace(&within, donor->tokens[i].start - base, donor->tokens[i].size, name, strlen(name));
    } else if (now && (now->token < first || now->token >= s->end)) {
      const value *mine = visible(job, t, place->first, now->type);
      size_t mine_size;
      if (!mine) continue;
      const char *with = text_of(t, mine->token, mine->token + 1, &mine_size);
      replace(&within, donor->tokens[i].start - base, donor->tokens[i].size, with, mine_size);
    } else if (!now && donor->data != t->data) {
      const statement *called = block_named(donor, donor, i);
      if (called && (s->first < called->first || s->first >= called->end) && !block_named(t, donor, i))
        add_block(t, donor, called, e);
    }
  }
  put_edited(&inner, words, size, &within);
  replace(e, t->tokens[skip_space(t, place->first)].start, 0, (const char *)inner.out, inner.size);
  /* Somebody is to use the result. */
  const value *result = value_named(donor, donor, s->name);
  for (int i = place->first, tries = 0; result && i < t->count && tries < 200; i++, tries++) {
    const value *now = t->tokens[i].kind == WORD ? value_named(t, t, i) : NULL;
    if (!now || now->token == i || now->token > place->first || now->type != result->type || mut_below(job, 2))
      continue;
    replace_word(e, t, i, name, strlen(name), false);
    break;
  }
  free(inner.out);
  return !inner.failed;
}

bool mut_text(mut_job *job)
{
  static text t,
    donor; /* fuzz targets have one thread that makes inputs; large allocations are slow under sanitizers */
  static edits e;
  bool done = false;

  e.count = 0;
  bool read = read_text(&t, job->receiver);
  for (int tries = 0; read && tries < 8 && !done; tries++) {
    size_t change = mut_below(job, 16);
    if (change > 7 && donor.data != (const char *)job->donor.data) read = read_text(&donor, job->donor);
    if (!read) break;
    switch (change) {
    case 0: case 1: case 2: done = change_number(job, &t, &e); break;
    case 3: done = change_type(job, &t, &e); break;
    case 4: case 5: done = change_operand(job, &t, &e); break;
    case 6: done = change_list(job, &t, &e); break;
    case 7: done = drop_statement(job, &t, &e); break;
    case 8: case 9: done = splice_key(job, &t, &donor, &e); break;
    case 10: done = splice_group(job, &t, &donor, &e); break;
    case 11: done = change_operation(job, &t, &donor, &e); break;
    case 12: done = splice_block(job, &t, &donor, &e); break;
    default: done = splice_statement(job, &t, &donor, &e);
    }
  }
  donor.data = NULL;                           /* another donor may come at the same address */
  done &= put_edited(job, t.data, t.size, &e); /* and frees them */
  return done;
}
