/* runtime/trace_signals.c -- writes the file of WEFT_TRACE when a signal comes (trace_signals.h). */
#include <config.h>

#include "runtime/trace_signals.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "runtime/trace.h"

/* A signal. The handler reads the constant members and `old`, which is set before the handler is installed. */
typedef struct watched {
  int number;
  bool ends; /* true: the signal's default action follows when the file is written; false: the process goes on */
  /* stays true at the end if a handler that was installed later replaced this one, and may call it */
  bool is_installed;
  struct sigaction old;
  atomic_bool came; /* the thread has yet to write the file */
} watched;

static watched signals[] = {{.number = SIGTERM, .ends = true}, {.number = SIGINT, .ends = true}, {.number = SIGUSR1}};
static atomic_int owner;   /* the process that has the thread; 0: there is none */
static atomic_bool ending; /* the thread is to return */
static sem_t wake;
static weft_mutex mu = WEFT_MUTEX_INITIALIZER;
static int platforms WEFT_GUARDED_BY(mu);
static pthread_t thread WEFT_GUARDED_BY(mu);

static bool has_handler(const struct sigaction *action)
{
  return action->sa_flags & SA_SIGINFO || (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

/* The signal's default action follows once it is not blocked. */
static void act_by_default(int number)
{
  struct sigaction action = {.sa_handler = SIG_DFL};

  sigemptyset(&action.sa_mask);
  sigaction(number, &action, NULL);
  kill(getpid(), number);
}

/* Calls only what POSIX allows in a handler. */
static void on_signal(int number, siginfo_t *info, void *context)
{
  int saved = errno, process = atomic_load(&owner);
  watched *w = signals;

  while (w->number != number) w++;
  bool is_owner = process == getpid(), again = is_owner && atomic_exchange(&w->came, true);
  if (is_owner && !again) sem_post(&wake);
  if (w->old.sa_flags & SA_SIGINFO) w->old.sa_sigaction(number, info, context);
  else if (has_handler(&w->old)) w->old.sa_handler(number);
  else if (!is_owner || (again && w->ends)) act_by_default(number);
  errno = saved;
}

static void *write_when_woken(void *arg)
{
  (void)arg;
  for (bool last = false; !last;) {
    if (sem_wait(&wake) != 0) continue; /* no deadline: the thread sleeps until a signal comes or the process ends */
    last = atomic_load(&ending);        /* a signal that came before is still served */
    for (size_t i = 0; i < WEFT_COUNT(signals); i++) {
      watched *w = &signals[i];
      if (!atomic_load(&w->came)) continue;
      weft_status *st = rt_trace_flush();
      if (st) WEFT_LOG("rt", WARN, "%s", weft_status_text(st, false));
      weft_status_free(st);
      atomic_store(&w->came, false);
      if (w->ends && !has_handler(&w->old)) act_by_default(w->number);
    }
  }
  return NULL;
}

/* A handler that wants to be removed when it was called, or a signal that is ignored, is left alone. */
static void install(watched *w)
{
  struct sigaction action = {.sa_sigaction = on_signal};

  if (w->is_installed) return; /* otherwise the two handlers would call each other for ever */
  w->is_installed = sigaction(w->number, NULL, &w->old) == 0 && !(w->old.sa_flags & SA_RESETHAND) &&
                    (has_handler(&w->old) || w->old.sa_handler == SIG_DFL);
  if (!w->is_installed) return;
  action.sa_mask = w->old.sa_mask;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (has_handler(&w->old) ? w->old.sa_flags : SA_RESTART);
  sigaction(w->number, &action, NULL);
}

/* Puts the earlier action back, if the handler has not been replaced since. */
static void remove_handler(watched *w)
{
  struct sigaction now;

  if (!w->is_installed || sigaction(w->number, NULL, &now) != 0) return;
  if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_signal) return;
  sigaction(w->number, &w->old, NULL);
  w->is_installed = false;
}

static weft_status *begin_locked(void) WEFT_REQUIRES(mu)
{
  weft_mutex_assert_held(&mu);
  if (sem_init(&wake, 0, 0) != 0) return WEFT_ERR(UNKNOWN, "WEFT_TRACE: sem_init: %s", strerror(errno));
  atomic_store(&ending, false);
  WEFT_TRY(weft_thread_start(&thread, "weft-trace", write_when_woken, NULL));
  atomic_store(&owner, getpid());
  for (size_t i = 0; i < WEFT_COUNT(signals); i++) install(&signals[i]);
  return NULL;
}

weft_status *rt_trace_signals_begin(void)
{
  weft_status *st = NULL;

  if (!rt_trace_has_file()) return NULL;
  weft_mutex_lock(&mu);
  if (platforms == 0) st = begin_locked();
  platforms += !st;
  weft_mutex_unlock(&mu);
  return st;
}

void rt_trace_signals_end(void)
{
  weft_mutex_lock(&mu);
  if (platforms > 0 && --platforms == 0 && atomic_load(&owner) == getpid()) {
    for (size_t i = 0; i < WEFT_COUNT(signals); i++) remove_handler(&signals[i]);
    atomic_store(&ending, true);
    sem_post(&wake);
    pthread_join(thread, NULL);
    /* The semaphore stays: a handler that was installed later may still call ours. */
    atomic_store(&owner, 0);
  }
  weft_mutex_unlock(&mu);
}
