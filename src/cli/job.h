/* cli/job.h -- this process among others that run the same program: `weft launch`, srun, mpirun, or WEFT_* variables by hand. */
#ifndef WEFT_CLI_JOB_H
#define WEFT_CLI_JOB_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/thread.h"
#include "weft/coord.h"
#include "weft/pjrt_c_api.h"

typedef struct cli_job {
  weft_coord_cluster place;     /* process_count 1: this process is alone, and the rest is empty */
  weft_coord_service *service;  /* in process 0, where no launcher brings one */
  weft_coord_agent *agent;
  weft_coord_agent *observer;   /* sees the others' states also when `agent` has been told of a failure */
  weft_kv *kv;
  int *tasks;                   /* [task_count] the processes as they were when all had come, */
  int64_t *incarnations;        /* and which lives of them these are: as a launch says it to PJRT */
  size_t task_count;
  const PJRT_Api *api;          /* of the client that is told of deaths; NULL: nobody watches */
  PJRT_Client *client;
  pthread_t watcher;
  atomic_bool over;             /* read by the watcher */
} cli_job;

/* Finds out from the environment (weft_coord_cluster_detect) and, where there are several processes, waits for them all.
 * *job is to be closed also after an error.
 * Errors: INVALID_ARGUMENT     an environment that is incomplete or makes no sense
 *         FAILED_PRECONDITION  the service's address is on another machine than process 0, and no launcher serves there
 *         and those of weft_coord_agent_connect */
WEFT_NODISCARD weft_status *cli_job_join(cli_job *job);

static inline bool cli_job_has_others(const cli_job *job) { return job->place.process_count > 1; }

/* This process's share of `total` devices; *out_first is the number of its first. */
int cli_job_share(const cli_job *job, int total, int *out_first);

/* The arguments by which a PJRT client of several processes finds the others. */
void cli_job_give_store(const cli_job *job, PJRT_Client_Create_Args *args);

/* Tells `client` (borrowed until cli_job_close) of processes that die, so that what waits for them ends. */
WEFT_NODISCARD weft_status *cli_job_watch(cli_job *job, const PJRT_Api *api, PJRT_Client *client);

/* Leaves.  Without an error it waits for the others; with `error` (borrowed) the others are told. */
WEFT_NODISCARD weft_status *cli_job_leave(cli_job *job, const weft_status *error);
void cli_job_unwatch(cli_job *job); /* before the client goes */
void cli_job_close(cli_job *job);

/* How a job is protected: two lines. */
void cli_print_protection(FILE *out, const weft_coord_protection *protection);

/* `weft info --job`: asks the coordination service that the environment names. */
WEFT_NODISCARD weft_status *cli_print_job(FILE *out);

#endif
