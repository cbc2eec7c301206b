# tests of src/cli
TESTS += %D%/help_test.sh
EXTRA_DIST += %D%/help_test.sh
TESTS += %D%/plugin_test.sh
EXTRA_DIST += %D%/plugin_test.sh
check_LTLIBRARIES += %D%/faulty_plugin.la
%C%_faulty_plugin_la_SOURCES = %D%/faulty_plugin.c
%C%_faulty_plugin_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere

TESTS += %D%/run_test.sh %D%/isa_test.sh
EXTRA_DIST += %D%/run_test.sh %D%/isa_test.sh %D%/programs
TESTS += %D%/output_test.sh
EXTRA_DIST += %D%/output_test.sh
TESTS += %D%/check_test.sh
EXTRA_DIST += %D%/check_test.sh
TESTS += %D%/compile_test.sh
EXTRA_DIST += %D%/compile_test.sh
check_PROGRAMS += %D%/bind_test
%C%_bind_test_SOURCES = %D%/bind_test.c src/cli/bind.c tests/test.h
%C%_bind_test_CFLAGS = $(TEST_CFLAGS)
%C%_bind_test_LDADD = $(TEST_LIBS)
