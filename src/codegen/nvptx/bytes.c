/* codegen/nvptx/bytes.c -- loads of neighbouring bytes become loads of words.
 *
 * LLVM joins loads of neighbouring bytes to a load of a vector. The back end has no register for most vectors of bytes:
 * it may store such a vector to local memory, to load one byte of it. A word is taken apart by shifts. */
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

static void load_word(gen_part *p, gen_ssa load, unsigned bytes)
{
  LLVMTypeRef type = LLVMIntTypeInContext(p->ctx, 8 * bytes);
  LLVMUseRef use;

  LLVMPositionBuilderBefore(p->b, load);
  gen_ssa word = LLVMBuildLoad2(p->b, type, LLVMGetOperand(load, 0), "");
  LLVMSetAlignment(word, LLVMGetAlignment(load));
  copy_metadata(load, word, p->ctx);
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

void gen_load_words(gen_part *p)
{
  for (gen_ssa fn = LLVMGetFirstFunction(p->mod); fn; fn = LLVMGetNextFunction(fn))
    for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(fn); block; block = LLVMGetNextBasicBlock(block))
      for (gen_ssa x = LLVMGetFirstInstruction(block), next; x; x = next) {
        unsigned bytes = bytes_of(p, x);
        if (bytes) load_word(p, x, bytes); /* this may erase the instruction behind it, too */
        next = bytes ? LLVMGetFirstInstruction(block) : LLVMGetNextInstruction(x);
      }
}
