#!/usr/bin/env python3
"""Processes without the job's secret at the service's port: the job goes on whatever they send or leave out."""
import os
import random
import subprocess
import sys

from jaxlib_common import HERE, Service, all_succeed, run, wait_for_line, weft

sys.path.insert(0, os.path.join(HERE, '../security'))
from coord_attacks import CONTINUATION, DATA, HEADERS, PING, PREFACE, RST, SETTINGS, WINDOW_UPDATE, connect, frame, literal  # noqa: E402
from coord_attacks import request_headers as headers_of, peer as agent  # noqa: E402


def request_headers(*more):
  return headers_of('/xla.coordination.CoordinationService/InsertKeyValue', *more)


def attack(address, *pieces, until=None):
  """Sends the bytes and reads what comes until the service closes or is silent for a moment; with `until`, until that holds of it."""
  with connect(address) as s:
    got = b''
    try:
      for piece in pieces:
        s.sendall(piece)
      s.settimeout(60 if until else 0.3)
      while len(got) < 1 << 20 and not (until and until(got)):
        data = s.recv(65536)
        if not data:
          break
        got += data
    except OSError:
      pass
    return got


class Job:
  """A service with two agents, which have to survive the attacks on the service."""

  def __enter__(self):
    self.service = Service(2, '--max-total', '64M', '--max-value', '1M')
    address = self.service.address
    self.agents = [agent(address, t, 'connect', 'get,go,300000', 'barrier,b,60', 'shutdown') for t in range(2)]
    for p in self.agents:
      wait_for_line(p, 'connect')
    return address

  def __exit__(self, kind, *_):
    try:
      if kind is None:
        subprocess.run([weft(), 'coord', 'kv', self.service.address, 'set', 'go', '1'], check=True, timeout=60)
        all_succeed(self.agents)
        assert self.service.stop() == 0
    finally:
      self.service.__exit__()


def garbage():
  rng = random.Random(1)
  with Job() as address:
    for _ in range(40):
      attack_bytes = rng.randbytes(rng.randrange(1, 4000))
      attack(address, attack_bytes if rng.random() < 0.5 else PREFACE + attack_bytes)


def broken_frames():
  with Job() as address:
    for bad in (frame(HEADERS, 4, 1, b'\xff' * 50),                       # HPACK that is none
                frame(HEADERS, 4, 2, request_headers()),                  # an even stream
                frame(DATA, 0, 1, b'x'),                                  # data without a stream
                frame(CONTINUATION, 4, 1, b'x'),
                frame(HEADERS, 0, 1, request_headers()),                  # headers that never end
                b'\xff\xff\xff' + bytes([DATA, 0, 0, 0, 0, 1]),           # 16 MiB announced
                frame(WINDOW_UPDATE, 0, 0, b'\x7f\xff\xff\xff'),
                frame(SETTINGS, 0, 0, b'\x00\x04\xff\xff\xff\xff')):      # a window over 2^31
      attack(address, PREFACE, frame(SETTINGS, 0, 0), bad)


def is_an_answer(got):
  return b'grpc-status' in got or len(got) > 40


def messages_that_lie_about_their_length():
  with Job() as address:
    start = PREFACE + frame(SETTINGS, 0, 0)
    for body in (b'', b'\x00', b'\x00\xff\xff\xff\xff', b'\x00\x00\x00\x00\x00extra', b'\x01\x00\x00\x00\x04junk', b'\x07\x00\x00\x00\x00'):
      got = attack(address, start, frame(HEADERS, 4, 1, request_headers(literal(b'grpc-encoding', b'gzip'))), frame(DATA, 1, 1, body),
                   until=is_an_answer)
      assert is_an_answer(got), got


def floods():
  with Job() as address:
    start = PREFACE + frame(SETTINGS, 0, 0)
    attack(address, start, frame(PING, 0, 0, b'12345678') * 20000)
    attack(address, start, frame(SETTINGS, 0, 0) * 20000)
    attack(address, start, b''.join(frame(HEADERS, 4, n, request_headers()) + frame(RST, 0, n, b'\0\0\0\x08') for n in range(1, 8000, 2)))
    attack(address, start, frame(HEADERS, 0, 1, request_headers()) + frame(CONTINUATION, 0, 1, b'') * 20000)


def metadata_without_end():
  with Job() as address:
    start = PREFACE + frame(SETTINGS, 0, 0)
    big = b''.join(literal(b'x-%d' % i, b'v' * 1000) for i in range(14))
    attack(address, start, frame(HEADERS, 4, 1, request_headers(big)), frame(DATA, 1, 1, b'\0\0\0\0\0'))
    more = b''.join(literal(b'y-%d' % i, b'v' * 1000) for i in range(15))
    got = attack(address, start, frame(HEADERS, 0, 1, request_headers(big)), frame(CONTINUATION, 4, 1, more), frame(DATA, 1, 1, b'\0\0\0\0\0'), until=bool)
    assert got, 'no answer'


def half_open_connections():
  with Job() as address:
    silent = [connect(address) for _ in range(300)]
    for s in silent[:100]:
      s.sendall(PREFACE[:10])
    for s in silent[100:200]:
      s.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 4, 1, request_headers()))
    # they stay open while the job ends


def bodies_that_never_end_stay_within_the_limit():
  with Job() as address:
    hogs = []
    for _ in range(8):
      s = connect(address, timeout=1)
      hogs.append(s)
      try:
        s.sendall(PREFACE + frame(SETTINGS, 0, 0))
        for stream in range(1, 60, 2):
          s.sendall(frame(HEADERS, 4, stream, request_headers()) + frame(DATA, 0, stream, b'\x00\x00\x0f\xff\xff' + b'x' * 16000) * 20)
      except OSError:
        pass
    out = subprocess.run([weft(), 'coord', 'status', address, '--json'], capture_output=True, text=True, timeout=20)
    import json
    if out.returncode == 0:  # the error that its memory is used up is a right answer too
      assert json.loads(out.stdout)['memory_bytes'] <= 64 << 20
    for s in hogs:
      s.close()


if __name__ == '__main__':
  sys.exit(run([garbage, broken_frames, messages_that_lie_about_their_length, floods, metadata_without_end, half_open_connections,
                bodies_that_never_end_stay_within_the_limit], needs_jaxlib=False))
