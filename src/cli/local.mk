bin_PROGRAMS += weft
weft_SOURCES = \
  %D%/cli.h %D%/cli_bench.c %D%/cli_coord.c %D%/cli_launch.c %D%/compare.c %D%/info.c %D%/inputs.c %D%/inspect.c \
  %D%/allocation.c %D%/job.c %D%/job.h %D%/job_secret.c %D%/job_secret.h %D%/main.c %D%/options.c %D%/options.h %D%/profile.c %D%/profile.h %D%/program.c %D%/program.h %D%/protection.c \
  %D%/progress.c %D%/progress.h %D%/report.c %D%/run.c %D%/run.h %D%/session.c %D%/session.h %D%/util.c \
  src/pjrt/plugin.c
weft_CFLAGS = $(AM_CFLAGS)
weft_LDFLAGS = $(AM_LDFLAGS) -Wl,--gc-sections
weft_LDADD = libweftcore.la $(INSIDE_LIBS)
