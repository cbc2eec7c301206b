/* coord/wire/wire_status.h -- errors as they travel: gRPC code, message, and typed details.
 * The details trailer holds the protocol's own map of payloads, not a google.rpc.Status. */
#ifndef WEFT_COORD_WIRE_WIRE_STATUS_H
#define WEFT_COORD_WIRE_WIRE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define COORD_PAYLOAD_SERVICE_ERROR "type.googleapis.com/tensorflow.CoordinationServiceError"
#define COORD_PAYLOAD_BARRIER_ERROR "type.googleapis.com/tensorflow.BarrierError"
#define COORD_PAYLOAD_MISMATCH "type.googleapis.com/tensorflow.ServiceMismatchError"
#define COORD_PAYLOAD_LOST "type.googleapis.com/tensorflow.distributed_runtime.GrpcPayloadsLost"

/* Longer messages are cut: if a trailer is longer, a C-core client reports RESOURCE_EXHAUSTED instead of it. */
enum { COORD_MAX_MESSAGE_BYTES = 3072, COORD_MAX_DETAILS_BYTES = 2048 };

/* Adds the (empty) payload that marks an error as the service's own, not the network's. */
WEFT_NODISCARD weft_status *coord_mark(weft_status *st);

/* A marked error. */
#define COORD_ERR(code, ...) coord_mark(WEFT_ERR(code, __VA_ARGS__))

/* The payloads of `st` as bytes of the details trailer, malloc'd; *out is NULL if there are none or they do not fit. */
void coord_details_encode(const weft_status *st, uint8_t **out, size_t *out_size);

/* An error from its parts; details may be NULL. Details that cannot be decoded become COORD_PAYLOAD_LOST. Never
 * NULL: a code that is no error, or no code at all, becomes UNKNOWN. */
WEFT_NODISCARD weft_status *coord_status_from_wire(int code, const char *message, const uint8_t *details, size_t size);

/* A marked error with BarrierError{id, counter} added. */
WEFT_NODISCARD weft_status *coord_with_barrier(weft_status *st, const char *id, int64_t counter);

/* Reads the counter of a BarrierError payload.  False: there is none. */
bool coord_barrier_counter(const weft_status *st, int64_t *out_counter);

/* Adds ServiceMismatchError{incarnation}; and reads it.  */
WEFT_NODISCARD weft_status *coord_with_mismatch(weft_status *st, uint64_t service_incarnation);
bool coord_mismatch_incarnation(const weft_status *st, uint64_t *out_incarnation);

#endif
