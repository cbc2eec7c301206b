#!/usr/bin/env python3
"""Somebody between an agent and the coordination service who changes what passes, where the service has TLS: the agent's calls give
what they should, or an error.  WEFT_TEST_LONG=1: more attacks."""
import concurrent.futures
import os
import random
import select
import socket
import sys
import threading
import time

import coord_attacks
from coord_attacks import Service, peer, with_tls

SEED = 20261126
ATTACKS = 200 if os.environ.get('WEFT_TEST_LONG', '0') != '0' else 24
KINDS = 'flip', 'drop', 'repeat', 'swap', 'splice', 'cut', 'hold'
VALUE = 'a-value-that-is-looked-for' * 20


class Middle:
  """Passes connections on to `port`, and strikes once: at piece number `piece` of what side `side` says."""

  def __init__(self, port, kind=None, side=0, piece=0, place=0.0):
    self.port, self.kind, self.side, self.piece, self.place = port, kind, side, piece, place
    self.seen, self.struck, self.count, self.held, self.last, self.holds = b'', False, [0, 0], None, b'', False
    self.listening = socket.create_server(('127.0.0.1', 0))
    self.address = f'127.0.0.1:{self.listening.getsockname()[1]}'
    self.is_over = False
    self.thread = threading.Thread(target=self.serve)
    self.thread.start()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.is_over = True
    self.thread.join()
    self.listening.close()

  def serve(self):
    pairs = {}
    while not self.is_over:
      for s in select.select([self.listening, *pairs], [], [], 0.05)[0]:
        if s is self.listening:
          one, other = s.accept()[0], socket.create_connection(('127.0.0.1', self.port))
          pairs[one], pairs[other] = (other, 0), (one, 1)
        elif s in pairs:
          to, side = pairs[s]
          try:
            data = s.recv(65536)
            goes_on = bool(data) and self.strike(to, side, data)
          except OSError:
            goes_on = False
          if not goes_on:
            for end in s, to:
              del pairs[end]
              end.close()
    for s in pairs:
      s.close()

  def strike(self, to, side, data):
    """Hands a piece on, changed or not.  False: the connection is to be cut."""
    self.seen += data
    here, self.count[side] = side == self.side and self.count[side] == self.piece, self.count[side] + 1
    if side != self.side or self.kind is None or not (here or self.holds or self.held):
      self.last = data if side != self.side else self.last
      to.sendall(data)
      return True
    if not here: # after a swap or a hold
      to.sendall(b'' if self.holds else data + self.held)
      self.held = None
      return True
    self.struck, at = True, int(self.place * len(data))
    if self.kind == 'flip':
      data = data[:at] + bytes([data[at] ^ 1 << self.piece % 8]) + data[at + 1:]
    elif self.kind in ('drop', 'hold'):
      data, self.holds = b'', self.kind == 'hold'
    elif self.kind == 'repeat':
      data += data
    elif self.kind == 'swap':
      data, self.held = b'', data
    elif self.kind == 'splice':
      data = self.last + data
    elif self.kind == 'cut':
      data = data[:at]
    to.sendall(data)
    return self.kind != 'cut'


def play(middle):
  """Exit code, output and errors of an agent, the job's only one, that joins by way of the middle."""
  name = f'k{time.monotonic_ns()}'
  calls = [f'set,{name},{VALUE}', f'get,{name},2000', f'increment,{name}n,5,5', f'try,{name},{VALUE}', 'shutdown']
  p = peer(middle.address, 0, 'hb=20', 'init=3', 'stop=2', 'connect', *calls)
  try:
    out, err = p.communicate(timeout=60)
  finally:
    p.kill()
  return p.returncode, out, err


def attack(options, plan, is_read=False):
  """A job whose agent's connections are attacked.  How the agent ended, whether the attack took place, and what the attacker saw."""
  with Service(1, *options) as s:
    with Middle(int(s.address.rsplit(':', 1)[1]), *plan) as m:
      code, out, err = play(m)
    assert code in (0, 1, 7), (plan, code, out, err) # 1: a call failed; 7: the agent told of an error
    assert 'DATA_LOSS' not in out + err, (plan, out, err) # a value that is not the one that was set
    assert code != 0 or out.count('\n') == 6, (plan, out, err)
    assert s.process.poll() is None, plan
    assert (VALUE.encode() in m.seen) == is_read, plan
  return code, m.struck, m.count


def who_sits_between_reads_calls_without_tls():
  assert attack((), (), is_read=True)[0] == 0


def calls_give_what_they_should_or_an_error():
  def attack_many(options):
    code, _, count = attack(options, ())
    assert code == 0
    drawn, plans = random.Random(SEED), []
    for _ in range(ATTACKS):
      side = drawn.randrange(2)
      plans.append((drawn.choice(KINDS), side, drawn.randrange(count[side]), drawn.random()))
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool: # they mostly wait for deadlines
      results = list(pool.map(lambda plan: attack(options, plan), plans))
    codes, struck = [code for code, _, _ in results], sum(struck for _, struck, _ in results)
    print(f'# {ATTACKS} attacks, {struck} took place; all calls right in {codes.count(0)}, an error in {ATTACKS - codes.count(0)}', flush=True)
    assert struck > ATTACKS / 3 and codes.count(0) < ATTACKS

  with_tls(attack_many)


if __name__ == '__main__':
  sys.exit(coord_attacks.run([who_sits_between_reads_calls_without_tls, calls_give_what_they_should_or_an_error], needs_jaxlib=False, at_a_time=1))
