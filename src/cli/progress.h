/* cli/progress.h -- a line on the terminal while a compilation takes long. */
#ifndef WEFT_CLI_PROGRESS_H
#define WEFT_CLI_PROGRESS_H

#include "base/thread.h"

typedef struct cli_progress {
  weft_mutex mu;
  weft_cond changed;
  bool ended WEFT_GUARDED_BY(mu);
  bool runs;
  pthread_t thread;
} cli_progress;

/* After one second the line says how long the compilation has taken so far; it disappears when the compilation ends.
 * Nothing is printed unless standard error is a terminal. */
void cli_progress_begin(cli_progress *p);
void cli_progress_end(cli_progress *p);

#endif
