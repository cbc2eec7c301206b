bin_PROGRAMS += weft
weft_SOURCES = \
  %D%/bind.c %D%/bind.h %D%/cli.h %D%/cli_bench.c %D%/cli_coord.c %D%/cli_launch.c %D%/compare.c %D%/compile.c %D%/compiled.c %D%/compiled.h %D%/diff.c %D%/diff.h %D%/environment.c %D%/environment.h %D%/frames.c %D%/frames.h %D%/hosts.c %D%/hosts.h %D%/json.c %D%/json.h %D%/limits.c %D%/limits.h %D%/info.c %D%/inputs.c %D%/inspect.c \
  %D%/allocation.c %D%/job.c %D%/job.h %D%/job_secret.c %D%/job_secret.h %D%/main.c %D%/node.c %D%/node.h %D%/options.c %D%/options.h %D%/output_files.c %D%/output_files.h %D%/package.c %D%/package.h %D%/page.c %D%/page.h %D%/passes.c %D%/passes.h %D%/profile.c %D%/profile.h %D%/program.c %D%/program.h %D%/protection.c \
  %D%/progress.c %D%/progress.h %D%/ptxas.c %D%/ptxas.h %D%/report.c %D%/run.c %D%/run.h %D%/session.c %D%/session.h %D%/spawn.c %D%/spawn.h %D%/target.c %D%/target.h %D%/timeout.c %D%/timeout.h %D%/util.c \
  src/pjrt/plugin.c
weft_CFLAGS = $(AM_CFLAGS)
weft_CPPFLAGS = $(AM_CPPFLAGS) -DWEFT_BINDIR='"$(bindir)"' -DWEFT_INCLUDEDIR='"$(includedir)"' -DWEFT_LIBDIR='"$(libdir)"'
weft_LDFLAGS = $(AM_LDFLAGS) -Wl,--gc-sections
weft_LDADD = libweftcore.la $(INSIDE_LIBS)

# The page of `weft inspect --html` as an array of bytes.
%D%/page_html.h: %D%/page.html
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN){ echo 'static const unsigned char page_html[] = {'; od -An -v -tu1 $< | sed 's/\([0-9]\)  */\1,/g; s/\([0-9]\)$$/\1,/'; echo '};'; } >$@.new && mv $@.new $@
BUILT_SOURCES += %D%/page_html.h
CLEANFILES += %D%/page_html.h
EXTRA_DIST += %D%/page.html
