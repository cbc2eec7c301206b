"""Random StableHLO programs: each operation with random shapes, element types and attributes (random_jaxlib_test.py, refused_jaxlib_test.py).

All values are small integers, so that sums and products are exact in every type and results can be compared bit by bit."""
import random

import numpy as np

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
    """Text of main and the arrays it takes.  Lines are what Weft reads and, where that differs, what jaxlib reads."""

    def __init__(self, rng):
        self.rng, self.args, self.lines, self.results, self.functions, self.n = rng, [], [], [], [], 0

    def fresh(self):
        self.n += 1
        return f"%v{self.n}"

    def line(self, text, golden=None):
        self.lines.append(("  " + text, "  " + (text if golden is None else golden)))

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

    def reals(self, dims, element, low, high):
        """An argument of f32 or f64, or of complex numbers of such parts."""
        array = np.array([self.rng.uniform(low, high) for _ in range(int(np.prod(dims)))], dtype=np.float64).reshape(dims)
        if element in COMPLEX:
            array = array + 1j * np.array([self.rng.uniform(low, high) for _ in range(array.size)]).reshape(dims)
        self.args.append((tensor(dims, element), array.astype(PLAIN[element])))
        return f"%arg{len(self.args) - 1}"

    def convert(self, name, dims, source, target):
        out = self.fresh()
        self.line(f'{out} = stablehlo.convert {name} : ({tensor(dims, source)}) -> {tensor(dims, target)}')
        return out

    def constant(self, text, dims, element):
        out = self.fresh()
        self.line(f"{out} = stablehlo.constant dense<{text}> : {tensor(dims, element)}")
        return out

    def op(self, name, operands, types, results, attrs="", regions=(), tolerance=0):
        """One operation in the generic form; its results become the program's, exact or but for a relative tolerance."""
        n = self.fresh()
        region = " (" + ", ".join("{\n%s\n  }" % r for r in regions) + ")" if regions else ""
        out = ", ".join(tensor(*r) for r in results)
        self.line(f'{n}{":%d" % len(results) if len(results) > 1 else ""} = "{name}"({", ".join(operands)}){" <{%s}>" % attrs if attrs else ""}{region} : '
                  f'({", ".join(types)}) -> {out if len(results) == 1 else "(%s)" % out}')
        for i, (dims, element) in enumerate(results):
            self.result(f"{n}#{i}" if len(results) > 1 else n, dims, element, name, tolerance)
        return n

    def result(self, value, dims, element, name, tolerance=0):
        if element in CONVERTED:
            value = self.convert(value, dims, element, CONVERTED[element])
        self.results.append((value, tensor(dims, CONVERTED.get(element, element)), name, element, tolerance))

    def text(self, golden=False):
        args = ", ".join(f"%arg{i}: {t}" for i, (t, _) in enumerate(self.args))
        types = ", ".join(r[1] for r in self.results)
        values = ", ".join(r[0] for r in self.results)
        body = "\n".join(line[golden] for line in self.lines)
        functions = "".join(f[golden] for f in self.functions)
        return f"module @random {{\nfunc.func @main({args}) -> ({types}) {{\n{body}\n  return {values} : {types}\n}}\n{functions}}}\n"


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


def arrays_of(p, op, operands, dims, element, results, attrs="", regions=(), tolerance=0):
    p.op("stablehlo." + op, operands, [tensor(d, element) for d in dims], [(r, element) for r in results], attrs, regions, tolerance)


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
    n = int(np.prod(dims))
    p.args.append((t.replace("<", "<" + "".join(f"{d}x" for d in dims)), np.array(p.rng.sample(range(n), n)).astype(PLAIN[element]).reshape(dims)))
    operand = f"%arg{len(p.args) - 1}"  # all elements differ: in which order XLA looks is open
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


# ---- control flow, calls, tuples ------------------------------------------------------------------------------------

def body_of(p, values, t, depth):
    """Lines of a region that sees `values`, and the name of what they compute."""
    out, lines = p.pick(values), []
    for _ in range(p.size(0, 3)):
        kind, n = p.rng.random(), p.fresh()
        if kind < 0.15 and depth < 2:
            inner = [body_of(p, values, t, depth + 1) for _ in range(2)]
            branches = ["".join(b) + f"      stablehlo.return {x} : {t}\n" for b, x in inner]
            lines += [f"    {n}p = stablehlo.constant dense<{p.pick(['true', 'false'])}> : tensor<i1>\n",
                      f'    {n} = "stablehlo.if"({n}p) ({{\n{branches[0]}    }}, {{\n{branches[1]}    }}) : (tensor<i1>) -> {t}\n']
        elif kind < 0.3:
            lines.append(f"    {n} = stablehlo.constant dense<{p.pick([0, 1, 2])}> : {t}\n" if "i" in t else
                         f"    {n} = stablehlo.constant dense<{p.pick([0, 1, 2])}.0> : {t}\n")
        else:
            lines.append(f"    {n} = stablehlo.{p.pick(['add', 'subtract', 'maximum', 'minimum'])} {out}, {p.pick(values)} : {t}\n")
        out, values = n, values + [n]
    return lines, out


def branches(p):
    """if and case with several results, captured values and branches inside branches."""
    element, dims, n = p.pick(["i32", "f32", "i8", "f64", "bf16", "ui16"]), p.dims(0, 3), p.size(1, 4)
    t = tensor(dims, element)
    values = [p.value(dims, element) for _ in range(p.size(1, 4))]
    op = p.pick(["if", "case"])
    regions = []
    for _ in range(2 if op == "if" else p.size(1, 4)):
        lines, out = body_of(p, values, t, 0)
        results = [out] + [p.pick(values) for _ in range(n - 1)]
        regions.append("".join(lines) + f"    stablehlo.return {', '.join(results)} : {', '.join([t] * n)}")
    index = "i1" if op == "if" else "i32"
    p.op("stablehlo." + op, [p.value([], index, *((0, 1) if op == "if" else (-2, 5)))], [f"tensor<{index}>"], [(dims, element)] * n, "", regions)


def nested_loops(p):
    """A while in a while, whose counts depend on the outer counter."""
    element, dims = p.pick(["i32", "f32", "ui8", "f64"]), p.dims(0, 2)
    t = tensor(dims, element)
    outside, limit = p.value(dims, element), p.value([], "i32", 0, 4)
    test = "    %{0}p = stablehlo.compare {1}, %{0}0, {2} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    stablehlo.return %{0}p : tensor<i1>"
    inner = (f'    %inner:2 = "stablehlo.while"(%zero, %s1) ({{\n  ^bb0(%t0: tensor<i32>, %t1: {t}):\n{test.format("t", "LT", "%s0")}\n  }}, {{\n'
             f"  ^bb0(%t0: tensor<i32>, %t1: {t}):\n    %ti = stablehlo.add %t0, %one : tensor<i32>\n"
             f"    %tx = stablehlo.{p.pick(['add', 'subtract', 'maximum'])} %t1, {outside} : {t}\n    stablehlo.return %ti, %tx : tensor<i32>, {t}\n"
             f"  }}) : (tensor<i32>, {t}) -> (tensor<i32>, {t})\n")
    body = (f"  ^bb0(%s0: tensor<i32>, %s1: {t}):\n    %one = stablehlo.constant dense<1> : tensor<i32>\n    %zero = stablehlo.constant dense<0> : "
            f"tensor<i32>\n{inner}    %si = stablehlo.add %s0, %one : tensor<i32>\n    stablehlo.return %si, %inner#1 : tensor<i32>, {t}")
    cond = f"  ^bb0(%s0: tensor<i32>, %s1: {t}):\n" + test.format("s", p.pick(["LT", "LE"]), limit)
    p.op("stablehlo.while", [p.value([], "i32", 0, 1), p.value(dims, element)], ["tensor<i32>", t], [([], "i32"), (dims, element)], "", [cond, body])


def function_of(p, t, n):
    """A private function of n values that gives two."""
    name = f"f{len(p.functions)}"
    values = [f"%x{i}" for i in range(n)]
    lines, out = body_of(p, values, t, 0)
    text = (f"func.func private @{name}({', '.join(f'{v}: {t}' for v in values)}) -> ({t}, {t}) {{\n{''.join(lines)}"
            f"    return {out}, {p.pick(values)} : {t}, {t}\n}}\n")
    p.functions.append((text, text))
    return name


def calls(p):
    """Functions with several results, and composites of them."""
    element, dims, n = p.pick(["i32", "f32", "i16", "bf16"]), p.dims(0, 3), p.size(1, 3)
    t = tensor(dims, element)
    name = function_of(p, t, n)
    operands = [p.value(dims, element) for _ in range(n)]
    if p.rng.random() < 0.5:
        p.op("func.call", operands, [t] * n, [(dims, element)] * 2, f"callee = @{name}")
    else:
        attrs = p.pick(["", ", composite_attributes = {n = 1 : i32, s = \"x\"}", ", version = 3 : i32"])
        p.op("stablehlo.composite", operands, [t] * n, [(dims, element)] * 2, f'decomposition = @{name}, name = "weft.{name}"{attrs}')


def tuples(p):
    """Values through tuples of tuples, and barriers."""
    types = [(p.dims(0, 2), p.pick(["i32", "f32", "i1", "ui8", "complex<f32>"])) for _ in range(p.size(1, 3))]
    texts = [tensor(*t) for t in types]
    values = [p.value(*t) for t in types]
    if p.rng.random() < 0.5:
        p.op("stablehlo.optimization_barrier", values, texts, types)
        return
    inner, outer, back = p.fresh(), p.fresh(), p.fresh()
    flat, deep = f"tuple<{', '.join(texts)}>", f"tuple<{texts[0]}, tuple<{', '.join(texts)}>>"
    p.line(f'{inner} = "stablehlo.tuple"({", ".join(values)}) : ({", ".join(texts)}) -> {flat}')
    p.line(f'{outer} = "stablehlo.tuple"({values[0]}, {inner}) : ({texts[0]}, {flat}) -> {deep}')
    p.line(f'{back} = "stablehlo.get_tuple_element"({outer}) <{{index = 1 : i32}}> : ({deep}) -> {flat}')
    which = p.rng.randrange(len(types))
    p.op("stablehlo.get_tuple_element", [back], [flat], [types[which]], f"index = {which} : i32")


# ---- regions that are no single operation ---------------------------------------------------------------------------

def distinct(p, dims, element):
    """An argument all of whose elements differ."""
    size = int(np.prod(dims))
    p.args.append((tensor(dims, element), np.array(p.rng.sample(range(-(size // 2), size - size // 2), size)).astype(PLAIN[element]).reshape(dims)))
    return f"%arg{len(p.args) - 1}"


def best_of(p, key, index):
    """A region that keeps the greater (or smaller) key with its index, the lower index among equals."""
    tk, ti = f"tensor<{key}>", f"tensor<{index}>"
    kind = ", FLOAT" if key[0] in "fb" else ""
    swap = p.pick(["", "swap"])
    lines = [f"%p = stablehlo.compare {p.pick(['GT', 'LT'])}, %a0, %b0{kind} : ({tk}, {tk}) -> tensor<i1>",
             f"%e = stablehlo.compare EQ, %a0, %b0{kind} : ({tk}, {tk}) -> tensor<i1>",
             f"%l = stablehlo.compare LT, %a1, %b1 : ({ti}, {ti}) -> tensor<i1>",
             "%el = stablehlo.and %e, %l : tensor<i1>", "%w = stablehlo.or %p, %el : tensor<i1>"]
    if swap:
        lines += ["%n = stablehlo.not %w : tensor<i1>", f"%k = stablehlo.select %n, %b0, %a0 : tensor<i1>, {tk}",
                  f"%j = stablehlo.select %n, %b1, %a1 : tensor<i1>, {ti}"]
    else:
        lines += [f"%k = stablehlo.select %w, %a0, %b0 : tensor<i1>, {tk}", f"%j = stablehlo.select %w, %a1, %b1 : tensor<i1>, {ti}"]
    return (f"  ^bb0(%a0: {tk}, %a1: {ti}, %b0: {tk}, %b1: {ti}):\n" + "".join(f"    {x}\n" for x in lines) +
            f"    stablehlo.return %k, %j : {tk}, {ti}")


def arg_reduce(p):
    """argmax and argmin by hand, of arrays or windows."""
    key, index, dims = p.pick(["f32", "i32", "bf16", "f64", "ui8", "i8", "f16"]), p.pick(["i32", "i64", "ui32"]), p.dims(1, 3)
    if 0 in dims:
        return arg_reduce(p)
    keys, indices = p.value(dims, key), p.fresh()
    p.line(f'{indices} = "stablehlo.iota"() <{{iota_dimension = {p.rng.randrange(len(dims))} : i64}}> : () -> {tensor(dims, index)}')
    first, none = p.value([], key, 0, 3), p.value([], index, 0, 2)
    operands, types = [keys, indices, first, none], [tensor(dims, key), tensor(dims, index), tensor([], key), tensor([], index)]
    if p.rng.random() < 0.4:
        attrs, result = window_of(p, dims)
        p.op("stablehlo.reduce_window", operands, types, [(result, key), (result, index)], attrs, [best_of(p, key, index)])
        return
    which = sorted(p.rng.sample(range(len(dims)), p.rng.randint(1, len(dims))))
    if np.prod([dims[i] for i in which]) == 1:
        return arg_reduce(p)
    result = [d for i, d in enumerate(dims) if i not in which]
    p.op("stablehlo.reduce", operands, types, [(result, key), (result, index)], f"dimensions = {ints(which)}", [best_of(p, key, index)])


def mixed_reduce(p):
    """Several reductions in one region, of several types, with constants and conversions between."""
    dims, wide = p.dims(1, 4), p.pick(["i32", "f32", "i8"])
    which = sorted(p.rng.sample(range(len(dims)), p.rng.randint(1, len(dims))))
    if np.prod([dims[i] for i in which]) == 1:
        return mixed_reduce(p)
    result = [d for i, d in enumerate(dims) if i not in which]
    types = [wide, "i1", "f32"]
    t = [f"tensor<{x}>" for x in types]
    region = (f"  ^bb0(%a0: {t[0]}, %a1: {t[1]}, %a2: {t[2]}, %b0: {t[0]}, %b1: {t[1]}, %b2: {t[2]}):\n"
              f"    %r0 = stablehlo.{p.pick(['add', 'maximum', 'minimum'])} %a0, %b0 : {t[0]}\n"
              f"    %r1 = stablehlo.{p.pick(['and', 'or', 'xor'])} {p.pick(['%a1, %b1', '%b1, %a1'])} : {t[1]}\n"
              f"    %r2 = stablehlo.{p.pick(['maximum', 'minimum', 'add'])} %b2, %a2 : {t[2]}\n"
              f"    stablehlo.return %r0, %r1, %r2 : {', '.join(t)}")
    p.op("stablehlo.reduce", [p.value(dims, x) for x in types] + [p.value([], x, 0, 1) for x in types],
         [tensor(dims, x) for x in types] + t, [(result, x) for x in types], f"dimensions = {ints(which)}", [region])


def sort_by_several(p):
    """A comparator of two keys, or of a function of one."""
    dims, keys = p.dims(1, 3), [p.pick(["i32", "f32", "ui8", "bf16", "i64"]) for _ in range(2)]
    d, t = p.rng.randrange(len(dims)), [f"tensor<{k}>" for k in keys]
    kinds = ["FLOAT" if k[0] in "fb" else "UNSIGNED" if k[0] == "u" else "SIGNED" for k in keys]
    args = ", ".join(f"%{s}{i}: {x}" for i, x in enumerate(t) for s in "ab")
    if p.rng.random() < 0.5:
        lines = [f"%l0 = stablehlo.compare {p.pick(['LT', 'GT'])}, %a0, %b0, {kinds[0]} : ({t[0]}, {t[0]}) -> tensor<i1>",
                 f"%e0 = stablehlo.compare EQ, %a0, %b0, {kinds[0]} : ({t[0]}, {t[0]}) -> tensor<i1>",
                 f"%l1 = stablehlo.compare {p.pick(['LT', 'GT'])}, %a1, %b1, {kinds[1]} : ({t[1]}, {t[1]}) -> tensor<i1>",
                 "%p = stablehlo.select %e0, %l1, %l0 : tensor<i1>, tensor<i1>"]
    else:
        w = p.rng.randrange(2)
        zero = "0.0" if keys[w][0] in "fb" else "1"
        fold = f"%z = stablehlo.constant dense<{zero}> : {t[w]}"
        lines = [fold, f"%fa = stablehlo.maximum %a{w}, %z : {t[w]}", f"%fb = stablehlo.maximum %b{w}, %z : {t[w]}",
                 f"%p = stablehlo.compare {p.pick(['LT', 'GT'])}, %fa, %fb, {kinds[w]} : ({t[w]}, {t[w]}) -> tensor<i1>"]
    region = f"  ^bb0({args}):\n" + "".join(f"    {x}\n" for x in lines) + "    stablehlo.return %p : tensor<i1>"
    p.op("stablehlo.sort", [p.value(dims, k) for k in keys], [tensor(dims, k) for k in keys], [(dims, k) for k in keys],
         f"dimension = {d} : i64, is_stable = true", [region])


def scatter_rows(p):
    """A scatter of rows to distinct places with a region that is no reduction."""
    element, rows, width = p.pick(["f32", "i32", "i8", "f64", "bf16"]), p.size(1, 6), p.size(1, 4)
    n = p.size(1, rows)
    t = f"tensor<{element}>"
    p.args.append((tensor([n, 1], "i32"), np.array(p.rng.sample(range(-1, rows + 1), n), np.int32).reshape(n, 1)))
    indices = f"%arg{len(p.args) - 1}"
    body = p.pick([(" %b0", ""), (" %a0", ""), (" %r", f"    %r = stablehlo.subtract %b0, %a0 : {t}\n"),
                   (" %r", f"    %m = stablehlo.multiply %a0, %a0 : {t}\n    %r = stablehlo.add %m, %b0 : {t}\n"),
                   (" %r", f"    %c = stablehlo.constant dense<{'7' if 'i' in element else '7.0'}> : {t}\n    %r = stablehlo.minimum %c, %b0 : {t}\n")])
    region = f"  ^bb0(%a0: {t}, %b0: {t}):\n{body[1]}    stablehlo.return{body[0]} : {t}"
    p.op("stablehlo.scatter", [p.value([rows, width], element), indices, p.value([n, width], element)],
         [tensor([rows, width], element), tensor([n, 1], "i32"), tensor([n, width], element)], [([rows, width], element)],
         "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
         "index_vector_dim = 1>, indices_are_sorted = false, unique_indices = true", [region])


# ---- CHLO -----------------------------------------------------------------------------------------------------------

CHLO_UNARY = {"acos": (-0.9, 0.9), "acosh": (1.1, 9), "asin": (-0.9, 0.9), "asinh": (-9, 9), "atan": (-9, 9), "atanh": (-0.9, 0.9),
              "bessel_i1e": (-20, 20), "conj": (-9, 9), "cosh": (-9, 9), "digamma": (0.5, 20), "erf": (-3, 3), "erf_inv": (-0.9, 0.9),
              "erfc": (-3, 3), "lgamma": (2.5, 30), "sinh": (-9, 9), "square": (-9, 9), "tan": (-1.4, 1.4)}
CHLO_OF_COMPLEX = ["acos", "asin", "asinh", "atan", "conj", "cosh", "sinh", "square", "tan"]


def chlo_unary(p):
    name = p.pick(list(CHLO_UNARY))
    element, dims = p.pick(["f32", "f64"] + (COMPLEX if name in CHLO_OF_COMPLEX else [])), p.dims()
    if name == "conj" and element not in COMPLEX:
        element = "complex<f32>"
    low, high = CHLO_UNARY[name]
    p.op("chlo." + name, [p.reals(dims, element, low, high)], [tensor(dims, element)], [(dims, element)], "", (),
         1e-12 if "64" in element else 1e-5)


def chlo_test(p):
    element, dims = p.pick(["f32", "f64", "f16", "bf16"]), p.dims()
    name = p.fresh()
    special = p.constant({"f32": "0x7F800000", "f64": "0xFFF0000000000000", "f16": "0x7C00", "bf16": "0x7FC0"}[element], dims, element)
    p.line(f"{name} = stablehlo.multiply {special}, {p.value(dims, element)} : {tensor(dims, element)}")
    p.op("chlo." + p.pick(["is_inf", "is_pos_inf", "is_neg_inf"]), [name], [tensor(dims, element)], [(dims, "i1")])


def chlo_broadcast(p):
    """Binary operations that broadcast by rank."""
    op = p.pick(["add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "compare", "select", "complex", "next_after",
                 "shift_left", "shift_right_logical", "shift_right_arithmetic", "divide", "remainder", "power", "atan2"])
    element = p.pick({"and": ["i32", "i1", "ui8"], "or": ["i32", "i1"], "xor": ["i8", "i1"], "complex": ["f32", "f64"], "next_after": ["f32", "f64"],
                      "shift_left": ["i32", "ui8"], "shift_right_logical": ["i32", "ui16"], "shift_right_arithmetic": ["i32", "i8"],
                      "divide": ["i32"], "power": ["i32"], "atan2": ["f32", "f64"]}.get(op, ["i32", "f32", "f64", "bf16", "ui8"]))
    result = p.dims(0, 4)
    shapes = []
    for i in range(3 if op == "select" else 2):
        dims = [d if p.rng.random() < 0.7 else 1 for d in result]
        shapes.append(dims[p.rng.randint(0, len(dims)):] if i != 1 else [d for d in result])
    if op == "select":
        shapes[0] = p.pick([[], result])
        operands = [p.value(shapes[0], "i1"), p.value(shapes[1], element), p.value(shapes[2], element)]
        p.op("chlo.broadcast_select", operands, [tensor(shapes[0], "i1"), tensor(shapes[1], element), tensor(shapes[2], element)], [(result, element)])
        return
    low = 0 if op.startswith("shift") or op == "power" else None
    operands = [p.value(s, element, low) for s in shapes]
    types, out = [tensor(s, element) for s in shapes], element
    attrs = f"broadcast_dimensions = {ints(range(len(result) - len(shapes[0]), len(result)))}" if p.rng.random() < 0.3 and len(shapes[0]) < len(shapes[1]) else ""
    if op == "compare":
        attrs = ", ".join(filter(None, [attrs, f"comparison_direction = #chlo<comparison_direction {p.pick(['EQ', 'LT', 'GE'])}>"]))
        out = "i1"
    if op == "complex":
        out = f"complex<{element}>"
    p.op("chlo.broadcast_" + op, operands, types, [(result, out)], attrs, (), {"atan2": 1e-6}.get(op, 0))


def chlo_rest(p):
    kind, dims = p.pick(["top_k", "mulhi", "constant_like", "zeta", "polygamma", "next_after", "ragged_dot"]), p.dims(1, 3)
    if kind == "top_k":
        element, k = p.pick(["f32", "i32", "bf16", "f64", "ui8"]), p.rng.randint(0, dims[-1])
        p.op("chlo.top_k", [p.value(dims, element)], [tensor(dims, element)], [(dims[:-1] + [k], element), (dims[:-1] + [k], "i32")], f"k = {k} : i64")
    elif kind == "mulhi":
        element = p.pick(["i8", "ui8", "i16", "i32", "ui32", "i64", "ui64"])
        top = {"8": 100, "6": 30000, "2": 2 ** 31 - 1, "4": 2 ** 53}[element[-1]]
        t = tensor(dims, element)
        p.op("chlo.mulhi", [p.value(dims, element, 0 if element[0] == "u" else -top, top) for _ in range(2)], [t, t], [(dims, element)])
    elif kind == "constant_like":
        element = p.pick(["f32", "i32", "f64", "bf16"])
        value = "3 : i32" if element == "i32" else f"2.5 : {element}"
        p.op("chlo.constant_like", [p.value(dims, element)], [tensor(dims, element)], [(dims, element)], f"value = {value}")
    elif kind == "ragged_dot":
        groups, m, k, n = p.size(1, 4), p.size(1, 8), p.size(1, 4), p.size(1, 4)
        cuts = sorted(p.rng.randint(0, m) for _ in range(groups))
        sizes = [b - a for a, b in zip([0] + cuts, cuts)]
        p.args.append((tensor([groups], "i32"), np.array(sizes, np.int32)))
        groups_of = f"%arg{len(p.args) - 1}"
        p.op("chlo.ragged_dot", [p.value([m, k], "f32"), p.value([groups, k, n], "f32"), groups_of],
             [tensor([m, k], "f32"), tensor([groups, k, n], "f32"), tensor([groups], "i32")],
             [([m, n], "f32")], "ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], "
             "lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>, precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>]")
    else:
        element = p.pick(["f32", "f64"])
        t = tensor(dims, element)
        if kind == "next_after":
            operands = [p.reals(dims, element, -2, 2) for _ in range(2)]
        elif kind == "zeta":
            operands = [p.reals(dims, element, 1.5, 9), p.reals(dims, element, 0.5, 9)]
        else:
            operands = [p.value(dims, element, 0, 4), p.reals(dims, element, 0.5, 9)]
        p.op("chlo." + kind, operands, [t, t], [(dims, element)], "", (), 0 if kind == "next_after" else 1e-11 if element == "f64" else 1e-4)


# ---- linear algebra, to a tolerance -----------------------------------------------------------------------------------

def fft(p):
    kind, wide, n = p.pick(["FFT", "IFFT", "RFFT", "IRFFT"]), p.pick(["f32", "f64"]), p.size(1, 3)
    batch, length = [p.size(1, 3) for _ in range(p.size(0, 2))], [p.size(1, 9) for _ in range(n)]
    half = length[:-1] + [length[-1] // 2 + 1]
    source, target = (length, half) if kind == "RFFT" else (half, length) if kind == "IRFFT" else (length, length)
    a, b = (wide if kind == "RFFT" else f"complex<{wide}>"), (wide if kind == "IRFFT" else f"complex<{wide}>")
    if kind == "IRFFT" and n > 1:  # of what is no transform of reals the result is open
        return fft(p)
    value = p.reals(batch + source, a, -1, 1)
    if kind == "IRFFT":
        array = p.args[-1][1]
        array.imag[..., 0] = 0
        if length[-1] % 2 == 0:
            array.imag[..., -1] = 0
    p.op("stablehlo.fft", [value], [tensor(batch + source, a)], [(batch + target, b)],
         f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {ints(length)}", (), 1e-5 if wide == "f32" else 1e-12)


def solve(p):
    element, n, m = p.pick(["f32", "f64", "complex<f32>", "complex<f64>"]), p.size(1, 5), p.size(1, 4)
    batch, left, lower = p.dims(0, 2), p.pick([True, False]), p.pick([True, False])
    a = p.reals(batch + [n, n], element, -1, 1)
    p.args[-1][1][...] += 4 * np.eye(n, dtype=p.args[-1][1].dtype)
    dims = batch + ([n, m] if left else [m, n])
    transpose = p.pick(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
    arrays_of(p, "triangular_solve", [a, p.reals(dims, element, -1, 1)], [batch + [n, n], dims], element, [dims],
              f"left_side = {str(left).lower()}, lower = {str(lower).lower()}, unit_diagonal = {p.pick(['true', 'false'])}, "
              f"transpose_a = #stablehlo<transpose {transpose}>", (), 1e-4 if "32" in element else 1e-11)


def batch_norm(p):
    element, dims = p.pick(["f32", "f64"]), [p.size(2, 4) for _ in range(p.size(1, 4))]
    axis = p.rng.randrange(len(dims))
    c, epsilon = [dims[axis]], p.pick(["1.0e-3", "0.5"])
    attrs = f"epsilon = {epsilon} : f32, feature_index = {axis} : i64"
    op = p.pick(["training", "inference", "grad"])
    x, vectors = p.reals(dims, element, -2, 2), [p.reals(c, element, 0.5, 2) for _ in range({"training": 2, "inference": 4, "grad": 3}[op])]
    operands, shapes = [x] + vectors, [dims] + [c] * len(vectors)
    if op == "grad":
        operands, shapes = operands + [p.reals(dims, element, -1, 1)], shapes + [dims]
    arrays_of(p, "batch_norm_" + op, operands, shapes, element, [dims] if op == "inference" else [dims, c, c], attrs, (), 2e-4 if element == "f32" else 1e-10)


# ---- quantized: jaxlib gets the arithmetic spelled out --------------------------------------------------------------------

class Quant:
    """A quantized type with exact scales: per tensor, or per axis of `count`."""

    def __init__(self, p, axis=None, count=0, storage=None, zero=True):
        self.storage = storage or p.pick(["i8", "i8", "ui8", "i16", "i4", "i32"])
        self.bits, self.signed = int(self.storage.lstrip("ui")), self.storage[0] == "i"
        self.low, self.high = (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)
        self.axis, n = axis, 1 if axis is None else count
        bounds = ""
        if p.rng.random() < 0.3 and self.bits == 8:
            self.low, self.high = self.low + p.size(1, 20), self.high - p.size(1, 20)
            bounds = f"<{self.low}:{self.high}>"
        self.scales = [p.pick([0.25, 0.5, 1.0, 2.0]) for _ in range(n)]
        self.zeros = [max(p.rng.randint(-3, 3) if zero else 0, self.low) for _ in range(n)]
        each = [f"{s}:{z}" for s, z in zip(self.scales, self.zeros)]
        self.text = f"!quant.uniform<{self.storage.replace('ui', 'u')}{bounds}:f32{'' if axis is None else f':{axis}'}, {each[0] if axis is None else '{' + ','.join(each) + '}'}>"

    def spread(self, p, values, dims):
        """Those numbers as an f32 array of the shape."""
        n = p.fresh()
        if self.axis is None:
            return p.constant(f"{float(values[0])}", dims, "f32")
        p.line("", f"{n}c = stablehlo.constant dense<[{', '.join(str(float(v)) for v in values)}]> : tensor<{len(values)}xf32>")
        p.line("", f'{n} = "stablehlo.broadcast_in_dim"({n}c) <{{broadcast_dimensions = array<i64: {self.axis}>}}> : (tensor<{len(values)}xf32>) -> '
                   f"{tensor(dims, 'f32')}")
        return n

    def value(self, p, dims):
        """An argument of stored integers, as a quantized value and as what it stands for."""
        stored = p.value(dims, self.storage, max(self.low, -6), max(self.low, 6))
        q, f = p.fresh(), tensor(dims, "f32")
        p.line(f"{q} = stablehlo.bitcast_convert {stored} : ({tensor(dims, self.storage)}) -> {tensor(dims, self.text)}", f"{q}a = stablehlo.convert {stored} : ({tensor(dims, self.storage)}) -> {f}")
        zeros, scales = self.spread(p, self.zeros, dims), self.spread(p, self.scales, dims)
        p.line("", f"{q}b = stablehlo.subtract {q}a, {zeros} : {f}")
        p.line("", f"{q} = stablehlo.multiply {q}b, {scales} : {f}")
        return q

    def result(self, p, q, dims, name):
        """What is stored of a result: golden's f32 is quantized here."""
        out, f = p.fresh(), tensor(dims, "f32")
        zeros, scales = self.spread(p, self.zeros, dims), self.spread(p, self.scales, dims)
        for letter, line in zip("abcdef", [f"stablehlo.divide {q}, {scales} : {f}", f"stablehlo.round_nearest_even {out}a : {f}",
                                           f"stablehlo.add {out}b, {zeros} : {f}", f"stablehlo.constant dense<{float(self.low)}> : {f}",
                                           f"stablehlo.constant dense<{float(self.high)}> : {f}", f"stablehlo.clamp {out}d, {out}c, {out}e : {f}"]):
            p.line("", f"{out}{letter} = {line}")
        p.line(f"{out} = stablehlo.bitcast_convert {q} : ({tensor(dims, self.text)}) -> {tensor(dims, self.storage)}",
               f"{out} = stablehlo.convert {out}f : ({f}) -> {tensor(dims, self.storage)}")
        p.result(out, dims, self.storage, name)


def quantized(p, name, operands, quants, dims, results, attrs="", region=None):
    """An operation on quantized values; None for a quantized type: f32 as it is."""
    n, region = p.fresh(), region or ("", "")
    def signature(of):
        ins = ", ".join(tensor(d, q.text if q and of else "f32") for q, d in zip(quants, dims))
        return f'"stablehlo.{name}"({", ".join(operands)}){" <{%s}>" % attrs if attrs else ""}{region[0 if of else 1]} : ({ins}) -> '
    (out, shape), = results
    p.line(f"{n} = {signature(True)}{tensor(shape, out.text if out else 'f32')}", f"{n} = {signature(False)}{tensor(shape, 'f32')}")
    if out:
        out.result(p, n, shape, "quantized " + name)
    else:
        p.results.append((n, tensor(shape, "f32"), "quantized " + name, "f32", 0))


def quantized_elementwise(p):
    op = p.pick(["add", "subtract", "multiply", "maximum", "minimum", "negate", "abs", "clamp", "sign", "floor", "ceil", "round_nearest_even", "select"])
    dims = p.dims(0, 3)
    if 0 in dims:
        return quantized_elementwise(p)
    n = {"clamp": 3, "negate": 1, "abs": 1, "sign": 1, "floor": 1, "ceil": 1, "round_nearest_even": 1}.get(op, 2)
    same = op in ("select", "clamp")
    storage = p.pick(["i8", "ui8", "i16", "i4"])
    one = Quant(p, storage=storage)
    quants = [one if same else Quant(p, storage=storage) for _ in range(n)]
    out = one if same else Quant(p, storage=storage)
    values = [q.value(p, dims) for q in quants]
    if op == "select":
        which = p.value(dims, "i1")
        name, t = p.fresh(), tensor(dims, one.text)
        p.line(f"{name} = stablehlo.select {which}, {values[0]}, {values[1]} : {tensor(dims, 'i1')}, {t}",
               f"{name} = stablehlo.select {which}, {values[0]}, {values[1]} : {tensor(dims, 'i1')}, {tensor(dims, 'f32')}")
        one.result(p, name, dims, "quantized select")
        return
    quantized(p, op, values, quants, [dims] * n, [(out, dims)])


def quantized_moves(p):
    """Per-axis types through what moves elements."""
    dims = [p.size(1, 4) for _ in range(p.size(1, 4))]
    op = p.pick(["transpose", "broadcast_in_dim", "reshape", "reverse", "slice", "concatenate", "pad"])
    axis = p.pick([None, p.rng.randrange(len(dims))]) if op in ("transpose", "broadcast_in_dim", "reshape") else None  # others: per tensor
    q = Quant(p, axis, dims[axis or 0])
    moved, result, attrs, values, shapes, quants = q, list(dims), "", [q.value(p, dims)], [dims], [q]
    def at(place):
        other = Quant.__new__(Quant)
        other.__dict__.update(q.__dict__)
        if axis is not None:
            other.axis, other.text = place, q.text.replace(f":f32:{axis},", f":f32:{place},")
        return other
    if op == "transpose":
        order = p.rng.sample(range(len(dims)), len(dims))
        moved, result, attrs = at(order.index(axis) if axis is not None else 0), [dims[i] for i in order], f"permutation = {ints(order)}"
    elif op == "reverse":
        attrs = f"dimensions = {ints(range(p.rng.randint(0, len(dims))))}"
    elif op == "slice":
        start = [p.rng.randint(0, d - 1) for d in dims]
        result = [d - s for d, s in zip(dims, start)]
        attrs = f"start_indices = {ints(start)}, limit_indices = {ints(dims)}, strides = {ints([1] * len(dims))}"
    elif op == "concatenate":
        d = p.rng.randrange(len(dims))
        values, shapes, quants = values + [q.value(p, dims)], [dims, dims], [q, q]
        result[d] *= 2
        attrs = f"dimension = {d} : i64"
    elif op == "broadcast_in_dim":
        moved, result, attrs = at((axis or 0) + 1), [p.size(1, 3)] + dims, f"broadcast_dimensions = {ints(range(1, len(dims) + 1))}"
    elif op == "reshape":
        moved, result = at((axis or 0) + 1), [1] + dims
    elif op == "pad":
        values, shapes, quants = values + [q.value(p, [])], [dims, []], [q, q]
        low = [p.size(0, 2) for _ in dims]
        result = [d + a for d, a in zip(dims, low)]
        attrs = f"edge_padding_low = {ints(low)}, edge_padding_high = {ints([0] * len(dims))}, interior_padding = {ints([0] * len(dims))}"
    quantized(p, op, values, quants, shapes, [(moved, result)], attrs)


def quantize(p):
    """uniform_quantize of floats and of quantized values, uniform_dequantize."""
    dims = [p.size(1, 5) for _ in range(p.size(1, 3))]
    axis = p.pick([None, p.rng.randrange(len(dims))])
    q = Quant(p, axis, dims[axis or 0])
    kind = p.pick(["quantize", "dequantize", "requantize"])
    if kind == "quantize":
        p.args.append((tensor(dims, "f32"), np.array([p.rng.randint(-4000, 4000) / 16 for _ in range(int(np.prod(dims)))], np.float32).reshape(dims)))
        source, n = f"%arg{len(p.args) - 1}", p.fresh()
        p.line(f"{n} = stablehlo.uniform_quantize {source} : ({tensor(dims, 'f32')}) -> {tensor(dims, q.text)}",
               f"{n} = stablehlo.optimization_barrier {source} : {tensor(dims, 'f32')}")
        q.result(p, n, dims, "uniform_quantize")
    elif kind == "dequantize":
        x, n, f = q.value(p, dims), p.fresh(), tensor(dims, "f32")
        p.line(f"{n} = stablehlo.uniform_dequantize {x} : ({tensor(dims, q.text)}) -> {f}", f"{n} = stablehlo.optimization_barrier {x} : {f}")
        p.results.append((n, f, "uniform_dequantize", "f32", 0))
    else:
        x, n, f, to = q.value(p, dims), p.fresh(), tensor(dims, "f32"), Quant(p, axis, dims[axis or 0])
        p.line(f"{n} = stablehlo.uniform_quantize {x} : ({tensor(dims, q.text)}) -> {tensor(dims, to.text)}", f"{n} = stablehlo.optimization_barrier {x} : {f}")
        to.result(p, n, dims, "uniform_quantize")


def quantized_dot(p):
    m, k, n = p.size(1, 4), p.size(1, 6), p.size(1, 4)
    storage = p.pick(["i8", "ui8", "i4"])
    per_axis, hybrid = p.rng.random() < 0.5, p.rng.random() < 0.3
    rhs = Quant(p, 1 if per_axis else None, n, storage="i8" if storage == "ui8" else storage, zero=False)
    attrs = "dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"
    if hybrid:
        x = p.reals([m, k], "f32", 0, 0)
        p.args[-1][1][...] = np.array([p.rng.randint(-8, 8) / 4 for _ in range(m * k)]).reshape(m, k)
        quantized(p, "dot_general", [x, rhs.value(p, [k, n])], [None, rhs], [[m, k], [k, n]], [(None, [m, n])], attrs)
        return
    lhs = Quant(p, storage=rhs.storage)
    out = Quant(p, 1 if per_axis else None, n, storage="i32")
    quantized(p, "dot_general", [lhs.value(p, [m, k]), rhs.value(p, [k, n])], [lhs, rhs], [[m, k], [k, n]], [(out, [m, n])], attrs)


def quantized_conv(p):
    n, c, o, size, window = p.size(1, 2), p.size(1, 3), p.size(1, 3), p.size(3, 6), p.size(1, 3)
    per_axis, hybrid = p.rng.random() < 0.5, p.rng.random() < 0.3
    rhs, lhs = Quant(p, 2 if per_axis else None, o, storage="i8", zero=False), None if hybrid else Quant(p, storage="i8")
    pad = p.size(0, 1)
    positions = size + 2 * pad - window + 1
    attrs = (f"dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64, "
             f"padding = dense<{pad}> : tensor<1x2xi64>")
    if positions < 1:
        return quantized_conv(p)
    if hybrid:
        x = p.value([n, size, c], "f32")
        quantized(p, "convolution", [x, rhs.value(p, [window, c, o])], [None, rhs], [[n, size, c], [window, c, o]], [(None, [n, positions, o])], attrs)
        return
    out = Quant(p, 2 if per_axis else None, o, storage="i32")
    quantized(p, "convolution", [lhs.value(p, [n, size, c]), rhs.value(p, [window, c, o])], [lhs, rhs], [[n, size, c], [window, c, o]],
              [(out, [n, positions, o])], attrs)


def quantized_reduce(p):
    dims, q = [p.size(2, 5) for _ in range(p.size(1, 3))], Quant(p, storage="i8")
    axis, op = p.rng.randrange(len(dims)), p.pick(["maximum", "minimum"])
    result = dims[:axis] + dims[axis + 1:]
    region = tuple(f" ({{\n{reducer(op, t)}\n  }})" for t in (q.text, "f32"))
    quantized(p, "reduce", [q.value(p, dims), q.value(p, [])], [q, q], [dims, []], [(q, result)], f"dimensions = {ints([axis])}", region)


# ---- sizes that are unknown until the arguments are ----------------------------------------------------------------------

def dynamic(p):
    """A function of arrays of unknown sizes, called with known ones."""
    element, dims = p.pick(["f32", "i32", "bf16", "i8"]), [p.size(1, 5) for _ in range(p.size(1, 3))]
    name, x, t = f"f{len(p.functions)}", p.value(dims, element), tensor(dims, element)
    unknown = [("?" if p.rng.random() < 0.7 else d) for d in dims]
    u, rank = tensor(unknown, element), len(dims)
    lines, sizes = [], []
    for i in range(rank):
        lines += [f"%s{i} = stablehlo.get_dimension_size %x, dim = {i} : ({u}) -> tensor<i32>", f"%d{i} = stablehlo.reshape %s{i} : (tensor<i32>) -> tensor<1xi32>"]
        sizes.append(f"%d{i}")
    def shape(names):
        n = p.fresh()
        if len(names) == 1:
            return names[0]
        lines.append(f'{n} = "stablehlo.concatenate"({", ".join(names)}) <{{dimension = 0 : i64}}> : ({", ".join(["tensor<1xi32>"] * len(names))}) -> tensor<{len(names)}xi32>')
        return n
    def const(values):
        n = p.fresh()
        lines.append(f"{n} = stablehlo.constant dense<{list(values)}> : tensor<{len(values)}xi32>")
        return n
    kind = p.pick(["broadcast", "reshape", "iota", "pad", "gather", "slice", "chain"])
    result = list(dims)
    if kind == "broadcast":
        extra = p.size(1, 3)
        result = [extra] + dims
        s = shape([const([extra])] + sizes)
        out = tensor(["?"] + unknown, element)
        lines.append(f'%r = "stablehlo.dynamic_broadcast_in_dim"(%x, {s}) <{{broadcast_dimensions = {ints(range(1, rank + 1))}}}> : ({u}, tensor<{rank + 1}xi32>) -> {out}')
    elif kind == "reshape":
        result = [int(np.prod(dims))]
        total = "%d0"
        for i in range(1, rank):
            n = p.fresh()
            lines.append(f"{n} = stablehlo.multiply {total}, %d{i} : tensor<1xi32>")
            total = n
        out = tensor(["?"], element)
        lines.append(f"%r = stablehlo.dynamic_reshape %x, {total} : ({u}, tensor<1xi32>) -> {out}")
    elif kind == "iota":
        d = p.rng.randrange(rank)
        out = tensor(["?"] * rank, element)
        lines += [f'%r = "stablehlo.dynamic_iota"({shape(sizes)}) <{{iota_dimension = {d} : i64}}> : (tensor<{rank}xi32>) -> {out}']
    elif kind == "pad":
        low, high, interior = [p.rng.randint(0, 2) for _ in dims], [p.rng.randint(0, 2) for _ in dims], [p.rng.randint(0, 1) for _ in dims]
        result = [d + a + b + (d - 1) * k for d, a, b, k in zip(dims, low, high, interior)]
        lines.append(f"%zero = stablehlo.constant dense<{'0' if 'i' in element else '0.0'}> : tensor<{element}>")
        out, k = tensor(["?"] * rank, element), f"tensor<{rank}xi32>"
        lines.append(f"%r = stablehlo.dynamic_pad %x, %zero, {const(low)}, {const(high)}, {const(interior)} : ({u}, tensor<{element}>, {k}, {k}, {k}) -> {out}")
    elif kind == "gather":
        n = p.size(1, 4)
        result = [n] + dims[1:]
        lines.append(f"%i = stablehlo.constant dense<{[[p.rng.randrange(dims[0])] for _ in range(n)]}> : tensor<{n}x1xi32>")
        s = shape([const([1])] + sizes[1:])
        out = tensor([n] + ["?"] * (rank - 1), element)
        lines.append(f'%r = "stablehlo.dynamic_gather"(%x, %i, {s}) <{{dimension_numbers = #stablehlo.gather<offset_dims = {list(range(1, rank))}, collapsed_slice_dims = [0], '
                     f"start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false}}> : ({u}, tensor<{n}x1xi32>, tensor<{rank}xi32>) -> {out}")
    elif kind == "slice":
        start = [p.rng.randint(0, d - 1) for d in dims]
        result = [d - s for d, s in zip(dims, start)]
        out, k = tensor(["?"] * rank, element), f"tensor<{rank}xi32>"
        lines.append(f"%r = stablehlo.real_dynamic_slice %x, {const(start)}, {shape(sizes)}, {const([1] * rank)} : ({u}, {k}, {k}, {k}) -> {out}")
    else:
        out = u
        lines += [f"%y = stablehlo.add %x, %x : {u}", f"%r = stablehlo.maximum %y, %x : {u}"]
    text = f"func.func private @{name}(%x: {u}) -> {out} {{\n{''.join(f'  {l}' + chr(10) for l in lines)}  return %r : {out}\n}}\n"
    p.functions.append((text, text))
    c, n, r = p.fresh(), p.fresh(), p.fresh()
    p.line(f"{c} = stablehlo.convert {x} : ({t}) -> {u}")
    p.line(f"{n} = func.call @{name}({c}) : ({u}) -> {out}")
    p.line(f"{r} = stablehlo.convert {n} : ({out}) -> {tensor(result, element)}")
    p.result(r, result, element, "dynamic " + kind)


def bounded(p):
    """An array shortened by set_dimension_size, summed up and measured."""
    dims, axis = [p.size(2, 5) for _ in range(p.size(1, 3))], 0
    axis = p.rng.randrange(len(dims))
    n, t, size = p.fresh(), tensor(dims, "f32"), p.value([], "i32", 0, dims[axis])
    bounds = ", ".join(str(d) if i == axis else "?" for i, d in enumerate(dims))
    b = f"tensor<{''.join('?x' if i == axis else f'{d}x' for i, d in enumerate(dims))}f32, #stablehlo.bounds<{bounds}>>"
    p.line(f'{n} = "stablehlo.set_dimension_size"({p.value(dims, "f32")}, {size}) <{{dimension = {axis} : i64}}> : ({t}, tensor<i32>) -> {b}')
    p.line(f"{n}a = stablehlo.{p.pick(['add', 'multiply', 'maximum'])} {n}, {n} : {b}")
    zero = p.value([], "f32", 0, 1)
    result = dims[:axis] + dims[axis + 1:]
    p.op("stablehlo.reduce", [n + "a", zero], [b, "tensor<f32>"], [(result, "f32")], f"dimensions = {ints([axis])}", [reducer("add", "f32")])
    p.op("stablehlo.get_dimension_size", [n + "a"], [b], [([], "i32")], f"dimension = {axis} : i64")


OPERATIONS = [elementwise, compare, convert, bitcast_convert, select, clamp, transpose, broadcast_in_dim, reshape, concatenate, reverse, slice_,
              pad, dynamic_slice, dynamic_update_slice, iota, reduce, reduce_window, select_and_scatter, sort, dot_general, convolution, gather,
              scatter, case, loop, map_, parts, reduce_precision, rng_bits, collapse, branches, nested_loops, calls, tuples, arg_reduce,
              mixed_reduce, sort_by_several, scatter_rows, chlo_unary, chlo_test, chlo_broadcast, chlo_rest, fft, solve, batch_norm,
              quantized_elementwise, quantized_moves, quantize, quantized_dot, quantized_conv, quantized_reduce, dynamic, bounded]


def make(seed, only, size):
    program = Program(random.Random(seed))
    for _ in range(size):
        program.pick([o for o in OPERATIONS if only in (None, o.__name__)])(program)
    return program
