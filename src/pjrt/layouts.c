/* pjrt/layouts.c -- layouts: the order in which an array's dimensions lie in memory; and the Layouts extension.
 *
 * Arrays are dense; a layout is a permutation. Each layout exists once and for ever, so that equal layouts are equal
 * pointers and handles to them need no owner. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/extensions.h"

static weft_mutex mu = WEFT_MUTEX_INITIALIZER;
static pjrt_layout *others; /* guarded by mu: those that are not row-major */
static pjrt_layout row_major[HLO_MAX_RANK + 1];
static pthread_once_t row_major_once = PTHREAD_ONCE_INIT;

/* "{1,0}", the text of HLO. */
static void write_text(pjrt_layout *layout)
{
  char *at = layout->text, *end = at + sizeof layout->text;

  at += snprintf(at, (size_t)(end - at), "{");
  for (int i = 0; i < layout->rank; i++)
    at += snprintf(at, (size_t)(end - at), "%s%d", i ? "," : "", (int)layout->minor_to_major[i]);
  snprintf(at, (size_t)(end - at), "}");
}

static void make_row_major(void)
{
  for (int rank = 0; rank <= HLO_MAX_RANK; rank++) {
    row_major[rank].rank = rank;
    for (int i = 0; i < rank; i++) row_major[rank].minor_to_major[i] = rank - 1 - i;
    write_text(&row_major[rank]);
  }
}

const pjrt_layout *pjrt_layout_row_major(int rank)
{
  pthread_once(&row_major_once, make_row_major);
  return &row_major[rank];
}

weft_status *pjrt_layout_get(const int64_t *minor_to_major, int rank, const pjrt_layout **out_layout)
{
  size_t bytes = (size_t)rank * sizeof *minor_to_major;
  const pjrt_layout *plain = pjrt_layout_row_major(rank);
  uint32_t seen = 0;
  pjrt_layout *layout;

  *out_layout = plain;
  for (int i = 0; i < rank; i++) {
    if (minor_to_major[i] < 0 || minor_to_major[i] >= rank || seen >> minor_to_major[i] & 1)
      return WEFT_ERR(INVALID_ARGUMENT, "a layout whose minor_to_major is no permutation of %d dimensions", rank);
    seen |= UINT32_C(1) << minor_to_major[i];
  }
  if (rank == 0 || memcmp(plain->minor_to_major, minor_to_major, bytes) == 0) return NULL;
  weft_mutex_lock(&mu);
  for (layout = others; layout; layout = layout->next)
    if (layout->rank == rank && memcmp(layout->minor_to_major, minor_to_major, bytes) == 0) break;
  if (!layout && (layout = calloc(1, sizeof *layout))) {
    layout->rank = rank;
    memcpy(layout->minor_to_major, minor_to_major, bytes);
    write_text(layout);
    layout->next = others;
    others = layout;
  }
  weft_mutex_unlock(&mu);
  WEFT_TRY_ALLOC(layout);
  *out_layout = layout;
  return NULL;
}

weft_status *pjrt_layout_read(const PJRT_Buffer_MemoryLayout *given, const weft_array_type *type,
                              const pjrt_layout **out_layout)
{
  *out_layout = pjrt_layout_row_major(type->rank);
  if (!given) return NULL;
  if (given->type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    int64_t strides[HLO_MAX_RANK];
    pjrt_layout_strides(*out_layout, type, strides);
    if (given->strides.num_byte_strides != (size_t)type->rank || (type->rank > 0 && !given->strides.byte_strides))
      return WEFT_ERR(INVALID_ARGUMENT, "%zu byte strides for an array of rank %d", given->strides.num_byte_strides,
                      type->rank);
    if (type->rank > 0 && memcmp(strides, given->strides.byte_strides, (size_t)type->rank * sizeof *strides) != 0)
      return WEFT_ERR(UNIMPLEMENTED, "a device layout by strides other than row-major");
    return NULL;
  }
  if (given->tiled.num_tiles) return WEFT_ERR(UNIMPLEMENTED, "tiled layouts");
  if (given->tiled.minor_to_major_size != (size_t)type->rank || (type->rank > 0 && !given->tiled.minor_to_major))
    return WEFT_ERR(INVALID_ARGUMENT, "a layout of %zu dimensions for an array of %d", given->tiled.minor_to_major_size,
                    type->rank);
  return pjrt_layout_get(given->tiled.minor_to_major, type->rank, out_layout);
}

void pjrt_layout_strides(const pjrt_layout *layout, const weft_array_type *type, int64_t *out_strides)
{
  int64_t stride = (int64_t)weft_dtype_bytes(type->type);

  for (int i = 0; i < layout->rank; i++) {
    out_strides[layout->minor_to_major[i]] = stride;
    stride *= type->dims[layout->minor_to_major[i]];
  }
}

/* ---- the extension ---- */

static PJRT_Error *MemoryLayout_Destroy(PJRT_Layouts_MemoryLayout_Destroy_Args *args)
{
  (void)args;
  return NULL;
}

static void keep_serialized(PJRT_Layouts_SerializedLayout *layout) { (void)layout; }

static PJRT_Error *MemoryLayout_Serialize(PJRT_Layouts_MemoryLayout_Serialize_Args *args)
{
  args->serialized_bytes = args->layout->text;
  args->serialized_bytes_size = strlen(args->layout->text);
  args->serialized_layout = (PJRT_Layouts_SerializedLayout *)args->layout;
  args->serialized_layout_deleter = keep_serialized;
  return NULL;
}

static PJRT_Error *default_layout(size_t rank, PJRT_Layouts_MemoryLayout **out_layout)
{
  if (rank > HLO_MAX_RANK) return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "rank %zu is over %d", rank, HLO_MAX_RANK));
  *out_layout = (PJRT_Layouts_MemoryLayout *)pjrt_layout_row_major((int)rank);
  return NULL;
}

static PJRT_Error *PJRT_Client_GetDefaultLayout(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args)
{
  return default_layout(args->num_dims, &args->layout);
}

static PJRT_Error *PJRT_Topology_GetDefaultLayout(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *args)
{
  return default_layout(args->num_dims, &args->layout);
}

static PJRT_Error *PJRT_Buffer_MemoryLayout_(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *args)
{
  args->layout = (PJRT_Layouts_MemoryLayout *)args->buffer->layout;
  return NULL;
}

static PJRT_Error *PJRT_Executable_GetOutputLayouts(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args)
{
  args->num_outputs = (size_t)args->executable->program->outputs.count;
  args->layouts = (PJRT_Layouts_MemoryLayout **)args->executable->program->outputs.layouts;
  return NULL;
}

static PJRT_Error *PJRT_Executable_GetParameterLayouts(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args *args)
{
  args->num_parameters = (size_t)args->executable->program->params.count;
  args->layouts = (PJRT_Layouts_MemoryLayout **)args->executable->program->params.layouts;
  return NULL;
}

PJRT_Layouts_Extension pjrt_layouts_extension = {
    .base = {.struct_size = sizeof(PJRT_Layouts_Extension), .type = PJRT_Extension_Type_Layouts},
    .MemoryLayout_Destroy = MemoryLayout_Destroy,
    .MemoryLayout_Serialize = MemoryLayout_Serialize,
    .PJRT_Client_GetDefaultLayout = PJRT_Client_GetDefaultLayout,
    .PJRT_Buffer_MemoryLayout = PJRT_Buffer_MemoryLayout_,
    .PJRT_Topology_GetDefaultLayout = PJRT_Topology_GetDefaultLayout,
    .PJRT_Executable_GetOutputLayouts = PJRT_Executable_GetOutputLayouts,
    .PJRT_Executable_GetParameterLayouts = PJRT_Executable_GetParameterLayouts};
