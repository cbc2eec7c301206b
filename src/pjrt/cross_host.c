/* pjrt/cross_host.c -- the CrossHostTransfers extension: buffers from a device of one process to a device of
 * another.
 *
 * Each ordered pair of devices has a *link*: a communicator of the two, made at the first transfer and kept. A
 * transfer's key is the tag of one send and one receive, so transfers of a pair need no order. A send starts when
 * its buffer is defined. A receive starts at once, into memory that is allocated before the call returns. Both have
 * the time limit of collectives. If a link has failed, the next transfer makes a new one, and the transfers on the
 * failed link keep it until they end. */
#include <config.h>

#include <stdlib.h>

#include "collective/clique.h"
#include "collective/settings.h"
#include "pjrt/extensions.h"

typedef struct pjrt_link {
  struct pjrt_link *next;
  int refs;                /* atomic: the client's list, and transfers */
  int64_t devices[2];      /* from, to */
  coll_clique_hold *hold;
  weft_event *ready;
} pjrt_link;

static void link_release(pjrt_link *l)
{
  /* acq_rel: all transfers have ended before their communicator goes */
  if (!l || __atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
  coll_clique_hold_release(l->hold);
  weft_event_release(l->ready);
  free(l);
}
WEFT_DEFINE_AUTO(pjrt_link, link_release)

void pjrt_links_free(PJRT_Client *client)
{
  for (pjrt_link *l = client->links, *next; l; l = next) {
    next = l->next;
    link_release(l);
  }
}

static weft_comm *comm_of(const pjrt_link *l, int rank) { return coll_clique_hold_comm(l->hold, 0, rank); }

static bool has_failed(const pjrt_link *l, int rank)
{
  weft_status *st;
  bool failed;

  if (!weft_event_is_ready(l->ready)) return false;
  if (weft_event_error(l->ready)) return true;
  st = weft_comm_health(comm_of(l, rank));
  failed = st;
  weft_status_free(st);
  return failed;
}

static weft_status *link_new(PJRT_Client *client, int64_t from, int64_t to, pjrt_link **out)
{
  WEFT_AUTO(pjrt_link) l = calloc(1, sizeof *l);
  coll_clique_request request = {.key = {.size = 2, .purpose = COLL_FOR_TRANSFERS}};
  int ranks[2];

  WEFT_TRY_ALLOC(l);
  l->refs = 1;
  l->devices[0] = from;
  l->devices[1] = to;
  for (int r = 0; r < 2; r++)
    if (weft_platform_device_by_id(client->platform, l->devices[r])) ranks[request.local_count++] = r;
  request.key.devices = l->devices;
  request.local_ranks = ranks;
  WEFT_TRY(coll_cliques_acquire(weft_platform_cliques(client->platform), &request, 1,
                                weft_deadline_after_ns(coll_settings_get()->connect_ns), &l->hold, &l->ready));
  *out = WEFT_MOVE(l);
  return NULL;
}

/* Takes a reference to the pair's link; a missing or failed link is made anew. `rank` is this side's: 0 sends. */
static weft_status *get_link(PJRT_Client *client, int64_t from, int64_t to, int rank, pjrt_link **out)
{
  pjrt_link **at = &client->links, *failed = NULL;
  weft_status *st = NULL;

  weft_mutex_lock(&client->mu);
  while (*at && ((*at)->devices[0] != from || (*at)->devices[1] != to)) at = &(*at)->next;
  if (*at && has_failed(*at, rank)) {
    failed = *at;
    *at = failed->next;
  }
  if (failed || !*at) {
    pjrt_link *made = NULL;
    st = link_new(client, from, to, &made);
    if (made) {
      made->next = client->links;
      client->links = made;
      at = &client->links;
    }
  }
  if (!st) {
    *out = *at;
    __atomic_add_fetch(&(*out)->refs, 1, __ATOMIC_RELAXED); /* the list's reference keeps it alive */
  }
  weft_mutex_unlock(&client->mu);
  link_release(failed);
  return st;
}

/* ---- one transfer ---- */

typedef struct transfer {
  pjrt_link *link;       /* a reference */
  weft_buffer *buffer;   /* a send: an alias, since the client may delete its own buffer; NULL: a receive */
  weft_storage *storage; /* retained: it has the bytes */
  weft_event *done, *operation;
  weft_dtype type;
  int64_t elems;
  uint64_t key;
  int waiting;           /* atomic: events to come, of the link and of a send's buffer */
  weft_event_waiter link_waiter, buffer_waiter, operation_waiter;
} transfer;

static void end_transfer(void *ctx, const weft_status *error)
{
  transfer *t = ctx;

  weft_event_set(t->done, weft_status_dup(error));
  weft_event_release(t->done);
  weft_event_release(t->operation);
  weft_storage_release(t->storage);
  weft_buffer_release(t->buffer);
  link_release(t->link);
  free(t);
}

static void *host_address(const weft_storage *storage)
{
  return weft_device_host_address(weft_storage_device(storage), weft_storage_data(storage));
}

/* Starts the transfer: its events are ready. If the buffer of a send is an error, the peer would wait in vain, so
 * the communicator is aborted. */
static weft_status *start(transfer *t)
{
  const weft_status *unlinked = weft_event_error(t->link->ready);
  weft_comm *comm = unlinked ? NULL : comm_of(t->link, t->buffer ? 0 : 1);
  weft_coll_call call = {.site = {.executable = "cross-host transfer"}};
  weft_coll_op op = {.kind = t->buffer ? WEFT_SEND : WEFT_RECV, .dtype = t->type, .count = (size_t)t->elems,
                     .peer = t->buffer ? 1 : 0, .source = -1, .target = -1, .tag = t->key};
  weft_status *st = unlinked ? weft_status_dup(unlinked) : NULL;

  if (!st && t->buffer) {
    st = weft_buffer_storage(t->buffer, &t->storage);
    if (st) weft_comm_abort(comm, weft_status_dup(st));
  }
  if (!st && t->storage && !host_address(t->storage)) {
    st = WEFT_ERR(UNIMPLEMENTED, "cross-host transfers of memory that has no address on the host");
    weft_comm_abort(comm, weft_status_dup(st));
  }
  if (st) return st;
  if (t->storage) *(t->buffer ? (void **)&op.send : &op.recv) = host_address(t->storage);
  return weft_coll_post(comm, &op, &call, &t->operation);
}

static void one_is_there(void *ctx, const weft_status *error)
{
  transfer *t = ctx;
  weft_status *st;

  (void)error; /* start looks at it */
  /* acq_rel: the last event sees what came with the first */
  if (__atomic_sub_fetch(&t->waiting, 1, __ATOMIC_ACQ_REL) != 0) return;
  st = start(t);
  if (!st) {
    weft_event_on_ready_slot(t->operation, &t->operation_waiter, end_transfer, t);
    return;
  }
  end_transfer(t, st);
  weft_status_free(st);
}

/* Takes `link` on success. `done` is retained; end_transfer sets it. */
static weft_status *transfer_new(pjrt_link *link, const weft_array_type *type, int64_t key, weft_event *done,
                                 transfer **out)
{
  transfer *t = calloc(1, sizeof *t);

  WEFT_TRY_ALLOC(t);
  t->link = link;
  t->done = weft_event_retain(done);
  t->type = type->type;
  t->elems = weft_array_bytes(type) / (int64_t)weft_dtype_bytes(type->type);
  t->key = (uint64_t)key;
  *out = t;
  return NULL;
}

static weft_status *peer_of(PJRT_Client *client, int id, const PJRT_Device **out)
{
  *out = pjrt_client_device(client, id);
  return *out ? NULL : WEFT_ERR(INVALID_ARGUMENT, "there is no device %d to transfer with", id);
}

static weft_status *send_one(PJRT_Client *client, PJRT_Buffer *buffer, int to, int64_t key, PJRT_Event **out_event)
{
  WEFT_AUTO(pjrt_link) link = NULL;
  WEFT_AUTO(weft_event) done = NULL;
  WEFT_AUTO(weft_buffer) alias = NULL;
  const PJRT_Device *peer;
  transfer *t;

  WEFT_TRY(pjrt_check_handle(buffer, PJRT_KIND_BUFFER, "a buffer to send"));
  if (weft_buffer_is_deleted(buffer->buffer)) return WEFT_ERR(INVALID_ARGUMENT, "Buffer has been deleted or donated.");
  WEFT_TRY(peer_of(client, to, &peer));
  WEFT_TRY(weft_buffer_alias(buffer->buffer, weft_buffer_type(buffer->buffer), &alias));
  WEFT_TRY(get_link(client, buffer->device->description.id, to, 0, &link));
  WEFT_TRY(weft_event_new(&done));
  WEFT_TRY(transfer_new(link, weft_buffer_type(buffer->buffer), key, done, &t));
  link = NULL; /* the transfer's now */
  t->buffer = WEFT_MOVE(alias);
  t->waiting = 2;
  weft_event_on_ready_slot(t->link->ready, &t->link_waiter, one_is_there, t);
  weft_event_on_ready_slot(weft_buffer_defined(t->buffer), &t->buffer_waiter, one_is_there, t);
  return pjrt_event_new(WEFT_MOVE(done), out_event);
}

static weft_status *receive_one(const pjrt_placement *at, int from, int64_t key, PJRT_Buffer **out_buffer)
{
  PJRT_Client *client = at->device->client;
  WEFT_AUTO(pjrt_link) link = NULL;
  WEFT_AUTO(weft_event) done = NULL;
  const PJRT_Device *peer;
  transfer *t;

  WEFT_TRY(peer_of(client, from, &peer));
  WEFT_TRY(get_link(client, from, at->device->description.id, 1, &link));
  WEFT_TRY(weft_event_new(&done));
  WEFT_TRY(transfer_new(link, &at->type, key, done, &t));
  link = NULL;
  weft_status *st = pjrt_buffer_allocate(at, done, out_buffer, &t->storage);
  if (st) {
    end_transfer(t, st);
    return st;
  }
  t->waiting = 1;
  weft_event_on_ready_slot(t->link->ready, &t->link_waiter, one_is_there, t);
  return NULL;
}

/* ---- the extension ---- */

static PJRT_Error *send_buffers(PJRT_Transfers_CrossHostSendBuffers_Args *args)
{
  PJRT_TRY(pjrt_check_handle(args->client, PJRT_KIND_CLIENT, "client"));
  for (size_t i = 0; i < args->num_buffers; i++) {
    weft_status *st = send_one(args->client, args->buffers[i], args->dst_global_device_ids[i], args->transfer_keys[i],
                               &args->send_events[i]);
    if (!st) continue;
    while (i > 0) /* the sends before this one are under way, but their events are not handed out */
      pjrt_Event_Destroy(
        &(PJRT_Event_Destroy_Args){.struct_size = sizeof(PJRT_Event_Destroy_Args), .event = args->send_events[--i]});
    return pjrt_error(st);
  }
  return NULL;
}

static PJRT_Error *receive_buffers(PJRT_Transfers_CrossHostReceiveBuffers_Args *args)
{
  PJRT_TRY(pjrt_check_handle(args->device, PJRT_KIND_DEVICE, "device"));
  for (size_t i = 0; i < args->num_shapes; i++) {
    pjrt_placement at;
    weft_status *st = pjrt_place(args->device, NULL, args->element_types[i], args->dims[i], args->shape_num_dims[i],
                                 args->layouts ? args->layouts[i] : NULL, &at);
    if (!st) st = receive_one(&at, args->src_global_device_ids[i], args->transfer_keys[i], &args->buffers[i]);
    if (!st) continue;
    while (i > 0)
      pjrt_Buffer_Destroy(
        &(PJRT_Buffer_Destroy_Args){.struct_size = sizeof(PJRT_Buffer_Destroy_Args), .buffer = args->buffers[--i]});
    return pjrt_error(st);
  }
  return NULL;
}

static PJRT_Error *make_receive_buffers(PJRT_Transfers_MakeCrossHostReceiveBuffers_Args *args)
{
  (void)args;
  return pjrt_error(WEFT_ERR(UNIMPLEMENTED, "cross-host transfers by descriptors; Weft has those by keys"));
}

static void copy_to_remote_device(PJRT_Transfers_CopyToRemoteDevice_Args *args)
{
  if (args->on_done.on_done)
    args->on_done.on_done(
      pjrt_error(WEFT_ERR(UNIMPLEMENTED, "cross-host transfers by descriptors; Weft has those by keys")), false,
      args->on_done.user_arg);
  if (args->descriptor_destructor)
    args->descriptor_destructor(args->serialized_descriptor, args->serialized_descriptor_size);
  pjrt_Event_Destroy(&(PJRT_Event_Destroy_Args){.struct_size = sizeof(PJRT_Event_Destroy_Args), .event = args->event});
}

PJRT_CrossHostTransfers_Extension pjrt_cross_host_extension = {
    .base = {.struct_size = sizeof(PJRT_CrossHostTransfers_Extension), .type = PJRT_Extension_Type_CrossHostTransfers},
    .make_cross_host_receive_buffers = make_receive_buffers,
    .copy_to_remote_device = copy_to_remote_device,
    .cross_host_receive_buffers = receive_buffers,
    .cross_host_send_buffers = send_buffers};
