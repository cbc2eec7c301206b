/* base/thread.c -- mutexes and condition variables that clang's -Wthread-safety understands (thread.h). */
#include <config.h>

#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void note_holder(weft_mutex *mu, bool held)
{
#ifndef NDEBUG
  atomic_store_explicit(&mu->holder, held ? pthread_self() : (pthread_t)0, memory_order_relaxed);
#else
  (void)mu;
  (void)held;
#endif
}

void weft_mutex_init(weft_mutex *mu)
{
  mu->impl = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* what pthread_mutex_init does, in a few stores */
  note_holder(mu, false);
}

void weft_mutex_fini(weft_mutex *mu) { pthread_mutex_destroy(&mu->impl); }

void weft_mutex_lock(weft_mutex *mu) WEFT_NO_THREAD_SAFETY
{
  pthread_mutex_lock(&mu->impl);
  note_holder(mu, true);
}

bool weft_mutex_try_lock(weft_mutex *mu) WEFT_NO_THREAD_SAFETY
{
  if (pthread_mutex_trylock(&mu->impl) != 0) return false;
  note_holder(mu, true);
  return true;
}

void weft_mutex_unlock(weft_mutex *mu) WEFT_NO_THREAD_SAFETY
{
  note_holder(mu, false);
  pthread_mutex_unlock(&mu->impl);
}

#ifndef NDEBUG
void weft_mutex_assert_held(const weft_mutex *mu)
{
  assert(pthread_equal(atomic_load_explicit(&mu->holder, memory_order_relaxed), pthread_self()));
}
#endif

static pthread_condattr_t monotonic;
static void make_monotonic(void)
{
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
}

void weft_cond_init(weft_cond *cond)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, make_monotonic);
  pthread_cond_init(&cond->impl, &monotonic);
}

void weft_cond_fini(weft_cond *cond) { pthread_cond_destroy(&cond->impl); }
void weft_cond_signal(weft_cond *cond) { pthread_cond_signal(&cond->impl); }
void weft_cond_broadcast(weft_cond *cond) { pthread_cond_broadcast(&cond->impl); }

bool weft_cond_wait(weft_cond *cond, weft_mutex *mu, weft_deadline deadline)
{
  int rc;

  weft_mutex_assert_held(mu);
  note_holder(mu, false);
  if (deadline.at_ns == INT64_MAX) {
    rc = pthread_cond_wait(&cond->impl, &mu->impl);
  } else {
    struct timespec until = weft_deadline_timespec(deadline);
    rc = pthread_cond_timedwait(&cond->impl, &mu->impl, &until);
  }
  note_holder(mu, true);
  return rc != ETIMEDOUT;
}

weft_status *weft_thread_start(pthread_t *out_thread, const char *name, void *(*run)(void *arg), void *arg)
{
  sigset_t all, before;
  char short_name[16];
  int rc;

  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  rc = pthread_create(out_thread, NULL, run, arg);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (rc != 0) return WEFT_ERR(RESOURCE_EXHAUSTED, "cannot start thread \"%s\": %s", name, strerror(rc));
  snprintf(short_name, sizeof short_name, "%s", name);
  pthread_setname_np(*out_thread, short_name);
  return NULL;
}

bool weft_thread_flush_denormals(bool flush)
{
#if defined __x86_64__
  const unsigned both = 0x8040; /* flush to zero, denormals are zero: Intel SDM, MXCSR */
  unsigned was = __builtin_ia32_stmxcsr(), now = flush ? was | both : was & ~both;
  if (now != was) __builtin_ia32_ldmxcsr(now);
  return (was & both) == both;
#elif defined __aarch64__
  const uint64_t fz = UINT64_C(1) << 24; /* Arm ARM, FPCR */
  uint64_t was;
  __asm__ volatile("mrs %0, fpcr" : "=r"(was));
  __asm__ volatile("msr fpcr, %0" : : "r"(flush ? was | fz : was & ~fz));
  return (was & fz) != 0;
#else
  (void)flush;
  return false;
#endif
}
