#!/usr/bin/env python3
"""Our coordination service and jaxlib's under the same load.  usage: coord_bench.py [BUILD_DIR] [TASKS ...] [--seconds S --barriers B]"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../tests/coord'))
build = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, '../build')
os.environ['WEFT_BUILDDIR'] = os.path.abspath(build)
import jaxlib_common  # noqa: E402  (it reads WEFT_BUILDDIR)
from agent_jaxlib_test import JaxlibService  # noqa: E402

OPTIONS = ['--heartbeat-timeout', '3000s', '--recoverable', '1', '--register-timeout', '600s']

numbers = sys.argv[2:]
of_the_load = numbers[next((i for i, a in enumerate(numbers) if a.startswith('--')), len(numbers)):]

for tasks in [int(t) for t in numbers[:len(numbers) - len(of_the_load)]] or [64, 1024, 4096]:
  for name, service in ('weft', jaxlib_common.Service), ('jaxlib', JaxlibService):
    print(f'--- {name}, {tasks} tasks', flush=True)
    with service(tasks, *OPTIONS) as s:
      try:
        subprocess.run([os.path.join(build, 'bench/coord_bench'), s.address, '--tasks', str(tasks), '--pid', str(s.process.pid),
                        *of_the_load], timeout=300, check=False)
      except subprocess.TimeoutExpired:
        print('does not end within 300 s')
