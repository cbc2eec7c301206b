/* cli/profile.h -- where the time of a run went: a table by step, and a drawing by thread. */
#ifndef WEFT_CLI_PROFILE_H
#define WEFT_CLI_PROFILE_H

#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"
#include "hlo/hlo.h"

typedef struct cli_span cli_span;
typedef struct cli_step cli_step;

typedef struct cli_profile {
  int64_t begin, end;          /* of the run, weft_now_ns() */
  cli_span *spans;             /* by thread, then time */
  size_t span_count, thread_count;
  cli_step *steps;             /* that with most time first */
  size_t step_count;
  int64_t busy_ns;             /* of all threads */
} cli_profile;

/* What this process runs from here to cli_profile_end is recorded. */
void cli_profile_begin(cli_profile *profile);
/* Once after each cli_profile_begin.  Memory is the arena's. */
WEFT_NODISCARD weft_status *cli_profile_end(cli_profile *profile, weft_arena *arena);

/* `module`: as it was executed, for where steps come from; or NULL. */
void cli_profile_print(const cli_profile *profile, const hlo_module *module, FILE *out);
/* An array of {"kind", "name", "count", "self_ms"}. */
void cli_profile_json(const cli_profile *profile, FILE *out);
/* An SVG: time from left to right, a band for each thread, what was called below what called it. */
WEFT_NODISCARD weft_status *cli_profile_draw(const cli_profile *profile, const char *title, FILE *out);

#endif
