/* weft/pjrt_c_api.h -- the PJRT C API as a plugin and its clients meet it: our own text of the public ABI.
 *
 * Version 0.114.  Rules of the ABI:
 *   - Nearly every struct starts with struct_size (of the caller's version: fields past it are absent, and never read
 *     or written) and a list of extensions, of which unknown ones are skipped.
 *   - Members after "out:" are filled by the callee; the rest by the caller.  Strings are (pointer, size), not
 *     NUL-terminated.  Arrays of structs step by the struct_size of their first element, rounded up to 8.
 *   - A function returns NULL or an error that the caller destroys.
 *   - Handles live until their Destroy; arrays and strings from queries live as long as the object asked.
 * Sizes and offsets are checked by tests/pjrt/abi_test.c.  Source of the facts: xla/pjrt/c/pjrt_c_api.h. */
#ifndef WEFT_PJRT_C_API_H
#define WEFT_PJRT_C_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PJRT_API_MAJOR = 0, PJRT_API_MINOR = 114 };

/* Declares a struct that begins with struct_size and the list of extensions. */
#define PJRT_STRUCT(name, ...)                \
  typedef struct name {                       \
    size_t struct_size;                       \
    struct PJRT_Extension_Base *extension_start; \
    __VA_ARGS__                               \
  } name;

/* Opaque handles. */
#define PJRT_HANDLE(name) typedef struct PJRT_##name PJRT_##name;
PJRT_HANDLE(AsyncHostToDeviceTransferManager) PJRT_HANDLE(AsyncTrackingEvent)
PJRT_HANDLE(Buffer) PJRT_HANDLE(Client) PJRT_HANDLE(CopyToDeviceStream)
PJRT_HANDLE(Device) PJRT_HANDLE(DeviceAssignmentSerialized) PJRT_HANDLE(DeviceDescription)
PJRT_HANDLE(Device_Attributes) PJRT_HANDLE(Event) PJRT_HANDLE(Executable) PJRT_HANDLE(ExecuteContext)
PJRT_HANDLE(FulfillAliasBufferCallback) PJRT_HANDLE(LoadedExecutable) PJRT_HANDLE(MultiSlice_Config)
PJRT_HANDLE(PhaseCompiler) PJRT_HANDLE(SerializedCompileOptions) PJRT_HANDLE(SerializedExecutable)
PJRT_HANDLE(SerializedTopology) PJRT_HANDLE(TopologyDescription)

/* Structs that are not opaque: they are defined below. */
PJRT_HANDLE(Extension_Base) PJRT_HANDLE(Error_FunctionTable) PJRT_HANDLE(Error) PJRT_HANDLE(Memory_FunctionTable)
PJRT_HANDLE(Memory) PJRT_HANDLE(ProcessInfo) PJRT_HANDLE(LogicalDeviceIds) PJRT_HANDLE(Chunk)
PJRT_HANDLE(SendCallbackInfo) PJRT_HANDLE(RecvCallbackInfo) PJRT_HANDLE(HloOutputCallbackInfo)
PJRT_HANDLE(LoadOptions) PJRT_HANDLE(Buffer_CopyRawToHostFuture_Callback_Args)
PJRT_HANDLE(Buffer_DonateWithControlDependency_Callback_Args)
#undef PJRT_HANDLE

typedef enum PJRT_Extension_Type {
  PJRT_Extension_Type_Gpu_Custom_Call = 0, PJRT_Extension_Type_Profiler, PJRT_Extension_Type_Custom_Partitioner,
  PJRT_Extension_Type_Stream, PJRT_Extension_Type_Layouts, PJRT_Extension_Type_FFI,
  PJRT_Extension_Type_MemoryDescriptions, PJRT_Extension_Type_Triton, PJRT_Extension_Type_RawBuffer,
  PJRT_Extension_Type_PhaseCompile, PJRT_Extension_Type_Example, PJRT_Extension_Type_Unknown,
  PJRT_Extension_Type_CrossHostTransfers, PJRT_Extension_Type_ExecutableMetadata, PJRT_Extension_Type_Callback,
  PJRT_Extension_Type_HostAllocator, PJRT_Extension_Type_TpuTopology, PJRT_Extension_Type_TpuExecutable,
  PJRT_Extension_Type_Megascale, PJRT_Extension_Type_Shardings, PJRT_Extension_Type_AbiVersion,
  PJRT_Extension_Type_Collectives, PJRT_Extension_Type_MultiSlice, PJRT_Extension_Type_HostMemoryAllocator,
  PJRT_Extension_Type_XlaTransform,
} PJRT_Extension_Type;

struct PJRT_Extension_Base {
  size_t struct_size; PJRT_Extension_Type type; struct PJRT_Extension_Base *next;
};
PJRT_STRUCT(PJRT_Api_Version, /* out: */ int major_version; int minor_version;)
PJRT_STRUCT(PJRT_Error_Destroy_Args, PJRT_Error *error;)
PJRT_STRUCT(PJRT_Error_Message_Args,
  const PJRT_Error *error; /* out: */ const char *message; size_t message_size;)
typedef enum PJRT_Error_Code {
  PJRT_Error_Code_OK = 0, PJRT_Error_Code_CANCELLED = 1, PJRT_Error_Code_UNKNOWN = 2,
  PJRT_Error_Code_INVALID_ARGUMENT = 3, PJRT_Error_Code_DEADLINE_EXCEEDED = 4, PJRT_Error_Code_NOT_FOUND = 5,
  PJRT_Error_Code_ALREADY_EXISTS = 6, PJRT_Error_Code_PERMISSION_DENIED = 7,
  PJRT_Error_Code_RESOURCE_EXHAUSTED = 8, PJRT_Error_Code_FAILED_PRECONDITION = 9, PJRT_Error_Code_ABORTED = 10,
  PJRT_Error_Code_OUT_OF_RANGE = 11, PJRT_Error_Code_UNIMPLEMENTED = 12, PJRT_Error_Code_INTERNAL = 13,
  PJRT_Error_Code_UNAVAILABLE = 14, PJRT_Error_Code_DATA_LOSS = 15, PJRT_Error_Code_UNAUTHENTICATED = 16,
} PJRT_Error_Code;
typedef void (*PJRT_Error_PayloadVisitor)(const char *key, size_t key_size, const char *value, size_t value_size, void *user_arg);

struct PJRT_Error_FunctionTable {
  size_t struct_size; size_t instance_size; PJRT_Extension_Base *extension_start;
  void (*destroy)(PJRT_Error *error);
  void (*message)(const PJRT_Error *error, const char **message, size_t *message_size);
  PJRT_Error_Code (*get_code)(const PJRT_Error *error);
  void (*for_each_payload)(const PJRT_Error *error, PJRT_Error_PayloadVisitor visitor, void *user_arg);
};

struct PJRT_Error {
  const struct PJRT_Error_FunctionTable *vtable;
};
PJRT_STRUCT(PJRT_Error_GetCode_Args, const PJRT_Error *error; /* out: */ PJRT_Error_Code code;)
PJRT_STRUCT(PJRT_Error_ForEachPayload_Args,
  const PJRT_Error *error; PJRT_Error_PayloadVisitor visitor; void *user_arg;)
typedef PJRT_Error *(*PJRT_CallbackError)(PJRT_Error_Code code, const char *message, size_t message_size);
typedef enum PJRT_NamedValue_Type {
  PJRT_NamedValue_kString = 0, PJRT_NamedValue_kInt64, PJRT_NamedValue_kInt64List, PJRT_NamedValue_kFloat,
  PJRT_NamedValue_kBool,
} PJRT_NamedValue_Type;
PJRT_STRUCT(PJRT_NamedValue,
  const char *name; size_t name_size; PJRT_NamedValue_Type type;
  union { const char *string_value; int64_t int64_value; const int64_t *int64_array_value; float float_value; bool bool_value; };
  size_t value_size;)
PJRT_STRUCT(PJRT_Plugin_Initialize_Args, )
PJRT_STRUCT(PJRT_Plugin_Attributes_Args,
  /* out: */ const PJRT_NamedValue *attributes; size_t num_attributes;)
PJRT_STRUCT(PJRT_Event_Destroy_Args, PJRT_Event *event;)
PJRT_STRUCT(PJRT_Event_IsReady_Args, PJRT_Event *event; /* out: */ bool is_ready;)
PJRT_STRUCT(PJRT_Event_Error_Args, PJRT_Event *event;)
PJRT_STRUCT(PJRT_Event_Await_Args, PJRT_Event *event;)
typedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error *error, void *user_arg);
PJRT_STRUCT(PJRT_Event_OnReady_Args,
  PJRT_Event *event; PJRT_Event_OnReadyCallback callback; void *user_arg;)
PJRT_STRUCT(PJRT_Event_Create_Args, /* out: */ PJRT_Event *event;)
PJRT_STRUCT(PJRT_Event_Set_Args,
  PJRT_Event *event; PJRT_Error_Code error_code; const char *error_message; size_t error_message_size;)

struct PJRT_Memory_FunctionTable {
  size_t struct_size; struct PJRT_Extension_Base *extension_start; size_t instance_struct_size;
  void *(*get_user_data)(struct PJRT_Memory *memory, const void *key);
  void (*set_user_data)(struct PJRT_Memory *memory, const void *key, void *data, void (*dtor)(void *));
};

struct PJRT_Memory {
  const struct PJRT_Memory_FunctionTable *vtable;
};
typedef void (*PJRT_KeyValueGetCallback_ValueDeleter)(char *value);
PJRT_STRUCT(PJRT_KeyValueGetCallback_Args,
  const char *key; size_t key_size; int timeout_in_ms; PJRT_CallbackError *callback_error; void *user_arg;
  /* out: */ char *value; size_t value_size; PJRT_KeyValueGetCallback_ValueDeleter value_deleter_callback;)
typedef PJRT_Error *(*PJRT_KeyValueGetCallback)(PJRT_KeyValueGetCallback_Args *args);
typedef void (*PJRT_KeyValueTryGetCallback_ValueDeleter)(char *value);
PJRT_STRUCT(PJRT_KeyValueTryGetCallback_Args,
  const char *key; size_t key_size; PJRT_CallbackError *callback_error; void *user_arg; /* out: */ char *value;
  size_t value_size; PJRT_KeyValueTryGetCallback_ValueDeleter value_deleter_callback;)
typedef PJRT_Error *(*PJRT_KeyValueTryGetCallback)(PJRT_KeyValueTryGetCallback_Args *args);
PJRT_STRUCT(PJRT_KeyValuePutCallback_Args,
  const char *key; size_t key_size; const char *value; size_t value_size; PJRT_CallbackError *callback_error;
  void *user_arg;)
typedef PJRT_Error *(*PJRT_KeyValuePutCallback)(PJRT_KeyValuePutCallback_Args *args);
PJRT_STRUCT(PJRT_Client_Create_Args,
  const PJRT_NamedValue *create_options; size_t num_options; PJRT_KeyValueGetCallback kv_get_callback;
  void *kv_get_user_arg; PJRT_KeyValuePutCallback kv_put_callback; void *kv_put_user_arg; /* out: */
  PJRT_Client *client; PJRT_KeyValueTryGetCallback kv_try_get_callback; void *kv_try_get_user_arg;)
PJRT_STRUCT(PJRT_Client_Destroy_Args, PJRT_Client *client;)
PJRT_STRUCT(PJRT_Client_PlatformName_Args,
  PJRT_Client *client; /* out: */ const char *platform_name; size_t platform_name_size;)
PJRT_STRUCT(PJRT_Client_ProcessIndex_Args, PJRT_Client *client; /* out: */ int process_index;)
PJRT_STRUCT(PJRT_Client_PlatformVersion_Args,
  PJRT_Client *client; /* out: */ const char *platform_version; size_t platform_version_size;)
PJRT_STRUCT(PJRT_Client_TopologyDescription_Args,
  PJRT_Client *client; /* out: */ PJRT_TopologyDescription *topology;)
PJRT_STRUCT(PJRT_Client_Devices_Args,
  PJRT_Client *client; /* out: */ PJRT_Device *const *devices; size_t num_devices;)
PJRT_STRUCT(PJRT_Client_AddressableDevices_Args,
  PJRT_Client *client; /* out: */ PJRT_Device *const *addressable_devices; size_t num_addressable_devices;)
PJRT_STRUCT(PJRT_Client_LookupDevice_Args,
  PJRT_Client *client; int id; /* out: */ PJRT_Device *device;)
PJRT_STRUCT(PJRT_Client_LookupAddressableDevice_Args,
  PJRT_Client *client; int local_hardware_id; /* out: */ PJRT_Device *addressable_device;)
typedef enum PJRT_ProcessState {
  PJRT_ProcessState_kUnspecified = 0, PJRT_ProcessState_kUninitialized = 1, PJRT_ProcessState_kDisconnected = 2,
  PJRT_ProcessState_kConnected = 3, PJRT_ProcessState_kError = 4,
} PJRT_ProcessState;

struct PJRT_ProcessInfo {
  size_t struct_size; int task_id; uint64_t incarnation_id; PJRT_ProcessState state; int error_code;
  const char *error_message; size_t error_message_size;
};
PJRT_STRUCT(PJRT_Client_UpdateGlobalProcessInfo_Args,
  PJRT_Client *client; PJRT_ProcessInfo *process_infos; size_t num_process_infos;)
PJRT_STRUCT(PJRT_Client_AddressableMemories_Args,
  PJRT_Client *client; /* out: */ PJRT_Memory *const *addressable_memories; size_t num_addressable_memories;)
PJRT_STRUCT(PJRT_Program,
  /* out: */ char *code; size_t code_size; const char *format; size_t format_size;)
PJRT_STRUCT(PJRT_Client_Compile_Args,
  PJRT_Client *client; const PJRT_Program *program; const char *compile_options; size_t compile_options_size;
  /* out: */ PJRT_LoadedExecutable *executable;)
PJRT_STRUCT(PJRT_Client_Load_Args,
  PJRT_Client *client; PJRT_Executable *executable; const char *compile_options; size_t compile_options_size;
  /* out: */ PJRT_LoadedExecutable *loaded_executable;)
PJRT_STRUCT(PJRT_Client_DefaultDeviceAssignment_Args,
  PJRT_Client *client; int num_replicas; int num_partitions; size_t default_assignment_size;
  int *default_assignment;)
PJRT_STRUCT(PJRT_Client_DmaMap_Args, PJRT_Client *client; void *data; size_t size;)
PJRT_STRUCT(PJRT_Client_DmaUnmap_Args, PJRT_Client *client; void *data;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, PJRT_AsyncHostToDeviceTransferManager *transfer_manager;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args,
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; const void *data; int64_t offset;
  int64_t transfer_size; bool is_last_transfer; /* out: */ PJRT_Event *done_with_h2d_transfer;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args,
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; /* out: */ PJRT_Buffer *buffer_out;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_Device_Args,
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager; /* out: */ PJRT_Device *device_out;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args,
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager; /* out: */ size_t buffer_count;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args,
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; /* out: */ size_t buffer_size;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args,
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; PJRT_Error_Code error_code;
  const char *error_message; size_t error_message_size;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args,
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager; const PJRT_NamedValue *transfer_metadata;
  size_t num_metadata;)
typedef enum PJRT_Buffer_Type {
  PJRT_Buffer_Type_INVALID, PJRT_Buffer_Type_PRED, PJRT_Buffer_Type_S8, PJRT_Buffer_Type_S16, PJRT_Buffer_Type_S32,
  PJRT_Buffer_Type_S64, PJRT_Buffer_Type_U8, PJRT_Buffer_Type_U16, PJRT_Buffer_Type_U32, PJRT_Buffer_Type_U64,
  PJRT_Buffer_Type_F16, PJRT_Buffer_Type_F32, PJRT_Buffer_Type_F64, PJRT_Buffer_Type_BF16, PJRT_Buffer_Type_C64,
  PJRT_Buffer_Type_C128, PJRT_Buffer_Type_F8E5M2, PJRT_Buffer_Type_F8E4M3FN, PJRT_Buffer_Type_F8E4M3B11FNUZ,
  PJRT_Buffer_Type_F8E5M2FNUZ, PJRT_Buffer_Type_F8E4M3FNUZ, PJRT_Buffer_Type_S4, PJRT_Buffer_Type_U4,
  PJRT_Buffer_Type_TOKEN, PJRT_Buffer_Type_S2, PJRT_Buffer_Type_U2, PJRT_Buffer_Type_F8E4M3,
  PJRT_Buffer_Type_F8E3M4, PJRT_Buffer_Type_F8E8M0FNU, PJRT_Buffer_Type_F4E2M1FN, PJRT_Buffer_Type_S1,
  PJRT_Buffer_Type_U1, PJRT_Buffer_Type_F6E2M3FN, PJRT_Buffer_Type_F6E3M2FN,
} PJRT_Buffer_Type;
typedef enum PJRT_HostBufferSemantics {
  PJRT_HostBufferSemantics_kImmutableOnlyDuringCall, PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
  PJRT_HostBufferSemantics_kImmutableZeroCopy, PJRT_HostBufferSemantics_kMutableZeroCopy,
} PJRT_HostBufferSemantics;
typedef enum PJRT_Buffer_MemoryLayout_Type {
  PJRT_Buffer_MemoryLayout_Type_Tiled = 0, PJRT_Buffer_MemoryLayout_Type_Strides,
} PJRT_Buffer_MemoryLayout_Type;
PJRT_STRUCT(PJRT_Buffer_MemoryLayout_Tiled,
  const int64_t *minor_to_major; size_t minor_to_major_size; const int64_t *tile_dims;
  const size_t *tile_dim_sizes; size_t num_tiles;)
PJRT_STRUCT(PJRT_Buffer_MemoryLayout_Strides, const int64_t *byte_strides; size_t num_byte_strides;)
PJRT_STRUCT(PJRT_Buffer_MemoryLayout,
  union { PJRT_Buffer_MemoryLayout_Tiled tiled; PJRT_Buffer_MemoryLayout_Strides strides; };
  PJRT_Buffer_MemoryLayout_Type type;)
PJRT_STRUCT(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args,
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager; int buffer_index; const void *data;
  const int64_t *shape_dims; size_t shape_num_dims; PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout *shape_layout; /* out: */ PJRT_Event *done_with_h2d_transfer;)
PJRT_STRUCT(PJRT_Client_CreateUninitializedBuffer_Args,
  PJRT_Client *client; const int64_t *shape_dims; size_t shape_num_dims; PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout *shape_layout; PJRT_Device *device; PJRT_Memory *memory; /* out: */ PJRT_Buffer *buffer;)
PJRT_STRUCT(PJRT_Client_CreateErrorBuffer_Args,
  PJRT_Client *client; PJRT_Error_Code error_code; const char *error_message; size_t error_message_size;
  const int64_t *shape_dims; size_t shape_num_dims; PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout *shape_layout; PJRT_Memory *memory; /* out: */ PJRT_Buffer *buffer;
  const PJRT_NamedValue *payload; size_t num_payload;)
PJRT_STRUCT(PJRT_Client_CreateAliasBuffer_Args,
  PJRT_Client *client; PJRT_Memory *memory; const int64_t *shape_dims; size_t shape_num_dims;
  PJRT_Buffer_Type shape_element_type; PJRT_Buffer_MemoryLayout *shape_layout; /* out: */
  PJRT_Buffer *alias_buffer; PJRT_FulfillAliasBufferCallback *fulfill_alias_buffer_cb;)
PJRT_STRUCT(PJRT_Client_FulfillAliasBuffer_Args,
  PJRT_Client *client; PJRT_Buffer *buffer; PJRT_Error_Code status_code; const char *error_message;
  size_t error_message_size; PJRT_FulfillAliasBufferCallback *fulfill_alias_buffer_cb;)
PJRT_STRUCT(PJRT_Client_BufferFromHostBuffer_Args,
  PJRT_Client *client; const void *data; PJRT_Buffer_Type type; const int64_t *dims; size_t num_dims;
  const int64_t *byte_strides; size_t num_byte_strides; PJRT_HostBufferSemantics host_buffer_semantics;
  PJRT_Device *device; PJRT_Memory *memory; PJRT_Buffer_MemoryLayout *device_layout; /* out: */
  PJRT_Event *done_with_host_buffer; PJRT_Buffer *buffer;)
PJRT_STRUCT(PJRT_Client_CreateViewOfDeviceBuffer_Args,
  PJRT_Client *client; void *device_buffer_ptr; const int64_t *dims; size_t num_dims;
  PJRT_Buffer_Type element_type; PJRT_Buffer_MemoryLayout *layout; PJRT_Device *device;
  void (*on_delete_callback)(void *device_buffer_ptr, void *user_arg); void *on_delete_callback_arg;
  intptr_t stream; /* out: */ PJRT_Buffer *buffer; PJRT_Memory *memory;)
PJRT_STRUCT(PJRT_ShapeSpec,
  const int64_t *dims; size_t num_dims; PJRT_Buffer_Type element_type;)
PJRT_STRUCT(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args,
  PJRT_Client *client; PJRT_ShapeSpec *shape_specs; size_t num_shape_specs;
  PJRT_Buffer_MemoryLayout **device_layouts; size_t num_device_layouts; PJRT_Memory *memory; /* out: */
  PJRT_AsyncHostToDeviceTransferManager *transfer_manager;)
PJRT_STRUCT(PJRT_DeviceDescription_Id_Args,
  PJRT_DeviceDescription *device_description; /* out: */ int id;)
PJRT_STRUCT(PJRT_DeviceDescription_ProcessIndex_Args,
  PJRT_DeviceDescription *device_description; /* out: */ int process_index;)
PJRT_STRUCT(PJRT_DeviceDescription_Attributes_Args,
  PJRT_DeviceDescription *device_description; /* out: */ size_t num_attributes; const PJRT_NamedValue *attributes;)
PJRT_STRUCT(PJRT_DeviceDescription_Kind_Args,
  PJRT_DeviceDescription *device_description; /* out: */ const char *device_kind; size_t device_kind_size;)
PJRT_STRUCT(PJRT_DeviceDescription_DebugString_Args,
  PJRT_DeviceDescription *device_description; /* out: */ const char *debug_string; size_t debug_string_size;)
PJRT_STRUCT(PJRT_DeviceDescription_ToString_Args,
  PJRT_DeviceDescription *device_description; /* out: */ const char *to_string; size_t to_string_size;)
PJRT_STRUCT(PJRT_Device_GetDescription_Args,
  PJRT_Device *device; /* out: */ PJRT_DeviceDescription *device_description;)
PJRT_STRUCT(PJRT_Device_IsAddressable_Args, PJRT_Device *device; /* out: */ bool is_addressable;)
PJRT_STRUCT(PJRT_Device_LocalHardwareId_Args, PJRT_Device *device; /* out: */ int local_hardware_id;)
PJRT_STRUCT(PJRT_Device_AddressableMemories_Args,
  PJRT_Device *device; /* out: */ PJRT_Memory *const *memories; size_t num_memories;)
PJRT_STRUCT(PJRT_Device_DefaultMemory_Args, PJRT_Device *device; /* out: */ PJRT_Memory *memory;)
PJRT_STRUCT(PJRT_Device_MemoryStats_Args,
  PJRT_Device *device; /* out: */ int64_t bytes_in_use; int64_t peak_bytes_in_use; bool peak_bytes_in_use_is_set;
  int64_t num_allocs; bool num_allocs_is_set; int64_t largest_alloc_size; bool largest_alloc_size_is_set;
  int64_t bytes_limit; bool bytes_limit_is_set; int64_t bytes_reserved; bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved; bool peak_bytes_reserved_is_set; int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set; int64_t largest_free_block_bytes; bool largest_free_block_bytes_is_set;
  int64_t pool_bytes; bool pool_bytes_is_set; int64_t peak_pool_bytes; bool peak_pool_bytes_is_set;
  int64_t peak_allocated_bytes; bool peak_allocated_bytes_is_set;)
PJRT_STRUCT(PJRT_Device_ClearMemoryStats_Args, PJRT_Device *device;)
PJRT_STRUCT(PJRT_Device_PoisonExecution_Args,
  PJRT_Device *device; int32_t launch_id; PJRT_Error_Code error_code; const char *error_message;
  size_t error_message_size; /* out: */ bool poisoned; const PJRT_NamedValue *payload; size_t num_payload;)
PJRT_STRUCT(PJRT_Device_GetAttributes_Args,
  PJRT_Device *device; /* out: */ const PJRT_NamedValue *attributes; size_t num_attributes;
  PJRT_Device_Attributes *device_attributes; void (*attributes_deleter)(PJRT_Device_Attributes *device_attributes);)
PJRT_STRUCT(PJRT_Device_CreateAsyncTrackingEvent_Args,
  PJRT_Device *device; const char *description; size_t description_size; /* out: */ PJRT_AsyncTrackingEvent *event;)
PJRT_STRUCT(PJRT_AsyncTrackingEvent_Destroy_Args, PJRT_AsyncTrackingEvent *event;)
PJRT_STRUCT(PJRT_Memory_Id_Args, PJRT_Memory *memory; /* out: */ int id;)
PJRT_STRUCT(PJRT_Memory_Kind_Args,
  PJRT_Memory *memory; /* out: */ const char *kind; size_t kind_size;)
PJRT_STRUCT(PJRT_Memory_Kind_Id_Args, PJRT_Memory *memory; /* out: */ int kind_id;)
PJRT_STRUCT(PJRT_Memory_DebugString_Args,
  PJRT_Memory *memory; /* out: */ const char *debug_string; size_t debug_string_size;)
PJRT_STRUCT(PJRT_Memory_ToString_Args,
  PJRT_Memory *memory; /* out: */ const char *to_string; size_t to_string_size;)
PJRT_STRUCT(PJRT_Memory_AddressableByDevices_Args,
  PJRT_Memory *memory; /* out: */ PJRT_Device *const *devices; size_t num_devices;)
PJRT_STRUCT(PJRT_ExecuteContext_Create_Args, /* out: */ PJRT_ExecuteContext *context;)
PJRT_STRUCT(PJRT_ExecuteContext_Destroy_Args, PJRT_ExecuteContext *context;)
PJRT_STRUCT(PJRT_Executable_Destroy_Args, PJRT_Executable *executable;)
PJRT_STRUCT(PJRT_LoadedExecutable_Destroy_Args, PJRT_LoadedExecutable *executable;)
PJRT_STRUCT(PJRT_LoadedExecutable_GetExecutable_Args,
  PJRT_LoadedExecutable *loaded_executable; /* out: */ PJRT_Executable *executable;)
PJRT_STRUCT(PJRT_LoadedExecutable_GetDeviceAssignment_Args,
  PJRT_LoadedExecutable *executable; /* out: */ const char *serialized_bytes; size_t serialized_bytes_size;
  PJRT_DeviceAssignmentSerialized *serialized_device_assignment; /* out: */
  void (*serialized_device_assignment_deleter)( PJRT_DeviceAssignmentSerialized *da);)
PJRT_STRUCT(PJRT_Executable_Name_Args,
  PJRT_Executable *executable; /* out: */ const char *executable_name; size_t executable_name_size;)
PJRT_STRUCT(PJRT_Executable_NumReplicas_Args,
  PJRT_Executable *executable; /* out: */ size_t num_replicas;)
PJRT_STRUCT(PJRT_Executable_NumPartitions_Args,
  PJRT_Executable *executable; /* out: */ size_t num_partitions;)

struct PJRT_LogicalDeviceIds {
  int replica; int partition;
};
PJRT_STRUCT(PJRT_LoadedExecutable_AddressableDevices_Args,
  PJRT_LoadedExecutable *executable; /* out: */ PJRT_Device *const *addressable_devices;
  size_t num_addressable_devices;)
PJRT_STRUCT(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args,
  PJRT_LoadedExecutable *executable; /* out: */ PJRT_LogicalDeviceIds *addressable_device_logical_ids;
  size_t num_addressable_device_logical_ids;)
PJRT_STRUCT(PJRT_Executable_OptimizedProgram_Args,
  PJRT_Executable *executable; /* out: */ PJRT_Program *program;)
PJRT_STRUCT(PJRT_LoadedExecutable_Delete_Args, PJRT_LoadedExecutable *executable;)
PJRT_STRUCT(PJRT_LoadedExecutable_IsDeleted_Args,
  PJRT_LoadedExecutable *executable; /* out: */ bool is_deleted;)

struct PJRT_Chunk {
  void *data; size_t size; void (*deleter)(void *data, void *deleter_arg); void *deleter_arg;
};
typedef PJRT_Error *(*PJRT_SendCallback)(PJRT_Chunk *chunk, PJRT_CallbackError *callback_error, size_t total_size_in_bytes, bool done, void *user_arg);
typedef void (*PJRT_RecvCallback)(PJRT_CopyToDeviceStream *stream, void *user_arg);

struct PJRT_SendCallbackInfo {
  int64_t channel_id; void *user_arg; PJRT_SendCallback send_callback;
};

struct PJRT_RecvCallbackInfo {
  int64_t channel_id; void *user_arg; PJRT_RecvCallback recv_callback;
};
typedef void (*PJRT_HloOutputCallback)(int64_t replica_id, int64_t partition_id, const void *data, const int64_t *shape_dims, size_t shape_num_dims, PJRT_Buffer_Type shape_element_type, int64_t operand_index, void *user_arg);

struct PJRT_HloOutputCallbackInfo {
  void *user_arg; PJRT_HloOutputCallback callback; int64_t callback_id; size_t num_operands;
};
PJRT_STRUCT(PJRT_ExecuteOptions,
  PJRT_SendCallbackInfo **send_callbacks; PJRT_RecvCallbackInfo **recv_callbacks; size_t num_send_ops;
  size_t num_recv_ops; int launch_id; const int64_t *non_donatable_input_indices;
  size_t num_non_donatable_input_indices; PJRT_ExecuteContext *context; const char *call_location;
  size_t num_tasks; int *task_ids; int64_t *incarnation_ids; PJRT_MultiSlice_Config *multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks; PJRT_HloOutputCallbackInfo *hlo_output_callbacks;
  size_t num_hlo_output_callbacks;)
PJRT_STRUCT(PJRT_LoadedExecutable_Execute_Args,
  PJRT_LoadedExecutable *executable; PJRT_ExecuteOptions *options; PJRT_Buffer *const *const *argument_lists;
  size_t num_devices; size_t num_args; /* out: */ PJRT_Buffer **const *output_lists;
  PJRT_Event **device_complete_events; PJRT_Device *execute_device;)
PJRT_STRUCT(PJRT_Executable_NumOutputs_Args, PJRT_Executable *executable; /* out: */ size_t num_outputs;)
PJRT_STRUCT(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args,
  PJRT_Executable *executable; /* out: */ int64_t size_in_bytes;)
PJRT_STRUCT(PJRT_Executable_Fingerprint_Args,
  PJRT_Executable *executable; /* out: */ const char *executable_fingerprint; size_t executable_fingerprint_size;)
PJRT_STRUCT(PJRT_Executable_GetCostAnalysis_Args,
  PJRT_Executable *executable; /* out: */ size_t num_properties; const PJRT_NamedValue *properties;)
PJRT_STRUCT(PJRT_Executable_GetCompiledMemoryStats_Args,
  PJRT_Executable *executable; /* out: */ int64_t generated_code_size_in_bytes; int64_t argument_size_in_bytes;
  int64_t output_size_in_bytes; int64_t alias_size_in_bytes; int64_t temp_size_in_bytes;
  int64_t host_generated_code_size_in_bytes; int64_t host_argument_size_in_bytes;
  int64_t host_output_size_in_bytes; int64_t host_alias_size_in_bytes; int64_t host_temp_size_in_bytes;
  int64_t peak_memory_in_bytes; int64_t total_size_in_bytes; int64_t total_allocation_bytes;
  int64_t indefinite_allocations; int64_t peak_unpadded_heap_bytes;)
PJRT_STRUCT(PJRT_Executable_OutputElementTypes_Args,
  PJRT_Executable *executable; /* out: */ PJRT_Buffer_Type *output_types; size_t num_output_types;)
PJRT_STRUCT(PJRT_Executable_OutputDimensions_Args,
  PJRT_Executable *executable; size_t num_outputs; /* out: */ const int64_t *dims; const size_t *dim_sizes;)
PJRT_STRUCT(PJRT_Executable_ParameterMemoryKinds_Args,
  PJRT_Executable *executable; size_t num_parameters; /* out: */ const char *const *memory_kinds;
  const size_t *memory_kind_sizes;)
PJRT_STRUCT(PJRT_Executable_OutputMemoryKinds_Args,
  PJRT_Executable *executable; size_t num_outputs; /* out: */ const char *const *memory_kinds;
  const size_t *memory_kind_sizes;)
PJRT_STRUCT(PJRT_Executable_Serialize_Args,
  const PJRT_Executable *executable; /* out: */ const char *serialized_bytes; size_t serialized_bytes_size;
  PJRT_SerializedExecutable *serialized_executable; /* out: */
  void (*serialized_executable_deleter)( PJRT_SerializedExecutable *exec);)
PJRT_STRUCT(PJRT_Executable_GetCompileOptions_Args,
  PJRT_Executable *executable; /* out: */ const char *serialized_bytes; size_t serialized_bytes_size;
  PJRT_SerializedCompileOptions *serialized_compile_options; /* out: */
  void (*serialized_compile_options_deleter)( PJRT_SerializedCompileOptions *options);)

struct PJRT_LoadOptions {
  size_t struct_size; const int32_t *computation_origin; size_t computation_origin_size;
  PJRT_MultiSlice_Config *multi_slice_config;
};
PJRT_STRUCT(PJRT_Executable_DeserializeAndLoad_Args,
  PJRT_Client *client; const char *serialized_executable; size_t serialized_executable_size; /* out: */
  PJRT_LoadedExecutable *loaded_executable; const char *overridden_serialized_compile_options;
  size_t overridden_serialized_compile_options_size; PJRT_LoadOptions *load_options;)
PJRT_STRUCT(PJRT_LoadedExecutable_Fingerprint_Args,
  PJRT_LoadedExecutable *executable; /* out: */ const char *executable_fingerprint;
  size_t executable_fingerprint_size;)
PJRT_STRUCT(PJRT_Buffer_Destroy_Args, PJRT_Buffer *buffer;)
PJRT_STRUCT(PJRT_Buffer_ElementType_Args, PJRT_Buffer *buffer; /* out: */ PJRT_Buffer_Type type;)
PJRT_STRUCT(PJRT_Buffer_Dimensions_Args,
  PJRT_Buffer *buffer; /* out: */ const int64_t *dims; size_t num_dims;)
PJRT_STRUCT(PJRT_Buffer_UnpaddedDimensions_Args,
  PJRT_Buffer *buffer; /* out: */ const int64_t *unpadded_dims; size_t num_dims;)
PJRT_STRUCT(PJRT_Buffer_DynamicDimensionIndices_Args,
  PJRT_Buffer *buffer; /* out: */ const size_t *dynamic_dim_indices; size_t num_dynamic_dims;)
PJRT_STRUCT(PJRT_Buffer_GetMemoryLayout_Args,
  PJRT_Buffer *buffer; /* out: */ PJRT_Buffer_MemoryLayout layout;)
PJRT_STRUCT(PJRT_Buffer_ToHostBuffer_Args,
  PJRT_Buffer *src; PJRT_Buffer_MemoryLayout *host_layout; /* out: */ void *dst; size_t dst_size;
  PJRT_Event *event;)
PJRT_STRUCT(PJRT_Buffer_OnDeviceSizeInBytes_Args,
  PJRT_Buffer *buffer; /* out: */ size_t on_device_size_in_bytes;)
PJRT_STRUCT(PJRT_Buffer_Delete_Args, PJRT_Buffer *buffer;)
PJRT_STRUCT(PJRT_Buffer_IsDeleted_Args, PJRT_Buffer *buffer; /* out: */ bool is_deleted;)
PJRT_STRUCT(PJRT_Buffer_CopyRawToHost_Args,
  PJRT_Buffer *buffer; void *dst; int64_t offset; int64_t transfer_size; /* out: */ PJRT_Event *event;)

struct PJRT_Buffer_CopyRawToHostFuture_Callback_Args {
  size_t struct_size; void *callback_data; PJRT_Error_Code error_code; const char *error_message;
  size_t error_message_size; void *dst;
};
PJRT_STRUCT(PJRT_Buffer_CopyRawToHostFuture_Args,
  PJRT_Buffer *buffer; int64_t offset; int64_t transfer_size; /* out: */ PJRT_Event *event; void *callback_data;
  void (*future_ready_callback)( PJRT_Buffer_CopyRawToHostFuture_Callback_Args *args);)
PJRT_STRUCT(PJRT_Buffer_CopyToDevice_Args,
  PJRT_Buffer *buffer; PJRT_Device *dst_device; /* out: */ PJRT_Buffer *dst_buffer;)
PJRT_STRUCT(PJRT_Buffer_CopyToMemory_Args,
  PJRT_Buffer *buffer; PJRT_Memory *dst_memory; /* out: */ PJRT_Buffer *dst_buffer;)
PJRT_STRUCT(PJRT_Buffer_Bitcast_Args,
  PJRT_Buffer *buffer; PJRT_Buffer_Type element_type; const int64_t *dims; size_t num_dims;
  PJRT_Buffer_MemoryLayout *device_layout; /* out: */ PJRT_Buffer *out_buffer;)
PJRT_STRUCT(PJRT_Buffer_IsOnCpu_Args, PJRT_Buffer *buffer; /* out: */ bool is_on_cpu;)
PJRT_STRUCT(PJRT_Buffer_Device_Args, PJRT_Buffer *buffer; /* out: */ PJRT_Device *device;)
PJRT_STRUCT(PJRT_Buffer_Memory_Args, PJRT_Buffer *buffer; /* out: */ PJRT_Memory *memory;)
PJRT_STRUCT(PJRT_Buffer_ReadyEvent_Args, PJRT_Buffer *buffer; /* out: */ PJRT_Event *event;)
PJRT_STRUCT(PJRT_Buffer_UnsafePointer_Args, PJRT_Buffer *buffer; /* out: */ uintptr_t buffer_pointer;)
PJRT_STRUCT(PJRT_Buffer_IncreaseExternalReferenceCount_Args, PJRT_Buffer *buffer;)
PJRT_STRUCT(PJRT_Buffer_DecreaseExternalReferenceCount_Args, PJRT_Buffer *buffer;)
PJRT_STRUCT(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, PJRT_Buffer *buffer; /* out: */ void *device_memory_ptr;)

struct PJRT_Buffer_DonateWithControlDependency_Callback_Args {
  size_t struct_size; void *callback_data; PJRT_Error_Code error_code; const char *error_message;
  size_t error_message_size;
};
PJRT_STRUCT(PJRT_Buffer_DonateWithControlDependency_Args,
  PJRT_Buffer *buffer; /* out: */ void *callback_data;
  void (*dependency_ready_callback)( PJRT_Buffer_DonateWithControlDependency_Callback_Args *args);
  PJRT_Buffer *out_buffer;)
PJRT_STRUCT(PJRT_CopyToDeviceStream_Destroy_Args, PJRT_CopyToDeviceStream *stream;)
PJRT_STRUCT(PJRT_CopyToDeviceStream_AddChunk_Args,
  PJRT_CopyToDeviceStream *stream; PJRT_Chunk *chunk; /* out: */ PJRT_Event *transfer_complete;)
PJRT_STRUCT(PJRT_CopyToDeviceStream_TotalBytes_Args,
  PJRT_CopyToDeviceStream *stream; /* out: */ int64_t total_bytes;)
PJRT_STRUCT(PJRT_CopyToDeviceStream_GranuleSize_Args,
  PJRT_CopyToDeviceStream *stream; /* out: */ int64_t granule_size_in_bytes;)
PJRT_STRUCT(PJRT_CopyToDeviceStream_CurrentBytes_Args,
  PJRT_CopyToDeviceStream *stream; /* out: */ int64_t current_bytes;)
PJRT_STRUCT(PJRT_TopologyDescription_Create_Args,
  const char *topology_name; size_t topology_name_size; const PJRT_NamedValue *create_options; size_t num_options;
  /* out: */ PJRT_TopologyDescription *topology;)
PJRT_STRUCT(PJRT_TopologyDescription_Destroy_Args, PJRT_TopologyDescription *topology;)
PJRT_STRUCT(PJRT_TopologyDescription_PlatformVersion_Args,
  PJRT_TopologyDescription *topology; /* out: */ const char *platform_version; size_t platform_version_size;)
PJRT_STRUCT(PJRT_TopologyDescription_PlatformName_Args,
  const PJRT_TopologyDescription *topology; /* out: */ const char *platform_name; size_t platform_name_size;)
PJRT_STRUCT(PJRT_TopologyDescription_GetDeviceDescriptions_Args,
  const PJRT_TopologyDescription *topology; /* out: */ PJRT_DeviceDescription *const *descriptions;
  size_t num_descriptions;)
PJRT_STRUCT(PJRT_TopologyDescription_Serialize_Args,
  PJRT_TopologyDescription *topology; /* out: */ const char *serialized_bytes; size_t serialized_bytes_size;
  PJRT_SerializedTopology *serialized_topology;
  void (*serialized_topology_deleter)( PJRT_SerializedTopology *serialized_topology);)
PJRT_STRUCT(PJRT_TopologyDescription_Deserialize_Args,
  const char *serialized_topology; size_t serialized_topology_size; /* out: */ PJRT_TopologyDescription *topology;)
PJRT_STRUCT(PJRT_TopologyDescription_Attributes_Args,
  PJRT_TopologyDescription *topology; /* out: */ const PJRT_NamedValue *attributes; size_t num_attributes;)
PJRT_STRUCT(PJRT_TopologyDescription_Fingerprint_Args,
  const PJRT_TopologyDescription *topology; /* out: */ uint64_t fingerprint;)
PJRT_STRUCT(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args,
  const PJRT_TopologyDescription *topology; int memory_space_kind_id; const int64_t *dims; size_t num_dims;
  PJRT_Buffer_Type element_type; const PJRT_Buffer_MemoryLayout *layout; /* out: */ const char *serialized_shape;
  size_t serialized_shape_size; void (*serialized_shape_deleter)(const char *);)
PJRT_STRUCT(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args,
  const PJRT_TopologyDescription *topology; /* out: */ const int *memory_space_kind_ids;
  size_t num_memory_space_kind_ids;)
PJRT_STRUCT(PJRT_Compile_Args,
  const PJRT_TopologyDescription *topology; const PJRT_Program *program; const char *compile_options;
  size_t compile_options_size; PJRT_Client *client; /* out: */ PJRT_Executable *executable;)

/* Every function of the API in the order of the table. */
#define PJRT_API_FUNCTIONS(X) \
  X(Error_Destroy) X(Error_Message) X(Error_GetCode) X(Plugin_Initialize) X(Plugin_Attributes) X(Event_Destroy) \
  X(Event_IsReady) X(Event_Error) X(Event_Await) X(Event_OnReady) X(Client_Create) X(Client_Destroy) \
  X(Client_PlatformName) X(Client_ProcessIndex) X(Client_PlatformVersion) X(Client_Devices) \
  X(Client_AddressableDevices) X(Client_LookupDevice) X(Client_LookupAddressableDevice) \
  X(Client_AddressableMemories) X(Client_Compile) X(Client_DefaultDeviceAssignment) X(Client_BufferFromHostBuffer) \
  X(DeviceDescription_Id) X(DeviceDescription_ProcessIndex) X(DeviceDescription_Attributes) \
  X(DeviceDescription_Kind) X(DeviceDescription_DebugString) X(DeviceDescription_ToString) X(Device_GetDescription) \
  X(Device_IsAddressable) X(Device_LocalHardwareId) X(Device_AddressableMemories) X(Device_DefaultMemory) \
  X(Device_MemoryStats) X(Memory_Id) X(Memory_Kind) X(Memory_DebugString) X(Memory_ToString) \
  X(Memory_AddressableByDevices) X(Executable_Destroy) X(Executable_Name) X(Executable_NumReplicas) \
  X(Executable_NumPartitions) X(Executable_NumOutputs) X(Executable_SizeOfGeneratedCodeInBytes) \
  X(Executable_GetCostAnalysis) X(Executable_OutputMemoryKinds) X(Executable_OptimizedProgram) \
  X(Executable_Serialize) X(LoadedExecutable_Destroy) X(LoadedExecutable_GetExecutable) \
  X(LoadedExecutable_AddressableDevices) X(LoadedExecutable_Delete) X(LoadedExecutable_IsDeleted) \
  X(LoadedExecutable_Execute) X(Executable_DeserializeAndLoad) X(LoadedExecutable_Fingerprint) X(Buffer_Destroy) \
  X(Buffer_ElementType) X(Buffer_Dimensions) X(Buffer_UnpaddedDimensions) X(Buffer_DynamicDimensionIndices) \
  X(Buffer_GetMemoryLayout) X(Buffer_OnDeviceSizeInBytes) X(Buffer_Device) X(Buffer_Memory) X(Buffer_Delete) \
  X(Buffer_IsDeleted) X(Buffer_CopyToDevice) X(Buffer_ToHostBuffer) X(Buffer_IsOnCpu) X(Buffer_ReadyEvent) \
  X(Buffer_UnsafePointer) X(Buffer_IncreaseExternalReferenceCount) X(Buffer_DecreaseExternalReferenceCount) \
  X(Buffer_OpaqueDeviceMemoryDataPointer) X(CopyToDeviceStream_Destroy) X(CopyToDeviceStream_AddChunk) \
  X(CopyToDeviceStream_TotalBytes) X(CopyToDeviceStream_GranuleSize) X(CopyToDeviceStream_CurrentBytes) \
  X(TopologyDescription_Create) X(TopologyDescription_Destroy) X(TopologyDescription_PlatformName) \
  X(TopologyDescription_PlatformVersion) X(TopologyDescription_GetDeviceDescriptions) \
  X(TopologyDescription_Serialize) X(TopologyDescription_Attributes) X(Compile) X(Executable_OutputElementTypes) \
  X(Executable_OutputDimensions) X(Buffer_CopyToMemory) X(Client_CreateViewOfDeviceBuffer) \
  X(Executable_Fingerprint) X(Client_TopologyDescription) X(Executable_GetCompiledMemoryStats) X(Memory_Kind_Id) \
  X(ExecuteContext_Create) X(ExecuteContext_Destroy) X(Buffer_CopyRawToHost) \
  X(AsyncHostToDeviceTransferManager_Destroy) X(AsyncHostToDeviceTransferManager_TransferData) \
  X(Client_CreateBuffersForAsyncHostToDevice) X(AsyncHostToDeviceTransferManager_RetrieveBuffer) \
  X(AsyncHostToDeviceTransferManager_Device) X(AsyncHostToDeviceTransferManager_BufferCount) \
  X(AsyncHostToDeviceTransferManager_BufferSize) X(AsyncHostToDeviceTransferManager_SetBufferError) \
  X(AsyncHostToDeviceTransferManager_AddMetadata) X(Client_DmaMap) X(Client_DmaUnmap) \
  X(Client_CreateUninitializedBuffer) X(Client_UpdateGlobalProcessInfo) X(TopologyDescription_Deserialize) \
  X(Client_CreateAliasBuffer) X(Client_FulfillAliasBuffer) X(LoadedExecutable_GetDeviceAssignment) \
  X(Client_CreateErrorBuffer) X(AsyncHostToDeviceTransferManager_TransferLiteral) X(Buffer_CopyRawToHostFuture) \
  X(Device_PoisonExecution) X(Device_CreateAsyncTrackingEvent) X(AsyncTrackingEvent_Destroy) \
  X(Executable_GetCompileOptions) X(Buffer_DonateWithControlDependency) X(Event_Create) X(Event_Set) \
  X(Device_GetAttributes) X(Client_Load) X(LoadedExecutable_AddressableDeviceLogicalIds) X(Buffer_Bitcast) \
  X(Error_ForEachPayload) X(TopologyDescription_Fingerprint) X(Executable_ParameterMemoryKinds) \
  X(Device_ClearMemoryStats) X(TopologyDescription_MakeCanonicalShapeForMemorySpace) \
  X(TopologyDescription_GetMemorySpaceKindIds)

/* Error_Destroy and Error_Message return nothing; every other function returns an error or NULL. */
typedef void PJRT_Error_Destroy(PJRT_Error_Destroy_Args *args);
typedef void PJRT_Error_Message(PJRT_Error_Message_Args *args);
typedef PJRT_Error *PJRT_Error_GetCode(PJRT_Error_GetCode_Args *args);
typedef PJRT_Error *PJRT_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args);
typedef PJRT_Error *PJRT_Plugin_Attributes(PJRT_Plugin_Attributes_Args *args);
typedef PJRT_Error *PJRT_Event_Destroy(PJRT_Event_Destroy_Args *args);
typedef PJRT_Error *PJRT_Event_IsReady(PJRT_Event_IsReady_Args *args);
typedef PJRT_Error *PJRT_Event_Error(PJRT_Event_Error_Args *args);
typedef PJRT_Error *PJRT_Event_Await(PJRT_Event_Await_Args *args);
typedef PJRT_Error *PJRT_Event_OnReady(PJRT_Event_OnReady_Args *args);
typedef PJRT_Error *PJRT_Client_Create(PJRT_Client_Create_Args *args);
typedef PJRT_Error *PJRT_Client_Destroy(PJRT_Client_Destroy_Args *args);
typedef PJRT_Error *PJRT_Client_PlatformName(PJRT_Client_PlatformName_Args *args);
typedef PJRT_Error *PJRT_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args *args);
typedef PJRT_Error *PJRT_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args);
typedef PJRT_Error *PJRT_Client_Devices(PJRT_Client_Devices_Args *args);
typedef PJRT_Error *PJRT_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args);
typedef PJRT_Error *PJRT_Client_LookupDevice(PJRT_Client_LookupDevice_Args *args);
typedef PJRT_Error *PJRT_Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args *args);
typedef PJRT_Error *PJRT_Client_AddressableMemories(PJRT_Client_AddressableMemories_Args *args);
typedef PJRT_Error *PJRT_Client_Compile(PJRT_Client_Compile_Args *args);
typedef PJRT_Error *PJRT_Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args *args);
typedef PJRT_Error *PJRT_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args);
typedef PJRT_Error *PJRT_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args);
typedef PJRT_Error *PJRT_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args);
typedef PJRT_Error *PJRT_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args);
typedef PJRT_Error *PJRT_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args);
typedef PJRT_Error *PJRT_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args *args);
typedef PJRT_Error *PJRT_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args *args);
typedef PJRT_Error *PJRT_Device_GetDescription(PJRT_Device_GetDescription_Args *args);
typedef PJRT_Error *PJRT_Device_IsAddressable(PJRT_Device_IsAddressable_Args *args);
typedef PJRT_Error *PJRT_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args *args);
typedef PJRT_Error *PJRT_Device_AddressableMemories(PJRT_Device_AddressableMemories_Args *args);
typedef PJRT_Error *PJRT_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args *args);
typedef PJRT_Error *PJRT_Device_MemoryStats(PJRT_Device_MemoryStats_Args *args);
typedef PJRT_Error *PJRT_Memory_Id(PJRT_Memory_Id_Args *args);
typedef PJRT_Error *PJRT_Memory_Kind(PJRT_Memory_Kind_Args *args);
typedef PJRT_Error *PJRT_Memory_DebugString(PJRT_Memory_DebugString_Args *args);
typedef PJRT_Error *PJRT_Memory_ToString(PJRT_Memory_ToString_Args *args);
typedef PJRT_Error *PJRT_Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args *args);
typedef PJRT_Error *PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args *args);
typedef PJRT_Error *PJRT_Executable_Name(PJRT_Executable_Name_Args *args);
typedef PJRT_Error *PJRT_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args *args);
typedef PJRT_Error *PJRT_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args *args);
typedef PJRT_Error *PJRT_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args);
typedef PJRT_Error *PJRT_Executable_SizeOfGeneratedCodeInBytes(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args *args);
typedef PJRT_Error *PJRT_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args *args);
typedef PJRT_Error *PJRT_Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args *args);
typedef PJRT_Error *PJRT_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args *args);
typedef PJRT_Error *PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args);
typedef PJRT_Error *PJRT_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args *args);
typedef PJRT_Error *PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args);
typedef PJRT_Error *PJRT_Buffer_ElementType(PJRT_Buffer_ElementType_Args *args);
typedef PJRT_Error *PJRT_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args);
typedef PJRT_Error *PJRT_Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args *args);
typedef PJRT_Error *PJRT_Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args *args);
typedef PJRT_Error *PJRT_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args);
typedef PJRT_Error *PJRT_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args);
typedef PJRT_Error *PJRT_Buffer_Device(PJRT_Buffer_Device_Args *args);
typedef PJRT_Error *PJRT_Buffer_Memory(PJRT_Buffer_Memory_Args *args);
typedef PJRT_Error *PJRT_Buffer_Delete(PJRT_Buffer_Delete_Args *args);
typedef PJRT_Error *PJRT_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args);
typedef PJRT_Error *PJRT_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args);
typedef PJRT_Error *PJRT_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args);
typedef PJRT_Error *PJRT_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args *args);
typedef PJRT_Error *PJRT_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args);
typedef PJRT_Error *PJRT_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args);
typedef PJRT_Error *PJRT_Buffer_IncreaseExternalReferenceCount(PJRT_Buffer_IncreaseExternalReferenceCount_Args *args);
typedef PJRT_Error *PJRT_Buffer_DecreaseExternalReferenceCount(PJRT_Buffer_DecreaseExternalReferenceCount_Args *args);
typedef PJRT_Error *PJRT_Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args *args);
typedef PJRT_Error *PJRT_CopyToDeviceStream_Destroy(PJRT_CopyToDeviceStream_Destroy_Args *args);
typedef PJRT_Error *PJRT_CopyToDeviceStream_AddChunk(PJRT_CopyToDeviceStream_AddChunk_Args *args);
typedef PJRT_Error *PJRT_CopyToDeviceStream_TotalBytes(PJRT_CopyToDeviceStream_TotalBytes_Args *args);
typedef PJRT_Error *PJRT_CopyToDeviceStream_GranuleSize(PJRT_CopyToDeviceStream_GranuleSize_Args *args);
typedef PJRT_Error *PJRT_CopyToDeviceStream_CurrentBytes(PJRT_CopyToDeviceStream_CurrentBytes_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args *args);
typedef PJRT_Error *PJRT_Compile(PJRT_Compile_Args *args);
typedef PJRT_Error *PJRT_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args *args);
typedef PJRT_Error *PJRT_Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args *args);
typedef PJRT_Error *PJRT_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args *args);
typedef PJRT_Error *PJRT_Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args *args);
typedef PJRT_Error *PJRT_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args *args);
typedef PJRT_Error *PJRT_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args *args);
typedef PJRT_Error *PJRT_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args *args);
typedef PJRT_Error *PJRT_Memory_Kind_Id(PJRT_Memory_Kind_Id_Args *args);
typedef PJRT_Error *PJRT_ExecuteContext_Create(PJRT_ExecuteContext_Create_Args *args);
typedef PJRT_Error *PJRT_ExecuteContext_Destroy(PJRT_ExecuteContext_Destroy_Args *args);
typedef PJRT_Error *PJRT_Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_TransferData(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args);
typedef PJRT_Error *PJRT_Client_CreateBuffersForAsyncHostToDevice(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_BufferCount(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_BufferSize(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_SetBufferError(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_AddMetadata(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args *args);
typedef PJRT_Error *PJRT_Client_DmaMap(PJRT_Client_DmaMap_Args *args);
typedef PJRT_Error *PJRT_Client_DmaUnmap(PJRT_Client_DmaUnmap_Args *args);
typedef PJRT_Error *PJRT_Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args *args);
typedef PJRT_Error *PJRT_Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_Deserialize(PJRT_TopologyDescription_Deserialize_Args *args);
typedef PJRT_Error *PJRT_Client_CreateAliasBuffer(PJRT_Client_CreateAliasBuffer_Args *args);
typedef PJRT_Error *PJRT_Client_FulfillAliasBuffer(PJRT_Client_FulfillAliasBuffer_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args *args);
typedef PJRT_Error *PJRT_Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args *args);
typedef PJRT_Error *PJRT_AsyncHostToDeviceTransferManager_TransferLiteral(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args *args);
typedef PJRT_Error *PJRT_Buffer_CopyRawToHostFuture(PJRT_Buffer_CopyRawToHostFuture_Args *args);
typedef PJRT_Error *PJRT_Device_PoisonExecution(PJRT_Device_PoisonExecution_Args *args);
typedef PJRT_Error *PJRT_Device_CreateAsyncTrackingEvent(PJRT_Device_CreateAsyncTrackingEvent_Args *args);
typedef PJRT_Error *PJRT_AsyncTrackingEvent_Destroy(PJRT_AsyncTrackingEvent_Destroy_Args *args);
typedef PJRT_Error *PJRT_Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args *args);
typedef PJRT_Error *PJRT_Buffer_DonateWithControlDependency(PJRT_Buffer_DonateWithControlDependency_Args *args);
typedef PJRT_Error *PJRT_Event_Create(PJRT_Event_Create_Args *args);
typedef PJRT_Error *PJRT_Event_Set(PJRT_Event_Set_Args *args);
typedef PJRT_Error *PJRT_Device_GetAttributes(PJRT_Device_GetAttributes_Args *args);
typedef PJRT_Error *PJRT_Client_Load(PJRT_Client_Load_Args *args);
typedef PJRT_Error *PJRT_LoadedExecutable_AddressableDeviceLogicalIds(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args *args);
typedef PJRT_Error *PJRT_Buffer_Bitcast(PJRT_Buffer_Bitcast_Args *args);
typedef PJRT_Error *PJRT_Error_ForEachPayload(PJRT_Error_ForEachPayload_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_Fingerprint(PJRT_TopologyDescription_Fingerprint_Args *args);
typedef PJRT_Error *PJRT_Executable_ParameterMemoryKinds(PJRT_Executable_ParameterMemoryKinds_Args *args);
typedef PJRT_Error *PJRT_Device_ClearMemoryStats(PJRT_Device_ClearMemoryStats_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args *args);
typedef PJRT_Error *PJRT_TopologyDescription_GetMemorySpaceKindIds(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args *args);

/* The table that GetPjrtApi returns. */
typedef struct PJRT_Api {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  PJRT_Api_Version pjrt_api_version;
#define PJRT_MEMBER(name) PJRT_##name *PJRT_##name;
  PJRT_API_FUNCTIONS(PJRT_MEMBER)
#undef PJRT_MEMBER
} PJRT_Api;

/* The only symbol that a plugin must export.  Returns the same static table each time. */
const PJRT_Api *GetPjrtApi(void);

#ifdef __cplusplus
}
#endif
#endif
