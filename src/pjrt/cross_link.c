/* pjrt/cross_link.c -- links between the devices of two processes: finding, making, failing and dropping them.
 *
 * If a link has failed, the next transfer makes a new one.  The transfers on the failed link keep it until they end. */
#include <config.h>

#include "pjrt/cross_link.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/settings.h"

enum { ON_HOST, ON_DEVICE, LEAVE_MS = 5000, LOOK_US = 500 };

pjrt_link *pjrt_link_retain(pjrt_link *link)
{
  __atomic_add_fetch(&link->refs, 1, __ATOMIC_RELAXED); /* the caller's reference keeps it alive */
  return link;
}

void pjrt_link_release(pjrt_link *l) WEFT_UNSHARED
{
  /* acq_rel: all transfers have ended before their communicators go */
  if (!l || __atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  coll_clique_hold_release(l->hold);
  weft_event_release(l->ready);
  weft_status_free(l->failure);
  weft_mutex_fini(&l->mu);
  free(l);
}

void pjrt_link_give_back(pjrt_link *link, weft_buffer *buffer, weft_storage *storage)
{
  pjrt_link_release(link);
  if (buffer) weft_buffer_end_read(buffer);
  weft_buffer_release(buffer);
  weft_storage_release(storage);
}

weft_comm *pjrt_link_host(const pjrt_link *link, int rank) { return coll_clique_hold_comm(link->hold, ON_HOST, rank); }
weft_comm *pjrt_link_device(const pjrt_link *link, int rank)
{
  return coll_clique_hold_comm(link->hold, ON_DEVICE, rank);
}

/* ---- turns ---- */

static bool is_failing(const pjrt_link *l) { return __atomic_load_n(&l->failing, __ATOMIC_ACQUIRE); }

/* Takes the turn that can begin; of a link that fails, any turn; NULL: there is none. */
static pjrt_turn *next_turn_locked(pjrt_link *l) WEFT_REQUIRES(l->mu)
{
  weft_mutex_assert_held(&l->mu);
  for (pjrt_turn **at = &l->turns; *at; at = &(*at)->next) {
    pjrt_turn *turn = *at;
    if (turn->number != l->next_turn && !is_failing(l)) continue;
    *at = turn->next;
    return turn;
  }
  return NULL;
}

/* One thread at a time lets turns begin: a turn that begins may call back, and other threads leave their turns to this
 * thread. */
static void take_turns(pjrt_link *l)
{
  pjrt_turn *turn;

  weft_mutex_lock(&l->mu);
  while (!l->beginning && (turn = next_turn_locked(l))) {
    l->beginning = true;
    weft_mutex_unlock(&l->mu);
    turn->begin(turn, is_failing(l) ? WEFT_ERR(ABORTED, "another transfer between the two devices failed") : NULL);
    weft_mutex_lock(&l->mu);
    l->next_turn++;
    l->beginning = false;
  }
  weft_mutex_unlock(&l->mu);
}

void pjrt_link_queue(pjrt_link *l, pjrt_turn *turn, bool numbered)
{
  pjrt_link_retain(l); /* the turn's reference to the link may be released meanwhile */
  weft_mutex_lock(&l->mu);
  if (!numbered) turn->number = l->next_number++;
  turn->next = l->turns;
  l->turns = turn;
  weft_mutex_unlock(&l->mu);
  take_turns(l);
  pjrt_link_release(l);
}

/* ---- failing ---- */

/* The ranks that this process has. */
static bool is_here(const pjrt_link *l, int rank)
{
  return weft_platform_device_by_id(l->platform, l->devices[rank]) != NULL;
}

/* On a worker, because an abort waits until the device has given the operations back. */
static void fail(rt_job *job)
{
  pjrt_link *l = WEFT_CONTAINER_OF(job, pjrt_link, fail_job);

  for (int r = 0; r < 2; r++) {
    if (!is_here(l, r) || weft_event_error(l->ready)) continue;
    weft_comm_abort(pjrt_link_host(l, r), weft_status_dup(l->failure));
    if (l->on_device) weft_comm_abort(pjrt_link_device(l, r), weft_status_dup(l->failure));
  }
  take_turns(l);
  weft_platform *platform = l->platform;
  pjrt_link_release(l);
  weft_platform_release(platform);
}

void pjrt_link_fail(pjrt_link *l, weft_status *st)
{
  if (!weft_event_is_ready(l->ready) || __atomic_exchange_n(&l->failing, true, __ATOMIC_ACQ_REL)) { /* fails once */
    weft_status_free(st);
    return;
  }
  l->failure = st;
  l->fail_job = (rt_job){.run = fail};
  /* the transfers that keep the platform may end first, and a client waits only for the links of its list */
  weft_platform *platform = weft_platform_retain(pjrt_link_retain(l)->platform);
  rt_pool_offer(weft_platform_pool(platform), &l->fail_job, 1);
}

static bool is_spent(weft_comm *comm)
{
  weft_status *st = weft_comm_health(comm);
  bool spent = st != NULL;

  weft_status_free(st);
  return spent;
}

static bool has_failed(const pjrt_link *l, int rank)
{
  if (!weft_event_is_ready(l->ready)) return false;
  if (weft_event_error(l->ready) || is_failing(l)) return true;
  return is_spent(pjrt_link_host(l, rank)) || (l->on_device && is_spent(pjrt_link_device(l, rank)));
}

/* ---- making ---- */

/* True if the platform's communicator can move the data.  Both processes must give the same answer. */
static bool is_on_device(PJRT_Client *client, int local_count)
{
  return local_count == 1 && weft_platform_moves(client->platform, WEFT_SEND, WEFT_U8, WEFT_REDUCE_NONE);
}

static weft_status *link_new(PJRT_Client *client, int64_t from, int64_t to, const uint64_t *incarnations,
                             pjrt_link **out) WEFT_UNSHARED
{
  WEFT_AUTO(pjrt_link) l = calloc(1, sizeof *l);
  coll_clique_request request = {.key = {.size = 2, .purpose = COLL_FOR_TRANSFERS}}, both[2];
  int ranks[2];

  WEFT_TRY_ALLOC(l);
  l->refs = 1;
  l->platform = client->platform;
  weft_mutex_init(&l->mu);
  l->devices[0] = from;
  l->devices[1] = to;
  memcpy(l->incarnations, incarnations, sizeof l->incarnations);
  for (int r = 0; r < 2; r++)
    if (is_here(l, r)) ranks[request.local_count++] = r;
  l->on_device = is_on_device(client, request.local_count);
  request.key.devices = l->devices;
  if (incarnations[0] && incarnations[1]) request.key.incarnations = l->incarnations;
  request.local_ranks = ranks;
  both[ON_HOST] = both[ON_DEVICE] = request;
  both[ON_DEVICE].key.purpose = COLL_FOR_DEVICE_TRANSFERS;
  WEFT_TRY(coll_cliques_acquire(weft_platform_cliques(client->platform), both, 1 + l->on_device,
                                weft_deadline_after_ns(coll_settings_get()->connect_ns), &l->hold, &l->ready));
  *out = WEFT_MOVE(l);
  return NULL;
}

/* The incarnations of the two devices' processes, where all processes of the job know them alike: their agents do. */
static void find_incarnations(PJRT_Client *client, int64_t from, int64_t to, uint64_t *out)
{
  const int64_t devices[2] = {from, to};

  weft_mutex_lock(&client->mu);
  out[0] = out[1] = 0;
  for (int i = 0; client->agent && i < 2; i++) {
    const PJRT_Device *device = pjrt_client_device(client, (int)devices[i]);
    if (device) out[i] = client->incarnations[device->description.process_index];
  }
  weft_mutex_unlock(&client->mu);
}

weft_status *pjrt_link_get(PJRT_Client *client, int64_t from, int64_t to, int rank, pjrt_link **out_link)
{
  pjrt_link *old = NULL;
  uint64_t incarnations[2];
  weft_status *st = NULL;

  weft_mutex_lock(&client->links_mu);
  pjrt_link **at = &client->links;
  find_incarnations(client, from, to, incarnations);
  while (*at && ((*at)->devices[0] != from || (*at)->devices[1] != to)) at = &(*at)->next;
  if (*at && (has_failed(*at, rank) || memcmp((*at)->incarnations, incarnations, sizeof incarnations) != 0)) {
    old = *at;
    *at = old->next;
  }
  if (old || !*at) {
    pjrt_link *made = NULL;
    st = link_new(client, from, to, incarnations, &made);
    if (made) {
      made->next = client->links;
      client->links = made;
      at = &client->links;
    }
  }
  if (!st) *out_link = pjrt_link_retain(*at);
  weft_mutex_unlock(&client->links_mu);
  pjrt_link_release(old);
  return st;
}

/* Transfers that are under way end with an error.  A send whose buffer has no bytes yet goes on by itself. */
void pjrt_links_free(PJRT_Client *client) WEFT_UNSHARED
{
  weft_deadline until = weft_deadline_after_ms(LEAVE_MS);

  for (pjrt_link *l = client->links; l; l = l->next)
    if (__atomic_load_n(&l->refs, __ATOMIC_ACQUIRE) > 1) /* pairs with the release of a transfer */
      pjrt_link_fail(l, WEFT_ERR(CANCELLED, "the client has been destroyed"));
  for (pjrt_link *l = client->links, *next; l; l = next) {
    next = l->next;
    while (__atomic_load_n(&l->refs, __ATOMIC_ACQUIRE) > 1 && weft_event_is_ready(l->ready) &&
           !weft_deadline_passed(until))
      usleep(LOOK_US);
    pjrt_link_release(l);
  }
}
