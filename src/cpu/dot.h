/* cpu/dot.h -- HLO dot on the worker pool: any batch, free and contracting dimensions, as products of matrices. */
#ifndef WEFT_CPU_DOT_H
#define WEFT_CPU_DOT_H

#include "base/status.h"
#include "codegen/model/view.h"
#include "cpu/gemm.h"
#include "cpu/transpose.h"
#include "hlo/hlo.h"
#include "runtime/packed.h"
#include "runtime/thunk.h"

/* How the right operand of a product or a convolution is packed for all runs. */
enum { CPU_PACKING_KEY = 7 + 2 * HLO_MAX_RANK };
typedef struct cpu_packing {
  rt_packing base;             /* base.bytes 0: it is not packed */
  int64_t key[CPU_PACKING_KEY];
  const void *plan;            /* the cpu_dot or the cpu_conv that the packing is in */
} cpu_packing;
/* Describes a packed form of `bytes` bytes that `pack` makes, and begins its key with the description of b and of the
 * form.  Returns the number of entries of the key. */
int cpu_packing_begin(cpu_packing *packing, const void *plan, const cpu_gemm *gemm, int64_t bytes,
                      bool (*pack)(const rt_packing *packing, rt_pool *pool, const void *from, void *to));
/* to = the packed forms of `count` matrices b, which are `step` bytes apart. */
void cpu_pack_matrices(const cpu_gemm *gemm, rt_pool *pool, int64_t count, int64_t step, const void *b, void *to);

/* Lets the thunk read the form of its operand `use`, from byte `offset` on, unless packing that in each run is
 * cheap. */
void cpu_packing_offer(const cpu_packing *packing, rt_thunk *thunk, int use, int64_t offset);

typedef struct cpu_dot {
  cpu_packing packing;           /* of rhs */
  cpu_gemm gemm;                 /* of one batch */
  int batch_rank;
  int64_t batch_size[GEN_VIEW_PARTS], lhs_step[GEN_VIEW_PARTS], rhs_step[GEN_VIEW_PARTS];
  cpu_affine affine;             /* affine.group 0: the product multiplies by rhs itself */
  int64_t batches, per_task;     /* per_task: tiles that one task computes */
  bool pack_lhs, pack_rhs;       /* the operand's dimensions do not form a matrix without a copy */
  cpu_transpose lhs_order, rhs_order;
  int64_t lhs_pack_bytes, scratch_bytes;
} cpu_dot;

/* Plans a product.  Errors: UNIMPLEMENTED for element types without a kernel. */
WEFT_NODISCARD weft_status *cpu_dot_init(cpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs,
                                         const hlo_shape *rhs, const hlo_shape *out);

/* The same where the operands, of the shapes `lhs` and `rhs`, lie in other arrays; cpu_dot_run gets the addresses of
 * their first elements. Errors: also UNIMPLEMENTED for views that cannot be multiplied. */
WEFT_NODISCARD weft_status *cpu_dot_init_views(cpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs,
                                               const gen_view *lhs_view, const hlo_shape *rhs, const gen_view *rhs_view,
                                               const hlo_shape *out);
/* The same for a dot of matrices by what `affine` makes of rhs, whose view is a matrix of dense rows or columns. */
WEFT_NODISCARD weft_status *cpu_dot_init_affine(cpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs,
                                                const gen_view *lhs_view, const hlo_shape *rhs,
                                                const gen_view *rhs_view, const hlo_shape *out,
                                                const cpu_affine *affine);

/* Where the operands of product `batch` begin: elements after the first element of each operand. */
static inline void cpu_dot_batch(const cpu_dot *dot, int64_t batch, int64_t *out_lhs, int64_t *out_rhs)
{
  *out_lhs = *out_rhs = 0;
  for (int d = dot->batch_rank - 1; d >= 0; d--) {
    *out_lhs += batch % dot->batch_size[d] * dot->lhs_step[d];
    *out_rhs += batch % dot->batch_size[d] * dot->rhs_step[d];
    batch /= dot->batch_size[d];
  }
}

/* True if tiles read parts of the operands that hardly overlap: those of many
 * products, or strips of a large operand. */
bool cpu_dot_is_cut(const cpu_dot *dot);

/* `packed`: the packed form of rhs, or NULL.  `scratch` has dot->scratch_bytes bytes.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_dot_run(const cpu_dot *dot, rt_pool *pool, const void *lhs, const void *rhs,
                                        const rt_form *packed, void *out, void *scratch);
/* The same for a dot of cpu_dot_init_affine. `operands`: the first elements of the operands of its steps. */
WEFT_NODISCARD weft_status *cpu_dot_run_affine(const cpu_dot *dot, rt_pool *pool, const void *lhs, const void *rhs,
                                               const void *const *operands, void *out, void *scratch);

#endif
