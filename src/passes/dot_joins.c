/* passes/dot_joins.c -- dot-joins: a dot of few rows by an array that is joined from parts becomes dots of the parts:
 *
 *   keys, joined along the free dimension         q . (old, new)T    =  (q . oldT, q . newT)
 *   values, joined along the contracted one       p . (old; new)     =  p[old] . old + p[new] . new
 *
 * A decoder that joins a cache to the keys and values of one more token copies the cache for it; the dots of the parts
 * read it where it lies (pass dot-parts).  Sums of parts are added in f32 where the dot's type is narrower, and rounded
 * once.  This is done where half of the joined bytes at least are in memory in any case, and nothing else reads the
 * joined array.  Dots must be canonical (dot-canonicalizer). */
#include <config.h>

#include <string.h>

#include "codegen/model/view.h"
#include "passes/build.h"
#include "passes/passes.h"

enum {
  MOST_ROWS = 16,        /* of the other operand: with more, the copy takes little of the time */
  MOST_PARTS = 4,
  MOST_LINKS = 8,        /* reshapes and transposes between the joined array and the dot */
  LEAST_BYTES = 1 << 15, /* of the joined array */
};

/* How an operand is made of a joined array: by links[count - 1], ..., links[0], which are reshapes and transposes. */
typedef struct joined {
  hlo_instr *join, *links[MOST_LINKS];
  int count;
  int64_t dim[MOST_LINKS + 1]; /* the joined dimension in the value of each link; dim[count]: in the join */
} joined;

/* The place of dimension `dim` of a link's operand in the link's result; -1: it is split or merged. */
static int64_t dim_after(const hlo_instr *link, int64_t dim)
{
  const hlo_shape *in = link->operands[0]->shape, *out = link->shape;
  int64_t before = 1, seen = 1;

  if (link->op == HLO_TRANSPOSE) {
    for (int i = 0; i < out->rank; i++)
      if (link->dims.v[i] == dim) return i;
    return -1;
  }
  for (int64_t i = 0; i < dim; i++) before *= in->dims[i];
  for (int64_t i = 0; i < out->rank; seen *= out->dims[i++])
    if (seen == before && out->dims[i] == in->dims[dim]) return i;
  return -1;
}

/* False: nothing else than this operand may read the values between. */
static bool find_join(hlo_instr *value, joined *j)
{
  j->count = 0;
  for (;; value = value->operands[0]) {
    if (value->user_count != 1 || value == value->parent->root || pass_has_control_edges(value)) return false;
    if (value->op == HLO_CONCATENATE) break;
    if ((value->op != HLO_RESHAPE && value->op != HLO_TRANSPOSE) || j->count == MOST_LINKS) return false;
    j->links[j->count++] = value;
  }
  j->join = value;
  if (value->operand_count < 2 || value->operand_count > MOST_PARTS || hlo_shape_bytes(value->shape) < LEAST_BYTES)
    return false;
  j->dim[j->count] = value->dims.v[0];
  for (int l = j->count - 1; l >= 0; l--)
    if ((j->dim[l] = dim_after(j->links[l], j->dim[l + 1])) < 0) return false;
  return true;
}

/* Are half of the joined bytes parts of arrays that are stored whatever is fused? */
static bool is_stored(const hlo_instr *join)
{
  int64_t bytes = 0;

  for (int i = 0; i < join->operand_count; i++) {
    gen_view view = gen_view_of(join->operands[i]);
    if (pass_is_in_memory(view.array)) bytes += hlo_shape_bytes(join->operands[i]->shape);
  }
  return 2 * bytes >= hlo_shape_bytes(join->shape);
}

/* What the operand would be of one part alone. */
static hlo_instr *through_links(pass_build *b, const joined *j, hlo_instr *part)
{
  int64_t size = part->shape->dims[j->dim[j->count]], dims[HLO_MAX_RANK];

  for (int l = j->count - 1; l >= 0; l--) {
    const hlo_instr *link = j->links[l];
    if (link->op == HLO_TRANSPOSE) {
      part = pb_transpose(b, part, link->dims.v);
      continue;
    }
    memcpy(dims, link->shape->dims, (size_t)link->shape->rank * sizeof *dims);
    dims[j->dim[l]] = size;
    part = pb_reshape(b, part, link->shape->rank, dims);
  }
  return part;
}

/* The type in which dots of parts are added up; WEFT_INVALID: they are not. */
static weft_dtype sum_type(weft_dtype type)
{
  switch (type) {
  case WEFT_BF16: case WEFT_F16: case WEFT_F32: return WEFT_F32;
  case WEFT_F64: return WEFT_F64;
  default: return WEFT_INVALID;
  }
}

/* Makes the dots of the parts of operand `side`. */
static weft_status *split(hlo_instr *dot, int side, const joined *j, bool *changed)
{
  const hlo_dot_attrs *a = dot->u.dot;
  int64_t sum_dim = (side ? a->rhs_contracting : a->lhs_contracting).v[0];
  int64_t other_dim = (side ? a->lhs_contracting : a->rhs_contracting).v[0];
  int64_t dims[HLO_MAX_RANK], at = 0, free_dim = dot->shape->rank - (side ? 1 : 2);
  bool is_sum = j->dim[0] == sum_dim;
  weft_dtype type = is_sum ? sum_type(dot->shape->type) : dot->shape->type;
  hlo_instr *other = dot->operands[!side], *parts[MOST_PARTS], *result;
  pass_build b = PASS_BUILD_AT(dot);

  memcpy(dims, dot->shape->dims, (size_t)dot->shape->rank * sizeof *dims);
  for (int i = 0; i < j->join->operand_count; i++) {
    hlo_instr *part = j->join->operands[i], *beside = other;
    int64_t size = part->shape->dims[j->dim[j->count]];
    if (is_sum) beside = pb_slice_dim(&b, other, other_dim, at, at + size);
    else dims[free_dim] = size;
    at += size;
    part = through_links(&b, j, part);
    parts[i] = pb_dot_like(&b, dot, side ? beside : part, side ? part : beside, type, dims);
  }
  result = parts[0];
  for (int i = 1; i < j->join->operand_count && is_sum; i++) result = pb_add(&b, result, parts[i]);
  result = is_sum ? pb_convert(&b, result, dot->shape->type) : pb_concat(&b, free_dim, j->join->operand_count, parts);
  *changed = true;
  return pass_build_replace(&b, dot, result);
}

static weft_status *split_dot(hlo_instr *dot, bool *changed)
{
  const hlo_dot_attrs *a = dot->u.dot;
  joined j;

  if (!pass_is_canonical_dot(dot) || pass_has_control_edges(dot)) return NULL;
  for (int side = 0; side < 2; side++) {
    const hlo_shape *other = dot->operands[!side]->shape;
    int64_t batch = a->lhs_batch.count ? dot->shape->dims[0] : 1;
    int64_t depth = other->dims[(side ? a->lhs_contracting : a->rhs_contracting).v[0]];
    if (hlo_shape_elems(other) > MOST_ROWS * batch * depth || !find_join(dot->operands[side], &j)) continue;
    bool is_sum = j.dim[0] == (side ? a->rhs_contracting : a->lhs_contracting).v[0];
    bool is_batch = a->lhs_batch.count && j.dim[0] == (side ? a->rhs_batch : a->lhs_batch).v[0];
    if (is_batch || (is_sum && sum_type(dot->shape->type) == WEFT_INVALID) || !is_stored(j.join)) continue;
    return split(dot, side, &j, changed);
  }
  return NULL;
}

static weft_status *dot_joins_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++)
    for (hlo_instr *instr = comps.v[c]->first, *next; instr; instr = next) {
      next = instr->next; /* the dots of the parts come before their dot */
      if (instr->op == HLO_DOT) WEFT_TRY(split_dot(instr, changed));
    }
  return NULL;
}
const hlo_pass pass_dot_joins = {"dot-joins", dot_joins_run};
