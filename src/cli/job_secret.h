/* cli/job_secret.h -- the secret of a job that `weft launch` starts: made anew for each job, handed to its processes as the
 * name of a file (WEFT_COORD_SECRET_FILE), gone when the job ends. */
#ifndef WEFT_CLI_JOB_SECRET_H
#define WEFT_CLI_JOB_SECRET_H

#include <stdbool.h>

#include "base/status.h"

typedef struct cli_job_secret {
  char *file;    /* to be named to the processes; NULL: none was made */
  int memory_fd; /* -1: it is a file on disk, to be removed */
} cli_job_secret;

/* Makes a secret of 32 random bytes.
 *   is_shared  processes on other machines read it: a file below ~/.cache/weft/jobs, which those machines are taken to share.
 *              Otherwise, where the kernel allows, memory of this process that its children open through /proc, and nothing on
 *              disk.
 * Errors: FAILED_PRECONDITION  no file can be made; the text says what to do */
WEFT_NODISCARD weft_status *cli_job_secret_make(bool is_shared, cli_job_secret *out);
void cli_job_secret_remove(cli_job_secret *secret); /* one that was not made is fine: {NULL, -1} */

/* The hosts of the batch system's allocation that this process is in, with commas; "" if there is none or it does not say.
 * malloc'd, the caller's; NULL without memory. */
char *cli_allocation_hosts(void);

#endif
