/* cpu/lapack.h -- the LAPACK routines we call, as OpenBLAS has them: Fortran's calling convention, with the hidden lengths
 * of character arguments at the end.  (LAPACK Users' Guide, 3rd ed.; there is no standard C header for these.) */
#ifndef WEFT_CPU_LAPACK_H
#define WEFT_CPU_LAPACK_H

#include <stddef.h>

typedef int lapack_int;

/* X(letter, element type, real type) for the four kinds of number; complex arrays are passed as their parts. */
#define LAPACK_KINDS(X) X(s, float, float) X(d, double, double) X(c, float, float) X(z, double, double)

#define LAPACK_DECLARE(p, T, R)                                                                                      \
  void p##potrf_(const char *uplo, const lapack_int *n, T *a, const lapack_int *lda, lapack_int *info, size_t);      \
  void p##getrf_(const lapack_int *m, const lapack_int *n, T *a, const lapack_int *lda, lapack_int *ipiv,            \
                 lapack_int *info);                                                                                  \
  void p##geqrf_(const lapack_int *m, const lapack_int *n, T *a, const lapack_int *lda, T *tau, T *work,             \
                 const lapack_int *lwork, lapack_int *info);                                                         \
  void p##gehrd_(const lapack_int *n, const lapack_int *ilo, const lapack_int *ihi, T *a, const lapack_int *lda,     \
                 T *tau, T *work, const lapack_int *lwork, lapack_int *info);                                        \
  void p##gtsv_(const lapack_int *n, const lapack_int *nrhs, T *dl, T *d, T *du, T *b, const lapack_int *ldb,        \
                lapack_int *info);
LAPACK_KINDS(LAPACK_DECLARE)
#undef LAPACK_DECLARE

#endif
