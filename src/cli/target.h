/* cli/target.h -- what `weft inspect --target` shows. */
#ifndef WEFT_CLI_TARGET_H
#define WEFT_CLI_TARGET_H

#include "hlo/text.h"
#include "passes/pass.h"

typedef struct cli_target_options {
  const char *target;       /* a GPU by name, a processor, or a file (gen_gpu_target_load) */
  const char *kernel;       /* print the PTX of this fusion; NULL: list all kernels */
  bool kernels;             /* list them even if there is an observer */
  bool optimized;           /* print the module as its kernels are made of it */
  pass_observer *observer;  /* or NULL */
  void *observer_ctx;
} cli_target_options;

/* Prints, on standard output, what GPU code generation makes of `module`, which the passes of GPUs change. Errors:
 * INVALID_ARGUMENT for a target that is not known; NOT_FOUND for a kernel that is not there. */
WEFT_NODISCARD weft_status *cli_inspect_target(const cli_target_options *o, hlo_module *module);

#endif
