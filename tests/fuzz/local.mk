# Fuzz targets: NAME_fuzz.c with its corpus in corpus/NAME.  make check replays the corpus with any compiler; configured
# with --enable-fuzzers (clang) they are libFuzzer programs:  tests/fuzz/hlo_text_fuzz -max_total_time=60 corpus-copy/
MUTATE = %D%/mutate.c %D%/mutate.h %D%/mutate_text.c %D%/mutate_wire.c
if FUZZERS
FUZZ_MAIN =
FUZZ_PROGRAM_MAIN = $(MUTATE)
FUZZ_FLAGS = -fsanitize=fuzzer
else
FUZZ_MAIN = tests/fuzz/replay.c
FUZZ_PROGRAM_MAIN = $(FUZZ_MAIN)
FUZZ_FLAGS =
TESTS += $(FUZZ_TARGETS)
endif
FUZZ_TARGETS = %D%/hlo_text_fuzz %D%/hlo_proto_fuzz %D%/hlo_run_fuzz %D%/stablehlo_text_fuzz %D%/stablehlo_bytecode_fuzz \
  %D%/coord_h2_fuzz %D%/coord_hello_fuzz %D%/coll_link_fuzz %D%/coll_door_fuzz %D%/flight_fuzz %D%/pjrt_options_fuzz %D%/pjrt_executable_fuzz \
  %D%/program_fuzz %D%/kernel_cache_fuzz %D%/kv_file_fuzz %D%/ffi_attrs_fuzz %D%/npy_fuzz
noinst_PROGRAMS += $(FUZZ_TARGETS)
EXTRA_DIST += %D%/corpus %D%/corpus.py %D%/replay.c

%C%_hlo_text_fuzz_SOURCES = %D%/hlo_text_fuzz.c %D%/fuzz.h $(FUZZ_PROGRAM_MAIN)
%C%_hlo_text_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_hlo_proto_fuzz_SOURCES = %D%/hlo_proto_fuzz.c %D%/fuzz.h $(FUZZ_PROGRAM_MAIN)
%C%_hlo_proto_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_hlo_run_fuzz_SOURCES = %D%/hlo_run_fuzz.c %D%/fuzz.h $(FUZZ_PROGRAM_MAIN)
%C%_hlo_run_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_stablehlo_text_fuzz_SOURCES = %D%/stablehlo_text_fuzz.c %D%/stablehlo_fuzz.h %D%/fuzz.h $(FUZZ_PROGRAM_MAIN)
%C%_stablehlo_text_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_stablehlo_bytecode_fuzz_SOURCES = %D%/stablehlo_bytecode_fuzz.c %D%/stablehlo_fuzz.h %D%/fuzz.h $(FUZZ_PROGRAM_MAIN)
%C%_stablehlo_bytecode_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_coord_h2_fuzz_SOURCES = %D%/coord_h2_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_coord_h2_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_coord_hello_fuzz_SOURCES = %D%/coord_hello_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_coord_hello_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_coll_link_fuzz_SOURCES = %D%/coll_link_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_coll_link_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_coll_door_fuzz_SOURCES = %D%/coll_door_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_coll_door_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_kv_file_fuzz_SOURCES = %D%/kv_file_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_kv_file_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_ffi_attrs_fuzz_SOURCES = %D%/ffi_attrs_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_ffi_attrs_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_npy_fuzz_SOURCES = %D%/npy_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_npy_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_flight_fuzz_SOURCES = %D%/flight_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_flight_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_pjrt_options_fuzz_SOURCES = %D%/pjrt_options_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_pjrt_options_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_pjrt_executable_fuzz_SOURCES = %D%/pjrt_executable_fuzz.c %D%/saved_fuzz.h %D%/fuzz.h src/pjrt/plugin.c $(FUZZ_PROGRAM_MAIN)
%C%_pjrt_executable_fuzz_CFLAGS = $(AM_CFLAGS)
%C%_pjrt_executable_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_program_fuzz_SOURCES = %D%/program_fuzz.c %D%/saved_fuzz.h %D%/fuzz.h $(FUZZ_PROGRAM_MAIN)
%C%_program_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)
%C%_kernel_cache_fuzz_SOURCES = %D%/kernel_cache_fuzz.c %D%/fuzz.h $(FUZZ_MAIN)
%C%_kernel_cache_fuzz_LDFLAGS = $(AM_LDFLAGS) $(FUZZ_FLAGS)

check_PROGRAMS += %D%/mutate_test
%C%_mutate_test_SOURCES = %D%/mutate_test.c $(MUTATE) tests/test.h
%C%_mutate_test_CFLAGS = $(TEST_CFLAGS)
%C%_mutate_test_LDADD = $(TEST_LIBS)
