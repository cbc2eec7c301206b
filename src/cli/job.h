/* cli/job.h -- makes this process a member of a job: processes that run the same program, started by `weft launch`,
 * by srun, by mpirun, or by hand with WEFT_* variables. */
#ifndef WEFT_CLI_JOB_H
#define WEFT_CLI_JOB_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/thread.h"
#include "weft/coord.h"
#include "weft/pjrt_c_api.h"

typedef struct cli_job {
  weft_coord_cluster place;     /* with process_count 1 this process is alone, and all that follows is empty */
  weft_coord_service *service;  /* the service, if this process runs it: process 0 where no launcher does */
  weft_coord_agent *agent;
  weft_coord_agent *observer;   /* an observer: it still sees the states of the others after `agent` has failed */
  weft_kv *kv;
  int *tasks;                   /* [task_count] the processes as they were when all had joined, */
  int64_t *incarnations;        /* and their incarnations, in the form in which a launch gives them to PJRT */
  size_t task_count;
  const PJRT_Api *api;          /* the client to which deaths are reported; NULL: none */
  PJRT_Client *client;
  pthread_t watcher;
  atomic_bool over;             /* read by the watching thread */
} cli_job;

/* Reads the place of this process from the environment (weft_coord_cluster_detect). If the job has several
 * processes, waits for all of them. *job must be closed also after an error. Errors:
 *   INVALID_ARGUMENT     the environment is incomplete or contradicts itself
 *   FAILED_PRECONDITION  the service's address is on another machine than process 0, and no launcher serves there
 * and those of weft_coord_agent_connect. */
WEFT_NODISCARD weft_status *cli_job_join(cli_job *job);

static inline bool cli_job_has_others(const cli_job *job) { return job->place.process_count > 1; }

/* The number of devices of this process if the job has `total`; *out_first is the global number of the first one. */
int cli_job_share(const cli_job *job, int total, int *out_first);

/* The same first number, counted from the first device of this machine's processes. */
int cli_job_first_here(const cli_job *job, int total);

/* The options with which a PJRT client of several processes finds the others. */
void cli_job_give_store(const cli_job *job, PJRT_Client_Create_Args *args);

/* Reports processes that die to `client` (borrowed until cli_job_close), so that operations that wait for them end. */
WEFT_NODISCARD weft_status *cli_job_watch(cli_job *job, const PJRT_Api *api, PJRT_Client *client);

/* Leaves the job. Without an error it waits for the other processes; `error` (borrowed) is reported to them. */
WEFT_NODISCARD weft_status *cli_job_leave(cli_job *job, const weft_status *error);
void cli_job_unwatch(cli_job *job); /* call it before the client is destroyed */
void cli_job_close(cli_job *job);

/* Prints in two lines how the job is protected. */
void cli_print_protection(FILE *out, const weft_coord_protection *protection);

/* `weft info --job`: asks the coordination service that the environment names, and prints how the job is protected. */
WEFT_NODISCARD weft_status *cli_print_job(FILE *out);

#endif
