/* coord/wire/codec.c -- paths, names of methods, and what both dialects share of encoding and decoding. */
#include <config.h>

#include "coord/wire/codec.h"

#include <string.h>

#include "coord/wire/codec_internal.h"
#include "coord/wire/coord_x.pb-c.h"

static const char *const service_prefix[] = {
  [COORD_DIALECT_X] = "/xla.coordination.CoordinationService/",
  [COORD_DIALECT_T] = "/tensorflow.CoordinationService/",
};

static const char *const method_names[2][COORD_METHOD_COUNT] = {
#define METHOD_X(name, x, t) [COORD_##name] = x,
#define METHOD_T(name, x, t) [COORD_##name] = t,
  [COORD_DIALECT_X] = {COORD_METHODS(METHOD_X)},
  [COORD_DIALECT_T] = {COORD_METHODS(METHOD_T)},
};

const char *coord_path(coord_dialect dialect, coord_method method, char *buf)
{
  const char *name = method_names[dialect][method];

  return name ? strcat(strcpy(buf, service_prefix[dialect]), name) : NULL;
}

bool coord_path_parse(const char *path, coord_dialect *out_dialect, coord_method *out_method)
{
  for (coord_dialect d = COORD_DIALECT_X; d <= COORD_DIALECT_T; d++) {
    size_t length = strlen(service_prefix[d]);
    if (strncmp(path, service_prefix[d], length) != 0) continue;
    for (coord_method m = 0; m < COORD_METHOD_COUNT; m++) {
      if (!method_names[d][m] || strcmp(path + length, method_names[d][m]) != 0) continue;
      *out_dialect = d;
      *out_method = m;
      return true;
    }
  }
  return false;
}

const char *coord_method_name(coord_method method)
{
  const char *name = method_names[COORD_DIALECT_X][method];

  return name ? name : method_names[COORD_DIALECT_T][method];
}

static void *arena_alloc(void *arena, size_t size) { return weft_arena_alloc(arena, size); }
static void arena_free(void *arena, void *memory)
{
  (void)arena;
  (void)memory;
}

void *codec_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size, weft_arena *arena)
{
  ProtobufCAllocator allocator = {.alloc = arena_alloc, .free = arena_free, .allocator_data = arena};

  return protobuf_c_message_unpack(type, &allocator, size, data);
}

weft_status *codec_pack(const ProtobufCMessage *message, weft_arena *arena, const uint8_t **out, size_t *out_size)
{
  uint8_t *packed;

  *out_size = protobuf_c_message_get_packed_size(message);
  packed = weft_arena_alloc(arena, *out_size);
  WEFT_TRY_ALLOC(packed);
  protobuf_c_message_pack(message, packed);
  *out = packed;
  return NULL;
}

weft_status *codec_malformed(coord_method method)
{
  return COORD_ERR(INVALID_ARGUMENT, "the bytes are no %s message", coord_method_name(method));
}

static size_t put_varint(uint8_t *out, uint64_t value)
{
  size_t n = 0;

  for (; value >= 0x80; value >>= 7) out[n++] = (uint8_t)(value | 0x80);
  out[n++] = (uint8_t)value;
  return n;
}

/* kv = 1 (length) { key = 1 (length) bytes, value = 2 (length) ...: each tag is field << 3 | 2. */
weft_status *codec_pack_entry_head(const coord_entry *entry, weft_arena *arena, const uint8_t **out, size_t *out_size)
{
  enum { MAX_VARINT = 10, TAG_1 = 0x0a, TAG_2 = 0x12 };
  size_t key_size = strlen(entry->key), n = 0, inner;
  uint8_t scratch[MAX_VARINT], *head = weft_arena_alloc(arena, 3 * (1 + MAX_VARINT) + key_size);

  WEFT_TRY_ALLOC(head);
  inner = 1 + put_varint(scratch, key_size) + key_size + 1 + put_varint(scratch, entry->value_size) + entry->value_size;
  head[n++] = TAG_1;
  n += put_varint(head + n, inner);
  head[n++] = TAG_1;
  n += put_varint(head + n, key_size);
  memcpy(head + n, entry->key, key_size);
  n += key_size;
  head[n++] = TAG_2;
  n += put_varint(head + n, entry->value_size);
  *out = head;
  *out_size = n;
  return NULL;
}

weft_status *coord_request_decode(coord_dialect dialect, coord_method method, const void *data, size_t size,
                                  weft_arena *arena, coord_request *out)
{
  *out = (coord_request){.method = method, .key = "", .value = "", .barrier_id = "", .error_message = ""};
  return (dialect == COORD_DIALECT_X ? codec_x_request_decode : codec_t_request_decode)(method, data, size, arena, out);
}

weft_status *coord_reply_encode(coord_dialect dialect, coord_method method, const coord_reply *reply, weft_arena *arena,
                                const uint8_t **out, size_t *out_size, coord_blob **out_tail)
{
  bool one_entry = method == COORD_GET_KEY_VALUE || method == COORD_TRY_GET_KEY_VALUE;

  *out = NULL;
  *out_size = 0;
  *out_tail = one_entry && reply->entries[0].value_size > 0 ? reply->entries[0].blob : NULL;
  if (*out_tail) return codec_pack_entry_head(reply->entries, arena, out, out_size);
  return (dialect == COORD_DIALECT_X ? codec_x_reply_encode : codec_t_reply_encode)(method, reply, arena, out,
                                                                                    out_size);
}

weft_status *coord_mark_reported(weft_status *st, int32_t source_task)
{
  Cx__CoordinationServiceError error = CX__COORDINATION_SERVICE_ERROR__INIT;
  uint8_t packed[32];
  size_t size;

  error.is_reported_error = true;
  error.source_task_id = source_task;
  size = cx__coordination_service_error__pack(&error, packed);
  return weft_status_with_payload(st, COORD_PAYLOAD_SERVICE_ERROR, packed, size);
}

weft_status *coord_status_for_dialect(weft_status *st, coord_dialect dialect)
{
  size_t size = 0;
  const void *data = weft_status_payload(st, COORD_PAYLOAD_SERVICE_ERROR, &size);
  Cx__CoordinationServiceError *error;

  if (dialect == COORD_DIALECT_X || !data || size == 0) return st;
  error = cx__coordination_service_error__unpack(NULL, size, data);
  if (!error) return st;
  st = codec_t_mark_reported(st, error->source_task_id);
  cx__coordination_service_error__free_unpacked(error, NULL);
  return st;
}
