#!/usr/bin/env python3
"""Which steps of the programs of bench/suite.py run on the host on platform cuda: the table of docs/cuda.md.

    bench/suite.py DIR && bench/gpu_fallbacks.py [--write] WEFT LIBDIR DIR/*.hlo

WEFT is the command, LIBDIR the folder of the (emulated) driver.  --write also puts the table into docs/cuda.md.
"""
import collections
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DOC = os.path.join(HERE, "..", "docs", "cuda.md")
MARK = "<!-- fallbacks: {} -->\n"


def steps(weft, env, path):
    """The steps of a program: the text of `weft inspect --thunks`, or the error."""
    done = subprocess.run([weft, "inspect", path, "--thunks"], env=env, capture_output=True, text=True, timeout=300)
    return done.stdout, done.stderr.strip().splitlines()[0] if done.returncode else None


def main():
    weft, libdir, *files = [word for word in sys.argv[1:] if word != "--write"]
    env = dict(os.environ, WEFT_PLATFORM="cuda", WEFT_CUDA_LIBDIR=libdir)
    kernels, reasons, where, failed = 0, collections.Counter(), collections.defaultdict(set), []
    for path in files:
        name = os.path.basename(path).removesuffix(".hlo")
        text, error = steps(weft, env, path)
        if error:
            failed.append(f"{name}: {error}")
            continue
        kernels += len(re.findall(r"^ +\d+ kernel ", text, re.M))
        for reason in re.findall(r"^ +\d+ reference .*?\[(.*)\]", text, re.M):
            reasons[reason] += 1
            where[reason].add(name)
    table = f"Of {len(files)} programs: {kernels} steps are kernels, {sum(reasons.values())} run on the host.\n\n"
    table += "| why a step runs on the host | steps | programs |\n|---|---|---|\n"
    for reason, count in reasons.most_common():
        names = sorted(where[reason])
        table += f"| {reason} | {count} | {', '.join(names[:6])}{', ...' if len(names) > 6 else ''} |\n"
    for line in failed:
        table += f"\nNot compiled: {line}\n"
    print(table)
    if "--write" in sys.argv:
        text = open(DOC).read()
        begin, end = text.index(MARK.format("begin")) + len(MARK.format("begin")), text.index(MARK.format("end"))
        with open(DOC, "w") as out:
            out.write(text[:begin] + table + text[end:])


if __name__ == "__main__":
    main()
