/* tests/platform/deferred.h -- what tests may do to the streams of the deferred platform. */
#ifndef WEFT_TESTS_PLATFORM_DEFERRED_H
#define WEFT_TESTS_PLATFORM_DEFERRED_H

#include "runtime/device.h"

/* While `held`, the streams of `device` take up nothing that is queued on them. */
void deferred_hold(weft_device *device, bool held);

#endif
