/* codegen/nvptx/grid.c -- the walker of a grid: how a thread loads and stores elements, and which elements of a loop's
 * results it makes. */
#include <config.h>

#include "codegen/nvptx/grid.h"

/* BUSY_THREADS: with fewer threads on a multiprocessor, each thread makes one element only, since fewer threads would
 * not hide the latency of memory. ACCESS_BYTES: the most bytes that one access of a thread moves. MOST_ELEMS: the most
 * elements that a thread makes. */
enum { BUSY_THREADS = 64, ACCESS_BYTES = 16, MOST_ELEMS = 4 };

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

static weft_status *group_body(void *ctx, gen_emit *e, gen_affine group)
{
  gen_walk *w = ctx;
  return gen_walk_body(w, e, gen_affine_scale(e, group, w->period));
}

/* Results of different sizes are walked one after another, each by as many threads as it needs. */
static weft_status *walk(gen_walk *w, bool split, int64_t *units)
{
  int64_t n = hlo_shape_elems(hlo_shape_leaf(w->f->fusion->shape, w->first));

  (void)split;
  w->period = elems_a_thread(w->f->e.part->target, w->f->comp, n);
  *units = n / w->period;
  return gen_grid_each(w->f, *units, group_body, w);
}

/* A thread of a GPU has 255 registers. LLVM makes straight code of a small loop, and what assembles PTX then moves all
 * its loads to the beginning. */
enum { MOST_UNROLLED = 8 };

const gen_walker gen_grid_walker = {
  .name = "nvptx", .divides_narrow = true, .most_unrolled = MOST_UNROLLED,
  .load = load, .store = store, .walk = walk, .accumulate = gen_grid_accumulate, .columns = gen_grid_columns_of_row, .once = gen_grid_once, .inner = gen_grid_inner,
  .start = gen_grid_start, .copy = gen_grid_copy, .sync = gen_barrier,
};
