libweftrun_la_SOURCES += \
  %D%/collective.c \
  %D%/custom_call.c \
  %D%/evaluate.c \
  %D%/feed.c \
  %D%/host_steps.h \
  %D%/lower.c %D%/lower.h %D%/lower_internal.h \
  %D%/order.c \
  %D%/print.c \
  %D%/step.h
EXTRA_DIST += %D%/README.md
