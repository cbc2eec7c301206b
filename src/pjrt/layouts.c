/* pjrt/layouts.c -- the Layouts extension: every array is dense row-major, and its layout's text says so. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/extensions.h"

/* A layout of each rank; static, so that Destroy has nothing to do and arrays of them need no owner. */
struct PJRT_Layouts_MemoryLayout {
  char text[4 * HLO_MAX_RANK];
};
static PJRT_Layouts_MemoryLayout layouts[HLO_MAX_RANK + 1];
static pthread_once_t layouts_once = PTHREAD_ONCE_INIT;

static void make_layouts(void)
{
  for (int rank = 0; rank <= HLO_MAX_RANK; rank++) {
    char *at = layouts[rank].text, *end = at + sizeof layouts[rank].text;
    at += snprintf(at, (size_t)(end - at), "{");
    for (int i = rank - 1; i >= 0; i--) at += snprintf(at, (size_t)(end - at), "%d%s", i, i ? "," : "");
    snprintf(at, (size_t)(end - at), "}");
  }
}

static PJRT_Layouts_MemoryLayout *layout_of(size_t rank)
{
  pthread_once(&layouts_once, make_layouts);
  return &layouts[WEFT_MIN(rank, (size_t)HLO_MAX_RANK)];
}

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

static PJRT_Error *PJRT_Client_GetDefaultLayout(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args)
{
  args->layout = layout_of(args->num_dims);
  return NULL;
}

static PJRT_Error *PJRT_Topology_GetDefaultLayout(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *args)
{
  args->layout = layout_of(args->num_dims);
  return NULL;
}

static PJRT_Error *PJRT_Buffer_MemoryLayout_(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *args)
{
  args->layout = layout_of((size_t)weft_buffer_type(args->buffer->buffer)->rank);
  return NULL;
}

static PJRT_Error *PJRT_Executable_GetOutputLayouts(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args)
{
  args->num_outputs = (size_t)args->executable->program->output_count;
  args->layouts = (PJRT_Layouts_MemoryLayout **)args->executable->program->output_layouts;
  return NULL;
}

static PJRT_Error *PJRT_Executable_GetParameterLayouts(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args *args)
{
  args->num_parameters = (size_t)args->executable->program->param_count;
  args->layouts = (PJRT_Layouts_MemoryLayout **)args->executable->program->param_layouts;
  return NULL;
}

weft_status *pjrt_layouts_of(int count, const weft_array_type *(*type_of)(const weft_executable *exe, int index),
                             const weft_executable *exe, void ***out_layouts)
{
  *out_layouts = calloc((size_t)count + 1, sizeof **out_layouts);
  WEFT_TRY_ALLOC(*out_layouts);
  for (int i = 0; i < count; i++) (*out_layouts)[i] = layout_of((size_t)type_of(exe, i)->rank);
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
