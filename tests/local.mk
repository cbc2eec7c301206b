# Each C test is one cmocka program printing TAP.  A folder mirrors src and lists its programs in its own local.mk:
#   check_PROGRAMS += %D%/status_test
#   %C%_status_test_SOURCES = %D%/status_test.c tests/test.h
#   %C%_status_test_CFLAGS = $(TEST_CFLAGS)
#   %C%_status_test_LDADD = $(TEST_LIBS)
TEST_CFLAGS = $(AM_CFLAGS) -I$(top_srcdir)/tests $(CMOCKA_CFLAGS) -Wno-missing-prototypes
TEST_LIBS = libweftcore.la $(CORE_LIBS) $(CMOCKA_LIBS)
# for programs that include tests/alloc.h
WRAP_ALLOC = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign
# Suites that run many programs, most of them the same as another suite's or process's. They keep kernels in one folder
# (WEFT_CACHE_DIR=$(TEST_KERNELS)), so that LLVM compiles each kernel once in a `make check`. A kernel's name in the folder is a
# digest of its LLVM IR, the processor and the build (codegen/host/jit.c), and every suite emits all its IR itself.
# Tests of the cache, of failing allocations, of memory and of what code generation makes of a kernel (codegen, except two suites
# that run many) compile for themselves and are not in this list.
TESTS_THAT_SHARE_KERNELS = \
  tests/stablehlo/conformance_cpu_test tests/cpu/golden_test tests/cpu/run_test tests/cpu/random_test tests/cpu/collective_test \
  tests/cpu/dynamic_test tests/cpu/processes_test tests/cpu/control_test tests/cpu/collective_modes_test \
  $(foreach suite,run golden collective processes dynamic ffi plugin conformance random, \
    tests/platform/guarded_$(suite)_test tests/platform/deferred_$(suite)_test) \
  $(foreach suite,run golden collective dynamic plugin conformance random,tests/platform/saved_$(suite)_test) \
  tests/platform/seeds_test tests/platform/jax_test tests/runtime/ffi_test tests/pjrt/plugin_test \
  tests/jax/e2e_test tests/jax/multi_device_test tests/jax/distributed_test tests/jax/survive_test tests/jax/sharded_test \
  tests/jax/random_sharded_test tests/jax/random_ops_test tests/jax/examples_test tests/jax/tutorial_test tests/jax/back_compat_test \
  tests/jax/clients_test tests/jax/agent_test tests/xla/programs_test \
  tests/cpu/optable_test tests/cpu/optable_jax tests/codegen/loop_test tests/codegen/reduce_test \
  $(foreach suite,run golden conformance collective dynamic plugin random,tests/gpu/emulated_$(suite)_test) \
  $(foreach suite,jax_test jax_devices_test jax_distributed_test survive_test jobs_test peer_programs_test nccl_programs_test, \
    tests/gpu/$(suite))

# libraries and plugins that tests load
check_LTLIBRARIES =
TESTS += tests/layering_test.sh tests/style_test.py tests/docs_test.py tests/unimplemented_test.py tests/installed_headers_test.sh tests/installed_library_test.sh tests/installed_runtime_test.sh tests/installed_documents_test.sh tests/without_libraries_test.sh tests/configure_test.sh
EXTRA_DIST += tests/configure_test.sh tests/layering_test.sh tests/circles.awk tests/style_test.py tests/docs_test.py tests/unimplemented_test.py tests/installed_headers_test.sh tests/installed_library_test.sh tests/installed_runtime_test.sh tests/installed_documents_test.sh tests/without_libraries_test.sh tests/lsan.supp tests/valgrind.supp

EXTRA_DIST += tests/install/deb_test.sh tests/install/declared.awk tests/install/in_cxx.cc examples/c/all_reduce.c examples/c/job.c examples/c/Makefile docs/c.md examples/aot/main.c examples/aot/mlp.mlir examples/aot/Makefile

# Run by .ci/run with the oldest clang that is supported.
# oldest: tests/hlo/ir_test tests/base/status_test tests/cpu/gemm_test tests/cpu/kernels_test tests/cpu/run_test tests/coord/agent_test
# oldest: tests/pjrt/plugin_test tests/pjrt/client_test.sh tests/pjrt/isolation_test.sh tests/installed_library_test.sh tests/installed_runtime_test.sh

# Not run under ASan by .ci/run: tests of files, of configure and of what is installed, which run no code of a sanitized build; suites
# on the guarded platform, whose own traps find what ASan finds; suites that run others once more; long comparisons with jaxlib.
# not-asan: tests/layering_test.sh tests/style_test.py tests/docs_test.py tests/unimplemented_test.py tests/configure_test.sh
# not-asan: tests/installed_headers_test.sh tests/installed_library_test.sh tests/installed_runtime_test.sh tests/installed_documents_test.sh
# not-asan: tests/bench/peers_test.py tests/hlo/add_opcode_test.py tests/platform/guarded_% tests/platform/saved_kernels_test tests/platform/seeds_test.sh
# not-asan: tests/hlo/xla_cross_test.py tests/stablehlo/print_jaxlib_test.py tests/stablehlo/raise_jaxlib_test.py tests/codegen/order_test.py

# Run by .ci/run from an unpacked tarball.
# dist: tests/layering_test.sh tests/style_test.py tests/docs_test.py tests/unimplemented_test.py tests/installed_headers_test.sh
# dist: tests/installed_library_test.sh tests/installed_runtime_test.sh tests/installed_documents_test.sh tests/cli/help_test.sh tests/cli/run_test.sh
# dist: tests/hlo/text_test tests/hlo/proto_test tests/stablehlo/text_test tests/stablehlo/conformance_test tests/cpu/golden_test tests/passes/golden_test
# dist: tests/pjrt/client_test.sh tests/gpu/driver_test

# Run under ThreadSanitizer by .ci/run, one list a line.
# tsan: tests/base/kv_test tests/runtime/pool_test tests/runtime/executor_test tests/runtime/ffi_test tests/collective/clique_test tests/collective/ending_test
# tsan: tests/collective/ops_test tests/collective/faults_test tests/collective/communicator_test tests/collective/mixed_test
# tsan: tests/collective/survive_test tests/coord/service_test tests/coord/agent_test tests/coord/wire_test tests/coord/sim_test
# tsan: tests/coord/launch_test.py tests/gpu/mixed_gpu_test
# tsan: tests/cpu/run_test tests/cpu/launch_test tests/cpu/collective_test tests/pjrt/plugin_test tests/pjrt/hostile_test tests/pjrt/threads_test tests/pjrt/agent_test
TESTS += tests/jax/plugin_test.py tests/jax/survive_test.py tests/jax/e2e_test.py tests/jax/back_compat_test.py tests/jax/process_test.py tests/jax/multi_device_test.py tests/jax/distributed_test.py
EXTRA_DIST += tests/jax/random_ops_test.py tests/jax/plugin_test.py tests/jax/survive_test.py tests/jax/jobs.py tests/jax/e2e_test.py tests/jax/back_compat_test.py tests/jax/process_test.py tests/jax/multi_device_test.py tests/jax/distributed_test.py tests/jax/upstream.py tests/jax/upstream_multiprocess.py
EXTRA_DIST += examples/jax/transformer_2d.py examples/jax/survivor.py examples/jax/preempted.py
TESTS += tests/bench/peers_test.py
EXTRA_DIST += tests/bench/peers_test.py
TESTS += tests/jax/frameworks_test.py tests/jax/clients_test.py tests/jax/agent_test.py
EXTRA_DIST += tests/jax/frameworks_test.py tests/jax/clients_test.py tests/jax/agent_test.py
TESTS += tests/jax/tutorial_test.py tests/jax/interrupt_test.py tests/jax/random_ops_test.py tests/jax/examples_test.py tests/jax/sharded_test.py tests/jax/random_sharded_test.py
EXTRA_DIST += tests/jax/tutorial_test.py tests/jax/interrupt_test.py tests/jax/examples_test.py tests/jax/sharded_test.py tests/jax/random_sharded_test.py examples/jax/common.py examples/jax/mlp.py examples/jax/convnet.py examples/jax/ode.py

include tests/base/local.mk
include tests/hlo/local.mk
include tests/stablehlo/local.mk
include tests/passes/local.mk
include tests/buffer/local.mk
include tests/codegen/local.mk
include tests/runtime/local.mk
include tests/collective/local.mk
include tests/security/local.mk
include tests/cpu/local.mk
include tests/platform/local.mk
include tests/coord/local.mk
include tests/pjrt/local.mk
include tests/python/local.mk
include tests/cli/local.mk
include tests/gpu/local.mk
include tests/xla/local.mk
include tests/fuzz/local.mk

# Programs last: most scripts take longer, so that the processors end at about the same time.
TESTS += $(check_PROGRAMS)

# The order in which they begin (SPREAD, Makefile.am): those that take long and those that wait, in turns, then the others. Those that
# wait for deadlines, other processes and sleeps use little of a processor: beside them, one more test than there are processors can
# run. All others run at a lower priority (build-aux/limited), so that a busy machine does not stretch what the waiting ones measure.
TESTS_THAT_WAIT = \
  tests/collective/survive_test tests/security/mitm_test tests/collective/faults_test tests/gpu/ops_gpu_test tests/gpu/survive_test \
  tests/jax/agent_test tests/gpu/collective_faults_test tests/jax/interrupt_test tests/coord/jaxlib_client_test tests/coord/agent_jaxlib_test \
  tests/security/coord_middle_test tests/jax/survive_test tests/gpu/collective_graphs_test tests/gpu/numa_test \
  tests/gpu/transfers_test tests/coord/run_test tests/gpu/jobs_test tests/collective/ops_fabric_test tests/security/coord_memory_test \
  tests/security/coord_strangers_test tests/gpu/clique_split_test tests/gpu/nccl_programs_test tests/coord/allocation_test \
  tests/collective/flight_test tests/gpu/collective_memory_test tests/coord/hosts_test tests/collective/communicator_test \
  tests/gpu/shrink_test tests/coord/launch_test tests/collective/mixed_test tests/gpu/ending_gpu_test tests/platform/deferred_test \
  tests/security/stranger_test tests/gpu/mixed_gpu_test tests/collective/ops_test tests/security/coord_floods_test tests/coord/agent_test \
  tests/gpu/process_faults_test tests/coord/sim_test tests/collective/ending_test tests/collective/clique_test tests/coord/service_test
TESTS_THAT_TAKE_LONG = \
  tests/gpu/kernels_test tests/jax/e2e_test tests/cpu/kernels_test tests/cpu/gemm_test tests/platform/saved_kernels_test tests/codegen/loop_test \
  tests/gpu/graph_loops_test tests/cpu/strip_groups_test tests/gpu/multicast_test tests/gpu/peer_programs_test tests/jax/frameworks_test \
  tests/gpu/jax_test tests/bench/peers_test tests/cpu/optable_test tests/jax/process_test tests/xla/nasty_test tests/cpu/optable_jax \
  tests/gpu/jax_devices_test tests/platform/jax_test tests/platform/seeds_test tests/codegen/reduce_test tests/configure_test tests/gpu/graph_test \
  tests/gpu/emulated_launch_test tests/gpu/platform_test tests/gpu/on_device_test tests/jax/multi_device_test tests/cli/run_test tests/hlo/eval_golden tests/gpu/loops_test tests/gpu/multicast_kernels_test \
  tests/gpu/emulated_random_test tests/passes/spmd_test tests/pjrt/client_test tests/jax/examples_test tests/codegen/order_test \
  tests/cpu/conv_blocks_test tests/passes/semantics_test tests/gpu/peer_kernels_test tests/gpu/emulated_conformance_test \
  tests/stablehlo/bytecode_test tests/hlo/xla_cross_test tests/codegen/math_test tests/cpu/random_test tests/cpu/strips_test
