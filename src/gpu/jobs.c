/* gpu/jobs.c -- operations of this platform's communicators (jobs.h). */
#include <config.h>

#include "gpu/jobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "collective/host/schedule.h"

enum { RESERVED = 16 };

void gpu_jobs_push(gpu_jobs *list, gpu_job *job)
{
  job->next = NULL;
  *list->last = job;
  list->last = &job->next;
}

gpu_job *gpu_jobs_pop_all(gpu_jobs *list)
{
  gpu_job *first = list->first;
  gpu_jobs_init(list);
  return first;
}

gpu_job *gpu_jobs_pop(gpu_jobs *list)
{
  gpu_job *job = list->first;
  if (!job) return NULL;
  list->first = job->next;
  if (!list->first) list->last = &list->first;
  return job;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

weft_status *gpu_job_pool_init(gpu_job_pool *pool, size_t job_bytes) WEFT_UNSHARED
{
  *pool = (gpu_job_pool){.job_bytes = job_bytes};
  weft_mutex_init(&pool->mu);
  pool->reserve = calloc(RESERVED, job_bytes);
  WEFT_TRY_ALLOC(pool->reserve);
  for (size_t i = 0; i < RESERVED; i++) {
    gpu_job *job = (gpu_job *)(void *)((char *)pool->reserve + i * job_bytes);
    job->next = pool->spare;
    pool->spare = job;
  }
  return NULL;
}

void gpu_job_pool_fini(gpu_job_pool *pool)
{
  if (!pool->job_bytes) return;
  free(pool->reserve);
  weft_mutex_fini(&pool->mu);
}

gpu_job *gpu_job_new(gpu_job_pool *pool, const coll_posting *posting)
{
  gpu_job *job = calloc(1, pool->job_bytes);

  if (!job) {
    weft_mutex_lock(&pool->mu);
    job = pool->spare;
    if (job) pool->spare = job->next;
    weft_mutex_unlock(&pool->mu);
    if (!job) return NULL;
    memset(job, 0, pool->job_bytes);
    job->reserved = true;
  }
  job->pool = pool;
  job->posting = *posting;
  return job;
}

static void give_back(gpu_job *job)
{
  gpu_job_pool *pool = job->pool;

  if (!job->reserved) {
    free(job);
    return;
  }
  weft_mutex_lock(&pool->mu);
  job->next = pool->spare;
  pool->spare = job;
  weft_mutex_unlock(&pool->mu);
}

weft_status *gpu_await_input(weft_stream *stream, const coll_posting *posting)
{
  weft_stream *before = posting->stream;
  uint64_t point = before && !posting->stream_point ? gpu_stream_record(before) : posting->stream_point;

  return before && point ? gpu_stream_wait(stream, before, point) : NULL; /* 0: `before` is broken */
}

rt_trace_step gpu_job_trace(const gpu_job *job, int ordinal)
{
  const coll_posting *posting = &job->posting;

  return (rt_trace_step){.kind = "collective",
                         .name = posting->name ? posting->name : weft_coll_kind_name(posting->args->kind),
                         .device = ordinal,
                         .program = posting->program,
                         .run = posting->run,
                         .aside = true};
}

void gpu_job_free_staged(gpu_job *job)
{
  if (job->staged) gpu_cu.cuMemFree((wcu_ptr)(uintptr_t)job->staged);
  job->staged = NULL;
}

/* ---- the ender -------------------------------------------------------------------------------------------------- */

struct gpu_ender {
  const weft_platform *platform;
  pthread_t thread;
  weft_mutex mu;
  weft_cond wake;
  gpu_jobs done WEFT_GUARDED_BY(mu);
  bool stop WEFT_GUARDED_BY(mu);
};

/* The job of an operation that has ended is given back before the operation's owner is notified, because the owner may
 * then destroy the rank. */
static void end(gpu_job *job)
{
  coll_op *op = job->posting.op;
  weft_status *st = WEFT_MOVE(job->error);

  give_back(job);
  coll_communicator_ended(op, st);
}

static void *ender_run(void *arg)
{
  gpu_ender *e = arg;
  bool stop = false;

  rt_platform_own_thread(e->platform);
  gpu_numa_bind(((const gpu_platform *)e->platform)->node);
  while (!stop) {
    weft_mutex_lock(&e->mu);
    while (!e->done.first && !e->stop) weft_cond_wait(&e->wake, &e->mu, WEFT_NO_DEADLINE);
    gpu_job *job = gpu_jobs_pop_all(&e->done), *next;
    stop = e->stop && !job;
    weft_mutex_unlock(&e->mu);
    for (; job; job = next) {
      next = job->next;
      end(job);
    }
  }
  return NULL;
}

weft_status *gpu_ender_new(const weft_platform *platform, gpu_ender **out_ender) WEFT_UNSHARED
{
  gpu_ender *e = calloc(1, sizeof *e);

  *out_ender = NULL;
  WEFT_TRY_ALLOC(e);
  e->platform = platform;
  gpu_jobs_init(&e->done);
  weft_mutex_init(&e->mu);
  weft_cond_init(&e->wake);
  weft_status *st = weft_thread_start(&e->thread, "weft-gpu-end", ender_run, e);
  if (st) {
    weft_cond_fini(&e->wake);
    weft_mutex_fini(&e->mu);
    free(e);
    return st;
  }
  *out_ender = e;
  return NULL;
}

void gpu_ender_free(gpu_ender *e)
{
  if (!e) return;
  weft_mutex_lock(&e->mu);
  e->stop = true;
  weft_cond_signal(&e->wake);
  weft_mutex_unlock(&e->mu);
  pthread_join(e->thread, NULL);
  weft_cond_fini(&e->wake);
  weft_mutex_fini(&e->mu);
  free(e);
}

void gpu_ender_take(gpu_ender *e, gpu_job *job)
{
  weft_mutex_lock(&e->mu);
  gpu_jobs_push(&e->done, job);
  weft_cond_signal(&e->wake);
  weft_mutex_unlock(&e->mu);
}

/* ---- operands --------------------------------------------------------------------------------------------------- */

/* How many blocks of problem->bytes an operand and a result have. */
static int64_t operand_blocks(const coll_problem *p)
{
  return p->kind == WEFT_ALL_TO_ALL || p->kind == WEFT_REDUCE_SCATTER ? p->size : 1;
}
static int64_t result_blocks(const coll_problem *p)
{
  return p->kind == WEFT_ALL_TO_ALL || p->kind == WEFT_ALL_GATHER ? p->size : 1;
}

bool gpu_operand_is_in_the_way(const coll_problem *p, const void *send, const void *recv, int64_t *out_bytes)
{
  int64_t in = operand_blocks(p) * p->bytes, out = result_blocks(p) * p->bytes, own = (int64_t)p->rank * p->bytes;
  const char *from = send, *to = recv;

  if (p->kind == WEFT_RAGGED_ALL_TO_ALL) {
    in = coll_problem_in_bytes(p);
    out = p->bytes;
  }
  if (p->prefix) { /* a reduce-scatter of unequal blocks */
    in = p->prefix[p->size];
    own = p->prefix[p->rank];
    out = p->prefix[p->rank + 1] - own;
  }
  *out_bytes = in;
  if (!from || !to || !in || !out || from + in <= to || to + out <= from) return false;
  switch (p->kind) {
  case WEFT_ALL_REDUCE: case WEFT_REDUCE: case WEFT_BROADCAST: return from != to;
  case WEFT_ALL_GATHER: return from != to + own;
  case WEFT_REDUCE_SCATTER: return to != from + own;
  default: return true;
  }
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* ThreadSanitizer does not know pthread_clockjoin_np: it would take what the thread did for unordered with what comes
 * after the join. */
static int join_until(pthread_t thread, weft_deadline deadline)
{
#ifdef WEFT_HAS_TSAN
  int64_t left_ns = WEFT_MAX(deadline.at_ns - weft_now_ns(), 0);
  struct timespec until;

  clock_gettime(CLOCK_REALTIME, &until);
  left_ns += until.tv_nsec;
  until.tv_sec += left_ns / WEFT_NS_PER_S;
  until.tv_nsec = left_ns % WEFT_NS_PER_S;
  return pthread_timedjoin_np(thread, NULL, &until);
#else
  struct timespec until = weft_deadline_timespec(deadline);

  return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until);
#endif
}

bool gpu_join(pthread_t thread, weft_deadline deadline, const char *what)
{
  if (join_until(thread, deadline) != ETIMEDOUT) return true;
  pthread_detach(thread);
  WEFT_LOG("gpu", ERROR,
           "%s: a thread is still in a call of a library; it is not waited for, and its memory stays in use", what);
  return false;
}
