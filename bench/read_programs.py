#!/usr/bin/env python3
"""Programs whose reading bench/read measures: what jax.export and jax.jit(f).lower make of models, as NAME.bc and NAME.mlir in a
folder (the argument).  Training steps of transformers (unrolled, or a scan over the layers) and of a residual convnet, and
transformers whose weights are constants."""
import sys

import jax, jax.numpy as jnp, numpy as np
from jax import export, lax

OUT = sys.argv[1]

def layer_norm(x, g, b):
    m = x.mean(-1, keepdims=True); v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b

def block(p, x, heads):
    b, t, d = x.shape
    h = layer_norm(x, p["g1"], p["b1"])
    q, k, v = (jnp.reshape(h @ p[n], (b, t, heads, d // heads)).transpose(0, 2, 1, 3) for n in ("q", "k", "v"))
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(d // heads)
    s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -1e9)
    a = jax.nn.softmax(s, -1)
    x = x + jnp.einsum("bhqk,bhkd->bhqd", a, v).transpose(0, 2, 1, 3).reshape(b, t, d) @ p["o"]
    h = layer_norm(x, p["g2"], p["b2"])
    return x + jax.nn.gelu(h @ p["u"] + p["ub"]) @ p["w"] + p["wb"]

def params(rng, layers, d, ff, vocab):
    n = lambda *s: (rng.standard_normal(s) * 0.02).astype(np.float32)
    one = lambda: dict(g1=n(d), b1=n(d), q=n(d, d), k=n(d, d), v=n(d, d), o=n(d, d), g2=n(d), b2=n(d), u=n(d, ff), ub=n(ff), w=n(ff, d), wb=n(d))
    return dict(e=n(vocab, d), layers=[one() for _ in range(layers)])

def loss(p, tokens, heads, scan):
    x = p["e"][tokens[:, :-1]]
    if scan:
        x, _ = lax.scan(lambda x, l: (block(l, x, heads), None), x, p["layers"])
    else:
        for l in p["layers"]: x = block(l, x, heads)
    logits = x @ p["e"].T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1).mean()

def adam(p, m, v, t, g):
    tm = jax.tree_util.tree_map
    m = tm(lambda m, g: 0.9 * m + 0.1 * g, m, g); v = tm(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    return tm(lambda p, m, v: p - 1e-3 * (m / (1 - 0.9 ** t)) / (jnp.sqrt(v / (1 - 0.999 ** t)) + 1e-8), p, m, v), m, v

def train(layers, scan=False, d=64, ff=256, vocab=512, heads=4):
    p = params(np.random.default_rng(0), layers, d, ff, vocab)
    if scan: p["layers"] = jax.tree_util.tree_map(lambda *x: np.stack(x), *p["layers"])
    def step(p, m, v, t, tokens):
        l, g = jax.value_and_grad(loss)(p, tokens, heads, scan)
        return (l,) + adam(p, m, v, t, g)
    return step, (p, p, p, np.float32(1), np.zeros((4, 33), np.int32))

def infer(layers, weights, d=64, ff=256, vocab=512, heads=4):
    p = params(np.random.default_rng(0), layers, d, ff, vocab)
    tokens = np.zeros((4, 33), np.int32)
    if weights: 
        p = jax.tree_util.tree_map(jnp.asarray, p)
        return (lambda tokens: loss(p, tokens, heads, False)), (tokens,)
    return (lambda p, tokens: loss(p, tokens, heads, False)), (p, tokens)

def convnet(blocks):
    rng = np.random.default_rng(0)
    conv = lambda x, w, s=1: lax.conv_general_dilated(x, w, (s, s), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    n = lambda *s: rng.standard_normal(s).astype(np.float32)
    p, c = dict(stem=n(7, 7, 3, 16), blocks=[]), 16
    for i in range(blocks):
        o = 16 << (3 * i // blocks)
        p["blocks"].append(dict(a=n(3, 3, c, o), b=n(3, 3, o, o), ga=n(o), ba=n(o), gb=n(o), bb=n(o), **({"s": n(1, 1, c, o)} if c != o else {})))
        c = o
    p["head"] = n(c, 10)
    def norm(x, g, b):
        m = x.mean((0, 1, 2)); v = x.var((0, 1, 2))
        return (x - m) * lax.rsqrt(v + 1e-5) * g + b
    def f(p, x, y):
        h = conv(x, p["stem"], 2)
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for q in p["blocks"]:
            r = jax.nn.relu(norm(conv(h, q["a"], 2 if "s" in q else 1), q["ga"], q["ba"]))
            r = norm(conv(r, q["b"]), q["gb"], q["bb"])
            h = jax.nn.relu(r + (conv(h, q["s"], 2) if "s" in q else h))
        z = jax.nn.log_softmax(h.mean((1, 2)) @ p["head"])
        return -(z * jax.nn.one_hot(y, 10)).sum(-1).mean()
    def step(p, m, v, t, x, y):
        l, g = jax.value_and_grad(f)(p, x, y)
        return (l,) + adam(p, m, v, t, g)
    return step, (p, p, p, np.float32(1), np.zeros((4, 32, 32, 3), np.float32), np.zeros(4, np.int32))

PROGRAMS = dict(
    gpt24_train=lambda: train(24), gpt48_train=lambda: train(48), gpt24_scan=lambda: train(24, True),
    gpt48_infer=lambda: infer(48, False), gpt24_weights=lambda: infer(24, True), gpt6_weights=lambda: infer(6, True),
    resnet24_train=lambda: convnet(24))
for name, make in PROGRAMS.items():
    f, args = make()
    e = export.export(jax.jit(f))(*args)
    open(f"{OUT}/{name}.bc", "wb").write(e.mlir_module_serialized)
    text = str(jax.jit(f).lower(*args).compiler_ir("stablehlo"))
    open(f"{OUT}/{name}.mlir", "w").write(text)
    print(name, len(e.mlir_module_serialized), len(text), text.count("stablehlo."), flush=True)
