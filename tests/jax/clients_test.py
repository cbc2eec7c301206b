#!/usr/bin/env python3
"""Programs of other frameworks on Weft: the examples for PyTorch (by torchax) and for TensorFlow's export.  Each compares its results with
the framework's own.  Prints TAP.

    Interpreter: $WEFT_FRAMEWORKS_PYTHON (~/.cache/weft/frameworks/bin/python; .ci/run makes it).
    PJRT plugin: $WEFT_BUILDDIR/.libs/pjrt_weft.so.
"""
import os
import subprocess
import sys
import tempfile

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)

PYTHON = os.environ.get("WEFT_FRAMEWORKS_PYTHON") or os.path.expanduser("~/.cache/weft/frameworks/bin/python")
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build"))
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LIMIT_S = 300


def run(*command):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "WEFT_NUM"))}
    environment.update(WEFT_PJRT_PLUGIN=os.path.join(BUILD, ".libs", "pjrt_weft.so"), PYTHONPATH=os.path.join(SOURCE, "python"),
                       PYTHONWARNINGS="ignore", JAX_PLATFORMS="weft", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-3000:]}"
    return done.stdout


def example(name, *arguments):
    return run(PYTHON, os.path.join(SOURCE, "examples", "python", name), *arguments)


def pytorch_by_torchax():
    text = example("torch_training.py", "10")
    assert "WeftDevice" in text, text


def tensorflow():
    with tempfile.TemporaryDirectory() as folder:
        text = example("tensorflow_export.py", folder)
        assert "SavedModel: largest" in text and "function: largest" in text, text
        for name in ("model.mlirbc", "function.mlir"):
            text = run(os.path.join(BUILD, "weft"), "run", os.path.join(folder, name), "--compare", "reference")
            assert "agrees with the reference evaluator" in text, text


def main():
    failed = 0
    tests = [(pytorch_by_torchax, ("jax", "torch", "torchax")), (tensorflow, ("tensorflow",))]
    print(f"1..{len(tests)}")
    for i, (test, modules) in enumerate(tests, 1):
        find = f"import importlib.util, sys; sys.exit([m for m in {modules} if not importlib.util.find_spec(m)] or 0)"
        if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", find], capture_output=True).returncode:
            print(f"ok {i} - {test.__name__} # SKIP no interpreter with {', '.join(modules)} at {PYTHON} (WEFT_FRAMEWORKS_PYTHON)")
            continue
        try:
            test()
            print(f"ok {i} - {test.__name__}", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as e:
            failed += 1
            print(f"not ok {i} - {test.__name__}\n# " + str(e).replace("\n", "\n# "), flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
