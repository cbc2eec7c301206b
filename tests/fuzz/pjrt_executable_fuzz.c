/* tests/fuzz/pjrt_executable_fuzz.c -- A serialised executable of any bytes, by way of the plugin: an error, or a
 * program that is loaded. saved_fuzz.h says what inputs are. */
#include <config.h>

#include "pjrt/internal.h"
#include "saved_fuzz.h"

const PJRT_Api *GetPjrtApi(void);

/* ---- the plugin ---- */

static void destroy(PJRT_Error *error)
{
  GetPjrtApi()->PJRT_Error_Destroy(
    &(PJRT_Error_Destroy_Args){.struct_size = sizeof(PJRT_Error_Destroy_Args), .error = error});
}

static PJRT_Client *make_client(void)
{
  PJRT_NamedValue devices = {.struct_size = sizeof devices, .name = "num_devices", .name_size = 11, .type = PJRT_NamedValue_kInt64,
                             .int64_value = 1, .value_size = 1};
  PJRT_Client_Create_Args args = {.struct_size = sizeof args, .create_options = &devices, .num_options = 1};

  FUZZ_TRUE(GetPjrtApi()->PJRT_Client_Create(&args) == NULL);
  return args.client;
}

/* ---- executables of this build ---- */

static PJRT_Client *client;

static void serialize(const char *program, saved *out)
{
  PJRT_Program code = {.struct_size = sizeof code, .code = (char *)program, .code_size = strlen(program), .format = "any", .format_size = 3};
  PJRT_Client_Compile_Args compile = {.struct_size = sizeof compile, .client = client, .program = &code, .compile_options = ""};
  FUZZ_TRUE(GetPjrtApi()->PJRT_Client_Compile(&compile) == NULL);
  PJRT_LoadedExecutable_GetExecutable_Args get = {.struct_size = sizeof get, .loaded_executable = compile.executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_LoadedExecutable_GetExecutable(&get) == NULL);
  PJRT_Executable_Serialize_Args args = {.struct_size = sizeof args, .executable = get.executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_Executable_Serialize(&args) == NULL);

  *out = (saved){malloc(args.serialized_bytes_size), args.serialized_bytes_size};
  FUZZ_TRUE(out->bytes != NULL);
  memcpy(out->bytes, args.serialized_bytes, out->size);
  args.serialized_executable_deleter(args.serialized_executable);
  PJRT_Executable_Destroy_Args no_more = {.struct_size = sizeof no_more, .executable = get.executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_Executable_Destroy(&no_more) == NULL);
  PJRT_LoadedExecutable_Destroy_Args gone = {.struct_size = sizeof gone, .executable = compile.executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_LoadedExecutable_Destroy(&gone) == NULL);
}

static bool load(const char *bytes, size_t size)
{
  PJRT_Executable_DeserializeAndLoad_Args args = {.struct_size = sizeof args, .client = client, .serialized_executable = bytes,
                                                  .serialized_executable_size = size};
  PJRT_Error *error = GetPjrtApi()->PJRT_Executable_DeserializeAndLoad(&args);

  if (error) {
    destroy(error);
    return false;
  }
  PJRT_LoadedExecutable_Destroy_Args gone = {.struct_size = sizeof gone, .executable = args.loaded_executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_LoadedExecutable_Destroy(&gone) == NULL);
  return true;
}

static void prepare(void)
{
  if (client) return;
  client = make_client();
  for (; made_count < SAVED_PROGRAMS; made_count++) {
    serialize(saved_programs[made_count], &made[made_count]);
    FUZZ_TRUE(load(made[made_count].bytes, made[made_count].size));
  }
}
