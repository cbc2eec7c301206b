/* cli/job.c -- joins a job of several processes. It finds this process's place, serves the coordination service
 * where nobody else does, connects the agent, gives the PJRT client its key-value store, and runs a thread that
 * reports dead processes to the client. */
#include <config.h>

#include "cli/job.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_MS = 200 }; /* how often the watching thread looks whether it must end */

/* ---- the service ---- */

/* True if `host` is an address of this machine. *out_literal: `host` is a number and not a name. */
static bool is_here(const char *host, bool *out_literal)
{
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list = NULL;
  bool found = false;

  *out_literal = getaddrinfo(host, NULL, &hints, &list) == 0;
  hints.ai_flags = 0;
  if (!*out_literal && getaddrinfo(host, NULL, &hints, &list) != 0) return false;
  for (const struct addrinfo *a = list; a && !found; a = a->ai_next) {
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    found = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(list);
  return found;
}

/* Starts the service at `address`. A name may mean loopback on this machine and another address on others: unless
 * the host is `literal`, the service listens on every interface. */
static weft_status *serve(cli_job *job, const char *address, const char *port, bool literal)
{
  weft_coord_service_options options;
  weft_status *st;
  char any[32];

  WEFT_TRY(weft_coord_service_options_load(&options));
  options.task_count = job->place.process_count;
  options.address = address;
  if (literal) return weft_coord_service_start(&options, &job->service);
  options.address = any;
  snprintf(any, sizeof any, "[::]:%.8s", port);
  st = weft_coord_service_start(&options, &job->service);
  if (!st) return NULL;
  weft_status_free(st); /* the machine may have no IPv6 */
  snprintf(any, sizeof any, "0.0.0.0:%.8s", port);
  return weft_coord_service_start(&options, &job->service);
}

/* Process 0 serves at the address that all processes know, unless a service answers there already. */
static weft_status *serve_if_needed(cli_job *job)
{
  const char *address = job->place.address, *colon = strrchr(address, ':');
  bool is_said = getenv("WEFT_COORD_ADDRESS") || getenv("JAX_COORDINATOR_ADDRESS"), literal;
  char host[320], here[256] = "";

  if (job->place.process_id != 0) return NULL;
  if (!colon || colon == address) return WEFT_ERR(INVALID_ARGUMENT, "no host:port: \"%s\"", address);
  bool v6 = *address == '[';
  snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * v6, address + v6);
  if (!is_here(host, &literal)) {
    if (is_said) return NULL;
    gethostname(here, sizeof here - 1);
    return WEFT_ERR(FAILED_PRECONDITION,
                    "process 0 runs on %s, and \"%s\" names %s as the first machine: set WEFT_COORD_ADDRESS in every "
                    "process, or start them with `weft launch --runner`",
                    here, job->place.name, host);
  }
  weft_status *st = serve(job, address, colon + 1, literal);
  if (!is_said || weft_status_code(st) != WEFT_UNAVAILABLE) return st;
  weft_status_free(st); /* taken: the launcher's */
  return NULL;
}

/* ---- joining ---- */

static weft_status *learn_incarnations(cli_job *job)
{
  weft_coord_task_info *infos = NULL;
  int64_t version = -1;

  WEFT_TRY(weft_coord_agent_watch(job->observer, &version, weft_deadline_after_ms(60000), &infos, &job->task_count));
  job->tasks = calloc(job->task_count + 1, sizeof *job->tasks);
  job->incarnations = calloc(job->task_count + 1, sizeof *job->incarnations);
  for (size_t i = 0; job->tasks && job->incarnations && i < job->task_count; i++) {
    job->tasks[i] = infos[i].task;
    job->incarnations[i] = (int64_t)infos[i].incarnation;
  }
  free(infos);
  WEFT_TRY_ALLOC(job->tasks && job->incarnations);
  return NULL;
}

weft_status *cli_job_join(cli_job *job)
{
  weft_coord_agent_options options;
  weft_status *st;

  *job = (cli_job){.place.process_count = 1};
  st = weft_coord_cluster_detect(NULL, &job->place);
  if (weft_status_code(st) == WEFT_NOT_FOUND) {
    weft_status_free(st);
    job->place = (weft_coord_cluster){.process_count = 1};
    return NULL;
  }
  WEFT_TRY_NOTE(st, "looking for the other processes of this job (--alone: there are none)");
  if (job->place.process_count == 1) return NULL;
  WEFT_TRY(serve_if_needed(job));
  WEFT_TRY(weft_coord_agent_options_load(&options));
  options.address = job->place.address;
  options.task_id = job->place.process_id;
  WEFT_TRY(weft_coord_agent_new(&options, &job->agent));
  WEFT_TRY(weft_coord_agent_kv(job->agent, &job->kv));
  WEFT_TRY_NOTE(weft_coord_agent_connect(job->agent), "as process %d of %d", (int)job->place.process_id,
                (int)job->place.process_count);
  WEFT_TRY(weft_coord_agent_new(&options, &job->observer));
  WEFT_TRY(weft_coord_agent_observe(job->observer));
  return learn_incarnations(job);
}

int cli_job_share(const cli_job *job, int total, int *out_first)
{
  int count = job->place.process_count, id = cli_job_has_others(job) ? job->place.process_id : 0;
  int each = total / count, more = total % count; /* the first processes have one device more */

  *out_first = each * id + WEFT_MIN(id, more);
  return each + (id < more);
}

int cli_job_first_here(const cli_job *job, int total)
{
  cli_job there = {.place = job->place};
  int own, machine;

  if (!cli_job_has_others(job) || job->place.local_id <= 0 || job->place.local_id > job->place.process_id) return 0;
  there.place.process_id -= job->place.local_id; /* launchers number a machine's processes one after the other */
  cli_job_share(job, total, &own);
  cli_job_share(&there, total, &machine);
  return own - machine;
}

/* ---- the key-value store, in PJRT's terms ---- */

static PJRT_Error *fail(const PJRT_CallbackError *make, weft_status *st)
{
  const char *text = weft_status_message(st);
  PJRT_Error *error = (*make)((PJRT_Error_Code)weft_status_code(st), text, strlen(text));

  weft_status_free(st);
  return error;
}

static void free_value(char *value) { free(value); }

static weft_status *copy_key(const char *key, size_t size, char **out)
{
  WEFT_TRY_ALLOC(*out = strndup(key, size));
  return NULL;
}

static PJRT_Error *get(PJRT_KeyValueGetCallback_Args *args)
{
  WEFT_AUTO_STR key = NULL;
  weft_status *st = copy_key(args->key, args->key_size, &key);

  if (!st)
    st = weft_kv_get(args->user_arg, key, weft_deadline_after_ms(args->timeout_in_ms), &args->value, &args->value_size);
  if (st) return fail(args->callback_error, st);
  args->value_deleter_callback = free_value;
  return NULL;
}

static PJRT_Error *try_get(PJRT_KeyValueTryGetCallback_Args *args)
{
  WEFT_AUTO_STR key = NULL;
  weft_status *st = copy_key(args->key, args->key_size, &key);

  if (!st) st = weft_kv_try_get(args->user_arg, key, &args->value, &args->value_size);
  if (st) return fail(args->callback_error, st);
  args->value_deleter_callback = free_value;
  return NULL;
}

static PJRT_Error *put(PJRT_KeyValuePutCallback_Args *args)
{
  WEFT_AUTO_STR key = NULL;
  weft_status *st = copy_key(args->key, args->key_size, &key);

  if (!st) st = weft_kv_set(args->user_arg, key, args->value, args->value_size, false);
  return st ? fail(args->callback_error, st) : NULL;
}

void cli_job_give_store(const cli_job *job, PJRT_Client_Create_Args *args)
{
  args->kv_get_callback = get;
  args->kv_try_get_callback = try_get;
  args->kv_put_callback = put;
  args->kv_get_user_arg = args->kv_try_get_user_arg = args->kv_put_user_arg = job->kv;
}

/* ---- deaths ---- */

static void tell(cli_job *job, const weft_coord_task_info *infos, size_t count)
{
  PJRT_ProcessInfo *list = calloc(count + 1, sizeof *list);

  for (size_t i = 0; list && i < count; i++)
    list[i] = (PJRT_ProcessInfo){
      .struct_size = sizeof *list,
      .task_id = infos[i].task,
      .incarnation_id = infos[i].incarnation,
      .state = (PJRT_ProcessState)infos[i].state,
      .error_code = (int)infos[i].error_code,
      .error_message = infos[i].error_message,
      .error_message_size = infos[i].error_message ? strlen(infos[i].error_message) : 0,
    };
  PJRT_Client_UpdateGlobalProcessInfo_Args args = {.struct_size = sizeof args, .client = job->client, .process_infos = list,
                                                   .num_process_infos = list ? count : 0};
  PJRT_Error *error = job->api->PJRT_Client_UpdateGlobalProcessInfo(&args);
  PJRT_Error_Destroy_Args gone = {.struct_size = sizeof gone, .error = error};
  if (error) job->api->PJRT_Error_Destroy(&gone);
  free(list);
}

static void *watch(void *arg)
{
  cli_job *job = arg;
  int64_t version = -1;
  bool lost = false;

  while (!lost && !atomic_load(&job->over)) { /* pairs with the store in cli_job_unwatch */
    weft_coord_task_info *infos = NULL;
    size_t count = 0;
    weft_status *st = weft_coord_agent_watch(job->observer, &version, weft_deadline_after_ms(LOOK_MS), &infos, &count);
    /* when the service ends, `agent` reports it */
    lost = (st && weft_status_code(st) != WEFT_DEADLINE_EXCEEDED) || (!st && version < 0);
    if (!st && count) tell(job, infos, count);
    weft_status_free(st);
    free(infos);
  }
  return NULL;
}

weft_status *cli_job_watch(cli_job *job, const PJRT_Api *api, PJRT_Client *client)
{
  if (!cli_job_has_others(job) ||
      api->struct_size < offsetof(PJRT_Api, PJRT_Client_UpdateGlobalProcessInfo) + sizeof(void *) ||
      !api->PJRT_Client_UpdateGlobalProcessInfo)
    return NULL;
  job->client = client;
  job->api = api;
  weft_status *st = weft_thread_start(&job->watcher, "weft-job", watch, job);
  if (st) job->api = NULL;
  return st;
}

void cli_job_unwatch(cli_job *job)
{
  if (!job->api) return;
  atomic_store(&job->over, true);
  pthread_join(job->watcher, NULL);
  job->api = NULL;
}

/* ---- leaving ---- */

weft_status *cli_job_leave(cli_job *job, const weft_status *error)
{
  if (!job->agent) return NULL;
  if (!error) return weft_coord_agent_shutdown(job->agent);
  /* one line: other tasks quote it in their own errors, and this task prints all of it */
  const char *message = weft_status_message(error);
  WEFT_AUTO_STR line = strndup(message, strcspn(message, "\n"));
  weft_status_ignore(weft_coord_agent_report_error(job->agent, weft_status_code(error), line ? line : ""));
  return NULL;
}

void cli_job_close(cli_job *job)
{
  cli_job_unwatch(job);
  weft_kv_destroy(job->kv);
  weft_coord_agent_free(job->observer);
  weft_coord_agent_free(job->agent);
  weft_coord_service_stop(job->service);
  free(job->tasks);
  free(job->incarnations);
  *job = (cli_job){.place.process_count = 1};
}
