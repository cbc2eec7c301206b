/* cpu/blocked.h -- triangular systems of real matrices that are larger than small_solve.h takes, for few right-hand
 * sides. */
#ifndef WEFT_CPU_BLOCKED_H
#define WEFT_CPU_BLOCKED_H

#include "cpu/small_solve.h"

/* Whether cpu_blocked_system_solve is meant for the system on this machine: for others OpenBLAS is faster. */
bool cpu_blocked_system_fits(const cpu_system *s);
/* Overwrites B, which lies in `x`, by X. False, with nothing written, without memory. */
bool cpu_blocked_system_solve(const cpu_system *s, const void *a, void *x);

#endif
