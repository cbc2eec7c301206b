/* codegen/host/host.h -- kernels of a CPU: the elements of a result in nested loops, the innermost in vectors, the outermost
 * cut into units that threads share. */
#ifndef WEFT_CODEGEN_HOST_HOST_H
#define WEFT_CODEGEN_HOST_HOST_H

#include <llvm-c/TargetMachine.h>

#include "codegen/emit/emit.h"

/* ---- the machine (target.c) ---------------------------------------------------------------------------------------- */

/* The machine that this process runs on, as LLVM knows it. */
typedef struct gen_machine {
  gen_target target;
  char *triple, *cpu, *features;
  LLVMTargetRef llvm;
} gen_machine;

/* Initialises LLVM once and describes the machine.  Errors: FAILED_PRECONDITION. */
WEFT_NODISCARD weft_status *gen_host_machine(const gen_machine **out_machine);
enum { GEN_OPT_FAST, GEN_OPT_FULL };
WEFT_NODISCARD weft_status *gen_target_machine(const gen_machine *machine, int level, LLVMTargetMachineRef *out_machine);

/* ---- memory (memory.c) --------------------------------------------------------------------------------------------- */

extern const gen_walker gen_host_walker;
/* Stores values[i * apart] at linear + i for i < count: `linear` steps by `count` from lane to lane. */
void gen_store_joined(gen_emit *e, const gen_buffer *buf, gen_affine linear, const gen_value *values, int apart, int count);

/* ---- loops (nest.c) -------------------------------------------------------------------------------------------------- */

/* How the elements of an array are walked: their row-major order cut into nested loops, outermost first, so that what
 * every access of a computation needs apart is apart, and no more. */
typedef struct gen_nest {
  int count;
  int64_t extent[HLO_MAX_RANK], stride[HLO_MAX_RANK];
  int cut_count[HLO_MAX_RANK];         /* places where a loop is best split: concatenate, pad */
  const int64_t *cuts[HLO_MAX_RANK];   /* ascending, within (0, extent) */
  int period;                          /* elements that one step of the innermost loop makes, side by side; 0 is 1 */
} gen_nest;
WEFT_NODISCARD weft_status *gen_nest_of(gen_emit *e, const hlo_computation *comp, const hlo_instr *const *roots,
                                        int root_count, const hlo_shape *shape, gen_nest *out);
/* Makes short rows, and neighbours that interior padding treats differently, one step of the innermost loop. */
WEFT_NODISCARD weft_status *gen_nest_join(gen_emit *e, const hlo_computation *comp, const hlo_instr *const *roots, int root_count,
                                          gen_nest *nest);
int gen_choose_lanes(int widest_bytes, int64_t extent);

/* Emits body(linear) for all elements of `nest` in loops; the innermost in vectors where that pays. */
typedef weft_status *gen_body_fn(void *ctx, gen_emit *e, gen_affine linear);
WEFT_NODISCARD weft_status *gen_emit_nest(gen_emit *e, const gen_nest *nest, int widest_bytes, gen_ssa begin, gen_ssa end,
                                          int64_t *out_units, gen_body_fn *body, void *ctx);
/* One loop over [lo, hi) of a variable of which `least` and `most` are static bounds: vectors, then single elements. */
WEFT_NODISCARD weft_status *gen_emit_lanes(gen_emit *e, gen_ssa lo, gen_ssa hi, int64_t least, int64_t most, int lanes,
                                           int64_t align, gen_body_fn *body, void *ctx);

/* ---- kernels (kernel.c and one file per strategy) ------------------------------------------------------------------------------ */

/* Same computation, kind, strategy and aliases. */
bool gen_fusion_equal(const hlo_instr *a, const hlo_instr *b);
WEFT_NODISCARD weft_status *gen_emit_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_small_loop_kernel(gen_part *part, gen_kernel_spec *spec, bool *out_done);
WEFT_NODISCARD weft_status *gen_emit_loop_kernel(gen_part *part, gen_kernel_spec *spec);
/* Kernels of reductions; *done is false when the fusion does not have the form they take. */
WEFT_NODISCARD weft_status *gen_emit_row_kernel(gen_part *part, gen_kernel_spec *spec, bool *done);
WEFT_NODISCARD weft_status *gen_emit_column_kernel(gen_part *part, gen_kernel_spec *spec, bool *done);
/* A loop kernel in tiles, where operands are transposed. */
WEFT_NODISCARD weft_status *gen_emit_transpose_kernel(gen_part *part, gen_kernel_spec *spec, bool *done);
WEFT_NODISCARD weft_status *gen_emit_region_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_dus_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_scatter_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_select_and_scatter_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_compare(gen_part *part, const hlo_computation *comp, const char *symbol);
WEFT_NODISCARD weft_status *gen_emit_apply_fn(gen_part *part, const hlo_computation *comp, const char *symbol);

#endif
