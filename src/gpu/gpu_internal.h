/* gpu/gpu_internal.h -- the CUDA platform's own data, shared by the files of this folder. */
#ifndef WEFT_GPU_GPU_INTERNAL_H
#define WEFT_GPU_GPU_INTERNAL_H

#include "base/options.h"
#include "codegen/model/target.h"
#include "gpu/collective_memory.h"
#include "gpu/conditions.h"
#include "gpu/driver.h"
#include "gpu/libraries.h"
#include "gpu/numa.h"
#include "gpu/times.h"
#include "runtime/runtime_internal.h"
#include "runtime/trace.h"

/* Settings from the environment (their table is in platform.c). */
typedef struct gpu_settings {
  const char *libdir;   /* "": the loader's search path */
  int64_t devices;      /* 0: all */
  int64_t threads;      /* 0: as docs/scaling.md says, at most MOST_THREADS */
  const char *dump_hlo; /* "": nowhere */
  int64_t timeout_ns;   /* time without progress after which a device counts as hung; 0: never */
  const char *collectives; /* "auto", "nccl" or "peers" */
  bool collective_memory; /* temporaries of collectives and large buffers lie in memory that NCCL registers */
  bool multicast;       /* collectives between the GPUs of a process use multicast objects, where GPUs have them */
  bool shrink;          /* survivors shrink NCCL's communicator */
  bool split;           /* NCCL's communicators of some devices of a larger one are split off it */
  int64_t share;        /* devices that each GPU appears as */
  int64_t graphs;       /* least number of steps that become a graph; 0: no steps do */
  bool graph_loops;     /* loops and branches may be part of graphs */
  int64_t graph_unroll; /* most steps of all rounds of a loop with collectives that is part of a graph */
  bool tf32;            /* f32 operands of dots and convolutions may be rounded to tf32 */
  const char *assembler; /* "auto", "nvjitlink", "ptxas" or "driver" */
  bool numa;            /* threads are bound to the NUMA nodes of their GPUs */
  const char *ptxas;    /* path of ptxas; "": the one in the folder given to configure, if that has one */
} gpu_settings;
extern const weft_option_table gpu_options;

/* ---- devices (device.c) ---- */

/* The driver's events are of two kinds: points, for which the driver tells only whether they are reached, and events
 * that also record the time. */
typedef enum gpu_event_kind { GPU_POINT, GPU_TIMING, GPU_EVENT_KINDS } gpu_event_kind;
/* Spare events of one kind. */
typedef struct gpu_events {
  wcu_event *spare;
  int count, capacity;
} gpu_events;

typedef struct gpu_staging gpu_staging;
enum { GPU_STAGING_CLASSES = 48 };

/* The data of one device that this platform keeps besides weft_device. */
typedef struct gpu_device {
  wcu_device device;
  wcu_context context;       /* the device's primary context, retained; NULL: the device is not open */
  char kind[128];            /* the driver's name: "NVIDIA H200" */
  int capability;            /* 90 for compute capability 9.0 */
  bool multicast;            /* it can be of a multicast object's team, and has the instructions for that */
  int processors;            /* streaming multiprocessors */
  int64_t shared_bytes;      /* the most shared memory that a block may ask for */
  const gen_target *target;  /* the newest processor whose code the device can run */
  int64_t bytes;             /* size of the device's memory */
  int node;                  /* the NUMA node of the host that is nearest; GPU_NO_NODE: not known, or not to be used */
  int top_priority;          /* highest priority of streams; smaller numbers run first */
  bool *reaches;             /* by ordinal: whether kernels here may use the memory of that device */
  wcu_stream own;            /* the stream for operations that are done when the call returns */
  weft_mutex mu;             /* a leaf */
  gpu_events events[GPU_EVENT_KINDS] WEFT_GUARDED_BY(mu);
  gpu_staging *staging[GPU_STAGING_CLASSES] WEFT_GUARDED_BY(mu); /* spare blocks, by size class */
  int64_t staging_bytes WEFT_GUARDED_BY(mu);
  gpu_blocks blocks;         /* memory of collectives */
  gpu_libraries libraries;
  gpu_conditions conditions;
  weft_mutex recording;      /* order: before `launching`, a library's lock and `mu` */
  wcu_stream recorder WEFT_GUARDED_BY(recording); /* work queued there becomes a graph (graph.c); NULL: not made yet */
  weft_mutex talk_mu;        /* graphs with collectives (talk.c) and their communicators (nccl.h); nearly a leaf */
  weft_mutex clock_mu;       /* order: after a stream's lock, before `mu` */
  gpu_clock clock WEFT_GUARDED_BY(clock_mu);
  int64_t timeout_ns;        /* as in gpu_settings */
  /* set once: the error because of which no call of the driver is made for the device any more */
  _Atomic(weft_status *) hung;
} gpu_device;

/* The thread that makes the calls that wait for points of streams (stream.c). */
typedef struct gpu_completer {
  pthread_t thread;
  bool started;
  int64_t timeout_ns;         /* as in gpu_settings */
  weft_mutex streams_mu;      /* guards the list; order: before a stream's lock */
  weft_stream *streams WEFT_GUARDED_BY(streams_mu);
  weft_mutex mu;              /* for sleeping and waking; a leaf */
  weft_cond wake;
  bool stop WEFT_GUARDED_BY(mu);
  atomic_bool work, asleep;
} gpu_completer;

typedef struct gpu_platform {
  weft_platform base;         /* first */
  gpu_settings settings;
  int gpu_count;
  gpu_device *gpus;           /* by ordinal */
  gpu_completer completer;
  struct gpu_ender *ender;    /* reports the ends of operations between devices (jobs.h) */
  bool alone;                 /* the job has no other process */
  int node;                   /* the NUMA node of all GPUs; GPU_NO_NODE: they have several, or none is known */
  int *nodes, node_count;     /* the NUMA nodes of the GPUs, ascending; 0: that of a GPU is not known */
  int threads;                /* workers */
  /* held while kernels that wait for each other are queued on several devices, and while a module is loaded, because
   * the driver may wait for running kernels before it loads a module; order: before a communicator's lock and a
   * stream's */
  weft_mutex launching;
  struct gpu_peer_kernels *peer_kernels WEFT_GUARDED_BY(launching); /* a list */
  atomic_int threads_left;    /* threads in a call that does not return; what they use is not freed */
} gpu_platform;

static inline gpu_platform *gpu_platform_of(const weft_device *device) { return (gpu_platform *)device->platform; }
static inline gpu_device *gpu_of(const weft_device *device) { return &gpu_platform_of(device)->gpus[device->ordinal]; }

/* The number of devices that the driver shows.  Errors: UNAVAILABLE: there is no driver, or none of its devices can
 * be used. */
WEFT_NODISCARD weft_status *gpu_device_count(int *out_count);
/* Reads the properties of device `ordinal` that need no context. Errors: UNAVAILABLE if the device is older than any
 * processor that kernels are made for. */
WEFT_NODISCARD weft_status *gpu_device_read(int ordinal, gpu_device *out_gpu);
/* Makes a device ready for use: its context and its own stream. */
WEFT_NODISCARD weft_status *gpu_device_open(gpu_device *gpu);
/* Gives device `ordinal` access to the memory of the others among `count` devices, which are all open. */
WEFT_NODISCARD weft_status *gpu_device_join(gpu_device *gpus, int ordinal, int count);
void gpu_device_close(gpu_device *gpu); /* also one that was opened in part */

/* The device hangs: it has not done what `st`, taken, says. From now on gpu_enter fails, because most calls of the
 * driver wait for a device that hangs; what the device holds is not freed. */
void gpu_device_hangs(gpu_device *gpu, weft_status *st);

/* Makes the device's context the calling thread's, until gpu_leave.  Errors: DEADLINE_EXCEEDED: the device hangs. */
WEFT_NODISCARD weft_status *gpu_enter(const gpu_device *gpu);
void gpu_leave(void);

/* Take an event that nothing uses, and give it back. The caller has entered the device. */
WEFT_NODISCARD weft_status *gpu_event_take(gpu_device *gpu, gpu_event_kind kind, wcu_event *out_event);
void gpu_event_give(gpu_device *gpu, gpu_event_kind kind, wcu_event event);

/* Notes that a thread which uses the platform does not end (gpu_join): the platform is never freed. */
void gpu_platform_leave_thread(weft_platform *platform);

/* ---- memory (memory.c) ---- */

extern const weft_memory_space gpu_memory_spaces[WEFT_MEMORY_SPACES];
weft_status *gpu_allocate(weft_device *device, int space, int64_t bytes, void **out_data);
void gpu_deallocate(weft_device *device, int space, void *data, int64_t bytes);
weft_status *gpu_write(weft_device *device, weft_stream *stream, void *to, const void *host, int64_t bytes);
weft_status *gpu_read(weft_device *device, weft_stream *stream, void *host, const void *from, int64_t bytes);
weft_status *gpu_read_pieces(weft_device *device, const weft_device_piece *pieces, int count);
weft_status *gpu_copy(weft_device *to_device, weft_stream *stream, void *to, weft_device *from_device, const void *from,
                      int64_t bytes);
weft_status *gpu_fill(weft_device *device, weft_stream *stream, void *to, int byte, int64_t bytes);
weft_status *gpu_copy_rows(weft_device *device, weft_stream *stream, void *to, int64_t to_step, const void *from,
                           int64_t from_step, int64_t bytes, int64_t rows);
void gpu_staging_free(gpu_device *gpu); /* frees all spare blocks */

/* ---- streams (stream.c) ---- */

weft_status *gpu_stream_create(weft_device *device, int priority, weft_stream **out_stream);
void gpu_stream_destroy(weft_stream *stream);
uint64_t gpu_stream_record(weft_stream *stream);
weft_status *gpu_stream_wait(weft_stream *stream, weft_stream *other, uint64_t number);
uint64_t gpu_stream_reached(weft_stream *stream);
void gpu_stream_notify(weft_stream *stream, weft_stream_call *call);

/* The driver's handle of a stream, for work that the caller queues on it. The caller has entered the device, and
 * calls gpu_stream_used once the work is queued. */
wcu_stream gpu_stream_handle(const weft_stream *stream);
void gpu_stream_used(weft_stream *stream);
/* Notes that the calling thread queues the step `name` next, for the message if the device hangs, and for traces. The
 * caller has entered the device, and calls gpu_stream_step_end before it leaves the device. */
void gpu_stream_step(weft_stream *stream, int device, const char *kind, const char *name);
void gpu_stream_step_end(weft_stream *stream);
/* The same for a collective, for traces only: unless events are recorded it costs nothing.  `step` is the caller's,
 * since the queuing of several may overlap. */
void gpu_stream_time(weft_stream *stream, const rt_trace_step *about, gpu_timed *out_step);
void gpu_stream_time_end(weft_stream *stream, gpu_timed *step);
/* Waits until the driver's stream has done what is queued on it. The caller has entered the device.
 * Errors: DEADLINE_EXCEEDED: the device hangs. */
WEFT_NODISCARD weft_status *gpu_await(gpu_device *gpu, wcu_stream stream);

WEFT_NODISCARD weft_status *gpu_completer_start(gpu_completer *completer);
void gpu_completer_stop(gpu_completer *completer); /* all streams must have been destroyed */

/* ---- the compiler (compiler.c) ---- */

weft_status *gpu_compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                         weft_executable **out_executable);
weft_status *gpu_save(const weft_executable *exe, bool no_excess_precision, const char *cpus, void **out_data,
                      size_t *out_size);
weft_status *gpu_load(weft_platform *platform, hlo_module *module, const void *code, size_t size,
                      const weft_compile_options *options, weft_executable **out_executable);

#endif
