/* gpu/kept.c -- results of compiling a program that are kept (kept.h). */
#include <config.h>

#include "gpu/kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/thread.h"
#include "codegen/codegen.h"

enum { LEAST_THING_BYTES = 16 };

typedef struct thing {
  struct thing *next;
  char name[GEN_CACHE_NAME_BYTES];
  bool is_used;   /* used by this program: written to the program's file */
  bool is_dropped;
  size_t size;
  char data[];
} thing;

struct gpu_kept {
  char *folder; /* NULL: no folder is set */
  weft_mutex mu;
  thing *things WEFT_GUARDED_BY(mu);
};

weft_status *gpu_kept_new(gpu_kept **out_kept)
{
  gen_options options;

  *out_kept = NULL;
  WEFT_TRY(gen_options_load(&options));
  gpu_kept *kept = calloc(1, sizeof *kept);
  WEFT_TRY_ALLOC(kept);
  weft_mutex_init(&kept->mu);
  if (options.cache_dir && !(kept->folder = strdup(options.cache_dir))) {
    gpu_kept_free(kept);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  *out_kept = kept;
  return NULL;
}

void gpu_kept_free(gpu_kept *kept) WEFT_UNSHARED
{
  if (!kept) return;
  for (thing *t = kept->things, *next; t; t = next) {
    next = t->next;
    free(t);
  }
  weft_mutex_fini(&kept->mu);
  free(kept->folder);
  free(kept);
}

static thing *thing_of(const gpu_kept *kept, const char *name) WEFT_REQUIRES(kept->mu)
{
  thing *t = kept->things;

  while (t && strcmp(t->name, name) != 0) t = t->next;
  return t;
}

/* NULL: no memory. */
static thing *insert(gpu_kept *kept, const char *name, const void *data, size_t size)
{
  thing *t = malloc(sizeof *t + size);

  if (!t) return NULL;
  t->is_used = t->is_dropped = false;
  t->size = size;
  snprintf(t->name, sizeof t->name, "%s", name);
  if (size) memcpy(t->data, data, size);
  weft_mutex_lock(&kept->mu);
  t->next = kept->things;
  kept->things = t;
  weft_mutex_unlock(&kept->mu);
  return t;
}

/* Looks for the thing in the folder. */
static thing *read_thing(gpu_kept *kept, const char *name)
{
  int folder = kept->folder ? gen_cache_open(kept->folder) : -1;
  void *data;
  size_t size;

  if (folder < 0) return NULL;
  thing *t = NULL;
  if (gen_cache_read(folder, name, &data, &size)) {
    t = insert(kept, name, data, size);
    free(data);
  }
  close(folder);
  return t;
}

static bool begin_use(gpu_kept *kept, thing *t)
{
  weft_mutex_lock(&kept->mu);
  t->is_used = !t->is_dropped;
  bool ok = t->is_used;
  weft_mutex_unlock(&kept->mu);
  return ok;
}

const void *gpu_kept_find(gpu_kept *kept, const char *name, size_t *out_size)
{
  weft_mutex_lock(&kept->mu);
  thing *t = thing_of(kept, name);
  weft_mutex_unlock(&kept->mu);
  if (!t) t = read_thing(kept, name);
  if (!t || !begin_use(kept, t)) return NULL;
  *out_size = t->size;
  return t->data;
}

const void *gpu_kept_add(gpu_kept *kept, const char *name, const void *data, size_t size)
{
  thing *t = insert(kept, name, data, size);
  int folder = kept->folder ? gen_cache_open(kept->folder) : -1;

  if (folder >= 0) {
    weft_status *st = gen_cache_write(folder, name, data, size);
    if (st) WEFT_LOG("gpu", WARN, "%s", weft_status_message(st));
    weft_status_free(st);
    close(folder);
  }
  return t && begin_use(kept, t) ? t->data : NULL;
}

void gpu_kept_drop(gpu_kept *kept, const char *name)
{
  int folder = kept->folder ? gen_cache_open(kept->folder) : -1;

  if (folder >= 0) {
    unlinkat(folder, name, 0);
    close(folder);
  }
  weft_mutex_lock(&kept->mu);
  for (thing *t = kept->things; t; t = t->next)
    if (strcmp(t->name, name) == 0) t->is_dropped = true, t->is_used = false;
  weft_mutex_unlock(&kept->mu);
}

void gpu_kept_put(const gpu_kept *kept, weft_writer *w) WEFT_UNSHARED
{
  uint64_t count = 0;

  for (const thing *t = kept->things; t; t = t->next) count += t->is_used;
  weft_put_u64(w, count);
  for (const thing *t = kept->things; t; t = t->next) {
    if (!t->is_used) continue;
    weft_put_text(w, t->name);
    weft_put_bytes(w, t->data, t->size);
  }
}

weft_status *gpu_kept_get(gpu_kept *kept, weft_reader *r)
{
  int count = weft_get_count(r, LEAST_THING_BYTES);
  weft_arena scratch;
  bool full = false;

  weft_arena_init(&scratch);
  for (int i = 0; i < count && !r->failed && !full; i++) {
    size_t size;
    const char *name = weft_get_text(r, &scratch);
    const void *data = weft_get_bytes(r, &size);
    if (strlen(name) >= GEN_CACHE_NAME_BYTES) r->failed = true;
    if (!r->failed) full = !insert(kept, name, data, size);
  }
  weft_arena_fini(&scratch);
  return full ? WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory") : NULL;
}
