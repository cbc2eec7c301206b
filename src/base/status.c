/* base/status.c -- the one value by which errors travel (status.h). */
#include <config.h>

#include "base/status.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct payload {
  struct payload *next;
  char *type_url;
  size_t size;
  char data[];
} payload;

typedef struct note {
  struct note *next;
  const char *file; /* static: __FILE__ */
  int line;
  char text[];
} note;

struct weft_status {
  weft_code code;
  int line;
  const char *file; /* static: __FILE__ */
  char *message;
  note *first_note, *last_note;
  payload *payloads;
  char *text; /* what weft_status_text last made */
};

/* Handed out when there is no memory for a real one. */
static weft_status no_memory = {.code = WEFT_RESOURCE_EXHAUSTED, .file = __FILE__, .message = "out of memory"};

static char *format(const char *fmt, va_list args)
{
  char *text = NULL;

  if (vasprintf(&text, fmt, args) < 0) return NULL;
  return text;
}

weft_status *weft_status_new(weft_code code, const char *file, int line, const char *fmt, ...)
{
  weft_status *st = calloc(1, sizeof *st);
  va_list args;

  if (!st) return &no_memory;
  va_start(args, fmt);
  st->message = format(fmt, args);
  va_end(args);
  if (!st->message) {
    free(st);
    return &no_memory;
  }
  st->code = code == WEFT_OK ? WEFT_INTERNAL : code;
  st->file = file;
  st->line = line;
  return st;
}

static void append_note(weft_status *st, const char *file, int line, const char *text)
{
  size_t size = strlen(text) + 1;
  note *n = malloc(sizeof *n + size);

  if (!n) return; /* the error itself matters more than its context */
  n->next = NULL;
  n->file = file;
  n->line = line;
  memcpy(n->text, text, size);
  if (st->last_note) st->last_note->next = n;
  else st->first_note = n;
  st->last_note = n;
}

weft_status *weft_status_note(weft_status *st, const char *file, int line, const char *fmt, ...)
{
  char *text;
  va_list args;

  if (!st || st == &no_memory) return st;
  va_start(args, fmt);
  text = format(fmt, args);
  va_end(args);
  if (text) append_note(st, file, line, text);
  free(text);
  return st;
}

weft_status *weft_status_dup(const weft_status *st)
{
  weft_status *copy;

  if (!st) return NULL;
  if (st == &no_memory) return &no_memory;
  copy = weft_status_new(st->code, st->file, st->line, "%s", st->message);
  if (copy == &no_memory) return copy;
  for (const note *n = st->first_note; n; n = n->next) append_note(copy, n->file, n->line, n->text);
  for (const payload *p = st->payloads; p; p = p->next)
    copy = weft_status_with_payload(copy, p->type_url, p->data, p->size);
  return copy;
}

void weft_status_free(weft_status *st)
{
  if (!st || st == &no_memory) return;
  for (note *n = st->first_note, *next; n; n = next) {
    next = n->next;
    free(n);
  }
  for (payload *p = st->payloads, *next; p; p = next) {
    next = p->next;
    free(p->type_url);
    free(p);
  }
  free(st->message);
  free(st->text);
  free(st);
}

weft_code weft_status_code(const weft_status *st) { return st ? st->code : WEFT_OK; }

const char *weft_status_message(const weft_status *st) { return st ? st->message : ""; }

const char *weft_code_name(weft_code code)
{
  switch (code) {
#define WEFT_CODE_CASE(name, number) \
  case WEFT_##name: return #name;
    WEFT_CODES(WEFT_CODE_CASE)
#undef WEFT_CODE_CASE
  }
  return "UNKNOWN";
}

enum { SHOWN_NOTES = 12 }; /* from either end of a long chain */

const char *weft_status_text(weft_status *st, bool debug)
{
  char *text = NULL;
  size_t size = 0;
  int count = 0, at = 0;
  FILE *out;

  if (!st) return "OK";
  if (st == &no_memory) return "RESOURCE_EXHAUSTED: out of memory";
  out = open_memstream(&text, &size);
  if (!out) return st->message;
  fprintf(out, "%s: %s", weft_code_name(st->code), st->message);
  if (debug) fprintf(out, " [%s:%d]", st->file, st->line);
  for (const note *n = st->first_note; n; n = n->next) count++;
  for (const note *n = st->first_note; n; n = n->next, at++) {
    if (at == SHOWN_NOTES && count > 2 * SHOWN_NOTES) fprintf(out, "\n  ... %d more ...", count - 2 * SHOWN_NOTES);
    if (at >= SHOWN_NOTES && at < count - SHOWN_NOTES) continue;
    fprintf(out, "\n  %s", n->text);
    if (debug) fprintf(out, " [%s:%d]", n->file, n->line);
  }
  if (fclose(out) != 0) {
    free(text);
    return st->message;
  }
  free(st->text);
  st->text = text;
  return text;
}

static void remove_payload(weft_status *st, const char *type_url)
{
  for (payload **at = &st->payloads; *at; at = &(*at)->next) {
    payload *p = *at;
    if (strcmp(p->type_url, type_url) != 0) continue;
    *at = p->next;
    free(p->type_url);
    free(p);
    return;
  }
}

weft_status *weft_status_with_payload(weft_status *st, const char *type_url, const void *data, size_t size)
{
  payload *p;

  if (!st || st == &no_memory) return st;
  p = malloc(sizeof *p + size);
  if (!p) return st;
  p->type_url = strdup(type_url);
  if (!p->type_url) {
    free(p);
    return st;
  }
  p->size = size;
  if (size) memcpy(p->data, data, size);
  remove_payload(st, type_url);
  p->next = st->payloads;
  st->payloads = p;
  return st;
}

const void *weft_status_payload(const weft_status *st, const char *type_url, size_t *out_size)
{
  if (out_size) *out_size = 0;
  if (!st) return NULL;
  for (const payload *p = st->payloads; p; p = p->next) {
    if (strcmp(p->type_url, type_url) != 0) continue;
    if (out_size) *out_size = p->size;
    return p->data;
  }
  return NULL;
}

void weft_status_each_payload(const weft_status *st,
                              bool (*visit)(void *ctx, const char *type_url, const void *data, size_t size), void *ctx)
{
  if (!st) return;
  for (const payload *p = st->payloads; p; p = p->next)
    if (!visit(ctx, p->type_url, p->data, p->size)) return;
}

void weft_auto_free_char(char **location) { free(*location); }
