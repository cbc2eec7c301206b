/* tests/platform/region.h -- device memory that only the platform may touch, for the platforms of this folder.
 *
 * The runtime holds addresses in a region that is PROT_NONE. A read or write through one of them is a segmentation
 * fault, which cmocka reports with the test's name. The bytes are in a second region at a fixed distance. */
#ifndef WEFT_TESTS_PLATFORM_REGION_H
#define WEFT_TESTS_PLATFORM_REGION_H

#include "cpu/cpu_internal.h"
#include "runtime/platform.h"

/* The address of the bytes. An address outside the region (empty arrays, host memory) stays as it is. */
void *region_real(const void *at);

/* As in weft_device_ops.  Space 0 is the region; the others are host memory.  New and freed memory holds a pattern. */
extern const weft_memory_space region_spaces[WEFT_MEMORY_SPACES];
weft_status *region_allocate(weft_device *device, int space, int64_t bytes, void **out_data);
void region_deallocate(weft_device *device, int space, void *data, int64_t bytes);
void *region_host_address(weft_device *device, void *data);

/* ---- platforms ---- */

/* Fills in the table of a platform that compiles as the CPU does but for what `create` and `compile` say, and registers
 * the platform as the default.  `ops`, `name` and `device` are borrowed for ever. */
void region_register(weft_platform_ops *ops, const char *name, const weft_device_ops *device,
                     __typeof__(((weft_platform_ops *)NULL)->create) create,
                     __typeof__(((weft_platform_ops *)NULL)->compile) compile);

/* Makes a platform of the CPU's that has `ops`. */
weft_status *region_create(const weft_platform_ops *ops, const weft_platform_options *options,
                           weft_platform **out_platform);

/* Lets `make` make the thunks of a program that is being compiled; `make` calls region_make. */
void region_adapt(low_target *target, __typeof__(((low_target *)NULL)->make) make);

/* Makes the CPU's thunk for a step.  `wrap` gets a copy of the thunk's operations and replaces
 * what the platform does in its own way. */
weft_status *region_make(void *ctx, low_step *step, void (*wrap)(rt_thunk_ops *ops), rt_thunk **out_thunk);

/* The operations that the CPU gave a thunk. */
const rt_thunk_ops *region_cpu_ops(const rt_thunk *thunk);

/* Replaces the arguments of a thunk by real addresses. No other thunk uses them, and translating them again changes
 * nothing. */
void region_translate(const rt_thunk *thunk, rt_ctx *ctx);

#endif
