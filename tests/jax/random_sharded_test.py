#!/usr/bin/env python3
"""Small random functions over random meshes: on Weft's 8 devices they give what they give on one.  Prints TAP.

Arguments, results and values between are cut at random, evenly or not; parts of a program stand in shard_map, scan, vmap, cond
or grad; meshes have automatic or explicit axes.

    Environment as for e2e_test.py.    random_sharded_test.py [SEED [COUNT [xla]]]    xla: compared with XLA:CPU's 8 devices, too
"""

import random
import sys

import e2e_test as e2e  # starts $WEFT_PYTHON, or skips

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 1
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 24
MESHES = [((8,), "x"), ((2, 4), "xy"), ((4, 2), "xy"), ((2, 2, 2), "xyz"), ((1, 8), "xy"), ((4,), "x")]
SIZES = [1, 2, 3, 4, 5, 6, 8, 8, 8, 12, 16, 16]


class Program:
    """Builds one function of arrays, an operation at a time, and lists the operations in `trace`. The seed decides everything."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.shape, self.names = self.r.choice(MESHES)
        self.explicit = self.r.random() < 0.2
        self.steps = [self.r.randrange(1 << 30) for _ in range(self.r.randint(2, 7))]
        self.args = [self.array(i) for i in range(self.r.randint(1, 3))]
        self.specs = [self.spec(a.shape, even=True) for a in self.args]
        self.trace = []

    def array(self, seed):
        rank = self.r.choice([1, 2, 2, 2, 3])
        # explicit axes: every size is one that all axes divide
        shape = tuple(self.r.choice([8, 16] if self.explicit else SIZES) for _ in range(rank))
        return np.random.RandomState(seed + 1).uniform(-1, 1, shape).astype(np.float32)

    def spec(self, shape, even):
        axes = list(self.names)
        self.r.shuffle(axes)
        dims = []
        for size in shape:
            taken, product = [], 1
            while axes and self.r.random() < 0.5:
                n = self.shape[self.names.index(axes[-1])]
                if even and size % (product * n):
                    break
                product *= n
                taken.append(axes.pop())
            dims.append(tuple(taken) or None)
        return P(*dims)

    def function(self, mesh):
        """mesh None: no array is sharded."""
        def f(*args):
            values, r = list(args), None
            for step in self.steps:
                r = random.Random(step)
                values.append(self.operation(r, values, mesh))
            return values[len(args):]
        return f

    def constrain(self, r, x, mesh):
        """Uneven tiles are for intermediate values only: JAX has no arrays with uneven tiles."""
        keep, self.r = self.r, r
        spec, uneven = self.spec(x.shape, even=True), None if self.explicit or r.random() < 0.7 else self.spec(x.shape, even=False)
        self.r = keep
        if mesh is None:
            return x
        if uneven:
            x = jnp.negative(lax.with_sharding_constraint(jnp.negative(x), NamedSharding(mesh, uneven)))
        return (jax.sharding.reshard if self.explicit else lax.with_sharding_constraint)(x, NamedSharding(mesh, spec))

    def operation(self, r, values, mesh):
        x = values[r.randrange(len(values))]
        kinds = sorted(OPERATIONS) if not self.explicit else EXPLICIT
        kind = r.choice(kinds)
        if mesh is None:
            self.trace.append(f"{kind}{x.shape}")
        y = OPERATIONS[kind](self, r, x, values, mesh)
        y = y / (1 + jnp.max(jnp.abs(lax.stop_gradient(y)))) if y.size and not self.explicit else y
        if r.random() < 0.4:
            y = self.constrain(r, y, mesh)
        return y


def some_dim(r, x):
    return r.randrange(x.ndim) if x.ndim else None


def on_dim(f):
    """An operation along a dimension; scalars pass."""
    return lambda p, r, x, values, mesh: f(r, x, some_dim(r, x)) if x.ndim and x.size else x


def cut_out(r, x, d):
    n = x.shape[d]
    start = r.randrange(n)
    return lax.slice_in_dim(x, start, r.randint(start + 1, n), r.choice([1, 1, 2]), d)


def padded(r, x, d):
    pads = [(0, 0, 0)] * x.ndim
    pads[d] = (r.randint(-1, 2), r.randint(0, 2), r.randint(0, 1)) if x.shape[d] > 1 else (1, 2, 0)
    return lax.pad(x, np.float32(0.5), pads)


def dynamic_slice(r, x, d):
    size = r.randint(1, x.shape[d])
    return lax.dynamic_slice_in_dim(x, jnp.int32(jnp.sum(x[..., :1]) * 100) % x.shape[d], size, d)


def dynamic_update(r, x, d):
    size = r.randint(1, x.shape[d])
    return lax.dynamic_update_slice_in_dim(x, lax.slice_in_dim(x, 0, size, 1, d) * 2, r.randrange(x.shape[d]), d)


def gathered(r, x, d):
    index = jnp.array([r.randrange(x.shape[d]) for _ in range(r.choice([2, 4, 8]))])
    return jnp.take(x, index, d)


def scattered(r, x, d):
    index = jnp.array([r.randrange(x.shape[d]) for _ in range(r.choice([2, 4, 8]))])
    where = (slice(None),) * d + (index,)
    return (x.at[where].add if r.random() < 0.5 else x.at[where].max)(jnp.take(x, index[::-1], d) * 3)


def argument(r, x, d):
    return (jnp.argmax if r.random() < 0.5 else jnp.argmin)(x, d).astype(jnp.float32)


def cumulative(r, x, d):
    return r.choice([lax.cumsum, lax.cummax, lax.cumlogsumexp])(x, d, reverse=r.random() < 0.5)


def windowed(r, x, d):
    window, stride = [1] * x.ndim, [1] * x.ndim
    window[d], stride[d] = r.randint(1, min(3, x.shape[d])), r.choice([1, 1, 2])
    if r.random() < 0.5:
        return lax.reduce_window(x, np.float32(-np.inf), lax.max, window, stride, r.choice(["SAME", "VALID"]))
    return lax.reduce_window(x, np.float32(0), lax.add, window, stride, r.choice(["SAME", "VALID"]))


def sorted_(r, x, d):
    return lax.sort((x, x * 2), dimension=d, num_keys=1)[1] if r.random() < 0.5 else lax.sort(x, dimension=d)


def top(p, r, x, values, mesh):
    return lax.top_k(x, r.randint(1, x.shape[-1]))[0] if x.ndim and x.size else x


def product(p, r, x, values, mesh):
    a, b = x.reshape(-1, x.shape[-1] if x.ndim else 1), values[r.randrange(len(values))]
    b = b.reshape(b.shape[0] if b.ndim else 1, -1)
    if b.shape[0] != a.shape[1]:
        b = jnp.resize(b, (a.shape[1], b.shape[1]))
    return a @ b


def batched_product(p, r, x, values, mesh):
    return jnp.einsum("...i,...j->...ij", x, jnp.sin(x)) if 0 < x.ndim < 3 else jnp.einsum("...ij,...kj->...ik", x, x) if x.ndim > 1 else x


def convolved(p, r, x, values, mesh):
    if x.ndim < 2 or x.size == 0:
        return x
    image = x.reshape(-1, 1, *x.shape[-2:])
    k = r.choice([1, 2, 3])
    kernel = jnp.arange(k * k * 4, dtype=jnp.float32).reshape(4, 1, k, k) / 10
    return lax.conv_general_dilated(image, kernel, r.choice([(1, 1), (2, 1)]), "SAME", rhs_dilation=r.choice([(1, 1), (2, 1)]))[:, :, :, 0]


def mapped(p, r, x, values, mesh):
    """A shard_map over some of the axes."""
    keep, p.r = p.r, r
    spec = p.spec(x.shape, even=True)
    p.r = keep
    axes = {n for d in spec if d for n in d}
    f = lambda a: jnp.cos(a) * 2 - (lax.psum(jnp.sum(a), tuple(sorted(axes))) if axes else jnp.sum(a))
    if mesh is None or not axes:
        return jnp.cos(x) * 2 - jnp.sum(x)
    return jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, axis_names=axes if r.random() < 0.5 else set(p.names),
                         check_vma=False)(x)


def looped(p, r, x, values, mesh):
    inner = lambda c, i: (p.constrain(random.Random(1), jnp.tanh(c + i), mesh), jnp.sum(c))
    c, sums = lax.scan(inner, x, jnp.arange(3, dtype=x.dtype))
    return c + sums[0]


def chosen(p, r, x, values, mesh):
    return lax.cond(jnp.sum(x) > 0, lambda a: a * 2, lambda a: jnp.flip(a, 0) if a.ndim else -a, x)


def vectorized(p, r, x, values, mesh):
    return jax.vmap(lambda a: jnp.cumsum(a) - jnp.max(a))(x) if x.ndim > 1 and x.size else x


def gradient(p, r, x, values, mesh):
    y = values[r.randrange(len(values))]
    return jax.grad(lambda a: jnp.sum(jnp.sin(a) ** 2) * jnp.sum(jnp.cos(y)) + jnp.sum(jax.nn.softmax(a.reshape(-1))[0]))(x) if x.size else x


def reduced(r, x, d):
    return r.choice([jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.mean])(x, d)


def reshaped(p, r, x, values, mesh):
    return x.reshape(r.choice([(-1,), (x.shape[0] if x.ndim else 1, -1), (-1, x.shape[-1] if x.ndim else 1)])) if x.size else x


OPERATIONS = {
    "sin": lambda p, r, x, v, m: jnp.sin(x), "add": lambda p, r, x, v, m: x + jnp.sum(v[r.randrange(len(v))]),
    "transpose": lambda p, r, x, v, m: x.transpose(r.sample(range(x.ndim), x.ndim)), "reshape": reshaped, "reduce": on_dim(reduced),
    "slice": on_dim(cut_out), "pad": on_dim(padded), "concatenate": on_dim(lambda r, x, d: jnp.concatenate([x, -x, x][:r.randint(1, 3)], d)),
    "reverse": on_dim(lambda r, x, d: lax.rev(x, (d,))), "roll": on_dim(lambda r, x, d: jnp.roll(x, r.randint(-3, 9), d)),
    "dynamic_slice": on_dim(dynamic_slice), "dynamic_update": on_dim(dynamic_update), "gather": on_dim(gathered), "scatter": on_dim(scattered),
    "argmax": on_dim(argument), "cumulative": on_dim(cumulative), "window": on_dim(windowed), "sort": on_dim(sorted_), "top_k": top,
    "dot": product, "batch_dot": batched_product, "convolution": convolved, "shard_map": mapped, "scan": looped, "cond": chosen,
    "vmap": vectorized, "grad": gradient, "softmax": on_dim(lambda r, x, d: jax.nn.softmax(x, d)),
    "iota": lambda p, r, x, v, m: x * lax.broadcasted_iota(jnp.float32, x.shape, r.randrange(x.ndim)) if x.ndim else x,
    "random": lambda p, r, x, v, m: x + jax.random.uniform(jax.random.key(r.randrange(9)), x.shape),
    "repeat": on_dim(lambda r, x, d: jnp.repeat(x, 2, d)), "select": lambda p, r, x, v, m: jnp.where(x > 0, x, jnp.exp(x)),
}
EXPLICIT = ["sin", "iota", "select", "transpose", "softmax"]  # those whose rules under explicit axes take any sharding


def run(program, platform):
    names, shape = tuple(program.names), program.shape
    devices = np.array(jax.devices(platform)[: int(np.prod(shape))]).reshape(shape)
    mesh = Mesh(devices, names, axis_types=(AxisType.Explicit if program.explicit else AxisType.Auto,) * len(names))
    args = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(program.args, program.specs)]
    with jax.set_mesh(mesh):
        return [np.asarray(y) for y in jax.jit(program.function(mesh))(*args)]


def check(program):
    with jax.default_device(jax.devices("cpu")[0]):
        want = [np.asarray(y) for y in jax.jit(program.function(None))(*program.args)]
    e2e.compare(run(program, "weft"), want, 40)
    if "xla" in sys.argv:
        e2e.compare(run(program, "cpu"), want, 40)


def main():
    jax.config.update("jax_enable_x64", False)
    failed = 0
    print(f"1..{COUNT}")
    for number in range(1, COUNT + 1):
        program = Program(f"{SEED} {number}")
        try:
            check(program)
            print(f"ok {number}", flush=True)
        except Exception as e:
            failed = 1
            print(f"not ok {number}\n#   {program.shape} {program.specs} explicit={program.explicit} {' '.join(program.trace)}")
            for line in f"{type(e).__name__}: {e}".strip().splitlines()[:8]:
                print("#   " + line[:240], flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
