/* cpu/makers.h -- makes a thunk of an instruction for which no kernel was compiled: library kernels and custom
 * calls. */
#ifndef WEFT_CPU_MAKERS_H
#define WEFT_CPU_MAKERS_H

#include "codegen/codegen.h"
#include "codegen/model/target.h"
#include "lower/lower.h"

/* The context of the CPU's target (lower/lower.h). */
typedef struct cpu_target {
  const gen_target *machine; /* numbers of the machine, for the cost model */
  gen_code *code;            /* the compiled kernels, comparators and reducers */
} cpu_target;

static inline const cpu_target *cpu_target_of(const low_step *step) { return step->target->ctx; }

/* The pool whose threads the run of a thunk may use besides its own; NULL if its work is not worth splitting. */
static inline rt_pool *cpu_pool_of(const rt_thunk *thunk, const rt_ctx *ctx)
{
  return thunk->splits ? ctx->pool : NULL;
}

/* True if a step of the library that takes `ns` nanoseconds on one thread ends sooner on all threads of the pool.
 * is_cut: each thread reads a part of the operands, as it does in a kernel. */
bool cpu_pays_to_share(const low_step *step, double ns, bool is_cut);
/* The same for a step that touches `bytes` bytes of its operands and results. */
bool cpu_pays_to_share_bytes(const low_step *step, double ns, bool is_cut, double bytes);

/* How instructions of one opcode become thunks (the table is in cpu/library.c). A planner or a maker returns
 * UNIMPLEMENTED, naming what it lacks, to leave the instruction to the reference evaluator. */
typedef struct cpu_maker {
  hlo_opcode op;
  weft_status *(*make)(low_step *step, rt_thunk **out_thunk); /* called if planning has not failed */
  /* As low_target.plan; NULL: there is nothing to plan, and no scratch. */
  weft_status *(*plan)(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *plan);
} cpu_maker;

WEFT_NODISCARD weft_status *cpu_rng_state_make(low_step *step, rt_thunk **out_thunk);   /* cpu/rng_state.c */
WEFT_NODISCARD weft_status *cpu_concatenate_make(low_step *step, rt_thunk **out_thunk); /* cpu/concatenate.c */

/* A dot that reads parts of arrays where they lie, a fusion of pass dot-parts: cpu/dot_parts.c. */
WEFT_NODISCARD weft_status *cpu_dot_parts_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                               low_plan *plan);
WEFT_NODISCARD weft_status *cpu_dot_parts_make(low_step *step, rt_thunk **out_thunk);

/* A chain of a dot, a kernel and a dot, a fusion of pass strips: cpu/strips.c. */
WEFT_NODISCARD weft_status *cpu_strips_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                            low_plan *plan);
WEFT_NODISCARD weft_status *cpu_strips_make(low_step *step, rt_thunk **out_thunk);
/* Dots and a kernel that share scores, a fusion of pass strip-groups: cpu/strip_groups.c. */
WEFT_NODISCARD weft_status *cpu_strip_group_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                                 low_plan *plan);
WEFT_NODISCARD weft_status *cpu_strip_group_make(low_step *step, rt_thunk **out_thunk);

/* A convolution and a kernel over the pixels of its result, a fusion of pass conv-blocks: cpu/conv_blocks.c. */
WEFT_NODISCARD weft_status *cpu_conv_blocks_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                                 low_plan *plan);
WEFT_NODISCARD weft_status *cpu_conv_blocks_make(low_step *step, rt_thunk **out_thunk);

/* The library kernels, ended by an entry with make NULL. */
extern const cpu_maker cpu_makers[];

#endif
