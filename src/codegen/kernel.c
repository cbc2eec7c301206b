/* codegen/kernel.c -- a fusion's function: its frame, and the strategy that fills it. */
#include <config.h>

#include "codegen/codegen_internal.h"

#include <stdio.h>
#include <string.h>

static LLVMMetadataRef scope_node(gen_part *p, const char *fn, const char *what, int k)
{
  char name[96];

  snprintf(name, sizeof name, "%s.%s.%d", fn, what, k);
  LLVMMetadataRef parts[2] = {LLVMMDStringInContext2(p->ctx, name, strlen(name)), p->alias_domain};
  return LLVMMDNodeInContext2(p->ctx, parts, 2);
}

/* Buffer k: loaded from the array of arguments, or in a nested kernel an argument itself. */
static gen_ssa load_arg(gen_frame *f, const gen_kernel_spec *spec, int k)
{
  gen_part *p = f->e.part;
  gen_ssa at = gen_i64(&f->e, k), args = LLVMGetParam(f->e.fn, spec->nested ? (unsigned)k : 0), v;

  if (spec->nested) return args;
  v = LLVMBuildLoad2(p->b, p->ptr, LLVMBuildInBoundsGEP2(p->b, p->ptr, args, &at, 1, ""), "");
  LLVMSetMetadata(v, p->md_invariant, LLVMMetadataAsValue(p->ctx, p->empty_node));
  return v;
}

/* May result `r` lie on top of an operand?  Only one of its very size (an elementwise path, an aliased update). */
static bool may_share(const gen_frame *f, const hlo_shape *operand)
{
  for (int r = 0; r < f->result_count; r++)
    if (hlo_shape_bytes(hlo_shape_leaf(f->fusion->shape, r)) == hlo_shape_bytes(operand)) return true;
  return false;
}

weft_status *gen_frame_open(gen_part *p, gen_kernel_spec *spec, int phase, gen_frame *f)
{
  const hlo_instr *fusion = spec->fusion;
  LLVMMetadataRef own[HLO_MAX_RANK], inputs;
  gen_kernel *info = spec->info;
  int at = 0, pointers = 1;

  *f = (gen_frame){.fusion = fusion, .comp = fusion->called[0]};
  for (int i = 0; i < fusion->operand_count; i++) f->operand_count += hlo_shape_leaf_count(fusion->operands[i]->shape);
  f->result_count = hlo_shape_leaf_count(fusion->shape);
  if (spec->nested) pointers = f->operand_count + f->result_count + (info->scratch_bytes > 0) + (info->shared_bytes > 0);
  LLVMTypeRef *params = WEFT_ARENA_ARRAY(p->arena, LLVMTypeRef, pointers + 2);
  WEFT_TRY_ALLOC(params);
  for (int i = 0; i < pointers; i++) params[i] = p->ptr;
  params[pointers] = params[pointers + 1] = p->i64;
  LLVMTypeRef type = LLVMFunctionType(p->voidt, params, (unsigned)pointers + 2, 0);
  gen_ssa fn = LLVMAddFunction(p->mod, spec->symbols[phase], type);
  unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(p->ctx, nounwind, 0));
  gen_emit_init(&f->e, p, fn, fusion);
  f->begin = LLVMGetParam(fn, (unsigned)pointers);
  f->end = LLVMGetParam(fn, (unsigned)pointers + 1);
  gen_env_init(&f->e, &f->env, f->comp);

  f->operands = WEFT_ARENA_ARRAY(p->arena, gen_buffer, f->operand_count);
  f->results = WEFT_ARENA_ARRAY(p->arena, gen_buffer, f->result_count);
  WEFT_TRY_ALLOC(f->operands);
  WEFT_TRY_ALLOC(f->results);
  LLVMMetadataRef input_scope = scope_node(p, spec->symbols[phase], "in", 0);
  inputs = LLVMMDNodeInContext2(p->ctx, &input_scope, 1);
  int scoped = WEFT_MIN(f->result_count, (int)WEFT_COUNT(own));
  for (int r = 0; r < scoped; r++) own[r] = scope_node(p, spec->symbols[phase], "out", r);
  LLVMMetadataRef outputs = LLVMMDNodeInContext2(p->ctx, own, (size_t)scoped);
  for (int i = 0; i < fusion->operand_count; i++) {
    const hlo_shape *shape = fusion->operands[i]->shape;
    int leaves = hlo_shape_leaf_count(shape);
    f->env.params[i] = (gen_source){.kind = GEN_SOURCE_BUFFER, .buffers = &f->operands[at]};
    for (int k = 0; k < leaves; k++, at++) {
      const hlo_shape *leaf = hlo_shape_leaf(shape, k);
      f->operands[at] = (gen_buffer){.ptr = load_arg(f, spec, at), .type = leaf->type, .elems = hlo_shape_elems(leaf)};
      if (spec->inlined || may_share(f, leaf)) continue;
      f->operands[at].invariant = true;
      f->operands[at].scope = inputs;
      f->operands[at].noalias = outputs;
    }
  }
  for (int r = 0; r < f->result_count; r++) {
    const hlo_shape *leaf = hlo_shape_leaf(fusion->shape, r);
    f->results[r] = (gen_buffer){.ptr = load_arg(f, spec, at + r), .type = leaf->type, .elems = hlo_shape_elems(leaf)};
    if (spec->inlined || r >= scoped) continue;
    f->results[r].scope = LLVMMDNodeInContext2(p->ctx, &own[r], 1);
    f->results[r].noalias = inputs;
  }
  at += f->result_count;
  if (info->scratch_bytes) f->scratch = load_arg(f, spec, at++);
  if (info->shared_bytes) f->shared = load_arg(f, spec, at++);
  info->arg_count = at;
  info->operand_leaves = f->operand_count;
  info->result_leaves = f->result_count;
  return NULL;
}

void gen_frame_close(gen_frame *f) { gen_emit_finish(&f->e, NULL); }

weft_status *gen_hoist(gen_emit *e, gen_env *env, const hlo_instr *x)
{
  gen_value ignored;

  if (x->op != HLO_REDUCE || !hlo_shape_is_array(x->shape) || hlo_shape_elems(x->shape) != 1) return NULL;
  return gen_emit_leaf(e, env, x, 0, gen_delinearize(e, x->shape, gen_affine_const(0)), &ignored);
}

/* ---- elementwise-like fusions ------------------------------------------------------------------------------------------------ */

typedef struct loop_ctx {
  gen_frame *f;
  int first, count; /* the results walked together */
  int period;       /* elements of each at once */
} loop_ctx;

/* All values are computed before the first is stored: a result may lie on an operand. */
static weft_status *loop_body(void *ctx, gen_emit *e, gen_affine linear)
{
  loop_ctx *l = ctx;
  gen_frame *f = l->f;
  gen_value *values = WEFT_ARENA_ARRAY(e->arena, gen_value, l->period * l->count);

  WEFT_TRY_ALLOC(values);
  for (int i = 0; i < l->period; i++)
    for (int r = 0; r < l->count; r++) {
      const hlo_shape *shape = hlo_shape_leaf(f->fusion->shape, l->first + r);
      const gen_index *at = gen_delinearize(e, shape, gen_affine_offset(linear, i));
      WEFT_TRY(gen_emit_leaf(e, &f->env, f->comp->root, l->first + r, at, &values[i * l->count + r]));
    }
  for (int r = 0; r < l->count; r++) gen_store_joined(e, &f->results[l->first + r], linear, values + r, l->count, l->period);
  return NULL;
}

weft_status *gen_emit_loop_kernel(gen_part *part, gen_kernel_spec *spec)
{
  gen_frame frame, *f = &frame;
  gen_kernel *info = spec->info;
  const hlo_shape *shape = spec->fusion->shape;
  int leaves = hlo_shape_leaf_count(shape), widest = gen_widest_bytes(spec->fusion->called[0]);
  bool together = true;
  int64_t units = 0;

  for (int r = 0; r < leaves; r++) {
    const hlo_shape *leaf = hlo_shape_leaf(shape, r);
    if (!hlo_shape_is_array(leaf)) return WEFT_ERR(UNIMPLEMENTED, "codegen: a fusion with a %s result", weft_dtype_name(leaf->type));
    together = together && hlo_shape_elems(leaf) == hlo_shape_elems(hlo_shape_leaf(shape, 0));
  }
  WEFT_TRY(gen_frame_open(part, spec, 0, f));
  HLO_FOREACH(x, f->comp) WEFT_TRY(gen_hoist(&f->e, &f->env, x));
  const hlo_instr **roots = WEFT_ARENA_ARRAY(part->arena, const hlo_instr *, leaves);
  WEFT_TRY_ALLOC(roots);
  for (int first = 0; first < leaves; first += together ? leaves : 1) {
    loop_ctx ctx = {f, first, together ? leaves : 1, 1};
    gen_nest nest;
    for (int r = 0; r < ctx.count; r++) {
      gen_env *env = &f->env;
      int leaf = first + r;
      roots[r] = f->comp->root;
      gen_resolve(&env, &roots[r], &leaf);
    }
    WEFT_TRY(gen_nest_of(&f->e, f->comp, roots, ctx.count, hlo_shape_leaf(shape, first), &nest));
    WEFT_TRY(gen_nest_join(&f->e, f->comp, roots, ctx.count, &nest));
    ctx.period = WEFT_MAX(nest.period, 1);
    WEFT_TRY(gen_emit_nest(&f->e, &nest, widest, together ? f->begin : NULL, f->end, &units, loop_body, &ctx));
  }
  gen_frame_close(f);
  info->phase_count = 1;
  info->phases[0] = (gen_phase){.units = together ? units : 1};
  return NULL;
}

/* A region says so; else the strategy is what the results are, whatever the fusion's kind says. */
static weft_status *emit_by_strategy(gen_part *part, gen_kernel_spec *spec)
{
  const hlo_instr *root = spec->fusion->called[0]->root;
  const char *strategy = spec->fusion->extra ? spec->fusion->extra->backend_config : NULL;
  bool updates = false, is_loop;

  if (strategy && strcmp(strategy, "region") == 0) return gen_emit_region_kernel(part, spec);
  WEFT_TRY(gen_emit_small_loop_kernel(part, spec, &is_loop));
  if (is_loop) return NULL;
  while (root->op == HLO_RESHAPE || root->op == HLO_BITCAST) root = root->operands[0];
  if (root->op == HLO_TUPLE && spec->fusion->u.fusion.alias_count)
    for (int i = 0; i < root->operand_count; i++) updates = updates || root->operands[i]->op == HLO_DYNAMIC_UPDATE_SLICE;
  if (root->op == HLO_SCATTER) return gen_emit_scatter_kernel(part, spec);
  if (root->op == HLO_SELECT_AND_SCATTER) return gen_emit_select_and_scatter_kernel(part, spec);
  if ((updates || root->op == HLO_DYNAMIC_UPDATE_SLICE) && spec->fusion->u.fusion.alias_count)
    return gen_emit_dus_kernel(part, spec);
  if (!hlo_shape_is_tuple(root->shape) || root->op == HLO_TUPLE || root->op == HLO_REDUCE) {
    bool done;
    WEFT_TRY(gen_emit_row_kernel(part, spec, &done));
    if (done) return NULL;
    WEFT_TRY(gen_emit_column_kernel(part, spec, &done));
    if (done) return NULL;
    WEFT_TRY(gen_emit_transpose_kernel(part, spec, &done));
    if (done) return NULL;
  }
  return gen_emit_loop_kernel(part, spec);
}

weft_status *gen_emit_kernel(gen_part *part, gen_kernel_spec *spec)
{
  bool outer = part->raw_narrow;

  part->raw_narrow = gen_only_moves_narrow(spec->fusion->called[0]);
  weft_status *st = emit_by_strategy(part, spec);
  part->raw_narrow = outer;
  if (!st) gen_price(part, spec->fusion, spec->info);
  return st;
}
