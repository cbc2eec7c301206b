# tests of src/hlo
check_PROGRAMS += %D%/ir_test
%C%_ir_test_SOURCES = %D%/ir_test.c tests/test.h
%C%_ir_test_CFLAGS = $(TEST_CFLAGS)
%C%_ir_test_LDADD = $(TEST_LIBS)
