/* pjrt/extensions.h -- the extensions' tables, each defined in the file of its name; plugin.c links them. */
#ifndef WEFT_PJRT_EXTENSIONS_INTERNAL_H
#define WEFT_PJRT_EXTENSIONS_INTERNAL_H

#include "pjrt/internal.h"
#include "weft/pjrt_extensions.h"

extern PJRT_Layouts_Extension pjrt_layouts_extension;
extern PJRT_CrossHostTransfers_Extension pjrt_cross_host_extension;
extern PJRT_RawBuffer_Extension pjrt_raw_buffer_extension;
extern PJRT_Profiler_Extension pjrt_profiler_extension;
extern PJRT_Weft_Extension pjrt_weft_extension;
extern PJRT_WeftAgent_Extension pjrt_agent_extension;
extern PJRT_FFI_Extension pjrt_ffi_extension;
PJRT_Error *pjrt_ffi_register(PJRT_Weft_FfiRegister_Args *args); /* ffi.c */
PJRT_Error *pjrt_leave(PJRT_Weft_Leave_Args *args);              /* client.c */
extern PJRT_Custom_Partitioner_Extension pjrt_custom_partitioner_extension;
extern PJRT_Shardings_Extension pjrt_shardings_extension;
extern PJRT_MemoryDescriptions_Extension pjrt_memory_descriptions_extension;

#endif
