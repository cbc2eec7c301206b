/* cli/profile.h -- shows where the time of a run went: a table by step, and a drawing by thread. */
#ifndef WEFT_CLI_PROFILE_H
#define WEFT_CLI_PROFILE_H

#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"
#include "cli/json.h"
#include "cli/limits.h"
#include "hlo/hlo.h"

typedef struct cli_span cli_span;
typedef struct cli_step cli_step;

typedef struct cli_profile {
  int64_t begin, end;          /* times of the run's start and end, by weft_now_ns() */
  cli_span *spans;             /* sorted by thread, then by time */
  size_t span_count, thread_count; /* a device with a clock of its own counts as a thread */
  cli_step *steps;             /* sorted by time, the longest first */
  size_t step_count;
  int64_t busy_ns;             /* of all threads and devices */
  int aside_count;             /* rows of devices' collectives, which count as threads too */
  int device_count;            /* devices that reported the times of their steps; 0: all times are the host's */
  int64_t queuing_ns;          /* if there are such devices: what the host took to queue their steps */
  cli_limits limits;           /* of this machine; zeros before cli_profile_explain */
} cli_profile;

/* Records what this process runs until cli_profile_end. */
void cli_profile_begin(cli_profile *profile);
/* Call it once after each cli_profile_begin. The memory belongs to the arena. */
WEFT_NODISCARD weft_status *cli_profile_end(cli_profile *profile, weft_arena *arena);

/* Finds the work of the steps in the module as it was executed (borrowed: it must outlive the profile), and measures
 * the limits of the machine with as many threads as the run had, unless devices have executed the steps. */
WEFT_NODISCARD weft_status *cli_profile_explain(cli_profile *profile, const hlo_module *module, int threads,
                                                weft_arena *arena);

/* Prints the table. Without cli_profile_explain it has neither work nor limits. */
void cli_profile_print(const cli_profile *profile, FILE *out);
/* Writes the table as the JSON array "profile" of {"kind", "name", "count", "self_ms", "mean_us", "flops", "bytes",
 * "rounds"}: self_ms of all threads, mean_us of one execution, "flops" and
 * "bytes" of one execution, "rounds" of loops. */
void cli_profile_json(const cli_profile *profile, cli_json *json);
/* Writes the object "profile" of the page (cli/page.h), with the timeline. */
void cli_profile_page(const cli_profile *profile, cli_json *json);
/* Writes an SVG: time runs from left to right, each thread has a band, and a step stands below the step that
 * contains it. */
WEFT_NODISCARD weft_status *cli_profile_draw(const cli_profile *profile, const char *title, FILE *out);

#endif
