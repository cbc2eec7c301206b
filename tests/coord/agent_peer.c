/* tests/coord/agent_peer.c -- One process of a job with our agent: what the tests start as a subprocess.
 *
 *   agent_peer ADDRESS TASK [hb=SECONDS] [init=SECONDS] [stop=SECONDS] COMMAND ...
 *   agent_peer detect - ...   address and task are what the launcher's environment says; task 0 has the service inside
 *
 * A command is a word with comma-separated arguments; "fails,CODE,FRAGMENT" makes the next one an expected failure.
 * Prints one line for each; exits 0 if all went as said, 7 if on_error was called. */
#include <config.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <weft/coord.h>

enum { MAX_ARGS = 16 };

static weft_coord_agent *agent;
static weft_kv *kv;
static weft_coord_service *service; /* of task 0 under "detect" */
static _Atomic bool die_on_error = true;

static void on_error(void *ctx, const weft_status *error)
{
  (void)ctx;
  printf("error %s %s\n", weft_code_name(weft_status_code(error)), weft_status_message(error));
  fflush(stdout);
  if (die_on_error) _exit(7);
}

static void pause_seconds(double seconds)
{
  struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};

  nanosleep(&t, NULL);
}

static weft_status *expect_value(const char *want, weft_status *st, char *got)
{
  if (!st && strcmp(want, got) != 0) st = WEFT_ERR(DATA_LOSS, "got \"%s\", want \"%s\"", got, want);
  free(got);
  return st;
}

static size_t parse_tasks(char **args, int count, int32_t *tasks)
{
  for (int i = 0; i < count; i++) tasks[i] = atoi(args[i]);
  return (size_t)count;
}

static weft_status *big_value(const char *key, bool write)
{
  enum { SIZE = 5 << 20 };
  char *data = malloc(SIZE), *got = NULL;
  size_t size = 0;
  weft_status *st;

  for (size_t i = 0; i < SIZE; i++) data[i] = (char)(i * 2654435761u >> 11);
  if (write) {
    st = weft_kv_set(kv, key, data, SIZE, false);
  } else {
    st = weft_kv_get(kv, key, weft_deadline_after_ms(20000), &got, &size);
    if (!st && (size != SIZE || memcmp(got, data, SIZE) != 0)) st = WEFT_ERR(DATA_LOSS, "the large value differs");
  }
  free(data);
  free(got);
  return st;
}

/* Rounds of a barrier of all, a key that is set and one that is read; says how long they took, and the longest. */
static weft_status *rounds(const char *name, int count)
{
  int64_t began_ns = weft_now_ns(), longest_ns = 0;

  for (int i = 0; i < count; i++) {
    int64_t round_ns = weft_now_ns();
    WEFT_AUTO_STR value = NULL;
    size_t size;
    WEFT_TRY(weft_coord_agent_barrier(agent, name, 60 * WEFT_NS_PER_S, NULL, 0));
    WEFT_TRY(weft_kv_set(kv, name, "value", 5, true));
    WEFT_TRY(weft_kv_get(kv, name, weft_deadline_after_ms(60000), &value, &size));
    longest_ns = WEFT_MAX(longest_ns, weft_now_ns() - round_ns);
  }
  printf("rounds: %.6f s, the longest %.6f s\n", (double)(weft_now_ns() - began_ns) / 1e9, (double)longest_ns / 1e9);
  return NULL;
}

static weft_status *run(char **arg, int count)
{
  int32_t tasks[MAX_ARGS];
  size_t n;
  char *value = NULL;
  size_t size;
  int64_t number;

#define IS(word) (strcmp(arg[0], word) == 0)
  if (IS("connect")) return weft_coord_agent_connect(agent);
  if (IS("observe")) return weft_coord_agent_observe(agent);
  if (IS("shutdown")) return weft_coord_agent_shutdown(agent);
  if (IS("survive")) {
    die_on_error = false;
    return NULL;
  }
  if (IS("sleep")) {
    pause_seconds(atof(arg[1]));
    return NULL;
  }
  if (IS("error")) { /* until there is one */
    for (double left = atof(arg[1]); left > 0; left -= 0.05, pause_seconds(0.05)) {
      weft_status *error = weft_coord_agent_error(agent);
      bool is = error != NULL;
      weft_status_free(error);
      if (is) return NULL;
    }
    return WEFT_ERR(DEADLINE_EXCEEDED, "no error");
  }
  if (IS("crash")) _exit(0);
  if (IS("set")) return weft_kv_set(kv, arg[1], arg[2], strlen(arg[2]), count > 3);
  if (IS("get")) {
    weft_status *st = weft_kv_get(kv, arg[1], weft_deadline_after_ms(atoi(arg[2])), &value, &size);
    return expect_value(count > 3 ? arg[3] : value, st, value);
  }
  if (IS("try")) {
    weft_status *st = weft_kv_try_get(kv, arg[1], &value, &size);
    return expect_value(count > 2 ? arg[2] : value, st, value);
  }
  if (IS("delete")) return weft_kv_remove(kv, arg[1]);
  if (IS("setbig")) return big_value(arg[1], true);
  if (IS("getbig")) return big_value(arg[1], false);
  if (IS("list")) {
    weft_coord_entry *entries;
    weft_status *st = weft_coord_agent_list(agent, arg[1], &entries, &n);
    if (!st && (int)n != atoi(arg[2])) st = WEFT_ERR(DATA_LOSS, "%zu entries below %s", n, arg[1]);
    free(entries);
    return st;
  }
  if (IS("increment")) {
    weft_status *st = weft_coord_agent_increment(agent, arg[1], atoi(arg[2]), &number);
    if (!st && count > 3 && number != atoi(arg[3])) st = WEFT_ERR(DATA_LOSS, "increment: got %" PRId64, number);
    return st;
  }
  if (IS("barrier")) {
    n = parse_tasks(arg + 3, count - 3, tasks);
    return weft_coord_agent_barrier(agent, arg[1], (int64_t)(atof(arg[2]) * 1e9), tasks, n);
  }
  if (IS("live") || IS("waitlive")) { /* live,MEMBERS,ALIVE: how many of tasks 0 ... MEMBERS - 1 */
    for (;;) {
      weft_coord_live_task *alive;
      size_t alive_count;
      int members = atoi(arg[1]);
      weft_status *st;
      for (int i = 0; i < members; i++) tasks[i] = i;
      st =
        weft_coord_agent_live_tasks(agent, tasks, (size_t)members, weft_deadline_after_ms(30000), &alive, &alive_count);
      free(alive);
      if (st || (int)alive_count == atoi(arg[2])) return st;
      if (IS("live")) return WEFT_ERR(DATA_LOSS, "%zu alive", alive_count);
      pause_seconds(0.2);
    }
  }
  if (IS("watch")) { /* until the states are those given: watch,4,3 */
    int64_t version = -1;
    for (;;) {
      weft_coord_task_info *infos;
      bool same = true;
      WEFT_TRY(weft_coord_agent_watch(agent, &version, weft_deadline_after_ms(30000), &infos, &n));
      if ((int)n != count - 1) same = false;
      for (size_t i = 0; same && i < n; i++) same = (int)infos[i].state == atoi(arg[i + 1]);
      free(infos);
      if (same) return NULL;
      if (version == -1) return WEFT_ERR(CANCELLED, "the service is shutting down");
    }
  }
  if (IS("preempt")) { /* steps until all have agreed to stop; publishes the step */
    weft_coord_preemption_options options;
    WEFT_AUTO(weft_coord_preemption) preemption = NULL;
    char text[32];
    WEFT_TRY(weft_coord_preemption_options_load(&options));
    WEFT_TRY(weft_coord_preemption_new(agent, &options, &preemption));
    for (int64_t step = 1; step < 1000; step++) {
      if (weft_coord_preemption_reached_sync_point(preemption, step)) {
        snprintf(text, sizeof text, "%" PRId64, step);
        return weft_kv_set(kv, arg[1], text, strlen(text), false);
      }
      pause_seconds(0.03);
    }
    return WEFT_ERR(DEADLINE_EXCEEDED, "no sync point");
  }
  if (IS("rounds")) return rounds(arg[1], atoi(arg[2]));
  if (IS("report")) return weft_coord_agent_report_error(agent, WEFT_DATA_LOSS, arg[1]);
  return WEFT_ERR(INVALID_ARGUMENT, "no command %s", arg[0]);
}

/* Takes the place that the environment gives.  The address in `cluster` is borrowed by the options. */
static weft_status *take_place(weft_coord_cluster *cluster, weft_coord_agent_options *options)
{
  weft_coord_service_options service_options;

  WEFT_TRY(weft_coord_cluster_detect(NULL, cluster));
  printf("%s: process %" PRId32 " of %" PRId32 "\n", cluster->name, cluster->process_id, cluster->process_count);
  options->address = cluster->address;
  options->task_id = cluster->process_id;
  if (cluster->process_id != 0 || getenv("WEFT_COORD_ADDRESS")) return NULL;
  WEFT_TRY(weft_coord_service_options_load(&service_options));
  service_options.address = cluster->address;
  service_options.task_count = cluster->process_count;
  return weft_coord_service_start(&service_options, &service);
}

int main(int argc, char **argv)
{
  weft_coord_agent_options options;
  weft_coord_cluster cluster;
  weft_status *st = weft_coord_agent_options_load(&options);
  char *want_code = NULL, *want_text = NULL;
  int first = 3;

  if (argc < 4 || st) return 2;
  options.address = argv[1];
  options.task_id = atoi(argv[2]);
  options.on_error = on_error;
  options.heartbeat_timeout_ns = 30 * WEFT_NS_PER_S;
  options.init_timeout_ns = options.shutdown_timeout_ns = 60 * WEFT_NS_PER_S;
  for (; first < argc && strchr(argv[first], '='); first++) {
    int64_t ns = (int64_t)(atof(strchr(argv[first], '=') + 1) * 1e9);
    if (strncmp(argv[first], "hb", 2) == 0) options.heartbeat_timeout_ns = ns;
    if (strncmp(argv[first], "init", 4) == 0) options.init_timeout_ns = ns;
    if (strncmp(argv[first], "stop", 4) == 0) options.shutdown_timeout_ns = ns;
  }
  if (strcmp(argv[1], "detect") == 0) st = take_place(&cluster, &options);
  if (!st) st = weft_coord_agent_new(&options, &agent);
  if (!st) st = weft_coord_agent_kv(agent, &kv);
  for (int i = first; i < argc && !st; i++) {
    char *args[MAX_ARGS], *word;
    int count = 0;
    for (char *rest = argv[i]; count < MAX_ARGS && (word = strsep(&rest, ","));) args[count++] = word;
    if (strcmp(args[0], "fails") == 0) {
      want_code = args[1];
      want_text = args[2];
      continue;
    }
    st = run(args, count);
    if (want_code) {
      bool ok = st && strcmp(weft_code_name(weft_status_code(st)), want_code) == 0 &&
                strstr(weft_status_message(st), want_text);
      if (!ok) {
        printf("%s: want %s \"%s\", got %s\n", args[0], want_code, want_text,
               st ? weft_status_text(st, false) : "success");
        return 1;
      }
      weft_status_free(WEFT_MOVE(st));
      want_code = NULL;
    }
    printf("%s\n", args[0]);
    fflush(stdout);
  }
  if (st) {
    printf("failed: %s\n", weft_status_text(st, true));
    weft_status_free(st);
    return 1;
  }
  weft_kv_destroy(kv);
  weft_coord_agent_free(agent);
  weft_coord_service_stop(service); /* after the others have their answers */
  return 0;
}
