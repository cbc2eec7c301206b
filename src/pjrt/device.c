/* pjrt/device.c -- devices, their descriptions and memories. Clients abort when one of these queries fails, so the
 * queries allocate nothing. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"
#include "runtime/trace.h"

/* ---- user data of memories: a few slots, set at client creation ---- */

static void *get_user_data(PJRT_Memory *memory, const void *key)
{
  pjrt_memory *m = pjrt_memory_of(memory);
  void *data = NULL;

  weft_mutex_lock(&m->mu);
  for (size_t i = 0; i < WEFT_COUNT(m->user); i++)
    if (m->user[i].key == key) data = m->user[i].data;
  weft_mutex_unlock(&m->mu);
  return data;
}

static void set_user_data(PJRT_Memory *memory, const void *key, void *data, void (*dtor)(void *))
{
  pjrt_memory *m = pjrt_memory_of(memory);
  void (*old_dtor)(void *) = NULL;
  void *old = NULL;

  weft_mutex_lock(&m->mu);
  for (size_t i = 0; i < WEFT_COUNT(m->user); i++) {
    if (m->user[i].key && m->user[i].key != key) continue;
    old = m->user[i].data;
    old_dtor = m->user[i].dtor;
    m->user[i].key = key;
    m->user[i].data = data;
    m->user[i].dtor = dtor;
    break;
  }
  weft_mutex_unlock(&m->mu);
  if (old_dtor) old_dtor(old);
}

static const PJRT_Memory_FunctionTable memory_table = {.struct_size = sizeof memory_table,
                                                       .instance_struct_size = sizeof(pjrt_memory),
                                                       .get_user_data = get_user_data, .set_user_data = set_user_data};

void pjrt_describe(PJRT_DeviceDescription *d, int id, int process_index, int local_ordinal, const char *kind)
{
  *d = (PJRT_DeviceDescription){.id = id, .process_index = process_index, .local_ordinal = local_ordinal};
  /* the text that JAX prints for a device: it distinguishes Weft from XLA:CPU, whose platform name is the same */
  snprintf(d->debug_string, sizeof d->debug_string, "weft:%d", id);
  snprintf(d->to_string, sizeof d->to_string, "WeftDevice(id=%d)", id);
  snprintf(d->kind, sizeof d->kind, "%s", kind ? kind : pjrt_platform()->device_kind);
}

/* The attributes of the device that the platform gives. */
static void fill_attributes(PJRT_Device *device)
{
  int count = weft_device_attributes(device->device, device->facts);

  for (int i = 0; i < count; i++) {
    const weft_device_attribute *fact = &device->facts[i];
    PJRT_NamedValue *value = &device->attributes[i];
    *value = (PJRT_NamedValue){.struct_size = sizeof *value,
                               .name = fact->name,
                               .name_size = strlen(fact->name),
                               .type = PJRT_NamedValue_kInt64,
                               .int64_value = fact->number,
                               .value_size = 1};
    if (!*fact->text) continue;
    value->type = PJRT_NamedValue_kString;
    value->string_value = fact->text;
    value->value_size = strlen(fact->text);
  }
  device->description.attributes = device->attributes;
  device->description.attribute_count = count;
}

/* The name of the memory's kind, from the device's platform. */
static const char *kind_of(const pjrt_memory *m)
{
  return weft_device_operations(m->device->device)->spaces[m->kind].kind;
}

weft_status *pjrt_device_init(PJRT_Device *device, PJRT_Client *client, int id, int process_index, int local_ordinal,
                              const char *kind, weft_device *local)
{
  pjrt_describe(&device->description, id, process_index, local_ordinal, local ? weft_device_kind(local) : kind);
  device->client = client;
  device->device = local;
  if (local) fill_attributes(device);
  pjrt_handle_born(device, PJRT_KIND_DEVICE);
  pjrt_handle_born(&device->description, PJRT_KIND_DESCRIPTION);
  for (int space = 0; local && space < PJRT_MEMORY_KINDS; space++) { /* the spaces of its platform */
    pjrt_memory *m = calloc(1, sizeof *m);
    WEFT_TRY_ALLOC(m);
    m->abi.vtable = &memory_table;
    m->id = id * PJRT_MEMORY_KINDS + space;
    m->kind = space;
    m->device = device;
    weft_mutex_init(&m->mu);
    snprintf(m->debug_string, sizeof m->debug_string, "WeftMemory(id=%d, process=%d, kind=%s)", m->id, process_index,
             kind_of(m));
    snprintf(m->to_string, sizeof m->to_string, "%s_%d", kind_of(m), m->id);
    device->memories[space] = &m->abi;
    pjrt_handle_born(m, PJRT_KIND_MEMORY);
  }
  return NULL;
}

void pjrt_device_fini(PJRT_Device *device)
{
  pjrt_handle_gone(device);
  pjrt_handle_gone(&device->description);
  for (int kind = 0; kind < PJRT_MEMORY_KINDS; kind++) {
    pjrt_memory *m = pjrt_memory_of(device->memories[kind]);
    if (!m) continue;
    pjrt_handle_gone(m);
    for (size_t i = 0; i < WEFT_COUNT(m->user); i++)
      if (m->user[i].dtor) m->user[i].dtor(m->user[i].data);
    weft_mutex_fini(&m->mu);
    free(m);
  }
}

/* ---- descriptions ---- */

PJRT_Error *pjrt_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args)
{
  args->id = args->device_description->id;
  return NULL;
}

PJRT_Error *pjrt_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args)
{
  args->process_index = args->device_description->process_index;
  return NULL;
}

PJRT_Error *pjrt_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args)
{
  args->attributes = args->device_description->attributes;
  args->num_attributes = (size_t)args->device_description->attribute_count;
  return NULL;
}

PJRT_Error *pjrt_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args)
{
  args->device_kind = args->device_description->kind;
  args->device_kind_size = strlen(args->device_kind);
  return NULL;
}

PJRT_Error *pjrt_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args *args)
{
  args->debug_string = args->device_description->debug_string;
  args->debug_string_size = strlen(args->debug_string);
  return NULL;
}

PJRT_Error *pjrt_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args *args)
{
  args->to_string = args->device_description->to_string;
  args->to_string_size = strlen(args->to_string);
  return NULL;
}

/* ---- devices ---- */

PJRT_Error *pjrt_Device_GetDescription(PJRT_Device_GetDescription_Args *args)
{
  args->device_description = &args->device->description;
  return NULL;
}

PJRT_Error *pjrt_Device_IsAddressable(PJRT_Device_IsAddressable_Args *args)
{
  args->is_addressable = args->device->device != NULL;
  return NULL;
}

PJRT_Error *pjrt_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args *args)
{
  args->local_hardware_id = args->device->device ? weft_device_hardware_id(args->device->device) : -1;
  return NULL;
}

PJRT_Error *pjrt_Device_AddressableMemories(PJRT_Device_AddressableMemories_Args *args)
{
  args->memories = args->device->memories;
  args->num_memories = args->device->device ? PJRT_MEMORY_KINDS : 0;
  return NULL;
}

PJRT_Error *pjrt_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args *args)
{
  args->memory = args->device->memories[0];
  if (!args->memory)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "device %d belongs to process %d", args->device->description.id,
                               args->device->description.process_index));
  return NULL;
}

PJRT_Error *pjrt_Device_MemoryStats(PJRT_Device_MemoryStats_Args *args)
{
  weft_memory_stats stats;

  if (!args->device->device)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "device %d belongs to process %d", args->device->description.id,
                               args->device->description.process_index));
  stats = weft_device_memory(args->device->device);
  memset((char *)args + offsetof(PJRT_Device_MemoryStats_Args, bytes_in_use), 0,
         WEFT_MIN(args->struct_size, sizeof *args) - offsetof(PJRT_Device_MemoryStats_Args, bytes_in_use));
  args->bytes_in_use = stats.bytes_in_use;
  args->peak_bytes_in_use = stats.peak_bytes;
  args->peak_bytes_in_use_is_set = true;
  args->num_allocs = stats.allocation_count;
  args->num_allocs_is_set = true;
  args->largest_alloc_size = stats.largest_bytes;
  args->largest_alloc_size_is_set = true;
  args->bytes_limit = stats.bytes_limit;
  args->bytes_limit_is_set = stats.bytes_limit > 0;
  args->pool_bytes = stats.cached_bytes;
  args->pool_bytes_is_set = true;
  return NULL;
}

PJRT_Error *pjrt_Device_ClearMemoryStats(PJRT_Device_ClearMemoryStats_Args *args)
{
  if (!args->device->device)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "device %d belongs to process %d", args->device->description.id,
                               args->device->description.process_index));
  weft_device_clear_memory_stats(args->device->device);
  return NULL;
}

PJRT_Error *pjrt_Device_PoisonExecution(PJRT_Device_PoisonExecution_Args *args)
{
  if (!args->device->device)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "device %d belongs to process %d", args->device->description.id,
                               args->device->description.process_index));
  args->poisoned = weft_device_poison(args->device->device, args->launch_id,
                                      pjrt_status_of(args->error_code, args->error_message, args->error_message_size));
  return NULL;
}

/* A span in the trace (WEFT_TRACE) from creation to destruction. */
struct PJRT_AsyncTrackingEvent {
  int device;
  int64_t begin_ns;
  char description[64];
};

/* Clients abort when this fails: without memory the event is NULL, which Destroy accepts. */
PJRT_Error *pjrt_Device_CreateAsyncTrackingEvent(PJRT_Device_CreateAsyncTrackingEvent_Args *args)
{
  PJRT_AsyncTrackingEvent *event = calloc(1, sizeof *event);

  args->event = event;
  if (!event) return NULL;
  event->device = args->device->description.local_ordinal;
  event->begin_ns = weft_now_ns();
  snprintf(event->description, sizeof event->description, "%.*s",
           (int)WEFT_MIN(args->description_size, sizeof event->description),
           args->description ? args->description : "");
  return NULL;
}

PJRT_Error *pjrt_AsyncTrackingEvent_Destroy(PJRT_AsyncTrackingEvent_Destroy_Args *args)
{
  if (args->event && rt_trace_on)
    rt_trace_event("client", args->event->description, args->event->device, args->event->begin_ns);
  free(args->event);
  return NULL;
}

PJRT_Error *pjrt_Device_GetAttributes(PJRT_Device_GetAttributes_Args *args)
{
  args->attributes = args->device->description.attributes;
  args->num_attributes = (size_t)args->device->description.attribute_count;
  args->device_attributes = NULL;
  args->attributes_deleter = (void (*)(PJRT_Device_Attributes *))free; /* must not be NULL */
  return NULL;
}

/* ---- memories ---- */

PJRT_Error *pjrt_Memory_Id(PJRT_Memory_Id_Args *args)
{
  args->id = pjrt_memory_of(args->memory)->id;
  return NULL;
}

PJRT_Error *pjrt_Memory_Kind(PJRT_Memory_Kind_Args *args)
{
  args->kind = kind_of(pjrt_memory_of(args->memory));
  args->kind_size = strlen(args->kind);
  return NULL;
}

PJRT_Error *pjrt_Memory_Kind_Id(PJRT_Memory_Kind_Id_Args *args)
{
  args->kind_id = pjrt_memory_of(args->memory)->kind;
  return NULL;
}

PJRT_Error *pjrt_Memory_DebugString(PJRT_Memory_DebugString_Args *args)
{
  args->debug_string = pjrt_memory_of(args->memory)->debug_string;
  args->debug_string_size = strlen(args->debug_string);
  return NULL;
}

PJRT_Error *pjrt_Memory_ToString(PJRT_Memory_ToString_Args *args)
{
  args->to_string = pjrt_memory_of(args->memory)->to_string;
  args->to_string_size = strlen(args->to_string);
  return NULL;
}

PJRT_Error *pjrt_Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args *args)
{
  args->devices = &pjrt_memory_of(args->memory)->device;
  args->num_devices = 1;
  return NULL;
}
