#!/usr/bin/env python3
"""Two processes of two devices each, joined by jax.distributed on loopback, compute over all four.  Prints TAP.

    PJRT plugin: $WEFT_PLUGIN, else $WEFT_BUILDDIR/.libs/pjrt_weft.so.  Interpreter with jax: $WEFT_PYTHON.
    $WEFT_JAX_NAME: the platform's name in JAX; "cuda" with WEFT_PLATFORM=cuda.
"""
import os
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../coord"))
from jaxlib_common import free_port

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)

PLUGIN = os.environ.get("WEFT_PLUGIN") or os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs", "pjrt_weft.so")
PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable
PROCESSES, DEVICES, LIMIT_S = 2, 2, 400
NAMES = ["every process sees all devices", "psum over both processes", "every collective over both processes",
         "jit of a global array", "two axes, one in each process", "a loop of collectives",
         "a program for another process's devices", "device_put to another process's devices",
         "the helpers of multihost_utils", "an array from each process's part, random numbers, and all of it everywhere"]


def worker(index, port):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    if os.environ["JAX_PLATFORMS"] == "cuda":  # JAX looks for device files of NVIDIA's driver; the emulated one has none
        from jax._src import hardware_utils
        hardware_utils.has_visible_nvidia_gpu = lambda: True
    jax.distributed.initialize(f"127.0.0.1:{port}", PROCESSES, index, initialization_timeout=120)
    devices = jax.devices()
    n = PROCESSES * DEVICES
    mesh = Mesh(np.array(devices), ("x",))

    def spread(a, mesh, spec):
        return jax.make_array_from_callback(a.shape, NamedSharding(mesh, spec), lambda i: a[i], dtype=a.dtype)

    def local_equals(array, want):
        for s in array.addressable_shards:
            np.testing.assert_allclose(np.asarray(s.data), want[s.index], rtol=1e-5)

    def sees_all():
        assert len(devices) == n and len(jax.local_devices()) == DEVICES, devices
        assert [d.process_index for d in devices] == [0, 0, 1, 1], devices
        assert jax.process_index() == index and jax.process_count() == PROCESSES

    def psum():
        a = np.arange(8.0, dtype=np.float32)
        f = jax.jit(jax.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
        local_equals(f(spread(a, mesh, P("x"))), a.reshape(n, 2).sum(0))

    def collectives():
        def f(x):
            g = lax.all_gather(x, "x", tiled=True)
            s = lax.psum_scatter(g, "x", tiled=True)
            p = lax.ppermute(s, "x", [(j, (j + 1) % n) for j in range(n)])
            return lax.all_to_all(p.reshape(n, -1), "x", 0, 0).reshape(-1) + lax.pmax(x, "x") + lax.axis_index("x")

        a = np.arange(64.0, dtype=np.float32)
        got = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(spread(a, mesh, P("x")))
        x = a.reshape(n, 16)
        p = np.roll(a.reshape(n, 16) * n, 1, 0).reshape(n, n, 4)
        want = p.transpose(1, 0, 2).reshape(n, 16) + x.max(0) + np.arange(n)[:, None]
        local_equals(got, want.reshape(-1).astype(np.float32))

    def jit_global():
        a, b = np.arange(32.0, dtype=np.float32).reshape(8, 4), np.arange(12.0, dtype=np.float32).reshape(4, 3)
        f = jax.jit(lambda a, b: jnp.tanh(a @ b / 100), out_shardings=NamedSharding(mesh, P("x")))
        local_equals(f(spread(a, mesh, P("x")), spread(b, mesh, P())), np.tanh(a @ b / 100))
        total = jax.jit(lambda a: a.sum(), out_shardings=NamedSharding(mesh, P()))(spread(a, mesh, P("x")))
        assert float(np.asarray(total.addressable_data(0))) == a.sum()

    def two_axes():
        grid = Mesh(np.array(devices).reshape(PROCESSES, DEVICES), ("host", "local"))
        a = np.arange(16.0, dtype=np.float32).reshape(4, 4)
        f = jax.jit(jax.shard_map(lambda x: (lax.psum(x, "host"), lax.psum(x, "local")), mesh=grid,
                                  in_specs=P("host", "local"), out_specs=(P(None, "local"), P("host", None))))
        over_host, over_local = f(spread(a, grid, P("host", "local")))
        local_equals(over_host, a[:2] + a[2:])
        local_equals(over_local, a[:, :2] + a[:, 2:])

    def loop():
        f = jax.jit(jax.shard_map(lambda x: lax.fori_loop(0, 20, lambda i, a: lax.pmean(a, "x") + x * 0.5, x),
                                  mesh=mesh, in_specs=P("x"), out_specs=P("x")))
        a = np.arange(8.0, dtype=np.float32)
        x = want = a.reshape(n, 2)
        for _ in range(20):
            want = want.mean(0) + x * 0.5
        for _ in range(3):
            got = f(spread(a, mesh, P("x")))
        local_equals(got, want.reshape(-1))

    def elsewhere():
        there = Mesh(np.array(devices[:DEVICES]), ("x",))
        a = np.arange(4.0, dtype=np.float32)
        local_equals(jax.jit(lambda a, b: a + b)(spread(a, there, P("x")), spread(a, there, P("x"))), 2 * a)

    def transfer():
        here, there = (Mesh(np.array(devices[i * DEVICES:(i + 1) * DEVICES]), ("x",)) for i in range(PROCESSES))
        a = np.arange(16.0, dtype=np.float32).reshape(4, 4)
        x = spread(a, here, P("x"))
        for k in range(3):  # the source is still being computed when the transfer starts
            y = jax.device_put(jax.jit(lambda x: x * 2)(x), NamedSharding(there, P("x")))
            z = jax.device_put(y, NamedSharding(here, P("x")))
            local_equals(y, 2 * a)
            local_equals(z, 2 * a)

    def helpers():
        tree = multihost_utils.broadcast_one_to_all({"a": np.float32(index), "b": np.full((3, 2), index, np.int8)})
        assert tree["a"] == 0 and not tree["b"].any(), tree
        part = np.full((2,), index, np.float32)
        assert multihost_utils.process_allgather(part).tolist() == [[i, i] for i in range(PROCESSES)]
        assert multihost_utils.process_allgather(part, tiled=True).tolist() == [i for i in range(PROCESSES) for _ in range(2)]
        multihost_utils.assert_equal(np.arange(3), "the same everywhere")
        try:
            multihost_utils.assert_equal(np.arange(3) + index, "not the same")
            assert index == 0  # with which the others are compared
        except AssertionError as e:
            assert "not the same" in str(e), e
        rows = np.arange(4 * DEVICES, dtype=np.float32).reshape(-1, 2) + 10 * index
        x = multihost_utils.host_local_array_to_global_array(rows, mesh, P("x"))
        np.testing.assert_array_equal(multihost_utils.global_array_to_host_local_array(x, mesh, P("x")), rows)
        assert multihost_utils.process_allgather(x, tiled=True).sum() == sum((rows - 10 * index + 10 * i).sum() for i in range(PROCESSES))

    def parts():
        spread_out, everywhere = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
        x = jax.make_array_from_process_local_data(spread_out, np.full((2 * DEVICES, 3), index, np.float32))
        assert float(jnp.sum(x)) == 6 * DEVICES * sum(range(PROCESSES))
        key = jax.random.key(3)
        local_equals(jax.jit(lambda k: jax.random.normal(k, (8,)), out_shardings=spread_out)(key), np.asarray(jax.random.normal(key, (8,))))
        a = np.arange(8.0, dtype=np.float32)
        b = jax.device_put(a, spread_out)
        local_equals(jax.jit(jnp.cumsum, out_shardings=everywhere)(b), a.cumsum())
        local_equals(jax.device_put(b, everywhere), a)

    for name, f in zip(NAMES, (sees_all, psum, collectives, jit_global, two_axes, loop, elsewhere, transfer, helpers, parts)):
        try:
            f()
            print(f"PASS {name}", flush=True)
        except Exception as e:
            print(f"FAIL {name}: {type(e).__name__}: {str(e)[:600]}", flush=True)
    multihost_utils.sync_global_devices("end")
    jax.distributed.shutdown()


def main():
    if subprocess.run([PYTHON, "-c", "import jax"], stderr=subprocess.DEVNULL).returncode:
        print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
        return 0
    if not os.path.exists(PLUGIN):
        print(f"Bail out! no plugin at {PLUGIN}")
        return 1
    port = free_port()
    name = os.environ.get("WEFT_JAX_NAME", "weft")
    env = dict(os.environ, PJRT_NAMES_AND_LIBRARY_PATHS=f"{name}:{PLUGIN}", JAX_PLATFORMS=name, WEFT_NUM_DEVICES=str(DEVICES))
    children = [subprocess.Popen([PYTHON, __file__, "worker", str(i), str(port)], env=env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
                for i in range(PROCESSES)]
    outputs = []
    for child in children:
        try:
            outputs.append(child.communicate(timeout=LIMIT_S)[0])
        except subprocess.TimeoutExpired:
            for c in children:
                if c.poll() is None:
                    os.killpg(c.pid, signal.SIGKILL)
            outputs.append(child.communicate()[0] + f"\n(ended after {LIMIT_S} s)")
    print(f"1..{len(NAMES) + 1}")
    failed = 0
    for i, name in enumerate(NAMES):
        ok = all(f"PASS {name}\n" in out for out in outputs)
        failed += not ok
        print(f"{'ok' if ok else 'not ok'} {i + 1} - {name}")
    ended = all(c.returncode == 0 for c in children)
    print(f"{'ok' if ended else 'not ok'} {len(NAMES) + 1} - all processes end")
    if failed or not ended:
        for i, out in enumerate(outputs):
            for line in [f"process {i} ended with {children[i].returncode}"] + out.splitlines()[-25:]:
                print("#   " + line[:400])
    return 1 if failed or not ended else 0


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "worker":
        worker(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())
