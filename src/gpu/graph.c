/* gpu/graph.c -- CUDA graphs: the steps of a stretch (runtime/program.h) as one graph, which the stream runs as a
 * whole.
 *
 * A device's first run of a stretch queues its steps one by one, so that libraries and the driver have loaded
 * everything that they load at first use. Later runs record the steps: they are queued on a stream that captures, where
 * they become a graph, and the graph is instantiated. An instance is for the addresses that it was recorded with. A run
 * whose addresses are those of one of the KEPT instances of the device is one launch. A run with other addresses
 * records the steps again and updates the instance whose last launch is longest ago. That pays even if no addresses
 * come again: on an H200, 30 steps take 14 us to record and to update and 1.4 us to launch, and 100 us one by one.
 *
 * A graph with loops or branches (recording.h) is never updated: for other addresses an instance is made, which costs
 * more. So after FREE_RECORDINGS each further one must have been earned by a run that found its instance. Where
 * addresses do not come again, the host drives the loops and branches, and the plain stretches between them are graphs.
 *
 * If recording, instantiating or updating fails, nothing is queued yet, and the steps are queued one by one; after
 * MOST_FAILURES in a row the device does not record the stretch any more. A launch that fails is the run's error. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "gpu/makers.h"
#include "gpu/recording.h"
#include "gpu/talk.h"

enum { KEPT = 4, MOST_FAILURES = 3, FREE_RECORDINGS = 8 };

/* A graph that is ready to launch, for the addresses in `args` and the ids. */
typedef struct instance {
  wcu_graph_exec exec; /* NULL: none */
  wcu_graph graph;     /* the graph that it was made of, if that has conditional nodes; else NULL */
  void **args;
  int64_t replica_id, partition_id;
  uint64_t launched;   /* number of its last launch */
} instance;

/* The graphs of a stretch on one device. */
typedef struct device_graphs {
  weft_mutex mu; /* order: before gpu_device.recording */
  bool is_warm WEFT_GUARDED_BY(mu);   /* the steps have been queued one by one */
  int failures WEFT_GUARDED_BY(mu);   /* in a row */
  uint64_t launches WEFT_GUARDED_BY(mu);
  uint64_t recordings WEFT_GUARDED_BY(mu), hits WEFT_GUARDED_BY(mu); /* hits: runs for which an instance was there */
  instance kept[KEPT] WEFT_GUARDED_BY(mu);
} device_graphs;

typedef struct graph_stretch {
  rt_stretch base; /* first */
  gpu_platform *platform; /* borrowed: the executable holds it */
  device_graphs *of_device; /* by ordinal, malloc'd */
  gpu_talks *talks;         /* graphs with collectives; made by the first run */
} graph_stretch;

/* ---- addresses ------------------------------------------------------------------------------------------------- */

static bool fits(const instance *one, const rt_stretch *s, const rt_ctx *ctx)
{
  bool same = one->exec && one->replica_id == ctx->info->replica_id && one->partition_id == ctx->info->partition_id;

  for (int i = 0, at = 0; i < s->range_count && same; at += s->ranges[i++].count)
    same = memcmp(one->args + at, ctx->args + s->ranges[i].first, (size_t)s->ranges[i].count * sizeof *one->args) == 0;
  return same;
}

static void note_args(instance *one, const rt_stretch *s, const rt_ctx *ctx)
{
  for (int i = 0, at = 0; i < s->range_count; at += s->ranges[i++].count)
    memcpy(one->args + at, ctx->args + s->ranges[i].first, (size_t)s->ranges[i].count * sizeof *one->args);
  one->replica_id = ctx->info->replica_id;
  one->partition_id = ctx->info->partition_id;
}

static instance *find_fitting(device_graphs *g, const rt_stretch *s, const rt_ctx *ctx) WEFT_REQUIRES(g->mu)
{
  for (int i = 0; i < KEPT; i++)
    if (fits(&g->kept[i], s, ctx)) return &g->kept[i];
  return NULL;
}

static instance *find_oldest(device_graphs *g) WEFT_REQUIRES(g->mu)
{
  instance *oldest = &g->kept[0];

  for (int i = 1; i < KEPT && oldest->exec; i++)
    if (!g->kept[i].exec || g->kept[i].launched < oldest->launched) oldest = &g->kept[i];
  return oldest;
}

/* ---- recording ------------------------------------------------------------------------------------------------- */

static void drop_exec(instance *one)
{
  gpu_drop_instance(one->exec);
  gpu_drop_graph(one->graph);
  one->exec = NULL;
  one->graph = NULL;
}

/* Makes the instance one of `graph`, which is taken also if that fails: by an update if the instance has nodes of the
 * same kinds in the same order. `decides`: the graph has conditional nodes. An update would give the kernels that set
 * their handles the handles of the new graph, so such an instance is made anew; and the graph, to which the handles
 * belong, is kept. */
static weft_status *instantiate(instance *one, wcu_graph graph, bool decides)
{
  wcu_graph_update_info info = {0};
  weft_status *st = NULL;

  if (decides || !one->exec || gpu_cu.cuGraphExecUpdate(one->exec, graph, &info) != WCU_SUCCESS) {
    drop_exec(one);
    st = GPU_CALL(cuGraphInstantiate, &one->exec, graph, 0);
    if (st) one->exec = NULL;
  }
  if (decides && !st) one->graph = graph;
  else gpu_drop_graph(graph);
  return st;
}

/* The caller has entered the device. */
static weft_status *record(const graph_stretch *s, rt_ctx *ctx, gpu_device *gpu, instance *one)
{
  wcu_graph graph;

  if (!one->args) one->args = malloc((size_t)WEFT_MAX(s->base.arg_count, 1) * sizeof *one->args);
  WEFT_TRY_ALLOC(one->args);
  WEFT_TRY(gpu_record_stretch(s->platform, &s->base, ctx, gpu, NULL, NULL, &graph));
  /* making an instance takes device memory, and the driver may wait for running kernels before it allocates */
  weft_mutex_lock(&s->platform->launching);
  weft_status *st = instantiate(one, graph, s->base.decides);
  weft_mutex_unlock(&s->platform->launching);
  if (!st) note_args(one, &s->base, ctx);
  return st;
}

/* ---- running --------------------------------------------------------------------------------------------------- */

/* An instance for the addresses of this run; NULL: the steps are to be queued one by one. */
static instance *instance_for(const graph_stretch *s, rt_ctx *ctx, device_graphs *g, gpu_device *gpu)
  WEFT_REQUIRES(g->mu)
{
  instance *one = find_fitting(g, &s->base, ctx);

  if (one) {
    g->hits++;
    return one;
  }
  if (!g->is_warm || g->failures >= MOST_FAILURES) return NULL;
  if (s->base.decides && g->recordings >= FREE_RECORDINGS + g->hits) return NULL;
  one = find_oldest(g);
  weft_status *st = record(s, ctx, gpu, one);
  if (!st) {
    g->failures = 0;
    g->recordings++;
    return one;
  }
  drop_exec(one);
  g->failures++;
  WEFT_LOG("gpu", WARN, "steps \"%s\" are queued one by one, since no graph was made of them: %s", s->base.base.name,
           weft_status_message(st));
  weft_status_free(st);
  return NULL;
}

static weft_status *queue_locked(const graph_stretch *s, rt_ctx *ctx, device_graphs *g, gpu_device *gpu,
                                 bool *out_queued) WEFT_REQUIRES(g->mu)
{
  wcu_stream handle;

  weft_mutex_assert_held(&g->mu);
  instance *one = instance_for(s, ctx, g, gpu);
  g->is_warm = true;
  if (!one) return NULL;
  one->launched = ++g->launches;
  *out_queued = true;
  WEFT_TRY(gpu_begin_step(&s->base.base, ctx, &handle));
  return gpu_end_work(ctx, GPU_CALL(cuGraphLaunch, one->exec, handle));
}

static weft_status *queue(rt_stretch *base, rt_ctx *ctx, bool *out_queued)
{
  graph_stretch *s = (graph_stretch *)base;
  gpu_device *gpu = gpu_of(ctx->info->device);
  device_graphs *g = &s->of_device[ctx->info->device_ordinal];

  WEFT_TRY(gpu_enter(gpu));
  weft_mutex_lock(&g->mu);
  weft_status *st = queue_locked(s, ctx, g, gpu, out_queued);
  weft_mutex_unlock(&g->mu);
  gpu_leave();
  return st;
}

/* A stretch with collectives (talk.c). */
static weft_status *start(rt_stretch *base, rt_ctx *ctx, bool *out_started)
{
  graph_stretch *s = (graph_stretch *)base;

  weft_mutex_lock(&s->of_device[0].mu);
  weft_status *st = s->talks ? NULL : gpu_talks_new(s->platform, base, &s->talks);
  weft_mutex_unlock(&s->of_device[0].mu);
  return st ? st : gpu_talks_start(s->talks, ctx, out_started);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void destroy(rt_thunk *thunk) WEFT_UNSHARED
{
  graph_stretch *s = (graph_stretch *)thunk;

  for (int d = 0; d < s->platform->gpu_count; d++) {
    device_graphs *g = &s->of_device[d];
    weft_status *st = gpu_enter(&s->platform->gpus[d]); /* instances of a device that hangs are not freed */
    for (int i = 0; i < KEPT; i++) {
      if (!st) drop_exec(&g->kept[i]);
      free(g->kept[i].args);
    }
    if (!st) gpu_leave();
    weft_status_ignore(st);
    weft_mutex_fini(&g->mu);
  }
  free(s->of_device);
  gpu_talks_free(s->talks);
}

static const rt_thunk_ops graph_ops = {
  .size = sizeof(rt_thunk_ops), .kind = "graph", .control = rt_control_stretch, .destroy = destroy};

static weft_status *make(void *ctx, weft_arena *arena, rt_stretch **out_stretch)
{
  gpu_platform *platform = ctx;
  graph_stretch *s = WEFT_ARENA_NEW(arena, graph_stretch);
  device_graphs *of_device = calloc((size_t)platform->gpu_count, sizeof *of_device);

  if (!s || !of_device) {
    free(of_device);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  s->base.base.ops = &graph_ops;
  s->base.queue = queue;
  s->base.start = start;
  s->platform = platform;
  s->of_device = of_device;
  for (int d = 0; d < platform->gpu_count; d++) weft_mutex_init(&of_device[d].mu);
  *out_stretch = &s->base;
  return NULL;
}

static bool has_control(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      if (instr->op == HLO_WHILE || instr->op == HLO_CONDITIONAL) return true;
  return false;
}

/* Whether loops and branches may be part of graphs. All devices are of one kind, so the first one stands for all. */
static bool can_decide(gpu_platform *platform, const hlo_module *module)
{
  if (!platform->settings.graph_loops || !has_control(module)) return false;
  weft_status *st = gpu_conditions_open(platform, &platform->gpus[0]);
  bool can = st == NULL;
  weft_status_free(st);
  return can;
}

bool gpu_stretcher_init(rt_stretcher *stretcher, gpu_platform *platform, const weft_compile_options *options,
                        const hlo_module *module)
{
  static const uint32_t decides = 1u << WEFT_GRAPH_WHILE | 1u << WEFT_GRAPH_CONDITIONAL;
  static const uint32_t usual = 1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_CUBLASLT | 1u << WEFT_GRAPH_CUDNN |
                                1u << WEFT_GRAPH_CUSTOM_CALL | decides;
  int64_t least = options->graph_least > 0 ? options->graph_least : platform->settings.graphs;
  uint32_t kinds = options->graph_kinds ? options->graph_kinds : usual;

  if (kinds & 1u << WEFT_GRAPH_CUBLAS) kinds |= 1u << WEFT_GRAPH_CUBLASLT; /* all products are cuBLASLt's here */
  /* no conditional nodes are needed for these */
  int64_t unrolls = (kinds & 1u << WEFT_GRAPH_WHILE) && platform->settings.graph_loops ? platform->settings.graph_unroll
                                                                                       : 0;
  if (platform->settings.graphs == 0 || least > INT32_MAX) return false;
  if ((kinds & decides) && !can_decide(platform, module)) kinds &= ~decides;
  *stretcher = (rt_stretcher){.ctx = platform,
                              .kinds = kinds,
                              .loops = 1u << WEFT_GRAPH_WHILE,
                              .branches = 1u << WEFT_GRAPH_CONDITIONAL,
                              .talks = 1u << WEFT_GRAPH_COLLECTIVES,
                              .unrolls = unrolls,
                              .least = (int)least,
                              .make = make};
  return true;
}
