/* codegen/model/turned.c -- loops that read transposed arrays and do better in tiles. */
#include <config.h>

#include "codegen/model/strategy.h"

#include "base/arena.h"

enum { MOST_OPS = 24 };

static bool keeps_place(const hlo_instr *x)
{
  return x->op == HLO_RESHAPE || x->op == HLO_BITCAST || x->op == HLO_TUPLE || hlo_opcode_is_elementwise(x->op);
}

/* Finds the transposes that are read at the result's own index, through operations that keep the index. False if
 * there is none, if there are too many, or if one of them is also read at another index: the value that stands for
 * it in a tile is right for the tile's own index only. */
static bool find_turned(gen_turned *t, const hlo_computation *comp)
{
  const hlo_instr *order[MOST_OPS];
  uint32_t in_place = 0, elsewhere = 0;
  int count = 0;

  HLO_FOREACH(x, comp) {
    if (x == comp->root) in_place |= UINT32_C(1) << count;
    order[count++] = x;
  }
  for (int k = count - 1; k >= 0; k--) { /* users before their operands */
    const hlo_instr *x = order[k];
    bool here = in_place >> k & 1, there = elsewhere >> k & 1;
    if (here && x->op == HLO_TRANSPOSE) {
      if (there || t->turned_count == GEN_MOST_TURNED) return false;
      t->turned[t->turned_count++] = x;
    }
    for (int i = 0; i < x->operand_count && (here || there); i++)
      for (int j = 0; j < k; j++) {
        if (order[j] != x->operands[i]) continue;
        if (here && keeps_place(x)) in_place |= UINT32_C(1) << j;
        if (there || !keeps_place(x)) elsewhere |= UINT32_C(1) << j;
      }
  }
  return t->turned_count > 0;
}

/* The stride, in the transpose's own row-major order, of the operand's innermost dimension; 0 if it has none. */
static int64_t turned_stride(const hlo_instr *x)
{
  const hlo_shape *in = x->operands[0]->shape, *out = x->shape;
  int last = in->rank - 1;
  int64_t stride = 1;

  while (last >= 0 && in->dims[last] == 1) last--;
  for (int d = out->rank - 1; d >= 0; d--) {
    if (x->dims.v[d] == last) return stride;
    stride *= out->dims[d];
  }
  return 0;
}

static bool recognise(gen_turned *t, const hlo_computation *comp)
{
  int64_t stride;

  if (t->nest.count < 2 || !find_turned(t, comp)) return false;
  stride = turned_stride(t->turned[0]);
  for (int i = 0; i < t->turned_count; i++)
    if (turned_stride(t->turned[i]) != stride || t->turned[i]->shape->type == WEFT_PRED) return false;
  t->h = -1;
  for (int g = 0; g < t->nest.count - 1; g++)
    if (t->nest.stride[g] == stride) t->h = g;
  for (int g = 0; g < t->nest.count; g++)
    if (t->nest.cut_count[g]) return false;
  return t->h >= 0 && t->nest.extent[t->h] >= GEN_TURNED_WIDTH && t->nest.extent[t->nest.count - 1] >= GEN_TURNED_WIDTH;
}

weft_status *gen_turned_of(weft_arena *arena, const hlo_instr *fusion, gen_turned *out, bool *is_turned)
{
  const hlo_computation *comp = fusion->called[0];
  const hlo_shape *first = hlo_shape_leaf(fusion->shape, 0);
  int leaves = hlo_shape_leaf_count(fusion->shape);
  const hlo_instr *roots[HLO_MAX_RANK];

  *out = (gen_turned){0};
  *is_turned = false;
  if (leaves > HLO_MAX_RANK || comp->instr_count > MOST_OPS) return NULL;
  for (int r = 0; r < leaves; r++) {
    const hlo_shape *leaf = hlo_shape_leaf(fusion->shape, r);
    if (!hlo_shape_is_array(leaf) || hlo_shape_elems(leaf) != hlo_shape_elems(first)) return NULL;
    roots[r] = leaves == 1 && comp->root->op != HLO_TUPLE ? comp->root : comp->root->operands[r];
  }
  if (comp->root->op != HLO_TUPLE && leaves > 1) return NULL;
  WEFT_TRY(gen_nest_of(arena, comp, roots, leaves, first, &out->nest));
  *is_turned = recognise(out, comp);
  return NULL;
}
