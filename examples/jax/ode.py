#!/usr/bin/env python3
"""Which predators and prey were these?  A Runge-Kutta solver in lax.scan, differentiated through, finds the rates of a
Lotka-Volterra system from what was observed of it, for many systems at once, on one device.  See common.py."""
import common

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

SYSTEMS, POINTS, SPAN, RATE = 32, 120, 6.0, 0.05


def change(y, p):
    prey, predator = y
    return jnp.stack([prey * (p[0] - p[1] * predator), predator * (p[2] * prey - p[3])])


def solve(p, start):
    """Fourth-order steps; all states."""
    h = SPAN / POINTS

    def advance(y, _):
        a = change(y, p)
        b = change(y + h / 2 * a, p)
        c = change(y + h / 2 * b, p)
        d = change(y + h * c, p)
        y = y + h / 6 * (a + 2 * b + 2 * c + d)
        return y, y
    return lax.scan(advance, start, None, length=POINTS)[1]


def loss_of(p, batch):
    start, seen = batch
    return jnp.mean((jax.vmap(solve)(jnp.exp(p), start) - seen) ** 2)


def step(p, batch):
    loss, gradient = jax.value_and_grad(loss_of)(p, batch)
    return p - RATE * SYSTEMS * jnp.clip(gradient, -0.02, 0.02), loss


def run(platform, steps, report=print):
    r = np.random.RandomState(0)
    rates = (np.array([1.1, 0.4, 0.1, 0.4]) * np.exp(r.normal(0, 0.1, (SYSTEMS, 4)))).astype(np.float32)
    start = r.uniform(1, 4, (SYSTEMS, 2)).astype(np.float32)
    with jax.default_device(jax.devices(platform)[0]):
        seen = jax.jit(jax.vmap(solve))(rates, start)
        guess = jnp.asarray(np.log(rates) + r.normal(0, 0.1, rates.shape).astype(np.float32))
        return common.train(platform, steps, jax.jit(step, donate_argnums=0), guess, [(jnp.asarray(start), seen)], report)


if __name__ == "__main__":
    common.main(run, 100)
