/* collective/flight.c -- records the operations of a rank, in memory or in a file. */
#include <config.h>

#include "collective/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/seal.h"

static int64_t realtime_offset_ns(void)
{
  struct timespec now;

  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * WEFT_NS_PER_S + now.tv_nsec - weft_now_ns();
}

/* A number for the name of a group's files. The group's id is known to members only, and cannot be computed from this
 * number. */
static uint64_t file_number(const coll_group *g)
{
  coll_key id = {0}, derived = {0};
  uint64_t number = 0;

  memcpy(&id, &g->id, sizeof g->id);
  if (coll_key_derive(&id, "weft flight file", NULL, 0, &derived)) memcpy(&number, &derived, sizeof number);
  coll_key_wipe(&id);
  coll_key_wipe(&derived);
  return number;
}

/* Maps a file that the kernel keeps up to date even if this process is killed.  NULL: it cannot be made, which is
 * logged. */
static void *map_file(const weft_comm *comm, const char *directory, size_t bytes)
{
  char path[512];
  int fd, failed;
  void *map;

  snprintf(path, sizeof path, "%s/flight-%016llx-rank%d.bin", directory, (unsigned long long)file_number(comm->group),
           comm->rank);
  fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); /* what it says is for the job's user */
  failed = fd < 0 || ftruncate(fd, (off_t)bytes) != 0;
  map = failed ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) WEFT_LOG("coll", WARN, "flight recorder %s: %s", path, strerror(errno));
  if (fd >= 0) close(fd);
  return map == MAP_FAILED ? NULL : map;
}

weft_status *coll_flight_open(weft_comm *comm)
{
  const coll_settings *settings = coll_settings_get();
  const coll_group *g = comm->group;
  size_t capacity = (size_t)settings->flight_entries;
  size_t bytes = sizeof(coll_flight_header) + capacity * sizeof(coll_flight_entry);

  comm->flight_idle_since_ns = weft_now_ns();
  if (*settings->flight_dir && (comm->flight_map = map_file(comm, settings->flight_dir, bytes))) {
    coll_flight_header *h = comm->flight_map;
    comm->flight_map_bytes = bytes;
    *h = (coll_flight_header){.magic = COLL_FLIGHT_MAGIC,
                              .entry_bytes = sizeof(coll_flight_entry),
                              .capacity = (uint32_t)capacity,
                              .group_id = g->public_id,
                              .incarnation = g->incarnations[comm->rank],
                              .realtime_offset_ns = realtime_offset_ns(),
                              .device_id = g->device_ids[comm->rank],
                              .rank = comm->rank,
                              .size = g->size,
                              .pid = (int32_t)getpid()};
    gethostname(h->host, sizeof h->host - 1);
    snprintf(h->name, sizeof h->name, "%s", g->name);
    comm->flight = (coll_flight_entry *)(h + 1);
    return NULL;
  }
  WEFT_TRY_ALLOC(comm->flight = calloc(capacity, sizeof *comm->flight));
  return NULL;
}

void coll_flight_close(weft_comm *comm)
{
  coll_flight_header *h = comm->flight_map;

  if (h) {
    h->closed_ns = weft_now_ns();
    munmap(h, comm->flight_map_bytes);
  } else {
    free(comm->flight);
  }
}

void coll_flight_failed_locked(const coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  for (int i = 0; i < g->local_count; i++) {
    coll_flight_header *h = g->locals[i] ? g->locals[i]->flight_map : NULL;
    if (!h) continue;
    for (int r = 0; r < g->size && g->member_lost && !h->lost; r++)
      if (g->incarnations[r] == g->lost && g->local_of[r] < 0) h->lost = r + 1;
    h->failed_ns = g->spent_ns;
  }
}

/* An entry is written by the thread that has the rank's turn, and read by any thread.  Both use atomics, so that a
 * reader sees at worst a mix of two operations. */
#define PUT(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
typedef uint64_t __attribute__((may_alias)) word;
_Static_assert(sizeof(coll_flight_entry) % sizeof(word) == 0, "whole words");

static coll_flight_entry read_entry(const coll_flight_entry *e)
{
  coll_flight_entry copy;

  for (size_t i = 0; i < sizeof copy / sizeof(word); i++)
    ((word *)&copy)[i] = __atomic_load_n((const word *)e + i, __ATOMIC_RELAXED);
  return copy;
}

/* Copies as much of `text` as fits into `size` bytes with a terminating NUL. */
static void put_text(char *out, size_t size, const char *text)
{
  size_t n = text ? strnlen(text, size - 1) : 0;

  for (size_t i = 0; i < n; i++) PUT(out[i], text[i]);
  PUT(out[n], '\0');
}

void coll_flight_posted(coll_op *op)
{
  weft_comm *comm = op->comm;
  uint64_t number = atomic_load_explicit(&comm->flight_next, memory_order_relaxed);
  coll_flight_entry *e = &comm->flight[number % (uint64_t)coll_settings_get()->flight_entries];

  /* not an atomic increment: a send that is posted while another thread's collective runs alone may share its entry */
  atomic_store_explicit(&comm->flight_next, number + 1, memory_order_relaxed);
  PUT(e->seq, op->seq);
  PUT(e->bytes, (uint64_t)op->problem.bytes);
  PUT(e->count, op->args.count);
  PUT(e->posted_ns, op->posted_ns);
  PUT(e->started_ns, op->alone ? op->posted_ns : 0);
  PUT(e->ended_ns, 0);
  PUT(e->root, op->collective ? op->problem.root : op->args.peer);
  PUT(e->code, 0);
  PUT(e->kind, (uint8_t)op->args.kind);
  PUT(e->dtype, (uint8_t)op->args.dtype);
  PUT(e->reduction, (uint8_t)op->args.reduction);
  PUT(e->in_use, 1);
  put_text(e->instruction, sizeof e->instruction, op->site.instruction);
  put_text(e->executable, sizeof e->executable, op->site.executable);
  put_text(e->source, sizeof e->source, op->site.source);
  op->flight = e;
}

void coll_flight_started(const coll_op *op) { PUT(op->flight->started_ns, op->posted_ns); }

void coll_flight_ended(const coll_op *op, weft_code code, int64_t now_ns)
{
  coll_flight_entry *e = op->flight;

  if (__atomic_load_n(&e->seq, __ATOMIC_RELAXED) != op->seq) return; /* the entry was overwritten meanwhile */
  PUT(e->ended_ns, now_ns);
  PUT(e->code, (int32_t)code);
}

uint64_t coll_flight_count(const weft_comm *comm)
{
  uint64_t next = atomic_load_explicit(&comm->flight_next, memory_order_relaxed);
  return WEFT_MIN(next, (uint64_t)coll_settings_get()->flight_entries);
}
coll_flight_entry coll_flight_at(const weft_comm *comm, uint64_t i)
{
  uint64_t capacity = (uint64_t)coll_settings_get()->flight_entries;
  uint64_t next = atomic_load_explicit(&comm->flight_next, memory_order_relaxed);

  return read_entry(&comm->flight[(next > capacity ? next - capacity + i : i) % capacity]);
}

bool coll_flight_is_p2p(const coll_flight_entry *e) { return e->kind == WEFT_SEND || e->kind == WEFT_RECV; }

const char *coll_flight_state(const coll_flight_entry *e)
{
  if (!e->ended_ns) return e->started_ns ? "running" : "queued";
  return e->code ? weft_code_name((weft_code)e->code) : "done";
}

void coll_flight_describe(const coll_flight_entry *e, char *out, size_t size)
{
  char operation[160], name[sizeof e->instruction + 1];

  snprintf(name, sizeof name, "%.48s", e->instruction); /* in an entry from a file the text may lack its NUL */
  coll_describe(e->kind, e->dtype, e->count, e->reduction, name, operation, sizeof operation);
  snprintf(out, size, "%s%s%.32s", operation, e->source[0] ? " at " : "", e->source);
}
