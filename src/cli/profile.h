/* cli/profile.h -- shows where the time of a run went: a table by step, and a drawing by thread. */
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
  int64_t begin, end;          /* times of the run's start and end, by weft_now_ns() */
  cli_span *spans;             /* sorted by thread, then by time */
  size_t span_count, thread_count;
  cli_step *steps;             /* sorted by time, the longest first */
  size_t step_count;
  int64_t busy_ns;             /* of all threads */
} cli_profile;

/* Records what this process runs until cli_profile_end. */
void cli_profile_begin(cli_profile *profile);
/* Call it once after each cli_profile_begin. The memory belongs to the arena. */
WEFT_NODISCARD weft_status *cli_profile_end(cli_profile *profile, weft_arena *arena);

/* Prints the table. `module` is the module as it was executed, from which the operations of steps come; or NULL. */
void cli_profile_print(const cli_profile *profile, const hlo_module *module, FILE *out);
/* Prints the table as a JSON array of {"kind", "name", "count", "self_ms"}. */
void cli_profile_json(const cli_profile *profile, FILE *out);
/* Writes an SVG: time runs from left to right, each thread has a band, and a step stands below the step that
 * contains it. */
WEFT_NODISCARD weft_status *cli_profile_draw(const cli_profile *profile, const char *title, FILE *out);

#endif
