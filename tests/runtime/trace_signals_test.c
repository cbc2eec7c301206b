/* tests/runtime/trace_signals_test.c -- handlers of the signals that write the trace, beside those of others. */
#include <config.h>

#include <signal.h>
#include <stdlib.h>

#include "runtime/trace.h"
#include "runtime/trace_signals.h"
#include "tests/test.h"

static struct sigaction before; /* what the chaining handler replaced */
static volatile sig_atomic_t came;

static void chain(int number, siginfo_t *info, void *context)
{
  came++;
  if (came < 10) before.sa_sigaction(number, info, context);
}

/* When the first platform ends, a handler that was installed later calls the trace's handler. So the trace's handler
 * stays where it is, and must not be installed in front of the later one again. */
TEST(a_handler_that_calls_ours_outlives_the_platform)
{
  struct sigaction action = {.sa_sigaction = chain, .sa_flags = SA_SIGINFO};

  setenv("WEFT_TRACE", "/dev/null", 1);
  rt_trace_init();
  T_OK(rt_trace_signals_begin());
  T_EQ_INT(sigaction(SIGUSR1, &action, &before), 0);
  T_TRUE(before.sa_flags & SA_SIGINFO);
  raise(SIGUSR1);
  T_EQ_INT(came, 1);
  rt_trace_signals_end();
  T_OK(rt_trace_signals_begin());
  raise(SIGUSR1);
  T_EQ_INT(came, 2);
  rt_trace_signals_end();
}

TEST_MAIN(UNIT(a_handler_that_calls_ours_outlives_the_platform))
