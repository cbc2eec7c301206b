# tests of src/stablehlo
check_PROGRAMS += %D%/conformance_test
%C%_conformance_test_SOURCES = %D%/conformance_test.c %D%/conformance_reasons.h tests/test.h
%C%_conformance_test_CFLAGS = $(TEST_CFLAGS)
%C%_conformance_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/bytecode_test
%C%_bytecode_test_SOURCES = %D%/bytecode_test.c tests/test.h
%C%_bytecode_test_CFLAGS = $(TEST_CFLAGS)
%C%_bytecode_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/text_test
%C%_text_test_SOURCES = %D%/text_test.c tests/test.h
%C%_text_test_CFLAGS = $(TEST_CFLAGS)
%C%_text_test_LDADD = $(TEST_LIBS)
