/* hlo/text_attrs.c -- the attributes of instructions and modules: one table that both the reader and the printer use.
 *
 * An attribute has a name, a place (a field of the instruction, of its opcode's group, of hlo_extra, of the module) and a
 * kind: how the field is read, when it goes without saying, and how it is printed.  Each opcode has the list of its own
 * attributes, in the order in which they print; every instruction may have the common ones. */
#include <config.h>

#include "hlo/text_internal.h"

#include <inttypes.h>
#include <stdlib.h>

typedef enum attr_base { IN_INSTR, IN_GROUP, IN_CUSTOM_CONV, IN_EXTRA, IN_MODULE, CALLED } attr_base;
enum {
  REQUIRED = 1,
  ALWAYS = 2,   /* printed even when it has the usual value */
  OLD = 4,      /* read only: another spelling of what an entry further up prints */
};

typedef struct attr_site attr_site; /* what is being read or printed */

typedef struct attr_kind {
  weft_status *(*read)(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field);
  bool (*is_usual)(const attr_site *site, const hlo_attr *attr, const void *field); /* NULL: never */
  void (*print)(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field);
} attr_kind;

struct hlo_attr {
  const char *name;
  const attr_kind *kind;
  attr_base base;
  size_t offset;            /* in the base; CALLED: which of instr->called */
  int flags;
  int64_t usual;            /* of a number, truth value or enum */
  const char *const *words; /* MAX_WORDS of an enum, by number; NULL for numbers without a word */
};

typedef struct attr_list { const hlo_attr *attrs; int count; } attr_list;

/* What one opcode has. */
typedef struct op_attrs {
  attr_list own;
  size_t group_bytes;         /* of the group that a pointer in hlo_instr.u leads to; 0: none */
  const void *group_defaults; /* or NULL: zeros */
} op_attrs;
static const op_attrs op_table[HLO_OPCODE_COUNT];

struct attr_site {
  hlo_instr *instr;   /* or NULL: a module */
  hlo_module *module;
  hlo_extra extra;    /* becomes instr->extra when something was read into it */
  bool has_extra;
  hlo_computation *called_slots[2];
  int called_count;
  hlo_computation **called; /* called_slots, or a list in the arena */
};

/* In hlo.h a list is a count followed at the next aligned place by a pointer. */
static void *list_pointer(void *count) { return (void *)WEFT_ALIGN_UP((uintptr_t)count + sizeof(int), sizeof(void *)); }
static int list_count(const void *field) { return *(const int *)field; }
#define LIST_ITEMS(field, type) (*(const type *const *)list_pointer((void *)(field)))

static bool list_is_empty(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  return list_count(field) == 0;
}

static bool pointer_is_null(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  return *(void *const *)field == NULL;
}

/* `open item {, item} close`, each item read by `item` and pushed with `size` bytes. */
static weft_status *read_list(hlo_reader *r, char open, char close, size_t size,
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
  return hlo_rd_take(r, mark, size, list_pointer(count_field), count_field);
}

/* ---- numbers, truth values, words -------------------------------------------------------------------------------- */

static weft_status *read_int64(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_int(r, field);
}
static bool int64_is_usual(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site;
  return *(const int64_t *)field == attr->usual;
}
static void print_int64(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fprintf(out, "%" PRId64, *(const int64_t *)field);
}
static const attr_kind kind_int64 = {read_int64, int64_is_usual, print_int64};

/* At least 1: counts. */
static weft_status *read_count(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_int_in(r, 1, INT32_MAX, field);
}
static const attr_kind kind_count = {read_count, int64_is_usual, print_int64};

static weft_status *read_int32(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  int64_t value;

  (void)site, (void)attr;
  WEFT_TRY(hlo_rd_int_in(r, INT32_MIN, INT32_MAX, &value));
  *(int *)field = (int)value;
  return NULL;
}
static void print_int32(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fprintf(out, "%d", *(const int *)field);
}
static bool int32_is_usual(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site;
  return *(const int *)field == attr->usual;
}
static const attr_kind kind_int32 = {read_int32, int32_is_usual, print_int32};

static weft_status *read_bool(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_bool(r, field);
}
static bool bool_is_usual(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site;
  return *(const bool *)field == (attr->usual != 0);
}
static void print_bool(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fputs(*(const bool *)field ? "true" : "false", out);
}
static const attr_kind kind_bool = {read_bool, bool_is_usual, print_bool};

/* scan's is_associative: 0 unknown, 1 true, 2 false. */
static weft_status *read_tristate(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  bool truth;

  (void)site, (void)attr;
  WEFT_TRY(hlo_rd_bool(r, &truth));
  *(int *)field = truth ? 1 : 2;
  return NULL;
}
static void print_tristate(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fputs(*(const int *)field == 1 ? "true" : "false", out);
}
static const attr_kind kind_tristate = {read_tristate, int32_is_usual, print_tristate};

static weft_status *read_float(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  double value;

  (void)site, (void)attr;
  WEFT_TRY(hlo_rd_double(r, &value));
  *(float *)field = (float)value;
  return NULL;
}
static void print_float(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fprintf(out, "%.9g", (double)*(const float *)field);
}
static const attr_kind kind_float = {read_float, NULL, print_float};

enum { MAX_WORDS = 24 };

static weft_status *read_enum(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  hlo_span word = hlo_rd_peek_word(r);
  char choices[256] = "";

  (void)site;
  for (int i = 0; i < MAX_WORDS && word.length; i++) {
    if (!attr->words[i] || !hlo_span_is(word, attr->words[i])) continue;
    *(int *)field = i;
    return hlo_rd_word(r, "", &word);
  }
  for (int i = 0; i < MAX_WORDS; i++) {
    size_t used = strlen(choices);
    if (attr->words[i]) snprintf(choices + used, sizeof choices - used, "%s%s", used ? ", " : "one of ", attr->words[i]);
  }
  return hlo_rd_expected(r, choices);
}
static void print_enum(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  int value = *(const int *)field;

  (void)site;
  fputs(value >= 0 && value < MAX_WORDS && attr->words[value] ? attr->words[value] : "?", out);
}
static const attr_kind kind_enum = {read_enum, int32_is_usual, print_enum};

/* Words, by number. */
#define WORDS(name) static const char *const name[MAX_WORDS]
WORDS(direction_words) = {"EQ", "NE", "GE", "GT", "LE", "LT"};
WORDS(compare_words) = {NULL, "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
WORDS(fft_words) = {"FFT", "IFFT", "RFFT", "IRFFT"};
WORDS(transpose_words) = {NULL, "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
WORDS(distribution_words) = {NULL, "rng_uniform", "rng_normal"};
WORDS(rng_words) = {"rng_default", "rng_three_fry", "rng_philox"};
WORDS(fusion_words) = {"kLoop", "kInput", "kOutput", "kCustom"};
WORDS(convolution_words) = {NULL, "fprop", "dgrad", "wgrad"};
WORDS(schedule_words) = {"SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"};
WORDS(api_words) = {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
                    "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
WORDS(algorithm_words) = {
  "dot_unset", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16", "dot_f16_f16_f32",
  "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32",
  "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64", "dot_bf16_bf16_f32_x9",
};
static const char *const precision_words[] = {"default", "high", "highest", "packed_nibble"};

/* ---- text -------------------------------------------------------------------------------------------------------- */

static weft_status *read_string(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_string(r, field);
}
static void print_string(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  hlo_pr_string(out, *(const char *const *)field);
}
static const attr_kind kind_string = {read_string, pointer_is_null, print_string};

/* A word by itself: padding_type=PADDING_SAME. */
static weft_status *read_word(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  hlo_span word;

  (void)site, (void)attr;
  WEFT_TRY(hlo_rd_word(r, "a word", &word));
  return hlo_rd_keep(r, word, field);
}
static void print_text(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fputs(*(const char *const *)field, out);
}
static const attr_kind kind_word = {read_word, pointer_is_null, print_text};

/* Balanced braces kept as they are. */
static weft_status *read_braces(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_braces(r, field);
}
static const attr_kind kind_braces = {read_braces, pointer_is_null, print_text};

/* backend_config: a string, or a JSON object written bare. */
static weft_status *read_config(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)attr;
  site->extra.backend_config_is_json = hlo_rd_at(r, '{');
  return hlo_rd_at(r, '{') ? hlo_rd_braces(r, field) : hlo_rd_string(r, field);
}
static void print_config(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (site->instr->extra->backend_config_is_json ? print_text : print_string)(out, site, attr, field);
}
static const attr_kind kind_config = {read_config, pointer_is_null, print_config};

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
static weft_status *read_map(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return read_list(r, '{', '}', sizeof(hlo_key_value), read_key_value, field);
}
/* Reads `text` whole: as a word, or as balanced braces. */
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
static void print_map(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fputc('{', out);
  for (int i = 0; i < list_count(field); i++) {
    const hlo_key_value *item = &LIST_ITEMS(field, hlo_key_value)[i];
    if (i) fputc(',', out);
    if (reads_as(item->key, true))
      fputs(item->key, out);
    else
      hlo_pr_string(out, item->key);
    fputc('=', out);
    if (hlo_is_braced(item->value))
      fputs(item->value, out);
    else
      hlo_pr_string(out, item->value);
  }
  fputc('}', out);
}
static const attr_kind kind_map = {read_map, list_is_empty, print_map};

/* metadata={op_type="" op_name="" source_file="" source_line=1 ...}: what has no field is kept as text. */
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

/* The value of a field that hlo_metadata has no place for, of whatever kind, printed to `out`. */
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
static weft_status *read_metadata(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  hlo_metadata *m = WEFT_ARENA_NEW(r->arena, hlo_metadata);

  (void)site, (void)attr;
  WEFT_TRY_ALLOC(m);
  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}')) {
    hlo_span name;

    WEFT_TRY(hlo_rd_word(r, "a field of metadata", &name));
    WEFT_TRY(hlo_rd_expect(r, '='));
    WEFT_TRY(read_metadata_value(r, m, name));
    hlo_rd_accept(r, ',');
  }
  *(const hlo_metadata **)field = m;
  return hlo_rd_expect(r, '}');
}
static void print_metadata(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_metadata *m = *(const hlo_metadata *const *)field;
  const char *separator = "{";

  (void)site, (void)attr;
  for (size_t i = 0; i < WEFT_COUNT(metadata_fields); i++) {
    const char *at = (const char *)m + metadata_fields[i].offset;
    const char *text = metadata_fields[i].is_string ? *(const char *const *)at : NULL;

    if (metadata_fields[i].is_string ? !text : !*(const int *)at) continue;
    fprintf(out, "%s%s=", separator, metadata_fields[i].name);
    if (text)
      hlo_pr_string(out, text);
    else
      fprintf(out, "%d", *(const int *)at);
    separator = " ";
  }
  fprintf(out, "%s%s}", m->rest || *separator == '{' ? separator : "", m->rest ? m->rest : "");
}
static const attr_kind kind_metadata = {read_metadata, pointer_is_null, print_metadata};

/* result_accuracy={mode=highest} or {tolerance={atol=,rtol=,ulps=}} */
static weft_status *read_accuracy(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  hlo_accuracy *a = WEFT_ARENA_NEW(r->arena, hlo_accuracy);

  (void)site, (void)attr;
  WEFT_TRY_ALLOC(a);
  *(const hlo_accuracy **)field = a;
  WEFT_TRY(hlo_rd_expect(r, '{'));
  if (hlo_rd_accept_text(r, "mode=")) {
    if (hlo_rd_accept_word(r, "highest")) a->mode = 1;
    else if (!hlo_rd_accept_word(r, "default")) return hlo_rd_expected(r, "default or highest");
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
static void print_accuracy(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_accuracy *a = *(const hlo_accuracy *const *)field;

  (void)site, (void)attr;
  if (a->mode == 2)
    fprintf(out, "{tolerance={atol=%.17g,rtol=%.17g,ulps=%" PRId64 "}}", a->atol, a->rtol, a->ulps);
  else
    fprintf(out, "{mode=%s}", a->mode ? "highest" : "default");
}
static const attr_kind kind_accuracy = {read_accuracy, pointer_is_null, print_accuracy};

/* ---- lists of integers ------------------------------------------------------------------------------------------- */

static weft_status *read_ints(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_ints(r, '{', '}', field);
}
static void print_ints(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  hlo_pr_ints(out, '{', *(const hlo_ints *)field, '}');
}
static const attr_kind kind_ints = {read_ints, list_is_empty, print_ints};

/* One integer, kept as a list of one: iota_dimension. */
static weft_status *read_dim(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  int64_t value;
  size_t mark = r->stack_used;
  hlo_ints *ints = field;

  (void)site, (void)attr;
  WEFT_TRY(hlo_rd_int(r, &value));
  WEFT_TRY(hlo_rd_push(r, &value, sizeof value));
  return hlo_rd_take(r, mark, sizeof value, &ints->v, &ints->count);
}
static void print_dim(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fprintf(out, "%" PRId64, ((const hlo_ints *)field)->v[0]);
}
static const attr_kind kind_dim = {read_dim, list_is_empty, print_dim};

/* {true,false}, or one of them bare, as a list of 1 and 0. */
static weft_status *read_bools(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  hlo_ints *ints = field;
  size_t mark = r->stack_used;
  bool braces = hlo_rd_accept(r, '{');

  (void)site, (void)attr;
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
static void print_bools(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_ints *ints = field;

  (void)site, (void)attr;
  fputc('{', out);
  for (int i = 0; i < ints->count; i++) fprintf(out, "%s%s", i ? "," : "", ints->v[i] ? "true" : "false");
  fputc('}', out);
}
static const attr_kind kind_bools = {read_bools, list_is_empty, print_bools};

/* slice={[start:limit], [start:limit:stride]}: three lists of one length in a row. */
static weft_status *read_slice(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  hlo_ints *lists = field;
  int64_t part[3][HLO_MAX_RANK];
  int rank = 0;

  (void)site, (void)attr;
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
static void print_slice(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_ints *lists = field;

  (void)site, (void)attr;
  fputc('{', out);
  for (int i = 0; i < lists[0].count; i++) {
    fprintf(out, "%s[%" PRId64 ":%" PRId64, i ? ", " : "", lists[0].v[i], lists[1].v[i]);
    if (lists[2].v[i] != 1) fprintf(out, ":%" PRId64, lists[2].v[i]);
    fputc(']', out);
  }
  fputc('}', out);
}
static const attr_kind kind_slice = {read_slice, NULL, print_slice};

/* padding=low_high[_interior]x...; nothing at all for a scalar */
static weft_status *read_padding(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  hlo_pad_dim dims[HLO_MAX_RANK];
  int rank = 0;
  void *copy;

  (void)site, (void)attr;
  if (hlo_rd_at(r, '-') || (*r->p >= '0' && *r->p <= '9')) {
    do {
      if (rank == HLO_MAX_RANK) return hlo_rd_error(r, r->p, "more than %d dimensions", HLO_MAX_RANK);
      WEFT_TRY(hlo_rd_int(r, &dims[rank].low));
      WEFT_TRY(hlo_rd_expect(r, '_'));
      WEFT_TRY(hlo_rd_int(r, &dims[rank].high));
      dims[rank].interior = 0;
      if (hlo_rd_accept(r, '_')) WEFT_TRY(hlo_rd_int(r, &dims[rank].interior));
      rank++;
    } while (hlo_rd_accept(r, 'x'));
  }
  copy = weft_arena_memdup(r->arena, dims, (size_t)rank * sizeof *dims);
  WEFT_TRY_ALLOC(copy);
  *(int *)field = rank;
  memcpy(list_pointer(field), &copy, sizeof copy);
  return NULL;
}
static void print_padding(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  for (int i = 0; i < list_count(field); i++) {
    const hlo_pad_dim *dim = &LIST_ITEMS(field, hlo_pad_dim)[i];
    fprintf(out, "%s%" PRId64 "_%" PRId64, i ? "x" : "", dim->low, dim->high);
    if (dim->interior) fprintf(out, "_%" PRId64, dim->interior);
  }
}
static const attr_kind kind_padding = {read_padding, NULL, print_padding};

static weft_status *read_precision_word(hlo_reader *r, void *out)
{
  for (size_t i = 0; i < WEFT_COUNT(precision_words); i++) {
    if (!hlo_rd_accept_word(r, precision_words[i])) continue;
    *(hlo_precision *)out = (hlo_precision)i;
    return NULL;
  }
  return hlo_rd_expected(r, "default, high, highest or packed_nibble");
}
static weft_status *read_precision(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return read_list(r, '{', '}', sizeof(hlo_precision), read_precision_word, field);
}
static void print_precision(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fputc('{', out);
  for (int i = 0; i < list_count(field); i++)
    fprintf(out, "%s%s", i ? "," : "", precision_words[LIST_ITEMS(field, hlo_precision)[i]]);
  fputc('}', out);
}
static const attr_kind kind_precision = {read_precision, list_is_empty, print_precision};

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
static weft_status *read_pairs(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return read_list(r, '{', '}', 2 * sizeof(int64_t), read_pair, field);
}
static void print_pairs(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fputc('{', out);
  for (int i = 0; i < list_count(field); i++) {
    const int64_t *pair = LIST_ITEMS(field, int64_t) + 2 * i;
    fprintf(out, "%s{%" PRId64 ",%" PRId64 "}", i ? "," : "", pair[0], pair[1]);
  }
  fputc('}', out);
}
static const attr_kind kind_pairs = {read_pairs, list_is_empty, print_pairs};

/* ---- windows and convolutions ------------------------------------------------------------------------------------ */

typedef struct window_part { const char *name; size_t low, high; int64_t usual; } window_part; /* high: 0 if single */
#define WINDOW_PART(name, field, usual) {name, offsetof(hlo_window_dim, field), 0, usual}
static const window_part window_parts[] = {
  WINDOW_PART("size", size, -1),
  WINDOW_PART("stride", stride, 1),
  {"pad", offsetof(hlo_window_dim, pad_low), offsetof(hlo_window_dim, pad_high), 0},
  WINDOW_PART("lhs_dilate", base_dilation, 1),
  WINDOW_PART("rhs_dilate", window_dilation, 1),
  {"rhs_reversal", offsetof(hlo_window_dim, reversal), 0, 0},
};
static bool is_reversal(const window_part *part) { return part->low == offsetof(hlo_window_dim, reversal); }

/* AxBx..., or lAxhA x...: one number, or two joined by `_`, for each dimension. */
static weft_status *read_window_part(hlo_reader *r, const window_part *part, hlo_window_dim *dims, int *rank)
{
  const char *at = r->p;
  int count = 0;

  do {
    char *dim = (char *)&dims[count];
    int64_t value;

    if (count == HLO_MAX_RANK) return hlo_rd_error(r, at, "more than %d dimensions", HLO_MAX_RANK);
    WEFT_TRY(hlo_rd_int(r, &value));
    if (is_reversal(part)) {
      dims[count].reversal = value != 0;
    } else {
      memcpy(dim + part->low, &value, sizeof value);
    }
    if (part->high) {
      WEFT_TRY(hlo_rd_expect(r, '_'));
      WEFT_TRY(hlo_rd_int(r, &value));
      memcpy(dim + part->high, &value, sizeof value);
    }
    count++;
  } while (hlo_rd_accept(r, 'x'));
  if (*rank != 0 && *rank != count) return hlo_rd_error(r, at, "window: %d dimensions here, %d before", count, *rank);
  *rank = count;
  return NULL;
}
static weft_status *read_window_dims(hlo_reader *r, hlo_window *window)
{
  hlo_window_dim dims[HLO_MAX_RANK];

  window->rank = 0;
  for (int i = 0; i < HLO_MAX_RANK; i++)
    dims[i] = (hlo_window_dim){.size = 1, .stride = 1, .window_dilation = 1, .base_dilation = 1};
  WEFT_TRY(hlo_rd_expect(r, '{'));
  while (!hlo_rd_at(r, '}')) {
    hlo_span word;
    size_t i = 0;

    WEFT_TRY(hlo_rd_word(r, "a property of the window", &word));
    while (i < WEFT_COUNT(window_parts) && !hlo_span_is(word, window_parts[i].name)) i++;
    if (i == WEFT_COUNT(window_parts))
      return hlo_rd_error(r, word.p, "expected size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal");
    WEFT_TRY(hlo_rd_expect(r, '='));
    WEFT_TRY(read_window_part(r, &window_parts[i], dims, &window->rank));
    hlo_rd_accept(r, ',');
  }
  window->dims = weft_arena_memdup(r->arena, dims, (size_t)window->rank * sizeof *dims);
  WEFT_TRY_ALLOC(window->dims);
  return hlo_rd_expect(r, '}');
}
static weft_status *read_window(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return read_window_dims(r, field);
}
static int64_t window_value(const hlo_window_dim *dim, const window_part *part, bool high)
{
  int64_t value;

  if (is_reversal(part)) return dim->reversal;
  memcpy(&value, (const char *)dim + (high ? part->high : part->low), sizeof value);
  return value;
}
static bool window_part_is_usual(const hlo_window *window, const window_part *part)
{
  for (int i = 0; i < window->rank; i++)
    if (window_value(&window->dims[i], part, false) != part->usual ||
        (part->high && window_value(&window->dims[i], part, true) != part->usual))
      return false;
  return true;
}
static void print_window(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_window *window = field;
  const char *separator = "{";

  (void)site, (void)attr;
  for (size_t p = 0; p < WEFT_COUNT(window_parts); p++) {
    const window_part *part = &window_parts[p];

    if (window_part_is_usual(window, part)) continue;
    fprintf(out, "%s%s=", separator, part->name);
    for (int i = 0; i < window->rank; i++) {
      fprintf(out, "%s%" PRId64, i ? "x" : "", window_value(&window->dims[i], part, false));
      if (part->high) fprintf(out, "_%" PRId64, window_value(&window->dims[i], part, true));
    }
    separator = " ";
  }
  fputs(*separator == '{' ? "{}" : "}", out);
}
static const attr_kind kind_window = {read_window, list_is_empty, print_window};

/* dim_labels=b01f_01io->b01f: each group gives the roles of the dimensions of input, kernel and output in order;
 * digits are spatial dimensions, `?` has no role. */
typedef struct label_group { char batch, feature; int64_t *batch_dim, *feature_dim; hlo_ints *spatial; } label_group;
enum { MAX_SPATIAL = 10 };

static weft_status *read_label_group(hlo_reader *r, const label_group *group)
{
  const char *at = r->p;
  int64_t spatial[MAX_SPATIAL];
  int64_t dim = 0;
  int seen = 0, count = 0;
  bool batch = false, feature = false;

  for (; *r->p && !strchr("_-, \t\r\n", *r->p); r->p++, dim++) {
    if (dim == HLO_MAX_RANK) return hlo_rd_error(r, at, "more than %d dimensions", HLO_MAX_RANK);
    if (*r->p == group->batch && !batch) {
      *group->batch_dim = dim;
      batch = true;
    } else if (*r->p == group->feature && !feature) {
      *group->feature_dim = dim;
      feature = true;
    } else if (*r->p >= '0' && *r->p <= '9' && !(seen >> (*r->p - '0') & 1)) {
      spatial[*r->p - '0'] = dim;
      seen |= 1 << (*r->p - '0');
      count++;
    } else if (*r->p != '?') {
      return hlo_rd_error(r, r->p, "dim_labels: expected each of %c, %c and the spatial dimensions 0, 1, ... once",
                          group->batch, group->feature);
    }
  }
  if (!batch || !feature || seen != (1 << count) - 1)
    return hlo_rd_error(r, at, "dim_labels: expected %c, %c and the spatial dimensions 0, 1, ...", group->batch,
                        group->feature);
  group->spatial->count = count;
  group->spatial->v = weft_arena_memdup(r->arena, spatial, (size_t)count * sizeof *spatial);
  WEFT_TRY_ALLOC(group->spatial->v);
  return NULL;
}
static void label_groups(hlo_conv_attrs *conv, label_group groups[3])
{
  groups[0] = (label_group){'b', 'f', &conv->lhs_batch, &conv->lhs_feature, &conv->lhs_spatial};
  groups[1] = (label_group){'i', 'o', &conv->rhs_in_feature, &conv->rhs_out_feature, &conv->rhs_spatial};
  groups[2] = (label_group){'b', 'f', &conv->out_batch, &conv->out_feature, &conv->out_spatial};
}
static weft_status *read_dim_labels(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  const char *at = r->p;
  hlo_conv_attrs *conv = field;
  label_group groups[3];

  (void)site, (void)attr;
  label_groups(conv, groups);
  for (int i = 0; i < 3; i++) {
    if (i == 1) WEFT_TRY(hlo_rd_expect(r, '_'));
    if (i == 2) WEFT_TRY(hlo_rd_expect_text(r, "->"));
    WEFT_TRY(read_label_group(r, &groups[i]));
  }
  if (conv->lhs_spatial.count != conv->rhs_spatial.count || conv->lhs_spatial.count != conv->out_spatial.count)
    return hlo_rd_error(r, at, "dim_labels: input, kernel and output have %d, %d and %d spatial dimensions",
                        conv->lhs_spatial.count, conv->rhs_spatial.count, conv->out_spatial.count);
  hlo_rd_space(r);
  return NULL;
}
/* In a custom-call that has other parts of a convolution only, nothing is labelled. */
static bool labels_are_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_conv_attrs *conv = field;

  (void)site, (void)attr;
  return conv->lhs_batch == conv->lhs_feature;
}
static void print_dim_labels(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  static const char *const before[3] = {"", "_", "->"};
  label_group groups[3];

  (void)site, (void)attr;
  label_groups((hlo_conv_attrs *)field, groups);
  for (int g = 0; g < 3; g++) {
    char labels[HLO_MAX_RANK + 1] = "";
    int64_t last = WEFT_MAX(*groups[g].batch_dim, *groups[g].feature_dim);

    for (int i = 0; i < groups[g].spatial->count; i++) last = WEFT_MAX(last, groups[g].spatial->v[i]);
    memset(labels, '?', (size_t)last + 1);
    labels[*groups[g].batch_dim] = groups[g].batch;
    labels[*groups[g].feature_dim] = groups[g].feature;
    for (int i = 0; i < groups[g].spatial->count; i++) labels[groups[g].spatial->v[i]] = (char)('0' + i);
    fprintf(out, "%s%s", before[g], labels);
  }
}
static const attr_kind kind_dim_labels = {read_dim_labels, labels_are_absent, print_dim_labels};

/* ---- what names other things ------------------------------------------------------------------------------------- */

static weft_status *read_computation(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)field;
  site->called = site->called_slots;
  site->called_count = WEFT_MAX(site->called_count, (int)attr->offset + 1);
  return hlo_rd_computation_ref(r, &site->called_slots[attr->offset]);
}
static void print_computation(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)field;
  fputs(site->instr->called[attr->offset]->name, out);
}
static bool computation_is_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)field;
  return (int)attr->offset >= site->instr->called_count;
}
static const attr_kind kind_computation = {read_computation, computation_is_absent, print_computation};

static weft_status *read_computation_item(hlo_reader *r, void *out) { return hlo_rd_computation_ref(r, out); }
static weft_status *read_computations(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  struct { int count; hlo_computation **v; } list = {0};

  (void)attr, (void)field;
  WEFT_TRY(read_list(r, '{', '}', sizeof(hlo_computation *), read_computation_item, &list));
  site->called = list.v;
  site->called_count = list.count;
  return NULL;
}
static bool computations_are_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  return site->instr->called_count == 0;
}
static void print_computations(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  fputc('{', out);
  for (int i = 0; i < site->instr->called_count; i++) fprintf(out, "%s%s", i ? ", " : "", site->instr->called[i]->name);
  fputc('}', out);
}
static const attr_kind kind_computations = {read_computations, computations_are_absent, print_computations};

/* Branches of a conditional: by name on a pred, by number on an s32. */
static bool on_pred(const attr_site *site)
{
  return site->instr->operand_count && site->instr->operands[0]->shape->type == WEFT_PRED && site->instr->called_count == 2;
}
static bool branch_is_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  return !on_pred(site);
}
static bool branches_are_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  return on_pred(site);
}
static const attr_kind kind_branch = {read_computation, branch_is_absent, print_computation};
static const attr_kind kind_branches = {read_computations, branches_are_absent, print_computations};

static weft_status *read_control_preds(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  bool first = true;

  (void)attr, (void)field;
  WEFT_TRY(hlo_rd_expect(r, '{'));
  for (; !hlo_rd_at(r, '}'); first = false) {
    hlo_instr *pred;

    if (!first) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(hlo_rd_instr_ref(r, &pred));
    WEFT_TRY(hlo_add_control_edge(pred, site->instr));
  }
  return hlo_rd_expect(r, '}');
}
static void print_control_preds(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  fputc('{', out);
  for (int i = 0; i < site->instr->control_pred_count; i++)
    fprintf(out, "%s%s", i ? ", " : "", site->instr->control_preds[i]->name);
  fputc('}', out);
}
static const attr_kind kind_control_preds = {read_control_preds, list_is_empty, print_control_preds};

/* ---- shapes, literals, shardings, groups, aliases ----------------------------------------------------------------- */

static weft_status *read_shape(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_shape(r, field);
}
static void print_shape(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  hlo_pr_shape(out, *(const hlo_shape *const *)field);
}
static const attr_kind kind_shape = {read_shape, pointer_is_null, print_shape};

static weft_status *read_shape_item(hlo_reader *r, void *out) { return hlo_rd_shape(r, out); }
static weft_status *read_shapes(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return read_list(r, '{', '}', sizeof(hlo_shape *), read_shape_item, field);
}
static void print_shapes(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fputc('{', out);
  for (int i = 0; i < list_count(field); i++) {
    if (i) fputs(", ", out);
    hlo_pr_shape(out, LIST_ITEMS(field, hlo_shape *)[i]);
  }
  fputc('}', out);
}
static const attr_kind kind_shapes = {read_shapes, list_is_empty, print_shapes};

static weft_status *read_literal(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  const hlo_shape *shape;

  (void)site, (void)attr;
  WEFT_TRY(hlo_rd_shape(r, &shape));
  return hlo_rd_literal(r, shape, field);
}
static void print_literal(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_literal *literal = *(const hlo_literal *const *)field;

  (void)site, (void)attr;
  hlo_pr_shape(out, literal->shape);
  if (hlo_shape_is_array(literal->shape) && !literal->shape->layout && literal->shape->rank > 0) {
    fputc('{', out); /* else the elements would be taken for the layout */
    for (int i = literal->shape->rank - 1; i >= 0; i--) fprintf(out, "%d%s", i, i ? "," : "}");
  }
  fputc(' ', out);
  hlo_pr_literal(out, literal, 0);
}
static const attr_kind kind_literal = {read_literal, pointer_is_null, print_literal};

static weft_status *read_sharding(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_sharding(r, field);
}
static void print_sharding(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  hlo_pr_sharding(out, *(const hlo_sharding *const *)field);
}
static const attr_kind kind_sharding = {read_sharding, pointer_is_null, print_sharding};

/* domain={kind="sharding", entry={...}, exit={...}} */
static weft_status *read_domain(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  const hlo_sharding **ends = field; /* entry, exit */
  const char *at, *kind;

  (void)site, (void)attr;
  WEFT_TRY(hlo_rd_expect(r, '{'));
  WEFT_TRY(hlo_rd_expect_text(r, "kind="));
  at = r->p;
  WEFT_TRY(hlo_rd_string(r, &kind));
  if (strcmp(kind, "sharding") != 0) return hlo_rd_error(r, at, "the only kind of domain is \"sharding\"");
  WEFT_TRY(hlo_rd_expect(r, ','));
  WEFT_TRY(hlo_rd_expect_text(r, "entry="));
  WEFT_TRY(hlo_rd_sharding(r, &ends[0]));
  WEFT_TRY(hlo_rd_expect(r, ','));
  WEFT_TRY(hlo_rd_expect_text(r, "exit="));
  WEFT_TRY(hlo_rd_sharding(r, &ends[1]));
  return hlo_rd_expect(r, '}');
}
static void print_domain(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_sharding *const *ends = field;

  (void)site, (void)attr;
  fputs("{kind=\"sharding\", entry=", out);
  hlo_pr_sharding(out, ends[0]);
  fputs(", exit=", out);
  hlo_pr_sharding(out, ends[1]);
  fputc('}', out);
}
static const attr_kind kind_domain = {read_domain, pointer_is_null, print_domain};

static weft_status *read_groups(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return hlo_rd_replica_groups(r, field);
}
static bool groups_are_usual(const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_replica_groups *groups = field;

  (void)site, (void)attr;
  return groups->form == HLO_GROUPS_LIST && groups->group_count == 0;
}
static void print_groups(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  hlo_pr_replica_groups(out, field);
}
static const attr_kind kind_groups = {read_groups, groups_are_usual, print_groups};

/* output_to_operand_aliasing={ {0}: (1, {}), ... } */
static weft_status *read_output_alias(hlo_reader *r, void *out)
{
  hlo_output_alias *alias = out;

  WEFT_TRY(hlo_rd_ints(r, '{', '}', &alias->output_index));
  WEFT_TRY(hlo_rd_expect(r, ':'));
  WEFT_TRY(hlo_rd_expect(r, '('));
  WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &alias->operand));
  if (hlo_rd_accept(r, ',')) WEFT_TRY(hlo_rd_ints(r, '{', '}', &alias->operand_index));
  return hlo_rd_expect(r, ')');
}
static weft_status *read_output_aliases(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)site, (void)attr;
  return read_list(r, '{', '}', sizeof(hlo_output_alias), read_output_alias, field);
}
static void print_output_aliases(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)site, (void)attr;
  fputc('{', out);
  for (int i = 0; i < list_count(field); i++) {
    const hlo_output_alias *alias = &LIST_ITEMS(field, hlo_output_alias)[i];
    if (i) fputs(", ", out);
    hlo_pr_ints(out, '{', alias->output_index, '}');
    fprintf(out, ": (%" PRId64 ", ", alias->operand);
    hlo_pr_ints(out, '{', alias->operand_index, '}');
    fputc(')', out);
  }
  fputc('}', out);
}
static const attr_kind kind_output_aliases = {read_output_aliases, list_is_empty, print_output_aliases};

/* cross_program_prefetch_index of copy-start; older: is_cross_program_prefetch=true */
static weft_status *read_prefetch_index(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  (void)attr, (void)field;
  site->instr->u.copy_start.is_prefetch = true;
  return hlo_rd_int_in(r, 0, INT32_MAX, &site->instr->u.copy_start.prefetch_index);
}
static bool prefetch_is_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  return !site->instr->u.copy_start.is_prefetch;
}
static void print_prefetch_index(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  fprintf(out, "%" PRId64, site->instr->u.copy_start.prefetch_index);
}
static const attr_kind kind_prefetch = {read_prefetch_index, prefetch_is_absent, print_prefetch_index};

/* ---- of the module ------------------------------------------------------------------------------------------------ */

/* entry_computation_layout={(shape, ...)->shape} */
static weft_status *read_entry_layout(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  hlo_module *module = site->module;
  struct { int count; const hlo_shape **v; } params = {0};

  (void)attr, (void)field;
  WEFT_TRY(hlo_rd_expect(r, '{'));
  WEFT_TRY(read_list(r, '(', ')', sizeof(hlo_shape *), read_shape_item, &params));
  WEFT_TRY(hlo_rd_expect_text(r, "->"));
  WEFT_TRY(hlo_rd_shape(r, &module->entry_result_shape));
  module->has_entry_layout = true;
  module->entry_param_shapes = params.v;
  r->entry_layout_params = params.count;
  return hlo_rd_expect(r, '}');
}
static bool entry_layout_is_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  return !site->module->has_entry_layout;
}
static void print_entry_layout(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  const hlo_module *module = site->module;

  (void)attr, (void)field;
  fputs("{(", out);
  for (int i = 0; i < module->entry->param_count; i++) {
    if (i) fputs(", ", out);
    if (i && i % 5 == 0) fprintf(out, "/*index=%d*/", i);
    hlo_pr_shape(out, module->entry_param_shapes[i]);
  }
  fputs(")->", out);
  hlo_pr_shape(out, module->entry_result_shape);
  fputc('}', out);
}
static const attr_kind kind_entry_layout = {read_entry_layout, entry_layout_is_absent, print_entry_layout};

/* input_output_alias={ {1}: (0, {}, may-alias), ... } */
static weft_status *read_io_alias(hlo_reader *r, void *out)
{
  hlo_input_output_alias *alias = out;

  WEFT_TRY(hlo_rd_ints(r, '{', '}', &alias->output_index));
  WEFT_TRY(hlo_rd_expect(r, ':'));
  if (!hlo_rd_accept(r, '(')) return hlo_rd_int_in(r, 0, INT32_MAX, &alias->parameter); /* the oldest form */
  WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &alias->parameter));
  if (hlo_rd_accept(r, ',')) WEFT_TRY(hlo_rd_ints(r, '{', '}', &alias->parameter_index));
  if (hlo_rd_accept(r, ',')) {
    alias->must_alias = hlo_rd_accept_word(r, "must-alias");
    if (!alias->must_alias && !hlo_rd_accept_word(r, "may-alias")) return hlo_rd_expected(r, "may-alias or must-alias");
  }
  return hlo_rd_expect(r, ')');
}
static weft_status *read_io_aliases(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  struct { int count; const hlo_input_output_alias *v; } list = {0};

  (void)attr, (void)field;
  WEFT_TRY(read_list(r, '{', '}', sizeof *list.v, read_io_alias, &list));
  site->module->alias_count = list.count;
  site->module->aliases = list.v;
  return NULL;
}
static bool io_aliases_are_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  return site->module->alias_count == 0;
}
static void print_io_aliases(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  for (int i = 0; i < site->module->alias_count; i++) {
    const hlo_input_output_alias *alias = &site->module->aliases[i];
    fputs(i ? ", " : "{ ", out);
    hlo_pr_ints(out, '{', alias->output_index, '}');
    fprintf(out, ": (%" PRId64 ", ", alias->parameter);
    hlo_pr_ints(out, '{', alias->parameter_index, '}');
    fputs(alias->must_alias ? ", must-alias)" : ", may-alias)", out);
  }
  fputs(" }", out);
}
static const attr_kind kind_io_aliases = {read_io_aliases, io_aliases_are_absent, print_io_aliases};

/* buffer_donor={ (0, {}), ... } */
static weft_status *read_donor(hlo_reader *r, void *out)
{
  hlo_buffer_donor *donor = out;

  WEFT_TRY(hlo_rd_expect(r, '('));
  WEFT_TRY(hlo_rd_int_in(r, 0, INT32_MAX, &donor->parameter));
  if (hlo_rd_accept(r, ',')) WEFT_TRY(hlo_rd_ints(r, '{', '}', &donor->parameter_index));
  return hlo_rd_expect(r, ')');
}
static weft_status *read_donors(hlo_reader *r, attr_site *site, const hlo_attr *attr, void *field)
{
  struct { int count; const hlo_buffer_donor *v; } list = {0};

  (void)attr, (void)field;
  WEFT_TRY(read_list(r, '{', '}', sizeof *list.v, read_donor, &list));
  site->module->donor_count = list.count;
  site->module->donors = list.v;
  return NULL;
}
static bool donors_are_absent(const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  return site->module->donor_count == 0;
}
static void print_donors(FILE *out, const attr_site *site, const hlo_attr *attr, const void *field)
{
  (void)attr, (void)field;
  for (int i = 0; i < site->module->donor_count; i++) {
    fprintf(out, "%s(%" PRId64 ", ", i ? ", " : "{ ", site->module->donors[i].parameter);
    hlo_pr_ints(out, '{', site->module->donors[i].parameter_index, '}');
    fputc(')', out);
  }
  fputs(" }", out);
}
static const attr_kind kind_donors = {read_donors, donors_are_absent, print_donors};

/* ---- the table ---------------------------------------------------------------------------------------------------- */

#define INSTR(field) IN_INSTR, offsetof(hlo_instr, field)
#define DOT(field) IN_GROUP, offsetof(hlo_dot_attrs, field)
#define CONV(field) IN_GROUP, offsetof(hlo_conv_attrs, field)
#define GATHER(field) IN_GROUP, offsetof(hlo_gather_attrs, field)
#define SCATTER(field) IN_GROUP, offsetof(hlo_scatter_attrs, field)
#define CUSTOM(field) IN_GROUP, offsetof(hlo_custom_call_attrs, field)
#define CUSTOM_CONV(field) IN_CUSTOM_CONV, offsetof(hlo_conv_attrs, field)
#define COLLECTIVE(field) IN_GROUP, offsetof(hlo_collective_attrs, field)
#define EXTRA(field) IN_EXTRA, offsetof(hlo_extra, field)
#define MODULE(field) IN_MODULE, offsetof(hlo_module, field)

#define DIMENSIONS {"dimensions", &kind_ints, INSTR(dims), REQUIRED | ALWAYS, 0, NULL}
#define TO_APPLY {"to_apply", &kind_computation, CALLED, 0, REQUIRED, 0, NULL}

static const hlo_attr compare_attrs[] = {
  {"direction", &kind_enum, INSTR(u.compare.direction), REQUIRED | ALWAYS, 0, direction_words},
  {"type", &kind_enum, INSTR(u.compare.type), 0, 0, compare_words},
};
static const hlo_attr reduce_precision_attrs[] = {
  {"exponent_bits", &kind_int32, INSTR(u.reduce_precision.exponent_bits), REQUIRED | ALWAYS, 0, NULL},
  {"mantissa_bits", &kind_int32, INSTR(u.reduce_precision.mantissa_bits), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr dims_attrs[] = {DIMENSIONS};
static const hlo_attr broadcast_attrs[] = {{"dimensions", &kind_ints, INSTR(dims), ALWAYS, 0, NULL}};
static const hlo_attr iota_attrs[] = {{"iota_dimension", &kind_dim, INSTR(dims), REQUIRED, 0, NULL}};
static const hlo_attr dynamic_slice_attrs[] = {
  {"dynamic_slice_sizes", &kind_ints, INSTR(u.slice_sizes), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr slice_attrs[] = {{"slice", &kind_slice, INSTR(u.slice.start), REQUIRED, 0, NULL}};
static const hlo_attr pad_attrs[] = {{"padding", &kind_padding, INSTR(u.pad.rank), REQUIRED, 0, NULL}};
static const hlo_attr gather_attrs[] = {
  {"offset_dims", &kind_ints, GATHER(offset_dims), REQUIRED | ALWAYS, 0, NULL},
  {"collapsed_slice_dims", &kind_ints, GATHER(collapsed_slice_dims), REQUIRED | ALWAYS, 0, NULL},
  {"start_index_map", &kind_ints, GATHER(start_index_map), REQUIRED | ALWAYS, 0, NULL},
  {"operand_batching_dims", &kind_ints, GATHER(operand_batching_dims), 0, 0, NULL},
  {"start_indices_batching_dims", &kind_ints, GATHER(start_indices_batching_dims), 0, 0, NULL},
  {"index_vector_dim", &kind_int64, GATHER(index_vector_dim), REQUIRED | ALWAYS, 0, NULL},
  {"slice_sizes", &kind_ints, GATHER(slice_sizes), REQUIRED | ALWAYS, 0, NULL},
  {"indices_are_sorted", &kind_bool, GATHER(indices_are_sorted), 0, 0, NULL},
};
static const hlo_attr scatter_attrs[] = {
  {"update_window_dims", &kind_ints, SCATTER(update_window_dims), REQUIRED | ALWAYS, 0, NULL},
  {"inserted_window_dims", &kind_ints, SCATTER(inserted_window_dims), REQUIRED | ALWAYS, 0, NULL},
  {"scatter_dims_to_operand_dims", &kind_ints, SCATTER(scatter_dims_to_operand_dims), REQUIRED | ALWAYS, 0, NULL},
  {"input_batching_dims", &kind_ints, SCATTER(input_batching_dims), 0, 0, NULL},
  {"scatter_indices_batching_dims", &kind_ints, SCATTER(scatter_indices_batching_dims), 0, 0, NULL},
  {"index_vector_dim", &kind_int64, SCATTER(index_vector_dim), REQUIRED | ALWAYS, 0, NULL},
  {"indices_are_sorted", &kind_bool, SCATTER(indices_are_sorted), 0, 0, NULL},
  {"unique_indices", &kind_bool, SCATTER(unique_indices), 0, 0, NULL},
  TO_APPLY,
};
static const hlo_attr dot_attrs[] = {
  {"lhs_batch_dims", &kind_ints, DOT(lhs_batch), 0, 0, NULL},
  {"lhs_contracting_dims", &kind_ints, DOT(lhs_contracting), 0, 0, NULL},
  {"rhs_batch_dims", &kind_ints, DOT(rhs_batch), 0, 0, NULL},
  {"rhs_contracting_dims", &kind_ints, DOT(rhs_contracting), 0, 0, NULL},
  {"lhs_ragged_dims", &kind_ints, DOT(lhs_ragged), 0, 0, NULL},
  {"rhs_group_dims", &kind_ints, DOT(rhs_group), 0, 0, NULL},
  {"sparsity_config", &kind_braces, DOT(sparsity), 0, 0, NULL},
  {"operand_precision", &kind_precision, DOT(precision_count), 0, 0, NULL},
  {"algorithm", &kind_enum, DOT(algorithm), 0, HLO_ALG_UNSET, algorithm_words},
};
static const hlo_attr conv_attrs[] = {
  {"window", &kind_window, CONV(window), 0, 0, NULL},
  {"dim_labels", &kind_dim_labels, CONV(window), REQUIRED, 0, NULL}, /* the whole group is the field */
  {"feature_group_count", &kind_count, CONV(feature_group_count), 0, 1, NULL},
  {"batch_group_count", &kind_count, CONV(batch_group_count), 0, 1, NULL},
  {"operand_precision", &kind_precision, CONV(precision_count), 0, 0, NULL},
  {"convolution_kind", &kind_enum, CONV(kind), 0, 0, convolution_words},
};
_Static_assert(offsetof(hlo_conv_attrs, window) == 0, "dim_labels takes the group by its first field");
static const hlo_attr reduce_attrs[] = {DIMENSIONS, TO_APPLY};
static const hlo_attr map_attrs[] = {{"dimensions", &kind_ints, INSTR(dims), ALWAYS, 0, NULL}, TO_APPLY};
static const hlo_attr reduce_window_attrs[] = {
  {"window", &kind_window, IN_GROUP, 0, ALWAYS, 0, NULL},
  TO_APPLY,
};
static const hlo_attr select_and_scatter_attrs[] = {
  {"window", &kind_window, IN_GROUP, 0, ALWAYS, 0, NULL},
  {"select", &kind_computation, CALLED, 0, REQUIRED, 0, NULL},
  {"scatter", &kind_computation, CALLED, 1, REQUIRED, 0, NULL},
};
static const hlo_attr scan_attrs[] = {
  DIMENSIONS,
  {"num_carries", &kind_int64, INSTR(u.scan.num_carries), 0, 0, NULL},
  {"is_reverse", &kind_bool, INSTR(u.scan.is_reverse), 0, 0, NULL},
  {"is_associative", &kind_tristate, INSTR(u.scan.is_associative), 0, 0, NULL},
  TO_APPLY,
};
static const hlo_attr sort_attrs[] = {
  DIMENSIONS,
  {"is_stable", &kind_bool, INSTR(u.is_stable), 0, 0, NULL},
  TO_APPLY,
};
static const hlo_attr topk_attrs[] = {
  {"k", &kind_int64, INSTR(u.topk.k), REQUIRED | ALWAYS, 0, NULL},
  {"largest", &kind_bool, INSTR(u.topk.largest), REQUIRED | ALWAYS, 0, NULL},
  {"is_stable", &kind_bool, INSTR(u.topk.is_stable), 0, 0, NULL},
};
static const hlo_attr fft_attrs[] = {
  {"fft_type", &kind_enum, INSTR(u.fft_type), REQUIRED | ALWAYS, 0, fft_words},
  {"fft_length", &kind_ints, INSTR(dims), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr cholesky_attrs[] = {{"lower", &kind_bool, INSTR(u.lower), 0, 0, NULL}};
static const hlo_attr triangular_attrs[] = {
  {"left_side", &kind_bool, INSTR(u.triangular.left_side), 0, 0, NULL},
  {"lower", &kind_bool, INSTR(u.triangular.lower), 0, 0, NULL},
  {"unit_diagonal", &kind_bool, INSTR(u.triangular.unit_diagonal), 0, 0, NULL},
  {"transpose_a", &kind_enum, INSTR(u.triangular.transpose_a), 0, HLO_TRANSPOSE_INVALID, transpose_words},
};
static const hlo_attr batch_norm_attrs[] = {
  {"epsilon", &kind_float, INSTR(u.batch_norm.epsilon), REQUIRED, 0, NULL},
  {"feature_index", &kind_int64, INSTR(u.batch_norm.feature_index), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr rng_attrs[] = {
  {"distribution", &kind_enum, INSTR(u.distribution), REQUIRED | ALWAYS, 0, distribution_words},
};
static const hlo_attr rng_bits_attrs[] = {
  {"algorithm", &kind_enum, INSTR(u.rng_algorithm), REQUIRED | ALWAYS, 0, rng_words},
};
static const hlo_attr rng_state_attrs[] = {{"delta", &kind_int64, INSTR(u.delta), REQUIRED | ALWAYS, 0, NULL}};
static const hlo_attr domain_attrs[] = {{"domain", &kind_domain, INSTR(u.domain.entry), REQUIRED, 0, NULL}};
static const hlo_attr gte_attrs[] = {{"index", &kind_int64, INSTR(u.tuple_index), REQUIRED | ALWAYS, 0, NULL}};
static const hlo_attr call_attrs[] = {
  TO_APPLY,
  {"is_composite", &kind_bool, INSTR(u.is_composite), 0, 0, NULL},
};
static const hlo_attr fusion_attrs[] = {
  {"kind", &kind_enum, INSTR(u.fusion.kind), REQUIRED | ALWAYS, 0, fusion_words},
  {"output_to_operand_aliasing", &kind_output_aliases, INSTR(u.fusion.alias_count), 0, 0, NULL},
  {"calls", &kind_computation, CALLED, 0, REQUIRED, 0, NULL},
};
static const hlo_attr while_attrs[] = {
  {"condition", &kind_computation, CALLED, 1, REQUIRED, 0, NULL},
  {"body", &kind_computation, CALLED, 0, REQUIRED, 0, NULL},
};
static const hlo_attr conditional_attrs[] = {
  {"true_computation", &kind_branch, CALLED, 0, 0, 0, NULL},
  {"false_computation", &kind_branch, CALLED, 1, 0, 0, NULL},
  {"branch_computations", &kind_branches, CALLED, 0, 0, 0, NULL},
};
static const hlo_attr custom_call_attrs[] = {
  {"window", &kind_window, CUSTOM_CONV(window), 0, 0, NULL},
  {"dim_labels", &kind_dim_labels, CUSTOM_CONV(window), 0, 0, NULL},
  {"feature_group_count", &kind_count, CUSTOM_CONV(feature_group_count), 0, 1, NULL},
  {"batch_group_count", &kind_count, CUSTOM_CONV(batch_group_count), 0, 1, NULL},
  {"operand_precision", &kind_precision, CUSTOM_CONV(precision_count), 0, 0, NULL},
  {"custom_call_target", &kind_string, CUSTOM(target), REQUIRED, 0, NULL},
  {"operand_layout_constraints", &kind_shapes, CUSTOM(layout_count), 0, 0, NULL},
  {"custom_call_has_side_effect", &kind_bool, CUSTOM(has_side_effect), 0, 0, NULL},
  {"literal", &kind_literal, CUSTOM(literal), 0, 0, NULL},
  {"output_to_operand_aliasing", &kind_output_aliases, CUSTOM(alias_count), 0, 0, NULL},
  {"padding_type", &kind_word, CUSTOM(padding_type), 0, 0, NULL},
  {"schedule", &kind_enum, CUSTOM(schedule), 0, 0, schedule_words},
  {"api_version", &kind_enum, CUSTOM(api_version), 0, 0, api_words},
  {"called_computations", &kind_computations, CALLED, 0, 0, 0, NULL},
  {"to_apply", &kind_computation, CALLED, 0, OLD, 0, NULL},
  {"opaque", &kind_config, EXTRA(backend_config), OLD, 0, NULL},
};
#define CHANNEL {"channel_id", &kind_int64, COLLECTIVE(channel_id), 0, 0, NULL}
#define GROUPS                                                                                \
  {"replica_groups", &kind_groups, COLLECTIVE(groups), ALWAYS, 0, NULL},                      \
  {"constrain_layout", &kind_bool, COLLECTIVE(constrain_layout), 0, 0, NULL},                 \
  {"use_global_device_ids", &kind_bool, COLLECTIVE(use_global_device_ids), 0, 0, NULL}
static const hlo_attr all_reduce_attrs[] = {CHANNEL, GROUPS, TO_APPLY};
static const hlo_attr reduce_scatter_attrs[] = {CHANNEL, GROUPS, DIMENSIONS, TO_APPLY};
static const hlo_attr all_gather_attrs[] = {CHANNEL, GROUPS, DIMENSIONS};
static const hlo_attr all_to_all_attrs[] = {CHANNEL, GROUPS, {"dimensions", &kind_ints, INSTR(dims), 0, 0, NULL}};
static const hlo_attr group_attrs[] = {CHANNEL, GROUPS, {"has_dynamic_root", &kind_bool, COLLECTIVE(has_dynamic_root), 0, 0, NULL}};
static const hlo_attr permute_attrs[] = {
  CHANNEL,
  {"source_target_pairs", &kind_pairs, COLLECTIVE(pair_count), REQUIRED | ALWAYS, 0, NULL},
};
static const hlo_attr send_attrs[] = {
  CHANNEL,
  {"is_host_transfer", &kind_bool, COLLECTIVE(is_host_transfer), 0, 0, NULL},
  {"source_target_pairs", &kind_pairs, COLLECTIVE(pair_count), 0, 0, NULL},
};
static const hlo_attr infeed_attrs[] = {{"infeed_config", &kind_string, INSTR(u.feed.config), 0, 0, NULL}};
static const hlo_attr outfeed_attrs[] = {
  {"outfeed_shape", &kind_shape, INSTR(u.feed.outfeed_shape), 0, 0, NULL},
  {"outfeed_config", &kind_string, INSTR(u.feed.config), 0, 0, NULL},
};
static const hlo_attr async_start_attrs[] = {{"calls", &kind_computation, CALLED, 0, REQUIRED, 0, NULL}};
static const hlo_attr async_rest_attrs[] = {{"calls", &kind_computation, CALLED, 0, 0, 0, NULL}};
static const hlo_attr copy_start_attrs[] = {
  {"cross_program_prefetch_index", &kind_prefetch, INSTR(u), 0, 0, NULL},
  {"is_cross_program_prefetch", &kind_bool, INSTR(u.copy_start.is_prefetch), OLD, 0, NULL},
};

static const hlo_attr common_attrs[] = {
  {"result_accuracy", &kind_accuracy, EXTRA(accuracy), 0, 0, NULL},
  {"sharding", &kind_sharding, EXTRA(sharding), 0, 0, NULL},
  {"parameter_replication", &kind_bools, EXTRA(parameter_replication), 0, 0, NULL},
  {"async_execution_thread", &kind_string, EXTRA(async_thread), 0, 0, NULL},
  {"frontend_attributes", &kind_map, EXTRA(frontend_count), 0, 0, NULL},
  {"control-predecessors", &kind_control_preds, INSTR(control_pred_count), 0, 0, NULL},
  {"statistics", &kind_braces, EXTRA(statistics), 0, 0, NULL},
  {"origin", &kind_braces, EXTRA(origin), 0, 0, NULL},
  {"original_value", &kind_braces, EXTRA(origin), OLD, 0, NULL},
  {"metadata", &kind_metadata, EXTRA(metadata), 0, 0, NULL},
  {"backend_config", &kind_config, EXTRA(backend_config), 0, 0, NULL},
};

static const hlo_attr module_attrs[] = {
  {"is_scheduled", &kind_bool, MODULE(is_scheduled), 0, 0, NULL},
  {"input_output_alias", &kind_io_aliases, MODULE(aliases), 0, 0, NULL},
  {"buffer_donor", &kind_donors, MODULE(donors), 0, 0, NULL},
  {"alias_passthrough_params", &kind_bool, MODULE(alias_passthrough_params), 0, 0, NULL},
  {"entry_computation_layout", &kind_entry_layout, MODULE(entry_result_shape), 0, 0, NULL},
  {"allow_spmd_sharding_propagation_to_parameters", &kind_bools, MODULE(propagate_to_parameters), 0, 0, NULL},
  {"allow_spmd_sharding_propagation_to_output", &kind_bools, MODULE(propagate_to_output), 0, 0, NULL},
  {"replica_count", &kind_count, MODULE(replica_count), 0, 1, NULL},
  {"num_partitions", &kind_count, MODULE(num_partitions), 0, 1, NULL},
  {"frontend_attributes", &kind_map, MODULE(frontend_count), 0, 0, NULL},
  {"origin_recovery_table", &kind_braces, MODULE(origin_recovery_table), 0, 0, NULL},
  {"original_value_recovery_table", &kind_braces, MODULE(origin_recovery_table), OLD, 0, NULL},
  {"debug_attributes", &kind_braces, MODULE(debug_attributes), 0, 0, NULL},
};

#define LIST(array) {(array), WEFT_COUNT(array)}
static const attr_list common_list = LIST(common_attrs), module_list = LIST(module_attrs);
static const hlo_conv_attrs conv_defaults = {.feature_group_count = 1, .batch_group_count = 1};

#define COLLECTIVE_OP(list) {LIST(list), sizeof(hlo_collective_attrs), NULL}
#define COLLECTIVE_DONE {{NULL, 0}, sizeof(hlo_collective_attrs), NULL}
static const op_attrs op_table[HLO_OPCODE_COUNT] = {
  [HLO_ALL_GATHER] = COLLECTIVE_OP(all_gather_attrs),
  [HLO_ALL_GATHER_DONE] = COLLECTIVE_DONE,
  [HLO_ALL_GATHER_START] = COLLECTIVE_OP(all_gather_attrs),
  [HLO_ALL_REDUCE] = COLLECTIVE_OP(all_reduce_attrs),
  [HLO_ALL_REDUCE_DONE] = COLLECTIVE_DONE,
  [HLO_ALL_REDUCE_START] = COLLECTIVE_OP(all_reduce_attrs),
  [HLO_ALL_TO_ALL] = COLLECTIVE_OP(all_to_all_attrs),
  [HLO_ASYNC_DONE] = {LIST(async_rest_attrs), 0, NULL},
  [HLO_ASYNC_START] = {LIST(async_start_attrs), 0, NULL},
  [HLO_ASYNC_UPDATE] = {LIST(async_rest_attrs), 0, NULL},
  [HLO_BATCH_NORM_GRAD] = {LIST(batch_norm_attrs), 0, NULL},
  [HLO_BATCH_NORM_INFERENCE] = {LIST(batch_norm_attrs), 0, NULL},
  [HLO_BATCH_NORM_TRAINING] = {LIST(batch_norm_attrs), 0, NULL},
  [HLO_BROADCAST] = {LIST(broadcast_attrs), 0, NULL},
  [HLO_CALL] = {LIST(call_attrs), 0, NULL},
  [HLO_CHOLESKY] = {LIST(cholesky_attrs), 0, NULL},
  [HLO_COLLECTIVE_BROADCAST] = COLLECTIVE_OP(group_attrs),
  [HLO_COLLECTIVE_PERMUTE] = COLLECTIVE_OP(permute_attrs),
  [HLO_COLLECTIVE_PERMUTE_DONE] = COLLECTIVE_DONE,
  [HLO_COLLECTIVE_PERMUTE_START] = COLLECTIVE_OP(permute_attrs),
  [HLO_COMPARE] = {LIST(compare_attrs), 0, NULL},
  [HLO_CONCATENATE] = {LIST(dims_attrs), 0, NULL},
  [HLO_CONDITIONAL] = {LIST(conditional_attrs), 0, NULL},
  [HLO_CONVOLUTION] = {LIST(conv_attrs), sizeof(hlo_conv_attrs), &conv_defaults},
  [HLO_COPY_START] = {LIST(copy_start_attrs), 0, NULL},
  [HLO_CUSTOM_CALL] = {LIST(custom_call_attrs), sizeof(hlo_custom_call_attrs), NULL},
  [HLO_DOMAIN] = {LIST(domain_attrs), 0, NULL},
  [HLO_DOT] = {LIST(dot_attrs), sizeof(hlo_dot_attrs), NULL},
  [HLO_DYNAMIC_SLICE] = {LIST(dynamic_slice_attrs), 0, NULL},
  [HLO_FFT] = {LIST(fft_attrs), 0, NULL},
  [HLO_FUSION] = {LIST(fusion_attrs), 0, NULL},
  [HLO_GATHER] = {LIST(gather_attrs), sizeof(hlo_gather_attrs), NULL},
  [HLO_GET_DIMENSION_SIZE] = {LIST(dims_attrs), 0, NULL},
  [HLO_GET_TUPLE_ELEMENT] = {LIST(gte_attrs), 0, NULL},
  [HLO_INFEED] = {LIST(infeed_attrs), 0, NULL},
  [HLO_IOTA] = {LIST(iota_attrs), 0, NULL},
  [HLO_MAP] = {LIST(map_attrs), 0, NULL},
  [HLO_OUTFEED] = {LIST(outfeed_attrs), 0, NULL},
  [HLO_PAD] = {LIST(pad_attrs), 0, NULL},
  [HLO_RAGGED_ALL_TO_ALL] = COLLECTIVE_OP(group_attrs),
  [HLO_RAGGED_DOT] = {LIST(dot_attrs), sizeof(hlo_dot_attrs), NULL},
  [HLO_RECV] = COLLECTIVE_OP(send_attrs),
  [HLO_RECV_DONE] = COLLECTIVE_OP(send_attrs),
  [HLO_REDUCE] = {LIST(reduce_attrs), 0, NULL},
  [HLO_REDUCE_PRECISION] = {LIST(reduce_precision_attrs), 0, NULL},
  [HLO_REDUCE_SCATTER] = COLLECTIVE_OP(reduce_scatter_attrs),
  [HLO_REDUCE_WINDOW] = {LIST(reduce_window_attrs), sizeof(hlo_window), NULL},
  [HLO_REVERSE] = {LIST(dims_attrs), 0, NULL},
  [HLO_RNG] = {LIST(rng_attrs), 0, NULL},
  [HLO_RNG_BIT_GENERATOR] = {LIST(rng_bits_attrs), 0, NULL},
  [HLO_RNG_GET_AND_UPDATE_STATE] = {LIST(rng_state_attrs), 0, NULL},
  [HLO_SCALED_DOT] = {LIST(dot_attrs), sizeof(hlo_dot_attrs), NULL},
  [HLO_SCAN] = {LIST(scan_attrs), 0, NULL},
  [HLO_SCATTER] = {LIST(scatter_attrs), sizeof(hlo_scatter_attrs), NULL},
  [HLO_SELECT_AND_SCATTER] = {LIST(select_and_scatter_attrs), sizeof(hlo_window), NULL},
  [HLO_SEND] = COLLECTIVE_OP(send_attrs),
  [HLO_SEND_DONE] = COLLECTIVE_OP(send_attrs),
  [HLO_SET_DIMENSION_SIZE] = {LIST(dims_attrs), 0, NULL},
  [HLO_SLICE] = {LIST(slice_attrs), 0, NULL},
  [HLO_SORT] = {LIST(sort_attrs), 0, NULL},
  [HLO_TOPK] = {LIST(topk_attrs), 0, NULL},
  [HLO_TRANSPOSE] = {LIST(dims_attrs), 0, NULL},
  [HLO_TRIANGULAR_SOLVE] = {LIST(triangular_attrs), 0, NULL},
  [HLO_WHILE] = {LIST(while_attrs), 0, NULL},
};

/* ---- reading ------------------------------------------------------------------------------------------------------ */

weft_status *hlo_init_attributes(hlo_instr *instr)
{
  const op_attrs *op = &op_table[instr->op];
  weft_arena *arena = &instr->parent->module->arena;
  void *group;

  if (op->group_bytes) {
    group = weft_arena_alloc(arena, op->group_bytes);
    WEFT_TRY_ALLOC(group);
    if (op->group_defaults) memcpy(group, op->group_defaults, op->group_bytes);
    memcpy(&instr->u, &group, sizeof group);
  }
  return NULL;
}

/* Where the attribute's value is.  For the printer NULL means: not there. */
static void *field_of(attr_site *site, const hlo_attr *attr, hlo_extra *extra)
{
  char *base = NULL;

  switch (attr->base) {
  case IN_INSTR: base = (char *)site->instr; break;
  case IN_GROUP: memcpy(&base, &site->instr->u, sizeof base); break;
  case IN_CUSTOM_CONV: base = (char *)site->instr->u.custom->conv; break;
  case IN_EXTRA: base = (char *)extra; break;
  case IN_MODULE: base = (char *)site->module; break;
  case CALLED: return site->instr;
  }
  return base ? base + attr->offset : NULL;
}

static weft_status *read_attr(hlo_reader *r, attr_site *site, const hlo_attr *attr)
{
  if (attr->base == IN_CUSTOM_CONV && !site->instr->u.custom->conv) {
    hlo_custom_call_attrs *custom = (hlo_custom_call_attrs *)site->instr->u.custom;
    custom->conv = weft_arena_memdup(r->arena, &conv_defaults, sizeof conv_defaults);
    WEFT_TRY_ALLOC(custom->conv);
  }
  if (attr->base == IN_EXTRA) site->has_extra = true;
  return attr->kind->read(r, site, attr, field_of(site, attr, &site->extra));
}

static int find_attr(attr_list list, hlo_span name)
{
  for (int i = 0; i < list.count; i++)
    if (hlo_span_is(name, list.attrs[i].name)) return i;
  return -1;
}

/* One `name=value` into whichever of the lists knows the name.  seen[i] has a bit for each attribute of lists[i]. */
static weft_status *read_one(hlo_reader *r, int list_count, const attr_list *lists, attr_site *const *sites,
                             uint64_t *seen, const char *owner)
{
  hlo_span name;

  WEFT_TRY(hlo_rd_word(r, "an attribute", &name));
  for (int l = 0; l < list_count; l++) {
    int i = find_attr(lists[l], name);

    if (i < 0) continue;
    if (seen[l] >> i & 1) return hlo_rd_error(r, name.p, "%s is given twice", lists[l].attrs[i].name);
    seen[l] |= UINT64_C(1) << i;
    WEFT_TRY(hlo_rd_expect(r, '='));
    return read_attr(r, sites[l], &lists[l].attrs[i]);
  }
  return hlo_rd_error(r, name.p, "%s has no attribute \"%.*s\"", owner, (int)WEFT_MIN(name.length, 60u), name.p);
}

static weft_status *check_required(const hlo_reader *r, const char *at, attr_list list, uint64_t seen, const char *owner)
{
  for (int i = 0; i < list.count; i++)
    if (list.attrs[i].flags & REQUIRED && !(seen >> i & 1))
      return hlo_rd_error(r, at, "%s needs the attribute \"%s\"", owner, list.attrs[i].name);
  return NULL;
}

/* Moves what was collected beside the instruction into it. */
static weft_status *finish_site(hlo_reader *r, attr_site *site)
{
  hlo_instr *instr = site->instr;

  for (int i = 0; i < site->called_count; i++)
    if (!site->called[i])
      return hlo_rd_error(r, r->p, "%s lacks a called computation", hlo_opcode_name(instr->op));
  if (site->called_count) WEFT_TRY(hlo_set_called(instr, site->called_count, site->called));
  if (site->has_extra) {
    instr->extra = weft_arena_memdup(r->arena, &site->extra, sizeof site->extra);
    WEFT_TRY_ALLOC(instr->extra);
  }
  return NULL;
}

hlo_compare_type hlo_default_compare_type(weft_dtype operand)
{
  if (weft_dtype_is_float(operand) || weft_dtype_is_complex(operand)) return HLO_COMPARE_FLOAT;
  return weft_dtype_is_signed(operand) ? HLO_COMPARE_SIGNED : HLO_COMPARE_UNSIGNED;
}

weft_status *hlo_rd_attributes(hlo_reader *r, hlo_instr *instr)
{
  const char *at = r->p, *owner = hlo_opcode_name(instr->op);
  attr_site site = {.instr = instr};
  attr_site *const sites[] = {&site, &site};
  const attr_list lists[] = {op_table[instr->op].own, common_list};
  uint64_t seen[2] = {0};

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 2, lists, sites, seen, owner));
  WEFT_TRY(check_required(r, at, lists[0], seen[0], owner));
  if (instr->op == HLO_COMPARE && instr->u.compare.type == hlo_default_compare_type(instr->operands[0]->shape->type))
    instr->u.compare.type = HLO_COMPARE_DEFAULT;
  return finish_site(r, &site);
}

weft_status *hlo_rd_async_attributes(hlo_reader *r, hlo_instr *instr, hlo_instr *wrapped)
{
  const char *at = r->p, *owner = hlo_opcode_name(wrapped->op);
  attr_site outer = {.instr = instr}, inner = {.instr = wrapped};
  attr_site *const sites[] = {&inner, &outer};
  const attr_list lists[] = {op_table[wrapped->op].own, common_list};
  uint64_t seen[2] = {0};

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 2, lists, sites, seen, owner));
  if (instr->op == HLO_ASYNC_START) WEFT_TRY(check_required(r, at, lists[0], seen[0], owner));
  WEFT_TRY(finish_site(r, &inner));
  return finish_site(r, &outer);
}

weft_status *hlo_rd_module_attributes(hlo_reader *r, hlo_module *module)
{
  attr_site site = {.module = module};
  attr_site *const sites[] = {&site};
  uint64_t seen = 0;

  while (hlo_rd_accept(r, ',')) WEFT_TRY(read_one(r, 1, &module_list, sites, &seen, "HloModule"));
  return NULL;
}

/* ---- printing ------------------------------------------------------------------------------------------------------ */

static void print_list(FILE *out, attr_list list, attr_site *site, hlo_extra *extra, bool metadata)
{
  for (int i = 0; i < list.count; i++) {
    const hlo_attr *attr = &list.attrs[i];
    const void *field = field_of(site, attr, extra);

    if (!field || attr->flags & OLD) continue;
    if (!(attr->flags & ALWAYS) && attr->kind->is_usual && attr->kind->is_usual(site, attr, field)) continue;
    if (attr->kind == &kind_metadata && !metadata) continue;
    fprintf(out, ", %s=", attr->name);
    attr->kind->print(out, site, attr, field);
  }
}

void hlo_pr_attributes(FILE *out, const hlo_instr *instr, hlo_print_options options)
{
  attr_site site = {.instr = (hlo_instr *)instr};

  print_list(out, op_table[instr->op].own, &site, NULL, options.metadata);
  print_list(out, common_list, &site, (hlo_extra *)instr->extra, options.metadata);
}

void hlo_pr_module_attributes(FILE *out, const hlo_module *module)
{
  attr_site site = {.module = (hlo_module *)module};

  print_list(out, module_list, &site, NULL, true);
}
