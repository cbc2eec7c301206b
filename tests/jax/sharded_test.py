#!/usr/bin/env python3
"""The functions of e2e_test.py with arguments cut at random over 2 x 2 x 2 devices give what they give on one.  Prints TAP.

    Environment as for e2e_test.py.    sharded_test.py [SEED [EVERY]]    EVERY 1: all of them, not each ninth
"""
import random
import sys

import e2e_test as e2e  # starts $WEFT_PYTHON, or skips

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 1
EVERY = int(sys.argv[2]) if len(sys.argv) > 2 else 9


def spec_of(r, shape):
    """Axes for some dimensions that they divide."""
    axes, dims = r.sample("xyz", 3), []
    for size in shape:
        taken = []
        while axes and r.random() < 0.6 and size and size % 2 ** (len(taken) + 1) == 0:
            taken.append(axes.pop())
        dims.append(tuple(taken) or None)
    return P(*dims)


def check(mesh, f, leaves, specs, tree, tol):
    with jax.default_device(mesh.devices.flat[0]):
        want = jax.tree.leaves(jax.jit(f)(*jax.tree.unflatten(tree, leaves)))
    cut = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(leaves, specs)]
    got = jax.tree.leaves(jax.jit(f)(*jax.tree.unflatten(tree, cut)))
    e2e.compare([np.asarray(a) for a in got], [np.asarray(a) for a in want], 4 * tol)  # sums in another order


def main():
    mesh = Mesh(np.array(jax.devices("weft")[:8]).reshape(2, 2, 2), ("x", "y", "z"))
    cases = [c for c in e2e.cases if c[4]][SEED % EVERY::EVERY]
    failed = 0
    print(f"1..{len(cases)}")
    for number, (name, f, args, tol, _) in enumerate(cases, 1):
        r = random.Random(f"{SEED} {name}")
        leaves, tree = jax.tree.flatten(args)
        specs = [spec_of(r, np.shape(a)) for a in leaves]
        try:
            check(mesh, f, leaves, specs, tree, tol)
            print(f"ok {number} - {name}", flush=True)
        except Exception as e:
            failed = 1
            print(f"not ok {number} - {name}\n#   seed {SEED}, cut {specs}")
            for line in f"{type(e).__name__}: {e}".strip().splitlines()[:12]:
                print("#   " + line[:300], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
