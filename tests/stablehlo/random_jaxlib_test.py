#!/usr/bin/env python3
"""Random StableHLO: each operation with random shapes, element types and attributes, as jaxlib computes it.  Prints TAP.

An operation's results are results of the program; all values are small integers, so that sums and products are exact in
every type and results are compared bit by bit.  What jaxlib refuses is left out,
and counted.   random_jaxlib_test.py [--seed N] [--count N: of programs] [--kind KIND] [--only OPERATION] [--keep DIR]
    Interpreter with jax 0.10.2: $WEFT_PYTHON.  The command: $WEFT_BUILDDIR/weft.
"""
import argparse
import os
import subprocess
import sys
import tempfile

from with_jaxlib import WEFT  # before JAX

import jax
import numpy as np
from jax._src.lib import xla_client as xc
import random_programs
import random_rare  # noqa: F401: adds its operations
import random_wide

jax.config.update("jax_enable_x64", True)
client = jax.devices()[0].client


# ---- running --------------------------------------------------------------------------------------------------------

def by_jaxlib(program):
    devices = client.devices()[:1]
    text = program.text(golden=True).encode()
    if b"?" in text:
        text = xc._xla.mlir.refine_polymorphic_shapes(mlir_module=text, enable_shape_assertions=True, validate_static_shapes=b"bounds" not in text,
                                                      enable_shardy=False)
    exe = client.compile_and_load(text, xc.DeviceList(tuple(devices)), xc.CompileOptions())
    sharding = xc.SingleDeviceSharding(devices[0])
    buffers = [xc.batched_device_put(jax.core.ShapedArray(a.shape, a.dtype), sharding, [a], devices) for _, a in program.args]
    return [np.asarray(o[0]) for o in exe.execute_sharded(buffers).disassemble_into_single_device_arrays()]


def by_weft(program, folder):
    path = os.path.join(folder, "program.mlir")
    with open(path, "w") as out:
        out.write(program.text())
    command = [WEFT, "run", path, "--quiet", "--output-dir", folder]
    for i, (_, a) in enumerate(program.args):
        np.save(os.path.join(folder, f"input_{i}.npy"), a)
        command += ["--input", os.path.join(folder, f"input_{i}.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(done.stderr)
    return [np.load(os.path.join(folder, f"result_{i}.npy")) for i in range(len(program.results))]


def wrapped(array, element):
    """XLA keeps integers of less than 8 bits in bytes, and sometimes does not clear the bits above their width."""
    bits = int(element[-1]) if element in ("i2", "i4", "ui2", "ui4") else 0
    if not bits:
        return array
    low = array.astype(np.int64) & ((1 << bits) - 1)
    return (low - ((low >> (bits - 1)) << bits) if element[0] == "i" else low).astype(array.dtype)


def differences(program, want, folder):
    wrong = []
    for (_, t, name, element, tolerance), w, g in zip(program.results, want, by_weft(program, folder)):
        w = wrapped(w, element)
        if name == "stablehlo.count_leading_zeros":
            w = np.maximum(w, 0)  # XLA counts them in 64 bits where it folds a constant: -32 of an i32 below 0
        scale = max(np.max(np.abs(w[np.isfinite(w)]), initial=0), 1) if tolerance else 0
        same = w.dtype == g.dtype and w.shape == g.shape and (np.allclose(w, g, tolerance, tolerance * scale, equal_nan=True) if tolerance else
                                                              np.array_equal(w, g, equal_nan=w.dtype.kind in "fc"))
        if not same:
            wrong.append(f"{name}: {element}, {t}\nwant {w.ravel()[:24]}\ngot  {g.ravel()[:24]}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--size", type=int, default=12)
    parser.add_argument("--only")
    parser.add_argument("--kind", choices=["small", "wide", "both"], default="both",
                        help="small: operations on small arguments; wide: chains of them, large arrays, loops, ...; both: by turns")
    parser.add_argument("--keep", help="a folder for programs that differ")
    options = parser.parse_args()
    failed = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.count):
            seed = f"{options.seed}.{i}"
            wide = options.kind == "wide" or options.kind == "both" and i % 2
            program = (random_wide if wide else random_programs).make(seed, options.only, options.size)
            try:
                want = by_jaxlib(program)
            except Exception as error:  # noqa: BLE001: XLA says what it does not take in many ways
                refused += 1
                print(f"ok {i + 1} - {seed} # SKIP jaxlib refuses it: {str(error).splitlines()[0][:150]}")
                continue
            try:
                wrong = differences(program, want, folder)
            except AssertionError as error:
                wrong = [str(error)]
            failed += bool(wrong)
            print(f"{'not ok' if wrong else 'ok'} {i + 1} - {seed}")
            if wrong:
                print("# " + "\n".join(wrong)[:3000].replace("\n", "\n# "))
                if options.keep:
                    os.makedirs(options.keep, exist_ok=True)
                    with open(os.path.join(options.keep, seed + ".mlir"), "w") as out:
                        out.write(program.text())
    print(f"# {options.count} programs, {refused} refused by jaxlib, {failed} differ\n1..{options.count}")
    sys.exit(failed > 0)


main()
