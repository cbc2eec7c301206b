/* tests/gpu/emulator/driver.h -- types and functions that the files of the emulated driver share, by file.
 *
 * Locks, in the order in which they are taken: emu_mu (streams, events, captures, contexts, modules), then the lock
 * of the heap (in heap.c).  No lock is held while a kernel, a host function or a copy runs. */
#ifndef WEFT_EMU_DRIVER_H
#define WEFT_EMU_DRIVER_H

#include <pthread.h>
#include <time.h>

#include "gpu/abi/cuda.h"
#include "library.h"
#include "weft_emu.h"

#define EMU_API __attribute__((visibility("default"))) wcu_result
#define WCU_FN(name, symbol, args) EMU_API symbol args;
WCU_ENTRIES(WCU_FN)
#undef WCU_FN

enum { EMU_DEVICES = 16, EMU_MIB = 1 << 20 };

/* ---- settings.c: the WEFT_EMU_* variables ---- */
typedef struct emu_device {
  int sm, processors, threads_per_processor, blocks_per_processor;
  int shared_per_block, shared_opt_in, shared_per_processor, l2_bytes;
  const char *name;
} emu_device;
typedef struct emu_settings {
  int devices;
  emu_device device;
  uint64_t memory;           /* bytes of each device */
  ptx_order order;
  uint64_t seed, delay_ns;   /* delay_ns: the longest random wait before each work of a stream */
  unsigned checks;
  bool sectors, leaks_fail, leaks_quiet, multicast;
  uint64_t budget;
} emu_settings;
int emu_version(void); /* of the driver's interface */
extern emu_settings emu_set;
void emu_read_settings(bool first);
uint64_t emu_random(void);
void emu_sleep(uint64_t ns);

/* ---- faults.c: the beginning of every call, where calls fail, stall or are slow ---- */
enum { EMU_ANYTIME = 0, EMU_WITH_CONTEXT = 1, EMU_AFTER_INIT = 2 };
wcu_result emu_enter(const char *call, int when);
void emu_read_faults(const char *text);
uint64_t emu_take_stall(void); /* takes the time in ns by which the work that this call queues starts late */
#define EMU_ENTER(when) do { wcu_result entered_ = emu_enter(__func__, (when)); if (entered_) return entered_; } while (0)
extern _Thread_local bool emu_in_host_function;
extern bool emu_initialized;

/* ---- heap.c: all memory that devices reach ---- */
typedef enum emu_kind { EMU_DEVICE_MEMORY, EMU_HOST_MEMORY, EMU_REGISTERED, EMU_MAPPED, EMU_MODULE } emu_kind;
typedef struct emu_team emu_team;
/* Memory of a device, or a multicast object, which has none. */
typedef struct emu_physical {
  int fd, refs, handles /* of the references, those that are the program's */, device;
  bool charged;
  size_t size;
  uint64_t key;      /* addresses of no allocation: there the host finds the bytes, however often they are mapped */
  int bound;         /* bindings to multicast objects */
  emu_team *team;    /* of a multicast object; otherwise NULL */
  wcu_mem_allocation_prop prop;
} emu_physical;
typedef struct emu_block {
  uint64_t base, size, id;
  int device;
  emu_kind kind;
  bool live;
  uint32_t readers, writers;   /* bit sets of devices */
  wcu_mempool pool;
  emu_physical *physical;
  uint64_t offset;             /* into it */
} emu_block;
wcu_result emu_alloc(int device, size_t size, size_t align, emu_kind kind, wcu_mempool pool, uint64_t *out);
wcu_result emu_free(uint64_t at, int kinds);  /* `kinds`: bit set of emu_kind, one of which the allocation must have */
void emu_free_all(int device);                /* its allocations, and those of pinned memory made for it */
bool emu_lookup(uint64_t at, emu_block *out); /* *out: a copy; false: nothing live is there */
bool emu_reachable(int device, uint64_t at, size_t bytes, bool write, char *why, size_t why_size);
uint8_t *emu_host(uint64_t at); /* where the host finds the bytes of a device address */
void emu_peer(int device, int peer, bool on);
uint64_t emu_used(int device);
void emu_memory_of(int device, ptx_memory *out);
wcu_result emu_register(void *at, size_t size);
void emu_pool_access(wcu_mempool pool, int device, bool on); /* for the pool's live allocations */

void emu_heap_lock(void);
void emu_heap_unlock(void);
wcu_mem_handle emu_physical_hand_out_locked(emu_physical *p); /* one more handle, which cuMemRelease takes back */
enum { EMU_GRANULE = 2 * EMU_MIB };                           /* of virtual memory */

/* ---- team.c: multicast objects; all under the heap's lock ---- */
bool emu_team_is_full(const emu_team *t); /* all devices have been added */
/* The memory of each device behind `offset`; the object's first byte has the address `base`. 0: not all have some. */
int emu_team_find(const emu_team *t, uint64_t base, uint64_t offset, ptx_range *out, char *why, size_t size);
bool emu_team_is_used(const emu_team *t); /* memory is bound to it */
void emu_team_free(emu_team *t);

/* ---- queue.c: contexts, streams and their work ---- */
struct wcu_context_st { int device, refs; wcu_result sticky; uint32_t peers; wcu_stream legacy, per_thread; };
extern struct wcu_context_st emu_contexts[EMU_DEVICES];
extern _Thread_local wcu_context emu_current;
extern pthread_mutex_t emu_mu;
extern pthread_cond_t emu_changed;

/* A point in the order of a stream, reached once the work before it is done.  `done` and `ns` change under emu_mu.
 * References are taken under emu_mu and released by an atomic decrement. */
typedef struct emu_mark { int refs; bool done; uint64_t ns; wcu_context context; } emu_mark;
emu_mark *emu_mark_new(void);
emu_mark *emu_mark_retain(emu_mark *m); /* NULL is fine, here and in emu_mark_release; both need no lock */
void emu_mark_release(emu_mark *m);

typedef enum emu_what { EMU_EMPTY, EMU_KERNEL, EMU_COPY, EMU_FILL, EMU_HOST_CALL, EMU_RECORD, EMU_AWAIT, EMU_POOL_FREE, EMU_MANY, EMU_SIGNAL, EMU_POLL, EMU_LIBRARY, EMU_CONDITIONAL } emu_what;
typedef struct emu_work emu_work;
typedef struct emu_condition emu_condition;
struct emu_work {
  emu_what what;
  wcu_kernel_node_params kernel;    /* kernelParams is not used: the values are in `bytes` */
  bool cooperative;
  wcu_memcpy3d copy;
  wcu_memset_node_params fill;
  wcu_host_node_params host;
  emu_mark *mark;                   /* owned reference */
  wcu_event event;                  /* the event of an EMU_RECORD or EMU_AWAIT that is a node of a graph */
  uint64_t at;
  uint32_t value;
  weft_emu_job *job;                /* of an emulated library; its arguments are in `bytes` */
  void (*count)(const void *args, int change); /* of a job: counts its copies; or NULL */
  void *bytes;                      /* owned: kernel parameters, staged source of a copy, arguments of a job */
  size_t byte_count;
  /* owned: the nodes of a launched graph, in an order that their edges allow; the bodies of a conditional node */
  emu_work *many;
  size_t many_count;
  bool is_launch;                   /* of EMU_MANY: a launch, at which handles get their default values */
  wcu_conditional_type type;        /* of a conditional node */
  emu_condition *condition;         /* owned reference */
  wcu_graph *bodies;                /* of a conditional node that is not instantiated, which owns them; else NULL */
  size_t body_count;
};
emu_work emu_work_clone(const emu_work *w);
void emu_work_count_launch(const emu_work *w, int change); /* for the handles of all conditional nodes in it */
void emu_work_drop(emu_work *w);
/* takes w: queues it, or adds it to the graph that the stream captures */
wcu_result emu_submit(wcu_stream stream, emu_work *w);
wcu_result emu_wait(wcu_stream stream); /* waits until all submitted work is done */
wcu_result emu_submit_and_wait(wcu_stream stream, emu_work *w);
wcu_stream emu_stream_of(wcu_stream s); /* resolves the implicit streams; NULL: a bad handle */
wcu_stream emu_stream_new(wcu_context c, unsigned flags, int priority);
void emu_fail(wcu_context c, wcu_result r, const char *text);
wcu_stream emu_all_streams(void);     /* linked by `next`; under emu_mu */
void emu_stop_streams(wcu_context c); /* NULL: of all contexts; waits until their threads have ended */

typedef struct emu_capture emu_capture;
typedef struct emu_task { struct emu_task *next; emu_work work; uint64_t late_ns; struct { wcu_stream stream; uint64_t until; } *after; size_t after_count; } emu_task;
struct wcu_stream_st {
  wcu_stream next;                  /* in the list of all streams that were ever made */
  wcu_context context;
  unsigned flags;
  int priority;
  pthread_t thread;
  pthread_cond_t has_work;          /* for the thread alone: emu_changed would wake the threads of all streams */
  emu_task *first, *last;
  uint64_t submitted, done;
  bool stopping, destroyed;
  bool ended, joined;               /* the thread: it has nothing left to do; its memory was given back */
  emu_capture *capture;
  wcu_graph_node *from;             /* capturing: the nodes on which the next node depends */
  size_t from_count;
};

struct wcu_event_st {
  unsigned flags;
  emu_mark *mark;                   /* of the last record; NULL: never recorded */
  emu_capture *capture;
  uint64_t capture_id;              /* tells captures apart that lie at the same address one after the other */
  wcu_graph_node *from;
  size_t from_count;
};

/* ---- code.c ---- */
struct wcu_module_st { ptx_module *ptx; wcu_context context; struct wcu_function_st *functions; };
struct wcu_function_st { struct wcu_function_st *next; wcu_module module; ptx_kernel *kernel; int max_dynamic; };
int emu_run_kernel(const emu_work *w, wcu_context c, char *error, size_t size);
wcu_result emu_kernel_work(const wcu_kernel_node_params *p, bool cooperative,
                           emu_work *out); /* checks the launch and copies the parameters */
void emu_say(const char *text);

/* ---- graph.c ---- */
struct wcu_graph_node_st { wcu_graph graph; emu_work work; wcu_graph_node *from; size_t from_count, index; };
struct wcu_graph_st {
  wcu_graph_node *nodes;
  size_t count;
  bool is_body;                      /* of a conditional node */
  emu_condition **conditions;        /* handles that were made for this graph; owned references */
  size_t condition_count;
};

/* ---- condition.c: handles of conditional nodes ---- */
emu_condition *emu_condition_new(wcu_context c, uint32_t value, bool has_default); /* one reference */
emu_condition *emu_condition_retain(emu_condition *d);                             /* NULL is fine, here and below */
void emu_condition_release(emu_condition *d);
uint64_t emu_condition_handle(const emu_condition *d);
wcu_context emu_condition_context(const emu_condition *d);
bool emu_condition_take(emu_condition *d); /* for a node; false: another node has it */
bool emu_condition_is_taken(const emu_condition *d);
bool emu_condition_instantiate(emu_condition *d, bool on); /* false: it belongs to an instance already */
void emu_condition_launch(emu_condition *d, int change);   /* a launch is queued: 1, or done: -1 */
void emu_condition_begin(emu_condition *d);                /* a launch: the default value */
uint32_t emu_condition_value(const emu_condition *d);
bool emu_condition_set(uint64_t handle, uint32_t value); /* by a kernel; false: no instance has the handle */

size_t emu_live_graphs(void);        /* graphs and instances of graphs */
void emu_capture_drop(wcu_stream s); /* the stream, on which a capture may have begun, ends; emu_mu is held */
wcu_graph_node emu_graph_add(wcu_graph g, const wcu_graph_node *from, size_t count,
                             emu_work *w);                /* takes w; NULL: a bad node, or no memory */
wcu_result emu_capture_add(wcu_stream s, emu_work *w);    /* under emu_mu */
wcu_result emu_capture_record(wcu_event e, wcu_stream s); /* under emu_mu */
wcu_result emu_capture_wait(wcu_stream s, wcu_event e);   /* under emu_mu */
wcu_result emu_capture_forbids(wcu_stream s); /* may a call wait for s?  If not, the capture ends.  Under emu_mu */
wcu_result emu_check_copy(const wcu_memcpy3d *c, int device);

/* ---- copy.c ---- */
int emu_run_copy(const emu_work *w, int device, char *error, size_t size);
int emu_run_fill(const emu_work *w, int device, char *error, size_t size);

#endif
