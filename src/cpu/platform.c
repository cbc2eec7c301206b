/* cpu/platform.c -- devices, memory and workers of the CPU platform (platform.h). */
#include <config.h>

#include "runtime/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/machine.h"
#include "base/options.h"
#include "codegen/model/processor.h"
#include "cpu/cpu_internal.h"
#include "cpu/blas.h"
#include "cpu/onednn.h"
#include "cpu/places.h"
#include "cpu/platform.h"
#include "cpu/topology.h"

static const int64_t HUGE = 2 << 20; /* allocations from this size on are mapped, and ask for huge pages */

static const weft_option options[] = {
  {"WEFT_DEVICES", WEFT_OPT_INT, "1", offsetof(cpu_settings, devices), "CPU devices of this process", "1.." WEFT_TEXT(WEFT_DEVICES_A_PROCESS)},
  {"WEFT_THREADS", WEFT_OPT_INT, "0", offsetof(cpu_settings, threads), "Worker threads; 0: one for each CPU that is this process's (docs/scaling.md)", "0.." WEFT_TEXT(WEFT_MOST_THREADS)},
  {"WEFT_PIN", WEFT_OPT_STRING, "auto", offsetof(cpu_settings, pin),
   "Bind workers to a NUMA node, or each to a CPU (core or 1), or not (none or 0); auto: to a node if there are several and the workers fill all CPUs that the process may use", "auto|none|node|core|0|1"},
  {"WEFT_NUMA", WEFT_OPT_BOOL, "1", offsetof(cpu_settings, numa), "Place memory and work by NUMA node on machines that have several"},
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
      rt_numa_prefer(&cpu->base.numa, device->home, start, (int64_t)size);
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
  if (cpu->places) cpu_places_bind(cpu->places, index - 1);
}

static int node_here(void *ctx) { return rt_numa_here(&((const cpu_platform *)ctx)->base.numa); }

void cpu_destroy(weft_platform *platform)
{
  cpu_platform *cpu = (cpu_platform *)platform;

  rt_platform_end(platform);
  cpu_places_free(cpu->places);
  free(cpu);
}

static const char *kind(const weft_platform *platform, int ordinal)
{
  (void)platform, (void)ordinal;
  return CPU_DEVICE_KIND;
}

/* Gives each device a home among the nodes if there are as many devices as nodes. A device that has no home uses all
 * nodes. */
static void settle_devices(weft_platform *base, const cpu_places *places)
{
  for (int i = 0; i < base->device_count; i++) {
    weft_device *device = &base->devices[i];
    if (base->device_count < places->numa.count) continue;
    device->home = (int)((int64_t)i * places->numa.count / base->device_count);
    device->numa_node = places->numa.numbers[device->home];
  }
}

/* Says where workers and devices belong. Most machines have one node, where there is nothing to say. */
static weft_status *place(cpu_platform *cpu, rt_pool_options *pool)
{
  bool several = cpu->settings.numa && weft_machine_node_count() > 1;

  if (!several && cpu_pin_of(cpu->settings.pin) != CPU_PIN_CORE) return NULL;
  WEFT_TRY(cpu_places_new(pool->threads, cpu_pin_of(cpu->settings.pin), &cpu->places));
  if (!several) return NULL;
  settle_devices(&cpu->base, cpu->places);
  cpu->base.numa = cpu->places->numa;
  pool->nodes = cpu->places->node_of;
  pool->node_count = cpu->places->numa.count;
  pool->node_here = node_here;
  WEFT_LOG("cpu", INFO, "%d NUMA nodes, %d workers, bound: %s", cpu->places->numa.count, pool->threads,
           cpu_pin_words[cpu->places->pin]);
  return NULL;
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
  if (threads < 1) threads = WEFT_MIN(weft_cores_here().threads, WEFT_MOST_THREADS);
  base->flush_denormals = cpu->settings.flush_denormals;
  cpu_onednn_allow(cpu->settings.onednn);
  base->memory_limit = cpu_memory_bytes();
  base->packed_limit = cpu->settings.packed_bytes > 0 ? cpu->settings.packed_bytes : base->memory_limit / 8;
  WEFT_TRY(rt_platform_add_devices(base, wanted, 0, devices, kind));
  for (int i = 0; i < devices; i++)
    base->devices[i].cache_limit = cpu->settings.cache_bytes > 0 ? cpu->settings.cache_bytes
                                                                 : base->memory_limit / 8 / devices;
  WEFT_TRY(rt_platform_join_job(base, wanted));
  rt_pool_options pool = {.threads = threads, .on_start = on_worker_start, .ctx = cpu};
  WEFT_TRY(place(cpu, &pool));
  return rt_pool_new(&pool, &base->pool);
}

weft_status *cpu_create(const weft_platform_ops *ops, const weft_platform_options *wanted, weft_platform **out_platform)
{
  cpu_platform *cpu = calloc(1, sizeof *cpu);
  weft_status *st;

  *out_platform = NULL;
  if (gen_isa_limit_is_unknown())
    WEFT_LOG("cpu", WARN, "XLA_FLAGS: xla_cpu_max_isa is no instruction set that XLA knows; expected %s",
             gen_isa_names());
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
