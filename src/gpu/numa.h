/* gpu/numa.h -- threads that call the driver run on the CPUs that are near their GPU.
 *
 * On a machine with several NUMA nodes a call of the driver, and a copy to or from pinned memory, are slower from a CPU
 * of another node than the GPU's. */
#ifndef WEFT_GPU_NUMA_H
#define WEFT_GPU_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

enum { GPU_NO_NODE = -1 };

/* The CPUs of a node that are also in `allowed`. False: the system does not describe the node, or none of them is
 * allowed. */
bool gpu_numa_cpus(int node, const cpu_set_t *allowed, cpu_set_t *out);

/* Binds the calling thread to the CPUs of the node which the thread may use. Does nothing for GPU_NO_NODE, and where
 * gpu_numa_cpus is false. */
void gpu_numa_bind(int node);

/* Where the system describes its nodes, and how long a worker leaves a run to the workers that are near the run's GPU:
 * less than the run is slower from here.  Tests set others before the first platform is made. */
extern const char *gpu_numa_folder;
extern int64_t gpu_numa_patience_ns;

#endif
