/* The blocked product after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008): A and B
 * are packed in blocks of BLOCK_K contracted elements, A in panels of 8 rows and B in panels of 3 vectors' width, zeros
 * filling the last; a block of 8 rows by 3 vectors of C stays in 24 registers over the block of k.
 *
 *   for each block of k:   pack A, pack B
 *     for each panel of A (stays in L1):  for each panel of B (from L2):  C block += panel . panel */
#include <config.h>

#include "cpu/gemm_block.h"

#include <string.h>

#include "base/macros.h"
#include "cpu/hot.h"

enum { BLOCK_K = 256, ROWS = 8, VECTORS = 3, VECTOR_BYTES = 64 };

bool cpu_block_is_fast(void)
{
#if defined __x86_64__
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

/* ---- one block of C ---------------------------------------------------------------------------------------------- */

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define ROW_ZERO(i) vec s##i##0 = {0}, s##i##1 = {0}, s##i##2 = {0};
#define ROW_ADD(i) s##i##0 += b0 * a[i], s##i##1 += b1 * a[i], s##i##2 += b2 * a[i];
#define ROW_SUMS(i) sums[i][0] = s##i##0, sums[i][1] = s##i##1, sums[i][2] = s##i##2;
#define ROW_STORE(i)                                                   \
  to = (vec *)(c + i * c_row);                                         \
  if (add) s##i##0 += to[0], s##i##1 += to[1], s##i##2 += to[2];       \
  to[0] = s##i##0, to[1] = s##i##1, to[2] = s##i##2;

/* c[rows, cols] (+)= a panel . b panel; all of the block is computed, what is outside is not stored. */
#define MICRO(name, type)                                                                                              \
  static CPU_HOT void name(int64_t k, const type *a, const type *b, type *c, int64_t c_row, int64_t rows, int64_t cols, \
                           bool add)                                                                                   \
  {                                                                                                                    \
    typedef type vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(type)), may_alias));                     \
    enum { LANES = VECTOR_BYTES / sizeof(type) };                                                                      \
    EACH_ROW(ROW_ZERO)                                                                                                 \
    for (int64_t l = 0; l < k; l++, a += ROWS, b += VECTORS * LANES) {                                                 \
      vec b0 = *(const vec *)b, b1 = *(const vec *)(b + LANES), b2 = *(const vec *)(b + 2 * LANES);                    \
      EACH_ROW(ROW_ADD)                                                                                                \
    }                                                                                                                  \
    if (rows == ROWS && cols == VECTORS * LANES) {                                                                     \
      vec *to;                                                                                                         \
      EACH_ROW(ROW_STORE)                                                                                              \
      return;                                                                                                          \
    }                                                                                                                  \
    vec sums[ROWS][VECTORS];                                                                                           \
    EACH_ROW(ROW_SUMS)                                                                                                 \
    for (int64_t i = 0; i < rows; i++)                                                                                 \
      for (int64_t j = 0; j < cols; j++) {                                                                             \
        type x = sums[i][j / LANES][j % LANES];                                                                        \
        c[i * c_row + j] = add ? (type)(c[i * c_row + j] + x) : x;                                                     \
      }                                                                                                                \
  }                                                                                                                    \
  static void name##_all(int64_t m, int64_t n, int64_t k, const void *pa, const void *pb, void *c, int64_t c_row, bool add) \
  {                                                                                                                    \
    int64_t width = VECTORS * VECTOR_BYTES / (int64_t)sizeof(type);                                                    \
    for (int64_t i = 0; i < m; i += ROWS)                                                                              \
      for (int64_t j = 0; j < n; j += width)                                                                           \
        name(k, (const type *)pa + i * k, (const type *)pb + j * k, (type *)c + i * c_row + j, c_row,                  \
             WEFT_MIN(ROWS, m - i), WEFT_MIN(width, n - j), add);                                                      \
  }
MICRO(micro_f32, float)
MICRO(micro_f64, double)
MICRO(micro_u8, uint8_t)
MICRO(micro_u16, uint16_t)
MICRO(micro_u32, uint32_t)
MICRO(micro_u64, uint64_t)

/* ---- packing ------------------------------------------------------------------------------------------------------- */

/* to[panel][k][width] = from, where a panel takes `width` of the n positions along `major`, and k goes along `minor`. */
#define PACK(name, type)                                                                                           \
  static CPU_HOT void name(int64_t n, int64_t k, const type *restrict from, int64_t major, int64_t minor,          \
                           type *restrict to, int64_t width)                                                       \
  {                                                                                                                \
    for (int64_t i0 = 0; i0 < n; i0 += width, to += k * width) {                                                   \
      int64_t count = WEFT_MIN(width, n - i0);                                                                     \
      const type *start = from + i0 * major;                                                                       \
      if (count < width) memset(to, 0, (size_t)(k * width) * sizeof(type));                                        \
      if (major == 1)                                                                                              \
        for (int64_t l = 0; l < k; l++) memcpy(to + l * width, start + l * minor, (size_t)count * sizeof(type));   \
      else                                                                                                         \
        for (int64_t i = 0; i < count; i++)                                                                        \
          for (int64_t l = 0; l < k; l++) to[l * width + i] = start[i * major + l * minor];                        \
    }                                                                                                              \
  }
PACK(pack_8, uint8_t)
PACK(pack_16, uint16_t)
PACK(pack_32, uint32_t)
PACK(pack_64, uint64_t)

static void pack(int64_t bytes, int64_t n, int64_t k, const void *from, int64_t major, int64_t minor, void *to,
                 int64_t width)
{
  switch (bytes) {
  case 1: pack_8(n, k, from, major, minor, to, width); break;
  case 2: pack_16(n, k, from, major, minor, to, width); break;
  case 4: pack_32(n, k, from, major, minor, to, width); break;
  default: pack_64(n, k, from, major, minor, to, width);
  }
}

/* The [n, k] part of an operand in the compute type: as it lies, or converted into `spare` in the order it lies. */
static const char *stage(const cpu_gemm *g, weft_dtype type, const char *from, int64_t n, int64_t k, int64_t *major,
                         int64_t *minor, char *spare)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute), from_bytes = (int64_t)weft_dtype_bytes(type);
  bool along_n = *major == 1;
  int64_t lines = along_n ? k : n, count = along_n ? n : k;

  if (g->via == WEFT_INVALID && (type == g->compute || (weft_dtype_is_integer(type) && from_bytes == bytes))) return from;
  for (int64_t i = 0; i < lines; i++)
    cpu_convert(g->compute, spare + i * count * bytes, type, from + i * (along_n ? *minor : *major) * from_bytes,
                along_n ? *major : *minor, count);
  if (g->via != WEFT_INVALID) {
    float *x = (float *)spare;
    for (int64_t i = 0; i < n * k; i++) x[i] = weft_float_decode(g->via, weft_float_encode(g->via, x[i]));
  }
  *major = along_n ? 1 : k;
  *minor = along_n ? n : 1;
  return spare;
}

/* Where things are in a tile's scratch: packed a, packed b, converted operands, sums that c cannot hold. */
typedef struct scratch_plan {
  bool in_place; /* sums are made in c */
  int64_t block, width, b_at, spare_at, sum_at, bytes;
} scratch_plan;

static scratch_plan plan_scratch(const cpu_gemm *g, int64_t m, int64_t n)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute);
  bool same_width = (int64_t)weft_dtype_bytes(g->c_type) == bytes;
  scratch_plan p = {.block = WEFT_MIN(g->k, BLOCK_K), .width = VECTORS * VECTOR_BYTES / bytes};

  p.in_place = g->c_type == g->compute || (weft_dtype_is_integer(g->compute) && same_width);
  p.b_at = WEFT_ALIGN_UP((m + ROWS) * p.block * bytes, 64);
  p.spare_at = p.b_at + WEFT_ALIGN_UP((n + p.width) * p.block * bytes, 64);
  p.sum_at = p.spare_at + WEFT_ALIGN_UP(WEFT_MAX(m, n) * p.block * bytes, 64);
  p.bytes = p.sum_at + (p.in_place ? 0 : m * n * bytes);
  return p;
}

int64_t cpu_block_scratch(const cpu_gemm *g) { return plan_scratch(g, g->tile_m, g->tile_n).bytes; }

void cpu_block_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute), c_bytes = (int64_t)weft_dtype_bytes(g->c_type);
  int64_t a_bytes = (int64_t)weft_dtype_bytes(g->a_type), b_bytes = (int64_t)weft_dtype_bytes(g->b_type);
  scratch_plan p = plan_scratch(g, m, n);
  char *pa = scratch, *pb = pa + p.b_at, *spare = pa + p.spare_at, *sum = p.in_place ? c : pa + p.sum_at;
  int64_t sum_row = p.in_place ? g->c_row : n;

  for (int64_t l = 0; l < g->k; l += p.block) {
    int64_t k = WEFT_MIN(p.block, g->k - l), major = g->a_row, minor = g->a_col;
    const char *from = stage(g, g->a_type, a + l * g->a_col * a_bytes, m, k, &major, &minor, spare);
    pack(bytes, m, k, from, major, minor, pa, ROWS);
    major = g->b_col;
    minor = g->b_row;
    from = stage(g, g->b_type, b + l * g->b_row * b_bytes, n, k, &major, &minor, spare);
    pack(bytes, n, k, from, major, minor, pb, p.width);
    switch (g->compute) {
    case WEFT_F32: micro_f32_all(m, n, k, pa, pb, sum, sum_row, l > 0); break;
    case WEFT_F64: micro_f64_all(m, n, k, pa, pb, sum, sum_row, l > 0); break;
    case WEFT_U8: micro_u8_all(m, n, k, pa, pb, sum, sum_row, l > 0); break;
    case WEFT_U16: micro_u16_all(m, n, k, pa, pb, sum, sum_row, l > 0); break;
    case WEFT_U32: micro_u32_all(m, n, k, pa, pb, sum, sum_row, l > 0); break;
    default: micro_u64_all(m, n, k, pa, pb, sum, sum_row, l > 0);
    }
  }
  for (int64_t i = 0; i < m && !p.in_place; i++)
    cpu_convert(g->c_type, c + i * g->c_row * c_bytes, g->compute, sum + i * n * bytes, 1, n);
}
