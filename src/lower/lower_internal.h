/* lower/lower_internal.h -- what the files of this folder share while one module is lowered. */
#ifndef WEFT_LOWER_LOWER_INTERNAL_H
#define WEFT_LOWER_LOWER_INTERNAL_H

#include "lower/lower.h"

typedef struct low_module {
  weft_platform *platform;
  const low_target *target;
  const weft_compile_options *options;
  rt_compiled *out;
  weft_arena scratch;
  low_plan **plans;      /* by instruction id: of a step that the target makes; else NULL */
  rt_seq **seqs;         /* by computation id */
  int *node_of;          /* by instruction id: its place in its sequence, -1 none */
  rt_thunk **made;       /* by instruction id: its thunk; NULL if the instruction is no step */
  int64_t *passed;       /* by instruction id: bytes of its result that steps of at least low_target.long_ns read */
  bool *wanted;          /* by computation id: control flow reaches it from the entry */
  bool *talks;           /* by computation id: it contains communication */
  int *token_mark;       /* by instruction id: the last instruction whose tokens were followed through this one */
  int64_t replicas, partitions;
  hlo_grouping *groupings;
} low_module;

/* ---- order.c: dependences beyond bytes ---- */

/* Pairs of places in a sequence: the second waits for the first. */
typedef struct low_edges {
  int count, capacity;
  int (*v)[2];
} low_edges;

/* Adds edges: `instr` waits for its control predecessors, and for the steps that make the tokens it is given. */
WEFT_NODISCARD weft_status *low_order_add(low_module *m, low_edges *edges, const hlo_instr *instr);

/* ---- collective.c ---- */

int64_t low_collective_scratch(const hlo_instr *instr);
/* Whether the platform's communicator can use registered memory for the collective. */
bool low_collective_is_registered(const weft_platform *platform, const hlo_instr *instr);
WEFT_NODISCARD weft_status *low_collective_make(low_module *m, low_step *step, rt_thunk **out_thunk);

/* ---- feed.c ---- */

WEFT_NODISCARD weft_status *low_feed_make(low_step *step, rt_thunk **out_thunk); /* infeed, outfeed */
/* Send and recv with the host, through the instruction's channel. Errors: UNIMPLEMENTED on a platform whose host
 * does not loop back. */
WEFT_NODISCARD weft_status *low_host_transfer_make(low_step *step, weft_platform *platform, rt_thunk **out_thunk);

#endif
