#!/usr/bin/env python3
"""PyTorch on Weft: torchax turns PyTorch's operations into JAX's, and JAX runs them on Weft.

    pip install jax==0.10.2 torch==2.12.1 torchax==0.0.13      (other pairs of versions: docs/jax.md)
    python examples/python/torch_training.py [STEPS]

A small convolutional network is trained by gradient descent, first by PyTorch itself, then on Weft; the losses must agree.
"""
import sys

import jax
import numpy as np
import torch
import torchax
from torchax import interop

RATE = 0.1


def network():
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(128, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def data():
    """Images, and of each the quarter of the plane in which the sums of its upper and of its left half lie."""
    x = np.random.RandomState(0).randn(64, 1, 8, 8).astype(np.float32)
    labels = 2 * (x[:, 0, :4].sum((1, 2)) > 0) + (x[:, 0, :, :4].sum((1, 2)) > 0)
    return torch.from_numpy(x), torch.from_numpy(labels)


def by_torch(steps):
    net, losses, (x, labels) = network(), [], data()
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_weft(steps):
    with torchax.default_env():
        net = interop.JittableModule(network().to("jax"))
        x, labels = (t.to("jax") for t in data())

        def loss_of(weights, state):
            return torch.nn.functional.cross_entropy(net.functional_call("forward", weights, state, x), labels)

        @interop.jax_jit
        def step(weights, state):
            loss, gradient = interop.jax_value_and_grad(loss_of)(weights, state)
            return {name: w - RATE * gradient[name] for name, w in weights.items()}, loss

        weights, losses = net.params, []
        for _ in range(steps):
            weights, loss = step(weights, net.buffers)
            losses.append(loss.detach().item())
        return losses


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    want, got = by_torch(steps), by_weft(steps)
    print(f"on {jax.devices()}: loss {got[0]:.6f} -> {got[-1]:.6f}, PyTorch's {want[0]:.6f} -> {want[-1]:.6f}")
    assert got[-1] < got[0] and np.allclose(got, want, rtol=1e-4), (got, want)


if __name__ == "__main__":
    main()
