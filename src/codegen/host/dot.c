/* codegen/host/dot.c -- small dots whose lanes are rows.
 *
 * If the lanes are rows of an operand whose contracted dimension is the innermost one, a vector of one column's
 * elements would be a gather. Then each row is multiplied in vectors along the row instead, and the partial sums of
 * all rows are added up at the end by shuffles. */
#include <config.h>

#include "codegen/host/host.h"
#include "codegen/model/strategy.h"

enum { ROWS_AT_ONCE = 4 }; /* rows that one loop over the contracted dimension multiplies; as few lanes at least */

/* The variable whose lanes tell the elements of `idx` apart, or -1 if there is no such variable or another value does
 * so too. */
static int lane_variable(gen_emit *e, const gen_index *idx)
{
  int found = -1;

  for (int d = 0; d < idx->rank; d++)
    for (int i = 0; i < idx->d[d].count; i++) {
      const gen_term *t = &idx->d[d].terms[i];
      if (t->var < 0 && gen_is_vector(t->value)) return -1;
      if (t->var < 0 || !e->vars[t->var].lane) continue;
      if (found >= 0 && found != t->var) return -1;
      found = t->var;
    }
  return found;
}

/* Is `dim` the innermost dimension with more than one element? */
static bool is_innermost(const hlo_shape *shape, int64_t dim)
{
  for (int64_t d = dim + 1; d < shape->rank; d++)
    if (shape->dims[d] > 1) return false;
  return true;
}

/* Are the lanes rows of one operand, and the same for the other operand? */
static bool lanes_are_rows(gen_emit *e, const gen_small_dot *d, const gen_index *idx, int *out_var)
{
  const hlo_dot_attrs *dot = d->instr->u.dot;
  const gen_affine first[1] = {gen_affine_const(0)};
  bool varies[2];

  if (e->lanes < ROWS_AT_ONCE || e->mask || d->total <= GEN_UNROLLED_DOT || dot->lhs_contracting.count != 1 ||
      !(d->acc_type == WEFT_F32 || d->acc_type == WEFT_F64))
    return false;
  *out_var = lane_variable(e, idx);
  if (*out_var < 0) return false;
  for (int i = 0; i < 2; i++) {
    const hlo_instr *x = d->instr->operands[i];
    if (gen_through_views(x)->op != HLO_PARAMETER ||
        !is_innermost(x->shape, i ? dot->rhs_contracting.v[0] : dot->lhs_contracting.v[0]))
      return false;
    varies[i] = gen_index_varies(e, gen_dot_operand(e, d->instr, i, idx, first));
  }
  return varies[0] != varies[1];
}

/* `idx` with the variable `to` in the place of `from`. */
static const gen_index *with_variable(gen_emit *e, const gen_index *idx, int from, int to)
{
  gen_index *out = gen_index_new(e, idx->rank);

  for (int d = 0; d < idx->rank; d++) {
    gen_affine a = idx->d[d];
    gen_term *terms = WEFT_ARENA_ARRAY(e->arena, gen_term, a.count + 1);
    for (int i = 0; i < a.count; i++) {
      terms[i] = a.terms[i];
      if (terms[i].var == from) terms[i].var = to;
    }
    out->d[d] = (gen_affine){.base = a.base, .count = a.count, .terms = terms};
  }
  return gen_index_seal(out);
}

/* One step of ROWS_AT_ONCE rows: the elements that the lanes of `over` stand for. */
static weft_status *step_of_rows(gen_emit *e, const gen_small_dot *d, const gen_index *const *rows, gen_affine over,
                                 const gen_value *slots)
{
  for (int r = 0; r < ROWS_AT_ONCE; r++) {
    gen_value acc = gen_acc_get(e, slots[r]), sum = acc;
    WEFT_TRY(gen_dot_step(e, d, rows[r], &over, &sum));
    if (e->mask) sum.re = gen_select(e, e->mask, sum.re, acc.re);
    gen_acc_set(e, slots[r], sum);
  }
  return NULL;
}

/* The products of ROWS_AT_ONCE rows, added up lane by lane. */
static weft_status *multiply_rows(gen_emit *e, const gen_small_dot *d, const gen_index *const *rows, gen_ssa *out)
{
  int64_t whole = d->total / e->lanes * e->lanes;
  gen_value slots[ROWS_AT_ONCE];
  gen_loop loop;

  for (int r = 0; r < ROWS_AT_ONCE; r++) {
    slots[r] = gen_acc_slot(e, d->acc_type, e->lanes);
    gen_acc_set(e, slots[r], (gen_value){LLVMConstNull(gen_register_type(e->part, d->acc_type)), NULL});
  }
  if (whole > 0) {
    gen_loop_static(e, &loop, 0, whole, e->lanes);
    e->vars[loop.var].lane = true;
    int mark = gen_memo_push(e);
    WEFT_TRY(step_of_rows(e, d, rows, gen_affine_var(e, loop.var), slots));
    gen_memo_pop(e, mark);
    gen_loop_end(e, &loop);
    e->vars[loop.var].lane = false;
  }
  if (whole < d->total) {
    int var = gen_add_var(e, (gen_var){gen_i64(e, whole), whole, whole + e->lanes, e->lanes, true});
    e->mask = gen_icmp(e, LLVMIntSLT, gen_iota(e, e->part->i64, e->lanes, 1), gen_i64(e, d->total - whole));
    int mark = gen_memo_push(e);
    WEFT_TRY(step_of_rows(e, d, rows, gen_affine_var(e, var), slots));
    gen_memo_pop(e, mark);
    e->mask = NULL;
    e->vars[var].lane = false;
  }
  for (int r = 0; r < ROWS_AT_ONCE; r++) out[r] = gen_acc_get(e, slots[r]).re;
  return NULL;
}

/* A vector whose lane i is the sum of the lanes of v[i]. The lanes of each pair of vectors are halved and joined, until
 * one vector is left. */
static gen_ssa sum_of_each(gen_emit *e, gen_ssa *v)
{
  int lanes = e->lanes, low[64], high[64];

  for (int width = lanes; width > 1; width /= 2) { /* lanes that still belong to one row */
    for (int i = 0; i < lanes; i++) {
      int piece = i / (width / 2), per_vector = lanes / width;
      low[i] = (piece < per_vector ? 0 : lanes) + piece % per_vector * width + i % (width / 2);
      high[i] = low[i] + width / 2;
    }
    for (int k = 0; k < width / 2; k++) {
      gen_ssa a = gen_shuffle(e, v[2 * k], v[2 * k + 1], lanes, low),
              b = gen_shuffle(e, v[2 * k], v[2 * k + 1], lanes, high);
      v[k] = gen_bin(e, LLVMFAdd, a, b);
    }
  }
  return v[0];
}

weft_status *gen_host_dot(gen_emit *e, const gen_small_dot *d, const gen_index *idx, gen_value *out)
{
  gen_ssa sums[64];
  int lanes = e->lanes, var;

  if (!lanes_are_rows(e, d, idx, &var)) return NULL;
  gen_var own = e->vars[var];
  int mark = gen_memo_push(e);
  e->vars[var].lane = false;
  for (int first = 0; first < lanes; first += ROWS_AT_ONCE) {
    const gen_index *rows[ROWS_AT_ONCE];
    for (int r = 0; r < ROWS_AT_ONCE; r++) {
      gen_ssa value = LLVMBuildNSWAdd(e->b, own.value, gen_i64(e, first + r), "");
      rows[r] = with_variable(e, idx, var, gen_add_var(e, (gen_var){value, own.lo, own.hi, 1, false}));
    }
    WEFT_TRY(multiply_rows(e, d, rows, sums + first));
  }
  gen_memo_pop(e, mark);
  e->vars[var].lane = true;
  out->re = sum_of_each(e, sums);
  return NULL;
}
