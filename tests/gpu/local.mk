# tests/gpu: the emulated GPU (emulator/README.md) and what is tested on it.
# Where NVIDIA's toolkit is: only abi_test looks for its header, and skips where there is none.
GPU_TOOLKIT = /usr/local/cuda
check_PROGRAMS += %D%/abi_test
%C%_abi_test_SOURCES = %D%/abi_test.c tests/test.h
%C%_abi_test_CFLAGS = $(TEST_CFLAGS) -Wno-deprecated-declarations -DWEFT_CUDA_HEADER='"$(GPU_TOOLKIT)/include/cuda.h"' \
  -DWEFT_CUDA_STUB='"$(GPU_TOOLKIT)/lib64/stubs/libcuda.so"'
%C%_abi_test_LDADD = $(TEST_LIBS)

check_PROGRAMS += %D%/assemble_test
%C%_assemble_test_SOURCES = %D%/assemble_test.c tests/test.h
%C%_assemble_test_CFLAGS = $(TEST_CFLAGS) -DWEFT_CUDA_TOOLKIT='"$(GPU_TOOLKIT)"'
%C%_assemble_test_LDADD = $(TEST_LIBS)

# The emulator: a convenience library that tests link, and the shared library that stands for the driver (never installed).
GPU_EMULATOR_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -frounding-math
check_LTLIBRARIES += %D%/libemulator.la
%C%_libemulator_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_libemulator_la_SOURCES = \
  %D%/emulator/barrier.c %D%/emulator/compare.c %D%/emulator/convert.c %D%/emulator/grid.c %D%/emulator/image.c %D%/emulator/image.h %D%/emulator/internal.h \
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
%C%_emulator_libcuda_la_SOURCES = %D%/emulator/code.c %D%/emulator/condition.c %D%/emulator/copy.c %D%/emulator/device.c %D%/emulator/driver.h %D%/emulator/faults.c \
  %D%/emulator/graph.c %D%/emulator/heap.c %D%/emulator/library.c %D%/emulator/library.h %D%/emulator/link.c %D%/emulator/pool.c %D%/emulator/queue.c %D%/emulator/settings.c %D%/emulator/weft_emu.h
%C%_emulator_libcuda_la_LIBADD = %D%/libemulator.la -lm -lpthread
%C%_emulator_libcuda_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 1:0:0
# Emulated libraries, linked with the emulated driver, on whose streams they work.
check_LTLIBRARIES += %D%/emulator/libcublasLt.la
%C%_emulator_libcublasLt_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_emulator_libcublasLt_la_SOURCES = %D%/emulator/cublaslt.c %D%/emulator/library.h
%C%_emulator_libcublasLt_la_LIBADD = %D%/libemulator.la %D%/emulator/libcuda.la -lm
%C%_emulator_libcublasLt_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 13:0:0
check_LTLIBRARIES += %D%/emulator/libcudnn.la
%C%_emulator_libcudnn_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_emulator_libcudnn_la_SOURCES = %D%/emulator/cudnn.c %D%/emulator/library.h
%C%_emulator_libcudnn_la_LIBADD = %D%/libemulator.la %D%/emulator/libcuda.la -lm
%C%_emulator_libcudnn_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 9:0:0
check_LTLIBRARIES += %D%/emulator/libcusolver.la
%C%_emulator_libcusolver_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_emulator_libcusolver_la_SOURCES = %D%/emulator/cusolver.c %D%/emulator/library.h
%C%_emulator_libcusolver_la_LIBADD = %D%/emulator/libcuda.la $(BLAS_LIBS)
%C%_emulator_libcusolver_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 12:0:0
check_LTLIBRARIES += %D%/emulator/libcublas.la
%C%_emulator_libcublas_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_emulator_libcublas_la_SOURCES = %D%/emulator/cublas.c %D%/emulator/library.h
%C%_emulator_libcublas_la_LIBADD = %D%/emulator/libcuda.la $(BLAS_LIBS)
%C%_emulator_libcublas_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 13:0:0
check_LTLIBRARIES += %D%/emulator/libcufft.la
%C%_emulator_libcufft_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_emulator_libcufft_la_SOURCES = %D%/emulator/cufft.c %D%/emulator/library.h
%C%_emulator_libcufft_la_LIBADD = %D%/emulator/libcuda.la -lm
%C%_emulator_libcufft_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 12:0:0
check_LTLIBRARIES += %D%/emulator/libnvJitLink.la
%C%_emulator_libnvJitLink_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_emulator_libnvJitLink_la_SOURCES = %D%/emulator/nvjitlink.c %D%/emulator/library.h
%C%_emulator_libnvJitLink_la_LIBADD = %D%/libemulator.la %D%/emulator/libcuda.la -lm
%C%_emulator_libnvJitLink_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 13:0:0
check_LTLIBRARIES += %D%/emulator/libnccl.la
%C%_emulator_libnccl_la_CFLAGS = $(GPU_EMULATOR_CFLAGS)
%C%_emulator_libnccl_la_SOURCES = %D%/emulator/nccl.c %D%/emulator/nccl.h %D%/emulator/nccl_data.c %D%/emulator/nccl_world.c %D%/emulator/library.h
%C%_emulator_libnccl_la_LIBADD = %D%/libemulator.la %D%/emulator/libcuda.la -lm -lrt
%C%_emulator_libnccl_la_LDFLAGS = $(AM_LDFLAGS) -rpath /nowhere -version-info 2:0:0
check_PROGRAMS += %D%/nccl_test
%C%_nccl_test_SOURCES = %D%/nccl_test.c %D%/driver.h %D%/library_device.h tests/test.h
%C%_nccl_test_CFLAGS = $(TEST_CFLAGS)
%C%_nccl_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_nccl_test_DEPENDENCIES = %D%/emulator/libnccl.la
check_PROGRAMS += %D%/peer_kernels_test %D%/peer_programs_test
%C%_peer_kernels_test_SOURCES = %D%/peer_kernels_test.c %D%/driver.h tests/test.h
%C%_peer_kernels_test_CFLAGS = $(TEST_CFLAGS)
%C%_peer_kernels_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_peer_kernels_test_DEPENDENCIES = %D%/emulator/libcuda.la
%C%_peer_programs_test_SOURCES = %D%/peer_programs_test.c %D%/collective_programs.h %D%/emulated_symbol.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_peer_programs_test_CFLAGS = $(TEST_CFLAGS)
%C%_peer_programs_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_peer_programs_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/numa_test
%C%_numa_test_SOURCES = %D%/numa_test.c %D%/collective_programs.h %D%/emulated_symbol.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_numa_test_CFLAGS = $(TEST_CFLAGS)
%C%_numa_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_numa_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/nccl_programs_test
%C%_nccl_programs_test_SOURCES = %D%/nccl_programs_test.c %D%/collective_programs.h %D%/emulated_symbol.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_nccl_programs_test_CFLAGS = $(TEST_CFLAGS)
%C%_nccl_programs_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_nccl_programs_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/collective_graphs_test
%C%_collective_graphs_test_SOURCES = %D%/collective_graphs_test.c %D%/collective_programs.h %D%/emulated_symbol.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_collective_graphs_test_CFLAGS = $(TEST_CFLAGS)
%C%_collective_graphs_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_collective_graphs_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/collective_memory_test
%C%_collective_memory_test_SOURCES = %D%/collective_memory_test.c %D%/collective_programs.h tests/collective/gpus.h %D%/emulated_symbol.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_collective_memory_test_CFLAGS = $(TEST_CFLAGS) -Wno-unused-function
%C%_collective_memory_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_collective_memory_test_DEPENDENCIES = $(EMULATORS)
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

# Suites of other folders once more, on the platform "cuda" over the emulated driver.
EMULATED = %D%/emulated.c
EMULATORS = %D%/emulator/libcuda.la %D%/emulator/libcublas.la %D%/emulator/libcublasLt.la %D%/emulator/libcudnn.la \
  %D%/emulator/libcufft.la %D%/emulator/libcusolver.la %D%/emulator/libnccl.la %D%/emulator/libnvJitLink.la
check_PROGRAMS += %D%/emulated_run_test
%C%_emulated_run_test_SOURCES = tests/cpu/run_test.c tests/cpu/run.h $(EMULATED) tests/test.h
%C%_emulated_run_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_run_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_run_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/emulated_launch_test
%C%_emulated_launch_test_SOURCES = tests/cpu/launch_test.c tests/cpu/run.h tests/alloc.h $(EMULATED) tests/test.h
%C%_emulated_launch_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_launch_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_launch_test_DEPENDENCIES = $(EMULATORS)
%C%_emulated_launch_test_LDFLAGS = $(AM_LDFLAGS) $(WRAP_ALLOC)
check_PROGRAMS += %D%/emulated_golden_test
%C%_emulated_golden_test_SOURCES = tests/cpu/golden_test.c tests/hlo/golden.h tests/read_file.h $(EMULATED) tests/test.h
%C%_emulated_golden_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_golden_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_golden_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/emulated_collective_test
%C%_emulated_collective_test_SOURCES = tests/cpu/collective_test.c tests/cpu/run.h $(EMULATED) tests/test.h
%C%_emulated_collective_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_collective_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_collective_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/emulated_dynamic_test
%C%_emulated_dynamic_test_SOURCES = tests/cpu/dynamic_test.c tests/cpu/run.h $(EMULATED) tests/test.h
%C%_emulated_dynamic_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_dynamic_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_dynamic_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/emulated_ffi_test
%C%_emulated_ffi_test_SOURCES = tests/runtime/ffi_test.c $(EMULATED) tests/test.h
%C%_emulated_ffi_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_ffi_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_ffi_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/emulated_plugin_test
%C%_emulated_plugin_test_SOURCES = tests/pjrt/plugin_test.c tests/pjrt/client.h src/pjrt/plugin.c $(EMULATED) tests/test.h
%C%_emulated_plugin_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_plugin_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_plugin_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/enqueue_test
%C%_enqueue_test_SOURCES = %D%/enqueue_test.c %D%/emulated_symbol.h tests/pjrt/client.h src/pjrt/plugin.c $(EMULATED) tests/test.h
%C%_enqueue_test_CFLAGS = $(TEST_CFLAGS)
%C%_enqueue_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_enqueue_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/transfers_test
%C%_transfers_test_SOURCES = %D%/transfers_test.c tests/pjrt/client.h src/pjrt/plugin.c $(EMULATED) tests/test.h
%C%_transfers_test_CFLAGS = $(TEST_CFLAGS)
%C%_transfers_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_transfers_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/emulated_conformance_test
%C%_emulated_conformance_test_SOURCES = tests/stablehlo/conformance_test.c tests/read_file.h tests/stablehlo/conformance_reasons.h $(EMULATED) tests/test.h
%C%_emulated_conformance_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_conformance_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_conformance_test_DEPENDENCIES = $(EMULATORS)
%C%_emulated_conformance_test_CPPFLAGS = $(AM_CPPFLAGS) -DCONFORMANCE_CPU
check_PROGRAMS += %D%/emulated_random_test
%C%_emulated_random_test_SOURCES = tests/cpu/random_test.c $(EMULATED) tests/test.h
%C%_emulated_random_test_CFLAGS = $(TEST_CFLAGS)
%C%_emulated_random_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_emulated_random_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/library_abi_test
%C%_library_abi_test_SOURCES = %D%/library_abi_test.c tests/test.h
%C%_library_abi_test_CFLAGS = $(TEST_CFLAGS) -Wno-strict-prototypes -Wno-deprecated-declarations -DWEFT_CUDA_INCLUDE=$(GPU_TOOLKIT)/include
%C%_library_abi_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/blas_test
%C%_blas_test_SOURCES = %D%/blas_test.c %D%/driver.h %D%/library_device.h tests/test.h tests/passes/eval_compare.h
%C%_blas_test_CFLAGS = $(TEST_CFLAGS)
%C%_blas_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_blas_test_DEPENDENCIES = %D%/emulator/libcublasLt.la
check_PROGRAMS += %D%/dnn_test
%C%_dnn_test_SOURCES = %D%/dnn_test.c %D%/driver.h %D%/library_device.h tests/test.h tests/passes/eval_compare.h
%C%_dnn_test_CFLAGS = $(TEST_CFLAGS)
%C%_dnn_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_dnn_test_DEPENDENCIES = %D%/emulator/libcudnn.la
check_PROGRAMS += %D%/solver_test
%C%_solver_test_SOURCES = %D%/solver_test.c %D%/driver.h %D%/library_device.h tests/test.h tests/passes/eval_compare.h
%C%_solver_test_CFLAGS = $(TEST_CFLAGS)
%C%_solver_test_LDADD = $(TEST_LIBS) -lm
EXTRA_tests_gpu_solver_test_DEPENDENCIES = %D%/emulator/libcusolver.la %D%/emulator/libcublas.la
check_PROGRAMS += %D%/fft_test
%C%_fft_test_SOURCES = %D%/fft_test.c %D%/driver.h %D%/library_device.h tests/test.h tests/passes/eval_compare.h
%C%_fft_test_CFLAGS = $(TEST_CFLAGS)
%C%_fft_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_fft_test_DEPENDENCIES = %D%/emulator/libcufft.la %D%/emulator/libcublas.la
check_PROGRAMS += %D%/library_steps_test
%C%_library_steps_test_SOURCES = %D%/library_steps_test.c tests/cpu/run.h tests/passes/eval_compare.h $(EMULATED) tests/test.h
%C%_library_steps_test_CFLAGS = $(TEST_CFLAGS)
%C%_library_steps_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_library_steps_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/epilogues_test
%C%_epilogues_test_SOURCES = %D%/epilogues_test.c %D%/driver.h tests/cpu/run.h tests/passes/eval_compare.h $(EMULATED) tests/test.h
%C%_epilogues_test_CFLAGS = $(TEST_CFLAGS)
%C%_epilogues_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_epilogues_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/parallel_steps_test
%C%_parallel_steps_test_SOURCES = %D%/parallel_steps_test.c tests/cpu/run.h tests/passes/eval_compare.h $(EMULATED) tests/test.h
%C%_parallel_steps_test_CFLAGS = $(TEST_CFLAGS)
%C%_parallel_steps_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_parallel_steps_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/loops_test
%C%_loops_test_SOURCES = %D%/loops_test.c %D%/driver.h tests/cpu/run.h tests/passes/eval_compare.h $(EMULATED) tests/test.h
%C%_loops_test_CFLAGS = $(TEST_CFLAGS)
%C%_loops_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_loops_test_DEPENDENCIES = $(EMULATORS)
# The suites of collectives between devices of the platform.
check_PROGRAMS += %D%/ops_gpu_test
%C%_ops_gpu_test_SOURCES = tests/collective/ops_test.c tests/collective/world.h tests/collective/gpus.h %D%/emulated_symbol.h $(EMULATED) tests/test.h
%C%_ops_gpu_test_CFLAGS = $(TEST_CFLAGS) -DON_GPUS -Wno-unused-function
%C%_ops_gpu_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_ops_gpu_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/collective_faults_test
%C%_collective_faults_test_SOURCES = %D%/collective_faults_test.c tests/collective/world.h tests/collective/gpus.h %D%/emulated_symbol.h $(EMULATED) tests/test.h
%C%_collective_faults_test_CFLAGS = $(TEST_CFLAGS)
%C%_collective_faults_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_collective_faults_test_DEPENDENCIES = $(EMULATORS)
# tests/collective/faults_test.c on 2 to 4 processes with a GPU each.
check_PROGRAMS += %D%/process_faults_test
%C%_process_faults_test_SOURCES = tests/collective/faults_test.c tests/collective/entries.h tests/collective/gpus.h %D%/emulated_symbol.h $(EMULATED) tests/test.h
%C%_process_faults_test_CFLAGS = $(TEST_CFLAGS) -DON_GPUS -Wno-unused-function
%C%_process_faults_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_process_faults_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/graph_loops_test
%C%_graph_loops_test_SOURCES = %D%/graph_loops_test.c %D%/driver.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_graph_loops_test_CFLAGS = $(TEST_CFLAGS)
%C%_graph_loops_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_graph_loops_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/shrink_test
%C%_shrink_test_SOURCES = %D%/shrink_test.c tests/collective/gpus.h %D%/emulated_symbol.h $(EMULATED) tests/test.h
%C%_shrink_test_CFLAGS = $(TEST_CFLAGS) -Wno-unused-function
%C%_shrink_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_shrink_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/graph_test
%C%_graph_test_SOURCES = %D%/graph_test.c %D%/driver.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_graph_test_CFLAGS = $(TEST_CFLAGS)
%C%_graph_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_graph_test_DEPENDENCIES = $(EMULATORS)
check_PROGRAMS += %D%/platform_test
%C%_platform_test_SOURCES = %D%/platform_test.c %D%/driver.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_platform_test_CFLAGS = $(TEST_CFLAGS)
%C%_platform_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_platform_test_DEPENDENCIES = %D%/emulator/libcuda.la %D%/emulator/libnvJitLink.la
TESTS += %D%/jax_devices_test.sh %D%/jax_distributed_test.sh %D%/jax_test.sh %D%/jobs_test.sh %D%/survive_test.sh
EXTRA_DIST += %D%/python/sitecustomize.py %D%/jax_devices_test.sh %D%/jax_distributed_test.sh %D%/jax_test.sh %D%/jobs_test.sh %D%/survive_test.sh
check_PROGRAMS += %D%/device_ffi_test
%C%_device_ffi_test_SOURCES = %D%/device_ffi_test.c %D%/driver.h tests/cpu/run.h $(EMULATED) tests/test.h
%C%_device_ffi_test_CFLAGS = $(TEST_CFLAGS)
%C%_device_ffi_test_LDADD = $(TEST_LIBS)
EXTRA_tests_gpu_device_ffi_test_DEPENDENCIES = $(EMULATORS)
TESTS += %D%/jax_memory_test.py
EXTRA_DIST += %D%/jax_memory_test.py
TESTS += %D%/bench_test.sh %D%/default_test.sh %D%/on_device_test.sh %D%/profile_test.sh
EXTRA_DIST += %D%/bench_test.sh %D%/default_test.sh %D%/on_device.sh %D%/on_device_test.sh %D%/profile_test.sh

# What on_device.sh carries to a machine with a GPU; made only for it, since it is linked as the plugin is, with LLVM inside.
EXTRA_PROGRAMS += %D%/on_device
%C%_on_device_SOURCES = %D%/on_device.c tests/stablehlo/conformance_test.c tests/read_file.h tests/random_program.h \
  tests/passes/eval_compare.h tests/cpu/run.h tests/test.h
%C%_on_device_CPPFLAGS = $(AM_CPPFLAGS) -DCONFORMANCE_CPU -Dmain=conformance_main
%C%_on_device_CFLAGS = $(TEST_CFLAGS)
%C%_on_device_LDFLAGS = $(AM_LDFLAGS) -Wl,--gc-sections
%C%_on_device_LDADD = libweftcore.la $(INSIDE_LIBS) $(CMOCKA_LIBS)
CLEANFILES += %D%/on_device
