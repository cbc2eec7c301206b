#!/usr/bin/env python3
"""Further small programs as people write them with JAX: layers, science, signals, learning by reward, graphs, sparse matrices, images,
dynamic programming, sorting, integers, sampling.  Runs and options are those of jax_programs.py.

    PJRT_NAMES_AND_LIBRARY_PATHS=weft:build-opt/.libs/pjrt_weft.so python bench/jax_programs_small.py [--rounds N] [-k WORD]
"""
import jax_programs
from jax_programs import main, normal, program, weights
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax_programs.PROGRAMS.clear()  # those have a run of their own


def integers(seed, high, *shape):
    return np.random.RandomState(seed).randint(0, high, shape).astype(np.int32)


# -- layers -------------------------------------------------------------------------------------------------------------
@program
def rms_norm_swiglu():
    def run(x, scale, gate, up, down):
        y = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale
        return x + (jax.nn.silu(y @ gate) * (y @ up)) @ down

    return run, (normal(0, 64, 256), normal(1, 256), weights(2, 256, 688), weights(3, 256, 688), weights(4, 688, 256))


def stored_in_a_byte(name, dtype, rows):
    """A layer of a decoder whose weights are stored in a narrow type, with a scale for each of their columns."""
    def layer():
        def run(x, up, up_scale, down, down_scale):
            h = jax.nn.silu(x @ up.astype(x.dtype) * up_scale)
            return x + h @ (down.astype(x.dtype) * down_scale)

        def stored(seed, *shape):
            return np.clip(np.round(normal(seed, *shape) * 3), -7, 7).astype(dtype)

        def scales(seed, n):
            return (np.abs(normal(seed, n)) / 300).astype(jnp.bfloat16)

        return run, (normal(0, rows, 1024).astype(jnp.bfloat16), stored(1, 1024, 4096), scales(2, 4096), stored(3, 4096, 1024), scales(4, 1024))

    layer.__name__ = name
    return program(layer)


stored_in_a_byte("int8_weights_one_token", np.int8, 1)
stored_in_a_byte("int8_weights_8_tokens", np.int8, 8)
stored_in_a_byte("float8_weights_4_tokens", jnp.float8_e4m3fn, 4)


def stored_in_groups(name, dtype, low, high, group, rows, scale_type):
    """The layer above, whose weights have a zero point and a scale for each group of neighbouring rows of a column."""
    def layer():
        def weights_of(x, q, zero, scale):
            k, n = q.shape
            w = q.reshape(k // group, group, n).astype(scale.dtype) - zero[:, None].astype(scale.dtype)
            return (w * scale[:, None]).reshape(k, n).astype(x.dtype)

        def run(x, up, down):
            h = jax.nn.silu(x @ weights_of(x, *up))
            return x + h @ weights_of(x, *down)

        def stored(seed, k, n):
            r = np.random.RandomState(seed)
            return (r.randint(low, high, (k, n)).astype(dtype), r.randint(low, high, (k // group, n)).astype(dtype),
                    (r.uniform(0.5, 1.5, (k // group, n)) / (high - low) / 50).astype(scale_type))

        return run, (normal(0, rows, 1024).astype(jnp.bfloat16), stored(1, 1024, 4096), stored(2, 4096, 1024))

    layer.__name__ = name
    return program(layer)


stored_in_groups("int4_groups_of_32_one_token", jnp.uint4, 0, 16, 32, 1, jnp.bfloat16)
stored_in_groups("int4_groups_of_128_8_tokens", jnp.uint4, 0, 16, 128, 8, jnp.float32)
stored_in_groups("int8_zero_points_one_token", np.int8, -100, 100, 1024, 1, jnp.bfloat16)


@program
def int4_stack_in_a_scan():
    def run(x, q, scale):
        def layer(x, w):
            y = x @ (w[0].reshape(8, 128, 1024).astype(x.dtype) * w[1][:, None]).reshape(1024, 1024)
            return x + jnp.tanh(y), None
        return lax.scan(layer, x, (q, scale))[0]

    r = np.random.RandomState(0)
    return run, (normal(1, 1, 1024).astype(jnp.bfloat16), r.randint(-8, 8, (12, 1024, 1024)).astype(jnp.int4),
                 (r.uniform(0.5, 1.5, (12, 8, 1024)) / 200).astype(jnp.bfloat16))


@program
def rotary_embedding():
    def run(q, positions):
        angles = positions[:, None] * 10000.0 ** (-jnp.arange(0, 64, 2) / 64)
        sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
        a, b = q[..., ::2], q[..., 1::2]
        return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(q.shape)

    return run, (normal(0, 4, 256, 8, 64), np.arange(256, dtype=np.float32))


@program
def squeeze_excite():
    def run(x, w1, w2):
        s = jax.nn.sigmoid(jax.nn.relu(x.mean((1, 2)) @ w1) @ w2)
        return x * s[:, None, None, :]

    return run, (normal(0, 8, 28, 28, 128), weights(1, 128, 16), weights(2, 16, 128))


@program
def label_smoothing_gradient():
    def loss(logits, labels):
        soft = jax.nn.one_hot(labels, 1000) * 0.9 + 1e-4
        return -jnp.mean(jnp.sum(soft * jax.nn.log_softmax(logits), -1))

    return jax.grad(loss), (normal(0, 128, 1000), integers(1, 1000, 128))


@program
def contrastive_loss_step():
    def loss(w, a, b):
        a, b = a @ w, b @ w
        a, b = (v / jnp.linalg.norm(v, axis=-1, keepdims=True) for v in (a, b))
        logits = a @ b.T / 0.07
        own = jnp.diagonal(logits)
        return -jnp.mean(2 * own - jax.nn.logsumexp(logits, 0) - jax.nn.logsumexp(logits, 1))

    return jax.value_and_grad(loss), (weights(0, 128, 64), normal(1, 256, 128), normal(2, 256, 128))


@program
def gumbel_vector_quantizer():
    def run(key, x, codes):
        distance = jnp.sum(x ** 2, -1, keepdims=True) - 2 * x @ codes.T + jnp.sum(codes ** 2, -1)
        hard = jnp.argmax(-distance + jax.random.gumbel(key, distance.shape), -1)
        q = codes[hard]
        return x + lax.stop_gradient(q - x), jnp.mean((q - x) ** 2), jnp.bincount(hard, length=512)

    return run, (np.array([0, 7], np.uint32), normal(0, 1024, 32), normal(1, 512, 32))


@program
def spectral_norm_power_iteration():
    def run(w, u):
        def step(_, u):
            v = w.T @ u
            v = v / (jnp.linalg.norm(v) + 1e-12)
            u = w @ v
            return u / (jnp.linalg.norm(u) + 1e-12)
        u = lax.fori_loop(0, 10, step, u)
        return w / (u @ w @ (w.T @ u) / jnp.linalg.norm(w.T @ u)), u

    return run, (normal(0, 256, 192), normal(1, 256))


# -- science ------------------------------------------------------------------------------------------------------------
@program
def lattice_boltzmann_d2q9():
    velocity = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
    part = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)

    def run(f):
        def step(f, _):
            density = f.sum(0)
            u = jnp.einsum("qxy,qd->dxy", f, velocity.astype(np.float32)) / density
            along = jnp.einsum("qd,dxy->qxy", velocity.astype(np.float32), u)
            equilibrium = part[:, None, None] * density * (1 + 3 * along + 4.5 * along ** 2 - 1.5 * (u ** 2).sum(0))
            f = f - (f - equilibrium) / 0.6
            return jnp.stack([jnp.roll(f[q], velocity[q], (0, 1)) for q in range(9)]), None
        return lax.scan(step, f, None, length=10)[0]

    return run, (1 + 0.05 * np.abs(normal(0, 9, 96, 96)),)


@program
def gray_scott_reaction():
    def laplace(u):
        return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u

    def run(u, v):
        def step(_, uv):
            u, v = uv
            r = u * v * v
            return u + 0.16 * laplace(u) - r + 0.06 * (1 - u), v + 0.08 * laplace(v) + r - 0.122 * v
        return lax.fori_loop(0, 20, step, (u, v))

    return run, (1 - 0.1 * np.abs(normal(0, 128, 128)), 0.1 * np.abs(normal(1, 128, 128)))


@program
def ising_checkerboard():
    black = (np.indices((128, 128)).sum(0) % 2).astype(bool)

    def run(key, spins):
        def sweep(spins, key):
            for colour, k in zip((black, ~black), jax.random.split(key)):
                near = sum(jnp.roll(spins, s, a) for s in (1, -1) for a in (0, 1))
                flip = jax.random.uniform(k, spins.shape) < jnp.exp(-0.88 * spins * near)
                spins = jnp.where(colour & flip, -spins, spins)
            return spins, spins.mean()
        return lax.scan(sweep, spins, jax.random.split(key, 10))

    return run, (np.array([0, 1], np.uint32), np.sign(normal(0, 128, 128)))


@program
def verlet_springs():
    def energy(x):
        d = x[1:] - x[:-1]
        return 0.5 * jnp.sum((jnp.sqrt(jnp.sum(d * d, -1) + 1e-9) - 1) ** 2)

    def run(x, v):
        force = jax.grad(lambda x: -energy(x))

        def step(xv, _):
            x, v = xv
            v = v + 0.005 * force(x)
            x = x + 0.01 * v
            return (x, v + 0.005 * force(x)), energy(x)
        return lax.scan(step, (x, v), None, length=50)

    return run, (np.cumsum(0.5 + normal(0, 256, 3, scale=0.2), 0).astype(np.float32), normal(1, 256, 3))


@program
def black_scholes_greeks():
    def price(s, k, t, r, sigma):
        d1 = (jnp.log(s / k) + (r + sigma ** 2 / 2) * t) / (sigma * jnp.sqrt(t))
        return s * jax.scipy.stats.norm.cdf(d1) - k * jnp.exp(-r * t) * jax.scipy.stats.norm.cdf(d1 - sigma * jnp.sqrt(t))

    r = np.random.RandomState(0)
    return jax.vmap(jax.value_and_grad(price, (0, 2, 3, 4))), tuple(
        r.uniform(a, b, 20000).astype(np.float32) for a, b in ((80, 120), (80, 120), (0.1, 2), (0.01, 0.05), (0.1, 0.5)))


@program
def monte_carlo_asian_option():
    def run(key, s0):
        z = jax.random.normal(key, (2000, 64))
        paths = s0 * jnp.exp(jnp.cumsum((0.03 - 0.02) / 64 + 0.2 / 8 * z, 1))
        pay = jnp.maximum(paths.mean(1) - 100, 0)
        return pay.mean(), pay.std() / jnp.sqrt(2000.0)

    return jax.value_and_grad(run, 1, has_aux=True), (np.array([3, 4], np.uint32), np.float32(100))


@program
def gauss_newton_curve_fit():
    def run(p, x, y):
        def residual(p):
            return p[0] * jnp.exp(-p[1] * x) + p[2] * jnp.sin(p[3] * x) - y

        def step(_, p):
            j, r = jax.jacfwd(residual)(p), residual(p)
            return p - jnp.linalg.solve(j.T @ j + 1e-3 * jnp.eye(4), j.T @ r)
        return lax.fori_loop(0, 8, step, p)

    x = np.linspace(0, 4, 400, dtype=np.float32)
    return run, (np.array([1.8, 0.6, 0.4, 2.1], np.float32), x, 2 * np.exp(-0.5 * x) + 0.5 * np.sin(2 * x))


@program
def legendre_recurrence_quadrature():
    def run(x, f):
        def step(ab, n):
            a, b = ab
            c = ((2 * n + 1) * x * b - n * a) / (n + 1)
            return (b, c), (c * f).sum(-1)
        return lax.scan(step, (jnp.ones_like(x), x), jnp.arange(1.0, 40.0))[1]

    return run, (np.linspace(-1, 1, 2048, dtype=np.float32), normal(0, 16, 2048))


@program
def quaternion_rotations():
    def product(a, b):
        aw, ax, ay, az = jnp.moveaxis(a, -1, 0)
        bw, bx, by, bz = jnp.moveaxis(b, -1, 0)
        return jnp.stack([aw * bw - ax * bx - ay * by - az * bz, aw * bx + ax * bw + ay * bz - az * by,
                          aw * by - ax * bz + ay * bw + az * bx, aw * bz + ax * by - ay * bx + az * bw], -1)

    def run(q, v):
        q = q / jnp.linalg.norm(q, axis=-1, keepdims=True)
        p = jnp.concatenate([jnp.zeros_like(v[..., :1]), v], -1)
        return product(product(q, p), q * jnp.array([1.0, -1, -1, -1]))[..., 1:]

    return run, (normal(0, 20000, 4), normal(1, 20000, 3))


@program
def periodic_neighbour_energy():
    def run(x):
        d = x[:, None] - x[None]
        d = d - 10 * jnp.round(d / 10)
        r2 = jnp.where(jnp.eye(len(x), dtype=bool), 1e3, (d ** 2).sum(-1))
        s = jnp.where(r2 < 6.25, 1 / (r2 + 0.3) ** 3, 0)
        return jnp.sum(4 * (s * s - s)) / 2

    return jax.value_and_grad(run), (np.random.RandomState(0).uniform(0, 10, (300, 3)).astype(np.float32),)


# -- signals ------------------------------------------------------------------------------------------------------------
@program
def mel_spectrogram():
    window = np.hanning(400).astype(np.float32)
    bank = np.abs(normal(1, 257, 80))

    def run(x):
        frames = x[jnp.arange(98)[:, None] * 160 + jnp.arange(400)] * window
        return jnp.log(jnp.abs(jnp.fft.rfft(frames, 512)) ** 2 @ bank + 1e-6)

    return run, (normal(0, 16000),)


@program
def biquad_cascade():
    def run(x, coefficients):
        def section(x, c):
            def step(s, x):
                y = c[0] * x + s[0]
                return (c[1] * x - c[3] * y + s[1], c[2] * x - c[4] * y), y
            return lax.scan(step, (0.0, 0.0), x)[1], None
        return lax.scan(section, x, coefficients)[0]

    return run, (normal(0, 4000), np.array([[0.2, 0.4, 0.2, -0.4, 0.1]] * 4, np.float32))


@program
def autocorrelation_pitch():
    def run(frames):
        spectrum = jnp.fft.rfft(frames - frames.mean(-1, keepdims=True), 2048)
        r = jnp.fft.irfft(spectrum * jnp.conj(spectrum))[:, :512]
        r = r / (r[:, :1] + 1e-9)
        return 50 + jnp.argmax(r[:, 50:], -1), r

    return run, (normal(0, 64, 1024),)


@program
def median_filter_5():
    def run(x):
        padded = jnp.pad(x, ((0, 0), (2, 2)), mode="edge")
        return jnp.median(jnp.stack([padded[:, i:i + x.shape[1]] for i in range(5)]), 0)

    return run, (normal(0, 32, 4000),)


@program
def haar_wavelet_levels():
    def run(x):
        details = []
        for _ in range(8):
            a, b = x[:, ::2], x[:, 1::2]
            x, d = (a + b) * 0.70710678, (a - b) * 0.70710678
            details.append(jnp.sign(d) * jnp.maximum(jnp.abs(d) - 0.1, 0))
        for d in reversed(details):
            x = jnp.stack([x + d, x - d], -1).reshape(x.shape[0], -1) * 0.70710678
        return x

    return run, (normal(0, 64, 4096),)


@program
def least_mean_squares_filter():
    def run(x, wanted):
        def step(state, xd):
            w, past = state
            past = jnp.roll(past, 1).at[0].set(xd[0])
            e = xd[1] - w @ past
            return (w + 0.01 * e * past, past), e
        return lax.scan(step, (jnp.zeros(32), jnp.zeros(32)), (x, wanted))

    return run, (normal(0, 2000), normal(1, 2000))


# -- learning by reward -------------------------------------------------------------------------------------------------
@program
def generalized_advantages():
    def run(rewards, values, done):
        def back(a, rvd):
            reward, value, after, done = rvd
            a = reward + 0.99 * after * (1 - done) - value + 0.9405 * (1 - done) * a
            return a, a
        a = lax.scan(back, jnp.zeros(rewards.shape[1]), (rewards, values[:-1], values[1:], done), reverse=True)[1]
        return (a - a.mean()) / (a.std() + 1e-8), a + values[:-1]

    return run, (normal(0, 256, 64), normal(1, 257, 64), (normal(2, 256, 64) > 1.5).astype(np.float32))


@program
def cart_pole_rollout():
    def run(w, state):
        def step(s, _):
            x, v, angle, spin = s.T
            force = jnp.where(s @ w > 0, 10.0, -10.0)
            sin, cos = jnp.sin(angle), jnp.cos(angle)
            t = (force + 0.05 * spin ** 2 * sin) / 1.1
            alpha = (9.8 * sin - cos * t) / (0.5 * (4 / 3 - 0.1 * cos ** 2 / 1.1))
            s = jnp.stack([x + 0.02 * v, v + 0.02 * (t - 0.05 * alpha * cos / 1.1), angle + 0.02 * spin, spin + 0.02 * alpha], -1)
            return s, (jnp.abs(s[:, 2]) < 0.2).astype(jnp.float32)
        return lax.scan(step, state, None, length=200)[1].sum(0)

    return run, (normal(0, 4), normal(1, 256, 4, scale=0.05))


@program
def q_learning_grid():
    def run(key, q):
        def step(carry, key):
            q, s = carry
            k1, k2, k3 = jax.random.split(key, 3)
            a = jnp.where(jax.random.uniform(k1) < 0.1, jax.random.randint(k2, (), 0, 4), jnp.argmax(q[s]))
            move = jnp.array([1, -1, 16, -16])[a]
            t = jnp.clip(s + move, 0, 255)
            reward = jnp.where(t == 255, 1.0, -0.01)
            q = q.at[s, a].add(0.1 * (reward + 0.95 * q[t].max() - q[s, a]))
            return (q, jnp.where(t == 255, jax.random.randint(k3, (), 0, 255), t)), reward
        return lax.scan(step, (q, 0), jax.random.split(key, 1000))

    return run, (np.array([5, 6], np.uint32), np.zeros((256, 4), np.float32))


@program
def prioritized_replay_sample():
    def run(key, priority, memory):
        p = priority ** 0.6
        total = jnp.cumsum(p)
        u = (jnp.arange(256) + jax.random.uniform(key, (256,))) / 256 * total[-1]
        index = jnp.searchsorted(total, u)
        w = (p[index] * 1e4 / total[-1]) ** -0.4
        return memory[index], w / w.max(), priority.at[index].set(1.0)

    return run, (np.array([5, 6], np.uint32), np.abs(normal(0, 16384)) + 0.1, normal(1, 16384, 24))


@program
def value_iteration():
    def run(p, r):
        def more(s):
            return (s[1] > 1e-4) & (s[2] < 200)

        def step(s):
            v, _, n = s
            new = (r + 0.95 * jnp.einsum("ast,t->as", p, v)).max(0)
            return new, jnp.abs(new - v).max(), n + 1
        return lax.while_loop(more, step, (jnp.zeros(p.shape[1]), jnp.inf, 0))

    p = np.random.RandomState(0).dirichlet(np.ones(128), (4, 128)).astype(np.float32)
    return run, (p, normal(1, 4, 128))


# -- graphs, sparse, dynamic programming --------------------------------------------------------------------------------
@program
def page_rank_segments():
    def run(source, target):
        n = 2000
        out = jax.ops.segment_sum(jnp.ones(len(source)), source, n)

        def step(_, rank):
            return 0.15 / n + 0.85 * jax.ops.segment_sum((rank / jnp.maximum(out, 1))[source], target, n)
        return lax.fori_loop(0, 20, step, jnp.full(n, 1 / n))

    return run, (integers(0, 2000, 16000), integers(1, 2000, 16000))


@program
def floyd_warshall():
    def run(d):
        return lax.fori_loop(0, d.shape[0], lambda k, d: jnp.minimum(d, d[:, k, None] + d[None, k]), d)

    return run, (np.abs(normal(0, 128, 128)) + np.where(normal(1, 128, 128) > 0, 100, 0).astype(np.float32),)


@program
def label_propagation_components():
    def run(a, b):
        def step(s):
            label, _, n = s
            new = label.at[a].min(label[b]).at[b].min(label[a])
            new = new[new]
            return new, (new != label).any(), n + 1
        return lax.while_loop(lambda s: s[1] & (s[2] < 100), step, (jnp.arange(4000), True, 0))

    return run, (integers(0, 4000, 5000), integers(1, 4000, 5000))


@program
def csr_matrix_vector_loop():
    rows = np.sort(integers(0, 3000, 30000))

    def run(values, columns, x):
        def step(_, x):
            y = jnp.zeros(3000).at[rows].add(values * x[columns], indices_are_sorted=True)
            return y / (1e-6 + jnp.abs(y).max())
        return lax.fori_loop(0, 10, step, x)

    return run, (normal(1, 30000), integers(2, 3000, 30000), normal(3, 3000))


@program
def edit_distance_rows():
    def run(a, b):
        n = b.shape[0]

        def row(previous, x):
            cost = jnp.minimum(previous[1:] + 1, previous[:-1] + (x != b))
            def cell(left, c):
                v = jnp.minimum(c, left + 1)
                return v, v
            rest = lax.scan(cell, previous[0] + 1, cost)[1]
            return jnp.concatenate([previous[:1] + 1, rest]), None
        return lax.scan(row, jnp.arange(n + 1), a)[0][-1]

    return run, (integers(0, 4, 200), integers(1, 4, 200))


@program
def smith_waterman_diagonals():
    def run(scores):
        n = scores.shape[0]
        i = jnp.arange(n)

        def step(carry, d):
            before, last, best = carry
            j = d - i
            s = jnp.where((j >= 0) & (j < n), scores[i, jnp.clip(j, 0, n - 1)], -1e9)
            up = jnp.concatenate([jnp.zeros(1), last[:-1]])
            diagonal = jnp.concatenate([jnp.zeros(1), before[:-1]])
            h = jnp.maximum(0, jnp.maximum(diagonal + s, jnp.maximum(up, last) - 1))
            h = jnp.where((j >= 0) & (j < n), h, 0)
            return (last, h, jnp.maximum(best, h.max())), None
        zero = jnp.zeros(n)
        return lax.scan(step, (zero, zero, 0.0), jnp.arange(2 * n - 1))[0][2]

    return run, (normal(0, 256, 256),)


@program
def viterbi_path():
    def run(transition, emission):
        def forward(v, e):
            s = v[:, None] + transition
            return s.max(0) + e, s.argmax(0)

        last, back = lax.scan(forward, emission[0], emission[1:])
        end = last.argmax()
        path = lax.scan(lambda s, b: (b[s], b[s]), end, back, reverse=True)[1]
        return jnp.concatenate([path, end[None]]), last.max()

    return run, (normal(0, 32, 32), normal(1, 500, 32))


@program
def knapsack_table():
    def run(sizes, worth):
        capacity = jnp.arange(1001)

        def item(best, sw):
            size, w = sw
            taken = jnp.where(capacity >= size, best[jnp.maximum(capacity - size, 0)] + w, -1)
            return jnp.maximum(best, taken), taken > best
        return lax.scan(item, jnp.zeros(1001), (sizes, worth))

    return run, (integers(0, 100, 200) + 1, np.abs(normal(1, 200)))


# -- images -------------------------------------------------------------------------------------------------------------
@program
def canny_like_edges():
    def run(x):
        kernel = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]).astype(np.float32) / 256
        x = lax.conv_general_dilated(x[:, None], kernel[None, None], (1, 1), "SAME")[:, 0]
        gx = x[:, 1:-1, 2:] - x[:, 1:-1, :-2]
        gy = x[:, 2:, 1:-1] - x[:, :-2, 1:-1]
        size, angle = jnp.hypot(gx, gy), jnp.arctan2(gy, gx)
        sector = jnp.round(angle / (np.pi / 4)).astype(jnp.int32) % 4
        p = jnp.pad(size, ((0, 0), (1, 1), (1, 1)))
        def at(dy, dx):
            return p[:, 1 + dy:p.shape[1] - 1 + dy, 1 + dx:p.shape[2] - 1 + dx]
        near = jnp.stack([jnp.maximum(at(y, x), at(-y, -x)) for y, x in ((0, 1), (1, 1), (1, 0), (1, -1))])
        return jnp.where(size >= jnp.take_along_axis(near, sector[None], 0)[0], size, 0) > 0.2

    return run, (normal(0, 4, 128, 128),)


@program
def non_maximum_suppression():
    def run(boxes, scores):
        order = jnp.argsort(-scores)
        b = boxes[order]
        low, high = jnp.maximum(b[:, None, :2], b[None, :, :2]), jnp.minimum(b[:, None, 2:], b[None, :, 2:])
        both = jnp.prod(jnp.maximum(high - low, 0), -1)
        area = jnp.prod(b[:, 2:] - b[:, :2], -1)
        overlap = both / (area[:, None] + area[None] - both) > 0.5
        later = jnp.arange(len(scores))
        keep = lax.fori_loop(0, len(scores), lambda i, k: k & ~(k[i] & overlap[i] & (later > i)), jnp.ones(len(scores), bool))
        return keep, order

    corner = np.random.RandomState(0).uniform(0, 90, (300, 2))
    return run, (np.concatenate([corner, corner + 8], 1).astype(np.float32), normal(1, 300))


@program
def bilinear_warp():
    def run(image, flow):
        y, x = jnp.meshgrid(jnp.arange(128.0), jnp.arange(128.0), indexing="ij")
        return jnp.stack([jax.scipy.ndimage.map_coordinates(image[..., c], [y + flow[..., 0], x + flow[..., 1]], 1, mode="nearest")
                          for c in range(3)], -1)

    return run, (normal(0, 128, 128, 3), normal(1, 128, 128, 2, scale=3))


@program
def connected_flood_fill():
    def run(wall, seed):
        def step(s):
            f, _ = s
            g = f | jnp.roll(f, 1, 0) | jnp.roll(f, -1, 0) | jnp.roll(f, 1, 1) | jnp.roll(f, -1, 1)
            g = g & ~wall
            return g, (g != f).any()
        return lax.while_loop(lambda s: s[1], step, (seed, True))[0]

    seed = np.zeros((96, 96), bool)
    seed[48, 48] = True
    return run, (normal(0, 96, 96) > 0.8, seed)


@program
def jpeg_like_blocks():
    k = np.arange(8)
    dct = (np.cos(np.pi * (2 * k[None] + 1) * k[:, None] / 16) * np.where(k == 0, np.sqrt(1 / 8), 0.5)[:, None]).astype(np.float32)

    def run(image, table):
        b = image.reshape(32, 8, 32, 8).transpose(0, 2, 1, 3)
        q = jnp.round(jnp.einsum("ij,abjk,lk->abil", dct, b, dct) / table)
        return q.astype(jnp.int8), jnp.einsum("ji,abjk,kl->abil", dct, q * table, dct).transpose(0, 2, 1, 3).reshape(256, 256)

    return run, (normal(0, 256, 256) * 40, 10 + 2 * np.add.outer(k, k).astype(np.float32))


# -- sorting, integers, sampling ----------------------------------------------------------------------------------------
@program
def sort_pairs_by_key():
    def run(keys, values):
        order = jnp.lexsort((values, keys))
        return keys[order], values[order]

    return run, (integers(0, 100, 20000), normal(1, 20000))


@program
def running_top_8():
    def run(x):
        def step(best, row):
            return lax.top_k(jnp.concatenate([best, row], -1), 8)[0], None
        return lax.scan(step, jnp.full((16, 8), -jnp.inf), x)[0]

    return run, (normal(0, 50, 16, 64),)


@program
def unique_counts():
    def run(x):
        return jnp.unique_counts(x, size=600, fill_value=-1)

    return run, (integers(0, 500, 20000),)


@program
def rolling_hash_matches():
    def run(text, pattern):
        m = pattern.shape[0]
        power = jnp.uint32(31) ** jnp.arange(m, dtype=jnp.uint32)
        windows = text[jnp.arange(text.shape[0] - m + 1)[:, None] + jnp.arange(m)]
        return ((windows.astype(jnp.uint32) * power).sum(1) == (pattern.astype(jnp.uint32) * power).sum()).astype(jnp.int32).sum()

    return run, (integers(0, 4, 20000), integers(1, 4, 16))


@program
def popcount_hamming_nearest():
    def run(codes, queries):
        return jnp.argmin(lax.population_count(queries[:, None] ^ codes[None]).sum(-1), -1)

    r = np.random.RandomState(0)
    return run, (r.randint(0, 2 ** 32, (2000, 8), np.uint32), r.randint(0, 2 ** 32, (64, 8), np.uint32))


@program
def sieve_of_primes():
    def run(n):
        x = jnp.arange(20000) + n
        def step(p, prime):
            return prime & ~((x % p == 0) & (x > p))
        return lax.fori_loop(2, 142, step, x > 1).sum()

    return run, (np.int32(0),)


@program
def game_of_life():
    def run(x):
        def step(_, x):
            n = sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
            return ((n == 3) | ((x == 1) & (n == 2))).astype(jnp.uint8)
        return lax.fori_loop(0, 50, step, x)

    return run, ((normal(0, 128, 128) > 0.5).astype(np.uint8),)


@program
def shuffle_and_split_batches():
    def run(key, x, y):
        order = jax.random.permutation(key, len(x))
        return x[order].reshape(32, 64, -1), y[order].reshape(32, 64)

    return run, (np.array([1, 2], np.uint32), normal(0, 2048, 64), integers(1, 10, 2048))


@program
def gamma_dirichlet_sampling():
    def run(key, alpha):
        k1, k2 = jax.random.split(key)
        p = jax.random.dirichlet(k1, alpha, (200,))
        return p, jax.random.categorical(k2, jnp.log(p + 1e-9), shape=(20, 200))

    return run, (np.array([1, 2], np.uint32), np.abs(normal(0, 16)) + 0.3)


@program
def mandelbrot_escape_times():
    """Magnitudes of complex numbers in a loop."""
    x, y = np.linspace(-2, 1, 200), np.linspace(-1, 1, 200)

    def run(c):
        def step(_, carry):
            z, n = carry
            z = jnp.where(jnp.abs(z) < 2, z * z + c, z)
            return z, n + (jnp.abs(z) < 2)
        return lax.fori_loop(0, 50, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))[1]

    return run, ((x[None] + 1j * y[:, None]).astype(np.complex64),)


@program
def eigenvalues_of_a_batch():
    def run(a):
        return jnp.linalg.eigvalsh(a + a.swapaxes(1, 2))

    return run, (normal(0, 32, 24, 24),)


@program
def singular_values_of_a_batch():
    def run(a):
        u, s, v = jnp.linalg.svd(a)
        return (u * s[:, None]) @ v

    return run, (normal(0, 64, 12, 12),)


@program
def solves_and_factors():
    """One of each, of a few hundred rows: what LAPACK does with blocks.  One after the other: under `chrt -f`, two calls of jaxlib's
    OpenBLAS at once can wait for each other without end."""
    def run(a, b):
        q, r = jnp.linalg.qr(a[:, :200])
        of = q @ r
        l = jnp.linalg.cholesky(of.T @ of + len(a) * jnp.eye(200))
        return l @ l.T, a @ jnp.linalg.solve(a + l[0, 0] * jnp.eye(len(a)), b)

    return run, (normal(0, 300, 300) + 20 * np.eye(300, dtype=np.float32), normal(1, 300, 8))


@program
def half_precision_layers():
    def run(x, w):
        for a in w:
            x = jax.nn.relu(x @ a)
        return x

    return run, (normal(0, 64, 256).astype(np.float16), [weights(i, 256, 256).astype(np.float16) for i in range(4)])


@program
def fourier_transforms_of_odd_sizes():
    """Lengths with prime factors up to 17, by real and complex numbers."""
    def run(x):
        spectrum = jnp.fft.fftn(x + 1j * x[::-1])
        smooth = jnp.fft.irfftn(jnp.fft.rfftn(x) * 0.5, x.shape)
        return spectrum.real, smooth, jnp.fft.fft(x, axis=0).imag

    return run, (normal(0, 17, 30, 34),)


@program
def half_precision_attention_gradient():
    """Sizes that fill no vector."""
    def loss(q, k, v):
        p = jax.nn.softmax((q @ k.mT).astype(jnp.float32) * 0.2, -1).astype(jnp.float16)
        return jnp.mean((p @ v).astype(jnp.float32) ** 2)

    q, k, v = (normal(i, 4, 77, 48).astype(np.float16) for i in range(3))
    return jax.value_and_grad(loss, (0, 1, 2)), (q, k, v)


@program
def splats_along_rays_gradient():
    """Transmittance: the gradient of a cumulative product.  Wide splats: narrow ones are denormal far away (docs/performance.md)."""
    yx = np.stack(np.meshgrid(*[np.linspace(0, 1, 48, dtype=np.float32)] * 2, indexing="ij"), -1)

    def run(parameters, image):
        def loss(parameters):
            at, scale, colour, opacity = parameters
            d = ((yx[:, :, None] - at) ** 2 * jnp.exp(scale)).sum(-1)
            alpha = jax.nn.sigmoid(opacity) * jnp.exp(-0.5 * d)
            left = jnp.cumprod(1 - alpha + 1e-6, -1)
            left = jnp.concatenate([jnp.ones_like(left[..., :1]), left[..., :-1]], -1)
            return jnp.mean(((alpha * left) @ jax.nn.sigmoid(colour) - image) ** 2)
        return jax.value_and_grad(loss)(parameters)

    return run, ((normal(0, 100, 2), normal(1, 100, 2) / 2, normal(2, 100, 3), normal(3, 100)), normal(4, 48, 48, 3))


@program
def escape_times_by_vmap():
    """Each point goes on by itself."""
    x, y = np.meshgrid(np.linspace(-2, 1, 256, dtype=np.float32), np.linspace(-1.2, 1.2, 256, dtype=np.float32))

    def one(x, y):
        def goes_on(s):
            return (s[0] * s[0] + s[1] * s[1] < 4) & (s[2] < 200)
        def step(s):
            return s[0] * s[0] - s[1] * s[1] + x, 2 * s[0] * s[1] + y, s[2] + 1
        return lax.while_loop(goes_on, step, (0 * x, 0 * y, 0))[2]

    return jax.vmap(jax.vmap(one)), (x, y)


@program
def keplers_equation():
    """Newton's method for many equations, until each is solved."""
    def one(m, e):
        def goes_on(s):
            return (jnp.abs(s[1]) > 1e-6) & (s[2] < 50)
        def step(s):
            d = (s[0] - e * jnp.sin(s[0]) - m) / (1 - e * jnp.cos(s[0]))
            return s[0] - d, d, s[2] + 1
        return lax.while_loop(goes_on, step, (m, jnp.float32(1), 0))[0]

    return jax.vmap(one), (np.abs(normal(0, 10000)) % 3.1, np.abs(normal(1, 10000)) % 0.9)


@program
def spinning_bodies():
    """States of four numbers."""
    def one(q, w):
        def step(_, q):
            a, b, c, d = q
            x, y, z = w
            q = q + 0.005 * jnp.array([-b * x - c * y - d * z, a * x + c * z - d * y, a * y - b * z + d * x,
                                       a * z + b * y - c * x])
            return q / jnp.sqrt((q * q).sum())
        return lax.fori_loop(0, 100, step, q)

    return jax.vmap(one), (normal(0, 2000, 4) + np.float32(0.1), normal(1, 2000, 3))


@program
def random_walks_with_keys():
    def one(key, x):
        def step(_, s):
            key, k = jax.random.split(s[0])
            return key, s[1] + jax.random.uniform(k) - 0.5
        return lax.fori_loop(0, 50, step, (key, x))[1]

    return jax.vmap(one), (np.random.RandomState(0).randint(0, 2**32, (2000, 2), dtype=np.uint64).astype(np.uint32), normal(1, 2000))


@program
def leaky_filter_gradient():
    """A scan that writes rows, and its gradient, which reads and writes them backwards."""
    def loss(x):
        def step(c, t):
            c = jnp.tanh(0.9 * c + 0.1 * t)
            return c, c * c
        return lax.scan(step, x[0], x)[1].sum()

    return jax.grad(loss), (normal(0, 200, 2048),)


if __name__ == "__main__":
    main("Small programs of JAX's users, Weft beside XLA:CPU")
