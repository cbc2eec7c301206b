/* runtime/stretch.c -- Finding stretches: steps in a row that a platform can queue as one (program.h).
 *
 * A stretch is queued as a whole, so if one of its steps waits for something, all its steps wait for it. Steps that
 * only queue work wait for little: the device's stream orders them. But a step that waits for communication, or for a
 * step on the host, must not hold up steps before it which do not. So each step has a *gate*: the last step, in program
 * order, that is no part of any stretch and that the step waits for, directly or through steps which may be. A step
 * with a later gate than the stretch before it begins another stretch. Gates do not matter in a sequence without such
 * steps, which runs in order.
 *
 * A loop, a conditional or a call may be part of a stretch if all steps in it may. A run in which such a stretch is not
 * queued as one shall do no worse than without it. So each sequence gets plain stretches first. The stretches with
 * control flow are then made of plain ones and of what lies between them. So are those with communication, which are
 * sought last. The device does not decide in them: they have no branches, and only loops whose number of rounds is
 * known and small. */
#include <config.h>

#include <stdlib.h>

#include "buffer/hazard.h"
#include "runtime/program_internal.h"

typedef struct search {
  rt_program *program;
  const rt_stretcher *stretcher;
  weft_arena scratch;
  const rt_seq *seq;
  /* What may be part of the stretches that are sought, besides plain steps: nothing; control flow and plain stretches;
   * communication and plain stretches. */
  enum { PLAIN, DECIDING, TALKING } sought;
  int *gates;    /* by step; -1: the step waits for steps of stretches only */
  int *begins;   /* of each stretch: its first step */
  int *ends;     /* and the step after its last one */
  int count;
} search;

static bool decides(const rt_thunk *thunk);

static bool talks(const search *s, const rt_thunk *thunk)
{
  rt_control_kind kind = rt_control_kind_of(thunk);
  bool found = kind == RT_NO_CONTROL && thunk->own_ops->start && (thunk->own_ops->stretch & s->stretcher->talks) != 0;
  bool goes_in = kind == RT_CALL || kind == RT_LOOP;

  for (int t = 0; goes_in && !found && t < thunk->seqs[0]->count; t++) found = talks(s, thunk->seqs[0]->thunks[t]);
  return found;
}

static bool may_join(const search *s, const rt_thunk *thunk)
{
  const rt_stretcher *stretcher = s->stretcher;
  rt_control_kind kind = rt_control_kind_of(thunk);

  if (kind == RT_NO_CONTROL)
    return (thunk->ops->enqueue || (s->sought == TALKING && talks(s, thunk))) &&
           (thunk->own_ops->stretch & stretcher->kinds) != 0;
  if (s->sought == PLAIN) return false;
  if (s->sought == TALKING) {
    if (!rt_unrolls(thunk, stretcher->unrolls) && (kind != RT_CALL || decides(thunk))) return false;
  } else {
    if (kind == RT_LOOP && !(stretcher->loops & stretcher->kinds)) return false;
    if (kind == RT_CHOICE && !(stretcher->branches & stretcher->kinds)) return false;
  }
  int sequences = s->sought == TALKING ? 1 : thunk->seq_count; /* the condition of a loop that is unrolled is not run */
  for (int q = 0; q < sequences; q++)
    for (int t = 0; t < thunk->seqs[q]->count; t++)
      if (!may_join(s, thunk->seqs[q]->thunks[t])) return false;
  return true;
}

/* How many steps a step counts as, for the least size of a stretch. */
static int64_t weight(const search *s, const rt_thunk *thunk)
{
  rt_control_kind kind = rt_control_kind_of(thunk);
  int64_t sum = 0;

  if (kind == RT_NO_CONTROL) return 1;
  if (kind != RT_CALL) return s->stretcher->least;
  for (int t = 0; t < thunk->seqs[0]->count; t++) sum += weight(s, thunk->seqs[0]->thunks[t]);
  return sum;
}

static bool decides(const rt_thunk *thunk)
{
  rt_control_kind kind = rt_control_kind_of(thunk);
  bool found = kind == RT_LOOP || kind == RT_CHOICE;

  for (int t = 0; kind == RT_CALL && !found && t < thunk->seqs[0]->count; t++)
    found = decides(thunk->seqs[0]->thunks[t]);
  return found;
}

static weft_status *wait_for(void *ctx, int from, int to)
{
  search *s = ctx;
  int gate = may_join(s, s->seq->thunks[from]) ? s->gates[from] : from;

  s->gates[to] = WEFT_MAX(s->gates[to], gate);
  return NULL;
}

static int compare_targets(const void *a, const void *b)
{
  const int *x = a, *y = b;
  return (x[1] > y[1]) - (x[1] < y[1]);
}

static bool runs_in_order(const rt_seq *seq)
{
  for (int t = 0; t < seq->count; t++)
    if (seq->thunks[t]->ops->start || seq->thunks[t]->ops->run) return false;
  return true;
}

/* Steps come in program order, so the gates of what a step waits for are known. */
static weft_status *find_gates(search *s, const buf_plan *plan)
{
  const rt_seq *seq = s->seq;
  int(*edges)[2] = weft_arena_memdup(&s->scratch, seq->edges, (size_t)seq->edge_count * sizeof *edges), edge = 0;
  buf_hazards hazards;

  s->gates = WEFT_ARENA_ARRAY(&s->scratch, int, seq->count);
  WEFT_TRY_ALLOC(edges);
  WEFT_TRY_ALLOC(s->gates);
  if (runs_in_order(seq)) return NULL;
  if (seq->edge_count > 0) qsort(edges, (size_t)seq->edge_count, sizeof *edges, compare_targets);
  WEFT_TRY(buf_hazards_init(&hazards, &s->scratch, buf_plan_alloc_count(plan), wait_for, s));
  for (int t = 0; t < seq->count; t++) {
    const rt_thunk *thunk = seq->thunks[t];
    s->gates[t] = -1;
    for (; edge < seq->edge_count && edges[edge][1] == t; edge++) WEFT_TRY(wait_for(s, edges[edge][0], t));
    for (int u = 0; u < thunk->use_count; u++)
      if (thunk->uses[u].access & RT_READ) WEFT_TRY(buf_hazards_read(&hazards, t, thunk->uses[u].slice));
    for (int u = 0; u < thunk->use_count; u++)
      if (thunk->uses[u].access & RT_WRITE) WEFT_TRY(buf_hazards_write(&hazards, t, thunk->uses[u].slice));
  }
  return NULL;
}

static weft_status *find_stretches(search *s, const buf_plan *plan)
{
  const rt_seq *seq = s->seq;

  s->count = 0;
  s->begins = WEFT_ARENA_ARRAY(&s->scratch, int, seq->count);
  s->ends = WEFT_ARENA_ARRAY(&s->scratch, int, seq->count);
  if (!s->begins || !s->ends) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(find_gates(s, plan));
  for (int t = 0, begin; t < seq->count;) {
    int64_t steps = 0;
    bool wanted = s->sought == PLAIN;
    for (begin = t; t < seq->count && may_join(s, seq->thunks[t]) && s->gates[t] <= s->gates[begin]; t++) {
      steps += weight(s, seq->thunks[t]);
      wanted |= s->sought == TALKING ? talks(s, seq->thunks[t]) : decides(seq->thunks[t]);
    }
    if (t == begin) t++;
    else if (wanted && steps >= s->stretcher->least) {
      s->begins[s->count] = begin;
      s->ends[s->count++] = t;
    }
  }
  return NULL;
}

/* The first or last step itself, where a stretch begins or ends with a stretch. */
static const rt_thunk *outermost(const rt_thunk *thunk, bool last)
{
  while (thunk->ops->control == rt_control_stretch)
    thunk = thunk->seqs[0]->thunks[last ? thunk->seqs[0]->count - 1 : 0];
  return thunk;
}

static weft_status *make_stretch(search *s, int begin, int end, rt_thunk **out_thunk)
{
  rt_program *program = s->program;
  rt_thunk *const *steps = s->seq->thunks + begin;
  rt_stretch *stretch;

  WEFT_TRY(s->stretcher->make(s->stretcher->ctx, &program->arena, &stretch));
  /* added at once, so that the program destroys it also after an error */
  WEFT_TRY(rt_program_adopt(program, &stretch->base));
  const char *name = weft_arena_printf(&program->arena, "%s to %s", outermost(steps[0], false)->name,
                                       outermost(steps[end - begin - 1], true)->name);
  rt_seq *inner = WEFT_ARENA_NEW(&program->arena, rt_seq);
  WEFT_TRY_ALLOC(name);
  WEFT_TRY_ALLOC(inner);
  *inner = (rt_seq){.name = name, .count = end - begin};
  inner->thunks = weft_arena_memdup(&program->arena, steps, (size_t)inner->count * sizeof *steps);
  WEFT_TRY_ALLOC(inner->thunks);
  for (int i = 0; i < inner->count; i++) {
    inner->thunks[i]->parent = inner;
    inner->thunks[i]->node = i;
  }
  stretch->count = inner->count;
  stretch->steps = inner->thunks;
  int order_group = 0;
  for (int i = 0; i < stretch->count; i++) {
    stretch->decides |= s->sought == DECIDING && decides(stretch->steps[i]);
    stretch->talks |= s->sought == TALKING && talks(s, stretch->steps[i]);
    order_group = WEFT_MAX(order_group, stretch->steps[i]->order_group);
  }
  WEFT_TRY(rt_call_init(program, &stretch->base, stretch->base.ops, name, inner));
  stretch->base.order_group = order_group;
  *out_thunk = &stretch->base;
  return NULL;
}

/* The sequence with stretches in the place of their steps. Its edges then name the new places. */
static weft_status *replace_steps(search *s, rt_seq *seq)
{
  int *place = WEFT_ARENA_ARRAY(&s->scratch, int, seq->count);
  int(*edges)[2] = weft_arena_memdup(&s->program->arena, seq->edges, (size_t)seq->edge_count * sizeof *edges);
  int count = 0, kept = 0;

  WEFT_TRY_ALLOC(place);
  WEFT_TRY_ALLOC(edges);
  for (int t = 0, next = 0; t < seq->count; count++) {
    if (next == s->count || t < s->begins[next]) {
      seq->thunks[count] = seq->thunks[t];
      place[t++] = count;
      continue;
    }
    rt_thunk *stretch;
    int end = s->ends[next];
    WEFT_TRY(make_stretch(s, t, end, &stretch));
    while (t < end) place[t++] = count;
    seq->thunks[count] = stretch;
    next++;
  }
  seq->count = count;
  for (int t = 0; t < count; t++) {
    seq->thunks[t]->parent = seq;
    seq->thunks[t]->node = t;
  }
  for (int i = 0; i < seq->edge_count; i++) {
    int from = place[edges[i][0]], to = place[edges[i][1]];
    if (from == to) continue;
    edges[kept][0] = from;
    edges[kept++][1] = to;
  }
  seq->edges = (const int(*)[2])edges;
  seq->edge_count = kept;
  return NULL;
}

/* Lists a sequence behind those of its stretches, as behind those of all control flow. */
static weft_status *number_sequence(rt_program *program, rt_seq *seq)
{
  for (int t = 0; t < seq->count; t++)
    if (seq->thunks[t]->ops->control == rt_control_stretch) WEFT_TRY(number_sequence(program, seq->thunks[t]->seqs[0]));
  return rt_program_list(program, seq);
}

static weft_status *number_sequences(rt_program *program, int old_count, rt_seq *const *old)
{
  program->seq_count = 0;
  for (int i = 0; i < old_count; i++) WEFT_TRY(number_sequence(program, old[i]));
  return NULL;
}

/* Puts stretches of one kind in the place of steps of a sequence. */
static weft_status *stretch_sequence(search *s, rt_seq *seq, const buf_plan *plan, int sought, int *stretches)
{
  s->seq = seq;
  s->sought = sought;
  WEFT_TRY(find_stretches(s, plan));
  *stretches += s->count;
  return s->count > 0 ? replace_steps(s, seq) : NULL;
}

weft_status *rt_program_stretch(rt_program *program, const buf_plan *plan, const rt_stretcher *stretcher)
{
  search s = {.program = program, .stretcher = stretcher};
  int old_count = program->seq_count, stretches = 0;
  weft_status *st = NULL;

  weft_arena_init(&s.scratch);
  rt_seq **old = weft_arena_memdup(&s.scratch, program->seqs, (size_t)old_count * sizeof *old);
  if (!old) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < old_count && !st; i++) {
    st = stretch_sequence(&s, old[i], plan, PLAIN, &stretches);
    if (!st && (stretcher->kinds & (stretcher->loops | stretcher->branches)))
      st = stretch_sequence(&s, old[i], plan, DECIDING, &stretches);
    if (!st && (stretcher->kinds & stretcher->talks)) st = stretch_sequence(&s, old[i], plan, TALKING, &stretches);
  }
  if (!st && stretches > 0) st = number_sequences(program, old_count, old);
  weft_arena_fini(&s.scratch);
  return st;
}

/* ---- arguments ------------------------------------------------------------------------------------------------- */

/* Adds the arguments of a step, and of the steps in it. Neighbours become one range. */
static weft_status *add_args(rt_program *program, rt_stretch *stretch, int *capacity, const rt_thunk *thunk)
{
  rt_control_kind kind = rt_control_kind_of(thunk);
  /* control flow has one argument, which is its flag if it has a flag */
  int count = kind == RT_NO_CONTROL ? thunk->use_count : kind != RT_CALL;
  rt_arg_range *last = stretch->range_count ? &stretch->ranges[stretch->range_count - 1] : NULL;

  stretch->arg_count += count;
  if (last && last->first + last->count == thunk->first_arg) {
    last->count += count;
  } else if (count > 0) {
    WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&program->arena, stretch->ranges, *capacity, stretch->range_count + 1, 8));
    stretch->ranges[stretch->range_count++] = (rt_arg_range){thunk->first_arg, count};
  }
  for (int s = 0; s < thunk->seq_count; s++)
    for (int t = 0; t < thunk->seqs[s]->count; t++)
      WEFT_TRY(add_args(program, stretch, capacity, thunk->seqs[s]->thunks[t]));
  return NULL;
}

weft_status *rt_stretch_number(rt_program *program, rt_stretch *stretch)
{
  int capacity = 0;

  for (int i = 0; i < stretch->count; i++) WEFT_TRY(add_args(program, stretch, &capacity, stretch->steps[i]));
  return NULL;
}
