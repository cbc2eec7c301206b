"""Random StableHLO programs beyond single operations on small arguments (random_jaxlib_test.py --kind wide).

Operands are often what an earlier operation made, or constants, so that kernels are fused and values folded; arrays are at times
large enough for vectors, blocks and threads.  Every operand is brought back to small integers first, so that results stay exact."""
import random

import numpy as np
from random_programs import COMPLEX, OPERATIONS, PLAIN, WIDE, Program, ints, reducer, tensor

REUSED = [t for t in list(PLAIN) + ["bf16"] if t not in COMPLEX]
ONCE = ["reduce", "mixed_reduce", "arg_reduce", "reduce_window", "bounded"]  # XLA takes the initial value several times where there is much to reduce
LARGE = [7, 16, 17, 31, 33, 64, 100, 129, 257, 1000, 4099]


class Wide(Program):
    def __init__(self, rng):
        super().__init__(rng)
        self.made, self.chained, self.larger = [], rng.choice([0, 0.3, 0.6, 0.9]), rng.choice([0, 0, 0.1, 0.3])

    def dims(self, least=0, most=4):
        dims = super().dims(least, most)
        if dims and self.rng.random() < self.larger:
            at, size = self.rng.randrange(len(dims)), self.pick(LARGE)
            if np.prod(dims[:at] + dims[at + 1:]) * size <= 20000:
                dims[at] = size
        return dims

    def value(self, dims, element, low=None, high=None):
        small = (low is None or low >= -8) and (high is None or high <= 8)
        if not small or self.rng.random() >= self.chained:
            return super().value(dims, element, low, high)
        lowest = 0 if element.startswith("ui") or element == "i1" else -2 if element in ("i2", "f4E2M1FN") else -3
        low = lowest if low is None else low
        high = (1 if element in ("i1", "i2") else 2 if element == "f4E2M1FN" else 3) if high is None else high
        if np.prod(dims) <= 60 and self.rng.random() < 0.2:
            return self.literal(dims, element, low, high)
        if not self.made or element in COMPLEX:
            return super().value(dims, element, low, high)
        return self.earlier(dims, element, low, high)

    def literal(self, dims, element, low, high):
        """A constant: folded, with what is computed of it alone."""
        def text(values):
            return "[" + ", ".join(map(text, values)) + "]" if isinstance(values, list) else number(values)

        def number(v):
            if element == "i1":
                return "true" if v else "false"
            if element in COMPLEX:
                return f"({v}.0, {self.rng.randint(low, high)}.0)"
            return f"{v}.0" if element[0] in "fb" else str(v)

        n = int(np.prod(dims))
        if n == 0 or self.rng.random() < 0.3:
            return self.constant(text(self.rng.randint(low, high)), dims, element)
        return self.constant(text(np.array([self.rng.randint(low, high) for _ in range(n)]).reshape(dims).tolist()), dims, element)

    def unary(self, op, x, dims, element, to=None):
        """A line of an operation on a value, with its result's name."""
        out = self.fresh()
        self.line(f"{out} = stablehlo.{op} {x} : " + (f"({tensor(dims, element)}) -> {tensor(*to)}" if to else tensor(dims, element)))
        return out

    def limited(self, x, dims, element, low, high):
        """A value's elements between low and high, NaN as 0, as integers."""
        t, point = tensor(dims, element), ".0" if element[0] in "fb" else ""
        if point:
            zero, number, out = self.constant("0.0", dims, element), self.fresh(), self.fresh()
            self.line(f"{number} = stablehlo.compare EQ, {x}, {x}, FLOAT : ({t}, {t}) -> {tensor(dims, 'i1')}")
            self.line(f"{out} = stablehlo.select {number}, {x}, {zero} : {tensor(dims, 'i1')}, {t}")
            x = self.unary("floor", out, dims, element)
        bounds = [self.constant(f"{v}{point}", [], element) for v in (max(low, 0) if element[0] == "u" else low, high)]
        out = self.fresh()
        self.line(f"{out} = stablehlo.clamp {bounds[0]}, {x}, {bounds[1]} : ({tensor([], element)}, {t}, {tensor([], element)}) -> {t}")
        return out

    def earlier(self, dims, element, low, high):
        """An earlier result, cut or padded to the shape."""
        x, source, kind = self.pick(self.made)
        if kind == "i1":
            x, kind = self.convert(x, source, "i1", "i32"), "i32"
        x = self.limited(x, source, kind, low, high)
        if kind[0] in "fb":
            x, kind = self.convert(x, source, kind, "i32"), "i32"
        have, want = int(np.prod(source)), int(np.prod(dims))
        flat = [have]
        if source != dims:
            x = self.unary("reshape", x, source, kind, (flat, kind))
            if have > want:
                start, out = self.rng.randint(0, have - want), self.fresh()
                self.line(f"{out} = stablehlo.slice {x} [{start}:{start + want}] : ({tensor(flat, kind)}) -> {tensor([want], kind)}")
                x = out
            elif have < want:
                start, out, fill = self.rng.randint(0, want - have), self.fresh(), self.constant(high, [], kind)
                self.line(f"{out} = stablehlo.pad {x}, {fill}, low = [{start}], high = [{want - have - start}], interior = [0] : "
                          f"({tensor(flat, kind)}, {tensor([], kind)}) -> {tensor([want], kind)}")
                x = out
            x = self.unary("reshape", x, [want], kind, (dims, kind))
        return x if kind == element else self.convert(x, dims, kind, element)

    def result(self, value, dims, element, name, tolerance=0):
        super().result(value, dims, element, name, tolerance)
        if not tolerance and element in REUSED and "quantized" not in name and np.prod(dims):
            self.made.append((value, dims, element))


# ---- functions to a tolerance ---------------------------------------------------------------------------------------

TOLERANCE = {"f16": 4e-3, "bf16": 3e-2, "f32": 2e-5, "f64": 1e-12, "complex<f32>": 1e-4, "complex<f64>": 1e-11}
UNARY = {"exponential": (-4, 4), "exponential_minus_one": (-4, 4), "log": (0.1, 9), "log_plus_one": (-0.9, 9), "logistic": (-9, 9), "sine": (-9, 9),
         "cosine": (-9, 9), "tan": (-1.3, 1.3), "tanh": (-4, 4), "sqrt": (0, 9), "rsqrt": (0.1, 9), "cbrt": (-9, 9)}


def smooth(p):
    """A chain of transcendental functions with arithmetic between."""
    element, dims = p.pick(list(TOLERANCE)), p.dims()
    border = "f32" if element in ("f16", "bf16") else element
    name = p.pick([n for n in UNARY if n != "cbrt" or element not in COMPLEX])
    x = p.reals(dims, border, *UNARY[name])
    if border != element:
        x = p.convert(x, dims, border, element)
    if p.rng.random() < 0.5:
        p.op("stablehlo." + name, [x], [tensor(dims, element)], [(dims, element)], "", (), TOLERANCE[element])
        return
    y = p.reals(dims, border, 0.5, 2)
    if border != element:
        y = p.convert(y, dims, border, element)
    t, out = tensor(dims, element), p.fresh()
    p.line(f"{out} = stablehlo.{name} {x} : {t}")
    op = p.pick(["multiply", "add", "divide"] + (["power", "atan2"] if element not in COMPLEX else []))
    if op == "power":
        out = p.unary("abs", out, dims, element)
    p.op("stablehlo." + op, [out, y], [t, t], [(dims, element)], "", (), 4 * TOLERANCE[element])


def cholesky(p):
    element, n, batch = p.pick(["f32", "f64", "complex<f32>", "complex<f64>"]), p.size(1, 9), p.dims(0, 2)
    a = p.reals(batch + [n, n], element, -1, 1)
    array = p.args[-1][1]
    array[...] = array @ np.conj(np.swapaxes(array, -1, -2)) + 2 * np.eye(n)
    lower = p.pick([True, False])
    x, t = p.fresh(), tensor(batch + [n, n], element)
    p.line(f'{x} = "stablehlo.cholesky"({a}) <{{lower = {str(lower).lower()}}}> : ({t}) -> {t}')
    if not lower:  # the other half is open
        order = list(range(len(batch))) + [len(batch) + 1, len(batch)]
        x, old = p.fresh(), x
        p.line(f"{x} = stablehlo.transpose {old}, dims = {order} : ({t}) -> {t}")
    rows, columns, mask, zero = p.fresh(), p.fresh(), p.fresh(), p.constant("(0.0, 0.0)" if element in COMPLEX else "0.0", batch + [n, n], element)
    index = tensor(batch + [n, n], "i32")
    p.line(f"{rows} = stablehlo.iota dim = {len(batch)} : {index}")
    p.line(f"{columns} = stablehlo.iota dim = {len(batch) + 1} : {index}")
    p.line(f"{mask} = stablehlo.compare GE, {rows}, {columns} : ({index}, {index}) -> {tensor(batch + [n, n], 'i1')}")
    p.op("stablehlo.select", [mask, x, zero], [tensor(batch + [n, n], "i1"), t, t], [(batch + [n, n], element)], "", (), 1e-4 if "32" in element else 1e-11)


# ---- products and convolutions of other sizes and types ----------------------------------------------------------------

def large_dot(p):
    a, b, out = p.pick([("i8", "i8", "i32"), ("ui8", "ui8", "i32"), ("bf16", "bf16", "f32"), ("f16", "f16", "f32"), ("f32", "f32", "f32"),
                        ("f64", "f64", "f64"), ("f8E4M3FN", "f8E5M2", "f32"), ("f8E5M2", "f8E5M2", "bf16"), ("bf16", "bf16", "bf16"), ("i32", "i32", "i32"),
                        ("i16", "i16", "i32"), ("i64", "i64", "i64"), ("complex<f32>",) * 3, ("f16", "f16", "f16")])
    sizes = [1, 2, 3, 8, 15, 16, 17, 32, 33, 64, 100]
    batch, m, k, n = [p.size(1, 3) for _ in range(p.size(0, 1))], p.pick(sizes), p.pick(sizes), p.pick(sizes)
    left, right, r = p.pick([0, 1]), p.pick([0, 1]), len(batch)
    shapes = [batch + ([k, m] if left else [m, k]), batch + ([n, k] if right else [k, n])]
    attrs = (f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {list(range(r))}, rhs_batching_dimensions = {list(range(r))}, "
             f"lhs_contracting_dimensions = [{r + (0 if left else 1)}], rhs_contracting_dimensions = [{r + (1 if right else 0)}]>"
             + p.pick(["", ", precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision DEFAULT>]"]))
    low = [0 if t.startswith("ui") else -1 for t in (a, b)]
    p.op("stablehlo.dot_general", [p.value(shapes[0], a, low[0], 1), p.value(shapes[1], b, low[1], 1)], [tensor(shapes[0], a), tensor(shapes[1], b)],
         [(batch + [m, n], out)], attrs)


def large_conv(p):
    element, spatial = p.pick(["f32", "f32", "bf16", "f16", "f64", "i32"]), p.size(1, 2)
    groups = p.pick([1, 1, 1, 2, 8])
    depthwise = groups == 8 and p.rng.random() < 0.5
    c, o = (8, 8 * p.size(1, 2)) if depthwise else (groups * p.pick([1, 3, 4]), groups * p.pick([1, 5, 8, 16]))
    xs, ks = [p.size(5, 14) for _ in range(spatial)], [p.size(1, 4) for _ in range(spatial)]
    padding = [[p.size(0, 2), p.size(0, 2)] for _ in xs]
    stride, ld, rd = [p.pick([1, 1, 2, 3]) for _ in xs], [p.pick([1, 1, 1, 2]) for _ in xs], [p.pick([1, 1, 1, 2]) for _ in xs]
    out = [((x - 1) * l + 1 + a + b - ((k - 1) * r + 1)) // s + 1 for x, k, s, l, r, (a, b) in zip(xs, ks, stride, ld, rd, padding)]
    n, letters = p.size(1, 3), list(range(spatial))
    if min(out) < 1:
        return large_conv(p)
    last = p.rng.random() < 0.6
    x_dims, k_dims, r_dims = ([n] + xs + [c], ks + [c // groups, o], [n] + out + [o]) if last else ([n, c] + xs, [o, c // groups] + ks, [n, o] + out)
    s = ", ".join(map(str, letters))
    numbers = f"[b, {s}, f]x[{s}, i, o]->[b, {s}, f]" if last else f"[b, f, {s}]x[o, i, {s}]->[b, f, {s}]"
    rows = "[" + ", ".join(map(str, padding)) + "]"
    attrs = (f"dimension_numbers = #stablehlo.conv<{numbers}>, feature_group_count = {groups} : i64, batch_group_count = 1 : i64, window_strides = {ints(stride)}, "
             f"lhs_dilation = {ints(ld)}, rhs_dilation = {ints(rd)}, padding = dense<{rows}> : tensor<{spatial}x2xi64>")
    p.op("stablehlo.convolution", [p.value(x_dims, element, -1, 1), p.value(k_dims, element, -1, 1)], [tensor(x_dims, element), tensor(k_dims, element)],
         [(r_dims, element)], attrs)


# ---- collectives of one device --------------------------------------------------------------------------------------

def alone(p):
    """Collectives in a program of one replica and one partition."""
    element, dims = p.pick(WIDE + ["i8", "ui16"]), [p.size() for _ in range(p.size(1, 3))]
    kind, t = p.pick(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute", "ids"]), tensor(dims, element)
    if kind == "ids":
        p.op("stablehlo." + p.pick(["replica_id", "partition_id"]), [], [], [([], "ui32")])
        return
    axis = p.rng.randrange(len(dims))
    channel = p.pick(["", f", channel_handle = #stablehlo.channel_handle<handle = {len(p.results) + 1}, type = 0>"])
    groups = "replica_groups = dense<0> : tensor<1x1xi64>" + channel
    attrs, region = {"all_gather": f"all_gather_dim = {axis} : i64, ", "reduce_scatter": f"scatter_dimension = {axis} : i64, ",
                     "all_to_all": f"split_dimension = {axis} : i64, concat_dimension = {p.rng.randrange(len(dims))} : i64, split_count = 1 : i64, "}.get(kind, ""), ()
    if kind in ("all_reduce", "reduce_scatter"):
        region = (reducer("add" if element in COMPLEX else p.pick(["add", "maximum", "minimum"]), element),)
    if kind == "collective_permute":
        groups = p.pick(["source_target_pairs = dense<0> : tensor<1x2xi64>", "source_target_pairs = dense<> : tensor<0x2xi64>"]) + channel
    p.op("stablehlo." + kind, [p.value(dims, element)], [t], [(dims, element)], attrs + groups, region)


# ---- loops as front ends write them ---------------------------------------------------------------------------------

def scan(p):
    """A loop that reads rows of some arrays, carries values and writes rows of others, forwards or backwards."""
    element, n, width = p.pick(["f32", "i32", "f64", "i8", "bf16"]), p.size(1, 6), p.size(1, 9)
    row, whole, wide = tensor([width], element), tensor([n, width], element), tensor([1, width], element)
    xs, ys, carry, back = p.value([n, width], element), p.value([n, width], element), p.value([width], element), p.rng.random() < 0.4
    types = ["tensor<i32>", row, whole, whole]
    args = ", ".join(f"%s{i}: {x}" for i, x in enumerate(types))
    cond = f"  ^bb0({args}):\n    %p = stablehlo.compare LT, %s0, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    stablehlo.return %p : tensor<i1>"
    cond = cond.replace("%p = ", f"%n = stablehlo.constant dense<{n}> : tensor<i32>\n    %p = ")
    two = ".0" if element[0] in "fb" else ""
    where = "%at" if back else "%s0"
    source = p.pick([xs, "%s2", "%s3"])
    body = (f"  ^bb0({args}):\n    %one = stablehlo.constant dense<1> : tensor<i32>\n    %zero = stablehlo.constant dense<0> : tensor<i32>\n"
            f"    %last = stablehlo.constant dense<{n - 1}> : tensor<i32>\n    %at = stablehlo.subtract %last, %s0 : tensor<i32>\n"
            f"    %r = stablehlo.dynamic_slice {source}, {where}, %zero, sizes = [1, {width}] : ({whole}, tensor<i32>, tensor<i32>) -> {wide}\n"
            f"    %x = stablehlo.reshape %r : ({wide}) -> {row}\n    %lo = stablehlo.constant dense<{'-3' + two}> : {row}\n"
            f"    %hi = stablehlo.constant dense<{'3' + two}> : {row}\n    %y0 = stablehlo.{p.pick(['add', 'subtract', 'maximum'])} %s1, %x : {row}\n"
            f"    %y = stablehlo.clamp %lo, %y0, %hi : {row}\n    %w = stablehlo.reshape %y : ({row}) -> {wide}\n"
            f"    %ys = stablehlo.dynamic_update_slice %s2, %w, {where}, %zero : ({whole}, {wide}, tensor<i32>, tensor<i32>) -> {whole}\n"
            f"    %i = stablehlo.add %s0, %one : tensor<i32>\n    stablehlo.return %i, %y, %ys, {p.pick(['%s3', '%s2', '%ys', xs])} : {', '.join(types)}")
    p.op("stablehlo.while", [p.value([], "i32", 0, 0), carry, ys, p.pick([ys, xs, p.value([n, width], element)])], types,
         [([], "i32"), ([width], element), ([n, width], element), ([n, width], element)], "", [cond, body])


def many_carries(p):
    """A loop of dozens of carries of several types, which change places."""
    types = [(p.dims(0, 2), p.pick(["i32", "f32", "i8", "f64", "i1", "ui16"])) for _ in range(p.size(1, 4))]
    kinds = [p.rng.randrange(len(types)) for _ in range(p.size(5, 60))]
    texts = ["tensor<i32>"] + [tensor(*types[k]) for k in kinds]
    args = ", ".join(f"%s{i}: {x}" for i, x in enumerate(texts))
    limit = p.value([], "i32", 0, 5)
    cond = (f"  ^bb0({args}):\n    %p = stablehlo.compare LT, %s0, {limit} : (tensor<i32>, tensor<i32>) -> tensor<i1>\n    stablehlo.return %p : tensor<i1>")
    body, names = f"  ^bb0({args}):\n    %one = stablehlo.constant dense<1> : tensor<i32>\n    %i = stablehlo.add %s0, %one : tensor<i32>\n", []
    for i, k in enumerate(kinds):
        same = [j for j, other in enumerate(kinds) if other == k]
        one, other = p.pick(same), p.pick(same)
        if p.rng.random() < 0.6:
            names.append(f"%s{one + 1}")
            continue
        op = p.pick(["maximum", "minimum"] + (["add"] if types[k][1] not in ("i1", "f32", "f64") else []))
        body += f"    %n{i} = stablehlo.{op} %s{one + 1}, %s{other + 1} : {texts[i + 1]}\n"
        names.append(f"%n{i}")
    body += f"    stablehlo.return %i, {', '.join(names)} : {', '.join(texts)}"
    p.op("stablehlo.while", [p.value([], "i32", 0, 0)] + [p.value(*types[k]) for k in kinds], texts, [([], "i32")] + [types[k] for k in kinds], "", [cond, body])


def many_branches(p):
    element, dims, n = p.pick(["i32", "f32", "i8", "bf16"]), p.dims(0, 2), p.size(5, 40)
    t, values = tensor(dims, element), [p.value(dims, element) for _ in range(3)]
    regions = [f"    %r = stablehlo.{p.pick(['add', 'multiply', 'subtract', 'maximum'])} {p.pick(values)}, {p.pick(values)} : {t}\n    stablehlo.return %r : {t}"
               for _ in range(n)]
    p.op("stablehlo.case", [p.value([], "i32", -2, n)], ["tensor<i32>"], [(dims, element)], "", regions)


def tokens(p):
    """Tokens joined and held behind barriers with values."""
    element, dims = p.pick(["f32", "i32", "i1"]), p.dims(0, 2)
    a, b, both, t, x = p.fresh(), p.fresh(), p.fresh(), tensor(dims, element), p.value(dims, element)
    p.line(f'{a} = "stablehlo.after_all"() : () -> !stablehlo.token')
    p.line(f'{b} = "stablehlo.after_all"({a}, {a}) : (!stablehlo.token, !stablehlo.token) -> !stablehlo.token')
    p.line(f"{both}:2 = stablehlo.optimization_barrier {x}, {b} : {t}, !stablehlo.token")
    p.op("stablehlo." + p.pick(["maximum", "minimum"]), [f"{both}#0", x], [t, t], [(dims, element)])


def sort_large(p):
    """A sort of rows that may be long, by one key among several operands."""
    key, dims = p.pick(["i32", "f32", "i8", "ui32", "f64", "bf16", "i64"]), [p.size(1, 3), p.pick(LARGE)]
    others, d = [p.pick(["i32", "f32", "i8"]) for _ in range(p.size(0, 3))], p.rng.randrange(2)
    types = [key] + others
    args = ", ".join(f"%{s}{i}: tensor<{t}>" for i, t in enumerate(types) for s in "ab")
    kind = "FLOAT" if key[0] in "fb" else "UNSIGNED" if key[0] == "u" else "SIGNED"
    region = (f"  ^bb0({args}):\n    %p = stablehlo.compare {p.pick(['LT', 'GT'])}, %a0, %b0, {p.pick([kind, 'TOTALORDER']) if kind == 'FLOAT' else kind} : "
              f"(tensor<{key}>, tensor<{key}>) -> tensor<i1>\n    stablehlo.return %p : tensor<i1>")
    p.op("stablehlo.sort", [p.value(dims, t) for t in types], [tensor(dims, t) for t in types], [(dims, t) for t in types],
         f"dimension = {d} : i64, is_stable = true", [region])


def dynamic_forms(p):
    """Operations whose sizes are operands, here constants, in a function of known arguments."""
    element, dims = p.pick(["f32", "i32"]), [p.size(2, 5), p.size(2, 5)]
    x, t, kind = p.value(dims, element), tensor(dims, element), p.pick(["conv", "iota", "broadcast", "reshape", "pad"])
    unknown, out, fixed, r = tensor(["?", "?"], element), p.fresh(), p.fresh(), p.fresh()
    def sizes(values):
        return p.constant(str(list(values)), [len(values)], "i64")
    result = list(dims)
    if kind == "conv":
        x4, k4, (n, c) = [1, dims[0], dims[1], 1], [2, 2, 1, 2], (p.size(0, 2), p.size(0, 2))
        image, kernel, padding = p.value(x4, "f32"), p.value(k4, "f32"), p.constant(f"[[{n}, {c}], [0, 1]]", [2, 2], "i64")
        attrs = "dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64"
        result = [1, dims[0] + n + c - 1, dims[1], 2]
        p.line(f'{out} = "stablehlo.dynamic_conv"({image}, {kernel}, {padding}) <{{{attrs}}}> : ({tensor(x4, "f32")}, {tensor(k4, "f32")}, tensor<2x2xi64>) -> '
               f"tensor<1x?x?x2xf32>")
        p.line(f"{r} = stablehlo.convert {out} : (tensor<1x?x?x2xf32>) -> {tensor(result, 'f32')}")
        p.result(r, result, "f32", "dynamic_conv")
        return
    if kind == "iota":
        p.line(f'{out} = "stablehlo.dynamic_iota"({sizes(dims)}) <{{iota_dimension = 1 : i64}}> : (tensor<2xi64>) -> {unknown}')
    elif kind == "broadcast":
        p.line(f'{out} = "stablehlo.dynamic_broadcast_in_dim"({x}, {sizes(dims)}) <{{broadcast_dimensions = array<i64: 0, 1>, known_expanding_dimensions = array<i64>, '
               f"known_nonexpanding_dimensions = array<i64: 0, 1>}}> : ({t}, tensor<2xi64>) -> {unknown}")
    elif kind == "reshape":
        result = dims[::-1]
        p.line(f"{out} = stablehlo.dynamic_reshape {x}, {sizes(result)} : ({t}, tensor<2xi64>) -> {unknown}")
    else:
        low = [p.rng.randint(-1, 2), p.rng.randint(-1, 2)]
        result = [d + a for d, a in zip(dims, low)]
        zero = p.value([], element)
        p.line(f"{out} = stablehlo.dynamic_pad {x}, {zero}, {sizes(low)}, {sizes([0, 0])}, {sizes([0, 0])} : ({t}, {tensor([], element)}, tensor<2xi64>, "
               f"tensor<2xi64>, tensor<2xi64>) -> {unknown}")
    p.line(f"{fixed} = stablehlo.convert {out} : ({unknown}) -> {tensor(result, element)}")
    p.result(fixed, result, element, "dynamic_" + kind)


MORE = [smooth, smooth, cholesky, large_dot, large_dot, large_conv, alone, scan, scan, many_carries, many_branches, tokens, sort_large, dynamic_forms]


def make(seed, only, size):
    program = Wide(random.Random(seed))
    larger = program.larger
    for _ in range(size):
        operation = program.pick([o for o in OPERATIONS + MORE if only in (None, o.__name__)])
        program.larger = 0 if operation.__name__ in ONCE else larger
        operation(program)
    return program
