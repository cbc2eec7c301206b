/* cli/program.h -- a program from a file, and inputs to run it on. */
#ifndef WEFT_CLI_PROGRAM_H
#define WEFT_CLI_PROGRAM_H

#include <stdint.h>
#include <stdio.h>

#include "hlo/hlo.h"

/* The bytes of a program, in a form that PJRT plugins take. */
typedef struct cli_code {
  const void *bytes;
  size_t size;
  const char *format; /* "mlir" or "hlo"; "weft": machine code from `weft compile` */
} cli_code;

typedef struct cli_program {
  hlo_module *module; /* owned */
  cli_code code;
  void *memory;       /* owned; the bytes of the program */
} cli_program;

/* Reads, parses and verifies a program. Its first bytes tell the format: HLO text, HloModuleProto, StableHLO text or
 * bytecode, or a file of `weft compile`, whose module is the optimised one. The shapes of `inputs` (.npy files, one for
 * each argument), and the values of integer inputs, decide the unknown dimensions of a StableHLO program. *out_program
 * must be destroyed also after an error. */
WEFT_NODISCARD weft_status *cli_load_program(const char *path, int input_count, const char *const *inputs,
                                             cli_program *out_program);
void cli_program_fini(cli_program *program);

/* The module alone. */
WEFT_NODISCARD weft_status *cli_load_module(const char *path, hlo_module **out_module);

/* The numbers of replicas and partitions that `module` runs as: those that it states. With `devices` > 0 their product
 * is `devices`: the program keeps its partitions and changes its replicas, unless it states partitions alone or
 * `devices` is no multiple of them. */
void cli_counts(const hlo_module *module, int devices, int64_t *out_replicas, int64_t *out_partitions);

/* The number of devices that `module` is written for: its replicas times its partitions, or one more than the highest
 * number in the groups and pairs of its collectives, whichever is more. */
int64_t cli_devices_named(const hlo_module *module);

/* The program of a file, HLO or StableHLO, as StableHLO text. Errors: UNIMPLEMENTED for HLO that StableHLO cannot
 * express. */
WEFT_NODISCARD weft_status *cli_print_stablehlo(const char *path, FILE *out);

/* The values that an input may take if the program is to compute something sensible. */
typedef struct cli_range {
  double low, high; /* the range of floats [low, high), and of integers */
} cli_range;

/* A range for each leaf of the entry's parameters, found by following its values through the program: indices stay
 * inside what they index, arguments of log and sqrt are positive, and weights are small enough that deep programs
 * stay finite. *out_ranges has hlo_shape_leaf_count() entries for each parameter in order, in `arena`. */
WEFT_NODISCARD weft_status *cli_input_ranges(const hlo_module *module, weft_arena *arena, cli_range **out_ranges);

/* Fills `data` (row-major, of the shape's element type) with pseudo-random values in the range. Element i of input
 * `input` depends on (seed, input, i) alone. */
void cli_fill_input(const hlo_shape *shape, cli_range range, uint64_t seed, int input, void *data);

#endif
