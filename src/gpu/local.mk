libweftcore_la_SOURCES += \
  %D%/assemble.c %D%/assemble.h \
  %D%/blas.c %D%/blas.h \
  %D%/collective_memory.c %D%/collective_memory.h \
  %D%/communicator.c %D%/communicator.h \
  %D%/compiler.c \
  %D%/conditions.c %D%/conditions.h \
  %D%/device.c \
  %D%/dnn.c %D%/dnn.h \
  %D%/driver.c %D%/driver.h \
  %D%/fft.c %D%/fft.h \
  %D%/gpu_internal.h \
  %D%/graph.c \
  %D%/heritage.c %D%/heritage.h \
  %D%/host_linalg.c \
  %D%/host_numbers.h \
  %D%/host_sparse.c \
  %D%/jobs.c %D%/jobs.h \
  %D%/kept.c %D%/kept.h \
  %D%/kernel.c %D%/kernel.h \
  %D%/libraries.c %D%/libraries.h \
  %D%/library.c %D%/library.h \
  %D%/linalg_steps.c \
  %D%/makers.c %D%/makers.h \
  %D%/memory.c \
  %D%/multicast.c %D%/multicast.h \
  %D%/nccl.c %D%/nccl.h %D%/nccl_calls.c %D%/nccl_calls.h \
  %D%/numa.c %D%/numa.h \
  %D%/peer.c %D%/peer.h %D%/peer_ptx.c %D%/peer_ptx.h \
  %D%/platform.c %D%/platform.h \
  %D%/recording.c %D%/recording.h \
  %D%/solver.c %D%/solver.h \
  %D%/steps.c %D%/steps.h \
  %D%/stream.c \
  %D%/table.c %D%/table.h \
  %D%/talk.c %D%/talk.h \
  %D%/thunks.c \
  %D%/times.c %D%/times.h \
  %D%/triangular.c %D%/triangular.h
EXTRA_DIST += %D%/README.md
