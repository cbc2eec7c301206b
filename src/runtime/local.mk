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

# The build that a file of machine code is bound to (saved.h), written anew when it changes.
%D%/build_id.h: $(SOURCES_OF_BUILD_ID)
	@$(MKDIR_P) $(@D)
	@printf '#define WEFT_BUILD_ID "%.16s"\n' "`cat $^ | sha256sum`" >$@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
BUILT_SOURCES += %D%/build_id.h
CLEANFILES += %D%/build_id.h
