/* tests/gpu/emulator/weft_emu.h -- functions of the emulated driver for tests, beyond the driver's own interface.
 * They are symbols of the emulator's libcuda.so.1; a test finds them by dlsym. */
#ifndef WEFT_EMU_H
#define WEFT_EMU_H

#include "ptx.h"

/* Reads the WEFT_EMU_* variables again, and counts calls for WEFT_EMU_FAULTS from the beginning.  Devices, their
 * kind and their memory are fixed by cuInit. */
void weft_emu_reset(void);
/* Bytes of the blocks in which the emulator keeps what it never frees, to notice uses after the end. */
size_t weft_emu_kept_bytes(void);
/* Injects these faults, as WEFT_EMU_FAULTS has them, in the place of those before, and counts calls from the beginning.
 * Other threads may be in calls. */
void weft_emu_faults(const char *text);
/* The error of the last kernel or module that failed: kernel, block, thread, line, reason.  "" at first.  Valid
 * until the next failure. */
const char *weft_emu_last_error(void);
/* Fills *out with the sums over the launches of kernels of this name; NULL: of all kernels.  false: there was no
 * launch. */
bool weft_emu_counters(const char *kernel, ptx_stats *out);
/* The number of faults of WEFT_EMU_FAULTS whose call has not come yet. */
size_t weft_emu_faults_left(void);
/* The number of calls of this entry point, by its symbol, since the first call of this function; NULL: of all. */
uint64_t weft_emu_calls(const char *call);
/* Returns the number of live allocations, graphs and instances of graphs; `text` lists the first of them. */
size_t weft_emu_leaks(char *text, size_t size);

#endif
