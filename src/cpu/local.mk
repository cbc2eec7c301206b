libweftcore_la_SOURCES += %D%/lower.h
