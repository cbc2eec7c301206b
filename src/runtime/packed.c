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
  int copies;                   /* one for each node, or 1 */
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

/* Bytes from one copy to the next: whole pages. */
static int64_t step_of(int64_t bytes) { return WEFT_ALIGN_UP(bytes, 4096); }

static int64_t bytes_of(int64_t bytes, int copies) { return copies > 1 ? step_of(bytes) * copies : bytes; }

static void free_form(rt_packed_forms *all, rt_packed *form)
{
  if (form->data) {
    rt_device_give(form->device, 0, form->data, bytes_of(form->bytes, form->copies));
    weft_mutex_lock(&all->mu);
    all->bytes -= bytes_of(form->bytes, form->copies);
    weft_mutex_unlock(&all->mu);
  }
  free(form);
}

/* Copies of a form: a small one is soon in the caches of all nodes, and one that the threads divide among themselves is
 * read from one node only. */
static int copies_of(const weft_platform *platform, const rt_packing *packing)
{
  enum { LEAST_COPIED = 1 << 20 };

  return packing->whole && packing->bytes >= LEAST_COPIED ? WEFT_MAX(platform->numa.count, 1) : 1;
}

/* Makes the form. NULL: without memory, or it cannot be made. */
static void *make(weft_device *device, const rt_packing *packing, const void *from, int copies)
{
  const rt_numa *numa = &device->platform->numa;
  int64_t step = step_of(packing->bytes);
  void *data;
  weft_status *st = rt_device_take(device, 0, bytes_of(packing->bytes, copies), RT_ANYONE, &data);

  if (st) {
    weft_status_free(st);
    return NULL;
  }
  if (copies == 1 && packing->whole) rt_numa_interleave(numa, data, packing->bytes);
  for (int i = 0; i < copies && copies > 1; i++) rt_numa_prefer(numa, i, (char *)data + i * step, step);
  if (packing->pack(packing, device->platform->pool, from, data)) {
    for (int i = 1; i < copies; i++) memcpy((char *)data + i * step, data, (size_t)packing->bytes);
    return data;
  }
  rt_device_give(device, 0, data, bytes_of(packing->bytes, copies));
  return NULL;
}

rt_packed *rt_packed_get(weft_device *device, rt_packed_set *set, const rt_packing *packing, int64_t offset,
                         const void *from, bool now)
{
  weft_platform *platform = device->platform;
  rt_packed_forms *all = &platform->packed;
  int copies = copies_of(platform, packing);
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
  if (all->bytes + bytes_of(packing->bytes, copies) > platform->packed_limit) copies = 1;
  pack &= form && !form->in_making && all->bytes + packing->bytes <= platform->packed_limit;
  if (pack) {
    all->bytes += bytes_of(packing->bytes, copies);
    form->in_making = true;
    form->readers++;
  }
  weft_mutex_unlock(&all->mu);
  if (!pack) return NULL;

  void *data = make(device, packing, from, copies);
  weft_mutex_lock(&all->mu);
  form->in_making = false;
  form->device = device;
  form->data = data;
  form->copies = copies;
  if (!data) all->bytes -= bytes_of(packing->bytes, copies);
  weft_mutex_unlock(&all->mu);
  if (data) return form;
  rt_packed_release(platform, form);
  return NULL;
}

rt_form rt_packed_read(const rt_packed *form)
{
  return (rt_form){form->data, form->copies > 1 ? step_of(form->bytes) : 0};
}

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
