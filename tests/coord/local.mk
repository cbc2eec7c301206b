# tests of src/coord
COORD_PY_TESTS = %D%/jaxlib_client_test.py
TESTS += $(COORD_PY_TESTS)
EXTRA_DIST += $(COORD_PY_TESTS) %D%/jaxlib_common.py %D%/jaxlib_peer.py
