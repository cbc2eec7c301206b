#!/usr/bin/env python3
"""JAX on Weft in one process with TensorFlow and PyTorch, which bring an LLVM and a BLAS of their own, imported before and after.
Prints TAP.

    Interpreter with jax 0.10.2, tensorflow-cpu and torch: $WEFT_FRAMEWORKS_PYTHON (~/.cache/weft/frameworks/bin/python; .ci/run makes it).
    PJRT plugin: $WEFT_BUILDDIR/.libs/pjrt_weft.so.
"""
import glob
import os
import signal
import subprocess
import sys
import tempfile
import textwrap

PYTHON = os.environ.get("WEFT_FRAMEWORKS_PYTHON") or os.path.expanduser("~/.cache/weft/frameworks/bin/python")
PLUGIN = os.path.abspath(os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs", "pjrt_weft.so"))
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
LIMIT_S = 300

STEPS = """
    import numpy as np
    n = 48
    a = np.random.RandomState(0).rand(n, n) + n * np.eye(n)
    b = np.ones((n, 3))
    want = np.linalg.solve(a, b), np.sin(a) @ b, np.linalg.eigvalsh(a + a.T)
    def check(*got):
        for g, w in zip(got, want):
            np.testing.assert_allclose(np.asarray(g), w, rtol=1e-9, atol=1e-9)
    def weft():
        import jax, jax.numpy as jnp
        jax.config.update("jax_enable_x64", True)
        assert "weft" in jax.devices()[0].client.platform_version
        check(*jax.jit(lambda a, b: (jnp.linalg.solve(a, b), jnp.sin(a) @ b, jnp.linalg.eigvalsh(a + a.T)))(a, b))
    def tensorflow():
        import tensorflow as tf
        f = tf.function(lambda a, b: tf.sin(a) @ b, jit_compile=True)  # by TensorFlow's own XLA and LLVM
        check(tf.linalg.solve(a, b), f(a, b), tf.linalg.eigvalsh(a + a.T))
    def torch():
        import torch
        x, y = torch.from_numpy(a), torch.from_numpy(b)
        check(torch.linalg.solve(x, y), torch.sin(x) @ y, torch.linalg.eigvalsh(x + x.T))
    def keras():  # imports TensorFlow if it is there, whatever its backend
        import keras
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        x = np.random.RandomState(1).rand(64, 4)
        losses = model.fit(x, x.sum(1), epochs=3, verbose=0).history["loss"]
        assert losses[-1] < losses[0], losses
"""


def run(*steps, **settings):
    """What a process prints that takes these steps one after the other."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "WEFT_NUM"))}
    env.update(WEFT_PJRT_PLUGIN=PLUGIN, PYTHONPATH=PACKAGE, PYTHONWARNINGS="ignore", JAX_PLATFORMS="weft", KERAS_BACKEND="jax",
               TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", **settings)
    code = textwrap.dedent(STEPS) + "\n".join(f"{step}()" for step in steps) + "\nprint('done')\n"
    p = subprocess.Popen([PYTHON, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        out = p.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        raise AssertionError("it hangs")
    assert p.returncode == 0 and out.strip().endswith("done"), (p.returncode, out[-2000:])


def tensorflow_and_torch_are_imported_and_run_first():
    run("tensorflow", "torch", "weft", "tensorflow", "torch", "weft")


def weft_runs_first():
    run("weft", "torch", "tensorflow", "weft")


def keras_on_jax_where_tensorflow_is_installed():
    run("keras", "weft")


def no_framework_gives_the_plugin_and_its_libraries_a_symbol():
    """By the dynamic linker's own account."""
    with tempfile.TemporaryDirectory() as folder:
        run("torch", "tensorflow", "weft", LD_DEBUG="bindings", LD_DEBUG_OUTPUT=os.path.join(folder, "log"))
        ours = ("pjrt_weft.so", "libopenblas.so", "libhwloc.so", "libprotobuf-c.so", "libnghttp2.so")
        seen, wrong = 0, set()
        for name in glob.glob(os.path.join(folder, "log*")):
            with open(name, errors="replace") as log:
                for line in log:
                    words = line.split()  # PID: binding file FILE [0] to FILE [0]: normal symbol `NAME'
                    if len(words) < 10 or words[1] != "binding" or not os.path.basename(words[3]).startswith(ours):
                        continue
                    seen += 1
                    if "site-packages" in words[6]:
                        wrong.add((os.path.basename(words[3]), os.path.basename(words[6]), words[words.index("symbol") + 1]))
        assert seen > 100, seen
        assert not wrong, sorted(wrong)[:20]


def missing():
    """Why the tests cannot run here; None if they can."""
    if os.environ.get("WEFT_SANITIZED"):
        return "Python cannot load a plugin with a sanitizer"
    if not os.path.exists(PLUGIN):
        return f"no {PLUGIN}"
    if not os.access(PYTHON, os.X_OK):
        return f"no interpreter with tensorflow-cpu and torch at {PYTHON} (WEFT_FRAMEWORKS_PYTHON)"
    find = "import importlib.util, sys; sys.exit([m for m in ('jax', 'tensorflow', 'torch', 'keras') if not importlib.util.find_spec(m)] or 0)"
    p = subprocess.run([PYTHON, "-c", find], capture_output=True, text=True, timeout=120)
    return f"{PYTHON} lacks {p.stderr.strip()}" if p.returncode else None


def main():
    reason = missing()
    if reason:
        print(f"1..0 # SKIP {reason}")
        return 0
    tests = [tensorflow_and_torch_are_imported_and_run_first, weft_runs_first, keras_on_jax_where_tensorflow_is_installed,
             no_framework_gives_the_plugin_and_its_libraries_a_symbol]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for i, test in enumerate(tests, 1):
        try:
            test()
            print(f"ok {i} - {test.__name__}", flush=True)
        except AssertionError as e:
            failed = 1
            print(f"not ok {i} - {test.__name__}", *str(e).splitlines(), sep="\n# ", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
