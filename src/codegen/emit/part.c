/* codegen/emit/part.c -- one LLVM module being filled with kernels. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <string.h>

static unsigned md_kind(gen_part *p, const char *name)
{
  return LLVMGetMDKindIDInContext(p->ctx, name, (unsigned)strlen(name));
}

weft_status *gen_part_init(gen_part *p, const gen_options *options, const gen_target *target, const gen_walker *walker,
                           weft_arena *arena, const char *name)
{
  *p = (gen_part){.options = options, .target = target, .walker = walker, .arena = arena};
  p->ctx = LLVMContextCreate();
  WEFT_TRY_ALLOC(p->ctx);
  p->mod = LLVMModuleCreateWithNameInContext(name, p->ctx);
  p->b = LLVMCreateBuilderInContext(p->ctx);
  p->i1 = LLVMInt1TypeInContext(p->ctx);
  p->i8 = LLVMInt8TypeInContext(p->ctx);
  p->i16 = LLVMInt16TypeInContext(p->ctx);
  p->i32 = LLVMInt32TypeInContext(p->ctx);
  p->i64 = LLVMInt64TypeInContext(p->ctx);
  p->f32 = LLVMFloatTypeInContext(p->ctx);
  p->f64 = LLVMDoubleTypeInContext(p->ctx);
  p->ptr = LLVMPointerTypeInContext(p->ctx, 0);
  p->voidt = LLVMVoidTypeInContext(p->ctx);
  p->md_scope = md_kind(p, "alias.scope");
  p->md_noalias = md_kind(p, "noalias");
  p->md_invariant = md_kind(p, "invariant.load");
  LLVMMetadataRef domain_name = LLVMMDStringInContext2(p->ctx, "weft", 4);
  p->alias_domain = LLVMMDNodeInContext2(p->ctx, &domain_name, 1);
  p->empty_node = LLVMMDNodeInContext2(p->ctx, NULL, 0);
  return NULL;
}

void gen_part_fini(gen_part *p)
{
  if (p->b) LLVMDisposeBuilder(p->b);
  if (p->mod) LLVMDisposeModule(p->mod);
  if (p->ctx) LLVMContextDispose(p->ctx);
  p->b = NULL, p->mod = NULL, p->ctx = NULL;
}

static void leap(weft_arena *arena) { longjmp(((gen_memory *)arena)->out_of_memory, 1); }

void gen_memory_guard(gen_memory *memory, int64_t most_bytes)
{
  memory->arena.limit_bytes = (size_t)most_bytes;
  memory->arena.exhausted = leap;
}
