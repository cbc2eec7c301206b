/* base/deadline.h -- absolute points in monotonic time; every wait takes one. */
#ifndef WEFT_BASE_DEADLINE_H
#define WEFT_BASE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/macros.h"

WEFT_PUBLIC_BEGIN

/* A point in time, in nanoseconds of CLOCK_MONOTONIC.  Nested waits share the deadline of the outer wait, so that
 * together they take no longer than it allows. */
typedef struct weft_deadline {
  int64_t at_ns;
} weft_deadline;

/* Never passes.  Only for waits for work of this process that is certain to end, and for timeouts that a user set to
 * 0 (none). */
#ifdef __cplusplus
#define WEFT_NO_DEADLINE (weft_deadline{INT64_MAX})
#else
#define WEFT_NO_DEADLINE ((weft_deadline){INT64_MAX})
#endif

#define WEFT_NS_PER_US INT64_C(1000)
#define WEFT_NS_PER_MS INT64_C(1000000)
#define WEFT_NS_PER_S INT64_C(1000000000)

int64_t weft_now_ns(void); /* CLOCK_MONOTONIC */

/* now + ns; WEFT_NO_DEADLINE if the sum overflows.  A negative ns counts as 0. */
weft_deadline weft_deadline_after_ns(int64_t ns);

static inline weft_deadline weft_deadline_after_ms(int64_t ms)
{
  return weft_deadline_after_ns(ms > INT64_MAX / WEFT_NS_PER_MS ? INT64_MAX : ms * WEFT_NS_PER_MS);
}

/* The deadline that a timeout setting means: none if `seconds` is 0 or less, otherwise counted from now. */
weft_deadline weft_deadline_from_setting_s(double seconds);

bool weft_deadline_passed(weft_deadline deadline);
int64_t weft_deadline_left_ns(weft_deadline deadline); /* at least 0; INT64_MAX if there is no deadline */

/* The time left as poll(2) takes it: milliseconds rounded up, at most INT_MAX; -1 if there is no deadline. */
int weft_deadline_poll_ms(weft_deadline deadline);

static inline weft_deadline weft_deadline_min(weft_deadline a, weft_deadline b) { return a.at_ns < b.at_ns ? a : b; }

struct timespec weft_deadline_timespec(weft_deadline deadline); /* for clock_nanosleep and condition variables */

WEFT_PUBLIC_END

#endif
