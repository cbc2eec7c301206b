#!/usr/bin/env python3
"""Jobs under `weft launch` that lose a process, get it back, or are preempted: examples/jax/survivor.py, preempted.py.

Each checks its losses against NumPy at every step.  Prints TAP.  Interpreter with jax: $WEFT_PYTHON.
$WEFT_JAX_NAME: the platform's name in JAX, "cuda" with WEFT_PLATFORM=cuda; $WEFT_TEST_PYTHONPATH: a folder that comes first.
"""
import os
import socket
import subprocess
import sys
import tempfile
import time

import jobs

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build"))
PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable
PLUGIN = f"{BUILD}/.libs/pjrt_weft.so"
LIMIT_S = 400
FOLDERS = ":".join(filter(None, (os.environ.get("WEFT_TEST_PYTHONPATH"), os.path.join(HERE, "../../python"))))
SETTINGS = {"PYTHONPATH": FOLDERS, "WEFT_PJRT_PLUGIN": PLUGIN, "JAX_PLATFORMS": os.environ.get("WEFT_JAX_NAME", "weft") + ",cpu"}


def launch(processes, options, program, *args):
    """Output, with "[rank] " in front of each line; the job has to end well."""
    env = dict(os.environ, **SETTINGS)
    r = subprocess.run([f"{BUILD}/weft", "launch", "-n", str(processes), *options, "--", PYTHON,
                        os.path.join(HERE, "../../examples/jax", program), *args],
                       env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    assert r.returncode == 0, r.stdout[-3000:]
    return r.stdout


def goes_on_without_the_lost():
    jobs.goes_on_without_the_lost(launch)


def goes_on_with_the_one_that_came_back():
    jobs.goes_on_with_the_one_that_came_back(launch)


def goes_on_where_it_was_preempted():
    with tempfile.TemporaryDirectory() as d:
        last = jobs.agrees_on_a_last_step_when_preempted(launch, f"{d}/train.npz")
        out = launch(2, [], "preempted.py", "--checkpoint", f"{d}/train.npz", "--steps", "60", "--pause", "0")
        assert f"[0] goes on at step {last}" in out and f"[1] step {last}:" in out and out.count("done:") == 2, out


RAISES = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.distributed.initialize(sys.argv[1], 3, int(sys.argv[2]))
mesh = Mesh(np.array(jax.devices()), ("x",))
x = jax.make_array_from_callback((6,), NamedSharding(mesh, P("x")), lambda i: np.ones(6, np.float32)[i])
total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))
for step in range(2):
    if sys.argv[2] == "1" and step == int(sys.argv[3]):
        raise ValueError("bad data in part 1")
    print("total", total(x * (step + 1)), flush=True)
"""


def three_of_which_one_raises(step):
    """Output of each.  The process that raised waits in JAX's shutdown barrier for the others; these wait in no collective for it (the time limit is 300 s)."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % s.getsockname()[1]
    env = dict(os.environ, **SETTINGS, WEFT_NUM_DEVICES="1", **({"WEFT_CUDA_DEVICES": "1"} if "WEFT_JAX_NAME" in os.environ else {}))
    ranks = [subprocess.Popen([PYTHON, "-c", RAISES, address, str(rank), str(step)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(3)]
    try:
        outs = [p.communicate(timeout=LIMIT_S)[0] for p in ranks]
    finally:
        for p in ranks:
            p.kill()
    assert [p.returncode for p in ranks] == [1, 1, 1], outs
    assert all("ValueError: bad data in part 1" in out for out in outs), outs
    return outs


def hears_at_once_of_an_exception_elsewhere():
    for out in three_of_which_one_raises(step=1):
        assert out.count("total 6.0") == 1 and "total 12.0" not in out, out


def hears_at_once_of_an_exception_before_the_first_collective():
    began = time.monotonic()
    for out in three_of_which_one_raises(step=0):
        assert "total 6.0" not in out, out
    assert time.monotonic() - began < 100, "as long as a rendezvous waits"


if __name__ == "__main__":
    sys.exit(jobs.report(PYTHON, (goes_on_without_the_lost, goes_on_with_the_one_that_came_back, goes_on_where_it_was_preempted,
                                  hears_at_once_of_an_exception_elsewhere, hears_at_once_of_an_exception_before_the_first_collective)))
