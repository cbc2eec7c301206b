# tests of src/collective
check_PROGRAMS += %D%/schedule_test
%C%_schedule_test_SOURCES = %D%/schedule_test.c tests/test.h
%C%_schedule_test_CFLAGS = $(TEST_CFLAGS)
%C%_schedule_test_LDADD = $(TEST_LIBS)
