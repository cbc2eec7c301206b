#!/usr/bin/env python3
"""Programs over 8 devices on XLA:CPU and on Weft, in one process, compared.  Prints TAP.

    Environment as for e2e_test.py.    multi_device_test.py [-k WORD]
"""
import os
import sys

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)

if os.environ.get("WEFT_PYTHON") and os.environ.get("WEFT_E2E") != "1":
    os.environ["WEFT_E2E"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
PLUGIN = os.environ.get("WEFT_PLUGIN") or os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs", "pjrt_weft.so")
try:
    import jax
except ImportError:
    print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    sys.exit(0)
if not os.path.exists(PLUGIN):
    print(f"Bail out! no plugin at {PLUGIN}")
    sys.exit(1)
os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"] = f"weft:{PLUGIN}"
os.environ["JAX_PLATFORMS"] = "weft,cpu"
os.environ["WEFT_NUM_DEVICES"] = "8"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import itertools  # noqa: E402

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

PLATFORMS = {name: np.array(jax.devices(name)[:8]) for name in ("weft", "cpu")}
MESHES = {"8": ((8,), ("x",)), "2x4": ((2, 4), ("x", "y")), "2x2x2": ((2, 2, 2), ("x", "y", "z"))}
both, single = [], []


def on(kind="2x4"):
    """Runs on both platforms; what it returns must agree."""
    return lambda f: both.append((f.__name__.replace("_", " "), kind, f)) or f


def weft(f):
    """Raises when something is wrong on Weft."""
    single.append((f.__name__.replace("_", " "), f))
    return f


def mesh_on(platform, kind):
    shape, names = MESHES[kind]
    return Mesh(PLATFORMS[platform].reshape(shape), names)


def rand(*shape, seed=0):
    return np.random.RandomState(seed + 7).uniform(-1, 1, shape).astype(np.float32)


def smap(mesh, f, in_specs, out_specs, **kw):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **kw))


def put(mesh, x, spec):
    return jax.device_put(x, NamedSharding(mesh, spec))


# -- shard_map ----------------------------------------------------------------------------------------------------------
@on()
def psum_over_each_axis_and_both(mesh):
    f = smap(mesh, lambda x: (lax.psum(x, "x"), lax.psum(x, "y"), lax.psum(x, ("x", "y")), lax.psum(x, ("y", "x"))),
             P("x", "y"), (P(None, "y"), P("x", None), P(), P()))
    return f(rand(4, 8))


@on()
def axis_index_and_size(mesh):
    def f(x):
        return x + lax.axis_index("x") * 10 + lax.axis_index("y") + lax.axis_index(("y", "x")) * 100 + lax.axis_size("y")
    return smap(mesh, f, P("x", "y"), P("x", "y"))(rand(2, 4))


@on("8")
def ppermute_ring(mesh):
    def f(x):
        def step(i, s):
            acc, moving = s
            moving = lax.ppermute(moving, "x", [(j, (j + 1) % 8) for j in range(8)])
            return acc * 0.5 + moving, moving
        return lax.fori_loop(0, 8, step, (x, x))[0]
    return smap(mesh, f, P("x"), P("x"))(rand(16, 3))


@on("8")
def ppermute_partial_gives_zeros(mesh):
    return smap(mesh, lambda x: lax.ppermute(x, "x", [(0, 3), (3, 5)]), P("x"), P("x"))(rand(16))


@on()
def ppermute_along_one_of_two_axes(mesh):
    f = lambda x: (lax.ppermute(x, "y", [(i, (i + 1) % 4) for i in range(4)]), lax.pshuffle(x, "x", [1, 0]))
    return smap(mesh, f, P("x", "y"), (P("x", "y"), P("x", "y")))(rand(4, 8))


@on()
def psum_scatter_tiled_and_not(mesh):
    f = lambda x: (lax.psum_scatter(x, "y", scatter_dimension=1, tiled=True), lax.psum_scatter(x, "x", scatter_dimension=0))
    return smap(mesh, f, P(None, None), (P("x", "y"), P("x")), check_vma=False)(rand(2, 8))


@on()
def all_gather_on_each_dimension(mesh):
    f = lambda x: (lax.all_gather(x, "y", axis=1, tiled=True), lax.all_gather(x, "x", axis=0, tiled=True), lax.all_gather(x, "y"))
    return smap(mesh, f, P("x", "y"), (P("x", None), P(None, "y"), P(None, "x", None)), check_vma=False)(rand(4, 8))


@on()
def all_to_all_on_each_dimension(mesh):
    f = lambda x: (lax.all_to_all(x, "y", 0, 1, tiled=True), lax.all_to_all(x, "x", 1, 0, tiled=True))
    return smap(mesh, f, P("x", "y"), (P("x", "y"), P("x", "y")))(rand(8, 16))


@on("2x2x2")
def three_axes(mesh):
    f = lambda x: lax.psum(lax.all_gather(x, ("z", "x"), tiled=True), "y")
    return smap(mesh, f, P(("x", "z"), "y"), P(None, None), check_vma=False)(rand(8, 4))


@on("8")
def pmax_pmin_pmean(mesh):
    return smap(mesh, lambda x: (lax.pmax(x, "x"), lax.pmin(x, "x"), lax.pmean(x, "x")), P("x"), (P(), P(), P()))(rand(16, 2))


@on("8")
def integers_and_bools(mesh):
    def f(x, b):
        return lax.psum(x, "x"), lax.pmax(x, "x"), lax.all_gather(b, "x", tiled=True), lax.psum(b.astype(jnp.int32), "x")
    x = np.arange(16, dtype=np.int32) * 3 - 20
    return smap(mesh, f, (P("x"), P("x")), (P(), P(), P(), P()), check_vma=False)(x, x % 2 == 0)


@on("8")
def scan_inside_shard_map(mesh):
    def f(x):
        return lax.scan(lambda c, a: (c + lax.psum(a, "x"), c * a), jnp.zeros(x.shape[1:]), x, _split_transpose=False)
    return smap(mesh, f, P(None, "x"), (P(None), P(None, "x")), check_vma=False)(rand(5, 8))


@on("8")
def while_inside_shard_map(mesh):
    def f(x):
        return lax.while_loop(lambda s: lax.pmax(s[1].sum(), "x") < 40, lambda s: (s[0] + 1, s[1] * 1.5 + 1), (0, x))[1]
    return smap(mesh, f, P("x"), P("x"), check_vma=False)(rand(8, 2))


@on("8")
def cond_inside_shard_map(mesh):
    f = lambda x: lax.cond(lax.axis_index("x") % 2 == 0, lambda a: a * 2, lambda a: -a, x)
    return smap(mesh, f, P("x"), P("x"))(rand(8, 3))


@on("8")
def nested_jit_inside_shard_map(mesh):
    inner = jax.jit(lambda a: lax.psum(jnp.sin(a), "x") + a)
    return smap(mesh, lambda x: inner(inner(x)), P("x"), P("x"))(rand(8, 3))


@on("8")
def shard_map_inside_scan(mesh):
    g = jax.shard_map(lambda x: x + lax.pmean(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    return jax.jit(lambda x: lax.scan(lambda c, _: (g(c) * 0.5, c.sum()), x, None, length=4))(rand(16))


@on()
def shard_map_twice_with_arithmetic_between(mesh):
    a = jax.shard_map(lambda x: x * 2 + lax.axis_index("x"), mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    b = jax.shard_map(lambda x: lax.psum(x, "y"), mesh=mesh, in_specs=P(None, ("y", "x")), out_specs=P(None, "x"))
    return jax.jit(lambda x: b(jnp.tanh(a(x)) + x.sum()))(rand(4, 8))


@on()
def shard_map_with_a_free_axis(mesh):
    f = jax.shard_map(lambda x: lax.psum(x @ x.T, "x"), mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"})
    return jax.jit(f)(rand(8, 6))


@on()
def nested_shard_map(mesh):
    def inner(y):
        return lax.psum(y, "y") + lax.axis_index("y")

    def outer(x):
        g = jax.shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"})
        return lax.psum(g(x), "x")
    f = jax.shard_map(outer, mesh=mesh, in_specs=P("x", None), out_specs=P(None, None), axis_names={"x"})
    return jax.jit(f)(rand(4, 8))


@on("8")
def grad_through_psum(mesh):
    def loss(w, x):
        f = jax.shard_map(lambda w, x: lax.psum(jnp.sum(jnp.tanh(x @ w) ** 2), "x"), mesh=mesh, in_specs=(P(), P("x")), out_specs=P())
        return f(w, x)
    return jax.jit(jax.value_and_grad(loss, (0, 1)))(rand(4, 3), rand(16, 4, seed=1))


@on("8")
def grad_through_collectives(mesh):
    def f(x):
        g = lax.all_gather(x, "x", tiled=True)
        s = lax.psum_scatter(jnp.sin(g), "x", tiled=True)
        p = lax.ppermute(s, "x", [(i, (i + 1) % 8) for i in range(8)])
        return lax.psum((p * x).sum(), "x")
    g = jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P())
    return jax.jit(jax.grad(lambda x: g(x)))(rand(16))


@on("8")
def vmap_of_shard_map(mesh):
    f = jax.shard_map(lambda x: lax.psum(x, "x") * x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    return jax.jit(jax.vmap(f))(rand(3, 16))


@on("8")
def random_in_shard_map(mesh):
    f = lambda k: jax.random.uniform(jax.random.fold_in(k, lax.axis_index("x")), (4,))
    return smap(mesh, f, P(), P("x"))(jax.random.key(3))


# -- pmap ---------------------------------------------------------------------------------------------------------------
@on("8")
def pmap_with_collectives(mesh):
    f = jax.pmap(lambda x, y: (lax.psum(x, "i"), lax.all_gather(y, "i"), lax.axis_index("i")), "i", in_axes=(0, 1),
                 devices=list(mesh.devices.flat))
    return f(rand(8, 3), rand(2, 8))


@on("8")
def manual_region_without_operands(mesh):
    return smap(mesh, lambda: lax.axis_index("x")[None], (), P("x"))()


@on("8")
def pmap_of_four_devices(mesh):
    return jax.pmap(lambda x: lax.pmean(jnp.sin(x), "i"), "i", devices=list(mesh.devices.flat)[2:6])(rand(4, 5))


# -- jit with shardings -------------------------------------------------------------------------------------------------
@on()
def sharded_matmul_in_every_layout(mesh):
    f = jax.jit(lambda a, b: a @ b)
    specs = [P(), P("x"), P("y"), P(None, "x"), P(None, "y"), P("x", "y"), P(("y", "x")), P("y", "x")]
    a, b = rand(8, 16), rand(16, 8, seed=1)
    return [f(put(mesh, a, p), put(mesh, b, q)) for p, q in itertools.product(specs, [P(), P("x", "y"), P(None, ("x", "y"))])]


@on()
def sharded_reductions(mesh):
    x = put(mesh, rand(8, 16), P("x", "y"))
    f = jax.jit(lambda x: (x.sum(), x.sum(0), x.max(1), x.mean(1, keepdims=True), jnp.argmax(x, 1), x.var()))
    return f(x)


@on()
def sharded_softmax_and_layer_norm(mesh):
    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    f = jax.jit(lambda x: (jax.nn.softmax(x, -1), jax.nn.softmax(x, 0), norm(x)))
    return f(put(mesh, rand(8, 16), P("x", "y")))


@on()
def sharded_shape_operations(mesh):
    def f(x):
        return (x.T, x.reshape(4, 32), x[1:5, ::2], jnp.concatenate([x, x * 2], 1), jnp.pad(x, 1), jnp.roll(x, 1, 0), x[::-1],
                jnp.sort(x, 1), jnp.cumsum(x, 0), x[jnp.array([3, 1])], x.at[2].add(1.0), jnp.tile(x, (2, 1)))
    return jax.jit(f)(put(mesh, rand(8, 16), P("x", "y")))


@on()
def sharded_control_flow(mesh):
    def f(x):
        a = lax.fori_loop(0, 3, lambda i, a: jnp.tanh(a) + x.sum(), x)
        return lax.cond(a.sum() > 0, lambda a: a * 2, lambda a: a - 1, a), lax.scan(lambda c, r: (c + r, c), x[0], x)
    return jax.jit(f)(put(mesh, rand(8, 16), P("x", "y")))


@on()
def sharded_training_step(mesh):
    def loss(p, x):
        return jnp.mean((jax.nn.relu(x @ p["a"]) @ p["b"]) ** 2)
    p = {"a": put(mesh, rand(16, 32), P(None, "y")), "b": put(mesh, rand(32, 4, seed=1), P("y", None))}
    step = jax.jit(lambda p, x: jax.tree.map(lambda w, g: w - 0.1 * g, p, jax.grad(loss)(p, x)),
                   out_shardings={"a": NamedSharding(mesh, P(None, "y")), "b": NamedSharding(mesh, P("y", None))}, donate_argnums=0)
    for i in range(3):
        p = step(p, put(mesh, rand(8, 16, seed=i), P("x", None)))
    return p


@on()
def with_sharding_constraint(mesh):
    def f(x):
        y = lax.with_sharding_constraint(x * 2, NamedSharding(mesh, P("y", "x")))
        return lax.with_sharding_constraint(y @ y.T, NamedSharding(mesh, P(None, "x"))).sum(0)
    return jax.jit(f)(put(mesh, rand(8, 16), P("x")))


@on()
def convolution_sharded_over_the_batch(mesh):
    x, w = put(mesh, rand(8, 3, 6, 6), P(("x", "y"))), put(mesh, rand(4, 3, 3, 3, seed=1), P())
    return jax.jit(lambda x, w: lax.conv(x, w, (1, 1), "SAME"))(x, w)


@on()
def linear_algebra_of_sharded_matrices(mesh):
    a = rand(8, 8)
    x = put(mesh, (a @ a.T + 8 * np.eye(8)).astype(np.float32), P("x", "y"))
    return jax.jit(lambda a: (jnp.linalg.cholesky(a), jnp.linalg.solve(a, a[:, :2])))(x)


@on()
def resharding_by_jit(mesh):
    x = put(mesh, rand(8, 16), P("x", "y"))
    return [jax.jit(lambda a: a, out_shardings=NamedSharding(mesh, s))(x) for s in
            (P(), P("y"), P("y", "x"), P(None, ("x", "y")), P(("y", "x")), P(("x", "y"), None))]


@on()
def random_numbers_sharded(mesh):
    return jax.jit(lambda: jax.random.normal(jax.random.key(1), (8, 16)), out_shardings=NamedSharding(mesh, P("x", "y")))()


@on()
def scalars_and_empty_arrays(mesh):
    x = put(mesh, rand(8, 4), P("x"))
    return jax.jit(lambda x, s: (x * s, x[:0], s + 1))(x, np.float32(3))


@on()
def scatter_and_gather_of_sharded_tables(mesh):
    table, at = put(mesh, rand(16, 8), P(None, "y")), put(mesh, np.arange(8, dtype=np.int32) * 3 % 16, P("x"))

    def f(table, at):
        rows = table[at]
        return rows, jnp.zeros_like(table).at[at].add(rows * 2), jax.grad(lambda t: jnp.sum(t[at] ** 3))(table)
    return jax.jit(f)(table, at)


@on()
def sums_left_unreduced(mesh):
    mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x, w = put(mesh, rand(4, 8), P(None, "y")), put(mesh, rand(8, 6, seed=1), P("y", None))
        f = jax.jit(lambda x, w: jnp.einsum("ab,bc->ac", x, w, out_sharding=P(unreduced={"y"})))
        y = f(x, w)
        parts = np.stack([np.asarray(s.data) for s in y.addressable_shards])
        return parts, jax.jit(lambda a: jax.reshard(a + a, P("y", None)))(y)


@on("8")
def loops_and_branches_over_reshards(mesh):
    mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        k, store = put(mesh, rand(16), P("x")), put(mesh, rand(16, seed=1), P(None))

        def f(p, store, k):
            body = lambda _, s: lax.cond(p, lambda: jax.reshard(k, P(None)) * 2, lambda: s)
            return lax.fori_loop(0, 3, body, store).sum()
        return jax.jit(jax.grad(f, (1, 2)))(jnp.array(True), store, k)


@on()
def programs_that_hand_on_their_operands(mesh):
    f = jax.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    return jax.jit(f)(rand(8)), jax.jit(lambda x: (x, x))(put(mesh, rand(8), P("y")))


# -- behaviour on Weft --------------------------------------------------------------------------------------------------
@weft
def shardings_mean_what_they_mean_to_jax():
    axes = [None, "x", "y", ("x", "y"), ("y", "x")]
    for kind in ("2x4", "2x2x2"):
        mesh = mesh_on("weft", kind)
        for a, b in itertools.product(axes + (["z", ("z", "x")] if kind == "2x2x2" else []), axes):
            names = [n for s in (a, b) for n in (s if isinstance(s, tuple) else (s,)) if n]
            if len(set(names)) != len(names):
                continue
            sharding = NamedSharding(mesh, P(a, b))
            c = jax.jit(lambda x: x + 1, in_shardings=sharding, out_shardings=sharding).lower(np.zeros((8, 8), np.float32)).compile()
            want = sharding._to_xla_hlo_sharding(2)
            got_in = jax._src.lib.xla_client.HloSharding.from_proto(c.runtime_executable().get_parameter_shardings()[0])
            got_out = jax._src.lib.xla_client.HloSharding.from_proto(c.runtime_executable().get_output_shardings()[0])
            assert got_in == want and got_out == want, (sharding.spec, got_in, got_out, want)
            assert c.output_shardings.is_equivalent_to(sharding, 2)


@weft
def ragged_rows_go_where_they_are_sent():
    """Device s sends (s + 2 d) % 4 rows to device d, packed on both sides; the rest of a result keeps its contents."""
    n, width, room = 8, 5, 24
    mesh = mesh_on("weft", "8")
    sizes = np.array([[(s + 2 * d) % 4 for d in range(n)] for s in range(n)], np.int32)
    starts = np.cumsum(sizes, 1) - sizes
    theirs = np.cumsum(sizes, 0) - sizes
    rows, old = rand(n, room, width), rand(n, room, width, seed=1)
    want = old.copy()
    for s, d in itertools.product(range(n), range(n)):
        want[d, theirs[s, d]:theirs[s, d] + sizes[s, d]] = rows[s, starts[s, d]:starts[s, d] + sizes[s, d]]

    def f(rows, old, starts, sizes, theirs, comes):
        return lax.ragged_all_to_all(rows[0], old[0], starts[0], sizes[0], theirs[0], comes[0], axis_name="x")[None]
    g = smap(mesh, f, P("x"), P("x"))
    args = [rows, old, starts.astype(np.int32), sizes, theirs.astype(np.int32), sizes.T.copy()]
    np.testing.assert_array_equal(np.asarray(g(*args)), want)
    loss = jax.jit(lambda r: (g(r, *args[1:]) ** 2).sum() / 2)
    sent = np.zeros_like(rows)  # the gradient of a row that is sent is the row itself
    for s, d in itertools.product(range(n), range(n)):
        at = slice(starts[s, d], starts[s, d] + sizes[s, d])
        sent[s, at] = rows[s, at]
    np.testing.assert_array_equal(np.asarray(jax.grad(loss)(rows)), sent)


@weft
def unspecified_outputs_have_a_sharding():
    mesh = mesh_on("weft", "2x4")
    x = put(mesh, rand(8, 16), P("x", "y"))
    y = jax.jit(lambda x: jax.nn.relu(x * 2) + 3 * x)(x)
    assert y.sharding.is_equivalent_to(x.sharding, 2), y.sharding
    z = jax.jit(lambda x: lax.with_sharding_constraint(x.T, NamedSharding(mesh, P("y"))))(x)
    assert z.sharding.is_equivalent_to(NamedSharding(mesh, P("y")), 2), z.sharding
    s = jax.jit(jax.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x)
    assert s.sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2), s.sharding
    y = jax.jit(lambda x: x * 2)(x)
    np.testing.assert_allclose(np.asarray(y), np.asarray(x) * 2)


@on()
def output_shardings_follow_as_they_do_in_xla(mesh):
    """The number of rows and columns of each result's tiles."""
    x, w = put(mesh, rand(8, 16), P("x", "y")), put(mesh, rand(16, 8, seed=1), P("y", None))
    functions = [lambda x, w: x @ w, lambda x, w: w.T, lambda x, w: x.sum(0), lambda x, w: x.sum(1), lambda x, w: jnp.sin(x) + 1,
                 lambda x, w: x.reshape(8, 4, 4), lambda x, w: x.reshape(128), lambda x, w: x[:, ::2], lambda x, w: x[::-1],
                 lambda x, w: lax.fori_loop(0, 3, lambda i, a: a * 2, x), lambda x, w: lax.scan(lambda c, r: (c, r * 2), 0, x)[1],
                 lambda x, w: jax.nn.softmax(x), lambda x, w: jnp.broadcast_to(x[None], (3, 8, 16)), lambda x, w: jnp.cumsum(x, 1),
                 lambda x, w: x[:, 2:10], lambda x, w: lax.dynamic_update_slice(x, x[:, :8], (0, 4)), lambda x, w: jnp.sort(x, 1),
                 lambda x, w: jnp.concatenate([x, x], 1), lambda x, w: jnp.pad(x, ((0, 0), (8, 8))), lambda x, w: x @ x.T,
                 lambda x, w: lax.top_k(x, 2)[0], lambda x, w: jnp.fft.fft(x), lambda x, w: jnp.argmax(x, 1),
                 lambda x, w: lax.conv(x[None, None], jnp.ones((4, 1, 3, 3)), (1, 1), "SAME")]
    return [np.array(y.sharding.shard_shape(y.shape)) for y in (jax.jit(f)(x, w) for f in functions)]


@weft
def what_is_donated_and_fits_no_result_stays():
    mesh = mesh_on("weft", "8")
    x = put(mesh, rand(16, 2), P("x"))
    jax.jit(lambda x: x @ x.T, donate_argnums=0)(x)
    assert not x.is_deleted()


@weft
def donated_sharded_arrays_are_deleted():
    mesh = mesh_on("weft", "2x4")
    sharding = NamedSharding(mesh, P("x", "y"))
    x = put(mesh, rand(8, 16), P("x", "y"))
    want = np.asarray(x).copy() + 1
    y = jax.jit(lambda x: x + 1, donate_argnums=0, out_shardings=sharding)(x)
    np.testing.assert_allclose(np.asarray(y), want)
    assert x.is_deleted()


@weft
def uneven_shardings_are_errors():
    mesh = mesh_on("weft", "2x4")
    for f in (lambda: jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, P("y")))(np.zeros(7, np.float32)),
              lambda: smap(mesh, lambda x: x, P("y"), P("y"))(np.zeros(6, np.float32))):
        try:
            f()
        except Exception as e:
            assert "divi" in str(e) or "uneven" in str(e), e
        else:
            raise AssertionError("no error")


@weft
def constraints_on_uneven_sizes_compute_the_same():
    mesh = mesh_on("weft", "2x4")
    f = jax.jit(lambda x: lax.with_sharding_constraint(jnp.pad(x, (0, 4)), NamedSharding(mesh, P("y"))) * 2)
    np.testing.assert_allclose(np.asarray(f(np.arange(8, dtype=np.float32))), np.pad(np.arange(8) * 2, (0, 4)))


@weft
def programs_survive_serialisation():
    from jax.experimental import serialize_executable
    mesh = mesh_on("weft", "8")
    x = put(mesh, rand(16), P("x"))
    c = smap(mesh, lambda x: lax.psum(x, "x"), P("x"), P()).lower(x).compile()
    blob = serialize_executable.serialize(c)
    for args in (dict(backend="weft", execution_devices=list(mesh.devices.flat)), dict(backend="weft"), {}):
        try:
            again = serialize_executable.deserialize_and_load(*blob, **args)
            break
        except TypeError:
            continue
    np.testing.assert_allclose(np.asarray(again(x)), np.asarray(c(x)))


@weft
def many_launches_in_flight():
    mesh = mesh_on("weft", "8")
    f = smap(mesh, lambda x: lax.pmean(x, "x") + x, P("x"), P("x"))
    g = smap(mesh, lambda x: lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)]), P("x"), P("x"))
    x = put(mesh, np.ones(16, np.float32), P("x"))
    for _ in range(50):
        x = g(f(x)) * 0.5
    np.testing.assert_allclose(np.asarray(x), np.ones(16))


@weft
def a_permuted_device_order():
    mesh = Mesh(PLATFORMS["weft"][[3, 1, 7, 5, 0, 2, 6, 4]].reshape(2, 4), ("x", "y"))
    x = rand(8, 16)
    y = smap(mesh, lambda a: a + lax.axis_index("x") * 10 + lax.axis_index("y"), P("x", "y"), P("x", "y"))(x)
    want = x + np.repeat([0, 10], 4)[:, None] + np.repeat([0, 1, 2, 3], 4)[None, :]
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-6)
    z = jax.jit(lambda a: a @ a.T)(put(mesh, x, P("x", "y")))
    np.testing.assert_allclose(np.asarray(z), x @ x.T, rtol=1e-4, atol=1e-5)


@weft
def a_mesh_of_some_devices():
    mesh = Mesh(PLATFORMS["weft"][[6, 2]], ("x",))
    y = smap(mesh, lambda a: lax.psum(a, "x"), P("x"), P())(np.arange(4, dtype=np.float32))
    np.testing.assert_allclose(np.asarray(y), [2, 4])


# -- functions of the framework that are called while a program is partitioned ----------------------------------------------
@on()
def custom_partitioning(mesh):
    """Computed by what the partition function says: parts of a product, summed over the contracted axis."""
    from jax.experimental.custom_partitioning import custom_partitioning as custom

    @custom
    def product(a, b):
        return a @ b, jnp.sum(a) * jnp.ones((), a.dtype)

    def partition(mesh, args, results):
        a = args[0].sharding.spec
        spec = P(a[0] if a else None, None)
        axes = tuple(n for d in a for n in ((d,) if isinstance(d, str) else d or ()))
        local = lambda a, b: (lax.psum(a @ b, a_minor) if a_minor else a @ b, lax.psum(jnp.sum(a), axes) if axes else jnp.sum(a))
        a_minor = a[1] if len(a) > 1 else None
        return (mesh, local, tuple(NamedSharding(mesh, s) for s in (spec, P())),
                tuple(NamedSharding(mesh, s) for s in (P(*a), P(a_minor, None))))

    product.def_partition(partition, sharding_rule="i j, j k -> i k, ", reduction_factors=("j",))
    a, b = put(mesh, rand(8, 16), P("x", "y")), put(mesh, rand(16, 4, seed=1), P(None, "x"))
    y, total = jax.jit(lambda a, b: product(jnp.sin(a), b))(a, b)
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, P("x", None)), 2), y.sharding
    return y, total, jax.jit(lambda a, b: lax.fori_loop(0, 3, lambda i, c: product(c, b @ b.T)[0] / 8, a))(a, b)


@on("8")
def custom_partitioning_of_every_attribute(mesh):
    """The partition function's program arrives as StableHLO that is no portable artifact: each of its attributes is read."""
    from jax.experimental.custom_partitioning import custom_partitioning as custom

    def local(x):
        image = x[:, None, None, :]
        f = lax.conv_general_dilated(image, jnp.ones((2, 1, 1, 3)), (1, 2), ((0, 0), (1, 1)), rhs_dilation=(1, 2))[:, :, 0]
        g = jnp.take(x, 3 - 2 * lax.iota(np.int32, 2), 1) + x.at[:, 0 * lax.iota(np.int32, 2)].add(2.0)[:, :2]
        h = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 2), "SAME")
        k = jnp.sort(jnp.abs(jnp.fft.fft(x, axis=1)), axis=1) + lax.cumsum(x, 1)
        m = jnp.einsum("bi,bj->bij", x, x)[:, 0] * jnp.where(x > 0, x, -x) + lax.pad(x, 0.0, ((0, 0, 0), (1, -1, 0)))
        n = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.tanh(c[1])), (0, x))[1]
        top, at = lax.top_k(x, 2)
        bits = lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), (2,), dtype=jnp.uint32)[1] * 0
        return jnp.concatenate([f.reshape(x.shape[0], -1), g, h, k, m, n, top, at.astype(x.dtype), x[:, 1:4:2], lax.rev(x, (1,)),
                                x.T.reshape(-1, x.shape[0]).T, x + bits.sum().astype(x.dtype)], axis=1)

    f = custom(local)

    def partition(mesh, args, result):
        spec = NamedSharding(mesh, P("x", None))
        return mesh, local, spec, (spec,)

    f.def_partition(partition, sharding_rule="b i -> b o", need_replication_factors=("i", "o"))
    return jax.jit(f)(put(mesh, rand(8, 6), P("x")))


@on()
def inspected_shardings(mesh):
    seen = []

    @jax.jit
    def f(x):
        y = jnp.sin(x)
        jax.debug.inspect_array_sharding(y, callback=seen.append)
        z = lax.with_sharding_constraint(y.T, NamedSharding(mesh, P("x", "y")))
        jax.debug.inspect_array_sharding(z, callback=seen.append)
        return z @ y

    y = f(put(mesh, rand(8, 8), P("y")))
    want = [NamedSharding(mesh, P("y", "x")), NamedSharding(mesh, P("x", "y"))]
    assert len(seen) == 2 and all(s.is_equivalent_to(w, 2) for s, w in zip(seen, want)), seen
    return y


@weft
def a_partition_function_that_raises():
    from jax.experimental.custom_partitioning import custom_partitioning as custom

    def partition(mesh, args, result):
        raise ValueError("no way to cut this")

    f = custom(lambda x: x + 1)
    f.def_partition(partition, sharding_rule="i -> i")
    try:
        jax.jit(f)(put(mesh_on("weft", "8"), rand(8), P("x")))
    except Exception as e:
        assert "no way to cut this" in str(e), e
        return
    raise AssertionError("nothing was raised")


# -- the runner ---------------------------------------------------------------------------------------------------------
def agree(kind, f):
    want, got = ([np.asarray(a) for a in jax.tree.leaves(f(mesh_on(p, kind)))] for p in ("cpu", "weft"))
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.shape == w.shape and g.dtype == w.dtype, f"result {i}: {g.dtype}{g.shape}, want {w.dtype}{w.shape}"
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5, err_msg=f"result {i}")


def main():
    word = sys.argv[sys.argv.index("-k") + 1] if "-k" in sys.argv else ""
    todo = [(n, lambda f=f, k=k: agree(k, f)) for n, k, f in both] + single
    todo = [t for t in todo if word in t[0]]
    failed = 0
    print(f"1..{len(todo)}")
    for i, (name, f) in enumerate(todo):
        try:
            f()
            print(f"ok {i + 1} - {name}", flush=True)
        except Exception as e:
            failed += 1
            print(f"not ok {i + 1} - {name}")
            for line in f"{type(e).__name__}: {e}".strip().splitlines()[:14]:
                print("#   " + line[:300], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
