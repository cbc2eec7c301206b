# src/coord: see README.md in this folder.
COORD_PROTOS = %D%/wire/coord_x.proto %D%/wire/coord_t.proto %D%/wire/coord_payload.proto %D%/wire/coord_admin.proto \
  %D%/wire/coord_topology.proto
COORD_PB_C = $(COORD_PROTOS:.proto=.pb-c.c)
COORD_PB_H = $(COORD_PROTOS:.proto=.pb-c.h)

%D%/wire/%.pb-c.c: %D%/wire/%.proto
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(PROTOC_C) --proto_path=$(<D) --c_out=$(@D) $<
$(COORD_PB_H): %.pb-c.h: %.pb-c.c
	@test -f $@

BUILT_SOURCES += $(COORD_PB_H)
CLEANFILES += $(COORD_PB_C) $(COORD_PB_H)
EXTRA_DIST += $(COORD_PROTOS) %D%/README.md docs/coordination.md docs/measured/coordination.md docs/measured/coordination.svg
nodist_libweftjob_la_SOURCES += \
  %D%/wire/coord_x.pb-c.c %D%/wire/coord_t.pb-c.c %D%/wire/coord_payload.pb-c.c %D%/wire/coord_admin.pb-c.c \
  %D%/wire/coord_topology.pb-c.c

pkginclude_HEADERS += include/weft/coord.h
libweftjob_la_SOURCES += \
  %D%/wire/text.c %D%/wire/text.h \
  %D%/wire/wire_status.c %D%/wire/wire_status.h \
  %D%/wire/blob.c %D%/wire/blob.h \
  %D%/wire/pool.c %D%/wire/pool.h \
  %D%/wire/h2.c %D%/wire/h2.h
libweftjob_la_SOURCES += \
  %D%/message.h \
  %D%/wire/codec.c %D%/wire/codec.h %D%/wire/codec_internal.h %D%/wire/codec_x.c %D%/wire/codec_t.c \
  %D%/kv_store.c %D%/kv_store.h \
  %D%/service.c %D%/service.h %D%/service_internal.h %D%/service_status.c \
  %D%/alive.c %D%/barrier.c %D%/identity.c %D%/service_kv.c
libweftjob_la_SOURCES += \
  %D%/options.c %D%/loop.c %D%/loop.h %D%/conn.c %D%/conn.h %D%/net.c %D%/hello.c %D%/hello.h %D%/server.c %D%/frontend.c %D%/frontend.h \
  %D%/trust.c %D%/trust.h %D%/peer_uid.c
libweftjob_la_SOURCES += \
  %D%/agent_core.c %D%/agent_core.h %D%/agent.c %D%/agent_calls.c %D%/agent_internal.h %D%/kv_callbacks.c
libweftjob_la_SOURCES += %D%/cluster.c %D%/topology.c %D%/preemption.c
