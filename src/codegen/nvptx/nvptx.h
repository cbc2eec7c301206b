/* codegen/nvptx/nvptx.h -- kernels of an NVIDIA GPU: the elements of a result over a grid of threads.
 *
 * The emitters are those of the host's kernels.  No LLVM type appears here.
 *
 * What a launcher provides for a run of an artefact:
 *   - the launches in their order on one stream: each of them sees what the launches before it have stored;
 *   - `arg_count` pointers for every kernel: the leaf buffers of the operands, of the result, and then, if
 *     scratch_bytes is not 0, the scratch. Buffers are aligned to 64 bytes, the scratch to 256. For a token or an empty
 *     array any pointer will do, NULL included;
 *   - after the pointers, the launch's numbers as 64-bit integers;
 *   - the scratch: scratch_bytes of device memory with any contents, for this run alone. */
#ifndef WEFT_CODEGEN_NVPTX_NVPTX_H
#define WEFT_CODEGEN_NVPTX_NVPTX_H

#include "codegen/codegen.h"
#include "codegen/model/target.h"

enum { GEN_LAUNCH_NUMBERS = 2 };

/* One launch: `blocks` blocks of `threads` threads, both in one dimension. */
typedef struct gen_launch {
  char entry[16];     /* the kernel's name in the text; several launches may have the same */
  int64_t blocks;     /* at most 2^31 - 1; 0: there is nothing to do, so nothing is launched */
  int threads;
  int shared_bytes;   /* of dynamic shared memory for each block */
  int number_count;   /* 0 or GEN_LAUNCH_NUMBERS */
  int64_t numbers[GEN_LAUNCH_NUMBERS];
  int copy_from, copy_to; /* The launch copies argument copy_from to argument copy_to. It does nothing if both are the
                           * same address, so it may be left out then. -1: the launch is no copy. */
} gen_launch;

/* A kernel, or several that run one after another, as PTX text. */
typedef struct gen_artefact {
  gen_strategy strategy;
  char *text;            /* malloc'd, ends in a zero */
  gen_launch *launches;  /* malloc'd */
  int launch_count;
  int arg_count;         /* pointers, the scratch included */
  int64_t scratch_bytes; /* 0: there is no scratch */
} gen_artefact;

/* Is the instruction of a kind that has kernels: a fusion, a sort, a top-k, a concatenate, a scan (gen_scan_of), or the
 * custom call cu_lu_pivots_to_permutation? */
bool gen_nvptx_takes(const hlo_instr *instr);
/* Compiles such an instruction for `target`, a GPU. A result of a sort may lie on its operand. Borrows all. Errors:
 * UNIMPLEMENTED naming the strategy, operation or C function that the grid does not have, or when LLVM was built
 * without NVPTX; RESOURCE_EXHAUSTED; INTERNAL (LLVM's message). */
WEFT_NODISCARD weft_status *gen_nvptx_compile_for(const hlo_instr *fusion, const gen_target *target,
                                                  const gen_options *options, gen_artefact *out);
/* The same for a GPU by name (gen_gpu_target). Errors: also INVALID_ARGUMENT for one that is not known. */
WEFT_NODISCARD weft_status *gen_nvptx_compile(const hlo_instr *fusion, const char *name, const gen_options *options,
                                              gen_artefact *out);
void gen_artefact_fini(gen_artefact *artefact); /* safe on one whose compilation failed */

#endif
