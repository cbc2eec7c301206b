/* cpu/collective.h -- collectives, send and recv as thunks. */
#ifndef WEFT_CPU_COLLECTIVE_H
#define WEFT_CPU_COLLECTIVE_H

#include "cpu/lower.h"
#include "runtime/grouping.h"

int64_t cpu_collective_scratch(const hlo_instr *instr);

/* Everything but `low` is borrowed for the program's life.  `grouping_index`: of the communicators in rt_run_info. */
WEFT_NODISCARD weft_status *cpu_collective_thunk_new(cpu_lowering *low, const rt_grouping *grouping, int grouping_index,
                                                     int64_t partitions, const char *executable, rt_thunk **out_thunk);

#endif
