/* passes/spmd/propagate.h -- a sharding for every array of a module, from those that it was given.
 *
 * Arrays that are one value under several names (elements of tuples, what a loop carries, parameters of called
 * computations) have one sharding object between them.  Edges connect the others: an operation's operands and results by
 * its factors; arrays that should be cut alike.  Along edges shardings grow, forward and backward, until nothing changes:
 * axes are only added, never where a dimension is closed, an axis is used already, or a size does not divide; where two
 * tensors disagree the larger wins.  Operations that elements pass through come first. */
#ifndef WEFT_PASSES_SPMD_PROPAGATE_H
#define WEFT_PASSES_SPMD_PROPAGATE_H

#include "passes/spmd/factors.h"
#include "passes/util.h"

/* The shardings of a value's leaves: one for an array. */
typedef struct spmd_leaves {
  int count;
  spmd_sharding **v;
} spmd_leaves;

typedef struct spmd_edge {
  spmd_factors factors;
  spmd_sharding **s;      /* by tensor */
  spmd_axes *axes;        /* scratch: by tensor and factor */
  spmd_mask forbidden;    /* manual axes, at the border of their region */
} spmd_edge;

/* A border of a manual region. */
typedef struct spmd_border {
  bool enters;            /* whole arrays become one partition's */
  bool fits;              /* axes express it */
  const hlo_sharding *given;
  spmd_sharding manual;   /* the axes of the region that cut each dimension */
  spmd_mask axes;         /* all axes of the region */
} spmd_border;

typedef struct spmd_program {
  hlo_module *module;
  weft_arena *arena, *scratch; /* the module's; the pass's */
  spmd_grid grid;
  pass_map leaves;        /* by instruction: spmd_leaves * */
  pass_map borders;       /* by instruction: spmd_border *, or NULL */
  pass_map roots;         /* by computation: spmd_leaves *, what its root must be; NULL: what the root is */
  spmd_leaves results;    /* of the entry */
  bool *results_open;     /* nobody said how */
  bool *params_fit;       /* false: a parameter of the entry is cut in a way that no axes express */
  bool *results_fit;
  pass_map groups;        /* shard-as groups by number: spmd_sharding * */
  int edge_count, edge_capacity;
  spmd_edge *edges;
} spmd_program;

WEFT_NODISCARD weft_status *spmd_propagate(spmd_program *p);

static inline const spmd_leaves *spmd_leaves_of(const spmd_program *p, const hlo_instr *instr)
{
  return pass_map_get(&p->leaves, instr->id);
}
bool spmd_is_call_to(const hlo_instr *instr, const char *target); /* a custom-call of one operand */

#endif
