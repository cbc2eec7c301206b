/* base/machine.c -- the CPUs and memory nodes that this process may use (machine.h). */
#include <config.h>

#include "base/machine.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *weft_machine_root = "";

/* ---- sets ------------------------------------------------------------------------------------------------------- */

enum { LONG_BITS = 8 * sizeof(unsigned long), MOST_LIST = 64 << 10 };

void weft_cpus_add(weft_cpus *set, int cpu)
{
  if (cpu >= 0 && cpu < WEFT_MOST_CPUS) set->bits[cpu / LONG_BITS] |= 1ul << cpu % LONG_BITS;
}

bool weft_cpus_has(const weft_cpus *set, int cpu)
{
  return cpu >= 0 && cpu < WEFT_MOST_CPUS && (set->bits[cpu / LONG_BITS] >> cpu % LONG_BITS & 1) != 0;
}

int weft_cpus_count(const weft_cpus *set)
{
  int count = 0;

  for (size_t i = 0; i < WEFT_COUNT(set->bits); i++) count += __builtin_popcountl(set->bits[i]);
  return count;
}

int weft_cpus_next(const weft_cpus *set, int after)
{
  for (int cpu = after + 1; cpu < WEFT_MOST_CPUS; cpu++) {
    unsigned long rest = set->bits[cpu / LONG_BITS] >> cpu % LONG_BITS;
    if (rest) return cpu + __builtin_ctzl(rest);
    cpu |= LONG_BITS - 1;
  }
  return -1;
}

void weft_cpus_keep(weft_cpus *set, const weft_cpus *others)
{
  for (size_t i = 0; i < WEFT_COUNT(set->bits); i++) set->bits[i] &= others->bits[i];
}

bool weft_cpus_parse(const char *list, weft_cpus *out)
{
  *out = (weft_cpus){0};
  while (isspace((unsigned char)*list)) list++;
  while (*list) {
    char *end;
    if (!isdigit((unsigned char)*list)) return false;
    unsigned long first = strtoul(list, &end, 10), last = first;
    if (*end == '-') {
      if (!isdigit((unsigned char)end[1])) return false;
      last = strtoul(end + 1, &end, 10);
    }
    for (; first <= last && first < WEFT_MOST_CPUS; first++) weft_cpus_add(out, (int)first);
    while (isspace((unsigned char)*end)) end++;
    if (*end && *end != ',') return false;
    list = end + (*end == ',');
  }
  return true;
}

/* The first line of a file, without its end, to be freed. NULL: there is no such file. */
static char *first_line(const char *path)
{
  FILE *file = fopen(path, "re");
  char *line = NULL;
  size_t size = 0;
  ssize_t length = file ? getline(&line, &size, file) : -1;

  if (file) fclose(file);
  if (length < 0) {
    free(line);
    return NULL;
  }
  line[strcspn(line, "\n")] = '\0';
  return line;
}

bool weft_cpus_read(const char *path, weft_cpus *out)
{
  WEFT_AUTO_STR line = first_line(path);

  *out = (weft_cpus){0};
  return line && weft_cpus_parse(line, out);
}

/* The list after "NAME:" in /proc/self/status. */
static bool read_status_list(const char *name, weft_cpus *out)
{
  char path[PATH_MAX], *line = NULL;
  size_t size = 0, length = strlen(name);
  bool found = false;

  snprintf(path, sizeof path, "%s/proc/self/status", weft_machine_root);
  FILE *file = fopen(path, "re");
  while (file && !found && getline(&line, &size, file) > 0)
    found = strncmp(line, name, length) == 0 && line[length] == ':' && weft_cpus_parse(line + length + 1, out);
  free(line);
  if (file) fclose(file);
  return found;
}

bool weft_cpus_allowed(weft_cpus *out)
{
  *out = (weft_cpus){0};
  if (*weft_machine_root) return read_status_list("Cpus_allowed_list", out);
  /* the call itself rather than glibc's function: it takes sets of any size, and a kernel for more CPUs refuses small
   * ones */
  return syscall(SYS_sched_getaffinity, 0, sizeof *out, out) > 0;
}

bool weft_cpus_bind(const weft_cpus *set) { return syscall(SYS_sched_setaffinity, 0, sizeof *set, set) == 0; }

/* ---- the machine ------------------------------------------------------------------------------------------------ */

static bool read_system(weft_cpus *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Reads a list from below /sys/devices/system. */
static bool read_system(weft_cpus *out, const char *fmt, ...)
{
  char path[PATH_MAX];
  int used = snprintf(path, sizeof path, "%s/sys/devices/system/", weft_machine_root);
  va_list args;

  if (used < 0 || used >= (int)sizeof path) return false;
  va_start(args, fmt);
  vsnprintf(path + used, sizeof path - (size_t)used, fmt, args);
  va_end(args);
  return weft_cpus_read(path, out);
}

int weft_machine_node_count(void)
{
  weft_cpus nodes;

  return read_system(&nodes, "node/online") ? WEFT_MAX(weft_cpus_count(&nodes), 1) : 1;
}

static void usable_cpus(weft_cpus *out)
{
  weft_cpus online;

  if (!weft_cpus_allowed(out))
    for (long cpu = 0, count = sysconf(_SC_NPROCESSORS_ONLN); cpu < count; cpu++) weft_cpus_add(out, (int)cpu);
  if (read_system(&online, "cpu/online")) weft_cpus_keep(out, &online);
  if (weft_cpus_count(out) == 0) weft_cpus_add(out, 0);
}

/* The node with memory that is nearest to `node`, or `node` itself if it has memory or nothing is known. */
static int memory_of(int node, const weft_cpus *with_memory)
{
  char path[PATH_MAX];
  int nearest = node;
  long least = LONG_MAX;
  weft_cpus online;

  if (weft_cpus_has(with_memory, node) || !read_system(&online, "node/online")) return node;
  snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/distance", weft_machine_root, node);
  WEFT_AUTO_STR distances = first_line(path);
  char *at = distances, *end; /* one for each node that is online */
  for (int other = weft_cpus_next(&online, -1); at && other >= 0; other = weft_cpus_next(&online, other)) {
    long distance = strtol(at, &end, 10);
    if (end == at) break;
    at = end;
    if (!weft_cpus_has(with_memory, other) || distance >= least) continue;
    least = distance;
    nearest = other;
  }
  return nearest;
}

/* 0 if the CPU is the first of its core. */
static int sibling_of(int cpu)
{
  weft_cpus siblings;
  int before = 0;

  if (!read_system(&siblings, "cpu/cpu%d/topology/thread_siblings_list", cpu)) return 0;
  for (int other = weft_cpus_next(&siblings, -1); other >= 0 && other < cpu; other = weft_cpus_next(&siblings, other))
    before++;
  return before;
}

static int compare_cpus(const void *a, const void *b)
{
  const weft_machine_cpu *x = a, *y = b;

  if (x->node != y->node) return x->node - y->node;
  if (x->sibling != y->sibling) return x->sibling - y->sibling;
  return x->cpu - y->cpu;
}

static void add_node(weft_machine *m, int id, int memory, const weft_cpus *cpus)
{
  weft_machine_node node = {.id = id, .memory = memory, .first = m->cpu_count};

  for (int cpu = weft_cpus_next(cpus, -1); cpu >= 0; cpu = weft_cpus_next(cpus, cpu))
    m->cpus[m->cpu_count++] = (weft_machine_cpu){.cpu = cpu, .node = m->node_count, .sibling = sibling_of(cpu)};
  node.count = m->cpu_count - node.first;
  if (node.count > 0) m->nodes[m->node_count++] = node;
}

/* Adds each node with its usable CPUs, and takes these out of `left`. */
static void add_nodes(weft_machine *m, const weft_cpus *nodes, weft_cpus *left)
{
  weft_cpus with_memory, allowed, cpus;

  if (!read_system(&with_memory, "node/has_memory")) with_memory = *nodes;
  if (read_status_list("Mems_allowed_list", &allowed)) weft_cpus_keep(&with_memory, &allowed);
  for (int id = weft_cpus_next(nodes, -1); id >= 0; id = weft_cpus_next(nodes, id)) {
    if (!read_system(&cpus, "node/node%d/cpulist", id)) continue;
    weft_cpus_keep(&cpus, left);
    for (size_t i = 0; i < WEFT_COUNT(cpus.bits); i++) left->bits[i] &= ~cpus.bits[i];
    if (weft_cpus_count(&cpus) > 0) add_node(m, id, memory_of(id, &with_memory), &cpus);
  }
}

weft_status *weft_machine_read(weft_machine **out_machine)
{
  WEFT_AUTO(weft_machine) m = calloc(1, sizeof *m);
  weft_cpus left, nodes;

  *out_machine = NULL;
  WEFT_TRY_ALLOC(m);
  usable_cpus(&left);
  if (!read_system(&nodes, "node/online")) nodes = (weft_cpus){0};
  m->cpus = calloc((size_t)weft_cpus_count(&left), sizeof *m->cpus);
  m->nodes = calloc((size_t)weft_cpus_count(&nodes) + 1, sizeof *m->nodes);
  WEFT_TRY_ALLOC(m->cpus && m->nodes);
  add_nodes(m, &nodes, &left);
  if (weft_cpus_count(&left) > 0) {
    if (m->node_count == 0) add_node(m, 0, 0, &left); /* a kernel without NUMA does not describe its one node */
    else
      for (int cpu = weft_cpus_next(&left, -1); cpu >= 0; cpu = weft_cpus_next(&left, cpu)) { /* CPUs without a node */
        m->cpus[m->cpu_count++] = (weft_machine_cpu){.cpu = cpu, .node = m->node_count - 1, .sibling = sibling_of(cpu)};
        m->nodes[m->node_count - 1].count++;
      }
  }
  qsort(m->cpus, (size_t)m->cpu_count, sizeof *m->cpus, compare_cpus);
  *out_machine = WEFT_MOVE(m);
  return NULL;
}

void weft_machine_free(weft_machine *machine)
{
  if (!machine) return;
  free(machine->cpus);
  free(machine->nodes);
  free(machine);
}

/* ---- control groups --------------------------------------------------------------------------------------------- */

/* The folder of the process's control group for a controller, and the length of the part of it that is the mount. */
typedef struct group {
  bool is_v2;
  char folder[PATH_MAX];
  size_t mount_length;
} group;

/* Is `word` in a list with commas? */
static bool lists(const char *list, const char *word)
{
  size_t length = strlen(word);

  for (; *list; list += *list == ',') {
    size_t n = strcspn(list, ",");
    if (n == length && strncmp(list, word, n) == 0) return true;
    list += n;
  }
  return false;
}

/* Finds the path of the process's group within its hierarchy. A line is "4:cpu,cpuacct:/path", or "0::/path" for
 * version 2. */
static bool find_path(const char *controller, bool *out_is_v2, char *out, size_t size)
{
  char path[PATH_MAX], *line = NULL;
  size_t room = 0;
  bool found = false, is_v1 = false;

  snprintf(path, sizeof path, "%s/proc/self/cgroup", weft_machine_root);
  FILE *file = fopen(path, "re");
  while (file && !is_v1 && getline(&line, &room, file) > 0) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *at = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!at) continue;
    *at = '\0';
    is_v1 = lists(controllers + 1, controller);
    if (!is_v1 && controllers[1]) continue;
    snprintf(out, size, "%s", at + 1);
    *out_is_v2 = !is_v1;
    found = true;
  }
  free(line);
  if (file) fclose(file);
  return found;
}

/* Resolves the octal escapes of /proc/self/mountinfo: "\040" is a space. */
static void unescape(char *text)
{
  char *to = text;

  for (; *text; text++, to++) {
    bool escaped = text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && isdigit((unsigned char)text[2]) &&
                   isdigit((unsigned char)text[3]);
    *to = escaped ? (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + text[3] - '0') : *text;
    if (escaped) text += 3;
  }
  *to = '\0';
}

/* Takes a line of /proc/self/mountinfo: "36 35 0:30 ROOT MOUNTPOINT rw,noatime shared:1 - TYPE SOURCE OPTIONS". */
static bool is_mount_of(char *line, const char *controller, bool is_v2, char **out_root, char **out_point)
{
  char *words[6], *rest = line, *dash = strstr(line, " - "), type[32], options[1024];

  if (!dash || sscanf(dash, " - %31s %*s %1023s", type, options) != 2) return false;
  if (strcmp(type, is_v2 ? "cgroup2" : "cgroup") != 0 || (!is_v2 && !lists(options, controller))) return false;
  for (int i = 0; i < 6; i++)
    if (!(words[i] = strtok_r(i ? NULL : line, " \n", &rest))) return false;
  unescape(*out_root = words[3]);
  unescape(*out_point = words[4]);
  return true;
}

static bool find_group(const char *controller, group *out)
{
  char inside[PATH_MAX], path[PATH_MAX], *line = NULL, *root, *point;
  size_t room = 0;
  bool found = false;

  if (!find_path(controller, &out->is_v2, inside, sizeof inside)) return false;
  snprintf(path, sizeof path, "%s/proc/self/mountinfo", weft_machine_root);
  FILE *file = fopen(path, "re");
  while (file && !found && getline(&line, &room, file) > 0) {
    if (!is_mount_of(line, controller, out->is_v2, &root, &point)) continue;
    /* the mount may show a part of the hierarchy only, as in a container: the path is then below its root, or, in
     * another name space, not there at all */
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    bool is_below = strncmp(inside, root, length) == 0 && (inside[length] == '/' || !inside[length]);
    int n = snprintf(out->folder, sizeof out->folder, "%s%s", weft_machine_root, point);
    if (n < 0 || n >= (int)sizeof out->folder) continue;
    out->mount_length = (size_t)n;
    if (is_below && strcmp(inside + length, "/") != 0)
      snprintf(out->folder + n, sizeof out->folder - (size_t)n, "%s", inside + length);
    found = true;
  }
  free(line);
  if (file) fclose(file);
  return found;
}

/* Goes to the group above. False: there is none. */
static bool go_up(group *g)
{
  char *slash = strrchr(g->folder + g->mount_length, '/');

  if (!slash) return false;
  *slash = '\0';
  return true;
}

static char *group_line(const group *g, const char *file)
{
  char path[PATH_MAX + 64];

  snprintf(path, sizeof path, "%s/%s", g->folder, file);
  return first_line(path);
}

/* CPUs that one group may use on average; infinite: as many as there are. */
static double quota_of(const group *g)
{
  WEFT_AUTO_STR quota = group_line(g, g->is_v2 ? "cpu.max" : "cpu.cfs_quota_us");
  WEFT_AUTO_STR period = g->is_v2 ? NULL : group_line(g, "cpu.cfs_period_us");
  double of = period ? strtod(period, NULL) : 100000, us = -1;
  char *end;

  if (quota) {
    us = strtod(quota, &end);
    if (end == quota) us = -1; /* "max" */
    else if (g->is_v2 && *end) of = strtod(end, NULL);
  }
  return us > 0 && of > 0 ? us / of : INFINITY;
}

/* The least quota of the process's group and of those around it. */
static double quota_here(void)
{
  double least = INFINITY;
  group g;

  if (!find_group("cpu", &g)) return least;
  do least = fmin(least, quota_of(&g));
  while (go_up(&g));
  return least;
}

/* CPUs of the innermost cpuset around the process that tells its CPUs; 0: not known. A process that a launcher has
 * bound has fewer. */
static int cpuset_count(void)
{
  static const char *const v1[] = {"cpuset.effective_cpus", "cpuset.cpus"}, *const v2[] = {"cpuset.cpus.effective"};
  weft_cpus cpus;
  group g;

  if (!find_group("cpuset", &g)) return 0;
  do
    for (size_t i = 0; i < (g.is_v2 ? WEFT_COUNT(v2) : WEFT_COUNT(v1)); i++) {
      WEFT_AUTO_STR line = group_line(&g, g.is_v2 ? v2[i] : v1[i]);
      if (line && weft_cpus_parse(line, &cpus) && weft_cpus_count(&cpus) > 0) return weft_cpus_count(&cpus);
    }
  while (go_up(&g));
  return 0;
}

/* ---- launchers -------------------------------------------------------------------------------------------------- */

/* A positive number in the environment, or 0. */
static int variable(const char *name)
{
  const char *text = getenv(name);
  char *end;
  long value = text ? strtol(text, &end, 10) : 0;

  return text && end != text && *end == '\0' && value > 0 && value < INT_MAX ? (int)value : 0;
}

/* Element `index` of Slurm's "4(x2),3", which is 4, 4, 3; 0: there is none. */
static int slurm_element(const char *list, long index)
{
  while (list && *list) {
    char *end;
    long value = strtol(list, &end, 10), times = 1;
    if (end == list || value < 1 || value > WEFT_MOST_CPUS) return 0;
    if (strncmp(end, "(x", 2) == 0) {
      times = strtol(end + 2, &end, 10);
      if (*end == ')') end++;
    }
    if (times < 1) return 0;
    if (index < times) return (int)value;
    index -= times;
    list = *end == ',' ? end + 1 : NULL;
  }
  return 0;
}

/* Is the process a task of a Slurm step? A batch script, and the shell of an interactive job, stand for the whole job
 * on their node: the step numbers of these are the highest that there are. */
static bool is_slurm_task(void)
{
  const char *step = getenv("SLURM_STEP_ID");

  if (!step) step = getenv("SLURM_STEPID");
  return step && *step && strtoull(step, NULL, 10) < 0xfffffff0;
}

/* CPUs that Slurm gives this task; 0: not known. */
static int slurm_cpus(void)
{
  int given = variable("SLURM_CPUS_PER_TASK");

  if (!is_slurm_task()) return 0;
  if (given > 0) return given;
  const char *node = getenv("SLURM_NODEID"), *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");
  int count = node ? slurm_element(tasks, atoi(node)) : 0, cpus = variable("SLURM_CPUS_ON_NODE");
  return count > 0 && cpus > 0 ? WEFT_MAX(cpus / count, 1) : 0;
}

/* The variable in which a launcher says how many processes it started on this machine; NULL: none does. */
static const char *launcher(void)
{
  static const char *const names[] = {
    "OMPI_COMM_WORLD_LOCAL_SIZE", /* Open MPI */
    "MPI_LOCALNRANKS",            /* MPICH, Intel MPI */
    "MV2_COMM_WORLD_LOCAL_SIZE",  /* MVAPICH */
    "LOCAL_WORLD_SIZE",           /* torchrun */
  };

  for (size_t i = 0; i < WEFT_COUNT(names); i++)
    if (variable(names[i]) > 0) return names[i];
  return NULL;
}

/* CPUs that the processes of one machine share: those of its cpuset, or all. */
static int shared_cpus(int usable)
{
  weft_cpus online;
  int all = read_system(&online, "cpu/online") ? weft_cpus_count(&online) : usable, set = cpuset_count();

  if (set > 0) all = WEFT_MIN(all, set);
  return WEFT_MAX(all, usable);
}

static void limit(weft_cores *cores, int threads, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void limit(weft_cores *cores, int threads, const char *fmt, ...)
{
  va_list args;

  threads = WEFT_MAX(threads, 1);
  if (threads >= cores->threads) return;
  cores->threads = threads;
  va_start(args, fmt);
  vsnprintf(cores->reason, sizeof cores->reason, fmt, args);
  va_end(args);
}

weft_cores weft_cores_here(void)
{
  weft_cores cores = {.reason = ""};
  int sharers = variable("WEFT_LOCAL_PROCESSES");
  weft_cpus usable;
  double quota = quota_here();
  const char *name = launcher();
  int slurm = slurm_cpus();

  usable_cpus(&usable);
  cores.threads = cores.usable = weft_cpus_count(&usable);
  if (quota < WEFT_MOST_CPUS) limit(&cores, (int)ceil(quota), "the control group's quota is %.4g CPUs", quota);
  if (slurm > 0) limit(&cores, slurm, "Slurm gives this task %d CPUs", slurm);
  if (sharers > 1) {
    int whole = cores.threads / sharers, rest = cores.threads % sharers;
    limit(&cores, whole + (variable("WEFT_LOCAL_PROCESS_ID") % sharers < rest), "%d processes share %d CPUs", sharers,
          cores.threads);
  } else if (name && sharers < 1) {
    int all = shared_cpus(cores.usable);
    limit(&cores, all / variable(name), "%s: %d processes share %d CPUs", name, variable(name), all);
  }
  return cores;
}
