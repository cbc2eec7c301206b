/* pjrt/topology.c -- descriptions of devices without the devices: for compilation ahead of time and cache keys. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/compile.pb-c.h"
#include "pjrt/internal.h"

enum { MAX_DESCRIPTIONS = 1 << 22 };

weft_status *pjrt_topology_new(const PJRT_DeviceDescription *descriptions, int count,
                               PJRT_TopologyDescription **out_topology)
{
  PJRT_TopologyDescription *t = calloc(1, sizeof *t);
  uint64_t hash = UINT64_C(0xcbf29ce484222325);

  *out_topology = NULL;
  WEFT_TRY_ALLOC(t);
  t->count = count;
  t->descriptions = calloc((size_t)count + 1, sizeof *t->descriptions);
  t->pointers = calloc((size_t)count + 1, sizeof *t->pointers);
  if (!t->descriptions || !t->pointers) {
    pjrt_topology_free(t);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  for (int i = 0; i < count; i++) {
    t->descriptions[i] = descriptions[i];
    t->pointers[i] = &t->descriptions[i];
    pjrt_handle_born(&t->descriptions[i], PJRT_KIND_DESCRIPTION);
    hash = (hash ^ (uint32_t)descriptions[i].id) * UINT64_C(0x100000001b3);
    hash = (hash ^ (uint32_t)descriptions[i].process_index) * UINT64_C(0x100000001b3);
  }
  for (int i = 0; i < count; i++) t->process_count = WEFT_MAX(t->process_count, descriptions[i].process_index + 1);
  t->fingerprint = hash;
  pjrt_handle_born(t, PJRT_KIND_TOPOLOGY);
  *out_topology = t;
  return NULL;
}

void pjrt_topology_free(PJRT_TopologyDescription *topology)
{
  if (!topology) return;
  for (int i = 0; topology->descriptions && i < topology->count; i++) pjrt_handle_gone(&topology->descriptions[i]);
  pjrt_handle_gone(topology);
  free(topology->descriptions);
  free(topology->pointers);
  free(topology);
}

/* Reads "N" or "NxM": N devices of one process, or M devices of each of N processes. Without a name the option
 * num_devices counts. */
PJRT_Error *pjrt_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args)
{
  int processes = 1, devices = 1, used = 0;
  char name[32];
  PJRT_DeviceDescription *descriptions;
  weft_status *st;

  snprintf(name, sizeof name, "%.*s", (int)WEFT_MIN(args->topology_name_size, sizeof name - 1),
           args->topology_name ? args->topology_name : "");
  if (sscanf(name, "%dx%d%n", &processes, &devices, &used) != 2 || name[used]) {
    processes = 1;
    if (*name && (sscanf(name, "%d%n", &devices, &used) != 1 || name[used]))
      return pjrt_error(
        WEFT_ERR(INVALID_ARGUMENT, "topology \"%s\": expected N devices, or PxN for P processes", name));
  }
  for (size_t i = 0; i < args->num_options; i++)
    if (args->create_options[i].name_size == 11 && memcmp(args->create_options[i].name, "num_devices", 11) == 0 &&
        args->create_options[i].type == PJRT_NamedValue_kInt64)
      devices = (int)WEFT_MIN(args->create_options[i].int64_value, (int64_t)WEFT_DEVICES_A_PROCESS);
  if (processes < 1 || devices < 1 || devices > WEFT_DEVICES_A_PROCESS ||
      (int64_t)processes * devices > MAX_DESCRIPTIONS)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "topology of %d processes with %d devices", processes, devices));
  descriptions = calloc((size_t)processes * (size_t)devices, sizeof *descriptions);
  if (!descriptions) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  for (int p = 0; p < processes; p++)
    for (int d = 0; d < devices; d++)
      pjrt_describe(&descriptions[p * devices + d], p * WEFT_DEVICES_A_PROCESS + d, p, d, NULL);
  st = pjrt_topology_new(descriptions, processes * devices, &args->topology);
  free(descriptions);
  return pjrt_error(st);
}

PJRT_Error *pjrt_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args)
{
  pjrt_topology_free(args->topology);
  return NULL;
}

PJRT_Error *pjrt_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args *args)
{
  args->platform_name = pjrt_platform()->client_name;
  args->platform_name_size = strlen(args->platform_name);
  return NULL;
}

PJRT_Error *pjrt_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args *args)
{
  args->platform_version = pjrt_version_of_platform();
  args->platform_version_size = strlen(args->platform_version);
  return NULL;
}

PJRT_Error *pjrt_TopologyDescription_GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args *args)
{
  args->descriptions = args->topology->pointers;
  args->num_descriptions = (size_t)args->topology->count;
  return NULL;
}

PJRT_Error *pjrt_TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args *args)
{
  args->attributes = NULL;
  args->num_attributes = 0;
  return NULL;
}

PJRT_Error *pjrt_TopologyDescription_Fingerprint(PJRT_TopologyDescription_Fingerprint_Args *args)
{
  args->fingerprint = args->topology->fingerprint;
  return NULL;
}

static void free_serialized(PJRT_SerializedTopology *serialized) { free(serialized); }

/* "weft-topology 1 COUNT" and one line "ID PROCESS ORDINAL" a device. */
PJRT_Error *pjrt_TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args *args)
{
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);

  if (!out) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  fprintf(out, "weft-topology 1 %d\n", args->topology->count);
  for (int i = 0; i < args->topology->count; i++) {
    const PJRT_DeviceDescription *d = &args->topology->descriptions[i];
    fprintf(out, "%d %d %d\n", d->id, d->process_index, d->local_ordinal);
  }
  if (fclose(out) != 0) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  args->serialized_bytes = text;
  args->serialized_bytes_size = size;
  args->serialized_topology = (PJRT_SerializedTopology *)text;
  args->serialized_topology_deleter = free_serialized;
  return NULL;
}

PJRT_Error *pjrt_TopologyDescription_Deserialize(PJRT_TopologyDescription_Deserialize_Args *args)
{
  FILE *in = fmemopen((void *)args->serialized_topology, args->serialized_topology_size, "r");
  PJRT_DeviceDescription *descriptions = NULL;
  int count = -1, id, process, ordinal;
  weft_status *st = NULL;

  if (!in || fscanf(in, "weft-topology 1 %d\n", &count) != 1 || count < 0 ||
      (size_t)count > args->serialized_topology_size)
    st = WEFT_ERR(INVALID_ARGUMENT, "not a serialized topology of Weft");
  if (!st && !(descriptions = calloc((size_t)count + 1, sizeof *descriptions)))
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; !st && i < count; i++) {
    if (fscanf(in, "%d %d %d\n", &id, &process, &ordinal) != 3)
      st = WEFT_ERR(INVALID_ARGUMENT, "the serialized topology ends at device %d of %d", i, count);
    else pjrt_describe(&descriptions[i], id, process, ordinal, NULL);
  }
  if (!st) st = pjrt_topology_new(descriptions, count, &args->topology);
  free(descriptions);
  if (in) fclose(in);
  return pjrt_error(st);
}

PJRT_Error *pjrt_TopologyDescription_GetMemorySpaceKindIds(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args *args)
{
  static const int ids[PJRT_MEMORY_KINDS] = {0, 1, 2};

  args->memory_space_kind_ids = ids;
  args->num_memory_space_kind_ids = PJRT_MEMORY_KINDS;
  return NULL;
}

static void free_shape(const char *shape) { free((void *)shape); }

/* Makes a ShapeProto. Every memory accepts every dense layout, so the canonical shape is the shape with the requested
 * layout, or row-major without one. */
PJRT_Error *pjrt_TopologyDescription_MakeCanonicalShapeForMemorySpace(
  PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args *args)
{
  PjrtPb__Layout layout_pb = PJRT_PB__LAYOUT__INIT;
  PjrtPb__Shape pb = PJRT_PB__SHAPE__INIT;
  protobuf_c_boolean is_dynamic[HLO_MAX_RANK] = {0};
  weft_array_type type;
  const pjrt_layout *layout;
  uint8_t *bytes;

  if (args->memory_space_kind_id < 0 || args->memory_space_kind_id >= PJRT_MEMORY_KINDS)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "there is no memory of kind %d", args->memory_space_kind_id));
  PJRT_TRY(pjrt_type_read(args->element_type, args->dims, args->num_dims, &type));
  PJRT_TRY(pjrt_layout_read(args->layout, &type, &layout));
  layout_pb.n_minor_to_major = (size_t)type.rank;
  layout_pb.minor_to_major = (int64_t *)layout->minor_to_major;
  pb.element_type = weft_dtype_to_proto(type.type);
  pb.n_dimensions = pb.n_is_dynamic_dimension = (size_t)type.rank;
  pb.dimensions = type.dims;
  pb.is_dynamic_dimension = is_dynamic;
  pb.layout = &layout_pb;
  args->serialized_shape_size = pjrt_pb__shape__get_packed_size(&pb);
  bytes = malloc(args->serialized_shape_size + 1);
  if (!bytes) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  pjrt_pb__shape__pack(&pb, bytes);
  args->serialized_shape = (const char *)bytes;
  args->serialized_shape_deleter = free_shape;
  return NULL;
}
