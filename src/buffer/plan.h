/* buffer/plan.h -- where every value of a scheduled module lives in memory.
 *
 * A plan names a few *allocations*: one for each leaf of the entry's parameters, one for each constant, one for each
 * leaf of the result (or the donated parameter that it shares), and one arena for all temporaries, or two: temporaries
 * that buf_options.is_collective names have an arena of their own.  Every leaf of every instruction that runs as a step
 * of its own (not inside a fusion or a reducer) has a slice of one of them. */
#ifndef WEFT_BUFFER_PLAN_H
#define WEFT_BUFFER_PLAN_H

#include <stdio.h>

#include "hlo/hlo.h"

enum { BUF_ALIGN = 64 }; /* alignment of every slice and allocation, in bytes */

typedef enum buf_alloc_kind {
  BUF_PARAMETER, /* memory of the caller */
  BUF_CONSTANT,  /* a literal's data, read only */
  BUF_OUTPUT,    /* fresh for every run, handed to the caller */
  BUF_TEMP,      /* the arena */
  BUF_COLLECTIVE /* the arena of what collectives read and write */
} buf_alloc_kind;

typedef struct buf_alloc {
  buf_alloc_kind kind;
  int64_t bytes;
  int param_leaf;             /* BUF_PARAMETER: leaf number over all parameters in order */
  bool read_only;             /* a constant, or a parameter that the run must not change */
  bool written;               /* BUF_PARAMETER: the run writes other values there, or returns it as a result */
  const hlo_literal *literal; /* BUF_CONSTANT: borrowed from the module */
} buf_alloc;

typedef struct buf_slice {
  int alloc; /* number of the allocation; -1: none (a token, an opaque) */
  int64_t offset, bytes;
} buf_slice;

typedef enum buf_order {
  BUF_TOPOLOGICAL, /* reuse only where data dependence orders the two uses already: no dependence is added */
  BUF_SEQUENTIAL,  /* the schedule's order, best fit: least memory */
  BUF_BUDGET,      /* topological as far as budget_bytes allows, then reuse that adds the cheapest dependences */
} buf_order;
/* "topological", "sequential" or "budget=BYTES" (with a unit: "1.5GB"); for the first two *out_budget is 0.
 * INVALID_ARGUMENT for anything else. */
WEFT_NODISCARD weft_status *buf_order_parse(const char *text, buf_order *out_order, int64_t *out_budget);

typedef struct buf_options {
  buf_order order;
  int64_t budget_bytes; /* BUF_BUDGET: of the arena */
  /* Optional: bytes of temporary memory that `instr` needs while it runs (planned as one more slice of it). */
  int64_t (*scratch_bytes)(void *ctx, const hlo_instr *instr);
  /* Optional: estimated nanoseconds of an instruction itself, without the computations that it calls. */
  double (*cost_ns)(void *ctx, const hlo_instr *instr);
  void *ctx;
  /* Optional, by computation id: the executor runs its steps one after the other in any case, so that reuse adds no
   * dependence. */
  const bool *in_order;
  /* Optional: the temporaries that `instr` reads and writes, and its scratch, lie in the arena of collectives, which
   * the platform takes from memory that its communicators can register. */
  bool (*is_collective)(void *ctx, const hlo_instr *instr);
} buf_options;

/* The costs of a plan.  Sizes are in bytes, times in nanoseconds as estimated by cost_ns; a loop counts once for
 * each round. */
typedef struct buf_stats {
  int64_t parameter_bytes, constant_bytes, output_bytes, alias_bytes; /* alias: outputs in donated parameters */
  int64_t temp_bytes;          /* size of the arena, or of both: the peak */
  int64_t collective_bytes;    /* of these, the arena of collectives */
  int64_t lower_bound_bytes;   /* the most bytes of temporaries that are live at one point of the schedule */
  int64_t value_bytes;         /* sum over temporary buffers, as if nothing were reused */
  double fragmentation;        /* 1 - lower bound / arena; 0 for an empty arena */
  int buffer_count;            /* temporary buffers placed */
  int reused_count;            /* temporary buffers in bytes that another buffer had before */
  int added_edge_count;        /* dependences that reuse adds (0 for topological) */
  double critical_path_free;   /* longest path by data dependence; by order in computations of options->in_order */
  double critical_path;        /* with the plan's reuse */
  double total_cost;           /* of all steps: the time of a sequential run */
} buf_stats;

typedef struct buf_plan buf_plan;

/* Plans `module`, which is scheduled and copy-inserted (borrowed: it must outlive the plan, unchanged).
 * Errors: RESOURCE_EXHAUSTED; INVALID_ARGUMENT for a module in another form, naming the instruction. */
WEFT_NODISCARD weft_status *buf_plan_new(const hlo_module *module, const buf_options *options, buf_plan **out_plan);
/* The same in two steps, for a caller who finds options->in_order from the steps that wait for each other.  A draft has
 * all allocations, but its buffers have no addresses: values share bytes only where they must.  buf_plan_place makes
 * the plan of a draft, once; slices then change, and so may the numbers of allocations. */
WEFT_NODISCARD weft_status *buf_plan_draft(const hlo_module *module, const buf_options *options, buf_plan **out_plan);
WEFT_NODISCARD weft_status *buf_plan_place(buf_plan *plan, const buf_options *options);
void buf_plan_free(buf_plan *plan);
WEFT_DEFINE_AUTO(buf_plan, buf_plan_free)

const hlo_module *buf_plan_module(const buf_plan *plan);
int buf_plan_alloc_count(const buf_plan *plan);
const buf_alloc *buf_plan_alloc(const buf_plan *plan, int alloc);
int buf_plan_temp_alloc(const buf_plan *plan);       /* the arena's number; its size may be 0 */
int buf_plan_collective_alloc(const buf_plan *plan); /* that of collectives: its size is 0 where there is none */

/* The slice of leaf `leaf` of `instr`, an instruction of the entry or of a computation that runs by steps. */
buf_slice buf_plan_slice(const buf_plan *plan, const hlo_instr *instr, int leaf);
/* The scratch that options->scratch_bytes asked for; alloc -1 when none. */
buf_slice buf_plan_scratch(const buf_plan *plan, const hlo_instr *instr);
/* The number of leaves of all entry parameters and of the entry's result, and the allocation of each leaf. */
int buf_plan_param_count(const buf_plan *plan);
int buf_plan_param_alloc(const buf_plan *plan, int param_leaf);
int buf_plan_output_count(const buf_plan *plan);
int buf_plan_output_alloc(const buf_plan *plan, int output_leaf); /* -1 for a token */

/* Borrowed from the plan. */
const buf_stats *buf_plan_stats(const buf_plan *plan);

/* Estimated nanoseconds of a computation that runs by steps: `work` of all its steps, `path` of the longest path
 * under the plan's reuse. */
typedef struct buf_times { double work, path; } buf_times;
buf_times buf_plan_times(const buf_plan *plan, const hlo_computation *computation);

/* The time of a step that runs computations, from the sum of their times and from the longest of them, `most`.  A
 * call takes `sum`; a loop `sum` for each of `trips` rounds (-1, not known: ten rounds); a choice `most`. */
typedef enum buf_control { BUF_CALL, BUF_LOOP, BUF_CHOICE } buf_control;
double buf_control_time(buf_control kind, int64_t trips, double sum, double most);

/* Proves, from the module and the plan's slices alone, that no two values are in the same bytes while both are live,
 * that mandatory aliases hold, and that nothing read-only is written.  Shares no code with the planner.
 * Errors: INTERNAL naming both values. */
WEFT_NODISCARD weft_status *buf_plan_check(const buf_plan *plan);

/* A buffer of an arena: where it is, and how long. Steps are numbers in the flattened schedule: a loop is its entry,
 * its condition, its body and its exit. */
typedef struct buf_placed {
  const hlo_instr *instr;    /* defines the first value in the buffer, or owns the scratch */
  int leaf;                  /* of instr's value */
  bool is_scratch;
  int64_t offset, bytes;     /* in the arena; the arena of collectives counts as lying behind the other */
  int first_step, last_step;
} buf_placed;
int buf_plan_buffer_count(const buf_plan *plan);
/* False: buffer `buffer` is the frame of a called computation, which contains other buffers. */
bool buf_plan_buffer(const buf_plan *plan, int buffer, buf_placed *out);
int buf_plan_step_count(const buf_plan *plan);
/* The first step at which the most bytes of temporaries are live, and these bytes. */
int buf_plan_peak_step(const buf_plan *plan, int64_t *out_bytes);
/* Fills out[0, n) with the largest buffers, the largest first, and returns n, which is at most `most`. */
int buf_plan_largest(const buf_plan *plan, int most, buf_placed *out);
/* Writes what a buffer holds: "f32[8,128] fusion.3 (jit(step)/dot_general, step.py:41)".  Returns text. */
const char *buf_placed_text(const buf_placed *buffer, char *text, size_t size);

/* For people.  print: the statistics and the largest buffers.  svg: a drawing with one named box for each buffer;
 * schedule steps run to the right, addresses upwards. */
WEFT_NODISCARD weft_status *buf_plan_print(const buf_plan *plan, FILE *out);
WEFT_NODISCARD weft_status *buf_plan_svg(const buf_plan *plan, FILE *out);

#endif
