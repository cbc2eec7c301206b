/* runtime/trace.h -- WEFT_TRACE=FILE: what ran when, as a JSON file for Perfetto and chrome://tracing. */
#ifndef WEFT_RUNTIME_TRACE_H
#define WEFT_RUNTIME_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* True if WEFT_TRACE was set when the process first asked. */
extern bool rt_trace_on;
/* Reads WEFT_TRACE; idempotent and thread-safe.  Platforms call it. */
void rt_trace_init(void);

/* One event on the calling thread, from begin_ns (weft_now_ns) to now.  Strings are copied. */
void rt_trace_event(const char *kind, const char *name, int device, int64_t begin_ns);

/* Writes what has been recorded so far to the file. */
WEFT_NODISCARD weft_status *rt_trace_flush(void);

#endif
