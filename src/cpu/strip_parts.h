/* cpu/strip_parts.h -- what strips.c and strip_groups.c have in common: their products, the places of rows in scratch,
 * and which columns of scores a kernel uses, as a mask says among its operands. */
#ifndef WEFT_CPU_STRIP_PARTS_H
#define WEFT_CPU_STRIP_PARTS_H

#include "base/arena.h"
#include "base/status.h"
#include "cpu/dot.h"
#include "cpu/dot_parts.h"
#include "hlo/hlo.h"

/* Plans the dot that `within` is or has, and finds its operands. `within`: a dot, or the fusion in which a dot reads
 * parts of arrays. `lhs` NULL: the left operand is a result of the kernel. Errors: UNIMPLEMENTED for operands that are
 * no stacks of matrices. */
WEFT_NODISCARD weft_status *cpu_strip_product(const hlo_instr *within, cpu_source *lhs, cpu_source *rhs, cpu_dot *out);
/* The place in `room` where rows from `row` on lie, of an array of `row_bytes` bytes a row, so that the address of its
 * row 0 is a multiple of 64. *out_array: that address. */
char *cpu_strip_place(char *room, int64_t row, int64_t row_bytes, void **out_array);

/* An operand of the kernel that says which elements of the scores it uses: element (row, column) where the number at
 * step[0] * digit 0 of the row + ... + column is not 0, or is 0 if `is_unwanted`. */
typedef struct cpu_strip_mask {
  int operand;           /* of the step; -1: there is none */
  bool is_unwanted;
  const hlo_instr *choice; /* the select, in the kernel's computation */
  int rank;
  int64_t size[HLO_MAX_RANK], step[HLO_MAX_RANK];
} cpu_strip_mask;

/* Finds the mask of scores of rows x cols elements, the kernel's operand `param`: every use of them, and of what is
 * computed of single elements of them, ends in a choice by the mask. uses[i]: the step's operand that the kernel's
 * operand i is; below 0: none. out->operand is -1 if there is no mask. */
WEFT_NODISCARD weft_status *cpu_strip_mask_plan(weft_arena *arena, const hlo_instr *kernel, int param, const int *uses,
                                                int64_t rows, int64_t cols, cpu_strip_mask *out);
/* The columns of `columns` that some of the rows [row, row + rows) need, from the first one on, rounded up. args: the
 * step's. */
int64_t cpu_strip_mask_columns(const cpu_strip_mask *mask, void *const *args, int64_t row, int64_t rows,
                               int64_t columns);
enum { CPU_ANY_FINITE = 1 << 20 };
/* Are the magnitudes of x[rows, n], row_step and `step` elements apart, all less than 2^exponent, or finite where the
 * type has no such number? True for integers; false for floats other than f16, bf16, f32 and f64. */
bool cpu_all_below(weft_dtype type, int exponent, const void *x, int64_t rows, int64_t row_step, int64_t n,
                   int64_t step);
/* Is there a number other than that of `same`, eight times the same byte, in at[0, count)? */
bool cpu_has_other(const char *at, int64_t count, uint64_t same);

#endif
