/* codegen/emit/dot.c -- small dots: the sum of products that an element of the result needs. */
#include <config.h>

#include "codegen/emit/emit.h"

static bool find_int(hlo_ints ints, int64_t x, int *at)
{
  for (int i = 0; i < ints.count; i++)
    if (ints.v[i] == x) return *at = i, true;
  return false;
}

const gen_index *gen_dot_operand(gen_emit *e, const hlo_instr *instr, int which, const gen_index *idx,
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

weft_status *gen_dot_step(gen_emit *e, const gen_small_dot *d, const gen_index *idx, const gen_affine *over,
                          gen_value *acc)
{
  const gen_index *at[2];
  gen_value v[2];

  for (int i = 0; i < 2; i++) at[i] = gen_dot_operand(e, d->instr, i, idx, over);
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

/* Adds the products up one by one: in a loop over the contracted dimensions, or without one if they are few. */
static weft_status *dot_of_elements(gen_emit *e, const gen_small_dot *d, const gen_index *idx, gen_value *out)
{
  hlo_ints contracting = d->instr->u.dot->lhs_contracting;
  const hlo_shape *l = d->instr->operands[0]->shape;
  bool loops_over = d->total > GEN_UNROLLED_DOT;
  gen_ssa none = LLVMConstNull(gen_register_type(e->part, d->acc_type));
  gen_value slot = gen_acc_slot(e, d->acc_type, gen_lanes_at(e, idx));
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
    WEFT_TRY(gen_dot_step(e, d, idx, over, &acc));
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
  gen_small_dot d = {.instr = instr, .env = env, .total = 1};
  gen_value sum = {0};

  if (dot->sparsity || instr->operand_count > 2) return gen_unimplemented(e, instr, "sparse");
  d.acc_type = weft_dtype_is_float(type) && weft_dtype_bits(type) < 32 ? WEFT_F32 : type;
  for (int i = 0; i < dot->lhs_contracting.count; i++)
    d.total *= instr->operands[0]->shape->dims[dot->lhs_contracting.v[i]];
  if (e->part->walker->dot) WEFT_TRY(e->part->walker->dot(e, &d, idx, &sum));
  if (!sum.re) WEFT_TRY(dot_of_elements(e, &d, idx, &sum));
  return gen_convert(e, d.acc_type, type, sum, out);
}
