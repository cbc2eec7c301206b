#!/usr/bin/env python3
"""Weft against XLA:CPU, side by side: the same programs, inputs and threads, in alternation, in one run.

    bench/vs_xla.py [--weft build/quickstart/weft] [--rounds 3] [--repeat 20] PROGRAM.hlo ...

For each program and round it runs `weft run` and jaxlib in a process of its own, one after the other, on the inputs that
Weft generates (saved once as .npy), and takes the median over the rounds.  On a machine that others use too, --best takes
the shortest run instead of the median one: what is left is what the program costs.  Prints compile, first run, median run and
temporary bytes of each, the ratios Weft / XLA (below 1: Weft is better) and their geometric means.  Results are compared
too: a fast wrong answer is no answer.  Where results differ by more than the tolerance, both sides are held against XLA's own
results for the program in wider floats (bf16 and f16 in f32, else f32 in f64), and agree if Weft's are as close to those.  Needs jax 0.10.2
in $WEFT_PYTHON or this interpreter.

With --against OTHER/weft another build of Weft takes XLA's place, to see what a change costs; the verdict is then whether both give
the same bits.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

import report

HERE = os.path.dirname(os.path.abspath(__file__))
ORACLE = os.path.join(HERE, "..", "tests", "xla", "oracle.py")
PYTHON = os.environ.get("WEFT_PYTHON", sys.executable)


def run_weft(weft, program, inputs, outputs, repeat, extra):
    args = [weft, "run", program, "--json", "--quiet", "--repeat", str(repeat)] + extra
    args += ["--output-dir", outputs] if outputs else []
    if inputs and os.path.isdir(inputs):
        n = 0
        while os.path.exists(f"{inputs}/input_{n}.npy"):
            args += ["--input", f"{inputs}/input_{n}.npy"]
            n += 1
    elif inputs:
        args += ["--save-inputs", inputs]
    done = subprocess.run(args, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:])
    return json.loads(done.stdout)


def run_xla(program, inputs, expect, repeat, *more):
    env = dict(os.environ, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3")
    args = [PYTHON, ORACLE, program, "--json", "--repeat", str(repeat), "--inputs", inputs]
    args += (["--expect-from", expect] if expect else []) + list(more)
    done = subprocess.run(args, capture_output=True, text=True, timeout=1200, env=env)
    if done.returncode:
        raise RuntimeError(f"XLA exits with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


def same_bits(mine, theirs):
    """Of two folders of outputs."""
    names = sorted(os.listdir(mine))
    if names != sorted(os.listdir(theirs)):
        return "other outputs"
    for name in names:
        with open(f"{mine}/{name}", "rb") as a, open(f"{theirs}/{name}", "rb") as b:
            if a.read() != b.read():
                return "other bits"
    return "same bits"


def judge(program, tmp):
    """A verdict on results that differ, by way of the program in wider floats; None if there are none to widen."""
    with open(program, "rb") as f:
        if not re.search(rb"\b(b?f16|f32)\[", f.read()):
            return None
    run_xla(program, f"{tmp}/in", None, 0, "--outputs", f"{tmp}/xla")
    ours, theirs = run_xla(program, f"{tmp}/in", f"{tmp}/out", 0, "--judge", f"{tmp}/xla")
    verdict = "agrees in noise" if ours <= theirs else "differs"
    return f"{verdict}: error against wider floats {ours:.2g}, XLA's {theirs:.2g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--weft", default="build/quickstart/weft")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--weft-args", default="", help="more options for weft run")
    parser.add_argument("--best", action="store_true", help="the shortest run of each, not the median one")
    parser.add_argument("--against", metavar="WEFT", help="another build of Weft in XLA's place")
    report.add_options(parser)
    args = parser.parse_args()
    peer = "before" if args.against else "XLA"
    table = report.Table(f"Programs, Weft beside {'another build of it' if args.against else 'XLA:CPU'}",
                         ["program"] + [f"{what}: Weft, {peer}" for what in ("compile ms", "run ms", "temporaries MB")] +
                         ["compile", "first run", "run", "temporaries", "results"], "run")
    run = "min_ms" if args.best else "median_ms"
    ratios = {"compile_ms": [], "first_run_ms": [], run: [], "temp_bytes": []}
    print(f"{'program':44} {'':6} {'compile ms':>11} {'first ms':>10} {run.replace('_', ' '):>10} {'temp MB':>9} {'RSS MB':>7}  result")
    for program in args.programs:
        name = os.path.basename(program).removesuffix(".hlo")[:44]
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as tmp:
            inputs, outputs = f"{tmp}/in", f"{tmp}/out"
            rows = {"weft": [], "xla": []}
            verdict = "?"
            try:
                for r in range(args.rounds):
                    rows["weft"].append(run_weft(args.weft, program, inputs, outputs if r == 0 else None, args.repeat,
                                                 args.weft_args.split()))
                    rows["xla"].append(run_weft(args.against, program, inputs, f"{tmp}/other" if r == 0 else None, args.repeat,
                                                args.weft_args.split()) if args.against else
                                       run_xla(program, inputs, outputs if r == 0 else None, args.repeat))
                verdict = same_bits(outputs, f"{tmp}/other") if args.against else rows["xla"][0].get("verdict", "?")
                if not args.against and verdict != "agrees":
                    verdict = judge(program, tmp) or verdict
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name:44} failed: {error}")
                continue
        middle = min if args.best else statistics.median
        median = {side: {k: middle(row[k] for row in rows[side])
                         for k in ("compile_ms", "first_run_ms", run, "temp_bytes", "peak_rss_mb")}
                  for side in rows}
        for side in ("weft", "xla"):
            m = median[side]
            print(f"{name if side == 'weft' else '':44} {'weft' if side == 'weft' else peer:6} {m['compile_ms']:11.1f} {m['first_run_ms']:10.3f} "
                  f"{m[run]:10.3f} {m['temp_bytes'] / 1e6:9.2f} {m['peak_rss_mb']:7.0f}  "
                  f"{verdict if side == 'weft' else ''}")
        line = {}
        for k in ratios:
            a, b = median["weft"][k], median["xla"][k]
            line[k] = a / b if b else (1.0 if not a else float("inf"))
            if math.isfinite(line[k]) and line[k] > 0:
                ratios[k].append(line[k])
        print(f"{'':44} ratio  {line['compile_ms']:11.2f} {line['first_run_ms']:10.2f} {line[run]:10.2f} "
              f"{line['temp_bytes']:9.2f}", flush=True)
        w, x = median["weft"], median["xla"]
        table.add(name, f"{w['compile_ms']:.1f}, {x['compile_ms']:.1f}", f"{w[run]:.3f}, {x[run]:.3f}",
                  f"{w['temp_bytes'] / 1e6:.2f}, {x['temp_bytes'] / 1e6:.2f}", *(f"{line[k]:.2f}" for k in ratios), verdict)
    means = [report.geometric_mean(ratios[k]) for k in ratios]
    words = f"compile {means[0]:.2f}, first run {means[1]:.2f}, {'best' if args.best else 'median'} run {means[2]:.2f}, temporaries {means[3]:.2f}"
    print(f"\ngeometric mean of ratios over {len(ratios[run])} programs: {words}")
    table.note(f"Ratios are Weft / {peer}: below 1 Weft is better. Geometric means over {len(ratios[run])} programs: {words} (figures that are "
               f"zero on one side are left out). {'The shortest' if args.best else 'The median'} of {args.repeat} runs counts.")
    table.write(args)


if __name__ == "__main__":
    main()
