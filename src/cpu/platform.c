/* cpu/platform.c -- devices, memory and workers of the CPU platform (platform.h). */
#include <config.h>

#include "runtime/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/options.h"
#include "cpu/cpu_internal.h"
#include "cpu/blas.h"
#include "cpu/onednn.h"
#include "cpu/platform.h"
#include "cpu/topology.h"

static const int64_t HUGE = 2 << 20; /* allocations from this size on are mapped, and ask for huge pages */

static const weft_option options[] = {
  {"WEFT_DEVICES", WEFT_OPT_INT, "1", offsetof(cpu_settings, devices), "CPU devices of this process", "1.." WEFT_TEXT(WEFT_DEVICES_A_PROCESS)},
  {"WEFT_THREADS", WEFT_OPT_INT, "0", offsetof(cpu_settings, threads), "Worker threads; 0: one a usable core", "0.." WEFT_TEXT(WEFT_MOST_THREADS)},
  {"WEFT_PIN", WEFT_OPT_BOOL, "0", offsetof(cpu_settings, pin), "Bind each worker to a core"},
  {"WEFT_HUGE_PAGES", WEFT_OPT_BOOL, "1", offsetof(cpu_settings, huge_pages), "Ask for huge pages for large arrays"},
  {"WEFT_FLUSH_DENORMALS", WEFT_OPT_BOOL, "0", offsetof(cpu_settings, flush_denormals),
   "Take denormal floats for zero, as XLA:CPU does: arithmetic on them is many times slower than on others"},
  {"WEFT_DUMP_HLO", WEFT_OPT_STRING, "", offsetof(cpu_settings, dump_hlo), "Folder for the HLO after each pass, numbered"},
  {"WEFT_PERF_MAP", WEFT_OPT_BOOL, "0", offsetof(cpu_settings, perf_map),
   "Write the names of kernels to /tmp/perf-PID.map, where Linux perf looks for them"},
  {"WEFT_CACHE_BYTES", WEFT_OPT_BYTES, "0", offsetof(cpu_settings, cache_bytes),
   "Freed memory that a device keeps for reuse; 0: an eighth of the machine's for all devices"},
  {"WEFT_PACKED_BYTES", WEFT_OPT_BYTES, "0", offsetof(cpu_settings, packed_bytes),
   "Most memory for packed forms of weights, which are kept beside them; 0: an eighth of the machine's; 1: none"},
  {"WEFT_ONEDNN", WEFT_OPT_BOOL, "1", offsetof(cpu_settings, onednn),
   "Let oneDNN, where it is installed, compute the convolutions in which it is faster"},
};
const weft_option_table cpu_options = {"cpu", options, WEFT_COUNT(options)};

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static weft_status *allocate(weft_device *device, int space, int64_t bytes, void **out_data)
{
  (void)space; /* the same memory for all */
  const cpu_platform *cpu = (const cpu_platform *)device->platform;
  size_t size = (size_t)WEFT_ALIGN_UP(bytes, BUF_ALIGN);
  void *data = NULL;

  *out_data = NULL;
  if (bytes < HUGE) {
    if (posix_memalign(&data, BUF_ALIGN, size) != 0) data = NULL;
  } else { /* maps a little too much, and cuts it to where a huge page starts */
    size = (size_t)WEFT_ALIGN_UP(bytes, HUGE);
    char *mapped = mmap(NULL, size + (size_t)HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) {
      char *start = (char *)WEFT_ALIGN_UP((uintptr_t)mapped, (uintptr_t)HUGE);
      if (start > mapped) munmap(mapped, (size_t)(start - mapped));
      munmap(start + size, (size_t)(mapped + HUGE - start));
      if (cpu->settings.huge_pages) madvise(start, size, MADV_HUGEPAGE); /* a hint: may fail */
      data = start;
    }
  }
  if (!data) return WEFT_ERR(RESOURCE_EXHAUSTED, "cannot allocate %s", WEFT_BYTES(bytes));
  *out_data = data;
  return NULL;
}

static void deallocate(weft_device *device, int space, void *data, int64_t bytes)
{
  (void)device, (void)space;
  if (bytes < HUGE) free(data);
  else munmap(data, (size_t)WEFT_ALIGN_UP(bytes, HUGE));
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void on_worker_start(void *ctx, int index)
{
  const cpu_platform *cpu = ctx;
  /* set in both cases, because a thread inherits it from the thread that creates it */
  weft_thread_flush_denormals(cpu->base.flush_denormals);
  if (cpu->topology) cpu_topology_bind(cpu->topology, index);
}

void cpu_destroy(weft_platform *platform)
{
  cpu_platform *cpu = (cpu_platform *)platform;

  rt_platform_end(platform);
  cpu_topology_free(cpu->topology);
  free(cpu);
}

static const char *kind(const weft_platform *platform, int ordinal)
{
  (void)platform, (void)ordinal;
  return CPU_DEVICE_KIND;
}

static weft_status *fill(cpu_platform *cpu, const weft_platform_options *wanted)
{
  weft_platform *base = &cpu->base;
  int devices, threads;

  WEFT_TRY(weft_options_load(&cpu_options, &cpu->settings));
  devices = wanted->device_count > 0 ? wanted->device_count : (int)cpu->settings.devices;
  threads = wanted->threads > 0 ? wanted->threads : (int)cpu->settings.threads;
  if (devices < 1 || devices > WEFT_DEVICES_A_PROCESS)
    return WEFT_ERR(INVALID_ARGUMENT, "%d devices: 1 to %d are possible", devices, WEFT_DEVICES_A_PROCESS);
  if (threads < 1) threads = cpu_usable_threads();
  base->flush_denormals = cpu->settings.flush_denormals;
  cpu_onednn_allow(cpu->settings.onednn);
  base->memory_limit = cpu_memory_bytes();
  base->packed_limit = cpu->settings.packed_bytes > 0 ? cpu->settings.packed_bytes : base->memory_limit / 8;
  WEFT_TRY(rt_platform_add_devices(base, wanted, 0, devices, kind));
  for (int i = 0; i < devices; i++)
    base->devices[i].cache_limit = cpu->settings.cache_bytes > 0 ? cpu->settings.cache_bytes
                                                                 : base->memory_limit / 8 / devices;
  WEFT_TRY(rt_platform_join_job(base, wanted));
  if (cpu->settings.pin) WEFT_TRY(cpu_topology_new(&cpu->topology));
  return rt_pool_new(&(rt_pool_options){.threads = threads, .on_start = on_worker_start, .ctx = cpu}, &base->pool);
}

weft_status *cpu_create(const weft_platform_ops *ops, const weft_platform_options *wanted, weft_platform **out_platform)
{
  cpu_platform *cpu = calloc(1, sizeof *cpu);
  weft_status *st;

  *out_platform = NULL;
  cpu_blas_init();
  WEFT_TRY_ALLOC(cpu);
  rt_platform_begin(&cpu->base, ops, wanted);
  st = fill(cpu, wanted);
  if (st) {
    cpu_destroy(&cpu->base);
    return st;
  }
  *out_platform = &cpu->base;
  return NULL;
}

static const weft_memory_space spaces[WEFT_MEMORY_SPACES] = {
  {"device", BUF_ALIGN, true}, {"pinned_host", BUF_ALIGN, true}, {"unpinned_host", BUF_ALIGN, true},
};
const weft_device_ops cpu_device_ops = {
  .size = sizeof(weft_device_ops), .spaces = spaces, .allocate = allocate, .deallocate = deallocate,
};
