# tests that play the stranger: see docs/adr/0005-authenticated-collectives.md
check_PROGRAMS += %D%/stranger_test
%C%_stranger_test_SOURCES = %D%/stranger_test.c %D%/job.h %D%/sanitized.h tests/test.h
%C%_stranger_test_CFLAGS = $(TEST_CFLAGS)
%C%_stranger_test_LDADD = $(TEST_LIBS)
SECURITY_PY_TESTS = %D%/coord_strangers_test.py %D%/coord_floods_test.py %D%/coord_memory_test.py %D%/coord_middle_test.py
TESTS += $(SECURITY_PY_TESTS)
EXTRA_DIST += $(SECURITY_PY_TESTS) %D%/coord_attacks.py
check_PROGRAMS += %D%/mitm_test
%C%_mitm_test_SOURCES = %D%/mitm_test.c %D%/sanitized.h tests/test.h
%C%_mitm_test_CFLAGS = $(TEST_CFLAGS)
%C%_mitm_test_LDADD = $(TEST_LIBS)
