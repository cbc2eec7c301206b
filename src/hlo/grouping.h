/* hlo/grouping.h -- the groups of a program's collectives: which devices take part together, and in which order.
 *
 * A *place* is a pair (replica, partition) of a program.  A *grouping* assigns each place to a group.  Collectives
 * with the same groups share a grouping and its communicators (collective/clique.h). */
#ifndef WEFT_HLO_GROUPING_H
#define WEFT_HLO_GROUPING_H

#include "hlo/hlo.h"

/* The meaning of the ids in replica_groups and source_target_pairs. */
typedef enum hlo_group_mode {
  HLO_CROSS_REPLICA,               /* no channel: replicas; members are of one partition */
  HLO_CROSS_PARTITION,             /* channel, no global ids in the operation: partitions; members are of one replica */
  HLO_CROSS_REPLICA_AND_PARTITION, /* channel: replicas, each with all of its partitions */
  HLO_FLATTENED_ID,                /* channel and use_global_device_ids: replica * partitions + partition */
} hlo_group_mode;

/* How the ids of a collective are meant. Errors: INVALID_ARGUMENT for use_global_device_ids without a channel. */
WEFT_NODISCARD weft_status *hlo_group_mode_of(const hlo_instr *instr, hlo_group_mode *out_mode);

/* The groups of one collective; place = replica * partitions + partition. */
typedef struct hlo_grouping {
  int64_t place_count;
  int *group_of;      /* by place: index into groups; -1: in none */
  int *rank_of;       /* by place: position in its group */
  int group_count;
  hlo_ints *groups;   /* places, in the order of ranks */
  bool by_host;       /* the host moves the data although the platform has communicators of its own; at first false */
} hlo_grouping;

/* Computes the groups of a collective from replica_groups in any form.  The lists of *out_grouping are made in
 * `arena`.
 * Errors: INVALID_ARGUMENT for ids that are out of range (a program of one device may name others in an all-reduce
 * and in groups of one), repeated, or missing where they must be given. */
WEFT_NODISCARD weft_status *hlo_grouping_new(weft_arena *arena, const hlo_instr *instr, int64_t replicas,
                                             int64_t partitions, hlo_grouping *out_grouping);
bool hlo_grouping_equal(const hlo_grouping *a, const hlo_grouping *b);

#endif
