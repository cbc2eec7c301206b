/* cpu/blas.c -- matrix products in the types of BLAS (blas.h). */
#include <config.h>

#include "cpu/blas.h"

#include "base/macros.h"

#ifdef HAVE_OPENBLAS

#include <cblas.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/model/processor.h"

/* ---- its kernels ------------------------------------------------------------------------------------------------- */

/* OpenBLAS chooses its kernels as it is loaded, by the processor's model. For a model that is newer than itself it
 * takes those for SSE3 ("Prescott"), which need two to three times as long; releases from 0.3.26 on go by the
 * features. It can be asked to choose again, by a variable that it reads in the environment. */

extern void gotoblas_dynamic_init(void) __attribute__((weak)); /* there are none if it has one kind of kernels alone */
extern void gotoblas_dynamic_quit(void) __attribute__((weak));

typedef struct loaded {
  uintptr_t weft, blas; /* an address in each */
  int count, weft_at, blas_at; /* places in the order of loading */
} loaded;

static bool holds(const struct dl_phdr_info *object, uintptr_t address)
{
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    if (part->p_type == PT_LOAD && address - (object->dlpi_addr + part->p_vaddr) < part->p_memsz) return true;
  }
  return false;
}

static int note_object(struct dl_phdr_info *object, size_t size, void *ctx)
{
  loaded *l = ctx;

  (void)size;
  if (holds(object, l->weft)) l->weft_at = l->count;
  if (holds(object, l->blas)) l->blas_at = l->count;
  l->count++;
  return 0;
}

/* If Weft brought OpenBLAS into the process, nobody is computing with it yet: it comes behind Weft in the order. */
static bool came_with_weft(void)
{
  loaded l = {.weft = (uintptr_t)&came_with_weft, .blas = (uintptr_t)&openblas_get_corename};
  dl_iterate_phdr(note_object, &l);
  return l.blas_at >= l.weft_at;
}

/* True if OpenBLAS took kernels for SSE3, or may have taken such that need more than this process may use. */
static bool chose_badly(void)
{
  char missing[64];

  return strcmp(openblas_get_corename(), "Prescott") == 0 ||
         (gen_isa_limit() && !gen_processor_has(gen_level_features("x86-64-v4"), missing));
}

/* Runs before main, or as the plugin is loaded. */
static __attribute__((constructor)) void choose_kernels(void)
{
  static char wide[] = "OPENBLAS_CORETYPE=SkylakeX", narrow[] = "OPENBLAS_CORETYPE=Haswell",
              least[] = "OPENBLAS_CORETYPE=Nehalem";
  static char **with; /* never freed: a thread may still be reading it */
  char missing[64], **before = environ;
  size_t count = 0;

  if (!gotoblas_dynamic_init || !gotoblas_dynamic_quit || !chose_badly() || getenv("OPENBLAS_CORETYPE") ||
      !gen_processor_has(gen_level_features("x86-64-v2"), missing) || !came_with_weft())
    return;
  while (before && before[count]) count++;
  /* an environment of its own, and not setenv, which would free the one that another thread may be reading */
  with = malloc((count + 2) * sizeof *with);
  if (!with) return;
  if (count > 0) memcpy(with, before, count * sizeof *with);
  with[count] = gen_processor_has(gen_level_features("x86-64-v4"), missing)   ? wide
                : gen_processor_has(gen_level_features("x86-64-v3"), missing) ? narrow
                                                                              : least;
  with[count + 1] = NULL;
  environ = with;
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
  environ = before;
}

/* ---- its threads ------------------------------------------------------------------------------------------------- */

/* OpenBLAS starts one thread for each core when it is loaded, and each of them spins for some 60 ms before it
 * sleeps, on cores that Weft's workers need. OpenBLAS built without threads lacks the function that ends them. */
extern int blas_thread_shutdown_(void) __attribute__((weak));

static void one_thread(void)
{
  openblas_set_num_threads(1);
  if (blas_thread_shutdown_) blas_thread_shutdown_();
}

void cpu_blas_init(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, one_thread);
}

void cpu_blas_gemm(weft_dtype type, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, int64_t a_col,
                   const void *b, int64_t b_row, int64_t b_col, bool add, void *c, int64_t c_row)
{
  CBLAS_TRANSPOSE ta = a_col == 1 ? CblasNoTrans : CblasTrans, tb = b_col == 1 ? CblasNoTrans : CblasTrans;
  /* the step along a dimension of one element is never used, but BLAS requires at least the width of the matrix */
  blasint lda = (blasint)WEFT_MAX(ta == CblasNoTrans ? a_row : a_col, ta == CblasNoTrans ? k : m);
  blasint ldb = (blasint)WEFT_MAX(tb == CblasNoTrans ? b_row : b_col, tb == CblasNoTrans ? n : k);
  blasint ldc = (blasint)c_row;
  static const float one_c[2] = {1, 0}, zero_c[2] = {0, 0};
  static const double one_z[2] = {1, 0}, zero_z[2] = {0, 0};

  switch (type) {
  case WEFT_F32:
    if (n == 1) /* c = a . b as a matrix times a vector; b_row is the step of b */
      cblas_sgemv(CblasRowMajor, ta, (blasint)(a_col == 1 ? m : k), (blasint)(a_col == 1 ? k : m), 1, a, lda, b,
                  (blasint)(k > 1 ? b_row : 1), add, c, ldc);
    else if (m == 1)
      cblas_sgemv(CblasRowMajor, tb == CblasNoTrans ? CblasTrans : CblasNoTrans, (blasint)(b_col == 1 ? k : n),
                  (blasint)(b_col == 1 ? n : k), 1, b, ldb, a, (blasint)(k > 1 ? a_col : 1), add, c, 1);
    else cblas_sgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, 1, a, lda, b, ldb, add, c, ldc);
    break;
  case WEFT_F64:
    if (n == 1)
      cblas_dgemv(CblasRowMajor, ta, (blasint)(a_col == 1 ? m : k), (blasint)(a_col == 1 ? k : m), 1, a, lda, b,
                  (blasint)(k > 1 ? b_row : 1), add, c, ldc);
    else if (m == 1)
      cblas_dgemv(CblasRowMajor, tb == CblasNoTrans ? CblasTrans : CblasNoTrans, (blasint)(b_col == 1 ? k : n),
                  (blasint)(b_col == 1 ? n : k), 1, b, ldb, a, (blasint)(k > 1 ? a_col : 1), add, c, 1);
    else cblas_dgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, 1, a, lda, b, ldb, add, c, ldc);
    break;
  case WEFT_C64:
    cblas_cgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, one_c, a, lda, b, ldb, add ? one_c : zero_c,
                c, ldc);
    break;
  case WEFT_C128:
    cblas_zgemm(CblasRowMajor, ta, tb, (blasint)m, (blasint)n, (blasint)k, one_z, a, lda, b, ldb, add ? one_z : zero_z,
                c, ldc);
    break;
  default: break;
  }
}

#else

#include "cpu/hot.h"

void cpu_blas_init(void) {}

/* Sums are in registers for LANES columns at a time where neighbours in a row of b lie side by side,
 * and otherwise LANES products are added up side by side: both are vectors. The sums of an element are
 * added in the same order for all sizes. */
enum { LANES = 16 };

#define PLAIN(name, type)                                                                                             \
  static CPU_INLINE void name##_row(int64_t n, int64_t k, const type *a, int64_t a_col, const type *b, int64_t b_row, \
                                    type *c, bool add)                                                                \
  {                                                                                                                   \
    int64_t j = 0;                                                                                                    \
    for (; j + LANES <= n; j += LANES) {                                                                              \
      type sum[LANES] = {0};                                                                                          \
      for (int64_t l = 0; l < k; l++)                                                                                 \
        for (int x = 0; x < LANES; x++) sum[x] += a[l * a_col] * b[l * b_row + j + x];                                \
      for (int x = 0; x < LANES; x++) c[j + x] = add ? c[j + x] + sum[x] : sum[x];                                    \
    }                                                                                                                 \
    for (; j < n; j++) {                                                                                              \
      type sum = 0;                                                                                                   \
      for (int64_t l = 0; l < k; l++) sum += a[l * a_col] * b[l * b_row + j];                                         \
      c[j] = add ? c[j] + sum : sum;                                                                                  \
    }                                                                                                                 \
  }                                                                                                                   \
  static CPU_INLINE type name##_dot(int64_t k, const type *a, int64_t a_col, const type *b)                           \
  {                                                                                                                   \
    type sums[LANES] = {0}, sum = 0;                                                                                  \
    int64_t l = 0;                                                                                                    \
    for (; l + LANES <= k; l += LANES)                                                                                \
      for (int x = 0; x < LANES; x++) sums[x] += a[(l + x) * a_col] * b[l + x];                                       \
    for (; l < k; l++) sum += a[l * a_col] * b[l];                                                                    \
    for (int x = 0; x < LANES; x++) sum += sums[x];                                                                   \
    return sum;                                                                                                       \
  }                                                                                                                   \
  static CPU_HOT void name(int64_t m, int64_t n, int64_t k, const type *a, int64_t a_row, int64_t a_col,              \
                           const type *b, int64_t b_row, int64_t b_col, bool add, type *c, int64_t c_row)             \
  {                                                                                                                   \
    for (int64_t i = 0; i < m; i++) {                                                                                 \
      if (b_col == 1) {                                                                                               \
        name##_row(n, k, a + i * a_row, a_col, b, b_row, c + i * c_row, add);                                         \
        continue;                                                                                                     \
      }                                                                                                               \
      for (int64_t j = 0; j < n; j++) {                                                                               \
        type sum = name##_dot(k, a + i * a_row, a_col, b + j * b_col);                                                \
        c[i * c_row + j] = add ? c[i * c_row + j] + sum : sum;                                                        \
      }                                                                                                               \
    }                                                                                                                 \
  }
PLAIN(plain_f32, float)
PLAIN(plain_f64, double)

/* (re, im) pairs; as OpenBLAS does, without C's rules for infinite complex numbers. */
#define PLAIN_COMPLEX(name, type)                                                                                     \
  static CPU_HOT void name(int64_t m, int64_t n, int64_t k, const type (*a)[2], int64_t a_row, int64_t a_col,         \
                           const type (*b)[2], int64_t b_row, int64_t b_col, bool add, type (*c)[2], int64_t c_row)   \
  {                                                                                                                   \
    for (int64_t i = 0; i < m; i++)                                                                                   \
      for (int64_t j = 0; j < n; j++) {                                                                               \
        type re = 0, im = 0, *to = c[i * c_row + j];                                                                  \
        for (int64_t l = 0; l < k; l++) {                                                                             \
          const type *x = a[i * a_row + l * a_col], *y = b[l * b_row + j * b_col];                                    \
          re += x[0] * y[0] - x[1] * y[1];                                                                            \
          im += x[0] * y[1] + x[1] * y[0];                                                                            \
        }                                                                                                             \
        to[0] = add ? to[0] + re : re;                                                                                \
        to[1] = add ? to[1] + im : im;                                                                                \
      }                                                                                                               \
  }
PLAIN_COMPLEX(plain_c64, float)
PLAIN_COMPLEX(plain_c128, double)

void cpu_blas_gemm(weft_dtype type, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, int64_t a_col,
                   const void *b, int64_t b_row, int64_t b_col, bool add, void *c, int64_t c_row)
{
  switch (type) {
  case WEFT_F32: plain_f32(m, n, k, a, a_row, a_col, b, b_row, b_col, add, c, c_row); break;
  case WEFT_F64: plain_f64(m, n, k, a, a_row, a_col, b, b_row, b_col, add, c, c_row); break;
  case WEFT_C64: plain_c64(m, n, k, a, a_row, a_col, b, b_row, b_col, add, c, c_row); break;
  case WEFT_C128: plain_c128(m, n, k, a, a_row, a_col, b, b_row, b_col, add, c, c_row); break;
  default: break;
  }
}

#endif
