/* tests/platform/deferred.h -- what tests may do to the streams of the deferred platform. */
#ifndef WEFT_TESTS_PLATFORM_DEFERRED_H
#define WEFT_TESTS_PLATFORM_DEFERRED_H

#include "runtime/device.h"

/* While `held`, one stream of `device`, or all of them, do nothing that is queued on them. */
void deferred_hold_one(weft_device *device, weft_stream_purpose purpose, bool held);
void deferred_hold(weft_device *device, bool held);

#endif
