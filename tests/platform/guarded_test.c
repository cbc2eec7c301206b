/* tests/platform/guarded_test.c -- The guarded platform must trap reads and writes through device addresses:
 * otherwise the suites that run on it would show nothing. */
#include <config.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/run.h"

/* The signal that ends a child which reads (or writes) a byte of a buffer by its device address; 0: none. */
static int ends_by_signal(bool writes)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  float values[4] = {1, 2, 3, 4};
  WEFT_AUTO(weft_buffer)
  buffer = test_buffer(weft_platform_device(platform, 0), &(weft_array_type){WEFT_F32, 1, {4}}, values);
  WEFT_AUTO(weft_storage) storage = NULL;
  int status = 0;

  T_OK(weft_buffer_storage(buffer, &storage));
  T_TRUE(weft_storage_host(storage) == NULL);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    volatile char *at = weft_storage_data(storage);
    signal(SIGSEGV, SIG_DFL); /* not cmocka's handler, which goes on with the next test */
    if (writes) *at = 1;
    _exit(*at == 0 ? 0 : 1);
  }
  T_TRUE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(a_read_of_device_memory_traps) { T_EQ_INT(ends_by_signal(false), SIGSEGV); }
TEST(a_write_to_device_memory_traps) { T_EQ_INT(ends_by_signal(true), SIGSEGV); }

TEST(copies_through_the_platform_bring_the_bytes_back)
{
  WEFT_AUTO(weft_platform) platform = test_platform(2, 1);
  float values[4] = {1, 2, 3, 4}, back[4] = {0};
  WEFT_AUTO(weft_buffer)
  buffer = test_buffer(weft_platform_device(platform, 0), &(weft_array_type){WEFT_F32, 1, {4}}, values);
  WEFT_AUTO(weft_buffer) other = NULL;

  T_OK(weft_buffer_copy_to_device(buffer, weft_platform_device(platform, 1), &other));
  T_OK(weft_buffer_to_host(other, back, weft_deadline_after_ms(60000)));
  for (int i = 0; i < 4; i++) T_TRUE(back[i] == values[i]);
}

TEST_MAIN(UNIT(a_read_of_device_memory_traps), UNIT(a_write_to_device_memory_traps),
          UNIT(copies_through_the_platform_bring_the_bytes_back))
