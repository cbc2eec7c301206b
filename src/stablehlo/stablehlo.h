/* stablehlo/stablehlo.h -- reads StableHLO programs and makes HLO modules of them. It reads MLIR text (StableHLO,
 * CHLO, VHLO, func, check, interpreter, sdy) and portable artifacts (MLIR bytecode with VHLO of every version from
 * 0.9 on, or with StableHLO's own dialect). One lowering turns both into HLO. */
#ifndef WEFT_STABLEHLO_STABLEHLO_H
#define WEFT_STABLEHLO_STABLEHLO_H

#include <stdio.h>

#include "hlo/hlo.h"

typedef struct shlo_program shlo_program;

typedef struct shlo_options {
  const char *function;  /* the entry function; NULL: "main", or else the first public function */
  int module;            /* which module of a split file (`// -----`) */
  int argument_count;    /* if not 0: the shapes of the entry's arguments, which decide its `?` dimensions (borrowed) */
  const hlo_shape *const *argument_shapes;     /* with the element type WEFT_INVALID the declared type stays */
  /* if not NULL: by argument, the values that sizes may depend on, or NULL */
  const hlo_literal *const *argument_values;
} shlo_options;

/* True for bytes that look like a StableHLO program: the magic number of MLIR bytecode, or text that is MLIR and not
 * HLO. */
bool shlo_is_program(const void *bytes, size_t size);

/* Reads and lowers in one step.  `options` may be NULL.  The module is not verified.
 * Errors: INVALID_ARGUMENT with a position ("12:5: ...", "byte 345: ...");
 * UNIMPLEMENTED naming what is not supported. */
WEFT_NODISCARD weft_status *shlo_parse(const void *bytes, size_t size, const shlo_options *options,
                                       hlo_module **out_module);

/* The two steps. A program borrows `bytes` until it is freed. It may be lowered any number of times, by one thread
 * at a time. Modules do not refer to the program. */
WEFT_NODISCARD weft_status *shlo_read(const void *bytes, size_t size, shlo_program **out_program);
void shlo_program_free(shlo_program *program); /* NULL is fine */
WEFT_DEFINE_AUTO(shlo_program, shlo_program_free)
int shlo_module_count(const shlo_program *program);
int shlo_function_count(const shlo_program *program, int module);
bool shlo_is_dynamic(const shlo_program *program, int module); /* the program has dimensions that are not known */
const char *shlo_function_name(const shlo_program *program, int module, int function);
bool shlo_function_is_public(const shlo_program *program, int module, int function);
/* The program, in whatever form it was read, as StableHLO text that MLIR's own parser accepts. */
WEFT_NODISCARD weft_status *shlo_print(const shlo_program *program, FILE *out);
/* An HLO module as such text. Parameters and results of the entry keep their layouts, shardings and aliases. Copies,
 * fusions and the split of asynchronous operations disappear. Errors: UNIMPLEMENTED naming an instruction that
 * StableHLO cannot express (sparse dots, permutes in place). */
WEFT_NODISCARD weft_status *shlo_print_hlo(const hlo_module *module, FILE *out);
WEFT_NODISCARD weft_status *shlo_lower(shlo_program *program, const shlo_options *options, hlo_module **out_module);

#endif
