/* runtime/constants.h -- copies of a program's constants on devices that cannot use the host's memory. */
#ifndef WEFT_RUNTIME_CONSTANTS_H
#define WEFT_RUNTIME_CONSTANTS_H

#include "buffer/plan.h"
#include "runtime/device.h"

/* Copies the constants of `plan` to `device`. *out is an array by allocation number, with NULL where the allocation is
 * no constant; the caller frees it with rt_constants_free. If the device can use the host's memory, nothing is copied
 * and *out is NULL. */
WEFT_NODISCARD weft_status *rt_constants_upload(weft_device *device, const buf_plan *plan, void ***out);
void rt_constants_free(weft_device *device, const buf_plan *plan, void **constants); /* NULL is fine */

#endif
