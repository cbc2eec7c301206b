/* collective/host/problem.c -- what an algorithm is given (nodes and sizes), and whether the schedule that it made
 * is sound. */
#include <config.h>

#include "collective/host/schedule.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes ---- */

weft_status *coll_topology_init(coll_topology *t, const uint64_t *label, int size)
{
  int *memory = calloc(4 * (size_t)size + 1, sizeof *memory), *order;

  *t = (coll_topology){.size = size};
  WEFT_TRY_ALLOC(memory);
  t->node = memory;
  t->ranks = memory + size;
  t->leader = memory + 2 * (size_t)size;
  t->first = memory + 3 * (size_t)size;
  order = t->ranks; /* during the numbering a hash table: the lowest rank that has a label */
  int slots = size, used = 0;
  for (int i = 0; i < slots; i++) order[i] = -1;
  for (int r = 0; r < size; r++) {
    int slot = (int)((label[r] * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (uint64_t)slots);
    while (order[slot] >= 0 && label[order[slot]] != label[r]) slot = (slot + 1) % slots;
    if (order[slot] < 0) {
      order[slot] = r;
      t->leader[used] = r;
      t->node[r] = used++;
    } else {
      t->node[r] = t->node[order[slot]];
    }
  }
  t->node_count = used;
  for (int r = 0; r < size; r++) t->first[t->node[r] + 1]++;
  t->equal_nodes = true;
  for (int n = 0; n < used; n++) {
    t->equal_nodes &= t->first[n + 1] == t->first[1];
    if (n) t->first[n] += t->first[n - 1];
  }
  t->first[used] = size;
  for (int r = size - 1, n; r >= 0; r--) { /* descending, so that each node's list is ascending at the end */
    n = t->node[r];
    t->ranks[--t->first[n + 1]] = r;
  }
  for (int n = 0; n < used; n++) t->first[n] = t->first[n + 1];
  t->first[used] = size;
  return NULL;
}

void coll_topology_fini(coll_topology *t)
{
  free(t->node);
  *t = (coll_topology){0};
}

/* ---- the checker ---- */

typedef struct span {
  int memory;
  int64_t begin, end;
  bool written;
  size_t step;
} span;

static bool add_span(const coll_problem *p, span *spans, size_t *count, size_t step, int memory, int64_t at,
                     int64_t bytes, bool written, int64_t limit)
{
  if (at < 0 || bytes < 0 || at + bytes > limit) return false;
  if (p->in_place && memory == COLL_IN) memory = COLL_OUT;
  if (bytes) spans[(*count)++] = (span){memory, at, at + bytes, written, step};
  return true;
}

static bool clash(span x, span y)
{
  return x.step != y.step && (x.written || y.written) && x.memory == y.memory && x.begin < y.end && y.begin < x.end;
}

weft_status *coll_schedule_check(const coll_problem *p, const coll_schedule *s)
{
  int64_t limit[COLL_MEMORY_COUNT] = {coll_problem_in_bytes(p), coll_problem_out_bytes(p), s->tmp_bytes};
  span *spans = malloc((2 * s->count + 1) * sizeof *spans);
  weft_status *st = NULL;
  size_t count = 0;

  WEFT_TRY_ALLOC(spans);
  for (size_t i = 0; i < s->count && !st; i++) {
    const coll_step *step = &s->steps[i];
    bool writes = step->kind != COLL_SEND, reads = step->kind != COLL_RECV && step->kind != COLL_ZERO;
    int64_t read_bytes = step->kind == COLL_FOLD ? step->bytes * step->peer : step->bytes;
    bool inside =
      (!writes || add_span(p, spans, &count, i, step->dst_in, step->dst, step->bytes, true, limit[step->dst_in])) &&
      (!reads || add_span(p, spans, &count, i, step->src_in, step->src, read_bytes, false, limit[step->src_in]));
    if (!inside) st = WEFT_ERR(INTERNAL, "rank %d, step %zu: outside its buffer", p->rank, i);
    for (size_t x = 0; x < count && step->ends_round && !st; x++)
      for (size_t y = 0; y < x && !st; y++)
        if (clash(spans[x], spans[y]))
          st = WEFT_ERR(INTERNAL, "rank %d: steps %zu and %zu of a round share memory", p->rank, spans[y].step,
                        spans[x].step);
    if (step->ends_round) count = 0;
  }
  free(spans);
  return st;
}

/* ---- sizes ---- */

static int64_t all_blocks(const coll_problem *p) { return p->prefix ? p->prefix[p->size] : p->bytes * p->size; }
static int64_t own_block(const coll_problem *p)
{
  return p->prefix ? p->prefix[p->rank + 1] - p->prefix[p->rank] : p->bytes;
}

/* The end of the furthest piece of an all-to-all. */
static int64_t reach(const coll_problem *p, const int64_t *at, const int64_t *bytes)
{
  int64_t end = 0;
  if (!bytes) return p->bytes * p->size;
  for (int i = 0; i < p->size * WEFT_MAX(1, p->pieces); i++) end = WEFT_MAX(end, at[i] + bytes[i]);
  return end;
}

int64_t coll_problem_in_bytes(const coll_problem *p)
{
  switch (p->kind) {
  case WEFT_BARRIER: return 0;
  case WEFT_BROADCAST: return p->rank == p->root ? p->bytes : 0;
  case WEFT_REDUCE_SCATTER: return all_blocks(p);
  case WEFT_ALL_GATHER:
  case WEFT_ALL_GATHER_V:
  case WEFT_GATHER:
  case WEFT_GATHER_V: return own_block(p);
  case WEFT_SCATTER:
  case WEFT_SCATTER_V: return p->rank == p->root ? all_blocks(p) : 0;
  case WEFT_ALL_TO_ALL:
  case WEFT_ALL_TO_ALL_V:
  case WEFT_RAGGED_ALL_TO_ALL: return reach(p, p->send_at, p->send_bytes);
  case WEFT_PERMUTE: return p->target >= 0 || p->source == p->rank ? p->bytes : 0;
  default: return p->bytes;
  }
}

int64_t coll_problem_out_bytes(const coll_problem *p)
{
  switch (p->kind) {
  case WEFT_BARRIER: return 0;
  case WEFT_REDUCE: return p->rank == p->root ? p->bytes : 0;
  case WEFT_REDUCE_SCATTER:
  case WEFT_SCATTER:
  case WEFT_SCATTER_V: return own_block(p);
  case WEFT_ALL_GATHER:
  case WEFT_ALL_GATHER_V: return all_blocks(p);
  case WEFT_GATHER:
  case WEFT_GATHER_V: return p->rank == p->root ? all_blocks(p) : 0;
  case WEFT_ALL_TO_ALL:
  case WEFT_ALL_TO_ALL_V:
  case WEFT_RAGGED_ALL_TO_ALL: return reach(p, p->recv_at, p->recv_bytes);
  default: return p->bytes;
  }
}

/* ---- names of algorithms ---- */

static const char *const algorithm_names[] = {
#define COLL_ALGORITHM_TEXT(name, text) text,
  COLL_ALGORITHMS(COLL_ALGORITHM_TEXT)
#undef COLL_ALGORITHM_TEXT
};

const char *coll_algorithm_name(coll_algorithm algorithm) { return algorithm_names[algorithm]; }

bool coll_algorithm_from_name(const char *name, size_t text_length, coll_algorithm *out)
{
  for (int i = 0; i < COLL_ALGORITHM_COUNT; i++) {
    if (strlen(algorithm_names[i]) != text_length || memcmp(algorithm_names[i], name, text_length) != 0) continue;
    *out = (coll_algorithm)i;
    return true;
  }
  return false;
}
