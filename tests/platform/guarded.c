/* tests/platform/guarded.c -- a platform whose memory only the platform may touch (region.h). It shows that the
 * runtime does not depend on the host seeing device memory. Linked into a test program, it becomes that program's
 * default platform.
 *
 * Only this platform's copies and the CPU's kernels know where the bytes are; the kernels' arguments are translated
 * before they run. All work is done when a call returns, as on the CPU. */
#include <config.h>

#include <string.h>

#include "cpu/platform.h"
#include "platform/registry.h"
#include "region.h"

/* ---- copies ---------------------------------------------------------------------------------------------------- */

static weft_status *device_write(weft_device *device, weft_stream *stream, void *to, const void *host, int64_t bytes)
{
  (void)device, (void)stream;
  memcpy(region_real(to), host, (size_t)bytes);
  return NULL;
}

static weft_status *device_read(weft_device *device, weft_stream *stream, void *host, const void *from, int64_t bytes)
{
  (void)device, (void)stream;
  memcpy(host, region_real(from), (size_t)bytes);
  return NULL;
}

static weft_status *copy(weft_device *to_device, weft_stream *stream, void *to, weft_device *from_device,
                         const void *from, int64_t bytes)
{
  (void)to_device, (void)stream, (void)from_device;
  memmove(region_real(to), region_real(from), (size_t)bytes);
  return NULL;
}

static weft_status *device_fill(weft_device *device, weft_stream *stream, void *to, int byte, int64_t bytes)
{
  (void)device, (void)stream;
  memset(region_real(to), byte, (size_t)bytes);
  return NULL;
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

/* The operations of a thunk that the CPU's target has made; its arguments are translated first. */
typedef struct translated_ops {
  rt_thunk_ops base;
  const rt_thunk_ops *inner;
} translated_ops;

static const rt_thunk_ops *translate(const rt_thunk *thunk, rt_ctx *ctx)
{
  region_translate(thunk, ctx);
  return ((const translated_ops *)thunk->own_ops)->inner;
}

static weft_status *translated_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  return translate(thunk, ctx)->run(thunk, ctx);
}
static weft_status *translated_start(const rt_thunk *thunk, rt_ctx *ctx)
{
  return translate(thunk, ctx)->start(thunk, ctx);
}

static weft_status *(*make_for_cpu)(void *ctx, low_step *step, rt_thunk **out_thunk); /* always the same function */

static weft_status *make(void *ctx, low_step *step, rt_thunk **out_thunk)
{
  translated_ops *ops = WEFT_ARENA_NEW(step->arena, translated_ops);

  WEFT_TRY_ALLOC(ops);
  WEFT_TRY(make_for_cpu(ctx, step, out_thunk));
  rt_thunk *thunk = *out_thunk;
  *ops = (translated_ops){*thunk->ops, thunk->ops};
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
  .size = sizeof(weft_device_ops),
  .spaces = region_spaces,
  .allocate = region_allocate,
  .deallocate = region_deallocate,
  .write = device_write,
  .read = device_read,
  .copy = copy,
  .fill = device_fill,
  .host_address = region_host_address,
};

__attribute__((constructor)) static void become_the_default(void)
{
  region_init();
  guarded_ops = cpu_platform_ops;
  guarded_ops.name = "guarded";
  guarded_ops.create = create;
  guarded_ops.compile = compile;
  guarded_ops.device = &guarded_device;
  plat_register(&guarded_ops);
}
