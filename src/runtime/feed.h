/* runtime/feed.h -- a device's two queues to and from running programs: infeed and outfeed.
 * An item is the bytes of all leaves of one infeed or outfeed instruction, in order.  Items of the outfeed stay in the
 * queue until the device is freed: no interface of Weft reads them.  Threads: thread-safe. */
#ifndef WEFT_RUNTIME_FEED_H
#define WEFT_RUNTIME_FEED_H

#include "runtime/device.h"
#include "runtime/thunk.h"

/* Gives `device` an item; `data` is copied.
 * Errors: RESOURCE_EXHAUSTED if more than RT_FEED_BYTES would wait; FAILED_PRECONDITION after
 * weft_device_close_infeed. */
WEFT_NODISCARD weft_status *weft_device_infeed(weft_device *device, const void *data, int64_t bytes);
/* Declares that no more items will come: an infeed that finds the queue empty, now or later, fails with
 * FAILED_PRECONDITION. */
void weft_device_close_infeed(weft_device *device);

enum { RT_FEED_BYTES = 1 << 30 }; /* the most bytes that may wait in one queue */

/* ---- for the platforms ---- */

typedef struct rt_feed rt_feed;
WEFT_NODISCARD weft_status *rt_feed_new(rt_feed **out_feed);
void rt_feed_free(rt_feed *feed); /* NULL is fine */

/* The `start` of a thunk that takes an item: when there is one, fills the arguments [first, first + count) with it
 * and ends the thunk. Errors: FAILED_PRECONDITION if the queue is closed and empty; INVALID_ARGUMENT if the item has
 * another size. */
WEFT_NODISCARD weft_status *rt_feed_take(rt_feed *feed, const rt_thunk *thunk, rt_ctx *ctx, int first, int count);
/* Appends an item made of a thunk's arguments [0, count). Errors: RESOURCE_EXHAUSTED if more than RT_FEED_BYTES would
 * wait; FAILED_PRECONDITION if the queue is closed. */
WEFT_NODISCARD weft_status *rt_feed_put(rt_feed *feed, const rt_thunk *thunk, rt_ctx *ctx, int count);

/* The host's queue of channel `id`, made at the first request.
 * Errors: UNIMPLEMENTED on a platform whose host does not loop back. */
WEFT_NODISCARD weft_status *rt_channel_feed(weft_platform *platform, int64_t id, rt_feed **out_feed);
/* Declares that no more items will come: thunks that wait on a channel fail with FAILED_PRECONDITION. */
void rt_channels_close(weft_platform *platform);
void rt_channels_free(weft_platform *platform);

#endif
