#!/usr/bin/env python3
"""What the coordination service keeps for strangers: less than 16 MiB for all of them together, whatever they have sent when they
stop.  They are processes of another user, without the secret, from eight addresses, with and without TLS."""
import socket
import ssl
import struct
import sys
import time

import coord_attacks
from coord_attacks import (END_HEADERS, GOAWAY, HEADERS, PING, SETTINGS, Answers, Child, Members, as_nobody, begin, client_hello, connect, frame,
                           literal, memory, raise_descriptor_limit, request_headers, service, varint, with_tls)

MOST_KEPT = coord_attacks.TIMES * 16 << 20
CONNECTIONS, ADDRESSES = 600, 8 # more connections than the service keeps, by more addresses than fill it
STATUS = '/weft.coord.Admin/Status'
ACKNOWLEDGED = frame(SETTINGS, 1, 0) # from then on the service accepts frames of 256 KiB


# ---- attacks: each sends its pieces over every connection, and then holds all of them ----

def long_frame(kind, size, payload):
  """The beginning of a frame."""
  return frame(kind, 0, 1 if kind == HEADERS else 0, bytes(size))[:9] + payload


PLAIN = {
  'nothing': [b''],
  'a goaway with a text of 256 KiB': [begin(), ACKNOWLEDGED + long_frame(GOAWAY, 0x3ffff, bytes(250000))],
  'half a header of 64 KiB': [begin(), ACKNOWLEDGED + frame(HEADERS, 0, 1, request_headers('/a') + b'\x40\x01x' + varint(65000, 7) + b'v' * 64000)],
  'pings whose answers wait': [begin() + frame(PING, 0, 0, bytes(8)) * 200],
  'a full table of headers': [begin() + frame(HEADERS, END_HEADERS, 1, request_headers('/a', literal(b'x', b'y' * 3900, indexed=True)))],
}


def dial(port, i):
  s = socket.socket()
  s.bind((f'127.0.0.{2 + i % ADDRESSES}', 0))
  s.settimeout(20)
  s.connect(('127.0.0.1', port))
  return s


def hold(port, pieces, has_handshake, ready):
  raise_descriptor_limit()
  context = ssl._create_unverified_context()
  context.set_alpn_protocols(['h2'])
  held = []
  for i in range(CONNECTIONS):
    s = dial(port, i)
    try:
      held.append(context.wrap_socket(s) if has_handshake else s)
      held[-1].sendall(pieces[0])
    except OSError:
      pass
  for piece in pieces[1:]:
    time.sleep(0.2)
    for s in held:
      s.settimeout(0.3)
      try:
        s.sendall(piece)
      except OSError:
        pass
  time.sleep(0.3)
  ready()
  time.sleep(1000)


def check(what, pieces, options=(), has_handshake=False):
  with service(*options) as s:
    members = Members(s)
    members.rounds(5)
    before, _ = memory(s.process.pid)
    with Child(hold, int(s.address.rsplit(':', 1)[1]), pieces, has_handshake, ready=True):
      kept = memory(s.process.pid)[1] - before
      members.rounds(5)
    print(f'# {what}: {kept / (1 << 20):.1f} MiB', flush=True)
    assert kept < MOST_KEPT, f'{what}: {kept >> 20} MiB are kept'


def strangers_fill_less_than_sixteen_mebibytes():
  for what, pieces in PLAIN.items():
    check(what, pieces)


# ---- TLS ----

def record(payload):
  return b'\x16\x03\x01' + len(payload).to_bytes(2, 'big') + payload


def strangers_fill_less_than_sixteen_mebibytes_by_tls():
  greeting = client_hello()
  long_head = b'\x01\x01\xff\xf0' # of a ClientHello of 128 KiB
  halves = {'a byte of a hello': greeting[:1],
            'half a hello': greeting[:60],
            'a hello in two records': record(greeting[5:35]),
            'a hello of 128 KiB': record(long_head + bytes(16380)) * 2 + b'\x16\x03\x01\x40\x00' + bytes(16000),
            'a hello of 128 KiB, head in pieces': record(long_head[:2]) + record(long_head[2:] + bytes(16000)) * 2,
            'a hello': greeting,
            'a hello and half a record': greeting + b'\x17\x03\x03\x40\x00' + bytes(16000)}

  def attack(options):
    for what, data in halves.items():
      check('TLS, ' + what, [data], options)
    for what in 'nothing', 'a goaway with a text of 256 KiB', 'half a header of 64 KiB':
      check('TLS, then ' + what, PLAIN[what], options, has_handshake=True)

  with_tls(attack)


def answer_to(address, data):
  """What a service says to the bytes of a TLS client, and whether it has ended the connection."""
  with connect(address) as s:
    s.settimeout(4) # the service closes idle connections after 5
    s.sendall(data)
    try:
      return s.recv(5)
    except ConnectionError:
      return b''


def a_hello_may_come_in_pieces_and_may_not_be_long():
  """A client may split its hello between records.  A long one is refused at its head."""
  greeting = client_hello()

  def ask(options):
    with service(*options) as s:
      for cut in 1, 3, 30, 200:
        said = answer_to(s.address, record(greeting[5:5 + cut]) + record(greeting[5 + cut:]))
        assert said[:1] == b'\x16', (cut, said)
      said = answer_to(s.address, record(b'\x01\x00\x40\x00'))
      assert said == b'', said

  with_tls(ask)


def early_hello():
  """A hello that announces early data and has no key, so that the service asks for a second hello."""
  def extension(kind, data):
    return struct.pack('>HH', kind, len(data)) + data
  extensions = (extension(10, b'\0\2\0\x1d') + extension(13, b'\0\2\4\3') + extension(16, b'\0\3\2h2') + extension(42, b'') +
                extension(43, b'\2\3\4') + extension(51, b'\0\0')) # x25519, ECDSA with SHA-256, h2, early data, TLS 1.3, no key share
  body = b'\3\3' + bytes(32) + b'\0' + b'\0\2\x13\1' + b'\1\0' + struct.pack('>H', len(extensions)) + extensions
  return record(b'\1' + len(body).to_bytes(3, 'big') + body)


def ends_after(address, data):
  """The types of the records with which a service answers, if it then ends the connection; else None."""
  said, types = b'', []
  with connect(address) as s:
    s.settimeout(4)
    s.sendall(data)
    try:
      while more := s.recv(4096):
        said += more
    except ConnectionError:
      pass
    except TimeoutError:
      return None
  while said:
    types.append(said[0])
    said = said[5 + int.from_bytes(said[3:5], 'big'):]
  return types


def a_second_hello_may_not_be_long():
  def ask(options):
    with service(*options) as s:
      early = b'\x17\x03\x03\0\x20' + bytes(32)
      assert ends_after(s.address, early_hello() + early) is None # early data is no error: a second hello may follow
      said = ends_after(s.address, early_hello() + early + record(b'\1\1\xff\xf0'))
      assert said and said[0] == 22, said

  with_tls(ask)


# ---- what is not refused ----

def sixteen_calls(address):
  """Calls of a client that sends them at once, with headers as jaxlib's clients send."""
  with connect(address) as s:
    streams = range(1, 33, 2)
    s.sendall(begin() + b''.join(frame(HEADERS, END_HEADERS | 1, n, request_headers(STATUS, literal(b'user-agent', b'x' * 60))) for n in streams))
    answers = Answers().read(s, lambda a: all('grpc-status' in a.headers.get(n, {}) for n in streams))
  return [answers.headers.get(n, {}).get('grpc-message') for n in streams]


def sixteen_calls_at_once_are_answered():
  with service() as s:
    said = as_nobody(sixteen_calls, s.address)
    assert said == ['authentication required'] * 16, said


if __name__ == '__main__':
  sys.exit(coord_attacks.run([strangers_fill_less_than_sixteen_mebibytes, strangers_fill_less_than_sixteen_mebibytes_by_tls,
                              a_hello_may_come_in_pieces_and_may_not_be_long, a_second_hello_may_not_be_long, sixteen_calls_at_once_are_answered], needs_jaxlib=False, at_a_time=1))
