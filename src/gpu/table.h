/* gpu/table.h -- the entry points of a foreign library in a struct of function pointers. */
#ifndef WEFT_GPU_TABLE_H
#define WEFT_GPU_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct gpu_symbol {
  const char *name;
  size_t at; /* offset of the function pointer in the table, bytes */
  bool may_lack; /* its pointer is NULL in a library that does not have it */
} gpu_symbol;

/* A library, as a static variable of the file that calls it. */
typedef struct gpu_table {
  const char *name;           /* "cuBLASLt", for messages */
  const char *const *sonames; /* the preferred one first, NULL at the end */
  const gpu_symbol *symbols;
  size_t symbol_count;
  void *entries;              /* the struct; written by the first gpu_table_open */
  bool is_tried;              /* this member and `error` belong to table.c */
  weft_status *error;
} gpu_table;

/* Opens the library (gpu/library.h) and fills its struct when it is called first; returns the same answer from then on.
 * Errors: UNAVAILABLE, naming the library, and why it cannot be opened or the symbol that it lacks.
 * Thread-safe; after a success the struct is constant. */
WEFT_NODISCARD weft_status *gpu_table_open(gpu_table *table);

/* The error of `call`, which the library has answered with the code `number`, called `name`. `code`
 * says what that means to Weft: UNIMPLEMENTED, that the library does not have what it was asked
 * for; WEFT_OK, that there is no error. */
WEFT_NODISCARD weft_status *gpu_table_error(const gpu_table *table, weft_code code, const char *call, const char *name,
                                            int number);

/* Defines for the file that calls a library: `fn`, the struct of its entry points, and `table`.
 *   ENTRIES  a list of rows X(type, name, arguments), as in gpu/abi
 *   ...      the sonames, the preferred one first */
#define GPU_TABLE(ENTRIES, title, ...)                                                                           \
  static struct gpu_entries { ENTRIES(GPU_TABLE_MEMBER) } fn;                                                    \
  static const gpu_symbol gpu_symbols[] = {ENTRIES(GPU_TABLE_SYMBOL)};                                           \
  static gpu_table table = {.name = (title), .sonames = (const char *const[]){__VA_ARGS__, NULL},                \
                            .symbols = gpu_symbols, .symbol_count = WEFT_COUNT(gpu_symbols), .entries = &fn}
/* The same for a library some of whose versions lack the entry points of the list LATER. */
#define GPU_TABLE_WITH_LATER(ENTRIES, LATER, title, ...)                                                         \
  static struct gpu_entries { ENTRIES(GPU_TABLE_MEMBER) LATER(GPU_TABLE_MEMBER) } fn;                            \
  static const gpu_symbol gpu_symbols[] = {ENTRIES(GPU_TABLE_SYMBOL) LATER(GPU_TABLE_LATER_SYMBOL)};             \
  static gpu_table table = {.name = (title), .sonames = (const char *const[]){__VA_ARGS__, NULL},                \
                            .symbols = gpu_symbols, .symbol_count = WEFT_COUNT(gpu_symbols), .entries = &fn}
#define GPU_TABLE_LATER_SYMBOL(type, name, args) {#name, offsetof(struct gpu_entries, name), true},
#define GPU_TABLE_MEMBER(type, name, args) type(*name) args;
#define GPU_TABLE_SYMBOL(type, name, args) {#name, offsetof(struct gpu_entries, name), false},

#endif
