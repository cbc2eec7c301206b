check_PROGRAMS += %D%/executor_test
%C%_executor_test_SOURCES = %D%/executor_test.c tests/test.h tests/alloc.h
%C%_executor_test_CFLAGS = $(TEST_CFLAGS)
%C%_executor_test_LDADD = $(TEST_LIBS)
%C%_executor_test_LDFLAGS = $(AM_LDFLAGS) $(WRAP_ALLOC)
