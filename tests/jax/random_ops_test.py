#!/usr/bin/env python3
"""Functions of jax.numpy, jax.lax, jax.nn and jax.scipy on random arguments: Weft gives what XLA:CPU gives.  Prints TAP.

A case is a function, a seed and the arguments it was given; what JAX itself refuses while it traces is no case.

    Environment as for e2e_test.py.    random_ops_test.py [SEED [COUNT]] | --all [SEED]    --all: every function, twelve arguments each
"""
import random
import sys
import types
import warnings

import e2e_test as e2e  # starts $WEFT_PYTHON, or skips

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.signal
import jax.scipy.special
import jax.scipy.stats
import ml_dtypes
import numpy as np

MODULES = {"jnp": jnp, "jnp.linalg": jnp.linalg, "jnp.fft": jnp.fft, "lax": jax.lax, "nn": jax.nn, "special": jax.scipy.special,
           "linalg": jax.scipy.linalg, "signal": jax.scipy.signal}
MODULES.update({"stats." + n: m for n, m in vars(jax.scipy.stats).items() if isinstance(m, types.ModuleType)})
DTYPES = [np.float32, np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.uint8, np.int64, np.bool_, np.complex64]
SHAPES = [(), (1,), (3,), (4,), (0,), (2, 3), (4, 4), (3, 4), (3, 1), (2, 3, 4), (2, 4, 4), (33,)]
# names of files, of devices, of printing; contents that are undefined; results that are right up to a sign or an order
SKIP = ("save load print from fromfile frombuffer dlpack array_repr array_str array_equal empty get_printoptions device_put rng_uniform eig eigh eigvals svd "
        "qr schur rsf2csf sqrtm funm logm expm polar svd_subspace_by_index matrix_rank pinv lstsq null_space cond roots infeed outfeed create_token "
        "with_sharding_constraint tanh_sinh polyfit cholesky_update tridiagonal householder_product after_all optimization_barrier").split()


def functions():
    for module, contents in MODULES.items():
        for name, f in sorted(vars(contents).items()):
            if callable(f) and not name.startswith("_") and not isinstance(f, type) and not any(name == s or name.startswith(s + "_") for s in SKIP):
                yield f"{module}.{name}", f


def array(r, shape, dtype):
    values = np.random.RandomState(r.randrange(1 << 30))
    d = np.dtype(dtype)
    if d.kind == "b":
        return np.asarray(values.rand(*shape) < 0.5)
    if d.kind in "iu":
        return np.asarray(values.randint(0 if d.kind == "u" else -9, 10, shape), d)
    x = values.uniform(-3, 3, shape) * r.choice([1, 1, 0.1, 10])
    return np.asarray(x + 1j * values.uniform(-3, 3, shape) if d.kind == "c" else x, d)


def arguments(r):
    """One to three arrays: mostly of one type, of one shape or of shapes that broadcast."""
    shape, dtype = r.choice(SHAPES), r.choice(DTYPES)
    count = r.choice([1, 1, 1, 2, 2, 3])
    return [array(r, shape if r.random() < 0.7 else r.choice([(), shape[-1:], shape]), dtype if r.random() < 0.85 else r.choice(DTYPES))
            for _ in range(count)]


def case(name, f, seed):
    """Compares the case and returns what was compared; None where JAX cannot trace the case. Raises at a difference."""
    r = random.Random(f"{name} {seed}")
    args = arguments(r)
    try:
        jax.eval_shape(f, *args)
        with jax.default_device(e2e.CPU[0]):
            want = e2e.run_on(e2e.CPU[0], f, args, True)
    except Exception:  # not for such arguments
        return None
    shown = ", ".join(f"{np.dtype(a.dtype).name}{list(a.shape)}" for a in args)
    try:
        e2e.compare(e2e.run_on(e2e.WEFT[0], f, args, True), want, 50)
    except Exception as e:
        raise AssertionError(f"{name}({shown}) of seed {seed}: {type(e).__name__}: {str(e)[:400]}") from e
    return shown


def main():
    warnings.simplefilter("ignore")
    every = "--all" in sys.argv
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    seed, count = numbers[0] if numbers else 1, numbers[1] if len(numbers) > 1 else 60
    todo = [(n, f, s) for n, f in functions() for s in range(seed, seed + (12 if every else 1))]
    if not every:
        random.Random(seed).shuffle(todo)
    ran = failed = 0
    for name, f, s in todo:
        try:
            shown = case(name, f, s)
        except AssertionError as e:
            shown, failed = f"# {e}".replace("\n", "\n# "), failed + 1
            print(shown, flush=True)
            shown = f"not ok {ran + 1} - {name}"
        else:
            shown = shown and f"ok {ran + 1} - {name}({shown})"
        if shown:
            ran += 1
            print(shown, flush=True)
        if ran == count and not every:
            break
    print(f"1..{ran}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
