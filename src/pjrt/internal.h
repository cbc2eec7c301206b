/* pjrt/internal.h -- what stands behind the handles of the PJRT C API.
 *
 * Every function of the table is `pjrt_NAME`, declared here from the one list in weft/pjrt_c_api.h and defined in the
 * file of its object; those that Weft does not offer are in unimplemented.c.  Entry points take structs of the caller's
 * version: a member past args->struct_size is neither read nor written (PJRT_HAS).
 * Lifetimes: a handle owns references to the runtime objects below it, so work in flight may outlive any handle. */
#ifndef WEFT_PJRT_INTERNAL_H
#define WEFT_PJRT_INTERNAL_H

#include "base/event.h"
#include "base/kv.h"
#include "base/status.h"
#include "base/thread.h"
#include "hlo/hlo.h"
#include "runtime/platform.h"
#include "weft/pjrt_c_api.h"

#define X(name) PJRT_##name pjrt_##name;
PJRT_API_FUNCTIONS(X)
#undef X

/* True if the caller's args struct has the member. */
#define PJRT_HAS(args, member) \
  ((args)->struct_size >= offsetof(__typeof__(*(args)), member) + sizeof((args)->member))

/* ---- errors (error.c) ---- */

/* Takes `st`; NULL for NULL. */
PJRT_Error *pjrt_error(weft_status *st);
/* Takes an error of any origin and makes it a status; NULL for NULL. */
weft_status *pjrt_status(PJRT_Error *error);
#define PJRT_TRY(expr)                                  \
  do {                                                  \
    weft_status *st_ = (expr);                          \
    if (WEFT_UNLIKELY(st_ != NULL)) return pjrt_error(st_); \
  } while (0)

/* ---- events (event.c) ---- */

struct PJRT_Event {
  weft_event *event; /* owned reference */
};
/* Takes the reference `event`. */
WEFT_NODISCARD weft_status *pjrt_event_new(weft_event *event, PJRT_Event **out_event);

/* ---- devices and memories (device.c) ---- */

enum { PJRT_MEMORY_KINDS = 3 }; /* device, pinned_host, unpinned_host: one storage, three names */

struct PJRT_DeviceDescription {
  int id, process_index, local_ordinal;
  char debug_string[64], to_string[64];
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
  PJRT_Client *client;
  weft_device *device; /* NULL: of another process */
  PJRT_Memory *memories[PJRT_MEMORY_KINDS];
};

typedef struct pjrt_memory {
  PJRT_Memory abi; /* first: clients read its vtable */
  int id, kind;    /* kind: index into pjrt_memory_kinds */
  PJRT_Device *device;
  char debug_string[96], to_string[96];
  struct { const void *key; void *data; void (*dtor)(void *); } user[4];
  weft_mutex mu;
} pjrt_memory;

extern const char *const pjrt_memory_kinds[PJRT_MEMORY_KINDS];
extern const char pjrt_device_kind[];

void pjrt_describe(PJRT_DeviceDescription *d, int id, int process_index, int local_ordinal);
/* Fills `device` and, for one of this process, makes its memories. */
WEFT_NODISCARD weft_status *pjrt_device_init(PJRT_Device *device, PJRT_Client *client, int id, int process_index,
                                             int local_ordinal, weft_device *local);
void pjrt_device_fini(PJRT_Device *device);
static inline pjrt_memory *pjrt_memory_of(PJRT_Memory *memory) { return (pjrt_memory *)memory; }

/* ---- topology (topology.c) ---- */

struct PJRT_TopologyDescription {
  int count;
  PJRT_DeviceDescription *descriptions; /* owned */
  PJRT_DeviceDescription **pointers;
  uint64_t fingerprint;
};
/* Copies the descriptions. */
WEFT_NODISCARD weft_status *pjrt_topology_new(const PJRT_DeviceDescription *descriptions, int count,
                                              PJRT_TopologyDescription **out_topology);
void pjrt_topology_free(PJRT_TopologyDescription *topology);

/* ---- clients (client.c) ---- */

struct PJRT_Client {
  weft_platform *platform;
  int process_index, process_count;
  int device_count, local_count;
  PJRT_Device *devices;       /* all, by process then ordinal */
  PJRT_Device **device_list;  /* the same, as pointers */
  PJRT_Device **local_list;
  PJRT_Memory **memory_list;  /* of local devices */
  weft_kv *kv;                /* the client's callbacks, or NULL */
  PJRT_TopologyDescription *topology;
};
PJRT_Device *pjrt_client_device(const PJRT_Client *client, int id); /* by global id, or NULL */
extern const char pjrt_platform_name[], pjrt_platform_version[];

/* A store over a client's callbacks. */
WEFT_NODISCARD weft_status *pjrt_kv_new(const PJRT_Client_Create_Args *args, weft_kv **out_kv);

/* ---- buffers (buffer.c) ---- */

struct PJRT_Buffer {
  weft_buffer *buffer; /* owned reference */
  PJRT_Device *device;
  PJRT_Memory *memory;
};
/* Takes the reference `buffer`. */
WEFT_NODISCARD weft_status *pjrt_buffer_new(weft_buffer *buffer, PJRT_Device *device, PJRT_Memory *memory,
                                            PJRT_Buffer **out_buffer);

/* ---- compile options (options.c) ---- */

typedef struct pjrt_options {
  int64_t replica_count, partition_count;
  int assignment_count;
  int64_t *assignment;    /* [replica][partition], malloc'd; NULL when not given */
  bool portable;
  bool use_shardy;
  char *dump_dir;         /* malloc'd or NULL */
  int64_t collective_timeout_s, collective_warn_s; /* 0: not given */
} pjrt_options;
/* Reads a CompileOptionsProto.  Errors: INVALID_ARGUMENT in the words that JAX's tests expect. */
WEFT_NODISCARD weft_status *pjrt_options_read(const void *data, size_t size, pjrt_options *out_options);
void pjrt_options_fini(pjrt_options *options);

/* ---- execution contexts (execute.c): data that custom calls of one execution find by type ---- */

struct PJRT_ExecuteContext {
  int refs; /* atomic: the handle, and launches in flight */
  struct rt_ffi_user_data *data;
};

/* ---- executables (executable.c, execute.c) ---- */

/* Serialised OpShardings, one a leaf; `bytes` NULL: none to report. */
typedef struct pjrt_shardings {
  int count;
  const char **bytes;
  size_t *sizes;
  bool *owned;
} pjrt_shardings;
/* Of a module's parameters and results, before it is compiled.  On failure both may be partly filled: fini them. */
WEFT_NODISCARD weft_status *pjrt_shardings_read(const hlo_module *module, pjrt_shardings *out_params,
                                                pjrt_shardings *out_outputs);
void pjrt_shardings_fini(pjrt_shardings *shardings);

/* What is common to an executable and its loaded form; counted. */
typedef struct pjrt_program {
  int refs; /* atomic */
  weft_executable *exe;
  char *name;
  char fingerprint[40];
  void *source;          /* the module before compilation, as a serialized HloModuleProto: for Serialize */
  size_t source_size;
  char *options;         /* serialized CompileOptionsProto as given */
  size_t options_size;
  int param_count, output_count;
  PJRT_Buffer_Type *output_types;
  int64_t *output_dims;  /* all outputs' dimensions, one after the other */
  size_t *output_ranks;
  const char **output_kinds;
  size_t *output_kind_sizes;
  void **output_layouts, **param_layouts; /* static layouts, see layouts.c */
  pjrt_shardings param_shardings, output_shardings; /* empty for one device */
  PJRT_NamedValue costs[3];
  int device_count;
  PJRT_Device **devices; /* of this process, in the order of argument_lists */
  PJRT_LogicalDeviceIds *places;
  char *assignment;      /* serialized DeviceAssignmentProto */
  size_t assignment_size;
  bool portable;
} pjrt_program;

struct PJRT_Executable {
  pjrt_program *program;
};
struct PJRT_LoadedExecutable {
  pjrt_program *program;
  PJRT_Client *client;
  bool deleted; /* atomic */
};

/* A module from what a client sends: MLIR text or bytecode, or a serialized HloModuleProto.  Verified. */
WEFT_NODISCARD weft_status *pjrt_read_program(const PJRT_Program *program, hlo_module **out_module);

/* An array of `count` static layouts (PJRT_Layouts_MemoryLayout *), the caller's to free (layouts.c). */
WEFT_NODISCARD weft_status *pjrt_layouts_of(int count,
                                            const weft_array_type *(*type_of)(const weft_executable *exe, int index),
                                            const weft_executable *exe, void ***out_layouts);

#endif
