#!/usr/bin/env python3
"""Weft beside the libraries that compute the same on CPUs: numpy, torch, torch.compile, OpenVINO, XLA:CPU.

    bench/peers.py --build build/quickstart [--peers PYTHON] [--group products] [-k WORD] [--rounds 3] [--seconds 0.3]

Each side is a process of its own that lives as long as the run: Weft and XLA are JAX in $WEFT_PYTHON, the other sides are the
libraries that the interpreter PYTHON has (this one without --peers).  The sides take turns: in each round each side runs the case
for some time, and its shortest call counts.  So all sides see the same load of the machine.  All sides get the same inputs, and
their results are compared with Weft's.  Under `chrt -f 5` no other process disturbs any side.

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

HERE = os.path.dirname(os.path.abspath(__file__))
CPUS = len(os.sched_getaffinity(0))
SIDES = ("weft", "xla", "numpy", "torch", "compiled", "openvino")
GROUPS = ("products", "convolutions", "models", "kernels")


# ---- the cases: a name, inputs, and the same computation in the words of each library ---------------------------------

class Case:
    """`inputs`: (dtype, shape) each.  `work`: ("flop" or "byte", count).  `forms`: a function of the inputs for each library;
    `jax` for Weft and XLA, `torch` also for torch.compile; `openvino` gets the opset module first and returns a node.
    A library without a form sits the case out.  `tolerance`: of results, relative to the largest magnitude."""

    def __init__(self, group, name, inputs, work, tolerance=None, **forms):
        narrow = any(dtype == "bf16" for dtype, _ in inputs)
        self.group, self.name, self.inputs, self.work, self.forms = group, name, inputs, work, forms
        self.tolerance = tolerance or (3e-2 if narrow else 1e-3)


def size(shape):
    return math.prod(shape)


def product_cases():
    shapes = [(64,) * 3, (128,) * 3, (256,) * 3, (512,) * 3, (1024,) * 3] + [(m, 1024, 4096) for m in (1, 2, 4, 16, 64)] + [(2, 256, 5000)]
    for dtype in ("f32", "bf16"):
        for m, k, n in shapes:
            forms = {"openvino": lambda ov, a, b: ov.matmul(a, b, False, False), "numpy": lambda np, a, b: a @ b}
            yield Case("products", f"{dtype} {m}x{k} by {k}x{n}", [(dtype, (m, k)), (dtype, (k, n))], ("flop", 2 * m * k * n),
                       jax=lambda jnp, a, b: a @ b, torch=lambda torch, a, b: a @ b, **forms)
        for m, k, n in ((2, 256, 5000), (16, 768, 3072)):
            yield Case("products", f"{dtype} {m}x{k} by ({n}x{k})T", [(dtype, (m, k)), (dtype, (n, k))], ("flop", 2 * m * k * n),
                       jax=lambda jnp, a, b: a @ b.T, torch=lambda torch, a, b: a @ b.T, numpy=lambda np, a, b: a @ b.T,
                       openvino=lambda ov, a, b: ov.matmul(a, b, False, True))
        for b, n in ((1024, 16), (256, 32), (64, 64)):
            yield Case("products", f"{dtype} {b} of {n}x{n}", [(dtype, (b, n, n))] * 2, ("flop", 2 * b * n ** 3),
                       jax=lambda jnp, a, b: a @ b, torch=lambda torch, a, b: a @ b, numpy=lambda np, a, b: a @ b,
                       openvino=lambda ov, a, b: ov.matmul(a, b, False, False))


def convolution(name, dtype, image, features, window, stride=1, groups=1):
    """NCHW images and OIHW weights, padded so that stride 1 keeps the image's size."""
    n, c, h, w = image
    pad = window // 2
    out = (h + 2 * pad - window) // stride + 1
    weights = (features, c // groups, window, window)

    def jax_form(jnp, x, k):
        from jax import lax
        return lax.conv_general_dilated(x, k, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW"),
                                        feature_group_count=groups)

    def torch_form(torch, x, k):
        return torch.nn.functional.conv2d(x, k, stride=stride, padding=pad, groups=groups)

    def openvino_form(ov, x, k):
        if groups == 1:
            return ov.convolution(x, k, [stride] * 2, [pad] * 2, [pad] * 2, [1, 1])
        split = ov.constant([groups, features // groups, c // groups, window, window], dtype="int64")
        return ov.group_convolution(x, ov.reshape(k, split, False), [stride] * 2, [pad] * 2, [pad] * 2, [1, 1])

    return Case("convolutions", f"{dtype} {name}", [(dtype, image), (dtype, weights)],
                ("flop", 2 * n * features * out * out * window * window * c // groups),
                jax=jax_form, torch=torch_form, openvino=openvino_form)


def convolution_cases():
    for dtype in ("f32", "bf16"):
        yield convolution("7x7/2 of 3 channels, 224", dtype, (1, 3, 224, 224), 64, 7, 2)
        for c, at in ((64, 56), (128, 28), (256, 14), (512, 7)):
            yield convolution(f"3x3 {c} to {c}, {at}", dtype, (1, c, at, at), c, 3)
        yield convolution("1x1 256 to 64, 56", dtype, (1, 256, 56, 56), 64, 1)
        yield convolution("1x1 1024 to 256, 14", dtype, (1, 1024, 14, 14), 256, 1)
        yield convolution("depthwise 3x3 of 256, 56", dtype, (1, 256, 56, 56), 256, 3, 1, 256)
        yield convolution("depthwise 5x5 of 672, 14", dtype, (1, 672, 14, 14), 672, 5, 1, 672)


def encoder(lib, softmax, gelu, x, qkv, out, up, down):
    """A layer of a transformer's encoder without norms: 12 heads of 64 features."""
    n, s, d = x.shape
    q, k, v = ((x @ qkv[i]).reshape(n, s, 12, 64).swapaxes(1, 2) for i in range(3))
    scores = softmax(q @ k.swapaxes(2, 3) * 0.125)
    x = x + (scores @ v).swapaxes(1, 2).reshape(n, s, d) @ out
    return x + gelu(x @ up) @ down


def model_cases():
    def jax_encoder(jnp, *args):
        import jax
        return encoder(jnp, lambda x: jax.nn.softmax(x, -1), lambda x: jax.nn.gelu(x, approximate=False), *args)

    def torch_encoder(torch, *args):
        return encoder(torch, lambda x: torch.softmax(x, -1), torch.nn.functional.gelu, *args)

    for dtype in ("f32", "bf16"):
        for n, s in ((1, 128), (8, 1)):
            d = 768
            weights = [(dtype, (3, d, d)), (dtype, (d, d)), (dtype, (d, 4 * d)), (dtype, (4 * d, d))]
            yield Case("models", f"{dtype} encoder layer, {n}x{s} tokens", [(dtype, (n, s, d))] + weights,
                       ("flop", 2 * n * s * d * d * 12 + 4 * n * s * s * d), jax=jax_encoder, torch=torch_encoder)


def kernel(name, shape, dtype="f32", passes=2, tolerance=None, inputs=1, **forms):
    width = {"f32": 4, "bf16": 2, "f64": 8}[dtype]
    return Case("kernels", f"{dtype} {name} {'x'.join(map(str, shape))}", [(dtype, shape)] * inputs,
                ("byte", passes * width * size(shape)), tolerance, **forms)


def kernel_cases():
    import operator
    for name, shape in (("sort", (1 << 20,)), ("sort rows", (1024, 4096))):
        yield kernel(name, shape, jax=lambda jnp, x: jnp.sort(x), torch=lambda torch, x: torch.sort(x)[0], numpy=lambda np, x: np.sort(x))
    for dtype in ("f32", "bf16"):
        yield kernel("transpose", (4096, 4096), dtype, jax=lambda jnp, x: x.T, torch=lambda torch, x: x.T.contiguous(),
                     numpy=lambda np, x: np.ascontiguousarray(x.T), openvino=lambda ov, x: ov.transpose(x, ov.constant([1, 0], dtype="int64")))
        for axis, word in ((0, "columns"), (1, "rows")):
            yield kernel(f"cumsum of {word}", (1024, 1024), dtype, tolerance=0.05 if dtype == "bf16" else None,
                         jax=lambda jnp, x, axis=axis: jnp.cumsum(x, axis), torch=lambda torch, x, axis=axis: torch.cumsum(x, axis),
                         numpy=lambda np, x, axis=axis: np.cumsum(x, axis))
        for name in ("sin", "cos", "exp", "tanh", "log1p"):
            yield kernel(name, (1024, 1024), dtype, jax=lambda jnp, x, f=name: getattr(jnp, f)(x),
                         torch=lambda torch, x, f=name: getattr(torch, f)(x), numpy=lambda np, x, f=name: getattr(np, f)(x),
                         **({"openvino": lambda ov, x, f=name: getattr(ov, f)(x)} if name != "log1p" else {}))
        yield kernel("pow", (1024, 1024), dtype, 3, inputs=2, jax=lambda jnp, x, y: abs(x) ** y, torch=lambda torch, x, y: abs(x) ** y,
                     numpy=lambda np, x, y: abs(x) ** y, openvino=lambda ov, x, y: ov.power(ov.absolute(x), y))

        def jax_gelu(jnp, x):
            import jax
            return jax.nn.gelu(x, approximate=False)
        yield kernel("gelu", (1024, 1024), dtype, jax=jax_gelu, torch=lambda torch, x: torch.nn.functional.gelu(x),
                     openvino=lambda ov, x: ov.gelu(x, "erf"))

        def jax_softmax(jnp, x):
            import jax
            return jax.nn.softmax(x, -1)
        yield kernel("softmax", (1024, 1024), dtype, jax=jax_softmax, torch=lambda torch, x: torch.softmax(x, -1),
                     openvino=lambda ov, x: ov.softmax(x, 1))
        yield kernel("sum of columns", (4096, 4096), dtype, 1, jax=lambda jnp, x: x.sum(0), torch=lambda torch, x: x.sum(0),
                     numpy=lambda np, x: x.sum(0))
        yield kernel("add", (4096, 4096), dtype, 3, inputs=2, jax=operator_form(operator.add), torch=operator_form(operator.add),
                     numpy=operator_form(operator.add), openvino=lambda ov, x, y: ov.add(x, y))
    yield kernel("cast to bf16", (4096, 4096), passes=1.5, tolerance=1e-2, jax=lambda jnp, x: x.astype(jnp.bfloat16),
                 torch=lambda torch, x: x.to(torch.bfloat16))
    yield kernel("real FFT", (1 << 20,), jax=lambda jnp, x: abs(jnp.fft.rfft(x)), torch=lambda torch, x: abs(torch.fft.rfft(x)),
                 numpy=lambda np, x: abs(np.fft.rfft(x)))
    yield kernel("complex FFT", (1 << 20,), passes=4, inputs=2, jax=lambda jnp, x, y: abs(jnp.fft.fft(x + 1j * y)),
                 torch=lambda torch, x, y: abs(torch.fft.fft(torch.complex(x, y))), numpy=lambda np, x, y: abs(np.fft.fft(x + np.complex64(1j) * y)))
    for n in (32, 64):
        def factor(lib, x):
            """The Cholesky factors of x xT + n, in one form for three libraries."""
            return lib.linalg.cholesky(x @ x.swapaxes(1, 2) + x.shape[1] * lib.eye(x.shape[1]))
        yield kernel("Cholesky", (256, n, n), jax=factor, torch=factor, numpy=factor)


def operator_form(f):
    return lambda lib, x, y: f(x, y)


def all_cases():
    return [*product_cases(), *convolution_cases(), *model_cases(), *kernel_cases()]


# ---- a side: a process that makes cases ready and times their calls ----------------------------------------------------

def make_inputs(case, index):
    import numpy
    rng = numpy.random.default_rng(index)
    return [rng.standard_normal(shape).astype("float64" if dtype == "f64" else "float32") for dtype, shape in case.inputs]


def prepare_jax(case, arrays):
    import jax
    import jax.numpy as jnp
    x = [jax.device_put(jnp.asarray(a, jnp.bfloat16 if dtype == "bf16" else a.dtype)) for a, (dtype, _) in zip(arrays, case.inputs)]
    f = jax.jit(lambda *args: case.forms["jax"](jnp, *args))
    return lambda: f(*x).block_until_ready(), lambda y: jnp.asarray(y, jnp.float32)


def prepare_numpy(case, arrays):
    import numpy
    if any(dtype == "bf16" for dtype, _ in case.inputs):
        return None
    f = case.forms.get("numpy")
    return (lambda: f(numpy, *arrays), numpy.asarray) if f else None


def prepare_torch(case, arrays, compiled=False):
    import torch
    torch.set_num_threads(CPUS)
    torch.set_grad_enabled(False)
    f = case.forms.get("torch")
    if not f:
        return None
    x = [torch.from_numpy(a).to(torch.bfloat16) if dtype == "bf16" else torch.from_numpy(a) for a, (dtype, _) in zip(arrays, case.inputs)]
    g = lambda *args: f(torch, *args)
    if compiled:
        torch._dynamo.reset()
        g = torch.compile(g, dynamic=False)
    return lambda: g(*x), lambda y: y.to(torch.float32).numpy()


def prepare_openvino(case, arrays):
    import numpy
    import openvino
    import openvino.opset13 as ops
    f = case.forms.get("openvino")
    if not f:
        return None
    narrow = case.inputs[0][0] == "bf16"
    kind = openvino.Type.bf16 if narrow else openvino.Type.f32
    parameters = [ops.parameter(list(shape), kind) for _, shape in case.inputs]
    model = openvino.Model([f(ops, *parameters)], parameters)
    settings = {"INFERENCE_NUM_THREADS": CPUS, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16" if narrow else "f32"}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    for i, a in enumerate(arrays):
        tensor = openvino.Tensor(kind, list(a.shape))
        if narrow:
            bits = a.view(numpy.uint32)
            tensor.data.view(numpy.uint16)[...] = (bits + 0x7fff + (bits >> 16 & 1) >> 16).astype(numpy.uint16)
        else:
            tensor.data[...] = a
        request.set_input_tensor(i, tensor)

    def read(_):
        y = request.get_output_tensor(0)
        if y.element_type != openvino.Type.bf16:
            return y.data
        return (y.data.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    return request.infer, read


PREPARE = {"weft": prepare_jax, "xla": prepare_jax, "numpy": prepare_numpy, "torch": prepare_torch, "openvino": prepare_openvino,
           "compiled": lambda case, arrays: prepare_torch(case, arrays, True)}


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


class Side:
    """The parent's end of a side's process."""

    def __init__(self, name, python, environment):
        self.name = name
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([python, os.path.abspath(__file__), "--side", name], env=dict(os.environ, **environment),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def time(self, case, seconds, save, limit_s=180):
        """The answer of the side; a side that does not answer in time or has died is ended and answers with an error."""
        try:
            print(json.dumps({"case": case, "seconds": seconds, "save": save}), file=self.process.stdin, flush=True)
        except OSError:
            return {"error": "the process of this side has ended"}
        if not select.select([self.process.stdout], [], [], limit_s)[0]:
            self.process.kill()
            return {"error": f"no answer within {limit_s} s"}
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.log.seek(0)
        return {"error": "ended: " + self.log.read()[-300:].strip()}

    def end(self):
        try:
            self.process.stdin.close()
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, timeout=300).returncode == 0


def find_sides(args):
    """Sides for the libraries that the interpreters have; Weft's comes first."""
    plugin = os.path.abspath(os.path.join(args.build, ".libs", "pjrt_weft.so"))
    weft_python = os.environ.get("WEFT_PYTHON", sys.executable)
    environment = {"weft": {"JAX_PLATFORMS": "weft", "PJRT_NAMES_AND_LIBRARY_PATHS": f"weft:{plugin}"}, "xla": {"JAX_PLATFORMS": "cpu"}}
    for name in SIDES:
        if args.only and name != "weft" and name not in args.only:
            continue
        module = {"weft": "jax", "xla": "jax", "compiled": "torch"}.get(name, name)
        python = weft_python if module == "jax" else args.peers
        if has(python, module):
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
            if side.name in errors:
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
    report.add_options(parser)
    args = parser.parse_args()
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
    table = report.Table("Kernels, Weft beside other libraries", ["case"] + [f"{n} ms" for n in names] + ["ratio", "best peer", "of peak", "results"], "ratio")
    ratios, failed = {}, 0
    print(f"{'case':38}" + "".join(f"{n:>10}" for n in names) + "   ratio  best peer, share of peak")
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
        print(f"{case.name:38}" + "".join(f"{c:>10}" for c in cells) + f"  {ratio:6.2f}  {best or '–'}, {of_peak}" + (f"  {verdict}" if wrong else ""),
              flush=True)
        table.add(case.name, *cells, f"{ratio:.2f}", best or "–", of_peak, verdict)
    for side in sides:
        side.end()
    means = ", ".join(f"{group} {report.geometric_mean(values):.2f}" for group, values in ratios.items())
    print(f"\ngeometric means of Weft / the best peer: {means}")
    table.note(f"Ratios are Weft / the best peer whose results agree: below 1 Weft is better. Geometric means: {means}. The shortest call of "
               f"{args.rounds} rounds counts; Weft and XLA are called through JAX, which costs 3 to 5 µs a call.")
    if peak:
        table.note(f"Peak of the machine by `bench/peak`: {peak['gflops']:.0f} GFLOP/s of f32, {peak['copy_gbs']:.0f} GB/s copied, "
                   f"{peak['read_gbs']:.0f} GB/s read. The share is of GFLOP/s for products and convolutions (bf16 too: the peak is that of f32), "
                   f"of bytes copied for kernels.")
    table.write(args)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
