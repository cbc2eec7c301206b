/* tests/pjrt/plugin_test.c -- The plugin through its table, one behaviour a test.  What XLA's own conformance test asks
 * for is in the first part. */
#include "client.h"

#include <pthread.h>
#include <stdatomic.h>

#include "weft/xla_ffi.h"

static const char add_one[] = "module @jit_f { func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
                              "  %c = stablehlo.constant dense<1.0> : tensor<2x3xf32>\n"
                              "  %y = stablehlo.add %x, %c : tensor<2x3xf32>\n  return %y : tensor<2x3xf32> } }";
static const float six[] = {0, 1, 2, 3, 4, 5};
static const int64_t dims23[] = {2, 3};

static void check_floats(PJRT_Buffer *buffer, const float *want, size_t count)
{
  float got[64];

  read_floats(buffer, got, count);
  for (size_t i = 0; i < count; i++)
    if (got[i] != want[i]) fail_msg("element %zu: got %g, want %g", i, got[i], want[i]);
}

/* ---- what XLA's conformance test expects of every plugin ---- */

TEST(a_client_has_devices_with_dense_ids_and_refuses_others)
{
  PJRT_Client *client = make_client(3);
  PJRT_Client_Devices_Args devices = CALL(Client_Devices, .client = client);

  T_EQ_INT(devices.num_devices, 3);
  for (int i = 0; i < 3; i++) {
    T_TRUE(CALL(Client_LookupDevice, .client = client, .id = i).device == devices.devices[i]);
    T_TRUE(CALL(Client_LookupAddressableDevice, .client = client, .local_hardware_id = i).addressable_device ==
           devices.devices[i]);
    T_EQ_INT(CALL(Device_LocalHardwareId, .device = devices.devices[i]).local_hardware_id, i);
  }
  FAILS("No matching device found for device_id -1", Client_LookupDevice, .client = client, .id = -1);
  FAILS("No matching device found for device_id 3", Client_LookupDevice, .client = client, .id = 3);
  CALL(Client_Destroy, .client = client);
}

TEST(the_default_assignment_needs_room_and_positive_counts)
{
  PJRT_Client *client = make_client(4);
  int ids[4];

  CALL(Client_DefaultDeviceAssignment, .client = client, .num_replicas = 2, .num_partitions = 2,
       .default_assignment_size = 4, .default_assignment = ids);
  for (int i = 0; i < 4; i++) T_EQ_INT(ids[i], i);
  FAILS("default_assignment_size 1", Client_DefaultDeviceAssignment, .client = client, .num_replicas = 2,
        .num_partitions = 1, .default_assignment_size = 1, .default_assignment = ids);
  FAILS("must be positive", Client_DefaultDeviceAssignment, .client = client, .num_replicas = 0, .num_partitions = 1,
        .default_assignment_size = 4, .default_assignment = ids);
  CALL(Client_Destroy, .client = client);
}

TEST(programs_and_options_that_are_none_are_refused_by_name)
{
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe;
  PJRT_Program program = {.struct_size = sizeof program, .code = "x", .code_size = 1, .format = "invalid", .format_size = 7};

  T_FAILS(try_compile(client, add_one, "\xff\xff\xff", 3, &exe),
          "PJRT_Client_Compile: failed to deserialize CompileOptionsProto");
  T_FAILS(try_compile(client, "module { nonsense", "", 0, &exe), "");
  FAILS("Unknown program format 'invalid'.", Client_Compile, .client = client, .program = &program);
  /* env_option_overrides {"xla_no_such": true} */
  T_FAILS(try_compile(client, add_one, "\x3a\x11\x0a\x0bxla_no_such\x12\x02\x10\x01", 19, &exe),
          "No such compile option: 'xla_no_such'");
  CALL(Client_Destroy, .client = client);
}

TEST(the_plugin_says_which_programs_it_reads)
{
  PJRT_Plugin_Attributes_Args args = CALL(Plugin_Attributes);
  bool version = false;

  for (size_t i = 0; i < args.num_attributes; i++)
    version |= strcmp(args.attributes[i].name, "stablehlo_current_version") == 0;
  T_TRUE(version);
}

TEST(external_references_are_counted)
{
  PJRT_Client *client = make_client(1);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL);

  FAILS("", Buffer_DecreaseExternalReferenceCount, .buffer = x);
  CALL(Buffer_IncreaseExternalReferenceCount, .buffer = x);
  T_TRUE(CALL(Buffer_OpaqueDeviceMemoryDataPointer, .buffer = x).device_memory_ptr != NULL);
  CALL(Buffer_DecreaseExternalReferenceCount, .buffer = x);
  FAILS("", Buffer_DecreaseExternalReferenceCount, .buffer = x);
  destroy_buffer(x);
  CALL(Client_Destroy, .client = client);
}

/* ---- compiling and running ---- */

TEST(a_program_runs_and_is_the_same_after_serialisation)
{
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe = compile(client, add_one), *again;
  PJRT_Executable *program = CALL(LoadedExecutable_GetExecutable, .loaded_executable = exe).executable;
  PJRT_Executable_Serialize_Args bytes = CALL(Executable_Serialize, .executable = program);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y, *z;
  char *damaged = malloc(bytes.serialized_bytes_size);

  T_EQ_INT(CALL(Executable_NumOutputs, .executable = program).num_outputs, 1);
  T_EQ_INT(CALL(Executable_ParameterMemoryKinds, .executable = program).num_parameters, 1);
  T_OK(execute(exe, &x, 1, 0, &y, NULL));
  check_floats(y, (float[]){1, 2, 3, 4, 5, 6}, 6);
  memcpy(damaged, bytes.serialized_bytes, bytes.serialized_bytes_size);
  damaged[bytes.serialized_bytes_size - 1] ^= 1;
  FAILS("damaged", Executable_DeserializeAndLoad, .client = client, .serialized_executable = damaged,
        .serialized_executable_size = bytes.serialized_bytes_size);
  again = CALL(Executable_DeserializeAndLoad, .client = client, .serialized_executable = bytes.serialized_bytes,
               .serialized_executable_size = bytes.serialized_bytes_size)
            .loaded_executable;
  T_OK(execute(again, &y, 1, 1, &z, NULL));
  check_floats(z, (float[]){2, 3, 4, 5, 6, 7}, 6);
  free(damaged);
  bytes.serialized_executable_deleter(bytes.serialized_executable);
  CALL(Executable_Destroy, .executable = program);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(LoadedExecutable_Destroy, .executable = again);
  destroy_buffer(x);
  destroy_buffer(y);
  destroy_buffer(z);
  CALL(Client_Destroy, .client = client);
}

TEST(a_topology_compiles_without_a_client_and_a_client_loads_the_result)
{
  PJRT_TopologyDescription *topology =
    CALL(TopologyDescription_Create, .topology_name = "2x4", .topology_name_size = 3).topology;
  PJRT_TopologyDescription_Serialize_Args bytes = CALL(TopologyDescription_Serialize, .topology = topology);
  PJRT_TopologyDescription *copy = CALL(TopologyDescription_Deserialize, .serialized_topology = bytes.serialized_bytes,
                                        .serialized_topology_size = bytes.serialized_bytes_size)
                                     .topology;
  PJRT_Program program = {.struct_size = sizeof program, .code = (char *)add_one, .code_size = sizeof add_one - 1, .format = "mlir",
                          .format_size = 4};
  PJRT_Executable *ahead = CALL(Compile, .topology = copy, .program = &program).executable;
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe = CALL(Client_Load, .client = client, .executable = ahead).loaded_executable;
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y;

  T_EQ_INT(CALL(TopologyDescription_GetDeviceDescriptions, .topology = copy).num_descriptions, 8);
  T_TRUE(CALL(TopologyDescription_Fingerprint, .topology = copy).fingerprint ==
         CALL(TopologyDescription_Fingerprint, .topology = topology).fingerprint);
  T_TRUE(CALL(Executable_GetCompiledMemoryStats, .executable = ahead).argument_size_in_bytes == 24);
  T_OK(execute(exe, &x, 1, 0, &y, NULL));
  check_floats(y, (float[]){1, 2, 3, 4, 5, 6}, 6);
  FAILS("not a serialized topology", TopologyDescription_Deserialize, .serialized_topology = "junk",
        .serialized_topology_size = 4);
  FAILS("neither a client nor a topology", Compile, .program = &program);
  bytes.serialized_topology_deleter(bytes.serialized_topology);
  destroy_buffer(x);
  destroy_buffer(y);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Executable_Destroy, .executable = ahead);
  CALL(TopologyDescription_Destroy, .topology = topology);
  CALL(TopologyDescription_Destroy, .topology = copy);
  CALL(Client_Destroy, .client = client);
}

/* ---- layouts and memories ---- */

static PJRT_Buffer_MemoryLayout tiled(const int64_t *minor_to_major, size_t rank)
{
  return (PJRT_Buffer_MemoryLayout){.struct_size = sizeof(PJRT_Buffer_MemoryLayout), .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
                                    .tiled = {.minor_to_major = minor_to_major, .minor_to_major_size = rank}};
}

TEST(a_buffer_lies_in_memory_as_its_layout_says)
{
  PJRT_Client *client = make_client(1);
  int64_t column_major[] = {0, 1}, twice[] = {0, 0};
  PJRT_Buffer_MemoryLayout layout = tiled(column_major, 2), none = tiled(twice, 2);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, &layout);
  float raw[6], want[] = {0, 3, 1, 4, 2, 5};

  check_floats(x, six, 6);
  T_OK(outcome(CALL(Buffer_CopyRawToHost, .buffer = x, .dst = raw, .transfer_size = sizeof raw).event));
  T_TRUE(memcmp(raw, want, sizeof raw) == 0);
  T_OK(outcome(CALL(Buffer_ToHostBuffer, .src = x, .host_layout = &layout, .dst = raw, .dst_size = sizeof raw).event));
  T_TRUE(memcmp(raw, want, sizeof raw) == 0);
  T_EQ_INT(CALL(Buffer_GetMemoryLayout, .buffer = x).layout.tiled.minor_to_major[0], 0);
  FAILS("no permutation", Client_BufferFromHostBuffer, .client = client, .data = six, .type = PJRT_Buffer_Type_F32,
        .dims = dims23, .num_dims = 2, .memory = memory_of(client, 0, 0), .device_layout = &none);
  destroy_buffer(x);
  CALL(Client_Destroy, .client = client);
}

TEST(results_go_to_the_host_by_any_strides)
{
  PJRT_Client *client = make_client(1);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL);
  int64_t padded[] = {16, 4}, negative[] = {-12, 4};
  PJRT_Buffer_MemoryLayout layout = {.struct_size = sizeof layout, .type = PJRT_Buffer_MemoryLayout_Type_Strides,
                                     .strides = {.byte_strides = padded, .num_byte_strides = 2}};
  float rows[8] = {-1, -1, -1, -1, -1, -1, -1, -1}, want[8] = {0, 1, 2, -1, 3, 4, 5, -1};

  T_OK(outcome(CALL(Buffer_ToHostBuffer, .src = x, .host_layout = &layout, .dst = rows, .dst_size = 28).event));
  T_TRUE(memcmp(rows, want, sizeof rows) == 0);
  FAILS("dst has 24 bytes, the buffer 28", Buffer_ToHostBuffer, .src = x, .host_layout = &layout, .dst = rows,
        .dst_size = 24);
  layout.strides.byte_strides = negative;
  FAILS("byte stride -12", Buffer_ToHostBuffer, .src = x, .host_layout = &layout, .dst = rows, .dst_size = sizeof rows);
  destroy_buffer(x);
  CALL(Client_Destroy, .client = client);
}

/* mhlo.layout_mode and mhlo.memory_kind say where and how arguments and results lie. */
TEST(a_program_takes_and_gives_the_layouts_and_memories_it_names)
{
  static const char text[] =
    "module @jit_t { func.func public @main(%x: tensor<2x3xf32> {mhlo.layout_mode = \"{0,1}\", mhlo.memory_kind = \"pinned_host\"})"
    " -> (tensor<3x2xf32> {mhlo.layout_mode = \"{0,1}\", mhlo.memory_kind = \"unpinned_host\"}, tensor<2x3xf32>) {\n"
    "  %y = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
    "  return %y, %x : tensor<3x2xf32>, tensor<2x3xf32> } }";
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe = compile(client, text);
  PJRT_Executable *program = CALL(LoadedExecutable_GetExecutable, .loaded_executable = exe).executable;
  PJRT_Executable_OutputMemoryKinds_Args kinds = CALL(Executable_OutputMemoryKinds, .executable = program);
  PJRT_Executable_ParameterMemoryKinds_Args params = CALL(Executable_ParameterMemoryKinds, .executable = program);
  int64_t column_major[] = {0, 1};
  PJRT_Buffer_MemoryLayout layout = tiled(column_major, 2);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, &layout), *out[2];

  T_EQ_STR(kinds.memory_kinds[0], "unpinned_host");
  T_EQ_STR(kinds.memory_kinds[1], "device");
  T_EQ_STR(params.memory_kinds[0], "pinned_host");
  T_OK(execute(exe, &x, 1, 0, out, NULL));
  check_floats(out[0], (float[]){0, 3, 1, 4, 2, 5}, 6);
  check_floats(out[1], six, 6);
  T_EQ_INT(CALL(Buffer_GetMemoryLayout, .buffer = out[0]).layout.tiled.minor_to_major[0], 0);
  T_EQ_INT(CALL(Buffer_GetMemoryLayout, .buffer = out[1]).layout.tiled.minor_to_major[0], 1);
  T_TRUE(CALL(Buffer_Memory, .buffer = out[0]).memory == memory_of(client, 0, 2));
  destroy_buffer(x);
  destroy_buffer(out[0]);
  destroy_buffer(out[1]);
  CALL(Executable_Destroy, .executable = program);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

TEST(layouts_of_compile_options_are_those_of_arguments_and_result)
{
  /* f32[2,3]{0,1} as a ShapeProto; argument_layouts {it},
   * executable_build_options.result_layout it, or one that is wrong */
#define SHAPE(rows) "\x10\x0b\x1a\x02" rows "\x03\x2a\x04\x0a\x02\x00\x01"
  static const char both[] = "\x0a\x0c" SHAPE("\x02") "\x1a\x0e\x12\x0c" SHAPE("\x02"),
                    result[] = "\x1a\x0e\x12\x0c" SHAPE("\x02"),
                    two[] = "\x0a\x0c" SHAPE("\x02") "\x0a\x0c" SHAPE("\x02"), other[] = "\x0a\x0c" SHAPE("\x04"),
                    tiled_shape[] = "\x0a\x11\x10\x0b\x1a\x02\x02\x03\x2a\x09\x0a\x02\x00\x01\x32\x03\x0a\x01\x08";
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe;
  int64_t column_major[] = {0, 1};
  PJRT_Buffer_MemoryLayout layout = tiled(column_major, 2);
  PJRT_Buffer *row = make_floats(client, six, dims23, 2, NULL), *column = make_floats(client, six, dims23, 2, &layout),
              *y;
  float raw[6], want[] = {1, 4, 2, 5, 3, 6};

  for (int i = 0; i < 2; i++) {
    T_OK(try_compile(client, add_one, i ? result : both, i ? sizeof result - 1 : sizeof both - 1, &exe));
    T_OK(execute(exe, i ? &row : &column, 1, 1, &y, NULL));
    check_floats(y, (float[]){1, 2, 3, 4, 5, 6}, 6);
    T_EQ_INT(CALL(Buffer_GetMemoryLayout, .buffer = y).layout.tiled.minor_to_major[0], 0);
    T_OK(outcome(CALL(Buffer_CopyRawToHost, .buffer = y, .dst = raw, .transfer_size = sizeof raw).event));
    assert_memory_equal(raw, want, sizeof raw);
    destroy_buffer(y);
    CALL(LoadedExecutable_Destroy, .executable = exe);
  }
  T_FAILS(try_compile(client, add_one, two, sizeof two - 1, &exe),
          "2 argument layouts, but computation has 1 arguments");
  T_FAILS(try_compile(client, add_one, other, sizeof other - 1, &exe),
          "the layout is for f32[4,3], the program has f32[2,3]");
  T_FAILS(try_compile(client, add_one, tiled_shape, sizeof tiled_shape - 1, &exe), "tiled layouts");
  T_FAILS(try_compile(client, add_one, "\x0a\x01\xff", 3, &exe), "layout of argument 0");
  destroy_buffer(row);
  destroy_buffer(column);
  CALL(Client_Destroy, .client = client);
}

TEST(layout_modes_of_scalars_are_taken_and_tiles_refused)
{
  static const char scalar[] =
    "module { func.func public @main(%x: tensor<f32> {mhlo.layout_mode = \"{}\"}) -> tensor<f32> { return %x : tensor<f32> } }";
  static const char tiles[] =
    "module { func.func public @main(%x: tensor<8x8xf32> {mhlo.layout_mode = \"{1,0:T(8,128)}\"}) -> tensor<8x8xf32> "
    "{ return %x : tensor<8x8xf32> } }";
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe = compile(client, scalar);

  CALL(LoadedExecutable_Destroy, .executable = exe);
  T_FAILS(try_compile(client, tiles, "", 0, &exe), "tiled layouts");
  CALL(Client_Destroy, .client = client);
}

TEST(a_copy_to_another_memory_is_a_storage_of_its_own)
{
  PJRT_Client *client = make_client(1);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL);
  PJRT_Buffer *y = CALL(Buffer_CopyToMemory, .buffer = x, .dst_memory = memory_of(client, 0, 1)).dst_buffer;

  T_OK(buffer_outcome(y));
  T_TRUE(CALL(Buffer_UnsafePointer, .buffer = x).buffer_pointer !=
         CALL(Buffer_UnsafePointer, .buffer = y).buffer_pointer);
  T_TRUE(CALL(Buffer_Memory, .buffer = y).memory == memory_of(client, 0, 1));
  CALL(Buffer_Delete, .buffer = x);
  check_floats(y, six, 6);
  FAILS("deleted or donated", Buffer_CopyToMemory, .buffer = x, .dst_memory = memory_of(client, 0, 1));
  destroy_buffer(x);
  destroy_buffer(y);
  CALL(Client_Destroy, .client = client);
}

TEST(memory_kinds_have_ids_and_canonical_shapes)
{
  PJRT_Client *client = make_client(1);
  PJRT_TopologyDescription *topology = CALL(Client_TopologyDescription, .client = client).topology;
  PJRT_TopologyDescription_GetMemorySpaceKindIds_Args kinds =
    CALL(TopologyDescription_GetMemorySpaceKindIds, .topology = topology);
  PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args shape =
    CALL(TopologyDescription_MakeCanonicalShapeForMemorySpace, .topology = topology, .dims = dims23, .num_dims = 2,
         .element_type = PJRT_Buffer_Type_F32);
  /* ShapeProto: element_type 11, dimensions [2,3], layout {minor_to_major [1,0]}, is_dynamic [0,0] */
  static const char want[] = "\x10\x0b\x1a\x02\x02\x03\x2a\x04\x0a\x02\x01\x00\x32\x02\x00\x00";

  T_EQ_INT(kinds.num_memory_space_kind_ids, 3);
  for (int i = 0; i < 3; i++)
    T_EQ_INT(CALL(Memory_Kind_Id, .memory = memory_of(client, 0, i)).kind_id, kinds.memory_space_kind_ids[i]);
  T_EQ_INT(shape.serialized_shape_size, sizeof want - 1);
  T_TRUE(memcmp(shape.serialized_shape, want, sizeof want - 1) == 0);
  shape.serialized_shape_deleter(shape.serialized_shape);
  CALL(Client_Destroy, .client = client);
}

/* The platform's own: a GPU has those that XLA's GPU client gives, a CPU has none. */
TEST(attributes_of_devices_are_the_platforms)
{
  static const struct { const char *name; PJRT_NamedValue_Type type; const char *text; } gpu[] = {
    {"device_vendor", PJRT_NamedValue_kString, "NVIDIA Corporation"},
    {"compute_capability", PJRT_NamedValue_kString, NULL},
    {"core_count", PJRT_NamedValue_kInt64, NULL},
    {"numa_node", PJRT_NamedValue_kInt64, NULL},
  };
  PJRT_Client *client = make_client(2);
  PJRT_Device *device = CALL(Client_Devices, .client = client).devices[1];
  PJRT_DeviceDescription *description = CALL(Device_GetDescription, .device = device).device_description;
  PJRT_DeviceDescription_Attributes_Args described =
    CALL(DeviceDescription_Attributes, .device_description = description);
  PJRT_Device_GetAttributes_Args owned = CALL(Device_GetAttributes, .device = device);
  PJRT_Client_PlatformName_Args platform = CALL(Client_PlatformName, .client = client);
  bool is_cuda = platform.platform_name_size == 4 && memcmp(platform.platform_name, "cuda", 4) == 0;

  T_EQ_INT(described.num_attributes, is_cuda ? WEFT_COUNT(gpu) : 0);
  T_EQ_INT(owned.num_attributes, described.num_attributes);
  for (size_t i = 0; i < described.num_attributes; i++) {
    const PJRT_NamedValue *value = &described.attributes[i];
    T_EQ_STR(value->name, gpu[i].name);
    T_EQ_INT(value->name_size, strlen(gpu[i].name));
    T_EQ_INT(value->type, gpu[i].type);
    T_EQ_STR(owned.attributes[i].name, gpu[i].name);
    if (value->type == PJRT_NamedValue_kString) T_EQ_INT(value->value_size, strlen(value->string_value));
    if (gpu[i].text) T_EQ_STR(value->string_value, gpu[i].text);
  }
  if (is_cuda) {
    int major, minor, end = 0;
    T_TRUE(sscanf(described.attributes[1].string_value, "%d.%d%n", &major, &minor, &end) == 2);
    T_TRUE(major >= 7 && minor < 10 && !described.attributes[1].string_value[end]);
    T_TRUE(described.attributes[2].int64_value > 0);
    T_TRUE(described.attributes[3].int64_value >= -1); /* -1: not known */
  }
  if (owned.attributes_deleter) owned.attributes_deleter(owned.device_attributes);
  CALL(Client_Destroy, .client = client);
}

/* ---- buffers that get their bytes later ---- */

static PJRT_AsyncHostToDeviceTransferManager *make_manager(PJRT_Client *client, size_t count)
{
  PJRT_ShapeSpec specs[4];

  for (size_t i = 0; i < count; i++)
    specs[i] = (PJRT_ShapeSpec){
      .struct_size = sizeof specs[i], .dims = dims23, .num_dims = 2, .element_type = PJRT_Buffer_Type_F32};
  return CALL(Client_CreateBuffersForAsyncHostToDevice, .client = client, .shape_specs = specs,
              .num_shape_specs = count, .memory = memory_of(client, 0, 0))
    .transfer_manager;
}

TEST(a_transfer_in_pieces_defines_its_buffer_with_the_last)
{
  PJRT_Client *client = make_client(1);
  PJRT_AsyncHostToDeviceTransferManager *m = make_manager(client, 2);
  PJRT_Buffer *x =
    CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, .transfer_manager = m, .buffer_index = 0).buffer_out;
  PJRT_Buffer *y =
    CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, .transfer_manager = m, .buffer_index = 1).buffer_out;
  PJRT_LoadedExecutable *exe = compile(client, add_one);
  PJRT_Buffer *z;

  T_EQ_INT(CALL(AsyncHostToDeviceTransferManager_BufferCount, .transfer_manager = m).buffer_count, 2);
  T_EQ_INT(CALL(AsyncHostToDeviceTransferManager_BufferSize, .transfer_manager = m, .buffer_index = 1).buffer_size, 24);
  T_TRUE(CALL(AsyncHostToDeviceTransferManager_Device, .transfer_manager = m).device_out == device_of(client, 0));
  T_OK(execute(exe, &x, 1, 0, &z, NULL)); /* waits for x */
  T_OK(outcome(CALL(AsyncHostToDeviceTransferManager_TransferData, .transfer_manager = m, .data = six + 4, .offset = 16,
                    .transfer_size = 8)
                 .done_with_h2d_transfer));
  PJRT_Event *ready = CALL(Buffer_ReadyEvent, .buffer = x).event;
  T_TRUE(!CALL(Event_IsReady, .event = ready).is_ready);
  T_OK(outcome(CALL(AsyncHostToDeviceTransferManager_TransferData, .transfer_manager = m, .data = six,
                    .transfer_size = 16, .is_last_transfer = true)
                 .done_with_h2d_transfer));
  T_OK(outcome(ready));
  check_floats(x, six, 6);
  check_floats(z, (float[]){1, 2, 3, 4, 5, 6}, 6);
  T_OK(outcome(CALL(AsyncHostToDeviceTransferManager_TransferLiteral, .transfer_manager = m, .buffer_index = 1,
                    .data = six, .shape_dims = dims23, .shape_num_dims = 2, .shape_element_type = PJRT_Buffer_Type_F32)
                 .done_with_h2d_transfer));
  check_floats(y, six, 6);
  FAILS("has had its last transfer", AsyncHostToDeviceTransferManager_TransferData, .transfer_manager = m, .data = six,
        .transfer_size = 4);
  FAILS("has been retrieved already", AsyncHostToDeviceTransferManager_RetrieveBuffer, .transfer_manager = m);
  FAILS("buffer 2 of a transfer manager with 2", AsyncHostToDeviceTransferManager_BufferSize, .transfer_manager = m,
        .buffer_index = 2);
  CALL(AsyncHostToDeviceTransferManager_Destroy, .transfer_manager = m);
  destroy_buffer(x);
  destroy_buffer(y);
  destroy_buffer(z);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

TEST(a_transfer_that_fails_or_is_given_up_ends_its_buffer)
{
  PJRT_Client *client = make_client(1);
  PJRT_AsyncHostToDeviceTransferManager *m = make_manager(client, 3);
  PJRT_Buffer *x =
    CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, .transfer_manager = m, .buffer_index = 0).buffer_out;
  PJRT_Buffer *y =
    CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, .transfer_manager = m, .buffer_index = 1).buffer_out;

  FAILS("bytes [20, +8) of a buffer of 24", AsyncHostToDeviceTransferManager_TransferData, .transfer_manager = m,
        .data = six, .offset = 20, .transfer_size = 8);
  CALL(AsyncHostToDeviceTransferManager_SetBufferError, .transfer_manager = m, .error_code = PJRT_Error_Code_DATA_LOSS,
       .error_message = "the disk is gone", .error_message_size = 16);
  T_FAILS(buffer_outcome(x), "the disk is gone");
  CALL(AsyncHostToDeviceTransferManager_Destroy, .transfer_manager = m);
  T_FAILS(buffer_outcome(y), "destroyed before the transfer to buffer 1");
  destroy_buffer(x);
  destroy_buffer(y);
  CALL(Client_Destroy, .client = client);
}

static PJRT_Client_CreateAliasBuffer_Args make_alias(PJRT_Client *client)
{
  return CALL(Client_CreateAliasBuffer, .client = client, .memory = memory_of(client, 0, 0), .shape_dims = dims23,
              .shape_num_dims = 2, .shape_element_type = PJRT_Buffer_Type_F32);
}

TEST(an_alias_is_what_fulfils_it)
{
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe = compile(client, add_one);
  PJRT_Client_CreateAliasBuffer_Args good = make_alias(client), bad = make_alias(client), wrong = make_alias(client);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y, *small = make_floats(client, six, dims23, 1, NULL);

  T_OK(execute(exe, &good.alias_buffer, 1, 0, &y, NULL));
  CALL(Client_FulfillAliasBuffer, .client = client, .buffer = x,
       .fulfill_alias_buffer_cb = good.fulfill_alias_buffer_cb);
  destroy_buffer(x);
  check_floats(good.alias_buffer, six, 6);
  check_floats(y, (float[]){1, 2, 3, 4, 5, 6}, 6);
  CALL(Client_FulfillAliasBuffer, .client = client, .status_code = PJRT_Error_Code_ABORTED, .error_message = "no",
       .error_message_size = 2, .fulfill_alias_buffer_cb = bad.fulfill_alias_buffer_cb);
  T_FAILS(buffer_outcome(bad.alias_buffer), "no");
  FAILS("8 bytes", Client_FulfillAliasBuffer, .client = client, .buffer = small,
        .fulfill_alias_buffer_cb = wrong.fulfill_alias_buffer_cb);
  T_FAILS(buffer_outcome(wrong.alias_buffer), "8 bytes");
  destroy_buffer(good.alias_buffer);
  destroy_buffer(bad.alias_buffer);
  destroy_buffer(wrong.alias_buffer);
  destroy_buffer(small);
  destroy_buffer(y);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

TEST(a_donation_with_a_dependency_waits_for_it)
{
  PJRT_Client *client = make_client(1);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL);
  uintptr_t bytes = CALL(Buffer_UnsafePointer, .buffer = x).buffer_pointer;
  PJRT_Buffer_DonateWithControlDependency_Args d = CALL(Buffer_DonateWithControlDependency, .buffer = x);
  PJRT_Event *ready = CALL(Buffer_ReadyEvent, .buffer = d.out_buffer).event;

  T_TRUE(CALL(Buffer_IsDeleted, .buffer = x).is_deleted);
  T_TRUE(!CALL(Event_IsReady, .event = ready).is_ready);
  d.dependency_ready_callback(&(PJRT_Buffer_DonateWithControlDependency_Callback_Args){
    .struct_size = sizeof(PJRT_Buffer_DonateWithControlDependency_Callback_Args), .callback_data = d.callback_data});
  T_OK(outcome(ready));
  check_floats(d.out_buffer, six, 6);
  T_TRUE(CALL(Buffer_UnsafePointer, .buffer = d.out_buffer).buffer_pointer == bytes); /* moved, not copied */
  FAILS("deleted", Buffer_DonateWithControlDependency, .buffer = x);
  destroy_buffer(x);
  destroy_buffer(d.out_buffer);
  CALL(Client_Destroy, .client = client);
}

TEST(a_raw_copy_starts_when_its_destination_is_named)
{
  PJRT_Client *client = make_client(1);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL);
  PJRT_Buffer_CopyRawToHostFuture_Args f =
    CALL(Buffer_CopyRawToHostFuture, .buffer = x, .offset = 4, .transfer_size = 8);
  PJRT_Buffer_CopyRawToHostFuture_Args g = CALL(Buffer_CopyRawToHostFuture, .buffer = x, .transfer_size = 8);
  float got[2];

  destroy_buffer(x);
  f.future_ready_callback(&(PJRT_Buffer_CopyRawToHostFuture_Callback_Args){
    .struct_size = sizeof(PJRT_Buffer_CopyRawToHostFuture_Callback_Args),
    .callback_data = f.callback_data,
    .dst = got});
  T_OK(outcome(f.event));
  T_TRUE(got[0] == 1 && got[1] == 2);
  g.future_ready_callback(&(PJRT_Buffer_CopyRawToHostFuture_Callback_Args){
    .struct_size = sizeof(PJRT_Buffer_CopyRawToHostFuture_Callback_Args),
    .callback_data = g.callback_data,
    .error_code = PJRT_Error_Code_CANCELLED,
    .error_message = "gone",
    .error_message_size = 4});
  T_FAILS(outcome(g.event), "gone");
  CALL(Client_Destroy, .client = client);
}

TEST(an_execution_that_has_not_started_can_be_poisoned)
{
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe = compile(client, add_one);
  PJRT_Client_CreateAliasBuffer_Args alias = make_alias(client);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y, *z;
  PJRT_Event *done;
  PJRT_Device *device = device_of(client, 0);

  T_OK(execute(exe, &alias.alias_buffer, 1, 7, &y, &done)); /* its input never comes by itself */
  T_TRUE(
    !CALL(Device_PoisonExecution, .device = device, .launch_id = 8, .error_code = PJRT_Error_Code_ABORTED).poisoned);
  T_TRUE(CALL(Device_PoisonExecution, .device = device, .launch_id = 7, .error_code = PJRT_Error_Code_ABORTED,
              .error_message = "poison", .error_message_size = 6)
           .poisoned);
  T_FAILS(buffer_outcome(y), "poison");
  T_FAILS(outcome(done), "poison");
  CALL(Client_FulfillAliasBuffer, .client = client, .buffer = x,
       .fulfill_alias_buffer_cb = alias.fulfill_alias_buffer_cb);
  T_OK(execute(exe, &x, 1, 9, &z, NULL));
  check_floats(z, (float[]){1, 2, 3, 4, 5, 6}, 6);
  destroy_buffer(alias.alias_buffer);
  destroy_buffer(x);
  destroy_buffer(y);
  destroy_buffer(z);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

/* ---- extensions ---- */

static const void *extension(PJRT_Extension_Type type)
{
  for (const PJRT_Extension_Base *e = GetPjrtApi()->extension_start; e; e = e->next)
    if (e->type == type) return e;
  fail_msg("there is no extension %d", (int)type);
  return NULL;
}

TEST(a_raw_buffer_is_the_bytes_of_a_buffer)
{
  const PJRT_RawBuffer_Extension *raw = extension(PJRT_Extension_Type_RawBuffer);
  PJRT_Client *client = make_client(1);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL);
  PJRT_RawBuffer_CreateRawAliasOfBuffer_Args made = {.struct_size = sizeof made, .buffer = x};
  float piece[2] = {70, 80}, all[6], want[6] = {0, 70, 80, 3, 4, 5};

  bool on_cpu = CALL(Buffer_IsOnCpu, .buffer = x).is_on_cpu; /* else the host has no pointer */
  must_succeed(raw->create_raw_alias_of_buffer(&made), "create");
  PJRT_RawBuffer_GetOnDeviceSizeInBytes_Args size = {.struct_size = sizeof size, .buffer = made.raw_buffer};
  PJRT_RawBuffer_GetMemorySpace_Args space = {.struct_size = sizeof space, .buffer = made.raw_buffer};
  PJRT_RawBuffer_CopyRawHostToDevice_Args in = {.struct_size = sizeof in, .buffer = made.raw_buffer, .src = piece, .offset = 4,
                                                .transfer_size = 8};
  PJRT_RawBuffer_CopyRawDeviceToHost_Args out = {.struct_size = sizeof out, .buffer = made.raw_buffer, .dst = all, .transfer_size = 24};
  PJRT_RawBuffer_GetHostPointer_Args pointer = {.struct_size = sizeof pointer, .buffer = made.raw_buffer};
  must_succeed(raw->get_on_device_size_in_bytes(&size), "size");
  must_succeed(raw->get_memory_space(&space), "memory");
  must_succeed(raw->copy_raw_host_to_device(&in), "in");
  T_OK(outcome(in.event));
  check_floats(x, want, 6); /* the buffer has the same bytes */
  destroy_buffer(x);
  must_succeed(raw->copy_raw_device_to_host(&out), "out"); /* and the alias outlives it */
  T_OK(outcome(out.event));
  must_succeed(raw->get_host_pointer(&pointer), "pointer");
  T_EQ_INT(size.on_device_size_in_bytes, 24);
  T_TRUE(space.memory_space == memory_of(client, 0, 0));
  T_TRUE(memcmp(all, want, sizeof all) == 0);
  T_TRUE(on_cpu ? memcmp(pointer.host_pointer, want, sizeof want) == 0 : !pointer.host_pointer);
  in.offset = 20;
  T_FAILS(status_of(raw->copy_raw_host_to_device(&in)), "bytes [20, +8) of a buffer of 24");
  PJRT_RawBuffer_Destroy_Args gone = {.struct_size = sizeof gone, .buffer = made.raw_buffer};
  must_succeed(raw->destroy(&gone), "destroy");
  CALL(Client_Destroy, .client = client);
}

TEST(a_profile_has_what_ran_while_it_was_taken)
{
  const PLUGIN_Profiler_Api *api =
    ((const PJRT_Profiler_Extension *)extension(PJRT_Extension_Type_Profiler))->profiler_api;
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe = compile(client, add_one);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y;
  PLUGIN_Profiler_Create_Args made = {0};

  assert_null(api->create(&made));
  PLUGIN_Profiler_Start_Args start = {.profiler = made.profiler};
  PLUGIN_Profiler_Stop_Args stop = {.profiler = made.profiler};
  PLUGIN_Profiler_CollectData_Args data = {.profiler = made.profiler};
  PLUGIN_Profiler_Error_Destroy_Args twice = {0};
  assert_null(api->start(&start));
  twice.error = api->start(&start);
  assert_non_null(twice.error);
  PLUGIN_Profiler_Error_GetCode_Args code = {.error = twice.error};
  assert_null(api->error_get_code(&code));
  T_EQ_INT(code.code, WEFT_FAILED_PRECONDITION);
  api->error_destroy(&twice);
  T_OK(execute(exe, &x, 1, 0, &y, NULL));
  T_OK(buffer_outcome(y));
  assert_null(api->stop(&stop));
  assert_null(api->collect_data(&data));
  const char *wanted[] = {"/host:metadata", "Hlo Proto", "/device:GPU:0", "hlo_op", "hlo_module", "program_id", "run_id",
                          test_is_on_gpu() ? "compute stream" : "weft thread"};
  for (size_t i = 0; i < WEFT_COUNT(wanted); i++)
    T_TRUE(data.buffer && memmem(data.buffer, data.buffer_size_in_bytes, wanted[i], strlen(wanted[i])) != NULL);
  PLUGIN_Profiler_Destroy_Args gone = {.profiler = made.profiler};
  assert_null(api->destroy(&gone));
  destroy_buffer(x);
  destroy_buffer(y);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

/* Keys, not the order of calls, match sends with receives. A send waits until its buffer is defined, and reports an
 * error if the buffer becomes an error. */
TEST(transfers_between_devices_meet_by_their_keys)
{
  const PJRT_CrossHostTransfers_Extension *x = extension(PJRT_Extension_Type_CrossHostTransfers);
  PJRT_Client *client = make_client(2);
  PJRT_Client_CreateAliasBuffer_Args late = make_alias(client), never = make_alias(client);
  PJRT_Buffer *now = make_floats(client, six, dims23, 2, NULL), *sent[] = {late.alias_buffer, now}, *got[2];
  PJRT_Event *events[2];
  size_t ranks[] = {2, 2};
  const int64_t *dims[] = {dims23, dims23}, keys[] = {1, 2}, keys_back[] = {2, 1};
  int32_t to[] = {1, 1}, from[] = {0, 0};
  PJRT_Buffer_Type types[] = {PJRT_Buffer_Type_F32, PJRT_Buffer_Type_F32};
  PJRT_Transfers_CrossHostSendBuffers_Args send = {.struct_size = sizeof send, .client = client, .num_buffers = 2, .buffers = sent,
                                                   .dst_global_device_ids = to, .transfer_keys = keys, .send_events = events};
  PJRT_Transfers_CrossHostReceiveBuffers_Args receive = {
      .struct_size = sizeof receive, .client = client, .num_shapes = 2, .shape_num_dims = ranks, .dims = dims, .element_types = types,
      .device = device_of(client, 1), .src_global_device_ids = from, .transfer_keys = keys_back, .buffers = got};

  must_succeed(x->cross_host_send_buffers(&send), "send");
  must_succeed(x->cross_host_receive_buffers(&receive), "receive");
  T_OK(outcome(events[1]));
  check_floats(got[0], six, 6); /* key 2: it was there at once */
  PJRT_Event *second = CALL(Buffer_ReadyEvent, .buffer = got[1]).event;
  T_TRUE(!CALL(Event_IsReady, .event = second).is_ready);
  CALL(Client_FulfillAliasBuffer, .client = client, .buffer = now,
       .fulfill_alias_buffer_cb = late.fulfill_alias_buffer_cb);
  T_OK(outcome(events[0]));
  T_OK(outcome(second));
  check_floats(got[1], six, 6);
  T_TRUE(CALL(Buffer_Device, .buffer = got[1]).device == device_of(client, 1));
  destroy_buffer(got[0]);
  destroy_buffer(got[1]);

  send.num_buffers = receive.num_shapes = 1;
  sent[0] = never.alias_buffer;
  receive.transfer_keys = keys;
  must_succeed(x->cross_host_send_buffers(&send), "send");
  must_succeed(x->cross_host_receive_buffers(&receive), "receive");
  CALL(Client_FulfillAliasBuffer, .client = client, .status_code = PJRT_Error_Code_DATA_LOSS, .error_message = "lost",
       .error_message_size = 4, .fulfill_alias_buffer_cb = never.fulfill_alias_buffer_cb);
  T_FAILS(outcome(events[0]), "lost");
  T_FAILS(buffer_outcome(got[0]), "lost");
  destroy_buffer(got[0]);
  sent[0] = now; /* the next transfer has a new link */
  must_succeed(x->cross_host_send_buffers(&send), "send");
  must_succeed(x->cross_host_receive_buffers(&receive), "receive");
  T_OK(outcome(events[0]));
  check_floats(got[0], six, 6);
  destroy_buffer(got[0]);
  to[0] = 7;
  T_FAILS(status_of(x->cross_host_send_buffers(&send)), "there is no device 7");
  destroy_buffer(now);
  destroy_buffer(late.alias_buffer);
  destroy_buffer(never.alias_buffer);
  CALL(Client_Destroy, .client = client);
}

/* A copy that has begun goes on even if its buffer is deleted before the buffer is defined. */
TEST(copies_transfers_and_bitcasts_outlive_their_buffer)
{
  const PJRT_CrossHostTransfers_Extension *x = extension(PJRT_Extension_Type_CrossHostTransfers);
  PJRT_Client *client = make_client(2);
  PJRT_Client_CreateAliasBuffer_Args late = make_alias(client);
  PJRT_Buffer *now = make_floats(client, six, dims23, 2, NULL), *got;
  size_t rank = 2;
  const int64_t *dims = dims23, key = 1, turned[] = {3, 2};
  int32_t to = 1, from = 0;
  PJRT_Buffer_Type type = PJRT_Buffer_Type_F32;
  PJRT_Event *sent;
  float whole[6], piece[2];

  must_succeed(x->cross_host_send_buffers(&(PJRT_Transfers_CrossHostSendBuffers_Args){
                 .struct_size = sizeof(PJRT_Transfers_CrossHostSendBuffers_Args),
                 .client = client,
                 .num_buffers = 1,
                 .buffers = &late.alias_buffer,
                 .dst_global_device_ids = &to,
                 .transfer_keys = &key,
                 .send_events = &sent}),
               "send");
  must_succeed(x->cross_host_receive_buffers(&(PJRT_Transfers_CrossHostReceiveBuffers_Args){
                 .struct_size = sizeof(PJRT_Transfers_CrossHostReceiveBuffers_Args),
                 .client = client,
                 .num_shapes = 1,
                 .shape_num_dims = &rank,
                 .dims = &dims,
                 .element_types = &type,
                 .device = device_of(client, 1),
                 .src_global_device_ids = &from,
                 .transfer_keys = &key,
                 .buffers = &got}),
               "receive");
  PJRT_Event *copied =
    CALL(Buffer_ToHostBuffer, .src = late.alias_buffer, .dst = whole, .dst_size = sizeof whole).event;
  PJRT_Buffer_CopyRawToHostFuture_Args raw =
    CALL(Buffer_CopyRawToHostFuture, .buffer = late.alias_buffer, .offset = 4, .transfer_size = 8);
  PJRT_Buffer *bits =
    CALL(Buffer_Bitcast, .buffer = late.alias_buffer, .element_type = type, .dims = turned, .num_dims = 2).out_buffer;
  CALL(Buffer_Delete, .buffer = late.alias_buffer);
  CALL(Client_FulfillAliasBuffer, .client = client, .buffer = now,
       .fulfill_alias_buffer_cb = late.fulfill_alias_buffer_cb);
  raw.future_ready_callback(&(PJRT_Buffer_CopyRawToHostFuture_Callback_Args){
    .struct_size = sizeof(PJRT_Buffer_CopyRawToHostFuture_Callback_Args),
    .callback_data = raw.callback_data,
    .dst = piece});
  T_OK(outcome(copied));
  T_OK(outcome(raw.event));
  T_OK(outcome(sent));
  assert_memory_equal(whole, six, sizeof whole);
  assert_memory_equal(piece, six + 1, sizeof piece);
  check_floats(got, six, 6);
  check_floats(bits, six, 6);
  T_EQ_INT(CALL(Buffer_Dimensions, .buffer = bits).dims[0], 3);
  destroy_buffer(got);
  destroy_buffer(bits);
  destroy_buffer(now);
  destroy_buffer(late.alias_buffer);
  CALL(Client_Destroy, .client = client);
}

/* A client may have the address of a client that was destroyed earlier. */
TEST(executable_of_a_client_that_is_gone_is_loaded_into_another)
{
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *loaded = compile(client, add_one);
  PJRT_Executable *exe = CALL(LoadedExecutable_GetExecutable, .loaded_executable = loaded).executable;

  CALL(LoadedExecutable_Destroy, .executable = loaded);
  CALL(Client_Destroy, .client = client);
  for (int i = 0; i < 4; i++) {
    client = make_client(1);
    PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y;
    loaded = CALL(Client_Load, .client = client, .executable = exe).loaded_executable;
    T_TRUE(CALL(LoadedExecutable_AddressableDevices, .executable = loaded).addressable_devices[0] ==
           device_of(client, 0));
    T_OK(execute(loaded, &x, 1, 0, &y, NULL));
    T_TRUE(CALL(Buffer_Device, .buffer = y).device == device_of(client, 0));
    check_floats(y, (float[]){1, 2, 3, 4, 5, 6}, 6);
    destroy_buffer(x);
    destroy_buffer(y);
    CALL(LoadedExecutable_Destroy, .executable = loaded);
    CALL(Client_Destroy, .client = client);
  }
  CALL(Executable_Destroy, .executable = exe);
}

TEST(program_that_wants_to_be_fed_is_told_that_nothing_comes)
{
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe =
    compile(client, "func.func @main() -> tensor<2xf32> {\n"
                    "  %t = stablehlo.create_token : !stablehlo.token\n"
                    "  %x:2 = \"stablehlo.infeed\"(%t) : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)\n"
                    "  return %x#0 : tensor<2xf32>\n}\n");
  PJRT_Buffer *y;

  T_OK(execute(exe, NULL, 0, 0, &y, NULL));
  T_FAILS(buffer_outcome(y), "nothing was fed");
  destroy_buffer(y);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

/* ---- waits, lifetimes, small things ---- */

TEST(layouts_without_their_numbers_are_refused)
{
  PJRT_Client *client = make_client(1);
  PJRT_Buffer_MemoryLayout tiled = {.struct_size = sizeof tiled, .type = PJRT_Buffer_MemoryLayout_Type_Tiled},
                           strides = {.struct_size = sizeof strides, .type = PJRT_Buffer_MemoryLayout_Type_Strides};
  PJRT_Buffer *x = make_floats(client, six, NULL, 0, &tiled),
              *y = make_floats(client, six, NULL, 0, &strides); /* a scalar has none */
  PJRT_Buffer *matrix = make_floats(client, six, dims23, 2, NULL);
  float got[6];

  tiled.tiled.minor_to_major_size = strides.strides.num_byte_strides = 2;
  FAILS("a layout of 2 dimensions", Buffer_ToHostBuffer, .src = matrix, .dst = got, .dst_size = sizeof got,
        .host_layout = &tiled);
  FAILS("2 byte strides", Buffer_ToHostBuffer, .src = matrix, .dst = got, .dst_size = sizeof got,
        .host_layout = &strides);
  FAILS("a layout of 2 dimensions", Client_CreateUninitializedBuffer, .client = client, .device = device_of(client, 0),
        .shape_dims = dims23, .shape_num_dims = 2, .shape_element_type = PJRT_Buffer_Type_F32, .shape_layout = &tiled);
  FAILS("2 byte strides", Client_CreateUninitializedBuffer, .client = client, .device = device_of(client, 0),
        .shape_dims = dims23, .shape_num_dims = 2, .shape_element_type = PJRT_Buffer_Type_F32,
        .shape_layout = &strides);
  destroy_buffer(x);
  destroy_buffer(y);
  destroy_buffer(matrix);
  CALL(Client_Destroy, .client = client);
}

static void destroy_own_event(PJRT_Error *error, void *arg)
{
  PJRT_Event **event = arg;

  status_of(error);
  CALL(Event_Destroy, .event = *event);
  *event = NULL;
}

TEST(an_event_may_be_destroyed_in_its_own_callback)
{
  PJRT_Event *event = CALL(Event_Create).event, *keep = event;

  CALL(Event_OnReady, .event = event, .callback = destroy_own_event, .user_arg = &event);
  CALL(Event_Set, .event = keep);
  T_TRUE(event == NULL);
}

TEST(memory_statistics_can_start_anew)
{
  PJRT_Client *client = make_client(1);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL);

  T_OK(outcome(CALL(Buffer_ReadyEvent, .buffer = x).event)); /* a transfer that is queued needs the memory */
  destroy_buffer(x);
  T_TRUE(CALL(Device_MemoryStats, .device = device_of(client, 0)).peak_bytes_in_use > 0);
  CALL(Device_ClearMemoryStats, .device = device_of(client, 0));
  T_EQ_INT(CALL(Device_MemoryStats, .device = device_of(client, 0)).peak_bytes_in_use, 0);
  CALL(AsyncTrackingEvent_Destroy, .event = CALL(Device_CreateAsyncTrackingEvent, .device = device_of(client, 0),
                                                 .description = "step", .description_size = 4)
                                              .event);
  CALL(Client_DmaMap, .client = client, .data = (void *)six, .size = sizeof six);
  CALL(Client_DmaUnmap, .client = client, .data = (void *)six);
  CALL(Client_Destroy, .client = client);
}

TEST(handles_may_be_destroyed_in_any_order)
{
  for (int order = 0; order < 6; order++) {
    PJRT_Client *client = make_client(1);
    PJRT_LoadedExecutable *exe = compile(client, add_one);
    PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y;
    PJRT_Event *done;
    T_OK(execute(exe, &x, 1, 0, &y, &done));
    for (int step = 0; step < 3; step++) switch ((order + (order < 3 ? step : 3 - step)) % 3) {
      case 0: CALL(Client_Destroy, .client = client); break;
      case 1: CALL(LoadedExecutable_Destroy, .executable = exe); break;
      default: destroy_buffer(x); break;
      }
    T_OK(outcome(done));
    check_floats(y, (float[]){1, 2, 3, 4, 5, 6}, 6);
    destroy_buffer(y);
  }
}

/* ---- custom partitioners ---- */

enum { SPLIT, RAISES, WRONG_TILE, WRONG_ARITY, NO_MODULE, NO_SHARDING };
static struct { int kind, asked, cleaned; } partitioner;

static void clean_up(void *data)
{
  assert_ptr_equal(data, &partitioner);
  partitioner.cleaned++;
}

/* ---- programs that call Python ---- */

/* Stands for jaxlib's handler; called in two places of a program, which meet where `together`. */
static struct { bool together; atomic_int inside, calls, elsewhere; pthread_t launcher; } python;

static XLA_FFI_Error *call_python(XLA_FFI_CallFrame *frame)
{
  atomic_fetch_add(&python.inside, 1);
  for (int ms = 0; python.together && atomic_load(&python.inside) < 2 && ms < 20000; ms++) usleep(1000);
  if (!pthread_equal(pthread_self(), python.launcher)) atomic_fetch_add(&python.elsewhere, 1);
  atomic_fetch_add(&python.calls, 1);
  *(float *)((XLA_FFI_Buffer *)frame->rets.rets[0])->data =
    1 + *(const float *)((const XLA_FFI_Buffer *)frame->args.args[0])->data;
  return NULL;
}

TEST(a_program_that_calls_python_does_so_on_its_launcher_and_has_run_on_return)
{
  static const char name[] = "test_python_cpu_callback", platform[] = "Host";
  static const char call[] =
    "stablehlo.custom_call @test_python_cpu_callback(%s) {api_version = 4 : i32, has_side_effect = true} : "
    "(tensor<f32>) -> tensor<f32>";
  PJRT_FFI_Register_Handler_Args args = {.struct_size = sizeof args, .target_name = name, .target_name_size = sizeof name - 1,
                                         .handler = (void *)call_python, .platform_name = platform, .platform_name_size = sizeof platform - 1};
  PJRT_Client *client = make_client(1);

  must_succeed(((const PJRT_FFI_Extension *)extension(PJRT_Extension_Type_FFI))->register_handler(&args), "register");
  /* the second call reads the first call's result, or has to run at the same time */
  for (int together = 0; together < 2; together++) {
    char first[200], second[200], text[700];
    snprintf(first, sizeof first, call, "%x");
    snprintf(second, sizeof second, call, together ? "%x" : "%0");
    snprintf(text, sizeof text,
             "module { func.func public @main(%%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {\n %%0 = %s\n %%1 = %s\n"
             " return %%0, %%1 : tensor<f32>, tensor<f32> } }",
             first, second);
    PJRT_LoadedExecutable *exe = compile(client, text);
    PJRT_Buffer *x = make_floats(client, (float[]){5}, NULL, 0, NULL), *out[2];
    for (int run = 0; run < 3; run++) {
      PJRT_Event *done;
      python.together = together;
      python.inside = python.calls = python.elsewhere = 0;
      python.launcher = pthread_self();
      T_OK(execute(exe, &x, 1, run + 1, out, &done));
      T_TRUE(CALL(Event_IsReady, .event = done).is_ready);
      T_OK(outcome(done));
      T_EQ_INT(python.calls, 2);
      T_EQ_INT(python.elsewhere, together);
      check_floats(out[0], (float[]){6}, 1);
      check_floats(out[1], (float[]){together ? 6 : 7}, 1);
      destroy_buffer(out[0]);
      destroy_buffer(out[1]);
    }
    destroy_buffer(x);
    CALL(LoadedExecutable_Destroy, .executable = exe);
  }
  CALL(Client_Destroy, .client = client);
}

static JAX_CustomCallPartitioner_string text_of(const char *s)
{
  return (JAX_CustomCallPartitioner_string){s, strlen(s)};
}

static void split(JAX_CustomCallPartitioner_Callbacks *callbacks, JAX_CustomCallPartitioner_Partition_Args *args)
{
  static const char *const modules[] = {
      [SPLIT] = "func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n %0 = stablehlo.negate %a : tensor<2xf32>\n return %0 : tensor<2xf32> }",
      [RAISES] = "", [WRONG_TILE] = "func.func public @main(%a: tensor<3xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> }",
      [WRONG_ARITY] = "func.func public @main(%a: tensor<2xf32>, %b: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }",
      [NO_MODULE] = "not a program", [NO_SHARDING] = "func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> }"};

  assert_ptr_equal(callbacks->private_data, &partitioner);
  T_EQ_INT(args->num_args, 1);
  T_EQ_INT(args->backend_config.size, 4);
  assert_memory_equal(args->backend_config.data, "mine", 4);
  assert_true(args->op_args[0].has_sharding && args->op_args[0].shape.size > 0);
  partitioner.asked++;
  args->header.data = &partitioner;
  args->header.cleanup_fn = clean_up;
  args->header.has_error = partitioner.kind == RAISES;
  args->header.code = PJRT_Error_Code_INTERNAL;
  args->header.error_msg = text_of("it raised");
  args->mlir_module = text_of(modules[partitioner.kind]);
  args->args_sharding = &args->op_args[0].sharding;
  args->result_sharding = partitioner.kind == NO_SHARDING ? text_of("\xff\xff\xff") : args->op_args[0].sharding;
}

TEST(a_custom_partitioner_says_how_a_call_is_cut)
{
  static const char program[] =
    "module attributes {mhlo.num_partitions = 2 : i32} { sdy.mesh @m = <[\"x\"=2]>\n"
    "func.func public @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@m, [{\"x\"}]>}) -> tensor<4xf32> {\n"
    " %0 = stablehlo.custom_call @Splits(%a) {api_version = 2 : i32, backend_config = \"mine\", "
    "sdy.sharding_rule = #sdy.op_sharding_rule<([i])->([i]) {i=4}, custom>} : (tensor<4xf32>) -> tensor<4xf32>\n"
    " return %0 : tensor<4xf32> } }";
  static const struct { int kind; const char *error; } cases[] = {
      {SPLIT, NULL}, {RAISES, "it raised"}, {WRONG_TILE, "tiles are not those"}, {WRONG_ARITY, "2 operands"}, {NO_MODULE, ""}, {NO_SHARDING, ""}};
  static JAX_CustomCallPartitioner_Callbacks callbacks = {.private_data = &partitioner, .partition = split};
  const PJRT_Custom_Partitioner_Extension *x = extension(PJRT_Extension_Type_Custom_Partitioner);
  PJRT_Register_Custom_Partitioner_Args args = {.struct_size = sizeof args, .name = "Splits!", .name_size = 6, .callbacks = &callbacks};
  PJRT_Client *client = make_client(2);
  PJRT_LoadedExecutable *exe;

  must_succeed(x->register_custom_partitioner(&args), "register");
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    partitioner.kind = cases[i].kind;
    partitioner.asked = partitioner.cleaned = 0;
    if (cases[i].error) T_FAILS(try_compile(client, program, "\x1a\x04\x20\x01\x28\x02", 6, &exe), cases[i].error);
    else T_OK(try_compile(client, program, "\x1a\x04\x20\x01\x28\x02", 6, &exe));
    T_EQ_INT(partitioner.asked, 1);
    T_EQ_INT(partitioner.cleaned, 1);
    if (!cases[i].error) CALL(LoadedExecutable_Destroy, .executable = exe);
  }
  args.callbacks = NULL;
  T_FAILS(status_of(x->register_custom_partitioner(&args)), "without name or function");
  CALL(Client_Destroy, .client = client);
}

TEST(an_inspection_of_no_function_is_refused)
{
  static const char *const bytes[] = {"", "text", "\\00\\01", "\\01\\00\\00\\00\\00\\00\\00\\00\\01\\00\\00\\00\\00\\00\\00\\00"};
  static const char *const errors[] = {"without the bytes", "without the bytes", "without the bytes", "in none of this process's libraries"};
  PJRT_Client *client = make_client(2);
  PJRT_LoadedExecutable *exe;

  for (size_t i = 0; i < WEFT_COUNT(bytes); i++) {
    char program[700];
    snprintf(
      program, sizeof program,
      "module attributes {mhlo.num_partitions = 2 : i32} { func.func public @main(%%a: tensor<4xf32>) -> tensor<4xf32> {\n"
      " %%0 = stablehlo.custom_call @InspectSharding(%%a) {has_side_effect = true, backend_config = \"%s\"} : (tensor<4xf32>) -> tensor<4xf32>\n"
      " return %%a : tensor<4xf32> } }",
      bytes[i]);
    T_FAILS(try_compile(client, program, "\x1a\x04\x20\x01\x28\x02", 6, &exe), errors[i]);
  }
  CALL(Client_Destroy, .client = client);
}

TEST_MAIN(UNIT(layouts_of_compile_options_are_those_of_arguments_and_result), UNIT(a_program_that_calls_python_does_so_on_its_launcher_and_has_run_on_return), UNIT(copies_transfers_and_bitcasts_outlive_their_buffer), UNIT(executable_of_a_client_that_is_gone_is_loaded_into_another),
          UNIT(program_that_wants_to_be_fed_is_told_that_nothing_comes), UNIT(layouts_without_their_numbers_are_refused),
          UNIT(a_client_has_devices_with_dense_ids_and_refuses_others), UNIT(the_default_assignment_needs_room_and_positive_counts),
          UNIT(programs_and_options_that_are_none_are_refused_by_name), UNIT(the_plugin_says_which_programs_it_reads),
          UNIT(external_references_are_counted), UNIT(a_program_runs_and_is_the_same_after_serialisation),
          UNIT(a_topology_compiles_without_a_client_and_a_client_loads_the_result), UNIT(a_buffer_lies_in_memory_as_its_layout_says),
          UNIT(results_go_to_the_host_by_any_strides), UNIT(a_program_takes_and_gives_the_layouts_and_memories_it_names),
          UNIT(layout_modes_of_scalars_are_taken_and_tiles_refused),
          UNIT(a_copy_to_another_memory_is_a_storage_of_its_own), UNIT(memory_kinds_have_ids_and_canonical_shapes),
          UNIT(attributes_of_devices_are_the_platforms),
          UNIT(a_transfer_in_pieces_defines_its_buffer_with_the_last), UNIT(a_transfer_that_fails_or_is_given_up_ends_its_buffer),
          UNIT(an_alias_is_what_fulfils_it), UNIT(a_donation_with_a_dependency_waits_for_it),
          UNIT(a_raw_copy_starts_when_its_destination_is_named), UNIT(an_execution_that_has_not_started_can_be_poisoned),
          UNIT(a_raw_buffer_is_the_bytes_of_a_buffer),
          UNIT(a_profile_has_what_ran_while_it_was_taken), UNIT(transfers_between_devices_meet_by_their_keys),
          UNIT(an_event_may_be_destroyed_in_its_own_callback), UNIT(memory_statistics_can_start_anew),
          UNIT(handles_may_be_destroyed_in_any_order),
          UNIT(a_custom_partitioner_says_how_a_call_is_cut), UNIT(an_inspection_of_no_function_is_refused))
