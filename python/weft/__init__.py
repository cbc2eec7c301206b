"""Weft from Python, without JAX: compile a program once, call it with NumPy arrays.

    import numpy as np
    import weft

    program = weft.compile(open("program.mlir").read())
    result = program(np.ones((2, 3), np.float32))
    print(program.plan(), program.profile(np.ones((2, 3), np.float32)))

Programs are StableHLO (text, bytecode or portable artefact) or HLO (text or HloModuleProto).  Arguments are NumPy arrays, DLPack arrays of the
host, and numbers.  An argument in row-major order that is aligned to 64 bytes is read where it lies, others are copied; results lie in
Weft's memory and are read-only.  Calls return when the program has run; they may be made from any number of threads.
"""
from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft import _pjrt
from weft._pjrt import Error, library_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    import numpy as np
    from weft._profile import Step

__all__ = ["Error", "Plan", "Program", "compile", "library_path"]

# PJRT_Buffer_Type by NumPy's names; those after float64 and complex128 are of the package ml_dtypes.
_TYPES = {"bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9, "float16": 10,
          "float32": 11, "float64": 12, "bfloat16": 13, "complex64": 14, "complex128": 15, "float8_e5m2": 16, "float8_e4m3fn": 17,
          "float8_e4m3b11fnuz": 18, "float8_e5m2fnuz": 19, "float8_e4m3fnuz": 20, "float8_e4m3": 26, "float8_e3m4": 27,
          "float8_e8m0fnu": 28}
_NAMES = {number: name for name, number in _TYPES.items()}
_PARAMETER_DIMENSIONS, _MEMORY_BOUND = 0, 1  # of PJRT_Weft_Extension
_ZERO_COPY = 2  # PJRT_HostBufferSemantics_kImmutableZeroCopy


@dataclass(frozen=True)
class Plan:
    """Bytes of a compiled program.  `outputs` counts results that have memory of their own, `aliased` those in that of an argument;
    no order of steps needs less than `temporaries_bound` for temporaries."""
    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    temporaries_bound: int
    code: int


class _Client:
    """The plugin and its client of one device, of which a process has one."""

    def __init__(self) -> None:
        self.table = _pjrt.api(library_path())
        _pjrt.call(self.table, "Plugin_Initialize")
        self.handle = _pjrt.call(self.table, "Client_Create").client
        devices = _pjrt.call(self.table, "Client_AddressableDevices", client=self.handle).addressable_devices
        self.device = ctypes.c_void_p.from_address(devices).value


_client_lock = threading.Lock()


@functools.lru_cache(maxsize=None)
def _client_of(pid: int) -> _Client:
    return _Client()


def _client() -> _Client:
    with _client_lock:
        return _client_of(os.getpid())  # a fork has none of the threads of its parent's


def _text_option(name: str, value: str) -> bytes:
    """A CompileOptionsProto with one entry of env_option_overrides (field 7), whose value is a string."""
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    if len(value) > 64:
        raise Error("INVALID_ARGUMENT", f"{name}: {value[:64]}...")
    return field(7, field(1, name.encode()) + field(2, field(1, value.encode())))


def compile(program: str | bytes, *, memory: str | None = None) -> Program:
    """Compiles a program for this machine.

    memory: how temporaries are placed, "topological" (default), "sequential" or "budget=BYTES".
    Raises Error: INVALID_ARGUMENT for a program that is none, UNIMPLEMENTED for what Weft does not do.
    """
    client, code = _client(), program.encode() if isinstance(program, str) else bytes(program)
    options = _text_option("weft_memory", memory) if memory is not None else b""
    text = _pjrt.struct("Program", code=_address(code), code_size=len(code), format=_address(b"any"), format_size=3)
    made = _pjrt.call(client.table, "Client_Compile", client=client.handle, program=ctypes.addressof(text),
                      compile_options=_address(options), compile_options_size=len(options))
    return Program(client, made.executable)


def _address(data: bytes) -> int | None:
    """Where the bytes lie; the caller keeps them."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value


class _Buffer:
    """Owns a PJRT_Buffer; NumPy arrays over its memory have it as their base."""

    def __init__(self, client: _Client, handle: int) -> None:
        self.client, self.handle = client, handle

    def __del__(self) -> None:
        if self.handle:
            _pjrt.call(self.client.table, "Buffer_Destroy", buffer=self.handle)

    def to_numpy(self) -> np.ndarray:
        import numpy as np

        table = self.client.table
        dtype = _dtype(_pjrt.call(table, "Buffer_ElementType", buffer=self.handle).type)
        dims = _pjrt.call(table, "Buffer_Dimensions", buffer=self.handle)
        shape = tuple((ctypes.c_int64 * dims.num_dims).from_address(dims.dims)) if dims.num_dims else ()
        if 0 in shape:
            return np.zeros(shape, dtype)
        address = _pjrt.call(table, "Buffer_UnsafePointer", buffer=self.handle).buffer_pointer
        self.__array_interface__ = {"version": 3, "typestr": f"|V{dtype.itemsize}", "shape": shape, "data": (address, True)}
        return np.asarray(self).view(dtype)


def _dtype(number: int) -> np.dtype:
    import numpy as np

    name = _NAMES.get(number)
    if name is None:
        raise Error("UNIMPLEMENTED", f"NumPy has no arrays of PJRT's type {number}")
    try:
        return np.dtype(name)
    except TypeError:
        try:
            import ml_dtypes
        except ImportError:
            raise Error("FAILED_PRECONDITION", f"{name} in NumPy needs the package ml_dtypes") from None
        return np.dtype(getattr(ml_dtypes, name))


def _to_numpy(value: Any) -> np.ndarray:
    import numpy as np

    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype.name not in _TYPES or not array.dtype.isnative:
        raise Error("INVALID_ARGUMENT", f"an argument of type {array.dtype}")
    return np.ascontiguousarray(array).reshape(array.shape)


class Program:
    """A compiled program.  `parameters` has the type and the shape of each parameter; `outputs` is the number of results."""

    def __init__(self, client: _Client, loaded: int) -> None:
        self._client, self._loaded = client, loaded
        self._executable = _pjrt.call(client.table, "LoadedExecutable_GetExecutable", loaded_executable=loaded).executable
        self.parameters: tuple[tuple[str, tuple[int, ...]], ...] = tuple(self._read_parameters())
        self.outputs: int = _pjrt.call(client.table, "Executable_NumOutputs", executable=self._executable).num_outputs

    def __del__(self) -> None:
        if getattr(self, "_executable", None):
            _pjrt.call(self._client.table, "Executable_Destroy", executable=self._executable)
        _pjrt.call(self._client.table, "LoadedExecutable_Destroy", executable=self._loaded)

    def _read_parameters(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for number in itertools.count():
            try:
                p = _pjrt.call_weft(self._client.table, _PARAMETER_DIMENSIONS, "ParameterDimensions", executable=self._executable, parameter=number)
            except Error as error:
                if error.code != "INVALID_ARGUMENT":
                    raise
                return  # there is no parameter of that number
            yield _NAMES.get(p.type, f"type {p.type}"), tuple((ctypes.c_int64 * p.num_dims).from_address(p.dims)) if p.num_dims else ()

    def _take(self, args: tuple[Any, ...]) -> list[np.ndarray]:
        arrays = [_to_numpy(a) for a in args]
        if len(arrays) != len(self.parameters):
            raise Error("INVALID_ARGUMENT", f"{len(arrays)} arguments, the program takes {len(self.parameters)}")
        for number, (array, want) in enumerate(zip(arrays, self.parameters)):
            if (array.dtype.name, array.shape) != want:
                raise Error("INVALID_ARGUMENT", f"argument {number} is {array.dtype.name} {array.shape}, the program takes {want[0]} {want[1]}")
        return arrays

    def _put(self, array: np.ndarray) -> _Buffer:
        """Lends the array to a buffer: the caller keeps it until the program has run."""
        c, shape = self._client, (ctypes.c_int64 * array.ndim)(*array.shape)
        made = _pjrt.call(c.table, "Client_BufferFromHostBuffer", client=c.handle, data=array.ctypes.data, type=_TYPES[array.dtype.name],
                          dims=ctypes.addressof(shape), num_dims=array.ndim, host_buffer_semantics=_ZERO_COPY, device=c.device)
        _pjrt.call(c.table, "Event_Destroy", event=made.done_with_host_buffer)
        return _Buffer(c, made.buffer)

    def _run(self, arrays: list[np.ndarray]) -> list[_Buffer]:
        c, inputs = self._client, [self._put(array) for array in arrays]
        arguments = (ctypes.c_void_p * len(inputs))(*(b.handle for b in inputs))
        results = (ctypes.c_void_p * self.outputs)()
        kept = (ctypes.c_int64 * len(inputs))(*range(len(inputs)))  # nothing is written over an argument
        lists, out_lists = ctypes.c_void_p(ctypes.addressof(arguments)), ctypes.c_void_p(ctypes.addressof(results))
        options = _pjrt.struct("ExecuteOptions", non_donatable_input_indices=ctypes.addressof(kept), num_non_donatable_input_indices=len(inputs))
        done = ctypes.c_void_p()
        _pjrt.call(c.table, "LoadedExecutable_Execute", executable=self._loaded, options=ctypes.addressof(options),
                   argument_lists=ctypes.addressof(lists), num_devices=1, num_args=len(inputs),
                   output_lists=ctypes.addressof(out_lists), device_complete_events=ctypes.addressof(done))
        outputs = [_Buffer(c, handle) for handle in results]
        try:
            _pjrt.call(c.table, "Event_Await", event=done.value)
        finally:
            _pjrt.call(c.table, "Event_Destroy", event=done.value)
        return outputs

    def __call__(self, *args: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        """Runs the program.  Returns its result, or a tuple of them where it has none or several."""
        results = tuple(buffer.to_numpy() for buffer in self._run(self._take(args)))
        return results[0] if len(results) == 1 else results

    def profile(self, *args: Any) -> list[Step]:
        """Runs the program once and says where the time went, the longest step first."""
        from weft._profile import record

        arrays = self._take(args)
        return record(self._client.table, lambda: self._run(arrays))

    def plan(self) -> Plan:
        """The memory that the program needs."""
        table = self._client.table
        stats = _pjrt.call(table, "Executable_GetCompiledMemoryStats", executable=self._executable)
        bound = _pjrt.call_weft(table, _MEMORY_BOUND, "MemoryBound", executable=self._executable)
        return Plan(stats.argument_size_in_bytes, stats.output_size_in_bytes - stats.alias_size_in_bytes, stats.alias_size_in_bytes,
                    stats.temp_size_in_bytes, bound.bytes, stats.generated_code_size_in_bytes)
