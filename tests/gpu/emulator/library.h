/* tests/gpu/emulator/library.h -- what the emulated libraries (cuBLASLt and others) use of the emulated driver.
 *
 * The functions are symbols of the emulator's libcuda.so.1, with which each emulated library is linked. */
#ifndef WEFT_EMU_LIBRARY_H
#define WEFT_EMU_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct wcu_stream_st;

/* Work of a library, done on the stream's thread.  `args` is the copy that weft_emu_enqueue made.  Returns a number of
 * wcu_result; other than 0 it becomes the context's error, with the text in `error`. */
typedef int weft_emu_job(const void *args, int device, char *error, size_t size);

/* The beginning of each library call `call`: 0, or the number that WEFT_EMU_FAULTS says the call returns. */
int weft_emu_fault(const char *call);

/* True if the calling thread has a context without an error. */
bool weft_emu_ready(void);

/* Queues `job` with a copy of `bytes` bytes at `args` on the stream, or adds it to the graph that the stream captures.
 * Returns a number of wcu_result. */
int weft_emu_enqueue(struct wcu_stream_st *stream, weft_emu_job *job, const void *args, size_t bytes);

/* Zeroed memory that is never freed, so that a use after the end of what lies there is noticed.  It comes from large
 * blocks: small ones, each allocated among memory that is freed again, would keep a page each. */
void *weft_emu_keep(size_t bytes);

/* As weft_emu_enqueue, if the stream captures; `count` is called with the arguments and 1 or -1 for each copy of the
 * job that is made and dropped: nodes of graphs, of their instances and of launches. */
int weft_emu_record(struct wcu_stream_st *stream, weft_emu_job *job, const void *args, size_t bytes,
                    void (*count)(const void *args, int change));
bool weft_emu_is_capturing(struct wcu_stream_st *stream);

/* True if the memory at device address `at` is mapped by the virtual memory calls, so that others can map it too. */
bool weft_emu_is_mapped(uint64_t at);

/* Where the host finds `bytes` bytes at device address `at`, for a job.  NULL: the device may not use them; `error`
 * then says why. */
void *weft_emu_reach(int device, uint64_t at, size_t bytes, bool write, char *error, size_t size);

/* ---- what the libraries have alike ---- */

enum { ILLEGAL_ADDRESS = 700, OUT_OF_MEMORY = 2 }; /* of wcu_result, for jobs */

#define API __attribute__((visibility("default")))

/* The beginning of each library call, which returns a `result`. */
#define ENTER_CALL(result) do { int fault_ = weft_emu_fault(__func__); if (fault_) return (result)fault_; } while (0)

/* Defines the calls that create and destroy an object of the library. `type` is a pointer to its struct. `absent` is
 * the result of a call without a place for the object or, for a handle, without a context. */
#define EMU_CREATE_IF(condition, result, call, type, absent, no_memory)   \
  API result call(type *out)                                              \
  {                                                                       \
    ENTER_CALL(result);                                                   \
    if (!out || !(condition)) return absent;                              \
    *out = calloc(1, sizeof **out);                                       \
    return *out ? (result)0 : no_memory;                                  \
  }
#define EMU_CREATE(...) EMU_CREATE_IF(true, __VA_ARGS__)
#define EMU_CREATE_HANDLE(...) EMU_CREATE_IF(weft_emu_ready(), __VA_ARGS__)
#define EMU_DESTROY(result, call, type) \
  API result call(type object)          \
  {                                     \
    free(object);                       \
    return (result)0;                   \
  }
/* Defines the call that gives a handle its stream. */
#define EMU_SET_STREAM(result, call, type, absent)          \
  API result call(type handle, struct wcu_stream_st *stream) \
  {                                                         \
    ENTER_CALL(result);                                     \
    if (!handle) return absent;                             \
    handle->stream = stream;                                \
    return (result)0;                                       \
  }

#endif
