check_PROGRAMS += %D%/loop_test
%C%_loop_test_SOURCES = %D%/loop_test.c %D%/harness.c %D%/harness.h tests/test.h
%C%_loop_test_CFLAGS = $(TEST_CFLAGS)
%C%_loop_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/update_test
%C%_update_test_SOURCES = %D%/update_test.c %D%/harness.c %D%/harness.h tests/test.h
%C%_update_test_CFLAGS = $(TEST_CFLAGS)
%C%_update_test_LDADD = $(TEST_LIBS)
