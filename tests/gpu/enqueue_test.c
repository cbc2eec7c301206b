/* tests/gpu/enqueue_test.c -- no call of a client waits for the device: while a kernel that was queued first has not
 * begun, programs of all kinds, transfers, copies and donations are queued behind it, and each call returns. */
#include "pjrt/client.h"

#include "base/deadline.h"
#include "gpu/emulated_symbol.h"

enum { ELEMS = 4, FIRST_STALL_MS = 1500, LONGEST_STALL_MS = 60000 };

static void (*emu_reset)(void);

static void inject(const char *faults)
{
  if (faults) setenv("WEFT_EMU_FAULTS", faults, 1);
  else unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
}

/* A program of one parameter and one result, and what it makes of {1, 2, 3, 4}. */
typedef struct program {
  const char *name, *text;
  float want[ELEMS];
} program;

#define MAIN(body) \
  "module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n" \
  "  %one = stablehlo.constant dense<1.0> : tensor<4xf32>\n" \
  "  %zero = stablehlo.constant dense<0> : tensor<i32>\n" \
  "  %step = stablehlo.constant dense<1> : tensor<i32>\n" body "  return %y : tensor<4xf32> } }\n"
/* A sort keeps a loop from being one kernel: the host drives it. */
#define SORTED(to, from) \
  "  " to " = \"stablehlo.sort\"(" from ") ({\n" \
  "    ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n" \
  "      %lt = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n" \
  "      stablehlo.return %lt : tensor<i1>\n" \
  "    }) {dimension = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>\n"

static const program programs[] = {
  {"one kernel", MAIN("  %y = stablehlo.add %x, %one : tensor<4xf32>\n"), {2, 3, 4, 5}},
  {"several kernels, which become a graph",
   MAIN(SORTED("%s", "%x") "  %n = stablehlo.negate %s : tensor<4xf32>\n" SORTED("%t", "%n") SORTED("%u", "%t")
        "  %m = stablehlo.negate %u : tensor<4xf32>\n" SORTED("%y", "%m")), {1, 2, 3, 4}},
  {"a loop whose rounds are known",
   MAIN("  %last = stablehlo.constant dense<3> : tensor<i32>\n"
        "  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<4xf32>\n"
        "    cond {\n"
        "      %p = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        "      stablehlo.return %p : tensor<i1>\n"
        "    } do {\n" SORTED("%s", "%v")
        "      %w = stablehlo.add %s, %s : tensor<4xf32>\n"
        "      %j = stablehlo.add %i, %step : tensor<i32>\n"
        "      stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>\n"
        "    }\n"
        "  %y = stablehlo.add %r#1, %one : tensor<4xf32>\n"), {9, 17, 25, 33}},
  {"a loop whose end depends on data",
   MAIN("  %most = stablehlo.constant dense<20.0> : tensor<f32>\n"
        "  %r = stablehlo.while(%v = %x) : tensor<4xf32>\n"
        "    cond {\n"
        "      %f = stablehlo.slice %v [3:4] : (tensor<4xf32>) -> tensor<1xf32>\n"
        "      %g = stablehlo.reshape %f : (tensor<1xf32>) -> tensor<f32>\n"
        "      %p = stablehlo.compare LT, %g, %most : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "      stablehlo.return %p : tensor<i1>\n"
        "    } do {\n" SORTED("%s", "%v")
        "      %w = stablehlo.add %s, %s : tensor<4xf32>\n"
        "      stablehlo.return %w : tensor<4xf32>\n"
        "    }\n"
        "  %y = stablehlo.add %r, %one : tensor<4xf32>\n"), {9, 17, 25, 33}},
  {"a branch",
   MAIN("  %f = stablehlo.slice %x [0:1] : (tensor<4xf32>) -> tensor<1xf32>\n"
        "  %g = stablehlo.reshape %f : (tensor<1xf32>) -> tensor<f32>\n"
        "  %h = stablehlo.constant dense<0.5> : tensor<f32>\n"
        "  %p = stablehlo.compare GT, %g, %h : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "  %y = \"stablehlo.if\"(%p) ({\n" SORTED("%s", "%x")
        "      %w = stablehlo.add %s, %one : tensor<4xf32>\n"
        "      stablehlo.return %w : tensor<4xf32>\n"
        "    }, {\n"
        "      %w = stablehlo.negate %x : tensor<4xf32>\n"
        "      stablehlo.return %w : tensor<4xf32>\n"
        "    }) : (tensor<i1>) -> tensor<4xf32>\n"), {2, 3, 4, 5}},
  {"a product of the library",
   MAIN("  %a = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<2x2xf32>\n"
        "  %d = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x2xf32>) -> "
        "tensor<2x2xf32>\n"
        "  %y = stablehlo.reshape %d : (tensor<2x2xf32>) -> tensor<4xf32>\n"), {7, 10, 15, 22}},
  {"a step on the host",
   MAIN("  %z = stablehlo.subtract %one, %one : tensor<4xf32>\n"
        "  %c = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<4x1xf32>\n"
        "  %q = stablehlo.custom_call @cusparse_gtsv2_ffi(%z, %one, %z, %c) {api_version = 4 : i32, backend_config = {}} : "
        "(tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x1xf32>) -> tensor<4x1xf32>\n"
        "  %y = stablehlo.reshape %q : (tensor<4x1xf32>) -> tensor<4xf32>\n"), {1, 2, 3, 4}},
};
static const char donating[] =
  "module @m { func.func public @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {\n"
  "  %y = stablehlo.add %x, %x : tensor<4xf32>\n"
  "  return %y : tensor<4xf32> } }\n";
static const float numbers[ELEMS] = {1, 2, 3, 4}, one_less[ELEMS] = {0, 1, 2, 3};
static const int64_t dims[] = {ELEMS};

enum { PROGRAMS = WEFT_COUNT(programs), HOST_READS = 2, LATER = PROGRAMS + 4 };

static PJRT_Buffer *run_one(PJRT_LoadedExecutable *exe, PJRT_Buffer *x)
{
  PJRT_Buffer *y;

  T_OK(execute(exe, &x, 1, 0, &y, NULL));
  return y;
}

static void check(PJRT_Buffer *buffer, const float *want, const char *what)
{
  float got[ELEMS];

  read_floats(buffer, got, ELEMS);
  for (int i = 0; i < ELEMS; i++)
    if (got[i] != want[i]) fail_msg("%s: element %d is %g, not %g", what, i, got[i], want[i]);
}

/* The longest call between two of these, of which `what` names the second. */
typedef struct stopwatch {
  int64_t last_ns, longest_ns;
  const char *what;
} stopwatch;

static void lap(stopwatch *w, const char *what)
{
  int64_t now = weft_now_ns(), ns = now - w->last_ns;

  if (ns > w->longest_ns) w->longest_ns = ns, w->what = what;
  w->last_ns = now;
}

/* Queues everything behind a kernel that begins `stall_ms` late. true: the kernel had not ended when the last call
 * returned, so that no call can have waited for it. */
static bool queue_all(PJRT_Client *client, PJRT_LoadedExecutable *const *exes, PJRT_LoadedExecutable *donor,
                      int stall_ms, stopwatch *w)
{
  PJRT_Buffer *x = make_floats(client, one_less, dims, 1, NULL), *out[LATER], *last = NULL;
  float read[HOST_READS][ELEMS];
  PJRT_Event *reads[HOST_READS];
  char fault[64];
  int count = 0;

  snprintf(fault, sizeof fault, "cuLaunchKernel:1=stall:%dms", stall_ms);
  inject(fault);
  *w = (stopwatch){.last_ns = weft_now_ns()};
  PJRT_Buffer *late = run_one(exes[0], x);
  PJRT_Event *computed = CALL(Buffer_ReadyEvent, .buffer = late).event;
  inject(NULL);
  lap(w, "the kernel itself");
  for (int i = 0; i < PROGRAMS; i++) {
    out[count++] = run_one(exes[i], late);
    lap(w, programs[i].name);
  }
  last = run_one(exes[0], late);
  for (int i = 0; i < 3; i++) {
    PJRT_Buffer *next = run_one(donor, last);
    destroy_buffer(last);
    last = next;
    lap(w, "a program that takes over its parameter");
  }
  PJRT_Client_BufferFromHostBuffer_Args host = CALL(Client_BufferFromHostBuffer, .client = client, .data = numbers,
                                                    .type = PJRT_Buffer_Type_F32, .dims = dims, .num_dims = 1,
                                                    .memory = memory_of(client, 0, 0));
  lap(w, "an array of the host");
  out[count++] = run_one(exes[0], host.buffer);
  lap(w, "a program that takes an array of the host");
  out[count++] = CALL(Buffer_CopyToDevice, .buffer = last, .dst_device = device_of(client, 1)).dst_buffer;
  lap(w, "a copy to another device");
  out[count++] = CALL(Buffer_CopyToMemory, .buffer = last, .dst_memory = memory_of(client, 0, 1)).dst_buffer;
  lap(w, "a copy to pinned memory of the host");
  reads[0] = CALL(Buffer_ToHostBuffer, .src = last, .dst = read[0], .dst_size = sizeof read[0]).event;
  lap(w, "a copy to the host");
  reads[1] = CALL(Buffer_CopyRawToHost, .buffer = last, .dst = read[1], .transfer_size = sizeof read[1]).event;
  lap(w, "a copy of bytes to the host");
  out[count++] = run_one(exes[0], last);
  lap(w, "the last program");
  destroy_buffer(last);
  destroy_buffer(late);
  destroy_buffer(x);
  lap(w, "the end of buffers in use");

  bool in_time = !CALL(Event_IsReady, .event = computed).is_ready;
  T_OK(outcome(computed));
  static const float doubled[] = {16, 24, 32, 40}, more[] = {17, 25, 33, 41};
  for (int i = 0; i < PROGRAMS; i++) check(out[i], programs[i].want, programs[i].name);
  check(out[PROGRAMS], programs[0].want, "an array of the host");
  check(out[PROGRAMS + 1], doubled, "a copy to another device");
  check(out[PROGRAMS + 2], doubled, "a copy to pinned memory");
  check(out[PROGRAMS + 3], more, "the last program");
  for (int i = 0; i < HOST_READS; i++) {
    T_OK(outcome(reads[i]));
    for (int k = 0; k < ELEMS; k++)
      if (read[i][k] != doubled[k]) fail_msg("read %d: element %d is %g, not %g", i, k, read[i][k], doubled[k]);
  }
  T_OK(outcome(host.done_with_host_buffer));
  destroy_buffer(host.buffer);
  for (int i = 0; i < count; i++) destroy_buffer(out[i]);
  return in_time;
}

TEST(no_call_waits_for_the_device)
{
  PJRT_Client *client = make_client(2);
  PJRT_LoadedExecutable *exes[PROGRAMS], *donor = compile(client, donating);
  stopwatch w = {0};
  bool in_time = false;

  for (int i = 0; i < PROGRAMS; i++) exes[i] = compile(client, programs[i].text);
  /* Modules are loaded, libraries opened and graphs recorded in the first runs. */
  for (int i = 0; i < 3; i++) T_TRUE(queue_all(client, exes, donor, 0, &w) || true);
  /* A busy machine may need longer for the calls than the kernel is late. A call that waits always does. */
  for (int ms = FIRST_STALL_MS; ms <= LONGEST_STALL_MS && !in_time; ms *= 6) {
    in_time = queue_all(client, exes, donor, ms, &w);
    print_message("# a kernel is %d ms late; the longest call took %.1f ms: %s\n", ms, (double)w.longest_ns / 1e6,
                  w.what);
  }
  if (!in_time) fail_msg("a call waits for the device: %s", w.what);
  for (int i = 0; i < PROGRAMS; i++) CALL(LoadedExecutable_Destroy, .executable = exes[i]);
  CALL(LoadedExecutable_Destroy, .executable = donor);
  CALL(Client_Destroy, .client = client);
}

int main(void)
{
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  const struct CMUnitTest units[] = {UNIT(no_call_waits_for_the_device)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
