# tests of src/hlo
check_PROGRAMS += %D%/ir_test
%C%_ir_test_SOURCES = %D%/ir_test.c tests/test.h
%C%_ir_test_CFLAGS = $(TEST_CFLAGS)
%C%_ir_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/infer_test
%C%_infer_test_SOURCES = %D%/infer_test.c tests/test.h
%C%_infer_test_CFLAGS = $(TEST_CFLAGS)
%C%_infer_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/text_test
%C%_text_test_SOURCES = %D%/text_test.c tests/test.h
%C%_text_test_CFLAGS = $(TEST_CFLAGS)
%C%_text_test_LDADD = $(TEST_LIBS)
