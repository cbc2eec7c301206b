/* collective/progress.h -- the progress thread: it lives while the process has groups. */
#ifndef WEFT_COLLECTIVE_PROGRESS_H
#define WEFT_COLLECTIVE_PROGRESS_H

#include "collective/internal.h"

WEFT_NODISCARD weft_status *coll_progress_add(coll_group *g);
void coll_progress_remove(coll_group *g);

#endif
