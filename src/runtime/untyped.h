/* runtime/untyped.h -- custom calls by XLA's older conventions, without the typed FFI: functions by name, called on
 * bare pointers.
 *
 * XLA's conventions for CPUs, by the call's API version:
 *
 *   0, 1  original                    void f(void *out, const void **in)
 *   2     status returning            void f(void *out, const void **in, XlaCustomCallStatus *status)
 *   3     status returning, unified   void f(void *out, const void **in, const char *opaque, size_t opaque_len,
 *                                           XlaCustomCallStatus *status)
 *
 * `in` has the leaves of the operands.  `out` is the result, or where the result is a tuple an array of pointers to its
 * leaves. The functions run on worker threads, several calls at once, with no lock held. */
#ifndef WEFT_RUNTIME_UNTYPED_H
#define WEFT_RUNTIME_UNTYPED_H

#include "base/status.h"
#include "hlo/hlo.h"

typedef void rt_untyped_fn(void); /* of one of the types above */

/* Thread-safe. `name` is copied; a later registration of a name replaces an earlier one for programs that are
 * compiled after it. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *rt_untyped_register(const char *name, size_t length, rt_untyped_fn *function);
rt_untyped_fn *rt_untyped_find(const char *name); /* NULL: there is none */

/* One custom call of a program. */
typedef struct rt_untyped_call {
  rt_untyped_fn *function;
  int api_version;     /* 0 to 3 */
  int operand_leaves;
  bool tuple;          /* the result is a tuple */
  const char *opaque;  /* backend_config */
  size_t opaque_bytes;
} rt_untyped_call;

/* Reads from `instr` what the call needs; `arena` holds the bytes. Errors: INVALID_ARGUMENT for another API version or
 * for bad hexadecimal digits. */
WEFT_NODISCARD weft_status *rt_untyped_call_read(weft_arena *arena, const hlo_instr *instr, rt_untyped_fn *function,
                                                 rt_untyped_call *out);

/* Calls the function on buffers: leaves of the operands, then leaves of the result. Errors: INTERNAL with the
 * function's message. */
WEFT_NODISCARD weft_status *rt_untyped_call_run(const rt_untyped_call *call, void *const *buffers);

#endif
