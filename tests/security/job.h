/* tests/security/job.h -- a job of a few processes that runs all-reduces while somebody attacks it. */
#ifndef WEFT_TESTS_SECURITY_JOB_H
#define WEFT_TESTS_SECURITY_JOB_H

#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/address.h"
#include "collective/flight_text.h"
#include "collective/frame.h"

enum { MOST_PROCESSES = 4, ELEMS = 48, ROUNDS_A_GENERATION = 40, FIRST_INCARNATION = 100 };

typedef struct job {
  char directory[64], secret[96];
  int size, stop[2]; /* the job ends when stop[1] closes */
  pid_t pids[MOST_PROCESSES];
  coll_address addresses[MOST_PROCESSES]; /* as a member reads them in the store */
  weft_kv *kv;
} job;

/* Sums an array in which only this rank's element is not zero; each element then shows how often it was added. */
static bool reduce_once(weft_comm *comm, int size, int rank, int round, bool *stop)
{
  float in[ELEMS], out[ELEMS];
  weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM, .count = ELEMS, .send = in, .recv = out};
  int sum = size * (size - 1) / 2;

  for (int i = 0; i < ELEMS; i++) in[i] = (float)(rank * (i + 1) + round % 1000);
  in[0] = *stop;
  weft_status *st = weft_coll_run(comm, &op, NULL);
  if (st) {
    fprintf(stderr, "# rank %d: %s\n", rank, weft_status_text(st, false));
    weft_status_free(st);
    return false;
  }
  for (int i = 1; i < ELEMS; i++)
    if (out[i] != (float)(sum * (i + 1) + size * (round % 1000))) {
      fprintf(stderr, "# rank %d, round %d: element %d is %f\n", rank, round, i, (double)out[i]);
      return false;
    }
  *stop = out[0] > 0;
  return true;
}

static weft_status *open_comm(const job *j, weft_kv *kv, int rank, int generation, weft_comm **out)
{
  char name[64];
  weft_comm_spec spec = {.kv = kv, .name = name, .size = j->size, .ranks = &rank, .rank_count = 1, .incarnation = (uint64_t)(FIRST_INCARNATION + rank),
                         .deadline = weft_deadline_after_ms(60000), .timeout_ns = 60 * WEFT_NS_PER_S};

  snprintf(name, sizeof name, "job/%d", generation);
  return weft_comm_create(&spec, out);
}

/* Runs all-reduces on one permanent communicator and on others that are made and destroyed, until the test ends the
 * job. */
static int play_member(const job *j, int rank)
{
  struct pollfd end = {.fd = j->stop[0], .events = POLLIN};
  weft_kv *kv;
  weft_comm *base = NULL, *comm = NULL;
  weft_status *st = weft_kv_file_new(j->directory, &kv);
  bool stop = false, ok = true;

  if (!st) st = open_comm(j, kv, rank, 0, &base);
  for (int generation = 1, round = 0; !st && ok && !stop; generation++) {
    st = open_comm(j, kv, rank, generation, &comm);
    for (int i = 0; i < ROUNDS_A_GENERATION && !st && ok && !stop; i++, round++) {
      stop = rank == 0 && poll(&end, 1, 0) != 0;
      ok = reduce_once(i % 2 ? base : comm, j->size, rank, round, &stop);
    }
    weft_comm_destroy(WEFT_MOVE(comm));
    usleep(2000);
  }
  if (st) fprintf(stderr, "# rank %d: %s\n", rank, weft_status_text(st, false));
  weft_comm_destroy(base);
  return st || !ok;
}

/* with_secret: the members have a secret, and the caller does not. */
static void job_start(job *j, int size, const char *transport, bool with_secret)
{
  *j = (job){.directory = "/tmp/weft-security-XXXXXX", .size = size};
  T_TRUE(mkdtemp(j->directory) != NULL);
  snprintf(j->secret, sizeof j->secret, "%s/secret", j->directory);
  int fd = open(j->secret, O_WRONLY | O_CREAT, 0600);
  T_TRUE(fd >= 0 && write(fd, "correct-horse", 13) == 13 && close(fd) == 0);
  T_EQ_INT(pipe(j->stop), 0);
  fflush(stdout);
  for (int r = 0; r < size; r++) {
    j->pids[r] = fork();
    if (j->pids[r]) continue;
    close(j->stop[1]);
    setenv("WEFT_COLLECTIVE_TRANSPORT", transport, 1);
    setenv("WEFT_COLLECTIVE_INTERFACE", "127.0.0.1", 1);
    if (with_secret) setenv("WEFT_COORD_SECRET_FILE", j->secret, 1);
    _exit(play_member(j, r));
  }
  close(j->stop[0]);
  T_OK(weft_kv_file_new(j->directory, &j->kv));
  for (int r = 0; r < size; r++) {
    WEFT_AUTO_STR value = NULL;
    char key[64];
    size_t bytes;
    snprintf(key, sizeof key, COLL_FLIGHT_KEYS "/%d", FIRST_INCARNATION + r);
    T_OK(weft_kv_get(j->kv, key, weft_deadline_after_ms(60000), &value, &bytes));
    T_EQ_INT(bytes, sizeof j->addresses[r]);
    memcpy(&j->addresses[r], value, sizeof j->addresses[r]);
  }
}

/* Resident memory of a member, KiB. */
static long resident_kib(const job *j, int rank)
{
  char path[64];
  long pages = 0, resident = 0;

  snprintf(path, sizeof path, "/proc/%d/statm", (int)j->pids[rank]);
  FILE *file = fopen(path, "re");
  if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
  if (file) fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Ends the job and checks that every member has had right results only. */
static void job_end(job *j)
{
  char command[96];
  int failed = 0;

  close(j->stop[1]);
  for (int r = 0; r < j->size; r++) {
    int status = -1;
    for (int ms = 0; ms < 60000 && waitpid(j->pids[r], &status, WNOHANG) == 0; ms++) usleep(1000);
    if (status == -1) kill(j->pids[r], SIGKILL);
    failed += status != 0;
  }
  weft_kv_destroy(j->kv);
  snprintf(command, sizeof command, "rm -rf %s", j->directory);
  T_EQ_INT(system(command), 0);
  T_EQ_INT(failed, 0);
}

#endif
