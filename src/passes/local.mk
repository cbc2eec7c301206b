libweftcore_la_SOURCES += \
  %D%/build.c %D%/build.h \
  %D%/call_inliner.c \
  %D%/dce.c \
  %D%/flatten.c \
  %D%/fusion.h \
  %D%/fusion_kind.c \
  %D%/map_inliner.c \
  %D%/no_ops.c \
  %D%/normalize_layouts.c \
  %D%/pass.c %D%/pass.h %D%/passes.h \
  %D%/pipeline_cpu.c \
  %D%/schedule.c \
  %D%/util.c %D%/util.h \
  %D%/wrap.c
