/* cpu/gemm_block.c -- The blocked product after Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication" (2008): A and B are taken in blocks of BLOCK_K contracted elements.  B is packed into panels of 2 or
 * 3 vectors' width, zeros filling the last; A is packed into panels of 8 rows only where its rows are not dense.  A
 * block of 8 rows by up to 3 vectors of C stays in 24 registers over the block of k.  A skinny product reads the large
 * operand once, so packing that would cost more than it saves: B of dense rows is streamed a few rows at a time into
 * sums in C, and B of dense columns changes places with A (C' = B' . A').
 *
 *   for each block of k:   pack B
 *     for each 8 rows of A (stay in L1):  for each panel of B (from L2):  C block += rows . panel */
#include <config.h>

#include "cpu/gemm_block.h"

#include <string.h>

#include "base/macros.h"
#include "codegen/model/processor.h"
#include "cpu/hot.h"

enum {
  BLOCK_K = 256, ROWS = 8, DEPTH = 8, VECTORS = 3, SKINNY = 16, CLOSE_BYTES = 1 << 18,
  NARROW_ROWS = 4,
};

bool cpu_block_narrow;

bool cpu_block_is_fast(void) { return gen_this_processor.avx512; }

bool cpu_block_reads_in_place(const cpu_gemm *g)
{
  return g->via == WEFT_INVALID && g->b_type == g->compute && g->b_col == 1 && g->m > SKINNY &&
         WEFT_MIN(g->k, BLOCK_K) * g->b_row * (int64_t)weft_dtype_bytes(g->compute) <= CLOSE_BYTES;
}

/* ---- one block of C ---------------------------------------------------------------------------------------------- */

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define ROW_POINTER(i) const elem *a##i = rows[i];
#define ZERO_1(i) vec s##i##0 = {0};
#define ZERO_2(i) ZERO_1(i) vec s##i##1 = {0};
#define ZERO_3(i) ZERO_2(i) vec s##i##2 = {0};
#define ADD_1(i) s##i##0 += b0 * a##i[at];
#define ADD_2(i) s##i##0 += b0 * a##i[at], s##i##1 += b1 * a##i[at];
#define ADD_3(i) s##i##0 += b0 * a##i[at], s##i##1 += b1 * a##i[at], s##i##2 += b2 * a##i[at];
#define SUMS_1(i) sums[i][0] = s##i##0;
#define SUMS_2(i) SUMS_1(i) sums[i][1] = s##i##1;
#define SUMS_3(i) SUMS_2(i) sums[i][2] = s##i##2;
#define LOAD_1 vec b0 = *(const vec *)b;
#define LOAD_2 LOAD_1 vec b1 = *(const vec *)(b + LANES);
#define LOAD_3 LOAD_2 vec b2 = *(const vec *)(b + 2 * LANES);

/* sums[8][count] = rows . the first `count` vectors of b's panel; element l of row i is rows[i][l * step]. */
#define MICRO(name, type, count)                                                                                  \
  static CPU_HOT void name##_##count(int64_t k, const type *const *rows, int64_t step, const type *b, int64_t b_row, \
                                     type (*restrict out)[VECTORS * CPU_VECTOR_BYTES / sizeof(type)])                 \
  {                                                                                                               \
    typedef type elem;                                                                                            \
    typedef type vec __attribute__((vector_size(CPU_VECTOR_BYTES), aligned(sizeof(type)), may_alias));                \
    enum { LANES = CPU_VECTOR_BYTES / sizeof(type) };                                                                 \
    vec sums[ROWS][count];                                                                                        \
    EACH_ROW(ROW_POINTER)                                                                                         \
    EACH_ROW(ZERO_##count)                                                                                        \
    for (int64_t l = 0, at = 0; l < k; l++, at += step, b += b_row) {                                             \
      LOAD_##count                                                                                                \
      EACH_ROW(ADD_##count)                                                                                       \
    }                                                                                                             \
    EACH_ROW(SUMS_##count)                                                                                        \
    for (int i = 0; i < ROWS; i++) memcpy(out[i], sums[i], sizeof sums[i]);                                       \
  }

/* The same for `cols` columns on machines with narrower vectors and fewer registers: 4 rows by two vectors at a
 * time. Vectors wider than the machine's would live in memory. */
#define MICRO_NARROW(name, type)                                                                                  \
  static CPU_HOT void name##_narrow(int64_t k, const type *const *rows, int64_t step, const type *b, int64_t b_row, int64_t cols, \
                                    type (*restrict out)[VECTORS * CPU_VECTOR_BYTES / sizeof(type)])                  \
  {                                                                                                               \
    typedef type elem;                                                                                            \
    typedef type vec __attribute__((vector_size(CPU_NARROW_BYTES), aligned(sizeof(type)), may_alias));                \
    enum { LANES = CPU_NARROW_BYTES / sizeof(type) };                                                                 \
    for (int64_t j = 0; j < cols; j += 2 * LANES)                                                                 \
      for (int q = 0; q < ROWS; q += NARROW_ROWS) {                                                               \
        const elem *a0 = rows[q], *a1 = rows[q + 1], *a2 = rows[q + 2], *a3 = rows[q + 3], *from = b + j;         \
        vec s00 = {0}, s01 = {0}, s10 = {0}, s11 = {0}, s20 = {0}, s21 = {0}, s30 = {0}, s31 = {0};               \
        for (int64_t l = 0, at = 0; l < k; l++, at += step, from += b_row) {                                      \
          vec b0 = *(const vec *)from, b1 = *(const vec *)(from + LANES);                                         \
          ADD_2(0) ADD_2(1) ADD_2(2) ADD_2(3)                                                                     \
        }                                                                                                         \
        *(vec *)&out[q][j] = s00, *(vec *)&out[q][j + LANES] = s01;                                               \
        *(vec *)&out[q + 1][j] = s10, *(vec *)&out[q + 1][j + LANES] = s11;                                       \
        *(vec *)&out[q + 2][j] = s20, *(vec *)&out[q + 2][j + LANES] = s21;                                       \
        *(vec *)&out[q + 3][j] = s30, *(vec *)&out[q + 3][j + LANES] = s31;                                       \
      }                                                                                                           \
  }

/* c[m,n] (+)= a . b. The rows of a are read in place (step 1) or in packed panels (step ROWS). b is read in place or
 * in packed panels too: column j starts at j * b_panel, and its rows are b_row apart. */
#define MICRO_ALL(name, type)                                                                                     \
  MICRO(name, type, 1)                                                                                            \
  MICRO(name, type, 2)                                                                                            \
  MICRO(name, type, 3)                                                                                            \
  MICRO_NARROW(name, type)                                                                                        \
  static CPU_HOT void name(int64_t m, int64_t n, int64_t k, const type *a, int64_t a_row, const type *b,          \
                           int64_t b_row, int64_t b_panel, int64_t width, type *c, int64_t c_row, bool add)       \
  {                                                                                                               \
    enum { LANES = CPU_VECTOR_BYTES / sizeof(type) };                                                                 \
    type sums[ROWS][VECTORS * LANES];                                                                             \
    bool wide = cpu_block_is_fast() && !cpu_block_narrow;                                                         \
    for (int64_t i = 0; i < m; i += ROWS)                                                                         \
      for (int64_t j = 0; j < n; j += width) {                                                                    \
        int64_t count = WEFT_MIN(ROWS, m - i), cols = WEFT_MIN(width, n - j);                                     \
        const type *rows[ROWS];                                                                                   \
        for (int64_t q = 0; q < ROWS; q++) /* missing rows: the last one again */                                 \
          rows[q] = a_row ? a + (i + WEFT_MIN(q, count - 1)) * a_row : a + i * k + q;                             \
        int64_t step = a_row ? 1 : ROWS;                                                                          \
        if (!wide) name##_narrow(k, rows, step, b + j * b_panel, b_row, cols, sums);                              \
        else if (cols > 2 * LANES) name##_3(k, rows, step, b + j * b_panel, b_row, sums);                                   \
        else if (cols > LANES) name##_2(k, rows, step, b + j * b_panel, b_row, sums);                                  \
        else name##_1(k, rows, step, b + j * b_panel, b_row, sums);                                                    \
        for (int64_t q = 0; q < count; q++) {                                                                     \
          type *to = c + (i + q) * c_row + j;                                                                     \
          if (add)                                                                                                \
            for (int64_t p = 0; p < cols; p++) to[p] = (type)(to[p] + sums[q][p]);                                \
          else                                                                                                    \
            for (int64_t p = 0; p < cols; p++) to[p] = sums[q][p];                                                \
        }                                                                                                         \
      }                                                                                                           \
  }
MICRO_ALL(micro_f32, float)
MICRO_ALL(micro_f64, double)
MICRO_ALL(micro_u8, uint8_t)
MICRO_ALL(micro_u16, uint16_t)
MICRO_ALL(micro_u32, uint32_t)
MICRO_ALL(micro_u64, uint64_t)

/* ---- few rows of C ----------------------------------------------------------------------------------------------- */

/* c[m,n] (+)= a . b for dense rows of b, DEPTH rows at a time, in whole vectors of columns. a is read as above. */
#define STREAM(name, type, bytes)                                                                                 \
  static CPU_HOT void name(int64_t m, int64_t n, int64_t k, const type *a, int64_t a_row, const type *b,          \
                           int64_t b_row, type *c, int64_t c_row, bool add)                                       \
  {                                                                                                               \
    typedef type vec __attribute__((vector_size(bytes), aligned(sizeof(type)), may_alias));                \
    enum { LANES = bytes / sizeof(type) };                                                                        \
    const type *rows[SKINNY];                                                                                     \
    int64_t step = a_row ? 1 : ROWS, l = 0;                                                                       \
    for (int64_t i = 0; i < m; i++) rows[i] = a_row ? a + i * a_row : a + i / ROWS * ROWS * k + i % ROWS;         \
    for (int64_t i = 0; i < m && !add; i++) memset(c + i * c_row, 0, (size_t)n * sizeof(type));                   \
    for (; l + DEPTH <= k; l += DEPTH)                                                                            \
      for (int64_t j = 0; j < n; j += LANES) {                                                                    \
        vec x[DEPTH];                                                                                             \
        for (int q = 0; q < DEPTH; q++) x[q] = *(const vec *)(b + (l + q) * b_row + j);                           \
        for (int64_t i = 0; i < m; i++) {                                                                         \
          vec sum = *(vec *)(c + i * c_row + j);                                                                  \
          const type *from = rows[i] + l * step;                                                                  \
          for (int q = 0; q < DEPTH; q++) sum += x[q] * from[q * step];                                           \
          *(vec *)(c + i * c_row + j) = sum;                                                                      \
        }                                                                                                         \
      }                                                                                                           \
    for (; l < k; l++)                                                                                            \
      for (int64_t i = 0; i < m; i++)                                                                             \
        for (int64_t j = 0; j < n; j += LANES)                                                                    \
          *(vec *)(c + i * c_row + j) += *(const vec *)(b + l * b_row + j) * rows[i][l * step];                   \
  }
STREAM(stream_f32, float, CPU_VECTOR_BYTES)
STREAM(stream_f32_narrow, float, CPU_NARROW_BYTES)
STREAM(stream_f64, double, CPU_VECTOR_BYTES)
STREAM(stream_f64_narrow, double, CPU_NARROW_BYTES)
STREAM(stream_u8, uint8_t, CPU_VECTOR_BYTES)
STREAM(stream_u8_narrow, uint8_t, CPU_NARROW_BYTES)
STREAM(stream_u16, uint16_t, CPU_VECTOR_BYTES)
STREAM(stream_u16_narrow, uint16_t, CPU_NARROW_BYTES)
STREAM(stream_u32, uint32_t, CPU_VECTOR_BYTES)
STREAM(stream_u32_narrow, uint32_t, CPU_NARROW_BYTES)
STREAM(stream_u64, uint64_t, CPU_VECTOR_BYTES)
STREAM(stream_u64_narrow, uint64_t, CPU_NARROW_BYTES)

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* to[panel][k][width] = from: a panel takes `width` of the n positions along `major`, and k runs along `minor`. */
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

/* The [n, k] part of an operand in the compute type: in place, or converted into `spare` in the order of memory. */
static const char *stage(const cpu_gemm *g, weft_dtype type, const char *from, int64_t n, int64_t k, int64_t *major,
                         int64_t *minor, char *spare)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute), from_bytes = (int64_t)weft_dtype_bytes(type);
  bool along_n = *major == 1;
  int64_t lines = along_n ? k : n, count = along_n ? n : k;

  if (g->via == WEFT_INVALID && (type == g->compute || (weft_dtype_is_integer(type) && from_bytes == bytes)))
    return from;
  int64_t step = along_n ? *major : *minor, line = along_n ? *minor : *major;
  if (step == 1 && line == count) cpu_convert(g->compute, spare, type, from, 1, lines * count);
  else
    for (int64_t i = 0; i < lines; i++)
      cpu_convert(g->compute, spare + i * count * bytes, type, from + i * line * from_bytes, step, count);
  if (g->via != WEFT_INVALID) {
    float *x = (float *)spare;
    for (int64_t i = 0; i < n * k; i++) x[i] = weft_float_decode(g->via, weft_float_encode(g->via, x[i]));
  }
  *major = along_n ? 1 : k;
  *minor = along_n ? n : 1;
  return spare;
}

/* A tile as the loops see it: which operand is on the left, and the places in the scratch of packed left, converted
 * left, packed right and converted right operands and of sums that c cannot hold. */
typedef struct tile_plan {
  bool swapped;  /* C' = B' . A' */
  bool streamed; /* the right operand's rows are read in place if they are dense */
  bool in_place; /* sums are kept in c */
  int64_t m, n, block, width, left_at, b_at, spare_at, sum_at, bytes;
} tile_plan;

static tile_plan plan_tile(const cpu_gemm *g, int64_t m, int64_t n)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute);
  bool same_width = (int64_t)weft_dtype_bytes(g->c_type) == bytes;
  tile_plan p = {.swapped = g->b_row == 1 && g->b_col != 1 && m <= SKINNY && n > m, .m = m, .n = n};

  if (p.swapped) {
    p.m = n;
    p.n = m;
  }
  p.streamed = p.m <= SKINNY;
  int64_t lanes = CPU_VECTOR_BYTES / bytes, vectors = ((p.swapped ? g->m : g->n) + lanes - 1) / lanes;
  /* panels of 2 vectors, where panels of 3 would leave a last panel of 1 vector */
  p.width = (vectors % 3 == 1 && vectors < 12 ? 2 : VECTORS) * lanes;
  p.block = WEFT_MIN(g->k, BLOCK_K);
  p.in_place = !p.swapped && (g->c_type == g->compute || (weft_dtype_is_integer(g->compute) && same_width));
  p.left_at = WEFT_ALIGN_UP((p.m + ROWS) * p.block * bytes, 64);
  p.b_at = p.left_at + WEFT_ALIGN_UP(p.m * p.block * bytes, 64);
  p.spare_at = p.b_at + WEFT_ALIGN_UP((p.n + p.width) * p.block * bytes, 64);
  p.sum_at = p.spare_at + WEFT_ALIGN_UP(p.n * p.block * bytes, 64);
  p.bytes = p.sum_at + (p.in_place ? 0 : m * n * bytes);
  return p;
}

int64_t cpu_block_scratch(const cpu_gemm *g) { return plan_tile(g, g->tile_m, g->tile_n).bytes; }

/* The right operand for one block of k: its rows in place, or packed panels. */
typedef struct right_block {
  const void *data;
  int64_t row, panel, width;
  bool streamed;
} right_block;

static void multiply(weft_dtype type, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, right_block b,
                     void *c, int64_t c_row, bool add)
{
  bool wide = cpu_block_is_fast() && !cpu_block_narrow;

#define MULTIPLY(suffix)                                                                          \
  if (b.streamed && wide) stream_##suffix(m, n, k, a, a_row, b.data, b.row, c, c_row, add);       \
  else if (b.streamed) stream_##suffix##_narrow(m, n, k, a, a_row, b.data, b.row, c, c_row, add); \
  else micro_##suffix(m, n, k, a, a_row, b.data, b.row, b.panel, b.width, c, c_row, add);         \
  break

  switch (type) {
  case WEFT_F32: MULTIPLY(f32);
  case WEFT_F64: MULTIPLY(f64);
  case WEFT_U8: MULTIPLY(u8);
  case WEFT_U16: MULTIPLY(u16);
  case WEFT_U32: MULTIPLY(u32);
  default: MULTIPLY(u64);
  }
#undef MULTIPLY
}

void cpu_block_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute), c_bytes = (int64_t)weft_dtype_bytes(g->c_type);
  tile_plan p = plan_tile(g, m, n);
  char *pa = scratch, *pb = pa + p.b_at, *spare = pa + p.spare_at, *sum = p.in_place ? c : pa + p.sum_at;
  int64_t sum_row = p.in_place ? g->c_row : p.n, depth = cpu_gemm_used_k(g);
  struct { const char *data; weft_dtype type; int64_t bytes, across, along; } /* element l of row or column i */
    left = {a, g->a_type, (int64_t)weft_dtype_bytes(g->a_type), g->a_row, g->a_col},
    right = {b, g->b_type, (int64_t)weft_dtype_bytes(g->b_type), g->b_col, g->b_row}, other = left;

  if (p.swapped) {
    left = right;
    right = other;
  }
  for (int64_t l = 0; l < depth; l += p.block) {
    int64_t k = WEFT_MIN(p.block, depth - l), major = left.across, minor = left.along;
    const char *from =
      stage(g, left.type, left.data + l * left.along * left.bytes, p.m, k, &major, &minor, pa + p.left_at);
    const char *rows = minor == 1 ? from : pa;
    int64_t a_row = minor == 1 ? major : 0;
    if (minor != 1) pack(bytes, p.m, k, from, major, minor, pa, ROWS);
    major = right.across;
    minor = right.along;
    from = stage(g, right.type, right.data + l * right.along * right.bytes, p.n, k, &major, &minor, spare);
    /* whole vectors of dense rows need no packing if the rows are used once or lie close together */
    bool direct = major == 1 && (p.streamed || k * minor * bytes <= CLOSE_BYTES);
    int64_t lanes = CPU_VECTOR_BYTES / bytes, whole = direct ? p.n / lanes * lanes : 0;
    if (whole)
      multiply(g->compute, p.m, whole, k, rows, a_row, (right_block){from, minor, 1, p.width, p.streamed}, sum, sum_row,
               l > 0);
    if (whole == p.n) continue;
    pack(bytes, p.n - whole, k, from + whole * major * bytes, major, minor, pb, p.width);
    multiply(g->compute, p.m, p.n - whole, k, rows, a_row, (right_block){pb, p.width, k, p.width, false},
             sum + whole * bytes, sum_row, l > 0);
  }
  if (p.in_place) return;
  if (!p.swapped && g->c_row == n) cpu_convert(g->c_type, c, g->compute, sum, 1, m * n);
  else
    for (int64_t i = 0; i < m; i++)
      cpu_convert(g->c_type, c + i * g->c_row * c_bytes, g->compute, sum + i * (p.swapped ? 1 : n) * bytes,
                  p.swapped ? m : 1, n);
}
