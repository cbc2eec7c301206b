/* tests/gpu/emulator/copy.c -- copies and fills.
 *
 * A copy from host memory that the driver does not know (pageable) takes the bytes during the call, as
 * the driver stages them; a copy to such memory waits for the stream.  Copies from and to pinned memory
 * happen when the stream comes to them. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

typedef struct side { uint64_t base; size_t pitch, height, x, y, z; bool known; } side;

static side side_of(const wcu_memcpy3d *c, bool source)
{
  wcu_memorytype type = source ? c->srcMemoryType : c->dstMemoryType;
  uint64_t host = (uint64_t)(uintptr_t)(source ? c->srcHost : c->dstHost),
           device = source ? c->srcDevice : c->dstDevice;
  side s = {.base = type == WCU_MEMORYTYPE_HOST ? host : device};
  s.pitch = source ? c->srcPitch : c->dstPitch, s.height = source ? c->srcHeight : c->dstHeight;
  s.x = source ? c->srcXInBytes : c->dstXInBytes, s.y = source ? c->srcY : c->dstY, s.z = source ? c->srcZ : c->dstZ;
  if (!s.pitch) s.pitch = s.x + c->WidthInBytes;
  if (!s.height) s.height = s.y + c->Height;
  emu_block b;
  s.known = type != WCU_MEMORYTYPE_HOST || emu_lookup(s.base, &b);
  return s;
}

static uint64_t row_at(const side *s, size_t y, size_t z)
{
  return s->base + ((s->z + z) * s->height + s->y + y) * s->pitch + s->x;
}

static bool valid(const wcu_memcpy3d *c, const side *s, int device, bool write, char *why, size_t size)
{
  if (s->pitch < s->x + c->WidthInBytes || !s->base)
    return snprintf(why, size, "a pitch of %zu bytes", s->pitch), false;
  if (!s->known) return true;
  for (size_t z = 0; z < c->Depth; z++)
    for (size_t y = 0; y < c->Height; y++) {
      emu_block b; /* the copy engines reach all devices' memory */
      int as = emu_lookup(row_at(s, y, z), &b) && b.kind != EMU_MAPPED ? b.device : device;
      if (!emu_reachable(as, row_at(s, y, z), c->WidthInBytes, write, why, size)) return false;
    }
  return true;
}

wcu_result emu_check_copy(const wcu_memcpy3d *c, int device)
{
  char why[200];
  if (c->srcMemoryType == WCU_MEMORYTYPE_ARRAY || c->dstMemoryType == WCU_MEMORYTYPE_ARRAY)
    return WCU_ERROR_NOT_SUPPORTED;
  side from = side_of(c, true), to = side_of(c, false);
  if (valid(c, &from, device, false, why, sizeof why) && valid(c, &to, device, true, why, sizeof why))
    return WCU_SUCCESS;
  emu_say(why);
  return WCU_ERROR_INVALID_VALUE;
}

/* `staged`: the source's rows one after another, or NULL. */
int emu_run_copy(const emu_work *w, int device, char *error, size_t size)
{
  const wcu_memcpy3d *c = &w->copy;
  side from = side_of(c, true), to = side_of(c, false);
  char why[200] = "";
  if ((!w->bytes && !valid(c, &from, device, false, why, sizeof why)) ||
      !valid(c, &to, device, true, why, sizeof why)) {
    snprintf(error, size, "a copy of %zu x %zu x %zu bytes: %s", c->WidthInBytes, c->Height, c->Depth, why);
    return WCU_ERROR_ILLEGAL_ADDRESS;
  }
  const uint8_t *staged = w->bytes;
  for (size_t z = 0; z < c->Depth; z++)
    for (size_t y = 0; y < c->Height; y++) {
      const uint8_t *s = staged ? staged + (z * c->Height + y) * c->WidthInBytes : emu_host(row_at(&from, y, z));
      memmove(emu_host(row_at(&to, y, z)), s, c->WidthInBytes);
    }
  return 0;
}

int emu_run_fill(const emu_work *w, int device, char *error, size_t size)
{
  const wcu_memset_node_params *f = &w->fill;
  char why[200] = "";
  size_t bytes = f->elementSize, row = f->width * bytes;
  for (size_t y = 0; y < f->height; y++) {
    uint64_t at = f->dst + y * f->pitch;
    if (!emu_reachable(device, at, row, true, why, sizeof why)) {
      snprintf(error, size, "a fill of %zu bytes: %s", row, why);
      return WCU_ERROR_ILLEGAL_ADDRESS;
    }
    uint8_t *to = emu_host(at);
    for (size_t n = 0; n < f->width; n++) memcpy(to + n * bytes, &f->value, bytes);
  }
  return 0;
}

static wcu_result stage(const wcu_memcpy3d *c, emu_work *w)
{
  side from = side_of(c, true);
  if (from.known) return WCU_SUCCESS;
  w->byte_count = c->WidthInBytes * c->Height * c->Depth;
  w->bytes = malloc(w->byte_count + 1);
  if (!w->bytes) return WCU_ERROR_OUT_OF_MEMORY;
  for (size_t z = 0; z < c->Depth; z++)
    for (size_t y = 0; y < c->Height; y++)
      memcpy((uint8_t *)w->bytes + (z * c->Height + y) * c->WidthInBytes, (const void *)(uintptr_t)row_at(&from, y, z),
             c->WidthInBytes);
  return WCU_SUCCESS;
}

static wcu_result copy(const wcu_memcpy3d *c, wcu_stream stream, bool wait)
{
  if (!c->WidthInBytes || !c->Height || !c->Depth) return WCU_SUCCESS;
  wcu_result r = emu_check_copy(c, emu_current->device);
  emu_work w = {.what = EMU_COPY, .copy = *c};
  if (r == WCU_SUCCESS) r = stage(c, &w);
  if (r) return r;
  bool pageable = !side_of(c, false).known;
  return wait || pageable ? emu_submit_and_wait(stream, &w) : emu_submit(stream, &w);
}

static wcu_memcpy3d line(wcu_memorytype to_type, uint64_t to, wcu_memorytype from_type, uint64_t from, size_t bytes)
{
  wcu_memcpy3d c = {.dstMemoryType = to_type, .srcMemoryType = from_type, .WidthInBytes = bytes, .Height = 1, .Depth = 1};
  c.dstDevice = to, c.dstHost = (void *)(uintptr_t)to, c.srcDevice = from, c.srcHost = (const void *)(uintptr_t)from;
  return c;
}

/* An address of either kind: what the driver knows is the device's, other memory the host's. */
static wcu_memorytype kind_of(uint64_t at)
{
  emu_block b;
  return emu_lookup(at, &b) ? WCU_MEMORYTYPE_DEVICE : WCU_MEMORYTYPE_HOST;
}

enum { HOST = WCU_MEMORYTYPE_HOST, DEVICE = WCU_MEMORYTYPE_DEVICE };
#define COPY(to_type, to, from_type, from, bytes, stream, wait)                                                            \
  EMU_ENTER(EMU_WITH_CONTEXT);                                                                                             \
  wcu_memcpy3d c = line((wcu_memorytype)(to_type), (uint64_t)(uintptr_t)(to), (wcu_memorytype)(from_type), (uint64_t)(uintptr_t)(from), bytes); \
  return copy(&c, stream, wait)

EMU_API cuMemcpy(wcu_ptr to, wcu_ptr from, size_t bytes)
{
  COPY(kind_of(to), to, kind_of(from), from, bytes, NULL, true);
}
EMU_API cuMemcpyAsync(wcu_ptr to, wcu_ptr from, size_t bytes, wcu_stream s)
{
  COPY(kind_of(to), to, kind_of(from), from, bytes, s, false);
}
EMU_API cuMemcpyHtoD_v2(wcu_ptr to, const void *from, size_t bytes) { COPY(DEVICE, to, HOST, from, bytes, NULL, true); }
EMU_API cuMemcpyDtoH_v2(void *to, wcu_ptr from, size_t bytes) { COPY(HOST, to, DEVICE, from, bytes, NULL, true); }
EMU_API cuMemcpyDtoD_v2(wcu_ptr to, wcu_ptr from, size_t bytes) { COPY(DEVICE, to, DEVICE, from, bytes, NULL, false); }
EMU_API cuMemcpyHtoDAsync_v2(wcu_ptr to, const void *from, size_t bytes, wcu_stream s)
{
  COPY(DEVICE, to, HOST, from, bytes, s, false);
}
EMU_API cuMemcpyDtoHAsync_v2(void *to, wcu_ptr from, size_t bytes, wcu_stream s)
{
  COPY(HOST, to, DEVICE, from, bytes, s, false);
}
EMU_API cuMemcpyDtoDAsync_v2(wcu_ptr to, wcu_ptr from, size_t bytes, wcu_stream s)
{
  COPY(DEVICE, to, DEVICE, from, bytes, s, false);
}
EMU_API cuMemcpyPeerAsync(wcu_ptr to, wcu_context to_context, wcu_ptr from, wcu_context from_context, size_t bytes,
                          wcu_stream s)
{
  (void)to_context, (void)from_context;
  COPY(DEVICE, to, DEVICE, from, bytes, s, false);
}

EMU_API cuMemcpy3DAsync_v2(const wcu_memcpy3d *c, wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return c ? copy(c, stream, false) : WCU_ERROR_INVALID_VALUE;
}

EMU_API cuMemcpy2DAsync_v2(const wcu_memcpy2d *c, wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!c) return WCU_ERROR_INVALID_VALUE;
  wcu_memcpy3d d = {.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType, .srcHost = c->srcHost,
                    .srcDevice = c->srcDevice, .srcPitch = c->srcPitch, .dstXInBytes = c->dstXInBytes, .dstY = c->dstY,
                    .dstMemoryType = c->dstMemoryType, .dstHost = c->dstHost, .dstDevice = c->dstDevice, .dstPitch = c->dstPitch,
                    .WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = 1};
  return copy(&d, stream, false);
}

static wcu_result fill(wcu_ptr at, unsigned value, unsigned bytes, size_t n, wcu_stream stream, bool wait)
{
  char why[200];
  if (n == 0) return WCU_SUCCESS;
  if (at % bytes || !emu_reachable(emu_current->device, at, n * bytes, true, why, sizeof why))
    return WCU_ERROR_INVALID_VALUE;
  emu_work w = {.what = EMU_FILL, .fill = {at, n * bytes, value, bytes, n, 1}};
  return wait ? emu_submit_and_wait(stream, &w) : emu_submit(stream, &w);
}

#define FILL(bytes, stream, wait) EMU_ENTER(EMU_WITH_CONTEXT); return fill(at, value, bytes, n, stream, wait)
EMU_API cuMemsetD8_v2(wcu_ptr at, unsigned char value, size_t n) { FILL(1, NULL, true); }
EMU_API cuMemsetD32_v2(wcu_ptr at, unsigned value, size_t n) { FILL(4, NULL, true); }
EMU_API cuMemsetD8Async(wcu_ptr at, unsigned char value, size_t n, wcu_stream s) { FILL(1, s, false); }
EMU_API cuMemsetD16Async(wcu_ptr at, unsigned short value, size_t n, wcu_stream s) { FILL(2, s, false); }
EMU_API cuMemsetD32Async(wcu_ptr at, unsigned value, size_t n, wcu_stream s) { FILL(4, s, false); }
