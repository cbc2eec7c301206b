/* pjrt/memory_descriptions.c -- the MemoryDescriptions extension: the memories that a described device would have. */
#include <config.h>

#include <string.h>

#include "pjrt/extensions.h"

struct PJRT_MemoryDescription {
  int kind;
};
static const PJRT_MemoryDescription kinds[PJRT_MEMORY_KINDS] = {{0}, {1}, {2}};
static const PJRT_MemoryDescription *const pointers[PJRT_MEMORY_KINDS] = {&kinds[0], &kinds[1], &kinds[2]};

static PJRT_Error *memory_descriptions(PJRT_DeviceDescription_MemoryDescriptions_Args *args)
{
  args->memory_descriptions = pointers;
  args->num_memory_descriptions = PJRT_MEMORY_KINDS;
  args->default_memory_index = 0;
  return NULL;
}

static PJRT_Error *kind(PJRT_MemoryDescription_Kind_Args *args)
{
  args->kind = pjrt_memory_kind(args->memory_description->kind);
  args->kind_size = strlen(args->kind);
  args->kind_id = args->memory_description->kind;
  return NULL;
}

PJRT_MemoryDescriptions_Extension pjrt_memory_descriptions_extension = {
    .base = {.struct_size = sizeof(PJRT_MemoryDescriptions_Extension), .type = PJRT_Extension_Type_MemoryDescriptions},
    .memory_descriptions = memory_descriptions,
    .kind = kind};
