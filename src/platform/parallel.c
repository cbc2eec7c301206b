/* platform/parallel.c -- a grid of programs on devices of this process, with their collectives (parallel.h). */
#include <config.h>

#include "platform/parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/check.h"
#include "hlo/grouping.h"
#include "platform/registry.h"
#include "runtime/feed.h"
#include "runtime/platform.h"

enum { MOST_DEVICES = 4096 };
static const int64_t DEADLINE_MS = 600000; /* a limit for programs that wait for each other in vain */

bool plat_is_run_parallel(const hlo_instr *instr)
{
  return instr->op == HLO_CUSTOM_CALL && strcmp(instr->u.custom->target, "interpreter.run_parallel") == 0;
}

typedef struct grid { int replicas, partitions, infeeds; } grid;

static weft_status *grid_of(const hlo_instr *call, grid *g)
{
  const char *config = call->extra ? call->extra->backend_config : NULL;

  if (!config ||
      sscanf(config, "{\"replicas\":%d,\"partitions\":%d,\"infeeds\":%d}", &g->replicas, &g->partitions, &g->infeeds) !=
        3 ||
      g->replicas < 1 || g->partitions < 1 || g->infeeds < 0 || (int64_t)g->replicas * g->partitions > MOST_DEVICES ||
      call->called_count != (int64_t)g->replicas * g->partitions + g->infeeds)
    return WEFT_ERR(INVALID_ARGUMENT, "run_parallel: no grid of programs in %s", config ? config : "no backend_config");
  return NULL;
}

/* Orders the members of groups that span replicas and all partitions. StableHLO lists the members partition by
 * partition, XLA replica by replica. The result has StableHLO's order, as flattened ids. */
static weft_status *order_members(hlo_module *module, const grid *g, hlo_instr *instr)
{
  hlo_collective_attrs *c = weft_arena_memdup(&module->arena, instr->u.collective, sizeof *c);
  int groups, n;

  WEFT_TRY_ALLOC(c);
  if (c->groups.form != HLO_GROUPS_LIST) return NULL;
  groups = WEFT_MAX(c->groups.group_count, 1);
  hlo_ints *lists = WEFT_ARENA_ARRAY(&module->arena, hlo_ints, groups);
  WEFT_TRY_ALLOC(lists);
  for (int i = 0; i < groups; i++) {
    hlo_ints replicas = c->groups.group_count ? c->groups.groups[i] : (hlo_ints){g->replicas, NULL};
    int64_t *ids = WEFT_ARENA_ARRAY(&module->arena, int64_t, (int64_t)replicas.count * g->partitions);
    WEFT_TRY_ALLOC(ids);
    for (int r = 0; replicas.v && r < replicas.count; r++)
      if (replicas.v[r] < 0 || replicas.v[r] >= g->replicas)
        return WEFT_ERR(INVALID_ARGUMENT, "run_parallel: %s names replica %lld of %d", instr->name,
                        (long long)replicas.v[r], g->replicas);
    n = 0;
    for (int p = 0; p < g->partitions; p++)
      for (int r = 0; r < replicas.count; r++) ids[n++] = (replicas.v ? replicas.v[r] : r) * g->partitions + p;
    lists[i] = (hlo_ints){n, ids};
  }
  c->groups = (hlo_replica_groups){.form = HLO_GROUPS_LIST, .group_count = groups, .groups = lists};
  c->use_global_device_ids = true;
  instr->u.collective = c;
  return NULL;
}

static weft_status *order_all_members(hlo_module *module, const grid *g)
{
  hlo_group_mode mode;

  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (!hlo_opcode_is_collective(instr->op)) continue;
      WEFT_TRY(hlo_group_mode_of(instr, &mode));
      if (mode == HLO_CROSS_REPLICA_AND_PARTITION) WEFT_TRY(order_members(module, g, instr));
    }
  return NULL;
}

/* Makes a module of its own whose entry is `comp`. */
static weft_status *module_of(const hlo_computation *comp, const grid *g, hlo_module **out_module)
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
  WEFT_TRY(order_all_members(module, g));
  *out_module = WEFT_MOVE(module);
  return NULL;
}

/* Evaluates the infeed functions and puts their results into the infeed queue of `device`. */
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

/* One program and the devices that run it: all devices, or one device if the programs differ. */
typedef struct session {
  weft_executable *exe;
  int devices, params, outputs;
  weft_buffer **in, **out;         /* [device * params + leaf], [device * outputs + leaf] */
  weft_buffer *const **ins;
  weft_buffer ***outs;
} session;

static weft_status *session_init(session *s, weft_arena *arena)
{
  s->devices = weft_executable_device_count(s->exe);
  s->params = weft_executable_param_count(s->exe);
  s->outputs = weft_executable_output_count(s->exe);
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
  weft_executable_release(s->exe);
}

static weft_status *session_launch(session *s, const hlo_literal *const *operands)
{
  for (int d = 0; d < s->devices; d++)
    for (int i = 0; i < s->params; i++)
      WEFT_TRY(weft_buffer_from_host(weft_executable_device(s->exe, d), weft_executable_param_type(s->exe, i),
                                     operands[d * s->params + i]->data, &s->in[d * s->params + i]));
  return weft_executable_launch(s->exe, &(weft_launch){.inputs = s->ins, .outputs = s->outs});
}

/* Output `k` as a literal. */
static weft_status *session_fetch(session *s, int k, weft_arena *arena, const hlo_literal **out)
{
  const weft_array_type *type = weft_executable_output_type(s->exe, k % s->outputs);
  hlo_literal *value = WEFT_ARENA_NEW(arena, hlo_literal);

  *out = value;
  WEFT_TRY_ALLOC(value);
  if (type->type == WEFT_TOKEN) {
    value->shape = hlo_shape_token(arena);
    return weft_event_await(weft_buffer_defined(s->out[k]), weft_deadline_after_ms(DEADLINE_MS));
  }
  const hlo_shape *shape = hlo_shape_array(arena, type->type, type->rank, type->dims);
  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(hlo_literal_new(arena, shape, &value));
  *out = value;
  return weft_buffer_to_host(s->out[k], value->data, weft_deadline_after_ms(DEADLINE_MS));
}

static bool has_peers(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      if (hlo_opcode_is_collective(instr->op) || instr->op == HLO_REPLICA_ID || instr->op == HLO_PARTITION_ID)
        return true;
  return false;
}

/* Compiles the program of device `device`; -1: the one program of all devices. */
static weft_status *compile(weft_platform *platform, const hlo_instr *call, const grid *g, int device,
                            weft_executable **out)
{
  hlo_module *module;
  weft_compile_options options = {.replica_count = g->replicas, .partition_count = g->partitions};
  int64_t id;

  WEFT_TRY(module_of(call->called[WEFT_MAX(device, 0)], g, &module));
  if (device >= 0) {
    if (has_peers(module)) {
      hlo_module_free(module);
      return WEFT_ERR(UNIMPLEMENTED, "run_parallel: \"%s\" has collectives, and other devices run other programs",
                      call->called[device]->name);
    }
    id = weft_device_id(weft_platform_device(platform, device));
    options = (weft_compile_options){.replica_count = 1, .partition_count = 1, .device_assignment = &id};
  }
  return weft_compile(platform, module, &options, out);
}

static bool all_the_same(const hlo_instr *call, int devices)
{
  for (int d = 1; d < devices; d++)
    if (call->called[d] != call->called[0]) return false;
  return true;
}

static weft_status *run_sessions(weft_platform *platform, session *sessions, int count, const hlo_instr *call,
                                 const hlo_literal *const *operands, weft_arena *arena, const hlo_literal **results)
{
  weft_status *first = NULL;
  int params = 0, outputs = 0, launched = 0;

  for (int i = 0; i < count; i++) {
    WEFT_TRY(session_init(&sessions[i], arena));
    params += sessions[i].devices * sessions[i].params;
    outputs += sessions[i].devices * sessions[i].outputs;
  }
  if (params != call->operand_count || hlo_shape_leaf_count(call->shape) != outputs)
    return WEFT_ERR(INVALID_ARGUMENT, "run_parallel: %d operands for programs with %d, %d results for %d",
                    call->operand_count, params, hlo_shape_leaf_count(call->shape), outputs);
  for (params = 0; launched < count && !first; launched++) {
    first = session_launch(&sessions[launched], operands + params);
    params += sessions[launched].devices * sessions[launched].params;
  }
  if (first) rt_channels_close(platform), launched--;
  outputs = 0;
  for (int i = 0; i < launched; i++)
    for (int k = 0; k < sessions[i].devices * sessions[i].outputs; k++) {
      weft_status *st = session_fetch(&sessions[i], k, arena, &results[outputs++]);
      if (st) rt_channels_close(platform); /* other programs may wait for data that does not come */
      if (!first) first = st;
      else weft_status_free(st);
    }
  return first;
}

weft_status *plat_run_parallel(const hlo_instr *call, const hlo_literal *const *operands, weft_arena *arena,
                               const hlo_literal **out)
{
  WEFT_AUTO(weft_platform) platform = NULL;
  weft_status *st = NULL;
  grid g;

  WEFT_TRY(grid_of(call, &g));
  int devices = g.replicas * g.partitions, count = all_the_same(call, devices) ? 1 : devices;
  const hlo_literal **results = WEFT_ARENA_ARRAY(arena, const hlo_literal *, hlo_shape_leaf_count(call->shape) + 1);
  session *sessions = WEFT_ARENA_ARRAY(arena, session, count);
  hlo_literal *tuple = WEFT_ARENA_NEW(arena, hlo_literal);
  WEFT_TRY_ALLOC(results && sessions && tuple);
  WEFT_TRY(plat_new(&(weft_platform_options){.device_count = devices, .host_loops_back = true}, &platform));
  WEFT_TRY(feed(call, &g, weft_platform_device(platform, 0), arena));
  for (int d = 0; d < devices; d++) weft_device_close_infeed(weft_platform_device(platform, d));
  for (int i = 0; i < count && !st; i++) st = compile(platform, call, &g, count > 1 ? i : -1, &sessions[i].exe);
  if (!st) st = run_sessions(platform, sessions, count, call, operands, arena, results);
  for (int i = 0; i < count; i++) session_fini(&sessions[i]);
  if (st) return st;
  *tuple = (hlo_literal){.shape = call->shape, .elements = results};
  *out = hlo_shape_is_tuple(call->shape) ? tuple : results[0];
  return NULL;
}

weft_status *plat_interpreter_call(void *ctx, const hlo_instr *call, const hlo_literal *const *operands,
                                   weft_arena *arena, const hlo_literal **out)
{
  hlo_literal *nothing;
  hlo_check_rule rule;

  if (plat_is_run_parallel(call)) return plat_run_parallel(call, operands, arena, out);
  WEFT_TRY(hlo_check_rule_of(call, &rule));
  WEFT_TRY(hlo_check(&rule, operands[0], operands[1]));
  if (ctx) ++*(int *)ctx;
  WEFT_TRY(hlo_literal_new(arena, call->shape, &nothing));
  *out = nothing;
  return NULL;
}
