/* tests/test.h -- what every C test includes: cmocka plus a few checks that print got and want.
 *
 *   TEST(name_of_the_behaviour) { T_OK(f(...)); T_EQ_INT(got, want); }
 *   TEST_MAIN(UNIT(name_of_the_behaviour), ...)
 */
#ifndef WEFT_TESTS_TEST_H
#define WEFT_TESTS_TEST_H

#include <config.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define TEST(name) static void name(WEFT_UNUSED void **state)
#define UNIT(name) cmocka_unit_test(name)
#define TEST_MAIN(...)                                        \
  int main(void)                                              \
  {                                                           \
    const struct CMUnitTest units[] = {__VA_ARGS__};          \
    return cmocka_run_group_tests(units, NULL, NULL);         \
  }

/* Takes the status: fails with its text unless it is NULL. */
#define T_OK(expr)                                                                \
  do {                                                                            \
    weft_status *t_st_ = (expr);                                                  \
    if (t_st_) fail_msg("%s: %s", #expr, weft_status_text(t_st_, true));          \
  } while (0)

/* Takes the status: it must be an error whose text (with notes) contains `part`. */
#define T_FAILS(expr, part)                                                                                    \
  do {                                                                                                         \
    weft_status *t_st_ = (expr);                                                                               \
    if (!t_st_) fail_msg("%s: succeeded, expected an error with \"%s\"", #expr, (part));                       \
    if (!strstr(weft_status_text(t_st_, false), (part)))                                                       \
      fail_msg("%s: got \"%s\", want \"...%s...\"", #expr, weft_status_text(t_st_, false), (part));            \
    weft_status_free(t_st_);                                                                                   \
  } while (0)

/* Takes the status: it must have this code (WEFT_...). */
#define T_CODE(expr, code)                                                                                     \
  do {                                                                                                         \
    weft_status *t_st_ = (expr);                                                                               \
    if (weft_status_code(t_st_) != (code))                                                                     \
      fail_msg("%s: got \"%s\", want %s", #expr, weft_status_text(t_st_, true), weft_code_name(code));         \
    weft_status_free(t_st_);                                                                                   \
  } while (0)

#define T_EQ_INT(got, want)                                                                                \
  do {                                                                                                     \
    int64_t t_got_ = (int64_t)(got), t_want_ = (int64_t)(want);                                            \
    if (t_got_ != t_want_) fail_msg("%s: got %" PRId64 ", want %" PRId64, #got, t_got_, t_want_);          \
  } while (0)

#define T_EQ_STR(got, want)                                                                 \
  do {                                                                                      \
    const char *t_got_ = (got), *t_want_ = (want);                                          \
    if (!t_got_ || strcmp(t_got_, t_want_) != 0)                                            \
      fail_msg("%s: got \"%s\", want \"%s\"", #got, t_got_ ? t_got_ : "(null)", t_want_);   \
  } while (0)

#define T_TRUE(expr)                                 \
  do {                                               \
    if (!(expr)) fail_msg("not true: %s", #expr);    \
  } while (0)

/* Does the program run on the platform "cuda" (tests/gpu/emulated.c)? */
static inline WEFT_UNUSED bool test_is_on_gpu(void)
{
  const char *platform = getenv("WEFT_PLATFORM");

  return platform && strcmp(platform, "cuda") == 0;
}

/* The step through many cases that differ in their numbers only: a build with a sanitizer, which judges the use of
 * memory, runs every `step`th. The other builds run all. */
#define T_STRIDE(step) (getenv("WEFT_SANITIZED") ? (step) : 1)

/* Leaves the test with a reason; build-aux/tap-skips makes it a skipped test. cmocka's skip() prints
 * "not ok ... # SKIP", which the TAP driver takes for a failure. */
#define T_SKIP(...)               \
  do {                            \
    print_message("# skipped: "); \
    print_message(__VA_ARGS__);   \
    print_message("\n");          \
    return;                       \
  } while (0)

#endif
