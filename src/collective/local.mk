# src/collective: see README.md in this folder.
pkginclude_HEADERS += include/weft/collective.h
EXTRA_DIST += docs/collectives.md docs/measured/collectives.md docs/measured/collectives-simulated.md
libweftjob_la_SOURCES += \
  %D%/address.c %D%/address.h %D%/bootstrap.c \
  %D%/bench.c %D%/bench.h \
  %D%/clique.c %D%/clique.h \
  %D%/comm.c \
  %D%/communicator.c %D%/communicator.h \
  %D%/context.c %D%/context.h \
  %D%/dial.c %D%/dial.h \
  %D%/diagnose.c %D%/diagnose.h \
  %D%/door.c %D%/door.h \
  %D%/ended.c %D%/ended.h \
  %D%/entrance.c %D%/entrance.h \
  %D%/inquiry.c %D%/inquiry.h \
  %D%/flight.c %D%/flight.h %D%/flight_ask.c %D%/flight_entry.h %D%/flight_join.c %D%/flight_text.c %D%/flight_text.h \
  %D%/frame.c %D%/frame.h \
  %D%/group.c %D%/internal.h \
  %D%/listener.c %D%/listener.h \
  %D%/mac.c %D%/mac.h \
  %D%/names.c \
  %D%/post.c \
  %D%/prepare.c %D%/prepare.h \
  %D%/progress.c %D%/progress.h \
  %D%/seal.c %D%/seal.h \
  %D%/settings.c %D%/settings.h \
  %D%/wait.c %D%/wait.h \
  %D%/host/control.c \
  %D%/host/direct.c %D%/host/direct.h \
  %D%/host/drive.c \
  %D%/host/ending.c %D%/host/ending.h \
  %D%/host/engine.c %D%/host/engine.h \
  %D%/host/host.c %D%/host/host.h \
  %D%/host/link.c %D%/host/link.h %D%/host/link_state.h \
  %D%/host/message.c %D%/host/p2p.c \
  %D%/host/problem.c \
  %D%/host/reduce.c %D%/host/reduce.h \
  %D%/host/schedule.c %D%/host/schedule.h \
  %D%/host/select.c %D%/host/select.h \
  %D%/host/simulate.c %D%/host/simulate.h \
  %D%/host/steps.c %D%/host/steps.h \
  %D%/transport/fault.c \
  %D%/transport/shm.c \
  %D%/transport/rows.h %D%/transport/stream.h \
  %D%/transport/transport.c %D%/transport/transport.h
if HAVE_LIBFABRIC
libweftjob_la_SOURCES += %D%/transport/fabric/fabric.c %D%/transport/fabric/library.c
else
libweftjob_la_SOURCES += %D%/transport/fabric/absent.c
endif
