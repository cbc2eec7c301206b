/* collective/flight.c -- records operations; prints and joins recorders. */
#include <config.h>

#include "collective/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/context.h"

static int64_t realtime_offset_ns(void)
{
  struct timespec now;

  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * WEFT_NS_PER_S + now.tv_nsec - weft_now_ns();
}

/* A file that the kernel keeps up to date even if this process is killed.  NULL: none, for a logged reason. */
static void *map_file(const weft_comm *comm, const char *directory, size_t bytes)
{
  char path[512];
  int fd, failed;
  void *map;

  snprintf(path, sizeof path, "%s/flight-%016llx-rank%d.bin", directory, (unsigned long long)comm->group->id, comm->rank);
  fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
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
    *h = (coll_flight_header){.magic = COLL_FLIGHT_MAGIC, .entry_bytes = sizeof(coll_flight_entry),
                              .capacity = (uint32_t)capacity, .group_id = g->public_id,
                              .incarnation = g->incarnations[comm->rank], .realtime_offset_ns = realtime_offset_ns(),
                              .device_id = g->device_ids[comm->rank], .rank = comm->rank, .size = g->size,
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
  for (int i = 0; i < g->local_count; i++) {
    coll_flight_header *h = g->locals[i] ? g->locals[i]->flight_map : NULL;
    if (!h) continue;
    for (int r = 0; r < g->size && g->bereaved && !h->lost; r++)
      if (g->incarnations[r] == g->lost && g->local_of[r] < 0) h->lost = r + 1;
    h->failed_ns = g->spent_ns;
  }
}

/* An entry is written by the thread whose turn it is, and read by any: with atomics, so that what is read is at worst of two
 * operations. */
#define PUT(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
typedef uint64_t __attribute__((may_alias)) word;
_Static_assert(sizeof(coll_flight_entry) % sizeof(word) == 0, "whole words");

static coll_flight_entry read_entry(const coll_flight_entry *e)
{
  coll_flight_entry copy;

  for (size_t i = 0; i < sizeof copy / sizeof(word); i++) ((word *)&copy)[i] = __atomic_load_n((const word *)e + i, __ATOMIC_RELAXED);
  return copy;
}

/* As much of `text` as `size` bytes hold, with its end. */
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

  /* no atomic increment: a send posted at the moment in which another thread's collective runs alone may share its entry */
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

  if (__atomic_load_n(&e->seq, __ATOMIC_RELAXED) != op->seq) return; /* overwritten since */
  PUT(e->ended_ns, now_ns);
  PUT(e->code, (int32_t)code);
}

/* ---- printing ---- */

static bool is_p2p(const coll_flight_entry *e) { return e->kind == WEFT_SEND || e->kind == WEFT_RECV; }

static const char *state_of(const coll_flight_entry *e)
{
  if (!e->ended_ns) return e->started_ns ? "running" : "queued";
  return e->code ? weft_code_name((weft_code)e->code) : "done";
}

/* all-reduce f32[10] sum "all-reduce.3" at train.py:4 */
static void entry_text(const coll_flight_entry *e, char *out, size_t size)
{
  char operation[160], name[sizeof e->instruction + 1];

  snprintf(name, sizeof name, "%.48s", e->instruction); /* a file's: perhaps without its end */
  coll_describe(e->kind, e->dtype, e->count, e->reduction, name, operation, sizeof operation);
  snprintf(out, size, "%s%s%.32s", operation, e->source[0] ? " at " : "", e->source);
}

/* The entries that are in use, oldest first: how many, and a copy of each. */
static uint64_t entries_of(const weft_comm *comm)
{
  uint64_t next = atomic_load_explicit(&comm->flight_next, memory_order_relaxed);
  return WEFT_MIN(next, (uint64_t)coll_settings_get()->flight_entries);
}
static coll_flight_entry entry_at(const weft_comm *comm, uint64_t i)
{
  uint64_t capacity = (uint64_t)coll_settings_get()->flight_entries;
  uint64_t next = atomic_load_explicit(&comm->flight_next, memory_order_relaxed);

  return read_entry(&comm->flight[(next > capacity ? next - capacity + i : i) % capacity]);
}

/* The last `most` of its operations. */
static void print_ring(const weft_comm *comm, int64_t now_ns, uint64_t most, FILE *out)
{
  uint64_t count = entries_of(comm), first = count > most ? count - most : 0;

  if (first) fprintf(out, "    %llu older\n", (unsigned long long)first);
  for (uint64_t i = first; i < count; i++) {
    coll_flight_entry e = entry_at(comm, i);
    char text[256];
    if (!e.in_use) continue; /* being written for the first time */
    entry_text(&e, text, sizeof text);
    fprintf(out, "    %s%6llu  %-10s %10.3f ms ago", is_p2p(&e) ? "p" : " ", (unsigned long long)e.seq, state_of(&e),
            (double)(now_ns - e.posted_ns) / 1e6);
    if (e.ended_ns) fprintf(out, "  took %.3f ms", (double)(e.ended_ns - e.posted_ns) / 1e6);
    fprintf(out, "  %s\n", text);
  }
}

/* Who came last, the most waited for first. */
static void print_late(coll_group *g, const weft_comm *comm, uint64_t most, FILE *out)
{
  weft_comm_lateness before = {.waited_ns = INT64_MAX};

  for (uint64_t i = 0; i < most && g->size > 1; i++) {
    weft_comm_lateness worst = {0};
    int rank = -1;
    for (int r = 0; r < g->size; r++) {
      weft_comm_lateness late = coll_comm_lateness(comm, r);
      if (!late.times_last || late.waited_ns >= before.waited_ns || (rank >= 0 && late.waited_ns <= worst.waited_ns)) continue;
      worst = late;
      rank = r;
    }
    if (rank < 0) return;
    fprintf(out, "    rank %d came last %llu times, waited for %.3f ms in all, %.3f ms at most\n", rank,
            (unsigned long long)worst.times_last, (double)worst.waited_ns / 1e6, (double)worst.max_ns / 1e6);
    before = worst;
  }
}

static void print_group_locked(coll_group *g, uint64_t most, FILE *out)
{
  enum { MOST_LATE = 3 };
  int64_t now_ns = weft_now_ns();

  fprintf(out, "communicator %s: %d ranks, %d here%s%s\n", g->name, g->size, g->live_count,
          g->error ? ", spent: " : "", g->error ? weft_status_message(g->error) : "");
  for (int i = 0; i < g->local_count; i++) {
    const weft_comm *comm = g->locals[i];
    if (!comm) continue;
    fprintf(out, "  rank %d (device %lld): %llu collectives posted, %llu ended\n", comm->rank,
            (long long)g->device_ids[comm->rank], (unsigned long long)coll_comm_posted(comm), (unsigned long long)comm->ended_seq);
    print_late(g, comm, MOST_LATE, out);
    print_ring(comm, now_ns, most, out);
  }
}

/* ---- the recorder of the process: first what it waits for, then communicator by communicator ---- */

enum { MOST_WAITS = 8 };

typedef struct overview {
  FILE *out;
  uint64_t most; /* operations of each rank */
  int communicators, pending;
  int64_t posted_ns[MOST_WAITS]; /* of the oldest operation of a communicator, the oldest of all first; 0: no more */
  char texts[MOST_WAITS][400];
} overview;

static void look_at_group(coll_group *g, void *ctx)
{
  overview *o = ctx;
  const coll_op *oldest = NULL;
  char text[256];
  int at = 0;

  coll_group_lock(g);
  o->communicators++;
  for (const coll_op *op = g->all_pending; op; op = op->pending_next) {
    o->pending++;
    if (!oldest || op->posted_ns < oldest->posted_ns) oldest = op;
  }
  while (oldest && at < MOST_WAITS && o->posted_ns[at] && o->posted_ns[at] <= oldest->posted_ns) at++;
  if (oldest && at < MOST_WAITS) {
    memmove(&o->posted_ns[at + 1], &o->posted_ns[at], (size_t)(MOST_WAITS - at - 1) * sizeof o->posted_ns[0]);
    memmove(&o->texts[at + 1], &o->texts[at], (size_t)(MOST_WAITS - at - 1) * sizeof o->texts[0]);
    coll_op_describe(oldest, text, sizeof text);
    o->posted_ns[at] = oldest->posted_ns;
    snprintf(o->texts[at], sizeof o->texts[at], "rank %d of %.100s in %s", oldest->comm->rank, g->name, text);
  }
  coll_group_unlock(g);
}

static void print_group(coll_group *g, void *ctx)
{
  overview *o = ctx;

  coll_group_lock(g);
  print_group_locked(g, o->most, o->out);
  coll_group_unlock(g);
}

char *coll_flight_text(uint64_t most)
{
  char *text = NULL, host[64] = "";
  size_t size = 0;
  overview o = {.out = open_memstream(&text, &size), .most = most};
  int64_t now_ns = weft_now_ns();

  if (!o.out) return NULL;
  gethostname(host, sizeof host - 1);
  coll_context_each(look_at_group, &o);
  fprintf(o.out, "flight recorder of pid %d on %s: %d communicators, %d operations pending\n", (int)getpid(), host, o.communicators, o.pending);
  for (int i = 0; i < MOST_WAITS && o.posted_ns[i]; i++)
    fprintf(o.out, "  for %.3f s: %s\n", (double)(now_ns - o.posted_ns[i]) / 1e9, o.texts[i]);
  coll_context_each(print_group, &o);
  fclose(o.out);
  return text;
}

char *weft_coll_flight_text(void) { return coll_flight_text(UINT64_MAX); }

/* All of it, to a file.  False: there is no directory for it, or it cannot be written, which is logged. */
static bool write_text(char *path, size_t size)
{
  const char *directory = coll_settings_get()->flight_dir;
  WEFT_AUTO_STR text = *directory ? weft_coll_flight_text() : NULL;

  if (!text) return false;
  snprintf(path, size, "%s/flight-pid%d.txt", directory, (int)getpid());
  FILE *file = fopen(path, "we");
  bool written = file && fputs(text, file) >= 0;
  written = file && fclose(file) == 0 && written;
  if (!written) WEFT_LOG("coll", WARN, "flight recorder %s: %s", path, strerror(errno));
  return written;
}

void coll_flight_dump(FILE *out)
{
  enum { FEW = 5 };
  WEFT_AUTO_STR text = coll_flight_text(FEW);
  char path[512];

  if (text) fputs(text, out);
  if (write_text(path, sizeof path))
    fprintf(out, "all that is recorded: %s\n", path);
  else
    fprintf(out, "the last %d operations of each rank; with WEFT_COLLECTIVE_FLIGHT_DIR all go to a file\n", FEW);
  fflush(out);
}

void coll_flight_status_locked(const weft_comm *comm, char *out, size_t size)
{
  coll_flight_entry last = {0};
  int64_t now_ns = weft_now_ns();
  char text[256];

  for (uint64_t i = entries_of(comm); i-- > 0 && !last.in_use;) {
    coll_flight_entry e = entry_at(comm, i);
    if (!is_p2p(&e)) last = e;
  }
  if (!last.in_use) {
    snprintf(out, size, "has posted nothing in the %.1f s since the communicator was made",
             (double)(now_ns - comm->flight_idle_since_ns) / 1e9);
    return;
  }
  entry_text(&last, text, sizeof text);
  if (last.ended_ns)
    snprintf(out, size, "last seen at %s (seq %llu), which ended %.1f s ago", text, (unsigned long long)last.seq,
             (double)(now_ns - last.ended_ns) / 1e9);
  else
    snprintf(out, size, "in %s (seq %llu) for %.1f s", text, (unsigned long long)last.seq,
             (double)(now_ns - last.posted_ns) / 1e9);
}

/* ---- joining files ---- */

typedef struct recorder {
  coll_flight_header header;
  coll_flight_entry *entries; /* collectives only, by seq */
  uint64_t count;
  coll_flight_entry last; /* of all, sends and receives too */
  int64_t last_ns;        /* when its rank last wrote of an operation, by the clock of all hosts; INT64_MIN: it never did */
  bool gone;              /* its process is no longer there, as far as can be told here */
  int accusers;           /* other ranks that learnt of its death */
} recorder;

static int by_seq(const void *a, const void *b)
{
  uint64_t x = ((const coll_flight_entry *)a)->seq, y = ((const coll_flight_entry *)b)->seq;
  return x < y ? -1 : x > y;
}

/* An operation that fails counts: a rank that learns of another's death writes after it, however early it posted. */
static void keep_last(recorder *r, const coll_flight_entry *e)
{
  int64_t ns = WEFT_MAX(e->posted_ns, e->ended_ns);

  ns = (int64_t)((uint64_t)ns + (uint64_t)r->header.realtime_offset_ns); /* a file's: any numbers */
  if (ns < r->last_ns) return;
  r->last = *e;
  r->last_ns = ns;
}

/* Of a process on another machine nothing is known. */
static bool is_gone(const coll_flight_header *h)
{
  char host[64] = "";

  gethostname(host, sizeof host - 1);
  return strcmp(host, h->host) == 0 && h->pid > 0 && kill(h->pid, 0) != 0 && errno == ESRCH;
}

/* Killed, for all that the recorders say: it did not come to note a failure of its own, nor the end of its communicator. */
static bool was_killed(const recorder *r)
{
  return r->accusers && !r->header.failed_ns && !r->header.closed_ns;
}

static const char *state_in(const recorder *r, const coll_flight_entry *e)
{
  return !e->ended_ns && (r->gone || was_killed(r)) ? "cut off" : state_of(e);
}

static weft_status *read_recorder(const char *path, recorder *r)
{
  FILE *file = fopen(path, "re");
  weft_status *st = NULL;

  *r = (recorder){.last_ns = INT64_MIN};
  if (!file) return WEFT_ERR(NOT_FOUND, "%s: %s", path, strerror(errno));
  if (fread(&r->header, sizeof r->header, 1, file) != 1 || r->header.magic != COLL_FLIGHT_MAGIC ||
      r->header.entry_bytes != sizeof(coll_flight_entry) || r->header.capacity > 1 << 20 || r->header.size < 1)
    st = WEFT_ERR(INVALID_ARGUMENT, "%s is no flight recorder of this version", path);
  r->header.name[sizeof r->header.name - 1] = r->header.host[sizeof r->header.host - 1] = '\0';
  if (!st && !(r->entries = calloc(r->header.capacity + 1, sizeof *r->entries)))
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (uint32_t i = 0; !st && i < r->header.capacity; i++) {
    coll_flight_entry *e = &r->entries[r->count];
    if (fread(e, sizeof *e, 1, file) != 1) break;
    e->instruction[sizeof e->instruction - 1] = e->source[sizeof e->source - 1] = e->executable[sizeof e->executable - 1] = '\0';
    if (e->in_use) keep_last(r, e);
    r->count += e->in_use && !is_p2p(e);
  }
  fclose(file);
  r->gone = !st && is_gone(&r->header);
  if (!st) qsort(r->entries, r->count, sizeof *r->entries, by_seq);
  return st;
}

static const coll_flight_entry *find(const recorder *r, uint64_t seq)
{
  coll_flight_entry key = {.seq = seq};
  return bsearch(&key, r->entries, r->count, sizeof key, by_seq);
}

static bool agree(const coll_flight_entry *a, const coll_flight_entry *b)
{
  bool own_counts = a->kind == WEFT_ALL_TO_ALL_V || a->kind == WEFT_RAGGED_ALL_TO_ALL || a->kind == WEFT_ALL_GATHER_V ||
                    a->kind == WEFT_GATHER_V || a->kind == WEFT_SCATTER_V || a->kind == WEFT_REDUCE_SCATTER;
  return a->kind == b->kind && a->dtype == b->dtype && a->reduction == b->reduction && a->root == b->root &&
         (own_counts || a->count == b->count) && strcmp(a->instruction, b->instruction) == 0;
}

static void compare(const recorder *rs, int count, FILE *out)
{
  uint64_t begin = 0, end = 0;

  for (int i = 0; i < count; i++) {
    if (rs[i].count == 0) continue;
    begin = WEFT_MAX(begin, rs[i].entries[0].seq);
    end = WEFT_MAX(end, rs[i].entries[rs[i].count - 1].seq + 1);
  }
  for (uint64_t seq = begin; seq < end; seq++) {
    const coll_flight_entry *first = NULL;
    int absent = 0, different = 0, unended = 0;
    for (int i = 0; i < count; i++) {
      const coll_flight_entry *e = find(&rs[i], seq);
      absent += !e;
      unended += e && (!e->ended_ns || e->code);
      if (!first) first = e;
      different += e && first && !agree(first, e);
    }
    if (!absent && !different && !unended) continue;
    char text[256];
    fprintf(out, "%s at seq %llu:\n", different ? "ranks disagree" : absent ? "ranks are missing" : "not ended",
            (unsigned long long)seq);
    for (int i = 0; i < count; i++) {
      const coll_flight_entry *e = find(&rs[i], seq);
      if (e) entry_text(e, text, sizeof text);
      fprintf(out, "  rank %d (device %lld on %s, pid %d): %s%s%s%s\n", rs[i].header.rank, (long long)rs[i].header.device_id,
              rs[i].header.host, rs[i].header.pid, e ? text : "never posted it", e ? ", " : "", e ? state_in(&rs[i], e) : "",
              e && !agree(first, e) ? "  <- differs from the first" : "");
      if (!e && rs[i].count) {
        entry_text(&rs[i].entries[rs[i].count - 1], text, sizeof text);
        fprintf(out, "      last: %s (seq %llu), %s\n", text, (unsigned long long)rs[i].entries[rs[i].count - 1].seq,
                state_in(&rs[i], &rs[i].entries[rs[i].count - 1]));
      }
    }
    return;
  }
  fprintf(out, "all ranks agree on seq %llu to %llu, and all of it ended\n", (unsigned long long)begin,
          (unsigned long long)end);
}

/* Those of a communicator together, in the order of ranks. */
static int by_communicator(const void *a, const void *b)
{
  const coll_flight_header *x = &((const recorder *)a)->header, *y = &((const recorder *)b)->header;
  if (x->group_id != y->group_id) return x->group_id < y->group_id ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Of the recorders of one communicator, which are in the order of ranks: who of them died, as the others learnt. */
static void count_accusers(recorder *rs, int count)
{
  for (int i = 0; i < count; i++) {
    recorder key = {.header = {.group_id = rs[i].header.group_id, .rank = rs[i].header.lost > 0 ? rs[i].header.lost - 1 : -1}};
    recorder *lost = rs[i].header.lost > 0 ? bsearch(&key, rs, (size_t)count, sizeof *rs, by_communicator) : NULL;
    if (lost && lost != &rs[i]) lost->accusers++;
  }
}

/* Who was killed first, then by the last write. */
static int by_last_step(const void *a, const void *b)
{
  const recorder *x = a, *y = b;

  if (was_killed(x) != was_killed(y)) return was_killed(x) ? -1 : 1;
  return (x->last_ns > y->last_ns) - (x->last_ns < y->last_ns);
}

static bool is_same_process(const recorder *a, const recorder *b)
{
  return a->header.pid == b->header.pid && strcmp(a->header.host, b->header.host) == 0;
}

static void write_verdict(const recorder *r, FILE *out)
{
  if (!was_killed(r)) return;
  fprintf(out, "rank %d of %s (pid %d on %s) stopped first: it did not close its recorder, and %d other ranks learnt that it had died\n",
          r->header.rank, r->header.name, r->header.pid, r->header.host, r->accusers);
}

/* What ended the wait of a rank that did not come to its end by itself. */
static void write_reason(const recorder *r, FILE *out)
{
  if (r->header.lost > 0) fprintf(out, ": rank %d had died", r->header.lost - 1);
  fprintf(out, "%s\n", !r->gone || r->header.closed_ns ? "" : ", and its process is gone");
}

/* Who went quiet first is where to look first: the others wait for it, or for those that do.  Sorts the recorders. */
static void write_quietest(recorder *rs, int count, FILE *out)
{
  char text[256];
  int processes = 0;
  int64_t latest = INT64_MIN;

  for (int i = 0; i < count; i++) latest = WEFT_MAX(latest, rs[i].last_ns);
  qsort(rs, (size_t)count, sizeof *rs, by_last_step);
  for (int i = 0; i < count; i++) write_verdict(&rs[i], out);
  for (int i = 0; i < count; i++) {
    int later = i + 1;
    while (later < count && !is_same_process(&rs[i], &rs[later])) later++;
    if ((later < count && !was_killed(&rs[i])) || rs[i].last_ns == INT64_MIN) continue; /* that one says what this process did last */
    entry_text(&rs[i].last, text, sizeof text);
    if (processes++ == 0) fprintf(out, "the last step of each process, who went quiet first on top:\n");
    fprintf(out, "  pid %d on %s (device %lld), %.3f ms before the last step of all: %s (seq %llu of %s), %s", rs[i].header.pid, rs[i].header.host,
            (long long)rs[i].header.device_id, ((double)latest - (double)rs[i].last_ns) / 1e6, text,
            (unsigned long long)rs[i].last.seq, rs[i].header.name, state_in(&rs[i], &rs[i].last));
    write_reason(&rs[i], out);
  }
}

weft_status *coll_flight_join(const char *const *paths, int count, FILE *out)
{
  recorder *rs = calloc((size_t)count + 1, sizeof *rs);
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(rs);
  for (int i = 0; i < count && !st; i++) st = read_recorder(paths[i], &rs[i]);
  qsort(rs, (size_t)count, sizeof *rs, by_communicator);
  for (int i = 0, end; i < count && !st; i = end) {
    for (end = i + 1; end < count && rs[end].header.group_id == rs[i].header.group_id;) end++;
    fprintf(out, "communicator %s: recorders of %d of %d ranks\n", rs[i].header.name, end - i, rs[i].header.size);
    count_accusers(rs + i, end - i);
    compare(rs + i, end - i, out);
  }
  if (!st) write_quietest(rs, count, out);
  for (int i = 0; i < count; i++) free(rs[i].entries);
  free(rs);
  return st;
}
