/* tests/collective/fake.h -- a communicator of a platform that does not exist: it queues operations and ends them
 * from a thread of its own.
 *
 * It knows all-reduces of f32 sums.  The communicators of a test, which may stand for several processes, share one
 * queue, as devices share a link.  What they do wrong is set before they are made. */
#ifndef WEFT_TESTS_COLLECTIVE_FAKE_H
#define WEFT_TESTS_COLLECTIVE_FAKE_H

#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "collective/communicator.h"
#include "collective/host/schedule.h"

enum { FAKE_MOST = 64, FAKE_STREAM_MARK = 77 };

/* How the fakes behave, and what has been seen of them. */
static struct fake_world {
  pthread_mutex_t mu;
  int fails_at;          /* the n-th operation posted, from 1, ends with INTERNAL; 0: none does */
  bool never_ends;       /* operations end by an abort only */
  bool only_first_ends;  /* with never_ends: but rank 0's end at once */
  bool refuses;          /* create fails */
  atomic_int made, destroyed, posted, ended, aborted, streamed;
  coll_posting queue[FAKE_MOST];
  struct fake *owners[FAKE_MOST];
  bool failing[FAKE_MOST];
  int count, size;
} fakes = {.mu = PTHREAD_MUTEX_INITIALIZER};

typedef struct fake {
  coll_communicator base;
  pthread_t thread;
  atomic_bool stop, abort;
} fake;

static void fake_take_locked(int i)
{
  fakes.count--;
  for (; i < fakes.count; i++) {
    fakes.queue[i] = fakes.queue[i + 1];
    fakes.owners[i] = fakes.owners[i + 1];
    fakes.failing[i] = fakes.failing[i + 1];
  }
}

/* The sum over all ranks, when all are here: to each, as one device would do it for all. */
static bool fake_reduce_locked(uint64_t seq)
{
  const coll_posting *of[16] = {NULL};
  int here = 0;

  for (int i = 0; i < fakes.count; i++)
    if (fakes.queue[i].seq == seq && fakes.queue[i].args->kind == WEFT_ALL_REDUCE && !fakes.failing[i])
      of[here++] = &fakes.queue[i];
  if (here < fakes.size) return false;
  for (size_t e = 0; e < of[0]->args->count; e++) {
    float sum = 0;
    for (int r = 0; r < here; r++) sum += ((const float *)of[r]->args->send)[e];
    for (int r = 0; r < here; r++) ((float *)of[r]->args->recv)[e] = sum;
  }
  return true;
}

/* The operations of `f` that can end now, with their results. */
static int fake_collect_locked(fake *f, coll_op **ops, weft_status **errors)
{
  int n = 0;

  for (int i = 0; i < fakes.count; i++)
    if (fakes.queue[i].seq != UINT64_MAX && !fakes.never_ends && fake_reduce_locked(fakes.queue[i].seq)) {
      uint64_t seq = fakes.queue[i].seq;
      for (int k = 0; k < fakes.count; k++)
        if (fakes.queue[k].seq == seq) fakes.queue[k].seq = UINT64_MAX; /* its result is there: its owner ends it */
    }
  for (int i = 0; i < fakes.count;) {
    bool failing = fakes.failing[i], done = fakes.queue[i].seq == UINT64_MAX;
    done |= fakes.only_first_ends && fakes.queue[i].rank == 0;
    if (fakes.owners[i] != f || !(done || failing || f->abort)) {
      i++;
      continue;
    }
    ops[n] = fakes.queue[i].op;
    errors[n++] = done      ? NULL
                  : failing ? WEFT_ERR(INTERNAL, "the device fell off the bus")
                            : WEFT_ERR(ABORTED, "aborted");
    fake_take_locked(i);
  }
  return n;
}

static void *fake_run(void *arg)
{
  fake *f = arg;

  while (!f->stop) {
    coll_op *ops[FAKE_MOST];
    weft_status *errors[FAKE_MOST];
    pthread_mutex_lock(&fakes.mu);
    int n = fake_collect_locked(f, ops, errors);
    pthread_mutex_unlock(&fakes.mu);
    for (int i = 0; i < n; i++) {
      fakes.ended++;
      coll_communicator_ended(ops[i], errors[i]);
    }
    if (!n) usleep(200);
  }
  return NULL;
}

static const coll_communicator_ops fake_ops;

static weft_status *fake_create(void *ctx, const weft_comm_spec *spec, coll_communicator **out)
{
  fake *f = calloc(1, sizeof *f);

  (void)ctx;
  WEFT_TRY_ALLOC(f);
  if (fakes.refuses) {
    free(f);
    return WEFT_ERR(UNAVAILABLE, "no device answers");
  }
  pthread_mutex_lock(&fakes.mu);
  fakes.size = spec->size;
  pthread_mutex_unlock(&fakes.mu);
  f->base.ops = &fake_ops;
  fakes.made++;
  pthread_create(&f->thread, NULL, fake_run, f);
  *out = &f->base;
  return NULL;
}

static void fake_post(coll_communicator *c, const coll_posting *posting)
{
  pthread_mutex_lock(&fakes.mu);
  int number = ++fakes.posted;
  fakes.streamed += posting->stream == (void *)(intptr_t)FAKE_STREAM_MARK;
  fakes.failing[fakes.count] = number == fakes.fails_at;
  fakes.owners[fakes.count] = (fake *)c;
  fakes.queue[fakes.count++] = *posting;
  pthread_mutex_unlock(&fakes.mu);
}

static void fake_abort(coll_communicator *c, const weft_status *why)
{
  (void)why;
  fakes.aborted++;
  ((fake *)c)->abort = true;
}

static void fake_describe(const coll_communicator *c, char *out, size_t size)
{
  (void)c;
  pthread_mutex_lock(&fakes.mu);
  snprintf(out, size, "%d operations queued", fakes.count);
  pthread_mutex_unlock(&fakes.mu);
}

static void fake_destroy(coll_communicator *c)
{
  fake *f = (fake *)c;

  f->stop = true;
  pthread_join(f->thread, NULL);
  fakes.destroyed++;
  free(f);
}

static const coll_communicator_ops fake_ops = {
  .name = "fake", .create = fake_create, .post = fake_post, .abort = fake_abort, .describe = fake_describe, .destroy = fake_destroy,
};

static WEFT_UNUSED void fake_reset(void)
{
  pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
  memset(&fakes, 0, sizeof fakes);
  fakes.mu = mu;
}

#endif
