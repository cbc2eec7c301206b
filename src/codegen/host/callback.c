/* codegen/host/callback.c -- scalar computations as C callbacks: comparators of sorts, reducers of collectives. */
#include <config.h>

#include "codegen/host/host.h"

static gen_ssa new_function(gen_part *p, const char *symbol, LLVMTypeRef result, int count)
{
  LLVMTypeRef params[2] = {p->ptr, p->i64};
  gen_ssa fn = LLVMAddFunction(p->mod, symbol, LLVMFunctionType(result, params, (unsigned)count, 0));
  unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);

  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(p->ctx, nounwind, 0));
  return fn;
}

static gen_ssa arg_ptr(gen_emit *e, gen_ssa args, int k)
{
  gen_ssa at = gen_i64(e, k);
  return LLVMBuildLoad2(e->b, e->part->ptr, LLVMBuildInBoundsGEP2(e->b, e->part->ptr, args, &at, 1, ""), "");
}

weft_status *gen_emit_compare(gen_part *p, const hlo_computation *comp, const char *symbol)
{
  gen_emit e;
  gen_value *args = WEFT_ARENA_ARRAY(p->arena, gen_value, comp->param_count);
  const gen_value *r;

  WEFT_TRY_ALLOC(args);
  gen_ssa fn = new_function(p, symbol, p->i8, 1); /* _Bool: 0 or 1 in a byte */
  unsigned zext = LLVMGetEnumAttributeKindForName("zeroext", 7);
  LLVMAddAttributeAtIndex(fn, LLVMAttributeReturnIndex, LLVMCreateEnumAttribute(p->ctx, zext, 0));
  gen_emit_init(&e, p, fn, comp->root);
  for (int i = 0; i < comp->param_count; i++) {
    gen_buffer buf = {.ptr = arg_ptr(&e, LLVMGetParam(fn, 0), i), .type = comp->params[i]->shape->type, .elems = 1};
    args[i] = gen_load(&e, &buf, gen_affine_const(0));
  }
  WEFT_TRY(gen_emit_apply(&e, comp, args, &r));
  gen_emit_finish(&e, gen_cast(&e, LLVMZExt, r[0].re, p->i8));
  return NULL;
}

typedef struct apply_ctx {
  const hlo_computation *comp;
  gen_buffer *params, *results;
  int result_count;
} apply_ctx;

static weft_status *apply_body(void *ctx, gen_emit *e, gen_affine i)
{
  apply_ctx *a = ctx;
  gen_value *args = WEFT_ARENA_ARRAY(e->arena, gen_value, a->comp->param_count);
  const gen_value *r;

  WEFT_TRY_ALLOC(args);
  for (int k = 0; k < a->comp->param_count; k++) args[k] = gen_load(e, &a->params[k], i);
  WEFT_TRY(gen_emit_apply(e, a->comp, args, &r));
  for (int k = 0; k < a->result_count; k++) gen_store(e, &a->results[k], i, r[k]);
  return NULL;
}

weft_status *gen_emit_apply_fn(gen_part *p, const hlo_computation *comp, const char *symbol)
{
  gen_emit e;
  int results = hlo_shape_leaf_count(comp->root->shape), n = comp->param_count;
  gen_buffer *buffers = WEFT_ARENA_ARRAY(p->arena, gen_buffer, n + results);
  apply_ctx ctx = {comp, buffers, buffers + n, results};

  WEFT_TRY_ALLOC(buffers);
  gen_ssa fn = new_function(p, symbol, p->voidt, 2);
  gen_emit_init(&e, p, fn, comp->root);
  for (int i = 0; i < n + results; i++) {
    const hlo_shape *shape = i < n ? comp->params[i]->shape : hlo_shape_leaf(comp->root->shape, i - n);
    buffers[i] = (gen_buffer){.ptr = arg_ptr(&e, LLVMGetParam(fn, 0), i), .type = shape->type, .elems = 1};
  }
  int lanes = gen_choose_lanes(p->target, gen_widest_bytes(comp), 1 << 20);
  WEFT_TRY(gen_emit_lanes(&e, gen_i64(&e, 0), LLVMGetParam(fn, 1), 0, INT64_MAX / 64, lanes, 64, apply_body, &ctx));
  gen_emit_finish(&e, NULL);
  return NULL;
}
