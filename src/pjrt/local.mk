# src/pjrt: see README.md in this folder.
PJRT_PB_C = %D%/compile.pb-c.c
PJRT_PB_H = %D%/compile.pb-c.h
%D%/compile.pb-c.c: %D%/compile.proto
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(PROTOC_C) --proto_path=$(<D) --c_out=$(@D) $<
%D%/compile.pb-c.h: %D%/compile.pb-c.c
	@test -f $@
BUILT_SOURCES += $(PJRT_PB_H)
CLEANFILES += $(PJRT_PB_C) $(PJRT_PB_H)
EXTRA_DIST += %D%/compile.proto %D%/README.md
nodist_libweftcore_la_SOURCES += $(PJRT_PB_C)

pkginclude_HEADERS += include/weft/pjrt_extensions.h
libweftcore_la_SOURCES += \
  %D%/agent.c %D%/agent.h %D%/buffer.c %D%/check.c %D%/checks.def %D%/client.c %D%/cross_device.c %D%/cross_host.c %D%/cross_link.c %D%/cross_link.h %D%/custom_partitioner.c %D%/debug_options.def %D%/dump.c %D%/device.c %D%/error.c %D%/event.c %D%/executable.c %D%/execute.c \
  %D%/extensions.h %D%/ffi.c %D%/internal.h %D%/kv.c %D%/layouts.c %D%/memory_descriptions.c %D%/options.c %D%/platform.c %D%/profiler.c %D%/raw_buffer.c \
  %D%/serialize.c %D%/settings.c %D%/settings.h %D%/shardings.c \
  %D%/topology.c %D%/transfer.c \
  %D%/unimplemented.c

plugindir = $(libdir)/weft
plugin_LTLIBRARIES = pjrt_weft.la
pjrt_weft_la_SOURCES = %D%/plugin.c
pjrt_weft_la_LIBADD = libweftcore.la $(INSIDE_LIBS)
pjrt_weft_la_LDFLAGS = $(AM_LDFLAGS) -Wl,--gc-sections -Wl,-z,now -module -avoid-version -shared -export-symbols-regex '^GetPjrtApi$$'
