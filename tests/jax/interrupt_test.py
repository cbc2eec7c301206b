#!/usr/bin/env python3
"""A program that gets SIGINT while JAX compiles on Weft meets KeyboardInterrupt at once and ends as any other: with its own exit status.
Each case is a process of its own, interrupted at a random moment of a compilation.  Prints TAP.

    PJRT plugin: $WEFT_BUILDDIR/.libs/pjrt_weft.so.  Interpreter with jax 0.10.2: $WEFT_PYTHON.  $WEFT_TEST_SEED: another draw of moments.
"""
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable
PLUGIN = os.path.abspath(os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs", "pjrt_weft.so"))
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
LIMIT_S = 300
# argv: after how much of a compilation the signal comes, relative to what one takes.
PROGRAM = """
    import os, signal, sys, threading, time
    import jax, jax.numpy as jnp
    def program(length):
        def f(x):
            for i in range(length):
                x = jnp.sin(x) * (i + 1) + jnp.flip(x)
            return x
        return jax.jit(f).lower(jnp.ones(64))
    short, long = program(100), program(1200)
    start = time.monotonic()
    short.compile()
    takes = 12 * (time.monotonic() - start)
    timers = [threading.Timer(takes * float(moment), os.kill, (os.getpid(), signal.SIGINT)) for moment in sys.argv[1:]]
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        long.compile()
        time.sleep(600)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    del long
    import gc; gc.collect()
"""
AGAIN = """
    if jax.jit(lambda x: x + 1)(1) == 2:
        print("compiles again", flush=True)
"""
# A compilation that never ends, so that only the second SIGINT can end the process. With "pending" among the arguments it comes just
# before the wait begins: what raises it is not Python code, so no earlier frame of Python sees it.
ENDLESS = """
    import atexit, ctypes, signal, sys, threading
    import jax._src.compiler as compiler
    def endless(*args, **kwargs):
        print("compiling", flush=True)
        threading.Event().wait()
    compiler.backend_compile_and_load = endless
    import jax
    jax.devices()
    if "pending" in sys.argv:
        atexit.register(getattr(ctypes.CDLL(None), "raise"), signal.SIGINT)
    atexit.register(print, "ending", flush=True)  # called before what waits for compilations, which is older
    try:
        jax.jit(lambda x: x + 1)(1)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def start(code, *arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "WEFT_NUM"))}
    env.update(WEFT_PJRT_PLUGIN=PLUGIN, PYTHONPATH=PACKAGE, JAX_PLATFORMS="weft")
    return subprocess.Popen([PYTHON, "-c", textwrap.dedent(code), *map(str, arguments)], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, start_new_session=True)


def run(code, *moments):
    p = start(code, *moments)
    try:
        return p.wait(LIMIT_S), p.stdout.read()
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        return "it hangs", p.communicate()[0]


def run_endless(*arguments):
    """Interrupts the compilation, and again while the end of the interpreter waits for it, until the process ends.  A process that
    is told "pending" interrupts its end by itself."""
    p, lines = start(ENDLESS, *arguments), []
    watch = threading.Timer(LIMIT_S, p.kill)
    watch.start()
    for line in p.stdout:
        lines.append(line)
        if line == "compiling\n":
            p.send_signal(signal.SIGINT)
        if line == "ending\n":
            break
    while "pending" not in arguments and p.poll() is None:  # a signal that meets another step of the end is lost, and sent again
        p.send_signal(signal.SIGINT)
        time.sleep(0.5)
    status = p.wait()
    watch.cancel()
    return status, "".join(lines)


def main():
    if os.environ.get("WEFT_SANITIZED"):
        return print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    if subprocess.run([PYTHON, "-c", "import jax"], capture_output=True).returncode:
        return print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    draw = random.Random(int(os.environ.get("WEFT_TEST_SEED", "1")))
    cases = [(PROGRAM, (draw.uniform(0, 0.5),), 0, "interrupted\n") for _ in range(6)]
    cases.append((PROGRAM + AGAIN, (draw.uniform(0, 0.2),), 0, "interrupted\ncompiles again\n"))
    endless = [("a second SIGINT ends the wait for a compilation", ()),
               ("a second SIGINT that comes just before the wait ends it too", ("pending",))]
    print(f"1..{len(cases) + len(endless)}")
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for number, (case, result) in enumerate(zip(cases, pool.map(lambda c: run(c[0], *c[1]), cases)), 1):
            ok = result == case[2:]
            failed += not ok
            print(f"{'' if ok else 'not '}ok {number} - SIGINT at {', '.join(f'{m:.3f}' for m in case[1])} of a compilation" +
                  ("" if ok else f"\n# {result}"), flush=True)
    for number, (name, arguments) in enumerate(endless, len(cases) + 1):
        result = run_endless(*arguments)
        ok = result == (128 + signal.SIGINT, "compiling\ninterrupted\nending\n")
        failed += not ok
        print(f"{'' if ok else 'not '}ok {number} - {name}" + ("" if ok else f"\n# {result}"), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
