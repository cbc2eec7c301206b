TESTS += %D%/programs_test.py %D%/nasty_test.py
EXTRA_DIST += %D%/nasty_test.py %D%/programs_test.py %D%/programs.hlo %D%/oracle.py %D%/extract.py %D%/sweep.py
