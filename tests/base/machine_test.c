/* tests/base/machine_test.c -- what Linux says about CPUs, nodes and control groups, and what launchers say. The test
 * writes the files of the machines that it describes. */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"
#include "machine_files.h"

static void expect_set(const char *list, const char *want)
{
  weft_cpus set;
  char text[256] = "";

  T_TRUE(weft_cpus_parse(list, &set));
  for (int cpu = weft_cpus_next(&set, -1), n = 0; cpu >= 0; cpu = weft_cpus_next(&set, cpu))
    n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", n ? "," : "", cpu);
  T_EQ_STR(text, want);
}

TEST(lists_are_read)
{
  weft_cpus set;

  expect_set("0-3,8\n", "0,1,2,3,8");
  expect_set("", "");
  expect_set("\n", "");
  expect_set("63-65,127-128,8191", "63,64,65,127,128,8191");
  expect_set("5,8190-9000000", "5,8190,8191");
  static const char *const bad[] = {"a", "1-", "1-b", "1 2", "-3", "1,,2", "0x3"};
  for (size_t i = 0; i < WEFT_COUNT(bad); i++)
    if (weft_cpus_parse(bad[i], &set)) fail_msg("\"%s\" is taken for a list", bad[i]);
}

/* Writes the machine as "node 0 (memory 0): 0 1 ..." lines. */
static void describe(char *text, size_t size)
{
  WEFT_AUTO(weft_machine) m = NULL;
  size_t n = 0;

  T_OK(weft_machine_read(&m));
  for (int i = 0; i < m->node_count; i++) {
    n +=
      (size_t)snprintf(text + n, size - n, "%snode %d memory %d:", i ? "; " : "", m->nodes[i].id, m->nodes[i].memory);
    for (int c = 0; c < m->nodes[i].count; c++) {
      const weft_machine_cpu *cpu = &m->cpus[m->nodes[i].first + c];
      T_EQ_INT(cpu->node, i);
      n += (size_t)snprintf(text + n, size - n, " %d%s", cpu->cpu, cpu->sibling ? "'" : "");
    }
  }
}

static void expect_machine(const char *want)
{
  char text[4096] = "";

  describe(text, sizeof text);
  T_EQ_STR(text, want);
}

TEST(a_machine_without_numa_has_one_node)
{
  files_begin();
  files_put("sys/devices/system/cpu/online", "0-3\n");
  files_put("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3\n");
  expect_machine("node 0 memory 0: 0 1 2 3");
  T_EQ_INT(weft_machine_node_count(), 1);
  files_end();
}

TEST(nodes_have_first_threads_of_cores_before_second_ones)
{
  files_begin();
  files_machine(2, 2, 2);
  expect_machine("node 0 memory 0: 0 1 4' 5'; node 1 memory 1: 2 3 6' 7'");
  T_EQ_INT(weft_machine_node_count(), 2);
  files_end();
}

TEST(machines_of_four_and_eight_nodes)
{
  files_begin();
  files_machine(4, 2, 1);
  expect_machine("node 0 memory 0: 0 1; node 1 memory 1: 2 3; node 2 memory 2: 4 5; node 3 memory 3: 6 7");
  files_end();
  files_begin();
  files_machine(8, 1, 2);
  expect_machine(
    "node 0 memory 0: 0 8'; node 1 memory 1: 1 9'; node 2 memory 2: 2 10'; node 3 memory 3: 3 11'; node 4 memory "
    "4: 4 12'; node 5 memory 5: 5 13'; node 6 memory 6: 6 14'; node 7 memory 7: 7 15'");
  files_end();
}

TEST(the_mask_and_offline_cpus_leave_nodes_out)
{
  files_begin();
  files_machine(4, 2, 1);
  files_put("proc/self/status", "Cpus_allowed_list:\t1-2,6-7\nMems_allowed_list:\t0-3\n");
  files_put("sys/devices/system/cpu/online", "0-6\n");
  expect_machine("node 0 memory 0: 1; node 1 memory 1: 2; node 3 memory 3: 6");
  files_end();
}

TEST(numbers_may_leave_gaps)
{
  files_begin();
  files_machine(2, 2, 1);
  files_put("sys/devices/system/node/online", "0,8\n");
  files_put("sys/devices/system/node/node8/cpulist", "2-3\n");
  files_put("sys/devices/system/node/has_memory", "0,8\n");
  files_put("proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0,8\n");
  expect_machine("node 0 memory 0: 0 1; node 8 memory 8: 2 3");
  files_end();
}

TEST(a_node_without_memory_uses_the_nearest)
{
  files_begin();
  files_machine(4, 1, 1);
  files_put("sys/devices/system/node/has_memory", "0,2-3\n");
  files_put("sys/devices/system/node/node1/distance", "32 10 16 21\n");
  expect_machine("node 0 memory 0: 0; node 1 memory 2: 1; node 2 memory 2: 2; node 3 memory 3: 3");
  /* a node whose memory the cpuset forbids */
  files_put("proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0,3\n");
  files_put("sys/devices/system/node/node2/distance", "32 16 10 21\n");
  expect_machine("node 0 memory 0: 0; node 1 memory 3: 1; node 2 memory 3: 2; node 3 memory 3: 3");
  files_end();
}

TEST(nodes_without_cpus_are_left_out)
{
  files_begin();
  files_machine(2, 2, 1);
  files_put("sys/devices/system/node/online", "0-2\n"); /* such as memory behind CXL */
  files_put("sys/devices/system/node/node2/cpulist", "\n");
  files_put("sys/devices/system/node/has_memory", "0-2\n");
  expect_machine("node 0 memory 0: 0 1; node 1 memory 1: 2 3");
  files_end();
}

TEST(cpus_that_no_node_names_are_used)
{
  files_begin();
  files_machine(2, 1, 1);
  files_put("sys/devices/system/cpu/online", "0-3\n");
  files_put("proc/self/status", "Cpus_allowed_list:\t0-3\n");
  expect_machine("node 0 memory 0: 0; node 1 memory 1: 1 2 3");
  files_end();
}

/* ---- how many threads ---- */

static void expect_cores(int threads, const char *reason)
{
  weft_cores cores = weft_cores_here();

  T_EQ_INT(cores.threads, threads);
  if (!strstr(cores.reason, reason) || (*reason == '\0' && *cores.reason))
    fail_msg("got the reason \"%s\", want \"%s\"", cores.reason, reason);
}

TEST(the_mask_counts)
{
  files_begin();
  files_machine(2, 8, 1);
  expect_cores(16, "");
  files_put("proc/self/status", "Cpus_allowed_list:\t3-5\n");
  expect_cores(3, "");
  files_end();
}

TEST(quotas_of_version_2_count_with_those_of_the_groups_around)
{
  files_begin();
  files_machine(1, 16, 1);
  files_put("proc/self/cgroup", "0::/pods/one/main\n");
  files_put("proc/self/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n"
                                   "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  expect_cores(16, "");
  files_put("sys/fs/cgroup/pods/one/main/cpu.max", "max 100000\n");
  files_put("sys/fs/cgroup/pods/one/cpu.max", "650000 100000\n");
  expect_cores(7, "6.5 CPUs"); /* rounded up */
  files_put("sys/fs/cgroup/pods/cpu.max", "10000 20000\n");
  expect_cores(1, "0.5 CPUs");
  files_put("sys/fs/cgroup/pods/cpu.max", "3200000 100000\n");
  expect_cores(7, "6.5 CPUs");
  files_put("sys/fs/cgroup/pods/one/main/cpu.max", "250000 100000\n");
  expect_cores(3, "2.5 CPUs");
  files_end();
}

TEST(quotas_of_version_1_count)
{
  files_begin();
  files_machine(1, 16, 1);
  files_put("proc/self/cgroup", "12:memory:/x\n4:cpu,cpuacct:/user/job\n0::/\n");
  files_put("proc/self/mountinfo",
            "30 22 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "31 22 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n");
  files_put("sys/fs/cgroup/cpu,cpuacct/user/job/cpu.cfs_quota_us", "-1\n");
  files_put("sys/fs/cgroup/cpu,cpuacct/user/job/cpu.cfs_period_us", "100000\n");
  expect_cores(16, "");
  files_put("sys/fs/cgroup/cpu,cpuacct/user/cpu.cfs_quota_us", "200000\n");
  files_put("sys/fs/cgroup/cpu,cpuacct/user/cpu.cfs_period_us", "50000\n");
  expect_cores(4, "4 CPUs");
  files_put("sys/fs/cgroup/cpu,cpuacct/user/job/cpu.cfs_quota_us", "150000\n");
  expect_cores(2, "1.5 CPUs");
  files_end();
}

TEST(a_container_may_see_a_part_of_the_hierarchy)
{
  files_begin();
  files_machine(1, 16, 1);
  /* the mount shows the container's own group as its root, the path is that of the host */
  files_put("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n");
  files_put("proc/self/mountinfo",
            "31 22 0:27 /docker/abc /sys/fs/cgroup\\040of/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  files_put("sys/fs/cgroup of/cpu/cpu.cfs_quota_us", "300000\n");
  files_put("sys/fs/cgroup of/cpu/cpu.cfs_period_us", "100000\n");
  expect_cores(3, "3 CPUs");
  /* the path is not there: the root of the mount is all there is to read */
  files_put("proc/self/cgroup", "4:cpu,cpuacct:/elsewhere\n");
  expect_cores(3, "3 CPUs");
  files_end();
}

TEST(slurm_gives_a_task_its_cpus)
{
  files_begin();
  files_machine(1, 16, 1);
  setenv("SLURM_CPUS_PER_TASK", "5", 1);
  expect_cores(16, ""); /* no task of a step: a shell with variables of its own */
  setenv("SLURM_STEP_ID", "0", 1);
  expect_cores(5, "Slurm gives this task 5 CPUs");
  setenv("SLURM_STEP_ID", "4294967291", 1); /* the batch script has all CPUs of the job on its node */
  expect_cores(16, "");
  setenv("SLURM_STEP_ID", "3", 1);
  files_put("proc/self/status", "Cpus_allowed_list:\t0-1\n"); /* srun has bound the task */
  expect_cores(2, "");
  files_end();
}

TEST(tasks_of_slurm_share_a_node)
{
  files_begin();
  files_machine(1, 16, 1);
  setenv("SLURM_STEPID", "1", 1);
  setenv("SLURM_CPUS_ON_NODE", "12", 1);
  setenv("SLURM_STEP_TASKS_PER_NODE", "4(x2),6", 1);
  setenv("SLURM_NODEID", "1", 1);
  expect_cores(3, "Slurm gives this task 3 CPUs");
  setenv("SLURM_NODEID", "2", 1);
  expect_cores(2, "2 CPUs");
  setenv("SLURM_NODEID", "3", 1); /* there is none */
  expect_cores(16, "");
  setenv("SLURM_STEP_TASKS_PER_NODE", "(x", 1);
  expect_cores(16, "");
  files_end();
}

TEST(processes_of_one_launcher_share_the_machine)
{
  files_begin();
  files_machine(1, 16, 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "3", 1);
  expect_cores(5, "OMPI_COMM_WORLD_LOCAL_SIZE: 3 processes share 16 CPUs");
  files_put("proc/self/status", "Cpus_allowed_list:\t8-11\n"); /* mpirun has bound the process */
  expect_cores(4, "");
  files_put("proc/self/status", "Cpus_allowed_list:\t0-7\n"); /* to a socket that it shares with others */
  expect_cores(5, "3 processes");
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "40", 1);
  expect_cores(1, "40 processes");
  /* the job's cpuset has fewer CPUs than the machine */
  files_put("proc/self/cgroup", "0::/job\n");
  files_put("proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  files_put("sys/fs/cgroup/job/cpuset.cpus.effective", "0-7\n");
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
  expect_cores(2, "4 processes share 8 CPUs");
  files_end();
}

TEST(weft_launch_says_who_shares)
{
  files_begin();
  files_machine(1, 16, 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "8", 1);
  setenv("WEFT_LOCAL_PROCESSES", "3", 1);
  setenv("WEFT_LOCAL_PROCESS_ID", "0", 1);
  expect_cores(6, "3 processes share 16 CPUs");
  setenv("WEFT_LOCAL_PROCESS_ID", "1", 1);
  expect_cores(5, "3 processes share 16 CPUs");
  setenv("WEFT_LOCAL_PROCESSES", "1", 1); /* bound to a core of its own */
  expect_cores(16, "");
  files_end();
}

TEST(this_machine_is_read)
{
  WEFT_AUTO(weft_machine) m = NULL;
  weft_cpus allowed;
  weft_cores cores = weft_cores_here();

  T_OK(weft_machine_read(&m));
  T_TRUE(weft_cpus_allowed(&allowed));
  T_EQ_INT(m->cpu_count, weft_cpus_count(&allowed));
  T_EQ_INT(cores.usable, m->cpu_count);
  T_TRUE(cores.threads >= 1 && cores.threads <= cores.usable);
  T_TRUE(weft_cpus_bind(&allowed));
}

TEST_MAIN(UNIT(lists_are_read), UNIT(a_machine_without_numa_has_one_node),
          UNIT(nodes_have_first_threads_of_cores_before_second_ones), UNIT(machines_of_four_and_eight_nodes),
          UNIT(the_mask_and_offline_cpus_leave_nodes_out), UNIT(numbers_may_leave_gaps),
          UNIT(a_node_without_memory_uses_the_nearest), UNIT(nodes_without_cpus_are_left_out),
          UNIT(cpus_that_no_node_names_are_used), UNIT(the_mask_counts),
          UNIT(quotas_of_version_2_count_with_those_of_the_groups_around), UNIT(quotas_of_version_1_count),
          UNIT(a_container_may_see_a_part_of_the_hierarchy), UNIT(slurm_gives_a_task_its_cpus),
          UNIT(tasks_of_slurm_share_a_node), UNIT(processes_of_one_launcher_share_the_machine),
          UNIT(weft_launch_says_who_shares), UNIT(this_machine_is_read))
