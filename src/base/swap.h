/* base/swap.h -- exchanging the values of two variables. */
#ifndef WEFT_BASE_SWAP_H
#define WEFT_BASE_SWAP_H

/* Exchanges the values of two lvalues of one type.  Each is evaluated twice. */
#define WEFT_SWAP(a, b)           \
  do {                            \
    __typeof__(a) swapped_ = (a); \
    (a) = (b);                    \
    (b) = swapped_;               \
  } while (0)

#endif
