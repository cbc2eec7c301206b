/* tests/gpu/abi_test.c -- src/gpu/abi/cuda.h says what NVIDIA's cuda.h says: numbers, sizes and offsets by
 * assertions at compile time, names of entry points against the toolkit's stub of the driver.  Without the
 * toolkit's header the test is skipped. */
#include "test.h"

#include <dlfcn.h>

#include "gpu/abi/cuda.h"

#if defined __has_include
#if __has_include(WEFT_CUDA_HEADER)
#include WEFT_CUDA_HEADER
#define HAVE_CUDA_HEADER 1
#endif
#endif

#ifdef HAVE_CUDA_HEADER
#define CHECK_RESULT(name, value) _Static_assert((long long)CUDA_##name == value, #name);
WCU_RESULTS(CHECK_RESULT)
#define ROW(prefix, name, value) _Static_assert((long long)prefix##name == value, #prefix #name);
#define DEVICE(n, v) ROW(CU_DEVICE_ATTRIBUTE_, n, v)
WCU_DEVICE_ATTRIBUTES(DEVICE)
#define FUNC(n, v) ROW(CU_FUNC_ATTRIBUTE_, n, v)
WCU_FUNC_ATTRIBUTES(FUNC)
#define STREAM(n, v) ROW(CU_STREAM_, n, v)
WCU_STREAM_FLAGS(STREAM)
#define EVENT(n, v) ROW(CU_EVENT_, n, v)
WCU_EVENT_FLAGS(EVENT)
#define MEMHOST(n, v) ROW(CU_MEMHOSTALLOC_, n, v)
WCU_MEMHOST_FLAGS(MEMHOST)
#define MEMORYTYPE(n, v) ROW(CU_MEMORYTYPE_, n, v)
WCU_MEMORYTYPES(MEMORYTYPE)
#define POINTER(n, v) ROW(CU_POINTER_ATTRIBUTE_, n, v)
WCU_POINTER_ATTRIBUTES(POINTER)
#define ALLOCATION(n, v) ROW(CU_MEM_ALLOCATION_TYPE_, n, v)
WCU_MEM_ALLOCATION(ALLOCATION)
#define HANDLE(n, v) ROW(CU_MEM_HANDLE_TYPE_, n, v)
WCU_MEM_HANDLE_TYPES(HANDLE)
#define LOCATION(n, v) ROW(CU_MEM_LOCATION_TYPE_, n, v)
WCU_MEM_LOCATIONS(LOCATION)
#define ACCESS(n, v) ROW(CU_MEM_ACCESS_FLAGS_PROT_, n, v)
WCU_MEM_ACCESS(ACCESS)
#define GRANULARITY(n, v) ROW(CU_MEM_ALLOC_GRANULARITY_, n, v)
WCU_MEM_GRANULARITY(GRANULARITY)
#define MULTICAST(n, v) ROW(CU_MULTICAST_GRANULARITY_, n, v)
WCU_MULTICAST_GRANULARITY(MULTICAST)
#define MEMPOOL(n, v) ROW(CU_MEMPOOL_ATTR_, n, v)
WCU_MEMPOOL_ATTRIBUTES(MEMPOOL)
#define LAUNCH(n, v) ROW(CU_LAUNCH_ATTRIBUTE_, n, v)
WCU_LAUNCH_ATTRIBUTES(LAUNCH)
#define JIT(n, v) ROW(CU_JIT_, n, v)
WCU_JIT_OPTIONS(JIT)
#define JIT_INPUT(n, v) ROW(CU_JIT_INPUT_, n, v)
WCU_JIT_INPUTS(JIT_INPUT)
#define CAPTURE(n, v) ROW(CU_STREAM_CAPTURE_STATUS_, n, v)
WCU_CAPTURE_STATUS(CAPTURE)
#define MODE(n, v) ROW(CU_STREAM_CAPTURE_MODE_, n, v)
WCU_CAPTURE_MODES(MODE)
#define NODE(n, v) ROW(CU_GRAPH_NODE_TYPE_, n, v)
WCU_GRAPH_NODE_TYPES(NODE)
#define UPDATE(n, v) ROW(CU_GRAPH_EXEC_UPDATE_, n, v)
WCU_GRAPH_UPDATE_RESULTS(UPDATE)
#define PROC(n, v) ROW(CU_GET_PROC_ADDRESS_, n, v)
WCU_PROC_ADDRESS(PROC)
#define P2P(n, v) ROW(CU_DEVICE_P2P_ATTRIBUTE_, n, v)
WCU_P2P_ATTRIBUTES(P2P)

#define SIZE(ours, theirs) \
  _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), "the size of " #theirs);
#define FIELD(ours, theirs, field)                                                                                      \
  _Static_assert(offsetof(ours, field) == offsetof(theirs, field) &&                                                    \
                   sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->field), #theirs "." #field);
SIZE(wcu_result, CUresult) SIZE(wcu_device, CUdevice) SIZE(wcu_ptr, CUdeviceptr) SIZE(wcu_uuid, CUuuid)
SIZE(wcu_mem_handle, CUmemGenericAllocationHandle) SIZE(wcu_graph_edge_data, CUgraphEdgeData)
SIZE(wcu_launch_attribute, CUlaunchAttribute) SIZE(wcu_launch_attribute_value, CUlaunchAttributeValue)
FIELD(wcu_launch_attribute, CUlaunchAttribute, id) FIELD(wcu_launch_attribute, CUlaunchAttribute, value)
FIELD(wcu_launch_attribute_value, CUlaunchAttributeValue, cooperative)
FIELD(wcu_launch_attribute_value, CUlaunchAttributeValue, clusterDim)
FIELD(wcu_launch_attribute_value, CUlaunchAttributeValue, priority)
#define CONFIG(f) FIELD(wcu_launch_config, CUlaunchConfig, f)
SIZE(wcu_launch_config, CUlaunchConfig)
CONFIG(gridDimX) CONFIG(gridDimY) CONFIG(gridDimZ) CONFIG(blockDimX) CONFIG(blockDimY) CONFIG(blockDimZ) CONFIG(sharedMemBytes)
CONFIG(hStream) CONFIG(attrs) CONFIG(numAttrs)
SIZE(wcu_mem_location, CUmemLocation) FIELD(wcu_mem_location, CUmemLocation, type) FIELD(wcu_mem_location, CUmemLocation, id)
SIZE(wcu_mem_access_desc, CUmemAccessDesc) FIELD(wcu_mem_access_desc, CUmemAccessDesc, location)
FIELD(wcu_mem_access_desc, CUmemAccessDesc, flags)
#define PROP(f) FIELD(wcu_mem_allocation_prop, CUmemAllocationProp, f)
SIZE(wcu_mem_allocation_prop, CUmemAllocationProp)
PROP(type) PROP(requestedHandleTypes) PROP(location) PROP(win32HandleMetaData) PROP(allocFlags) PROP(allocFlags.compressionType)
PROP(allocFlags.gpuDirectRDMACapable) PROP(allocFlags.usage)
#define MULTI(f) FIELD(wcu_multicast_prop, CUmulticastObjectProp, f)
SIZE(wcu_multicast_prop, CUmulticastObjectProp)
MULTI(numDevices) MULTI(size) MULTI(handleTypes) MULTI(flags)
#define POOL(f) FIELD(wcu_mempool_props, CUmemPoolProps, f)
SIZE(wcu_mempool_props, CUmemPoolProps)
POOL(allocType) POOL(handleTypes) POOL(location) POOL(win32SecurityAttributes) POOL(maxSize) POOL(usage) POOL(reserved)
#define COPY3(f) FIELD(wcu_memcpy3d, CUDA_MEMCPY3D, f)
SIZE(wcu_memcpy3d, CUDA_MEMCPY3D)
COPY3(srcXInBytes) COPY3(srcY) COPY3(srcZ) COPY3(srcLOD) COPY3(srcMemoryType) COPY3(srcHost) COPY3(srcDevice) COPY3(srcArray)
COPY3(reserved0) COPY3(srcPitch) COPY3(srcHeight) COPY3(dstXInBytes) COPY3(dstY) COPY3(dstZ) COPY3(dstLOD) COPY3(dstMemoryType)
COPY3(dstHost) COPY3(dstDevice) COPY3(dstArray) COPY3(reserved1) COPY3(dstPitch) COPY3(dstHeight) COPY3(WidthInBytes) COPY3(Height)
COPY3(Depth)
#define COPY2(f) FIELD(wcu_memcpy2d, CUDA_MEMCPY2D, f)
SIZE(wcu_memcpy2d, CUDA_MEMCPY2D)
COPY2(srcXInBytes) COPY2(srcY) COPY2(srcMemoryType) COPY2(srcHost) COPY2(srcDevice) COPY2(srcArray) COPY2(srcPitch)
COPY2(dstXInBytes) COPY2(dstY) COPY2(dstMemoryType) COPY2(dstHost) COPY2(dstDevice) COPY2(dstArray) COPY2(dstPitch)
COPY2(WidthInBytes) COPY2(Height)
#define KERNEL(f) FIELD(wcu_kernel_node_params, CUDA_KERNEL_NODE_PARAMS, f)
SIZE(wcu_kernel_node_params, CUDA_KERNEL_NODE_PARAMS)
KERNEL(func) KERNEL(gridDimX) KERNEL(gridDimY) KERNEL(gridDimZ) KERNEL(blockDimX) KERNEL(blockDimY) KERNEL(blockDimZ)
KERNEL(sharedMemBytes) KERNEL(kernelParams) KERNEL(extra) KERNEL(kern) KERNEL(ctx)
#define FILL(f) FIELD(wcu_memset_node_params, CUDA_MEMSET_NODE_PARAMS, f)
SIZE(wcu_memset_node_params, CUDA_MEMSET_NODE_PARAMS)
FILL(dst) FILL(pitch) FILL(value) FILL(elementSize) FILL(width) FILL(height)
SIZE(wcu_host_node_params, CUDA_HOST_NODE_PARAMS) FIELD(wcu_host_node_params, CUDA_HOST_NODE_PARAMS, fn)
FIELD(wcu_host_node_params, CUDA_HOST_NODE_PARAMS, userData)
SIZE(wcu_graph_update_info, CUgraphExecUpdateResultInfo) FIELD(wcu_graph_update_info, CUgraphExecUpdateResultInfo, result)
FIELD(wcu_graph_update_info, CUgraphExecUpdateResultInfo, errorNode)
FIELD(wcu_graph_update_info, CUgraphExecUpdateResultInfo, errorFromNode)
_Static_assert(WCU_VERSION <= CUDA_VERSION, "the header found is older than the interface that src/gpu/abi describes");
#endif

TEST(numbers_and_layouts_are_those_of_the_toolkits_header)
{
#ifdef HAVE_CUDA_HEADER
  print_message("# compared with %s, version %d, when this was compiled\n", WEFT_CUDA_HEADER, CUDA_VERSION);
#else
  print_message("# SKIP: no header at %s\n", WEFT_CUDA_HEADER);
  skip();
#endif
}

/* Every symbol of the table exists in the driver's stub, and those with a version suffix are the ones that
 * NVIDIA's header maps the plain name to. */
TEST(entry_points_exist_in_the_drivers_stub)
{
  void *stub = dlopen(WEFT_CUDA_STUB, RTLD_NOW | RTLD_LOCAL);
  if (!stub) {
    print_message("# SKIP: no stub of the driver at %s\n", WEFT_CUDA_STUB);
    skip();
  }
#define FIND(name, symbol, args) \
  if (!dlsym(stub, #symbol)) fail_msg("the driver's stub has no %s (for %s)", #symbol, #name);
  WCU_ENTRIES(FIND)
  dlclose(stub);
}

#ifdef HAVE_CUDA_HEADER
#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)
TEST(names_resolve_to_the_versions_of_the_toolkits_header)
{
#define RESOLVES(name, symbol, args) assert_string_equal(EXPANDED(name), #symbol);
  WCU_STREAM_ENTRIES(RESOLVES)
  WCU_MEMORY_ENTRIES(RESOLVES)
  WCU_MULTICAST_ENTRIES(RESOLVES)
  WCU_COPY_ENTRIES(RESOLVES)
  WCU_CODE_ENTRIES(RESOLVES)
  WCU_GRAPH_ENTRIES(RESOLVES)
}
#else
TEST(names_resolve_to_the_versions_of_the_toolkits_header)
{
  print_message("# SKIP: no header at %s\n", WEFT_CUDA_HEADER);
  skip();
}
#endif

TEST_MAIN(UNIT(numbers_and_layouts_are_those_of_the_toolkits_header), UNIT(entry_points_exist_in_the_drivers_stub),
          UNIT(names_resolve_to_the_versions_of_the_toolkits_header))
