/* codegen/model/nest.c -- which dimensions of a result a walk must keep apart.
 * Boundaries between dimensions are kept as strides in row-major order ("the linear index is split at 256"), which
 * reshapes leave alone.  Each operation adds the boundaries that its access pattern needs. */
#include <config.h>

#include "codegen/model/nest.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum { MAX_MARKS = 48, MAX_CUTS = 256 };

/* A set of strides. */
typedef struct marks {
  int count;
  int64_t v[MAX_MARKS];
} marks;

static void mark(marks *m, int64_t stride)
{
  if (stride <= 1 || m->count == MAX_MARKS) return;
  for (int i = 0; i < m->count; i++)
    if (m->v[i] == stride) return;
  m->v[m->count++] = stride;
}

/* strides[d] = product of dims[d..]; strides[rank] = 1. */
static void suffix_products(const hlo_shape *s, int64_t *strides)
{
  strides[s->rank] = 1;
  for (int d = s->rank - 1; d >= 0; d--) strides[d] = strides[d + 1] * WEFT_MAX(s->dims[d], 1);
}

static void mark_all(marks *m, const hlo_shape *s)
{
  int64_t p[HLO_MAX_RANK + 1];
  suffix_products(s, p);
  for (int d = 1; d < s->rank; d++) mark(m, p[d]);
}

static void mark_dim(marks *m, const hlo_shape *s, int64_t d, bool right)
{
  int64_t p[HLO_MAX_RANK + 1];
  suffix_products(s, p);
  mark(m, p[d]);
  if (right) mark(m, p[d + 1]);
}

/* Carries the marks of `in` over to `out`. Dimension j of `in` is dimension to[j] of `out` (-1: `out` does not have
 * it). */
static void carry(const marks *from, const hlo_shape *in, marks *m, const hlo_shape *out, const int64_t *to)
{
  int64_t p[HLO_MAX_RANK + 1], q[HLO_MAX_RANK + 1];

  suffix_products(in, p);
  suffix_products(out, q);
  for (int i = 0; i < from->count; i++) {
    int j = 0;
    /* the dimension j with p[j+1] <= v < p[j], or the outermost */
    while (j < in->rank - 1 && from->v[i] < p[j + 1]) j++;
    if (in->rank == 0 || to[j] < 0 || from->v[i] % p[j + 1]) continue;
    mark(m, q[to[j] + 1] * (from->v[i] / p[j + 1]));
    if (from->v[i] == p[j + 1] && j + 1 < in->rank && to[j + 1] >= 0) mark(m, q[to[j + 1]]);
  }
}

/* Marks the boundaries between dimensions of `out` that are not neighbours in `in`. from[d] is the dimension of
 * `in`, or -1. Dimensions of size 1 are ignored. */
static void mark_breaks(marks *m, const hlo_shape *out, const int64_t *from, const hlo_shape *in)
{
  int64_t p[HLO_MAX_RANK + 1];
  int last = -1;

  suffix_products(out, p);
  for (int d = 0; d < out->rank; d++) {
    if (out->dims[d] == 1) continue;
    if (last >= 0) {
      bool joined = from[last] < 0 && from[d] < 0;
      if (from[last] >= 0 && from[d] > from[last]) {
        joined = true;
        for (int64_t j = from[last] + 1; j < from[d]; j++) joined = joined && in->dims[j] == 1;
      }
      if (!joined) mark(m, p[d]);
    }
    last = d;
  }
}

static void marks_of(const hlo_instr *x, marks *const *known, marks *m)
{
  const hlo_shape *out = x->shape, *in = x->operand_count ? x->operands[0]->shape : NULL;
  int64_t to[HLO_MAX_RANK], from[HLO_MAX_RANK];
  bool as_it_is = hlo_opcode_is_elementwise(x->op) || x->op == HLO_OPT_BARRIER ||
                  (x->op == HLO_BITCAST_CONVERT && in->rank == out->rank); /* of the same width */

  for (int d = 0; d < HLO_MAX_RANK; d++) to[d] = from[d] = -1;
  switch (x->op) {
  case HLO_PARAMETER: case HLO_CONSTANT: return;
  case HLO_BROADCAST:
    for (int j = 0; j < in->rank; j++) to[j] = x->dims.v[j], from[x->dims.v[j]] = j;
    break;
  case HLO_TRANSPOSE:
    for (int i = 0; i < in->rank; i++) from[i] = x->dims.v[i], to[x->dims.v[i]] = i;
    break;
  case HLO_REDUCE: {
    int kept = 0;
    for (int j = 0; j < in->rank; j++) {
      bool reduced = false;
      for (int k = 0; k < x->dims.count; k++) reduced = reduced || x->dims.v[k] == j;
      if (!reduced) to[j] = kept, from[kept++] = j;
    }
    if (hlo_shape_is_tuple(out)) out = out->elements[0];
    break;
  }
  case HLO_SLICE: case HLO_DYNAMIC_SLICE: case HLO_PAD: case HLO_CONCATENATE:
    for (int d = 0; d < out->rank; d++) {
      bool strided = (x->op == HLO_SLICE && x->u.slice->stride.count && x->u.slice->stride.v[d] != 1) ||
                     (x->op == HLO_PAD && x->u.pad.dims[d].interior > 0);
      bool changed = x->op == HLO_CONCATENATE ? d == x->dims.v[0] : in->dims[d] != out->dims[d];
      if (changed || strided) mark_dim(m, out, d, strided);
      to[d] = d;
    }
    for (int k = 0; k < x->operand_count; k++)
      if (x->operands[k]->shape->rank == out->rank) carry(known[x->operands[k]->id], x->operands[k]->shape, m, out, to);
    return;
  case HLO_RESHAPE: case HLO_BITCAST:
    for (int i = 0; i < known[x->operands[0]->id]->count; i++) mark(m, known[x->operands[0]->id]->v[i]);
    return;
  case HLO_IOTA: mark_dim(m, out, x->dims.v[0], true); return;
  default:
    if (as_it_is) {
      for (int k = 0; k < x->operand_count; k++) {
        const marks *o = known[x->operands[k]->id];
        if (x->operands[k]->shape->rank == out->rank || hlo_shape_is_array(x->operands[k]->shape))
          for (int i = 0; i < o->count; i++) mark(m, o->v[i]);
      }
    } else if (hlo_shape_is_array(out)) {
      mark_all(m, out);
    }
    return;
  }
  carry(known[x->operands[0]->id], in, m, out, to);
  mark_breaks(m, out, from, in);
}

static weft_status *know_marks(weft_arena *arena, const hlo_computation *comp, marks *const *state, marks ***out);

/* What a loop by elements needs apart: all that its start, its body and its condition need. */
static weft_status *loop_marks(weft_arena *arena, const hlo_instr *loop, marks *const *known, marks *m)
{
  const hlo_instr *init = loop->operands[0];
  marks **state = WEFT_ARENA_ARRAY(arena, marks *, init->operand_count), **inside;

  WEFT_TRY_ALLOC(state);
  for (int k = 0; k < init->operand_count; k++) state[k] = known[init->operands[k]->id];
  for (int c = 0; c < loop->called_count; c++) {
    WEFT_TRY(know_marks(arena, loop->called[c], state, &inside));
    HLO_FOREACH(x, loop->called[c])
      for (int i = 0; i < inside[x->id]->count; i++) mark(m, inside[x->id]->v[i]);
  }
  return NULL;
}

/* The marks of each instruction, by its id. `state`: those of the elements of the parameter of a loop's body, or
 * NULL. */
static weft_status *know_marks(weft_arena *arena, const hlo_computation *comp, marks *const *state, marks ***out)
{
  int low, count;

  hlo_id_range(comp, &low, &count);
  marks **known = WEFT_ARENA_ARRAY(arena, marks *, count);
  WEFT_TRY_ALLOC(known);
  known -= low;
  HLO_FOREACH(x, comp) {
    WEFT_TRY_ALLOC(known[x->id] = WEFT_ARENA_NEW(arena, marks));
    if (state && x->op == HLO_GET_TUPLE_ELEMENT) *known[x->id] = *state[x->u.tuple_index];
    else if (x->op == HLO_WHILE) WEFT_TRY(loop_marks(arena, x, known, known[x->id]));
    else if (!state || x->op != HLO_TUPLE) marks_of(x, known, known[x->id]);
  }
  *out = known;
  return NULL;
}

/* ---- cuts: where a loop over the root meets the seam of a concatenate or the edge of a pad --------------------- */

typedef struct seam {
  int64_t period, at; /* in elements of the linear index: at n * period + at for every n */
} seam;
typedef struct seams {
  int count;
  seam v[MAX_CUTS];
} seams;

static void add_seam(seams *s, int64_t period, int64_t at)
{
  if (at > 0 && at < period && s->count < MAX_CUTS) s->v[s->count++] = (seam){period, at};
}

static void find_seams(const hlo_instr *x, seams *s, int depth)
{
  int64_t p[HLO_MAX_RANK + 1];

  if (depth > 64 || !hlo_shape_is_array(x->shape)) return;
  suffix_products(x->shape, p);
  if (x->op == HLO_CONCATENATE) {
    int64_t d = x->dims.v[0], offset = 0;
    for (int k = 0; k < x->operand_count; k++) add_seam(s, p[d], (offset += x->operands[k]->shape->dims[d]) * p[d + 1]);
  } else if (x->op == HLO_PAD) {
    for (int d = 0; d < x->shape->rank; d++) {
      const hlo_pad_dim *pad = &x->u.pad.dims[d];
      int64_t n = x->operands[0]->shape->dims[d], size = x->shape->dims[d];
      /* a padding may be of any size, and also negative */
      if (pad->interior > 0 || pad->low >= size || pad->low <= -n) continue;
      if (pad->low > 0) add_seam(s, p[d], pad->low * p[d + 1]);
      if (pad->low < size - n) add_seam(s, p[d], (pad->low + n) * p[d + 1]);
    }
  } else if (hlo_opcode_is_elementwise(x->op) || x->op == HLO_RESHAPE || x->op == HLO_BITCAST) {
    for (int k = 0; k < x->operand_count; k++) find_seams(x->operands[k], s, depth + 1 + 4 * (x->operand_count > 1));
  }
}

static int by_value(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static weft_status *place_cuts(weft_arena *arena, const seams *s, gen_nest *nest)
{
  int64_t pieces = 1;

  for (int g = nest->count - 1; g >= 0; g--) {
    int64_t *cuts = WEFT_ARENA_ARRAY(arena, int64_t, s->count + 1);
    int n = 0, kept = 0;
    WEFT_TRY_ALLOC(cuts);
    for (int i = 0; i < s->count; i++)
      if (s->v[i].period == nest->extent[g] * nest->stride[g] && s->v[i].at % nest->stride[g] == 0)
        cuts[n++] = s->v[i].at / nest->stride[g];
    qsort(cuts, (size_t)n, sizeof *cuts, by_value);
    for (int i = 0; i < n; i++)
      if (kept == 0 || cuts[kept - 1] != cuts[i]) cuts[kept++] = cuts[i];
    if (pieces * (kept + 1) > MAX_CUTS) kept = 0;
    pieces *= kept + 1;
    nest->cuts[g] = cuts;
    nest->cut_count[g] = kept;
  }
  return NULL;
}

static int descending(const void *a, const void *b) { return -by_value(a, b); }

weft_status *gen_nest_of(weft_arena *arena, const hlo_computation *comp, const hlo_instr *const *roots, int root_count,
                         const hlo_shape *shape, gen_nest *nest)
{
  int have = 0;
  marks all = {0}, **known;
  seams *found = WEFT_ARENA_NEW(arena, seams);

  WEFT_TRY_ALLOC(found);
  WEFT_TRY(know_marks(arena, comp, NULL, &known));
  for (int i = 0; i < root_count; i++) {
    for (int k = 0; k < known[roots[i]->id]->count; k++) mark(&all, known[roots[i]->id]->v[k]);
    find_seams(roots[i], found, 0);
  }
  qsort(all.v, (size_t)all.count, sizeof all.v[0], descending);
  *nest = (gen_nest){0};
  int64_t above = hlo_shape_elems(shape);
  for (int i = 0; i < all.count; i++) {
    if (all.v[i] >= above || above % all.v[i] || have == HLO_MAX_RANK - 1) continue;
    nest->extent[have] = above / all.v[i];
    nest->stride[have++] = above = all.v[i];
  }
  nest->extent[have] = above;
  nest->stride[have++] = 1;
  nest->count = have;
  return place_cuts(arena, found, nest);
}

/* ---- neighbours side by side ----------------------------------------------------------------------------------- */

enum { MOST_PERIOD = 8, MOST_JOINED = 600, LEAST_ROWS = 16, MOST_VISITS = 4096, LONG_PERIOD = 1 << 20 };

/* The period, in elements along the last dimension, with which interior padding repeats in `x`. If an index is known
 * modulo this period, code generation knows which elements are padding. A program may pad by any width: LONG_PERIOD
 * stands for every period that long or longer. It may also concatenate anything any number of times: *left is how
 * many operations are still looked at. */
static int64_t padding_period(const hlo_instr *x, int depth, int *left)
{
  int64_t period = 1;
  int last = x->shape->rank - 1;

  if (depth > 16 || --*left < 0 || !hlo_shape_is_array(x->shape) || last < 0) return 1;
  if (x->op == HLO_PAD) {
    int64_t interior = WEFT_MIN(x->u.pad.dims[last].interior, LONG_PERIOD - 1);
    return WEFT_MIN((interior + 1) * padding_period(x->operands[0], depth + 1, left), LONG_PERIOD);
  }
  if (x->op == HLO_SLICE) {
    int64_t stride = x->u.slice->stride.count ? x->u.slice->stride.v[last] : 1;
    period = padding_period(x->operands[0], depth + 1, left);
    return period == LONG_PERIOD ? period : period / weft_gcd(period, stride);
  }
  if (x->op != HLO_CONCATENATE && !hlo_opcode_is_elementwise(x->op)) return 1;
  for (int k = 0; k < x->operand_count; k++) {
    int64_t p = padding_period(x->operands[k], depth + 1 + (x->operand_count > 1), left);
    if (p <= MOST_PERIOD) period *= p / weft_gcd(period, p);
    if (period > MOST_PERIOD) return period;
  }
  return period;
}

/* The first of the innermost loops that one step makes side by side, or nest->count if there is none. These loops
 * are too short for vectors or are cut into pieces, have at most MOST_PERIOD elements together, and lie inside a
 * loop that is long. */
static int first_short(const gen_nest *nest)
{
  int last = nest->count - 1, first = last;
  int64_t n = nest->extent[last];

  while (first > 0 && nest->extent[first - 1] < LEAST_ROWS && n * nest->extent[first - 1] <= MOST_PERIOD)
    n *= nest->extent[--first];
  if (first == 0 || n > MOST_PERIOD || nest->extent[first - 1] < LEAST_ROWS) return nest->count;
  return first < last || (n & (n - 1)) != 0 || n == 2 || nest->cut_count[last] > 0 ? first : nest->count;
}

weft_status *gen_nest_join(weft_arena *arena, const hlo_computation *comp, const hlo_instr *const *roots,
                           int root_count, gen_nest *nest)
{
  int last = nest->count - 1, size = 0, kept = 0, left = MOST_VISITS;
  int64_t period = 1;

  HLO_FOREACH(x, comp) size++;
  int first = first_short(nest);
  if (first < nest->count) {
    period = nest->stride[first - 1];
    if (period * size > MOST_JOINED) return NULL;
    nest->count = first;
    nest->period = (int)period;
    return NULL;
  }
  for (int i = 0; i < root_count; i++) {
    int64_t p = padding_period(roots[i], 0, &left);
    if (p > MOST_PERIOD) return NULL;
    period *= p / weft_gcd(period, p);
  }
  if (period == 1 || period > MOST_PERIOD || nest->extent[last] % period || nest->extent[last] / period < LEAST_ROWS ||
      period * size > MOST_JOINED)
    return NULL;
  nest->period = (int)period;
  nest->extent[last] /= period;
  nest->stride[last] = period;
  int64_t *cuts = WEFT_ARENA_ARRAY(arena, int64_t, nest->cut_count[last] + 1);
  WEFT_TRY_ALLOC(cuts);
  for (int i = 0; i < nest->cut_count[last]; i++)
    if (nest->cuts[last][i] % period == 0) cuts[kept++] = nest->cuts[last][i] / period;
  nest->cuts[last] = cuts;
  nest->cut_count[last] = kept;
  return NULL;
}
