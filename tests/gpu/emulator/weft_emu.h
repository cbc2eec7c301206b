/* tests/gpu/emulator/weft_emu.h -- what the emulated driver tells a test beyond the driver's own interface.  The functions are symbols of
 * the emulator's libcuda.so.1; a test finds them by dlsym. */
#ifndef WEFT_EMU_H
#define WEFT_EMU_H

#include "ptx.h"

/* Reads the WEFT_EMU_* variables again and begins to count calls for WEFT_EMU_FAULTS anew.  Devices, their kind and their memory are
 * fixed by cuInit. */
void weft_emu_reset(void);
/* What the last kernel or module that failed said: kernel, block, thread, line, reason.  "" at first.  Valid until the next failure. */
const char *weft_emu_last_error(void);
/* Adds up what the launches of kernels of this name did; NULL: of all.  false: there was none. */
bool weft_emu_counters(const char *kernel, ptx_stats *out);
/* The number of allocations that are live; `text` lists the first of them. */
size_t weft_emu_leaks(char *text, size_t size);

#endif
