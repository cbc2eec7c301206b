#!/usr/bin/env python3
"""Memory of an emulated GPU as other software sees it through JAX: DLPack, the CUDA array interface, memory kinds, and a handler of
jax.ffi for CUDA, which gets device pointers and the stream.  Prints TAP.

    Interpreter with jax 0.10.2: $WEFT_PYTHON; build folder: $WEFT_BUILDDIR
"""
import ctypes
import os
import sys

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)
if os.environ.get("WEFT_PYTHON") and os.environ.get("GPU_MEMORY_TEST") != "1":
    os.environ["GPU_MEMORY_TEST"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build"))
EMULATOR = os.path.join(BUILD, "tests", "gpu", "emulator", ".libs")
os.environ.update(WEFT_PLATFORM="cuda", JAX_PLATFORMS="cuda,cpu", WEFT_CUDA_LIBDIR=EMULATOR, WEFT_EMU_LEAKS="off", WEFT_EMU_DEVICES="2", WEFT_CUDA_DEVICES="1",
                  WEFT_PJRT_PLUGIN=os.path.join(BUILD, ".libs", "pjrt_weft.so"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
try:
    import jax
except ImportError:
    print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    sys.exit(0)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax._src import hardware_utils  # noqa: E402
from jax.sharding import SingleDeviceSharding  # noqa: E402

hardware_utils.has_visible_nvidia_gpu = lambda: True  # JAX looks for device files of NVIDIA's driver
DRIVER = ctypes.CDLL(os.path.join(EMULATOR, "libcuda.so.1"))
WANT = np.arange(8, dtype=np.float32) * 2


def array():
    return jax.jit(lambda: jnp.arange(8, dtype=jnp.float32) * 2)()


def of_second_gpu():
    """Memory of GPU 1, which the driver shows and this process does not use."""
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert DRIVER.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
    assert DRIVER.cuCtxPushCurrent_v2(context) == 0
    assert DRIVER.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
    assert DRIVER.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    return address.value


def read(address):
    """Eight floats at a device address, by the driver."""
    values = (ctypes.c_float * 8)()
    context = ctypes.c_void_p()
    assert DRIVER.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert DRIVER.cuCtxPushCurrent_v2(context) == 0
    assert DRIVER.cuMemcpyDtoH_v2(values, ctypes.c_uint64(address), ctypes.c_size_t(32)) == 0
    assert DRIVER.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    assert DRIVER.cuDevicePrimaryCtxRelease_v2(0) == 0
    return np.array(values)


def the_cuda_array_interface_names_device_memory():
    x = jax.block_until_ready(array())
    interface = x.__cuda_array_interface__
    assert interface["shape"] == (8,) and interface["typestr"] == "<f4", interface
    assert interface["data"][0] == x.unsafe_buffer_pointer()
    np.testing.assert_array_equal(read(interface["data"][0]), WANT)


def the_cuda_array_interface_of_another_library_is_read():
    class Other:
        def __init__(self, array, **fields):
            self.array, self.fields = array, fields

        @property
        def __cuda_array_interface__(self):
            return dict(self.array.__cuda_array_interface__, **self.fields)

    x = jax.block_until_ready(array())
    for fields in ({}, {"stream": None}, {"stream": 1}, {"stream": 2}):  # 1, 2: the driver's default streams
        y = jnp.asarray(Other(x, **fields))
        assert y.devices() == x.devices() and y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
        np.testing.assert_array_equal(y + 1, WANT + 1)
    steps = jnp.asarray(Other(x, shape=(2, 4), strides=(4, 8)))  # elements 0, 2, 4, 6 and 1, 3, 5, 7
    np.testing.assert_array_equal(steps, WANT.reshape(4, 2).T)
    assert jnp.asarray(Other(x, shape=(0, 3), data=(0, False))).shape == (0, 3)
    z = jnp.asarray(Other(jax.block_until_ready(array()))) + jnp.asarray(Other(x, shape=(4,)))[0]  # whose memory is free again
    np.testing.assert_array_equal(z, WANT)
    try:
        jnp.asarray(Other(x, data=(64, False)))
    except RuntimeError as error:
        assert "cuPointerGetAttribute" in str(error), error
    else:
        raise AssertionError("an address that is nobody's was taken")
    try:
        jnp.asarray(Other(x, data=(of_second_gpu(), False)))
    except ValueError as error:
        assert "GPU 1, which is no device of this process" in str(error), error
    else:
        raise AssertionError("an array of a GPU of another process was taken")
    lent = sys.modules["jax_plugins.weft"]._lent
    held = len(lent)
    try:
        jnp.asarray(Other(x, shape=(2, 2), strides=(4, 4)))  # elements that overlap
    except Exception as error:
        assert "stride" in str(error), error
    else:
        raise AssertionError("elements that overlap were taken")
    assert len(lent) == held


def dlpack_shares_device_memory():
    x = array()
    assert x.__dlpack_device__() == (2, 0), x.__dlpack_device__()  # kDLCUDA

    class Other:  # as an array of another library
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    y = jnp.from_dlpack(Other())
    assert y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert y.devices() == x.devices()
    np.testing.assert_array_equal(y + 1, WANT + 1)


def a_shared_array_outlives_its_maker():
    y = jnp.from_dlpack(array())
    for i in range(20):
        jax.block_until_ready(array() + i)  # which would get the block's memory if the block were free
    np.testing.assert_array_equal(y, WANT)


def memory_kinds_move_there_and_back():
    device = jax.devices("cuda")[0]
    kinds = {memory.kind for memory in device.addressable_memories()}
    assert {"device", "pinned_host"} <= kinds, kinds
    assert device.default_memory().kind == "device"
    x = array()
    pinned = jax.device_put(x, SingleDeviceSharding(device, memory_kind="pinned_host"))
    assert pinned.sharding.memory_kind == "pinned_host"
    host = (ctypes.c_float * 8).from_address(jax.block_until_ready(pinned).unsafe_buffer_pointer())  # the host may read it
    np.testing.assert_array_equal(np.array(host), WANT)
    back = jax.device_put(pinned, SingleDeviceSharding(device, memory_kind="device"))
    assert back.sharding.memory_kind == "device"
    np.testing.assert_array_equal(back * 2, WANT * 2)
    moved = jax.jit(lambda v: jax.device_put(v + 1, jax.memory.Space.Host))(x)  # inside of a program
    assert moved.sharding.memory_kind == "pinned_host", moved.sharding
    np.testing.assert_array_equal(moved, WANT + 1)


class Buffer(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("dtype", ctypes.c_int), ("data", ctypes.c_void_p),
                ("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64))]


class Arrays(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("count", ctypes.c_int64), ("types", ctypes.c_void_p),
                ("arrays", ctypes.POINTER(ctypes.POINTER(Buffer)))]


class Frame(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("api", ctypes.POINTER(ctypes.c_void_p)),
                ("context", ctypes.c_void_p), ("stage", ctypes.c_int), ("args", Arrays), ("rets", Arrays)]


class StreamGet(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


API_HEAD_WORDS, STREAM_GET = 6, 4  # of XLA_FFI_Api: words before the functions; the number of the function
seen = {}


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Frame))
def copy_on_the_stream(frame):
    frame = frame.contents
    stream_get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(StreamGet))(frame.api[API_HEAD_WORDS + STREAM_GET])
    stream = StreamGet(ctypes.sizeof(StreamGet), None, frame.context, None)
    error = stream_get(ctypes.byref(stream))
    if error:
        return error
    source, result = frame.args.arrays[0].contents, frame.rets.arrays[0].contents
    seen.update(stream=stream.stream, source=source.data)
    seen["result"] = DRIVER.cuMemcpyAsync(ctypes.c_uint64(result.data), ctypes.c_uint64(source.data), ctypes.c_size_t(32),
                                          ctypes.c_void_p(stream.stream))
    return None


def a_handler_for_cuda_gets_device_memory_and_the_stream():
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    address = ctypes.cast(copy_on_the_stream, ctypes.c_void_p).value
    jax.ffi.register_ffi_target("copy_on_the_stream", new(address, None, None), platform="CUDA")
    call = jax.ffi.ffi_call("copy_on_the_stream", jax.ShapeDtypeStruct((8,), jnp.float32))
    np.testing.assert_array_equal(jax.jit(lambda v: call(v + 1) * 2)(array()), (WANT + 1) * 2)
    assert seen["stream"] and seen["result"] == 0, seen


def main():
    tests = [the_cuda_array_interface_names_device_memory, the_cuda_array_interface_of_another_library_is_read, dlpack_shares_device_memory, a_shared_array_outlives_its_maker,
             memory_kinds_move_there_and_back, a_handler_for_cuda_gets_device_memory_and_the_stream]
    print(f"1..{len(tests)}")
    failed = 0
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {test.__name__}")
        except Exception as error:
            failed += 1
            print(f"not ok {number} - {test.__name__}")
            print("# " + f"{type(error).__name__}: {error}"[:1500].replace("\n", "\n# "))
    sys.stdout.flush()
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
