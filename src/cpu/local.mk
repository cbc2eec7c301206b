libweftrun_la_SOURCES += \
  %D%/blas.c %D%/blas.h %D%/blocked.c %D%/blocked.h %D%/cholesky.c %D%/cholesky.h %D%/small_solve.c %D%/small_solve.h %D%/concatenate.c \
  %D%/conv.c %D%/conv.h %D%/conv_amx.c %D%/conv_amx.h %D%/conv_blocks.c %D%/conv_first.c %D%/conv_first.h %D%/conv_last.c %D%/conv_last.h %D%/conv_lines.c %D%/conv_lines.h %D%/conv_phases.c %D%/conv_phases.h %D%/conv_plane.c %D%/conv_plane.h %D%/conv_rows.c %D%/conv_rows.h %D%/conv_tiles.c %D%/conv_tiles.h %D%/conv_turned.c %D%/conv_turned.h \
  %D%/convert.c \
  %D%/cpu_internal.h \
  %D%/dot.c %D%/dot.h %D%/dot_parts.c %D%/dot_parts.h %D%/strip_groups.c %D%/strip_parts.c %D%/strip_parts.h %D%/strips.c %D%/transpose.c %D%/transpose.h \
  %D%/fft.c %D%/fft.h %D%/fft_lines.h \
  %D%/gemm.c %D%/gemm.h %D%/gemm_amx.c %D%/gemm_amx.h %D%/gemm_block.c %D%/gemm_block.h %D%/gemm_dense.c %D%/gemm_dense.h %D%/gemm_few.c %D%/gemm_few.h %D%/gemm_micro.h %D%/gemm_micro_loop.h %D%/gemm_pairs.c %D%/gemm_pairs.h %D%/gemm_turn.h %D%/gemm_lanes.c %D%/gemm_lanes.h %D%/gemm_vector.c %D%/gemm_vector.h %D%/gemm_vector_loops.h \
  %D%/gemm_complex.c %D%/gemm_complex.h %D%/gemm_tiny.c %D%/gemm_tiny.h %D%/hot.h \
  %D%/lapack.h %D%/library.c %D%/linalg.h \
  %D%/hwloc.c %D%/loader.c \
  %D%/makers.h %D%/onednn.h \
  %D%/perf_map.c \
  %D%/places.c %D%/places.h \
  %D%/platform.c %D%/platform.h \
  %D%/rng_state.c \
  %D%/scan.c %D%/scan.h %D%/scan_loops.h \
  %D%/sort.c %D%/sort.h %D%/sort_keys.h %D%/sort_plain.c %D%/sort_plain.h %D%/sort_vector.c %D%/sort_vector.h %D%/sort_vector_loops.h \
  %D%/target.c \
  %D%/thunks.c \
  %D%/topology.c %D%/topology.h
libweftcore_la_SOURCES += %D%/compiler.c
if HAVE_OPENBLAS
libweftrun_la_SOURCES += %D%/lapack.c %D%/linalg.c
else
libweftrun_la_SOURCES += %D%/without_blas.c
endif
if HAVE_ONEDNN
libweftrun_la_SOURCES += %D%/onednn.c
else
libweftrun_la_SOURCES += %D%/without_onednn.c
endif
