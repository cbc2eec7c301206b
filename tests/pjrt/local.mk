check_PROGRAMS += %D%/abi_test
%C%_abi_test_SOURCES = %D%/abi_test.c %D%/abi_sizes.def tests/test.h
%C%_abi_test_CFLAGS = $(TEST_CFLAGS) -I$(srcdir)/%D%
%C%_abi_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/plugin_test
%C%_plugin_test_SOURCES = %D%/plugin_test.c %D%/client.h src/pjrt/plugin.c tests/test.h
%C%_plugin_test_CFLAGS = $(TEST_CFLAGS)
%C%_plugin_test_LDADD = $(TEST_LIBS)
