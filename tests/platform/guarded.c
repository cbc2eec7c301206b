/* tests/platform/guarded.c -- a platform whose memory nobody may touch but the platform: it shows that the middle of the house is
 * neutral.  Linked into a test program, it becomes that program's default platform.
 *
 * What the runtime holds are addresses of a region that is PROT_NONE: a read or write through one of them is a segmentation fault, which
 * cmocka reports with the test's name.  The bytes are in a second region at a fixed distance.  Only this platform's copies know that, and the CPU's kernels, whose
 * arguments are translated before they run.  Memory holds a pattern until it is written, and again after it is freed. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/cpu_internal.h"
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

/* ---- addresses ------------------------------------------------------------------------------------------------- */

static bool is_guarded(const void *at) { return (const char *)at >= region.guarded && (const char *)at < region.guarded + REGION_BYTES; }

/* What is not ours (empty arrays, a client's own memory) stays as it is. */
static void *real_address(const void *at) { return is_guarded(at) ? region.real + ((const char *)at - region.guarded) : (void *)at; }

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static void fill(size_t at, int64_t bytes, int byte) { memset(region.real + at, byte, (size_t)WEFT_MIN(bytes, (int64_t)MOST_PATTERN_BYTES)); }

static weft_status *allocate(weft_device *device, int64_t bytes, void **out_data)
{
  size_t at;

  (void)device;
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

static void deallocate(weft_device *device, void *data, int64_t bytes)
{
  piece *freed = malloc(sizeof *freed);

  (void)device;
  fill((size_t)((char *)data - region.guarded), bytes, FREED_BYTE);
  if (!freed) return;
  weft_mutex_lock(&region.mu);
  *freed = (piece){region.free_pieces, bytes, (size_t)((char *)data - region.guarded)};
  region.free_pieces = freed;
  weft_mutex_unlock(&region.mu);
}

static weft_status *device_write(weft_device *device, void *to, const void *host, int64_t bytes)
{
  (void)device;
  memcpy(real_address(to), host, (size_t)bytes);
  return NULL;
}

static weft_status *device_read(weft_device *device, void *host, const void *from, int64_t bytes)
{
  (void)device;
  memcpy(host, real_address(from), (size_t)bytes);
  return NULL;
}

static weft_status *copy(weft_device *to_device, void *to, weft_device *from_device, const void *from, int64_t bytes)
{
  (void)to_device, (void)from_device;
  memmove(real_address(to), real_address(from), (size_t)bytes);
  return NULL;
}

static void *host_address(weft_device *device, void *data)
{
  (void)device;
  return real_address(data);
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

/* The operations of a thunk that the CPU's target has made, behind a translation of its arguments. */
typedef struct translated_ops {
  rt_thunk_ops base;
  const rt_thunk_ops *inner;
} translated_ops;

/* The arguments of a thunk are its own, and to translate them again changes nothing: so they are changed in place. */
static const rt_thunk_ops *translate(const rt_thunk *thunk, rt_ctx *ctx)
{
  void **args = ctx->args + thunk->first_arg;

  for (int i = 0; i < thunk->use_count; i++) args[i] = real_address(args[i]);
  return WEFT_CONTAINER_OF(thunk->ops, translated_ops, base)->inner;
}

static weft_status *translated_run(const rt_thunk *thunk, rt_ctx *ctx) { return translate(thunk, ctx)->run(thunk, ctx); }
static weft_status *translated_start(const rt_thunk *thunk, rt_ctx *ctx) { return translate(thunk, ctx)->start(thunk, ctx); }

static weft_status *(*make_for_cpu)(void *ctx, low_step *step, rt_thunk **out_thunk); /* always the same function */

static weft_status *make(void *ctx, low_step *step, rt_thunk **out_thunk)
{
  translated_ops *ops = WEFT_ARENA_NEW(step->arena, translated_ops);

  WEFT_TRY_ALLOC(ops);
  WEFT_TRY(make_for_cpu(ctx, step, out_thunk));
  rt_thunk *thunk = *out_thunk;
  ops->base = *thunk->ops;
  ops->inner = thunk->ops;
  if (thunk->ops->run) ops->base.run = translated_run;
  if (thunk->ops->start) ops->base.start = translated_start;
  thunk->ops = &ops->base;
  return NULL;
}

static void adapt(low_target *target)
{
  make_for_cpu = target->make;
  target->make = make;
}

/* ---- the platform ---------------------------------------------------------------------------------------------- */

static weft_platform_ops guarded_ops;

static weft_status *create(const weft_platform_options *options, weft_platform **out_platform)
{
  WEFT_TRY(cpu_platform_ops.create(options, out_platform));
  (*out_platform)->ops = &guarded_ops;
  return NULL;
}

static weft_status *compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                            weft_executable **out_executable)
{
  return cpu_compile_adapted(platform, module, options, adapt, out_executable);
}

static const weft_device_ops guarded_device = {
  .size = sizeof(weft_device_ops), .allocate = allocate, .deallocate = deallocate, .write = device_write, .read = device_read,
  .copy = copy, .host_address = host_address,
};

__attribute__((constructor)) static void become_the_default(void)
{
  region.guarded = mmap(NULL, REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  region.real = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region.guarded == MAP_FAILED || region.real == MAP_FAILED) {
    perror("guarded platform: no address space");
    exit(99);
  }
  guarded_ops = cpu_platform_ops;
  guarded_ops.name = "guarded";
  guarded_ops.create = create;
  guarded_ops.compile = compile;
  guarded_ops.device = &guarded_device;
  plat_register(&guarded_ops);
}
