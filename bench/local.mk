# bench
EXTRA_PROGRAMS += bench/convolutions bench/kernels bench/dispatch bench/read bench/peak
bench_convolutions_SOURCES = bench/convolutions.c
bench_kernels_SOURCES = bench/kernels.c tests/read_file.h
bench_dispatch_SOURCES = bench/dispatch.c
bench_read_SOURCES = bench/read.c
bench_peak_SOURCES = bench/peak.c
EXTRA_DIST += bench/peers.py docs/measured/convolutions.md
EXTRA_DIST += docs/measured/peers.md docs/measured/peers.svg docs/measured/programs.md docs/measured/programs.svg docs/measured/programs-amx.md docs/measured/programs-amx.svg docs/measured/libraries.md docs/measured/libraries.svg docs/measured/temporaries.md docs/measured/temporaries.svg docs/measured/partitions.md docs/measured/partitions.svg
EXTRA_DIST += bench/gpu_census.sh bench/gpu_fallbacks.py bench/gpu_vs_xla.py bench/report.py bench/pages.sh bench/read.py bench/kernels.hlo bench/costs.py bench/suite.py bench/read_jaxlib.py bench/read_programs.py
EXTRA_DIST += bench/jax_bench.py bench/jax_programs.py bench/jax_programs_small.py bench/users.py bench/jax_partitions.py
noinst_PROGRAMS += bench/coord_bench
bench_coord_bench_SOURCES = bench/coord_bench.c
EXTRA_DIST += bench/coord_bench.py
EXTRA_DIST += bench/collectives_grid.py bench/collectives_simulated.py bench/collectives.sh bench/collectives_mpi.c bench/collectives_gloo.cc
EXTRA_PROGRAMS += bench/collectives_demo
bench_collectives_demo_SOURCES = bench/collectives_demo.c
EXTRA_DIST += bench/collectives_demo.sh
