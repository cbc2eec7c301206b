/* tests/gpu/emulator/barrier.c -- barriers of a block: bar.sync, bar.arrive, bar.red and their other spellings.
 *
 * A barrier without a count is complete when every thread of the block that has not ended waits there.  A barrier
 * with a count is complete when so many have come, and a warp that comes whole counts as 32.  bar.sync and
 * barrier.aligned want the whole warp: lanes that come first wait for the others (warp.c), so that a barrier which
 * only a part of a warp reaches is found. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "internal.h"

static uint32_t scalar(const ptx_exec *x, const ptx_inst *i, int n, uint32_t mask)
{
  return (uint32_t)ptx_in(x, i, n)[__builtin_ctz(mask)];
}

static void release(ptx_exec *x, unsigned id)
{
  ptx_barrier *b = &x->block->barriers[id];
  ptx_warp *own = x->warp;
  for (unsigned n = 0; n < x->warp_count; n++) {
    ptx_warp *w = x->warp = &x->block->warps[n];
    for (int g = 0; g < w->group_count; g++) {
      if (w->groups[g].waits != PTX_AT_BARRIER || w->groups[g].barrier != id) continue;
      const ptx_inst *i = &x->kernel->module->code[w->groups[g].pc - 1];
      w->groups[g].waits = PTX_RUNS;
      if (i->mode != PTX_BAR_RED) continue;
      if (i->atomic != PTX_POPC)
        ptx_out_pred(x, i, 0, w->groups[g].mask, (i->atomic == PTX_AND ? b->votes_all : b->votes_any) ? ~0u : 0);
      else PTX_EACH(w->groups[g].mask) ptx_out(x, i, 0)[l] = b->count;
    }
  }
  x->warp = own;
  x->block->epoch++;
  x->stats.barriers++;
  *b = (ptx_barrier){0};
}

static void complete(ptx_exec *x, unsigned id)
{
  ptx_barrier *b = &x->block->barriers[id];
  if (!b->waiting && !b->weight) return;
  if (b->expected ? b->weight >= b->expected : b->waiting + x->block->exited == x->threads) {
    if (!b->expected && x->block->exited && x->launch->checks & PTX_CHECK_BARRIERS) {
      x->warp = NULL;
      ptx_fault(x, 719, NULL, -1, "barrier %u: %u threads have ended without reaching it", id, x->block->exited);
      return;
    }
    release(x, id);
  }
}

bool ptx_barrier_arrive(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  int n = i->mode == PTX_BAR_RED ? i->src_count - 1 : i->src_count; /* the predicate is last */
  unsigned id = n > 0 ? scalar(x, i, 0, mask) : 0, expected = n > 1 ? scalar(x, i, 1, mask) : 0;
  if (id >= PTX_BARRIERS || (expected & 31) || (i->mode == PTX_BAR_ARRIVE && !expected)) {
    ptx_fault(x, 719, i, -1, "barrier %u of %u threads: there are 16 barriers, and counts are multiples of 32", id,
              expected);
    return true;
  }
  ptx_barrier *b = &x->block->barriers[id];
  if ((b->waiting || b->weight) && b->expected != expected) {
    ptx_fault(x, 719, i, -1, "barrier %u is used with %u and with %u threads at once", id, b->expected, expected);
    return true;
  }
  if (i->mode == PTX_BAR_RED) {
    uint32_t votes = ptx_in_pred(x, i, n) & mask;
    b->votes_all = (b->waiting ? b->votes_all : 1) && votes == mask;
    b->votes_any |= votes != 0;
    b->count += (uint32_t)__builtin_popcount(votes);
  }
  ptx_fence(x, PTX_WEAK, PTX_OF_BLOCK);
  b->expected = expected;
  b->weight += mask == x->warp->started ? PTX_LANES : (uint32_t)__builtin_popcount(mask);
  if (i->mode == PTX_BAR_ARRIVE) {
    complete(x, id);
    return true;
  }
  b->waiting += (uint32_t)__builtin_popcount(mask);
  ptx_warp *w = x->warp;
  int pc = (int)(i - x->kernel->module->code) + 1;
  w->groups[w->group_count++] = (ptx_group){.pc = pc, .mask = mask, .waits = PTX_AT_BARRIER, .barrier = (uint8_t)id};
  return false;
}

void ptx_barrier_check(ptx_exec *x)
{
  for (unsigned id = 0; id < PTX_BARRIERS && !x->code; id++) complete(x, id);
}

/* Nobody in the block can go on: says where some of them wait. */
void ptx_report_deadlock(ptx_exec *x)
{
  char text[300] = "";
  int at = 0;
  for (unsigned n = 0; n < x->warp_count && at < 200; n++) {
    const ptx_warp *w = &x->block->warps[n];
    for (int g = 0; g < w->group_count && at < 200; g++) {
      bool barrier = w->groups[g].waits == PTX_AT_BARRIER;
      const ptx_inst *i = &x->kernel->module->code[w->groups[g].pc - barrier];
      at += snprintf(text + at, sizeof text - (size_t)at, "%swarp %u lanes %#x at line %d (%s)", at ? "; " : "", n,
                     w->groups[g].mask, i->line, ptx_op_name((ptx_op)i->op));
    }
  }
  x->warp = NULL;
  ptx_fault(x, 719, NULL, -1, "deadlock: all threads of the block wait: %s", text);
}
