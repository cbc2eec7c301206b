/* runtime/executable.c -- Executables and launches. A launch prepares one *run* for each device, then puts the runs
 * into the devices' queues. A run waits for its inputs, then for its turn; it binds memory, runs the program's
 * frame, and fills the outputs.
 *
 *   prepared -> submitted (device->mu) -> started: one at a time on a device
 *            -> ended: outputs filled, `done` set, recycled
 *
 * A device with streams has one more state. When the frame is done, the run's work is on the compute stream: outputs
 * are filled and *recorded*, and the next run starts. The run ends when the stream has done that work.
 *
 *   started -> queued: several on a device -> ended */
#include <config.h>

#include "runtime/executable.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/options.h"
#include "collective/settings.h"
#include "runtime/constants.h"
#include "runtime/runtime_internal.h"
#include "runtime/trace.h"

enum {
  INLINE_NS = 30000,           /* programs estimated to take less run on the launching thread if they can start now */
  /* A launch that finds more than MOST_QUEUED runs of its device not ended waits until at most ROOMY are left
   * (XLA:CPU: 32). */
  MOST_QUEUED = 64, ROOMY = 32
};
/* After PATIENCE_NS the launch is queued anyway: the queued runs may depend on work that this thread has yet to
 * launch. */
#define PATIENCE_NS (10 * WEFT_NS_PER_S)

struct weft_run {
  rt_job job;               /* first: a worker starts the run */
  weft_run *next;           /* in a queue, or in the executable's free list */
  weft_executable *exe;     /* retained while in flight */
  weft_device *device;
  int index;                /* of device in exe->devices */
  rt_run_info info;
  rt_frame *frame;
  /* number of inputs that cannot be used yet, plus one for the launch; once queued: of inputs not defined yet, plus
   * one */
  atomic_int waiting;
  weft_event *done;         /* also the outputs' definition */
  weft_event_waiter *waiters;   /* by parameter */
  weft_buffer **inputs;         /* by parameter: in use */
  weft_storage **input_memory;  /* by parameter: while running */
  bool *donated;                /* by parameter */
  weft_buffer **outputs;        /* by output */
  weft_storage **output_memory; /* by output */
  void **base;              /* by allocation */
  rt_packed **forms;        /* by slot: packed forms that the run reads */
  rt_form *packed;          /* by slot: their bytes */
  void *temp, *collective;  /* the arenas */
  struct rt_hold *hold;     /* cliques, or NULL; released at the end */
  weft_event_waiter hold_waiter;
  weft_comm **comms;        /* by grouping */
  uint64_t *comm_launches;  /* by grouping */
  bool bound;               /* the run holds `comms`, and has not aborted them */
  rt_definition *definition;    /* of the outputs, on a device with streams; else NULL */
  weft_status *error;           /* once queued: the error with which the run will fail, if one is known */
  bool inputs_given_up;         /* once queued: inputs[] are kept for their errors only */
  rt_after after;               /* calls work_done when the compute stream has done the run's work */
  bool poisoned;            /* under device->mu: `done` is an error already */
};

/* The executable's first launch over a communicator; its launches over it are numbered from there. A process that
 * was restarted, or that met an error before it launched, numbers differently from its peers, and all get a new
 * communicator. */
typedef struct first_launch {
  uint64_t comm_serial;
  int64_t launch_id;
} first_launch;

struct weft_executable {
  atomic_int refs;
  int64_t id;               /* 1, 2, ... in this process */
  weft_platform *platform;
  rt_compiled parts;
  int param_count, output_count, device_count;
  weft_array_type *params, *outputs; /* types */
  int64_t *param_bytes;
  int *output_param;        /* by output: the parameter whose memory it takes over, or -1 */
  int64_t replica_count, partition_count;
  weft_device **devices;    /* local ones, by replica then partition */
  void ***constants;        /* by local device: rt_constants_upload */
  bool packs;               /* the program can read packed forms of its operands, and the platform makes such */
  rt_packed_set packed_constants;
  int64_t *places;          /* replica * partition_count + partition of each */
  bool runs_inline;
  bool no_excess_precision; /* xla_allow_excess_precision=false when the program was compiled */
  bool logs;                /* WEFT_LOG asks for messages about its launches */
  bool waits_on_host;       /* runs start when their inputs are defined, not only recorded: see rt_program_asks_host */
  int64_t collective_timeout_ns, collective_warn_ns; /* 0: the settings */
  int64_t *global_ids;      /* by place: the global id of the device there */
  int request_count;        /* cliques with a local device: one for each group of each grouping */
  coll_clique_request *requests;
  int division_count;       /* of communicators of these cliques into others of them */
  coll_clique_division *divisions;
  int *request_of;          /* by local device, then grouping: its clique; -1: none */
  weft_arena arena;
  weft_mutex mu;
  weft_run *free_runs WEFT_GUARDED_BY(mu);
  first_launch *first_launches WEFT_GUARDED_BY(mu); /* by local device, then grouping */
};

/* ---- making ---------------------------------------------------------------------------------------------------- */

static weft_status *set_type(weft_array_type *type, const hlo_shape *shape)
{
  *type = (weft_array_type){.type = hlo_shape_is_array(shape) ? shape->type : WEFT_TOKEN};
  if (!hlo_shape_is_array(shape)) return NULL;
  type->rank = shape->rank;
  for (int i = 0; i < shape->rank; i++) type->dims[i] = shape->dims[i];
  return NULL;
}

/* Clients see logical shapes: those of the entry layout, which the pass normalize-layouts has kept. */
static const hlo_shape *param_shape(const hlo_module *module, int number)
{
  return module->has_entry_layout && module->entry_param_shapes ? module->entry_param_shapes[number]
                                                                : hlo_parameter(module->entry, number)->shape;
}

static weft_status *fill_types(weft_executable *exe)
{
  const hlo_module *module = exe->parts.module;
  const buf_plan *plan = exe->parts.plan;
  const hlo_shape *result = module->has_entry_layout && module->entry_result_shape ? module->entry_result_shape
                                                                                   : module->entry->root->shape;
  int leaf = 0;

  exe->param_count = buf_plan_param_count(plan);
  exe->output_count = buf_plan_output_count(plan);
  exe->params = WEFT_ARENA_ARRAY(&exe->arena, weft_array_type, exe->param_count);
  exe->param_bytes = WEFT_ARENA_ARRAY(&exe->arena, int64_t, exe->param_count);
  exe->outputs = WEFT_ARENA_ARRAY(&exe->arena, weft_array_type, exe->output_count);
  exe->output_param = WEFT_ARENA_ARRAY(&exe->arena, int, exe->output_count);
  if (!exe->params || !exe->param_bytes || !exe->outputs || !exe->output_param)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int p = 0; p < module->entry->param_count; p++) {
    const hlo_shape *shape = param_shape(module, p);
    for (int k = 0; k < hlo_shape_leaf_count(shape); k++, leaf++) {
      WEFT_TRY(set_type(&exe->params[leaf], hlo_shape_leaf(shape, k)));
      exe->param_bytes[leaf] = weft_array_bytes(&exe->params[leaf]);
    }
  }
  for (int o = 0; o < exe->output_count; o++) {
    int alloc = buf_plan_output_alloc(plan, o);
    WEFT_TRY(set_type(&exe->outputs[o], hlo_shape_leaf(result, o)));
    exe->output_param[o] =
      alloc >= 0 && buf_plan_alloc(plan, alloc)->kind == BUF_PARAMETER ? buf_plan_alloc(plan, alloc)->param_leaf : -1;
  }
  return NULL;
}

static weft_status *fill_devices(weft_executable *exe, const weft_compile_options *options)
{
  const hlo_module *module = exe->parts.module;
  weft_platform *platform = exe->platform;
  int64_t total;

  exe->replica_count = options->replica_count > 0 ? options->replica_count : WEFT_MAX(module->replica_count, 1);
  exe->partition_count = options->partition_count > 0 ? options->partition_count : WEFT_MAX(module->num_partitions, 1);
  if (__builtin_mul_overflow(exe->replica_count, exe->partition_count, &total) || total > 1 << 24)
    return WEFT_ERR(INVALID_ARGUMENT, "%lld replicas of %lld partitions are too many", (long long)exe->replica_count,
                    (long long)exe->partition_count);
  if (!options->device_assignment && total > platform->device_count)
    return WEFT_ERR(INVALID_ARGUMENT, "the program wants %lld devices, this process has %d", (long long)total,
                    platform->device_count);
  exe->global_ids = WEFT_ARENA_ARRAY(&exe->arena, int64_t, total);
  if (!exe->global_ids) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  exe->devices = WEFT_ARENA_ARRAY(&exe->arena, weft_device *, platform->device_count);
  exe->places = WEFT_ARENA_ARRAY(&exe->arena, int64_t, platform->device_count);
  if (!exe->devices || !exe->places) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int64_t i = 0; i < total; i++) {
    weft_device *device = options->device_assignment
                            ? weft_platform_device_by_id(platform, options->device_assignment[i])
                            : weft_platform_device(platform, (int)i);
    exe->global_ids[i] = options->device_assignment ? options->device_assignment[i] : device->id;
    if (!device) continue;
    for (int d = 0; d < exe->device_count; d++)
      if (exe->devices[d] == device)
        return WEFT_ERR(INVALID_ARGUMENT, "device %lld is assigned twice", (long long)device->id);
    exe->places[exe->device_count] = i;
    exe->devices[exe->device_count++] = device;
  }
  return NULL;
}

static weft_status *upload_constants(weft_executable *exe)
{
  exe->constants = WEFT_ARENA_ARRAY(&exe->arena, void **, exe->device_count);
  WEFT_TRY_ALLOC(exe->constants);
  for (int d = 0; d < exe->device_count; d++)
    WEFT_TRY_NOTE(rt_constants_upload(exe->devices[d], exe->parts.plan, &exe->constants[d]), "constants of \"%s\"",
                  exe->parts.module->name);
  return NULL;
}

/* Lists the cliques that a launch will ask for. */
static weft_status *fill_requests(weft_executable *exe) WEFT_UNSHARED
{
  int groupings = exe->parts.grouping_count;

  exe->request_of = WEFT_ARENA_ARRAY(&exe->arena, int, (int64_t)exe->device_count *groupings);
  exe->requests = WEFT_ARENA_ARRAY(&exe->arena, coll_clique_request, (int64_t)exe->device_count * groupings);
  exe->first_launches = WEFT_ARENA_ARRAY(&exe->arena, first_launch, (int64_t)exe->device_count * groupings);
  if (!exe->request_of || !exe->requests || !exe->first_launches) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < exe->device_count * groupings; i++) exe->request_of[i] = -1;
  for (int g = 0; g < groupings; g++)
    for (int d = 0; d < exe->device_count; d++) {
      const hlo_grouping *grouping = &exe->parts.groupings[g];
      int group = grouping->group_of[exe->places[d]], count = 0;
      if (group < 0 || exe->request_of[d * groupings + g] >= 0) continue;
      hlo_ints members = grouping->groups[group];
      int64_t *ids = WEFT_ARENA_ARRAY(&exe->arena, int64_t, members.count);
      int *ranks = WEFT_ARENA_ARRAY(&exe->arena, int, members.count);
      if (!ids || !ranks) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
      for (int i = 0; i < members.count; i++) {
        ids[i] = exe->global_ids[members.v[i]];
        if (weft_platform_device_by_id(exe->platform, ids[i])) ranks[count++] = i;
      }
      uint64_t purpose = grouping->by_host ? COLL_FOR_HOST_COLLECTIVES : COLL_FOR_COLLECTIVES;
      int request = 0; /* another grouping may have the same group */
      while (request < exe->request_count &&
             (exe->requests[request].key.size != members.count || exe->requests[request].key.purpose != purpose ||
              memcmp(exe->requests[request].key.devices, ids, (size_t)members.count * sizeof *ids) != 0))
        request++;
      for (int other = d; other < exe->device_count; other++)
        if (grouping->group_of[exe->places[other]] == group) exe->request_of[other * groupings + g] = request;
      if (request < exe->request_count) continue;
      exe->requests[exe->request_count++] = (coll_clique_request){
        .key = {.devices = ids, .size = members.count, .purpose = purpose}, .local_ranks = ranks, .local_count = count};
    }
  return NULL;
}

/* Are the groups of `part` parts of the groups of `whole`, so that each rank of these is in one of those? */
static bool is_division(const hlo_grouping *whole, const hlo_grouping *part)
{
  if (whole->by_host || part->by_host || whole->place_count != part->place_count) return false;
  for (int64_t place = 0; place < whole->place_count; place++)
    if ((whole->group_of[place] < 0) != (part->group_of[place] < 0)) return false;
  for (int g = 0; g < part->group_count; g++)
    for (int i = 1; i < part->groups[g].count; i++)
      if (whole->group_of[part->groups[g].v[i]] != whole->group_of[part->groups[g].v[0]]) return false;
  return true;
}

/* The grouping with the fewest groups of which grouping number `part` is a division; -1: there is none.  That one is a
 * division of no other. */
static int find_whole(const weft_executable *exe, int part)
{
  const hlo_grouping *all = exe->parts.groupings;
  int best = -1;

  for (int g = 0; g < exe->parts.grouping_count; g++)
    if (all[g].group_count < (best < 0 ? all[part].group_count : all[best].group_count) &&
        is_division(&all[g], &all[part]))
      best = g;
  return best;
}

/* Adds the division of group `whole_group` of grouping `whole` into groups of grouping `part`. */
static weft_status *add_division(weft_executable *exe, int whole, int whole_group, int part, bool splits)
{
  const hlo_grouping *of = &exe->parts.groupings[whole], *into = &exe->parts.groupings[part];
  int groupings = exe->parts.grouping_count, groups = 0;
  coll_clique_division *division = &exe->divisions[exe->division_count];
  int *parts = WEFT_ARENA_ARRAY(&exe->arena, int, exe->device_count);

  WEFT_TRY_ALLOC(parts);
  *division = (coll_clique_division){.whole = -1, .parts = parts};
  for (int g = 0; g < into->group_count; g++) {
    uint64_t hash = 1;
    if (into->groups[g].count == 0 || of->group_of[into->groups[g].v[0]] != whole_group) continue;
    for (int i = 0; i < into->groups[g].count; i++)
      hash = weft_mix(hash, (uint64_t)exe->global_ids[into->groups[g].v[i]]);
    division->name += hash; /* a sum: the order of the groups does not matter */
    groups++;
  }
  for (int d = 0; d < exe->device_count; d++) {
    if (of->group_of[exe->places[d]] != whole_group) continue;
    int request = exe->request_of[d * groupings + part], known = 0;
    division->whole = exe->request_of[d * groupings + whole];
    while (known < division->part_count && parts[known] != request) known++;
    if (splits && known == division->part_count) parts[division->part_count++] = request;
  }
  exe->division_count += division->whole >= 0 && groups > 1;
  return NULL;
}

/* Lists how communicators of a launch can come about by divisions.  All processes of the program list the same, but for
 * those of groups in which they have no device, and for the parts: none if the program has been compiled so here. */
static weft_status *fill_divisions(weft_executable *exe, bool splits)
{
  int groupings = exe->parts.grouping_count;

  exe->divisions = WEFT_ARENA_ARRAY(&exe->arena, coll_clique_division, (int64_t)exe->device_count * groupings);
  WEFT_TRY_ALLOC(exe->divisions);
  for (int part = 0; part < groupings; part++) {
    int whole = find_whole(exe, part);
    for (int g = 0; whole >= 0 && g < exe->parts.groupings[whole].group_count; g++) {
      bool here = false;
      for (int d = 0; d < exe->device_count; d++) here |= exe->parts.groupings[whole].group_of[exe->places[d]] == g;
      if (here) WEFT_TRY(add_division(exe, whole, g, part, splits));
    }
  }
  return NULL;
}

static void free_parts(rt_compiled *parts)
{
  rt_program_free(parts->program);
  if (parts->step_plans) parts->free_step_plans(parts->step_plans);
  if (parts->code) parts->free_code(parts->code);
  buf_plan_free(parts->plan);
  hlo_module_free(parts->module);
}

static atomic_int_least64_t executables_made;

static weft_status *fill(weft_executable *exe, const weft_compile_options *options)
{
  WEFT_TRY(fill_types(exe));
  WEFT_TRY(fill_devices(exe, options));
  WEFT_TRY(upload_constants(exe));
  WEFT_TRY(fill_requests(exe));
  WEFT_TRY(fill_divisions(exe, !options->no_comm_splitting));
  exe->packs = rt_program_packed_count(exe->parts.program) > 0 && exe->platform->packed_limit > 0 &&
               exe->device_count > 0 && exe->devices[0]->is_host_visible && !exe->devices[0]->queues;
  exe->waits_on_host = rt_program_asks_host(exe->parts.program);
  exe->runs_inline =
    exe->device_count == 1 && exe->parts.grouping_count == 0 &&
    (rt_program_cost_ns(exe->parts.program) < INLINE_NS ||
     (exe->platform->ops->device->stream_create && !exe->waits_on_host)); /* queueing takes little time */
  return NULL;
}

weft_status *rt_executable_finish(weft_platform *platform, rt_compiled *parts, const weft_compile_options *options,
                                  weft_status *st, weft_executable **out_executable)
{
  weft_executable *exe = st ? NULL : calloc(1, sizeof *exe);

  *out_executable = NULL;
  if (!exe) {
    free_parts(parts);
    return st ? st : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  atomic_init(&exe->refs, 1);
  exe->platform = weft_platform_retain(platform);
  exe->parts = *parts;
  weft_arena_init(&exe->arena);
  weft_mutex_init(&exe->mu);
  exe->id = atomic_fetch_add_explicit(&executables_made, 1, memory_order_relaxed) + 1;
  exe->no_excess_precision = options->no_excess_precision;
  exe->logs = weft_log_enabled("rt", WEFT_LOG_DEBUG);
  exe->collective_timeout_ns = options->collective_timeout_ns;
  exe->collective_warn_ns = options->collective_warn_ns;
  st = fill(exe, options);
  if (st) weft_executable_release(exe);
  else *out_executable = exe;
  return st;
}

weft_executable *weft_executable_retain(weft_executable *exe)
{
  atomic_fetch_add_explicit(&exe->refs, 1, memory_order_relaxed);
  return exe;
}

void weft_executable_release(weft_executable *exe) WEFT_UNSHARED
{
  /* acq_rel: the executable's last run ends before it is freed */
  if (!exe || atomic_fetch_sub_explicit(&exe->refs, 1, memory_order_acq_rel) != 1) return;
  weft_platform *platform = exe->platform;
  for (weft_run *run = exe->free_runs, *next; run; run = next) {
    next = run->next;
    free(run);
  }
  for (int d = 0; exe->constants && d < exe->device_count; d++)
    rt_constants_free(exe->devices[d], exe->parts.plan, exe->constants[d]);
  rt_packed_drop(platform, &exe->packed_constants);
  free_parts(&exe->parts);
  weft_mutex_fini(&exe->mu);
  weft_arena_fini(&exe->arena);
  free(exe);
  weft_platform_release(platform);
}

weft_platform *weft_executable_platform(const weft_executable *exe) { return exe->platform; }
const hlo_module *weft_executable_module(const weft_executable *exe) { return exe->parts.module; }
const buf_plan *weft_executable_plan(const weft_executable *exe) { return exe->parts.plan; }
const void *weft_executable_code(const weft_executable *exe) { return exe->parts.code; }

const struct gen_code *weft_executable_kernels(const weft_executable *exe)
{
  return exe->platform->ops->kernels ? exe->platform->ops->kernels(exe) : NULL;
}
bool weft_executable_has_excess_precision(const weft_executable *exe) { return !exe->no_excess_precision; }
int64_t weft_executable_code_bytes(const weft_executable *exe) { return exe->parts.code_bytes; }
int64_t weft_executable_packed_bytes(const weft_executable *exe, bool of_parameters)
{
  int64_t bytes = 0;

  for (int s = 1; exe->packs && s <= rt_program_packed_count(exe->parts.program); s++) {
    const rt_packed_slot *slot = rt_program_packed(exe->parts.program, s);
    if ((buf_plan_alloc(exe->parts.plan, slot->alloc)->kind == BUF_PARAMETER) == of_parameters)
      bytes += slot->packing->bytes;
  }
  return bytes;
}
int weft_executable_param_count(const weft_executable *exe) { return exe->param_count; }
int weft_executable_output_count(const weft_executable *exe) { return exe->output_count; }
const weft_array_type *weft_executable_param_type(const weft_executable *exe, int param) { return &exe->params[param]; }
const weft_array_type *weft_executable_output_type(const weft_executable *exe, int output)
{
  return &exe->outputs[output];
}
bool weft_executable_donates(const weft_executable *exe, int param)
{
  return !buf_plan_alloc(exe->parts.plan, buf_plan_param_alloc(exe->parts.plan, param))->read_only;
}
int64_t weft_executable_replica_count(const weft_executable *exe) { return exe->replica_count; }
int64_t weft_executable_partition_count(const weft_executable *exe) { return exe->partition_count; }
int weft_executable_device_count(const weft_executable *exe) { return exe->device_count; }
weft_device *weft_executable_device(const weft_executable *exe, int index) { return exe->devices[index]; }
void weft_executable_place(const weft_executable *exe, int index, int64_t *out_replica, int64_t *out_partition)
{
  *out_replica = exe->places[index] / exe->partition_count;
  *out_partition = exe->places[index] % exe->partition_count;
}
weft_status *weft_executable_print(const weft_executable *exe, FILE *out)
{
  return rt_program_print(exe->parts.program, out);
}
void weft_executable_each_sequence(const weft_executable *exe, void (*visit)(void *ctx, const weft_sequence *sequence),
                                   void *ctx)
{
  rt_program_each_sequence(exe->parts.program, visit, ctx);
}
void weft_executable_each_step(const weft_executable *exe, void (*visit)(void *ctx, const weft_step *step), void *ctx)
{
  rt_program_each_step(exe->parts.program, visit, ctx);
}

/* ---- runs: memory ---------------------------------------------------------------------------------------------- */

/* A run and all its arrays are one block of memory. */
static weft_status *new_run(weft_executable *exe, weft_run **out_run)
{
  size_t params = (size_t)exe->param_count, outputs = (size_t)exe->output_count;
  size_t allocs = (size_t)buf_plan_alloc_count(exe->parts.plan), groupings = (size_t)exe->parts.grouping_count;
  size_t slots = exe->packs ? (size_t)rt_program_packed_count(exe->parts.program) + 1 : 0;
  char *memory = calloc(1, sizeof(weft_run) + params * (sizeof(weft_event_waiter) + 2 * sizeof(void *) + sizeof(bool)) +
                             (2 * outputs + allocs + slots + groupings) * sizeof(void *) + slots * sizeof(rt_form) +
                             groupings * sizeof(uint64_t) + 64);
  weft_run *run = (weft_run *)memory;

  WEFT_TRY_ALLOC(memory);
  memory += sizeof *run;
  run->waiters = (weft_event_waiter *)memory, memory += params * sizeof *run->waiters;
  run->inputs = (weft_buffer **)memory, memory += params * sizeof *run->inputs;
  run->input_memory = (weft_storage **)memory, memory += params * sizeof *run->input_memory;
  run->outputs = (weft_buffer **)memory, memory += outputs * sizeof *run->outputs;
  run->output_memory = (weft_storage **)memory, memory += outputs * sizeof *run->output_memory;
  run->base = (void **)memory, memory += allocs * sizeof *run->base;
  run->forms = (rt_packed **)memory, memory += slots * sizeof *run->forms;
  run->packed = (rt_form *)memory, memory += slots * sizeof *run->packed;
  run->comms = (weft_comm **)memory, memory += groupings * sizeof *run->comms;
  run->comm_launches = (uint64_t *)memory, memory += groupings * sizeof *run->comm_launches;
  run->donated = (bool *)memory;
  *out_run = run;
  return NULL;
}

static weft_status *acquire_run(weft_executable *exe, weft_run **out_run)
{
  weft_mutex_lock(&exe->mu);
  weft_run *run = exe->free_runs;
  if (run) exe->free_runs = run->next;
  weft_mutex_unlock(&exe->mu);
  if (!run) WEFT_TRY(new_run(exe, &run));
  run->exe = weft_executable_retain(exe);
  *out_run = run;
  return NULL;
}

/* The cliques that the runs of a launch need, held until the last of them has ended. */
struct rt_hold {
  atomic_int refs;
  coll_clique_hold *hold;
  weft_event *ready;
};

static void release_hold(struct rt_hold *hold)
{
  /* acq_rel: all runs have ended before the cliques go to the next in line */
  if (!hold || atomic_fetch_sub_explicit(&hold->refs, 1, memory_order_acq_rel) != 1) return;
  coll_clique_hold_release(hold->hold);
  weft_event_release(hold->ready);
  free(hold);
}

static void release_packed(weft_run *run)
{
  for (int s = 1; s <= rt_program_packed_count(run->exe->parts.program); s++) {
    rt_packed_release(run->exe->platform, run->forms[s]);
    run->forms[s] = NULL;
    run->packed[s] = (rt_form){0};
  }
}

/* Releases what the run still holds, and keeps the run's memory for another run. This may release the last reference to
 * the executable. */
static void recycle_run(weft_run *run)
{
  weft_executable *exe = run->exe;

  if (exe->packs) release_packed(run);
  for (int p = 0; p < exe->param_count; p++) {
    if (run->input_memory[p]) weft_storage_release(run->input_memory[p]);
    run->input_memory[p] = NULL;
    if (!run->inputs[p]) continue;
    if (!run->inputs_given_up) rt_buffer_end_use(run->inputs[p]);
    weft_buffer_release(run->inputs[p]);
    run->inputs[p] = NULL;
  }
  for (int o = 0; o < exe->output_count; o++) {
    if (run->output_memory[o]) weft_storage_release(run->output_memory[o]);
    if (run->outputs[o]) weft_buffer_release(run->outputs[o]);
    run->output_memory[o] = NULL;
    run->outputs[o] = NULL;
  }
  weft_event_release(run->done);
  run->done = NULL;
  if (run->definition) rt_definition_release(WEFT_MOVE(run->definition));
  run->inputs_given_up = false;
  release_hold(run->hold);
  run->hold = NULL;
  weft_mutex_lock(&exe->mu);
  run->next = exe->free_runs;
  exe->free_runs = run;
  weft_mutex_unlock(&exe->mu);
  weft_executable_release(exe);
}

static char nothing[BUF_ALIGN] __attribute__((aligned(64))); /* the address of empty arrays */

enum { NAMED_BUFFERS = 5 };

/* Replaces the instruction of `value` by the one that computes the value: looks into tuples, and into fusions with
 * several results, because a tuple or such a fusion does not name the source line of each value. */
static void find_maker(buf_placed *value)
{
  for (;;) {
    const hlo_instr *instr = value->instr, *source = instr->op == HLO_GET_TUPLE_ELEMENT ? instr->operands[0] : NULL;
    if (instr->op == HLO_TUPLE) {
      int i = 0, count;
      for (; value->leaf >= (count = hlo_shape_leaf_count(instr->operands[i]->shape)); i++) value->leaf -= count;
      value->instr = instr->operands[i];
    } else if (source && source->op == HLO_FUSION && source->called[0]->root->op == HLO_TUPLE) {
      value->instr = source->called[0]->root->operands[instr->u.tuple_index];
    } else {
      return;
    }
  }
}

/* Finds the largest result that has memory of its own, and the instruction that makes it. False if the program has
 * none. */
static bool largest_result(const buf_plan *plan, buf_placed *out)
{
  *out = (buf_placed){0};
  for (int leaf = 0; leaf < buf_plan_output_count(plan); leaf++) {
    int a = buf_plan_output_alloc(plan, leaf);
    const buf_alloc *alloc = a < 0 ? NULL : buf_plan_alloc(plan, a);
    if (!alloc || alloc->kind != BUF_OUTPUT || alloc->bytes <= out->bytes) continue;
    *out = (buf_placed){.instr = buf_plan_module(plan)->entry->root, .leaf = leaf, .bytes = alloc->bytes};
    find_maker(out);
  }
  return out->instr != NULL;
}

/* Adds to `st` (taken) how much memory the program needs, its largest result, and its largest temporaries: results and
 * temporaries that take at least a hundredth of that memory. */
static weft_status *name_memory(weft_status *st, const buf_plan *plan)
{
  const buf_stats *s = buf_plan_stats(plan);
  buf_placed largest[NAMED_BUFFERS], result;
  int count = buf_plan_largest(plan, NAMED_BUFFERS, largest);
  int64_t least = (s->parameter_bytes + s->output_bytes + s->temp_bytes) / 100;
  char text[512];

  st = weft_status_note(st, __FILE__, __LINE__,
                        "program \"%s\" needs %s of parameters, %s of results and %s of temporaries",
                        buf_plan_module(plan)->name, WEFT_BYTES(s->parameter_bytes), WEFT_BYTES(s->output_bytes),
                        WEFT_BYTES(s->temp_bytes));
  if (largest_result(plan, &result) && result.bytes >= least)
    st = weft_status_note(st, __FILE__, __LINE__, "result of %s: %s", WEFT_BYTES(result.bytes),
                          buf_placed_text(&result, text, sizeof text));
  for (int i = 0; i < count && largest[i].bytes >= least; i++)
    st = weft_status_note(st, __FILE__, __LINE__, "temporary of %s: %s", WEFT_BYTES(largest[i].bytes),
                          buf_placed_text(&largest[i], text, sizeof text));
  return st;
}

/* Finds or makes the packed forms of constants and of parameters that are not donated. */
static void bind_packed(weft_run *run)
{
  weft_executable *exe = run->exe;
  const buf_plan *plan = exe->parts.plan;

  for (int s = 1; s <= rt_program_packed_count(exe->parts.program); s++) {
    const rt_packed_slot *slot = rt_program_packed(exe->parts.program, s);
    const buf_alloc *alloc = buf_plan_alloc(plan, slot->alloc);
    bool is_constant = alloc->kind == BUF_CONSTANT;
    if (!is_constant && (run->donated[alloc->param_leaf] || !run->input_memory[alloc->param_leaf])) continue;
    run->forms[s] =
      rt_packed_get(run->device, is_constant ? &exe->packed_constants : &run->input_memory[alloc->param_leaf]->packed,
                    slot->packing, is_constant ? ((int64_t)slot->alloc << 40) + slot->offset : slot->offset,
                    (const char *)rt_frame_arg(run->frame, slot->arg) + slot->in_operand, is_constant);
    run->packed[s] = run->forms[s] ? rt_packed_read(run->forms[s]) : (rt_form){0};
  }
  rt_frame_bind_packed(run->frame, run->packed);
}

/* Copies a parameter that the program writes and that the caller has not donated: the run takes the copy in the
 * parameter's place (taken). Traces and profiles have a step for each copy, all with one name. */
static weft_status *copy_kept_parameter(weft_run *run, weft_storage **param)
{
  weft_device *device = run->device;
  weft_stream *stream = device->streams[WEFT_STREAM_COMPUTE];
  weft_storage *kept = *param, *copy;
  int64_t begin = WEFT_UNLIKELY(rt_trace_on) ? weft_now_ns() : 0;
  weft_status *st = rt_storage_new(device, 0, kept->bytes, RT_COMPUTE, &copy);

  if (WEFT_UNLIKELY(st != NULL)) return name_memory(st, run->exe->parts.plan);
  if (device->is_host_visible && !stream) rt_device_copy_shared(device, copy->data, kept->data, kept->bytes);
  else st = weft_device_copy(device, stream, copy->data, device, kept->data, kept->bytes);
  if (WEFT_UNLIKELY(begin != 0)) {
    rt_trace_step step = {.kind = "copy",
                          .name = "(parameters that the program overwrites and the caller keeps)",
                          .device = run->info.device_ordinal,
                          .program = run->info.program_id,
                          .run = run->info.run_id};
    (device->queues ? rt_trace_queued : rt_trace_done)(&step, begin);
  }
  weft_storage_release(kept);
  *param = copy;
  return st;
}

static int64_t arena_bytes(const weft_run *run, int space, int alloc)
{
  int64_t bytes = buf_plan_alloc(run->exe->parts.plan, alloc)->bytes;

  return space == WEFT_COLLECTIVE_SPACE ? WEFT_ALIGN_UP(bytes, (int64_t)RT_COLLECTIVE_UNIT) : bytes;
}

/* Takes the memory of an arena in a space. */
static weft_status *bind_arena(weft_run *run, int space, int alloc, void **out_memory)
{
  int64_t bytes = arena_bytes(run, space, alloc);

  run->base[alloc] = nothing;
  if (bytes == 0) return NULL;
  weft_status *st = rt_device_take(run->device, space, bytes, RT_COMPUTE, out_memory);
  if (WEFT_UNLIKELY(st != NULL)) return name_memory(st, run->exe->parts.plan);
  run->base[alloc] = *out_memory;
  return NULL;
}

/* Binds the run's memory: inputs (in place, or copied where the program writes into an input that others still use),
 * outputs, the arenas. */
static weft_status *bind(weft_run *run)
{
  weft_executable *exe = run->exe;
  const buf_plan *plan = exe->parts.plan;

  for (int p = 0; p < exe->param_count; p++) {
    bool sole;
    weft_storage **storage = &run->input_memory[p];
    *storage = rt_buffer_take(run->inputs[p], run->donated[p], &sole);
    if (*storage && !sole && exe->param_bytes[p] > 0 && buf_plan_alloc(plan, buf_plan_param_alloc(plan, p))->written)
      WEFT_TRY(copy_kept_parameter(run, storage));
    run->base[buf_plan_param_alloc(plan, p)] = *storage ? (*storage)->data : nothing;
  }
  for (int o = 0; o < exe->output_count; o++) {
    int alloc = buf_plan_output_alloc(plan, o);
    if (alloc < 0) continue;
    if (exe->output_param[o] >= 0) {
      if (run->input_memory[exe->output_param[o]])
        run->output_memory[o] = weft_storage_retain(run->input_memory[exe->output_param[o]]);
      continue;
    }
    weft_status *st =
      rt_storage_new(run->device, 0, buf_plan_alloc(plan, alloc)->bytes, RT_COMPUTE, &run->output_memory[o]);
    if (WEFT_UNLIKELY(st != NULL)) return name_memory(st, plan);
    run->base[alloc] = run->output_memory[o]->data;
  }
  WEFT_TRY(bind_arena(run, 0, buf_plan_temp_alloc(plan), &run->temp));
  WEFT_TRY(bind_arena(run, WEFT_COLLECTIVE_SPACE, buf_plan_collective_alloc(plan), &run->collective));
  WEFT_TRY(rt_frame_acquire(exe->parts.program, &run->frame));
  rt_frame_bind(run->frame, run->base);
  if (exe->constants[run->index]) rt_frame_bind_constants(run->frame, exe->constants[run->index]);
  if (exe->packs) bind_packed(run);
  return NULL;
}

/* ---- runs: their life ------------------------------------------------------------------------------------------ */

static weft_run *take_next(weft_device *device) WEFT_REQUIRES(device->mu);
static void start(weft_run *run);

/* The first error that is known among the inputs: it becomes the error of the outputs. NULL: none is known. */
static inline weft_status *input_error(const weft_run *run)
{
  bool queues = run->device->queues;

  for (int p = 0, count = run->exe->param_count; p < count; p++) {
    const weft_buffer *input = run->inputs[p];
    const weft_status *error = WEFT_UNLIKELY(queues) ? rt_buffer_known_error(input) : weft_event_error(input->defined);
    if (WEFT_UNLIKELY(error != NULL))
      return weft_status_note(weft_status_dup(error), __FILE__, __LINE__, "input %d of \"%s\"", p,
                              run->exe->parts.module->name);
  }
  return NULL;
}

/* Why the run fails, in words for the peers; owned by the caller. The failure of a communicator names its operation and
 * its ranks. It is passed on as it is, so that a failure which goes from communicator to communicator does not grow.
 * Any other failure gets the names of program and device. */
static weft_status *reason_for_peers(const weft_run *run, const weft_status *st)
{
  for (int g = 0; g < run->exe->parts.grouping_count; g++) {
    weft_status *failure = run->comms[g] ? weft_comm_health(run->comms[g]) : NULL;
    if (failure) return failure;
  }
  return weft_status_new(weft_status_code(st), __FILE__, __LINE__, "\"%s\" failed on device %lld: %s",
                         run->exe->parts.module->name, (long long)run->device->id, weft_status_message(st));
}

/* If the run fails in this process before it has taken part in all its collectives, makes it fail on the peers too.
 * Otherwise the collectives of the next launch on this device would meet those of this launch on the peers. */
static void let_peers_know(weft_run *run, const weft_status *st)
{
  const weft_executable *exe = run->exe;

  if (!run->bound || (run->frame && !rt_frame_fell_behind(run->frame))) return;
  run->bound = false;
  weft_status *reason = reason_for_peers(run, st);
  for (int g = 0; g < exe->parts.grouping_count; g++)
    if (run->comms[g]) weft_comm_abort(run->comms[g], weft_status_dup(reason));
  weft_status_free(reason);
}

/* Frees the arenas, and gives the outputs their bytes unless the run has failed (`st`, borrowed). */
static inline void hand_over_memory(weft_run *run, const weft_status *st)
{
  const buf_plan *plan = run->exe->parts.plan;

  if (run->temp) rt_device_give(run->device, 0, run->temp, arena_bytes(run, 0, buf_plan_temp_alloc(plan)));
  if (WEFT_UNLIKELY(run->collective != NULL))
    rt_device_give(run->device, WEFT_COLLECTIVE_SPACE, run->collective,
                   arena_bytes(run, WEFT_COLLECTIVE_SPACE, buf_plan_collective_alloc(plan)));
  run->temp = run->collective = NULL;
  for (int o = 0; !st && o < run->exe->output_count; o++)
    if (run->output_memory[o]) {
      rt_buffer_fill(run->outputs[o], run->output_memory[o]);
      run->output_memory[o] = NULL;
    }
}

/* Ends the run (takes `st`): hands out the results, then lets the next run start. A thread that waits for the run
 * may release the platform meanwhile. The device stays, since destroying a platform first joins its workers, and a
 * launching thread holds the platform. */
/* Writes what launches read without the lock. */
static inline void publish_under_way(weft_device *device) WEFT_REQUIRES(device->mu)
{
  atomic_store_explicit(&device->under_way, device->submitted - device->ended, memory_order_relaxed);
}

static void end_run(weft_run *run, weft_status *st)
{
  weft_device *device = run->device;
  weft_event *done = weft_event_retain(run->done);
  weft_run *next;

  if (st) let_peers_know(run, st);
  hand_over_memory(run, st);
  if (run->frame) rt_frame_release(run->frame);
  run->frame = NULL;
  recycle_run(run); /* before `done` is set: a thread that waits for it finds the inputs free again */
  weft_event_set(done, st);
  weft_event_release(done);
  weft_mutex_lock(&device->mu);
  (*(device->queues ? &device->queued : &device->running))--;
  device->ended++;
  publish_under_way(device);
  if (device->waiting_for_end > 0) weft_cond_broadcast(&device->changed);
  next = take_next(device);
  weft_mutex_unlock(&device->mu);
  start(next);
}

/* ---- runs: queued on a stream ---------------------------------------------------------------------------------- */

/* Adds the names of the program and the device to an error of queued work (taken), which has neither. NULL for NULL. */
static weft_status *name_program(const weft_run *run, weft_status *st)
{
  return weft_status_note(st, __FILE__, __LINE__, "program \"%s\" on device %lld", run->exe->parts.module->name,
                          (long long)run->device->id);
}

/* Ends a run whose work has been done and whose inputs' events are all ready. */
static void conclude(weft_run *run)
{
  weft_status *st = WEFT_MOVE(run->error);
  weft_status *fault = run->frame ? rt_frame_take_fault(run->frame) : NULL;

  if (st) weft_status_free(fault);
  else st = fault ? name_program(run, fault) : input_error(run);
  end_run(run, st);
}

static void conclude_job(rt_job *job) { conclude((weft_run *)job); }

/* An input's event is ready. The run is concluded in a job of its own: in a long chain of runs, each of which concludes
 * the next, calls would nest ever deeper. */
static void input_settled(void *ctx, const weft_status *error)
{
  weft_run *run = ctx;

  (void)error; /* conclude looks for errors */
  /* acq_rel: all inputs are settled before the run is concluded */
  if (atomic_fetch_sub_explicit(&run->waiting, 1, memory_order_acq_rel) == 1)
    rt_pool_offer(run->device->platform->pool, &run->job, 1);
}

/* The stream has done the run's work (takes `error`). Inputs may still become errors: the run ends when the events of
 * all inputs are ready. */
static void work_done(void *ctx, weft_status *error)
{
  weft_run *run = ctx;

  if (run->error) weft_status_free(error);
  else run->error = name_program(run, error);
  run->job = (rt_job){.run = conclude_job, .node = rt_device_near(run->device)};
  atomic_store_explicit(&run->waiting, 1, memory_order_relaxed);
  for (int p = 0; p < run->exe->param_count; p++) {
    if (weft_event_is_ready(weft_buffer_defined(run->inputs[p]))) continue;
    atomic_fetch_add_explicit(&run->waiting, 1, memory_order_relaxed);
    weft_event_on_ready_slot(weft_buffer_defined(run->inputs[p]), &run->waiters[p], input_settled, run);
  }
  if (atomic_fetch_sub_explicit(&run->waiting, 1, memory_order_acq_rel) == 1) conclude(run);
}

/* Releases the inputs early: work that uses their memory next is queued behind this run. If an input is a view of
 * somebody else's memory, all inputs stay until the stream has done the run's work. */
static void give_up_inputs(weft_run *run)
{
  for (int p = 0; p < run->exe->param_count; p++)
    if (rt_buffer_is_view(run->inputs[p])) return;
  for (int p = 0; p < run->exe->param_count; p++) {
    if (run->input_memory[p]) weft_storage_release(WEFT_MOVE(run->input_memory[p]));
    rt_buffer_end_use(run->inputs[p]);
  }
  run->inputs_given_up = true;
}

/* The run's work on the host has ended; its other work is on the stream. `st` (taken): the error with which the run
 * will fail, or NULL. */
static void leave_queued(weft_run *run, weft_status *st)
{
  weft_device *device = run->device;
  weft_stream *stream = device->streams[WEFT_STREAM_COMPUTE];
  weft_run *next;

  if (st) let_peers_know(run, st);
  run->error = st;
  /* recorded first: memory that is freed below is in use until this point */
  rt_definition_record(run->definition, device, stream);
  hand_over_memory(run, st);
  give_up_inputs(run);
  rt_definition_publish(run->definition, weft_status_dup(st));
  weft_mutex_lock(&device->mu);
  device->running--;
  device->queued++;
  next = take_next(device);
  weft_mutex_unlock(&device->mu);
  start(next);
  rt_after_stream(device, stream, &run->after, work_done, run);
}

static void program_done(void *arg, weft_status *st)
{
  weft_run *run = arg;

  if (WEFT_UNLIKELY(run->exe->logs))
    weft_log("rt", WEFT_LOG_DEBUG, "\"%s\" on device %lld: %s", run->exe->parts.module->name,
             (long long)run->device->id,
             st                    ? weft_status_message(st)
             : run->device->queues ? "queued"
                                   : "ended");
  if (WEFT_UNLIKELY(run->device->queues)) leave_queued(run, name_program(run, st));
  else end_run(run, st);
}

/* Has the compute stream wait for the points that define the inputs. */
static weft_status *wait_for_definitions(weft_run *run)
{
  weft_stream *stream = run->device->streams[WEFT_STREAM_COMPUTE];

  for (int p = 0; p < run->exe->param_count; p++)
    if (run->inputs[p]->definition) WEFT_TRY(rt_definition_wait(run->inputs[p]->definition, run->device, stream));
  return NULL;
}

/* The number of this launch over the communicator of a grouping. Counts from 1, modulo 2^32 as JAX's launch ids
 * wrap; never 0. */
static uint64_t number_of_launch(weft_run *run, int grouping)
{
  weft_executable *exe = run->exe;
  uint64_t serial = weft_comm_serial(run->comms[grouping]);
  int64_t first_id;

  weft_mutex_lock(&exe->mu);
  first_launch *first = &exe->first_launches[run->index * exe->parts.grouping_count + grouping];
  if (first->comm_serial != serial) *first = (first_launch){serial, run->info.launch_id};
  first_id = first->launch_id;
  weft_mutex_unlock(&exe->mu);
  return 1 + (uint32_t)((uint64_t)run->info.launch_id - (uint64_t)first_id);
}

/* The communicators of this run's device in the cliques that the launch holds. */
static weft_status *bind_comms(weft_run *run)
{
  const weft_executable *exe = run->exe;
  int groupings = exe->parts.grouping_count;

  if (!run->hold) return NULL;
  const weft_status *error = weft_event_error(run->hold->ready);
  if (error)
    return weft_status_note(weft_status_dup(error), __FILE__, __LINE__, "cliques of \"%s\"", exe->parts.module->name);
  for (int g = 0; g < groupings; g++) {
    int request = exe->request_of[run->index * groupings + g];
    run->comms[g] = NULL;
    if (request < 0) continue;
    run->comms[g] =
      coll_clique_hold_comm(run->hold->hold, request, exe->parts.groupings[g].rank_of[exe->places[run->index]]);
    run->comm_launches[g] = number_of_launch(run, g);
  }
  run->bound = true;
  return NULL;
}

/* Starts a run whose turn it is, on a worker or on the launching thread. */
static void start_run(weft_run *run)
{
  weft_status *st = run->poisoned ? WEFT_ERR(CANCELLED, "poisoned") : input_error(run); /* `done` has the error */
  /* needed also if `st` is set: let_peers_know uses the communicators */
  weft_status *unbound = bind_comms(run);

  if (st) weft_status_free(unbound);
  else st = unbound;
  if (!st && WEFT_UNLIKELY(run->device->queues)) st = wait_for_definitions(run);
  if (!st) st = bind(run);
  if (!st && !rt_frame_run(run->frame, run->exe->platform->pool, &run->info, program_done, run, &st)) return;
  program_done(run, st);
}

static void start_job(rt_job *job) { start_run((weft_run *)job); }

/* True if more than `most` runs of the device have not ended, and waiting makes them fewer: a run is running that is
 * not inside a host callback, or a stream has work to do. */
static bool is_crowded(const weft_device *device, int most) WEFT_REQUIRES(device->mu)
{
  return device->submitted - device->ended > most && (device->running > device->callbacks || device->queued > 0);
}

/* Takes the head of the queue if its inputs are there and no run is running outside a host callback; it counts as
 * running now. NULL: no run can start. */
static weft_run *take_next(weft_device *device) WEFT_REQUIRES(device->mu)
{
  weft_run *run = device->first;

  if (!run || device->running > device->callbacks || atomic_load_explicit(&run->waiting, memory_order_acquire) != 0)
    run = NULL;
  if (run) {
    device->first = run->next;
    if (!device->first) device->last = NULL;
    device->running++;
  }
  if (device->waiting_for_room && !is_crowded(device, ROOMY)) weft_cond_broadcast(&device->room);
  return run;
}

static void start(weft_run *run)
{
  if (run) rt_pool_offer(run->device->platform->pool, &run->job, 1);
}

static void pump(weft_device *device)
{
  weft_mutex_lock(&device->mu);
  weft_run *next = take_next(device);
  weft_mutex_unlock(&device->mu);
  start(next);
}

static void input_usable(void *ctx, const weft_status *error)
{
  weft_run *run = ctx;
  weft_device *device = run->device;
  bool worker = rt_pool_is_worker(device->platform->pool); /* a worker need not hold the platform: see end_run */
  weft_platform *platform = worker ? NULL : weft_platform_retain(device->platform);

  (void)error; /* the run looks at the error when it starts */
  /* acq_rel: pairs with pump; the run may start, and end, as soon as this is 0 */
  if (atomic_fetch_sub_explicit(&run->waiting, 1, memory_order_acq_rel) == 1) pump(device);
  weft_platform_release(platform);
}

/* Puts the run into its device's queue. If its inputs are there and nothing is before it, a short program runs at
 * once on this thread. */
static void submit(weft_run *run)
{
  weft_device *device = run->device;
  weft_executable *exe = run->exe;
  bool here;

  run->next = NULL;
  weft_mutex_lock(&device->mu);
  device->submitted++;
  publish_under_way(device);
  here = exe->runs_inline && !device->first && device->running <= device->callbacks &&
         atomic_load_explicit(&run->waiting, memory_order_acquire) == 1;
  if (here) {
    device->running++;
  } else {
    *(device->last ? &device->last->next : &device->first) = run;
    device->last = run;
  }
  weft_mutex_unlock(&device->mu);
  if (here) {
    bool was = weft_thread_flush_denormals(device->platform->flush_denormals); /* the workers set this mode too */
    start_run(run);
    weft_thread_flush_denormals(was);
  } else if (atomic_fetch_sub_explicit(&run->waiting, 1, memory_order_acq_rel) == 1) pump(device);
}

/* ---- launching ------------------------------------------------------------------------------------------------- */

static weft_status *check_inputs(const weft_executable *exe, int device, const weft_launch *launch)
{
  for (int p = 0; p < exe->param_count; p++) {
    const weft_buffer *buffer = launch->inputs[device][p];
    if (!buffer) return WEFT_ERR(INVALID_ARGUMENT, "input %d is missing", p);
    if (buffer->device != exe->devices[device])
      return WEFT_ERR(INVALID_ARGUMENT, "input %d is on device %lld, the program runs on %lld", p,
                      (long long)buffer->device->id, (long long)exe->devices[device]->id);
    if (buffer->bytes != exe->param_bytes[p] && exe->params[p].type != WEFT_TOKEN)
      return WEFT_ERR(INVALID_ARGUMENT, "input %d has %lld bytes, the program wants %lld", p, (long long)buffer->bytes,
                      (long long)exe->param_bytes[p]);
  }
  return NULL;
}

static int compare_pointers(const void *a, const void *b)
{
  const char *x = *(char *const *)a, *y = *(char *const *)b;
  return (x > y) - (x < y);
}

/* A donated buffer may be given only once. The inputs are sorted in the run's `base`, which has at least one slot
 * for each parameter. */
static weft_status *check_donations(const weft_executable *exe, weft_run *run, weft_buffer *const *inputs)
{
  int donated = 0, at = 0;

  for (int p = 0; p < exe->param_count; p++) donated += run->donated[p];
  if (donated == 0) return NULL;
  for (int p = 0; p < exe->param_count; p++) run->base[at++] = inputs[p];
  qsort(run->base, (size_t)at, sizeof *run->base, compare_pointers);
  for (int p = 0; p < exe->param_count; p++) {
    if (!run->donated[p]) continue;
    int low = 0, high = at;
    while (low < high) {
      int middle = (low + high) / 2;
      if ((char *)run->base[middle] < (char *)inputs[p]) low = middle + 1;
      else high = middle;
    }
    if (low + 1 < at && run->base[low + 1] == inputs[p])
      return WEFT_ERR(INVALID_ARGUMENT, "input %d is donated and given again: f(donate(a), a)", p);
  }
  return NULL;
}

/* Does everything of a launch on one device that can fail. */
static weft_status *prepare(weft_executable *exe, int device, const weft_launch *launch, weft_run *run)
{
  weft_buffer *const *inputs = launch->inputs[device];

  run->device = exe->devices[device];
  run->job = (rt_job){.run = start_job, .node = rt_device_near(run->device)};
  run->info = (rt_run_info){.device = run->device,
                            .device_ordinal = run->device->ordinal,
                            .device_id = run->device->id,
                            .launch_id = launch->launch_id,
                            .program_id = exe->id,
                            .user = launch->user,
                            .lender = launch->lender,
                            .collective_timeout_ns = exe->collective_timeout_ns,
                            .collective_warn_ns = exe->collective_warn_ns,
                            .comms = run->comms,
                            .comm_launches = run->comm_launches};
  run->index = device;
  run->poisoned = run->bound = false;
  weft_executable_place(exe, device, &run->info.replica_id, &run->info.partition_id);
  atomic_store_explicit(&run->waiting, 1, memory_order_relaxed);
  for (int p = 0; p < exe->param_count; p++)
    run->donated[p] = weft_executable_donates(exe, p) && !(launch->keep && launch->keep[p]);
  WEFT_TRY(check_inputs(exe, device, launch));
  WEFT_TRY(check_donations(exe, run, inputs));
  WEFT_TRY(weft_event_new(&run->done));
  if (WEFT_UNLIKELY(run->device->queues)) WEFT_TRY(rt_definition_new(&run->definition));
  for (int o = 0; o < exe->output_count; o++) {
    WEFT_TRY(weft_buffer_new(run->device, &exe->outputs[o], NULL, run->done, &run->outputs[o]));
    if (run->definition) run->outputs[o]->definition = rt_definition_retain(run->definition);
  }
  for (int p = 0; p < exe->param_count; p++) {
    WEFT_TRY_NOTE(rt_buffer_use(inputs[p], false), "input %d", p);
    run->inputs[p] = weft_buffer_retain(inputs[p]);
  }
  return NULL;
}

/* Submits a prepared run, which cannot fail: deletes the donated inputs, returns the outputs and puts the run into its
 * device's queue. */
static void set_off(weft_executable *exe, int device, const weft_launch *launch, struct rt_hold *hold, weft_run *run)
{
  for (int p = 0; p < exe->param_count; p++) {
    weft_event *usable = exe->waits_on_host ? weft_buffer_defined(run->inputs[p]) : rt_buffer_usable(run->inputs[p]);
    if (run->donated[p]) weft_buffer_delete(run->inputs[p]);
    if (weft_event_is_ready(usable)) continue;
    atomic_fetch_add_explicit(&run->waiting, 1, memory_order_relaxed);
    weft_event_on_ready_slot(usable, &run->waiters[p], input_usable, run);
  }
  if (hold) {
    atomic_fetch_add_explicit(&hold->refs, 1, memory_order_relaxed);
    run->hold = hold;
    atomic_fetch_add_explicit(&run->waiting, 1, memory_order_relaxed);
    weft_event_on_ready_slot(hold->ready, &run->hold_waiter, input_usable, run);
  }
  for (int o = 0; o < exe->output_count; o++) launch->outputs[device][o] = weft_buffer_retain(run->outputs[o]);
  if (launch->done) launch->done[device] = weft_event_retain(run->done);
  submit(run);
}

/* Sets the incarnations in the requests' keys: for each device, that of its process. The keys point into one block,
 * which the caller frees. */
static weft_status *set_incarnations(const weft_executable *exe, const weft_launch *launch,
                                     coll_clique_request *requests, uint64_t **out_block)
{
  const uint64_t *known = launch->incarnations ? launch->incarnations : exe->platform->incarnations;
  size_t total = 0, at = 0;

  *out_block = NULL;
  if (!known) return NULL;
  for (int r = 0; r < exe->request_count; r++) total += (size_t)requests[r].key.size;
  *out_block = malloc(total * sizeof **out_block + 1);
  WEFT_TRY_ALLOC(*out_block);
  for (int r = 0; r < exe->request_count; r++) {
    requests[r].key.incarnations = *out_block + at;
    for (int i = 0; i < requests[r].key.size; i++) {
      int64_t process = requests[r].key.devices[i] / WEFT_DEVICES_A_PROCESS;
      if (process < 0 || process >= exe->platform->process_count)
        return WEFT_ERR(INVALID_ARGUMENT, "device %lld is of no known process", (long long)requests[r].key.devices[i]);
      (*out_block)[at++] = known[process];
    }
  }
  return NULL;
}

/* Enough time for the rendezvous, and for each run that is still before this one. At the first launch, processes are
 * late by the time they take to start and compile; connect_ns allows for that, unless the program has a shorter
 * limit for all its collectives. */
static weft_deadline hold_deadline(const weft_executable *exe)
{
  const coll_settings *settings = coll_settings_get();
  int64_t own_ns = exe->collective_timeout_ns, timeout_ns = own_ns ? own_ns : settings->timeout_ns;
  int64_t connect_ns = own_ns ? WEFT_MIN(own_ns, settings->connect_ns) : settings->connect_ns, before = 0, ns;

  if (timeout_ns <= 0 || settings->connect_ns <= 0) return WEFT_NO_DEADLINE; /* the user has set no time limit */
  for (int d = 0; d < exe->device_count; d++) {
    weft_mutex_lock(&exe->devices[d]->mu);
    before = WEFT_MAX(before, exe->devices[d]->submitted - exe->devices[d]->ended);
    weft_mutex_unlock(&exe->devices[d]->mu);
  }
  if (__builtin_mul_overflow(before, timeout_ns, &ns) || __builtin_add_overflow(ns, connect_ns, &ns))
    return WEFT_NO_DEADLINE;
  return weft_deadline_after_ns(ns);
}

/* Asks for the cliques of a launch. Nothing blocks: the runs wait for the hold as they do for an input. *out_hold is
 * NULL if there are no cliques. */
static weft_status *acquire_hold(weft_executable *exe, const weft_launch *launch, struct rt_hold **out_hold)
{
  struct rt_hold *hold;
  coll_clique_request *requests;
  uint64_t *incarnations = NULL;
  weft_status *st;

  *out_hold = NULL;
  if (exe->request_count == 0) return NULL;
  hold = calloc(1, sizeof *hold);
  requests = malloc((size_t)exe->request_count * sizeof *requests);
  if (!hold || !requests) {
    free(hold);
    free(requests);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  atomic_init(&hold->refs, 1);
  memcpy(requests, exe->requests, (size_t)exe->request_count * sizeof *requests);
  st = set_incarnations(exe, launch, requests, &incarnations);
  if (!st)
    st = coll_cliques_acquire_divided(exe->platform->cliques, requests, exe->request_count, exe->divisions,
                                      exe->division_count, hold_deadline(exe), &hold->hold, &hold->ready);
  free(incarnations);
  free(requests);
  if (st) free(hold);
  else *out_hold = hold;
  return st;
}

/* Submits the prepared runs or, if `st` is an error, discards them. Takes `st`. */
static weft_status *set_off_all(weft_executable *exe, const weft_launch *launch, weft_run **runs, int prepared,
                                weft_status *st)
{
  struct rt_hold *hold = NULL;

  if (!st) st = acquire_hold(exe, launch, &hold);
  for (int d = 0; d < prepared; d++) {
    if (st) recycle_run(runs[d]);
    else set_off(exe, d, launch, hold, runs[d]);
  }
  release_hold(hold);
  return st;
}

/* Waits while the device has too many runs (MOST_QUEUED). A host that runs ahead of its devices would fill the memory
 * with launches and their inputs. */
static void wait_for_room(weft_device *device)
{
  bool in_time = true;

  /* is_crowded would say no; most launches end here, without the lock */
  if (atomic_load_explicit(&device->under_way, memory_order_relaxed) <= MOST_QUEUED) return;
  if (rt_pool_is_worker(device->platform->pool)) return;
  weft_mutex_lock(&device->mu);
  if (is_crowded(device, MOST_QUEUED) && device->ended != device->no_room_at) {
    weft_deadline deadline = weft_deadline_after_ns(PATIENCE_NS);
    device->waiting_for_room++;
    while (in_time && is_crowded(device, ROOMY)) in_time = weft_cond_wait(&device->room, &device->mu, deadline);
    device->waiting_for_room--;
    if (!in_time) device->no_room_at = device->ended;
  }
  weft_mutex_unlock(&device->mu);
}

weft_status *weft_executable_launch(weft_executable *exe, const weft_launch *launch)
{
  weft_run *one, **runs = &one;
  weft_status *st = NULL;
  int64_t run_id = WEFT_UNLIKELY(rt_trace_on) ? rt_trace_launch(exe->id, exe->parts.module) : 0;
  int prepared = 0;

  if (WEFT_UNLIKELY(exe->logs))
    weft_log("rt", WEFT_LOG_DEBUG, "launch of \"%s\" on %d device%s", exe->parts.module->name, exe->device_count,
             exe->device_count == 1 ? "" : "s");
  if (exe->device_count > 1) runs = calloc((size_t)exe->device_count, sizeof(weft_run *));
  WEFT_TRY_ALLOC(runs);
  for (int d = 0; d < exe->device_count; d++) wait_for_room(exe->devices[d]);
  for (; !st && prepared < exe->device_count; prepared++) {
    st = acquire_run(exe, &runs[prepared]);
    if (st) break;
    st = prepare(exe, prepared, launch, runs[prepared]);
    runs[prepared]->info.run_id = run_id;
    if (st)
      st = weft_status_note(st, __FILE__, __LINE__, "launch of \"%s\" on device %lld", exe->parts.module->name,
                            (long long)exe->devices[prepared]->id);
  }
  if (exe->request_count > 0) { /* cliques and queues in one step, so that two launches have the same order in both */
    weft_mutex_lock(&exe->platform->launch_mu);
    st = set_off_all(exe, launch, runs, prepared, st);
    weft_mutex_unlock(&exe->platform->launch_mu);
  } else {
    st = set_off_all(exe, launch, runs, prepared, st);
  }
  if (runs != &one) free(runs);
  return st;
}

bool weft_device_poison(weft_device *device, int64_t launch_id, weft_status *error)
{
  WEFT_AUTO(weft_event) done = NULL;

  weft_mutex_lock(&device->mu);
  for (weft_run *run = device->first; run && !done; run = run->next)
    if (run->info.launch_id == launch_id && !run->poisoned) {
      run->poisoned = true;
      done = weft_event_retain(run->done);
    }
  weft_mutex_unlock(&device->mu);
  if (done) weft_event_set(done, error);
  else weft_status_free(error);
  return done;
}

/* ---- the queue as others see it -------------------------------------------------------------------------------- */

weft_status *weft_device_sync(weft_device *device, weft_deadline deadline)
{
  bool in_time = true;

  weft_mutex_lock(&device->mu);
  int64_t until = device->submitted;
  device->waiting_for_end++;
  while (device->ended < until && in_time) in_time = weft_cond_wait(&device->changed, &device->mu, deadline);
  device->waiting_for_end--;
  bool done = device->ended >= until;
  weft_mutex_unlock(&device->mu);
  if (!done) return WEFT_ERR(DEADLINE_EXCEEDED, "device %lld still has work", (long long)device->id);
  return NULL;
}

void weft_device_enter_callback(weft_device *device)
{
  weft_mutex_lock(&device->mu);
  device->callbacks++;
  weft_mutex_unlock(&device->mu);
  pump(device);
}

void weft_device_leave_callback(weft_device *device)
{
  weft_mutex_lock(&device->mu);
  device->callbacks--;
  weft_mutex_unlock(&device->mu);
}
