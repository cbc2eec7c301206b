/* pjrt/client.c -- clients: devices of this process, and of all others through the key-value store. */
#include <config.h>

#include <stdio.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/build_id.h"
#include "base/options.h"
#include "base/thread.h"
#include "collective/clique.h"
#include "platform/registry.h"
#include "pjrt/agent.h"
#include "pjrt/extensions.h"
#include "pjrt/internal.h"
#include "pjrt/settings.h"
#include "runtime/feed.h"
#include "runtime/trace.h"

const char pjrt_platform_version[] = "weft " PACKAGE_VERSION " (LLVM " WEFT_LLVM_VERSION ", build " WEFT_BUILD_ID ")";

enum { MAX_PROCESSES = 1 << 16, MOST_ORDINALS = 256 };

static weft_mutex clients_mu = WEFT_MUTEX_INITIALIZER;
static PJRT_Client *clients WEFT_GUARDED_BY(clients_mu);

typedef struct client_settings {
  int64_t device_count, threads, node_id, num_nodes;
  int64_t agent; /* 0: none */
  int64_t first_device;
  int ordinals[MOST_ORDINALS]; /* [device_count] if has_ordinals */
  bool has_ordinals;
} client_settings;

/* An integer option, which a text-only route of JAX may send as a string. */
static weft_status *read_integer(const PJRT_NamedValue *value, const char *name, int64_t least, int64_t most,
                                 int64_t *out)
{
  if (value->type == PJRT_NamedValue_kInt64) {
    *out = value->int64_value;
  } else if (value->type == PJRT_NamedValue_kString) {
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)WEFT_MIN(value->value_size, sizeof text - 1), value->string_value);
    WEFT_TRY(weft_option_parse(WEFT_OPT_INT, name, text, out));
  } else {
    return WEFT_ERR(INVALID_ARGUMENT, "option %s must be an integer", name);
  }
  if (*out < least || *out > most)
    return WEFT_ERR(INVALID_ARGUMENT, "option %s is %lld, not in [%lld, %lld]", name, (long long)*out, (long long)least,
                    (long long)most);
  return NULL;
}

/* The list of devices that the process may use. */
static weft_status *read_devices(const PJRT_NamedValue *value, const char *name, client_settings *s)
{
  if (value->type != PJRT_NamedValue_kInt64List || value->value_size < 1 || value->value_size > MOST_ORDINALS)
    return WEFT_ERR(INVALID_ARGUMENT, "option %s must be a list of 1 to %d integers", name, MOST_ORDINALS);
  for (size_t i = 0; i < value->value_size; i++) {
    int64_t ordinal = value->int64_array_value[i];
    if (ordinal < 0 || ordinal > INT_MAX)
      return WEFT_ERR(INVALID_ARGUMENT, "option %s has %lld, which is no device", name, (long long)ordinal);
    for (size_t k = 0; k < i; k++)
      if (s->ordinals[k] == ordinal)
        return WEFT_ERR(INVALID_ARGUMENT, "option %s has device %lld twice", name, (long long)ordinal);
    s->ordinals[i] = (int)ordinal;
  }
  s->device_count = (int64_t)value->value_size;
  s->has_ordinals = true;
  return NULL;
}

/* An option that only the platform has. False: the platform has none of that name. */
static bool read_platform_option(const PJRT_NamedValue *value, const char *name, client_settings *s, weft_status **out)
{
  const weft_client_option *option = pjrt_platform()->client_options;

  while (option && option->name && strcmp(option->name, name) != 0) option++;
  *out = NULL;
  if (!option || !option->name) return false;
  switch (option->kind) {
  case WEFT_CLIENT_IGNORED: break;
  case WEFT_CLIENT_FALSE:
    if (value->type != PJRT_NamedValue_kBool || value->bool_value)
      *out = WEFT_ERR(UNIMPLEMENTED, "option %s: %s", name, option->why);
    break;
  case WEFT_CLIENT_DEVICES: *out = read_devices(value, name, s); break;
  }
  return true;
}

/* The number of devices that the environment asks for: WEFT_NUM_DEVICES, else XLA's own flag; 0 without either. */
static weft_status *environment_devices(int64_t *out)
{
  static const char flag[] = "--xla_force_host_platform_device_count=";
  const char *count = getenv("WEFT_NUM_DEVICES"), *xla = getenv("XLA_FLAGS");
  char text[16];

  *out = 0;
  if (!count || !*count) {
    for (count = NULL; xla && (xla = strstr(xla, flag)) != NULL;)
      count = xla += sizeof flag - 1; /* the last one counts */
    if (!count) return NULL;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(count, " \t\n"), count);
    count = text;
  }
  WEFT_TRY(weft_option_parse(WEFT_OPT_INT, "WEFT_NUM_DEVICES", count, out));
  if (*out < 1 || *out > WEFT_DEVICES_A_PROCESS)
    return WEFT_ERR(INVALID_ARGUMENT, "%lld devices are asked for in the environment, not in [1, %d]", (long long)*out,
                    WEFT_DEVICES_A_PROCESS);
  return NULL;
}

static weft_status *read_settings(const PJRT_Client_Create_Args *args, client_settings *s)
{
  const char *at = (const char *)args->create_options;
  weft_status *st;

  *s = (client_settings){.device_count = 0, .num_nodes = 1};
  if (pjrt_platform()->devices_by_request) WEFT_TRY(environment_devices(&s->device_count));
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *value = (const PJRT_NamedValue *)at;
    size_t stride = args->create_options[0].struct_size;
    char name[64];

    at += WEFT_ALIGN_UP(stride ? stride : sizeof *value, (size_t)8);
    snprintf(name, sizeof name, "%.*s", (int)WEFT_MIN(value->name_size, sizeof name - 1), value->name);
    if (strcmp(name, "num_devices") == 0 || strcmp(name, "cpu_device_count") == 0)
      WEFT_TRY(read_integer(value, name, 1, WEFT_DEVICES_A_PROCESS, &s->device_count));
    else if (strcmp(name, "num_threads") == 0) WEFT_TRY(read_integer(value, name, 1, 4096, &s->threads));
    else if (strcmp(name, "node_id") == 0 || strcmp(name, "process_id") == 0)
      WEFT_TRY(read_integer(value, name, 0, MAX_PROCESSES, &s->node_id));
    else if (strcmp(name, "num_nodes") == 0) WEFT_TRY(read_integer(value, name, 1, MAX_PROCESSES, &s->num_nodes));
    else if (strcmp(name, "weft_agent") == 0) WEFT_TRY(read_integer(value, name, 1, INT64_MAX, &s->agent));
    else if (strcmp(name, "weft_first_device") == 0) WEFT_TRY(read_integer(value, name, 0, INT_MAX, &s->first_device));
    else if (read_platform_option(value, name, s, &st)) WEFT_TRY(st);
    else if (strcmp(name, "asynchronous") != 0 && strcmp(name, "partition_index") != 0)
      return WEFT_ERR(INVALID_ARGUMENT,
                      "unknown option \"%s\" (num_devices, num_threads, node_id, num_nodes, weft_agent are known)",
                      name);
  }
  if (s->node_id >= s->num_nodes)
    return WEFT_ERR(INVALID_ARGUMENT, "node_id %lld is not below num_nodes %lld", (long long)s->node_id,
                    (long long)s->num_nodes);
  return NULL;
}

/* What a process publishes about its devices: their number, and a line with the kind of each. */
typedef struct process_devices {
  int count;
  char *kinds; /* lines, each after a line break; NULL: not published */
} process_devices;

static void process_devices_free(process_devices *all, int count)
{
  for (int p = 0; all && p < count; p++) free(all[p].kinds);
  free(all);
}

/* The kind of device `ordinal`; "" if the text does not have it. */
static void kind_of(const process_devices *of, int ordinal, char *out, size_t size)
{
  const char *at = of->kinds;
  size_t n = 0;

  for (int i = 0; at && i < ordinal; i++) at = strchr(at + 1, '\n');
  for (at = at ? at + 1 : ""; *at && *at != '\n' && n + 1 < size; at++)
    out[n++] = (char)(*at >= ' ' && *at <= '~' ? *at : '?');
  out[n] = '\0';
}

static weft_status *say_devices(PJRT_Client *client)
{
  WEFT_AUTO_STR text = NULL;
  size_t size = 0;
  char key[64];
  FILE *out = open_memstream(&text, &size);

  WEFT_TRY_ALLOC(out);
  fprintf(out, "%d", client->local_count);
  for (int i = 0; i < client->local_count; i++)
    fprintf(out, "\n%.63s", weft_device_kind(weft_platform_device(client->platform, i)));
  if (fclose(out)) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  snprintf(key, sizeof key, "weft/topology/%d", client->process_index);
  /* A restarted process finds the key that it wrote before: the same value may stay. */
  weft_status_ignore(weft_kv_set(client->kv, key, text, size, false));
  return NULL;
}

/* Every process publishes its devices and reads those of the others.  The deadlines are those of XLA:CPU's exchange. */
static weft_status *exchange_devices(PJRT_Client *client, process_devices *all)
{
  weft_deadline deadline = weft_deadline_after_ms(5 * 60 * 1000);
  char key[64];

  WEFT_TRY(say_devices(client));
  for (int p = 0; p < client->process_count; p++) {
    WEFT_AUTO_STR value = NULL;
    size_t size;
    int64_t count;
    snprintf(key, sizeof key, "weft/topology/%d", p);
    WEFT_TRY_NOTE(weft_kv_get(client->kv, key, deadline, &value, &size), "waiting for the devices of process %d of %d",
                  p, client->process_count);
    char *kinds = strchr(value, '\n');
    if (kinds) WEFT_TRY_ALLOC(all[p].kinds = strdup(kinds));
    if (kinds) *kinds = '\0';
    WEFT_TRY(weft_option_parse(WEFT_OPT_INT, key, value, &count));
    if (count < 1 || count > WEFT_DEVICES_A_PROCESS)
      return WEFT_ERR(INVALID_ARGUMENT, "process %d says it has %lld devices", p, (long long)count);
    all[p].count = (int)count;
  }
  if (all[client->process_index].count != client->local_count)
    return WEFT_ERR(FAILED_PRECONDITION, "process %d had %d devices before and has %d now", client->process_index,
                    all[client->process_index].count, client->local_count);
  return NULL;
}

PJRT_Client *pjrt_client_retain(PJRT_Client *client)
{
  __atomic_add_fetch(&client->refs, 1, __ATOMIC_RELAXED); /* the caller's reference keeps it alive */
  return client;
}

void pjrt_client_release(PJRT_Client *client) WEFT_UNSHARED
{
  /* acq_rel: all use of the client happens before it is freed */
  if (!client || __atomic_sub_fetch(&client->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  weft_mutex_lock(&clients_mu);
  for (PJRT_Client **at = &clients; *at; at = &(*at)->next)
    if (*at == client) {
      *at = client->next;
      break;
    }
  weft_mutex_unlock(&clients_mu);
  for (int i = 0; client->devices && i < client->device_count; i++) pjrt_device_fini(&client->devices[i]);
  pjrt_topology_free(client->topology);
  pjrt_links_free(client);
  weft_platform_release(client->platform);
  weft_kv_destroy(client->kv);
  pjrt_agent_release(client->agent);
  free(client->devices);
  free(client->device_list);
  free(client->local_list);
  free(client->memory_list);
  free(client->incarnations);
  weft_mutex_fini(&client->mu);
  weft_mutex_fini(&client->links_mu);
  free(client);
}
WEFT_DEFINE_AUTO(PJRT_Client, pjrt_client_release)

static weft_status *make_devices(PJRT_Client *client, const process_devices *all)
{
  PJRT_DeviceDescription *descriptions;
  weft_status *st;
  int at = 0, local = 0;

  client->device_count = 0;
  for (int p = 0; p < client->process_count; p++) client->device_count += all[p].count;
  client->devices = calloc((size_t)client->device_count, sizeof *client->devices);
  client->device_list = calloc((size_t)client->device_count, sizeof *client->device_list);
  client->local_list = calloc((size_t)client->local_count, sizeof *client->local_list);
  client->memory_list = calloc((size_t)client->local_count * PJRT_MEMORY_KINDS, sizeof *client->memory_list);
  if (!client->devices || !client->device_list || !client->local_list || !client->memory_list)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int p = 0; p < client->process_count; p++)
    for (int i = 0; i < all[p].count; i++, at++) {
      PJRT_Device *device = &client->devices[at];
      bool mine = p == client->process_index;
      char kind[64];
      kind_of(&all[p], i, kind, sizeof kind);
      WEFT_TRY(pjrt_device_init(device, client, p * WEFT_DEVICES_A_PROCESS + i, p, i, *kind ? kind : NULL,
                                mine ? weft_platform_device(client->platform, i) : NULL));
      client->device_list[at] = device;
      if (!mine) continue;
      memcpy(&client->memory_list[local * PJRT_MEMORY_KINDS], device->memories, sizeof device->memories);
      client->local_list[local++] = device;
    }
  descriptions = calloc((size_t)client->device_count, sizeof *descriptions);
  WEFT_TRY_ALLOC(descriptions);
  for (int i = 0; i < client->device_count; i++) descriptions[i] = client->devices[i].description;
  st = pjrt_topology_new(descriptions, client->device_count, &client->topology);
  free(descriptions);
  return st;
}

/* Records one process's state. Makes collectives fail that wait for an incarnation which does not exist any more. */
static void take_process_info(void *ctx, const PJRT_ProcessInfo *info)
{
  PJRT_Client *client = ctx;
  bool gone = info->state == PJRT_ProcessState_kDisconnected || info->state == PJRT_ProcessState_kError;
  char detail[512];
  uint64_t before;

  if (info->task_id < 0 || info->task_id >= client->process_count) return;
  weft_mutex_lock(&client->mu);
  before = client->incarnations[info->task_id];
  client->incarnations[info->task_id] = gone ? 0 : info->incarnation_id;
  weft_mutex_unlock(&client->mu);
  snprintf(detail, sizeof detail, "task %d %s%s%.*s", info->task_id, gone ? "is gone" : "has restarted",
           info->error_message_size ? ": " : "", (int)WEFT_MIN(info->error_message_size, (size_t)400),
           info->error_message ? info->error_message : "");
  if (before && (gone || before != info->incarnation_id))
    weft_platform_incarnation_died(client->platform, before, detail);
  if (gone && info->incarnation_id && info->incarnation_id != before)
    weft_platform_incarnation_died(client->platform, info->incarnation_id, detail);
}

/* Sets the store through which the processes of a job find each other: the agent's, or the client's callbacks. */
static weft_status *find_store(const PJRT_Client_Create_Args *args, int64_t agent, PJRT_Client *client)
{
  if (!agent) return pjrt_kv_new(args, &client->kv);
  WEFT_TRY(pjrt_agent_find(agent, &client->agent));
  return pjrt_agent_kv(client->agent, &client->kv);
}

static weft_status *client_new(const PJRT_Client_Create_Args *args, PJRT_Client **out_client) WEFT_UNSHARED
{
  static uint64_t last_serial; /* atomic */
  WEFT_AUTO(PJRT_Client) client = calloc(1, sizeof *client);
  weft_platform_options options = {0};
  client_settings s;
  process_devices *all;
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(client);
  client->refs = 1;
  /* relaxed: a number, and nothing is published by it */
  client->serial = __atomic_add_fetch(&last_serial, 1, __ATOMIC_RELAXED);
  weft_mutex_init(&client->mu);
  weft_mutex_init(&client->links_mu);
  WEFT_TRY(pjrt_settings_check());
  WEFT_TRY(read_settings(args, &s));
  client->process_index = (int)s.node_id;
  client->process_count = (int)s.num_nodes;
  WEFT_TRY_ALLOC(client->incarnations = calloc((size_t)client->process_count, sizeof *client->incarnations));
  if (s.num_nodes > 1) WEFT_TRY(find_store(args, s.agent, client)); /* with one node the callbacks may be garbage */
  options.device_count = (int)s.device_count;
  options.threads = (int)s.threads;
  options.process_index = client->process_index;
  options.process_count = client->process_count;
  options.kv = client->kv;
  options.device_ordinals = s.has_ordinals ? s.ordinals : NULL;
  options.first_device = (int)s.first_device;
  WEFT_TRY(plat_new(&options, &client->platform));
  client->local_count = weft_platform_device_count(client->platform);
  for (int i = 0; i < client->local_count; i++) /* the API has no way to feed a program, which would wait for ever */
    weft_device_close_infeed(weft_platform_device(client->platform, i));
  all = calloc((size_t)client->process_count, sizeof *all);
  WEFT_TRY_ALLOC(all);
  all[client->process_index].count = client->local_count;
  if (client->process_count > 1) st = exchange_devices(client, all);
  if (!st) st = make_devices(client, all);
  process_devices_free(all, client->process_count);
  WEFT_TRY(st);
  if (client->agent) WEFT_TRY(pjrt_agent_watch(client->agent, take_process_info, client, &client->watch));
  *out_client = WEFT_MOVE(client);
  return NULL;
}

PJRT_Error *pjrt_Client_Create(PJRT_Client_Create_Args *args)
{
  PJRT_TRY(client_new(args, &args->client));
  pjrt_handle_born(args->client, PJRT_KIND_CLIENT);
  weft_mutex_lock(&clients_mu);
  args->client->next = clients;
  clients = args->client;
  weft_mutex_unlock(&clients_mu);
  return NULL;
}

PJRT_Error *pjrt_leave(PJRT_Weft_Leave_Args *args)
{
  WEFT_AUTO_STR reason = args->reason_size ? strndup(args->reason, args->reason_size) : NULL;

  if (args->reason_size && !reason) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  weft_mutex_lock(&clients_mu); /* clients are not freed while it is held */
  for (PJRT_Client *client = clients; client; client = client->next) {
    weft_mutex_lock(&client->mu);
    uint64_t incarnation = client->incarnations[client->process_index];
    weft_mutex_unlock(&client->mu);
    weft_platform_leave(client->platform, incarnation, reason);
  }
  weft_mutex_unlock(&clients_mu);
  return NULL;
}

PJRT_Error *pjrt_Client_Destroy(PJRT_Client_Destroy_Args *args)
{
  if (!args->client) return NULL;
  pjrt_handle_gone(args->client);
  pjrt_agent_unwatch(WEFT_MOVE(args->client->watch));
  if (args->client->kv && !args->client->agent) pjrt_kv_close(args->client->kv);
  rt_trace_finish();
  pjrt_client_release(args->client);
  return NULL;
}

PJRT_Device *pjrt_client_device(const PJRT_Client *client, int id)
{
  for (int i = 0; i < client->device_count; i++)
    if (client->devices[i].description.id == id) return &client->devices[i];
  return NULL;
}

PJRT_Error *pjrt_Client_PlatformName(PJRT_Client_PlatformName_Args *args)
{
  args->platform_name = pjrt_platform()->client_name;
  args->platform_name_size = strlen(args->platform_name);
  return NULL;
}

PJRT_Error *pjrt_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args)
{
  args->platform_version = pjrt_version_of_platform();
  args->platform_version_size = strlen(args->platform_version);
  return NULL;
}

PJRT_Error *pjrt_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args *args)
{
  args->process_index = args->client->process_index;
  return NULL;
}

PJRT_Error *pjrt_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args *args)
{
  args->topology = args->client->topology;
  return NULL;
}

PJRT_Error *pjrt_Client_Devices(PJRT_Client_Devices_Args *args)
{
  args->devices = args->client->device_list;
  args->num_devices = (size_t)args->client->device_count;
  return NULL;
}

PJRT_Error *pjrt_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args)
{
  args->addressable_devices = args->client->local_list;
  args->num_addressable_devices = (size_t)args->client->local_count;
  return NULL;
}

PJRT_Error *pjrt_Client_LookupDevice(PJRT_Client_LookupDevice_Args *args)
{
  args->device = pjrt_client_device(args->client, args->id);
  if (!args->device)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "No matching device found for device_id %d", args->id));
  return NULL;
}

PJRT_Error *pjrt_Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args *args)
{
  for (int i = 0; i < args->client->local_count; i++) {
    args->addressable_device = args->client->local_list[i];
    if (weft_device_hardware_id(args->addressable_device->device) == args->local_hardware_id) return NULL;
  }
  args->addressable_device = NULL;
  return pjrt_error(
    WEFT_ERR(INVALID_ARGUMENT, "No matching device found for local_hardware_id %d", args->local_hardware_id));
}

PJRT_Error *pjrt_Client_AddressableMemories(PJRT_Client_AddressableMemories_Args *args)
{
  args->addressable_memories = args->client->memory_list;
  args->num_addressable_memories = (size_t)args->client->local_count * PJRT_MEMORY_KINDS;
  return NULL;
}

PJRT_Error *pjrt_Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args *args)
{
  int64_t count;

  if (args->num_replicas <= 0 || args->num_partitions <= 0)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "num_replicas %d and num_partitions %d must be positive",
                               args->num_replicas, args->num_partitions));
  count = (int64_t)args->num_replicas * args->num_partitions;
  if (count > args->client->device_count)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "%d replicas of %d partitions need more than the %d devices there are",
                               args->num_replicas, args->num_partitions, args->client->device_count));
  if ((size_t)count > args->default_assignment_size)
    return pjrt_error(WEFT_ERR(FAILED_PRECONDITION,
                               "default_assignment_size %zu is below num_replicas * num_partitions %lld",
                               args->default_assignment_size, (long long)count));
  for (int64_t i = 0; i < count; i++) args->default_assignment[i] = args->client->devices[i].description.id;
  return NULL;
}

/* Clients abort if this returns an error, so wrong entries are ignored. */
PJRT_Error *pjrt_Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args *args)
{
  const char *at = (const char *)args->process_infos;

  for (size_t i = 0; i < args->num_process_infos; i++) {
    take_process_info(args->client, (const PJRT_ProcessInfo *)at);
    at += WEFT_ALIGN_UP(args->process_infos[0].struct_size, (size_t)8);
  }
  return NULL;
}
