/* cpu/gemm.c -- matrix products: the table of kernels, of which a product takes the first that fits, and the kernels
 * that use BLAS (blas.h), directly or on converted panels.  Weft's own kernels are in gemm_amx.c, gemm_lanes.c,
 * gemm_pairs.c, gemm_vector.c, gemm_few.c, gemm_dense.c, gemm_complex.c, gemm_block.c and gemm_tiny.c.  See gemm.h. */
#include <config.h>

#include "cpu/gemm.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/blas.h"
#include "cpu/gemm_amx.h"
#include "cpu/gemm_block.h"
#include "cpu/gemm_complex.h"
#include "cpu/gemm_dense.h"
#include "cpu/gemm_few.h"
#include "cpu/gemm_pairs.h"
#include "cpu/gemm_tiny.h"
#include "cpu/gemm_lanes.h"
#include "cpu/gemm_vector.h"
#include "cpu/hot.h"

enum {
  PANEL_K = 1024,          /* contracted elements that are converted at a time */
  SKINNY = 64,
  MIN_TILE = 256,          /* OpenBLAS is nearly at its full speed down to tiles of this size */
  TILE_MFLOPS = 25,
  SMALL_TILE_MFLOPS = 2,   /* some 20 us */
  LEAST_TILES = 4,         /* of a product that has the flops for so many small tiles */
  MIN_BLOCK = 64,
};

static bool is_blas_type(weft_dtype t) { return t == WEFT_F32 || t == WEFT_F64 || t == WEFT_C64 || t == WEFT_C128; }

/* The type to which panels are converted, or WEFT_INVALID. */
static weft_dtype compute_type(const cpu_gemm *g)
{
  weft_dtype types[] = {g->a_type, g->b_type, g->c_type};
  bool any_complex = false, any_double = false, in_float = true, all_integers = true;

  for (size_t i = 0; i < WEFT_COUNT(types); i++) {
    bool is_complex = weft_dtype_is_complex(types[i]);
    any_complex |= is_complex;
    any_double |= types[i] == WEFT_F64 || types[i] == WEFT_C128;
    in_float &= is_complex || weft_dtype_is_float(types[i]) || weft_dtype_bits(types[i]) <= 16;
    all_integers &= weft_dtype_is_integer(types[i]);
  }
  if (all_integers) { /* the low bits of a product do not depend on the sign: one kernel for each width is enough */
    int bytes = (int)weft_dtype_bytes(g->c_type);
    if (weft_dtype_bits(g->c_type) < 8) return WEFT_INVALID;
    return bytes == 1 ? WEFT_U8 : bytes == 2 ? WEFT_U16 : bytes == 4 ? WEFT_U32 : WEFT_U64;
  }
  /* only double represents the wider integer operands of a float product exactly */
  if (!weft_dtype_is_float(g->c_type) && !weft_dtype_is_complex(g->c_type)) return WEFT_INVALID;
  any_double |= !in_float;
  if (any_complex) return any_double ? WEFT_C128 : WEFT_C64;
  return any_double ? WEFT_F64 : WEFT_F32;
}

/* The product of m by n converted panels over all of k, of which those in use are in the panels. */
static cpu_gemm panel_product(const cpu_gemm *g, int64_t m, int64_t n)
{
  bool turned = g->b_row == 1 && g->b_col != 1; /* b's panel keeps b's order */
  return (cpu_gemm){.a_type = g->compute,
                    .b_type = g->compute,
                    .c_type = g->compute,
                    .m = m,
                    .n = n,
                    .k = g->k,
                    .a_row = g->k,
                    .a_col = 1,
                    .b_row = turned ? 1 : n,
                    .b_col = turned ? g->k : 1,
                    .c_row = n,
                    .via = WEFT_INVALID,
                    .used_k = g->used_k,
                    .compute = g->compute};
}

/* Bytes of scratch of tile_by_panels: the two panels, the sums and what gemm_dense.c needs. `at`, if not NULL, receives
 * the offsets of b's panel, of the sums and of the last part. */
static int64_t panel_scratch(const cpu_gemm *g, int64_t at[3])
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute), panel = WEFT_MIN(g->k, PANEL_K);
  int64_t b_at = WEFT_ALIGN_UP(g->tile_m * panel * bytes, 64),
          sum_at = b_at + WEFT_ALIGN_UP(g->tile_n * panel * bytes, 64),
          end = sum_at + WEFT_ALIGN_UP(g->tile_m * g->tile_n * bytes, 64);
  cpu_gemm dense = panel_product(g, g->tile_m, g->tile_n);

  if (at) {
    at[0] = b_at;
    at[1] = sum_at;
    at[2] = end;
  }
  return end + (g->k <= PANEL_K ? cpu_dense_panel_scratch(&dense) : 0);
}

/* Scratch of tile_by_vector. */
static int64_t vector_scratch(const cpu_gemm *g)
{
  return g->m == 1 || g->n == 1 ? (g->k + WEFT_MAX(g->tile_m, g->tile_n)) * (int64_t)sizeof(float) : 0;
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* to[rows, cols], whose rows are to_row elements apart, = from, converted to g->compute and then, if g->via is a type,
 * rounded to that type. */
static void pack(const cpu_gemm *g, char *to, int64_t to_row, weft_dtype from_type, const char *from, int64_t rows,
                 int64_t cols, int64_t row_step, int64_t col_step)
{
  weft_dtype type = g->compute;
  int64_t bytes = (int64_t)weft_dtype_bytes(type), from_bytes = (int64_t)weft_dtype_bytes(from_type);

  if (col_step == 1 && row_step == cols && to_row == cols) { /* one run */
    cols *= rows;
    rows = 1;
  }
  for (int64_t r = 0; r < rows; r++)
    cpu_convert(type, to + r * to_row * bytes, from_type, from + r * row_step * from_bytes, col_step, cols);
  for (int64_t r = 0; r < rows && g->via != WEFT_INVALID; r++) {
    float *x = (float *)to + r * to_row;
    for (int64_t i = 0; i < cols; i++) x[i] = weft_float_decode(g->via, weft_float_encode(g->via, x[i]));
  }
}

/* A vector times a matrix of 16-bit floats, read in place. False if the product is of another kind. */
static bool tile_by_vector(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c,
                           float *scratch)
{
  bool by_row = g->m == 1;
  int64_t count = by_row ? n : m, k = cpu_gemm_used_k(g);
  weft_dtype vector_type = by_row ? g->a_type : g->b_type;

  float *x = scratch, *sum = x + g->k;
  bool done;

  if ((g->m != 1 && g->n != 1) || g->compute != WEFT_F32 || g->via != WEFT_INVALID || (!by_row && g->c_row != 1))
    return false;
  cpu_convert(WEFT_F32, x, vector_type, by_row ? a : b, by_row ? g->a_col : g->b_row, k);
  done = by_row ? cpu_gemv_narrow(g->b_type, n, k, x, b, g->b_row, g->b_col, sum)
                : cpu_gemv_narrow(g->a_type, m, k, x, a, g->a_col, g->a_row, sum);
  if (done) cpu_convert(g->c_type, c, WEFT_F32, sum, 1, count);
  return done;
}

static void put_sums(const cpu_gemm *g, int64_t m, int64_t n, const char *sum, char *c)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute), c_bytes = (int64_t)weft_dtype_bytes(g->c_type);

  if (g->c_row == n) { /* one run */
    n *= m;
    m = 1;
  }
  for (int64_t i = 0; i < m; i++)
    cpu_convert(g->c_type, c + i * g->c_row * c_bytes, g->compute, sum + i * n * bytes, 1, n);
}

static void tile_by_panels(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c,
                           char *scratch)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->compute);
  int64_t a_bytes = (int64_t)weft_dtype_bytes(g->a_type), b_bytes = (int64_t)weft_dtype_bytes(g->b_type);
  int64_t panel = WEFT_MIN(g->k, PANEL_K), depth = cpu_gemm_used_k(g);
  int64_t at[3];

  panel_scratch(g, at);
  char *pa = scratch, *pb = scratch + at[0], *sum = scratch + at[1];
  cpu_gemm dense = panel_product(g, m, n);

  if (g->k <= PANEL_K && cpu_dense_panel_scratch(&dense) > 0) {
    pack(g, pa, g->k, g->a_type, a, m, depth, g->a_row, g->a_col);
    if (dense.b_row == 1) pack(g, pb, g->k, g->b_type, b, n, depth, g->b_col, g->b_row);
    else pack(g, pb, n, g->b_type, b, depth, n, g->b_row, g->b_col);
    cpu_dense_tile(&dense, m, n, pa, pb, sum, scratch + at[2]);
    put_sums(g, m, n, sum, c);
    return;
  }
  memset(sum, 0, (size_t)(m * n * bytes));
  for (int64_t l = 0; l < depth; l += panel) {
    int64_t k = WEFT_MIN(panel, depth - l);
    const char *from_a = a + l * g->a_col * a_bytes, *from_b = b + l * g->b_row * b_bytes;
    pack(g, pa, k, g->a_type, from_a, m, k, g->a_row, g->a_col);
    if (g->b_row == 1 && g->b_col != 1) { /* keeps b's order: BLAS transposes at no cost */
      pack(g, pb, k, g->b_type, from_b, n, k, g->b_col, g->b_row);
      cpu_blas_gemm(g->compute, m, n, k, pa, k, 1, pb, 1, k, true, sum, n);
    } else {
      pack(g, pb, n, g->b_type, from_b, k, n, g->b_row, g->b_col);
      cpu_blas_gemm(g->compute, m, n, k, pa, k, 1, pb, n, 1, true, sum, n);
    }
  }
  put_sums(g, m, n, sum, c);
}

/* ---- the table of kernels ---------------------------------------------------------------------------------------- */

static bool is_vector(const cpu_gemm *g) { return g->m == 1 || g->n == 1; }
static bool is_real(const cpu_gemm *g) { return g->compute != WEFT_C64 && g->compute != WEFT_C128; }

/* True if all three matrices have one type of BLAS, and no operand is rounded first. */
static bool is_in_place(const cpu_gemm *g)
{
  return g->a_type == g->c_type && g->b_type == g->c_type && is_blas_type(g->c_type) && g->via == WEFT_INVALID;
}

static bool block_fits(const cpu_gemm *g)
{
  if (g->compute == WEFT_INVALID || !is_real(g)) return false;
  return weft_dtype_is_integer(g->compute) || cpu_block_is_fast();
}

static bool tiny_fits(const cpu_gemm *g)
{
  return g->compute != WEFT_INVALID && is_in_place(g) && is_real(g) && cpu_tiny_fits(g);
}

static bool dense_fits(const cpu_gemm *g) { return g->compute != WEFT_INVALID && cpu_dense_fits(g); }

static bool blas_fits(const cpu_gemm *g)
{
  bool suits = (g->a_row == 1 || g->a_col == 1) && (g->b_row == 1 || g->b_col == 1) && /* BLAS counts in int */
               WEFT_MAX(WEFT_MAX(g->a_row, g->a_col), WEFT_MAX(g->b_row, g->b_col)) <= INT_MAX &&
               WEFT_MAX(g->k, g->c_row) <= INT_MAX;

  return is_in_place(g) && suits && (is_vector(g) || !block_fits(g));
}

static bool convert_fits(const cpu_gemm *g) { return g->compute != WEFT_INVALID; }

static int64_t block_scratch(const cpu_gemm *g) { return WEFT_MAX(cpu_block_scratch(g), vector_scratch(g)); }
static int64_t convert_scratch(const cpu_gemm *g) { return WEFT_MAX(panel_scratch(g, NULL), vector_scratch(g)); }

static void tiny_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  (void)m, (void)n, (void)scratch; /* such a product has one tile */
  cpu_gemm_tiny(g, a, b, c);
}

static void blas_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  (void)scratch;
  cpu_blas_gemm(g->c_type, m, n, cpu_gemm_used_k(g), a, g->a_row, g->a_col, b, g->b_row, g->b_col, false, c, g->c_row);
}

static void block_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  if (!tile_by_vector(g, m, n, a, b, c, scratch)) cpu_block_tile(g, m, n, a, b, c, scratch);
}

static void convert_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  if (!tile_by_vector(g, m, n, a, b, c, scratch)) tile_by_panels(g, m, n, a, b, c, scratch);
}

/* The kernels, cheapest first: a product takes the first one that fits. */
typedef struct gemm_kernel {
  cpu_gemm_kind kind;
  bool (*fits)(const cpu_gemm *g);
  void (*plan)(cpu_gemm *g);             /* sets its own tiles and scratch; NULL: the common tiles and `scratch` */
  int64_t (*scratch)(const cpu_gemm *g); /* bytes for one tile; NULL: none */
  void (*tile)(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);
  const cpu_packed_ops *packed;          /* NULL: the kernel has no packed form */
  bool takes_depth;
} gemm_kernel;

static const gemm_kernel kernels[] = {
  {CPU_GEMM_AMX, cpu_amx_fits, NULL, cpu_amx_scratch, cpu_amx_tile, &cpu_amx_packed, true},
  {CPU_GEMM_LANES, cpu_lanes_fits, cpu_lanes_plan, NULL, cpu_lanes_tile, &cpu_lanes_packed, true},
  {CPU_GEMM_PAIRS, cpu_pairs_fits, cpu_pairs_plan, NULL, cpu_pairs_tile, NULL, true},
  {CPU_GEMM_TINY, tiny_fits, NULL, NULL, tiny_tile},
  {CPU_GEMM_VECTOR, cpu_vector_fits, cpu_vector_plan, NULL, cpu_vector_tile},
  {CPU_GEMM_FEW, cpu_few_fits, cpu_few_plan, NULL, cpu_few_tile, &cpu_few_packed},
  {CPU_GEMM_DENSE, dense_fits, cpu_dense_plan, NULL, cpu_dense_tile, &cpu_dense_packed, true},
  {CPU_GEMM_COMPLEX, cpu_complex_fits, cpu_complex_plan, NULL, cpu_complex_tile},
  {CPU_GEMM_BLAS, blas_fits, NULL, NULL, blas_tile, NULL, true},
  {CPU_GEMM_BLOCK, block_fits, NULL, block_scratch, block_tile, NULL, true},
  {CPU_GEMM_CONVERT, convert_fits, NULL, convert_scratch, convert_tile, NULL, true},
};

static const gemm_kernel *kernel_of(cpu_gemm_kind kind)
{
  for (size_t i = 0; i < WEFT_COUNT(kernels); i++)
    if (kernels[i].kind == kind) return &kernels[i];
  return NULL;
}

/* Halves the longer side until a tile is small enough to be shared out.  Products with few rows or columns are bound by
 * memory instead: they are split so that a tile reads a few megabytes. */
static void choose_tiles(cpu_gemm *g)
{
  int64_t least = MIN_TILE;
  double most = TILE_MFLOPS * 1e6 * (g->kind == CPU_GEMM_AMX ? 2 : weft_dtype_is_integer(g->compute) ? 0.2 : 1);

  g->tile_m = WEFT_MAX(g->m, 1);
  g->tile_n = WEFT_MAX(g->n, 1);
  if (WEFT_MIN(g->m, g->n) < SKINNY) {
    most = WEFT_MIN(most, 2e6 * (double)WEFT_MAX(1, WEFT_MIN(g->m, g->n)));
    least = is_vector(g) ? 256 : 128;
  }
  /* rows are independent, so tiles are as small as pays */
  if (g->kind == CPU_GEMM_BLOCK && cpu_block_reads_in_place(g)) {
    int64_t rows = (int64_t)(SMALL_TILE_MFLOPS * 1e6 / WEFT_MAX(2.0 * (double)g->n * (double)g->k, 1.0));
    g->tile_m = WEFT_MIN(g->tile_m, WEFT_ALIGN_UP(WEFT_MAX(rows, 1), 32));
    most = INFINITY;
  } else if (g->kind == CPU_GEMM_BLOCK && WEFT_MIN(g->m, g->n) >= SKINNY && g->flops <= LEAST_TILES * most) {
    /* each tile converts its operands, but with a single one all other threads would be idle */
    most = WEFT_MAX(g->flops / LEAST_TILES, SMALL_TILE_MFLOPS * 1e6);
    least = MIN_BLOCK;
  }
  while (2.0 * (double)g->tile_m * (double)g->tile_n * (double)g->k > most) {
    int64_t *longer = g->tile_m > g->tile_n ? &g->tile_m : &g->tile_n;
    if (*longer < 2 * least) break;
    *longer = WEFT_ALIGN_UP((*longer + 1) / 2, 32);
  }
}

void cpu_gemm_init(cpu_gemm *g)
{
  const gemm_kernel *kernel = kernels, *end = kernels + WEFT_COUNT(kernels);

  cpu_blas_init();
  g->flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
  g->compute = compute_type(g);
  g->scratch_bytes = 0;
  while (kernel < end && !kernel->fits(g)) kernel++;
  g->kind = kernel < end ? kernel->kind : CPU_GEMM_NONE;
  choose_tiles(g);
  if (kernel < end && kernel->plan) kernel->plan(g);
  g->tiles_n = (g->n + g->tile_n - 1) / g->tile_n;
  g->tiles = g->m && g->n ? (g->m + g->tile_m - 1) / g->tile_m * g->tiles_n : 0;
  if (kernel < end && kernel->scratch) g->scratch_bytes = kernel->scratch(g);
  g->column_bytes = kernel < end && kernel->packed && g->n ? kernel->packed->column_bytes(g) : 0;
}

bool cpu_gemm_can_add(const cpu_gemm *g)
{
  if (g->k == 0) return false;
  if (g->kind == CPU_GEMM_AMX) return g->c_type == WEFT_F32 && g->b_row != 1; /* it does not swap the operands */
  return g->kind == CPU_GEMM_DENSE;
}

cpu_gemm cpu_gemm_part(const cpu_gemm *whole, int64_t m, int64_t n)
{
  cpu_gemm g = *whole;

  if (m == g.m && n == g.n) return g;
  g.m = m;
  g.n = n;
  cpu_gemm_init(&g);
  return g;
}

int64_t cpu_gemm_packed_bytes(const cpu_gemm *g) { return g->column_bytes * WEFT_ALIGN_UP(g->n, CPU_PACKED_ALIGN); }

void cpu_gemm_pack(const cpu_gemm *g, int64_t part, const void *b, void *to)
{
  int64_t j = part * CPU_PACK_COLUMNS;

  kernel_of(g->kind)->packed->pack(g, WEFT_MIN(CPU_PACK_COLUMNS, g->n - j),
                                   (const char *)b + j * g->b_col * (int64_t)weft_dtype_bytes(g->b_type),
                                   (char *)to + j * g->column_bytes);
}

bool cpu_gemm_shares_packed(const cpu_gemm *whole, const cpu_gemm *part)
{
  return part->kind == whole->kind && part->n == whole->n && part->column_bytes == whole->column_bytes;
}

void cpu_gemm_tile(const cpu_gemm *g, int64_t tile, const void *a, const void *b, const void *packed, void *c,
                   void *scratch)
{
  cpu_gemm_tile_part(g, tile, g->n, g->k, a, b, packed, c, scratch);
}

bool cpu_gemm_takes_depth(const cpu_gemm *g)
{
  const gemm_kernel *kernel = kernel_of(g->kind);

  return kernel && kernel->takes_depth;
}

void cpu_gemm_tile_part(const cpu_gemm *whole, int64_t tile, int64_t columns, int64_t depth, const void *a,
                        const void *b, const void *packed, void *c, void *scratch)
{
  const cpu_gemm *g = whole;
  cpu_gemm part;
  int64_t i = tile / g->tiles_n * g->tile_m, j = tile % g->tiles_n * g->tile_n;
  int64_t m = WEFT_MIN(g->tile_m, g->m - i), n = WEFT_MIN(g->tile_n, columns - j);
  int64_t c_bytes = (int64_t)weft_dtype_bytes(g->c_type);
  const char *from_a = (const char *)a + i * g->a_row * (int64_t)weft_dtype_bytes(g->a_type);
  const char *from_b = (const char *)b + j * g->b_col * (int64_t)weft_dtype_bytes(g->b_type);
  char *to = (char *)c + (i * g->c_row + j) * c_bytes;

  if (n <= 0) return;
  if (g->k == 0) { /* an empty sum, which BLAS does not accept */
    for (int64_t r = 0; r < m; r++) memset(to + r * g->c_row * c_bytes, 0, (size_t)(n * c_bytes));
    return;
  }
  const gemm_kernel *kernel = kernel_of(g->kind);
  if (depth < g->k) {
    part = *whole;
    part.used_k = depth;
    g = &part;
  }
  if (packed && g->column_bytes)
    kernel->packed->tile(g, m, n, from_a, (const char *)packed + j * g->column_bytes, to, scratch);
  else if (kernel) kernel->tile(g, m, n, from_a, from_b, to, scratch);
}

void cpu_gemm_init_affine(cpu_gemm *g, const cpu_affine *affine)
{
  g->flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
  g->compute = WEFT_F32;
  g->kind = CPU_GEMM_FEW;
  g->column_bytes = 0;
  cpu_few_plan(g);
  g->scratch_bytes = cpu_few_affine_scratch(g, affine);
  g->tiles_n = (g->n + g->tile_n - 1) / g->tile_n;
  g->tiles = g->m && g->n ? g->tiles_n : 0;
}

void cpu_gemm_tile_affine(const cpu_gemm *g, const cpu_affine *affine, int64_t tile, const void *a, const void *b,
                          const void *const *operands, void *c, void *scratch)
{
  int64_t j = tile * g->tile_n;

  cpu_few_affine_tile(g, affine, j, WEFT_MIN(g->tile_n, g->n - j), a,
                      (const char *)b + j * g->b_col * (int64_t)weft_dtype_bytes(g->b_type), operands,
                      (char *)c + j * (int64_t)weft_dtype_bytes(g->c_type), scratch);
}

void cpu_gemm_begin(const cpu_gemm *g)
{
  if (g->kind == CPU_GEMM_AMX) cpu_amx_hold(g);
}

void cpu_gemm_end(const cpu_gemm *g)
{
  if (g->kind == CPU_GEMM_AMX) cpu_amx_let_go();
}
