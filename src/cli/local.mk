bin_PROGRAMS += weft
weft_SOURCES = \
  %D%/cli.h %D%/cli_coord.c %D%/cli_launch.c %D%/info.c %D%/inputs.c %D%/inspect.c %D%/main.c %D%/program.c %D%/program.h %D%/run.c %D%/util.c
weft_CFLAGS = $(AM_CFLAGS)
weft_LDADD = libweftcore.la
