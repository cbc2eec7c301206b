#!/usr/bin/env python3
"""Linear regression by gradient descent, in StableHLO, without JAX.

    python examples/python/regression.py

One program makes one step: it takes the weights, the data and the rate, and returns new weights and the loss.
"""
import numpy as np

import weft

ROWS, FEATURES, STEPS, RATE = 256, 8, 200, 0.1
WEIGHTS, DATA, COLUMN = f"tensor<{FEATURES}xf32>", f"tensor<{ROWS}x{FEATURES}xf32>", f"tensor<{ROWS}xf32>"

STEP = f"""
func.func @main(%w: {WEIGHTS}, %x: {DATA}, %y: {COLUMN}, %rate: tensor<f32>) -> ({WEIGHTS}, tensor<f32>) {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %scale = stablehlo.constant dense<{1.0 / ROWS}> : tensor<f32>
  %guess = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({DATA}, {WEIGHTS}) -> {COLUMN}
  %error = stablehlo.subtract %guess, %y : {COLUMN}
  %square = stablehlo.multiply %error, %error : {COLUMN}
  %sum = stablehlo.reduce(%square init: %zero) applies stablehlo.add across dimensions = [0] : ({COLUMN}, tensor<f32>) -> tensor<f32>
  %loss = stablehlo.multiply %sum, %scale : tensor<f32>
  %gradient = stablehlo.dot_general %error, %x, contracting_dims = [0] x [0] : ({COLUMN}, {DATA}) -> {WEIGHTS}
  %factor = stablehlo.multiply %rate, %scale : tensor<f32>
  %factors = stablehlo.broadcast_in_dim %factor, dims = [] : (tensor<f32>) -> {WEIGHTS}
  %change = stablehlo.multiply %gradient, %factors : {WEIGHTS}
  %new = stablehlo.subtract %w, %change : {WEIGHTS}
  return %new, %loss : {WEIGHTS}, tensor<f32>
}}
"""


def main():
    random = np.random.default_rng(0)
    truth = np.arange(FEATURES, dtype=np.float32)
    x = random.standard_normal((ROWS, FEATURES), np.float32)
    y = x @ truth
    step = weft.compile(STEP)
    w = np.zeros(FEATURES, np.float32)
    for i in range(STEPS):
        w, loss = step(w, x, y, np.float32(RATE))
        if i % 50 == 0:
            print(f"step {i:3d}  loss {loss:.6f}")
    print("weights", np.round(w, 3))
    print(step.plan())
    for s in step.profile(w, x, y, np.float32(RATE))[:5]:
        print(f"{s.self_ms:8.4f} ms  {s.count:3d} x  {s.name}")
    assert np.abs(w - truth).max() < 1e-2, w


if __name__ == "__main__":
    main()
