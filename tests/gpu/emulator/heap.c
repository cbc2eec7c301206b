/* tests/gpu/emulator/heap.c -- the memory of all devices and the host memory that they may use.
 *
 * A device address cannot be used by the host: device memory is a range of addresses without rights, and its bytes lie
 * in a second range at a fixed distance, which only the emulator uses.  An address is never given out twice, so a use
 * after free is found however much later it comes; freed pages go back to the system.  Memory begins as bytes of 0xff
 * (NaN).  Physical memory of the virtual memory calls is a memfd, which other processes may map. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static emu_block *blocks; /* by address */
static size_t count, room;
static uint64_t arena, arena_size, next_free, ids;
static ptrdiff_t distance; /* from a device address to its bytes */
static uint64_t generation, used[EMU_DEVICES];
static size_t handles;              /* of memory and multicast objects that programs have */
static uint32_t peers[EMU_DEVICES]; /* devices whose memory each device may use, besides its own */

/* The two ranges; smaller ones where the system refuses so much address space. */
static bool open_arena(void)
{
  for (uint64_t size = 1ull << 42; !arena && size >= 1ull << 33; size >>= 1) {
    void *device = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (device != MAP_FAILED && host != MAP_FAILED) {
      arena = (uint64_t)(uintptr_t)device, arena_size = size, distance = (char *)host - (char *)device;
      next_free = (arena + 2 * EMU_MIB - 1) & ~(uint64_t)(2 * EMU_MIB - 1);
      return true;
    }
    if (device != MAP_FAILED) munmap(device, size);
    if (host != MAP_FAILED) munmap(host, size);
  }
  return arena != 0;
}

uint8_t *emu_host(uint64_t at) { return (uint8_t *)(uintptr_t)at + (at - arena < arena_size ? distance : 0); }

static emu_block *find(uint64_t at)
{
  size_t low = 0, high = count;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (blocks[mid].base <= at) low = mid + 1;
    else high = mid;
  }
  return low && at - blocks[low - 1].base < blocks[low - 1].size ? &blocks[low - 1] : NULL;
}

/* Old freed blocks are forgotten: their addresses then belong to nothing, which is an error as well. */
static void forget_freed(void)
{
  size_t kept = 0;
  for (size_t n = 0; n < count; n++)
    if (blocks[n].live) blocks[kept++] = blocks[n];
  count = kept;
}

static bool insert(emu_block b)
{
  if (count == 100000) forget_freed();
  if (count == room) {
    emu_block *more = realloc(blocks, (room ? 2 * room : 256) * sizeof *more);
    if (!more) return false;
    blocks = more, room = room ? 2 * room : 256;
  }
  size_t at = count;
  while (at > 0 && blocks[at - 1].base > b.base) at--;
  memmove(blocks + at + 1, blocks + at, (count - at) * sizeof *blocks);
  b.live = true, b.id = ++ids;
  blocks[at] = b;
  count++;
  return true;
}

static void remove_block(emu_block *b)
{
  memmove(b, b + 1, (size_t)(blocks + count - (b + 1)) * sizeof *b);
  count--;
}

/* Addresses of the arena, of this alignment. */
static uint64_t take_addresses(size_t size, size_t align)
{
  if (!arena && !open_arena()) return 0;
  uint64_t at = (next_free + align - 1) / align * align;
  if (size > arena_size || at + size + 512 > arena + arena_size) return 0;
  next_free = at + size + 512; /* a gap: what passes the end of one allocation is in no other */
  return at;
}

wcu_result emu_alloc(int device, size_t size, size_t align, emu_kind kind, wcu_mempool pool, uint64_t *out)
{
  wcu_result r = WCU_ERROR_OUT_OF_MEMORY;
  bool host = kind == EMU_HOST_MEMORY;
  if (size == 0) return WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&mu);
  if (size <= emu_set.memory && (host || used[device] + size <= emu_set.memory)) {
    uint64_t at = host ? (uint64_t)(uintptr_t)aligned_alloc(4096, (size + 4095) / 4096 * 4096)
                       : take_addresses(size, align < 512 ? 512 : align);
    uint32_t all = host ? ~0u : 1u << device;
    if (at &&
        insert((emu_block){
          .base = at, .size = size, .device = device, .kind = kind, .readers = all, .writers = all, .pool = pool})) {
      if (!host) used[device] += size;
      memset(emu_host(at), kind == EMU_MODULE ? 0 : 0xff, size);
      *out = at, r = WCU_SUCCESS;
    } else if (host) {
      free((void *)(uintptr_t)at);
    }
  }
  pthread_mutex_unlock(&mu);
  return r;
}

wcu_result emu_register(void *host, size_t size)
{
  wcu_result r = WCU_SUCCESS;
  uint64_t at = (uint64_t)(uintptr_t)host;
  pthread_mutex_lock(&mu);
  if (!host || !size) r = WCU_ERROR_INVALID_VALUE;
  else if (find(at) || find(at + size - 1)) r = WCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  else if (!insert((emu_block){.base = at, .size = size, .kind = EMU_REGISTERED, .readers = ~0u, .writers = ~0u}))
    r = WCU_ERROR_OUT_OF_MEMORY;
  pthread_mutex_unlock(&mu);
  return r;
}

/* Whole pages of a freed block go back to the system. */
static void give_back(uint64_t base, uint64_t size)
{
  uint64_t from = (base + 4095) & ~4095ull, to = (base + size) & ~4095ull;
  if (to > from) madvise(emu_host(from), to - from, MADV_DONTNEED);
}

wcu_result emu_free(uint64_t at, int kinds)
{
  void *host = NULL;
  wcu_result r = WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&mu);
  emu_block *b = find(at);
  if (b && b->live && b->base == at && kinds >> b->kind & 1) {
    r = WCU_SUCCESS;
    __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
    if (b->kind == EMU_HOST_MEMORY || b->kind == EMU_REGISTERED) {
      if (b->kind == EMU_HOST_MEMORY) host = (void *)(uintptr_t)at;
      remove_block(b); /* the host will use this address again */
    } else {
      used[b->device] -= b->size;
      b->live = false;
      give_back(b->base, b->size);
    }
  }
  pthread_mutex_unlock(&mu);
  free(host);
  return r;
}

void emu_free_all(int device)
{
  uint64_t at = 0;
  do {
    at = 0;
    pthread_mutex_lock(&mu);
    for (size_t n = 0; n < count && !at; n++)
      if (blocks[n].live && blocks[n].device == device &&
          (blocks[n].kind == EMU_DEVICE_MEMORY || blocks[n].kind == EMU_HOST_MEMORY))
        at = blocks[n].base;
    pthread_mutex_unlock(&mu);
  } while (at && emu_free(at, 1 << EMU_DEVICE_MEMORY | 1 << EMU_HOST_MEMORY) == WCU_SUCCESS);
}

bool emu_lookup(uint64_t at, emu_block *out)
{
  pthread_mutex_lock(&mu);
  emu_block *b = find(at);
  bool ok = b && b->live;
  if (ok) *out = *b;
  pthread_mutex_unlock(&mu);
  return ok;
}

static bool may_use(const emu_block *b, int device, bool write)
{
  uint32_t who = write ? b->writers : b->readers;
  return who >> device & 1 || (b->kind != EMU_MAPPED && !b->pool && peers[device] >> b->device & 1);
}

static bool judge(const emu_block *b, int device, bool write, char *why, size_t size)
{
  if (!b) snprintf(why, size, "no allocation is there");
  else if (!b->live)
    snprintf(why, size, "the allocation %" PRIu64 " of %" PRIu64 " bytes at %#" PRIx64 " was freed", b->id, b->size,
             b->base);
  else if (b->physical && b->physical->team)
    snprintf(why, size, "a multicast object is mapped there, which only multimem instructions may use");
  else if (!may_use(b, device, write))
    snprintf(why, size, "device %d has no access to this memory of device %d", device, b->device);
  else return true;
  return false;
}

bool emu_reachable(int device, uint64_t at, size_t bytes, bool write, char *why, size_t size)
{
  pthread_mutex_lock(&mu);
  emu_block *b = find(at);
  bool ok = judge(b, device, write, why, size);
  while (ok && at + bytes > b->base + b->size) { /* mapped memory may go on in the next mapping */
    bool joined = b->kind == EMU_MAPPED && b + 1 < blocks + count && b[1].base == b->base + b->size;
    if (!joined) {
      snprintf(why, size, "%zu bytes at %#" PRIx64 " pass the end of an allocation of %" PRIu64 " bytes", bytes, at,
               b->size);
      ok = false;
    } else {
      b++;
      ok = judge(b, device, write, why, size);
    }
  }
  pthread_mutex_unlock(&mu);
  return ok;
}

static bool find_for_kernel(void *ctx, uint64_t at, ptx_range *out, char *why, size_t size)
{
  int device = (int)(intptr_t)ctx;
  pthread_mutex_lock(&mu);
  emu_block *b = find(at);
  bool ok = judge(b, device, false, why, size);
  if (ok) *out = (ptx_range){b->base, b->size, emu_host(b->base), 0};
  if (ok && b->physical) out->shift = b->physical->key + b->offset - b->base;
  pthread_mutex_unlock(&mu);
  return ok;
}

static int find_for_multicast(void *ctx, uint64_t at, ptx_range *out, char *why, size_t size)
{
  int device = (int)(intptr_t)ctx, found = 0;
  pthread_mutex_lock(&mu);
  emu_block *b = find(at);
  if (b && b->live && b->physical && b->physical->team) {
    if (b->readers & b->writers & 1u << device)
      found = emu_team_find(b->physical->team, b->base - b->offset, at - b->base + b->offset, out, why, size);
    else snprintf(why, size, "device %d has no access to this mapping", device);
  } else {
    snprintf(why, size, "no multicast object is mapped there");
  }
  pthread_mutex_unlock(&mu);
  return found;
}

void emu_memory_of(int device, ptx_memory *out)
{
  *out = (ptx_memory){find_for_kernel, &generation, (void *)(intptr_t)device, find_for_multicast};
}

void emu_peer(int device, int peer, bool on)
{
  pthread_mutex_lock(&mu);
  peers[device] = on ? peers[device] | 1u << peer : peers[device] & ~(1u << peer);
  __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mu);
}

void emu_pool_access(wcu_mempool pool, int device, bool on)
{
  pthread_mutex_lock(&mu);
  for (size_t n = 0; n < count; n++) {
    if (blocks[n].pool != pool || !blocks[n].live) continue;
    blocks[n].readers = blocks[n].writers = on ? blocks[n].readers | 1u << device : blocks[n].readers & ~(1u << device);
  }
  __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mu);
}

uint64_t emu_used(int device)
{
  pthread_mutex_lock(&mu);
  uint64_t n = used[device];
  pthread_mutex_unlock(&mu);
  return n;
}

__attribute__((visibility("default"))) size_t weft_emu_leaks(char *text, size_t size)
{
  size_t leaks = 0, at = 0;
  if (size) *text = 0;
  pthread_mutex_lock(&mu);
  for (size_t n = 0; n < count; n++) {
    const emu_block *b = &blocks[n];
    if (!b->live || b->kind == EMU_MODULE) continue;
    leaks++;
    if (at + 80 < size)
      at += (size_t)snprintf(text + at, size - at, "%sallocation %" PRIu64 " of %" PRIu64 " bytes", at ? ", " : "",
                             b->id, b->size);
  }
  if (handles && at + 80 < size)
    at += (size_t)snprintf(text + at, size - at, "%s%zu handles of memory", at ? ", " : "", handles);
  leaks += handles;
  pthread_mutex_unlock(&mu);
  size_t graphs = emu_live_graphs();
  if (graphs && at + 80 < size) snprintf(text + at, size - at, "%s%zu graphs", at ? ", " : "", graphs);
  return leaks + graphs;
}

/* ---- virtual memory ---- */

#define GRANULE ((uint64_t)EMU_GRANULE)
typedef struct reservation { uint64_t base, size; struct reservation *next; } reservation;
static reservation *reservations;

EMU_API cuMemGetAllocationGranularity(size_t *bytes, const wcu_mem_allocation_prop *prop, wcu_mem_granularity option)
{
  EMU_ENTER(EMU_AFTER_INIT);
  (void)option;
  if (!bytes || !prop) return WCU_ERROR_INVALID_VALUE;
  *bytes = GRANULE;
  return WCU_SUCCESS;
}

EMU_API cuMemAddressReserve(wcu_ptr *at, size_t bytes, size_t align, wcu_ptr wish, unsigned long long flags)
{
  EMU_ENTER(EMU_AFTER_INIT);
  (void)wish, (void)flags;
  if (!at || !bytes || bytes % GRANULE || (align & (align - 1))) return WCU_ERROR_INVALID_VALUE;
  reservation *r = calloc(1, sizeof *r);
  if (!r) return WCU_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&mu);
  r->base = take_addresses(bytes, align > GRANULE ? align : GRANULE), r->size = bytes;
  if (r->base) r->next = reservations, reservations = r;
  pthread_mutex_unlock(&mu);
  *at = r->base;
  if (*at) return WCU_SUCCESS;
  free(r);
  return WCU_ERROR_OUT_OF_MEMORY;
}

static reservation **reservation_of(uint64_t at, size_t bytes)
{
  for (reservation **r = &reservations; *r; r = &(*r)->next)
    if (at - (*r)->base < (*r)->size && at + bytes <= (*r)->base + (*r)->size) return r;
  return NULL;
}

static bool is_mapped(uint64_t from, uint64_t to)
{
  for (size_t n = 0; n < count; n++)
    if (blocks[n].live && blocks[n].kind == EMU_MAPPED && blocks[n].base < to && blocks[n].base + blocks[n].size > from)
      return true;
  return false;
}

EMU_API cuMemAddressFree(wcu_ptr at, size_t bytes)
{
  EMU_ENTER(EMU_AFTER_INIT);
  wcu_result result = WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&mu);
  reservation **r = reservation_of(at, bytes), *gone = NULL;
  if (r && (*r)->base == at && (*r)->size == bytes && !is_mapped(at, at + bytes))
    gone = *r, *r = gone->next, result = WCU_SUCCESS;
  pthread_mutex_unlock(&mu);
  free(gone);
  return result;
}

static emu_physical *physical_of(wcu_mem_handle h) { return (emu_physical *)(uintptr_t)h; }

void emu_heap_lock(void) { pthread_mutex_lock(&mu); }
void emu_heap_unlock(void) { pthread_mutex_unlock(&mu); }

wcu_mem_handle emu_physical_hand_out_locked(emu_physical *p)
{
  p->refs++, p->handles++, handles++;
  return (wcu_mem_handle)(uintptr_t)p;
}

/* The bytes of the file also lie at a key of their own, where the host finds them. */
static wcu_result new_physical(int fd, bool charged, size_t bytes, const wcu_mem_allocation_prop *prop,
                               wcu_mem_handle *out)
{
  emu_physical *p = calloc(1, sizeof *p);
  if (!p) return WCU_ERROR_OUT_OF_MEMORY;
  *p = (emu_physical){.fd = fd, .device = prop->location.id, .charged = charged, .size = bytes, .prop = *prop};
  pthread_mutex_lock(&mu);
  p->key = take_addresses(bytes, GRANULE);
  bool ok = p->key &&
            mmap(emu_host(p->key), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  if (ok) *out = emu_physical_hand_out_locked(p);
  pthread_mutex_unlock(&mu);
  if (!ok) free(p);
  return ok ? WCU_SUCCESS : WCU_ERROR_OUT_OF_MEMORY;
}

EMU_API cuMemCreate(wcu_mem_handle *handle, size_t bytes, const wcu_mem_allocation_prop *prop, unsigned long long flags)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!handle || !prop || flags || !bytes || bytes % GRANULE || prop->type != WCU_MEM_ALLOCATION_TYPE_PINNED ||
      prop->location.type != WCU_MEM_LOCATION_TYPE_DEVICE || prop->location.id < 0 ||
      prop->location.id >= emu_set.devices)
    return WCU_ERROR_INVALID_VALUE;
  if (prop->requestedHandleTypes & WCU_MEM_HANDLE_TYPE_FABRIC) return WCU_ERROR_NOT_SUPPORTED;
  pthread_mutex_lock(&mu);
  bool fits = used[prop->location.id] + bytes <= emu_set.memory;
  if (fits) used[prop->location.id] += bytes;
  pthread_mutex_unlock(&mu);
  if (!fits) return WCU_ERROR_OUT_OF_MEMORY;
  int fd = memfd_create("weft-emu", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && new_physical(fd, true, bytes, prop, handle) == WCU_SUCCESS) {
    memset(emu_host(physical_of(*handle)->key), 0xff, bytes);
    return WCU_SUCCESS;
  }
  if (fd >= 0) close(fd);
  pthread_mutex_lock(&mu);
  used[prop->location.id] -= bytes;
  pthread_mutex_unlock(&mu);
  return WCU_ERROR_OUT_OF_MEMORY;
}

/* The host's bytes of these addresses are no longer those of a file. */
static void forget_file(uint64_t at, uint64_t bytes)
{
  mmap(emu_host(at), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void release_physical_locked(emu_physical *p)
{
  if (--p->refs) return;
  if (p->team) {
    emu_team_free(p->team);
  } else {
    if (p->charged) used[p->device] -= p->size;
    forget_file(p->key, p->size);
    close(p->fd);
  }
  free(p);
}

EMU_API cuMemRelease(wcu_mem_handle handle)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_physical *p = physical_of(handle);
  if (!p) return WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&mu);
  /* what is bound is unbound first: neither the object nor the memory goes before */
  bool ok = p->handles > 1 || (p->handles == 1 && !p->bound && !(p->team && emu_team_is_used(p->team)));
  if (ok) {
    p->handles--, handles--;
    release_physical_locked(p);
  }
  pthread_mutex_unlock(&mu);
  return ok ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

EMU_API cuMemMap(wcu_ptr at, size_t bytes, size_t offset, wcu_mem_handle handle, unsigned long long flags)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_physical *p = physical_of(handle);
  if (!p || flags || !bytes || at % GRANULE || bytes % GRANULE || offset % GRANULE || offset + bytes > p->size)
    return WCU_ERROR_INVALID_VALUE;
  wcu_result r = WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&mu);
  if (p->team && !emu_team_is_full(p->team)) {
    r = WCU_ERROR_ILLEGAL_STATE; /* the driver would wait for the devices that are missing */
  } else if (reservation_of(at, bytes) && !is_mapped(at, at + bytes)) {
    emu_block *old; /* an earlier mapping of these addresses that has ended */
    while ((old = find(at)) || (count && (old = find(at + bytes - 1)))) remove_block(old);
    bool ok = p->team || mmap(emu_host(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->fd,
                              (off_t)offset) != MAP_FAILED;
    ok = ok && insert((emu_block){
                 .base = at, .size = bytes, .device = p->device, .kind = EMU_MAPPED, .physical = p, .offset = offset});
    if (ok) p->refs++;
    r = ok ? WCU_SUCCESS : WCU_ERROR_OUT_OF_MEMORY;
  }
  pthread_mutex_unlock(&mu);
  return r;
}

EMU_API cuMemUnmap(wcu_ptr at, size_t bytes)
{
  EMU_ENTER(EMU_AFTER_INIT);
  pthread_mutex_lock(&mu);
  bool any = false;
  for (size_t n = 0; n < count; n++) {
    emu_block *b = &blocks[n];
    if (!b->live || b->kind != EMU_MAPPED || b->base < at || b->base + b->size > at + bytes) continue;
    forget_file(b->base, b->size);
    b->live = false, any = true;
    release_physical_locked(b->physical);
    b->physical = NULL;
  }
  __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mu);
  return any ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

EMU_API cuMemSetAccess(wcu_ptr at, size_t bytes, const wcu_mem_access_desc *rights, size_t rights_count)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!rights) return WCU_ERROR_INVALID_VALUE;
  bool any = false;
  pthread_mutex_lock(&mu);
  for (size_t n = 0; n < count; n++) {
    emu_block *b = &blocks[n];
    if (!b->live || b->kind != EMU_MAPPED || b->base < at || b->base + b->size > at + bytes) continue;
    any = true;
    for (size_t k = 0; k < rights_count; k++) {
      int d = rights[k].location.id & (EMU_DEVICES - 1);
      b->readers = rights[k].flags & WCU_MEM_ACCESS_READ ? b->readers | 1u << d : b->readers & ~(1u << d);
      b->writers = rights[k].flags == WCU_MEM_ACCESS_READWRITE ? b->writers | 1u << d : b->writers & ~(1u << d);
    }
  }
  __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&mu);
  return any ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

EMU_API cuMemGetAccess(unsigned long long *flags, const wcu_mem_location *location, wcu_ptr at)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_block b;
  if (!flags || !location || !emu_lookup(at, &b) || b.kind != EMU_MAPPED) return WCU_ERROR_INVALID_VALUE;
  int d = location->id & (EMU_DEVICES - 1);
  *flags = b.writers >> d & 1   ? WCU_MEM_ACCESS_READWRITE
           : b.readers >> d & 1 ? WCU_MEM_ACCESS_READ
                                : WCU_MEM_ACCESS_NONE;
  return WCU_SUCCESS;
}

EMU_API cuMemExportToShareableHandle(void *out, wcu_mem_handle handle, wcu_mem_handle_type type,
                                     unsigned long long flags)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_physical *p = physical_of(handle);
  if (!out || !p || p->team || flags || type != WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      !(p->prop.requestedHandleTypes & type))
    return WCU_ERROR_INVALID_VALUE;
  int fd = dup(p->fd);
  if (fd < 0) return WCU_ERROR_OPERATING_SYSTEM;
  *(int *)out = fd;
  return WCU_SUCCESS;
}

EMU_API cuMemImportFromShareableHandle(wcu_mem_handle *handle, void *in, wcu_mem_handle_type type)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!handle || type != WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return WCU_ERROR_INVALID_VALUE;
  int fd = dup((int)(intptr_t)in);
  off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
  if (size <= 0) {
    if (fd >= 0) close(fd);
    return WCU_ERROR_INVALID_VALUE;
  }
  wcu_mem_allocation_prop prop = {.type = WCU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = type,
                                  .location = {WCU_MEM_LOCATION_TYPE_DEVICE, emu_current ? emu_current->device : 0}};
  wcu_result r = new_physical(fd, false, (size_t)size, &prop, handle);
  if (r) close(fd);
  return r;
}

EMU_API cuMemRetainAllocationHandle(wcu_mem_handle *handle, void *at)
{
  EMU_ENTER(EMU_AFTER_INIT);
  wcu_result r = WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&mu);
  emu_block *b = find((uint64_t)(uintptr_t)at);
  if (handle && b && b->live && b->physical) *handle = emu_physical_hand_out_locked(b->physical), r = WCU_SUCCESS;
  pthread_mutex_unlock(&mu);
  return r;
}

EMU_API cuMemGetAllocationPropertiesFromHandle(wcu_mem_allocation_prop *prop, wcu_mem_handle handle)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!prop || !handle || physical_of(handle)->team) return WCU_ERROR_INVALID_VALUE;
  *prop = physical_of(handle)->prop;
  return WCU_SUCCESS;
}
