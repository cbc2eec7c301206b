/* pjrt/unimplemented.c -- the functions of the table that Weft does not offer: each returns an error with its name.  An
 * entry of the table is never NULL, because clients call some of them without a check. */
#include <config.h>

#include "pjrt/internal.h"

/* Host send and receive callbacks: JAX uses them on TPUs only, and Execute refuses them, so no stream ever exists. */
#define X(name)                                                     \
  PJRT_Error *pjrt_##name(PJRT_##name##_Args *args)                 \
  {                                                                 \
    (void)args;                                                     \
    return pjrt_error(WEFT_ERR(UNIMPLEMENTED, "PJRT_" #name));      \
  }
X(CopyToDeviceStream_AddChunk)
X(CopyToDeviceStream_TotalBytes)
X(CopyToDeviceStream_GranuleSize)
X(CopyToDeviceStream_CurrentBytes)
#undef X

/* Clients abort when a Destroy fails. */
PJRT_Error *pjrt_CopyToDeviceStream_Destroy(PJRT_CopyToDeviceStream_Destroy_Args *args)
{
  (void)args;
  return NULL;
}
