/* cli/run.h -- the state of one `weft run`, shared by its parts: running, comparing, reporting. */
#ifndef WEFT_CLI_RUN_H
#define WEFT_CLI_RUN_H

#include "cli/cli.h"
#include "cli/profile.h"
#include "cli/program.h"
#include "cli/session.h"
#include "cli/timeout.h"

typedef struct run_options {
  const char *program;
  const char **inputs;       /* .npy files by parameter leaf; it has room for every word of the command line */
  int input_count;
  int64_t seed, repeat, devices, threads, timeout_ns;
  const char *output_dir, *input_dir, *expect_dir;
  double rtol, atol;         /* negative: the default of the element type */
  bool json, reference, quiet, profile, alone;
  const char *plugin, *other; /* files; NULL: this command's own plugin, and no other one to compare with */
  const char *memory, *timeline, *html;
} run_options;

/* The errors of all floats that have been compared. */
typedef struct run_error {
  double largest;            /* |got - want| */
  double share;              /* the largest share of its tolerance that an error has */
} run_error;

typedef struct run_state {
  const run_options *o;
  weft_arena arena;
  cli_program program;       /* its module is also the reference, and decides which values inputs may take */
  cli_job job;
  cli_session session;
  int devices, params, outputs; /* devices of this process */
  int first_device;          /* the number of the first of them in the program */
  hlo_literal **arguments;   /* one for each parameter leaf, the same on every device */
  hlo_literal **values;      /* results on the host: [device * outputs + leaf] */
  cli_profile profile;
  hlo_module *optimized;     /* as it was executed, for the profile; owned; NULL without one */
  cli_timeout timeout;
  double load_ms, compile_ms, first_ms, median_ms, min_ms;
  int comparisons;           /* results that have been compared */
  int differences;           /* results that differ by more than the tolerance */
  run_error error;
} run_state;

/* What the program needs from a plugin (a file; NULL: this command's own) and from the job. */
WEFT_NODISCARD weft_status *run_session_options(run_state *s, const char *plugin, cli_session_options *out);
/* Reads an .npy file as a literal of type `type`, allocated in the arena. */
WEFT_NODISCARD weft_status *run_read_literal(run_state *s, const char *path, weft_dtype type, hlo_literal **out_value);
/* Leaf `leaf` of a value. */
const hlo_literal *run_literal_leaf(const hlo_literal *value, int leaf);

/* Compares the results as the options ask, says where they differ most, and counts the results that differ. */
WEFT_NODISCARD weft_status *run_compare(run_state *s);
/* Prints figures and results, as text or as JSON, on standard output. */
WEFT_NODISCARD weft_status *run_report(run_state *s);
void run_print_values(const run_state *s);

#endif
