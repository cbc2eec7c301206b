/* cli/job_secret.h -- the secret of a job that `weft launch` starts. Each job has a new one. Its processes get the
 * name of a file with it (WEFT_COORD_SECRET_FILE), and the file is removed when the job ends. */
#ifndef WEFT_CLI_JOB_SECRET_H
#define WEFT_CLI_JOB_SECRET_H

#include <stdbool.h>

#include "base/status.h"

typedef struct cli_job_secret {
  char *file;      /* the path that the processes get; NULL: there is no secret */
  int fd;          /* the memory, or the file, which is locked as long as this process lives; -1: neither */
  bool is_on_disk; /* the secret is a file, which must be removed */
} cli_job_secret;

/* Makes a secret of 32 random bytes. With `is_shared` processes on other machines read it: the secret is a file
 * below ~/.cache/weft/jobs, which all machines are expected to share. Otherwise it is memory of this process that
 * its children open through /proc, with nothing on disk; where the kernel does not allow that, a file. Files that
 * killed launchers left below that folder are removed. Errors:
 *   FAILED_PRECONDITION  no file can be made; the text says what to do */
WEFT_NODISCARD weft_status *cli_job_secret_make(bool is_shared, cli_job_secret *out);
/* The same with a secret that the job has already: for processes of this machine alone. */
WEFT_NODISCARD weft_status *cli_job_secret_hold(const char *text, cli_job_secret *out);
void cli_job_secret_remove(cli_job_secret *secret); /* also accepts a secret that was not made: {.fd = -1} */

/* The hosts of the batch system's allocation that this process is in, separated by commas. "" if there is no
 * allocation or it does not name its hosts. The string is from malloc and belongs to the caller; NULL without
 * memory. */
char *cli_allocation_hosts(void);

#endif
