libweftcore_la_SOURCES += %D%/plan.h
