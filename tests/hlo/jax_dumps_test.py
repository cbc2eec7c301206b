#!/usr/bin/env python3
"""What JAX hands to a compiler and what XLA:CPU makes of it (TAP): our readers and writers pass both on unchanged, by
XLA's own judgement, and our verifier accepts them."""
import os
import subprocess
import sys

python = os.environ.get("WEFT_PYTHON")
if python and "WEFT_JAX_DUMPS" not in os.environ:
    os.execve(python, [python, *sys.argv], dict(os.environ, WEFT_JAX_DUMPS="1", TF_CPP_MIN_LOG_LEVEL="3"))
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from jaxlib import _hlo
except ImportError:
    print("1..0 # SKIP no jax 0.10.2 in $WEFT_PYTHON")
    sys.exit(0)

jax.config.update("jax_enable_x64", True)
CONVERT = os.path.join(os.environ["WEFT_BUILDDIR"], "tests/hlo/hlo_convert")
MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
GRID = PartitionSpec("x", "y")
NHWC = ("NHWC", "HWIO", "NHWC")


def f32(*shape):
    return jnp.ones(shape, jnp.float32)


def conv(x, w):
    return lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=NHWC)


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID")


def collectives(x):
    return (lax.psum(x, "x"), lax.all_gather(x, "y"), lax.ppermute(x, "x", [(0, 1), (1, 0)]),
            lax.psum_scatter(x, "y", tiled=True), lax.all_to_all(x, "x", 0, 0, tiled=True), x + lax.axis_index("x"))


PROGRAMS = {
    "convolution and its gradients": (jax.jit(lambda x, w: (conv(x, w), jax.grad(lambda *a: conv(*a).sum(), (0, 1))(x, w))),
                                      f32(1, 8, 8, 3), f32(3, 3, 3, 4)),
    "scan": (jax.jit(lambda x: lax.scan(lambda c, a: (c + a, c * a), x[0], x)), f32(10, 4)),
    "while": (jax.jit(lambda x: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))), f32(4)),
    "cond and switch": (jax.jit(lambda i, x: lax.cond(i > 0, lambda: lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), lambda: x)),
                        jnp.int32(1), f32(4)),
    "sort and top-k": (jax.jit(lambda x: (jnp.argsort(x), lax.top_k(x, 3))), f32(16)),
    "fft": (jax.jit(lambda x: (jnp.fft.fft(x), jnp.fft.irfft(x))), f32(16)),
    "linear algebra": (jax.jit(lambda x: (jnp.linalg.cholesky(x), jnp.linalg.svd(x), jnp.linalg.solve(x, x), jnp.linalg.eigh(x))),
                       f32(4, 4)),
    "threefry": (jax.jit(lambda k: (jax.random.normal(k, (3, 4)), jax.random.permutation(k, 10))), jax.random.key(0)),
    "rng-bit-generator": (jax.jit(lambda k: jax.random.bits(k, (8,))), jax.random.key(0, impl="rbg")),
    "gather and scatter": (jax.jit(lambda x, i: (x[i], x.at[i].add(1.0), x.at[i].set(2.0, unique_indices=True),
                                                 jnp.take_along_axis(x, i[:, None], 1))), f32(8, 8), jnp.arange(8)),
    "reduce-window": (jax.jit(lambda x: (jnp.cumsum(x, 0), jax.grad(lambda y: max_pool(y).sum())(x))), f32(8, 8)),
    "complex": (jax.jit(lambda x: (x * 1j).real + jnp.angle(x + 1j)), f32(5)),
    "narrow types": (jax.jit(lambda x: ((x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16)).astype(jnp.float8_e4m3fn),
                                        x.astype(jnp.int4).astype(jnp.int8))), f32(4, 4)),
    "attention": (jax.jit(lambda q: jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, q)) @ q), f32(1, 2, 8, 4)),
    "ragged dot": (jax.jit(lambda a, b: lax.ragged_dot(a, b, jnp.array([1, 3]))), f32(4, 4), f32(2, 4, 4)),
    "special functions": (jax.jit(lambda x: (jax.scipy.special.erf(x), lax.erf_inv(x), jnp.tan(x), lax.rsqrt(x), jnp.sinh(x))), f32(4)),
    "collectives": (jax.jit(jax.shard_map(collectives, mesh=MESH, in_specs=GRID, out_specs=GRID, check_vma=False)), f32(8, 8)),
    "partitioned": (jax.jit(lambda x: (x @ x.T).sum(), in_shardings=NamedSharding(MESH, GRID)), f32(8, 8)),
    "donation": (jax.jit(lambda x, y: (x + 1, y * 2), donate_argnums=(0,)), f32(4), f32(4)),
}


def convert(to, program):
    data = program.encode() if isinstance(program, str) else program
    done = subprocess.run([CONVERT, to], input=data, capture_output=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[:1000])
    return done.stdout


def blocks(module):
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = False  # XLA numbers stack frames anew whenever it reads
    return sorted(module.to_string(options).split("\n\n")[1:])


def check(module):
    """The fault as text, or None."""
    text, proto = module.to_string(), module.as_serialized_hlo_module_proto()
    want = blocks(module)
    convert("verify", text)
    convert("verify", proto)
    for way, got in {
            "text of its text": lambda: _hlo.hlo_module_from_text(convert("text", text).decode()),
            "text of its proto": lambda: _hlo.hlo_module_from_text(convert("text", proto).decode()),
            "proto of its proto": lambda: _hlo.HloModule.from_serialized_hlo_module_proto(convert("proto", proto)),
    }.items():
        got = blocks(got())
        if got != want and not ("{...}" in text and "text" in way):
            return f"{way}: " + next((f"want {a}, got {b}" for a, b in zip(want, got) if a != b), "more computations")
    return None


print(f"1..{len(PROGRAMS)}")
failed = False
for number, (name, (function, *arguments)) in enumerate(PROGRAMS.items(), 1):
    try:
        lowered = function.lower(*arguments)
        modules = [_hlo.hlo_module_from_text(lowered.as_text("hlo")), *lowered.compile().runtime_executable().hlo_modules()]
        wrong = next((w for w in map(check, modules) if w), None)
    except Exception as error:
        wrong = str(error)
    failed |= wrong is not None
    print(f"{'not ' if wrong else ''}ok {number} - {name}", flush=True)
    if wrong:
        print("# " + wrong[:2000].replace("\n", "\n# "))
sys.exit(failed)
