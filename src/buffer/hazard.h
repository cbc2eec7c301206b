/* buffer/hazard.h -- which steps must wait for which, found from the bytes they read and write.
 *
 * Steps are shown in program order.  A read depends on the last writer of each byte; a write on the readers since the
 * last write, or on that writer when there were none.  Memory is a set of disjoint segments in a search tree for each
 * allocation, so n uses cost O(n log n) and an edge each. */
#ifndef WEFT_BUFFER_HAZARD_H
#define WEFT_BUFFER_HAZARD_H

#include "base/arena.h"
#include "buffer/plan.h"

/* Called for each dependence; the same pair may come more than once. */
typedef weft_status *buf_hazard_edge(void *ctx, int from, int to);

typedef struct buf_hazards {
  weft_arena *arena; /* everything lives there */
  int alloc_count;
  struct buf_segment **roots; /* by allocation */
  struct buf_segment *free;
  uint32_t segments_made;
  buf_hazard_edge *edge;
  void *ctx;
} buf_hazards;

WEFT_NODISCARD weft_status *buf_hazards_init(buf_hazards *h, weft_arena *arena, int alloc_count, buf_hazard_edge *edge,
                                             void *ctx);
/* Step `step` reads or writes `slice`.  A step's reads come before its writes. */
WEFT_NODISCARD weft_status *buf_hazards_read(buf_hazards *h, int step, buf_slice slice);
WEFT_NODISCARD weft_status *buf_hazards_write(buf_hazards *h, int step, buf_slice slice);

#endif
