/* codegen/host/row.c -- reductions over trailing dimensions, and what depends on them: sums, softmax, norms.
 * The arrays are rows x cols. A row is taken in stages: stage s accumulates, in one pass over the columns, the
 * reduces that need the results of stage s - 1; the last pass stores the results that have an element per column. If
 * several passes want a costly value, it is kept in scratch, one row of it. Where rows are few and long there are
 * two phases: blocks of columns write partial results to the shared buffer, which the second phase combines.
 * Lanes and blocks follow from shapes and types alone.
 *
 * The kernel of a chain of pass strips may take a bound of columns (gen_row_bound, gen_bound_of). Its loops end there,
 * and a row says whether it needs the columns behind. The bits stay those of the whole row: bounds are multiples of the
 * steps of all loops, so the order of sums is the same, and the last column within the bound is masked. A sum has that
 * column's zero in one of its slots already. To add the other columns' zeros would change slots that still hold -0, but
 * not the sum of the slots, of which one is no -0. */
#include <config.h>

#include "codegen/host/host.h"

#include <stddef.h>
#include <string.h>

enum { MAX_KEPT = 8, MOST_BLOCKS = 64 };

typedef struct rows {
  gen_row base; /* first */
  gen_kernel_spec *spec;
  const hlo_instr *kept[MAX_KEPT]; /* values of which a row is kept in scratch, and the stage that makes them */
  int kept_stage[MAX_KEPT], kept_count;
  gen_buffer kept_buffers[MAX_KEPT];
  int lanes, unroll;
  int64_t blocks;              /* of the columns; 1: one phase */
  int64_t block;
  gen_ssa bound;               /* the columns that are made of each row; NULL: all */
} rows;

static int level_of(const rows *r, const hlo_instr *x) { return gen_row_level(&r->base.form, x); }

/* ---- what is kept of a row ------------------------------------------------------------------------------------- */

static bool is_costly(const hlo_instr *x)
{
  return hlo_opcode_is_transcendental(x->op) || x->op == HLO_DIVIDE || x->op == HLO_GATHER || x->op == HLO_DOT;
}

/* Marks the passes that want `x`: bit s is the pass of stage s, bit `stages` the last pass. */
static void mark_wanted(const rows *r, const hlo_instr *x, int pass, uint32_t *wanted)
{
  uint32_t bit = 1u << pass;

  if (wanted[x->id - r->base.form.low] & bit) return;
  wanted[x->id - r->base.form.low] |= bit;
  if (x->op == HLO_REDUCE && level_of(r, x) > 0) return; /* its operands belong to its own pass */
  for (int i = 0; i < x->operand_count; i++) mark_wanted(r, x->operands[i], pass, wanted);
}

/* True if element (row, col) of `x` is needed only for element (row, col) of its users, up to the reduces and results.
 * The users are asked first: `in_place` has their answers. */
static bool is_used_in_place(const rows *r, const hlo_instr *x, const bool *in_place)
{
  for (int i = 0; i < x->user_count; i++) {
    const hlo_instr *u = x->users[i];
    if (u->op == HLO_REDUCE && level_of(r, u) > 0) continue;
    if (!in_place[u->id - r->base.form.low]) return false;
    if (u->op == HLO_TUPLE || hlo_opcode_is_elementwise(u->op)) continue;
    if ((u->op != HLO_RESHAPE && u->op != HLO_BITCAST) || hlo_shape_elems(u->shape) != hlo_shape_elems(x->shape))
      return false;
  }
  return true;
}

static weft_status *choose_kept(rows *r, gen_part *part)
{
  int count = 0;
  HLO_FOREACH(x, r->base.form.comp) count = WEFT_MAX(count, x->id - r->base.form.low + 1);
  uint32_t *wanted = WEFT_ARENA_ARRAY(part->arena, uint32_t, count);
  bool *in_place = WEFT_ARENA_ARRAY(part->arena, bool, count);

  WEFT_TRY_ALLOC(wanted);
  WEFT_TRY_ALLOC(in_place);
  for (int i = 0; i < r->base.form.reduce_count; i++)
    for (int k = 0; k < r->base.form.reduces[i]->operand_count / 2; k++)
      mark_wanted(r, r->base.form.reduces[i]->operands[k], level_of(r, r->base.form.reduces[i]) - 1, wanted);
  mark_wanted(r, r->base.form.comp->root, r->base.form.stages, wanted);
  for (const hlo_instr *x = r->base.form.comp->last; x;
       x = x->prev) { /* users first: if a user is kept, its operands need not be */
    uint32_t passes = wanted[x->id - r->base.form.low];
    in_place[x->id - r->base.form.low] = is_used_in_place(r, x, in_place);
    if (!in_place[x->id - r->base.form.low]) continue;
    if (!hlo_shape_is_array(x->shape) || hlo_shape_elems(x->shape) != r->base.form.rows * r->base.form.cols ||
        !is_costly(x))
      continue;
    if (__builtin_popcount(passes) < 2 || r->kept_count == MAX_KEPT) continue;
    r->kept_stage[r->kept_count] = __builtin_ctz(passes);
    r->kept[r->kept_count++] = x;
  }
  return NULL;
}

/* ---- emitting -------------------------------------------------------------------------------------------------- */

static weft_dtype kept_type(const hlo_instr *x)
{
  weft_dtype type = x->shape->type;
  return weft_dtype_is_float(type) && type != WEFT_F64 ? WEFT_F32 : type;
}

/* The number of trailing dimensions of `s` that make up the columns; -1: none do. Dimensions of size 1 in front of
 * them may go either way. */
static int column_dims(const rows *r, const hlo_shape *s)
{
  int64_t n = 1;
  int dims = 0;

  while (dims < s->rank && n < r->base.form.cols) n *= s->dims[s->rank - 1 - dims++];
  return n == r->base.form.cols ? dims : -1;
}

typedef struct pass_ctx_ {
  rows *r;
  int stage;
  gen_acc *accs;
  gen_value *slots;
  int count;
} pass_ctx_;

/* Stores the values that this pass keeps for later ones. */
static weft_status *keep_values(pass_ctx_ *p, gen_emit *e, gen_affine col)
{
  rows *r = p->r;

  for (int i = 0; i < r->kept_count; i++) {
    gen_value v;
    if (r->kept_stage[i] != p->stage) continue;
    gen_affine linear = gen_affine_add(e, gen_affine_scale(e, r->base.at, r->base.form.cols), col);
    WEFT_TRY(gen_emit_leaf(e, &r->base.f->env, r->kept[i], 0, gen_delinearize(e, r->kept[i]->shape, linear), &v));
    gen_store(e, &r->kept_buffers[i], col, v);
  }
  return NULL;
}

/* Asks for the same columns of the operands' next row. The second pass over a row finds it in the cache and leaves the
 * memory idle, and the first pass over the next one would wait for it. */
static void fetch_next_row(rows *r, gen_emit *e, gen_affine col)
{
  enum { LEAST_BYTES = 1024 }; /* of a row */
  const gen_rows *form = &r->base.form;
  int64_t lane_coef;
  gen_ssa at, varying;

  gen_affine next = gen_affine_scale(e, gen_affine_offset(r->base.at, 1), form->cols);
  gen_affine_split(e, gen_affine_add(e, next, col), &at, &lane_coef, &varying);
  for (int i = 0; i < r->base.f->operand_count; i++) {
    const gen_buffer *operand = &r->base.f->operands[i];
    int64_t bytes = (int64_t)weft_dtype_bytes(operand->type);
    if (operand->elems != form->rows * form->cols || form->cols * bytes < LEAST_BYTES) continue;
    gen_ssa offset = LLVMBuildMul(e->b, at, gen_i64(e, bytes), "");
    gen_ssa ptr = LLVMBuildGEP2(e->b, LLVMInt8TypeInContext(e->part->ctx), operand->ptr, &offset, 1, "");
    LLVMTypeRef i32 = e->part->i32;
    /* read, into every cache, data */
    gen_intrinsic(e, "llvm.prefetch", 4,
                  (gen_ssa[]){ptr, LLVMConstInt(i32, 0, 0), LLVMConstInt(i32, 3, 0), LLVMConstInt(i32, 1, 0)});
  }
}

static weft_status *step(pass_ctx_ *p, gen_emit *e, gen_affine col, gen_value *slots)
{
  if (p->stage == 1 && e->lanes > 1) fetch_next_row(p->r, e, col);
  WEFT_TRY(gen_row_step(&p->r->base, e, col, p->accs, p->count, slots));
  return keep_values(p, e, col);
}

/* Columns [lo, hi) in steps of `lanes` * `unroll`; `lo` is a multiple of `align`. */
static weft_status *loop_over(pass_ctx_ *p, gen_emit *e, gen_ssa lo, gen_ssa hi, int lanes, int unroll, int64_t align,
                              gen_value *const *slots)
{
  gen_loop loop;
  int outer = e->lanes;

  if (lo == hi) return NULL;
  if (LLVMIsAConstantInt(lo) && LLVMIsAConstantInt(hi) && LLVMConstIntGetSExtValue(lo) >= LLVMConstIntGetSExtValue(hi))
    return NULL;
  gen_loop_begin(e, &loop, lo, hi, (int64_t)lanes * unroll, 0, p->r->base.form.cols - (int64_t)lanes * (unroll - 1),
                 align);
  e->vars[loop.var].lane = lanes > 1;
  e->lanes = lanes;
  int mark = gen_memo_push(e);
  for (int u = 0; u < unroll; u++)
    WEFT_TRY(step(p, e, gen_affine_offset(gen_affine_var(e, loop.var), (int64_t)u * lanes), slots[u]));
  gen_memo_pop(e, mark);
  e->lanes = outer;
  gen_loop_end(e, &loop);
  e->vars[loop.var].lane = false;
  return NULL;
}

/* May the lanes of `acc`, which begin with gen_row_first's value, be combined? */
static bool has_lanes(const gen_acc *acc) { return acc->op != HLO_OPCODE_COUNT || acc->extreme; }

/* Combines `v` into `out`: one value if the accumulator has an op, the pair of value and index if it is an extreme. */
static weft_status *combine(gen_emit *e, const gen_acc *acc, gen_value *out, const gen_value *v)
{
  if (acc->extreme) return gen_combine_extremes(e, acc, out, v, out);
  *out = gen_combine(e, acc->op, acc->type, *out, *v);
  return NULL;
}

/* Does combining a value twice give what combining it once gives? */
static bool is_idempotent(const gen_acc *acc)
{
  return acc->extreme || acc->op == HLO_MAXIMUM || acc->op == HLO_MINIMUM || acc->op == HLO_AND || acc->op == HLO_OR;
}

/* Columns [some, hi), fewer than a vector has lanes, as the last lanes of the vector that ends at `hi`. That vector has
 * slots of its own; its other lanes, whose columns are in `slots` already, are left out of the sums that would have
 * them twice. */
static weft_status *overlap(pass_ctx_ *p, gen_emit *e, gen_ssa some, gen_ssa hi, gen_value *slots)
{
  int lanes = p->r->lanes;
  gen_value *own = WEFT_ARENA_ARRAY(e->arena, gen_value, p->count);
  gen_ssa lo = LLVMBuildNSWSub(e->b, hi, gen_i64(e, lanes), ""), counts;

  WEFT_TRY_ALLOC(own);
  for (int i = 0; i < p->count; i++) {
    gen_value first;
    WEFT_TRY(gen_row_first(&p->r->base, e, &p->accs[i], &first));
    own[i] = gen_acc_slot(e, p->accs[i].type, lanes);
    gen_acc_set(e, own[i], first);
  }
  WEFT_TRY(loop_over(p, e, lo, hi, lanes, 1, 1, &own));
  counts = gen_icmp(e, LLVMIntSGE, gen_iota(e, e->part->i64, lanes, 1), LLVMBuildNSWSub(e->b, some, lo, ""));
  for (int i = 0; i < p->count; i += p->accs[i].leaves) {
    const gen_acc *acc = &p->accs[i];
    gen_value sum[2], v[2];
    if (gen_is_extreme_slot(slots[i])) {
      gen_extreme_add(e, slots[i], gen_acc_get(e, own[i]).re);
      continue;
    }
    for (int k = 0; k < acc->leaves; k++) {
      sum[k] = gen_acc_get(e, slots[i + k]);
      v[k] = gen_acc_get(e, own[i + k]);
    }
    if (!is_idempotent(acc)) {
      gen_value none = gen_identity(e, acc->op, acc->type);
      v[0].re = gen_select(e, counts, v[0].re, none.re);
      if (v[0].im) v[0].im = gen_select(e, counts, v[0].im, none.im);
    }
    WEFT_TRY(combine(e, acc, sum, v));
    for (int k = 0; k < acc->leaves; k++) gen_acc_set(e, slots[i + k], sum[k]);
  }
  return NULL;
}

/* Combines the lanes of the slots of all unrolled steps, and then `tail`, into `tail`. */
static weft_status *combine_all(gen_emit *e, const gen_acc *acc, gen_value *const *slots, int at, int unroll,
                                gen_value *tail)
{
  gen_value v[8][2];

  if (gen_is_extreme_slot(slots[0][at])) {
    v[0][0] = gen_extreme_get(e, slots[0][at], acc->op == HLO_MINIMUM);
    unroll = 1;
  } else {
    for (int u = 0; u < unroll; u++)
      for (int k = 0; k < acc->leaves; k++) v[u][k] = gen_acc_get(e, slots[u][at + k]);
  }
  for (int n = unroll; n > 1; n /= 2)
    for (int u = 0; u < n / 2; u++) WEFT_TRY(combine(e, acc, v[u], v[u + n / 2]));
  if (!acc->extreme) v[0][0] = gen_combine_lanes(e, acc->op, acc->type, v[0][0]);
  for (int n = acc->extreme ? (int)LLVMGetVectorSize(LLVMTypeOf(v[0][0].re)) : 1; n > 1; n /= 2) {
    gen_value low[2], high[2];
    for (int k = 0; k < 2; k++) gen_split_lanes(e, v[0][k], &low[k], &high[k]);
    WEFT_TRY(gen_combine_extremes(e, acc, low, high, v[0]));
  }
  for (int k = 0; acc->extreme && k < 2; k++)
    v[0][k].re = LLVMBuildExtractElement(e->b, v[0][k].re, LLVMConstInt(e->part->i32, 0, 0), "");
  WEFT_TRY(combine(e, acc, v[0], tail));
  for (int k = 0; k < acc->leaves; k++) tail[k] = v[0][k];
  return NULL;
}

/* The first of the `length` columns [lo, hi) that do not fill a step of `step` columns. */
static gen_ssa end_of_steps(const rows *r, gen_emit *e, gen_ssa lo, gen_ssa hi, gen_ssa length, int64_t step)
{
  if (r->bound && r->base.form.cols % step == 0) return hi; /* as all bounds are */
  return LLVMBuildNSWAdd(e->b, lo, LLVMBuildAnd(e->b, length, gen_i64(e, -step), ""), "");
}

/* One pass over columns [lo, hi) that yields the accumulated values. Those with an op do not contain the initial
 * value yet. */
static weft_status *accumulate_columns(pass_ctx_ *p, gen_emit *e, gen_ssa lo, gen_ssa hi, gen_value *out)
{
  rows *r = p->r;
  int lanes = r->lanes;

  for (int i = 0; i < p->count; i++)
    if (!has_lanes(&p->accs[i])) lanes = 1;
  int unroll = lanes > 1 ? r->unroll : 1;
  gen_value *slots[8], *tail = WEFT_ARENA_ARRAY(e->arena, gen_value, p->count);
  WEFT_TRY_ALLOC(tail);
  for (int u = 0; u < unroll; u++) WEFT_TRY_ALLOC(slots[u] = WEFT_ARENA_ARRAY(e->arena, gen_value, p->count));
  for (int i = 0; i < p->count; i++) {
    gen_value first;
    WEFT_TRY(gen_row_first(&r->base, e, &p->accs[i], &first));
    for (int u = 0; u < unroll && lanes > 1; u++) {
      if (gen_has_extreme_slots(e, &p->accs[i])) {
        slots[u][i] = u ? slots[0][i] : gen_extreme_slot(e, &p->accs[i], lanes);
        continue; /* one slot for all steps: it takes an instruction of one cycle to add to it, and three registers */
      }
      slots[u][i] = gen_acc_slot(e, p->accs[i].type, lanes);
      gen_acc_set(e, slots[u][i], first);
    }
    tail[i] = gen_acc_slot(e, p->accs[i].type, 1);
    gen_acc_set(e, tail[i], first);
  }
  if (lanes > 1) {
    gen_ssa length = LLVMBuildNSWSub(e->b, hi, lo, ""), whole, some;
    whole = end_of_steps(r, e, lo, hi, length, (int64_t)lanes * unroll);
    some = end_of_steps(r, e, lo, hi, length, lanes);
    WEFT_TRY(loop_over(p, e, lo, whole, lanes, unroll, lanes, slots));
    if (unroll > 1) WEFT_TRY(loop_over(p, e, whole, some, lanes, 1, lanes, slots));
    lo = some;
  }
  if (lanes > 1 && r->base.form.cols % lanes > 1) WEFT_TRY(overlap(p, e, lo, hi, slots[0]));
  else WEFT_TRY(loop_over(p, e, lo, hi, 1, 1, 1, &tail));
  for (int i = 0; i < p->count; i++) out[i] = gen_acc_get(e, tail[i]);
  for (int i = 0; i < p->count && lanes > 1; i += p->accs[i].leaves)
    WEFT_TRY(combine_all(e, &p->accs[i], slots, i, unroll, &out[i]));
  return NULL;
}

weft_status *gen_host_accumulate(gen_row *row, gen_emit *e, int stage, gen_acc *accs, int count, gen_value *out)
{
  rows *r = (rows *)row;
  pass_ctx_ p = {.r = r, .stage = stage, .accs = accs, .count = count};

  WEFT_TRY(accumulate_columns(&p, e, gen_i64(e, 0), r->bound ? r->bound : gen_i64(e, r->base.form.cols), out));
  for (int i = 0; i < r->kept_count; i++)
    if (r->kept_stage[i] == stage)
      WEFT_TRY(gen_env_bind(e, &r->base.f->env, r->kept[i],
                            (gen_source){.kind = GEN_SOURCE_ROW,
                                         .buffers = &r->kept_buffers[i],
                                         .row_dims = column_dims(r, r->kept[i]->shape)}));
  return NULL;
}

/* Calls `body` for the columns within the bound. Those that do not fill a vector are the last ones of whole rows. */
static weft_status *bounded_columns(rows *r, gen_emit *e, gen_body_fn *body, void *ctx)
{
  int64_t cols = r->base.form.cols, whole = cols / r->lanes * r->lanes;
  gen_ssa end = whole == cols ? r->bound : gen_intrinsic2(e, "llvm.smin", r->bound, gen_i64(e, whole));
  int outer = e->lanes;
  gen_loop loop;
  gen_if rest;

  gen_loop_begin(e, &loop, gen_i64(e, 0), end, r->lanes, 0, cols, r->lanes);
  e->vars[loop.var].lane = true;
  e->lanes = r->lanes;
  int mark = gen_memo_push(e);
  WEFT_TRY(body(ctx, e, gen_affine_var(e, loop.var)));
  gen_memo_pop(e, mark);
  e->lanes = outer;
  gen_loop_end(e, &loop);
  e->vars[loop.var].lane = false;
  if (whole == cols) return NULL;
  gen_if_begin(e, &rest, gen_icmp(e, LLVMIntEQ, r->bound, gen_i64(e, cols)));
  mark = gen_memo_push(e);
  WEFT_TRY(gen_emit_lanes(e, gen_i64(e, whole), gen_i64(e, cols), 0, cols, r->lanes, r->lanes, body, ctx));
  gen_memo_pop(e, mark);
  gen_if_end(e, &rest);
  return NULL;
}

weft_status *gen_host_columns(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx)
{
  rows *r = (rows *)row;
  int64_t cols = row->form.cols;

  if (r->bound) return bounded_columns(r, e, body, ctx);
  return gen_emit_lanes(e, gen_i64(e, 0), gen_i64(e, cols), 0, cols, r->lanes, 64, body, ctx);
}

/* The place of gen_row_bound.more. */
static gen_ssa more_place(rows *r, gen_emit *e)
{
  return gen_byte_ptr(e, r->base.f->bound, (int64_t)offsetof(gen_row_bound, more));
}

/* Does the current row, whose columns are made, need columns behind the bound? Asks the last column within it, which is
 * masked as those behind it are. */
static weft_status *ask_for_more(rows *r, gen_emit *e)
{
  const gen_rows *form = &r->base.form;
  const gen_buffer *result = &r->base.f->results[0];
  gen_if bounded;

  gen_if_begin(e, &bounded, gen_icmp(e, LLVMIntSLT, r->bound, gen_i64(e, form->cols)));
  int mark = gen_memo_push(e);
  gen_affine col = gen_affine_value(e, LLVMBuildNSWSub(e->b, r->bound, gen_i64(e, 1), ""), 0, form->cols - 1);
  gen_affine linear = gen_affine_add(e, gen_affine_scale(e, r->base.at, form->cols), col);
  LLVMTypeRef bits = LLVMIntTypeInContext(e->part->ctx, (unsigned)(8 * weft_dtype_bytes(result->type)));
  gen_ssa stored = LLVMBuildLoad2(e->b, bits, gen_element_ptr(e, result, bits, gen_affine_ssa(e, linear)), "");
  gen_ssa more = gen_icmp(e, LLVMIntNE, stored, LLVMConstNull(bits));
  for (int i = 0; i < form->reduce_count; i++) {
    const hlo_instr *operand = form->reduces[i]->operands[0];
    bool is_sum = hlo_reducer_op(form->reduces[i]->called[0]) == HLO_ADD;
    gen_value v;
    WEFT_TRY(gen_emit_leaf(e, &r->base.f->env, operand, 0, gen_delinearize(e, operand->shape, linear), &v));
    gen_ssa matters = is_sum ? gen_fcmp(e, LLVMRealUNE, v.re, gen_f(v.re, 0)) : gen_fcmp(e, LLVMRealUNO, v.re, v.re);
    more = gen_bin(e, LLVMOr, more, matters);
  }
  LLVMBuildStore(e->b, gen_cast(e, LLVMZExt, more, e->part->i64), more_place(r, e));
  gen_memo_pop(e, mark);
  gen_if_end(e, &bounded);
  return NULL;
}

weft_status *gen_host_once(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx)
{
  rows *r = (rows *)row;

  WEFT_TRY(body(ctx, e, gen_affine_const(0)));
  return r->bound ? ask_for_more(r, e) : NULL; /* the last that is emitted of a row */
}

static weft_status *one_phase(rows *r, gen_part *part)
{
  gen_frame f;
  gen_emit *e = &f.e;
  gen_loop loop;
  gen_if goes_on;
  int64_t offset = 0;

  for (int i = 0; i < r->kept_count; i++)
    offset += WEFT_ALIGN_UP(r->base.form.cols * (int64_t)weft_dtype_bytes(kept_type(r->kept[i])), 64);
  r->spec->info->scratch_bytes = offset;
  WEFT_TRY(gen_frame_open(part, r->spec, 0, &f));
  r->base.f = &f;
  offset = 0;
  for (int i = 0; i < r->kept_count; i++) {
    weft_dtype type = kept_type(r->kept[i]);
    r->kept_buffers[i] =
      (gen_buffer){.ptr = gen_byte_ptr(e, f.scratch, offset), .type = type, .elems = r->base.form.cols};
    offset += WEFT_ALIGN_UP(r->base.form.cols * (int64_t)weft_dtype_bytes(type), 64);
  }
  if (f.bound) r->bound = LLVMBuildLoad2(e->b, e->part->i64, f.bound, "");
  WEFT_TRY(gen_row_hoist(&r->base, e));
  gen_loop_begin(e, &loop, f.begin, f.end, 1, 0, r->base.form.rows, 1);
  if (r->bound) {
    gen_ssa more = LLVMBuildLoad2(e->b, e->part->i64, more_place(r, e), "");
    gen_if_begin(e, &goes_on, gen_icmp(e, LLVMIntEQ, more, gen_i64(e, 0)));
  }
  int mark = gen_memo_push(e);
  r->base.at = gen_affine_var(e, loop.var);
  WEFT_TRY(gen_emit_row(&r->base, e));
  gen_memo_pop(e, mark);
  if (r->bound) gen_if_end(e, &goes_on);
  gen_loop_end(e, &loop);
  gen_frame_close(&f);
  return NULL;
}

/* partial[i] holds the partial results of accumulator i, one for each (row, block). */
static weft_status *two_phases(rows *r, gen_part *part)
{
  gen_kernel *info = r->spec->info;
  gen_frame f;
  gen_emit *e = &f.e;
  gen_acc *accs;
  gen_buffer partial[GEN_MOST_ROW_REDUCES];
  gen_loop loop;
  int count;

  info->shared_bytes = r->base.form.reduce_count * r->base.form.rows * r->blocks * 16;
  for (int phase = 0; phase < 2; phase++) {
    WEFT_TRY(gen_frame_open(part, r->spec, phase, &f));
    r->base.f = &f;
    WEFT_TRY(gen_row_hoist(&r->base, e));
    WEFT_TRY(gen_accs_of(e, r->base.form.reduces, r->base.form.reduce_count, &accs, &count));
    gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, count);
    WEFT_TRY_ALLOC(v);
    for (int i = 0; i < count; i++) {
      weft_dtype type = weft_dtype_is_float(accs[i].type) && accs[i].type != WEFT_F64 ? WEFT_F32 : accs[i].type;
      partial[i] = (gen_buffer){.ptr = gen_byte_ptr(e, f.shared, (int64_t)i * r->base.form.rows * r->blocks * 16),
                                .type = type,
                                .elems = r->base.form.rows * r->blocks};
    }
    if (phase == 0) {
      gen_loop_begin(e, &loop, f.begin, f.end, 1, 0, r->base.form.rows * r->blocks, 1);
      int mark = gen_memo_push(e);
      gen_affine unit = gen_affine_var(e, loop.var);
      pass_ctx_ p = {.r = r, .accs = accs, .count = count};
      r->base.at = gen_affine_digit(e, unit, r->blocks, 0);
      gen_ssa lo = gen_affine_ssa(e, gen_affine_scale(e, gen_affine_digit(e, unit, 1, r->blocks), r->block));
      gen_ssa hi = gen_intrinsic2(e, "llvm.smin", LLVMBuildNSWAdd(e->b, lo, gen_i64(e, r->block), ""),
                                  gen_i64(e, r->base.form.cols));
      WEFT_TRY(accumulate_columns(&p, e, lo, hi, v));
      for (int i = 0; i < count; i++) gen_store(e, &partial[i], unit, v[i]);
      gen_memo_pop(e, mark);
      gen_loop_end(e, &loop);
    } else {
      gen_loop_begin(e, &loop, f.begin, f.end, 1, 0, r->base.form.rows, 1);
      int mark = gen_memo_push(e);
      gen_affine row = gen_affine_var(e, loop.var);
      gen_loop over;
      for (int i = 0; i < count; i++) gen_acc_reset(e, &accs[i], 1);
      gen_loop_static(e, &over, 0, r->blocks, 1);
      gen_affine at = gen_affine_add(e, gen_affine_scale(e, row, r->blocks), gen_affine_var(e, over.var));
      for (int i = 0; i < count; i++) {
        gen_value sum = gen_acc_get(e, accs[i].slot);
        gen_acc_set(e, accs[i].slot, gen_combine(e, accs[i].op, accs[i].type, sum, gen_load(e, &partial[i], at)));
      }
      gen_loop_end(e, &over);
      for (int i = 0; i < count; i++) v[i] = gen_acc_get(e, accs[i].slot);
      WEFT_TRY(gen_row_bind(&r->base, e, accs, count, v));
      r->base.at = row;
      WEFT_TRY(gen_row_finish(&r->base, e));
      f.env.bound_count = 0;
      gen_memo_pop(e, mark);
      gen_loop_end(e, &loop);
    }
    gen_frame_close(&f);
  }
  return NULL;
}

/* May the kernel stop at a bound of columns? */
static weft_status *can_stop(const rows *r, gen_part *part, bool *out)
{
  gen_bound bound = {0};

  *out = false;
  if (!r->spec->in_strips || r->blocks > 1 || r->lanes == 1 || GEN_BOUND_STEP % (r->lanes * r->unroll) != 0)
    return NULL;
  WEFT_TRY(gen_bound_of(part->arena, r->spec->fusion, &bound));
  *out = bound.mask;
  return NULL;
}

weft_status *gen_emit_row_kernel(gen_part *part, gen_kernel_spec *spec)
{
  gen_kernel *info = spec->info;
  const hlo_computation *comp = spec->fusion->called[0];
  rows r = {.spec = spec, .blocks = 1};
  int widest = gen_widest_bytes(comp), ops = 0;
  bool plain = true, is_rows;

  WEFT_TRY(gen_rows_of(part->arena, comp, &r.base.form, &is_rows));
  if (!is_rows) return gen_wrong_form(spec->info->strategy);
  WEFT_TRY(choose_kept(&r, part));
  for (int i = 0; i < r.kept_count; i++)
    if (column_dims(&r, r.kept[i]->shape) < 0) r.kept[i--] = r.kept[--r.kept_count];
  HLO_FOREACH(x, r.base.form.comp) ops += 1 + 8 * hlo_opcode_is_transcendental(x->op);
  r.lanes = gen_choose_lanes(part->target, widest, r.base.form.cols);
  r.unroll = ops <= 24 && r.base.form.cols >= 4 * r.lanes ? 4 : ops <= 60 && r.base.form.cols >= 2 * r.lanes ? 2 : 1;
  for (int i = 0; i < r.base.form.reduce_count; i++) {
    hlo_opcode op = r.base.form.reduces[i]->operand_count == 2 ? hlo_reducer_op(r.base.form.reduces[i]->called[0])
                                                               : HLO_OPCODE_COUNT;
    plain = plain && (op == HLO_ADD || op == HLO_MULTIPLY || op == HLO_MAXIMUM || op == HLO_MINIMUM || op == HLO_AND ||
                      op == HLO_OR);
  }
  const gen_rows *form = &r.base.form;
  if (plain && form->per_row_only && form->stages == 1 && form->rows < 2 * part->target->busy_units &&
      form->rows * form->cols >= part->target->split_elems) {
    r.blocks = WEFT_MIN(r.base.form.cols / part->target->split_block_elems, MOST_BLOCKS);
    if (r.blocks > 1) {
      r.block = WEFT_ALIGN_UP((r.base.form.cols + r.blocks - 1) / r.blocks, (int64_t)256);
      r.blocks = (r.base.form.cols + r.block - 1) / r.block;
    }
    r.blocks = WEFT_MAX(r.blocks, 1);
  }
  WEFT_TRY(can_stop(&r, part, &info->takes_bound));
  info->phase_count = r.blocks > 1 ? 2 : 1;
  info->phases[0].units = r.base.form.rows * r.blocks;
  info->phases[info->phase_count - 1].units = r.blocks > 1 ? r.base.form.rows : r.base.form.rows * r.blocks;
  WEFT_TRY(r.blocks > 1 ? two_phases(&r, part) : one_phase(&r, part));
  if (r.blocks > 1) info->phases[1].unit_ns = 2 * (double)r.blocks;
  return NULL;
}
