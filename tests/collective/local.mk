# tests of src/collective
check_PROGRAMS += %D%/schedule_test %D%/ops_test %D%/ops_fabric_test %D%/peers_test %D%/peers_fabric_test %D%/survive_test \
  %D%/faults_test %D%/clique_test
%C%_schedule_test_SOURCES = %D%/schedule_test.c tests/test.h
%C%_schedule_test_CFLAGS = $(TEST_CFLAGS)
%C%_schedule_test_LDADD = $(TEST_LIBS)
%C%_ops_test_SOURCES = %D%/ops_test.c %D%/world.h tests/test.h
%C%_ops_test_CFLAGS = $(TEST_CFLAGS)
%C%_ops_test_LDADD = $(TEST_LIBS)
%C%_ops_fabric_test_SOURCES = $(%C%_ops_test_SOURCES)
%C%_ops_fabric_test_CFLAGS = $(TEST_CFLAGS) -DOVER_FABRIC
%C%_ops_fabric_test_LDADD = $(TEST_LIBS)
%C%_peers_test_SOURCES = %D%/peers_test.c %D%/world.h tests/test.h
%C%_peers_test_CFLAGS = $(TEST_CFLAGS)
%C%_peers_test_LDADD = $(TEST_LIBS)
%C%_peers_fabric_test_SOURCES = $(%C%_peers_test_SOURCES)
%C%_peers_fabric_test_CFLAGS = $(TEST_CFLAGS) -DOVER_FABRIC
%C%_peers_fabric_test_LDADD = $(TEST_LIBS)
%C%_survive_test_SOURCES = %D%/survive_test.c %D%/entries.h tests/test.h
%C%_survive_test_CFLAGS = $(TEST_CFLAGS)
%C%_survive_test_LDADD = $(TEST_LIBS)
%C%_clique_test_SOURCES = %D%/clique_test.c tests/test.h
%C%_clique_test_CFLAGS = $(TEST_CFLAGS)
%C%_clique_test_LDADD = $(TEST_LIBS)
%C%_faults_test_SOURCES = %D%/faults_test.c %D%/entries.h tests/test.h
%C%_faults_test_CFLAGS = $(TEST_CFLAGS)
%C%_faults_test_LDADD = $(TEST_LIBS)
