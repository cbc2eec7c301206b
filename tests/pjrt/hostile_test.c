/* tests/pjrt/hostile_test.c -- What a client may do wrong, or have done to it: every function with arguments that are
 * missing, short, dead or of another kind; damaged programs and options; threads; peers that never come or die.
 * Errors, never an abort or a hang. */
#include "client.h"

#include <pthread.h>

#include "hlo/proto.h"
#include "hlo/text.h"
#include "runtime/saved.h"
#include "pjrt/internal.h"

static const char add_one[] = "module @jit_f { func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
                              "  %c = stablehlo.constant dense<1.0> : tensor<2x3xf32>\n"
                              "  %y = stablehlo.add %x, %c : tensor<2x3xf32>\n  return %y : tensor<2x3xf32> } }";
static const float six[] = {0, 1, 2, 3, 4, 5};
static const int64_t dims23[] = {2, 3};

/* ---- the table, row by row ---- */

/* The rows of checks.def: a call of the function, and how many of its members must be there. */
typedef struct row {
  const char *name;
  PJRT_Error *(*function)(void *args);
  int handles, needed;
} row;
#define X(function, last, ...) \
  static PJRT_Error *call_##function(void *args) { return GetPjrtApi()->PJRT_##function(args); }
#include "pjrt/checks.def"
#undef X
#define HANDLE(member, kind) +0x100
#define NEEDED(member) +1
#define OPTIONAL(member, kind)
#define LIST(member, count)
static const row rows[] = {
#define X(function, last, ...) {#function, call_##function, (0 __VA_ARGS__) >> 8, (0 __VA_ARGS__) & 0xff},
#include "pjrt/checks.def"
#undef X
};

static weft_status *call(const row *r, void *args) { return status_of(r->function(args)); }

TEST(arguments_that_are_missing_or_short_are_errors)
{
  size_t block[64];

  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    T_FAILS(call(&rows[i], NULL), "no arguments were given");
    for (size_t size = 0; size <= 16; size += 8) {
      memset(block, 0, sizeof block);
      block[0] = size;
      T_FAILS(call(&rows[i], block), "the struct of arguments has");
    }
    memset(block, 0, sizeof block);
    block[0] = sizeof block;
    if (rows[i].handles + rows[i].needed > 0) T_FAILS(call(&rows[i], block), "is NULL");
  }
}

/* Debug builds recognise a handle that has been destroyed. */
TEST(handles_that_are_gone_or_of_another_kind_are_errors)
{
#ifdef NDEBUG
  T_SKIP("only debug builds know which handles are live");
#else
  PJRT_Client *client = make_client(1);
  PJRT_Buffer *gone = make_floats(client, six, dims23, 2, NULL);
  PJRT_Event *event = CALL(Event_Create).event; /* a live handle, of a kind that only the functions of events accept */
  uintptr_t block[64];

  destroy_buffer(gone);
  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    if (rows[i].handles == 0) continue;
    for (int k = 1; k < 64; k++) block[k] = (uintptr_t)gone;
    block[0] = sizeof block;
    T_FAILS(call(&rows[i], block), "is no live");
    if (strncmp(rows[i].name, "Event_", 6) == 0) continue;
    for (int k = 1; k < 64; k++) block[k] = (uintptr_t)event;
    block[0] = sizeof block;
    T_FAILS(call(&rows[i], block), "is no live");
  }
  CALL(Event_Destroy, .event = event);
  CALL(Client_Destroy, .client = client);
  FAILS("is no live client", Client_Devices, .client = client);
#endif
}

TEST(an_execution_with_wrong_lists_is_refused)
{
  PJRT_Client *client = make_client(2);
  PJRT_LoadedExecutable *exe = compile(client, add_one);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *small = make_floats(client, six, dims23, 1, NULL), *y,
              *none = NULL;
  PJRT_Buffer *two[] = {x, x};

  T_FAILS(execute(exe, two, 2, 0, &y, NULL), "supplied 2 buffers but compiled program expected 1");
  T_FAILS(execute(exe, &small, 1, 0, &y, NULL), "8 bytes");
  T_FAILS(execute(exe, &none, 1, 0, &y, NULL), "NULL");
  CALL(Buffer_Delete, .buffer = x);
  T_FAILS(execute(exe, &x, 1, 0, &y, NULL), "deleted");
  T_TRUE(CALL(Buffer_IsDeleted, .buffer = x).is_deleted);
  CALL(LoadedExecutable_Delete, .executable = exe);
  T_FAILS(execute(exe, &small, 1, 0, &y, NULL), "the executable has been deleted");
  destroy_buffer(x);
  destroy_buffer(small);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

/* ---- bytes of strangers ---- */

static uint64_t next(uint64_t *seed)
{
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  return *seed ^= *seed << 17;
}

/* Some bytes changed, sometimes the end cut off. */
static size_t damage(char *data, size_t size, uint64_t *seed)
{
  for (uint64_t i = next(seed) % 4 + 1; i; i--) data[next(seed) % size] = (char)next(seed);
  return next(seed) % 4 ? size : next(seed) % size;
}

TEST(damaged_programs_options_and_executables_are_errors_or_run)
{
  /* replicas 1, partitions 1, a device assignment, overrides {xla_dump_to: ""} */
  static const char options[] =
    "\x1a\x12\x20\x01\x28\x01\x30\x00\x4a\x08\x08\x01\x10\x01\x1a\x02\x08\x00\x98\x01\x01\x3a\x0f\x0a\x0bxla_dump_to\x12\x00";
  PJRT_Client *client = make_client(1);
  PJRT_LoadedExecutable *exe = compile(client, add_one);
  PJRT_Executable *program = CALL(LoadedExecutable_GetExecutable, .loaded_executable = exe).executable;
  PJRT_Executable_Serialize_Args bytes = CALL(Executable_Serialize, .executable = program);
  char *copy = malloc(bytes.serialized_bytes_size + sizeof add_one + sizeof options);
  uint64_t seed = 0x57656674;

  for (int i = 0; i < 150; i++) {
    PJRT_LoadedExecutable *made = NULL;
    PJRT_Program p = {.struct_size = sizeof p, .code = copy, .format = "mlir", .format_size = 4};
    PJRT_Client_Compile_Args args = {.struct_size = sizeof args, .client = client, .program = &p};
    PJRT_Executable_DeserializeAndLoad_Args load = {.struct_size = sizeof load, .client = client, .serialized_executable = copy};
    weft_status *st;
    if (i % 3 == 0) {
      memcpy(copy, add_one, sizeof add_one);
      p.code_size = damage(copy, sizeof add_one - 1, &seed);
      st = status_of(GetPjrtApi()->PJRT_Client_Compile(&args));
      made = args.executable;
    } else if (i % 3 == 1) {
      p = (PJRT_Program){.struct_size = sizeof p,
                         .code = (char *)add_one,
                         .code_size = sizeof add_one - 1,
                         .format = "mlir",
                         .format_size = 4};
      memcpy(copy, options, sizeof options);
      args.compile_options_size = damage(copy, sizeof options - 1, &seed);
      args.compile_options = copy;
      st = status_of(GetPjrtApi()->PJRT_Client_Compile(&args));
      made = args.executable;
    } else {
      memcpy(copy, bytes.serialized_bytes, bytes.serialized_bytes_size);
      load.serialized_executable_size = damage(copy, bytes.serialized_bytes_size, &seed);
      st = status_of(GetPjrtApi()->PJRT_Executable_DeserializeAndLoad(&load));
      made = load.loaded_executable;
      if (!st && (load.serialized_executable_size != bytes.serialized_bytes_size ||
                  memcmp(copy, bytes.serialized_bytes, bytes.serialized_bytes_size) != 0))
        fail_msg("a damaged executable was loaded (step %d)", i);
    }
    if (!st) CALL(LoadedExecutable_Destroy, .executable = made);
    weft_status_free(st);
  }
  free(copy);
  bytes.serialized_executable_deleter(bytes.serialized_executable);
  CALL(Executable_Destroy, .executable = program);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

/* ---- threads, and clients that do not wait ---- */

static void *work(void *arg)
{
  PJRT_Client *client = arg;
  PJRT_LoadedExecutable *exe = compile(client, add_one);

  for (int i = 0; i < 40; i++) {
    PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y = NULL, *z = NULL;
    PJRT_Event *done;
    T_OK(execute(exe, &x, 1, i, &y, &done));
    T_OK(execute(exe, &y, 1, i, &z, NULL));
    CALL(Event_Destroy, .event = done); /* nobody waits */
    destroy_buffer(x);
    destroy_buffer(y);
    if (i % 4 == 0) {
      float got[6];
      read_floats(z, got, 6);
      T_TRUE(got[5] == 7);
    }
    destroy_buffer(z);
  }
  CALL(LoadedExecutable_Destroy, .executable = exe);
  return NULL;
}

TEST(threads_share_a_client_and_need_not_wait_for_results)
{
  PJRT_Client *client = make_client(1);
  pthread_t threads[4];

  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, client), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CALL(Client_Destroy, .client = client);
}

/* ---- peers: this process is the first of two, and the second is made up ---- */

typedef struct entry {
  struct entry *next;
  char *key, *value;
  size_t size;
} entry;
static pthread_mutex_t store_mu = PTHREAD_MUTEX_INITIALIZER;
static entry *store;

static entry *find(const char *key, size_t size)
{
  for (entry *e = store; e; e = e->next)
    if (strlen(e->key) == size && memcmp(e->key, key, size) == 0) return e;
  return NULL;
}

static void add(const char *key, size_t key_size, const char *value, size_t size)
{
  entry *e = calloc(1, sizeof *e);

  e->key = strndup(key, key_size);
  e->value = memcpy(malloc(size + 1), value, size);
  e->size = size;
  e->next = store;
  store = e;
}

static void free_value(char *value) { free(value); }

/* *found is whether the key is there. */
static bool look_up(const char *key, size_t key_size, char **value, size_t *size)
{
  pthread_mutex_lock(&store_mu);
  entry *e = find(key, key_size);
  if (e) {
    *value = memcpy(malloc(e->size + 1), e->value, e->size);
    *size = e->size;
  }
  pthread_mutex_unlock(&store_mu);
  return e;
}

static PJRT_Error *kv_try_get(PJRT_KeyValueTryGetCallback_Args *args)
{
  args->value_deleter_callback = free_value;
  return look_up(args->key, args->key_size, &args->value, &args->value_size)
           ? NULL
           : (*args->callback_error)(PJRT_Error_Code_NOT_FOUND, "no such key", 11);
}

static PJRT_Error *kv_get(PJRT_KeyValueGetCallback_Args *args)
{
  args->value_deleter_callback = free_value;
  for (int waited = 0; waited <= args->timeout_in_ms; waited += 5) {
    if (look_up(args->key, args->key_size, &args->value, &args->value_size)) return NULL;
    usleep(5000);
  }
  return (*args->callback_error)(PJRT_Error_Code_DEADLINE_EXCEEDED, "no such key", 11);
}

static PJRT_Error *kv_put(PJRT_KeyValuePutCallback_Args *args)
{
  pthread_mutex_lock(&store_mu);
  bool taken = find(args->key, args->key_size);
  if (!taken) add(args->key, args->key_size, args->value, args->value_size);
  pthread_mutex_unlock(&store_mu);
  return taken ? (*args->callback_error)(PJRT_Error_Code_ALREADY_EXISTS, "taken", 5) : NULL;
}

static PJRT_Client *make_first_of_two(void)
{
  PJRT_NamedValue options[] = {
      {.struct_size = sizeof *options, .name = "node_id", .name_size = 7, .type = PJRT_NamedValue_kInt64, .value_size = 1},
      {.struct_size = sizeof *options, .name = "num_nodes", .name_size = 9, .type = PJRT_NamedValue_kInt64, .int64_value = 2, .value_size = 1}};

  if (!store) add("weft/topology/1", 15, "1", 1);
  return CALL(Client_Create, .create_options = options, .num_options = 2, .kv_get_callback = kv_get,
              .kv_put_callback = kv_put, .kv_try_get_callback = kv_try_get)
    .client;
}

static const char all_reduce[] =
  "module @jit_sum { func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
  "  %y = \"stablehlo.all_reduce\"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
  "    %s = stablehlo.add %a, %b : tensor<f32>\n    stablehlo.return %s : tensor<f32> })\n"
  "    {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2x3xf32>) -> tensor<2x3xf32>\n"
  "  return %y : tensor<2x3xf32> } }";
/* CompileOptions: two replicas on the devices 0 and 2048; then
 * xla_cpu_collective_timeout_seconds = 1 as an override. */
static const char two_replicas[] = "\x1a\x11\x20\x02\x28\x01\x4a\x0b\x08\x02\x10\x01\x1a\x05\x0a\x03\x00\x80\x10"
                                   "\x3a\x28\x0a\x22xla_cpu_collective_timeout_seconds\x12\x02\x18\x01";
enum { WITHOUT_TIMEOUT = 19 };

TEST(a_collective_past_its_deadline_ends_outputs_and_waits)
{
  PJRT_Client *client = make_first_of_two();
  PJRT_LoadedExecutable *exe;
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y;
  PJRT_Event *done;

  T_OK(try_compile(client, all_reduce, two_replicas, sizeof two_replicas - 1, &exe));
  T_OK(execute(exe, &x, 1, 1, &y, &done));
  FAILS("DEADLINE_EXCEEDED", Event_Await, .event = done); /* within a second, although Await itself has no time limit */
  CALL(Event_Destroy, .event = done);
  T_CODE(buffer_outcome(y), WEFT_DEADLINE_EXCEEDED);
  FAILS("", Buffer_UnsafePointer, .buffer = y); /* what waits for the bytes ends too */
  destroy_buffer(x);
  destroy_buffer(y);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(Client_Destroy, .client = client);
}

static weft_status *execute_with(PJRT_LoadedExecutable *exe, PJRT_Buffer *x, int64_t incarnation_of_peer, int launch_id,
                                 PJRT_Buffer **y)
{
  int tasks[] = {0, 1};
  int64_t incarnations[] = {100, incarnation_of_peer};
  PJRT_ExecuteOptions options = {.struct_size = sizeof options, .launch_id = launch_id, .num_tasks = 2, .task_ids = tasks,
                                 .incarnation_ids = incarnations};
  PJRT_Buffer *const *const lists[] = {&x};
  PJRT_Buffer **const outs[] = {y};
  PJRT_LoadedExecutable_Execute_Args args = {.struct_size = sizeof args, .executable = exe, .options = &options,
                                             .argument_lists = lists, .num_devices = 1, .num_args = 1, .output_lists = outs};
  return status_of(GetPjrtApi()->PJRT_LoadedExecutable_Execute(&args));
}

static void tell(PJRT_Client *client, uint64_t incarnation, PJRT_ProcessState state)
{
  PJRT_ProcessInfo info = {.struct_size = sizeof info, .task_id = 1, .incarnation_id = incarnation, .state = state,
                           .error_message = "heartbeats stopped", .error_message_size = 18};

  CALL(Client_UpdateGlobalProcessInfo, .client = client, .process_infos = &info, .num_process_infos = 1);
}

TEST(a_dead_process_ends_what_waits_for_it_by_task_and_incarnation)
{
  PJRT_Client *client = make_first_of_two();
  PJRT_LoadedExecutable *exe, *local = compile(client, add_one);
  PJRT_Buffer *x = make_floats(client, six, dims23, 2, NULL), *y, *z;
  weft_status *st;

  T_OK(try_compile(client, all_reduce, two_replicas, WITHOUT_TIMEOUT, &exe));
  tell(client, 200, PJRT_ProcessState_kConnected);
  T_OK(execute_with(exe, x, 200, 1, &y));
  tell(client, 200, PJRT_ProcessState_kError);
  st = buffer_outcome(y);
  T_EQ_INT(weft_status_code(st), WEFT_FAILED_PRECONDITION);
  T_FAILS(st, "Task with incarnation id 200 is not connected: task 1 is gone: heartbeats stopped");
  destroy_buffer(y);
  T_FAILS(execute_with(exe, x, 200, 2, &y), "Incarnation id 200 is stale");
  /* the process registers again with another incarnation, and is waited for; a third incarnation then shows that the
   * second has ended too */
  tell(client, 201, PJRT_ProcessState_kConnected);
  T_OK(execute_with(exe, x, 201, 3, &y));
  T_OK(execute(local, &x, 1, 4, &z, NULL)); /* the survivor computes alone meanwhile */
  destroy_buffer(z);
  tell(client, 202, PJRT_ProcessState_kConnected);
  T_FAILS(buffer_outcome(y), "Task with incarnation id 201 is not connected: task 1 has restarted");
  destroy_buffer(y);
  destroy_buffer(x);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  CALL(LoadedExecutable_Destroy, .executable = local);
  CALL(Client_Destroy, .client = client);
}

/* A right digest does not make a program valid: the program inside is verified like any other. */
TEST(a_serialised_program_that_breaks_rules_is_refused)
{
  static const char text[] = "HloModule m\n"
                             "ENTRY e {\n"
                             "  p = f32[2] parameter(0)\n"
                             "  ROOT r = f32[3] negate(p)\n"
                             "}\n";
  PJRT_Client *client = make_client(1);
  WEFT_AUTO(hlo_module) module = NULL;
  weft_saved saved = {.platform = "cpu"};
  void *proto, *bytes;
  size_t size;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(hlo_to_proto(module, &proto, &saved.module_size));
  saved.module = proto;
  T_OK(weft_saved_pack(&saved, &bytes, &size));
  FAILS("f32[3]", Executable_DeserializeAndLoad, .client = client, .serialized_executable = bytes,
        .serialized_executable_size = size);
  free(bytes);
  free(proto);
  CALL(Client_Destroy, .client = client);
}

TEST_MAIN(UNIT(arguments_that_are_missing_or_short_are_errors), UNIT(handles_that_are_gone_or_of_another_kind_are_errors),
          UNIT(an_execution_with_wrong_lists_is_refused), UNIT(damaged_programs_options_and_executables_are_errors_or_run),
          UNIT(threads_share_a_client_and_need_not_wait_for_results), UNIT(a_collective_past_its_deadline_ends_outputs_and_waits),
          UNIT(a_dead_process_ends_what_waits_for_it_by_task_and_incarnation),
          UNIT(a_serialised_program_that_breaks_rules_is_refused))
