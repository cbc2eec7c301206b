/* codegen/nvptx/update.c -- kernels that change part of an array: dynamic-update-slice and select-and-scatter;
 * scatter.c has the third. The first launches bring the array into the result; they do nothing where both are one
 * buffer. The last launch changes it. */
#include <config.h>

#include "codegen/nvptx/grid.h"

#include <string.h>

/* ---- the array that is changed --------------------------------------------------------------------------------- */

/* One element of an array that is copied as it is. */
typedef struct copying {
  const gen_buffer *from, *to;
} copying;

static weft_status *copy_element(void *ctx, gen_emit *e, gen_affine at)
{
  copying *c = ctx;

  gen_store(e, c->to, at, gen_load(e, c->from, at));
  return NULL;
}

/* An array of the same bytes as `buffer`, of integers as wide as they may be. */
static gen_buffer as_words(const gen_buffer *buffer, int64_t bytes)
{
  gen_buffer words = *buffer;
  int width = bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 1;

  words.type = width == 8 ? WEFT_U64 : width == 4 ? WEFT_U32 : WEFT_U8;
  words.elems = bytes / width;
  return words;
}

static int argument_of(const gen_frame *f, const gen_buffer *operand) { return (int)(operand - f->operands); }

weft_status *gen_grid_bring(gen_grid *g, gen_base base)
{
  int64_t n = hlo_shape_elems(base.array->shape);
  gen_frame f;

  WEFT_TRY(gen_grid_open(g, false, &f));
  const gen_buffer *from = gen_base_buffer(&f, base), *to = &f.results[base.leaf];
  if (from) {
    gen_buffer in = as_words(from, hlo_shape_bytes(base.array->shape)),
               out = as_words(to, hlo_shape_bytes(base.array->shape));
    gen_emit *e = &f.e;
    gen_launch *launch = &g->out->launches[g->out->launch_count - 1];
    gen_if apart;
    launch->copy_from = argument_of(&f, from);
    launch->copy_to = f.operand_count + base.leaf;
    gen_if_begin(e, &apart,
                 gen_icmp(e, LLVMIntNE, LLVMBuildPtrToInt(e->b, from->ptr, e->part->i64, ""),
                          LLVMBuildPtrToInt(e->b, to->ptr, e->part->i64, "")));
    n = in.elems;
    WEFT_TRY(gen_grid_each(&f, n, copy_element, &(copying){&in, &out}));
    gen_if_end(e, &apart);
  } else {
    WEFT_TRY(gen_grid_each(&f, n, gen_base_store, &(gen_base_walk){&f, base}));
  }
  return gen_grid_close_each(g, &f, n);
}

/* ---- dynamic-update-slice -------------------------------------------------------------------------------------- */

weft_status *gen_grid_update(gen_grid *g)
{
  const hlo_computation *comp = g->spec->fusion->called[0];
  int leaves = hlo_shape_leaf_count(g->spec->fusion->shape);
  int64_t most = 0;
  gen_frame f;

  for (int r = 0; r < leaves; r++) WEFT_TRY(gen_grid_bring(g, (gen_base){gen_updated_leaf(comp, r)->operands[0], r}));
  WEFT_TRY(gen_grid_open(g, false, &f));
  for (int r = 0; r < leaves; r++) {
    const hlo_instr *dus = gen_updated_leaf(comp, r);
    int64_t n = hlo_shape_elems(dus->operands[1]->shape);
    gen_update update;
    int mark = gen_memo_push(&f.e);
    WEFT_TRY(gen_update_open(&update, &f, dus, r));
    WEFT_TRY(gen_grid_each(&f, n, gen_update_store, &update));
    gen_memo_pop(&f.e, mark);
    most = WEFT_MAX(most, n);
  }
  return gen_grid_close_each(g, &f, most);
}

/* ---- select-and-scatter ---------------------------------------------------------------------------------------- */

/* One thread makes an element of the result: it looks at all windows that the element lies in, in order, and combines
 * the source's elements of those that pick it. */
typedef struct picking {
  gen_pick base; /* first */
  const gen_index *here;
  gen_affine linear;
  gen_value sum; /* slot */
} picking;

static weft_status *picked(picking *p, gen_emit *e)
{
  gen_ssa found, best;
  gen_value sum;
  gen_if block;

  WEFT_TRY(gen_pick_find(&p->base, e, &found, &best));
  gen_ssa mine = gen_icmp(e, LLVMIntEQ, best, gen_affine_ssa(e, p->linear));
  gen_if_begin(e, &block, gen_bin(e, LLVMAnd, found, mine));
  int mark = gen_memo_push(e);
  WEFT_TRY(gen_pick_source(&p->base, e, gen_acc_get(e, p->sum), &sum));
  gen_acc_set(e, p->sum, sum);
  gen_memo_pop(e, mark);
  gen_if_end(e, &block);
  return NULL;
}

/* The windows along dimension d that element `here` may lie in, from the first on. */
static weft_status *windows(picking *p, gen_emit *e, int d)
{
  const hlo_shape *in = p->base.instr->operands[0]->shape, *source = p->base.instr->operands[1]->shape;
  gen_loop loop;
  gen_if inside;

  if (d == in->rank) return picked(p, e);
  const hlo_window_dim *w = &p->base.instr->u.window->dims[d];
  int64_t reach = (w->size - 1) * w->window_dilation, count = reach / w->stride + 1;
  /* The last window that begins at or before the element is number (here + pad_low) / stride. */
  int64_t shift = w->pad_low < 0 ? (-w->pad_low + w->stride - 1) / w->stride : 0;
  gen_affine up = gen_affine_offset(p->here->d[d], w->pad_low + shift * w->stride);
  gen_ssa last = gen_affine_ssa(e, gen_affine_offset(gen_affine_digit(e, up, w->stride, 0), -shift));
  gen_loop_static(e, &loop, 0, count, 1);
  gen_ssa number =
    LLVMBuildNSWAdd(e->b, LLVMBuildNSWSub(e->b, last, gen_i64(e, count - 1), ""), e->vars[loop.var].value, "");
  gen_if_begin(e, &inside, gen_icmp(e, LLVMIntULT, number, gen_i64(e, source->dims[d])));
  int mark = gen_memo_push(e);
  p->base.out[d] = gen_affine_value(e, number, 0, source->dims[d] - 1);
  WEFT_TRY(windows(p, e, d + 1));
  gen_memo_pop(e, mark);
  gen_if_end(e, &inside);
  gen_loop_end(e, &loop);
  return NULL;
}

static weft_status *pick_element(void *ctx, gen_emit *e, gen_affine linear)
{
  picking *p = ctx;
  const hlo_instr *instr = p->base.instr;
  gen_value init;

  p->linear = linear;
  p->here = gen_delinearize(e, instr->shape, linear);
  WEFT_TRY(gen_emit_leaf(e, &p->base.f->env, instr->operands[2], 0, gen_index_seal(gen_index_new(e, 0)), &init));
  p->sum = gen_acc_slot(e, instr->shape->type, 1);
  gen_acc_set(e, p->sum, init);
  if (hlo_shape_elems(instr->operands[1]->shape) > 0) WEFT_TRY(windows(p, e, 0));
  gen_store(e, &p->base.f->results[0], linear, gen_acc_get(e, p->sum));
  return NULL;
}

weft_status *gen_grid_pick(gen_grid *g)
{
  const hlo_instr *instr = gen_updated_leaf(g->spec->fusion->called[0], 0);
  int64_t n = hlo_shape_elems(instr->shape);
  picking p = {0};
  gen_frame f;

  WEFT_TRY(gen_grid_open(g, false, &f));
  WEFT_TRY(gen_pick_open(&p.base, &f, instr));
  WEFT_TRY(gen_grid_each(&f, n, pick_element, &p));
  return gen_grid_close_each(g, &f, n);
}
