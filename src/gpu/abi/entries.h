/* src/gpu/abi/entries.h -- the entry points of libcuda.so.1 that Weft declares.
 *
 * A row is X(name, symbol, arguments): the name that cuGetProcAddress takes, the symbol that this name resolves to
 * for interface version WCU_VERSION, and the arguments of that symbol.  All entry points return wcu_result.  Only
 * cuda.h includes this file. */
#ifndef WEFT_GPU_ABI_ENTRIES_H
#define WEFT_GPU_ABI_ENTRIES_H

#define WCU_DIMS unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz
#define WCU_NEW_NODE wcu_graph_node *node, wcu_graph graph, const wcu_graph_node *from, size_t count

/* Initialization, devices and contexts. */
#define WCU_DEVICE_ENTRIES(X) \
  X(cuInit, cuInit, (unsigned flags)) \
  X(cuDriverGetVersion, cuDriverGetVersion, (int *version)) \
  X(cuGetProcAddress, cuGetProcAddress_v2, (const char *name, void **fn, int version, uint64_t flags, wcu_proc_address *status)) \
  X(cuGetErrorName, cuGetErrorName, (wcu_result result, const char **text)) \
  X(cuGetErrorString, cuGetErrorString, (wcu_result result, const char **text)) \
  X(cuDeviceGet, cuDeviceGet, (wcu_device *device, int ordinal)) \
  X(cuDeviceGetCount, cuDeviceGetCount, (int *count)) \
  X(cuDeviceGetName, cuDeviceGetName, (char *name, int size, wcu_device device)) \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, (wcu_uuid *uuid, wcu_device device)) \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *bytes, wcu_device device)) \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, wcu_device_attribute attribute, wcu_device device)) \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *text, int size, wcu_device device)) \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *can, wcu_device device, wcu_device peer)) \
  X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, (int *value, wcu_p2p_attribute attribute, wcu_device from, wcu_device to)) \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (wcu_context *context, wcu_device device)) \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (wcu_device device)) \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (wcu_device device)) \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, (wcu_device device, unsigned *flags, int *active)) \
  X(cuCtxSetCurrent, cuCtxSetCurrent, (wcu_context context)) \
  X(cuCtxGetCurrent, cuCtxGetCurrent, (wcu_context *context)) \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (wcu_context context)) \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (wcu_context *context)) \
  X(cuCtxGetDevice, cuCtxGetDevice, (wcu_device *device)) \
  X(cuCtxSynchronize, cuCtxSynchronize, (void)) \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int *least, int *greatest)) \
  X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (wcu_context peer, unsigned flags)) \
  X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, (wcu_context peer))

/* Streams and events. */
#define WCU_STREAM_ENTRIES(X) \
  X(cuStreamCreate, cuStreamCreate, (wcu_stream *stream, unsigned flags)) \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, (wcu_stream *stream, unsigned flags, int priority)) \
  X(cuStreamDestroy, cuStreamDestroy_v2, (wcu_stream stream)) \
  X(cuStreamQuery, cuStreamQuery, (wcu_stream stream)) \
  X(cuStreamSynchronize, cuStreamSynchronize, (wcu_stream stream)) \
  X(cuStreamWaitEvent, cuStreamWaitEvent, (wcu_stream stream, wcu_event event, unsigned flags)) \
  X(cuStreamGetPriority, cuStreamGetPriority, (wcu_stream stream, int *priority)) \
  X(cuStreamGetFlags, cuStreamGetFlags, (wcu_stream stream, unsigned *flags)) \
  X(cuStreamGetCtx, cuStreamGetCtx, (wcu_stream stream, wcu_context *context)) \
  X(cuStreamGetDevice, cuStreamGetDevice, (wcu_stream stream, wcu_device *device)) \
  X(cuStreamWriteValue32, cuStreamWriteValue32_v2, (wcu_stream stream, wcu_ptr at, uint32_t value, unsigned flags)) \
  X(cuStreamWaitValue32, cuStreamWaitValue32_v2, (wcu_stream stream, wcu_ptr at, uint32_t value, unsigned flags)) \
  X(cuLaunchHostFunc, cuLaunchHostFunc, (wcu_stream stream, wcu_host_fn fn, void *user)) \
  X(cuEventCreate, cuEventCreate, (wcu_event *event, unsigned flags)) \
  X(cuEventDestroy, cuEventDestroy_v2, (wcu_event event)) \
  X(cuEventRecord, cuEventRecord, (wcu_event event, wcu_stream stream)) \
  X(cuEventQuery, cuEventQuery, (wcu_event event)) \
  X(cuEventSynchronize, cuEventSynchronize, (wcu_event event)) \
  X(cuEventElapsedTime, cuEventElapsedTime_v2, (float *ms, wcu_event start, wcu_event end))

/* Memory: allocation, pools, virtual memory. */
#define WCU_MEMORY_ENTRIES(X) \
  X(cuMemGetInfo, cuMemGetInfo_v2, (size_t *unused, size_t *total)) \
  X(cuMemAlloc, cuMemAlloc_v2, (wcu_ptr *at, size_t bytes)) \
  X(cuMemFree, cuMemFree_v2, (wcu_ptr at)) \
  X(cuMemGetAddressRange, cuMemGetAddressRange_v2, (wcu_ptr *base, size_t *bytes, wcu_ptr at)) \
  X(cuMemAllocHost, cuMemAllocHost_v2, (void **at, size_t bytes)) \
  X(cuMemHostAlloc, cuMemHostAlloc, (void **at, size_t bytes, unsigned flags)) \
  X(cuMemFreeHost, cuMemFreeHost, (void *at)) \
  X(cuMemHostRegister, cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags)) \
  X(cuMemHostUnregister, cuMemHostUnregister, (void *at)) \
  X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, (wcu_ptr *device, void *host, unsigned flags)) \
  X(cuPointerGetAttribute, cuPointerGetAttribute, (void *value, wcu_pointer_attribute attribute, wcu_ptr at)) \
  X(cuMemAllocAsync, cuMemAllocAsync, (wcu_ptr *at, size_t bytes, wcu_stream stream)) \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, (wcu_ptr *at, size_t bytes, wcu_mempool pool, wcu_stream stream)) \
  X(cuMemFreeAsync, cuMemFreeAsync, (wcu_ptr at, wcu_stream stream)) \
  X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (wcu_mempool *pool, wcu_device device)) \
  X(cuDeviceGetMemPool, cuDeviceGetMemPool, (wcu_mempool *pool, wcu_device device)) \
  X(cuMemPoolCreate, cuMemPoolCreate, (wcu_mempool *pool, const wcu_mempool_props *props)) \
  X(cuMemPoolDestroy, cuMemPoolDestroy, (wcu_mempool pool)) \
  X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, (wcu_mempool pool, wcu_mempool_attribute attribute, void *value)) \
  X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, (wcu_mempool pool, wcu_mempool_attribute attribute, void *value)) \
  X(cuMemPoolTrimTo, cuMemPoolTrimTo, (wcu_mempool pool, size_t keep)) \
  X(cuMemPoolSetAccess, cuMemPoolSetAccess, (wcu_mempool pool, const wcu_mem_access_desc *rights, size_t count)) \
  X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, \
    (size_t *bytes, const wcu_mem_allocation_prop *prop, wcu_mem_granularity option)) \
  X(cuMemAddressReserve, cuMemAddressReserve, (wcu_ptr *at, size_t bytes, size_t align, wcu_ptr wish, unsigned long long flags)) \
  X(cuMemAddressFree, cuMemAddressFree, (wcu_ptr at, size_t bytes)) \
  X(cuMemCreate, cuMemCreate, (wcu_mem_handle *handle, size_t bytes, const wcu_mem_allocation_prop *prop, unsigned long long flags)) \
  X(cuMemRelease, cuMemRelease, (wcu_mem_handle handle)) \
  X(cuMemMap, cuMemMap, (wcu_ptr at, size_t bytes, size_t offset, wcu_mem_handle handle, unsigned long long flags)) \
  X(cuMemUnmap, cuMemUnmap, (wcu_ptr at, size_t bytes)) \
  X(cuMemSetAccess, cuMemSetAccess, (wcu_ptr at, size_t bytes, const wcu_mem_access_desc *rights, size_t count)) \
  X(cuMemGetAccess, cuMemGetAccess, (unsigned long long *flags, const wcu_mem_location *location, wcu_ptr at)) \
  X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, \
    (void *out, wcu_mem_handle handle, wcu_mem_handle_type type, unsigned long long flags)) \
  X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, (wcu_mem_handle *handle, void *in, wcu_mem_handle_type type)) \
  X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, (wcu_mem_handle *handle, void *at)) \
  X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, \
    (wcu_mem_allocation_prop *prop, wcu_mem_handle handle))

/* Multicast objects, whose handles cuMemMap and cuMemRelease take too. */
#define WCU_MULTICAST_ENTRIES(X) \
  X(cuMulticastCreate, cuMulticastCreate, (wcu_mem_handle *handle, const wcu_multicast_prop *prop)) \
  X(cuMulticastAddDevice, cuMulticastAddDevice, (wcu_mem_handle handle, wcu_device device)) \
  X(cuMulticastBindMem, cuMulticastBindMem, \
    (wcu_mem_handle handle, size_t offset, wcu_mem_handle memory, size_t memory_offset, size_t bytes, unsigned long long flags)) \
  X(cuMulticastUnbind, cuMulticastUnbind, (wcu_mem_handle handle, wcu_device device, size_t offset, size_t bytes)) \
  X(cuMulticastGetGranularity, cuMulticastGetGranularity, \
    (size_t *bytes, const wcu_multicast_prop *prop, wcu_multicast_granularity option))

/* Copies and fills. */
#define WCU_COPY_ENTRIES(X) \
  X(cuMemcpy, cuMemcpy, (wcu_ptr to, wcu_ptr from, size_t bytes)) \
  X(cuMemcpyAsync, cuMemcpyAsync, (wcu_ptr to, wcu_ptr from, size_t bytes, wcu_stream stream)) \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (wcu_ptr to, const void *from, size_t bytes)) \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *to, wcu_ptr from, size_t bytes)) \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, (wcu_ptr to, wcu_ptr from, size_t bytes)) \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (wcu_ptr to, const void *from, size_t bytes, wcu_stream stream)) \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *to, wcu_ptr from, size_t bytes, wcu_stream stream)) \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (wcu_ptr to, wcu_ptr from, size_t bytes, wcu_stream stream)) \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, \
    (wcu_ptr to, wcu_context to_context, wcu_ptr from, wcu_context from_context, size_t bytes, wcu_stream stream)) \
  X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, (const wcu_memcpy2d *copy, wcu_stream stream)) \
  X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, (const wcu_memcpy3d *copy, wcu_stream stream)) \
  X(cuMemsetD8, cuMemsetD8_v2, (wcu_ptr at, unsigned char value, size_t count)) \
  X(cuMemsetD32, cuMemsetD32_v2, (wcu_ptr at, unsigned value, size_t count)) \
  X(cuMemsetD8Async, cuMemsetD8Async, (wcu_ptr at, unsigned char value, size_t count, wcu_stream stream)) \
  X(cuMemsetD16Async, cuMemsetD16Async, (wcu_ptr at, unsigned short value, size_t count, wcu_stream stream)) \
  X(cuMemsetD32Async, cuMemsetD32Async, (wcu_ptr at, unsigned value, size_t count, wcu_stream stream))

/* Code and launches. */
#define WCU_CODE_ENTRIES(X) \
  X(cuModuleLoadData, cuModuleLoadData, (wcu_module *module, const void *image)) \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, \
    (wcu_module *module, const void *image, unsigned count, wcu_jit_option *options, void **values)) \
  X(cuModuleUnload, cuModuleUnload, (wcu_module module)) \
  X(cuModuleGetFunction, cuModuleGetFunction, (wcu_function *function, wcu_module module, const char *name)) \
  X(cuModuleGetGlobal, cuModuleGetGlobal_v2, (wcu_ptr *at, size_t *bytes, wcu_module module, const char *name)) \
  X(cuModuleGetFunctionCount, cuModuleGetFunctionCount, (unsigned *count, wcu_module module)) \
  X(cuLinkCreate, cuLinkCreate_v2, \
    (unsigned count, wcu_jit_option *options, void **values, wcu_link_state *link)) \
  X(cuLinkAddData, cuLinkAddData_v2, \
    (wcu_link_state link, wcu_jit_input kind, void *data, size_t size, const char *name, unsigned count, \
     wcu_jit_option *options, void **values)) \
  X(cuLinkComplete, cuLinkComplete, (wcu_link_state link, void **cubin, size_t *size)) \
  X(cuLinkDestroy, cuLinkDestroy, (wcu_link_state link)) \
  X(cuLibraryLoadData, cuLibraryLoadData, \
    (wcu_library *library, const void *image, wcu_jit_option *options, void **values, unsigned count, void *library_options, \
     void **library_values, unsigned library_count)) \
  X(cuLibraryUnload, cuLibraryUnload, (wcu_library library)) \
  X(cuLibraryGetKernel, cuLibraryGetKernel, (wcu_kernel *kernel, wcu_library library, const char *name)) \
  X(cuLibraryGetModule, cuLibraryGetModule, (wcu_module *module, wcu_library library)) \
  X(cuLibraryGetGlobal, cuLibraryGetGlobal, (wcu_ptr *at, size_t *bytes, wcu_library library, const char *name)) \
  X(cuKernelGetFunction, cuKernelGetFunction, (wcu_function *function, wcu_kernel kernel)) \
  X(cuFuncGetAttribute, cuFuncGetAttribute, (int *value, wcu_func_attribute attribute, wcu_function function)) \
  X(cuFuncSetAttribute, cuFuncSetAttribute, (wcu_function function, wcu_func_attribute attribute, int value)) \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo, (wcu_function function, size_t index, size_t *offset, size_t *bytes)) \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, \
    (int *blocks, wcu_function function, int block_size, size_t shared)) \
  X(cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, \
    (int *grid, int *block, wcu_function function, wcu_block_to_shared to_shared, size_t shared, int limit)) \
  X(cuLaunchKernel, cuLaunchKernel, (wcu_function f, WCU_DIMS, unsigned shared, wcu_stream stream, void **params, void **extra)) \
  X(cuLaunchKernelEx, cuLaunchKernelEx, (const wcu_launch_config *config, wcu_function f, void **params, void **extra)) \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, \
    (wcu_function f, WCU_DIMS, unsigned shared, wcu_stream stream, void **params))

/* Graphs and capture. */
#define WCU_GRAPH_ENTRIES(X) \
  X(cuGraphCreate, cuGraphCreate, (wcu_graph *graph, unsigned flags)) \
  X(cuGraphDestroy, cuGraphDestroy, (wcu_graph graph)) \
  X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, (WCU_NEW_NODE, const wcu_kernel_node_params *params)) \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, (WCU_NEW_NODE, const wcu_memcpy3d *params, wcu_context context)) \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, (WCU_NEW_NODE, const wcu_memset_node_params *params, wcu_context context)) \
  X(cuGraphAddHostNode, cuGraphAddHostNode, (WCU_NEW_NODE, const wcu_host_node_params *params)) \
  X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, (WCU_NEW_NODE)) \
  X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, (WCU_NEW_NODE, wcu_graph child)) \
  X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, (WCU_NEW_NODE, wcu_event event)) \
  X(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, (WCU_NEW_NODE, wcu_event event)) \
  X(cuGraphAddNode, cuGraphAddNode_v2, \
    (wcu_graph_node *node, wcu_graph graph, const wcu_graph_node *from, const wcu_graph_edge_data *data, size_t count, \
     wcu_graph_node_params *params)) \
  X(cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate, \
    (wcu_conditional_handle *handle, wcu_graph graph, wcu_context context, unsigned value, unsigned flags)) \
  X(cuGraphAddDependencies, cuGraphAddDependencies_v2, \
    (wcu_graph graph, const wcu_graph_node *from, const wcu_graph_node *to, const wcu_graph_edge_data *data, size_t count)) \
  X(cuGraphGetNodes, cuGraphGetNodes, (wcu_graph graph, wcu_graph_node *nodes, size_t *count)) \
  X(cuGraphGetEdges, cuGraphGetEdges_v2, \
    (wcu_graph graph, wcu_graph_node *from, wcu_graph_node *to, wcu_graph_edge_data *data, size_t *count)) \
  X(cuGraphNodeGetType, cuGraphNodeGetType, (wcu_graph_node node, wcu_graph_node_type *type)) \
  X(cuGraphInstantiate, cuGraphInstantiateWithFlags, (wcu_graph_exec *exec, wcu_graph graph, unsigned long long flags)) \
  X(cuGraphExecDestroy, cuGraphExecDestroy, (wcu_graph_exec exec)) \
  X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, \
    (wcu_graph_exec exec, wcu_graph_node node, const wcu_kernel_node_params *params)) \
  X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, \
    (wcu_graph_exec exec, wcu_graph_node node, const wcu_memcpy3d *params, wcu_context context)) \
  X(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, \
    (wcu_graph_exec exec, wcu_graph_node node, const wcu_memset_node_params *params, wcu_context context)) \
  X(cuGraphExecUpdate, cuGraphExecUpdate_v2, (wcu_graph_exec exec, wcu_graph graph, wcu_graph_update_info *info)) \
  X(cuGraphUpload, cuGraphUpload, (wcu_graph_exec exec, wcu_stream stream)) \
  X(cuGraphLaunch, cuGraphLaunch, (wcu_graph_exec exec, wcu_stream stream)) \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (wcu_stream stream, wcu_capture_mode mode)) \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, \
    (wcu_stream stream, wcu_graph graph, const wcu_graph_node *from, const wcu_graph_edge_data *data, size_t count, \
     wcu_capture_mode mode)) \
  X(cuStreamEndCapture, cuStreamEndCapture, (wcu_stream stream, wcu_graph *graph)) \
  X(cuStreamIsCapturing, cuStreamIsCapturing, (wcu_stream stream, wcu_capture_status *status)) \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, \
    (wcu_stream stream, wcu_capture_status *status, uint64_t *id, wcu_graph *graph, const wcu_graph_node **from, \
     const wcu_graph_edge_data **data, size_t *count)) \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (wcu_capture_mode *mode))

#define WCU_ENTRIES(X) \
  WCU_DEVICE_ENTRIES(X) WCU_STREAM_ENTRIES(X) WCU_MEMORY_ENTRIES(X) WCU_MULTICAST_ENTRIES(X) WCU_COPY_ENTRIES(X) \
  WCU_CODE_ENTRIES(X) WCU_GRAPH_ENTRIES(X)

#endif
