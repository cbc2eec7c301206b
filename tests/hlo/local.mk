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
%C%_text_test_SOURCES = %D%/text_test.c tests/read_file.h tests/test.h
%C%_text_test_CFLAGS = $(TEST_CFLAGS)
%C%_text_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/eval_limit_test
%C%_eval_limit_test_SOURCES = %D%/eval_limit_test.c tests/test.h
%C%_eval_limit_test_CFLAGS = $(TEST_CFLAGS)
%C%_eval_limit_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/eval_collective_test
%C%_eval_collective_test_SOURCES = %D%/eval_collective_test.c tests/test.h
%C%_eval_collective_test_CFLAGS = $(TEST_CFLAGS)
%C%_eval_collective_test_LDADD = $(TEST_LIBS)
# Values that jaxlib computed: some in the tree, and anew where there is a jaxlib.
check_PROGRAMS += %D%/eval_golden_test
%C%_eval_golden_test_SOURCES = %D%/eval_golden_test.c %D%/golden.h tests/read_file.h
%C%_eval_golden_test_CFLAGS = $(TEST_CFLAGS)
TESTS += %D%/eval_golden.py
EXTRA_DIST += %D%/eval_golden.py %D%/eval_golden.txt
# What xla_cross_test.py drives.
noinst_PROGRAMS += %D%/hlo_convert
%C%_hlo_convert_SOURCES = %D%/hlo_convert.c
TESTS += %D%/xla_cross_test.py %D%/jax_dumps_test.py %D%/add_opcode_test.py
EXTRA_DIST += %D%/add_opcode_test.py %D%/xla_cross_test.py %D%/jax_dumps_test.py tests/data/hlo/async.hlo tests/data/hlo/collectives.hlo tests/data/hlo/constants.hlo \
  tests/data/hlo/control.hlo tests/data/hlo/elementwise.hlo tests/data/hlo/linear.hlo tests/data/hlo/movement.hlo \
  tests/data/hlo/reductions.hlo
check_PROGRAMS += %D%/proto_test
%C%_proto_test_SOURCES = %D%/proto_test.c tests/read_file.h tests/test.h
%C%_proto_test_CFLAGS = $(TEST_CFLAGS)
%C%_proto_test_LDADD = $(TEST_LIBS)
