#!/usr/bin/env python3
"""A transformer block trained on 8 devices: batches over the mesh axis "data", heads and hidden units over "model".

Written with shard_map, so that every collective stands where it happens: one psum over "model" behind attention and one
behind the MLP (forward), their transposes (backward), one pmean over "data" for the gradients.  The same script runs on
any backend, in one process or in several that share the 8 devices; with several platforms it compares their losses:

    PJRT_NAMES_AND_LIBRARY_PATHS=weft:build/.libs/pjrt_weft.so python transformer_2d.py weft cpu
    ... python transformer_2d.py --processes 2 weft        starts 2 processes of 4 devices: one row of the mesh each
"""
import common

import socket
import subprocess
import sys

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

DATA, MODEL = 2, 4
BATCH, LENGTH, WIDTH, HEADS, HIDDEN, VOCABULARY = 8, 32, 64, 8, 256, 97
RATE = 0.5

SPECS = {  # how each weight lies over the mesh; "model" cuts heads and hidden units
    "embedding": P(), "query": P(None, "model", None), "key": P(None, "model", None), "value": P(None, "model", None),
    "output": P("model", None, None), "up": P(None, "model"), "down": P("model", None), "unembedding": P(),
}


def weights():
    r = np.random.RandomState(0)
    size = WIDTH // HEADS
    shapes = {"embedding": (VOCABULARY, WIDTH), "query": (WIDTH, HEADS, size), "key": (WIDTH, HEADS, size),
              "value": (WIDTH, HEADS, size), "output": (HEADS, size, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH),
              "unembedding": (WIDTH, VOCABULARY)}
    return {k: (r.randn(*s) / np.sqrt(s[0])).astype(np.float32) for k, s in shapes.items()}


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def forward(w, tokens):
    """One device's part: its rows of the batch, its heads, its hidden units."""
    x = w["embedding"][tokens]
    h = norm(x)
    q, k, v = (jnp.einsum("btd,dhe->bhte", h, w[n]) for n in ("query", "key", "value"))
    scores = jnp.einsum("bhte,bhse->bhts", q, k) / np.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    mixed = jnp.einsum("bhts,bhse->bhte", jax.nn.softmax(jnp.where(causal, scores, -1e9), -1), v)
    x = x + lax.psum(jnp.einsum("bhte,hed->btd", mixed, w["output"]), "model")
    x = x + lax.psum(jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], "model")
    return norm(x) @ w["unembedding"]


def loss_of(w, tokens):
    logits = jax.nn.log_softmax(forward(w, tokens)[:, :-1])
    picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)
    return -lax.pmean(picked.mean(), "data")


def run(platform, steps, report=print):
    mesh = Mesh(np.array(jax.devices(platform)[:DATA * MODEL]).reshape(DATA, MODEL), ("data", "model"))
    loss = jax.shard_map(loss_of, mesh=mesh, in_specs=(SPECS, P("data")), out_specs=P())

    @jax.jit
    def step(w, tokens):
        value, gradient = jax.value_and_grad(loss)(w, tokens)
        return jax.tree.map(lambda a, g: a - RATE * g, w, gradient), value

    def spread(a, spec):  # every process has the whole and gives its devices their parts
        return jax.make_array_from_callback(a.shape, NamedSharding(mesh, spec), lambda at: a[at])
    w = {k: spread(v, SPECS[k]) for k, v in weights().items()}
    start = np.random.RandomState(1).randint(0, VOCABULARY, (BATCH, 1))
    tokens = ((start + np.arange(LENGTH) * 5) % VOCABULARY).astype(np.int32)  # a rule that can be learnt
    return common.train(platform, steps, step, w, [spread(tokens, P("data"))], report if jax.process_index() == 0 else lambda *_: None)


def start_processes(count):
    """The same command once for each process; the first one reports."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [sys.executable] + sys.argv + ["--port", str(port), "--process"]
    children = [subprocess.Popen(command + [str(i)]) for i in range(count)]
    try:
        return max(child.wait() for child in children)
    finally:
        for child in children:
            child.kill()


if __name__ == "__main__":
    options = common.options
    if options.processes > 1 and options.process < 0:
        sys.exit(start_processes(options.processes))
    if options.processes > 1:
        jax.distributed.initialize(f"127.0.0.1:{options.port}", options.processes, options.process)
    common.main(run, 20)
