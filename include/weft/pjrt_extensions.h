/* weft/pjrt_extensions.h -- the extensions of the PJRT C API that Weft offers: our own text of the public ABI.
 * Sources of the facts: xla/pjrt/c/pjrt_c_api_{layouts,ffi,shardings,memory_descriptions}_extension.h. */
#ifndef WEFT_PJRT_EXTENSIONS_H
#define WEFT_PJRT_EXTENSIONS_H

#include "weft/pjrt_c_api.h"

/* ---- Weft's own (version 1): what `weft run` shows and the API has no word for ----
 *
 * Weft also takes, beside XLA's names:
 *   create option   num_threads (int64)   worker threads of the process
 *   compile option  weft_memory (string, in env_option_overrides)   "topological", "sequential" or "budget=BYTES" */

#define PJRT_Extension_Type_Weft ((PJRT_Extension_Type)0x57656674)
PJRT_STRUCT(PJRT_Weft_ParameterDimensions_Args, /* on one device */
  PJRT_Executable *executable; int parameter; /* out: */ const int64_t *dims; size_t num_dims;)
PJRT_STRUCT(PJRT_Weft_MemoryBound_Args, /* no plan of the temporaries can be smaller */
  PJRT_Executable *executable; /* out: */ int64_t bytes;)
typedef struct PJRT_Weft_Extension {
  PJRT_Extension_Base base;
  PJRT_Error *(*parameter_dimensions)(PJRT_Weft_ParameterDimensions_Args *args);
  PJRT_Error *(*memory_bound)(PJRT_Weft_MemoryBound_Args *args);
} PJRT_Weft_Extension;

/* ---- layouts (version 4): a layout travels as its HLO text, "{1,0}" ---- */

typedef struct PJRT_Layouts_MemoryLayout PJRT_Layouts_MemoryLayout;
typedef struct PJRT_Layouts_SerializedLayout PJRT_Layouts_SerializedLayout;
PJRT_STRUCT(PJRT_Layouts_MemoryLayout_Destroy_Args, PJRT_Layouts_MemoryLayout *layout;)
PJRT_STRUCT(PJRT_Layouts_MemoryLayout_Serialize_Args,
  PJRT_Layouts_MemoryLayout *layout; /* out: */ const char *serialized_bytes; size_t serialized_bytes_size;
  PJRT_Layouts_SerializedLayout *serialized_layout;
  void (*serialized_layout_deleter)(PJRT_Layouts_SerializedLayout *layout);)
PJRT_STRUCT(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, PJRT_Buffer *buffer; /* out: */ PJRT_Layouts_MemoryLayout *layout;)
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

/* ---- FFI (version 3): user types, data of one execution, handlers of typed custom calls ---- */

typedef struct PJRT_FFI_Type_Info {
  void (*deleter)(void *object);
  void (*serialize)(void);
  void (*deserialize)(void);
} PJRT_FFI_Type_Info;
PJRT_STRUCT(PJRT_FFI_Type_Register_Args,
  const char *type_name; size_t type_name_size; int64_t type_id /* in: wanted or 0; out: given */;
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
