#!/usr/bin/env python3
"""Programs as JAX's users write them, on Weft and on XLA:CPU in turns in one process.  Checks the values against each
other and prints a table for docs/performance.md: compile and run times, ratios (below 1: Weft is faster), geometric means.

    PJRT_NAMES_AND_LIBRARY_PATHS=weft:build-opt/.libs/pjrt_weft.so python bench/jax_programs.py [--rounds N] [-k WORD]

Each time of a run is the least of the rounds; each compilation is one.
"""
import argparse
import math
import os
import time

import report

os.environ.setdefault("JAX_PLATFORMS", "weft,cpu")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

PROGRAMS = {}


def program(make):
    """`make` returns a function and its arguments."""
    PROGRAMS[make.__name__] = make
    return make


def normal(seed, *shape, scale=1.0):
    return (np.random.RandomState(seed).standard_normal(shape) * scale).astype(np.float32)


def weights(seed, *shape):
    return normal(seed, *shape, scale=1 / math.sqrt(np.prod(shape[:-1])))


def adam(gradient, rate=1e-3, b1=0.9, b2=0.999):
    """A training step: (weights, first moments, second moments, count), batch -> the same, loss."""
    def step(state, *batch):
        w, m, v, n = state
        loss, g = jax.value_and_grad(gradient)(w, *batch)
        n = n + 1
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, g)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, g)
        w = jax.tree.map(lambda w, m, v: w - rate * (m / (1 - b1 ** n)) / (jnp.sqrt(v / (1 - b2 ** n)) + 1e-8), w, m, v)
        return (w, m, v, n), loss
    return step


def adam_state(w):
    zero = jax.tree.map(np.zeros_like, w)
    return w, zero, zero, np.float32(0)


def cross_entropy(logits, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), labels[:, None], 1))


def layer_norm(x, scale):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


# -- networks -----------------------------------------------------------------------------------------------------------
@program
def mlp_adam():
    w = {"a": weights(0, 784, 512), "b": weights(1, 512, 256), "c": weights(2, 256, 10)}

    def loss(w, x, y):
        return cross_entropy(jax.nn.relu(jax.nn.relu(x @ w["a"]) @ w["b"]) @ w["c"], y)

    return adam(loss), (adam_state(w), normal(3, 128, 784), np.arange(128, dtype=np.int32) % 10)


def conv(x, w, stride=1):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def batch_norm(x, scale):
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale


@program
def resnet_train():
    w = {"in": weights(0, 3, 3, 3, 16), "out": weights(1, 64, 10), "blocks": []}
    for i, (a, b) in enumerate(((16, 16), (16, 32), (32, 64))):
        w["blocks"].append({"a": weights(2 + i, 3, 3, a, b), "b": weights(12 + i, 3, 3, b, b), "skip": weights(22 + i, 1, 1, a, b),
                            "sa": np.ones(b, np.float32), "sb": np.ones(b, np.float32)})

    def loss(w, x, y):
        x = conv(x, w["in"])
        for i, k in enumerate(w["blocks"]):
            s = 1 if i == 0 else 2
            h = jax.nn.relu(batch_norm(conv(x, k["a"], s), k["sa"]))
            x = jax.nn.relu(batch_norm(conv(h, k["b"]), k["sb"]) + conv(x, k["skip"], s))
        return cross_entropy(x.mean((1, 2)) @ w["out"], y)

    return adam(loss), (adam_state(w), normal(30, 16, 32, 32, 3), np.arange(16, dtype=np.int32) % 10)


def transformer_weights(layers, d, vocabulary):
    return {"embed": normal(0, vocabulary, d, scale=0.02), "layers": {
        "qkv": np.stack([weights(i, d, 3 * d) for i in range(layers)]), "out": np.stack([weights(10 + i, d, d) for i in range(layers)]),
        "up": np.stack([weights(20 + i, d, 4 * d) for i in range(layers)]), "down": np.stack([weights(30 + i, 4 * d, d) for i in range(layers)]),
        "n1": np.ones((layers, d), np.float32), "n2": np.ones((layers, d), np.float32)}}


def attention(q, k, v, mask):
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


def transformer(dtype):
    heads, d, t = 4, 128, 64

    def loss(w, tokens):
        w = jax.tree.map(lambda a: a.astype(dtype), w)
        x = w["embed"][tokens]

        def layer(x, k):
            q, key, v = jnp.split((layer_norm(x, k["n1"]) @ k["qkv"]).reshape(*x.shape[:2], heads, -1), 3, -1)
            x = x + attention(q, key, v, jnp.tril(jnp.ones((t, t), bool))).reshape(x.shape) @ k["out"]
            return x + jax.nn.gelu(layer_norm(x, k["n2"]) @ k["up"]) @ k["down"], None

        x = lax.scan(jax.checkpoint(layer), x, w["layers"])[0]
        logits = (x @ w["embed"].T)[:, :-1]
        return cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))

    tokens = np.random.RandomState(1).randint(0, 512, (8, t)).astype(np.int32)
    return adam(loss), (adam_state(transformer_weights(2, d, 512)), tokens)


@program
def transformer_train():
    return transformer(jnp.float32)


@program
def transformer_train_bf16():
    return transformer(jnp.bfloat16)


@program
def decode_with_cache():
    heads, d, length, b = 4, 128, 64, 4
    w = transformer_weights(2, d, 512)

    def generate(w, first):
        cache = jnp.zeros((2, 2, b, length, heads, d // heads))

        def step(carry, i):
            token, cache = carry
            x = w["embed"][token][:, None]
            for n in range(2):
                k = jax.tree.map(lambda a: a[n], w["layers"])
                q, key, v = jnp.split((layer_norm(x, k["n1"]) @ k["qkv"]).reshape(b, 1, heads, -1), 3, -1)
                cache = lax.dynamic_update_slice(cache, jnp.stack([key, v])[None], (n, 0, 0, i, 0, 0))
                x = x + attention(q, cache[n, 0], cache[n, 1], jnp.arange(length) <= i).reshape(x.shape) @ k["out"]
                x = x + jax.nn.gelu(layer_norm(x, k["n2"]) @ k["up"]) @ k["down"]
            token = jnp.argmax(x[:, 0] @ w["embed"].T, -1).astype(jnp.int32)
            return (token, cache), token

        return lax.scan(step, (first, cache), jnp.arange(length))[1]

    return generate, (w, np.arange(b, dtype=np.int32))


@program
def beam_search():
    beams, vocabulary, d, steps = 4, 200, 64, 24
    w = (normal(0, vocabulary, d), weights(1, d, d), weights(2, d, vocabulary))

    def search(embed, cell, out):
        def step(carry, _):
            score, h, last = carry
            h = jnp.tanh(h @ cell + embed[last])
            total = score[:, None] + jax.nn.log_softmax(h @ out)
            score, at = lax.top_k(total.reshape(-1), beams)
            parent, last = at // vocabulary, at % vocabulary
            return (score, h[parent], last), (parent, last)
        start = (jnp.array([0.0] + [-1e9] * (beams - 1)), jnp.zeros((beams, d)), jnp.zeros(beams, jnp.int32))
        (score, _, _), (parents, tokens) = lax.scan(step, start, length=steps)

        def back(beam, x):
            return x[0][beam], x[1][beam]
        return score, lax.scan(back, jnp.arange(beams), (parents, tokens), reverse=True)[1]

    return search, w


@program
def mixture_of_experts():
    experts, d, n = 8, 64, 512
    w = {"gate": weights(0, d, experts), "up": np.stack([weights(i, d, 128) for i in range(experts)]),
         "down": np.stack([weights(20 + i, 128, d) for i in range(experts)])}

    def loss(w, x):
        p = jax.nn.softmax(x @ w["gate"])
        top, at = lax.top_k(p, 2)
        slot = jnp.cumsum(jax.nn.one_hot(at.reshape(-1), experts, dtype=jnp.int32), 0) - 1
        slot = jnp.take_along_axis(slot, at.reshape(-1)[:, None], 1)[:, 0]
        inside = jnp.zeros((experts, 192, d)).at[at.reshape(-1), slot].set(jnp.repeat(x, 2, 0), mode="drop")
        y = jnp.einsum("ecf,efd->ecd", jax.nn.silu(jnp.einsum("ecd,edf->ecf", inside, w["up"])), w["down"])
        y = y.at[at.reshape(-1), slot].get(mode="fill", fill_value=0).reshape(n, 2, d)
        return jnp.mean((x - (y * top[..., None]).sum(1)) ** 2)

    return adam(loss), (adam_state(w), normal(40, n, d))


@program
def lstm_train():
    d, t, b = 64, 48, 32
    w = {"x": weights(0, 32, 4 * d), "h": weights(1, d, 4 * d), "b": np.zeros(4 * d, np.float32), "out": weights(2, d, 1)}

    def loss(w, xs, y):
        def cell(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(x @ w["x"] + h @ w["h"] + w["b"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), None
        (h, _), _ = lax.scan(cell, (jnp.zeros((b, d)), jnp.zeros((b, d))), xs)
        return jnp.mean((h @ w["out"] - y) ** 2)

    return adam(loss), (adam_state(w), normal(3, t, b, 32), normal(4, b, 1))


@program
def state_space_scan():
    d, n, t = 64, 16, 256

    def loss(w, x):
        delta = jax.nn.softplus(x @ w["delta"])
        a = jnp.exp(-delta[..., None] * jnp.exp(w["a"]))
        b = (delta * x)[..., None] * (x @ w["b"])[:, None, :]
        _, h = lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b))
        y = jnp.einsum("tdn,tn->td", h, x @ w["c"])
        return jnp.mean((y - x) ** 2)

    w = {"delta": weights(0, d, d), "a": normal(1, d, n), "b": weights(2, d, n), "c": weights(3, d, n)}
    return adam(loss), (adam_state(w), normal(4, t, d))


@program
def blockwise_attention():
    t, d, block = 512, 64, 64

    def loss(q, k, v):
        def one(q):
            def step(carry, kv):
                top, total, out = carry
                s = q @ kv[0].T / math.sqrt(d)
                new = jnp.maximum(top, s.max(-1))
                p, scale = jnp.exp(s - new[:, None]), jnp.exp(top - new)
                return (new, total * scale + p.sum(-1), out * scale[:, None] + p @ kv[1]), None
            start = (jnp.full(block, -jnp.inf), jnp.zeros(block), jnp.zeros((block, d)))
            (_, total, out), _ = lax.scan(step, start, (k.reshape(-1, block, d), v.reshape(-1, block, d)))
            return out / total[:, None]
        return jnp.sum(lax.map(one, q.reshape(-1, block, d)) ** 2)

    return jax.value_and_grad(loss, (0, 1, 2)), (normal(0, t, d), normal(1, t, d), normal(2, t, d))


@program
def vae_train():
    w = {"a": weights(0, 784, 256), "m": weights(1, 256, 16), "s": weights(2, 256, 16), "b": weights(3, 16, 256), "c": weights(4, 256, 784)}

    def loss(w, x, key):
        h = jax.nn.relu(x @ w["a"])
        mean, log_std = h @ w["m"], h @ w["s"]
        z = mean + jnp.exp(log_std) * jax.random.normal(jax.random.wrap_key_data(key), mean.shape)
        logits = jax.nn.relu(z @ w["b"]) @ w["c"]
        bits = jnp.sum(jnp.maximum(logits, 0) - logits * x + jnp.log1p(jnp.exp(-jnp.abs(logits))), -1)
        return jnp.mean(bits + 0.5 * jnp.sum(jnp.exp(2 * log_std) + mean ** 2 - 1 - 2 * log_std, -1))

    return adam(loss), (adam_state(w), (normal(5, 64, 784) > 0).astype(np.float32), np.array([1, 2], np.uint32))


@program
def graph_network():
    nodes, edges, d = 1000, 8000, 32
    r = np.random.RandomState(0)
    w = {"edge": weights(0, 2 * d, d), "node": weights(1, 2 * d, d), "att": weights(2, d, 1)}

    def loss(w, x, a, b, y):
        for _ in range(2):
            m = jax.nn.relu(jnp.concatenate([x[a], x[b]], -1) @ w["edge"])
            s = (m @ w["att"])[:, 0]
            s = jnp.exp(s - jax.ops.segment_max(s, b, nodes)[b])
            m = m * (s / (jax.ops.segment_sum(s, b, nodes)[b] + 1e-9))[:, None]
            x = jax.nn.relu(jnp.concatenate([x, jax.ops.segment_sum(m, b, nodes)], -1) @ w["node"])
        return jnp.mean((x - y) ** 2)

    return adam(loss), (adam_state(w), normal(3, nodes, d), r.randint(0, nodes, edges).astype(np.int32),
                        np.sort(r.randint(0, nodes, edges)).astype(np.int32), normal(4, nodes, d))


@program
def ppo_update():
    envs, steps, obs, acts = 16, 64, 8, 4
    w = {"a": weights(0, obs, 64), "p": weights(1, 64, acts), "v": weights(2, 64, 1)}

    def net(w, s):
        h = jnp.tanh(s @ w["a"])
        return jax.nn.log_softmax(h @ w["p"]), (h @ w["v"])[..., 0]

    def loss(w, s, a, old, target, gain):
        p, v = net(w, s)
        ratio = jnp.exp(jnp.take_along_axis(p, a[:, None], 1)[:, 0] - old)
        return jnp.mean(-jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain) + 0.5 * (v - target) ** 2 + 0.01 * jnp.sum(jnp.exp(p) * p, -1))

    def update(state, s, mix):
        def act(carry, key):
            s, w = carry
            p, v = net(w, s)
            a = jax.random.categorical(key, p)
            n = jnp.tanh(s @ mix + jax.nn.one_hot(a, obs))
            return (n, w), (s, a, jnp.take_along_axis(p, a[:, None], 1)[:, 0], v, -jnp.sum(n ** 2, -1))
        (s, _), (ss, a, old, v, r) = lax.scan(act, (s, state[0]), jax.random.split(jax.random.key(1), steps))

        def gae(carry, x):
            adv, after = carry
            adv = x[1] + 0.99 * after - x[0] + 0.95 * 0.99 * adv
            return (adv, x[0]), adv
        gain = lax.scan(gae, (jnp.zeros(envs), net(state[0], s)[1]), (v, r), reverse=True)[1]
        data = jax.tree.map(lambda x: x.reshape(envs * steps, *x.shape[2:]), (ss, a, old, gain + v, gain))

        def epoch(state, key):
            order = jax.random.permutation(key, envs * steps)
            batches = jax.tree.map(lambda x: x[order].reshape(4, -1, *x.shape[1:]), data)
            return lax.scan(lambda st, b: adam(loss)(st, *b), state, batches)
        return lax.scan(epoch, state, jax.random.split(jax.random.key(2), 4))

    return update, (adam_state(w), normal(3, envs, obs), weights(4, obs, obs))


# -- inference on few bits ----------------------------------------------------------------------------------------------
@program
def int8_inference():
    w = [np.random.RandomState(i).randint(-127, 128, (512, 512)).astype(np.int8) for i in range(3)]

    def run(x, *w):
        for k in w:
            scale = jnp.max(jnp.abs(x), -1, keepdims=True) / 127
            q = jnp.round(x / scale).astype(jnp.int8)
            x = jax.nn.relu(lax.dot(q, k, preferred_element_type=jnp.int32).astype(jnp.float32) * scale * 0.002)
        return x

    return run, (normal(5, 64, 512), *w)


@program
def float8_training_step():
    def matmul(x, w):
        scale = jnp.max(jnp.abs(x)) / 448
        return ((x / scale).astype(jnp.float8_e4m3fn).astype(jnp.float32) @ w.astype(jnp.float8_e4m3fn).astype(jnp.float32)) * scale

    def loss(w, x):
        return jnp.mean(matmul(jax.nn.gelu(matmul(x, w["a"])), w["b"]) ** 2)

    return adam(loss), (adam_state({"a": weights(0, 256, 512), "b": weights(1, 512, 256)}), normal(2, 128, 256))


# -- probability --------------------------------------------------------------------------------------------------------
@program
def hmc_logistic_regression():
    x, y = normal(0, 500, 8), (normal(1, 500) > 0).astype(np.float32)

    def sample(x, y):
        def energy(b):
            z = x @ b
            return jnp.sum(jnp.logaddexp(0.0, z) - y * z) + 0.5 * jnp.sum(b * b)

        def step(b, key):
            k1, k2 = jax.random.split(key)
            p = jax.random.normal(k1, b.shape)

            def leap(_, s):
                b, p = s
                p = p - 0.01 * jax.grad(energy)(b)
                b = b + 0.02 * p
                return b, p - 0.01 * jax.grad(energy)(b)
            b2, p2 = lax.fori_loop(0, 10, leap, (b, p))
            accept = jnp.log(jax.random.uniform(k2)) < energy(b) - energy(b2) + 0.5 * jnp.sum(p * p - p2 * p2)
            b = jnp.where(accept, b2, b)
            return b, b
        return lax.scan(step, jnp.zeros(8), jax.random.split(jax.random.key(0), 100))[1]

    return sample, (x, y)


@program
def particle_filter():
    n = 1024

    def run(ys):
        def step(carry, y):
            x, key = carry
            key, k1, k2 = jax.random.split(key, 3)
            x = 0.9 * x + 2 * jnp.cos(x) + jax.random.normal(k1, (n,))
            logw = -0.5 * (y - x) ** 2
            w = jax.nn.softmax(logw)
            u = (jnp.arange(n) + jax.random.uniform(k2)) / n
            x = x[jnp.clip(jnp.searchsorted(jnp.cumsum(w), u), 0, n - 1)]
            return (x, key), (jnp.mean(x), jax.nn.logsumexp(logw))
        return lax.scan(step, (jnp.zeros(n), jax.random.key(7)), ys)[1]

    return run, (normal(0, 60),)


@program
def gaussian_process():
    x = np.sort(np.random.RandomState(0).uniform(-3, 3, 200)).astype(np.float32)

    def nll(p, x, y):
        k = jnp.exp(p[0]) * jnp.exp(-0.5 * (x[:, None] - x) ** 2 * jnp.exp(p[1])) + (jnp.exp(p[2]) + 1e-4) * jnp.eye(len(x))
        l = jnp.linalg.cholesky(k)
        a = jax.scipy.linalg.cho_solve((l, True), y)
        return 0.5 * y @ a + jnp.sum(jnp.log(jnp.diagonal(l)))

    return jax.value_and_grad(nll), (np.zeros(3, np.float32), x, np.sin(3 * x) + normal(1, 200, scale=0.1))


@program
def crf_loss():
    b, t, k = 16, 40, 12

    def loss(trans, scores, tags):
        def forward(alpha, s):
            return jax.nn.logsumexp(alpha[:, :, None] + trans, 1) + s, None
        alpha = lax.scan(forward, scores[:, 0], scores[:, 1:].swapaxes(0, 1))[0]
        gold = jnp.take_along_axis(scores, tags[..., None], 2)[..., 0].sum(1) + trans[tags[:, :-1], tags[:, 1:]].sum(1)
        return jnp.mean(jax.nn.logsumexp(alpha, 1) - gold)

    return jax.value_and_grad(loss, (0, 1)), (normal(0, k, k), normal(1, b, t, k), np.random.RandomState(2).randint(0, k, (b, t)).astype(np.int32))


# -- science ------------------------------------------------------------------------------------------------------------
@program
def navier_stokes_spectral():
    n = 64
    k = np.fft.fftfreq(n, 1 / n).astype(np.float32)

    def run(w):
        kx, ky = k[:, None], k[None, :n // 2 + 1]
        k2 = kx ** 2 + ky ** 2
        inverse = jnp.where(k2 == 0, 0, 1 / jnp.where(k2 == 0, 1, k2))

        def step(_, w):
            psi = w * inverse
            u, v = jnp.fft.irfft2(1j * ky * psi), jnp.fft.irfft2(-1j * kx * psi)
            wx, wy = jnp.fft.irfft2(1j * kx * w), jnp.fft.irfft2(1j * ky * w)
            return (w - 1e-3 * jnp.fft.rfft2(u * wx + v * wy)) / (1 + 1e-6 * k2)
        return jnp.fft.irfft2(lax.fori_loop(0, 20, step, jnp.fft.rfft2(w)))

    return run, (normal(0, n, n),)


@program
def wave_stencil():
    def run(u, v):
        def step(_, s):
            u, v = s
            lap = sum(jnp.roll(u, d, a) for a in (0, 1) for d in (1, -1)) - 4 * u
            v = v + 0.1 * lap
            return u + 0.1 * v, v
        return lax.fori_loop(0, 50, step, (u, v))

    return run, (normal(0, 256, 256), np.zeros((256, 256), np.float32))


@program
def n_body():
    def run(x, v):
        def force(x):
            d = x[None] - x[:, None]
            return jnp.sum(d * ((d * d).sum(-1, keepdims=True) + 0.01) ** -1.5, 1) / len(x)

        def step(_, s):
            x, v = s
            v = v + 0.01 * force(x)
            return x + 0.01 * v, v
        return lax.fori_loop(0, 10, step, (x, v))

    return run, (normal(0, 256, 3), normal(1, 256, 3, scale=0.1))


@program
def adaptive_ode():
    def run(y):
        def f(y):
            return jnp.stack([y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]])

        def step(s):
            t, h, y = s
            k1 = f(y)
            k2 = f(y + h * k1 / 2)
            k3 = f(y + h * 3 / 4 * k2)
            new = y + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
            error = jnp.max(jnp.abs(h * (-5 / 72 * k1 + k2 / 12 + k3 / 9 - f(new) / 8))) / 1e-4
            good = error <= 1
            return jnp.where(good, t + h, t), h * jnp.clip(0.9 * error ** (-1 / 3), 0.2, 5.0), jnp.where(good, new, y)
        return lax.while_loop(lambda s: s[0] < 10, step, (jnp.float32(0), jnp.float32(1e-3), y))[2]

    return jax.vmap(run), (normal(0, 32, 2),)


@program
def k_means():
    def run(x, c):
        def step(c, _):
            at = jnp.argmin(jnp.sum((x[:, None] - c) ** 2, -1), 1)
            n = jax.ops.segment_sum(jnp.ones(len(x)), at, len(c))
            return jax.ops.segment_sum(x, at, len(c)) / jnp.maximum(n, 1)[:, None], None
        return lax.scan(step, c, length=10)[0]

    x = normal(0, 5000, 8)
    return run, (x, x[:16].copy())


@program
def sinkhorn():
    def run(x, y):
        cost = jnp.sum((x[:, None] - y) ** 2, -1)

        def step(_, fg):
            f, g = fg
            f = -0.1 * jax.nn.logsumexp((g - cost) / 0.1, 1)
            return f, -0.1 * jax.nn.logsumexp((f[:, None] - cost) / 0.1, 0)
        f, g = lax.fori_loop(0, 20, step, (jnp.zeros(len(x)), jnp.zeros(len(y))))
        return jnp.sum(jnp.exp((f[:, None] + g - cost) / 0.1) * cost)

    return run, (normal(0, 200, 3), normal(1, 200, 3))


@program
def conjugate_gradients():
    def run(d, b):
        def a(x):
            return d * x - jnp.roll(x, 1) - jnp.roll(x, -1)
        return jax.scipy.sparse.linalg.cg(a, b, maxiter=100)[0]

    return run, (2.5 + normal(0, 10000) ** 2, normal(1, 10000))


@program
def tridiagonal_thomas():
    def run(a, b, c, d):
        def forward(carry, x):
            a, b, c, d = x
            m = b - a * carry[0]
            out = (c / m, (d - a * carry[1]) / m)
            return out, out
        _, (c, d) = lax.scan(forward, (jnp.zeros(b.shape[1]), jnp.zeros(b.shape[1])), (a, b, c, d))
        return lax.scan(lambda x, cd: (cd[1] - cd[0] * x,) * 2, jnp.zeros(b.shape[1]), (c, d), reverse=True)[1]

    return run, (normal(0, 200, 64), 4 + normal(1, 200, 64) ** 2, normal(2, 200, 64), normal(3, 200, 64))


@program
def image_augmentation():
    def one(key, im):
        k = jax.random.split(key, 4)
        im = jnp.where(jax.random.bernoulli(k[0]), im[:, ::-1], im)
        y, x = jax.random.randint(k[1], (2,), 0, 5)
        im = lax.dynamic_slice(jnp.pad(im, ((2, 2), (2, 2), (0, 0))), (y, x, 0), im.shape)
        im = im * jax.random.uniform(k[2], minval=0.8, maxval=1.2) + jax.random.normal(k[3], im.shape) * 0.01
        yy, xx = jnp.meshgrid(jnp.arange(32.0), jnp.arange(32.0), indexing="ij")
        yy, xx = 0.98 * yy + 0.1 * xx, 0.98 * xx - 0.1 * yy
        return jnp.stack([jax.scipy.ndimage.map_coordinates(im[..., c], [yy, xx], 1) for c in range(3)], -1)

    def run(images):
        return jax.vmap(one)(jax.random.split(jax.random.key(3), len(images)), images)

    return run, (normal(0, 32, 32, 32, 3),)


# -- further kinds --------------------------------------------------------------------------------------------------------
@program
def gpt_prefill_grouped_heads():
    w = {"q": weights(0, 256, 256), "k": weights(1, 256, 64), "v": weights(2, 256, 64), "o": weights(3, 256, 256)}

    def rope(x):
        t, d = x.shape[1], x.shape[-1] // 2
        angle = jnp.arange(t)[:, None] / 10000 ** (jnp.arange(d) / d)
        c, s = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        a, b = x[..., :d], x[..., d:]
        return jnp.concatenate([a * c - b * s, a * s + b * c], -1)

    def run(w, x):
        b, t, _ = x.shape
        q = rope((x @ w["q"]).reshape(b, t, 8, 32)).reshape(b, t, 2, 4, 32)
        k, v = rope((x @ w["k"]).reshape(b, t, 2, 32)), (x @ w["v"]).reshape(b, t, 2, 32)
        score = jnp.einsum("btghd,bsgd->bghts", q, k) / math.sqrt(32)
        score = jnp.where(jnp.tril(jnp.ones((t, t), bool)), score, -1e30)
        return jnp.einsum("bghts,bsgd->btghd", jax.nn.softmax(score), v).reshape(b, t, 256) @ w["o"]

    return run, (w, normal(4, 2, 128, 256))


@program
def lora_lion_step():
    w, a = weights(0, 512, 512), {"down": weights(1, 512, 8), "up": np.zeros((8, 512), np.float32)}

    def loss(a, x, y):
        return jnp.mean((jax.nn.gelu(x @ w + x @ a["down"] @ a["up"]) - y) ** 2)

    def step(a, m, x, y):
        g = jax.grad(loss)(a, x, y)
        a = jax.tree.map(lambda a, m, g: a - 1e-4 * (jnp.sign(0.9 * m + 0.1 * g) + 0.1 * a), a, m, g)
        return a, jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g, m, g)

    return step, (a, jax.tree.map(np.zeros_like, a), normal(2, 64, 512), normal(3, 64, 512))


@program
def diffusion_denoise_steps():
    w = {"a": weights(0, 3, 3, 4, 32), "b": weights(1, 3, 3, 32, 32), "c": weights(2, 3, 3, 32, 3), "t": weights(3, 16, 32)}

    def denoise(x, t):
        angle = t * jnp.exp(-jnp.arange(8.0))
        time = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)]) @ w["t"]
        h = jax.nn.silu(conv(jnp.concatenate([x, jnp.ones_like(x[..., :1]) * t], -1), w["a"]) + time)
        h = h + jax.nn.silu(conv(h, w["b"]))
        return conv(h, w["c"])

    def run(x, key):
        def step(carry, t):
            x, key = carry
            key, sub = jax.random.split(key)
            x = x - 0.1 * denoise(x, t) + 0.01 * jax.random.normal(sub, x.shape)
            return (x, key), jnp.mean(x)
        return lax.scan(step, (x, key), jnp.linspace(1, 0, 4))

    return run, (normal(4, 2, 32, 32, 3), np.array([1, 2], np.uint32))


@program
def transposed_conv_step():
    w = {"a": weights(0, 4, 4, 32, 16), "b": weights(1, 4, 4, 16, 8)}

    def loss(w, x):
        y = jax.nn.relu(lax.conv_transpose(x, w["a"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return jnp.mean(lax.conv_transpose(y, w["b"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) ** 2)

    return jax.value_and_grad(loss), (w, normal(2, 4, 16, 16, 32))


@program
def depthwise_separable_step():
    w = {"d": weights(0, 3, 3, 1, 64), "p": weights(1, 1, 1, 64, 64)}

    def loss(w, x):
        for stride in (1, 2):
            x = lax.conv_general_dilated(x, w["d"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=64)
            x = jax.nn.relu6(conv(x, w["p"]))
        return jnp.mean(x)

    return jax.value_and_grad(loss), (w, normal(2, 4, 28, 28, 64))


@program
def group_norm_avg_pool_step():
    def loss(x, scale):
        g = x.reshape(*x.shape[:3], 8, -1)
        mean, var = g.mean((1, 2, 4), keepdims=True), g.var((1, 2, 4), keepdims=True)
        y = ((g - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape) * scale
        y = lax.reduce_window(jax.nn.silu(y), 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
        return jnp.mean(y ** 2)

    return jax.value_and_grad(loss, (0, 1)), (normal(0, 4, 32, 32, 64), normal(1, 64))


@program
def message_passing_attention():
    source, target = np.random.RandomState(0).randint(0, 500, (2, 4000)).astype(np.int32)
    w = {"m": weights(1, 64, 64), "a": weights(2, 128)}

    def loss(w, h):
        for _ in range(2):
            m = h @ w["m"]
            e = jax.nn.leaky_relu(jnp.concatenate([m[source], m[target]], -1) @ w["a"])
            e = jnp.exp(e - jax.ops.segment_max(e, target, 500)[target])
            e = e / (jax.ops.segment_sum(e, target, 500)[target] + 1e-9)
            h = jax.nn.elu(jax.ops.segment_sum(e[:, None] * m[source], target, 500))
        return jnp.sum(h ** 2)

    return jax.value_and_grad(loss), (w, normal(3, 500, 64))


@program
def histogram_and_bincount():
    def run(x, y):
        h, _ = jnp.histogram(x, bins=64, range=(-3, 3))
        return h, jnp.bincount(y, length=1000), jnp.zeros(1000).at[y].add(x), jnp.zeros(1000).at[y].max(x)

    return run, (normal(0, 50000), np.random.RandomState(1).randint(0, 1000, 50000).astype(np.int32))


@program
def embedding_bag_step():
    bags = np.random.RandomState(0).randint(0, 5000, (256, 16)).astype(np.int32)

    def loss(table, y):
        return jnp.mean((table[bags].mean(1) - y) ** 2)

    def step(table, y):
        return table - 0.1 * jax.grad(loss)(table, y)

    return step, (normal(1, 5000, 64), normal(2, 256, 64))


@program
def nucleus_sampling():
    def run(logits, key):
        order = jnp.argsort(-logits)
        p = jax.nn.softmax(jnp.take_along_axis(logits, order, -1))
        keep = jnp.cumsum(p, -1) - p < 0.9
        pick = jax.random.categorical(key, jnp.where(keep, jnp.log(p), -jnp.inf))
        return jnp.take_along_axis(order, pick[:, None], 1)

    return run, (normal(0, 8, 8000, scale=3), np.array([0, 7], np.uint32))


@program
def top_100_of_rows():
    return lambda x: lax.top_k(x, 100), (normal(0, 64, 10000),)


@program
def batched_cholesky_4():
    def run(a, b):
        c = jnp.linalg.cholesky(a @ a.mT + 4 * jnp.eye(4))
        return jax.scipy.linalg.cho_solve((c, True), b[..., None])

    return run, (normal(0, 2000, 4, 4), normal(1, 2000, 4))


@program
def kalman_filter():
    f, h = np.eye(4, dtype=np.float32) + np.diag(np.full(2, 0.1, np.float32), 2), np.eye(2, 4, dtype=np.float32)

    def run(zs):
        def step(carry, z):
            x, p = f @ carry[0], f @ carry[1] @ f.T + 0.01 * jnp.eye(4)
            gain = p @ h.T @ jnp.linalg.inv(h @ p @ h.T + 0.1 * jnp.eye(2))
            x = x + gain @ (z - h @ x)
            return (x, p - gain @ h @ p), x
        return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), zs)[1]

    return jax.vmap(run), (normal(0, 16, 100, 2),)


@program
def newton_logistic_hessian():
    x, y = normal(0, 512, 24), (normal(1, 512) > 0).astype(np.float32)

    def loss(w):
        return jnp.mean(jnp.logaddexp(0, x @ w) - y * (x @ w)) + 0.01 * w @ w

    def run(w):
        return lax.fori_loop(0, 5, lambda i, w: w - jnp.linalg.solve(jax.hessian(loss)(w), jax.grad(loss)(w)), w)

    return run, (np.zeros(24, np.float32),)


@program
def lorenz_rk4_ensemble():
    def f(s):
        x, y, z = s
        return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

    def step(s, _):
        a = f(s)
        b = f(s + 0.005 * a)
        c = f(s + 0.005 * b)
        d = f(s + 0.01 * c)
        return s + 0.01 / 6 * (a + 2 * b + 2 * c + d), None

    return jax.vmap(lambda s: lax.scan(step, s, None, length=200)[0]), (normal(0, 1000, 3),)


@program
def padded_diffusion_scan():
    def step(u, _):
        inner = u[1:-1, 1:-1] + 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
        return u.at[1:-1, 1:-1].set(inner), None

    return lambda u: lax.scan(step, u, None, length=50)[0], (normal(0, 130, 130),)


@program
def fft_band_filter():
    def run(x):
        spectrum = jnp.fft.rfft(x)
        f = jnp.fft.rfftfreq(x.shape[-1])
        return jnp.fft.irfft(jnp.where((f > 0.05) & (f < 0.2), spectrum, 0)), jnp.abs(spectrum) ** 2

    return run, (normal(0, 64, 4096),)


@program
def trilinear_sampling():
    def run(volume, at):
        return jax.scipy.ndimage.map_coordinates(volume, [at[0], at[1], at[2]], 1, mode="nearest")

    return run, (normal(0, 32, 32, 32), np.random.RandomState(1).uniform(0, 31, (3, 20000)).astype(np.float32))


@program
def reflected_pad_blur():
    def run(x):
        x = jnp.pad(x, ((0, 0), (2, 2), (2, 2)), mode="reflect")
        k = jnp.array([1, 4, 6, 4, 1.0]) / 16
        x = sum(k[i] * x[:, i:x.shape[1] - 4 + i] for i in range(5))
        return sum(k[i] * x[:, :, i:x.shape[2] - 4 + i] for i in range(5))

    return run, (normal(0, 8, 256, 256),)


@program
def linear_recurrence_step():
    def loss(a, x):
        def join(l, r):
            return l[0] * r[0], r[0] * l[1] + r[1]
        a = jax.nn.sigmoid(a)
        return jnp.mean(lax.associative_scan(join, (jnp.broadcast_to(a, x.shape), x), axis=1)[1] ** 2)

    return jax.value_and_grad(loss, (0, 1)), (normal(0, 64), normal(1, 4, 256, 64))


@program
def lstm_one_row():
    w = weights(0, 64 + 64, 256)

    def run(xs):
        def cell(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ w, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), h
        return lax.scan(cell, (jnp.zeros((1, 64), xs.dtype), jnp.zeros((1, 64), xs.dtype)), xs)[1]

    return run, (normal(1, 100, 1, 64),)


# -- the runner ---------------------------------------------------------------------------------------------------------
def place(device, tree):
    return jax.tree.map(lambda a: jax.device_put(a, device), tree)


def differ(got, want):
    """The largest difference, as a part of each result's largest value."""
    worst = 0.0
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        g, w = np.asarray(g).astype(np.float64), np.asarray(w).astype(np.float64)
        if not (np.isfinite(g) == np.isfinite(w)).all():
            return math.inf
        if g.size:
            worst = max(worst, np.nanmax(np.abs(g - w)) / max(np.nanmax(np.abs(w)), 1e-30))
    return worst


def measure(make, devices, rounds, seconds=0.05):
    f, args = make()
    compiled, placed, compile_s, run_s, results = {}, {}, {}, {}, {}
    for name, device in devices.items():
        with jax.default_device(device):
            placed[name] = place(device, args)
            jitted = jax.jit(f)
            lowered = jitted.lower(*placed[name])
            began = time.perf_counter()
            compiled[name] = lowered.compile()
            compile_s[name] = time.perf_counter() - began
            if any(a.dtype in (jnp.int4, jnp.uint4) for a in jax.tree.leaves(args)):
                compiled[name] = jitted  # JAX refuses the layout of arrays of 4 bits in a call of a compiled program
            results[name] = jax.block_until_ready(compiled[name](*placed[name]))
            run_s[name] = math.inf
    for _ in range(rounds):
        for name in devices:
            spent = 0
            while spent < seconds:
                began = time.perf_counter()
                jax.block_until_ready(compiled[name](*placed[name]))
                took = time.perf_counter() - began
                spent += took
                run_s[name] = min(run_s[name], took)
    return compile_s, run_s, differ(results["weft"], results["cpu"])


def main(title="Programs of JAX's users, Weft beside XLA:CPU"):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-k", default="", help="only programs whose name has this")
    report.add_options(parser)
    options = parser.parse_args()
    devices = {"weft": jax.devices("weft")[0], "cpu": jax.devices("cpu")[0]}
    ratios = []
    table = report.Table(title, ["program", "compile ms: Weft, XLA", "run ms: Weft, XLA", "compile", "run", "largest difference"], "run")
    print("\n".join(table.lines()))
    for name, make in PROGRAMS.items():
        if options.k not in name:
            continue
        c, r, difference = measure(make, devices, options.rounds)
        ratios.append((c["weft"] / c["cpu"], r["weft"] / r["cpu"]))
        table.add(name, f"{c['weft'] * 1e3:.0f}, {c['cpu'] * 1e3:.0f}", f"{r['weft'] * 1e3:.3f}, {r['cpu'] * 1e3:.3f}",
                  f"{ratios[-1][0]:.2f}", f"{ratios[-1][1]:.2f}", f"{difference:.1e}")
        print(list(table.lines())[-1], flush=True)
    means = [report.geometric_mean(column) for column in zip(*ratios)]
    words = f"Geometric means over {len(ratios)} programs: compile {means[0]:.2f}, run {means[1]:.2f}."
    print(words)
    table.note(f"Both platforms take turns in one process on one device; ratios are Weft / XLA. {words} Large differences are of programs that "
               "decide by comparisons (resampling, step sizes) or round to bf16.")
    table.write(options)


if __name__ == "__main__":
    main()
