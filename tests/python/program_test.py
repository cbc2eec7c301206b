#!/usr/bin/env python3
"""`import weft`: programs, arrays, errors, plan and profile, without JAX; and the struct layouts against the C headers.  Prints TAP.

    Plugin: of $WEFT_BUILDDIR.  Interpreter with numpy (and jax, whose exported programs are run): $WEFT_PYTHON.
"""
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.abspath(os.path.join(HERE, "../.."))
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build"))
PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable

ADD_HLO = """HloModule add
ENTRY main {
  x = f32[2,3] parameter(0)
  y = f32[2,3] parameter(1)
  ROOT sum = f32[2,3] add(x, y)
}
"""
ADD_MLIR = """module @add {
  func.func public @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.add %x, %y : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
"""


def same(shape, element):
    return f"module {{\n func.func @main(%x: tensor<{shape}{element}>) -> tensor<{shape}{element}> {{\n  return %x : tensor<{shape}{element}>\n }}\n}}\n"


# ---- in the interpreter that has numpy ----

def fails(code, part, function):
    import weft
    try:
        function()
    except weft.Error as error:
        assert error.code == code and part in str(error), error
        return
    raise AssertionError("it did not fail")


def adds_from_both_languages():
    import numpy as np
    import weft

    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.5, np.float32)
    for text in (ADD_HLO, ADD_MLIR, "// a comment\n" + ADD_HLO, ADD_HLO.encode()):
        got = weft.compile(text)(x, y)
        assert got.dtype == np.float32 and got.tolist() == [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]], got
    assert not got.flags.writeable and "jax" not in sys.modules


def runs_what_jax_exports():
    import numpy as np
    import weft

    code = """
import os, sys
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, jax.numpy as jnp, numpy as np
def f(a, b):
    return jnp.tanh(a @ b), {"s": a.sum(0), "n": jnp.argmax(b)}
a, b = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.linspace(0, 2, 20, dtype=np.float32).reshape(4, 5)
open(sys.argv[1] + ".mlirbc", "wb").write(jax.export.export(jax.jit(f))(a, b).mlir_module_serialized)
low = jax.jit(f).lower(a, b)
open(sys.argv[1] + ".mlir", "w").write(low.as_text())
open(sys.argv[1] + ".pb", "wb").write(low.compiler_ir("hlo").as_serialized_hlo_module_proto())
np.savez(sys.argv[1], *jax.tree.leaves(f(a, b)), a=a, b=b)
"""
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([sys.executable, "-c", code, f"{d}/f"], check=True, env={k: v for k, v in os.environ.items() if not k.startswith("WEFT_")})
        data = np.load(f"{d}/f.npz")
        for ending in ("mlirbc", "mlir", "pb"):
            with open(f"{d}/f.{ending}", "rb") as f:
                results = weft.compile(f.read())(data["a"], data["b"])
            assert len(results) == 3
            for got, want in zip(results, (data["arr_0"], data["arr_1"], data["arr_2"])):
                assert got.dtype == want.dtype and got.shape == want.shape, (ending, got.dtype, got.shape)
                np.testing.assert_allclose(got, want, rtol=1e-5)


def every_type_and_shape_comes_back():
    import ml_dtypes
    import numpy as np
    import weft

    types = {"i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32",
             "ui64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64", "complex<f32>": "complex64", "complex<f64>": "complex128",
             "bf16": ml_dtypes.bfloat16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}
    for element, dtype in types.items():
        want = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
        got = weft.compile(same("2x3x", element))(want)
        assert got.dtype == want.dtype and (got == want).all(), (element, got)
    assert weft.compile(same("", "f32"))(np.float32(7)) == 7 and weft.compile(same("", "f32"))(np.float32(7)).shape == ()
    assert weft.compile(same("0x3x", "f32"))(np.zeros((0, 3), np.float32)).shape == (0, 3)
    columns = np.arange(6, dtype=np.float32).reshape(3, 2).T
    np.testing.assert_array_equal(weft.compile(same("2x3x", "f32"))(columns), columns)


def aligned(count):
    """float32 numbers at an address that is a multiple of 64."""
    import numpy as np
    memory = np.zeros(4 * count + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin:begin + 4 * count].view(np.float32)


def borrows_aligned_memory_and_no_result_is_an_argument():
    import numpy as np
    import weft

    from weft import _pjrt
    program, lent = weft.compile(same("1024x", "f32")), aligned(1024)
    lent[:] = np.arange(1024)

    def address(array):
        buffer = program._put(array)
        return _pjrt.call(buffer.client.table, "Buffer_UnsafePointer", buffer=buffer.handle).buffer_pointer

    assert address(lent) == lent.ctypes.data
    odd = aligned(1025)[1:]
    assert address(odd) != odd.ctypes.data
    got = program(lent)
    lent[:] = -1
    np.testing.assert_array_equal(got, np.arange(1024, dtype=np.float32))


def honours_the_layouts_of_hlo():
    import numpy as np
    import weft

    text = ADD_HLO.replace("HloModule add", "HloModule add, entry_computation_layout={(f32[2,3]{0,1}, f32[2,3]{1,0})->f32[2,3]{0,1}}")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert weft.compile(text)(x, 10 * x).tolist() == (11 * x).tolist()


class ByDlpack:
    """An array of a library that NumPy does not know."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def takes_dlpack():
    import numpy as np
    import weft

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert weft.compile(ADD_MLIR)(ByDlpack(x), ByDlpack(x)).tolist() == (x + x).tolist()


def says_what_is_wrong():
    import numpy as np
    import weft

    x = np.zeros((2, 3), np.float32)
    program = weft.compile(ADD_HLO)
    assert program.parameters == (("float32", (2, 3)),) * 2 and program.outputs == 1
    fails("INVALID_ARGUMENT", "", lambda: weft.compile("HloModule nothing\n"))
    fails("INVALID_ARGUMENT", "", lambda: weft.compile("module { func.func"))
    fails("INVALID_ARGUMENT", "", lambda: weft.compile(b"\x01\x02\x03"))
    fails("INVALID_ARGUMENT", "1 arguments, the program takes 2", lambda: program(x))
    fails("INVALID_ARGUMENT", "argument 1 is float32 (3, 2), the program takes float32 (2, 3)", lambda: program(x, np.zeros((3, 2), np.float32)))
    fails("INVALID_ARGUMENT", "argument 1 is int32", lambda: program(x, np.zeros((2, 3), np.int32)))
    fails("INVALID_ARGUMENT", "", lambda: program(x, np.zeros((2, 3), np.float64)))
    fails("INVALID_ARGUMENT", "object", lambda: program(x, np.array([[None] * 3] * 2)))
    fails("INVALID_ARGUMENT", "sideways", lambda: weft.compile(ADD_HLO, memory="sideways"))
    assert program(x, x).tolist() == x.tolist()  # it is as good as before


def plans_and_profiles():
    import numpy as np
    import weft

    program = weft.compile(ADD_HLO, memory="sequential")
    plan = program.plan()
    assert (plan.arguments, plan.outputs, plan.aliased) == (48, 24, 0) and plan.temporaries_bound >= 0 and plan.code > 0, plan
    steps = program.profile(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))
    assert steps and all(s.count > 0 and s.self_ms >= 0 and s.name for s in steps), steps
    assert sorted(steps, key=lambda s: -s.self_ms) == steps


def threads_call_the_same_program():
    import numpy as np
    import weft

    program, wrong = weft.compile(ADD_MLIR), []

    def work(number):
        x = np.full((2, 3), number, np.float32)
        for _ in range(50):
            if not (program(x, x) == 2 * number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def ends_cleanly():
    code = f"import numpy as np, weft\np = weft.compile({ADD_HLO!r})\nx = np.ones((2, 3), np.float32)\nr = p(x, x)\nprint(r.sum())"
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (r.returncode, r.stdout, r.stderr) == (0, "12.0\n", ""), r


def a_source_install_leaves_nothing_behind_and_finds_a_prefix():
    import weft

    with tempfile.TemporaryDirectory() as d:
        shutil.copytree(f"{TREE}/python", f"{d}/python", ignore=shutil.ignore_patterns("__pycache__"))
        before = sorted(os.walk(f"{d}/python"))
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", "--target", f"{d}/site", f"{d}/python"], check=True)
        assert sorted(os.walk(f"{d}/python")) == before
        os.makedirs(f"{d}/prefix/bin")
        os.symlink("/bin/true", f"{d}/prefix/bin/weft")
        env = {"PATH": f"{d}/prefix/bin:/usr/bin:/bin", "PYTHONPATH": f"{d}/site", "HOME": d}
        for folder in "lib", "lib64", f"lib/{os.uname().machine}-linux-gnu": # the last one is Debian's
            os.makedirs(f"{d}/prefix/{folder}/weft")
            plugin = f"{d}/prefix/{folder}/weft/pjrt_weft.so"
            os.symlink(weft.library_path(), plugin)
            r = subprocess.run([sys.executable, "-c", "import weft; print(weft.library_path(), weft.__file__)"], env=env, capture_output=True, text=True, check=True)
            found, package = r.stdout.split()
            assert package.startswith(f"{d}/site/weft/") and (found == plugin or not found.startswith(d)), r.stdout
            os.remove(plugin)
        # A link to the command leads to the prefix too, and without any command the error says what helps.
        os.remove(f"{d}/prefix/bin/weft")
        shutil.copy("/bin/true", f"{d}/prefix/bin/weft")
        os.makedirs(f"{d}/links")
        os.symlink(f"{d}/prefix/bin/weft", f"{d}/links/weft")
        os.symlink(weft.library_path(), f"{d}/prefix/lib/weft/pjrt_weft.so")
        look = [sys.executable, "-c", "import weft; print(weft.library_path())"]
        r = subprocess.run(look, env=env | {"PATH": f"{d}/links:/usr/bin:/bin"}, capture_output=True, text=True, check=True)
        found = r.stdout.strip()
        assert found == f"{d}/prefix/lib/weft/pjrt_weft.so" or not found.startswith(d), found
        r = subprocess.run(look, env=env | {"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        assert r.returncode == 0 or "it is found if PATH has the folder of the installed command weft" in r.stderr, r.stderr


def layouts_are_those_of_the_headers():
    from weft import _agent, _pjrt

    lines, want = [], []
    for name, kind in _pjrt.CLASSES.items():
        lines.append(f'P("%zu\\n", sizeof(PJRT_{name}));')
        want.append((name, None, ctypes.sizeof(kind)))
        for field, _ in kind._fields_:
            member = {"NamedValue.value": "int64_value"}.get(f"{name}.{field}", field)
            lines.append(f'P("%zu\\n", offsetof(PJRT_{name}, {member}));')
            want.append((name, field, getattr(kind, field).offset))
    for name, place in _pjrt.FUNCTIONS.items():
        lines.append(f'P("%zu\\n", offsetof(PJRT_Api, PJRT_{name}) / sizeof(void *));')
        want.append(("Api", name, place))
    for place, name in enumerate(_agent._FUNCTIONS):
        lines.append(f'P("%zu\\n", (offsetof(PJRT_WeftAgent_Extension, {name}) - sizeof(PJRT_Extension_Base)) / sizeof(void *));')
        want.append(("WeftAgent", name, place))
    source = "#include <stdio.h>\n#include <stddef.h>\n#include <weft/pjrt_extensions.h>\n#define P printf\nint main(void) {\n" + "\n".join(lines) + "\n}\n"
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([*os.environ.get("CC", "cc").split(), f"-I{TREE}/include", "-x", "c", "-", "-o", f"{d}/layouts"], input=source, text=True, check=True)
        got = subprocess.run([f"{d}/layouts"], capture_output=True, text=True, check=True).stdout.split()
    for (struct, field, ours), theirs in zip(want, map(int, got), strict=True):
        # Later members that Weft's Python does not use are left out, which struct_size says.
        assert ours == theirs or (field is None and ours < theirs), f"{struct}.{field}: {ours}, in C {theirs}"


TESTS = (adds_from_both_languages, runs_what_jax_exports, every_type_and_shape_comes_back,
         borrows_aligned_memory_and_no_result_is_an_argument, honours_the_layouts_of_hlo, takes_dlpack, says_what_is_wrong, plans_and_profiles,
         threads_call_the_same_program, ends_cleanly, a_source_install_leaves_nothing_behind_and_finds_a_prefix,
         layouts_are_those_of_the_headers)


def worker():
    failed = 0
    print(f"1..{len(TESTS)}")
    for number, test in enumerate(TESTS, 1):
        try:
            test()
            print(f"ok {number} - {test.__name__}", flush=True)
        except Exception as e:
            failed = 1
            print(f"not ok {number} - {test.__name__}\n# " + f"{type(e).__name__}: {e}".replace("\n", "\n# "), flush=True)
    return failed


def main():
    if os.environ.get("WEFT_SANITIZED"):
        print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
        return 0
    if subprocess.run([PYTHON, "-c", "import jax, numpy"], stderr=subprocess.DEVNULL).returncode:
        print("1..0 # SKIP no jax and numpy in this interpreter (set WEFT_PYTHON)")
        return 0
    env = dict(os.environ, WEFT_PJRT_PLUGIN=f"{BUILD}/.libs/pjrt_weft.so", PYTHONPATH=os.path.join(TREE, "python"))
    return subprocess.run([PYTHON, __file__, "worker"], env=env, timeout=300).returncode


if __name__ == "__main__":
    sys.exit(worker() if sys.argv[1:] == ["worker"] else main())
