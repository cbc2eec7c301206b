/* runtime/platform.c -- what a kind of device offers (platform.h). */
#include <config.h>

#include "runtime/platform.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/feed.h"
#include "runtime/runtime_internal.h"
#include "runtime/trace.h"
#include "runtime/trace_signals.h"

weft_status *weft_platform_new(const weft_platform_ops *ops, const weft_platform_options *options,
                               weft_platform **out_platform)
{
  *out_platform = NULL;
  rt_trace_init();
  WEFT_AUTO(weft_platform) platform = NULL;
  WEFT_TRY_NOTE(ops->create(options, &platform), "platform \"%s\"", ops->name);
  for (int i = 0; i < platform->device_count; i++)
    WEFT_TRY_NOTE(rt_device_open(&platform->devices[i]), "platform \"%s\"", ops->name);
  weft_status *st = rt_trace_signals_begin();
  if (st) WEFT_LOG("rt", WARN, "%s", weft_status_text(st, false));
  platform->traces_signals = !st;
  weft_status_free(st);
  WEFT_LOG("rt", DEBUG, "platform \"%s\": %d device%s, process %d of %d", ops->name, platform->device_count,
           platform->device_count == 1 ? "" : "s", platform->process_index, platform->process_count);
  *out_platform = WEFT_MOVE(platform);
  return NULL;
}

void rt_platform_begin(weft_platform *platform, const weft_platform_ops *ops, const weft_platform_options *wanted)
{
  platform->ops = ops;
  atomic_init(&platform->refs, 1);
  weft_mutex_init(&platform->launch_mu);
  weft_mutex_init(&platform->channels_mu);
  weft_mutex_init(&platform->packed.mu);
  platform->host_loops_back = wanted->host_loops_back;
  platform->process_index = wanted->process_index;
  platform->process_count = WEFT_MAX(wanted->process_count, 1);
}

weft_status *rt_platform_add_devices(weft_platform *platform, const weft_platform_options *wanted, int first, int count,
                                     const char *(*kind)(const weft_platform *platform, int ordinal))
{
  platform->devices = calloc((size_t)count, sizeof *platform->devices);
  WEFT_TRY_ALLOC(platform->devices);
  for (int i = 0; i < count; i++) {
    int64_t id = wanted->device_ids ? wanted->device_ids[i]
                                    : (int64_t)wanted->process_index * WEFT_DEVICES_A_PROCESS + i;
    platform->device_count++;
    WEFT_TRY(rt_device_init(&platform->devices[i], platform, id, i, kind(platform, i)));
    platform->devices[i].hardware_id = wanted->device_ordinals ? wanted->device_ordinals[i] : first + i;
  }
  return NULL;
}

weft_status *rt_platform_join_job(weft_platform *platform, const weft_platform_options *wanted)
{
  if (wanted->incarnations && wanted->process_count > 0) {
    size_t bytes = (size_t)wanted->process_count * sizeof *platform->incarnations;
    platform->incarnations = malloc(bytes);
    WEFT_TRY_ALLOC(platform->incarnations);
    memcpy(platform->incarnations, wanted->incarnations, bytes);
  }
  return coll_cliques_new(wanted->kv, "weft/clique", &(coll_clique_factory){platform->ops->communicator, platform},
                          &platform->cliques);
}

void rt_platform_end(weft_platform *platform)
{
  coll_cliques_free(platform->cliques);
  free(platform->incarnations);
  rt_pool_free(platform->pool);
  for (int i = 0; i < platform->device_count; i++) rt_device_fini(&platform->devices[i]);
  free(platform->devices);
  rt_channels_free(platform);
  weft_mutex_fini(&platform->packed.mu);
  weft_mutex_fini(&platform->channels_mu);
  weft_mutex_fini(&platform->launch_mu);
}

weft_platform *weft_platform_retain(weft_platform *platform)
{
  atomic_fetch_add_explicit(&platform->refs, 1, memory_order_relaxed);
  return platform;
}

static void *destroy(void *arg)
{
  weft_platform *platform = arg;

  rt_trace_finish();
  WEFT_LOG("rt", DEBUG, "platform \"%s\" ends", platform->ops->name);
  if (platform->traces_signals) rt_trace_signals_end();
  platform->ops->destroy(platform);
  return NULL;
}

static _Thread_local const weft_platform *my_platform;
void rt_platform_own_thread(const weft_platform *platform) { my_platform = platform; }

void weft_platform_release(weft_platform *platform)
{
  pthread_t thread;

  /* acq_rel: all that used the platform ends before it is destroyed */
  if (!platform || atomic_fetch_sub_explicit(&platform->refs, 1, memory_order_acq_rel) != 1) return;
  if (!rt_pool_is_worker(platform->pool) && my_platform != platform) {
    destroy(platform);
    return;
  }
  /* A thread cannot join itself. */
  weft_status *st = weft_thread_start(&thread, "weft-end", destroy, platform);
  if (!st) pthread_detach(thread);
  else WEFT_LOG("rt", WARN, "platform \"%s\" is not freed: %s", platform->ops->name, weft_status_text(st, false));
  weft_status_free(st);
}

const char *weft_platform_name(const weft_platform *platform) { return platform->ops->name; }
rt_pool *weft_platform_pool(const weft_platform *platform) { return platform->pool; }
int weft_platform_device_count(const weft_platform *platform) { return platform->device_count; }
weft_device *weft_platform_device(const weft_platform *platform, int ordinal) { return &platform->devices[ordinal]; }

bool weft_platform_moves(const weft_platform *platform, weft_coll_kind kind, weft_dtype dtype, weft_reduction reduction)
{
  const weft_platform_ops *ops = platform->ops;
  return ops->communicator && (!ops->moves || ops->moves(platform, kind, dtype, reduction));
}

struct coll_cliques *weft_platform_cliques(const weft_platform *platform) { return platform->cliques; }

void weft_platform_incarnation_died(weft_platform *platform, uint64_t incarnation, const char *detail)
{
  coll_cliques_incarnation_died(platform->cliques, incarnation, detail);
}

void weft_platform_leave(weft_platform *platform, uint64_t incarnation, const char *reason)
{
  int64_t ids[WEFT_DEVICES_A_PROCESS];

  for (int i = 0; i < platform->device_count; i++) ids[i] = platform->devices[i].id;
  coll_cliques_leave(platform->cliques, &(coll_clique_self){ids, platform->device_count, incarnation}, reason);
}

weft_device *weft_platform_device_by_id(const weft_platform *platform, int64_t id)
{
  for (int i = 0; i < platform->device_count; i++) /* a process has few */
    if (platform->devices[i].id == id) return &platform->devices[i];
  return NULL;
}

weft_status *weft_compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                          weft_executable **out_executable)
{
  int64_t begin = weft_now_ns();
  weft_status *st;

  if (!platform->ops->compile) {
    hlo_module_free(module);
    *out_executable = NULL;
    return WEFT_ERR(UNIMPLEMENTED, "the platform \"%s\" of this library has no compiler", platform->ops->name);
  }
  WEFT_LOG("rt", DEBUG, "compiles \"%s\"", module->name);
  st = platform->ops->compile(platform, module, options, out_executable);
  if (rt_trace_on) rt_trace_event("compile", "compile", 0, begin);
  if (!st)
    WEFT_LOG("rt", DEBUG, "compiled \"%s\" in %.1f ms: %.1f KiB of machine code",
             weft_executable_module(*out_executable)->name, (double)(weft_now_ns() - begin) / 1e6,
             (double)weft_executable_code_bytes(*out_executable) / 1024);
  return st;
}
