/* cpu/sort.h -- HLO sort and top-k on the worker pool, for comparators that order by keys (codegen/model/keys.h).
 *
 * Any other comparator is a function to be called. */
#ifndef WEFT_CPU_SORT_H
#define WEFT_CPU_SORT_H

#include "base/status.h"
#include "codegen/codegen.h"
#include "codegen/model/keys.h"
#include "hlo/hlo.h"
#include "runtime/pool.h"

enum { CPU_SORT_MAX_OPERANDS = 64 };

typedef struct cpu_sort {
  int operand_count, key_count;
  gen_key keys[GEN_MOST_KEYS];
  gen_compare_fn *before;        /* is called instead of comparing keys; or NULL */
  int64_t bytes[CPU_SORT_MAX_OPERANDS]; /* bytes of an element of each operand */
  int64_t n, inner, slices;      /* elements of a slice, the step between them, and the number of slices */
  bool parallel_slice;           /* slices are few and long: all threads sort each of them */
  int64_t scratch_bytes;         /* for parallel_slice */
} cpu_sort;

/* Plans a sort along dimension `dim` of operands of one shape.  `before` is used when the comparator is not by keys.
 * Errors: UNIMPLEMENTED for such a comparator without `before`, and for element types without an ordering here. */
WEFT_NODISCARD weft_status *cpu_sort_init(cpu_sort *sort, const hlo_instr *instr, gen_compare_fn *before);
/* ins and outs: operand_count pointers each; outs[i] may be ins[i].  Stable.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_sort_run(const cpu_sort *sort, rt_pool *pool, void *const *ins, void *const *outs,
                                         void *scratch);

typedef struct cpu_topk {
  weft_dtype type, index_type;
  int64_t rows, n, k;
  bool largest;
} cpu_topk;

/* Errors: UNIMPLEMENTED for element types without an ordering here. */
WEFT_NODISCARD weft_status *cpu_topk_init(cpu_topk *topk, const hlo_instr *instr);
/* values[rows, k] and indices[rows, k] of in[rows, n], in order; equal ones by
 * position.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_topk_run(const cpu_topk *topk, rt_pool *pool, const void *in, void *values,
                                         void *indices);

#endif
