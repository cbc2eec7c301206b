/* collective/progress.h -- the progress thread: it lives while the process has groups. */
#ifndef WEFT_COLLECTIVE_PROGRESS_H
#define WEFT_COLLECTIVE_PROGRESS_H

#include "collective/internal.h"

/* Adds the group to those that the progress thread drives; the first group starts the thread. Removing the last group
 * ends the thread and waits for it, except on the thread itself. Errors:
 * RESOURCE_EXHAUSTED; no thread can be started. */
WEFT_NODISCARD weft_status *coll_progress_add(coll_group *g);
void coll_progress_remove(coll_group *g);

#endif
