/* buffer/place.c -- Addresses.  Buffers are placed one by one, each into the smallest gap that fits between the buffers
 * with which it clashes: the largest first, or in the best of several orders if they are few.  Which buffers clash
 * depends on the plan's order:
 *   by the schedule      two buffers clash if their intervals meet;
 *   by dependence        they clash also unless every use of one comes before the other's first write by dependence, so
 *                        that sharing adds no dependence;
 *   with slack           as by dependence, but sharing may add a dependence that lengthens the longest path by at most
 *                        `slack`.
 * By dependence, each called computation has a frame of its own: a buffer of its caller, which lives while the call
 * runs.  The branches of a conditional use the same bytes; so do a loop's condition and body. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "base/swap.h"
#include "buffer/plan_internal.h"

typedef struct placer {
  buf_plan *plan;
  buf_deps *deps;
  buf_arena arena;        /* whose buffers are placed */
  const buf_graph *graph; /* NULL: by the schedule */
  double slack;           /* < 0: none */
  uint64_t **after;       /* by buffer: the nodes that come after all its touches */
  weft_arena scratch;
  int *placed, placed_count; /* sorted by offset */
  int64_t *best;             /* by buffer: its offset in the best placement so far */
} placer;

/* Begins an attempt: frees the scratch memory of the previous attempt. */
static weft_status *start(placer *p)
{
  weft_arena_reset(&p->scratch);
  p->best = WEFT_ARENA_ARRAY(&p->scratch, int64_t, p->plan->buffer_count);
  p->after = WEFT_ARENA_ARRAY(&p->scratch, uint64_t *, p->plan->buffer_count);
  return p->best && p->after ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
}

enum {
  FEW = 2048,   /* groups of at most this many buffers are placed in several orders, and the best is kept */
  EXACT = 8192, /* larger groups than this are placed by a sweep through time, if by the schedule */
};

static bool sharing_is_cheap(const placer *p, const buf_buffer *before, const buf_buffer *after)
{
  double longest = 0;

  if (p->slack < 0) return false;
  for (int i = before->touch_begin; i < before->touch_end; i++)
    longest = WEFT_MAX(longest, p->graph->top[p->deps->touches[i]]);
  return longest + p->graph->bottom[after->first_node] <= p->graph->span + p->slack;
}

static bool clash(const placer *p, int x, int y)
{
  const buf_buffer *a = &p->plan->buffers[x], *b = &p->plan->buffers[y];

  if (a->def <= b->end && b->def <= a->end) return true;
  if (!p->graph) return false;
  if (b->end < a->def) {
    WEFT_SWAP(a, b);
    x = y;
  }
  if (p->after[x][b->first_node / 64] >> (b->first_node % 64) & 1) return false;
  return !sharing_is_cheap(p, a, b);
}

/* Finds the address of `b` among the buffers placed so far, and adds it to them.  Returns the end of its bytes. */
static int64_t put(placer *p, int b)
{
  buf_buffer *buffers = p->plan->buffers;
  int64_t end = 0, best = -1, best_gap = INT64_MAX, size = buffers[b].bytes;
  int at;

  for (int i = 0; i < p->placed_count; i++) {
    const buf_buffer *other = &buffers[p->placed[i]];
    if (other->offset + other->bytes <= end || !clash(p, b, p->placed[i])) continue;
    if (other->offset - end >= size && other->offset - end < best_gap) {
      best = end;
      best_gap = other->offset - end;
    }
    end = other->offset + other->bytes;
  }
  buffers[b].offset = best >= 0 ? best : end;
  for (at = p->placed_count; at > 0 && buffers[p->placed[at - 1]].offset > buffers[b].offset; at--)
    p->placed[at] = p->placed[at - 1];
  p->placed[at] = b;
  p->placed_count++;
  return buffers[b].offset + size;
}

static _Thread_local const buf_buffer *sorting; /* for the comparison functions: qsort passes no context */

static int by_size(const void *a, const void *b)
{
  const buf_buffer *x = &sorting[*(const int *)a], *y = &sorting[*(const int *)b];
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return *(const int *)a - *(const int *)b;
}

static int by_area(const void *a, const void *b)
{
  const buf_buffer *x = &sorting[*(const int *)a], *y = &sorting[*(const int *)b];
  double p = (double)x->bytes * (x->end - x->def + 1), q = (double)y->bytes * (y->end - y->def + 1);
  if (p != q) return p > q ? -1 : 1;
  return *(const int *)a - *(const int *)b;
}

static int by_time(const void *a, const void *b)
{
  const buf_buffer *x = &sorting[*(const int *)a], *y = &sorting[*(const int *)b];
  if (x->def != y->def) return x->def < y->def ? -1 : 1;
  return *(const int *)a - *(const int *)b;
}

static int by_end(const void *a, const void *b)
{
  const buf_buffer *x = &sorting[*(const int *)a], *y = &sorting[*(const int *)b];
  return (x->end > y->end) - (x->end < y->end);
}

/* Places the buffers ids[0..count) together, in the best of a few orders.  *out_bytes: the end of the last one. */
static weft_status *place_group(placer *p, int *ids, int count, int64_t *out_bytes)
{
  static int (*const orders[])(const void *, const void *) = {by_size, by_area, by_time};

  p->placed = WEFT_ARENA_ARRAY(&p->scratch, int, count);
  WEFT_TRY_ALLOC(p->placed);
  *out_bytes = INT64_MAX;
  sorting = p->plan->buffers;
  for (int o = 0; o < (count <= FEW ? (int)WEFT_COUNT(orders) : 1); o++) {
    int64_t bytes = 0;
    qsort(ids, (size_t)count, sizeof *ids, orders[o]);
    p->placed_count = 0;
    for (int i = 0; i < count; i++) {
      int64_t end = put(p, ids[i]);
      bytes = WEFT_MAX(bytes, end);
    }
    if (bytes >= *out_bytes) continue;
    *out_bytes = bytes;
    for (int i = 0; i < count; i++) p->best[ids[i]] = p->plan->buffers[ids[i]].offset;
  }
  for (int i = 0; i < count; i++) p->plan->buffers[ids[i]].offset = p->best[ids[i]];
  return NULL;
}

typedef struct hole { int64_t begin, end; } hole;

/* For very many buffers, by the schedule: goes through time, puts each buffer into the smallest hole that fits, and
 * merges holes when buffers end.  The cost is buffers times holes, and holes are few. */
static weft_status *sweep(placer *p, int *ids, int count, int64_t *out_bytes)
{
  buf_buffer *buffers = p->plan->buffers;
  int *ending = WEFT_ARENA_ARRAY(&p->scratch, int, count), hole_count = 1, dead = 0;
  hole *holes = WEFT_ARENA_ARRAY(&p->scratch, hole, count + 2);

  if (!ending || !holes) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  sorting = buffers;
  qsort(ids, (size_t)count, sizeof *ids, by_time);
  memcpy(ending, ids, (size_t)count * sizeof *ids);
  qsort(ending, (size_t)count, sizeof *ending, by_end);
  holes[0] = (hole){0, INT64_MAX};
  *out_bytes = 0;
  for (int i = 0; i < count; i++) {
    buf_buffer *b = &buffers[ids[i]];
    for (; dead < count && buffers[ending[dead]].end < b->def; dead++) {
      const buf_buffer *gone = &buffers[ending[dead]];
      int64_t begin = gone->offset, end = begin + gone->bytes;
      int at = 0;
      while (holes[at].begin < begin) at++;
      bool after = at > 0 && holes[at - 1].end == begin, before = holes[at].begin == end;
      if (after && before) {
        holes[at - 1].end = holes[at].end;
        memmove(&holes[at], &holes[at + 1], (size_t)(--hole_count - at) * sizeof *holes);
      } else if (after) {
        holes[at - 1].end = end;
      } else if (before) {
        holes[at].begin = begin;
      } else {
        memmove(&holes[at + 1], &holes[at], (size_t)(hole_count++ - at) * sizeof *holes);
        holes[at] = (hole){begin, end};
      }
    }
    int best = hole_count - 1; /* the last hole has no end */
    for (int h = 0; h < hole_count; h++)
      if (holes[h].end - holes[h].begin >= b->bytes &&
          holes[h].end - holes[h].begin < holes[best].end - holes[best].begin)
        best = h;
    b->offset = holes[best].begin;
    holes[best].begin += b->bytes;
    *out_bytes = WEFT_MAX(*out_bytes, b->offset + b->bytes);
    if (holes[best].begin == holes[best].end)
      memmove(&holes[best], &holes[best + 1], (size_t)(--hole_count - best) * sizeof *holes);
  }
  return NULL;
}

/* For each buffer of the group: the nodes that come after every touch of it. */
static weft_status *find_after(placer *p, const int *ids, int count)
{
  const buf_graph *g = p->graph;

  for (int i = 0; i < count; i++) {
    const buf_buffer *b = &p->plan->buffers[ids[i]];
    uint64_t *after = WEFT_ARENA_ARRAY(&p->scratch, uint64_t, g->words);
    WEFT_TRY_ALLOC(after);
    memset(after, 0xff, (size_t)g->words * sizeof *after);
    for (int t = b->touch_begin; t < b->touch_end; t++) {
      const uint64_t *below = g->below + (int64_t)p->deps->touches[t] * g->words;
      for (int w = 0; w < g->words; w++) after[w] &= below[w];
    }
    p->after[ids[i]] = after;
  }
  return NULL;
}

/* The arena's buffers of each computation, as one list in which each computation has a range. */
typedef struct groups {
  int *ids, *begin; /* from begin[comp id] to begin[comp id + 1] */
} groups;

static weft_status *group_by_home(placer *p, groups *out)
{
  const buf_plan *plan = p->plan;
  int comps = plan->module->next_computation_id;

  out->ids = WEFT_ARENA_ARRAY(&p->scratch, int, plan->buffer_count);
  out->begin = WEFT_ARENA_ARRAY(&p->scratch, int, comps + 2);
  if (!out->ids || !out->begin) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int b = 0; b < plan->buffer_count; b++)
    if (plan->buffers[b].arena == p->arena) out->begin[plan->buffers[b].home + 2]++;
  for (int c = 0; c < comps; c++) out->begin[c + 2] += out->begin[c + 1];
  for (int b = 0; b < plan->buffer_count; b++)
    if (plan->buffers[b].arena == p->arena) out->ids[out->begin[plan->buffers[b].home + 1]++] = b;
  return NULL;
}

/* Places one computation's buffers, among them the frames of the computations that it calls. */
static weft_status *place_frame(placer *p, const hlo_computation *comp, int *ids, int count)
{
  buf_plan *plan = p->plan;
  const buf_graph *g = &p->deps->graphs[comp->id];

  for (int i = 0; i < count; i++) {
    buf_buffer *frame = &plan->buffers[ids[i]];
    if (frame->kind != BUFFER_FRAME) continue;
    frame->bytes = 0;
    for (int k = 0; k < frame->instr->called_count; k++)
      frame->bytes = WEFT_MAX(frame->bytes, plan->frame_bytes[frame->instr->called[k]->id]);
  }
  p->graph = g->below ? g : NULL; /* the graph is too large: by the schedule */
  if (p->graph) WEFT_TRY(find_after(p, ids, count));
  if (!p->graph && count > EXACT) return sweep(p, ids, count, &plan->frame_bytes[comp->id]);
  return place_group(p, ids, count, &plan->frame_bytes[comp->id]);
}

/* Places the buffers of all computations by dependence, callees first; then turns offsets in frames into offsets in
 * the arena. */
static weft_status *place_frames(placer *p, double slack, int64_t *out_bytes)
{
  buf_plan *plan = p->plan;
  const hlo_module *module = plan->module;
  groups of;
  int64_t *base;

  p->slack = slack;
  WEFT_TRY(start(p));
  base = WEFT_ARENA_ARRAY(&p->scratch, int64_t, module->next_computation_id);
  WEFT_TRY_ALLOC(base);
  WEFT_TRY(group_by_home(p, &of));
  HLO_FOREACH_COMPUTATION(comp, module)
    if (p->deps->graphs[comp->id].comp)
      WEFT_TRY(place_frame(p, comp, of.ids + of.begin[comp->id], of.begin[comp->id + 1] - of.begin[comp->id]));
  for (const hlo_computation *comp = module->last; comp; comp = comp->prev)
    for (int i = of.begin[comp->id]; i < of.begin[comp->id + 1]; i++) {
      buf_buffer *b = &plan->buffers[of.ids[i]];
      b->offset += base[comp->id];
      for (int k = 0; b->kind == BUFFER_FRAME && k < b->instr->called_count; k++)
        base[b->instr->called[k]->id] = b->offset;
    }
  *out_bytes = plan->frame_bytes[module->entry->id];
  return NULL;
}

/* Places all buffers of the arena at once by the schedule.  No frames are needed, since the steps of called
 * computations have points of time of their own. */
static weft_status *place_sequential(placer *p, int64_t *out_bytes)
{
  buf_plan *plan = p->plan;
  int count = 0, *ids;

  WEFT_TRY(start(p));
  ids = WEFT_ARENA_ARRAY(&p->scratch, int, plan->buffer_count);
  WEFT_TRY_ALLOC(ids);
  p->graph = NULL;
  for (int b = 0; b < plan->buffer_count; b++) {
    if (plan->buffers[b].arena != p->arena) continue;
    if (plan->buffers[b].kind != BUFFER_FRAME) ids[count++] = b;
    else plan->buffers[b].bytes = 0;
  }
  return count > EXACT ? sweep(p, ids, count, out_bytes) : place_group(p, ids, count, out_bytes);
}

/* Finds by bisection the least slack with which the buffers fit the budget.  If even a slack of 8 times the longest
 * path is too little: that plan or the sequential plan, whichever is smaller. */
static weft_status *place_budget(placer *p, int64_t budget, double span, int64_t *out_bytes)
{
  double low = 0, high = 8 * span + 1;
  int64_t sequential;

  WEFT_TRY(place_frames(p, -1, out_bytes));
  if (*out_bytes <= budget) return NULL;
  WEFT_TRY(place_frames(p, 0, out_bytes));
  if (*out_bytes <= budget) return NULL;
  WEFT_TRY(place_frames(p, high, out_bytes));
  if (*out_bytes > budget) {
    int64_t relaxed = *out_bytes;
    WEFT_TRY(place_sequential(p, &sequential));
    *out_bytes = sequential;
    return relaxed < sequential ? place_frames(p, high, out_bytes) : NULL;
  }
  for (int i = 0; i < 10; i++) {
    double middle = (low + high) / 2;
    WEFT_TRY(place_frames(p, middle, out_bytes));
    if (*out_bytes <= budget) high = middle;
    else low = middle;
  }
  return place_frames(p, high, out_bytes);
}

static weft_status *place_arena(placer *p, const buf_options *options, int64_t budget, double span, int64_t *out_bytes)
{
  if (options->order == BUF_SEQUENTIAL) return place_sequential(p, out_bytes);
  if (options->order == BUF_TOPOLOGICAL) return place_frames(p, -1, out_bytes);
  return place_budget(p, budget, span, out_bytes);
}

static bool has_buffers(const buf_plan *plan, buf_arena arena)
{
  for (int b = 0; b < plan->buffer_count; b++)
    if (plan->buffers[b].arena == arena) return true;
  return false;
}

/* The arena of collectives is placed first, with the whole budget; the other one gets what is left of it. */
weft_status *buf_place(buf_plan *plan, buf_deps *deps, const buf_options *options, double span)
{
  placer p = {.plan = plan, .deps = deps, .arena = ARENA_COLLECTIVE, .slack = -1};
  int64_t collective = 0, temp = 0;
  weft_status *st = NULL;

  weft_arena_init(&p.scratch);
  if (has_buffers(plan, ARENA_COLLECTIVE)) st = place_arena(&p, options, options->budget_bytes, span, &collective);
  p.arena = ARENA_TEMP;
  p.slack = -1;
  if (!st) st = place_arena(&p, options, WEFT_MAX(options->budget_bytes - collective, 0), span, &temp);
  weft_arena_fini(&p.scratch);
  plan->stats.collective_bytes = collective;
  plan->stats.temp_bytes = collective + temp;
  return st;
}
