/* runtime/executable.h -- a compiled program and its launch. */
#ifndef WEFT_RUNTIME_EXECUTABLE_H
#define WEFT_RUNTIME_EXECUTABLE_H

#include "buffer/plan.h"
#include "hlo/hlo.h"
#include "runtime/buffer.h"
#include "runtime/device.h"
#include "runtime/steps.h"

typedef struct weft_executable weft_executable;

weft_executable *weft_executable_retain(weft_executable *exe);
void weft_executable_release(weft_executable *exe); /* launches in flight hold it */
WEFT_DEFINE_AUTO(weft_executable, weft_executable_release)

const hlo_module *weft_executable_module(const weft_executable *exe); /* optimised and scheduled */
const buf_plan *weft_executable_plan(const weft_executable *exe);
const void *weft_executable_code(const weft_executable *exe); /* data of the platform, used only by the platform */
/* The kernels that the host runs (codegen/codegen.h), borrowed; NULL on a
 * platform whose kernels are of another kind. */
const struct gen_code *weft_executable_kernels(const weft_executable *exe);
bool weft_executable_has_excess_precision(const weft_executable *exe); /* narrow floats stay f32 inside kernels */
int64_t weft_executable_code_bytes(const weft_executable *exe);
/* Bytes of the packed forms (packed.h) of all constants that have such, or of all parameters. */
int64_t weft_executable_packed_bytes(const weft_executable *exe, bool of_parameters);
int weft_executable_param_count(const weft_executable *exe);  /* leaves of all parameters */
int weft_executable_output_count(const weft_executable *exe); /* leaves of the result */
/* The type of a parameter's or result's leaf, borrowed from `exe`. */
const weft_array_type *weft_executable_param_type(const weft_executable *exe, int param);
const weft_array_type *weft_executable_output_type(const weft_executable *exe, int output);
bool weft_executable_donates(const weft_executable *exe, int param); /* the program can reuse the input's bytes */
int64_t weft_executable_replica_count(const weft_executable *exe);
int64_t weft_executable_partition_count(const weft_executable *exe);
/* The devices of this process that take part, in the order of weft_launch.inputs, and the place of each. */
int weft_executable_device_count(const weft_executable *exe);
weft_device *weft_executable_device(const weft_executable *exe, int index);
void weft_executable_place(const weft_executable *exe, int index, int64_t *out_replica, int64_t *out_partition);

/* One launch: every local device runs the program once. */
typedef struct weft_launch {
  weft_buffer *const *const *inputs; /* [device][param leaf], borrowed; buffers of that device */
  weft_buffer **const *outputs;      /* [device][output leaf]: filled with new references */
  weft_event **done;                 /* [device], or NULL: filled with new references to the events of the runs' ends */
  const bool *keep;                  /* [param leaf], or NULL: true forbids donation of that input */
  int64_t launch_id;                 /* the same in every process */
  const uint64_t *incarnations;      /* by process, or NULL: those that the platform was made with */
  void *user;                        /* handed to custom calls; must live until every `done` is ready */
  /* if not NULL: host callbacks may run on the launching thread, which serves them until every `done` is ready */
  struct rt_lender *lender;
} weft_launch;

/* Submits a launch and returns. A short program whose inputs are ready may run at once on the calling thread. A
 * caller that is more than 64 runs ahead of a busy device waits until at most 32 are left, or for 10 s; a worker
 * never waits. Donated inputs are deleted before the call returns. Failures of the run, and of its inputs, are in
 * the outputs' definition events and in `done`.
 * Errors (nothing was submitted): INVALID_ARGUMENT for wrong counts, sizes, devices or a buffer donated twice;
 * FAILED_PRECONDITION for a deleted input; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *weft_executable_launch(weft_executable *exe, const weft_launch *launch);

/* For people: the thunks and their dependences as text. */
WEFT_NODISCARD weft_status *weft_executable_print(const weft_executable *exe, FILE *out);
/* Calls `visit` for every computation that runs by steps, the entry first. `sequence` is valid during the call. */
void weft_executable_each_sequence(const weft_executable *exe, void (*visit)(void *ctx, const weft_sequence *sequence),
                                   void *ctx);
/* Calls `visit` for every step: computation by computation, the entry first. `step` is valid during the call. */
void weft_executable_each_step(const weft_executable *exe, void (*visit)(void *ctx, const weft_step *step), void *ctx);

#endif
