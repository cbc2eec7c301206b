/* weft/pjrt_extensions.h -- the extensions of the PJRT C API that Weft offers: our own text of the public ABI.
 * Sources of the facts:
 * xla/pjrt/c/pjrt_c_api_{layouts,ffi,shardings,memory_descriptions,raw_buffer,profiler}_extension.h,
 * xla/pjrt/extensions/cross_host_transfers, xla/backends/profiler/plugin/profiler_c_api.h. */
#ifndef WEFT_PJRT_EXTENSIONS_H
#define WEFT_PJRT_EXTENSIONS_H

#include "weft/pjrt_c_api.h"

/* ---- Weft's own (version 1): what `weft run` shows and the API does not cover ----
 *
 * Besides XLA's names, Weft takes:
 *   create option   num_threads (int64)   worker threads of the process
 *   create option   weft_agent (int64)    an agent of the agent extension below, in place of key-value callbacks
 *   program format  any                   StableHLO (text, bytecode) or HLO (text, proto), recognised by its content;
 *                                         parameters and results are row-major, whatever the program says
 *   compile option  weft_memory (string, in env_option_overrides)   "topological", "sequential" or "budget=BYTES" */

#define PJRT_Extension_Type_Weft ((PJRT_Extension_Type)0x57656674)
PJRT_STRUCT(PJRT_Weft_ParameterDimensions_Args, /* on one device */
  PJRT_Executable *executable; int parameter; /* out: */ const int64_t *dims; size_t num_dims; PJRT_Buffer_Type type;)
PJRT_STRUCT(PJRT_Weft_MemoryBound_Args, /* a lower bound on the temporaries of any memory plan */
  PJRT_Executable *executable; /* out: */ int64_t bytes;)
/* Registers handlers as the FFI extension does, but for all stages; or a function of an older custom-call API
 * version. */
PJRT_STRUCT(PJRT_Weft_FfiRegister_Args,
  const char *target_name; size_t target_name_size; const void *handlers[4] /* by XLA_FFI_ExecutionStage; NULL: none */;
  const void *untyped /* if not NULL, it is registered and the handlers are not */;
  /* "CUDA": handlers get arrays of the device and its stream; other names: arrays of the host */
  const char *platform; size_t platform_size;
  unsigned traits; /* as in PJRT_FFI_Register_Handler_Args */)
/* From now on no client of this process takes part in a collective.  Other processes learn that when they wait for
 * one of this process's ranks. */
PJRT_STRUCT(PJRT_Weft_Leave_Args,
  const char *reason; size_t reason_size /* 0: the program ended well */;)
typedef struct PJRT_Weft_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*parameter_dimensions)(PJRT_Weft_ParameterDimensions_Args *args);
  PJRT_Error *(*memory_bound)(PJRT_Weft_MemoryBound_Args *args);
  PJRT_Error *(*ffi_register)(PJRT_Weft_FfiRegister_Args *args);
  PJRT_Error *(*leave)(PJRT_Weft_Leave_Args *args);
} PJRT_Weft_Extension;

/* ---- Weft's coordination agent (version 1): weft/coord.h for a process that has only the plugin ----
 *
 * Errors are those of the functions of weft/coord.h.  Times are in milliseconds, texts end with NUL, no pointer may be
 * NULL.  The caller owns a value or list that a function returns, and frees it with free_block.  Functions may be
 * called from any thread; destroy may be called after all others have returned. */

#define PJRT_Extension_Type_WeftAgent ((PJRT_Extension_Type)0x57656175)
typedef struct PJRT_WeftAgent PJRT_WeftAgent;
typedef struct PJRT_WeftAgent_Entry {
  const char *key;
  const char *value; /* NUL-terminated past its end */
  size_t size;
} PJRT_WeftAgent_Entry;
typedef struct PJRT_WeftAgent_Task {
  int32_t task;
  uint64_t incarnation;
} PJRT_WeftAgent_Task;
typedef struct PJRT_WeftAgent_Extension {
  PJRT_Extension_Base base;
  /* The secret, TLS, and a timeout that is 0 here come from the WEFT_COORD_* variables.  *out_id is the value for
   * the create option weft_agent. */
  PJRT_Error *(*create)(const char *address, int64_t task, int64_t heartbeat_timeout_ms, int64_t init_timeout_ms,
                        PJRT_WeftAgent **out_agent, int64_t *out_id);
  void (*destroy)(PJRT_WeftAgent *agent); /* the agent lives on while clients that were created with it exist */
  PJRT_Error *(*connect)(PJRT_WeftAgent *agent);
  PJRT_Error *(*shutdown)(PJRT_WeftAgent *agent);
  PJRT_Error *(*get)(PJRT_WeftAgent *agent, const char *key, int64_t timeout_ms /* below 0: does not wait, NOT_FOUND */,
                     char **out_value, size_t *out_size);
  PJRT_Error *(*set)(PJRT_WeftAgent *agent, const char *key, const void *value, size_t size, bool overwrite);
  PJRT_Error *(*remove)(PJRT_WeftAgent *agent, const char *key);
  PJRT_Error *(*increment)(PJRT_WeftAgent *agent, const char *key, int64_t by, int64_t *out_value);
  PJRT_Error *(*list)(PJRT_WeftAgent *agent, const char *directory, PJRT_WeftAgent_Entry **out_entries, size_t *out_count);
  PJRT_Error *(*barrier)(PJRT_WeftAgent *agent, const char *id, int64_t timeout_ms, const int32_t *tasks,
                         size_t count /* 0: every process */);
  PJRT_Error *(*live_tasks)(PJRT_WeftAgent *agent, const int32_t *tasks, size_t count, PJRT_WeftAgent_Task **out_tasks,
                            size_t *out_count);
  PJRT_Error *(*preemption_start)(PJRT_WeftAgent *agent);
  void (*preemption_stop)(PJRT_WeftAgent *agent);
  PJRT_Error *(*reached_sync_point)(PJRT_WeftAgent *agent, int64_t step, bool *out_reached);
  void (*free_block)(void *block);
} PJRT_WeftAgent_Extension;

/* ---- layouts (version 4): a layout travels as its HLO text, "{1,0}" ---- */

typedef struct PJRT_Layouts_MemoryLayout PJRT_Layouts_MemoryLayout;
typedef struct PJRT_Layouts_SerializedLayout PJRT_Layouts_SerializedLayout;
PJRT_STRUCT(PJRT_Layouts_MemoryLayout_Destroy_Args, PJRT_Layouts_MemoryLayout *layout;)
PJRT_STRUCT(PJRT_Layouts_MemoryLayout_Serialize_Args,
  PJRT_Layouts_MemoryLayout *layout; /* out: */ const char *serialized_bytes; size_t serialized_bytes_size;
  PJRT_Layouts_SerializedLayout *serialized_layout;
  void (*serialized_layout_deleter)(PJRT_Layouts_SerializedLayout *layout);)
PJRT_STRUCT(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, PJRT_Buffer *buffer;
  /* out: */ PJRT_Layouts_MemoryLayout *layout;)
PJRT_STRUCT(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args,
  PJRT_Client *client; PJRT_Buffer_Type type; const int64_t *dims; size_t num_dims;
  /* out: */ PJRT_Layouts_MemoryLayout *layout;)
PJRT_STRUCT(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args,
  PJRT_TopologyDescription *topology_description; PJRT_Buffer_Type type; const int64_t *dims; size_t num_dims;
  /* out: */ PJRT_Layouts_MemoryLayout *layout;)
PJRT_STRUCT(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args,
  PJRT_Executable *executable; /* out: */ size_t num_outputs; PJRT_Layouts_MemoryLayout **layouts;)
PJRT_STRUCT(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args,
  PJRT_Executable *executable; /* out: */ size_t num_parameters; PJRT_Layouts_MemoryLayout **layouts;)

#define PJRT_LAYOUTS_FUNCTIONS(X)                                                        \
  X(MemoryLayout_Destroy) X(MemoryLayout_Serialize) X(PJRT_Client_GetDefaultLayout)      \
  X(PJRT_Buffer_MemoryLayout) X(PJRT_Topology_GetDefaultLayout)                          \
  X(PJRT_Executable_GetOutputLayouts) X(PJRT_Executable_GetParameterLayouts)
typedef struct PJRT_Layouts_Extension {
  PJRT_Extension_Base base;
#define PJRT_MEMBER(name) PJRT_Error *(*name)(PJRT_Layouts_##name##_Args *args);
  PJRT_LAYOUTS_FUNCTIONS(PJRT_MEMBER)
#undef PJRT_MEMBER
} PJRT_Layouts_Extension;

/* ---- FFI (version 3): user types, data for one execution, handlers of typed custom calls ---- */

typedef struct PJRT_FFI_Type_Info {
  void (*deleter)(void *object);
  void (*serialize)(void);
  void (*deserialize)(void);
} PJRT_FFI_Type_Info;
PJRT_STRUCT(PJRT_FFI_Type_Register_Args,
  const char *type_name; size_t type_name_size; int64_t type_id /* in: the wanted id or 0; out: the given id */;
  PJRT_FFI_Type_Info *type_info;)
typedef struct PJRT_FFI_UserData {
  int64_t type_id;
  void *data;
} PJRT_FFI_UserData;
PJRT_STRUCT(PJRT_FFI_UserData_Add_Args, PJRT_ExecuteContext *context; PJRT_FFI_UserData user_data;)
typedef struct PJRT_FFI_Register_Handler_Args { /* no extension_start */
  size_t struct_size;
  const char *target_name;
  size_t target_name_size;
  void *handler; /* XLA_FFI_Handler* */
  const char *platform_name;
  size_t platform_name_size;
  unsigned traits; /* 1: may run in a command buffer */
} PJRT_FFI_Register_Handler_Args;
typedef struct PJRT_FFI_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*type_register)(PJRT_FFI_Type_Register_Args *args);
  PJRT_Error *(*user_data_add)(PJRT_FFI_UserData_Add_Args *args);
  PJRT_Error *(*register_handler)(PJRT_FFI_Register_Handler_Args *args);
} PJRT_FFI_Extension;

/* ---- custom partitioners (version 1): functions by which the framework says how to partition a custom-call ---- */

typedef struct JAX_CustomCallPartitioner_string { const char *data; size_t size; } JAX_CustomCallPartitioner_string;
typedef struct JAX_CustomCallPartitioner_aval {
  JAX_CustomCallPartitioner_string shape;    /* a ShapeProto */
  bool has_sharding;
  JAX_CustomCallPartitioner_string sharding; /* an OpSharding */
} JAX_CustomCallPartitioner_aval;
/* The caller owns the arguments.  The results live until the caller calls cleanup_fn(data), which it does once, also
 * after an error. */
typedef struct JAX_CustomCallPartitioner_version_and_error {
  int64_t api_version; /* 0 */
  /* out: */
  void *data;
  void (*cleanup_fn)(void *data);
  bool has_error;
  PJRT_Error_Code code;
  JAX_CustomCallPartitioner_string error_msg;
} JAX_CustomCallPartitioner_version_and_error;
typedef struct JAX_CustomCallPartitioner_Partition_Args {
  JAX_CustomCallPartitioner_version_and_error header;
  size_t num_args;
  JAX_CustomCallPartitioner_aval *op_args, op_result;
  JAX_CustomCallPartitioner_string backend_config;
  /* out: */
  JAX_CustomCallPartitioner_string mlir_module; /* text or bytecode */
  JAX_CustomCallPartitioner_string *args_sharding, result_sharding;
} JAX_CustomCallPartitioner_Partition_Args;
typedef struct JAX_CustomCallPartitioner_Callbacks {
  int64_t version;
  void *private_data;
  void (*dtor)(struct JAX_CustomCallPartitioner_Callbacks *callbacks);
  void (*partition)(struct JAX_CustomCallPartitioner_Callbacks *callbacks, JAX_CustomCallPartitioner_Partition_Args *args);
  void (*infer_sharding)(void);          /* these two are for partitioners without sharding rules; */
  void (*propagate_user_sharding)(void); /* Weft does not call them */
  bool can_side_effecting_have_replicated_sharding;
} JAX_CustomCallPartitioner_Callbacks;
typedef struct PJRT_Register_Custom_Partitioner_Args { /* no extension_start; the same below */
  size_t struct_size;
  const char *name;
  size_t name_size;
  JAX_CustomCallPartitioner_Callbacks *callbacks; /* owned by the plugin from here on */
} PJRT_Register_Custom_Partitioner_Args;
typedef struct PJRT_Register_Batch_Partitionable_Args {
  size_t struct_size;
  const char *name;
  size_t name_size;
} PJRT_Register_Batch_Partitionable_Args;
typedef struct PJRT_Custom_Partitioner_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*register_custom_partitioner)(PJRT_Register_Custom_Partitioner_Args *args);
  PJRT_Error *(*register_batch_partitionable)(PJRT_Register_Batch_Partitionable_Args *args);
} PJRT_Custom_Partitioner_Extension;

/* The bytes of the backend_config of a custom-call "InspectSharding": a function that is called with the sharding of
 * the operand while the program is compiled. */
typedef struct JAX_InspectSharding_Callback_Args {
  char *sharding_spec; /* an OpSharding */
  size_t sharding_spec_size;
  /* out: */
  const char *error_txt; /* NULL: none */
  void *error_scratch;
  void (*free_error)(struct JAX_InspectSharding_Callback_Args *args);
} JAX_InspectSharding_Callback_Args;
typedef struct JAX_InspectSharding_Callback {
  void (*call)(void *data, JAX_InspectSharding_Callback_Args *args);
  void *data;
} JAX_InspectSharding_Callback;

/* ---- shardings (version 1): one serialized OpSharding each, NULL where unknown ---- */

PJRT_STRUCT(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args,
  PJRT_Executable *executable; /* out: */ size_t num_parameters; const char *const *shardings;
  const size_t *sharding_sizes;)
PJRT_STRUCT(PJRT_Shardings_PJRT_Executable_OutputShardings_Args,
  PJRT_Executable *executable; /* out: */ size_t num_outputs; const char *const *shardings;
  const size_t *sharding_sizes;)
typedef struct PJRT_Shardings_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*parameter_shardings)(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args *args);
  PJRT_Error *(*output_shardings)(PJRT_Shardings_PJRT_Executable_OutputShardings_Args *args);
} PJRT_Shardings_Extension;

/* ---- cross-host transfers (version 6): each transfer has a key, the same on both sides ---- */

PJRT_STRUCT(PJRT_Transfers_CrossHostSendBuffers_Args,
  PJRT_Client *client; size_t num_buffers; PJRT_Buffer **buffers; const int32_t *dst_global_device_ids;
  const int64_t *transfer_keys; /* out: */ PJRT_Event **send_events;)
PJRT_STRUCT(PJRT_Transfers_CrossHostReceiveBuffers_Args,
  PJRT_Client *client; size_t num_shapes; size_t *shape_num_dims; const int64_t **dims; PJRT_Buffer_Type *element_types;
  PJRT_Buffer_MemoryLayout **layouts; PJRT_Device *device; const int32_t *src_global_device_ids;
  const int64_t *transfer_keys; /* out: */ PJRT_Buffer **buffers;)
/* The older functions, which need clients to carry descriptors: Weft answers UNIMPLEMENTED. */
typedef struct PJRT_Transfers_CrossHostRecvNotifierInfo {
  void *user_arg;
  void (*notifier)(void);
} PJRT_Transfers_CrossHostRecvNotifierInfo;
PJRT_STRUCT(PJRT_Transfers_MakeCrossHostReceiveBuffers_Args,
  PJRT_Client *client; size_t num_shapes; size_t *shape_num_dims; const int64_t **dims; PJRT_Buffer_Type *element_types;
  PJRT_Buffer_MemoryLayout **layouts; PJRT_Device *device; PJRT_Transfers_CrossHostRecvNotifierInfo notifier;
  /* out: */ PJRT_Buffer **buffers; size_t num_buffers;)
typedef struct PJRT_Transfers_CrossHostRemoteSendCallbackInfo {
  void *user_arg;
  void (*on_done)(PJRT_Error *error, bool sends_were_enqueued, void *user_arg);
} PJRT_Transfers_CrossHostRemoteSendCallbackInfo;
PJRT_STRUCT(PJRT_Transfers_CopyToRemoteDevice_Args,
  PJRT_Buffer *buffer; PJRT_Event *event; char **serialized_descriptor; size_t *serialized_descriptor_size;
  PJRT_Transfers_CrossHostRemoteSendCallbackInfo on_done;
  void (*descriptor_destructor)(char **descriptor, size_t *descriptor_size);)
typedef struct PJRT_CrossHostTransfers_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*make_cross_host_receive_buffers)(PJRT_Transfers_MakeCrossHostReceiveBuffers_Args *args);
  void (*copy_to_remote_device)(PJRT_Transfers_CopyToRemoteDevice_Args *args);
  PJRT_Error *(*cross_host_receive_buffers)(PJRT_Transfers_CrossHostReceiveBuffers_Args *args);
  PJRT_Error *(*cross_host_send_buffers)(PJRT_Transfers_CrossHostSendBuffers_Args *args);
} PJRT_CrossHostTransfers_Extension;

/* ---- raw buffers (version 2): the bytes of a buffer ---- */

typedef struct PJRT_RawBuffer PJRT_RawBuffer;
PJRT_STRUCT(PJRT_RawBuffer_CreateRawAliasOfBuffer_Args, PJRT_Buffer *buffer; /* out: */ PJRT_RawBuffer *raw_buffer;)
PJRT_STRUCT(PJRT_RawBuffer_Destroy_Args, PJRT_RawBuffer *buffer;)
PJRT_STRUCT(PJRT_RawBuffer_GetHostPointer_Args, PJRT_RawBuffer *buffer; /* out: */ void *host_pointer;)
PJRT_STRUCT(PJRT_RawBuffer_GetOnDeviceSizeInBytes_Args, PJRT_RawBuffer *buffer;
  /* out: */ size_t on_device_size_in_bytes;)
PJRT_STRUCT(PJRT_RawBuffer_GetMemorySpace_Args, PJRT_RawBuffer *buffer; /* out: */ PJRT_Memory *memory_space;)
PJRT_STRUCT(PJRT_RawBuffer_CopyRawDeviceToHost_Args,
  PJRT_RawBuffer *buffer; void *dst; int64_t offset; int64_t transfer_size; /* out: */ PJRT_Event *event;)
PJRT_STRUCT(PJRT_RawBuffer_CopyRawHostToDevice_Args,
  PJRT_RawBuffer *buffer; const void *src; int64_t offset; int64_t transfer_size; /* out: */ PJRT_Event *event;)
typedef struct PJRT_RawBuffer_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*create_raw_alias_of_buffer)(PJRT_RawBuffer_CreateRawAliasOfBuffer_Args *args);
  PJRT_Error *(*destroy)(PJRT_RawBuffer_Destroy_Args *args);
  PJRT_Error *(*get_on_device_size_in_bytes)(PJRT_RawBuffer_GetOnDeviceSizeInBytes_Args *args);
  PJRT_Error *(*get_memory_space)(PJRT_RawBuffer_GetMemorySpace_Args *args);
  PJRT_Error *(*copy_raw_host_to_device)(PJRT_RawBuffer_CopyRawHostToDevice_Args *args);
  PJRT_Error *(*copy_raw_device_to_host)(PJRT_RawBuffer_CopyRawDeviceToHost_Args *args);
  PJRT_Error *(*get_host_pointer)(PJRT_RawBuffer_GetHostPointer_Args *args);
} PJRT_RawBuffer_Extension;

/* ---- profiler (version 1): as an extension of the API, the functions; as one of arguments, a context id ---- */

typedef struct PLUGIN_Profiler PLUGIN_Profiler;
typedef struct PLUGIN_Profiler_Error PLUGIN_Profiler_Error;
#define PLUGIN_STRUCT(name, ...) typedef struct name { size_t struct_size; __VA_ARGS__ } name;
PLUGIN_STRUCT(PLUGIN_Profiler_Error_Destroy_Args, void *priv; PLUGIN_Profiler_Error *error;)
PLUGIN_STRUCT(PLUGIN_Profiler_Error_Message_Args,
  void *priv; const PLUGIN_Profiler_Error *error; /* out: */ const char *message; size_t message_size;)
PLUGIN_STRUCT(PLUGIN_Profiler_Error_GetCode_Args, void *priv; const PLUGIN_Profiler_Error *error; /* out: */ int code;)
PLUGIN_STRUCT(PLUGIN_Profiler_Create_Args, const char *options; size_t options_size;
  /* out: */ PLUGIN_Profiler *profiler;)
PLUGIN_STRUCT(PLUGIN_Profiler_Destroy_Args, PLUGIN_Profiler *profiler;)
PLUGIN_STRUCT(PLUGIN_Profiler_Start_Args, PLUGIN_Profiler *profiler;)
PLUGIN_STRUCT(PLUGIN_Profiler_Stop_Args, PLUGIN_Profiler *profiler;)
PLUGIN_STRUCT(PLUGIN_Profiler_CollectData_Args, /* buffer NULL: gets only the size */
  PLUGIN_Profiler *profiler; uint8_t *buffer; size_t buffer_size_in_bytes;)
typedef struct PLUGIN_Profiler_Api {
  size_t struct_size;
  void *priv;
  void (*error_destroy)(PLUGIN_Profiler_Error_Destroy_Args *args);
  void (*error_message)(PLUGIN_Profiler_Error_Message_Args *args);
  PLUGIN_Profiler_Error *(*error_get_code)(PLUGIN_Profiler_Error_GetCode_Args *args);
  PLUGIN_Profiler_Error *(*create)(PLUGIN_Profiler_Create_Args *args);
  PLUGIN_Profiler_Error *(*destroy)(PLUGIN_Profiler_Destroy_Args *args);
  PLUGIN_Profiler_Error *(*start)(PLUGIN_Profiler_Start_Args *args);
  PLUGIN_Profiler_Error *(*stop)(PLUGIN_Profiler_Stop_Args *args);
  PLUGIN_Profiler_Error *(*collect_data)(PLUGIN_Profiler_CollectData_Args *args);
} PLUGIN_Profiler_Api;
typedef struct PJRT_Profiler_Extension {
  PJRT_Extension_Base base;
  PLUGIN_Profiler_Api *profiler_api;
  int64_t traceme_context_id;
} PJRT_Profiler_Extension;

/* ---- memory descriptions (version 1) ---- */

typedef struct PJRT_MemoryDescription PJRT_MemoryDescription;
PJRT_STRUCT(PJRT_DeviceDescription_MemoryDescriptions_Args,
  PJRT_DeviceDescription *device_description; /* out: */ const PJRT_MemoryDescription *const *memory_descriptions;
  size_t num_memory_descriptions; size_t default_memory_index;)
PJRT_STRUCT(PJRT_MemoryDescription_Kind_Args,
  const PJRT_MemoryDescription *memory_description; /* out: */ const char *kind; size_t kind_size; int kind_id;)
typedef struct PJRT_MemoryDescriptions_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*memory_descriptions)(PJRT_DeviceDescription_MemoryDescriptions_Args *args);
  PJRT_Error *(*kind)(PJRT_MemoryDescription_Kind_Args *args);
} PJRT_MemoryDescriptions_Extension;

#endif
