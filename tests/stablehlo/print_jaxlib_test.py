#!/usr/bin/env python3
"""What `weft inspect --emit=stablehlo` prints is for MLIR's own parser the program that was given.  Prints TAP.

A program and its printed form are parsed by jaxlib, and what jaxlib prints of both is compared, names of values aside.
Programs: every tenth of the test data, and functions that JAX lowers, as text and as portable artifacts.
    Interpreter with jax 0.10.2: $WEFT_PYTHON.  The command: $WEFT_BUILDDIR/weft.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

from with_jaxlib import WEFT, inner, scoped  # before JAX

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax._src.interpreters import mlir as jax_mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"  # read by the first use

DATA = os.path.join(os.environ.get("WEFT_SRCDIR", "."), "..", "shared", "testdata", "stablehlo")
SEPARATOR = re.compile(r"^// -----.*$", re.M)
failed = count = 0


def context():
    made = jax_mlir.make_ir_context()
    made.allow_unregistered_dialects = True
    return made


def asm(module):
    # Rules for propagation are not kept by the bytecode reader.
    return re.sub(r"(, )?sdy.sharding_rule = #sdy.op_sharding_rule<.*?}(, custom)?>", "", module.operation.get_asm())


def locations(module):
    """Where each operation and argument comes from, call stacks and all, in the order of the text."""
    lines = []

    def visit(op):
        lines.append(f"{op.name} {op.location}")
        for region in op.regions:
            for block in region:
                # Assembly has no place for locations of a loop's arguments.
                lines.extend(f"argument {arg.location}" for arg in block.arguments if op.name != "stablehlo.while")
                for within in block.operations:
                    visit(within.operation)

    visit(module.operation)
    # Where nothing is said, the parser takes the place in its input.
    return re.sub(r'loc\("-":.*\)$', "loc(unknown)", "\n".join(lines), flags=re.M)


def printed(path):
    out = subprocess.run([WEFT, "inspect", "--emit=stablehlo", path], capture_output=True, text=True)
    if out.returncode:
        raise ValueError(out.stderr)
    return out.stdout


def first_difference(a, b):
    for x, y in zip(a.splitlines(), b.splitlines()):
        if x != y:
            return f"got  {y[:300]}\n# want {x[:300]}"
    return "one is longer"


def check(name, wants, path, located=False):
    """`wants`: jaxlib's module of each part of the file, or None where it cannot read it."""
    global count, failed
    count += 1
    try:
        parts = SEPARATOR.split(printed(path))
        if len(parts) != len(wants):
            raise ValueError(f"{len(parts)} modules, expected {len(wants)}")
        for want, part in zip(wants, parts):
            if want is None:
                continue
            got = ir.Module.parse(part, context())
            for form in (asm, locations) if located else (asm,):
                if form(got) != form(want):
                    raise ValueError(first_difference(form(want), form(got)))
        print(f"ok {count} - {name}")
    except (ValueError, ir.MLIRError) as error:
        failed += 1
        print(f"not ok {count} - {name}\n# " + str(error)[:1500].replace("\n", "\n# "))


def parse_or_none(text):
    try:
        return ir.Module.parse(text, context())
    except ir.MLIRError:
        return None


def check_files():
    files = []
    for group in ("interpret", "interpret-chlo", "math", "testdata-dynamic", "vhlo"):
        files += sorted(glob.glob(os.path.join(DATA, group, "*.mlir")))
    files += sorted(glob.glob(os.path.join(DATA, "testdata", "*.mlir")))[::10]
    for path in files:
        # The check dialect is not in jaxlib; sparse encodings are not read.
        parts = [p for p in SEPARATOR.split(open(path).read()) if re.sub(r"//.*", "", p).strip()]
        wants = [None if "check." in p or "sparse_tensor" in p else parse_or_none(p) for p in parts]
        if any(wants):
            check(os.path.basename(path), wants, path)


def nested_calls(x):
    return scoped(x).sum() + lax.while_loop(lambda c: c < 9, lambda c: inner(c) + 3, 1.0)


def functions():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
    x = jnp.ones((8, 4))
    yield "elementwise", lambda x: jnp.where(x > 0, jnp.tanh(x), lax.erf(x) % 3), (x,)
    yield "scan", lambda x: lax.scan(lambda c, y: (c + y, c * y), jnp.zeros(4), x), (x,)
    yield "cond", lambda x: lax.cond(x[0, 0] > 1, lambda a: a + 1, lambda a: a * 2, x), (x,)
    yield "sort", lambda x: lax.sort((x, x * 2), dimension=1, num_keys=2), (x,)
    yield "gather and scatter", lambda x: x.at[jnp.array([1, 2])].add(x[jnp.array([0, 3])]), (x,)
    yield "convolution", lambda x: lax.conv_general_dilated(
        x[None, None], jnp.ones((1, 1, 3, 3)), (2, 1), "SAME", rhs_dilation=(1, 2)), (x,)
    yield "reduce_window", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"), (x,)
    yield "dot", lambda x: lax.dot_general(x, x.astype(jnp.bfloat16), (((1,), (1,)), ((), ())), precision="highest"), (x,)
    yield "random", lambda x: jax.random.normal(jax.random.key(0), x.shape) + x, (x,)
    yield "fft", lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), (x,)
    yield "linear algebra", lambda x: jnp.linalg.qr(x), (x,)
    yield "top_k", lambda x: lax.top_k(x, 2), (x,)
    yield "grad", jax.grad(lambda x: jnp.sum(jax.nn.softmax(x @ x.T) ** 2)), (x,)
    yield "constants", lambda x: x + np.arange(4, dtype=np.float32) + np.linspace(0, 1, 32, dtype=np.float32).reshape(8, 4), (x,)
    yield "large constant", lambda x: x @ np.random.RandomState(0).randn(4, 500).astype(np.float32), (x,)
    yield "sharded", lambda x: lax.with_sharding_constraint(x @ x.T, NamedSharding(mesh, P("x", None))), (
        jax.device_put(x, NamedSharding(mesh, P("x", "y"))),)
    yield "calls", nested_calls, (x,)
    yield "shard_map", jax.shard_map(lambda x: lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()), (x,)


def check_functions(folder):
    for name, f, args in functions():
        lowered = jax.jit(f).lower(*args)
        path = os.path.join(folder, "program")
        for form, text in (("text", lowered.as_text()), ("debug text", lowered.as_text(debug_info=True)),
                           ("generic text", lowered.compiler_ir().operation.get_asm(print_generic_op_form=True))):
            with open(path, "w") as out:
                out.write(text)
            check(f"{name}: {form}", [ir.Module.parse(text, context())], path, located=form == "debug text")
        artifact = export.export(jax.jit(f))(*args).mlir_module_serialized
        with open(path, "wb") as out:
            out.write(artifact)
        check(f"{name}: artifact", [stablehlo.deserialize_portable_artifact(context(), artifact)], path, located=True)


check_files()
with tempfile.TemporaryDirectory() as folder:
    check_functions(folder)
print(f"1..{count}")
sys.exit(failed > 0)
