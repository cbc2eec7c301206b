/* runtime/numa.h -- where memory lies on a machine of several NUMA nodes.
 *
 * A page lies on the node of the thread that first writes to it, unless a policy says otherwise. Most arrays need no
 * policy: the threads that make them share the work in the same way as those that read them (pool.c), so the pages lie
 * where they are used. Policies are hints: where the kernel refuses them, as in many containers, nothing changes but
 * the speed. All functions do nothing for fewer than two nodes, and are thread-safe. */
#ifndef WEFT_RUNTIME_NUMA_H
#define WEFT_RUNTIME_NUMA_H

#include "base/machine.h"

typedef struct rt_numa {
  int count;               /* nodes; fewer than 2: nothing is placed */
  const int *ids;          /* the number of the node that has the memory of each */
  const int *numbers;      /* the number of each node itself */
} rt_numa;

/* Spreads the pages that `data` and `bytes` cover wholly over all nodes, in turn, also those that have been written.
 * For what the threads of all nodes read as a whole. */
void rt_numa_interleave(const rt_numa *numa, void *data, int64_t bytes);
/* Has the pages that are not written yet lie on node `node` (an index), as long as it has free memory. */
void rt_numa_prefer(const rt_numa *numa, int node, void *data, int64_t bytes);
/* The index of the node on which the calling thread runs at the moment; 0 if it is none of them. */
int rt_numa_here(const rt_numa *numa);

/* The system call that sets a policy; tests put their own in its place. */
typedef long rt_numa_mbind(void *data, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long most,
                           unsigned flags);
extern rt_numa_mbind *rt_numa_bind_call;

#endif
