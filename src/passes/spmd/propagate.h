/* passes/spmd/propagate.h -- finds a sharding for every array of a module, starting from the shardings that the
 * program gives.
 *
 * Arrays that are one value under several names (elements of tuples, values that a loop carries, parameters of
 * called computations) share one sharding object. Edges connect the others: operands and results of an operation by
 * its factors, and arrays that should be cut alike. Along edges shardings grow, forward and backward, until nothing
 * changes. Axes are only added, and never where a dimension is closed, where an axis is used already, or where a
 * size does not divide. If two tensors disagree, the larger one wins. Operations that elements pass through come
 * first. */
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
  spmd_mask forbidden;    /* the manual axes, at the border of their region */
} spmd_edge;

/* A border of a manual region. */
typedef struct spmd_border {
  bool enters;            /* turns whole arrays into one partition's */
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
  /* by computation: spmd_leaves *, the sharding that its root must have; NULL: the root's own */
  pass_map roots;
  spmd_leaves results;    /* of the entry */
  bool *results_open;     /* by leaf: the program does not say how the result is cut, and the compiler may choose */
  bool *params_fit;       /* false: a parameter of the entry is cut in a way that no axes express */
  bool *results_fit;
  pass_map groups;        /* shard-as groups by number: spmd_sharding * */
  int edge_count, edge_capacity;
  spmd_edge *edges;
} spmd_program;

/* Fills p->leaves, borders, roots and results from p's module. Errors: INVALID_ARGUMENT for shardings that do not fit;
 * RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *spmd_propagate(spmd_program *p);

static inline const spmd_leaves *spmd_leaves_of(const spmd_program *p, const hlo_instr *instr)
{
  return pass_map_get(&p->leaves, instr->id);
}
bool spmd_is_call_to(const hlo_instr *instr, const char *target); /* a custom-call of one operand */

#endif
