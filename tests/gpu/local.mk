# tests/gpu: the emulated GPU (emulator/README.md) and what is tested on it.
# Where NVIDIA's toolkit is: only abi_test looks for its header, and skips where there is none.
GPU_TOOLKIT = /usr/local/cuda
check_PROGRAMS += %D%/abi_test
%C%_abi_test_SOURCES = %D%/abi_test.c tests/test.h
%C%_abi_test_CFLAGS = $(TEST_CFLAGS) -Wno-deprecated-declarations -DWEFT_CUDA_HEADER='"$(GPU_TOOLKIT)/include/cuda.h"' \
  -DWEFT_CUDA_STUB='"$(GPU_TOOLKIT)/lib64/stubs/libcuda.so"'
%C%_abi_test_LDADD = $(TEST_LIBS)
