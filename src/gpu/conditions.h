/* gpu/conditions.h -- loops and branches in CUDA graphs: conditional nodes, and kernels that set their handles. */
#ifndef WEFT_GPU_CONDITIONS_H
#define WEFT_GPU_CONDITIONS_H

#include <stdatomic.h>

#include "base/thread.h"
#include "gpu/driver.h"

struct gpu_device;
struct gpu_platform;

/* Pinned memory of the host, which the kernels of loops look at once in LOOK_NS of the device's time. */
typedef struct gpu_watch {
  _Alignas(64) uint32_t stop;   /* the host: not 0: all loops end before their next round */
  _Alignas(64) uint32_t looks;  /* the device: how often it has looked; may wrap */
} gpu_watch;

enum { GPU_LOOP_DEPTH = 32 /* loops with a known number of rounds that may be in each other */ };

/* A member of gpu_device: what graphs with conditional nodes need on it, made when the first program has control
 * flow. */
typedef struct gpu_conditions {
  weft_mutex mu;              /* order: before gpu_platform.launching */
  bool is_tried WEFT_GUARDED_BY(mu);
  weft_status *error WEFT_GUARDED_BY(mu); /* why there are none; set once */
  /* constant once gpu_conditions_open has succeeded: */
  wcu_module module;
  wcu_function by_flag, by_count, choose;
  wcu_ptr words;              /* memory of the device: what the kernels keep */
  bool has_choice;            /* a node may have several bodies, one of which runs (from CUDA 12.8 on) */
  _Atomic(gpu_watch *) watch; /* NULL: not made yet */
} gpu_conditions;

void gpu_conditions_init(gpu_conditions *conditions);
/* Makes what the device lacks, and a small graph to see whether the driver takes conditional nodes. A later call
 * repeats the answer of the first. Thread-safe; the caller need not have entered the device.
 * Errors: UNAVAILABLE: the driver has no conditional nodes; or the error of a call. */
WEFT_NODISCARD weft_status *gpu_conditions_open(struct gpu_platform *platform, struct gpu_device *gpu);
void gpu_conditions_close(gpu_conditions *conditions); /* the caller has entered the device */
void gpu_conditions_fini(gpu_conditions *conditions);

/* Loops that run on the device, and later ones, end before their next round. What they compute means nothing then.
 * Thread-safe. */
void gpu_loops_stop(struct gpu_device *gpu);
/* A number that changes as long as a loop runs on the device. Thread-safe. */
uint32_t gpu_loops_progress(const struct gpu_device *gpu);

/* ---- writing a graph ---- */

/* A conditional node behind the nodes `from` of `graph`; `bodies` gets its `size` bodies, which are empty graphs.
 * *from becomes the new node, and *count 1: *from, which may be NULL, was made by malloc. */
WEFT_NODISCARD weft_status *gpu_add_condition(const struct gpu_device *gpu, wcu_graph graph, wcu_graph_node **from,
                                              size_t *count, wcu_conditional_type type, wcu_conditional_handle handle,
                                              int size, wcu_graph *bodies);
/* A handle for a node of `graph`. */
WEFT_NODISCARD weft_status *gpu_new_handle(const struct gpu_device *gpu, wcu_graph graph,
                                           wcu_conditional_handle *out_handle);
/* Queue on `stream` a kernel that sets the handle:
 * to 1 if the byte at `flag` is not 0, else to 0; */
WEFT_NODISCARD weft_status *gpu_set_by_flag(const gpu_conditions *c, wcu_stream stream, wcu_conditional_handle handle,
                                            wcu_ptr flag);
/* to 1 for `trips` rounds: `first` says that none has run yet. `depth`: how many such loops are around this one; */
WEFT_NODISCARD weft_status *gpu_set_by_count(const gpu_conditions *c, wcu_stream stream, wcu_conditional_handle handle,
                                             int depth, int64_t trips, bool first);
/* by the branch of `count` that the pred (true: branch 0) or s32 (out of range: the last) at `flag` names: to its
 * number if `which` is -1, else to 1 if it is `which` and to 0 otherwise. */
WEFT_NODISCARD weft_status *gpu_set_by_branch(const gpu_conditions *c, wcu_stream stream, wcu_conditional_handle handle,
                                              wcu_ptr flag, bool is_pred, int count, int which);

#endif
