/* tests/base/child_test.c -- Waiting for a child until a deadline. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"

static pid_t start(int code, bool stays)
{
  pid_t pid = fork();

  if (pid == 0) {
    if (stays) pause();
    _exit(code);
  }
  return pid;
}

TEST(a_child_that_ends_gives_its_status)
{
  bool ended = true;
  int status = -1;
  pid_t pid = start(7, false);

  T_EQ_INT(weft_child_await(pid, weft_deadline_after_ms(60000), &ended, &status), pid);
  T_TRUE(ended && WIFEXITED(status));
  T_EQ_INT(WEXITSTATUS(status), 7);
}

TEST(a_child_that_stays_is_killed_at_the_deadline)
{
  bool ended = true;
  int status = -1;
  pid_t pid = start(0, true);
  int64_t began_ns = weft_now_ns();

  T_EQ_INT(weft_child_await(pid, weft_deadline_after_ms(50), &ended, &status), pid);
  T_TRUE(!ended && WIFSIGNALED(status));
  T_EQ_INT(WTERMSIG(status), SIGKILL);
  T_TRUE(weft_now_ns() - began_ns >= 50 * WEFT_NS_PER_MS);
}

TEST(a_child_that_was_killed_already_is_only_awaited)
{
  bool ended = false;
  int status = -1;
  pid_t pid = start(0, true);

  T_EQ_INT(kill(pid, SIGTERM), 0);
  T_EQ_INT(weft_child_await(pid, weft_deadline_after_ms(60000), &ended, &status), pid);
  T_TRUE(!ended && WIFSIGNALED(status));
  T_EQ_INT(WTERMSIG(status), SIGTERM);
}

TEST_MAIN(UNIT(a_child_that_ends_gives_its_status), UNIT(a_child_that_stays_is_killed_at_the_deadline),
          UNIT(a_child_that_was_killed_already_is_only_awaited))
