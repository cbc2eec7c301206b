/* codegen/emit/elemental.c -- the values of an instruction at an index.
 * Values are remembered per (instruction, index), so that a graph with shared nodes is emitted once; chains of
 * elementwise operations are walked with a stack of their own, everything else recurses within MAX_DEPTH. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <stdio.h>
#include <string.h>

enum { MEMO_BUCKETS = 1024, MAX_DEPTH = 500, MAX_EMITTED = 1 << 16, BRANCH_WORK = 4, BRANCH_STEPS = 32 };

/* ---- memory of what was emitted -------------------------------------------------------------------------------- */

typedef struct memo_entry {
  int env;
  const hlo_instr *instr;
  const gen_index *idx;
  const gen_value *values;
  struct memo_entry *next, *older; /* next in the bucket; the one inserted before */
} memo_entry;

struct gen_memo {
  memo_entry *buckets[MEMO_BUCKETS];
  memo_entry *newest;
  int count, next_env;
};

static gen_memo *memo_of(gen_emit *e)
{
  if (!e->memo) e->memo = WEFT_ARENA_NEW(e->arena, gen_memo);
  return e->memo;
}

static memo_entry **bucket_of(gen_memo *memo, int env, const hlo_instr *instr, const gen_index *idx)
{
  uint64_t h = idx->hash ^ ((uint64_t)instr->id * UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)env << 40);
  return &memo->buckets[(h ^ h >> 32) % MEMO_BUCKETS];
}

static const gen_value *memo_get(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx)
{
  for (memo_entry *m = *bucket_of(memo_of(e), env->id, instr, idx); m; m = m->next)
    if (m->instr == instr && m->env == env->id && gen_index_equal(m->idx, idx)) return m->values;
  return NULL;
}

static weft_status *memo_put(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                             const gen_value *values)
{
  memo_entry *m = WEFT_ARENA_NEW(e->arena, memo_entry);
  WEFT_TRY_ALLOC(m);
  memo_entry **bucket = bucket_of(e->memo, env->id, instr, idx);
  *m = (memo_entry){env->id, instr, idx, values, *bucket, e->memo->newest};
  *bucket = e->memo->newest = m;
  e->memo->count++;
  return NULL;
}

weft_status *gen_remember(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value v)
{
  gen_value *kept = WEFT_ARENA_NEW(e->arena, gen_value);

  WEFT_TRY_ALLOC(kept);
  memo_of(e);
  *kept = v;
  return memo_put(e, env, instr, idx, kept);
}

int gen_memo_push(gen_emit *e) { return memo_of(e)->count; }

void gen_memo_pop(gen_emit *e, int mark)
{
  while (e->memo->count > mark) {
    memo_entry *m = e->memo->newest;
    *bucket_of(e->memo, m->env, m->instr, m->idx) = m->next; /* the newest heads its bucket */
    e->memo->newest = m->older;
    e->memo->count--;
  }
}

/* ---- environments ---------------------------------------------------------------------------------------------- */

void gen_env_init(gen_emit *e, gen_env *env, const hlo_computation *comp)
{
  *env = (gen_env){
    .comp = comp, .params = WEFT_ARENA_ARRAY(e->arena, gen_source, comp->param_count), .id = memo_of(e)->next_env++};
}

weft_status *gen_env_bind(gen_emit *e, gen_env *env, const hlo_instr *instr, gen_source source)
{
  for (int i = 0; i < env->bound_count; i++) {
    if (env->bound[i] != instr) continue;
    env->bound_sources[i] = source;
    return NULL;
  }
  if (env->bound_count == env->bound_capacity) {
    int capacity = env->bound_capacity ? 2 * env->bound_capacity : 8;
    const hlo_instr **bound = WEFT_ARENA_ARRAY(e->arena, const hlo_instr *, capacity);
    gen_source *sources = WEFT_ARENA_ARRAY(e->arena, gen_source, capacity);
    WEFT_TRY_ALLOC(bound);
    WEFT_TRY_ALLOC(sources);
    if (env->bound_count) memcpy(bound, env->bound, sizeof *bound * (size_t)env->bound_count);
    if (env->bound_count) memcpy(sources, env->bound_sources, sizeof *sources * (size_t)env->bound_count);
    env->bound = bound, env->bound_sources = sources, env->bound_capacity = capacity;
  }
  env->bound[env->bound_count] = instr;
  env->bound_sources[env->bound_count++] = source;
  return NULL;
}

static const gen_source *source_of(const gen_env *env, const hlo_instr *instr)
{
  if (instr->op == HLO_PARAMETER) return &env->params[instr->u.parameter_number];
  for (int i = 0; i < env->bound_count; i++)
    if (env->bound[i] == instr) return &env->bound_sources[i];
  return NULL;
}

/* Follows aliases (tuples, elements of tuples, parameters that stand for another instruction) to what makes `leaf`. */
void gen_resolve(gen_env **env, const hlo_instr **instr, int *leaf)
{
  for (;;) {
    const hlo_instr *x = *instr;
    const gen_source *source = source_of(*env, x);
    if (source && source->kind == GEN_SOURCE_INSTR) {
      *env = source->env, *instr = source->instr;
    } else if (source && source->kind != GEN_SOURCE_NONE) {
      return;
    } else if (x->op == HLO_GET_TUPLE_ELEMENT) {
      *leaf += hlo_shape_leaf_offset(x->operands[0]->shape, x->u.tuple_index);
      *instr = x->operands[0];
    } else if (x->op == HLO_TUPLE) {
      int k = 0;
      for (int n; *leaf >= (n = hlo_shape_leaf_count(x->operands[k]->shape)); k++) *leaf -= n;
      *instr = x->operands[k];
    } else if (hlo_shape_is_tuple(x->shape) && (x->op == HLO_OPT_BARRIER || x->op == HLO_COPY)) {
      *instr = x->operands[0];
    } else {
      return;
    }
  }
}

/* ---- helpers --------------------------------------------------------------------------------------------------- */

static const gen_index *empty_index(gen_emit *e) { return gen_index_seal(gen_index_new(e, 0)); }

weft_status *gen_emit_leaf(gen_emit *e, gen_env *env, const hlo_instr *instr, int leaf, const gen_index *idx,
                           gen_value *out)
{
  const gen_value *values;

  gen_resolve(&env, &instr, &leaf);
  const gen_source *source = source_of(env, instr);
  if (source && source->kind == GEN_SOURCE_BUFFER && hlo_shape_is_tuple(instr->shape)) {
    gen_affine linear = gen_linearize(e, hlo_shape_leaf(instr->shape, leaf), idx);
    *out = gen_load(e, &source->buffers[leaf], linear);
    return NULL;
  }
  WEFT_TRY(gen_emit_at(e, env, instr, idx, &values));
  *out = values[leaf];
  return NULL;
}

static weft_status *emit_operand(gen_emit *e, gen_env *env, const hlo_instr *instr, int k, const gen_index *idx,
                                 gen_value *out)
{
  return gen_emit_leaf(e, env, instr->operands[k], 0, idx, out);
}

/* A scalar operand.  Its value does not depend on the loops' indices, so no mask applies. */
static weft_status *emit_scalar(gen_emit *e, gen_env *env, const hlo_instr *x, gen_value *out)
{
  gen_ssa mask = e->mask;

  e->mask = NULL;
  weft_status *st = gen_emit_leaf(e, env, x, 0, empty_index(e), out);
  e->mask = mask;
  return st;
}

static gen_ssa and_mask(gen_emit *e, gen_ssa a, gen_ssa b) { return !a ? b : !b ? a : gen_bin(e, LLVMAnd, a, b); }

/* Adds up the work, up to BRANCH_WORK, that a value of `x` takes on top of what is in memory. Looks at *steps
 * instructions at most. Doing a little work in vain is cheaper than a branch around it: is_worth_a_branch. */
static void count_work(const hlo_instr *x, int *work, int *steps)
{
  if (x->op == HLO_PARAMETER || x->op == HLO_CONSTANT || x->op == HLO_IOTA || --*steps < 0) return;
  if (hlo_opcode_is_transcendental(x->op) || x->op == HLO_REDUCE || x->op == HLO_DOT || x->op == HLO_REDUCE_WINDOW)
    *work += BRANCH_WORK;
  else if (hlo_opcode_is_elementwise(x->op)) ++*work;
  for (int i = 0; i < x->operand_count && *work < BRANCH_WORK; i++) count_work(x->operands[i], work, steps);
}

static bool is_worth_a_branch(const hlo_instr *x)
{
  int work = 0, steps = BRANCH_STEPS;

  count_work(x, &work, &steps);
  return work >= BRANCH_WORK || steps < 0;
}

/* emit_guarded for a condition that is the same in all lanes: a branch, so that `x` is computed only where it is
 * used. */
static weft_status *emit_branch(gen_emit *e, gen_env *env, const hlo_instr *x, const gen_index *idx, gen_ssa cond,
                                gen_value otherwise, gen_value *out)
{
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), after;
  gen_if block;

  gen_if_begin(e, &block, cond);
  int mark = gen_memo_push(e);
  WEFT_TRY(gen_emit_leaf(e, env, x, 0, idx, out));
  gen_memo_pop(e, mark);
  gen_ssa *values[] = {&out->re, &out->im}, others[] = {otherwise.re, otherwise.im};
  for (int i = 0; i < 2; i++)
    if (*values[i] && gen_is_vector(others[i])) *values[i] = gen_widen(e, *values[i]);
  after = LLVMGetInsertBlock(e->b);
  gen_if_end(e, &block);
  for (int i = 0; i < 2; i++) {
    if (!*values[i]) continue;
    LLVMBasicBlockRef merge = LLVMGetInsertBlock(e->b);
    if (gen_is_vector(*values[i]) && !gen_is_vector(others[i])) {
      LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(before));
      others[i] = gen_widen(e, others[i]);
      LLVMPositionBuilderAtEnd(e->b, merge);
    }
    gen_ssa phi = LLVMBuildPhi(e->b, LLVMTypeOf(*values[i]), "");
    LLVMAddIncoming(phi, (gen_ssa[]){*values[i], others[i]}, (LLVMBasicBlockRef[]){after, before}, 2);
    *values[i] = phi;
  }
  return NULL;
}

/* `x` at idx where `cond` holds, else `otherwise`. cond NULL: always `x`. */
static weft_status *emit_guarded(gen_emit *e, gen_env *env, const hlo_instr *x, const gen_index *idx, gen_ssa cond,
                                 gen_value otherwise, gen_value *out)
{
  gen_ssa mask = e->mask;

  if (!cond) return gen_emit_leaf(e, env, x, 0, idx, out);
  if (!gen_is_vector(cond) && is_worth_a_branch(x)) return emit_branch(e, env, x, idx, cond, otherwise, out);
  int mark = gen_memo_push(e);
  e->mask = and_mask(e, mask, cond);
  weft_status *st = gen_emit_leaf(e, env, x, 0, idx, out);
  e->mask = mask;
  gen_memo_pop(e, mark);
  WEFT_TRY(st);
  out->re = gen_select(e, cond, out->re, otherwise.re);
  if (out->im) out->im = gen_select(e, cond, out->im, otherwise.im);
  return NULL;
}

/* An integer value as an index clamped to [0, most]. */
static gen_affine clamped_index(gen_emit *e, weft_dtype type, gen_ssa v, int64_t most)
{
  if (most <= 0) return gen_affine_const(0);
  bool is_signed = weft_dtype_is_signed(type);
  if (gen_scalar_type(v) != e->part->i64) v = gen_cast(e, is_signed ? LLVMSExt : LLVMZExt, v, e->part->i64);
  if (is_signed) v = gen_intrinsic2(e, "llvm.smax", v, gen_i(v, 0));
  v = gen_intrinsic2(e, "llvm.umin", v, gen_i(v, most));
  return gen_affine_value(e, v, 0, most);
}

/* ---- data movement --------------------------------------------------------------------------------------------- */

gen_ssa gen_constant_data(gen_emit *e, const hlo_instr *constant)
{
  gen_part *p = e->part;
  char name[64];

  snprintf(name, sizeof name, "const.%d", constant->id);
  gen_ssa global = LLVMGetNamedGlobal(p->mod, name);
  if (global) return global;
  gen_ssa data =
    LLVMConstStringInContext(p->ctx, constant->u.literal->data, (unsigned)hlo_shape_bytes(constant->shape), 1);
  global = LLVMAddGlobal(p->mod, LLVMTypeOf(data), name);
  LLVMSetInitializer(global, data);
  LLVMSetGlobalConstant(global, 1);
  LLVMSetLinkage(global, LLVMPrivateLinkage);
  LLVMSetAlignment(global, 64);
  return global;
}

static weft_status *emit_constant(gen_emit *e, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  const hlo_literal *lit = instr->u.literal;

  if (hlo_shape_elems(instr->shape) == 0) {
    gen_buffer none = {.type = instr->shape->type};
    *out = gen_load(e, &none, gen_affine_const(0));
    return NULL;
  }
  gen_affine linear = gen_linearize(e, instr->shape, idx);
  if (linear.count == 0 || hlo_literal_is_splat(lit)) {
    *out = gen_literal_element(e, lit, linear.count == 0 ? linear.base : 0);
    return NULL;
  }
  gen_buffer buf = {.ptr = gen_constant_data(e, instr), .type = instr->shape->type,
                    .elems = hlo_shape_elems(instr->shape), .invariant = true};
  *out = gen_load(e, &buf, linear);
  return NULL;
}

static weft_status *emit_iota(gen_emit *e, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  int64_t n = instr->shape->dims[instr->dims.v[0]];
  gen_ssa v = gen_affine_ssa(e, idx->d[instr->dims.v[0]]);
  weft_dtype type = WEFT_S64;

  if (n <= INT32_MAX && weft_dtype_bits(weft_dtype_component(instr->shape->type)) <= 32)
    v = gen_cast(e, LLVMTrunc, v, e->part->i32), type = WEFT_S32;
  return gen_convert(e, type, instr->shape->type, (gen_value){.re = v}, out);
}

static weft_status *emit_pad(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  const hlo_shape *in = instr->operands[0]->shape;
  gen_index *at = gen_index_new(e, in->rank);
  gen_ssa cond = NULL;
  gen_value padding;

  WEFT_TRY(emit_scalar(e, env, instr->operands[1], &padding));
  for (int d = 0; d < in->rank; d++) {
    const hlo_pad_dim *p = &instr->u.pad.dims[d];
    /* a dimension of one element has no interior, so any interior padding is allowed */
    int64_t step = in->dims[d] > 1 ? p->interior + 1 : 1;
    bool never;
    if (in->dims[d] == 0 || p->low >= instr->shape->dims[d] || p->low <= -(in->dims[d] - 1) * step - 1)
      return *out = padding, NULL;
    gen_affine x = gen_affine_offset(idx->d[d], -p->low);
    if (step > 1) { /* shifted by a multiple of the step, so that the digit's operand is not negative */
      int64_t shift = p->low > 0 ? (p->low - 1) / step + 1 : 0;
      gen_affine up = gen_affine_offset(x, shift * step);
      gen_affine rest = gen_affine_digit(e, up, 1, step);
      gen_ssa on_step = gen_affine_within(e, rest, 0, 1, &never);
      if (never) return *out = padding, NULL;
      cond = and_mask(e, cond, on_step);
      x = gen_affine_offset(gen_affine_digit(e, up, step, 0), -shift);
    }
    gen_ssa inside = gen_affine_within(e, x, 0, in->dims[d], &never);
    if (never) return *out = padding, NULL;
    cond = and_mask(e, cond, inside);
    at->d[d] = x;
  }
  return emit_guarded(e, env, instr->operands[0], gen_index_seal(at), cond, padding, out);
}

static weft_status *emit_concatenate(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                     gen_value *out)
{
  int64_t d = instr->dims.v[0], offset = 0;
  bool have = false, never;

  for (int k = 0; k < instr->operand_count; k++) {
    int64_t n = instr->operands[k]->shape->dims[d];
    gen_affine x = gen_affine_offset(idx->d[d], -offset);
    gen_ssa inside = gen_affine_within(e, x, 0, n, &never);
    offset += n;
    if (never || n == 0) continue;
    gen_index *at = gen_index_new(e, idx->rank);
    memcpy(at->d, idx->d, sizeof at->d[0] * (size_t)idx->rank);
    at->d[d] = x;
    gen_value v, before = *out;
    if (!have) before = (gen_value){LLVMConstNull(gen_register_type(e->part, instr->shape->type)), NULL};
    if (!have && weft_dtype_is_complex(instr->shape->type)) before.im = before.re;
    WEFT_TRY(emit_guarded(e, env, instr->operands[k], gen_index_seal(at), inside, before, &v));
    *out = v;
    have = true;
    if (!inside) break;
  }
  if (!have) return WEFT_ERR(INTERNAL, "concatenate: index outside of all operands");
  return NULL;
}

weft_status *gen_emit_starts(gen_emit *e, gen_env *env, const hlo_instr *instr, int first, const hlo_shape *array,
                             const int64_t *sizes, gen_affine *out)
{
  bool one_vector = instr->operand_count == first + 1 && instr->operands[first]->shape->rank == 1;

  for (int d = 0; d < array->rank; d++) {
    gen_value v;
    const hlo_instr *x = instr->operands[one_vector ? first : first + d];
    if (array->dims[d] == sizes[d]) {
      out[d] = gen_affine_const(0);
      continue;
    }
    if (one_vector) {
      gen_index *at = gen_index_new(e, 1);
      at->d[0] = gen_affine_const(d);
      WEFT_TRY(gen_emit_leaf(e, env, x, 0, gen_index_seal(at), &v));
    } else {
      WEFT_TRY(emit_scalar(e, env, x, &v));
    }
    out[d] = clamped_index(e, x->shape->type, v.re, array->dims[d] - sizes[d]);
  }
  return NULL;
}

static weft_status *emit_dynamic_slice(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                       gen_value *out)
{
  const hlo_shape *in = instr->operands[0]->shape;
  gen_index *at = gen_index_new(e, in->rank);

  WEFT_TRY(gen_emit_starts(e, env, instr, 1, in, instr->shape->dims, at->d));
  for (int d = 0; d < in->rank; d++) at->d[d] = gen_affine_add(e, at->d[d], idx->d[d]);
  return emit_operand(e, env, instr, 0, gen_index_seal(at), out);
}

static weft_status *emit_dynamic_update_slice(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                              gen_value *out)
{
  const hlo_shape *update = instr->operands[1]->shape;
  gen_index *at = gen_index_new(e, idx->rank);
  gen_ssa cond = NULL;
  gen_value old;
  bool never;

  WEFT_TRY(emit_operand(e, env, instr, 0, idx, &old));
  WEFT_TRY(gen_emit_starts(e, env, instr, 2, instr->shape, update->dims, at->d));
  for (int d = 0; d < idx->rank; d++) {
    at->d[d] = gen_affine_add(e, idx->d[d], gen_affine_scale(e, at->d[d], -1));
    gen_ssa inside = gen_affine_within(e, at->d[d], 0, update->dims[d], &never);
    if (never || update->dims[d] == 0) return *out = old, NULL;
    cond = and_mask(e, cond, inside);
  }
  return emit_guarded(e, env, instr->operands[1], gen_index_seal(at), cond, old, out);
}

static bool ints_have(hlo_ints ints, int64_t x, int *at)
{
  for (int i = 0; i < ints.count; i++)
    if (ints.v[i] == x) return *at = i, true;
  return false;
}

static weft_status *emit_gather(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  const hlo_gather_attrs *g = instr->u.gather;
  const hlo_shape *in = instr->operands[0]->shape, *indices = instr->operands[1]->shape;
  gen_index *at = gen_index_new(e, in->rank);
  gen_affine batch[HLO_MAX_RANK], offset[HLO_MAX_RANK];
  int batches = 0, offsets = 0, k;

  for (int d = 0; d < idx->rank; d++) {
    if (ints_have(g->offset_dims, d, &k)) offset[offsets++] = idx->d[d];
    else batch[batches++] = idx->d[d];
  }
  for (int d = 0, next = 0; d < in->rank; d++) {
    bool collapsed = ints_have(g->collapsed_slice_dims, d, &k);
    at->d[d] = gen_affine_const(0);
    if (ints_have(g->operand_batching_dims, d, &k)) { /* the batch dimension that belongs to it */
      int64_t dim = g->start_indices_batching_dims.v[k];
      at->d[d] = batch[dim < g->index_vector_dim ? dim : dim - 1];
    } else if (!collapsed) {
      at->d[d] = offset[next++];
    }
    if (!ints_have(g->start_index_map, d, &k)) continue;
    gen_index *start = gen_index_new(e, indices->rank);
    for (int i = 0, b = 0; i < indices->rank; i++)
      start->d[i] = i == g->index_vector_dim ? gen_affine_const(k) : batch[b++];
    gen_value v;
    WEFT_TRY(gen_emit_leaf(e, env, instr->operands[1], 0, gen_index_seal(start), &v));
    at->d[d] = gen_affine_add(e, at->d[d], clamped_index(e, indices->type, v.re, in->dims[d] - g->slice_sizes.v[d]));
  }
  return emit_operand(e, env, instr, 0, gen_index_seal(at), out);
}

/* The bits of a value as an integer of the type's width, and back. */
static gen_ssa value_bits(gen_emit *e, weft_dtype type, gen_ssa v)
{
  gen_part *p = e->part;

  if (type == WEFT_F32) return gen_cast(e, LLVMBitCast, v, p->i32);
  if (type == WEFT_F64) return gen_cast(e, LLVMBitCast, v, p->i64);
  if (type == WEFT_PRED) return gen_cast(e, LLVMZExt, v, p->i8);
  if (weft_dtype_is_float(type)) return gen_encode_float(e, type, v);
  return weft_dtype_bits(type) < 8 ? gen_bin(e, LLVMAnd, v, gen_i(v, (1 << weft_dtype_bits(type)) - 1)) : v;
}

static gen_ssa bits_value(gen_emit *e, weft_dtype type, gen_ssa bits)
{
  gen_part *p = e->part;

  if (type == WEFT_F32) return gen_cast(e, LLVMBitCast, bits, p->f32);
  if (type == WEFT_F64) return gen_cast(e, LLVMBitCast, bits, p->f64);
  if (type == WEFT_PRED) return gen_icmp(e, LLVMIntNE, bits, gen_i(bits, 0));
  if (weft_dtype_is_float(type)) return gen_decode_float(e, type, bits);
  return gen_wrap_int(e, type, bits);
}

static weft_status *emit_bitcast_convert(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                         gen_value *out)
{
  weft_dtype from = instr->operands[0]->shape->type, to = instr->shape->type;
  int from_bits = weft_dtype_bits(from), to_bits = weft_dtype_bits(to), rank = instr->operands[0]->shape->rank;
  gen_part *p = e->part;
  gen_value v;

  if (from == to) return emit_operand(e, env, instr, 0, idx, out);
  if (weft_dtype_is_complex(from) || weft_dtype_is_complex(to)) return gen_unimplemented(e, instr, "complex");
  LLVMTypeRef to_int = LLVMIntTypeInContext(p->ctx, (unsigned)WEFT_MAX(to_bits, 8));
  if (from_bits == to_bits) {
    WEFT_TRY(emit_operand(e, env, instr, 0, idx, &v));
    out->re = bits_value(e, to, value_bits(e, from, v.re));
    return NULL;
  }
  gen_index *at = gen_index_new(e, rank);
  memcpy(at->d, idx->d, sizeof at->d[0] * (size_t)WEFT_MIN(rank, idx->rank));
  if (from_bits > to_bits) { /* the last index picks a part of the bits */
    WEFT_TRY(emit_operand(e, env, instr, 0, gen_index_seal(at), &v));
    gen_ssa bits = value_bits(e, from, v.re), part = gen_affine_ssa(e, idx->d[idx->rank - 1]);
    LLVMTypeRef from_int = gen_scalar_type(bits);
    if (from_int != p->i64) part = gen_cast(e, LLVMTrunc, part, from_int);
    bits = gen_bin(e, LLVMLShr, bits, gen_bin(e, LLVMMul, part, gen_i(part, to_bits)));
    if (from_int != to_int) bits = gen_cast(e, LLVMTrunc, bits, to_int);
    if (to_bits < 8) bits = gen_bin(e, LLVMAnd, bits, gen_i(bits, (1 << to_bits) - 1));
    out->re = bits_value(e, to, bits);
    return NULL;
  }
  gen_ssa sum = NULL;
  for (int k = 0; k < to_bits / from_bits; k++) {
    gen_index *one = gen_index_new(e, rank);
    memcpy(one->d, idx->d, sizeof one->d[0] * (size_t)idx->rank);
    one->d[rank - 1] = gen_affine_const(k);
    WEFT_TRY(emit_operand(e, env, instr, 0, gen_index_seal(one), &v));
    gen_ssa bits = value_bits(e, from, v.re);
    if (gen_scalar_type(bits) != to_int) bits = gen_cast(e, LLVMZExt, bits, to_int);
    bits = gen_bin(e, LLVMShl, bits, gen_i(bits, (int64_t)k * from_bits));
    sum = sum ? gen_bin(e, LLVMOr, sum, bits) : bits;
  }
  out->re = bits_value(e, to, sum);
  return NULL;
}

/* ---- reductions ------------------------------------------------------------------------------------------------ */

weft_status *gen_emit_apply(gen_emit *e, const hlo_computation *comp, const gen_value *args,
                            const gen_value **out_values)
{
  gen_env env;
  gen_ssa mask = e->mask;
  int leaves = hlo_shape_leaf_count(comp->root->shape);
  gen_value *values = WEFT_ARENA_ARRAY(e->arena, gen_value, leaves);
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(values);
  gen_env_init(e, &env, comp);
  for (int i = 0; i < comp->param_count; i++)
    env.params[i] = (gen_source){.kind = GEN_SOURCE_VALUE, .values = &args[i]};
  e->mask = NULL;
  for (int i = 0; i < leaves && !st; i++) st = gen_emit_leaf(e, &env, comp->root, i, empty_index(e), &values[i]);
  e->mask = mask;
  *out_values = values;
  return st;
}

/* The operation of a reduction of narrow floats, if its reducer is one operation. Such a reduction is done in f32
 * and rounded at its end, as the reductions of rows and columns are. HLO_OPCODE_COUNT for others, and for windows,
 * which are rounded at every step, as in XLA. */
static hlo_opcode kept_wide(const hlo_instr *reduce)
{
  weft_dtype type = reduce->operands[0]->shape->type;
  bool is_narrow = weft_dtype_is_float(type) && weft_dtype_bits(type) < 32;

  return is_narrow && reduce->op == HLO_REDUCE && reduce->operand_count == 2 ? hlo_reducer_op(reduce->called[0])
                                                                             : HLO_OPCODE_COUNT;
}

/* True if the values of `x` are read from memory as bf16. */
static bool is_stored_bf16(gen_env *env, const hlo_instr *x)
{
  int leaf = 0;

  gen_resolve(&env, &x, &leaf);
  if (x->op == HLO_CONSTANT) return x->shape->type == WEFT_BF16;
  return x->op == HLO_PARAMETER && x->shape->type == WEFT_BF16 &&
         env->params[x->u.parameter_number].kind == GEN_SOURCE_BUFFER;
}

/* Makes slots for the `n` accumulators of `lanes` lanes of a reduce or a reduce-window, with their initial values. */
static weft_status *make_slots(gen_emit *e, gen_env *env, const hlo_instr *reduce, int n, int lanes, gen_value *slots)
{
  gen_acc only = {.op = hlo_reducer_op(reduce->called[0]), .type = reduce->operands[0]->shape->type};

  only.is_bf16 = n == 1 && is_stored_bf16(env, reduce->operands[0]) && is_stored_bf16(env, reduce->operands[1]);
  for (int i = 0; i < n; i++) {
    gen_value init;
    WEFT_TRY(emit_scalar(e, env, reduce->operands[n + i], &init));
    if (n == 1 && lanes > 1 && gen_has_extreme_slots(e, &only)) {
      slots[i] = gen_extreme_slot(e, &only, lanes);
      gen_extreme_add(e, slots[i], init.re);
      continue;
    }
    slots[i] = gen_acc_slot(e, reduce->operands[i]->shape->type, lanes);
    gen_acc_set(e, slots[i], init);
  }
  return NULL;
}

/* The results of a reduction, once everything is combined. */
static void take_results(gen_emit *e, const hlo_instr *reduce, int n, const gen_value *slots, gen_value *out)
{
  if (gen_is_extreme_slot(slots[0])) {
    out[0] = gen_extreme_get(e, slots[0], hlo_reducer_op(reduce->called[0]) == HLO_MINIMUM);
    return;
  }
  for (int i = 0; i < n; i++) out[i] = gen_acc_get(e, slots[i]);
  if (kept_wide(reduce) != HLO_OPCODE_COUNT)
    out[0] = gen_acc_result(e, &(gen_acc){.type = reduce->operands[0]->shape->type}, out[0]);
}

/* acc = f(acc, v) for `n` accumulators where `cond` holds (NULL: always); f is the computation of `reduce`. */
static weft_status *accumulate(gen_emit *e, const hlo_instr *reduce, int n, const gen_value *slots, const gen_value *v,
                               gen_ssa cond)
{
  gen_value *args = WEFT_ARENA_ARRAY(e->arena, gen_value, 2 * n), wide;
  hlo_opcode op = kept_wide(reduce);
  const gen_value *r = &wide;

  WEFT_TRY_ALLOC(args);
  if (gen_is_extreme_slot(slots[0])) {
    gen_value none = gen_identity(e, hlo_reducer_op(reduce->called[0]), reduce->operands[0]->shape->type);
    gen_extreme_add(e, slots[0], cond ? gen_select(e, cond, v[0].re, none.re) : v[0].re);
    return NULL;
  }
  for (int i = 0; i < n; i++) args[i] = gen_acc_get(e, slots[i]), args[n + i] = v[i];
  if (op != HLO_OPCODE_COUNT) wide = gen_combine(e, op, reduce->operands[0]->shape->type, args[0], args[1]);
  else WEFT_TRY(gen_emit_apply(e, reduce->called[0], args, &r));
  for (int i = 0; i < n; i++) {
    gen_value next = r[i];
    if (cond) {
      next.re = gen_select(e, cond, next.re, args[i].re);
      if (next.im) next.im = gen_select(e, cond, next.im, args[i].im);
    }
    gen_acc_set(e, slots[i], next);
  }
  return NULL;
}

/* Nested loops over the reduced dimensions of a reduce's operands, which combine into slots. */
typedef struct reduce_nest {
  gen_env *env;
  const hlo_instr *instr;
  int n;
  gen_value *slots;
  gen_index *at;
  bool unroll;
} reduce_nest;

static weft_status *reduce_dims(gen_emit *e, reduce_nest *r, int k)
{
  const hlo_instr *instr = r->instr;

  if (k == instr->dims.count) {
    gen_index *at = gen_index_new(e, r->at->rank);
    gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, r->n);
    memcpy(at->d, r->at->d, sizeof at->d[0] * (size_t)at->rank);
    gen_index_seal(at);
    for (int i = 0; i < r->n; i++) WEFT_TRY(emit_operand(e, r->env, instr, i, at, &v[i]));
    return accumulate(e, instr, r->n, r->slots, v, NULL);
  }
  int64_t d = instr->dims.v[k], size = instr->operands[0]->shape->dims[d];
  if (r->unroll || size == 1) {
    for (int64_t i = 0; i < size; i++) {
      r->at->d[d] = gen_affine_const(i);
      WEFT_TRY(reduce_dims(e, r, k + 1));
    }
    return NULL;
  }
  gen_loop loop;
  gen_loop_static(e, &loop, 0, size, 1);
  int mark = gen_memo_push(e);
  r->at->d[d] = gen_affine_var(e, loop.var);
  WEFT_TRY(reduce_dims(e, r, k + 1));
  gen_memo_pop(e, mark);
  gen_loop_end(e, &loop);
  return NULL;
}

static weft_status *emit_reduce(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  int n = instr->operand_count / 2, unused;
  const hlo_shape *in = instr->operands[0]->shape;
  reduce_nest r = {env, instr, n, WEFT_ARENA_ARRAY(e->arena, gen_value, n), gen_index_new(e, in->rank),
                   false};
  int64_t total = 1;

  for (int d = 0, kept = 0; d < in->rank; d++) {
    if (!ints_have(instr->dims, d, &unused)) r.at->d[d] = idx->d[kept++];
    else total *= in->dims[d];
  }
  WEFT_TRY(make_slots(e, env, instr, n, gen_lanes_at(e, idx), r.slots));
  r.unroll = total <= GEN_UNROLLED_REDUCE;
  if (total > 0) WEFT_TRY(reduce_dims(e, &r, 0));
  take_results(e, instr, n, r.slots, out);
  return NULL;
}

typedef struct window_nest {
  gen_env *env;
  const hlo_instr *instr;
  int n;
  gen_value *slots;
  const gen_index *out;
  gen_index *at;
  gen_ssa cond;
} window_nest;

static weft_status *window_dims(gen_emit *e, window_nest *w, int d)
{
  const hlo_instr *instr = w->instr;
  const hlo_shape *in = instr->operands[0]->shape;

  if (d == in->rank) {
    gen_index *at = gen_index_new(e, in->rank);
    gen_value *v = WEFT_ARENA_ARRAY(e->arena, gen_value, w->n);
    gen_ssa mask = e->mask;
    memcpy(at->d, w->at->d, sizeof at->d[0] * (size_t)in->rank);
    gen_index_seal(at);
    int mark = gen_memo_push(e);
    e->mask = and_mask(e, mask, w->cond);
    weft_status *st = NULL;
    for (int i = 0; i < w->n && !st; i++) st = emit_operand(e, w->env, instr, i, at, &v[i]);
    e->mask = mask;
    gen_memo_pop(e, mark);
    WEFT_TRY(st);
    return accumulate(e, instr, w->n, w->slots, v, w->cond);
  }
  const hlo_window_dim *wd = &instr->u.window->dims[d];
  bool is_loop = wd->size > 4, never;
  gen_loop loop;
  if (is_loop) gen_loop_static(e, &loop, 0, wd->size, 1);
  for (int64_t k = 0; k < (is_loop ? 1 : wd->size); k++) {
    int64_t reach = (wd->size - 1) * wd->window_dilation;
    gen_affine tap = is_loop ? gen_affine_var(e, loop.var) : gen_affine_const(k);
    if (wd->reversal) tap = gen_affine_offset(gen_affine_scale(e, tap, -1), wd->size - 1);
    gen_affine x =
      gen_affine_add(e, gen_affine_scale(e, w->out->d[d], wd->stride), gen_affine_scale(e, tap, wd->window_dilation));
    x = gen_affine_offset(x, -wd->pad_low);
    gen_ssa cond = w->cond, outer = w->cond;
    if (wd->base_dilation > 1) {
      int64_t step = wd->base_dilation, shift = (WEFT_MAX(wd->pad_low, 0) + reach) / step + 1;
      gen_affine up = gen_affine_offset(x, shift * step);
      gen_ssa on_step = gen_affine_within(e, gen_affine_digit(e, up, 1, step), 0, 1, &never);
      if (never) continue;
      cond = and_mask(e, cond, on_step);
      x = gen_affine_offset(gen_affine_digit(e, up, step, 0), -shift);
    }
    gen_ssa inside = gen_affine_within(e, x, 0, in->dims[d], &never);
    if (never || in->dims[d] == 0) continue;
    w->cond = and_mask(e, cond, inside);
    w->at->d[d] = x;
    int mark = is_loop ? gen_memo_push(e) : 0;
    WEFT_TRY(window_dims(e, w, d + 1));
    if (is_loop) gen_memo_pop(e, mark);
    w->cond = outer;
  }
  if (is_loop) gen_loop_end(e, &loop);
  return NULL;
}

static weft_status *emit_reduce_window(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                       gen_value *out)
{
  int n = instr->operand_count / 2;
  window_nest w = {env, instr, n, WEFT_ARENA_ARRAY(e->arena, gen_value, n), idx, gen_index_new(e, idx->rank), NULL};

  WEFT_TRY(make_slots(e, env, instr, n, gen_lanes_at(e, idx), w.slots));
  WEFT_TRY(window_dims(e, &w, 0));
  take_results(e, instr, n, w.slots, out);
  return NULL;
}

/* ---- dispatch -------------------------------------------------------------------------------------------------- */

static weft_status *emit_called(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  gen_env *inner = WEFT_ARENA_NEW(e->arena, gen_env);
  int leaves = hlo_shape_leaf_count(instr->shape);

  WEFT_TRY_ALLOC(inner);
  gen_env_init(e, inner, instr->called[0]);
  for (int i = 0; i < instr->operand_count; i++)
    inner->params[i] = (gen_source){.kind = GEN_SOURCE_INSTR, .env = env, .instr = instr->operands[i]};
  for (int i = 0; i < leaves; i++) WEFT_TRY(gen_emit_leaf(e, inner, instr->called[0]->root, i, idx, &out[i]));
  return NULL;
}

static weft_status *emit_map(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  gen_value *args = WEFT_ARENA_ARRAY(e->arena, gen_value, instr->operand_count);
  const gen_value *values;

  WEFT_TRY_ALLOC(args);
  for (int i = 0; i < instr->operand_count; i++) WEFT_TRY(emit_operand(e, env, instr, i, idx, &args[i]));
  WEFT_TRY(gen_emit_apply(e, instr->called[0], args, &values));
  *out = values[0];
  return NULL;
}

static weft_status *emit_moved(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  const hlo_shape *in = instr->operands[0]->shape;
  gen_index *at = gen_index_new(e, in->rank);

  switch (instr->op) {
  case HLO_BROADCAST:
    for (int i = 0; i < in->rank; i++) at->d[i] = in->dims[i] == 1 ? gen_affine_const(0) : idx->d[instr->dims.v[i]];
    break;
  case HLO_TRANSPOSE:
    for (int i = 0; i < in->rank; i++) at->d[instr->dims.v[i]] = idx->d[i];
    break;
  case HLO_SLICE:
    for (int i = 0; i < in->rank; i++)
      at->d[i] = gen_affine_offset(
        gen_affine_scale(e, idx->d[i], instr->u.slice->stride.count ? instr->u.slice->stride.v[i] : 1),
        instr->u.slice->start.v[i]);
    break;
  default: /* reverse */
    memcpy(at->d, idx->d, sizeof at->d[0] * (size_t)in->rank);
    for (int i = 0; i < instr->dims.count; i++) {
      int64_t d = instr->dims.v[i];
      at->d[d] = gen_affine_offset(gen_affine_scale(e, idx->d[d], -1), in->dims[d] - 1);
    }
  }
  return emit_operand(e, env, instr, 0, gen_index_seal(at), out);
}

/* An array in memory is read at its linear index. An index that a mask guards may be outside the array in one
 * dimension, and then its digits in another shape would be no simple terms. */
static weft_status *emit_reshape(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                                 gen_value *out)
{
  const hlo_instr *x = instr->operands[0];
  gen_affine place = gen_linearize(e, instr->shape, idx);
  int leaf = 0;

  if (x->shape->type != instr->shape->type) return gen_unimplemented(e, instr, "changed element type");
  gen_resolve(&env, &x, &leaf);
  const gen_source *source = source_of(env, x);
  if (source && source->kind == GEN_SOURCE_BUFFER) {
    *out = gen_load(e, &source->buffers[leaf], place);
    return NULL;
  }
  return gen_emit_leaf(e, env, x, leaf, gen_delinearize(e, instr->operands[0]->shape, place), out);
}

static weft_status *emit_one(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx, gen_value *out)
{
  switch (instr->op) {
  case HLO_CONSTANT: return emit_constant(e, instr, idx, out);
  case HLO_IOTA: return emit_iota(e, instr, idx, out);
  case HLO_BROADCAST: case HLO_TRANSPOSE: case HLO_SLICE: case HLO_REVERSE: return emit_moved(e, env, instr, idx, out);
  case HLO_RESHAPE: case HLO_BITCAST: return emit_reshape(e, env, instr, idx, out);
  case HLO_PAD: return emit_pad(e, env, instr, idx, out);
  case HLO_CONCATENATE: return emit_concatenate(e, env, instr, idx, out);
  case HLO_DYNAMIC_SLICE: return emit_dynamic_slice(e, env, instr, idx, out);
  case HLO_DYNAMIC_UPDATE_SLICE: return emit_dynamic_update_slice(e, env, instr, idx, out);
  case HLO_GATHER: return emit_gather(e, env, instr, idx, out);
  case HLO_BITCAST_CONVERT: return emit_bitcast_convert(e, env, instr, idx, out);
  case HLO_REDUCE: return emit_reduce(e, env, instr, idx, out);
  case HLO_REDUCE_WINDOW: return emit_reduce_window(e, env, instr, idx, out);
  case HLO_DOT: return gen_emit_dot(e, env, instr, idx, out);
  case HLO_MAP: return emit_map(e, env, instr, idx, out);
  case HLO_CALL: case HLO_FUSION: return emit_called(e, env, instr, idx, out);
  case HLO_GET_DIMENSION_SIZE:
    out->re = LLVMConstInt(gen_register_type(e->part, instr->shape->type),
                           (unsigned long long)instr->operands[0]->shape->dims[instr->dims.v[0]], 1);
    return NULL;
  default: {
    char where[160];
    return WEFT_ERR(UNIMPLEMENTED, "codegen: %s of %s inside a kernel is not supported (%s)",
                    hlo_opcode_name(instr->op), weft_dtype_name(instr->shape->type),
                    hlo_describe(instr, where, sizeof where));
  }
  }
}

static bool is_pointwise(const hlo_instr *x)
{
  return hlo_shape_is_array(x->shape) && x->operand_count > 0 &&
         (hlo_opcode_is_elementwise(x->op) || x->op == HLO_OPT_BARRIER || x->op == HLO_ADD_DEPENDENCY);
}

/* Elementwise operations at one index, operands first, without recursion among themselves. */
static weft_status *emit_pointwise(gen_emit *e, gen_env *env, const hlo_instr *root, const gen_index *idx)
{
  int capacity = 16, depth = 0;
  const hlo_instr **stack = WEFT_ARENA_ARRAY(e->arena, const hlo_instr *, capacity);

  WEFT_TRY_ALLOC(stack);
  stack[depth++] = root;
  while (depth > 0) {
    const hlo_instr *x = stack[depth - 1];
    bool ready = true;
    if (memo_get(e, env, x, idx)) {
      depth--;
      continue;
    }
    for (int i = 0; i < x->operand_count; i++) {
      const hlo_instr *y = x->operands[i];
      if (!is_pointwise(y) || y->shape->rank != x->shape->rank || source_of(env, y) || memo_get(e, env, y, idx))
        continue;
      if (depth == capacity) {
        const hlo_instr **more = WEFT_ARENA_ARRAY(e->arena, const hlo_instr *, 2 * capacity);
        WEFT_TRY_ALLOC(more);
        memcpy(more, stack, sizeof *stack * (size_t)depth);
        stack = more, capacity *= 2;
      }
      stack[depth++] = y;
      ready = false;
      break;
    }
    if (!ready) continue;
    gen_value *operands = WEFT_ARENA_ARRAY(e->arena, gen_value, x->operand_count),
              *out = WEFT_ARENA_NEW(e->arena, gen_value);
    WEFT_TRY_ALLOC(operands);
    WEFT_TRY_ALLOC(out);
    for (int i = 0; i < x->operand_count; i++) {
      if (!hlo_shape_is_array(x->operands[i]->shape)) continue; /* a token */
      if (x->operands[i]->shape->rank == 0 && x->shape->rank > 0)
        WEFT_TRY(emit_scalar(e, env, x->operands[i], &operands[i]));
      else WEFT_TRY(gen_emit_leaf(e, env, x->operands[i], 0, idx, &operands[i]));
    }
    WEFT_TRY(gen_elementwise(e, x, operands, out));
    WEFT_TRY(memo_put(e, env, x, idx, out));
    depth--;
  }
  return NULL;
}

/* The number of an element's row that the index says, which is known. */
static weft_status *take_number(gen_emit *e, const gen_source *source, const hlo_instr *instr, const gen_index *idx,
                                const gen_value **out)
{
  int64_t number = 0;

  for (int d = 0; d < instr->shape->rank; d++) {
    if (d >= source->place && d < source->place + source->element_dims) continue;
    if (idx->d[d].count > 0) return gen_unimplemented(e, instr, "a place in a row that is chosen at run time");
    number = number * instr->shape->dims[d] + idx->d[d].base;
  }
  return *out = &source->values[number], NULL;
}

weft_status *gen_emit_at(gen_emit *e, gen_env *env, const hlo_instr *instr, const gen_index *idx,
                         const gen_value **out_values)
{
  const gen_source *source = source_of(env, instr);
  weft_status *st = NULL;

  if (source && source->kind == GEN_SOURCE_VALUE) return *out_values = source->values, NULL;
  if (source && source->kind == GEN_SOURCE_NUMBERS) return take_number(e, source, instr, idx, out_values);
  const gen_value *known = memo_get(e, env, instr, idx);
  if (known) return *out_values = known, NULL;
  if (e->depth >= MAX_DEPTH) return gen_unimplemented(e, instr, "nested too deeply");
  if (++e->emitted > MAX_EMITTED) /* computations that use each other twice at every level would grow without bound */
    return WEFT_ERR(RESOURCE_EXHAUSTED, "the code of one kernel computes over %d values", MAX_EMITTED);
  e->depth++;
  if (!source && is_pointwise(instr)) {
    st = emit_pointwise(e, env, instr, idx);
    *out_values = st ? NULL : memo_get(e, env, instr, idx);
  } else {
    gen_value *out = WEFT_ARENA_ARRAY(e->arena, gen_value, WEFT_MAX(hlo_shape_leaf_count(instr->shape), 1));
    if (!out) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    else if (source && source->kind == GEN_SOURCE_INSTR) st = gen_emit_leaf(e, source->env, source->instr, 0, idx, out);
    else if (source && source->kind == GEN_SOURCE_BUFFER)
      *out = gen_load(e, source->buffers, gen_linearize(e, instr->shape, idx));
    else if (source && source->kind == GEN_SOURCE_ROW) {
      hlo_shape row = *instr->shape;
      gen_index *at = gen_index_new(e, source->row_dims);
      row.rank = source->row_dims;
      row.dims += instr->shape->rank - source->row_dims;
      memcpy(at->d, idx->d + (idx->rank - source->row_dims), sizeof at->d[0] * (size_t)source->row_dims);
      *out = gen_load(e, source->buffers, gen_linearize(e, &row, at));
    } else if (instr->op == HLO_GET_TUPLE_ELEMENT || instr->op == HLO_TUPLE)
      st = gen_emit_leaf(e, env, instr, 0, idx, out);
    else st = emit_one(e, env, instr, idx, out);
    if (!st) st = memo_put(e, env, instr, idx, out);
    *out_values = out;
  }
  e->depth--;
  return st;
}

weft_status *gen_hoist(gen_emit *e, gen_env *env, const hlo_instr *x)
{
  gen_value ignored;

  if (x->op != HLO_REDUCE || !hlo_shape_is_array(x->shape) || hlo_shape_elems(x->shape) != 1) return NULL;
  return gen_emit_leaf(e, env, x, 0, gen_delinearize(e, x->shape, gen_affine_const(0)), &ignored);
}
