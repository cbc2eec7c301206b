/* collective/flight_text.c -- prints what the process waits for and what its recorders hold. */
#include <config.h>

#include "collective/flight_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/context.h"
#include "collective/flight.h"

/* Prints the last `most` operations of a rank. */
static void print_ring(const weft_comm *comm, int64_t now_ns, uint64_t most, FILE *out)
{
  uint64_t count = coll_flight_count(comm), first = count > most ? count - most : 0;

  if (first) fprintf(out, "    %llu older\n", (unsigned long long)first);
  for (uint64_t i = first; i < count; i++) {
    coll_flight_entry e = coll_flight_at(comm, i);
    char text[256];
    if (!e.in_use) continue; /* being written for the first time */
    coll_flight_describe(&e, text, sizeof text);
    fprintf(out, "    %s%6llu  %-10s %10.3f ms ago", coll_flight_is_p2p(&e) ? "p" : " ", (unsigned long long)e.seq,
            coll_flight_state(&e), (double)(now_ns - e.posted_ns) / 1e6);
    if (e.ended_ns) fprintf(out, "  took %.3f ms", (double)(e.ended_ns - e.posted_ns) / 1e6);
    fprintf(out, "  %s\n", text);
  }
}

/* Prints the `most` ranks that were waited for longest, in that order. */
static void print_late(coll_group *g, const weft_comm *comm, uint64_t most, FILE *out)
{
  weft_comm_lateness before = {.waited_ns = INT64_MAX};

  for (uint64_t i = 0; i < most && g->size > 1; i++) {
    weft_comm_lateness worst = {0};
    int rank = -1;
    for (int r = 0; r < g->size; r++) {
      weft_comm_lateness late = coll_comm_lateness(comm, r);
      if (!late.times_last || late.waited_ns >= before.waited_ns || (rank >= 0 && late.waited_ns <= worst.waited_ns))
        continue;
      worst = late;
      rank = r;
    }
    if (rank < 0) return;
    fprintf(out, "    rank %d came last %llu times, waited for %.3f ms in all, %.3f ms at most\n", rank,
            (unsigned long long)worst.times_last, (double)worst.waited_ns / 1e6, (double)worst.max_ns / 1e6);
    before = worst;
  }
}

static void print_group_locked(coll_group *g, uint64_t most, FILE *out) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  enum { MOST_LATE = 3 };
  int64_t now_ns = weft_now_ns();

  fprintf(out, "communicator %s: %d ranks, %d here%s%s\n", g->name, g->size, g->live_count, g->error ? ", spent: " : "",
          g->error ? weft_status_message(g->error) : "");
  if (coll_group_has_platform(g)) {
    char text[256];
    g->communicator->ops->describe(g->communicator, text, sizeof text);
    fprintf(out, "  by %s: %s\n", g->communicator->ops->name, text);
  }
  for (int i = 0; i < g->local_count; i++) {
    const weft_comm *comm = g->locals[i];
    if (!comm) continue;
    fprintf(out, "  rank %d (device %lld): %llu collectives posted, %llu ended\n", comm->rank,
            (long long)g->device_ids[comm->rank], (unsigned long long)coll_comm_posted(comm),
            (unsigned long long)comm->ended_seq);
    print_late(g, comm, MOST_LATE, out);
    print_ring(comm, now_ns, most, out);
  }
}

enum { MOST_WAITS = 8 };

typedef struct overview {
  FILE *out;
  uint64_t most; /* operations of each rank */
  int communicators, pending;
  int64_t posted_ns[MOST_WAITS]; /* of the oldest operation of each communicator, the oldest of all first; 0: no more */
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
  fprintf(o.out, "flight recorder of pid %d on %s: %d communicators, %d operations pending\n", (int)getpid(), host,
          o.communicators, o.pending);
  for (int i = 0; i < MOST_WAITS && o.posted_ns[i]; i++)
    fprintf(o.out, "  for %.3f s: %s\n", (double)(now_ns - o.posted_ns[i]) / 1e9, o.texts[i]);
  coll_context_each(print_group, &o);
  fclose(o.out);
  return text;
}

char *weft_coll_flight_text(void) { return coll_flight_text(UINT64_MAX); }

/* Writes the whole text to a file; `path` gets its name.  False: no directory is set, or it cannot be written, which
 * is logged. */
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
  if (write_text(path, sizeof path)) fprintf(out, "all that is recorded: %s\n", path);
  else fprintf(out, "the last %d operations of each rank; with WEFT_COLLECTIVE_FLIGHT_DIR all go to a file\n", FEW);
  fflush(out);
}

void coll_flight_status_locked(const weft_comm *comm, char *out, size_t size)
{
  weft_mutex_assert_held(&comm->group->mu);
  coll_flight_entry last = {0};
  int64_t now_ns = weft_now_ns();
  char text[256];

  for (uint64_t i = coll_flight_count(comm); i-- > 0 && !last.in_use;) {
    coll_flight_entry e = coll_flight_at(comm, i);
    if (!coll_flight_is_p2p(&e)) last = e;
  }
  if (!last.in_use) {
    snprintf(out, size, "has posted nothing in the %.1f s since the communicator was made",
             (double)(now_ns - comm->flight_idle_since_ns) / 1e9);
    return;
  }
  coll_flight_describe(&last, text, sizeof text);
  if (last.ended_ns)
    snprintf(out, size, "last seen at %s (seq %llu), which ended %.1f s ago", text, (unsigned long long)last.seq,
             (double)(now_ns - last.ended_ns) / 1e9);
  else
    snprintf(out, size, "in %s (seq %llu) for %.1f s", text, (unsigned long long)last.seq,
             (double)(now_ns - last.posted_ns) / 1e9);
}
