/* base/thread.h -- mutexes and condition variables that clang's -Wthread-safety understands.
 * Lock and unlock in plain sight, with no WEFT_TRY between: the analysis does not follow cleanup guards. */
#ifndef WEFT_BASE_THREAD_H
#define WEFT_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/deadline.h"
#include "base/status.h"

#if defined(__clang__)
#define WEFT_THREAD_ATTR(x) __attribute__((x))
#else
#define WEFT_THREAD_ATTR(x)
#endif
#define WEFT_CAPABILITY(name) WEFT_THREAD_ATTR(capability(name))
#define WEFT_REQUIRES(mu) WEFT_THREAD_ATTR(requires_capability(mu))
/* For functions whose callers know the lock by another name, of which clang cannot tell that it is the same lock: the
 * assertion in the function's body checks it. */
#define WEFT_REQUIRES_ASSERTED(mu)
#define WEFT_EXCLUDES(mu) WEFT_THREAD_ATTR(locks_excluded(mu))
#define WEFT_ACQUIRES(mu) WEFT_THREAD_ATTR(acquire_capability(mu))
#define WEFT_RELEASES(mu) WEFT_THREAD_ATTR(release_capability(mu))
#define WEFT_NO_THREAD_SAFETY WEFT_THREAD_ATTR(no_thread_safety_analysis)
/* For functions that create or free an object: no other thread can reach it yet, or any more. */
#define WEFT_UNSHARED WEFT_NO_THREAD_SAFETY
/* clang 19 and newer check it.  Elsewhere it only documents: older clangs cannot parse a guard that names another
 * member. */
#if defined(__clang__) && __clang_major__ >= 19
#define WEFT_GUARDED_BY(mu) __attribute__((guarded_by(&mu)))
#else
#define WEFT_GUARDED_BY(mu)
#endif

typedef struct WEFT_CAPABILITY("mutex") weft_mutex {
  pthread_mutex_t impl;
#ifndef NDEBUG
  _Atomic(pthread_t) holder; /* of the holding thread, 0 when free */
#endif
} weft_mutex;

void weft_mutex_init(weft_mutex *mu);
void weft_mutex_fini(weft_mutex *mu);
void weft_mutex_lock(weft_mutex *mu) WEFT_ACQUIRES(*mu);
bool weft_mutex_try_lock(weft_mutex *mu) WEFT_THREAD_ATTR(try_acquire_capability(true, *mu));
void weft_mutex_unlock(weft_mutex *mu) WEFT_RELEASES(*mu);

/* Debug builds assert that the calling thread holds mu; in other builds nothing happens.  clang takes it as held from
 * here on.  A function whose name ends in _locked begins with it. */
#ifdef NDEBUG
static inline void weft_mutex_assert_held(const weft_mutex *mu) WEFT_THREAD_ATTR(assert_capability(*mu));
static inline void weft_mutex_assert_held(const weft_mutex *mu) { (void)mu; }
#else
void weft_mutex_assert_held(const weft_mutex *mu) WEFT_THREAD_ATTR(assert_capability(*mu));
#endif

/* For a mutex with static storage, to be initialised once without a call. */
#define WEFT_MUTEX_INITIALIZER {.impl = PTHREAD_MUTEX_INITIALIZER}

typedef struct weft_cond {
  pthread_cond_t impl; /* on CLOCK_MONOTONIC */
} weft_cond;

void weft_cond_init(weft_cond *cond);
void weft_cond_fini(weft_cond *cond);
void weft_cond_signal(weft_cond *cond);
void weft_cond_broadcast(weft_cond *cond);

/* Waits for a wake-up.  False when the deadline passed first; true also for a spurious wake-up. */
bool weft_cond_wait(weft_cond *cond, weft_mutex *mu, weft_deadline deadline) WEFT_REQUIRES(*mu);

/* Starts a joinable thread called `name` (15 characters are kept).  All signals are blocked in it, so that a
 * host program's handlers run on its own threads. */
WEFT_NODISCARD weft_status *weft_thread_start(pthread_t *out_thread, const char *name, void *(*run)(void *arg),
                                              void *arg);

/* Sets whether the calling thread treats denormal floats as zero, as operands and as results; returns the previous
 * setting.  On processors without such a setting, denormals are kept and the result is false. */
bool weft_thread_flush_denormals(bool flush);

#endif
