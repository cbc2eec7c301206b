/* tests/machine_files.h -- the files in which Linux describes a machine, written by a test into a folder that
 * base/machine.h then reads. */
#ifndef WEFT_TESTS_MACHINE_FILES_H
#define WEFT_TESTS_MACHINE_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/machine.h"
#include "base/macros.h"

static char files_folder[64];

/* Writes a file below the folder. */
static inline WEFT_UNUSED void files_put(const char *name, const char *text)
{
  char path[512];

  snprintf(path, sizeof path, "%s/%s", files_folder, name);
  for (char *at = path + strlen(files_folder) + 1; (at = strchr(at, '/')); at++) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
  FILE *out = fopen(path, "we");
  if (!out) abort();
  fputs(text, out);
  fclose(out);
}

/* A machine of which nothing is described yet, and no launcher. */
static inline WEFT_UNUSED void files_begin(void)
{
  static const char *const variables[] = {
    "SLURM_CPUS_PER_TASK", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_NODEID", "SLURM_CPUS_ON_NODE",
    "SLURM_STEP_TASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE",
    "LOCAL_WORLD_SIZE", "WEFT_LOCAL_PROCESSES", "WEFT_LOCAL_PROCESS_ID"};

  for (size_t i = 0; i < WEFT_COUNT(variables); i++) unsetenv(variables[i]);
  strcpy(files_folder, "/tmp/weft-machine-XXXXXX");
  if (!mkdtemp(files_folder)) abort();
  weft_machine_root = files_folder;
}

static inline WEFT_UNUSED void files_end(void)
{
  char command[128];

  snprintf(command, sizeof command, "rm -r %s", files_folder);
  if (system(command) != 0) abort();
  weft_machine_root = "";
}

/* Describes `nodes` nodes of `cores` cores with `siblings` hardware threads each, numbered as x86 does: first threads
 * of all cores come before second ones. The process may use all of it. */
static inline WEFT_UNUSED void files_machine(int nodes, int cores, int siblings)
{
  char name[128], text[512];
  int first = nodes * cores, all = first * siblings;

  snprintf(text, sizeof text, "0-%d\n", all - 1);
  files_put("sys/devices/system/cpu/online", text);
  snprintf(text, sizeof text, "Name:\ttest\nCpus_allowed_list:\t0-%d\nMems_allowed_list:\t0-%d\n", all - 1, nodes - 1);
  files_put("proc/self/status", text);
  snprintf(text, sizeof text, "0-%d\n", nodes - 1);
  files_put("sys/devices/system/node/online", text);
  files_put("sys/devices/system/node/has_memory", text);
  for (int node = 0; node < nodes; node++) {
    int n = 0;
    for (int s = 0; s < siblings; s++)
      n += snprintf(text + n, sizeof text - (size_t)n, "%s%d-%d", s ? "," : "", s * first + node * cores,
                    s * first + node * cores + cores - 1);
    snprintf(text + n, sizeof text - (size_t)n, "\n");
    snprintf(name, sizeof name, "sys/devices/system/node/node%d/cpulist", node);
    files_put(name, text);
  }
  for (int cpu = 0; cpu < all; cpu++) {
    int n = 0;
    for (int s = 0; s < siblings; s++)
      n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", s ? "," : "", cpu % first + s * first);
    snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    files_put(name, text);
  }
}

#endif
