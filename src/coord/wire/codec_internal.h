/* coord/wire/codec_internal.h -- what the two dialects' codecs share. */
#ifndef WEFT_COORD_WIRE_CODEC_INTERNAL_H
#define WEFT_COORD_WIRE_CODEC_INTERNAL_H

#include <protobuf-c/protobuf-c.h>

#include "coord/wire/codec.h"
#include "coord/wire/wire_status.h"

/* protobuf-c knows no const. */
static inline char *codec_text(const char *borrowed) { return (char *)(uintptr_t)borrowed; }
static inline uint8_t *codec_bytes(const void *borrowed) { return (uint8_t *)(uintptr_t)borrowed; }

/* Unpacks on the arena; the message lives as long as the arena. NULL if the bytes are no such message. */
void *codec_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size, weft_arena *arena);

/* Packs a message into bytes on the arena. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *codec_pack(const ProtobufCMessage *message, weft_arena *arena, const uint8_t **out,
                                       size_t *out_size);

/* Key and value of a request, which both dialects have in a message of their own. */
static inline void codec_take_entry(coord_request *out, char *key, ProtobufCBinaryData value)
{
  out->key = key;
  out->value = value.data;
  out->value_size = value.len;
}

/* INVALID_ARGUMENT, naming the method whose message cannot be decoded. */
weft_status *codec_malformed(coord_method method);

/* The start of `message { Entry kv = 1; }` up to its value, which follows as a blob. */
WEFT_NODISCARD weft_status *codec_pack_entry_head(const coord_entry *entry, weft_arena *arena, const uint8_t **out,
                                                  size_t *out_size);

weft_status *codec_x_request_decode(coord_method method, const void *data, size_t size, weft_arena *arena,
                                    coord_request *out);
weft_status *codec_x_reply_encode(coord_method method, const coord_reply *reply, weft_arena *arena, const uint8_t **out,
                                  size_t *out_size);
weft_status *codec_t_request_decode(coord_method method, const void *data, size_t size, weft_arena *arena,
                                    coord_request *out);
weft_status *codec_t_reply_encode(coord_method method, const coord_reply *reply, weft_arena *arena, const uint8_t **out,
                                  size_t *out_size);

/* T's form of an error payload that names its source. */
weft_status *codec_t_mark_reported(weft_status *st, int32_t source_task);

#endif
