libweftcore_la_SOURCES += \
  %D%/parallel.c %D%/parallel.h \
  %D%/registry.c %D%/registry.h
EXTRA_DIST += %D%/README.md
