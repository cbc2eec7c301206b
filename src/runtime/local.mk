libweftcore_la_SOURCES += %D%/buffer.h %D%/device.h %D%/executable.h %D%/platform.h %D%/pool.h %D%/thunk.h
