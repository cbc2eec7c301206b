/* cli/limits.h -- the work of a step in arithmetic and in bytes, and how fast this machine can do either. */
#ifndef WEFT_CLI_LIMITS_H
#define WEFT_CLI_LIMITS_H

#include "hlo/hlo.h"

/* The work of one execution of a step, computed from its shapes. */
typedef struct cli_work {
  double flops; /* multiplications and additions of products, convolutions and reductions, one for other operations */
  double bytes; /* of the operands, read once, and of the result */
} cli_work;
cli_work cli_work_of(const hlo_instr *instr);

/* The speed of `threads` threads together; of units per nanosecond, which are G per second. */
typedef struct cli_limits {
  double flops; /* multiply-adds of f32 in registers, counted as two */
  double bytes; /* reading arrays that no cache holds */
} cli_limits;
/* Measures for about 50 ms. Zeros if threads or memory are missing. */
cli_limits cli_limits_measure(int threads);

/* The share of the machine's limit that a step reaches which does `work` in `ns`: of the limit that takes more of its
 * time. 0 if the work is not known. *out_by_memory: that limit is the memory's. */
double cli_share_of_limit(cli_work work, double ns, cli_limits limits, bool *out_by_memory);

#endif
