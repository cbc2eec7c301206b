#!/usr/bin/env python3
"""A two-layer perceptron learns to tell spirals apart, with Adam, on one device.  See common.py for the command line."""
import common

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

ARMS, WIDTH, BATCH, RATE = 3, 128, 512, 3e-3


def spirals(count, seed):
    r = np.random.RandomState(seed)
    arm, along = r.randint(0, ARMS, count), r.uniform(0.2, 1, count)
    angle = 6 * along + arm * 2 * np.pi / ARMS + r.normal(0, 0.1, count)
    return np.stack([along * np.cos(angle), along * np.sin(angle)], 1).astype(np.float32), arm.astype(np.int32)


def initial_weights():
    r = np.random.RandomState(0)
    sizes = [(2, WIDTH), (WIDTH, WIDTH), (WIDTH, ARMS)]
    return [((r.randn(*s) * np.sqrt(2 / s[0])).astype(np.float32), np.zeros(s[1], np.float32)) for s in sizes]


def loss_of(weights, batch):
    x, arm = batch
    for w, b in weights[:-1]:
        x = jax.nn.relu(x @ w + b)
    logits = jax.nn.log_softmax(x @ weights[-1][0] + weights[-1][1])
    return -jnp.take_along_axis(logits, arm[:, None], 1).mean()


def step(state, batch):
    weights, mean, square, t = state
    loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradient)
    fix = RATE * jnp.sqrt(1 - 0.99 ** t) / (1 - 0.9 ** t)
    weights = jax.tree.map(lambda w, m, s: w - fix * m / (jnp.sqrt(s) + 1e-8), weights, mean, square)
    return (weights, mean, square, t + 1), loss


def run(platform, steps, report=print):
    with jax.default_device(jax.devices(platform)[0]):
        weights = jax.tree.map(jnp.asarray, initial_weights())
        state = (weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights), jnp.float32(1))
        batches = [jax.tree.map(jnp.asarray, spirals(BATCH, i)) for i in range(8)]
        return common.train(platform, steps, jax.jit(step, donate_argnums=0), state, batches, report)


if __name__ == "__main__":
    common.main(run, 300)
