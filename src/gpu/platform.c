/* gpu/platform.c -- the CUDA platform (platform.h): its settings, its life, its table. */
#include <config.h>

#include "gpu/platform.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/machine.h"
#include "gpu/assemble.h"
#include "gpu/communicator.h"
#include "gpu/gpu_internal.h"
#include "gpu/jobs.h"
#include "gpu/peer.h"

/* The default number of workers: the host only launches, and does steps without a kernel. */
#define MOST_THREADS 16

static const weft_option options[] = {
  {"WEFT_CUDA_LIBDIR", WEFT_OPT_STRING, "", offsetof(gpu_settings, libdir),
   "Folder of libcuda.so.1 and NVIDIA's other libraries; empty: where the loader finds them"},
  {"WEFT_CUDA_DEVICES", WEFT_OPT_INT, "0", offsetof(gpu_settings, devices), "GPUs to use, the first ones; 0: all", "0.." WEFT_TEXT(WEFT_DEVICES_A_PROCESS)},
  {"WEFT_THREADS", WEFT_OPT_INT, "0", offsetof(gpu_settings, threads), "Worker threads; 0: as on the CPU (docs/scaling.md), at most " WEFT_TEXT(MOST_THREADS), "0.." WEFT_TEXT(WEFT_MOST_THREADS)},
  {"WEFT_CUDA_TIMEOUT", WEFT_OPT_DURATION, "10m", offsetof(gpu_settings, timeout_ns), "Time without progress on any GPU after which a GPU counts as hung; 0: never"},
  {"WEFT_CUDA_COLLECTIVES", WEFT_OPT_STRING, "auto", offsetof(gpu_settings, collectives),
   "What moves data between GPUs: NCCL, kernels and copies between the GPUs of a process, or what suits the size", "auto|nccl|peers"},
  {"WEFT_CUDA_COLLECTIVE_MEMORY", WEFT_OPT_BOOL, "0", offsetof(gpu_settings, collective_memory), "Let temporaries of collectives, and buffers from 4 MiB on, lie in memory that NCCL registers, as symmetric windows where the library has them"},
  {"WEFT_CUDA_MULTICAST", WEFT_OPT_BOOL, "1", offsetof(gpu_settings, multicast), "Let collectives between the GPUs of a process use the multicast instructions of NVLink's switches, where all of the GPUs have them"},
  {"WEFT_CUDA_SHRINK", WEFT_OPT_BOOL, "1", offsetof(gpu_settings, shrink), "Shrink NCCL's communicator of a group that has lost members for the survivors, instead of making a new one"},
  {"WEFT_CUDA_SPLIT", WEFT_OPT_BOOL, "1", offsetof(gpu_settings, split), "Split NCCL's communicators of a program off a communicator of more of its devices, instead of making each anew"},
  {"WEFT_CUDA_SHARE", WEFT_OPT_INT, "1", offsetof(gpu_settings, share), "Devices that each GPU appears as, which share its memory; for tests of programs for several GPUs", "1..16"},
  {"WEFT_CUDA_GRAPHS", WEFT_OPT_INT, "5", offsetof(gpu_settings, graphs), "Steps in a row that are queued as one CUDA graph, at least; 0: each step is queued by itself", "0..1000000"},
  {"WEFT_CUDA_GRAPH_LOOPS", WEFT_OPT_BOOL, "1", offsetof(gpu_settings, graph_loops), "Let loops and branches be part of CUDA graphs, where the driver has conditional nodes"},
  {"WEFT_CUDA_GRAPH_UNROLL", WEFT_OPT_INT, "1024", offsetof(gpu_settings, graph_unroll), "Steps in all rounds of a loop with collectives and a known number of rounds that may be part of a CUDA graph, at most; 0: no such loop is", "0..65536"},
  {"WEFT_CUDA_TF32", WEFT_OPT_BOOL, "0", offsetof(gpu_settings, tf32), "Let products and convolutions of f32 round their operands to tf32, as XLA does, unless their precision is HIGHEST"},
  {"WEFT_CUDA_NUMA", WEFT_OPT_BOOL, "1", offsetof(gpu_settings, numa), "Bind threads that call the driver to the CPUs of their GPU's NUMA node"},
  {"WEFT_CUDA_ASSEMBLER", WEFT_OPT_STRING, "auto", offsetof(gpu_settings, assembler),
   "What makes machine code of PTX; auto: the first of the three that there is", "auto|nvjitlink|ptxas|driver"},
  {"WEFT_CUDA_PTXAS", WEFT_OPT_STRING, "", offsetof(gpu_settings, ptxas),
   "Path of ptxas; empty: bin/ptxas of the folder given to configure, if it is there"},
  {"WEFT_DUMP_HLO", WEFT_OPT_STRING, "", offsetof(gpu_settings, dump_hlo), "Folder for the HLO after each pass, numbered"},
};
const weft_option_table gpu_options = {"cuda", options, WEFT_COUNT(options)};

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void destroy(weft_platform *platform)
{
  gpu_platform *gpu = (gpu_platform *)platform;

  /* nothing waits any more for what the devices still compute */
  for (int i = 0; gpu->gpus && i < gpu->gpu_count; i++) gpu_loops_stop(&gpu->gpus[i]);
  rt_platform_end(platform);
  /* memory that a thread in a call which does not return uses is not freed */
  if (atomic_load(&gpu->threads_left) > 0) return;
  gpu_peer_kernels_free(gpu);
  gpu_ender_free(gpu->ender);
  gpu_completer_stop(&gpu->completer);
  for (int i = 0; i < gpu->gpu_count; i++) gpu_device_close(&gpu->gpus[i]);
  free(gpu->gpus);
  free(gpu->nodes);
  weft_mutex_fini(&gpu->launching);
  free(gpu);
}

void gpu_platform_leave_thread(weft_platform *platform)
{
  atomic_fetch_add(&((gpu_platform *)platform)->threads_left, 1);
}

static const char *kind(const weft_platform *platform, int ordinal)
{
  return ((const gpu_platform *)platform)->gpus[ordinal].kind;
}

/* The number of the driver's device that device `ordinal` of this process is, or is a share of. */
static int index_of(const gpu_platform *gpu, const weft_platform_options *wanted, int first, int ordinal)
{
  return (wanted->device_ordinals ? wanted->device_ordinals[ordinal] : first + ordinal) / (int)gpu->settings.share;
}

static weft_status *open_devices(gpu_platform *gpu, const weft_platform_options *wanted, int first, int count)
{
  gpu->gpus = calloc((size_t)count, sizeof *gpu->gpus);
  WEFT_TRY_ALLOC(gpu->gpus);
  gpu->gpu_count = count;
  gpu->base.memory_limit = INT64_MAX;
  for (int i = 0; i < count; i++) {
    int index = index_of(gpu, wanted, first, i);
    WEFT_TRY(gpu_device_read(index, &gpu->gpus[i]));
    WEFT_LOG("gpu", INFO, "device %d is GPU %d, %s", i, index, gpu->gpus[i].kind);
    gpu->gpus[i].bytes /= gpu->settings.share;
    gpu->base.memory_limit = WEFT_MIN(gpu->base.memory_limit, gpu->gpus[i].bytes);
    gpu->gpus[i].timeout_ns = gpu->settings.timeout_ns;
    if (!gpu->settings.numa) gpu->gpus[i].node = GPU_NO_NODE;
    if (i == 0) gpu->node = gpu->gpus[i].node;
    else if (gpu->gpus[i].node != gpu->node) gpu->node = GPU_NO_NODE;
  }
  for (int i = 0; i < count; i++) WEFT_TRY_NOTE(gpu_device_open(&gpu->gpus[i]), "device %d", i);
  for (int i = 0; i < count; i++) WEFT_TRY_NOTE(gpu_device_join(gpu->gpus, i, count), "device %d", i);
  return NULL;
}

static int usable_threads(int node)
{
  cpu_set_t allowed, near;

  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  int count = CPU_COUNT(gpu_numa_cpus(node, &allowed, &near) ? &near : &allowed);
  count = WEFT_MIN(count, weft_cores_here().threads);
  return WEFT_MAX(WEFT_MIN(count, MOST_THREADS), 1);
}

static int compare_nodes(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Lists the nodes of the GPUs. */
static weft_status *find_nodes(gpu_platform *gpu)
{
  int count = 0;

  WEFT_TRY_ALLOC(gpu->nodes = malloc((size_t)gpu->gpu_count * sizeof *gpu->nodes));
  for (int i = 0; i < gpu->gpu_count; i++) {
    if (gpu->gpus[i].node == GPU_NO_NODE) return NULL;
    gpu->nodes[i] = gpu->gpus[i].node;
  }
  qsort(gpu->nodes, (size_t)gpu->gpu_count, sizeof *gpu->nodes, compare_nodes);
  for (int i = 0; i < gpu->gpu_count; i++)
    if (count == 0 || gpu->nodes[i] != gpu->nodes[count - 1]) gpu->nodes[count++] = gpu->nodes[i];
  gpu->node_count = count;
  return NULL;
}

/* The node of worker number `index`, from 0, of `threads`: an index of gpu->nodes. */
static int node_of_worker(const gpu_platform *gpu, int index, int threads)
{
  return (int)((int64_t)index * gpu->node_count / threads);
}

static void worker_starts(void *ctx, int index)
{
  const gpu_platform *gpu = ctx;

  if (gpu->node_count > 0) gpu_numa_bind(gpu->nodes[node_of_worker(gpu, index - 1, gpu->threads)]);
}

/* Starts the workers.  Each has the node of some GPUs, whose runs it launches; the nodes have as many each. */
static weft_status *start_workers(gpu_platform *gpu, int threads)
{
  rt_pool_options options = {.threads = threads, .on_start = worker_starts, .ctx = gpu};
  int *nodes = NULL;

  gpu->threads = threads;
  if (gpu->node_count > 1) {
    WEFT_TRY_ALLOC(nodes = malloc((size_t)threads * sizeof *nodes));
    for (int i = 0; i < threads; i++) nodes[i] = node_of_worker(gpu, i, threads);
    for (int i = 0; i < gpu->gpu_count; i++)
      for (int n = 0; n < gpu->node_count; n++)
        if (gpu->nodes[n] == gpu->gpus[i].node) gpu->base.devices[i].home = n;
    options.nodes = nodes;
    options.node_count = gpu->node_count;
    options.node_patience_ns = gpu_numa_patience_ns;
  }
  weft_status *st = rt_pool_new(&options, &gpu->base.pool);
  free(nodes);
  return st;
}

static weft_status *fill(gpu_platform *gpu, const weft_platform_options *wanted)
{
  weft_platform *base = &gpu->base;
  int there, count, threads;

  WEFT_TRY(weft_options_load(&gpu_options, &gpu->settings));
  WEFT_TRY(gpu_device_count(&there));
  there *= (int)gpu->settings.share;
  count = wanted->device_count > 0 ? wanted->device_count : (int)gpu->settings.devices;
  if (count == 0) count = there;
  if (count > there) return WEFT_ERR(INVALID_ARGUMENT, "%d GPUs are asked for, the driver shows %d", count, there);
  for (int i = 0; wanted->device_ordinals && i < count; i++)
    if (wanted->device_ordinals[i] >= there)
      return WEFT_ERR(INVALID_ARGUMENT, "GPU %d is asked for, the driver shows %d", wanted->device_ordinals[i], there);
  threads = wanted->threads > 0 ? wanted->threads : (int)gpu->settings.threads;
  /* a process that sees only its own GPUs counts them from 0 */
  int first = wanted->first_device <= there - count ? wanted->first_device : 0;
  WEFT_TRY(open_devices(gpu, wanted, first, count));
  WEFT_TRY(find_nodes(gpu));
  gpu->completer.timeout_ns = gpu->settings.timeout_ns;
  WEFT_TRY(gpu_completer_start(&gpu->completer));
  WEFT_TRY(gpu_ender_new(base, &gpu->ender));
  WEFT_TRY(rt_platform_add_devices(base, wanted, first, count, kind));
  /* the runtime frees idle blocks when the driver has no memory left */
  for (int i = 0; i < count; i++) base->devices[i].cache_limit = gpu->gpus[i].bytes;
  WEFT_TRY(rt_platform_join_job(base, wanted));
  if (threads == 0) threads = WEFT_MAX(usable_threads(gpu->node), gpu->node_count);
  return start_workers(gpu, threads);
}

static weft_status *create(const weft_platform_options *wanted, weft_platform **out_platform)
{
  gpu_platform *gpu = calloc(1, sizeof *gpu);

  *out_platform = NULL;
  WEFT_TRY_ALLOC(gpu);
  weft_mutex_init(&gpu->launching);
  gpu->alone = wanted->process_count <= 1;
  gpu->node = GPU_NO_NODE;
  rt_platform_begin(&gpu->base, &gpu_platform_ops, wanted);
  weft_status *st = fill(gpu, wanted);
  if (st) destroy(&gpu->base);
  else *out_platform = &gpu->base;
  return st;
}

static int attributes(const weft_platform *platform, int ordinal, weft_device_attribute *out)
{
  const gpu_device *gpu = &((const gpu_platform *)platform)->gpus[ordinal];

  out[0] = (weft_device_attribute){.name = "device_vendor", .text = "NVIDIA Corporation"};
  out[1] = (weft_device_attribute){.name = "compute_capability"};
  snprintf(out[1].text, sizeof out[1].text, "%d.%d", gpu->capability / 10, gpu->capability % 10);
  out[2] = (weft_device_attribute){.name = "core_count", .number = gpu->processors};
  out[3] = (weft_device_attribute){.name = "numa_node", .number = gpu->node};
  return 4;
}

/* ---- what there is --------------------------------------------------------------------------------------------- */

static weft_status *available(void)
{
  int count;

  return gpu_device_count(&count);
}

/* How device `from` reaches device `to`, in a word or two; the driver is open. */
static const char *link_between(int from, int to)
{
  wcu_device a, b;
  int access = 0, atomics = 0;

  if (from == to) return "-";
  if (gpu_cu.cuDeviceGet(&a, from) || gpu_cu.cuDeviceGet(&b, to) ||
      gpu_cu.cuDeviceGetP2PAttribute(&access, WCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b))
    return "?";
  if (!access) return "none";
  if (gpu_cu.cuDeviceGetP2PAttribute(&atomics, WCU_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, a, b)) return "?";
  return atomics ? "nvlink" : "pcie"; /* PCIe carries no atomic operations between GPUs */
}

static const char *multicast_of(int ordinal)
{
  gpu_device gpu;
  weft_status *st = gpu_device_read(ordinal, &gpu);

  weft_status_free(st);
  return st ? "?" : gpu.multicast ? "yes" : "no";
}

/* A table: a line for each device, a column for each that it reaches; and which devices have multicast. */
static void describe_links(FILE *out, int count)
{
  if (count < 2) return;
  fprintf(out, "  %-18s", "links");
  for (int to = 0; to < count; to++) fprintf(out, " %6d", to);
  for (int from = 0; from < count; from++) {
    fprintf(out, "\n  from %-13d", from);
    for (int to = 0; to < count; to++) fprintf(out, " %6s", link_between(from, to));
  }
  fprintf(out, "\n  %-18s", "multicast");
  for (int d = 0; d < count; d++) fprintf(out, " %6s", multicast_of(d));
  fputc('\n', out);
}

static weft_status *describe(FILE *out)
{
  int count;
  weft_status *st = gpu_device_count(&count);

  if (st) {
    fprintf(out, "  %-18s %s\n", "no GPU", weft_status_message(st));
    weft_status_free(st);
    return NULL;
  }
  fprintf(out, "  %-18s CUDA %d.%d\n", "driver", gpu_cu.version / 1000, gpu_cu.version % 1000 / 10);
  gpu_assembler assembler;
  st = gpu_assembler_find(gpu_cu.version, &assembler);
  fprintf(out, "  %-18s %s\n", "assembler", st ? weft_status_message(st) : assembler.name);
  weft_status_free(st);
  for (int i = 0; i < count; i++) {
    gpu_device gpu;
    st = gpu_device_read(i, &gpu);
    if (st) fprintf(out, "  device %-11d %s\n", i, weft_status_message(st));
    else
      fprintf(out, "  device %-11d %s, compute capability %d.%d, %s; kernels are for %s\n", i, gpu.kind,
              gpu.capability / 10, gpu.capability % 10, WEFT_BYTES(gpu.bytes), gpu.target->name);
    weft_status_free(st);
  }
  describe_links(out, count);
  return NULL;
}

static const weft_device_ops device_ops = {
  .size = sizeof(weft_device_ops),
  .spaces = gpu_memory_spaces,
  .allocate = gpu_allocate,
  .deallocate = gpu_deallocate,
  .write = gpu_write,
  .read = gpu_read,
  .read_pieces = gpu_read_pieces,
  .copy = gpu_copy,
  .fill = gpu_fill,
  .copy_rows = gpu_copy_rows,
  .stream_create = gpu_stream_create,
  .stream_destroy = gpu_stream_destroy,
  .record = gpu_stream_record,
  .wait = gpu_stream_wait,
  .reached = gpu_stream_reached,
  .notify = gpu_stream_notify,
};

/* The options of XLA's GPU plugin, which JAX sends to every client that is called "cuda". */
#define NO_MOCKS "there are no devices that only seem to be there"
static const weft_client_option client_options[] = {
  {"platform_name", WEFT_CLIENT_IGNORED, NULL},
  {"allocator", WEFT_CLIENT_IGNORED, NULL},
  {"memory_fraction", WEFT_CLIENT_IGNORED, NULL},
  {"preallocate", WEFT_CLIENT_IGNORED, NULL},
  {"collective_memory_size", WEFT_CLIENT_IGNORED, NULL},
  {"should_stage_host_to_device_transfers", WEFT_CLIENT_IGNORED, NULL},
  {"abort_collectives_on_failure", WEFT_CLIENT_IGNORED, NULL},
  {"use_tfrt_gpu_client", WEFT_CLIENT_IGNORED, NULL},
  {"max_inflight_computations", WEFT_CLIENT_IGNORED, NULL},
  {"visible_devices", WEFT_CLIENT_DEVICES, NULL},
  {"enable_mock_nccl", WEFT_CLIENT_FALSE, NO_MOCKS},
  {"mock_gpu_topology", WEFT_CLIENT_FALSE, NO_MOCKS},
  {0},
};

const weft_platform_ops gpu_platform_ops = {
  .size = sizeof(weft_platform_ops),
  .name = "cuda",
  .client_name = "cuda",
  .client_options = client_options,
  .device_kind = "NVIDIA GPU",
  .create = create,
  .destroy = destroy,
  .device = &device_ops,
  .compile = gpu_compile,
  .save = gpu_save,
  .load = gpu_load,
  .describe = describe,
  .available = available,
  .attributes = attributes,
  .communicator = &gpu_communicator,
  .moves = gpu_communicator_moves,
};
