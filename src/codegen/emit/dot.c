/* codegen/emit/dot.c -- small dots: the sums of products that one element of a result needs, or one vector of them.
 *
 * If the lanes are rows of an operand whose contracted dimension is the innermost one, a vector of one column's
 * elements would be a gather. Then each row is multiplied in vectors along the row instead, and the partial sums of
 * all rows are added up at the end by shuffles. */
#include <config.h>

#include "codegen/emit/emit.h"
#include "codegen/model/strategy.h"

enum {
  UNROLL = 4,       /* contracted elements up to which there is no loop */
  ROWS_AT_ONCE = 4, /* rows that one loop over the contracted dimension multiplies; as few lanes at least */
};

typedef struct small_dot {
  const hlo_instr *instr;
  gen_env *env;
  weft_dtype acc_type;
  int64_t total;       /* contracted elements */
} small_dot;

static bool find_int(hlo_ints ints, int64_t x, int *at)
{
  for (int i = 0; i < ints.count; i++)
    if (ints.v[i] == x) return *at = i, true;
  return false;
}

/* The index of operand `which`, for the result's index `idx` and the contracted dimensions' indices `over`. */
static const gen_index *operand_index(gen_emit *e, const hlo_instr *instr, int which, const gen_index *idx,
                                      const gen_affine *over)
{
  const hlo_dot_attrs *dot = instr->u.dot;
  hlo_ints batch = which ? dot->rhs_batch : dot->lhs_batch,
           contracting = which ? dot->rhs_contracting : dot->lhs_contracting;
  const hlo_shape *l = instr->operands[0]->shape, *shape = instr->operands[which]->shape;
  int next = batch.count + (which ? l->rank - dot->lhs_batch.count - dot->lhs_contracting.count : 0), k;
  gen_index *out = gen_index_new(e, shape->rank);

  for (int d = 0; d < shape->rank; d++)
    out->d[d] = find_int(batch, d, &k) ? idx->d[k] : find_int(contracting, d, &k) ? over[k] : idx->d[next++];
  return gen_index_seal(out);
}

/* *acc + the product of the operands' elements at these indices. */
static weft_status *add_product(gen_emit *e, const small_dot *d, const gen_index *const at[2], gen_value *acc)
{
  gen_value v[2];

  for (int i = 0; i < 2; i++) WEFT_TRY(gen_emit_leaf(e, d->env, d->instr->operands[i], 0, at[i], &v[i]));
  for (int i = 0; i < 2; i++) WEFT_TRY(gen_convert(e, d->instr->operands[i]->shape->type, d->acc_type, v[i], &v[i]));
  if (weft_dtype_is_complex(d->acc_type)) {
    gen_value product = gen_complex_mul(e, v[0], v[1]);
    *acc = (gen_value){gen_bin(e, LLVMFAdd, acc->re, product.re), gen_bin(e, LLVMFAdd, acc->im, product.im)};
  } else if (weft_dtype_is_float(d->acc_type)) {
    acc->re = gen_fma(e, v[0].re, v[1].re, acc->re);
  } else if (d->acc_type == WEFT_PRED) {
    acc->re = gen_bin(e, LLVMOr, acc->re, gen_bin(e, LLVMAnd, v[0].re, v[1].re));
  } else {
    acc->re = gen_bin(e, LLVMAdd, acc->re, gen_bin(e, LLVMMul, v[0].re, v[1].re));
  }
  return NULL;
}

/* ---- lanes that are rows --------------------------------------------------------------------------------------- */

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
static bool lanes_are_rows(gen_emit *e, const small_dot *d, const gen_index *idx, int *out_var)
{
  const hlo_dot_attrs *dot = d->instr->u.dot;
  const gen_affine first[1] = {gen_affine_const(0)};
  bool varies[2];

  if (e->lanes < ROWS_AT_ONCE || e->mask || d->total <= UNROLL || dot->lhs_contracting.count != 1 ||
      !(d->acc_type == WEFT_F32 || d->acc_type == WEFT_F64))
    return false;
  *out_var = lane_variable(e, idx);
  if (*out_var < 0) return false;
  for (int i = 0; i < 2; i++) {
    const hlo_instr *x = d->instr->operands[i];
    if (gen_through_views(x)->op != HLO_PARAMETER ||
        !is_innermost(x->shape, i ? dot->rhs_contracting.v[0] : dot->lhs_contracting.v[0]))
      return false;
    varies[i] = gen_index_varies(e, operand_index(e, d->instr, i, idx, first));
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
static weft_status *step_of_rows(gen_emit *e, const small_dot *d, const gen_index *const *rows, gen_affine over,
                                 const gen_value *slots)
{
  for (int r = 0; r < ROWS_AT_ONCE; r++) {
    gen_value acc = gen_acc_get(e, slots[r]), sum = acc;
    const gen_index *at[2];
    for (int i = 0; i < 2; i++) at[i] = operand_index(e, d->instr, i, rows[r], &over);
    WEFT_TRY(add_product(e, d, at, &sum));
    if (e->mask) sum.re = gen_select(e, e->mask, sum.re, acc.re);
    gen_acc_set(e, slots[r], sum);
  }
  return NULL;
}

/* The products of ROWS_AT_ONCE rows, added up lane by lane. */
static weft_status *multiply_rows(gen_emit *e, const small_dot *d, const gen_index *const *rows, gen_ssa *out)
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

static weft_status *dot_of_rows(gen_emit *e, const small_dot *d, const gen_index *idx, int var, gen_ssa *out)
{
  gen_var own = e->vars[var];
  gen_ssa sums[64];
  int lanes = e->lanes, mark = gen_memo_push(e);

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
  *out = sum_of_each(e, sums);
  return NULL;
}

/* ---- element by element ---------------------------------------------------------------------------------------- */

static weft_status *dot_of_elements(gen_emit *e, const small_dot *d, const gen_index *idx, gen_value *out)
{
  hlo_ints contracting = d->instr->u.dot->lhs_contracting;
  const hlo_shape *l = d->instr->operands[0]->shape;
  bool varies = gen_index_varies(e, idx) || (e->mask && gen_is_vector(e->mask)), loops_over = d->total > UNROLL;
  gen_ssa none = LLVMConstNull(gen_register_type(e->part, d->acc_type));
  gen_value slot = gen_acc_slot(e, d->acc_type, varies ? e->lanes : 1);
  gen_affine over[HLO_MAX_RANK];
  gen_loop loops[HLO_MAX_RANK];

  gen_acc_set(e, slot, (gen_value){none, slot.im ? none : NULL});
  int mark = gen_memo_push(e);
  for (int i = 0; i < contracting.count && loops_over; i++) {
    gen_loop_static(e, &loops[i], 0, l->dims[contracting.v[i]], 1);
    over[i] = gen_affine_var(e, loops[i].var);
  }
  for (int64_t u = 0; u < (loops_over ? 1 : d->total); u++) {
    int64_t rest = u;
    for (int i = contracting.count - 1; i >= 0 && !loops_over; i--) {
      int64_t n = l->dims[contracting.v[i]];
      over[i] = gen_affine_const(rest % n);
      rest /= n;
    }
    gen_value acc = gen_acc_get(e, slot);
    const gen_index *at[2];
    for (int i = 0; i < 2; i++) at[i] = operand_index(e, d->instr, i, idx, over);
    WEFT_TRY(add_product(e, d, at, &acc));
    gen_acc_set(e, slot, acc);
  }
  gen_memo_pop(e, mark);
  for (int i = contracting.count - 1; i >= 0 && loops_over; i--) gen_loop_end(e, &loops[i]);
  *out = gen_acc_get(e, slot);
  return NULL;
}

weft_status *gen_emit_dot(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  const hlo_dot_attrs *dot = instr->u.dot;
  weft_dtype type = instr->shape->type;
  small_dot d = {.instr = instr, .env = env, .total = 1};
  gen_value sum = {0};
  int var;

  if (dot->sparsity || instr->operand_count > 2) return gen_unimplemented(e, instr, "sparse");
  d.acc_type = weft_dtype_is_float(type) && weft_dtype_bits(type) < 32 ? WEFT_F32 : type;
  for (int i = 0; i < dot->lhs_contracting.count; i++)
    d.total *= instr->operands[0]->shape->dims[dot->lhs_contracting.v[i]];
  if (lanes_are_rows(e, &d, idx, &var)) WEFT_TRY(dot_of_rows(e, &d, idx, var, &sum.re));
  else WEFT_TRY(dot_of_elements(e, &d, idx, &sum));
  return gen_convert(e, d.acc_type, type, sum, out);
}
