/* base/atomic.h -- C11's atomic types by their names in <stdatomic.h>, in C++ too, where they are std::atomic: the same size,
 * alignment and operations with gcc and clang. */
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
