/* collective/transport/fault.c -- a stream that injects faults on purpose, for tests of what must survive them.
 *
 * The specification is a list of faults, "what@n" or "what@n=value", separated by commas.  n counts the moves of this
 * process, from 1: the pieces that it sends (commits) and that it takes in, over all its connections.  Each fault
 * happens once: at move n, or, where it is about what is sent, at the first commit from move n on:
 *   drop@n        the commit's bytes never arrive
 *   duplicate@n   the commit's bytes arrive twice
 *   corrupt@n     their first eight bytes are inverted
 *   delay@n=ms    the bytes, and all bytes after them on this connection, arrive that many milliseconds later
 *   stall@n       nothing is sent on this connection from then on, but the connection stays open
 *   disconnect@n  the control connection closes
 *   stop@n        the process stops (SIGSTOP)
 *   kill@n        the process dies (SIGKILL)
 * With WEFT_COLLECTIVE_FAULTS every connection of a process is decorated. */
#include <config.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/deadline.h"
#include "collective/transport/stream.h"

enum { MOST_FAULTS = 16 };

typedef enum fault_kind { FAULT_DROP, FAULT_DUPLICATE, FAULT_CORRUPT, FAULT_DELAY, FAULT_STALL, FAULT_DISCONNECT, FAULT_STOP, FAULT_KILL } fault_kind;

static const char *const kind_names[] = {"drop", "duplicate", "corrupt", "delay", "stall", "disconnect", "stop", "kill"};

typedef struct fault {
  fault_kind kind;
  unsigned long at;
  int64_t delay_ns;
} fault;

typedef struct fault_stream {
  coll_stream base;
  coll_stream *inner;
  fault faults[MOST_FAULTS];
  int fault_count;
  bool stalled;
  /* until when a delayed commit is held, while nothing else may be written; 0: none is */
  int64_t until_ns;
  size_t held_bytes[COLL_CHANNELS];
  void (*disconnect)(void *ctx);
  void *disconnect_ctx;
} fault_stream;

static atomic_ulong moves, fired_at; /* moves of the process; the move of the last fault */
static atomic_uint fired;            /* bit i: fault i of the specification */

coll_fault_counts coll_fault_seen(void) { return (coll_fault_counts){atomic_load(&moves), atomic_load(&fired_at)}; }

/* The fault that happens at move `now`; NULL: none. */
static const fault *due_at(const fault_stream *f, unsigned long now, bool is_commit)
{
  for (int i = 0; i < f->fault_count; i++) {
    const fault *one = &f->faults[i];
    bool of_commits = one->kind <= FAULT_STALL;
    if (now < one->at || (of_commits && !is_commit)) continue;
    if (atomic_fetch_or(&fired, 1u << i) >> i & 1) continue;
    atomic_store(&fired_at, now);
    return one;
  }
  return NULL;
}

/* Faults that do not change the bytes of a commit. */
static void strike(fault_stream *f, fault_kind kind)
{
  switch (kind) {
  case FAULT_STALL: f->stalled = true; return;
  case FAULT_DISCONNECT: f->disconnect(f->disconnect_ctx); return;
  case FAULT_STOP: kill(getpid(), SIGSTOP); return;
  case FAULT_KILL: kill(getpid(), SIGKILL); return;
  default: return;
  }
}

static fault_stream *outer(coll_stream *base) { return WEFT_CONTAINER_OF(base, fault_stream, base); }

/* Commits what is delayed when its time has come, or at once if `now`. */
static void release_held(fault_stream *f, bool now)
{
  f->base.unsent = f->until_ns || f->inner->unsent;
  if (!f->until_ns || (!now && weft_now_ns() < f->until_ns)) return;
  f->until_ns = 0;
  for (int c = 0; c < COLL_CHANNELS; c++) {
    if (f->held_bytes[c]) f->inner->ops->commit(f->inner, c, f->held_bytes[c]);
    f->held_bytes[c] = 0;
  }
}

static size_t fault_space(coll_stream *base, int channel, void **at)
{
  fault_stream *f = outer(base);

  release_held(f, false);
  if (f->stalled || f->until_ns) return 0;
  return f->inner->ops->space(f->inner, channel, at);
}

static void fault_commit(coll_stream *base, int channel, size_t bytes)
{
  fault_stream *f = outer(base);
  const fault *due = due_at(f, atomic_fetch_add(&moves, 1) + 1, true);
  void *at, *again;

  if (!due) {
    f->inner->ops->commit(f->inner, channel, bytes);
    f->base.unsent = f->inner->unsent;
    return;
  }
  f->inner->ops->space(f->inner, channel, &at); /* where the bytes were written */
  switch (due->kind) {
  case FAULT_DROP: return;
  case FAULT_DELAY:
    f->until_ns = weft_now_ns() + due->delay_ns;
    f->held_bytes[channel] = bytes;
    f->base.unsent = true;
    return;
  case FAULT_CORRUPT:
    for (int i = 0; i < 8; i++) ((unsigned char *)at)[i] ^= 0xff;
    break;
  case FAULT_DUPLICATE: {
    void *copy = malloc(bytes);
    if (copy) memcpy(copy, at, bytes);
    f->inner->ops->commit(f->inner, channel, bytes);
    if (copy && f->inner->ops->space(f->inner, channel, &again) >= bytes) {
      memcpy(again, copy, bytes);
      f->inner->ops->commit(f->inner, channel, bytes);
    }
    free(copy);
    return;
  }
  default: strike(f, due->kind);
  }
  if (!f->stalled) f->inner->ops->commit(f->inner, channel, bytes);
  f->base.unsent = f->inner->unsent;
}

static size_t fault_data(coll_stream *base, int channel, const void **at)
{
  return outer(base)->inner->ops->data(outer(base)->inner, channel, at);
}

static void fault_consume(coll_stream *base, int channel, size_t bytes)
{
  fault_stream *f = outer(base);
  const fault *due = due_at(f, atomic_fetch_add(&moves, 1) + 1, false);

  if (due) strike(f, due->kind);
  f->inner->ops->consume(f->inner, channel, bytes);
}

static size_t fault_bulk_least(coll_stream *base)
{
  coll_stream *inner = outer(base)->inner;
  return inner->ops->bulk_least ? inner->ops->bulk_least(inner) : SIZE_MAX;
}

/* Lending and borrowing count as moves without a commit. */
static void fault_lend(coll_stream *base, const void *data, size_t bytes)
{
  fault_stream *f = outer(base);
  const fault *due = due_at(f, atomic_fetch_add(&moves, 1) + 1, false);

  if (due) strike(f, due->kind);
  f->inner->ops->lend(f->inner, data, bytes);
}

static void fault_borrow(coll_stream *base, void *into, size_t bytes)
{
  fault_stream *f = outer(base);
  const fault *due = due_at(f, atomic_fetch_add(&moves, 1) + 1, false);

  if (due) strike(f, due->kind);
  f->inner->ops->borrow(f->inner, into, bytes);
}

static bool fault_lent(coll_stream *base) { return outer(base)->inner->ops->lent(outer(base)->inner); }
static bool fault_borrowed(coll_stream *base) { return outer(base)->inner->ops->borrowed(outer(base)->inner); }

static void fault_revoke(coll_stream *base)
{
  fault_stream *f = outer(base);

  if (f->inner->ops->revoke) f->inner->ops->revoke(f->inner);
}

static bool fault_arm(coll_stream *base)
{
  fault_stream *f = outer(base);

  release_held(f, false);
  return f->inner->ops->arm(f->inner) &&
         !f->until_ns; /* while a commit is delayed the progress thread must not sleep */
}

static bool fault_poll(coll_stream *base)
{
  fault_stream *f = outer(base);

  release_held(f, false);
  return f->inner->ops->poll ? f->inner->ops->poll(f->inner) : false;
}

static void fault_counts(coll_stream *base, coll_stream_counts *out)
{
  coll_stream *inner = outer(base)->inner;

  if (inner->ops->counts) inner->ops->counts(inner, out);
}

static weft_status *fault_health(coll_stream *base) { return outer(base)->inner->ops->health(outer(base)->inner); }

static void fault_close(coll_stream *base)
{
  fault_stream *f = outer(base);

  release_held(f, true);
  f->inner->unwanted = base->unwanted;
  f->inner->ops->close(f->inner);
  free(f);
}

static const coll_stream_ops fault_ops = {
  .name = "fault",
  .space = fault_space,
  .commit = fault_commit,
  .data = fault_data,
  .consume = fault_consume,
  .arm = fault_arm,
  .bulk_least = fault_bulk_least,
  .lend = fault_lend,
  .lent = fault_lent,
  .borrow = fault_borrow,
  .borrowed = fault_borrowed,
  .revoke = fault_revoke,
  .poll = fault_poll,
  .counts = fault_counts,
  .health = fault_health,
  .close = fault_close,
};

static weft_status *parse(const char *spec, fault_stream *f)
{
  for (const char *at = spec; *at;) {
    size_t name = strcspn(at, "@"), kind = 0;
    char *end;
    while (kind < WEFT_COUNT(kind_names) &&
           (strlen(kind_names[kind]) != name || memcmp(kind_names[kind], at, name) != 0))
      kind++;
    if (at[name] != '@' || kind == WEFT_COUNT(kind_names) || f->fault_count == MOST_FAULTS)
      return WEFT_ERR(INVALID_ARGUMENT, "faults \"%s\": expected what@n[=ms] at \"%s\"", spec, at);
    fault *one = &f->faults[f->fault_count++];
    *one = (fault){.kind = (fault_kind)kind, .at = strtoul(at + name + 1, &end, 10)};
    if (*end == '=') one->delay_ns = (int64_t)strtoul(end + 1, &end, 10) * WEFT_NS_PER_MS;
    if ((*end && *end != ',') || one->at == 0)
      return WEFT_ERR(INVALID_ARGUMENT, "faults \"%s\": expected what@n[=ms] at \"%s\"", spec, at);
    at = *end ? end + 1 : end;
  }
  return NULL;
}

weft_status *coll_fault_new(coll_stream *inner, const char *spec, void (*disconnect)(void *ctx), void *ctx,
                            coll_stream **out_stream)
{
  fault_stream *f = calloc(1, sizeof *f);
  weft_status *st = f ? parse(spec, f) : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  if (st) {
    inner->ops->close(inner);
    free(f);
    return st;
  }
  f->base = (coll_stream){.ops = &fault_ops, .ring = inner->ring, .ring_ctx = inner->ring_ctx};
  f->inner = inner;
  f->disconnect = disconnect;
  f->disconnect_ctx = ctx;
  *out_stream = &f->base;
  return NULL;
}
