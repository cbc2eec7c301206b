/* tests/gpu/driver.h -- the emulated driver for a test: opens libcuda.so.1 of the
 * build and resolves what the test calls. */
#ifndef WEFT_TESTS_GPU_DRIVER_H
#define WEFT_TESTS_GPU_DRIVER_H

#include "test.h"

#include <dlfcn.h>
#include <unistd.h>

#include "emulator/weft_emu.h"
#include "gpu/abi/cuda.h"

#define WCU_FN(name, symbol, args) static wcu_fn_##symbol symbol __attribute__((unused));
WCU_ENTRIES(WCU_FN)
#undef WCU_FN
static void (*emu_reset)(void) __attribute__((unused));
static const char *(*emu_last_error)(void)__attribute__((unused));
static bool (*emu_counters)(const char *, ptx_stats *) __attribute__((unused));
static size_t (*emu_leaks)(char *, size_t) __attribute__((unused));
static void (*emu_faults)(const char *) __attribute__((unused));
static size_t (*emu_faults_left)(void) __attribute__((unused));
static uint64_t (*emu_calls)(const char *) __attribute__((unused));

static inline void open_driver(void)
{
  const char *build = getenv("WEFT_BUILDDIR");
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/gpu/emulator/.libs/libcuda.so.1", build ? build : ".");
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    printf("Bail out! %s\n", dlerror());
    exit(99);
  }
  wcu_fn_cuGetProcAddress_v2 get;
  *(void **)&get = dlsym(lib, "cuGetProcAddress_v2");
#define WCU_FN(name, symbol, args)                                                                      \
  if (get(#name, (void **)&symbol, WCU_VERSION, 0, NULL) || (void *)symbol != dlsym(lib, #symbol)) {      \
    printf("Bail out! no %s\n", #symbol);                                                               \
    exit(99);                                                                                           \
  }
  WCU_ENTRIES(WCU_FN)
#undef WCU_FN
  *(void **)&emu_reset = dlsym(lib, "weft_emu_reset");
  *(void **)&emu_last_error = dlsym(lib, "weft_emu_last_error");
  *(void **)&emu_counters = dlsym(lib, "weft_emu_counters");
  *(void **)&emu_leaks = dlsym(lib, "weft_emu_leaks");
  *(void **)&emu_faults = dlsym(lib, "weft_emu_faults");
  *(void **)&emu_faults_left = dlsym(lib, "weft_emu_faults_left");
  *(void **)&emu_calls = dlsym(lib, "weft_emu_calls");
}

#define CU(call)                                                                                          \
  do {                                                                                                    \
    wcu_result cu_r_ = (call);                                                                            \
    const char *cu_s_ = "?";                                                                              \
    if (cu_r_) cuGetErrorName(cu_r_, &cu_s_);                                                             \
    if (cu_r_) fail_msg("%s: %s (%s)", #call, cu_s_, emu_last_error());                                   \
  } while (0)
#define CU_IS(call, want)                                                                                 \
  do {                                                                                                    \
    wcu_result cu_r_ = (call);                                                                            \
    if (cu_r_ != (want)) fail_msg("%s: got %d (%s), want %d", #call, cu_r_, emu_last_error(), (want));    \
  } while (0)

/* Waits until the work of all streams is done, or one of them has failed, for which the others may wait. Returns the
 * error; WCU_ERROR_NOT_READY: neither within 20 s. */
static inline wcu_result await_streams(wcu_context *contexts, wcu_stream *streams, int count)
{
  for (int ms = 0; ms < 20000; ms++, usleep(1000)) {
    int done = 0;
    for (int i = 0; i < count; i++) {
      CU(cuCtxSetCurrent(contexts[i]));
      wcu_result result = cuStreamQuery(streams[i]);
      if (result != WCU_SUCCESS && result != WCU_ERROR_NOT_READY) return result;
      done += result == WCU_SUCCESS;
    }
    if (done == count) return WCU_SUCCESS;
  }
  return WCU_ERROR_NOT_READY;
}

#endif
