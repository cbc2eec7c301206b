/* stablehlo/print.h -- shared by the files that print programs as MLIR text: print.c (operations,
 * locations, modules) and print_attrs.c. */
#ifndef WEFT_STABLEHLO_PRINT_H
#define WEFT_STABLEHLO_PRINT_H

#include <stdio.h>

#include "stablehlo/lower.h"

typedef struct shlo_printer {
  FILE *out;
  const mlir_program *program;
  const mlir_module *module;
  weft_arena scratch;
  int next_value;
  int indent;
  bool in_function; /* the block that is being printed belongs to a function directly */
  mlir_location **locations; /* locations that are printed by number, and stand behind the module */
  int location_count, location_capacity, locations_done;
  weft_status *st; /* the first error; printing goes on after it */
} shlo_printer;

/* Takes `st`, and keeps it if it is the first error. */
static inline void shlo_keep(shlo_printer *p, weft_status *st)
{
  if (p->st) weft_status_free(st);
  else p->st = st;
}

static inline void shlo_put(shlo_printer *p, const char *s) { fputs(s, p->out); }

void shlo_print_type(shlo_printer *p, const mlir_type *t);
void shlo_print_string(shlo_printer *p, const char *s, size_t size); /* quoted */
void shlo_print_symbol(shlo_printer *p, const char *s);              /* @name */
void shlo_print_attr(shlo_printer *p, const mlir_attr *a);
WEFT_NODISCARD weft_status *shlo_print_dense(shlo_printer *p, const mlir_attr *a);
void shlo_print_ints(shlo_printer *p, const mlir_attr *a);
/* All attributes except those of `done` (which ends with NULL, or is NULL), the first behind `before`, the others
 * behind ", "; then "}". Prints nothing if there are none. */
void shlo_print_attributes(shlo_printer *p, const mlir_op *op, const char *const *done, const char *before);

void shlo_print_ints_of(shlo_printer *p, const mlir_attr *a, hlo_ints *out);
bool shlo_print_is_dims(const mlir_attr *a); /* a list of numbers */
/* empty, or all elements are the number or word */
bool shlo_print_is_neutral(shlo_printer *p, const mlir_attr *a, const char *neutral);
bool shlo_print_has_algorithm(const mlir_op *op); /* a dot's */

#endif
