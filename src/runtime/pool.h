/* runtime/pool.h -- the worker threads of a process's devices.
 *
 * All devices share one pool. A worker never waits for other workers to join: a worker that starts a loop takes part
 * in it, and the loop ends even if no other worker ever joins, so nested loops cannot deadlock. A task must not
 * block on a remote party. */
#ifndef WEFT_RUNTIME_POOL_H
#define WEFT_RUNTIME_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct rt_pool rt_pool;

typedef struct rt_pool_options {
  int threads;         /* threads that compute at the same time in one run; at least 1 */
  /* The NUMA node of each worker, an index from 0 that never goes down from one worker to the next. NULL: there is one
   * node. Read by rt_pool_new only. */
  const int *nodes;
  int node_count;
  /* How long a worker leaves a job to the workers of the job's node, if one of them has nothing to do. 0: it takes the
   * job. */
  int64_t node_patience_ns;
  /* The node on which the calling thread, which is no worker, runs at the moment. Optional. */
  int (*node_here)(void *ctx);
  bool counts;         /* count what rt_pool_counts_of gives */
  /* Optional: called on each worker as it starts (pinning, NUMA policy).  `index` is 1 or more. */
  void (*on_start)(void *ctx, int index);
  void *ctx;
} rt_pool_options;

/* Starts `threads` workers. Runs happen on them, while the thread that launched the runs does something else. */
WEFT_NODISCARD weft_status *rt_pool_new(const rt_pool_options *options, rt_pool **out_pool);
void rt_pool_free(rt_pool *pool); /* joins the workers; nothing may be queued or running */
WEFT_DEFINE_AUTO(rt_pool, rt_pool_free)

int rt_pool_threads(const rt_pool *pool);
int rt_pool_node(const rt_pool *pool); /* the node of the calling thread; 0 for a pool of one node, or NULL */

/* Copies `bytes` bytes in pieces of `piece` bytes, which the threads of the pool share. `piece` is at least 1. */
void rt_parallel_copy(rt_pool *pool, void *to, const void *from, int64_t bytes, int64_t piece);

/* What loops have cost since the pool began, for measurements. */
typedef struct rt_pool_counts {
  int64_t joins;  /* helpers that joined a loop */
  int64_t wakes;  /* workers that were woken */
  int64_t locks;  /* times that the pool's lock was taken */
  int64_t shared; /* atomic changes of lines that all threads share: not those of shares, which threads own */
} rt_pool_counts;
rt_pool_counts rt_pool_counts_of(const rt_pool *pool);
bool rt_pool_is_worker(const rt_pool *pool);           /* true if the calling thread is one of the pool's */
const atomic_int *rt_pool_wanted(const rt_pool *pool); /* workers asked for that have not joined yet */

/* Runs fn(ctx, i) for each i in [0, count), in any order, on the caller and on idle workers; returns when all are
 * done. Which thread runs what varies: results must not depend on it.  Allocates nothing.  `pool` NULL: on the
 * caller. */
void rt_parallel_for(rt_pool *pool, int64_t count, void (*fn)(void *ctx, int64_t index), void *ctx);

/* Work that several workers may join. The struct is the owner's memory: set `run`, zero the rest. The pool does not
 * touch a job any more once it has called `run` for the last worker wanted. */
typedef struct rt_job {
  void (*run)(struct rt_job *job); /* called by each worker that joins, concurrently */
  struct rt_job *prev, *next;      /* used by the pool, under its lock */
  int wanted;                      /* workers still to join; linked while > 0 */
  int node;                        /* the node whose workers are woken first, if some sleep there */
} rt_job;

/* Asks for `count` more workers to join `job`: each calls `run` once, unless rt_pool_withdraw comes first.
 * Thread-safe; runs nothing on the caller. */
void rt_pool_offer(rt_pool *pool, rt_job *job, int count);
/* Withdraws the requests that no worker has taken up yet, and returns their number: for these, `run` will not be
 * called. */
int rt_pool_withdraw(rt_pool *pool, rt_job *job);

/* At least `bytes` of memory of the calling thread, 64-byte aligned, valid until the thread's next call of this
 * function or its end. The memory is kept and reused, so that a steady state allocates nothing. NULL without memory.
 * Contents are undefined. */
void *rt_thread_scratch(int64_t bytes);
/* The same for a task of a parallel loop. Without memory it sets *failed, which all tasks may write; the caller reads
 * it after the loop has ended. */
void *rt_task_scratch(int64_t bytes, atomic_bool *failed);

#endif
