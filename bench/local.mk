# bench
EXTRA_PROGRAMS = bench/kernels
bench_kernels_SOURCES = bench/kernels.c
EXTRA_DIST += bench/kernels.hlo
