/* pjrt/plugin.c -- GetPjrtApi: the table, its extensions and the plugin's attributes. */
#include <config.h>

#include <string.h>

#include "pjrt/extensions.h"

/* The StableHLO versions of portable artifacts that Weft reads. Clients serialise to the newest version that both
 * know. */
static const int64_t current_version[3] = {1, 20, 0}, minimum_version[3] = {0, 9, 0};

#define ATTRIBUTE(name_text, ...) \
  {.struct_size = sizeof(PJRT_NamedValue), .name = name_text, .name_size = sizeof(name_text) - 1, __VA_ARGS__}
static const PJRT_NamedValue attributes[] = {
    ATTRIBUTE("xla_version", .type = PJRT_NamedValue_kInt64, .int64_value = 2, .value_size = 1),
    ATTRIBUTE("stablehlo_current_version", .type = PJRT_NamedValue_kInt64List, .int64_array_value = current_version,
              .value_size = 3),
    ATTRIBUTE("stablehlo_minimum_version", .type = PJRT_NamedValue_kInt64List, .int64_array_value = minimum_version,
              .value_size = 3),
};

PJRT_Error *pjrt_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args)
{
  (void)args;
  return NULL;
}

PJRT_Error *pjrt_Plugin_Attributes(PJRT_Plugin_Attributes_Args *args)
{
  args->attributes = attributes;
  args->num_attributes = WEFT_COUNT(attributes);
  return NULL;
}

static PJRT_Api api = {
    .struct_size = sizeof api,
    .pjrt_api_version = {.struct_size = sizeof(PJRT_Api_Version), .major_version = PJRT_API_MAJOR,
                         .minor_version = PJRT_API_MINOR},
#define X(name) .PJRT_##name = pjrt_checked_##name,
    PJRT_API_FUNCTIONS(X)
#undef X
};

/* The list of extensions, linked before main and never changed after. */
static PJRT_Extension_Base *const extensions[] = {
    &pjrt_layouts_extension.base, &pjrt_shardings_extension.base, &pjrt_ffi_extension.base,
    &pjrt_memory_descriptions_extension.base, &pjrt_cross_host_extension.base, &pjrt_raw_buffer_extension.base,
    &pjrt_profiler_extension.base, &pjrt_custom_partitioner_extension.base, &pjrt_agent_extension.base,
    &pjrt_weft_extension.base};

__attribute__((constructor)) static void link_extensions(void)
{
  for (size_t i = 0; i < WEFT_COUNT(extensions); i++) {
    extensions[i]->next = api.extension_start;
    api.extension_start = extensions[i];
  }
}

WEFT_EXPORT const PJRT_Api *GetPjrtApi(void) { return &api; }
