/* codegen/host/update.c -- kernels that change part of an array: dynamic-update-slice, scatter, select-and-scatter.
 * Phase 0 puts the array into the result (nothing to do if both are one buffer); phase 1 updates it there. */
#include <config.h>

#include "codegen/host/host.h"

#include <string.h>

enum {
  COPY_BLOCK = 1 << 18,
  WIDE_WINDOW = 256,
  WINDOW_BLOCK = 128,
  LEAST_UPDATES = 1 << 13, /* elements of updates that are divided among units without wide windows */
  MOST_UNITS = 1024,
  LEAST_PLACES = 64,       /* of a dimension of the operand that is divided among units */
  LOOK = 64,               /* indices that are compared at a time, a bit each */
};
/* To look at one index, mispredicted branches included, in the terms of gen_price. gen_price takes 2.4 ns for a number
 * of a scatter of single numbers that stay in the cache (0.6 ns measured on Zen 4): two threads gain nothing there. */
static const double LOOK_NS = 0.9;

/* ---- phase 0 --------------------------------------------------------------------------------------------------- */

static const hlo_instr *through_reshapes(const hlo_instr *x)
{
  while (x->op == HLO_RESHAPE || x->op == HLO_BITCAST || x->op == HLO_COPY) x = x->operands[0];
  return x;
}

static weft_status *bring_in(gen_frame *f, gen_base what, int64_t *units, double *ns, bool alone)
{
  gen_emit *e = &f->e;
  const gen_buffer *from = gen_base_buffer(f, what), *to = &f->results[what.leaf];
  int64_t bytes = hlo_shape_bytes(what.array->shape);

  *units = 1;
  if (from) {
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
    gen_ssa target = LLVMBuildInBoundsGEP2(e->b, e->part->i8, to->ptr, &lo, 1, "");
    LLVMBuildMemCpy(e->b, target, 1, LLVMBuildInBoundsGEP2(e->b, e->part->i8, from->ptr, &lo, 1, ""), 1, length);
    gen_if_end(e, &moved);
    return NULL;
  }
  gen_nest nest;
  gen_base_walk ctx = {f, what};
  int64_t found;
  WEFT_TRY(gen_nest_of(e->arena, f->comp, &what.array, 1, what.array->shape, &nest));
  WEFT_TRY(
    gen_emit_nest(e, &nest, gen_widest_bytes(f->comp), alone ? f->begin : NULL, f->end, &found, gen_base_store, &ctx));
  *units = alone ? found : 1;
  *ns = (double)bytes / 8 / (double)WEFT_MAX(*units, 1);
  return NULL;
}

static weft_status *phase_bring_in(gen_part *part, gen_kernel_spec *spec, const gen_base *bases, int count)
{
  gen_frame f;
  gen_phase *phase = &spec->info->phases[0];

  WEFT_TRY(gen_frame_open(part, spec, 0, &f));
  for (int i = 0; i < count; i++) WEFT_TRY(bring_in(&f, bases[i], &phase->units, &phase->unit_ns, count == 1));
  gen_frame_close(&f);
  return NULL;
}

/* ---- dynamic-update-slice -------------------------------------------------------------------------------------- */

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
  gen_base *bases = WEFT_ARENA_ARRAY(part->arena, gen_base, leaves);
  gen_kernel *info = spec->info;
  gen_frame f;

  WEFT_TRY_ALLOC(bases);
  for (int r = 0; r < leaves; r++) bases[r] = (gen_base){gen_updated_leaf(comp, r)->operands[0], r};
  WEFT_TRY(phase_bring_in(part, spec, bases, leaves));
  WEFT_TRY(gen_frame_open(part, spec, 1, &f));
  info->phase_count = 2;
  info->phases[1].units = 1;
  for (int r = 0; r < leaves; r++) {
    const hlo_instr *dus = root_of(&f, r), *update = dus->operands[1];
    gen_update ctx;
    gen_nest nest;
    int64_t units;
    WEFT_TRY(gen_update_open(&ctx, &f, dus, r));
    WEFT_TRY(gen_nest_of(part->arena, comp, &update, 1, update->shape, &nest));
    WEFT_TRY(gen_emit_nest(&f.e, &nest, gen_widest_bytes(comp), leaves == 1 ? f.begin : NULL, f.end, &units,
                           gen_update_store, &ctx));
    if (leaves == 1) info->phases[1].units = units;
  }
  gen_frame_close(&f);
  return NULL;
}

/* ---- scatter --------------------------------------------------------------------------------------------------- */

/* What units divide, at most one of the three. The updates of one place are always done by one unit, in order.
 *   split   a window dimension: each unit does its part of every window
 *   cut     a dimension of the updates along which no two windows meet
 *   column  a column of the indices: a unit owns the places that this column chooses in a part of a dimension of the
 *           operand. Each range of units looks at all indices, and does the windows whose places it owns. */
typedef struct scatter_ctx {
  gen_scatter base; /* first */
  int split, cut, column; /* -1: none */
  bool looks;             /* the range owns a part of the places; else it does all windows */
  int64_t block;          /* of what is divided, for one unit */
  gen_ssa begin, end;
} scatter_ctx;

static weft_status *scatter_lanes(void *ctx, gen_emit *e, gen_affine i)
{
  gen_scatter *s = ctx;

  s->at[s->window_dims[s->window_count - 1]] = i;
  return gen_scatter_element(s, e);
}

static weft_status *scatter_window(scatter_ctx *c, gen_emit *e, int k)
{
  gen_scatter *s = &c->base;
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape, *operand = s->scatter->operands[0]->shape;

  if (k == s->window_count) return gen_scatter_element(s, e);
  int64_t size = updates->dims[s->window_dims[k]];
  gen_ssa lo = gen_i64(e, 0), hi = gen_i64(e, size);
  if (k == c->split) {
    lo = LLVMBuildNSWMul(e->b, c->begin, gen_i64(e, c->block), "");
    hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWMul(e->b, c->end, gen_i64(e, c->block), ""), hi);
  }
  if (k == s->window_count - 1 && s->operand_dims[k] == operand->rank - 1) {
    int lanes = gen_choose_lanes(e->part->target, gen_widest_bytes(s->f->comp), size);
    return gen_emit_lanes(e, lo, hi, 0, size, lanes, 64, scatter_lanes, s);
  }
  gen_loop loop;
  gen_loop_begin(e, &loop, lo, hi, 1, 0, size, 1);
  int mark = gen_memo_push(e);
  s->at[s->window_dims[k]] = gen_affine_var(e, loop.var);
  WEFT_TRY(scatter_window(c, e, k + 1));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

static weft_status *whole_window(gen_scatter *s, gen_emit *e) { return scatter_window((scatter_ctx *)s, e, 0); }

/* Bit i of the result: does this range of units own the place of window `start` + i along dimension `d`?  A vector of
 * bits is compared at a time. */
static weft_status *owned_windows(scatter_ctx *c, gen_emit *e, int d, gen_ssa start, gen_ssa *out)
{
  gen_scatter *s = &c->base;
  const hlo_instr *indices = s->scatter->operands[s->n];
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape;
  LLVMTypeRef i64 = e->part->i64;
  int bytes = WEFT_MAX(weft_dtype_bytes(indices->shape->type), 4),
      lanes = WEFT_MIN(e->part->target->vector_bytes / bytes, LOOK);
  gen_ssa first = LLVMBuildNSWMul(e->b, c->begin, gen_i64(e, c->block), "");
  gen_ssa count = LLVMBuildNSWMul(e->b, LLVMBuildNSWSub(e->b, c->end, c->begin, ""), gen_i64(e, c->block), "");
  gen_ssa bits = gen_i64(e, 0);
  bool is_signed = weft_dtype_is_signed(indices->shape->type), is_short = bytes == 4;

  is_short &= s->scatter->operands[0]->shape->dims[s->scatter->u.scatter->scatter_dims_to_operand_dims.v[c->column]] <=
              INT32_MAX;
  for (int from = 0; from < LOOK; from += lanes) {
    int var = gen_add_var(e, (gen_var){.value = LLVMBuildNSWAdd(e->b, start, gen_i64(e, from), ""),
                                       .lo = 0,
                                       .hi = updates->dims[d],
                                       .align = 1,
                                       .lane = true});
    gen_index *at = gen_index_new(e, indices->shape->rank);
    int mark = gen_memo_push(e), outer_lanes = e->lanes;
    gen_value v;
    e->lanes = lanes;
    s->at[d] = gen_affine_var(e, var);
    for (int i = 0, u = 0; i < indices->shape->rank; i++) {
      if (i == s->scatter->u.scatter->index_vector_dim) {
        at->d[i] = gen_affine_const(c->column);
        continue;
      }
      while (gen_scatter_in_window(s, u)) u++;
      at->d[i] = s->at[u++];
    }
    WEFT_TRY(gen_emit_leaf(e, &s->f->env, indices, 0, gen_index_seal(at), &v));
    LLVMTypeRef type = is_short ? LLVMInt32TypeInContext(LLVMGetTypeContext(i64)) : i64;
    gen_ssa x = gen_splat(e, v.re, lanes);
    if (gen_scalar_type(x) != type) x = gen_cast(e, is_signed ? LLVMSExt : LLVMZExt, x, type);
    gen_ssa low = gen_splat(e, LLVMBuildTrunc(e->b, first, type, ""), lanes);
    gen_ssa own = LLVMBuildICmp(e->b, LLVMIntULT, LLVMBuildSub(e->b, x, low, ""),
                                gen_splat(e, LLVMBuildTrunc(e->b, count, type, ""), lanes), "");
    e->lanes = outer_lanes;
    e->vars[var].lane = false;
    gen_memo_pop(e, mark);
    own = LLVMBuildBitCast(e->b, own, LLVMIntTypeInContext(LLVMGetTypeContext(i64), (unsigned)lanes), "");
    own = LLVMBuildShl(e->b, LLVMBuildZExt(e->b, own, i64, ""), gen_i64(e, from), "");
    bits = LLVMBuildOr(e->b, bits, own, "");
  }
  *out = bits;
  return NULL;
}

/* The windows along dimension `d`, the innermost one, whose places the range owns. */
static weft_status *scatter_owned(scatter_ctx *c, gen_emit *e, int d)
{
  gen_scatter *s = &c->base;
  int64_t size = s->scatter->operands[s->n + 1]->shape->dims[d];
  gen_ssa slot = gen_alloca(e, e->part->i64, "owned"), bits;
  gen_loop loop;
  gen_while windows;

  gen_loop_static(e, &loop, 0, (size + LOOK - 1) / LOOK, 1);
  int mark = gen_memo_push(e);
  gen_ssa from = LLVMBuildNSWMul(e->b, e->vars[loop.var].value, gen_i64(e, LOOK), "");
  gen_ssa start = gen_intrinsic2(e, "llvm.smin", from, gen_i64(e, size - LOOK)); /* the last ones overlap */
  WEFT_TRY(owned_windows(c, e, d, start, &bits));
  gen_ssa done = LLVMBuildShl(e->b, gen_i64(e, -1), LLVMBuildNSWSub(e->b, from, start, ""), "");
  LLVMBuildStore(e->b, LLVMBuildAnd(e->b, bits, done, ""), slot);
  gen_while_begin(e, &windows);
  bits = LLVMBuildLoad2(e->b, e->part->i64, slot, "");
  gen_while_test(e, &windows, gen_icmp(e, LLVMIntNE, bits, gen_i64(e, 0)));
  int inner = gen_memo_push(e);
  gen_ssa less = LLVMBuildSub(e->b, bits, gen_i64(e, 1), "");
  gen_ssa below = LLVMBuildAnd(e->b, LLVMBuildNot(e->b, bits, ""), less, ""); /* as many as the lowest bit's number */
  LLVMBuildStore(e->b, LLVMBuildAnd(e->b, bits, less, ""), slot);
  gen_ssa window = LLVMBuildNSWAdd(e->b, start, gen_intrinsic1(e, "llvm.ctpop", below), "");
  s->at[d] = gen_affine_value(e, window, 0, size - 1);
  WEFT_TRY(gen_scatter_place(s, e, whole_window));
  gen_memo_pop(e, inner);
  gen_while_end(e, &windows);
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

/* The last dimension of the updates that is not of the window; -1: there is none. */
static int innermost(const gen_scatter *s)
{
  int d = s->scatter->operands[s->n + 1]->shape->rank - 1;

  while (d >= 0 && gen_scatter_in_window(s, d)) d--;
  return d;
}

static weft_status *scatter_dims(scatter_ctx *c, gen_emit *e, int d)
{
  gen_scatter *s = &c->base;
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape;
  gen_loop loop;

  while (d < updates->rank && gen_scatter_in_window(s, d)) d++;
  if (d == updates->rank) return gen_scatter_place(s, e, whole_window);
  if (c->looks && d == innermost(s)) return scatter_owned(c, e, d);
  if (updates->dims[d] == 1) {
    s->at[d] = gen_affine_const(0);
    return scatter_dims(c, e, d + 1);
  }
  gen_ssa lo = gen_i64(e, 0), hi = gen_i64(e, updates->dims[d]);
  if (d == c->cut) {
    lo = LLVMBuildNSWMul(e->b, c->begin, gen_i64(e, c->block), "");
    hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWMul(e->b, c->end, gen_i64(e, c->block), ""), hi);
  }
  gen_loop_begin(e, &loop, lo, hi, 1, 0, updates->dims[d], 1);
  int mark = gen_memo_push(e);
  s->at[d] = gen_affine_var(e, loop.var);
  WEFT_TRY(scatter_dims(c, e, d + 1));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

/* The dimension of the updates that dimension `dim` of the indices is. */
static int of_updates(const gen_scatter *s, int64_t dim)
{
  int64_t number = dim < s->scatter->u.scatter->index_vector_dim ? dim : dim - 1;
  int d = 0;

  for (;; d++)
    if (!gen_scatter_in_window(s, d) && number-- == 0) return d;
}

/* The size of the windows along dimension `d` of the operand. */
static int64_t window_size(const gen_scatter *s, int64_t d)
{
  for (int k = 0; k < s->window_count; k++)
    if (s->operand_dims[k] == d) return s->scatter->operands[s->n + 1]->shape->dims[s->window_dims[k]];
  return 1;
}

static int64_t divide(scatter_ctx *c, int64_t size)
{
  c->block = (size + MOST_UNITS - 1) / MOST_UNITS;
  return (size + c->block - 1) / c->block;
}

/* Decides what units divide, and returns their number. */
static int64_t choose_units(scatter_ctx *c, gen_phase *phase)
{
  gen_scatter *s = &c->base;
  const hlo_scatter_attrs *a = s->scatter->u.scatter;
  const hlo_shape *operand = s->scatter->operands[0]->shape, *updates = s->scatter->operands[s->n + 1]->shape;
  int64_t inner = s->window, most = 1, places = LEAST_PLACES - 1;

  for (int k = 0; s->window >= WIDE_WINDOW && k < s->window_count; k++) {
    int64_t size = updates->dims[s->window_dims[k]];
    inner /= size;
    if (size == 1 || gen_scatter_moves(s, k)) continue;
    c->split = k;
    c->block = inner >= WINDOW_BLOCK ? 1 : WINDOW_BLOCK;
    return (size + c->block - 1) / c->block;
  }
  if (hlo_shape_elems(updates) < LEAST_UPDATES) return 1;
  for (int i = 0; i < a->input_batching_dims.count; i++) {
    int d = of_updates(s, a->scatter_indices_batching_dims.v[i]);
    if (updates->dims[d] > most) most = updates->dims[c->cut = d];
  }
  for (int d = 0; d < updates->rank && a->unique_indices; d++)
    if (!gen_scatter_in_window(s, d) && updates->dims[d] > most) most = updates->dims[c->cut = d];
  if (c->cut >= 0) return divide(c, most);
  for (int k = 0; k < a->scatter_dims_to_operand_dims.count; k++) {
    int64_t d = a->scatter_dims_to_operand_dims.v[k];
    if (operand->dims[d] > places && window_size(s, d) == 1) places = operand->dims[d], c->column = k;
  }
  if (innermost(s) < 0 || updates->dims[innermost(s)] < LOOK) c->column = -1;
  if (c->column < 0) return 1;
  phase->range_ns = LOOK_NS * (double)(hlo_shape_elems(updates) / s->window);
  return divide(c, places);
}

/* A range of all units does not look which places it owns. */
static weft_status *scatter_all_or_owned(scatter_ctx *c, gen_emit *e, int64_t units)
{
  gen_ssa all = gen_icmp(e, LLVMIntEQ, LLVMBuildNSWSub(e->b, c->end, c->begin, ""), gen_i64(e, units));

  for (int i = 0; i < 2; i++) {
    gen_if block;
    gen_if_begin(e, &block, i == 0 ? all : LLVMBuildNot(e->b, all, ""));
    int mark = gen_memo_push(e);
    c->looks = i == 1;
    WEFT_TRY(scatter_dims(c, e, 0));
    gen_memo_pop(e, mark);
    gen_if_end(e, &block);
  }
  return NULL;
}

weft_status *gen_emit_scatter_kernel(gen_part *part, gen_kernel_spec *spec)
{
  const hlo_computation *comp = spec->fusion->called[0];
  const hlo_instr *scatter = through_reshapes(comp->root);
  gen_kernel *info = spec->info;
  gen_frame f;

  scatter_ctx c = {.split = -1, .cut = -1, .column = -1};
  gen_scatter *s = &c.base;
  gen_scatter_open(s, scatter);
  const hlo_shape *updates = scatter->operands[s->n + 1]->shape;
  gen_base *bases = WEFT_ARENA_ARRAY(part->arena, gen_base, s->n);

  WEFT_TRY_ALLOC(bases);
  for (int i = 0; i < s->n; i++) bases[i] = (gen_base){scatter->operands[i], i};
  WEFT_TRY(phase_bring_in(part, spec, bases, s->n));
  info->phase_count = 2;
  info->phases[1].units = choose_units(&c, &info->phases[1]);
  WEFT_TRY(gen_frame_open(part, spec, 1, &f));
  s->f = &f;
  c.begin = f.begin, c.end = f.end;
  if (c.column >= 0) WEFT_TRY(scatter_all_or_owned(&c, &f.e, info->phases[1].units));
  else if (hlo_shape_elems(updates) > 0) WEFT_TRY(scatter_dims(&c, &f.e, 0));
  gen_frame_close(&f);
  return NULL;
}

/* ---- select-and-scatter ---------------------------------------------------------------------------------------- */

static weft_status *pick_source(gen_pick *p, gen_emit *e, int d, gen_ssa begin, gen_ssa end)
{
  const hlo_shape *source = p->instr->operands[1]->shape;
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
  gen_ssa found, best;
  gen_value sum;
  gen_if block;
  WEFT_TRY(gen_pick_find(p, e, &found, &best));
  gen_if_begin(e, &block, found);
  int mark = gen_memo_push(e);
  gen_affine to = gen_affine_value(e, best, 0, WEFT_MAX(hlo_shape_elems(p->instr->shape) - 1, 1));
  WEFT_TRY(gen_pick_source(p, e, gen_load(e, &p->f->results[0], to), &sum));
  gen_store(e, &p->f->results[0], to, sum);
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

  WEFT_TRY(gen_frame_open(part, spec, 0, &f));
  gen_nest all = {.count = 1, .extent = {hlo_shape_elems(instr->shape)}, .stride = {1}};
  init_ctx init = {&f, instr->operands[2]};
  WEFT_TRY(
    gen_emit_nest(&f.e, &all, gen_widest_bytes(comp), f.begin, f.end, &info->phases[0].units, store_init, &init));
  gen_frame_close(&f);
  info->phases[0].unit_ns = (double)hlo_shape_bytes(instr->shape) / 16 / (double)WEFT_MAX(info->phases[0].units, 1);

  WEFT_TRY(gen_frame_open(part, spec, 1, &f));
  gen_emit *e = &f.e;
  gen_pick p;
  WEFT_TRY(gen_pick_open(&p, &f, instr));
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
