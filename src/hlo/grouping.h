/* hlo/grouping.h -- the groups of a program's collectives: which devices take part together, and in which order.
 *
 * A *grouping* gives every place (replica, partition) of a program its group; collectives with the same groups share
 * one, and with it their communicators (collective/clique.h). */
#ifndef WEFT_HLO_GROUPING_H
#define WEFT_HLO_GROUPING_H

#include "hlo/hlo.h"

/* How the ids in replica_groups and source_target_pairs are meant. */
typedef enum hlo_group_mode {
  HLO_CROSS_REPLICA,               /* no channel: replica ids; the same partition */
  HLO_CROSS_PARTITION,             /* channel, and the operation knows no global ids: partition ids; the same replica */
  HLO_CROSS_REPLICA_AND_PARTITION, /* channel: replica ids; all partitions of each */
  HLO_FLATTENED_ID,                /* channel and use_global_device_ids: replica * partitions + partition */
} hlo_group_mode;

WEFT_NODISCARD weft_status *hlo_group_mode_of(const hlo_instr *instr, hlo_group_mode *out_mode);

/* The groups of a program's collectives, by place = replica * partitions + partition. */
typedef struct hlo_grouping {
  int64_t place_count;
  int *group_of;      /* by place: index into groups, -1 none */
  int *rank_of;       /* by place: position in its group */
  int group_count;
  hlo_ints *groups;   /* places, in rank order */
} hlo_grouping;

/* Works out the groups of a collective; replica_groups in any form.  Everything is in `arena`.
 * Errors: INVALID_ARGUMENT for ids out of range (a program of one place may name others in an all-reduce and in groups of
 * one), repeated, or missing where they must be given. */
WEFT_NODISCARD weft_status *hlo_grouping_new(weft_arena *arena, const hlo_instr *instr, int64_t replicas,
                                             int64_t partitions, hlo_grouping *out_grouping);
bool hlo_grouping_equal(const hlo_grouping *a, const hlo_grouping *b);

#endif
