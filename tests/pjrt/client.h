/* tests/pjrt/client.h -- calling the plugin's table from C tests.
 *
 *   PJRT_Client *client = CALL(Client_Create).client;
 *   FAILS("no live buffer", Buffer_Delete, .buffer = gone);
 */
#ifndef WEFT_TESTS_PJRT_CLIENT_H
#define WEFT_TESTS_PJRT_CLIENT_H

#include "test.h"

#include <unistd.h>

#include "weft/pjrt_extensions.h"

const PJRT_Api *GetPjrtApi(void);

/* Takes the error; NULL for NULL. */
static inline weft_status *status_of(PJRT_Error *error)
{
  PJRT_Error_Message_Args text = {.struct_size = sizeof text, .error = error};
  PJRT_Error_GetCode_Args code = {.struct_size = sizeof code, .error = error};
  weft_status *st;

  if (!error) return NULL;
  GetPjrtApi()->PJRT_Error_Message(&text);
  assert_null(GetPjrtApi()->PJRT_Error_GetCode(&code));
  st = weft_status_new((weft_code)code.code, "client", 0, "%.*s", (int)text.message_size, text.message);
  GetPjrtApi()->PJRT_Error_Destroy(
    &(PJRT_Error_Destroy_Args){.struct_size = sizeof(PJRT_Error_Destroy_Args), .error = error});
  return st;
}

static inline void must_succeed(PJRT_Error *error, const char *function)
{
  if (error) fail_msg("%s: %s", function, weft_status_text(status_of(error), true));
}

/* The arguments after a call that must succeed, with what it filled in. */
#define CALL(name, ...)                                                                     \
  ({                                                                                        \
    PJRT_##name##_Args args_##name = {.struct_size = sizeof args_##name, __VA_ARGS__};      \
    must_succeed(GetPjrtApi()->PJRT_##name(&args_##name), #name);                           \
    args_##name;                                                                            \
  })
#define FAILS(part, name, ...)                                                   \
  do {                                                                           \
    PJRT_##name##_Args args_ = {.struct_size = sizeof args_, __VA_ARGS__};       \
    T_FAILS(status_of(GetPjrtApi()->PJRT_##name(&args_)), part);                 \
  } while (0)

/* Waits at most 20 s; the event's status.  Destroys the event. */
static inline weft_status *outcome(PJRT_Event *event)
{
  weft_status *st = NULL;
  int waited = 0;

  while (!CALL(Event_IsReady, .event = event).is_ready) {
    if (waited++ > 20000) fail_msg("the event did not become ready");
    usleep(1000);
  }
  PJRT_Event_Error_Args args = {.struct_size = sizeof args, .event = event};
  st = status_of(GetPjrtApi()->PJRT_Event_Error(&args));
  CALL(Event_Destroy, .event = event);
  return st;
}

static inline weft_status *buffer_outcome(PJRT_Buffer *buffer)
{
  return outcome(CALL(Buffer_ReadyEvent, .buffer = buffer).event);
}

static inline PJRT_Client *make_client(int64_t devices)
{
  PJRT_NamedValue option = {.struct_size = sizeof option, .name = "num_devices", .name_size = 11,
                            .type = PJRT_NamedValue_kInt64, .int64_value = devices, .value_size = 1};
  return CALL(Client_Create, .create_options = &option, .num_options = 1).client;
}

static inline PJRT_Device *device_of(PJRT_Client *client, int i)
{
  return CALL(Client_AddressableDevices, .client = client).addressable_devices[i];
}
/* kind: 0 device, 1 pinned_host, 2 unpinned_host */
static inline PJRT_Memory *memory_of(PJRT_Client *client, int device, int kind)
{
  return CALL(Device_AddressableMemories, .device = device_of(client, device)).memories[kind];
}

static inline PJRT_Buffer *make_floats(PJRT_Client *client, const float *data, const int64_t *dims, size_t rank,
                                       PJRT_Buffer_MemoryLayout *layout)
{
  PJRT_Client_BufferFromHostBuffer_Args args = CALL(Client_BufferFromHostBuffer, .client = client, .data = data,
                                                    .type = PJRT_Buffer_Type_F32, .dims = dims, .num_dims = rank,
                                                    .memory = memory_of(client, 0, 0), .device_layout = layout);
  T_OK(outcome(args.done_with_host_buffer));
  return args.buffer;
}

static inline void read_floats(PJRT_Buffer *buffer, float *out, size_t count)
{
  PJRT_Event *event = CALL(Buffer_ToHostBuffer, .src = buffer, .dst = out, .dst_size = count * sizeof *out).event;
  T_OK(outcome(event));
}

static inline void destroy_buffer(PJRT_Buffer *buffer) { CALL(Buffer_Destroy, .buffer = buffer); }

static inline weft_status *try_compile(PJRT_Client *client, const char *text, const void *options, size_t options_size,
                                       PJRT_LoadedExecutable **out)
{
  PJRT_Program program = {.struct_size = sizeof program, .code = (char *)text, .code_size = strlen(text), .format = "mlir",
                          .format_size = 4};
  PJRT_Client_Compile_Args args = {.struct_size = sizeof args, .client = client, .program = &program,
                                   .compile_options = options, .compile_options_size = options_size};
  weft_status *st = status_of(GetPjrtApi()->PJRT_Client_Compile(&args));

  *out = args.executable;
  return st;
}
static inline PJRT_LoadedExecutable *compile(PJRT_Client *client, const char *text)
{
  PJRT_LoadedExecutable *exe;

  T_OK(try_compile(client, text, "", 0, &exe));
  return exe;
}

/* One device, one argument list; outputs are filled.  *done may be NULL. */
static inline weft_status *execute(PJRT_LoadedExecutable *exe, PJRT_Buffer *const *inputs, size_t count, int launch_id,
                                   PJRT_Buffer **outputs, PJRT_Event **done)
{
  PJRT_ExecuteOptions options = {.struct_size = sizeof options, .launch_id = launch_id};
  PJRT_Buffer *const *const lists[] = {inputs};
  PJRT_Buffer **const outs[] = {outputs};
  PJRT_LoadedExecutable_Execute_Args args = {.struct_size = sizeof args, .executable = exe, .options = &options,
                                             .argument_lists = lists, .num_devices = 1, .num_args = count,
                                             .output_lists = outs, .device_complete_events = done};
  return status_of(GetPjrtApi()->PJRT_LoadedExecutable_Execute(&args));
}

#endif
