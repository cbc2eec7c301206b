/* codegen/host/jit.h -- LLVM modules to machine code, and machine code to addresses. */
#ifndef WEFT_CODEGEN_HOST_JIT_H
#define WEFT_CODEGEN_HOST_JIT_H

#include "codegen/host/host.h"

/* Object code of one part. */
typedef struct gen_object {
  LLVMMemoryBufferRef code; /* owned */
  char *ir, *assembly;      /* malloc'd, with options.keep_text */
  bool cached;
  int64_t optimize_ns, codegen_ns;
} gen_object;

/* Optimises and compiles the part's module, or takes its object file from the cache.  `name` names dump files. */
WEFT_NODISCARD weft_status *gen_part_compile(gen_part *part, const gen_machine *machine, int level, const char *name,
                                             gen_object *out);
void gen_object_fini(gen_object *object);

typedef struct gen_jit gen_jit;
WEFT_NODISCARD weft_status *gen_jit_new(gen_jit **out_jit);
void gen_jit_free(gen_jit *jit);
/* Borrows the object's code for the life of `jit`. */
WEFT_NODISCARD weft_status *gen_jit_add(gen_jit *jit, const gen_object *object);
WEFT_NODISCARD weft_status *gen_jit_lookup(gen_jit *jit, const char *symbol, void **out_address);

#endif
