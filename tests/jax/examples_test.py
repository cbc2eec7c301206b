#!/usr/bin/env python3
"""The examples for JAX in a small form: their losses on Weft are XLA:CPU's, and those of several processes are one
process's.  Prints TAP.

    PJRT plugin: $WEFT_PLUGIN, else $WEFT_BUILDDIR/.libs/pjrt_weft.so.  Interpreter with jax: $WEFT_PYTHON.
"""
import os
import re
import subprocess
import sys

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)

PLUGIN = os.environ.get("WEFT_PLUGIN") or os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs", "pjrt_weft.so")
PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "jax")
LIMIT_S = 200
if subprocess.run([PYTHON, "-c", "import jax"], capture_output=True).returncode:
    print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    sys.exit(0)


def example(name, *arguments):
    """What it printed.  An example fails if its losses do not fall, or differ between platforms."""
    environment = dict(os.environ, PJRT_NAMES_AND_LIBRARY_PATHS=f"weft:{os.path.abspath(PLUGIN)}")
    done = subprocess.run([PYTHON, os.path.join(EXAMPLES, name), *arguments], env=environment, capture_output=True, text=True,
                          timeout=LIMIT_S)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr[-2000:])
    return done.stdout


def last_loss(text):
    return float(re.search(r"loss \S+ -> (\S+)", text)[1])


def both_platforms(name, steps):
    text = example(name, "--steps", str(steps), "weft", "cpu")
    assert "largest difference" in text, text


def processes(count):
    alone = last_loss(example("transformer_2d.py", "--steps", "5", "weft"))
    together = last_loss(example("transformer_2d.py", "--steps", "5", "--processes", str(count), "weft"))
    assert abs(alone - together) < 1e-4, (alone, together)


CASES = [
    ("a perceptron", lambda: both_platforms("mlp.py", 20)),
    ("a convolutional net", lambda: both_platforms("convnet.py", 10)),
    ("an ODE solver", lambda: both_platforms("ode.py", 10)),
    ("a transformer over 2 x 4 devices", lambda: both_platforms("transformer_2d.py", 5)),
    ("the transformer in two processes", lambda: processes(2)),
]


def main():
    failed = 0
    print(f"1..{len(CASES)}")
    for number, (name, run) in enumerate(CASES, 1):
        try:
            run()
            print(f"ok {number} - {name}", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as e:
            failed = 1
            print(f"not ok {number} - {name}")
            for line in str(e).strip().splitlines()[-14:]:
                print("#   " + line[:300], flush=True)
    return failed


sys.exit(main())
