#!/usr/bin/env python3
"""Writes typical programs as HLO text, lowered by JAX: what bench/vs_xla.py is run on besides ../shared/testdata/hlo.

    bench/suite.py DIR [NAME ...] && bench/vs_xla.py --weft build/quickstart/weft DIR/*.hlo

Without names, all of them.  Needs jax 0.10.2.
"""
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax import lax

f32, bf16, i32 = jnp.float32, jnp.bfloat16, jnp.int32


def attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1), v)


def attention_step(q, k, v):
    return jax.grad(lambda *a: attention(*a).astype(f32).sum(), argnums=(0, 1, 2))(q, k, v)


def conv(x, w, stride=1):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def conv_net(x, w1, w2, w3):
    x = jax.nn.relu(conv(x, w1, 2))
    x = jax.nn.relu(conv(x, w2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jax.nn.relu(conv(x, w3)).mean(axis=(1, 2))


def conv_net_step(x, w1, w2, w3):
    return jax.grad(lambda *w: (conv_net(x, *w) ** 2).sum(), argnums=(0, 1, 2))(w1, w2, w3)


def depthwise(x, w, p):
    x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                 feature_group_count=x.shape[-1])
    return jnp.einsum("nhwc,cd->nhwd", jax.nn.relu6(x), p)


def lstm(xs, h, c, wx, wh):
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ wx + h @ wh, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
    return lax.scan(step, (h, c), xs)[1]


def gru(xs, h, wx, wh, wn):
    def step(h, x):
        r, z = jnp.split(jax.nn.sigmoid(x @ wx + h @ wh), 2, axis=-1)
        n = jnp.tanh(x @ wn + (r * h) @ wn)
        return (1 - z) * n + z * h, None
    return lax.scan(step, h, xs)[0]


def gru_step(xs, h, wx, wh, wn):
    return jax.grad(lambda *w: gru(xs, h, *w).sum(), argnums=(0, 1, 2))(wx, wh, wn)


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), (labels % logits.shape[-1])[:, None], axis=1)
    return -picked.mean()


def embedding_step(table, ids):
    return jax.grad(lambda t: (jnp.take(t, ids % t.shape[0], axis=0) ** 2).sum())(table)


def mlp_step(x, w1, w2, w3):
    def loss(w1, w2, w3):
        return ((jax.nn.gelu(jax.nn.gelu(x @ w1) @ w2) @ w3) ** 2).mean()
    g = jax.grad(loss, argnums=(0, 1, 2))(w1, w2, w3)
    return [w - 0.01 * d for w, d in zip((w1, w2, w3), g)]


def adam(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(jnp.abs(v)) + 1e-8), m, v


def chain(x, y):
    for _ in range(4):
        x = jnp.tanh(x * y + 0.5) * jnp.exp(-jnp.abs(x)) + jnp.log1p(x * x)
    return x


def layer_norm(x, g, b):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6) * g + b


def batch_norm_step(x, g, b):
    def loss(x, g, b):
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (((x - mean) * lax.rsqrt(var + 1e-5) * g + b) ** 3).sum()
    return jax.grad(loss, argnums=(0, 1, 2))(x, g, b)


def pool_step(x):
    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME").sum()
    return jax.grad(pool)(x)


def average_pool(x):
    return lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9


def decode(x, wq, wk, wv, wo, up, down):
    q, k, v = x @ wq, x @ wk, x @ wv
    a = jax.nn.softmax(q * k, axis=-1) * v
    x = x + a @ wo
    return x + jax.nn.silu(x @ up) @ down


def normal(seed):
    return jax.random.normal(jax.random.wrap_key_data(seed), (1 << 18,))


def shuffle(seed, x):
    return jax.random.permutation(jax.random.wrap_key_data(seed), x)


def heat(x):
    def step(_, x):
        return x + 0.1 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4 * x)
    return lax.fori_loop(0, 50, step, x)


def small_batched(a, b, c):
    return jnp.einsum("bij,bjk,bkl->bil", a, b, c)


def scan_matmul(x, w):
    return lax.scan(lambda h, _: (jnp.tanh(h @ w), h.sum()), x, None, length=100)


def topk_sampling(logits):
    values, index = lax.top_k(logits, 40)
    return jax.nn.softmax(values), index


def cholesky_solve(a, b):
    m = a @ jnp.swapaxes(a, -1, -2) + 4 * jnp.eye(a.shape[-1], dtype=a.dtype)
    return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(m), True), b)


def of(*shape, dtype=f32):
    return jax.ShapeDtypeStruct(shape, dtype)


def like(dtype, *shapes):
    return [of(*s, dtype=dtype) for s in shapes]


SUITE = {
    "adam_4m": (adam, like(f32, *[(4 << 20,)] * 4)),
    "attention_bf16": (attention, like(bf16, *[(2, 256, 8, 64)] * 3)),
    "attention_f32": (attention, like(f32, *[(2, 256, 8, 64)] * 3)),
    "attention_step_f32": (attention_step, like(f32, *[(2, 128, 8, 64)] * 3)),
    "average_pool": (average_pool, like(f32, (4, 64, 64, 64))),
    "batch_norm_step": (batch_norm_step, like(f32, (8, 32, 32, 64), (64,), (64,))),
    "chain_1m": (chain, like(f32, (1 << 20,), (1 << 20,))),
    "cholesky_solve_f32": (cholesky_solve, like(f32, (16, 64, 64), (16, 64, 8))),
    "conv_net": (conv_net, like(f32, (4, 64, 64, 3), (7, 7, 3, 32), (3, 3, 32, 64), (3, 3, 64, 64))),
    "conv_net_step": (conv_net_step, like(f32, (4, 64, 64, 3), (7, 7, 3, 32), (3, 3, 32, 64), (3, 3, 64, 64))),
    "cross_entropy": (cross_entropy, [of(256, 32000), of(256, dtype=i32)]),
    "cumlogsumexp_rows": (lambda x: lax.cumlogsumexp(x, axis=1), like(f32, (128, 2048))),
    "cumprod_step": (jax.grad(lambda x: (jnp.cumprod(x) ** 2).sum()), like(f32, (65536,))),
    "cumsum_columns": (lambda x: jnp.cumsum(x, axis=0), like(f32, (2048, 512))),
    "cumsum_rows": (lambda x: jnp.cumsum(x, axis=1), like(f32, (512, 4096))),
    "decode_bf16": (decode, like(bf16, (1, 1024), *[(1024, 1024)] * 4, (1024, 4096), (4096, 1024))),
    "decode_f32_b4": (decode, like(f32, (4, 1024), *[(1024, 1024)] * 4, (1024, 4096), (4096, 1024))),
    "depthwise_bf16": (depthwise, like(bf16, (4, 56, 56, 96), (3, 3, 1, 96), (96, 128))),
    "depthwise_f32": (depthwise, like(f32, (4, 56, 56, 96), (3, 3, 1, 96), (96, 128))),
    "embedding_step": (embedding_step, [of(50000, 128), of(4096, dtype=i32)]),
    "fft2": (lambda x: jnp.abs(jnp.fft.fft2(x)), like(f32, (8, 256, 256))),
    "gather_rows": (lambda t, i: jnp.take(t, i % t.shape[0], axis=0), [of(100000, 64), of(20000, dtype=i32)]),
    "gru_step": (gru_step, like(f32, (50, 16, 64), (16, 64), (64, 128), (64, 128), (64, 64))),
    "heat_stencil": (heat, like(f32, (512, 512))),
    "layer_norm_f32": (layer_norm, like(f32, (2048, 768), (768,), (768,))),
    "images_to_nchw": (lambda x: (x.astype(f32) / 255 - 0.5).transpose(0, 3, 1, 2), like(jnp.uint8, (8, 224, 224, 3))),
    "lstm": (lstm, like(f32, (64, 16, 128), (16, 128), (16, 128), (128, 512), (128, 512))),
    "matmul_bf16": (jnp.matmul, like(bf16, (512, 1024), (1024, 512))),
    "matmul_f32": (jnp.matmul, like(f32, (512, 512), (512, 512))),
    "matmul_s8": (lambda a, b: lax.dot(a, b, preferred_element_type=i32), like(jnp.int8, (256, 1024), (1024, 256))),
    "mlp_step": (mlp_step, like(f32, (128, 256), (256, 512), (512, 512), (512, 64))),
    "normal_256k": (normal, [of(2, dtype=jnp.uint32)]),
    "pool_step": (pool_step, like(f32, (4, 56, 56, 64))),
    "quantiles": (lambda x: jnp.sort(x, axis=0), like(f32, (4096, 64))),
    "scan_matmul_64": (scan_matmul, like(f32, (64, 64), (64, 64))),
    "shuffle": (shuffle, [of(2, dtype=jnp.uint32), of(100000)]),
    "small_batched_16": (small_batched, like(f32, *[(512, 16, 16)] * 3)),
    "small_batched_6_f64": (small_batched, like(jnp.float64, *[(1000, 6, 6)] * 3)),
    "softmax_rows": (lambda x: jax.nn.softmax(x, axis=-1), like(f32, (1024, 4096))),
    "softmax_columns": (lambda x: jax.nn.softmax(x, axis=0), like(f32, (4096, 256))),
    "sum_bf16": (lambda x: x.sum(), like(bf16, (2048, 2048))),
    "sum_columns": (lambda x: x.sum(0), like(f32, (4096, 1024))),
    "topk_sampling": (topk_sampling, like(f32, (16, 32000))),
    "transpose_0213": (lambda x: x.transpose(0, 2, 1, 3), like(f32, (8, 128, 96, 64))),
    "transpose_10": (lambda x: x.T + 1, like(f32, (2048, 1024))),
}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    jax.config.update("jax_enable_x64", True)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name in sys.argv[2:] or SUITE:
        function, args = SUITE[name]
        text = jax.jit(function).lower(*args).compiler_ir("hlo").as_hlo_text(print_large_constants=True)
        with open(os.path.join(sys.argv[1], name + ".hlo"), "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
