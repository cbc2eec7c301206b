#!/usr/bin/env python3
"""Handlers that C++ users of XLA's FFI write (ffi_jax.cc), called through jax.ffi on Weft and on XLA in one process: both
see the same attributes, buffers and errors.  Prints TAP.
    Interpreter with jax 0.10.2: $WEFT_PYTHON.  Needs g++ for the handlers."""
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)
if os.environ.get("WEFT_PYTHON") and os.environ.get("WEFT_FFI") != "1":
    os.environ["WEFT_FFI"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("WEFT_PJRT_PLUGIN", os.path.join(os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build")), ".libs", "pjrt_weft.so"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
os.environ["JAX_PLATFORMS"] = "weft,cpu"
try:
    import jax
except ImportError:
    print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    sys.exit(0)
compiler = shutil.which("g++")
if not compiler:
    print("1..0 # SKIP no g++")
    sys.exit(0)
import numpy as np  # noqa: E402

jax.config.update("jax_enable_x64", True)
folder = tempfile.mkdtemp()
library = os.path.join(folder, "handlers.so")
subprocess.run([compiler, "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-I" + jax.ffi.include_dir(), "-o", library,
                os.path.join(HERE, "ffi_jax.cc"), os.path.join(HERE, "untyped_jax.cc")], check=True)
handlers = ctypes.CDLL(library)
for name in ("attributes", "buffers", "failing", "strict", "later", "threads"):
    jax.ffi.register_ffi_target("test_" + name, jax.ffi.pycapsule(getattr(handlers, name)), platform="cpu")
ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
handlers.counter_id.restype = handlers.counter_info.restype = ctypes.c_void_p
capsule_of = lambda get: ctypes.pythonapi.PyCapsule_New(get(), None, None)
jax.ffi.register_ffi_type("test_counter", {"type_id": capsule_of(handlers.counter_id), "type_info": capsule_of(handlers.counter_info)}, platform="cpu")
jax.ffi.register_ffi_target("test_stages", {stage: jax.ffi.pycapsule(getattr(handlers, "stages_" + stage)) for stage in (
    "instantiate", "prepare", "initialize", "execute")}, platform="cpu")
for name in ("twice", "both", "status", "opaque", "unified"):
    jax.ffi.register_ffi_target("untyped_" + name, jax.ffi.pycapsule(getattr(handlers, "untyped_" + name)), platform="cpu", api_version=0)
shutil.rmtree(folder)
count = failed = 0


def run(function, args, platform):
    """The results, or the code and the first line of the error."""
    try:
        device = jax.devices(platform)[0]
        with jax.default_device(device):
            out = jax.jit(function)(*[jax.device_put(a, device) for a in args])
        return [np.asarray(o) for o in jax.tree_util.tree_leaves(out)]
    except jax.errors.JaxRuntimeError as error:
        return str(error).splitlines()[0]


def check(name, function, *args, same_message=True):
    global count, failed
    count += 1
    got, want = run(function, args, "weft"), run(function, args, "cpu")
    if isinstance(want, str):
        code = re.match(r"[A-Z_]+", want).group(0)
        ok = isinstance(got, str) and (want.split(": ", 1)[1] in got if same_message else True) and got.startswith(code)
    else:
        ok = not isinstance(got, str) and len(got) == len(want) and all(
            g.dtype == w.dtype and g.shape == w.shape and (g == w).all() for g, w in zip(got, want))
    if not ok:
        failed += 1
        text = lambda out: bytes(out[0]).rstrip(b"\0") if not isinstance(out, str) and out[0].dtype == np.uint8 else out
        print(f"# got  {text(got)}\n# want {text(want)}")
    print(f"{'' if ok else 'not '}ok {count} - {name}")


text = jax.ShapeDtypeStruct((1024,), np.uint8)
attributes = dict(
    flag=True, i8=np.int8(-8), i16=np.int16(-1600), i32=np.int32(-320000), i64=-64 << 33, u8=np.uint8(200), u16=np.uint16(60000),
    u32=np.uint32(4000000000), u64=np.uint64(1 << 62), f32=np.float32(0.1), f64=np.float64(0.1),
    inf=np.float32(-np.inf), tiny=np.float64(3e-308), a8=np.array([-1, 2], np.int8), a32=np.array([1, -2, 3], np.int32),
    a64=np.array([1 << 40, -5], np.int64), b8=np.array([255, 0], np.uint8), b64=np.array([1 << 62], np.uint64),
    af=np.array([0.1, np.inf, 1e-30], np.float32), ad=np.array([0.1, -0.0, 1e308], np.float64), empty=np.array([], np.int64),
    text='quotes " and \\ and \n and \u00e9')
check("attributes of every kind", lambda: jax.ffi.ffi_call("test_attributes", text)(**attributes))
check("no attributes", lambda: jax.ffi.ffi_call("test_attributes", text)())
types = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64,
         np.complex64, np.complex128, jax.numpy.float16, jax.numpy.bfloat16, jax.numpy.float8_e4m3fn, jax.numpy.float8_e5m2,
         jax.numpy.float8_e4m3b11fnuz, jax.numpy.float8_e4m3fnuz, jax.numpy.float8_e5m2fnuz]
arrays = [jax.numpy.zeros((2, 3), t) for t in types]
check("buffers of every type", lambda *a: jax.ffi.ffi_call("test_buffers", [text])(*a), *arrays)
check("any number of results", lambda *a: jax.ffi.ffi_call(
    "test_buffers", [text, jax.ShapeDtypeStruct((), np.int32), jax.ShapeDtypeStruct((3, 0), np.float32),
                     jax.ShapeDtypeStruct((2, 1, 2), np.int8)])(*a), np.float32(1), np.zeros((0, 4), np.float32))
for code in range(1, 17):
    check(f"error code {code}", lambda: jax.ffi.ffi_call("test_failing", jax.ShapeDtypeStruct((), np.int32))(code=np.int32(code)))
x = np.arange(6, dtype=np.float32).reshape(2, 3)
strict = lambda **attrs: (lambda x: jax.ffi.ffi_call("test_strict", jax.ShapeDtypeStruct((2, 3), np.float32))(x, **attrs))
check("what is declared is decoded", strict(n=np.int32(3)), x)
check("a missing attribute", strict(), x, same_message=False)
check("an attribute of another type", strict(n=np.float32(3)), x, same_message=False)
check("an argument of another rank", strict(n=np.int32(3)), x[0], same_message=False)
check("an argument of another type", strict(n=np.int32(3)), x.astype(np.float64), same_message=False)
later = lambda fails: (lambda x: jax.ffi.ffi_call("test_later", jax.ShapeDtypeStruct((6,), np.float32))(x, fails=fails) * 2)
check("a result that comes later", later(False), x.reshape(6))
check("an error that comes later", later(True), x.reshape(6))
check("the platform's threads", lambda: jax.ffi.ffi_call("test_threads", jax.ShapeDtypeStruct((), np.int32))())
# The state of the instantiate stage counts the runs of one program by stage.  XLA's CPU runs neither prepare nor initialize.
stages = jax.jit(lambda: jax.ffi.ffi_call("test_stages", jax.ShapeDtypeStruct((4,), np.int32))(start=np.int32(10)))
for round in range(2):
    rounds = []
    for platform in ("weft", "cpu"):
        with jax.default_device(jax.devices(platform)[0]):
            rounds.append(np.asarray(stages()).tolist())
    count += 1
    ok = rounds == [[10, round + 1, round + 1, round + 1], [10, 0, 0, round + 1]]
    failed += not ok
    print(f"{'' if ok else 'not '}ok {count} - every stage of a handler, run {round + 1}" + ("" if ok else f"\n# {rounds}"))
# The API versions before the typed FFI.
f6, scalar, bytes32 = jax.ShapeDtypeStruct((6,), np.float32), jax.ShapeDtypeStruct((), np.int32), jax.ShapeDtypeStruct((32,), np.uint8)
untyped = lambda name, out, version, opaque="", **more: (lambda *a: jax.ffi.ffi_call(
    "untyped_" + name, out, custom_call_api_version=version, legacy_backend_config=opaque, **more)(*a))
flat = x.reshape(6)
check("untyped: one result", untyped("twice", f6, 1), flat)
check("untyped: among other operations", lambda x: untyped("twice", f6, 1)(x + 1) * 3, flat)
check("untyped: several results", untyped("both", [f6, scalar], 1), flat, np.int32(7))
check("untyped: one result that is a list", lambda *a: untyped("twice", [f6], 1)(*a), flat)
for version, name in ((2, "status"), (3, "unified")):
    check(f"untyped: {name} succeeds", untyped(name, f6, version), flat)
    check(f"untyped: {name} fails", untyped(name, f6, version), flat - 1)
    check(f"untyped: {name} fails at length", untyped(name, f6, version), flat - 2)
check("untyped: opaque bytes", untyped("opaque", bytes32, 3, "a word"), same_message=False)
check("untyped: opaque bytes with zeros", untyped("opaque", bytes32, 3, "a\0b\0"))
check("untyped: opaque bytes that look like hexadecimals", untyped("opaque", bytes32, 3, "hex:4142"))
check("untyped: opaque bytes that the target refuses", untyped("opaque", bytes32, 3, "x" * 32))
check("untyped: written over its operand", untyped("twice", f6, 1, input_output_aliases={0: 0}), flat)
for version, what in ((1, 'no function is registered for the custom call "untyped_nowhere" of API version 1'),
                      (4, 'no handler is registered for the custom call "untyped_nowhere"')):
    message = run(untyped("nowhere", f6, version, opaque=None), (flat,), "weft")
    count += 1
    ok = isinstance(message, str) and message.startswith("UNIMPLEMENTED") and what in message
    failed += not ok
    print(f"{'' if ok else 'not '}ok {count} - a target that is not there, API version {version}" + ("" if ok else f"\n# {message}"))
print(f"1..{count}")
sys.exit(1 if failed else 0)
