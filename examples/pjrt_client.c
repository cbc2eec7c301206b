/* examples/pjrt_client.c -- A PJRT client in plain C: loads a plugin, compiles StableHLO text, runs it on the first
 * device and prints the result.
 *
 *   cc -I include examples/pjrt_client.c -o pjrt_client -ldl && ./pjrt_client path/to/pjrt_weft.so
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/pjrt_c_api.h"

static const char program_text[] =
  "module @example {\n"
  "  func.func public @main(%x: tensor<2x3xf32>, %y: tensor<3x2xf32>) -> tensor<2x2xf32> {\n"
  "    %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>\n"
  "    return %z : tensor<2x2xf32>\n"
  "  }\n"
  "}\n";

static const PJRT_Api *api;

/* Prints what is wrong and leaves. */
static void check(PJRT_Error *error, const char *what)
{
  PJRT_Error_Message_Args args = {.struct_size = sizeof args, .error = error};

  if (!error) return;
  api->PJRT_Error_Message(&args);
  fprintf(stderr, "%s: %.*s\n", what, (int)args.message_size, args.message);
  exit(1);
}

/* Calls PJRT_<name> and leaves its arguments, with what it filled in, in `var`. */
#define CALL(var, name, ...)                                             \
  PJRT_##name##_Args var = {.struct_size = sizeof var, __VA_ARGS__};     \
  check(api->PJRT_##name(&var), #name)

static void await(PJRT_Event *event)
{
  CALL(wait, Event_Await, .event = event);
  CALL(gone, Event_Destroy, .event = event);
}

static PJRT_Buffer *to_device(PJRT_Client *client, PJRT_Device *device, const float *data, const int64_t *dims)
{
  CALL(args, Client_BufferFromHostBuffer, .client = client, .device = device, .data = data,
       .type = PJRT_Buffer_Type_F32, .dims = dims, .num_dims = 2,
       .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
  await(args.done_with_host_buffer);
  return args.buffer;
}

int main(int argc, char **argv)
{
  static const float x[] = {1, 2, 3, 4, 5, 6}, y[] = {1, 0, 0, 1, 1, 1};
  static const int64_t x_dims[] = {2, 3}, y_dims[] = {3, 2};
  void *library = dlopen(argc > 1 ? argv[1] : "pjrt_weft.so", RTLD_NOW);
  const PJRT_Api *(*get_api)(void);
  float z[4];

  if (library) *(void **)&get_api = dlsym(library, "GetPjrtApi");
  if (!library || !get_api) {
    fprintf(stderr, "cannot load a plugin: %s\n", dlerror());
    return 1;
  }
  api = get_api();
  CALL(init, Plugin_Initialize, .extension_start = NULL);
  CALL(client, Client_Create, .create_options = NULL);
  CALL(devices, Client_AddressableDevices, .client = client.client);
  PJRT_Device *device = devices.addressable_devices[0];

  PJRT_Program program = {.struct_size = sizeof program, .code = (char *)program_text, .code_size = strlen(program_text),
                          .format = "mlir", .format_size = 4};
  CALL(compiled, Client_Compile, .client = client.client, .program = &program, .compile_options = "");

  PJRT_Buffer *arguments[] = {to_device(client.client, device, x, x_dims), to_device(client.client, device, y, y_dims)};
  PJRT_Buffer *results[1], *const *argument_lists[] = {arguments}, **const result_lists[] = {results};
  PJRT_ExecuteOptions options = {.struct_size = sizeof options};
  PJRT_Event *done;
  CALL(run, LoadedExecutable_Execute, .executable = compiled.executable, .options = &options,
       .argument_lists = argument_lists, .num_devices = 1, .num_args = 2, .output_lists = result_lists,
       .device_complete_events = &done);
  await(done);

  CALL(copy, Buffer_ToHostBuffer, .src = results[0], .dst = z, .dst_size = sizeof z);
  await(copy.event);
  printf("%g %g\n%g %g\n", z[0], z[1], z[2], z[3]);

  PJRT_Buffer *buffers[] = {arguments[0], arguments[1], results[0]};
  for (int i = 0; i < 3; i++) { CALL(gone, Buffer_Destroy, .buffer = buffers[i]); }
  CALL(no_program, LoadedExecutable_Destroy, .executable = compiled.executable);
  CALL(no_client, Client_Destroy, .client = client.client);
  return 0;
}
