/* coord/wire/codec.h -- requests and replies to protobuf bytes and back, in both dialects. */
#ifndef WEFT_COORD_WIRE_CODEC_H
#define WEFT_COORD_WIRE_CODEC_H

#include "base/arena.h"
#include "base/status.h"
#include "coord/message.h"

enum { COORD_PATH_BYTES = 96 };

/* "/service/Method" into buf of COORD_PATH_BYTES; NULL if the dialect lacks the method. */
const char *coord_path(coord_dialect dialect, coord_method method, char *buf);

/* False: no such method. */
bool coord_path_parse(const char *path, coord_dialect *out_dialect, coord_method *out_method);

const char *coord_method_name(coord_method method); /* "RegisterTask" */

/* Decodes into *out, whose pointers point into `arena` (whose limit bounds the memory that a message can take).
 * Errors: INVALID_ARGUMENT, the bytes are no such message. */
WEFT_NODISCARD weft_status *coord_request_decode(coord_dialect dialect, coord_method method, const void *data,
                                                 size_t size, weft_arena *arena, coord_request *out);

/* Encodes into `arena`. *out_tail, borrowed from the reply, is a blob that follows the bytes; NULL: none. */
WEFT_NODISCARD weft_status *coord_reply_encode(coord_dialect dialect, coord_method method, const coord_reply *reply,
                                               weft_arena *arena, const uint8_t **out, size_t *out_size,
                                               coord_blob **out_tail);

/* The agent's side, in dialect X. */
WEFT_NODISCARD weft_status *coord_request_encode(const coord_request *request, weft_arena *arena, const uint8_t **out,
                                                 size_t *out_size);
WEFT_NODISCARD weft_status *coord_reply_decode(coord_method method, const void *data, size_t size, weft_arena *arena,
                                               coord_reply *out);

/* coord_mark_reported adds the payload of an error that a task reported about itself, in the form of dialect X.
 * coord_status_for_dialect brings that payload into the form of `dialect`. Both take and return st. */
WEFT_NODISCARD weft_status *coord_mark_reported(weft_status *st, int32_t source_task);
WEFT_NODISCARD weft_status *coord_status_for_dialect(weft_status *st, coord_dialect dialect);

#endif
