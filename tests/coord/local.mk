# tests of src/coord
COORD_PY_TESTS = %D%/jaxlib_client_test.py %D%/agent_jaxlib_test.py %D%/launch_test.py %D%/hostile_test.py %D%/bench_test.py \
  %D%/allocation_test.py %D%/run_test.py %D%/hosts_test.py
TESTS += $(COORD_PY_TESTS)
EXTRA_DIST += $(COORD_PY_TESTS) %D%/jaxlib_common.py %D%/jaxlib_peer.py %D%/jaxlib_service.py %D%/collective_programs.py %D%/jax_program.py %D%/weft_program.py

# What the scripts start.
COORD_PEERS = %D%/agent_peer
noinst_PROGRAMS += $(COORD_PEERS)
%C%_agent_peer_SOURCES = %D%/agent_peer.c
%C%_agent_peer_CFLAGS = $(AM_CFLAGS)

check_PROGRAMS += %D%/sim_test
%C%_sim_test_SOURCES = %D%/sim_test.c tests/test.h
%C%_sim_test_CFLAGS = $(TEST_CFLAGS)
%C%_sim_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/wire_test
%C%_wire_test_SOURCES = %D%/wire_test.c tests/test.h
%C%_wire_test_CFLAGS = $(TEST_CFLAGS)
%C%_wire_test_LDADD = $(TEST_LIBS)
check_PROGRAMS += %D%/service_test %D%/cluster_test %D%/agent_test %D%/identity_test
%C%_identity_test_SOURCES = %D%/identity_test.c tests/test.h
%C%_identity_test_CFLAGS = $(TEST_CFLAGS)
%C%_identity_test_LDADD = $(TEST_LIBS)
%C%_agent_test_SOURCES = %D%/agent_test.c tests/test.h
%C%_agent_test_CFLAGS = $(TEST_CFLAGS)
%C%_agent_test_LDADD = $(TEST_LIBS)
%C%_service_test_SOURCES = %D%/service_test.c tests/test.h
%C%_service_test_CFLAGS = $(TEST_CFLAGS)
%C%_service_test_LDADD = $(TEST_LIBS)
%C%_cluster_test_SOURCES = %D%/cluster_test.c tests/test.h
%C%_cluster_test_CFLAGS = $(TEST_CFLAGS)
%C%_cluster_test_LDADD = $(TEST_LIBS)
