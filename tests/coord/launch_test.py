#!/usr/bin/env python3
"""weft launch: processes, output, exit codes, faults, signals, allocations; and JAX programs under it."""
import os
import signal
import subprocess
import sys
import tempfile
import time

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
    # The second process waits until the launcher has noticed the end of the first: then the first one's process id does not exist.
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
  p = subprocess.Popen([weft(), 'launch', '-n', '2',
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


def a_runner_and_its_ranks_are_told_apart():
  peer = os.path.join(os.environ.get('WEFT_BUILDDIR', HERE + '/../../build'), 'tests/coord/agent_peer')
  with tempfile.TemporaryDirectory() as d:
    with open(f'{d}/mpirun', 'w') as f: # the processes of both ranks; the second's code is its own, and the first is killed a second later
      f.write('#!/bin/sh\nshift 2\nWEFT_PROCESS_ID=0 WEFT_COORD_TASK=0 "$@" & first=$!\nWEFT_PROCESS_ID=1 WEFT_COORD_TASK=1 "$@"; code=$?\n'
              'sleep 1; kill $first; wait $first; exit $code\n')
    os.chmod(f'{d}/mpirun', 0o755)
    run = (f'[ $WEFT_PROCESS_ID = 0 ] && exec {peer} $WEFT_COORD_ADDRESS 0 connect get,never,60000; '
           f'{peer} $WEFT_COORD_ADDRESS 1 connect $0; exit 6')
    env = {'PATH': f'{d}:' + os.environ['PATH']}
    r = launch('-n', '2', '--bind', '127.0.0.1:0', '--runner', 'mpirun', '--', 'sh', '-c', run, 'crash', env=env)
    assert r.returncode == 6 and 'the runner (mpirun) exited with 6' in r.stderr and 'rank 0 exited' not in r.stderr, r
    assert 'rank 1 was the first to end, without leaving the job' in r.stderr, r.stderr
    r = launch('-n', '2', '--bind', '127.0.0.1:0', '--runner', 'mpirun', '--', 'sh', '-c', run, 'report,broken', env=env)
    assert r.returncode == 6 and 'rank 1 failed: ' in r.stderr and 'broken' in r.stderr, r
    r = launch('-n', '2', '--runner', '/no/such/runner', '--', 'true')
    assert r.returncode == 127 and 'the runner (/no/such/runner) exited with 127' in r.stderr and 'no such command' in r.stderr, r


def the_secrets_of_killed_launchers_are_removed_and_those_of_live_ones_are_not():
  with tempfile.TemporaryDirectory() as d:
    with open(f'{d}/mpirun', 'w') as f:
      f.write('#!/bin/sh\nshift 2\nexec "$@"\n')
    os.chmod(f'{d}/mpirun', 0o755)
    env = {**{k: v for k, v in os.environ.items() if not k.startswith('SLURM_')},
           'PATH': f'{d}:' + os.environ['PATH'], 'XDG_CACHE_HOME': d, 'WEFT_COORD_SECRET_FILE': ''}
    run = [weft(), 'launch', '-n', '1', '--bind', '127.0.0.1:0', '--runner', 'mpirun', '--', 'sh', '-c', 'echo $WEFT_COORD_SECRET_FILE; exec sleep 300']
    jobs = [subprocess.Popen(run, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)]
    try:
      dead, live = [job.stdout.readline().strip() for job in jobs]
      elsewhere, old = f'{d}/weft/jobs/elsewhere-1.secret', f'{d}/weft/jobs/elsewhere-2.secret'
      for file in elsewhere, old:
        with open(file, 'w') as f:
          f.write('0' * 64)
      os.utime(old, (time.time() - 40 * 24 * 3600,) * 2)
      jobs[0].kill()
      jobs[0].wait()
      assert os.path.exists(dead) and os.path.exists(live)
      r = subprocess.run(run[:-1] + ['true'], env=env, capture_output=True, text=True, timeout=60)
      assert r.returncode == 0, r
      assert sorted(os.listdir(f'{d}/weft/jobs')) == sorted(os.path.basename(f) for f in (live, elsewhere)), os.listdir(f'{d}/weft/jobs')
    finally:
      for job in jobs:
        job.terminate() # the launcher passes it on; nothing for the killed one
        job.wait(60)
        job.stdout.close()


def the_secret_of_a_runners_job_is_a_file_that_goes():
  with tempfile.TemporaryDirectory() as d:
    with open(f'{d}/mpirun', 'w') as f:
      f.write('#!/bin/sh\nshift 2\n"$@"\n')
    os.chmod(f'{d}/mpirun', 0o755)
    env = {'PATH': f'{d}:' + os.environ['PATH'], 'XDG_CACHE_HOME': d, 'WEFT_COORD_SECRET_FILE': ''}
    r = launch('-n', '1', '--runner', 'mpirun', '--', 'sh', '-c', 'stat -c "%a %s" $WEFT_COORD_SECRET_FILE; echo $WEFT_COORD_SECRET_FILE', env=env)
    assert r.returncode == 0 and r.stdout.startswith(f'600 64\n{d}/weft/jobs/'), r
    assert os.listdir(f'{d}/weft/jobs') == [], 'the secret is still there'
    r = launch('-n', '1', '--', 'sh', '-c', 'echo "$WEFT_COORD_SECRET_FILE"', env={'WEFT_COORD_SECRET_FILE': jaxlib_common.job_secret()})
    assert r.stdout.strip() == '[0] ' + jaxlib_common.job_secret(), r # the user's own
    r = launch('-n', '1', '--insecure', '--', 'sh', '-c', 'echo "$WEFT_COORD_SECRET_FILE"', env={'WEFT_COORD_SECRET_FILE': ''})
    assert r.stdout == '[0] \n', r


def status_says_how_a_job_is_protected():
  tool = weft()
  r = launch('-n', '1', *shell(f'{tool} coord status; {tool} info --job; {tool} coord status --json'), env={'WEFT_COORD_SECRET_FILE': ''})
  assert r.returncode == 0 and r.stdout.count('protected by a secret; clients without it are let in by the user id, on this machine only') == 2, r
  assert 'connections let in: 1 by secret; not yet: 0; calls refused: 0' in r.stdout, r.stdout
  assert '"protection": {"secret": true, "tls": false' in r.stdout and '"by_secret": 1' in r.stdout, r.stdout
  began = time.monotonic()
  r = subprocess.run([tool, 'coord', 'status', f'127.0.0.1:{jaxlib_common.free_port()}'], capture_output=True, text=True, timeout=60)
  assert r.returncode == 3 and 'Connection refused' in r.stderr and time.monotonic() - began < 5, r
  r = subprocess.run([tool, 'coord', 'status', f'127.0.0.1:{jaxlib_common.free_port()}', '--wait', '--init-timeout', '0.5s'], capture_output=True,
                     text=True, timeout=60)
  assert r.returncode == 3, r


def a_forgotten_variable_is_named():
  clean = {k: v for k, v in os.environ.items() if not k.startswith(('WEFT_COORD', 'WEFT_NUM', 'WEFT_PROCESS', 'SLURM_', 'OMPI_', 'PMI'))}
  for env, name in ({'WEFT_COORD_ADDRESS': '127.0.0.1:1', 'WEFT_NUM_PROCESSES': '2'}, 'WEFT_PROCESS_ID is not'), \
      ({'WEFT_NUM_PROCESSES': '2'}, 'WEFT_PROCESS_ID is not'), ({'WEFT_PROCESS_ID': '0', 'WEFT_COORD_ADDRESS': '127.0.0.1:1'}, 'WEFT_NUM_PROCESSES is not'), \
      ({'WEFT_NUM_PROCESSES': '2', 'WEFT_PROCESS_ID': '0'}, 'set WEFT_COORD_ADDRESS'):
    with tempfile.NamedTemporaryFile('w', suffix='.hlo') as f:
      f.write('HloModule m\nENTRY e { ROOT c = f32[] constant(1) }\n')
      f.flush()
      r = subprocess.run([weft(), 'run', f.name], capture_output=True, text=True, timeout=60, env={**clean, **env})
      assert r.returncode == 2 and name in r.stderr, (env, r)
      r = subprocess.run([weft(), 'run', f.name], capture_output=True, text=True, timeout=60, env={**clean, 'WEFT_NUM_PROCESSES': '1'})
      assert r.returncode == 0, r


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


def a_process_that_never_joins_is_named():
  peer = os.path.join(os.environ.get('WEFT_BUILDDIR', HERE + '/../../build'), 'tests/coord/agent_peer')
  others = f'exec {peer} $WEFT_COORD_ADDRESS $WEFT_PROCESS_ID fails,DEADLINE_EXCEEDED,1 connect'
  r = launch('-n', '3', '--register-timeout', '4s', *shell(f'[ $WEFT_PROCESS_ID != 1 ] || exit 0; {others}'))
  assert 'rank 1 ended with 0 and never joined the job: 2 processes wait there for it' in r.stderr, r
  # Nothing is said where no process joins, or where one ends with 0 after it has left.
  r = launch('-n', '2', *shell('[ $WEFT_PROCESS_ID = 1 ] || sleep 1.5'))
  assert r.returncode == 0 and 'never joined' not in r.stderr, r
  alone = f'exec {peer} $WEFT_COORD_ADDRESS $WEFT_PROCESS_ID connect shutdown'
  r = launch('-n', '2', *shell(f'[ $WEFT_PROCESS_ID = 1 ] && {alone}; {peer} $WEFT_COORD_ADDRESS $WEFT_PROCESS_ID connect shutdown; sleep 1.5'))
  assert r.returncode == 0 and 'never joined' not in r.stderr, r


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
      a_runner_and_its_ranks_are_told_apart,
      the_secret_of_a_runners_job_is_a_file_that_goes,
      the_secrets_of_killed_launchers_are_removed_and_those_of_live_ones_are_not,
      status_says_how_a_job_is_protected,
      a_forgotten_variable_is_named,
      agents_find_the_service,
      a_process_that_never_joins_is_named,
      recoverable_agents_come_together_after_a_death,
  ] + ([jax_program_needs_no_change, jax_program_agrees_on_a_step_before_preemption] if jaxlib_common.has_jaxlib() else []),
                              needs_jaxlib=False))
