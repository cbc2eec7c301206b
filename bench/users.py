#!/usr/bin/env python3
"""Programs in the style of the libraries that JAX's users build on: flax, optax, diffrax, lineax, numpyro, blackjax, distrax, jax.experimental.sparse,
ott, brax, jax-md, netket, XLB, veros, e3nn, evosax, jaxley and others.  Each is written here in plain JAX, in the shape in which the library leaves it to
the compiler: its loops, its batches, its custom calls.  Runs and options are those of jax_programs.py.

    PJRT_NAMES_AND_LIBRARY_PATHS=weft:build-opt/.libs/pjrt_weft.so python bench/users.py [--rounds N] [-k WORD]
"""
import math

import jax_programs
from jax_programs import adam, adam_state, layer_norm, main, normal, program, weights
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import sparse
from jax.scipy.special import logsumexp

jax_programs.PROGRAMS.clear()  # those have a run of their own


def uniform(seed, low, high, *shape):
    return np.random.RandomState(seed).uniform(low, high, shape).astype(np.float32)


# -- flax, optax: networks ----------------------------------------------------------------------------------------------
@program
def flax_gpt2_decode():
    """Twelve tokens, one at a time, with a cache of keys and values; the vocabulary's product reads most of the bytes."""
    layers, heads, d, vocabulary, length = 4, 4, 256, 5000, 64
    w = {"embed": weights(0, vocabulary, d), "qkv": weights(1, layers, d, 3 * d), "out": weights(2, layers, d, d),
         "up": weights(3, layers, d, 4 * d), "down": weights(4, layers, 4 * d, d), "n": np.ones((layers, d), np.float32)}

    def run(w, tokens, keys, values):
        def token(carry, at):
            tokens, keys, values = carry
            x = w["embed"][tokens]

            def layer(x, k):
                qkv, out, up, down, n, key, value = k
                q, k1, v1 = jnp.split((layer_norm(x, n) @ qkv).reshape(-1, heads, 3 * d // heads), 3, -1)
                key, value = (lax.dynamic_update_slice(c, a[:, None], (0, at, 0, 0)) for c, a in ((key, k1), (value, v1)))
                s = jnp.einsum("bhd,bthd->bht", q, key) / math.sqrt(d // heads)
                p = jax.nn.softmax(jnp.where(jnp.arange(length) <= at, s, -1e9), -1)
                x = x + jnp.einsum("bht,bthd->bhd", p, value).reshape(x.shape) @ out
                return x + jax.nn.gelu(layer_norm(x, n) @ up) @ down, (key, value)

            x, (keys, values) = lax.scan(layer, x, (w["qkv"], w["out"], w["up"], w["down"], w["n"], keys, values))
            tokens = jnp.argmax(x @ w["embed"].T, -1).astype(jnp.int32)
            return (tokens, keys, values), tokens

        return lax.scan(token, (tokens, keys, values), jnp.arange(12))[1]

    cache = np.zeros((layers, 2, length, heads, d // heads), np.float32)
    return run, (w, np.array([3, 7], np.int32), cache, cache)


@program
def flax_vision_transformer_step():
    layers, d, heads = 3, 192, 3
    w = {"patch": weights(0, 8 * 8 * 3, d), "place": normal(1, 17, d, scale=0.02), "qkv": weights(2, layers, d, 3 * d), "out": weights(3, layers, d, d),
         "up": weights(4, layers, d, 4 * d), "down": weights(5, layers, 4 * d, d), "n": np.ones((layers, 2, d), np.float32), "head": weights(6, d, 10)}

    def loss(w, images, labels):
        b = images.shape[0]
        x = images.reshape(b, 4, 8, 4, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, 16, -1) @ w["patch"]
        x = jnp.concatenate([jnp.zeros((b, 1, d), x.dtype), x], 1) + w["place"]
        for i in range(layers):
            q, k, v = jnp.split((layer_norm(x, w["n"][i, 0]) @ w["qkv"][i]).reshape(b, 17, heads, -1), 3, -1)
            p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(d // heads), -1)
            x = x + jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(x.shape) @ w["out"][i]
            x = x + jax.nn.gelu(layer_norm(x, w["n"][i, 1]) @ w["up"][i], approximate=False) @ w["down"][i]
        return jax_programs.cross_entropy(x[:, 0] @ w["head"], labels)

    return adam(loss), (adam_state(w), normal(7, 16, 32, 32, 3), np.arange(16, dtype=np.int32) % 10)


@program
def flax_unet_step():
    w = [weights(i, 3, 3, a, b) for i, (a, b) in enumerate(((3, 16), (16, 32), (32, 64), (64 + 32, 32), (32 + 16, 16), (16, 3)))]

    def norm(x):
        g = x.reshape(*x.shape[:3], 8, -1)
        g = (g - g.mean((1, 2, 4), keepdims=True)) * lax.rsqrt(g.var((1, 2, 4), keepdims=True) + 1e-5)
        return jax.nn.silu(g.reshape(x.shape))

    def double(x):
        return jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "nearest")

    def loss(w, x, noise):
        a = norm(jax_programs.conv(x + noise, w[0]))
        b = norm(jax_programs.conv(a, w[1], 2))
        c = norm(jax_programs.conv(b, w[2], 2))
        b = norm(jax_programs.conv(jnp.concatenate([double(c), b], -1), w[3]))
        a = norm(jax_programs.conv(jnp.concatenate([double(b), a], -1), w[4]))
        return jnp.mean((jax_programs.conv(a, w[5]) - noise) ** 2)

    return jax.value_and_grad(loss), (w, normal(10, 4, 32, 32, 3), normal(11, 4, 32, 32, 3))


@program
def optax_shampoo_like_preconditioner():
    """Inverse fourth roots of statistics by Newton's iteration, a batch of products and traces in a loop."""
    def run(g):
        a = jnp.einsum("bij,bkj->bik", g, g) + 0.1 * jnp.eye(32)
        z = (1 + 4) / (2 * jnp.sqrt((a * a).sum((1, 2))))
        eye = jnp.eye(32)

        def step(_, c):
            m, h = c
            k = (5 * eye - m) / 4
            k2 = k @ k
            return k2 @ k2 @ m, h @ k

        return lax.fori_loop(0, 12, step, (a * z[:, None, None], eye * z[:, None, None] ** 0.25))[1] @ g

    return run, (normal(0, 16, 32, 32),)


@program
def s5_sequence_layer():
    def run(x, re, im, b, c):
        a = jnp.exp((-jnp.exp(re) + 1j * im) * 0.05)
        u = (x.astype(jnp.complex64) @ b) * (1 - a)

        def join(l, r):
            return l[0] * r[0], r[0] * l[1] + r[1]

        states = lax.associative_scan(join, (jnp.broadcast_to(a, u.shape), u))[1]
        return jax.nn.gelu((states @ c).real)

    return run, (normal(0, 512, 64), normal(1, 64), normal(2, 64), weights(3, 64, 64).astype(np.complex64), weights(4, 64, 64).astype(np.complex64))


# -- diffrax, lineax, optimistix: equations -----------------------------------------------------------------------------
def robertson(y):
    a, b, c = y[..., 0], y[..., 1], y[..., 2]
    r1, r2, r3 = 0.04 * a, 1e4 * b * c, 3e7 * b * b
    return jnp.stack([r2 - r1, r1 - r2 - r3, r3], -1)


@program
def diffrax_stiff_batch():
    """An implicit step by Newton's method with LU of 3x3 matrices, 64 systems at a time."""
    def run(y):
        def step(y, _):
            h = 1e-4
            jacobian = jax.jacfwd(robertson)
            factors = jax.vmap(lambda y: jax.scipy.linalg.lu_factor(jnp.eye(3) - h * jacobian(y)))(y)

            def newton(_, z):
                return z - jax.vmap(lambda lu, p, r: jax.scipy.linalg.lu_solve((lu, p), r))(*factors, z - y - h * robertson(z))

            return lax.fori_loop(0, 3, newton, y), None

        return lax.scan(step, y, None, 40)[0]

    return run, (np.concatenate([uniform(0, 0.5, 1, 64, 1), np.zeros((64, 2), np.float32)], 1),)


@program
def diffrax_neural_ode_gradient():
    w = [weights(0, 8, 64), weights(1, 64, 8)]

    def field(w, y):
        return jnp.tanh(y @ w[0]) @ w[1]

    def loss(w, y):
        def step(y, _):
            h = 0.05
            k1 = field(w, y)
            k2 = field(w, y + h / 2 * k1)
            k3 = field(w, y + h / 2 * k2)
            k4 = field(w, y + h * k3)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        return jnp.mean(lax.scan(jax.checkpoint(step), y, None, 50)[0] ** 2)

    return jax.value_and_grad(loss), (w, normal(3, 32, 8))


@program
def diffrax_adaptive_batch():
    """Bogacki and Shampine's method with a step size of its own for each system: a while loop whose condition looks at all."""
    def f(y):
        return jnp.stack([y[..., 1], 5 * (1 - y[..., 0] ** 2) * y[..., 1] - y[..., 0]], -1)

    def run(y):
        def step(c):
            y, t, h, n = c
            k1 = f(y)
            k2 = f(y + 0.5 * h[:, None] * k1)
            k3 = f(y + 0.75 * h[:, None] * k2)
            z = y + h[:, None] * (2 * k1 + 3 * k2 + 4 * k3) / 9
            e = h[:, None] * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - f(z) / 8)
            e = jnp.sqrt(jnp.mean((e / (1e-4 + 1e-3 * jnp.maximum(jnp.abs(y), jnp.abs(z)))) ** 2, -1))
            good = (e < 1) & (t < 5)
            factor = jnp.clip(0.9 * jnp.maximum(e, 1e-8) ** (-1 / 3), 0.2, 5)
            return jnp.where(good[:, None], z, y), jnp.where(good, t + h, t), jnp.minimum(h * factor, 5.001 - t), n + 1

        zero = jnp.zeros(y.shape[0])
        return lax.while_loop(lambda c: jnp.any(c[1] < 5) & (c[3] < 2000), step, (y, zero, zero + 0.01, 0))[0]

    return run, (normal(0, 100, 2),)


@program
def diffrax_sde_paths():
    def run(key, y):
        def step(y, k):
            return y + 0.01 * (1.5 * (0.04 - y)) + 0.2 * jnp.sqrt(jnp.maximum(y, 0)) * 0.1 * jax.random.normal(k, y.shape), None

        return lax.scan(step, y, jax.random.split(key, 100))[0]

    return run, (np.array([0, 7], np.uint32), uniform(1, 0.01, 0.1, 4096))


@program
def lineax_gmres():
    def run(a, b):
        return jax.scipy.sparse.linalg.gmres(lambda x: a @ x, b, restart=10, maxiter=3)[0]

    return run, (np.eye(128, dtype=np.float32) + 0.05 * normal(0, 128, 128), normal(1, 128))


@program
def optimistix_levenberg_marquardt():
    t = np.linspace(0, 4, 64, dtype=np.float32)

    def residual(p, y):
        return p[0] * jnp.exp(-p[1] * t) * jnp.cos(p[2] * t + p[3]) - y

    def run(p, y):
        def step(c, _):
            p, damping = c
            r, j = residual(p, y), jax.jacfwd(residual)(p, y)
            d = jnp.linalg.solve(j.T @ j + damping * jnp.eye(4), -j.T @ r)
            better = jnp.sum(residual(p + d, y) ** 2) < jnp.sum(r * r)
            return (jnp.where(better, p + d, p), jnp.where(better, damping / 3, damping * 2)), None

        return lax.scan(step, (p, 1.0), None, 30)[0][0]

    return jax.vmap(run), (np.tile(np.array([1, 0.5, 2, 0], np.float32), (32, 1)), normal(0, 32, 64))


# -- numpyro, blackjax, distrax: probability ----------------------------------------------------------------------------
@program
def numpyro_hidden_markov_3():
    """The forward algorithm with three states: an iteration is a logsumexp over 3x3."""
    def run(transition, emission, seen):
        def step(alpha, x):
            return logsumexp(alpha[:, None] + transition, 0) + emission[:, x], None

        return logsumexp(lax.scan(step, emission[:, seen[0]] - math.log(3), seen[1:])[0])

    return jax.value_and_grad(run, (0, 1)), (np.log(np.full((3, 3), 1 / 3, np.float32)), np.log(np.full((3, 10), 0.1, np.float32)),
                                             np.random.RandomState(0).randint(0, 10, 1000).astype(np.int32))


@program
def numpyro_hierarchical_hmc():
    """Leapfrog steps on a regression whose groups share a prior, four chains."""
    groups = np.random.RandomState(0).randint(0, 20, 500).astype(np.int32)
    x, y = normal(1, 500), normal(2, 500)

    def energy(q):
        mean, log_scale, slopes = q[0], q[1], q[2:]
        fit = -0.5 * jnp.sum((y - slopes[groups] * x) ** 2)
        return -(fit - 0.5 * jnp.sum(((slopes - mean) / jnp.exp(log_scale)) ** 2) - 20 * log_scale - 0.5 * (mean ** 2 + log_scale ** 2))

    def run(q, p):
        gradient = jax.vmap(jax.grad(energy))

        def step(c, _):
            q, p = c
            p = p - 0.005 * gradient(q)
            q = q + 0.01 * p
            return (q, p - 0.005 * gradient(q)), None

        return lax.scan(step, (q, p), None, 32)[0]

    return run, (normal(3, 4, 22, scale=0.1), normal(4, 4, 22))


@program
def gpjax_marginal_likelihood():
    x = np.sort(uniform(0, 0, 10, 200))

    def loss(p, y):
        k = jnp.exp(p[0]) * jnp.exp(-0.5 * ((x[:, None] - x[None]) * jnp.exp(-p[1])) ** 2) + (jnp.exp(p[2]) + 1e-3) * jnp.eye(200)
        l = jnp.linalg.cholesky(k)
        a = jax.scipy.linalg.solve_triangular(l, y, lower=True)
        return 0.5 * jnp.sum(a * a) + jnp.sum(jnp.log(jnp.diagonal(l)))

    return jax.value_and_grad(loss), (np.array([0, 0, -2], np.float32), np.sin(x))


@program
def blackjax_tempered_particles():
    def density(x):
        return logsumexp(jnp.stack([-0.5 * jnp.sum((x - m) ** 2, -1) for m in (-2.0, 0.0, 2.0)]), 0)

    def run(key, x):
        def temper(c, at):
            x, key = c
            key, a, b, d = jax.random.split(key, 4)
            logw = 0.1 * density(x)
            x = x[jax.random.categorical(a, logw, shape=(x.shape[0],))]
            proposed = x + 0.5 * jax.random.normal(b, x.shape)
            accept = jnp.log(jax.random.uniform(d, (x.shape[0],))) < at * (density(proposed) - density(x))
            return (jnp.where(accept[:, None], proposed, x), key), logsumexp(logw)

        return lax.scan(temper, (x, key), jnp.linspace(0.1, 1, 10))

    return run, (np.array([0, 3], np.uint32), normal(1, 1000, 4))


@program
def distrax_coupling_flow_step():
    w = [(weights(i, 8, 64), weights(10 + i, 64, 16)) for i in range(6)]

    def loss(w, x):
        total = 0.0
        for i, (a, b) in enumerate(w):
            still, moved = jnp.split(x, 2, -1)[::1 if i % 2 else -1]
            shift, scale = jnp.split(jnp.tanh(still @ a) @ b, 2, -1)
            moved = moved * jnp.exp(jnp.tanh(scale)) + shift
            x = jnp.concatenate([still, moved][::1 if i % 2 else -1], -1)
            total = total + jnp.tanh(scale).sum(-1)
        return jnp.mean(0.5 * jnp.sum(x * x, -1) - total)

    return jax.value_and_grad(loss), (w, normal(20, 256, 16))


@program
def distrax_spline_bins():
    """Rational-quadratic splines: each value searches its bin and takes what belongs to it."""
    def run(x, widths, heights, slopes):
        w = jnp.cumsum(jax.nn.softmax(widths, -1), -1)
        h = jnp.cumsum(jax.nn.softmax(heights, -1), -1)
        s = jax.nn.softplus(slopes) + 1e-3
        at = jnp.clip(jnp.sum(x[..., None] >= w, -1), 0, 7)[..., None]

        def pick(a):
            return jnp.take_along_axis(a, at, -1)[..., 0]

        left, low = pick(jnp.pad(w, ((0, 0), (1, 0)))[:, :-1]), pick(jnp.pad(h, ((0, 0), (1, 0)))[:, :-1])
        width, height, d0, d1 = pick(w) - left, pick(h) - low, pick(s[:, :-1]), pick(s[:, 1:])
        t, slope = (x - left) / width, height / width
        return low + height * (slope * t * t + d0 * t * (1 - t)) / (slope + (d0 + d1 - 2 * slope) * t * (1 - t))

    return run, (uniform(0, 0, 1, 8192), normal(1, 8192, 8), normal(2, 8192, 8), normal(3, 8192, 9))


# -- sparse matrices, transport -----------------------------------------------------------------------------------------
@program
def bcoo_products():
    rows = np.random.RandomState(0).randint(0, 2000, (20000, 2)).astype(np.int32)

    def run(values, x):
        a = sparse.BCOO((values, rows), shape=(2000, 2000))
        return lax.fori_loop(0, 5, lambda _, x: jnp.tanh(a @ x), x)

    return run, (normal(1, 20000, scale=0.3), normal(2, 2000))


@program
def bcoo_by_dense():
    rows = np.random.RandomState(0).randint(0, 1000, (8000, 2)).astype(np.int32)

    def run(values, x):
        return sparse.BCOO((values, rows), shape=(1000, 1000)) @ x

    return run, (normal(1, 8000), normal(2, 1000, 64))


@program
def ott_point_cloud_sinkhorn():
    def run(x, y):
        cost = jnp.sum(x * x, -1)[:, None] + jnp.sum(y * y, -1)[None] - 2 * x @ y.T
        eps = 0.05

        def step(_, c):
            f, g = c
            f = -eps * (logsumexp((g[None] - cost) / eps, 1) - math.log(256))
            return f, -eps * (logsumexp((f[:, None] - cost) / eps, 0) - math.log(256))

        f, g = lax.fori_loop(0, 20, step, (jnp.zeros(256), jnp.zeros(256)))
        return jnp.sum(jnp.exp((f[:, None] + g[None] - cost) / eps) * cost)

    return run, (uniform(0, 0, 1, 256, 3), uniform(1, 0, 1, 256, 3))


# -- physics ------------------------------------------------------------------------------------------------------------
@program
def brax_chain_rollout():
    """A chain of bodies held by springs, with contacts, in 256 copies and 50 steps."""
    def run(x, v):
        def step(c, _):
            x, v = c
            d = x[:, 1:] - x[:, :-1]
            length = jnp.sqrt(jnp.sum(d * d, -1, keepdims=True) + 1e-8)
            pull = 50 * (length - 0.2) * d / length
            f = jnp.pad(pull, ((0, 0), (0, 1), (0, 0))) - jnp.pad(pull, ((0, 0), (1, 0), (0, 0)))
            f = f + jnp.array([0, 0, -9.81]) + jnp.where(x[..., 2:] < 0, -200 * x[..., 2:], 0) * jnp.array([0, 0, 1.0])
            v = (v + 0.005 * f) * 0.999
            return (x + 0.005 * v, v), None

        return lax.scan(step, (x, v), None, 50)[0]

    return run, (normal(0, 256, 9, 3), np.zeros((256, 9, 3), np.float32))


@program
def brax_quaternion_joints():
    def multiply(a, b):
        w1, x1, y1, z1 = (a[..., i] for i in range(4))
        w2, x2, y2, z2 = (b[..., i] for i in range(4))
        return jnp.stack([w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2, w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
                          w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2, w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2], -1)

    def run(q, spin):
        def step(q, _):
            q = q + 0.005 * multiply(jnp.pad(spin, ((0, 0), (0, 0), (1, 0))), q)
            return q / jnp.linalg.norm(q, axis=-1, keepdims=True), None

        return lax.scan(step, q, None, 50)[0]

    return run, (normal(0, 256, 9, 4), normal(1, 256, 9, 3))


@program
def jax_md_neighbour_forces():
    neighbours = np.random.RandomState(0).randint(0, 1000, (1000, 30)).astype(np.int32)

    def energy(r):
        d = r[:, None] - r[neighbours]
        d = d - 10 * jnp.round(d / 10)
        r2 = jnp.sum(d * d, -1)
        i6 = jnp.where(r2 < 9, 1 / jnp.maximum(r2, 0.5) ** 3, 0)
        return 2 * jnp.sum(i6 * i6 - i6)

    return lambda r: -jax.grad(energy)(r), (uniform(1, 0, 10, 1000, 3),)


@program
def netket_local_energies():
    """A restricted Boltzmann machine's energy of a spin chain: each sample with each of its flipped neighbours."""
    def amplitude(w, s):
        return jnp.sum(jnp.log(jnp.cosh(s @ w["w"] + w["b"])), -1) + s @ w["a"]

    def run(w, s):
        flipped = s[:, None] * (1 - 2 * jnp.eye(20))
        ratio = jnp.exp(jax.vmap(lambda f: amplitude(w, f), 1, 1)(flipped) - amplitude(w, s)[:, None])
        return -jnp.sum(s * jnp.roll(s, 1, -1), -1) - ratio.sum(-1)

    return run, ({"w": normal(0, 20, 40, scale=0.1), "b": normal(1, 40, scale=0.1), "a": normal(2, 20, scale=0.1)},
                 np.sign(normal(3, 256, 20)))


@program
def xlb_lattice_boltzmann_d3q19():
    c = np.array([(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if abs(x) + abs(y) + abs(z) < 3])
    w = np.array([(1 / 3, 1 / 18, 1 / 36)[np.abs(v).sum()] for v in c], np.float32)
    cf = c.astype(np.float32)

    def run(f):
        def step(f, _):
            rho = f.sum(0)
            u = jnp.tensordot(cf.T, f, 1) / rho
            cu = jnp.tensordot(cf, u, 1)
            equilibrium = rho * w[:, None, None, None] * (1 + 3 * cu + 4.5 * cu * cu - 1.5 * (u * u).sum(0))
            f = f - 1.6 * (f - equilibrium)
            return jnp.stack([jnp.roll(f[i], tuple(c[i]), (0, 1, 2)) for i in range(19)]), None

        return lax.scan(step, f, None, 4)[0]

    return run, ((w[:, None, None, None] * (1 + 0.01 * normal(0, 19, 24, 24, 24))).astype(np.float32),)


@program
def veros_ocean_columns():
    """Vertical mixing: a tridiagonal system in each column, by the custom call, between stencils."""
    def run(t, k):
        def step(t, _):
            flow = jnp.pad(k[:, :, 1:] * (t[:, :, 1:] - t[:, :, :-1]), ((0, 0), (0, 0), (1, 1)))
            t = t + 0.1 * (flow[:, :, 1:] - flow[:, :, :-1])
            t = t + 0.05 * (jnp.roll(t, 1, 0) + jnp.roll(t, -1, 0) + jnp.roll(t, 1, 1) + jnp.roll(t, -1, 1) - 4 * t)
            low = jnp.pad(-k[:, :, 1:], ((0, 0), (0, 0), (1, 0)))
            up = jnp.pad(-k[:, :, 1:], ((0, 0), (0, 0), (0, 1)))
            return lax.linalg.tridiagonal_solve(low, 1 - low - up, up, t[..., None])[..., 0], None

        return lax.scan(step, t, None, 5)[0]

    return run, (normal(0, 32, 32, 40), uniform(1, 0.1, 1, 32, 32, 40))


@program
def jax_cfd_advection():
    def run(u, v):
        def derivative(a, axis):
            return 0.5 * (jnp.roll(a, -1, axis) - jnp.roll(a, 1, axis))

        def step(c, _):
            u, v = c
            lap = [sum(jnp.roll(a, s, x) for s in (1, -1) for x in (0, 1)) - 4 * a for a in (u, v)]
            u, v = (a - 0.1 * (u * derivative(a, 0) + v * derivative(a, 1)) + 0.02 * l for a, l in ((u, lap[0]), (v, lap[1])))
            return (u, v), None

        return lax.scan(step, (u, v), None, 20)[0]

    return run, (normal(0, 128, 128, scale=0.1), normal(1, 128, 128, scale=0.1))


@program
def jaxley_cable_neurons():
    """Hodgkin and Huxley's gates in 100 neurons of 32 compartments, the voltages by a tridiagonal sweep."""
    def run(v, m, h, n):
        def sweep(diagonal, right):
            def forward(c, x):
                d, r = x
                cp = -0.1 / (d + 0.1 * c[0])
                dp = (r + 0.1 * c[1]) / (d + 0.1 * c[0])
                return (cp, dp), (cp, dp)

            zero = jnp.zeros(right.shape[1])
            _, (cp, dp) = lax.scan(forward, (zero, zero), (diagonal, right))
            return lax.scan(lambda x, c: (c[1] - c[0] * x,) * 2, zero, (cp, dp), reverse=True)[1]

        def step(c, _):
            v, m, h, n = c
            am, bm = 0.1 * (v + 40) / (1 - jnp.exp(-(v + 40.01) / 10)), 4 * jnp.exp(-(v + 65) / 18)
            ah, bh = 0.07 * jnp.exp(-(v + 65) / 20), 1 / (1 + jnp.exp(-(v + 35) / 10))
            an, bn = 0.01 * (v + 55) / (1 - jnp.exp(-(v + 55.01) / 10)), 0.125 * jnp.exp(-(v + 65) / 80)
            m, h, n = (x + (a / (a + b) - x) * (1 - jnp.exp(-0.025 * (a + b))) for x, a, b in ((m, am, bm), (h, ah, bh), (n, an, bn)))
            g = 120 * m ** 3 * h + 36 * n ** 4 + 0.3
            i = 120 * m ** 3 * h * 50 - 36 * n ** 4 * 77 - 0.3 * 54.4 + 10
            return (sweep(1 + 0.025 * g + 0.2, v + 0.025 * i), m, h, n), None

        return lax.scan(step, (v, m, h, n), None, 10)[0]

    start = np.full((32, 100), 0.3, np.float32)
    return run, (np.full((32, 100), -65, np.float32) + normal(0, 32, 100), start, start, start)


# -- geometry, search ---------------------------------------------------------------------------------------------------
@program
def e3nn_tensor_product():
    coupling = normal(0, 9, 9, 9)

    def run(x, y, w):
        return jnp.einsum("eui,ej,ijk,euv->evk", x, y, coupling, w)

    return run, (normal(1, 256, 8, 9), normal(2, 256, 9), normal(3, 256, 8, 8))


@program
def alphafold_triangle_update():
    def run(z, wa, wb, wg, wo):
        z = layer_norm(z, jnp.ones(z.shape[-1]))
        a, b = jax.nn.sigmoid(z @ wg) * (z @ wa), jax.nn.sigmoid(z @ wg) * (z @ wb)
        return layer_norm(jnp.einsum("ikc,jkc->ijc", a, b), jnp.ones(wa.shape[1])) @ wo

    return run, (normal(0, 64, 64, 32), weights(1, 32, 32), weights(2, 32, 32), weights(3, 32, 32), weights(4, 32, 32))


@program
def nerf_volume_render():
    def run(w, origin, direction):
        t = jnp.linspace(0.5, 4, 48)
        p = origin[:, None] + t[:, None] * direction[:, None]
        angles = (p[..., None] * 2.0 ** jnp.arange(6)).reshape(*p.shape[:-1], -1)
        x = jnp.concatenate([p, jnp.sin(angles), jnp.cos(angles)], -1)
        out = jax.nn.relu(x @ w[0]) @ w[1]
        alpha = 1 - jnp.exp(-jax.nn.softplus(out[..., 3]) * (t[1] - t[0]))
        seen = jnp.cumprod(jnp.concatenate([jnp.ones_like(alpha[:, :1]), 1 - alpha[:, :-1] + 1e-7], 1), 1)
        return jnp.sum((alpha * seen)[..., None] * jax.nn.sigmoid(out[..., :3]), 1)

    return run, ((weights(0, 39, 64), weights(1, 64, 4)), normal(2, 256, 3), normal(3, 256, 3))


@program
def evosax_cma_generation():
    def run(key, mean, c, sigma):
        values, vectors = jnp.linalg.eigh(c)
        z = jax.random.normal(key, (64, 32))
        x = mean + sigma * (z * jnp.sqrt(jnp.maximum(values, 1e-12))) @ vectors.T
        fitness = jnp.sum(x * x, -1) + 10 * jnp.sum(1 - jnp.cos(2 * math.pi * x), -1)
        best = x[jnp.argsort(fitness)[:16]]
        steps = (best - mean) / sigma
        return best.mean(0), 0.8 * c + 0.2 * steps.T @ steps / 16

    return run, (np.array([0, 5], np.uint32), normal(0, 32), np.eye(32, dtype=np.float32), np.float32(0.5))


@program
def mctx_tree_search():
    """Eight simulations of a tree search over 32 batches: descents by while loops, scatters into the tree."""
    batch, actions, nodes = 32, 4, 9

    def run(prior, value):
        def simulate(tree, at):
            visits, total, child = tree

            def descend(c):
                node, action, _ = c
                n, q = visits[jnp.arange(batch), node], total[jnp.arange(batch), node]
                score = q / jnp.maximum(n, 1) + prior * jnp.sqrt(n.sum(-1, keepdims=True) + 1) / (1 + n)
                chosen = jnp.argmax(score, -1)
                following = child[jnp.arange(batch), node, chosen]
                go = following >= 0
                return jnp.where(go, following, node), jnp.where(go, action, chosen), go

            zero = jnp.zeros(batch, jnp.int32)
            node, action, _ = lax.while_loop(lambda c: jnp.any(c[2]), descend, (zero, zero, jnp.ones(batch, bool)))
            b = jnp.arange(batch)
            return (visits.at[b, node, action].add(1), total.at[b, node, action].add(value[:, at]), child.at[b, node, action].set(at + 1)), None

        shape = (batch, nodes, actions)
        tree = jnp.zeros(shape), jnp.zeros(shape), jnp.full(shape, -1, jnp.int32)
        return lax.scan(simulate, tree, jnp.arange(8))[0][0][:, 0]

    return run, (np.abs(normal(0, batch, actions)), normal(1, batch, 8))


@program
def haliax_named_moe_router():
    def run(x, router, up, down):
        gates = jax.nn.softmax(x @ router, -1)
        best, which = lax.top_k(gates, 2)
        best = best / best.sum(-1, keepdims=True)
        place = jnp.cumsum(jax.nn.one_hot(which.reshape(-1), 8, dtype=jnp.int32), 0)
        slot = jnp.take_along_axis(place, which.reshape(-1, 1), 1)[:, 0] - 1
        fits = slot < 96
        rows = jnp.repeat(jnp.arange(x.shape[0]), 2)
        experts = jnp.zeros((8, 96, x.shape[1])).at[which.reshape(-1), jnp.where(fits, slot, 96)].set(x[rows], mode="drop")
        y = jnp.einsum("ech,ehd->ecd", jax.nn.silu(jnp.einsum("ecd,edh->ech", experts, up)), down)
        back = y[which.reshape(-1), jnp.minimum(slot, 95)] * (best.reshape(-1) * fits)[:, None]
        return jnp.zeros_like(x).at[rows].add(back)

    return run, (normal(0, 256, 64), weights(1, 64, 8), weights(2, 8, 64, 128), weights(3, 8, 128, 64))


if __name__ == "__main__":
    main("Programs in the style of the libraries that JAX's users build on, Weft beside XLA:CPU")
