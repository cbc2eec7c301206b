/* infeed and outfeed as thunks over the device's queues, and interpreter.print. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "cpu/cpu_internal.h"
#include "hlo/text.h"
#include "runtime/feed.h"

static weft_status *infeed_start(const rt_thunk *thunk, rt_ctx *ctx)
{
  return rt_feed_take(ctx->info->device->infeed, thunk, ctx, 1, thunk->use_count - 2); /* token in, data, token out */
}
static weft_status *outfeed_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  return rt_feed_put(ctx->info->device->outfeed, thunk, ctx, thunk->use_count - 2); /* data, token in, token out */
}
static const rt_thunk_ops infeed_ops = {.size = sizeof(rt_thunk_ops), .kind = "infeed", .start = infeed_start};
static const rt_thunk_ops outfeed_ops = {.size = sizeof(rt_thunk_ops), .kind = "outfeed", .run = outfeed_run};

weft_status *cpu_feed_make(cpu_lowering *low, rt_thunk **out_thunk)
{
  return cpu_thunk_new(low, low->instr->op == HLO_INFEED ? &infeed_ops : &outfeed_ops, sizeof(rt_thunk), out_thunk);
}

typedef struct print_thunk {
  rt_thunk base;
  const hlo_instr *instr; /* of the executable's module */
} print_thunk;

/* One line for each operand, whole: stdio locks the stream for a line. */
static weft_status *print_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  const hlo_instr *instr = ((const print_thunk *)thunk)->instr;
  void *const *args = rt_args(thunk, ctx);

  for (int i = 0; i < instr->operand_count; i++) {
    hlo_literal value = {.shape = instr->operands[i]->shape, .data = args[i]};
    char shape[128];
    if (!hlo_shape_is_array(value.shape)) continue;
    flockfile(stdout);
    printf("%s %s ", instr->operands[i]->name, hlo_shape_format(value.shape, shape, sizeof shape));
    weft_status *st = hlo_print_literal(&value, stdout);
    putchar('\n');
    funlockfile(stdout);
    if (st) return st;
  }
  return NULL;
}
static const rt_thunk_ops print_ops = {.size = sizeof(rt_thunk_ops), .kind = "print", .run = print_run};

weft_status *cpu_print_make(cpu_lowering *low, rt_thunk **out_thunk)
{
  WEFT_TRY(cpu_thunk_new(low, &print_ops, sizeof(print_thunk), out_thunk));
  ((print_thunk *)*out_thunk)->instr = low->instr;
  return NULL;
}
