"""XLA:CPU (jaxlib) as the oracle: compiles HLO text or protos, runs them on NumPy arrays.

Used by tests and benchmarks.  `python oracle.py PROGRAM --inputs DIR --outputs DIR` does one program from the shell.
"""
import argparse
import json
import os
import re
import resource
import time

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _client():
    import jax.numpy.linalg  # registers LAPACK's custom calls
    from jax._src.lib import lapack, xla_client
    lapack._lapack.initialize()
    return xla_client


class Program:
    """An HLO module compiled by XLA:CPU."""

    def __init__(self, path, client=None, widen=False):
        xc = _client()
        with open(path, "rb") as f:
            data = f.read()
        import jax
        jax.config.update("jax_enable_x64", True)
        self.client = client or jax.devices("cpu")[0].client
        # no donation, so that the same inputs serve every run
        if is_text(data):
            data = re.sub(rb", input_output_alias=\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}", b"", data, count=1)
            data = re.sub(rb"( topk\([^\n]*), is_stable=(true|false)", rb"\1", data)  # newer than this jaxlib, whose order is stable
            if widen:
                narrow = re.search(rb"\bb?f16\[", data)
                data = re.sub(rb"\bb?f16\[", b"f32[", data) if narrow else re.sub(rb"\bf32\[", b"f64[", data)
            data = re.sub(rb", buffer_donor=\{(?:[^{}]|\{[^{}]*\})*\}", b"", data, count=1)
        if path.endswith(".mlir"):
            mlir = data.decode()
            self.shape = xc._xla.mlir.mlir_module_to_xla_computation(mlir, False, False).program_shape()
        else:
            self.module = xc.hlo.hlo_module_from_text(data.decode()) if is_text(data) else xc.hlo.HloModule.from_serialized_hlo_module_proto(data)
            computation = xc.XlaComputation(self.module.as_serialized_hlo_module_proto())
            self.shape = computation.program_shape()
            mlir = xc._xla.mlir.xla_computation_to_mlir_module(computation)
        options = xc.CompileOptions()
        start = time.perf_counter()
        devices = xc.DeviceList((self.client.local_devices()[0],)) if hasattr(xc, "DeviceList") else self.client.local_devices()[:1]
        self.executable = self.client.compile_and_load(mlir, devices, options)
        self.compile_s = time.perf_counter() - start

    def put(self, arrays):
        """NumPy arrays as device buffers."""
        import jax
        device = jax.devices("cpu")[0]
        return [jax.device_put(a, device) for a in arrays]

    def run(self, buffers):
        """One execution; waits for and returns its output buffers."""
        results = self.executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        flat = [o[0] for o in results]
        for o in flat:
            o.block_until_ready()
        return flat

    def memory(self):
        """XLA's own figures: temp, argument, output bytes."""
        m = self.executable.get_compiled_memory_stats()
        return {"temp_bytes": m.temp_size_in_bytes, "argument_bytes": m.argument_size_in_bytes,
                "output_bytes": m.output_size_in_bytes}


def is_text(data):
    return b"HloModule" in data[:4096] or data.lstrip()[:1] in (b"/", b"%", b"E")


def load_npy(path, dtype=None):
    """An .npy file; void elements (bf16, f8, ...) viewed as `dtype`."""
    a = np.load(path)
    return a.view(dtype) if a.dtype.kind == "V" and dtype is not None else a


def dtype_of(name):
    """The NumPy dtype of an HLO element type name."""
    import ml_dtypes
    plain = {"pred": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64, "c64": np.complex64,
             "c128": np.complex128, "bf16": ml_dtypes.bfloat16}
    plain.update({f"s{b}": np.dtype(f"int{b}") for b in (8, 16, 32, 64)})
    plain.update({f"u{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)})
    if name in plain:
        return np.dtype(plain[name])
    names = {"s4": "int4", "u4": "uint4", "s2": "int2", "u2": "uint2"}
    if name.startswith("f"):
        names[name] = f"float{name[1]}_{name[2:]}"
    return np.dtype(getattr(ml_dtypes, names[name]))


# |got - want| <= atol + rtol |want|, by element type: XLA's own ErrorSpecs, loosened only for narrow types, whose steps
# are that coarse (bf16: 2^-8, f16: 2^-11; results of many operations may be several steps apart).
TOLERANCES = {"float64": (1e-8, 1e-9), "complex128": (1e-8, 1e-9), "float32": (1e-3, 1e-4), "complex64": (1e-3, 1e-4),
              "float16": (2e-2, 2e-3), "bfloat16": (4e-2, 4e-3)}


def compare(got, want):
    """"" if `got` equals `want` within TOLERANCES, else where and by how much it does not."""
    if got.shape != want.shape:
        return f"shape {got.shape}, want {want.shape}"
    if got.dtype != want.dtype:
        got = got.view(want.dtype) if got.dtype.kind == "V" else got.astype(want.dtype)
    if got.dtype.name not in TOLERANCES:
        wide = np.float64 if want.dtype.kind == "V" or "float" in want.dtype.name else None
        g, w = (got.astype(wide), want.astype(wide)) if wide else (got, want)
        bad = (g != w) & ~((g != g) & (w != w))  # NaN of narrow floats
    else:
        rtol, atol = TOLERANCES[got.dtype.name]
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        g, w = got.astype(wide), want.astype(wide)
        # a tolerance relative to the array's scale: sums that cancel have no relative accuracy of their own
        finite = np.abs(w[np.isfinite(w)])
        scale = float(np.sqrt(np.mean(finite ** 2))) if finite.size else 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            bad = ~((np.abs(g - w) <= atol * max(1.0, scale) + rtol * np.abs(w)) | (g == w) | (np.isnan(g) & np.isnan(w)))
    if not bad.any():
        return ""
    at = np.unravel_index(np.argmax(bad), bad.shape) if bad.shape else ()
    return f"{int(bad.sum())} of {bad.size} elements differ, first at {tuple(int(i) for i in at)}: got {got[at]}, want {want[at]}"


def relative_error(got, want):
    """Root mean square of got - want, relative to want's; infinite if NaNs are in other places."""
    number = ~np.isnan(want)
    if np.isnan(got[number]).any() or not np.isnan(got[~number]).all():
        return float("inf")
    got, want = got[number & np.isfinite(want)], want[number & np.isfinite(want)]
    scale = np.sqrt(np.mean(want ** 2)) if want.size else 0.0
    return float(np.sqrt(np.mean((got - want) ** 2)) / scale) if scale else 0.0


def judge(program, inputs, ours, theirs):
    """How far two sets of results are from the same program computed in f32 where it says bf16 or f16, in f64 if it says
    f32: two means over the floating-point results.  Where two implementations round in different places, this tells
    noise from error."""
    narrow = Program(program)
    p = Program(program, widen=True)
    shapes = [(leaf_dtype(a), leaf_dtype(b)) for a, b in zip(flat_shapes(narrow.shape.parameter_shapes()),
                                                             flat_shapes(p.shape.parameter_shapes()))]
    types = [leaf_dtype(s) for s in flat_shapes([narrow.shape.result_shape()])]
    del narrow
    buffers = [p.put([load_npy(f"{inputs}/input_{i}.npy", a).astype(b)])[0] for i, (a, b) in enumerate(shapes)]
    errors = []
    for i, o in enumerate(p.run(buffers)):
        want = np.asarray(o)
        if want.dtype.kind != "f":
            continue
        errors.append([relative_error(load_npy(f"{d}/result_{i}.npy", types[i]).astype(np.float64), want.astype(np.float64))
                       for d in (ours, theirs)])
    return [float(e) for e in np.mean(errors, axis=0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--inputs", help="directory with input_N.npy")
    parser.add_argument("--outputs", help="directory for result_N.npy")
    parser.add_argument("--expect-from", help="directory with result_N.npy of Weft, to compare with XLA's")
    parser.add_argument("--judge", help="another directory like --expect-from: how far are both from the program in wider floats?")
    parser.add_argument("--repeat", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.judge:
        print(json.dumps(judge(args.program, args.inputs, args.expect_from, args.judge)))
        return
    p = Program(args.program)
    dtypes = [leaf_dtype(s) for s in flat_shapes(p.shape.parameter_shapes())]
    arrays = [load_npy(f"{args.inputs}/input_{i}.npy", d) for i, d in enumerate(dtypes)] if args.inputs else []
    buffers = p.put(arrays)
    start = time.perf_counter()
    out = p.run(buffers)
    first = time.perf_counter() - start
    times = []
    for _ in range(args.repeat):
        start = time.perf_counter()
        p.run(buffers)
        times.append(time.perf_counter() - start)
    report = {"compile_ms": p.compile_s * 1e3, "first_run_ms": first * 1e3, **p.memory(),
              "median_ms": float(np.median(times)) * 1e3 if times else None, "min_ms": min(times) * 1e3 if times else None,
              "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
    if args.expect_from:
        wrong = []
        for i, o in enumerate(out):
            want = np.asarray(o)
            difference = compare(load_npy(f"{args.expect_from}/result_{i}.npy", want.dtype), want)
            if difference:
                wrong.append(f"result {i}: {difference}")
        report["verdict"] = "agrees" if not wrong else "; ".join(wrong[:3])
        report["wrong"] = len(wrong)
    if args.outputs:
        os.makedirs(args.outputs, exist_ok=True)
        for i, o in enumerate(out):
            np.save(f"{args.outputs}/result_{i}.npy", np.asarray(o))
    print(json.dumps(report) if args.json else report)


def flat_shapes(shapes):
    for s in shapes:
        if s.is_tuple():
            yield from flat_shapes(s.tuple_shapes())
        else:
            yield s


def leaf_dtype(shape):
    return np.dtype(shape.numpy_dtype())


if __name__ == "__main__":
    main()
