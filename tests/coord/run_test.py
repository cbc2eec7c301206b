#!/usr/bin/env python3
"""`weft run` in a job of several processes: the same results as in one, and the specified errors when a process dies, is
stopped, or the network between two machines (network namespaces) breaks.

    run_test.py --random FROM TO    those of the random programs (collective_programs.py), in one process and in several"""
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

import collective_programs
import jaxlib_common
from jaxlib_common import Skip, weft

PATH = os.environ.get('PATH', '') + ':/usr/sbin:/sbin'
# Each of four devices has its own values; all meet in an all-reduce, and pairs exchange in a loop.
PROGRAM = '''HloModule ring, replica_count=4
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
body {
  p = (s32[], f32[6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[6] get-tuple-element(p), index=1
  one = s32[] constant(1)
  half = f32[] constant(0.5)
  h = f32[6] broadcast(half), dimensions={}
  s = f32[6] all-reduce(x), replica_groups={{0,2},{1,3}}, to_apply=add, metadata={source_file="/home/me/model.py" source_line=7}
  y = f32[6] multiply(s, h)
  z = f32[6] collective-permute(y), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  n = s32[] add(i, one)
  ROOT t = (s32[], f32[6]) tuple(n, z)
}
more { p = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(p), index=0 k = s32[] constant(COUNT) ROOT c = pred[] compare(i, k), direction=LT }
ENTRY e {
  r = u32[] replica-id()
  f = f32[] convert(r)
  b = f32[6] broadcast(f), dimensions={}
  i = f32[6] iota(), iota_dimension=0
  x = f32[6] add(b, i)
  zero = s32[] constant(0)
  init = (s32[], f32[6]) tuple(zero, x)
  w = (s32[], f32[6]) while(init), condition=more, body=body
  v = f32[6] get-tuple-element(w), index=1
  ROOT s = f32[6] all-reduce(v), replica_groups={}, to_apply=add
}
'''


def clean_environment(**more):
  drop = 'SLURM_', 'OMPI_', 'PMIX_', 'PMI_', 'WEFT_COORD', 'WEFT_NUM', 'WEFT_PROCESS', 'JAX_'
  return {**{k: v for k, v in os.environ.items() if not k.startswith(drop)}, 'PATH': PATH,
          'WEFT_COORD_SECRET_FILE': jaxlib_common.job_secret(), **more}


class Folder:
  """A temporary folder with the program."""

  def __init__(self, count=3):
    self.count = count

  def __enter__(self):
    self.path = tempfile.mkdtemp(prefix='weft-run-')
    self.program = self.path + '/program.hlo'
    with open(self.program, 'w') as f:
      f.write(PROGRAM.replace('COUNT', str(self.count)))
    return self

  def __exit__(self, *_):
    shutil.rmtree(self.path, ignore_errors=True)

  def results(self, name):
    found = []
    for d in range(4):
      with open(f'{self.path}/{name}/result_{d}.npy', 'rb') as f:
        found.append(f.read())
    return found


def run(command, timeout=240, **env):
  return subprocess.run(command, env=clean_environment(**env), capture_output=True, text=True, timeout=timeout, check=False)


def succeeds(command, **env):
  r = run(command, **env)
  assert r.returncode == 0, (r.returncode, r.stdout[-2000:], r.stderr[-4000:])
  return r


def processes_compute_what_one_does():
  with Folder() as f:
    succeeds([weft(), 'run', f.program, '--output-dir', f.path + '/alone'], WEFT_COLLECTIVE_ORDER='rank')
    for count in 2, 3, 4:
      for transport in ('shm',) if os.environ.get('WEFT_TEST_NO_FABRIC') else ('shm', 'fabric'):
        folder = f'{f.path}/{count}{transport}'
        r = succeeds([weft(), 'launch', '-n', str(count), '--', weft(), 'run', f.program, '--output-dir', folder],
                     WEFT_COLLECTIVE_ORDER='rank', WEFT_COLLECTIVE_TRANSPORT=transport)
        assert f.results(f'{count}{transport}') == f.results('alone'), (count, transport)
        for d in range(4):
          assert f'device {d} result 0' in r.stdout, r.stdout


def too_few_devices_are_an_error_and_alone_is_alone():
  with Folder() as f:
    r = run([weft(), 'launch', '-n', '5', '--', weft(), 'run', f.program])
    assert r.returncode == 2 and 'too few for the job\'s 5 processes' in r.stderr, r
    r = succeeds([weft(), 'launch', '-n', '2', '--', weft(), 'run', '--alone', f.program])
    assert r.stdout.count('device 3 result 0') == 2, r.stdout


def processes_of_a_machine_take_gpus_of_their_own():
  """Three processes share a machine of eight GPUs; a process that sees only its own GPU has that one."""
  if os.environ.get('WEFT_PLATFORM') != 'cuda':
    raise Skip('not on GPUs')
  with Folder() as f:
    r = succeeds([weft(), 'launch', '-n', '3', '--', weft(), 'run', f.program], WEFT_LOG='gpu:info')
    found = sorted(re.findall(r'^\[(\d)\].*device (\d) is GPU (\d),', r.stdout + r.stderr, re.M))
    assert found == [('0', '0', '0'), ('0', '1', '1'), ('1', '0', '2'), ('2', '0', '3')], (found, r.stdout, r.stderr)
    r = succeeds([weft(), 'launch', '-n', '4', '--', weft(), 'run', f.program], WEFT_LOG='gpu:info', WEFT_EMU_DEVICES='1')
    found = sorted(re.findall(r'^\[(\d)\].*device (\d) is GPU (\d),', r.stdout + r.stderr, re.M))
    assert found == [(str(i), '0', '0') for i in range(4)], (found, r.stdout, r.stderr)


def read_s32(path):
  with open(path, 'rb') as f:
    data = f.read()
  start = 10 + struct.unpack('<H', data[8:10])[0]
  return list(struct.unpack(f'<{(len(data) - start) // 4}i', data[start:]))


def check_random(seed, processes, **env):
  p = collective_programs.Program(seed)
  with tempfile.TemporaryDirectory() as d:
    with open(d + '/p.hlo', 'w') as f:
      f.write(p.text)
    r = run(([weft(), 'launch', '-n', str(processes), '--'] if processes > 1 else []) +
            [weft(), 'run', '--quiet', d + '/p.hlo', '--output-dir', d], **env)
    if os.environ.get('WEFT_PLATFORM') == 'cuda' and 'UNIMPLEMENTED: reduction by ' in r.stderr:
      return p.devices # a reduction of the program's own (docs/unimplemented.md)
    about = f'program {seed} in {processes} processes {env}'
    assert r.returncode == 0, (about, r.stderr[-3000:], p.text)
    for device, results in enumerate(p.want):
      for k, want in enumerate(results):
        got = read_s32(f'{d}/result_{device * len(results) + k}.npy')
        assert got == want, (f'{about}, device {device}, result {k}: got {got}, want {want}', p.text)
  return p.devices


def random_programs_of_collectives():
  for seed in range(12):
    devices = check_random(seed, 1)
    if seed % 3 == 0:
      check_random(seed, min(devices, 2 + seed // 3))
  if not os.environ.get('WEFT_TEST_NO_FABRIC'):
    check_random(2, 2, WEFT_COLLECTIVE_TRANSPORT='fabric')


def on_survivors(rank, fault, **env):
  """The output of the other three ranks when `fault` strikes one of four in an endless run; SIGTERM does not end them."""
  with Folder(1000000000) as f:
    return run([weft(), 'launch', '-n', '4', '--grace', '60s', '--', 'sh', '-c',
                f'trap "" TERM; [ $WEFT_PROCESS_ID != {rank} ] || export WEFT_COLLECTIVE_FAULTS={fault}; '
                f'exec {weft()} run --quiet {f.program}'], **env)


def death_of_a_process_is_told_to_all():
  r = on_survivors(2, 'kill@500', WEFT_COLLECTIVE_TIMEOUT='200s')
  lines = [line for line in r.stderr.splitlines() if 'weft run:' in line]
  assert r.returncode == 137 and 1 <= len(lines) <= 3, r.stderr # the launcher may stop a slow one before it says anything
  assert any('is not connected: rank' in line for line in lines), r.stderr
  assert not any('DEADLINE_EXCEEDED' in line for line in lines), r.stderr # who waits for a survivor hears that this one has left


def stopped_process_is_named_at_the_deadline():
  r = on_survivors(1, 'stop@500', WEFT_COLLECTIVE_TIMEOUT='5s')
  assert re.search(r'all-reduce f32\[6\] sum "s" at model.py:7 of ring .* passed its deadline', r.stderr) or \
      re.search(r'collective-permute .* passed its deadline', r.stderr), r.stderr
  assert '(device 2048' in r.stderr and 'does not answer: stopped, or starved of CPU' in r.stderr, r.stderr


def errors_of_several_ranks_do_not_nest():
  """Rank 3 is stopped, rank 2 waits for it, rank 1 for rank 2, and rank 0 for rank 1. Rank 2's deadline passes first; the
  other two get its report from one another, and each prints the report once and without a word that is true in rank 2 only."""
  groups = '{2,3},{0},{1}', '{1,2},{0},{3}', '{0,1},{2},{3}'
  sums = ''.join(f'  s{i} = f32[6] all-reduce(x{i}), replica_groups={{{g}}}, to_apply=add\n  x{i + 1} = f32[6] sine(s{i})\n'
                 for i, g in enumerate(groups))
  with Folder() as f:
    with open(f.program, 'w') as out:
      out.write(f'''HloModule chain, replica_count=4
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
more {{ p = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(p), index=0 k = s32[] constant(2000000000) ROOT c = pred[] compare(i, k), direction=LT }}
body {{
  p = (s32[], f32[6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x0 = f32[6] get-tuple-element(p), index=1
{sums}  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT t = (s32[], f32[6]) tuple(n, x3)
}}
ENTRY e {{ x = f32[6] parameter(0) zero = s32[] constant(0) init = (s32[], f32[6]) tuple(zero, x) ROOT w = (s32[], f32[6]) while(init), condition=more, body=body }}
''')
    r = run([weft(), 'launch', '-n', '4', '--grace', '60s', '--', 'sh', '-c',
             'trap "" TERM; [ $WEFT_PROCESS_ID != 3 ] || export WEFT_COLLECTIVE_FAULTS=stop@100; [ $WEFT_PROCESS_ID = 2 ] || '
             f'export WEFT_COLLECTIVE_TIMEOUT=200s; exec {weft()} run --quiet {f.program}'], WEFT_COLLECTIVE_TIMEOUT='5s')
  errors = [[line for line in r.stderr.splitlines() if line.startswith(f'[{rank}] ')] for rank in range(3)]
  operation = r'all-reduce f32\[6\] sum "s0" of chain \(seq \d+, 24 bytes\) on communicator \S+'
  for rank, lines in enumerate(errors):
    text = '\n'.join(lines)
    begin = rf'\[{rank}\] weft run: {"DEADLINE_EXCEEDED" if rank == 2 else "ABORTED"}: {operation} passed its deadline by'
    assert lines and re.match(begin, lines[0]), r.stderr
    for once in 'passed its deadline', '  arrived: 1 of 2', 'not arrived: 1 of 2', '(device 4096 on ', '(device 6144 on ':
      assert text.count(once) == 1, (once, r.stderr)
    assert 'failed on device' not in text and 'was aborted' not in text and 'this process' not in text, r.stderr


def recorders_of_a_running_job_can_be_asked_for():
  # One of the processes reports the service's address: a port that is chosen in advance may be in use when the service binds it.
  with Folder(1000000000) as f:
    address = f.path + '/address'
    job = subprocess.Popen([weft(), 'launch', '-n', '4', '--grace', '1s', '--', 'sh', '-c',
                            f'[ $WEFT_PROCESS_ID = 0 ] && echo $WEFT_COORD_ADDRESS > {address}.new && mv {address}.new {address}; '
                            f'exec {weft()} run --quiet {f.program}'],
                           env=clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # A recorder holds its rank's last operations; early in the job that is the first operation only.
    expected = [f' rank {r} (device {2048 * r}): ' for r in range(4)] + ['collective-permute f32[6] "z"', 'all-reduce f32[6] sum "s"']
    said = ''
    try:
      for _ in range(300):
        if os.path.exists(address):
          with open(address) as a:
            said = run([weft(), 'coord', 'status', a.read().strip(), '--flight']).stdout
        if said.count('\nincarnation ') == 4 and all(e in said for e in expected):
          break
        assert job.poll() is None, job.returncode
        time.sleep(0.2)
      else:
        raise AssertionError(said)
    finally:
      job.terminate()
      job.wait(timeout=60)


# ---- mpirun, on one machine and on two ----


class Machines:
  """Two network namespaces with a cable, and what starts a command in one of them as ssh would: without our environment."""
  ADDRESSES = '10.91.0.1', '10.91.0.2'

  def __enter__(self):
    if os.geteuid() != 0 or not shutil.which('ip', path=PATH):
      raise Skip('needs root and ip')
    if os.environ.get('WEFT_TEST_NO_FABRIC'):
      raise Skip('no libfabric here')
    self.folder = tempfile.mkdtemp(prefix='weft-machines-')
    self.names = [os.path.basename(self.folder) + c for c in 'ab'] # tests run side by side
    self.shell = self.folder + '/shell'
    a, b = self.names
    setup = f'''set -e
      ip netns add {a}; ip netns add {b}
      ip link add wa netns {a} type veth peer name wb netns {b}
      for x in {a} {b}; do ip netns exec $x ip link set lo up; done
      ip netns exec {a} ip addr add {self.ADDRESSES[0]}/24 dev wa; ip netns exec {a} ip link set wa up
      ip netns exec {b} ip addr add {self.ADDRESSES[1]}/24 dev wb; ip netns exec {b} ip link set wb up'''
    if subprocess.run(['sh', '-c', setup], env=clean_environment(), stderr=subprocess.DEVNULL, check=False).returncode != 0:
      self.__exit__()
      raise Skip('no network namespaces or veth pairs here')
    sanitizers = ' '.join(f"{k}='{v}'" for k, v in os.environ.items() if k in ('ASAN_OPTIONS', 'LSAN_OPTIONS', 'UBSAN_OPTIONS'))
    with open(self.shell, 'w') as f:
      f.write(f'''#!/bin/sh
case $1 in {self.ADDRESSES[0]}) name={a};; *) name={b};; esac
shift
exec env -i PATH="{PATH}" HOME="$HOME" {sanitizers} ip netns exec $name sh -c "$*"
''')
    os.chmod(self.shell, 0o755)
    return self

  def __exit__(self, *_):
    for name in self.names:
      subprocess.run(['ip', 'netns', 'del', name], env=clean_environment(), stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(self.folder, ignore_errors=True)

  def on_first(self, *command):
    return ['ip', 'netns', 'exec', self.names[0], *command]

  def mpirun(self, hosts):
    return ['mpirun', '--allow-run-as-root', '--oversubscribe', '--mca', 'plm', 'rsh', '--mca', 'plm_rsh_agent', self.shell,
            '--mca', 'oob_tcp_if_include', '10.91.0.0/24', '--host', hosts]


def need_open_mpi():
  if not shutil.which('mpirun', path=PATH) or 'Open MPI) 4' not in run(['mpirun', '--version']).stdout:
    raise Skip('no mpirun of Open MPI 4')


def program_under_mpirun():
  need_open_mpi()
  with Folder() as f:
    succeeds([weft(), 'run', f.program, '--output-dir', f.path + '/alone'], WEFT_COLLECTIVE_ORDER='rank')
    succeeds(['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', '4', weft(), 'run', f.program, '--output-dir', f.path + '/mpi'],
             WEFT_COLLECTIVE_ORDER='rank')
    assert f.results('mpi') == f.results('alone')


def program_under_mpirun_on_two_machines():
  """By itself, by `weft launch`, which brings service and settings along, and from a machine that has none of the processes."""
  need_open_mpi()
  if os.environ.get('WEFT_PLATFORM') == 'cuda':
    raise Skip('the ranks of the emulated NCCL meet in the shared memory of one machine')
  with Machines() as m, Folder() as f:
    first, second = m.ADDRESSES
    weft_run = [os.path.abspath(weft()), 'run', f.program]
    succeeds([weft(), 'run', f.program, '--output-dir', f.path + '/alone'], WEFT_COLLECTIVE_ORDER='rank')
    succeeds(m.on_first(*m.mpirun(f'{first}:2,{second}:2'), '-n', '4', '-x', 'WEFT_COLLECTIVE_ORDER=rank', '-x', 'WEFT_COORD_SECRET_FILE', *weft_run,
                        '--output-dir', f.path + '/mpi'))
    succeeds(m.on_first(weft(), 'launch', '-n', '4', '--bind', first + ':0', '--runner', ' '.join(m.mpirun(f'{second}:2,{first}:2')),
                        '--', *weft_run, '--output-dir', f.path + '/launch'), WEFT_COLLECTIVE_ORDER='rank', WEFT_COORD_SECRET_FILE='') # its own
    for way in 'mpi', 'launch':
      assert f.results(way) == f.results('alone'), way
    r = run(m.on_first(*m.mpirun(second + ':4'), '-n', '4', *weft_run))
    assert r.returncode != 0 and f'"ompi" names {first} as the first machine: set WEFT_COORD_ADDRESS' in r.stderr, r


def wait_until_all_run(folder, ranks):
  """The recorders of the communicator of all four exist, and their last operations are of the program."""
  inspected = None
  for _ in range(600):
    files = [name for name in os.listdir(folder) if name.startswith('flight-')]
    if any('rank3' in name for name in files):
      inspected = run([weft(), 'inspect', '--flight'] + [f'{folder}/{name}' for name in files])
      if 'collective-permute' in inspected.stdout:
        return
    assert all(p.poll() is None for p in ranks), 'a process has ended'
    time.sleep(0.2)
  raise AssertionError(f'the processes do not get to work: {inspected}')


def partition_between_machines_ends_in_deadlines():
  """Both sides list who is missing; the process whose deadline is first may be on either."""
  with Machines() as m, Folder(1000000000) as f, tempfile.TemporaryFile('w+') as said:
    program = f'{os.path.abspath(weft())} run --quiet {f.program}'
    env = (f'WEFT_COORD_SECRET_FILE={jaxlib_common.job_secret()} WEFT_COORD_ADDRESS={m.ADDRESSES[0]}:7777 WEFT_NUM_PROCESSES=4 WEFT_COLLECTIVE_TIMEOUT=5s '
           f'WEFT_COLLECTIVE_FLIGHT_DIR={f.path}')
    ranks = [subprocess.Popen([m.shell, m.ADDRESSES[r // 2], f'{env} WEFT_PROCESS_ID={r} exec {program}'], stdout=said, stderr=said)
             for r in range(4)]
    try:
      wait_until_all_run(f.path, ranks)
      subprocess.run(m.on_first('ip', 'link', 'set', 'wa', 'down'), env=clean_environment(), check=True)
      codes = [p.wait(timeout=240) for p in ranks] # 5 s, the diagnosis, and three for a service that cannot be told
    finally:
      for p in ranks:
        p.kill()
        p.wait()
      said.seek(0)
      text = said.read()
      if sys.exc_info()[0]:
        print(text, file=sys.stderr)
    assert codes == [3, 3, 3, 3] and text.count('weft run:') == 4, (codes, text)
    # A process whose neighbour has ended already gets the error that the neighbour has left; the other errors name the other machine.
    deadlines = [error for error in text.split('weft run: ') if error.startswith('DEADLINE_EXCEEDED')]
    assert len(deadlines) >= 2 and all('not arrived: ' in error for error in deadlines), text
    assert all('cannot be reached (' in error and 'is gone' not in error for error in deadlines), text


if __name__ == '__main__':
  if sys.argv[1:2] == ['--random']:
    for number in range(int(sys.argv[2]), int(sys.argv[3])):
      check_random(number, min(check_random(number, 1), 2 + number % 4))
    sys.exit(0)
  sys.exit(jaxlib_common.run([
      processes_compute_what_one_does,
      random_programs_of_collectives,
      too_few_devices_are_an_error_and_alone_is_alone,
      processes_of_a_machine_take_gpus_of_their_own,
      death_of_a_process_is_told_to_all,
      stopped_process_is_named_at_the_deadline,
      errors_of_several_ranks_do_not_nest,
      recorders_of_a_running_job_can_be_asked_for,
      program_under_mpirun,
      program_under_mpirun_on_two_machines,
      partition_between_machines_ends_in_deadlines,
  ], needs_jaxlib=False))
