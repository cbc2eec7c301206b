/* gpu/driver.h -- the entry points of the CUDA driver that this folder calls, and the driver's errors as Weft's. */
#ifndef WEFT_GPU_DRIVER_H
#define WEFT_GPU_DRIVER_H

#include "base/status.h"
#include "gpu/abi/cuda.h"

/* X(name, symbol): as in gpu/abi/entries.h.  A driver that lacks one of them is refused. */
#define GPU_DRIVER_ENTRIES(X)                                                                                      \
  X(cuInit, cuInit) X(cuDriverGetVersion, cuDriverGetVersion) X(cuGetErrorName, cuGetErrorName)                    \
  X(cuGetErrorString, cuGetErrorString) X(cuDeviceGet, cuDeviceGet) X(cuDeviceGetCount, cuDeviceGetCount)          \
  X(cuDeviceGetName, cuDeviceGetName) X(cuDeviceTotalMem, cuDeviceTotalMem_v2)                                     \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)              \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2) X(cuCtxPushCurrent, cuCtxPushCurrent_v2)              \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2) X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange)               \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute)            \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess)                  \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority) X(cuStreamDestroy, cuStreamDestroy_v2)                 \
  X(cuStreamQuery, cuStreamQuery) X(cuStreamSynchronize, cuStreamSynchronize)                                      \
  X(cuStreamWaitEvent, cuStreamWaitEvent) X(cuEventCreate, cuEventCreate) X(cuEventDestroy, cuEventDestroy_v2)     \
  X(cuEventRecord, cuEventRecord) X(cuEventQuery, cuEventQuery) X(cuEventElapsedTime, cuEventElapsedTime_v2) X(cuMemAlloc, cuMemAlloc_v2)                       \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity) X(cuMemAddressReserve, cuMemAddressReserve)      \
  X(cuMemAddressFree, cuMemAddressFree) X(cuMemCreate, cuMemCreate) X(cuMemRelease, cuMemRelease)                  \
  X(cuMemMap, cuMemMap) X(cuMemUnmap, cuMemUnmap) X(cuMemSetAccess, cuMemSetAccess)                                \
  X(cuMemFree, cuMemFree_v2) X(cuMemHostAlloc, cuMemHostAlloc) X(cuMemFreeHost, cuMemFreeHost)                     \
  X(cuMemcpyAsync, cuMemcpyAsync) X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2) X(cuMemcpyPeerAsync, cuMemcpyPeerAsync) X(cuMemsetD8Async, cuMemsetD8Async)      \
  X(cuMemsetD32Async, cuMemsetD32Async) X(cuModuleLoadDataEx, cuModuleLoadDataEx)                                  \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2) X(cuStreamEndCapture, cuStreamEndCapture)                       \
  X(cuGraphInstantiate, cuGraphInstantiateWithFlags) X(cuGraphExecUpdate, cuGraphExecUpdate_v2)                    \
  X(cuGraphLaunch, cuGraphLaunch) X(cuGraphExecDestroy, cuGraphExecDestroy) X(cuGraphDestroy, cuGraphDestroy)      \
  X(cuModuleUnload, cuModuleUnload) X(cuModuleGetFunction, cuModuleGetFunction) X(cuFuncSetAttribute, cuFuncSetAttribute) \
  X(cuLaunchKernel, cuLaunchKernel) \
  X(cuLinkCreate, cuLinkCreate_v2) X(cuLinkAddData, cuLinkAddData_v2) X(cuLinkComplete, cuLinkComplete)              \
  X(cuLinkDestroy, cuLinkDestroy)

/* X(name, symbol) of graphs with conditional nodes, which drivers have from CUDA 12.3 on. */
#define GPU_CONDITION_ENTRIES(X)                                                                                   \
  X(cuGraphCreate, cuGraphCreate) X(cuGraphAddNode, cuGraphAddNode_v2)                                             \
  X(cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate)                                                \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph)                                                      \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3)

/* X(name, symbol) of multicast objects, which drivers have from CUDA 12.1 on. */
#define GPU_MULTICAST_ENTRIES(X)                                                                                   \
  X(cuMulticastCreate, cuMulticastCreate) X(cuMulticastAddDevice, cuMulticastAddDevice)                            \
  X(cuMulticastBindMem, cuMulticastBindMem) X(cuMulticastUnbind, cuMulticastUnbind)                                \
  X(cuMulticastGetGranularity, cuMulticastGetGranularity)

typedef struct gpu_driver {
#define GPU_ENTRY(name, symbol) wcu_fn_##symbol name;
  GPU_DRIVER_ENTRIES(GPU_ENTRY)
  GPU_CONDITION_ENTRIES(GPU_ENTRY)
  GPU_MULTICAST_ENTRIES(GPU_ENTRY)
#undef GPU_ENTRY
  int version; /* version of the interface: 13000 is CUDA 13.0 */
  bool has_conditions; /* all of GPU_CONDITION_ENTRIES are there */
  bool has_multicast;  /* all of GPU_MULTICAST_ENTRIES are there */
} gpu_driver;

/* The driver of this process, set when gpu_driver_open has succeeded, and constant from then on. */
extern gpu_driver gpu_cu;

/* Opens libcuda.so.1 and initialises it; a later call repeats what failed.  Thread-safe.
 * Errors: UNAVAILABLE: there is no driver, the driver is too old, or it finds no device. */
WEFT_NODISCARD weft_status *gpu_driver_open(void);

/* NULL for SUCCESS; otherwise an error that names the call, the driver's code and the driver's words.  Codes:
 * RESOURCE_EXHAUSTED: no memory; UNAVAILABLE: no device; UNIMPLEMENTED: the device cannot do it; INTERNAL: others. */
WEFT_NODISCARD weft_status *gpu_error(wcu_result result, const char *call);

/* Destroy a graph, and an instance of one; NULL is fine. A call that fails is repeated once: what it has not destroyed
 * is lost. */
void gpu_drop_graph(wcu_graph graph);
void gpu_drop_instance(wcu_graph_exec instance);

/* Calls an entry point: GPU_CALL(cuMemFree, at) is NULL or the call's error. */
#define GPU_CALL(name, ...) gpu_error(gpu_cu.name(__VA_ARGS__), #name)

#endif
