/* cli/program.h -- a program from a file, and inputs to run it on. */
#ifndef WEFT_CLI_PROGRAM_H
#define WEFT_CLI_PROGRAM_H

#include <stdint.h>
#include <stdio.h>

#include "hlo/hlo.h"

/* A program's bytes as PJRT plugins take them. */
typedef struct cli_code {
  const void *bytes;
  size_t size;
  const char *format; /* "mlir" or "hlo" */
} cli_code;

typedef struct cli_program {
  hlo_module *module; /* owned */
  cli_code code;
  void *memory;       /* owned: of the code */
} cli_program;

/* Reads, parses and verifies a program; the format (HLO text, HloModuleProto, StableHLO text or bytecode) is told by
 * its first bytes.  The shapes of `inputs` (.npy files, one an argument), and the values of integers among them, decide
 * the unknown dimensions of a StableHLO program.  *out_program is to be ended also after an error. */
WEFT_NODISCARD weft_status *cli_load_program(const char *path, int input_count, const char *const *inputs,
                                             cli_program *out_program);
void cli_program_fini(cli_program *program);

/* The module alone. */
WEFT_NODISCARD weft_status *cli_load_module(const char *path, hlo_module **out_module);

/* How many replicas and partitions `module` runs as: what it says, or on `devices` > 1 so many partitions if it has partitions,
 * else replicas. */
void cli_counts(const hlo_module *module, int devices, int64_t *out_replicas, int64_t *out_partitions);

/* The program of a file, HLO or StableHLO, as StableHLO text.  Errors: UNIMPLEMENTED for HLO that StableHLO has no word for. */
WEFT_NODISCARD weft_status *cli_print_stablehlo(const char *path, FILE *out);

/* What values an input may take so that the program does something sensible with it. */
typedef struct cli_range {
  double low, high; /* floats: [low, high); integers: [low, high) too */
} cli_range;

/* A range for each leaf of the entry's parameters, from where its values flow: indices stay inside what they index,
 * arguments of log and sqrt are positive, weights are small enough that deep programs stay finite.
 * *out_ranges has hlo_shape_leaf_count() entries for each parameter in order, in `arena`. */
WEFT_NODISCARD weft_status *cli_input_ranges(const hlo_module *module, weft_arena *arena, cli_range **out_ranges);

/* Fills `data` (row-major, shape's element type) with pseudo-random values in the range: element i of input `input`
 * depends on (seed, input, i) alone. */
void cli_fill_input(const hlo_shape *shape, cli_range range, uint64_t seed, int input, void *data);

#endif
