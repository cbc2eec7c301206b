#!/usr/bin/env python3
"""A small convolutional net learns which of four patterns an image shows, on one device.  See common.py."""
import common

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

SIZE, CHANNELS, BATCH, RATE = 16, (1, 16, 32), 64, 0.1
LAYOUT = ("NHWC", "HWIO", "NHWC")


def images(seed):
    """Stripes across, stripes down, checks, rings: shifted, and with noise."""
    r = np.random.RandomState(seed)
    kind, shift = r.randint(0, 4, BATCH), r.randint(0, 4, (BATCH, 1, 1))
    y, x = np.mgrid[0:SIZE, 0:SIZE]
    y, x = y[None] + shift, x[None] + shift
    rings = np.sqrt((y - SIZE / 2) ** 2 + (x - SIZE / 2) ** 2).astype(int)
    shapes = np.stack([y // 2 % 2, x // 2 % 2, (x // 2 + y // 2) % 2, rings // 2 % 2])
    picked = shapes[kind, np.arange(BATCH)] + r.normal(0, 0.3, (BATCH, SIZE, SIZE))
    return picked[..., None].astype(np.float32), kind.astype(np.int32)


def initial_weights():
    r = np.random.RandomState(0)
    filters = [(r.randn(3, 3, i, o) / np.sqrt(9 * i)).astype(np.float32) for i, o in zip(CHANNELS, CHANNELS[1:])]
    return filters, (r.randn(CHANNELS[-1], 4) / np.sqrt(CHANNELS[-1])).astype(np.float32)


def loss_of(weights, batch):
    x, kind = batch
    for w in weights[0]:
        x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUT))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    logits = jax.nn.log_softmax(x.mean((1, 2)) @ weights[1])
    return -jnp.take_along_axis(logits, kind[:, None], 1).mean()


def step(weights, batch):
    loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda w, g: w - RATE * g, weights, gradient), loss


def run(platform, steps, report=print):
    with jax.default_device(jax.devices(platform)[0]):
        weights = jax.tree.map(jnp.asarray, initial_weights())
        batches = [jax.tree.map(jnp.asarray, images(i)) for i in range(8)]
        return common.train(platform, steps, jax.jit(step, donate_argnums=0), weights, batches, report)


if __name__ == "__main__":
    common.main(run, 200)
