#!/usr/bin/env python3
"""Weft beside the libraries that compute the same on CPUs: XLA:CPU, numpy, torch, torch.compile, OpenVINO, ONNX Runtime, IREE, numba, MKL,
FFTW, oneDNN.

    bench/peers.py --build build/quickstart [--peers PYTHON] [--group products] [-k WORD] [--rounds 3] [--seconds 0.3]

Each side is a process of its own that lives as long as the run: Weft and XLA are JAX in $WEFT_PYTHON, the other sides are the
libraries that the interpreter PYTHON has (this one without --peers; bench/peers.txt names them all for pip).  The sides take turns: in
each round each side runs the case for some time, and its shortest call counts.  So all sides see the same load of the machine.  The next side begins
when the threads of the one before have come to rest.  A side that took ten times as long as the best in the first round sits the other rounds out.  All sides get the same inputs, and their results
are compared with Weft's.  Under `chrt -f 5` no other process disturbs any side.

`--isa AVX2` or `--isa AVX512_BF16` has all sides keep to the vector instructions of an older processor, by the variable that each library
reads: what a Zen 3 or a Zen 5 would have, on this machine's cores and memory.  Libraries without such a variable (NO_LIMIT) sit out.

Run it with an interpreter that has numpy ($WEFT_PYTHON has it).

The ratio of a row is Weft / the best peer: below 1 Weft is better.  The share of the peak is what Weft reaches of the
multiply-adds, or of the bytes copied a second, that `bench/peak` measures on the machine (BUILD/bench/peak: `make bench/peak`).
"""
import argparse
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time

import report
from peers_cases import GROUPS, all_cases
from peers_sides import CPUS, NEEDS, PREPARE

HERE = os.path.dirname(os.path.abspath(__file__))
SIDES = tuple(PREPARE)


# ---- older processors -----------------------------------------------------------------------------------------------------

# What keeps a library to the instructions of an older processor.  Weft and XLA: XLA_FLAGS; torch and OpenVINO multiply with oneDNN.
ISAS = {
    "AVX2": {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2", "OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "haswell", "WEFT_PEERS_CPU": "haswell",
             "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"},
    "AVX512_BF16": {"XLA_FLAGS": "--xla_cpu_max_isa=AVX512_BF16", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "ATEN_CPU_CAPABILITY": "avx512",
                    "MKL_ENABLE_INSTRUCTIONS": "AVX512_E3", "NUMBA_CPU_NAME": "cooperlake", "WEFT_PEERS_CPU": "cooperlake"},
}
# The library that XLA and ONNX Runtime each have for products does not hear of a limit; under AVX512_BF16 that shows for bytes alone (AMX).
NO_LIMIT = {"AVX2": ("xla", "onnxruntime", "fftw"), "AVX512_BF16": ()}


# ---- a side: a process that makes cases ready and times their calls ----------------------------------------------------

def make_inputs(case, index):
    import numpy
    rng = numpy.random.default_rng(index)
    return [case.array(i, rng) for i in range(len(case.inputs))]


def shortest(call, seconds):
    """Seconds of the shortest call, of those that fit into the time; calls of a few microseconds are timed ten at a time."""
    began = time.perf_counter()
    call()
    batch = 10 if time.perf_counter() - began < 5e-5 else 1
    least = math.inf
    while True:
        a = time.perf_counter()
        for _ in range(batch):
            call()
        b = time.perf_counter()
        least = min(least, (b - a) / batch)
        if b - began > seconds:
            return least


def be_side(name):
    """Reads {"case", "seconds", "save"} line by line and answers each with {"seconds"}, {"absent"} or {"error"}."""
    import numpy
    cases, now, ready = all_cases(), None, None
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not disturb the answers
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if order["case"] != now:
                now, case = order["case"], cases[order["case"]]
                ready = PREPARE[name](case, make_inputs(case, now))
                if ready:
                    numpy.save(order["save"], numpy.asarray(ready[1](ready[0]()), "float32"))
            answer = {"seconds": shortest(ready[0], order["seconds"])} if ready else {"absent": True}
        except Exception as error:  # a library's refusal of a case is a result
            ready, answer = None, {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        print(json.dumps(answer), file=answers, flush=True)


def busy_ns(pid):
    """The time for which the threads of a process ran so far; None where the system does not say."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    total = 0
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat") as f:
                total += int(f.read().split()[0])
        except (OSError, IndexError, ValueError):
            pass  # the thread has ended
    return total


def settle(pid, limit_s=2):
    """Waits until the process has come to rest.  Threads of OpenMP spin for 200 ms after a call (KMP_BLOCKTIME), and would take a CPU from
    the side that is next, which on two CPUs is half of its time."""
    end = time.monotonic() + limit_s
    before = busy_ns(pid)
    while before is not None and time.monotonic() < end:
        time.sleep(0.01)
        now = busy_ns(pid)
        if now is None or now - before < 1e6:  # a tenth of a CPU
            return
        before = now


class Side:
    """The parent's end of a side's process."""

    def __init__(self, name, python, environment):
        self.name = name
        self.command = [python, os.path.abspath(__file__), "--side", name]
        self.environment = dict(os.environ, **environment)
        self.start()

    def start(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def time(self, case, seconds, save, limit_s=90):
        """The answer of the side.  A side that has died or does not answer in time answers with an error, and is started anew."""
        error = f"no answer within {limit_s} s"
        try:
            print(json.dumps({"case": case, "seconds": seconds, "save": save}), file=self.process.stdin, flush=True)
            if select.select([self.process.stdout], [], [], limit_s)[0]:
                line = self.process.stdout.readline()
                if line:
                    settle(self.process.pid)
                    return json.loads(line)
                self.log.seek(0)
                error = "ended: " + self.log.read()[-300:].strip()
        except OSError:
            error = "the process of this side has ended"
        self.end(0)
        self.start()
        return {"error": error}

    def end(self, limit_s=20):
        """Ends the process: on its own where it does so in time."""
        try:
            self.process.stdin.close()
            self.process.wait(limit_s)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


def has(python, side):
    return subprocess.run([python, "-c", NEEDS[side]], cwd=HERE, capture_output=True, timeout=300).returncode == 0


def find_sides(args):
    """Sides for the libraries that the interpreters have; Weft's comes first."""
    plugin = os.path.abspath(os.path.join(args.build, ".libs", "pjrt_weft.so"))
    weft_python = os.environ.get("WEFT_PYTHON", sys.executable)
    on_xla = {"JAX_PLATFORMS": "cpu"}
    environment = {"weft": {"JAX_PLATFORMS": "weft", "PJRT_NAMES_AND_LIBRARY_PATHS": f"weft:{plugin}"}, "xla": on_xla, "iree": on_xla}
    for name in SIDES:
        if (args.only and name != "weft" and name not in args.only) or name in NO_LIMIT.get(args.isa, ()):
            continue
        python = weft_python if name in ("weft", "xla") else args.peers
        if has(python, name):
            yield Side(name, python, dict(environment.get(name, {}), TF_CPP_MIN_LOG_LEVEL="3"))


# ---- the run -------------------------------------------------------------------------------------------------------------

def measured_peak(build):
    """What bench/peak says of the machine; empty without it."""
    program = os.path.join(build, "bench", "peak")
    if not os.path.exists(program):
        return {}
    return json.loads(subprocess.run([program, str(CPUS)], capture_output=True, text=True, check=True, timeout=300).stdout)


def differing(case, folder, names):
    """The sides whose saved results are not Weft's."""
    import numpy
    mine = numpy.load(f"{folder}/weft.npy")
    for name in names:
        if name == "weft" or not os.path.exists(f"{folder}/{name}.npy"):
            continue
        theirs = numpy.load(f"{folder}/{name}.npy")
        if theirs.shape != mine.shape or not numpy.allclose(theirs, mine, rtol=0, atol=case.tolerance * max(1, float(abs(mine).max())), equal_nan=True):
            yield name


def share(case, seconds, peak):
    kind, work = case.work
    top = peak.get("gflops" if kind == "flop" else "copy_gbs")
    return f"{100 * work / seconds / 1e9 / top:.0f} %" if top else "–"


def measure(case, index, sides, args, folder):
    """{side: seconds} of the sides that ran the case, and {side: error} of those that failed."""
    least, errors = {}, {}
    for _ in range(args.rounds):
        for side in sides:
            if side.name in errors or least.get(side.name, 0) > 10 * min(least.values(), default=0):
                continue
            answer = side.time(index, args.seconds, f"{folder}/{side.name}.npy")
            if "error" in answer:
                errors[side.name] = answer["error"]
            elif "seconds" in answer:
                least[side.name] = min(least.get(side.name, math.inf), answer["seconds"])
    return least, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/quickstart", help="a build of Weft, with its plugin and bench/peak")
    parser.add_argument("--peers", metavar="PYTHON", default=sys.executable, help="the interpreter that has the other libraries")
    parser.add_argument("--only", action="append", choices=SIDES, help="a peer to run; may be given again (default: all that are found)")
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("-k", metavar="WORD", help="only cases whose names contain WORD")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="time of each side in each round")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--isa", choices=ISAS, help="have all sides keep to an older processor's instructions")
    report.add_options(parser)
    args = parser.parse_args()
    os.environ.update(ISAS.get(args.isa, {}))
    if args.side:
        return be_side(args.side)
    chosen = [(i, c) for i, c in enumerate(all_cases()) if (not args.group or c.group in args.group) and (not args.k or args.k in c.name)]
    if args.list:
        for _, case in chosen:
            print(f"{case.group:13} {case.name}")
        return 0
    peak = measured_peak(args.build)
    sides = list(find_sides(args))
    names = [s.name for s in sides]
    if "weft" not in names:
        sys.exit("peers.py: JAX is missing: set WEFT_PYTHON to an interpreter that has it")
    columns = ["case", *(f"{n} ms" for n in names), "ratio", "best peer", "of peak", "results"]
    table = report.Table("Kernels, Weft beside other libraries" + (f", with at most {args.isa}" if args.isa else ""), columns, "ratio")
    ratios, failed = {}, 0
    print(f"{'case':38}" + "".join(f"{n:>12}" for n in names) + "   ratio  best peer, share of peak")
    for index, case in chosen:
        with tempfile.TemporaryDirectory(prefix="weft-peers-") as folder:
            least, errors = measure(case, index, sides, args, folder)
            wrong = list(differing(case, folder, names)) if "weft" in least else []
        for name, error in errors.items():
            print(f"  {name}: {error}", file=sys.stderr)
        failed += "weft" in errors
        peers = {n: s for n, s in least.items() if n != "weft" and n not in wrong}
        best = min(peers, key=peers.get) if peers else None
        ratio = least["weft"] / peers[best] if best and "weft" in least else math.nan
        ratios.setdefault(case.group, []).append(ratio)
        cells = [f"{1e3 * least[n]:.3f}" if n in least else "–" for n in names]
        verdict = "differ: " + ", ".join(wrong) if wrong else "agree" if peers else "–"
        of_peak = share(case, least["weft"], peak) if "weft" in least else "–"
        print(f"{case.name:38}" + "".join(f"{c:>12}" for c in cells) + f"  {ratio:6.2f}  {best or '–'}, {of_peak}" + (f"  {verdict}" if wrong else ""),
              flush=True)
        table.add(case.name, *cells, f"{ratio:.2f}", best or "–", of_peak, verdict)
    for side in sides:
        side.end()
    means = ", ".join(f"{group} {report.geometric_mean(values):.2f}" for group, values in ratios.items())
    print(f"\ngeometric means of Weft / the best peer: {means}")
    table.note(f"Ratios are Weft / the best peer whose results agree: below 1 Weft is better. Geometric means: {means}. The shortest call of "
               f"{args.rounds} rounds counts; Weft and XLA are called through JAX, which costs 3 to 5 µs a call.")
    if args.isa:
        table.note(f"All sides keep to the instructions of {args.isa} (`--isa`), on a machine that has more" +
                   (f"; those that cannot sit out: {', '.join(NO_LIMIT[args.isa])}." if NO_LIMIT[args.isa] else "."))
    if peak:
        table.note(f"Peak of the machine by `bench/peak`: {peak['gflops']:.0f} GFLOP/s of f32, {peak['copy_gbs']:.0f} GB/s copied, "
                   f"{peak['read_gbs']:.0f} GB/s read. The share is of GFLOP/s for products and convolutions (bf16 and s8 too: the peak is that of f32), "
                   f"of bytes copied for kernels.")
    table.write(args)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
