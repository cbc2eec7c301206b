/* codegen/model/rows.c -- computations over rows: reductions over trailing dimensions, and what depends on them. */
#include <config.h>

#include "codegen/model/strategy.h"

#include "base/arena.h"

enum { SHORT_ROW = 8 };

bool gen_reduces_rows(const hlo_instr *x, int64_t *out_rows, int64_t *out_cols)
{
  const hlo_shape *in = x->operands[0]->shape;
  int64_t cols = 1, n_rows = 1;
  bool reduced_seen = false;

  for (int d = 0; d < in->rank; d++) {
    bool reduced = false;
    for (int k = 0; k < x->dims.count; k++) reduced = reduced || x->dims.v[k] == d;
    if (reduced) cols *= in->dims[d];
    else n_rows *= in->dims[d];
    if (in->dims[d] == 1) continue;
    if (reduced_seen && !reduced) return false;
    reduced_seen = reduced_seen || reduced;
  }
  *out_rows = n_rows, *out_cols = cols;
  return true;
}

bool gen_spreads_rows(const hlo_instr *x, int64_t rows, int64_t cols)
{
  const hlo_shape *from = x->operands[0]->shape;
  int64_t leading = 1, above = 1, matched = 1;

  for (int i = 1; i < x->dims.count; i++)
    if (x->dims.v[i] < x->dims.v[i - 1]) return false; /* it transposes, too */
  if (hlo_shape_elems(from) != rows || hlo_shape_elems(x->shape) != rows * cols) return false;
  for (int i = 0; i < x->dims.count; i++) leading *= from->dims[i];
  for (int d = 0, i = 0; d < x->shape->rank && matched < leading;
       d++) { /* the operand's dimensions are the leading ones */
    bool mapped = i < x->dims.count && x->dims.v[i] == d;
    if (mapped) matched *= x->shape->dims[d], i++;
    above *= x->shape->dims[d];
    if (above != matched) return false;
  }
  return true;
}

/* Does `x`, which depends on a reduce, use the values of its own row only? */
static bool stays_in_row(const gen_rows *r, const hlo_instr *x)
{
  if (hlo_opcode_is_elementwise(x->op) || x->op == HLO_TUPLE || x->op == HLO_GET_TUPLE_ELEMENT || x->op == HLO_REDUCE)
    return true;
  if (x->op != HLO_RESHAPE && x->op != HLO_BITCAST && x->op != HLO_BROADCAST) return false;
  int64_t n = hlo_shape_elems(x->shape), m = hlo_shape_elems(x->operands[0]->shape);
  if (x->op != HLO_BROADCAST) return n == m;
  for (int i = 1; i < x->dims.count; i++)
    if (x->dims.v[i] < x->dims.v[i - 1]) return false; /* it transposes, too */
  if (n != r->rows * r->cols) return n == m;
  return m == 1 ? r->rows == 1 : gen_spreads_rows(x, r->rows, r->cols);
}

/* The rows are those of the largest reduction over rows. Smaller reductions only make values that its elements need. */
static void find_rows(gen_rows *r)
{
  HLO_FOREACH(x, r->comp) {
    int64_t n_rows, cols;
    if (x->op == HLO_REDUCE && gen_reduces_rows(x, &n_rows, &cols) && cols > 1 && n_rows * cols > r->rows * r->cols)
      r->rows = n_rows, r->cols = cols;
  }
}

static bool recognise(gen_rows *r)
{
  const hlo_instr *root = r->comp->root;

  find_rows(r);
  HLO_FOREACH(x, r->comp) {
    int level = 0;
    for (int i = 0; i < x->operand_count; i++) level = WEFT_MAX(level, gen_row_level(r, x->operands[i]));
    int64_t n_rows, cols;
    if (x->op == HLO_REDUCE) {
      bool is_rows = gen_reduces_rows(x, &n_rows, &cols);
      if (is_rows && cols > 1 && n_rows == r->rows && cols == r->cols) {
        if (r->reduce_count == GEN_MOST_ROW_REDUCES) return false;
        r->reduces[r->reduce_count++] = x;
        level++;
        r->stages = WEFT_MAX(r->stages, level);
      } else if (level > 0) {
        return false;
      }
    } else if (level > 0 && x->op != HLO_TUPLE && !stays_in_row(r, x)) {
      return false;
    }
    r->level[x->id - r->low] = (int8_t)level;
  }
  if (r->reduce_count == 0 || r->rows == 0 || r->cols == 0) return false;
  /* Each result has one element per row, or rows x cols elements. */
  r->per_row_only = true;
  for (int i = 0; i < hlo_shape_leaf_count(root->shape); i++) {
    int64_t n = hlo_shape_elems(hlo_shape_leaf(root->shape, i));
    if (n != r->rows && n != r->rows * r->cols) return false;
    if (n != r->rows) r->per_row_only = false;
  }
  /* short rows are quicker in a loop that makes several of them side by side */
  return r->cols >= SHORT_ROW || r->stages > 1 || !r->per_row_only;
}

weft_status *gen_rows_of(weft_arena *arena, const hlo_computation *comp, gen_rows *out, bool *is_rows)
{
  int count;

  *out = (gen_rows){.comp = comp};
  hlo_id_range(comp, &out->low, &count);
  out->level = WEFT_ARENA_ARRAY(arena, int8_t, count);
  WEFT_TRY_ALLOC(out->level);
  *is_rows = hlo_shape_leaf_count(comp->root->shape) <= HLO_MAX_RANK && recognise(out);
  return NULL;
}

/* What the result's row r needs of an operand's rows. */
typedef enum rows_of {
  NO_ROWS,    /* nothing: the value does not depend on the operand */
  WHOLE_ROWS, /* row r: the value has an element for each of the operand's */
  ONE_EACH,   /* row r: the value has an element for each row */
  OTHER_ROWS,
} rows_of;

static rows_of rows_that_need(const hlo_instr *x, const rows_of *known, int low, int64_t rows, int64_t cols)
{
  rows_of has = NO_ROWS;
  int64_t n_rows, n_cols;

  for (int i = 0; i < x->operand_count; i++) {
    rows_of operand = known[x->operands[i]->id - low];
    if (operand == NO_ROWS) continue;
    if (has != NO_ROWS && has != operand) return OTHER_ROWS;
    has = operand;
  }
  if (has == NO_ROWS || has == OTHER_ROWS) return has;
  if (!hlo_shape_is_array(x->shape)) return OTHER_ROWS;
  if (hlo_opcode_is_elementwise(x->op)) return has;
  switch (x->op) {
  case HLO_RESHAPE:
  case HLO_BITCAST: return hlo_shape_elems(x->shape) == (has == ONE_EACH ? rows : rows * cols) ? has : OTHER_ROWS;
  case HLO_REDUCE:
    return has == WHOLE_ROWS && x->operand_count == 2 && gen_reduces_rows(x, &n_rows, &n_cols) && n_rows == rows &&
               n_cols == cols
             ? ONE_EACH
             : OTHER_ROWS;
  case HLO_BROADCAST: return has == ONE_EACH && gen_spreads_rows(x, rows, cols) ? WHOLE_ROWS : OTHER_ROWS;
  default: return OTHER_ROWS;
  }
}

weft_status *gen_keeps_rows(weft_arena *arena, const hlo_instr *fusion, int operand, int64_t rows, int64_t cols,
                            bool *out)
{
  const hlo_computation *comp = fusion->called[0];
  int low, count;

  hlo_id_range(comp, &low, &count);
  rows_of *known = WEFT_ARENA_ARRAY(arena, rows_of, count);
  WEFT_TRY_ALLOC(known);
  HLO_FOREACH(x, comp)
    known[x->id - low] = x == comp->params[operand] ? WHOLE_ROWS : rows_that_need(x, known, low, rows, cols);
  const hlo_instr *root = comp->root, *params = comp->params[operand];
  *out = hlo_shape_is_array(params->shape) && hlo_shape_elems(params->shape) == rows * cols &&
         (root->op == HLO_TUPLE || known[root->id - low] == WHOLE_ROWS);
  for (int i = 0; root->op == HLO_TUPLE && i < root->operand_count; i++) {
    const hlo_instr *result = root->operands[i];
    rows_of needs = known[result->id - low];
    *out = *out && hlo_shape_is_array(result->shape) && hlo_shape_elems(result->shape) == rows * cols &&
           (needs == WHOLE_ROWS || needs == NO_ROWS);
  }
  return NULL;
}

weft_status *gen_loops_by_rows(weft_arena *arena, const hlo_instr *fusion, int64_t rows, int64_t cols, bool *out)
{
  const hlo_computation *comp = fusion->called[0];
  const hlo_instr *root = comp->root;
  gen_nest nest;

  *out = false;
  if (!hlo_shape_is_array(fusion->shape)) return NULL;
  WEFT_TRY(gen_nest_of(arena, comp, &root, 1, fusion->shape, &nest));
  WEFT_TRY(gen_nest_join(arena, comp, &root, 1, &nest));
  *out = nest.count == 2 && nest.extent[0] == rows && nest.extent[1] * WEFT_MAX(nest.period, 1) == cols;
  return NULL;
}
