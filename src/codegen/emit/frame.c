/* codegen/emit/frame.c -- a kernel's function: its arguments, and what is known of their aliasing. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <stdio.h>
#include <string.h>

static LLVMMetadataRef scope_node(gen_part *p, const char *fn, const char *what, int k)
{
  char name[96];

  snprintf(name, sizeof name, "%s.%s.%d", fn, what, k);
  LLVMMetadataRef parts[2] = {LLVMMDStringInContext2(p->ctx, name, strlen(name)), p->alias_domain};
  return LLVMMDNodeInContext2(p->ctx, parts, 2);
}

/* Buffer k: loaded from the array of arguments; in a nested kernel it is an argument itself. */
static gen_ssa load_arg(gen_frame *f, const gen_kernel_spec *spec, int k)
{
  gen_part *p = f->e.part;
  gen_ssa at = gen_i64(&f->e, k), args = LLVMGetParam(f->e.fn, spec->nested ? (unsigned)k : 0), v;

  if (spec->nested) return args;
  v = LLVMBuildLoad2(p->b, p->ptr, LLVMBuildInBoundsGEP2(p->b, p->ptr, args, &at, 1, ""), "");
  LLVMSetMetadata(v, p->md_invariant, LLVMMetadataAsValue(p->ctx, p->empty_node));
  return v;
}

/* May a result lie on top of `operand`? Only one of the very same size (an elementwise path, an aliased update). */
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

  *f = (gen_frame){.fusion = fusion, .comp = fusion->called_count ? fusion->called[0] : NULL, .nested = spec->nested};
  for (int i = 0; i < fusion->operand_count; i++) f->operand_count += hlo_shape_leaf_count(fusion->operands[i]->shape);
  f->result_count = hlo_shape_leaf_count(fusion->shape);
  if (spec->nested)
    pointers = f->operand_count + f->result_count + (info->scratch_bytes > 0) + (info->shared_bytes > 0);
  LLVMTypeRef *params = WEFT_ARENA_ARRAY(p->arena, LLVMTypeRef, pointers + 2);
  WEFT_TRY_ALLOC(params);
  for (int i = 0; i < pointers; i++) params[i] = p->ptr;
  params[pointers] = params[pointers + 1] = p->i64;
  LLVMTypeRef type = LLVMFunctionType(p->voidt, params, (unsigned)pointers + (spec->whole ? 0 : 2), 0);
  gen_ssa fn = LLVMAddFunction(p->mod, spec->symbols[phase], type);
  unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(p->ctx, nounwind, 0));
  gen_emit_init(&f->e, p, fn, fusion);
  if (!spec->whole) {
    f->begin = LLVMGetParam(fn, (unsigned)pointers);
    f->end = LLVMGetParam(fn, (unsigned)pointers + 1);
  }
  if (f->comp) gen_env_init(&f->e, &f->env, f->comp);

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
    if (f->comp) f->env.params[i] = (gen_source){.kind = GEN_SOURCE_BUFFER, .buffers = &f->operands[at]};
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
  if (info->takes_bound) f->bound = load_arg(f, spec, at++);
  info->arg_count = at;
  info->operand_leaves = f->operand_count;
  info->result_leaves = f->result_count;
  return NULL;
}

void gen_frame_close(gen_frame *f) { gen_emit_finish(&f->e, NULL); }
