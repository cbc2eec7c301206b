/* cpu/without_blas.c -- replaces lapack.c and linalg.c in a build without OpenBLAS: the reference evaluator takes
 * Cholesky factors and triangular systems, and JAX's calls of LAPACK have no handler. */
#include <config.h>

#include "cpu/lapack.h"
#include "cpu/linalg.h"

weft_status *cpu_lapack_register(void) { return NULL; }

weft_status *cpu_cholesky_init(cpu_cholesky *c, const hlo_instr *instr)
{
  *c = (cpu_cholesky){.type = instr->shape->type};
  return WEFT_ERR(UNIMPLEMENTED, "cholesky: this build has no OpenBLAS (configure --without-openblas)");
}

weft_status *cpu_cholesky_run(const cpu_cholesky *c, rt_pool *pool, const void *in, void *out)
{
  (void)c, (void)pool, (void)in, (void)out;
  return WEFT_ERR(INTERNAL, "cholesky without OpenBLAS");
}

weft_status *cpu_triangular_solve_init(cpu_triangular_solve *t, const hlo_instr *instr)
{
  *t = (cpu_triangular_solve){.type = instr->shape->type};
  return WEFT_ERR(UNIMPLEMENTED, "triangular-solve: this build has no OpenBLAS (configure --without-openblas)");
}

weft_status *cpu_triangular_solve_run(const cpu_triangular_solve *t, rt_pool *pool, const void *a, const void *b,
                                      void *x)
{
  (void)t, (void)pool, (void)a, (void)b, (void)x;
  return WEFT_ERR(INTERNAL, "triangular-solve without OpenBLAS");
}
