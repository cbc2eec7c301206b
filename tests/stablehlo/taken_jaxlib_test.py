#!/usr/bin/env python3
"""Programs that jaxlib takes though they look as if it could not: operations of no use, sizes that other dialects work out,
regions that give back what is outside; and their like that it refuses (taken.mlir).  Prints TAP.

    Interpreter with jax 0.10.2: $WEFT_PYTHON.  The command: $WEFT_BUILDDIR/weft.
"""
import os
import re
import subprocess
import sys
import tempfile

from with_jaxlib import WEFT  # before JAX

import jax
import numpy as np
from jax._src.lib import xla_client as xc

jax.config.update("jax_enable_x64", True)
DEVICES = jax.devices()[:1]
TYPES = {"f32": np.float32, "i1": np.bool_, "i32": np.int32, "i64": np.int64, "ui32": np.uint32}


def arguments(text):
    """Small integers for the arguments of main."""
    rng = np.random.default_rng(3)
    signature = re.search(r"@main\((.*?)\)\s*->", text, re.S)[1]
    types = re.findall(r"tensor<((?:\d+x)*)(\w+)>", signature)
    return [rng.integers(1, 4, [int(x) for x in dims.split("x")[:-1]]).astype(TYPES[element]) for dims, element in types]


def results_of(text):
    """The declared dimensions of main's results."""
    types = re.search(r"@main\(.*?\)\s*->(.*?)\{", text, re.S)[1]
    return [tuple(int(x) for x in dims.split("x")[:-1]) for dims in re.findall(r"tensor<((?:\d+x)*)\w+>", types)]


def by_jaxlib(text, args):
    client = DEVICES[0].client
    exe = client.compile_and_load(text.encode(), xc.DeviceList(tuple(DEVICES)), xc.CompileOptions())
    sharding = xc.SingleDeviceSharding(DEVICES[0])
    buffers = [xc.batched_device_put(jax.core.ShapedArray(a.shape, a.dtype), sharding, [a], DEVICES) for a in args]
    results = [np.asarray(o[0]) for o in exe.execute_sharded(buffers).disassemble_into_single_device_arrays()]
    # Of a reduction whose region gives back what is outside it makes a scalar, whatever its type says.
    return [np.broadcast_to(r, shape) for r, shape in zip(results, results_of(text))]


def by_weft(text, args):
    """(results, error)"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.mlir")
        with open(path, "w") as out:
            out.write(text)
        command = [WEFT, "run", path, "--quiet", "--output-dir", folder]
        for i, a in enumerate(args):
            np.save(os.path.join(folder, f"input_{i}.npy"), a)
            command += ["--input", os.path.join(folder, f"input_{i}.npy")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            return None, done.stderr
        return [np.load(os.path.join(folder, f"result_{i}.npy")) for i in range(len(results_of(text)))], ""


def wrong(text, refused):
    args = arguments(text)
    got, error = by_weft(text, args)
    try:
        want = by_jaxlib(text, args)
    except Exception as theirs:  # noqa: BLE001: XLA refuses in many ways
        if not refused:
            return f"jaxlib refuses it: {theirs}"
        # Why, and where: the operation with its line, or the instruction.
        return "" if re.search(r"(UNIMPLEMENTED|INVALID_ARGUMENT): .*(\bat \d+:\d+|lowering %|collective)", error, re.S) else f"not refused: {error}"
    if refused:
        return f"jaxlib takes it: {want}"
    if got is None:
        return error
    same = len(got) == len(want) and all(g.dtype == w.dtype and np.array_equal(g, w, equal_nan=w.dtype.kind == "f") for g, w in zip(got, want))
    return "" if same else f"want {want}\ngot {got}"


def main():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "taken.mlir")) as source:
        programs = [part.split("\n", 1) for part in re.split(r"^// ---- ", source.read(), flags=re.M)[1:]]
    failed = 0
    for i, (name, text) in enumerate(programs):
        if len(sys.argv) > 1 and sys.argv[1] not in name:
            continue
        text = f"\n{text}"
        why = wrong(text, name.endswith(": refused"))
        failed += bool(why)
        print(f"{'not ok' if why else 'ok'} {i + 1} - {name}" + ("\n# " + why[:1500].replace("\n", "\n# ") if why else ""))
    print(f"1..{len(programs)}")
    sys.exit(failed > 0)


main()
