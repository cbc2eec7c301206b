check_PROGRAMS += %D%/loop_test
%C%_loop_test_SOURCES = %D%/loop_test.c %D%/harness.c %D%/harness.h tests/test.h
%C%_loop_test_CFLAGS = $(TEST_CFLAGS)
%C%_loop_test_LDADD = $(TEST_LIBS)
