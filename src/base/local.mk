libweftcore_la_SOURCES += \
  %D%/arena.c %D%/arena.h \
  %D%/deadline.c %D%/deadline.h \
  %D%/dtype.c %D%/dtype.def %D%/dtype.h \
  %D%/event.c %D%/event.h \
  %D%/kv.h %D%/kv_file.c %D%/kv_local.c %D%/kv_prefix.c \
  %D%/log.c %D%/log.h \
  %D%/macros.h \
  %D%/npy.c %D%/npy.h \
  %D%/options.c %D%/options.h \
  %D%/status.c %D%/status.h \
  %D%/thread.c %D%/thread.h
