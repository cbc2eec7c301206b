/* tests/gpu/emulator/team.c -- multicast objects: a team of devices, and the memory that each of them has bound.
 *
 * What the driver's manual demands is an error here: all devices are added before memory is bound and before the object
 * is mapped (the driver would wait for them; here it is ILLEGAL_STATE), places and sizes are multiples of the
 * granularity, memory is of a device of the team, no place of a device is bound twice, what is unbound was bound so,
 * and neither the object nor its memory is released while they are bound to each other. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

/* What is recommended is larger, so that a program that takes one for the other is found. */
enum { MINIMUM = EMU_GRANULE, RECOMMENDED = 16 * EMU_GRANULE };

typedef struct binding {
  struct binding *next;
  emu_physical *memory;   /* its `bound` counts this */
  uint64_t offset, memory_offset, bytes;
} binding;

struct emu_team {
  wcu_multicast_prop prop;
  uint32_t devices;       /* a set */
  binding *bindings;
};

bool emu_team_is_full(const emu_team *t) { return __builtin_popcount(t->devices) == (int)t->prop.numDevices; }
bool emu_team_is_used(const emu_team *t) { return t->bindings != NULL; }
void emu_team_free(emu_team *t) { free(t); } /* its object is released, so nothing is bound */

static binding *find_binding(const emu_team *t, int device, uint64_t offset)
{
  for (binding *b = t->bindings; b; b = b->next)
    if (b->memory->device == device && offset - b->offset < b->bytes) return b;
  return NULL;
}

int emu_team_find(const emu_team *t, uint64_t base, uint64_t offset, ptx_range *out, char *why, size_t size)
{
  int found = 0;

  for (int d = 0; d < EMU_DEVICES; d++) {
    if (!(t->devices >> d & 1)) continue;
    const binding *b = find_binding(t, d, offset);
    if (!b) {
      snprintf(why, size, "device %d has bound no memory to this place of the multicast object", d);
      return 0;
    }
    uint64_t key = b->memory->key + b->memory_offset, at = base + b->offset;
    out[found++] = (ptx_range){at, b->bytes, emu_host(key), key - at};
  }
  return found;
}

static emu_physical *object_of(wcu_mem_handle handle)
{
  emu_physical *p = (emu_physical *)(uintptr_t)handle;
  return p && p->team ? p : NULL;
}

static bool has_multicast(wcu_device device)
{
  return device >= 0 && device < emu_set.devices && emu_set.multicast && emu_set.device.sm >= 90;
}

EMU_API cuMulticastGetGranularity(size_t *bytes, const wcu_multicast_prop *prop, wcu_multicast_granularity option)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!has_multicast(0)) return WCU_ERROR_NOT_SUPPORTED;
  if (!bytes || !prop || prop->flags || !prop->numDevices) return WCU_ERROR_INVALID_VALUE;
  *bytes = option == WCU_MULTICAST_GRANULARITY_MINIMUM ? MINIMUM : RECOMMENDED;
  return WCU_SUCCESS;
}

EMU_API cuMulticastCreate(wcu_mem_handle *handle, const wcu_multicast_prop *prop)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!has_multicast(0)) return WCU_ERROR_NOT_SUPPORTED;
  if (!handle || !prop || prop->flags || !prop->size || prop->size % MINIMUM || prop->numDevices < 2 ||
      prop->numDevices > (unsigned)emu_set.devices ||
      prop->handleTypes & ~(uint64_t)WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return WCU_ERROR_INVALID_VALUE;
  emu_team *team = calloc(1, sizeof *team);
  emu_physical *p = calloc(1, sizeof *p);
  if (!team || !p) {
    free(team);
    free(p);
    return WCU_ERROR_OUT_OF_MEMORY;
  }
  team->prop = *prop;
  *p = (emu_physical){.fd = -1, .size = prop->size, .team = team};
  emu_heap_lock();
  *handle = emu_physical_hand_out_locked(p);
  emu_heap_unlock();
  return WCU_SUCCESS;
}

EMU_API cuMulticastAddDevice(wcu_mem_handle handle, wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_physical *p = object_of(handle);
  if (!p) return WCU_ERROR_INVALID_VALUE;
  if (!has_multicast(device)) return WCU_ERROR_INVALID_DEVICE;
  emu_heap_lock();
  bool ok = !emu_team_is_full(p->team) && !(p->team->devices >> device & 1);
  if (ok) p->team->devices |= 1u << device;
  emu_heap_unlock();
  return ok ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

/* Whether a binding would overlap one of the same device. */
static bool is_bound(const emu_team *t, int device, uint64_t offset, uint64_t bytes)
{
  for (binding *b = t->bindings; b; b = b->next)
    if (b->memory->device == device && b->offset < offset + bytes && offset < b->offset + b->bytes) return true;
  return false;
}

static wcu_result bind_locked(emu_physical *object, binding *b)
{
  emu_team *t = object->team;
  if (!emu_team_is_full(t)) return WCU_ERROR_ILLEGAL_STATE;
  if (!(t->devices >> b->memory->device & 1)) return WCU_ERROR_INVALID_DEVICE;
  if (is_bound(t, b->memory->device, b->offset, b->bytes)) return WCU_ERROR_INVALID_VALUE;
  if (t->prop.handleTypes && !b->memory->prop.requestedHandleTypes) return WCU_ERROR_INVALID_VALUE;
  b->next = t->bindings;
  t->bindings = b;
  b->memory->bound++;
  return WCU_SUCCESS;
}

EMU_API cuMulticastBindMem(wcu_mem_handle handle, size_t offset, wcu_mem_handle memory, size_t memory_offset,
                           size_t bytes, unsigned long long flags)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_physical *p = object_of(handle), *m = (emu_physical *)(uintptr_t)memory;
  if (!p || !m || m->team || flags || !bytes || offset % MINIMUM || memory_offset % MINIMUM || bytes % MINIMUM ||
      offset + bytes > p->size || memory_offset + bytes > m->size)
    return WCU_ERROR_INVALID_VALUE;
  binding *b = calloc(1, sizeof *b);
  if (!b) return WCU_ERROR_OUT_OF_MEMORY;
  *b = (binding){.memory = m, .offset = offset, .memory_offset = memory_offset, .bytes = bytes};
  emu_heap_lock();
  wcu_result r = bind_locked(p, b);
  emu_heap_unlock();
  if (r) free(b);
  return r;
}

EMU_API cuMulticastUnbind(wcu_mem_handle handle, wcu_device device, size_t offset, size_t bytes)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_physical *p = object_of(handle);
  binding *gone = NULL;
  if (!p) return WCU_ERROR_INVALID_VALUE;
  emu_heap_lock();
  for (binding **b = &p->team->bindings; *b && !gone; b = gone ? b : &(*b)->next)
    if ((*b)->memory->device == device && (*b)->offset == offset && (*b)->bytes == bytes) {
      gone = *b;
      *b = gone->next;
      gone->memory->bound--;
    }
  emu_heap_unlock();
  free(gone);
  return gone ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}
