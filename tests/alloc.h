/* tests/alloc.h -- allocations that fail on demand.  The program is linked with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign, which catches what Weft itself asks for. */
#ifndef WEFT_TESTS_ALLOC_H
#define WEFT_TESTS_ALLOC_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int alloc_left = -1; /* how many allocations succeed before one fails, once; negative: none fails */
static atomic_bool alloc_failed;

static inline int alloc_fails_now(void)
{
  if (atomic_load(&alloc_left) < 0) return 0;
  if (atomic_fetch_sub(&alloc_left, 1) != 0) return 0;
  atomic_store(&alloc_failed, 1);
  return 1;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
int __real_posix_memalign(void **out, size_t align, size_t size);
void *__wrap_malloc(size_t size) { return alloc_fails_now() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return alloc_fails_now() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return alloc_fails_now() ? NULL : __real_realloc(old, size); }
int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
  return alloc_fails_now() ? ENOMEM : __real_posix_memalign(out, align, size);
}

/* From here on the `n`-th allocation fails; alloc_stop() says whether an allocation has failed. */
static inline void alloc_fail_at(int n)
{
  atomic_store(&alloc_failed, 0);
  atomic_store(&alloc_left, n);
}
static inline int alloc_stop(void)
{
  atomic_store(&alloc_left, -1);
  return atomic_load(&alloc_failed);
}

#endif
