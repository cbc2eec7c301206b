/* pjrt/internal.h -- the objects behind the handles of the PJRT C API.
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

/* Clients call pjrt_checked_NAME, which checks the arguments and then calls pjrt_NAME (check.c). */
#define X(name) PJRT_##name pjrt_##name, pjrt_checked_##name;
PJRT_API_FUNCTIONS(X)
#undef X

/* True if the caller's args struct has the member. */
#define PJRT_HAS(args, member) \
  ((args)->struct_size >= offsetof(__typeof__(*(args)), member) + sizeof((args)->member))

/* ---- handles (check.c) ---- */

#define PJRT_HANDLE_KINDS(X)                                                                                        \
  X(CLIENT, "client") X(DEVICE, "device") X(MEMORY, "memory") X(DESCRIPTION, "device description")                  \
  X(BUFFER, "buffer") X(EVENT, "event") X(EXECUTABLE, "executable") X(LOADED, "loaded executable")                  \
  X(TOPOLOGY, "topology") X(MANAGER, "transfer manager") X(CONTEXT, "execution context") X(RAW_BUFFER, "raw buffer")
typedef enum pjrt_handle_kind {
#define X(kind, text) PJRT_KIND_##kind,
  PJRT_HANDLE_KINDS(X)
#undef X
} pjrt_handle_kind;

/* Called where handles are made and destroyed; debug builds keep the set of live handles. */
#ifndef NDEBUG
void pjrt_handle_born(const void *handle, pjrt_handle_kind kind);
void pjrt_handle_gone(const void *handle); /* NULL is fine */
#else
static inline void pjrt_handle_born(const void *handle, pjrt_handle_kind kind) { (void)handle, (void)kind; }
static inline void pjrt_handle_gone(const void *handle) { (void)handle; }
#endif
/* Checks a handle that rows of checks.def do not reach, such as one in an array. Errors: INVALID_ARGUMENT, naming
 * `what`. */
WEFT_NODISCARD weft_status *pjrt_check_handle(const void *handle, pjrt_handle_kind kind, const char *what);

/* ---- errors (error.c) ---- */

/* Takes `st`; NULL for NULL. */
PJRT_Error *pjrt_error(weft_status *st);
/* Takes an error of any origin and makes it a status; NULL for NULL. */
weft_status *pjrt_status(PJRT_Error *error);
/* A status of a code and a message that a client gave. Never NULL, whatever the code. */
weft_status *pjrt_status_of(PJRT_Error_Code code, const char *message, size_t size);
#define PJRT_TRY(expr)                                  \
  do {                                                  \
    weft_status *st_ = (expr);                          \
    if (WEFT_UNLIKELY(st_ != NULL)) return pjrt_error(st_); \
  } while (0)

/* ---- events (event.c) ---- */

struct PJRT_Event {
  weft_event *event; /* owned reference */
};
/* Takes the reference `event`, also on failure. */
WEFT_NODISCARD weft_status *pjrt_event_new(weft_event *event, PJRT_Event **out_event);

/* ---- devices and memories (device.c) ---- */

enum { PJRT_MEMORY_KINDS = WEFT_MEMORY_SPACES }; /* the spaces of a platform */

struct PJRT_DeviceDescription {
  int id, process_index, local_ordinal;
  char debug_string[64], to_string[64], kind[64];
  const PJRT_NamedValue *attributes; /* borrowed from the client's device; NULL: none */
  int attribute_count;
};

struct PJRT_Device {
  PJRT_Client *client;
  PJRT_DeviceDescription description; /* not first: both are handles, told apart by their addresses */
  weft_device *device; /* NULL: of another process */
  PJRT_Memory *memories[PJRT_MEMORY_KINDS];
  weft_device_attribute facts[WEFT_MOST_ATTRIBUTES]; /* the texts of `attributes` */
  PJRT_NamedValue attributes[WEFT_MOST_ATTRIBUTES];
};

typedef struct pjrt_memory {
  PJRT_Memory abi; /* first: clients read its vtable */
  int id, kind;    /* kind: the space of its device */
  PJRT_Device *device;
  char debug_string[96], to_string[96];
  struct { const void *key; void *data; void (*dtor)(void *); } user[4];
  weft_mutex mu;
} pjrt_memory;

/* `kind` (borrowed, copied): what the device is; NULL: any device of the platform that clients are made for. The
 * description has no attributes. */
void pjrt_describe(PJRT_DeviceDescription *d, int id, int process_index, int local_ordinal, const char *kind);
/* Fills `device`; for a device of this process (`local` not NULL) also makes its memories.  `kind` (copied): of a
 * device of another process; NULL: that process has not said it. */
WEFT_NODISCARD weft_status *pjrt_device_init(PJRT_Device *device, PJRT_Client *client, int id, int process_index,
                                             int local_ordinal, const char *kind, weft_device *local);
void pjrt_device_fini(PJRT_Device *device);
static inline pjrt_memory *pjrt_memory_of(PJRT_Memory *memory) { return (pjrt_memory *)memory; }

/* ---- topology (topology.c) ---- */

struct PJRT_TopologyDescription {
  int count, process_count;
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
  PJRT_Client *next; /* in the list of all clients of this process (client.c) */
  int refs; /* atomic: the handle, and every buffer, loaded executable and transfer manager */
  uint64_t serial; /* not 0; unlike an address it is never used again */
  weft_platform *platform;
  int process_index, process_count;
  int device_count, local_count;
  PJRT_Device *devices;       /* all, by process then ordinal */
  PJRT_Device **device_list;  /* the same, as pointers */
  PJRT_Device **local_list;
  PJRT_Memory **memory_list;  /* of local devices */
  weft_kv *kv;                /* the client's callbacks or the agent's keys; NULL: one process */
  struct PJRT_WeftAgent *agent; /* agent.h; NULL: the client has callbacks, or is alone */
  struct pjrt_watch *watch;     /* of the agent */
  weft_mutex links_mu;        /* held while a link is made, which may wait for peers; order: before `mu` */
  struct pjrt_link *links WEFT_GUARDED_BY(links_mu); /* communicators of cross-host transfers (cross_link.h) */
  weft_mutex mu;
  /* [process_count]: the incarnation that each process was last seen alive with; 0: none */
  uint64_t *incarnations WEFT_GUARDED_BY(mu);
  PJRT_TopologyDescription *topology;
};
PJRT_Client *pjrt_client_retain(PJRT_Client *client);               /* returns client */
void pjrt_client_release(PJRT_Client *client);                      /* NULL is fine */
PJRT_Device *pjrt_client_device(const PJRT_Client *client, int id); /* by global id, or NULL */
extern const char pjrt_platform_version[];
/* The same, for GPUs with the name of the clients' platform: JAX looks for "cuda" in it. */
const char *pjrt_version_of_platform(void);
/* The platform that clients are made for in this process (WEFT_PLATFORM, and what the machine has). If there is none, a
 * platform that can be described; making a client of it returns the error. */
const weft_platform_ops *pjrt_platform(void);
const char *pjrt_memory_kind(int space); /* of that platform's devices */

/* Ends the use of the client's callbacks: operations fail with CANCELLED. */
void pjrt_kv_close(weft_kv *kv);
/* A store over a client's callbacks. */
WEFT_NODISCARD weft_status *pjrt_kv_new(const PJRT_Client_Create_Args *args, weft_kv **out_kv);

/* ---- layouts (layouts.c) ---- */

/* A dense order of dimensions. Each order exists once and for ever, so pointers can be compared. Also the
 * extension's opaque handle. */
typedef struct PJRT_Layouts_MemoryLayout pjrt_layout;
struct PJRT_Layouts_MemoryLayout {
  pjrt_layout *next; /* private */
  int rank;
  int64_t minor_to_major[HLO_MAX_RANK];
  char text[4 * HLO_MAX_RANK];
};
const pjrt_layout *pjrt_layout_row_major(int rank);
/* Errors: INVALID_ARGUMENT if `minor_to_major` is no permutation. */
WEFT_NODISCARD weft_status *pjrt_layout_get(const int64_t *minor_to_major, int rank, const pjrt_layout **out_layout);
/* Reads the layout that a client asks for; `given` NULL: row-major. Errors: UNIMPLEMENTED for tiles, and for strides
 * that are not row-major; INVALID_ARGUMENT for another rank, or for an order that is no permutation. */
WEFT_NODISCARD weft_status *pjrt_layout_read(const PJRT_Buffer_MemoryLayout *given, const weft_array_type *type,
                                             const pjrt_layout **out_layout);
/* Bytes between neighbours along each dimension. */
void pjrt_layout_strides(const pjrt_layout *layout, const weft_array_type *type, int64_t *out_strides);

/* ---- cross-host transfers (cross_link.c) ---- */

void pjrt_links_free(PJRT_Client *client); /* called before the platform is freed */

/* ---- custom partitioners (custom_partitioner.c) ---- */

/* Whether programs that this thread compiles may call "InspectSharding", whose functions are addresses in this
 * process. Only a program that comes straight from its framework may; a stored one may not. Holds until it is set
 * again. */
void pjrt_allow_inspection(bool allow);

/* ---- buffers (buffer.c) ---- */

struct PJRT_Buffer {
  weft_buffer *buffer; /* owned reference: its type is the logical one, its bytes have the order of `layout` */
  PJRT_Device *device;
  PJRT_Memory *memory;
  const pjrt_layout *layout;
};
/* Takes the reference `buffer`, also on failure. */
WEFT_NODISCARD weft_status *pjrt_buffer_new(weft_buffer *buffer, PJRT_Memory *memory, const pjrt_layout *layout,
                                            PJRT_Buffer **out_buffer);

/* Reads the type of an array or token. Errors: INVALID_ARGUMENT for anything else, or what is too large. */
WEFT_NODISCARD weft_status *pjrt_type_read(PJRT_Buffer_Type type, const int64_t *dims, size_t rank,
                                           weft_array_type *out);

/* The place and the type of a new buffer, which clients give in several calls. Errors: INVALID_ARGUMENT,
 * UNIMPLEMENTED. */
typedef struct pjrt_placement {
  weft_array_type type;
  PJRT_Device *device; /* of this process */
  PJRT_Memory *memory;
  const pjrt_layout *layout;
} pjrt_placement;
WEFT_NODISCARD weft_status *pjrt_place(PJRT_Device *device, PJRT_Memory *memory, PJRT_Buffer_Type type,
                                       const int64_t *dims, size_t rank, const PJRT_Buffer_MemoryLayout *layout,
                                       pjrt_placement *out);
/* A buffer with new storage, which is valid once `defined` (NULL: now) is ready. `out_storage` may be NULL;
 * *out_storage is retained. */
WEFT_NODISCARD weft_status *pjrt_buffer_allocate(const pjrt_placement *at, weft_event *defined,
                                                 PJRT_Buffer **out_buffer, weft_storage **out_storage);
/* Integers of less than a byte come from clients with any upper bits; on devices they are extended by sign or zero. */
/* Fills all of `storage` from host elements at `strides` (bytes; NULL: row-major). */
WEFT_NODISCARD weft_status *pjrt_fill(const pjrt_placement *at, const void *data, const int64_t *strides,
                                      weft_storage *storage);
/* Writes `bytes` of `storage` from `offset` on. `data` is in the order of the storage. */
WEFT_NODISCARD weft_status *pjrt_store(weft_storage *storage, int64_t offset, weft_dtype type, const void *data,
                                       int64_t bytes);
/* Starts copying bytes [offset, +bytes) of a buffer to `to`, once they are defined. */
WEFT_NODISCARD weft_status *pjrt_copy_raw(PJRT_Buffer *buffer, void *to, int64_t offset, int64_t bytes,
                                          weft_event **out_event);
WEFT_NODISCARD weft_status *pjrt_check_range(int64_t total, int64_t offset, int64_t size);

/* ---- compile options (options.c) ---- */

typedef struct pjrt_options {
  struct PjrtPb__CompileOptions *message; /* owned: the message from which the other members were read */
  int64_t replica_count, partition_count;
  int assignment_count;
  int64_t *assignment;    /* [replica][partition], malloc'd; NULL when not given */
  bool portable;
  bool use_shardy;
  int parameter_flag_count, output_flag_count;
  int64_t *parameter_flags, *output_flags; /* which shardings propagation may choose: 0/1 each, malloc'd */
  char *dump_dir;         /* malloc'd or NULL: where the program goes before and after optimisation */
  /* dump_passes: after each pass too; dump_proto: as HloModuleProto; dump_text: as text, which is also the default */
  bool dump_passes, dump_proto, dump_text;
  int64_t collective_timeout_s, collective_warn_s; /* 0: not given */
  bool no_excess_precision; /* xla_allow_excess_precision=false */
  uint32_t graph_kinds;     /* xla_gpu_enable_command_buffer, as weft_compile_options.graph_kinds; 0: not given */
  bool no_graphs;           /* xla_gpu_enable_command_buffer is given, and empty */
  int64_t graph_least;      /* xla_gpu_graph_min_graph_size; 0: not given */
  bool collective_memory;   /* xla_gpu_enable_nccl_user_buffers */
  bool no_comm_splitting;   /* xla_gpu_enable_nccl_comm_splitting=false */
  buf_order order;        /* weft_memory */
  int64_t budget_bytes;
  char *cpus;             /* weft_cpu: processors that saved code is for; malloc'd or NULL */
} pjrt_options;
/* Reads a CompileOptionsProto.  Errors: INVALID_ARGUMENT in the words that JAX's tests expect. */
WEFT_NODISCARD weft_status *pjrt_options_read(const void *data, size_t size, pjrt_options *out_options);
void pjrt_options_fini(pjrt_options *options);
/* Gives the entry of `module` the layouts that the options ask for its arguments and result; they override those of
 * the program. Errors: INVALID_ARGUMENT for shapes that are not the program's; UNIMPLEMENTED for tiles. */
WEFT_NODISCARD weft_status *pjrt_options_lay_out(const pjrt_options *options, hlo_module *module);

/* ---- execution contexts (execute.c): data that custom calls of one execution find by type ---- */

struct PJRT_ExecuteContext {
  int refs; /* atomic: the handle, and launches in flight */
  struct rt_ffi_user_data *data;
};

/* ---- executables (executable.c, execute.c) ---- */

/* Serialised OpShardings, one for each leaf; `bytes` NULL: none to report. */
typedef struct pjrt_shardings {
  int count;
  const char **bytes;
  size_t *sizes;
  bool *owned;
} pjrt_shardings;
/* Reads the shardings of a compiled module's parameters and results. On failure both may be partly filled: fini
 * them. */
WEFT_NODISCARD weft_status *pjrt_shardings_read(const hlo_module *module, pjrt_shardings *out_params,
                                                pjrt_shardings *out_outputs);
void pjrt_shardings_fini(pjrt_shardings *shardings);

/* A program's parameters or results as clients ask for them. */
typedef struct pjrt_values {
  int count;
  PJRT_Buffer_Type *types;
  int64_t *dims;         /* of all, one after the other */
  size_t *ranks;
  int *memories;         /* indices of kinds */
  const char **kinds;
  size_t *kind_sizes;
  const pjrt_layout **layouts;
} pjrt_values;

/* Writes `module` to DIR/module_NNNN.NAME.STAGE.txt and .hlo.pb, as the options say. NNNN is *number; 0 is first
 * replaced by a new number. A failure is only logged. */
void pjrt_dump(const pjrt_options *options, const hlo_module *module, const char *stage, int *number);

/* What an executable and its loaded form share; reference-counted. */
typedef struct pjrt_program {
  int refs; /* atomic */
  weft_executable *exe;
  char *name;
  char fingerprint[40];
  char *cpus;            /* the processors that Serialize makes code for (weft_cpu), or NULL: this one */
  char *options;         /* serialized CompileOptionsProto as given */
  size_t options_size;
  pjrt_values params, outputs;
  pjrt_shardings param_shardings, output_shardings; /* empty for one device */
  PJRT_NamedValue costs[3];
  bool calls_python;     /* see execute.c */
  uint64_t client_serial; /* of the client it can run on; 0: compiled ahead of time */
  int device_count;
  PJRT_Device **devices; /* of this process, in the order of argument_lists */
  PJRT_LogicalDeviceIds *places;
  char *assignment;      /* serialized DeviceAssignmentProto */
  size_t assignment_size;
  bool portable;
} pjrt_program;
/* A program with a copy of its options and nothing else. */
WEFT_NODISCARD weft_status *pjrt_program_new(const void *options_data, size_t options_size, pjrt_program **out_program);
pjrt_program *pjrt_program_retain(pjrt_program *program); /* returns program */
void pjrt_program_release(pjrt_program *program);         /* NULL is fine */
WEFT_DEFINE_AUTO(pjrt_program, pjrt_program_release)

/* Where a program is compiled or loaded: for a client, or ahead of time for a topology on a platform of its own. */
typedef struct pjrt_target {
  weft_platform *platform;
  const PJRT_TopologyDescription *topology;
  const PJRT_Client *client; /* NULL: ahead of time */
} pjrt_target;
static inline pjrt_target pjrt_target_of(const PJRT_Client *client)
{
  return (pjrt_target){client->platform, client->topology, client};
}
/* The options of the compiler that `options` say; borrows them. */
weft_compile_options pjrt_compile_options(const pjrt_options *options);
/* Fills in all that clients ask about a program whose `exe` is set, but for its fingerprint. */
WEFT_NODISCARD weft_status *pjrt_program_describe(pjrt_program *program, pjrt_target on, const pjrt_options *options);
/* Takes the reference `program`, also on failure. */
WEFT_NODISCARD weft_status *pjrt_loaded_new(PJRT_Client *client, pjrt_program *program, PJRT_LoadedExecutable **out);

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
#endif
