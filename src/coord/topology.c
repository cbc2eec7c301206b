/* coord/topology.c -- local topologies in, one global topology out.
 *
 * Every process sets local_topology/PLATFORM/ID;  process 0 gets them all, numbers partitions and devices, and sets
 * global_topology/PLATFORM, which the others get.  A process that comes back finds its own key there already. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/coord.h>

#include "base/arena.h"
#include "coord/wire/coord_topology.pb-c.h"

enum { MAX_DEVICES = 1 << 20 };

static char *text(const char *borrowed) { return (char *)(uintptr_t)(borrowed ? borrowed : ""); }

/* ---- structs to messages and back ---- */

static weft_status *to_message(const weft_coord_local_topology *local, weft_arena *arena, Cg__LocalTopology *m)
{
  Cg__Device *devices = WEFT_ARENA_ARRAY(arena, Cg__Device, local->device_count);

  cg__local_topology__init(m);
  m->devices = WEFT_ARENA_ARRAY(arena, Cg__Device *, local->device_count);
  m->network_nodes = WEFT_ARENA_ARRAY(arena, char *, local->network_node_count);
  if (!devices || !m->devices || !m->network_nodes) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  m->process_id = local->process_id;
  m->boot_id = text(local->boot_id);
  if (local->partition_index >= 0) {
    m->explicit_partition_case = CG__LOCAL_TOPOLOGY__EXPLICIT_PARTITION_PARTITION_INDEX;
    m->partition_index = local->partition_index;
  }
  for (; m->n_network_nodes < local->network_node_count; m->n_network_nodes++)
    m->network_nodes[m->n_network_nodes] = text(local->network_nodes[m->n_network_nodes]);
  for (; m->n_devices < local->device_count; m->n_devices++) {
    const weft_coord_device *from = &local->devices[m->n_devices];
    Cg__Device *d = m->devices[m->n_devices] = &devices[m->n_devices];
    cg__device__init(d);
    d->local_device_ordinal = from->local_ordinal;
    d->global_device_id = from->global_id;
    d->core_count = from->core_count;
    d->numa_node = from->numa_node;
    d->device_memory_bytes_limit = from->memory_bytes;
    d->name = text(from->name);
    d->vendor = text(from->vendor);
    d->device_kind = text(from->kind);
    d->compute_capability = text(from->compute_capability);
    d->fabric_uuid = text(from->fabric_uuid);
  }
  return NULL;
}

static weft_status *pack(const ProtobufCMessage *m, weft_arena *arena, uint8_t **out, size_t *out_size)
{
  *out_size = protobuf_c_message_get_packed_size(m);
  *out = weft_arena_alloc(arena, *out_size);
  WEFT_TRY_ALLOC(*out);
  protobuf_c_message_pack(m, *out);
  return NULL;
}

/* The result and all that it points to live in its arena. */
typedef struct global_topology {
  weft_coord_global_topology base;
  weft_arena arena;
} global_topology;

void weft_coord_global_topology_free(weft_coord_global_topology *base)
{
  global_topology *global;

  if (!base) return;
  global = WEFT_CONTAINER_OF(base, global_topology, base);
  weft_arena_fini(&global->arena);
  free(global);
}

static weft_status *from_message(const Cg__LocalTopology *m, weft_arena *arena, weft_coord_local_topology *out)
{
  char **nodes = WEFT_ARENA_ARRAY(arena, char *, m->n_network_nodes);

  *out = (weft_coord_local_topology){
    .process_id = m->process_id,
    .boot_id = weft_arena_strdup(arena, m->boot_id),
    .partition_index = -1,
    .network_nodes = (const char *const *)nodes,
    .network_node_count = m->n_network_nodes,
    .devices = WEFT_ARENA_ARRAY(arena, weft_coord_device, m->n_devices),
    .device_count = m->n_devices,
  };
  if (m->explicit_partition_case == CG__LOCAL_TOPOLOGY__EXPLICIT_PARTITION_PARTITION_INDEX)
    out->partition_index = m->partition_index;
  if (!nodes || !out->boot_id || !out->devices) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < m->n_network_nodes; i++) {
    nodes[i] = weft_arena_strdup(arena, m->network_nodes[i]);
    WEFT_TRY_ALLOC(nodes[i]);
  }
  for (size_t i = 0; i < m->n_devices; i++) {
    const Cg__Device *d = m->devices[i];
    out->devices[i] = (weft_coord_device){
      .local_ordinal = d->local_device_ordinal,
      .global_id = d->global_device_id,
      .partition_index = d->partition_index,
      .core_count = d->core_count,
      .numa_node = d->numa_node,
      .memory_bytes = d->device_memory_bytes_limit,
      .name = weft_arena_strdup(arena, d->name),
      .vendor = weft_arena_strdup(arena, d->vendor),
      .kind = weft_arena_strdup(arena, d->device_kind),
      .compute_capability = weft_arena_strdup(arena, d->compute_capability),
      .fabric_uuid = weft_arena_strdup(arena, d->fabric_uuid),
    };
    if (!out->devices[i].name || !out->devices[i].vendor || !out->devices[i].kind ||
        !out->devices[i].compute_capability || !out->devices[i].fabric_uuid)
      return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  return NULL;
}

static weft_status *to_result(const Cg__GlobalTopology *m, weft_coord_global_topology **out)
{
  global_topology *global = calloc(1, sizeof *global);
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(global);
  weft_arena_init(&global->arena);
  global->base.processes = WEFT_ARENA_ARRAY(&global->arena, weft_coord_local_topology, m->n_processes);
  if (!global->base.processes) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < m->n_processes && !st; i++)
    st = from_message(m->processes[i], &global->arena, &global->base.processes[i]);
  global->base.process_count = m->n_processes;
  if (st) weft_coord_global_topology_free(&global->base);
  else *out = &global->base;
  return st;
}

/* ---- the order of the network, partitions, ids ---- */

/* By network nodes, top level first, a shorter path before its continuations; then by process id. */
static int compare_processes(const void *a, const void *b)
{
  const Cg__LocalTopology *x = *(Cg__LocalTopology *const *)a, *y = *(Cg__LocalTopology *const *)b;

  for (size_t i = 0; i < x->n_network_nodes && i < y->n_network_nodes; i++) {
    int order = strcmp(x->network_nodes[i], y->network_nodes[i]);
    if (order) return order;
  }
  if (x->n_network_nodes != y->n_network_nodes) return x->n_network_nodes < y->n_network_nodes ? -1 : 1;
  return (x->process_id > y->process_id) - (x->process_id < y->process_id); /* qsort is not stable by itself */
}

/* A fabric's id is valid unless its first part is all zeros: "00000000-0000-0000-0000-000000000000/0". */
static bool has_fabric(const Cg__Device *d)
{
  const char *id = d->fabric_uuid;

  if (!*id) return false;
  for (; *id && *id != '/'; id++)
    if (*id != '0' && *id != '-') return true;
  return false;
}

typedef struct partition_key {
  const char *text;
  int32_t index;      /* of its first device, in walking order; then the partition's number */
  Cg__Device *device;
} partition_key;

static int compare_keys(const void *a, const void *b)
{
  const partition_key *x = a, *y = b;
  int order = strcmp(x->text, y->text);

  return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int compare_indices(const void *a, const void *b)
{
  const partition_key *x = a, *y = b;

  return (x->index > y->index) - (x->index < y->index);
}

static int compare_by_partition(const void *a, const void *b)
{
  const partition_key *x = a, *y = b;
  int32_t p = x->device->partition_index, q = y->device->partition_index;

  return p != q ? (p > q) - (p < q) : compare_indices(a, b);
}

/* Numbers the distinct keys by first appearance: sort by key, keep each key's first index, rank those. */
static weft_status *number_partitions(Cg__GlobalTopology *global, size_t device_count, weft_arena *arena)
{
  partition_key *keys = WEFT_ARENA_ARRAY(arena, partition_key, device_count), *firsts;
  bool by_fabric = true;
  size_t n = 0, distinct = 0;
  int32_t *rank_of;

  WEFT_TRY_ALLOC(keys);
  for (size_t p = 0; p < global->n_processes; p++)
    for (size_t d = 0; d < global->processes[p]->n_devices; d++)
      by_fabric &= has_fabric(global->processes[p]->devices[d]);
  for (size_t p = 0; p < global->n_processes; p++)
    for (size_t d = 0; d < global->processes[p]->n_devices; d++, n++)
      keys[n] = (partition_key){.text = by_fabric ? global->processes[p]->devices[d]->fabric_uuid
                                                  : global->processes[p]->boot_id,
                                .index = (int32_t)n,
                                .device = global->processes[p]->devices[d]};
  qsort(keys, n, sizeof *keys, compare_keys);
  firsts = WEFT_ARENA_ARRAY(arena, partition_key, n);
  rank_of = WEFT_ARENA_ARRAY(arena, int32_t, n);
  if (!firsts || !rank_of) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < n; i++) {
    if (i == 0 || strcmp(keys[i].text, keys[i - 1].text) != 0) firsts[distinct++] = keys[i];
    keys[i].device->partition_index = firsts[distinct - 1].index; /* provisional: where its partition first appears */
  }
  qsort(firsts, distinct, sizeof *firsts, compare_indices);
  for (size_t i = 0; i < distinct; i++) rank_of[firsts[i].index] = (int32_t)i;
  for (size_t i = 0; i < n; i++) keys[i].device->partition_index = rank_of[keys[i].device->partition_index];
  return NULL;
}

/* Consecutive ids, partition by partition, in walking order within each. */
static weft_status *number_devices(Cg__GlobalTopology *global, size_t device_count, weft_arena *arena)
{
  partition_key *order = WEFT_ARENA_ARRAY(arena, partition_key, device_count);
  size_t n = 0;

  WEFT_TRY_ALLOC(order);
  for (size_t p = 0; p < global->n_processes; p++)
    for (size_t d = 0; d < global->processes[p]->n_devices; d++, n++)
      order[n] = (partition_key){.index = (int32_t)n, .device = global->processes[p]->devices[d]};
  qsort(order, n, sizeof *order, compare_by_partition);
  for (size_t i = 0; i < n; i++) order[i].device->global_device_id = (int32_t)i;
  return NULL;
}

static weft_status *build(Cg__GlobalTopology *global, bool keep_global_ids, weft_arena *arena)
{
  size_t device_count = 0, explicit_count = 0;

  for (size_t p = 0; p < global->n_processes; p++) {
    explicit_count += global->processes[p]->explicit_partition_case != CG__LOCAL_TOPOLOGY__EXPLICIT_PARTITION__NOT_SET;
    device_count += global->processes[p]->n_devices;
  }
  if (device_count > MAX_DEVICES)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "%zu devices; at most %d are supported", device_count, MAX_DEVICES);
  if (explicit_count > 0 && explicit_count < global->n_processes)
    return WEFT_ERR(INVALID_ARGUMENT, "%zu of %zu processes say their partition index; all must or none may",
                    explicit_count, global->n_processes);
  if (explicit_count > 0) {
    for (size_t p = 0; p < global->n_processes; p++)
      for (size_t d = 0; d < global->processes[p]->n_devices; d++)
        global->processes[p]->devices[d]->partition_index = global->processes[p]->partition_index;
  } else {
    qsort(global->processes, global->n_processes, sizeof(global->processes[0]), compare_processes);
    WEFT_TRY(number_partitions(global, device_count, arena));
  }
  return keep_global_ids ? NULL : number_devices(global, device_count, arena);
}

/* ---- the exchange ---- */

/* A process that restarts must have the same devices as before; its machine may have been rebooted. */
static weft_status *check_same(const Cg__LocalTopology *before, const Cg__LocalTopology *now)
{
  if (before->process_id != now->process_id || before->n_devices != now->n_devices)
    return WEFT_ERR(INTERNAL, "process %" PRId32 " came back with %zu devices; it had %zu", now->process_id,
                    now->n_devices, before->n_devices);
  for (size_t i = 0; i < now->n_devices; i++) {
    const Cg__Device *a = before->devices[i], *b = now->devices[i];
    if (strcmp(a->name, b->name) != 0 || strcmp(a->vendor, b->vendor) != 0 ||
        a->local_device_ordinal != b->local_device_ordinal || a->core_count != b->core_count ||
        strcmp(a->device_kind, b->device_kind) != 0 || a->global_device_id != b->global_device_id ||
        strcmp(a->compute_capability, b->compute_capability) != 0)
      return WEFT_ERR(INTERNAL,
                      "process %" PRId32
                      " came back with another device %zu: \"%s\" of kind \"%s\", before \"%s\" of kind \"%s\"",
                      now->process_id, i, b->name, b->device_kind, a->name, a->device_kind);
  }
  return NULL;
}

static weft_status *publish(weft_kv *kv, const char *key, const Cg__LocalTopology *m, weft_arena *arena)
{
  uint8_t *packed;
  size_t size;
  WEFT_AUTO_STR old = NULL;
  Cg__LocalTopology *before;
  weft_status *st;

  WEFT_TRY(pack(&m->base, arena, &packed, &size));
  st = weft_kv_set(kv, key, packed, size, false);
  if (weft_status_code(st) != WEFT_ALREADY_EXISTS) return st;
  weft_status_free(st);
  WEFT_TRY(weft_kv_try_get(kv, key, &old, &size));
  before = cg__local_topology__unpack(NULL, size, (const uint8_t *)old);
  if (!before) return WEFT_ERR(INTERNAL, "the value of key %s is no local topology", key);
  st = check_same(before, m);
  cg__local_topology__free_unpacked(before, NULL);
  return st;
}

/* Process 0's part: gets all local topologies, builds the global one, sets it. */
static weft_status *collect(weft_kv *kv, const weft_coord_topology_options *options, const char *global_key,
                            weft_deadline deadline, weft_arena *arena)
{
  Cg__GlobalTopology global = CG__GLOBAL_TOPOLOGY__INIT;
  size_t n = (size_t)options->process_count, size;
  Cg__LocalTopology **unpacked = WEFT_ARENA_ARRAY(arena, Cg__LocalTopology *, n);
  weft_status *st = NULL;
  char key[256];
  uint8_t *packed;

  global.processes = WEFT_ARENA_ARRAY(arena, Cg__LocalTopology *, n);
  if (!unpacked || !global.processes) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (size_t i = 0; i < n && !st; i++) {
    WEFT_AUTO_STR value = NULL;
    snprintf(key, sizeof key, "local_topology/%s/%zu", options->platform, i);
    st = weft_kv_get(kv, key, deadline, &value, &size);
    if (st) break;
    unpacked[i] = cg__local_topology__unpack(NULL, size, (const uint8_t *)value);
    if (!unpacked[i] || unpacked[i]->process_id != (int32_t)i)
      st = WEFT_ERR(INTERNAL, "the value of key %s is no local topology of process %zu", key, i);
    else global.processes[global.n_processes++] = unpacked[i];
  }
  if (!st) st = build(&global, options->keep_global_ids, arena);
  if (!st) st = pack(&global.base, arena, &packed, &size);
  if (!st) st = weft_kv_set(kv, global_key, packed, size, false);
  for (size_t i = 0; i < n; i++)
    if (unpacked[i]) cg__local_topology__free_unpacked(unpacked[i], NULL);
  if (weft_status_code(st) != WEFT_ALREADY_EXISTS) return st;
  weft_status_free(st); /* process 0 has come back: what it set before stands */
  return NULL;
}

static weft_status *exchange(weft_kv *kv, const weft_coord_topology_options *options,
                             const weft_coord_local_topology *local, weft_arena *arena,
                             weft_coord_global_topology **out)
{
  Cg__LocalTopology mine;
  char local_key[256], global_key[256];
  weft_deadline local_deadline =
    weft_deadline_after_ns(options->local_timeout_ns ? options->local_timeout_ns : 120 * WEFT_NS_PER_S);
  weft_deadline global_deadline =
    weft_deadline_after_ns(options->global_timeout_ns ? options->global_timeout_ns : 300 * WEFT_NS_PER_S);
  WEFT_AUTO_STR value = NULL;
  Cg__GlobalTopology *global;
  size_t size;
  weft_status *st;

  WEFT_TRY(to_message(local, arena, &mine));
  if (options->process_count == 1) { /* there is no other process */
    Cg__LocalTopology *only = &mine;
    Cg__GlobalTopology alone = CG__GLOBAL_TOPOLOGY__INIT;
    alone.n_processes = 1;
    alone.processes = &only;
    WEFT_TRY(build(&alone, options->keep_global_ids, arena));
    return to_result(&alone, out);
  }
  snprintf(local_key, sizeof local_key, "local_topology/%s/%" PRId32, options->platform, local->process_id);
  snprintf(global_key, sizeof global_key, "global_topology/%s", options->platform);
  WEFT_TRY(publish(kv, local_key, &mine, arena));
  if (local->process_id == 0) WEFT_TRY(collect(kv, options, global_key, local_deadline, arena));
  WEFT_TRY(weft_kv_get(kv, global_key, global_deadline, &value, &size));
  global = cg__global_topology__unpack(NULL, size, (const uint8_t *)value);
  if (!global) return WEFT_ERR(INTERNAL, "the value of key %s is no global topology", global_key);
  st = to_result(global, out);
  cg__global_topology__free_unpacked(global, NULL);
  return st;
}

weft_status *weft_coord_topology_exchange(weft_kv *kv, const weft_coord_topology_options *options,
                                          const weft_coord_local_topology *local,
                                          weft_coord_global_topology **out_global)
{
  weft_arena arena;
  weft_status *st;

  *out_global = NULL;
  if (options->process_count < 1 || local->process_id < 0 || local->process_id >= options->process_count ||
      strlen(options->platform) > 128)
    return WEFT_ERR(INVALID_ARGUMENT, "topology: process %" PRId32 " of %" PRId32 " on platform \"%.200s\"",
                    local->process_id, options->process_count, options->platform);
  weft_arena_init(&arena);
  st = exchange(kv, options, local, &arena, out_global);
  weft_arena_fini(&arena);
  return st;
}

const char *weft_coord_boot_id(char *buf)
{
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

  *buf = '\0';
  if (!file) return buf;
  if (!fgets(buf, 64, file)) *buf = '\0';
  fclose(file);
  buf[strcspn(buf, "\n")] = '\0';
  return buf;
}
