/* cpu/lapack.h -- the LAPACK routines that Weft calls, as OpenBLAS provides them, in Fortran's calling convention.
 * (LAPACK Users' Guide, 3rd ed.; there is no standard C header.) Arrays are void so that one signature serves all
 * element types. */
#ifndef WEFT_CPU_LAPACK_H
#define WEFT_CPU_LAPACK_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/status.h"

typedef int lapack_int;

/* Registers lapack_{s,d,c,z}NAME_ffi, the custom calls that JAX emits for the CPU (idempotent). */
WEFT_NODISCARD weft_status *cpu_lapack_register(void);

/* In all of them: v = any array, i = integers, c = a character. Fortran passes the lengths of characters after the
 * arguments; they are always 1. */
typedef void *lapack_v;
typedef const lapack_int *lapack_n;
typedef const char *lapack_c;

/* X(name, parameters): the routines that are alike for all four types, then those of the two real and of the two
 * complex types. */
#define LAPACK_ALL(X)                                                                                               \
  X(potrf, (lapack_c uplo, lapack_n n, lapack_v a, lapack_n lda, lapack_int *info, size_t))                         \
  X(getrf, (lapack_n m, lapack_n n, lapack_v a, lapack_n lda, lapack_int *ipiv, lapack_int *info))                  \
  X(geqrf, (lapack_n m, lapack_n n, lapack_v a, lapack_n lda, lapack_v tau, lapack_v work, lapack_n lwork,          \
            lapack_int *info))                                                                                      \
  X(gehrd, (lapack_n n, lapack_n ilo, lapack_n ihi, lapack_v a, lapack_n lda, lapack_v tau, lapack_v work,          \
            lapack_n lwork, lapack_int *info))                                                                      \
  X(gtsv, (lapack_n n, lapack_n nrhs, lapack_v dl, lapack_v d, lapack_v du, lapack_v b, lapack_n ldb,               \
           lapack_int *info))                                                                                       \
  X(trsm, (lapack_c side, lapack_c uplo, lapack_c trans, lapack_c diag, lapack_n m, lapack_n n, const void *alpha,  \
           lapack_v a, lapack_n lda, lapack_v b, lapack_n ldb, size_t, size_t, size_t, size_t))

#define LAPACK_REAL(X)                                                                                              \
  X(orgqr, (lapack_n m, lapack_n n, lapack_n k, lapack_v a, lapack_n lda, lapack_v tau, lapack_v work,              \
            lapack_n lwork, lapack_int *info))                                                                      \
  X(ormqr, (lapack_c side, lapack_c trans, lapack_n m, lapack_n n, lapack_n k, lapack_v a, lapack_n lda,            \
            lapack_v tau, lapack_v c, lapack_n ldc, lapack_v work, lapack_n lwork, lapack_int *info, size_t, size_t)) \
  X(geqp3, (lapack_n m, lapack_n n, lapack_v a, lapack_n lda, lapack_int *jpvt, lapack_v tau, lapack_v work,        \
            lapack_n lwork, lapack_int *info))                                                                      \
  X(gesdd, (lapack_c jobz, lapack_n m, lapack_n n, lapack_v a, lapack_n lda, lapack_v s, lapack_v u, lapack_n ldu,  \
            lapack_v vt, lapack_n ldvt, lapack_v work, lapack_n lwork, lapack_int *iwork, lapack_int *info, size_t)) \
  X(gesvd, (lapack_c jobu, lapack_c jobvt, lapack_n m, lapack_n n, lapack_v a, lapack_n lda, lapack_v s,            \
            lapack_v u, lapack_n ldu, lapack_v vt, lapack_n ldvt, lapack_v work, lapack_n lwork, lapack_int *info,  \
            size_t, size_t))                                                                                        \
  X(syevd, (lapack_c jobz, lapack_c uplo, lapack_n n, lapack_v a, lapack_n lda, lapack_v w, lapack_v work,          \
            lapack_n lwork, lapack_int *iwork, lapack_n liwork, lapack_int *info, size_t, size_t))                  \
  X(sytrd, (lapack_c uplo, lapack_n n, lapack_v a, lapack_n lda, lapack_v d, lapack_v e, lapack_v tau,              \
            lapack_v work, lapack_n lwork, lapack_int *info, size_t))                                               \
  X(geev, (lapack_c jobvl, lapack_c jobvr, lapack_n n, lapack_v a, lapack_n lda, lapack_v wr, lapack_v wi,          \
           lapack_v vl, lapack_n ldvl, lapack_v vr, lapack_n ldvr, lapack_v work, lapack_n lwork, lapack_int *info, \
           size_t, size_t))                                                                                         \
  X(gees, (lapack_c jobvs, lapack_c sort, void *select, lapack_n n, lapack_v a, lapack_n lda, lapack_int *sdim,     \
           lapack_v wr, lapack_v wi, lapack_v vs, lapack_n ldvs, lapack_v work, lapack_n lwork, lapack_int *bwork,  \
           lapack_int *info, size_t, size_t))

#define LAPACK_COMPLEX(X)                                                                                           \
  X(ungqr, (lapack_n m, lapack_n n, lapack_n k, lapack_v a, lapack_n lda, lapack_v tau, lapack_v work,              \
            lapack_n lwork, lapack_int *info))                                                                      \
  X(unmqr, (lapack_c side, lapack_c trans, lapack_n m, lapack_n n, lapack_n k, lapack_v a, lapack_n lda,            \
            lapack_v tau, lapack_v c, lapack_n ldc, lapack_v work, lapack_n lwork, lapack_int *info, size_t, size_t)) \
  X(geqp3, (lapack_n m, lapack_n n, lapack_v a, lapack_n lda, lapack_int *jpvt, lapack_v tau, lapack_v work,        \
            lapack_n lwork, lapack_v rwork, lapack_int *info))                                                      \
  X(gesdd, (lapack_c jobz, lapack_n m, lapack_n n, lapack_v a, lapack_n lda, lapack_v s, lapack_v u, lapack_n ldu,  \
            lapack_v vt, lapack_n ldvt, lapack_v work, lapack_n lwork, lapack_v rwork, lapack_int *iwork,           \
            lapack_int *info, size_t))                                                                              \
  X(gesvd, (lapack_c jobu, lapack_c jobvt, lapack_n m, lapack_n n, lapack_v a, lapack_n lda, lapack_v s,            \
            lapack_v u, lapack_n ldu, lapack_v vt, lapack_n ldvt, lapack_v work, lapack_n lwork, lapack_v rwork,    \
            lapack_int *info, size_t, size_t))                                                                      \
  X(heevd, (lapack_c jobz, lapack_c uplo, lapack_n n, lapack_v a, lapack_n lda, lapack_v w, lapack_v work,          \
            lapack_n lwork, lapack_v rwork, lapack_n lrwork, lapack_int *iwork, lapack_n liwork, lapack_int *info,  \
            size_t, size_t))                                                                                        \
  X(hetrd, (lapack_c uplo, lapack_n n, lapack_v a, lapack_n lda, lapack_v d, lapack_v e, lapack_v tau,              \
            lapack_v work, lapack_n lwork, lapack_int *info, size_t))                                               \
  X(geev, (lapack_c jobvl, lapack_c jobvr, lapack_n n, lapack_v a, lapack_n lda, lapack_v w, lapack_v vl,           \
           lapack_n ldvl, lapack_v vr, lapack_n ldvr, lapack_v work, lapack_n lwork, lapack_v rwork,                \
           lapack_int *info, size_t, size_t))                                                                       \
  X(gees, (lapack_c jobvs, lapack_c sort, void *select, lapack_n n, lapack_v a, lapack_n lda, lapack_int *sdim,     \
           lapack_v w, lapack_v vs, lapack_n ldvs, lapack_v work, lapack_n lwork, lapack_v rwork,                   \
           lapack_int *bwork, lapack_int *info, size_t, size_t))

#define LAPACK_DECLARE_REAL(name, parameters) void s##name##_ parameters; void d##name##_ parameters;
#define LAPACK_DECLARE_COMPLEX(name, parameters) void c##name##_ parameters; void z##name##_ parameters;
LAPACK_ALL(LAPACK_DECLARE_REAL)
LAPACK_ALL(LAPACK_DECLARE_COMPLEX)
LAPACK_REAL(LAPACK_DECLARE_REAL)
LAPACK_COMPLEX(LAPACK_DECLARE_COMPLEX)

/* For a Cholesky factor of order n (f32, f64, c64 or c128): the number of the first pivot, counted from 1, that is
 * NaN; 0 if none is. OpenBLAS takes NaN for a positive pivot, reports no error, and gives numbers behind it. */
int64_t cpu_nan_pivot(weft_dtype type, int64_t n, const void *factor);

#endif
