/* codegen/nvptx/grid.c -- the walker of a grid: how a thread loads and stores elements, and which elements of a loop's
 * results it makes. */
#include <config.h>

#include "codegen/nvptx/grid.h"

enum {
  BUSY_THREADS = 64,   /* of a multiprocessor: with fewer, a thread makes one element, to hide the latency of memory */
  ACCESS_BYTES = 16,   /* the most that one access of a thread moves */
  MOST_ELEMS = 4,      /* neighbours that a thread makes */
  PLACES = 4,          /* rows in which a thread makes elements at the same time, if it makes several rows */
  MOST_JOINED = 256,   /* rows that are taken as one, if each by itself is short */
  MOST_WORK = 1024,    /* of a thread that makes several rows */
};

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static gen_ssa load_part(gen_emit *e, const gen_buffer *buf, gen_affine linear)
{
  gen_ssa at = gen_affine_ssa(e, linear);

  if (e->mask) at = gen_select(e, e->mask, at, gen_i64(e, 0));
  return gen_from_storage(e, buf->type, gen_load_plain(e, buf, gen_storage_type(e->part, buf->type), at, 1));
}

static gen_value load(gen_emit *e, const gen_buffer *buf, gen_affine linear)
{
  bool is_complex = weft_dtype_is_complex(buf->type);

  if (buf->elems == 0) {
    gen_ssa zero = LLVMConstNull(gen_register_type(e->part, buf->type));
    return (gen_value){zero, is_complex ? zero : NULL};
  }
  if (!is_complex) return (gen_value){.re = load_part(e, buf, linear)};
  gen_affine re = gen_affine_scale(e, linear, 2);
  return (gen_value){load_part(e, buf, re), load_part(e, buf, gen_affine_offset(re, 1))};
}

static void store_part(gen_emit *e, const gen_buffer *buf, gen_affine linear, gen_ssa v)
{
  gen_ssa at = gen_affine_ssa(e, linear);

  gen_store_plain(e, buf, gen_storage_type(e->part, buf->type), at, gen_to_storage(e, buf->type, v));
}

static void store(gen_emit *e, const gen_buffer *buf, gen_affine linear, const gen_value *values, int apart, int count)
{
  for (int i = 0; i < count; i++) {
    gen_affine at = gen_affine_offset(linear, i);
    gen_value v = values[i * apart];
    if (weft_dtype_is_complex(buf->type)) {
      gen_affine re = gen_affine_scale(e, at, 2);
      store_part(e, buf, re, v.re);
      store_part(e, buf, gen_affine_offset(re, 1), v.im);
    } else {
      store_part(e, buf, at, v.re);
    }
  }
}

/* ---- loops ----------------------------------------------------------------------------------------------------- */

static bool has_inner_loop(const hlo_computation *comp)
{
  HLO_FOREACH(x, comp) {
    if (x->op == HLO_REDUCE || x->op == HLO_REDUCE_WINDOW || x->op == HLO_DOT) return true;
    for (int i = 0; i < x->called_count; i++)
      if (has_inner_loop(x->called[i])) return true;
  }
  return false;
}

/* How many neighbours of `n` elements a thread makes: as many as one access moves, if that leaves enough threads. LLVM
 * joins their loads and stores to vectors where it can prove the alignment. */
static int elems_a_thread(const gen_target *target, const hlo_computation *comp, int64_t n)
{
  int64_t busy = (int64_t)target->cores * BUSY_THREADS;
  int elems = WEFT_MIN(MOST_ELEMS, ACCESS_BYTES / WEFT_MAX(gen_widest_bytes(comp), 1));

  if (elems > 1 && has_inner_loop(comp)) return 1;
  while (elems > 1 && (n % elems != 0 || n / elems < busy)) elems /= 2;
  return WEFT_MAX(elems, 1);
}

/* How the elements of a result are dealt to threads: a thread makes `vector` neighbours in each of `rows` rows, which
 * are of `cols` elements and follow each other. */
typedef struct deal {
  gen_walk *walk;
  int vector, rows;
  int64_t cols, n;
} deal;

/* Makes a row of several rows that follow each other, as long as a warp's accesses and a multiple of `vector` elements.
 * 0: there is no such row. */
static int64_t joined_cols(int64_t n, int64_t cols, int vector)
{
  int64_t rows = n / cols;

  for (int64_t k = 1; k <= rows / 2 && k <= MOST_JOINED; k++)
    if (rows % k == 0 && k * cols % vector == 0 && k * cols >= GEN_WARP * vector) return k * cols;
  return 0;
}

static deal one_row(gen_walk *w)
{
  const gen_part *part = w->f->e.part;
  int64_t n = hlo_shape_elems(hlo_shape_leaf(w->f->fusion->shape, w->first));

  return (deal){.walk = w, .vector = elems_a_thread(part->target, w->f->comp, n), .rows = 1, .cols = n, .n = n};
}

/* Several rows, where that saves reading weights again and leaves enough threads. */
static deal deal_of(gen_walk *w)
{
  const gen_part *part = w->f->e.part;
  deal best = one_row(w), d = best;
  double saved = 0;
  gen_weights weights;

  if (d.n == 0 || part->block || has_inner_loop(w->f->comp)) return best;
  gen_weights_of(w->f->comp, d.n, &weights);
  int64_t work = gen_work_of(w->f->comp), at_once = d.n * weights.read_bytes * PLACES;
  for (int i = 0; i < weights.count; i++) {
    d.cols = 0;
    for (int v = best.vector; v > 0 && d.cols == 0; v /= 2)
      d.cols = joined_cols(d.n, hlo_shape_elems(weights.arrays[i]->shape), d.vector = v);
    if (d.cols == 0) continue;
    d.rows = gen_weights_rows(&weights, part->target, d.cols, at_once);
    while (d.rows > 1 && d.rows * d.vector * work > MOST_WORK) d.rows--;
    double saves = gen_weights_bytes(&weights, d.cols) * (1 - 1.0 / d.rows);
    if (saves > saved) best = d, saved = saves;
  }
  return best;
}

/* The threads that make `rows` rows, and those behind them that make one of the rows that are left. */
static int64_t threads_of_groups(const deal *d) { return d->n / d->cols / d->rows * (d->cols / d->vector); }
static int64_t threads_of_rest(const deal *d) { return d->n / d->cols % d->rows * (d->cols / d->vector); }

/* Makes the neighbours that thread number `thread` has in `rows` rows, from element `first` on, a few rows
 * at a time. */
static weft_status *make_rows(const deal *d, gen_emit *e, gen_affine thread, int64_t first, int rows)
{
  int64_t across = d->cols / d->vector;
  gen_affine row = gen_affine_scale(e, gen_affine_digit(e, thread, across, 0), rows * d->cols);
  gen_affine col = gen_affine_scale(e, gen_affine_digit(e, thread, 1, across), d->vector);
  gen_affine at = gen_affine_offset(gen_affine_add(e, row, col), first);
  gen_walk w = *d->walk;

  w.period = d->vector;
  w.apart = d->cols;
  for (int r = 0; r < rows; r += PLACES) {
    w.places = WEFT_MIN(PLACES, rows - r);
    WEFT_TRY(gen_walk_body(&w, e, gen_affine_offset(at, r * d->cols)));
  }
  return NULL;
}

/* The threads [from, from + count) of `thread`. */
static weft_status *make_part(const deal *d, gen_emit *e, gen_affine thread, int64_t from, int64_t count, int rows)
{
  int64_t first = from * d->rows * d->vector;
  gen_ssa id = gen_affine_ssa(e, gen_affine_offset(thread, -from));
  gen_if inside;

  gen_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntULT, id, gen_i64(e, count), ""));
  int mark = gen_memo_push(e);
  int var = gen_add_var(e, (gen_var){.value = id, .lo = 0, .hi = count, .align = 1});
  WEFT_TRY(make_rows(d, e, gen_affine_var(e, var), first, rows));
  gen_memo_pop(e, mark);
  gen_if_end(e, &inside);
  return NULL;
}

static weft_status *thread_body(void *ctx, gen_emit *e, gen_affine thread)
{
  const deal *d = ctx;
  int64_t groups = threads_of_groups(d), rest = threads_of_rest(d);

  if (rest == 0) return make_rows(d, e, thread, 0, d->rows);
  WEFT_TRY(make_part(d, e, thread, 0, groups, d->rows));
  return make_part(d, e, thread, groups, rest, 1);
}

/* Results of different sizes are walked one after another, each by as many threads as it needs. */
static weft_status *walk(gen_walk *w, bool split, int64_t *units)
{
  deal d = deal_of(w);

  (void)split;
  *units = d.n ? threads_of_groups(&d) + threads_of_rest(&d) : 0;
  return gen_grid_each(w->f, *units, thread_body, &d);
}

/* A thread of a GPU has 255 registers. LLVM makes straight code of a small loop, and what assembles PTX then moves all
 * its loads to the beginning. */
enum { MOST_UNROLLED = 8 };

const gen_walker gen_grid_walker = {
  .name = "nvptx", .divides_narrow = true, .quick_denormals = true, .most_unrolled = MOST_UNROLLED,
  .load = load, .store = store, .walk = walk, .accumulate = gen_grid_accumulate, .columns = gen_grid_columns_of_row, .once = gen_grid_once, .inner = gen_grid_inner,
  .start = gen_grid_start, .copy = gen_grid_copy, .sync = gen_barrier,
};
