/* cli/ptxas.c -- runs ptxas on a file without a name, and reads its log. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/macros.h"
#include "cli/ptxas.h"

enum { MOST_SECONDS = 120 }; /* as src/gpu gives it for a program's kernels */

static void read_log(FILE *log, cli_registers *out, char *error, size_t error_size)
{
  char line[512];

  rewind(log);
  while (fgets(line, sizeof line, log)) {
    int registers, stores, loads;
    const char *used = strstr(line, "Used "), *spill = strstr(line, "stack frame, ");
    if (used && sscanf(used, "Used %d registers", &registers) == 1) out->most = WEFT_MAX(out->most, registers);
    if (spill && sscanf(spill, "stack frame, %d bytes spill stores, %d bytes spill loads", &stores, &loads) == 2)
      out->spilled += stores;
    line[strcspn(line, "\n")] = 0;
    if (!*error && (strstr(line, "error") || strstr(line, "fatal"))) snprintf(error, error_size, "%s", line);
  }
}

/* Starts ptxas with its standard input at the text and its output in the log. false: there is no such program. */
static bool start(const char *processor, int text, int log, pid_t *out_pid, int *out_error)
{
  char architecture[64];
  char *command[] = {"ptxas", "-v", architecture, "-o", "/dev/null", "/dev/fd/0", NULL};
  posix_spawn_file_actions_t files;

  snprintf(architecture, sizeof architecture, "-arch=%s", processor);
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, text, 0);
  posix_spawn_file_actions_adddup2(&files, log, 1);
  posix_spawn_file_actions_adddup2(&files, log, 2);
  *out_error = posix_spawnp(out_pid, command[0], &files, NULL, command, environ);
  posix_spawn_file_actions_destroy(&files);
  return *out_error != ENOENT && *out_error != EACCES;
}

static weft_status *run(FILE *text, FILE *log, const char *processor, cli_registers *out)
{
  char error[512] = "";
  int status = 0, failed;
  bool ended = true;
  pid_t pid;

  if (!start(processor, fileno(text), fileno(log), &pid, &failed)) return NULL;
  if (failed) return WEFT_ERR(UNAVAILABLE, "ptxas: %s", strerror(failed));
  weft_child_await(pid, weft_deadline_after_ms(MOST_SECONDS * 1000), &ended, &status);
  if (!ended) return WEFT_ERR(DEADLINE_EXCEEDED, "ptxas has not ended after %d s", MOST_SECONDS);
  read_log(log, out, error, sizeof error);
  if (status == 0) return NULL;
  return WEFT_ERR(INTERNAL, "ptxas refuses a kernel: %s", *error ? error : "it says nothing");
}

weft_status *cli_ptxas(const char *text, const char *processor, cli_registers *out)
{
  FILE *in = tmpfile(), *log = tmpfile();
  weft_status *st = NULL;

  *out = (cli_registers){0};
  if (!in || !log || fputs(text, in) < 0 || fflush(in))
    st = WEFT_ERR(UNAVAILABLE, "a temporary file: %s", strerror(errno));
  else rewind(in);
  if (!st) st = run(in, log, processor, out);
  if (in) fclose(in);
  if (log) fclose(log);
  return st;
}
