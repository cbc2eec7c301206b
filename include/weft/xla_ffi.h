/* weft/xla_ffi.h -- the C ABI of XLA's typed custom-call handlers (XLA FFI, version 0.3), in our own words.
 *
 * A handler gets one XLA_FFI_CallFrame per call and returns NULL or an error made by api->XLA_FFI_Error_Create.  Every
 * structure starts with its size as the caller was built and a list of extensions; fields past that size are absent.
 * Layouts and numbers are those of xla/ffi/api/c_api.h (a test checks them); user code built against that header works
 * with this library and the other way round. */
#ifndef WEFT_XLA_FFI_H
#define WEFT_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { XLA_FFI_API_MAJOR = 0, XLA_FFI_API_MINOR = 3 };

typedef struct XLA_FFI_Api XLA_FFI_Api;
typedef struct XLA_FFI_InternalApi XLA_FFI_InternalApi;
typedef struct XLA_FFI_Error XLA_FFI_Error;                       /* owned by its holder */
typedef struct XLA_FFI_ExecutionContext XLA_FFI_ExecutionContext; /* one call */
typedef struct XLA_FFI_Future XLA_FFI_Future;                     /* the end of an asynchronous call */

typedef enum { XLA_FFI_Extension_Metadata = 1 } XLA_FFI_Extension_Type;
typedef struct XLA_FFI_Extension_Base {
  size_t struct_size;
  XLA_FFI_Extension_Type type;
  struct XLA_FFI_Extension_Base *next;
} XLA_FFI_Extension_Base;

/* Every structure of arguments begins with these. */
#define XLA_FFI_HEAD             \
  size_t struct_size;            \
  XLA_FFI_Extension_Base *extension_start

typedef struct XLA_FFI_Api_Version { XLA_FFI_HEAD; int major_version, minor_version; } XLA_FFI_Api_Version;

/* ---- values ------------------------------------------------------------------------------------------------------ */

typedef int XLA_FFI_DataType;   /* PrimitiveType of xla_data.proto */
typedef int XLA_FFI_Error_Code; /* absl's numbers */

typedef struct XLA_FFI_ByteSpan { const char *ptr; size_t len; } XLA_FFI_ByteSpan;
typedef struct XLA_FFI_Scalar { XLA_FFI_DataType dtype; void *value; } XLA_FFI_Scalar;
typedef struct XLA_FFI_Array { XLA_FFI_DataType dtype; size_t size; void *data; } XLA_FFI_Array;
typedef struct XLA_FFI_Buffer { XLA_FFI_HEAD; XLA_FFI_DataType dtype; void *data; int64_t rank; int64_t *dims; } XLA_FFI_Buffer;

typedef enum { XLA_FFI_ArgType_BUFFER = 1 } XLA_FFI_ArgType;
typedef enum { XLA_FFI_RetType_BUFFER = 1 } XLA_FFI_RetType;
typedef enum {
  XLA_FFI_AttrType_ARRAY = 1, XLA_FFI_AttrType_DICTIONARY = 2, XLA_FFI_AttrType_SCALAR = 3, XLA_FFI_AttrType_STRING = 4
} XLA_FFI_AttrType;

/* args[i] is an XLA_FFI_Buffer *.  attrs[i] is, by its type, an XLA_FFI_Array *, XLA_FFI_Attrs *, XLA_FFI_Scalar *
 * or XLA_FFI_ByteSpan *; attributes are sorted by name. */
typedef struct XLA_FFI_Args { XLA_FFI_HEAD; int64_t size; XLA_FFI_ArgType *types; void **args; } XLA_FFI_Args;
typedef struct XLA_FFI_Rets { XLA_FFI_HEAD; int64_t size; XLA_FFI_RetType *types; void **rets; } XLA_FFI_Rets;
typedef struct XLA_FFI_Attrs {
  XLA_FFI_HEAD;
  int64_t size;
  XLA_FFI_AttrType *types;
  XLA_FFI_ByteSpan **names;
  void **attrs;
} XLA_FFI_Attrs;

/* ---- calls ------------------------------------------------------------------------------------------------------- */

typedef enum {
  XLA_FFI_ExecutionStage_INSTANTIATE = 0, /* once, when the program is compiled */
  XLA_FFI_ExecutionStage_PREPARE = 1,     /* this and the later stages: once for each run */
  XLA_FFI_ExecutionStage_INITIALIZE = 2,
  XLA_FFI_ExecutionStage_EXECUTE = 3
} XLA_FFI_ExecutionStage;

typedef struct XLA_FFI_CallFrame {
  XLA_FFI_HEAD;
  const XLA_FFI_Api *api;
  XLA_FFI_ExecutionContext *ctx;
  XLA_FFI_ExecutionStage stage;
  XLA_FFI_Args args;
  XLA_FFI_Rets rets;
  XLA_FFI_Attrs attrs;
  XLA_FFI_Future *future; /* set by the handler: the call ends when the future does */
} XLA_FFI_CallFrame;

typedef XLA_FFI_Error *XLA_FFI_Handler(XLA_FFI_CallFrame *call_frame);
typedef struct XLA_FFI_Handler_Bundle {
  XLA_FFI_Handler *instantiate, *prepare, *initialize; /* optional */
  XLA_FFI_Handler *execute;
} XLA_FFI_Handler_Bundle;
typedef uint32_t XLA_FFI_Handler_Traits; /* bits of the enumeration below */
enum { XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE = 1 /* only queues work on the stream, and may be recorded */ };

typedef struct XLA_FFI_TypeId { int64_t type_id; } XLA_FFI_TypeId; /* 0: unknown */
typedef struct XLA_FFI_TypeInfo { XLA_FFI_HEAD; void (*deleter)(void *object); } XLA_FFI_TypeInfo;

/* A handler that is called with this extension does nothing but fill in what it was built for. */
typedef struct XLA_FFI_Metadata {
  size_t struct_size;
  XLA_FFI_Api_Version api_version;
  XLA_FFI_Handler_Traits traits;
  XLA_FFI_TypeId state_type_id;
} XLA_FFI_Metadata;
typedef struct XLA_FFI_Metadata_Extension {
  XLA_FFI_Extension_Base extension_base;
  XLA_FFI_Metadata *metadata;
} XLA_FFI_Metadata_Extension;

/* ---- what a handler may ask -------------------------------------------------------------------------------------- */

/* X(name, result, fields of NAME_Args after its head), in the order of
 * XLA_FFI_Api.  "out" fields are set on success. */
#define XLA_FFI_FUNCTIONS(X)                                                                                               \
  X(Error_Create, XLA_FFI_Error *, const char *message; XLA_FFI_Error_Code errc;)                                         \
  X(Error_GetMessage, void, XLA_FFI_Error *error; const char *message; /* out */)                                         \
  X(Error_Destroy, void, XLA_FFI_Error *error;)                                                                           \
  X(Handler_Register, XLA_FFI_Error *, XLA_FFI_ByteSpan name; XLA_FFI_ByteSpan platform; XLA_FFI_Handler_Bundle bundle;   \
    XLA_FFI_Handler_Traits traits;)                                                                                       \
  X(Stream_Get, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; void *stream; /* out */)                                  \
  X(Type_Register, XLA_FFI_Error *, XLA_FFI_ByteSpan name; XLA_FFI_TypeId *type_id; /* in and out */                      \
    const XLA_FFI_TypeInfo *type_info;)                                                                                   \
  X(ExecutionContext_Get, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; XLA_FFI_TypeId *type_id; void *data; /* out */) \
  X(State_Set, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; XLA_FFI_ExecutionStage stage; XLA_FFI_TypeId *type_id;     \
    void *state;)                                                                                                         \
  X(State_Get, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; XLA_FFI_ExecutionStage stage; XLA_FFI_TypeId *type_id;     \
    void *state; /* out */)                                                                                               \
  X(DeviceMemory_Allocate, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; size_t size; size_t alignment;                 \
    void *data; /* out */)                                                                                                \
  X(DeviceMemory_Free, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; size_t size; void *data;)                          \
  X(ThreadPool_Schedule, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; void (*task)(void *data); void *data;)           \
  X(ThreadPool_NumThreads, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; int64_t *num_threads; /* out */)               \
  X(Future_Create, XLA_FFI_Error *, XLA_FFI_Future *future; /* out */)                                                    \
  X(Future_SetAvailable, XLA_FFI_Error *, XLA_FFI_Future *future;)                                                        \
  X(Future_SetError, XLA_FFI_Error *, XLA_FFI_Future *future; XLA_FFI_Error *error; /* taken */)                          \
  X(RunId_Get, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; int64_t run_id; /* out */)                                 \
  X(DeviceOrdinal_Get, XLA_FFI_Error *, XLA_FFI_ExecutionContext *ctx; int32_t device_ordinal; /* out */)

#define XLA_FFI_DECLARE(name, result, fields)                                 \
  typedef struct XLA_FFI_##name##_Args { XLA_FFI_HEAD; fields } XLA_FFI_##name##_Args; \
  typedef result XLA_FFI_##name(XLA_FFI_##name##_Args *args);
XLA_FFI_FUNCTIONS(XLA_FFI_DECLARE)
#undef XLA_FFI_DECLARE

struct XLA_FFI_Api {
  XLA_FFI_HEAD;
  XLA_FFI_Api_Version api_version;
  const XLA_FFI_InternalApi *internal_api; /* NULL here */
#define XLA_FFI_FIELD(name, result, fields) XLA_FFI_##name *XLA_FFI_##name;
  XLA_FFI_FUNCTIONS(XLA_FFI_FIELD)
#undef XLA_FFI_FIELD
};

#ifdef __cplusplus
}
#endif

#endif
