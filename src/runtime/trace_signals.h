/* runtime/trace_signals.h -- the file of WEFT_TRACE is written when a signal comes.
 *
 * SIGTERM and SIGINT end a process that has no handler for them: the file is written first, and then the process ends
 * by the signal. On SIGUSR1 the file is written and the process goes on. If the process has a handler (Python has one
 * for SIGINT), it is called, and the file is written beside it. A signal that the process ignores is left alone, and so
 * is a handler that is installed later, which replaces this one. A second signal while the file is being written ends
 * the process at once. A child made by fork() treats signals as if nothing were installed.
 *
 * The handlers only wake a thread, which writes the file. */
#ifndef WEFT_RUNTIME_TRACE_SIGNALS_H
#define WEFT_RUNTIME_TRACE_SIGNALS_H

#include "base/status.h"

/* Signals are handled from the first rt_trace_signals_begin that succeeds to the last rt_trace_signals_end: each
 * platform calls both. They do nothing without WEFT_TRACE. */
WEFT_NODISCARD weft_status *rt_trace_signals_begin(void);
void rt_trace_signals_end(void);

#endif
