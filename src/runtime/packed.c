/* runtime/packed.c -- packed forms of operands (packed.h). */
#include <config.h>

#include "runtime/packed.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/runtime_internal.h"

struct rt_packed {
  rt_packed *next;              /* of the operand's set */
  rt_packed *newer, *older;     /* of the platform's list */
  rt_packed_set *set;           /* NULL: dropped, and freed when the last run has read it */
  weft_device *device;          /* the device of the memory at `data` */
  void *data;                   /* NULL: there is no form yet */
  bool in_making;
  int readers;
  int64_t offset, bytes, key_bytes;
  char key[];
};

static bool is_for(const rt_packed *form, const rt_packing *packing, int64_t offset)
{
  return form->offset == offset && form->bytes == packing->bytes && form->key_bytes == packing->key_bytes &&
         memcmp(form->key, packing->key, (size_t)packing->key_bytes) == 0;
}

static rt_packed *note(rt_packed_forms *all, rt_packed_set *set, const rt_packing *packing, int64_t offset)
  WEFT_REQUIRES(all->mu)
{
  rt_packed *form = calloc(1, sizeof *form + (size_t)packing->key_bytes);

  if (!form) return NULL; /* the step reads the operand itself */
  form->offset = offset;
  form->bytes = packing->bytes;
  form->key_bytes = packing->key_bytes;
  memcpy(form->key, packing->key, (size_t)packing->key_bytes);
  form->set = set;
  form->next = set->first;
  set->first = form;
  atomic_store_explicit(&set->noted, true, memory_order_relaxed);
  form->older = all->first;
  if (all->first) all->first->newer = form;
  all->first = form;
  return form;
}

/* Takes the note out of both lists. The caller frees it, and its memory, after it has unlocked. */
static void unlink_form(rt_packed_forms *all, rt_packed *form) WEFT_REQUIRES(all->mu)
{
  rt_packed **at = &form->set->first;

  while (*at != form) at = &(*at)->next;
  *at = form->next;
  *(form->newer ? &form->newer->older : &all->first) = form->older;
  if (form->older) form->older->newer = form->newer;
  form->set = NULL;
}

static void free_form(rt_packed_forms *all, rt_packed *form)
{
  if (form->data) {
    rt_device_give(form->device, 0, form->data, form->bytes);
    weft_mutex_lock(&all->mu);
    all->bytes -= form->bytes;
    weft_mutex_unlock(&all->mu);
  }
  free(form);
}

/* Makes the form. NULL: without memory, or it cannot be made. */
static void *make(weft_device *device, const rt_packing *packing, const void *from)
{
  void *data;
  weft_status *st = rt_device_take(device, 0, packing->bytes, RT_ANYONE, &data);

  if (st) {
    weft_status_free(st);
    return NULL;
  }
  if (packing->pack(packing, device->platform->pool, from, data)) return data;
  rt_device_give(device, 0, data, packing->bytes);
  return NULL;
}

rt_packed *rt_packed_get(weft_device *device, rt_packed_set *set, const rt_packing *packing, int64_t offset,
                         const void *from, bool now)
{
  weft_platform *platform = device->platform;
  rt_packed_forms *all = &platform->packed;
  bool pack;

  weft_mutex_lock(&all->mu);
  rt_packed *form = set->first;
  while (form && !is_for(form, packing, offset)) form = form->next;
  pack = form || now;
  if (!form && !set->closed) form = note(all, set, packing, offset);
  if (form && form->data) {
    form->readers++;
    weft_mutex_unlock(&all->mu);
    return form;
  }
  pack &= form && !form->in_making && all->bytes + packing->bytes <= platform->packed_limit;
  if (pack) {
    all->bytes += packing->bytes;
    form->in_making = true;
    form->readers++;
  }
  weft_mutex_unlock(&all->mu);
  if (!pack) return NULL;

  void *data = make(device, packing, from);
  weft_mutex_lock(&all->mu);
  form->in_making = false;
  form->device = device;
  form->data = data;
  if (!data) all->bytes -= packing->bytes;
  weft_mutex_unlock(&all->mu);
  if (data) return form;
  rt_packed_release(platform, form);
  return NULL;
}

void *rt_packed_data(const rt_packed *form) { return form->data; }

void rt_packed_release(weft_platform *platform, rt_packed *form)
{
  rt_packed_forms *all = &platform->packed;

  if (!form) return;
  weft_mutex_lock(&all->mu);
  bool last = --form->readers == 0 && !form->set;
  weft_mutex_unlock(&all->mu);
  if (last) free_form(all, form);
}

/* Frees forms, which are linked by `next`. */
static void free_list(rt_packed_forms *all, rt_packed *form)
{
  for (rt_packed *next; form; form = next) {
    next = form->next;
    free_form(all, form);
  }
}

static void drop(weft_platform *platform, rt_packed_set *set, bool close)
{
  rt_packed_forms *all = &platform->packed;
  rt_packed *idle = NULL;

  weft_mutex_lock(&all->mu);
  set->closed |= close;
  for (rt_packed *form = set->first, *next; form; form = next) {
    next = form->next;
    unlink_form(all, form);
    if (form->readers > 0) continue;
    form->next = idle;
    idle = form;
  }
  weft_mutex_unlock(&all->mu);
  free_list(all, idle);
}

void rt_packed_drop(weft_platform *platform, rt_packed_set *set)
{
  /* relaxed: making an entry happens before the operand is freed or taken over, because the operand's reference count
   * orders the two */
  if (atomic_load_explicit(&set->noted, memory_order_relaxed)) drop(platform, set, false);
}

void rt_packed_close(weft_platform *platform, rt_packed_set *set) { drop(platform, set, true); }

bool rt_packed_trim(weft_platform *platform)
{
  rt_packed_forms *all = &platform->packed;
  rt_packed *idle = NULL;

  weft_mutex_lock(&all->mu);
  for (rt_packed *form = all->first, *older; form; form = older) {
    older = form->older;
    if (!form->data || form->readers > 0) continue;
    unlink_form(all, form);
    form->next = idle;
    idle = form;
  }
  weft_mutex_unlock(&all->mu);
  bool any = idle != NULL;
  free_list(all, idle);
  return any;
}

int64_t rt_packed_bytes(weft_platform *platform)
{
  weft_mutex_lock(&platform->packed.mu);
  int64_t bytes = platform->packed.bytes;
  weft_mutex_unlock(&platform->packed.mu);
  return bytes;
}
