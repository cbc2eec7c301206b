/* collective/names.c -- what kinds and reductions are called. */
#include <config.h>

#include "weft/collective.h"

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
