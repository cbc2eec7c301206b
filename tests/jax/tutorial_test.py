#!/usr/bin/env python3
"""docs/tutorial.md: its files are written and its commands run, in order, as a reader would.  And docs/errors.md names every code.  Prints TAP.

The block behind "Save this ... as `NAME`" is that file; each line of a `sh` block is a command.  All but FAILS have to end with 0.  The fences have a language
and nothing else, which is all that the site's Markdown knows.
"""
import os
import re
import subprocess
import sys
import tempfile

import jobs

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.abspath(os.path.join(HERE, "../.."))
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build"))
PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable
LIMIT_S = 400
# What the page promises of the output of a command.
PROMISES = {
    "weft run line.hlo --compare reference": "agrees",
    "python line.py": "on [WeftDevice(id=0)]: slope 2.000, loss 0.000000",
    "weft launch -n 2 --devices-per-process 2 -- python many.py": "of 2, 4 devices: slope 2.000",
    "weft launch -n 2 --fault kill:rank=1,after=0.2s -- python many.py": "rank 1 was killed by signal 9 (Killed)",
    "weft launch -n 3 --recoverable --heartbeat-timeout 10s -- python examples/jax/survivor.py --lose 2@5": "done: the losses of an undisturbed run",
}


FAILS = "weft launch -n 2 --fault kill:rank=1,after=0.2s -- python many.py"


def blocks():
    """(language, name of the file, text)"""
    with open(f"{SOURCE}/docs/tutorial.md", encoding="utf-8") as f:
        page = f.read()
    assert not re.findall(r"(?m)^```.*[^a-z`\n].*$", page)
    parts = re.split(r"(?m)^```(\w*)\n", page)  # prose, "sh", commands, "", prose, ...
    for prose, language, text in zip(parts[0::4], parts[1::4], parts[2::4]):
        name = re.search(r"Save this (?:one )?as `([\w.]+)`", prose.strip().split("\n\n")[-1])
        yield language, name and name.group(1), text


def the_tutorial_runs():
    promised = dict(PROMISES)
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(f"{d}/bin")
        os.symlink(f"{BUILD}/weft", f"{d}/bin/weft")
        with open(f"{d}/bin/python", "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nexec "{PYTHON}" "$@"\n')
        os.chmod(f"{d}/bin/python", 0o755)
        os.symlink(f"{SOURCE}/examples", f"{d}/examples")
        env = dict(os.environ, PATH=f"{d}/bin:" + os.environ["PATH"], PYTHONPATH=f"{SOURCE}/python", JAX_PLATFORMS="weft,cpu",
                   WEFT_PJRT_PLUGIN=f"{BUILD}/.libs/pjrt_weft.so")
        for language, name, text in blocks():
            if name:
                with open(f"{d}/{name}", "w", encoding="utf-8") as f:
                    f.write(text)
            for command in text.splitlines() if language == "sh" else []:
                r = subprocess.run(command, shell=True, cwd=d, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
                assert (r.returncode != 0) == (command == FAILS), f"{command}: {r.returncode}\n{r.stdout[-3000:]}"
                assert promised.pop(command, "") in r.stdout, f"{command}:\n{r.stdout[-3000:]}"
        assert os.path.getsize(f"{d}/trace.json") > 0
    assert not promised, promised


def every_code_is_on_the_page_of_errors():
    with open(f"{SOURCE}/src/base/status.h", encoding="utf-8") as f:
        codes = set(re.findall(r"X\((\w+), \d+\)", f.read())) - {"OK"}
    with open(f"{SOURCE}/docs/errors.md", encoding="utf-8") as f:
        rows = set(re.findall(r"(?m)^\| `(\w+)` \|", f.read()))
    assert codes == rows and len(codes) == 16, codes ^ rows


if __name__ == "__main__":
    sys.exit(jobs.report(PYTHON, [every_code_is_on_the_page_of_errors, the_tutorial_runs]))
