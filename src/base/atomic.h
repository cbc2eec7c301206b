/* base/atomic.h -- the atomic types of C11's <stdatomic.h>, also in C++.  There they are std::atomic types, which
 * have the same size, alignment and operations with gcc and clang. */
#ifndef WEFT_BASE_ATOMIC_H
#define WEFT_BASE_ATOMIC_H

#ifdef __cplusplus
#include <atomic>
using std::atomic_bool;
using std::atomic_int;
#else
#include <stdatomic.h>
#endif

#endif
