/* cpu/gemm_dense.c -- Products of f32 and of f64 after the scheme of Goto and van de Geijn, "Anatomy of
 * high-performance matrix multiplication" (2008), and BLIS: a block of C of 14 rows by two vectors (6 rows with AVX2)
 * stays in registers while k runs,
 *
 *   for each block of k, for each panel of B, two vectors wide (stays in L1):
 *     for each panel of A, of a block's rows (from L2):  C block += panel of A . panel of B
 *
 * A panel of B is packed unless it lies close together.  A is read in place: its numbers are broadcast to a vector one
 * by one, which works with any steps.  In all measurements packing A cost more than it saved, except for some rows that
 * would push each other out of the L1 cache: these are copied.  The blocks of k depend only on k, and within a block
 * each element of C is summed up in order, so the way in which C is cut into tiles and blocks changes no bit. */
#include <config.h>

#include "cpu/gemm_dense.h"

#if defined __x86_64__

#include <immintrin.h>
#include <string.h>

#include "base/macros.h"
#include "codegen/model/processor.h"
#include "cpu/gemm_micro.h"
#include "cpu/gemm_turn.h"

enum {
  MAX_ROWS = CPU_MICRO_ROWS, VECTORS = CPU_MICRO_VECTORS,
  LEAST_PACKED = 17,                       /* for fewer rows gemm_block.c swaps the operands instead */
  LEAST_TURNED = 2,                        /* the same where vectors of 16 turn dense columns as they are read */
  LEAST_FAR = 9,                           /* for fewer rows others read a large B in longer runs */
  CLOSE_BYTES = 1 << 18,                   /* a panel of B spread over at most this many bytes is not packed */
  NEAR_BYTES = 1 << 19,
  MOST_ROWS = 392,                         /* rows of A in a tile: a block of k of them stays in L2 */
  KEPT_BYTES = 1 << 20,                    /* of A in a tile, with vectors of 512 bits: they stay in L2 */
  LEAST_KEPT = 4 * MAX_ROWS,
  LEAST_ROWS = 2 * MAX_ROWS, LEAST_ROWS_PACKED = 8 * MAX_ROWS,
  TILES = 32,                              /* tiles wanted, for many threads or threads of uneven speed */
  FETCH_AHEAD = 256,                       /* bytes from what is packed of a dense column to what is asked for */
  PAGE = 4096,                             /* rows that are a multiple of this apart share a set of the L1 cache, */
  LEAST_COPIED = 9, MOST_COPIED = 48,      /* and so many of them are copied (more do not stay in L1 in any case) */
};
#define LEAST_TILE_FLOPS 1e6 /* some 8 us */
#define MOST_TILE_FLOPS 16e6

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Packed panels of other kernels are written as integers. */
typedef float f32 __attribute__((may_alias));

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define EACH_VARIANT UP_TO_14
#define TABLE cpu_micro_table cpu_micro_f32
#define NAME(x) f32_512_##x
#define PREFETCH(p, step) __builtin_prefetch(p, 0, 2), p += step; /* into L2: a panel fills most of L1 */
#define ELEM f32
#define VEC __m512
#define LANES 16
#define MASK __mmask16
#define MASK_OF(count) ((MASK)((1u << (count)) - 1))
#define LOAD _mm512_loadu_ps
#define LOAD_MASKED _mm512_maskz_loadu_ps
#define STORE _mm512_storeu_ps
#define STORE_MASKED _mm512_mask_storeu_ps
#define SPLAT _mm512_set1_ps
#define ZERO _mm512_setzero_ps()
#define FMA _mm512_fmadd_ps
#include "cpu/gemm_micro_loop.h"

#define TABLE static cpu_micro_table micro_f64_512
#define NAME(x) f64_512_##x
#define PREFETCH(p, step) __builtin_prefetch(p, 0, 2), p += step;
#define ELEM double
#define VEC __m512d
#define LANES 8
#define MASK __mmask8
#define MASK_OF(count) ((MASK)((1u << (count)) - 1))
#define LOAD _mm512_loadu_pd
#define LOAD_MASKED _mm512_maskz_loadu_pd
#define STORE _mm512_storeu_pd
#define STORE_MASKED _mm512_mask_storeu_pd
#define SPLAT _mm512_set1_pd
#define ZERO _mm512_setzero_pd()
#define FMA _mm512_fmadd_pd
#include "cpu/gemm_micro_loop.h"

#undef TARGET
#undef EACH_VARIANT
#define TARGET __attribute__((target("avx2,fma")))
#define EACH_VARIANT UP_TO_6

/* The LANES entries from place LANES - n on select n lanes. */
static const int32_t choose_32[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
static const int64_t choose_64[8] = {-1, -1, -1, -1};

#define TABLE static cpu_micro_table micro_f32_256
#define NAME(x) f32_256_##x
#define PREFETCH(p, step) __builtin_prefetch(p), p += step;
#define ELEM float
#define VEC __m256
#define MASK __m256i
#define LANES 8
#define MASK_OF(count) _mm256_loadu_si256((const __m256i *)(choose_32 + 8 - (count)))
#define LOAD _mm256_loadu_ps
#define LOAD_MASKED(m, p) _mm256_maskload_ps(p, m)
#define STORE _mm256_storeu_ps
#define STORE_MASKED _mm256_maskstore_ps
#define SPLAT _mm256_set1_ps
#define ZERO _mm256_setzero_ps()
#define FMA _mm256_fmadd_ps
#include "cpu/gemm_micro_loop.h"

#define TABLE static cpu_micro_table micro_f64_256
#define NAME(x) f64_256_##x
#define PREFETCH(p, step) __builtin_prefetch(p), p += step;
#define ELEM double
#define VEC __m256d
#define MASK __m256i
#define LANES 4
#define MASK_OF(count) _mm256_loadu_si256((const __m256i *)(choose_64 + 4 - (count)))
#define LOAD _mm256_loadu_pd
#define LOAD_MASKED(m, p) _mm256_maskload_pd(p, m)
#define STORE _mm256_storeu_pd
#define STORE_MASKED _mm256_maskstore_pd
#define SPLAT _mm256_set1_pd
#define ZERO _mm256_setzero_pd()
#define FMA _mm256_fmadd_pd
#include "cpu/gemm_micro_loop.h"

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* to[k][width] = a panel of B of `cols` columns `across` apart, whose rows are `along` apart. */
#define PACK(name, features, type, VEC, LANES, MASK, MASK_OF, LOAD, LOAD_MASKED, STORE, TURN, FETCH_LINE)             \
  static __attribute__((target(features))) void name(int64_t cols, int64_t k, const void *panel, int64_t across,      \
                                                     int64_t along, void *target, int64_t width)                      \
  {                                                                                                                   \
    const type *from = panel;                                                                                         \
    type *to = target;                                                                                                \
    int64_t last = (cols - 1) / LANES * LANES;                                                                        \
    MASK mask = MASK_OF(cols - last);                                                                                 \
    if (across == 1)                                                                                                  \
      for (int64_t l = 0; l < k; l++, from += along, to += width) {                                                   \
        for (int64_t j = 0; j < last; j += LANES) STORE(to + j, LOAD(from + j));                                      \
        STORE(to + last, LOAD_MASKED(mask, from + last));                                                             \
      }                                                                                                               \
    else if (along == 1 && k >= LANES)                                                                                \
      for (int64_t l = 0; l < k; l = l + LANES < k ? WEFT_MIN(l + LANES, k - LANES) : k) /* the last ones overlap */  \
        for (int64_t j = 0; j < cols; j += LANES) {                                                                   \
          VEC v[LANES];                                                                                               \
          CPU_UNROLL                                                                                                  \
          for (int64_t q = 0; q < LANES; q++) {                                                                       \
            const type *line = from + WEFT_MIN(j + q, cols - 1) * across + l;                                         \
            FETCH_LINE(line);                                                                                         \
            v[q] = LOAD(line);                                                                                        \
          }                                                                                                           \
          TURN(v);                                                                                                    \
          CPU_UNROLL                                                                                                  \
          for (int64_t q = 0; q < LANES; q++) STORE(to + (l + q) * width + j, v[q]);                                  \
        }                                                                                                             \
    else                                                                                                              \
      for (int64_t l = 0; l < k; l++)                                                                                 \
        for (int64_t j = 0; j < cols; j++) to[l * width + j] = from[j * across + l * along];                          \
  }

/* Afterwards vector j holds element j of each vector. */
static inline TARGET void turn_4x4(__m256d v[4])
{
  __m256d t0 = _mm256_unpacklo_pd(v[0], v[1]), t1 = _mm256_unpackhi_pd(v[0], v[1]);
  __m256d t2 = _mm256_unpacklo_pd(v[2], v[3]), t3 = _mm256_unpackhi_pd(v[2], v[3]);

  v[0] = _mm256_permute2f128_pd(t0, t2, 0x20);
  v[1] = _mm256_permute2f128_pd(t1, t3, 0x20);
  v[2] = _mm256_permute2f128_pd(t0, t2, 0x31);
  v[3] = _mm256_permute2f128_pd(t1, t3, 0x31);
}

#define FETCH(p) __builtin_prefetch((const char *)(p) + FETCH_AHEAD)
#define NO_FETCH(p)
#define FIRST_OF_8(count) _mm256_loadu_si256((const __m256i *)(choose_32 + 8 - (count)))
#define FIRST_OF_4(count) _mm256_loadu_si256((const __m256i *)(choose_64 + 4 - (count)))
#define FIRST_OF_16(count) ((__mmask16)((1u << (count)) - 1))
#define LOAD_8_MASKED(m, p) _mm256_maskload_ps(p, m)
#define LOAD_4_MASKED(m, p) _mm256_maskload_pd(p, m)
PACK(pack_f32, "avx2,fma", float, __m256, 8, __m256i, FIRST_OF_8, _mm256_loadu_ps, LOAD_8_MASKED, _mm256_storeu_ps,
     cpu_turn_8x8, NO_FETCH)
PACK(pack_f64, "avx2,fma", double, __m256d, 4, __m256i, FIRST_OF_4, _mm256_loadu_pd, LOAD_4_MASKED, _mm256_storeu_pd,
     turn_4x4, NO_FETCH)
PACK(pack_f32_512, "avx512f,avx512bw,avx512vl,avx512dq", float, __m512i, 16, __mmask16, FIRST_OF_16, _mm512_loadu_si512,
     _mm512_maskz_loadu_epi32, _mm512_storeu_si512, cpu_turn_16x16, FETCH)

/* ---- the choice of a kernel ------------------------------------------------------------------------------------ */

static const cpu_dense_kernel kernels[2][2] = { /* AVX-512 or not, f64 or not */
  {{6, 8, pack_f32, micro_f32_256}, {6, 4, pack_f64, micro_f64_256}},
  {{14, 16, pack_f32_512, cpu_micro_f32}, {14, 8, pack_f64, micro_f64_512}},
};

bool cpu_dense_narrow;

const cpu_dense_kernel *cpu_dense_kernel_of(weft_dtype type)
{
  return gen_this_processor.avx2 ? &kernels[gen_this_processor.avx512 && !cpu_dense_narrow][type == WEFT_F64] : NULL;
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

static int64_t parts_of(int64_t size, int64_t most) { return (size + most - 1) / most; }

/* Whether a panel of B is packed for `m` rows of A. */
static bool packs(const cpu_gemm *g, int64_t m)
{
  return g->b_col != 1 ||
         (m > 2 * MAX_ROWS && cpu_dense_block_of_k(g) * g->b_row * (int64_t)weft_dtype_bytes(g->c_type) > CLOSE_BYTES);
}

/* True if B stays in L2. */
static bool is_near(const cpu_gemm *g) { return g->n * g->k * (int64_t)weft_dtype_bytes(g->c_type) <= NEAR_BYTES; }

bool cpu_dense_fits(const cpu_gemm *g)
{
  if ((g->c_type != WEFT_F32 && g->c_type != WEFT_F64) || g->a_type != g->c_type || g->b_type != g->c_type ||
      g->via != WEFT_INVALID || WEFT_MIN(g->m, g->n) < 2 || !cpu_dense_kernel_of(g->c_type))
    return false;
  if (g->b_col == 1) return g->m >= LEAST_FAR || is_near(g);
  return g->m >= (g->b_row == 1 && cpu_dense_kernel_of(g->c_type)->pack == pack_f32_512 ? LEAST_TURNED : LEAST_PACKED);
}

static bool rows_collide(const cpu_gemm *g)
{
  return g->a_col == 1 && g->a_row * (int64_t)weft_dtype_bytes(g->c_type) % PAGE == 0;
}

/* The step between copied rows of A: an odd number of cache lines, at least. */
static int64_t copied_row(const cpu_gemm *g) { return cpu_dense_block_of_k(g) + 16; }

static int64_t panel_bytes(const cpu_gemm *g)
{
  return VECTORS * cpu_dense_kernel_of(g->c_type)->lanes * cpu_dense_block_of_k(g) *
         (int64_t)weft_dtype_bytes(g->c_type);
}

int64_t cpu_dense_panel_scratch(const cpu_gemm *g)
{
  if ((g->c_type != WEFT_F32 && g->c_type != WEFT_F64) || !cpu_dense_kernel_of(g->c_type)) return 0;
  return panel_bytes(g) + (rows_collide(g) ? MOST_COPIED * copied_row(g) * (int64_t)weft_dtype_bytes(g->c_type) : 0);
}

/* The most rows of a tile whose columns are few, so that one tile after the other reads the rows of A: those that stay
 * in L2, but not so few that B is read much more often.  Processors without vectors of 512 bits have a smaller L2. */
static int64_t most_rows(const cpu_gemm *g, const cpu_dense_kernel *kernel)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->c_type);
  int64_t kept = KEPT_BYTES / (WEFT_MAX(g->k, 1) * bytes) / MAX_ROWS * MAX_ROWS;

  return kernel->lanes * bytes <= CPU_NARROW_BYTES ? MOST_ROWS : WEFT_MIN(WEFT_MAX(kept, LEAST_KEPT), MOST_ROWS);
}

void cpu_dense_plan(cpu_gemm *g)
{
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(g->c_type);
  int64_t width = VECTORS * kernel->lanes;
  double most = WEFT_MAX(LEAST_TILE_FLOPS, WEFT_MIN(MOST_TILE_FLOPS, g->flops / TILES));
  double of_row = WEFT_MAX(2.0 * (double)g->n * (double)g->k, 1);

  g->tile_n = WEFT_MAX(g->n, 1);
  /* B stays in L2 while the rows of A pass by: a tile has some rows and all columns */
  if (is_near(g) && g->m > LEAST_ROWS) {
    g->tile_m =
      cpu_even_part(g->m, WEFT_MAX((int64_t)(most / of_row), packs(g, g->m) ? LEAST_ROWS_PACKED : LEAST_ROWS));
  } else {
    g->tile_m = cpu_even_part(g->m, most_rows(g, kernel));
    double columns = most / WEFT_MAX(2.0 * (double)g->tile_m * (double)g->k, 1);
    g->tile_n = WEFT_MIN(g->tile_n, WEFT_ALIGN_UP(WEFT_MAX((int64_t)columns, 1), width));
  }
  g->scratch_bytes = cpu_dense_panel_scratch(g);
}

/* The panel of a packed form that is read after `panel`, of `k` rows from row l on; NULL: none.  The next tile's first
 * panel lies behind the tile's last; it is asked for where it goes into L2. */
static const char *panel_after(const cpu_gemm *g, int64_t l, int64_t k, bool more_columns, const char *packed,
                               const char *panel)
{
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(g->c_type);
  int64_t bytes = (int64_t)weft_dtype_bytes(g->c_type), row = VECTORS * kernel->lanes * bytes;

  if (!packed) return NULL;
  if (more_columns) return panel + g->k * row;
  if (l + k < g->k) return packed + (l + k) * row;
  return kernel->lanes * bytes > CPU_NARROW_BYTES ? panel - l * row + g->k * row : NULL;
}

/* The product of a tile.  `packed`: the tile's part of B's packed form, or NULL. */
static void multiply(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, const char *packed, char *c,
                     void *scratch)
{
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(g->c_type);
  int64_t bytes = (int64_t)weft_dtype_bytes(g->c_type), width = VECTORS * kernel->lanes;
  int64_t block = cpu_dense_block_of_k(g), height = cpu_even_part(m, kernel->rows), depth = cpu_gemm_used_k(g);
  bool pack = !packed && packs(g, m), copy = rows_collide(g) && m >= LEAST_COPIED && m <= MOST_COPIED;
  char *copied = (char *)scratch + panel_bytes(g);
  cpu_micro_steps steps = {g->a_row, g->a_col, pack || packed ? width : g->b_row, g->c_row};

  if (copy) steps.a_row = copied_row(g);
  for (int64_t l = 0; l < depth; l += block) {
    int64_t k = WEFT_MIN(block, depth - l);
    const char *rows = copy ? copied : a + l * g->a_col * bytes;
    for (int64_t i = 0; copy && i < m; i++)
      memcpy(copied + i * steps.a_row * bytes, a + (i * g->a_row + l) * bytes, (size_t)(k * bytes));
    for (int64_t j = 0; j < n; j += width) {
      int64_t cols = WEFT_MIN(width, n - j), vectors = parts_of(cols, kernel->lanes);
      const char *panel = packed ? packed + (j * g->k + l * width) * bytes : b + (l * g->b_row + j * g->b_col) * bytes;
      if (pack) {
        kernel->pack(cols, k, panel, g->b_col, g->b_row, scratch, width);
        panel = scratch;
      }
      const char *next = panel_after(g, l, k, j + width < n, packed, panel);
      steps.next_step = next ? height * width * bytes / m : 0;
      for (int64_t i = 0; i < m; i += height) {
        steps.next = next ? next + i * k / m * width * bytes : NULL; /* each pass over the panel fetches its share */
        kernel->micro[WEFT_MIN(height, m - i)][vectors](k, rows + i * steps.a_row * bytes, panel,
                                                        c + (i * g->c_row + j) * bytes, &steps,
                                                        cols - (vectors - 1) * kernel->lanes, l > 0 || g->adds);
      }
    }
  }
}

void cpu_dense_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  multiply(g, m, n, a, b, NULL, c, scratch);
}

/* ---- the packed form: panels of all k ---- */

/* A form pays where tiles pack B, or read it over far more memory than they use at a time, and for few rows, whose
 * products take little longer than reading B. */
static int64_t packed_column_bytes(const cpu_gemm *g)
{
  bool pays = g->m < LEAST_FAR || !is_near(g) || packs(g, g->tile_m);

  return pays ? g->k * (int64_t)weft_dtype_bytes(g->c_type) : 0;
}

static void pack_form(const cpu_gemm *g, int64_t columns, const char *b, char *to)
{
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(g->c_type);
  int64_t bytes = (int64_t)weft_dtype_bytes(g->c_type), width = VECTORS * kernel->lanes;

  for (int64_t j = 0; j < columns; j += width)
    kernel->pack(WEFT_MIN(width, columns - j), g->k, b + j * g->b_col * bytes, g->b_col, g->b_row,
                 to + j * g->k * bytes, width);
}

static void packed_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *packed, char *c,
                        void *scratch)
{
  multiply(g, m, n, a, NULL, packed, c, scratch);
}

const cpu_packed_ops cpu_dense_packed = {packed_column_bytes, pack_form, packed_tile};

#else

bool cpu_dense_narrow;
const cpu_packed_ops cpu_dense_packed;

const cpu_dense_kernel *cpu_dense_kernel_of(weft_dtype type)
{
  (void)type;
  return NULL;
}

bool cpu_dense_fits(const cpu_gemm *gemm)
{
  (void)gemm;
  return false;
}

void cpu_dense_plan(cpu_gemm *gemm) { (void)gemm; }

int64_t cpu_dense_panel_scratch(const cpu_gemm *gemm)
{
  (void)gemm;
  return 0;
}

void cpu_dense_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  (void)gemm, (void)m, (void)n, (void)a, (void)b, (void)c, (void)scratch;
}

#endif

const cpu_dense_kernel *cpu_dense_narrow_kernel(void)
{
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(WEFT_F32);

  return kernel && kernel->lanes == CPU_NARROW_LANES ? kernel : NULL;
}
