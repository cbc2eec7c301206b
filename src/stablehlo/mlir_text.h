/* stablehlo/mlir_text.h -- shared by the files of the text reader: mlir_text.c (lexing, values, generic operations,
 * modules), mlir_types.c, mlir_attrs.c, mlir_pretty.c (the custom assembly of single operations), mlir_loc.c
 * (locations) and mlir_sdy.c (Shardy's attributes). */
#ifndef WEFT_STABLEHLO_MLIR_TEXT_H
#define WEFT_STABLEHLO_MLIR_TEXT_H

#include "stablehlo/mlir.h"

typedef struct text_name {     /* a name of values in scope */
  const char *name;
  uint32_t size, hash;
  mlir_value *values;
  int count;
  int next;                    /* the next one in its bucket; -1: none */
} text_name;

/* Types by their text, because a program repeats few types many times. */
enum { TEXT_TYPE_CACHE = 256 };
typedef struct text_cached_type { const char *text; size_t size; const mlir_type *type; } text_cached_type;

typedef struct text_parser {
  mlir_program *program;
  weft_arena *arena;           /* the program's */
  const char *p, *end;         /* the rest of this module's text */
  mlir_module *module;
  /* a `:` after a number does not begin its type (in the values of `key = 4` in custom assembly) */
  bool bare_numbers;
  int depth;                   /* the nesting of types, attributes and regions */
  text_name *names;            /* a stack; the lists of the buckets run from new to old names */
  int name_count, name_capacity;
  int *buckets;
  int bucket_count;
  mlir_table attr_aliases, type_aliases; /* const mlir_attr *, const mlir_type * by name */
  /* mlir_location *; they are used before they are defined, at the end of the file */
  mlir_table location_aliases;
  mlir_resource *resources;
  int resource_capacity;
  text_cached_type cache[TEXT_TYPE_CACHE];
} text_parser;

/* A growing list of pointers in the arena. */
typedef struct text_list { void **items; int count, capacity; } text_list;
WEFT_NODISCARD weft_status *text_push(text_parser *ps, text_list *list, const void *item);

/* The attributes of an operation while it is read. */
typedef struct text_attrs { mlir_named_attr *items; int count, capacity; } text_attrs;
WEFT_NODISCARD weft_status *text_add_attr(text_parser *ps, text_attrs *attrs, const char *name, const mlir_attr *value);

/* "line:column: message". */
WEFT_PRINTF(3, 4) weft_status *text_fail(text_parser *ps, const char *at, const char *fmt, ...);

/* Makes room for one more element of `size` bytes in the arena. */
WEFT_NODISCARD weft_status *text_grow(text_parser *ps, void *items, int count, int *capacity, size_t size);
/* Goes one level deeper; after success the caller decrements ps->depth again. Errors: nested deeper than
 * MLIR_MAX_DEPTH. */
WEFT_NODISCARD weft_status *text_enter(text_parser *ps);

static inline bool text_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static inline bool text_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool text_is_word(char c) { return text_is_letter(c) || text_is_digit(c) || c == '.' || c == '$'; }
int text_hex_value(char c);            /* the value of a digit; -1: not a digit */
void text_skip_space(text_parser *ps); /* and comments */

/* Lexing: each function first skips spaces and comments. */
int text_peek(text_parser *ps); /* next character, or -1 */
bool text_accept(text_parser *ps, char c);
bool text_accept_word(text_parser *ps, const char *word); /* a whole identifier */
bool text_accept_str(text_parser *ps, const char *str);   /* punctuation */
WEFT_NODISCARD weft_status *text_expect(text_parser *ps, char c);
WEFT_NODISCARD weft_status *text_expect_word(text_parser *ps, const char *word);
/* an identifier, dots included; false if there is none */
bool text_word(text_parser *ps, const char **word, size_t *size);
WEFT_NODISCARD weft_status *text_string(text_parser *ps, char **out, size_t *out_size);
/* The text between two quotes, as it stands: resources are spelled alike wherever their names are written. */
WEFT_NODISCARD weft_status *text_raw_string(text_parser *ps, const char **out, size_t *out_size);
WEFT_NODISCARD weft_status *text_symbol(text_parser *ps, const mlir_attr **out);
/* Takes everything up to the matching closing bracket. The cursor stands behind the opening bracket before and on
 * the closing one afterwards. */
WEFT_NODISCARD weft_status *text_balanced(text_parser *ps, char close, const char **out, size_t *out_size);

WEFT_NODISCARD weft_status *text_type(text_parser *ps, const mlir_type **out);
bool text_is_type_word(const char *word, size_t size); /* true if the word begins a type */
WEFT_NODISCARD weft_status *text_function_type(text_parser *ps, const mlir_type **out);
WEFT_NODISCARD weft_status *text_attr(text_parser *ps, const mlir_attr **out);
/* the `{` has been seen and not been taken */
WEFT_NODISCARD weft_status *text_dict(text_parser *ps, text_attrs *attrs);
WEFT_NODISCARD weft_status *text_conv_dims(text_parser *ps, text_attrs *attrs); /* [b, f, 0]x[o, i, 0]->[b, f, 0] */
WEFT_NODISCARD weft_status *text_new_attr(text_parser *ps, mlir_attr_kind kind, mlir_attr **out);
WEFT_NODISCARD weft_status *text_word_attr(text_parser *ps, mlir_attr_kind kind, const char *s, size_t size,
                                           const mlir_attr **out);
WEFT_NODISCARD weft_status *text_integer(text_parser *ps, int64_t *out);
WEFT_NODISCARD weft_status *text_real(text_parser *ps, double *out);
WEFT_NODISCARD weft_status *text_int_attr(text_parser *ps, int64_t v, const mlir_attr **out);
WEFT_NODISCARD weft_status *text_dict_attr(text_parser *ps, const text_attrs *attrs, const mlir_attr **out);
WEFT_NODISCARD weft_status *text_sub_axis(text_parser *ps, const mlir_attr **out); /* (2)4, the part of a mesh axis */

/* mlir_sdy.c: Shardy's attributes, without the brackets around them.  text_sdy_per_value: [<...>, <...>] */
WEFT_NODISCARD weft_status *text_sdy_mesh(text_parser *ps, const mlir_attr **out);
WEFT_NODISCARD weft_status *text_sdy_sharding(text_parser *ps, const mlir_attr **out);
WEFT_NODISCARD weft_status *text_sdy_per_value(text_parser *ps, const mlir_attr **out);
WEFT_NODISCARD weft_status *text_sdy_manual_axes(text_parser *ps, const mlir_attr **out); /* {"x", "y"} */

/* `%name` or `%name#2`, which must be defined. */
WEFT_NODISCARD weft_status *text_use(text_parser *ps, mlir_value **out);
/* Reads `%name`. text_define gives that name to `count` values. */
WEFT_NODISCARD weft_status *text_value_name(text_parser *ps, const char **name, size_t *size);
WEFT_NODISCARD weft_status *text_define(text_parser *ps, const char *name, size_t size, mlir_value *values, int count);

/* The arguments of a region, which its first block defines. */
typedef struct text_arguments {
  int count;
  mlir_value *values;
  const char *const *names;
  const size_t *sizes;
  const mlir_location **locations; /* or NULL */
} text_arguments;
/* Reads a region `{ ... }`. If `args` is NULL, block labels may have arguments. */
WEFT_NODISCARD weft_status *text_region(text_parser *ps, mlir_region *region, const text_arguments *args);
/* Makes an operation of that spelling, which must live as long as the program. */
WEFT_NODISCARD weft_status *text_new_op(text_parser *ps, const char *spelling, size_t size, mlir_op **out);
WEFT_NODISCARD weft_status *text_set_results(text_parser *ps, mlir_op *op, int count, const mlir_type *const *types);
/* mlir_loc.c: an optional loc(...), NULL if there is none; and what #name stands for, behind its `=`. */
WEFT_NODISCARD weft_status *text_location(text_parser *ps, const mlir_location **out);
WEFT_NODISCARD weft_status *text_location_alias(text_parser *ps, const char *name, size_t size);
void text_append(mlir_block *block, mlir_op *op);

/* mlir_pretty.c: reads the rest of an operation behind its name. */
WEFT_NODISCARD weft_status *text_pretty_op(text_parser *ps, mlir_op *op, text_attrs *attrs);
/* Pair number `index` of the custom assembly `key = value` of an operation: false if there are no more. */
bool text_key_of(const char *op, int index, const char **out_key, const char **out_attr);
WEFT_NODISCARD weft_status *text_types(text_parser *ps, text_list *types);     /* T, T, ... */
WEFT_NODISCARD weft_status *text_type_list(text_parser *ps, text_list *types); /* T or (T, ...) */

#endif
