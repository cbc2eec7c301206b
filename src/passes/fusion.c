/* passes/fusion.c -- fusion: decides which instructions become one kernel.
 *
 * The pass walks a sequential computation from results to parameters, so it meets an instruction after all its
 * users. Each instruction either joins the groups (future kernels) of all its users and is computed inside them,
 * or becomes the root of a new group, whose value is written to memory.  A group has one result, so no cycle can
 * arise.
 *
 * Joining costs evaluations: an element is computed more than once when it is reached through a broadcast, through
 * two different slices, or from two groups.  The pass estimates the evaluations of each instruction in each group.
 * The surplus times the cost of one evaluation must fit a small allowance per element of the group
 * (EXTRA_PER_ELEMENT). Expensive operations are therefore practically never repeated, and chains of stencils
 * cannot grow exponentially. Generators (broadcasts of scalars, iotas) are free.
 *
 * Joining costs code too.  Pads, slices and the like ask for their operands at other indices, and an instruction
 * is emitted once for each way on which the root reaches it through them.  Pyramids of such operations
 * (associative scans and their gradients) have few evaluations and exponentially many ways, so each group counts
 * the ways (paths, MOST_REPEATS).
 *
 * Row groups: when a reduction over trailing dimensions feeds, row by row, instructions of one group (softmax,
 * layer norm, mean = sum * 1/n), the reduction joins the group, and the group is evaluated row by row.  Every
 * value then exists once per element (rows x cols) or once per row, and is computed once.
 *
 * A root that updates an array in place (dynamic-update-slice, scatter) takes in no producer of that array, and no
 * instruction that reads it. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "passes/fusion.h"
#include "passes/passes.h"

#define EXTRA_PER_ELEMENT 3.0  /* repeated work allowed per element of a group */
enum {
  FREE_EXTRA = 64,             /* repeated work that is always allowed */
  MOST_MEMBERS = 160,          /* instructions in a kernel: compile time grows faster than their number */
  MOST_REPEATS = 24,           /* emissions of a group's instructions beyond the first emission of each */
  MOST_GROUPS = 8,             /* groups that one instruction may be computed in, unless it is free */
  MOST_STACKS = 2,             /* stacks inside each other: each doubles the elements that are made side by side */
  SHORT_STACK = 8,
  MANY_PICKS = 64,              /* slices of one element from one array */
  INNER_REDUCE_WORK = 512,     /* a reduction whose evaluations cost no more than this joins any group */
};

typedef struct group {
  hlo_instr *root;
  double space;                 /* elements evaluated: of the result, or of what a reduction at the root reads */
  double extra;                 /* repeated work so far */
  int member_count, member_capacity, repeats;
  hlo_instr **members;          /* users before operands; the root first */
  int stacks;                   /* how deep they are nested, and elements of the innermost */
  double stacked;
  bool could_be_row, is_row;
  int64_t rows, cols;           /* once is_row */
} group;

/* The ways from the root of a group to an instruction.  Each is a hash over the users that change the index;
 * ascending. */
typedef struct paths {
  int count; /* above MOST_REPEATS: there are too many, and v does not hold all of them */
  const uint64_t *v;
} paths;

/* An instruction's part in one group. */
typedef struct part {
  int group;
  double evaluations;
  paths paths;
} part;

typedef struct parts {
  int count;
  part *v;
} parts;

typedef struct planner {
  const gen_target *target;
  weft_arena *arena;
  pass_map parts;               /* instruction -> parts */
  group *groups;
  int group_count, group_capacity;
  int *slot, *stamp;            /* by group: its index in `now`, valid if the stamp equals `current` */
  int current;
  part *now;                    /* the groups of the users of the current instruction */
  double *same_index;           /* by slot: evaluations at users' own index, shared between them */
  int now_count;
  bool outside;                 /* the current instruction has a user that needs it in memory */
} planner;

/* ---- what instructions are like ---------------------------------------------------------------------------------- */

double pass_element_cost(const hlo_instr *instr)
{
  if (hlo_opcode_is_transcendental(instr->op)) return instr->op == HLO_POWER || instr->op == HLO_ATAN2 ? 24 : 12;
  switch (instr->op) {
  case HLO_BROADCAST: case HLO_RESHAPE: case HLO_BITCAST: case HLO_IOTA: case HLO_CONSTANT:
  case HLO_PARAMETER: return 0;
  case HLO_DIVIDE: case HLO_REMAINDER: return 4;
  case HLO_GATHER: { /* of single elements: on every processor they are put into vectors one by one */
    const hlo_gather_attrs *g = instr->u.gather;
    return g->slice_sizes.count && g->slice_sizes.v[g->slice_sizes.count - 1] > 1 ? 2 : 8;
  }
  case HLO_DYNAMIC_SLICE: case HLO_CONCATENATE: return 2;
  default: return 1;
  }
}

/* The elements of the result, or of its first array (a reduction of many operands has several). */
static double elems(const hlo_instr *instr)
{
  const hlo_shape *shape = hlo_shape_leaf(instr->shape, 0);

  return shape && hlo_shape_is_array(shape) ? (double)hlo_shape_elems(shape) : 0;
}

static bool is_generator(const hlo_instr *instr)
{
  const hlo_instr *x = instr->op == HLO_BROADCAST ? instr->operands[0] : instr;

  return x->op == HLO_IOTA || (x != instr && x->op == HLO_CONSTANT && hlo_shape_is_scalar(x->shape));
}

static bool is_view(const hlo_instr *instr) { return instr->op == HLO_RESHAPE || instr->op == HLO_BITCAST; }

/* Can `instr` be computed inside the kernels of its users? */
static bool can_join(const hlo_instr *instr)
{
  if (!hlo_shape_is_array(instr->shape) || pass_has_control_edges(instr)) return false;
  if (hlo_opcode_is_elementwise(instr->op)) return instr->op != HLO_COPY;
  switch (instr->op) {
  case HLO_CONCATENATE: return !gen_is_wide_concatenate(instr);
  case HLO_BITCAST_CONVERT: case HLO_BROADCAST: case HLO_DYNAMIC_SLICE: case HLO_GATHER:
  case HLO_IOTA: case HLO_PAD: case HLO_REDUCE: case HLO_RESHAPE: case HLO_BITCAST: case HLO_REVERSE: case HLO_SLICE:
  case HLO_TRANSPOSE: return true;
  default: return false;
  }
}

/* Do neighbours in the result come from different operands (`jnp.stack` along the last dimension)? */
static bool is_stack(const hlo_instr *instr)
{
  const hlo_shape *shape = instr->shape;

  return instr->op == HLO_CONCATENATE && instr->dims.v[0] == shape->rank - 1 &&
         shape->dims[shape->rank - 1] <= SHORT_STACK;
}

static const hlo_instr *through_views(const hlo_instr *x)
{
  while (is_view(x)) x = x->operands[0];
  return x;
}

static int updated_arrays(const hlo_instr *root)
{
  return root->op == HLO_DYNAMIC_UPDATE_SLICE ? 1 : root->op == HLO_SCATTER ? root->operand_count / 2 : 0;
}

/* May `instr`, an operand of `user`, be computed inside the kernel of `user`? */
static bool can_take(const hlo_instr *user, const hlo_instr *instr)
{
  if (pass_has_control_edges(user)) return false;
  for (int i = 0; i < updated_arrays(user); i++)
    if (user->operands[i] == instr) return false;
  switch (user->op) {
  case HLO_SELECT_AND_SCATTER: case HLO_COPY: return false;
  case HLO_CONCATENATE: return !gen_is_wide_concatenate(user);
  case HLO_DOT: return is_generator(instr) || is_view(instr);
  case HLO_REDUCE_WINDOW: return is_generator(instr) || is_view(instr) || instr->op == HLO_CONVERT;
  default: return true;
  }
}

/* Does `instr` read the array that the group's root updates?  Inside the group it would see the array half updated. */
static bool reads_updated(const group *g, const hlo_instr *instr)
{
  for (int i = 0; i < updated_arrays(g->root); i++) {
    const hlo_instr *updated = through_views(g->root->operands[i]);
    for (int k = 0; k < instr->operand_count; k++)
      if (through_views(instr->operands[k]) == updated) return true;
  }
  return false;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool keeps_rows(const hlo_instr *instr)
{
  int64_t rows, cols;

  return (hlo_opcode_is_elementwise(instr->op) && instr->op != HLO_COPY) || instr->op == HLO_BROADCAST ||
         instr->op == HLO_IOTA || is_view(instr) ||
         (instr->op == HLO_REDUCE && hlo_shape_is_array(instr->shape) && gen_reduces_rows(instr, &rows, &cols));
}

/* Is the value one per element, per row, per column (it is evaluated again in each row) or a scalar? */
static bool fits_rows(const hlo_instr *instr, int64_t rows, int64_t cols)
{
  int64_t count = hlo_shape_elems(instr->shape);

  return keeps_rows(instr) &&
         (count == rows * cols || count == rows || count == 1 || (count == cols && instr->op != HLO_REDUCE));
}

static double asked_by_row(const group *g, const hlo_instr *instr)
{
  int64_t count = hlo_shape_elems(instr->shape);

  return count == g->rows || count == g->rows * g->cols || count == 1 ? elems(instr) : g->space;
}

/* Does every broadcast in the group that uses `value`, which has one element per row, give each row its own element? */
static bool is_spread_by_rows(const planner *p, int g, const hlo_instr *value, int64_t rows, int64_t cols)
{
  if (rows == 1 || hlo_shape_elems(value->shape) != rows) return true;
  for (int i = 0; i < value->user_count; i++) {
    const hlo_instr *user = value->users[i];
    const parts *its = pass_map_get(&p->parts, user->id);
    bool inside = false;
    for (int k = 0; its && k < its->count; k++) inside |= its->v[k].group == g;
    if (inside && user->op == HLO_BROADCAST && !gen_spreads_rows(user, rows, cols)) return false;
  }
  return true;
}

/* Makes the group a row group around `reduce`, unless it is one that fits already.  false: the group cannot be one. */
static bool try_rows(planner *p, int index, const hlo_instr *reduce)
{
  group *g = &p->groups[index];
  int64_t all = hlo_shape_elems(reduce->operands[0]->shape), rows, cols;

  if (reduce->operand_count != 2 || !gen_reduces_rows(reduce, &rows, &cols) || rows == 0 || cols < 2) return false;
  if (g->is_row) return rows == g->rows && cols == g->cols && is_spread_by_rows(p, index, reduce, rows, cols);
  if (!g->could_be_row || (g->space != (double)all && g->space != (double)rows)) return false;
  if (cols > p->target->row_elems) return false;
  if (rows < p->target->busy_units && all > p->target->split_elems) return false; /* rows are not cut, reductions are */
  if (g->root->op == HLO_REDUCE && hlo_shape_elems(g->root->shape) != rows) return false;
  if (!is_spread_by_rows(p, index, reduce, rows, cols)) return false;
  for (int i = 0; i < g->member_count; i++)
    if (!fits_rows(g->members[i], rows, cols) || !is_spread_by_rows(p, index, g->members[i], rows, cols)) return false;
  g->is_row = true;
  g->rows = rows;
  g->cols = cols;
  g->space = (double)all;
  return true;
}

/* ---- evaluations ------------------------------------------------------------------------------------------------- */

/* The evaluations of `instr` that one user asks for when the user is evaluated `t` times. */
static double asked_by(const planner *p, const hlo_instr *user, const hlo_instr *instr, double t)
{
  const hlo_shape *to = user->shape;
  double ratio = elems(user) > 0 ? elems(instr) / elems(user) : 0;

  switch (user->op) {
  case HLO_BROADCAST: {
    /* a value that is constant along the minor dimensions is computed once for all of them, but as a scalar */
    double repeats = 1, lanes = p->target->vector_bytes / 8.0; /* of the widest elements */
    for (int d = to->rank - 1; d >= 0 && !pass_ints_contain(user->dims, d); d--) repeats *= (double)to->dims[d];
    return WEFT_MAX(t / WEFT_MAX(repeats / lanes, 1), WEFT_MIN(t, elems(instr)));
  }
  case HLO_PAD: /* between elements: computed for all, and then chosen */
    return to->rank > 0 && user->u.pad.dims[to->rank - 1].interior > 0 ? t : t * ratio;
  case HLO_CONCATENATE: return t * ratio;
  case HLO_REDUCE: return t * ratio;
  case HLO_REDUCE_WINDOW: {
    double window = 1;
    for (int d = 0; d < user->u.window->rank; d++) window *= (double)user->u.window->dims[d].size;
    return t * window;
  }
  case HLO_DYNAMIC_SLICE: return instr == user->operands[0] ? t : 1;
  case HLO_DYNAMIC_UPDATE_SLICE: return instr == user->operands[1] ? elems(instr) : 1;
  case HLO_SCATTER: return elems(instr);
  default: return t;
  }
}

static int compare_hashes(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* The paths of `user`, each longer by the step through `user`. */
static weft_status *paths_through(planner *p, const hlo_instr *user, paths from, paths *out)
{
  uint64_t *v = WEFT_ARENA_ARRAY(p->arena, uint64_t, from.count);

  *out = (paths){from.count, v};
  if (from.count > MOST_REPEATS) return NULL;
  WEFT_TRY_ALLOC(v);
  for (int i = 0; i < from.count; i++) v[i] = (from.v[i] + (uint64_t)user->id + 1) * UINT64_C(0x9e3779b97f4a7c15);
  qsort(v, (size_t)from.count, sizeof *v, compare_hashes);
  return NULL;
}

static weft_status *join_paths(planner *p, paths *to, paths more)
{
  uint64_t *v;
  int i = 0, k = 0, n = 0;

  if (to->count > MOST_REPEATS || (to->count && to->v == more.v)) return NULL;
  if (!to->count || more.count > MOST_REPEATS) {
    *to = more;
    return NULL;
  }
  v = WEFT_ARENA_ARRAY(p->arena, uint64_t, to->count + more.count);
  WEFT_TRY_ALLOC(v);
  while (i < to->count || k < more.count) {
    uint64_t next = k == more.count || (i < to->count && to->v[i] < more.v[k]) ? to->v[i] : more.v[k];
    i += i < to->count && to->v[i] == next;
    k += k < more.count && more.v[k] == next;
    v[n++] = next;
  }
  *to = (paths){n, v};
  return NULL;
}

static weft_status *add_demand(planner *p, int g, double evaluations, bool at_same_index, paths ways)
{
  int slot;

  if (p->stamp[g] != p->current) {
    p->stamp[g] = p->current;
    p->slot[g] = p->now_count;
    p->now[p->now_count] = (part){.group = g};
    p->same_index[p->now_count++] = 0;
  }
  slot = p->slot[g];
  if (at_same_index) p->same_index[slot] = WEFT_MAX(p->same_index[slot], evaluations);
  else p->now[slot].evaluations += evaluations;
  return join_paths(p, &p->now[slot].paths, ways);
}

/* Does `user` ask for `instr` at the index at which a gather of single elements is asked for? This holds for the
 * gather's indices, and for the pieces of a concatenate that puts such indices side by side. */
static bool asks_as_gather(const hlo_instr *user, const hlo_instr *instr)
{
  if (user->op == HLO_GATHER)
    return instr == user->operands[1] && instr != user->operands[0] && user->u.gather->offset_dims.count == 0;
  if (user->op != HLO_CONCATENATE || instr->shape->dims[user->dims.v[0]] != 1) return false;
  for (int i = 0; i < user->user_count; i++)
    if (user->users[i]->op != HLO_GATHER || user->users[i]->u.gather->index_vector_dim != user->dims.v[0] ||
        !asks_as_gather(user->users[i], user))
      return false;
  return true;
}

/* Collects in p->now the groups that want `instr` with its evaluations in each, and in p->outside whether `instr`
 * must be in memory. */
static weft_status *collect(planner *p, const hlo_instr *instr)
{
  p->current++;
  p->now_count = 0;
  p->outside = instr == instr->parent->root;
  for (int i = 0; i < instr->user_count; i++) {
    const hlo_instr *user = instr->users[i];
    const parts *its = pass_map_get(&p->parts, user->id);
    if (!its || !its->count || !can_take(user, instr)) { /* no count: a view of something in memory */
      p->outside = true;
      continue;
    }
    for (int k = 0; k < its->count; k++) {
      const group *g = &p->groups[its->v[k].group];
      double asked = g->is_row ? asked_by_row(g, instr) : asked_by(p, user, instr, its->v[k].evaluations);
      bool at_same_index = g->is_row || hlo_opcode_is_elementwise(user->op) || asks_as_gather(user, instr);
      paths ways = its->v[k].paths;
      if (!at_same_index) WEFT_TRY(paths_through(p, user, ways, &ways));
      WEFT_TRY(add_demand(p, its->v[k].group, asked, at_same_index, ways));
    }
  }
  for (int i = 0; i < p->now_count; i++) p->now[i].evaluations += p->same_index[i];
  return NULL;
}

/* ---- decisions --------------------------------------------------------------------------------------------------- */

static weft_status *add_member(planner *p, int index, hlo_instr *instr, double surplus, int repeats)
{
  group *g = &p->groups[index];

  if (g->member_count == g->member_capacity) {
    int capacity = g->member_capacity ? g->member_capacity * 2 : 8;
    hlo_instr **members = WEFT_ARENA_ARRAY(p->arena, hlo_instr *, capacity);
    WEFT_TRY_ALLOC(members);
    if (g->member_count) memcpy(members, g->members, (size_t)g->member_count * sizeof *members);
    g->members = members;
    g->member_capacity = capacity;
  }
  g->members[g->member_count++] = instr;
  g->repeats += repeats;
  g->extra += surplus * pass_element_cost(instr);
  g->could_be_row &= keeps_rows(instr);
  /* side by side the operands have that many elements */
  if (is_stack(instr) && (!g->stacks || elems(instr) < g->stacked)) {
    g->stacks++;
    g->stacked = elems(instr);
  }
  return NULL;
}

static weft_status *new_group(planner *p, hlo_instr *root, int *out_index)
{
  group *g;
  bool is_reduction = root->op == HLO_REDUCE || root->op == HLO_REDUCE_WINDOW;
  const hlo_shape *space = is_reduction ? root->operands[0]->shape : root->shape;

  if (p->group_count == p->group_capacity) return WEFT_ERR(INTERNAL, "fusion: more groups than instructions");
  g = &p->groups[ *out_index = p->group_count++];
  *g = (group){.root = root, .could_be_row = true};
  if (root->op == HLO_DYNAMIC_UPDATE_SLICE) space = root->operands[1]->shape;
  if (root->op == HLO_SCATTER) space = root->operands[root->operand_count - 1]->shape;
  space = hlo_shape_leaf(space, 0);
  g->space = space && hlo_shape_is_array(space) ? (double)hlo_shape_elems(space) : 0;
  return add_member(p, *out_index, root, 0, 0);
}

/* Evaluations of `instr` beyond one per element that joining this group would add: the group's share of the total
 * over all groups that want `instr`. */
static double surplus_of(const planner *p, const hlo_instr *instr, const part *want)
{
  double total = 0;

  for (int i = 0; i < p->now_count; i++) total += p->now[i].evaluations;
  return is_generator(instr) || total <= elems(instr) ? 0 : (total - elems(instr)) * (want->evaluations / total);
}

/* Does computing `instr` inside a group read at most one array besides generators?  Then it replaces one array
 * that the group would read by another. */
static bool adds_no_array(const hlo_instr *instr)
{
  const hlo_instr *array = NULL;

  for (int i = 0; i < instr->operand_count; i++) {
    const hlo_instr *x = instr->operands[i];
    if (is_generator(x) || hlo_shape_is_scalar(x->shape) || x == array) continue;
    if (array) return false;
    array = x;
  }
  return true;
}

static int repeats_of(const hlo_instr *instr, const part *want)
{
  return is_generator(instr) ? 0 : want->paths.count - 1;
}

/* Has the group no room for `instr`?  An instruction that adds no array to read may exceed MOST_MEMBERS by a
 * quarter. */
static bool is_full(const group *g, const hlo_instr *instr, int repeats)
{
  if (is_generator(instr)) return false;
  if (is_stack(instr) && g->stacks == MOST_STACKS && elems(instr) < g->stacked) return true;
  return g->repeats + repeats > MOST_REPEATS ||
         g->member_count >= MOST_MEMBERS + (adds_no_array(instr) ? MOST_MEMBERS / 4 : 0);
}

static bool has_room(planner *p, const hlo_instr *instr, const part *want)
{
  group *g = &p->groups[want->group];
  double extra;

  if (is_full(g, instr, repeats_of(instr, want)) || reads_updated(g, instr)) return false;
  if (g->is_row && !(fits_rows(instr, g->rows, g->cols) && is_spread_by_rows(p, want->group, instr, g->rows, g->cols)))
    return false;
  extra = g->extra + surplus_of(p, instr, want) * pass_element_cost(instr);
  return extra <= EXTRA_PER_ELEMENT * g->space || extra <= FREE_EXTRA;
}

/* A reduction joins a row group, or the one group that wants it when the reductions inside that group stay small. */
static bool reduce_joins(planner *p, const hlo_instr *reduce)
{
  double per_element = elems(reduce) > 0 ? elems(reduce->operands[0]) / elems(reduce) : 0;

  if (!hlo_shape_is_array(reduce->shape) || p->now_count != 1) return false;
  if (p->now[0].evaluations * per_element <= INNER_REDUCE_WORK && !p->groups[p->now[0].group].is_row) return true;
  return try_rows(p, p->now[0].group, reduce);
}

/* Is `instr` one of many slices that pick single elements of one array?  Such slices stay out of their users'
 * groups: one kernel makes them all (multi-output-fusion), and the users' kernels stay equal, so they are compiled
 * once. */
static bool is_one_of_many_picks(const hlo_instr *instr)
{
  return instr->op == HLO_SLICE && hlo_shape_elems(instr->shape) == 1 && instr->operands[0]->user_count >= MANY_PICKS;
}

static bool joins(planner *p, const hlo_instr *instr)
{
  if (p->now_count == 0 || !can_join(instr)) return false;
  if (!is_generator(instr)) {
    if (p->outside || (p->now_count > MOST_GROUPS && !is_view(instr))) return false;
    if (is_one_of_many_picks(instr)) return false;
    if (instr->op == HLO_REDUCE && !reduce_joins(p, instr)) return false;
  }
  for (int i = 0; i < p->now_count; i++)
    if (!has_room(p, instr, &p->now[i])) return false;
  return true;
}

static weft_status *decide(planner *p, hlo_instr *instr)
{
  static const uint64_t at_root = 0;
  parts *mine;
  bool does_join, is_root;
  int own = -1, at = 0;

  WEFT_TRY(collect(p, instr));
  mine = WEFT_ARENA_NEW(p->arena, parts);
  WEFT_TRY_ALLOC(mine);
  does_join = joins(p, instr);
  is_root = !is_view(instr) && (!does_join || p->outside);
  if (is_root) WEFT_TRY(new_group(p, instr, &own));
  mine->count = is_root + (does_join ? p->now_count : 0);
  mine->v = WEFT_ARENA_ARRAY(p->arena, part, mine->count);
  WEFT_TRY_ALLOC(mine->v);
  if (is_root) mine->v[at++] = (part){own, elems(instr), {1, &at_root}};
  for (int i = 0; does_join && i < p->now_count; i++) {
    mine->v[at++] = p->now[i];
    WEFT_TRY(add_member(p, p->now[i].group, instr, surplus_of(p, instr, &p->now[i]), repeats_of(instr, &p->now[i])));
  }
  return pass_map_set(&p->parts, instr->id, mine);
}

/* ---- carrying out ------------------------------------------------------------------------------------------------ */

static weft_status *make_fusion(planner *p, group *g, pass_map *map, bool *changed)
{
  hlo_instr **members = WEFT_ARENA_ARRAY(p->arena, hlo_instr *, g->member_count), *fusion;
  char name[64];

  WEFT_TRY_ALLOC(members);
  for (int i = 0; i < g->member_count; i++) members[i] = g->members[g->member_count - 1 - i]; /* operands first */
  snprintf(name, sizeof name, g->member_count == 1 ? "wrapped_%s" : "%s_fusion", hlo_opcode_name(g->root->op));
  WEFT_TRY(pass_outline(members, g->member_count, &g->root, 1, map, name, &fusion));
  *changed = true;
  return pass_fusion_classify(fusion, g->is_row ? "row" : NULL);
}

static weft_status *fuse_computation(hlo_computation *comp, const gen_target *target, weft_arena *arena, pass_map *map,
                                     bool *changed)
{
  int count = comp->instr_count + 1;
  planner p = {
    .target = target, .arena = arena, .parts.arena = arena, .group_capacity = count,
    .groups = WEFT_ARENA_ARRAY(arena, group, count), .slot = WEFT_ARENA_ARRAY(arena, int, count),
    .stamp = WEFT_ARENA_ARRAY(arena, int, count), .now = WEFT_ARENA_ARRAY(arena, part, count),
    .same_index = WEFT_ARENA_ARRAY(arena, double, count),
  };

  if (!p.groups || !p.slot || !p.stamp || !p.now || !p.same_index) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (hlo_instr *instr = comp->last; instr; instr = instr->prev)
    if (gen_needs_kernel(target, instr) || is_view(instr)) WEFT_TRY(decide(&p, instr));
  for (int i = 0; i < p.group_count; i++) WEFT_TRY(make_fusion(&p, &p.groups[i], map, changed));
  return NULL;
}

static weft_status *fusion_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++)
    WEFT_TRY(fuse_computation(comps.v[i], pass_target(ctx), ctx->scratch, &map, changed));
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_fusion = {"fusion", fusion_run};
