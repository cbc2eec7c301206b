/* runtime/targets.c -- the registered targets of custom calls (targets.h). */
#include <config.h>

#include "runtime/targets.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

typedef struct target {
  struct target *next;
  rt_target_kind kind;
  size_t length, size;
  char bytes[]; /* the value, then the name */
} target;

static struct {
  weft_mutex mu;
  target *targets WEFT_GUARDED_BY(mu); /* newest first */
} registry = {.mu = WEFT_MUTEX_INITIALIZER};

weft_status *rt_target_add(rt_target_kind kind, const char *name, size_t length, const void *value, size_t size)
{
  target *t = malloc(sizeof *t + size + length);

  WEFT_TRY_ALLOC(t);
  *t = (target){.kind = kind, .length = length, .size = size};
  memcpy(t->bytes, value, size);
  memcpy(t->bytes + size, name, length);
  weft_mutex_lock(&registry.mu);
  t->next = registry.targets;
  registry.targets = t;
  weft_mutex_unlock(&registry.mu);
  return NULL;
}

static bool is_called(const target *t, rt_target_kind kind, const char *name, size_t length)
{
  return t->kind == kind && t->length == length && memcmp(t->bytes + t->size, name, length) == 0;
}

bool rt_target_find(rt_target_kind kind, const char *name, void *out_value)
{
  size_t length = strlen(name);

  weft_mutex_lock(&registry.mu);
  const target *t = registry.targets;
  while (t && !is_called(t, kind, name, length)) t = t->next;
  if (t) memcpy(out_value, t->bytes, t->size);
  weft_mutex_unlock(&registry.mu);
  return t != NULL;
}
