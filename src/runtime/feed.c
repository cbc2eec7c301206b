/* runtime/feed.c -- a device's two queues to and from running programs (feed.h). */
#include <config.h>

#include "runtime/feed.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/runtime_internal.h"

typedef struct item {
  struct item *next;
  int64_t bytes;
  char data[];
} item;

/* A thunk that found the queue empty; the waiter lies in the thunk's rt_thunk_state. */
typedef struct waiter {
  struct waiter *next;
  const rt_thunk *thunk;
  rt_ctx *ctx;
  int first, count;
} waiter;
_Static_assert(sizeof(waiter) <= sizeof(rt_thunk_state), "a waiter fits");

struct rt_feed {
  weft_mutex mu; /* a leaf */
  item *first WEFT_GUARDED_BY(mu);
  item *last WEFT_GUARDED_BY(mu);
  waiter *waiting WEFT_GUARDED_BY(mu); /* only while there is no item */
  waiter *last_waiting WEFT_GUARDED_BY(mu);
  int64_t bytes WEFT_GUARDED_BY(mu);
  bool closed WEFT_GUARDED_BY(mu);
};

weft_status *rt_feed_new(rt_feed **out_feed)
{
  *out_feed = calloc(1, sizeof **out_feed);
  WEFT_TRY_ALLOC(*out_feed);
  weft_mutex_init(&(*out_feed)->mu);
  return NULL;
}

void rt_feed_free(rt_feed *feed) WEFT_UNSHARED
{
  if (!feed) return;
  for (item *i = feed->first, *next; i; i = next) {
    next = i->next;
    free(i);
  }
  weft_mutex_fini(&feed->mu);
  free(feed);
}

static int64_t bytes_of(const rt_thunk *thunk, int first, int count)
{
  int64_t bytes = 0;
  for (int i = first; i < first + count; i++) bytes += thunk->uses[i].slice.bytes;
  return bytes;
}

/* Copies the item into the thunk's arguments [first, first + count). */
static weft_status *deliver(const rt_thunk *thunk, rt_ctx *ctx, int first, int count, const char *data, int64_t bytes)
{
  void *const *args = rt_args(thunk, ctx);
  int64_t want = bytes_of(thunk, first, count);

  if (bytes != want)
    return WEFT_ERR(INVALID_ARGUMENT, "%s takes %lld bytes, the next item has %lld", thunk->name, (long long)want,
                    (long long)bytes);
  for (int i = first; i < first + count; i++) {
    WEFT_TRY(weft_device_write(ctx->info->device, NULL, args[i], data, thunk->uses[i].slice.bytes));
    data += thunk->uses[i].slice.bytes;
  }
  return NULL;
}

static waiter *pop_waiter_locked(rt_feed *feed) WEFT_REQUIRES(feed->mu);
static waiter *pop_waiter_locked(rt_feed *feed)
{
  weft_mutex_assert_held(&feed->mu);
  waiter *w = feed->waiting;
  if (w) feed->waiting = w->next;
  return w;
}

/* Appends an item (owned by the queue from then on), or hands it to a waiting thunk. */
static weft_status *push(rt_feed *feed, item *new_item)
{
  weft_status *st = NULL;
  waiter *w = NULL;

  weft_mutex_lock(&feed->mu);
  if (feed->closed) st = WEFT_ERR(FAILED_PRECONDITION, "the queue is closed");
  else if (feed->bytes + new_item->bytes > RT_FEED_BYTES)
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "%lld bytes wait in the queue already", (long long)feed->bytes);
  else if (!(w = pop_waiter_locked(feed))) {
    *(feed->first ? &feed->last->next : &feed->first) = new_item;
    feed->last = new_item;
    feed->bytes += new_item->bytes;
  }
  weft_mutex_unlock(&feed->mu);
  if (w)
    rt_thunk_done(w->thunk, w->ctx, deliver(w->thunk, w->ctx, w->first, w->count, new_item->data, new_item->bytes));
  if (st || w) free(new_item);
  return st;
}

static item *pop_locked(rt_feed *feed) WEFT_REQUIRES(feed->mu);
static item *pop_locked(rt_feed *feed)
{
  weft_mutex_assert_held(&feed->mu);
  item *i = feed->first;
  if (i) {
    feed->first = i->next;
    feed->bytes -= i->bytes;
  }
  return i;
}

weft_status *rt_feed_take(rt_feed *feed, const rt_thunk *thunk, rt_ctx *ctx, int first, int count)
{
  waiter *w = (waiter *)&ctx->states[thunk->index];
  bool closed;

  weft_mutex_lock(&feed->mu);
  item *i = pop_locked(feed);
  closed = feed->closed;
  if (!i && !closed) {
    *w = (waiter){.thunk = thunk, .ctx = ctx, .first = first, .count = count};
    *(feed->waiting ? &feed->last_waiting->next : &feed->waiting) = w;
    feed->last_waiting = w;
  }
  weft_mutex_unlock(&feed->mu);
  if (!i) return closed ? WEFT_ERR(FAILED_PRECONDITION, "%s: nothing was fed", thunk->name) : NULL;
  weft_status *st = deliver(thunk, ctx, first, count, i->data, i->bytes);
  free(i);
  if (!st) rt_thunk_done(thunk, ctx, NULL);
  return st;
}

weft_status *rt_feed_put(rt_feed *feed, const rt_thunk *thunk, rt_ctx *ctx, int count)
{
  void *const *args = rt_args(thunk, ctx);
  int64_t bytes = bytes_of(thunk, 0, count), at = 0;
  item *i = calloc(1, sizeof *i + (size_t)bytes);
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(i);
  i->bytes = bytes;
  for (int k = 0; k < count && !st; k++) {
    st = weft_device_read(ctx->info->device, NULL, i->data + at, args[k], thunk->uses[k].slice.bytes);
    at += thunk->uses[k].slice.bytes;
  }
  if (!st) return push(feed, i);
  free(i);
  return st;
}

weft_status *weft_device_infeed(weft_device *device, const void *data, int64_t bytes)
{
  item *i = calloc(1, sizeof *i + (size_t)bytes);

  WEFT_TRY_ALLOC(i);
  i->bytes = bytes;
  if (bytes > 0) memcpy(i->data, data, (size_t)bytes);
  return push(device->infeed, i);
}

static void close_feed(rt_feed *feed)
{
  weft_mutex_lock(&feed->mu);
  feed->closed = true;
  waiter *w = feed->waiting;
  feed->waiting = NULL;
  weft_mutex_unlock(&feed->mu);
  for (waiter *next; w; w = next) {
    next = w->next;
    rt_thunk_done(w->thunk, w->ctx, WEFT_ERR(FAILED_PRECONDITION, "%s: nothing was fed", w->thunk->name));
  }
}

void weft_device_close_infeed(weft_device *device) { close_feed(device->infeed); }

/* ---- channels of the host -------------------------------------------------------------------------------------- */

typedef struct rt_channel {
  struct rt_channel *next;
  int64_t id;
  rt_feed *feed;
} rt_channel;

static weft_status *find_channel_locked(weft_platform *platform, int64_t id, rt_feed **out_feed)
  WEFT_REQUIRES(platform->channels_mu);
static weft_status *find_channel_locked(weft_platform *platform, int64_t id, rt_feed **out_feed)
{
  weft_mutex_assert_held(&platform->channels_mu);
  rt_channel *channel = platform->channels;

  while (channel && channel->id != id) channel = channel->next;
  if (!channel) {
    channel = calloc(1, sizeof *channel);
    WEFT_TRY_ALLOC(channel);
    *channel = (rt_channel){.next = platform->channels, .id = id};
    platform->channels = channel; /* linked before it has a feed, so that it is freed in any case */
  }
  if (!channel->feed) WEFT_TRY(rt_feed_new(&channel->feed));
  *out_feed = channel->feed;
  return NULL;
}

weft_status *rt_channel_feed(weft_platform *platform, int64_t id, rt_feed **out_feed)
{
  if (!platform->host_loops_back) return WEFT_ERR(UNIMPLEMENTED, "transfers to the host");
  weft_mutex_lock(&platform->channels_mu);
  weft_status *st = find_channel_locked(platform, id, out_feed);
  weft_mutex_unlock(&platform->channels_mu);
  return st;
}

void rt_channels_close(weft_platform *platform)
{
  weft_mutex_lock(&platform->channels_mu);
  rt_channel *channel = platform->channels; /* the list grows only at its head */
  weft_mutex_unlock(&platform->channels_mu);
  for (; channel; channel = channel->next)
    if (channel->feed) close_feed(channel->feed);
}

void rt_channels_free(weft_platform *platform) WEFT_UNSHARED
{
  for (rt_channel *channel = platform->channels, *next; channel; channel = next) {
    next = channel->next;
    rt_feed_free(channel->feed);
    free(channel);
  }
}
