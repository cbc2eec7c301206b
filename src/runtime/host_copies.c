/* runtime/host_copies.c -- copies of a step's arguments in host memory (host_copies.h). */
#include <config.h>

#include "runtime/host_copies.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "runtime/device.h"

/* One block of memory: this, two tables with an entry for each use, and the bytes. */
struct rt_host_copies {
  void **device; /* the arguments that the copies replace */
  void **host;
};

static int64_t bytes_of(const rt_thunk *thunk, int use)
{
  return thunk->uses[use].slice.alloc < 0 ? 0 : thunk->uses[use].slice.bytes;
}

/* An earlier use of the same bytes, or `use` itself: the first use owns the copy. */
static int owner_of(const rt_thunk *thunk, void *const *args, int use)
{
  int first = 0;

  while (args[first] != args[use] || bytes_of(thunk, first) != bytes_of(thunk, use)) first++;
  return first;
}

static weft_status *allocate(const rt_thunk *thunk, void *const *args, rt_host_copies **out)
{
  size_t table = (size_t)thunk->use_count * sizeof(void *);
  int64_t head = WEFT_ALIGN_UP((int64_t)(sizeof(rt_host_copies) + 2 * table), (int64_t)BUF_ALIGN), bytes = head;
  void *memory;

  for (int i = 0; i < thunk->use_count; i++) bytes += WEFT_ALIGN_UP(bytes_of(thunk, i), (int64_t)BUF_ALIGN);
  if (posix_memalign(&memory, BUF_ALIGN, (size_t)bytes) != 0)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "no host memory for %" PRId64 " bytes of arguments", bytes);
  rt_host_copies *copies = memory;
  copies->device = (void **)(copies + 1);
  copies->host = copies->device + thunk->use_count;
  memcpy(copies->device, args, table);
  char *at = (char *)memory + head;
  for (int i = 0; i < thunk->use_count; i++) {
    copies->host[i] = at;
    at += WEFT_ALIGN_UP(bytes_of(thunk, i), (int64_t)BUF_ALIGN);
  }
  for (int i = 0; i < thunk->use_count; i++) copies->host[i] = copies->host[owner_of(thunk, args, i)];
  *out = copies;
  return NULL;
}

weft_status *rt_host_copies_begin(const rt_thunk *thunk, rt_ctx *ctx, rt_host_copies **out_copies)
{
  void **args = ctx->args + thunk->first_arg;
  rt_host_copies *copies;
  weft_status *st = NULL;

  *out_copies = NULL;
  WEFT_TRY(allocate(thunk, args, &copies));
  for (int i = 0; i < thunk->use_count && !st; i++)
    if (thunk->uses[i].access & RT_READ)
      st = weft_device_read(ctx->info->device, NULL, copies->host[i], args[i], bytes_of(thunk, i));
  if (st) {
    free(copies);
    return st;
  }
  memcpy(args, copies->host, (size_t)thunk->use_count * sizeof *args);
  *out_copies = copies;
  return NULL;
}

weft_status *rt_host_copies_end(const rt_thunk *thunk, rt_ctx *ctx, rt_host_copies *copies, weft_status *st)
{
  void **args = ctx->args + thunk->first_arg;

  memcpy(args, copies->device, (size_t)thunk->use_count * sizeof *args);
  for (int i = 0; i < thunk->use_count && !st; i++)
    if (thunk->uses[i].access & RT_WRITE)
      st = weft_device_write(ctx->info->device, NULL, args[i], copies->host[i], bytes_of(thunk, i));
  free(copies);
  return st;
}
