/* tests/gpu/device_ffi_test.c -- handlers of custom calls for devices: they get device memory and the stream. */
#include "cpu/run.h"

#include <pthread.h>
#include <unistd.h>

#include "driver.h"
#include "runtime/ffi.h"

static const float x[4] = {1, 2, 3, 4};

/* w = 2 f(2 x): the handler's work lies between two kernels of Weft's on the stream. */
static weft_status *run_call(const char *target, float *w)
{
  weft_platform *platform = test_platform(1, 2);
  const void *const inputs[] = {x};
  void *const outputs[] = {w};
  weft_executable *exe;
  hlo_module *module;
  char text[512];

  snprintf(
    text, sizeof text,
    "HloModule between\n"
    "ENTRY e {\n"
    "  a = f32[4] parameter(0)\n"
    "  y = f32[4] add(a, a)\n"
    "  z = f32[4] custom-call(y), custom_call_target=\"%s\", api_version=API_VERSION_TYPED_FFI, backend_config={}\n"
    "  ROOT w = f32[4] add(z, z)\n"
    "}\n",
    target);
  T_OK(hlo_parse(text, strlen(text), &module));
  weft_status *st = weft_compile(platform, module, &(weft_compile_options){0}, &exe);
  if (!st) {
    for (int i = 0; i < 3 && !st; i++) st = test_run(exe, inputs, outputs);
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
  return st;
}

static void nothing_is_left(void)
{
  char text[300] = "";

  for (int i = 0; i < 2000 && emu_leaks(text, sizeof text) > 0; i++) usleep(5000);
  if (emu_leaks(text, sizeof text)) fail_msg("leaked: %s", text);
}

static XLA_FFI_Error *error_of(const XLA_FFI_Api *api, const char *message)
{
  XLA_FFI_Error_Create_Args args = {.struct_size = sizeof args, .message = message, .errc = WEFT_FAILED_PRECONDITION};

  return api->XLA_FFI_Error_Create(&args);
}

/* Queues, on the stream, a copy of the operand to memory that it takes, and one from there to the result. */
static XLA_FFI_Error *copy_twice(XLA_FFI_CallFrame *frame)
{
  const XLA_FFI_Buffer *in = frame->args.args[0], *out = frame->rets.rets[0];
  XLA_FFI_Stream_Get_Args stream = {.struct_size = sizeof stream, .ctx = frame->ctx};
  XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&stream);
  size_t bytes = sizeof(float) * (size_t)in->dims[0];

  if (error) return error;
  for (int i = 0; i < 2; i++) {
    XLA_FFI_DeviceMemory_Allocate_Args take = {
      .struct_size = sizeof take, .ctx = frame->ctx, .size = bytes, .alignment = 256};
    error = frame->api->XLA_FFI_DeviceMemory_Allocate(&take);
    if (error) return error;
    if ((uintptr_t)take.data % 256) return error_of(frame->api, "the memory is not aligned");
    if (cuMemcpyAsync((wcu_ptr)(uintptr_t)take.data, (wcu_ptr)(uintptr_t)in->data, bytes, stream.stream) ||
        cuMemcpyAsync((wcu_ptr)(uintptr_t)out->data, (wcu_ptr)(uintptr_t)take.data, bytes, stream.stream))
      return error_of(frame->api, "the driver refuses a copy");
    XLA_FFI_DeviceMemory_Free_Args give = {
      .struct_size = sizeof give, .ctx = frame->ctx, .size = bytes, .data = take.data};
    error = frame->api->XLA_FFI_DeviceMemory_Free(&give);
    if (error) return error;
  }
  return NULL;
}

static XLA_FFI_Error *wrong(XLA_FFI_CallFrame *frame) { return error_of(frame->api, "this handler is for hosts"); }

static void add_for_devices(const char *name, XLA_FFI_Handler *execute)
{
  T_OK(rt_ffi_register_on_device(name, strlen(name), &(rt_ffi_device_handler){.bundle.execute = execute}));
}

TEST(a_handler_gets_device_memory_and_the_stream)
{
  float w[4];

  add_for_devices("copy_twice", copy_twice);
  T_OK(rt_ffi_register("copy_twice", 10, &(XLA_FFI_Handler_Bundle){.execute = wrong}));
  T_OK(run_call("copy_twice", w));
  for (int i = 0; i < 4; i++) assert_float_equal(w[i], 4 * x[i], 0);
  nothing_is_left();
}

TEST(a_handler_that_is_late_for_the_driver_delays_what_follows)
{
  float w[4];

  setenv("WEFT_EMU_DELAY_US", "3000", 1);
  emu_reset();
  a_handler_gets_device_memory_and_the_stream(NULL);
  add_for_devices("copy_again", copy_twice);
  T_OK(run_call("copy_again", w));
  unsetenv("WEFT_EMU_DELAY_US");
  emu_reset();
}

TEST(an_error_of_a_handler_is_the_error_of_the_run)
{
  float w[4];

  add_for_devices("wrong", wrong);
  weft_status *st = run_call("wrong", w);
  T_EQ_INT(weft_status_code(st), WEFT_FAILED_PRECONDITION);
  T_TRUE(strstr(weft_status_text(st, true), "custom-call z") != NULL);
  T_FAILS(st, "this handler is for hosts");
  nothing_is_left();
}

static XLA_FFI_CallFrame late_frame;

static void *end_later(void *arg)
{
  XLA_FFI_Future_SetAvailable_Args args = {.struct_size = sizeof args, .future = arg};

  usleep(20000);
  (void)late_frame.api->XLA_FFI_Future_SetAvailable(&args);
  return NULL;
}

static XLA_FFI_Error *late(XLA_FFI_CallFrame *frame)
{
  XLA_FFI_Future_Create_Args args = {.struct_size = sizeof args};
  XLA_FFI_Error *error = copy_twice(frame);
  pthread_t thread;

  if (!error) error = frame->api->XLA_FFI_Future_Create(&args);
  if (error) return error;
  late_frame = *frame;
  frame->future = args.future;
  if (pthread_create(&thread, NULL, end_later, args.future)) return error_of(frame->api, "no thread");
  pthread_detach(thread);
  return NULL;
}

TEST(a_handler_that_ends_later_is_waited_for)
{
  float w[4];

  add_for_devices("late", late);
  T_OK(run_call("late", w));
  for (int i = 0; i < 4; i++) assert_float_equal(w[i], 4 * x[i], 0);
  nothing_is_left();
}

TEST(packed_elements_are_refused)
{
  static const char text[] =
    "HloModule packed ENTRY e { a = s4[4] parameter(0)\n"
    "  ROOT z = s4[4] custom-call(a), custom_call_target=\"copy_twice\", api_version=API_VERSION_TYPED_FFI }\n";
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  weft_executable *exe;
  hlo_module *module;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_FAILS(weft_compile(platform, module, &(weft_compile_options){0}, &exe), "elements below a byte");
}

/* ---- graphs ---- */

static int copies; /* calls of copy_once */

static XLA_FFI_Error *copy_once(XLA_FFI_CallFrame *frame)
{
  const XLA_FFI_Buffer *in = frame->args.args[0], *out = frame->rets.rets[0];
  XLA_FFI_Stream_Get_Args stream = {.struct_size = sizeof stream, .ctx = frame->ctx};
  XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&stream);

  copies++;
  if (error) return error;
  if (cuMemcpyAsync((wcu_ptr)(uintptr_t)out->data, (wcu_ptr)(uintptr_t)in->data, sizeof(float) * (size_t)in->dims[0],
                    stream.stream))
    return error_of(frame->api, "the driver refuses a copy");
  return NULL;
}

static void add_with_traits(const char *name, XLA_FFI_Handler *execute, XLA_FFI_Handler_Traits traits)
{
  const rt_ffi_device_handler handler = {.bundle.execute = execute, .traits = traits};

  T_OK(rt_ffi_register_on_device(name, strlen(name), &handler));
}

/* Runs w = 2 f(2 x) six times on the same arrays. The graphs that were launched. */
static uint64_t run_in_graph(const char *target, int64_t least)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe;
  hlo_module *module;
  char text[512];
  float w[4];

  snprintf(text, sizeof text,
           "HloModule between\n"
           "ENTRY e {\n"
           "  a = f32[4] parameter(0)\n"
           "  y = f32[4] add(a, a)\n"
           "  z = f32[4] custom-call(y), custom_call_target=\"%s\", api_version=API_VERSION_TYPED_FFI\n"
           "  ROOT w = f32[4] add(z, z)\n"
           "}\n",
           target);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(platform, module, &(weft_compile_options){.graph_least = least}, &exe));
  weft_buffer *in = test_buffer(weft_platform_device(platform, 0), weft_executable_param_type(exe, 0), x), *out;
  weft_buffer *const *ins[] = {&in};
  weft_buffer **outs[] = {&out};
  uint64_t before = emu_calls("cuGraphLaunch");
  copies = 0;
  for (int run = 0; run < 6; run++) {
    T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
    T_OK(weft_buffer_to_host(out, w, weft_deadline_after_ms(60000)));
    weft_buffer_release(out);
    for (int i = 0; i < 4; i++) assert_float_equal(w[i], 4 * x[i], 0);
  }
  weft_buffer_release(in);
  weft_executable_release(exe);
  weft_platform_release(platform);
  return emu_calls("cuGraphLaunch") - before;
}

/* The first run queues the steps, the second records them; the handler is not called again. */
TEST(a_handler_that_says_it_may_be_recorded_is_part_of_a_graph)
{
  add_with_traits("copy_once", copy_once, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
  T_EQ_INT(run_in_graph("copy_once", 3), 5);
  T_EQ_INT(copies, 2);
  nothing_is_left();
}

TEST(a_handler_that_does_not_say_so_is_called_in_every_run)
{
  add_with_traits("copy_once", copy_once, 0);
  T_EQ_INT(run_in_graph("copy_once", 3), 0);
  T_EQ_INT(copies, 6);
  nothing_is_left();
}

/* A graph cannot own memory that the handler gives back at once. */
TEST(a_handler_that_takes_memory_is_not_recorded)
{
  add_with_traits("copy_twice", copy_twice, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE);
  T_EQ_INT(run_in_graph("copy_twice", 3), 0);
  nothing_is_left();
}

int main(void)
{
  open_driver();
  const struct CMUnitTest units[] = {
    UNIT(a_handler_gets_device_memory_and_the_stream), UNIT(a_handler_that_is_late_for_the_driver_delays_what_follows),
    UNIT(an_error_of_a_handler_is_the_error_of_the_run), UNIT(a_handler_that_ends_later_is_waited_for),
    UNIT(packed_elements_are_refused), UNIT(a_handler_that_says_it_may_be_recorded_is_part_of_a_graph),
    UNIT(a_handler_that_does_not_say_so_is_called_in_every_run), UNIT(a_handler_that_takes_memory_is_not_recorded)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
