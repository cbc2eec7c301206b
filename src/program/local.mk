# src/program: libweft_runtime's own functions (include/weft/program.h).
pkginclude_HEADERS += include/weft/program.h
libweftrun_la_SOURCES += %D%/program.c
