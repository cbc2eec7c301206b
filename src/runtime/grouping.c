#include <config.h>

#include "runtime/grouping.h"

#include <inttypes.h>
#include <string.h>

weft_status *rt_group_mode_of(const hlo_instr *instr, rt_group_mode *out_mode)
{
  const hlo_collective_attrs *c = instr->u.collective;
  bool channel = c->channel_id > 0;
  bool knows_global = false;

  switch (instr->op) {
  case HLO_ALL_REDUCE: case HLO_ALL_REDUCE_START: case HLO_ALL_GATHER: case HLO_ALL_GATHER_START: case HLO_REDUCE_SCATTER:
    knows_global = true;
    break;
  default: break;
  }
  if (!channel && c->use_global_device_ids)
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": use_global_device_ids needs a channel_id", instr->name);
  *out_mode = !channel ? RT_CROSS_REPLICA : !knows_global ? RT_CROSS_PARTITION
              : c->use_global_device_ids ? RT_FLATTENED_ID : RT_CROSS_REPLICA_AND_PARTITION;
  return NULL;
}

/* Row-major index arithmetic of the iota and mesh forms: element `at` of iota reshaped to dims, transposed by perm. */
static int64_t transposed_iota(const int64_t *dims, const int64_t *perm, int rank, int64_t at)
{
  int64_t strides[HLO_MAX_RANK], stride = 1, value = 0;

  for (int i = rank - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= dims[i];
  }
  for (int i = rank - 1; i >= 0; i--) {
    int64_t source = perm ? perm[i] : i;
    value += at % dims[source] * strides[source];
    at /= dims[source];
  }
  return value;
}

static weft_status *expand_iota(weft_arena *arena, const hlo_instr *instr, const hlo_replica_groups *g, int *out_count,
                                hlo_ints **out_groups)
{
  int64_t total = 1;
  hlo_ints *groups;
  int64_t *ids;

  if (g->reshape_dims.count > HLO_MAX_RANK || (g->transpose_perm.count && g->transpose_perm.count != g->reshape_dims.count))
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": replica_groups of rank %d", instr->name, g->reshape_dims.count);
  for (int i = 0; i < g->reshape_dims.count; i++)
    if (g->reshape_dims.v[i] < 1 || __builtin_mul_overflow(total, g->reshape_dims.v[i], &total) || total > 1 << 24)
      return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": replica_groups dimensions are absurd", instr->name);
  for (int i = 0; i < g->transpose_perm.count; i++)
    if (g->transpose_perm.v[i] < 0 || g->transpose_perm.v[i] >= g->reshape_dims.count)
      return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": replica_groups transpose out of range", instr->name);
  if (g->num_groups < 1 || g->group_size < 1 || g->num_groups > total || g->num_groups * g->group_size != total)
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": %" PRId64 " groups of %" PRId64 " are not %" PRId64 " ids", instr->name,
                    g->num_groups, g->group_size, total);
  groups = WEFT_ARENA_ARRAY(arena, hlo_ints, g->num_groups);
  ids = WEFT_ARENA_ARRAY(arena, int64_t, total);
  if (!groups || !ids) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int64_t i = 0; i < total; i++)
    ids[i] = transposed_iota(g->reshape_dims.v, g->transpose_perm.count ? g->transpose_perm.v : NULL,
                             g->reshape_dims.count, i);
  for (int64_t i = 0; i < g->num_groups; i++) groups[i] = (hlo_ints){(int)g->group_size, ids + i * g->group_size};
  *out_count = (int)g->num_groups;
  *out_groups = groups;
  return NULL;
}

/* Mesh form: the named axes, in their order, become the minor ones; rows of those are the groups.  A sub-axis cuts its
 * dimension n into [pre, size, n / (pre * size)]. */
static weft_status *expand_mesh(weft_arena *arena, const hlo_instr *instr, const hlo_replica_groups *g, int *out_count,
                                hlo_ints **out_groups)
{
  const hlo_mesh *mesh = g->mesh;
  int64_t dims[HLO_MAX_RANK], perm[HLO_MAX_RANK], total = 1, size = 1;
  int rank = 0, named = 0, order[HLO_MAX_RANK];
  hlo_ints *groups;
  int64_t *ids;

  for (int a = 0; a < mesh->axis_count; a++) { /* cut each axis where sub-axes begin and end */
    int64_t cuts[2 * HLO_MAX_RANK + 2], n = mesh->axes[a].size;
    int cut_count = 0;
    if (n < 1 || __builtin_mul_overflow(total, n, &total) || total > 1 << 24)
      return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": mesh axes are absurd", instr->name);
    cuts[cut_count++] = 1;
    cuts[cut_count++] = n;
    for (int r = 0; r < g->axis_count && cut_count + 2 <= 2 * HLO_MAX_RANK; r++) {
      const hlo_axis_ref *ref = &g->axes[r];
      if (strcmp(ref->name, mesh->axes[a].name) != 0 || ref->size == 0) continue;
      cuts[cut_count++] = ref->pre_size;
      cuts[cut_count++] = ref->pre_size * ref->size;
    }
    for (int i = 1; i < cut_count; i++) /* few: insertion sort */
      for (int k = i; k > 0 && cuts[k - 1] > cuts[k]; k--) {
        int64_t swap = cuts[k];
        cuts[k] = cuts[k - 1];
        cuts[k - 1] = swap;
      }
    for (int i = 1; i < cut_count; i++) {
      if (cuts[i] == cuts[i - 1]) continue;
      if (cuts[i - 1] < 1 || cuts[i] % cuts[i - 1] || n % cuts[i] || rank == HLO_MAX_RANK)
        return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": sub-axes of \"%s\" do not divide it", instr->name, mesh->axes[a].name);
      dims[rank] = cuts[i] / cuts[i - 1];
      order[rank] = -1;
      for (int r = 0; r < g->axis_count; r++) {
        const hlo_axis_ref *ref = &g->axes[r];
        int64_t low = ref->size ? ref->pre_size : 1, high = ref->size ? ref->pre_size * ref->size : n;
        if (strcmp(ref->name, mesh->axes[a].name) == 0 && cuts[i - 1] >= low && cuts[i] <= high) order[rank] = r;
      }
      rank++;
    }
  }
  for (int i = 0; i < rank; i++)
    if (order[i] < 0) perm[named++] = i;
  for (int r = 0; r < g->axis_count; r++)
    for (int i = 0; i < rank; i++)
      if (order[i] == r) {
        perm[named++] = i;
        size *= dims[i];
      }
  if (mesh->device_ids.count && mesh->device_ids.count != total)
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": the mesh has %d device ids for %" PRId64 " places", instr->name,
                    mesh->device_ids.count, total);
  groups = WEFT_ARENA_ARRAY(arena, hlo_ints, total / size);
  ids = WEFT_ARENA_ARRAY(arena, int64_t, total);
  if (!groups || !ids) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int64_t i = 0; i < total; i++) {
    int64_t at = transposed_iota(dims, perm, rank, i);
    ids[i] = mesh->device_ids.count ? mesh->device_ids.v[at] : at;
  }
  for (int64_t i = 0; i < total / size; i++) groups[i] = (hlo_ints){(int)size, ids + i * size};
  *out_count = (int)(total / size);
  *out_groups = groups;
  return NULL;
}

/* replica_groups of any form as lists; no groups: *out_count 0. */
static weft_status *list_groups(weft_arena *arena, const hlo_instr *instr, int *out_count, const hlo_ints **out_groups)
{
  const hlo_replica_groups *g = &instr->u.collective->groups;
  hlo_ints *expanded = NULL;
  weft_status *st = NULL;

  *out_count = g->group_count;
  *out_groups = g->groups;
  if (g->form == HLO_GROUPS_IOTA) st = expand_iota(arena, instr, g, out_count, &expanded);
  if (g->form == HLO_GROUPS_MESH) st = expand_mesh(arena, instr, g, out_count, &expanded);
  if (expanded) *out_groups = expanded;
  return st;
}

typedef struct places {
  int64_t replicas, partitions;
  rt_grouping *grouping;
  const hlo_instr *instr;
  int64_t *next; /* where the next group's places go */
} places;

/* A group of the program from ids of the mode, for the fixed coordinate that the mode leaves (replica or partition). */
static weft_status *add_group(places *p, rt_group_mode mode, const int64_t *ids, int count, int64_t fixed)
{
  rt_grouping *g = p->grouping;
  int64_t limit = mode == RT_CROSS_PARTITION ? p->partitions : mode == RT_FLATTENED_ID ? g->place_count : p->replicas;
  int64_t inner = mode == RT_CROSS_REPLICA_AND_PARTITION ? p->partitions : 1, *first = p->next;

  for (int i = 0; i < count; i++) {
    int64_t id = ids ? ids[i] : i;
    if (id < 0 || id >= limit)
      return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": id %" PRId64 " of replica_groups is not below %" PRId64, p->instr->name, id,
                      limit);
    for (int64_t k = 0; k < inner; k++) {
      int64_t place = mode == RT_FLATTENED_ID ? id : mode == RT_CROSS_PARTITION ? fixed * p->partitions + id
                      : mode == RT_CROSS_REPLICA ? id * p->partitions + fixed : id * p->partitions + k;
      if (g->group_of[place] >= 0)
        return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": id %" PRId64 " is in two replica_groups", p->instr->name, id);
      g->group_of[place] = g->group_count;
      g->rank_of[place] = (int)(p->next - first);
      *p->next++ = place;
    }
  }
  g->groups[g->group_count++] = (hlo_ints){(int)(p->next - first), first};
  return NULL;
}

weft_status *rt_grouping_new(weft_arena *arena, const hlo_instr *instr, int64_t replicas, int64_t partitions,
                             rt_grouping *out)
{
  rt_group_mode mode;
  int count;
  const hlo_ints *groups;
  places p = {.replicas = replicas, .partitions = partitions, .grouping = out, .instr = instr};
  bool permute = instr->op == HLO_COLLECTIVE_PERMUTE || instr->op == HLO_COLLECTIVE_PERMUTE_START ||
                 instr->op == HLO_SEND || instr->op == HLO_RECV; /* pairs name anybody: one group of all */

  *out = (rt_grouping){.place_count = replicas * partitions};
  WEFT_TRY(rt_group_mode_of(instr, &mode));
  WEFT_TRY(list_groups(arena, instr, &count, &groups));
  if (permute) count = 0;
  int64_t sets = mode == RT_CROSS_REPLICA ? partitions : mode == RT_CROSS_PARTITION ? replicas : 1;
  int64_t everybody = mode == RT_CROSS_PARTITION ? partitions : mode == RT_FLATTENED_ID ? replicas * partitions : replicas;
  out->group_of = WEFT_ARENA_ARRAY(arena, int, out->place_count);
  out->rank_of = WEFT_ARENA_ARRAY(arena, int, out->place_count);
  out->groups = WEFT_ARENA_ARRAY(arena, hlo_ints, sets * WEFT_MAX(count, 1));
  p.next = WEFT_ARENA_ARRAY(arena, int64_t, out->place_count);
  if (!out->group_of || !out->rank_of || !out->groups || !p.next) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  memset(out->group_of, -1, (size_t)out->place_count * sizeof(int));
  if (count == 0 && mode == RT_FLATTENED_ID && !permute)
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": global device ids need replica_groups", instr->name);
  for (int64_t fixed = 0; fixed < sets; fixed++) {
    if (count == 0) WEFT_TRY(add_group(&p, mode, NULL, (int)everybody, fixed));
    for (int i = 0; i < count; i++) WEFT_TRY(add_group(&p, mode, groups[i].v, groups[i].count, fixed));
  }
  return NULL;
}

bool rt_grouping_equal(const rt_grouping *a, const rt_grouping *b)
{
  if (a->place_count != b->place_count || a->group_count != b->group_count) return false;
  for (int i = 0; i < a->group_count; i++)
    if (a->groups[i].count != b->groups[i].count ||
        memcmp(a->groups[i].v, b->groups[i].v, (size_t)a->groups[i].count * sizeof(int64_t)) != 0) return false;
  return true;
}
