# tests/gpu: the emulated GPU (emulator/README.md) and what is tested on it.
# Where NVIDIA's toolkit is: only abi_test looks for its header, and skips where there is none.
GPU_TOOLKIT = /usr/local/cuda
check_PROGRAMS += %D%/abi_test
%C%_abi_test_SOURCES = %D%/abi_test.c tests/test.h
%C%_abi_test_CFLAGS = $(TEST_CFLAGS) -Wno-deprecated-declarations -DWEFT_CUDA_HEADER='"$(GPU_TOOLKIT)/include/cuda.h"' \
  -DWEFT_CUDA_STUB='"$(GPU_TOOLKIT)/lib64/stubs/libcuda.so"'
%C%_abi_test_LDADD = $(TEST_LIBS)

# The emulator: a convenience library that tests link, and the shared library that stands for the driver (never installed).
GPU_EMULATOR_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -frounding-math
check_LTLIBRARIES += %D%/libemulator.la
%C%_libemulator_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_libemulator_la_SOURCES = \
  %D%/emulator/barrier.c %D%/emulator/compare.c %D%/emulator/convert.c %D%/emulator/grid.c %D%/emulator/internal.h \
  %D%/emulator/lanes_bits.c %D%/emulator/lanes_float.c %D%/emulator/lanes_int.c %D%/emulator/lex.c %D%/emulator/lex.h \
  %D%/emulator/matrix.c %D%/emulator/memory.c %D%/emulator/module.c %D%/emulator/move.c %D%/emulator/numbers.c \
  %D%/emulator/numbers.h %D%/emulator/parse.h %D%/emulator/ptx.h %D%/emulator/races.c %D%/emulator/statement.c \
  %D%/emulator/tables.h %D%/emulator/warp.c
EXTRA_DIST += %D%/emulator/README.md
check_PROGRAMS += %D%/ptx_test
%C%_ptx_test_SOURCES = %D%/ptx_test.c %D%/ptx_run.h tests/test.h
%C%_ptx_test_CFLAGS = $(TEST_CFLAGS) -ffp-contract=off -frounding-math
%C%_ptx_test_LDADD = %D%/libemulator.la $(TEST_LIBS) -lm
# libcuda.so.1, where programs and Weft find the driver; -rpath makes it a shared library although it is not installed.
check_LTLIBRARIES += %D%/emulator/libcuda.la
%C%_emulator_libcuda_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_emulator_libcuda_la_SOURCES = %D%/emulator/code.c %D%/emulator/copy.c %D%/emulator/device.c %D%/emulator/driver.h %D%/emulator/faults.c \
  %D%/emulator/graph.c %D%/emulator/heap.c %D%/emulator/pool.c %D%/emulator/queue.c %D%/emulator/settings.c %D%/emulator/weft_emu.h
%C%_emulator_libcuda_la_LIBADD = %D%/libemulator.la -lm -lpthread
%C%_emulator_libcuda_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 1:0:0
check_PROGRAMS += %D%/driver_test
%C%_driver_test_SOURCES = %D%/driver_test.c %D%/driver.h tests/test.h
%C%_driver_test_CFLAGS = $(TEST_CFLAGS)
%C%_driver_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_driver_test_DEPENDENCIES = %D%/emulator/libcuda.la
check_PROGRAMS += %D%/nvptx_test
%C%_nvptx_test_SOURCES = %D%/nvptx_test.c %D%/ptx_run.h tests/test.h
%C%_nvptx_test_CFLAGS = $(TEST_CFLAGS)
%C%_nvptx_test_LDADD = %D%/libemulator.la $(TEST_LIBS) -lm
check_PROGRAMS += %D%/kernels_test
%C%_kernels_test_SOURCES = %D%/kernels_test.c %D%/ptx_run.h tests/codegen/harness.c tests/codegen/harness.h tests/random_program.h \
  tests/passes/eval_compare.h tests/test.h
%C%_kernels_test_CFLAGS = $(TEST_CFLAGS)
%C%_kernels_test_LDADD = %D%/libemulator.la $(TEST_LIBS) -lm
