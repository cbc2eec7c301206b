/* codegen/nvptx/scatter.c -- scatter. The first launches bring the arrays into the results (update.c). In the last one
 * no two threads store to the same place, or they do so in the order of the updates, so results are the same every
 * time. */
#include <config.h>

#include "codegen/nvptx/grid.h"

#include <string.h>

enum {
  PARTS_A_CORE = 2, /* of an operand whose windows may overlap */
  AT_ONCE = 8       /* windows of one place that are read before they are combined */
};

/* How the threads divide the work.
 *   IN_ORDER   a thread takes one element of all windows, one after another
 *   UNIQUE     a thread takes one update: no two go to the same place
 *   ATOMIC     the same, by atomic operations: the order in which updates are combined does not matter
 *   SORTED     the windows of one place follow each other; a thread takes one element of all of them, in order, and
 *              keeps the result in registers meanwhile
 *   PARTED     windows may overlap: a block takes a part of the operand and the windows that reach into it, in order;
 *              its threads share the elements of a window, which have different places */
typedef enum sharing { IN_ORDER, UNIQUE, ATOMIC, SORTED, PARTED } sharing;

typedef struct scattering {
  gen_scatter base; /* first */
  sharing sharing;
  gen_affine first;   /* SORTED: number of the first window of the place */
  gen_affine element; /* of the window: its number, row-major but for dimension `cut`, which is the outermost one */
  /* PARTED, or else cut is -1: a part is the indices [lo, hi) of the operand's dimension `cut`, along which windows
   * have `size` elements. */
  int cut;
  int64_t size;
  gen_ssa lo, hi, thread; /* i64 */
  gen_ssa hit;            /* slot */
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

/* Sets the window's dimensions of base->at for s->element. */
static void at_element(gen_scatter *base, gen_emit *e)
{
  const scattering *s = (const scattering *)base;
  const hlo_shape *updates = base->scatter->operands[base->n + 1]->shape;
  int64_t stride = 1;

  for (int k = base->window_count - 1; k >= 0; k--) {
    int64_t size = updates->dims[base->window_dims[k]];
    if (base->operand_dims[k] == s->cut) continue;
    base->at[base->window_dims[k]] = gen_affine_digit(e, s->element, stride, size);
    stride *= size;
  }
  for (int k = 0; k < base->window_count; k++)
    if (base->operand_dims[k] == s->cut)
      base->at[base->window_dims[k]] = gen_affine_digit(e, s->element, stride, s->size);
}

static weft_status *window_element(gen_scatter *base, gen_emit *e)
{
  const scattering *s = (const scattering *)base;

  at_element(base, e);
  return s->sharing == ATOMIC ? atomic_element(base, e) : gen_scatter_element(base, e);
}

/* May different elements of two windows have the same place? */
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
  if (d == updates->rank) return gen_scatter_place(s, e, window_element);
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

/* Combines window number `at` into the slots. What a slot holds is rounded as if it lay in the result. */
static weft_status *combine_window(scattering *s, gen_emit *e, gen_affine at, const gen_value *slots)
{
  gen_scatter *base = &s->base;
  gen_value *args = WEFT_ARENA_ARRAY(e->arena, gen_value, 2 * base->n);
  const gen_value *r;

  WEFT_TRY_ALLOC(args);
  at_window(base, e, at);
  const gen_index *from = gen_scatter_source(base, e);
  for (int i = 0; i < base->n; i++) {
    args[i] = gen_acc_get(e, slots[i]);
    WEFT_TRY(gen_emit_leaf(e, &base->f->env, base->scatter->operands[base->n + 1 + i], 0, from, &args[base->n + i]));
  }
  WEFT_TRY(gen_emit_apply(e, base->scatter->called[0], args, &r));
  for (int i = 0; i < base->n; i++) {
    weft_dtype type = base->f->results[i].type;
    gen_acc_set(e, slots[i], (gen_value){gen_from_storage(e, type, gen_to_storage(e, type, r[i].re)), r[i].im});
  }
  return NULL;
}

/* Combines windows from number *number (slot) on, `count` in each round, while the last one of the round has the place
 * of s->first; as they are sorted, the others have it then. */
static weft_status *rounds_of_place(scattering *s, gen_emit *e, gen_ssa number, int count, const gen_value *slots)
{
  const gen_scatter *base = &s->base;
  int64_t windows = hlo_shape_elems(base->scatter->operands[base->n + 1]->shape) / base->window;
  gen_while loop;
  gen_ssa same;

  if (windows <= count) return NULL;
  gen_while_begin(e, &loop);
  int mark = gen_memo_push(e);
  gen_ssa from = LLVMBuildLoad2(e->b, e->part->i64, number, "");
  gen_ssa last = LLVMBuildNSWAdd(e->b, from, gen_i64(e, count - 1), "");
  gen_ssa exists = gen_icmp(e, LLVMIntULT, last, gen_i64(e, windows));
  last = gen_intrinsic2(e, "llvm.umin", last, gen_i64(e, windows - 1));
  WEFT_TRY(same_place(base, e, s->first, gen_affine_value(e, last, 0, windows - 1), &same));
  gen_while_test(e, &loop, LLVMBuildAnd(e->b, exists, same, ""));
  for (int u = 0; u < count; u++) {
    gen_ssa mine = LLVMBuildNSWAdd(e->b, from, gen_i64(e, u), "");
    WEFT_TRY(combine_window(s, e, gen_affine_value(e, mine, 0, windows - 1), slots));
  }
  LLVMBuildStore(e->b, LLVMBuildNSWAdd(e->b, from, gen_i64(e, count), ""), number);
  gen_memo_pop(e, mark);
  gen_while_end(e, &loop);
  return NULL;
}

/* The windows from s->first on that have its place, one after another. Their elements are read AT_ONCE at a time, as
 * far as there are so many. */
static weft_status *windows_of_place(gen_scatter *base, gen_emit *e)
{
  scattering *s = (scattering *)base;
  gen_value *slots = WEFT_ARENA_ARRAY(e->arena, gen_value, base->n);
  gen_ssa number = gen_alloca(e, e->part->i64, "window");

  WEFT_TRY_ALLOC(slots);
  at_element(base, e);
  gen_affine target = gen_scatter_target(base, e);
  for (int i = 0; i < base->n; i++) {
    slots[i] = gen_acc_slot(e, base->f->results[i].type, 1);
    gen_acc_set(e, slots[i], gen_load(e, &base->f->results[i], target));
  }
  WEFT_TRY(combine_window(s, e, s->first, slots));
  LLVMBuildStore(e->b, LLVMBuildNSWAdd(e->b, gen_affine_ssa(e, s->first), gen_i64(e, 1), ""), number);
  WEFT_TRY(rounds_of_place(s, e, number, AT_ONCE, slots));
  WEFT_TRY(rounds_of_place(s, e, number, 1, slots));
  for (int i = 0; i < base->n; i++) gen_store(e, &base->f->results[i], target, gen_acc_get(e, slots[i]));
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
  s->first = number;
  at_window(&s->base, e, number);
  WEFT_TRY(gen_scatter_place(&s->base, e, windows_of_place));
  gen_memo_pop(e, mark);
  gen_if_end(e, &first);
  return NULL;
}

/* ---- windows that overlap -------------------------------------------------------------------------------------- */

/* Does the window whose place is known reach into the block's part? */
static weft_status *reaches(gen_scatter *base, gen_emit *e)
{
  const scattering *s = (const scattering *)base;
  gen_ssa start = gen_affine_ssa(e, base->start[s->cut]);
  gen_ssa end = LLVMBuildNSWAdd(e->b, start, gen_i64(e, s->size), "");
  gen_ssa begins_before = gen_icmp(e, LLVMIntSLT, start, s->hi), ends_behind = gen_icmp(e, LLVMIntSGT, end, s->lo);

  LLVMBuildStore(e->b, LLVMBuildAnd(e->b, begins_before, ends_behind, ""), s->hit);
  return NULL;
}

/* The elements of a window in the block's part, shared by the block's threads. */
static weft_status *elements_in_part(gen_scatter *base, gen_emit *e)
{
  scattering *s = (scattering *)base;
  gen_ssa start = gen_affine_ssa(e, base->start[s->cut]), rest = gen_i64(e, base->window / s->size);
  gen_ssa first = gen_intrinsic2(e, "llvm.smax", LLVMBuildNSWSub(e->b, s->lo, start, ""), gen_i64(e, 0));
  gen_ssa end = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWSub(e->b, s->hi, start, ""), gen_i64(e, s->size));
  gen_loop loop;

  first = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, first, rest, ""), s->thread, "");
  end = LLVMBuildNSWMul(e->b, end, rest, "");
  gen_loop_begin(e, &loop, first, end, GEN_BLOCK_THREADS, 0, base->window, 1);
  int mark = gen_memo_push(e);
  s->element = gen_affine_var(e, loop.var);
  WEFT_TRY(window_element(base, e));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

/* Bit i of the word of warp w, in shared memory: does window number first + 32 w + i reach into the part? A thread
 * looks at one window. */
static weft_status *find_windows(scattering *s, gen_emit *e, const gen_shared *words, gen_ssa first, int64_t windows)
{
  static const char ballot[] = "llvm.nvvm.vote.ballot.sync";
  gen_ssa number = LLVMBuildNSWAdd(e->b, first, s->thread, "");
  gen_ssa exists = gen_icmp(e, LLVMIntULT, number, gen_i64(e, windows));
  gen_team team = gen_team_of(e, GEN_BLOCK_THREADS);
  gen_if is_first;

  LLVMBuildStore(e->b, LLVMConstNull(e->part->i1), s->hit);
  number = gen_intrinsic2(e, "llvm.umin", number, gen_i64(e, windows - 1));
  at_window(&s->base, e, gen_affine_value(e, number, 0, windows - 1));
  WEFT_TRY(gen_scatter_place(&s->base, e, reaches));
  gen_ssa hit = LLVMBuildAnd(e->b, LLVMBuildLoad2(e->b, e->part->i1, s->hit, ""), exists, "");
  gen_ssa fn = LLVMGetIntrinsicDeclaration(e->part->mod, LLVMLookupIntrinsicID(ballot, strlen(ballot)), NULL, 0);
  gen_ssa args[] = {gen_small(e, -1), hit};
  gen_ssa bits = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, 2, "");
  gen_if_begin(e, &is_first, LLVMBuildICmp(e->b, LLVMIntEQ, team.lane, gen_small(e, 0), ""));
  gen_shared_put(e, words, gen_wide(e, team.warp), bits);
  gen_if_end(e, &is_first);
  gen_barrier(e);
  return NULL;
}

/* The windows whose bits are set, one after another. The block's threads meet after each. */
static weft_status *take_windows(scattering *s, gen_emit *e, const gen_shared *words, gen_ssa first, int64_t windows)
{
  gen_ssa slot = gen_alloca(e, e->part->i32, "windows");
  gen_loop warps;
  gen_while loop;

  gen_loop_static(e, &warps, 0, GEN_BLOCK_THREADS / GEN_WARP, 1);
  int outer = gen_memo_push(e);
  gen_ssa warp = e->vars[warps.var].value;
  LLVMBuildStore(e->b, gen_shared_get(e, words, warp), slot);
  gen_while_begin(e, &loop);
  int mark = gen_memo_push(e);
  gen_ssa bits = LLVMBuildLoad2(e->b, e->part->i32, slot, "");
  gen_while_test(e, &loop, gen_icmp(e, LLVMIntNE, bits, gen_small(e, 0)));
  LLVMBuildStore(e->b, LLVMBuildAnd(e->b, bits, LLVMBuildSub(e->b, bits, gen_small(e, 1), ""), ""), slot);
  gen_ssa bit = gen_intrinsic(e, "llvm.cttz", 2, (gen_ssa[]){bits, LLVMConstInt(e->part->i1, 1, 0)});
  gen_ssa in_block = LLVMBuildNSWAdd(e->b, LLVMBuildNSWMul(e->b, warp, gen_i64(e, GEN_WARP), ""), gen_wide(e, bit), "");
  gen_ssa number = LLVMBuildNSWAdd(e->b, first, in_block, "");
  at_window(&s->base, e, gen_affine_value(e, number, 0, windows - 1));
  WEFT_TRY(gen_scatter_place(&s->base, e, elements_in_part));
  gen_barrier(e);
  gen_memo_pop(e, mark);
  gen_while_end(e, &loop);
  gen_memo_pop(e, outer);
  gen_loop_end(e, &warps);
  return NULL;
}

static int longest_dim(const hlo_shape *shape)
{
  int longest = 0;

  for (int d = 1; d < shape->rank; d++)
    if (shape->dims[d] > shape->dims[longest]) longest = d;
  return longest;
}

/* Every block looks at all windows: 256 of them at once, a thread each. */
static weft_status *scatter_parted(gen_grid *g, scattering *s)
{
  const hlo_instr *scatter = s->base.scatter;
  const hlo_shape *updates = scatter->operands[s->base.n + 1]->shape, *operand = scatter->operands[0]->shape;
  int64_t windows = hlo_shape_elems(updates) / s->base.window;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_blocks blocks;
  gen_loop loop;

  s->cut = longest_dim(operand);
  for (int k = 0; k < s->base.window_count; k++)
    if (s->base.operand_dims[k] == s->cut) s->size = updates->dims[s->base.window_dims[k]];
  int64_t n = operand->dims[s->cut], parts = WEFT_MIN(n, (int64_t)g->part->target->cores * PARTS_A_CORE);
  if (g->part->block) parts = 1;
  int64_t part = (n + parts - 1) / parts;
  parts = (n + part - 1) / part;
  WEFT_TRY(gen_grid_open(g, false, &f));
  s->base.f = &f;
  gen_shared words = gen_shared_array(e, e->part->i32, GEN_BLOCK_THREADS / GEN_WARP);
  s->hit = gen_alloca(e, e->part->i1, "hit");
  gen_ssa block = gen_blocks_begin(e, &blocks, parts);
  s->thread = gen_wide(e, gen_thread_id(e));
  s->lo = LLVMBuildNSWMul(e->b, block, gen_i64(e, part), "");
  s->hi = gen_intrinsic2(e, "llvm.umin", LLVMBuildNSWAdd(e->b, s->lo, gen_i64(e, part), ""), gen_i64(e, n));
  gen_loop_static(e, &loop, 0, windows, GEN_BLOCK_THREADS);
  int mark = gen_memo_push(e);
  gen_ssa first = e->vars[loop.var].value;
  WEFT_TRY(find_windows(s, e, &words, first, windows));
  WEFT_TRY(take_windows(s, e, &words, first, windows));
  gen_barrier(e); /* the next words overwrite these */
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  gen_blocks_end(e, &blocks);
  return gen_grid_close(g, &f, parts, GEN_BLOCK_THREADS);
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static sharing sharing_of(const gen_scatter *s)
{
  const hlo_scatter_attrs *a = s->scatter->u.scatter;

  if (a->unique_indices) return UNIQUE;
  if (gen_scatter_in_any_order(s->scatter)) return ATOMIC;
  if (windows_overlap(s)) return PARTED;
  return a->indices_are_sorted && a->input_batching_dims.count == 0 ? SORTED : IN_ORDER;
}

weft_status *gen_grid_scatter(gen_grid *g)
{
  static gen_body_fn *const bodies[] = {scatter_in_order, scatter_each, scatter_each, scatter_sorted};
  const hlo_instr *scatter = gen_updated_leaf(g->spec->fusion->called[0], 0);
  scattering s;
  gen_frame f;

  gen_scatter_open(&s.base, scatter);
  s.sharing = sharing_of(&s.base);
  s.cut = -1;
  s.size = 1;
  for (int i = 0; i < s.base.n; i++) WEFT_TRY(gen_grid_bring(g, (gen_base){scatter->operands[i], i}));
  int64_t all = hlo_shape_elems(scatter->operands[s.base.n + 1]->shape), n = all;
  if (s.sharing == IN_ORDER) n = s.base.window;
  if (all == 0) return NULL;
  if (s.sharing == PARTED) return scatter_parted(g, &s);
  WEFT_TRY(gen_grid_open(g, false, &f));
  s.base.f = &f;
  WEFT_TRY(gen_grid_each(&f, n, bodies[s.sharing], &s));
  return gen_grid_close_each(g, &f, n);
}
