/* base/array.c -- arrays that grow (array.h). */
#include <config.h>

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

bool weft_array_resize(void *array, size_t count, size_t size)
{
  size_t bytes;
  void *now, *moved;

  if (__builtin_mul_overflow(count, size, &bytes)) return false;
  memcpy(&now, array, sizeof now);
  moved = realloc(now, WEFT_MAX(bytes, (size_t)1));
  if (!moved) return false;
  memcpy(array, &moved, sizeof moved);
  return true;
}

bool weft_array_reserve(void *array, size_t *capacity, size_t wanted, size_t least, size_t most, size_t size)
{
  size_t wider = *capacity <= most / 2 ? 2 * *capacity : most;

  if (wanted <= *capacity) return true;
  if (wanted > most) return false;
  wider = WEFT_MIN(WEFT_MAX(wider, WEFT_MAX(wanted, least)), most);
  if (!weft_array_resize(array, wider, size)) return false;
  *capacity = wider;
  return true;
}
