# src/collective: see README.md in this folder.
pkginclude_HEADERS += include/weft/collective.h
EXTRA_DIST += docs/collectives.md
libweftjob_la_SOURCES += \
  %D%/address.h %D%/bootstrap.c \
  %D%/bench.c %D%/bench.h \
  %D%/clique.c %D%/clique.h \
  %D%/comm.c \
  %D%/context.c %D%/context.h \
  %D%/diagnose.c \
  %D%/door.c %D%/door.h \
  %D%/engine.c \
  %D%/fabric/fabric.c %D%/fabric/library.c %D%/fabric/fabric.h \
  %D%/fault.c \
  %D%/frame.c %D%/frame.h \
  %D%/flight.c %D%/flight.h \
  %D%/group.c %D%/internal.h \
  %D%/link.c %D%/link.h %D%/link_state.h %D%/message.c %D%/p2p.c \
  %D%/listener.c %D%/listener.h \
  %D%/local/direct.c \
  %D%/local/shm.c \
  %D%/mac.c %D%/mac.h \
  %D%/names.c \
  %D%/prepare.c %D%/prepare.h \
  %D%/reduce.c %D%/reduce.h \
  %D%/problem.c %D%/schedule.c %D%/schedule.h \
  %D%/seal.c %D%/seal.h \
  %D%/select.c %D%/select.h \
  %D%/settings.c %D%/settings.h \
  %D%/simulate.c %D%/simulate.h \
  %D%/stream.h
