/* cli/progress.h -- one line on a terminal while a compilation takes long. */
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

/* From a second on the line says for how long the compilation has been going on; it is gone when the compilation ends.
 * Nothing happens unless standard error is a terminal. */
void cli_progress_begin(cli_progress *p);
void cli_progress_end(cli_progress *p);

#endif
