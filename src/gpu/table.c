/* gpu/table.c -- the entry points of a foreign library in a struct of function pointers (table.h). */
#include <config.h>

#include "gpu/table.h"

#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "gpu/library.h"

static weft_mutex opening = WEFT_MUTEX_INITIALIZER; /* guards `is_tried`, `error` and structs that are being filled */

/* Opens the first soname that there is. The error is that of the preferred one. */
static weft_status *open_any(const gpu_table *table, void **out_library)
{
  weft_status *first = NULL;

  for (const char *const *soname = table->sonames; *soname; soname++) {
    weft_status *st = gpu_library_open(*soname, out_library);
    if (!st) {
      weft_status_free(first);
      WEFT_LOG("gpu", INFO, "%s is %s", table->name, *soname);
      return NULL;
    }
    if (first) weft_status_free(st);
    else first = st;
  }
  return first;
}

static weft_status *fill(const gpu_table *table)
{
  void *library;

  WEFT_TRY_NOTE(open_any(table, &library), "%s", table->name);
  for (size_t i = 0; i < table->symbol_count; i++) {
    void *entry = gpu_library_symbol(library, table->symbols[i].name);
    if (!entry && !table->symbols[i].may_lack)
      return WEFT_ERR(UNAVAILABLE, "%s has no symbol %s", table->name, table->symbols[i].name);
    memcpy((char *)table->entries + table->symbols[i].at, &entry, sizeof entry);
  }
  return NULL;
}

weft_status *gpu_table_open(gpu_table *table)
{
  weft_mutex_lock(&opening);
  if (!table->is_tried) table->error = fill(table);
  table->is_tried = true;
  weft_status *answer = weft_status_dup(table->error);
  weft_mutex_unlock(&opening);
  return answer;
}

weft_status *gpu_table_error(const gpu_table *table, weft_code code, const char *call, const char *name, int number)
{
  switch (code) {
  case WEFT_OK: return NULL;
  case WEFT_UNIMPLEMENTED: return WEFT_ERR(UNIMPLEMENTED, "%s: this %s does not do it: %s", call, table->name, name);
  case WEFT_INTERNAL: return WEFT_ERR(INTERNAL, "%s: %s (%d)", call, name, number);
  default: return weft_status_new(code, __FILE__, __LINE__, "%s: %s", call, name);
  }
}
