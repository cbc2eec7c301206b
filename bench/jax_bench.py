#!/usr/bin/env python3
"""JAX on Weft beside JAX on XLA:CPU, in turns in one run: start, dispatch, steps of the examples.  Prints a table with
ratios (below 1: Weft is faster) and their geometric mean.

    PJRT_NAMES_AND_LIBRARY_PATHS=weft:build-opt/.libs/pjrt_weft.so python bench/jax_bench.py [--rounds N] [-k WORD]

Each figure is the least of the rounds.  Two processes: jaxlib's collectives go through Gloo.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import time

import report

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "examples", "jax")
PLATFORMS = ("weft", "cpu")
START = """
import time; began = time.perf_counter()
import jax, numpy as np
jax.jit(lambda x: x + 1)(np.float32(1)).block_until_ready()
print(time.perf_counter() - began)
"""


def run_child(arguments, environment=(), limit_s=300):
    done = subprocess.run([sys.executable, *arguments], env=dict(os.environ, **dict(environment)), capture_output=True, text=True,
                          timeout=limit_s)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr[-3000:])
    return done.stdout


def start(rounds):
    """A fresh process from `import jax` to the first result."""
    times = {p: [] for p in PLATFORMS}
    for _ in range(rounds):
        for p in PLATFORMS:
            times[p].append(float(run_child(["-c", START], {"JAX_PLATFORMS": p})))
    return {"import to first result": {p: min(t) for p, t in times.items()}}


def two_processes(rounds, steps=20):
    times = {p: [] for p in PLATFORMS}
    for _ in range(rounds):
        for p in PLATFORMS:
            text = run_child([os.path.join(EXAMPLES, "transformer_2d.py"), "--processes", "2", "--steps", str(steps), p])
            times[p].append(float(re.search(r"then (\S+) ms a step", text)[1]) / 1e3)
    return {"transformer, 2 processes x 4 devices": {p: min(t) for p, t in times.items()}}


# ---- in one process with both platforms ------------------------------------------------------------------------------

def seconds_a_call(f, x, calls):
    """Dispatch: the calls return before the work is done; the last is awaited."""
    began = time.perf_counter()
    for _ in range(calls):
        x = f(x)
    x.block_until_ready()
    return (time.perf_counter() - began) / calls


def dispatch(rounds):
    import jax
    import numpy as np
    kinds = {"dispatch of x + 1": ({}, (8,)), "dispatch of a donated update": ({"donate_argnums": 0}, (1024,))}
    out = {}
    for name, (options, shape) in kinds.items():
        f = jax.jit(lambda x: x * 0.5 + 1, **options)
        out[name] = {p: math.inf for p in PLATFORMS}
        for _ in range(3 * rounds):
            for p in PLATFORMS:
                x = f(jax.device_put(np.ones(shape, np.float32), jax.devices(p)[0]))
                out[name][p] = min(out[name][p], seconds_a_call(f, x, 1000))
    return out


def examples(rounds):
    sys.path.insert(0, EXAMPLES)
    sys.argv = ["bench", *PLATFORMS]
    out = {}
    for module, name, steps in (("mlp", "MLP, 1 device", 100), ("convnet", "convnet, 1 device", 30), ("ode", "ODE, 1 device", 50),
                                ("transformer_2d", "transformer, 8 devices", 20)):
        example = __import__(module)
        out[name] = {p: math.inf for p in PLATFORMS}
        for _ in range(rounds):
            for p in PLATFORMS:
                out[name][p] = min(out[name][p], example.run(p, steps, lambda *_: None)[1])
    return out


def child(kind):
    """A measurement that needs a process of its own with both platforms in it."""
    return lambda rounds: json.loads(run_child([os.path.abspath(__file__), "--child", kind, "--rounds", str(rounds)],
                                               {"JAX_PLATFORMS": ",".join(PLATFORMS)}).splitlines()[-1])


CHILDREN = {"dispatch": dispatch, "examples": examples}
MEASUREMENTS = {"start": start, "dispatch": child("dispatch"), "examples": child("examples"), "processes": two_processes}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("-k", default="", help="only measurements whose name has this: " + ", ".join(MEASUREMENTS))
    report.add_options(parser)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options.rounds)))
        return
    rows = {}
    for name, measure in MEASUREMENTS.items():
        if options.k in name:
            rows.update(measure(options.rounds))
    table = report.Table("JAX, Weft beside XLA:CPU", ["", "Weft", "XLA:CPU", "ratio"], "ratio")
    for name, t in rows.items():
        unit, scale = ("us", 1e6) if t["cpu"] < 1e-3 else ("ms", 1e3)
        table.add(name, f"{t['weft'] * scale:.4g} {unit}", f"{t['cpu'] * scale:.4g} {unit}", f"{t['weft'] / t['cpu']:.2f}")
    table.add("geometric mean", "", "", f"{report.geometric_mean(t['weft'] / t['cpu'] for t in rows.values()):.2f}")
    print("\n".join(table.lines()))
    table.note(f"Each figure is the least of {options.rounds} rounds in which the two take turns. XLA:CPU's collectives between processes go through Gloo.")
    table.write(options)


if __name__ == "__main__":
    main()
