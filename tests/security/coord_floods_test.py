#!/usr/bin/env python3
"""Floods at the coordination service, of strangers and of authenticated members: the job's barriers and keys go on, and the service
does not grow.  WEFT_TEST_LONG=1: more rounds, more connections.  --measure: nothing is judged, a table of ratios is printed at the end; it
wants a quiet machine and takes less than five minutes.  --behind: attackers run at nice 19."""
import gzip
import itertools
import os
import socket
import sys
import time

import coord_attacks
from coord_attacks import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST, Answers, Child, Members, begin, client_hello, connect,
                           frame, literal, memory, message, raise_descriptor_limit, request_headers, service, with_tls)

MEASURE = '--measure' in sys.argv
BEHIND = '--behind' in sys.argv # attackers leave the processors to members and service, as if they had a machine of their own
if MEASURE:
  sys.argv.remove('--measure') # what is left are names of floods
if BEHIND:
  sys.argv.remove('--behind')
LONG = MEASURE or os.environ.get('WEFT_TEST_LONG', '0') != '0'
ROUNDS = 4000 if MEASURE else 400 if LONG else 60
MOST_GROWTH = coord_attacks.TIMES * 32 << 20
SERVICE = '/tensorflow.CoordinationService/' # of the two dialects the one with the shorter messages
NOT_FOUND, RESOURCE_EXHAUSTED = 5, 8
NO_WINDOW = b'\0\x04\0\0\0\0' # SETTINGS_INITIAL_WINDOW_SIZE
PACE = 0.02 # seconds between two bursts: attackers and members share the processors


# ---- calls of a member ----

def field(number, data):
  size, n = b'', len(data)
  while n >= 128:
    size, n = size + bytes([n & 127 | 128]), n >> 7
  return bytes([number << 3 | 2]) + size + bytes([n]) + data


def ask(stream, method, body, *more):
  """One call.  A member of this test is who has the service's user id."""
  return frame(HEADERS, END_HEADERS, stream, request_headers(SERVICE + method, *more)) + frame(DATA, END_STREAM, stream, message(body))


def status_of(answers, s, stream):
  """That of a call, and its text, when it has ended."""
  answer = answers.read(s, lambda a: 'grpc-status' in a.headers.get(stream, {})).headers.get(stream, {})
  return int(answer.get('grpc-status', -1)), answer.get('grpc-message', '')


def member(address, settings=b''):
  """A connection of which a call has been let in, and what it has answered."""
  s, answers = connect(address), Answers()
  s.sendall(begin(settings) + ask(1, 'TryGetKeyValue', field(1, b'none')))
  assert status_of(answers, s, 1)[0] == NOT_FOUND, answers.headers
  return s, answers


def fill_directory(address):
  """With 128 KiB, for floods that ask for it."""
  s, answers = member(address)
  with s:
    for stream in range(3, 35, 2):
      s.sendall(ask(stream, 'InsertKeyValue', field(1, field(1, b'dir/%d' % stream) + field(2, bytes(8192)))))
      assert status_of(answers, s, stream)[0] == 0, answers.headers


def burst(address, pieces):
  """The pieces, over a member's connection, until it closes."""
  with member(address)[0] as s:
    try:
      for piece in pieces:
        s.sendall(piece)
      s.settimeout(0.1)
      while s.recv(65536):
        pass
    except OSError:
      pass


def again_and_again(attack, ready):
  """For as long as the process may."""
  attack()
  ready()
  while True:
    attack()
    time.sleep(PACE)


# ---- floods ----

def resets(address, ready):
  calls = [b''.join(ask(n, 'GetKeyValue', field(1, b'k%d' % n)) + frame(RST, 0, n, b'\0\0\0\x08') for n in range(i, i + 200, 2))
           for i in range(3, 4003, 200)]
  again_and_again(lambda: burst(address, calls), ready)


def headers(address, ready):
  start = frame(HEADERS, 0, 3, request_headers(SERVICE + 'TryGetKeyValue'))
  table = frame(HEADERS, 0, 3, request_headers(SERVICE + 'TryGetKeyValue', literal(b'x', b'y' * 3900, indexed=True)))
  kinds = ([start] + [frame(CONTINUATION, 0, 3, b'')] * 2000, [start] + [frame(CONTINUATION, 0, 3, literal(b'h', b'v' * 8000))] * 200,
           [table] + [frame(CONTINUATION, 0, 3, b'\xbe' * 16000)] * 20)
  again_and_again(lambda: [burst(address, pieces) for pieces in kinds], ready)


def bombs(address, ready):
  data = message(gzip.compress(bytes(64 << 20), 9) * 8, flag=1)
  call = frame(HEADERS, END_HEADERS, 3, request_headers(SERVICE + 'Barrier', literal(b'grpc-encoding', b'gzip')))
  pieces = [frame(DATA, END_STREAM if i + 16384 >= len(data) else 0, 3, data[i:i + 16384]) for i in range(0, len(data), 16384)]
  again_and_again(lambda: burst(address, [call, *pieces]), ready)


def zero_windows(address, ready):
  """Connections that request large replies, with a flow-control window of zero."""
  fill_directory(address)
  held = [member(address, NO_WINDOW)[0] for _ in range(32)]
  for s in held: # in one piece, which the service reads at once: what it answers must not pile up until it has handled all
    s.sendall(b''.join(ask(stream, 'GetKeyValueDir', field(1, b'dir')) for stream in range(3, 1003, 2)))
  ready()
  for stream in itertools.count(1003, 2):
    for s in held:
      try:
        s.sendall(ask(stream, 'GetKeyValueDir', field(1, b'dir')))
      except OSError:
        pass
    time.sleep(PACE)


def unread_sockets(address, ready):
  """The same with large windows, and a socket that the attacker does not read."""
  fill_directory(address)
  held = [member(address, b'\0\x04\x7f\xff\xff\xff')[0] for _ in range(16)]
  ready()
  for stream in itertools.count(3, 2):
    for s in held:
      s.setblocking(False)
      try:
        s.sendall(ask(stream, 'GetKeyValueDir', field(1, b'dir')))
      except OSError:
        pass
    time.sleep(PACE)


def slow_senders(address, ready):
  """Calls that come a byte at a time, from many connections."""
  call = begin() + ask(1, 'TryGetKeyValue', field(1, b'none'))
  held = {connect(address): 0 for _ in range(200)}
  ready()
  while True:
    for s, sent in list(held.items()):
      try:
        s.send(call[sent:sent + 1])
        held[s] = sent + 1
      except OSError:
        del held[s]
        s.close()
      if held.get(s) == len(call):
        held[s] = 0
    while len(held) < 200:
      held[connect(address)] = 0
    time.sleep(PACE)


def waiting_calls(address, ready):
  """Members that wait for keys that nobody sets, with all the calls that they may have."""
  held = []
  for c in range(8):
    s, answers = member(address)
    s.sendall(b''.join(ask(stream, 'GetKeyValue', field(1, b'never/%d/%d' % (c, stream))) for stream in range(3, 2003, 2)))
    held.append(s)
  status, text = status_of(answers, s, 2001)
  assert status == RESOURCE_EXHAUSTED and 'WEFT_COORD_MAX_TASK_WAITS' in text, (status, text)
  ready()
  time.sleep(1000)


def idle(address, count, ready):
  raise_descriptor_limit()
  held = []
  for i in range(count):
    held.append(connect(address))
    if i % 2:
      held[-1].send((PREFACE[:10], begin())[i % 4 // 2])
  ready()
  time.sleep(1000)


# ---- the job during the attacks ----

measured = [] # lines of the table


def judge(what, quiet, busy, longest, grown):
  """Prints the times of the members' rounds, and whether they are within the bound."""
  print(f'# {what}: {ROUNDS} rounds took {quiet * 1e3:.0f} ms quiet and {busy * 1e3:.0f} ms in the flood, {busy / quiet:.2f} times; the longest '
        f'{longest * 1e3:.1f} ms; memory +{grown / (1 << 20):.1f} MiB', flush=True)
  if MEASURE:
    measured.append(f'| {what} | {quiet * 1e3:.0f} ms | {busy * 1e3:.0f} ms | {busy / quiet:.2f} | {longest * 1e3:.1f} ms | {grown / (1 << 20):.1f} MiB |')
    return
  assert grown < MOST_GROWTH, f'grew by {grown >> 20} MiB'
  # Generous: the attackers, the members and the service share the machine's processors, and so do other tests.
  assert busy < 20 * quiet + 10 and longest < 10, (quiet, busy, longest)


def print_table():
  print(f'Rounds of two members, quiet and in a flood: {ROUNDS} rounds each, {os.cpu_count()} processors.\n')
  print('| flood | quiet | in the flood | ratio | longest round | memory of the service |\n|---|---|---|---|---|---|')
  print('\n'.join(measured))


def behind(flood):
  def run(*arguments):
    os.nice(19)
    flood(*arguments)
  return run if BEHIND else flood


def job_goes_on(flood, *arguments, options=(), processes=1, nobody=False):
  with service(*options) as s:
    members = Members(s)
    members.rounds(ROUNDS // 4)
    quiet, _ = members.rounds(ROUNDS)
    before, _ = memory(s.process.pid)
    children = [Child(behind(flood), s.address, *arguments, ready=True, nobody=nobody) for _ in range(processes)]
    try:
      for child in children:
        child.hear()
      time.sleep(0.3)
      busy, longest = members.rounds(ROUNDS)
    finally:
      for child in children:
        child.__exit__()
    grown = memory(s.process.pid)[1] - before
    judge(flood.__name__.replace('_', ' '), quiet, busy, longest, grown)
    members.rounds(5)


def members_that_reset_their_calls():
  job_goes_on(resets)


def members_that_flood_with_headers():
  job_goes_on(headers)


def members_that_send_bombs():
  job_goes_on(bombs)


def members_with_zero_windows():
  job_goes_on(zero_windows, options=('--max-unread', '256K'))


def members_that_do_not_read():
  job_goes_on(unread_sockets, options=('--max-unread', '256K'))


def senders_of_a_byte_at_a_time():
  job_goes_on(slow_senders)


def members_that_wait_for_ever():
  job_goes_on(waiting_calls, options=('--max-task-waits', '4000'))


def ten_thousand_idle_connections():
  """In processes of which each may have as many descriptors as it opens connections."""
  processes = 10 if LONG else 4
  job_goes_on(idle, min(10000 // processes, raise_descriptor_limit() - 64), processes=processes, nobody=True)


# ---- TLS ----

def half_handshakes(port, hello, ready):
  raise_descriptor_limit()
  held = []
  for i in range(1000):
    s = socket.create_connection(('127.0.0.1', port), timeout=20)
    try:
      s.send(hello[:(0, 1, 5, 60, len(hello))[i % 5]])
    except OSError:
      pass
    held.append(s)
    if i == 600:
      ready()
  time.sleep(1000)


def half_open_handshakes():
  def flood(options):
    with service(*options) as s:
      members = Members(s)
      quiet, _ = members.rounds(ROUNDS)
      before, _ = memory(s.process.pid)
      with Child(behind(half_handshakes), int(s.address.rsplit(':', 1)[1]), client_hello(), ready=True):
        busy, longest = members.rounds(ROUNDS)
        grown = memory(s.process.pid)[1] - before
      judge('half handshakes', quiet, busy, longest, grown)

  with_tls(flood)


if __name__ == '__main__':
  code = coord_attacks.run([
    members_that_reset_their_calls, members_that_flood_with_headers, members_that_send_bombs, members_with_zero_windows, members_that_do_not_read,
    senders_of_a_byte_at_a_time, members_that_wait_for_ever, ten_thousand_idle_connections, half_open_handshakes,
  ], needs_jaxlib=False, at_a_time=1)
  if MEASURE:
    print_table()
  sys.exit(code)
