/* lower/feed.c -- infeed and outfeed as thunks over the device's queues, send and
 * recv with the host over its channels. */
#include <config.h>

#include "lower/lower_internal.h"
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

weft_status *low_feed_make(low_step *step, rt_thunk **out_thunk)
{
  return low_thunk_new(step, step->instr->op == HLO_INFEED ? &infeed_ops : &outfeed_ops, sizeof(rt_thunk), out_thunk);
}

typedef struct host_transfer_thunk {
  rt_thunk base;
  rt_feed *channel; /* owned by the platform: the queue of the instruction's channel */
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

weft_status *low_host_transfer_make(low_step *step, weft_platform *platform, rt_thunk **out_thunk)
{
  bool sends = step->instr->op == HLO_SEND;
  host_transfer_thunk *t;

  if (sends && step->operand_count != 2) return WEFT_ERR(UNIMPLEMENTED, "a send of a tuple to the host");
  if (sends) step->uses[step->operand_count].access = RT_READ; /* the first result is the operand's memory */
  WEFT_TRY(low_thunk_new(step, sends ? &host_send_ops : &host_recv_ops, sizeof *t, out_thunk));
  t = (host_transfer_thunk *)*out_thunk;
  t->first = sends ? 0 : step->operand_count;
  t->count = sends ? 1 : step->result_count - 2; /* the last two: context and token */
  return rt_channel_feed(platform, step->instr->u.collective->channel_id, &t->channel);
}
