libweftrun_la_SOURCES += \
  %D%/buffer.c %D%/buffer.h \
  %D%/catch_up.c \
  %D%/constants.c %D%/constants.h \
  %D%/device.c %D%/device.h \
  %D%/executable.c %D%/executable.h \
  %D%/executor.c \
  %D%/feed.c %D%/feed.h \
  %D%/host_copies.c %D%/host_copies.h \
  %D%/ffi.c %D%/ffi.h %D%/ffi_attrs.c \
  %D%/lender.c %D%/lender.h \
  %D%/numa.c %D%/numa.h \
  %D%/packed.c %D%/packed.h \
  %D%/platform.c %D%/platform.h \
  %D%/pool.c %D%/pool.h \
  %D%/program.c %D%/program.h %D%/program_internal.h \
  %D%/runtime_internal.h \
  %D%/saved.c %D%/saved.h \
  %D%/thunk.h \
  %D%/steps.h \
  %D%/stream.c %D%/stream.h \
  %D%/stretch.c \
  %D%/targets.c %D%/targets.h \
  %D%/trace.c %D%/trace.h \
  %D%/trace_signals.c %D%/trace_signals.h \
  %D%/transfer.c \
  %D%/untyped.c %D%/untyped.h
pkginclude_HEADERS += include/weft/xla_ffi.h
