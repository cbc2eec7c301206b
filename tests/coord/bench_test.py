#!/usr/bin/env python3
"""The benchmark runs: small, and once."""
import os
import subprocess
import sys

from jaxlib_common import HERE, Service, run


def benchmark_measures_every_case():
  with Service(16, '--recoverable') as s:
    program = os.path.join(os.environ.get('WEFT_BUILDDIR', HERE + '/../../build'), 'bench/coord_bench')
    r = subprocess.run([program, s.address, '--tasks', '16', '--seconds', '0.2', '--pid', str(s.process.pid)],
                       capture_output=True, text=True, timeout=240)
    assert r.returncode == 0, r
    for case in 'register', 'barrier', 'kv', 'watch', 'memory':
      assert case in r.stdout, r.stdout


if __name__ == '__main__':
  sys.exit(run([benchmark_measures_every_case], needs_jaxlib=False))
