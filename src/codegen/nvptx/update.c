/* codegen/nvptx/update.c -- kernels that change part of an array: dynamic-update-slice, scatter, select-and-scatter.
 * The first launches bring the array into the result; they do nothing where both are one buffer. The last launch
 * changes it. Its threads never store to the same place, or they do so in order, so results are the same every time. */
#include <config.h>

#include "codegen/nvptx/grid.h"

#include <string.h>

/* ---- the array that is changed --------------------------------------------------------------------------------- */

/* One element of an array that is copied as it is. */
typedef struct copying {
  const gen_buffer *from, *to;
} copying;

static weft_status *copy_element(void *ctx, gen_emit *e, gen_affine at)
{
  copying *c = ctx;

  gen_store(e, c->to, at, gen_load(e, c->from, at));
  return NULL;
}

/* An array of the same bytes as `buffer`, of integers as wide as they may be. */
static gen_buffer as_words(const gen_buffer *buffer, int64_t bytes)
{
  gen_buffer words = *buffer;
  int width = bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 1;

  words.type = width == 8 ? WEFT_U64 : width == 4 ? WEFT_U32 : WEFT_U8;
  words.elems = bytes / width;
  return words;
}

static int argument_of(const gen_frame *f, const gen_buffer *operand) { return (int)(operand - f->operands); }

weft_status *gen_grid_bring(gen_grid *g, gen_base base)
{
  int64_t n = hlo_shape_elems(base.array->shape);
  gen_frame f;

  WEFT_TRY(gen_grid_open(g, false, &f));
  const gen_buffer *from = gen_base_buffer(&f, base), *to = &f.results[base.leaf];
  if (from) {
    gen_buffer in = as_words(from, hlo_shape_bytes(base.array->shape)),
               out = as_words(to, hlo_shape_bytes(base.array->shape));
    gen_emit *e = &f.e;
    gen_launch *launch = &g->out->launches[g->out->launch_count - 1];
    gen_if apart;
    launch->copy_from = argument_of(&f, from);
    launch->copy_to = f.operand_count + base.leaf;
    gen_if_begin(e, &apart,
                 gen_icmp(e, LLVMIntNE, LLVMBuildPtrToInt(e->b, from->ptr, e->part->i64, ""),
                          LLVMBuildPtrToInt(e->b, to->ptr, e->part->i64, "")));
    n = in.elems;
    WEFT_TRY(gen_grid_each(&f, n, copy_element, &(copying){&in, &out}));
    gen_if_end(e, &apart);
  } else {
    WEFT_TRY(gen_grid_each(&f, n, gen_base_store, &(gen_base_walk){&f, base}));
  }
  return gen_grid_close_each(g, &f, n);
}

/* ---- dynamic-update-slice -------------------------------------------------------------------------------------- */

weft_status *gen_grid_update(gen_grid *g)
{
  const hlo_computation *comp = g->spec->fusion->called[0];
  int leaves = hlo_shape_leaf_count(g->spec->fusion->shape);
  int64_t most = 0;
  gen_frame f;

  for (int r = 0; r < leaves; r++) WEFT_TRY(gen_grid_bring(g, (gen_base){gen_updated_leaf(comp, r)->operands[0], r}));
  WEFT_TRY(gen_grid_open(g, false, &f));
  for (int r = 0; r < leaves; r++) {
    const hlo_instr *dus = gen_updated_leaf(comp, r);
    int64_t n = hlo_shape_elems(dus->operands[1]->shape);
    gen_update update;
    int mark = gen_memo_push(&f.e);
    WEFT_TRY(gen_update_open(&update, &f, dus, r));
    WEFT_TRY(gen_grid_each(&f, n, gen_update_store, &update));
    gen_memo_pop(&f.e, mark);
    most = WEFT_MAX(most, n);
  }
  return gen_grid_close_each(g, &f, most);
}

/* ---- scatter --------------------------------------------------------------------------------------------------- */

/* How the threads divide the work.
 *   IN_ORDER   a thread takes one element of all windows, one after another; one thread all, where windows may overlap
 *   UNIQUE     a thread takes one update: no two go to the same place
 *   ATOMIC     the same, by atomic operations: the order in which updates are combined does not matter
 *   SORTED     the windows of one place follow each other; a thread takes one element of all of them, in order */
typedef enum sharing { IN_ORDER, UNIQUE, ATOMIC, SORTED } sharing;

typedef struct scattering {
  gen_scatter base; /* first */
  sharing sharing;
  gen_affine element; /* of the window: its row-major number */
} scattering;

/* Combines the update at s->at into the result by an atomic operation. */
static weft_status *atomic_element(gen_scatter *s, gen_emit *e)
{
  const gen_buffer *result = &s->f->results[0];
  bool is_signed = weft_dtype_is_signed(result->type);
  LLVMAtomicRMWBinOp op = LLVMAtomicRMWBinOpAdd;
  gen_value v;

  switch (hlo_reducer_op(s->scatter->called[0])) {
  case HLO_MINIMUM: op = is_signed ? LLVMAtomicRMWBinOpMin : LLVMAtomicRMWBinOpUMin; break;
  case HLO_MAXIMUM: op = is_signed ? LLVMAtomicRMWBinOpMax : LLVMAtomicRMWBinOpUMax; break;
  case HLO_AND: op = LLVMAtomicRMWBinOpAnd; break;
  case HLO_OR: op = LLVMAtomicRMWBinOpOr; break;
  case HLO_XOR: op = LLVMAtomicRMWBinOpXor; break;
  default: break;
  }
  WEFT_TRY(gen_emit_leaf(e, &s->f->env, s->scatter->operands[2], 0, gen_scatter_source(s, e), &v));
  gen_ssa at = gen_affine_ssa(e, gen_scatter_target(s, e));
  gen_ssa place = gen_element_ptr(e, result, gen_storage_type(e->part, result->type), at);
  LLVMBuildAtomicRMW(e->b, op, place, gen_to_storage(e, result->type, v.re), LLVMAtomicOrderingMonotonic, false);
  return NULL;
}

static weft_status *window_element(gen_scatter *s, gen_emit *e)
{
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape;
  int64_t stride = 1;

  for (int k = s->window_count - 1; k >= 0; k--) {
    int64_t size = updates->dims[s->window_dims[k]];
    s->at[s->window_dims[k]] = gen_affine_digit(e, ((scattering *)s)->element, stride, size);
    stride *= size;
  }
  return ((scattering *)s)->sharing == ATOMIC ? atomic_element(s, e) : gen_scatter_element(s, e);
}

static weft_status *whole_window(gen_scatter *s, gen_emit *e)
{
  gen_loop loop;

  gen_loop_static(e, &loop, 0, s->window, 1);
  int mark = gen_memo_push(e);
  ((scattering *)s)->element = gen_affine_var(e, loop.var);
  WEFT_TRY(window_element(s, e));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

/* May different elements of two windows have the same place? Then one thread does all of them. */
static bool windows_overlap(const gen_scatter *s)
{
  for (int k = 0; k < s->window_count; k++)
    if (gen_scatter_moves(s, k) && s->scatter->operands[s->n + 1]->shape->dims[s->window_dims[k]] > 1) return true;
  return false;
}

/* The scatter dimensions from `d` on, one after another. */
static weft_status *places(gen_scatter *s, gen_emit *e, int d)
{
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape;
  gen_loop loop;

  while (d < updates->rank && gen_scatter_in_window(s, d)) d++;
  if (d == updates->rank) return gen_scatter_place(s, e, windows_overlap(s) ? whole_window : window_element);
  gen_loop_static(e, &loop, 0, updates->dims[d], 1);
  int mark = gen_memo_push(e);
  s->at[d] = gen_affine_var(e, loop.var);
  WEFT_TRY(places(s, e, d + 1));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

static weft_status *scatter_in_order(void *ctx, gen_emit *e, gen_affine element)
{
  scattering *s = ctx;

  s->element = element;
  return places(&s->base, e, 0);
}

/* Sets the scatter dimensions of s->at for a window by its row-major number. */
static void at_window(gen_scatter *s, gen_emit *e, gen_affine number)
{
  const hlo_shape *updates = s->scatter->operands[s->n + 1]->shape;
  int64_t stride = 1;

  for (int d = updates->rank - 1; d >= 0; d--) {
    if (gen_scatter_in_window(s, d)) continue;
    s->at[d] = gen_affine_digit(e, number, stride, updates->dims[d]);
    stride *= updates->dims[d];
  }
}

static weft_status *scatter_each(void *ctx, gen_emit *e, gen_affine at)
{
  scattering *s = ctx;

  s->element = gen_affine_digit(e, at, 1, s->base.window);
  at_window(&s->base, e, gen_affine_digit(e, at, s->base.window, 0));
  return gen_scatter_place(&s->base, e, window_element);
}

/* Number `k` of the indices of a window. */
static weft_status *index_of(const gen_scatter *s, gen_emit *e, gen_affine number, int k, gen_ssa *out)
{
  const hlo_instr *indices = s->scatter->operands[s->n];
  int64_t vector = s->scatter->u.scatter->index_vector_dim, stride = 1;
  gen_index *at = gen_index_new(e, indices->shape->rank);
  gen_value v;

  for (int d = indices->shape->rank - 1; d >= 0; d--) {
    if (d == vector) continue;
    at->d[d] = gen_affine_digit(e, number, stride, indices->shape->dims[d]);
    stride *= indices->shape->dims[d];
  }
  if (vector < indices->shape->rank) at->d[vector] = gen_affine_const(k);
  WEFT_TRY(gen_emit_leaf(e, &s->f->env, indices, 0, gen_index_seal(at), &v));
  *out = v.re;
  return NULL;
}

/* Have two windows the same place? */
static weft_status *same_place(const gen_scatter *s, gen_emit *e, gen_affine a, gen_affine b, gen_ssa *out)
{
  *out = LLVMConstInt(e->part->i1, 1, 0);
  for (int k = 0; k < s->scatter->u.scatter->scatter_dims_to_operand_dims.count; k++) {
    gen_ssa mine, other;
    WEFT_TRY(index_of(s, e, a, k, &mine));
    WEFT_TRY(index_of(s, e, b, k, &other));
    *out = LLVMBuildAnd(e->b, *out, gen_icmp(e, LLVMIntEQ, mine, other), "");
  }
  return NULL;
}

/* The windows from number `first` on that have its place, one after another. */
static weft_status *windows_of_place(scattering *s, gen_emit *e, gen_affine first, int64_t windows)
{
  gen_ssa slot = gen_alloca(e, e->part->i64, "window"), same;
  gen_while loop;

  LLVMBuildStore(e->b, gen_affine_ssa(e, first), slot);
  gen_while_begin(e, &loop);
  int mark = gen_memo_push(e);
  gen_ssa number = LLVMBuildLoad2(e->b, e->part->i64, slot, "");
  gen_ssa exists = gen_icmp(e, LLVMIntULT, number, gen_i64(e, windows));
  gen_affine at = gen_affine_value(e, gen_intrinsic2(e, "llvm.umin", number, gen_i64(e, windows - 1)), 0, windows - 1);
  WEFT_TRY(same_place(&s->base, e, first, at, &same));
  gen_while_test(e, &loop, LLVMBuildAnd(e->b, exists, same, ""));
  at_window(&s->base, e, at);
  WEFT_TRY(gen_scatter_place(&s->base, e, window_element));
  LLVMBuildStore(e->b, LLVMBuildNSWAdd(e->b, number, gen_i64(e, 1), ""), slot);
  gen_memo_pop(e, mark);
  gen_while_end(e, &loop);
  return NULL;
}

static weft_status *scatter_sorted(void *ctx, gen_emit *e, gen_affine at)
{
  scattering *s = ctx;
  int64_t windows = hlo_shape_elems(s->base.scatter->operands[s->base.n + 1]->shape) / s->base.window;
  gen_affine number = gen_affine_digit(e, at, s->base.window, 0);
  gen_ssa mine = gen_affine_ssa(e, number), repeats;
  gen_if first;

  s->element = gen_affine_digit(e, at, 1, s->base.window);
  gen_ssa is_zero = gen_icmp(e, LLVMIntEQ, mine, gen_i64(e, 0));
  gen_ssa before = gen_select(e, is_zero, mine, LLVMBuildNSWSub(e->b, mine, gen_i64(e, 1), ""));
  WEFT_TRY(same_place(&s->base, e, number, gen_affine_value(e, before, 0, windows - 1), &repeats));
  gen_if_begin(e, &first, LLVMBuildOr(e->b, is_zero, LLVMBuildNot(e->b, repeats, ""), ""));
  int mark = gen_memo_push(e);
  WEFT_TRY(windows_of_place(s, e, number, windows));
  gen_memo_pop(e, mark);
  gen_if_end(e, &first);
  return NULL;
}

static sharing sharing_of(const gen_scatter *s)
{
  const hlo_scatter_attrs *a = s->scatter->u.scatter;

  if (a->unique_indices) return UNIQUE;
  if (gen_scatter_in_any_order(s->scatter)) return ATOMIC;
  return a->indices_are_sorted && a->input_batching_dims.count == 0 && !windows_overlap(s) ? SORTED : IN_ORDER;
}

weft_status *gen_grid_scatter(gen_grid *g)
{
  static gen_body_fn *const bodies[] = {scatter_in_order, scatter_each, scatter_each, scatter_sorted};
  const hlo_instr *scatter = gen_updated_leaf(g->spec->fusion->called[0], 0);
  scattering s;
  gen_frame f;

  gen_scatter_open(&s.base, scatter);
  s.sharing = sharing_of(&s.base);
  for (int i = 0; i < s.base.n; i++) WEFT_TRY(gen_grid_bring(g, (gen_base){scatter->operands[i], i}));
  int64_t all = hlo_shape_elems(scatter->operands[s.base.n + 1]->shape), n = all;
  if (s.sharing == IN_ORDER) n = windows_overlap(&s.base) ? 1 : s.base.window;
  if (all == 0) return NULL;
  WEFT_TRY(gen_grid_open(g, false, &f));
  s.base.f = &f;
  WEFT_TRY(gen_grid_each(&f, n, bodies[s.sharing], &s));
  return gen_grid_close_each(g, &f, n);
}

/* ---- select-and-scatter ---------------------------------------------------------------------------------------- */

/* One thread makes an element of the result: it looks at all windows that the element lies in, in order, and combines
 * the source's elements of those that pick it. */
typedef struct picking {
  gen_pick base; /* first */
  const gen_index *here;
  gen_affine linear;
  gen_value sum; /* slot */
} picking;

static weft_status *picked(picking *p, gen_emit *e)
{
  gen_ssa found, best;
  gen_value sum;
  gen_if block;

  WEFT_TRY(gen_pick_find(&p->base, e, &found, &best));
  gen_ssa mine = gen_icmp(e, LLVMIntEQ, best, gen_affine_ssa(e, p->linear));
  gen_if_begin(e, &block, gen_bin(e, LLVMAnd, found, mine));
  int mark = gen_memo_push(e);
  WEFT_TRY(gen_pick_source(&p->base, e, gen_acc_get(e, p->sum), &sum));
  gen_acc_set(e, p->sum, sum);
  gen_memo_pop(e, mark);
  gen_if_end(e, &block);
  return NULL;
}

/* The windows along dimension d that element `here` may lie in, from the first on. */
static weft_status *windows(picking *p, gen_emit *e, int d)
{
  const hlo_shape *in = p->base.instr->operands[0]->shape, *source = p->base.instr->operands[1]->shape;
  gen_loop loop;
  gen_if inside;

  if (d == in->rank) return picked(p, e);
  const hlo_window_dim *w = &p->base.instr->u.window->dims[d];
  int64_t reach = (w->size - 1) * w->window_dilation, count = reach / w->stride + 1;
  /* The last window that begins at or before the element is number (here + pad_low) / stride. */
  int64_t shift = w->pad_low < 0 ? (-w->pad_low + w->stride - 1) / w->stride : 0;
  gen_affine up = gen_affine_offset(p->here->d[d], w->pad_low + shift * w->stride);
  gen_ssa last = gen_affine_ssa(e, gen_affine_offset(gen_affine_digit(e, up, w->stride, 0), -shift));
  gen_loop_static(e, &loop, 0, count, 1);
  gen_ssa number =
    LLVMBuildNSWAdd(e->b, LLVMBuildNSWSub(e->b, last, gen_i64(e, count - 1), ""), e->vars[loop.var].value, "");
  gen_if_begin(e, &inside, gen_icmp(e, LLVMIntULT, number, gen_i64(e, source->dims[d])));
  int mark = gen_memo_push(e);
  p->base.out[d] = gen_affine_value(e, number, 0, source->dims[d] - 1);
  WEFT_TRY(windows(p, e, d + 1));
  gen_memo_pop(e, mark);
  gen_if_end(e, &inside);
  gen_loop_end(e, &loop);
  return NULL;
}

static weft_status *pick_element(void *ctx, gen_emit *e, gen_affine linear)
{
  picking *p = ctx;
  const hlo_instr *instr = p->base.instr;
  gen_value init;

  p->linear = linear;
  p->here = gen_delinearize(e, instr->shape, linear);
  WEFT_TRY(gen_emit_leaf(e, &p->base.f->env, instr->operands[2], 0, gen_index_seal(gen_index_new(e, 0)), &init));
  p->sum = gen_acc_slot(e, instr->shape->type, 1);
  gen_acc_set(e, p->sum, init);
  if (hlo_shape_elems(instr->operands[1]->shape) > 0) WEFT_TRY(windows(p, e, 0));
  gen_store(e, &p->base.f->results[0], linear, gen_acc_get(e, p->sum));
  return NULL;
}

weft_status *gen_grid_pick(gen_grid *g)
{
  const hlo_instr *instr = gen_updated_leaf(g->spec->fusion->called[0], 0);
  int64_t n = hlo_shape_elems(instr->shape);
  picking p = {0};
  gen_frame f;

  WEFT_TRY(gen_grid_open(g, false, &f));
  WEFT_TRY(gen_pick_open(&p.base, &f, instr));
  WEFT_TRY(gen_grid_each(&f, n, pick_element, &p));
  return gen_grid_close_each(g, &f, n);
}
