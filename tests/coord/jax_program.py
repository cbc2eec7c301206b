"""A JAX program without a word about Weft: `weft launch` starts it, and its service coordinates it."""
import sys

import jax
from jax._src import distributed
from jax.experimental import multihost_utils

jax.config.update('jax_platforms', 'cpu')
# No collectives here: the data plane is not what is tested.
jax.distributed.initialize(initialization_timeout=60, shutdown_timeout_seconds=30)
state = distributed.global_state
client = state.client
rank, count = state.process_id, state.num_processes
assert count == int(sys.argv[1]), count
client.key_value_set(f'program/{rank}', str(rank))
client.wait_at_barrier('program', 30000)
assert len(client.key_value_dir_get('program')) == count
alive = client.get_live_nodes(list(range(count)))
assert sorted(alive) == list(range(count))
assert jax.process_count() == count and jax.process_index() == rank
assert len(jax.devices()) == count * jax.local_device_count()
ids = [d.id for d in jax.devices()]
assert len(set(ids)) == len(ids)
with multihost_utils.live_devices(jax.devices()) as devices:
  assert len(devices) == len(ids)
if len(sys.argv) > 2 and sys.argv[2] == 'preempt':
  import os
  import signal
  import time
  step = 0
  client.wait_at_barrier('ready', 30000)
  if rank == 1:
    os.kill(os.getpid(), signal.SIGTERM)
  while not multihost_utils.reached_preemption_sync_point(step):
    time.sleep(0.1)
    step += 1
    assert step < 200
  client.key_value_set(f'sync/{rank}', str(step))
  client.wait_at_barrier('synced', 30000)
  assert len({v for _, v in client.key_value_dir_get('sync')}) == 1
print('all is well', flush=True)
jax.distributed.shutdown()
