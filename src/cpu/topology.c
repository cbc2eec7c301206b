/* cpu/topology.c -- describes the machine, for `weft info` (topology.h). */
#include <config.h>

#include "cpu/topology.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/machine.h"
#include "cpu/onednn.h"

int64_t cpu_memory_bytes(void) { return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

static weft_status *load(hwloc_topology_t *out)
{
  if (hwloc_topology_init(out) != 0)
    return WEFT_ERR(UNAVAILABLE, "hwloc: the library cannot be used, or there is no memory");
  if (hwloc_topology_load(*out) == 0) return NULL;
  hwloc_topology_destroy(*out);
  return WEFT_ERR(UNKNOWN, "hwloc: cannot read this machine's topology");
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
  weft_cores cores = weft_cores_here();
  fprintf(out, "  %-18s %d\n", "usable threads", cores.usable);
  fprintf(out, "  %-18s %d%s%s\n", "worker threads", cores.threads, *cores.reason ? ": " : "", cores.reason);
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
