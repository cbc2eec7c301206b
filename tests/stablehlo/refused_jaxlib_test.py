#!/usr/bin/env python3
"""What the specification forbids is refused, what it allows is read: random operations with a number, a type or an operand
changed, as the verifier of jaxlib's StableHLO judges them.  Prints TAP.

  refused_jaxlib_test.py [--seed N] [--count N: of programs] [--only OPERATION] [--keep DIR]
    Interpreter with jax 0.10.2: $WEFT_PYTHON.  The command: $WEFT_BUILDDIR/weft.
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile

from with_jaxlib import WEFT  # before JAX

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from random_programs import ALL, COMPLEX, make, tensor

CONTEXT = mlir.make_ir_context()

# Programs that jaxlib's verifier accepts and Weft refuses: {operation: reason}.
STRICTER = {
    "stablehlo.torch_index_select": "its operands and result are not verified",
    "stablehlo.bitcast_convert": "the rank of the result is not verified",
    "stablehlo.rng_bit_generator": "the type of the state is not verified (it is ui64)",
    "stablehlo.reduce": "an odd number of operands is not verified",
    "stablehlo.reduce_window": "an odd number of operands is not verified",
    "stablehlo.scatter": "an even number of operands is not verified",
}
OPERATION = re.compile(r'^(\s*%\w+(?::\d+)? = )"((?:stablehlo|chlo)\.\w+)"\(([^)]*)\)(.*) : \((.*)\) -> (.*)$', re.S)
ATTRIBUTES = re.compile(r" <\{(.*?)\}>(?= \(|$)", re.S)
NUMBER = re.compile(r"(?<![\w#.<])-?\d+(?!\w| *x|\w*>)|true|false")


def parts(text):
    """A list at its commas, but for those in brackets."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(text + ","):
        depth += c in "<({["
        depth -= c in ")}]" or (c == ">" and text[i - 1] != "-")
        if c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    return [x for x in out if x]


def other_type(rng, text):
    """Another element type, size, rank or order of dimensions."""
    match = re.match(r"tensor<((?:\d+x)*)([^x?]*)>$", text)
    if not match:
        return text
    dims, element = [int(x) for x in match[1].split("x")[:-1]], match[2]
    kind = rng.choice(["element", "size", "size", "drop", "add", "shuffle"]) if dims else rng.choice(["element", "add"])
    if kind == "element":
        element = rng.choice(ALL + COMPLEX)
    elif kind == "size":
        i = rng.randrange(len(dims))
        dims[i] = max(0, dims[i] + rng.choice([-2, -1, 1, 2]))
    elif kind == "drop":
        dims.pop(rng.randrange(len(dims)))
    elif kind == "add":
        dims.insert(rng.randint(0, len(dims)), rng.choice([1, 2, 3]))
    else:
        rng.shuffle(dims)
    return tensor(dims, element)


def other_attributes(rng, text):
    """A number that is another, or is there twice."""
    numbers = list(NUMBER.finditer(text))
    if not numbers:
        return text
    at = rng.choice(numbers)
    if at[0] in ("true", "false"):
        new = "true" if at[0] == "false" else "false"
    elif rng.random() < 0.15 and re.match(r"[,\]>]", text[at.end():]) and re.search(r"[\[:,] ?$", text[:at.start()]):
        new = f"{at[0]}, {at[0]}"
    else:
        value = int(at[0])
        new = str(rng.choice([value - 1, value + 1, value + 2, -1, 0, 100] + [int(n[0]) for n in numbers if n[0] not in ("true", "false")]))
    return text[:at.start()] + new + text[at.end():]


def changed(rng, program):
    """(its text with one or two changes to the last operation, the operation, the changes), or None."""
    args = ", ".join(f"%arg{i}: {t}" for i, (t, _) in enumerate(program.args))
    lines = [line[0] for line in program.lines]
    at = max((i for i, line in enumerate(lines) if OPERATION.match(line)), default=None)
    if at is None or program.functions:
        return None
    start, name, operands, rest, types, results = OPERATION.match(lines[at]).groups()
    operands, types, results, what = parts(operands), parts(types), parts(results[1:-1] if results[0] == "(" else results), []
    for _ in range(rng.choice([1, 1, 1, 2])):
        kind, attributes = rng.choice(["attribute"] * 5 + ["operand"] * 3 + ["result", "drop", "repeat"]), ATTRIBUTES.match(rest)
        i = rng.randrange(len(types)) if types else None
        if kind == "attribute" and attributes:
            new = other_attributes(rng, attributes[1])
            what.append(new)
            rest = f" <{{{new}}}>" + rest[attributes.end():]
        elif kind == "operand" and types:
            what.append(f"operand {i}: {types[i]}")
            types[i], operands[i] = other_type(rng, types[i]), f"%other{len(what)}"
            args += f", {operands[i]}: {types[i]}"
        elif kind == "result":
            j = rng.randrange(len(results))
            what.append(f"result {j}: {results[j]}")
            results[j] = other_type(rng, results[j])
        elif kind == "drop" and types:
            what.append(f"without operand {i}")
            types.pop(i), operands.pop(i)
        elif kind == "repeat" and types:
            what.append(f"operand {i} twice")
            types.insert(i, types[i]), operands.insert(i, operands[i])
    lines[at] = f'{start}"{name}"({", ".join(operands)}){rest} : ({", ".join(types)}) -> ({", ".join(results)})'
    return f"func.func @main({args.removeprefix(', ')}) {{\n" + "\n".join(lines[:at + 1]) + "\n  return\n}\n", name, what


def refused_by_jaxlib(text):
    try:
        with CONTEXT:
            ir.Module.parse(text)
    except ir.MLIRError as error:
        return str(error)
    return None


def refused_by_weft(text, folder):
    path = os.path.join(folder, "program.mlir")
    with open(path, "w") as out:
        out.write(text)
    done = subprocess.run([WEFT, "inspect", path, "--emit=hlo"], capture_output=True, text=True, timeout=120)
    return done.stderr if done.returncode else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--only")
    parser.add_argument("--keep", help="a folder for programs on which the two disagree")
    options = parser.parse_args()
    wrong, judged = [], [0, 0]
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.count):
            seed = f"{options.seed}.{i}"
            program = make(seed, options.only, 1)
            change = changed(random.Random(seed), program)
            if not change or refused_by_jaxlib(program.text()):  # it has no quantized types
                continue
            text, name, what = change
            theirs, ours = refused_by_jaxlib(text), refused_by_weft(text, folder)
            judged[theirs is not None] += 1
            if (theirs is None) == (ours is None) or (theirs is None and name in STRICTER):
                continue
            wrong.append(f"{seed}: {name} with {', '.join(what)}: " + (f"jaxlib: {theirs}" if theirs else f"only we: {ours}"))
            if options.keep:
                os.makedirs(options.keep, exist_ok=True)
                with open(os.path.join(options.keep, seed + ".mlir"), "w") as out:
                    out.write(text)
    for text in wrong:
        print("# " + text[:1000].replace("\n", "\n# "))
    print(f"# {judged[1]} programs that jaxlib refuses, {judged[0]} that it takes, {len(wrong)} judged otherwise")
    print(("not " if wrong or not min(judged) else "") + "ok 1 - programs are refused where jaxlib refuses them\n1..1")
    sys.exit(bool(wrong) or not min(judged))


main()
