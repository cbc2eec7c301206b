/* collective/bench.h -- measures collectives, and tunes the algorithm table for a machine. */
#ifndef WEFT_COLLECTIVE_BENCH_H
#define WEFT_COLLECTIVE_BENCH_H

#include <stdint.h>

#include "base/status.h"

enum { COLL_BENCH_MOST_RANKS = 64 };

/* Where the ranks run: in threads of one process; in processes that share memory; in processes that talk through
 * libfabric. */
typedef enum coll_bench_how { COLL_BENCH_DEVICES, COLL_BENCH_SHM, COLL_BENCH_FABRIC } coll_bench_how;

typedef struct coll_bench_options {
  coll_bench_how how;
  int ranks;                    /* 1 to COLL_BENCH_MOST_RANKS */
  int64_t min_bytes, max_bytes; /* 4 to 4 GiB */
  const char *ops;              /* names with commas between them; NULL: all */
  double scale;                 /* factor of the number of iterations, above 0 */
  const char *tune;             /* measure every algorithm and write the table to this file; or NULL */
} coll_bench_options;

/* Errors: INVALID_ARGUMENT, naming the first name of the list that is no operation, and the names that are. */
WEFT_NODISCARD weft_status *coll_bench_check_ops(const char *ops);

/* Prints a line for each operation and size.  Forks the ranks, so the process must not have made a communicator before.
 * Returns 0, or 1 after saying on standard error what failed. */
int coll_bench_run(const coll_bench_options *options);
/* Prints what every algorithm costs on the simulated network, for 64 to 65536 ranks.  Returns what coll_bench_run
 * returns. */
int coll_bench_simulate(void);

#endif
