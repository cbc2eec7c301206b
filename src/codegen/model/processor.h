/* codegen/model/processor.h -- the features of processors by LLVM's names, without LLVM. */
#ifndef WEFT_CODEGEN_MODEL_PROCESSOR_H
#define WEFT_CODEGEN_MODEL_PROCESSOR_H

#include <stdbool.h>

/* The vector instructions of this processor by which library kernels are chosen; all false on machines other than
 * x86-64. Tiles of AMX are not among them: a process must be given them first (gemm_amx.c). */
typedef struct gen_processor {
  bool avx2;        /* AVX2 and FMA */
  bool avx512;      /* AVX-512 F, BW, VL and DQ, AVX2 and FMA */
  bool avx512_vnni; /* these, and products of bytes */
  bool avx512_bf16; /* these, and products of bf16 */
} gen_processor;

/* Written once, as the program or the library is loaded. */
extern gen_processor gen_this_processor;

/* A list of features in LLVM's names, separated by commas: "avx2,fma". */
enum { GEN_FEATURES_BYTES = 1024 };

/* True if this processor and its operating system offer every feature of the list; else `missing` is the first one that
 * they lack. A name that is not known counts as lacking. */
bool gen_processor_has(const char *features, char missing[64]);
/* The features of a level, "x86-64" to "x86-64-v4"; NULL for another name. */
const char *gen_level_features(const char *level);
/* The levels, for messages: "x86-64, x86-64-v2, ...". */
const char *gen_level_names(void);
/* The most that this process may use, by XLA's flag --xla_cpu_max_isa in XLA_FLAGS as it was when it was first asked
 * for: "AVX2", "AVX512_BF16", ...; NULL: all that the processor has. All other functions here, and gen_this_processor,
 * keep to it. Loops that the C compiler has cloned for several levels (cpu/hot.h) do not. */
const char *gen_isa_limit(void);
/* True if the flag is given with a name that XLA does not have; there is no limit then, as in XLA. */
bool gen_isa_limit_is_unknown(void);
/* The names, for messages: "SSE4_2, AVX, ...". */
const char *gen_isa_names(void);
/* Takes the features above the limit out of LLVM's list: "+avx512f" becomes "-avx512f". */
void gen_limit_features(char *list);
/* Writes those features of LLVM's list ("+avx2,-avx512f") that generated code can depend on. */
void gen_features_of_llvm(const char *list, char out[GEN_FEATURES_BYTES]);

#endif
