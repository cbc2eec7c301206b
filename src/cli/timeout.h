/* cli/timeout.h -- the limit that a user sets to the time of a whole command. */
#ifndef WEFT_CLI_TIMEOUT_H
#define WEFT_CLI_TIMEOUT_H

#include "base/thread.h"

typedef struct cli_timeout {
  weft_mutex mu;
  weft_cond changed;
  bool ended WEFT_GUARDED_BY(mu);
  bool runs;
  pthread_t thread;
  int64_t limit_ns;
  const char *command;          /* borrowed */
  _Atomic(const char *) doing;  /* borrowed; what the command is doing: "compiling" */
} cli_timeout;

/* Starts the clock; `limit_ns` 0: there is no limit. When the limit passes before cli_timeout_end, the process says
 * on standard error what it was doing and exits with CLI_FAILED: it does not wait for anything that may hang.
 * Errors: RESOURCE_EXHAUSTED, no thread could be started. */
WEFT_NODISCARD weft_status *cli_timeout_begin(cli_timeout *timeout, const char *command, int64_t limit_ns);
/* Sets what the command is doing from here on, as words after "while it was". */
void cli_timeout_say(cli_timeout *timeout, const char *doing);
/* May be called without cli_timeout_begin if *timeout is zero. */
void cli_timeout_end(cli_timeout *timeout);

#endif
