/* runtime/program_internal.h -- what the builder (program.c) prepares for the executor (executor.c). */
#ifndef WEFT_RUNTIME_PROGRAM_INTERNAL_H
#define WEFT_RUNTIME_PROGRAM_INTERNAL_H

#include <stdatomic.h>

#include "base/thread.h"
#include "runtime/program.h"
#include "runtime/stream.h"

/* One thunk in its sequence's graph. */
typedef struct rt_node {
  int successor_begin, successor_count; /* in rt_seq.successors: the thunks that wait for this thunk's end */
  int started_begin, started_count;     /* likewise: the thunks that wait for its start only (order groups) */
  int waits;                            /* the number of ends and starts that this thunk waits for */
  double priority;                      /* longest path from here to the end, ns */
} rt_node;

struct rt_seq {
  const char *name;
  int count, index; /* index: of its rt_seq_run in a frame */
  rt_thunk **thunks;
  int edge_count;
  const int (*edges)[2];
  bool in_order;    /* the thunks run one after the other on one thread; the graph is only printed */
  rt_node *nodes;
  int *successors;
  double total_ns, span_ns; /* of all thunks; of the longest path */
  int kept_edges;
  const rt_thunk *owner;    /* the control thunk that runs it; NULL: the root */
};

/* Pointers to fill in: args[arg] = base[alloc] + offset. */
typedef struct rt_patch { int arg, alloc; int64_t offset; } rt_patch;

/* One sequence in one run. */
typedef struct rt_seq_run {
  rt_job job;               /* first: workers that join call join_in */
  const rt_seq *seq;
  rt_frame *frame;
  int next;                 /* in order: the thunk that runs, or that ends elsewhere */
  atomic_int helpers;       /* workers asked for that have not left yet */
  weft_mutex mu;
  int left WEFT_GUARDED_BY(mu);        /* nodes not done */
  int ready_count WEFT_GUARDED_BY(mu); /* nodes in `ready` */
  int working WEFT_GUARDED_BY(mu);     /* threads inside drain */
  int *waits;               /* by node */
  int *ready;               /* a heap by priority */
  weft_status *error WEFT_GUARDED_BY(mu); /* the first error; thunks that have not begun are then skipped */
} rt_seq_run;

/* A thunk in one run that may end elsewhere: one with `start`, or control flow. */
typedef struct rt_async {
  _Atomic int phase;        /* enum rt_phase */
  weft_status *st;          /* written before phase becomes RT_ENDED */
  union { bool pred; int32_t branch; } flag; /* of control flow: what rt_read_flag has read */
  rt_frame *frame;          /* while the step waits for a stream: its frame and its thunk, with which it continues */
  const rt_thunk *thunk;
  rt_after after;
  struct rt_host_copies *copies; /* of a running step that needs host memory; else NULL */
} rt_async;
enum rt_phase { RT_STARTING, RT_LEFT, RT_ENDED };

struct rt_frame {
  rt_ctx ctx;               /* first: thunks get a pointer to it */
  rt_program *program;
  rt_frame *next;
  rt_seq_run *runs;         /* by rt_seq.index */
  rt_async *asyncs;         /* by rt_thunk.index */
  void *bound_temp;         /* the arena that args point into */
  void (*done)(void *arg, weft_status *st);
  void *done_arg;
  atomic_bool fell_behind;  /* rt_frame_fell_behind */
  _Atomic(weft_status *) fault; /* the first error of queued work: rt_frame_take_fault */
  weft_arena arena;
};

struct rt_program {
  weft_arena arena;
  rt_seq *root;
  const buf_plan *plan;
  int threads;
  bool queues;              /* runs on devices with streams */
  bool asks_host;           /* rt_program_asks_host */
  int thunk_count, seq_count, state_count, arg_count;
  rt_thunk **thunks;        /* all, to destroy */
  int thunk_capacity;
  rt_seq **seqs;
  int seq_capacity;
  int constant_count, temp_count, fresh_count; /* patches: set once; when the arena moves; in every run */
  rt_patch *constants, *temps, *fresh;
  int packed_count;
  rt_packed_slot *packed;   /* by slot; the first slot means "none" */
  double cost_ns;
  weft_mutex mu;
  rt_frame *free_frames WEFT_GUARDED_BY(mu);
};

void rt_seq_run_init(rt_seq_run *run);

/* executor.c: `thunk`, a step of a graph, has started: steps that wait only for its start may go on. */
void rt_thunk_started(rt_frame *frame, const rt_thunk *thunk);
/* executor.c: the flag has been read: control flow goes on with async->flag, or ends with `st` (taken). */
void rt_flag_arrived(rt_frame *frame, const rt_thunk *thunk, weft_status *st);

/* catch_up.c: makes a step that works on the host wait for what was queued before it. Other steps stay as they are. */
WEFT_NODISCARD weft_status *rt_make_late(weft_arena *arena, rt_thunk *thunk);
bool rt_starts_late(const rt_thunk *thunk);
/* catch_up.c: reads the condition or branch index of control flow into async->flag. True: it is read, or *out says
 * why not. False: rt_flag_arrived will be called. */
bool rt_read_flag(rt_frame *frame, const rt_thunk *thunk, size_t bytes, weft_status **out);

/* executor.c: the `control` of control thunks (thunk.h). */
bool rt_control_while(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out);
bool rt_control_conditional(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out);
bool rt_control_call(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out);

/* program.c: add a thunk, which the program then destroys, and a sequence, which then has an index. */
WEFT_NODISCARD weft_status *rt_program_adopt(rt_program *program, rt_thunk *thunk);
WEFT_NODISCARD weft_status *rt_program_list(rt_program *program, rt_seq *seq);
/* program.c, for stretch.c: the uses of a control thunk that runs its sequences, as of a call. */
WEFT_NODISCARD weft_status *rt_call_init(rt_program *program, rt_thunk *thunk, const rt_thunk_ops *ops,
                                         const char *name, rt_seq *callee);

/* stretch.c: finds the arguments of a stretch's steps, whose numbers are known. */
WEFT_NODISCARD weft_status *rt_stretch_number(rt_program *program, rt_stretch *stretch);

typedef struct rt_while_thunk { rt_thunk base; int64_t trips; } rt_while_thunk;
typedef struct rt_conditional_thunk { rt_thunk base; bool flag_is_pred; } rt_conditional_thunk;

#endif
