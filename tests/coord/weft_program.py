"""A JAX program that does not name its coordinator or its number: jax.distributed finds the processes, Weft is the backend.  usage: PROCESSES"""
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

count = int(sys.argv[1])
jax.distributed.initialize(initialization_timeout=90)
assert jax.process_count() == count, jax.process_count()
devices = jax.devices()
assert 'weft' in devices[0].client.platform_version.lower(), devices[0].client.platform_version
assert len(devices) == count * jax.local_device_count(), devices
assert sorted({d.process_index for d in devices}) == list(range(count))
n = len(devices)
mesh = Mesh(np.array(devices), ('x',))
a = np.arange(4.0 * n, dtype=np.float32)
x = jax.make_array_from_callback(a.shape, NamedSharding(mesh, P('x')), lambda i: a[i])
step = jax.jit(jax.shard_map(lambda x: lax.psum(x, 'x') + lax.ppermute(x, 'x', [(i, (i + 1) % n) for i in range(n)]),
                             mesh=mesh, in_specs=P('x'), out_specs=P('x')))
want = np.tile(a.reshape(n, 4).sum(0), (n, 1)) + np.roll(a.reshape(n, 4), 1, 0)
for shard in step(x).addressable_shards:
    np.testing.assert_array_equal(np.asarray(shard.data), want.reshape(-1)[shard.index])
total = jax.jit(lambda x: jnp.sum(x), out_shardings=NamedSharding(mesh, P()))(x)
assert float(np.asarray(total.addressable_data(0))) == a.sum()
multihost_utils.sync_global_devices('end')
print(f'process {jax.process_index()} of {count}: all is well', flush=True)
jax.distributed.shutdown()
