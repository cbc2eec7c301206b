/* pjrt/event.c -- events. A client may destroy its event inside its own callback, or right after it has registered
 * one, so callbacks belong to the weft_event and not to the handle. */
#include <config.h>

#include <stdlib.h>

#include "pjrt/internal.h"

weft_status *pjrt_event_new(weft_event *event, PJRT_Event **out_event)
{
  *out_event = malloc(sizeof **out_event);
  if (!*out_event) {
    weft_event_release(event);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  (*out_event)->event = event;
  pjrt_handle_born(*out_event, PJRT_KIND_EVENT);
  return NULL;
}

PJRT_Error *pjrt_Event_Destroy(PJRT_Event_Destroy_Args *args)
{
  if (!args->event) return NULL;
  pjrt_handle_gone(args->event);
  weft_event_release(args->event->event);
  free(args->event);
  return NULL;
}

PJRT_Error *pjrt_Event_IsReady(PJRT_Event_IsReady_Args *args)
{
  args->is_ready = weft_event_is_ready(args->event->event);
  return NULL;
}

PJRT_Error *pjrt_Event_Error(PJRT_Event_Error_Args *args)
{
  if (!weft_event_is_ready(args->event->event))
    return pjrt_error(WEFT_ERR(FAILED_PRECONDITION, "the event is not ready yet"));
  return pjrt_error(weft_status_dup(weft_event_error(args->event->event)));
}

PJRT_Error *pjrt_Event_Await(PJRT_Event_Await_Args *args)
{
  /* The API has no deadline here. The work behind the event ends by a deadline of its own:
   * docs/adr/0003-waits-of-the-plugin.md. */
  return pjrt_error(weft_event_await(args->event->event, WEFT_NO_DEADLINE));
}

typedef struct on_ready_ctx {
  PJRT_Event_OnReadyCallback callback;
  void *user_arg;
} on_ready_ctx;

static void call_back(void *ctx, const weft_status *error)
{
  on_ready_ctx c = *(on_ready_ctx *)ctx;

  free(ctx);
  c.callback(pjrt_error(weft_status_dup(error)), c.user_arg);
}

PJRT_Error *pjrt_Event_OnReady(PJRT_Event_OnReady_Args *args)
{
  on_ready_ctx *ctx = malloc(sizeof *ctx);
  weft_status *st;

  if (!ctx) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  *ctx = (on_ready_ctx){args->callback, args->user_arg};
  st = weft_event_on_ready(args->event->event, call_back, ctx);
  if (st) free(ctx);
  return pjrt_error(st);
}

PJRT_Error *pjrt_Event_Create(PJRT_Event_Create_Args *args)
{
  weft_event *event;

  PJRT_TRY(weft_event_new(&event));
  return pjrt_error(pjrt_event_new(event, &args->event));
}

PJRT_Error *pjrt_Event_Set(PJRT_Event_Set_Args *args)
{
  weft_status *st = NULL;

  if (args->error_code != PJRT_Error_Code_OK)
    st = weft_status_new((weft_code)args->error_code, __FILE__, __LINE__, "%.*s", (int)args->error_message_size,
                         args->error_message ? args->error_message : "");
  weft_event_set(args->event->event, st);
  return NULL;
}
