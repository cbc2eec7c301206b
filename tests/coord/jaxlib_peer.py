"""One process of a job, as jaxlib sees it: what the tests start as a subprocess.

Usage: jaxlib_peer.py ADDRESS TASK_ID [key=value ...] SCENARIO [ARGUMENT ...]
Prints what it got; exits 0 on success.  Options: hb= init= stop= (seconds), gzip=0|1.
"""
import os
import sys
import time

import jaxlib_common

_jax = jaxlib_common.load()


def main():
  address, task = sys.argv[1], int(sys.argv[2])
  opts = {'hb': 30, 'init': 60, 'stop': 60, 'gzip': 1, 'connect': 1}
  args = sys.argv[3:]
  while args and '=' in args[0]:
    name, value = args.pop(0).split('=')
    opts[name] = int(value)
  client = _jax.get_distributed_runtime_client(
      address, task, init_timeout=opts['init'], shutdown_timeout=opts['stop'], heartbeat_timeout=opts['hb'],
      shutdown_on_destruction=True, use_compression=bool(opts['gzip']))
  if opts['connect']:
    client.connect()
    print('connected', flush=True)
  globals()['scenario_' + args[0]](client, task, *args[1:])
  print('done', flush=True)
  sys.stdout.flush()
  os._exit(0)  # without destructors, which would call the service


def scenario_idle(client, task, seconds):
  time.sleep(float(seconds))


def scenario_leave(client, task, delay='0'):
  time.sleep(float(delay))
  client.shutdown()


def expect(code, fragment, call):
  try:
    call()
  except Exception as error:  # JaxRuntimeError
    text = str(error)
    assert text.startswith(code), (code, text)
    assert fragment in text, (fragment, text)
    return
  raise AssertionError('no ' + code)


def scenario_kv(client, task, count):
  count = int(count)
  client.key_value_set(f'kv/a//{task}/', f'value {task}')
  for peer in range(count):
    got = client.blocking_key_value_get(f'kv/a/{peer}', 30000)
    assert got == f'value {peer}', got
  client.wait_at_barrier('kv-compared', 30000)
  expect('ALREADY_EXISTS', 'already exists', lambda: client.key_value_set(f'kv/a/{task}', 'x'))
  client.key_value_set(f'kv/a/{task}', 'new', allow_overwrite=True)
  assert client.key_value_try_get(f'kv/a/{task}') == 'new'
  expect('NOT_FOUND', 'Config key nothing not found', lambda: client.key_value_try_get('nothing'))
  expect('DEADLINE_EXCEEDED', 'nothing', lambda: client.blocking_key_value_get('nothing', 100))
  blob = bytes(range(256)) * 4096 * 4
  client.key_value_set_bytes(f'kv/bytes/{task}', blob)
  for peer in range(count):
    assert client.blocking_key_value_get_bytes(f'kv/bytes/{peer}', 30000) == blob
  client.wait_at_barrier('kv-done', 30000)
  assert sorted(k for k, _ in client.key_value_dir_get('kv/a')) == [f'kv/a/{p}' for p in range(count)]
  assert sum(len(v) for _, v in client.key_value_dir_get_bytes('kv/bytes/')) == count * len(blob)
  assert client.key_value_dir_get('kv/b') == []
  client.wait_at_barrier('kv-listed', 30000)
  client.key_value_increment('counter', 5)
  client.wait_at_barrier('kv-incremented', 30000)
  assert int(client.key_value_try_get('counter')) == 5 * count
  client.wait_at_barrier('kv-read', 30000)
  if task == 0:
    assert client.key_value_increment('counter', -5 * count) == 0
    client.key_value_delete('kv')
    assert client.key_value_dir_get('kv') == []
    expect('FAILED_PRECONDITION', '', lambda: (client.key_value_set('text', 'abc'), client.key_value_increment('text', 1)))
  client.shutdown()


def scenario_barriers(client, task, count):
  count = int(count)
  for _ in range(20):
    client.wait_at_barrier('again', 30000)
  if task < 2:
    client.wait_at_barrier('two', 30000, process_ids=[1, 0])
  expect('INVALID_ARGUMENT', 'Conflicting tasks specified',
         lambda: client.wait_at_barrier('conflict', 30000, process_ids=[task, (task + 1) % count][:2] if task else [0, 1, 2]))
  client.wait_at_barrier('between', 30000)
  if task == 0:
    expect('DEADLINE_EXCEEDED', 'Barrier timed out', lambda: client.wait_at_barrier('late', 500))
    client.key_value_set('late', '1')
  else:
    client.blocking_key_value_get('late', 30000)
    expect('DEADLINE_EXCEEDED', 'Barrier timed out', lambda: client.wait_at_barrier('late', 500))
  client.wait_at_barrier('all-were-late', 30000)
  client.wait_at_barrier('late', 30000)
  if task == 0:
    expect('INVALID_ARGUMENT', 'A non-participating task', lambda: client.wait_at_barrier('others', 5000, process_ids=[1]))
  client.shutdown()


def scenario_live(client, task, count):
  count = int(count)
  alive = client.get_live_nodes(list(range(count)))
  assert sorted(alive) == list(range(count)), alive
  assert all(i != 0 for i in alive.values())
  again = client.get_live_nodes(list(range(count)))
  assert alive == again
  client.shutdown()


def scenario_live_without(client, task, dead, *everyone):
  """Waits until `dead` is gone, as the living agree."""
  everyone = [int(t) for t in everyone]
  while True:
    alive = client.get_live_nodes(everyone)
    if int(dead) not in alive:
      break
    time.sleep(0.2)
  assert sorted(alive) == sorted(set(everyone) - {int(dead)}), alive
  print('without', flush=True)


def scenario_live_with(client, task, *everyone):
  everyone = [int(t) for t in everyone]
  while sorted(client.get_live_nodes(everyone)) != sorted(everyone):
    time.sleep(0.2)
  client.wait_at_barrier('together', 30000)
  print('with', flush=True)


def scenario_preempt(client, task, key):
  manager = _jax.create_preemption_sync_manager()
  manager.initialize(client)
  print('stepping', flush=True)
  for step in range(1, 1000):
    if manager.reached_sync_point(step):
      client.key_value_set(key, str(step))
      break
    time.sleep(0.05)
  else:
    raise AssertionError('no sync point')
  client.wait_at_barrier('stopped', 30000)
  steps = {value for _, value in client.key_value_dir_get('stopped-at')}
  assert len(steps) == 1, steps


def scenario_barrier(client, task, name, seconds='20'):
  client.wait_at_barrier(name, int(float(seconds) * 1000))


def scenario_barrier_fails(client, task, name, code, fragment, seconds='20'):
  expect(code, fragment, lambda: client.wait_at_barrier(name, int(float(seconds) * 1000)))


def scenario_shutdown_fails(client, task, code, fragment):
  expect(code, fragment, client.shutdown)


if __name__ == '__main__':
  main()
