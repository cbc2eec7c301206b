/* runtime/runtime_internal.h -- the objects of the runtime from inside: for src/runtime and the platforms. */
#ifndef WEFT_RUNTIME_RUNTIME_INTERNAL_H
#define WEFT_RUNTIME_RUNTIME_INTERNAL_H

#include <stdatomic.h>

#include "base/thread.h"
#include "collective/clique.h"
#include "hlo/grouping.h"
#include "runtime/executable.h"
#include "runtime/numa.h"
#include "runtime/packed.h"
#include "runtime/platform.h"
#include "runtime/program.h"
#include "runtime/stream.h"

typedef struct weft_run weft_run;

struct weft_platform {         /* first member of a platform's own struct */
  const weft_platform_ops *ops;
  atomic_int refs;
  rt_pool *pool;
  int device_count, process_index;
  weft_device *devices;        /* device_count of them */
  coll_cliques *cliques;
  /* held while a launch with collectives is submitted; order: before the cliques', devices' and pool's */
  weft_mutex launch_mu;
  int process_count;
  uint64_t *incarnations;      /* by process, or NULL */
  int64_t memory_limit;        /* the machine's memory in bytes: a larger allocation fails */
  int64_t packed_limit;        /* most bytes of packed forms (packed.h); 0: none are made */
  rt_packed_forms packed;
  rt_numa numa;                /* the nodes of the workers; the platform owns the arrays */
  bool host_loops_back, flush_denormals;
  bool traces_signals;         /* rt_trace_signals_begin was called */
  weft_mutex channels_mu;      /* a leaf */
  struct rt_channel *channels WEFT_GUARDED_BY(channels_mu);
};

/* What the `create` and `destroy` of every platform do with the common part.  rt_platform_end also accepts a platform
 * that was made only in part, from rt_platform_begin on. */
void rt_platform_begin(weft_platform *platform, const weft_platform_ops *ops, const weft_platform_options *wanted);
/* Makes `count` devices, which are called kind(platform, ordinal): static, or the platform's for its life.  They are
 * the machine's devices from number `first` on, unless `wanted` names others. */
WEFT_NODISCARD weft_status *rt_platform_add_devices(weft_platform *platform, const weft_platform_options *wanted,
                                                    int first, int count,
                                                    const char *(*kind)(const weft_platform *platform, int ordinal));
/* Stores the processes of the job, and makes the registry of cliques. */
WEFT_NODISCARD weft_status *rt_platform_join_job(weft_platform *platform, const weft_platform_options *wanted);
void rt_platform_end(weft_platform *platform); /* frees all but the struct */
/* Called by a thread that the platform's `destroy` joins: if the thread gives up the last reference, another thread
 * destroys the platform. */
void rt_platform_own_thread(const weft_platform *platform);

/* A freed block. On a device with streams, queued work may still use the block: it is idle once the compute stream
 * has reached point `number`. */
typedef struct rt_free_block {
  void *data;
  uint64_t number;
  int node; /* where the thread ran that gave the block back (rt_pool_node) */
} rt_free_block;

/* Free blocks of one size, last in, first out; on a machine of several nodes a thread takes one of its own node if the
 * last few have one. There are eight sizes to each power of two. */
enum { RT_SIZE_CLASSES = 8 * 48 };
enum { RT_SPACES = WEFT_COLLECTIVE_SPACE + 1 };
/* Memory of collectives is taken in multiples of this many bytes: a driver gives no less, and small programs share
 * blocks. */
enum { RT_COLLECTIVE_UNIT = 2 << 20 };
typedef struct rt_free_list {
  rt_free_block *blocks;
  int count, capacity;
} rt_free_list;

struct weft_device {
  weft_platform *platform;
  const weft_device_ops *ops;  /* the operations of its platform */
  bool is_host_visible;        /* ops->spaces[0].is_host_visible */
  bool queues;                 /* the device has streams */
  weft_stream *streams[WEFT_STREAM_PURPOSES];
  _Atomic uint64_t recorded;   /* the highest point of the compute stream that has been recorded */
  int64_t id;
  int ordinal;
  int hardware_id;             /* see weft_device_hardware_id */
  const char *kind;
  int numa_node;               /* its number; -1: unknown, or several */
  int home;                    /* the same as an index of the nodes of the platform's pool; -1 */

  struct rt_feed *infeed, *outfeed;

  weft_mutex memory_mu;
  rt_free_list free_blocks[RT_SPACES][RT_SIZE_CLASSES] WEFT_GUARDED_BY(memory_mu);
  weft_memory_stats memory WEFT_GUARDED_BY(memory_mu);
  int64_t cache_limit;

  weft_mutex mu;               /* of the queue; the pool's lock is the only one taken under it */
  weft_cond changed;
  weft_cond room;              /* for launches that wait until the queue is shorter */
  weft_run *first WEFT_GUARDED_BY(mu); /* submitted, not started */
  weft_run *last WEFT_GUARDED_BY(mu);
  int running WEFT_GUARDED_BY(mu);   /* started, not ended */
  /* runs among these that are inside a host callback: the queue does not wait for them */
  int callbacks WEFT_GUARDED_BY(mu);
  int queued WEFT_GUARDED_BY(mu);    /* runs whose work is all on the compute stream, and not all done */
  int64_t submitted WEFT_GUARDED_BY(mu), ended WEFT_GUARDED_BY(mu);
  atomic_llong under_way;      /* submitted - ended: written under mu, read without it by launches that need not wait */
  int waiting_for_end WEFT_GUARDED_BY(mu); /* threads that wait for `changed` */
  int waiting_for_room WEFT_GUARDED_BY(mu);
  int64_t no_room_at WEFT_GUARDED_BY(mu); /* `ended` when a launch last gave up waiting for room; -1: none has */
};

/* Fills the device; `kind` is borrowed for the device's life. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *rt_device_init(weft_device *device, weft_platform *platform, int64_t id, int ordinal,
                                           const char *kind);
/* Once the platform's table is known: takes its device operations and makes the streams. */
WEFT_NODISCARD weft_status *rt_device_open(weft_device *device);
void rt_device_fini(weft_device *device);

/* Who will use a block first. */
typedef enum rt_taker {
  RT_ANYONE, /* any thread or stream: the block must be idle */
  RT_COMPUTE /* work on the device's compute stream, which runs after the work that is queued there */
} rt_taker;
/* Takes a block of at least `bytes` in a space from the device's cache or its platform. rt_device_give gets the same
 * space and `bytes`. Queued work of the compute stream may still use a block that is given back, if a point after
 * that work has been recorded. */
WEFT_NODISCARD weft_status *rt_device_take(weft_device *device, int space, int64_t bytes, rt_taker taker,
                                           void **out_data);
void rt_device_give(weft_device *device, int space, void *data, int64_t bytes);

/* Copies into the memory of a host-visible device. Workers share a large copy, so that new pages lie on their nodes: a
 * step that shares its work in the same way finds them near. */
void rt_device_copy_shared(weft_device *device, void *to, const void *from, int64_t bytes);

/* Records a point of one of the device's streams. */
uint64_t rt_device_record(weft_device *device, weft_stream *stream);

struct weft_storage {
  atomic_int refs;
  weft_device *device;
  void *data;
  int64_t bytes;
  int space;
  bool is_view;
  rt_packed_set packed;        /* forms of what the storage holds while a program has it as an undonated parameter */
  void (*on_free)(void *ctx);
  void *ctx;
};
static inline bool rt_storage_is_unique(weft_storage *s)
{
  return !s->is_view && atomic_load_explicit(&s->refs, memory_order_acquire) == 1;
}

struct weft_buffer {
  atomic_int refs;
  weft_device *device;
  weft_array_type type;
  int64_t bytes;
  weft_event *defined;
  rt_definition *definition; /* for bytes that queued work makes, else NULL; set before anybody else sees the buffer */
  weft_mutex mu;
  weft_storage *storage WEFT_GUARDED_BY(mu); /* NULL: a token, not yet allocated, or given up */
  int uses WEFT_GUARDED_BY(mu);      /* operations in flight: `storage` stays for them although deleted */
  int pins WEFT_GUARDED_BY(mu);
  bool deleted WEFT_GUARDED_BY(mu);
};

/* As weft_storage_new, in memory space `space` and for `taker`. */
WEFT_NODISCARD weft_status *rt_storage_new(weft_device *device, int space, int64_t bytes, rt_taker taker,
                                           weft_storage **out_storage);

/* The event that must be ready before work is queued that uses the bytes. If the buffer has a definition, that work
 * must also be queued behind the definition's point (rt_definition_wait). */
static inline weft_event *rt_buffer_usable(const weft_buffer *buffer)
{
  return buffer->definition ? buffer->definition->recorded : buffer->defined;
}
/* The buffer's error (borrowed) if one is known already. NULL before the buffer is defined does not mean that it
 * will have none. */
const weft_status *rt_buffer_known_error(const weft_buffer *buffer);

/* Begins a use of a buffer: it keeps its bytes until rt_buffer_end_use. With `donate` it is deleted in the same
 * step. Errors: FAILED_PRECONDITION if it is deleted already. */
WEFT_NODISCARD weft_status *rt_buffer_use(weft_buffer *buffer, bool donate);
void rt_buffer_end_use(weft_buffer *buffer);
bool rt_buffer_is_view(weft_buffer *buffer); /* the bytes belong to somebody else: weft_storage_view */
/* The storage of a buffer that is in use, retained; NULL: it has none, as a token. With `sole` the storage is moved
 * out of the buffer instead, if nobody else can see the bytes; *out_sole tells whether it was. */
weft_storage *rt_buffer_take(weft_buffer *buffer, bool sole, bool *out_sole);
/* Gives a pending buffer its bytes (takes the reference). */
void rt_buffer_fill(weft_buffer *buffer, weft_storage *storage);
weft_event *rt_ready_event(void); /* an event that is always ready; not retained; NULL without memory */

/* The parts of an executable that a platform's compiler has made; parts that it has not made are NULL. */
typedef struct rt_compiled {
  hlo_module *module;
  buf_plan *plan;
  rt_program *program;
  void *code;
  void (*free_code)(void *code);
  void *step_plans;            /* the plans of the program's steps, which the thunks use when they run */
  void (*free_step_plans)(void *step_plans);
  int64_t code_bytes;
  int grouping_count;          /* groupings of its collectives */
  const hlo_grouping *groupings; /* in the program's arena */
} rt_compiled;
weft_platform *weft_executable_platform(const weft_executable *exe); /* borrowed */
/* Ends a compilation: makes the executable, or, if `st` is an error, frees the parts and returns `st`. Takes `st` and
 * all of `parts`, also on failure. */
WEFT_NODISCARD weft_status *rt_executable_finish(weft_platform *platform, rt_compiled *parts,
                                                 const weft_compile_options *options, weft_status *st,
                                                 weft_executable **out_executable);

#endif
