/* passes/dim_orders.c -- dim-orders: arrays that elementwise operations connect get one order of dimensions, so that
 * the transposes between them go.
 *
 *   s = dot(q, k)   w = f(transpose(s))   dot(v, w)      becomes      s = dot(q, k)   w = f(s)   dot(v, w)
 *
 * A dot can read its operands in many orders of dimensions, and give its result in some: where JAX transposes an array
 * between two dots (scores of grouped heads, [batch, heads, queries, group, keys] to [group, batch, heads, queries,
 * keys]), the second dot could read what the first one gives.
 *
 * Terms: a *net* is a set of elementwise operations, transposes, broadcasts, reductions, iotas and reshapes that move
 * dimensions of 1, which are connected by what they read. An *axis* is a dimension of more than one element, which
 * members of the net share: each member has some of the axes, in an order of its own. The net is rewritten so that all
 * members have theirs in one order. Transposes in the net disappear; others come where values enter or leave, unless
 * the axes are in order there. Dots are never members: those that read the net get other dimension numbers, and those
 * that give values to it are left to pass dot-canonicalizer, which comes next.
 *
 * Orders are judged by the bytes that transposes read and write, those that pass dot-canonicalizer makes for the dots
 * at the border included. A net is rewritten where clearly fewer are moved. A reduction of the innermost dimensions
 * remains one. No value changes, apart from the order in which an operation that is free to choose it
 * adds up. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "base/swap.h"
#include "passes/build.h"
#include "passes/passes.h"

enum {
  LEAST_BYTES = 128 << 10, /* of a transpose that is looked at, and the least saving */
  MOST_ORDERS = 24,        /* that are judged */
  UNIT = -1,               /* in the place of an axis: a dimension of 1 */
};

static const double LEAST_GAIN = 1.25; /* bytes moved before, for each that is moved then */

typedef struct net net;

/* The axis of each dimension of an array. */
typedef struct axes { signed char v[HLO_MAX_RANK]; } axes;

typedef struct member {
  net *net;
  hlo_instr *instr, *copy; /* copy: in the net's order */
  axes axes;
} member;

/* A value from outside in the net's order. */
typedef struct entry {
  axes axes;
  int round;       /* in which it was noted last */
  hlo_instr *copy; /* NULL while orders are judged */
  struct entry *next;
} entry;

struct net {
  pass_ctx *ctx;
  pass_map *of;     /* by id: the member of any net */
  member **members; /* in the order of the computation */
  int count, axis_count, dots;
  pass_map entries; /* by id: a list */
  int round;        /* one for each order that is judged */
};

/* place[a]: the position of axis a. */
typedef struct order { signed char place[HLO_MAX_RANK]; } order;

static const member *member_of(const net *n, const hlo_instr *x)
{
  const member *m = pass_map_get(n->of, x->id);
  return m && m->net == n ? m : NULL;
}

static double bytes_of(const hlo_instr *x) { return (double)hlo_shape_total_bytes(x->shape); }

/* The dimensions of an array in that order: those of 1 first. */
static void permutation(int rank, const axes *a, const order *o, int64_t *perm)
{
  int count = 0;

  for (int d = 0; d < rank; d++)
    if (a->v[d] == UNIT) perm[count++] = d;
  int units = count;
  for (int d = 0; d < rank; d++) {
    if (a->v[d] == UNIT) continue;
    int i = count++;
    for (; i > units && o->place[a->v[perm[i - 1]]] > o->place[a->v[d]]; i--) perm[i] = perm[i - 1];
    perm[i] = d;
  }
}

static void invert(int rank, const int64_t *perm, int64_t *place)
{
  for (int i = 0; i < rank; i++) place[perm[i]] = i;
}

static bool same_axes(const axes *a, const axes *b, int rank) { return memcmp(a->v, b->v, (size_t)rank) == 0; }

/* ---- members ----------------------------------------------------------------------------------------------------- */

/* Has the operand of an elementwise operation the dimensions of the result? Others are scalars. */
static bool has_dims(const hlo_instr *x, int operand)
{
  const hlo_shape *a = x->shape, *b = x->operands[operand]->shape;
  return a->rank == b->rank && pass_same_ints(a->dims, b->dims, a->rank);
}

static bool can_be_member(const hlo_instr *x)
{
  if (!hlo_shape_is_array(x->shape) || hlo_shape_elems(x->shape) < 2 || hlo_shape_is_dynamic(x->shape) ||
      pass_has_control_edges(x))
    return false;
  switch (x->op) {
  case HLO_TRANSPOSE: case HLO_BROADCAST: case HLO_IOTA: return true;
  case HLO_REDUCE: return x->operand_count == 2;
  case HLO_RESHAPE: return pass_same_but_units(x->shape, x->operands[0]->shape);
  default:
    if (!hlo_opcode_is_elementwise(x->op) || hlo_opcode_has_side_effect(x->op) || x->called_count > 0) return false;
    for (int i = 0; i < x->operand_count; i++)
      if (!has_dims(x, i) && !hlo_shape_is_scalar(x->operands[i]->shape)) return false;
    return true;
  }
}

/* Copies the axes of dimensions over 1, in their order. */
static void copy_over_units(const hlo_shape *from, const axes *a, const hlo_shape *to, axes *out)
{
  int64_t map[HLO_MAX_RANK];

  pass_map_units(from, to, map);
  for (int d = 0; d < to->rank; d++) out->v[d] = UNIT;
  for (int d = 0; d < from->rank; d++)
    if (map[d] >= 0) out->v[map[d]] = a->v[d];
}

/* The axes that operand i of `x`, of which `a` are the axes, has. False: none, as of a scalar; or they do not follow,
 * as of the operand of a reduction. */
static bool axes_of_operand(const hlo_instr *x, const axes *a, int i, axes *out)
{
  const hlo_shape *shape = x->operands[i]->shape;

  if (hlo_shape_is_scalar(shape)) return false;
  switch (x->op) {
  case HLO_REDUCE: return false;
  case HLO_TRANSPOSE:
    for (int d = 0; d < shape->rank; d++) out->v[x->dims.v[d]] = a->v[d];
    return true;
  case HLO_BROADCAST:
    for (int d = 0; d < shape->rank; d++) out->v[d] = a->v[x->dims.v[d]];
    return true;
  case HLO_RESHAPE: copy_over_units(x->shape, a, shape, out); return true;
  default: *out = *a; return true;
  }
}

/* The axes of the result of `x` if its operand i has the axes `a`. False: they do not follow. */
static bool axes_of_result(const hlo_instr *x, int i, const axes *a, axes *out)
{
  const hlo_shape *shape = x->operands[i]->shape;
  int rank = 0;

  if (hlo_shape_is_scalar(shape)) return false;
  switch (x->op) {
  case HLO_REDUCE:
    for (int d = 0; d < shape->rank; d++)
      if (!pass_ints_contain(x->dims, d)) out->v[rank++] = a->v[d];
    return i == 0;
  case HLO_TRANSPOSE:
    for (int d = 0; d < shape->rank; d++) out->v[d] = a->v[x->dims.v[d]];
    return true;
  case HLO_BROADCAST:
    if (hlo_shape_elems(x->shape) != hlo_shape_elems(shape)) return false;
    for (int d = 0; d < x->shape->rank; d++) out->v[d] = UNIT;
    for (int d = 0; d < shape->rank; d++) out->v[x->dims.v[d]] = a->v[d];
    return true;
  case HLO_RESHAPE: copy_over_units(shape, a, x->shape, out); return true;
  default: *out = *a; return true;
  }
}

static weft_status *add_member(net *n, hlo_instr *x, const axes *a)
{
  if (pass_map_get(n->of, x->id)) return NULL;
  member *m = WEFT_ARENA_NEW(n->ctx->scratch, member);
  WEFT_TRY_ALLOC(m);
  *m = (member){.net = n, .instr = x, .axes = *a};
  n->members[n->count++] = m;
  return pass_map_set(n->of, x->id, m);
}

/* Collects the net of a transpose in n->members. */
static weft_status *find_net(net *n, hlo_instr *transpose)
{
  axes a;

  for (int d = 0; d < transpose->shape->rank; d++)
    a.v[d] = transpose->shape->dims[d] == 1 ? UNIT : (signed char)n->axis_count++;
  WEFT_TRY(add_member(n, transpose, &a));
  for (int next = 0; next < n->count; next++) {
    const member *m = n->members[next];
    for (int i = 0; i < m->instr->operand_count; i++) {
      hlo_instr *x = m->instr->operands[i];
      n->dots += x->op == HLO_DOT;
      if (x->op != HLO_REDUCE && can_be_member(x) && axes_of_operand(m->instr, &m->axes, i, &a))
        WEFT_TRY(add_member(n, x, &a));
    }
    for (int u = 0; u < m->instr->user_count; u++) {
      hlo_instr *x = m->instr->users[u];
      n->dots += x->op == HLO_DOT;
      if (!can_be_member(x)) continue;
      for (int i = 0; i < x->operand_count; i++)
        if (x->operands[i] == m->instr && axes_of_result(x, i, &m->axes, &a)) WEFT_TRY(add_member(n, x, &a));
    }
  }
  return NULL;
}

/* The axes that member `m` wants of its operand i. False: it may have any order. *inside: the operand is a member with
 * these axes. */
static bool wanted_axes(const net *n, const member *m, int i, axes *out, bool *inside)
{
  const member *x = member_of(n, m->instr->operands[i]);
  axes result;

  *inside = false;
  if (m->instr->op == HLO_REDUCE) { /* it was found through its operand */
    *inside = i == 0 && x && axes_of_result(m->instr, 0, &x->axes, &result) &&
              same_axes(&result, &m->axes, m->instr->shape->rank);
    if (*inside) *out = x->axes;
    return *inside;
  }
  if (!axes_of_operand(m->instr, &m->axes, i, out)) return false;
  *inside = x && same_axes(out, &x->axes, x->instr->shape->rank);
  return true;
}

/* ---- dots -------------------------------------------------------------------------------------------------------- */

typedef enum part { BATCH, LEFT, RIGHT, SUM } part;

/* What dimension d of operand `side` is to the dot. *index: its number among the batch dimensions. */
static part part_of_operand(const hlo_instr *dot, int side, int64_t d, int *index)
{
  const hlo_dot_attrs *a = dot->u.dot;
  hlo_ints batch = side ? a->rhs_batch : a->lhs_batch;

  for (int i = 0; i < batch.count; i++)
    if (batch.v[i] == d) {
      *index = i;
      return BATCH;
    }
  return pass_ints_contain(side ? a->rhs_contracting : a->lhs_contracting, d) ? SUM : side ? RIGHT : LEFT;
}

static part part_of_result(const hlo_instr *dot, int64_t d)
{
  const hlo_dot_attrs *a = dot->u.dot;
  int batch = (int)a->lhs_batch.count;

  if (d < batch) return BATCH;
  return d < dot->operands[0]->shape->rank - a->lhs_contracting.count ? LEFT : RIGHT;
}

static bool is_plain_dot(const hlo_instr *x)
{
  return x->op == HLO_DOT && x->operand_count == 2 && !x->u.dot->sparsity && !pass_has_control_edges(x);
}

/* Lie the dimensions of the operand, of which `dims` is the order in memory, as a product reads them: batch dimensions,
 * then those of the sum after or before the others? */
static bool is_readable(const hlo_instr *dot, int side, const int64_t *dims)
{
  const hlo_shape *shape = dot->operands[side]->shape;
  bool seen[4] = {false};
  int last = -1, index;

  for (int i = 0; i < shape->rank; i++) {
    if (shape->dims[dims[i]] == 1) continue;
    int p = (int)part_of_operand(dot, side, dims[i], &index);
    if (p != last && (seen[p] || (p == BATCH && last >= 0))) return false;
    seen[last = p] = true;
  }
  return true;
}

/* Has the result the same order if the dot reads its operand in that order? */
static bool keeps_result(const hlo_instr *dot, int side, const int64_t *dims)
{
  const hlo_shape *shape = dot->operands[side]->shape;
  int64_t last_free = -1;
  int last_batch = -1, index;

  for (int i = 0; i < shape->rank; i++) {
    if (shape->dims[dims[i]] == 1) continue;
    part p = part_of_operand(dot, side, dims[i], &index);
    if (p == SUM) continue;
    if (p == BATCH ? index < last_batch : dims[i] < last_free) return false;
    if (p == BATCH) last_batch = index;
    else last_free = dims[i];
  }
  return true;
}

static bool is_only_transposed(const hlo_instr *x)
{
  return x->user_count == 1 && x != x->parent->root && x->users[0]->op == HLO_TRANSPOSE;
}

/* The bytes that transposes move if the dot reads operand `side`, whose dimensions lie in that order. */
static double cost_of_reading(const hlo_instr *dot, int side, const int64_t *dims)
{
  if (!is_readable(dot, side, dims)) return 2 * bytes_of(dot->operands[side]);
  return keeps_result(dot, side, dims) || is_only_transposed(dot) ? 0 : 2 * bytes_of(dot);
}

/* Could operand `side` be read as it is, if the batch and free dimensions of the result lie in the order `dims`? */
static bool gives(const hlo_instr *dot, int side, const int64_t *dims)
{
  const hlo_shape *shape = dot->operands[side]->shape;
  int64_t iota[HLO_MAX_RANK], wanted[HLO_MAX_RANK], own[HLO_MAX_RANK];
  int first = side ? (int)(dot->operands[0]->shape->rank - dot->u.dot->lhs_contracting.count) : 0;
  int batch = (int)dot->u.dot->lhs_batch.count, count = 0, found = 0, index = 0;

  for (int i = 0; i < shape->rank; i++) iota[i] = i;
  if (!is_readable(dot, side, iota)) return false;
  for (int i = 0; i < dot->shape->rank; i++) {
    part p = part_of_result(dot, dims[i]);
    if (dot->shape->dims[dims[i]] != 1 && (p == BATCH || p == (side ? RIGHT : LEFT))) wanted[found++] = dims[i];
  }
  int64_t free = side ? first : batch;
  for (int d = 0; d < shape->rank; d++) {
    part p = part_of_operand(dot, side, d, &index);
    if (p == SUM) continue;
    int64_t at = p == BATCH ? index : free++;
    if (shape->dims[d] != 1) own[count++] = at;
  }
  return count == found && pass_same_ints(own, wanted, count);
}

/* The bytes that transposes move for a dot and its result, which is wanted with its dimensions in the order `dims`.
 * is_alone: nobody wants it otherwise. */
static double cost_of_result(const hlo_instr *dot, const int64_t *dims, bool is_alone)
{
  int64_t iota[HLO_MAX_RANK], last[3] = {-1, -1, -1};
  bool is_moved[3] = {false}, in_parts = is_alone, seen[3] = {false};
  int before = -1;
  double cost = 0;

  for (int i = 0; i < dot->shape->rank; i++) iota[i] = i;
  if (pass_moves(dot->shape, dims)) {
    for (int i = 0; i < dot->shape->rank; i++) {
      if (dot->shape->dims[dims[i]] == 1) continue;
      int p = (int)part_of_result(dot, dims[i]);
      if (p != before && (seen[p] || (p == BATCH && before >= 0))) in_parts = false;
      seen[before = p] = true;
      if (dims[i] < last[p]) is_moved[p] = true;
      last[p] = dims[i];
    }
    bool is_swapped = seen[LEFT] && seen[RIGHT] && before == LEFT;
    bool any = is_moved[BATCH] || is_moved[LEFT] || is_moved[RIGHT];
    for (int side = 0; side < 2; side++)
      if ((is_moved[BATCH] || is_moved[side ? RIGHT : LEFT]) && 2 * bytes_of(dot->operands[side]) > bytes_of(dot))
        in_parts = false;
    if (!in_parts || (is_swapped && any)) {
      cost = 2 * bytes_of(dot);
      dims = iota;
    }
  }
  for (int side = 0; side < 2; side++)
    if (!gives(dot, side, dims)) cost += 2 * bytes_of(dot->operands[side]);
  return cost;
}

/* ---- which order ------------------------------------------------------------------------------------------------- */

/* Have all users of the value the net's order? */
static bool is_read_inside(const net *n, const hlo_instr *x)
{
  if (x == x->parent->root) return false;
  for (int u = 0; u < x->user_count; u++)
    if (!member_of(n, x->users[u])) return false;
  return true;
}

/* What transposes move for a transpose of the net, as the program has it, and the dots that read it. */
static double cost_of_transpose(const hlo_instr *x)
{
  const hlo_instr *from = x->operands[0];
  int64_t iota[HLO_MAX_RANK];
  bool only_dots = x != x->parent->root;
  double through = 0, direct = 2 * bytes_of(x);

  for (int d = 0; d < x->shape->rank; d++) iota[d] = d;
  if (is_plain_dot(from)) direct = cost_of_result(from, x->dims.v, from->user_count == 1);
  for (int u = 0; u < x->user_count; u++) {
    const hlo_instr *dot = x->users[u];
    if (!is_plain_dot(dot)) {
      only_dots = false;
      continue;
    }
    for (int side = 0; side < 2; side++) {
      int64_t dims[HLO_MAX_RANK];
      if (dot->operands[side] != x) continue;
      invert(x->shape->rank, x->dims.v, dims); /* dims[d]: the dimension of x that dimension d of `from` is */
      direct += cost_of_reading(dot, side, iota);
      through += cost_of_reading(dot, side, dims);
    }
  }
  return only_dots ? fmin(through, direct) : direct;
}

/* Notes that the net reads `value`, which it does not contain, with these axes. *out: what is known of it. *is_new: it
 * was not noted in this round. */
static weft_status *note_entry(net *n, const hlo_instr *value, const axes *a, entry **out, bool *is_new)
{
  entry *first = pass_map_get(&n->entries, value->id), *e = first;

  while (e && !same_axes(&e->axes, a, value->shape->rank)) e = e->next;
  *is_new = !e || e->round != n->round;
  if (!e) {
    e = WEFT_ARENA_NEW(n->ctx->scratch, entry);
    WEFT_TRY_ALLOC(e);
    *e = (entry){.axes = *a, .next = first};
    WEFT_TRY(pass_map_set(&n->entries, value->id, e));
  }
  e->round = n->round;
  *out = e;
  return NULL;
}

static weft_status *cost_before(net *n, double *out)
{
  int64_t iota[HLO_MAX_RANK];

  *out = 0;
  for (int d = 0; d < HLO_MAX_RANK; d++) iota[d] = d;
  for (int k = 0; k < n->count; k++) {
    const hlo_instr *x = n->members[k]->instr;
    if (x->op == HLO_TRANSPOSE && pass_moves(x->operands[0]->shape, x->dims.v)) {
      *out += cost_of_transpose(x);
      continue;
    }
    for (int i = 0; i < x->operand_count; i++) {
      axes a;
      entry *e;
      bool inside, is_new;
      if (!wanted_axes(n, n->members[k], i, &a, &inside) || inside || !is_plain_dot(x->operands[i])) continue;
      WEFT_TRY(note_entry(n, x->operands[i], &a, &e, &is_new));
      if (is_new) *out += cost_of_result(x->operands[i], iota, false);
    }
    for (int u = 0; u < x->user_count; u++)
      for (int side = 0; is_plain_dot(x->users[u]) && side < 2; side++)
        if (x->users[u]->operands[side] == x) *out += cost_of_reading(x->users[u], side, iota);
  }
  return NULL;
}

/* Does anything but dots read the member in its own order: the caller, other instructions, or members that want other
 * axes? */
static bool is_read_as_it_is(const net *n, const member *m)
{
  const hlo_instr *x = m->instr;

  if (x == x->parent->root) return true;
  for (int u = 0; u < x->user_count; u++) {
    const member *user = member_of(n, x->users[u]);
    if (!user && !is_plain_dot(x->users[u])) return true;
    for (int i = 0; user && i < user->instr->operand_count; i++) {
      bool inside;
      axes a;
      if (user->instr->operands[i] == x && !(wanted_axes(n, user, i, &a, &inside) && inside)) return true;
    }
  }
  return false;
}

/* Are the innermost dimensions reduced, in the order `dims` of the operand? */
static bool reduces_innermost(const hlo_instr *reduce, const int64_t *dims)
{
  const hlo_shape *shape = reduce->operands[0]->shape;
  bool in_end = false;

  for (int i = 0; i < shape->rank; i++) {
    if (shape->dims[dims[i]] == 1) continue;
    bool is_reduced = pass_ints_contain(reduce->dims, dims[i]);
    if (in_end && !is_reduced) return false;
    in_end = in_end || is_reduced;
  }
  return in_end;
}

/* Makes the order the innermost of a reduction another dimension? */
static bool spoils_reduction(const net *n, const member *m, const order *o)
{
  int64_t iota[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  const hlo_instr *x = m->instr;
  bool inside;
  axes a;

  if (x->op != HLO_REDUCE || !wanted_axes(n, m, 0, &a, &inside)) return false;
  for (int d = 0; d < HLO_MAX_RANK; d++) iota[d] = d;
  permutation(x->operands[0]->shape->rank, &a, o, dims);
  return reduces_innermost(x, iota) && !reduces_innermost(x, dims);
}

static weft_status *cost_of_entries(net *n, const member *m, const order *o, double *cost)
{
  int64_t perm[HLO_MAX_RANK];

  for (int i = 0; i < m->instr->operand_count; i++) {
    const hlo_instr *x = m->instr->operands[i];
    bool inside, is_new;
    axes a;
    entry *e;
    if (!wanted_axes(n, m, i, &a, &inside) || inside) continue;
    WEFT_TRY(note_entry(n, x, &a, &e, &is_new));
    if (!is_new) continue;
    permutation(x->shape->rank, &a, o, perm);
    if (is_plain_dot(x)) *cost += cost_of_result(x, perm, is_read_inside(n, x));
    else if (pass_moves(x->shape, perm)) *cost += 2 * bytes_of(x);
  }
  return NULL;
}

/* The bytes that transposes move if the net has that order. */
static weft_status *cost_after(net *n, const order *o, double *out)
{
  n->round++;
  *out = 0;
  for (int k = 0; k < n->count; k++) {
    const member *m = n->members[k];
    const hlo_instr *x = m->instr;
    int64_t perm[HLO_MAX_RANK];
    if (spoils_reduction(n, m, o)) {
      *out = INFINITY;
      return NULL;
    }
    WEFT_TRY(cost_of_entries(n, m, o, out));
    permutation(x->shape->rank, &m->axes, o, perm);
    for (int u = 0; u < x->user_count; u++) {
      const hlo_instr *user = x->users[u];
      for (int side = 0; is_plain_dot(user) && side < 2; side++)
        if (user->operands[side] == x) *out += cost_of_reading(user, side, perm);
    }
    if (pass_moves(x->shape, perm) && is_read_as_it_is(n, m)) *out += 2 * bytes_of(x);
  }
  return NULL;
}

/* Adds an order to the candidates: axes as they lie in `dims` of an array. */
static void add_order(const net *n, const hlo_shape *shape, const axes *a, const int64_t *dims, order *orders,
                      int *count)
{
  order o = {{0}};
  int found = 0;

  for (int i = 0; i < shape->rank; i++)
    if (a->v[dims[i]] != UNIT) o.place[a->v[dims[i]]] = (signed char)found++;
  if (found < n->axis_count || *count == MOST_ORDERS) return;
  for (int k = 0; k < *count; k++)
    if (memcmp(&orders[k], &o, sizeof o) == 0) return;
  orders[(*count)++] = o;
}

/* The orders of the members, and those in which a dot could read one. */
static int list_orders(const net *n, order *orders)
{
  int count = 0;

  for (int k = 0; k < n->count; k++) {
    const member *m = n->members[k];
    const hlo_instr *x = m->instr;
    int64_t dims[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++) dims[d] = d;
    add_order(n, x->shape, &m->axes, dims, orders, &count);
    for (int u = 0; u < x->user_count; u++)
      for (int side = 0; is_plain_dot(x->users[u]) && side < 2; side++) {
        static const part parts[2][4] = {{BATCH, LEFT, RIGHT, SUM}, {BATCH, SUM, LEFT, RIGHT}};
        if (x->users[u]->operands[side] != x) continue;
        for (int form = 0; form < 2; form++) {
          int found = 0, index;
          for (int p = 0; p < 4; p++)
            for (int d = 0; d < x->shape->rank; d++)
              if (part_of_operand(x->users[u], side, d, &index) == parts[form][p]) dims[found++] = d;
          add_order(n, x->shape, &m->axes, dims, orders, &count);
        }
      }
  }
  return count;
}

/* The order that moves clearly fewer bytes than the program does; false: there is none. */
static weft_status *choose_order(net *n, order *out, bool *found)
{
  order orders[MOST_ORDERS];
  double before, best;
  int count = list_orders(n, orders);

  *found = false;
  WEFT_TRY(cost_before(n, &before));
  best = fmin(before / LEAST_GAIN, before - LEAST_BYTES);
  for (int k = 0; k < count; k++) {
    double cost;
    WEFT_TRY(cost_after(n, &orders[k], &cost));
    if (cost > best || (*found && cost == best)) continue;
    best = cost;
    *out = orders[k];
    *found = true;
  }
  return NULL;
}

/* ---- rewriting --------------------------------------------------------------------------------------------------- */

/* x with its dimensions in that order. */
static hlo_instr *permuted(pass_build *b, hlo_instr *x, const int64_t *perm)
{
  int64_t dims[HLO_MAX_RANK];

  if (b->error || pass_moves(x->shape, perm)) return pb_transpose(b, x, perm);
  for (int i = 0; i < x->shape->rank; i++) dims[i] = x->shape->dims[perm[i]];
  return pb_reshape(b, x, x->shape->rank, dims);
}

/* Operand i of a member in the net's order. */
static weft_status *ordered_operand(net *n, const member *m, int i, const order *o, pass_build *b, hlo_instr **out)
{
  hlo_instr *x = m->instr->operands[i];
  int64_t perm[HLO_MAX_RANK];
  bool inside, is_new;
  axes a;
  entry *e;

  *out = x;
  if (!wanted_axes(n, m, i, &a, &inside)) return NULL;
  if (inside) {
    *out = member_of(n, x)->copy;
    return NULL;
  }
  WEFT_TRY(note_entry(n, x, &a, &e, &is_new));
  if (!e->copy) {
    permutation(x->shape->rank, &a, o, perm);
    e->copy = permuted(b, x, perm);
    WEFT_TRY(pass_build_finish(b));
  }
  *out = e->copy;
  return NULL;
}

/* The dimensions of a broadcast's result that those of its operand become, in the net's order. */
static hlo_instr *ordered_broadcast(pass_build *b, const member *m, hlo_instr *x, const order *o, const int64_t *dims,
                                    const int64_t *place)
{
  int64_t perm[HLO_MAX_RANK], map[HLO_MAX_RANK];
  axes a;

  if (axes_of_operand(m->instr, &m->axes, 0, &a)) {
    permutation(x->shape->rank, &a, o, perm);
    for (int i = 0; i < x->shape->rank; i++) map[i] = place[m->instr->dims.v[perm[i]]];
  }
  return pb_broadcast(b, x, m->instr->shape->rank, dims, map);
}

static hlo_instr *ordered_reduce(const net *n, pass_build *b, const member *m, hlo_instr *const *operands,
                                 const order *o)
{
  const hlo_instr *x = m->instr;
  int rank = operands[0]->shape->rank, count = 0;
  int64_t perm[HLO_MAX_RANK], dims[HLO_MAX_RANK];

  permutation(rank, &member_of(n, x->operands[0])->axes, o, perm);
  for (int i = 0; i < rank; i++)
    if (pass_ints_contain(x->dims, perm[i])) dims[count++] = i;
  hlo_instr *copy = pb_clone(b, x, operands);
  if (copy) copy->dims = pb_ints(b, count, dims);
  return copy;
}

/* Makes the copy of a member in the net's order, before the member. */
static weft_status *copy_member(net *n, member *m, const order *o)
{
  pass_build b = PASS_BUILD_AT(m->instr);
  hlo_instr *x = m->instr, *operands[3] = {NULL};
  int64_t perm[HLO_MAX_RANK], place[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  int rank = x->shape->rank;

  permutation(rank, &m->axes, o, perm);
  invert(rank, perm, place);
  for (int i = 0; i < rank; i++) dims[i] = x->shape->dims[perm[i]];
  for (int i = 0; i < x->operand_count; i++) WEFT_TRY(ordered_operand(n, m, i, o, &b, &operands[i]));
  const hlo_shape *shape = hlo_shape_array(&x->parent->module->arena, x->shape->type, rank, dims);
  WEFT_TRY_ALLOC(shape);
  switch (x->op) {
  case HLO_TRANSPOSE: m->copy = operands[0]; return pass_build_finish(&b);
  case HLO_RESHAPE: m->copy = pb_reshape(&b, operands[0], rank, dims); break;
  case HLO_BROADCAST: m->copy = ordered_broadcast(&b, m, operands[0], o, dims, place); break;
  case HLO_IOTA: m->copy = pb_iota(&b, shape, place[x->dims.v[0]]); break;
  case HLO_REDUCE: m->copy = ordered_reduce(n, &b, m, operands, o); break;
  default: m->copy = pb_clone(&b, x, operands);
  }
  WEFT_TRY(pass_build_finish(&b));
  m->copy->shape = shape;
  return NULL;
}

/* The dot reads its operand `side` from `copy`, whose dimension place[d] is dimension d of the operand; the result is
 * transposed where batch or free dimensions come in another order then. */
static weft_status *read_copy(hlo_instr *dot, int side, hlo_instr *copy, const int64_t *place)
{
  pass_build b = PASS_BUILD_AT(dot);
  const hlo_dot_attrs *from = dot->u.dot;
  hlo_dot_attrs *attrs = weft_arena_memdup(&dot->parent->module->arena, from, sizeof *attrs);
  int64_t batch[2][HLO_MAX_RANK], sums[HLO_MAX_RANK], perm[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  int64_t order[HLO_MAX_RANK], at[HLO_MAX_RANK]; /* at: of a free dimension of the result, its place in the copy */
  hlo_ints own = side ? from->rhs_batch : from->lhs_batch, other = side ? from->lhs_batch : from->rhs_batch;
  hlo_ints own_sums = side ? from->rhs_contracting : from->lhs_contracting;
  int rank = dot->shape->rank, count = (int)own.count, free = 0;
  int first = side ? (int)(dot->operands[0]->shape->rank - from->lhs_contracting.count) : count;

  WEFT_TRY_ALLOC(attrs);
  /* order[i]: the dimension of the result that becomes dimension i */
  for (int i = 0; i < rank; i++) order[i] = i;
  for (int i = 1; i < count; i++)
    for (int j = i; j > 0 && place[own.v[order[j - 1]]] > place[own.v[order[j]]]; j--)
      WEFT_SWAP(order[j], order[j - 1]);
  for (int i = 0; i < count; i++) {
    batch[side][i] = place[own.v[order[i]]];
    batch[1 - side][i] = other.v[order[i]];
  }
  for (int i = 0; i < own_sums.count; i++) sums[i] = place[own_sums.v[i]];
  for (int d = 0; d < copy->shape->rank; d++) {
    if (pass_ints_contain(own, d) || pass_ints_contain(own_sums, d)) continue;
    int in_result = first + free++, j = in_result;
    at[in_result] = place[d];
    for (; j > first && at[order[j - 1]] > place[d]; j--) order[j] = order[j - 1];
    order[j] = in_result;
  }
  for (int i = 0; i < rank; i++) {
    perm[order[i]] = i;
    dims[i] = dot->shape->dims[order[i]];
  }
  attrs->lhs_batch = pb_ints(&b, count, batch[0]);
  attrs->rhs_batch = pb_ints(&b, count, batch[1]);
  *(side ? &attrs->rhs_contracting : &attrs->lhs_contracting) = pb_ints(&b, (int)own_sums.count, sums);
  hlo_instr *lhs = side ? dot->operands[0] : copy, *rhs = side ? copy : dot->operands[1];
  hlo_instr *result = pb_dot_like(&b, dot, lhs, rhs, dot->shape->type, dims);
  if (result) result->u.dot = attrs;
  return pass_build_replace(&b, dot, permuted(&b, result, perm));
}

/* Gives the dot the copy of operand `side`, transposed so that a product can read it; the result stays as it is. */
static weft_status *read_transposed(hlo_instr *dot, int side, hlo_instr *copy, const int64_t *place)
{
  static const part parts[] = {LEFT, RIGHT, SUM};
  pass_build b = PASS_BUILD_AT(dot);
  hlo_ints batch = side ? dot->u.dot->rhs_batch : dot->u.dot->lhs_batch;
  int64_t dims[HLO_MAX_RANK], perm[HLO_MAX_RANK];
  int count = 0, index;

  for (int i = 0; i < batch.count; i++) dims[count++] = batch.v[i];
  for (int p = 0; p < (int)WEFT_COUNT(parts); p++)
    for (int d = 0; d < copy->shape->rank; d++)
      if (part_of_operand(dot, side, d, &index) == parts[p]) dims[count++] = d;
  for (int i = 0; i < count; i++) perm[i] = place[dims[i]];
  copy = permuted(&b, copy, perm);
  WEFT_TRY(pass_build_finish(&b));
  invert(count, dims, perm);
  return read_copy(dot, side, copy, perm);
}

/* Gives the dots that read the member its copy. */
static weft_status *connect_dots(const member *m, const order *o)
{
  int64_t perm[HLO_MAX_RANK], place[HLO_MAX_RANK];
  const hlo_instr *x = m->instr;

  permutation(x->shape->rank, &m->axes, o, perm);
  invert(x->shape->rank, perm, place);
  for (int u = x->user_count - 1; u >= 0; u = WEFT_MIN(u, x->user_count) - 1) {
    hlo_instr *dot = x->users[u];
    if (!is_plain_dot(dot)) continue;
    int side = dot->operands[1] == x;
    if (is_readable(dot, side, perm)) WEFT_TRY(read_copy(dot, side, m->copy, place));
    else WEFT_TRY(read_transposed(dot, side, m->copy, place));
  }
  return NULL;
}

/* Gives what else reads the member, or the caller, the copy in the member's order. */
static weft_status *connect_others(const net *n, const member *m, const order *o)
{
  hlo_instr *x = m->instr, *back;
  pass_build b = PASS_BUILD_AT(x);
  int64_t perm[HLO_MAX_RANK], place[HLO_MAX_RANK];

  if (is_read_inside(n, x)) return NULL;
  permutation(x->shape->rank, &m->axes, o, perm);
  invert(x->shape->rank, perm, place);
  back = permuted(&b, m->copy, place);
  WEFT_TRY(pass_build_finish(&b));
  return hlo_replace_uses(x, back);
}

static weft_status *rewrite(net *n, const order *o)
{
  for (int k = 0; k < n->count; k++) WEFT_TRY(copy_member(n, n->members[k], o));
  for (int k = 0; k < n->count; k++) WEFT_TRY(connect_dots(n->members[k], o));
  for (int k = 0; k < n->count; k++) WEFT_TRY(connect_others(n, n->members[k], o));
  for (int k = n->count - 1; k >= 0; k--)
    if (hlo_is_dead(n->members[k]->instr)) WEFT_TRY(hlo_remove(n->members[k]->instr));
  return NULL;
}

/* Finds the nets of all large transposes; their members take parts of `members`. */
static weft_status *find_nets(hlo_computation *comp, pass_ctx *ctx, pass_map *of, net **out, int *out_count)
{
  int low, ids, count = 0, used = 0;

  HLO_FOREACH(x, comp)
    count += x->op == HLO_TRANSPOSE && bytes_of(x) >= LEAST_BYTES && pass_moves(x->operands[0]->shape, x->dims.v);
  *out_count = 0;
  if (count == 0) return NULL;
  hlo_id_range(comp, &low, &ids);
  member **members = WEFT_ARENA_ARRAY(ctx->scratch, member *, ids);
  net *nets = WEFT_ARENA_ARRAY(ctx->scratch, net, count);
  WEFT_TRY_ALLOC(members && nets);
  HLO_FOREACH(x, comp) {
    if (x->op != HLO_TRANSPOSE || bytes_of(x) < LEAST_BYTES || !pass_moves(x->operands[0]->shape, x->dims.v) ||
        !can_be_member(x) || pass_map_get(of, x->id))
      continue;
    net *n = &nets[(*out_count)++];
    *n = (net){.ctx = ctx, .of = of, .members = members + used, .entries = {.arena = ctx->scratch}};
    WEFT_TRY(find_net(n, x));
    used += n->count;
    n->count = 0; /* the members are listed again, in the order of the computation */
  }
  HLO_FOREACH(x, comp) {
    member *m = pass_map_get(of, x->id);
    if (m) m->net->members[m->net->count++] = m;
  }
  *out = nets;
  return NULL;
}

static weft_status *order_computation(hlo_computation *comp, pass_ctx *ctx, bool *changed)
{
  pass_map of = {.arena = ctx->scratch};
  net *nets = NULL;
  int count = 0;
  bool found;
  order o;

  WEFT_TRY(find_nets(comp, ctx, &of, &nets, &count));
  for (int i = 0; i < count; i++) {
    if (nets[i].dots == 0) continue;
    WEFT_TRY(choose_order(&nets[i], &o, &found));
    if (!found) continue;
    WEFT_TRY(rewrite(&nets[i], &o));
    *changed = true;
  }
  return NULL;
}

static weft_status *dim_orders_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  HLO_FOREACH_COMPUTATION(comp, module) WEFT_TRY(order_computation(comp, ctx, changed));
  return NULL;
}
const hlo_pass pass_dim_orders = {"dim-orders", dim_orders_run};
