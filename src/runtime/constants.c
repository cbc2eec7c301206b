/* runtime/constants.c -- copies of a program's constants on devices that cannot use the host's memory (constants.h). */
#include <config.h>

#include "runtime/constants.h"

#include <stdlib.h>

#include "runtime/runtime_internal.h"

static weft_status *upload_one(weft_device *device, const buf_alloc *alloc, void **out)
{
  WEFT_TRY(rt_device_take(device, 0, alloc->bytes, RT_ANYONE, out));
  return weft_device_write(device, NULL, *out, alloc->literal->data, hlo_shape_bytes(alloc->literal->shape));
}

weft_status *rt_constants_upload(weft_device *device, const buf_plan *plan, void ***out)
{
  int count = buf_plan_alloc_count(plan);
  weft_status *st = NULL;

  *out = NULL;
  if (weft_device_is_host_visible(device)) return NULL;
  void **constants = calloc((size_t)count + 1, sizeof *constants);
  WEFT_TRY_ALLOC(constants);
  for (int i = 0; i < count && !st; i++)
    if (buf_plan_alloc(plan, i)->kind == BUF_CONSTANT) st = upload_one(device, buf_plan_alloc(plan, i), &constants[i]);
  if (st) rt_constants_free(device, plan, constants);
  else *out = constants;
  return st;
}

void rt_constants_free(weft_device *device, const buf_plan *plan, void **constants)
{
  if (!constants) return;
  for (int i = 0; i < buf_plan_alloc_count(plan); i++)
    if (constants[i]) rt_device_give(device, 0, constants[i], buf_plan_alloc(plan, i)->bytes);
  free(constants);
}
