/* collective/names.c -- what kinds, reductions and operations are called. */
#include <config.h>

#include "collective/internal.h"

const char *weft_coll_kind_name(weft_coll_kind kind)
{
  static const char *const names[] = {
#define KIND_TEXT(name, text) text,
    WEFT_COLL_KINDS(KIND_TEXT)
#undef KIND_TEXT
  };
  return (unsigned)kind < WEFT_COUNT(names) ? names[kind] : "unknown operation";
}

const char *weft_reduction_name(weft_reduction reduction)
{
  static const char *const names[] = {"none", "sum", "product", "min", "max", "and", "or", "xor", "custom"};
  return (unsigned)reduction < WEFT_COUNT(names) ? names[reduction] : "unknown reduction";
}

void coll_describe(int kind, int dtype, uint64_t count, int reduction, const char *name, char *out, size_t size)
{
  const char *type = (unsigned)dtype < WEFT_DTYPE_COUNT ? weft_dtype_name((weft_dtype)dtype) : "?";
  size_t n = (size_t)snprintf(out, size, "%s", weft_coll_kind_name((weft_coll_kind)kind));

  if (kind != WEFT_BARRIER && n < size) n += (size_t)snprintf(out + n, size - n, " %s[%llu]", type, (unsigned long long)count);
  if (reduction != WEFT_REDUCE_NONE && n < size) n += (size_t)snprintf(out + n, size - n, " %s", weft_reduction_name((weft_reduction)reduction));
  if (name && *name && n < size) snprintf(out + n, size - n, " \"%s\"", name);
}
