libweftcore_la_SOURCES += %D%/pass.h
