/* cpu/transpose.c -- copies of arrays into another order of their dimensions.
 *
 * Neighbouring dimensions that one step walks become one. If the last dimension of the result is not dense in the
 * source, the dimensions that are (x) and the last one (y) span planes, which are turned block by block, so that both
 * sides stay in cache lines:   dst[place of x + y] = src[x + y * step] */
#include <config.h>

#include "cpu/transpose.h"

#include <string.h>

#include "base/macros.h"
#include "codegen/model/processor.h"
#include "cpu/gemm.h"
#include "cpu/hot.h"

#if defined __x86_64__
#include "cpu/gemm_turn.h"
#endif

enum {
  BLOCK = 32,
  SIDE = 8,                /* of the squares that are turned in registers */
  LEAST_RUN = 4,           /* elements side by side in the source from which on blocks pay */
  TASK_ELEMS = 1 << 14,    
};

typedef struct transpose_job {
  const cpu_transpose *t;
  char *dst;
  const char *src;
  int64_t rows_per_task, rows;
  /* of the form with planes: the dimensions of x, the fastest first, and the elements that they span */
  int dense[HLO_MAX_RANK], dense_count;
  int64_t run, parts; /* parts: tasks of a plane */
} transpose_job;

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* A row is the last dimension. */
static void rows_task(void *ctx, int64_t task)
{
  const transpose_job *job = ctx;
  const cpu_transpose *t = job->t;
  int last = t->rank - 1;
  int64_t first = task * job->rows_per_task, end = WEFT_MIN(first + job->rows_per_task, job->rows);
  static const weft_dtype any_of[] = {[1] = WEFT_U8, [2] = WEFT_U16, [4] = WEFT_U32, [8] = WEFT_U64, [16] = WEFT_C128};
  weft_dtype type = any_of[t->elem_bytes];

  for (int64_t row = first; row < end; row++) {
    int64_t rest = row, from = 0;
    for (int d = last - 1; d >= 0; d--) {
      from += rest % t->size[d] * t->step[d];
      rest /= t->size[d];
    }
    cpu_convert(type, job->dst + row * t->size[last] * t->elem_bytes, type, job->src + from * t->elem_bytes,
                t->step[last], t->size[last]);
  }
}

/* ---- blocks of planes -------------------------------------------------------------------------------------------- */

/* to[at[x] + y] = from[x + y * step] for x < xs <= BLOCK and y < ys. */
#define TURN_BLOCK(name, type)                                                                                 \
  static CPU_HOT void name(type *restrict to, const int64_t *at, const type *restrict from, int64_t step, int64_t xs, int64_t ys) \
  {                                                                                                            \
    for (int64_t x = 0; x < xs; x++) {                                                                         \
      type *row = to + at[x];                                                                                  \
      for (int64_t y = 0; y < ys; y++) row[y] = from[x + y * step];                                            \
    }                                                                                                          \
  }
TURN_BLOCK(turn_block_1, uint8_t)
TURN_BLOCK(turn_block_2, uint16_t)
TURN_BLOCK(turn_block_4, uint32_t)
TURN_BLOCK(turn_block_8, uint64_t)
TURN_BLOCK(turn_block_16, unsigned __int128)

#if defined __x86_64__

static __attribute__((target("avx2,fma"))) void turn_square_4(float *to, const int64_t *at, const float *from,
                                                              int64_t step)
{
  __m256 v[SIDE];

  for (int q = 0; q < SIDE; q++) v[q] = _mm256_loadu_ps(from + q * step);
  cpu_turn_8x8(v);
  for (int q = 0; q < SIDE; q++) _mm256_storeu_ps(to + at[q], v[q]);
}

/* The same for 16 bits: pairs, then fours, then eights of one column come to lie side by side. */
static void turn_square_2(uint16_t *to, const int64_t *at, const uint16_t *from, int64_t step)
{
  __m128i v[SIDE], pairs[SIDE], fours[SIDE];

  for (int q = 0; q < SIDE; q++) v[q] = _mm_loadu_si128((const __m128i *)(const void *)(from + q * step));
  for (int q = 0; q < SIDE; q += 2) {
    pairs[q] = _mm_unpacklo_epi16(v[q], v[q + 1]);
    pairs[q + 1] = _mm_unpackhi_epi16(v[q], v[q + 1]);
  }
  for (int q = 0; q < 2; q++)
    for (int half = 0; half < 2; half++) { /* rows 4 half to 4 half + 3; columns 4 q to 4 q + 3 */
      fours[4 * half + 2 * q] = _mm_unpacklo_epi32(pairs[4 * half + q], pairs[4 * half + 2 + q]);
      fours[4 * half + 2 * q + 1] = _mm_unpackhi_epi32(pairs[4 * half + q], pairs[4 * half + 2 + q]);
    }
  for (int q = 0; q < 4; q++) { /* columns 2 q and 2 q + 1 */
    _mm_storeu_si128((__m128i *)(void *)(to + at[2 * q]), _mm_unpacklo_epi64(fours[q], fours[4 + q]));
    _mm_storeu_si128((__m128i *)(void *)(to + at[2 * q + 1]), _mm_unpackhi_epi64(fours[q], fours[4 + q]));
  }
}

/* Turns the whole squares of a block, if there is code for this width of elements and this machine. Returns how many y
 * of the first *xs_done x that did. */
static int64_t turn_squares(char *to, const int64_t *at, const char *from, int64_t step, int64_t xs, int64_t ys,
                            int64_t bytes, int64_t *xs_done)
{
  *xs_done = 0;
  if (bytes != 2 && !(bytes == 4 && gen_this_processor.avx2)) return 0;
  *xs_done = xs / SIDE * SIDE;
  for (int64_t x = 0; x < *xs_done; x += SIDE)
    for (int64_t y = 0; y + SIDE <= ys; y += SIDE) {
      char *square = to + y * bytes;
      const char *source = from + (x + y * step) * bytes;
      if (bytes == 4) turn_square_4((float *)(void *)square, at + x, (const float *)(const void *)source, step);
      else turn_square_2((uint16_t *)(void *)square, at + x, (const uint16_t *)(const void *)source, step);
    }
  return ys / SIDE * SIDE;
}

#else

static int64_t turn_squares(char *to, const int64_t *at, const char *from, int64_t step, int64_t xs, int64_t ys,
                            int64_t bytes, int64_t *xs_done)
{
  (void)to, (void)at, (void)from, (void)step, (void)xs, (void)ys, (void)bytes;
  *xs_done = 0;
  return 0;
}

#endif

static void turn_rest(char *to, const int64_t *at, const char *from, int64_t step, int64_t xs, int64_t ys,
                      int64_t bytes)
{
#define TURN(width, type) \
  case width: turn_block_##width((type *)(void *)to, at, (const type *)(const void *)from, step, xs, ys); break
  switch (bytes) {
    TURN(1, uint8_t);
    TURN(2, uint16_t);
    TURN(4, uint32_t);
    TURN(8, uint64_t);
    TURN(16, unsigned __int128);
  }
#undef TURN
}

static void turn_block(char *to, const int64_t *at, const char *from, int64_t step, int64_t xs, int64_t ys,
                       int64_t bytes)
{
  int64_t xs_done, ys_done = turn_squares(to, at, from, step, xs, ys, bytes, &xs_done);

  if (xs_done && ys_done < ys)
    turn_rest(to + ys_done * bytes, at, from + ys_done * step * bytes, step, xs_done, ys - ys_done, bytes);
  if (xs_done < xs) turn_rest(to, at + xs_done, from + xs_done * bytes, step, xs - xs_done, ys, bytes);
}

/* The elements of dst between neighbours of each dimension. */
static void dst_steps(const cpu_transpose *t, int64_t *steps)
{
  int64_t step = 1;

  for (int d = t->rank - 1; d >= 0; d--) {
    steps[d] = step;
    step *= t->size[d];
  }
}

static bool is_dense(const transpose_job *job, int d)
{
  for (int i = 0; i < job->dense_count; i++)
    if (job->dense[i] == d) return true;
  return false;
}

/* Turns a part of a plane. Planes are numbered by the dimensions that are neither the last one nor among those of x. */
static void plane_task(void *ctx, int64_t task)
{
  const transpose_job *job = ctx;
  const cpu_transpose *t = job->t;
  int last = t->rank - 1;
  int64_t steps[HLO_MAX_RANK], at[BLOCK], plane = task / job->parts, from = 0, to = 0, bytes = t->elem_bytes;
  int64_t per_part = WEFT_ALIGN_UP((job->run + job->parts - 1) / job->parts, BLOCK),
          first = task % job->parts * per_part;
  int64_t end = WEFT_MIN(job->run, first + per_part), ys = t->size[last], step = t->step[last];

  dst_steps(t, steps);
  for (int d = last - 1; d >= 0; d--) {
    if (is_dense(job, d)) continue;
    from += plane % t->size[d] * t->step[d];
    to += plane % t->size[d] * steps[d];
    plane /= t->size[d];
  }
  for (int64_t x = first; x < end; x += BLOCK) {
    int64_t xs = WEFT_MIN(BLOCK, end - x);
    for (int64_t i = 0; i < xs; i++) {
      int64_t rest = x + i;
      at[i] = 0;
      for (int k = 0; k < job->dense_count; k++) {
        at[i] += rest % t->size[job->dense[k]] * steps[job->dense[k]];
        rest /= t->size[job->dense[k]];
      }
    }
    for (int64_t y = 0; y < ys; y += BLOCK)
      turn_block(job->dst + (to + y) * bytes, at, job->src + (from + x + y * step) * bytes, step, xs,
                 WEFT_MIN(BLOCK, ys - y), bytes);
  }
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

/* The same copy with fewer dimensions: none of size 1, and one for neighbours that one step walks. */
static cpu_transpose merged(const cpu_transpose *t)
{
  cpu_transpose out = {.elems = t->elems, .elem_bytes = t->elem_bytes};

  for (int d = 0; d < t->rank; d++) {
    int before = out.rank - 1;
    if (t->size[d] == 1) continue;
    if (before >= 0 && out.step[before] == t->size[d] * t->step[d]) {
      out.size[before] *= t->size[d];
      out.step[before] = t->step[d];
      continue;
    }
    out.size[out.rank] = t->size[d];
    out.step[out.rank++] = t->step[d];
  }
  return out;
}

/* Finds the dimensions of x: those that lie side by side in the source. */
static void find_run(transpose_job *job)
{
  const cpu_transpose *t = job->t;

  job->run = 1;
  for (bool found = true; found;) {
    found = false;
    for (int d = 0; d < t->rank - 1 && !found; d++) {
      if (t->step[d] != job->run || is_dense(job, d)) continue;
      job->dense[job->dense_count++] = d;
      job->run *= t->size[d];
      found = true;
    }
  }
}

void cpu_transpose_run(const cpu_transpose *transpose, rt_pool *pool, void *dst, const void *src)
{
  cpu_transpose t = merged(transpose);
  transpose_job job = {.t = &t, .dst = dst, .src = src, .run = 1};

  if (t.elems == 0) return;
  if (t.rank == 0) {
    memcpy(dst, src, (size_t)t.elem_bytes);
    return;
  }
  int64_t row = t.size[t.rank - 1];
  if (t.step[t.rank - 1] != 1) find_run(&job);
  if (job.run >= LEAST_RUN) {
    job.parts = WEFT_MAX(1, WEFT_MIN(job.run / BLOCK, job.run * row / TASK_ELEMS));
    rt_parallel_for(pool, t.elems / (job.run * row) * job.parts, plane_task, &job);
    return;
  }
  job.rows = t.elems / row;
  job.rows_per_task = WEFT_MAX(1, TASK_ELEMS / row);
  rt_parallel_for(pool, (job.rows + job.rows_per_task - 1) / job.rows_per_task, rows_task, &job);
}
