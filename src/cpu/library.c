/* cpu/library.c -- the table of library kernels by opcode, and the thunks around the kernels: a kernel is planned when
 * the program is compiled and runs over the thunk's arguments. */
#include <config.h>

#include <string.h>

#include "codegen/model/library.h"
#include "cpu/conv.h"
#include "cpu/dot.h"
#include "cpu/fft.h"
#include "cpu/lapack.h"
#include "cpu/linalg.h"
#include "cpu/makers.h"
#include "cpu/scan.h"
#include "cpu/sort.h"
#include "lower/host_steps.h"

/* Defines a planner, which fills `plan` by INIT, a maker, which makes a thunk of the plan, and a runner, which calls
 * RUN with the arguments. SCRATCH: bytes of scratch that the step needs. */
#define LIBRARY_THUNK(name, plan_type, INIT, SCRATCH, RUN)                                                            \
  typedef struct name##_thunk {                                                                                    \
    rt_thunk base;                                                                                                 \
    const plan_type *plan;                                                                                         \
  } name##_thunk;                                                                                                  \
  static weft_status *name##_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *out)\
  {                                                                                                                \
    plan_type *plan = WEFT_ARENA_NEW(arena, plan_type);                                                            \
    (void)target;                                                                                                  \
    WEFT_TRY_ALLOC(plan);                                                                                          \
    WEFT_TRY(INIT);                                                                                                \
    out->data = plan;                                                                                              \
    out->scratch_bytes = SCRATCH;                                                                                  \
    return NULL;                                                                                                   \
  }                                                                                                                \
  static weft_status *name##_execute(const rt_thunk *thunk, rt_ctx *ctx)                                           \
  {                                                                                                                \
    const plan_type *plan = ((const name##_thunk *)thunk)->plan;                                                   \
    void *const *args = rt_args(thunk, ctx);                                                                       \
    rt_pool *pool = cpu_pool_of(thunk, ctx);                                                                       \
    return RUN;                                                                                                    \
  }                                                                                                                \
  static const rt_thunk_ops name##_ops = {.size = sizeof(rt_thunk_ops), .kind = #name, .run = name##_execute};     \
  static weft_status *name##_make(low_step *step, rt_thunk **out_thunk)                                         \
  {                                                                                                                \
    WEFT_TRY(low_thunk_new(step, &name##_ops, sizeof(name##_thunk), out_thunk));                                    \
    ((name##_thunk *)*out_thunk)->plan = step->plan->data;                                                         \
    (*out_thunk)->splits = cpu_pays_to_share(step, (*out_thunk)->cost_ns, false);                                          \
    return NULL;                                                                                                   \
  }

static const hlo_shape *operand_shape(const hlo_instr *instr, int i) { return instr->operands[i]->shape; }

/* ---- dot and convolution ----------------------------------------------------------------------------------------- */

LIBRARY_THUNK(dot, cpu_dot,
              cpu_dot_init(plan, instr->u.dot, operand_shape(instr, 0), operand_shape(instr, 1), instr->shape),
              plan->scratch_bytes,
              cpu_dot_run(plan, pool, args[0], args[1], rt_packed_form(thunk, ctx), args[2],
                          plan->scratch_bytes ? args[3] : NULL))

static weft_status *cut_dot_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(dot_make(step, out_thunk));
  (*out_thunk)->splits = cpu_pays_to_share(step, (*out_thunk)->cost_ns, cpu_dot_is_cut(step->plan->data));
  cpu_packing_offer(&((const cpu_dot *)step->plan->data)->packing, *out_thunk, 1, 0);
  return NULL;
}

LIBRARY_THUNK(convolution, cpu_conv,
              cpu_conv_init(plan, instr->u.conv, operand_shape(instr, 0), operand_shape(instr, 1), instr->shape),
              plan->scratch_bytes,
              cpu_conv_run(plan, pool, args[0], args[1], rt_packed_form(thunk, ctx), args[2],
                           plan->scratch_bytes ? args[3] : NULL))

static void free_convolution(void *plan) { cpu_conv_fini(plan); }

static weft_status *owned_convolution_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                           low_plan *out)
{
  WEFT_TRY(convolution_plan(target, arena, instr, out));
  out->destroy = free_convolution;
  return NULL;
}

static weft_status *packed_convolution_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(convolution_make(step, out_thunk));
  cpu_packing_offer(&((const cpu_conv *)step->plan->data)->packing, *out_thunk, 1, 0);
  return NULL;
}

/* ---- fusions that are steps of the library ----------------------------------------------------------------------- */

static weft_status *fusion_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *out)
{
  if (gen_is_strip_group(instr)) return cpu_strip_group_plan(target, arena, instr, out);
  if (gen_is_strips_fusion(instr)) return cpu_strips_plan(target, arena, instr, out);
  if (gen_is_conv_blocks_fusion(instr)) return cpu_conv_blocks_plan(target, arena, instr, out);
  return cpu_dot_parts_plan(target, arena, instr, out);
}

static weft_status *fusion_make(low_step *step, rt_thunk **out_thunk)
{
  if (gen_is_strip_group(step->instr)) return cpu_strip_group_make(step, out_thunk);
  if (gen_is_strips_fusion(step->instr)) return cpu_strips_make(step, out_thunk);
  if (gen_is_conv_blocks_fusion(step->instr)) return cpu_conv_blocks_make(step, out_thunk);
  return cpu_dot_parts_make(step, out_thunk);
}

/* ---- sort, top-k, scans ------------------------------------------------------------------------------------------ */

LIBRARY_THUNK(sort, cpu_sort, cpu_sort_init(plan, instr, gen_code_compare(target->code, instr->called[0])),
              plan->scratch_bytes,
              cpu_sort_run(plan, pool, args, args + plan->operand_count,
                           plan->scratch_bytes ? args[2 * plan->operand_count] : NULL))

LIBRARY_THUNK(topk, cpu_topk, cpu_topk_init(plan, instr), 0, cpu_topk_run(plan, pool, args[0], args[1], args[2]))

LIBRARY_THUNK(scan, cpu_scan, cpu_scan_init(plan, instr), plan->scratch_bytes,
              cpu_scan_run(plan, pool, args[0], args[1], args[2], plan->scratch_bytes ? args[3] : NULL))

/* Each thread reads the rows, or the part of a row, that it scans. */
static weft_status *cut_scan_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(scan_make(step, out_thunk));
  (*out_thunk)->splits = cpu_pays_to_share(step, (*out_thunk)->cost_ns, true);
  return NULL;
}

/* ---- linear algebra and Fourier transforms ----------------------------------------------------------------------- */

LIBRARY_THUNK(cholesky, cpu_cholesky, cpu_cholesky_init(plan, instr), 0, cpu_cholesky_run(plan, pool, args[0], args[1]))
LIBRARY_THUNK(triangular_solve, cpu_triangular_solve, cpu_triangular_solve_init(plan, instr), 0,
              cpu_triangular_solve_run(plan, pool, args[0], args[1], args[2]))
LIBRARY_THUNK(fft, cpu_fft, cpu_fft_init(plan, arena, instr), plan->scratch_bytes,
              cpu_fft_run(plan, pool, args[0], args[1], plan->scratch_bytes ? args[2] : NULL))

/* ---- custom calls ------------------------------------------------------------------------------------------------ */

static weft_status *custom_call_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *out)
{
  (void)target;
  return low_custom_call_plan(arena, instr, cpu_lapack_register, out);
}

static weft_status *custom_call_make(low_step *step, rt_thunk **out_thunk)
{
  weft_status *st = low_custom_call_make(step, out_thunk);

#ifdef HAVE_OPENBLAS
  /* the matrices of a batch, by several threads (lapack.c) */
  if (!st && strncmp(step->instr->u.custom->target, "lapack_", 7) == 0) (*out_thunk)->splits = true;
#else
  if (strncmp(step->instr->u.custom->target, "lapack_", 7) == 0)
    st = weft_status_note(st, __FILE__, __LINE__,
                          "this build has no OpenBLAS, and no LAPACK (configure --without-openblas)");
#endif
  return st;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

const cpu_maker cpu_makers[] = {
  {HLO_CUSTOM_CALL, custom_call_make, custom_call_plan},
  {HLO_CHOLESKY, cholesky_make, cholesky_plan},
  {HLO_CONCATENATE, cpu_concatenate_make, NULL},
  {HLO_CONVOLUTION, packed_convolution_make, owned_convolution_plan},
  {HLO_DOT, cut_dot_make, dot_plan},
  {HLO_FFT, fft_make, fft_plan},
  {HLO_FUSION, fusion_make, fusion_plan}, /* library fusions only */
  {HLO_RNG_GET_AND_UPDATE_STATE, cpu_rng_state_make, NULL},
  {HLO_REDUCE_WINDOW, cut_scan_make, scan_plan},
  {HLO_SORT, sort_make, sort_plan},
  {HLO_TOPK, topk_make, topk_plan},
  {HLO_TRIANGULAR_SOLVE, triangular_solve_make, triangular_solve_plan},
  {.make = NULL},
};
