/* collective/flight_join.c -- joins the recorder files of several ranks: which rank diverged first, and
 * which process took the oldest last step. */
#include <config.h>

#include "collective/flight.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct recorder {
  coll_flight_header header;
  coll_flight_entry *entries; /* collectives only, in the order of seq */
  uint64_t count;
  coll_flight_entry last; /* the last operation of all, sends and receives too */
  int64_t last_ns;        /* when its rank last recorded anything, by the realtime clock; INT64_MIN: never */
  bool gone;              /* its process does not exist any more, as far as this host can tell */
  int accusers;           /* how many other ranks learnt of its death */
} recorder;

static int by_seq(const void *a, const void *b)
{
  uint64_t x = ((const coll_flight_entry *)a)->seq, y = ((const coll_flight_entry *)b)->seq;
  return x < y ? -1 : x > y;
}

/* The end of an operation counts, also with an error: a rank that learns of another's death records that after the
 * death, however early it posted. */
static void keep_last(recorder *r, const coll_flight_entry *e)
{
  int64_t ns = WEFT_MAX(e->posted_ns, e->ended_ns);

  /* a file's numbers may be any: no signed overflow */
  ns = (int64_t)((uint64_t)ns + (uint64_t)r->header.realtime_offset_ns);
  if (ns < r->last_ns) return;
  r->last = *e;
  r->last_ns = ns;
}

/* Has the recorder's process ended?  Of a process on another host nothing is known: false. */
static bool is_gone(const coll_flight_header *h)
{
  char host[64] = "";

  gethostname(host, sizeof host - 1);
  return strcmp(host, h->host) == 0 && h->pid > 0 && kill(h->pid, 0) != 0 && errno == ESRCH;
}

/* Was the process killed, as far as the recorders tell?  Other ranks learnt of its death, and it recorded neither a
 * failure nor the end of its communicator. */
static bool was_killed(const recorder *r) { return r->accusers && !r->header.failed_ns && !r->header.closed_ns; }

static const char *state_in(const recorder *r, const coll_flight_entry *e)
{
  return !e->ended_ns && (r->gone || was_killed(r)) ? "cut off" : coll_flight_state(e);
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
    e->instruction[sizeof e->instruction - 1] = e->source[sizeof e->source - 1] =
      e->executable[sizeof e->executable - 1] = '\0';
    if (e->in_use) keep_last(r, e);
    r->count += e->in_use && !coll_flight_is_p2p(e);
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
    fprintf(out, "%s at seq %llu:\n",
            different ? "ranks disagree"
            : absent  ? "ranks are missing"
                      : "not ended",
            (unsigned long long)seq);
    for (int i = 0; i < count; i++) {
      const coll_flight_entry *e = find(&rs[i], seq);
      if (e) coll_flight_describe(e, text, sizeof text);
      fprintf(out, "  rank %d (device %lld on %s, pid %d): %s%s%s%s\n", rs[i].header.rank,
              (long long)rs[i].header.device_id, rs[i].header.host, rs[i].header.pid, e ? text : "never posted it",
              e ? ", " : "", e ? state_in(&rs[i], e) : "", e && !agree(first, e) ? "  <- differs from the first" : "");
      if (!e && rs[i].count) {
        coll_flight_describe(&rs[i].entries[rs[i].count - 1], text, sizeof text);
        fprintf(out, "      last: %s (seq %llu), %s\n", text, (unsigned long long)rs[i].entries[rs[i].count - 1].seq,
                state_in(&rs[i], &rs[i].entries[rs[i].count - 1]));
      }
    }
    return;
  }
  fprintf(out, "all ranks agree on seq %llu to %llu, and all of it ended\n", (unsigned long long)begin,
          (unsigned long long)end);
}

/* By communicator, then by rank. */
static int by_communicator(const void *a, const void *b)
{
  const coll_flight_header *x = &((const recorder *)a)->header, *y = &((const recorder *)b)->header;
  if (x->group_id != y->group_id) return x->group_id < y->group_id ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Counts, for each recorder of one communicator, the ranks that learnt of its rank's death.  The recorders are in the
 * order of ranks. */
static void count_accusers(recorder *rs, int count)
{
  for (int i = 0; i < count; i++) {
    recorder key = {.header = {.group_id = rs[i].header.group_id, .rank = rs[i].header.lost > 0 ? rs[i].header.lost - 1 : -1}};
    recorder *lost = rs[i].header.lost > 0 ? bsearch(&key, rs, (size_t)count, sizeof *rs, by_communicator) : NULL;
    if (lost && lost != &rs[i]) lost->accusers++;
  }
}

/* Ranks that were killed come first, then the order of their last writes. */
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
  fprintf(
    out,
    "rank %d of %s (pid %d on %s) stopped first: it did not close its recorder, and %d other ranks learnt that it had died\n",
    r->header.rank, r->header.name, r->header.pid, r->header.host, r->accusers);
}

/* Writes which death ended the rank's operation, and whether the rank's process is gone too. */
static void write_reason(const recorder *r, FILE *out)
{
  if (r->header.lost > 0) fprintf(out, ": rank %d had died", r->header.lost - 1);
  fprintf(out, "%s\n", !r->gone || r->header.closed_ns ? "" : ", and its process is gone");
}

/* Writes the last step of each process: killed processes first, then by time, the oldest step first.  The process on
 * top is where to look first, because the others wait for it, or for processes that do.  Sorts the recorders. */
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
    if ((later < count && !was_killed(&rs[i])) || rs[i].last_ns == INT64_MIN)
      continue; /* that recorder says what this process did last */
    coll_flight_describe(&rs[i].last, text, sizeof text);
    if (processes++ == 0) fprintf(out, "the last step of each process, who went quiet first on top:\n");
    fprintf(out, "  pid %d on %s (device %lld), %.3f ms before the last step of all: %s (seq %llu of %s), %s",
            rs[i].header.pid, rs[i].header.host, (long long)rs[i].header.device_id,
            ((double)latest - (double)rs[i].last_ns) / 1e6, text, (unsigned long long)rs[i].last.seq, rs[i].header.name,
            state_in(&rs[i], &rs[i].last));
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
