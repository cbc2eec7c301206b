/* cpu/dot.c -- HLO dot (dot.h). The dimensions of each operand are batch, free or contracting. If one loop with a fixed
 * step walks its free dimensions, and one its contracting dimensions, the operand already is a stack of matrices.
 * Otherwise it is first copied into that order. */
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

static int64_t product(const hlo_shape *shape, const dim_list *list)
{
  int64_t size = 1;

  for (int i = 0; i < list->count; i++) size *= shape->dims[list->dim[i]];
  return size;
}

/* One operand as [batch][free][contracting]: the step of each, after packing if packing is needed. */
typedef struct operand {
  gen_parts batch;
  int64_t free, contracted, free_step, contracted_step;
  bool pack;
} operand;

/* The listed dimensions as one dimension; false if no single step walks them in order. */
static bool collapse(const gen_view *view, const dim_list *list, int64_t *size, int64_t *step)
{
  gen_parts parts;

  if (!gen_view_walk(view, list->count, list->dim, &parts) || parts.count > 1) return false;
  *size = parts.count ? parts.v[0].size : 1;
  *step = parts.count ? parts.v[0].step : 1;
  return true;
}

/* Sets `order` to a copy of the operand's dimensions in the order of the lists. False: there are too many parts. */
static bool plan_copy(const hlo_shape *shape, const gen_view *view, const dim_list *const lists[3],
                      cpu_transpose *order)
{
  *order = (cpu_transpose){.elems = hlo_shape_elems(shape), .elem_bytes = (int64_t)weft_dtype_bytes(shape->type)};
  for (int l = 0; l < 3; l++) {
    gen_parts parts;
    if (!gen_view_walk(view, lists[l]->count, lists[l]->dim, &parts) || order->rank + parts.count > HLO_MAX_RANK)
      return false;
    for (int p = 0; p < parts.count; p++) {
      order->size[order->rank] = parts.v[p].size;
      order->step[order->rank++] = parts.v[p].step;
    }
  }
  return true;
}

/* False: the view has too many parts. */
static bool plan_operand(operand *o, const hlo_shape *shape, const gen_view *view, const dim_list *batch,
                         const dim_list *free, const dim_list *contracting, cpu_transpose *order)
{
  const dim_list *lists[] = {batch, free, contracting};

  *o = (operand){.free = product(shape, free), .contracted = product(shape, contracting)};
  o->pack = hlo_shape_elems(shape) > 0 && (!collapse(view, free, &o->free, &o->free_step) ||
                                           !collapse(view, contracting, &o->contracted, &o->contracted_step));
  if (!o->pack && hlo_shape_elems(shape) > 0) return gen_view_walk(view, batch->count, batch->dim, &o->batch);
  o->free = product(shape, free);
  o->contracted = o->free_step = product(shape, contracting);
  o->contracted_step = 1;
  int64_t batches = product(shape, batch);
  if (batches > 1) o->batch = (gen_parts){.count = 1, .v = {{batches, o->free * o->contracted}}};
  return !o->pack || plan_copy(shape, view, lists, order);
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

void cpu_packing_offer(const cpu_packing *packing, rt_thunk *thunk, int use, int64_t offset)
{
  enum { LEAST_PACKED_BYTES = 16 << 10 }; /* packing smaller operands in each run costs next to nothing */

  if (packing->base.bytes < LEAST_PACKED_BYTES) return;
  thunk->packing = &packing->base;
  thunk->packed_use = use;
  thunk->packed_offset = offset;
}

weft_status *cpu_dot_init(cpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs, const hlo_shape *rhs,
                          const hlo_shape *out)
{
  gen_view l = gen_view_dense(lhs), r = gen_view_dense(rhs);

  return cpu_dot_init_views(dot, attrs, lhs, &l, rhs, &r, out);
}

weft_status *cpu_dot_init_views(cpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs,
                                const gen_view *lhs_view, const hlo_shape *rhs, const gen_view *rhs_view,
                                const hlo_shape *out)
{
  return cpu_dot_init_affine(dot, attrs, lhs, lhs_view, rhs, rhs_view, out, &(cpu_affine){0});
}

weft_status *cpu_dot_init_affine(cpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs,
                                 const gen_view *lhs_view, const hlo_shape *rhs, const gen_view *rhs_view,
                                 const hlo_shape *out, const cpu_affine *affine)
{
  operand l, r;
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

  if (!plan_operand(&l, lhs, lhs_view, &lhs_batch, &lhs_free, &lhs_sum, &dot->lhs_order) ||
      !plan_operand(&r, rhs, rhs_view, &rhs_batch, &rhs_free, &rhs_sum, &dot->rhs_order) ||
      !gen_parts_match(&l.batch, &r.batch))
    return WEFT_ERR(UNIMPLEMENTED, "dot of parts of arrays: %s", "they are no stacks of matrices");
  dot->pack_lhs = l.pack;
  dot->pack_rhs = r.pack;
  dot->lhs_pack_bytes = l.pack ? WEFT_ALIGN_UP(hlo_shape_bytes(lhs), 64) : 0;
  dot->scratch_bytes = dot->lhs_pack_bytes + (r.pack ? hlo_shape_bytes(rhs) : 0);
  dot->batches = product(lhs, &lhs_batch);
  dot->batch_rank = l.batch.count;
  for (int i = 0; i < dot->batch_rank; i++) {
    dot->batch_size[i] = l.batch.v[i].size;
    dot->lhs_step[i] = l.batch.v[i].step;
    dot->rhs_step[i] = r.batch.v[i].step;
  }
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
  dot->affine = *affine;
  if (affine->group == 0) cpu_gemm_init(&dot->gemm);
  else if (dot->batches != 1 || dot->pack_rhs)
    return WEFT_ERR(UNIMPLEMENTED, "dot of parts of arrays: %s", "the weights are no matrix");
  else cpu_gemm_init_affine(&dot->gemm, &dot->affine);
  if (dot->gemm.kind == CPU_GEMM_NONE)
    return WEFT_ERR(UNIMPLEMENTED, "dot of %s and %s to %s", weft_dtype_name(lhs->type), weft_dtype_name(rhs->type),
                    weft_dtype_name(out->type));
  int64_t packed_bytes = cpu_gemm_packed_bytes(&dot->gemm);
  if (packed_bytes > 0 && dot->batches == 1 && !dot->pack_rhs)
    cpu_packing_begin(&dot->packing, dot, &dot->gemm, packed_bytes, pack_rhs);
  /* tiles of all rows are cut along the columns only: then each thread reads its own part of rhs */
  dot->packing.base.whole = dot->gemm.tile_m < dot->gemm.m;
  /* one task takes some tens of microseconds, of arithmetic or of reading rhs from memory */
  enum { FLOPS_A_BYTE = 4 };
  double rhs_bytes = (double)(dot->gemm.n * dot->gemm.k) * (double)weft_dtype_bytes(rhs->type);
  double work = WEFT_MAX(dot->gemm.flops, dot->gemm.tile_m == dot->gemm.m ? FLOPS_A_BYTE * rhs_bytes : 0);
  double per_tile = work / (double)WEFT_MAX(1, dot->gemm.tiles);
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
  const void *const *operands; /* of the steps that make weights of rhs */
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
  cpu_gemm_begin(g);
  for (int64_t tile = first; tile < end; tile++) {
    int64_t batch = tile / g->tiles, l, r;
    cpu_dot_batch(dot, batch, &l, &r);
    if (dot->affine.group > 0)
      cpu_gemm_tile_affine(g, &dot->affine, tile, job->lhs, job->rhs, job->operands, job->out, scratch);
    else
      cpu_gemm_tile(g, tile % g->tiles, job->lhs + l * a_bytes, job->rhs + r * b_bytes, packed,
                    job->out + batch * c_step, scratch);
  }
  cpu_gemm_end(g);
}

static weft_status *run(dot_job *job, rt_pool *pool, void *scratch)
{
  const cpu_dot *dot = job->dot;

  if (dot->pack_lhs) {
    cpu_transpose_run(&dot->lhs_order, pool, scratch, job->lhs);
    job->lhs = scratch;
  }
  if (dot->pack_rhs) {
    void *ordered = (char *)scratch + dot->lhs_pack_bytes;
    cpu_transpose_run(&dot->rhs_order, pool, ordered, job->rhs);
    job->rhs = ordered;
  }
  job->tiles = dot->batches * dot->gemm.tiles;
  rt_parallel_for(pool, (job->tiles + dot->per_task - 1) / dot->per_task, dot_task, job);
  if (atomic_load(&job->failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "dot: out of memory for panels");
  return NULL;
}

weft_status *cpu_dot_run(const cpu_dot *dot, rt_pool *pool, const void *lhs, const void *rhs, const rt_form *packed,
                         void *out, void *scratch)
{
  dot_job job = {.dot = dot, .lhs = lhs, .rhs = rhs, .packed = packed ? *packed : (rt_form){0}, .pool = pool, .out = out};

  return run(&job, pool, scratch);
}

weft_status *cpu_dot_run_affine(const cpu_dot *dot, rt_pool *pool, const void *lhs, const void *rhs,
                                const void *const *operands, void *out, void *scratch)
{
  dot_job job = {.dot = dot, .lhs = lhs, .rhs = rhs, .operands = operands, .pool = pool, .out = out};

  return run(&job, pool, scratch);
}
