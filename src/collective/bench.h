/* collective/bench.h -- measures collectives, and tunes the algorithm table for a machine. */
#ifndef WEFT_COLLECTIVE_BENCH_H
#define WEFT_COLLECTIVE_BENCH_H

#include <stdint.h>

#include "base/status.h"

#include "collective/communicator.h"

enum { COLL_BENCH_MOST_RANKS = 64 };

/* Devices whose memory holds the ranks' arrays, and whose communicators move the data. */
typedef struct coll_bench_devices {
  const char *name; /* of the platform */
  /* Called once in each process that has ranks, before the others: the first `count` devices will be used.  Sets the
   * communicator of the spec. */
  weft_status *(*open)(void *ctx, int count, weft_comm_spec *spec);
  void (*close)(void *ctx); /* also if `open` failed or was not called */
  bool (*moves)(void *ctx, weft_coll_kind kind, weft_dtype dtype, weft_reduction reduction);
  weft_status *(*take)(void *ctx, int device, int64_t bytes, void **out_data);
  void (*give)(void *ctx, int device, void *data, int64_t bytes);
  weft_status *(*write)(void *ctx, int device, void *to, const void *host, int64_t bytes);
  weft_status *(*read)(void *ctx, int device, void *host, const void *from, int64_t bytes);
  void *ctx;
} coll_bench_devices;

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
  const coll_bench_devices *devices; /* rank r has device r; NULL: arrays in the host's memory */
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
