/* gpu/numa.c -- binding threads to the NUMA node of a GPU (numa.h). */
#include <config.h>

#include "gpu/numa.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

const char *gpu_numa_folder = "/sys/devices/system/node";

/* Reads a list such as "0-3,8,10-11". False: it is no such list. */
static bool read_list(const char *text, cpu_set_t *out)
{
  CPU_ZERO(out);
  while (*text && *text != '\n') {
    char *end;
    unsigned long first = strtoul(text, &end, 10), last = first;
    if (end == text) return false;
    if (*end == '-') {
      text = end + 1;
      last = strtoul(text, &end, 10);
      if (end == text) return false;
    }
    for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) CPU_SET(cpu, out);
    text = *end == ',' ? end + 1 : end;
    if (*end && *end != ',' && *end != '\n') return false;
  }
  return true;
}

bool gpu_numa_cpus(int node, const cpu_set_t *allowed, cpu_set_t *out)
{
  char path[300], text[4096];

  CPU_ZERO(out);
  if (node < 0) return false;
  snprintf(path, sizeof path, "%s/node%d/cpulist", gpu_numa_folder, node);
  FILE *file = fopen(path, "re");
  if (!file) return false;
  bool there = fgets(text, sizeof text, file) != NULL;
  fclose(file);
  if (!there || !read_list(text, out)) return false;
  CPU_AND(out, out, allowed);
  return CPU_COUNT(out) > 0;
}

void gpu_numa_bind(int node)
{
  cpu_set_t allowed, cpus;

  if (node < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  if (!gpu_numa_cpus(node, &allowed, &cpus) || CPU_EQUAL(&cpus, &allowed)) return;
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
    WEFT_LOG("gpu", INFO, "a thread is not bound to NUMA node %d: %s", node, strerror(errno));
}
