"""Registers Weft with JAX: `jax.devices("weft")`, or JAX_PLATFORMS=weft; on GPUs as JAX's platform "cuda" (JAX_PLATFORMS=cuda).

The library is $WEFT_PJRT_PLUGIN, or is looked for in the package weft, in the usual prefixes and where `pkg-config weft` says.
"""
import ctypes
import os
import signal
import sys

from weft import _jax_agent, _pjrt
from weft._pjrt import library_path

_jax_agent.install_when_imported()


_name = "weft"  # under which JAX knows the plugin: "cuda" if the process uses Weft's platform of that name


def _choose_name(platforms):
    """JAX_PLATFORMS=cuda means Weft's GPUs where no other plugin is installed for them, and WEFT_PLATFORM=cuda always does."""
    import importlib.util

    global _name
    others = any(importlib.util.find_spec("jax_plugins." + package) for package in ("xla_cuda12", "xla_cuda13", "cuda"))
    if "WEFT_PLATFORM" not in os.environ and not others and ("cuda" in platforms or "gpu" in platforms):
        os.environ["WEFT_PLATFORM"] = "cuda"
    if os.environ.get("WEFT_PLATFORM") == "cuda":
        _name = "cuda"


def _named_by_environment(xla_bridge):
    """The library that PJRT_NAMES_AND_LIBRARY_PATHS names for it, which JAX registers itself after us; None if it names none."""
    named = xla_bridge._get_pjrt_plugin_names_and_library_paths(os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "")).get(_name)
    return xla_bridge._get_pjrt_plugin_config(named)[0] if named and named.endswith(".json") else named


class _RegisterHandler(ctypes.Structure):
    """PJRT_Weft_FfiRegister_Args"""
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("name_size", ctypes.c_size_t), ("handlers", ctypes.c_void_p * 4), ("untyped", ctypes.c_void_p),
                ("platform", ctypes.c_char_p), ("platform_size", ctypes.c_size_t), ("traits", ctypes.c_uint)]


class _Leave(ctypes.Structure):
    """PJRT_Weft_Leave_Args"""
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("reason", ctypes.c_char_p), ("reason_size", ctypes.c_size_t)]


class _RegisterType(ctypes.Structure):
    """PJRT_FFI_Type_Register_Args"""
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("name", ctypes.c_char_p),
                ("name_size", ctypes.c_size_t), ("type_id", ctypes.c_int64), ("type_info", ctypes.c_void_p)]


class _TypeInfo(ctypes.Structure):
    """PJRT_FFI_Type_Info"""
    _fields_ = [("deleter", ctypes.c_void_p), ("serialize", ctypes.c_void_p), ("deserialize", ctypes.c_void_p)]


def _function(path, kind, index, args_type):
    """Function `index` of the plugin's extension of that type; None if there is none."""
    addresses = _pjrt.extension_functions(_pjrt.api(path), kind)
    if index >= len(addresses):
        return None
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(args_type))(addresses[index])

    def call(what, name, *fields):
        text = name.encode() if isinstance(name, str) else bytes(name)
        if function(ctypes.byref(args_type(ctypes.sizeof(args_type), None, text, len(text), *fields))):
            raise RuntimeError(f"Weft did not take the {what} {name!r}")

    return call


def _pointer(capsule):
    if capsule is None:
        return None
    get_pointer, get_name = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_GetName
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return get_pointer(capsule, get_name(capsule))


def _stages(name, function):
    """The handlers of what jax.ffi registers: a capsule, or a dict of them by stage.  Of jaxlib's own targets (Python callbacks)
    the stages before execute are jaxlib's affair."""
    if not isinstance(function, dict):
        function = {"execute": function}
    stages = ("instantiate", "prepare", "initialize", "execute")
    if str(name).startswith("xla_"):
        stages = (None, None, None, "execute")
    return (ctypes.c_void_p * 4)(*[_pointer(function.get(stage)) for stage in stages])


def _forward_ffi_handlers(path):
    """Gives Weft every custom-call target that JAX's own CPU backend has or will get: jax.ffi targets of both kinds and Python
    callbacks; and the types of what handlers keep between their stages.

    jaxlib lets one function per platform take registrations, the first to ask; ours serves both backends.
    """
    from jax._src.lib import xla_client

    register, register_type = _function(path, _pjrt.WEFT, 2, _RegisterHandler), _function(path, _pjrt.FFI, 0, _RegisterType)
    if register is None or register_type is None:
        return
    native, native_type = xla_client._xla.register_custom_call_target, xla_client._xla.register_custom_type
    untyped, typed_ffi = 0, 1

    def take(name, function, platform, api_version, traits=None):
        native(name, function, platform, api_version, traits) if traits is not None else native(name, function, platform, api_version)
        if api_version == typed_ffi and not str(name).startswith("lapack_"):
            register("FFI handler", name, _stages(name, function), None)
        elif api_version == untyped:
            register("custom-call target", name, (ctypes.c_void_p * 4)(), _pointer(function))

    def take_type(name, registration):
        native_type(name, registration)  # which decides on the number of the type
        type_id = ctypes.c_int64.from_address(_pointer(registration["type_id"])).value
        info = _pointer(registration.get("type_info"))
        # XLA_FFI_TypeInfo has a head of two words before the deleter, PJRT's struct has none.
        deleter = ctypes.c_void_p.from_address(info + 2 * ctypes.sizeof(ctypes.c_void_p)).value if info else None
        kept = _TypeInfo(deleter)
        register_type("FFI type", name, type_id, ctypes.addressof(kept))

    def take_for_gpus(name, function, platform, api_version, traits=None):
        if api_version == typed_ffi:  # jax.ffi.register_ffi_target(..., platform="CUDA"), and what jax-cuda's wheel brings
            register("FFI handler", name, _stages(name, function), None, b"CUDA", 4, int(traits or 0))

    for name, function in xla_client.custom_call_targets("Host").items():
        if not name.startswith("lapack_"):  # Weft has linear algebra of its own
            register("FFI handler", name, _stages(name, function), None)
        if _name == "cuda" and "python_cpu_callback" in name:  # on a GPU, too, Python works on host memory
            register("FFI handler", name.replace("_cpu_", "_gpu_"), _stages(name, function), None)
    xla_client.register_custom_type_handler("cpu", take_type)  # first: handlers name types
    xla_client.register_custom_call_handler("cpu", take)
    if _name == "cuda":
        xla_client.register_custom_call_handler("CUDA", take_for_gpus)


def _row_major(array):
    """The array in row-major order, with the strides that jaxlib computes: numpy has its own for dimensions of size 0 and 1."""
    import numpy as np

    array = np.asarray(array, order="C")
    strides, bytes_below = [], array.itemsize
    for size in reversed(array.shape):
        strides.insert(0, bytes_below)
        bytes_below *= size
    return array if list(array.strides) == strides else np.lib.stride_tricks.as_strided(array, strides=strides)


def _keep_callback_results_contiguous():
    """jaxlib's callback handler transposes results with other strides than row-major with a cache that only XLA's own client
    sets up; here results get those strides before it sees them."""
    import jax._src.callback as callbacks

    emit = callbacks.emit_python_callback

    def emit_contiguous(ctx, callback, *args, **kwargs):
        return emit(ctx, lambda *a: tuple(_row_major(r) for r in callback(*a)), *args, **kwargs)

    callbacks.emit_python_callback = emit_contiguous


def _name_the_missing_stream():
    """jaxlib reads an FFI error of Weft as one of its own and finds a code without a text; a buffer callback gets XLA's words."""
    import jax
    from jax._src.lib import ffi

    native = ffi.ExecutionContext.stream

    def stream(self):
        try:
            return native.__get__(self)
        except jax.errors.JaxRuntimeError as error:
            raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available") from error

    ffi.ExecutionContext.stream = property(stream)


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor, the head of DLManagedTensor."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("dtype", ctypes.c_uint32), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


def _import_dlpack(platforms):
    """jax.dlpack.from_dlpack on Weft: all three values of `copy`, of which jaxlib's C API client knows but "if needed".

    Memory of the host belongs to the platform "cpu"; where that is not asked for, and may be absent, to Weft.
    """
    import jax
    import jax._src.dlpack as dlpack
    from jax._src.lib import _jax

    native, alignment = _jax.dlpack_managed_tensor_to_buffer, 64  # Weft's kernels ask for it: what is not so aligned is copied
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

    def to_buffer(capsule, device, stream, copy=None, *rest):
        if "weft" not in device.client.platform_version:
            return native(capsule, device, stream, copy, *rest)
        if copy is False:
            tensor = _Tensor.from_address(get_pointer(capsule, b"dltensor"))
            if ((tensor.data or 0) + tensor.byte_offset) % alignment:
                raise jax.errors.JaxRuntimeError(f"INVALID_ARGUMENT: memory at {tensor.data:#x} is not aligned to {alignment} bytes.")
        array = native(capsule, device, stream, None, *rest)
        return array.copy() if copy else array

    _jax.dlpack_managed_tensor_to_buffer = to_buffer
    if platforms[0] == _name and "cpu" not in platforms:
        dlpack._DL_DEVICE_TO_PLATFORM[dlpack.DLDeviceType.kDLCPU] = _name


def _of_driver(call, *args):
    result = call(*args)
    if result:
        raise RuntimeError(f"{call.__name__}: CUDA error {result}")


def _wait_for_writer(interface):
    """The ordinal of the GPU whose memory it is, once the stream that the interface names has done what was queued on it."""
    driver = ctypes.CDLL(os.path.join(os.environ.get("WEFT_CUDA_LIBDIR", ""), "libcuda.so.1"))
    ordinal, context, stream = ctypes.c_int(), ctypes.c_void_p(), interface.get("stream")
    device_ordinal = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    _of_driver(driver.cuPointerGetAttribute, ctypes.byref(ordinal), device_ordinal, ctypes.c_uint64(interface["data"][0]))
    if stream is not None:
        _of_driver(driver.cuDevicePrimaryCtxRetain, ctypes.byref(context), ordinal)
        try:
            _of_driver(driver.cuCtxPushCurrent_v2, context)
            try:
                _of_driver(driver.cuStreamSynchronize, ctypes.c_void_p(stream))
            finally:
                driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        finally:
            driver.cuDevicePrimaryCtxRelease_v2(ordinal)
    return ordinal.value


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _ManagedTensor(ctypes.Structure):
    """DLPack's DLManagedTensor."""
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


_lent = {}  # tensors that JAX has, by address


def _as_dlpack(interface, ordinal):
    """The array of a __cuda_array_interface__ as a capsule of DLPack, and the key of _lent that it has."""
    import numpy as np

    dtype, rank = np.dtype(interface["typestr"]), len(interface["shape"])
    codes = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
    if dtype.kind not in codes or not dtype.isnative or interface.get("mask") is not None:
        raise ValueError(f"__cuda_array_interface__ of {interface['typestr']}, or with a mask, is not supported")
    strides = interface.get("strides")
    if strides is not None and any(stride % dtype.itemsize for stride in strides):
        raise ValueError("__cuda_array_interface__ with strides that are not whole elements is not supported")
    sizes = (ctypes.c_int64 * rank)(*interface["shape"])
    steps = None if strides is None else (ctypes.c_int64 * rank)(*(stride // dtype.itemsize for stride in strides))
    cuda, lanes = 2, 1
    tensor = _Tensor(interface["data"][0], cuda, ordinal, rank, codes[dtype.kind] | dtype.itemsize * 8 << 8 | lanes << 16,
                     ctypes.addressof(sizes), ctypes.addressof(steps) if steps else None, 0)
    managed = _ManagedTensor(tensor, None, _Deleter(lambda address: _lent.pop(address, None)))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    address = ctypes.addressof(managed)
    _lent[address] = managed, sizes, steps
    return new(address, b"dltensor", None), address


def _import_cuda_arrays():
    """jnp.asarray of an object with __cuda_array_interface__: a copy, since the interface does not keep the memory alive."""
    import jax
    import numpy as np
    from jax._src.lib import _jax

    native = _jax.cuda_array_interface_to_buffer

    def to_buffer(cai, gpu_backend=None, device_id=None):
        if device_id is not None or "weft" not in getattr(gpu_backend, "platform_version", ""):
            return native(cai=cai, gpu_backend=gpu_backend, device_id=device_id)
        if 0 in cai["shape"]:
            return jax.device_put(np.empty(cai["shape"], cai["typestr"]), gpu_backend.local_devices()[0])
        ordinal = _wait_for_writer(cai)
        devices = [device for device in gpu_backend.local_devices() if device.local_hardware_id == ordinal]
        if not devices:
            raise ValueError(f"__cuda_array_interface__: the array is on GPU {ordinal}, which is no device of this process")
        capsule, address = _as_dlpack(cai, ordinal)
        try:
            view = _jax.dlpack_managed_tensor_to_buffer(capsule, devices[0], None)
        except Exception:
            _lent.pop(address, None)  # jaxlib has not taken the tensor, so it does not call the deleter
            raise
        return view.copy().block_until_ready()

    _jax.cuda_array_interface_to_buffer = to_buffer


def _stand_in_for_cpu(platforms):
    """jax.devices("cpu"), and what looks for the host (pure_callback): Weft's where JAX_PLATFORMS leaves XLA's CPU backend out."""
    import jax._src.xla_bridge as xla_bridge

    native = xla_bridge._get_backend_uncached
    if _name in platforms and "cpu" not in platforms:
        xla_bridge._get_backend_uncached = lambda platform=None: native(_name if platform == "cpu" else platform)


def _leave_before_the_last_barrier(path):
    """A process that ends waits in JAX's shutdown barrier for all the others, and they, in a collective, for it.  It says first that
    it will take part in nothing more, and which exception ended its program, if one did: the others then fail at once."""
    import jax._src.distributed as distributed

    leave, shutdown = _function(path, _pjrt.WEFT, 3, _Leave), distributed.shutdown

    def leave_and_shut_down():  # JAX calls it when the interpreter ends; jax.distributed.shutdown stays as it is
        error = getattr(sys, "last_value", None)
        try:
            if leave is not None and distributed.global_state.client is not None:
                leave("end of the program", "" if error is None else f"{type(error).__name__}: {error}"[:1000])
        finally:
            shutdown()

    distributed.shutdown = leave_and_shut_down


def _finish_compilations():
    """jaxlib compiles on threads of its own, from a module that belongs to Python.  A signal whose handler raises (Ctrl-C) ends the main
    thread's wait there, and the module may be freed while it is compiled.  So a compilation of the main thread goes to a Python
    thread, which no signal reaches and which holds what it was given; and the end of the interpreter waits for all compilations."""
    import atexit
    import threading
    from concurrent.futures import Future
    import jax._src.compiler as compiler

    native, running = compiler.backend_compile_and_load, set()

    def run(future, args, kwargs):
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(native(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        finally:
            running.discard(future)

    def compile_and_load(*args, **kwargs):
        future = Future()
        running.add(future)
        if threading.current_thread() is not threading.main_thread():
            run(future, args, kwargs)
            return future.result()
        try:
            threading.Thread(target=run, args=(future, args, kwargs), name="weft-compile", daemon=True).start()
            return future.result()
        except BaseException:
            future.cancel()  # takes effect where the thread has not begun: nobody waits any more
            raise

    def finish():
        try:
            yield  # The interpreter's end resumes here. A function could be interrupted before its try; its wait would be skipped.
            for future in list(running):
                if not future.cancel():
                    future.exception()
        except KeyboardInterrupt:  # once more: the process ends without the steps that need the compilations to be done
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:  # after a third SIGINT too
                os._exit(128 + signal.SIGINT)

    compiler.backend_compile_and_load = compile_and_load
    os.register_at_fork(after_in_child=running.clear)  # they run in the parent
    waiter = finish()
    next(waiter)
    atexit.register(next, waiter, None)


def _fail_with(xla_bridge, error, is_wanted):
    """Registers a backend that cannot be made, and why: JAX then stops where the program first asks for its devices.  Where
    nobody asked for Weft it goes on without, and says so."""
    def make_client():
        raise RuntimeError(f"Weft cannot be used: {error}") from error

    def warn_and_make_none():
        xla_bridge.logger.warning("Weft is installed and cannot be used: %s", error)
        make_client()

    xla_bridge.register_backend_factory(_name, make_client if is_wanted else warn_and_make_none, priority=400, fail_quietly=not is_wanted)


def _make_first(xla_bridge):
    """JAX keeps the backends that it made before one failed, and a second call finds only them: Weft is made before XLA's CPU backend,
    so that a program that tries again gets the same error."""
    factories = xla_bridge._backend_factories
    others = {name: registration for name, registration in factories.items() if name != _name}
    registration = factories[_name]
    factories.clear()
    factories.update({_name: registration}, **others)


def _is_wanted(platforms):
    return _name in platforms or any(name.startswith("WEFT_") for name in os.environ)


def _register(xla_bridge, platforms):
    path = _named_by_environment(xla_bridge)
    if not path:
        path = library_path()
        devices = xla_bridge.num_cpu_devices.value  # -1: JAX was not told
        is_counted = _name == "cuda" or os.environ.get("WEFT_NUM_DEVICES") or devices <= 0  # the plugin reads the environment by itself
        xla_bridge.register_plugin(_name, library_path=path, options={} if is_counted else {"num_devices": devices})
    _forward_ffi_handlers(path)
    _leave_before_the_last_barrier(path)
    _keep_callback_results_contiguous()
    _name_the_missing_stream()
    _stand_in_for_cpu(platforms)
    _finish_compilations()
    _import_dlpack(platforms if platforms != [""] else [_name])
    if _name == "cuda":
        _import_cuda_arrays()


def initialize():
    """Called by JAX when it looks for plugins.  JAX logs an exception that leaves this function and goes on without the plugin, on
    XLA:CPU; so what is wrong is raised later, where JAX makes the backend."""
    import jax._src.xla_bridge as xla_bridge

    platforms = (xla_bridge.config.jax_platforms.value or "").split(",")
    _choose_name(platforms)
    getattr(xla_bridge, "_nonexperimental_plugins", set()).add(_name)  # or JAX warns of it
    _fail_with(xla_bridge, RuntimeError("the plugin was not registered"), is_wanted=True)
    _make_first(xla_bridge)
    try:
        _register(xla_bridge, platforms)
    except Exception as error:
        _fail_with(xla_bridge, error, _is_wanted(platforms))
