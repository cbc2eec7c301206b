# src/gpu/abi: the binary interfaces of foreign libraries, in Weft's own words; headers only.
libweftcore_la_SOURCES += %D%/constants.h %D%/cuda.h %D%/entries.h
