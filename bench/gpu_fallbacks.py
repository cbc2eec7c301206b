#!/usr/bin/env python3
"""Which steps run on the host on platform cuda: the table of docs/cuda.md, over bench/suite.py and bench/jax_programs.py, both
lowered by JAX for cuda, and the HLO programs of ../shared/testdata/hlo.

    bench/gpu_fallbacks.py [--write] [--keep DIR] WEFT LIBDIR [PROGRAM.hlo ...]

WEFT is the command, LIBDIR the folder of the (emulated) driver.  --write also puts the table into docs/cuda.md; --keep leaves the
programs in DIR, and uses those that are there.  With programs named, only they.  Needs jax 0.10.2.
"""
import argparse
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DOC = os.path.join(HERE, "..", "docs", "cuda.md")
DATA = os.path.join(HERE, "..", "..", "shared", "testdata", "hlo")
MARK = "<!-- fallbacks: {} -->\n"
# What the host does by design: custom calls and callbacks (src/gpu/host_*.c, src/lower).
ON_HOST = "tridiagonal|cholesky-update|sparse-solve|custom-call|callback|check|print"


def write_programs(folder):
    """The programs of both benchmarks as HLO text, lowered for cuda."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.path.insert(0, HERE)
    import jax

    import jax_programs

    def write(kind, name, f, args):
        path = os.path.join(folder, kind, name + ".hlo")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        lowered = jax.jit(f).trace(*args).lower(lowering_platforms=("cuda",))
        with open(path, "w") as out:
            out.write(lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True))

    for name, make in jax_programs.PROGRAMS.items():
        write("jax_programs", name, *make())
    jax.config.update("jax_enable_x64", True)
    import suite

    for name, (f, args) in suite.SUITE.items():
        write("suite", name, f, args)


def devices_of(path):
    """How many devices the program wants by its header."""
    head = open(path, errors="replace").read(4000)
    product = 1
    for field in ("replica_count", "num_partitions"):
        found = re.search(field + r"=(\d+)", head)
        product *= int(found.group(1)) if found else 1
    return product


def steps(weft, env, path):
    """The steps of a program: the text of `weft inspect --thunks`, or the error.  A program whose header does not say for how many
    devices it is written, and that does not compile for one, is compiled for eight."""
    for devices in dict.fromkeys((devices_of(path), 8)):
        env = dict(env, WEFT_EMU_DEVICES=str(min(devices, 8)))
        command = [weft, "inspect", path, "--thunks"] + (["--devices", str(devices)] if devices > 1 else [])
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return "", "takes longer than 300 s to compile"
        if done.returncode == 0:
            return done.stdout, None
        if "group" not in done.stderr:
            break
    return "", (done.stderr.strip().splitlines() or ["no words"])[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", metavar="DIR")
    parser.add_argument("weft")
    parser.add_argument("libdir")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    env = dict(os.environ, WEFT_PLATFORM="cuda", WEFT_CUDA_LIBDIR=options.libdir, WEFT_EMU_LEAKS="off", WEFT_EMU_MEMORY="64G")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or temporary
        if not options.programs and not glob.glob(f"{folder}/*/*.hlo"):
            write_programs(folder)
        files = options.programs or sorted(glob.glob(f"{folder}/*/*.hlo")) + sorted(glob.glob(f"{DATA}/*.hlo"))
        sets = collections.Counter({"suite": 0, "jax_programs": 0, "hlo": 0})
        kernels, calls, reasons, where, failed = 0, 0, collections.Counter(), collections.defaultdict(set), []
        for path in files:
            name = os.path.basename(path).removesuffix(".hlo")
            sets[os.path.basename(os.path.dirname(path))] += 1
            text, error = steps(options.weft, env, path)
            if error:
                failed.append(f"`{name}`: {error}")
                continue
            kernels += len(re.findall(r"^ +\d+ kernel ", text, re.M))
            calls += len(re.findall(r"^ +\d+ (?:dot|convolution|fft|triangular-solve|cholesky|cusolver) ", text, re.M))
            for reason in re.findall(r"^ +\d+ reference .*?\[(.*)\]", text, re.M):
                reasons[reason] += 1
                where[reason].add(name)
            for kind in re.findall(rf"^ +\d+ ({ON_HOST}) ", text, re.M):
                reason = f"{kind}, which the host does by itself"
                reasons[reason] += 1
                where[reason].add(name)
    table = f"Programs: {', '.join(f'{count} of {kind}' for kind, count in sets.items() if count)}. "
    table += f"Their steps: {kernels} kernels, {calls} calls of libraries, {sum(reasons.values())} on the host.\n\n"
    table += "| why a step runs on the host | steps | programs |\n|---|---|---|\n"
    for reason, count in reasons.most_common():
        names = sorted(where[reason])
        table += f"| {reason} | {count} | {', '.join(names[:6])}{', ...' if len(names) > 6 else ''} |\n"
    for line in failed:
        table += f"\nNot compiled: {line}\n"
    print(table)
    if options.write:
        text = open(DOC).read()
        begin, end = text.index(MARK.format("begin")) + len(MARK.format("begin")), text.index(MARK.format("end"))
        with open(DOC, "w") as out:
            out.write(text[:begin] + table + text[end:])


if __name__ == "__main__":
    main()
