/* tests/fuzz/coord_h2_fuzz.c -- The coordination service against a stranger's bytes: HTTP/2, gRPC framing, gzip,
 * protobuf, the state machine.
 *
 *   0 BYTES ...                      raw bytes of a connection, fed in pieces
 *   1 (METHOD LENGTH16 MESSAGE) ...  well-formed HTTP/2 around whatever message, from a client of ours, which then
 *                                    has to make sense of the answer; METHOD's top bits: dialect, advance of time,
 *                                    reset
 *   2 METHOD BYTES ...               bytes as a reply, decoded as an agent would */
#include <config.h>

#include <string.h>

#include "fuzz.h"

#include "base/deadline.h"
#include "coord/frontend.h"
#include "coord/wire/codec.h"
#include "coord/wire/text.h"
#include "coord/wire/wire_status.h"

enum { INCARNATION = 0x11, BUDGET = 4 << 20, PIECE = 97 };

static void untouched(coord_peer *peer) { (void)peer; }

static void open_frontend(coord_frontend *frontend)
{
  weft_coord_service_options options = {
    .task_count = 3, .heartbeat_timeout_ns = 2 * WEFT_NS_PER_S, .register_timeout_ns = 5 * WEFT_NS_PER_S,
    .shutdown_timeout_ns = 5 * WEFT_NS_PER_S, .secret_file = "", .max_key_bytes = 256, .max_value_bytes = 65536,
    .max_streams = 64, .max_connections = 4, .max_total_bytes = BUDGET, .max_unread_bytes = BUDGET, .hosts = "",
  };

  FUZZ_OK(coord_frontend_init(frontend, &options, INCARNATION));
}

static void close_frontend(coord_frontend *frontend)
{
  FUZZ_TRUE(frontend->budget.used_bytes <= BUDGET);
  FUZZ_TRUE(coord_service_held(frontend->core) == 0); /* the connection is closed: nobody waits */
  coord_blob_release(frontend->shared);
  frontend->shared = NULL;
  coord_service_free(frontend->core);
  frontend->core = NULL;
  FUZZ_TRUE(frontend->budget.used_bytes == 0);
  coord_frontend_fini(frontend);
}

/* Passes all bytes that `from` has to send to `to`, if `to` still reads. */
static bool pump(coord_h2 *from, coord_h2 *to)
{
  const uint8_t *data;
  size_t size;

  for (;;) {
    weft_status *st = coord_h2_send(from, &data, &size);
    if (!st && size > 0 && to) st = coord_h2_recv(to, data, size);
    weft_status_free(st);
    if (st) return false;
    if (size == 0) return true;
  }
}

static void raw(const uint8_t *data, size_t size)
{
  coord_frontend frontend;
  coord_peer peer = {.frontend = &frontend, .touched = untouched};
  coord_h2 *server;
  weft_status *st = NULL;

  open_frontend(&frontend);
  FUZZ_OK(coord_h2_server_new(&coord_frontend_handler, &peer, &frontend.h2_limits, &server));
  while (size > 0 && !st) {
    size_t piece = WEFT_MIN(size, (size_t)PIECE);
    st = coord_h2_recv(server, data, piece);
    data += piece;
    size -= piece;
    if (!st && !pump(server, NULL)) break;
    coord_service_tick(frontend.core, weft_now_ns());
  }
  weft_status_free(st);
  coord_h2_close(server, "end");
  coord_peer_gone(&peer);
  close_frontend(&frontend);
}

static coord_method last_method;
static coord_dialect last_dialect;

static void on_reply(void *ctx, weft_status *error, const uint8_t *message, size_t size)
{
  weft_arena arena;
  coord_reply reply;

  (void)ctx;
  weft_arena_init(&arena);
  if (!error && last_dialect == COORD_DIALECT_X) error = coord_reply_decode(last_method, message, size, &arena, &reply);
  weft_status_free(error);
  weft_arena_fini(&arena);
}

static void structured(const uint8_t *data, size_t size)
{
  coord_frontend frontend;
  coord_peer peer = {.frontend = &frontend, .touched = untouched};
  coord_h2 *server, *client;
  int64_t now = weft_now_ns();
  char path[COORD_PATH_BYTES];

  open_frontend(&frontend);
  FUZZ_OK(coord_h2_server_new(&coord_frontend_handler, &peer, &frontend.h2_limits, &server));
  FUZZ_OK(coord_h2_client_new("fuzz", NULL, 1 << 20, &client));
  while (size >= 3) {
    uint8_t what = data[0];
    size_t length = WEFT_MIN((size_t)(data[1] << 8 | data[2]), size - 3);
    coord_h2_call *call = NULL;
    last_method = (coord_method)((what & 31) % COORD_METHOD_COUNT);
    last_dialect = what & 32 ? COORD_DIALECT_T : COORD_DIALECT_X;
    if (coord_path(last_dialect, last_method, path))
      FUZZ_OK(coord_h2_start(client, path, data + 3, length, on_reply, NULL, &call));
    if (!pump(client, server) || !pump(server, client)) break;
    if (what & 64) coord_service_tick(frontend.core, now += WEFT_NS_PER_S);
    if (what & 128) coord_service_tick(frontend.core, now += 3 * WEFT_NS_PER_S);
    data += 3 + length;
    size -= 3 + length;
  }
  last_dialect = COORD_DIALECT_T; /* what comes now is not decoded: the methods have been forgotten */
  coord_h2_close(client, "end");
  coord_h2_close(server, "end");
  coord_peer_gone(&peer);
  close_frontend(&frontend);
}

static void reply(const uint8_t *data, size_t size)
{
  weft_arena arena;
  coord_reply decoded;
  coord_budget budget = {.limit_bytes = 1 << 20};
  uint8_t *inflated;
  size_t inflated_size;
  weft_status *st;

  if (size == 0) return;
  weft_arena_init(&arena);
  arena.limit_bytes = 64 << 20;
  st = coord_reply_decode((coord_method)(data[0] % COORD_METHOD_COUNT), data + 1, size - 1, &arena, &decoded);
  weft_status_free(st);
  st = coord_status_from_wire(13, "m", data + 1, size - 1);
  (void)!coord_barrier_counter(st, &(int64_t){0});
  (void)!coord_mismatch_incarnation(st, &(uint64_t){0});
  st = coord_status_for_dialect(st, COORD_DIALECT_T);
  weft_status_free(st);
  st = coord_gunzip(data + 1, size - 1, 1 << 20, &budget, &inflated, &inflated_size);
  if (!st) free(inflated);
  weft_status_free(st);
  weft_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size == 0) return 0;
  switch (data[0] % 3) {
  case 0: raw(data + 1, size - 1); break;
  case 1: structured(data + 1, size - 1); break;
  case 2: reply(data + 1, size - 1); break;
  }
  return 0;
}
