/* gpu/abi/nccl.h -- the part of NCCL's binary interface that Weft uses, declared without NVIDIA's headers.
 *
 * The interface is that of version 2.28. A library may be older: `WNC_OLDEST` is the oldest one that has all of
 * WNC_ENTRIES, and WNC_LATER_ENTRIES are those that came after it.
 * tests/gpu/library_abi_test.c compares the numbers with NVIDIA's header where it is installed. */
#ifndef WEFT_GPU_ABI_NCCL_H
#define WEFT_GPU_ABI_NCCL_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* Versions as numbers: 10000 * major + 100 * minor + patch. */
enum { WNC_VERSION = 22809, WNC_OLDEST = 21800 };

/* Results of every call.  nccl* */
#define WNC_RESULTS(X) \
  X(Success, 0) X(UnhandledCudaError, 1) X(SystemError, 2) X(InternalError, 3) X(InvalidArgument, 4) \
  X(InvalidUsage, 5) X(RemoteError, 6) X(InProgress, 7)

/* Element types.  nccl* */
#define WNC_TYPES(X) \
  X(Int8, 0) X(Uint8, 1) X(Int32, 2) X(Uint32, 3) X(Int64, 4) X(Uint64, 5) X(Float16, 6) X(Float32, 7) X(Float64, 8) \
  X(Bfloat16, 9) X(Float8e4m3, 10) X(Float8e5m2, 11)

/* Reductions.  nccl* */
#define WNC_OPS(X) X(Sum, 0) X(Prod, 1) X(Max, 2) X(Min, 3) X(Avg, 4)

#define WNC_ROW(name, value) WNC_##name = value,
typedef enum wnc_result { WNC_RESULTS(WNC_ROW) } wnc_result;
typedef enum wnc_type { WNC_TYPES(WNC_ROW) } wnc_type;
typedef enum wnc_op { WNC_OPS(WNC_ROW) } wnc_op;
#undef WNC_ROW

enum { WNC_UNIQUE_ID_BYTES = 128, WNC_SPLIT_NOCOLOR = -1, WNC_SHRINK_ABORT = 1, WNC_WIN_COLL_SYMMETRIC = 1 };

typedef struct wnc_unique_id { char bytes[WNC_UNIQUE_ID_BYTES]; } wnc_unique_id;
typedef struct wnc_comm_st *wnc_comm;
typedef struct wnc_window_st *wnc_window;
struct wcu_stream_st;

/* How a communicator is made.  A member that is not set is INT_MIN or NULL: start from WNC_CONFIG. */
typedef struct wnc_config {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} wnc_config;

#define WNC_CONFIG_MAGIC 0xcafebeefu
#define WNC_CONFIG(version_)                                                                                        \
  {.size = sizeof(wnc_config), .magic = WNC_CONFIG_MAGIC, .version = (unsigned)(version_), .blocking = INT_MIN,        \
   .cgaClusterSize = INT_MIN, .minCTAs = INT_MIN, .maxCTAs = INT_MIN, .splitShare = INT_MIN, .trafficClass = INT_MIN, \
   .collnetEnable = INT_MIN, .CTAPolicy = INT_MIN, .shrinkShare = INT_MIN, .nvlsCTAs = INT_MIN,                      \
   .nChannelsPerNetPeer = INT_MIN, .nvlinkCentricSched = INT_MIN}

#define WNC_ON wnc_comm comm, struct wcu_stream_st *stream

/* Reductions count elements of `recv`, others elements of one block.  In a communicator that does not block, each call
 * may return InProgress: ncclCommGetAsyncError then says when the next call may be made. */
#define WNC_ENTRIES(X) \
  X(wnc_result, ncclGetVersion, (int *version)) \
  X(wnc_result, ncclGetUniqueId, (wnc_unique_id *id)) \
  X(wnc_result, ncclCommInitRankConfig, (wnc_comm *comm, int size, wnc_unique_id id, int rank, wnc_config *config)) \
  X(wnc_result, ncclCommFinalize, (wnc_comm comm)) \
  X(wnc_result, ncclCommDestroy, (wnc_comm comm)) \
  X(wnc_result, ncclCommAbort, (wnc_comm comm)) \
  X(wnc_result, ncclCommSplit, (wnc_comm comm, int color, int key, wnc_comm *part, wnc_config *config)) \
  X(const char *, ncclGetErrorString, (wnc_result result)) \
  X(const char *, ncclGetLastError, (wnc_comm comm)) \
  X(wnc_result, ncclCommGetAsyncError, (wnc_comm comm, wnc_result *result)) \
  X(wnc_result, ncclCommCount, (wnc_comm comm, int *size)) \
  X(wnc_result, ncclCommCuDevice, (wnc_comm comm, int *device)) \
  X(wnc_result, ncclCommUserRank, (wnc_comm comm, int *rank)) \
  X(wnc_result, ncclReduce, \
    (const void *send, void *recv, size_t count, wnc_type type, wnc_op op, int root, WNC_ON)) \
  X(wnc_result, ncclBroadcast, (const void *send, void *recv, size_t count, wnc_type type, int root, WNC_ON)) \
  X(wnc_result, ncclAllReduce, (const void *send, void *recv, size_t count, wnc_type type, wnc_op op, WNC_ON)) \
  X(wnc_result, ncclReduceScatter, (const void *send, void *recv, size_t count, wnc_type type, wnc_op op, WNC_ON)) \
  X(wnc_result, ncclAllGather, (const void *send, void *recv, size_t count, wnc_type type, WNC_ON)) \
  X(wnc_result, ncclSend, (const void *send, size_t count, wnc_type type, int peer, WNC_ON)) \
  X(wnc_result, ncclRecv, (void *recv, size_t count, wnc_type type, int peer, WNC_ON)) \
  X(wnc_result, ncclGroupStart, (void)) \
  X(wnc_result, ncclGroupEnd, (void))

/* Not in every library: memory and registration since 2.19, scalable init 2.23, windows and Shrink 2.27, the last
 * four 2.28. */
#define WNC_LATER_ENTRIES(X) \
  X(wnc_result, ncclMemAlloc, (void **at, size_t bytes)) \
  X(wnc_result, ncclMemFree, (void *at)) \
  X(wnc_result, ncclCommRegister, (wnc_comm comm, void *at, size_t bytes, void **handle)) \
  X(wnc_result, ncclCommDeregister, (wnc_comm comm, void *handle)) \
  X(wnc_result, ncclCommInitRankScalable, \
    (wnc_comm *comm, int size, int rank, int id_count, wnc_unique_id *ids, wnc_config *config)) \
  X(wnc_result, ncclCommWindowRegister, (wnc_comm comm, void *at, size_t bytes, wnc_window *window, int flags)) \
  X(wnc_result, ncclCommWindowDeregister, (wnc_comm comm, wnc_window window)) \
  X(wnc_result, ncclCommShrink, \
    (wnc_comm comm, int *left_out, int left_out_count, wnc_comm *rest, wnc_config *config, int flags)) \
  X(wnc_result, ncclCommRevoke, (wnc_comm comm, int flags)) \
  X(wnc_result, ncclAlltoAll, (const void *send, void *recv, size_t count, wnc_type type, WNC_ON)) \
  X(wnc_result, ncclGather, (const void *send, void *recv, size_t count, wnc_type type, int root, WNC_ON)) \
  X(wnc_result, ncclScatter, (const void *send, void *recv, size_t count, wnc_type type, int root, WNC_ON))

#define WNC_FN(type, name, args) typedef type (*wnc_fn_##name) args;
WNC_ENTRIES(WNC_FN)
WNC_LATER_ENTRIES(WNC_FN)
#undef WNC_FN

#endif
