/* runtime/numa.c -- where memory lies on a machine of several NUMA nodes (numa.h). */
#include <config.h>

#include "runtime/numa.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

/* The values of Linux's <linux/mempolicy.h>. */
enum { PREFERRED = 1, INTERLEAVE = 3, MOVE = 2 };
enum { MOST_NODES = 1024, LONG_BITS = 8 * sizeof(unsigned long) };

static long system_mbind(void *data, unsigned long bytes, int mode, const unsigned long *nodes, unsigned long most,
                         unsigned flags)
{
  return syscall(SYS_mbind, data, bytes, mode, nodes, most, flags);
}
rt_numa_mbind *rt_numa_bind_call = system_mbind;

static void set_policy(void *data, int64_t bytes, int mode, const unsigned long *nodes, unsigned flags)
{
  static atomic_bool told;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = WEFT_ALIGN_UP((uintptr_t)data, page);
  uintptr_t end = ((uintptr_t)data + (uintptr_t)bytes) & ~(page - 1);

  if (end <= begin) return;
  if (rt_numa_bind_call((void *)begin, end - begin, mode, nodes, MOST_NODES + 1, flags) == 0) return;
  if (!atomic_exchange(&told, true))
    WEFT_LOG("rt", INFO, "memory is not placed on NUMA nodes: mbind: %s", strerror(errno));
}

static void add(unsigned long *nodes, int id)
{
  if (id >= 0 && id < MOST_NODES) nodes[id / LONG_BITS] |= 1ul << id % LONG_BITS;
}

void rt_numa_interleave(const rt_numa *numa, void *data, int64_t bytes)
{
  unsigned long nodes[MOST_NODES / LONG_BITS] = {0};

  if (numa->count < 2) return;
  for (int i = 0; i < numa->count; i++) add(nodes, numa->ids[i]);
  set_policy(data, bytes, INTERLEAVE, nodes, MOVE);
}

void rt_numa_prefer(const rt_numa *numa, int node, void *data, int64_t bytes)
{
  unsigned long nodes[MOST_NODES / LONG_BITS] = {0};

  if (numa->count < 2 || node < 0 || node >= numa->count) return;
  add(nodes, numa->ids[node]);
  set_policy(data, bytes, PREFERRED, nodes, 0);
}

int rt_numa_here(const rt_numa *numa)
{
  unsigned cpu, node;

  if (numa->count < 2 || getcpu(&cpu, &node) != 0) return 0;
  for (int i = 0; i < numa->count; i++)
    if (numa->numbers[i] == (int)node) return i;
  return 0;
}
