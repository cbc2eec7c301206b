/* tests/gpu/transfers_test.c -- the CrossHostTransfers extension between two processes of one emulated GPU each: NCCL
 * moves the data, the communicators are kept, and every transfer that cannot end well ends on both sides in time.
 *
 * A case is two functions, each in a process of its own.  Their clients meet in a folder of files. */
#include "pjrt/client.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/deadline.h"

/* A deadline that must pass is short; one that must not is longer than a busy machine takes. */
enum { SENDER, RECEIVER, CASE_S = 60, MOST = 24, SHORT_MS = 3000, LONG_MS = 20000, SLACK_MS = 2500 };

static char folder[64];
static int side;                 /* of this process */
static int timeout_ms = LONG_MS; /* of the transfers of the next case */
static PJRT_Client *client;
static const PJRT_CrossHostTransfers_Extension *transfers;
static int32_t devices[2]; /* global ids */
static uint64_t (*emu_calls)(const char *call);
static void (*emu_reset)(void);

/* ---- the store ---- */

static void path_of(const char *key, size_t size, char *out, size_t out_size)
{
  int used = snprintf(out, out_size, "%s/%.*s", folder, (int)size, key);

  for (char *at = out + strlen(folder) + 1; at < out + used; at++)
    if (*at == '/') *at = '_';
}

static bool read_value(const char *path, char **out_value, size_t *out_size)
{
  struct stat about;
  int fd = open(path, O_RDONLY);

  if (fd < 0) return false;
  assert_int_equal(fstat(fd, &about), 0);
  *out_size = (size_t)about.st_size;
  *out_value = calloc(1, *out_size + 1);
  assert_int_equal(read(fd, *out_value, *out_size), about.st_size);
  close(fd);
  return true;
}

static void free_value(char *value) { free(value); }

static PJRT_Error *kv_try_get(PJRT_KeyValueTryGetCallback_Args *args)
{
  char path[600];

  path_of(args->key, args->key_size, path, sizeof path);
  args->value_deleter_callback = free_value;
  return read_value(path, &args->value, &args->value_size)
           ? NULL
           : (*args->callback_error)(PJRT_Error_Code_NOT_FOUND, "no such key", 11);
}

static PJRT_Error *kv_get(PJRT_KeyValueGetCallback_Args *args)
{
  char path[600];

  path_of(args->key, args->key_size, path, sizeof path);
  args->value_deleter_callback = free_value;
  for (int waited = 0; waited <= args->timeout_in_ms; waited += 2) {
    if (read_value(path, &args->value, &args->value_size)) return NULL;
    usleep(2000);
  }
  return (*args->callback_error)(PJRT_Error_Code_DEADLINE_EXCEEDED, "no such key", 11);
}

/* A key appears with its value: the file gets its name when it is whole. */
static bool put(const char *key, size_t key_size, const char *value, size_t size)
{
  char path[600], part[620];

  path_of(key, key_size, path, sizeof path);
  snprintf(part, sizeof part, "%s.part%d", path, side);
  int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, value, size), (ssize_t)size);
  close(fd);
  bool is_new = link(part, path) == 0;
  unlink(part);
  return is_new;
}

static PJRT_Error *kv_put(PJRT_KeyValuePutCallback_Args *args)
{
  return put(args->key, args->key_size, args->value, args->value_size)
           ? NULL
           : (*args->callback_error)(PJRT_Error_Code_ALREADY_EXISTS, "taken", 5);
}

/* Both processes are here. */
static void meet(const char *where)
{
  char name[2][100], path[600], *value;
  size_t size;

  for (int s = 0; s < 2; s++) snprintf(name[s], sizeof name[s], "met_%s_%d", where, s);
  put(name[side], strlen(name[side]), "1", 1);
  path_of(name[1 - side], strlen(name[1 - side]), path, sizeof path);
  for (int i = 0; !read_value(path, &value, &size); i++) {
    if (i > 40000) fail_msg("the other process did not come to %s", where);
    usleep(1000);
  }
  free(value);
}

/* ---- a process ---- */

static void *symbol_of(const char *library, const char *name)
{
  char path[4096];

  snprintf(path, sizeof path, "%s/%s", getenv("WEFT_CUDA_LIBDIR"), library);
  void *found = dlsym(dlopen(path, RTLD_NOW), name);
  assert_non_null(found);
  return found;
}
static void *symbol(const char *name) { return symbol_of("libcuda.so.1", name); }

static void inject(const char *faults)
{
  if (faults) setenv("WEFT_EMU_FAULTS", faults, 1);
  else unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
}

static void open_client(void)
{
  PJRT_NamedValue options[] = {
      {.struct_size = sizeof *options, .name = "node_id", .name_size = 7, .type = PJRT_NamedValue_kInt64, .int64_value = side, .value_size = 1},
      {.struct_size = sizeof *options, .name = "num_nodes", .name_size = 9, .type = PJRT_NamedValue_kInt64, .int64_value = 2, .value_size = 1}};

  client = CALL(Client_Create, .create_options = options, .num_options = 2, .kv_get_callback = kv_get,
                .kv_put_callback = kv_put, .kv_try_get_callback = kv_try_get)
             .client;
  PJRT_Client_Devices_Args all = CALL(Client_Devices, .client = client);
  T_EQ_INT((int)all.num_devices, 2);
  const char *kinds[2];
  for (int i = 0; i < 2; i++) {
    PJRT_DeviceDescription *about = CALL(Device_GetDescription, .device = all.devices[i]).device_description;
    devices[i] = CALL(DeviceDescription_Id, .device_description = about).id;
    kinds[i] = CALL(DeviceDescription_Kind, .device_description = about).device_kind;
  }
  T_EQ_STR(kinds[0], kinds[1]); /* JAX refuses transfers between devices of two kinds */
  for (const PJRT_Extension_Base *x = GetPjrtApi()->extension_start; x; x = x->next)
    if (x->type == PJRT_Extension_Type_CrossHostTransfers) transfers = (const PJRT_CrossHostTransfers_Extension *)x;
  assert_non_null(transfers);
  *(void **)&emu_calls = symbol("weft_emu_calls");
  *(void **)&emu_reset = symbol("weft_emu_reset");
  emu_calls(NULL); /* from here on calls are counted */
}

typedef struct pair { void (*of[2])(void); } pair;

/* Runs both sides.  A side that fails says why on its own, and the test names it. */
static void run(pair p)
{
  pid_t children[2];
  bool well = true;

  strcpy(folder, "/tmp/weft-transfers-XXXXXX");
  assert_non_null(mkdtemp(folder));
  for (int s = 0; s < 2; s++) {
    children[s] = fork();
    assert_true(children[s] >= 0);
    if (children[s]) continue;
    setenv("CMOCKA_TEST_ABORT", "1", 1); /* the process of a side that fails ends */
    alarm(CASE_S);
    side = s;
    char timeout[32];
    snprintf(timeout, sizeof timeout, "%dms", timeout_ms);
    setenv("WEFT_COLLECTIVE_TIMEOUT", timeout, 1);
    open_client();
    p.of[s]();
    _exit(0);
  }
  for (int s = 0; s < 2; s++) {
    int how;
    assert_int_equal(waitpid(children[s], &how, 0), children[s]);
    if (how == 0 || (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)) continue;
    print_error("%s ended with %d\n", s == SENDER ? "the sender" : "the receiver", how);
    well = false;
  }
  char command[100];
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0);
  if (!well) fail();
}

/* Transfers that go well come before the deadline that passes; with sanitizers they take longer. */
static int short_ms(void) { return getenv("WEFT_SANITIZED") ? 3 * SHORT_MS : SHORT_MS; }

/* The same for a case whose deadline passes. */
static void run_to_the_deadline(pair p)
{
  timeout_ms = short_ms();
  run(p);
  timeout_ms = LONG_MS;
}

/* ---- transfers ---- */

static PJRT_Buffer *make(int64_t elems, float first)
{
  float *data = malloc((size_t)elems * sizeof *data + 1);

  for (int64_t i = 0; i < elems; i++) data[i] = first + (float)i;
  PJRT_Buffer *made = make_floats(client, data, &elems, 1, NULL);
  free(data);
  return made;
}

static void check(PJRT_Buffer *got, int64_t elems, float first)
{
  float *data = malloc((size_t)elems * sizeof *data + 1);

  T_OK(buffer_outcome(got));
  read_floats(got, data, (size_t)elems);
  for (int64_t i = 0; i < elems; i++)
    if (data[i] != first + (float)i) fail_msg("element %d is %f, not %f", (int)i, data[i], first + (float)i);
  free(data);
}

static void send_all(int count, PJRT_Buffer **buffers, const int64_t *keys, PJRT_Event **out_events)
{
  int32_t to[MOST];

  for (int i = 0; i < count; i++) to[i] = devices[1 - side];
  must_succeed(transfers->cross_host_send_buffers(&(PJRT_Transfers_CrossHostSendBuffers_Args){
                 .struct_size = sizeof(PJRT_Transfers_CrossHostSendBuffers_Args),
                 .client = client,
                 .num_buffers = (size_t)count,
                 .buffers = buffers,
                 .dst_global_device_ids = to,
                 .transfer_keys = keys,
                 .send_events = out_events}),
               "send");
}

static void receive_all(int count, const int64_t *elems, const int64_t *keys, PJRT_Buffer **out)
{
  int32_t from[MOST];
  size_t ranks[MOST];
  const int64_t *dims[MOST];
  PJRT_Buffer_Type types[MOST];

  for (int i = 0; i < count; i++) {
    from[i] = devices[1 - side];
    ranks[i] = 1;
    dims[i] = &elems[i];
    types[i] = PJRT_Buffer_Type_F32;
  }
  must_succeed(transfers->cross_host_receive_buffers(&(PJRT_Transfers_CrossHostReceiveBuffers_Args){
                 .struct_size = sizeof(PJRT_Transfers_CrossHostReceiveBuffers_Args),
                 .client = client,
                 .num_shapes = (size_t)count,
                 .shape_num_dims = ranks,
                 .dims = dims,
                 .element_types = types,
                 .device = device_of(client, 0),
                 .src_global_device_ids = from,
                 .transfer_keys = keys,
                 .buffers = out}),
               "receive");
}

static PJRT_Event *send_one(PJRT_Buffer *buffer, int64_t key)
{
  PJRT_Event *event;
  send_all(1, &buffer, &key, &event);
  return event;
}

static PJRT_Buffer *receive_one(int64_t elems, int64_t key)
{
  PJRT_Buffer *got;
  receive_all(1, &elems, &key, &got);
  return got;
}

/* One transfer that must go well. */
static void one_goes_well(int64_t key)
{
  if (side == SENDER) {
    PJRT_Buffer *x = make(100, (float)key);
    T_OK(outcome(send_one(x, key)));
    destroy_buffer(x);
  } else {
    PJRT_Buffer *got = receive_one(100, key);
    check(got, 100, (float)key);
    destroy_buffer(got);
  }
}

/* The same after an error that ended the link.  A sender may not have heard of it yet: then its transfer goes to the
 * old link and gets the error, too. */
static void one_goes_well_again(int64_t key)
{
  weft_status *st = NULL;

  if (side == RECEIVER) {
    one_goes_well(key);
    return;
  }
  PJRT_Buffer *x = make(100, (float)key);
  for (int i = 0; i < 100; i++) {
    weft_status_free(st);
    st = outcome(send_one(x, key));
    if (weft_status_code(st) != WEFT_ABORTED) break;
    usleep(10000);
  }
  T_OK(st);
  destroy_buffer(x);
}

static void close_client(void)
{
  meet("the end");
  CALL(Client_Destroy, .client = client);
}

/* ---- cases ---- */

static const int64_t sizes[] = {1, 0, 7, 1000, 70000, 3, 128, 300000};
enum { SIZES = WEFT_COUNT(sizes), ROUNDS = 3 };

/* Both sides send and receive at the same time; keys say which receive is for which send. */
static void both_ways(void)
{
  for (int round = 0; round < ROUNDS; round++) {
    PJRT_Buffer *out[SIZES], *in[SIZES];
    PJRT_Event *events[SIZES];
    int64_t keys[SIZES], back[SIZES], elems[SIZES];
    for (int i = 0; i < (int)SIZES; i++) {
      keys[i] = 10 * round + i;
      back[i] = 10 * round + (int)SIZES - 1 - i;
      elems[i] = sizes[SIZES - 1 - (size_t)i];
      out[i] = make(sizes[i], (float)(100 * side + i));
    }
    if (side == SENDER) send_all(SIZES, out, keys, events);
    receive_all(SIZES, elems, back, in);
    if (side == RECEIVER) send_all(SIZES, out, keys, events);
    for (int i = 0; i < (int)SIZES; i++) {
      T_OK(outcome(events[i]));
      check(in[i], elems[i], (float)(100 * (1 - side) + (int)SIZES - 1 - i));
      destroy_buffer(in[i]);
      destroy_buffer(out[i]);
    }
  }
  bool by_nccl = strcmp(getenv("WEFT_CUDA_COLLECTIVES"), "auto") == 0;
  T_EQ_INT((int)emu_calls("ncclSend"), by_nccl ? ROUNDS * (SIZES - 1) : 0); /* all but the empty one */
  T_EQ_INT((int)emu_calls("ncclRecv"), by_nccl ? ROUNDS * (SIZES - 1) : 0);
  T_EQ_INT((int)emu_calls("ncclCommInitRankConfig"), by_nccl ? 2 : 0); /* one for each direction */
  close_client();
}
TEST(buffers_go_both_ways_by_communicators_that_are_kept) { run((pair){{both_ways, both_ways}}); }
enum { GROUPED = 20 };

/* While the first buffer is in a call of the library, the others come, and go at once. */
static void many(void)
{
  PJRT_Buffer *buffers[GROUPED];
  PJRT_Event *events[GROUPED];
  int64_t keys[GROUPED], elems[GROUPED];
  int (*jobs)(void) = NULL;

  one_goes_well(1000);
  *(void **)&jobs = symbol_of("libnccl.so.2", "weft_emu_nccl_jobs");
  int before = jobs();
  for (int i = 0; i < GROUPED; i++) {
    keys[i] = i;
    elems[i] = 1000 + i;
  }
  inject(side == SENDER ? "ncclSend:1=delay:700ms" : "ncclRecv:1=delay:700ms");
  if (side == SENDER) {
    for (int i = 0; i < GROUPED; i++) {
      buffers[i] = make(elems[i], (float)i);
      T_OK(buffer_outcome(buffers[i])); /* its bytes are there */
    }
    send_all(GROUPED, buffers, keys, events);
    for (int i = 0; i < GROUPED; i++) T_OK(outcome(events[i]));
  } else {
    receive_all(GROUPED, elems, keys, buffers);
    for (int i = 0; i < GROUPED; i++) check(buffers[i], elems[i], (float)i);
  }
  for (int i = 0; i < GROUPED; i++) destroy_buffer(buffers[i]);
  T_EQ_INT((int)emu_calls(side == SENDER ? "ncclSend" : "ncclRecv"), GROUPED + 1);
  if (jobs() - before > GROUPED / 2) fail_msg("%d buffers went in %d jobs", (int)GROUPED, jobs() - before);
  inject(NULL);
  close_client();
}
TEST(buffers_whose_bytes_are_there_go_at_once) { run((pair){{many, many}}); }

TEST(buffers_go_by_the_host_where_nccl_is_not_used)
{
  setenv("WEFT_CUDA_COLLECTIVES", "peers", 1);
  run((pair){{both_ways, both_ways}});
  setenv("WEFT_CUDA_COLLECTIVES", "auto", 1);
}

static const char add_one[] = "module @jit_f { func.func public @main(%x: tensor<100xf32>) -> tensor<100xf32> {\n"
                              "  %c = stablehlo.constant dense<1.0> : tensor<100xf32>\n"
                              "  %y = stablehlo.add %x, %c : tensor<100xf32>\n  return %y : tensor<100xf32> } }\n";

/* The send is queued behind the kernel that computes its buffer, and the buffer is given up meanwhile. */
static void send_early(void)
{
  PJRT_LoadedExecutable *exe = compile(client, add_one);
  PJRT_Buffer *x = make(100, 4), *y;

  one_goes_well(1); /* the link is there */
  meet("linked");
  uint64_t before = emu_calls("ncclSend");
  inject("cuLaunchKernel:1=stall:700ms");
  T_OK(execute(exe, &x, 1, 0, &y, NULL));
  PJRT_Event *computed = CALL(Buffer_ReadyEvent, .buffer = y).event;
  PJRT_Event *sent = send_one(y, 2);
  for (int i = 0; emu_calls("ncclSend") == before && i < 500; i++) usleep(1000);
  T_TRUE(emu_calls("ncclSend") == before + 1);
  T_TRUE(!CALL(Event_IsReady, .event = computed).is_ready);
  destroy_buffer(y);
  T_OK(outcome(sent));
  T_OK(outcome(computed));
  destroy_buffer(x);
  CALL(LoadedExecutable_Destroy, .executable = exe);
  close_client();
}
static void receive_early(void)
{
  one_goes_well(1);
  meet("linked");
  PJRT_Buffer *got = receive_one(100, 2);
  check(got, 100, 5);
  destroy_buffer(got);
  close_client();
}
TEST(a_send_is_queued_before_its_buffer_is_computed) { run((pair){{send_early, receive_early}}); }

/* A buffer that becomes an error, and a receive of another size: only these transfers fail. */
static void send_errors(void)
{
  int64_t elems = 100;
  PJRT_Client_CreateAliasBuffer_Args never = CALL(Client_CreateAliasBuffer, .client = client,
                                                  .memory = memory_of(client, 0, 0), .shape_dims = &elems,
                                                  .shape_num_dims = 1, .shape_element_type = PJRT_Buffer_Type_F32);
  PJRT_Buffer *x = make(100, 3);
  PJRT_Event *lost = send_one(never.alias_buffer, 1), *other = send_one(x, 2), *good = send_one(x, 3);

  T_OK(outcome(good));
  T_FAILS(outcome(other), "400 bytes of type");
  CALL(Client_FulfillAliasBuffer, .client = client, .status_code = PJRT_Error_Code_DATA_LOSS, .error_message = "lost",
       .error_message_size = 4, .fulfill_alias_buffer_cb = never.fulfill_alias_buffer_cb);
  T_FAILS(outcome(lost), "lost");
  one_goes_well(4);
  T_EQ_INT((int)emu_calls("ncclCommInitRankConfig"), 1);
  destroy_buffer(never.alias_buffer);
  destroy_buffer(x);
  close_client();
}
static void receive_errors(void)
{
  PJRT_Buffer *lost = receive_one(100, 1), *other = receive_one(99, 2), *good = receive_one(100, 3);

  T_FAILS(buffer_outcome(other), "400 bytes of type");
  check(good, 100, 3);
  T_FAILS(buffer_outcome(lost), "lost");
  one_goes_well(4);
  T_EQ_INT((int)emu_calls("ncclCommInitRankConfig"), 1);
  destroy_buffer(lost);
  destroy_buffer(other);
  destroy_buffer(good);
  close_client();
}
TEST(an_error_of_one_transfer_leaves_the_others_alone) { run((pair){{send_errors, receive_errors}}); }

/* What ends a transfer in time, whatever goes wrong with the other side: at its deadline if that is short, and else
 * well before it. */
static void ends_in_time(weft_status *(*end)(void *), void *what)
{
  int64_t began_ns = weft_now_ns();
  weft_status *st = end(what);
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;

  if (!st) fail_msg("it ended well");
  if (took_ms > (timeout_ms < LONG_MS ? timeout_ms + SLACK_MS : LONG_MS / 2))
    fail_msg("after %d ms: %s", (int)took_ms, weft_status_text(st, true));
  weft_status_free(st);
}
static weft_status *end_of_event(void *event) { return outcome(event); }
static weft_status *end_of_buffer(void *buffer) { return buffer_outcome(buffer); }

/* Nobody sends what is received. */
static void send_nothing(void)
{
  one_goes_well(1);
  meet("the error");
  one_goes_well_again(2);
  close_client();
}
static void receive_in_vain(void)
{
  one_goes_well(1);
  PJRT_Buffer *got = receive_one(100, 9);
  ends_in_time(end_of_buffer, got);
  destroy_buffer(got);
  meet("the error");
  one_goes_well_again(2);
  close_client();
}
TEST(a_receive_without_a_send_ends_at_the_deadline) { run_to_the_deadline((pair){{send_nothing, receive_in_vain}}); }

/* A call of the library fails on one side. */
static void send_by_a_call_that_fails(void)
{
  PJRT_Buffer *x = make(100, 3);

  one_goes_well(1);
  inject("ncclSend:1=3");
  ends_in_time(end_of_event, send_one(x, 2));
  inject(NULL);
  meet("the error");
  one_goes_well_again(3);
  destroy_buffer(x);
  close_client();
}
static void receive_what_is_not_sent(void)
{
  one_goes_well(1);
  PJRT_Buffer *got = receive_one(100, 2);
  ends_in_time(end_of_buffer, got);
  destroy_buffer(got);
  meet("the error");
  one_goes_well_again(3);
  close_client();
}
TEST(a_call_of_the_library_that_fails_ends_both_sides)
{
  run((pair){{send_by_a_call_that_fails, receive_what_is_not_sent}});
}

/* The device of the sender hangs in the transfer. */
static void send_from_a_device_that_hangs(void)
{
  PJRT_Buffer *x = make(100, 3);

  setenv("WEFT_EMU_NCCL", "silent:0@1", 1);
  ends_in_time(end_of_event, send_one(x, 2));
  unsetenv("WEFT_EMU_NCCL");
  meet("the error");
  one_goes_well_again(3);
  destroy_buffer(x);
  close_client();
}
static void receive_from_a_device_that_hangs(void)
{
  PJRT_Buffer *got = receive_one(100, 2);
  ends_in_time(end_of_buffer, got);
  destroy_buffer(got);
  meet("the error");
  one_goes_well_again(3);
  close_client();
}
TEST(a_device_that_hangs_ends_both_sides)
{
  run_to_the_deadline((pair){{send_from_a_device_that_hangs, receive_from_a_device_that_hangs}});
}

/* A process is killed while its peer waits for it. */
static void die(void)
{
  one_goes_well(1);
  meet("the end of one");
  kill(getpid(), SIGKILL);
}
static void survive(void)
{
  one_goes_well(1);
  PJRT_Buffer *got[3] = {receive_one(100, 2), receive_one(50, 3), receive_one(10, 4)};
  meet("the end of one");
  for (int i = 0; i < 3; i++) ends_in_time(end_of_buffer, got[i]);
  for (int i = 0; i < 3; i++) destroy_buffer(got[i]);
  CALL(Client_Destroy, .client = client);
}
TEST(a_process_that_dies_ends_the_transfers_of_its_peer) { run((pair){{die, survive}}); }

/* The sender's part of a transfer is over long before the receiver's, and the sender leaves as soon as its transfer
 * ends, with another one under way. */
static void send_and_go(void)
{
  PJRT_Buffer *x = make(100, 3);
  PJRT_Event *later;

  one_goes_well(1);
  meet("linked");
  PJRT_Event *first = send_one(x, 2);
  later = send_one(x, 5); /* nobody receives it */
  T_OK(outcome(first));
  destroy_buffer(x);
  CALL(Event_Destroy, .event = later);
  CALL(Client_Destroy, .client = client);
}
static void receive_late(void)
{
  one_goes_well(1);
  meet("linked");
  inject("ncclRecv:1=stall:700ms");
  PJRT_Buffer *got = receive_one(100, 2);
  check(got, 100, 3);
  destroy_buffer(got);
  inject(NULL);
  CALL(Client_Destroy, .client = client);
}
TEST(a_send_that_has_ended_has_arrived) { run((pair){{send_and_go, receive_late}}); }

/* A client that goes ends its transfers. */
static void go(void)
{
  one_goes_well(1);
  PJRT_Buffer *x = make(100, 3);
  PJRT_Event *event = send_one(x, 5); /* nobody receives it */
  usleep(100000);
  destroy_buffer(x);
  CALL(Event_Destroy, .event = event);
  CALL(Client_Destroy, .client = client);
  meet("gone");
}
static void stay(void)
{
  one_goes_well(1);
  PJRT_Buffer *got = receive_one(100, 2);
  meet("gone");
  ends_in_time(end_of_buffer, got);
  destroy_buffer(got);
  CALL(Client_Destroy, .client = client);
}
TEST(a_client_that_is_destroyed_ends_its_transfers) { run((pair){{go, stay}}); }

/* The client goes in the callback of its last transfer, on a thread of the platform, which is then the last that holds
 * the platform. */
static atomic_bool is_gone;
static void destroy_client(PJRT_Error *error, void *event)
{
  assert_null(error);
  CALL(Event_Destroy, .event = event);
  CALL(Client_Destroy, .client = client);
  is_gone = true;
}
static void go_inside(void)
{
  PJRT_Buffer *x = make(100, 3);
  PJRT_Event *event = send_one(x, 5);
  destroy_buffer(x);
  CALL(Event_OnReady, .event = event, .callback = destroy_client, .user_arg = event);
  meet("posted");
  for (int i = 0; !is_gone; i++) {
    if (i > 20000) fail_msg("the client was not destroyed");
    usleep(1000);
  }
  usleep(500000); /* the platform ends meanwhile */
}
static void stay_outside(void)
{
  meet("posted");
  destroy_buffer(receive_one(100, 5));
  usleep(3000000);
  CALL(Client_Destroy, .client = client);
}
TEST(a_client_may_be_destroyed_in_the_callback_of_a_transfer) { run((pair){{go_inside, stay_outside}}); }

__attribute__((constructor)) static void one_device(void)
{
  setenv("WEFT_CUDA_DEVICES", "1", 1);
  setenv("WEFT_CUDA_COLLECTIVES", "auto", 1);
}

TEST_MAIN(UNIT(buffers_go_both_ways_by_communicators_that_are_kept),
          UNIT(buffers_whose_bytes_are_there_go_at_once), UNIT(buffers_go_by_the_host_where_nccl_is_not_used),
          UNIT(a_send_is_queued_before_its_buffer_is_computed), UNIT(an_error_of_one_transfer_leaves_the_others_alone),
          UNIT(a_receive_without_a_send_ends_at_the_deadline), UNIT(a_call_of_the_library_that_fails_ends_both_sides),
          UNIT(a_device_that_hangs_ends_both_sides), UNIT(a_process_that_dies_ends_the_transfers_of_its_peer),
          UNIT(a_send_that_has_ended_has_arrived), UNIT(a_client_that_is_destroyed_ends_its_transfers),
          UNIT(a_client_may_be_destroyed_in_the_callback_of_a_transfer))
