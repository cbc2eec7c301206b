/* codegen/nvptx/bytes.c -- loads of neighbouring bytes and halves become loads of words.
 *
 * LLVM joins loads of neighbouring bytes to a load of a vector. The back end has no register for most vectors of bytes:
 * it may store such a vector to local memory, to load one byte of it. A word is taken apart by shifts. So is a word of
 * two halves: a bf16 is then one instruction away from being an f32. */
#include <config.h>

#include "codegen/nvptx/grid.h"

/* The bytes of a load of 2, 4 or 8 of them that lie like a word, and of which only single ones are used; else 0. */
static unsigned bytes_of(gen_part *p, gen_ssa load)
{
  if (!LLVMIsALoadInst(load) || LLVMGetVolatile(load) || LLVMGetTypeKind(LLVMTypeOf(load)) != LLVMVectorTypeKind ||
      LLVMGetElementType(LLVMTypeOf(load)) != p->i8)
    return 0;
  unsigned count = LLVMGetVectorSize(LLVMTypeOf(load));
  if ((count != 2 && count != 4 && count != 8) || LLVMGetAlignment(load) < count) return 0;
  for (LLVMUseRef use = LLVMGetFirstUse(load); use; use = LLVMGetNextUse(use)) {
    gen_ssa user = LLVMGetUser(use);
    if (!LLVMIsAExtractElementInst(user) || !LLVMIsAConstantInt(LLVMGetOperand(user, 1))) return 0;
  }
  return count;
}

/* Is every use of the vector one element as an i32? */
static bool is_taken_widened(gen_part *p, gen_ssa load)
{
  for (LLVMUseRef use = LLVMGetFirstUse(load); use; use = LLVMGetNextUse(use)) {
    gen_ssa user = LLVMGetUser(use);
    if (!LLVMIsAExtractElementInst(user) || !LLVMIsAConstantInt(LLVMGetOperand(user, 1))) return false;
    for (LLVMUseRef next = LLVMGetFirstUse(user); next; next = LLVMGetNextUse(next)) {
      gen_ssa wide = LLVMGetUser(next);
      if (!LLVMIsAZExtInst(wide) || LLVMTypeOf(wide) != p->i32) return false;
    }
  }
  return true;
}

/* The words of a load of 2, 4 or 8 halves that lie like words, and of which only single ones are used, as i32; else
 * 0. */
static unsigned words_of_halves(gen_part *p, gen_ssa load)
{
  if (!LLVMIsALoadInst(load) || LLVMGetVolatile(load) || LLVMGetTypeKind(LLVMTypeOf(load)) != LLVMVectorTypeKind ||
      LLVMGetElementType(LLVMTypeOf(load)) != p->i16)
    return 0;
  unsigned count = LLVMGetVectorSize(LLVMTypeOf(load));
  if ((count != 2 && count != 4 && count != 8) || LLVMGetAlignment(load) < 2 * count) return 0;
  return is_taken_widened(p, load) ? count / 2 : 0;
}

static void copy_metadata(gen_ssa from, gen_ssa to, LLVMContextRef ctx)
{
  size_t count;
  LLVMValueMetadataEntry *entries = LLVMInstructionGetAllMetadataOtherThanDebugLoc(from, &count);

  for (size_t i = 0; i < count; i++) {
    LLVMMetadataRef node = LLVMValueMetadataEntriesGetMetadata(entries, (unsigned)i);
    LLVMSetMetadata(to, LLVMValueMetadataEntriesGetKind(entries, (unsigned)i), LLVMMetadataAsValue(ctx, node));
  }
  LLVMDisposeValueMetadataEntries(entries);
}

/* A load of the same bytes as `load`, before it. */
static gen_ssa load_as(gen_part *p, gen_ssa load, LLVMTypeRef type)
{
  LLVMPositionBuilderBefore(p->b, load);
  gen_ssa other = LLVMBuildLoad2(p->b, type, LLVMGetOperand(load, 0), "");
  LLVMSetAlignment(other, LLVMGetAlignment(load));
  copy_metadata(load, other, p->ctx);
  return other;
}

static void load_word(gen_part *p, gen_ssa load, unsigned bytes)
{
  LLVMTypeRef type = LLVMIntTypeInContext(p->ctx, 8 * bytes);
  gen_ssa word = load_as(p, load, type);
  LLVMUseRef use;

  while ((use = LLVMGetFirstUse(load))) {
    gen_ssa byte = LLVMGetUser(use), v = word;
    uint64_t at = LLVMConstIntGetZExtValue(LLVMGetOperand(byte, 1));
    LLVMPositionBuilderBefore(p->b, byte);
    if (at > 0) v = LLVMBuildLShr(p->b, v, LLVMConstInt(type, 8 * at, 0), "");
    LLVMReplaceAllUsesWith(byte, LLVMBuildTrunc(p->b, v, p->i8, ""));
    LLVMInstructionEraseFromParent(byte);
  }
  LLVMInstructionEraseFromParent(load);
}

static void load_halves(gen_part *p, gen_ssa load, unsigned words)
{
  gen_ssa all = load_as(p, load, words == 1 ? p->i32 : LLVMVectorType(p->i32, words));
  LLVMUseRef use;

  while ((use = LLVMGetFirstUse(load))) {
    gen_ssa half = LLVMGetUser(use), word = all;
    uint64_t at = LLVMConstIntGetZExtValue(LLVMGetOperand(half, 1));
    LLVMPositionBuilderBefore(p->b, half);
    if (words > 1) word = LLVMBuildExtractElement(p->b, all, LLVMConstInt(p->i32, at / 2, 0), "");
    gen_ssa wide = at % 2 ? LLVMBuildLShr(p->b, word, LLVMConstInt(p->i32, 16, 0), "")
                          : LLVMBuildAnd(p->b, word, LLVMConstInt(p->i32, 0xffff, 0), "");
    while ((use = LLVMGetFirstUse(half))) {
      gen_ssa user = LLVMGetUser(use);
      LLVMReplaceAllUsesWith(user, wide);
      LLVMInstructionEraseFromParent(user);
    }
    LLVMInstructionEraseFromParent(half);
  }
  LLVMInstructionEraseFromParent(load);
}

static bool load_as_words(gen_part *p, gen_ssa load)
{
  unsigned bytes = bytes_of(p, load), words = words_of_halves(p, load);

  if (bytes) load_word(p, load, bytes);
  else if (words) load_halves(p, load, words);
  return bytes || words;
}

void gen_load_words(gen_part *p)
{
  for (gen_ssa fn = LLVMGetFirstFunction(p->mod); fn; fn = LLVMGetNextFunction(fn))
    for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(fn); block; block = LLVMGetNextBasicBlock(block))
      for (gen_ssa x = LLVMGetFirstInstruction(block), next; x; x = next) {
        bool done = load_as_words(p, x); /* this may erase the instruction behind it, too */
        next = done ? LLVMGetFirstInstruction(block) : LLVMGetNextInstruction(x);
      }
}
