#!/usr/bin/env python3
"""weft launch --hosts, --bind-to and --output-file: hosts that a script, in place of ssh, stands for, and a real sshd on loopback."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import jaxlib_common
from jaxlib_common import HERE, Skip, free_port, weft
from launch_test import launch, shell

# Takes ssh's arguments and runs the command here.  It notes its process and its command line.
FAKE = r'''#!/bin/sh
echo "$$ $*" >> {d}/commands
{before}
while [ $# -gt 2 ]; do shift; done
exec sh -c "$2"
'''


class Fake:
  """A folder with a script that stands for ssh; `before` are commands that it runs first."""

  def __init__(self, before=''):
    self.before = before

  def __enter__(self):
    self.folder = tempfile.TemporaryDirectory()
    self.d = self.folder.name
    self.ssh = f'{self.d}/ssh'
    with open(self.ssh, 'w') as f:
      f.write(FAKE.format(d=self.d, before=self.before.replace('{d}', self.d)))
    os.chmod(self.ssh, 0o755)
    return self

  def __exit__(self, *_):
    self.folder.cleanup()

  def launch(self, *args, **kwargs):
    return launch('--ssh', self.ssh + ' -o Some=option', *args, **kwargs)

  def commands(self):
    with open(f'{self.d}/commands') as f:
      return f.read()


def is_running(pid):
  try:
    with open(f'/proc/{pid}/stat') as f:
      return f.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
  except FileNotFoundError:
    return False


def until(condition):
  deadline = time.monotonic() + 30
  while not condition():
    assert time.monotonic() < deadline, 'it does not come'
    time.sleep(0.02)


def ranks_fill_the_hosts_in_order():
  with Fake() as f:
    r = f.launch('--hosts', 'node1:2,ada@node2,node1', *shell('echo out $WEFT_PROCESS_ID/$WEFT_NUM_PROCESSES $WEFT_LOCAL_PROCESS_ID of $WEFT_LOCAL_PROCESSES $(pwd); echo err >&2'),
                 env={'WEFT_LOG': 'off'})
    here = os.getcwd()
    assert r.returncode == 0, r
    assert sorted(r.stdout.splitlines()) == [f'[{i}] out {i}/4 {k} of {n} {here}' for i, (k, n) in enumerate(((0, 3), (1, 3), (2, 3), (0, 1)))], r
    assert sorted(line for line in r.stderr.splitlines() if line.startswith('[')) == [f'[{i}] err' for i in range(4)], r
    assert f.commands().count('-o Some=option node1 exec') == 1 and f.commands().count('-o Some=option ada@node2 exec') == 1, f.commands()
    r = f.launch('--hosts', 'node1:2,node2:7', '-n', '3', *shell('echo $WEFT_NUM_PROCESSES'))
    assert r.returncode == 0 and sorted(r.stdout.splitlines()) == ['[0] 3', '[1] 3', '[2] 3'], r


def the_secret_stands_on_no_command_line():
  secret = 'one-secret-that-is-known'
  with Fake('tr "\\0" "\\n" < /proc/$$/environ | grep -c "$SOUGHT" > {d}/environ') as f:
    file = f'{f.d}/secret'
    with open(file, 'w') as out:
      out.write(secret)
    os.chmod(file, 0o600)
    r = f.launch('--hosts', 'node1:2', *shell('cat $WEFT_COORD_SECRET_FILE; echo; echo $WEFT_COORD_SECRET_FILE; cat /proc/[0-9]*/cmdline | tr "\\0" " "'),
                 env={'WEFT_COORD_SECRET_FILE': file, 'SOUGHT': secret[:10]})
    assert r.returncode == 0 and r.stdout.count(secret) == 2, r
    assert f'] {file}' not in r.stdout and '/proc/' in r.stdout, r # the host has a copy of its own, in memory
    assert secret not in f.commands()
    r = f.launch('--hosts', 'node1', '--insecure', *shell('echo "<$WEFT_COORD_SECRET_FILE>"'), env={'WEFT_COORD_SECRET_FILE': ''})
    assert r.returncode == 0 and r.stdout == '[0] <>\n', r


def agents_of_two_hosts_meet():
  peer = os.path.abspath(os.path.join(os.environ.get('WEFT_BUILDDIR', HERE + '/../../build'), 'tests/coord/agent_peer'))
  with Fake() as f:
    r = f.launch('--hosts', 'localhost:2,node2:2', *shell(f'exec {peer} $WEFT_COORD_ADDRESS $WEFT_PROCESS_ID connect barrier,b,30 shutdown'))
    assert r.returncode == 0 and r.stdout.count('shutdown') == 4, r
    assert f.commands().count('\n') == 1, f.commands() # this machine needs no ssh


def failures_signals_and_faults_are_those_of_local_jobs():
  with Fake() as f:
    r = f.launch('--hosts', 'node1:2,node2', '--grace', '1s', *shell('trap "echo stopped; exit 0" TERM; echo $WEFT_PROCESS_ID > ' + f.d +
                 '/here$WEFT_PROCESS_ID; until [ -e ' + f.d + '/here0 ] && [ -e ' + f.d + '/here1 ] && [ -e ' + f.d +
                 '/here2 ]; do sleep 0.02; done; [ $WEFT_PROCESS_ID = 1 ] && exit 5; sleep 30 & wait'))
    assert r.returncode == 5 and 'rank 1 on node1 exited with 5' in r.stderr, r
    assert r.stdout.splitlines() == ['[2] stopped', '[0] stopped'], r
    r = f.launch('--hosts', 'node1,node2', '--fault', 'kill:rank=1,after=0.5s', '--', 'sleep', '300')
    assert r.returncode == 128 + signal.SIGKILL and 'rank 1 on node2 was killed by signal 9' in r.stderr, r
    r = f.launch('--hosts', 'node1,node2', '--recoverable', *shell(f'[ $WEFT_PROCESS_ID = 1 ] && mkdir {f.d}/once 2>/dev/null && exit 3; echo ran'))
    assert r.returncode == 0 and sorted(r.stdout.splitlines()) == ['[0] ran', '[1] ran'], r
    r = f.launch('--hosts', 'node1', '--', '/no/such/program')
    assert r.returncode == 127 and 'no such command' in r.stderr, r
    p = subprocess.Popen([weft(), 'launch', '--ssh', f.ssh, '--hosts', 'node1:2',
                          *shell('trap "echo usr1; exit 0" USR1; echo ready; while :; do sleep 0.05; done')], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True)
    assert sorted(p.stdout.readline() for _ in range(2)) == ['[0] ready\n', '[1] ready\n']
    p.send_signal(signal.SIGUSR1)
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 0 and sorted(out.splitlines()) == ['[0] usr1', '[1] usr1'], out


def a_lost_host_ends_the_job_and_its_processes():
  with Fake() as f:
    script = f'echo $$ > {f.d}/pid$WEFT_PROCESS_ID; exec sleep 300'
    p = subprocess.Popen([weft(), 'launch', '--ssh', f.ssh, '--hosts', 'node1,node2', *shell(script)], stderr=subprocess.PIPE, text=True)
    pids = []
    for i in range(2):
      until(lambda i=i: os.path.exists(f'{f.d}/pid{i}') and os.path.getsize(f'{f.d}/pid{i}'))
      with open(f'{f.d}/pid{i}') as file:
        pids.append(int(file.read()))
    node2 = int(re.search(r'^(\d+) (?:.* )?node2 ', f.commands(), re.M).group(1))
    os.kill(node2, signal.SIGKILL)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 137 and 'the connection to node2 has ended' in err and 'rank 1 on node2' in err, (p.returncode, err)
    until(lambda: not any(is_running(pid) for pid in pids))


def kill_the_launcher(ssh, host, folder):
  """The process on the host ends too, although no message can reach it."""
  script = f'trap "" TERM HUP; echo $$ > {folder}/pid; sleep 300; :'
  p = subprocess.Popen([weft(), 'launch', '--ssh', ssh, '--hosts', host, *shell(script)], stderr=subprocess.DEVNULL)
  until(lambda: os.path.exists(f'{folder}/pid') and os.path.getsize(f'{folder}/pid'))
  with open(f'{folder}/pid') as file:
    pid = int(file.read())
  p.kill()
  p.wait()
  until(lambda: not is_running(pid))


def a_killed_launcher_leaves_nothing_behind():
  with Fake() as f:
    kill_the_launcher(f.ssh, 'node1', f.d)


def a_lost_host_of_a_recoverable_job_is_reached_again():
  with Fake() as f:
    script = f'if [ $WEFT_PROCESS_ID = 1 ] && mkdir {f.d}/once 2>/dev/null; then kill -9 $PPID; exec sleep 300; fi; echo ran'
    r = f.launch('--hosts', 'node1,node2', '--recoverable', *shell(script))
    assert r.returncode == 0 and sorted(r.stdout.splitlines()) == ['[0] ran', '[1] ran'] and 'the connection to node2' in r.stderr, r
    assert f.commands().count(' node2 ') == 2, f.commands()


def what_is_not_a_node_is_named():
  for before, text in (('echo welcome to node1', None), ('echo "weft launch --node 0.0.1"; sleep 300', 'the host has weft 0.0.1, and the launcher is weft'),
                       ('cat /dev/zero | tr "\\0" x', 'the program that ssh started there is not weft'), ('echo no route >&2; exit 255', 'node1: no route'),
                       ('exec >&-; exec sleep 300', 'the connection to node1 has ended')):
    with Fake(before) as f:
      r = f.launch('--hosts', 'node1', *shell('echo ran'))
      if text is None:
        assert r.returncode == 0 and r.stdout == '[0] ran\n' and 'node1: welcome' in r.stderr, r
      else:
        assert r.returncode not in (0, None) and text in r.stderr, r
  # frames that no node sends: an unknown kind, a rank of another host, more bytes than a frame may have
  for frame in ('\\011\\0\\0\\0' + '\\0' * 8, '\\004\\0\\0\\0\\007\\0\\0\\0' + '\\0' * 4, '\\004\\0\\0\\0\\0\\0\\0\\0\\377\\377\\377\\177'):
    version = subprocess.run([weft(), 'version'], capture_output=True, text=True, check=True).stdout.split()[1]
    with Fake(f"printf 'weft launch --node {version}\\n{frame}'; exec cat >/dev/null") as f:
      r = f.launch('--hosts', 'node1', *shell('echo ran'))
      assert r.returncode not in (0, None) and 'node1: ' in r.stderr and 'ran' not in r.stdout, r


def a_host_that_does_not_answer_is_given_up():
  with Fake('exec sleep 300') as f:
    p = subprocess.Popen([weft(), 'launch', '--ssh', f.ssh, '--hosts', 'node1', '--', 'true'], stderr=subprocess.PIPE, text=True)
    until(lambda: os.path.exists(f'{f.d}/commands'))
    for _ in range(2):
      p.send_signal(signal.SIGTERM)
      time.sleep(0.5)
    _, err = p.communicate(timeout=30)
    assert p.returncode == 128 + signal.SIGTERM and 'node1: weft does not answer there' in err, (p.returncode, err)
  with Fake('case "$*" in *node2*) exec sleep 300;; esac') as f: # one host fails, the other one does not answer
    r = f.launch('--hosts', 'node1,node2', '--grace', '0.2s', *shell('exit 5'))
    assert r.returncode == 5 and 'the connection to node2 has ended' in r.stderr, r


def a_profile_may_not_end_its_line():
  with Fake('printf prompt') as f:
    r = f.launch('--hosts', 'node1', *shell('echo ran'))
    assert r.returncode == 0 and r.stdout == '[0] ran\n', r


def much_output_arrives_whole_and_in_lines():
  with Fake() as f:
    r = f.launch('--hosts', 'node1:2,node2:2', *shell('seq 1 60000; printf end'))
    assert r.returncode == 0, r.stderr[-500:]
    for i in range(4):
      mine = [line[4:] for line in r.stdout.splitlines() if line.startswith(f'[{i}] ')]
      assert mine == [str(n) for n in range(1, 60001)] + ['end'], (i, len(mine))


def processes_are_bound():
  cpus = sorted(os.sched_getaffinity(0))
  cores = {open(f'/sys/devices/system/cpu/cpu{c}/topology/thread_siblings_list').read() for c in cpus}
  show = 'python3 -c "import os; print(sorted(os.sched_getaffinity(0)))"'
  with Fake() as f:
    for where in ['-n', '1'], ['--hosts', 'node1']:
      r = f.launch(*where, '--bind-to', 'none', *shell(show))
      assert r.stdout == f'[0] {cpus}\n', r
      r = f.launch(*where, '--bind-to', 'socket', *shell(show))
      assert r.returncode == 0 and set(eval(r.stdout[4:])) <= set(cpus), r # pylint: disable=eval-used
    n = len(cores)
    for where in ['-n', str(n)], ['--hosts', f'node1:{n}']:
      r = f.launch(*where, *shell('echo $WEFT_LOCAL_PROCESSES'))
      assert sorted(r.stdout.split()[1::2]) == [str(n)] * n, r # all share all CPUs
      r = f.launch(*where, '--bind-to', 'core', *shell('echo $WEFT_LOCAL_PROCESSES'))
      assert sorted(r.stdout.split()[1::2]) == ['1'] * n, r
      r = f.launch(*where, '--bind-to', 'core', *shell(show))
      seen = [c for line in r.stdout.splitlines() for c in eval(line.split(' ', 1)[1])] # pylint: disable=eval-used
      assert r.returncode == 0 and sorted(seen) == cpus, r # each core once
    for where in ['-n', str(n + 1)], ['--hosts', f'node1:{n + 1}']:
      r = f.launch(*where, '--bind-to', 'core', *shell('echo ran'))
      assert r.returncode != 0 and f'{n + 1} processes' in r.stderr and 'ran' not in r.stdout, r


def output_goes_to_files():
  with Fake() as f, tempfile.TemporaryDirectory() as d:
    say = shell('echo out $WEFT_PROCESS_ID; echo err $WEFT_PROCESS_ID >&2')
    for where, hosts in (['-n', '2'], [os.uname().nodename] * 2), (['--hosts', 'node1,node2'], ['node1', 'node2']):
      r = f.launch(*where, '--output-file', f'{d}/100%%.%h.%r', *say)
      assert r.returncode == 0 and r.stdout == '' and 'err 0' not in r.stderr, r
      for i, host in enumerate(hosts):
        with open(f'{d}/100%.{host}.{i}') as file:
          assert sorted(file) == [f'err {i}\n', f'out {i}\n']
      r = f.launch(*where, '--output-file', f'{d}/out', '--error-file', f'{d}/err.%r', *say)
      assert r.returncode == 0 and r.stdout == '', r
      with open(f'{d}/out') as file:
        assert sorted(file) == ['[0] out 0\n', '[1] out 1\n']
      with open(f'{d}/err.1') as file:
        assert file.read() == 'err 1\n'
      r = f.launch(*where, '--error-file', f'{d}/err.%r', *say)
      assert r.returncode == 0 and sorted(r.stdout.splitlines()) == ['[0] out 0', '[1] out 1'], r
    if os.path.exists('/dev/full'):
      r = f.launch('-n', '1', '--output-file', '/dev/full', *say)
      assert r.returncode == 3 and 'output is lost' in r.stderr and 'No space' in r.stderr, r


def mistakes_are_named():
  for args, text in ((['--hosts', 'a,,b'], '--hosts: expected HOST'), (['--hosts', 'a:0'], '--hosts: expected HOST'), (['--hosts', 'a:x'], '--hosts: expected'),
                     (['--hosts', '-oProxyCommand=touch:1'], '--hosts: expected HOST'), (['--hosts', 'a;b'], '--hosts: expected HOST'),
                     (['--hosts', '[fe80::1'], '--hosts: expected HOST'), (['--hosts', '[::1]a:2'], '--hosts: expected HOST'),
                     (['--hosts', 'a', '-n', '2'], 'has room for 1'), (['--hosts', 'a', '--local'], 'neither --runner nor --local'),
                     (['--hosts', 'a', '--hosts', 'b'], 'given twice'), (['--hosts', 'a', '--ssh', ' '], '--ssh: no command'),
                     (['-n', '1', '--bind-to', 'rack'], 'none, core, numa or socket'),
                     (['-n', '1', '--runner', 'true', '--bind-to', 'core'], 'srun --cpu-bind'),
                     (['-n', '1', '--runner', 'true', '--output-file', 'out.%r'], "leave %r out"),
                     (['-n', '1', '--output-file', '/no/such/folder/out.%r'], '/no/such/folder/out.0 cannot be written'),
                     (['-n', '1', '--output-file', 'out.%j'], 'after a %')):
    r = launch(*args, '--', 'true')
    assert r.returncode == 2 and text in r.stderr, r


class Sshd:
  """A real sshd on loopback, with keys of its own."""

  def __enter__(self):
    sshd = shutil.which('sshd', path=os.environ.get('PATH', '') + ':/usr/sbin')
    if not sshd or not shutil.which('ssh') or not shutil.which('ssh-keygen'):
      raise Skip('no sshd (openssh-server)')
    self.folder = tempfile.TemporaryDirectory(prefix='weft-sshd-')
    d, port = self.folder.name, free_port()
    for key in 'host', 'user':
      subprocess.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', f'{d}/{key}'], check=True)
    if os.geteuid() == 0:
      os.makedirs('/run/sshd', mode=0o755, exist_ok=True)
    with open(f'{d}/config', 'w') as f:
      f.write(f'Port {port}\nListenAddress 127.0.0.1\nHostKey {d}/host\nAuthorizedKeysFile {d}/user.pub\nPidFile none\nStrictModes no\n'
              'UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n')
    self.process = subprocess.Popen([sshd, '-D', '-e', '-f', f'{d}/config'], stderr=subprocess.PIPE, text=True)
    line = self.process.stderr.readline()
    if 'listening' not in line:
      self.__exit__()
      raise Skip('sshd does not start: ' + line.strip())
    self.ssh = f'ssh -F none -p {port} -i {d}/user -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile={d}/known -o LogLevel=ERROR'
    r = subprocess.run([*self.ssh.split(), '127.0.0.1', 'true'], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if r.returncode:
      self.__exit__()
      raise Skip('sshd lets nobody in: ' + r.stderr.strip())
    return self

  def __exit__(self, *_):
    self.process.terminate()
    self.process.wait()
    self.process.stderr.close()
    self.folder.cleanup()


def a_real_sshd():
  with Sshd() as s, tempfile.TemporaryDirectory() as d:
    program = f'{d}/sum.hlo'
    with open(program, 'w') as f:
      f.write('HloModule m, replica_count=4\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n'
              'ENTRY e { i = u32[] replica-id()\n f = f32[] convert(i)\n ROOT s = f32[] all-reduce(f), replica_groups={}, to_apply=add }\n')
    r = launch('--ssh', s.ssh, '--hosts', '127.0.0.1:2,localhost:2', '--', os.path.abspath(weft()), 'run', program)
    assert r.returncode == 0 and len(re.findall(r'(?m)f32\[\] 6$', r.stdout)) == 4, r # 0 + 1 + 2 + 3, on each device
    r = launch('--ssh', s.ssh, '--hosts', '127.0.0.1:2', '--fault', 'kill:rank=0,after=1s', '--', 'sleep', '300')
    assert r.returncode == 137 and 'rank 0 on 127.0.0.1 was killed by signal 9' in r.stderr, r
    kill_the_launcher(s.ssh, '127.0.0.1', d)


if __name__ == '__main__':
  sys.exit(jaxlib_common.run([
      ranks_fill_the_hosts_in_order,
      the_secret_stands_on_no_command_line,
      agents_of_two_hosts_meet,
      failures_signals_and_faults_are_those_of_local_jobs,
      a_lost_host_ends_the_job_and_its_processes,
      a_killed_launcher_leaves_nothing_behind,
      a_lost_host_of_a_recoverable_job_is_reached_again,
      what_is_not_a_node_is_named,
      a_host_that_does_not_answer_is_given_up,
      a_profile_may_not_end_its_line,
      much_output_arrives_whole_and_in_lines,
      processes_are_bound,
      output_goes_to_files,
      mistakes_are_named,
      a_real_sshd,
  ], needs_jaxlib=False))
