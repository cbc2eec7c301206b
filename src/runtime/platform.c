/* runtime/platform.c -- what a kind of device offers (platform.h). */
#include <config.h>

#include "runtime/platform.h"

#include "base/log.h"
#include "runtime/runtime_internal.h"
#include "runtime/trace.h"

weft_status *weft_platform_new(const weft_platform_ops *ops, const weft_platform_options *options,
                               weft_platform **out_platform)
{
  *out_platform = NULL;
  rt_trace_init();
  WEFT_AUTO(weft_platform) platform = NULL;
  WEFT_TRY_NOTE(ops->create(options, &platform), "platform \"%s\"", ops->name);
  for (int i = 0; i < platform->device_count; i++)
    WEFT_TRY_NOTE(rt_device_open(&platform->devices[i]), "platform \"%s\"", ops->name);
  *out_platform = WEFT_MOVE(platform);
  return NULL;
}

weft_platform *weft_platform_retain(weft_platform *platform)
{
  atomic_fetch_add_explicit(&platform->refs, 1, memory_order_relaxed);
  return platform;
}

static void *destroy(void *arg)
{
  weft_platform *platform = arg;
  weft_status *st = rt_trace_flush();

  if (st) WEFT_LOG("rt", WARN, "%s", weft_status_text(st, false));
  weft_status_free(st);
  platform->ops->destroy(platform);
  return NULL;
}

void weft_platform_release(weft_platform *platform)
{
  pthread_t thread;

  /* acq_rel: all that used the platform ends before it is destroyed */
  if (!platform || atomic_fetch_sub_explicit(&platform->refs, 1, memory_order_acq_rel) != 1) return;
  if (!rt_pool_is_worker(platform->pool)) {
    destroy(platform);
    return;
  }
  /* A worker cannot join itself. */
  weft_status *st = weft_thread_start(&thread, "weft-end", destroy, platform);
  if (!st) pthread_detach(thread);
  else WEFT_LOG("rt", WARN, "platform \"%s\" is not freed: %s", platform->ops->name, weft_status_text(st, false));
  weft_status_free(st);
}

const char *weft_platform_name(const weft_platform *platform) { return platform->ops->name; }
rt_pool *weft_platform_pool(const weft_platform *platform) { return platform->pool; }
int weft_platform_device_count(const weft_platform *platform) { return platform->device_count; }
weft_device *weft_platform_device(const weft_platform *platform, int ordinal) { return &platform->devices[ordinal]; }

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
  int64_t begin = rt_trace_on ? weft_now_ns() : 0;
  weft_status *st = platform->ops->compile(platform, module, options, out_executable);

  if (begin) rt_trace_event("compile", "compile", 0, begin);
  return st;
}
