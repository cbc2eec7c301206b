bin_PROGRAMS += weft
weft_SOURCES = %D%/cli.h %D%/cli_coord.c %D%/cli_launch.c %D%/info.c %D%/main.c %D%/util.c
weft_CFLAGS = $(AM_CFLAGS)
weft_LDADD = libweftcore.la
