/* cli/allocation.c -- the hosts of a batch system's allocation, which the batch system names in the environment. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cli/job_secret.h"

enum { MOST_HOSTS = 16384 };

typedef struct host_list {
  FILE *out;
  size_t count;
} host_list;

static void put_host(host_list *list, const char *name, size_t length)
{
  if (length == 0 || length > 255 || list->count == MOST_HOSTS) return;
  fprintf(list->out, "%s%.*s", list->count++ ? "," : "", (int)length, name);
}

/* Expands a list such as "003-005,7" between a prefix and a suffix. The numbers keep the digits that the list gives
 * them. */
static void put_numbers(host_list *list, const char *before, size_t before_length, const char *numbers,
                        const char *after, size_t after_length)
{
  while (*numbers && *numbers != ']' && list->count < MOST_HOSTS) {
    char *end, host[256];
    int digits = (int)strspn(numbers, "0123456789");
    unsigned long first = strtoul(numbers, &end, 10), last = first;
    if (digits == 0 || digits > 9) return;
    if (*end == '-') last = strtoul(end + 1, &end, 10);
    for (; first <= last && list->count < MOST_HOSTS; first++) {
      int n = snprintf(host, sizeof host, "%.*s%0*lu%.*s", (int)before_length, before, digits, first, (int)after_length,
                       after);
      put_host(list, host, (size_t)WEFT_MAX(n, 0));
    }
    numbers = end + (*end == ',');
  }
}

/* Slurm's "gpu[003-005,7],login1". */
static void put_slurm(host_list *list, const char *nodes)
{
  while (*nodes && list->count < MOST_HOSTS) {
    size_t before = strcspn(nodes, ",[");
    if (nodes[before] != '[') {
      put_host(list, nodes, before);
      nodes += before + (nodes[before] == ',');
      continue;
    }
    const char *numbers = nodes + before + 1, *close = strchr(numbers, ']');
    if (!close) return;
    size_t after = strcspn(close + 1, ",");
    put_numbers(list, nodes, before, numbers, close + 1, after);
    nodes = close + 1 + after + (close[1 + after] == ',');
  }
}

/* The first word of each line of `file`: the nodes of PBS, the hosts of Grid Engine. */
static void put_file(host_list *list, const char *path)
{
  FILE *in = fopen(path, "re");
  char line[1024];

  while (in && fgets(line, sizeof line, in)) put_host(list, line, strcspn(line, " \t\n"));
  if (in) fclose(in);
}

/* The hosts of LSF: "host1 host1 host2" with `step` 1, "host1 2 host2 1" with `step` 2. */
static void put_words(host_list *list, const char *words, int step)
{
  for (int i = 0; *(words += strspn(words, " ")); i++) {
    size_t length = strcspn(words, " ");
    if (i % step == 0) put_host(list, words, length);
    words += length;
  }
}

char *cli_allocation_hosts(void)
{
  const char *slurm = getenv("SLURM_JOB_NODELIST"), *pbs = getenv("PBS_NODEFILE"), *engine = getenv("PE_HOSTFILE");
  const char *lsf = getenv("LSB_HOSTS"), *lsf_counts = getenv("LSB_MCPU_HOSTS");
  char *text = NULL;
  size_t size;
  host_list list = {.out = open_memstream(&text, &size)};

  if (!list.out) return NULL;
  if (!slurm) slurm = getenv("SLURM_NODELIST");
  if (slurm) put_slurm(&list, slurm);
  else if (pbs || engine) put_file(&list, pbs ? pbs : engine);
  else if (lsf_counts || lsf) put_words(&list, lsf_counts ? lsf_counts : lsf, lsf_counts ? 2 : 1);
  fclose(list.out);
  return text;
}
