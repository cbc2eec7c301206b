/* weft/coord.h -- how the processes of a job find each other, agree, and learn of each other's end.
 *
 * One process of a job runs a *service*; every process, that one included, joins it through an *agent*.  The protocol
 * is the one of XLA's coordination service: jaxlib's clients join our service, our agents join jaxlib's.
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

typedef struct weft_coord_service weft_coord_service; /* opaque; thread-safe; one thread of its own */

/* Fill with weft_coord_service_options_load, then change what differs.  Strings are borrowed until start returns. */
typedef struct weft_coord_service_options {
  const char *address;  /* "host:port", "[v6]:port"; port 0 picks a free one; loopback unless told otherwise */
  int64_t task_count;   /* processes of the job: 0 ... task_count - 1 */
  int64_t heartbeat_timeout_ns;
  int64_t register_timeout_ns;
  int64_t shutdown_timeout_ns; /* 0: tasks leave one by one, with no barrier */
  bool recoverable;            /* tasks may die and return; their failures are not spread */
  const char *secret_file;     /* "": no secret; then only processes of this user on this machine are let in, and see below */
  const char *tls_cert_file, *tls_key_file; /* "": cleartext */
  const char *tls_ca_file;     /* "": clients need no certificate */
  bool insecure;               /* beyond loopback without a secret and without client certificates: everyone is let in */
  bool allow_unauthenticated;  /* clients without the secret are let in from anywhere */
  const char *hosts;           /* names with commas: clients without the secret are let in from their addresses */
  int64_t max_key_bytes, max_value_bytes;
  int64_t max_task_keys, max_task_bytes, max_task_barriers; /* that one task keeps; 0: as many as memory */
  int64_t max_task_waits; /* calls of one task that wait for something to happen; 0: as many as memory */
  int64_t max_streams;         /* of one connection */
  int64_t max_connections;
  int64_t max_unread_bytes;    /* replies of one connection that its peer has not taken */
  int64_t max_total_bytes;     /* keys, values, requests, waiters, replies on the way: all together */
} weft_coord_service_options;

extern const weft_option_table weft_coord_service_option_table;

/* Defaults and WEFT_COORD_* variables.  Errors: INVALID_ARGUMENT, naming the variable. */
WEFT_NODISCARD weft_status *weft_coord_service_options_load(weft_coord_service_options *out_options);

/* Listens and serves on a thread of its own.
 * Errors: INVALID_ARGUMENT     address, option or file that makes no sense
 *         FAILED_PRECONDITION  the address is not of loopback, and nothing tells the job's processes from others
 *         UNAVAILABLE          the address cannot be had; somebody may be listening there */
WEFT_NODISCARD weft_status *weft_coord_service_start(const weft_coord_service_options *options,
                                                     weft_coord_service **out_service);

const char *weft_coord_service_address(const weft_coord_service *service); /* "host:port" to connect to; borrowed */

/* Ends all that is waiting, closes the connections and frees.  NULL is fine. */
void weft_coord_service_stop(weft_coord_service *service);
WEFT_DEFINE_AUTO(weft_coord_service, weft_coord_service_stop)

/* ---- the agent ---- */

/* One process's membership in a job.  Opaque; one thread of its own.
 * Threads: all functions are thread-safe; connect, shutdown and free are serialised by the caller.  They block, up to
 * their deadlines, and so may not be called from the agent's own callback (FAILED_PRECONDITION). */
typedef struct weft_coord_agent weft_coord_agent;

typedef struct weft_coord_agent_options {
  const char *address;          /* of the service, host:port */
  int64_t task_id;
  int64_t heartbeat_timeout_ns; /* as the service has it: heartbeats go out at half of it */
  int64_t init_timeout_ns;      /* of connect: the service may not be there yet, other processes neither; 0: an hour */
  int64_t shutdown_timeout_ns;
  bool poll_for_error;          /* learn of other processes' failures at once, not at the next heartbeat */
  bool observes_at_once;        /* not from the environment: `observe` fails where no service listens; else it waits for one */
  const char *secret_file;
  const char *tls_cert_file, *tls_key_file, *tls_ca_file; /* with tls_ca_file the service must show a certificate */
  int64_t max_message_bytes;    /* the largest reply taken */
  /* Not from the environment: called once, on the agent's thread with no lock held, when the job or this process's
   * part in it has failed; `error` is borrowed.  NULL: nobody is told; calls then fail FAILED_PRECONDITION. */
  void (*on_error)(void *ctx, const weft_status *error);
  void *on_error_ctx;
} weft_coord_agent_options;

extern const weft_option_table weft_coord_agent_option_table;

/* Defaults and WEFT_COORD_* variables.  Errors: INVALID_ARGUMENT, naming the variable. */
WEFT_NODISCARD weft_status *weft_coord_agent_options_load(weft_coord_agent_options *out_options);

/* Makes an agent that has not joined yet, with an incarnation of its own. */
WEFT_NODISCARD weft_status *weft_coord_agent_new(const weft_coord_agent_options *options, weft_coord_agent **out_agent);

/* Frees without a word to the service, as a crash would; call shutdown first.  Calls in progress end CANCELLED and must
 * have returned before this does, so no thread may start one.  NULL is fine. */
void weft_coord_agent_free(weft_coord_agent *agent);
WEFT_DEFINE_AUTO(weft_coord_agent, weft_coord_agent_free)

/* Joins the job; returns when all its processes have.
 * Errors: DEADLINE_EXCEEDED  somebody is missing, the text says who, or the service cannot be reached
 *         ABORTED            this process was restarted and the job does not allow that
 *         ALREADY_EXISTS     a newer incarnation of this process has joined */
WEFT_NODISCARD weft_status *weft_coord_agent_connect(weft_coord_agent *agent);

/* For tools: learns which service this is, without joining.  Keys, watches and status work; a barrier counts for the
 * task of the options, whoever else may be that. */
WEFT_NODISCARD weft_status *weft_coord_agent_observe(weft_coord_agent *agent);

/* Leaves the job; returns when all its processes do.  Whatever waits in this process ends CANCELLED.
 * Errors: INTERNAL             some process did not come to the shutdown; the text says who
 *         FAILED_PRECONDITION  this agent was in error */
WEFT_NODISCARD weft_status *weft_coord_agent_shutdown(weft_coord_agent *agent);

uint64_t weft_coord_agent_incarnation(const weft_coord_agent *agent);

/* A copy of the error that on_error told; NULL if there is none. */
WEFT_NODISCARD weft_status *weft_coord_agent_error(weft_coord_agent *agent);

/* Keys and values, as a weft_kv (base/kv.h).  Borrows the agent, which must outlive it.  Keys are paths: "a//b/" is "a/b". */
WEFT_NODISCARD weft_status *weft_coord_agent_kv(weft_coord_agent *agent, weft_kv **out_kv);

/* Adds to a decimal number kept as text (missing: 0) and returns the sum.
 * Errors: FAILED_PRECONDITION  the value is no number */
WEFT_NODISCARD weft_status *weft_coord_agent_increment(weft_coord_agent *agent, const char *key, int64_t increment,
                                                       int64_t *out_value);

/* All keys below `directory`, in order.  The list is one malloc'd block, the caller's. */
typedef struct weft_coord_entry {
  const char *key;
  const char *value; /* NUL-terminated past its end */
  size_t size;
} weft_coord_entry;
WEFT_NODISCARD weft_status *weft_coord_agent_list(weft_coord_agent *agent, const char *directory,
                                                  weft_coord_entry **out_entries, size_t *out_count);

/* Waits until all of `tasks` (count 0: every process) have called with this id; an id may be used again and again.
 *   timeout_ns  enforced by the service, from the first process's call
 * Errors: DEADLINE_EXCEEDED  the text names the missing, and when they were last heard of
 *         INTERNAL           a process failed, left, or was restarted; or the callers are out of step
 *         INVALID_ARGUMENT   the callers name different processes, or this one is not among them
 *         CANCELLED          cancelled, or this agent is shutting down */
WEFT_NODISCARD weft_status *weft_coord_agent_barrier(weft_coord_agent *agent, const char *id, int64_t timeout_ns,
                                                     const int32_t *tasks, size_t count);

/* Ends for everybody the barrier in which another thread of this process waits.
 * Errors: FAILED_PRECONDITION  there is none, or it has been passed */
WEFT_NODISCARD weft_status *weft_coord_agent_barrier_cancel(weft_coord_agent *agent, const char *id);

typedef struct weft_coord_live_task {
  int32_t task;
  uint64_t incarnation;
} weft_coord_live_task;

/* Which of `tasks` (this one must be among them) are alive, as all of them who are alive agree: waits until each has
 * asked.  The list is malloc'd, the caller's. */
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
 *   out_infos  malloc'd as one block, the caller's; sorted by task */
WEFT_NODISCARD weft_status *weft_coord_agent_watch(weft_coord_agent *agent, int64_t *version, weft_deadline deadline,
                                                   weft_coord_task_info **out_infos, size_t *out_count);

/* Tells the job that this process has failed; gives up after some seconds, for the process is about to end. */
WEFT_NODISCARD weft_status *weft_coord_agent_report_error(weft_coord_agent *agent, weft_code code, const char *message);

/* What the service knows, for tools.  Ours says all; jaxlib's only the tasks' states (then is_partial is set). */
typedef struct weft_coord_status_task {
  weft_coord_task_info info;
  int64_t heartbeat_age_ms; /* -1: unknown or never */
  int64_t lost_ms;          /* since its connection to the service ended; -1: it has one, or never had, or unknown */
  bool recoverable;
} weft_coord_status_task;
typedef struct weft_coord_status_barrier {
  const char *id;
  int64_t counter, age_ms, left_ms; /* left_ms -1: no limit */
  int32_t arrived, participants;
  const int32_t *missing; /* at most 100 of them */
  size_t missing_count;
} weft_coord_status_barrier;
/* How a job is protected, and how many of its service's connections were let in by what. */
typedef struct weft_coord_protection {
  bool has_secret;
  bool has_tls, asks_certificates; /* of clients */
  bool lets_anyone_in;             /* clients without the secret, from anywhere */
  int64_t hosts;                   /* addresses from which clients without the secret are let in */
  int64_t by_secret, by_certificate, by_uid, by_host, by_anyone;
  int64_t strangers;               /* no call of theirs was let in yet */
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

/* Works on an agent that has connected or observes.  The report is freed as one. */
WEFT_NODISCARD weft_status *weft_coord_agent_status(weft_coord_agent *agent, weft_coord_status_report **out_report);
void weft_coord_status_report_free(weft_coord_status_report *report); /* NULL is fine */
WEFT_DEFINE_AUTO(weft_coord_status_report, weft_coord_status_report_free)

/* ---- keys and values through somebody else's callbacks, as a PJRT client hands them in ---- */

typedef struct weft_coord_kv_callbacks {
  void *ctx;
  /* As the entries of weft_kv_ops; try_get NULL: get with a short deadline.  There is no removal and no overwriting in
   * them: those fail UNIMPLEMENTED. */
  weft_status *(*get)(void *ctx, const char *key, int64_t timeout_ms, char **out_value, size_t *out_size);
  weft_status *(*try_get)(void *ctx, const char *key, char **out_value, size_t *out_size);
  weft_status *(*put)(void *ctx, const char *key, const void *value, size_t size);
} weft_coord_kv_callbacks;
WEFT_NODISCARD weft_status *weft_coord_kv_callbacks_new(const weft_coord_kv_callbacks *callbacks, weft_kv **out_kv);

/* ---- where am I: what batch systems and launchers say ---- */

typedef struct weft_coord_cluster {
  const char *name;    /* "weft", "ompi", "slurm", "pmix", "hydra", "k8s"; static */
  char address[320];   /* of the coordination service, host:port: by convention on process 0's machine */
  int32_t process_count, process_id;
  int32_t local_id;    /* among the processes of this machine; -1: not known */
} weft_coord_cluster;

/* Reads the environment, and for Kubernetes /etc/hosts; asks nobody, starts nothing.
 *   method  NULL or "": the first that is present, in the order above; a name: that one; "deactivate": none
 * WEFT_COORD_ADDRESS, WEFT_NUM_PROCESSES, WEFT_PROCESS_ID, WEFT_LOCAL_PROCESS_ID, JAX_COORDINATOR_ADDRESS and
 * JAX_COORDINATOR_PORT always win over what is detected.
 * Errors: NOT_FOUND         no such environment here, or deactivated
 *         INVALID_ARGUMENT  it is there and incomplete or makes no sense; the text names the variable */
WEFT_NODISCARD weft_status *weft_coord_cluster_detect(const char *method, weft_coord_cluster *out_cluster);

/* ---- topology: every process's devices, as one picture with ids that survive restarts ---- */

typedef struct weft_coord_device {
  int32_t local_ordinal;
  int32_t global_id;       /* out, unless ids are the caller's own */
  int32_t partition_index; /* out */
  int32_t core_count, numa_node;
  int64_t memory_bytes;
  const char *name, *vendor, *kind; /* "" if there is nothing to say; so the next two */
  const char *compute_capability, *fabric_uuid;
} weft_coord_device;

typedef struct weft_coord_local_topology {
  int32_t process_id;
  const char *boot_id;           /* one value for each machine and boot: weft_coord_boot_id */
  int32_t partition_index;       /* -1: found from fabric_uuid or boot_id; all processes say it or none does */
  const char *const *network_nodes; /* where in the network, top level first; processes near each other get ids near
                                       each other */
  size_t network_node_count;
  weft_coord_device *devices;
  size_t device_count;
} weft_coord_local_topology;

typedef struct weft_coord_global_topology {
  weft_coord_local_topology *processes; /* in the order of the network, which may not be the one of process ids */
  size_t process_count;
} weft_coord_global_topology;

typedef struct weft_coord_topology_options {
  const char *platform;     /* keys are local_topology/PLATFORM/ID and global_topology/PLATFORM */
  int32_t process_count;
  bool keep_global_ids;     /* the devices' global_id are the caller's; else they are numbered from 0 */
  int64_t local_timeout_ns, global_timeout_ns; /* 0: 2 min and 5 min */
} weft_coord_topology_options;

/* Publishes `local`, and returns what process 0 makes of everybody's.  A process that comes back with the same devices
 * gets the same answer, whatever its incarnation.
 * Errors: INTERNAL          it came back with other devices; the text says which
 *         INVALID_ARGUMENT  some processes say their partition and some do not
 *         DEADLINE_EXCEEDED a process has not published; the text names its key */
WEFT_NODISCARD weft_status *weft_coord_topology_exchange(weft_kv *kv, const weft_coord_topology_options *options,
                                                         const weft_coord_local_topology *local,
                                                         weft_coord_global_topology **out_global);
void weft_coord_global_topology_free(weft_coord_global_topology *global); /* NULL is fine */
WEFT_DEFINE_AUTO(weft_coord_global_topology, weft_coord_global_topology_free)

/* Of this boot of this machine, "" if it cannot be told; buf of 64 bytes. */
const char *weft_coord_boot_id(char *buf);

/* ---- preemption: all processes stop at the same step when one is told to go ---- */

typedef struct weft_coord_preemption weft_coord_preemption; /* opaque; thread-safe; one thread of its own */

typedef struct weft_coord_preemption_options {
  bool enabled;          /* false: new returns FAILED_PRECONDITION and touches nothing */
  bool watch_sigterm;    /* installs a SIGTERM handler, which replaces the process's; restored by free */
  int64_t notice_ns;     /* how long before the end the processes agree: 15 min */
  int64_t barrier_timeout_ns;
  int64_t poll_ns;       /* how often the signal is looked for */
} weft_coord_preemption_options;

extern const weft_option_table weft_coord_preemption_option_table;
WEFT_NODISCARD weft_status *weft_coord_preemption_options_load(weft_coord_preemption_options *out_options);

/* Starts to listen; jaxlib's processes take part in the same protocol.  Borrows the agent, which must outlive it.
 * Errors: FAILED_PRECONDITION  switched off, or another one watches SIGTERM in this process */
WEFT_NODISCARD weft_status *weft_coord_preemption_new(weft_coord_agent *agent,
                                                      const weft_coord_preemption_options *options,
                                                      weft_coord_preemption **out_preemption);
void weft_coord_preemption_free(weft_coord_preemption *preemption); /* NULL is fine */
WEFT_DEFINE_AUTO(weft_coord_preemption, weft_coord_preemption_free)

/* Tells the job that this process will end at `death_ns` from now: what the signal does with 0. */
WEFT_NODISCARD weft_status *weft_coord_preemption_announce(weft_coord_preemption *preemption, int64_t death_ns);

/* Called once for each step, with numbers that are not skipped: true at the one step on which all processes have agreed,
 * at most once in a job's life.  Never blocks for long: while the processes agree, up to barrier_timeout_ns. */
bool weft_coord_preemption_reached_sync_point(weft_coord_preemption *preemption, int64_t step);

WEFT_PUBLIC_END

#endif
