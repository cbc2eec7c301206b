/* codegen/nvptx/nvptx.h -- kernels of an NVIDIA GPU: the elements of a result over a grid of threads.
 *
 * The emitters are those of the host's kernels.  So far the walker knows two strategies: `loop` (one thread an
 * element) and `rows` (one block a row).  No LLVM type appears here. */
#ifndef WEFT_CODEGEN_NVPTX_NVPTX_H
#define WEFT_CODEGEN_NVPTX_NVPTX_H

#include "codegen/codegen.h"

/* A kernel as PTX text, and its launch: `blocks` blocks of `threads` threads. Its arguments are the leaf buffers of
 * the operands and then of the result, one pointer each. blocks 0: there is nothing to do. */
typedef struct gen_artefact {
  gen_strategy strategy;
  char *text;        /* malloc'd, ends in a zero */
  char entry[32];    /* the kernel's name in `text` */
  int64_t blocks;
  int threads;
  int arg_count;
} gen_artefact;

/* Compiles one finished fusion for `processor` ("sm_75", "sm_80", "sm_90").  Borrows fusion and options. Errors:
 * UNIMPLEMENTED naming the strategy, operation or C function that the grid does not have, or when LLVM was built
 * without NVPTX; INVALID_ARGUMENT for a processor that is not known; RESOURCE_EXHAUSTED; INTERNAL (LLVM's words). */
WEFT_NODISCARD weft_status *gen_nvptx_compile(const hlo_instr *fusion, const char *processor,
                                              const gen_options *options, gen_artefact *out);
void gen_artefact_fini(gen_artefact *artefact);

#endif
