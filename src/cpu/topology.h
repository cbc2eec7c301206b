/* cpu/topology.h -- describes the machine, for `weft info`. */
#ifndef WEFT_CPU_TOPOLOGY_H
#define WEFT_CPU_TOPOLOGY_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

int64_t cpu_memory_bytes(void);
/* Packages, cores, caches, NUMA nodes, memory, huge pages: indented lines. */
WEFT_NODISCARD weft_status *cpu_topology_print(FILE *out);

#endif
