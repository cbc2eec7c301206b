/* tests/gpu/emulator/grid.c -- runs a launch: which blocks are resident, in which
 * order blocks and warps go, and what ends it.
 *
 * In normal and reversed order one block after another runs to its end.  Interleaved, some blocks are resident
 * together and a random one, and of it a random warp, runs for a random time.  A cooperative launch has all
 * blocks resident in any order.  Registers, shared memory and stack begin as bytes of 0xff, which is NaN in
 * every float format and -1 as an integer. */
#include <config.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "internal.h"

enum { TOGETHER = 6, SLICE = 1 << 16, SHORT_SLICE = 200 };   /* blocks; warp instructions of a warp's turn */

void ptx_fault(ptx_exec *x, int code, const ptx_inst *i, int lane, const char *format, ...)
{
  if (x->code) return;
  x->code = code;
  char where[160] = "", what[400];
  if (x->block)
    snprintf(where, sizeof where, ", block (%u,%u,%u)", x->block->cta[0], x->block->cta[1], x->block->cta[2]);
  size_t n = strlen(where);
  if (x->warp && lane >= 0) snprintf(where + n, sizeof where - n, ", thread %d", x->warp->index * PTX_LANES + lane);
  n = strlen(where);
  if (i) snprintf(where + n, sizeof where - n, ", PTX line %d (%s)", i->line, ptx_op_name((ptx_op)i->op));
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  snprintf(x->error, x->error_size, "kernel %s%s: %s", x->kernel->name, where, what);
}

static uint64_t random_below(ptx_exec *x, uint64_t n)
{
  x->random ^= x->random << 13, x->random ^= x->random >> 7, x->random ^= x->random << 17;
  return x->random % n;
}

static uint64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- blocks ---- */

static void set_special_rows(ptx_exec *x, const ptx_block *b, ptx_warp *w)
{
  const ptx_launch *la = x->launch;
  uint64_t used = x->kernel->module->sregs;
  uint64_t shared = x->kernel->shared_bytes + la->dynamic_shared;
  for (int l = 0; l < PTX_LANES; l++) {
    unsigned t = (unsigned)(w->index * PTX_LANES + l), bx = la->block[0], by = la->block[1];
    uint32_t below = (1u << l) - 1, own = 1u << l;
    uint64_t v[PTX_SR_COUNT] = {
      [PTX_SR_DYNAMIC] = x->dynamic_at, [PTX_SR_TID_X] = t % bx, [PTX_SR_TID_Y] = t / bx % by, [PTX_SR_TID_Z] = t / bx / by,
      [PTX_SR_NTID_X] = bx, [PTX_SR_NTID_Y] = by, [PTX_SR_NTID_Z] = la->block[2], [PTX_SR_CTAID_X] = b->cta[0],
      [PTX_SR_CTAID_Y] = b->cta[1], [PTX_SR_CTAID_Z] = b->cta[2], [PTX_SR_NCTAID_X] = la->grid[0], [PTX_SR_NCTAID_Y] = la->grid[1],
      [PTX_SR_NCTAID_Z] = la->grid[2], [PTX_SR_LANEID] = (uint64_t)l, [PTX_SR_WARPID] = (uint64_t)w->index,
      [PTX_SR_NWARPID] = x->warp_count, [PTX_SR_WARP_SZ] = PTX_LANES, [PTX_SR_SMID] = b->index % 16, [PTX_SR_NSMID] = 16,
      [PTX_SR_CLOCK] = x->stats.warp_instructions, [PTX_SR_CLOCK64] = x->stats.warp_instructions,
      [PTX_SR_GLOBALTIMER] = now_ns(), [PTX_SR_LT] = below, [PTX_SR_LE] = below | own, [PTX_SR_EQ] = own,
      [PTX_SR_GE] = (uint32_t)~below, [PTX_SR_GT] = (uint32_t) ~(below | own), [PTX_SR_DYN_SIZE] = la->dynamic_shared,
      [PTX_SR_TOTAL_SIZE] = shared};
    for (int s = 0; s < PTX_SR_COUNT; s++)
      if (s <= PTX_SR_DYNAMIC || used >> s & 1) w->rows[s][l] = v[s];
  }
}

static void start_warp(ptx_exec *x, const ptx_block *b, ptx_warp *w)
{
  const ptx_kernel *k = x->kernel;
  memset(w->rows + PTX_SR_COUNT, 0xff, sizeof(ptx_row) * (size_t)(k->rows - PTX_SR_COUNT));
  memset(w->preds, 0xff, sizeof *w->preds * (size_t)k->preds);
  w->preds[0] = 0, w->preds[1] = ~0u;
  memset(w->local, 0xff, x->local_size * PTX_LANES);
  set_special_rows(x, b, w);
  unsigned left = x->threads - (unsigned)w->index * PTX_LANES;
  w->started = w->alive = left >= PTX_LANES ? ~0u : (1u << left) - 1;
  w->group_count = 1, w->syncs = w->backs = w->rotated = 0;
  w->groups[0] = (ptx_group){.pc = k->entry, .mask = w->started};
}

static void start_block(ptx_exec *x, ptx_block *b, uint64_t index)
{
  const unsigned *g = x->launch->grid;
  b->index = (uint32_t)index;
  b->cta[0] = (unsigned)(index % g[0]), b->cta[1] = (unsigned)(index / g[0] % g[1]),
  b->cta[2] = (unsigned)(index / g[0] / g[1]);
  memset(b->shared, 0xff, x->shared_size);
  memset(b->barriers, 0, sizeof b->barriers);
  b->epoch = b->exited = 0;
  b->live = true;
  for (unsigned n = 0; n < x->warp_count; n++) start_warp(x, b, &b->warps[n]);
  if (x->races) ptx_races_new_block(x, b);
}

static bool make_block(ptx_exec *x, ptx_block *b)
{
  const ptx_kernel *k = x->kernel;
  b->shared = aligned_alloc(1024, (x->shared_size + 1024) / 1024 * 1024);
  b->warps = calloc(x->warp_count, sizeof *b->warps);
  bool ok = b->shared && b->warps;
  for (unsigned n = 0; ok && n < x->warp_count; n++) {
    ptx_warp *w = &b->warps[n];
    w->index = (int)n;
    w->rows = aligned_alloc(64, sizeof(ptx_row) * (size_t)k->rows);
    w->preds = malloc(sizeof *w->preds * (size_t)k->preds);
    w->local = aligned_alloc(16, x->local_size * PTX_LANES);
    ok = w->rows && w->preds && w->local;
  }
  return ok;
}

static void drop_block(ptx_exec *x, ptx_block *b)
{
  for (unsigned n = 0; b->warps && n < x->warp_count; n++) {
    free(b->warps[n].rows);
    free(b->warps[n].preds);
    free(b->warps[n].local);
  }
  free(b->warps);
  free(b->shared);
}

/* ---- turns ---- */

/* One turn of each warp of the block, or of a random one.  Sets b->live to whether threads are left. */
static void turn(ptx_exec *x, ptx_block *b)
{
  x->block = b;
  bool interleaved = x->launch->order == PTX_INTERLEAVED, moved = false, left = false;
  uint64_t before = x->stats.warp_instructions;
  unsigned first = interleaved ? (unsigned)random_below(x, x->warp_count) : 0;
  for (unsigned n = 0; n < x->warp_count && !x->code; n++) {
    unsigned at = x->launch->order == PTX_REVERSED ? x->warp_count - 1 - n : (first + n) % x->warp_count;
    x->quantum = interleaved ? 1 + random_below(x, SHORT_SLICE) : SLICE;
    ptx_run_warp(x, &b->warps[at]);
  }
  if (x->code) return;
  moved = x->stats.warp_instructions != before;
  x->warp = NULL;
  uint32_t epoch = b->epoch;
  ptx_barrier_check(x);
  for (unsigned n = 0; n < x->warp_count; n++) left |= b->warps[n].alive != 0;
  b->live = left;
  if (left && !moved && b->epoch == epoch && !x->code) ptx_report_deadlock(x);
}

/* The index of the next block that starts. */
static uint64_t next_index(const ptx_exec *x, uint64_t started, uint64_t blocks)
{
  return x->launch->order == PTX_REVERSED ? blocks - 1 - started : started;
}

static void run_blocks(ptx_exec *x, uint64_t blocks)
{
  uint64_t started = 0, live = 0;
  for (unsigned n = 0; n < x->resident; n++, live++) start_block(x, &x->blocks[n], next_index(x, started++, blocks));
  for (unsigned at = 0; live && !x->code; at++) {
    ptx_block *b = &x->blocks[x->launch->order == PTX_INTERLEAVED ? random_below(x, x->resident) : at % x->resident];
    if (!b->live) continue;
    turn(x, b);
    if (x->code) return;
    if (x->launch->budget && x->stats.warp_instructions > x->launch->budget) {
      ptx_fault(x, 702, NULL, -1,
                "not done after %" PRIu64 " warp instructions, %" PRIu64 " of %" PRIu64 " blocks are left",
                x->stats.warp_instructions, live + (blocks - started), blocks);
    }
    if (b->live) continue;
    live--;
    if (started < blocks) start_block(x, b, next_index(x, started++, blocks)), live++;
  }
}

static void prepare(ptx_exec *x, uint64_t blocks)
{
  const ptx_kernel *k = x->kernel;
  const ptx_launch *la = x->launch;
  x->threads = la->block[0] * la->block[1] * la->block[2];
  x->warp_count = (x->threads + PTX_LANES - 1) / PTX_LANES;
  x->dynamic_at = k->shared_bytes;
  x->shared_size = k->shared_bytes + la->dynamic_shared;
  x->local_size = k->local_bytes + 16;
  uint64_t resident = la->cooperative ? blocks : la->order == PTX_INTERLEAVED ? TOGETHER : 1;
  x->resident = (unsigned)(resident < blocks ? resident : blocks);
  x->random = la->seed * 0x9e3779b97f4a7c15ull + 0x1234567;
}

int ptx_run(const ptx_kernel *k, const ptx_launch *launch, ptx_stats *stats, char *error, size_t error_size)
{
  ptx_exec x = {.kernel = k, .launch = launch, .error = error, .error_size = error_size};
  uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
  prepare(&x, blocks);
  x.blocks = calloc(x.resident, sizeof *x.blocks);
  bool ok = x.blocks != NULL;
  for (unsigned n = 0; ok && n < x.resident; n++) ok = make_block(&x, &x.blocks[n]);
  if (ok && launch->checks & PTX_CHECK_RACES) ok = (x.races = ptx_races_new(&x)) != NULL;
  if (ok) run_blocks(&x, blocks);
  else ptx_fault(&x, 701, NULL, -1, "the emulator has no memory for %u blocks", x.resident);
  for (unsigned n = 0; x.blocks && n < x.resident; n++) drop_block(&x, &x.blocks[n]);
  free(x.blocks);
  ptx_races_free(x.races);
  if (stats) {
    uint64_t *to = (uint64_t *)stats, *from = (uint64_t *)&x.stats;
    x.stats.threads = blocks * x.threads;
    for (size_t n = 0; n < sizeof *stats / sizeof *to; n++) to[n] += from[n];
  }
  return x.code;
}
