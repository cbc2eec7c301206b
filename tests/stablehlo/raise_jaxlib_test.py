#!/usr/bin/env python3
"""What `weft inspect --emit=stablehlo` prints of HLO is StableHLO for jaxlib, and computes the same.  Prints TAP.

Of each program of raised.hlo, XLA compiles and runs what is printed; its results are those of `weft run` of the program
itself.  Each dump of ../shared/testdata/hlo is printed and must be what MLIR's parser and verifier take.
    Interpreter with jax 0.10.2: $WEFT_PYTHON.  The command: $WEFT_BUILDDIR/weft.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

from with_jaxlib import WEFT  # before JAX

import jax
import jaxlib.mlir.ir as ir
import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import xla_client as xc

jax.config.update("jax_enable_x64", True)
ROOT = os.environ.get("WEFT_SRCDIR", ".")
client = jax.devices()[0].client
failed = count = 0


def check(name, what):
    global count, failed
    count += 1
    try:
        what()
        print(f"ok {count} - {name}")
    except (ValueError, AssertionError, ir.MLIRError, RuntimeError, subprocess.CalledProcessError) as error:
        failed += 1
        print(f"not ok {count} - {name}\n# " + str(error)[:1500].replace("\n", "\n# "))


def printed(path):
    out = subprocess.run([WEFT, "inspect", "--emit=stablehlo", path], capture_output=True, text=True)
    if out.returncode:
        raise ValueError(out.stderr)
    return out.stdout


def run(program, args):
    devices = xc.DeviceList(tuple(client.devices()[:1]))
    exe = client.compile_and_load(program, devices, xc.CompileOptions())
    sharding = xc.SingleDeviceSharding(client.devices()[0])
    buffers = [xc.batched_device_put(jax.core.ShapedArray(a.shape, a.dtype), sharding, [a], client.devices()[:1]) for a in args]
    return [np.asarray(o[0]) for o in exe.execute_sharded(buffers).disassemble_into_single_device_arrays()]


def files(folder, stem):
    count = len(glob.glob(os.path.join(folder, stem + "_*.npy")))
    return [np.load(os.path.join(folder, f"{stem}_{i}.npy")) for i in range(count)]


def same_result(text, folder):
    path = os.path.join(folder, "program.hlo")
    for old in glob.glob(os.path.join(folder, "*.npy")):
        os.remove(old)
    with open(path, "w") as out:
        out.write(text)
    program = printed(path)
    with jax_mlir.make_ir_context():
        ir.Module.parse(program)
    if "tuple<" in program.split("{\n")[1] or "mhlo.layout_mode" in program:
        return  # tuples are no results of PJRT; bytes in other orders are not compared here
    subprocess.run([WEFT, "run", path, "--quiet", "--save-inputs", folder, "--output-dir", folder], check=True, stdout=subprocess.DEVNULL)
    want, got = files(folder, "result"), run(program.encode(), files(folder, "input"))
    assert len(want) == len(got) > 0, f"{len(got)} results, {len(want)} wanted"
    for w, g in zip(want, got):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5)


def parses(path):
    with jax_mlir.make_ir_context():
        ir.Module.parse(printed(path))


with tempfile.TemporaryDirectory() as folder:
    for program in re.split(r"(?m)^// .*$", open(os.path.join(ROOT, "tests/stablehlo/raised.hlo")).read()):
        if "HloModule" in program:
            text = program.strip() + "\n"
            check(re.search(r"HloModule ([\w.]+)", text)[1], lambda: same_result(text, folder))
for path in sorted(glob.glob(os.path.join(ROOT, "../shared/testdata/hlo/*.hlo"))):
    check(os.path.basename(path), lambda: parses(path))
print(f"1..{count}")
sys.exit(failed > 0)
