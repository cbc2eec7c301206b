/* coord/wire/wire_status.c -- errors with their typed details, as they travel in trailers. */
#include <config.h>

#include "coord/wire/wire_status.h"

#include <stdlib.h>
#include <string.h>

#include "coord/wire/coord_payload.pb-c.h"
#include "coord/wire/coord_x.pb-c.h"

weft_status *coord_mark(weft_status *st) { return weft_status_with_payload(st, COORD_PAYLOAD_SERVICE_ERROR, "", 0); }

/* No error of this protocol has more payloads than this; further ones are not sent. */
enum { MAX_PAYLOADS = 8 };

typedef struct payload_list {
  Cp__Payload items[MAX_PAYLOADS], *pointers[MAX_PAYLOADS];
  size_t count;
} payload_list;

static bool collect_payload(void *ctx, const char *type_url, const void *data, size_t size)
{
  payload_list *list = ctx;
  Cp__Payload *item = &list->items[list->count];

  cp__payload__init(item);
  item->key = (char *)(uintptr_t)type_url;
  item->has_value = true;
  item->value = (ProtobufCBinaryData){.len = size, .data = (uint8_t *)(uintptr_t)data};
  list->pointers[list->count++] = item;
  return list->count < MAX_PAYLOADS;
}

void coord_details_encode(const weft_status *st, uint8_t **out, size_t *out_size)
{
  payload_list list = {.count = 0};
  Cp__Payloads message = CP__PAYLOADS__INIT;

  *out = NULL;
  *out_size = 0;
  weft_status_each_payload(st, collect_payload, &list);
  if (list.count == 0) return;
  message.n_payloads = list.count;
  message.payloads = list.pointers;
  *out_size = cp__payloads__get_packed_size(&message);
  if (*out_size > COORD_MAX_DETAILS_BYTES) return;
  *out = malloc(*out_size);
  if (*out) cp__payloads__pack(&message, *out);
}

weft_status *coord_status_from_wire(int code, const char *message, const uint8_t *details, size_t size)
{
  weft_status *st;
  Cp__Payloads *payloads;

  if (code < WEFT_CANCELLED || code > WEFT_UNAUTHENTICATED) code = WEFT_UNKNOWN;
  st = weft_status_new((weft_code)code, __FILE__, __LINE__, "%s", message);
  if (!details) return st;
  payloads = cp__payloads__unpack(NULL, size, details);
  if (!payloads) return weft_status_with_payload(st, COORD_PAYLOAD_LOST, "", 0);
  for (size_t i = 0; i < payloads->n_payloads && i < MAX_PAYLOADS; i++) {
    const Cp__Payload *p = payloads->payloads[i];
    st = weft_status_with_payload(st, p->key ? p->key : "", p->value.len ? p->value.data : (const uint8_t *)"",
                                  p->value.len);
  }
  cp__payloads__free_unpacked(payloads, NULL);
  return st;
}

weft_status *coord_with_barrier(weft_status *st, const char *id, int64_t counter)
{
  Cx__BarrierError error = CX__BARRIER_ERROR__INIT;
  uint8_t stack[512], *packed = stack;
  size_t size;

  error.barrier_id = (char *)(uintptr_t)id;
  error.counter = counter;
  size = cx__barrier_error__get_packed_size(&error);
  if (size > sizeof stack) { /* an id too long to repeat: the counter is what agents need */
    error.barrier_id = (char *)(uintptr_t)"";
    size = cx__barrier_error__get_packed_size(&error);
  }
  cx__barrier_error__pack(&error, packed);
  return weft_status_with_payload(coord_mark(st), COORD_PAYLOAD_BARRIER_ERROR, packed, size);
}

bool coord_barrier_counter(const weft_status *st, int64_t *out_counter)
{
  size_t size = 0;
  const void *data = weft_status_payload(st, COORD_PAYLOAD_BARRIER_ERROR, &size);
  Cx__BarrierError *error = data ? cx__barrier_error__unpack(NULL, size, data) : NULL;

  if (!error) return false;
  *out_counter = error->counter;
  cx__barrier_error__free_unpacked(error, NULL);
  return true;
}

weft_status *coord_with_mismatch(weft_status *st, uint64_t service_incarnation)
{
  Cx__ServiceMismatchError error = CX__SERVICE_MISMATCH_ERROR__INIT;
  uint8_t packed[16];
  size_t size;

  error.service_incarnation = service_incarnation;
  size = cx__service_mismatch_error__pack(&error, packed);
  return weft_status_with_payload(coord_mark(st), COORD_PAYLOAD_MISMATCH, packed, size);
}

bool coord_mismatch_incarnation(const weft_status *st, uint64_t *out_incarnation)
{
  size_t size = 0;
  const void *data = weft_status_payload(st, COORD_PAYLOAD_MISMATCH, &size);
  Cx__ServiceMismatchError *error = data ? cx__service_mismatch_error__unpack(NULL, size, data) : NULL;

  if (!error) return false;
  *out_incarnation = error->service_incarnation;
  cx__service_mismatch_error__free_unpacked(error, NULL);
  return true;
}
