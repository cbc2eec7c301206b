/* tests/gpu/emulator/condition.c -- handles of conditional nodes.  A handle belongs to the graph that it was made for
 * and to one node of it; kernels may set its value while an instance of the graph lives or a launch of it is not
 * done. */
#include <config.h>

#include <stdlib.h>

#include "driver.h"

struct emu_condition {
  emu_condition *next; /* in the list of all */
  wcu_context context;
  uint64_t handle;
  uint32_t value, initial;
  int refs, launches;
  bool has_default, taken, instantiated;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* of everything here; a leaf */
static emu_condition *all;
static uint64_t handles = 0x5700;

emu_condition *emu_condition_new(wcu_context c, uint32_t value, bool has_default)
{
  emu_condition *d = calloc(1, sizeof *d);
  if (!d) return NULL;
  pthread_mutex_lock(&mu);
  /* without a default the value is undefined: the emulator begins with one that no test expects */
  *d = (emu_condition){.next = all,
                       .context = c,
                       .handle = handles += 8,
                       .value = has_default ? value : 0x7fffffff,
                       .initial = value,
                       .refs = 1,
                       .has_default = has_default};
  all = d;
  pthread_mutex_unlock(&mu);
  return d;
}

emu_condition *emu_condition_retain(emu_condition *d)
{
  pthread_mutex_lock(&mu);
  if (d) d->refs++;
  pthread_mutex_unlock(&mu);
  return d;
}

void emu_condition_release(emu_condition *d)
{
  pthread_mutex_lock(&mu);
  if (d && --d->refs == 0) {
    emu_condition **p = &all;
    while (*p != d) p = &(*p)->next;
    *p = d->next;
    free(d);
  }
  pthread_mutex_unlock(&mu);
}

uint64_t emu_condition_handle(const emu_condition *d) { return d->handle; }
wcu_context emu_condition_context(const emu_condition *d) { return d->context; }

bool emu_condition_take(emu_condition *d)
{
  pthread_mutex_lock(&mu);
  bool is_free = !d->taken;
  d->taken = true;
  pthread_mutex_unlock(&mu);
  return is_free;
}

bool emu_condition_is_taken(const emu_condition *d) { return d->taken; }

void emu_condition_launch(emu_condition *d, int change)
{
  pthread_mutex_lock(&mu);
  d->launches += change;
  pthread_mutex_unlock(&mu);
}

bool emu_condition_instantiate(emu_condition *d, bool on)
{
  pthread_mutex_lock(&mu);
  bool ok = d->instantiated != on;
  d->instantiated = on;
  pthread_mutex_unlock(&mu);
  return ok;
}

void emu_condition_begin(emu_condition *d)
{
  pthread_mutex_lock(&mu);
  if (d->has_default) d->value = d->initial;
  pthread_mutex_unlock(&mu);
}

uint32_t emu_condition_value(const emu_condition *d)
{
  pthread_mutex_lock(&mu);
  uint32_t value = d->value;
  pthread_mutex_unlock(&mu);
  return value;
}

bool emu_condition_set(uint64_t handle, uint32_t value)
{
  bool found = false;
  pthread_mutex_lock(&mu);
  for (emu_condition *d = all; d && !found; d = d->next) {
    found = d->handle == handle && (d->instantiated || d->launches > 0);
    if (found) d->value = value;
  }
  pthread_mutex_unlock(&mu);
  return found;
}
