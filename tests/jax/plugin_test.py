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
import json  # noqa: E402
import subprocess  # noqa: E402
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


def fields(data):
    """The fields of a serialized protocol buffer: number, and int or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at:at + size]
            at += size


def one(data, number):
    return next(value for n, value in fields(data) if n == number)


def programs_of(space):
    """Of the programs in a serialized XSpace: names and serialized HloModuleProtos."""
    programs = {}
    for plane in (value for number, value in fields(space) if number == 1):
        if one(plane, 2) != b"/host:metadata":
            continue
        for entry in (value for number, value in fields(plane) if number == 4):
            event = one(entry, 2)
            protos = [one(stat, 6) for number, stat in fields(event) if number == 5 and 6 in dict(fields(stat))]
            programs.update({one(event, 2).decode(): one(proto, 1) for proto in protos})
    return programs


def profiled_scopes(directory):
    """Profiles two runs of a program with a scope, a loop and a product; returns the file."""
    @jax.jit
    def scoped(x):
        with jax.named_scope("outer"):
            y = jnp.tanh(x @ x.T)
            return jax.lax.fori_loop(0, 50, lambda _, c: jnp.sin(c @ y), y)

    x = jnp.ones((96, 64))
    scoped(x).block_until_ready()
    with jax.profiler.trace(directory):
        for _ in range(2):
            scoped(x).block_until_ready()
    (path,) = glob.glob(directory + "/**/*.xplane.pb", recursive=True)
    return path


def a_profile_shows_what_ran():
    """Each operation is in the plane of its device, with its program, its run, and the name that it has in the HLO."""
    with tempfile.TemporaryDirectory() as directory:
        path = profiled_scopes(directory)
        planes = {p.name: p for p in jax.profiler.ProfileData.from_file(path).planes}
        programs = programs_of(open(path, "rb").read())
    events = [(e.name, dict(e.stats)) for line in planes["/device:GPU:0"].lines for e in line.events]
    operations = [(name, s) for name, s in events if "hlo_op" in s]
    assert all(s["hlo_module"] == "jit_scoped" and s["hlo_op"] == name for name, s in operations), operations
    assert len({s["run_id"] for _, s in operations}) == 2 and len({s["program_id"] for _, s in operations}) == 1
    counts = {name: sum(n == name for n, _ in operations) for name, _ in operations}
    assert min(counts.values()) >= 2 and max(counts.values()) == 100, counts  # of the loop's body: 2 runs of 50 rounds
    (program,) = {s["program_id"] for _, s in operations}
    hlo = programs[f"jit_scoped({program})"]
    assert one(hlo, 1) == b"jit_scoped"
    instructions = {one(instruction, 1).decode() for number, computation in fields(hlo) if number == 3
                    for n, instruction in fields(computation) if n == 2}
    assert set(counts) <= instructions, set(counts) - instructions


NAMES_PROGRAM = """
import json, re, jax, jax.numpy as jnp
@jax.jit
def f(x):
    with jax.named_scope("in_f"):
        return jax.lax.fori_loop(0, 7, lambda i, c: jnp.sin(c) + i, x)
@jax.jit
def g(x):
    with jax.named_scope("a"): y = f(x)
    with jax.named_scope("b"): z = f(y * 2)
    return jnp.cos(z)
print(json.dumps(re.findall(r'op_name="([^"]*)"', g.lower(jnp.ones((64, 512))).compile().as_text())))
"""


def scopes_reach_into_functions_and_loops_as_in_xla():
    def names(platform):
        done = subprocess.run([sys.executable, "-c", NAMES_PROGRAM], env=dict(os.environ, JAX_PLATFORMS=platform),
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        return set(json.loads(done.stdout))

    ours, xla = names("weft"), names("cpu")
    sines = {f"jit(g)/{scope}/jit(f)/in_f/while/body/closed_call/sin" for scope in "ab"}
    assert sines <= ours and ours - xla <= {"jit(g)"}, (sorted(ours - xla), sorted(xla))


def xprof_has_tables_of_operations():
    python = os.environ.get("WEFT_XPROF_PYTHON")
    if not python:
        return "no xprof (set WEFT_XPROF_PYTHON to an interpreter that has it)"
    read = """
import json, sys
from xprof.convert import raw_to_tool_data
table = json.loads(raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "hlo_stats", {})[0])
columns = [c["id"] for c in table["cols"]]
rows = [dict(zip(columns, [c["v"] for c in row["c"]])) for row in table["rows"]]
profile = json.loads(raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "op_profile", {})[0])
print(json.dumps([rows, profile["byProgramExcludeIdle"]["children"]]))
"""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run([python, "-c", read, profiled_scopes(directory)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    rows, programs = json.loads(done.stdout)
    products = [r for r in rows if r["category"] == "dot"]
    assert sorted(r["occurrences"] for r in products) == [2, 100], rows
    assert all("jit(scoped)/outer/" in r["tf_op_name"] for r in products), products
    assert all(r["total_time"] > 0 and r["model_flop_rate"] > 0 and "plugin_test.py" in r["source_info"] for r in products)
    assert programs[0]["name"].startswith("jit_scoped(") and programs[0]["children"], programs
    return None


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
         scopes_reach_into_functions_and_loops_as_in_xla, xprof_has_tables_of_operations,
         compile_options_are_taken_or_refused_by_name, narrow_floats_are_rounded_at_every_step_if_asked_for,
         programs_are_dumped_under_xlas_names, layouts_of_scalars_go_through_lowering]
print(f"1..{len(CASES)}")
failed = 0
for number, case in enumerate(CASES, 1):
    try:
        skipped = case()
        print(f"ok {number} - {case.__name__}" + (f" # SKIP {skipped}" if skipped else ""), flush=True)
    except Exception as e:  # noqa: BLE001
        failed = 1
        print(f"not ok {number} - {case.__name__}\n# {type(e).__name__}: " + str(e)[:1500].replace("\n", "\n# "), flush=True)
sys.exit(failed)
