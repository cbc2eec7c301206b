/* cli/bind.c -- which CPUs the processes of a job may use on one machine (bind.h), from what Linux says in /sys. */
#include <config.h>

#include "cli/bind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"

const char *const cli_bind_words[] = {"none", "core", "numa", "socket"};

/* The cores, NUMA nodes or sockets of the machine with their usable CPUs. */
typedef struct places {
  int count;
  cpu_set_t cpus[CPU_SETSIZE];
} places;

weft_status *cli_bind_parse(const char *word, cli_bind *out)
{
  for (size_t i = 0; i < WEFT_COUNT(cli_bind_words); i++)
    if (strcmp(word, cli_bind_words[i]) == 0) {
      *out = (cli_bind)i;
      return NULL;
    }
  return WEFT_ERR(INVALID_ARGUMENT, "--bind-to: expected none, core, numa or socket, got \"%s\"", word);
}

/* Reads a list of numbers such as "0-3,8". False if the file is not there, is no such list, or is empty. */
static bool read_list(const char *path, cpu_set_t *out)
{
  weft_cpus cpus;
  bool is_list = weft_cpus_read(path, &cpus);

  CPU_ZERO(out);
  for (int cpu = weft_cpus_next(&cpus, -1); cpu >= 0 && cpu < CPU_SETSIZE; cpu = weft_cpus_next(&cpus, cpu))
    CPU_SET((size_t)cpu, out);
  return is_list && CPU_COUNT(out) > 0;
}

static void add_place(places *list, const cpu_set_t *cpus, const cpu_set_t *usable)
{
  cpu_set_t *place = &list->cpus[list->count];

  CPU_AND(place, cpus, usable);
  if (CPU_COUNT(place) > 0) list->count++;
}

/* Each CPU says which CPUs share its core or its socket. */
static weft_status *find_by_cpu(const char *system, const char *file, const cpu_set_t *usable, places *out)
{
  cpu_set_t seen, cpus;
  char path[4096];

  CPU_ZERO(&seen);
  for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, usable) || CPU_ISSET(cpu, &seen)) continue;
    snprintf(path, sizeof path, "%s/cpu/cpu%zu/topology/%s", system, cpu, file);
    if (!read_list(path, &cpus) || !CPU_ISSET(cpu, &cpus))
      return WEFT_ERR(FAILED_PRECONDITION, "--bind-to: the kernel does not describe its CPUs in %s", path);
    add_place(out, &cpus, usable);
    CPU_OR(&seen, &seen, &cpus);
  }
  return NULL;
}

/* A kernel without NUMA has one node, which it does not describe. */
static void find_nodes(const char *system, const cpu_set_t *usable, places *out)
{
  cpu_set_t nodes, cpus;
  char path[4096];

  snprintf(path, sizeof path, "%s/node/online", system);
  if (!read_list(path, &nodes)) CPU_ZERO(&nodes);
  for (size_t node = 0; node < CPU_SETSIZE; node++) {
    snprintf(path, sizeof path, "%s/node/node%zu/cpulist", system, node);
    if (CPU_ISSET(node, &nodes) && read_list(path, &cpus)) add_place(out, &cpus, usable);
  }
  if (out->count == 0) add_place(out, usable, usable);
}

weft_status *cli_bind_cpus(cli_bind how, const char *system, const cpu_set_t *usable, int index, int count,
                           cpu_set_t *out, int *out_sharers)
{
  places *list = calloc(1, sizeof *list);
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(list);
  switch (how) {
  case CLI_BIND_NONE: add_place(list, usable, usable); break;
  case CLI_BIND_CORE: st = find_by_cpu(system, "thread_siblings_list", usable, list); break;
  case CLI_BIND_SOCKET: st = find_by_cpu(system, "core_siblings_list", usable, list); break;
  case CLI_BIND_NUMA: find_nodes(system, usable, list); break;
  }
  if (!st && list->count == 0) st = WEFT_ERR(FAILED_PRECONDITION, "--bind-to: there is no usable CPU");
  if (!st && how == CLI_BIND_CORE && count > list->count)
    st = WEFT_ERR(FAILED_PRECONDITION,
                  "--bind-to core: %d processes on a machine where they may use %d cores: start fewer, or bind them to "
                  "numa or socket",
                  count, list->count);
  if (!st) {
    int64_t place = (int64_t)index * list->count / count;
    *out = list->cpus[place];
    *out_sharers = 0;
    for (int i = 0; i < count; i++) *out_sharers += (int64_t)i * list->count / count == place;
  }
  free(list);
  return st;
}

weft_status *cli_bind_here(cli_bind how, int index, int count, cpu_set_t *out, int *out_sharers)
{
  cpu_set_t usable;

  if (sched_getaffinity(0, sizeof usable, &usable) != 0)
    return WEFT_ERR(UNIMPLEMENTED, "--bind-to: sched_getaffinity: %s (machines of over %d CPUs are not supported)",
                    strerror(errno), CPU_SETSIZE);
  return cli_bind_cpus(how, "/sys/devices/system", &usable, index, count, out, out_sharers);
}
