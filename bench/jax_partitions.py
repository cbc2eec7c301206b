#!/usr/bin/env python3
"""What one partition computes, touches and exchanges, on Weft and on XLA:CPU: flops, bytes and collectives of the partitioned programs
of common ways to use 8 devices.  Prints a table; results are compared.

    PJRT_NAMES_AND_LIBRARY_PATHS=weft:build/.libs/pjrt_weft.so python bench/jax_partitions.py
"""
import argparse
import os
import re

import report

os.environ.update(JAX_PLATFORMS="weft,cpu", WEFT_NUM_DEVICES="8")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

RANDOM = np.random.RandomState(0)
RING = [(i, (i + 1) % 8) for i in range(8)]


def rand(*shape):
    return (RANDOM.standard_normal(shape) * 0.05).astype(np.float32)


def put(mesh, x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def constrain(mesh, x, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


# -- each gives a function and its arguments -------------------------------------------------------------------------------
def perceptron(mesh, *weights):
    def loss(w, x, y):
        for a in w:
            x = jnp.tanh(x @ a)
        return jnp.mean((x - y) ** 2)

    step = lambda w, x, y: [a - 0.1 * g for a, g in zip(w, jax.grad(loss)(w, x, y))]
    return step, [put(mesh, rand(256, 256), *weights) for _ in range(3)], put(mesh, rand(512, 256), "x"), put(mesh, rand(512, 256), "x")


def cut_weights(mesh):
    return perceptron(mesh, "x")


def transformer(mesh):
    d, heads = 128, 8

    def block(p, x):
        q, k, v = [jnp.einsum("btd,dhe->bthe", x, p[n]) for n in "qkv"]
        a = jax.nn.softmax(jnp.einsum("bthe,bshe->bhts", q, k) / 4)
        x = x + jnp.einsum("bthe,hed->btd", jnp.einsum("bhts,bshe->bthe", a, v), p["o"])
        return x + jax.nn.gelu(x @ p["a"]) @ p["b"]

    step = lambda p, x: jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(lambda p: jnp.mean(block(p, x) ** 2))(p))
    weights = {n: put(mesh, rand(d, heads, 16), None, "y") for n in "qkv"}
    weights |= {"o": put(mesh, rand(heads, 16, d), "y"), "a": put(mesh, rand(d, 4 * d), None, "y"), "b": put(mesh, rand(4 * d, d), "y")}
    return step, weights, put(mesh, rand(8, 64, d), "x")


def ring_attention(mesh):
    def local(q, k, v):
        def turn(i, c):
            k, v, o, total = c
            s = jnp.exp(jnp.einsum("td,sd->ts", q, k) * 0.1)
            return lax.ppermute(k, "x", RING), lax.ppermute(v, "x", RING), o + s @ v, total + s.sum(1, keepdims=True)

        _, _, o, total = lax.fori_loop(0, 8, turn, (k, v, jnp.zeros_like(q), jnp.zeros_like(q[:, :1])))
        return o / total

    f = jax.shard_map(local, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
    return f, *[put(mesh, rand(512, 64), "x") for _ in range(3)]


def experts(mesh):
    def f(x, w, gate):
        chosen = jax.nn.one_hot(jnp.argmax(x @ gate, -1), 8, dtype=x.dtype)
        place = ((jnp.cumsum(chosen, 0) * chosen).sum(-1) - 1).astype(jnp.int32)
        send = jnp.einsum("te,tc->tec", chosen, jax.nn.one_hot(place, 128, dtype=x.dtype))
        y = constrain(mesh, jnp.einsum("tec,td->ecd", send, x), "x")
        return constrain(mesh, jnp.einsum("tec,ecd->td", send, jnp.tanh(jnp.einsum("ecd,edf->ecf", y, w))), "x")

    return f, put(mesh, rand(512, 64), "x"), put(mesh, rand(8, 64, 64), "x"), put(mesh, rand(64, 8))


def pipeline(mesh):
    def local(w, x):
        def stage(c, _):
            h = jnp.tanh(c[0] @ w[0])
            return (lax.ppermute(h, "x", RING), c[1] + h), None

        return lax.scan(stage, (x, jnp.zeros_like(x)), None, length=8)[0][1]

    f = jax.shard_map(local, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"), check_vma=False)
    return f, put(mesh, rand(8, 128, 128), "x"), put(mesh, rand(32, 128))


def convolutions(mesh):
    def f(x, a, b):
        y = jax.nn.relu(lax.conv(x, a, (1, 1), "SAME"))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return lax.conv(y, b, (1, 1), "SAME")

    return f, put(mesh, rand(2, 8, 64, 64), None, None, "x"), put(mesh, rand(16, 8, 3, 3)), put(mesh, rand(16, 16, 3, 3))


def embedding(mesh):
    f = lambda table, i, x: (table[i] @ x).sum(-1)
    return f, put(mesh, rand(4096, 64), "x"), put(mesh, RANDOM.randint(0, 4096, (64,))), put(mesh, rand(64, 64))


PROGRAMS = [("MLP, batch cut", perceptron), ("MLP, weights cut too (FSDP)", cut_weights), ("transformer block, 2 x 4", transformer),
            ("ring attention, one turn", ring_attention), ("mixture of experts", experts), ("pipeline, one stage", pipeline),
            ("convolutions over cut rows", convolutions), ("embedding, table's rows cut", embedding)]


def collectives(text):
    counts = {}
    for name in re.findall(r"= (?:\([^=]*?\)|\S+) (all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute)(?:-start)?\(", text):
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "none"


def measure(platform, program):
    """flops and bytes of one partition, its collectives, results"""
    devices = np.array(jax.devices(platform)[:8])
    RANDOM.seed(0)
    f, *args = program(Mesh(devices.reshape(2, 4), ("x", "y")) if program is transformer else Mesh(devices, ("x",)))
    compiled = jax.jit(f).lower(*args).compile()
    cost = compiled.cost_analysis()
    return cost["flops"] / 1e6, cost["bytes accessed"] / 1e6, collectives(compiled.as_text()), [np.asarray(y) for y in jax.tree.leaves(compiled(*args))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_options(parser)
    options = parser.parse_args()
    table = report.Table("Work of one of eight partitions", ["program", "MFLOP: Weft, XLA", "MB: Weft, XLA", "collectives, Weft", "collectives, XLA", "ratio of MB"],
                         "ratio of MB")
    for name, program in PROGRAMS:
        weft, xla = measure("weft", program), measure("cpu", program)
        for a, b in zip(weft[3], xla[3]):
            np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-6)
        table.add(name, f"{weft[0]:.2f}, {xla[0]:.2f}", f"{weft[1]:.2f}, {xla[1]:.2f}", weft[2], xla[2], f"{weft[1] / xla[1]:.2f}")
        print(list(table.lines())[-1], flush=True)
    table.note("Operations and bytes are those of `cost_analysis`, collectives those of the partitioned program's text. The results agree within 3e-6. "
               "Bodies of loops count once. Each compiler counts bytes after its own fusion.")
    table.write(options)


if __name__ == "__main__":
    main()
