/* runtime/targets.h -- the registered targets of custom calls: one list for each kind.
 *
 * The list lives as long as the process, since programs may still run while it exits. Thread-safe. */
#ifndef WEFT_RUNTIME_TARGETS_H
#define WEFT_RUNTIME_TARGETS_H

#include "base/status.h"

typedef enum rt_target_kind {
  RT_TARGET_HOST,    /* XLA_FFI_Handler_Bundle, of handlers that work on the host */
  RT_TARGET_DEVICE,  /* XLA_FFI_Handler_Bundle, of handlers that queue work on a device's stream */
  RT_TARGET_UNTYPED, /* rt_untyped_fn * */
} rt_target_kind;

/* Copies the name and the value of `size` bytes. A later target of the same kind and name hides an earlier one.
 * Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *rt_target_add(rt_target_kind kind, const char *name, size_t length, const void *value,
                                          size_t size);
/* Copies the value of the target to *out_value; false: there is none. */
bool rt_target_find(rt_target_kind kind, const char *name, void *out_value);

#endif
