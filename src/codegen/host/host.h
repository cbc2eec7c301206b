/* codegen/host/host.h -- kernels of a CPU: the elements of a result in nested loops, the innermost in vectors, the
 * outermost cut into units that threads share. */
#ifndef WEFT_CODEGEN_HOST_HOST_H
#define WEFT_CODEGEN_HOST_HOST_H

#include <llvm-c/TargetMachine.h>

#include "codegen/emit/emit.h"
#include "codegen/model/nest.h"
#include "codegen/model/strategy.h"

/* ---- the machine (target.c) ------------------------------------------------------------------------------------ */

/* The machine that this process runs on, as LLVM knows it. */
typedef struct gen_machine {
  gen_target target;
  char *triple, *cpu, *features;
  char *layout; /* LLVM's data layout, which the triple determines */
  LLVMTargetRef llvm;
} gen_machine;

/* Initialises LLVM once and describes the machine.  Errors: FAILED_PRECONDITION. */
WEFT_NODISCARD weft_status *gen_host_machine(const gen_machine **out_machine);
/* The machine of a level, "x86-64" to "x86-64-v4", in `arena`. Errors: INVALID_ARGUMENT for another name, listing the
 * levels; those of gen_host_machine. */
WEFT_NODISCARD weft_status *gen_machine_of(const char *level, weft_arena *arena, const gen_machine **out_machine);
/* How much LLVM optimises a part; GEN_OPT_FULL_SCALARS is for parts with kernels of unrolled scalars. */
enum { GEN_OPT_FAST, GEN_OPT_FULL, GEN_OPT_FULL_SCALARS };
WEFT_NODISCARD weft_status *gen_target_machine(const gen_machine *machine, int level,
                                               LLVMTargetMachineRef *out_machine);

/* ---- memory (memory.c) ----------------------------------------------------------------------------------------- */

extern const gen_walker gen_host_walker;
/* Entries of its table (kernel.c, row.c, dot.c). */
weft_status *gen_host_walk(gen_walk *w, bool split, int64_t *units);
weft_status *gen_host_accumulate(gen_row *row, gen_emit *e, int stage, gen_acc *accs, int count, gen_value *out);
weft_status *gen_host_columns(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx);
weft_status *gen_host_once(gen_row *row, gen_emit *e, gen_body_fn *body, void *ctx);
weft_status *gen_host_dot(gen_emit *e, const gen_small_dot *d, const gen_index *idx, gen_value *out);

/* ---- lanes (lanes.c) ------------------------------------------------------------------------------------------- */

/* The halves of a vector. */
void gen_split_lanes(gen_emit *e, gen_value v, gen_value *low, gen_value *high);
/* Combines all lanes of a vector into one value, by halves. */
gen_value gen_combine_lanes(gen_emit *e, hlo_opcode op, weft_dtype type, gen_value v);

/* ---- loops (nest.c) -------------------------------------------------------------------------------------------- */

/* The elements of a dimension that do not fill a vector are computed in narrower vectors of at least so many lanes, and
 * the last ones one by one. */
enum { GEN_LEAST_TAIL = 4 };

/* The lanes for a loop of `extent` elements whose widest values have so many bytes. */
int gen_choose_lanes(const gen_target *target, int widest_bytes, int64_t extent);

/* Emits loops that call body(linear) for all elements of `nest`; the innermost loop uses vectors where that pays.
 * With `begin`, the loops cover units [begin, end) of *out_units; begin NULL: they cover all elements, as one unit. */
WEFT_NODISCARD weft_status *gen_emit_nest(gen_emit *e, const gen_nest *nest, int widest_bytes, gen_ssa begin,
                                          gen_ssa end, int64_t *out_units, gen_body_fn *body, void *ctx);
/* Loops over [lo, hi): vectors, narrower vectors where the bounds are constant, then single elements. `least` and
 * `most` are static bounds of their variables; `lo` is a multiple of `align`. */
WEFT_NODISCARD weft_status *gen_emit_lanes(gen_emit *e, gen_ssa lo, gen_ssa hi, int64_t least, int64_t most, int lanes,
                                           int64_t align, gen_body_fn *body, void *ctx);

/* ---- kernels (kernel.c and one file per strategy) -------------------------------------------------------------- */

/* Decides the fusion's strategy and emits the kernel that way. */
WEFT_NODISCARD weft_status *gen_emit_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_row_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_column_kernel(gen_part *part, gen_kernel_spec *spec);
/* A loop kernel in tiles, where operands are transposed. */
WEFT_NODISCARD weft_status *gen_emit_transpose_kernel(gen_part *part, gen_kernel_spec *spec);
/* Entries of the walker's table for regions (region.c). */
WEFT_NODISCARD weft_status *gen_host_start(gen_part *part, gen_kernel_spec *spec, gen_frame *f);
void gen_host_copy(gen_emit *e, gen_ssa to, gen_ssa from, int64_t bytes);
void gen_host_sync(gen_emit *e);
WEFT_NODISCARD weft_status *gen_emit_dus_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_scatter_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_select_and_scatter_kernel(gen_part *part, gen_kernel_spec *spec);
WEFT_NODISCARD weft_status *gen_emit_compare(gen_part *part, const hlo_computation *comp, const char *symbol);
WEFT_NODISCARD weft_status *gen_emit_apply_fn(gen_part *part, const hlo_computation *comp, const char *symbol);

#endif
