/* collective/host/simulate.h -- runs the schedules of all ranks on a model of a network: finds out whether the
 * schedules are right and what they cost. */
#ifndef WEFT_COLLECTIVE_HOST_SIMULATE_H
#define WEFT_COLLECTIVE_HOST_SIMULATE_H

#include "collective/host/schedule.h"

/* A message of b bytes takes latency + b * ns_per_byte.  The link of a node to the others carries one byte at a time
 * in each direction, so messages of the node's ranks queue there. */
typedef struct coll_net {
  double node_latency_ns, node_ns_per_byte; /* within a node */
  double link_latency_ns, link_ns_per_byte; /* between nodes */
  double reduce_ns_per_byte, copy_ns_per_byte;
} coll_net;

extern const coll_net coll_net_default; /* 2 us and 12.5 GB/s between nodes, 0.5 us and 10 GB/s within */

typedef struct coll_sim_result {
  double time_ns;          /* when the last rank ends */
  int64_t rounds;          /* most rounds of a rank that carry messages */
  int64_t messages;        /* of all ranks */
  int64_t rank_bytes;      /* most bytes that a rank sends */
  int64_t link_bytes;      /* most bytes that a node sends to others */
  int64_t tmp_bytes;       /* most scratch of a rank */
} coll_sim_result;

/* `problem` is that of rank 0, for sums of u64: elem_bytes is 8, and there are no arrays (prefix, all-to-all-v).
 * With `verify`, moves real data and compares it with what the operation means; without, computes only sizes and
 * times.  A send ends only when it is received.  `net` NULL: coll_net_default.
 * Errors: INTERNAL, where a schedule deadlocks, does not match another rank's, or gives a wrong result; the text has
 * rank and step. */
WEFT_NODISCARD weft_status *coll_simulate(const coll_problem *problem, coll_algorithm algorithm, const coll_net *net,
                                          bool verify, coll_sim_result *out);

#endif
