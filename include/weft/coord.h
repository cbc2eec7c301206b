/* weft/coord.h -- how the processes of a job find each other, agree, and learn of each other's failures.
 *
 * One process of a job runs a *service*; every process, that one included, joins it through an *agent*.  The
 * protocol is that of XLA's coordination service: jaxlib's clients can join Weft's service, and Weft's agents can join
 * jaxlib's.
 *
 * Errors are weft_status values with canonical codes (base/status.h); NULL is success.  Every wait has a deadline.
 * Times in options are nanoseconds; the environment variables take units ("30s", "5m"). */
#ifndef WEFT_COORD_H
#define WEFT_COORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/kv.h"
#include "base/options.h"
#include "base/status.h"

WEFT_PUBLIC_BEGIN

/* ---- the service ---- */

typedef struct weft_coord_service weft_coord_service; /* opaque; thread-safe; runs a thread of its own */

/* Fill the struct with weft_coord_service_options_load, then change what differs.  Strings are borrowed until
 * weft_coord_service_start returns. */
typedef struct weft_coord_service_options {
  const char *address;  /* "host:port", "[v6]:port"; port 0 picks a free one; the default is on loopback */
  int64_t task_count;   /* processes of the job: 0 ... task_count - 1 */
  int64_t heartbeat_timeout_ns;
  int64_t register_timeout_ns;
  int64_t shutdown_timeout_ns; /* 0: tasks leave one by one, without a barrier */
  bool recoverable;            /* tasks may die and come back; their failures are not passed on to the others */
  /* "": no secret.  Then only processes of this user or root on this machine are let in, and what the options below
   * allow. */
  const char *secret_file;
  const char *tls_cert_file, *tls_key_file; /* "": cleartext */
  const char *tls_ca_file;     /* "": clients need no certificate */
  /* permits listening beyond loopback without a secret and without client certificates: everyone is let in */
  bool insecure;
  bool allow_unauthenticated;  /* clients without the secret are let in from everywhere */
  /* host names separated by commas: clients without the secret are let in from their addresses */
  const char *hosts;
  int64_t max_key_bytes, max_value_bytes;
  int64_t max_task_keys, max_task_bytes, max_task_barriers; /* kept for one task; 0: no limit but max_total_bytes */
  int64_t max_task_waits; /* waiting calls of one task; 0: no limit but max_total_bytes */
  int64_t max_streams;         /* concurrent calls of one connection */
  int64_t max_connections;
  int64_t max_unread_bytes;    /* bytes of replies to one connection that its client has not read */
  int64_t max_total_bytes;     /* bytes of keys, values, requests, waiting calls and unsent replies, all together */
} weft_coord_service_options;

extern const weft_option_table weft_coord_service_option_table;

/* Sets the defaults and what the WEFT_COORD_* variables say.  Errors: INVALID_ARGUMENT, naming the variable. */
WEFT_NODISCARD weft_status *weft_coord_service_options_load(weft_coord_service_options *out_options);

/* Listens and serves on a thread of its own.
 * Errors: INVALID_ARGUMENT     an address, option or file is not valid
 *         FAILED_PRECONDITION  the address is beyond loopback, and no option tells the job's processes from others
 *         UNAVAILABLE          the service cannot listen at the address, for example because another process does */
WEFT_NODISCARD weft_status *weft_coord_service_start(const weft_coord_service_options *options,
                                                     weft_coord_service **out_service);

const char *weft_coord_service_address(const weft_coord_service *service); /* "host:port" to connect to; borrowed */

/* Ends all waiting calls, closes the connections and frees the service.  NULL is fine. */
void weft_coord_service_stop(weft_coord_service *service);
WEFT_DEFINE_AUTO(weft_coord_service, weft_coord_service_stop)

/* ---- the agent ---- */

/* One process's membership in a job.  Opaque; runs a thread of its own.
 * Threads: all functions are thread-safe, but the caller must serialise connect, shutdown and free.  Functions block
 * up to their deadlines.  Called from the agent's own callback, a function that blocks fails with
 * FAILED_PRECONDITION. */
typedef struct weft_coord_agent weft_coord_agent;

typedef struct weft_coord_agent_options {
  const char *address;          /* of the service, host:port */
  int64_t task_id;
  int64_t heartbeat_timeout_ns; /* must be the service's; heartbeats are sent at half of it */
  /* of connect and observe, which wait for the service; connect also for all processes.  0: an hour */
  int64_t init_timeout_ns;
  int64_t shutdown_timeout_ns;
  /* true: the agent learns of other processes' failures at once; false: with its next heartbeat */
  bool poll_for_error;
  /* not from the environment.  True: observe fails if no service listens; false: observe waits for one */
  bool observes_at_once;
  const char *secret_file;
  const char *tls_cert_file, *tls_key_file, *tls_ca_file; /* with a CA file the service must show a certificate */
  int64_t max_message_bytes;    /* the largest reply that is accepted */
  /* Not from the environment; may be NULL.  Called once, on the agent's thread with no lock held, when the job or
   * this process's part in it has failed; `error` is borrowed.  From then on barriers, live_tasks, report_error and
   * shutdown fail with FAILED_PRECONDITION. */
  void (*on_error)(void *ctx, const weft_status *error);
  void *on_error_ctx;
} weft_coord_agent_options;

extern const weft_option_table weft_coord_agent_option_table;

/* Sets the defaults and what the WEFT_COORD_* variables say.  Errors: INVALID_ARGUMENT, naming the variable. */
WEFT_NODISCARD weft_status *weft_coord_agent_options_load(weft_coord_agent_options *out_options);

/* Makes an agent with a new incarnation.  It joins the job by weft_coord_agent_connect. */
WEFT_NODISCARD weft_status *weft_coord_agent_new(const weft_coord_agent_options *options, weft_coord_agent **out_agent);

/* Frees the agent without telling the service, to which that looks like a crash; call shutdown first.  Calls in
 * progress end with CANCELLED; no thread may begin another call.  NULL is fine. */
void weft_coord_agent_free(weft_coord_agent *agent);
WEFT_DEFINE_AUTO(weft_coord_agent, weft_coord_agent_free)

/* Joins the job; returns when all its processes have joined.
 * Errors: DEADLINE_EXCEEDED  a process is missing (the text names it), or the service cannot be reached
 *         ABORTED            this process was restarted, and the job does not allow that
 *         ALREADY_EXISTS     a newer incarnation of this process has joined, or another process has its id */
WEFT_NODISCARD weft_status *weft_coord_agent_connect(weft_coord_agent *agent);

/* For tools: finds out which service listens at the address, without joining the job.  Keys, watches and status
 * work.  A barrier call counts for the task of the options; Weft's service refuses it with PERMISSION_DENIED while
 * another process is connected as that task. */
WEFT_NODISCARD weft_status *weft_coord_agent_observe(weft_coord_agent *agent);

/* Leaves the job; returns when all its processes leave.  Waiting calls of this process end with CANCELLED.
 * Errors: INTERNAL             a process did not shut down in time; the text names it
 *         FAILED_PRECONDITION  this agent was in error */
WEFT_NODISCARD weft_status *weft_coord_agent_shutdown(weft_coord_agent *agent);

/* The random number that distinguishes this process from an earlier process with the same id. */
uint64_t weft_coord_agent_incarnation(const weft_coord_agent *agent);

/* A copy of the error that on_error was called with; NULL if there is none. */
WEFT_NODISCARD weft_status *weft_coord_agent_error(weft_coord_agent *agent);

/* Keys and values as a weft_kv (base/kv.h).  Borrows the agent, which must outlive the weft_kv.  Keys are paths:
 * "a//b/" is the same key as "a/b". */
WEFT_NODISCARD weft_status *weft_coord_agent_kv(weft_coord_agent *agent, weft_kv **out_kv);

/* Adds `increment` to the value of `key`, a decimal number as text (0 if there is no such key); *out_value: the sum.
 * Errors: FAILED_PRECONDITION  the value is not a number */
WEFT_NODISCARD weft_status *weft_coord_agent_increment(weft_coord_agent *agent, const char *key, int64_t increment,
                                                       int64_t *out_value);

/* Gets all keys below `directory`, in order.  The list is one malloc'd block, owned by the caller. */
typedef struct weft_coord_entry {
  const char *key;
  const char *value; /* NUL-terminated past its end */
  size_t size;
} weft_coord_entry;
WEFT_NODISCARD weft_status *weft_coord_agent_list(weft_coord_agent *agent, const char *directory,
                                                  weft_coord_entry **out_entries, size_t *out_count);

/* Waits until all of `tasks` (count 0: every process) have called with this id.  An id may be used again and again.
 *   timeout_ns  enforced by the service, from the first process's call
 * Errors: DEADLINE_EXCEEDED    the text names the missing processes, and when each was last heard of
 *         INTERNAL             a process failed, left, or was restarted; or not all have called it equally often
 *         INVALID_ARGUMENT     the callers name different processes, or this one is not among them
 *         CANCELLED            cancelled, or this agent is shutting down
 *         FAILED_PRECONDITION  a thread of this process already waits there, or this agent is in error */
WEFT_NODISCARD weft_status *weft_coord_agent_barrier(weft_coord_agent *agent, const char *id, int64_t timeout_ns,
                                                     const int32_t *tasks, size_t count);

/* Cancels for all processes the barrier in which another thread of this process waits.
 * Errors: FAILED_PRECONDITION  no thread waits there, or the barrier has been passed */
WEFT_NODISCARD weft_status *weft_coord_agent_barrier_cancel(weft_coord_agent *agent, const char *id);

typedef struct weft_coord_live_task {
  int32_t task;
  uint64_t incarnation;
} weft_coord_live_task;

/* Gets those of `tasks` (this process must be one of them) that are alive.  Waits until every live one of them has
 * asked; all of them get the same answer.  The list is malloc'd, owned by the caller. */
WEFT_NODISCARD weft_status *weft_coord_agent_live_tasks(weft_coord_agent *agent, const int32_t *tasks, size_t count,
                                                        weft_deadline deadline, weft_coord_live_task **out_tasks,
                                                        size_t *out_count);

typedef enum weft_coord_task_state {
  WEFT_COORD_TASK_DISCONNECTED = 2, /* the protocol's numbers */
  WEFT_COORD_TASK_CONNECTED = 3,
  WEFT_COORD_TASK_ERROR = 4,
} weft_coord_task_state;

typedef struct weft_coord_task_info {
  int32_t task;
  weft_coord_task_state state;
  uint64_t incarnation;
  weft_code error_code; /* WEFT_OK: none */
  const char *error_message;
} weft_coord_task_info;

/* Waits until the processes' states differ from those of *version (-1: none seen yet), and returns all of them.
 *   version    in and out; -1 on return, with an empty list: the service is shutting down
 *   out_infos  malloc'd as one block, owned by the caller; sorted by task */
WEFT_NODISCARD weft_status *weft_coord_agent_watch(weft_coord_agent *agent, int64_t *version, weft_deadline deadline,
                                                   weft_coord_task_info **out_infos, size_t *out_count);

/* Reports to the job that this process has failed. Gives up after some seconds, since the process is about to end. */
WEFT_NODISCARD weft_status *weft_coord_agent_report_error(weft_coord_agent *agent, weft_code code, const char *message);

/* The state of a service, for tools.  Weft's service reports all of it; jaxlib's only the tasks' states (is_partial
 * is set). */
typedef struct weft_coord_status_task {
  weft_coord_task_info info;
  int64_t heartbeat_age_ms; /* -1: unknown or never */
  int64_t lost_ms;          /* since its connection to the service ended; -1: it is connected, never was, or unknown */
  bool recoverable;
} weft_coord_status_task;
typedef struct weft_coord_status_barrier {
  const char *id;
  int64_t counter, age_ms, left_ms; /* left_ms -1: no limit */
  int32_t arrived, participants;
  const int32_t *missing; /* at most 100 of them */
  size_t missing_count;
} weft_coord_status_barrier;
/* How a job is protected, and how many connections of its service each kind of access let in. */
typedef struct weft_coord_protection {
  bool has_secret;
  bool has_tls, asks_certificates; /* of clients */
  bool lets_anyone_in;             /* clients without the secret, from anywhere */
  int64_t hosts;                   /* addresses from which clients without the secret are let in */
  int64_t by_secret, by_certificate, by_uid, by_host, by_anyone;
  int64_t strangers;               /* connections of which no call has been let in yet */
  int64_t refused_calls;
} weft_coord_protection;
typedef struct weft_coord_status_report {
  bool is_partial;
  uint64_t service_incarnation;
  int64_t uptime_ms, heartbeat_timeout_ms, keys, key_value_bytes, waiting_gets, connections, memory_bytes;
  const char *first_error; /* "": none */
  weft_coord_protection protection;
  const weft_coord_status_task *tasks;
  size_t task_count;
  const weft_coord_status_barrier *barriers;
  size_t barrier_count;
} weft_coord_status_report;

/* The agent must have connected, or observe.  *out_report is freed by weft_coord_status_report_free. */
WEFT_NODISCARD weft_status *weft_coord_agent_status(weft_coord_agent *agent, weft_coord_status_report **out_report);
void weft_coord_status_report_free(weft_coord_status_report *report); /* NULL is fine */
WEFT_DEFINE_AUTO(weft_coord_status_report, weft_coord_status_report_free)

/* ---- keys and values through callbacks, as a PJRT client hands them in ---- */

typedef struct weft_coord_kv_callbacks {
  void *ctx;
  /* As the entries of weft_kv_ops.  If try_get is NULL, get is called with a short timeout.  There are no callbacks
   * to remove or overwrite a key: the weft_kv answers UNIMPLEMENTED. */
  weft_status *(*get)(void *ctx, const char *key, int64_t timeout_ms, char **out_value, size_t *out_size);
  weft_status *(*try_get)(void *ctx, const char *key, char **out_value, size_t *out_size);
  weft_status *(*put)(void *ctx, const char *key, const void *value, size_t size);
} weft_coord_kv_callbacks;
WEFT_NODISCARD weft_status *weft_coord_kv_callbacks_new(const weft_coord_kv_callbacks *callbacks, weft_kv **out_kv);

/* ---- this process's place in a job, from the variables of batch systems and launchers ---- */

typedef struct weft_coord_cluster {
  const char *name;    /* "weft", "ompi", "slurm", "pmix", "hydra", "k8s"; static */
  char address[320];   /* of the coordination service, host:port: by convention on process 0's machine */
  int32_t process_count, process_id;
  int32_t local_id;    /* number of this process among those of this machine; -1: not known */
} weft_coord_cluster;

/* Reads the environment, and for Kubernetes /etc/hosts; uses no network and starts no process.
 *   method  NULL or "": the first that is present, in the order above; a name: that one; "deactivate": none
 * WEFT_COORD_ADDRESS, WEFT_NUM_PROCESSES, WEFT_PROCESS_ID, WEFT_LOCAL_PROCESS_ID, JAX_COORDINATOR_ADDRESS and
 * JAX_COORDINATOR_PORT always override what is detected.
 * Errors: NOT_FOUND         there is no such environment here, or detection is deactivated
 *         INVALID_ARGUMENT  the environment is incomplete or not valid; the text names the variable.  Or `method` is
 *                           not the name of a method */
WEFT_NODISCARD weft_status *weft_coord_cluster_detect(const char *method, weft_coord_cluster *out_cluster);

/* ---- topology: the devices of all processes, with ids that survive restarts ---- */

typedef struct weft_coord_device {
  int32_t local_ordinal;
  int32_t global_id;       /* out, unless keep_global_ids */
  int32_t partition_index; /* out */
  int32_t core_count, numa_node;
  int64_t memory_bytes;
  const char *name, *vendor, *kind; /* "" if unknown; so are the next two */
  const char *compute_capability, *fabric_uuid;
} weft_coord_device;

typedef struct weft_coord_local_topology {
  int32_t process_id;
  const char *boot_id;           /* one value for each machine and boot: weft_coord_boot_id */
  int32_t partition_index;       /* -1: found from fabric_uuid or boot_id; all processes must set it or none */
  /* the place in the network, top level first; processes near each other get ids near each other */
  const char *const *network_nodes;
  size_t network_node_count;
  weft_coord_device *devices;
  size_t device_count;
} weft_coord_local_topology;

typedef struct weft_coord_global_topology {
  weft_coord_local_topology *processes; /* in the order of the network, which may differ from that of process ids */
  size_t process_count;
} weft_coord_global_topology;

typedef struct weft_coord_topology_options {
  const char *platform;     /* keys are local_topology/PLATFORM/ID and global_topology/PLATFORM */
  int32_t process_count;
  bool keep_global_ids;     /* the devices' global_id are set by the caller; else they are numbered from 0 */
  int64_t local_timeout_ns, global_timeout_ns; /* 0: 2 min and 5 min */
} weft_coord_topology_options;

/* Publishes `local`, and returns the topology that process 0 makes from those of all processes.  A process that is
 * restarted with the same devices gets the same answer, whatever its incarnation.
 * Errors: INTERNAL          it was restarted with other devices; the text says which
 *         INVALID_ARGUMENT  some processes set their partition and some do not
 *         DEADLINE_EXCEEDED a process has not published; the text names its key */
WEFT_NODISCARD weft_status *weft_coord_topology_exchange(weft_kv *kv, const weft_coord_topology_options *options,
                                                         const weft_coord_local_topology *local,
                                                         weft_coord_global_topology **out_global);
void weft_coord_global_topology_free(weft_coord_global_topology *global); /* NULL is fine */
WEFT_DEFINE_AUTO(weft_coord_global_topology, weft_coord_global_topology_free)

/* Writes the id of this boot of this machine to `buf` (64 bytes), "" if it is not known.  Returns `buf`. */
const char *weft_coord_boot_id(char *buf);

/* ---- preemption: when one process gets notice of its end, all stop at the same step ---- */

typedef struct weft_coord_preemption weft_coord_preemption; /* opaque; thread-safe; runs a thread of its own */

typedef struct weft_coord_preemption_options {
  bool enabled;          /* false: new returns FAILED_PRECONDITION and touches nothing */
  bool watch_sigterm;    /* installs a SIGTERM handler in place of the old one, which free restores */
  int64_t notice_ns;     /* how long before the announced end the processes agree on a step; default 15 min */
  int64_t barrier_timeout_ns;
  int64_t poll_ns;       /* how often the signal is looked for */
} weft_coord_preemption_options;

extern const weft_option_table weft_coord_preemption_option_table;
/* Sets the defaults and what the WEFT_COORD_PREEMPTION* variables say.  Errors: INVALID_ARGUMENT, naming the
 * variable. */
WEFT_NODISCARD weft_status *weft_coord_preemption_options_load(weft_coord_preemption_options *out_options);

/* Starts to listen for notices; jaxlib's processes take part in the same protocol.  Borrows the agent, which must
 * outlive it.
 * Errors: FAILED_PRECONDITION  switched off, or another weft_coord_preemption of this process watches SIGTERM */
WEFT_NODISCARD weft_status *weft_coord_preemption_new(weft_coord_agent *agent,
                                                      const weft_coord_preemption_options *options,
                                                      weft_coord_preemption **out_preemption);
void weft_coord_preemption_free(weft_coord_preemption *preemption); /* NULL is fine */
WEFT_DEFINE_AUTO(weft_coord_preemption, weft_coord_preemption_free)

/* Tells the job that this process will end in `death_ns` nanoseconds.  SIGTERM does the same with 0. */
WEFT_NODISCARD weft_status *weft_coord_preemption_announce(weft_coord_preemption *preemption, int64_t death_ns);

/* Called once for each step, with step numbers that skip none.  True at the one step on which all processes have
 * agreed, at most once in a job's life.  Blocks only while the processes agree, up to barrier_timeout_ns. */
bool weft_coord_preemption_reached_sync_point(weft_coord_preemption *preemption, int64_t step);

WEFT_PUBLIC_END

#endif
