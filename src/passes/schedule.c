/* passes/schedule.c -- schedule: fixes the order of every sequential computation and marks the module as scheduled.
 *
 * Three orders are tried: the program's own; depth first from the results, operands with the larger values first, so
 * that what a value needs is computed just before it; and a list schedule, which always takes the ready instruction
 * that frees most bytes. The order with the lowest peak of live bytes is kept. The executor runs the data-flow graph
 * anyway; the order matters for liveness and for programs that run in order. Afterwards each asynchronous start
 * moves up to its operands and each done moves down to its first user, so that their work has time.
 *
 * A value that is a result of the program does not count, because it has memory of its own from the start. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

typedef struct scheduler {
  weft_arena *arena;
  int count;
  hlo_instr **program;          /* the original order */
  int *place;                   /* by id: the position in the order that is being examined */
  char *state;                  /* by id, while an order is made: 0 new, 1 open, 2 done */
  const bool *is_result;        /* by id: the value is a result of the entry */
} scheduler;

/* An instruction that passes memory on and never runs. */
static bool is_alias(const hlo_instr *instr) { return hlo_opcode_is_alias(instr->op) && instr->op != HLO_CONSTANT; }

/* An element of a tuple that its producer computes: then the elements are the values, not the tuple. */
static bool is_element(const hlo_instr *instr)
{
  return instr->op == HLO_GET_TUPLE_ELEMENT && !hlo_opcode_is_alias(instr->operands[0]->op);
}

static int64_t value_bytes(const scheduler *s, const hlo_instr *instr)
{
  if (s->is_result[instr->id] || (hlo_opcode_is_alias(instr->op) && !is_element(instr))) return 0;
  if (!hlo_shape_is_tuple(instr->shape)) return hlo_shape_total_bytes(instr->shape);
  for (int i = 0; i < instr->user_count; i++)
    if (is_element(instr->users[i])) return 0;
  return hlo_shape_total_bytes(instr->shape);
}

/* The greatest number of live bytes when `order` is run step by step. */
static int64_t peak_bytes(scheduler *s, hlo_instr *const *order)
{
  int64_t live = 0, peak = 0;
  int *place = s->place;
  int64_t *change = WEFT_ARENA_ARRAY(s->arena, int64_t, s->count + 1);
  int *end = WEFT_ARENA_ARRAY(s->arena, int, s->count);

  if (!change || !end) return INT64_MAX;
  for (int i = 0; i < s->count; i++) place[order[i]->id] = i;
  for (int i = s->count - 1; i >= 0; i--) { /* an alias keeps its operands alive as long as itself */
    const hlo_instr *instr = order[i];
    int64_t bytes = value_bytes(s, instr);
    end[i] = instr == instr->parent->root ? s->count - 1 : i;
    for (int k = 0; k < instr->user_count; k++) {
      int user = place[instr->users[k]->id];
      end[i] = WEFT_MAX(end[i], is_alias(instr->users[k]) ? end[user] : user);
    }
    change[is_element(instr) ? place[instr->operands[0]->id] : i] += bytes;
    change[end[i] + 1] -= bytes;
  }
  for (int i = 0; i < s->count; i++) {
    live += change[i];
    peak = WEFT_MAX(peak, live);
  }
  return peak;
}

typedef struct visit { hlo_instr *instr; hlo_instr **next, **end; } visit;

static int by_bytes(const void *a, const void *b)
{
  const hlo_instr *x = *(hlo_instr *const *)a, *y = *(hlo_instr *const *)b;
  int64_t bx = hlo_shape_total_bytes(x->shape), by = hlo_shape_total_bytes(y->shape);

  return bx != by ? (bx < by) - (bx > by) : (x->id > y->id) - (x->id < y->id);
}

static weft_status *open_visit(scheduler *s, hlo_instr *instr, visit *v)
{
  int count = instr->operand_count + instr->control->pred_count;
  hlo_instr **before = WEFT_ARENA_ARRAY(s->arena, hlo_instr *, count);

  WEFT_TRY_ALLOC(before);
  if (instr->operand_count) memcpy(before, instr->operands, (size_t)instr->operand_count * sizeof *before);
  if (instr->control->pred_count)
    memcpy(before + instr->operand_count, instr->control->preds, (size_t)instr->control->pred_count * sizeof *before);
  if (count) qsort(before, (size_t)count, sizeof *before, by_bytes);
  *v = (visit){instr, before, before + count};
  s->state[instr->id] = 1;
  return NULL;
}

static weft_status *depth_first(scheduler *s, hlo_instr **order)
{
  visit *stack = WEFT_ARENA_ARRAY(s->arena, visit, s->count + 1);
  int depth = 0, placed = 0;

  WEFT_TRY_ALLOC(stack);
  for (int i = 0; i < s->count; i++) { /* parameters stand first, as they are */
    if (s->program[i]->op != HLO_PARAMETER) continue;
    s->state[s->program[i]->id] = 2;
    order[placed++] = s->program[i];
  }
  for (int i = 0; i < s->count; i++) {
    hlo_instr *start = s->program[i];
    if (s->state[start->id] || (start->user_count && start != start->parent->root)) continue;
    WEFT_TRY(open_visit(s, start, &stack[depth++]));
    while (depth > 0) {
      visit *v = &stack[depth - 1];
      if (v->next < v->end) {
        hlo_instr *next = *v->next++;
        if (!s->state[next->id]) WEFT_TRY(open_visit(s, next, &stack[depth++]));
        continue;
      }
      s->state[v->instr->id] = 2;
      order[placed++] = v->instr;
      depth--;
    }
  }
  if (placed != s->count) return WEFT_ERR(INTERNAL, "schedule: %d of %d instructions placed", placed, s->count);
  return NULL;
}

/* ---- the list schedule ------------------------------------------------------------------------------------------- */

typedef struct list {
  scheduler *s;
  int *waits;              /* by position in the program: operands and control predecessors that have not run */
  int *read_begin, *reads; /* by position in the program: the values that a step reads, as positions */
  int *user_begin, *users; /* by position in the program: the steps that read a value */
  int *left;               /* by position in the program: how many of those have not run */
  /* by position in the program: the bytes that running the step now would free, less those that it makes */
  int64_t *gain;
  struct entry { int64_t gain; int at; } *heap;
  int heap_count, heap_capacity;
} list;

static bool goes_first(struct entry a, struct entry b) { return a.gain != b.gain ? a.gain > b.gain : a.at < b.at; }

/* Entries are not removed when their gain grows: the one with the current gain counts. */
static weft_status *offer(list *l, int at)
{
  struct entry e = {l->gain[at], at};
  int i = l->heap_count++;

  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(l->s->arena, l->heap, l->heap_capacity, i + 1, 64));
  for (; i > 0 && goes_first(e, l->heap[(i - 1) / 2]); i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
  l->heap[i] = e;
  return NULL;
}

static struct entry take(list *l)
{
  struct entry first = l->heap[0], e = l->heap[--l->heap_count];

  for (int i = 0, child;; i = child) {
    child = 2 * i + 1;
    if (child + 1 < l->heap_count && goes_first(l->heap[child + 1], l->heap[child])) child++;
    if (child >= l->heap_count || !goes_first(l->heap[child], e)) {
      l->heap[i] = e;
      return first;
    }
    l->heap[i] = l->heap[child];
  }
}

/* The values that each step reads, through aliases. The root counts as a reader, so the values that it reads are
 * never freed. */
static weft_status *find_reads(list *l)
{
  scheduler *s = l->s;
  int *seen = WEFT_ARENA_ARRAY(s->arena, int, s->count), capacity = 4 * s->count + 16, total = 0;
  const hlo_instr **stack = WEFT_ARENA_ARRAY(s->arena, const hlo_instr *, s->count + 1);

  l->reads = WEFT_ARENA_ARRAY(s->arena, int, capacity);
  if (!seen || !stack || !l->reads) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < s->count; i++) {
    const hlo_instr *step = s->program[i];
    int depth = 0;
    l->read_begin[i] = total;
    if (is_alias(step) && step != step->parent->root) continue;
    stack[depth++] = step;
    while (depth > 0) {
      const hlo_instr *at = stack[--depth];
      for (int k = 0; k < at->operand_count; k++) {
        const hlo_instr *x = at->operands[k];
        int place = s->place[x->id];
        if (seen[place] == i + 1) continue;
        seen[place] = i + 1;
        if (is_alias(x) && !is_element(x)) {
          stack[depth++] = x;
          continue;
        }
        if (value_bytes(s, x) == 0) continue;
        WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(s->arena, l->reads, capacity, total + 1, 0));
        l->reads[total++] = place;
      }
    }
  }
  l->read_begin[s->count] = total;
  l->users = WEFT_ARENA_ARRAY(s->arena, int, total);
  WEFT_TRY_ALLOC(l->users);
  for (int r = 0; r < total; r++) l->left[l->reads[r]]++;
  for (int v = 0; v < s->count; v++) l->user_begin[v + 1] = l->user_begin[v] + l->left[v];
  int *fill = seen;
  memcpy(fill, l->user_begin, (size_t)s->count * sizeof *fill);
  for (int i = 0; i < s->count; i++)
    for (int r = l->read_begin[i]; r < l->read_begin[i + 1]; r++) l->users[fill[l->reads[r]]++] = i;
  return NULL;
}

/* After step `at`: values with one reader left will be freed by that reader. */
static weft_status *has_read(list *l, int at)
{
  for (int r = l->read_begin[at]; r < l->read_begin[at + 1]; r++) {
    int value = l->reads[r];
    if (--l->left[value] != 1) continue;
    for (int u = l->user_begin[value]; u < l->user_begin[value + 1]; u++) {
      int last = l->users[u];
      const hlo_instr *instr = l->s->program[last];
      if (l->s->state[instr->id] == 2) continue;
      l->gain[last] += value_bytes(l->s, l->s->program[value]);
      if (l->s->state[instr->id] == 1) WEFT_TRY(offer(l, last));
    }
  }
  return NULL;
}

/* Takes `at` into the order, and at once the aliases that become ready, which cost nothing. */
static weft_status *run_step(list *l, int at, hlo_instr **order, int *placed)
{
  scheduler *s = l->s;
  int begin = *placed;

  order[(*placed)++] = s->program[at];
  s->state[s->program[at]->id] = 2;
  for (int i = begin; i < *placed; i++) {
    const hlo_instr *done = order[i];
    for (int u = 0; u < done->user_count + done->control->succ_count; u++) {
      hlo_instr *next = u < done->user_count ? done->users[u] : done->control->succs[u - done->user_count];
      int place = s->place[next->id];
      if (--l->waits[place] > 0) continue;
      if (is_alias(next)) {
        s->state[next->id] = 2;
        order[(*placed)++] = next;
      } else {
        s->state[next->id] = 1;
        WEFT_TRY(offer(l, place));
      }
    }
  }
  return has_read(l, at);
}

static weft_status *list_schedule(scheduler *s, hlo_instr **order)
{
  list l = {
    .s = s, .waits = WEFT_ARENA_ARRAY(s->arena, int, s->count), .left = WEFT_ARENA_ARRAY(s->arena, int, s->count),
    .read_begin = WEFT_ARENA_ARRAY(s->arena, int, s->count + 1), .user_begin = WEFT_ARENA_ARRAY(s->arena, int, s->count + 1),
    .gain = WEFT_ARENA_ARRAY(s->arena, int64_t, s->count),
  };
  int placed = 0;

  if (!l.waits || !l.left || !l.read_begin || !l.user_begin || !l.gain)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < s->count; i++) s->place[s->program[i]->id] = i;
  WEFT_TRY(find_reads(&l));
  for (int i = 0; i < s->count; i++) {
    const hlo_instr *instr = s->program[i];
    s->state[instr->id] = 0;
    for (int k = 0; k < instr->user_count; k++) l.waits[s->place[instr->users[k]->id]]++;
    for (int k = 0; k < instr->control->succ_count; k++) l.waits[s->place[instr->control->succs[k]->id]]++;
    l.gain[i] -= value_bytes(s, instr);
    if (is_element(instr)) l.gain[s->place[instr->operands[0]->id]] -= value_bytes(s, instr);
    for (int r = l.read_begin[i]; r < l.read_begin[i + 1]; r++)
      if (l.left[l.reads[r]] == 1) l.gain[i] += value_bytes(s, s->program[l.reads[r]]);
  }
  for (int i = 0; i < s->count; i++) { /* parameters stand first, and aliases of them */
    hlo_instr *instr = s->program[i];
    if (s->state[instr->id] || l.waits[i] > 0) continue;
    if (is_alias(instr)) {
      WEFT_TRY(run_step(&l, i, order, &placed));
    } else {
      s->state[instr->id] = 1;
      WEFT_TRY(offer(&l, i));
    }
  }
  while (l.heap_count > 0) {
    struct entry e = take(&l);
    if (s->state[s->program[e.at]->id] == 1 && e.gain == l.gain[e.at]) WEFT_TRY(run_step(&l, e.at, order, &placed));
  }
  if (placed != s->count) return WEFT_ERR(INTERNAL, "schedule: %d of %d instructions placed", placed, s->count);
  return NULL;
}

/* ---- asynchronous pairs ------------------------------------------------------------------------------------------ */

static bool is_start(hlo_opcode op)
{
  return op == HLO_ASYNC_START || op == HLO_ALL_GATHER_START || op == HLO_ALL_REDUCE_START ||
         op == HLO_COLLECTIVE_PERMUTE_START || op == HLO_COPY_START || op == HLO_SEND || op == HLO_RECV;
}
static bool is_done(hlo_opcode op)
{
  return op == HLO_ASYNC_DONE || op == HLO_ALL_GATHER_DONE || op == HLO_ALL_REDUCE_DONE ||
         op == HLO_COLLECTIVE_PERMUTE_DONE || op == HLO_COPY_DONE || op == HLO_SEND_DONE || op == HLO_RECV_DONE;
}

static bool is_view_of_done(const hlo_instr *instr)
{
  while (instr->op == HLO_GET_TUPLE_ELEMENT || instr->op == HLO_RESHAPE || instr->op == HLO_BITCAST)
    instr = instr->operands[0];
  return is_done(instr->op);
}

/* Moves `instr` before `before`. Places are fractions between those of the neighbours; if no fraction is left
 * between them, the instruction stays. */
static void move_to(hlo_instr *instr, hlo_instr *before, double *place)
{
  double high = place[before->id], low = before->prev ? place[before->prev->id] : high - 1, middle = (low + high) / 2;

  if (middle <= low || middle >= high) return;
  hlo_move_before(instr, before);
  place[instr->id] = middle;
}

/* Starts move up to their operands. Dones, and views of them (which come first in this direction), move down to
 * their first user. One walk in each direction, with the place of every instruction. */
static void spread_async(hlo_computation *comp, double *place)
{
  double at = 0;

  HLO_FOREACH(instr, comp) place[instr->id] = at++;
  HLO_FOREACH(instr, comp) {
    hlo_instr *latest = NULL;
    if (!is_start(instr->op)) continue;
    for (int i = 0; i < instr->operand_count; i++)
      if (!latest || place[instr->operands[i]->id] > place[latest->id]) latest = instr->operands[i];
    for (int i = 0; i < instr->control->pred_count; i++)
      if (!latest || place[instr->control->preds[i]->id] > place[latest->id]) latest = instr->control->preds[i];
    if (latest && latest->next != instr) move_to(instr, latest->next, place);
  }
  for (hlo_instr *instr = comp->last, *prev; instr; instr = prev) {
    hlo_instr *earliest = NULL;
    prev = instr->prev;
    if (instr == comp->root || !is_view_of_done(instr)) continue;
    for (int i = 0; i < instr->user_count; i++)
      if (!earliest || place[instr->users[i]->id] < place[earliest->id]) earliest = instr->users[i];
    for (int i = 0; i < instr->control->succ_count; i++)
      if (!earliest || place[instr->control->succs[i]->id] < place[earliest->id]) earliest = instr->control->succs[i];
    if (earliest && earliest != instr->next) move_to(instr, earliest, place);
  }
}

/* Shared by all computations: arrays by instruction id, of which each entry belongs to one computation. */
typedef struct by_id {
  int *place;
  char *state;
  double *async_place;
  int *readers;
  bool *is_result;
} by_id;

/* The element of the loop's state that `x` is in the body, or -1. */
static int64_t state_element(const hlo_computation *body, const hlo_instr *x)
{
  return x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == body->params[0] ? x->u.tuple_index : -1;
}

/* An instruction whose only use is to be the next value of element i, and which reads the old value of i. */
static bool is_update(const hlo_computation *body, const hlo_instr *update, int64_t i)
{
  if (update->user_count != 1 || pass_has_control_edges(update) || hlo_opcode_is_alias(update->op)) return false;
  for (int k = 0; k < update->operand_count; k++)
    if (state_element(body, update->operands[k]) == i) return true;
  return false;
}

/* In a loop body, an instruction that updates an element of the state goes behind everything else that reads the old
 * element, so that it can run in place: to the end, and behind other updates that read its element (two swapped
 * elements need a copy in any order). */
static weft_status *updates_last(hlo_computation *body, const by_id *ids, weft_arena *arena)
{
  hlo_instr *root = body->root, **ready;
  int count = 0, taken = 0;

  if (root->op != HLO_TUPLE || body->param_count != 1 || root->user_count > 0) return NULL;
  ready = WEFT_ARENA_ARRAY(arena, hlo_instr *, root->operand_count);
  WEFT_TRY_ALLOC(ready);
  for (int i = 0; i < root->operand_count; i++) { /* readers among other updates, plus 1 to mark it as an update */
    hlo_instr *update = root->operands[i];
    if (!is_update(body, update, i)) continue;
    ids->readers[update->id]++;
    for (int k = 0; k < update->operand_count; k++) {
      int64_t element = state_element(body, update->operands[k]);
      if (element >= 0 && element != i) ids->readers[root->operands[element]->id]++;
    }
  }
  hlo_move_before(root, NULL);
  for (int pass = 0; pass < 2; pass++) { /* then those in cycles, in any order */
    for (int i = 0; i < root->operand_count; i++) {
      hlo_instr *update = root->operands[i];
      if (is_update(body, update, i) && (pass ? ids->readers[update->id] > 0 : ids->readers[update->id] == 1))
        ready[count++] = update;
    }
    while (taken < count) {
      hlo_instr *update = ready[taken++];
      if (ids->readers[update->id] <= 0) continue;
      ids->readers[update->id] = 0;
      hlo_move_before(update, root);
      for (int k = 0; k < update->operand_count; k++) {
        int64_t element = state_element(body, update->operands[k]);
        hlo_instr *other = element >= 0 ? root->operands[element] : NULL;
        if (other && other != update && is_update(body, other, element) && --ids->readers[other->id] == 1 &&
            count < root->operand_count)
          ready[count++] = other;
      }
    }
    count = taken = 0;
  }
  return NULL;
}

/* Marks the values that are results of the program. */
static weft_status *mark_results(const hlo_computation *entry, bool *is_result, weft_arena *arena)
{
  const hlo_instr **stack = WEFT_ARENA_ARRAY(arena, const hlo_instr *, entry->instr_count);
  bool *seen = is_result;
  int depth = 0;

  WEFT_TRY_ALLOC(stack);
  stack[depth++] = entry->root;
  seen[entry->root->id] = true;
  while (depth > 0) {
    const hlo_instr *at = stack[--depth];
    if (!is_alias(at) || is_element(at)) continue;
    for (int i = 0; i < at->operand_count; i++) {
      if (seen[at->operands[i]->id]) continue;
      seen[at->operands[i]->id] = true;
      stack[depth++] = at->operands[i];
    }
  }
  return NULL;
}

static weft_status *schedule_computation(hlo_computation *comp, bool is_loop_body, const by_id *ids, weft_arena *arena)
{
  static weft_status *(*const makers[])(scheduler *s, hlo_instr **order) = {depth_first, list_schedule};
  scheduler s = {
    .arena = arena, .count = comp->instr_count, .program = WEFT_ARENA_ARRAY(arena, hlo_instr *, comp->instr_count),
    .place = ids->place, .state = ids->state, .is_result = ids->is_result,
  };
  hlo_instr **best = s.program;
  bool has_async = false;
  int64_t least;
  int at = 0;

  WEFT_TRY_ALLOC(s.program);
  HLO_FOREACH(instr, comp) {
    s.program[at++] = instr;
    has_async |= is_start(instr->op);
  }
  least = peak_bytes(&s, s.program);
  for (size_t m = 0; m < WEFT_COUNT(makers); m++) {
    hlo_instr **order = WEFT_ARENA_ARRAY(arena, hlo_instr *, s.count);
    WEFT_TRY_ALLOC(order);
    WEFT_TRY(makers[m](&s, order));
    int64_t peak = peak_bytes(&s, order);
    if (peak >= least) continue;
    least = peak;
    best = order;
  }
  for (int i = 0; best != s.program && i < s.count; i++) hlo_move_before(best[i], NULL);
  if (has_async) spread_async(comp, ids->async_place);
  return is_loop_body ? updates_last(comp, ids, arena) : NULL;
}

static weft_status *schedule_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  by_id ids = {
    .place = WEFT_ARENA_ARRAY(ctx->scratch, int, module->next_id),
    .state = WEFT_ARENA_ARRAY(ctx->scratch, char, module->next_id),
    .async_place = WEFT_ARENA_ARRAY(ctx->scratch, double, module->next_id),
    .readers = WEFT_ARENA_ARRAY(ctx->scratch, int, module->next_id),
    .is_result = WEFT_ARENA_ARRAY(ctx->scratch, bool, module->next_id),
  };
  bool *is_body = WEFT_ARENA_ARRAY(ctx->scratch, bool, module->next_computation_id);
  pass_comps comps;

  WEFT_TRY_ALLOC(is_body);
  if (!ids.place || !ids.state || !ids.async_place || !ids.readers || !ids.is_result)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(mark_results(module->entry, ids.is_result, ctx->scratch));
  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(instr, comps.v[i])
      if (instr->op == HLO_WHILE) is_body[instr->called[0]->id] = true;
  for (int i = 0; i < comps.count; i++)
    WEFT_TRY(schedule_computation(comps.v[i], is_body[comps.v[i]->id], &ids, ctx->scratch));
  *changed = true;
  module->is_scheduled = true;
  return NULL;
}
const hlo_pass pass_schedule = {"schedule", schedule_run};
