/* codegen/nvptx/weights.c -- arrays that a kernel needs again for each row: weights, for example, which a norm
 * multiplies every row by. A thread that makes several rows loads its part of them once. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum {
  MOST_ROWS = 16,       /* of a thread */
  SHARE = 16,           /* the weights may be this part of the bytes that are moved */
  ON_THE_WAY_NS = 1000, /* what memory delivers in this time must have been asked for at once, so that it stays busy */
};

/* Is `x` a broadcast to `elems` elements of an array that lies along the last dimensions? */
static bool repeats(const hlo_instr *x, int64_t elems)
{
  const hlo_shape *from = x->op == HLO_BROADCAST ? x->operands[0]->shape : NULL;

  if (!from || hlo_shape_elems(x->shape) != elems) return false;
  int64_t n = hlo_shape_elems(from);
  if (n <= 1 || n >= elems || x->operands[0]->op == HLO_IOTA) return false;
  for (int i = 0; i < from->rank; i++)
    if (x->dims.v[i] != x->shape->rank - from->rank + i) return false;
  return true;
}

void gen_weights_of(const hlo_computation *comp, int64_t elems, gen_weights *out)
{
  *out = (gen_weights){.elems = elems};
  HLO_FOREACH(x, comp) {
    bool known = false;
    if (x->op == HLO_PARAMETER && hlo_shape_is_array(x->shape) && hlo_shape_elems(x->shape) == elems)
      out->row_bytes += (int)weft_dtype_bytes(x->shape->type);
    if (out->count == GEN_MOST_WEIGHTS || !repeats(x, elems)) continue;
    for (int i = 0; i < out->count; i++) known = known || out->arrays[i] == x->operands[0];
    if (!known) out->arrays[out->count++] = x->operands[0];
  }
  int operands = out->row_bytes;
  for (int i = 0; i < hlo_shape_leaf_count(comp->root->shape); i++) {
    const hlo_shape *leaf = hlo_shape_leaf(comp->root->shape, i);
    if (hlo_shape_is_array(leaf) && hlo_shape_elems(leaf) == elems) out->row_bytes += (int)weft_dtype_bytes(leaf->type);
  }
  out->read_bytes = operands ? operands : out->row_bytes;
}

int gen_weights_bytes(const gen_weights *w, int64_t cols)
{
  int bytes = 0;

  for (int i = 0; i < w->count; i++)
    if (cols % hlo_shape_elems(w->arrays[i]->shape) == 0) bytes += (int)weft_dtype_bytes(w->arrays[i]->shape->type);
  return bytes;
}

int gen_weights_rows(const gen_weights *w, const gen_target *target, int64_t cols, int64_t at_once)
{
  int64_t bytes = gen_weights_bytes(w, cols), rows = w->elems / cols;

  if (bytes == 0 || rows < 2 || w->row_bytes == 0) return 1;
  int64_t wanted = (SHARE * bytes + w->row_bytes - 1) / w->row_bytes;
  int64_t waiting = (int64_t)(target->memory_gb_s * ON_THE_WAY_NS);
  wanted = WEFT_MIN(WEFT_MIN(wanted, MOST_ROWS), WEFT_MIN(rows, at_once / WEFT_MAX(waiting, 1)));
  return (int)WEFT_MAX(wanted, 1);
}
