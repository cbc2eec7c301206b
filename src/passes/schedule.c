/* schedule: fixes the order of every sequential computation and marks the module scheduled.
 *
 * Two orders are tried: the program's own, and depth first from the results, operands with the larger values first, so
 * that what a value needs is computed just before it.  The one with the lower peak of live bytes is kept (the executor
 * runs the data-flow graph anyway; the order matters for liveness and for the sequential plan).  Then each asynchronous
 * start moves up to its operands and each done moves down to its first user, so that what they do has time. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

typedef struct scheduler {
  weft_arena *arena;
  int count;
  hlo_instr **program, **order; /* both orders */
  int *place;                   /* by id: position in the order being looked at */
  char *state;                  /* by id, of depth first: 0 new, 1 open, 2 done */
} scheduler;

static bool is_alias(const hlo_instr *instr) { return pass_is_alias_op(instr->op) && instr->op != HLO_CONSTANT; }

static int64_t own_bytes(const hlo_instr *instr)
{
  return pass_is_alias_op(instr->op) ? 0 : hlo_shape_total_bytes(instr->shape);
}

/* The most bytes alive at once when `order` is run one after the other. */
static int64_t peak_bytes(scheduler *s, hlo_instr *const *order)
{
  int64_t live = 0, peak = 0;
  int *last = s->place;
  int64_t *freed = WEFT_ARENA_ARRAY(s->arena, int64_t, s->count + 1);
  int *end = WEFT_ARENA_ARRAY(s->arena, int, s->count);

  if (!freed || !end) return INT64_MAX;
  for (int i = 0; i < s->count; i++) last[order[i]->id] = i;
  for (int i = s->count - 1; i >= 0; i--) { /* an alias keeps its operands as long as itself */
    const hlo_instr *instr = order[i];
    end[i] = instr == instr->parent->root ? s->count - 1 : i;
    for (int k = 0; k < instr->user_count; k++) {
      int user = last[instr->users[k]->id];
      end[i] = WEFT_MAX(end[i], is_alias(instr->users[k]) ? end[user] : user);
    }
    freed[end[i] + 1] += own_bytes(instr);
  }
  for (int i = 0; i < s->count; i++) {
    live += own_bytes(order[i]) - freed[i];
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
  int count = instr->operand_count + instr->control_pred_count;
  hlo_instr **before = WEFT_ARENA_ARRAY(s->arena, hlo_instr *, count);

  WEFT_TRY_ALLOC(before);
  if (instr->operand_count) memcpy(before, instr->operands, (size_t)instr->operand_count * sizeof *before);
  if (instr->control_pred_count)
    memcpy(before + instr->operand_count, instr->control_preds, (size_t)instr->control_pred_count * sizeof *before);
  if (count) qsort(before, (size_t)count, sizeof *before, by_bytes);
  *v = (visit){instr, before, before + count};
  s->state[instr->id] = 1;
  return NULL;
}

static weft_status *depth_first(scheduler *s)
{
  visit *stack = WEFT_ARENA_ARRAY(s->arena, visit, s->count + 1);
  int depth = 0, placed = 0;

  WEFT_TRY_ALLOC(stack);
  for (int i = 0; i < s->count; i++) { /* parameters stand first, as they are */
    if (s->program[i]->op != HLO_PARAMETER) continue;
    s->state[s->program[i]->id] = 2;
    s->order[placed++] = s->program[i];
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
      s->order[placed++] = v->instr;
      depth--;
    }
  }
  if (placed != s->count) return WEFT_ERR(INTERNAL, "schedule: %d of %d instructions placed", placed, s->count);
  return NULL;
}

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

/* Moves `instr` before `before`.  Places are fractions between those of the neighbours; where none is left between them
 * the instruction stays. */
static void move_to(hlo_instr *instr, hlo_instr *before, double *place)
{
  double high = place[before->id], low = before->prev ? place[before->prev->id] : high - 1, middle = (low + high) / 2;

  if (middle <= low || middle >= high) return;
  hlo_move_before(instr, before);
  place[instr->id] = middle;
}

/* Starts go up to what they need, dones (and the views of them, which come first in this direction) down to their first
 * user: one walk each way, with the place of every instruction. */
static void spread_async(hlo_computation *comp, double *place)
{
  double at = 0;

  HLO_FOREACH(instr, comp) place[instr->id] = at++;
  HLO_FOREACH(instr, comp) {
    hlo_instr *latest = NULL;
    if (!is_start(instr->op)) continue;
    for (int i = 0; i < instr->operand_count; i++)
      if (!latest || place[instr->operands[i]->id] > place[latest->id]) latest = instr->operands[i];
    for (int i = 0; i < instr->control_pred_count; i++)
      if (!latest || place[instr->control_preds[i]->id] > place[latest->id]) latest = instr->control_preds[i];
    if (latest && latest->next != instr) move_to(instr, latest->next, place);
  }
  for (hlo_instr *instr = comp->last, *prev; instr; instr = prev) {
    hlo_instr *earliest = NULL;
    prev = instr->prev;
    if (instr == comp->root || !is_view_of_done(instr)) continue;
    for (int i = 0; i < instr->user_count; i++)
      if (!earliest || place[instr->users[i]->id] < place[earliest->id]) earliest = instr->users[i];
    for (int i = 0; i < instr->control_succ_count; i++)
      if (!earliest || place[instr->control_succs[i]->id] < place[earliest->id]) earliest = instr->control_succs[i];
    if (earliest && earliest != instr->next) move_to(instr, earliest, place);
  }
}

/* What all computations share: arrays by instruction id, each entry used by one. */
typedef struct by_id {
  int *place;
  char *state;
  double *async_place;
  int *readers;
} by_id;

/* The element of the loop's state that `x` is in the body, or -1. */
static int64_t state_element(const hlo_computation *body, const hlo_instr *x)
{
  return x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == body->params[0] ? x->u.tuple_index : -1;
}

/* An instruction whose only use is to be the next value of element i, whose old value it reads. */
static bool is_update(const hlo_computation *body, const hlo_instr *update, int64_t i)
{
  if (update->user_count != 1 || pass_has_control_edges(update) || pass_is_alias_op(update->op)) return false;
  for (int k = 0; k < update->operand_count; k++)
    if (state_element(body, update->operands[k]) == i) return true;
  return false;
}

/* In a loop body, what updates an element of the state goes behind everything else that reads the old element, so that
 * it can be updated in place: to the end, an update after those that read its element (two swapped elements need a copy
 * in any order). */
static weft_status *updates_last(hlo_computation *body, const by_id *ids, weft_arena *arena)
{
  hlo_instr *root = body->root, **ready;
  int count = 0, taken = 0;

  if (root->op != HLO_TUPLE || body->param_count != 1 || root->user_count > 0) return NULL;
  ready = WEFT_ARENA_ARRAY(arena, hlo_instr *, root->operand_count);
  WEFT_TRY_ALLOC(ready);
  for (int i = 0; i < root->operand_count; i++) { /* readers: of other updates, and 1 to mark it as an update */
    hlo_instr *update = root->operands[i];
    if (!is_update(body, update, i)) continue;
    ids->readers[update->id]++;
    for (int k = 0; k < update->operand_count; k++) {
      int64_t element = state_element(body, update->operands[k]);
      if (element >= 0 && element != i) ids->readers[root->operands[element]->id]++;
    }
  }
  hlo_move_before(root, NULL);
  for (int pass = 0; pass < 2; pass++) { /* then those in cycles, as they come */
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

static weft_status *schedule_computation(hlo_computation *comp, bool is_loop_body, const by_id *ids, weft_arena *arena)
{
  scheduler s = {
    .arena = arena, .count = comp->instr_count, .program = WEFT_ARENA_ARRAY(arena, hlo_instr *, comp->instr_count),
    .order = WEFT_ARENA_ARRAY(arena, hlo_instr *, comp->instr_count), .place = ids->place, .state = ids->state,
  };
  bool has_async = false;
  int at = 0;

  WEFT_TRY_ALLOC(s.program);
  WEFT_TRY_ALLOC(s.order);
  HLO_FOREACH(instr, comp) {
    s.program[at++] = instr;
    has_async |= is_start(instr->op);
  }
  WEFT_TRY(depth_first(&s));
  if (peak_bytes(&s, s.order) < peak_bytes(&s, s.program))
    for (int i = 0; i < s.count; i++) hlo_move_before(s.order[i], NULL);
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
  };
  bool *is_body = WEFT_ARENA_ARRAY(ctx->scratch, bool, module->next_computation_id);
  pass_comps comps;

  WEFT_TRY_ALLOC(is_body);
  if (!ids.place || !ids.state || !ids.async_place || !ids.readers) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
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
