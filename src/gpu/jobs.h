/* gpu/jobs.h -- operations of this platform's communicators: their memory, lists of them, and the thread that reports
 * their ends to their groups.
 *
 * A group that gets such a report may destroy communicators, and that waits for the communicators' threads; so no
 * thread of a communicator makes the report. */
#ifndef WEFT_GPU_JOBS_H
#define WEFT_GPU_JOBS_H

#include "collective/communicator.h"
#include "gpu/gpu_internal.h"

typedef struct gpu_job gpu_job;
typedef struct gpu_job_pool gpu_job_pool;

/* An operation of a rank; the first member of a communicator's own struct. */
struct gpu_job {
  gpu_job *next;
  gpu_job_pool *pool;      /* the pool of the job's memory */
  coll_posting posting;
  weft_stream_call call;
  weft_status *error;      /* error of queueing the operation, or of the stream; owned */
  void *staged;            /* device memory that is freed when the stream has done the operation; NULL: none */
  bool reserved;           /* the memory is the pool's reserve, not malloc'd */
};

typedef struct gpu_jobs { gpu_job *first, **last; } gpu_jobs;

static inline void gpu_jobs_init(gpu_jobs *list) { *list = (gpu_jobs){.last = &list->first}; }
void gpu_jobs_push(gpu_jobs *list, gpu_job *job);
gpu_job *gpu_jobs_pop(gpu_jobs *list);     /* NULL: none */
gpu_job *gpu_jobs_pop_all(gpu_jobs *list); /* linked by `next`; NULL: none */

/* The memory of a rank's jobs: from malloc, or, if malloc fails, from a reserve.  Thread-safe; its lock is a leaf. */
struct gpu_job_pool {
  weft_mutex mu;
  size_t job_bytes;
  void *reserve;
  gpu_job *spare WEFT_GUARDED_BY(mu);
};

WEFT_NODISCARD weft_status *gpu_job_pool_init(gpu_job_pool *pool, size_t job_bytes);
void gpu_job_pool_fini(gpu_job_pool *pool); /* `pool` is zeroed or initialised, and has all its jobs back */
/* zeroed except `pool` and `posting`; NULL: no memory */
gpu_job *gpu_job_new(gpu_job_pool *pool, const coll_posting *posting);

/* Work queued on `stream` from now on waits for the work that comes before the operation. */
WEFT_NODISCARD weft_status *gpu_await_input(weft_stream *stream, const coll_posting *posting);

/* What profiles show of the operation, on the device of that ordinal. */
rt_trace_step gpu_job_trace(const gpu_job *job, int ordinal);

/* Frees what was staged.  The caller has entered the device. */
void gpu_job_free_staged(gpu_job *job);

typedef struct gpu_ender gpu_ender;
WEFT_NODISCARD weft_status *gpu_ender_new(const weft_platform *platform, gpu_ender **out_ender);
void gpu_ender_free(gpu_ender *ender); /* all communicators must have been destroyed; NULL is fine */

/* The job has ended: gives its memory back, and then reports the end to its group. */
void gpu_ender_take(gpu_ender *ender, gpu_job *job);

/* Whether an operand overlaps its result so that bytes of the result may be written while those of the operand are
 * still needed.  Such an operand must be copied first.  *out_bytes: of the operand. */
bool gpu_operand_is_in_the_way(const struct coll_problem *problem, const void *send, const void *recv,
                               int64_t *out_bytes);

/* Waits for the end of a thread.  A thread in a call of a library that does not return must not block the caller.
 * False: the thread had not ended at the deadline.  It goes on, what it uses is not freed, and the log says so. */
bool gpu_join(pthread_t thread, weft_deadline deadline, const char *what);

#endif
