/* tests/cli/faulty_plugin.c -- A PJRT plugin with a fault: it is the one that WEFT_TEST_FAULTY_TARGET names, but the
 * first byte of each host copy is wrong. */
#include <dlfcn.h>
#include <stdlib.h>

#include "weft/pjrt_c_api.h"

static PJRT_Api faulty;
static const PJRT_Api *real;

static PJRT_Error *copy_wrongly(PJRT_Buffer_ToHostBuffer_Args *args)
{
  PJRT_Error *error = real->PJRT_Buffer_ToHostBuffer(args);
  PJRT_Event_Await_Args done = {.struct_size = sizeof done, .event = args->event};

  if (error || !args->dst || args->dst_size < 4) return error;
  error = real->PJRT_Event_Await(&done);
  ((char *)args->dst)[3] ^= 1; /* of a float: part of the exponent */
  return error;
}

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void)
{
  void *library = dlopen(getenv("WEFT_TEST_FAULTY_TARGET"), RTLD_NOW | RTLD_LOCAL);
  const PJRT_Api *(*get_api)(void) = NULL;

  if (library) *(void **)&get_api = dlsym(library, "GetPjrtApi");
  if (!get_api) return NULL;
  real = get_api();
  faulty = *real;
  faulty.PJRT_Buffer_ToHostBuffer = copy_wrongly;
  return &faulty;
}
