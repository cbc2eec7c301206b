check_PROGRAMS += %D%/pipeline_test
%C%_pipeline_test_SOURCES = %D%/pipeline_test.c tests/test.h
%C%_pipeline_test_CFLAGS = $(TEST_CFLAGS)
%C%_pipeline_test_LDADD = $(TEST_LIBS)
