/* pjrt/raw_buffer.c -- the RawBuffer extension: the bytes of a buffer, read and written in pieces. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "pjrt/extensions.h"

/* Version 2 of the extension lets clients look for a table in the first word of the handle. NULL there tells them to
 * use the extension's functions. */
struct PJRT_RawBuffer {
  const void *vtable; /* NULL */
  PJRT_Buffer alias;  /* another buffer over the same bytes, because the client may delete its own */
};

static PJRT_Error *create_raw_alias_of_buffer(PJRT_RawBuffer_CreateRawAliasOfBuffer_Args *args)
{
  PJRT_RawBuffer *raw;
  weft_status *st;

  PJRT_TRY(pjrt_check_handle(args->buffer, PJRT_KIND_BUFFER, "buffer"));
  raw = calloc(1, sizeof *raw);
  if (!raw) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  raw->alias = *args->buffer;
  st = weft_buffer_alias(args->buffer->buffer, weft_buffer_type(args->buffer->buffer), &raw->alias.buffer);
  if (st) {
    free(raw);
    return pjrt_error(st);
  }
  pjrt_client_retain(raw->alias.device->client);
  pjrt_handle_born(raw, PJRT_KIND_RAW_BUFFER);
  args->raw_buffer = raw;
  return NULL;
}

static PJRT_Error *destroy(PJRT_RawBuffer_Destroy_Args *args)
{
  if (!args->buffer) return NULL;
  PJRT_TRY(pjrt_check_handle(args->buffer, PJRT_KIND_RAW_BUFFER, "buffer"));
  pjrt_handle_gone(args->buffer);
  weft_buffer_release(args->buffer->alias.buffer);
  pjrt_client_release(args->buffer->alias.device->client);
  free(args->buffer);
  return NULL;
}

static PJRT_Error *get_on_device_size_in_bytes(PJRT_RawBuffer_GetOnDeviceSizeInBytes_Args *args)
{
  PJRT_TRY(pjrt_check_handle(args->buffer, PJRT_KIND_RAW_BUFFER, "buffer"));
  args->on_device_size_in_bytes = (size_t)weft_array_bytes(weft_buffer_type(args->buffer->alias.buffer));
  return NULL;
}

static PJRT_Error *get_memory_space(PJRT_RawBuffer_GetMemorySpace_Args *args)
{
  PJRT_TRY(pjrt_check_handle(args->buffer, PJRT_KIND_RAW_BUFFER, "buffer"));
  args->memory_space = args->buffer->alias.memory;
  return NULL;
}

/* The bytes of a raw buffer, retained; NULL if it is empty. Errors: FAILED_PRECONDITION if it is not defined yet. */
static weft_status *storage_of(PJRT_RawBuffer *raw, weft_storage **out)
{
  WEFT_TRY(pjrt_check_handle(raw, PJRT_KIND_RAW_BUFFER, "buffer"));
  return weft_buffer_storage(raw->alias.buffer, out);
}

/* Clients abort when this fails: without bytes (yet) the pointer is NULL. */
static PJRT_Error *get_host_pointer(PJRT_RawBuffer_GetHostPointer_Args *args)
{
  WEFT_AUTO(weft_storage) storage = NULL;

  PJRT_TRY(pjrt_check_handle(args->buffer, PJRT_KIND_RAW_BUFFER, "buffer"));
  weft_status_ignore(storage_of(args->buffer, &storage));
  args->host_pointer = storage ? weft_storage_host(storage) : NULL; /* the raw buffer keeps it alive */
  if (storage) weft_storage_expose(storage);
  return NULL;
}

static weft_status *to_device(PJRT_RawBuffer_CopyRawHostToDevice_Args *args)
{
  WEFT_AUTO(weft_storage) storage = NULL;
  weft_event *done;

  WEFT_TRY(pjrt_check_handle(args->buffer, PJRT_KIND_RAW_BUFFER, "buffer"));
  /* the run or transfer that defines the buffer has deadlines of its own */
  WEFT_TRY(weft_event_await(weft_buffer_defined(args->buffer->alias.buffer), WEFT_NO_DEADLINE));
  WEFT_TRY(storage_of(args->buffer, &storage));
  WEFT_TRY(pjrt_check_range(weft_array_bytes(weft_buffer_type(args->buffer->alias.buffer)), args->offset,
                            args->transfer_size));
  if (!args->src && args->transfer_size) return WEFT_ERR(INVALID_ARGUMENT, "no data was given");
  if (args->transfer_size) WEFT_TRY(weft_storage_write(storage, args->offset, args->src, args->transfer_size));
  WEFT_TRY(weft_event_new_ready(NULL, &done));
  return pjrt_event_new(done, &args->event);
}

static PJRT_Error *copy_raw_host_to_device(PJRT_RawBuffer_CopyRawHostToDevice_Args *args)
{
  return pjrt_error(to_device(args));
}

static PJRT_Error *copy_raw_device_to_host(PJRT_RawBuffer_CopyRawDeviceToHost_Args *args)
{
  weft_event *event;

  PJRT_TRY(pjrt_check_handle(args->buffer, PJRT_KIND_RAW_BUFFER, "buffer"));
  PJRT_TRY(pjrt_copy_raw(&args->buffer->alias, args->dst, args->offset, args->transfer_size, &event));
  return pjrt_error(pjrt_event_new(event, &args->event));
}

PJRT_RawBuffer_Extension pjrt_raw_buffer_extension = {
    .base = {.struct_size = sizeof(PJRT_RawBuffer_Extension), .type = PJRT_Extension_Type_RawBuffer},
    .create_raw_alias_of_buffer = create_raw_alias_of_buffer,
    .destroy = destroy,
    .get_on_device_size_in_bytes = get_on_device_size_in_bytes,
    .get_memory_space = get_memory_space,
    .copy_raw_host_to_device = copy_raw_host_to_device,
    .copy_raw_device_to_host = copy_raw_device_to_host,
    .get_host_pointer = get_host_pointer};
