/* tests/platform/region.c -- device memory that only the platform may touch (region.h). */
#include <config.h>

#include "region.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/platform.h"
#include "platform/registry.h"

static const size_t REGION_BYTES = (size_t)1 << 38; /* address space, not memory */
enum { NEW_BYTE = 0xCB, FREED_BYTE = 0xDB, GAP_BYTES = 4096, MOST_PATTERN_BYTES = 1 << 20 };

/* A freed piece of the region, remembered by its size. */
typedef struct piece {
  struct piece *next;
  int64_t bytes;
  size_t at;
} piece;

static struct {
  char *guarded, *real; /* two regions of the same layout */
  weft_mutex mu;
  size_t used WEFT_GUARDED_BY(mu);
  piece *free_pieces WEFT_GUARDED_BY(mu);
} region = {.mu = WEFT_MUTEX_INITIALIZER};

const weft_memory_space region_spaces[WEFT_MEMORY_SPACES] = {
  {"device", BUF_ALIGN, false},
  {"pinned_host", BUF_ALIGN, true},
  {"unpinned_host", BUF_ALIGN, true},
};

static void make_regions(void)
{
  if (region.guarded) return;
  region.guarded = mmap(NULL, REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  region.real = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region.guarded != MAP_FAILED && region.real != MAP_FAILED) return;
  perror("test platform: no address space");
  exit(99);
}

/* ---- addresses ------------------------------------------------------------------------------------------------- */

static bool is_guarded(const void *at)
{
  return (const char *)at >= region.guarded && (const char *)at < region.guarded + REGION_BYTES;
}

void *region_real(const void *at)
{
  return is_guarded(at) ? region.real + ((const char *)at - region.guarded) : (void *)at;
}

void *region_host_address(weft_device *device, void *data)
{
  (void)device;
  return region_real(data);
}

void region_translate(const rt_thunk *thunk, rt_ctx *ctx)
{
  void **args = ctx->args + thunk->first_arg;

  for (int i = 0; i < thunk->use_count; i++) args[i] = region_real(args[i]);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static void fill(size_t at, int64_t bytes, int byte)
{
  memset(region.real + at, byte, (size_t)WEFT_MIN(bytes, (int64_t)MOST_PATTERN_BYTES));
}

static weft_status *allocate(int64_t bytes, void **out_data)
{
  size_t at;

  weft_mutex_lock(&region.mu);
  piece **link = &region.free_pieces, *found;
  while ((found = *link) && found->bytes != bytes) link = &found->next;
  if (found) *link = found->next;
  at = found ? found->at : region.used;
  bool fits = found || region.used + (size_t)bytes + GAP_BYTES <= REGION_BYTES;
  if (!found && fits) region.used += WEFT_ALIGN_UP((size_t)bytes + GAP_BYTES, (size_t)BUF_ALIGN);
  weft_mutex_unlock(&region.mu);
  free(found);
  if (!fits) return WEFT_ERR(RESOURCE_EXHAUSTED, "cannot allocate %lld bytes", (long long)bytes);
  fill(at, bytes, NEW_BYTE);
  *out_data = region.guarded + at;
  return NULL;
}

weft_status *region_allocate(weft_device *device, int space, int64_t bytes, void **out_data)
{
  return space == 0 ? allocate(bytes, out_data) : cpu_platform_ops.device->allocate(device, space, bytes, out_data);
}

static void deallocate(char *data, int64_t bytes)
{
  piece *freed = malloc(sizeof *freed);

  fill((size_t)(data - region.guarded), bytes, FREED_BYTE);
  if (!freed) return;
  weft_mutex_lock(&region.mu);
  *freed = (piece){region.free_pieces, bytes, (size_t)(data - region.guarded)};
  region.free_pieces = freed;
  weft_mutex_unlock(&region.mu);
}

void region_deallocate(weft_device *device, int space, void *data, int64_t bytes)
{
  if (space == 0) deallocate(data, bytes);
  else cpu_platform_ops.device->deallocate(device, space, data, bytes);
}

/* ---- the platform ---------------------------------------------------------------------------------------------- */

static weft_status *(*make_for_cpu)(void *ctx, low_step *step, rt_thunk **out_thunk); /* always the same function */

/* The operations of a thunk that the CPU's target has made: as the platform changed them, and the CPU's. */
typedef struct wrapped_ops {
  rt_thunk_ops base;
  const rt_thunk_ops *cpu;
} wrapped_ops;

const rt_thunk_ops *region_cpu_ops(const rt_thunk *thunk) { return ((const wrapped_ops *)thunk->own_ops)->cpu; }

weft_status *region_make(void *ctx, low_step *step, void (*wrap)(rt_thunk_ops *ops), rt_thunk **out_thunk)
{
  wrapped_ops *ops = WEFT_ARENA_NEW(step->arena, wrapped_ops);

  WEFT_TRY_ALLOC(ops);
  WEFT_TRY(make_for_cpu(ctx, step, out_thunk));
  rt_thunk *thunk = *out_thunk;
  *ops = (wrapped_ops){*thunk->ops, thunk->ops};
  wrap(&ops->base);
  thunk->ops = &ops->base;
  return NULL;
}

void region_adapt(low_target *target, __typeof__(((low_target *)NULL)->make) make)
{
  make_for_cpu = target->make;
  target->make = make;
}

weft_status *region_create(const weft_platform_ops *ops, const weft_platform_options *options,
                           weft_platform **out_platform)
{
  WEFT_TRY(cpu_platform_ops.create(options, out_platform));
  (*out_platform)->ops = ops;
  return NULL;
}

void region_register(weft_platform_ops *ops, const char *name, const weft_device_ops *device,
                     __typeof__(((weft_platform_ops *)NULL)->create) create,
                     __typeof__(((weft_platform_ops *)NULL)->compile) compile)
{
  make_regions();
  *ops = cpu_platform_ops;
  ops->name = name;
  ops->create = create;
  ops->compile = compile;
  ops->device = device;
  plat_register(ops);
}
