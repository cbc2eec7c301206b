/* coord/wire/text.h -- the small encodings that gRPC puts around a message. */
#ifndef WEFT_COORD_WIRE_TEXT_H
#define WEFT_COORD_WIRE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "coord/wire/blob.h"

/* Percent-encodes `size` bytes as grpc-message wants (all but printable ASCII, and '%').  Writes at most
 * 3 * size + 1 bytes to out; returns the length without the NUL. */
size_t coord_percent_encode(const char *text, size_t size, char *out);

/* Decodes; `out` may be `text`. A '%' without two digits stays. Adds a NUL; returns the length without it. */
size_t coord_percent_decode(const char *text, size_t size, char *out);

/* Base64 without padding.  Writes at most 4 * ((size + 2) / 3) + 1 bytes; returns the length without the NUL. */
size_t coord_base64_encode(const uint8_t *data, size_t size, char *out);

/* Accepts padded and unpadded text.  Writes at most 3 * size / 4 + 3 bytes.  False: not base64. */
bool coord_base64_decode(const char *text, size_t size, uint8_t *out, size_t *out_size);

/* Inflates one gzip member into malloc'd memory owned by the caller.  The memory is charged to `budget` before it is
 * taken; on success *out_size bytes stay charged, for the caller to give back.
 * Errors: RESOURCE_EXHAUSTED over max_bytes or the budget; INVALID_ARGUMENT for
 * anything that is no whole gzip stream. */
WEFT_NODISCARD weft_status *coord_gunzip(const uint8_t *data, size_t size, size_t max_bytes, coord_budget *budget,
                                         uint8_t **out, size_t *out_size);

/* True if the bytes are well-formed UTF-8, as protobuf strings have to be. */
bool coord_is_utf8(const char *text, size_t size);

#endif
