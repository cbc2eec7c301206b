#!/usr/bin/env python3
"""Weft's platform cuda beside XLA:GPU on one device: kernels with their bandwidth, and the programs of bench/jax_programs.py.

    WEFT_PLUGIN=build-opt/.libs/pjrt_weft.so bench/gpu_vs_xla.py [--peer cuda|cpu|none] [--small] [-k WORD] [--seconds N] [--jobs N]

Each program runs in a process of its own, in which Weft and the peer take turns; the time of a run is the least of the rounds, each
of which queues several runs and waits for the last.  Values are checked against each other.  --peer cuda is JAX's own CUDA plugin
(jax-cuda), which rounds f32 operands of products to tf32 where their precision is not the highest: Weft is told to do the same
(WEFT_CUDA_TF32).  --jobs N compiles N programs side by side and measures one after another once all are compiled: quicker, and times
of compilation are those of a busy machine.  cpu, XLA:CPU, and --small, arrays of a few KiB, are for trying this script on the emulated GPU, where times mean nothing.
Goals (docs/cuda.md) are marked in the last column: a share of the bandwidth of a copy, measured here, or a ratio to XLA.
"""
import argparse
import contextlib
import fcntl
import json
import math
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import report  # noqa: E402

# name: (share of the copy's bandwidth that is the goal, or None)
KERNELS = {"copy": None, "add": 0.9, "gelu": 0.9, "row_sum": 0.85, "softmax": 0.85, "layer_norm": 0.85, "column_sum": 0.8,
           "transpose": 0.8, "matmul_bf16": None, "matmul_f32": None, "launch_of_one_step": None, "launch_of_30_steps": None}


def kernel(name, small):
    """A function, its arguments, the bytes that it must move and the operations of a product."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    rows, columns = (64, 128) if small else (16384, 4096)
    side = 64 if small else 8192
    x = np.random.RandomState(0).standard_normal((rows, columns)).astype(np.float32)
    n = x.nbytes
    square = np.random.RandomState(1).standard_normal((side, side)).astype(np.float32)
    flops = 2 * side ** 3

    def steps(v):
        for i in range(30):
            v = jnp.sort(v) if i % 2 else jnp.cumsum(v)
        return v

    return {
        "copy": (lambda a: jnp.copy(a), (x,), 2 * n, 0),
        "add": (lambda a, b: a + b, (x, x[::-1].copy()), 3 * n, 0),
        "gelu": (jax.nn.gelu, (x,), 2 * n, 0),
        "row_sum": (lambda a: a.sum(1), (x,), n + 4 * rows, 0),
        "softmax": (lambda a: jax.nn.softmax(a, 1), (x,), 2 * n, 0),
        "layer_norm": (lambda a: (a - a.mean(1, keepdims=True)) / jnp.sqrt(a.var(1, keepdims=True) + 1e-5), (x,), 2 * n, 0),
        "column_sum": (lambda a: a.sum(0), (x,), n + 4 * columns, 0),
        "transpose": (lambda a: jnp.transpose(a) + 1, (x,), 2 * n, 0),
        "matmul_bf16": (lambda a: a.astype(jnp.bfloat16) @ a.astype(jnp.bfloat16), (square,), 0, flops),
        "matmul_f32": (lambda a: jnp.matmul(a, a, precision="highest"), (square,), 0, flops),
        "launch_of_one_step": (lambda a: a + 1, (x[0, :64].copy(),), 0, 0),
        "launch_of_30_steps": (steps, (x[0, :64].copy(),), 0, 0),
    }[name]


# -- one program, in a process of its own ---------------------------------------------------------------------------------------------
@contextlib.contextmanager
def one_of(folder, what, count):
    """Holds one of `count` locks; without a folder there is nobody to share with."""
    files = [open(os.path.join(folder, f"{what}{i}"), "w") for i in range(count)] if folder else []
    held = not files
    while not held:
        for f in files:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
                break
            except BlockingIOError:
                pass
        else:
            time.sleep(0.05)
    try:
        yield
    finally:
        for f in files:
            f.close()


def measure(f, args, devices, options, seconds):
    import jax

    import jax_programs

    compiled, placed, results, out = {}, {}, {}, {}
    with one_of(options.folder, "compiler", options.jobs):
        for name, device in devices.items():
            placed[name] = jax_programs.place(device, args)
            with jax.default_device(device):
                lowered = jax.jit(f).lower(*placed[name])
                began = time.perf_counter()
                compiled[name] = lowered.compile()
            out[name] = {"compile": time.perf_counter() - began, "run": math.inf, "queue": math.inf}
            results[name] = jax.block_until_ready(compiled[name](*placed[name]))
    if options.folder:
        open(os.path.join(options.folder, "ready-" + options.one), "w").close()
        while not os.path.exists(os.path.join(options.folder, "go")):
            time.sleep(0.05)
    with one_of(options.folder, "device", 1):
        for _ in range(options.rounds):
            for name in devices:
                began = time.perf_counter()
                jax.block_until_ready(compiled[name](*placed[name]))
                count = max(1, min(100, int(seconds / (time.perf_counter() - began))))
                began = time.perf_counter()
                for _ in range(count):
                    last = compiled[name](*placed[name])
                queued = time.perf_counter()
                jax.block_until_ready(last)
                out[name]["run"] = min(out[name]["run"], (time.perf_counter() - began) / count)
                out[name]["queue"] = min(out[name]["queue"], (queued - began) / count)
    if len(devices) > 1:
        out["difference"] = jax_programs.differ(results["weft"], results["peer"])
    return out


def one(options):
    os.environ["WEFT_PLATFORM"] = "cuda"
    os.environ.setdefault("WEFT_CUDA_TF32", "1")
    os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"] = "weftgpu:" + options.plugin
    os.environ["JAX_PLATFORMS"] = ",".join(["weftgpu"] + [options.peer] * (options.peer != "none") + ["cpu"] * (options.peer != "cpu"))
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from jax._src import hardware_utils

    if options.peer != "cuda":
        hardware_utils.has_visible_nvidia_gpu = lambda: True  # JAX looks for device files, which an emulated device has not
    import jax_programs

    devices = {"weft": jax.devices("weftgpu")[0]}
    if options.peer != "none":
        devices["peer"] = jax.devices(options.peer)[0]
    if options.one in KERNELS:
        f, args, moved, flops = kernel(options.one, options.small)
    else:
        (f, args), moved, flops = jax_programs.PROGRAMS[options.one](), 0, 0
    out = measure(f, args, devices, options, 0.01 if options.small else 0.05)
    print(json.dumps(dict(out, moved=moved, flops=flops, device=jax.devices("weftgpu")[0].device_kind)))


# -- all of them ----------------------------------------------------------------------------------------------------------------------
def names_of_programs():
    sys.path.insert(0, HERE)
    text = open(os.path.join(HERE, "jax_programs.py")).read().split("@program\ndef ")[1:]
    return [part[:part.index("(")] for part in text]


def row(name, r, copy):
    """The cells of a program's row; `copy` is the bandwidth of a copy, GB/s."""
    weft, peer = r["weft"], r.get("peer")
    both = lambda what, scale, form: ", ".join(format(x[what] * scale, form) for x in (weft, peer) if x)
    rate, goal = "", ""
    if r["moved"]:
        gbs = r["moved"] / weft["run"] / 1e9
        rate = f"{gbs:.0f} GB/s" + (f", {gbs / copy:.2f} of a copy" if copy else "")
        if KERNELS.get(name) and copy:
            goal = "met" if gbs >= KERNELS[name] * copy else f"missed: {KERNELS[name]}"
    elif r["flops"]:
        rate = f"{r['flops'] / weft['run'] / 1e12:.1f} TFLOP/s"
        if peer:
            goal = "met" if weft["run"] <= 1.03 * peer["run"] else "missed: 1.03 of XLA's time"
    elif name.startswith("launch"):
        rate = f"{weft['queue'] * 1e6:.1f} µs to queue"
    elif peer:
        goal = "met" if weft["run"] <= 1.1 * peer["run"] else "missed: 1.1"
    return [name, both("compile", 1e3, ".0f"), both("run", 1e3, ".3f"), f"{weft['compile'] / peer['compile']:.2f}" if peer else "–",
            f"{weft['run'] / peer['run']:.2f}" if peer else "–", rate, f"{r['difference']:.1e}" if peer else "–", goal]


def command_of(name, options, folder=None):
    words = [sys.executable, __file__, "--one", name, "--peer", options.peer, "--plugin", options.plugin, "--rounds", str(options.rounds),
             "--jobs", str(options.jobs)]
    return words + ["--small"] * options.small + (["--folder", folder] if folder else [])


def in_turn(names, options):
    """Yields (name, standard output, error): one program after another."""
    began = time.monotonic()
    for name in names:
        if time.monotonic() - began > options.seconds:
            return
        try:
            done = subprocess.run(command_of(name, options), capture_output=True, text=True, timeout=600)
            yield name, done.stdout, (done.stderr.strip().splitlines() or ["no output"])[-1][:200] if done.returncode else None
        except subprocess.TimeoutExpired:
            yield name, "", "takes longer than 10 minutes"


def side_by_side(names, options):
    """The same; all are compiled first.  Compilation may take half of the time."""
    end = time.monotonic() + min(options.seconds, 1200)
    half = time.monotonic() + min(options.seconds, 1200) / 2
    with tempfile.TemporaryDirectory() as folder:
        processes = {}
        for name in names:
            with open(os.path.join(folder, "out-" + name), "w") as out, open(os.path.join(folder, "err-" + name), "w") as err:
                processes[name] = subprocess.Popen(command_of(name, options, folder), stdout=out, stderr=err)
        compiling = lambda: [n for n, p in processes.items() if p.poll() is None and not os.path.exists(os.path.join(folder, "ready-" + n))]
        while compiling() and time.monotonic() < half:
            time.sleep(0.1)
        for name in compiling():
            processes[name].kill()
        open(os.path.join(folder, "go"), "w").close()
        for name, process in processes.items():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            with open(os.path.join(folder, "out-" + name)) as out, open(os.path.join(folder, "err-" + name)) as err:
                lines = err.read().strip().splitlines() or ["no time was left"]
                yield name, out.read(), lines[-1][:200] if process.returncode else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", default="cuda", choices=["cuda", "cpu", "none"])
    parser.add_argument("--plugin", default=os.environ.get("WEFT_PLUGIN") or os.environ.get("WEFT_PJRT_PLUGIN"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="small arrays, and no programs but those that -k names")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no program after this time")
    parser.add_argument("-k", default="", help="only programs whose name has this")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="compile N programs side by side")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    report.add_options(parser)
    options = parser.parse_args()
    if options.one:
        return one(options)
    if not options.plugin:
        parser.error("name the plugin in WEFT_PLUGIN")
    names = [n for n in list(KERNELS) + names_of_programs() if options.k in n and (not options.small or n in KERNELS or options.k)]
    table = report.Table("Weft on a GPU, beside XLA:GPU" if options.peer == "cuda" else f"Weft's platform cuda, peer: {options.peer}",
                         ["program", "compile ms: Weft, XLA", "run ms: Weft, XLA", "compile", "run", "rate", "largest difference", "goal"], "run")
    print("\n".join(table.lines()), flush=True)
    copy, ratios, failed, device, left = None, [], [], "", len(names)
    for name, text, error in (side_by_side if options.jobs > 1 else in_turn)(names, options):
        left -= 1
        if error:
            failed.append(name)
            table.add(name, *[""] * 6, "failed: " + error)
        else:
            r = json.loads(text.splitlines()[-1])
            device = r["device"]
            if name == "copy":
                copy = max(r["moved"] / r[side]["run"] for side in ("weft", "peer") if side in r) / 1e9
            table.add(*row(name, r, copy))
            if "peer" in r:
                ratios.append((r["weft"]["compile"] / r["peer"]["compile"], r["weft"]["run"] / r["peer"]["run"]))
        print(list(table.lines())[-1], flush=True)
    if left:
        table.note(f"Time is up: {left} programs were not run, from {names[-left]} on.")
    if ratios:
        means = [report.geometric_mean(column) for column in zip(*ratios)]
        table.note(f"Geometric means over {len(ratios)} programs, Weft / XLA: compile {means[0]:.2f} (goal 0.3), run {means[1]:.2f} (goal 1.0).")
    table.note(f"Device: {device}. Bandwidth counts the bytes that must be read and written; a copy: {copy or 0:.0f} GB/s.")
    print("\n".join(table.notes))
    table.write(options)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
