/* runtime/trace.h -- WEFT_TRACE=FILE: records which steps ran when, and writes a JSON file for Perfetto and
 * chrome://tracing.
 *
 * The file is written when the last platform of the process ends, and on signals (trace_signals.h). */
#ifndef WEFT_RUNTIME_TRACE_H
#define WEFT_RUNTIME_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct hlo_module;

/* True if WEFT_TRACE was set at the first rt_trace_init, and while there are captures. */
extern atomic_bool rt_trace_on;
/* Reads WEFT_TRACE; idempotent and thread-safe.  Platforms call it. */
void rt_trace_init(void);
/* True if WEFT_TRACE names a file. */
bool rt_trace_has_file(void);

/* A step that a thread is running. `kind` NULL: none. The strings are borrowed until the step ends. */
typedef struct rt_trace_step {
  const char *kind, *name;
  int device;
  int64_t program, run; /* rt_run_info.program_id and run_id; 0: the step is of no program */
  bool contains;        /* control flow: the steps inside it are recorded too */
  bool aside;           /* a collective on a device, beside what the device computes: it has a row of its own */
} rt_trace_step;
/* The step of the calling thread, set by the executor while events are recorded. */
extern _Thread_local rt_trace_step rt_trace_current;

/* One event on the calling thread, from begin_ns (weft_now_ns) to now, of no program.  Strings are copied, here and
 * below. */
void rt_trace_event(const char *kind, const char *name, int device, int64_t begin_ns);
/* The calling thread has done the step. */
void rt_trace_done(const rt_trace_step *step, int64_t begin_ns);
/* The calling thread has queued the step on a device: the time is that of queuing. */
void rt_trace_queued(const rt_trace_step *step, int64_t begin_ns);
/* The time that a step took on a device with a clock of its own, in the host's time. Nothing if no events are
 * recorded. */
void rt_trace_on_device(const rt_trace_step *step, int64_t begin_ns, int64_t end_ns);
/* The calling thread has helped another thread with its step, from begin_ns to now. */
void rt_trace_help(const rt_trace_step *step, int64_t begin_ns);

/* Above the ids of threads that Linux gives: the rows of devices, and of their collectives. */
enum { RT_TRACE_DEVICE_THREADS = 1 << 30, RT_TRACE_ASIDE_THREADS = RT_TRACE_DEVICE_THREADS + (1 << 20) };

/* One recorded event, for readers. */
typedef struct rt_trace_record {
  int64_t begin, end; /* weft_now_ns() */
  int thread, device; /* thread: of a device, RT_TRACE_DEVICE_THREADS or RT_TRACE_ASIDE_THREADS + device */
  bool helps;     /* the step is another thread's, which this thread helped; the other thread has an event too */
  bool queues;    /* the thread only queued the step on the device */
  bool on_device; /* the device executed the step */
  bool aside;     /* as in rt_trace_step */
  bool contains;  /* as in rt_trace_step, like `program` and `run` */
  int64_t program, run;
  char kind[16], name[93];
} rt_trace_record;

/* Events are recorded from here to rt_trace_release, whatever WEFT_TRACE says.  Captures may overlap. With
 * `keep_programs`, rt_trace_programs gives the programs that ran until all captures are released. */
void rt_trace_capture(bool keep_programs);
void rt_trace_release(void);
/* A copy of the events that began in [from_ns, to_ns), which the caller frees. NULL and 0 if there are none, or no
 * memory. */
rt_trace_record *rt_trace_between(int64_t from_ns, int64_t to_ns, size_t *out_count);

/* A launch of a program begins while events are recorded: the result is its number, for rt_run_info.run_id. */
int64_t rt_trace_launch(int64_t program, const struct hlo_module *module);

/* A program that ran. The strings and bytes are borrowed from rt_trace_programs' result. */
typedef struct rt_trace_program {
  int64_t id;
  char *name;     /* the module's */
  void *proto;    /* HloModuleProto; NULL: it was not kept */
  size_t proto_size;
  bool asked;     /* the proto was requested, which happens once, even if there is none */
} rt_trace_program;
/* A copy of the records of the programs that ran, in one block of memory that the caller frees. NULL and 0 if there are
 * none, or no memory. */
rt_trace_program *rt_trace_programs(size_t *out_count);

/* Writes what has been recorded so far to the file; nothing without WEFT_TRACE. */
WEFT_NODISCARD weft_status *rt_trace_flush(void);

/* The same if there is anything new; failures are logged. Called by code that releases a platform or a client of it:
 * another thread may hold the last reference, and the process may end before that thread has written the file. */
void rt_trace_finish(void);

#endif
