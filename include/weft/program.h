/* weft/program.h -- runs programs that `weft compile` has compiled (docs/aot.md), without a compiler: libweft_runtime.
 *
 * Errors are weft_status values with canonical codes (base/status.h); NULL is success. */
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/dtype.h"
#include "base/status.h"

WEFT_PUBLIC_BEGIN

/* A program in memory, with its devices and its worker threads. Opaque; all functions but weft_program_close are
 * thread-safe. */
typedef struct weft_program weft_program;

/* Zeros are the defaults. */
typedef struct weft_program_options {
  size_t size;  /* sizeof this struct, or 0: as this header declares it */
  int threads;  /* worker threads; 0: WEFT_THREADS, by default as docs/scaling.md says */
} weft_program_options;

/* One array that the program takes or gives. Borrowed from the program. */
typedef struct weft_program_array {
  /* of a parameter, as the program calls it; "" for a result. A leaf of a tuple has its place behind it: "state.0" */
  const char *name;
  weft_dtype type;     /* WEFT_TOKEN: no bytes */
  int rank;
  const int64_t *dims; /* [rank] */
  /* [rank] dimensions from the one whose neighbours lie side by side in memory to the one whose neighbours lie
   * farthest apart: rank - 1, ..., 1, 0 for arrays as C has them */
  const int64_t *minor_to_major;
  int64_t bytes;       /* elements are dense; one narrower than a byte takes a byte (base/dtype.h) */
} weft_program_array;

/* Loads a compiled program from memory, which is not needed afterwards. `options` may be NULL.
 * The bytes are a program: whoever loads them runs what their author put into them.
 * Errors: INVALID_ARGUMENT: no compiled program; FAILED_PRECONDITION: of another version or build of Weft, without
 * machine code for this processor (the message names the features that it lacks), or for another kind of device;
 * DATA_LOSS: damaged; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *weft_program_open(const void *data, size_t size, const weft_program_options *options,
                                              weft_program **out_program);
/* The same from a file. Errors: NOT_FOUND; UNAVAILABLE: the file cannot be read. */
WEFT_NODISCARD weft_status *weft_program_open_file(const char *path, const weft_program_options *options,
                                                   weft_program **out_program);
/* Waits until all runs have ended. NULL is fine. No other function may be called with the program at the same time. */
void weft_program_close(weft_program *program);
WEFT_DEFINE_AUTO(weft_program, weft_program_close)

const char *weft_program_name(const weft_program *program);
/* The number of devices that the program runs on, all of them in this process: replicas times partitions. */
int weft_program_device_count(const weft_program *program);
/* Arrays of one device. A tuple counts as its leaves. */
int weft_program_param_count(const weft_program *program);
int weft_program_result_count(const weft_program *program);
const weft_program_array *weft_program_param(const weft_program *program, int index);  /* NULL: no such parameter */
const weft_program_array *weft_program_result(const weft_program *program, int index); /* NULL: no such result */

/* Runs the program once and waits for it. Threads may run one program at the same time; its runs take turns.
 *   inputs   [device * weft_program_param_count() + param]: the bytes of each parameter, which are only read. Memory
 *            at a multiple of 64 bytes is read in place, other memory is copied first
 *   outputs  [device * weft_program_result_count() + result]: where the bytes of each result go
 * Pointers of arrays without bytes may be NULL.
 * Errors: what the program fails with; INVALID_ARGUMENT: a pointer is missing; DEADLINE_EXCEEDED: the run has not
 * ended at `deadline`. It then goes on, and may read the inputs until weft_program_close has returned. */
WEFT_NODISCARD weft_status *weft_program_run(weft_program *program, const void *const *inputs, void *const *outputs,
                                             weft_deadline deadline);

WEFT_PUBLIC_END

#endif
