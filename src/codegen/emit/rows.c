/* codegen/emit/rows.c -- one row of a kernel of rows: its reduces, in stages, and the results that depend on them. */
#include <config.h>

#include "codegen/emit/emit.h"

weft_status *gen_row_step(gen_row *r, gen_emit *e, gen_affine col, const gen_acc *accs, int count, gen_value *slots)
{
  gen_affine linear = gen_affine_add(e, gen_affine_scale(e, r->at, r->form.cols), col);

  for (int i = 0; i < count; i += accs[i].leaves) {
    const hlo_shape *in = accs[i].reduce->operands[0]->shape;
    WEFT_TRY(gen_accs_step(e, &r->f->env, accs + i, accs[i].leaves, slots + i, gen_delinearize(e, in, linear)));
  }
  return NULL;
}

weft_status *gen_row_first(gen_row *r, gen_emit *e, gen_acc *acc, gen_value *out)
{
  if (acc->op == HLO_OPCODE_COUNT) return gen_acc_init(e, &r->f->env, acc, out);
  *out = gen_identity(e, acc->op, acc->type);
  return NULL;
}

weft_status *gen_row_bind(gen_row *r, gen_emit *e, gen_acc *accs, int count, gen_value *v)
{
  for (int i = 0; i < count; i++) {
    gen_value init;
    if (accs[i].op != HLO_OPCODE_COUNT) {
      WEFT_TRY(gen_acc_init(e, &r->f->env, &accs[i], &init));
      v[i] = gen_combine(e, accs[i].op, accs[i].type, init, v[i]);
    }
    v[i] = gen_acc_result(e, &accs[i], v[i]);
    if (accs[i].leaf == 0)
      WEFT_TRY(gen_env_bind(e, &r->f->env, accs[i].reduce, (gen_source){.kind = GEN_SOURCE_VALUE, .values = &v[i]}));
  }
  return NULL;
}

typedef struct last_ctx {
  gen_row *r;
  bool per_row; /* true: the results with one element a row; false: those with one a column */
} last_ctx;

/* Makes the results of this kind at columns [col, col + period), then stores them. */
static weft_status *store_results(void *ctx, gen_emit *e, gen_affine col)
{
  last_ctx *l = ctx;
  gen_row *r = l->r;
  gen_frame *f = r->f;
  int period = l->per_row ? 1 : WEFT_MAX(r->period, 1), n = WEFT_MIN(f->result_count, HLO_MAX_RANK);
  gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, n * period);
  gen_affine linear = l->per_row ? r->at : gen_affine_add(e, gen_affine_scale(e, r->at, r->form.cols), col);

  WEFT_TRY_ALLOC(v);
  for (int k = 0; k < period; k++)
    for (int i = 0; i < n; i++) {
      const hlo_shape *shape = hlo_shape_leaf(f->fusion->shape, i);
      const gen_index *at = gen_delinearize(e, shape, gen_affine_offset(linear, k));
      if ((hlo_shape_elems(shape) == r->form.rows) != l->per_row) continue;
      WEFT_TRY(gen_emit_leaf(e, &f->env, f->comp->root, i, at, &v[k * n + i]));
    }
  for (int k = 0; k < period; k++)
    for (int i = 0; i < n; i++)
      if ((hlo_shape_elems(hlo_shape_leaf(f->fusion->shape, i)) == r->form.rows) == l->per_row)
        gen_store(e, &f->results[i], gen_affine_offset(linear, k), v[k * n + i]);
  return NULL;
}

weft_status *gen_row_finish(gen_row *r, gen_emit *e)
{
  const gen_walker *walker = e->part->walker;
  last_ctx columns = {r, false}, row = {r, true};

  /* A result of the row may lie on an operand that its columns read. */
  if (!r->form.per_row_only) WEFT_TRY(walker->columns(r, e, store_results, &columns));
  return walker->once(r, e, store_results, &row);
}

weft_status *gen_row_hoist(gen_row *r, gen_emit *e)
{
  HLO_FOREACH(x, r->form.comp)
    if (gen_row_level(&r->form, x) == 0) WEFT_TRY(gen_hoist(e, &r->f->env, x));
  return NULL;
}

static weft_status *take_stage(gen_row *r, gen_emit *e, int stage)
{
  const hlo_instr *mine[GEN_MOST_ROW_REDUCES];
  gen_acc *accs;
  int n = 0, count;

  for (int i = 0; i < r->form.reduce_count; i++)
    if (gen_row_level(&r->form, r->form.reduces[i]) == stage + 1) mine[n++] = r->form.reduces[i];
  WEFT_TRY(gen_accs_of(e, mine, n, &accs, &count));
  gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, count);
  WEFT_TRY_ALLOC(v);
  WEFT_TRY(e->part->walker->accumulate(r, e, stage, accs, count, v));
  return gen_row_bind(r, e, accs, count, v);
}

weft_status *gen_emit_row(gen_row *r, gen_emit *e)
{
  for (int s = 0; s < r->form.stages; s++) WEFT_TRY(take_stage(r, e, s));
  WEFT_TRY(gen_row_finish(r, e));
  r->f->env.bound_count = 0;
  return NULL;
}
