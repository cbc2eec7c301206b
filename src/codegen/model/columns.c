/* codegen/model/columns.c -- reductions that keep the innermost dimensions: sums over rows. */
#include <config.h>

#include "codegen/model/strategy.h"

#include "base/arena.h"

enum {
  MOST_NARROW = 7, /* columns that do not fill a vector of eight lanes */
  LEAST_WALK = 64  /* elements of the innermost reduced dimension, so that whole vectors of it are the most */
};

static bool depends(const hlo_instr *x, const bool *tainted, int low)
{
  for (int i = 0; i < x->operand_count; i++)
    if (tainted[x->operands[i]->id - low]) return true;
  return false;
}

static bool recognise(gen_columns *c, bool *tainted, int low)
{
  HLO_FOREACH(x, c->comp) {
    bool after = depends(x, tainted, low);
    if (x->op == HLO_REDUCE && hlo_shape_elems(x->operands[0]->shape) > hlo_shape_elems(hlo_shape_leaf(x->shape, 0))) {
      if (after || c->reduce_count == GEN_MOST_COLUMN_REDUCES) return false;
      if (c->reduce_count > 0) {
        const hlo_instr *first = c->reduces[0];
        if (!hlo_shape_same_dims(x->operands[0]->shape, c->in) || x->dims.count != first->dims.count) return false;
        for (int k = 0; k < x->dims.count; k++)
          if (!c->reduced[x->dims.v[k]]) return false;
      } else {
        c->in = x->operands[0]->shape;
        for (int k = 0; k < x->dims.count; k++) c->reduced[x->dims.v[k]] = true;
      }
      c->reduces[c->reduce_count++] = x;
      after = true;
    } else if (after && !hlo_opcode_is_elementwise(x->op) && x->op != HLO_TUPLE && x->op != HLO_RESHAPE &&
               x->op != HLO_BITCAST && x->op != HLO_GET_TUPLE_ELEMENT) {
      return false;
    }
    tainted[x->id - low] = after;
  }
  if (c->reduce_count == 0 || hlo_shape_elems(c->in) == 0) return false;
  c->cols = c->outer = 1;
  bool inner = true;
  for (int d = c->in->rank - 1; d >= 0; d--) {
    if (c->reduced[d] && c->in->dims[d] > 1) {
      if (c->cols == 1) return false; /* the innermost dimensions are reduced */
      inner = false;
    }
    if (inner && !c->reduced[d]) c->cols *= c->in->dims[d];
    else if (!c->reduced[d]) c->outer *= c->in->dims[d];
  }
  for (int d = 0; d < c->in->rank; d++)
    if (c->reduced[d] && c->in->dims[d] > 1) c->walk[c->walk_count++] = d;
  c->results = c->outer * c->cols;
  if (c->walk_count == 0) return false;
  for (int i = 0; i < hlo_shape_leaf_count(c->comp->root->shape); i++)
    if (hlo_shape_elems(hlo_shape_leaf(c->comp->root->shape, i)) != c->results) return false;
  return hlo_shape_leaf_count(c->comp->root->shape) <= HLO_MAX_RANK;
}

bool gen_columns_are_narrow(const gen_columns *c)
{
  if (c->cols > MOST_NARROW || c->in->dims[c->walk[c->walk_count - 1]] < LEAST_WALK) return false;
  for (int i = 0; i < c->reduce_count; i++) {
    const hlo_instr *x = c->reduces[i];
    if (x->operand_count != 2 || hlo_reducer_op(x->called[0]) == HLO_OPCODE_COUNT ||
        weft_dtype_is_complex(x->shape->type))
      return false;
  }
  return true;
}

weft_status *gen_columns_of(weft_arena *arena, const hlo_computation *comp, gen_columns *out, bool *is_columns)
{
  int low, count;

  *out = (gen_columns){.comp = comp};
  hlo_id_range(comp, &low, &count);
  bool *tainted = WEFT_ARENA_ARRAY(arena, bool, count);
  WEFT_TRY_ALLOC(tainted);
  *is_columns = recognise(out, tainted, low);
  return NULL;
}
