/* gpu/heritage.c -- communicators of NCCL that are kept for survivors (heritage.h). */
#include <config.h>

#include "gpu/heritage.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "collective/internal.h"

enum { MOST_WAIT_MS = 1000 };

struct gpu_heirloom {
  gpu_heirloom *next;
  const struct weft_platform *platform;
  uint64_t number;
  int size, count;
  int pending;      /* owners that have not said what they keep */
  bool offered;
  bool overdue;     /* somebody has waited for these owners in vain */
  int64_t *devices; /* [size] */
  int *ranks;       /* [count] of this process */
  wnc_comm *comms;  /* [count] */
};

static weft_mutex mu = WEFT_MUTEX_INITIALIZER; /* also guards all that is in the list */
static gpu_heirloom *offered_first WEFT_GUARDED_BY(mu);

static int64_t device_of(const weft_comm_spec *spec, int rank)
{
  return spec->device_ids ? spec->device_ids[rank] : rank;
}

gpu_heirloom *gpu_heirloom_new(const struct weft_platform *platform, const weft_comm_spec *spec)
{
  if (spec->rank_count == spec->size || !spec->name || spec->size < 3) return NULL;
  gpu_heirloom *h = calloc(1, sizeof *h);
  if (!h) return NULL;
  *h = (gpu_heirloom){.platform = platform,
                      .number = coll_hash_text(spec->name, 0x6e63636cu + (uint64_t)spec->size) | 1,
                      .size = spec->size,
                      .count = spec->rank_count,
                      .pending = spec->rank_count,
                      .devices = calloc((size_t)spec->size, sizeof *h->devices),
                      .ranks = calloc((size_t)spec->rank_count, sizeof *h->ranks),
                      .comms = calloc((size_t)spec->rank_count, sizeof *h->comms)};
  if (!h->devices || !h->ranks || !h->comms) {
    gpu_heirloom_free(h);
    return NULL;
  }
  for (int r = 0; r < h->size; r++) h->devices[r] = device_of(spec, r);
  for (int i = 0; i < h->count; i++) h->ranks[i] = spec->ranks[i];
  return h;
}

void gpu_heirloom_withdraw(gpu_heirloom *h)
{
  if (!h) return;
  weft_mutex_lock(&mu);
  for (gpu_heirloom **at = &offered_first; *at; at = &(*at)->next)
    if (*at == h) {
      *at = h->next;
      break;
    }
  h->offered = true; /* also if it was not: it is not offered after this */
  weft_mutex_unlock(&mu);
}

void gpu_heirloom_free(gpu_heirloom *h)
{
  if (!h) return;
  gpu_heirloom_withdraw(h);
  free(h->devices);
  free(h->ranks);
  free(h->comms);
  free(h);
}

void gpu_heirloom_offer(gpu_heirloom *h)
{
  if (!h) return;
  weft_mutex_lock(&mu);
  if (!h->offered) {
    h->next = offered_first;
    offered_first = h;
  }
  h->offered = true;
  weft_mutex_unlock(&mu);
}

void gpu_heirloom_keep(gpu_heirloom *h, int local, wnc_comm comm)
{
  weft_mutex_lock(&mu);
  h->comms[local] = comm;
  h->pending--;
  weft_mutex_unlock(&mu);
}

wnc_comm gpu_heirloom_reclaim(gpu_heirloom *h, int local)
{
  weft_mutex_lock(&mu);
  wnc_comm comm = h->comms[local];
  h->comms[local] = NULL;
  weft_mutex_unlock(&mu);
  return comm;
}

/* The local index of the rank in `h` that has the device; -1: it is not of this process. */
static int local_with(const gpu_heirloom *h, int64_t device)
{
  for (int i = 0; i < h->count; i++)
    if (h->devices[h->ranks[i]] == device) return i;
  return -1;
}

/* Are the ranks of `spec` some of those of `h`, in the same order?  left_out[h->size] (or NULL) receives the others. */
static bool is_part(const gpu_heirloom *h, const weft_comm_spec *spec, int *left_out)
{
  int rank = 0, left = 0;

  if (spec->size >= h->size) return false;
  for (int r = 0; r < h->size; r++) {
    if (rank < spec->size && h->devices[r] == device_of(spec, rank)) rank++;
    else if (left_out) left_out[left++] = r;
  }
  return rank == spec->size;
}

/* The newest one that fits, or NULL.  *out_pending: its owners have not all said what they keep.  One whose owners were
 * waited for in vain fits only once they have. */
static gpu_heirloom *find_locked(const struct weft_platform *platform, const weft_comm_spec *spec, bool *out_pending)
  WEFT_REQUIRES(mu)
{
  weft_mutex_assert_held(&mu);
  *out_pending = false;
  for (gpu_heirloom *h = offered_first; h; h = h->next) {
    bool whole = h->platform == platform && !(h->overdue && h->pending > 0) && is_part(h, spec, NULL);
    for (int i = 0; i < spec->rank_count && whole; i++) {
      int local = local_with(h, device_of(spec, spec->ranks[i]));
      whole = local >= 0 && (h->comms[local] || h->pending > 0);
    }
    if (!whole) continue;
    *out_pending = h->pending > 0;
    return h;
  }
  return NULL;
}

uint64_t gpu_heritage_find(const struct weft_platform *platform, const weft_comm_spec *spec)
{
  static const struct timespec nap = {.tv_nsec = 1000000};
  weft_deadline until = weft_deadline_after_ms(MOST_WAIT_MS);

  for (;;) {
    bool pending;
    weft_mutex_lock(&mu);
    gpu_heirloom *h = find_locked(platform, spec, &pending);
    uint64_t number = h ? h->number : 0;
    bool gives_up = pending && weft_deadline_passed(until);
    if (gives_up) h->overdue = true; /* an owner may be in a call of the library that never returns */
    weft_mutex_unlock(&mu);
    if (!pending) return number;
    if (gives_up) return 0;
    nanosleep(&nap, NULL);
  }
}

bool gpu_heritage_take(const struct weft_platform *platform, const weft_comm_spec *spec, uint64_t number, wnc_comm *out,
                       int **out_left_out, int *out_left_out_count)
{
  bool pending;

  *out_left_out = NULL;
  weft_mutex_lock(&mu);
  gpu_heirloom *h = find_locked(platform, spec, &pending);
  int *left_out = h && h->number == number && !pending ? calloc((size_t)h->size, sizeof *left_out) : NULL;
  if (left_out) {
    is_part(h, spec, left_out);
    *out_left_out = left_out;
    *out_left_out_count = h->size - spec->size;
    for (int i = 0; i < spec->rank_count; i++) {
      wnc_comm *at = &h->comms[local_with(h, device_of(spec, spec->ranks[i]))];
      out[i] = *at;
      *at = NULL;
    }
  }
  weft_mutex_unlock(&mu);
  return left_out != NULL;
}
