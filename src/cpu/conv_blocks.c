/* cpu/conv_blocks.c -- steps of pass conv-blocks: a convolution and a kernel over the pixels of its result.
 *
 *   y[pixels, features] = convolution(x, w)      out[pixels, features] = kernel(y, ...)
 *
 * A task of the convolution computes a block of pixels with all their features, which lies in the thread's scratch and
 * stays in its cache, and calls the kernel for these pixels. The kernel is the one of the whole arrays, whose units are
 * pixels. It gets, for y, an address at which those pixels lie in the scratch; out and all other operands it reads
 * where they are. Convolutions that do not go by blocks are computed as a whole first: pass conv-blocks makes no such
 * steps for this processor, but a file may have been compiled for another one.
 *
 * Blocks depend on the shapes alone, so results are the same bits for any number of threads. */
#include <config.h>

#include <string.h>

#include "base/macros.h"
#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "cpu/conv.h"
#include "cpu/makers.h"

typedef struct conv_blocks {
  cpu_conv conv;
  int lhs, rhs;            /* operands of the step */
  const gen_kernel *kernel;
  int *kernel_uses;        /* by the kernel's operands: the step's operand; -1: y */
  int kernel_arg;          /* the one that is y */
  int operands;            /* of the step */
  int64_t pixels;
  int64_t y_at, args_at;   /* in the step's scratch, behind that of the convolution: y as a whole, the kernel's args */
  bool by_blocks;          /* y is never there as a whole */
} conv_blocks;

typedef struct conv_blocks_thunk {
  rt_thunk base;
  const conv_blocks *plan;
} conv_blocks_thunk;

static weft_status *wrong_step(const char *why) { return WEFT_ERR(UNIMPLEMENTED, "blocks of pixels: %s", why); }

enum { PIXELS = 64 }; /* of a task that calls the kernel alone */

static void free_plan(void *plan) { cpu_conv_fini(&((conv_blocks *)plan)->conv); }

weft_status *cpu_conv_blocks_plan(const cpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *out)
{
  const hlo_instr *fusion = instr->called[0]->root, *conv = NULL;
  conv_blocks *b = WEFT_ARENA_NEW(arena, conv_blocks);
  bool keeps_rows, by_rows;

  WEFT_TRY_ALLOC(b);
  if (fusion->op != HLO_FUSION) return wrong_step("they do not end with a kernel");
  b->kernel = gen_code_kernel(target->code, fusion);
  b->kernel_uses = WEFT_ARENA_ARRAY(arena, int, WEFT_MAX(fusion->operand_count, 1));
  WEFT_TRY_ALLOC(b->kernel_uses);
  for (int i = 0; i < fusion->operand_count; i++) {
    const hlo_instr *from = fusion->operands[i];
    if (from->op == HLO_PARAMETER) {
      b->kernel_uses[i] = (int)from->u.parameter_number;
      continue;
    }
    if (from->op != HLO_CONVOLUTION || conv) return wrong_step("an operand of the kernel is computed");
    conv = from;
    b->kernel_uses[i] = -1;
    b->kernel_arg = i;
  }
  if (!conv || conv->operands[0]->op != HLO_PARAMETER || conv->operands[1]->op != HLO_PARAMETER)
    return wrong_step("they do not begin with a convolution of arrays");
  b->lhs = (int)conv->operands[0]->u.parameter_number;
  b->rhs = (int)conv->operands[1]->u.parameter_number;
  b->operands = instr->operand_count;
  int64_t features = conv->shape->dims[conv->shape->rank - 1];
  b->pixels = features > 0 ? hlo_shape_elems(conv->shape) / features : 0;
  if (!b->kernel || b->kernel->strategy != GEN_STRATEGY_LOOP || b->kernel->phase_count != 1 ||
      b->kernel->result_leaves != 1 || b->kernel->shared_bytes > 0 ||
      b->kernel->operand_leaves != fusion->operand_count || b->kernel->phases[0].units != b->pixels ||
      conv->u.conv->out_feature != conv->shape->rank - 1)
    return wrong_step("the kernel does not go by pixels");
  WEFT_TRY(gen_loops_by_rows(arena, fusion, b->pixels, features, &by_rows));
  WEFT_TRY(gen_keeps_rows(arena, fusion, b->kernel_arg, b->pixels, features, &keeps_rows));
  if (!by_rows || !keeps_rows) return wrong_step("pixels need other pixels");
  WEFT_TRY(cpu_conv_init(&b->conv, conv->u.conv, conv->operands[0]->shape, conv->operands[1]->shape, conv->shape));
  b->by_blocks = cpu_conv_takes_pixels(&b->conv);
  b->y_at = WEFT_ALIGN_UP(b->conv.scratch_bytes, 64);
  b->args_at = b->y_at + (b->by_blocks ? 0 : WEFT_ALIGN_UP(hlo_shape_bytes(conv->shape), 64));
  out->data = b;
  out->scratch_bytes = b->args_at + b->kernel->arg_count * (int64_t)sizeof(void *);
  out->destroy = free_plan;
  return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct kernel_job {
  const conv_blocks *plan;
  void *const *args;
  atomic_bool no_memory;
} kernel_job;

/* Calls the kernel for some pixels of a result that is there as a whole. */
static void kernel_task(void *ctx, int64_t task)
{
  kernel_job *job = ctx;
  const gen_kernel *kernel = job->plan->kernel;
  int64_t begin = task * PIXELS, args_bytes = WEFT_ALIGN_UP(kernel->arg_count * (int64_t)sizeof(void *), 64);
  char *scratch = rt_task_scratch(args_bytes + kernel->scratch_bytes, &job->no_memory);

  if (!scratch) return;
  void **args = (void **)(void *)scratch;
  memcpy(args, job->args, (size_t)kernel->arg_count * sizeof *args);
  if (kernel->scratch_bytes) args[kernel->arg_count - 1] = scratch + args_bytes;
  kernel->phases[0].fn(args, begin, WEFT_MIN(begin + PIXELS, job->plan->pixels));
}

static weft_status *run_apart(const conv_blocks *b, rt_pool *pool, void *const *args, const rt_form *packed,
                              void **kernel_args, char *scratch)
{
  kernel_job job = {.plan = b, .args = kernel_args};

  WEFT_TRY(cpu_conv_run(&b->conv, pool, args[b->lhs], args[b->rhs], packed, scratch + b->y_at, scratch));
  kernel_args[b->kernel_arg] = scratch + b->y_at;
  rt_parallel_for(pool, (b->pixels + PIXELS - 1) / PIXELS, kernel_task, &job);
  return atomic_load(&job.no_memory) ? WEFT_ERR(RESOURCE_EXHAUSTED, "blocks of pixels: out of memory") : NULL;
}

static weft_status *conv_blocks_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  const conv_blocks *b = ((const conv_blocks_thunk *)thunk)->plan;
  void *const *args = rt_args(thunk, ctx);
  char *scratch = args[b->operands + 1];
  void **kernel_args = (void **)(void *)(scratch + b->args_at);
  const rt_form *packed = rt_packed_form(thunk, ctx);
  rt_pool *pool = cpu_pool_of(thunk, ctx);
  atomic_bool no_memory = false;

  for (int i = 0; i < b->kernel->operand_leaves; i++)
    kernel_args[i] = b->kernel_uses[i] < 0 ? NULL : args[b->kernel_uses[i]];
  kernel_args[b->kernel->operand_leaves] = args[b->operands];
  if (!b->by_blocks) return run_apart(b, pool, args, packed, kernel_args, scratch);
  cpu_conv_then then = {.fn = b->kernel->phases[0].fn, .args = kernel_args, .arg_count = b->kernel->arg_count,
                        .pixels_arg = b->kernel_arg, .room_bytes = b->kernel->scratch_bytes, .no_memory = &no_memory};
  return cpu_conv_run_then(&b->conv, pool, args[b->lhs], args[b->rhs], packed, &then, scratch);
}
static const rt_thunk_ops conv_blocks_ops = {.size = sizeof(rt_thunk_ops), .kind = "convolution",
                                             .run = conv_blocks_execute};

weft_status *cpu_conv_blocks_make(low_step *step, rt_thunk **out_thunk)
{
  const conv_blocks *b = step->plan->data;

  WEFT_TRY(low_thunk_new(step, &conv_blocks_ops, sizeof(conv_blocks_thunk), out_thunk));
  ((conv_blocks_thunk *)*out_thunk)->plan = b;
  (*out_thunk)->splits = cpu_pays_to_share(step, (*out_thunk)->cost_ns, false);
  cpu_packing_offer(&b->conv.packing, *out_thunk, b->rhs, 0);
  return NULL;
}
