/* tests/gpu/emulator/code.c -- modules, kernels, and their launches. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "image.h"

static char last_error[800];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

void emu_say(const char *text)
{
  pthread_mutex_lock(&mu);
  snprintf(last_error, sizeof last_error, "%s", text);
  pthread_mutex_unlock(&mu);
}
__attribute__((visibility("default"))) const char *weft_emu_last_error(void) { return last_error; }

/* ---- counters ---- */

typedef struct counter { char *name; ptx_stats stats; struct counter *next; } counter;
static counter *counters;

static void add_stats(ptx_stats *to, const ptx_stats *from)
{
  uint64_t *a = (uint64_t *)to;
  const uint64_t *b = (const uint64_t *)from;
  for (size_t n = 0; n < sizeof *to / sizeof *a; n++) a[n] += b[n];
}

static void count(const char *name, const ptx_stats *stats)
{
  pthread_mutex_lock(&mu);
  counter *c = counters;
  while (c && strcmp(c->name, name) != 0) c = c->next;
  if (!c && (c = calloc(1, sizeof *c))) {
    c->name = strdup(name), c->next = counters;
    counters = c;
  }
  if (c) add_stats(&c->stats, stats);
  pthread_mutex_unlock(&mu);
}

__attribute__((visibility("default"))) bool weft_emu_counters(const char *kernel, ptx_stats *out)
{
  bool any = false;
  *out = (ptx_stats){0};
  pthread_mutex_lock(&mu);
  for (counter *c = counters; c; c = c->next)
    if (!kernel || strcmp(c->name, kernel) == 0) add_stats(out, &c->stats), any = true;
  pthread_mutex_unlock(&mu);
  return any;
}

/* ---- modules ---- */

static bool make_global(void *ctx, size_t size, size_t align, uint64_t *address, uint8_t **host)
{
  const struct wcu_context_st *c = ctx;
  if (emu_alloc(c->device, size, align, EMU_MODULE, NULL, address)) return false;
  *host = emu_host(*address);
  return true;
}

static void drop_global(void *ctx, uint64_t address)
{
  (void)ctx;
  emu_free(address, 1 << EMU_MODULE);
}

static void write_log(const char *text, unsigned n, const wcu_jit_option *options, void *const *values)
{
  char *log = NULL;
  size_t size = 0;
  for (unsigned k = 0; k < n; k++) {
    if (options[k] == WCU_JIT_ERROR_LOG_BUFFER) log = values[k];
    if (options[k] == WCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = (size_t)(uintptr_t)values[k];
  }
  if (log && size) snprintf(log, size, "%s", text);
}

static wcu_result load(wcu_module *out, const void *image, unsigned n, const wcu_jit_option *options,
                       void *const *values)
{
  if (!out || !image) return WCU_ERROR_INVALID_VALUE;
  char error[600] = "the image is no PTX text";
  ptx_globals globals = {make_global, drop_global, emu_current};
  char *opened = NULL;
  const char *text = image;
  wcu_result r = WCU_SUCCESS;
  if (emu_image_is(image)) {
    int sm = 0;
    text = opened = emu_image_open(image, &sm, error, sizeof error);
    if (!opened) r = sm ? WCU_ERROR_INVALID_IMAGE : WCU_ERROR_NO_BINARY_FOR_GPU;
    else if (sm != emu_set.device.sm) r = WCU_ERROR_NO_BINARY_FOR_GPU;
    if (opened && r)
      snprintf(error, sizeof error, "the machine code is for sm_%d, the device is sm_%d", sm, emu_set.device.sm);
  }
  bool is_text = !r && (text[0] == '.' || text[0] == '/' || text[0] == '\n');
  ptx_module *ptx = is_text ? ptx_load(text, strlen(text), &globals, error, sizeof error) : NULL;
  free(opened);
  if (!r && !ptx) r = WCU_ERROR_INVALID_PTX;
  if (ptx && ptx_target(ptx) > (unsigned)emu_set.device.sm) {
    snprintf(error, sizeof error, "the PTX is for sm_%u, the device is sm_%d", ptx_target(ptx), emu_set.device.sm);
    ptx_free(ptx);
    r = WCU_ERROR_NO_BINARY_FOR_GPU;
  }
  if (r) {
    emu_say(error);
    write_log(error, n, options, values);
    return r;
  }
  *out = calloc(1, sizeof **out);
  if (!*out) {
    ptx_free(ptx);
    return WCU_ERROR_OUT_OF_MEMORY;
  }
  (*out)->ptx = ptx, (*out)->context = emu_current;
  return WCU_SUCCESS;
}

static void unload(wcu_module m)
{
  for (wcu_function f = m->functions, next; f; f = next) {
    next = f->next;
    free(f);
  }
  ptx_free(m->ptx);
  free(m);
}

EMU_API cuModuleLoadDataEx(wcu_module *module, const void *image, unsigned n, wcu_jit_option *options, void **values)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return load(module, image, n, options, values);
}

EMU_API cuModuleLoadData(wcu_module *module, const void *image)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return load(module, image, 0, NULL, NULL);
}

EMU_API cuModuleUnload(wcu_module module)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!module) return WCU_ERROR_INVALID_HANDLE;
  unload(module);
  return WCU_SUCCESS;
}

static wcu_result get_function(wcu_function *out, wcu_module m, const char *name)
{
  if (!out || !m || !name) return WCU_ERROR_INVALID_VALUE;
  wcu_result r = WCU_ERROR_NOT_FOUND;
  pthread_mutex_lock(&mu);
  wcu_function f = m->functions;
  while (f && strcmp(ptx_name(f->kernel), name) != 0) f = f->next;
  ptx_kernel *k = f ? NULL : ptx_find(m->ptx, name);
  if (k && (f = calloc(1, sizeof *f))) {
    *f = (struct wcu_function_st){m->functions, m, k, emu_set.device.shared_per_block - (int)ptx_static_shared(k)};
    m->functions = f;
  }
  if (f) *out = f, r = WCU_SUCCESS;
  pthread_mutex_unlock(&mu);
  return r;
}

EMU_API cuModuleGetFunction(wcu_function *function, wcu_module module, const char *name)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return get_function(function, module, name);
}

static wcu_result get_global(wcu_ptr *at, size_t *bytes, wcu_module m, const char *name)
{
  uint64_t address;
  size_t size;
  if (!m || !name) return WCU_ERROR_INVALID_VALUE;
  if (!ptx_global(m->ptx, name, &address, &size)) return WCU_ERROR_NOT_FOUND;
  if (at) *at = address;
  if (bytes) *bytes = size;
  return WCU_SUCCESS;
}

EMU_API cuModuleGetGlobal_v2(wcu_ptr *at, size_t *bytes, wcu_module module, const char *name)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return get_global(at, bytes, module, name);
}

EMU_API cuModuleGetFunctionCount(unsigned *n, wcu_module module)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!n || !module) return WCU_ERROR_INVALID_VALUE;
  for (*n = 0; ptx_kernel_at(module->ptx, *n); ++*n) {}
  return WCU_SUCCESS;
}

/* A library is a module of the context that loaded it; its kernels are the module's functions. */
EMU_API cuLibraryLoadData(wcu_library *library, const void *image, wcu_jit_option *options, void **values, unsigned n,
                          void *library_options, void **library_values, unsigned library_count)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  (void)library_options, (void)library_values, (void)library_count;
  return load((wcu_module *)library, image, n, options, values);
}

EMU_API cuLibraryUnload(wcu_library library)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!library) return WCU_ERROR_INVALID_HANDLE;
  unload((wcu_module)library);
  return WCU_SUCCESS;
}

EMU_API cuLibraryGetKernel(wcu_kernel *kernel, wcu_library library, const char *name)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return get_function((wcu_function *)kernel, (wcu_module)library, name);
}

EMU_API cuLibraryGetModule(wcu_module *module, wcu_library library)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!module || !library) return WCU_ERROR_INVALID_VALUE;
  *module = (wcu_module)library;
  return WCU_SUCCESS;
}

EMU_API cuLibraryGetGlobal(wcu_ptr *at, size_t *bytes, wcu_library library, const char *name)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return get_global(at, bytes, (wcu_module)library, name);
}

EMU_API cuKernelGetFunction(wcu_function *function, wcu_kernel kernel)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!function || !kernel) return WCU_ERROR_INVALID_VALUE;
  *function = (wcu_function)kernel;
  return WCU_SUCCESS;
}

/* ---- attributes and occupancy ---- */

/* No assembler has given out registers: 32 a thread is what Weft's kernels need at most half the time. */
enum { REGISTERS = 32, REGISTER_FILE = 65536, RESERVED_SHARED = 1024 };

EMU_API cuFuncGetAttribute(int *value, wcu_func_attribute attribute, wcu_function f)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!value || !f) return WCU_ERROR_INVALID_VALUE;
  switch (attribute) {
  case WCU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = ptx_max_threads(f->kernel) ? (int)ptx_max_threads(f->kernel) : 1024;
    break;
  case WCU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)ptx_static_shared(f->kernel); break;
  case WCU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = (int)ptx_local_bytes(f->kernel); break;
  case WCU_FUNC_ATTRIBUTE_NUM_REGS: *value = REGISTERS; break;
  case WCU_FUNC_ATTRIBUTE_PTX_VERSION: *value = (int)ptx_target(f->module->ptx); break;
  case WCU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = emu_set.device.sm; break;
  case WCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = f->max_dynamic; break;
  default: *value = 0;
  }
  return WCU_SUCCESS;
}

EMU_API cuFuncSetAttribute(wcu_function f, wcu_func_attribute attribute, int value)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!f) return WCU_ERROR_INVALID_HANDLE;
  if (attribute != WCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return WCU_SUCCESS;
  if (value < 0 || value + (int)ptx_static_shared(f->kernel) > emu_set.device.shared_opt_in)
    return WCU_ERROR_INVALID_VALUE;
  f->max_dynamic = value;
  return WCU_SUCCESS;
}

EMU_API cuFuncGetParamInfo(wcu_function f, size_t index, size_t *offset, size_t *bytes)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!f || index >= ptx_param_count(f->kernel)) return WCU_ERROR_INVALID_VALUE;
  size_t at, size;
  ptx_param(f->kernel, index, &at, &size);
  if (offset) *offset = at;
  if (bytes) *bytes = size;
  return WCU_SUCCESS;
}

static int occupancy(const struct wcu_function_st *f, int threads, size_t dynamic)
{
  const emu_device *d = &emu_set.device;
  int warps = (threads + 31) / 32;
  if (threads <= 0 || threads > 1024) return 0;
  int n = d->threads_per_processor / (warps * 32), by_registers = REGISTER_FILE / (REGISTERS * warps * 32);
  size_t shared = ptx_static_shared(f->kernel) + dynamic + (d->sm >= 80 ? RESERVED_SHARED : 0);
  int by_shared = shared ? (int)((size_t)d->shared_per_processor / shared) : d->blocks_per_processor;
  if (by_registers < n) n = by_registers;
  if (by_shared < n) n = by_shared;
  return n < d->blocks_per_processor ? n : d->blocks_per_processor;
}

EMU_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, wcu_function f, int threads, size_t shared)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!n || !f || threads <= 0) return WCU_ERROR_INVALID_VALUE;
  *n = occupancy(f, threads, shared);
  return WCU_SUCCESS;
}

EMU_API cuOccupancyMaxPotentialBlockSize(int *grid, int *block, wcu_function f, wcu_block_to_shared to_shared,
                                         size_t shared, int limit)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!grid || !block || !f) return WCU_ERROR_INVALID_VALUE;
  int most = ptx_max_threads(f->kernel) ? (int)ptx_max_threads(f->kernel) : 1024, best = 0;
  if (limit > 0 && limit < most) most = limit;
  for (int t = 32; t <= most; t += 32) {
    int n = occupancy(f, t, to_shared ? to_shared(t) : shared);
    if (n * t >= best) best = n * t, *block = t, *grid = n * emu_set.device.processors;
  }
  return best ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

/* ---- launches ---- */

static bool fits(const wcu_kernel_node_params *p, bool cooperative, wcu_result *why)
{
  uint64_t threads = (uint64_t)p->blockDimX * p->blockDimY * p->blockDimZ,
           blocks = (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ;
  const struct wcu_function_st *f = p->func;
  *why = WCU_ERROR_INVALID_VALUE;
  if (!threads || !blocks || p->blockDimX > 1024 || p->blockDimY > 1024 || p->blockDimZ > 64 || threads > 1024)
    return false;
  if (p->gridDimX > 0x7fffffffu || p->gridDimY > 65535 || p->gridDimZ > 65535) return false;
  if (ptx_max_threads(f->kernel) && threads > ptx_max_threads(f->kernel)) return false;
  if ((int64_t)p->sharedMemBytes > f->max_dynamic) return false;
  *why = WCU_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return !cooperative ||
         blocks <= (uint64_t)occupancy(f, (int)threads, p->sharedMemBytes) * (uint64_t)emu_set.device.processors;
}

wcu_result emu_kernel_work(const wcu_kernel_node_params *p, bool cooperative, emu_work *out)
{
  wcu_result why;
  if (!p->func) return WCU_ERROR_INVALID_HANDLE;
  if (!fits(p, cooperative, &why)) return why;
  const ptx_kernel *k = p->func->kernel;
  size_t size = ptx_params_size(k);
  *out = (emu_work){
    .what = EMU_KERNEL, .kernel = *p, .cooperative = cooperative, .bytes = calloc(1, size + 16), .byte_count = size};
  if (!out->bytes) return WCU_ERROR_OUT_OF_MEMORY;
  if (p->extra) { /* pairs: 1 the buffer, 2 a pointer to its size, 0 the end */
    for (void **e = p->extra; *e; e += 2)
      if (*e == (void *)1) memcpy(out->bytes, e[1], size);
  } else {
    for (size_t n = 0; n < ptx_param_count(k); n++) {
      size_t at, bytes;
      ptx_param(k, n, &at, &bytes);
      if (!p->kernelParams || !p->kernelParams[n]) {
        emu_work_drop(out);
        return WCU_ERROR_INVALID_VALUE;
      }
      memcpy((char *)out->bytes + at, p->kernelParams[n], bytes);
    }
  }
  out->kernel.kernelParams = out->kernel.extra = NULL;
  return WCU_SUCCESS;
}

int emu_run_kernel(const emu_work *w, wcu_context c, char *error, size_t size)
{
  const wcu_kernel_node_params *p = &w->kernel;
  ptx_memory memory;
  emu_memory_of(c->device, &memory);
  ptx_launch la = {.grid = {p->gridDimX, p->gridDimY, p->gridDimZ}, .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                   .dynamic_shared = p->sharedMemBytes, .params = w->bytes, .params_size = w->byte_count, .memory = &memory,
                   .device = (int)c->device, .cooperative = w->cooperative, .order = emu_set.order, .seed = emu_set.order == PTX_INTERLEAVED ? emu_random() : 0,
                   .checks = emu_set.checks, .count_sectors = emu_set.sectors, .budget = emu_set.budget, .set_conditional = emu_condition_set};
  ptx_stats stats = {0};
  int r = ptx_run(p->func->kernel, &la, &stats, error, size);
  count(ptx_name(p->func->kernel), &stats);
  return r;
}

static wcu_result launch(const wcu_kernel_node_params *p, bool cooperative, wcu_stream stream)
{
  emu_work w;
  wcu_result r = emu_kernel_work(p, cooperative, &w);
  return r ? r : emu_submit(stream, &w);
}

EMU_API cuLaunchKernel(wcu_function f, WCU_DIMS, unsigned shared, wcu_stream stream, void **params, void **extra)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return launch(&(wcu_kernel_node_params){f, gx, gy, gz, bx, by, bz, shared, params, extra, NULL, NULL}, false, stream);
}

EMU_API cuLaunchCooperativeKernel(wcu_function f, WCU_DIMS, unsigned shared, wcu_stream stream, void **params)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return launch(&(wcu_kernel_node_params){f, gx, gy, gz, bx, by, bz, shared, params, NULL, NULL, NULL}, true, stream);
}

EMU_API cuLaunchKernelEx(const wcu_launch_config *c, wcu_function f, void **params, void **extra)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!c) return WCU_ERROR_INVALID_VALUE;
  bool cooperative = false;
  for (unsigned n = 0; n < c->numAttrs; n++) {
    if (c->attrs[n].id == WCU_LAUNCH_ATTRIBUTE_COOPERATIVE) cooperative = c->attrs[n].value.cooperative;
    if (c->attrs[n].id == WCU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) return WCU_ERROR_NOT_SUPPORTED;
  }
  wcu_kernel_node_params p = {f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, c->sharedMemBytes,
                              params, extra, NULL, NULL};
  return launch(&p, cooperative, c->hStream);
}
