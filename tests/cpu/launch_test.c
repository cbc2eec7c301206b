/* tests/cpu/launch_test.c -- launches: order, donation, errors. */
#include "cpu/run.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "alloc.h"
#include "base/thread.h"

/* x + 1 in the memory of a donated x, over arrays large enough not to run on the launching thread. */
#define STEP_TEXT                                                                                                  \
  "HloModule step, input_output_alias={ {}: (0, {}, may-alias) }\n" \
  "ENTRY e {\n" \
  "  x = f32[100000] parameter(0)\n" \
  "  one = f32[] constant(1)\n" \
  "  b = f32[100000] broadcast(one), dimensions={}\n" \
  "  ROOT r = f32[100000] add(x, b)\n" \
  "}\n"
enum { STEP_N = 100000 };

static const weft_array_type step_type = {.type = WEFT_F32, .rank = 1, .dims = {STEP_N}};

static weft_status *launch1(weft_executable *exe, weft_buffer *in, bool keep, weft_buffer **out)
{
  weft_buffer *const *ins[] = {&in};
  weft_buffer **outs[] = {out};
  return weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .keep = &keep});
}

static weft_buffer *zeros(weft_device *device)
{
  static const float data[STEP_N];
  return test_buffer(device, &step_type, data);
}

static float first_of(weft_buffer *buffer)
{
  float *data = malloc(STEP_N * sizeof *data), first;
  T_OK(weft_buffer_to_host(buffer, data, weft_deadline_after_ms(240000)));
  first = data[0];
  for (int i = 0; i < STEP_N; i++) T_TRUE(data[i] == first);
  free(data);
  return first;
}

TEST(a_donated_input_becomes_the_output)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  weft_buffer *x = zeros(weft_platform_device(platform, 0)), *y;
  void *before, *after;

  T_OK(weft_buffer_pin(x, &before));
  T_OK(weft_buffer_unpin(x));
  for (int i = 0; i < 100; i++) { /* each launch is made while the previous one still runs */
    T_OK(launch1(exe, x, false, &y));
    T_TRUE(weft_buffer_is_deleted(x));
    T_CODE(launch1(exe, x, false, &y), WEFT_FAILED_PRECONDITION);
    weft_buffer_release(x);
    x = y;
  }
  T_TRUE(first_of(x) == 100);
  T_OK(weft_buffer_pin(x, &after));
  T_TRUE(before == after);
  T_OK(weft_buffer_unpin(x));
  T_CODE(weft_buffer_unpin(x), WEFT_INVALID_ARGUMENT);
  weft_buffer_release(x);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(what_others_see_is_copied_rather_than_donated)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  weft_buffer *x = zeros(weft_platform_device(platform, 0)), *y, *z;
  void *seen;
  float value;

  T_OK(launch1(exe, x, true, &y)); /* the caller keeps x */
  T_TRUE(!weft_buffer_is_deleted(x));
  T_TRUE(first_of(y) == 1 && first_of(x) == 0);
  T_OK(weft_buffer_pin(x, &seen)); /* a view of x is out there */
  T_OK(launch1(exe, x, false, &z));
  T_TRUE(first_of(z) == 1);
  T_OK(weft_device_read(weft_platform_device(platform, 0), NULL, &value, seen, sizeof value));
  T_TRUE(value == 0);
  T_OK(weft_buffer_unpin(x));
  weft_buffer_release(x);
  weft_buffer_release(y);
  weft_buffer_release(z);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(an_input_may_be_deleted_as_soon_as_the_launch_returns)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  weft_buffer *x = zeros(weft_platform_device(platform, 0)), *y, *z;

  T_OK(launch1(exe, x, true, &y));
  weft_buffer_delete(x);
  weft_buffer_release(x);
  T_OK(launch1(exe, y, true, &z));
  weft_buffer_delete(y);
  weft_buffer_release(y);
  T_TRUE(first_of(z) == 2);
  weft_buffer_release(z);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(an_input_that_failed_poisons_the_outputs)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  weft_buffer *x, *y, *z;
  float data[1];

  T_OK(
    weft_buffer_from_error(weft_platform_device(platform, 0), &step_type, WEFT_ERR(DATA_LOSS, "the disk is gone"), &x));
  T_OK(launch1(exe, x, true, &y));
  T_OK(launch1(exe, y, true, &z));
  T_FAILS(weft_buffer_to_host(z, data, weft_deadline_after_ms(30000)), "the disk is gone");
  weft_buffer_release(x);
  weft_buffer_release(y);
  weft_buffer_release(z);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(no_device_is_assigned_twice)
{
  weft_platform *platform = test_platform(3, 1);
  const int64_t both[] = {0, 0}, apart[] = {2, 0};
  hlo_module *module;
  weft_executable *exe;

  T_OK(hlo_parse(STEP_TEXT, strlen(STEP_TEXT), &module));
  T_FAILS(weft_compile(platform, module, &(weft_compile_options){.replica_count = 2, .device_assignment = both}, &exe),
          "device 0 is assigned twice");
  T_OK(hlo_parse(STEP_TEXT, strlen(STEP_TEXT), &module));
  T_OK(weft_compile(platform, module, &(weft_compile_options){.replica_count = 2, .device_assignment = apart}, &exe));
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(wrong_inputs_are_refused_before_anything_runs)
{
  weft_platform *platform = test_platform(2, 2);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  weft_executable *two = test_compile(platform,
                                      "HloModule two, input_output_alias={ {}: (0, {}, may-alias) }\n"
                                      "ENTRY e {\n"
                                      "  x = f32[100000] parameter(0)\n"
                                      "  y = f32[100000] parameter(1)\n"
                                      "  ROOT r = f32[100000] add(x, y)\n"
                                      "}\n",
                                      BUF_TOPOLOGICAL);
  weft_buffer *x = zeros(weft_platform_device(platform, 0)), *other = zeros(weft_platform_device(platform, 1)), *out;
  weft_buffer *small =
    test_buffer(weft_platform_device(platform, 0), &(weft_array_type){.type = WEFT_F32}, &(float){1});
  weft_buffer *const *same[] = {(weft_buffer *[]){x, x}};
  weft_buffer **outs[] = {&out};

  T_FAILS(launch1(exe, NULL, true, &out), "input 0 is missing");
  T_FAILS(launch1(exe, small, true, &out), "input 0 has 4 bytes, the program wants 400000");
  T_FAILS(launch1(exe, other, true, &out), "input 0 is on device 1");
  T_FAILS(weft_executable_launch(two, &(weft_launch){.inputs = same, .outputs = outs}), "donated and given again");
  T_TRUE(!weft_buffer_is_deleted(x));
  weft_buffer_release(x);
  weft_buffer_release(small);
  weft_buffer_release(other);
  weft_executable_release(exe);
  weft_executable_release(two);
  weft_platform_release(platform);
}

TEST(copies_go_between_devices_and_wait_for_their_source)
{
  weft_platform *platform = test_platform(2, 2);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  weft_buffer *x = zeros(weft_platform_device(platform, 0)), *y, *there;

  T_OK(launch1(exe, x, true, &y));
  T_OK(weft_buffer_copy_to_device(y, weft_platform_device(platform, 1), &there));
  weft_buffer_delete(y);
  T_TRUE(first_of(there) == 1);
  T_TRUE(weft_buffer_device(there) == weft_platform_device(platform, 1));
  T_OK(weft_device_sync(weft_platform_device(platform, 0), weft_deadline_after_ms(30000)));
  weft_buffer_release(x);
  weft_buffer_release(y);
  weft_buffer_release(there);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

static void *step_many(void *arg)
{
  weft_executable *exe = arg;
  weft_buffer *x = zeros(weft_executable_device(exe, 0)), *y;
  for (int i = 0; i < 50; i++) {
    T_OK(launch1(exe, x, i % 2, &y));
    weft_buffer_release(x);
    x = y;
  }
  T_TRUE(first_of(x) == 50);
  weft_buffer_release(x);
  return NULL;
}

/* A loop that copies the result of a step that several threads share: they share the copy too, in pieces whose size
 * does not divide the array. */
TEST(a_loop_copies_what_threads_made)
{
  enum { ROWS = 331, COLS = 517, TURNS = 5 };
  static const char text[] = "HloModule m\n"
                             "body {\n"
                             "  s = (s32[], f32[331,517]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  x = f32[331,517] get-tuple-element(s), index=1\n"
                             "  one = s32[] constant(1)\n"
                             "  j = s32[] add(i, one)\n"
                             "  a = f32[330,517] slice(x), slice={[1:331], [0:517]}\n"
                             "  b = f32[1,517] slice(x), slice={[0:1], [0:517]}\n"
                             "  c = f32[331,517] concatenate(a, b), dimensions={0}\n"
                             "  e = f32[] constant(1)\n"
                             "  eb = f32[331,517] broadcast(e), dimensions={}\n"
                             "  d = f32[331,517] add(c, eb)\n"
                             "  t = f32[331,517] tanh(d)\n"
                             "  m = f32[331,517] maximum(d, t)\n"
                             "  ROOT r = (s32[], f32[331,517]) tuple(j, m)\n"
                             "}\n"
                             "cond {\n"
                             "  s = (s32[], f32[331,517]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  n = s32[] constant(5)\n"
                             "  ROOT l = pred[] compare(i, n), direction=LT\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[331,517] parameter(0)\n"
                             "  z = s32[] constant(0)\n"
                             "  s = (s32[], f32[331,517]) tuple(z, x)\n"
                             "  w = (s32[], f32[331,517]) while(s), condition=cond, body=body\n"
                             "  ROOT r = f32[331,517] get-tuple-element(w), index=1\n"
                             "}\n";
  static float x[ROWS][COLS], y[ROWS][COLS];

  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < COLS; k++) x[i][k] = (float)(i * 7 + k % 11);
  for (int threads = 1; threads <= 3; threads++) {
    weft_platform *platform = test_platform(1, threads);
    weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
    T_OK(test_run(exe, (const void *[]){x}, (void *[]){y}));
    for (int i = 0; i < ROWS; i++)
      for (int k = 0; k < COLS; k++) T_TRUE(y[i][k] == x[(i + TURNS) % ROWS][k] + TURNS);
    weft_executable_release(exe);
    weft_platform_release(platform);
  }
}

TEST(threads_may_launch_one_executable)
{
  weft_platform *platform = test_platform(1, 3);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  pthread_t threads[4];

  for (int i = 0; i < 4; i++) T_TRUE(pthread_create(&threads[i], NULL, step_many, exe) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(the_last_reference_may_go_while_work_is_in_flight)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  weft_buffer *x = zeros(weft_platform_device(platform, 0)), *y;

  for (int i = 0; i < 20; i++) {
    T_OK(launch1(exe, x, false, &y));
    weft_buffer_release(x);
    x = y;
  }
  weft_event *last = weft_event_retain(weft_buffer_defined(x));
  weft_executable_release(exe);
  weft_buffer_release(x);
  weft_platform_release(platform);
  T_OK(weft_event_await(last, weft_deadline_after_ms(30000)));
  weft_event_release(last);
}

/* x + 1, which takes longer than a launch. */
#define SLOW_STEP_TEXT                                                                                          \
  "HloModule slow\n" \
  "ENTRY e {\n" \
  "  x = f32[100000] parameter(0)\n" \
  "  one = f32[] constant(1)\n" \
  "  b = f32[100000] broadcast(one), dimensions={}\n" \
  "  zero = f32[] constant(0)\n" \
  "  z = f32[100000] broadcast(zero), dimensions={}\n" \
  "  s = f32[100000] sine(x)\n" \
  "  t = f32[100000] tan(s)\n" \
  "  n = f32[100000] multiply(t, z)\n" \
  "  m = f32[100000] add(n, b)\n" \
  "  ROOT r = f32[100000] add(x, m)\n" \
  "}\n"
enum { AHEAD = 300, MOST_QUEUED = 64 };

/* The emulated GPU takes longer for any step. */
static const char *slow_step(void) { return test_is_on_gpu() ? STEP_TEXT : SLOW_STEP_TEXT; }

/* `x` is given up; the steps' definition events, in order. */
static weft_buffer *launch_ahead(weft_executable *exe, weft_buffer *x, weft_event **defined, int most)
{
  for (int i = 0; i < AHEAD; i++) {
    weft_buffer *y;
    T_OK(launch1(exe, x, false, &y));
    weft_buffer_release(x);
    x = y;
    defined[i] = weft_event_retain(weft_buffer_defined(y));
    if (i > most) T_TRUE(weft_event_is_ready(defined[i - most - 1]));
  }
  return x;
}

TEST(a_host_cannot_run_far_ahead_of_a_busy_device)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, slow_step(), BUF_TOPOLOGICAL);
  weft_event *defined[AHEAD];

  weft_buffer *x = launch_ahead(exe, zeros(weft_platform_device(platform, 0)), defined, MOST_QUEUED);
  T_TRUE(first_of(x) == AHEAD);
  for (int i = 0; i < AHEAD; i++) weft_event_release(defined[i]);
  weft_buffer_release(x);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* They wait for the launching thread itself. */
TEST(launches_on_what_is_yet_to_come_do_not_wait)
{
  weft_platform *platform = test_platform(1, 2);
  weft_device *device = weft_platform_device(platform, 0);
  weft_executable *exe = test_compile(platform, slow_step(), BUF_TOPOLOGICAL);
  weft_buffer *promise, *x = zeros(device), *last;
  weft_event *defined[AHEAD];
  int64_t began_ns = weft_now_ns();

  T_OK(weft_buffer_promise(device, &step_type, &promise));
  last = launch_ahead(exe, weft_buffer_retain(promise), defined, AHEAD);
  T_TRUE(weft_now_ns() - began_ns < 8 * WEFT_NS_PER_S); /* a launch that waits does so for ten */
  T_TRUE(!weft_event_is_ready(defined[0]));
  T_OK(weft_buffer_fulfil(promise, x, false));
  T_TRUE(first_of(last) == AHEAD);
  for (int i = 0; i < AHEAD; i++) weft_event_release(defined[i]);
  weft_buffer_release(x);
  weft_buffer_release(last);
  weft_buffer_release(promise);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* The number of this process's threads without a name of their own: the main thread, and threads that libraries start
 * when they are loaded. */
static int count_unnamed_threads(void)
{
  char own[64], path[300], name[64];
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");

  if (!tasks) return 1;
  prctl(PR_GET_NAME, own);
  for (struct dirent *d; (d = readdir(tasks));) {
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
    FILE *f = d->d_name[0] == '.' ? NULL : fopen(path, "r");
    if (!f) continue;
    if (fgets(name, sizeof name, f)) count += strncmp(name, own, strlen(own)) == 0;
    fclose(f);
  }
  closedir(tasks);
  return count;
}

/* Threads of OpenBLAS would spin on the workers' cores during the first runs. */
TEST(no_threads_run_but_the_workers)
{
  if (getenv("WEFT_SANITIZED")) T_SKIP("a sanitizer may have a thread of its own");
  if (test_is_on_gpu()) T_SKIP("the driver has threads of its own");
  weft_platform *platform = test_platform(1, 2);
  for (int i = 0; i < 1000 && count_unnamed_threads() > 1; i++)
    usleep(5000); /* one that was joined is still seen for a moment */
  T_EQ_INT(count_unnamed_threads(), 1);
  weft_platform_release(platform);
}

/* The launch or its output reports the error, and the next launch succeeds. */
TEST(every_allocation_of_a_launch_may_fail)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, STEP_TEXT, BUF_TOPOLOGICAL);
  weft_buffer *x = zeros(weft_platform_device(platform, 0)), *y;
  int n = 0;

  for (bool failed = true; failed; n++) {
    y = NULL;
    alloc_fail_at(n);
    weft_status *st = launch1(exe, x, true, &y), *st2 = NULL;
    if (!st) st2 = weft_event_await(weft_buffer_defined(y), weft_deadline_after_ms(30000));
    failed = alloc_stop();
    T_CODE(st ? st : st2, failed ? WEFT_RESOURCE_EXHAUSTED : WEFT_OK);
    if (!failed) T_TRUE(first_of(y) == 1);
    weft_buffer_release(y);
  }
  T_TRUE(n > 3);
  weft_buffer_release(x);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* Half of the least normal float, on a worker and, of one element, on the launching thread. */
TEST(denormals_are_kept_unless_the_platform_flushes_them)
{
  static const char *const texts[] = {
    "HloModule one\n"
    "ENTRY e {\n"
    "  x = f32[1] parameter(0)\n"
    "  y = f32[1] parameter(1)\n"
    "  ROOT r = f32[1] multiply(x, y)\n"
    "}\n",
    "HloModule many\n"
    "ENTRY e {\n"
    "  x = f32[100000] parameter(0)\n"
    "  y = f32[100000] parameter(1)\n"
    "  ROOT r = f32[100000] multiply(x, y)\n"
    "}\n"};
  static float x[STEP_N], y[STEP_N], z[STEP_N];

  if (test_is_on_gpu()) T_SKIP("a GPU keeps denormals");
  for (int i = 0; i < STEP_N; i++) {
    x[i] = 0x1p-126f;
    y[i] = 0.5f;
  }
  for (int flush = 0; flush < 2; flush++) {
    setenv("WEFT_FLUSH_DENORMALS", flush ? "1" : "0", 1);
    /* the workers do not inherit the floating-point mode of the thread that makes the platform, and that mode does not
     * change */
    bool was = weft_thread_flush_denormals(!flush);
    weft_platform *platform = test_platform(1, 2);
    for (size_t i = 0; i < WEFT_COUNT(texts); i++) {
      weft_executable *exe = test_compile(platform, texts[i], BUF_TOPOLOGICAL);
      T_OK(test_run(exe, (const void *[]){x, y}, (void *[]){z}));
      weft_executable_release(exe);
      uint32_t bits;
      memcpy(&bits, &z[0], sizeof bits);
      T_EQ_INT(bits, flush ? 0 : 1 << 22);
    }
    T_TRUE(weft_thread_flush_denormals(was) == !flush);
    weft_platform_release(platform);
  }
  unsetenv("WEFT_FLUSH_DENORMALS");
}

TEST_MAIN(UNIT(no_threads_run_but_the_workers), UNIT(a_donated_input_becomes_the_output),
          UNIT(what_others_see_is_copied_rather_than_donated),
          UNIT(an_input_may_be_deleted_as_soon_as_the_launch_returns), UNIT(an_input_that_failed_poisons_the_outputs),
          UNIT(no_device_is_assigned_twice), UNIT(wrong_inputs_are_refused_before_anything_runs), UNIT(copies_go_between_devices_and_wait_for_their_source),
          UNIT(a_loop_copies_what_threads_made), UNIT(threads_may_launch_one_executable), UNIT(every_allocation_of_a_launch_may_fail),
          UNIT(the_last_reference_may_go_while_work_is_in_flight), UNIT(a_host_cannot_run_far_ahead_of_a_busy_device),
          UNIT(launches_on_what_is_yet_to_come_do_not_wait),
          UNIT(denormals_are_kept_unless_the_platform_flushes_them))
