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
/* Writes those features of LLVM's list ("+avx2,-avx512f") that generated code can depend on. */
void gen_features_of_llvm(const char *list, char out[GEN_FEATURES_BYTES]);

#endif
