/* coord/wire/blob.c -- bytes that several holders share, and the budget that they are charged to. */
#include <config.h>

#include "coord/wire/blob.h"

#include <stdlib.h>
#include <string.h>

coord_blob *coord_blob_new(coord_budget *budget, const void *data, size_t size)
{
  coord_blob *blob;

  if (size > SIZE_MAX - sizeof *blob || !coord_budget_take(budget, size)) return NULL;
  blob = malloc(sizeof *blob + size);
  if (!blob) {
    coord_budget_give(budget, size);
    return NULL;
  }
  *blob = (coord_blob){.refs = 1, .size = size, .budget = budget};
  if (data && size > 0) memcpy(blob->data, data, size);
  return blob;
}

coord_blob *coord_blob_retain(coord_blob *blob)
{
  blob->refs++;
  return blob;
}

void coord_blob_release(coord_blob *blob)
{
  if (!blob || --blob->refs > 0) return;
  coord_budget_give(blob->budget, blob->size);
  free(blob);
}
