/* collective/host/select.h -- the algorithm table. */
#ifndef WEFT_COLLECTIVE_HOST_SELECT_H
#define WEFT_COLLECTIVE_HOST_SELECT_H

#include "collective/internal.h"

typedef struct coll_rule {
  weft_coll_kind kind;
  int most_ranks;
  int64_t most_bytes;
  coll_algorithm algorithm;
} coll_rule;

bool coll_kind_from_name(const char *name, weft_coll_kind *out);

/* Reads "kind most-ranks most-bytes algorithm" lines; '#' begins a comment line.  *out_rules is malloc'd.
 * Errors: NOT_FOUND; INVALID_ARGUMENT with the line. */
WEFT_NODISCARD weft_status *coll_rules_read(const char *path, coll_rule **out_rules, size_t *out_count);

/* The algorithm for a problem of the group. */
coll_algorithm coll_select(const coll_group *g, const coll_problem *problem);

#endif
