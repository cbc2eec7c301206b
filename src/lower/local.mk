libweftcore_la_SOURCES += \
  %D%/collective.c \
  %D%/feed.c \
  %D%/lower.c %D%/lower.h %D%/lower_internal.h \
  %D%/order.c \
  %D%/step.h
EXTRA_DIST += %D%/README.md
