/* tests/fuzz/pjrt_executable_fuzz.c -- A serialised executable of any bytes, as it is and with version and digest
 * repaired: an error, or a program that is loaded. A loaded program is not run: it has machine code of any bytes. */
#include <config.h>

#include <string.h>

#include "fuzz.h"
#include "pjrt/internal.h"
#include "runtime/saved.h"

const PJRT_Api *GetPjrtApi(void);

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

static void load(PJRT_Client *client, const char *bytes, size_t size)
{
  PJRT_Executable_DeserializeAndLoad_Args args = {.struct_size = sizeof args, .client = client, .serialized_executable = bytes,
                                                  .serialized_executable_size = size};
  PJRT_Error *error = GetPjrtApi()->PJRT_Executable_DeserializeAndLoad(&args);

  if (error) {
    destroy(error);
    return;
  }
  PJRT_LoadedExecutable_Destroy_Args gone = {.struct_size = sizeof gone, .executable = args.loaded_executable};
  FUZZ_TRUE(GetPjrtApi()->PJRT_LoadedExecutable_Destroy(&gone) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static PJRT_Client *client;
  char *bytes = malloc(size + 1); /* exactly as long as it is, so that a sanitizer sees what is read behind it */

  FUZZ_TRUE(bytes != NULL);
  if (!client) client = make_client();
  if (size) memcpy(bytes, data, size);
  load(client, bytes, size);
  if (size >= WEFT_SAVED_HEADER) {
    weft_saved_seal(bytes, size);
    load(client, bytes, size);
  }
  free(bytes);
  return 0;
}
