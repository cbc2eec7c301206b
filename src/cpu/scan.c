/* cpu/scan.c -- cumulative operations.
 *
 * An operation per element would do, but each would wait for the one before it. So a row is cut into blocks
 * (gen_scan_block elements): a result is what all blocks before have in common (the carry), combined with the
 * block's own elements up to this one. The carries of the blocks are the scan of the blocks' sums, moved by one place;
 * they are made in the same way, level by level, up to a level that is short enough to be one block.
 *
 * Pass reduce-window-rewriter groups the operands of short scans in the same way. The grouping depends on the length
 * alone: neither the number of threads nor the number of rows changes a bit. A reversed scan is the same from the
 * last element on. Narrow floats are summed in f32, and rounded as they are stored.
 *
 * Sums and products of 32-bit elements go by squares of 16 blocks of 16, which are turned in registers: a vector adds
 * an element of each block to those before it. */
#include <config.h>

#include "cpu/scan.h"

#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "codegen/model/processor.h"
#include "codegen/model/strategy.h"
#include "cpu/gemm.h"
#include "cpu/gemm_block.h"
#include "cpu/hot.h"
#if defined __x86_64__
#include "cpu/gemm_turn.h"
#endif

enum {
  SIDE_BY_SIDE = 8,       /* blocks that are summed at the same time */
  CHUNK = 2048,           /* elements that are summed before their carries are added: both stay in L1 */
  MOST_BLOCKS = CHUNK / GEN_LEAST_SCAN_BLOCK,
  WIDTH = 256,            /* columns that are scanned side by side */
  ROWS_AHEAD = 4,         /* a strip's lines of a row are asked for so many rows before: rows are in different pages, so
                           * that the processor sees no pattern in them */
  TASK_ELEMS = 1 << 14,
  LONG_ROW = 1 << 17,     /* elements of a row that all threads share, if there are few rows */
  FEW_ROWS = 8,
};

/* What is known of a row at one level. */
typedef struct progress {
  int64_t at;              /* elements of the block so far */
  bool has_begun;          /* a block has begun: `sum` is of the last one or of this one */
  uint64_t sum[1], carry[1]; /* an element each */
} progress;

typedef struct scan_loops {
  void (*chunk)(const cpu_scan *s, progress *p, const void *in, void *out, int64_t count, const void *init,
                const void *carries);
  void (*totals)(const cpu_scan *s, const void *in, int64_t count, const void *init, void *out);
  void (*carry)(const cpu_scan *s, progress *p, int64_t blocks, void *sums, const void *init);
  void (*columns)(const cpu_scan *s, progress *p, int l, int64_t width, const void *x, const void *init, void *states,
                  void *out);
} scan_loops;

/* out[16][16] = in[16][16] turned, of 32-bit elements. */
typedef void turn_square(const void *in, void *out);

#if defined __x86_64__

static __attribute__((target("avx512f"))) void turn_wide(const void *in, void *out)
{
  __m512i v[16];

  CPU_UNROLL
  for (int i = 0; i < 16; i++) v[i] = _mm512_loadu_si512((const char *)in + 64 * i);
  cpu_turn_16x16(v);
  CPU_UNROLL
  for (int i = 0; i < 16; i++) _mm512_storeu_si512((char *)out + 64 * i, v[i]);
}

static __attribute__((target("avx2,fma"))) void turn_narrow(const void *in, void *out)
{
  for (int quarter = 0; quarter < 4; quarter++) {
    int row = quarter / 2 * 8, column = quarter % 2 * 8;
    __m256 v[8];
    CPU_UNROLL
    for (int i = 0; i < 8; i++) v[i] = _mm256_loadu_ps((const float *)in + 16 * (row + i) + column);
    cpu_turn_8x8(v);
    CPU_UNROLL
    for (int i = 0; i < 8; i++) _mm256_storeu_ps((float *)out + 16 * (column + i) + row, v[i]);
  }
}

/* The fastest one, or NULL, where squares do not pay. */
static turn_square *square_turner(void)
{
  if (cpu_block_is_fast() && !cpu_block_narrow) return turn_wide;
  return gen_this_processor.avx2 ? turn_narrow : NULL;
}

#else
static turn_square *square_turner(void) { return NULL; }
#endif

/* IEEE 754-2019 maximum and minimum: NaN wins, -0 < 0. Equal numbers of different bits are zeros: 0 + -0 is 0, and
 * -(-0 + -(0)) is -0. */
#define MAX_FLOAT(a, b) ((a) > (b) || (a) != (a) ? (a) : (a) == (b) ? (a) == 0 ? (a) + (b) : (a) : (b))
#define MIN_FLOAT(a, b) ((a) < (b) || (a) != (a) ? (a) : (a) == (b) ? (a) == 0 ? -(-(a) + -(b)) : (a) : (b))
#define SUM(a, b) ((a) + (b))
#define PRODUCT(a, b) ((a) * (b))

#define ELEM float
#define SQUARES
#define NAME(x) f32_add_##x
#define OP SUM
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) f32_multiply_##x
#define OP PRODUCT
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#undef SQUARES
#define NAME(x) f32_maximum_##x
#define OP MAX_FLOAT
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) f32_minimum_##x
#define OP MIN_FLOAT
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#undef ELEM

#define ELEM double
#define NAME(x) f64_add_##x
#define OP SUM
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) f64_multiply_##x
#define OP PRODUCT
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) f64_maximum_##x
#define OP MAX_FLOAT
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) f64_minimum_##x
#define OP MIN_FLOAT
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#undef ELEM

/* Sums and products wrap: those of signed integers have the bits of unsigned ones. */
#define ELEM uint32_t
#define SQUARES
#define NAME(x) u32_add_##x
#define OP SUM
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) u32_multiply_##x
#define OP PRODUCT
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#undef SQUARES
#define NAME(x) u32_maximum_##x
#define OP WEFT_MAX
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) u32_minimum_##x
#define OP WEFT_MIN
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#undef ELEM

#define ELEM uint64_t
#define NAME(x) u64_add_##x
#define OP SUM
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) u64_multiply_##x
#define OP PRODUCT
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) u64_maximum_##x
#define OP WEFT_MAX
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) u64_minimum_##x
#define OP WEFT_MIN
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#undef ELEM

#define ELEM int32_t
#define NAME(x) s32_maximum_##x
#define OP WEFT_MAX
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) s32_minimum_##x
#define OP WEFT_MIN
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#undef ELEM

#define ELEM int64_t
#define NAME(x) s64_maximum_##x
#define OP WEFT_MAX
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#define NAME(x) s64_minimum_##x
#define OP WEFT_MIN
#include "cpu/scan_loops.h"
#undef NAME
#undef OP
#undef ELEM

/* Narrow floats are converted to f32 and back. */
static const struct scan_row {
  weft_dtype type;
  hlo_opcode op;
  const scan_loops *loops;
} rows[] = {
#define ROWS(type, sums, extrema)                                                                     \
  {type, HLO_ADD, &sums##_add_loops}, {type, HLO_MULTIPLY, &sums##_multiply_loops},                   \
  {type, HLO_MAXIMUM, &extrema##_maximum_loops}, {type, HLO_MINIMUM, &extrema##_minimum_loops}
  ROWS(WEFT_F32, f32, f32), ROWS(WEFT_BF16, f32, f32), ROWS(WEFT_F16, f32, f32), ROWS(WEFT_F64, f64, f64),
  ROWS(WEFT_S32, u32, s32), ROWS(WEFT_U32, u32, u32), ROWS(WEFT_S64, u64, s64), ROWS(WEFT_U64, u64, u64),
#undef ROWS
};

static weft_dtype summed_in(weft_dtype type) { return type == WEFT_BF16 || type == WEFT_F16 ? WEFT_F32 : type; }

weft_status *cpu_scan_init(cpu_scan *s, const hlo_instr *instr)
{
  gen_scan form = {0};
  int64_t n;

  bool fits = gen_library_scan(instr, &form);
  *s = (cpu_scan){
    .type = instr->shape->type, .operation = -1, .n = form.n, .inner = form.inner, .is_reverse = form.is_reverse};
  for (size_t i = 0; i < WEFT_COUNT(rows) && fits; i++)
    if (rows[i].type == s->type && rows[i].op == form.op) s->operation = (int)i;
  if (s->operation < 0) return WEFT_ERR(UNIMPLEMENTED, "scan of %s", weft_dtype_name(s->type));
  s->outer = hlo_shape_elems(instr->shape) / (s->n * s->inner);
  for (n = s->n; n > GEN_MOST_TOP_SCAN; n = (n + s->size[s->levels - 1] - 1) / s->size[s->levels - 1])
    s->size[s->levels++] = gen_scan_block(n);
  s->size[s->levels++] = n;
  s->blocks = (s->n + s->size[0] - 1) / s->size[0];
  if (s->inner == 1 && s->outer < FEW_ROWS && s->n >= LONG_ROW)
    s->scratch_bytes = s->blocks * weft_dtype_bytes(summed_in(s->type));
  return NULL;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

typedef struct row_run {
  const cpu_scan *s;
  const scan_loops *loops;
  const char *in;
  char *out, *sums;      /* sums: of the blocks of the row that all threads share, or NULL */
  const void *init;
  int64_t bytes, chunk;  /* of an element; elements of a chunk: whole blocks */
  int64_t rows_a_task, row;
  bool is_last;          /* the carries are known */
} row_run;

/* Where `count` elements that begin `at` elements after the start of the scan lie lowest in memory. */
static int64_t lowest(const cpu_scan *s, int64_t row, int64_t at, int64_t count)
{
  return row * s->n + (s->is_reverse ? s->n - at - count : at);
}

/* One chunk of a row. `totals` NULL: the results are made. */
static void run_chunk(const row_run *r, progress *p, int64_t row, int64_t at, void *totals)
{
  const cpu_scan *s = r->s;
  int64_t count = WEFT_MIN(r->chunk, s->n - at), low = lowest(s, row, at, count), first = s->is_reverse ? count - 1 : 0;
  weft_dtype wide = summed_in(s->type);
  int64_t wide_bytes = weft_dtype_bytes(wide);
  const char *in = r->in + low * r->bytes, *carries = r->sums ? r->sums + at / s->size[0] * wide_bytes : NULL;
  char *out = r->out + low * r->bytes;
  float buffer[CHUNK];

  if (wide != s->type) {
    cpu_convert(wide, buffer, s->type, in, 1, count);
    in = (const char *)buffer;
  }
  if (totals) {
    r->loops->totals(s, in + first * wide_bytes, count, r->init, totals);
    return;
  }
  char *to = wide != s->type ? (char *)buffer : out;
  r->loops->chunk(s, p, in + first * wide_bytes, to + first * wide_bytes, count, r->init, carries);
  if (wide != s->type) cpu_convert(s->type, out, wide, buffer, 1, count);
}

static void rows_task(void *ctx, int64_t task)
{
  const row_run *r = ctx;
  int64_t end = WEFT_MIN((task + 1) * r->rows_a_task, r->s->outer);

  for (int64_t row = task * r->rows_a_task; row < end; row++) {
    progress p[CPU_SCAN_MOST_LEVELS] = {{0}};
    for (int64_t at = 0; at < r->s->n; at += r->chunk) run_chunk(r, p, row, at, NULL);
  }
}

/* Several chunks of the row that all threads share. */
static void part_task(void *ctx, int64_t task)
{
  const row_run *r = ctx;
  int64_t part = WEFT_ALIGN_UP(TASK_ELEMS, r->chunk), end = WEFT_MIN((task + 1) * part, r->s->n);

  for (int64_t at = task * part; at < end; at += r->chunk)
    run_chunk(r, NULL, r->row, at,
              r->is_last ? NULL : r->sums + at / r->s->size[0] * weft_dtype_bytes(summed_in(r->s->type)));
}

static void run_shared(row_run *r, rt_pool *pool)
{
  int64_t part = WEFT_ALIGN_UP(TASK_ELEMS, r->chunk), parts = (r->s->n + part - 1) / part;

  for (r->row = 0; r->row < r->s->outer; r->row++) {
    progress p[CPU_SCAN_MOST_LEVELS] = {{0}};
    r->is_last = false;
    rt_parallel_for(pool, parts, part_task, r);
    r->loops->carry(r->s, p, r->s->blocks, r->sums, r->init);
    r->is_last = true;
    rt_parallel_for(pool, parts, part_task, r);
  }
}

/* ---- columns --------------------------------------------------------------------------------------------------- */

typedef struct column_run {
  const cpu_scan *s;
  const scan_loops *loops;
  const char *in;
  char *out;
  const void *init;
  int64_t bytes, strips; /* of an element; of the columns of one matrix */
  atomic_bool no_memory;
} column_run;

/* Asks for the lines of `bytes` bytes of the operand and of the result. */
static void fetch_lines(const char *in, const char *out, int64_t bytes)
{
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(in + i);
    __builtin_prefetch(out + i, 1);
  }
}

static void columns_task(void *ctx, int64_t task)
{
  column_run *r = ctx;
  const cpu_scan *s = r->s;
  weft_dtype wide = summed_in(s->type);
  int64_t first = task % r->strips * WIDTH, width = WEFT_MIN(WIDTH, s->inner - first);
  int64_t wide_bytes = weft_dtype_bytes(wide), line = width * wide_bytes;
  int64_t step = s->inner * r->bytes * (s->is_reverse ? -1 : 1); /* from a row to the next one */
  char *states = rt_task_scratch(line * (2 * s->levels + 2), &r->no_memory), *init, *buffer;
  progress p[CPU_SCAN_MOST_LEVELS] = {{0}};

  if (!states) return;
  init = states + 2 * s->levels * line;
  buffer = init + line;
  for (int64_t i = 0; i < width; i++) memcpy(init + i * wide_bytes, r->init, (size_t)wide_bytes);
  for (int64_t k = 0; k < s->n; k++) {
    int64_t i = s->is_reverse ? s->n - 1 - k : k;
    int64_t at = ((task / r->strips * s->n + i) * s->inner + first) * r->bytes, ahead = step * ROWS_AHEAD;
    if (k + ROWS_AHEAD < s->n) fetch_lines(r->in + at + ahead, r->out + at + ahead, width * r->bytes);
    if (wide == s->type) {
      r->loops->columns(s, p, 0, width, r->in + at, init, states, r->out + at);
      continue;
    }
    cpu_convert(wide, buffer, s->type, r->in + at, 1, width);
    r->loops->columns(s, p, 0, width, buffer, init, states, buffer);
    cpu_convert(s->type, r->out + at, wide, buffer, 1, width);
  }
}

weft_status *cpu_scan_run(const cpu_scan *s, rt_pool *pool, const void *in, const void *init, void *out, void *scratch)
{
  const scan_loops *loops = rows[s->operation].loops;
  weft_dtype wide = summed_in(s->type);
  int64_t bytes = weft_dtype_bytes(s->type);
  uint64_t first;

  cpu_convert(wide, &first, s->type, init, 1, 1);
  if (s->inner > 1) {
    column_run c = {.s = s, .loops = loops, .in = in, .out = out, .init = &first, .bytes = bytes,
                    .strips = (s->inner + WIDTH - 1) / WIDTH};
    rt_parallel_for(pool, s->outer * c.strips, columns_task, &c);
    return atomic_load(&c.no_memory) ? WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory") : NULL;
  }
  row_run r = {.s = s, .loops = loops, .in = in, .out = out, .init = &first, .bytes = bytes,
               .chunk = CHUNK / s->size[0] * s->size[0], .rows_a_task = WEFT_MAX(TASK_ELEMS / s->n, 1)};
  if (scratch && pool && rt_pool_threads(pool) > 2) {
    r.sums = scratch;
    run_shared(&r, pool);
    return NULL;
  }
  rt_parallel_for(pool, (s->outer + r.rows_a_task - 1) / r.rows_a_task, rows_task, &r);
  return NULL;
}
