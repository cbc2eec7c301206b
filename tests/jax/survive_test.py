#!/usr/bin/env python3
"""Jobs under `weft launch` that lose a process, get it back, or are preempted: examples/jax/survivor.py, preempted.py.

Each checks its losses against NumPy at every step.  Prints TAP.  Interpreter with jax: $WEFT_PYTHON.
"""
import os
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build"))
PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable
PLUGIN = f"{BUILD}/.libs/pjrt_weft.so"
LIMIT_S = 400


def launch(processes, options, program, *args):
    """Output, with "[rank] " in front of each line; the job has to end well."""
    env = dict(os.environ, PYTHONPATH=os.path.join(HERE, "../../python"), WEFT_PJRT_PLUGIN=PLUGIN, JAX_PLATFORMS="weft,cpu")
    r = subprocess.run([f"{BUILD}/weft", "launch", "-n", str(processes), *options, "--", PYTHON,
                        os.path.join(HERE, "../../examples/jax", program), *args],
                       env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    assert r.returncode == 0, r.stdout[-3000:]
    return r.stdout


def goes_on_without_the_lost():
    out = launch(3, ["--recoverable", "--restarts", "0", "--heartbeat-timeout", "6s"], "survivor.py", "--lose", "2@3", "--steps", "6")
    assert out.count("done:") == 2 and "[2] step 3" not in out, out
    assert all(f"[{rank}] step {step} on 2 devices" in out for rank in (0, 1) for step in (3, 4, 5)), out


def goes_on_with_the_one_that_came_back():
    out = launch(3, ["--recoverable", "--heartbeat-timeout", "60s"], "survivor.py", "--lose", "1@3", "--steps", "6")
    assert out.count("done:") == 3 and "[1] step 5 on 3 devices" in out, out


def goes_on_where_it_was_preempted():
    with tempfile.TemporaryDirectory() as d:
        args = ["--checkpoint", f"{d}/train.npz", "--steps", "60", "--pause", "0.1"]
        out = launch(2, [], "preempted.py", *args, "--preempt", "1@2")
        last = [line.split()[-1] for line in out.splitlines() if "preempted before step" in line]
        assert len(last) == 2 and last[0] == last[1], out
        out = launch(2, [], "preempted.py", *args, "--pause", "0")
        assert f"[0] goes on at step {last[0]}" in out and f"[1] step {last[0]}:" in out and out.count("done:") == 2, out


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
    env = dict(os.environ, PYTHONPATH=os.path.join(HERE, "../../python"), WEFT_PJRT_PLUGIN=PLUGIN, JAX_PLATFORMS="weft,cpu", WEFT_NUM_DEVICES="1")
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


def main():
    if os.environ.get("WEFT_SANITIZED"):
        print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
        return 0
    if subprocess.run([PYTHON, "-c", "import jax"], stderr=subprocess.DEVNULL).returncode:
        print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
        return 0
    tests, failed = (goes_on_without_the_lost, goes_on_with_the_one_that_came_back, goes_on_where_it_was_preempted,
                     hears_at_once_of_an_exception_elsewhere, hears_at_once_of_an_exception_before_the_first_collective), 0
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {test.__name__}", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as e:
            failed = 1
            print(f"not ok {number} - {test.__name__}\n# " + str(e).replace("\n", "\n# "), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
