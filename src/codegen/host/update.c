/* codegen/host/update.c -- kernels that change part of an array: dynamic-update-slice, scatter, select-and-scatter.
 * Phase 0 puts the array into the result (nothing to do if both are one buffer); phase 1 updates it there. */
#include <config.h>

#include "codegen/host/host.h"

#include <string.h>

enum { COPY_BLOCK = 1 << 18, WIDE_WINDOW = 256, WINDOW_BLOCK = 128 };

/* ---- phase 0 --------------------------------------------------------------------------------------------------- */

/* One result and the array it starts from. */
typedef struct base {
  const hlo_instr *array; /* an instruction of the fusion */
  int leaf;               /* of the fusion's result */
} base;

static const hlo_instr *through_reshapes(const hlo_instr *x)
{
  while (x->op == HLO_RESHAPE || x->op == HLO_BITCAST || x->op == HLO_COPY) x = x->operands[0];
  return x;
}

typedef struct store_ctx {
  gen_frame *f;
  base what;
} store_ctx;

static weft_status *store_element(void *ctx, gen_emit *e, gen_affine linear)
{
  store_ctx *s = ctx;
  gen_value v;

  WEFT_TRY(gen_emit_leaf(e, &s->f->env, s->what.array, 0, gen_delinearize(e, s->what.array->shape, linear), &v));
  gen_store(e, &s->f->results[s->what.leaf], linear, v);
  return NULL;
}

static weft_status *bring_in(gen_frame *f, base what, int64_t *units, double *ns, bool alone)
{
  gen_emit *e = &f->e;
  const hlo_instr *source = through_reshapes(what.array);
  int64_t bytes = hlo_shape_bytes(what.array->shape);

  *units = 1;
  if (source->op == HLO_PARAMETER && hlo_shape_is_array(source->shape) &&
      source->shape->type == what.array->shape->type) {
    const gen_buffer *from = f->env.params[source->u.parameter_number].buffers, *to = &f->results[what.leaf];
    int64_t block = alone && bytes > 2 * COPY_BLOCK ? COPY_BLOCK : bytes;
    gen_if moved;
    if (bytes == 0) return NULL;
    *units = (bytes + block - 1) / block;
    *ns = f->fusion->u.fusion.alias_count ? 1 : (double)block / 8;
    gen_if_begin(e, &moved,
                 gen_icmp(e, LLVMIntNE, LLVMBuildPtrToInt(e->b, from->ptr, e->part->i64, ""),
                          LLVMBuildPtrToInt(e->b, to->ptr, e->part->i64, "")));
    gen_ssa lo = gen_i64(e, 0), length = gen_i64(e, bytes);
    if (*units > 1) {
      lo = LLVMBuildNSWMul(e->b, f->begin, gen_i64(e, block), "");
      gen_ssa hi =
        gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWMul(e->b, f->end, gen_i64(e, block), ""), gen_i64(e, bytes));
      length = LLVMBuildNSWSub(e->b, hi, lo, "");
    }
    LLVMBuildMemCpy(e->b, LLVMBuildInBoundsGEP2(e->b, e->part->i8, to->ptr, &lo, 1, ""), 1,
                    LLVMBuildInBoundsGEP2(e->b, e->part->i8, from->ptr, &lo, 1, ""), 1, length);
    gen_if_end(e, &moved);
    return NULL;
  }
  gen_nest nest;
  store_ctx ctx = {f, what};
  int64_t found;
  WEFT_TRY(gen_nest_of(e->arena, f->comp, &what.array, 1, what.array->shape, &nest));
  WEFT_TRY(
    gen_emit_nest(e, &nest, gen_widest_bytes(f->comp), alone ? f->begin : NULL, f->end, &found, store_element, &ctx));
  *units = alone ? found : 1;
  *ns = (double)bytes / 8 / (double)WEFT_MAX(*units, 1);
  return NULL;
}

static weft_status *phase_bring_in(gen_part *part, gen_kernel_spec *spec, const base *bases, int count)
{
  gen_frame f;
  gen_phase *phase = &spec->info->phases[0];

  WEFT_TRY(gen_frame_open(part, spec, 0, &f));
  for (int i = 0; i < count; i++) WEFT_TRY(bring_in(&f, bases[i], &phase->units, &phase->unit_ns, count == 1));
  gen_frame_close(&f);
  return NULL;
}

/* ---- dynamic-update-slice -------------------------------------------------------------------------------------- */

typedef struct dus_ctx {
  gen_frame *f;
  const hlo_instr *dus;
  int leaf;
  const gen_affine *starts;
} dus_ctx;

static weft_status *store_update(void *ctx, gen_emit *e, gen_affine linear)
{
  dus_ctx *d = ctx;
  const hlo_shape *update = d->dus->operands[1]->shape;
  const gen_index *idx = gen_delinearize(e, update, linear);
  gen_index *to = gen_index_new(e, update->rank);
  gen_value v;

  WEFT_TRY(gen_emit_leaf(e, &d->f->env, d->dus->operands[1], 0, idx, &v));
  for (int i = 0; i < update->rank; i++) to->d[i] = gen_affine_add(e, idx->d[i], d->starts[i]);
  gen_store(e, &d->f->results[d->leaf], gen_linearize(e, d->dus->shape, to), v);
  return NULL;
}

/* Leaf `leaf` of the root as an instruction, seen through reshapes. */
static const hlo_instr *root_of(gen_frame *f, int leaf)
{
  gen_env *env = &f->env;
  const hlo_instr *x = f->comp->root;

  gen_resolve(&env, &x, &leaf);
  return through_reshapes(x);
}

weft_status *gen_emit_dus_kernel(gen_part *part, gen_kernel_spec *spec)
{
  const hlo_computation *comp = spec->fusion->called[0];
  int leaves = hlo_shape_leaf_count(spec->fusion->shape);
  base *bases = WEFT_ARENA_ARRAY(part->arena, base, leaves);
  gen_kernel *info = spec->info;
  gen_frame f;

  WEFT_TRY_ALLOC(bases);
  for (int r = 0; r < leaves; r++) bases[r] = (base){gen_updated_leaf(comp, r)->operands[0], r};
  WEFT_TRY(phase_bring_in(part, spec, bases, leaves));
  WEFT_TRY(gen_frame_open(part, spec, 1, &f));
  info->phase_count = 2;
  info->phases[1].units = 1;
  for (int r = 0; r < leaves; r++) {
    const hlo_instr *dus = root_of(&f, r), *update = dus->operands[1];
    gen_affine starts[HLO_MAX_RANK];
    dus_ctx ctx = {&f, dus, r, starts};
    gen_nest nest;
    int64_t units;
    WEFT_TRY(gen_emit_starts(&f.e, &f.env, dus, 2, dus->shape, update->shape->dims, starts));
    WEFT_TRY(gen_nest_of(part->arena, comp, &update, 1, update->shape, &nest));
    WEFT_TRY(gen_emit_nest(&f.e, &nest, gen_widest_bytes(comp), leaves == 1 ? f.begin : NULL, f.end, &units,
                           store_update, &ctx));
    if (leaves == 1) info->phases[1].units = units;
  }
  gen_frame_close(&f);
  return NULL;
}

/* ---- scatter --------------------------------------------------------------------------------------------------- */

typedef struct scatter_ctx {
  gen_frame *f;
  const hlo_instr *scatter;
  int n;                            /* arrays scattered to */
  gen_affine at[HLO_MAX_RANK];      /* index into the updates */
  gen_affine start[HLO_MAX_RANK];   /* of the window in the operand */
  int window_dims[HLO_MAX_RANK], window_count; /* window dimensions of the updates, and the operand's for each */
  int operand_dims[HLO_MAX_RANK];
  int split;                        /* which of the window dimensions units divide; -1: none */
  int64_t block;
  gen_ssa begin, end;
} scatter_ctx;

static bool has(hlo_ints ints, int64_t x)
{
  for (int i = 0; i < ints.count; i++)
    if (ints.v[i] == x) return true;
  return false;
}

static weft_status *scatter_element(scatter_ctx *s, gen_emit *e)
{
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape, *operand = s->scatter->operands[0]->shape;
  gen_index *from = gen_index_new(e, updates->rank), *to = gen_index_new(e, operand->rank);
  gen_value *args = WEFT_ARENA_ARRAY(e->arena, gen_value, 2 * s->n);
  const gen_value *r;

  WEFT_TRY_ALLOC(args);
  memcpy(from->d, s->at, sizeof from->d[0] * (size_t)updates->rank);
  memcpy(to->d, s->start, sizeof to->d[0] * (size_t)operand->rank);
  for (int i = 0; i < s->window_count; i++)
    to->d[s->operand_dims[i]] = gen_affine_add(e, to->d[s->operand_dims[i]], s->at[s->window_dims[i]]);
  gen_index_seal(from);
  gen_affine linear = gen_linearize(e, operand, to);
  for (int i = 0; i < s->n; i++) {
    args[i] = gen_load(e, &s->f->results[i], linear);
    WEFT_TRY(gen_emit_leaf(e, &s->f->env, s->scatter->operands[s->n + 1 + i], 0, from, &args[s->n + i]));
  }
  WEFT_TRY(gen_emit_apply(e, s->scatter->called[0], args, &r));
  for (int i = 0; i < s->n; i++) gen_store(e, &s->f->results[i], linear, r[i]);
  return NULL;
}

static weft_status *scatter_lanes(void *ctx, gen_emit *e, gen_affine i)
{
  scatter_ctx *s = ctx;

  s->at[s->window_dims[s->window_count - 1]] = i;
  return scatter_element(s, e);
}

static weft_status *scatter_window(scatter_ctx *s, gen_emit *e, int k)
{
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape, *operand = s->scatter->operands[0]->shape;

  if (k == s->window_count) return scatter_element(s, e);
  int64_t size = updates->dims[s->window_dims[k]];
  gen_ssa lo = gen_i64(e, 0), hi = gen_i64(e, size);
  if (k == s->split) {
    lo = LLVMBuildNSWMul(e->b, s->begin, gen_i64(e, s->block), "");
    hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWMul(e->b, s->end, gen_i64(e, s->block), ""), hi);
  }
  if (k == s->window_count - 1 && s->operand_dims[k] == operand->rank - 1) {
    int lanes = gen_choose_lanes(gen_widest_bytes(s->f->comp), size);
    return gen_emit_lanes(e, lo, hi, 0, size, lanes, 64, scatter_lanes, s);
  }
  gen_loop loop;
  gen_loop_begin(e, &loop, lo, hi, 1, 0, size, 1);
  int mark = gen_memo_push(e);
  s->at[s->window_dims[k]] = gen_affine_var(e, loop.var);
  WEFT_TRY(scatter_window(s, e, k + 1));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

/* All scatter dimensions of the updates are fixed here: finds the window's place and, if the window lies inside the
 * operand, scatters it. */
static weft_status *scatter_place(scatter_ctx *s, gen_emit *e)
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
  WEFT_TRY(scatter_window(s, e, 0));
  gen_memo_pop(e, mark);
  if (inside) gen_if_end(e, &block);
  return NULL;
}

static weft_status *scatter_dims(scatter_ctx *s, gen_emit *e, int d)
{
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape;
  gen_loop loop;

  while (d < updates->rank && has(s->scatter->u.scatter->update_window_dims, d)) d++;
  if (d == updates->rank) return scatter_place(s, e);
  if (updates->dims[d] == 1) {
    s->at[d] = gen_affine_const(0);
    return scatter_dims(s, e, d + 1);
  }
  gen_loop_static(e, &loop, 0, updates->dims[d], 1);
  int mark = gen_memo_push(e);
  s->at[d] = gen_affine_var(e, loop.var);
  WEFT_TRY(scatter_dims(s, e, d + 1));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

weft_status *gen_emit_scatter_kernel(gen_part *part, gen_kernel_spec *spec)
{
  const hlo_computation *comp = spec->fusion->called[0];
  const hlo_instr *scatter = through_reshapes(comp->root);
  gen_kernel *info = spec->info;
  gen_frame f;

  int n = (scatter->operand_count - 1) / 2;
  const hlo_scatter_attrs *a = scatter->u.scatter;
  const hlo_shape *operand = scatter->operands[0]->shape, *updates = scatter->operands[n + 1]->shape;
  scatter_ctx s = {.f = &f, .scatter = scatter, .n = n, .split = -1};
  base *bases = WEFT_ARENA_ARRAY(part->arena, base, n);
  int64_t window = 1;

  WEFT_TRY_ALLOC(bases);
  for (int i = 0; i < n; i++) bases[i] = (base){scatter->operands[i], i};
  WEFT_TRY(phase_bring_in(part, spec, bases, n));
  for (int d = 0; d < operand->rank; d++) {
    if (has(a->inserted_window_dims, d) || has(a->input_batching_dims, d)) continue;
    s.window_dims[s.window_count] = (int)a->update_window_dims.v[s.window_count];
    s.operand_dims[s.window_count] = d;
    window *= updates->dims[s.window_dims[s.window_count++]];
  }
  info->phase_count = 2;
  info->phases[1].units = 1;
  if (window >= WIDE_WINDOW) { /* each unit does its part of every window, so the updates of one place stay in order */
    int64_t inner = window;
    for (int k = 0; k < s.window_count && s.split < 0; k++) {
      int64_t size = updates->dims[s.window_dims[k]];
      inner /= size;
      if (size == 1) continue;
      s.split = k;
      s.block = inner >= WINDOW_BLOCK ? 1 : WINDOW_BLOCK;
      info->phases[1].units = (size + s.block - 1) / s.block;
    }
  }
  WEFT_TRY(gen_frame_open(part, spec, 1, &f));
  s.begin = f.begin, s.end = f.end;
  if (hlo_shape_elems(updates) > 0) WEFT_TRY(scatter_dims(&s, &f.e, 0));
  gen_frame_close(&f);
  return NULL;
}

/* ---- select-and-scatter ---------------------------------------------------------------------------------------- */

typedef struct pick_ctx {
  gen_frame *f;
  const hlo_instr *instr;
  gen_affine out[HLO_MAX_RANK], at[HLO_MAX_RANK];
  gen_ssa cond, best, best_im, best_at, found; /* slots */
} pick_ctx;

static gen_ssa both(gen_emit *e, gen_ssa a, gen_ssa b) { return !a ? b : !b ? a : gen_bin(e, LLVMAnd, a, b); }

static gen_ssa load_slot(gen_emit *e, gen_ssa slot)
{
  return LLVMBuildLoad2(e->b, LLVMGetAllocatedType(slot), slot, "");
}

/* Looks at one element of the window. It becomes the pick if there is none yet, or if select(pick, element) is
 * false. */
static weft_status *pick_tap(pick_ctx *p, gen_emit *e)
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

static weft_status *pick_window(pick_ctx *p, gen_emit *e, int d)
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

static weft_status *pick_source(pick_ctx *p, gen_emit *e, int d, gen_ssa begin, gen_ssa end)
{
  const hlo_shape *source = p->instr->operands[1]->shape;
  gen_part *part = e->part;
  gen_loop loop;

  if (d < source->rank) {
    if (d == 0 && begin) gen_loop_begin(e, &loop, begin, end, 1, 0, source->dims[0], 1);
    else gen_loop_static(e, &loop, 0, source->dims[d], 1);
    int mark = gen_memo_push(e);
    p->out[d] = gen_affine_var(e, loop.var);
    WEFT_TRY(pick_source(p, e, d + 1, begin, end));
    gen_memo_pop(e, mark);
    gen_loop_end(e, &loop);
    return NULL;
  }
  LLVMBuildStore(e->b, LLVMConstNull(part->i1), p->found);
  LLVMBuildStore(e->b, gen_i64(e, 0), p->best_at);
  LLVMBuildStore(e->b, LLVMConstNull(LLVMGetAllocatedType(p->best)), p->best);
  if (p->best_im) LLVMBuildStore(e->b, LLVMConstNull(LLVMGetAllocatedType(p->best_im)), p->best_im);
  WEFT_TRY(pick_window(p, e, 0));
  gen_if block;
  gen_if_begin(e, &block, load_slot(e, p->found));
  int mark = gen_memo_push(e);
  gen_index *at = gen_index_new(e, source->rank);
  gen_value args[2];
  const gen_value *r;
  memcpy(at->d, p->out, sizeof at->d[0] * (size_t)source->rank);
  gen_affine to = gen_affine_value(e, load_slot(e, p->best_at), 0, WEFT_MAX(hlo_shape_elems(p->instr->shape) - 1, 1));
  args[0] = gen_load(e, &p->f->results[0], to);
  WEFT_TRY(gen_emit_leaf(e, &p->f->env, p->instr->operands[1], 0, gen_index_seal(at), &args[1]));
  WEFT_TRY(gen_emit_apply(e, p->instr->called[1], args, &r));
  gen_store(e, &p->f->results[0], to, r[0]);
  gen_memo_pop(e, mark);
  gen_if_end(e, &block);
  return NULL;
}

typedef struct init_ctx {
  gen_frame *f;
  const hlo_instr *init;
} init_ctx;

static weft_status *store_init(void *ctx, gen_emit *e, gen_affine linear)
{
  init_ctx *c = ctx;
  gen_value v;

  WEFT_TRY(gen_emit_leaf(e, &c->f->env, c->init, 0, gen_index_seal(gen_index_new(e, 0)), &v));
  gen_store(e, &c->f->results[0], linear, v);
  return NULL;
}

weft_status *gen_emit_select_and_scatter_kernel(gen_part *part, gen_kernel_spec *spec)
{
  const hlo_computation *comp = spec->fusion->called[0];
  const hlo_instr *instr = through_reshapes(comp->root);
  const hlo_window *w = instr->u.window;
  const hlo_shape *in = instr->operands[0]->shape, *source = instr->operands[1]->shape;
  gen_kernel *info = spec->info;
  gen_frame f;

  for (int d = 0; d < in->rank; d++)
    if (w->dims[d].base_dilation != 1 || w->dims[d].reversal) {
      gen_emit none = {.part = part};
      return gen_unimplemented(&none, instr, "base dilation or reversal");
    }
  WEFT_TRY(gen_frame_open(part, spec, 0, &f));
  gen_nest all = {.count = 1, .extent = {hlo_shape_elems(instr->shape)}, .stride = {1}};
  init_ctx init = {&f, instr->operands[2]};
  WEFT_TRY(
    gen_emit_nest(&f.e, &all, gen_widest_bytes(comp), f.begin, f.end, &info->phases[0].units, store_init, &init));
  gen_frame_close(&f);
  info->phases[0].unit_ns = (double)hlo_shape_bytes(instr->shape) / 16 / (double)WEFT_MAX(info->phases[0].units, 1);

  WEFT_TRY(gen_frame_open(part, spec, 1, &f));
  gen_emit *e = &f.e;
  LLVMTypeRef t = gen_register_type(part, in->type);
  pick_ctx p = {.f = &f, .instr = instr, .best = gen_alloca(e, t, "best"), .best_at = gen_alloca(e, part->i64, "at"),
                .found = gen_alloca(e, part->i1, "found")};
  if (weft_dtype_is_complex(in->type)) p.best_im = gen_alloca(e, t, "best");
  /* If the window does not extend along the first dimension, windows of different rows do not meet. */
  bool apart = in->rank > 0 && w->dims[0].size == 1 && w->dims[0].stride == 1 && w->dims[0].pad_low == 0 &&
               source->dims[0] > 1;
  if (hlo_shape_elems(source) > 0 && hlo_shape_elems(instr->shape) > 0)
    WEFT_TRY(pick_source(&p, e, 0, apart ? f.begin : NULL, f.end));
  gen_frame_close(&f);
  info->phase_count = 2;
  info->phases[1].units = apart ? source->dims[0] : 1;
  return NULL;
}
