/* pjrt/check.c -- checks of the arguments of every call: a call of any function of the table is first checked by the
 * function's row in checks.def. Arguments that are missing, too short or destroyed become errors here, so the functions
 * behind need not check.
 *
 * Debug builds keep the set of live handles. With the set they distinguish a live handle from one that was never made,
 * is of another kind or has been destroyed, without touching the handle's memory. */
#include <config.h>

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

static const char *const kind_names[] = {
#define X(kind, text) text,
    PJRT_HANDLE_KINDS(X)
#undef X
};

/* ---- live handles ---- */

#ifndef NDEBUG
typedef struct live {
  const void *handle;
  pjrt_handle_kind kind;
} live;

static weft_mutex mu = WEFT_MUTEX_INITIALIZER;
static void *handles;   /* guarded by mu: a tree of live, by address */
static bool incomplete; /* guarded by mu: memory ran out once, so a handle that is not in the set may still be live */

static int compare(const void *a, const void *b)
{
  const char *x = ((const live *)a)->handle, *y = ((const live *)b)->handle;

  return (x > y) - (x < y);
}

void pjrt_handle_born(const void *handle, pjrt_handle_kind kind)
{
  live *l = malloc(sizeof *l);
  live **found = NULL;

  weft_mutex_lock(&mu);
  if (l) {
    *l = (live){handle, kind};
    found = tsearch(l, &handles, compare);
  }
  /* the set was not updated when the old handle was destroyed, and a new handle uses its memory */
  if (found && *found != l) (*found)->kind = kind;
  if (!found || *found != l) free(l);
  incomplete |= !found;
  weft_mutex_unlock(&mu);
}

void pjrt_handle_gone(const void *handle)
{
  live **found, *l;

  if (!handle) return;
  weft_mutex_lock(&mu);
  found = tfind(&(live){.handle = handle}, &handles, compare);
  l = found ? *found : NULL;
  if (l) tdelete(l, &handles, compare);
  weft_mutex_unlock(&mu);
  free(l);
}

static bool is_live(const void *handle, pjrt_handle_kind kind)
{
  live **found;
  bool is;

  weft_mutex_lock(&mu);
  found = tfind(&(live){.handle = handle}, &handles, compare);
  is = found ? (*found)->kind == kind : incomplete;
  weft_mutex_unlock(&mu);
  return is;
}
#else
static bool is_live(const void *handle, pjrt_handle_kind kind)
{
  (void)handle;
  (void)kind;
  return true;
}
#endif

weft_status *pjrt_check_handle(const void *handle, pjrt_handle_kind kind, const char *what)
{
  if (!handle) return WEFT_ERR(INVALID_ARGUMENT, "%s is NULL", what);
  if (!is_live(handle, kind)) return WEFT_ERR(INVALID_ARGUMENT, "%s is no live %s", what, kind_names[kind]);
  return NULL;
}

/* ---- rows ---- */

typedef struct field_check {
  const char *member;
  size_t offset;
  enum { CHECK_END, CHECK_HANDLE, CHECK_OPTIONAL, CHECK_NEEDED, CHECK_LIST } rule;
  pjrt_handle_kind kind;
  size_t count_offset; /* of a size_t, for CHECK_LIST */
} field_check;

static weft_status *check_field(const char *args, const field_check *f)
{
  const void *value = *(void *const *)(args + f->offset);

  switch (f->rule) {
  case CHECK_OPTIONAL: return value ? pjrt_check_handle(value, f->kind, f->member) : NULL;
  case CHECK_HANDLE: return pjrt_check_handle(value, f->kind, f->member);
  case CHECK_LIST:
    if (*(const size_t *)(args + f->count_offset) == 0) return NULL; /* fall through */
  default: return value ? NULL : WEFT_ERR(INVALID_ARGUMENT, "%s is NULL", f->member);
  }
}

static weft_status *check_args(const char *function, const void *args, size_t least, const field_check *fields)
{
  if (!args) return WEFT_ERR(INVALID_ARGUMENT, "%s: no arguments were given", function);
  if (*(const size_t *)args < least)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: the struct of arguments has %zu bytes, at least %zu are needed", function,
                    *(const size_t *)args, least);
  for (; fields->rule != CHECK_END; fields++) WEFT_TRY_NOTE(check_field(args, fields), "%s", function);
  return NULL;
}

#define HANDLE(name, handle_kind) {#name, offsetof(args_type, name), CHECK_HANDLE, PJRT_KIND_##handle_kind, 0},
#define OPTIONAL(name, handle_kind) {#name, offsetof(args_type, name), CHECK_OPTIONAL, PJRT_KIND_##handle_kind, 0},
#define NEEDED(name) {#name, offsetof(args_type, name), CHECK_NEEDED, 0, 0},
#define LIST(name, count) {#name, offsetof(args_type, name), CHECK_LIST, 0, offsetof(args_type, count)},
#define X(function, last, ...)                                                                      \
  PJRT_Error *pjrt_checked_##function(PJRT_##function##_Args *args)                                 \
  {                                                                                                 \
    typedef PJRT_##function##_Args args_type;                                                       \
    static const field_check fields[] = {__VA_ARGS__{0}};                                           \
    size_t least = offsetof(args_type, last) + sizeof(((args_type *)0)->last);                      \
    weft_status *st = check_args("PJRT_" #function, args, least, fields);                           \
    return WEFT_UNLIKELY(st != NULL) ? pjrt_error(st) : pjrt_##function(args);                      \
  }
#include "pjrt/checks.def"
#undef X

/* These two functions return nothing. */
void pjrt_checked_Error_Destroy(PJRT_Error_Destroy_Args *args)
{
  if (args && args->error) pjrt_Error_Destroy(args);
}

void pjrt_checked_Error_Message(PJRT_Error_Message_Args *args)
{
  if (args && args->error) pjrt_Error_Message(args);
}
PJRT_Error *pjrt_checked_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args) { return pjrt_Plugin_Initialize(args); }
