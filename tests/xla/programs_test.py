#!/usr/bin/env python3
"""Small programs that show defects which are repaired (TAP): compiled, run, and held against the reference evaluator and,
where jaxlib 0.10.2 is installed, against XLA:CPU on the same inputs.

programs.hlo has them all.  "// case NAME" begins one; "// case NAME, not XLA: WHY" one that XLA:CPU is not asked about.
programs_test.py FILE... takes programs from these files instead."""
import os
import re
import subprocess
import sys
import tempfile

python = os.environ.get("WEFT_PYTHON")
if python and "WEFT_XLA_PROGRAMS" not in os.environ:
    os.execve(python, [python, *sys.argv], dict(os.environ, WEFT_XLA_PROGRAMS="1", TF_CPP_MIN_LOG_LEVEL="3"))

HERE = os.path.dirname(os.path.abspath(__file__))
WEFT = os.path.join(os.environ["WEFT_BUILDDIR"], "weft")
sys.path.insert(0, HERE)
try:
    import numpy as np
    import jaxlib  # noqa: F401
    import oracle
except ImportError:
    oracle = None


def cases(paths):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            parts = re.split(r"^// case ([^,\n]+)(?:, not XLA: (.*))?\n", f.read(), flags=re.M)
        for name, why, text in zip(parts[1::3], parts[2::3], parts[3::3]):
            yield name, why, text


def against_xla(path, folder):
    """The difference between XLA:CPU's and Weft's results, or ""."""
    program = oracle.Program(path)
    types = [oracle.leaf_dtype(s) for s in oracle.flat_shapes(program.shape.parameter_shapes())]
    arrays = [oracle.load_npy(f"{folder}/input_{i}.npy", t) for i, t in enumerate(types)]
    for i, result in enumerate(program.run(program.put(arrays))):
        want = np.asarray(result)
        wrong = oracle.compare(oracle.load_npy(f"{folder}/result_{i}.npy", want.dtype), want)
        if wrong:
            return f"XLA, result {i}: {wrong}"
    return ""


def check(text, ask_xla):
    with tempfile.TemporaryDirectory(prefix="weft-programs-") as folder:
        path = f"{folder}/program.hlo"
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        done = subprocess.run([WEFT, "run", path, "--quiet", "--compare", "reference", "--save-inputs", folder, "--output-dir", folder],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            return (done.stderr + done.stdout).strip()
        return against_xla(path, folder) if ask_xla and oracle else ""


def main():
    todo = list(cases(sys.argv[1:] or [f"{HERE}/programs.hlo"]))
    print(f"1..{len(todo)}")
    for number, (name, why, text) in enumerate(todo, 1):
        wrong = check(text, not why)
        note = f" # not against XLA: {why}" if why else "" if oracle else " # the evaluator alone: no jaxlib"
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}{'' if wrong else note}", flush=True)
        for line in wrong.splitlines():
            print(f"# {line}", flush=True)


main()
