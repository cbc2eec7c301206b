/* gpu/driver.c -- opening the CUDA driver (driver.h). */
#include <config.h>

#include "gpu/driver.h"

#include "base/log.h"
#include "base/macros.h"
#include "base/thread.h"
#include "gpu/library.h"

enum { OLDEST_VERSION = 12000, MULTICAST_FROM = 12010, CONDITIONS_FROM = 12030 };

gpu_driver gpu_cu;

static weft_mutex open_mu = WEFT_MUTEX_INITIALIZER;
static bool is_open; /* guarded by open_mu */

static weft_status *resolve(wcu_fn_cuGetProcAddress_v2 get, const char *name, void **out)
{
  wcu_proc_address found = WCU_GET_PROC_ADDRESS_SUCCESS;
  wcu_result result = get(name, out, WCU_VERSION, 0, &found);

  if (result == WCU_SUCCESS && *out) return NULL;
  return WEFT_ERR(UNAVAILABLE, "libcuda.so.1 has no %s (cuGetProcAddress: %d, %d): the driver is too old", name,
                  (int)result, (int)found);
}

static weft_status *check_version(int oldest)
{
  if (gpu_cu.version >= oldest) return NULL;
  return WEFT_ERR(UNAVAILABLE, "the CUDA driver is for version %d.%d", gpu_cu.version / 1000,
                  gpu_cu.version % 1000 / 10);
}

/* Earlier drivers have other versions of these entry points, under the same names. */
static weft_status *find_conditions(wcu_fn_cuGetProcAddress_v2 get)
{
  WEFT_TRY(check_version(CONDITIONS_FROM));
#define GPU_ENTRY(name, symbol) WEFT_TRY(resolve(get, #name, (void **)&gpu_cu.name));
  GPU_CONDITION_ENTRIES(GPU_ENTRY)
#undef GPU_ENTRY
  return NULL;
}

static weft_status *find_multicast(wcu_fn_cuGetProcAddress_v2 get)
{
  WEFT_TRY(check_version(MULTICAST_FROM));
#define GPU_ENTRY(name, symbol) WEFT_TRY(resolve(get, #name, (void **)&gpu_cu.name));
  GPU_MULTICAST_ENTRIES(GPU_ENTRY)
#undef GPU_ENTRY
  return NULL;
}

static weft_status *open_driver(void)
{
  wcu_fn_cuGetProcAddress_v2 get;
  void *library;

  WEFT_TRY(gpu_library_open("libcuda.so.1", &library));
  *(void **)&get = gpu_library_symbol(library, "cuGetProcAddress_v2");
  if (!get) return WEFT_ERR(UNAVAILABLE, "libcuda.so.1 has no cuGetProcAddress_v2: the driver is too old");
#define GPU_ENTRY(name, symbol) WEFT_TRY(resolve(get, #name, (void **)&gpu_cu.name));
  GPU_DRIVER_ENTRIES(GPU_ENTRY)
#undef GPU_ENTRY
  WEFT_TRY(GPU_CALL(cuInit, 0));
  WEFT_TRY(GPU_CALL(cuDriverGetVersion, &gpu_cu.version));
  if (gpu_cu.version >= OLDEST_VERSION) {
    weft_status *st = find_conditions(get);
    if (st) WEFT_LOG("gpu", INFO, "graphs have no loops and branches: %s", weft_status_message(st));
    gpu_cu.has_conditions = st == NULL;
    weft_status_free(st);
    st = find_multicast(get);
    if (st) WEFT_LOG("gpu", INFO, "no memory of several GPUs at one address: %s", weft_status_message(st));
    gpu_cu.has_multicast = st == NULL;
    weft_status_free(st);
    return NULL;
  }
  return WEFT_ERR(UNAVAILABLE, "the CUDA driver is for version %d.%d; Weft needs %d.0", gpu_cu.version / 1000,
                  gpu_cu.version % 1000 / 10, OLDEST_VERSION / 1000);
}

weft_status *gpu_driver_open(void)
{
  weft_status *st = NULL;

  weft_mutex_lock(&open_mu);
  if (!is_open) {
    st = open_driver();
    is_open = st == NULL;
  }
  weft_mutex_unlock(&open_mu);
  return st;
}

static weft_code code_of(wcu_result result)
{
  switch (result) {
  case WCU_ERROR_OUT_OF_MEMORY: return WEFT_RESOURCE_EXHAUSTED;
  case WCU_ERROR_NOT_INITIALIZED: case WCU_ERROR_DEINITIALIZED: case WCU_ERROR_DEVICE_UNAVAILABLE:
  case WCU_ERROR_NO_DEVICE: case WCU_ERROR_INVALID_DEVICE: case WCU_ERROR_DEVICE_NOT_LICENSED:
  case WCU_ERROR_SYSTEM_NOT_READY: case WCU_ERROR_SYSTEM_DRIVER_MISMATCH:
  case WCU_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: return WEFT_UNAVAILABLE;
  case WCU_ERROR_NOT_SUPPORTED: case WCU_ERROR_NO_BINARY_FOR_GPU:
  case WCU_ERROR_UNSUPPORTED_PTX_VERSION: return WEFT_UNIMPLEMENTED;
  default: return WEFT_INTERNAL;
  }
}

weft_status *gpu_error(wcu_result result, const char *call)
{
  const char *name = NULL, *text = NULL;

  if (WEFT_LIKELY(result == WCU_SUCCESS)) return NULL;
  if (gpu_cu.cuGetErrorName) gpu_cu.cuGetErrorName(result, &name);
  if (gpu_cu.cuGetErrorString) gpu_cu.cuGetErrorString(result, &text);
  return weft_status_new(code_of(result), __FILE__, __LINE__, "%s: %s (%d)%s%s", call, name ? name : "CUDA error",
                         (int)result, text ? ": " : "", text ? text : "");
}

void gpu_drop_graph(wcu_graph graph)
{
  if (graph && gpu_cu.cuGraphDestroy(graph) != WCU_SUCCESS) gpu_cu.cuGraphDestroy(graph);
}

void gpu_drop_instance(wcu_graph_exec instance)
{
  if (instance && gpu_cu.cuGraphExecDestroy(instance) != WCU_SUCCESS) gpu_cu.cuGraphExecDestroy(instance);
}
