/* gpu/kept.h -- results of compiling a program that a later compilation can use again: the machine code of its kernels,
 * and the algorithms that libraries have chosen.
 *
 * Each thing has a *name*, the digest of all that the thing depends on (gen_cache_name), such as the driver's version
 * and the kind of device.  So a thing that was made by another driver or for another device is not found, and is made
 * again.  A thing is looked for in the file of the saved program that is being loaded, then in the folder
 * WEFT_CACHE_DIR. */
#ifndef WEFT_GPU_KEPT_H
#define WEFT_GPU_KEPT_H

#include "base/wire.h"
#include "codegen/code/cache.h"

/* The things that are kept for one program.  Thread-safe until gpu_kept_put. */
typedef struct gpu_kept gpu_kept;

WEFT_NODISCARD weft_status *gpu_kept_new(gpu_kept **out_kept);
void gpu_kept_free(gpu_kept *kept); /* NULL is fine */
WEFT_DEFINE_AUTO(gpu_kept, gpu_kept_free)

/* The thing of that name, borrowed from `kept`; NULL: there is none. */
const void *gpu_kept_find(gpu_kept *kept, const char *name, size_t *out_size);
/* Keeps a copy of `data`, and returns the copy; NULL: there is no memory.  A folder that cannot be written is
 * logged. */
const void *gpu_kept_add(gpu_kept *kept, const char *name, const void *data, size_t size);
/* Drops the thing of that name, because it cannot be used: it is neither found nor written any more, and its file is
 * removed. */
void gpu_kept_drop(gpu_kept *kept, const char *name);

/* Writes all things that were added or found, for the file of a saved program. */
void gpu_kept_put(const gpu_kept *kept, weft_writer *w);
/* Reads the things that gpu_kept_put has written.  Errors: RESOURCE_EXHAUSTED; for damaged bytes `r` fails. */
WEFT_NODISCARD weft_status *gpu_kept_get(gpu_kept *kept, weft_reader *r);

#endif
