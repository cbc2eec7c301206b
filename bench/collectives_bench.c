/* bench/collectives_bench.c -- `weft bench collectives` as a program of its own; bench/collectives.sh runs it beside
 * Gloo and Open MPI. */
#include <config.h>

#include "collective/bench.h"

int main(int argc, char **argv) { return cli_bench_collectives_main(argc, argv); }
