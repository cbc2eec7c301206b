#!/usr/bin/env python3
"""JAX's linear algebra, Fourier transforms and sorts on the plugin: factors are multiplied back, the rest is compared with
NumPy.  Needs jaxlib (python3's own, or that of WEFT_PYTHON) and the built plugin."""
import os, sys

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)

try:
    import jaxlib  # noqa: F401
except ImportError:
    other = os.environ.get("WEFT_PYTHON", "")
    if os.path.isabs(other) and os.path.exists(other) and "WEFT_REEXEC" not in os.environ:
        os.environ["WEFT_REEXEC"] = "1"
        os.execv(other, [other] + sys.argv)
    print("1..0 # SKIP no jaxlib")
    sys.exit(0)

plugin = os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs/pjrt_weft.so")
if not os.path.exists(plugin):
    print("1..0 # SKIP no plugin at " + plugin)
    sys.exit(0)
os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"] = "weft:" + plugin
os.environ["JAX_PLATFORMS"] = "weft"
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax._src.lax import linalg as lax_linalg

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
count = failed = 0


def random(t, *shape):
    x = rng.standard_normal(shape)
    if t.startswith("c"):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(t)


def check(name, residual, tolerance):
    """residual: a function that gives arrays which should be zero."""
    global count, failed
    count += 1
    try:
        error = max(float(np.max(np.abs(np.asarray(r)))) for r in residual())
        ok, why = error <= tolerance, "error %.3g, tolerance %.3g" % (error, tolerance)
    except Exception as e:
        ok, why = False, str(e).replace("\n", " ")[:300]
    if not ok:
        failed += 1
        print("# " + why)
    print("%sok %d - %s" % ("" if ok else "not ", count, name))


def run(f, *args):
    return jax.tree_util.tree_map(np.asarray, jax.jit(f)(*args))


adjoint = lambda x: x.conj().swapaxes(-1, -2)
for t in ["float32", "float64", "complex64", "complex128"]:
    tol = 1e-4 if t in ("float32", "complex64") else 1e-12
    a, b, x = random(t, 2, 6, 6), random(t, 2, 8, 5), random(t, 2, 6, 3)
    h, p, low = a + adjoint(a), a @ adjoint(a) + 6 * np.eye(6, dtype=t), np.tril(a) + 4 * np.eye(6, dtype=t)

    def cholesky():
        l = run(jnp.linalg.cholesky, p)
        return [l @ adjoint(l) - p, np.triu(l, 1)]

    def not_definite():
        return [np.isfinite(run(jnp.linalg.cholesky, -p)[:, 0, 0]).astype(float)]

    def nan_pivot():
        m = p.copy()
        m[:, 0, 0] = np.nan
        return [np.isfinite(np.diagonal(run(jnp.linalg.cholesky, m), axis1=-2, axis2=-1)).astype(float)]

    def not_finite():
        m = a.copy()
        m[0, 1, 2] = np.inf
        w, v = run(jnp.linalg.eig, m)
        return [np.isfinite(w[0]).astype(float), np.isfinite(v[0]).astype(float), a[1] @ v[1] - v[1] * w[1]]

    def triangular():
        for trans, op in [(0, low), (1, low.swapaxes(-1, -2)), (2, adjoint(low))]:
            yield op @ run(lambda m, r: jsl.solve_triangular(m, r, lower=True, trans=trans), low, x) - x

    def triangular_of(n, columns):
        m = random(t, 3, n, n) / n + 2 * np.eye(n, dtype=t)
        for left in (True, False):
            r = random(t, 3, n, columns) if left else random(t, 3, columns, n)
            for lower in (True, False):
                for unit in (True, False):
                    half = np.tril(m) if lower else np.triu(m)
                    if unit:
                        half = half - half * np.eye(n, dtype=t) + np.eye(n, dtype=t)
                    for transpose in (True, False):
                        y = run(lambda m, r: lax_linalg.triangular_solve(m, r, left_side=left, lower=lower, unit_diagonal=unit,
                                                                         transpose_a=transpose), m, r)
                        op = half.swapaxes(-1, -2) if transpose else half
                        yield (op @ y if left else y @ op) - r

    def lu():
        perm, l, u = run(jsl.lu, b[0])
        return [perm @ l @ u - b[0]]

    def lu_of(m, n):
        x = random(t, 3, m, n)
        x[1, :, n // 2] = 0  # no pivot there
        factors, pivots, order = run(lax_linalg.lu, x)
        l = np.tril(factors, -1)[..., :min(m, n)] + np.eye(m, min(m, n), dtype=t)
        yield l @ np.triu(factors)[..., :min(m, n), :] - np.take_along_axis(x, order[..., None], 1)
        yield np.maximum(np.abs(l) - (1 if t.startswith("f") else 1.5), 0)  # of complex numbers LAPACK compares |re| + |im|

    def lu_of_nan():  # below a pivot of 0; LAPACK carries it to the right
        factors, _, _ = run(lax_linalg.lu, np.array([[0, 1, 4], [np.nan, 2, 5], [0, 3, 6]], t))
        yield np.isfinite(factors[1:, 1:]).astype("float32")

    def qr(mode, m):
        q, r = run(lambda m: jnp.linalg.qr(m, mode=mode), m)
        return [q @ r - m, adjoint(q) @ q - np.eye(q.shape[-1])]

    def pivoted_qr():
        q, r, order = run(lambda m: jsl.qr(m, pivoting=True), a[0])
        return [q @ r - a[0][:, order]]

    def svd(full, m):
        u, s, v = run(lambda m: jnp.linalg.svd(m, full_matrices=full), m)
        k = s.shape[-1]
        return [(u[..., :k] * s[..., None, :]) @ v[..., :k, :] - m, adjoint(u) @ u - np.eye(u.shape[-1])]

    def eigh():
        w, v = run(jnp.linalg.eigh, h)
        return [h @ v - v * w[..., None, :], np.minimum(np.diff(w), 0)]

    def eig():
        w, v = run(jnp.linalg.eig, a)
        return [a @ v - v * w[..., None, :]]

    def schur():
        s, z = run(jsl.schur, a[0])
        return [z @ s @ adjoint(z) - a[0]]

    def hessenberg():
        s, q = run(lambda m: jsl.hessenberg(m, calc_q=True), a[0])
        return [q @ s @ adjoint(q) - a[0], np.tril(s, -2)]

    def tridiagonal():
        d, e = run(lambda m: lax_linalg.tridiagonal(m, lower=True), h[0])[1:3]
        return [np.linalg.eigvalsh(np.diag(d) + np.diag(e, 1) + np.diag(e, -1)) - np.linalg.eigvalsh(h[0])]

    def tridiagonal_solve():
        d, dl, du, r = random(t, 6) + 4, random(t, 6), random(t, 6), random(t, 6, 2)
        dl[0] = du[-1] = 0
        m = np.diag(d) + np.diag(dl[1:], -1) + np.diag(du[:-1], 1)
        return [m @ run(jax.lax.linalg.tridiagonal_solve, dl, d, du, r) - r]

    check("cholesky " + t, cholesky, tol)
    check("cholesky of an indefinite matrix is NaN " + t, not_definite, 0)
    check("cholesky of a NaN is NaN " + t, nan_pivot, 0)
    check("eig of inf is NaN, of the next matrix not " + t, not_finite, tol)
    check("triangular solve " + t, triangular, tol)
    for n, columns in ((1, 1), (3, 1), (3, 4), (16, 16), (32, 4), (33, 5)) if t == "float32" else ((3, 4),):
        check("triangular systems of %d x %d, %d columns, %s" % (n, n, columns, t), lambda: triangular_of(n, columns), tol)
    for m, n in ((1, 1), (3, 3), (3, 7), (7, 3), (32, 32), (33, 32), (40, 40)):
        check("lu of %d x %d %s" % (m, n, t), lambda: lu_of(m, n), tol)
    check("lu of a NaN " + t, lu_of_nan, 0)
    check("lu " + t, lu, tol)
    check("solve " + t, lambda: [a @ run(jnp.linalg.solve, a, x) - x], tol)
    check("qr " + t, lambda: qr("reduced", b), tol)
    check("full qr " + t, lambda: qr("complete", b), tol)
    check("pivoted qr " + t, pivoted_qr, tol)
    check("svd " + t, lambda: svd(False, b), tol)
    check("full svd " + t, lambda: svd(True, b), tol)
    check("wide svd " + t, lambda: svd(False, b.swapaxes(-1, -2)), tol)
    check("eigh " + t, eigh, tol)
    check("eig " + t, eig, tol)
    check("schur " + t, schur, tol)
    check("hessenberg " + t, hessenberg, tol)
    check("hessenberg of a constant " + t,
          lambda: [run(lambda: jsl.hessenberg(a[0])) - run(jsl.hessenberg, a[0])], 0)
    check("tridiagonal " + t, tridiagonal, tol)
    check("tridiagonal solve " + t, tridiagonal_solve, tol)
    check("fft2 " + t, lambda: [run(jnp.fft.fft2, a) - np.fft.fft2(a)], tol)

v = random("float32", 1000)
check("rfft", lambda: [run(jnp.fft.rfft, v) - np.fft.rfft(v)], 1e-3)
check("irfft", lambda: [run(lambda u: jnp.fft.irfft(jnp.fft.rfft(u)), v) - v], 1e-5)
check("sort", lambda: [run(jnp.sort, v) - np.sort(v)], 0)
check("argsort", lambda: [run(jnp.argsort, v) - np.argsort(v, kind="stable")], 0)
check("sort of several keys", lambda: [run(lambda i, u: jax.lax.sort((i, u), num_keys=2), np.arange(1000) % 7, v)[1] -
                                       v[np.lexsort((v, np.arange(1000) % 7))]], 0)
check("top_k", lambda: [run(lambda u: jax.lax.top_k(u, 7), v)[0] - np.sort(v)[::-1][:7]], 0)
check("convolve", lambda: [run(jnp.convolve, v, v[:31]) - np.convolve(v, v[:31])], 1e-4)
print("1..%d" % count)
sys.exit(failed != 0)
