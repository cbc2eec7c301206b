/* pjrt/settings.h -- the settings of all modules together, and what is wrong with the environment. */
#ifndef WEFT_PJRT_SETTINGS_H
#define WEFT_PJRT_SETTINGS_H

#include "base/options.h"

/* Every table, NULL-terminated.  Some tables share an option: the service and the agent of a job, for one. */
extern const weft_option_table *const pjrt_settings[];

/* The option whose name is the `length` bytes at `name`, or NULL. */
const weft_option *pjrt_settings_find(const char *name, size_t length);

/* Logs, the first time in a process, which variables WEFT_* of the environment are no settings.
 * Errors: INVALID_ARGUMENT naming the first variable whose value its option does not allow. */
WEFT_NODISCARD weft_status *pjrt_settings_check(void);

/* Calls `tell` for each variable WEFT_* of the environment that is no setting. `hint` is "; did you mean
 * WEFT_THREADS?", or empty. */
void pjrt_settings_unknown(void (*tell)(const char *name, const char *hint));

#endif
