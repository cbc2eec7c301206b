/* gpu/numa.c -- binding threads to the NUMA node of a GPU (numa.h). */
#include <config.h>

#include "gpu/numa.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/machine.h"

const char *gpu_numa_folder = "/sys/devices/system/node";
int64_t gpu_numa_patience_ns = 50000;

bool gpu_numa_cpus(int node, const cpu_set_t *allowed, cpu_set_t *out)
{
  char path[300];
  weft_cpus cpus;

  CPU_ZERO(out);
  if (node < 0) return false;
  snprintf(path, sizeof path, "%s/node%d/cpulist", gpu_numa_folder, node);
  if (!weft_cpus_read(path, &cpus)) return false;
  for (int cpu = weft_cpus_next(&cpus, -1); cpu >= 0 && cpu < CPU_SETSIZE; cpu = weft_cpus_next(&cpus, cpu))
    CPU_SET((size_t)cpu, out);
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
