#!/usr/bin/env python3
"""Random StableHLO: each operation with random shapes, element types and attributes, as jaxlib computes it.  Prints TAP.

An operation of a program takes arguments and its results are results of the program; all values are small integers,
so that sums and products are exact in every type and results are compared bit by bit.  What jaxlib refuses is left out,
and counted.   random_jaxlib_test.py [--seed N] [--count N: of programs] [--only OPERATION] [--keep DIR]
    Interpreter with jax 0.10.2: $WEFT_PYTHON.  The command: $WEFT_BUILDDIR/weft.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

if os.environ.get("WEFT_PYTHON") and os.environ.get("WEFT_RANDOM") != "1":
    os.environ["WEFT_RANDOM"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import jax
except ImportError:
    print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    sys.exit(0)

import numpy as np  # noqa: E402
from jax._src.lib import xla_client as xc  # noqa: E402

jax.config.update("jax_enable_x64", True)
WEFT = os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), "weft")
client = jax.devices()[0].client

# How an element type crosses the border: as itself, by its bits, or converted.
PLAIN = {"i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16,
         "ui32": np.uint32, "ui64": np.uint64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
         "complex<f32>": np.complex64, "complex<f64>": np.complex128}
CONVERTED = {"i4": "i8", "ui4": "ui8", "i2": "i8", "ui2": "ui8", "bf16": "f32", "f8E5M2": "f32", "f8E4M3FN": "f32", "f8E4M3": "f32",
             "f8E3M4": "f32", "f8E4M3B11FNUZ": "f32", "f8E5M2FNUZ": "f32", "f8E4M3FNUZ": "f32", "f4E2M1FN": "f32"}
SIGNED, UNSIGNED = ["i2", "i4", "i8", "i16", "i32", "i64"], ["ui2", "ui4", "ui8", "ui16", "ui32", "ui64"]
FLOATS = ["f16", "bf16", "f32", "f64", "f8E5M2", "f8E4M3FN", "f8E4M3B11FNUZ", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E3M4", "f8E4M3"]
COMPLEX = ["complex<f32>", "complex<f64>"]
NUMBERS = SIGNED + UNSIGNED + FLOATS + COMPLEX
ALL = NUMBERS + ["i1", "f4E2M1FN"]
WIDE = ["i32", "i64", "ui32", "f32", "f64", "bf16", "f16", "complex<f32>", "complex<f64>"]


def tensor(dims, element):
    return "tensor<%s%s>" % ("".join(f"{d}x" for d in dims), element)


def ints(values):
    return "array<i64%s>" % (": " + ", ".join(map(str, values)) if len(values) else "")


class Program:
    """Text of main and the arrays it takes."""

    def __init__(self, rng):
        self.rng, self.args, self.lines, self.results, self.names, self.n = rng, [], [], [], [], 0

    def fresh(self):
        self.n += 1
        return f"%v{self.n}"

    def line(self, text):
        self.lines.append("  " + text)

    def pick(self, items):
        return self.rng.choice(items)

    def size(self, least=1, most=5):
        return self.rng.randint(least, most)

    def dims(self, least=0, most=4):
        rank = self.rng.randint(least, most)
        zero = self.rng.random() < 0.04
        return [0 if zero and self.rng.random() < 0.4 else self.size() for _ in range(rank)]

    def value(self, dims, element, low=None, high=None):
        """An argument of small integers."""
        border = CONVERTED.get(element, element)
        unsigned = element.startswith("ui") or element == "i1"
        low = (0 if unsigned else -2 if element in ("i2", "f4E2M1FN") else -3) if low is None else low
        high = (1 if element in ("i1", "i2") else 2 if element == "f4E2M1FN" else 3) if high is None else high
        array = np.array([self.rng.randint(low, high) for _ in range(int(np.prod(dims)))], dtype=np.float64).reshape(dims)
        if element in COMPLEX:
            array = array + 1j * np.array([self.rng.randint(low, high) for _ in range(array.size)]).reshape(dims)
        name = f"%arg{len(self.args)}"
        self.args.append((tensor(dims, border), array.astype(PLAIN[border])))
        return name if border == element else self.convert(name, dims, border, element)

    def convert(self, name, dims, source, target):
        out = self.fresh()
        self.line(f'{out} = stablehlo.convert {name} : ({tensor(dims, source)}) -> {tensor(dims, target)}')
        return out

    def constant(self, text, dims, element):
        out = self.fresh()
        self.line(f"{out} = stablehlo.constant dense<{text}> : {tensor(dims, element)}")
        return out

    def op(self, name, operands, types, results, attrs="", regions=()):
        """One operation in the generic form; its results become the program's."""
        n = self.fresh()
        region = " (" + ", ".join("{\n%s\n  }" % r for r in regions) + ")" if regions else ""
        out = ", ".join(tensor(*r) for r in results)
        self.line(f'{n}{":%d" % len(results) if len(results) > 1 else ""} = "{name}"({", ".join(operands)}){" <{%s}>" % attrs if attrs else ""}{region} : '
                  f'({", ".join(types)}) -> {out if len(results) == 1 else "(%s)" % out}')
        for i, (dims, element) in enumerate(results):
            value = f"{n}#{i}" if len(results) > 1 else n
            if element in CONVERTED:
                value = self.convert(value, dims, element, CONVERTED[element])
            self.results.append((value, tensor(dims, CONVERTED.get(element, element)), name, element))
        return n

    def text(self):
        args = ", ".join(f"%arg{i}: {t}" for i, (t, _) in enumerate(self.args))
        types = ", ".join(r[1] for r in self.results)
        values = ", ".join(r[0] for r in self.results)
        body = "\n".join(self.lines)
        return f"module @random {{\nfunc.func @main({args}) -> ({types}) {{\n{body}\n  return {values} : {types}\n}}\n}}\n"


def reducer(op, element, n=1):
    """A region that combines n accumulators with n values."""
    t = f"tensor<{element}>"
    args = ", ".join(f"%{s}{i}: {t}" for s in "ab" for i in range(n))
    body = "\n".join(f"    %c{i} = stablehlo.{op} %a{i}, %b{i} : {t}" for i in range(n))
    return f"  ^bb0({args}):\n{body}\n    stablehlo.return {', '.join(f'%c{i}' for i in range(n))} : {', '.join([t] * n)}"


def associative(p, element):
    if element == "i1":
        return p.pick(["and", "or", "xor"])
    if element in COMPLEX:
        return "add"
    return p.pick(["add", "maximum", "minimum"] + (["and", "or", "xor"] if element[0] in "iu" else []))


def arrays_of(p, op, operands, dims, element, results, attrs="", regions=()):
    p.op("stablehlo." + op, operands, [tensor(d, element) for d in dims], [(r, element) for r in results], attrs, regions)


# ---- operations: each adds one to the program -----------------------------------------------------------------------

def elementwise(p):
    op = p.pick(["add", "subtract", "multiply", "maximum", "minimum", "negate", "abs", "sign", "and", "or", "xor", "not", "popcnt",
                 "count_leading_zeros", "divide", "remainder", "shift_left", "shift_right_logical", "shift_right_arithmetic", "floor", "ceil"])
    one = op in ("negate", "abs", "sign", "not", "popcnt", "count_leading_zeros", "floor", "ceil")
    if op in ("and", "or", "xor", "not"):
        types = SIGNED + UNSIGNED + ["i1"]
    elif op in ("popcnt", "count_leading_zeros") or op.startswith("shift"):
        types = [t for t in SIGNED + UNSIGNED if op != "popcnt" or t not in ("i2", "i4")]  # XLA counts the bits of the byte
    elif op in ("divide", "remainder"):
        types = SIGNED + UNSIGNED + (FLOATS if op == "remainder" else [])
    elif op in ("abs", "sign"):
        types = SIGNED + FLOATS
    elif op in ("floor", "ceil"):
        types = FLOATS
    elif op in ("maximum", "minimum"):
        types = SIGNED + UNSIGNED + FLOATS + ["i1"]
    else:
        types = SIGNED + UNSIGNED + FLOATS + COMPLEX
    element, dims = p.pick(types), p.dims()
    values = [p.value(dims, element) for _ in range(1 if one else 2)]
    arrays_of(p, op, values, [dims] * len(values), element, [dims])


def compare(p):
    element, dims = p.pick([t for t in ALL if t not in COMPLEX]), p.dims()
    kind = "FLOAT" if element[0] in "fb" else "UNSIGNED" if element[0] == "u" or element == "i1" else "SIGNED"
    if kind == "FLOAT" and p.rng.random() < 0.3:
        kind = "TOTALORDER"
    attrs = (f"comparison_direction = #stablehlo<comparison_direction {p.pick(['EQ', 'NE', 'LT', 'LE', 'GT', 'GE'])}>, "
             f"compare_type = #stablehlo<comparison_type {kind}>")
    t = tensor(dims, element)
    p.op("stablehlo.compare", [p.value(dims, element), p.value(dims, element)], [t, t], [(dims, "i1")], attrs)


def convert(p):
    source, target, dims = p.pick(ALL), p.pick(ALL), p.dims()
    if source in COMPLEX and target not in COMPLEX:
        source = "f32"
    p.op("stablehlo.convert", [p.value(dims, source)], [tensor(dims, source)], [(dims, target)])


def bitcast_convert(p):
    widths = {1: ["i8", "ui8"], 2: ["i16", "ui16", "f16"], 4: ["i32", "ui32", "f32"], 8: ["i64", "ui64", "f64"]}
    a, b = p.pick(list(widths)), p.pick(list(widths))
    dims, source, target = p.dims(0, 3), p.pick(widths[a]), p.pick(widths[b])
    operand, result = (dims + [b // a], dims) if a < b else (dims, dims + [a // b] if a > b else dims)
    if target[0] == "f":
        target = "ui" + target[1:]  # random bits may be NaN, whose payload is free
    p.op("stablehlo.bitcast_convert", [p.value(operand, source)], [tensor(operand, source)], [(result, target)])


def select(p):
    element, dims = p.pick(ALL), p.dims()
    which = p.pick([dims, []])
    t = tensor(dims, element)
    p.op("stablehlo.select", [p.value(which, "i1"), p.value(dims, element), p.value(dims, element)], [tensor(which, "i1"), t, t], [(dims, element)])


def clamp(p):
    element, dims = p.pick(SIGNED + UNSIGNED + FLOATS), p.dims()
    bounds = [p.pick([dims, []]) for _ in range(2)]
    arrays_of(p, "clamp", [p.value(bounds[0], element, 0, 1), p.value(dims, element), p.value(bounds[1], element, 1, 1)],
              [bounds[0], dims, bounds[1]], element, [dims])


def transpose(p):
    element, dims = p.pick(ALL), p.dims(0, 6)
    order = p.rng.sample(range(len(dims)), len(dims))
    arrays_of(p, "transpose", [p.value(dims, element)], [dims], element, [[dims[i] for i in order]], f"permutation = {ints(order)}")


def broadcast_in_dim(p):
    element, dims = p.pick(ALL), p.dims(0, 5)
    used = sorted(p.rng.sample(range(len(dims)), p.rng.randint(0, len(dims))), key=lambda _: p.rng.random())
    operand = [p.pick([dims[d], dims[d], 1]) for d in used]
    arrays_of(p, "broadcast_in_dim", [p.value(operand, element)], [operand], element, [dims], f"broadcast_dimensions = {ints(used)}")


def reshape(p):
    element, dims = p.pick(ALL), p.dims(0, 5)
    result = dims + [1] * p.rng.randint(0, 2)
    p.rng.shuffle(result)
    if len(result) > 2 and p.rng.random() < 0.5:
        result = [result[0] * result[1]] + result[2:]
    arrays_of(p, "reshape", [p.value(dims, element)], [dims], element, [result])


def concatenate(p):
    element, dims = p.pick(ALL), p.dims(1, 4)
    d = p.rng.randrange(len(dims))
    parts = [[p.size(0, 4) if i == d else x for i, x in enumerate(dims)] for _ in range(p.size(1, 4))]
    result = [sum(x[d] for x in parts) if i == d else x for i, x in enumerate(dims)]
    arrays_of(p, "concatenate", [p.value(x, element) for x in parts], parts, element, [result], f"dimension = {d} : i64")


def reverse(p):
    element, dims = p.pick(ALL), p.dims(1, 5)
    which = p.rng.sample(range(len(dims)), p.rng.randint(0, len(dims)))
    arrays_of(p, "reverse", [p.value(dims, element)], [dims], element, [dims], f"dimensions = {ints(which)}")


def slice_(p):
    element, dims = p.pick(ALL), p.dims(0, 5)
    start = [p.rng.randint(0, d) for d in dims]
    limit = [p.rng.randint(s, d) for s, d in zip(start, dims)]
    stride = [p.size(1, 3) for _ in dims]
    result = [-(-(l - s) // k) for s, l, k in zip(start, limit, stride)]
    arrays_of(p, "slice", [p.value(dims, element)], [dims], element, [result],
              f"start_indices = {ints(start)}, limit_indices = {ints(limit)}, strides = {ints(stride)}")


def pad(p):
    element, dims = p.pick(ALL), p.dims(0, 4)
    low, high, interior = [p.rng.randint(-2, 3) for _ in dims], [p.rng.randint(-2, 3) for _ in dims], [p.pick([0, 0, 1, 2]) for _ in dims]
    result = [d + max(d - 1, 0) * k + a + b for d, a, b, k in zip(dims, low, high, interior)]
    if any(x < 0 for x in result):
        return pad(p)
    arrays_of(p, "pad", [p.value(dims, element), p.value([], element)], [dims, []], element, [result],
              f"edge_padding_low = {ints(low)}, edge_padding_high = {ints(high)}, interior_padding = {ints(interior)}")


def dynamic_slice(p):
    element, dims, index = p.pick(ALL), p.dims(0, 4), p.pick(["i32", "i64", "ui8", "i8", "ui32"])
    sizes = [p.rng.randint(0, d) for d in dims]
    starts = [p.value([], index, 0 if index[0] == "u" else -3, 6) for _ in dims]
    p.op("stablehlo.dynamic_slice", [p.value(dims, element)] + starts, [tensor(dims, element)] + [tensor([], index)] * len(dims),
         [(sizes, element)], f"slice_sizes = {ints(sizes)}")


def dynamic_update_slice(p):
    element, dims, index = p.pick(ALL), p.dims(0, 4), p.pick(["i32", "i64", "ui8", "i8", "ui32"])
    sizes = [p.rng.randint(0, d) for d in dims]
    starts = [p.value([], index, 0 if index[0] == "u" else -3, 6) for _ in dims]
    p.op("stablehlo.dynamic_update_slice", [p.value(dims, element), p.value(sizes, element)] + starts,
         [tensor(dims, element), tensor(sizes, element)] + [tensor([], index)] * len(dims), [(dims, element)])


def iota(p):
    element, dims = p.pick([t for t in NUMBERS if t not in ("i2", "ui2")]), p.dims(1, 4)
    p.op("stablehlo.iota", [], [], [(dims, element)], f"iota_dimension = {p.rng.randrange(len(dims))} : i64")


def reduce(p):
    n, element, dims = p.pick([1, 1, 2, 3]), p.pick(ALL[:-1]), p.dims(1, 5)
    which = sorted(p.rng.sample(range(len(dims)), p.rng.randint(1, len(dims))))
    if np.prod([dims[i] for i in which]) == 1:  # then XLA leaves out the initial value
        return reduce(p)
    result = [d for i, d in enumerate(dims) if i not in which]
    operands = [p.value(dims, element, -1 if element in ("f8E3M4",) else None) for _ in range(n)] + [p.value([], element, 0, 1) for _ in range(n)]
    arrays_of(p, "reduce", operands, [dims] * n + [[]] * n, element, [result] * n, f"dimensions = {ints(which)}",
              [reducer(associative(p, element) if element not in FLOATS[4:] else p.pick(["maximum", "minimum"]), element, n)])


def window_of(p, dims, dilate=True):
    """Attributes of a window over dims and the positions it has, or None if there are none."""
    window, stride = [p.size(1, 3) for _ in dims], [p.size(1, 3) for _ in dims]
    base, dilation = [p.pick([1, 1, 2]) if dilate else 1 for _ in dims], [p.pick([1, 1, 2]) if dilate else 1 for _ in dims]
    padding = [[p.rng.randint(0, 2), p.rng.randint(0, 2)] for _ in dims]
    result = []
    for d, w, s, b, k, (low, high) in zip(dims, window, stride, base, dilation, padding):
        room = (0 if d == 0 else (d - 1) * b + 1) + low + high - ((w - 1) * k + 1)
        result.append(0 if room < 0 else room // s + 1)
    rows = "[" + ", ".join(str(x) for x in padding) + "]" if dims else "0"
    attrs = [f"window_dimensions = {ints(window)}", f"window_strides = {ints(stride)}",
             f"padding = dense<{rows}> : tensor<{len(dims)}x2xi64>"]
    if dilate:
        attrs += [f"base_dilations = {ints(base)}", f"window_dilations = {ints(dilation)}"]
    return ", ".join(attrs if dims else attrs[:2]), result


def reduce_window(p):
    n, element, dims = p.pick([1, 1, 2]), p.pick(WIDE[:7] + ["i8", "ui8", "i16"]), p.dims(1, 4)
    attrs, result = window_of(p, dims)
    operands = [p.value(dims, element) for _ in range(n)] + [p.value([], element, 0, 1) for _ in range(n)]
    arrays_of(p, "reduce_window", operands, [dims] * n + [[]] * n, element, [result] * n, attrs, [reducer(associative(p, element), element, n)])


def select_and_scatter(p):
    element, dims = p.pick(["i32", "f32", "i16", "f16", "ui16", "f64", "i64"]), [p.size(2, 6) for _ in range(p.size(1, 3))]
    attrs, source = window_of(p, dims, False)
    if 0 in source:
        return select_and_scatter(p)
    t = f"tensor<{element}>"
    choose = (f"  ^bb0(%a0: {t}, %b0: {t}):\n    %p = stablehlo.compare {p.pick(['GE', 'LE', 'GT'])}, %a0, %b0 : ({t}, {t}) -> tensor<i1>\n"
              "    stablehlo.return %p : tensor<i1>")
    operand = p.value(dims, element)
    array = p.args[-1][1]
    p.args[-1] = p.args[-1][0], np.array(p.rng.sample(range(array.size), array.size), array.dtype).reshape(dims)  # in which order XLA looks is open
    arrays_of(p, "select_and_scatter", [operand, p.value(source, element), p.value([], element, 0, 1)],
              [dims, source, []], element, [dims], attrs, [choose, reducer("add", element)])


def sort(p):
    key, dims = p.pick([t for t in PLAIN if t not in COMPLEX]), p.dims(1, 4)
    others = [p.pick(list(PLAIN)) for _ in range(p.pick([0, 0, 1, 2]))]
    d = p.rng.randrange(len(dims))
    args = ", ".join(f"%{s}{i}: tensor<{t}>" for i, t in enumerate([key] + others) for s in "ab")
    less = p.pick(["LT", "GT"])
    region = (f"  ^bb0({args}):\n    %p = stablehlo.compare {less}, %a0, %b0 : (tensor<{key}>, tensor<{key}>) -> tensor<i1>\n"
              "    stablehlo.return %p : tensor<i1>")
    types = [key] + others
    p.op("stablehlo.sort", [p.value(dims, t) for t in types], [tensor(dims, t) for t in types], [(dims, t) for t in types],
         f"dimension = {p.pick([d, d - len(dims)])} : i64, is_stable = true", [region])


def dot_general(p):
    element = p.pick(WIDE + ["i8", "i16", "ui8", "f8E5M2", "f8E4M3FN", "i4", "ui4"])
    result_type = p.pick([element, {"i8": "i32", "ui8": "ui32", "f16": "f32", "bf16": "f32", "f8E5M2": "f32", "f8E4M3FN": "f32", "i4": "i32",
                                    "ui4": "ui32"}.get(element, element)])
    if element[:2] == "f8" or element in ("i4", "ui4"):
        result_type = "f32" if element[:2] == "f8" else "i32" if element == "i4" else "ui32"
    batch, contract = [p.size() for _ in range(p.size(0, 2))], [p.size() for _ in range(p.size(0, 2))]
    free = [[p.size() for _ in range(p.size(0, 2))] for _ in range(2)]
    sides = []
    for f in free:
        labelled = [("b", i) for i in range(len(batch))] + [("c", i) for i in range(len(contract))] + [("f", i) for i in range(len(f))]
        p.rng.shuffle(labelled)
        size = {"b": batch, "c": contract, "f": f}
        order = [labelled.index(("b", i)) for i in range(len(batch))], [labelled.index(("c", i)) for i in range(len(contract))]
        frees = [i for k, i in labelled if k == "f"]
        sides.append(([size[k][i] for k, i in labelled], order, [f[i] for i in frees]))
    attrs = ("dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = %s, rhs_batching_dimensions = %s, "
             "lhs_contracting_dimensions = %s, rhs_contracting_dimensions = %s>" %
             (sides[0][1][0], sides[1][1][0], sides[0][1][1], sides[1][1][1]))
    p.op("stablehlo.dot_general", [p.value(s[0], element) for s in sides], [tensor(s[0], element) for s in sides],
         [(batch + sides[0][2] + sides[1][2], result_type)], attrs)


def convolution(p):
    element, spatial = p.pick(["f32", "f64", "i32", "bf16", "f16", "i8", "complex<f32>"]), p.size(0, 3)
    batch_groups = p.pick([1, 1, 2])
    feature_groups = 1 if batch_groups > 1 else p.pick([1, 1, 2, 3])
    batch, in_feature = p.size(1, 2) * batch_groups, p.size(1, 2) * feature_groups
    out_feature = p.size(1, 2) * feature_groups * batch_groups
    xs, ks = [p.size(1, 6) for _ in range(spatial)], [p.size(1, 3) for _ in range(spatial)]
    stride = [p.size(1, 2) for _ in xs]
    ld, rd = [p.pick([1, 1, 2]) for _ in xs], [p.pick([1, 1, 2]) for _ in xs]
    padding = [[p.rng.randint(-1, 2), p.rng.randint(-1, 2)] for _ in xs]
    out = []
    for x, k, s, l, r, (a, b) in zip(xs, ks, stride, ld, rd, padding):
        room = (x - 1) * l + 1 + a + b - ((k - 1) * r + 1)
        if (x - 1) * l + 1 + a + b < 0:
            return convolution(p)
        out.append(0 if room < 0 else room // s + 1)
    orders = [p.rng.sample(range(spatial + 2), spatial + 2) for _ in range(3)]

    def arranged(order, first, second, rest):
        dims = [0] * (spatial + 2)
        for place, size in zip(order, [first, second] + rest):
            dims[place] = size
        return dims

    shapes = [arranged(orders[0], batch, in_feature, xs), arranged(orders[1], in_feature // feature_groups, out_feature, ks),
              arranged(orders[2], batch // batch_groups, out_feature, out)]
    names = [("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
             ("kernel_input_feature_dimension", "kernel_output_feature_dimension", "kernel_spatial_dimensions"),
             ("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions")]
    raw = ", ".join(f"{n[0]} = {o[0]}, {n[1]} = {o[1]}, {n[2]} = {o[2:]}" for n, o in zip(names, orders))
    rows = "[" + ", ".join(map(str, padding)) + "]"
    reversal = ", ".join(p.pick(["true", "false"]) for _ in xs)
    attrs = (f"dimension_numbers = #stablehlo.conv<raw {raw}>, feature_group_count = {feature_groups} : i64, batch_group_count = {batch_groups} : i64"
             + (f", window_strides = {ints(stride)}, lhs_dilation = {ints(ld)}, rhs_dilation = {ints(rd)}, padding = dense<{rows}> : "
                f"tensor<{spatial}x2xi64>, window_reversal = array<i1: {reversal}>" if spatial else ""))
    arrays_of(p, "convolution", [p.value(shapes[0], element), p.value(shapes[1], element)], shapes[:2], element, shapes[2:], attrs)


def index_map(p):
    """What gather and scatter share: operand, indices, and how they meet."""
    rank = p.size(1, 4)
    dims = [p.size(1, 5) for _ in range(rank)]
    kinds = [p.pick(["window", "collapsed", "batch"]) for _ in dims]
    batching = [i for i, k in enumerate(kinds) if k == "batch"][:2]
    kinds = ["window" if k == "batch" and i not in batching else k for i, k in enumerate(kinds)]
    collapsed, window = [i for i, k in enumerate(kinds) if k == "collapsed"], [i for i, k in enumerate(kinds) if k == "window"]
    mapped = [i for i in collapsed + window if p.rng.random() < 0.7]
    p.rng.shuffle(mapped)
    if not mapped:  # XLA scatters the last update alone
        return index_map(p)
    places = [dims[b] for b in batching] + [p.size(1, 4) for _ in range(p.size(0, 2))]
    order = p.rng.sample(range(len(places)), len(places))
    places = [places[i] for i in order]
    batch_at = [order.index(i) for i in range(len(batching))]
    vector_at = p.rng.randint(0, len(places))
    implicit = vector_at == len(places) and len(mapped) == 1 and p.rng.random() < 0.5
    indices = places if implicit else places[:vector_at] + [len(mapped)] + places[vector_at:]
    batch_at = [b + (not implicit and b >= vector_at) for b in batch_at]
    sizes = [1 if i not in window else p.rng.randint(1, d) for i, d in enumerate(dims)]
    offsets = sorted(p.rng.sample(range(len(window) + len(places)), len(window)))
    rest, result, w = list(places), [], [sizes[i] for i in window]
    for i in range(len(window) + len(places)):
        result.append(w.pop(0) if i in offsets else rest.pop(0))
    index = p.pick(["i32", "i64", "ui32", "i8"])
    return dims, indices, index, collapsed, batching, batch_at, mapped, vector_at, sizes, offsets, result, p.value(indices, index, 0 if index[0] == "u" else -1, 5)


def gather(p):
    element = p.pick(ALL)
    dims, indices, index, collapsed, batching, batch_at, mapped, at, sizes, offsets, result, value = index_map(p)
    attrs = (f"dimension_numbers = #stablehlo.gather<offset_dims = {offsets}, collapsed_slice_dims = {collapsed}, operand_batching_dims = "
             f"{batching}, start_indices_batching_dims = {batch_at}, start_index_map = {mapped}, index_vector_dim = {at}>, "
             f"slice_sizes = {ints(sizes)}, indices_are_sorted = false")
    p.op("stablehlo.gather", [p.value(dims, element), value], [tensor(dims, element), tensor(indices, index)], [(result, element)], attrs)


def scatter(p):
    element, n = p.pick(WIDE + ["i8", "ui16", "i4", "i1"]), p.pick([1, 1, 2])
    dims, indices, index, collapsed, batching, batch_at, mapped, at, sizes, offsets, updates, value = index_map(p)
    attrs = (f"scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {offsets}, inserted_window_dims = {collapsed}, "
             f"input_batching_dims = {batching}, scatter_indices_batching_dims = {batch_at}, scatter_dims_to_operand_dims = {mapped}, "
             f"index_vector_dim = {at}>, indices_are_sorted = false, unique_indices = false")
    p.op("stablehlo.scatter", [p.value(dims, element) for _ in range(n)] + [value] + [p.value(updates, element) for _ in range(n)],
         [tensor(dims, element)] * n + [tensor(indices, index)] + [tensor(updates, element)] * n, [(dims, element)] * n, attrs,
         [reducer(associative(p, element), element, n)])


def case(p):
    element, dims, n = p.pick(ALL), p.dims(0, 3), p.size(1, 4)
    x, y = p.value(dims, element), p.value(dims, element)
    t = tensor(dims, element)
    branches = []
    for i in range(n):
        body = f"    %r{i} = stablehlo.select %c, {x}, {y} : tensor<i1>, {t}\n" if i % 2 else ""
        body = f"    %c = stablehlo.constant dense<{p.pick(['true', 'false'])}> : tensor<i1>\n" + body
        branches.append(body + f"    stablehlo.return {'%%r%d' % i if i % 2 else p.pick([x, y])}, {y} : {t}, {t}")
    p.op("stablehlo.case", [p.value([], "i32", -2, 5)], ["tensor<i32>"], [(dims, element)] * 2, "", branches)


def loop(p):
    """A while with several carries and values from outside."""
    n, element, dims = p.size(1, 6), p.pick(["i32", "f32", "i8", "bf16", "complex<f32>", "ui4"]), p.dims(0, 3)
    t = tensor(dims, element)
    outside = p.value(dims, element)
    limit = p.value([], "i32", 0, 4)
    carries = [p.value([], "i32", 0, 0)] + [p.value(dims, element) for _ in range(n)]
    types = ["tensor<i32>"] + [t] * n
    args = ", ".join(f"%s{i}: {x}" for i, x in enumerate(types))
    cond = (f"  ^bb0({args}):\n    %p = stablehlo.compare LT, %s0, {limit} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            "    stablehlo.return %p : tensor<i1>")
    body = f"  ^bb0({args}):\n    %one = stablehlo.constant dense<1> : tensor<i32>\n    %i = stablehlo.add %s0, %one : tensor<i32>\n"
    body += "".join(f"    %n{i} = stablehlo.add %s{i % n + 1}, {outside} : {t}\n" for i in range(1, n + 1))
    body += f"    stablehlo.return %i, {', '.join(f'%n{i}' for i in range(1, n + 1))} : {', '.join(types)}"
    p.op("stablehlo.while", carries, types, [([], "i32")] + [(dims, element)] * n, "", [cond, body])


def map_(p):
    element, dims = p.pick(NUMBERS), p.dims(0, 4)
    arrays_of(p, "map", [p.value(dims, element), p.value(dims, element)], [dims] * 2, element, [dims],
              f"dimensions = {ints(range(len(dims)))}", [reducer(p.pick(["add", "subtract", "multiply"]), element)])


def parts(p):
    element, dims = p.pick(["f32", "f64"]), p.dims()
    t, c = tensor(dims, element), f"complex<{element}>"
    p.op("stablehlo.complex", [p.value(dims, element), p.value(dims, element)], [t, t], [(dims, c)])
    x = p.value(dims, c)
    p.op("stablehlo." + p.pick(["real", "imag"]), [x], [tensor(dims, c)], [(dims, element)])


def reduce_precision(p):
    element, dims = p.pick(["f32", "f64", "f16", "bf16"]), p.dims()
    arrays_of(p, "reduce_precision", [p.value(dims, element, -300, 300)], [dims], element, [dims],
              f"exponent_bits = {p.size(2, 8)} : i32, mantissa_bits = {p.size(0, 9)} : i32")


def rng_bits(p):
    dims, element = p.dims(0, 4), p.pick(["ui8", "ui16", "ui32", "ui64"])
    algorithm, words = p.pick([("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2)])
    p.op("stablehlo.rng_bit_generator", [p.value([words], "ui64", 0, 1 << 40)], [tensor([words], "ui64")], [([words], "ui64"), (dims, element)],
         f"rng_algorithm = #stablehlo<rng_algorithm {algorithm}>")


def collapse(p):
    """What StableHLO keeps of older front ends."""
    element, dims = p.pick(["f32", "i32", "f64"]), p.dims(1, 3)
    axis = p.rng.randrange(len(dims))
    index_dims = dims[:axis] and [] or p.dims(1, 2)
    indices = p.value(index_dims, "i32", 0, max(dims[axis] - 1, 0))
    result = dims[:axis] + index_dims + dims[axis + 1:]
    if 0 in dims:
        return collapse(p)
    p.op("stablehlo.torch_index_select", [p.value(dims, element), indices], [tensor(dims, element), tensor(index_dims, "i32")], [(result, element)],
         f"batch_dims = 0 : i64, dim = {axis} : i64")


OPERATIONS = [elementwise, compare, convert, bitcast_convert, select, clamp, transpose, broadcast_in_dim, reshape, concatenate, reverse, slice_,
              pad, dynamic_slice, dynamic_update_slice, iota, reduce, reduce_window, select_and_scatter, sort, dot_general, convolution, gather,
              scatter, case, loop, map_, parts, reduce_precision, rng_bits, collapse]


# ---- running --------------------------------------------------------------------------------------------------------

def by_jaxlib(program):
    devices = client.devices()[:1]
    exe = client.compile_and_load(program.text().encode(), xc.DeviceList(tuple(devices)), xc.CompileOptions())
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
    """XLA computes with narrow integers in bytes, and at times does not cut off what is too much."""
    bits = int(element[-1]) if element in ("i2", "i4", "ui2", "ui4") else 0
    if not bits:
        return array
    low = array.astype(np.int64) & ((1 << bits) - 1)
    return (low - ((low >> (bits - 1)) << bits) if element[0] == "i" else low).astype(array.dtype)


def differences(program, want, folder):
    wrong = []
    for (_, t, name, element), w, g in zip(program.results, want, by_weft(program, folder)):
        w = wrapped(w, element)
        if w.dtype != g.dtype or w.shape != g.shape or not np.array_equal(w, g, equal_nan=w.dtype.kind in "fc"):
            wrong.append(f"{name}: {element}, {t}\nwant {w.ravel()[:24]}\ngot  {g.ravel()[:24]}")
    return wrong


def make(seed, only, size):
    program = Program(random.Random(seed))
    for _ in range(size):
        program.pick([o for o in OPERATIONS if only in (None, o.__name__)])(program)
    return program


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--size", type=int, default=12)
    parser.add_argument("--only")
    parser.add_argument("--keep", help="a folder for programs that differ")
    options = parser.parse_args()
    failed = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.count):
            seed = f"{options.seed}.{i}"
            program = make(seed, options.only, options.size)
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
