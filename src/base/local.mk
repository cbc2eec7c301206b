libweftjob_la_SOURCES += \
  %D%/arena.c %D%/arena.h \
  %D%/array.c %D%/array.h \
  %D%/atomic.h \
  %D%/child.c %D%/child.h \
  %D%/deadline.c %D%/deadline.h \
  %D%/dtype.c %D%/dtype.def %D%/dtype.h \
  %D%/event.c %D%/event.h \
  %D%/fd.c %D%/fd.h \
  %D%/guess.c %D%/guess.h %D%/hash.h \
  %D%/inet.c %D%/inet.h \
  %D%/kv.h %D%/kv_file.c %D%/kv_local.c %D%/kv_prefix.c \
  %D%/log.c %D%/log.h \
  %D%/machine.c %D%/machine.h \
  %D%/macros.h \
  %D%/npy.c %D%/npy.h \
  %D%/options.c %D%/options.h \
  %D%/quote.c %D%/quote.h \
  %D%/secret.c %D%/secret.h \
  %D%/status.c %D%/status.h \
  %D%/strangers.c %D%/strangers.h \
  %D%/svg.c %D%/svg.h \
  %D%/swap.h \
  %D%/thread.c %D%/thread.h \
  %D%/wire.c %D%/wire.h

# The build that machine code in files is bound to (runtime/saved.h, codegen/code/cache.h), written anew when it changes.
%D%/build_id.h: $(SOURCES_OF_BUILD_ID)
	@$(MKDIR_P) $(@D)
	@printf '#define WEFT_BUILD_ID "%.16s"\n' "`cat $^ | sha256sum`" >$@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
BUILT_SOURCES += %D%/build_id.h
CLEANFILES += %D%/build_id.h

# what the public headers include: <weft/collective.h> says "base/status.h", and weft.pc has -I.../weft
weftbasedir = $(pkgincludedir)/base
weftbase_HEADERS = %D%/atomic.h %D%/deadline.h %D%/dtype.def %D%/dtype.h %D%/event.h %D%/kv.h %D%/macros.h %D%/options.h %D%/status.h
