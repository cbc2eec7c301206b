check_PROGRAMS += %D%/pipeline_test
%C%_pipeline_test_SOURCES = %D%/pipeline_test.c tests/test.h
%C%_pipeline_test_CFLAGS = $(TEST_CFLAGS)
%C%_pipeline_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/semantics_test
%C%_semantics_test_SOURCES = %D%/semantics_test.c %D%/eval_compare.h tests/test.h
%C%_semantics_test_CFLAGS = $(TEST_CFLAGS)
%C%_semantics_test_LDADD = $(TEST_LIBS)
