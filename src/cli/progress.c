/* cli/progress.c -- see progress.h. */
#include <config.h>

#include "cli/progress.h"

#include "base/deadline.h"

#include <stdio.h>
#include <unistd.h>

enum { FIRST_MS = 1000, STEP_MS = 200 };

static void *show(void *arg)
{
  cli_progress *p = arg;
  int64_t start = weft_now_ns();
  weft_deadline next = weft_deadline_after_ms(FIRST_MS);
  bool shown = false;

  weft_mutex_lock(&p->mu);
  while (!p->ended) {
    if (weft_cond_wait(&p->changed, &p->mu, next)) continue;
    fprintf(stderr, "\r\033[Kcompiling for %.1f s", (double)(weft_now_ns() - start) / 1e9);
    shown = true;
    next = weft_deadline_after_ms(STEP_MS);
  }
  weft_mutex_unlock(&p->mu);
  if (shown) fputs("\r\033[K", stderr);
  return NULL;
}

void cli_progress_begin(cli_progress *p)
{
  weft_status *st;

  *p = (cli_progress){0};
  if (!isatty(STDERR_FILENO)) return;
  weft_mutex_init(&p->mu);
  weft_cond_init(&p->changed);
  st = weft_thread_start(&p->thread, "progress", show, p);
  p->runs = !st;
  weft_status_ignore(st); /* then there is no line */
}

void cli_progress_end(cli_progress *p)
{
  if (!p->runs) return;
  weft_mutex_lock(&p->mu);
  p->ended = true;
  weft_cond_signal(&p->changed);
  weft_mutex_unlock(&p->mu);
  pthread_join(p->thread, NULL);
  weft_cond_fini(&p->changed);
  weft_mutex_fini(&p->mu);
}
