#!/usr/bin/env python3
"""Programs that older JAX versions have exported: every artifact in the installed jax's own data for backward compatibility is read,
and runs to the outputs that are stored with it.  Prints TAP.

Left out of running: custom calls of GPUs and TPUs (a CPU has no such targets), and artifacts for several devices whose number is not
in the program.  Where vectors are not unique (the matrices are singular) the factors are multiplied instead.
    Interpreter with jax 0.10.2: $WEFT_PYTHON.  The command: $WEFT_BUILDDIR/weft."""
import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile

if os.environ.get("WEFT_PYTHON") and os.environ.get("IN_WEFT_PYTHON") != "1":
    os.environ["IN_WEFT_PYTHON"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import numpy as np
    from jax._src.internal_test_util import export_back_compat_test_data as data
except ImportError:
    print("1..0 # SKIP no jax with its data for backward compatibility in this interpreter (set WEFT_PYTHON)")
    sys.exit(0)

WEFT = os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), "weft")
FOREIGN = ("cu", "hip", "tpu_custom", "mosaic", "Eigh", "Lu", "Qr", "Product", "__gpu", "Allocate")
NO_IDENTITY = ("tpu_stablehlo_dynamic_reduce_window.data_variadic",)  # 1 and 2 as initial values of sums: a TPU took them nine times


def cases(name, value):
    """(name, artifact) of all dictionaries in nested ones and lists."""
    if isinstance(value, dict) and "testdata_version" in value:
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from cases(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        for key, inner in enumerate(value):
            yield from cases(f"{name}.{key}", inner)


def artifacts():
    for module in pkgutil.walk_packages(data.__path__, data.__name__ + "."):
        if module.ispkg:
            continue
        for key, value in vars(importlib.import_module(module.name)).items():
            if key.startswith("data") or key.startswith("kernel") or key.startswith("semaphore"):
                yield from cases(f"{module.name.rsplit('.', 1)[1]}.{key}", value)


def adjoint(a):
    return a.conj().swapaxes(-1, -2)


def eig(results):
    values, left, right = results
    a = np.arange(16).reshape(4, 4)
    return [(a @ right, right * values), (adjoint(a) @ left, left * values.conj())]


def eigh(results):
    vectors, values = results
    a = np.arange(64, dtype=vectors.dtype).reshape(8, 8)
    return [((a + adjoint(a)) / 2 @ vectors, vectors * values), (adjoint(vectors) @ vectors, np.eye(8))]


def schur(results):
    form, vectors = results
    return [(vectors @ form @ adjoint(vectors), np.arange(16).reshape(4, 4)), (adjoint(vectors) @ vectors, np.eye(4))]


FACTORS = {"cpu_eig_": eig, "cpu_eigh_": eigh, "cpu_schur_": schur}


def weft(*args):
    return subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=120, check=False)


def wrong(name, case, folder):
    """Why `name` does not do what it should, or None."""
    path = os.path.join(folder, "program.mlirbc")
    with open(path, "wb") as f:
        f.write(case["mlir_module_serialized"])
    foreign = case["platform"] != "cpu" and any(t.startswith(FOREIGN) for t in case["custom_call_targets"])
    if foreign or case.get("nr_devices", 1) > 1:
        done = weft("inspect", path, "--emit=hlo")
        return done.stderr if done.returncode else "left out"
    if name.startswith(NO_IDENTITY):
        return "left out"
    command = ["run", path, "--quiet", "--output-dir", folder]
    for i, a in enumerate(case["inputs"]):
        np.save(f"{folder}/input_{i}.npy", a)
        command += ["--input", f"{folder}/input_{i}.npy"]
    done = weft(*command)
    if done.returncode:
        return done.stderr
    results = [np.load(f"{folder}/result_{i}.npy") for i in range(len(case["expected_outputs"]))]
    pairs = list(zip(results, case["expected_outputs"]))
    for prefix, factors in FACTORS.items():
        if name.startswith(prefix):
            pairs = factors(results)
    for i, (got, want) in enumerate(pairs):
        if got.shape != np.shape(want) or not np.allclose(got, want, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"result {i}: got {got.ravel()[:8]}, want {np.ravel(want)[:8]}"
    return None


def main():
    count, ran, bad = 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in artifacts():
            count += 1
            why = wrong(name, case, folder)
            ran += why != "left out"
            if why and why != "left out":
                bad.append(f"{name}: {why}")
    for text in bad:
        print("# " + text.strip().replace("\n", "\n# "))
    print(f"# {count} artifacts, {ran} of them run")
    good = not bad and count > 100 and ran > 50
    print(("ok" if good else "not ok") + " 1 - what older versions exported runs\n1..1")
    sys.exit(not good)


main()
