/* buffer/plan_internal.h -- the planner's own data, shared by its files. */
#ifndef WEFT_BUFFER_PLAN_INTERNAL_H
#define WEFT_BUFFER_PLAN_INTERNAL_H

#include "buffer/flow.h"
#include "buffer/plan.h"

/* Which of the two arenas a buffer is in. */
typedef enum buf_arena { ARENA_TEMP, ARENA_COLLECTIVE, ARENAS } buf_arena;

/* A buffer in an arena: a class of values, the scratch of a step, or the frame of a called computation. */
typedef struct buf_buffer {
  int64_t bytes, offset;  /* offset: in its frame while placing, in the arena afterwards */
  int def, end;           /* points: from the first definition to the last use */
  const hlo_instr *instr; /* names it: definer of the first value, owner of the scratch, caller of the frame */
  int leaf;
  enum { BUFFER_VALUE, BUFFER_SCRATCH, BUFFER_FRAME } kind; /* a call has a frame in each arena that has buffers */
  buf_arena arena;
  int home;               /* id of the innermost computation that contains all its uses */
  int first_node;         /* the node of its first definition in the home's dependence graph */
  int touch_begin, touch_end; /* its touches in buf_deps.touches */
} buf_buffer;

struct buf_plan {
  weft_arena arena;
  const hlo_module *module;
  buf_flow *flow;
  int alloc_count;
  int arena_alloc[ARENAS];
  buf_alloc *allocs;
  buf_slice *slices;      /* by value */
  buf_slice *scratch;     /* by instruction id; bytes 0: none */
  int *output_alloc;
  int buffer_count, buffer_capacity;
  buf_buffer *buffers;
  int *class_buffer;      /* by class representative: its buffer, -1 none */
  int64_t *frame_bytes;   /* by computation id */
  double *paths, *work;   /* by computation id: see buf_plan_times */
  buf_stats stats;
};

/* The dependence graphs: one for each computation that runs by steps.  Nodes are its steps in list order. */
typedef struct buf_edge { int comp, from, to; } buf_edge;
typedef struct buf_graph {
  const hlo_computation *comp;
  int node_count, words;
  const hlo_instr **nodes;
  int edge_begin, edge_end;  /* in buf_deps.edges, sorted by `from` */
  uint64_t *below;           /* bit set of each node's descendants: node_count * words; NULL for a graph too large */
  double *cost, *top, *bottom; /* of a node; longest path to its end; longest path from its start */
  double span;
} buf_graph;
typedef struct buf_deps {
  weft_arena arena;
  const buf_plan *plan;
  int *node_of;              /* by instruction id, -1: not a step */
  int *depth;                /* by computation id */
  buf_graph *graphs;         /* by computation id; comp NULL: not sequential */
  int edge_count, edge_capacity;
  buf_edge *edges;
  int touch_count, touch_capacity;
  int *touches;              /* nodes that read or write a buffer */
} buf_deps;

/* A graph with more nodes has no bit sets of descendants (n*n/8 bytes); its buffers are placed by the schedule's
 * order. */
enum { BUF_REACH_LIMIT = 16384 };

/* Makes the graphs, with edges for data, for control, and for the order of options->in_order. */
WEFT_NODISCARD weft_status *buf_deps_new(const buf_plan *plan, const buf_options *options, buf_deps **out_deps);
/* True if `before` has ended when `after` starts, whichever ready step the executor runs first.  Both are steps.
 * False also where the graph has no bit sets of descendants. */
bool buf_comes_before(const buf_deps *deps, const hlo_instr *before, const hlo_instr *after);
/* Adds edges between the successive values of one buffer, and finds home, first node and touches of plan->buffers. */
WEFT_NODISCARD weft_status *buf_deps_add_classes(buf_deps *deps, const buf_classes *classes);
void buf_deps_free(buf_deps *deps);
WEFT_DEFINE_AUTO(buf_deps, buf_deps_free)
/* The node of `comp`'s graph that is `instr` or that runs it; -1 if there is none. */
int buf_node_in(const buf_deps *deps, const hlo_instr *instr, int comp);
/* Adds the edges that sharing of memory requires, found from the slices.  *out_added: those that were not implied
 * before. */
WEFT_NODISCARD weft_status *buf_deps_add_sharing(buf_deps *deps, int *out_added);
/* Finds the longest path of each graph: paths[computation id].  With `by_trips` a loop counts once for each round,
 * otherwise as one round.  The placer needs the latter: it compares what a reuse adds to a path with the path of the
 * same computation. */
void buf_deps_span(buf_deps *deps, bool by_trips, double *paths);
/* The sum over all steps of each computation: work[computation id].  A loop counts once for each round. */
void buf_deps_work(const buf_deps *deps, double *work);

static inline bool buf_reaches(const buf_graph *g, int from, int to)
{
  return g->below[(int64_t)from * g->words + to / 64] >> (to % 64) & 1;
}

/* Gives every buffer of plan->buffers its offset, and the arenas their sizes: plan->stats has both.  `span` is the
 * longest path of the entry from buf_deps_span without `by_trips`. */
WEFT_NODISCARD weft_status *buf_place(buf_plan *plan, buf_deps *deps, const buf_options *options, double span);

#endif
