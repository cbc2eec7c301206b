/* tests/platform/region.h -- device memory that only the platform may touch, for the platforms of this folder.
 *
 * The runtime holds addresses in a region that is PROT_NONE. A read or write through one of them is a segmentation
 * fault, which cmocka reports with the test's name. The bytes are in a second region at a fixed distance. */
#ifndef WEFT_TESTS_PLATFORM_REGION_H
#define WEFT_TESTS_PLATFORM_REGION_H

#include "cpu/cpu_internal.h"

/* To be called before anything else; a second call does nothing. Ends the process if there is no address space. */
void region_init(void);

/* The address of the bytes. An address outside the region (empty arrays, host memory) stays as it is. */
void *region_real(const void *at);

/* As in weft_device_ops.  Space 0 is the region; the others are host memory.  New and freed memory holds a pattern. */
extern const weft_memory_space region_spaces[WEFT_MEMORY_SPACES];
weft_status *region_allocate(weft_device *device, int space, int64_t bytes, void **out_data);
void region_deallocate(weft_device *device, int space, void *data, int64_t bytes);
void *region_host_address(weft_device *device, void *data);

/* Replaces the arguments of a thunk by real addresses. No other thunk uses them, and translating them again changes
 * nothing. */
void region_translate(const rt_thunk *thunk, rt_ctx *ctx);

#endif
