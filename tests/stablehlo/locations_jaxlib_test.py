#!/usr/bin/env python3
"""Call stacks of locations become metadata as XLA makes it, and come back out of every form.  Prints TAP.

Functions that call functions are lowered by JAX.  jaxlib's own HLO of them says which operation comes from which calls (the
stack frames of its module); the same has to be in what `weft inspect` makes of the text and of the artifact, and in what
it makes of that again as a proto, as StableHLO and as HLO text.
    Interpreter with jax 0.10.2: $WEFT_PYTHON.  The command: $WEFT_BUILDDIR/weft.
"""
import os
import re
import subprocess
import sys
import tempfile

from with_jaxlib import WEFT, inner, middle, scoped  # before JAX

import jax
import jax.numpy as jnp
from jax import lax
from jaxlib import _hlo
from jaxlib.mlir.dialects import stablehlo

failed = count = 0
# What the two make differently many of, or in other places: constants, their broadcasts, and what holds values together.
GLUE = {"constant", "broadcast", "parameter", "tuple", "get-tuple-element", "reshape", "call"}


def nested(x):
    return scoped(x) / 3


def looped(x):
    return lax.fori_loop(0, 5, lambda i, c: jnp.cos(inner(c)), x)


def summed(x):
    return jnp.sum(jax.vmap(inner)(x) @ x.T, axis=0)


def differentiated(x):
    return jax.grad(lambda v: jnp.sum(jax.nn.softmax(middle(v)) ** 2))(x)


def rows(text, title):
    """A table of the text: what follows each number."""
    found = re.search(rf"^{title}\n((?:\d+ .*\n)*)", text, re.M)
    return [line.split(" ", 1)[1] for line in found.group(1).splitlines()] if found else []


def origins(text):
    """(opcode, op_name, calls from the innermost on) of each instruction."""
    files, functions = rows(text, "FileNames"), rows(text, "FunctionNames")
    places = [dict((k, int(v)) for k, v in re.findall(r"(\w+)=(\d+)", row)) for row in rows(text, "FileLocations")]
    frames = [dict((k, int(v)) for k, v in re.findall(r"(\w+)=(\d+)", row)) for row in rows(text, "StackFrames")]
    found = set()
    for opcode, metadata in re.findall(r"^\s+(?:ROOT )?\S+ = .*?\s([\w-]+)\(.*?metadata={(.*?)}", text, re.M):
        name = re.search(r'op_name="(.*?)"', metadata)
        frame = re.search(r"stack_frame_id=(\d+)", metadata)
        calls, frame = [], int(frame.group(1)) if frame else 0
        while frame:
            place = places[frames[frame - 1]["file_location_id"] - 1]
            calls.append((functions[place["function_name_id"] - 1], files[place["file_name_id"] - 1],
                          place.get("line", 0), place.get("column", 0)))  # XLA takes any end for the places that begin there
            frame = frames[frame - 1].get("parent_frame_id", 1) - 1
        name = name.group(1) if name else None
        if opcode not in GLUE and not (opcode == "add" and name.endswith("reduce_sum")):  # reducers are lowered once
            found.add((opcode, name, tuple(calls)))
    return found


def emit(form, path, folder):
    out = os.path.join(folder, form)
    with open(out, "wb") as to:
        subprocess.run([WEFT, "inspect", f"--emit={form}", path], stdout=to, check=True)
    return out


def check(name, want, path):
    global count, failed
    count += 1
    got = origins(open(path).read())
    print(f"{'ok' if got == want else 'not ok'} {count} - {name}")
    if got != want:
        failed += 1
        for title, rest in (("only wanted", want - got), ("only got", got - want)):
            print("".join(f"# {title}: {row}\n" for row in sorted(rest, key=str)[:4]), end="")


with tempfile.TemporaryDirectory() as folder:
    for f in (nested, looped, summed, differentiated):
        lowered = jax.jit(f).lower(jnp.ones((4, 4)))
        options = _hlo.HloPrintOptions.short_parsable()
        options.print_metadata = True
        want = origins(lowered.compiler_ir("hlo").get_hlo_module().to_string(options))
        assert any(len(calls) > 2 for _, _, calls in want), "the function has no call stacks"
        path = os.path.join(folder, "program")
        for form, data in (("text", lowered.as_text(debug_info=True).encode()),
                           ("artifact", stablehlo.serialize_portable_artifact(lowered.compiler_ir(), "1.9.0"))):
            with open(path, "wb") as out:
                out.write(data)
            hlo = emit("hlo", path, folder)
            check(f"{f.__name__}: {form} to HLO", want, hlo)
            for between in ("hlo-proto", "stablehlo"):
                again = os.path.join(folder, "again")
                os.replace(emit(between, hlo, folder), again)
                check(f"{f.__name__}: {form} to HLO, by {between}", want, emit("hlo", again, folder))
                emit("hlo", path, folder)
        with open(path, "wb") as out:
            out.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
        check(f"{f.__name__}: XLA's proto", want, emit("hlo", path, folder))
print(f"1..{count}")
sys.exit(failed > 0)
