/* codegen/emit/update.c -- kernels that change part of an array: what is computed and stored at one place. The walkers
 * choose the places, and in which order they are taken. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <string.h>

/* ---- the array that is changed --------------------------------------------------------------------------------- */

const gen_buffer *gen_base_buffer(const gen_frame *f, gen_base base)
{
  const hlo_instr *source = base.array;

  while (source->op == HLO_RESHAPE || source->op == HLO_BITCAST || source->op == HLO_COPY) source = source->operands[0];
  if (source->op != HLO_PARAMETER || !hlo_shape_is_array(source->shape) ||
      source->shape->type != base.array->shape->type)
    return NULL;
  return f->env.params[source->u.parameter_number].buffers;
}

weft_status *gen_base_store(void *ctx, gen_emit *e, gen_affine linear)
{
  gen_base_walk *w = ctx;
  gen_value v;

  WEFT_TRY(gen_emit_leaf(e, &w->f->env, w->base.array, 0, gen_delinearize(e, w->base.array->shape, linear), &v));
  gen_store(e, &w->f->results[w->base.leaf], linear, v);
  return NULL;
}

/* ---- dynamic-update-slice -------------------------------------------------------------------------------------- */

weft_status *gen_update_open(gen_update *u, gen_frame *f, const hlo_instr *dus, int leaf)
{
  *u = (gen_update){.f = f, .dus = dus, .leaf = leaf};
  return gen_emit_starts(&f->e, &f->env, dus, 2, dus->shape, dus->operands[1]->shape->dims, u->starts);
}

weft_status *gen_update_store(void *ctx, gen_emit *e, gen_affine linear)
{
  gen_update *d = ctx;
  const hlo_shape *update = d->dus->operands[1]->shape;
  const gen_index *idx = gen_delinearize(e, update, linear);
  gen_index *to = gen_index_new(e, update->rank);
  gen_value v;

  WEFT_TRY(gen_emit_leaf(e, &d->f->env, d->dus->operands[1], 0, idx, &v));
  for (int i = 0; i < update->rank; i++) to->d[i] = gen_affine_add(e, idx->d[i], d->starts[i]);
  gen_store(e, &d->f->results[d->leaf], gen_linearize(e, d->dus->shape, to), v);
  return NULL;
}

/* ---- scatter --------------------------------------------------------------------------------------------------- */

static bool has(hlo_ints ints, int64_t x)
{
  for (int i = 0; i < ints.count; i++)
    if (ints.v[i] == x) return true;
  return false;
}

void gen_scatter_open(gen_scatter *s, const hlo_instr *scatter)
{
  const hlo_scatter_attrs *a = scatter->u.scatter;
  int n = (scatter->operand_count - 1) / 2;

  *s = (gen_scatter){.scatter = scatter, .n = n, .window = 1};
  for (int d = 0; d < scatter->operands[0]->shape->rank; d++) {
    if (has(a->inserted_window_dims, d) || has(a->input_batching_dims, d)) continue;
    s->window_dims[s->window_count] = (int)a->update_window_dims.v[s->window_count];
    s->operand_dims[s->window_count] = d;
    s->window *= scatter->operands[n + 1]->shape->dims[s->window_dims[s->window_count++]];
  }
}

bool gen_scatter_in_window(const gen_scatter *s, int d) { return has(s->scatter->u.scatter->update_window_dims, d); }

bool gen_scatter_moves(const gen_scatter *s, int k)
{
  return has(s->scatter->u.scatter->scatter_dims_to_operand_dims, s->operand_dims[k]);
}

gen_affine gen_scatter_target(gen_scatter *s, gen_emit *e)
{
  const hlo_shape *operand = s->scatter->operands[0]->shape;
  gen_index *to = gen_index_new(e, operand->rank);

  memcpy(to->d, s->start, sizeof to->d[0] * (size_t)operand->rank);
  for (int i = 0; i < s->window_count; i++)
    to->d[s->operand_dims[i]] = gen_affine_add(e, to->d[s->operand_dims[i]], s->at[s->window_dims[i]]);
  return gen_linearize(e, operand, to);
}

const gen_index *gen_scatter_source(gen_scatter *s, gen_emit *e)
{
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape;
  gen_index *from = gen_index_new(e, updates->rank);

  memcpy(from->d, s->at, sizeof from->d[0] * (size_t)updates->rank);
  return gen_index_seal(from);
}

weft_status *gen_scatter_element(gen_scatter *s, gen_emit *e)
{
  gen_value *args = WEFT_ARENA_ARRAY(e->arena, gen_value, 2 * s->n);
  const gen_index *from = gen_scatter_source(s, e);
  gen_affine linear = gen_scatter_target(s, e);
  const gen_value *r;

  WEFT_TRY_ALLOC(args);
  for (int i = 0; i < s->n; i++) {
    args[i] = gen_load(e, &s->f->results[i], linear);
    WEFT_TRY(gen_emit_leaf(e, &s->f->env, s->scatter->operands[s->n + 1 + i], 0, from, &args[s->n + i]));
  }
  WEFT_TRY(gen_emit_apply(e, s->scatter->called[0], args, &r));
  for (int i = 0; i < s->n; i++) gen_store(e, &s->f->results[i], linear, r[i]);
  return NULL;
}

weft_status *gen_scatter_place(gen_scatter *s, gen_emit *e, gen_scatter_window *window)
{
  const hlo_scatter_attrs *a = s->scatter->u.scatter;
  const hlo_instr *indices = s->scatter->operands[s->n];
  const hlo_shape *operand = s->scatter->operands[0]->shape, *updates = s->scatter->operands[s->n + 1]->shape;
  gen_affine batch[HLO_MAX_RANK + 1];
  gen_ssa inside = NULL;
  int batches = 0;

  for (int d = 0; d < updates->rank; d++)
    if (!has(a->update_window_dims, d)) batch[batches++] = s->at[d];
  for (int d = 0; d < operand->rank; d++) s->start[d] = gen_affine_const(0);
  for (int i = 0; i < a->input_batching_dims.count; i++) {
    int64_t dim = a->scatter_indices_batching_dims.v[i];
    s->start[a->input_batching_dims.v[i]] = batch[dim < a->index_vector_dim ? dim : dim - 1];
  }
  for (int k = 0; k < a->scatter_dims_to_operand_dims.count; k++) {
    int64_t d = a->scatter_dims_to_operand_dims.v[k], size = 1;
    gen_index *at = gen_index_new(e, indices->shape->rank);
    gen_value v;
    for (int i = 0, b = 0; i < indices->shape->rank; i++)
      at->d[i] = i == a->index_vector_dim ? gen_affine_const(k) : batch[b++];
    WEFT_TRY(gen_emit_leaf(e, &s->f->env, indices, 0, gen_index_seal(at), &v));
    for (int i = 0; i < s->window_count; i++)
      if (s->operand_dims[i] == d) size = updates->dims[s->window_dims[i]];
    int64_t most = operand->dims[d] - size;
    if (most < 0) return NULL; /* no window fits */
    bool is_signed = weft_dtype_is_signed(indices->shape->type);
    if (gen_scalar_type(v.re) != e->part->i64) v.re = gen_cast(e, is_signed ? LLVMSExt : LLVMZExt, v.re, e->part->i64);
    gen_ssa fits = gen_icmp(e, LLVMIntULE, v.re, gen_i64(e, most));
    inside = inside ? gen_bin(e, LLVMAnd, inside, fits) : fits;
    s->start[d] = most == 0 ? gen_affine_const(0) : gen_affine_value(e, v.re, 0, most);
  }
  gen_if block;
  if (inside) gen_if_begin(e, &block, inside);
  int mark = gen_memo_push(e);
  WEFT_TRY(window(s, e));
  gen_memo_pop(e, mark);
  if (inside) gen_if_end(e, &block);
  return NULL;
}

/* ---- select-and-scatter ---------------------------------------------------------------------------------------- */

static gen_ssa both(gen_emit *e, gen_ssa a, gen_ssa b) { return !a ? b : !b ? a : gen_bin(e, LLVMAnd, a, b); }

static gen_ssa load_slot(gen_emit *e, gen_ssa slot)
{
  return LLVMBuildLoad2(e->b, LLVMGetAllocatedType(slot), slot, "");
}

/* Looks at one element of the window. It becomes the pick if there is none yet, or if select(pick, element) is
 * false. */
static weft_status *pick_tap(gen_pick *p, gen_emit *e)
{
  const hlo_shape *in = p->instr->operands[0]->shape;
  gen_index *at = gen_index_new(e, in->rank);
  gen_value args[2] = {0};
  const gen_value *keep;
  gen_if block;

  memcpy(at->d, p->at, sizeof at->d[0] * (size_t)in->rank);
  gen_index_seal(at);
  if (p->cond) gen_if_begin(e, &block, p->cond);
  int mark = gen_memo_push(e);
  WEFT_TRY(gen_emit_leaf(e, &p->f->env, p->instr->operands[0], 0, at, &args[1]));
  args[0] = (gen_value){load_slot(e, p->best), p->best_im ? load_slot(e, p->best_im) : NULL};
  WEFT_TRY(gen_emit_apply(e, p->instr->called[0], args, &keep));
  gen_ssa stay = gen_bin(e, LLVMAnd, load_slot(e, p->found), keep[0].re);
  gen_ssa here = gen_affine_ssa(e, gen_linearize(e, in, at));
  LLVMBuildStore(e->b, gen_select(e, stay, args[0].re, args[1].re), p->best);
  if (p->best_im) LLVMBuildStore(e->b, gen_select(e, stay, args[0].im, args[1].im), p->best_im);
  LLVMBuildStore(e->b, gen_select(e, stay, load_slot(e, p->best_at), here), p->best_at);
  LLVMBuildStore(e->b, LLVMConstInt(e->part->i1, 1, 0), p->found);
  gen_memo_pop(e, mark);
  if (p->cond) gen_if_end(e, &block);
  return NULL;
}

static weft_status *pick_window(gen_pick *p, gen_emit *e, int d)
{
  const hlo_shape *in = p->instr->operands[0]->shape;
  gen_ssa outer = p->cond;
  gen_loop loop;
  bool never;

  if (d == in->rank) return pick_tap(p, e);
  const hlo_window_dim *w = &p->instr->u.window->dims[d];
  gen_affine x = gen_affine_offset(gen_affine_scale(e, p->out[d], w->stride), -w->pad_low);
  if (w->size > 1) {
    gen_loop_static(e, &loop, 0, w->size, 1);
    x = gen_affine_add(e, x, gen_affine_scale(e, gen_affine_var(e, loop.var), w->window_dilation));
  }
  int mark = gen_memo_push(e);
  gen_ssa inside = gen_affine_within(e, x, 0, in->dims[d], &never);
  p->cond = both(e, outer, inside);
  p->at[d] = x;
  if (!never) WEFT_TRY(pick_window(p, e, d + 1));
  p->cond = outer;
  gen_memo_pop(e, mark);
  if (w->size > 1) gen_loop_end(e, &loop);
  return NULL;
}

weft_status *gen_pick_open(gen_pick *p, gen_frame *f, const hlo_instr *instr)
{
  gen_emit *e = &f->e;
  const hlo_shape *in = instr->operands[0]->shape;
  LLVMTypeRef type = gen_register_type(e->part, in->type);

  for (int d = 0; d < in->rank; d++)
    if (instr->u.window->dims[d].base_dilation != 1 || instr->u.window->dims[d].reversal)
      return gen_unimplemented(e, instr, "base dilation or reversal");
  *p = (gen_pick){.f = f,
                  .instr = instr,
                  .best = gen_alloca(e, type, "best"),
                  .best_at = gen_alloca(e, e->part->i64, "at"),
                  .found = gen_alloca(e, e->part->i1, "found")};
  if (weft_dtype_is_complex(in->type)) p->best_im = gen_alloca(e, type, "best");
  return NULL;
}

weft_status *gen_pick_find(gen_pick *p, gen_emit *e, gen_ssa *out_found, gen_ssa *out_at)
{
  LLVMBuildStore(e->b, LLVMConstNull(e->part->i1), p->found);
  LLVMBuildStore(e->b, gen_i64(e, 0), p->best_at);
  LLVMBuildStore(e->b, LLVMConstNull(LLVMGetAllocatedType(p->best)), p->best);
  if (p->best_im) LLVMBuildStore(e->b, LLVMConstNull(LLVMGetAllocatedType(p->best_im)), p->best_im);
  WEFT_TRY(pick_window(p, e, 0));
  *out_found = load_slot(e, p->found);
  *out_at = load_slot(e, p->best_at);
  return NULL;
}

weft_status *gen_pick_source(gen_pick *p, gen_emit *e, gen_value old, gen_value *out)
{
  const hlo_instr *source = p->instr->operands[1];
  gen_index *at = gen_index_new(e, source->shape->rank);
  gen_value args[2] = {old};
  const gen_value *r;

  memcpy(at->d, p->out, sizeof at->d[0] * (size_t)source->shape->rank);
  WEFT_TRY(gen_emit_leaf(e, &p->f->env, source, 0, gen_index_seal(at), &args[1]));
  WEFT_TRY(gen_emit_apply(e, p->instr->called[1], args, &r));
  *out = r[0];
  return NULL;
}
