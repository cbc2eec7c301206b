#!/usr/bin/env python3
"""weft launch: processes, output, exit codes, faults, signals, allocations; and JAX programs under it."""
import os
import signal
import subprocess
import sys
import tempfile

import jaxlib_common
from jaxlib_common import HERE, weft


def launch(*args, env=None, timeout=120):
  return subprocess.run([weft(), 'launch', *args], capture_output=True, text=True, timeout=timeout,
                        env={**{k: v for k, v in os.environ.items() if not k.startswith('SLURM_')}, **(env or {})})


def shell(script):
  return ['--', 'sh', '-c', script]


def output_carries_the_rank_and_exit_codes_are_gathered():
  r = launch('-n', '3', *shell('echo out $WEFT_PROCESS_ID/$WEFT_NUM_PROCESSES; echo err >&2'))
  assert r.returncode == 0, r
  assert sorted(r.stdout.splitlines()) == [f'[{i}] out {i}/3' for i in range(3)], r.stdout
  assert sorted(r.stderr.splitlines()) == [f'[{i}] err' for i in range(3)], r.stderr


def first_failure_stops_the_rest_in_order():
  with tempfile.TemporaryDirectory() as d:
    r = launch('-n', '3', *shell(f'if [ $WEFT_PROCESS_ID = 1 ]; then until [ -e {d}/0 ] && [ -e {d}/2 ]; do sleep 0.01; done; exit 5; fi; '
                                 f'trap "echo stopped; exit 0" TERM; touch {d}/$WEFT_PROCESS_ID; sleep 30 & wait'))
  assert r.returncode == 5, r
  assert r.stdout.splitlines() == ['[2] stopped', '[0] stopped'], r.stdout
  assert 'rank 1 exited with 5' in r.stderr


def deaf_process_is_killed_after_the_grace():
  r = launch('-n', '2', '--grace', '1s', *shell('trap "" TERM; [ $WEFT_PROCESS_ID = 1 ] && exit 4; sleep 3000'))
  assert r.returncode == 4, r


def killed_process_gives_its_signal():
  r = launch('-n', '2', '--fault', 'kill:rank=1,after=0.3s', '--', 'sleep', '3000')
  assert r.returncode == 128 + signal.SIGKILL and 'rank 1 was killed by signal 9' in r.stderr, r


def killed_process_counts_where_another_ends_first():
  with tempfile.TemporaryDirectory() as d:
    # The second waits until the launcher has taken note of the first, whose number is gone then.
    r = launch('-n', '2', '--grace', '60s', *shell(
        f'if [ $WEFT_PROCESS_ID = 0 ]; then echo $$ > {d}/new; mv {d}/new {d}/first; until [ -e {d}/deaf ]; do sleep 0.01; done; exit 3; fi; '
        f'trap "" TERM; touch {d}/deaf; until [ -e {d}/first ]; do sleep 0.01; done; '
        f'while kill -0 $(cat {d}/first) 2>/dev/null; do sleep 0.01; done; kill -SEGV $$'))
  assert r.returncode == 128 + signal.SIGSEGV, r
  assert r.stderr.index('rank 0 exited with 3') < r.stderr.index('rank 1 was killed by signal 11'), r


def recoverable_job_restarts_what_fails():
  with tempfile.TemporaryDirectory() as d:
    r = launch('-n', '2', '--recoverable', *shell(f'[ $WEFT_PROCESS_ID = 1 ] && mkdir {d}/once 2>/dev/null && exit 3; echo ran'))
  assert r.returncode == 0 and sorted(r.stdout.splitlines()) == ['[0] ran', '[1] ran'], r


def recoverable_job_goes_on_without_the_lost():
  r = launch('-n', '3', '--recoverable', '--restarts', '0', *shell('[ $WEFT_PROCESS_ID = 1 ] && exit 3; sleep 0.3; echo ran'))
  assert r.returncode == 0 and sorted(r.stdout.splitlines()) == ['[0] ran', '[2] ran'] and 'without rank 1' in r.stderr, r
  r = launch('-n', '2', '--recoverable', '--restarts', '1', *shell('exit 7'))
  assert r.returncode == 7, r


def each_process_makes_the_devices_asked_for():
  r = launch('-n', '2', '--devices-per-process', '3', *shell('echo $WEFT_NUM_DEVICES $JAX_NUM_CPU_DEVICES'))
  assert sorted(r.stdout.splitlines()) == ['[0] 3 3', '[1] 3 3'], r


def faults_are_replayed():
  with tempfile.TemporaryDirectory() as d: # the second start of the second process ends both
    r = launch('-n', '2', '--fault', 'restart:rank=1,after=3s,delay=0.2s', '--fault', 'stop:rank=0,after=0.2s,for=0.5s', *shell(
        f'echo start; if [ $WEFT_PROCESS_ID = 1 ]; then mkdir {d}/first 2>/dev/null && exec sleep 3000; touch {d}/again; fi; '
        f'until [ -e {d}/again ]; do sleep 0.05; done'))
  assert r.returncode == 0, r
  assert sorted(r.stdout.splitlines()) == ['[0] start', '[1] start', '[1] start'], r.stdout
  for text in 'rank 0 is stopped', 'rank 0 is continued', 'rank 1 is killed and restarted':
    assert text in r.stderr, r.stderr


def signals_are_passed_on():
  # A test run that was started with `&` ignores SIGINT, and a shell cannot trap what it was born ignoring.
  p = subprocess.Popen(['env', '--default-signal=INT', weft(), 'launch', '-n', '2',
                        *shell('trap "echo usr1" USR1; trap "echo int; exit 0" INT; echo ready; while :; do sleep 0.1; done')],
                       stdout=subprocess.PIPE, text=True)
  lines = [p.stdout.readline(), p.stdout.readline()]
  assert sorted(lines) == ['[0] ready\n', '[1] ready\n'], lines
  p.send_signal(signal.SIGUSR1)
  lines = [p.stdout.readline(), p.stdout.readline()]
  assert sorted(lines) == ['[0] usr1\n', '[1] usr1\n'], lines
  p.send_signal(signal.SIGINT)
  out, _ = p.communicate(timeout=20)
  assert sorted(out.splitlines()) == ['[0] int', '[1] int'], out
  assert p.returncode == 128 + signal.SIGINT, p.returncode


def inside_an_allocation_the_runner_starts_the_processes():
  for variable, runner, extra in ('SLURM_JOB_ID', 'srun', '--label'), ('PBS_NODEFILE', 'mpirun', 'env'):
    with tempfile.TemporaryDirectory() as d:
      with open(f'{d}/{runner}', 'w') as f:
        f.write('#!/bin/sh\necho runner "$@"; echo at $WEFT_COORD_ADDRESS for $WEFT_NUM_PROCESSES\nexit 6\n')
      os.chmod(f'{d}/{runner}', 0o755)
      env = {'PATH': f'{d}:' + os.environ['PATH'], variable: '1'}
      r = launch('-n', '4', '--', 'prog', 'arg', env=env)
      assert r.returncode == 6 and r.stdout.startswith(f'runner -n 4 {extra} ') and ' prog arg\nat ' in r.stdout, r
      assert (' WEFT_NUM_PROCESSES=4 ' in r.stdout) == (runner == 'mpirun'), r # mpirun does not hand our variables on
      assert ' for 4' in r.stdout
      r = launch('-n', '4', '--runner', f'{runner}  --with option', '--', 'prog', env={'PATH': env['PATH']})
      assert r.returncode == 6 and r.stdout.startswith(f'runner --with option -n 4 {extra} '), r
      r = launch('-n', '1', '--local', '--', 'echo', 'here', env=env)
      assert r.stdout == '[0] here\n', r


def mistakes_are_named():
  for args, text in (['-n', '0', '--', 'true'], 'expected 1 to'), (['-n', '2'], 'no command'), (['--what'], 'no option'), \
      (['-n', '2', '--fault', 'explode:rank=1', '--', 'true'], '--fault: expected'), \
      (['-n', '2', '--fault', 'kill:rank=2,after=1s', '--', 'true'], 'no rank 2'):
    r = launch(*args)
    assert r.returncode == 2 and text in r.stderr, r
  assert launch('-n', '1', '--', '/no/such/program').returncode == 127


def agents_find_the_service():
  peer = os.path.join(os.environ.get('WEFT_BUILDDIR', HERE + '/../../build'), 'tests/coord/agent_peer')
  r = launch('-n', '3', *shell(f'exec {peer} $WEFT_COORD_ADDRESS $WEFT_PROCESS_ID connect barrier,b,10 shutdown'))
  assert r.returncode == 0 and r.stdout.count('shutdown') == 3, r


def recoverable_agents_come_together_after_a_death():
  peer = os.path.join(os.environ.get('WEFT_BUILDDIR', HERE + '/../../build'), 'tests/coord/agent_peer')
  r = launch('-n', '3', '--recoverable', '--heartbeat-timeout', '4s', '--fault', 'restart:rank=1,after=1s,delay=1s',
             *shell(f'exec {peer} $WEFT_COORD_ADDRESS $WEFT_PROCESS_ID hb=4 connect sleep,2 waitlive,3,3 barrier,b,20 shutdown'))
  assert r.returncode == 0, r


def jax_program_needs_no_change():
  r = launch('-n', '4', '--devices-per-process', '2', '--', jaxlib_common.python(), HERE + '/jax_program.py', '4', timeout=300)
  assert r.returncode == 0 and r.stdout.count('all is well') == 4, r


def jax_program_agrees_on_a_step_before_preemption():
  r = launch('-n', '2', '--', jaxlib_common.python(), HERE + '/jax_program.py', '2', 'preempt', timeout=300)
  assert r.returncode == 0 and r.stdout.count('all is well') == 2, r


if __name__ == '__main__':
  sys.exit(jaxlib_common.run([
      output_carries_the_rank_and_exit_codes_are_gathered,
      first_failure_stops_the_rest_in_order,
      deaf_process_is_killed_after_the_grace,
      killed_process_gives_its_signal,
      killed_process_counts_where_another_ends_first,
      recoverable_job_restarts_what_fails,
      recoverable_job_goes_on_without_the_lost,
      each_process_makes_the_devices_asked_for,
      faults_are_replayed,
      signals_are_passed_on,
      inside_an_allocation_the_runner_starts_the_processes,
      mistakes_are_named,
      agents_find_the_service,
      recoverable_agents_come_together_after_a_death,
  ] + ([jax_program_needs_no_change, jax_program_agrees_on_a_step_before_preemption] if jaxlib_common.has_jaxlib() else []),
                              needs_jaxlib=False))
