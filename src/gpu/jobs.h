/* gpu/jobs.h -- operations of this platform's communicators: their memory, lists of them, and the thread that reports
 * their ends to their groups.
 *
 * Groups then call back and may destroy communicators, which waits for the threads of these; so no thread of a
 * communicator does this. */
#ifndef WEFT_GPU_JOBS_H
#define WEFT_GPU_JOBS_H

#include "collective/communicator.h"
#include "gpu/gpu_internal.h"

typedef struct gpu_job gpu_job;
typedef struct gpu_job_pool gpu_job_pool;

/* An operation of a rank; the first member of a communicator's own struct. */
struct gpu_job {
  gpu_job *next;
  gpu_job_pool *pool;      /* where its memory goes back to */
  coll_posting posting;
  weft_stream_call call;
  weft_status *error;      /* of queueing it, or of the stream; owned */
  void *staged;            /* device memory that is freed when the stream has done the operation; NULL: none */
  bool reserved;           /* of the pool's reserve, not malloc'd */
};

typedef struct gpu_jobs { gpu_job *first, **last; } gpu_jobs;

static inline void gpu_jobs_init(gpu_jobs *list) { *list = (gpu_jobs){.last = &list->first}; }
void gpu_jobs_push(gpu_jobs *list, gpu_job *job);
gpu_job *gpu_jobs_pop(gpu_jobs *list);     /* NULL: none */
gpu_job *gpu_jobs_pop_all(gpu_jobs *list); /* linked by `next`; NULL: none */

/* The memory of a rank's jobs: malloc'd, and where there is none, of a reserve.  Thread-safe; its lock is a leaf. */
struct gpu_job_pool {
  weft_mutex mu;
  size_t job_bytes;
  void *reserve;
  gpu_job *spare WEFT_GUARDED_BY(mu);
};

WEFT_NODISCARD weft_status *gpu_job_pool_init(gpu_job_pool *pool, size_t job_bytes);
void gpu_job_pool_fini(gpu_job_pool *pool); /* `pool` is zeroed or initialised, and has all its jobs back */
gpu_job *gpu_job_new(gpu_job_pool *pool, const coll_posting *posting); /* zeroed but for these; NULL: no memory */

/* Work queued on `stream` from now on waits for the work that comes before the operation. */
WEFT_NODISCARD weft_status *gpu_await_input(weft_stream *stream, const coll_posting *posting);

/* Frees what was staged.  The caller has entered the device. */
void gpu_job_free_staged(gpu_job *job);

typedef struct gpu_ender gpu_ender;
WEFT_NODISCARD weft_status *gpu_ender_new(const weft_platform *platform, gpu_ender **out_ender);
void gpu_ender_free(gpu_ender *ender); /* there are no communicators any more; NULL is fine */

/* The job has ended: its memory goes back, and then its group hears of the end. */
void gpu_ender_take(gpu_ender *ender, gpu_job *job);

/* Whether an operand overlaps its result so that the result's bytes may be written while the operand's are still
 * needed: it must be copied first.  *out_bytes: of the operand. */
bool gpu_operand_is_in_the_way(const struct coll_problem *problem, const void *send, const void *recv,
                               int64_t *out_bytes);

/* Waits for the end of a thread.  A thread that calls a library which does not return must not keep the caller.
 * False: the thread is left to itself, with all that it uses, and the log says so. */
bool gpu_join(pthread_t thread, weft_deadline deadline, const char *what);

#endif
