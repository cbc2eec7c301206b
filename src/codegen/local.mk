libweftcore_la_SOURCES += \
  %D%/codegen.h
