/* base/machine.h -- the CPUs and memory nodes that this process may use, as Linux describes them, and the number of
 * threads that it should compute with.
 *
 * A *node* is a NUMA node: CPUs and the memory that is near to them. All functions are thread-safe, and read the files
 * of Linux anew in each call. What a kernel does not describe is taken as one node that has everything. */
#ifndef WEFT_BASE_MACHINE_H
#define WEFT_BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* ---- sets of CPUs, or of nodes ---- */

enum { WEFT_MOST_CPUS = 8192 }; /* the most that Linux supports on x86-64 */

typedef struct weft_cpus {
  unsigned long bits[WEFT_MOST_CPUS / 8 / sizeof(unsigned long)];
} weft_cpus;

void weft_cpus_add(weft_cpus *set, int cpu); /* numbers beyond WEFT_MOST_CPUS are left out */
bool weft_cpus_has(const weft_cpus *set, int cpu);
int weft_cpus_count(const weft_cpus *set);
int weft_cpus_next(const weft_cpus *set, int after);          /* the lowest number above `after`; -1: there is none */
void weft_cpus_keep(weft_cpus *set, const weft_cpus *others); /* drops what is not in `others` */
/* Reads a list such as "0-3,8"; an empty list is an empty set. False: the text, or the first line of the file, is no
 * such list. */
bool weft_cpus_parse(const char *list, weft_cpus *out);
bool weft_cpus_read(const char *path, weft_cpus *out);
/* The CPUs on which the calling thread may run. False: the kernel does not say. */
bool weft_cpus_allowed(weft_cpus *out);
/* Binds the calling thread. False: the kernel refuses, with the reason in errno. */
bool weft_cpus_bind(const weft_cpus *set);

/* ---- the machine ---- */

typedef struct weft_machine_cpu {
  int cpu;     /* its number */
  int node;    /* an index of weft_machine.nodes */
  int sibling; /* 0 for the first hardware thread of a core, 1 for the second */
} weft_machine_cpu;

typedef struct weft_machine_node {
  int id;     /* its number, which may leave gaps */
  int memory; /* the number of the node that has memory for these CPUs: `id`, or the nearest if this one has none */
  int first, count; /* its CPUs in weft_machine.cpus */
} weft_machine_node;

/* What the calling thread may use: at least one CPU and one node. Nodes without usable CPUs are left out. */
typedef struct weft_machine {
  int cpu_count, node_count;
  weft_machine_cpu *cpus; /* by node; in a node first threads of cores before second ones */
  weft_machine_node *nodes;
} weft_machine;

/* Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *weft_machine_read(weft_machine **out_machine);
void weft_machine_free(weft_machine *machine);
WEFT_DEFINE_AUTO(weft_machine, weft_machine_free)
/* The number of nodes of a machine, with or without CPUs; cheap. */
int weft_machine_node_count(void);

/* ---- how many threads ---- */

typedef struct weft_cores {
  int threads; /* to compute with, so that nobody's CPUs are used twice as far as that is known; at least 1 */
  int usable;  /* CPUs on which the calling thread may run */
  char reason[80]; /* why `threads` is less than `usable`; empty: it is not */
} weft_cores;

/* The least of: the CPUs on which the calling thread may run; the quota of its control groups, rounded up; what Slurm
 * gives a task (SLURM_CPUS_PER_TASK, or an equal part of the node's); and an equal part for each process that shares
 * these CPUs, where WEFT_LOCAL_PROCESSES says how many do (`weft launch` sets it); where it does not, an equal part of
 * the machine's CPUs for each process that mpirun or torchrun started here. WEFT_LOCAL_PROCESS_ID says which processes
 * have one more when WEFT_LOCAL_PROCESSES leaves a remainder. */
weft_cores weft_cores_here(void);

/* Goes before the names of all files that are read; tests set it to a folder of theirs. In such a folder the mask of
 * the process is Cpus_allowed_list of proc/self/status. */
extern const char *weft_machine_root;

#endif
