/* tests/coord/wire_test.c -- The wire, without sockets: byte vectors of the protocol, both dialects, compression,
 * limits. */
#include "test.h"

#include <zlib.h>

#include "base/deadline.h"
#include "coord/frontend.h"
#include "coord/wire/codec.h"
#include "coord/wire/pool.h"
#include "coord/wire/text.h"
#include "coord/wire/wire_status.h"

static size_t from_hex(const char *hex, uint8_t *out)
{
  size_t n = 0;
  unsigned byte;

  for (; *hex; hex += *hex ? 2 : 0) {
    while (*hex == ' ') hex++;
    if (sscanf(hex, "%2x", &byte) != 1) break;
    out[n++] = (uint8_t)byte;
  }
  return n;
}

static void expect_bytes(const uint8_t *got, size_t size, const char *hex)
{
  uint8_t want[512];

  T_EQ_INT(size, from_hex(hex, want));
  T_TRUE(memcmp(got, want, size) == 0);
}

TEST(requests_are_the_protocols_bytes)
{
  static const int32_t tasks[] = {0, 1};
  weft_arena arena;
  const uint8_t *data;
  size_t size;
  coord_request request = {.method = COORD_REGISTER_TASK, .task = 1, .incarnation = 0x1112131415161718};

  weft_arena_init(&arena);
  T_OK(coord_request_encode(&request, &arena, &data, &size));
  expect_bytes(data, size, "19 1817161514131211 28 01");
  request = (coord_request){.method = COORD_BARRIER,
                            .barrier_id = "b",
                            .timeout_ms = 1000,
                            .tasks = tasks,
                            .task_count = 2,
                            .task = 1,
                            .counter = 2,
                            .incarnation = 0x1112131415161718,
                            .service_incarnation = 0x2122232425262728};
  T_OK(coord_request_encode(&request, &arena, &data, &size));
  /* the vector of the facts, whose agents leave out their task id in Incarnations; we send it: field 1, 08 01 */
  expect_bytes(data, size, "0a14 0801 111817161514131211 192827262524232221 120162 18e807 22020001 2801 3002");
  weft_arena_fini(&arena);
}

TEST(both_dialects_are_understood)
{
  uint8_t data[64];
  weft_arena arena;
  coord_request r;
  coord_dialect dialect;
  coord_method method;

  weft_arena_init(&arena);
  T_OK(coord_request_decode(COORD_DIALECT_T, COORD_REGISTER_TASK, data,
                            from_hex("19 1817161514131211 2a0e 0a0a6a61785f776f726b6572 1001", data), &arena, &r));
  T_EQ_INT(r.task, 1);
  T_EQ_INT(r.incarnation, 0x1112131415161718);
  T_TRUE(!r.is_fenced);
  T_OK(coord_request_decode(
    COORD_DIALECT_X, COORD_BARRIER, data,
    from_hex("0a12 111817161514131211 192827262524232221 120162 18e807 22020001 2801 3002", data), &arena, &r));
  T_EQ_STR(r.barrier_id, "b");
  T_EQ_INT(r.timeout_ms, 1000);
  T_EQ_INT(r.task_count, 2);
  T_EQ_INT(r.tasks[1], 1);
  T_EQ_INT(r.counter, 2);
  T_TRUE(r.is_fenced && r.service_incarnation == 0x2122232425262728);
  T_CODE(coord_request_decode(COORD_DIALECT_X, COORD_BARRIER, "\x0a\x7f", 2, &arena, &r), WEFT_INVALID_ARGUMENT);
  T_TRUE(coord_path_parse("/xla.coordination.CoordinationService/WatchTasks", &dialect, &method) &&
         dialect == COORD_DIALECT_X && method == COORD_WATCH_TASKS);
  T_TRUE(coord_path_parse("/tensorflow.CoordinationService/WatchJobState", &dialect, &method) &&
         dialect == COORD_DIALECT_T && method == COORD_WATCH_TASKS);
  T_TRUE(!coord_path_parse("/xla.coordination.CoordinationService/ResetTask", &dialect, &method));
  T_TRUE(!coord_path_parse("/tensorflow.CoordinationService/WaitForAllTasks", &dialect, &method));
  weft_arena_fini(&arena);
}

static bool see_payload(void *ctx, const char *type_url, const void *data, size_t size)
{
  snprintf((char *)ctx + strlen(ctx), 256, "%s:%zu ", strrchr(type_url, '.') + 1, size);
  (void)data;
  return true;
}

TEST(error_details_are_the_protocols_bytes)
{
  static const char vector[] =
    "CjsKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISAAo0Cit0eXBlLmdvb2dsZWFwaXMuY29tL3"
    "RlbnNvcmZsb3cuQmFycmllckVycm9yEgUKAWIQAg";
  uint8_t data[512], *details;
  size_t size, details_size;
  int64_t counter = -1;
  char seen[512] = "";
  weft_status *st;

  T_TRUE(coord_base64_decode(vector, strlen(vector), data, &size));
  st = coord_status_from_wire(13, "m", data, size);
  T_EQ_INT(weft_status_code(st), WEFT_INTERNAL);
  weft_status_each_payload(st, see_payload, seen);
  T_TRUE(strstr(seen, "CoordinationServiceError:0") && strstr(seen, "BarrierError:5"));
  T_TRUE(coord_barrier_counter(st, &counter) && counter == 2);
  weft_status_free(st);
  st = coord_with_barrier(WEFT_ERR(INTERNAL, "m"), "b", 2);
  coord_details_encode(st, &details, &details_size); /* a map: the order of entries is free */
  T_EQ_INT(details_size, size);
  free(details);
  weft_status_free(st);
  st = coord_status_from_wire(99, "m", (const uint8_t *)"\x0a\x7f", 2);
  T_EQ_INT(weft_status_code(st), WEFT_UNKNOWN);
  T_TRUE(weft_status_payload(st, COORD_PAYLOAD_LOST, &size) != NULL);
  weft_status_free(st);
}

TEST(texts_survive_their_encodings)
{
  static const char message[] = "100% \"caf\xc3\xa9\"\n\x01";
  char encoded[64], decoded[64];
  uint8_t bytes[64];
  size_t size;

  T_EQ_INT(coord_percent_encode(message, strlen(message), encoded), strlen(encoded));
  T_EQ_STR(encoded, "100%25 \"caf%C3%A9\"%0A%01");
  coord_percent_decode(encoded, strlen(encoded), decoded);
  T_EQ_STR(decoded, message);
  coord_percent_decode("50% %4", 6, decoded); /* not ours: as it is */
  T_EQ_STR(decoded, "50% %4");
  for (size_t n = 0; n < 20; n++) {
    coord_base64_encode((const uint8_t *)message, WEFT_MIN(n, strlen(message)), encoded);
    T_TRUE(coord_base64_decode(encoded, strlen(encoded), bytes, &size));
    T_TRUE(size == WEFT_MIN(n, strlen(message)) && memcmp(bytes, message, size) == 0);
  }
  T_TRUE(coord_base64_decode("QQ==", 4, bytes, &size) && size == 1);
  T_TRUE(!coord_base64_decode("Q!", 2, bytes, &size) && !coord_base64_decode("QQQQQ", 5, bytes, &size));
  T_TRUE(coord_is_utf8("gr\xc3\xbc\xc3\x9f", 6) && !coord_is_utf8("\xc0\x80", 2) && !coord_is_utf8("\xed\xa0\x80", 3) &&
         !coord_is_utf8("\xe2\x82", 2));
}

/* `data` as one gzip member in malloc'd memory. */
static uint8_t *gzip(const uint8_t *data, size_t size, size_t *out_size)
{
  enum { GZIP_WINDOW_BITS = 15 + 16 };
  z_stream z = {.next_in = (uint8_t *)(uintptr_t)data, .avail_in = (uInt)size};

  T_EQ_INT(deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  uLong bound = deflateBound(&z, size);
  uint8_t *packed = malloc(bound);
  z.next_out = packed;
  z.avail_out = (uInt)bound;
  T_EQ_INT(deflate(&z, Z_FINISH), Z_STREAM_END);
  *out_size = bound - z.avail_out;
  deflateEnd(&z);
  return packed;
}

TEST(gzip_is_bounded)
{
  enum { BIG = 8 << 20 };
  size_t packed_size, size;
  uint8_t *zeros = calloc(1, BIG), *packed = gzip(zeros, BIG, &packed_size), *out;
  coord_budget budget = {.limit_bytes = 3 * BIG}, small = {.limit_bytes = BIG / 2};

  T_FAILS(coord_gunzip(packed, packed_size, 1 << 20, &budget, &out, &size), "inflates to more than 1048576 bytes");
  T_OK(coord_gunzip(packed, packed_size, BIG, &budget, &out, &size));
  T_EQ_INT(size, BIG);
  T_EQ_INT(budget.used_bytes, BIG); /* for the caller to give back */
  coord_budget_give(&budget, size);
  free(out);
  T_FAILS(coord_gunzip(packed, packed_size, BIG, &small, &out, &size), "past the memory limit of 4194304 bytes");
  T_EQ_INT(small.used_bytes, 0);
  T_FAILS(coord_gunzip(packed, packed_size - 5, BIG, &budget, &out, &size), "broken gzip");
  T_FAILS(coord_gunzip((const uint8_t *)"junk", 4, BIG, &budget, &out, &size), "broken gzip");
  packed = realloc(packed, packed_size + 1);
  packed[packed_size] = 0;
  T_FAILS(coord_gunzip(packed, packed_size + 1, BIG, &budget, &out, &size), "after the end");
  T_EQ_INT(budget.used_bytes, 0);
  free(packed);
  free(zeros);
}

/* ---- whole calls, through HTTP/2 in memory ---- */

static coord_frontend frontend;
static coord_h2 *server, *client;
static void untouched(coord_peer *peer) { (void)peer; }
static coord_peer peer = {.frontend = &frontend, .touched = untouched};

static void open_pair(int64_t max_value, int64_t max_total)
{
  weft_coord_service_options options;

  T_OK(weft_coord_service_options_load(&options));
  options.task_count = 2;
  options.max_value_bytes = max_value;
  options.max_total_bytes = max_total;
  T_OK(coord_frontend_init(&frontend, &options, 0x55));
  T_OK(coord_h2_server_new(&coord_frontend_handler, &peer, &frontend.h2_limits, &server));
  T_OK(coord_h2_client_new("memory", NULL, 1 << 30, &client));
}

static int close_pair(void **state)
{
  (void)state;
  coord_h2_close(WEFT_MOVE(client), "end");
  coord_h2_close(WEFT_MOVE(server), "end");
  if (frontend.core) coord_peer_gone(&peer);
  if (frontend.core) coord_frontend_fini(&frontend);
  peer = (coord_peer){.frontend = &frontend, .touched = untouched};
  return frontend.budget.used_bytes == 0 ? 0 : -1;
}

/* Passes all that one side has to send to the other. Returns the number of bytes. */
static size_t move(coord_h2 *from, coord_h2 *to)
{
  const uint8_t *data;
  size_t size, moved = 0;

  for (;;) {
    T_OK(coord_h2_send(from, &data, &size));
    if (size == 0) return moved;
    moved += size;
    T_OK(coord_h2_recv(to, data, size));
  }
}

static void pump(void)
{
  while (move(client, server) + move(server, client)) {}
}

typedef struct result {
  bool done;
  weft_status *error;
  uint8_t *message;
  size_t size;
} result;

static void on_done(void *ctx, weft_status *error, const uint8_t *message, size_t size)
{
  result *r = ctx;

  *r = (result){.done = true, .error = error, .message = malloc(size + 1), .size = size};
  if (size) memcpy(r->message, message, size);
}

static result call(const char *path, const void *message, size_t size)
{
  result r = {.done = false};
  coord_h2_call *started;

  T_OK(coord_h2_start(client, path, message, size, on_done, &r, &started));
  pump();
  return r;
}

#define T_PATH(method) "/tensorflow.CoordinationService/" method
#define X_PATH(method) "/xla.coordination.CoordinationService/" method

static void expect_reply(result r, const char *hex)
{
  T_TRUE(r.done);
  T_OK(r.error);
  expect_bytes(r.message, r.size, hex);
  free(r.message);
}

static void expect_error(result r, weft_code code, const char *fragment)
{
  T_TRUE(r.done);
  T_EQ_INT(weft_status_code(r.error), code);
  T_FAILS(r.error, fragment);
  free(r.message);
}

static result call_hex(const char *path, const char *hex)
{
  uint8_t data[256];

  return call(path, data, from_hex(hex, data));
}

TEST(session_of_an_old_client)
{
  coord_h2_call *started;
  result first = {.done = false}, poll = {.done = false};
  uint8_t data[64];
  size_t size;

  open_pair(1 << 20, 1 << 26);
  expect_reply(call_hex(T_PATH("InsertKeyValue"), "0a06 0a016b 120176"), ""); /* keys work before registration */
  expect_reply(call_hex(T_PATH("GetKeyValue"), "0a016b"), "0a06 0a016b 120176");
  T_OK(coord_h2_start(client, T_PATH("RegisterTask"), data, from_hex("19 0100000000000000 2a02 1000", data), on_done,
                      &first, &started));
  pump();
  T_TRUE(!first.done);
  expect_reply(call_hex(T_PATH("RegisterTask"), "19 0200000000000000 2a02 1001"), "09 5500000000000000");
  expect_reply(first, "09 5500000000000000");
  expect_reply(call_hex(T_PATH("Heartbeat"), "19 0200000000000000 2202 1001"), "09 5500000000000000");
  expect_reply(call_hex(T_PATH("IncrementKeyValue"), "0a016e 1005"), "0a06 0a016e 120135");
  expect_reply(call_hex(T_PATH("GetKeyValueDir"), "0a0164"), "");
  expect_reply(call_hex(T_PATH("GetTaskState"), "0a021001"), "0a0f 0a021001 1003 310200000000000000");
  T_OK(coord_h2_start(client, T_PATH("PollForError"), data, from_hex("0a02 1000", data), on_done, &poll, &started));
  pump();
  expect_reply(call_hex(T_PATH("ReportErrorToService"), "080d 120178 2a021001"), "");
  T_TRUE(poll.done && weft_status_payload(poll.error, COORD_PAYLOAD_SERVICE_ERROR, &size) &&
         size == 6); /* 18 01 22 02 10 01 */
  expect_error(poll, WEFT_INTERNAL, "x");
  expect_reply(call_hex(T_PATH("GetAliveTasks"), "0a021000 12021000 12021001"), "0a00 12080100000000000000");
  expect_error(call_hex(T_PATH("WaitForAllTasks"), ""), WEFT_UNIMPLEMENTED, "WaitForAllTasks");
}

TEST(wrong_calls_get_an_answer)
{
  open_pair(1 << 20, 1 << 26);
  expect_error(call_hex("/nobody/Nothing", ""), WEFT_UNIMPLEMENTED, "no method /nobody/Nothing");
  expect_error(call_hex(X_PATH("Heartbeat"), "0a7f"), WEFT_INVALID_ARGUMENT, "no Heartbeat message");
  expect_error(call_hex(X_PATH("TryGetKeyValue"), "12016b"), WEFT_INTERNAL, "wrong service incarnation");
  expect_reply(call_hex(X_PATH("InsertKeyValue"), "0a09 195500000000000000 1203 0a016b"), ""); /* an empty value */
  expect_reply(call_hex(X_PATH("TryGetKeyValue"), "0a09 195500000000000000 12016b"), "0a03 0a016b");
  expect_error(call_hex(X_PATH("InsertKeyValue"), "0a09 195500000000000000 1204 0a02ff41"), WEFT_INVALID_ARGUMENT,
               "UTF-8");
}

TEST(a_call_that_ends_before_its_reply_is_written_takes_it_along)
{
  coord_h2_call *started[3];
  result kept[2] = {{.done = false}, {.done = false}}, dropped = {.done = false};
  uint8_t data[64];
  size_t size = from_hex("0a09 195500000000000000 1203 0a016b", data);

  open_pair(1 << 20, 1 << 26);
  T_OK(coord_h2_start(client, X_PATH("InsertKeyValue"), data, size, on_done, &kept[0], &started[0]));
  size = from_hex("0a09 195500000000000000 12016b", data);
  T_OK(coord_h2_start(client, X_PATH("TryGetKeyValue"), data, size, on_done, &dropped, &started[1]));
  T_OK(coord_h2_start(client, X_PATH("TryGetKeyValue"), data, size, on_done, &kept[1], &started[2]));
  T_TRUE(move(client, server) > 0); /* all three are answered now, nothing is written */
  coord_h2_cancel(started[1]);
  T_TRUE(move(client, server) > 0);
  pump();
  T_TRUE(!dropped.done);
  expect_reply(kept[0], "");
  expect_reply(kept[1], "0a03 0a016b");
  T_OK(coord_h2_start(client, X_PATH("TryGetKeyValue"), data, size, on_done, &dropped, &started[0]));
  T_TRUE(move(client, server) > 0); /* a connection that ends with a reply to write */
  coord_h2_close(WEFT_MOVE(server), "gone");
  coord_h2_close(WEFT_MOVE(client), "gone");
  expect_error(dropped, WEFT_UNAVAILABLE, "gone");
}

TEST(messages_over_the_limit_are_refused_and_the_connection_goes_on)
{
  enum { BIG = 5 << 20 };
  uint8_t *big = calloc(1, BIG);

  open_pair(1 << 20, 1 << 24);
  expect_error(call(X_PATH("TryGetKeyValue"), big, BIG), WEFT_RESOURCE_EXHAUSTED, "the limit of this method");
  expect_error(call(X_PATH("InsertKeyValue"), big, BIG), WEFT_RESOURCE_EXHAUSTED, "the limit of this method");
  expect_error(call_hex("/nobody/Nothing", ""), WEFT_UNIMPLEMENTED, "no method");
  free(big);
}

TEST(total_memory_is_bounded)
{
  enum { VALUE = 900 << 10 };
  weft_arena arena;
  char *value = calloc(1, VALUE), key[16];
  int stored = 0;

  weft_arena_init(&arena);
  open_pair(1 << 20, 8 << 20);
  for (; stored < 20; stored++) {
    const uint8_t *data;
    size_t size;
    result r;
    snprintf(key, sizeof key, "k%d", stored);
    T_OK(coord_request_encode(
      &(coord_request){
        .method = COORD_INSERT_KEY_VALUE, .key = key, .value = value, .value_size = VALUE, .service_incarnation = 0x55},
      &arena, &data, &size));
    r = call(X_PATH("InsertKeyValue"), data, size);
    free(r.message);
    T_TRUE(frontend.budget.used_bytes <= 8 << 20);
    if (!r.error) continue;
    T_CODE(r.error, WEFT_RESOURCE_EXHAUSTED);
    break;
  }
  T_TRUE(stored >= 5 && stored < 10);
  expect_reply(call_hex(X_PATH("DeleteKeyValue"), "0a09 195500000000000000 1202 6b30"), ""); /* room again */
  free(value);
  weft_arena_fini(&arena);
}

/* Each object keeps its bytes, whatever is allocated, grown and freed around it, in the pool and past its end. */
TEST(pool_objects_keep_their_bytes)
{
  enum { OBJECTS = 96, STEPS = 20000 };
  coord_pool *pool = aligned_alloc(_Alignof(coord_pool), sizeof *pool);
  struct { uint8_t *bytes; size_t size; } objects[OBJECTS] = {0};
  uint32_t random = 12345;

  coord_pool_init(pool);
  for (int step = 0; step < STEPS; step++) {
    size_t i = (random = random * 1664525 + 1013904223) >> 8 & 0xffff, size = 1 + (random >> 24) * 3;
    uint8_t *old = objects[i %= OBJECTS].bytes;
    for (size_t k = 0; k < objects[i].size; k++) T_EQ_INT(old[k], (uint8_t)i);
    switch (step % 3) {
    case 0:
      coord_pool_free(pool, old);
      old = coord_pool_alloc(pool, size);
      break;
    case 1: old = coord_pool_resize(pool, old, size); break;
    case 2:
      coord_pool_free(pool, old);
      old = coord_pool_zeroed(pool, size, 1);
      break;
    }
    T_TRUE(old != NULL);
    T_EQ_INT((uintptr_t)old % COORD_POOL_UNIT, 0);
    for (size_t k = 0; k < WEFT_MIN(size, objects[i].size); k++)
      if (step % 3 != 0) T_EQ_INT(old[k], step % 3 == 1 ? (uint8_t)i : 0);
    memset(old, (int)i, size);
    objects[i].bytes = old;
    objects[i].size = size;
  }
  for (size_t i = 0; i < OBJECTS; i++) coord_pool_free(pool, objects[i].bytes);
  coord_pool_prefetch(pool);
  free(pool);
}

/* What one call after the other needs is the memory of the call before. */
TEST(pool_memory_is_used_again)
{
  coord_pool *pool = aligned_alloc(_Alignof(coord_pool), sizeof *pool);
  void *first, *objects[8];
  int used = 0;

  coord_pool_init(pool);
  first = coord_pool_alloc(pool, 3000);
  for (int round = 0; round < 1000; round++) {
    for (size_t i = 0; i < WEFT_COUNT(objects); i++) objects[i] = coord_pool_alloc(pool, 40 * (i + 1));
    for (size_t i = 0; i < WEFT_COUNT(objects); i++) coord_pool_free(pool, objects[i]);
    if (round == 0) used = pool->used;
  }
  T_EQ_INT(pool->used, used);
  T_TRUE(coord_pool_zeroed(pool, SIZE_MAX, 2) == NULL);
  coord_pool_free(pool, first);
  free(pool);
}

int main(void)
{
#define U(name) cmocka_unit_test_teardown(name, close_pair)
  const struct CMUnitTest units[] = {
    UNIT(requests_are_the_protocols_bytes), UNIT(both_dialects_are_understood), UNIT(error_details_are_the_protocols_bytes),
    UNIT(texts_survive_their_encodings), UNIT(gzip_is_bounded), U(session_of_an_old_client), U(wrong_calls_get_an_answer),
    U(a_call_that_ends_before_its_reply_is_written_takes_it_along),
    U(messages_over_the_limit_are_refused_and_the_connection_goes_on), U(total_memory_is_bounded),
    UNIT(pool_objects_keep_their_bytes), UNIT(pool_memory_is_used_again),
  };
  return cmocka_run_group_tests(units, NULL, NULL);
}
