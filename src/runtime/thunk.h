/* runtime/thunk.h -- a thunk: one step of a compiled program, as the executor sees it.
 *
 * A thunk is immutable once its program is built and runs on any thread, for several runs at once; what
 * changes in a run is in rt_ctx.  It says which bytes it reads and writes (`uses`); the executor derives
 * from that alone what may run at the same time, and resolves the pointers before the run: rt_args(thunk,
 * ctx)[i] is where uses[i] is in this run.
 *
 * To write one: embed rt_thunk as first member, allocate in the program's arena, fill ops, name, uses, cost:
 *
 *   typedef struct cpu_sort_thunk { rt_thunk base; int64_t rows, columns; } cpu_sort_thunk;
 *   static weft_status *cpu_sort_run(const rt_thunk *thunk, rt_ctx *ctx)
 *   {
 *     const cpu_sort_thunk *t = (const cpu_sort_thunk *)thunk;
 *     void *const *args = rt_args(thunk, ctx);   // operands' leaves, then results' leaves, then scratch if asked for
 *     rt_parallel_for(ctx->pool, t->rows, sort_row, &(sort_job){t, args});
 *     return NULL;
 *   }
 *   static const rt_thunk_ops cpu_sort_ops = {.size = sizeof(rt_thunk_ops), .kind = "sort", .run = cpu_sort_run};
 */
#ifndef WEFT_RUNTIME_THUNK_H
#define WEFT_RUNTIME_THUNK_H

#include "base/status.h"
#include "buffer/plan.h"
#include "runtime/packed.h"
#include "runtime/pool.h"

typedef struct rt_thunk rt_thunk;
typedef struct rt_ctx rt_ctx;

typedef enum rt_access { RT_READ = 1, RT_WRITE = 2, RT_UPDATE = RT_READ | RT_WRITE } rt_access;

typedef struct rt_use {
  buf_slice slice; /* alloc -1 (a token): the argument pointer is NULL */
  rt_access access;
} rt_use;

typedef struct rt_thunk_ops {
  size_t size;      /* sizeof this struct */
  const char *kind; /* "kernel", "dot": static, for traces and dumps */
  /* Exactly one of the four functions `run`, `start`, `enqueue` and `control` is there. `run` returns when the work
   * is done; it may use rt_parallel_for and must not block on anything but local computation. `start` begins work
   * that ends elsewhere: the code that ends it calls rt_thunk_done(thunk, ctx, st) exactly once, on any thread,
   * before or after `start` has returned. If `start` itself returns an error, rt_thunk_done must not be called. */
  weft_status *(*run)(const rt_thunk *thunk, rt_ctx *ctx);
  weft_status *(*start)(const rt_thunk *thunk, rt_ctx *ctx);
  /* For devices with streams. When `enqueue` returns, the work is on the device's compute stream, behind the work that
   * was queued earlier. An error that appears later is reported by rt_thunk_fault. */
  weft_status *(*enqueue)(const rt_thunk *thunk, rt_ctx *ctx);
  /* Control flow, which the executor itself implements. Returns true when it is done, with its error in *out. */
  bool (*control)(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out);
  void (*destroy)(rt_thunk *thunk); /* optional: frees what lies outside the arena */
  /* of `start`: the work has mostly ended when `start` returns, so that other steps need not run beside it */
  bool ends_soon;
  /* of `enqueue`, and of communication with `start`: a bit that names the kind of step to rt_stretcher; 0: part of no
   * stretch */
  unsigned stretch;
} rt_thunk_ops;

struct rt_thunk {
  const rt_thunk_ops *ops;
  const char *name;    /* name of the instruction, borrowed from the module or the arena */
  const char *detail;  /* a few words for traces and dumps, or NULL */
  int use_count;
  rt_use *uses;
  double cost_ns;      /* estimate on one thread; 0: unknown, taken as small */
  bool splits;         /* run uses rt_parallel_for: its time shrinks with threads */
  int order_group;     /* thunks of one group > 0 (collectives) start in program order, without waiting for each other's
                        * end (control flow of a group ends before the next starts); 0: none; small numbers */
  /* `run` and `start` work on host memory. On a device with streams whose memory the host cannot use, the executor
   * gives the step copies of its arguments there, and writes its results back when it has ended. */
  bool wants_host_memory;
  /* `run` can read a packed form of uses[packed_use] (packed.h): rt_packed_form. NULL: `run` reads all operands
   * themselves. */
  const struct rt_packing *packing;
  int packed_use;
  int64_t packed_offset; /* what is packed begins so many bytes after the beginning of that operand */
  int seq_count;       /* control flow: the sequences it runs */
  struct rt_seq *const *seqs;
  /* set by the program: */
  /* `ops` as the thunk's maker set it; `ops` itself may be a wrapper that waits for the stream first (rt_make_late) */
  const rt_thunk_ops *own_ops;
  int first_arg;       /* index of uses[0]'s pointer in rt_ctx.args */
  int packed_slot;     /* index in rt_ctx.packed; 0: none */
  int index;           /* of its rt_ctx.states; -1: it has neither `start` nor `control` */
  struct rt_seq *parent;
  int node;            /* its place in parent */
};

/* Per thunk and run, for asynchronous thunks: zeroed before each run. */
typedef union rt_thunk_state {
  struct { void *a, *b; int64_t n; } words;
  char bytes[128];
} rt_thunk_state;

/* Where a run happens, and for which launch: constant during the run. */
typedef struct rt_run_info {
  struct weft_device *device;       /* NULL where a program runs without one (tests) */
  int device_ordinal;               /* local */
  int64_t device_id;                /* global */
  int64_t replica_id, partition_id;
  int64_t launch_id;                /* the same on every device of one launch */
  int64_t program_id;               /* number of the executable in this process: 1, 2, ...; 0: it has none */
  int64_t run_id;                   /* number of the launch in this process, for traces; 0: nothing is recorded */
  struct weft_comm *const *comms;   /* by grouping of the program: this device's communicators */
  /* by grouping: number of this launch among the program's launches over that communicator */
  const uint64_t *comm_launches;
  int64_t collective_timeout_ns, collective_warn_ns; /* 0: the communicator's */
  void *user;                       /* the launch's context (FFI user data), or NULL */
  struct rt_lender *lender;         /* for host callbacks, or NULL: see weft_launch */
} rt_run_info;

/* One run of a program on one device. */
struct rt_ctx {
  void **args;                      /* pointers of all uses of all thunks */
  const rt_form *packed;            /* packed forms in this run; NULL: there are none */
  rt_pool *pool;
  const rt_run_info *info;
  rt_thunk_state *states;           /* by rt_thunk.index */
};

static inline void *const *rt_args(const rt_thunk *thunk, const rt_ctx *ctx) { return ctx->args + thunk->first_arg; }

/* The packed form of uses[thunk->packed_use] in this run; NULL: the thunk reads the operand itself. */
static inline const rt_form *rt_packed_form(const rt_thunk *thunk, const rt_ctx *ctx)
{
  const rt_form *form = ctx->packed ? &ctx->packed[thunk->packed_slot] : NULL;
  return form && form->data ? form : NULL;
}

/* Ends an asynchronous thunk.  Takes `st`. */
void rt_thunk_done(const rt_thunk *thunk, rt_ctx *ctx, weft_status *st);

/* Reports that work which a thunk has queued could not be done. Takes `st`; the first fault of a run becomes the run's
 * error. The stream continues with later runs. Work that this run has queued after the fault may be skipped
 * (rt_has_fault). On any thread, before the stream has done all that the run queued. */
void rt_thunk_fault(const rt_thunk *thunk, rt_ctx *ctx, weft_status *st);
bool rt_has_fault(const rt_ctx *ctx);

#endif
