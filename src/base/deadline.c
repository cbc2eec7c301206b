/* base/deadline.c -- absolute points in monotonic time (deadline.h). */
#include <config.h>

#include "base/deadline.h"

#include <limits.h>

int64_t weft_now_ns(void)
{
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * WEFT_NS_PER_S + now.tv_nsec;
}

weft_deadline weft_deadline_after_ns(int64_t ns)
{
  int64_t now = weft_now_ns();

  if (ns < 0) ns = 0;
  return ns > INT64_MAX - now ? WEFT_NO_DEADLINE : (weft_deadline){now + ns};
}

weft_deadline weft_deadline_from_setting_s(double seconds)
{
  if (!(seconds > 0)) return WEFT_NO_DEADLINE;
  if (seconds > 9e9) return WEFT_NO_DEADLINE; /* 285 years; int64_t holds 292 years of nanoseconds */
  return weft_deadline_after_ns((int64_t)(seconds * 1e9));
}

bool weft_deadline_passed(weft_deadline deadline)
{
  return deadline.at_ns != INT64_MAX && weft_now_ns() >= deadline.at_ns;
}

int64_t weft_deadline_left_ns(weft_deadline deadline)
{
  int64_t left;

  if (deadline.at_ns == INT64_MAX) return INT64_MAX;
  left = deadline.at_ns - weft_now_ns();
  return left > 0 ? left : 0;
}

int weft_deadline_poll_ms(weft_deadline deadline)
{
  int64_t left = weft_deadline_left_ns(deadline);
  int64_t ms;

  if (left == INT64_MAX) return -1;
  ms = left / WEFT_NS_PER_MS + (left % WEFT_NS_PER_MS != 0);
  return ms > INT_MAX ? INT_MAX : (int)ms;
}

struct timespec weft_deadline_timespec(weft_deadline deadline)
{
  return (struct timespec){.tv_sec = deadline.at_ns / WEFT_NS_PER_S, .tv_nsec = deadline.at_ns % WEFT_NS_PER_S};
}
