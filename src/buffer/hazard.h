/* buffer/hazard.h -- which steps must wait for which, found from the bytes they read and write.
 *
 * The caller reports reads and writes in program order.  A read depends on the last writer of each byte.  A write
 * depends on the steps that have read a byte since its last write; if there are none, on the writer.  The bytes of each
 * allocation are disjoint segments in a search tree: a use costs O(log n), plus the segments and readers it meets. */
#ifndef WEFT_BUFFER_HAZARD_H
#define WEFT_BUFFER_HAZARD_H

#include "base/arena.h"
#include "buffer/plan.h"

/* Called for each dependence: `to` must wait for `from`.  The same pair may come more than once. */
typedef weft_status *buf_hazard_edge(void *ctx, int from, int to);

typedef struct buf_hazards {
  weft_arena *arena; /* borrowed; holds all segments and readers */
  int alloc_count;
  struct buf_segment **roots; /* by allocation */
  struct buf_segment *free;
  uint32_t segments_made;
  buf_hazard_edge *edge;
  void *ctx;
} buf_hazards;

/* Each of the `alloc_count` allocations starts as one segment that nobody has written. `edge` is called with `ctx`; its
 * error ends the call that reports the use. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *buf_hazards_init(buf_hazards *h, weft_arena *arena, int alloc_count, buf_hazard_edge *edge,
                                             void *ctx);
/* Reports that `step` reads or writes `slice`.  A step's reads are reported before its writes. */
WEFT_NODISCARD weft_status *buf_hazards_read(buf_hazards *h, int step, buf_slice slice);
WEFT_NODISCARD weft_status *buf_hazards_write(buf_hazards *h, int step, buf_slice slice);

#endif
