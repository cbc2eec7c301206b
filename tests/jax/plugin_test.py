#!/usr/bin/env python3
"""What JAX reaches through the plugin beside programs: layouts, memory kinds, topologies, profiles, options.  Prints TAP.

    PJRT plugin: $WEFT_PLUGIN, else $WEFT_BUILDDIR/.libs/pjrt_weft.so.  Interpreter with jax: $WEFT_PYTHON.
"""
import os
import sys

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)
if os.environ.get("WEFT_PYTHON") and os.environ.get("WEFT_INSIDE") != "1":
    os.environ["WEFT_INSIDE"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
PLUGIN = os.environ.get("WEFT_PLUGIN") or os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs", "pjrt_weft.so")
try:
    import jax
except ImportError:
    print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    sys.exit(0)
os.environ.update(PJRT_NAMES_AND_LIBRARY_PATHS=f"weft:{PLUGIN}", JAX_PLATFORMS="weft", WEFT_NUM_DEVICES="4")

import glob  # noqa: E402
import gzip  # noqa: E402
import json  # noqa: E402
import tempfile  # noqa: E402

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.experimental.layout import Format, Layout  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding  # noqa: E402

X = np.arange(24, dtype=np.float32).reshape(4, 6)
MESH = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))


def major_to_minor(array):
    return tuple(array.format.layout.major_to_minor)


def a_layout_given_to_device_put_is_kept():
    columns = Format(Layout(major_to_minor=(1, 0)), SingleDeviceSharding(jax.devices()[0]))
    y = jax.device_put(X, columns)
    assert major_to_minor(y) == (1, 0)
    np.testing.assert_array_equal(np.asarray(y), X)
    np.testing.assert_array_equal(np.asarray(y + 1), X + 1)
    np.testing.assert_array_equal(np.asarray(jax.device_put(y, jax.devices()[1])), X)


def layouts_of_a_sharded_program():
    s = NamedSharding(MESH, P("x", "y"))
    f = jax.jit(lambda x: jnp.tanh(x) * 2, in_shardings=Format(Layout((1, 0)), s), out_shardings=Format(Layout((1, 0)), s))
    y = f(jax.device_put(X, Format(Layout((1, 0)), s)))
    assert major_to_minor(y) == (1, 0)
    np.testing.assert_allclose(np.asarray(y), np.tanh(X) * 2, rtol=1e-6)


def an_automatic_layout_saves_a_transpose():
    f = jax.jit(lambda x: x.T, out_shardings=Format(Layout.AUTO)).lower(X).compile()
    assert tuple(f.output_formats.layout.major_to_minor) == (1, 0)
    np.testing.assert_array_equal(np.asarray(f(X)), X.T)


def memory_kinds_of_results():
    host = SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    y = jax.jit(lambda x: x * 2, out_shardings=host)(X)
    assert y.sharding.memory_kind == "pinned_host"
    z = jax.device_put(y, host.with_memory_kind("device"))
    assert z.sharding.memory_kind == "device" and z.unsafe_buffer_pointer() != y.unsafe_buffer_pointer()
    np.testing.assert_array_equal(np.asarray(z), X * 2)


def a_topology_compiles_ahead_of_time():
    topology = topologies.get_topology_desc(platform="weft", topology_name="4")
    mesh = Mesh(np.array(topology.devices).reshape(2, 2), ("x", "y"))
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, P("x", "y")))
    compiled = jax.jit(lambda x: jnp.sin(x).sum()).lower(shape).compile()
    assert compiled.memory_analysis().argument_size_in_bytes == X.nbytes // 4
    assert compiled.cost_analysis()["flops"] >= 0


def a_profile_shows_what_ran():
    f = jax.jit(lambda x: jnp.tanh(x @ x.T).sum())
    f(X).block_until_ready()
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory):
            f(X).block_until_ready()
        (path,) = glob.glob(directory + "/**/*.json.gz", recursive=True)
        events = json.loads(gzip.open(path).read())["traceEvents"]
    ours = [e["pid"] for e in events if e.get("name") == "process_name" and "Weft" in e["args"]["name"]]
    assert ours and [e for e in events if e.get("ph") == "X" and e["pid"] in ours], ours


def compile_options_are_taken_or_refused_by_name():
    f = jax.jit(lambda x: x + 1)
    f.lower(X).compile(compiler_options={"xla_cpu_collective_timeout_seconds": 5, "xla_cpu_enable_fast_math": True})(X)
    f.lower(X).compile(compiler_options={"weft_memory": "sequential"})(X)
    for options, text in (({"xla_no_such": 1}, "No such compile option: 'xla_no_such'"),
                          ({"xla_cpu_enable_fast_math": "maybe"}, "is not a valid bool value."),
                          ({"weft_memory": "odd"}, "expected topological, sequential or budget=BYTES")):
        try:
            f.lower(X).compile(compiler_options=options)
        except Exception as e:  # noqa: BLE001
            assert text in str(e), e
        else:
            raise AssertionError(f"{options} was taken")


def narrow_floats_are_rounded_at_every_step_if_asked_for():
    x, y, z = (np.asarray(np.random.RandomState(i).randn(4096), jnp.bfloat16) for i in range(3))
    f = jax.jit(lambda x, y, z: x * y + z)
    exact = f.lower(x, y, z).compile(compiler_options={"xla_allow_excess_precision": False})(x, y, z)
    np.testing.assert_array_equal(np.asarray(exact), x * y + z)  # numpy rounds each
    assert (np.asarray(f(x, y, z)) != x * y + z).any()


def programs_are_dumped_under_xlas_names():
    f = jax.jit(lambda x: x * 3 + 1).lower(X)
    with tempfile.TemporaryDirectory() as directory:
        f.compile(compiler_options={"xla_dump_to": directory, "xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True})
        stages = sorted(os.path.basename(p).split(".", 2)[2] for p in glob.glob(directory + "/module_*"))
        assert stages == ["before_optimizations.hlo.pb", "before_optimizations.txt", "cpu_after_optimizations.hlo.pb",
                          "cpu_after_optimizations.txt"], stages
        (path,) = glob.glob(directory + "/*before_optimizations.txt")
        assert "multiply" in open(path).read()


def layouts_of_scalars_go_through_lowering():
    f = jax.jit(lambda s, x: x * s)
    compiled = f.lower(np.float32(2), X).compile()
    again = jax.jit(f, in_shardings=compiled.input_formats[0]).lower(np.float32(2), X).compile()
    np.testing.assert_array_equal(np.asarray(again(jnp.float32(2), jnp.asarray(X))), X * 2)


CASES = [a_layout_given_to_device_put_is_kept, layouts_of_a_sharded_program, an_automatic_layout_saves_a_transpose,
         memory_kinds_of_results, a_topology_compiles_ahead_of_time, a_profile_shows_what_ran,
         compile_options_are_taken_or_refused_by_name, narrow_floats_are_rounded_at_every_step_if_asked_for,
         programs_are_dumped_under_xlas_names, layouts_of_scalars_go_through_lowering]
print(f"1..{len(CASES)}")
failed = 0
for number, case in enumerate(CASES, 1):
    try:
        case()
        print(f"ok {number} - {case.__name__}", flush=True)
    except Exception as e:  # noqa: BLE001
        failed = 1
        print(f"not ok {number} - {case.__name__}\n# {type(e).__name__}: " + str(e)[:1500].replace("\n", "\n# "), flush=True)
sys.exit(failed)
