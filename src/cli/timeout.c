/* cli/timeout.c -- a thread that ends the command when its time is over (timeout.h). */
#include <config.h>

#include "cli/timeout.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/cli.h"
#include "runtime/trace.h"

static void *watch(void *arg)
{
  cli_timeout *t = arg;
  weft_deadline deadline = weft_deadline_after_ns(t->limit_ns);
  bool in_time = true;

  weft_mutex_lock(&t->mu);
  while (!t->ended && in_time) in_time = weft_cond_wait(&t->changed, &t->mu, deadline);
  bool ended = t->ended;
  weft_mutex_unlock(&t->mu);
  if (ended) return NULL;
  fprintf(stderr, "weft %s: DEADLINE_EXCEEDED: --timeout: %g s have passed while it was %s\n", t->command,
          (double)t->limit_ns / 1e9, atomic_load(&t->doing));
  weft_status_ignore(rt_trace_flush()); /* the process ends with an error in any case */
  _exit(CLI_FAILED);
}

weft_status *cli_timeout_begin(cli_timeout *t, const char *command, int64_t limit_ns)
{
  *t = (cli_timeout){.limit_ns = limit_ns, .command = command, .doing = "starting"};
  if (limit_ns <= 0) return NULL;
  weft_mutex_init(&t->mu);
  weft_cond_init(&t->changed);
  WEFT_TRY(weft_thread_start(&t->thread, "timeout", watch, t));
  t->runs = true;
  return NULL;
}

void cli_timeout_say(cli_timeout *t, const char *doing) { atomic_store(&t->doing, doing); }

void cli_timeout_end(cli_timeout *t)
{
  if (!t->runs) return;
  weft_mutex_lock(&t->mu);
  t->ended = true;
  weft_cond_signal(&t->changed);
  weft_mutex_unlock(&t->mu);
  pthread_join(t->thread, NULL);
  weft_cond_fini(&t->changed);
  weft_mutex_fini(&t->mu);
  t->runs = false;
}
