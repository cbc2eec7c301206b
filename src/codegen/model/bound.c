/* codegen/model/bound.c -- kernels over rows that may leave out the columns which a mask takes from a row. */
#include <config.h>

#include "codegen/model/strategy.h"

#include "base/arena.h"

typedef struct finder {
  gen_rows form;
  gen_bound bound;
  bool *same; /* by id - low: are the elements of a row that lie in masked columns all the same number? */
} finder;

static bool is_whole(const finder *f, const hlo_instr *x)
{
  return hlo_shape_is_array(x->shape) && hlo_shape_elems(x->shape) == f->form.rows * f->form.cols;
}

/* Does a broadcast to rows x cols elements give a row one number? */
static bool spreads_over_columns(const finder *f, const hlo_instr *x)
{
  int64_t n = 1;
  int first = x->shape->rank; /* the first of the dimensions that make up the columns */

  while (first > 0 && n < f->form.cols) n *= x->shape->dims[--first];
  if (n != f->form.cols) return false;
  for (int i = 0; i < x->dims.count; i++)
    if (x->dims.v[i] >= first && x->shape->dims[x->dims.v[i]] != 1) return false;
  return true;
}

static bool is_same(const finder *f, const hlo_instr *x)
{
  return f->same[x->id - f->form.low] || (hlo_shape_is_array(x->shape) && hlo_shape_elems(x->shape) == 1);
}

static bool is_same_in_mask(const finder *f, const hlo_instr *x)
{
  if (!is_whole(f, x)) return false;
  if (gen_through_views(x) == f->bound.mask) return true;
  switch (x->op) {
  case HLO_BROADCAST: return spreads_over_columns(f, x);
  case HLO_RESHAPE:
  case HLO_BITCAST: return is_same(f, x->operands[0]);
  case HLO_SELECT:
    if (gen_through_views(x->operands[0]) == f->bound.mask)
      return is_same(f, x->operands[f->bound.is_unwanted ? 1 : 2]);
    break;
  default:
    if (!hlo_opcode_is_elementwise(x->op)) return false;
  }
  for (int i = 0; i < x->operand_count; i++)
    if (!is_same(f, x->operands[i])) return false;
  return x->operand_count > 0;
}

static bool is_float(const hlo_instr *x)
{
  return x->shape->type == WEFT_F32 || x->shape->type == WEFT_BF16 || x->shape->type == WEFT_F16;
}

/* Are masked columns of f->bound alike in all that the kernel adds up, compares and stores? */
static bool fits(finder *f)
{
  const hlo_instr *root = f->form.comp->root;

  HLO_FOREACH(x, f->form.comp) f->same[x->id - f->form.low] = is_same_in_mask(f, x);
  for (int i = 0; i < f->form.reduce_count; i++) {
    const hlo_instr *reduce = f->form.reduces[i];
    if (reduce->operand_count != 2 || !is_float(reduce->operands[0]) || !is_whole(f, reduce->operands[0]) ||
        !is_same(f, reduce->operands[0]))
      return false;
    hlo_opcode op = hlo_reducer_op(reduce->called[0]);
    if (op != HLO_ADD && op != HLO_MAXIMUM && op != HLO_MINIMUM) return false;
  }
  return is_whole(f, root) && is_float(root) && is_same(f, root);
}

/* Is `pred` an operand of the fusion, or one that is spread over rows? */
static bool is_stored(const hlo_instr *pred)
{
  const hlo_instr *from = pred->op == HLO_BROADCAST ? gen_through_views(pred->operands[0]) : pred;
  return from->op == HLO_PARAMETER;
}

weft_status *gen_bound_of(weft_arena *arena, const hlo_instr *fusion, gen_bound *out)
{
  const hlo_computation *comp = fusion->called[0];
  finder f = {0};
  bool is_rows;
  int low, count;

  *out = (gen_bound){0};
  WEFT_TRY(gen_rows_of(arena, comp, &f.form, &is_rows));
  if (!is_rows || f.form.cols < GEN_LEAST_BOUNDED) return NULL;
  hlo_id_range(comp, &low, &count);
  f.same = WEFT_ARENA_ARRAY(arena, bool, count);
  WEFT_TRY_ALLOC(f.same);
  HLO_FOREACH(x, comp) {
    if (x->op != HLO_SELECT || !is_whole(&f, x) || !is_whole(&f, x->operands[0])) continue;
    for (int unwanted = 0; unwanted < 2; unwanted++) {
      f.bound = (gen_bound){gen_through_views(x->operands[0]), unwanted};
      if (!is_stored(f.bound.mask) || !fits(&f)) continue;
      *out = f.bound;
      return NULL;
    }
  }
  return NULL;
}
