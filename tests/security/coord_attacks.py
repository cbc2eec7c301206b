"""What the tests of attacks on the coordination service share: frames of HTTP/2, answers, processes of other users, and a job that
goes on during the attacks."""
import ctypes
import ctypes.util
import os
import pickle
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '../coord'))
from jaxlib_common import Service, Skip, run, weft  # noqa: E402, F401  (for those who import this)

# Of freed memory AddressSanitizer would keep 256 MiB in each process, which the bounds on memory are not about.
os.environ['ASAN_OPTIONS'] = 'quarantine_size_mb=1:' + os.environ.get('ASAN_OPTIONS', '')
TIMES = 4 if os.environ.get('WEFT_SANITIZED') else 1 # AddressSanitizer takes some six times as much for small objects
b'x'.decode('idna') # addresses are read with it; another user may not be able to load it
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4
ENHANCE_YOUR_CALM = 11
NOBODY = 65534
X_METHODS = ('RegisterTask Heartbeat PollForError ReportErrorToService ShutdownTask WatchTasks InsertKeyValue GetKeyValue TryGetKeyValue '
             'IncrementKeyValue GetKeyValueDir DeleteKeyValue Barrier CancelBarrier GetAliveTasks').split()
T_METHODS = X_METHODS[:5] + ['ResetTask', 'WatchJobState', 'GetTaskState'] + X_METHODS[6:]
PATHS = ([f'/xla.coordination.CoordinationService/{m}' for m in X_METHODS] +
         [f'/tensorflow.CoordinationService/{m}' for m in T_METHODS] +
         ['/weft.coord.Admin/Status', '/no.such/Method', '/', '/' + 'x' * 300])


def raise_descriptor_limit(wanted=20000):
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, wanted), hard), hard))
  return min(max(soft, wanted), hard)


# ---- frames ----

def frame(kind, flags, stream, payload=b''):
  return struct.pack('>I', len(payload))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + payload


def varint(n, prefix):
  most = (1 << prefix) - 1
  if n < most:
    return bytes([n])
  out, n = bytes([most]), n - most
  while n >= 128:
    out, n = out + bytes([n & 127 | 128]), n >> 7
  return out + bytes([n])


def literal(name, value, indexed=False):
  return (b'\x40' if indexed else b'\x00') + varint(len(name), 7) + name + varint(len(value), 7) + value


def request_headers(path, *more, method=b'POST'):
  if isinstance(path, str):
    path = path.encode()
  return b''.join([literal(b':method', method), literal(b':scheme', b'http'), literal(b':path', path), literal(b':authority', b'x'),
                   literal(b'te', b'trailers'), literal(b'content-type', b'application/grpc'), *more])


def begin(settings=b''):
  return PREFACE + frame(SETTINGS, 0, 0, settings)


def message(data, flag=0):
  return bytes([flag]) + struct.pack('>I', len(data)) + data


def connect(address, timeout=20):
  host, port = address.rsplit(':', 1)
  return socket.create_connection((host.strip('[]'), int(port)), timeout=timeout)


class NameValue(ctypes.Structure):
  _fields_ = [('name', ctypes.c_void_p), ('value', ctypes.c_void_p), ('namelen', ctypes.c_size_t), ('valuelen', ctypes.c_size_t),
              ('flags', ctypes.c_uint8)]


nghttp2 = ctypes.CDLL('libnghttp2.so.14')


class Inflater:
  """nghttp2's reader of headers."""

  def __init__(self):
    self.state = ctypes.c_void_p()
    assert nghttp2.nghttp2_hd_inflate_new(ctypes.byref(self.state)) == 0

  def read(self, block):
    headers = {}
    while True:
      one, flags = NameValue(), ctypes.c_int(0)
      n = nghttp2.nghttp2_hd_inflate_hd2(self.state, ctypes.byref(one), ctypes.byref(flags), block, ctypes.c_size_t(len(block)), 1)
      assert n >= 0, n
      block = block[n:]
      if flags.value & 2:
        headers[ctypes.string_at(one.name, one.namelen).decode()] = ctypes.string_at(one.value, one.valuelen).decode()
      if flags.value & 1 or not block:
        nghttp2.nghttp2_hd_inflate_end_headers(self.state)
        return headers


class Answers:
  """What a service says over one connection: headers by stream, resets, a GOAWAY, and whether it closed."""

  def __init__(self):
    self.headers, self.resets, self.goaway, self.closed, self.data = {}, {}, None, False, {}
    self.buffer, self.inflater = b'', Inflater()

  def feed(self, data):
    self.buffer += data
    while len(self.buffer) >= 9:
      size = int.from_bytes(self.buffer[:3], 'big')
      if len(self.buffer) < 9 + size:
        return
      kind, stream, payload = self.buffer[3], int.from_bytes(self.buffer[5:9], 'big'), self.buffer[9:9 + size]
      self.buffer = self.buffer[9 + size:]
      if kind == HEADERS:
        self.headers.setdefault(stream, {}).update(self.inflater.read(payload))
      elif kind == DATA:
        self.data[stream] = self.data.get(stream, b'') + payload
      elif kind == RST:
        self.resets[stream] = int.from_bytes(payload, 'big')
      elif kind == GOAWAY:
        self.goaway = int.from_bytes(payload[4:8], 'big')

  def read(self, s, until, seconds=20):
    """Until `until(self)` holds or the service closes."""
    deadline = time.monotonic() + seconds
    while not until(self) and not self.closed:
      s.settimeout(max(0.01, deadline - time.monotonic()))
      try:
        data = s.recv(65536)
      except ConnectionError:
        data = b''
      self.closed = not data
      self.feed(data)
    return self


def call(address, path, body=message(b''), *more, method=b'POST'):
  """One call over a connection of its own; the headers of its answer."""
  with connect(address) as s:
    s.sendall(begin() + frame(HEADERS, END_HEADERS, 1, request_headers(path, *more, method=method)) + frame(DATA, END_STREAM, 1, body))
    return Answers().read(s, lambda a: 'grpc-status' in a.headers.get(1, {})).headers.get(1, {})


# ---- TLS ----

def client_hello():
  """The first bytes that a TLS client sends."""
  import ssl  # here, because another user may not be able to load it
  incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
  context = ssl.create_default_context()
  context.set_alpn_protocols(['h2'])
  try:
    context.wrap_bio(incoming, outgoing, server_hostname='localhost').do_handshake()
  except ssl.SSLWantReadError:
    return outgoing.read()


def certificate(folder):
  """Options of a service with a certificate, of which WEFT_COORD_TLS_CA then tells its clients."""
  made = subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=localhost',
                         '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1', '-keyout', f'{folder}/key', '-out', f'{folder}/cert'], capture_output=True)
  if made.returncode != 0:
    raise Skip('the openssl command makes no certificate here')
  os.environ['WEFT_COORD_TLS_CA'] = f'{folder}/cert'
  return '--tls-cert', f'{folder}/cert', '--tls-key', f'{folder}/key', '--tls-ca', ''


def with_tls(function):
  """function(options) with those of a service with a certificate, which clients that begin meanwhile accept."""
  with tempfile.TemporaryDirectory() as d:
    options = certificate(d)
    try:
      function(options)
    finally:
      del os.environ['WEFT_COORD_TLS_CA']


# ---- other users ----

class Child:
  """A process that runs function(*arguments), of another user if `nobody`.  With ready=True the function's last argument is to be
  called when the block that the process accompanies may begin."""

  def __init__(self, function, *arguments, nobody=True, ready=False):
    if nobody and os.geteuid() != 0:
      raise Skip('only root can be another user')
    reading, writing = os.pipe()
    self.pid, self.waits = os.fork(), ready
    if self.pid == 0:
      try:
        os.close(reading)
        self.out = os.fdopen(writing, 'wb')
        if nobody:
          os.setgroups([])
          os.setgid(NOBODY)
          os.setuid(NOBODY)
        self.tell(function(*arguments, *([lambda: self.tell(None)] if ready else [])))
      except BaseException as error:  # noqa: B036  it goes to the parent
        self.tell(AssertionError(f'{type(error).__name__}: {error}'))
      finally:
        os._exit(0)
    os.close(writing)
    self.told = os.fdopen(reading, 'rb')

  def tell(self, result):
    pickle.dump(result, self.out)
    self.out.flush()

  def hear(self):
    """The next message of the process: that it is ready, or the function's result."""
    try:
      result = pickle.load(self.told)
    except EOFError:
      result = AssertionError('the process died')
    if isinstance(result, AssertionError):
      raise result
    return result

  def __enter__(self):
    if self.waits:
      self.hear()
    return self

  def __exit__(self, *_):
    os.kill(self.pid, signal.SIGKILL)
    os.waitpid(self.pid, 0)
    self.told.close()


def as_nobody(function, *arguments):
  """function(*arguments) in a process of another user; its result."""
  with Child(function, *arguments) as child:
    return child.hear()


# ---- a job ----

def peer(address, task, *commands, env=None):
  program = os.path.join(os.environ.get('WEFT_BUILDDIR', HERE + '/../../build'), 'tests/coord/agent_peer')
  return subprocess.Popen([program, address, str(task), *commands], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})})


def memory(pid):
  """Resident bytes of a process, now and at most."""
  text = open(f'/proc/{pid}/status').read()
  return tuple(int(re.search(name + r':\s+(\d+)', text).group(1)) << 10 for name in ('VmRSS', 'VmHWM'))


class Members:
  """Two processes of the job of `service`, which run rounds of a barrier and a key on request."""

  def __init__(self, service):
    self.service = service

  def rounds(self, count):
    """Seconds, and those of the longest round."""
    name = f'r{time.monotonic_ns()}'
    peers = [peer(self.service.address, task, 'connect', f'rounds,{name},{count}', 'shutdown') for task in range(2)]
    results = []
    for p in peers:
      out, err = p.communicate(timeout=100)
      assert p.returncode == 0, (out, err)
      results.append([float(x) for x in re.search(r'rounds: (\S+) s, the longest (\S+) s', out).groups()])
    return max(r[0] for r in results), max(r[1] for r in results)


def service(*options):
  return Service(2, '--recoverable', '1', '--heartbeat-timeout', '60s', '--shutdown-timeout', '0', *options)
