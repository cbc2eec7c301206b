/* coord/preemption.c -- when one process gets notice of its preemption, all processes stop at the same step.
 *
 *   notice   key RECEIVED_PREEMPTION_NOTICE: when the process ends, RFC 3339; the first one counts
 *   counters key PREEMPTION_CURRENT_COUNTER/<task>: the last step that the task has begun
 *   barrier  PREEMPTION_SYNC_BARRIER: all have published; the sync point is the largest step + 1
 *
 * One thread waits for the notice (and, asked to, for the flag that the SIGTERM handler sets); it holds `mu` from the
 * moment it reads the step until the sync point is known, so that no step is begun in between. */
#include <config.h>

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weft/coord.h>

#include "base/log.h"
#include "base/thread.h"
#include "coord/agent_internal.h"

#define NOTICE_KEY "RECEIVED_PREEMPTION_NOTICE"
#define COUNTER_DIRECTORY "PREEMPTION_CURRENT_COUNTER"
#define BARRIER_ID "PREEMPTION_SYNC_BARRIER"
#define LONGEST_GET_NS (1 * WEFT_NS_PER_S) /* longest wait before the next look at the signal and at the end */

#define OPTION(member) offsetof(weft_coord_preemption_options, member)
static const weft_option options_table[] = {
  {"WEFT_COORD_PREEMPTION", WEFT_OPT_BOOL, "1", OPTION(enabled), "Agree on a last step when a process is told to end."},
  {"WEFT_COORD_PREEMPTION_SIGTERM", WEFT_OPT_BOOL, "1", OPTION(watch_sigterm), "SIGTERM is such a notice; its handler is replaced."},
  {"WEFT_COORD_PREEMPTION_NOTICE", WEFT_OPT_DURATION, "15m", OPTION(notice_ns), "How long before the end the processes agree."},
  {"WEFT_COORD_PREEMPTION_BARRIER_TIMEOUT", WEFT_OPT_DURATION, "3m", OPTION(barrier_timeout_ns), "Longest wait for all processes to say their step.", "1ns.."},
  {"WEFT_COORD_PREEMPTION_POLL", WEFT_OPT_DURATION, "1s", OPTION(poll_ns), "How often the signal is looked for.", "1ns.."},
};
const weft_option_table weft_coord_preemption_option_table = {"coord preemption", options_table, WEFT_COUNT(options_table)};

weft_status *weft_coord_preemption_options_load(weft_coord_preemption_options *out_options)
{
  return weft_options_load(&weft_coord_preemption_option_table, out_options);
}

/* ---- the signal ---- */

static atomic_bool sigterm_watched; /* by a manager in this process */
static atomic_bool sigterm_came;    /* lock-free, so a handler may set it */

static void on_sigterm(int signal_number)
{
  (void)signal_number;
  atomic_store(&sigterm_came, true);
}

/* ---- the thread ---- */

struct weft_coord_preemption {
  weft_coord_agent *agent;
  weft_kv *kv;
  weft_coord_preemption_options options;
  struct sigaction old_action;
  pthread_t thread;
  atomic_bool ending;   /* free is waiting for the thread */
  bool has_announced;   /* the thread's */
  weft_mutex mu;
  int64_t step WEFT_GUARDED_BY(mu);       /* the last begun; 0: none */
  int64_t sync_point WEFT_GUARDED_BY(mu); /* -1: none agreed on */
};

static int64_t wall_now_ns(void)
{
  struct timespec now;

  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * WEFT_NS_PER_S + now.tv_nsec;
}

/* "2026-11-21T00:41:06.830294307+00:00" */
static void format_time(int64_t wall_ns, char *buf, size_t size)
{
  time_t seconds = (time_t)(wall_ns / WEFT_NS_PER_S);
  struct tm utc;
  size_t n;

  gmtime_r(&seconds, &utc);
  n = strftime(buf, size, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(buf + n, size - n, ".%09" PRId64 "+00:00", wall_ns % WEFT_NS_PER_S);
}

static bool parse_time(const char *text, int64_t *out_wall_ns)
{
  struct tm utc = {0};
  const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
  int64_t fraction = 0, unit = WEFT_NS_PER_S;
  int hours, minutes;
  char sign;

  if (!rest) return false;
  if (*rest == '.')
    for (rest++; *rest >= '0' && *rest <= '9'; rest++)
      if (unit > 1) fraction += (*rest - '0') * (unit /= 10);
  *out_wall_ns = (int64_t)timegm(&utc) * WEFT_NS_PER_S + fraction;
  if (*rest == 'Z' || *rest == 'z' || !*rest) return true;
  if (sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) != 3 || (sign != '+' && sign != '-')) return false;
  *out_wall_ns -= (sign == '+' ? 1 : -1) * (hours * 60 + minutes) * 60 * WEFT_NS_PER_S;
  return true;
}

static weft_status *announce(weft_coord_preemption *p, int64_t death_ns)
{
  char text[64];
  weft_status *st;

  format_time(wall_now_ns() + death_ns, text, sizeof text);
  st = weft_kv_set(p->kv, NOTICE_KEY, text, strlen(text), false);
  if (weft_status_code(st) != WEFT_ALREADY_EXISTS) return st;
  weft_status_free(st); /* another process published its notice first */
  return NULL;
}

weft_status *weft_coord_preemption_announce(weft_coord_preemption *preemption, int64_t death_ns)
{
  return announce(preemption, death_ns);
}

/* The largest step of all tasks. */
static weft_status *largest_step(weft_coord_preemption *p, int64_t *out_step)
{
  weft_coord_entry *entries;
  size_t count;

  WEFT_TRY(weft_coord_agent_list(p->agent, COUNTER_DIRECTORY, &entries, &count));
  *out_step = 0;
  for (size_t i = 0; i < count; i++) *out_step = WEFT_MAX(*out_step, strtoll(entries[i].value, NULL, 10));
  free(entries);
  return count > 0 ? NULL : WEFT_ERR(INTERNAL, "no task has published its step");
}

static weft_status *agree(weft_coord_preemption *p, int64_t step, int64_t *out_sync_point)
{
  char key[64], value[32];
  int64_t largest;

  snprintf(key, sizeof key, COUNTER_DIRECTORY "/%" PRId64, p->agent->options.task_id);
  snprintf(value, sizeof value, "%" PRId64, step);
  WEFT_TRY(weft_kv_set(p->kv, key, value, strlen(value), true));
  WEFT_TRY(weft_coord_agent_barrier(p->agent, BARRIER_ID, p->options.barrier_timeout_ns, NULL, 0));
  WEFT_TRY(largest_step(p, &largest));
  *out_sync_point = largest + 1;
  return NULL;
}

/* Sleeps until the notice's time is near.  False: free is waiting. */
static bool wait_until_near(weft_coord_preemption *p, int64_t death_wall_ns)
{
  while (!atomic_load_explicit(&p->ending, memory_order_acquire)) { /* pairs with the store in free */
    int64_t left = death_wall_ns - wall_now_ns() - p->options.notice_ns;
    struct timespec pause;
    if (left <= 0) return true;
    left = WEFT_MIN(left, p->options.poll_ns);
    pause = (struct timespec){.tv_sec = left / WEFT_NS_PER_S, .tv_nsec = left % WEFT_NS_PER_S};
    nanosleep(&pause, NULL);
  }
  return false;
}

static void on_notice(weft_coord_preemption *p, const char *notice)
{
  int64_t death_wall_ns, sync_point = -1;
  weft_status *st;

  if (!parse_time(notice, &death_wall_ns)) death_wall_ns = wall_now_ns();
  WEFT_LOG("coord", WARN, "a process of the job ends at %s: the processes agree on a last step", notice);
  if (!wait_until_near(p, death_wall_ns)) return;
  weft_mutex_lock(&p->mu);
  st = agree(p, p->step, &sync_point);
  if (!st) p->sync_point = sync_point;
  weft_mutex_unlock(&p->mu);
  if (st) WEFT_LOG("coord", WARN, "no sync point before the preemption: %s", weft_status_message(st));
  weft_status_free(st);
}

static void *listen_for_notice(void *arg)
{
  weft_coord_preemption *p = arg;

  while (!atomic_load_explicit(&p->ending, memory_order_acquire)) { /* pairs with the store in free */
    WEFT_AUTO_STR notice = NULL;
    size_t size;
    weft_status *st;
    if (p->options.watch_sigterm && atomic_load(&sigterm_came) && !p->has_announced) {
      st = announce(p, 0);
      p->has_announced = st == NULL;
      weft_status_free(st);
    }
    st = weft_kv_get(p->kv, NOTICE_KEY, weft_deadline_after_ns(WEFT_MIN(p->options.poll_ns, LONGEST_GET_NS)), &notice,
                     &size);
    if (!st) {
      on_notice(p, notice);
      return NULL; /* one sync point in a job's life */
    }
    if (weft_status_code(st) != WEFT_DEADLINE_EXCEEDED) { /* the agent is leaving, or the service is gone */
      weft_status_free(st);
      return NULL;
    }
    weft_status_free(st);
  }
  return NULL;
}

/* ---- the interface ---- */

bool weft_coord_preemption_reached_sync_point(weft_coord_preemption *preemption, int64_t step)
{
  bool reached;

  weft_mutex_lock(&preemption->mu);
  preemption->step = step;
  reached = preemption->sync_point == step;
  weft_mutex_unlock(&preemption->mu);
  return reached;
}

static weft_status *watch_sigterm(weft_coord_preemption *p)
{
  struct sigaction action = {.sa_handler = on_sigterm, .sa_flags = SA_RESTART};

  if (atomic_exchange(&sigterm_watched, true))
    return WEFT_ERR(FAILED_PRECONDITION, "another preemption manager of this process watches SIGTERM");
  atomic_store(&sigterm_came, false);
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &p->old_action);
  return NULL;
}

static void unwatch_sigterm(weft_coord_preemption *p)
{
  sigaction(SIGTERM, &p->old_action, NULL);
  atomic_store(&sigterm_watched, false);
}

weft_status *weft_coord_preemption_new(weft_coord_agent *agent, const weft_coord_preemption_options *options,
                                       weft_coord_preemption **out_preemption) WEFT_UNSHARED
{
  weft_coord_preemption *p;
  weft_status *st = NULL;

  *out_preemption = NULL;
  if (!options->enabled) return WEFT_ERR(FAILED_PRECONDITION, "preemption is switched off (WEFT_COORD_PREEMPTION=0)");
  if (options->poll_ns <= 0 || options->barrier_timeout_ns <= 0)
    return WEFT_ERR(INVALID_ARGUMENT, "WEFT_COORD_PREEMPTION_POLL and _BARRIER_TIMEOUT must be positive");
  p = calloc(1, sizeof *p);
  WEFT_TRY_ALLOC(p);
  p->agent = agent;
  p->options = *options;
  p->sync_point = -1;
  weft_mutex_init(&p->mu);
  st = weft_coord_agent_kv(agent, &p->kv);
  if (!st && options->watch_sigterm) st = watch_sigterm(p);
  if (!st) {
    st = weft_thread_start(&p->thread, "weft-preempt", listen_for_notice, p);
    if (st && options->watch_sigterm) unwatch_sigterm(p);
  }
  if (!st) {
    *out_preemption = p;
    return NULL;
  }
  weft_kv_destroy(p->kv);
  weft_mutex_fini(&p->mu);
  free(p);
  return st;
}

void weft_coord_preemption_free(weft_coord_preemption *preemption)
{
  if (!preemption) return;
  atomic_store_explicit(&preemption->ending, true, memory_order_release); /* pairs with the thread's loads */
  weft_status_ignore(weft_coord_agent_barrier_cancel(preemption->agent, BARRIER_ID));
  pthread_join(preemption->thread, NULL);
  if (preemption->options.watch_sigterm) unwatch_sigterm(preemption);
  weft_kv_destroy(preemption->kv);
  weft_mutex_fini(&preemption->mu);
  free(preemption);
}
