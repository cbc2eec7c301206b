/* passes/util.h -- shared by several passes: maps by instruction id, the kinds of computations, inlining and
 * outlining. */
#ifndef WEFT_PASSES_UTIL_H
#define WEFT_PASSES_UTIL_H

#include "hlo/hlo.h"

static inline bool pass_same_ints(const int64_t *a, const int64_t *b, int count)
{
  for (int i = 0; i < count; i++)
    if (a[i] != b[i]) return false;
  return true;
}
static inline bool pass_ints_contain(hlo_ints ints, int64_t v)
{
  for (int i = 0; i < ints.count; i++)
    if (ints.v[i] == v) return true;
  return false;
}

/* True if the dimensions of the two shapes are the same apart from dimensions of 1. */
bool pass_same_but_units(const hlo_shape *a, const hlo_shape *b);
/* For each dimension over 1 of `from`, the one of `to`, which only has other dimensions of 1; -1 for those of 1. */
void pass_map_units(const hlo_shape *from, const hlo_shape *to, int64_t *map);
/* Does a transpose of an array of that shape change the order of dimensions over 1? */
bool pass_moves(const hlo_shape *shape, const int64_t *permutation);

/* A map from ids (of instructions or computations) to pointers; NULL if nothing was set. It grows with the ids, so
 * that instructions made during the pass may be keys. Its array covers the range of ids that were set: those of one
 * computation lie close together. */
typedef struct pass_map {
  weft_arena *arena;
  void **v;
  int least, capacity; /* v[0] belongs to id `least` */
} pass_map;

static inline void *pass_map_get(const pass_map *map, int id)
{
  return id >= map->least && id - map->least < map->capacity ? map->v[id - map->least] : NULL;
}
WEFT_NODISCARD weft_status *pass_map_set(pass_map *map, int id, void *value);

/* A list of instructions to visit, which contains each of them at most once at a time. */
typedef struct pass_worklist {
  weft_arena *arena;
  hlo_instr **items; /* a stack */
  int count, capacity;
  bool *is_queued;   /* by id */
  int id_capacity;
} pass_worklist;

WEFT_NODISCARD weft_status *pass_worklist_push(pass_worklist *list, hlo_instr *instr);
/* The next instruction that is still in the module, or NULL. */
hlo_instr *pass_worklist_pop(pass_worklist *list);

/* True if the comparator of a sort only compares its first two parameters (by LT or GT). *out_largest is true then
 * if larger elements come first. */
bool pass_compares_two(const hlo_computation *order, bool *out_largest);

/* The sequential computations at the time of the call, callees first: it is safe to walk them while computations are
 * added. Sequential computations are control flow: the entry, and the bodies and conditions of loops, the branches and
 * the callees of calls that only sequential computations reach. All others run inside a kernel or in an asynchronous
 * operation. */
typedef struct pass_comps {
  int count;
  hlo_computation **v;
} pass_comps;
WEFT_NODISCARD weft_status *pass_sequential(const hlo_module *module, weft_arena *arena, pass_comps *out_comps);

/* True if `value` is a scalar constant x with op(x, y) = y for every y. */
bool pass_is_identity(hlo_opcode op, const hlo_instr *value);
bool pass_has_control_edges(const hlo_instr *instr);
/* True if pass dot-canonicalizer has made `dot` what it is: at most one batch dimension, one contracting one. */
bool pass_is_canonical_dot(const hlo_instr *dot);
/* True if the value is stored, whatever is fused. */
bool pass_is_in_memory(const hlo_instr *value);
/* Notes how often `loop` runs (hlo_known_trip_count), in the place of its backend_config. */
WEFT_NODISCARD weft_status *pass_set_trip_count(hlo_instr *loop, int64_t trips);

/* The values in `map` of the operands of `instr`, stored to *operands, which is enlarged in the map's arena if
 * needed. */
WEFT_NODISCARD weft_status *pass_mapped_operands(const hlo_instr *instr, const pass_map *map, hlo_instr ***operands,
                                                 int *capacity);

/* Puts a copy of the contents of `callee` in the place of `call`, whose operands replace the parameters; `callee`
 * stays. `call` is removed. *out_root (may be NULL) receives what replaced it. `map` is scratch. */
WEFT_NODISCARD weft_status *pass_inline(hlo_instr *call, const hlo_computation *callee, pass_map *map,
                                        hlo_instr **out_root);

/* Copies `members` (of one computation, in its order) into a new computation called by one fusion, which is put before
 * the last of them and gives the values of `outputs` (some members): one, or a tuple.  Uses of the outputs go to the
 * fusion; members that nobody uses any more are removed, others stay for the fusions that want them too.  Scalar
 * constants outside are copied in rather than passed.
 * If users of an earlier output precede the last member, the list's order must be restored with hlo_computation_sort.
 *   map   scratch, by instruction id; entries of members and operands are NULL before and after */
WEFT_NODISCARD weft_status *pass_outline(hlo_instr *const *members, int count, hlo_instr *const *outputs,
                                         int output_count, pass_map *map, const char *name, hlo_instr **out_fusion);

#endif
