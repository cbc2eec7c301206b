/* cpu/topology.c -- describes the machine, for `weft info` (topology.h). */
#include <config.h>

#include "cpu/topology.h"

#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/cpu_internal.h"
#include "cpu/onednn.h"

struct cpu_topology {
  hwloc_topology_t hwloc;
  int count;
  hwloc_obj_t *order; /* hardware threads in the order in which workers are bound to them */
};

int cpu_usable_threads(void)
{
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return WEFT_MAX(CPU_COUNT(&set), 1);
  return (int)WEFT_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

int64_t cpu_memory_bytes(void) { return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

static weft_status *load(hwloc_topology_t *out)
{
  if (hwloc_topology_init(out) != 0)
    return WEFT_ERR(UNAVAILABLE, "hwloc: the library cannot be used, or there is no memory");
  if (hwloc_topology_load(*out) == 0) return NULL;
  hwloc_topology_destroy(*out);
  return WEFT_ERR(UNKNOWN, "hwloc: cannot read this machine's topology");
}

/* The order of a hardware thread: first threads of cores come before second ones, and neighbours in this order are
 * on different NUMA nodes, so that few workers use all memory channels. */
typedef struct place { hwloc_obj_t pu; int sibling, core, node; } place;

static int compare_places(const void *a, const void *b)
{
  const place *x = a, *y = b;
  if (x->sibling != y->sibling) return x->sibling - y->sibling;
  if (x->core != y->core) return x->core - y->core;
  return x->node - y->node;
}

weft_status *cpu_topology_new(cpu_topology **out_topology)
{
  cpu_topology *t = calloc(1, sizeof *t);
  place *places = NULL;
  weft_status *st;

  *out_topology = NULL;
  WEFT_TRY_ALLOC(t);
  st = load(&t->hwloc);
  if (st) {
    free(t);
    return st;
  }
  t->count = WEFT_MAX(hwloc_get_nbobjs_by_type(t->hwloc, HWLOC_OBJ_PU), 0);
  t->order = calloc((size_t)t->count + 1, sizeof(hwloc_obj_t));
  places = calloc((size_t)t->count + 1, sizeof *places);
  if (!t->order || !places) {
    free(places);
    cpu_topology_free(t);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  for (int i = 0; i < t->count; i++) {
    hwloc_obj_t pu = hwloc_get_obj_by_type(t->hwloc, HWLOC_OBJ_PU, (unsigned)i);
    hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(t->hwloc, HWLOC_OBJ_CORE, pu), node = NULL;
    while ((node = hwloc_get_next_obj_by_type(t->hwloc, HWLOC_OBJ_NUMANODE, node)) &&
           !hwloc_bitmap_isset(node->cpuset, pu->os_index)) {}
    places[i] = (place){.pu = pu, .sibling = (int)pu->sibling_rank, .node = node ? (int)node->logical_index : 0};
    if (core && node) { /* the number of the core within its node */
      int first = hwloc_bitmap_first(node->cpuset), rank = 0;
      for (int cpu = first; cpu >= 0 && cpu < (int)pu->os_index; cpu = hwloc_bitmap_next(node->cpuset, cpu)) rank++;
      places[i].core = rank;
    } else {
      places[i].core = i;
    }
  }
  qsort(places, (size_t)t->count, sizeof *places, compare_places);
  for (int i = 0; i < t->count; i++) t->order[i] = places[i].pu;
  free(places);
  *out_topology = t;
  return NULL;
}

void cpu_topology_free(cpu_topology *t)
{
  if (!t) return;
  hwloc_topology_destroy(t->hwloc);
  free(t->order);
  free(t);
}

void cpu_topology_bind(const cpu_topology *t, int index)
{
  if (t->count > 0)
    hwloc_set_cpubind(t->hwloc, t->order[(index - 1) % t->count]->cpuset, HWLOC_CPUBIND_THREAD); /* a hint: may fail */
}

static void read_line(const char *path, char *line, size_t size)
{
  FILE *file = fopen(path, "r");
  line[0] = '\0';
  if (!file) return;
  if (fgets(line, (int)size, file)) line[strcspn(line, "\n")] = '\0';
  fclose(file);
}

weft_status *cpu_topology_print(FILE *out)
{
  static const struct { hwloc_obj_type_t type; const char *name; } kinds[] = {
    {HWLOC_OBJ_PACKAGE, "packages"}, {HWLOC_OBJ_NUMANODE, "NUMA nodes"}, {HWLOC_OBJ_CORE, "cores"},
    {HWLOC_OBJ_PU, "hardware threads"}};
  static const struct { hwloc_obj_type_t type; const char *name; } caches[] = {
    {HWLOC_OBJ_L3CACHE, "L3 cache"}, {HWLOC_OBJ_L2CACHE, "L2 cache"}, {HWLOC_OBJ_L1CACHE, "L1 cache"}};
  hwloc_topology_t t;
  char line[128];

  WEFT_TRY(load(&t));
  for (size_t i = 0; i < WEFT_COUNT(kinds); i++)
    fprintf(out, "  %-18s %d\n", kinds[i].name, hwloc_get_nbobjs_by_type(t, kinds[i].type));
  fprintf(out, "  %-18s %d\n", "usable threads", cpu_usable_threads());
  for (size_t i = 0; i < WEFT_COUNT(caches); i++) {
    hwloc_obj_t cache = hwloc_get_obj_by_type(t, caches[i].type, 0);
    if (cache)
      fprintf(out, "  %-18s %d x %llu KiB\n", caches[i].name, hwloc_get_nbobjs_by_type(t, caches[i].type),
              (unsigned long long)cache->attr->cache.size >> 10);
  }
  hwloc_topology_destroy(t);
  fprintf(out, "  %-18s %.1f GiB\n", "memory", (double)cpu_memory_bytes() / (1 << 30));
  read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
  fprintf(out, "  %-18s transparent: %s\n", "huge pages", *line ? line : "unknown");
  fprintf(out, "  %-18s %s\n", "oneDNN found", cpu_onednn_version());
  return NULL;
}
