/* tests/gpu/emulator/link.c -- the driver's linker: machine code of one PTX text. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "image.h"

struct wcu_link_st { void *image; size_t size; bool has_input; int sm; char *log; size_t log_size; };

static wcu_result refuse(wcu_link_state link, wcu_result result, const char *text)
{
  emu_say(text);
  if (link->log && link->log_size) snprintf(link->log, link->log_size, "%s", text);
  return result;
}

EMU_API cuLinkCreate_v2(unsigned n, wcu_jit_option *options, void **values, wcu_link_state *out)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!out) return WCU_ERROR_INVALID_VALUE;
  wcu_link_state link = calloc(1, sizeof *link);
  if (!link) return WCU_ERROR_OUT_OF_MEMORY;
  link->sm = emu_set.device.sm;
  for (unsigned k = 0; k < n; k++) {
    if (options[k] == WCU_JIT_ERROR_LOG_BUFFER) link->log = values[k];
    if (options[k] == WCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) link->log_size = (size_t)(uintptr_t)values[k];
  }
  *out = link;
  return WCU_SUCCESS;
}

EMU_API cuLinkAddData_v2(wcu_link_state link, wcu_jit_input kind, void *data, size_t size, const char *name, unsigned n,
                         wcu_jit_option *options, void **values)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  (void)name, (void)n, (void)options, (void)values;
  char error[600];
  if (!link || !data) return WCU_ERROR_INVALID_VALUE;
  if (kind != WCU_JIT_INPUT_PTX || link->has_input)
    return refuse(link, WCU_ERROR_NOT_SUPPORTED, "one PTX text is linked");
  if (size == 0 || ((const char *)data)[size - 1] != 0)
    return refuse(link, WCU_ERROR_INVALID_VALUE, "PTX text has to end in a zero");
  link->has_input = true;
  link->image = emu_image_make(data, link->sm, &link->size, error, sizeof error);
  return link->image ? WCU_SUCCESS : refuse(link, WCU_ERROR_INVALID_PTX, error);
}

EMU_API cuLinkComplete(wcu_link_state link, void **cubin, size_t *size)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!link || !cubin) return WCU_ERROR_INVALID_VALUE;
  if (!link->image) return refuse(link, WCU_ERROR_INVALID_VALUE, "nothing was added");
  *cubin = link->image;
  if (size) *size = link->size;
  return WCU_SUCCESS;
}

/* A call that is made to fail frees the link all the same: nobody could do it later. */
EMU_API cuLinkDestroy(wcu_link_state link)
{
  wcu_result r = emu_enter(__func__, EMU_AFTER_INIT);
  if (!link) return r ? r : WCU_ERROR_INVALID_VALUE;
  free(link->image);
  free(link);
  return r;
}
