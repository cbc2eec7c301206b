check_PROGRAMS += %D%/run_test
%C%_run_test_SOURCES = %D%/run_test.c %D%/run.h tests/test.h
%C%_run_test_CFLAGS = $(TEST_CFLAGS)
%C%_run_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/kernels_test
%C%_kernels_test_SOURCES = %D%/kernels_test.c tests/test.h
%C%_kernels_test_CFLAGS = $(TEST_CFLAGS)
%C%_kernels_test_LDADD = $(TEST_LIBS)
