/* runtime/program.h -- thunks put together: sequences, their dependence graphs, and runs.
 *
 * A program is built once and is then immutable.  A run happens in a *frame*, which holds everything that changes: the
 * resolved pointers, the counters of the graphs, the state of asynchronous thunks.  Frames are kept and reused, so that
 * a run allocates nothing. */
#ifndef WEFT_RUNTIME_PROGRAM_H
#define WEFT_RUNTIME_PROGRAM_H

#include <stdio.h>

#include "runtime/steps.h"
#include "runtime/thunk.h"

typedef struct rt_seq rt_seq;
typedef struct rt_program rt_program;
typedef struct rt_frame rt_frame;

/* ---- building ---- */

/* Makes an empty program, owned by the caller: add sequences and control flow, then call rt_program_order and
 * rt_program_finish. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *rt_program_new(rt_program **out_program);
void rt_program_free(rt_program *program); /* no frame may be running; destroys its thunks */
WEFT_DEFINE_AUTO(rt_program, rt_program_free)
weft_arena *rt_program_arena(rt_program *program); /* the memory of thunks and of the data that they refer to */

/* Steps of one computation in program order; `edges` are dependences beyond the bytes (tokens, control). */
WEFT_NODISCARD weft_status *rt_seq_new(rt_program *program, const char *name, int count, rt_thunk *const *thunks,
                                       int edge_count, const int (*edges)[2], rt_seq **out_seq);
/* Control flow. `flag` is the condition's result (pred), or the branch: a pred (true is branch 0) or an s32 (out of
 * range: the last branch). `trips` >= 0: the loop runs that many times, and the condition is not evaluated. */
WEFT_NODISCARD weft_status *rt_while_new(rt_program *program, const char *name, rt_seq *condition, rt_seq *body,
                                         buf_slice flag, int64_t trips, rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *rt_conditional_new(rt_program *program, const char *name, int count,
                                               rt_seq *const *branches, buf_slice flag, bool flag_is_pred,
                                               rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *rt_call_new(rt_program *program, const char *name, rt_seq *callee, rt_thunk **out_thunk);

/* Sets the flag of a loop or conditional, after another placement of memory. */
void rt_control_set_flag(rt_thunk *thunk, buf_slice flag);
/* Must be called after the slices of steps have changed: sets the uses of control flow, which are those of its
 * steps. */
WEFT_NODISCARD weft_status *rt_program_gather_uses(rt_program *program);

/* Finds which sequences run in order, from the bytes that steps use. `plan`: has the allocations; borrowed for the
 * call. `threads`: how many the pool has; `queues`: the program's devices have streams. */
WEFT_NODISCARD weft_status *rt_program_order(rt_program *program, const buf_plan *plan, int threads, bool queues);
bool rt_seq_runs_in_order(const rt_seq *seq); /* true: the steps run one after the other; false: as a graph */

/* A *stretch* is some steps that follow each other in a sequence and that a platform can queue as one (a CUDA graph).
 * The steps stay a sequence of their own; a control thunk in their place runs it. */
typedef struct rt_stretch rt_stretch;
/* Some of rt_ctx.args. */
typedef struct rt_arg_range { int first, count; } rt_arg_range;
struct rt_stretch {
  rt_thunk base;  /* first; the program sets name, uses and sequence */
  int count;      /* of its steps */
  rt_thunk *const *steps; /* loops, branches and calls are among them only if all steps in them may be part of it */
  bool decides;   /* a loop or branches are in it, at any depth; not of one that talks */
  bool talks;     /* steps of rt_stretcher.talks are in it; then its loops are such as rt_unrolls, without branches */
  int range_count, arg_count;
  rt_arg_range *ranges; /* the arguments of its steps and of the steps in these; set by rt_program_finish */
  /* Queues all steps at once. *out_queued false, without an error: nothing is queued, and the steps are queued one by
   * one. */
  weft_status *(*queue)(rt_stretch *stretch, rt_ctx *ctx, bool *out_queued);
  /* The same for a stretch that talks: if it has been started, without an error, rt_thunk_done ends it later. */
  weft_status *(*start)(rt_stretch *stretch, rt_ctx *ctx, bool *out_started);
};

/* Which stretches a platform can queue, and how it makes them. */
typedef struct rt_stretcher {
  void *ctx;
  unsigned kinds; /* bits of rt_thunk_ops.stretch: steps that may be part of a stretch */
  unsigned loops, branches; /* bits that loops and conditionals have */
  unsigned talks; /* bits of steps with `start`, by which devices talk to each other */
  int64_t unrolls; /* steps of all rounds of a loop in a stretch that talks, at most; 0: it has no loops */
  int least;      /* steps of a stretch, at least; > 0. A loop or conditional suffices alone: no value is then read */
  /* Makes a stretch in `arena`: fills `queue`, and base.ops, whose `control` is rt_control_stretch. The thunk lives as
   * long as the program. */
  weft_status *(*make)(void *ctx, weft_arena *arena, rt_stretch **out_stretch);
} rt_stretcher;
/* For a stretch's ops: starts one that talks, and queues the steps of another at once if no events are recorded.  Where
 * that is not possible, the steps run one by one. */
bool rt_control_stretch(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out);

/* What a platform that queues a stretch sees of control flow in it. The sequences of a loop are its body and its
 * condition, those of a choice its branches. */
typedef enum rt_control_kind { RT_NO_CONTROL, RT_LOOP, RT_CHOICE, RT_CALL } rt_control_kind;
rt_control_kind rt_control_kind_of(const rt_thunk *thunk); /* a stretch in a stretch is a call */
int64_t rt_loop_trips(const rt_thunk *loop);               /* < 0: the condition decides */
/* Does the loop or call have a known number of rounds, with at most `most` steps in all? The loops in it must have one,
 * too, and there must be no branches. */
bool rt_unrolls(const rt_thunk *thunk, int64_t most);
bool rt_choice_is_by_pred(const rt_thunk *choice); /* as rt_conditional_new's flag_is_pred */
/* The step as profiles and traces name it (trace.h). */
struct rt_trace_step rt_trace_step_of(const rt_thunk *thunk, const rt_run_info *info);
int rt_seq_count(const rt_seq *seq);
rt_thunk *const *rt_seq_steps(const rt_seq *seq);

/* Between rt_program_order and rt_program_finish: puts stretches in the place of their steps. A stretch does not wait
 * for communication that its first step does not wait for. */
WEFT_NODISCARD weft_status *rt_program_stretch(rt_program *program, const buf_plan *plan,
                                               const rt_stretcher *stretcher);

/* Builds the graphs. The steps use slices of `plan`, which is borrowed for the program's life. */
WEFT_NODISCARD weft_status *rt_program_finish(rt_program *program, rt_seq *root, const buf_plan *plan);

/* True if the program's devices have streams and a step works on the host, or control flow reads a value there. Such
 * a program starts when its inputs are defined: the host must not act on values that turn out to be errors. */
bool rt_program_asks_host(const rt_program *program);
double rt_program_cost_ns(const rt_program *program); /* every thunk once */
WEFT_NODISCARD weft_status *rt_program_print(const rt_program *program, FILE *out);
/* Calls `visit` for every sequence, the entry first. `sequence` is valid during the call. */
void rt_program_each_sequence(const rt_program *program, void (*visit)(void *ctx, const weft_sequence *sequence),
                              void *ctx);
/* Calls `visit` for every step: sequence by sequence, the entry first, and in the order of the sequence. `step` is
 * valid during the call. */
void rt_program_each_step(const rt_program *program, void (*visit)(void *ctx, const weft_step *step), void *ctx);

/* An operand of which steps can read a packed form (packed.h): a constant, or a parameter that no step writes to. */
typedef struct rt_packed_slot {
  const struct rt_packing *packing;
  int arg, alloc;     /* where the operand is */
  int64_t in_operand; /* what is packed begins so many bytes after the beginning of the operand, */
  int64_t offset;     /* and here in the allocation */
} rt_packed_slot;
int rt_program_packed_count(const rt_program *program);
const rt_packed_slot *rt_program_packed(const rt_program *program, int slot); /* 1 to the count */

/* ---- running ---- */

/* A frame of the program: a kept one if there is one, else a new one. */
WEFT_NODISCARD weft_status *rt_frame_acquire(rt_program *program, rt_frame **out_frame);
void rt_frame_release(rt_frame *frame);

/* Sets the addresses of the allocations in this run: `base` by allocation number; entries of constants are not read. */
void rt_frame_bind(rt_frame *frame, void *const *base);
/* Sets the addresses of the constants on this run's device, by allocation number. Without this call the module's
 * constants in host memory are used. */
void rt_frame_bind_constants(rt_frame *frame, void *const *constants);
/* Sets the packed forms that this run reads, by slot; slot 0 is NULL. Borrowed until the run has ended. */
void rt_frame_bind_packed(rt_frame *frame, const rt_form *packed);
const void *rt_frame_arg(const rt_frame *frame, int arg); /* once bound */

/* Runs the program. True: the run is done, with its error in *out. False: `done` will be called once, on some
 * thread, when it is; it takes the status and may release the frame. On devices with streams a run is done when all
 * that its steps queue is on the compute stream. `info` is borrowed until then. */
bool rt_frame_run(rt_frame *frame, rt_pool *pool, const rt_run_info *info, void (*done)(void *arg, weft_status *st),
                  void *arg, weft_status **out);

/* The first fault of the work that a run has queued (rt_thunk_fault), once the stream has done that work; NULL: none.
 * The caller owns it. */
weft_status *rt_frame_take_fault(rt_frame *frame);

/* After a run that failed: true if a thunk of an order group was left out or failed. Peers may then wait for that thunk
 * in vain. */
bool rt_frame_fell_behind(const rt_frame *frame);

#endif
