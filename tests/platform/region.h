/* tests/platform/region.h -- device memory that nobody may touch but the platform, for the platforms of this
 * folder.
 *
 * What the runtime holds are addresses of a region that is PROT_NONE: a read or write through one of them is a
 * segmentation fault, which cmocka reports with the test's name.  The bytes are in a second region at a fixed
 * distance. */
#ifndef WEFT_TESTS_PLATFORM_REGION_H
#define WEFT_TESTS_PLATFORM_REGION_H

#include "cpu/cpu_internal.h"

/* Before anything else; a second call does nothing.  Ends the process where there is no address space. */
void region_init(void);

/* Where the bytes are.  What is not of the region (empty arrays, host memory) stays as it is. */
void *region_real(const void *at);

/* As in weft_device_ops.  Space 0 is the region; the others are host memory.  New and freed memory holds a pattern. */
extern const weft_memory_space region_spaces[WEFT_MEMORY_SPACES];
weft_status *region_allocate(weft_device *device, int space, int64_t bytes, void **out_data);
void region_deallocate(weft_device *device, int space, void *data, int64_t bytes);
void *region_host_address(weft_device *device, void *data);

/* The arguments of a thunk become real addresses.  They are the thunk's own, and to translate them again changes
 * nothing. */
void region_translate(const rt_thunk *thunk, rt_ctx *ctx);

#endif
