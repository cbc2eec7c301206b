# tests of src/cli
TESTS += %D%/help_test.sh
EXTRA_DIST += %D%/help_test.sh
