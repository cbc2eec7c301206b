/* bench/coord_bench.c -- load on a coordination service, ours or another: one thread, many connections.
 *
 *   coord_bench ADDRESS [--tasks N] [--pid PID] [--seconds S] [--barriers B]
 *
 * The service is for N tasks, recoverable, with long timeouts; bench/coord_bench.py starts it.  Prints one line per
 * case: registration, barrier latency, operations per second with 1, 16 and 256 clients, watch fan-out; and what
 * process PID, the service, took of memory and of processor time (which says more than the clock on a busy machine).
 * The load shares the machine with the service and is one thread in place of N processes: a barrier's calls are made
 * before the clock runs and only written while it does, and its line says the processor time of the load. */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/deadline.h"
#include "coord/conn.h"
#include "coord/wire/codec.h"

enum {
  MAX_BARRIERS = 20000,
  MAX_VALUE = 64,
  MAX_CALL_BYTES = 512, /* of a barrier's call as it is written */
  BATCH = 64,           /* connections that are made at a time */
};

typedef struct client {
  coord_conn conn;
  int32_t id;
  uint64_t incarnation;
  coord_method method;  /* of the call on its way */
  bool writes;          /* which half of the pair is next */
  char key[32];
  uint8_t prepared[MAX_CALL_BYTES]; /* a call as bytes, to be written when the clock runs */
  size_t prepared_size;
} client;

static coord_loop *loop;
static coord_conns group;
static client *clients;
static int32_t task_count = 64, barrier_count, dialled;
static uint64_t service_incarnation;
static int64_t version;
static int64_t pending, operations, stop_at_ns;
static weft_arena arena;
static long pid;

static void fail(const char *what, const weft_status *st)
{
  fprintf(stderr, "coord_bench: %s: %s\n", what, st ? weft_status_message(st) : "");
  exit(1);
}

static void on_closed(coord_conn *conn, const char *why)
{
  (void)conn;
  fprintf(stderr, "coord_bench: connection lost: %s\n", why);
  exit(1);
}

static void next_operation(client *c);

static void on_reply(void *ctx, weft_status *error, const uint8_t *message, size_t size)
{
  client *c = ctx;
  coord_reply reply;

  if (!error) error = coord_reply_decode(c->method, message, size, &arena, &reply);
  if (error) fail(coord_method_name(c->method), error);
  if (c->method == COORD_REGISTER_TASK) service_incarnation = reply.service_incarnation;
  if (c->method == COORD_WATCH_TASKS) version = reply.version;
  if (stop_at_ns) {
    operations++;
    if (weft_now_ns() < stop_at_ns) return next_operation(c);
  }
  pending--;
}

static void call(client *c, coord_request request)
{
  const uint8_t *message;
  size_t size;
  coord_h2_call *started;
  char path[COORD_PATH_BYTES];
  weft_status *st;

  request.task = c->id;
  request.incarnation = c->incarnation;
  request.service_incarnation = service_incarnation;
  c->method = request.method;
  st = coord_request_encode(&request, &arena, &message, &size);
  if (!st)
    st = coord_h2_start(c->conn.h2, coord_path(COORD_DIALECT_X, request.method, path), message, size, on_reply, c,
                        &started);
  if (st) fail("call", st);
  coord_conn_touch(&c->conn);
}

static void next_operation(client *c)
{
  static const char value[MAX_VALUE];

  c->writes = !c->writes;
  if (c->writes)
    call(
      c,
      (coord_request){
        .method = COORD_INSERT_KEY_VALUE, .key = c->key, .value = value, .value_size = MAX_VALUE, .overwrite = true});
  else call(c, (coord_request){.method = COORD_TRY_GET_KEY_VALUE, .key = c->key});
}

static int64_t after_events(void *ctx, int64_t now_ns)
{
  (void)ctx;
  (void)now_ns;
  coord_conns_flush(&group);
  weft_arena_reset(&arena);
  if (pending == 0) coord_loop_quit(loop);
  return INT64_MAX;
}

/* Waits until every call has been answered, and returns the time that it took. */
static double run_all(int64_t began_ns)
{
  coord_loop_run(loop, after_events, NULL);
  return (double)(weft_now_ns() - began_ns) / 1e9;
}

static void print_memory(const char *when)
{
  char path[64], line[256];
  FILE *f;
  long kib = 0, own_kib = 0;

  if (!pid) return;
  snprintf(path, sizeof path, "/proc/%ld/status", pid);
  f = fopen(path, "re");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "VmRSS: %ld", &kib) != 1) sscanf(line, "RssAnon: %ld", &own_kib);
  if (f) fclose(f);
  printf("memory %-22s %8.1f MiB  %8.1f MiB without files  %6.1f KiB per task\n", when, (double)kib / 1024,
         (double)own_kib / 1024, (double)own_kib / task_count);
}

/* Seconds of processor time that this process, the load, has taken so far. */
static double own_seconds(void)
{
  struct rusage usage;

  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Seconds of processor time that the service has taken so far. */
static double service_seconds(void)
{
  char path[64], text[1024] = "";
  unsigned long user = 0, system = 0;
  FILE *f;
  const char *after_name;

  if (!pid) return 0;
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  f = fopen(path, "re");
  if (f && !fgets(text, sizeof text, f)) text[0] = '\0';
  if (f) fclose(f);
  after_name = strrchr(text, ')');
  if (after_name) sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static int compare_doubles(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;

  return (x > y) - (x < y);
}

/* Until the calls of the last batch are written: a service keeps few connections on which nobody has called yet. */
static int64_t after_writes(void *ctx, int64_t now_ns)
{
  bool written = true;

  (void)ctx;
  (void)now_ns;
  coord_conns_flush(&group);
  for (int32_t i = dialled - BATCH; i < dialled; i++)
    written = written && !clients[i].conn.connecting && coord_conn_is_idle(&clients[i].conn);
  if (written) coord_loop_quit(loop);
  return INT64_MAX;
}

static void bench_register(const char *address)
{
  int64_t began = weft_now_ns();

  for (int32_t i = 0; i < task_count; i++) {
    client *c = &clients[i];
    coord_h2 *h2;
    int fd;
    weft_status *st = coord_dial(address, &fd);
    c->id = i;
    c->incarnation = (uint64_t)i + 1000;
    snprintf(c->key, sizeof c->key, "bench/%d", i);
    if (!st) st = coord_h2_client_new(address, NULL, 1 << 30, &h2);
    if (!st) st = coord_conn_init(&c->conn, &group, loop, fd, NULL, h2, true, on_closed);
    if (st) fail("connect", st);
    pending++;
    call(c, (coord_request){.method = COORD_REGISTER_TASK});
    dialled = i + 1;
    if (dialled % BATCH == 0) coord_loop_run(loop, after_writes, NULL);
  }
  printf("register %5d tasks        %10.1f ms\n", task_count, 1e3 * run_all(began));
}

/* Prepares a call except for its write: in a job each task makes its own call, on a processor of its own. */
static void prepare(client *c, coord_request request)
{
  const uint8_t *data;
  size_t size;
  weft_status *st;

  call(c, request);
  for (c->prepared_size = 0;; c->prepared_size += size) {
    st = coord_h2_send(c->conn.h2, &data, &size);
    if (st || c->prepared_size + size > MAX_CALL_BYTES) fail("prepare", st);
    if (size == 0) return;
    memcpy(c->prepared + c->prepared_size, data, size);
  }
}

static void bench_barrier(void)
{
  static double times[MAX_BARRIERS], after_last[MAX_BARRIERS];
  double cpu = service_seconds(), own = own_seconds();

  for (int round = 0; round < barrier_count; round++) {
    int64_t began, called;
    for (int32_t i = 0; i < task_count; i++)
      prepare(&clients[i],
              (coord_request){.method = COORD_BARRIER, .barrier_id = "bench", .timeout_ms = 100000, .counter = round});
    coord_conns_flush(&group);
    began = weft_now_ns();
    for (int32_t i = 0; i < task_count; i++) {
      pending++;
      if (send(clients[i].conn.io.fd, clients[i].prepared, clients[i].prepared_size, MSG_NOSIGNAL) !=
          (ssize_t)clients[i].prepared_size)
        fail("write", NULL);
    }
    called = weft_now_ns();
    times[round] = run_all(began);
    after_last[round] = times[round] - (double)(called - began) / 1e9;
  }
  qsort(times, (size_t)barrier_count, sizeof *times, compare_doubles);
  qsort(after_last, (size_t)barrier_count, sizeof *after_last, compare_doubles);
  cpu = service_seconds() - cpu;
  own = own_seconds() - own;
  printf(
    "barrier  %5d tasks        %10.3f ms p50  %10.3f ms max  %10.3f ms p50 after the last call  %6.1f us processor per task"
    "  (this load: %.1f us)\n",
    task_count, 1e3 * times[barrier_count / 2], 1e3 * times[barrier_count - 1], 1e3 * after_last[barrier_count / 2],
    1e6 * cpu / barrier_count / task_count, 1e6 * own / barrier_count / task_count);
}

static void bench_keys(int32_t count, double seconds)
{
  int64_t began = weft_now_ns();
  double took, cpu = service_seconds();

  if (count > task_count) return;
  operations = 0;
  stop_at_ns = began + (int64_t)(seconds * 1e9);
  for (int32_t i = 0; i < count; i++) {
    pending++;
    next_operation(&clients[i]);
  }
  took = run_all(began);
  stop_at_ns = 0;
  cpu = service_seconds() - cpu;
  printf("kv       %5d clients      %10.0f operations/s  %6.1f us processor per operation\n", count,
         (double)operations / took, 1e6 * cpu / (double)WEFT_MAX(operations, 1));
}

/* Everybody watches, one leaves. */
static void bench_watch(void)
{
  int64_t began;

  pending = 1;
  call(&clients[0], (coord_request){.method = COORD_WATCH_TASKS, .version = -1});
  run_all(0);
  for (int32_t i = 0; i + 1 < task_count; i++) {
    pending++;
    call(&clients[i], (coord_request){.method = COORD_WATCH_TASKS, .version = version});
  }
  began = weft_now_ns();
  pending++;
  call(&clients[task_count - 1], (coord_request){.method = COORD_SHUTDOWN_TASK});
  printf("watch    %5d watchers     %10.1f ms\n", task_count - 1, 1e3 * run_all(began));
}

int main(int argc, char **argv)
{
  double seconds = 2;
  struct rlimit limit;

  for (int i = 2; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--tasks") == 0) task_count = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--pid") == 0) pid = atol(argv[i + 1]);
    if (strcmp(argv[i], "--seconds") == 0) seconds = atof(argv[i + 1]);
    if (strcmp(argv[i], "--barriers") == 0) barrier_count = atoi(argv[i + 1]);
  }
  if (barrier_count == 0)
    barrier_count = WEFT_MAX(15, 16384 / WEFT_MAX(task_count, 1)); /* small ones need more of a warm-up */
  if (argc < 2 || task_count < 1 || barrier_count < 1 || barrier_count > MAX_BARRIERS) {
    fprintf(stderr, "usage: coord_bench ADDRESS [--tasks N] [--pid PID] [--seconds S] [--barriers B]\n");
    return 2;
  }
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  weft_arena_init(&arena);
  clients = calloc((size_t)task_count, sizeof *clients);
  if (!clients) return 1;
  weft_status *st = coord_loop_new(&loop);
  if (st) fail("loop", st);
  print_memory("before");
  bench_register(argv[1]);
  print_memory("registered");
  bench_barrier();
  bench_keys(1, seconds);
  bench_keys(16, seconds);
  bench_keys(256, seconds);
  bench_watch();
  print_memory("at the end");
  fflush(stdout);
  _exit(0);
}
