/* codegen/emit/lanes.c -- values that stand for several neighbours of a result, one in each lane of a vector.
 *
 * The walker sets how many lanes there are (gen_emit.lanes) and which loop variable counts them (gen_var.lane). No
 * other file of this folder knows that number: they ask here whether a value varies between lanes. */
#include <config.h>

#include "codegen/emit/emit.h"

gen_ssa gen_widen(gen_emit *e, gen_ssa v) { return gen_splat(e, v, e->lanes); }

gen_ssa gen_digit_ssa(gen_emit *e, gen_ssa v, int64_t div, int64_t mod, int64_t hi)
{
  bool narrow = (gen_is_vector(v) || e->part->walker->divides_narrow) && hi <= INT32_MAX;

  if (narrow) v = gen_cast(e, LLVMTrunc, v, e->part->i32);
  if (div > 1) v = hi >= div ? gen_bin(e, LLVMUDiv, v, gen_i(v, div)) : gen_i(v, 0);
  if (mod && hi / div >= mod) v = gen_bin(e, LLVMURem, v, gen_i(v, mod));
  return narrow ? gen_cast(e, LLVMZExt, v, e->part->i64) : v;
}

/* In vector mode: how a term changes from lane to lane. */
typedef enum lane_motion { LANE_UNIFORM, LANE_STEPS, LANE_FREE } lane_motion;

static lane_motion term_motion(gen_emit *e, const gen_term *t)
{
  const gen_var *v;

  if (e->lanes == 1) return LANE_UNIFORM;
  if (t->var < 0) return gen_is_vector(t->value) ? LANE_FREE : LANE_UNIFORM;
  v = &e->vars[t->var];
  if (!v->lane) return LANE_UNIFORM;
  bool aligned = v->align % e->lanes == 0;
  if (t->div == 1) return t->mod == 0 || (aligned && t->mod % e->lanes == 0) ? LANE_STEPS : LANE_FREE;
  return aligned && t->div % e->lanes == 0 ? LANE_UNIFORM : LANE_FREE;
}

bool gen_affine_varies(gen_emit *e, gen_affine a)
{
  for (int i = 0; i < a.count; i++)
    if (term_motion(e, &a.terms[i]) != LANE_UNIFORM) return true;
  return false;
}

bool gen_index_varies(gen_emit *e, const gen_index *idx)
{
  for (int d = 0; d < idx->rank; d++)
    if (gen_affine_varies(e, idx->d[d])) return true;
  return false;
}

int gen_lanes_at(gen_emit *e, const gen_index *idx)
{
  return gen_index_varies(e, idx) || (e->mask && gen_is_vector(e->mask)) ? e->lanes : 1;
}

static gen_ssa add_scaled(gen_emit *e, gen_ssa sum, gen_ssa v, int64_t coef)
{
  if (coef != 1) v = LLVMBuildNSWMul(e->b, v, gen_i(v, coef), "");
  if (!sum) return v;
  gen_unify(e, &sum, &v);
  return LLVMBuildNSWAdd(e->b, sum, v, "");
}

void gen_affine_split(gen_emit *e, gen_affine a, gen_ssa *out_uniform, int64_t *out_lane_coef, gen_ssa *out_varying)
{
  gen_ssa uniform = NULL, varying = NULL;
  int64_t lane_coef = 0;

  for (int i = 0; i < a.count; i++) {
    const gen_term *t = &a.terms[i];
    lane_motion motion = term_motion(e, t);
    if (t->var < 0) {
      if (motion == LANE_FREE) varying = add_scaled(e, varying, t->value, t->coef);
      else uniform = add_scaled(e, uniform, t->value, t->coef);
      continue;
    }
    const gen_var *v = &e->vars[t->var];
    gen_ssa value = v->value;
    if (motion == LANE_FREE)
      value = LLVMBuildNSWAdd(e->b, gen_splat(e, value, e->lanes), gen_iota(e, e->part->i64, e->lanes, 1), "");
    if (t->div != 1 || t->mod) value = gen_digit_ssa(e, value, t->div, t->mod, v->hi - 1);
    if (motion == LANE_STEPS) lane_coef += t->coef;
    if (motion == LANE_FREE) varying = add_scaled(e, varying, value, t->coef);
    else uniform = add_scaled(e, uniform, value, t->coef);
  }
  if (!uniform) uniform = gen_i64(e, a.base);
  else if (a.base) uniform = LLVMBuildNSWAdd(e->b, uniform, gen_i64(e, a.base), "");
  *out_uniform = uniform, *out_lane_coef = lane_coef, *out_varying = varying;
}

gen_ssa gen_affine_ssa(gen_emit *e, gen_affine a)
{
  gen_ssa uniform, varying;
  int64_t lane_coef;

  gen_affine_split(e, a, &uniform, &lane_coef, &varying);
  if (lane_coef) varying = add_scaled(e, varying, gen_iota(e, e->part->i64, e->lanes, lane_coef), 1);
  return varying ? add_scaled(e, varying, uniform, 1) : uniform;
}
