/* runtime/packed.h -- packed forms of operands, which a step would otherwise make in each run.
 *
 * A step may say that it can read a packed form of an operand instead of the operand (rt_thunk.packing), with the same
 * results. If the operand is a constant, the form is made in the program's first run and lives as long as the
 * executable. If it is a parameter that the program does not write to, the form belongs to the storage of the argument:
 * it is made when the same storage comes for the second time, and is freed with the storage, or when somebody may write
 * to it.
 *
 * On a machine of several NUMA nodes, a large form that every thread reads as a whole (rt_packing.whole) has a copy on
 * each node if there is room for the copies; otherwise its pages are spread over the nodes. Any other form lies on the
 * nodes of the threads that packed it, which are those that read it.
 *
 * All forms of a platform together take at most weft_platform.packed_limit bytes; no form is made beyond that. If the
 * platform has no memory left, it drops the forms that no run reads.
 *
 * Threads: all functions are thread-safe. A form is made by one run, and others do
 * not wait for it: they read the operand. */
#ifndef WEFT_RUNTIME_PACKED_H
#define WEFT_RUNTIME_PACKED_H

#include <stdatomic.h>

#include "base/thread.h"
#include "runtime/device.h"
#include "runtime/pool.h"

typedef struct rt_packing rt_packing;
struct rt_packing {
  /* Packings with equal keys make the same form of the same bytes. */
  const void *key;
  int64_t key_bytes;
  int64_t bytes; /* bytes of the form, which is aligned as storages are */
  bool whole;    /* each thread reads all of it: on a machine of several nodes, each node may have a copy */
  bool (*pack)(const rt_packing *packing, rt_pool *pool, const void *from, void *to); /* false: there is no form */
};

/* A form as a step reads it: rt_form_near gives the copy for the calling thread. */
typedef struct rt_form {
  const void *data; /* NULL: there is none */
  int64_t step;     /* bytes from one node's copy to the next; 0: all nodes read the same */
} rt_form;
static inline const void *rt_form_near(rt_form form, const rt_pool *pool)
{
  return form.step == 0 ? form.data : (const char *)form.data + form.step * rt_pool_node(pool);
}

typedef struct rt_packed rt_packed; /* one form, or a note that a form was requested */
/* The forms of one operand, guarded by rt_packed_forms.mu. */
typedef struct rt_packed_set {
  rt_packed *first;
  atomic_bool noted; /* the set has had an entry; lets a thread that alone can reach the set skip the lock */
  bool closed; /* code outside of the runtime may write to the operand: it has no forms */
} rt_packed_set;

/* All forms of a platform. */
typedef struct rt_packed_forms {
  weft_mutex mu; /* a leaf */
  rt_packed *first WEFT_GUARDED_BY(mu);
  int64_t bytes WEFT_GUARDED_BY(mu);
} rt_packed_forms;

/* The form of the bytes at `from`, `offset` bytes into the operand that `set` belongs to; rt_packed_release follows
 * when it is not read any more. NULL: there is none at present. Makes the form at the second request, or, with `now`,
 * at the first. */
rt_packed *rt_packed_get(weft_device *device, rt_packed_set *set, const rt_packing *packing, int64_t offset,
                         const void *from, bool now);
rt_form rt_packed_read(const rt_packed *form);
void rt_packed_release(weft_platform *platform, rt_packed *form); /* NULL is fine */
/* Drops the forms of an operand that is freed or changes. */
void rt_packed_drop(weft_platform *platform, rt_packed_set *set);
/* The same, and no forms of the operand are made from now on. */
void rt_packed_close(weft_platform *platform, rt_packed_set *set);
/* Drops all forms of the platform that no run reads. True: some memory has been given back. */
bool rt_packed_trim(weft_platform *platform);
int64_t rt_packed_bytes(weft_platform *platform); /* bytes of all forms */

#endif
