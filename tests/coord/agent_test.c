/* tests/coord/agent_test.c -- Service and agents in one process, over loopback: keys, barriers, cancellation, topology,
 * preemption, secrets, TLS. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include <weft/coord.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#define S WEFT_NS_PER_S
enum { MAX_AGENTS = 4 };

static weft_coord_service_options service_options;
static weft_coord_agent_options agent_options;
static weft_coord_service *service;
static weft_coord_agent *agents[MAX_AGENTS];
static int agent_count;
static char folder[] = "/tmp/weft-agents-XXXXXX";

/* A file of this test, in a few static buffers. */
static const char *in_folder(const char *name)
{
  static char paths[8][96];
  static int next;
  char *path = paths[next++ % 8];

  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static void *connect_one(void *agent) { return weft_coord_agent_connect(agent); }
static void *shutdown_one(void *agent) { return weft_coord_agent_shutdown(agent); }

static void on_all(void *(*run)(void *agent))
{
  pthread_t threads[MAX_AGENTS];
  void *st;

  for (int i = 0; i < agent_count; i++) pthread_create(&threads[i], NULL, run, agents[i]);
  for (int i = 0; i < agent_count; i++) {
    pthread_join(threads[i], &st);
    T_OK(st);
  }
}

static void prepare(int count)
{
  T_OK(weft_coord_service_options_load(&service_options));
  T_OK(weft_coord_agent_options_load(&agent_options));
  service_options.task_count = agent_count = count;
  agent_options.init_timeout_ns = 60 * S;
}

static void open_all(void)
{
  T_OK(weft_coord_service_start(&service_options, &service));
  agent_options.address = weft_coord_service_address(service);
  for (int i = 0; i < agent_count; i++) {
    agent_options.task_id = i;
    T_OK(weft_coord_agent_new(&agent_options, &agents[i]));
  }
}

static void begin(int count)
{
  prepare(count);
  open_all();
  on_all(connect_one);
}

static int end(void **state)
{
  (void)state;
  for (int i = 0; i < agent_count; i++) weft_coord_agent_free(WEFT_MOVE(agents[i]));
  weft_coord_service_stop(WEFT_MOVE(service));
  return 0;
}

TEST(keys_go_from_one_to_another)
{
  WEFT_AUTO(weft_kv) a = NULL;
  WEFT_AUTO(weft_kv) b = NULL;
  WEFT_AUTO(weft_kv) below = NULL;
  char *value;
  size_t size;
  int64_t sum;

  begin(2);
  T_OK(weft_coord_agent_kv(agents[0], &a));
  T_OK(weft_coord_agent_kv(agents[1], &b));
  T_OK(weft_kv_prefix_new(b, "job", &below));
  T_OK(weft_kv_set(a, "job/x", "a\0b", 3, false));
  T_OK(weft_kv_get(below, "x", weft_deadline_after_ms(5000), &value, &size));
  T_EQ_INT(size, 3);
  T_TRUE(memcmp(value, "a\0b", 4) == 0);
  free(value);
  T_OK(weft_kv_set(b, "empty", "", 0, false));
  T_OK(weft_kv_try_get(a, "empty", &value, &size));
  T_EQ_INT(size, 0);
  free(value);
  T_CODE(weft_kv_set(b, "job/x", "", 0, false), WEFT_ALREADY_EXISTS);
  T_CODE(weft_kv_get(a, "later", weft_deadline_after_ms(50), &value, &size), WEFT_DEADLINE_EXCEEDED);
  T_OK(weft_kv_remove(a, "job"));
  T_CODE(weft_kv_try_get(b, "job/x", &value, &size), WEFT_NOT_FOUND);
  T_OK(weft_coord_agent_increment(agents[0], "n", 3, &sum));
  T_OK(weft_coord_agent_increment(agents[1], "n", -5, &sum));
  T_EQ_INT(sum, -2);
  on_all(shutdown_one);
}

static void *connect_late(void *agent)
{
  usleep(300000);
  return weft_coord_agent_connect(agent);
}

TEST(no_time_limit_for_the_start_is_a_long_one)
{
  pthread_t thread;
  void *st;

  prepare(2);
  agent_options.init_timeout_ns = 0;
  open_all();
  pthread_create(&thread, NULL, connect_late, agents[1]);
  T_OK(weft_coord_agent_connect(agents[0]));
  pthread_join(thread, &st);
  T_OK(st);
  on_all(shutdown_one);
}

TEST(directory_of_large_values_is_read_whole)
{
  enum { KEYS = 10, SIZE = 1 << 20 };
  WEFT_AUTO(weft_kv) kv = NULL;
  weft_coord_entry *entries;
  size_t count;
  char key[16], *value = malloc(SIZE);

  begin(1);
  T_OK(weft_coord_agent_kv(agents[0], &kv));
  for (int i = 0; i < KEYS; i++) {
    memset(value, 'a' + i, SIZE);
    snprintf(key, sizeof key, "dir/%d", i);
    T_OK(weft_kv_set(kv, key, value, SIZE, false));
  }
  T_OK(weft_coord_agent_list(agents[0], "dir", &entries, &count));
  T_EQ_INT(count, KEYS);
  for (int i = 0; i < KEYS; i++)
    T_TRUE(entries[i].size == SIZE && entries[i].value[0] == 'a' + i && entries[i].value[SIZE - 1] == 'a' + i);
  free(entries);
  free(value);
}

static void *wait_at_b(void *agent) { return weft_coord_agent_barrier(agent, "b", 20 * S, NULL, 0); }

TEST(barrier_in_progress_can_be_cancelled)
{
  pthread_t thread;
  void *st;
  weft_status *cancelled;

  begin(2);
  T_FAILS(weft_coord_agent_barrier_cancel(agents[0], "b"), "not in progress");
  pthread_create(&thread, NULL, wait_at_b, agents[0]);
  do { /* until the thread is there */
    usleep(1000);
    cancelled = weft_coord_agent_barrier_cancel(agents[0], "b");
    if (!cancelled) break;
    weft_status_free(cancelled);
  } while (true);
  pthread_join(thread, &st);
  T_CODE(st, WEFT_CANCELLED);
  T_CODE(weft_coord_agent_barrier(agents[1], "b", S, NULL, 0), WEFT_CANCELLED); /* it was for all */
  on_all(wait_at_b);                                                            /* and the next instance works */
}

static atomic_int refused;
static void *wait_or_be_refused(void *agent)
{
  weft_status *st = weft_coord_agent_barrier(agent, "b", 60 * S, NULL, 0);

  if (!st || !strstr(weft_status_message(st), "already being waited for")) return st;
  refused++;
  weft_status_free(st);
  return NULL;
}

TEST(second_wait_for_the_same_barrier_is_refused)
{
  pthread_t threads[2];
  void *st;

  begin(2);
  refused = 0;
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, wait_or_be_refused, agents[0]);
  for (int i = 0; i < 3000 && !refused; i++) usleep(10000); /* whichever is second */
  T_OK(weft_coord_agent_barrier(agents[1], "b", 60 * S, NULL, 0));
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], &st);
    T_OK(st);
  }
  T_EQ_INT(refused, 1);
}

static atomic_int callback_code;
static void call_back_in(void *ctx, const weft_status *error)
{
  weft_status *st = weft_coord_agent_barrier(*(weft_coord_agent **)ctx, "x", S, NULL, 0);

  (void)error;
  callback_code = (int)weft_status_code(st);
  weft_status_free(st);
}

TEST(callback_may_not_block_the_agent)
{
  weft_status *error = NULL;

  prepare(2);
  agent_options.on_error = call_back_in;
  agent_options.on_error_ctx = &agents[0];
  callback_code = 0;
  open_all();
  on_all(connect_one);
  on_all(wait_at_b); /* the agents sent their error polls earlier, so the service has them by then */
  T_OK(weft_coord_agent_report_error(agents[1], WEFT_DATA_LOSS, "bits fell out"));
  for (int i = 0; i < 3000 && !(error = weft_coord_agent_error(agents[0])); i++) usleep(10000);
  T_EQ_INT(weft_status_code(error), WEFT_DATA_LOSS);
  T_FAILS(error, "bits fell out");
  for (int i = 0; i < 3000 && !callback_code; i++) usleep(10000);
  T_EQ_INT(callback_code, WEFT_FAILED_PRECONDITION);
  T_FAILS(weft_coord_agent_barrier(agents[0], "b", S, NULL, 0), "bits fell out");
  T_FAILS(weft_coord_agent_shutdown(agents[0]), "in error");
}

TEST(freeing_an_agent_ends_its_waiting_calls)
{
  begin(1);
  T_FAILS(weft_coord_agent_connect(agents[0]), "connect: this agent is connected");
  T_OK(weft_coord_agent_shutdown(agents[0]));
  T_OK(weft_coord_agent_shutdown(agents[0])); /* nothing to leave */
}

TEST(second_service_on_a_port_is_refused)
{
  weft_coord_service *second;

  begin(1);
  service_options.address = weft_coord_service_address(service);
  T_FAILS(weft_coord_service_start(&service_options, &second), "cannot listen");
}

/* ---- topology ---- */

static weft_coord_global_topology *globals[MAX_AGENTS];
static const char *kind_of_1 = "cpu";

static void *exchange(void *arg)
{
  int id = (int)(intptr_t)arg;
  static const char *const racks[] = {"rack-b", "rack-a", "rack-b"};
  weft_coord_device devices[2] = {
    {.local_ordinal = 0, .name = "cpu0", .kind = id == 1 ? kind_of_1 : "cpu", .core_count = 4},
    {.local_ordinal = 1, .name = "cpu1", .kind = "cpu"},
  };
  weft_coord_local_topology local = {.process_id = id, .boot_id = id == 1 ? "boot-1" : "boot-02", .partition_index = -1,
                                     .network_nodes = &racks[id], .network_node_count = 1, .devices = devices, .device_count = 2};
  weft_coord_topology_options options = {.platform = "test", .process_count = 3, .local_timeout_ns = 60 * S, .global_timeout_ns = 60 * S};
  WEFT_AUTO(weft_kv) kv = NULL;

  weft_coord_global_topology_free(globals[id]);
  globals[id] = NULL;
  WEFT_TRY(weft_coord_agent_kv(agents[id], &kv));
  return weft_coord_topology_exchange(kv, &options, &local, &globals[id]);
}

TEST(topology_is_the_same_for_all_and_after_a_restart)
{
  static const struct { int process, partition, first_id; } want[] = {{1, 0, 0}, {0, 1, 2}, {2, 1, 4}};
  pthread_t threads[3];
  void *st;

  begin(3);
  for (int round = 0; round < 2; round++) { /* the second: everybody comes back */
    for (intptr_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, exchange, (void *)i);
    for (int i = 0; i < 3; i++) {
      pthread_join(threads[i], &st);
      T_OK(st);
    }
    for (int i = 0; i < 3; i++) {
      T_EQ_INT(globals[i]->process_count, 3);
      for (int p = 0; p < 3; p++) {
        const weft_coord_local_topology *t = &globals[i]->processes[p];
        T_EQ_INT(t->process_id, want[p].process);
        for (int d = 0; d < 2; d++) {
          T_EQ_INT(t->devices[d].partition_index, want[p].partition);
          T_EQ_INT(t->devices[d].global_id, want[p].first_id + d);
        }
      }
      T_EQ_INT(globals[i]->processes[0].devices[0].core_count, 4);
    }
  }
  kind_of_1 = "gpu"; /* another machine in its place */
  T_FAILS(exchange((void *)1), "came back with another device 0");
  kind_of_1 = "cpu";
  for (int i = 0; i < 3; i++) weft_coord_global_topology_free(WEFT_MOVE(globals[i]));
}

/* ---- topologies over a store of this process ---- */

enum { MANY = 11 };
static struct place {
  const char *rack, *boot, *fabric;
  int32_t partition;
} places[MANY];
static weft_kv *store;
static int64_t global_timeout_ns = 60 * S;
static weft_coord_global_topology *found[MANY];

static void *exchange_in_store(void *arg)
{
  int id = (int)(intptr_t)arg;
  const struct place *at = &places[id];
  weft_coord_device device = {.name = "gpu", .kind = "gpu", .fabric_uuid = at->fabric};
  weft_coord_local_topology local = {.process_id = id, .boot_id = at->boot, .partition_index = at->partition, .network_nodes = &at->rack,
                                     .network_node_count = at->rack ? 1 : 0, .devices = &device, .device_count = 1};

  return weft_coord_topology_exchange(
    store,
    &(weft_coord_topology_options){
      .platform = "p", .process_count = MANY, .local_timeout_ns = 60 * S, .global_timeout_ns = global_timeout_ns},
    &local, &found[id]);
}

/* All processes exchange their topologies. Returns the status of process 0; the others get the same, or no answer. */
static weft_status *exchange_all(void)
{
  pthread_t threads[MANY];
  void *st, *first;

  agent_count = 0;
  T_OK(weft_kv_local_new(&store));
  for (intptr_t i = 0; i < MANY; i++) pthread_create(&threads[i], NULL, exchange_in_store, (void *)i);
  pthread_join(threads[0], &first);
  for (int i = 1; i < MANY; i++) {
    pthread_join(threads[i], &st);
    T_EQ_INT(st != NULL, first != NULL);
    weft_status_free(st);
    for (size_t p = 0; !first && p < MANY; p++) {
      T_EQ_INT(found[i]->processes[p].process_id, found[0]->processes[p].process_id);
      T_EQ_INT(found[i]->processes[p].devices[0].global_id, found[0]->processes[p].devices[0].global_id);
    }
  }
  weft_kv_destroy(WEFT_MOVE(store));
  return first;
}

static void forget_found(void)
{
  for (int i = 0; i < MANY; i++) weft_coord_global_topology_free(WEFT_MOVE(found[i]));
}

static void place_all(struct place at)
{
  for (int i = 0; i < MANY; i++) places[i] = at;
}

TEST(eleven_processes_are_counted_as_numbers)
{
  place_all((struct place){.boot = "b", .fabric = "", .partition = -1});
  T_OK(exchange_all());
  for (int i = 0; i < MANY; i++) {
    T_EQ_INT(found[0]->processes[i].process_id, i); /* 10 after 9, not after 1 */
    T_EQ_INT(found[0]->processes[i].devices[0].global_id, i);
    T_EQ_INT(found[0]->processes[i].devices[0].partition_index, 0);
  }
  forget_found();
}

TEST(fabrics_make_partitions_where_every_device_has_one)
{
  place_all((struct place){.boot = "b", .fabric = "f1/0", .partition = -1});
  places[0].fabric = "f2/0";
  T_OK(exchange_all());
  T_EQ_INT(found[0]->processes[0].devices[0].partition_index, 0); /* numbered as they appear */
  T_EQ_INT(found[0]->processes[1].devices[0].partition_index, 1);
  forget_found();
  places[5].fabric = "00000000-0000/0"; /* no fabric: all go by their machines */
  places[7].boot = "c";
  T_OK(exchange_all());
  for (int i = 0; i < MANY; i++) T_EQ_INT(found[0]->processes[i].devices[0].partition_index, i == 7);
  T_EQ_INT(found[0]->processes[7].devices[0].global_id, MANY - 1); /* ids go partition by partition */
  T_EQ_INT(found[0]->processes[8].devices[0].global_id, 7);
  forget_found();
}

TEST(partitions_are_said_by_all_or_by_none)
{
  place_all((struct place){.rack = "r", .boot = "b", .fabric = "", .partition = 1});
  places[3].partition = 0;
  places[3].rack = "a"; /* the order of processes is kept all the same */
  T_OK(exchange_all());
  T_EQ_INT(found[0]->processes[3].process_id, 3);
  T_EQ_INT(found[0]->processes[3].devices[0].global_id, 0);
  T_EQ_INT(found[0]->processes[0].devices[0].global_id, 1);
  T_EQ_INT(found[0]->processes[4].devices[0].partition_index, 1);
  forget_found();
  places[3].partition = -1;
  global_timeout_ns = S / 2; /* nobody sets the key that the others wait for */
  T_FAILS(exchange_all(), "10 of 11 processes say their partition index");
  global_timeout_ns = 60 * S;
  forget_found();
}

TEST(topology_of_one_process_needs_no_service)
{
  weft_coord_device device = {.name = "cpu0"};
  weft_coord_local_topology local = {.boot_id = "b", .partition_index = -1, .devices = &device, .device_count = 1};
  WEFT_AUTO(weft_coord_global_topology) global = NULL;

  T_OK(weft_coord_topology_exchange(NULL, &(weft_coord_topology_options){.platform = "p", .process_count = 1}, &local,
                                    &global));
  T_EQ_INT(global->processes[0].devices[0].global_id, 0);
  agent_count = 0;
}

/* ---- preemption ---- */

static weft_coord_preemption *preemptions[MAX_AGENTS];
static int64_t reached_at[MAX_AGENTS];
static atomic_int under_way; /* those that have made a step */

static void *step_until_reached(void *arg)
{
  int id = (int)(intptr_t)arg;

  for (int64_t step = 1, end_ns = weft_now_ns() + 60 * S; weft_now_ns() < end_ns; step++) {
    if (weft_coord_preemption_reached_sync_point(preemptions[id], step)) {
      reached_at[id] = step;
      return NULL;
    }
    if (step == 1) under_way++;
    usleep(id == 0 ? 2000 : 7000); /* a fast one and slow ones */
  }
  return NULL;
}

TEST(all_stop_at_the_same_step)
{
  weft_coord_preemption_options options;
  pthread_t threads[3];

  begin(3);
  T_OK(weft_coord_preemption_options_load(&options));
  options.poll_ns = S / 20;
  for (int i = 0; i < 3; i++) {
    options.watch_sigterm = i == 1;
    T_OK(weft_coord_preemption_new(agents[i], &options, &preemptions[i]));
  }
  options.watch_sigterm = true;
  T_FAILS(weft_coord_preemption_new(agents[0], &options, &preemptions[3]), "another preemption manager");
  options.enabled = false;
  T_FAILS(weft_coord_preemption_new(agents[0], &options, &preemptions[3]), "switched off");
  under_way = 0;
  for (intptr_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, step_until_reached, (void *)i);
  while (under_way < 3) usleep(1000);
  raise(SIGTERM);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 3; i++) weft_coord_preemption_free(WEFT_MOVE(preemptions[i]));
  T_TRUE(reached_at[0] > 1);
  T_EQ_INT(reached_at[1], reached_at[0]);
  T_EQ_INT(reached_at[2], reached_at[0]);
}

TEST(no_step_is_agreed_on_with_a_task_in_error)
{
  weft_coord_preemption_options options;

  begin(2);
  T_OK(weft_coord_preemption_options_load(&options));
  options.poll_ns = S / 20;
  options.watch_sigterm = false;
  for (int i = 0; i < 2; i++) T_OK(weft_coord_preemption_new(agents[i], &options, &preemptions[i]));
  T_OK(weft_coord_agent_report_error(agents[1], WEFT_DATA_LOSS, "broken"));
  weft_status_free(weft_coord_preemption_announce(preemptions[0], 0));
  for (int64_t step = 1; step < 50; step++) {
    T_TRUE(!weft_coord_preemption_reached_sync_point(preemptions[0], step));
    usleep(2000);
  }
  for (int i = 0; i < 2; i++) weft_coord_preemption_free(WEFT_MOVE(preemptions[i]));
}

TEST(distant_preemption_waits_and_can_be_abandoned)
{
  weft_coord_preemption_options options;

  begin(1);
  T_OK(weft_coord_preemption_options_load(&options));
  options.poll_ns = S / 20;
  options.watch_sigterm = false;
  T_OK(weft_coord_preemption_new(agents[0], &options, &preemptions[0]));
  T_OK(weft_coord_preemption_announce(preemptions[0], 3600 * S));
  for (int64_t step = 1; step < 50; step++) {
    T_TRUE(!weft_coord_preemption_reached_sync_point(preemptions[0], step));
    usleep(2000);
  }
  weft_coord_preemption_free(WEFT_MOVE(preemptions[0]));
}

/* ---- access ---- */

static void write_file(const char *path, const char *text)
{
  FILE *f = fopen(path, "w");

  fputs(text, f);
  fchmod(fileno(f), 0600);
  fclose(f);
}

TEST(callers_without_the_secret_are_refused)
{
  prepare(1);
  write_file(in_folder("secret"), "opensesame\n");
  write_file(in_folder("other"), "opensesamf\n");
  service_options.secret_file = agent_options.secret_file = in_folder("secret");
  open_all();
  on_all(connect_one);
  on_all(shutdown_one);
  weft_coord_agent_free(WEFT_MOVE(agents[0]));
  agent_options.secret_file = in_folder("other");
  agent_options.init_timeout_ns = 20 * S; /* refused at once */
  T_OK(weft_coord_agent_new(&agent_options, &agents[0]));
  T_FAILS(weft_coord_agent_connect(agents[0]), "authentication required");
  T_CODE(weft_coord_agent_observe(agents[0]), WEFT_UNAUTHENTICATED);
  weft_coord_agent_free(WEFT_MOVE(agents[0]));
  agent_options.secret_file = ""; /* a connection of this user, as the kernel says */
  T_OK(weft_coord_agent_new(&agent_options, &agents[0]));
  T_OK(weft_coord_agent_observe(agents[0]));
}

TEST(calls_after_a_shutdown_fail_at_once)
{
  weft_coord_task_info *infos = NULL;
  int64_t version = -1;
  size_t count = 0;

  prepare(1);
  open_all();
  T_OK(weft_coord_agent_observe(agents[0]));
  T_OK(weft_coord_agent_watch(agents[0], &version, weft_deadline_after_ms(20 * 1000), &infos, &count));
  free(infos);
  T_OK(weft_coord_agent_shutdown(agents[0]));
  /* No state changes here, so a watch that began would end only by its deadline. */
  T_CODE(weft_coord_agent_watch(agents[0], &version, weft_deadline_after_ms(20 * 1000), &infos, &count),
         WEFT_FAILED_PRECONDITION);
  T_OK(weft_coord_agent_observe(agents[0])); /* an agent that left may come back */
}

/* A self-signed certificate for 127.0.0.1 that serves as its own authority. */
static void make_certificate(const char *cert_path, const char *key_path)
{
  EVP_PKEY *key = EVP_EC_gen("P-256");
  X509 *cert = X509_new();
  X509_NAME *name = X509_get_subject_name(cert);
  X509V3_CTX ctx;
  X509_EXTENSION *ext;
  FILE *f;

  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), -60);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"weft test", -1, -1, 0);
  X509_set_issuer_name(cert, name);
  X509_set_pubkey(cert, key);
  X509V3_set_ctx_nodb(&ctx);
  X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
  ext = X509V3_EXT_conf_nid(NULL, &ctx, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
  X509_add_ext(cert, ext, -1);
  X509_EXTENSION_free(ext);
  X509_sign(cert, key, EVP_sha256());
  f = fopen(cert_path, "w");
  PEM_write_X509(f, cert);
  fclose(f);
  f = fopen(key_path, "w");
  PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL);
  fclose(f);
  X509_free(cert);
  EVP_PKEY_free(key);
}

TEST(tls_with_client_certificates)
{
  WEFT_AUTO(weft_kv) kv = NULL;
  char *big = calloc(1, 3 << 20), *value;
  size_t size;

  prepare(2);
  const char *cert = in_folder("cert.pem"), *key = in_folder("key.pem"), *cert2 = in_folder("cert2.pem"),
             *key2 = in_folder("key2.pem");
  make_certificate(cert, key);
  make_certificate(cert2, key2);
  service_options.tls_cert_file = service_options.tls_ca_file = agent_options.tls_cert_file =
    agent_options.tls_ca_file = cert;
  service_options.tls_key_file = agent_options.tls_key_file = key;
  open_all();
  on_all(connect_one);
  T_OK(weft_coord_agent_kv(agents[0], &kv));
  memset(big, 'b', 3 << 20);
  T_OK(weft_kv_set(kv, "big", big, 3 << 20, false));
  T_OK(weft_kv_get(kv, "big", weft_deadline_after_ms(10000), &value, &size));
  T_TRUE(size == 3 << 20 && memcmp(big, value, size) == 0);
  free(value);
  free(big);
  on_all(shutdown_one);

  agent_options.init_timeout_ns = S;
  for (int wrong = 0; wrong < 3; wrong++) {
    weft_coord_agent_options other = agent_options;
    if (wrong == 0) other.tls_cert_file = other.tls_key_file = "";                     /* no certificate of its own */
    if (wrong == 1) other.tls_ca_file = cert2;                                         /* does not trust the service */
    if (wrong == 2) other.tls_cert_file = other.tls_ca_file = other.tls_key_file = ""; /* cleartext */
    weft_coord_agent_free(WEFT_MOVE(agents[0]));
    T_OK(weft_coord_agent_new(&other, &agents[0]));
    weft_status *refused = weft_coord_agent_observe(agents[0]);
    T_TRUE(weft_status_code(refused) == WEFT_DEADLINE_EXCEEDED || weft_status_code(refused) == WEFT_UNAVAILABLE);
    weft_status_free(refused);
  }
  service_options.tls_key_file = key2;
  weft_coord_service *bad;
  T_FAILS(weft_coord_service_start(&service_options, &bad), "key2.pem\"");
}

/* ---- callbacks ---- */

static weft_status *cb_get(void *ctx, const char *key, int64_t timeout_ms, char **out_value, size_t *out_size)
{
  (void)ctx;
  if (strcmp(key, "there") != 0)
    return WEFT_ERR(DEADLINE_EXCEEDED, "%s: not within %lld ms", key, (long long)timeout_ms);
  *out_value = strdup("value");
  *out_size = 5;
  return NULL;
}

static weft_status *cb_put(void *ctx, const char *key, const void *value, size_t size)
{
  snprintf(ctx, 64, "%s=%.*s", key, (int)size, (const char *)value);
  return NULL;
}

TEST(callbacks_of_somebody_else_serve_as_a_store)
{
  char put[64];
  WEFT_AUTO(weft_kv) kv = NULL;
  char *value = NULL;
  size_t size;

  agent_count = 0;
  T_OK(weft_coord_kv_callbacks_new(&(weft_coord_kv_callbacks){.ctx = put, .get = cb_get, .put = cb_put}, &kv));
  T_OK(weft_kv_set(kv, "k", "v", 1, false));
  T_EQ_STR(put, "k=v");
  T_OK(weft_kv_get(kv, "there", weft_deadline_after_ms(10), &value, &size));
  T_EQ_STR(value, "value");
  free(value);
  T_CODE(weft_kv_try_get(kv, "not", &value, &size), WEFT_NOT_FOUND);
  T_CODE(weft_kv_get(kv, "not", weft_deadline_after_ms(10), &value, &size), WEFT_DEADLINE_EXCEEDED);
  T_CODE(weft_kv_set(kv, "k", "v", 1, true), WEFT_UNIMPLEMENTED);
  T_CODE(weft_kv_remove(kv, "k"), WEFT_UNIMPLEMENTED);
}

int main(void)
{
#define U(name) cmocka_unit_test_teardown(name, end)
  const struct CMUnitTest units[] = {
    U(keys_go_from_one_to_another), U(barrier_in_progress_can_be_cancelled), U(second_wait_for_the_same_barrier_is_refused),
    U(callback_may_not_block_the_agent), U(freeing_an_agent_ends_its_waiting_calls), U(second_service_on_a_port_is_refused),
    U(topology_is_the_same_for_all_and_after_a_restart), U(topology_of_one_process_needs_no_service),
          U(eleven_processes_are_counted_as_numbers), U(fabrics_make_partitions_where_every_device_has_one), U(partitions_are_said_by_all_or_by_none),
          U(no_step_is_agreed_on_with_a_task_in_error), U(no_time_limit_for_the_start_is_a_long_one), U(directory_of_large_values_is_read_whole),
    U(all_stop_at_the_same_step), U(distant_preemption_waits_and_can_be_abandoned),
    U(callers_without_the_secret_are_refused), U(calls_after_a_shutdown_fail_at_once), U(tls_with_client_certificates), U(callbacks_of_somebody_else_serve_as_a_store),
  };
  char command[64];

  if (!mkdtemp(folder)) return 99;
  int failed = cmocka_run_group_tests(units, NULL, NULL);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return failed + (system(command) != 0);
}
