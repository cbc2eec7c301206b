#!/usr/bin/env python3
"""How good the estimates of src/codegen/model/cost.c are: estimate over measurement, by kind of step.

    bench/costs.py [--weft build/quickstart/weft] [--repeat 4] PROGRAM.hlo ...

Joins `weft inspect --thunks` (the estimates) with the least durations of a traced run on one thread (WEFT_TRACE), for steps
from 3 us on, and prints for each kind the number of steps and the 10 %, median and 90 % of the ratio: 1 is right, above 1 is
an estimate that is too long. 
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

import report

LEAST_US = 3
COSTLY = set("exponential log tanh sine cosine power logistic erf exponential-minus-one log-plus-one tan atan2".split())
KINDS = [("sums over windows", {"reduce-window", "select-and-scatter"}), ("scatters", {"scatter"}), ("loops as one kernel", {"while"}),
         ("kernels with exponentials and the like", COSTLY), ("gathers", {"gather"}), ("reductions", {"reduce"}),
         ("transposes", {"transpose"})]
LIBRARY = {"dot": "products", "convolution": "convolutions", "fft": "Fourier transforms", "sort": "sorts", "topk": "top-k"}


def operations(optimized):
    """Fusion -> operations of its computation."""
    inside, calls, name = collections.defaultdict(set), {}, None
    for line in optimized.splitlines():
        if head := re.match(r"(?:ENTRY )?%?([\w.-]+).* {$", line):
            name = head.group(1)
        elif found := re.match(r"\s+(?:ROOT )?%?([\w.-]+) = .*? ([a-z][\w-]*)\(", line):
            inside[name].add(found.group(2))
            if called := re.search(r" fusion\(.*calls=%?([\w.-]+)", line):
                calls[found.group(1)] = called.group(1)
    return {fusion: inside[called] for fusion, called in calls.items()}


def kind_of(step, ops):
    if step != "kernel":
        return LIBRARY.get(step, step)
    return next((kind for kind, some in KINDS if ops & some), "elementwise kernels")


def least_durations(weft, program, repeat):
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        env = dict(os.environ, WEFT_THREADS="1", WEFT_TRACE=trace)
        subprocess.run([weft, "run", program, "--quiet", "--repeat", str(repeat)], env=env, check=True, capture_output=True, timeout=300)
        least = {}
        for event in json.load(open(trace))["traceEvents"]:
            if event.get("ph") == "X":
                least[event["name"]] = min(event["dur"], least.get(event["name"], event["dur"]))
        return least


def ratios(weft, program, repeat):
    def inspect(what):
        return subprocess.run([weft, "inspect", program, what], check=True, capture_output=True, text=True, timeout=300).stdout

    measured, ops = least_durations(weft, program, repeat), operations(inspect("--optimized"))
    for step, name, us in re.findall(r"^ +\d+ (\S+) +(\S+) +([\d.]+) us", inspect("--thunks"), re.M):
        if step not in ("while", "conditional", "call") and measured.get(name, 0) >= LEAST_US:
            yield kind_of(step, ops.get(name, set())), max(float(us), 1e-3) / measured[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--weft", default="build/quickstart/weft")
    parser.add_argument("--repeat", type=int, default=4)
    report.add_options(parser)
    args = parser.parse_args()
    kinds = collections.defaultdict(list)
    for program in args.programs:
        try:
            for kind, ratio in ratios(args.weft, program, args.repeat):
                kinds[kind].append(ratio)
                kinds["all"].append(ratio)
        except subprocess.SubprocessError as error:
            print(f"{program}: {error}", file=sys.stderr)
    table = report.Table("Estimates of costs over measurements", ["steps", "number", "10 %", "median", "90 %"], "median")
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        found.sort()
        table.add(kind, len(found), *(f"{found[len(found) * tenth // 10]:.2f}" for tenth in (1, 5, 9)))
    print("\n".join(table.lines()))
    table.note(f"Steps of at least {LEAST_US} us on one thread, the least of {args.repeat} traced runs: 1 is right, above 1 the estimate is too long.")
    table.write(args)


if __name__ == "__main__":
    main()
