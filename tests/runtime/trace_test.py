#!/usr/bin/env python3
"""WEFT_TRACE is written when a signal comes, in the command and in a process of Python that has handlers.  Prints TAP.

    The command: $WEFT_BUILDDIR/weft.  Plugin: $WEFT_PLUGIN, else $WEFT_BUILDDIR/.libs/pjrt_weft.so.  Interpreter with
    jax: $WEFT_PYTHON.
"""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build"))
WEFT = os.path.join(BUILD, "weft")
PROGRAM = """HloModule products
ENTRY e {
  a = f32[256,256] parameter(0)
  ROOT d = f32[256,256] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
PLUGIN = os.path.abspath(os.environ.get("WEFT_PLUGIN") or os.path.join(BUILD, ".libs", "pjrt_weft.so"))
LIMIT_S = 60


def wait_until(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{LIMIT_S} s have passed: {what}")
        time.sleep(0.01)


def threads_of(pid):
    names = []
    for path in glob.glob(f"/proc/{pid}/task/*/comm"):
        try:
            names.append(open(path).read().strip())
        except OSError:
            pass  # the thread has ended
    return names


def events_of(path):
    """The steps in a trace, once it is complete; [] before."""
    try:
        with open(path) as file:
            return [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and "program" in e["args"]]
    except (OSError, ValueError):
        return []


def snapshot(process, path):
    """Has the running command write its trace until there is a step in it, and removes the file."""
    def has_steps():
        process.send_signal(signal.SIGUSR1)
        return events_of(path)
    wait_until(has_steps, f"no trace {path}")
    time.sleep(0.1)  # for the file of the last signal
    os.unlink(path)


def usual_signals():
    """What a shell ignores in jobs that it starts in the background has its usual effect again."""
    for number in signal.SIGTERM, signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)


class Command:
    """Starts an endless `weft run`, and returns when it writes the trace on signals."""

    def __init__(self, trace, before=usual_signals):
        self.process = subprocess.Popen([WEFT, "run", "-", "--quiet", "--repeat", "1000000"], preexec_fn=before,
                                        env=dict(os.environ, WEFT_TRACE=trace, WEFT_THREADS="1"), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.process.stdin.write(PROGRAM)
        self.process.stdin.close()

    def __enter__(self):
        wait_until(lambda: "weft-trace" in threads_of(self.process.pid), "the thread that writes the trace")
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def a_signal_that_ends_the_command_writes_the_trace_first(folder):
    for number in signal.SIGTERM, signal.SIGINT:
        trace = os.path.join(folder, f"{int(number)}.json")
        with Command(trace) as process:
            snapshot(process, trace)
            process.send_signal(number)
            assert process.wait(LIMIT_S) == -number, (process.returncode, number)
        steps = events_of(trace)
        assert steps and all(e["args"]["module"] == "products" and e["args"]["run"] > 0 for e in steps), steps[:2]


def sigusr1_writes_the_trace_and_the_command_goes_on(folder):
    trace = os.path.join(folder, "trace-%p.json")
    with Command(trace) as process:
        path = trace.replace("%p", str(process.pid))
        for _ in range(2):
            snapshot(process, path)
            assert process.poll() is None, process.returncode


def a_signal_that_is_ignored_stays_ignored(folder):
    trace = os.path.join(folder, "ignored.json")
    with Command(trace, lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None and not os.path.exists(trace), process.returncode


PYTHON_PROGRAM = """
import os, signal, sys, time
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append("TERM"))
signal.signal(signal.SIGINT, signal.default_int_handler)
import jax, jax.numpy as jnp
trace = sys.argv[1]
jax.block_until_ready(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((64, 64))))
def written():
    end = time.monotonic() + 60
    while not (os.path.exists(trace) and open(trace).read().rstrip().endswith("]}")):
        assert time.monotonic() < end, "no trace"
        time.sleep(0.01)
    os.unlink(trace)
os.kill(os.getpid(), signal.SIGTERM)
written()
assert came == ["TERM"], came
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
    sys.exit("no KeyboardInterrupt")
except KeyboardInterrupt:
    written()
os.kill(os.getpid(), signal.SIGUSR1)
written()
for number in signal.SIGUSR1, signal.SIGTERM:
    child = os.fork()
    if child == 0:
        if number == signal.SIGTERM: signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -number
assert not os.path.exists(trace)
print("fine")
"""


def python_keeps_its_handlers_and_children_theirs(folder):
    trace = os.path.join(folder, "python.json")
    python = os.environ.get("WEFT_PYTHON") or sys.executable
    if os.environ.get("WEFT_SANITIZED"):
        return "Python cannot load a plugin built with a sanitizer"
    if subprocess.run([python, "-c", "import jax"], capture_output=True).returncode:
        return "no jax in this interpreter (set WEFT_PYTHON)"
    environment = dict(os.environ, WEFT_TRACE=trace, PJRT_NAMES_AND_LIBRARY_PATHS=f"weft:{PLUGIN}", JAX_PLATFORMS="weft")
    done = subprocess.run([python, "-W", "ignore", "-c", PYTHON_PROGRAM, trace], env=environment, capture_output=True,
                          text=True, timeout=3 * LIMIT_S)
    assert done.returncode == 0 and "fine" in done.stdout, done.stdout + done.stderr[-2000:]
    assert events_of(trace), "no trace at the end of the process"
    return None


CASES = [a_signal_that_ends_the_command_writes_the_trace_first, sigusr1_writes_the_trace_and_the_command_goes_on,
         a_signal_that_is_ignored_stays_ignored, python_keeps_its_handlers_and_children_theirs]
print(f"1..{len(CASES)}")
failed = False
for index, case in enumerate(CASES, 1):
    with tempfile.TemporaryDirectory() as work:
        try:
            skipped = case(work)
            print(f"ok {index} - {case.__name__}" + (f" # SKIP {skipped}" if skipped else ""))
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed = True
            print(f"not ok {index} - {case.__name__}")
            print("\n".join("# " + line for line in str(error).splitlines()))
sys.exit(failed)
