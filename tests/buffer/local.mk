check_PROGRAMS += %D%/plan_test
%C%_plan_test_SOURCES = %D%/plan_test.c tests/test.h
%C%_plan_test_CFLAGS = $(TEST_CFLAGS)
%C%_plan_test_LDADD = $(TEST_LIBS)
