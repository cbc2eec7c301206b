/* pjrt/error.c -- errors as the API has them. Errors that clients made reach Weft too (from callbacks), so every query
 * goes through the error's own table of functions. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

typedef struct pjrt_error_object {
  PJRT_Error abi; /* first: its vtable is public */
  weft_status *st;
  const char *text; /* the message with its context, owned by st */
} pjrt_error_object;

static void destroy(PJRT_Error *error);

static void message(const PJRT_Error *error, const char **text, size_t *size)
{
  *text = ((const pjrt_error_object *)error)->text;
  *size = strlen(*text);
}

static PJRT_Error_Code get_code(const PJRT_Error *error)
{
  return (PJRT_Error_Code)weft_status_code(((const pjrt_error_object *)error)->st);
}

typedef struct visit_ctx {
  PJRT_Error_PayloadVisitor visitor;
  void *user_arg;
} visit_ctx;

static bool visit(void *ctx, const char *type_url, const void *data, size_t size)
{
  visit_ctx *v = ctx;

  v->visitor(type_url, strlen(type_url), data, size, v->user_arg);
  return true;
}

static void for_each_payload(const PJRT_Error *error, PJRT_Error_PayloadVisitor visitor, void *user_arg)
{
  visit_ctx ctx = {visitor, user_arg};

  weft_status_each_payload(((const pjrt_error_object *)error)->st, visit, &ctx);
}

static const PJRT_Error_FunctionTable table = {
    .struct_size = sizeof table, .instance_size = sizeof(pjrt_error_object), .destroy = destroy, .message = message,
    .get_code = get_code, .for_each_payload = for_each_payload};

/* The error that is returned when there is no memory for another one. */
static pjrt_error_object no_memory = {.abi = {&table}, .text = "RESOURCE_EXHAUSTED: out of memory"};

static void destroy(PJRT_Error *error)
{
  pjrt_error_object *e = (pjrt_error_object *)error;

  if (e == &no_memory) return;
  weft_status_free(e->st);
  free(e);
}

/* Clients see the message without the code, which they add themselves, and with the context lines. */
PJRT_Error *pjrt_error(weft_status *st)
{
  pjrt_error_object *e;
  const char *text;
  size_t code_length;

  if (!st) return NULL;
  e = calloc(1, sizeof *e);
  if (!e) {
    weft_status_free(st);
    return &no_memory.abi;
  }
  e->abi.vtable = &table;
  e->st = st;
  text = weft_status_text(st, false);
  code_length = strlen(weft_code_name(weft_status_code(st)));
  e->text = strncmp(text, weft_code_name(weft_status_code(st)), code_length) == 0 && text[code_length] == ':'
              ? text + code_length + 2
              : text;
  return &e->abi;
}

weft_status *pjrt_status(PJRT_Error *error)
{
  const char *text;
  size_t size;
  weft_status *st;

  if (!error) return NULL;
  if (error->vtable == &table && error != &no_memory.abi) {
    pjrt_error_object *e = (pjrt_error_object *)error;
    st = WEFT_MOVE(e->st);
    free(e);
    return st;
  }
  error->vtable->message(error, &text, &size);
  st = weft_status_new((weft_code)error->vtable->get_code(error), __FILE__, __LINE__, "%.*s", (int)size, text);
  error->vtable->destroy(error);
  return st;
}

weft_status *pjrt_status_of(PJRT_Error_Code code, const char *message, size_t size)
{
  return weft_status_new((weft_code)code, __FILE__, __LINE__, "%.*s", (int)WEFT_MIN(size, (size_t)4096),
                         message ? message : "");
}

void pjrt_Error_Destroy(PJRT_Error_Destroy_Args *args)
{
  if (args->error) args->error->vtable->destroy(args->error);
}

void pjrt_Error_Message(PJRT_Error_Message_Args *args)
{
  args->error->vtable->message(args->error, &args->message, &args->message_size);
}

PJRT_Error *pjrt_Error_GetCode(PJRT_Error_GetCode_Args *args)
{
  args->code = args->error->vtable->get_code(args->error);
  return NULL;
}

PJRT_Error *pjrt_Error_ForEachPayload(PJRT_Error_ForEachPayload_Args *args)
{
  if (args->error->vtable->for_each_payload)
    args->error->vtable->for_each_payload(args->error, args->visitor, args->user_arg);
  return NULL;
}
