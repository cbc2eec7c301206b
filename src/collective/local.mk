# src/collective: see README.md in this folder.
pkginclude_HEADERS += include/weft/collective.h
libweftcore_la_SOURCES += \
  %D%/names.c \
  %D%/reduce.c %D%/reduce.h \
  %D%/schedule.c %D%/schedule.h \
  %D%/simulate.c %D%/simulate.h
