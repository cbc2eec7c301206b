TESTS += %D%/program_test.py
EXTRA_DIST += %D%/program_test.py %D%/wheel_test.sh
