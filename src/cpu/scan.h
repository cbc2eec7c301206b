/* cpu/scan.h -- cumulative sums, products, maxima and minima: reduce-windows whose windows are all prefixes (or
 * suffixes) of one dimension, as pass reduce-window-rewriter marks them (GEN_LIBRARY_SCAN). */
#ifndef WEFT_CPU_SCAN_H
#define WEFT_CPU_SCAN_H

#include "base/status.h"
#include "hlo/hlo.h"
#include "runtime/pool.h"

enum { CPU_SCAN_MOST_LEVELS = 24 };

typedef struct cpu_scan {
  weft_dtype type;
  int operation;           /* row of the table in scan.c */
  int64_t outer, n, inner; /* elements of the dimensions before the scanned one, of it, and of those behind it */
  bool is_reverse;
  int levels;              /* sums of blocks are scanned like elements, and so on: see scan.c */
  int64_t size[CPU_SCAN_MOST_LEVELS]; /* of a block, by level */
  int64_t blocks;          /* of level 0 in a row */
  int64_t scratch_bytes;   /* 0 unless all threads may share one row */
} cpu_scan;

/* Errors: UNIMPLEMENTED for what gen_library_scan (codegen/model/strategy.h) does not accept. */
WEFT_NODISCARD weft_status *cpu_scan_init(cpu_scan *s, const hlo_instr *instr);
/* `out` may be `in`. */
WEFT_NODISCARD weft_status *cpu_scan_run(const cpu_scan *s, rt_pool *pool, const void *in, const void *init, void *out,
                                         void *scratch);

#endif
