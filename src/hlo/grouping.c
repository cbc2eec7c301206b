/* hlo/grouping.c -- the groups of a program's collectives (grouping.h). */
#include <config.h>

#include "hlo/grouping.h"

#include <inttypes.h>
#include <string.h>

#include "hlo/sharding.h"

weft_status *hlo_group_mode_of(const hlo_instr *instr, hlo_group_mode *out_mode)
{
  const hlo_collective_attrs *c = instr->u.collective;
  bool channel = c->channel_id > 0;
  bool knows_global = false;

  switch (instr->op) {
  case HLO_ALL_REDUCE: case HLO_ALL_REDUCE_START: case HLO_ALL_GATHER: case HLO_ALL_GATHER_START:
  case HLO_REDUCE_SCATTER: knows_global = true; break;
  default: break;
  }
  if (!channel && c->use_global_device_ids)
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": use_global_device_ids needs a channel_id", instr->name);
  *out_mode = !channel                   ? HLO_CROSS_REPLICA
              : !knows_global            ? HLO_CROSS_PARTITION
              : c->use_global_device_ids ? HLO_FLATTENED_ID
                                         : HLO_CROSS_REPLICA_AND_PARTITION;
  return NULL;
}

typedef struct places {
  int64_t replicas, partitions;
  hlo_grouping *grouping;
  const hlo_instr *instr;
  int64_t *next; /* the places of the next group begin here */
} places;

/* In a program of one device XLA ignores ids of other devices: in an all-reduce, and in groups of one id. */
static bool may_be_absent(const places *p, int count)
{
  bool reduces = p->instr->op == HLO_ALL_REDUCE || p->instr->op == HLO_ALL_REDUCE_START;

  return p->grouping->place_count == 1 && (reduces || count == 1);
}

/* Adds the group with these ids (NULL: 0 to count - 1), which `mode` interprets.  `fixed` is the coordinate that the
 * ids leave open: the partition if they are replicas, the replica if they are partitions. */
static weft_status *add_group(places *p, hlo_group_mode mode, const int64_t *ids, int count, int64_t fixed)
{
  hlo_grouping *g = p->grouping;
  int64_t limit = mode == HLO_CROSS_PARTITION ? p->partitions : mode == HLO_FLATTENED_ID ? g->place_count : p->replicas;
  int64_t inner = mode == HLO_CROSS_REPLICA_AND_PARTITION ? p->partitions : 1, *first = p->next;

  for (int i = 0; i < count; i++) {
    int64_t id = ids ? ids[i] : i;
    if (id >= limit && may_be_absent(p, count)) continue;
    if (id < 0 || id >= limit)
      return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": id %" PRId64 " of replica_groups is not below %" PRId64,
                      p->instr->name, id, limit);
    for (int64_t k = 0; k < inner; k++) {
      int64_t place = mode == HLO_FLATTENED_ID      ? id
                      : mode == HLO_CROSS_PARTITION ? fixed * p->partitions + id
                      : mode == HLO_CROSS_REPLICA   ? id * p->partitions + fixed
                                                    : id * p->partitions + k;
      if (g->group_of[place] >= 0)
        return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": id %" PRId64 " is in two replica_groups", p->instr->name, id);
      g->group_of[place] = g->group_count;
      g->rank_of[place] = (int)(p->next - first);
      *p->next++ = place;
    }
  }
  if (p->next > first) g->groups[g->group_count++] = (hlo_ints){(int)(p->next - first), first};
  return NULL;
}

weft_status *hlo_grouping_new(weft_arena *arena, const hlo_instr *instr, int64_t replicas, int64_t partitions,
                              hlo_grouping *out)
{
  hlo_group_mode mode;
  hlo_replica_groups listed;
  places p = {.replicas = replicas, .partitions = partitions, .grouping = out, .instr = instr};
  bool permute = instr->op == HLO_COLLECTIVE_PERMUTE || instr->op == HLO_COLLECTIVE_PERMUTE_START ||
                 instr->op == HLO_SEND || instr->op == HLO_RECV; /* pairs may name any device: all form one group */

  *out = (hlo_grouping){.place_count = replicas * partitions};
  WEFT_TRY(hlo_group_mode_of(instr, &mode));
  WEFT_TRY_NOTE(hlo_groups_as_lists(arena, &instr->u.collective->groups, &listed), "\"%s\"", instr->name);
  int count = permute ? 0 : listed.group_count;
  const hlo_ints *groups = listed.groups;
  int64_t sets = mode == HLO_CROSS_REPLICA ? partitions : mode == HLO_CROSS_PARTITION ? replicas : 1;
  int64_t everybody = mode == HLO_CROSS_PARTITION ? partitions
                      : mode == HLO_FLATTENED_ID  ? replicas * partitions
                                                  : replicas;
  out->group_of = WEFT_ARENA_ARRAY(arena, int, out->place_count);
  out->rank_of = WEFT_ARENA_ARRAY(arena, int, out->place_count);
  out->groups = WEFT_ARENA_ARRAY(arena, hlo_ints, sets * WEFT_MAX(count, 1));
  p.next = WEFT_ARENA_ARRAY(arena, int64_t, out->place_count);
  if (!out->group_of || !out->rank_of || !out->groups || !p.next) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  memset(out->group_of, -1, (size_t)out->place_count * sizeof(int));
  if (count == 0 && mode == HLO_FLATTENED_ID && !permute)
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": global device ids need replica_groups", instr->name);
  for (int64_t fixed = 0; fixed < sets; fixed++) {
    if (count == 0) WEFT_TRY(add_group(&p, mode, NULL, (int)everybody, fixed));
    for (int i = 0; i < count; i++) WEFT_TRY(add_group(&p, mode, groups[i].v, groups[i].count, fixed));
  }
  return NULL;
}

bool hlo_grouping_equal(const hlo_grouping *a, const hlo_grouping *b)
{
  if (a->place_count != b->place_count || a->group_count != b->group_count || a->by_host != b->by_host) return false;
  for (int i = 0; i < a->group_count; i++)
    if (a->groups[i].count != b->groups[i].count ||
        memcmp(a->groups[i].v, b->groups[i].v, (size_t)a->groups[i].count * sizeof(int64_t)) != 0)
      return false;
  return true;
}
