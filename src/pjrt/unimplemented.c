/* pjrt/unimplemented.c -- the functions of the table that Weft does not offer: each says so by name.  A stub is never
 * NULL, since clients call some of them unchecked. */
#include <config.h>

#include "pjrt/internal.h"

#define X(name)                                                     \
  PJRT_Error *pjrt_##name(PJRT_##name##_Args *args)                 \
  {                                                                 \
    (void)args;                                                     \
    return pjrt_error(WEFT_ERR(UNIMPLEMENTED, "PJRT_" #name));      \
  }

/* Host send and receive callbacks: JAX uses them on TPUs only. */
X(CopyToDeviceStream_AddChunk)
X(CopyToDeviceStream_TotalBytes)
X(CopyToDeviceStream_GranuleSize)
X(CopyToDeviceStream_CurrentBytes)
/* Piecewise transfers: other frameworks. */
X(AsyncHostToDeviceTransferManager_TransferData)
X(Client_CreateBuffersForAsyncHostToDevice)
X(AsyncHostToDeviceTransferManager_RetrieveBuffer)
X(AsyncHostToDeviceTransferManager_Device)
X(AsyncHostToDeviceTransferManager_BufferCount)
X(AsyncHostToDeviceTransferManager_BufferSize)
X(AsyncHostToDeviceTransferManager_SetBufferError)
X(AsyncHostToDeviceTransferManager_AddMetadata)
X(AsyncHostToDeviceTransferManager_TransferLiteral)
X(Buffer_CopyRawToHostFuture)
X(Client_DmaMap)
X(Client_DmaUnmap)
X(Client_CreateAliasBuffer)
X(Client_FulfillAliasBuffer)
X(Buffer_DonateWithControlDependency)
X(Device_PoisonExecution)
X(Device_CreateAsyncTrackingEvent)
X(Device_ClearMemoryStats)
X(Executable_ParameterMemoryKinds)
X(TopologyDescription_MakeCanonicalShapeForMemorySpace)
X(TopologyDescription_GetMemorySpaceKindIds)
#undef X

/* Destroying what is never made: clients abort when a Destroy fails. */
#define X(name)                                     \
  PJRT_Error *pjrt_##name(PJRT_##name##_Args *args) \
  {                                                 \
    (void)args;                                     \
    return NULL;                                    \
  }
X(CopyToDeviceStream_Destroy)
X(AsyncHostToDeviceTransferManager_Destroy)
X(AsyncTrackingEvent_Destroy)
#undef X
