#!/usr/bin/env python3
"""Data-parallel training that loses a process and goes on; the process comes back and joins in again.

    weft launch -n 3 --recoverable --heartbeat-timeout 10s -- python examples/jax/survivor.py --lose 2@5
    weft launch -n 3 --recoverable --restarts 0 ...        # it does not come back

Every step runs inside `live_devices`: when a process dies, the collective that waits for it ends with an error, all survivors
leave the block by an exception, and the next block has the devices that are left.  A batch is shared out among whoever
lives, so that the losses are those of an undisturbed run; the program checks this against NumPy.
"""
import argparse
import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.multihost_utils import live_devices
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

BATCH, FEATURES, RATE = 12, 8, 0.1


def batch(step):
    """The same on every process."""
    r = np.random.RandomState(step)
    x = r.randn(BATCH, FEATURES).astype(np.float32)
    return x, (x @ np.arange(FEATURES, dtype=np.float32))[:, None]


def loss_of(w, x, y):
    return jnp.mean((x @ w - y) ** 2)


def numpy_losses(steps):
    """What training gives when nobody dies."""
    w, losses = np.zeros((FEATURES, 1), np.float32), []
    for step in range(steps):
        x, y = batch(step)
        losses.append(float(np.mean((x @ w - y) ** 2)))
        w = w - RATE * 2 / BATCH * x.T @ (x @ w - y)
    return losses


class Trainer:
    """The program for one set of devices."""

    def __init__(self, devices):
        self.mesh = Mesh(np.array(devices), ("batch",))

        @jax.jit
        @jax.shard_map(mesh=self.mesh, in_specs=(P("batch"), P("batch")), out_specs=(P(), P()))
        def furthest(steps, weights):
            steps, weights = lax.all_gather(steps[0], "batch"), lax.all_gather(weights[0], "batch")
            best = jnp.argmax(steps)
            return lax.pmax(steps[best], "batch"), lax.pmean(weights[best], "batch")

        @jax.jit
        def step(w, x, y):
            value, gradient = jax.value_and_grad(loss_of)(w, x, y)
            return value, w - RATE * gradient

        self.furthest, self.step = furthest, step

    def spread(self, a, spec):
        return jax.make_array_from_callback(a.shape, NamedSharding(self.mesh, spec), lambda index: a[index])

    def catch_up(self, step, w):
        """Where the furthest of us is: who has just come back takes over its step and weights."""
        n = self.mesh.size
        steps, weights = np.full((n,), step, np.int32), np.broadcast_to(w, (n, *w.shape))
        step, w = self.furthest(self.spread(steps, P("batch")), self.spread(weights, P("batch")))
        return int(step), np.asarray(w.addressable_data(0))

    def train(self, step, w):
        x, y = batch(step)
        loss, w = self.step(self.spread(w, P()), self.spread(x, P("batch")), self.spread(y, P("batch")))
        return float(loss.addressable_data(0)), np.asarray(w.addressable_data(0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lose", default="", metavar="PROCESS@STEP", help="that process kills itself before that step, once")
    args = parser.parse_args()
    victim, at = map(int, args.lose.split("@")) if args.lose else (-1, -1)
    has_died = f"/tmp/survivor-{os.getppid()}"  # the launcher's id: left behind by the one who dies

    jax.config.update("jax_enable_recoverability", True)
    timeout = os.environ.get("WEFT_COORD_HEARTBEAT_TIMEOUT", "100s")  # from `weft launch --heartbeat-timeout`
    jax.distributed.initialize(heartbeat_timeout_seconds=int(float(timeout.rstrip("s"))))
    me, step, w, trainer = jax.process_index(), 0, np.zeros((FEATURES, 1), np.float32), None
    wanted, members = numpy_losses(args.steps), set()
    while step < args.steps:
        try:
            with live_devices(jax.devices()) as devices:
                if trainer is None or members != set(devices):
                    members, trainer = set(devices), Trainer(devices)
                    step, w = trainer.catch_up(step, w)
                if me == victim and step == at and not os.path.exists(has_died):
                    open(has_died, "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
                loss, new_w = trainer.train(step, w)
        except Exception as e:
            print(f"step {step}: {type(e).__name__}: {str(e).splitlines()[0][:400]}", flush=True)
            trainer = None  # others may have got further, or be new
            continue
        print(f"step {step} on {len(devices)} devices: loss {loss:.4f}", flush=True)
        np.testing.assert_allclose(loss, wanted[step], rtol=1e-3, atol=1e-3)
        step, w = step + 1, new_w
    if me == victim and os.path.exists(has_died):
        os.remove(has_died)
    print("done: the losses of an undisturbed run", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
