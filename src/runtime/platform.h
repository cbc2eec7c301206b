/* runtime/platform.h -- what a kind of device offers: devices, memory, a compiler. */
#ifndef WEFT_RUNTIME_PLATFORM_H
#define WEFT_RUNTIME_PLATFORM_H

#include <stdio.h>

#include "base/kv.h"
#include "buffer/plan.h"
#include "hlo/hlo.h"
#include "runtime/device.h"
#include "runtime/executable.h"
#include "runtime/pool.h"
#include "weft/collective.h"

/* the ids of a process's devices begin at its index times this, as in XLA's CPU client */
#define WEFT_DEVICES_A_PROCESS 2048
#define WEFT_MOST_THREADS 4096 /* of a worker pool */

typedef struct weft_platform_options {
  int device_count;   /* of this process; 0: WEFT_DEVICES, by default 1 */
  int threads;        /* of the worker pool; 0: WEFT_THREADS, by default as docs/scaling.md says */
  int process_index, process_count; /* 0, 0: alone */
  /* the store in which processes find each other; borrowed for the platform's life; NULL: alone */
  weft_kv *kv;
  const uint64_t *incarnations; /* [process_count]: unique in the job; NULL: alone, or given at launch */
  /* global ids of this process's devices; NULL: process_index * WEFT_DEVICES_A_PROCESS + ordinal. Jobs of several
   * processes must use these same numbers. */
  const int64_t *device_ids;
  /* data that a program sends to the host on a channel goes to the program that receives from the host on that
   * channel */
  bool host_loops_back;
  /* If devices are pieces of hardware: their numbers, [device_count]; NULL: from number first_device on, or the first
   * ones if the machine has fewer. */
  const int *device_ordinals;
  int first_device;
} weft_platform_options;

/* Kinds of steps that may be part of a graph, as XLA numbers them (DebugOptions.CommandBufferCmdType). */
typedef enum weft_graph_kind {
  WEFT_GRAPH_FUSION = 1,
  WEFT_GRAPH_CUBLAS,
  WEFT_GRAPH_CUDNN,
  WEFT_GRAPH_COLLECTIVES,
  WEFT_GRAPH_CONDITIONAL,
  WEFT_GRAPH_WHILE,
  WEFT_GRAPH_CUSTOM_CALL,
  WEFT_GRAPH_CUBLASLT,
  WEFT_GRAPH_DYNAMIC_SLICE_FUSION,
  WEFT_GRAPH_KINDS
} weft_graph_kind;

typedef struct weft_compile_options {
  int64_t replica_count, partition_count; /* 0: the module's */
  const int64_t *device_assignment;       /* [replica][partition] global ids; NULL: local devices in order */
  buf_order order;
  int64_t budget_bytes;                   /* BUF_BUDGET */
  const char *dump_dir;                   /* a numbered HLO file after each pass; or NULL */
  int64_t collective_timeout_ns, collective_warn_ns; /* of the program's collectives; 0: the settings */
  /* Steps that a device with graphs queues as one: bits 1 << weft_graph_kind, and how many steps make a graph at least;
   * 0: the platform's settings. */
  uint32_t graph_kinds;
  int64_t graph_least;                    /* INT64_MAX: no graphs */
  /* Temporaries of collectives lie in memory that the platform's communicators can register; false: the platform's
   * setting says whether they do. */
  bool collective_memory;
  bool no_comm_splitting;                 /* communicators of the program are not divided into others of it */
  bool keep_text;                         /* keep the kernels' IR and assembly */
  bool no_excess_precision;               /* every operation on floats narrower than f32 is rounded to its type */
  /* Observes the passes (see pass_observer); NULL: none. */
  void (*pass_observer)(void *ctx, const char *pass, bool changed, int64_t ns, const hlo_module *module);
  void *observer_ctx;
} weft_compile_options;

/* An option that a client may be created with on one platform, beside those that all platforms have. */
typedef struct weft_client_option {
  const char *name;
  enum {
    WEFT_CLIENT_IGNORED,  /* any value: it changes nothing */
    WEFT_CLIENT_FALSE,    /* a truth value that must be false */
    WEFT_CLIENT_DEVICES,  /* a list of the machine's devices by their numbers: weft_platform_options.device_ordinals */
  } kind;
  const char *why; /* for kinds that refuse values: the end of the error's text */
} weft_client_option;

/* A platform's table; static.  Optional members may be NULL. */
typedef struct weft_platform_ops {
  size_t size;      /* sizeof this struct; entries past it are absent */
  const char *name; /* "cpu" */
  /* what clients such as JAX call the platform; they choose their lowering rules by it: "cpu", "cuda" */
  const char *client_name;
  const weft_client_option *client_options; /* ends with one that has no name; NULL: none */
  bool devices_by_request; /* a process has as many devices as its user asks for, by WEFT_NUM_DEVICES too */
  const char *device_kind; /* of devices that this process describes and does not have: "NVIDIA GPU" */
  WEFT_NODISCARD weft_status *(*create)(const weft_platform_options *options, weft_platform **out_platform);
  void (*destroy)(weft_platform *platform);
  const weft_device_ops *device; /* the operations of its devices */
  /* Takes `module` (verified), also on failure. Thread-safe. Absent: programs are only loaded. */
  WEFT_NODISCARD weft_status *(*compile)(weft_platform *platform, hlo_module *module,
                                         const weft_compile_options *options, weft_executable **out_executable);
  /* Optional: describes the machine as this platform sees it, in indented lines for a user. */
  WEFT_NODISCARD weft_status *(*describe)(FILE *out);
  /* Optional: NULL if this machine has devices of the platform's kind. Errors: UNAVAILABLE, saying what is missing.
   * Absent: it always has. */
  WEFT_NODISCARD weft_status *(*available)(void);
  /* Optional, both or none: the machine code of an executable as bytes for files, and an executable from the bytes and
   * from a module equal to weft_executable_module(exe). Absent: programs of this platform cannot be saved.
   * save: `cpus` is in the platform's own words, NULL: for this machine; no_excess_precision as at compilation;
   *       *out_data is malloc'd and belongs to the caller. Thread-safe.
   * load: takes `module`, also on failure. The bytes may be damaged, or of a machine of another kind: an error. */
  WEFT_NODISCARD weft_status *(*save)(const weft_executable *exe, bool no_excess_precision, const char *cpus,
                                      void **out_data, size_t *out_size);
  WEFT_NODISCARD weft_status *(*load)(weft_platform *platform, hlo_module *module, const void *code, size_t size,
                                      const weft_compile_options *options, weft_executable **out_executable);
  /* Optional: as weft_device_attributes, for the device of this ordinal. Absent: the devices have no attributes. */
  int (*attributes)(const weft_platform *platform, int ordinal, weft_device_attribute *out);
  /* Optional: as weft_executable_kernels. Absent: the platform's kernels are of another kind. */
  const struct gen_code *(*kernels)(const weft_executable *exe);
  /* moves the data of collectives (collective/communicator.h); NULL: the host's does */
  const struct coll_communicator_ops *communicator;
  /* Whether `communicator` moves the data of operations of this kind, element type and reduction: the same answer in
   * all processes of a job.  The host's communicators move the data of other operations, on copies in host memory.
   * Absent: `communicator` moves the data of all operations. */
  bool (*moves)(const weft_platform *platform, weft_coll_kind kind, weft_dtype dtype, weft_reduction reduction);
} weft_platform_ops;

/* Errors: those of the platform, and of making its devices' streams. */
WEFT_NODISCARD weft_status *weft_platform_new(const weft_platform_ops *ops, const weft_platform_options *options,
                                              weft_platform **out_platform);
weft_platform *weft_platform_retain(weft_platform *platform); /* executables and buffers hold it */
void weft_platform_release(weft_platform *platform);
WEFT_DEFINE_AUTO(weft_platform, weft_platform_release)

const char *weft_platform_name(const weft_platform *platform);
rt_pool *weft_platform_pool(const weft_platform *platform);
int weft_platform_device_count(const weft_platform *platform); /* of this process */
weft_device *weft_platform_device(const weft_platform *platform, int ordinal);
weft_device *weft_platform_device_by_id(const weft_platform *platform, int64_t id); /* NULL: not of this process */

/* Whether the platform has communicators of its own, and they move the data of such operations
 * (weft_platform_ops.moves). */
bool weft_platform_moves(const weft_platform *platform, weft_coll_kind kind, weft_dtype dtype,
                         weft_reduction reduction);
struct coll_cliques *weft_platform_cliques(const weft_platform *platform); /* borrowed: communicators of this process */
/* Reports that the process with this incarnation has ended, or was restarted with another one: collectives that wait
 * for it fail with FAILED_PRECONDITION; the message has `detail`. */
void weft_platform_incarnation_died(weft_platform *platform, uint64_t incarnation, const char *detail);
/* Ends the part of this process, whose incarnation the others know as `incarnation` (0: they know none), in all
 * collectives: see coll_cliques_leave. */
void weft_platform_leave(weft_platform *platform, uint64_t incarnation, const char *reason);

/* Compiles `module` (verified; taken, also on failure) for the platform. *out_executable is owned by the caller.
 * Thread-safe. Errors: UNIMPLEMENTED if the platform has no compiler; those of the platform's compiler. */
WEFT_NODISCARD weft_status *weft_compile(weft_platform *platform, hlo_module *module,
                                         const weft_compile_options *options, weft_executable **out_executable);

#endif
