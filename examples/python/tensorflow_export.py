#!/usr/bin/env python3
"""Functions of TensorFlow on Weft: TensorFlow writes them as StableHLO, and Weft compiles and runs them, without JAX.

    pip install tensorflow-cpu==2.21.0
    python examples/python/tensorflow_export.py [FOLDER]

A SavedModel becomes an artefact of StableHLO that holds its variables; of a function, TensorFlow gives a text whose last parameters are the
variables.  FOLDER keeps both as model.mlirbc and function.mlir, for `weft run`.
"""
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.compiler.mlir.tensorflow_to_stablehlo.python import pywrap_tensorflow_to_stablehlo

import weft


class Net(tf.Module):
    def __init__(self):
        random = np.random.RandomState(0)
        self.kernel = tf.Variable(random.randn(3, 3, 1, 8).astype(np.float32))
        self.weights = tf.Variable(random.randn(128, 10).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec((2, 8, 8, 1))], jit_compile=True)
    def __call__(self, x):
        y = tf.nn.max_pool2d(tf.nn.gelu(tf.nn.conv2d(x, self.kernel, 1, "SAME")), 2, 2, "VALID")
        return tf.nn.softmax(tf.reshape(y, (2, 128)) @ self.weights)


def keep(folder, name, code):
    if folder:
        with open(os.path.join(folder, name), "wb") as f:
            f.write(code if isinstance(code, bytes) else code.encode())


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    net, x = Net(), np.random.RandomState(1).randn(2, 8, 8, 1).astype(np.float32)
    want = net(x).numpy()

    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(net, saved)
        artefact = pywrap_tensorflow_to_stablehlo.savedmodel_to_stablehlo(saved, ["serving_default"], ["serve"], "")
    keep(folder, "model.mlirbc", artefact)
    model = weft.compile(artefact)(x)

    text = net.__call__.experimental_get_compiler_ir(x)(stage="stablehlo")
    keep(folder, "function.mlir", text)
    function = weft.compile(text)(x, net.kernel.numpy(), net.weights.numpy())

    for name, got in (("SavedModel", model), ("function", function)):
        print(f"{name}: largest difference from TensorFlow {np.abs(got - want).max():.2g}")
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
