/* tests/gpu/emulator/races.c -- finds accesses of two threads to one byte that
 * nothing orders, where one of them writes.
 *
 * Every byte that a launch touches has a cell with its last writer and its last reader.  What orders two accesses:
 *   - they are of one thread;
 *   - they are of one block, and a barrier of the block was completed in between;
 *   - they are of one warp, and a bar.warp.sync of the whole warp was completed in between;
 *   - they are of two blocks, the first block published (fence or release) after its access, and the second block
 *     learnt (fence or acquire) after that publication.  Which address carried the message is not followed, so a race
 *     may be missed; none is invented.
 * An access through a multicast object and one through another address of the same memory also need a
 * fence.proxy.alias on the way from the first to the second: by a thread of the first block after its access, or by a
 * thread of the second block before its access. Which thread of the block it was is not followed.
 * The blocks may be of two launches that run at the same time, on one device or on two: no stream orders those. Between
 * two devices both sides must have the scope sys. An access of a launch that has ended is forgotten. Two strong
 * accesses (atomic, or with a scope) do not race; nor does a write of the value that is there already.
 *
 * Publications are numbered by a clock of the process.  A cell keeps how many publications its writer's block had made;
 * the next one is the first that covers the write, and `releases` of the block tells its time. */
#include <config.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct access {
  uint32_t block, release, release_sys, epoch, sync;
  uint32_t fence;       /* of the block's fences.proxy.alias, the first one after the access */
  uint16_t thread;
  bool set, strong, several, of_warps, multicast;
} access;
typedef struct cell { access writer, reader; } cell;

enum { PAGE = 1024 };   /* bytes of memory that one page of cells covers */
typedef struct page { uint64_t number; cell *cells; } page;

typedef struct history { uint64_t *times; uint32_t count, room; } history;

/* The fences.proxy.alias of a block: how many publications it had made before each, and what it had learnt before the
 * last. */
typedef struct alias_fence { uint32_t release, release_sys; } alias_fence;
typedef struct alias_fences { alias_fence *all; uint32_t count, room; uint64_t known, known_sys; } alias_fences;

struct ptx_races {
  page *slots;          /* open hashing by page number + 1 */
  size_t slot_count, page_count;
  cell *shared;         /* of the resident blocks, one after another */
  size_t shared_size;
  history *published, *published_sys; /* of each block of the grid: by all releases, by those of scope sys */
  uint64_t *known, *known_sys, block_count;
  alias_fences *fences; /* of each block of the grid */
  int device;
  const char *kernel;
  ptx_races *next;      /* of the launches that run */
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* of all that is here */
static ptx_races *running;
static uint64_t ticks = 1;

ptx_races *ptx_races_new(const ptx_exec *x)
{
  ptx_races *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->block_count = (uint64_t)x->launch->grid[0] * x->launch->grid[1] * x->launch->grid[2];
  r->shared_size = x->shared_size, r->slot_count = 1024;
  r->device = x->launch->device, r->kernel = x->kernel->name;
  r->shared = calloc(x->resident * x->shared_size + 1, sizeof *r->shared);
  r->published = calloc(r->block_count, sizeof *r->published);
  r->published_sys = calloc(r->block_count, sizeof *r->published_sys);
  r->known = calloc(r->block_count, sizeof *r->known);
  r->known_sys = calloc(r->block_count, sizeof *r->known_sys);
  r->slots = calloc(r->slot_count, sizeof *r->slots);
  r->fences = calloc(r->block_count, sizeof *r->fences);
  pthread_mutex_lock(&mu);
  r->next = running;
  running = r;
  pthread_mutex_unlock(&mu);
  if (r->shared && r->published && r->published_sys && r->known && r->known_sys && r->slots && r->fences) return r;
  ptx_races_free(r);
  return NULL;
}

void ptx_races_free(ptx_races *r)
{
  if (!r) return;
  pthread_mutex_lock(&mu);
  ptx_races **p = &running;
  while (*p != r) p = &(*p)->next;
  *p = r->next;
  pthread_mutex_unlock(&mu);
  for (size_t s = 0; r->slots && s < r->slot_count; s++) free(r->slots[s].cells);
  for (uint64_t b = 0; r->published && b < r->block_count; b++) free(r->published[b].times);
  for (uint64_t b = 0; r->published_sys && b < r->block_count; b++) free(r->published_sys[b].times);
  for (uint64_t b = 0; r->fences && b < r->block_count; b++) free(r->fences[b].all);
  free(r->fences);
  free(r->slots);
  free(r->shared);
  free(r->published);
  free(r->published_sys);
  free(r->known);
  free(r->known_sys);
  free(r);
}

void ptx_races_new_block(ptx_exec *x, ptx_block *b)
{
  ptx_races *r = x->races;
  memset(r->shared + (size_t)(b - x->blocks) * r->shared_size, 0, r->shared_size * sizeof *r->shared);
}

static size_t slot_of(const ptx_races *r, uint64_t number)
{
  return (number * 0x9e3779b97f4a7c15ull >> 24) & (r->slot_count - 1);
}

static bool grow(ptx_races *r)
{
  size_t old_count = r->slot_count;
  page *old = r->slots, *fresh = calloc(2 * old_count, sizeof *fresh);
  if (!fresh) return false;
  r->slots = fresh, r->slot_count = 2 * old_count;
  for (size_t s = 0; s < old_count; s++) {
    if (!old[s].cells) continue;
    size_t at = slot_of(r, old[s].number);
    while (fresh[at].cells) at = (at + 1) & (r->slot_count - 1);
    fresh[at] = old[s];
  }
  free(old);
  return true;
}

/* The cell of a byte of global memory that the launch has touched; NULL: it has not. */
static const cell *find_cell(const ptx_races *r, uint64_t address)
{
  for (size_t s = slot_of(r, address / PAGE); r->slots[s].cells; s = (s + 1) & (r->slot_count - 1))
    if (r->slots[s].number == address / PAGE) return &r->slots[s].cells[address % PAGE];
  return NULL;
}

/* The cells of a page; NULL: no memory is left, and the access is not checked. */
static cell *cells_of(ptx_races *r, uint64_t number)
{
  size_t s = slot_of(r, number);
  for (; r->slots[s].cells; s = (s + 1) & (r->slot_count - 1))
    if (r->slots[s].number == number) return r->slots[s].cells;
  if (2 * ++r->page_count > r->slot_count) {
    if (!grow(r)) return NULL;
    for (s = slot_of(r, number); r->slots[s].cells; s = (s + 1) & (r->slot_count - 1)) {}
  }
  r->slots[s].number = number;
  return r->slots[s].cells = calloc(PAGE, sizeof(cell));
}

/* Whether the publication of number `release` of a block is made, and a block that knows what was published up to the
 * time `known` has learnt of it. */
static bool is_learnt(const history *h, uint32_t release, uint64_t known)
{
  return release < h->count && h->times[release] <= known;
}

/* Whether a fence.proxy.alias stands between an access of a launch on the same device or on another one, and an access
 * of x->block that comes after it. */
static bool is_fenced(const ptx_exec *x, const ptx_races *of, const access *before)
{
  const alias_fences *theirs = &of->fences[before->block], *ours = &x->races->fences[x->block->index];
  bool one_device = x->races->device == of->device, after = before->fence < theirs->count;
  if (of == x->races && before->block == x->block->index) return after;
  const history *h = one_device ? &of->published[before->block] : &of->published_sys[before->block];
  if (is_learnt(h, one_device ? before->release : before->release_sys, one_device ? ours->known : ours->known_sys))
    return true;
  if (!after) return false;
  alias_fence f = theirs->all[before->fence];
  return is_learnt(h, one_device ? f.release : f.release_sys,
                   (one_device ? x->races->known : x->races->known_sys)[x->block->index]);
}

static bool is_ordered(const ptx_exec *x, const access *before, uint16_t thread, bool multicast)
{
  const ptx_races *r = x->races;
  const ptx_block *b = x->block;
  if (before->multicast != multicast && !is_fenced(x, r, before)) return false;
  if (before->block == b->index) {
    bool is_warps = before->thread / PTX_LANES == thread / PTX_LANES && !before->of_warps;
    return before->epoch != b->epoch || (before->thread == thread && !before->several) ||
           (is_warps && before->sync != x->warp->syncs);
  }
  return is_learnt(&r->published[before->block], before->release, r->known[b->index]);
}

/* The same for an access of another launch that runs. */
static bool is_ordered_between(const ptx_exec *x, const ptx_races *other, const access *before, bool multicast)
{
  const ptx_races *r = x->races;
  bool one_device = r->device == other->device;
  const history *h = one_device ? &other->published[before->block] : &other->published_sys[before->block];
  if (before->multicast != multicast && !is_fenced(x, other, before)) return false;
  return is_learnt(h, one_device ? before->release : before->release_sys,
                   (one_device ? r->known : r->known_sys)[x->block->index]);
}

/* Looks for accesses of the other launches that run to a byte of global memory. */
static void check_others(ptx_exec *x, const ptx_inst *i, int lane, uint64_t address, uint64_t key, unsigned how,
                         bool changes)
{
  bool strong = how & PTX_STRONG, write = how & PTX_WRITE, multicast = how & PTX_MULTICAST;
  for (const ptx_races *other = running; other && !x->code; other = other->next) {
    const cell *c = other == x->races ? NULL : find_cell(other, key);
    if (!c) continue;
    const access *w = &c->writer, *rd = &c->reader, *before = NULL;
    if (w->set && !(w->strong && strong) && !is_ordered_between(x, other, w, multicast) && (!write || changes))
      before = w;
    else if (write && changes && rd->set && !(rd->strong && strong) && !is_ordered_between(x, other, rd, multicast))
      before = rd;
    if (before)
      ptx_fault(x, 719, i, lane,
                "race: the %s at %#" PRIx64
                " of global memory and a %s by block %u of kernel \"%s\" on device %d, which runs at "
                "the same time on device %d, are not ordered",
                write ? "write" : "read", address, before == w ? "write" : "read", before->block, other->kernel,
                other->device, x->races->device);
  }
}

static void report(ptx_exec *x, const ptx_inst *i, int lane, bool shared, uint64_t address, const access *before,
                   bool wrote, unsigned now)
{
  ptx_fault(x, 719, i, lane, "race: the %s at %#" PRIx64 " of %s memory and a %s by %s %u of block %u are not ordered",
            now & PTX_WRITE ? "write" : "read", address, shared ? "shared" : "global", wrote ? "write" : "read",
            before->several ? "several threads, one of them" : "thread", before->thread, before->block);
}

static void check_byte(ptx_exec *x, const ptx_inst *i, int lane, bool shared, uint64_t address, cell *c, unsigned how,
                       bool changes)
{
  uint16_t thread = (uint16_t)(x->warp->index * PTX_LANES + lane);
  bool strong = how & PTX_STRONG, write = how & PTX_WRITE, multicast = how & PTX_MULTICAST;
  const access *w = &c->writer, *rd = &c->reader;
  if (w->set && !(w->strong && strong) && !is_ordered(x, w, thread, multicast) && (!write || changes)) {
    report(x, i, lane, shared, address, w, true, how);
    return;
  }
  if (write && changes && rd->set && !(rd->strong && strong) && !is_ordered(x, rd, thread, multicast)) {
    report(x, i, lane, shared, address, rd, false, how);
    return;
  }
  const history *h = &x->races->published[x->block->index], *sys = &x->races->published_sys[x->block->index];
  access now = {.block = x->block->index, .release = h->count, .release_sys = sys->count, .epoch = x->block->epoch,
                .sync = x->warp->syncs, .fence = x->races->fences[x->block->index].count, .thread = thread, .set = true, .strong = strong,
                .multicast = multicast};
  if (write && (changes || !w->set)) c->writer = now;
  if (!(how & PTX_READ)) return;
  /* Of several readers that nothing orders the last is kept, with a mark: a write by it races with the others. If they
   * are of one warp, a barrier of the warp orders the write after them. */
  now.several = rd->set && rd->block == now.block && !is_ordered(x, rd, thread, multicast);
  now.of_warps = now.several && (rd->of_warps || rd->thread / PTX_LANES != thread / PTX_LANES);
  c->reader = now;
}

void ptx_races_access(ptx_exec *x, const ptx_inst *i, int lane, bool shared, uint64_t address, uint64_t key,
                      const uint8_t *at, unsigned bytes, unsigned how, const uint8_t *value)
{
  ptx_races *r = x->races;
  pthread_mutex_lock(&mu);
  for (unsigned n = 0; n < bytes && !x->code; n++) {
    cell *c;
    if (shared) {
      c = r->shared + (size_t)(x->block - x->blocks) * r->shared_size + address + n;
    } else {
      cell *cells = cells_of(r, (key + n) / PAGE);
      if (!cells) break;
      c = &cells[(key + n) % PAGE];
      check_others(x, i, lane, address + n, key + n, how, !value || value[n] != at[n]);
      if (x->code) break;
    }
    check_byte(x, i, lane, shared, address + n, c, how, !value || value[n] != at[n]);
  }
  pthread_mutex_unlock(&mu);
}

static void note_publication(history *h)
{
  if (h->count == h->room) {
    uint32_t room = h->room ? 2 * h->room : 4;
    uint64_t *times = realloc(h->times, room * sizeof *times);
    if (!times) return;
    h->times = times, h->room = room;
  }
  h->times[h->count++] = ticks++;
}

void ptx_races_publish(ptx_exec *x, ptx_scope scope)
{
  pthread_mutex_lock(&mu);
  note_publication(&x->races->published[x->block->index]);
  if (scope == PTX_OF_SYSTEM) note_publication(&x->races->published_sys[x->block->index]);
  pthread_mutex_unlock(&mu);
}

void ptx_races_learn(ptx_exec *x, ptx_scope scope)
{
  pthread_mutex_lock(&mu);
  x->races->known[x->block->index] = ticks++;
  if (scope == PTX_OF_SYSTEM) x->races->known_sys[x->block->index] = ticks++;
  pthread_mutex_unlock(&mu);
}

void ptx_races_alias(ptx_exec *x)
{
  pthread_mutex_lock(&mu);
  uint32_t b = x->block->index;
  alias_fences *f = &x->races->fences[b];
  alias_fence *more = f->count < f->room ? f->all : realloc(f->all, (f->room ? 2 * f->room : 4) * sizeof *more);
  if (more) {
    if (f->count == f->room) f->room = f->room ? 2 * f->room : 4;
    f->all = more;
    f->all[f->count++] = (alias_fence){x->races->published[b].count, x->races->published_sys[b].count};
  }
  f->known = x->races->known[b], f->known_sys = x->races->known_sys[b];
  pthread_mutex_unlock(&mu);
}
