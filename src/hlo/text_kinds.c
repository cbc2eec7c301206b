/* hlo/text_kinds.c -- kinds of attribute values that are not HLO's own: numbers, words, text, lists of integers. */
#include <config.h>

#include "hlo/text_kinds.h"

#include <inttypes.h>
#include <stdlib.h>
#include <strings.h>

bool hlo_list_is_empty(attr_value v) { return hlo_list_count(v.field) == 0; }

bool hlo_pointer_is_null(attr_value v) { return *(void *const *)v.field == NULL; }

weft_status *hlo_rd_list(hlo_reader *r, char open, char close, size_t size,
                         weft_status *(*item)(hlo_reader *r, void *out), void *count_field)
{
  size_t mark = r->stack_used;
  _Alignas(16) char value[64];

  WEFT_TRY(hlo_rd_expect(r, open));
  while (!hlo_rd_at(r, close)) {
    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    memset(value, 0, sizeof value);
    WEFT_TRY(item(r, value));
    WEFT_TRY(hlo_rd_push(r, value, size));
  }
  WEFT_TRY(hlo_rd_expect(r, close));
  return hlo_rd_take(r, mark, size, hlo_list_pointer(count_field), count_field);
}

/* ---- numbers, truth values, words -------------------------------------------------------------------------------- */

static weft_status *read_int64(hlo_reader *r, attr_value v) { return hlo_rd_int(r, v.field); }
static bool int64_is_usual(attr_value v) { return *(const int64_t *)v.field == v.attr->usual; }
static void print_int64(FILE *out, attr_value v) { fprintf(out, "%" PRId64, *(const int64_t *)v.field); }
const hlo_text_kind hlo_text_int64 = {read_int64, int64_is_usual, print_int64};

/* A count is at least 1. */
static weft_status *read_count(hlo_reader *r, attr_value v) { return hlo_rd_int_in(r, 1, INT32_MAX, v.field); }
const hlo_text_kind hlo_text_count = {read_count, int64_is_usual, print_int64};

static weft_status *read_int32(hlo_reader *r, attr_value v)
{
  int64_t value;

  WEFT_TRY(hlo_rd_int_in(r, INT32_MIN, INT32_MAX, &value));
  *(int *)v.field = (int)value;
  return NULL;
}
static void print_int32(FILE *out, attr_value v) { fprintf(out, "%d", *(const int *)v.field); }
static bool int32_is_usual(attr_value v) { return *(const int *)v.field == v.attr->usual; }
const hlo_text_kind hlo_text_int32 = {read_int32, int32_is_usual, print_int32};

static weft_status *read_bool(hlo_reader *r, attr_value v) { return hlo_rd_bool(r, v.field); }
static bool bool_is_usual(attr_value v) { return *(const bool *)v.field == (v.attr->usual != 0); }
static void print_bool(FILE *out, attr_value v) { fputs(*(const bool *)v.field ? "true" : "false", out); }
const hlo_text_kind hlo_text_bool = {read_bool, bool_is_usual, print_bool};

/* scan's is_associative: 0 unknown, 1 true, 2 false. */
static weft_status *read_tristate(hlo_reader *r, attr_value v)
{
  bool truth;

  WEFT_TRY(hlo_rd_bool(r, &truth));
  *(int *)v.field = truth ? 1 : 2;
  return NULL;
}
static void print_tristate(FILE *out, attr_value v) { fputs(*(const int *)v.field == 1 ? "true" : "false", out); }
const hlo_text_kind hlo_text_tristate = {read_tristate, int32_is_usual, print_tristate};

static weft_status *read_float(hlo_reader *r, attr_value v)
{
  double value;

  WEFT_TRY(hlo_rd_double(r, &value));
  *(float *)v.field = (float)value;
  return NULL;
}
static void print_float(FILE *out, attr_value v) { fprintf(out, "%.9g", (double)*(const float *)v.field); }
const hlo_text_kind hlo_text_float = {read_float, NULL, print_float};

static weft_status *read_enum(hlo_reader *r, attr_value v)
{
  const hlo_words *words = v.attr->words;
  hlo_span word = hlo_rd_peek_word(r);
  char choices[256] = "";

  for (int i = 0; i < words->count && word.length; i++) {
    if (!words->word[i] || !hlo_span_is(word, words->word[i])) continue;
    *(int *)v.field = i;
    return hlo_rd_word(r, "", &word);
  }
  for (int i = 0; i < words->count; i++) {
    size_t used = strlen(choices);
    if (words->word[i])
      snprintf(choices + used, sizeof choices - used, "%s%s", used ? ", " : "one of ", words->word[i]);
  }
  return hlo_rd_expected(r, choices);
}
static void print_enum(FILE *out, attr_value v)
{
  const hlo_words *words = v.attr->words;
  int value = *(const int *)v.field;

  fputs(value >= 0 && value < words->count && words->word[value] ? words->word[value] : "?", out);
}
const hlo_text_kind hlo_text_enum = {read_enum, int32_is_usual, print_enum};

/* The type of a compare.  A type that follows from the operands is not kept. */
static weft_status *read_compare_type(hlo_reader *r, attr_value v)
{
  hlo_compare_type *type = v.field;

  WEFT_TRY(read_enum(r, v));
  if (v.site->instr->operand_count && *type == hlo_default_compare_type(v.site->instr->operands[0]->shape->type))
    *type = HLO_COMPARE_DEFAULT;
  return NULL;
}
const hlo_text_kind hlo_text_compare_type = {read_compare_type, int32_is_usual, print_enum};

const hlo_text_kind hlo_text_none = {0};

static const char *const precision_words[] = {"default", "high", "highest", "packed_nibble"};

/* ---- text -------------------------------------------------------------------------------------------------------- */

static weft_status *read_string(hlo_reader *r, attr_value v) { return hlo_rd_string(r, v.field); }
static void print_string(FILE *out, attr_value v) { hlo_pr_string(out, *(const char *const *)v.field); }
const hlo_text_kind hlo_text_string = {read_string, hlo_pointer_is_null, print_string};

/* A word that other attributes imply: it is read and dropped. */
static weft_status *read_ignored(hlo_reader *r, attr_value v)
{
  hlo_span word;

  (void)v;
  return hlo_rd_word(r, "a word", &word);
}
const hlo_text_kind hlo_text_ignored = {read_ignored, NULL, NULL};

/* A word by itself: padding_type=PADDING_SAME. */
static weft_status *read_word(hlo_reader *r, attr_value v)
{
  hlo_span word;

  WEFT_TRY(hlo_rd_word(r, "a word", &word));
  return hlo_rd_keep(r, word, v.field);
}
static void print_text(FILE *out, attr_value v) { fputs(*(const char *const *)v.field, out); }
const hlo_text_kind hlo_text_word = {read_word, hlo_pointer_is_null, print_text};

/* Balanced braces kept as they are. */
static weft_status *read_braces(hlo_reader *r, attr_value v) { return hlo_rd_braces(r, v.field); }
const hlo_text_kind hlo_text_braces = {read_braces, hlo_pointer_is_null, print_text};

/* backend_config: a string, or a JSON object written bare. */
static weft_status *read_config(hlo_reader *r, attr_value v)
{
  v.site->extra.backend_config_is_json = hlo_rd_at(r, '{');
  return hlo_rd_at(r, '{') ? hlo_rd_braces(r, v.field) : hlo_rd_string(r, v.field);
}
static void print_config(FILE *out, attr_value v)
{
  (v.site->instr->extra->backend_config_is_json ? print_text : print_string)(out, v);
}
const hlo_text_kind hlo_text_config = {read_config, hlo_pointer_is_null, print_config};

/* frontend_attributes: {key="value",other={nested="text"}} */
static weft_status *read_key_value(hlo_reader *r, void *out)
{
  hlo_key_value *item = out;
  hlo_span word;

  if (hlo_rd_at(r, '"')) {
    WEFT_TRY(hlo_rd_string(r, &item->key));
  } else {
    WEFT_TRY(hlo_rd_word(r, "a key", &word));
    WEFT_TRY(hlo_rd_keep(r, word, &item->key));
  }
  WEFT_TRY(hlo_rd_expect(r, '='));
  return hlo_rd_at(r, '{') ? hlo_rd_braces(r, &item->value) : hlo_rd_string(r, &item->value);
}
static weft_status *read_map(hlo_reader *r, attr_value v)
{
  return hlo_rd_list(r, '{', '}', sizeof(hlo_key_value), read_key_value, v.field);
}
/* True if the reader would read all of `text` as one word, or as balanced braces. */
static bool reads_as(const char *text, bool word)
{
  hlo_reader r;
  weft_arena scratch;
  bool whole = false;
  const char *copy;
  weft_status *st;

  weft_arena_init(&scratch);
  st = hlo_rd_init(&r, &scratch, text, strlen(text));
  if (!st && word) {
    hlo_span span = hlo_rd_peek_word(&r);
    whole = *text != '%' && span.p == r.begin && span.p + span.length == r.end && span.length;
  } else if (!st && r.p == r.begin && hlo_rd_at(&r, '{')) {
    st = hlo_rd_braces(&r, &copy);
    whole = !st && r.p == r.end && r.end[-1] == '}';
  }
  weft_status_ignore(st);
  hlo_rd_fini(&r);
  weft_arena_fini(&scratch);
  return whole;
}
bool hlo_is_braced(const char *text) { return *text == '{' && reads_as(text, false); }
static void print_map(FILE *out, attr_value v)
{
  fputc('{', out);
  for (int i = 0; i < hlo_list_count(v.field); i++) {
    const hlo_key_value *item = &HLO_LIST_ITEMS(v.field, hlo_key_value)[i];
    if (i) fputc(',', out);
    if (reads_as(item->key, true)) fputs(item->key, out);
    else hlo_pr_string(out, item->key);
    fputc('=', out);
    if (hlo_is_braced(item->value)) fputs(item->value, out);
    else hlo_pr_string(out, item->value);
  }
  fputc('}', out);
}
const hlo_text_kind hlo_text_map = {read_map, hlo_list_is_empty, print_map};

/* metadata={op_type="" op_name="" source_file="" source_line=1 ...}: fields without a member are kept as text. */
typedef struct metadata_field { const char *name; size_t offset; bool is_string; } metadata_field;
static const metadata_field metadata_fields[] = {
  {"op_type", offsetof(hlo_metadata, op_type), true},
  {"op_name", offsetof(hlo_metadata, op_name), true},
  {"source_file", offsetof(hlo_metadata, source_file), true},
  {"source_line", offsetof(hlo_metadata, source_line), false},
  {"source_end_line", offsetof(hlo_metadata, source_end_line), false},
  {"source_column", offsetof(hlo_metadata, source_column), false},
  {"source_end_column", offsetof(hlo_metadata, source_end_column), false},
  {"stack_frame_id", offsetof(hlo_metadata, stack_frame_id), false},
};

/* Copies the value of a field that hlo_metadata lacks, of any type, to `out`. */
static weft_status *copy_metadata_value(hlo_reader *r, FILE *out)
{
  const char *text;
  int64_t number;
  hlo_span word = hlo_rd_peek_word(r);

  if (hlo_rd_at(r, '{')) {
    WEFT_TRY(hlo_rd_braces(r, &text));
    fputs(text, out);
  } else if (hlo_rd_at(r, '"')) {
    WEFT_TRY(hlo_rd_string(r, &text));
    hlo_pr_string(out, text);
  } else if (word.length) {
    WEFT_TRY(hlo_rd_word(r, "", &word));
    fprintf(out, "%.*s", (int)word.length, word.p);
  } else {
    WEFT_TRY(hlo_rd_int(r, &number));
    fprintf(out, "%" PRId64, number);
  }
  return NULL;
}

static weft_status *read_other_metadata(hlo_reader *r, hlo_metadata *m, hlo_span name)
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  weft_status *st;

  WEFT_TRY_ALLOC(out);
  fprintf(out, "%s%s%.*s=", m->rest ? m->rest : "", m->rest ? " " : "", (int)name.length, name.p);
  st = copy_metadata_value(r, out);
  m->rest = fclose(out) == 0 ? weft_arena_strndup(r->arena, text, size) : NULL;
  free(text);
  WEFT_TRY(st);
  WEFT_TRY_ALLOC(m->rest);
  return NULL;
}

static weft_status *read_metadata_value(hlo_reader *r, hlo_metadata *m, hlo_span name)
{
  int64_t number;

  for (size_t i = 0; i < WEFT_COUNT(metadata_fields); i++) {
    char *field = (char *)m + metadata_fields[i].offset;

    if (!hlo_span_is(name, metadata_fields[i].name)) continue;
    if (metadata_fields[i].is_string) return hlo_rd_string(r, (const char **)field);
    WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &number));
    *(int *)field = (int)number;
    return NULL;
  }
  return read_other_metadata(r, m, name);
}
static weft_status *read_metadata(hlo_reader *r, attr_value v)
{
  hlo_metadata *m = WEFT_ARENA_NEW(r->arena, hlo_metadata);

  WEFT_TRY_ALLOC(m);
  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}')) {
    hlo_span name;

    WEFT_TRY(hlo_rd_word(r, "a field of metadata", &name));
    WEFT_TRY(hlo_rd_expect(r, '='));
    WEFT_TRY(read_metadata_value(r, m, name));
    hlo_rd_accept(r, ',');
  }
  *(const hlo_metadata **)v.field = m;
  return hlo_rd_expect(r, '}');
}
static void print_metadata(FILE *out, attr_value v)
{
  const hlo_metadata *m = *(const hlo_metadata *const *)v.field;
  const char *separator = "{";

  for (size_t i = 0; i < WEFT_COUNT(metadata_fields); i++) {
    const char *at = (const char *)m + metadata_fields[i].offset;
    const char *text = metadata_fields[i].is_string ? *(const char *const *)at : NULL;

    if (metadata_fields[i].is_string ? !text : !*(const int *)at) continue;
    fprintf(out, "%s%s=", separator, metadata_fields[i].name);
    if (text) hlo_pr_string(out, text);
    else fprintf(out, "%d", *(const int *)at);
    separator = " ";
  }
  fprintf(out, "%s%s}", m->rest || *separator == '{' ? separator : "", m->rest ? m->rest : "");
}
const hlo_text_kind hlo_text_metadata = {read_metadata, hlo_pointer_is_null, print_metadata};

/* result_accuracy={mode=highest} or {tolerance={atol=,rtol=,ulps=}} */
static weft_status *read_accuracy(hlo_reader *r, attr_value v)
{
  hlo_accuracy *a = WEFT_ARENA_NEW(r->arena, hlo_accuracy);

  WEFT_TRY_ALLOC(a);
  *(const hlo_accuracy **)v.field = a;
  WEFT_TRY(hlo_rd_expect(r, '{'));
  if (hlo_rd_accept_text(r, "mode=")) {
    if (hlo_rd_accept_word(r, "highest") || hlo_rd_accept_word(r, "HIGHEST")) a->mode = 1;
    else if (!hlo_rd_accept_word(r, "default") && !hlo_rd_accept_word(r, "DEFAULT"))
      return hlo_rd_expected(r, "default or highest");
  } else {
    WEFT_TRY(hlo_rd_expect_text(r, "tolerance="));
    a->mode = 2;
    WEFT_TRY(hlo_rd_expect(r, '{'));
    while (!hlo_rd_at(r, '}')) {
      if (hlo_rd_accept_text(r, "atol=")) WEFT_TRY(hlo_rd_double(r, &a->atol));
      else if (hlo_rd_accept_text(r, "rtol=")) WEFT_TRY(hlo_rd_double(r, &a->rtol));
      else if (hlo_rd_accept_text(r, "ulps=")) WEFT_TRY(hlo_rd_int(r, &a->ulps));
      else return hlo_rd_expected(r, "atol=, rtol= or ulps=");
      hlo_rd_accept(r, ',');
    }
    WEFT_TRY(hlo_rd_expect(r, '}'));
  }
  return hlo_rd_expect(r, '}');
}
static void print_accuracy(FILE *out, attr_value v)
{
  const hlo_accuracy *a = *(const hlo_accuracy *const *)v.field;

  if (a->mode == 2) fprintf(out, "{tolerance={atol=%.17g,rtol=%.17g,ulps=%" PRId64 "}}", a->atol, a->rtol, a->ulps);
  else fprintf(out, "{mode=%s}", a->mode ? "highest" : "default");
}
const hlo_text_kind hlo_text_accuracy = {read_accuracy, hlo_pointer_is_null, print_accuracy};

/* ---- lists of integers ------------------------------------------------------------------------------------------- */

static weft_status *read_ints(hlo_reader *r, attr_value v) { return hlo_rd_ints(r, '{', '}', v.field); }
static void print_ints(FILE *out, attr_value v) { hlo_pr_ints(out, '{', *(const hlo_ints *)v.field, '}'); }
const hlo_text_kind hlo_text_ints = {read_ints, hlo_list_is_empty, print_ints};

/* One integer, kept as a list of one item: iota_dimension. */
static weft_status *read_dim(hlo_reader *r, attr_value v)
{
  int64_t value;
  size_t mark = r->stack_used;
  hlo_ints *ints = v.field;

  WEFT_TRY(hlo_rd_int(r, &value));
  WEFT_TRY(hlo_rd_push(r, &value, sizeof value));
  return hlo_rd_take(r, mark, sizeof value, &ints->v, &ints->count);
}
static void print_dim(FILE *out, attr_value v) { fprintf(out, "%" PRId64, ((const hlo_ints *)v.field)->v[0]); }
const hlo_text_kind hlo_text_dim = {read_dim, hlo_list_is_empty, print_dim};

/* {true,false}, or a single word without braces, as a list of 1 and 0. */
static weft_status *read_bools(hlo_reader *r, attr_value v)
{
  hlo_ints *ints = v.field;
  size_t mark = r->stack_used;
  bool braces = hlo_rd_accept(r, '{');

  while (!(braces && hlo_rd_at(r, '}'))) {
    bool truth;
    int64_t value;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(hlo_rd_bool(r, &truth));
    value = truth;
    WEFT_TRY(hlo_rd_push(r, &value, sizeof value));
    if (!braces) break;
  }
  if (braces) WEFT_TRY(hlo_rd_expect(r, '}'));
  return hlo_rd_take(r, mark, sizeof(int64_t), &ints->v, &ints->count);
}
static void print_bools(FILE *out, attr_value v)
{
  const hlo_ints *ints = v.field;

  fputc('{', out);
  for (int i = 0; i < ints->count; i++) fprintf(out, "%s%s", i ? "," : "", ints->v[i] ? "true" : "false");
  fputc('}', out);
}
const hlo_text_kind hlo_text_bools = {read_bools, hlo_list_is_empty, print_bools};

/* slice={[start:limit], [start:limit:stride]}: three lists of one length in a row. */
static weft_status *read_slice(hlo_reader *r, attr_value v)
{
  hlo_ints *lists = v.field;
  int64_t part[3][HLO_MAX_RANK];
  int rank = 0;

  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}')) {
    if (rank) WEFT_TRY(hlo_rd_expect(r, ','));
    if (rank == HLO_MAX_RANK) return hlo_rd_error(r, r->p, "more than %d dimensions", HLO_MAX_RANK);
    WEFT_TRY(hlo_rd_expect(r, '['));
    WEFT_TRY(hlo_rd_int(r, &part[0][rank]));
    WEFT_TRY(hlo_rd_expect(r, ':'));
    WEFT_TRY(hlo_rd_int(r, &part[1][rank]));
    part[2][rank] = 1;
    if (hlo_rd_accept(r, ':')) WEFT_TRY(hlo_rd_int(r, &part[2][rank]));
    WEFT_TRY(hlo_rd_expect(r, ']'));
    rank++;
  }
  for (int i = 0; i < 3; i++) {
    lists[i].count = rank;
    lists[i].v = weft_arena_memdup(r->arena, part[i], (size_t)rank * sizeof(int64_t));
    WEFT_TRY_ALLOC(lists[i].v);
  }
  return hlo_rd_expect(r, '}');
}
static void print_slice(FILE *out, attr_value v)
{
  const hlo_ints *lists = v.field;

  fputc('{', out);
  for (int i = 0; i < lists[0].count; i++) {
    fprintf(out, "%s[%" PRId64 ":%" PRId64, i ? ", " : "", lists[0].v[i], lists[1].v[i]);
    if (lists[2].v[i] != 1) fprintf(out, ":%" PRId64, lists[2].v[i]);
    fputc(']', out);
  }
  fputc('}', out);
}
const hlo_text_kind hlo_text_slice = {read_slice, NULL, print_slice};

/* Accepts `c` only directly behind what was read: after a space it could begin
 * the next line's `x = ...` or `_y = ...`. */
static bool goes_on(hlo_reader *r, char c) { return r->p[-1] != '\n' && r->p[-1] != ' ' && hlo_rd_accept(r, c); }

/* padding=low_high[_interior]x...; nothing at all for a scalar */
static weft_status *read_padding(hlo_reader *r, attr_value v)
{
  hlo_pad_dim dims[HLO_MAX_RANK];
  int rank = 0;
  void *copy;

  if (hlo_rd_at(r, '-') || (*r->p >= '0' && *r->p <= '9')) {
    do {
      if (rank == HLO_MAX_RANK) return hlo_rd_error(r, r->p, "more than %d dimensions", HLO_MAX_RANK);
      WEFT_TRY(hlo_rd_int(r, &dims[rank].low));
      WEFT_TRY(hlo_rd_expect(r, '_'));
      WEFT_TRY(hlo_rd_int(r, &dims[rank].high));
      dims[rank].interior = 0;
      if (goes_on(r, '_')) WEFT_TRY(hlo_rd_int(r, &dims[rank].interior));
      rank++;
    } while (goes_on(r, 'x'));
  }
  copy = weft_arena_memdup(r->arena, dims, (size_t)rank * sizeof *dims);
  WEFT_TRY_ALLOC(copy);
  *(int *)v.field = rank;
  memcpy(hlo_list_pointer(v.field), &copy, sizeof copy);
  return NULL;
}
static void print_padding(FILE *out, attr_value v)
{
  for (int i = 0; i < hlo_list_count(v.field); i++) {
    const hlo_pad_dim *dim = &HLO_LIST_ITEMS(v.field, hlo_pad_dim)[i];
    fprintf(out, "%s%" PRId64 "_%" PRId64, i ? "x" : "", dim->low, dim->high);
    if (dim->interior) fprintf(out, "_%" PRId64, dim->interior);
  }
}
const hlo_text_kind hlo_text_padding = {read_padding, NULL, print_padding};

static weft_status *read_precision_word(hlo_reader *r, void *out)
{
  hlo_span word = hlo_rd_peek_word(r);

  for (size_t i = 0; i < WEFT_COUNT(precision_words); i++) {
    if (word.length != strlen(precision_words[i]) || strncasecmp(word.p, precision_words[i], word.length) != 0)
      continue;
    *(hlo_precision *)out = (hlo_precision)i;
    hlo_rd_skip(r, word.length);
    return NULL;
  }
  return hlo_rd_expected(r, "default, high, highest or packed_nibble");
}
static weft_status *read_precision(hlo_reader *r, attr_value v)
{
  return hlo_rd_list(r, '{', '}', sizeof(hlo_precision), read_precision_word, v.field);
}
static void print_precision(FILE *out, attr_value v)
{
  fputc('{', out);
  for (int i = 0; i < hlo_list_count(v.field); i++)
    fprintf(out, "%s%s", i ? "," : "", precision_words[HLO_LIST_ITEMS(v.field, hlo_precision)[i]]);
  fputc('}', out);
}
const hlo_text_kind hlo_text_precision = {read_precision, hlo_list_is_empty, print_precision};

/* source_target_pairs={{0,1},{1,0}} */
static weft_status *read_pair(hlo_reader *r, void *out)
{
  int64_t *pair = out;

  WEFT_TRY(hlo_rd_expect(r, '{'));
  WEFT_TRY(hlo_rd_int(r, &pair[0]));
  WEFT_TRY(hlo_rd_expect(r, ','));
  WEFT_TRY(hlo_rd_int(r, &pair[1]));
  return hlo_rd_expect(r, '}');
}
static weft_status *read_pairs(hlo_reader *r, attr_value v)
{
  return hlo_rd_list(r, '{', '}', 2 * sizeof(int64_t), read_pair, v.field);
}
static void print_pairs(FILE *out, attr_value v)
{
  fputc('{', out);
  for (int i = 0; i < hlo_list_count(v.field); i++) {
    const int64_t *pair = HLO_LIST_ITEMS(v.field, int64_t) + 2 * i;
    fprintf(out, "%s{%" PRId64 ",%" PRId64 "}", i ? "," : "", pair[0], pair[1]);
  }
  fputc('}', out);
}
const hlo_text_kind hlo_text_pairs = {read_pairs, hlo_list_is_empty, print_pairs};

/* slice_sizes={{128,32},{64}} */
static weft_status *read_int_list(hlo_reader *r, void *out) { return hlo_rd_ints(r, '{', '}', out); }
static weft_status *read_int_lists(hlo_reader *r, attr_value v)
{
  return hlo_rd_list(r, '{', '}', sizeof(hlo_ints), read_int_list, v.field);
}
static void print_int_lists(FILE *out, attr_value v)
{
  fputc('{', out);
  for (int i = 0; i < hlo_list_count(v.field); i++) {
    if (i) fputc(',', out);
    hlo_pr_ints(out, '{', HLO_LIST_ITEMS(v.field, hlo_ints)[i], '}');
  }
  fputc('}', out);
}
const hlo_text_kind hlo_text_int_lists = {read_int_lists, hlo_list_is_empty, print_int_lists};
