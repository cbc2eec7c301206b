#!/usr/bin/env python3
"""A transformer block trained on 8 devices: batches over the mesh axis "data", heads and hidden units over "model".

Written with shard_map, so that every collective stands where it happens: one psum over "model" behind attention and one
behind the MLP (forward), their transposes (backward), one pmean over "data" for the gradients.  The same script runs on
any backend; with both at hand it compares their losses:

    WEFT_NUM_DEVICES=8 PJRT_NAMES_AND_LIBRARY_PATHS=weft:build/.libs/pjrt_weft.so python transformer_2d.py weft cpu
"""
import os
import sys

platforms = sys.argv[1:] or ["weft"]
os.environ.setdefault("WEFT_NUM_DEVICES", "8")
os.environ["JAX_PLATFORMS"] = ",".join(platforms)
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import time  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

DATA, MODEL = 2, 4
BATCH, LENGTH, WIDTH, HEADS, HIDDEN, VOCABULARY = 8, 32, 64, 8, 256, 97
STEPS, RATE = 20, 0.5

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


def train(platform):
    mesh = Mesh(np.array(jax.devices(platform)[:DATA * MODEL]).reshape(DATA, MODEL), ("data", "model"))
    loss = jax.shard_map(loss_of, mesh=mesh, in_specs=(SPECS, P("data")), out_specs=P())

    @jax.jit
    def step(w, tokens):
        value, gradient = jax.value_and_grad(loss)(w, tokens)
        return jax.tree.map(lambda a, g: a - RATE * g, w, gradient), value

    w = {k: jax.device_put(v, NamedSharding(mesh, SPECS[k])) for k, v in weights().items()}
    start = np.random.RandomState(1).randint(0, VOCABULARY, (BATCH, 1))
    tokens = ((start + np.arange(LENGTH) * 5) % VOCABULARY).astype(np.int32)  # a rule that can be learnt
    tokens = jax.device_put(tokens, NamedSharding(mesh, P("data")))
    losses, began = [], time.time()
    for i in range(STEPS):
        w, value = step(w, tokens)
        losses.append(float(value))
        if i == 0:
            compiled, began = time.time() - began, time.time()
    print(f"{platform}: first step {compiled:.2f} s, then {(time.time() - began) / (STEPS - 1) * 1e3:.1f} ms a step; "
          f"loss {losses[0]:.5f} -> {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    runs = [train(p) for p in platforms]
    assert runs[0][-1] < runs[0][0]
    for other in runs[1:]:
        difference = max(abs(a - b) for a, b in zip(runs[0], other))
        print(f"largest difference of the losses: {difference:.2e}")
        assert difference < 2e-3
