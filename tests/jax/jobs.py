"""Jobs of examples/jax that lose a process, get it back, or are preempted, for tests that launch them in different ways; and the end of such tests.

`run(processes, options, program, *args)` launches a program of examples/jax with `weft launch`; the job has to end well. It returns the
output, with "[rank] " in front of each line. The programs check their losses against NumPy at every step.
"""
import os
import subprocess
import time


def goes_on_without_the_lost(run):
    out = run(3, ["--recoverable", "--restarts", "0", "--heartbeat-timeout", "6s"], "survivor.py", "--lose", "2@3", "--steps", "6")
    assert out.count("done:") == 2 and "[2] step 3" not in out, out
    assert all(f"[{rank}] step {step} on 2 devices" in out for rank in (0, 1) for step in (3, 4, 5)), out


def goes_on_with_the_one_that_came_back(run):
    out = run(3, ["--recoverable", "--heartbeat-timeout", "60s"], "survivor.py", "--lose", "1@3", "--steps", "6")
    assert out.count("done:") == 3 and "[1] step 5 on 3 devices" in out, out


def agrees_on_a_last_step_when_preempted(run, checkpoint):
    """The number of the step before which both processes end."""
    out = run(2, [], "preempted.py", "--checkpoint", checkpoint, "--steps", "60", "--pause", "0.1", "--preempt", "1@2")
    last = [line.split()[-1] for line in out.splitlines() if "preempted before step" in line]
    assert len(last) == 2 and last[0] == last[1], out
    return last[0]


def report(python, tests):
    """Runs the tests and prints TAP; the process's exit status."""
    if os.environ.get("WEFT_SANITIZED"):
        print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
        return 0
    if subprocess.run([python, "-c", "import jax"], stderr=subprocess.DEVNULL).returncode:
        print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
        return 0
    failed = 0
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        began = time.monotonic()
        try:
            test()
            print(f"ok {number} - {test.__name__} # {time.monotonic() - began:.1f} s", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as e:
            failed = 1
            print(f"not ok {number} - {test.__name__}\n# " + str(e).replace("\n", "\n# "), flush=True)
    return failed
