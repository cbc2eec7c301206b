"""Random StableHLO that programs seldom have: what rounds, einsum, operations of no use, sizes worked out in other dialects,
regions that give back what is outside.  Importing it adds these to random_programs.OPERATIONS."""
import random_programs
from random_programs import SIGNED, FLOATS, ints, tensor

REAL = ["f16", "bf16", "f32", "f64"]


def rounds(p):
    """Halves, quarters, infinities: to integers, and whether they are finite."""
    element, dims = p.pick(REAL), p.dims()
    t, quarter, x = tensor(dims, element), p.constant("0.25", dims, element), p.fresh()
    p.line(f"{x} = stablehlo.multiply {p.value(dims, element, -30, 30)}, {quarter} : {t}")
    if p.rng.random() < 0.3:
        zero, y = p.constant("0.0", dims, element), p.fresh()
        p.line(f"{y} = stablehlo.divide {x}, {zero} : {t}")
        p.op("stablehlo.is_finite", [y], [t], [(dims, "i1")])
    p.op("stablehlo." + p.pick(["round_nearest_afz", "round_nearest_even", "floor", "ceil", "sign"]), [x], [t], [(dims, element)])


def einsum(p):
    element, letters = p.pick(["f32", "f64", "i32"]), "ijkl"
    size = {c: p.size(1, 4) for c in letters}
    left, right = ("".join(p.rng.sample(letters, p.rng.randint(1, 3))) for _ in range(2))
    out = "".join(c for c in letters if c in left + right and p.rng.random() < 0.6)
    shapes = [[size[c] for c in names] for names in (left, right)]
    values = [p.value(s, element) for s in shapes]
    p.op("stablehlo.einsum", values, [tensor(s, element) for s in shapes], [([size[c] for c in out], element)], f'einsum_config = "{left},{right}->{out}"')


def unused(p):
    """What cannot be compiled, and nothing reads; then what it would have read."""
    n, element = p.size(1, 4), p.pick(["f32", "i32", "bf16"])
    t, x, i = tensor([n], element), p.value([n], element), p.value([1], "i64", 0, 1)
    scalar, one = tensor([], element), p.value([], element)
    dead = p.fresh()
    p.line(f"{dead} = " + p.pick([
        f'"stablehlo.dynamic_pad"({x}, {one}, {i}, {i}, {i}) : ({t}, {scalar}, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<{n + 9}x{element}>',
        f'"stablehlo.real_dynamic_slice"({x}, {i}, {i}, {i}) : ({t}, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1x{element}>',
        f'stablehlo.custom_call @no_such_target({x}) : ({t}) -> {t}',
        f'"stablehlo.map"({x}) ({{\n  ^bb0(%m: {scalar}):\n    stablehlo.return {one} : {scalar}\n  }}) {{dimensions = array<i64: 0>}} : ({t}) -> {t}']))
    p.op("stablehlo.add", [x, x], [t, t], [([n], element)])


def captured(p):
    """A reduction that gives back constants, or does not use what it takes from outside."""
    element, dims = p.pick(["f32", "i32", "i8", "f16"]), [p.size(1, 4) for _ in range(p.size(1, 3))]
    which = sorted(p.rng.sample(range(len(dims)), p.rng.randint(1, len(dims))))
    out, scalar, c = [d for i, d in enumerate(dims) if i not in which], tensor([], element), p.constant("2" if element[0] == "i" else "2.0", [], element)
    if all(dims[i] == 1 for i in which):
        return captured(p)
    outside = p.value([], element)
    body = p.pick([f"    stablehlo.return {c} : {scalar}",
                   f"    %o = stablehlo.multiply %a, {outside} : {scalar}\n    %s = stablehlo.add %a, %b : {scalar}\n    stablehlo.return %s : {scalar}"])
    p.op("stablehlo.reduce", [p.value(dims, element), p.value([], element)], [tensor(dims, element), scalar], [(out, element)],
         f"dimensions = {ints(which)}", [f"  ^bb0(%a: {scalar}, %b: {scalar}):\n{body}"])


def sized(p):
    """A scalar or row, broadcast to a size that shape, tensor and arith work out."""
    element, dims = p.pick(SIGNED[2:] + FLOATS[:4] + ["i1"]), [p.size(1, 5) for _ in range(p.size(1, 3))]
    n, like, t = len(dims), p.value(dims, "f32"), tensor(dims, "f32")
    size = p.fresh()
    kind = p.rng.randrange(4)
    if kind == 0:
        p.line(f"{size} = shape.shape_of {like} : {t} -> tensor<{n}xindex>")
    elif kind == 1:
        p.line(f"{size} = shape.const_shape [{', '.join(map(str, dims))}] : tensor<{n}xindex>")
    elif kind == 2:
        parts = []
        for d in range(n):
            at, extent = p.fresh(), p.fresh()
            p.line(f"{at} = arith.constant {d} : index")
            p.line(f"{extent} = tensor.dim {like}, {at} : {t}")
            parts.append(extent)
        p.line(f"{size} = tensor.from_elements {', '.join(parts)} : tensor<{n}xindex>")
    else:
        whole, ones = p.fresh(), p.fresh()
        p.line(f"{whole} = shape.shape_of {like} : {t} -> tensor<{n}xindex>")
        p.line(f"{ones} = shape.const_shape [{', '.join(str(d if p.rng.random() < 0.5 else 1) for d in dims[1:])}] : tensor<{n - 1}xindex>")
        p.line(f"{size} = shape.broadcast {whole}, {ones} : tensor<{n}xindex>, tensor<{n - 1}xindex> -> tensor<{n}xindex>")
    row = p.rng.random() < 0.5
    x = p.value(dims[-1:] if row else [], element)
    p.op("stablehlo.dynamic_broadcast_in_dim", [x, size], [tensor(dims[-1:] if row else [], element), f"tensor<{n}xindex>"], [(dims, element)],
         f"broadcast_dimensions = {ints([n - 1] if row else [])}")


def one_rank(p):
    """CHLO's broadcasts of operands of one rank, with a broadcast_dimensions attribute that has no effect."""
    element, dims = p.pick(["f32", "i32", "ui8"]), p.dims(0, 3)
    shapes = [[1 if p.rng.random() < 0.3 else d for d in dims] for _ in range(2)]
    out = [max(a, b) if a and b else 0 for a, b in zip(*shapes)]
    wild = ints([p.rng.randint(0, 5) for _ in range(p.rng.randint(1, 3))])
    p.op("chlo.broadcast_" + p.pick(["add", "multiply", "maximum"]), [p.value(s, element) for s in shapes], [tensor(s, element) for s in shapes],
         [(out, element)], f"broadcast_dimensions = {wild}")


random_programs.OPERATIONS += [rounds, einsum, unused, captured, sized, one_rank]
