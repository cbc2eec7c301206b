/* HLO to an executable: passes, kernels, memory plan, thunks. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cpu/collective.h"
#include "cpu/cpu_internal.h"
#include "passes/pass.h"
#include "runtime/trace.h"

typedef struct compiler {
  const weft_compile_options *options;
  cpu_platform *platform;
  rt_compiled out;
  gen_code *code;
  weft_arena scratch;
  rt_seq **seqs;      /* by computation id */
  int *node_of;       /* by instruction id: place in its sequence, -1 none */
  const rt_thunk **made; /* by instruction id: its thunk; NULL for control flow and what is no step */
  bool *talks;        /* by computation id: contains communication */
  int64_t replicas, partitions;
  rt_grouping *groupings;
  int *token_mark;    /* by instruction id: last instruction whose tokens were followed through this one */
} compiler;

static const cpu_maker *find_maker(hlo_opcode op)
{
  const cpu_maker *maker = cpu_makers;
  while (maker->make && maker->op != op) maker++;
  return maker->make ? maker : NULL;
}

/* Communication that a thunk starts: the done halves are names. */
static bool talks_by_itself(hlo_opcode op)
{
  switch (op) {
  case HLO_ALL_REDUCE: case HLO_ALL_REDUCE_START: case HLO_ALL_GATHER: case HLO_ALL_GATHER_START: case HLO_REDUCE_SCATTER:
  case HLO_ALL_TO_ALL: case HLO_RAGGED_ALL_TO_ALL: case HLO_COLLECTIVE_BROADCAST: case HLO_COLLECTIVE_PERMUTE:
  case HLO_COLLECTIVE_PERMUTE_START: case HLO_SEND: case HLO_RECV:
    return true;
  default: return false;
  }
}

/* ---- the plan's questions -------------------------------------------------------------------------------------- */

static int64_t scratch_bytes(void *ctx, const hlo_instr *instr)
{
  const compiler *c = ctx;

  if (instr->op == HLO_FUSION) {
    const gen_kernel *kernel = gen_code_kernel(c->code, instr);
    return kernel ? kernel->shared_bytes : 0;
  }
  if (talks_by_itself(instr->op)) return cpu_collective_scratch(instr);
  const cpu_maker *maker = find_maker(instr->op);
  return maker && maker->scratch_bytes ? maker->scratch_bytes(instr) : 0;
}

static double cost_ns(void *ctx, const hlo_instr *instr) { return cpu_cost_ns(instr, ((compiler *)ctx)->code); }

/* ---- lowering -------------------------------------------------------------------------------------------------- */

/* Who made `x`, under its other names; NULL: not known. */
static const rt_thunk *maker_of(const compiler *c, const hlo_instr *x)
{
  while (x->op == HLO_GET_TUPLE_ELEMENT || x->op == HLO_RESHAPE || x->op == HLO_BITCAST || x->op == HLO_OPT_BARRIER) x = x->operands[0];
  return c->made[x->id];
}

static weft_status *fill_uses(compiler *c, const hlo_instr *instr, cpu_lowering *low)
{
  buf_slice scratch = buf_plan_scratch(c->out.plan, instr);

  *low = (cpu_lowering){.arena = rt_program_arena(c->out.program), .instr = instr, .code = c->code,
                        .threads = rt_pool_threads(c->platform->base.pool)};
  for (int i = 0; i < instr->operand_count; i++) low->operand_count += hlo_shape_leaf_count(instr->operands[i]->shape);
  low->result_count = hlo_shape_leaf_count(instr->shape);
  low->uses = WEFT_ARENA_ARRAY(&c->scratch, rt_use, low->operand_count + low->result_count + 1);
  WEFT_TRY_ALLOC(low->uses);
  for (int i = 0; i < instr->operand_count; i++) {
    const rt_thunk *maker = maker_of(c, instr->operands[i]);
    if (maker) *(maker->splits ? &low->shared_bytes : &low->whole_bytes) += hlo_shape_total_bytes(instr->operands[i]->shape);
    for (int k = 0; k < hlo_shape_leaf_count(instr->operands[i]->shape); k++)
      low->uses[low->use_count++] = (rt_use){buf_plan_slice(c->out.plan, instr->operands[i], k), RT_READ};
  }
  for (int k = 0; k < low->result_count; k++)
    low->uses[low->use_count++] = (rt_use){buf_plan_slice(c->out.plan, instr, k), RT_WRITE};
  if (scratch.alloc >= 0) low->uses[low->use_count++] = (rt_use){scratch, RT_WRITE};
  return NULL;
}

static weft_status *lower_control(compiler *c, const hlo_instr *instr, rt_thunk **out)
{
  rt_program *program = c->out.program;
  rt_seq **called = WEFT_ARENA_ARRAY(&c->scratch, rt_seq *, instr->called_count);

  WEFT_TRY_ALLOC(called);
  for (int i = 0; i < instr->called_count; i++) called[i] = c->seqs[instr->called[i]->id];
  switch (instr->op) {
  case HLO_WHILE:
    WEFT_TRY(rt_while_new(program, instr->name, called[1], called[0],
                          buf_plan_slice(c->out.plan, instr->called[1]->root, 0), hlo_known_trip_count(instr), out));
    break;
  case HLO_CONDITIONAL:
    WEFT_TRY(rt_conditional_new(program, instr->name, instr->called_count, called,
                                buf_plan_slice(c->out.plan, instr->operands[0], 0),
                                instr->operands[0]->shape->type == WEFT_PRED, out));
    break;
  default: WEFT_TRY(rt_call_new(program, instr->name, called[0], out));
  }
  return NULL;
}

/* Collectives of the same groups share communicators. */
static weft_status *lower_collective(compiler *c, cpu_lowering *low, rt_thunk **out)
{
  weft_arena *arena = rt_program_arena(c->out.program);
  rt_grouping grouping;
  int at = 0;

  if (low->instr->u.collective->is_host_transfer) return cpu_host_transfer_make(low, &c->platform->base, out);
  WEFT_TRY(rt_grouping_new(arena, low->instr, c->replicas, c->partitions, &grouping));
  while (at < c->out.grouping_count && !rt_grouping_equal(&c->groupings[at], &grouping)) at++; /* a program has few */
  if (at == c->out.grouping_count) {
    rt_grouping *more = WEFT_ARENA_ARRAY(arena, rt_grouping, at + 1);
    WEFT_TRY_ALLOC(more);
    if (at) memcpy(more, c->groupings, (size_t)at * sizeof *more);
    more[at] = grouping;
    c->groupings = more;
    c->out.groupings = more;
    c->out.grouping_count++;
  }
  rt_grouping *own = weft_arena_memdup(arena, &grouping, sizeof grouping);
  WEFT_TRY_ALLOC(own);
  return cpu_collective_thunk_new(low, own, at, c->partitions, c->out.module->name, out);
}

static weft_status *lower_step(compiler *c, const hlo_instr *instr, rt_thunk **out)
{
  cpu_lowering low;
  const cpu_maker *maker = find_maker(instr->op);
  const gen_kernel *kernel;

  WEFT_TRY(fill_uses(c, instr, &low));
  if (talks_by_itself(instr->op)) return lower_collective(c, &low, out);
  switch (instr->op) {
  case HLO_FUSION:
    kernel = gen_code_kernel(c->code, instr);
    if (!kernel) return WEFT_ERR(INTERNAL, "fusion \"%s\" has no kernel", instr->name);
    return cpu_kernel_thunk_new(&low, kernel, out);
  case HLO_COPY: return cpu_copy_thunk_new(&low, out);
  case HLO_REPLICA_ID: case HLO_PARTITION_ID: return cpu_id_thunk_new(&low, out);
  default: break;
  }
  if (maker) {
    weft_status *st = maker->make(&low, out);
    if (weft_status_code(st) != WEFT_UNIMPLEMENTED) return st;
    WEFT_LOG("cpu", DEBUG, "\"%s\" goes to the reference evaluator: %s", instr->name, weft_status_message(st));
    weft_status_free(st);
  }
  if (hlo_opcode_is_collective(instr->op) || hlo_opcode_is_async(instr->op) || hlo_opcode_has_side_effect(instr->op) ||
      instr->op == HLO_CUSTOM_CALL) {
    char what[256];
    return WEFT_ERR(UNIMPLEMENTED, "%s on the CPU: %s", hlo_opcode_name(instr->op),
                    instr->op == HLO_CUSTOM_CALL ? instr->u.custom->target : hlo_describe(instr, what, sizeof what));
  }
  return cpu_eval_thunk_new(&low, out);
}

/* ---- order beyond bytes ---------------------------------------------------------------------------------------- */

typedef struct edges {
  int count, capacity;
  int (*v)[2];
} edges;

static weft_status *add_edge(compiler *c, edges *e, int from, int to)
{
  if (from < 0 || from >= to) return NULL;
  if (e->count == e->capacity) {
    int wider = e->capacity ? 2 * e->capacity : 16;
    int(*bigger)[2] = weft_arena_alloc_array(&c->scratch, (size_t)wider, sizeof *bigger);
    WEFT_TRY_ALLOC(bigger);
    if (e->count) memcpy(bigger, e->v, (size_t)e->count * sizeof *bigger);
    e->v = bigger;
    e->capacity = wider;
  }
  e->v[e->count][0] = from;
  e->v[e->count++][1] = to;
  return NULL;
}

static bool has_token(const hlo_shape *shape)
{
  if (hlo_shape_is_token(shape)) return true;
  for (int i = 0; hlo_shape_is_tuple(shape) && i < shape->rank; i++)
    if (has_token(shape->elements[i])) return true;
  return false;
}

/* `instr` waits for whatever makes the tokens it is given, seen through tuples, after-all and the like. */
static weft_status *add_token_edges(compiler *c, edges *e, const hlo_instr *instr)
{
  const hlo_instr **stack = WEFT_ARENA_ARRAY(&c->scratch, const hlo_instr *, instr->operand_count);
  int depth = 0, capacity = instr->operand_count;

  WEFT_TRY_ALLOC(stack);
  for (int i = 0; i < instr->operand_count; i++)
    if (has_token(instr->operands[i]->shape)) stack[depth++] = instr->operands[i];
  while (depth > 0) {
    const hlo_instr *from = stack[--depth];
    if (c->token_mark[from->id] == instr->id + 1) continue;
    c->token_mark[from->id] = instr->id + 1;
    if (c->node_of[from->id] >= 0) {
      WEFT_TRY(add_edge(c, e, c->node_of[from->id], c->node_of[instr->id]));
      continue;
    }
    if (depth + from->operand_count > capacity) {
      const hlo_instr **bigger = WEFT_ARENA_ARRAY(&c->scratch, const hlo_instr *, 2 * (depth + from->operand_count));
      WEFT_TRY_ALLOC(bigger);
      if (depth) memcpy(bigger, stack, (size_t)depth * sizeof *bigger);
      stack = bigger;
      capacity = 2 * (depth + from->operand_count);
    }
    for (int i = 0; i < from->operand_count; i++)
      if (has_token(from->operands[i]->shape)) stack[depth++] = from->operands[i];
  }
  return NULL;
}

static bool talks(const compiler *c, const hlo_instr *instr)
{
  if (hlo_opcode_is_collective(instr->op)) return true;
  switch (instr->op) {
  case HLO_SEND: case HLO_RECV: case HLO_SEND_DONE: case HLO_RECV_DONE: case HLO_INFEED: case HLO_OUTFEED: return true;
  case HLO_WHILE: case HLO_CONDITIONAL: case HLO_CALL:
    for (int i = 0; i < instr->called_count; i++)
      if (c->talks[instr->called[i]->id]) return true;
    return false;
  default: return false;
  }
}

static bool is_step(const hlo_instr *instr)
{
  switch (instr->op) {
  case HLO_PARAMETER: case HLO_CONSTANT: case HLO_TUPLE: case HLO_GET_TUPLE_ELEMENT: case HLO_RESHAPE: case HLO_BITCAST:
  case HLO_OPT_BARRIER: case HLO_DOMAIN: case HLO_ADD_DEPENDENCY: case HLO_AFTER_ALL: case HLO_ALL_REDUCE_DONE:
  case HLO_ALL_GATHER_DONE: case HLO_COLLECTIVE_PERMUTE_DONE: case HLO_SEND_DONE: case HLO_RECV_DONE:
    return false;
  default: return true;
  }
}

static weft_status *lower_computation(compiler *c, const hlo_computation *comp)
{
  rt_thunk **thunks = WEFT_ARENA_ARRAY(&c->scratch, rt_thunk *, comp->instr_count);
  edges e = {0};
  int count = 0;

  WEFT_TRY_ALLOC(thunks);
  HLO_FOREACH(instr, comp) {
    bool control = instr->op == HLO_WHILE || instr->op == HLO_CONDITIONAL || instr->op == HLO_CALL;
    char what[256];
    if (!is_step(instr)) continue;
    WEFT_TRY_NOTE(control ? lower_control(c, instr, &thunks[count]) : lower_step(c, instr, &thunks[count]),
                  "lowering %s", hlo_describe(instr, what, sizeof what));
    if (talks(c, instr)) {
      thunks[count]->order_group = 1; /* all communication of a program starts in one order on every device */
      c->talks[comp->id] = true;
    }
    if (!control) c->made[instr->id] = thunks[count];
    c->node_of[instr->id] = count++;
    WEFT_TRY(add_token_edges(c, &e, instr));
    for (int i = 0; i < instr->control->pred_count; i++)
      WEFT_TRY(add_edge(c, &e, c->node_of[instr->control->preds[i]->id], c->node_of[instr->id]));
  }
  return rt_seq_new(c->out.program, comp->name, count, thunks, e.count, (const int(*)[2])e.v, &c->seqs[comp->id]);
}

static weft_status *lower(compiler *c)
{
  const hlo_module *module = c->out.module;
  int comps = module->next_computation_id;
  bool *wanted = WEFT_ARENA_ARRAY(&c->scratch, bool, comps);

  c->seqs = WEFT_ARENA_ARRAY(&c->scratch, rt_seq *, comps);
  c->talks = WEFT_ARENA_ARRAY(&c->scratch, bool, comps);
  c->node_of = WEFT_ARENA_ARRAY(&c->scratch, int, module->next_id);
  c->made = WEFT_ARENA_ARRAY(&c->scratch, const rt_thunk *, module->next_id);
  c->token_mark = WEFT_ARENA_ARRAY(&c->scratch, int, module->next_id);
  if (!wanted || !c->seqs || !c->talks || !c->node_of || !c->made || !c->token_mark)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  memset(c->node_of, -1, (size_t)module->next_id * sizeof *c->node_of);
  wanted[module->entry->id] = true;
  for (const hlo_computation *comp = module->last; comp; comp = comp->prev) /* callers before callees */
    if (wanted[comp->id])
      HLO_FOREACH(instr, comp)
        if (instr->op == HLO_WHILE || instr->op == HLO_CONDITIONAL || instr->op == HLO_CALL)
          for (int i = 0; i < instr->called_count; i++) wanted[instr->called[i]->id] = true;
  c->replicas = c->options->replica_count > 0 ? c->options->replica_count : WEFT_MAX(module->replica_count, 1);
  c->partitions = c->options->partition_count > 0 ? c->options->partition_count : WEFT_MAX(module->num_partitions, 1);
  WEFT_TRY(rt_program_new(&c->out.program));
  HLO_FOREACH_COMPUTATION(comp, module)
    if (wanted[comp->id]) WEFT_TRY(lower_computation(c, comp));
  return rt_program_finish(c->out.program, c->seqs[module->entry->id], c->out.plan,
                           rt_pool_threads(c->platform->base.pool));
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static void free_code(void *code) { gen_code_free(code); }

/* Which computations turned out to run in order; NULL if none does, or if the arena is too small to matter. */
static weft_status *find_in_order(compiler *c, const bool **out_in_order)
{
  enum { SMALL_ARENA = 16 << 10 };
  int comps = c->out.module->next_computation_id;
  bool *in_order = WEFT_ARENA_ARRAY(&c->scratch, bool, comps), any = false;

  *out_in_order = NULL;
  WEFT_TRY_ALLOC(in_order);
  for (int i = 0; i < comps; i++) any |= in_order[i] = c->seqs[i] && rt_seq_runs_in_order(c->seqs[i]);
  if (any && buf_plan_stats(c->out.plan)->temp_bytes > SMALL_ARENA) *out_in_order = in_order;
  return NULL;
}

/* The executor decides from the plan's dependences what it runs in order; there buffers may share by the schedule, which a
 * second plan makes use of. */
static weft_status *plan_and_lower(compiler *c)
{
  buf_options plan = {.order = c->options->order, .budget_bytes = c->options->budget_bytes,
                      .scratch_bytes = scratch_bytes, .cost_ns = cost_ns, .ctx = c};

  WEFT_TRY(buf_plan_new(c->out.module, &plan, &c->out.plan));
  WEFT_TRY(lower(c));
  if (plan.order == BUF_SEQUENTIAL) return NULL;
  WEFT_TRY(find_in_order(c, &plan.in_order));
  if (!plan.in_order) return NULL;
  rt_program_free(c->out.program);
  buf_plan_free(c->out.plan);
  c->out.program = NULL;
  c->out.plan = NULL;
  c->out.grouping_count = 0;
  WEFT_TRY(buf_plan_new(c->out.module, &plan, &c->out.plan));
  return lower(c);
}

static weft_status *compile(compiler *c)
{
  const weft_compile_options *options = c->options;
  gen_options gen;
  pass_options passes = {.fold_limit_bytes = 1 << 20,
                         .num_threads = rt_pool_threads(c->platform->base.pool), .dump_dir = options->dump_dir};
  if (!passes.dump_dir && *c->platform->settings.dump_hlo) passes.dump_dir = c->platform->settings.dump_hlo;
  int64_t begin = weft_now_ns();

  WEFT_TRY(pass_run(&pass_cpu_pipeline, c->out.module, &passes, options->pass_observer, options->observer_ctx));
  if (rt_trace_on) rt_trace_event("compile", "passes", 0, begin);
  begin = weft_now_ns();
  WEFT_TRY(gen_options_load(&gen));
  gen.keep_text = options->keep_text;
  WEFT_TRY(gen_compile(c->out.module, &gen, &c->code));
  c->out.code = c->code;
  c->out.free_code = free_code;
  c->out.code_bytes = gen_code_stats(c->code)->object_bytes;
  if (rt_trace_on) rt_trace_event("compile", "kernels", 0, begin);
  begin = weft_now_ns();
  WEFT_TRY(plan_and_lower(c));
  if (rt_trace_on) rt_trace_event("compile", "plan and thunks", 0, begin);
  return NULL;
}

weft_status *cpu_compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                         weft_executable **out_executable)
{
  compiler c = {.options = options, .platform = (cpu_platform *)platform, .out = {.module = module}};
  weft_status *st;

  *out_executable = NULL;
  weft_arena_init(&c.scratch);
  st = compile(&c);
  weft_arena_fini(&c.scratch);
  if (!st) return weft_executable_new(platform, &c.out, options, out_executable);
  rt_program_free(c.out.program);
  buf_plan_free(c.out.plan);
  gen_code_free(c.code);
  hlo_module_free(module);
  return st;
}
