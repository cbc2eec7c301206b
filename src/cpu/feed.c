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

/* send and recv with the host: through its channel, on platforms where it loops back. */
typedef struct host_transfer_thunk {
  rt_thunk base;
  rt_feed *channel; /* of the platform */
  int first, count; /* arguments that travel */
} host_transfer_thunk;

static weft_status *host_send_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  const host_transfer_thunk *t = (const host_transfer_thunk *)thunk;
  return rt_feed_put(t->channel, thunk, ctx, t->count);
}
static weft_status *host_recv_start(const rt_thunk *thunk, rt_ctx *ctx)
{
  const host_transfer_thunk *t = (const host_transfer_thunk *)thunk;
  return rt_feed_take(t->channel, thunk, ctx, t->first, t->count);
}
static const rt_thunk_ops host_send_ops = {.size = sizeof(rt_thunk_ops), .kind = "host-send", .run = host_send_run};
static const rt_thunk_ops host_recv_ops = {.size = sizeof(rt_thunk_ops), .kind = "host-recv", .start = host_recv_start};

weft_status *cpu_host_transfer_make(cpu_lowering *low, weft_platform *platform, rt_thunk **out_thunk)
{
  bool sends = low->instr->op == HLO_SEND;
  host_transfer_thunk *t;

  if (sends && low->operand_count != 2) return WEFT_ERR(UNIMPLEMENTED, "a send of a tuple to the host");
  if (sends) low->uses[low->operand_count].access = RT_READ; /* the first result is the operand's memory */
  WEFT_TRY(cpu_thunk_new(low, sends ? &host_send_ops : &host_recv_ops, sizeof *t, out_thunk));
  t = (host_transfer_thunk *)*out_thunk;
  t->first = sends ? 0 : low->operand_count;
  t->count = sends ? 1 : low->result_count - 2; /* the last two: context and token */
  return rt_channel_feed(platform, low->instr->u.collective->channel_id, &t->channel);
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
