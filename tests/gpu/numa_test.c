/* tests/gpu/numa_test.c -- threads run on the CPUs that are near their GPU: lists of CPUs, and the threads of a
 * platform whose emulated devices have one node or several. */
enum { DEVICES = 2, MOST_BYTES = 1 << 16 };
#include "collective_programs.h"

#include <dirent.h>
#include <sys/stat.h>

#include "gpu/numa.h"
#include "runtime/ffi.h"

static int cpu_of_node[2];

static char folder[] = "/tmp/weft-numa-XXXXXX";

static void describe_node(int node, const char *cpus)
{
  char path[200];

  snprintf(path, sizeof path, "%s/node%d", folder, node);
  mkdir(path, 0700);
  strcat(path, "/cpulist");
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(cpus, file);
  fclose(file);
}

static void remove_nodes(void)
{
  char path[200];

  for (int node = 0; node < 3; node++) {
    snprintf(path, sizeof path, "%s/node%d/cpulist", folder, node);
    remove(path);
    snprintf(path, sizeof path, "%s/node%d", folder, node);
    remove(path);
  }
  remove(folder);
}

TEST(lists_of_cpus_are_read)
{
  static const struct { const char *list; int count, some; } cases[] = {
    {"0-3,8,10-11\n", 7, 10}, {"5\n", 1, 5}, {"0-9999999999\n", CPU_SETSIZE, 77}, {"\n", 0, 0}, {"", 0, 0},
    {"x\n", 0, 0}, {"1-\n", 0, 0}, {"1;2\n", 0, 0}, {"3,\n", 1, 3},
  };
  cpu_set_t all, cpus;

  CPU_ZERO(&all);
  for (int c = 0; c < CPU_SETSIZE; c++) CPU_SET(c, &all);
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    describe_node(0, cases[i].list);
    bool there = gpu_numa_cpus(0, &all, &cpus);
    if (there != (cases[i].count > 0) || (there && CPU_COUNT(&cpus) != cases[i].count) ||
        (there && !CPU_ISSET(cases[i].some, &cpus)))
      fail_msg("\"%s\": %d, %d CPUs", cases[i].list, there, CPU_COUNT(&cpus));
  }
  T_TRUE(!gpu_numa_cpus(7, &all, &cpus)); /* no such node */
  T_TRUE(!gpu_numa_cpus(GPU_NO_NODE, &all, &cpus));
  describe_node(0, "4-7\n");
  CPU_ZERO(&all);
  CPU_SET(3, &all);
  T_TRUE(!gpu_numa_cpus(0, &all, &cpus)); /* none of them is allowed */
}

/* How many of the threads whose names begin with `name` may run on `count` CPUs. */
static int threads_with(const char *name, int count)
{
  DIR *dir = opendir("/proc/self/task");
  int found = 0;

  assert_non_null(dir);
  for (struct dirent *e; (e = readdir(dir));) {
    char path[300], comm[32] = "";
    cpu_set_t cpus;
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    if (!fgets(comm, sizeof comm, file)) comm[0] = 0;
    fclose(file);
    if (strncmp(comm, name, strlen(name)) == 0 && sched_getaffinity(atoi(e->d_name), sizeof cpus, &cpus) == 0)
      found += CPU_COUNT(&cpus) == count;
  }
  closedir(dir);
  return found;
}

/* Runs an all-reduce, whose communicator has threads of its own, and looks at the CPUs of the platform's threads. */
static void check_threads(const char *nodes, const char *by, int workers, int owners)
{
  bool several = strchr(nodes, ',') && nodes[0] != nodes[2]; /* then threads for all GPUs are not bound */
  static char out[DEVICES][MOST_BYTES];
  char text[4096];

  setenv("WEFT_EMU_NUMA", nodes, 1);
  setenv("WEFT_CUDA_COLLECTIVES", by, 1);
  weft_platform *gpu = platform_called("cuda");
  program(text, sizeof text, "f32", "add", "ROOT r = f32[4,8] all-reduce(x), replica_groups={}, to_apply=f");
  weft_executable *exe = compile(gpu, text);
  launch_well(exe, out);
  bool by_nccl = strcmp(by, "nccl") == 0;
  T_EQ_INT(threads_with("weft-worker", 1), workers);
  T_EQ_INT(threads_with("gpu-complete", 1), workers > 0 && !several);
  T_EQ_INT(threads_with("weft-gpu-end", 1), workers > 0 && !several);
  T_EQ_INT(threads_with(by_nccl ? "weft-nccl" : "weft-peers", 1), owners);
  weft_executable_release(exe);
  weft_platform_release(gpu);
  unsetenv("WEFT_EMU_NUMA");
}

TEST(threads_run_near_their_gpus)
{
  cpu_set_t allowed;
  char list[32];
  int cpu = 0;

  T_EQ_INT(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) T_SKIP("one CPU");
  while (!CPU_ISSET(cpu, &allowed)) cpu++;
  snprintf(list, sizeof list, "%d\n", cpu);
  describe_node(0, list);
  describe_node(1, list);
  check_threads("0", "nccl", 2, DEVICES);
  check_threads("1,1", "peers", 2, 1);
  check_threads("0,1", "nccl", 2, DEVICES); /* a worker for each */
  check_threads("0,1", "peers", 2, 0);
  check_threads("", "nccl", 0, 0);
  check_threads("2", "nccl", 0, 0); /* the system does not describe it */
  setenv("WEFT_CUDA_NUMA", "0", 1);
  check_threads("0", "nccl", 0, 0);
  unsetenv("WEFT_CUDA_NUMA");
  cpu_set_t own;
  T_EQ_INT(sched_getaffinity(0, sizeof own, &own), 0);
  T_TRUE(CPU_EQUAL(&own, &allowed)); /* the caller's own thread is as it was */
}

/* ---- who launches ---- */

static atomic_int launches, near;

/* The handler runs on the thread that launches. Its operand is the number of the device. */
static XLA_FFI_Error *look_around(XLA_FFI_CallFrame *frame)
{
  XLA_FFI_DeviceOrdinal_Get_Args device = {.struct_size = sizeof device, .ctx = frame->ctx};
  cpu_set_t cpus;

  if (frame->api->XLA_FFI_DeviceOrdinal_Get(&device) || sched_getaffinity(0, sizeof cpus, &cpus) != 0) return NULL;
  launches++;
  near += CPU_COUNT(&cpus) == 1 && CPU_ISSET(cpu_of_node[device.device_ordinal % 2], &cpus);
  return NULL;
}

/* Runs of four devices are launched at once, again and again.  Workers of the other node would launch half of them, if
 * they did not leave them to those of the node. */
TEST(runs_are_launched_near_their_gpus)
{
  enum { RUNS = 60, GPUS_THERE = 4 };
  weft_buffer *const *ins[GPUS_THERE] = {NULL}, *results[GPUS_THERE];
  weft_buffer **outs[GPUS_THERE];
  cpu_set_t allowed;
  hlo_module *module;
  weft_executable *exe;
  char list[32];
  static const char text[] =
    "HloModule m, replica_count=4\n"
    "ENTRY e {\n"
    "  a = f32[4] constant({1, 2, 3, 4})\n"
    "  ROOT z = f32[4] custom-call(a), custom_call_target=\"look_around\", api_version=API_VERSION_TYPED_FFI,\n"
    "    custom_call_has_side_effect=true, backend_config={}\n"
    "}\n";

  T_EQ_INT(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) T_SKIP("one CPU");
  for (int node = 0, cpu = 0; node < 2; node++, cpu++) {
    while (!CPU_ISSET(cpu, &allowed)) cpu++;
    snprintf(list, sizeof list, "%d\n", cpu);
    describe_node(node, list);
    cpu_of_node[node] = cpu;
  }
  T_OK(rt_ffi_register_on_device("look_around", 11, &(rt_ffi_device_handler){.bundle.execute = look_around}));
  setenv("WEFT_EMU_NUMA", "0,1,0,1", 1);
  setenv("WEFT_PLATFORM", "cuda", 1);
  gpu_numa_patience_ns = 2 * WEFT_NS_PER_S; /* the machine may be busy */
  weft_platform *gpu = test_platform(GPUS_THERE, 4);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(gpu, module, &(weft_compile_options){0}, &exe));
  for (int d = 0; d < GPUS_THERE; d++) outs[d] = &results[d];
  for (int i = 0; i < RUNS; i++) {
    T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = i}));
    for (int d = 0; d < GPUS_THERE; d++) {
      float out[4];
      T_OK(weft_buffer_to_host(results[d], out, weft_deadline_after_ms(60000)));
      weft_buffer_release(results[d]);
    }
  }
  weft_executable_release(exe);
  weft_platform_release(gpu);
  unsetenv("WEFT_EMU_NUMA");
  T_EQ_INT(launches, RUNS * GPUS_THERE);
  printf("# %d of %d runs are launched near their GPU\n", (int)near, (int)launches);
  if (near < launches * 9 / 10) fail_msg("%d of %d runs are launched near their GPU", (int)near, (int)launches);
}

static int begin(void **state)
{
  (void)state;
  gpu_numa_folder = mkdtemp(folder);
  return gpu_numa_folder ? 0 : -1;
}
static int end(void **state)
{
  (void)state;
  remove_nodes();
  return 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(lists_of_cpus_are_read), UNIT(threads_run_near_their_gpus),
                                     UNIT(runs_are_launched_near_their_gpus)};
  return cmocka_run_group_tests(units, begin, end);
}
