/* cli/compiled.h -- a program compiled by this command itself, with what each stage made of it. */
#ifndef WEFT_CLI_COMPILED_H
#define WEFT_CLI_COMPILED_H

#include "cli/passes.h"
#include "runtime/executable.h"
#include "runtime/platform.h"

typedef struct cli_compiled {
  cli_passes passes;      /* set by the caller before cli_compile: see cli/passes.h */
  weft_platform *platform;
  weft_executable *exe;
} cli_compiled;

/* Compiles `module` (taken, also on failure) for `devices` devices; 0: as many as the module states. `options` gets
 * the counts of replicas and partitions, and the observer. *out must be destroyed also after an error. */
WEFT_NODISCARD weft_status *cli_compile(hlo_module *module, int devices, weft_compile_options *options,
                                        cli_compiled *out);
void cli_compiled_fini(cli_compiled *compiled);

/* Writes the figures of the plan into the object that is open: sizes in bytes, the peak, the critical path. */
void cli_show_sizes(const buf_plan *plan, cli_json *json);
/* Writes the memory plan as the object "memory": sizes in bytes, the peak, parameters, results and all buffers. */
void cli_show_memory(const buf_plan *plan, cli_json *json);
/* Writes the arrays "sequences", the computations that run by steps, each with its longest path, and "steps", what is
 * executed and what waits for each step. */
void cli_show_steps(const weft_executable *exe, cli_json *json);

#endif
