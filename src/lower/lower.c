/* lower/lower.c -- computations to sequences of thunks over a memory plan. */
#include <config.h>

#include "lower/lower.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "lower/lower_internal.h"

weft_status *low_thunk_new(low_step *step, const rt_thunk_ops *ops, size_t size, rt_thunk **out_thunk)
{
  rt_thunk *thunk = weft_arena_alloc(step->arena, size);
  rt_use *uses = weft_arena_memdup(step->arena, step->uses, (size_t)step->use_count * sizeof *uses);

  WEFT_TRY_ALLOC(thunk);
  WEFT_TRY_ALLOC(uses);
  thunk->ops = ops;
  thunk->name = step->instr->name;
  thunk->use_count = step->use_count;
  thunk->uses = uses;
  thunk->cost_ns = step->target->cost_ns(step->target->ctx, step->instr);
  *out_thunk = thunk;
  return NULL;
}

/* ---- the plan's questions -------------------------------------------------------------------------------------- */

static int64_t scratch_bytes(void *ctx, const hlo_instr *instr)
{
  const low_module *m = ctx;

  if (hlo_opcode_talks(instr->op)) return low_collective_scratch(instr);
  return m->plans[instr->id] ? m->plans[instr->id]->scratch_bytes : 0;
}

static double cost_ns(void *ctx, const hlo_instr *instr)
{
  const low_module *m = ctx;

  return m->target->cost_ns(m->target->ctx, instr);
}

static bool is_collective(void *ctx, const hlo_instr *instr)
{
  const low_module *m = ctx;

  return hlo_opcode_talks(instr->op) && low_collective_is_registered(m->platform, instr);
}

/* ---- plans of steps -------------------------------------------------------------------------------------------- */

/* rt_compiled.step_plans */
typedef struct step_plans {
  weft_arena arena; /* of the plans and their data */
  int count, capacity;
  low_plan **plans;
} step_plans;

static void free_step_plans(void *arg)
{
  step_plans *all = arg;

  for (int i = 0; i < all->count; i++) {
    if (all->plans[i]->destroy) all->plans[i]->destroy(all->plans[i]->data);
    weft_status_free(all->plans[i]->error);
  }
  weft_arena_fini(&all->arena);
  free(all);
}

/* True for the steps whose thunks the target makes. */
static bool is_of_target(const hlo_instr *instr)
{
  return hlo_opcode_is_step(instr->op) && !hlo_opcode_runs_steps(instr->op) && !hlo_opcode_talks(instr->op) &&
         instr->op != HLO_INFEED && instr->op != HLO_OUTFEED;
}

static weft_status *plan_step(low_module *m, step_plans *all, const hlo_instr *instr)
{
  low_plan *plan = WEFT_ARENA_NEW(&all->arena, low_plan);

  WEFT_TRY_ALLOC(plan);
  if (!WEFT_ARENA_RESERVE(&all->arena, all->plans, all->capacity, all->count + 1, 32))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  m->plans[instr->id] = all->plans[all->count++] = plan;
  plan->error = m->target->plan(m->target->ctx, &all->arena, instr, plan);
  return NULL;
}

/* Marks the computations that control flow reaches from the entry. Others belong to fusions, reducers and the like. */
static void mark_wanted(const hlo_module *module, bool *wanted)
{
  wanted[module->entry->id] = true;
  for (const hlo_computation *comp = module->last; comp; comp = comp->prev) /* callers before callees */
    if (wanted[comp->id])
      HLO_FOREACH(instr, comp)
        if (hlo_opcode_runs_steps(instr->op))
          for (int i = 0; i < instr->called_count; i++) wanted[instr->called[i]->id] = true;
}

static weft_status *plan_steps(low_module *m)
{
  const hlo_module *module = m->out->module;
  step_plans *all = calloc(1, sizeof *all);

  WEFT_TRY_ALLOC(all);
  weft_arena_init(&all->arena);
  m->out->step_plans = all;
  m->out->free_step_plans = free_step_plans;
  m->plans = WEFT_ARENA_ARRAY(&m->scratch, low_plan *, module->next_id);
  m->wanted = WEFT_ARENA_ARRAY(&m->scratch, bool, module->next_computation_id);
  if (!m->plans || !m->wanted) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  mark_wanted(module, m->wanted);
  HLO_FOREACH_COMPUTATION(comp, module)
    if (m->wanted[comp->id])
      HLO_FOREACH(instr, comp)
        if (is_of_target(instr)) WEFT_TRY(plan_step(m, all, instr));
  return NULL;
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

/* The instruction that makes the bytes of `x`, found through those that only name them. */
static const hlo_instr *source_of(const hlo_instr *x)
{
  while (x->op == HLO_GET_TUPLE_ELEMENT || hlo_opcode_is_alias_of_operand(x->op)) x = x->operands[0];
  return x;
}

/* Finds what long steps read: m->passed. */
static weft_status *find_passed(low_module *m)
{
  const low_target *target = m->target;
  const hlo_module *module = m->out->module;

  m->passed = WEFT_ARENA_ARRAY(&m->scratch, int64_t, module->next_id);
  WEFT_TRY_ALLOC(m->passed);
  if (target->long_ns <= 0) return NULL;
  HLO_FOREACH_COMPUTATION(comp, module) {
    if (!m->wanted[comp->id]) continue;
    HLO_FOREACH(instr, comp) {
      if (!is_of_target(instr) || target->cost_ns(target->ctx, instr) < target->long_ns) continue;
      for (int i = 0; i < instr->operand_count; i++) {
        int64_t *passed = &m->passed[source_of(instr->operands[i])->id];
        *passed = WEFT_MAX(*passed, hlo_shape_total_bytes(instr->operands[i]->shape));
      }
    }
  }
  return NULL;
}

/* The thunk that made `x`; NULL: not known. */
static const rt_thunk *maker_of(const low_module *m, const hlo_instr *x)
{
  x = source_of(x);
  return hlo_opcode_runs_steps(x->op) ? NULL : m->made[x->id];
}

/* True if no step of the program makes `x`. */
static bool is_given(const low_module *m, const hlo_instr *x)
{
  x = source_of(x);
  return x->op == HLO_CONSTANT || (x->op == HLO_PARAMETER && x->parent == m->out->module->entry);
}

/* Sets the slices of a step's uses, which are in the order of low_step.uses, and returns how many they are. */
static int fill_slices(const buf_plan *plan, const hlo_instr *instr, rt_use *uses)
{
  buf_slice scratch = buf_plan_scratch(plan, instr);
  int n = 0;

  for (int i = 0; i < instr->operand_count; i++)
    for (int k = 0; k < hlo_shape_leaf_count(instr->operands[i]->shape); k++)
      uses[n++].slice = buf_plan_slice(plan, instr->operands[i], k);
  for (int k = 0; k < hlo_shape_leaf_count(instr->shape); k++) uses[n++].slice = buf_plan_slice(plan, instr, k);
  if (scratch.alloc >= 0) uses[n++].slice = scratch;
  return n;
}

static weft_status *fill_uses(low_module *m, const hlo_instr *instr, low_step *step)
{
  *step = (low_step){
    .target = m->target, .plan = m->plans[instr->id], .arena = rt_program_arena(m->out->program), .instr = instr};
  for (int i = 0; i < instr->operand_count; i++) step->operand_count += hlo_shape_leaf_count(instr->operands[i]->shape);
  step->result_count = hlo_shape_leaf_count(instr->shape);
  step->uses = WEFT_ARENA_ARRAY(&m->scratch, rt_use, step->operand_count + step->result_count + 1);
  WEFT_TRY_ALLOC(step->uses);
  for (int i = 0; i < instr->operand_count; i++) {
    const rt_thunk *maker = maker_of(m, instr->operands[i]);
    int64_t bytes = hlo_shape_total_bytes(instr->operands[i]->shape);
    if (maker) *(maker->splits ? &step->shared_bytes : &step->whole_bytes) += bytes;
    else if (is_given(m, instr->operands[i])) step->given_bytes += bytes;
  }
  step->passed_bytes = m->passed[instr->id];
  step->use_count = fill_slices(m->out->plan, instr, step->uses);
  for (int i = 0; i < step->use_count; i++) step->uses[i].access = i < step->operand_count ? RT_READ : RT_WRITE;
  return NULL;
}

/* Of a loop or conditional: where the condition's result or the branch is. */
static buf_slice flag_of(const low_module *m, const hlo_instr *instr)
{
  return buf_plan_slice(m->out->plan, instr->op == HLO_WHILE ? instr->called[1]->root : instr->operands[0], 0);
}

static weft_status *lower_control(low_module *m, const hlo_instr *instr, rt_thunk **out)
{
  rt_program *program = m->out->program;
  rt_seq **called = WEFT_ARENA_ARRAY(&m->scratch, rt_seq *, instr->called_count);

  WEFT_TRY_ALLOC(called);
  for (int i = 0; i < instr->called_count; i++) called[i] = m->seqs[instr->called[i]->id];
  switch (instr->op) {
  case HLO_WHILE:
    return rt_while_new(program, instr->name, called[1], called[0], flag_of(m, instr), hlo_known_trip_count(instr),
                        out);
  case HLO_CONDITIONAL:
    return rt_conditional_new(program, instr->name, instr->called_count, called, flag_of(m, instr),
                              instr->operands[0]->shape->type == WEFT_PRED, out);
  default: return rt_call_new(program, instr->name, called[0], out);
  }
}

static weft_status *lower_step(low_module *m, const hlo_instr *instr, rt_thunk **out)
{
  low_step step;

  WEFT_TRY(fill_uses(m, instr, &step));
  if (instr->op == HLO_INFEED || instr->op == HLO_OUTFEED) return low_feed_make(&step, out);
  if (hlo_opcode_talks(instr->op)) return low_collective_make(m, &step, out);
  return m->target->make(m->target->ctx, &step, out);
}

/* ---- computations ---------------------------------------------------------------------------------------------- */

static bool talks(const low_module *m, const hlo_instr *instr)
{
  if (!hlo_opcode_runs_steps(instr->op)) return hlo_opcode_talks(instr->op);
  for (int i = 0; i < instr->called_count; i++)
    if (m->talks[instr->called[i]->id]) return true;
  return false;
}

static weft_status *lower_computation(low_module *m, const hlo_computation *comp)
{
  rt_thunk **thunks = WEFT_ARENA_ARRAY(&m->scratch, rt_thunk *, comp->instr_count);
  low_edges edges = {0};
  int count = 0;

  WEFT_TRY_ALLOC(thunks);
  HLO_FOREACH(instr, comp) {
    char what[256];
    if (!hlo_opcode_is_step(instr->op)) continue;
    WEFT_TRY_NOTE(hlo_opcode_runs_steps(instr->op) ? lower_control(m, instr, &thunks[count])
                                                   : lower_step(m, instr, &thunks[count]),
                  "lowering %s", hlo_describe(instr, what, sizeof what));
    if (talks(m, instr)) {
      thunks[count]->order_group = 1; /* all communication of a program starts in one order on every device */
      m->talks[comp->id] = true;
    }
    m->made[instr->id] = thunks[count];
    m->node_of[instr->id] = count++;
    WEFT_TRY(low_order_add(m, &edges, instr));
  }
  return rt_seq_new(m->out->program, comp->name, count, thunks, edges.count, (const int(*)[2])edges.v,
                    &m->seqs[comp->id]);
}

static weft_status *lower_module(low_module *m)
{
  const hlo_module *module = m->out->module;
  int comps = module->next_computation_id;

  m->seqs = WEFT_ARENA_ARRAY(&m->scratch, rt_seq *, comps);
  m->talks = WEFT_ARENA_ARRAY(&m->scratch, bool, comps);
  m->node_of = WEFT_ARENA_ARRAY(&m->scratch, int, module->next_id);
  m->made = WEFT_ARENA_ARRAY(&m->scratch, rt_thunk *, module->next_id);
  m->token_mark = WEFT_ARENA_ARRAY(&m->scratch, int, module->next_id);
  if (!m->seqs || !m->talks || !m->node_of || !m->made || !m->token_mark)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  memset(m->node_of, -1, (size_t)module->next_id * sizeof *m->node_of);
  WEFT_TRY(rt_program_new(&m->out->program));
  HLO_FOREACH_COMPUTATION(comp, module)
    if (m->wanted[comp->id]) WEFT_TRY(lower_computation(m, comp));
  return rt_program_order(m->out->program, m->out->plan, m->target->threads,
                          m->platform->ops->device->stream_create != NULL);
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

/* Which computations run in order, by computation id. */
static weft_status *find_in_order(low_module *m, const bool **out_in_order)
{
  int comps = m->out->module->next_computation_id;
  bool *in_order = WEFT_ARENA_ARRAY(&m->scratch, bool, comps);

  WEFT_TRY_ALLOC(in_order);
  for (int i = 0; i < comps; i++) in_order[i] = m->seqs[i] && rt_seq_runs_in_order(m->seqs[i]);
  *out_in_order = in_order;
  return NULL;
}

/* The thunks were made on a draft of the plan: now they use the plan's slices. */
static weft_status *use_slices(low_module *m)
{
  HLO_FOREACH_COMPUTATION(comp, m->out->module)
    HLO_FOREACH(instr, comp) {
      rt_thunk *thunk = m->made[instr->id];
      if (!thunk) continue;
      if (!hlo_opcode_runs_steps(instr->op)) fill_slices(m->out->plan, instr, thunk->uses);
      else if (instr->op == HLO_WHILE || instr->op == HLO_CONDITIONAL) rt_control_set_flag(thunk, flag_of(m, instr));
    }
  return rt_program_gather_uses(m->out->program);
}

/* Buffers may share memory by the schedule's order where the steps of a computation run in order. That depends on what
 * the steps wait for and what they cost, so the thunks are made first, on a draft of the memory plan. */
static weft_status *plan_and_lower(low_module *m)
{
  buf_options plan = {.order = m->options->order, .budget_bytes = m->options->budget_bytes,
                      .scratch_bytes = scratch_bytes, .cost_ns = cost_ns,
                      .is_collective = m->target->registers ? is_collective : NULL, .ctx = m};
  rt_compiled *out = m->out;

  WEFT_TRY(plan_steps(m));
  WEFT_TRY(find_passed(m));
  WEFT_TRY(buf_plan_draft(out->module, &plan, &out->plan));
  WEFT_TRY(lower_module(m));
  if (plan.order != BUF_SEQUENTIAL) WEFT_TRY(find_in_order(m, &plan.in_order));
  WEFT_TRY(buf_plan_place(out->plan, &plan));
  WEFT_TRY(use_slices(m));
  if (m->target->stretcher) WEFT_TRY(rt_program_stretch(out->program, out->plan, m->target->stretcher));
  return rt_program_finish(out->program, m->seqs[out->module->entry->id], out->plan);
}

static void warn_of_budget(const low_module *m)
{
  int64_t needed = buf_plan_stats(m->out->plan)->temp_bytes, budget = m->options->budget_bytes;

  if (m->options->order != BUF_BUDGET || needed <= budget) return;
  WEFT_LOG("buffer", WARN,
           "module \"%s\": intermediate results take %s (%" PRId64 " bytes), over the budget of %s (%" PRId64
           " bytes): no plan that was tried needs less",
           m->out->module->name, WEFT_BYTES(needed), needed, WEFT_BYTES(budget), budget);
}

weft_status *low_lower(weft_platform *platform, const low_target *target, const weft_compile_options *options,
                       rt_compiled *compiled)
{
  const hlo_module *module = compiled->module;
  low_module m = {
    .platform = platform, .target = target, .options = options, .out = compiled,
    .replicas = options->replica_count > 0 ? options->replica_count : WEFT_MAX(module->replica_count, 1),
    .partitions = options->partition_count > 0 ? options->partition_count : WEFT_MAX(module->num_partitions, 1),
  };

  weft_arena_init(&m.scratch);
  weft_status *st = plan_and_lower(&m);
  if (!st) warn_of_budget(&m);
  weft_arena_fini(&m.scratch);
  return st;
}
