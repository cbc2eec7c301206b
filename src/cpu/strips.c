/* cpu/strips.c -- chains of pass strips: a dot, a kernel over the rows of its result, and a dot of what the kernel
 * makes, as the scores of attention, their softmax and the product with the values.
 *
 *   s[b,m,n] = q[b,m,k] . k[b,n,k]      p = kernel(s, ...)      out[b,m,d] = p[b,m,n] . v[b,n,d]
 *
 * A task takes rows of one matrix of the batch, strip by strip. A strip of s and the strip of p that the kernel makes
 * of it lie in the thread's scratch, where they stay in its cache: neither array is ever in memory as a whole. The
 * kernel is the one of the whole arrays. It is called for the rows of the strip and gets, for s and p, addresses at
 * which those rows lie in the scratch; other operands, a mask, it reads where they are. Columns of s that a mask takes
 * from no row of the strip, as those behind the diagonal in causal attention, are not computed. If the kernel takes a
 * bound, it ends there, too, and says whether a row would need the columns behind (gen_row_bound); then it is called
 * again for all columns. Where the shares of masked columns are zeros and their rows of v are finite, the second
 * product ends before them, too: it would add zeros. Strips depend on the shapes alone, so results are the same bits
 * for any number of threads. */
#include <config.h>

#include <string.h>

#include "base/macros.h"
#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "cpu/dot.h"
#include "cpu/dot_parts.h"
#include "cpu/hot.h"
#include "cpu/makers.h"
#include "cpu/strip_parts.h"

enum {
  STRIP_ALIGN = 32,      /* rows: the tiles of the products */
  MOST_ROWS = 256,       /* of a strip */
  STRIP_BYTES = 256 << 10, /* of the strips of s and p, unless the least rows take more: a part of a core's own cache */
  LEAST_STRIPS = 16,     /* of a step, if the strips are not too short then */
  TASKS_PER_THREAD = 4,
};

/* One of the products, of one matrix of the batch. */
typedef struct product {
  cpu_dot dot;
  cpu_gemm strip, last; /* of the rows of a strip; of the last strip, which may have fewer */
  int64_t packed_bytes; /* of the form of the right operand that both read; 0: there is none */
  int64_t b_bytes, c_bytes; /* of an element */
} product;

typedef struct strips {
  product first, second;
  cpu_source q, k, v;
  const gen_kernel *kernel;
  int *kernel_uses;      /* by the kernel's operands: the step's operand; -1: the strip of s */
  cpu_strip_mask mask;
  bool ends_rows;        /* the kernel can stop at the columns that the mask leaves */
  int64_t rows, count;   /* of a strip; strips of one matrix */
  int64_t columns;       /* n */
  bool can_end_early;    /* the second product can leave out the last columns of p */
  double bytes;          /* of q, k, v and out */
  /* offsets in a task's scratch */
  int64_t v_form, s, p, gemm, args, bound, room, scratch_bytes;
} strips;

typedef struct strips_thunk {
  rt_thunk base;
  const strips *plan;
  int64_t groups;        /* tasks of one matrix */
} strips_thunk;

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static weft_status *wrong_chain(const char *why) { return WEFT_ERR(UNIMPLEMENTED, "strips of rows: %s", why); }

static weft_status *plan_product(product *p, const hlo_instr *within, cpu_source *lhs, cpu_source *rhs)
{
  WEFT_TRY(cpu_strip_product(within, lhs, rhs, &p->dot));
  p->b_bytes = (int64_t)weft_dtype_bytes(p->dot.gemm.b_type);
  p->c_bytes = (int64_t)weft_dtype_bytes(p->dot.gemm.c_type);
  return NULL;
}

static void cut_product(product *p, int64_t rows, int64_t last)
{
  p->strip = cpu_gemm_part(&p->dot.gemm, rows, p->dot.gemm.n);
  p->last = cpu_gemm_part(&p->dot.gemm, last, p->dot.gemm.n);
  p->packed_bytes = WEFT_ALIGN_UP(cpu_gemm_packed_bytes(&p->strip), 64);
}

static int64_t strip_rows(const strips *s)
{
  const cpu_gemm *g = &s->first.dot.gemm;
  int64_t row = g->n * (s->first.c_bytes + (int64_t)weft_dtype_bytes(s->second.dot.gemm.a_type));
  int64_t fit = STRIP_BYTES / WEFT_MAX(row, 1);
  int64_t share = g->m * s->first.dot.batches / LEAST_STRIPS;
  int64_t rows = WEFT_MIN(WEFT_MIN(fit, share), MOST_ROWS);

  rows = WEFT_MAX(rows / STRIP_ALIGN * STRIP_ALIGN, STRIP_ALIGN);
  return WEFT_MIN(WEFT_ALIGN_UP(cpu_even_part(g->m, rows), STRIP_ALIGN), g->m);
}

/* The kernel's operands, of which one is the strip of s. */
static weft_status *plan_kernel(const cpu_target *target, weft_arena *arena, const hlo_instr *fusion,
                                const hlo_instr *first, strips *s)
{
  const cpu_gemm *g = &s->first.dot.gemm;
  int64_t rows = g->m * s->first.dot.batches;
  int scores = -1;
  bool keeps_rows;

  s->kernel = gen_code_kernel(target->code, fusion);
  if (!s->kernel || s->kernel->strategy != GEN_STRATEGY_ROWS || s->kernel->phase_count != 1 ||
      s->kernel->result_leaves != 1 || s->kernel->shared_bytes > 0 ||
      s->kernel->operand_leaves != fusion->operand_count || s->kernel->phases[0].units != rows)
    return wrong_chain("the kernel does not go by the rows of the product");
  s->kernel_uses = WEFT_ARENA_ARRAY(arena, int, fusion->operand_count);
  WEFT_TRY_ALLOC(s->kernel_uses);
  for (int i = 0; i < fusion->operand_count; i++) {
    const hlo_instr *from = gen_through_views(fusion->operands[i]);
    if (from != first && from->op != HLO_PARAMETER) return wrong_chain("it would have to compute an operand");
    s->kernel_uses[i] = from == first ? -1 : (int)from->u.parameter_number;
    if (from != first) continue;
    WEFT_TRY(gen_keeps_rows(arena, fusion, i, rows, g->n, &keeps_rows));
    if (!keeps_rows) return wrong_chain("rows need other rows");
    scores = i;
  }
  WEFT_TRY(cpu_strip_mask_plan(arena, fusion, scores, s->kernel_uses, rows, g->n, &s->mask));
  if (!s->kernel->takes_bound || s->mask.operand < 0) return NULL;
  gen_bound bound;
  WEFT_TRY(gen_bound_of(arena, fusion, &bound));
  s->ends_rows = bound.mask && bound.mask == gen_through_views(s->mask.choice->operands[0]) &&
                 bound.is_unwanted == s->mask.is_unwanted;
  return NULL;
}

static int64_t place(strips *s, int64_t bytes)
{
  int64_t at = s->scratch_bytes;
  s->scratch_bytes += WEFT_ALIGN_UP(bytes, 64);
  return at;
}

weft_status *cpu_strips_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *out)
{
  const hlo_instr *second = instr->called[0]->root, *last_dot = gen_library_dot(second);
  strips *s = WEFT_ARENA_NEW(arena, strips);

  WEFT_TRY_ALLOC(s);
  if (!last_dot) return wrong_chain("it does not end with a dot");
  const hlo_instr *input = last_dot->operands[0];
  if (last_dot != second && input->op == HLO_PARAMETER) input = second->operands[input->u.parameter_number];
  const hlo_instr *fusion = gen_through_views(input), *first = NULL;
  for (int i = 0; fusion->op == HLO_FUSION && i < fusion->operand_count; i++)
    if (gen_library_dot(gen_through_views(fusion->operands[i]))) first = gen_through_views(fusion->operands[i]);
  if (!first) return wrong_chain("it does not begin with a dot");

  WEFT_TRY(plan_product(&s->first, first, &s->q, &s->k));
  WEFT_TRY(plan_product(&s->second, second, NULL, &s->v));
  const cpu_gemm *g = &s->first.dot.gemm, *h = &s->second.dot.gemm;
  if (g->m != h->m || g->n != h->k || s->first.dot.batches != s->second.dot.batches || h->a_col != 1 ||
      h->a_row != g->n)
    return wrong_chain("the products do not fit each other");
  if (g->m * g->n * s->first.dot.batches == 0) return wrong_chain("there are no scores");
  WEFT_TRY(plan_kernel(target, arena, fusion, first, s));
  s->columns = g->n;
  s->rows = strip_rows(s);
  s->count = (g->m + s->rows - 1) / s->rows;
  int64_t last = g->m - (s->count - 1) * s->rows;
  cut_product(&s->first, s->rows, last);
  cut_product(&s->second, s->rows, last);
  s->can_end_early = cpu_gemm_takes_depth(&s->second.strip) && cpu_gemm_takes_depth(&s->second.last);
  for (int i = 0; i < instr->operand_count; i++) s->bytes += (double)hlo_shape_total_bytes(instr->operands[i]->shape);
  s->bytes += (double)hlo_shape_total_bytes(instr->shape);

  place(s, s->first.packed_bytes);
  s->v_form = place(s, s->second.packed_bytes);
  /* the addresses that the kernel gets are aligned for row 0, not for the strip's first row */
  s->s = place(s, s->rows * s->columns * s->first.c_bytes + 64);
  s->p = place(s, s->rows * s->columns * (int64_t)weft_dtype_bytes(h->a_type) + 64);
  s->gemm = place(s, WEFT_MAX(WEFT_MAX(s->first.strip.scratch_bytes, s->first.last.scratch_bytes),
                              WEFT_MAX(s->second.strip.scratch_bytes, s->second.last.scratch_bytes)));
  s->args = place(s, (s->kernel->operand_leaves + 3) * (int64_t)sizeof(void *));
  s->bound = place(s, sizeof(gen_row_bound));
  s->room = place(s, s->kernel->scratch_bytes);
  out->data = s;
  return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct strips_job {
  const strips_thunk *thunk;
  void *const *args;
  const char *q, *k, *v;
  char *out;
  atomic_bool no_memory;
} strips_job;

static const void *packed_form(const product *p, const char *b, char *to)
{
  if (p->packed_bytes == 0) return NULL;
  for (int64_t part = 0; part * CPU_PACK_COLUMNS < p->strip.n; part++) cpu_gemm_pack(&p->strip, part, b, to);
  return to;
}

/* Are all bytes zeros in `rows` rows of `count` bytes, `step` bytes apart? */
static CPU_HOT bool is_zero(const char *from, int64_t rows, int64_t step, int64_t count)
{
  unsigned char any = 0;

  for (int64_t r = 0; r < rows; r++, from += step)
    for (int64_t i = 0; i < count; i++) any = (unsigned char)(any | (unsigned char)from[i]);
  return any == 0;
}

/* The row of b, the second product's right operand, from which on all are finite, rounded up. */
static int64_t finite_from(const product *p, const char *b)
{
  const cpu_gemm *g = &p->dot.gemm;
  bool by_row = g->b_col == 1;
  int64_t from = WEFT_ALIGN_UP(g->k, CPU_DEPTH_ALIGN);

  if (!by_row && g->b_row != 1) return g->k;
  while (from > 0) {
    int64_t row = from - CPU_DEPTH_ALIGN, rows = WEFT_MIN(CPU_DEPTH_ALIGN, g->k - row);
    const char *at = b + row * g->b_row * p->b_bytes;
    if (!cpu_all_below(g->b_type, CPU_ANY_FINITE, at, rows, g->b_row, g->n, g->b_col)) break;
    from = row;
  }
  return WEFT_MIN(from, g->k);
}

/* How many of a strip's shares, from the first column on, the second product needs if those behind are zeros: these
 * multiply finite numbers. `columns`: those that the mask leaves; `least`: finite_from of the product. */
static int64_t least_depth(const strips *s, int64_t columns, int64_t least)
{
  return WEFT_MIN(WEFT_ALIGN_UP(WEFT_MAX(WEFT_MAX(columns, least), 1), CPU_DEPTH_ALIGN), s->columns);
}

/* The same of shares of which those in masked columns, all of which the kernel has made, may be other numbers. */
static int64_t depth_in_use(const strips *s, int64_t rows, int64_t columns, int64_t least, const char *shares)
{
  int64_t share_bytes = (int64_t)weft_dtype_bytes(s->second.dot.gemm.a_type), row_bytes = s->columns * share_bytes;
  int64_t used = least_depth(s, columns, least), step = CPU_DEPTH_ALIGN;

  if (used == s->columns) return used;
  if (is_zero(shares + used * share_bytes, rows, row_bytes, row_bytes - used * share_bytes)) return used;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = WEFT_ALIGN_UP(s->columns, step) - step; c >= used; c -= step)
      if (cpu_has_other(shares + r * row_bytes + c * share_bytes, WEFT_MIN(step, s->columns - c) * share_bytes, 0))
        used = c + step;
  return WEFT_MIN(used, s->columns);
}

/* `rows` rows and the first `columns` columns of the product, as sums of the first `depth` products. */
static void multiply(const product *p, int64_t rows, int64_t columns, int64_t depth, const char *a, const char *b,
                     const void *packed, char *c, void *scratch)
{
  const cpu_gemm *g = rows == p->strip.m ? &p->strip : &p->last;

  if (packed && !cpu_gemm_shares_packed(&p->strip, g)) packed = NULL;
  cpu_gemm_begin(g);
  for (int64_t tile = 0; tile < g->tiles; tile++) cpu_gemm_tile_part(g, tile, columns, depth, a, b, packed, c, scratch);
  cpu_gemm_end(g);
}

/* Zeros in the columns [from, to) of some rows, of elements of `bytes` bytes. */
static void clear(const strips *s, int64_t rows, int64_t from, int64_t to, int64_t bytes, char *at)
{
  for (int64_t r = 0; r < rows && from < to; r++)
    memset(at + (r * s->columns + from) * bytes, 0, (size_t)((to - from) * bytes));
}

/* Calls the kernel for `rows` rows from `from` on, of which the first `columns` columns of the scores are computed: the
 * mask takes the others. Returns how many columns of the shares are made, others of which are +0. */
static int64_t make_shares(const strips *s, void **args, int64_t from, int64_t rows, int64_t columns, char *scores)
{
  gen_row_bound all = {.columns = s->columns}, *bound = s->kernel->takes_bound ? args[s->kernel->arg_count - 1] : &all;
  int64_t bytes = s->first.c_bytes, end = s->columns;

  /* one masked column at least, which stands for those behind */
  if (s->ends_rows) end = WEFT_MIN(WEFT_ALIGN_UP(columns + 1, GEN_BOUND_STEP), s->columns);
  clear(s, rows, columns, end, bytes, scores); /* numbers that are quick to compute with */
  *bound = (gen_row_bound){.columns = end};
  s->kernel->phases[0].fn(args, from, from + rows);
  if (!bound->more) return end;
  clear(s, rows, end, s->columns, bytes, scores);
  *bound = all;
  s->kernel->phases[0].fn(args, from, from + rows);
  return s->columns;
}

static void strips_task(void *ctx, int64_t task)
{
  strips_job *job = ctx;
  const strips *s = job->thunk->plan;
  const cpu_gemm *g = &s->first.dot.gemm, *h = &s->second.dot.gemm;
  int64_t batch = task / job->thunk->groups, group = task % job->thunk->groups;
  int64_t begin = s->count * group / job->thunk->groups, end = s->count * (group + 1) / job->thunk->groups;
  int64_t q_at, k_at, none, v_at, a_bytes = (int64_t)weft_dtype_bytes(g->a_type);
  int64_t p_bytes = (int64_t)weft_dtype_bytes(h->a_type), operands = s->kernel->operand_leaves;
  int64_t finite = -1; /* finite_from of the second product, once it is known */
  char *scratch = rt_task_scratch(s->scratch_bytes, &job->no_memory);

  if (!scratch) return;
  void **args = (void **)(scratch + s->args);
  cpu_dot_batch(&s->first.dot, batch, &q_at, &k_at);
  cpu_dot_batch(&s->second.dot, batch, &none, &v_at);
  const char *k = job->k + k_at * s->first.b_bytes, *v = job->v + v_at * s->second.b_bytes;
  /* one strip reads the operands once, and packs each part as it comes to it */
  const void *k_form = end - begin > 1 ? packed_form(&s->first, k, scratch) : NULL;
  const void *v_form = end - begin > 1 ? packed_form(&s->second, v, scratch + s->v_form) : NULL;
  for (int i = 0; i < operands; i++)
    if (s->kernel_uses[i] >= 0) args[i] = job->args[s->kernel_uses[i]];
  args[operands + 1] = scratch + s->room;
  if (s->kernel->takes_bound) args[s->kernel->arg_count - 1] = scratch + s->bound;
  for (int64_t strip = begin; strip < end; strip++) {
    int64_t row = strip * s->rows, rows = WEFT_MIN(s->rows, g->m - row), from = batch * g->m + row;
    void *s_array;
    char *scores = cpu_strip_place(scratch + s->s, from, s->columns * s->first.c_bytes, &s_array);
    char *shares = cpu_strip_place(scratch + s->p, from, s->columns * p_bytes, &args[operands]);
    int64_t columns = cpu_strip_mask_columns(&s->mask, job->args, from, rows, s->columns);
    multiply(&s->first, rows, columns, g->k, job->q + (q_at + row * g->a_row) * a_bytes, k, k_form, scores,
             scratch + s->gemm);
    for (int i = 0; i < operands; i++)
      if (s->kernel_uses[i] < 0) args[i] = s_array;
    int64_t made = make_shares(s, args, from, rows, columns, scores), depth = s->columns;
    if (columns < depth && s->can_end_early) {
      if (finite < 0) finite = finite_from(&s->second, v);
      depth = made < depth ? least_depth(s, columns, finite) : depth_in_use(s, rows, columns, finite, shares);
    }
    clear(s, rows, made, depth, p_bytes, shares);
    multiply(&s->second, rows, h->n, depth, shares, v, v_form, job->out + from * h->n * s->second.c_bytes,
             scratch + s->gemm);
  }
}

static weft_status *strips_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  const strips_thunk *t = (const strips_thunk *)thunk;
  const strips *s = t->plan;
  void *const *args = rt_args(thunk, ctx);
  strips_job job = {.thunk = t, .args = args, .q = cpu_source_at(&s->q, args), .k = cpu_source_at(&s->k, args),
                    .v = cpu_source_at(&s->v, args), .out = args[thunk->use_count - 1]};

  rt_parallel_for(cpu_pool_of(thunk, ctx), s->first.dot.batches * t->groups, strips_task, &job);
  if (atomic_load(&job.no_memory))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "no memory for %lld bytes of scratch", (long long)s->scratch_bytes);
  return NULL;
}
static const rt_thunk_ops strips_ops = {.size = sizeof(rt_thunk_ops), .kind = "strips", .run = strips_execute};

weft_status *cpu_strips_make(low_step *step, rt_thunk **out_thunk)
{
  const strips *s = step->plan->data;
  int64_t tasks = TASKS_PER_THREAD * (int64_t)step->target->threads;

  WEFT_TRY(low_thunk_new(step, &strips_ops, sizeof(strips_thunk), out_thunk));
  strips_thunk *t = (strips_thunk *)*out_thunk;
  t->plan = s;
  t->base.splits = cpu_pays_to_share_bytes(step, t->base.cost_ns, true, s->bytes);
  t->groups = WEFT_MIN((tasks + s->first.dot.batches - 1) / s->first.dot.batches, s->count);
  return NULL;
}
