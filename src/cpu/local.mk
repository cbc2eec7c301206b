libweftcore_la_SOURCES += \
  %D%/compiler.c \
  %D%/cpu_internal.h \
  %D%/library.c \
  %D%/lower.h \
  %D%/platform.c %D%/platform.h \
  %D%/thunks.c \
  %D%/topology.c %D%/topology.h
