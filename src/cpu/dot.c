/* cpu/dot.c -- HLO dot (dot.h). The dimensions of each operand are batch, free or contracting. If its free dimensions
 * collapse into one dimension with a fixed step, and its contracting dimensions too, the operand already is a stack of
 * matrices. Otherwise it is first copied into that order. */
#include <config.h>

#include "cpu/dot.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"

/* ---- planning ---------------------------------------------------------------------------------------------------- */

typedef struct dim_list {
  int count;
  int64_t dim[HLO_MAX_RANK];
} dim_list;

static bool contains(hlo_ints list, int64_t value)
{
  for (int i = 0; i < list.count; i++)
    if (list.v[i] == value) return true;
  return false;
}

static void dense_steps(const hlo_shape *shape, int64_t *steps)
{
  int64_t step = 1;

  for (int d = shape->rank - 1; d >= 0; d--) {
    steps[d] = step;
    step *= shape->dims[d];
  }
}

/* The listed dimensions as one dimension; false if no single step walks them in order. */
static bool collapse(const hlo_shape *shape, const int64_t *steps, const dim_list *list, int64_t *size, int64_t *step)
{
  *size = 1;
  *step = 1;
  for (int i = list->count - 1; i >= 0; i--) {
    int64_t d = list->dim[i];
    if (shape->dims[d] == 1) continue;
    if (*size == 1) *step = steps[d];
    else if (steps[d] != *size * *step) return false;
    *size *= shape->dims[d];
  }
  return true;
}

static int64_t product(const hlo_shape *shape, const dim_list *list)
{
  int64_t size = 1;

  for (int i = 0; i < list->count; i++) size *= shape->dims[list->dim[i]];
  return size;
}

/* One operand as [batch][free][contracting]: the step of each, after packing if packing is needed. */
typedef struct operand {
  int64_t free, contracted, free_step, contracted_step;
  bool pack;
} operand;

static operand plan_operand(const hlo_shape *shape, const dim_list *batch, const dim_list *free,
                            const dim_list *contracting, int64_t *batch_steps, cpu_transpose *order)
{
  int64_t steps[HLO_MAX_RANK];
  operand o;

  dense_steps(shape, steps);
  for (int i = 0; i < batch->count; i++) batch_steps[i] = steps[batch->dim[i]];
  o.pack = !collapse(shape, steps, free, &o.free, &o.free_step) ||
           !collapse(shape, steps, contracting, &o.contracted, &o.contracted_step);
  if (!o.pack) return o;
  o.free = product(shape, free);
  o.contracted = o.free_step = product(shape, contracting);
  o.contracted_step = 1;
  *order = (cpu_transpose){.elems = hlo_shape_elems(shape), .elem_bytes = (int64_t)weft_dtype_bytes(shape->type)};
  const dim_list *lists[] = {batch, free, contracting};
  for (int l = 0; l < 3; l++)
    for (int i = 0; i < lists[l]->count; i++) {
      order->size[order->rank] = shape->dims[lists[l]->dim[i]];
      order->step[order->rank++] = steps[lists[l]->dim[i]];
    }
  int64_t dense = o.free * o.contracted;
  for (int i = batch->count - 1; i >= 0; i--) {
    batch_steps[i] = dense;
    dense *= shape->dims[batch->dim[i]];
  }
  return o;
}

/* Single-pass algorithms round the operands. Algorithms of several passes only approximate f32, which the kernels
 * compute anyway. */
static weft_dtype algorithm_type(hlo_dot_algorithm algorithm)
{
  switch (algorithm) {
  case HLO_ALG_F16_F16_F16:
  case HLO_ALG_F16_F16_F32: return WEFT_F16;
  case HLO_ALG_BF16_BF16_BF16:
  case HLO_ALG_BF16_BF16_F32: return WEFT_BF16;
  default: return WEFT_INVALID;
  }
}

/* ---- packed forms ------------------------------------------------------------------------------------------------ */

int cpu_packing_begin(cpu_packing *p, const void *plan, const cpu_gemm *g, int64_t bytes,
                      bool (*pack)(const rt_packing *packing, rt_pool *pool, const void *from, void *to))
{
  int64_t key[] = {g->kind, g->b_type, g->n, g->k, g->b_row, g->b_col};

  memcpy(p->key, key, sizeof key);
  p->plan = plan;
  p->base = (rt_packing){.key = p->key, .key_bytes = sizeof key, .bytes = bytes, .pack = pack};
  return (int)WEFT_COUNT(key);
}

typedef struct pack_job {
  const cpu_gemm *gemm;
  int64_t parts, step, bytes;
  const char *from;
  char *to;
} pack_job;

static void pack_task(void *ctx, int64_t task)
{
  const pack_job *job = ctx;
  int64_t matrix = task / job->parts;

  cpu_gemm_pack(job->gemm, task % job->parts, job->from + matrix * job->step, job->to + matrix * job->bytes);
}

void cpu_pack_matrices(const cpu_gemm *g, rt_pool *pool, int64_t count, int64_t step, const void *b, void *to)
{
  pack_job job = {.gemm = g, .parts = (g->n + CPU_PACK_COLUMNS - 1) / CPU_PACK_COLUMNS, .step = step,
                  .bytes = cpu_gemm_packed_bytes(g), .from = b, .to = to};

  rt_parallel_for(pool, count * job.parts, pack_task, &job);
}

static bool pack_rhs(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  const cpu_dot *dot = ((const cpu_packing *)packing)->plan;

  cpu_pack_matrices(&dot->gemm, pool, 1, 0, from, to);
  return true;
}

weft_status *cpu_dot_init(cpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs, const hlo_shape *rhs,
                          const hlo_shape *out)
{
  dim_list lhs_batch = {0}, rhs_batch = {0}, lhs_free = {0}, rhs_free = {0}, lhs_sum = {0}, rhs_sum = {0};
  weft_dtype via = algorithm_type(attrs->algorithm);

  if (attrs->sparsity) return WEFT_ERR(UNIMPLEMENTED, "dot with sparsity_config");
  memset(dot, 0, sizeof *dot);
  for (int i = 0; i < attrs->lhs_batch.count; i++) {
    lhs_batch.dim[lhs_batch.count++] = attrs->lhs_batch.v[i];
    rhs_batch.dim[rhs_batch.count++] = attrs->rhs_batch.v[i];
  }
  for (int d = 0; d < lhs->rank; d++) { /* the contracting dimensions in the order in which they lie in lhs */
    for (int i = 0; i < attrs->lhs_contracting.count; i++)
      if (attrs->lhs_contracting.v[i] == d) {
        lhs_sum.dim[lhs_sum.count++] = d;
        rhs_sum.dim[rhs_sum.count++] = attrs->rhs_contracting.v[i];
      }
    if (!contains(attrs->lhs_batch, d) && !contains(attrs->lhs_contracting, d)) lhs_free.dim[lhs_free.count++] = d;
  }
  for (int d = 0; d < rhs->rank; d++)
    if (!contains(attrs->rhs_batch, d) && !contains(attrs->rhs_contracting, d)) rhs_free.dim[rhs_free.count++] = d;

  operand l = plan_operand(lhs, &lhs_batch, &lhs_free, &lhs_sum, dot->lhs_step, &dot->lhs_order);
  operand r = plan_operand(rhs, &rhs_batch, &rhs_free, &rhs_sum, dot->rhs_step, &dot->rhs_order);
  dot->pack_lhs = l.pack;
  dot->pack_rhs = r.pack;
  dot->lhs_pack_bytes = l.pack ? WEFT_ALIGN_UP(hlo_shape_bytes(lhs), 64) : 0;
  dot->scratch_bytes = dot->lhs_pack_bytes + (r.pack ? hlo_shape_bytes(rhs) : 0);
  dot->batch_rank = lhs_batch.count;
  dot->batches = 1;
  for (int i = 0; i < lhs_batch.count; i++) dot->batches *= dot->batch_size[i] = lhs->dims[lhs_batch.dim[i]];
  dot->gemm = (cpu_gemm){
    .a_type = lhs->type,
    .b_type = rhs->type,
    .c_type = out->type,
    .m = l.free,
    .n = r.free,
    .k = l.contracted,
    .a_row = l.free_step,
    .a_col = l.contracted_step,
    .b_row = r.contracted_step,
    .b_col = r.free_step,
    .c_row = r.free,
    .via = lhs->type == via && rhs->type == via ? WEFT_INVALID : via,
  };
  cpu_gemm_init(&dot->gemm);
  if (dot->gemm.kind == CPU_GEMM_NONE)
    return WEFT_ERR(UNIMPLEMENTED, "dot of %s and %s to %s", weft_dtype_name(lhs->type), weft_dtype_name(rhs->type),
                    weft_dtype_name(out->type));
  int64_t packed_bytes = cpu_gemm_packed_bytes(&dot->gemm);
  if (packed_bytes > 0 && dot->batches == 1 && !dot->pack_rhs)
    cpu_packing_begin(&dot->packing, dot, &dot->gemm, packed_bytes, pack_rhs);
  /* tiles of all rows are cut along the columns only: then each thread reads its own part of rhs */
  dot->packing.base.whole = dot->gemm.tile_m < dot->gemm.m;
  double per_tile = dot->gemm.flops / (double)WEFT_MAX(1, dot->gemm.tiles);
  /* one task takes some tens of microseconds */
  dot->per_task = (int64_t)WEFT_MAX(1.0, 1e6 / WEFT_MAX(per_tile, 100.0));
  return NULL;
}

bool cpu_dot_is_cut(const cpu_dot *dot)
{
  enum { MANY = 8 };
  const cpu_gemm *g = &dot->gemm;

  return dot->batches >= MANY || (g->tile_m == g->m && g->n >= MANY * g->m) ||
         (g->tile_n == g->n && g->m >= MANY * g->n);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct dot_job {
  const cpu_dot *dot;
  const char *lhs, *rhs;
  rt_form packed;          /* of rhs */
  const rt_pool *pool;
  char *out;
  int64_t tiles;
  atomic_bool failed;
} dot_job;

static void dot_task(void *ctx, int64_t task)
{
  dot_job *job = ctx;
  const cpu_dot *dot = job->dot;
  const cpu_gemm *g = &dot->gemm;
  int64_t first = task * dot->per_task, end = WEFT_MIN(first + dot->per_task, job->tiles);
  int64_t a_bytes = (int64_t)weft_dtype_bytes(g->a_type), b_bytes = (int64_t)weft_dtype_bytes(g->b_type);
  int64_t c_step = g->m * g->n * (int64_t)weft_dtype_bytes(g->c_type);

  /* a program may have thousands of these products, so each must be cheap */
  if (g->kind == CPU_GEMM_TINY && dot->batch_rank == 1) {
    for (int64_t t = first; t < end; t++)
      cpu_gemm_tiny(g, job->lhs + t * dot->lhs_step[0] * a_bytes, job->rhs + t * dot->rhs_step[0] * b_bytes,
                    job->out + t * c_step);
    return;
  }
  void *scratch = g->scratch_bytes ? rt_task_scratch(g->scratch_bytes, &job->failed) : NULL;
  if (g->scratch_bytes && !scratch) return;
  const void *packed = rt_form_near(job->packed, job->pool);
  for (int64_t tile = first; tile < end; tile++) {
    int64_t batch = tile / g->tiles, rest = batch, l = 0, r = 0;
    for (int d = dot->batch_rank - 1; d >= 0; d--) {
      l += rest % dot->batch_size[d] * dot->lhs_step[d];
      r += rest % dot->batch_size[d] * dot->rhs_step[d];
      rest /= dot->batch_size[d];
    }
    cpu_gemm_tile(g, tile % g->tiles, job->lhs + l * a_bytes, job->rhs + r * b_bytes, packed, job->out + batch * c_step,
                  scratch);
  }
}

weft_status *cpu_dot_run(const cpu_dot *dot, rt_pool *pool, const void *lhs, const void *rhs, const rt_form *packed,
                         void *out, void *scratch)
{
  if (dot->pack_lhs) {
    cpu_transpose_run(&dot->lhs_order, pool, scratch, lhs);
    lhs = scratch;
  }
  if (dot->pack_rhs) {
    void *ordered = (char *)scratch + dot->lhs_pack_bytes;
    cpu_transpose_run(&dot->rhs_order, pool, ordered, rhs);
    rhs = ordered;
  }
  dot_job job = {.dot = dot, .lhs = lhs, .rhs = rhs, .packed = packed ? *packed : (rt_form){0}, .pool = pool, .out = out, .tiles = dot->batches * dot->gemm.tiles};
  rt_parallel_for(pool, (job.tiles + dot->per_task - 1) / dot->per_task, dot_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "dot: out of memory for panels");
  return NULL;
}
