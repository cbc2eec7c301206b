/* tests/gpu/emulator/nvjitlink.c -- libnvJitLink.so.13: machine code of one PTX
 * text, by version 13.0 of the interface. */
#include <config.h>

#include "gpu/abi/nvjitlink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "library.h"

struct wjl_link { int sm; void *image; size_t size; char log[600]; };

#define LINK_API(name) API wjl_result __nvJitLink##name##_13_0
#define DECLARE(type, name, args) LINK_API(name) args;
WJL_ENTRIES(DECLARE)
API wjl_result nvJitLinkVersion(unsigned *major, unsigned *minor);

API wjl_result nvJitLinkVersion(unsigned *major, unsigned *minor)
{
  *major = 13, *minor = 0;
  return WJL_SUCCESS;
}

LINK_API(Create)(wjl_handle *handle, uint32_t count, const char **options)
{
  int fault = weft_emu_fault("nvJitLinkCreate"), sm = 0;

  if (fault) return (wjl_result)fault;
  for (uint32_t i = 0; i < count; i++) {
    if (strncmp(options[i], "-arch=sm_", 9) == 0) sm = atoi(options[i] + 9);
    else if (strncmp(options[i], "-O", 2) != 0) return WJL_ERROR_UNRECOGNIZED_OPTION;
  }
  if (!sm) return WJL_ERROR_MISSING_ARCH;
  *handle = calloc(1, sizeof **handle);
  if (!*handle) return WJL_ERROR_INTERNAL;
  (*handle)->sm = sm;
  return WJL_SUCCESS;
}

LINK_API(Destroy)(wjl_handle *handle)
{
  if (!handle || !*handle) return WJL_ERROR_INVALID_INPUT;
  free((*handle)->image);
  free(*handle);
  *handle = NULL;
  return WJL_SUCCESS;
}

LINK_API(AddData)(wjl_handle handle, wjl_input kind, const void *data, size_t size, const char *name)
{
  (void)name;
  if (kind != WJL_INPUT_PTX || handle->image || !size || ((const char *)data)[size - 1] != 0)
    return WJL_ERROR_INVALID_INPUT;
  handle->image = emu_image_make(data, handle->sm, &handle->size, handle->log, sizeof handle->log);
  return handle->image ? WJL_SUCCESS : WJL_ERROR_PTX_COMPILE;
}

LINK_API(Complete)(wjl_handle handle)
{
  int fault = weft_emu_fault("nvJitLinkComplete");

  return fault ? (wjl_result)fault : handle->image ? WJL_SUCCESS : WJL_ERROR_INVALID_INPUT;
}

LINK_API(GetLinkedCubinSize)(wjl_handle handle, size_t *size)
{
  if (!handle->image) return WJL_ERROR_INVALID_INPUT;
  *size = handle->size;
  return WJL_SUCCESS;
}

LINK_API(GetLinkedCubin)(wjl_handle handle, void *cubin)
{
  if (!handle->image) return WJL_ERROR_INVALID_INPUT;
  memcpy(cubin, handle->image, handle->size);
  return WJL_SUCCESS;
}

LINK_API(GetErrorLogSize)(wjl_handle handle, size_t *size)
{
  *size = strlen(handle->log) + 1;
  return WJL_SUCCESS;
}

LINK_API(GetErrorLog)(wjl_handle handle, char *log)
{
  strcpy(log, handle->log);
  return WJL_SUCCESS;
}
