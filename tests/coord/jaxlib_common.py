"""What the tests against jaxlib share: finding it, starting processes, TAP."""
import atexit
import concurrent.futures
import functools
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def python():
  """The interpreter that has jaxlib."""
  if os.environ.get('WEFT_PYTHON'):
    return os.environ['WEFT_PYTHON']
  return '/opt/jaxenv/bin/python' if os.path.exists('/opt/jaxenv/bin/python') else sys.executable


def has_jaxlib():
  look = 'import importlib.util, sys; from jaxlib import _jax; sys.exit(importlib.util.find_spec("jax") is None)'
  return subprocess.run([python(), '-c', look], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120).returncode == 0


def load():
  from jaxlib import _jax # without jax, whose import takes a second of a core in each of some hundred processes
  return _jax


def weft():
  return os.path.join(os.environ.get('WEFT_BUILDDIR', os.path.join(HERE, '../../build')), 'weft')


def free_port():
  """A port on which no process listens, outside the range from which the system chooses ports: it stays free until it is bound."""
  with open('/proc/sys/net/ipv4/ip_local_port_range') as f:
    lowest = int(f.read().split()[0])
  while True:
    port = random.randrange(10000, lowest) if lowest > 11000 else 0
    with socket.socket() as s:
      try:
        s.bind(('127.0.0.1', port))
        return s.getsockname()[1]
      except OSError:
        pass


@functools.cache
def job_secret():
  """A file with a secret, which is removed when this process ends: jobs whose service other machines can reach need one."""
  fd, path = tempfile.mkstemp(prefix='weft-secret-')
  os.write(fd, b'secret-of-a-test')
  os.close(fd)
  atexit.register(os.unlink, path)
  return path


class Service:
  """`weft coord serve` on a port of its own."""

  def __init__(self, tasks, *options, later=False):
    self.process = None
    self.command = [weft(), 'coord', 'serve', '--tasks', str(tasks), *options]
    if not later:
      self.begin()

  def begin(self):
    self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
    line = self.process.stdout.readline()
    assert line.startswith('listening on '), line
    self.address = line.split()[-1]

  def stop(self):
    self.process.terminate()
    return self.process.wait(timeout=20)

  def kill(self):
    if self.process and self.process.poll() is None:
      self.process.kill()
      self.process.wait()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.kill()


def spawn(address, task, *args):
  return subprocess.Popen([python(), os.path.join(HERE, 'jaxlib_peer.py'), address, str(task), *map(str, args)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(processes, timeout=120):
  """Waits for all; their exit codes and outputs.  Fails, and kills them, if one hangs."""
  results = []
  deadline = time.time() + timeout
  try:
    for p in processes:
      out, err = p.communicate(timeout=max(0.1, deadline - time.time()))
      results.append((p.returncode, out, err))
  except subprocess.TimeoutExpired:
    for p in processes:
      p.kill()
      p.wait()
    raise AssertionError('a process hangs')
  return results


def all_succeed(processes, timeout=120):
  for number, (code, out, err) in enumerate(finish(processes, timeout)):
    assert code == 0, f'process {number} exited with {code}:\n{out}\n{err[-3000:]}'


def wait_for_line(process, text):
  while True:
    line = process.stdout.readline()
    assert line, f'process ended before it said "{text}": {process.stderr.read()[-3000:]}'
    if text in line:
      return


class Skip(Exception):
  """Raised by a test that cannot run here; says why."""


def timed(test):
  begin = time.time()
  try:
    test()
  except Exception as error:
    return time.time() - begin, error
  return time.time() - begin, None


def run(tests, needs_jaxlib=True, at_a_time=4):
  """Prints TAP for the functions; returns the exit code."""
  if needs_jaxlib and not has_jaxlib():
    print('1..0 # SKIP jaxlib is not installed (WEFT_PYTHON names an interpreter that has it)')
    return 0
  wanted = sys.argv[1:]
  tests = [t for t in tests if not wanted or t.__name__ in wanted]
  print(f'1..{len(tests)}', flush=True)
  failed = 0
  # They mostly wait, so several run at a time.
  with concurrent.futures.ThreadPoolExecutor(max_workers=at_a_time) as pool:
    started = {pool.submit(timed, test): test for test in tests}
    for number, future in enumerate(concurrent.futures.as_completed(started), 1):
      name = started[future].__name__
      seconds, error = future.result()
      if isinstance(error, Skip):
        print(f'ok {number} - {name} # SKIP {error}', flush=True)
        continue
      print(f'{"not ok" if error else "ok"} {number} - {name} # {seconds:.1f} s')
      if error:
        failed += 1
        print('\n'.join('# ' + line for line in f'{type(error).__name__}: {error}'.splitlines()))
      sys.stdout.flush()
  return 1 if failed else 0
