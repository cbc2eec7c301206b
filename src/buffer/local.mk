libweftrun_la_SOURCES += \
  %D%/check.c \
  %D%/deps.c \
  %D%/draw.c \
  %D%/flow.c %D%/flow.h \
  %D%/hazard.c %D%/hazard.h \
  %D%/place.c \
  %D%/plan.c %D%/plan.h %D%/plan_internal.h
