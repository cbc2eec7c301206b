/* tests/platform/guarded.c -- a platform whose memory only the platform may touch (region.h). It shows that the
 * runtime does not depend on the host seeing device memory. Linked into a test program, it becomes that program's
 * default platform.
 *
 * Only this platform's copies and the CPU's kernels know where the bytes are; the kernels' arguments are translated
 * before they run. All work is done when a call returns, as on the CPU. */
#include <config.h>

#include <string.h>

#include "cpu/platform.h"
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

static weft_status *run(const rt_thunk *thunk, rt_ctx *ctx)
{
  region_translate(thunk, ctx);
  return region_cpu_ops(thunk)->run(thunk, ctx);
}

static weft_status *start(const rt_thunk *thunk, rt_ctx *ctx)
{
  region_translate(thunk, ctx);
  return region_cpu_ops(thunk)->start(thunk, ctx);
}

static void wrap(rt_thunk_ops *ops)
{
  if (ops->run) ops->run = run;
  if (ops->start) ops->start = start;
}

/* ---- the platform ---------------------------------------------------------------------------------------------- */

static weft_platform_ops guarded_platform;

static weft_status *make(void *ctx, low_step *step, rt_thunk **out_thunk)
{
  return region_make(ctx, step, wrap, out_thunk);
}
static void adapt(low_target *target) { region_adapt(target, make); }

static weft_status *create(const weft_platform_options *options, weft_platform **out_platform)
{
  return region_create(&guarded_platform, options, out_platform);
}

static weft_status *compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                            weft_executable **out_executable)
{
  return cpu_compile_adapted(platform, module, options, adapt, out_executable);
}

static weft_status *load(weft_platform *platform, hlo_module *module, const void *code, size_t size,
                         const weft_compile_options *options, weft_executable **out_executable)
{
  return cpu_load_adapted(platform, module, code, size, options, adapt, out_executable);
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
  region_register(&guarded_platform, "guarded", &guarded_device, create, compile);
  guarded_platform.load = load;
}
