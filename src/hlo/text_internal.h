/* hlo/text_internal.h -- shared by the files that read and write HLO text: the reader's cursor, and the pieces of
 * the grammar (shape, literal, sharding, attribute) that the reader and the printer of modules are made of. */
#ifndef WEFT_HLO_TEXT_INTERNAL_H
#define WEFT_HLO_TEXT_INTERNAL_H

#include <stdio.h>
#include <string.h>

#include "hlo/hlo.h"
#include "hlo/text.h"

enum { HLO_MAX_NESTING = 64 /* levels of inline computations and nested operand expressions */ };

/* ---- the reader: a cursor that always stands on a token; white space and comments behind a token are skipped ----- */

typedef struct hlo_scope hlo_scope; /* text_parse.c: the computation being read and its names */

typedef struct hlo_reader {
  const char *begin, *end, *p; /* *end is NUL */
  weft_arena *arena;           /* of results */
  char *stack;                 /* stack for lists of unknown length: malloc'd, see hlo_rd_push */
  size_t stack_used, stack_size;
  size_t elided_bytes;         /* total size of the `{...}` constants so far */
  uint32_t elided_words;       /* value of the next word in a `{...}` constant */
  uint8_t elided_rest;         /* value of the next byte behind the last whole word of one */
  int depth;                   /* current level of inline computations and nested operand expressions */
  /* The rest is for whole modules (text_parse.c). */
  hlo_module *module;
  hlo_scope *scope;
  struct hlo_named_computation *computations; /* by name (uthash) */
  weft_arena names;            /* the entries of the hash tables */
  int64_t parameter_slots;     /* parameter slots allocated so far: at most the number of bytes of the text */
  int entry_layout_params;     /* in entry_computation_layout */
} hlo_reader;

/* A piece of the text. */
typedef struct hlo_span { const char *p; size_t length; } hlo_span;
static inline bool hlo_span_is(hlo_span s, const char *text)
{
  return strlen(text) == s.length && memcmp(s.p, text, s.length) == 0;
}

/* init copies the text and puts a NUL behind it; fini frees the copy and the stack. */
WEFT_NODISCARD weft_status *hlo_rd_init(hlo_reader *r, weft_arena *arena, const char *text, size_t size);
void hlo_rd_fini(hlo_reader *r);

/* INVALID_ARGUMENT "line:column: message" for the place `at`, with its line quoted and a mark under the place. */
WEFT_NODISCARD WEFT_PRINTF(3, 4) weft_status *hlo_rd_error(const hlo_reader *r, const char *at, const char *fmt, ...);
/* "expected WHAT, got TOKEN" at the cursor. */
WEFT_NODISCARD weft_status *hlo_rd_expected(const hlo_reader *r, const char *what);

void hlo_rd_space(hlo_reader *r); /* skips white space and comments; needed only after moving p by hand */
static inline void hlo_rd_skip(hlo_reader *r, size_t bytes)
{
  r->p += bytes;
  hlo_rd_space(r);
}
static inline bool hlo_rd_at(const hlo_reader *r, char c) { return *r->p == c; }
static inline bool hlo_rd_accept(hlo_reader *r, char c)
{
  if (*r->p != c) return false;
  hlo_rd_skip(r, 1);
  return true;
}
bool hlo_rd_accept_text(hlo_reader *r, const char *text); /* punctuation of several characters */
WEFT_NODISCARD weft_status *hlo_rd_expect(hlo_reader *r, char c);
WEFT_NODISCARD weft_status *hlo_rd_expect_text(hlo_reader *r, const char *text);

/* A name: [A-Za-z_][A-Za-z0-9_.-]*, after an optional %.  peek does not move the cursor; its length is 0 if there is
 * no name. */
hlo_span hlo_rd_peek_word(const hlo_reader *r);
bool hlo_rd_accept_word(hlo_reader *r, const char *word);
WEFT_NODISCARD weft_status *hlo_rd_word(hlo_reader *r, const char *what, hlo_span *out);

/* an int64, or a uint64 as the int64 of the same bits */
WEFT_NODISCARD weft_status *hlo_rd_int(hlo_reader *r, int64_t *out);
WEFT_NODISCARD weft_status *hlo_rd_int_in(hlo_reader *r, int64_t least, int64_t most, int64_t *out);
/* also inf and nan; a NaN with a payload is read by hlo_rd_literal */
WEFT_NODISCARD weft_status *hlo_rd_double(hlo_reader *r, double *out);
WEFT_NODISCARD weft_status *hlo_rd_bool(hlo_reader *r, bool *out);
WEFT_NODISCARD weft_status *hlo_rd_string(hlo_reader *r, const char **out); /* quoted and C-escaped */
/* Reads a balanced `{...}` and keeps it as written; braces in strings do not count. */
WEFT_NODISCARD weft_status *hlo_rd_braces(hlo_reader *r, const char **out);
/* Reads integers between `open` and `close`. */
WEFT_NODISCARD weft_status *hlo_rd_ints(hlo_reader *r, char open, char close, hlo_ints *out);
/* Copies the span into the arena as a string. */
WEFT_NODISCARD weft_status *hlo_rd_keep(hlo_reader *r, hlo_span span, const char **out);

/* Lists: mark = r->stack_used; push each item; take copies the items pushed since the mark into the arena and pops
 * them.  All items of a list have one size, or each a multiple of 8 bytes.  Lists may nest. */
WEFT_NODISCARD weft_status *hlo_rd_push(hlo_reader *r, const void *item, size_t size);
WEFT_NODISCARD weft_status *hlo_rd_take(hlo_reader *r, size_t mark, size_t item_size, void *out_array, int *out_count);

/* ---- pieces of the grammar -------------------------------------------------------------------------------------- */

bool hlo_rd_at_shape(const hlo_reader *r); /* true if a shape comes next, and not an opcode or a name */
WEFT_NODISCARD weft_status *hlo_rd_shape(hlo_reader *r, const hlo_shape **out);
/* Reads the text between the parentheses of constant(). */
WEFT_NODISCARD weft_status *hlo_rd_literal(hlo_reader *r, const hlo_shape *shape, const hlo_literal **out);
WEFT_NODISCARD weft_status *hlo_rd_sharding(hlo_reader *r, const hlo_sharding **out);
WEFT_NODISCARD weft_status *hlo_rd_replica_groups(hlo_reader *r, hlo_replica_groups *out);

void hlo_pr_shape(FILE *out, const hlo_shape *shape); /* with layouts */
void hlo_pr_ints(FILE *out, char open, hlo_ints ints, char close);
void hlo_pr_string(FILE *out, const char *text); /* quoted and escaped */
void hlo_pr_sharding(FILE *out, const hlo_sharding *sharding);
void hlo_pr_replica_groups(FILE *out, const hlo_replica_groups *groups);
/* Prints a literal in one line, as hlo_rd_literal reads it; more than `most` elements (0: no limit) print as {...}. */
void hlo_pr_literal(FILE *out, const hlo_literal *literal, int64_t most);

/* ---- attributes (text_attrs.c) ---------------------------------------------------------------------------------- */

/* Reads the list of `, name=value` behind an instruction's operands into the instruction, checks that all required
 * attributes are there, and sets the called computations. */
WEFT_NODISCARD weft_status *hlo_rd_attributes(hlo_reader *r, hlo_instr *instr);
/* The same for `X-start(...)` where opcode X has no start of its own: the attributes of X go to `wrapped`. */
WEFT_NODISCARD weft_status *hlo_rd_async_attributes(hlo_reader *r, hlo_instr *instr, hlo_instr *wrapped);
/* True if all of `text` is one balanced `{...}`, so that it can be printed without quotes. */
bool hlo_is_braced(const char *text);
/* Reads the list behind `HloModule name`. */
WEFT_NODISCARD weft_status *hlo_rd_module_attributes(hlo_reader *r, hlo_module *module);

void hlo_pr_attributes(FILE *out, const hlo_instr *instr, hlo_print_options options);
void hlo_pr_module_attributes(FILE *out, const hlo_module *module);

/* text_parse.c, for attributes that name computations or instructions. */
WEFT_NODISCARD weft_status *hlo_rd_computation_ref(hlo_reader *r, hlo_computation **out); /* a name or `{ ... }` */
WEFT_NODISCARD weft_status *hlo_rd_instr_ref(hlo_reader *r, hlo_instr **out);

#endif
