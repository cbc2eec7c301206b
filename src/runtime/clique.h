/* runtime/clique.h -- who talks to whom: groups of a program's collectives, and the communicators of a platform.
 *
 * A *grouping* is a rule that gives every place (replica, partition) of a program its group; collectives with the same
 * groups share one.  A *clique* is one group of devices in its order; a platform keeps a communicator for each of its
 * devices in it, made when a program that needs it is first launched, and made anew after it has failed. */
#ifndef WEFT_RUNTIME_CLIQUE_H
#define WEFT_RUNTIME_CLIQUE_H

#include "hlo/hlo.h"
#include "runtime/device.h"
#include "weft/collective.h"

/* How the ids in replica_groups and source_target_pairs are meant. */
typedef enum rt_group_mode {
  RT_CROSS_REPLICA,               /* no channel: replica ids; the same partition */
  RT_CROSS_PARTITION,             /* channel, and the operation knows no global ids: partition ids; the same replica */
  RT_CROSS_REPLICA_AND_PARTITION, /* channel: replica ids; all partitions of each */
  RT_FLATTENED_ID,                /* channel and use_global_device_ids: replica * partitions + partition */
} rt_group_mode;

WEFT_NODISCARD weft_status *rt_group_mode_of(const hlo_instr *instr, rt_group_mode *out_mode);

/* The groups of a program's collectives, by place = replica * partitions + partition. */
typedef struct rt_grouping {
  int64_t place_count;
  int *group_of;      /* by place: index into groups, -1 none */
  int *rank_of;       /* by place: position in its group */
  int group_count;
  hlo_ints *groups;   /* places, in rank order */
} rt_grouping;

/* Works out the groups of a collective; replica_groups in any form.  Everything is in `arena`.
 * Errors: INVALID_ARGUMENT for ids out of range, repeated, or missing where they must be given. */
WEFT_NODISCARD weft_status *rt_grouping_new(weft_arena *arena, const hlo_instr *instr, int64_t replicas,
                                            int64_t partitions, rt_grouping *out_grouping);
bool rt_grouping_equal(const rt_grouping *a, const rt_grouping *b);

/* ---- communicators ---- */

typedef struct rt_cliques rt_cliques; /* of a platform; thread-safe */
WEFT_NODISCARD weft_status *rt_cliques_new(weft_kv *kv, uint64_t incarnation, rt_cliques **out_cliques);
void rt_cliques_free(rt_cliques *cliques); /* no collective may be running */

/* The healthy communicator of `rank` in the clique of these devices (global ids in rank order; `is_local[i]` tells whose
 * process is this one); made if there is none.  Blocks for the rendezvous with other processes.
 * The communicator stays valid until it has failed and a later call replaces it. */
WEFT_NODISCARD weft_status *rt_cliques_get(rt_cliques *cliques, int size, const int64_t *device_ids,
                                           const bool *is_local, int rank, weft_deadline deadline, weft_comm **out_comm);

#endif
