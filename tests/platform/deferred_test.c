/* tests/platform/deferred_test.c -- Work that is queued, not done: what the runtime makes of streams, on devices whose
 * streams the test stops and lets go. */
#include <config.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/run.h"
#include "deferred.h"
#include "runtime/runtime_internal.h"

enum { N = 64 };
static const weft_array_type vector = {.type = WEFT_F32, .rank = 1, .dims = {N}};

#define ADD_ONE                                                                                    \
  "HloModule step\n" \
  "ENTRY e {\n" \
  "  x = f32[64] parameter(0)\n" \
  "  one = f32[] constant(1)\n" \
  "  b = f32[64] broadcast(one), dimensions={}\n" \
  "  ROOT r = f32[64] add(x, b)\n" \
  "}\n"

/* Doubles x until its sum is at least 64000: the device computes the condition. */
#define LOOP                                                                                                   \
  "HloModule loop\n" \
  "body {\n" \
  "  s = f32[64] parameter(0)\n" \
  "  ROOT d = f32[64] add(s, s)\n" \
  "}\n" \
  "plus {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT s = f32[] add(a, b)\n" \
  "}\n" \
  "cond {\n" \
  "  s = f32[64] parameter(0)\n" \
  "  z = f32[] constant(0)\n" \
  "  r = f32[] reduce(s, z), dimensions={0}, to_apply=plus\n" \
  "  m = f32[] constant(64000)\n" \
  "  ROOT p = pred[] compare(r, m), direction=LT\n" \
  "}\n" \
  "ENTRY e {\n" \
  "  x = f32[64] parameter(0)\n" \
  "  ROOT w = f32[64] while(x), condition=cond, body=body\n" \
  "}\n"

/* Fails on the device where x is not y. */
#define CHECK                                                                                     \
  "HloModule check\n" \
  "ENTRY e {\n" \
  "  x = f32[64] parameter(0)\n" \
  "  y = f32[64] parameter(1)\n" \
  "  c = () custom-call(x, y), custom_call_target=\"check.expect_eq\", custom_call_has_side_effect=true\n" \
  "  ROOT r = f32[64] add(x, y)\n" \
  "}\n"

static weft_deadline soon(void) { return weft_deadline_after_ms(60000); }

static weft_buffer *filled(weft_device *device, float value)
{
  float data[N];
  for (int i = 0; i < N; i++) data[i] = value;
  return test_buffer(device, &vector, data);
}

static weft_buffer *launch(weft_executable *exe, weft_buffer *a, weft_buffer *b)
{
  weft_buffer *in[] = {a, b}, *out = NULL;
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {&out};
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  return out;
}

static bool holds(weft_buffer *buffer, float value)
{
  float data[N];
  weft_status *st = weft_buffer_to_host(buffer, data, soon());
  bool right = !st;

  for (int i = 0; right && i < N; i++) right = data[i] == value;
  weft_status_free(st);
  return right;
}

/* Gives streams time to do work that they must not do yet. A platform that breaks its promises gets enough time for
 * the tests to notice. */
static void let_streams_work(void) { usleep(getenv("WEFT_DEFERRED_BREAK") ? 300000 : 2000); }

static bool is_pending(weft_buffer *buffer) { return !weft_event_is_ready(weft_buffer_defined(buffer)); }

/* ---- launches -------------------------------------------------------------------------------------------------- */

TEST(launches_are_queued_behind_launches_that_are_not_done)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0);
  weft_buffer *x = filled(device, 0), *y;

  deferred_hold(device, true);
  /* each is recorded before the next launch, which would otherwise wait for it on the host */
  for (int i = 0; i < 20; i++) {
    y = launch(exe, x, NULL);
    T_TRUE(is_pending(y));
    weft_buffer_delete(x); /* queued work keeps what it reads */
    weft_buffer_release(x);
    x = y;
    T_OK(weft_event_await(rt_buffer_usable(x), soon()));
  }
  T_CODE(weft_device_sync(device, weft_deadline_after_ms(20)), WEFT_DEADLINE_EXCEEDED);
  deferred_hold(device, false);
  T_TRUE(holds(x, 20));
  T_OK(weft_device_sync(device, soon()));
  weft_buffer_release(x);
}

TEST(a_loop_waits_for_its_condition_without_a_thread)
{
  WEFT_AUTO(weft_platform) platform = test_platform(2, 1); /* one worker */
  WEFT_AUTO(weft_executable) loop = test_compile(platform, LOOP, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0), *other = weft_platform_device(platform, 1);
  /* the condition is false at once; with the pattern of fresh memory it would be true */
  WEFT_AUTO(weft_buffer) x = filled(device, 2000);
  WEFT_AUTO(weft_buffer) one = filled(device, 1);
  WEFT_AUTO(weft_buffer) there = filled(other, 3);
  WEFT_AUTO(weft_buffer) copy = NULL;

  deferred_hold(device, true);
  WEFT_AUTO(weft_buffer) y = launch(loop, x, NULL);
  T_OK(weft_buffer_copy_to_device(there, other, &copy)); /* needs the worker */
  T_TRUE(holds(copy, 3));
  T_TRUE(is_pending(y));
  deferred_hold(device, false);
  T_TRUE(holds(y, 2000));
  WEFT_AUTO(weft_buffer) z = launch(loop, one, NULL);
  T_TRUE(holds(z, 1024));
}

/* ---- errors ---------------------------------------------------------------------------------------------------- */

TEST(an_error_on_the_stream_poisons_what_was_computed_from_it_and_nothing_else)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 2);
  WEFT_AUTO(weft_executable) check = test_compile(platform, CHECK, BUF_TOPOLOGICAL);
  WEFT_AUTO(weft_executable) add = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  WEFT_AUTO(weft_executable) loop = test_compile(platform, LOOP, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0);
  WEFT_AUTO(weft_buffer) x = filled(device, 1);
  WEFT_AUTO(weft_buffer) y = filled(device, 2);

  deferred_hold(device, true);
  WEFT_AUTO(weft_buffer) wrong = launch(check, x, y);
  WEFT_AUTO(weft_buffer) behind = launch(add, wrong, NULL); /* queued before the error is known */
  WEFT_AUTO(weft_buffer) looped = launch(loop, wrong, NULL);
  WEFT_AUTO(weft_buffer) right = launch(check, x, x);
  WEFT_AUTO(weft_buffer) copy = NULL;
  T_OK(weft_buffer_copy_to_device(behind, device, &copy));
  deferred_hold(device, false);
  weft_status *st = weft_event_await(weft_buffer_defined(behind), soon());
  T_TRUE(st && strstr(weft_status_text(st, false), "check"));
  weft_status_free(st);
  T_TRUE(!holds(wrong, 3) && !holds(copy, 4) && !holds(looped, 1));
  T_TRUE(holds(right, 2));
  WEFT_AUTO(weft_buffer) later = launch(add, behind, NULL); /* and after it is known */
  T_TRUE(!holds(later, 5));
  WEFT_AUTO(weft_buffer) fine = launch(add, right, NULL);
  T_TRUE(holds(fine, 3));
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

TEST(memory_that_queued_work_uses_is_not_given_to_the_host)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) add = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0);
  weft_buffer *x = filled(device, 1), *fresh[8];

  deferred_hold(device, true);
  WEFT_AUTO(weft_buffer) y = launch(add, x, NULL);
  weft_buffer_delete(x);
  weft_buffer_release(x);
  for (int i = 0; i < 8; i++) fresh[i] = filled(device, 7); /* of the size of x, written at once */
  deferred_hold(device, false);
  T_TRUE(holds(y, 2));
  for (int i = 0; i < 8; i++) {
    T_TRUE(holds(fresh[i], 7));
    weft_buffer_release(fresh[i]);
  }
}

/* Idle blocks stay usable beside a block that queued work still uses. */
TEST(the_host_gets_all_blocks_that_are_idle)
{
  enum { IDLE = 6, LEFT = IDLE - 2 /* the launches take two for their outputs */ };
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) add = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0);
  weft_buffer *x = filled(device, 1), *busy = filled(device, 3), *idle[IDLE], *fresh[LEFT];

  for (int i = 0; i < IDLE; i++) idle[i] = filled(device, 2);
  for (int i = 0; i < IDLE; i++) {
    T_TRUE(holds(idle[i], 2));
    weft_buffer_release(idle[i]);
  }
  WEFT_AUTO(weft_buffer) first = launch(add, x, NULL);
  T_TRUE(holds(first, 2)); /* the stream has passed the points at which the idle blocks were freed */
  deferred_hold(device, true);
  WEFT_AUTO(weft_buffer) y = launch(add, x, NULL);
  weft_buffer_release(busy); /* behind the launch: this block is in use until the stream goes on */
  int64_t before = weft_device_memory(device).cached_bytes;
  for (int i = 0; i < LEFT; i++) fresh[i] = filled(device, 7);
  int64_t taken = before - weft_device_memory(device).cached_bytes;
  deferred_hold(device, false);
  T_TRUE(holds(y, 2));
  weft_buffer_release(x);
  for (int i = 0; i < LEFT; i++) weft_buffer_release(fresh[i]);
  T_TRUE(taken >= LEFT * N * (int64_t)sizeof(float));
}

static void set_flag(void *flag) { atomic_store((atomic_int *)flag, 1); }

TEST(somebody_elses_memory_is_given_back_when_the_stream_has_done_with_it)
{
  static float host[N] __attribute__((aligned(64)));
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) add = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0);
  weft_storage *storage;
  weft_buffer *x;
  atomic_int given_back = 0;

  for (int i = 0; i < N; i++) host[i] = 4;
  T_OK(weft_storage_view(device, host, sizeof host, set_flag, &given_back,
                         &storage)); /* the platform takes host addresses too */
  T_OK(weft_buffer_new(device, &vector, storage, NULL, &x));
  weft_storage_release(storage);
  deferred_hold(device, true);
  WEFT_AUTO(weft_buffer) y = launch(add, x, NULL);
  weft_buffer_delete(x);
  weft_buffer_release(x);
  T_OK(weft_event_await(rt_buffer_usable(y), soon()));
  let_streams_work();
  T_TRUE(atomic_load(&given_back) == 0);
  deferred_hold(device, false);
  T_TRUE(holds(y, 5));
  T_OK(weft_device_sync(device, soon()));
  T_TRUE(atomic_load(&given_back) == 1);
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

TEST(a_copy_to_another_device_waits_there_for_its_source)
{
  WEFT_AUTO(weft_platform) platform = test_platform(2, 1);
  WEFT_AUTO(weft_executable) add = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0), *other = weft_platform_device(platform, 1);
  WEFT_AUTO(weft_buffer) x = filled(device, 1);
  WEFT_AUTO(weft_buffer) copy = NULL;

  deferred_hold(device, true);
  WEFT_AUTO(weft_buffer) y = launch(add, x, NULL);
  T_OK(weft_buffer_copy_to_device(y, other, &copy));
  /* the copy is recorded, and the host has waited for nothing */
  T_OK(weft_event_await(rt_buffer_usable(copy), soon()));
  let_streams_work();
  T_TRUE(is_pending(copy));
  deferred_hold(device, false);
  T_TRUE(holds(copy, 2));
}

TEST(a_launch_waits_on_its_stream_for_a_copy_on_another)
{
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) add = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0);
  WEFT_AUTO(weft_buffer) x = filled(device, 1);
  WEFT_AUTO(weft_buffer) copy = NULL;

  deferred_hold_one(device, WEFT_STREAM_ACROSS, true);
  T_OK(weft_buffer_copy_to_device(x, device, &copy));
  WEFT_AUTO(weft_buffer) y = launch(add, copy, NULL);
  T_OK(weft_event_await(rt_buffer_usable(y), soon()));
  let_streams_work();
  T_TRUE(is_pending(y));
  deferred_hold_one(device, WEFT_STREAM_ACROSS, false);
  T_TRUE(holds(y, 2));
}

/* The copy still writes to the block of its target, so the block must not be given to anybody else. */
TEST(the_target_of_a_queued_copy_may_be_deleted)
{
  enum { FRESH = 8 };
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  weft_device *device = weft_platform_device(platform, 0);
  WEFT_AUTO(weft_buffer) x = filled(device, 1);
  weft_buffer *copy, *fresh[FRESH];

  deferred_hold_one(device, WEFT_STREAM_ACROSS, true);
  T_OK(weft_buffer_copy_to_device(x, device, &copy));
  T_OK(weft_event_await(rt_buffer_usable(copy), soon()));
  weft_buffer_delete(copy);
  let_streams_work();
  for (int i = 0; i < FRESH; i++) fresh[i] = filled(device, 7);
  deferred_hold_one(device, WEFT_STREAM_ACROSS, false);
  T_OK(weft_event_await(weft_buffer_defined(copy), soon()));
  for (int i = 0; i < FRESH; i++) {
    T_TRUE(holds(fresh[i], 7));
    weft_buffer_release(fresh[i]);
  }
  weft_buffer_release(copy);
}

/* ---- transfers with the host ------------------------------------------------------------------------------------ */

static void transferred(void *ended, const weft_status *error) { weft_event_set(ended, weft_status_dup(error)); }

static weft_event *new_event(void)
{
  weft_event *event;

  T_OK(weft_event_new(&event));
  return event;
}

TEST(a_launch_is_queued_behind_a_transfer_from_the_host)
{
  float host[N];
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) add = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0);
  WEFT_AUTO(weft_event) sent = new_event();
  weft_buffer *x;

  for (int i = 0; i < N; i++) host[i] = 4;
  deferred_hold_one(device, WEFT_STREAM_IN, true);
  T_OK(weft_buffer_write(device, 0, &vector, host, transferred, sent, &x));
  WEFT_AUTO(weft_buffer) y = launch(add, x, NULL);
  weft_buffer_delete(x);
  let_streams_work();
  T_TRUE(is_pending(y) && !weft_event_is_ready(sent));
  deferred_hold_one(device, WEFT_STREAM_IN, false);
  T_TRUE(holds(y, 5));
  T_OK(weft_event_await(sent, soon()));
  weft_buffer_release(x);
}

TEST(the_target_of_a_transfer_may_be_deleted)
{
  enum { FRESH = 8 };
  float host[N];
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  weft_device *device = weft_platform_device(platform, 0);
  WEFT_AUTO(weft_event) sent = new_event();
  weft_buffer *x, *fresh[FRESH];

  for (int i = 0; i < N; i++) host[i] = 4;
  deferred_hold_one(device, WEFT_STREAM_IN, true);
  T_OK(weft_buffer_write(device, 0, &vector, host, transferred, sent, &x));
  weft_buffer_delete(x);
  weft_buffer_release(x);
  let_streams_work();
  for (int i = 0; i < FRESH; i++) fresh[i] = filled(device, 7);
  deferred_hold_one(device, WEFT_STREAM_IN, false);
  T_OK(weft_event_await(sent, soon()));
  for (int i = 0; i < FRESH; i++) {
    T_TRUE(holds(fresh[i], 7));
    weft_buffer_release(fresh[i]);
  }
}

TEST(a_transfer_to_the_host_is_queued_behind_a_launch)
{
  float host[N] = {0};
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) add = test_compile(platform, ADD_ONE, BUF_TOPOLOGICAL);
  weft_device *device = weft_platform_device(platform, 0);
  WEFT_AUTO(weft_buffer) x = filled(device, 1);
  WEFT_AUTO(weft_event) received = new_event();

  deferred_hold_one(device, WEFT_STREAM_COMPUTE, true);
  weft_buffer *y = launch(add, x, NULL);
  T_OK(weft_buffer_read(y, 4 * sizeof(float), (N - 4) * (int64_t)sizeof(float), host + 4, transferred, received));
  weft_buffer_delete(y);
  weft_buffer_release(y);
  let_streams_work();
  T_TRUE(!weft_event_is_ready(received));
  deferred_hold_one(device, WEFT_STREAM_COMPUTE, false);
  T_OK(weft_event_await(received, soon()));
  for (int i = 0; i < N; i++) T_TRUE(host[i] == (i < 4 ? 0 : 2));
}

TEST(a_transfer_to_the_host_has_the_error_of_its_source)
{
  float host[N];
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  weft_device *device = weft_platform_device(platform, 0);
  WEFT_AUTO(weft_event) received = new_event();
  weft_buffer *wrong;

  T_OK(weft_buffer_from_error(device, &vector, WEFT_ERR(DATA_LOSS, "gone"), &wrong));
  T_OK(weft_buffer_read(wrong, 0, sizeof host, host, transferred, received));
  T_FAILS(weft_event_await(received, soon()), "gone");
  weft_buffer_release(wrong);
}

/* ---- promises that a platform breaks --------------------------------------------------------------------------- */

/* The wait status of this program's tests above, run in a process of their own on a platform that breaks `promise`. */
static int status_of(const char *promise)
{
  int status = 0;

  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    setenv("WEFT_DEFERRED_BREAK", promise, 1);
    alarm(50);
    if (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr))
      execl("/proc/self/exe", "deferred_test", (char *)NULL);
    _exit(0);
  }
  T_TRUE(waitpid(child, &status, 0) == child);
  return status;
}

TEST(a_wait_that_is_left_out_is_noticed) { T_TRUE(status_of("wait") != 0); }
TEST(a_completion_that_comes_early_is_noticed) { T_TRUE(status_of("notify") != 0); }
TEST(a_point_that_is_reached_early_is_noticed) { T_TRUE(status_of("reached") != 0); }
TEST(a_condition_that_is_read_early_is_noticed) { T_TRUE(status_of("read") != 0); }

#define TESTS                                                                                                        \
  UNIT(launches_are_queued_behind_launches_that_are_not_done), UNIT(a_loop_waits_for_its_condition_without_a_thread), \
      UNIT(an_error_on_the_stream_poisons_what_was_computed_from_it_and_nothing_else),                              \
      UNIT(memory_that_queued_work_uses_is_not_given_to_the_host), UNIT(the_host_gets_all_blocks_that_are_idle),     \
      UNIT(somebody_elses_memory_is_given_back_when_the_stream_has_done_with_it),                                   \
      UNIT(the_target_of_a_queued_copy_may_be_deleted), UNIT(a_launch_is_queued_behind_a_transfer_from_the_host),    \
      UNIT(the_target_of_a_transfer_may_be_deleted), UNIT(a_transfer_to_the_host_is_queued_behind_a_launch),         \
      UNIT(a_transfer_to_the_host_has_the_error_of_its_source),                                                     \
      UNIT(a_copy_to_another_device_waits_there_for_its_source), UNIT(a_launch_waits_on_its_stream_for_a_copy_on_another)

int main(void)
{
  const struct CMUnitTest queued[] = {TESTS};
  const struct CMUnitTest all[] = {
    TESTS, UNIT(a_wait_that_is_left_out_is_noticed), UNIT(a_completion_that_comes_early_is_noticed),
    UNIT(a_point_that_is_reached_early_is_noticed), UNIT(a_condition_that_is_read_early_is_noticed)};

  return getenv("WEFT_DEFERRED_BREAK") ? cmocka_run_group_tests(queued, NULL, NULL)
                                       : cmocka_run_group_tests(all, NULL, NULL);
}
