/* tests/cli/bind_test.c -- processes are bound to cores. The test describes the machines in files like those of Linux's
 * /sys. */
#include "test.h"

#include <sys/stat.h>

#include "cli/bind.h"

static char folder[] = "/tmp/weft-bind-XXXXXX";

static void put(const char *name, const char *text)
{
  char path[512];

  snprintf(path, sizeof path, "%s/%s", folder, name);
  for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')); at++) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
  FILE *out = fopen(path, "we");
  assert_non_null(out);
  fputs(text, out);
  fclose(out);
}

/* Two sockets with two NUMA nodes each; a node has two cores of two hardware threads, numbered as x86 does: CPU c and
 * c + 8 are one core. */
static int make_machine(WEFT_UNUSED void **state)
{
  char name[64], text[64];

  assert_non_null(mkdtemp(folder));
  for (int cpu = 0; cpu < 16; cpu++) {
    int core = cpu % 8, socket = core / 4;
    snprintf(name, sizeof name, "cpu/cpu%d/topology/thread_siblings_list", cpu);
    snprintf(text, sizeof text, "%d,%d\n", core, core + 8);
    put(name, text);
    snprintf(name, sizeof name, "cpu/cpu%d/topology/core_siblings_list", cpu);
    snprintf(text, sizeof text, "%d-%d,%d-%d\n", 4 * socket, 4 * socket + 3, 4 * socket + 8, 4 * socket + 11);
    put(name, text);
  }
  put("node/online", "0-3\n");
  for (int node = 0; node < 4; node++) {
    snprintf(name, sizeof name, "node/node%d/cpulist", node);
    snprintf(text, sizeof text, "%d-%d,%d-%d\n", 2 * node, 2 * node + 1, 2 * node + 8, 2 * node + 9);
    put(name, text);
  }
  return 0;
}

static int remove_machine(WEFT_UNUSED void **state)
{
  char command[64];

  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command);
}

static cpu_set_t cpus_between(int first, int last)
{
  cpu_set_t set;

  CPU_ZERO(&set);
  for (int i = first; i <= last; i++) CPU_SET((size_t)i, &set);
  return set;
}

/* expected_sharers: processes that have the same CPUs */
static void expect(cli_bind how, cpu_set_t usable, int index, int count, const char *expected, int expected_sharers)
{
  cpu_set_t got;
  char text[256] = "";
  int sharers;

  T_OK(cli_bind_cpus(how, folder, &usable, index, count, &got, &sharers));
  for (size_t i = 0, n = 0; i < 64; i++)
    if (CPU_ISSET(i, &got)) n += (size_t)snprintf(text + n, sizeof text - n, "%s%zu", n ? "," : "", i);
  assert_string_equal(text, expected);
  assert_int_equal(sharers, expected_sharers);
}

TEST(processes_are_spread_over_the_machine)
{
  cpu_set_t all = cpus_between(0, 15);

  expect(CLI_BIND_CORE, all, 0, 8, "0,8", 1);
  expect(CLI_BIND_CORE, all, 7, 8, "7,15", 1);
  expect(CLI_BIND_CORE, all, 1, 2, "4,12", 1); /* far from the first */
  expect(CLI_BIND_NUMA, all, 0, 2, "0,1,8,9", 1);
  expect(CLI_BIND_NUMA, all, 1, 2, "4,5,12,13", 1);
  expect(CLI_BIND_NUMA, all, 7, 8, "6,7,14,15", 2); /* two on each node */
  expect(CLI_BIND_SOCKET, all, 1, 2, "4,5,6,7,12,13,14,15", 1);
  expect(CLI_BIND_SOCKET, all, 2, 6, "0,1,2,3,8,9,10,11", 3);
  expect(CLI_BIND_NONE, all, 3, 4, "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", 4);
}

TEST(only_usable_cpus_count)
{
  cpu_set_t some = cpus_between(4, 7); /* the second socket, one hardware thread of each core */

  expect(CLI_BIND_CORE, some, 1, 4, "5", 1);
  expect(CLI_BIND_NUMA, some, 1, 2, "6,7", 1);
  expect(CLI_BIND_SOCKET, some, 1, 2, "4,5,6,7", 2);
}

TEST(more_processes_than_cores_are_refused)
{
  cpu_set_t all = cpus_between(0, 15), got;
  int sharers;

  T_FAILS(cli_bind_cpus(CLI_BIND_CORE, folder, &all, 0, 9, &got, &sharers), "9 processes");
}

TEST(a_machine_that_is_not_described_is_refused)
{
  cpu_set_t all = cpus_between(0, 16), got; /* there is no CPU 16 */
  int sharers;

  T_FAILS(cli_bind_cpus(CLI_BIND_CORE, folder, &all, 0, 1, &got, &sharers), "cpu16");
  T_OK(cli_bind_cpus(CLI_BIND_NUMA, "/nowhere", &all, 0, 1, &got, &sharers)); /* one node */
  assert_int_equal(CPU_COUNT(&got), 17);
}

TEST(words_are_checked)
{
  cli_bind how;

  T_OK(cli_bind_parse("socket", &how));
  assert_int_equal(how, CLI_BIND_SOCKET);
  T_FAILS(cli_bind_parse("rack", &how), "none, core, numa or socket");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    UNIT(processes_are_spread_over_the_machine),
    UNIT(only_usable_cpus_count),
    UNIT(more_processes_than_cores_are_refused),
    UNIT(a_machine_that_is_not_described_is_refused),
    UNIT(words_are_checked),
  };
  return cmocka_run_group_tests(tests, make_machine, remove_machine);
}
