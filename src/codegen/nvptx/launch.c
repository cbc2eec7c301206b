/* codegen/nvptx/launch.c -- the launches of an artefact, and kernels in which each element has a thread. */
#include <config.h>

#include "base/array.h"
#include "codegen/nvptx/grid.h"

#include <stdio.h>
#include <stdlib.h>

enum { LOOP_THREADS = 128 };

static weft_status *make_room(gen_artefact *out)
{
  WEFT_TRY_ALLOC(WEFT_RESIZE(out->launches, (size_t)out->launch_count + 1));
  return NULL;
}

weft_status *gen_grid_begin(gen_grid *g, gen_launch **out_launch)
{
  gen_artefact *out = g->out;

  WEFT_TRY(make_room(out));
  gen_launch *launch = &out->launches[out->launch_count];
  *launch = (gen_launch){.copy_from = -1, .copy_to = -1};
  snprintf(launch->entry, sizeof launch->entry, "kernel%d", g->named++);
  out->launch_count++;
  char *symbol = weft_arena_alloc(g->part->arena, sizeof launch->entry);
  WEFT_TRY_ALLOC(symbol);
  snprintf(symbol, sizeof launch->entry, "%s", launch->entry);
  g->spec->symbols[0] = symbol;
  *out_launch = launch;
  return NULL;
}

weft_status *gen_grid_shape(gen_grid *g, int64_t blocks, int threads)
{
  gen_launch *launch = &g->out->launches[g->out->launch_count - 1];

  if (blocks > INT32_MAX) return WEFT_ERR(UNIMPLEMENTED, "nvptx: a grid of %lld blocks", (long long)blocks);
  launch->blocks = blocks;
  launch->threads = threads;
  return NULL;
}

weft_status *gen_grid_open(gen_grid *g, bool numbered, gen_frame *f)
{
  gen_launch *launch;

  WEFT_TRY(gen_grid_begin(g, &launch));
  launch->number_count = numbered ? GEN_LAUNCH_NUMBERS : 0;
  g->spec->whole = !numbered;
  return gen_frame_open(g->part, g->spec, 0, f);
}

weft_status *gen_grid_close(gen_grid *g, gen_frame *f, int64_t blocks, int threads)
{
  gen_frame_close(f);
  return gen_grid_shape(g, blocks, threads);
}

void gen_grid_numbers(gen_grid *g, int64_t begin, int64_t end)
{
  gen_launch *launch = &g->out->launches[g->out->launch_count - 1];

  launch->numbers[0] = begin;
  launch->numbers[1] = end;
}

weft_status *gen_grid_again(gen_grid *g, int number)
{
  gen_artefact *out = g->out;

  WEFT_TRY(make_room(out));
  out->launches[out->launch_count++] = out->launches[number];
  return NULL;
}

int gen_grid_threads(const gen_part *part)
{
  return part->block ? GEN_BLOCK_THREADS : WEFT_MIN(LOOP_THREADS, part->target->block_threads);
}

static int64_t blocks_for(const gen_part *part, int64_t n)
{
  int64_t threads = gen_grid_threads(part);
  return (n + threads - 1) / threads;
}

weft_status *gen_grid_close_each(gen_grid *g, gen_frame *f, int64_t n)
{
  return gen_grid_close(g, f, blocks_for(g->part, n), gen_grid_threads(g->part));
}

gen_ssa gen_blocks_begin(gen_emit *e, gen_blocks *b, int64_t count)
{
  *b = (gen_blocks){.looped = e->part->block && count > 1};
  if (!e->part->block) return gen_wide(e, gen_block_id(e));
  if (!b->looped) return gen_i64(e, 0);
  gen_loop_static(e, &b->loop, 0, count, 1);
  b->mark = gen_memo_push(e);
  return e->vars[b->loop.var].value;
}

void gen_blocks_end(gen_emit *e, gen_blocks *b)
{
  if (!b->looped) return;
  gen_barrier(e);
  gen_memo_pop(e, b->mark);
  gen_loop_end(e, &b->loop);
}

weft_status *gen_grid_each(gen_frame *f, int64_t n, gen_body_fn *body, void *ctx)
{
  gen_emit *e = &f->e;
  gen_blocks blocks;
  gen_if inside;

  if (n == 0) return NULL;
  gen_ssa block = gen_blocks_begin(e, &blocks, blocks_for(e->part, n));
  gen_ssa before = LLVMBuildNSWMul(e->b, block, gen_i64(e, gen_grid_threads(e->part)), "");
  gen_ssa id = LLVMBuildNSWAdd(e->b, before, gen_wide(e, gen_thread_id(e)), "");
  gen_if_begin(e, &inside, LLVMBuildICmp(e->b, LLVMIntULT, id, gen_i64(e, n), ""));
  int mark = gen_memo_push(e);
  int var = gen_add_var(e, (gen_var){.value = id, .lo = 0, .hi = n, .align = 1});
  weft_status *st = body(ctx, e, gen_affine_var(e, var));
  gen_memo_pop(e, mark);
  gen_if_end(e, &inside);
  gen_blocks_end(e, &blocks);
  return st;
}

gen_buffer gen_partial(gen_emit *e, const gen_frame *f, const gen_acc *acc, int i, int64_t elems)
{
  weft_dtype type = acc->type;

  if (weft_dtype_is_float(type) && type != WEFT_F64) type = WEFT_F32; /* narrow floats are summed in f32 */
  return (gen_buffer){.ptr = gen_byte_ptr(e, f->shared, i * elems * GEN_PARTIAL_BYTES), .type = type, .elems = elems};
}
