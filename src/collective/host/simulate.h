/* collective/host/simulate.h -- runs the schedules of all ranks on a model network: are they right, and what do they
 * cost? */
#ifndef WEFT_COLLECTIVE_HOST_SIMULATE_H
#define WEFT_COLLECTIVE_HOST_SIMULATE_H

#include "collective/host/schedule.h"

/* A message of b bytes takes latency + b * ns_per_byte; each node's link to the others carries one byte at a time in
 * each direction, so messages of its ranks queue there. */
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

/* `problem` is rank 0's without arrays (prefix, all-to-all-v), for sums of u64; bytes counts 8-byte elements.  With
 * `verify`, moves real data and compares it with what the operation means; without, only sizes and time.  Sends end
 * only when received.
 * Errors: INTERNAL, where a schedule deadlocks, mismatches or gives a wrong result; the text has rank and round. */
WEFT_NODISCARD weft_status *coll_simulate(const coll_problem *problem, coll_algorithm algorithm, const coll_net *net,
                                          bool verify, coll_sim_result *out);

#endif
