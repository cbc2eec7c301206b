/* codegen/model/cost.h -- how long steps take, estimated from the program and the target's numbers. */
#ifndef WEFT_CODEGEN_MODEL_COST_H
#define WEFT_CODEGEN_MODEL_COST_H

#include "codegen/codegen.h"
#include "codegen/model/target.h"

/* An estimate of the time on one core, in ns, of an operation that a library does. */
double gen_library_ns(const gen_target *target, const hlo_instr *instr);

/* Estimates the bytes that the kernel of `fusion` moves (kernel->bytes) and the time of one unit of each phase that
 * has no estimate yet. The estimate allocates from `arena`. */
void gen_price(const gen_target *target, weft_arena *arena, const hlo_instr *fusion, gen_kernel *kernel);

typedef enum gen_step { GEN_KERNEL, GEN_LIBRARY } gen_step;

/* A step whose work threads could share. */
typedef struct gen_shareable {
  gen_step kind;
  double ns;     /* on one core */
  double bytes;  /* that the step touches; of them: */
  double whole;  /* bytes that one thread alone wrote, in the step before */
  double shared; /* bytes that several threads wrote */
  double passed; /* bytes that later steps read, which are worth sharing */
  double given;  /* bytes of the program's parameters and constants, which no core writes while it runs */
} gen_shareable;

/* Does the program end sooner if `threads` share the step? */
bool gen_pays_to_share(const gen_target *target, const gen_shareable *step, int threads);

#endif
