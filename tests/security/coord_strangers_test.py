#!/usr/bin/env python3
"""*Strangers* at the coordination service: processes of another user on the same machine, without the secret.  They learn nothing
but "authentication required", hold nothing, and the job's members go on."""
import contextlib
import ctypes
import gzip
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import coord_attacks
from coord_attacks import (CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PATHS, PING, PREFACE, RST, SETTINGS,
                           WINDOW_UPDATE, Answers, Child, Members, Skip, as_nobody, begin, call, connect, frame, literal, memory, message,
                           raise_descriptor_limit, request_headers, service, weft)

MOST_GROWTH = coord_attacks.TIMES * 32 << 20 # of the service's memory, whatever strangers do
INSERT = '/xla.coordination.CoordinationService/InsertKeyValue'


def flood(address, *pieces):
  """Sends until the service closes. Returns the service's answer, and how much was sent."""
  answers, sent = Answers(), 0
  with connect(address) as s:
    try:
      for piece in pieces:
        s.sendall(piece)
        sent += len(piece)
    except OSError:
      pass
    try:
      answers.read(s, lambda a: a.goaway is not None, seconds=10)
    except OSError:
      pass
  return answers.goaway, answers.closed, sent


# ---- the answers that a stranger gets ----

def everything(address):
  told = []
  for path in PATHS:
    for more in (), (literal(b'weft-coord-secret', b'guess'),):
      answer = call(address, path, message(b'\x28\x00'), *more)
      told.append((path, answer.get('grpc-status'), answer.get('grpc-message')))
  told.append(('GET', *(call(address, INSERT, message(b''), method=b'GET').get(k) for k in ('grpc-status', 'grpc-message'))))
  return told


def a_stranger_is_told_nothing_by_any_method():
  with service() as s:
    for path, status, text in as_nobody(everything, s.address):
      assert (status, text) == ('16', 'authentication required'), (path, status, text)
    report = subprocess.run([weft(), 'coord', 'status', s.address], capture_output=True, text=True, timeout=20)
    assert report.returncode == 0, report


def attack_the_launch(address):
  """Registers as task 0 with an incarnation of its own, heartbeats, reports an error, shuts down."""
  register = b'\x19' + struct.pack('<Q', 77) + b'\x28\x00'
  answers = [call(address, '/xla.coordination.CoordinationService/' + method, message(body)).get('grpc-status')
             for method, body in (('RegisterTask', register), ('Heartbeat', b'\x11' + struct.pack('<Q', 77)), ('ReportErrorToService', b'\x18\x0d'),
                                  ('ShutdownTask', b''), ('GetKeyValueDir', b''), ('WatchTasks', b'\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01'))]
  return answers


def another_user_cannot_end_a_launched_job():
  with tempfile.TemporaryDirectory() as d:
    p = subprocess.Popen([weft(), 'launch', '-n', '2', '--', 'sh', '-c', f'echo $WEFT_COORD_ADDRESS > {d}/new$WEFT_PROCESS_ID; '
                          f'mv {d}/new$WEFT_PROCESS_ID {d}/address$WEFT_PROCESS_ID; exec "$0" $WEFT_COORD_ADDRESS $WEFT_PROCESS_ID connect barrier,a,60 '
                          'set,ready$WEFT_PROCESS_ID,1 get,go,60000 barrier,b,60 shutdown', os.path.join(weft_folder(), 'tests/coord/agent_peer')],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
      wait_for(lambda: os.path.exists(f'{d}/address0'))
      address = open(f'{d}/address0').read().strip()
      subprocess.run([weft(), 'coord', 'kv', address, 'get', 'ready0', '--timeout', '60s'], check=True, timeout=70, stdout=subprocess.DEVNULL)
      assert as_nobody(attack_the_launch, address) == ['16'] * 6
      subprocess.run([weft(), 'coord', 'kv', address, 'set', 'go', '1'], check=True, timeout=20)
      out, err = p.communicate(timeout=60)
      assert p.returncode == 0, (out, err)
    finally:
      p.kill()


def the_secret_of_a_launch_is_its_users_alone():
  script = ('import os, stat; f = os.environ["WEFT_COORD_SECRET_FILE"]; text = open(f).read(); assert len(text) == 64, text; '
            'assert stat.S_IMODE(os.stat(f).st_mode) == 0o600; e = open("/proc/self/environ").read(); assert text not in e; '
            'assert text not in open("/proc/self/cmdline").read(); print("read")')
  r = subprocess.run([weft(), 'launch', '-n', '2', '--', 'sh', '-c', f"setsid {sys.executable} -c '{script}'"],
                     capture_output=True, text=True, timeout=60)
  assert r.returncode == 0 and r.stdout.count('read') == 2, r


# ---- what a stranger can make the service hold ----

def bombs(address):
  """Calls of 0.5 MB that inflate to 512 MiB each."""
  compressed = gzip.compress(bytes(64 << 20), 9) * 8 # members of a stream: 8 x 64 MiB; the first alone is past any limit of a stranger
  data = message(compressed, flag=1)
  for _ in range(6):
    with connect(address) as s:
      s.sendall(begin() + frame(HEADERS, END_HEADERS, 1, request_headers(INSERT, literal(b'grpc-encoding', b'gzip'))))
      try:
        for i in range(0, len(data), 16384):
          s.sendall(frame(DATA, END_STREAM if i + 16384 >= len(data) else 0, 1, data[i:i + 16384]))
        Answers().read(s, lambda a: 'grpc-status' in a.headers.get(1, {}))
      except OSError:
        pass


def unfinished(address):
  """Bodies that never end, on 60 connections that stay open for a while."""
  held = []
  for _ in range(60):
    s = connect(address)
    held.append(s)
    try:
      s.sendall(begin())
      for stream in range(1, 13, 2):
        s.sendall(frame(HEADERS, END_HEADERS, stream, request_headers(INSERT)) + frame(DATA, 0, stream, b'\0\0\x0f\xff\xff' + b'x' * 16000) * 4)
    except OSError:
      pass
  return held


def unfinished_bodies(address):
  held = unfinished(address)
  time.sleep(0.5)
  del held


def bodies_of_strangers_are_not_kept():
  with service('--max-total', '4M') as s:
    before, _ = memory(s.process.pid)
    for attack in unfinished_bodies, bombs:
      as_nobody(attack, s.address)
      grown = memory(s.process.pid)[1] - before
      assert grown < MOST_GROWTH, f'{attack.__name__}: grew by {grown >> 20} MiB'
    Members(s).rounds(5)


def unfinished_and_held(address, ready):
  held = unfinished(address)
  ready()
  time.sleep(60)
  del held


def members_have_memory_while_strangers_send_bodies():
  with service('--max-total', '2M') as s, Child(unfinished_and_held, s.address, ready=True):
    Members(s).rounds(5)


# ---- floods ----

def strange_floods(address):
  """Each kind of flood, with what the service answered."""
  headers = request_headers(INSERT)
  repeated = b'\xbe' * 16000 # the newest entry of the table again and again
  bomb = request_headers(INSERT, literal(b'x', b'y' * 3900, indexed=True))
  kinds = {
    'rapid resets': [frame(HEADERS, END_HEADERS, n, headers) + frame(RST, 0, n, b'\0\0\0\x08') for n in range(1, 20001, 2)],
    'calls': [frame(HEADERS, END_HEADERS | END_STREAM, n, headers) for n in range(1, 20001, 2)],
    'continuations': [frame(HEADERS, 0, 1, headers)] + [frame(CONTINUATION, 0, 1, b'')] * 20000,
    'header bytes': [frame(HEADERS, 0, 1, headers)] + [frame(CONTINUATION, 0, 1, literal(b'h%d' % n, b'v' * 8000)) for n in range(2000)],
    'table bomb': [frame(HEADERS, 0, 1, bomb)] + [frame(CONTINUATION, 0, 1, repeated)] * 200,
    'pings': [frame(PING, 0, 0, b'12345678') * 100] * 200,
    'settings': [frame(SETTINGS, 0, 0, b'\0\x03\0\0\0\x01') * 100] * 200,
    'windows': [frame(WINDOW_UPDATE, 0, 0, b'\0\0\0\x01') * 100] * 200,
    'data': [frame(HEADERS, END_HEADERS, 1, headers)] + [frame(DATA, 0, 1, b'x' * 16384)] * 400,
  }
  return {kind: flood(address, begin(), *pieces) for kind, pieces in kinds.items()}


def floods_of_strangers_end_their_connections():
  with service() as s:
    before, _ = memory(s.process.pid)
    for kind, (goaway, closed, sent) in as_nobody(strange_floods, s.address).items():
      # A reset may overtake the GOAWAY on the way; the connection is over in any case.
      assert goaway in (ENHANCE_YOUR_CALM, None) and (closed or goaway), (kind, goaway, closed, sent)
    grown = memory(s.process.pid)[1] - before
    assert grown < MOST_GROWTH, f'grew by {grown >> 20} MiB'
    Members(s).rounds(5)


def half_open(address, count):
  """Idle connections, half prefaces, settings alone, half headers: how many are still open after the bounds on time."""
  raise_descriptor_limit()
  beginnings = b'', PREFACE[:10], begin(), begin() + frame(HEADERS, 0, 1, request_headers(INSERT)), begin() + frame(HEADERS, END_HEADERS, 1, request_headers(INSERT))
  held = []
  for i in range(count):
    s = connect(address)
    held.append(s)
    try:
      s.sendall(beginnings[i % len(beginnings)])
    except OSError:
      pass
  return held


def descriptors(pid):
  return len(os.listdir(f'/proc/{pid}/fd'))


def half_open_while(address, count, path):
  held = half_open(address, count)
  open(path, 'w').close()
  end = time.monotonic() + 30
  while held and time.monotonic() < end: # until the service has closed the last of them
    still = []
    for s in held:
      s.setblocking(False)
      try:
        while s.recv(4096):
          pass
      except BlockingIOError:
        still.append(s)
      except OSError:
        pass
    held = still
    time.sleep(0.1)
  return len(held)


def idle_connections_are_bounded_in_time_and_number():
  raise_descriptor_limit()
  with service() as s, tempfile.TemporaryDirectory() as d:
    os.chmod(d, 0o777)
    before, _ = memory(s.process.pid)
    members, most = Members(s), 0
    begun = time.monotonic()

    def watch():
      nonlocal most
      while not os.path.exists(f'{d}/done'):
        most = max(most, descriptors(s.process.pid))
        time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
      left = as_nobody(half_open_while, s.address, 3000, f'{d}/opened')
    finally:
      open(f'{d}/done', 'w').close()
      watcher.join()
    assert left == 0, f'{left} are still open after {time.monotonic() - begun:.0f} s'
    assert most < 1024 + 64, f'{most} descriptors'
    grown = memory(s.process.pid)[1] - before
    assert grown < MOST_GROWTH, f'grew by {grown >> 20} MiB'
    members.rounds(5)


# ---- members during the attacks ----

def storm(address, seconds):
  """All of it, again and again."""
  end = time.monotonic() + seconds
  attacks = strange_floods, bombs, unfinished_bodies, lambda a: half_open(a, 500), attack_the_launch
  count = 0
  while time.monotonic() < end:
    attacks[count % len(attacks)](address)
    count += 1
  return count


def members_go_on_in_a_storm():
  """The bound is generous: the attacker, the members and the service share the machine's processors."""
  with service() as s:
    members = Members(s)
    members.rounds(20)
    quiet, quiet_longest = members.rounds(400)
    before, _ = memory(s.process.pid)
    with Child(storm, s.address, 50):
      time.sleep(0.3)
      busy, busy_longest = members.rounds(400)
    grown = memory(s.process.pid)[1] - before
    print(f'# 400 rounds: {quiet * 1e3:.0f} ms quiet (longest {quiet_longest * 1e3:.1f} ms), {busy * 1e3:.0f} ms in the storm (longest '
          f'{busy_longest * 1e3:.1f} ms), {busy / quiet:.2f} times; memory +{grown / (1 << 20):.1f} MiB', flush=True)
    assert grown < MOST_GROWTH, f'grew by {grown >> 20} MiB'
    assert busy < 20 * quiet + 5 and busy_longest < 5, (quiet, busy, busy_longest)


# ---- small things ----

def weft_folder():
  return os.path.dirname(weft())


def wait_for(condition, seconds=60):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end, 'waited too long'
    time.sleep(0.01)


def beyond_loopback_a_service_wants_protection():
  def serve(**env):
    p = subprocess.Popen([weft(), 'coord', 'serve', '--bind', '0.0.0.0:0'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**{k: v for k, v in os.environ.items() if not k.startswith('WEFT_COORD')}, **env})
    try:
      line = p.stdout.readline()
      if not line:
        return p.wait(timeout=20), p.stderr.read()
      return 0, line
    finally:
      p.kill()
      p.wait()

  code, text = serve()
  assert code == 3 and 'WEFT_COORD_SECRET_FILE' in text and '--insecure' in text, (code, text)
  assert serve(WEFT_COORD_INSECURE='1')[0] == 0
  with tempfile.TemporaryDirectory() as d:
    with open(f'{d}/secret', 'w') as f:
      f.write('opensesame')
    os.chmod(f'{d}/secret', 0o600)
    assert serve(WEFT_COORD_SECRET_FILE=f'{d}/secret')[0] == 0
    os.chmod(f'{d}/secret', 0o604)
    assert serve(WEFT_COORD_SECRET_FILE=f'{d}/secret')[0] == 2


def calls(address):
  return call(address, INSERT, message(b''))


def who_has_no_secret_is_let_in_only_where_the_service_is_told_so():
  """Another user of this machine, at a service with a secret: by default, and with each of the settings that widen who is let in."""
  with tempfile.TemporaryDirectory() as d:
    with open(f'{d}/secret', 'w') as f:
      f.write('opensesame')
    os.chmod(f'{d}/secret', 0o600)
    for options, is_let_in in ((), False), (('--hosts', '192.0.2.7'), False), (('--allow-unauthenticated', '1'), True):
      with service('--secret-file', f'{d}/secret', *options) as s:
        answer = as_nobody(calls, s.address)
        refused = (answer.get('grpc-status'), answer.get('grpc-message')) == ('16', 'authentication required')
        assert refused != is_let_in, (options, answer)


# ---- what the log says of those who are let in ----

SERVICE_HOST, JOB_HOST, OTHER_HOST = '10.92.0.1', '10.92.0.2', '10.92.0.3'
IP = shutil.which('ip', path=os.environ.get('PATH', '') + ':/usr/sbin:/sbin')


@contextlib.contextmanager
def network():
  """The name of a network namespace in which these addresses can be used, all of them on its loopback device."""
  name = f'weft-hosts-{os.getpid()}'
  if os.geteuid() != 0 or not IP:
    raise Skip('needs root and ip')
  inside = f'{IP} -n {name} '
  setup = ' && '.join([f'{IP} netns add {name}', inside + 'link set lo up'] +
                      [inside + f'addr add {a}/32 dev lo' for a in (SERVICE_HOST, JOB_HOST, OTHER_HOST)])
  try:
    if subprocess.run(['sh', '-c', setup], stderr=subprocess.DEVNULL, check=False).returncode != 0:
      raise Skip('no network namespaces here')
    yield name
  finally:
    subprocess.run([IP, 'netns', 'del', name], stderr=subprocess.DEVNULL, check=False)


def call_from(name, source, port):
  """The status of a call without the secret from this address of the namespace."""
  with open(f'/run/netns/{name}') as namespace:
    assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
  with socket.create_connection((SERVICE_HOST, port), timeout=20, source_address=(source, 0)) as s:
    s.sendall(begin() + frame(HEADERS, END_HEADERS, 1, request_headers(INSERT)) + frame(DATA, END_STREAM, 1, message(b'')))
    return Answers().read(s, lambda a: 'grpc-status' in a.headers.get(1, {})).headers.get(1, {}).get('grpc-status')


def log_of_calls(name, options, calls_and_answers):
  """What a service in the namespace logs while it gets each of the calls twice, and lets in whom it should."""
  with tempfile.TemporaryDirectory() as d:
    with open(f'{d}/secret', 'w') as f:
      f.write('opensesame')
    os.chmod(f'{d}/secret', 0o600)
    with open(f'{d}/log', 'w') as log:
      p = subprocess.Popen([IP, 'netns', 'exec', name, weft(), 'coord', 'serve', '--bind', SERVICE_HOST + ':0', '--secret-file', f'{d}/secret', *options],
                           stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, 'WEFT_LOG': 'coord:info'})
    try:
      port = int(p.stdout.readline().rsplit(':', 1)[1])
      for source, is_let_in in calls_and_answers * 2:
        with Child(call_from, name, source, port, nobody=False) as child: # as root, whom the service lets in on its own machine
          status = child.hear()
        assert (status != '16') == is_let_in, (options, source, status)
    finally:
      p.kill()
      p.wait()
      p.stdout.close()
    with open(f'{d}/log') as f:
      return f.read()


def each_way_in_without_the_secret_is_logged_once():
  by_user = f'INFO coord: clients without the secret are let in from this machine by their user id ({os.geteuid()})\n'
  by_host = "WARN coord: clients without the secret are let in from the addresses of the job's hosts (1)\n"
  by_anyone = 'WARN coord: clients without the secret are let in from anywhere (WEFT_COORD_ALLOW_UNAUTHENTICATED, WEFT_COORD_INSECURE)\n'
  refused = 'WARN coord: a client without the secret was refused; '
  with network() as name:
    for options, calls_and_answers, lines in (
        (('--hosts', JOB_HOST), [(SERVICE_HOST, True), (JOB_HOST, True), (OTHER_HOST, False)], {by_user, by_host, refused}),
        ((), [(JOB_HOST, False)], {refused}),
        (('--allow-unauthenticated', '1'), [(OTHER_HOST, True)], {by_anyone})):
      log = log_of_calls(name, options, calls_and_answers)
      for line in by_user, by_host, by_anyone, refused:
        assert log.count(line) == (line in lines), (options, line, log)


if __name__ == '__main__':
  sys.exit(coord_attacks.run([
    a_stranger_is_told_nothing_by_any_method, another_user_cannot_end_a_launched_job, the_secret_of_a_launch_is_its_users_alone,
    beyond_loopback_a_service_wants_protection, who_has_no_secret_is_let_in_only_where_the_service_is_told_so,
    each_way_in_without_the_secret_is_logged_once, bodies_of_strangers_are_not_kept,
    members_have_memory_while_strangers_send_bodies,
    floods_of_strangers_end_their_connections, idle_connections_are_bounded_in_time_and_number, members_go_on_in_a_storm,
  ], needs_jaxlib=False, at_a_time=1))
