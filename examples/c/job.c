/* examples/c/job.c -- a job of several processes: a coordination service, and in each process an agent that joins it.
 *   job COUNT           starts the service and COUNT processes of this program, and waits for them
 *   job ADDRESS TASK    what those are called with */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <weft/coord.h>

extern char **environ;

enum { MOST = 64 };

/* One process of the job: it leaves a greeting under its number and reads the greeting of task 0. */
static weft_status *take_part(const char *address, const char *task)
{
  char key[64];
  char *value = NULL;
  size_t size = 0;
  weft_coord_agent_options options;
  WEFT_AUTO(weft_coord_agent) agent = NULL;
  WEFT_AUTO(weft_kv) kv = NULL;

  WEFT_TRY(weft_coord_agent_options_load(&options));
  options.address = address;
  options.task_id = atoi(task);
  WEFT_TRY(weft_coord_agent_new(&options, &agent));
  WEFT_TRY(weft_coord_agent_connect(agent)); /* returns when all processes have joined */
  WEFT_TRY(weft_coord_agent_kv(agent, &kv));
  snprintf(key, sizeof key, "greeting/%s", task);
  WEFT_TRY(weft_kv_set(kv, key, "hello", strlen("hello"), false));
  WEFT_TRY(weft_coord_agent_barrier(agent, "greeted", 30 * WEFT_NS_PER_S, NULL, 0));
  WEFT_TRY(weft_kv_try_get(kv, "greeting/0", &value, &size));
  printf("task %s: task 0 says %s\n", task, value);
  free(value);
  return weft_coord_agent_shutdown(agent);
}

static bool wait_for(pid_t child)
{
  int how = 0;

  while (waitpid(child, &how, 0) < 0)
    if (errno != EINTR) return false;
  return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

/* The service in this process, and `count` processes of `program`. */
static weft_status *run_job(char *program, int count)
{
  pid_t children[MOST];
  int started = 0, failed = 0;
  weft_coord_service_options options;
  WEFT_AUTO(weft_coord_service) service = NULL;

  if (count < 1 || count > MOST) return WEFT_ERR(INVALID_ARGUMENT, "%d processes: expected 1 to %d", count, MOST);
  WEFT_TRY(weft_coord_service_options_load(&options));
  options.address = "127.0.0.1:0"; /* a free port */
  options.task_count = count;
  WEFT_TRY(weft_coord_service_start(&options, &service));
  for (; started < count; started++) {
    char address[320], task[16];
    char *arguments[] = {program, address, task, NULL};
    snprintf(address, sizeof address, "%s", weft_coord_service_address(service));
    snprintf(task, sizeof task, "%d", started);
    if (posix_spawn(&children[started], program, NULL, NULL, arguments, environ)) break;
  }
  for (int i = 0; i < started; i++) failed += !wait_for(children[i]);
  if (started < count) return WEFT_ERR(UNAVAILABLE, "cannot start process %d of \"%s\"", started, program);
  if (failed) return WEFT_ERR(ABORTED, "%d of %d processes failed", failed, count);
  return NULL;
}

int main(int argc, char **argv)
{
  if (argc != 2 && argc != 3) {
    fprintf(stderr, "usage: %s COUNT | ADDRESS TASK\n", argv[0]);
    return 2;
  }
  WEFT_AUTO(weft_status) error = argc == 2 ? run_job(argv[0], atoi(argv[1])) : take_part(argv[1], argv[2]);
  if (error) fprintf(stderr, "%s\n", weft_status_text(error, false));
  return error != NULL;
}
