"""What the examples share: the platforms named on the command line, and losses that must agree.

    python mlp.py [--steps N] [PLATFORM ...]        e.g. weft cpu: both, compared; without names: weft

The plugin comes from the installed Python package, or from PJRT_NAMES_AND_LIBRARY_PATHS=weft:.../pjrt_weft.so.
"""
import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("platforms", nargs="*", default=["weft"])
parser.add_argument("--steps", type=int, default=0, help="0: as many as the example takes")
parser.add_argument("--processes", type=int, default=1, help="transformer_2d.py: processes that share the devices")
parser.add_argument("--process", type=int, default=-1, help=argparse.SUPPRESS)
parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
options = parser.parse_args()
DEVICES = 8  # of all processes together
os.environ["JAX_PLATFORMS"] = ",".join(options.platforms)
os.environ["WEFT_NUM_DEVICES"] = str(DEVICES // options.processes)
os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") +
                           f" --xla_force_host_platform_device_count={DEVICES // options.processes}")


def train(platform, steps, step, state, batches, report=print):
    """Runs `state, loss = step(state, batch)` and returns the losses and the time of a step after the first."""
    import jax
    losses, began = [], time.perf_counter()
    for i in range(steps):
        state, loss = step(state, batches[i % len(batches)])
        losses.append(loss)
        if i == 0:
            loss.block_until_ready()
            first, began = time.perf_counter() - began, time.perf_counter()
    losses = [float(x) for x in jax.device_get(losses)]
    seconds = (time.perf_counter() - began) / max(steps - 1, 1)
    report(f"{platform}: first step {first:.2f} s, then {seconds * 1e3:.2f} ms a step; loss {losses[0]:.5f} -> {losses[-1]:.5f}")
    return losses, seconds


def main(run, steps, tolerance=2e-3):
    """`run(platform, steps)` gives losses; they must fall and be the same on all platforms."""
    runs = [run(p, options.steps or steps)[0] for p in options.platforms]
    assert runs[0][-1] < runs[0][0], "the loss does not fall"
    for other in runs[1:]:
        difference = max(abs(a - b) for a, b in zip(runs[0], other))
        print(f"largest difference of the losses: {difference:.2e}")
        assert difference < tolerance
