/* src/gpu/abi/cuda.h -- the part of the CUDA driver's binary interface that Weft uses, declared without NVIDIA's
 * headers.
 *
 * Weft builds without NVIDIA's headers and opens libcuda.so.1 at run time.  This header declares what the caller and
 * the driver must agree on: numbers (constants.h), the layout of structures, and the type of each entry point
 * (entries.h).  The prefix `wcu` keeps these names apart from NVIDIA's, so that tests/gpu/abi_test.c can include
 * both headers and compare them by assertions at compile time.  Structures follow version 13.0 of the interface.
 * Entry points are named with the version suffix that the driver's symbol table has.  A field keeps NVIDIA's name,
 * so that a reader finds it in NVIDIA's manual. */
#ifndef WEFT_GPU_ABI_CUDA_H
#define WEFT_GPU_ABI_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "gpu/abi/constants.h"

enum { WCU_VERSION = 13000 };   /* the interface version that this header describes; an argument of cuGetProcAddress */

#define WCU_ROW(name, value) WCU_##name = value,
typedef enum wcu_result { WCU_RESULTS(WCU_ROW) } wcu_result;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_DEVICE_ATTRIBUTE_##name = value,
typedef enum wcu_device_attribute { WCU_DEVICE_ATTRIBUTES(WCU_ROW) } wcu_device_attribute;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_FUNC_ATTRIBUTE_##name = value,
typedef enum wcu_func_attribute { WCU_FUNC_ATTRIBUTES(WCU_ROW) } wcu_func_attribute;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_STREAM_##name = value,
enum { WCU_STREAM_FLAGS(WCU_ROW) };
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_EVENT_##name = value,
enum { WCU_EVENT_FLAGS(WCU_ROW) };
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MEMHOSTALLOC_##name = value,
enum { WCU_MEMHOST_FLAGS(WCU_ROW) };
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MEMORYTYPE_##name = value,
typedef enum wcu_memorytype { WCU_MEMORYTYPES(WCU_ROW) } wcu_memorytype;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_POINTER_ATTRIBUTE_##name = value,
typedef enum wcu_pointer_attribute { WCU_POINTER_ATTRIBUTES(WCU_ROW) } wcu_pointer_attribute;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MEM_ALLOCATION_TYPE_##name = value,
typedef enum wcu_mem_allocation_type { WCU_MEM_ALLOCATION(WCU_ROW) } wcu_mem_allocation_type;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MEM_HANDLE_TYPE_##name = value,
typedef enum wcu_mem_handle_type { WCU_MEM_HANDLE_TYPES(WCU_ROW) } wcu_mem_handle_type;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MEM_LOCATION_TYPE_##name = value,
typedef enum wcu_mem_location_type { WCU_MEM_LOCATIONS(WCU_ROW) } wcu_mem_location_type;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MEM_ACCESS_##name = value,
typedef enum wcu_mem_access { WCU_MEM_ACCESS(WCU_ROW) } wcu_mem_access;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MEM_GRANULARITY_##name = value,
typedef enum wcu_mem_granularity { WCU_MEM_GRANULARITY(WCU_ROW) } wcu_mem_granularity;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MULTICAST_GRANULARITY_##name = value,
typedef enum wcu_multicast_granularity { WCU_MULTICAST_GRANULARITY(WCU_ROW) } wcu_multicast_granularity;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_MEMPOOL_ATTR_##name = value,
typedef enum wcu_mempool_attribute { WCU_MEMPOOL_ATTRIBUTES(WCU_ROW) } wcu_mempool_attribute;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_LAUNCH_ATTRIBUTE_##name = value,
typedef enum wcu_launch_attribute_id { WCU_LAUNCH_ATTRIBUTES(WCU_ROW) } wcu_launch_attribute_id;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_JIT_##name = value,
typedef enum wcu_jit_option { WCU_JIT_OPTIONS(WCU_ROW) } wcu_jit_option;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_JIT_INPUT_##name = value,
typedef enum wcu_jit_input { WCU_JIT_INPUTS(WCU_ROW) } wcu_jit_input;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_CAPTURE_STATUS_##name = value,
typedef enum wcu_capture_status { WCU_CAPTURE_STATUS(WCU_ROW) } wcu_capture_status;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_CAPTURE_MODE_##name = value,
typedef enum wcu_capture_mode { WCU_CAPTURE_MODES(WCU_ROW) } wcu_capture_mode;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_GRAPH_NODE_TYPE_##name = value,
typedef enum wcu_graph_node_type { WCU_GRAPH_NODE_TYPES(WCU_ROW) } wcu_graph_node_type;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_GRAPH_COND_TYPE_##name = value,
typedef enum wcu_conditional_type { WCU_CONDITIONAL_TYPES(WCU_ROW) } wcu_conditional_type;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_GRAPH_EXEC_UPDATE_##name = value,
typedef enum wcu_graph_update_result { WCU_GRAPH_UPDATE_RESULTS(WCU_ROW) } wcu_graph_update_result;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_GET_PROC_ADDRESS_##name = value,
typedef enum wcu_proc_address { WCU_PROC_ADDRESS(WCU_ROW) } wcu_proc_address;
#undef WCU_ROW
#define WCU_ROW(name, value) WCU_P2P_ATTRIBUTE_##name = value,
typedef enum wcu_p2p_attribute { WCU_P2P_ATTRIBUTES(WCU_ROW) } wcu_p2p_attribute;
#undef WCU_ROW

typedef int wcu_device;
typedef unsigned long long wcu_ptr;        /* an address in the address space that devices and host share */
typedef unsigned long long wcu_mem_handle; /* physical memory; cuMemMap gives it an address */
typedef struct wcu_context_st *wcu_context;
typedef struct wcu_module_st *wcu_module;
typedef struct wcu_function_st *wcu_function;
typedef struct wcu_library_st *wcu_library;
typedef struct wcu_link_st *wcu_link_state;
typedef struct wcu_kernel_st *wcu_kernel;
typedef struct wcu_stream_st *wcu_stream;
typedef struct wcu_event_st *wcu_event;
typedef struct wcu_mempool_st *wcu_mempool;
typedef struct wcu_graph_st *wcu_graph;
typedef struct wcu_graph_node_st *wcu_graph_node;
typedef struct wcu_graph_exec_st *wcu_graph_exec;
typedef void (*wcu_host_fn)(void *user);
typedef size_t (*wcu_block_to_shared)(int block_size);

/* Stream handles that name an implicit stream. */
#define WCU_STREAM_LEGACY ((wcu_stream)0x1)
#define WCU_STREAM_PER_THREAD ((wcu_stream)0x2)

typedef struct wcu_uuid { char bytes[16]; } wcu_uuid;

typedef union wcu_launch_attribute_value {
  char pad[64];
  void *align;   /* other attributes hold pointers, which align the union */
  int cooperative;
  int priority;
  int programmaticStreamSerializationAllowed;
  struct { unsigned x, y, z; } clusterDim;
} wcu_launch_attribute_value;

typedef struct wcu_launch_attribute {
  wcu_launch_attribute_id id;
  char pad[8 - sizeof(wcu_launch_attribute_id)];
  wcu_launch_attribute_value value;
} wcu_launch_attribute;

typedef struct wcu_launch_config {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  wcu_stream hStream;
  wcu_launch_attribute *attrs;
  unsigned numAttrs;
} wcu_launch_config;

typedef struct wcu_mem_location {
  wcu_mem_location_type type;
  int id;   /* the device's ordinal */
} wcu_mem_location;

typedef struct wcu_mem_access_desc {
  wcu_mem_location location;
  wcu_mem_access flags;
} wcu_mem_access_desc;

typedef struct wcu_mem_allocation_prop {
  wcu_mem_allocation_type type;
  wcu_mem_handle_type requestedHandleTypes;
  wcu_mem_location location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} wcu_mem_allocation_prop;

/* A multicast object: what a device writes to it goes to the memory that each device of its team has bound to it. */
typedef struct wcu_multicast_prop {
  unsigned numDevices;
  size_t size;                    /* bytes that each device can bind */
  unsigned long long handleTypes; /* a set of wcu_mem_handle_type */
  unsigned long long flags;       /* 0 */
} wcu_multicast_prop;

typedef struct wcu_mempool_props {
  wcu_mem_allocation_type allocType;
  wcu_mem_handle_type handleTypes;
  wcu_mem_location location;
  void *win32SecurityAttributes;
  size_t maxSize;   /* bytes; 0: the driver's choice */
  unsigned short usage;
  unsigned char reserved[54];
} wcu_mempool_props;

/* A box of bytes that is copied: WidthInBytes by Height rows by Depth planes. */
typedef struct wcu_memcpy3d {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  wcu_memorytype srcMemoryType;
  const void *srcHost;
  wcu_ptr srcDevice;
  void *srcArray, *reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  wcu_memorytype dstMemoryType;
  void *dstHost;
  wcu_ptr dstDevice;
  void *dstArray, *reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} wcu_memcpy3d;

typedef struct wcu_memcpy2d {
  size_t srcXInBytes, srcY;
  wcu_memorytype srcMemoryType;
  const void *srcHost;
  wcu_ptr srcDevice;
  void *srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  wcu_memorytype dstMemoryType;
  void *dstHost;
  wcu_ptr dstDevice;
  void *dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} wcu_memcpy2d;

typedef struct wcu_kernel_node_params {
  wcu_function func;
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  void **kernelParams, **extra;
  wcu_kernel kern;
  wcu_context ctx;
} wcu_kernel_node_params;

typedef struct wcu_memset_node_params {
  wcu_ptr dst;
  size_t pitch;
  unsigned value, elementSize;   /* an element has 1, 2 or 4 bytes */
  size_t width, height;          /* in elements and rows */
} wcu_memset_node_params;

typedef struct wcu_host_node_params {
  wcu_host_fn fn;
  void *userData;
} wcu_host_node_params;

typedef struct wcu_graph_edge_data { unsigned char from_port, to_port, type, reserved[5]; } wcu_graph_edge_data;

/* A conditional node has a handle, whose value kernels set by the device function cudaGraphSetConditional. */
typedef unsigned long long wcu_conditional_handle;
enum { WCU_GRAPH_COND_ASSIGN_DEFAULT = 1 /* each launch begins with the handle's default value */ };
typedef struct wcu_conditional_node_params {
  wcu_conditional_handle handle;
  wcu_conditional_type type;
  unsigned size;                 /* of phGraph_out */
  wcu_graph *phGraph_out;        /* set by the driver, which owns the graphs: the bodies, to be filled */
  wcu_context ctx;
} wcu_conditional_node_params;
typedef struct wcu_graph_node_params { /* of cuGraphAddNode; the other kinds of nodes are added by calls of their own */
  wcu_graph_node_type type;
  int reserved0[3];
  union {
    long long reserved1[29];
    wcu_conditional_node_params conditional;
  };
  long long reserved2;
} wcu_graph_node_params;
_Static_assert(sizeof(wcu_graph_node_params) == 256, "the size of CUgraphNodeParams");

typedef struct wcu_graph_update_info {
  wcu_graph_update_result result;
  wcu_graph_node errorNode, errorFromNode;
} wcu_graph_update_info;

/* The type of each entry point: wcu_fn_cuMemAlloc_v2 and so on. */
#include "gpu/abi/entries.h"
#define WCU_FN(name, symbol, args) typedef wcu_result (*wcu_fn_##symbol) args;
WCU_ENTRIES(WCU_FN)
#undef WCU_FN

#endif
