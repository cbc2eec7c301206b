/* cpu/rng_state.c -- rng-get-and-update-state: a 128-bit counter that lives as long as the program. Each use takes
 * the counter's value and then adds delta. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "cpu/makers.h"

typedef struct rng_state {
  weft_mutex mu;
  unsigned __int128 value; /* guarded by mu */
} rng_state;

typedef struct rng_state_thunk {
  rt_thunk base;
  int64_t delta;
  rng_state *state;
} rng_state_thunk;

enum { FIRST_STATE = 0x7012395 }; /* the initial state is XLA's */

static weft_status *rng_state_execute(const rt_thunk *thunk, rt_ctx *ctx)
{
  const rng_state_thunk *t = (const rng_state_thunk *)thunk;

  weft_mutex_lock(&t->state->mu);
  unsigned __int128 value = t->state->value;
  t->state->value += (unsigned __int128)(__int128)t->delta;
  weft_mutex_unlock(&t->state->mu);
  memcpy(rt_args(thunk, ctx)[0], &value, sizeof value); /* u64[2], the low half first */
  return NULL;
}

static void rng_state_destroy(rt_thunk *thunk)
{
  rng_state *state = ((rng_state_thunk *)thunk)->state;

  if (!state) return;
  weft_mutex_fini(&state->mu);
  free(state);
}

static const rt_thunk_ops rng_state_ops = {.size = sizeof(rt_thunk_ops), .kind = "rng-state", .run = rng_state_execute,
                                           .destroy = rng_state_destroy};

weft_status *cpu_rng_state_make(low_step *step, rt_thunk **out_thunk)
{
  if (hlo_shape_bytes(step->instr->shape) != 16)
    return WEFT_ERR(UNIMPLEMENTED, "rng-get-and-update-state of another shape than u64[2]");
  WEFT_TRY(low_thunk_new(step, &rng_state_ops, sizeof(rng_state_thunk), out_thunk));
  rng_state_thunk *t = (rng_state_thunk *)*out_thunk;
  t->delta = step->instr->u.delta;
  t->state = calloc(1, sizeof *t->state);
  WEFT_TRY_ALLOC(t->state);
  weft_mutex_init(&t->state->mu);
  t->state->value = FIRST_STATE;
  return NULL;
}
