/* tests/gpu/emulator/warp.c -- runs one warp: divergence, reconvergence, and the instructions that lanes do together.
 *
 * A warp is a set of groups of lanes, each at one place of the code.  The group that is deepest in calls, and among
 * these the one with the least place, runs; groups that meet become one.  So lanes that diverged at a branch come
 * together again without any analysis of the control flow, and each order that results is one that independent threads
 * may have.  A group that jumps back many times while others could run lets the others go first for a while: a lane may
 * wait in a loop for another lane of its warp. */
#include <config.h>

#include <sched.h>
#include <string.h>

#include "internal.h"

enum { PATIENCE = 4096 };   /* jumps back while other groups could run */

static void add_group(ptx_warp *w, int pc, int depth, uint32_t mask, ptx_wait waits)
{
  if (!mask) return;
  for (int g = 0; g < w->group_count; g++) {
    ptx_group *o = &w->groups[g];
    if (o->pc != pc || o->depth != depth || o->waits == PTX_AT_BARRIER) continue;
    o->mask |= mask;
    o->waits = PTX_RUNS; /* lanes that waited for these look again */
    return;
  }
  w->groups[w->group_count++] = (ptx_group){.pc = pc, .depth = depth, .mask = mask, .waits = waits};
}

static bool is_before(const ptx_group *a, const ptx_group *b)
{
  return a->depth != b->depth ? a->depth > b->depth : a->pc < b->pc;
}

static int first_group(const ptx_warp *w)
{
  int best = -1;
  for (int g = 0; g < w->group_count; g++)
    if (w->groups[g].waits == PTX_RUNS && (best < 0 || is_before(&w->groups[g], &w->groups[best]))) best = g;
  return best;
}

/* Groups that a barrier let go at one place are one again. */
static void merge_groups(ptx_warp *w)
{
  for (int g = 0; g < w->group_count; g++)
    for (int h = g + 1; h < w->group_count; h++) {
      ptx_group *a = &w->groups[g], *b = &w->groups[h];
      if (a->pc != b->pc || a->depth != b->depth || a->waits != PTX_RUNS || b->waits != PTX_RUNS) continue;
      a->mask |= b->mask;
      *b = w->groups[--w->group_count];
      h--;
    }
}

/* The operand of an instruction with .sync that names its members; -1: the instruction is for all lanes. */
static int members_operand(const ptx_inst *i)
{
  switch (i->op) {
  case PTX_OP_shfl: return 3;
  case PTX_OP_vote: case PTX_OP_match: case PTX_OP_redux: return 1;
  case PTX_OP_elect: return 0;
  case PTX_OP_bar: case PTX_OP_barrier: return i->mode == PTX_BAR_WARP ? 0 : -1;
  default: return -1;
  }
}

/* The lanes of `mask` that name the same members as the first of them; *out_members says which. */
static uint32_t same_members(const ptx_exec *x, const ptx_inst *i, uint32_t mask, uint32_t *out_members)
{
  int at = members_operand(i);
  uint32_t same = 0;
  if (at < 0) return *out_members = x->warp->started, mask;
  const uint64_t *named = ptx_in(x, i, at);
  *out_members = (uint32_t)named[__builtin_ctz(mask)];
  PTX_EACH(mask) same |= (uint32_t)((uint32_t)named[l] == *out_members) << l;
  return same;
}

static bool wants_others(const ptx_inst *i)
{
  switch (i->op) {
  case PTX_OP_shfl: case PTX_OP_vote: case PTX_OP_match: case PTX_OP_redux: case PTX_OP_elect: case PTX_OP_mma:
  case PTX_OP_ldmatrix: return true;
  case PTX_OP_bar: return true;
  case PTX_OP_barrier: return i->mode == PTX_BAR_WARP || i->flags & PTX_F_ALIGNED;
  default: return false;
  }
}

/* ---- what lanes do together ---- */

static void shuffle(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t a[PTX_LANES];
  memcpy(a, ptx_in(x, i, 0), sizeof a);
  const uint64_t *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2);
  uint64_t *d = ptx_out(x, i, 0), result[PTX_LANES];
  uint32_t valid = 0;
  PTX_EACH(mask)
  {
    int b = (int)B[l] & 31, c = (int)C[l], limit = c & 31, segment = c >> 8 & 31;
    int most = (l & segment) | (limit & ~segment), least = l & segment, from;
    bool ok;
    switch (i->mode) {
    case PTX_UP: from = l - b, ok = from >= most; break;
    case PTX_DOWN: from = l + b, ok = from <= most; break;
    case PTX_BFLY: from = l ^ b, ok = from <= most; break;
    default: from = least | (b & ~segment), ok = from <= most;
    }
    if (!ok) from = l;
    if (!(mask >> from & 1)) {
      ptx_fault(x, 719, i, l, "shfl.sync reads lane %d, which does not take part", from);
      return;
    }
    result[l] = a[from], valid |= (uint32_t)ok << l;
  }
  PTX_EACH(mask) d[l] = result[l];
  if (i->dst_count > 1) ptx_out_pred(x, i, 1, mask, valid);
}

static void vote(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint32_t votes = ptx_in_pred(x, i, 0) & mask;
  if (i->mode == PTX_BALLOT) {
    uint64_t *d = ptx_out(x, i, 0);
    PTX_EACH(mask) d[l] = votes;
    return;
  }
  bool r = i->mode == PTX_ANY ? votes != 0 : i->mode == PTX_ALL ? votes == mask : votes == mask || votes == 0;
  ptx_out_pred(x, i, 0, mask, r ? ~0u : 0);
}

static void match(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t a[PTX_LANES], *d = ptx_out(x, i, 0), cut = ptx_bytes((ptx_type)i->type) == 4 ? 0xffffffffu : ~0ull;
  memcpy(a, ptx_in(x, i, 0), sizeof a);
  uint32_t all = 0;
  PTX_EACH(mask)
  {
    uint32_t same = 0;
    for (int k = 0; k < PTX_LANES; k++) same |= (uint32_t)(mask >> k & 1 && (a[k] & cut) == (a[l] & cut)) << k;
    d[l] = i->mode == PTX_ALL ? same == mask ? mask : 0 : same;
    all |= (uint32_t)(same == mask) << l;
  }
  if (i->dst_count > 1) ptx_out_pred(x, i, 1, mask, all);
}

static void reduce(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *a = ptx_in(x, i, 0);
  int first = __builtin_ctz(mask);
  uint64_t r = a[first], *d = ptx_out(x, i, 0);
  PTX_EACH(mask & ~(1u << first)) r = ptx_atomic_value(i, r, a[l]);
  PTX_EACH(mask) d[l] = r;
}

static void elect(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t *d = ptx_out(x, i, 0);
  PTX_EACH(mask) d[l] = (uint64_t)__builtin_ctz(mask);
  ptx_out_pred(x, i, 1, mask, 1u << __builtin_ctz(mask));
}

static void active_mask(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  uint64_t *d = ptx_out(x, i, 0);
  PTX_EACH(mask) d[l] = mask;
}

/* A thread that waits for one of another device lets it go on: the host may have fewer cores than devices. */
static void rest(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  (void)x, (void)i, (void)mask;
  sched_yield();
}

ptx_handler *ptx_pick_warp(const ptx_inst *i)
{
  switch (i->op) {
  case PTX_OP_shfl: return i->src_count == 4 && i->mode <= PTX_BFLY ? shuffle : NULL;
  case PTX_OP_vote: return i->src_count == 2 && i->mode >= PTX_ALL ? vote : NULL;
  case PTX_OP_match: return i->src_count == 2 && (i->mode == PTX_ALL || i->mode == PTX_ANY) ? match : NULL;
  case PTX_OP_redux:
    return i->src_count == 2 && i->atomic && i->atomic <= PTX_XOR && !ptx_is_float((ptx_type)i->type) ? reduce : NULL;
  case PTX_OP_elect: return elect;
  case PTX_OP_activemask: return active_mask;
  case PTX_OP_nanosleep: return rest;
  default: return NULL;
  }
}

/* ---- control flow ---- */

static uint32_t guarded(const ptx_warp *w, const ptx_inst *i, uint32_t mask)
{
  return i->guard < 0 ? mask : mask & (i->negate ? ~w->preds[i->guard] : w->preds[i->guard]);
}

static void end_lanes(ptx_exec *x, ptx_warp *w, uint32_t mask)
{
  w->alive &= ~mask;
  x->block->exited += (uint32_t)__builtin_popcount(mask);
  for (int g = 0; g < w->group_count; g++)
    if (w->groups[g].waits == PTX_SYNC) w->groups[g].waits = PTX_RUNS; /* those who waited for these lanes look again */
}

static void jump_by_table(ptx_exec *x, ptx_warp *w, const ptx_inst *i, int depth, uint32_t mask)
{
  const ptx_module *m = x->kernel->module;
  const int *table = m->tables + 2 * (size_t)i->target;
  const uint64_t *a = ptx_in(x, i, 0);
  PTX_EACH(mask)
  {
    uint64_t n = (uint32_t)a[l];
    if (n >= (uint64_t)table[1]) {
      ptx_fault(x, 719, i, l, "brx.idx with %u of %d targets", (unsigned)n, table[1]);
      return;
    }
    add_group(w, m->targets[table[0] + (int)n], depth, 1u << l, PTX_RUNS);
  }
}

/* Lanes go back to where they called. */
static void leave_function(ptx_warp *w, const ptx_inst *i, int depth, uint32_t mask)
{
  const uint64_t *back = w->rows[i->target];
  PTX_EACH(mask) add_group(w, (int)back[l], depth - 1, 1u << l, PTX_RUNS);
}

/* Executes an instruction with .sync for those lanes whose members are all here, and returns these lanes; the others
 * wait. Lanes may name different members: each set of members is for itself. Lanes that have ended are not waited for,
 * but a whole-warp barrier reports them when it is complete. */
static uint32_t together(ptx_exec *x, ptx_warp *w, const ptx_inst *i, int pc, int depth, uint32_t active)
{
  uint32_t done = 0, members;
  for (uint32_t rest = active; rest;) {
    uint32_t same = same_members(x, i, rest, &members);
    rest &= ~same;
    members &= w->alive;
    if (same & ~members) {
      ptx_fault(x, 719, i, __builtin_ctz(same & ~members),
                "a lane executes a .sync instruction whose member mask %#x lacks it", members);
      return active;
    }
    if (members & ~same) continue;
    if (i->run) i->run(x, i, same);
    done |= same;
  }
  add_group(w, pc, depth, active & ~done, PTX_SYNC);
  return done;
}

/* One instruction that may move the group elsewhere.  true: the group goes on at *pc with the lanes of *mask. */
static bool control(ptx_exec *x, ptx_warp *w, const ptx_inst *i, int *pc, int depth, uint32_t *mask, uint32_t active)
{
  uint32_t rest = *mask & ~active;
  switch (i->op) {
  case PTX_OP_bra:
    if (active == *mask) return *pc = i->target, true;
    add_group(w, i->target, depth, active, PTX_RUNS);
    break;
  case PTX_OP_brx: jump_by_table(x, w, i, depth, active); break;
  case PTX_OP_call: {
    uint64_t *back = w->rows[i->offset];
    PTX_EACH(active) back[l] = (uint64_t)(*pc + 1);
    add_group(w, i->target, depth + 1, active, PTX_RUNS);
    break;
  }
  case PTX_OP_ret: leave_function(w, i, depth, active); break;
  case PTX_OP_exit: end_lanes(x, w, active); break;
  case PTX_OP_trap: case PTX_OP_brkpt: ptx_fault(x, 719, i, __builtin_ctz(active), "trap"); return false;
  default: /* barriers of the block, and of the warp */
    if (wants_others(i)) {
      uint32_t done = together(x, w, i, *pc, depth, active);
      if (done != active) {
        rest |= done;
        break;
      }
    }
    if (i->mode == PTX_BAR_WARP) {
      if (active == w->alive) w->syncs++;
      if (!rest) return ++*pc, true;
      add_group(w, *pc + 1, depth, active, PTX_RUNS);
    } else if (ptx_barrier_arrive(x, i, active)) {
      add_group(w, *pc + 1, depth, active, PTX_RUNS);
    } else {
      w->groups[w->group_count - 1].depth = depth;
    }
  }
  add_group(w, *pc + 1, depth, rest, PTX_RUNS);
  return false;
}

/* Runs one group until it ends, waits, meets another or has had its share. */
static void run_group(ptx_exec *x, ptx_warp *w, ptx_group cur)
{
  const ptx_inst *code = x->kernel->module->code;
  int pc = cur.pc, meets = INT32_MAX;
  uint32_t mask = cur.mask;
  for (int g = 0; g < w->group_count; g++) /* the next place at which another group of this depth is */
    if (w->groups[g].waits != PTX_AT_BARRIER && w->groups[g].depth == cur.depth && w->groups[g].pc >= pc &&
        w->groups[g].pc < meets)
      meets = w->groups[g].pc;
  while (!x->code) {
    if (pc >= meets || x->quantum == 0) {
      add_group(w, pc, cur.depth, mask, PTX_RUNS);
      return;
    }
    const ptx_inst *i = &code[pc];
    uint32_t active = guarded(w, i, mask);
    x->quantum--;
    x->stats.warp_instructions++;
    x->stats.slots += i->slots;
    x->stats.lane_instructions += (uint64_t)__builtin_popcount(active);
    if (!active) {
      pc++;
    } else if (i->run) {
      uint32_t done = active;
      if (wants_others(i)) done = together(x, w, i, pc, cur.depth, active);
      else i->run(x, i, active);
      if (done != active) {
        add_group(w, pc + 1, cur.depth, (mask & ~active) | done, PTX_RUNS);
        return;
      }
      pc++;
    } else {
      int from = pc;
      if (!control(x, w, i, &pc, cur.depth, &mask, active)) return;
      if (pc <= from && w->group_count && (++w->backs > PATIENCE || pc < cur.pc)) {
        add_group(w, pc, cur.depth, mask, PTX_RUNS);
        return;
      }
    }
  }
}

void ptx_run_warp(ptx_exec *x, ptx_warp *w)
{
  x->warp = w;
  merge_groups(w);
  while (!x->code && x->quantum) {
    int g = first_group(w);
    if (g < 0) return;
    /* After many jumps back another group than the first goes, so that a loop which waits for another lane ends. */
    if (w->backs > PATIENCE) {
      int other = (int)(w->rotated++ % (unsigned)w->group_count);
      if (w->groups[other].waits == PTX_RUNS) g = other;
      w->backs = 0;
    }
    ptx_group cur = w->groups[g];
    w->groups[g] = w->groups[--w->group_count];
    run_group(x, w, cur);
  }
}
