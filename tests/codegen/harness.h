/* tests/codegen/harness.h -- compiles the fusion that is an entry's root, runs it on random inputs between guard bytes,
 * in several splits of its units, and compares with the reference evaluator. All splits give the same bits. */
#ifndef WEFT_TESTS_CODEGEN_HARNESS_H
#define WEFT_TESTS_CODEGEN_HARNESS_H

#include "codegen/codegen.h"
#include "hlo/eval.h"
#include "hlo/infer.h"
#include "hlo/text.h"

typedef struct kernel_check {
  double rtol, atol;      /* for floats; 0: the element type's default */
  double low, high;       /* of random floats; both 0: [-2, 2] */
  int64_t int_low, int_high; /* both 0: the whole range of small types, else [-100, 100] */
  bool donate;            /* the results that the fusion aliases with operands lie in the memory of these operands */
} kernel_check;

/* Fails the test with the first difference. */
void check_kernel(const char *text, const kernel_check *how);
/* The lower half of check_kernel: one run of a compiled fusion of the entry's parameters, its results copied
 * to `got`; the test fails if it writes outside of them.  `donate`: as above.  split 0: one range; 1: unit
 * by unit, backwards; 2: uneven ranges. */
enum { KERNEL_SPLITS = 3 };
void run_compiled(const gen_kernel *kernel, const hlo_instr *fusion, const hlo_literal *const *inputs, bool donate,
                  int split, hlo_literal *got, const char *what);
hlo_literal *empty_literal(weft_arena *arena, const hlo_shape *shape);
/* NULL when it compiles, else the error. */
weft_status *compile_text(const char *text);

#endif
