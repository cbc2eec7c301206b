/* gpu/conditions.c -- conditional nodes (conditions.h): the kernels that set their handles, and their state on a
 * device.
 *
 * The graphs of a device run one after another on its compute stream, so their loops share the words that the kernels
 * keep. A kernel that decides about a round also looks at the host's word `stop`, but not more often than once in
 * LOOK_NS, since a read of the host's memory takes a microsecond or two. What it has seen there stays in the device's
 * word STOPPED, which every later decision finds. */
#include <config.h>

#include "gpu/conditions.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "gpu/gpu_internal.h"

enum { CHOICE_FROM = 12080 /* the first version whose nodes may have several bodies */ };

/* The device's words, by offset. STOPPED: u32; LOOKED: u64, when a kernel last looked; COUNTS: u64, rounds left by the
 * depth of the loop. */
enum { STOPPED = 0, LOOKED = 8, COUNTS = 16, WORDS_BYTES = COUNTS + 8 * GPU_LOOP_DEPTH };

/* ---- kernels --------------------------------------------------------------------------------------------------- */

#define BEGIN(name, parameters) ".visible .entry " name "(" parameters ")\n{\n" \
  "  .reg .pred %p, %q;\n  .reg .b32 %v, %t;\n  .reg .b64 %handle, %at, %words, %watch, %now, %then, %left;\n" \
  "  ld.param.u64 %handle, [handle];\n"
#define WATCH_PARAMETERS ".param .u64 words, .param .u64 watch"
/* Looks at the host if it is time; %v becomes 0 if loops are to end. */
#define LOOK                                                                                                   \
  "  ld.param.u64 %words, [words];\n  ld.param.u64 %watch, [watch];\n  mov.u64 %now, %globaltimer;\n"         \
  "  ld.global.u64 %then, [%words+8];\n  sub.u64 %then, %now, %then;\n"                                       \
  "  setp.lt.u64 %p, %then, 1000000;\n  @%p bra $known;\n"                                                    \
  "  st.global.u64 [%words+8], %now;\n"                                                                       \
  "  ld.relaxed.sys.global.u32 %t, [%watch+64];\n  add.u32 %t, %t, 1;\n"                                      \
  "  st.relaxed.sys.global.u32 [%watch+64], %t;\n"                                                            \
  "  ld.relaxed.sys.global.u32 %t, [%watch];\n  setp.eq.u32 %p, %t, 0;\n  @%p bra $known;\n"                  \
  "  st.global.u32 [%words], %t;\n"                                                                           \
  "$known:\n  ld.global.u32 %t, [%words];\n  setp.ne.u32 %p, %t, 0;\n  selp.b32 %v, 0, %v, %p;\n"
#define SET                                                                                                    \
  "  {\n  .param .b64 a;\n  .param .b32 b;\n  st.param.b64 [a], %handle;\n  st.param.b32 [b], %v;\n"            \
  "  call.uni cudaGraphSetConditional, (a, b);\n  }\n  ret;\n}\n"

_Static_assert(STOPPED == 0 && LOOKED == 8, "as in LOOK");
_Static_assert(offsetof(gpu_watch, stop) == 0 && offsetof(gpu_watch, looks) == 64, "as in LOOK");

static const char kernels[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                              ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
  /* */
  BEGIN(
    "by_flag",
    ".param .u64 handle, .param .u64 flag, " WATCH_PARAMETERS) "  ld.param.u64 %at, [flag];\n  ld.global.u8 %t, [%at];\n  setp.ne.u32 %p, %t, 0;\n  selp.b32 %v, 1, 0, %p;\n" LOOK
    SET
      /* */
      BEGIN(
        "by_count",
        ".param .u64 handle, .param .u64 count, .param .u64 trips, .param .u32 first, " WATCH_PARAMETERS) "  ld.param.u64 %at, [count];\n  ld.param.u64 %left, [trips];\n  ld.param.u32 %t, [first];\n"
                                                                                                          "  setp.ne.u32 %p, %t, 0;\n  @!%p ld.global.u64 %left, [%at];\n"
                                                                                                          "  setp.ne.u64 %p, %left, 0;\n  selp.b32 %v, 1, 0, %p;\n  sub.u64 %left, %left, 1;\n  st.global.u64 [%at], %left;\n" LOOK
                                                                                                            SET
                                                                                                              /* */
                                                                                                              BEGIN(
                                                                                                                "choose",
                                                                                                                ".param .u64 handle, .param .u64 flag, .param .u32 is_pred, .param .u32 count, .param .u32 which") "  ld.param.u64 %at, [flag];\n  ld.param.u32 %t, [is_pred];\n  setp.ne.u32 %p, %t, 0;\n  @%p bra $pred;\n"
                                                                                                                                                                                                                   "  ld.global.u32 %v, [%at];\n  ld.param.u32 %t, [count];\n  sub.u32 %t, %t, 1;\n  min.u32 %v, %v, %t;\n"
                                                                                                                                                                                                                   "  bra.uni $known;\n"
                                                                                                                                                                                                                   "$pred:\n  ld.global.u8 %t, [%at];\n  setp.eq.u32 %p, %t, 0;\n  selp.b32 %v, 1, 0, %p;\n"
                                                                                                                                                                                                                   "$known:\n  ld.param.u32 %t, [which];\n  setp.eq.u32 %p, %t, 0xffffffff;\n  setp.eq.u32 %q, %t, %v;\n"
                                                                                                                                                                                                                   "  selp.b32 %t, 1, 0, %q;\n  selp.b32 %v, %v, %t, %p;\n" SET;

static weft_status *launch(wcu_function kernel, wcu_stream stream, void **parameters)
{
  return GPU_CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static wcu_ptr watch_of(const gpu_conditions *c)
{
  return (wcu_ptr)(uintptr_t)atomic_load_explicit(&c->watch, memory_order_relaxed);
}

weft_status *gpu_set_by_flag(const gpu_conditions *c, wcu_stream stream, wcu_conditional_handle handle, wcu_ptr flag)
{
  wcu_ptr words = c->words, watch = watch_of(c);
  void *parameters[] = {&handle, &flag, &words, &watch};

  return launch(c->by_flag, stream, parameters);
}

weft_status *gpu_set_by_count(const gpu_conditions *c, wcu_stream stream, wcu_conditional_handle handle, int depth,
                              int64_t trips, bool first)
{
  wcu_ptr words = c->words, watch = watch_of(c), count = words + COUNTS + 8 * (wcu_ptr)depth;
  uint32_t is_first = first;
  void *parameters[] = {&handle, &count, &trips, &is_first, &words, &watch};

  if (depth >= GPU_LOOP_DEPTH)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "a device has words for %d loops in each other", GPU_LOOP_DEPTH);
  return launch(c->by_count, stream, parameters);
}

weft_status *gpu_set_by_branch(const gpu_conditions *c, wcu_stream stream, wcu_conditional_handle handle, wcu_ptr flag,
                               bool is_pred, int count, int which)
{
  uint32_t pred = is_pred, branches = (uint32_t)count, one = (uint32_t)which;
  void *parameters[] = {&handle, &flag, &pred, &branches, &one};

  return launch(c->choose, stream, parameters);
}

/* ---- nodes ----------------------------------------------------------------------------------------------------- */

weft_status *gpu_new_handle(const gpu_device *gpu, wcu_graph graph, wcu_conditional_handle *out_handle)
{
  return GPU_CALL(cuGraphConditionalHandleCreate, out_handle, graph, gpu->context, 0, WCU_GRAPH_COND_ASSIGN_DEFAULT);
}

weft_status *gpu_add_condition(const gpu_device *gpu, wcu_graph graph, wcu_graph_node **from, size_t *count,
                               wcu_conditional_type type, wcu_conditional_handle handle, int size, wcu_graph *bodies)
{
  wcu_graph_node_params params = {
    .type = WCU_GRAPH_NODE_TYPE_CONDITIONAL,
    .conditional = {.handle = handle, .type = type, .size = (unsigned)size, .ctx = gpu->context}};
  wcu_graph_node node;

  WEFT_TRY(GPU_CALL(cuGraphAddNode, &node, graph, *count ? *from : NULL, NULL, *count, &params));
  for (int i = 0; i < size; i++) bodies[i] = params.conditional.phGraph_out[i];
  if (!*from) *from = malloc(sizeof **from);
  WEFT_TRY_ALLOC(*from);
  (*from)[0] = node;
  *count = 1;
  return NULL;
}

/* ---- a device -------------------------------------------------------------------------------------------------- */

void gpu_conditions_init(gpu_conditions *c) { weft_mutex_init(&c->mu); }

void gpu_conditions_fini(gpu_conditions *c) WEFT_UNSHARED
{
  weft_status_free(c->error);
  weft_mutex_fini(&c->mu);
}

void gpu_conditions_close(gpu_conditions *c)
{
  gpu_watch *watch = atomic_exchange(&c->watch, NULL);

  if (c->module) gpu_cu.cuModuleUnload(c->module);
  if (c->words) gpu_cu.cuMemFree(c->words);
  if (watch) gpu_cu.cuMemFreeHost(watch);
  c->module = NULL;
  c->words = 0;
}

static weft_status *take_memory(gpu_device *gpu, gpu_conditions *c)
{
  void *watch;

  WEFT_TRY(GPU_CALL(cuMemAlloc, &c->words, WORDS_BYTES));
  WEFT_TRY(GPU_CALL(cuMemsetD8Async, c->words, 0, WORDS_BYTES, gpu->own));
  WEFT_TRY(gpu_await(gpu, gpu->own));
  WEFT_TRY(GPU_CALL(cuMemHostAlloc, &watch, sizeof(gpu_watch), WCU_MEMHOSTALLOC_PORTABLE | WCU_MEMHOSTALLOC_DEVICEMAP));
  memset(watch, 0, sizeof(gpu_watch));
  atomic_store(&c->watch, (gpu_watch *)watch);
  /* seq_cst, as in gpu_device_hangs: of the two threads, one sees what the other has written */
  if (atomic_load(&gpu->hung)) gpu_loops_stop(gpu);
  return NULL;
}

static weft_status *load(gpu_platform *platform, gpu_conditions *c)
{
  weft_mutex_lock(&platform->launching);
  weft_status *st = GPU_CALL(cuModuleLoadDataEx, &c->module, kernels, 0, NULL, NULL);
  weft_mutex_unlock(&platform->launching);
  WEFT_TRY(st);
  WEFT_TRY(GPU_CALL(cuModuleGetFunction, &c->by_flag, c->module, "by_flag"));
  WEFT_TRY(GPU_CALL(cuModuleGetFunction, &c->by_count, c->module, "by_count"));
  return GPU_CALL(cuModuleGetFunction, &c->choose, c->module, "choose");
}

/* Adds to `graph` a loop that has a conditional node of this type and size in its body. */
static weft_status *put_probe(const gpu_device *gpu, wcu_graph graph, wcu_graph_node **from, wcu_conditional_type type,
                              int size)
{
  wcu_conditional_handle handle;
  wcu_graph body, branches[2];
  size_t count = 0;

  WEFT_TRY(gpu_new_handle(gpu, graph, &handle));
  WEFT_TRY(gpu_add_condition(gpu, graph, from, &count, WCU_GRAPH_COND_TYPE_WHILE, handle, 1, &body));
  count = 0;
  WEFT_TRY(gpu_new_handle(gpu, body, &handle));
  return gpu_add_condition(gpu, body, from, &count, type, handle, size, branches);
}

/* Whether the driver makes an instance of a graph with such nodes. It is not launched. */
static weft_status *probe(gpu_platform *platform, const gpu_device *gpu, wcu_conditional_type type, int size)
{
  wcu_graph_node *from = NULL;
  wcu_graph_exec exec = NULL;
  wcu_graph graph;

  WEFT_TRY(GPU_CALL(cuGraphCreate, &graph, 0));
  weft_status *st = put_probe(gpu, graph, &from, type, size);
  if (!st) {
    weft_mutex_lock(&platform->launching); /* as for all instances */
    st = GPU_CALL(cuGraphInstantiate, &exec, graph, 0);
    weft_mutex_unlock(&platform->launching);
    if (!st) gpu_drop_instance(exec);
  }
  gpu_drop_graph(graph);
  free(from);
  return st;
}

static bool has_choice(gpu_platform *platform, const gpu_device *gpu)
{
  if (gpu_cu.version < CHOICE_FROM) return false;
  weft_status *st = probe(platform, gpu, WCU_GRAPH_COND_TYPE_IF, 2);
  if (!st) st = probe(platform, gpu, WCU_GRAPH_COND_TYPE_SWITCH, 2);
  if (st) WEFT_LOG("gpu", INFO, "a node of a graph has one body at most: %s", weft_status_message(st));
  weft_status_free(st);
  return !st;
}

static weft_status *open_in_context(gpu_platform *platform, gpu_device *gpu, gpu_conditions *c)
{
  WEFT_TRY(load(platform, c));
  WEFT_TRY(take_memory(gpu, c));
  WEFT_TRY(probe(platform, gpu, WCU_GRAPH_COND_TYPE_IF, 1));
  c->has_choice = has_choice(platform, gpu);
  return NULL;
}

static weft_status *open_conditions(gpu_platform *platform, gpu_device *gpu)
{
  if (!gpu_cu.has_conditions)
    return WEFT_ERR(UNAVAILABLE, "the driver, for CUDA %d.%d, has no conditional nodes in graphs",
                    gpu_cu.version / 1000, gpu_cu.version % 1000 / 10);
  WEFT_TRY(gpu_enter(gpu));
  /* what was made before an error stays until the device is closed: other threads may read the watch */
  weft_status *st = open_in_context(platform, gpu, &gpu->conditions);
  gpu_leave();
  return st;
}

weft_status *gpu_conditions_open(gpu_platform *platform, gpu_device *gpu)
{
  gpu_conditions *c = &gpu->conditions;

  weft_mutex_lock(&c->mu);
  if (!c->is_tried) {
    c->error = open_conditions(platform, gpu);
    if (c->error) WEFT_LOG("gpu", INFO, "loops and branches are no part of graphs: %s", weft_status_message(c->error));
  }
  c->is_tried = true;
  weft_status *answer = weft_status_dup(c->error);
  weft_mutex_unlock(&c->mu);
  return answer;
}

/* ---- loops that run -------------------------------------------------------------------------------------------- */

void gpu_loops_stop(gpu_device *gpu)
{
  gpu_watch *watch = atomic_load(&gpu->conditions.watch);

  if (watch) __atomic_store_n(&watch->stop, 1, __ATOMIC_RELEASE);
}

uint32_t gpu_loops_progress(const gpu_device *gpu)
{
  const gpu_watch *watch = atomic_load_explicit(&gpu->conditions.watch, memory_order_acquire);

  return watch ? __atomic_load_n(&watch->looks, __ATOMIC_RELAXED) : 0;
}
