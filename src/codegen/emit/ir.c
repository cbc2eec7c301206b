/* codegen/emit/ir.c -- building LLVM IR that is scalar or vector as its operands are. */
#include <config.h>

#include <llvm-c/DebugInfo.h>

#include "codegen/emit/emit.h"

#include <string.h>

LLVMTypeRef gen_register_type(gen_part *p, weft_dtype type)
{
  if (p->raw_narrow && weft_dtype_is_float(type) && weft_dtype_bits(type) < 32) return gen_storage_type(p, type);
  switch (type) {
  case WEFT_PRED: return p->i1;
  case WEFT_S16: case WEFT_U16: return p->i16;
  case WEFT_S32: case WEFT_U32: return p->i32;
  case WEFT_S64: case WEFT_U64: return p->i64;
  case WEFT_F64: case WEFT_C128: return p->f64;
  default: return weft_dtype_is_integer(type) ? p->i8 : p->f32;
  }
}

LLVMTypeRef gen_storage_type(gen_part *p, weft_dtype type)
{
  switch (type) {
  case WEFT_F32: case WEFT_C64: return p->f32;
  case WEFT_F64: case WEFT_C128: return p->f64;
  case WEFT_F16: case WEFT_BF16: return p->i16;
  case WEFT_PRED: return p->i8;
  default: return weft_dtype_is_float(type) ? p->i8 : gen_register_type(p, type);
  }
}

LLVMTypeRef gen_scalar_type(gen_ssa v)
{
  LLVMTypeRef t = LLVMTypeOf(v);
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetElementType(t) : t;
}

LLVMTypeRef gen_type_like(gen_ssa like, LLVMTypeRef scalar)
{
  return gen_is_vector(like) ? LLVMVectorType(scalar, LLVMGetVectorSize(LLVMTypeOf(like))) : scalar;
}

static gen_ssa splat_constant(gen_ssa like, gen_ssa scalar)
{
  unsigned n = gen_is_vector(like) ? LLVMGetVectorSize(LLVMTypeOf(like)) : 0;
  gen_ssa lanes[64];

  if (n == 0) return scalar;
  for (unsigned i = 0; i < n; i++) lanes[i] = scalar;
  return LLVMConstVector(lanes, n);
}

gen_ssa gen_splat(gen_emit *e, gen_ssa scalar, int lanes)
{
  int zeros[64] = {0};

  if (lanes == 1 || gen_is_vector(scalar)) return scalar;
  if (LLVMIsConstant(scalar)) {
    gen_ssa all[64];
    for (int i = 0; i < lanes; i++) all[i] = scalar;
    return LLVMConstVector(all, (unsigned)lanes);
  }
  gen_ssa poison = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes));
  gen_ssa first = LLVMBuildInsertElement(e->b, poison, scalar, LLVMConstInt(e->part->i32, 0, 0), "");
  return gen_shuffle(e, first, poison, lanes, zeros);
}

gen_ssa gen_operand_of(gen_ssa v, LLVMOpcode op, unsigned i)
{
  return LLVMIsAInstruction(v) && LLVMGetInstructionOpcode(v) == op ? LLVMGetOperand(v, i) : NULL;
}

void gen_unify(gen_emit *e, gen_ssa *a, gen_ssa *b)
{
  bool va = gen_is_vector(*a), vb = gen_is_vector(*b);

  if (va && !vb) *b = gen_splat(e, *b, (int)LLVMGetVectorSize(LLVMTypeOf(*a)));
  if (vb && !va) *a = gen_splat(e, *a, (int)LLVMGetVectorSize(LLVMTypeOf(*b)));
}

void gen_unify3(gen_emit *e, gen_ssa *a, gen_ssa *b, gen_ssa *c)
{
  gen_unify(e, a, b);
  gen_unify(e, b, c);
  gen_unify(e, a, c);
}

gen_ssa gen_f(gen_ssa like, double value) { return splat_constant(like, LLVMConstReal(gen_scalar_type(like), value)); }

gen_ssa gen_i(gen_ssa like, int64_t value)
{
  return splat_constant(like, LLVMConstInt(gen_scalar_type(like), (unsigned long long)value, 1));
}

gen_ssa gen_i64(gen_emit *e, int64_t value) { return LLVMConstInt(e->part->i64, (unsigned long long)value, 1); }

gen_ssa(gen_bin)(gen_emit *e, LLVMOpcode op, gen_ssa a, gen_ssa b)
{
  gen_unify(e, &a, &b);
  return LLVMBuildBinOp(e->b, op, a, b, "");
}

gen_ssa(gen_icmp)(gen_emit *e, LLVMIntPredicate p, gen_ssa a, gen_ssa b)
{
  gen_unify(e, &a, &b);
  return LLVMBuildICmp(e->b, p, a, b, "");
}

gen_ssa(gen_fcmp)(gen_emit *e, LLVMRealPredicate p, gen_ssa a, gen_ssa b)
{
  gen_unify(e, &a, &b);
  return LLVMBuildFCmp(e->b, p, a, b, "");
}

gen_ssa(gen_select)(gen_emit *e, gen_ssa c, gen_ssa a, gen_ssa b)
{
  gen_unify(e, &a, &b);
  if (gen_is_vector(c)) gen_unify3(e, &c, &a, &b);
  return LLVMBuildSelect(e->b, c, a, b, "");
}

gen_ssa gen_cast(gen_emit *e, LLVMOpcode op, gen_ssa v, LLVMTypeRef scalar)
{
  LLVMTypeRef type = gen_type_like(v, scalar);
  return LLVMTypeOf(v) == type ? v : LLVMBuildCast(e->b, op, v, type, "");
}

gen_ssa gen_intrinsic(gen_emit *e, const char *name, int count, gen_ssa *args)
{
  LLVMTypeRef type = LLVMTypeOf(args[0]);
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  gen_ssa fn = LLVMGetIntrinsicDeclaration(e->part->mod, id, &type, 1);

  return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, (unsigned)count, "");
}

gen_ssa gen_intrinsic1(gen_emit *e, const char *name, gen_ssa a) { return gen_intrinsic(e, name, 1, &a); }

gen_ssa(gen_intrinsic2)(gen_emit *e, const char *name, gen_ssa a, gen_ssa b)
{
  gen_unify(e, &a, &b);
  return gen_intrinsic(e, name, 2, (gen_ssa[]){a, b});
}

gen_ssa(gen_fma)(gen_emit *e, gen_ssa a, gen_ssa b, gen_ssa c)
{
  gen_unify3(e, &a, &b, &c);
  return gen_intrinsic(e, e->part->target->has_fma ? "llvm.fma" : "llvm.fmuladd", 3, (gen_ssa[]){a, b, c});
}

gen_ssa gen_libcall(gen_emit *e, const char *name, int count, gen_ssa *args)
{
  gen_part *p = e->part;
  LLVMTypeRef scalar, params[3];
  gen_ssa fn = LLVMGetNamedFunction(p->mod, name), result, one[3];

  for (int i = 1; i < count; i++) gen_unify(e, &args[0], &args[i]);
  for (int i = 1; i < count; i++) gen_unify(e, &args[0], &args[i]);
  scalar = gen_scalar_type(args[0]);
  for (int i = 0; i < count; i++) params[i] = scalar;
  LLVMTypeRef type = LLVMFunctionType(scalar, params, (unsigned)count, 0);
  if (!fn) {
    fn = LLVMAddFunction(p->mod, name, type);
    unsigned kind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(p->ctx, kind, 0));
    kind = LLVMGetEnumAttributeKindForName("willreturn", 10);
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(p->ctx, kind, 0));
    kind = LLVMGetEnumAttributeKindForName("memory", 6); /* 0: none */
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(p->ctx, kind, 0));
  }
  if (!gen_is_vector(args[0])) return LLVMBuildCall2(e->b, type, fn, args, (unsigned)count, "");
  result = LLVMGetPoison(LLVMTypeOf(args[0]));
  for (unsigned lane = 0; lane < LLVMGetVectorSize(LLVMTypeOf(args[0])); lane++) {
    gen_ssa at = LLVMConstInt(p->i32, lane, 0);
    for (int i = 0; i < count; i++) one[i] = LLVMBuildExtractElement(e->b, args[i], at, "");
    gen_ssa r = LLVMBuildCall2(e->b, type, fn, one, (unsigned)count, "");
    result = LLVMBuildInsertElement(e->b, result, r, at, "");
  }
  return result;
}

gen_ssa gen_shuffle(gen_emit *e, gen_ssa a, gen_ssa b, int count, const int *lanes)
{
  gen_ssa mask[128];

  for (int i = 0; i < count; i++)
    mask[i] = lanes[i] < 0 ? LLVMGetPoison(e->part->i32) : LLVMConstInt(e->part->i32, (unsigned)lanes[i], 0);
  return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(mask, (unsigned)count), "");
}

gen_ssa gen_iota(gen_emit *e, LLVMTypeRef scalar, int lanes, int64_t step)
{
  gen_ssa all[64];

  (void)e;
  for (int i = 0; i < lanes; i++) all[i] = LLVMConstInt(scalar, (unsigned long long)(step * i), 1);
  return LLVMConstVector(all, (unsigned)lanes);
}

gen_ssa gen_alloca(gen_emit *e, LLVMTypeRef type, const char *name)
{
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);

  LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(e->entry));
  gen_ssa slot = LLVMBuildAlloca(e->b, type, name);
  LLVMPositionBuilderAtEnd(e->b, here);
  return slot;
}

gen_ssa gen_byte_ptr(gen_emit *e, gen_ssa ptr, int64_t offset)
{
  gen_ssa at = gen_i64(e, offset);
  return offset ? LLVMBuildInBoundsGEP2(e->b, e->part->i8, ptr, &at, 1, "") : ptr;
}

/* ---- functions, loops, branches -------------------------------------------------------------------------------- */

void gen_emit_init(gen_emit *e, gen_part *part, gen_ssa fn, const hlo_instr *kernel)
{
  *e = (gen_emit){.part = part, .arena = part->arena, .b = part->b, .fn = fn, .lanes = 1, .kernel = kernel};
  e->entry = LLVMAppendBasicBlockInContext(part->ctx, fn, "entry");
  LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(part->ctx, fn, "body");
  LLVMPositionBuilderAtEnd(e->b, e->entry);
  LLVMBuildBr(e->b, body);
  LLVMPositionBuilderAtEnd(e->b, body);
}

void gen_emit_finish(gen_emit *e, gen_ssa ret)
{
  if (ret) LLVMBuildRet(e->b, ret);
  else LLVMBuildRetVoid(e->b);
}

static LLVMBasicBlockRef new_block(gen_emit *e) { return LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, ""); }

int gen_add_var(gen_emit *e, gen_var var)
{
  if (e->var_count == e->var_capacity) {
    int capacity = e->var_capacity ? 2 * e->var_capacity : 16;
    gen_var *vars = WEFT_ARENA_ARRAY(e->arena, gen_var, capacity);
    if (e->var_count) memcpy(vars, e->vars, sizeof *vars * (size_t)e->var_count);
    e->vars = vars;
    e->var_capacity = capacity;
  }
  e->vars[e->var_count] = var;
  return e->var_count++;
}

/* A rotated loop: a guard if the range may be empty, then a body with the test at its end. */
void gen_loop_begin(gen_emit *e, gen_loop *loop, gen_ssa lo, gen_ssa hi, int64_t step, int64_t least, int64_t end,
                    int64_t align)
{
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
  bool certain = LLVMIsAConstantInt(lo) && LLVMIsAConstantInt(hi) &&
                 LLVMConstIntGetSExtValue(lo) < LLVMConstIntGetSExtValue(hi);

  loop->body = new_block(e);
  loop->exit = new_block(e);
  loop->hi = hi;
  loop->step = gen_i64(e, step);
  if (certain) LLVMBuildBr(e->b, loop->body);
  else LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, lo, hi, ""), loop->body, loop->exit);
  LLVMPositionBuilderAtEnd(e->b, loop->body);
  gen_ssa iv = LLVMBuildPhi(e->b, e->part->i64, "i");
  LLVMAddIncoming(iv, &lo, &before, 1);
  loop->var = gen_add_var(e, (gen_var){.value = iv, .lo = least, .hi = end, .align = align});
}

/* True if the loop, which ends in block `latch`, has so few instructions that LLVM might make straight code of all
 * rounds. */
static bool is_small(const gen_loop *loop, LLVMBasicBlockRef latch)
{
  enum { SMALL = 40 };
  int count = 0;

  for (LLVMBasicBlockRef block = loop->body; block && count <= SMALL;
       block = block == latch ? NULL : LLVMGetNextBasicBlock(block))
    for (gen_ssa i = LLVMGetFirstInstruction(block); i && count <= SMALL; i = LLVMGetNextInstruction(i)) count++;
  return count <= SMALL;
}

/* Lets LLVM keep no more rounds of the loop side by side than the walker allows. */
static void bound_unrolling(gen_emit *e, gen_ssa branch)
{
  static const char loop_kind[] = "llvm.loop", count[] = "llvm.loop.unroll.count";
  LLVMContextRef ctx = e->part->ctx;

  int most = e->part->walker->most_unrolled;
  if (!most) return;
  LLVMMetadataRef rounds[] = {LLVMMDStringInContext2(ctx, count, sizeof count - 1),
                              LLVMValueAsMetadata(LLVMConstInt(e->part->i32, (unsigned)most, 0))};
  LLVMMetadataRef self = LLVMTemporaryMDNode(ctx, NULL, 0); /* a loop's node names itself first */
  LLVMMetadataRef parts[] = {self, LLVMMDNodeInContext2(ctx, rounds, WEFT_COUNT(rounds))};
  LLVMMetadataRef node = LLVMMDNodeInContext2(ctx, parts, WEFT_COUNT(parts));
  LLVMMetadataReplaceAllUsesWith(self, node);
  LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(ctx, loop_kind, sizeof loop_kind - 1),
                  LLVMMetadataAsValue(ctx, node));
}

/* The rounds of a loop whose bounds are constant; otherwise 0. */
static int64_t rounds_of(gen_ssa first, const gen_loop *loop)
{
  if (!LLVMIsAConstantInt(first) || !LLVMIsAConstantInt(loop->hi)) return 0;
  int64_t step = LLVMConstIntGetSExtValue(loop->step);
  return (LLVMConstIntGetSExtValue(loop->hi) - LLVMConstIntGetSExtValue(first) + step - 1) / step;
}

void gen_loop_end(gen_emit *e, gen_loop *loop)
{
  enum { SHORT = 16 };
  gen_ssa iv = e->vars[loop->var].value;
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
  gen_ssa next = LLVMBuildNSWAdd(e->b, iv, loop->step, "");

  LLVMAddIncoming(iv, &next, &latch, 1);
  gen_ssa go_on = LLVMBuildICmp(e->b, LLVMIntSLT, next, loop->hi, "");
  gen_ssa branch = LLVMBuildCondBr(e->b, go_on, loop->body, loop->exit);
  if (rounds_of(LLVMGetIncomingValue(iv, 0), loop) > SHORT && is_small(loop, latch)) bound_unrolling(e, branch);
  LLVMMoveBasicBlockAfter(loop->exit, latch);
  LLVMPositionBuilderAtEnd(e->b, loop->exit);
}

void gen_loop_static(gen_emit *e, gen_loop *loop, int64_t lo, int64_t hi, int64_t step)
{
  int64_t align = step > 1 && lo % step == 0 ? step : 1;
  gen_loop_begin(e, loop, gen_i64(e, lo), gen_i64(e, hi), step, lo, hi, align);
}

void gen_while_begin(gen_emit *e, gen_while *loop)
{
  loop->head = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "while");
  loop->exit = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "done");
  LLVMBuildBr(e->b, loop->head);
  LLVMPositionBuilderAtEnd(e->b, loop->head);
}

void gen_while_test(gen_emit *e, gen_while *loop, gen_ssa cond)
{
  LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->part->ctx, e->fn, "body");

  LLVMBuildCondBr(e->b, cond, body, loop->exit);
  LLVMPositionBuilderAtEnd(e->b, body);
}

void gen_while_end(gen_emit *e, gen_while *loop)
{
  LLVMBuildBr(e->b, loop->head);
  LLVMPositionBuilderAtEnd(e->b, loop->exit);
}

void gen_if_begin(gen_emit *e, gen_if *block, gen_ssa cond)
{
  LLVMBasicBlockRef then = new_block(e);

  block->merge = new_block(e);
  block->branch = LLVMBuildCondBr(e->b, cond, then, block->merge);
  LLVMPositionBuilderAtEnd(e->b, then);
}

void gen_if_else(gen_emit *e, gen_if *block)
{
  LLVMBasicBlockRef other = new_block(e);

  LLVMBuildBr(e->b, block->merge);
  LLVMMoveBasicBlockAfter(other, LLVMGetInsertBlock(e->b));
  LLVMSetSuccessor(block->branch, 1, other);
  LLVMPositionBuilderAtEnd(e->b, other);
}

void gen_if_end(gen_emit *e, gen_if *block)
{
  LLVMBuildBr(e->b, block->merge);
  LLVMMoveBasicBlockAfter(block->merge, LLVMGetInsertBlock(e->b));
  LLVMPositionBuilderAtEnd(e->b, block->merge);
}

void gen_rare_begin(gen_emit *e, gen_rare *r, gen_ssa any)
{
  if (gen_is_vector(any)) any = gen_intrinsic1(e, "llvm.vector.reduce.or", any);
  r->before = LLVMGetInsertBlock(e->b);
  gen_if_begin(e, &r->block, any);
}

gen_ssa gen_rare_end(gen_emit *e, gen_rare *r, gen_ssa usual, gen_ssa rare)
{
  LLVMBasicBlockRef from[] = {r->before, LLVMGetInsertBlock(e->b)};

  gen_if_end(e, &r->block);
  gen_ssa phi = LLVMBuildPhi(e->b, LLVMTypeOf(usual), "");
  LLVMAddIncoming(phi, (gen_ssa[]){usual, rare}, from, 2);
  return phi;
}
