#!/usr/bin/env python3
"""PyTorch on Weft by torch_xla, which loads Weft's plugin as a device of its own; without JAX.

    pip install torch==2.9.0 torch_xla==2.9.0 numpy
    WEFT_PJRT_PLUGIN=$(python -c 'import weft; print(weft.library_path())') python examples/python/torch_xla_training.py [STEPS]

A small convolutional network is trained by gradient descent, first by PyTorch itself, then on Weft; the losses must agree.
"""
import os
import sys

os.environ["PJRT_DEVICE"] = "WEFT"
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch_xla  # noqa: E402
from torch_xla.experimental import plugins  # noqa: E402


class WeftPlugin(plugins.DevicePlugin):
    def library_path(self):
        return os.environ["WEFT_PJRT_PLUGIN"]

    def physical_chip_count(self):
        return 1


def losses_on(device, steps):
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 32),
                        nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).to(device)
    random = np.random.RandomState(0)
    x = torch.from_numpy(random.randn(64, 1, 8, 8).astype(np.float32)).to(device)
    labels = torch.from_numpy(random.randint(0, 4, 64)).to(device)
    optimizer, losses = torch.optim.SGD(net.parameters(), 0.05), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        torch_xla.sync()  # what was recorded is compiled and runs now
        losses.append(loss.item())
    return losses


def main():
    plugins.use_dynamic_plugins()
    plugins.register_plugin("WEFT", WeftPlugin())
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    device = torch_xla.device()  # PyTorch counts its devices in the first backward pass: this one must be there
    want, got = losses_on("cpu", steps), losses_on(device, steps)
    print(f"on {device}: loss {got[0]:.6f} -> {got[-1]:.6f}, PyTorch's {want[0]:.6f} -> {want[-1]:.6f}")
    assert got[-1] < got[0] and np.allclose(got, want, rtol=1e-4), (got, want)


if __name__ == "__main__":
    main()
