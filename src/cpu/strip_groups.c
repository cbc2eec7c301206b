/* cpu/strip_groups.c -- groups of pass strip-groups: dots, a kernel over the rows of their results and dots of what the
 * kernel makes, as the backward pass of attention:
 *
 *   sources   s[b,m,n] = q[b,m,k] . k[b,n,k]      dp[b,m,n] = g[b,m,d] . v[b,n,d]
 *   kernel    p, ds = kernel(s, dp, ...)
 *   sinks     dq[b,m,k] = ds[b,m,n] . k[b,n,k]    dk[b,n,k] = ds[b,m,n]' . q[b,m,k]    dv[b,n,d] = p[b,m,n]' . g[b,m,d]
 *
 * A task takes a part of the rows of one matrix of the batch, in *blocks* of rows, and a block in *strips*. A strip of
 * the sources' results and the block of the kernel's results lie in the thread's scratch; as in strips.c, the kernel is
 * called for the rows of a strip and gets addresses at which these rows lie there. Sinks over columns, as dq, are
 * computed strip by strip. Sinks over rows, as dk, are sums over all blocks: each task adds up its own, transposed so
 * that the block is the right operand of a product, as it lies. When all tasks are done, the sums of the tasks of a
 * matrix are added in their order. Columns behind the last one in which a block has other numbers than zero, as behind
 * the diagonal in causal attention, add nothing to sums where their factors are finite, and are left out. The sources
 * leave out columns that a mask takes from all rows of a strip (plan_bounds). Parts, blocks and strips depend on the
 * shapes alone, so results are the same bits for any number of threads. Sums are of f32, or of f64 for results of f64,
 * as in other products. */
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
#include "cpu/transpose.h"

enum {
  MOST_SOURCES = 4, MOST_SINKS = 8,
  TILE_ROWS = 32, DENSE_ROWS = 28, /* strips have whole tiles of rows of the products */
  MOST_STRIP = 256,          /* rows of a strip */
  STRIP_BYTES = 512 << 10,   /* of the strips of all sources, unless the least rows take more */
  BLOCK_BYTES = 1 << 20,     /* of the blocks of all results of the kernel, likewise: a core's own cache */
  MOST_STRIPS = 8,           /* of a block */
  LEAST_TASKS = 16,          /* of a step, if the parts are not too short then */
  LEAST_BLOCKS = 2,          /* of a part */
  SUM_PADDING = 16,          /* elements between rows of sums, which would share a set of the cache otherwise */
  SPREAD_COLUMNS = 64,       /* of the sums that one task adds */
  USED_STEP = CPU_DEPTH_ALIGN, /* columns that are used or not */
};

/* A product of a strip: its plans for a whole strip and for the last one of a matrix, which may have fewer rows. */
typedef struct product {
  cpu_dot dot;
  cpu_gemm strip, last;
  int64_t form;              /* offset of the packed form of the right operand in the scratch */
  int64_t form_bytes;        /* 0: there is none */
} product;

/* Which columns of its result a source may leave out. */
typedef enum bound {
  ALL_COLUMNS,
  MASKED,   /* those that the mask takes: the kernel chooses other numbers there */
  WEIGHTED, /* the same if the kernel's result `weights` is zero there, and operands are no huge numbers: what is
             * computed of these columns is multiplied by zero */
} bound;

typedef struct source {
  const hlo_instr *instr;
  product p;
  bound bound;
  cpu_source a, b;
  int64_t at, row_bytes;     /* of its strip: the offset in the scratch; bytes of a row */
} source;

typedef struct sink {
  const hlo_instr *instr;
  bool over_rows;
  int value;                 /* the result of the kernel that is its left operand */
  cpu_source b;              /* its right operand */
  product p;                 /* over columns; over rows: p.dot only */
  bool ends_early;           /* over columns: sums can end before the last column */
  cpu_gemm block, last;      /* over rows: sum[d, n] = b'[d, rows] . value[rows, n], for a block and for the last one */
  weft_dtype sum_type;
  int64_t sums, sum_row;     /* the offset of all sums in the shared memory, bytes of a row of sums */
  int64_t sum_bytes;         /* of a task */
} sink;

typedef struct strip_group {
  source sources[MOST_SOURCES];
  sink sinks[MOST_SINKS];
  int source_count, sink_count, value_count;
  const gen_kernel *kernel;
  cpu_strip_mask mask;
  int weights;               /* of WEIGHTED sources: the result of the kernel */
  int *kernel_uses;          /* by the kernel's operands: the step's operand; -1 - i: the strip of source i */
  weft_dtype value_type[MOST_SINKS];
  int64_t value_at[MOST_SINKS], value_bytes[MOST_SINKS]; /* blocks of the kernel's results: offset; element */
  int64_t batches, m, n;     /* matrices of scores, and rows and columns of each */
  int64_t strip, block, part; /* rows */
  int64_t parts;             /* of a matrix */
  double bytes;              /* of operands and results */
  int64_t gemm, args, room, added, scratch_bytes, shared_bytes, spread_bytes;
} strip_group;

typedef struct group_thunk {
  rt_thunk base;
  const strip_group *plan;
} group_thunk;

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static weft_status *wrong_group(const char *why) { return WEFT_ERR(UNIMPLEMENTED, "strips of rows: %s", why); }

static bool is_float_product(const cpu_gemm *g)
{
  return weft_dtype_is_float(g->a_type) && weft_dtype_is_float(g->b_type) && weft_dtype_is_float(g->c_type);
}

static weft_status *plan_source(strip_group *s, const hlo_instr *instr)
{
  source *to = &s->sources[s->source_count];

  if (s->source_count == MOST_SOURCES) return wrong_group("too many products");
  *to = (source){.instr = instr};
  WEFT_TRY(cpu_strip_product(instr, &to->a, &to->b, &to->p.dot));
  const cpu_gemm *g = &to->p.dot.gemm;
  if (s->source_count == 0) {
    s->batches = to->p.dot.batches;
    s->m = g->m;
    s->n = g->n;
  }
  if (to->p.dot.batches != s->batches || g->m != s->m || g->n != s->n || !is_float_product(g))
    return wrong_group("the products do not fit each other");
  to->row_bytes = g->n * (int64_t)weft_dtype_bytes(g->c_type);
  s->source_count++;
  return NULL;
}

static weft_status *plan_sink(strip_group *s, const hlo_instr *instr, const hlo_instr *kernel)
{
  sink *to = &s->sinks[s->sink_count];
  const hlo_instr *left = gen_library_left(instr);

  if (!left || s->sink_count == MOST_SINKS) return wrong_group("a result is no product of the kernel's results");
  *to = (sink){.instr = instr};
  left = gen_through_views(left);
  if (left->op == HLO_GET_TUPLE_ELEMENT && left->operands[0] == kernel) to->value = (int)left->u.tuple_index;
  else if (left != kernel) return wrong_group("a result is no product of the kernel's results");
  WEFT_TRY(cpu_strip_product(instr, NULL, &to->b, &to->p.dot));
  const cpu_gemm *g = &to->p.dot.gemm;
  to->over_rows = g->a_row == 1 && g->a_col != 1;
  if (to->p.dot.batches != s->batches || !is_float_product(g) ||
      (to->over_rows ? g->m != s->n || g->k != s->m || g->a_col != s->n
                     : g->m != s->m || g->k != s->n || g->a_row != s->n || g->a_col != 1))
    return wrong_group("the products do not fit each other");
  s->value_type[to->value] = g->a_type;
  s->value_bytes[to->value] = (int64_t)weft_dtype_bytes(g->a_type);
  s->sink_count++;
  return NULL;
}

static weft_status *plan_kernel(const cpu_target *target, weft_arena *arena, const hlo_instr *fusion, strip_group *s)
{
  int64_t rows = s->batches * s->m;
  bool keeps_rows;

  s->kernel = gen_code_kernel(target->code, fusion);
  if (!s->kernel || s->kernel->strategy != GEN_STRATEGY_ROWS || s->kernel->phase_count != 1 ||
      s->kernel->shared_bytes > 0 || s->kernel->takes_bound || s->kernel->operand_leaves != fusion->operand_count ||
      s->kernel->result_leaves > MOST_SINKS || s->kernel->phases[0].units != rows)
    return wrong_group("the kernel does not go by the rows of the products");
  s->value_count = s->kernel->result_leaves;
  s->kernel_uses = WEFT_ARENA_ARRAY(arena, int, fusion->operand_count);
  WEFT_TRY_ALLOC(s->kernel_uses);
  for (int i = 0; i < fusion->operand_count; i++) {
    const hlo_instr *from = gen_through_views(fusion->operands[i]);
    int k = 0;
    while (k < s->source_count && s->sources[k].instr != from) k++;
    if (k == s->source_count && from->op != HLO_PARAMETER) return wrong_group("it would have to compute an operand");
    s->kernel_uses[i] = k < s->source_count ? -1 - k : (int)from->u.parameter_number;
    if (k == s->source_count) continue;
    WEFT_TRY(gen_keeps_rows(arena, fusion, i, rows, s->n, &keeps_rows));
    if (!keeps_rows) return wrong_group("rows need other rows");
  }
  return NULL;
}

/* Marks the values that are zero just where the kernel's result `x` is (or nearly zero, where x is rounded to zero):
 * those that it is a quotient of, by numbers of rows. */
static void mark_weights(const hlo_instr *x, int64_t rows, bool *marked, int low)
{
  for (;; x = x->operands[0]) {
    marked[x->id - low] = true;
    bool is_quotient = x->op == HLO_DIVIDE && gen_through_views(x->operands[1])->op == HLO_BROADCAST &&
                       hlo_shape_elems(gen_through_views(x->operands[1])->operands[0]->shape) <= rows;
    if (x->op != HLO_RESHAPE && x->op != HLO_BITCAST && x->op != HLO_CONVERT && !is_quotient) return;
  }
}

/* Is what is computed of elements of the kernel's operand `param` multiplied by marked values, before anything else
 * than arithmetic on single elements uses it? */
static weft_status *is_weighted(weft_arena *arena, const hlo_computation *comp, int param, const bool *marked,
                                bool *out)
{
  int low, count;

  hlo_id_range(comp, &low, &count);
  bool *depends = WEFT_ARENA_ARRAY(arena, bool, count);
  WEFT_TRY_ALLOC(depends);
  *out = false;
  HLO_FOREACH(x, comp) {
    bool uses = x == comp->params[param];
    for (int i = 0; i < x->operand_count; i++) uses = uses || depends[x->operands[i]->id - low];
    if (!uses) continue;
    if (x->op == HLO_MULTIPLY) {
      const hlo_instr *l = x->operands[0], *r = x->operands[1];
      if ((marked[l->id - low] && !depends[l->id - low]) || (marked[r->id - low] && !depends[r->id - low])) continue;
    }
    bool moves = x->op == HLO_RESHAPE || x->op == HLO_BITCAST;
    if ((x->op != HLO_PARAMETER && !moves && !hlo_opcode_is_elementwise(x->op)) || x == comp->root) return NULL;
    depends[x->id - low] = true;
  }
  *out = true;
  return NULL;
}

/* Finds the mask, of any source, and what the others may leave out then. */
static weft_status *plan_bounds(weft_arena *arena, const hlo_instr *fusion, strip_group *s)
{
  const hlo_computation *comp = fusion->called[0];
  const hlo_instr *root = comp->root;
  int low, count;

  s->mask.operand = -1;
  for (int i = 0; i < fusion->operand_count && s->mask.operand < 0; i++) {
    if (s->kernel_uses[i] >= 0) continue;
    WEFT_TRY(cpu_strip_mask_plan(arena, fusion, i, s->kernel_uses, s->batches * s->m, s->n, &s->mask));
    if (s->mask.operand >= 0) s->sources[-1 - s->kernel_uses[i]].bound = MASKED;
  }
  hlo_id_range(comp, &low, &count);
  for (int r = 0; s->mask.operand >= 0 && r < s->value_count; r++) {
    bool *marked = WEFT_ARENA_ARRAY(arena, bool, count), found = false;
    WEFT_TRY_ALLOC(marked);
    mark_weights(root->op == HLO_TUPLE ? root->operands[r] : root, s->batches * s->m, marked, low);
    for (int i = 0; i < fusion->operand_count; i++) {
      bool fits = false;
      source *k = s->kernel_uses[i] < 0 ? &s->sources[-1 - s->kernel_uses[i]] : NULL;
      if (!k || k->bound != ALL_COLUMNS) continue;
      WEFT_TRY(is_weighted(arena, comp, i, marked, &fits));
      if (fits) k->bound = WEIGHTED;
      found = found || fits;
    }
    s->weights = r;
    if (found) return NULL;
  }
  return NULL;
}

/* Finds the members: sources, one kernel and sinks. */
static weft_status *plan_members(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, strip_group *s)
{
  const hlo_instr *root = instr->called[0]->root, *kernel = NULL;
  int results = root->op == HLO_TUPLE ? root->operand_count : 1;

  HLO_FOREACH(x, instr->called[0])
    if (x->op == HLO_FUSION && !gen_is_library_fusion(x)) {
      if (kernel) return wrong_group("there is more than one kernel");
      kernel = x;
    }
  if (!kernel) return wrong_group("there is no kernel");
  for (int i = 0; i < kernel->operand_count; i++) {
    const hlo_instr *from = gen_through_views(kernel->operands[i]);
    bool is_new = gen_library_dot(from);
    for (int k = 0; k < s->source_count; k++) is_new = is_new && s->sources[k].instr != from;
    if (is_new) WEFT_TRY(plan_source(s, from));
  }
  if (s->source_count == 0) return wrong_group("it does not begin with a dot");
  if (s->batches * s->m * s->n == 0) return wrong_group("there are no scores");
  WEFT_TRY(plan_kernel(target, arena, kernel, s));
  for (int i = 0; i < results; i++) WEFT_TRY(plan_sink(s, root->op == HLO_TUPLE ? root->operands[i] : root, kernel));
  for (int i = 0; i < s->value_count; i++)
    if (s->value_bytes[i] == 0) return wrong_group("a result of the kernel is not used");
  return plan_bounds(arena, kernel, s);
}

static int64_t place(int64_t *end, int64_t bytes)
{
  int64_t at = *end;
  *end += WEFT_ALIGN_UP(bytes, 64);
  return at;
}

static void plan_rows(strip_group *s)
{
  int64_t strip_row = 0, block_row = 0;

  for (int i = 0; i < s->source_count; i++) strip_row += s->sources[i].row_bytes;
  for (int i = 0; i < s->value_count; i++) block_row += s->n * s->value_bytes[i];
  int64_t tile = s->sources[0].p.dot.gemm.kind == CPU_GEMM_DENSE ? DENSE_ROWS : TILE_ROWS;
  int64_t rows = WEFT_MIN(STRIP_BYTES / WEFT_MAX(strip_row, 1), MOST_STRIP) / tile * tile;
  s->strip = WEFT_MIN(WEFT_MAX(rows, tile), (s->m + tile - 1) / tile * tile);
  int64_t strips = WEFT_MIN(BLOCK_BYTES / WEFT_MAX(block_row * s->strip, 1), MOST_STRIPS);
  s->block = s->strip * WEFT_MAX(strips, 1);
  s->block = WEFT_MIN(s->block, (s->m + s->strip - 1) / s->strip * s->strip);
  /* parts of whole blocks */
  int64_t blocks = (s->m + s->block - 1) / s->block;
  int64_t wanted = (LEAST_TASKS + s->batches - 1) / WEFT_MAX(s->batches, 1);
  int64_t each = WEFT_MAX((blocks + wanted - 1) / wanted, LEAST_BLOCKS);
  s->part = each * s->block;
  s->parts = (s->m + s->part - 1) / s->part;
}

static void plan_strip(strip_group *s, product *p, int64_t last)
{
  p->strip = cpu_gemm_part(&p->dot.gemm, WEFT_MIN(s->strip, s->m), p->dot.gemm.n);
  p->last = cpu_gemm_part(&p->dot.gemm, last, p->dot.gemm.n);
  p->form_bytes = WEFT_ALIGN_UP(cpu_gemm_packed_bytes(&p->strip), 64);
  p->form = place(&s->scratch_bytes, p->form_bytes);
}

/* The product that adds `rows` rows to the sums of a sink over rows. */
static cpu_gemm sum_product(const strip_group *s, const sink *k, int64_t rows)
{
  const cpu_gemm *g = &k->p.dot.gemm;
  cpu_gemm turned = {
    .a_type = g->b_type, .b_type = g->a_type, .c_type = k->sum_type, .m = g->n, .n = s->n, .k = rows,
    .a_row = g->b_col, .a_col = g->b_row, .b_row = s->n, .b_col = 1, .c_row = s->n + SUM_PADDING, .via = g->via,
  };

  cpu_gemm_init(&turned);
  return turned;
}

static weft_status *plan_sums(strip_group *s, sink *k, int64_t last, int64_t *room, int64_t *added)
{
  const cpu_gemm *g = &k->p.dot.gemm;

  k->sum_type = g->c_type == WEFT_F64 ? WEFT_F64 : WEFT_F32;
  k->block = sum_product(s, k, WEFT_MIN(s->block, s->m));
  k->last = sum_product(s, k, last);
  if (k->block.kind == CPU_GEMM_NONE || k->last.kind == CPU_GEMM_NONE) return wrong_group("no product adds up rows");
  k->sum_row = (s->n + SUM_PADDING) * (int64_t)weft_dtype_bytes(k->sum_type);
  k->sum_bytes = WEFT_ALIGN_UP(g->n * k->sum_row, 64);
  s->spread_bytes = WEFT_MAX(s->spread_bytes, SPREAD_COLUMNS * g->n * (int64_t)weft_dtype_bytes(k->sum_type));
  k->sums = place(&s->shared_bytes, s->batches * s->parts * k->sum_bytes);
  *room = WEFT_MAX(*room, WEFT_MAX(k->block.scratch_bytes, k->last.scratch_bytes));
  if (!cpu_gemm_can_add(&k->block) || !cpu_gemm_can_add(&k->last)) *added = WEFT_MAX(*added, k->sum_bytes);
  return NULL;
}

weft_status *cpu_strip_group_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *out)
{
  strip_group *s = WEFT_ARENA_NEW(arena, strip_group);
  int64_t room = 0, added = 0;

  WEFT_TRY_ALLOC(s);
  WEFT_TRY(plan_members(target, arena, instr, s));
  plan_rows(s);
  int64_t last_block = s->m - (s->m - 1) / s->block * s->block, last_strip = s->m - (s->m - 1) / s->strip * s->strip;
  /* the addresses that the kernel gets are aligned for row 0, not for the strip's first row */
  for (int i = 0; i < s->source_count; i++) {
    product *p = &s->sources[i].p;
    plan_strip(s, p, last_strip);
    s->sources[i].at = place(&s->scratch_bytes, s->strip * s->sources[i].row_bytes + 64);
    room = WEFT_MAX(room, WEFT_MAX(p->strip.scratch_bytes, p->last.scratch_bytes));
  }
  for (int i = 0; i < s->value_count; i++)
    s->value_at[i] = place(&s->scratch_bytes, s->block * s->n * s->value_bytes[i] + 64);
  for (int i = 0; i < s->sink_count; i++) {
    sink *k = &s->sinks[i];
    if (k->over_rows) {
      WEFT_TRY(plan_sums(s, k, last_block, &room, &added));
    } else {
      plan_strip(s, &k->p, last_strip);
      room = WEFT_MAX(room, WEFT_MAX(k->p.strip.scratch_bytes, k->p.last.scratch_bytes));
      k->ends_early = cpu_gemm_takes_depth(&k->p.strip) && cpu_gemm_takes_depth(&k->p.last);
    }
  }
  for (int i = 0; i < instr->operand_count; i++) s->bytes += (double)hlo_shape_total_bytes(instr->operands[i]->shape);
  s->bytes += (double)hlo_shape_total_bytes(instr->shape);
  s->gemm = place(&s->scratch_bytes, room);
  s->added = place(&s->scratch_bytes, added);
  s->args = place(&s->scratch_bytes, (s->kernel->operand_leaves + s->value_count + 1) * (int64_t)sizeof(void *));
  s->room = place(&s->scratch_bytes, s->kernel->scratch_bytes);
  out->data = s;
  out->scratch_bytes = s->shared_bytes;
  return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct group_job {
  const strip_group *plan;
  void *const *args;
  void *const *results;
  char *shared;              /* the sums of all tasks */
  atomic_bool no_memory;
} group_job;

static void pack(const product *p, const char *b, char *scratch)
{
  for (int64_t part = 0; p->form_bytes > 0 && part * CPU_PACK_COLUMNS < p->strip.n; part++)
    cpu_gemm_pack(&p->strip, part, b, scratch + p->form);
}

/* The first `columns` columns of a product, as sums of the first `depth` of k. */
static void multiply(const cpu_gemm *g, int64_t columns, int64_t depth, const char *a, const char *b, const void *form,
                     char *c, void *scratch)
{
  cpu_gemm_begin(g);
  for (int64_t tile = 0; tile < g->tiles; tile++) cpu_gemm_tile_part(g, tile, columns, depth, a, b, form, c, scratch);
  cpu_gemm_end(g);
}

/* The same of the product of `rows` rows of a strip. */
static void multiply_strip(const strip_group *s, const product *p, int64_t rows, int64_t columns, int64_t depth,
                           const char *a, const char *b, char *c, char *scratch)
{
  const cpu_gemm *g = rows == p->strip.m ? &p->strip : &p->last;
  bool has_form = p->form_bytes > 0 && cpu_gemm_shares_packed(&p->strip, g);

  multiply(g, columns, depth, a, b, has_form ? scratch + p->form : NULL, c, scratch + s->gemm);
}

/* to += from, of `rows` rows of sums. */
static void add_sums(const sink *k, int64_t rows, const char *from, char *to)
{
  int64_t count = k->block.n;

  for (int64_t r = 0; r < rows; r++, from += k->sum_row, to += k->sum_row) {
    if (k->sum_type == WEFT_F64)
      for (int64_t i = 0; i < count; i++) ((double *)to)[i] += ((const double *)from)[i];
    else
      for (int64_t i = 0; i < count; i++) ((float *)to)[i] += ((const float *)from)[i];
  }
}

/* Is there another number than 0 and -0 in the `bytes` bytes at `at`, whose elements have their sign where `signs` has
 * bits? */
static CPU_HOT bool has_number(const char *at, int64_t bytes, uint64_t signs)
{
  uint64_t any = 0, word = 0;
  int64_t i = 0;

  for (; i + 8 <= bytes; i += 8) {
    memcpy(&word, at + i, 8);
    any |= word & ~signs;
  }
  word = 0;
  memcpy(&word, at + i, (size_t)(bytes - i));
  return (any | (word & ~signs)) != 0;
}

/* The columns of a block of `rows` rows up to the last one with another number than 0 and -0, rounded up. */
static int64_t columns_in_use(weft_dtype type, const char *values, int64_t rows, int64_t columns)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(type), used = 0;
  uint64_t signs = bytes == 8   ? UINT64_C(1) << 63
                   : bytes == 4 ? UINT64_C(0x8000000080000000)
                                : UINT64_C(0x8000800080008000);

  if (bytes < 2) return columns;
  for (int64_t r = rows - 1; r >= 0 && used < columns; r--) /* the last rows of causal attention have the most */
    for (int64_t c = (columns - 1) / USED_STEP * USED_STEP; c >= used; c -= USED_STEP)
      if (has_number(values + (r * columns + c) * bytes, WEFT_MIN(USED_STEP, columns - c) * bytes, signs))
        used = c + USED_STEP;
  return WEFT_MIN(used, columns);
}

/* Are all elements of x[rows, n] so small that products of two of them are finite? */
static bool is_small(weft_dtype type, const char *x, int64_t rows, int64_t row_step, int64_t n, int64_t step)
{
  return cpu_all_below(type, 40, x, rows, row_step, n, step);
}

/* Adds a block of `rows` rows to the sums of a task, of which the first `columns` columns have other numbers than zero.
 * `x`: the right operand's row of the block's first row. */
static void add_block(const strip_group *s, const sink *k, int64_t rows, int64_t columns, bool is_first, const char *x,
                      const char *values, char *sums, char *scratch)
{
  cpu_gemm g = rows == k->block.k ? k->block : k->last;

  if (columns < s->n && (!cpu_gemm_can_add(&g) || !is_small(g.a_type, x, rows, g.a_col, g.m, g.a_row))) columns = s->n;
  if (is_first && columns < s->n) {
    memset(sums, 0, (size_t)k->sum_bytes);
    is_first = false;
  }
  g.adds = !is_first && cpu_gemm_can_add(&g);
  if (is_first || g.adds) {
    multiply(&g, columns, g.k, x, values, NULL, sums, scratch + s->gemm);
    return;
  }
  multiply(&g, s->n, g.k, x, values, NULL, scratch + s->added, scratch + s->gemm);
  add_sums(k, g.m, scratch + s->added, sums);
}

/* Where the operands of a matrix lie. */
typedef struct matrix {
  int64_t number;
  const char *a[MOST_SOURCES], *b[MOST_SOURCES], *x[MOST_SINKS];
  bool b_is_small[MOST_SOURCES], x_is_small[MOST_SINKS]; /* where it matters */
} matrix;

static void find_matrix(const group_job *job, int64_t number, matrix *out)
{
  const strip_group *s = job->plan;
  int64_t a, b;

  out->number = number;
  for (int i = 0; i < s->source_count; i++) {
    const source *from = &s->sources[i];
    cpu_dot_batch(&from->p.dot, number, &a, &b);
    out->a[i] = (const char *)cpu_source_at(&from->a, job->args) +
                a * (int64_t)weft_dtype_bytes(from->p.dot.gemm.a_type);
    out->b[i] = (const char *)cpu_source_at(&from->b, job->args) +
                b * (int64_t)weft_dtype_bytes(from->p.dot.gemm.b_type);
    const cpu_gemm *g = &from->p.dot.gemm;
    out->b_is_small[i] = from->bound == WEIGHTED && is_small(g->b_type, out->b[i], g->n, g->b_col, g->k, g->b_row);
  }
  for (int i = 0; i < s->sink_count; i++) {
    const sink *k = &s->sinks[i];
    cpu_dot_batch(&k->p.dot, number, &a, &b);
    out->x[i] = (const char *)cpu_source_at(&k->b, job->args) + b * (int64_t)weft_dtype_bytes(k->p.dot.gemm.b_type);
    const cpu_gemm *g = &k->p.dot.gemm;
    out->x_is_small[i] = k->ends_early && is_small(g->b_type, out->x[i], g->k, g->b_row, g->n, g->b_col);
  }
}

/* The first `columns` columns of a source's strip; zeros behind them. *out_array: what the kernel gets. */
static void do_source(const strip_group *s, const matrix *x, int i, int64_t row, int64_t rows, int64_t columns,
                      char *scratch, void **out_array)
{
  const source *k = &s->sources[i];
  const cpu_gemm *g = &k->p.dot.gemm;
  int64_t c_bytes = (int64_t)weft_dtype_bytes(g->c_type);
  char *to = cpu_strip_place(scratch + k->at, x->number * s->m + row, k->row_bytes, out_array);

  multiply_strip(s, &k->p, rows, columns, g->k, x->a[i] + row * g->a_row * (int64_t)weft_dtype_bytes(g->a_type),
                 x->b[i], to, scratch);
  for (int64_t r = 0; r < rows && columns < s->n; r++)
    memset(to + r * k->row_bytes + columns * c_bytes, 0, (size_t)((s->n - columns) * c_bytes));
}

/* May the source leave out what the mask takes from the rows? */
static bool leaves_out(const strip_group *s, const matrix *x, int i, int64_t row, int64_t rows)
{
  const source *k = &s->sources[i];
  const cpu_gemm *g = &k->p.dot.gemm;

  if (k->bound != WEIGHTED) return k->bound == MASKED;
  return x->b_is_small[i] && is_small(g->a_type, x->a[i] + row * g->a_row * (int64_t)weft_dtype_bytes(g->a_type), rows,
                                      g->a_row, g->k, g->a_col);
}

/* used[i]: the columns with other numbers than zero, at most all, of `rows` rows of the kernel's result i, from the row
 * `first` of the block on. */
static void find_used(const strip_group *s, char *const *values, int64_t first, int64_t rows, int64_t *used)
{
  for (int i = 0; i < s->value_count; i++)
    used[i] = columns_in_use(s->value_type[i], values[i] + first * s->n * s->value_bytes[i], rows, s->n);
}

/* The rows [row, row + rows) of the matrix, of the block whose values lie in values[]: sources, kernel, and sinks over
 * columns. block_used[i] grows to the columns of value i that have other numbers than zero. */
static void do_strip(const group_job *job, const matrix *x, int64_t row, int64_t rows, int64_t block,
                     char *const *values, int64_t *block_used, char *scratch)
{
  const strip_group *s = job->plan;
  void **args = (void **)(scratch + s->args), *arrays[MOST_SOURCES];
  int64_t from = x->number * s->m + row, columns = cpu_strip_mask_columns(&s->mask, job->args, from, rows, s->n);
  int64_t used[MOST_SINKS];
  bool is_short[MOST_SOURCES] = {false}, is_any_weighted = false;

  for (int i = 0; i < s->source_count; i++) {
    is_short[i] = columns < s->n && leaves_out(s, x, i, row, rows);
    is_any_weighted = is_any_weighted || (is_short[i] && s->sources[i].bound == WEIGHTED);
    do_source(s, x, i, row, rows, is_short[i] ? columns : s->n, scratch, &arrays[i]);
  }
  for (int i = 0; i < s->kernel->operand_leaves; i++)
    if (s->kernel_uses[i] < 0) args[i] = arrays[-1 - s->kernel_uses[i]];
  s->kernel->phases[0].fn(args, from, from + rows);
  find_used(s, values, row - block, rows, used);
  if (is_any_weighted && used[s->weights] > columns) { /* rows of which the mask takes everything, say */
    for (int i = 0; i < s->source_count; i++)
      if (is_short[i] && s->sources[i].bound == WEIGHTED) do_source(s, x, i, row, rows, s->n, scratch, &arrays[i]);
    s->kernel->phases[0].fn(args, from, from + rows);
    find_used(s, values, row - block, rows, used);
  }
  for (int i = 0; i < s->value_count; i++) block_used[i] = WEFT_MAX(block_used[i], used[i]);
  for (int i = 0; i < s->sink_count; i++) {
    const sink *k = &s->sinks[i];
    const cpu_gemm *g = &k->p.dot.gemm;
    if (k->over_rows) continue;
    int64_t depth = x->x_is_small[i] ? WEFT_MIN(WEFT_MAX(used[k->value], CPU_DEPTH_ALIGN), s->n) : s->n;
    multiply_strip(s, &k->p, rows, g->n, depth, values[k->value] + (row - block) * s->n * s->value_bytes[k->value],
                   x->x[i], (char *)job->results[i] + from * g->n * (int64_t)weft_dtype_bytes(g->c_type), scratch);
  }
}

static void rows_task(void *ctx, int64_t task)
{
  group_job *job = ctx;
  const strip_group *s = job->plan;
  char *scratch = rt_task_scratch(s->scratch_bytes, &job->no_memory), *values[MOST_SINKS];
  int64_t begin = task % s->parts * s->part, end = WEFT_MIN(begin + s->part, s->m);
  matrix x;

  if (!scratch) return;
  void **args = (void **)(scratch + s->args);
  find_matrix(job, task / s->parts, &x);
  for (int i = 0; i < s->source_count; i++) pack(&s->sources[i].p, x.b[i], scratch);
  for (int i = 0; i < s->sink_count; i++)
    if (!s->sinks[i].over_rows) pack(&s->sinks[i].p, x.x[i], scratch);
  for (int i = 0; i < s->kernel->operand_leaves; i++)
    if (s->kernel_uses[i] >= 0) args[i] = job->args[s->kernel_uses[i]];
  args[s->kernel->operand_leaves + s->value_count] = scratch + s->room;
  for (int64_t block = begin; block < end; block += s->block) {
    int64_t rows = WEFT_MIN(s->block, end - block), used[MOST_SINKS] = {0};
    for (int i = 0; i < s->value_count; i++)
      values[i] = cpu_strip_place(scratch + s->value_at[i], x.number * s->m + block, s->n * s->value_bytes[i],
                                  &args[s->kernel->operand_leaves + i]);
    for (int64_t row = block; row < block + rows; row += s->strip)
      do_strip(job, &x, row, WEFT_MIN(s->strip, block + rows - row), block, values, used, scratch);
    for (int i = 0; i < s->sink_count; i++) {
      const sink *k = &s->sinks[i];
      const cpu_gemm *g = &k->p.dot.gemm;
      if (k->over_rows)
        add_block(s, k, rows, used[k->value], block == begin,
                  x.x[i] + block * g->b_row * (int64_t)weft_dtype_bytes(g->b_type), values[k->value],
                  job->shared + k->sums + task * k->sum_bytes, scratch);
    }
  }
}

/* Adds the sums of all parts of a matrix for some columns, and writes them, transposed, to the result. `room`: memory
 * for these sums. */
static void spread_columns(const group_job *job, int result, void *room, int64_t number, int64_t from)
{
  const strip_group *s = job->plan;
  const sink *k = &s->sinks[result];
  int64_t d = k->p.dot.gemm.n, count = WEFT_MIN(SPREAD_COLUMNS, s->n - from),
          bytes = (int64_t)weft_dtype_bytes(k->sum_type);
  int64_t c_bytes = (int64_t)weft_dtype_bytes(k->p.dot.gemm.c_type);
  char *sums = job->shared + k->sums + number * s->parts * k->sum_bytes + from * bytes;
  char *to = (char *)job->results[result] + (number * s->n + from) * d * c_bytes;

  for (int64_t part = 1; part < s->parts; part++)
    for (int64_t r = 0; r < d; r++) {
      char *sum = sums + r * k->sum_row, *more = sum + part * k->sum_bytes;
      if (k->sum_type == WEFT_F64)
        for (int64_t i = 0; i < count; i++) ((double *)sum)[i] += ((const double *)more)[i];
      else
        for (int64_t i = 0; i < count; i++) ((float *)sum)[i] += ((const float *)more)[i];
    }
  cpu_transpose turn = {
    .rank = 2, .size = {count, d}, .step = {1, k->sum_row / bytes}, .elems = count * d, .elem_bytes = bytes};
  bool is_converted = k->p.dot.gemm.c_type != k->sum_type;
  cpu_transpose_run(&turn, NULL, is_converted ? room : to, sums);
  if (is_converted) cpu_convert(k->p.dot.gemm.c_type, to, k->sum_type, room, 1, count * d);
}

static void spread_task(void *ctx, int64_t task)
{
  group_job *job = ctx;
  const strip_group *s = job->plan;
  int64_t pieces = (s->n + SPREAD_COLUMNS - 1) / SPREAD_COLUMNS, piece = task % pieces, number = task / pieces;

  void *room = rt_task_scratch(s->spread_bytes, &job->no_memory);

  for (int i = 0; room && i < s->sink_count; i++)
    if (s->sinks[i].over_rows) spread_columns(job, i, room, number, piece * SPREAD_COLUMNS);
}

static weft_status *group_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  const strip_group *s = ((const group_thunk *)thunk)->plan;
  void *const *args = rt_args(thunk, ctx);
  int operands = thunk->use_count - s->sink_count - (s->shared_bytes > 0);
  group_job job = {.plan = s, .args = args, .results = args + operands,
                   .shared = s->shared_bytes > 0 ? args[thunk->use_count - 1] : NULL};

  rt_parallel_for(cpu_pool_of(thunk, ctx), s->batches * s->parts, rows_task, &job);
  if (s->shared_bytes > 0)
    rt_parallel_for(cpu_pool_of(thunk, ctx), s->batches * ((s->n + SPREAD_COLUMNS - 1) / SPREAD_COLUMNS), spread_task,
                    &job);
  if (atomic_load(&job.no_memory))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "no memory for %lld bytes of scratch", (long long)s->scratch_bytes);
  return NULL;
}
static const rt_thunk_ops group_ops = {.size = sizeof(rt_thunk_ops), .kind = "strip-group", .run = group_execute};

weft_status *cpu_strip_group_make(low_step *step, rt_thunk **out_thunk)
{
  WEFT_TRY(low_thunk_new(step, &group_ops, sizeof(group_thunk), out_thunk));
  group_thunk *t = (group_thunk *)*out_thunk;
  t->plan = step->plan->data;
  t->base.splits = cpu_pays_to_share_bytes(step, t->base.cost_ns, true, t->plan->bytes);
  return NULL;
}
