"""Writes train.hlo: a two-layer perceptron that learns to tell two spirals apart.

The whole training run is one program without inputs: it draws the points and the first weights, then does 500 steps of
Adam and returns the loss after every 25 of them, and the share of points classified right at the end.

    python examples/make_train.py > examples/train.hlo      (needs jax; the result is checked in)
"""
import jax
import jax.numpy as jnp

POINTS, HIDDEN, ROUNDS, STEPS = 256, 64, 20, 25


def spirals(key):
    side = jnp.arange(POINTS) % 2
    turn = jnp.sqrt(jax.random.uniform(key, (POINTS,))) * 7.0
    angle = turn + jnp.pi * side
    xy = jnp.stack([turn * jnp.cos(angle), turn * jnp.sin(angle)], axis=1) / 7.0
    return xy, side.astype(jnp.float32)


def predict(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return (x @ w + b)[:, 0]


def loss_of(params, x, y):
    logit = predict(params, x)
    return jnp.mean(jax.nn.softplus(logit) - y * logit)


def train():
    keys = jax.random.split(jax.random.key(7), 4)
    x, y = spirals(keys[0])
    sizes = [2, HIDDEN, HIDDEN, 1]
    params = [(jax.random.normal(k, (m, n)) / jnp.sqrt(m) * (5.0 if m == 2 else 1.0), jnp.zeros(n))
              for k, m, n in zip(keys[1:], sizes[:-1], sizes[1:])]
    zeros = jax.tree.map(jnp.zeros_like, params)

    def step(i, state):
        params, mean, var = state
        grads = jax.grad(loss_of)(params, x, y)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        var = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, var, grads)
        t = (i + 1).astype(jnp.float32)
        rate = 0.001 * jnp.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
        params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, mean, var)
        return params, mean, var

    def round_(r, carry):
        state, losses = carry
        state = jax.lax.fori_loop(r * STEPS, (r + 1) * STEPS, step, state)
        return state, losses.at[r].set(loss_of(state[0], x, y))

    state, losses = jax.lax.fori_loop(0, ROUNDS, round_, ((params, zeros, zeros), jnp.zeros(ROUNDS)))
    right = jnp.mean((predict(state[0], x) > 0) == (y > 0.5))
    return losses, right


if __name__ == "__main__":
    lowered = jax.jit(train).lower()
    print(lowered.compiler_ir("hlo").as_hlo_text(), end="")
