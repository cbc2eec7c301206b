/* tests/gpu/numa_test.c -- threads run on the CPUs that are near their GPU: lists of CPUs, and the threads of a
 * platform whose emulated devices have one node or several. */
enum { DEVICES = 2, MOST_BYTES = 1 << 16 };
#include "collective_programs.h"

#include <dirent.h>
#include <sys/stat.h>

#include "gpu/numa.h"

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
  T_EQ_INT(threads_with("gpu-complete", 1), workers > 0);
  T_EQ_INT(threads_with("weft-gpu-end", 1), workers > 0);
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
  check_threads("0,1", "nccl", 0, DEVICES); /* workers launch for both */
  check_threads("0,1", "peers", 0, 0);
  check_threads("", "nccl", 0, 0);
  check_threads("2", "nccl", 0, 0); /* the system does not describe it */
  setenv("WEFT_CUDA_NUMA", "0", 1);
  check_threads("0", "nccl", 0, 0);
  unsetenv("WEFT_CUDA_NUMA");
  cpu_set_t own;
  T_EQ_INT(sched_getaffinity(0, sizeof own, &own), 0);
  T_TRUE(CPU_EQUAL(&own, &allowed)); /* the caller's own thread is as it was */
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
  const struct CMUnitTest units[] = {UNIT(lists_of_cpus_are_read), UNIT(threads_run_near_their_gpus)};
  return cmocka_run_group_tests(units, begin, end);
}
