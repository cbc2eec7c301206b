/* collective/bench.h -- measures collectives, and tunes the algorithm table for a machine. */
#ifndef WEFT_COLLECTIVE_BENCH_H
#define WEFT_COLLECTIVE_BENCH_H

/* `weft bench collectives`: argv[0] is ignored; --help lists the options.  Forks the ranks, so the process must not
 * have made a communicator before.  Returns the exit status. */
int cli_bench_collectives_main(int argc, char **argv);

#endif
