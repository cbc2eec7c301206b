#!/usr/bin/env python3
"""Our coordination service and jaxlib's under the same load, side by side.

    bench/coord_bench.py BUILD [BUILD ...] [--tasks 64,1024,4096] [--rounds N] [--seconds S] [--barriers B] [--no-jaxlib]
                         [--markdown FILE] [--svg FILE]

Each BUILD is a build folder, or NAME=FOLDER: its `weft coord serve` is loaded by the first build's bench/coord_bench, so that builds of
several commits compare.  The services take turns in each round, and of each figure the best round counts.
"""
import argparse
import os
import re
import subprocess
import sys

import report

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../tests/coord'))
import jaxlib_common  # noqa: E402
from agent_jaxlib_test import JaxlibService  # noqa: E402

OPTIONS = ['--heartbeat-timeout', '3000s', '--recoverable', '1', '--register-timeout', '600s']
# What a line of coord_bench says: its pattern, and the figures in it with their units.  Less is better in each: a rate is turned over.
LINES = [(r'register +(\d+) tasks +([\d.]+) ms', ['registration of {} tasks, ms']),
         (r'barrier +(\d+) tasks.* ([\d.]+) ms p50 after the last call +([\d.]+) us processor',
          ['barrier of {} tasks, from the last call, p50, ms', 'barrier of {} tasks, processor of the service per task, us']),
         (r'kv +(\d+) clients +([\d.]+) operations/s +([\d.]+) us', ['keys, {} clients, time of an operation, us', 'keys, {} clients, processor per operation, us']),
         (r'watch +(\d+) watchers +([\d.]+) ms', ['one change to {} watchers, ms']),
         (r'memory at the end +([\d.]+) MiB', ['memory at the end, MiB'])]


def figures(output):
  """(name, value) of each figure."""
  for line in output.splitlines():
    for pattern, names in LINES:
      found = re.match(pattern, line)
      if not found:
        continue
      groups = list(found.groups())
      if len(groups) > len(names):
        count = groups.pop(0)
        names = [name.format(count) for name in names]
      values = [float(x) for x in groups]
      if line.startswith('kv'):
        values[0] = round(1e6 / values[0], 1)
      yield from zip(names, values)


def serve(name, folder, tasks):
  """The service, begun."""
  if folder is None:
    return JaxlibService(tasks, *OPTIONS)
  os.environ['WEFT_BUILDDIR'] = os.path.abspath(folder)
  return jaxlib_common.Service(tasks, *OPTIONS)


def measure(args, builds, tasks):
  """The best of each figure: {figure: {service: value}}, in the order of coord_bench's lines."""
  best = {}
  for turn in range(args.rounds):
    for name, folder in builds[::-1] if turn % 2 else builds:
      with serve(name, folder, tasks) as s:
        load = [os.path.join(builds[0][1], 'bench/coord_bench'), s.address, '--tasks', str(tasks), '--pid', str(s.process.pid), '--seconds', str(args.seconds)]
        if args.barriers:
          load += ['--barriers', str(args.barriers)]
        try:
          output = subprocess.run(load, timeout=300, capture_output=True, text=True).stdout
        except subprocess.TimeoutExpired:
          print(f'{name}: does not end within 300 s')
          continue
      for figure, value in figures(output):
        of = best.setdefault(figure, {})
        of[name] = min(value, of.get(name, value))
  return best


def ratio(of, name, peer):
  return f'{of[name] / of[peer]:.2f}' if of.get(name) and of.get(peer) else '–'


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('builds', nargs='+', metavar='BUILD')
  parser.add_argument('--tasks', default='64,1024,4096')
  parser.add_argument('--rounds', type=int, default=1)
  parser.add_argument('--seconds', type=float, default=2)
  parser.add_argument('--barriers', type=int, default=0)
  parser.add_argument('--no-jaxlib', action='store_true')
  report.add_options(parser)
  args = parser.parse_args()
  builds = [tuple(b.split('=', 1)) if '=' in b else (b if len(args.builds) > 1 else 'weft', b) for b in args.builds]
  services = builds if args.no_jaxlib else [*builds, ('jaxlib', None)]
  first, peers = services[0][0], [name for name, _ in services[1:]]
  table = report.Table('The coordination service', ['tasks: figure', *[name for name, _ in services], *[f'{first} / {peer}' for peer in peers]],
                       plot=f'{first} / {peers[-1]}' if peers else None)
  for tasks in map(int, args.tasks.split(',')):
    for figure, of in measure(args, services, tasks).items():
      table.add(f'{tasks}: {figure}', *[f'{of[name]:g}' if name in of else '–' for name, _ in services], *[ratio(of, first, peer) for peer in peers])
  print('\n'.join(table.lines()))
  table.write(args)


if __name__ == '__main__':
  main()
