#include <config.h>

#include "cpu/parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/platform.h"
#include "hlo/check.h"
#include "runtime/feed.h"
#include "runtime/platform.h"

enum { MOST_DEVICES = 4096 };
static const int64_t DEADLINE_MS = 600000; /* for programs that wait for each other in vain */

bool cpu_is_run_parallel(const hlo_instr *instr)
{
  return instr->op == HLO_CUSTOM_CALL && strcmp(instr->u.custom->target, "interpreter.run_parallel") == 0;
}

typedef struct grid { int replicas, partitions, infeeds; } grid;

static weft_status *grid_of(const hlo_instr *call, grid *g)
{
  const char *config = call->extra ? call->extra->backend_config : NULL;

  if (!config || sscanf(config, "{\"replicas\":%d,\"partitions\":%d,\"infeeds\":%d}", &g->replicas, &g->partitions, &g->infeeds) != 3 ||
      g->replicas < 1 || g->partitions < 1 || g->infeeds < 0 || (int64_t)g->replicas * g->partitions > MOST_DEVICES ||
      call->called_count != g->replicas * g->partitions + g->infeeds)
    return WEFT_ERR(INVALID_ARGUMENT, "run_parallel: no grid of programs in %s", config ? config : "no backend_config");
  for (int i = 1; i < g->replicas * g->partitions; i++)
    if (call->called[i] != call->called[0])
      return WEFT_ERR(UNIMPLEMENTED, "run_parallel of different programs, \"%s\" and \"%s\"", call->called[0]->name,
                      call->called[i]->name);
  return NULL;
}

/* `comp` as the entry of a module of its own. */
static weft_status *module_of(const hlo_computation *comp, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;

  WEFT_TRY(hlo_module_clone(comp->module, &module));
  HLO_FOREACH_COMPUTATION(c, module)
    if (strcmp(c->name, comp->name) == 0) module->entry = c;
  module->has_entry_layout = false;
  module->alias_count = module->donor_count = module->spmd_parameter_count = 0;
  module->spmd_output_sharding = NULL;
  module->replica_count = module->num_partitions = 1;
  WEFT_TRY(hlo_module_gc(module));
  *out_module = WEFT_MOVE(module);
  return NULL;
}

/* What the infeed functions give, into the first device's queue. */
static weft_status *feed(const hlo_instr *call, const grid *g, weft_device *device, weft_arena *arena)
{
  hlo_eval_options options = HLO_EVAL_DEFAULT;

  for (int i = 0; i < g->infeeds; i++) {
    const hlo_literal *value;
    WEFT_TRY(hlo_eval_computation(call->called[g->replicas * g->partitions + i], NULL, &options, arena, &value));
    int64_t bytes = hlo_shape_total_bytes(value->shape), at = 0;
    char *all = weft_arena_alloc(arena, (size_t)WEFT_MAX(bytes, 1));
    WEFT_TRY_ALLOC(all);
    for (int k = 0; k < (value->elements ? value->shape->rank : 1); k++) {
      const hlo_literal *leaf = value->elements ? value->elements[k] : value;
      memcpy(all + at, leaf->data, (size_t)hlo_shape_bytes(leaf->shape));
      at += hlo_shape_bytes(leaf->shape);
    }
    WEFT_TRY(weft_device_infeed(device, all, bytes));
  }
  return NULL;
}

/* One launch on all devices. */
typedef struct session {
  weft_executable *exe;
  int devices, params, outputs;
  weft_buffer **in, **out;         /* [device * params + leaf], [device * outputs + leaf] */
  weft_buffer *const **ins;
  weft_buffer ***outs;
} session;

static weft_status *session_init(session *s, weft_executable *exe, weft_arena *arena)
{
  *s = (session){.exe = exe, .devices = weft_executable_device_count(exe), .params = weft_executable_param_count(exe),
                 .outputs = weft_executable_output_count(exe)};
  s->in = WEFT_ARENA_ARRAY(arena, weft_buffer *, s->devices * s->params + 1);
  s->out = WEFT_ARENA_ARRAY(arena, weft_buffer *, s->devices * s->outputs + 1);
  s->ins = WEFT_ARENA_ARRAY(arena, weft_buffer *const *, s->devices);
  s->outs = WEFT_ARENA_ARRAY(arena, weft_buffer **, s->devices);
  WEFT_TRY_ALLOC(s->in && s->out && s->ins && s->outs);
  for (int d = 0; d < s->devices; d++) {
    s->ins[d] = &s->in[d * s->params];
    s->outs[d] = &s->out[d * s->outputs];
  }
  return NULL;
}

static void session_fini(session *s)
{
  for (int i = 0; s->in && i < s->devices * s->params; i++) weft_buffer_release(s->in[i]);
  for (int i = 0; s->out && i < s->devices * s->outputs; i++) weft_buffer_release(s->out[i]);
}

static weft_status *session_run(session *s, const hlo_literal *const *operands, weft_arena *arena, const hlo_literal **results)
{
  weft_status *first = NULL;

  for (int d = 0; d < s->devices; d++)
    for (int i = 0; i < s->params; i++)
      WEFT_TRY(weft_buffer_from_host(weft_executable_device(s->exe, d), weft_executable_param_type(s->exe, i),
                                     operands[d * s->params + i]->data, &s->in[d * s->params + i]));
  WEFT_TRY(weft_executable_launch(s->exe, &(weft_launch){.inputs = s->ins, .outputs = s->outs}));
  for (int k = 0; k < s->devices * s->outputs; k++) {
    const weft_array_type *type = weft_executable_output_type(s->exe, k % s->outputs);
    hlo_literal *value = WEFT_ARENA_NEW(arena, hlo_literal);
    weft_status *st = NULL;
    results[k] = value;
    if (type->type == WEFT_TOKEN) {
      st = weft_event_await(weft_buffer_defined(s->out[k]), weft_deadline_after_ms(DEADLINE_MS));
      if (value) value->shape = hlo_shape_token(arena);
    } else {
      const hlo_shape *shape = hlo_shape_array(arena, type->type, type->rank, type->dims);
      st = shape ? hlo_literal_new(arena, shape, &value) : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
      if (!st) st = weft_buffer_to_host(s->out[k], value->data, weft_deadline_after_ms(DEADLINE_MS));
      results[k] = value;
    }
    if (!first) first = st;
    else weft_status_free(st);
  }
  return first;
}

weft_status *cpu_run_parallel(const hlo_instr *call, const hlo_literal *const *operands, weft_arena *arena,
                              const hlo_literal **out)
{
  WEFT_AUTO(weft_platform) platform = NULL;
  WEFT_AUTO(weft_executable) exe = NULL;
  hlo_module *module;
  session s = {0};
  grid g;

  WEFT_TRY(grid_of(call, &g));
  WEFT_TRY(module_of(call->called[0], &module));
  weft_status *st = weft_platform_new(&cpu_platform_ops, &(weft_platform_options){.device_count = g.replicas * g.partitions}, &platform);
  if (st) {
    hlo_module_free(module);
    return st;
  }
  WEFT_TRY(weft_compile(platform, module, &(weft_compile_options){.replica_count = g.replicas, .partition_count = g.partitions}, &exe));
  WEFT_TRY(feed(call, &g, weft_platform_device(platform, 0), arena));
  for (int d = 0; d < g.replicas * g.partitions; d++) weft_device_close_infeed(weft_platform_device(platform, d));
  WEFT_TRY(session_init(&s, exe, arena));
  int count = s.devices * s.outputs;
  if (s.devices * s.params != call->operand_count || hlo_shape_leaf_count(call->shape) != count)
    return WEFT_ERR(INVALID_ARGUMENT, "run_parallel: %d operands for %d devices with %d each, %d results for %d", call->operand_count,
                    s.devices, s.params, hlo_shape_leaf_count(call->shape), count);
  const hlo_literal **results = WEFT_ARENA_ARRAY(arena, const hlo_literal *, count + 1);
  hlo_literal *tuple = WEFT_ARENA_NEW(arena, hlo_literal);
  WEFT_TRY_ALLOC(results && tuple);
  st = session_run(&s, operands, arena, results);
  session_fini(&s);
  if (st) return st;
  *tuple = (hlo_literal){.shape = call->shape, .elements = results};
  *out = hlo_shape_is_tuple(call->shape) ? tuple : results[0];
  return NULL;
}

weft_status *cpu_interpreter_call(void *ctx, const hlo_instr *call, const hlo_literal *const *operands, weft_arena *arena,
                                  const hlo_literal **out)
{
  hlo_literal *nothing;
  hlo_check_rule rule;

  if (cpu_is_run_parallel(call)) return cpu_run_parallel(call, operands, arena, out);
  WEFT_TRY(hlo_check_rule_of(call, &rule));
  WEFT_TRY(hlo_check(&rule, operands[0], operands[1]));
  if (ctx) ++*(int *)ctx;
  WEFT_TRY(hlo_literal_new(arena, call->shape, &nothing));
  *out = nothing;
  return NULL;
}
