"""Where the plugin is, and its C API through ctypes: what weft, weft.agent and jax_plugins.weft share."""
import ctypes
import os
import subprocess
import sys

CODES = ("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
         "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
         "DATA_LOSS", "UNAUTHENTICATED")


class Error(RuntimeError):
    """What Weft refused or what failed.  `code` is the canonical code's name, for example "INVALID_ARGUMENT"."""

    def __init__(self, code: str, message: str):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message

    def __reduce__(self):
        return Error, (self.code, self.message)


def _in_prefix(prefix):
    """Where a prefix may have the plugin.  Debian keeps libraries in a folder of the machine's own kind, such as lib/x86_64-linux-gnu."""
    libraries = ("lib", "lib64", os.path.join("lib", getattr(sys.implementation, "_multiarch", "") or f"{os.uname().machine}-linux-gnu"))
    return [os.path.join(prefix, folder, "weft", "pjrt_weft.so") for folder in libraries]


def _candidates():
    if os.environ.get("WEFT_PJRT_PLUGIN"):
        yield os.environ["WEFT_PJRT_PLUGIN"]
        return
    yield os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "weft", "pjrt_weft.so")
    for prefix in (sys.prefix, os.path.expanduser("~/.local"), os.path.expanduser("~/weft"), "/usr/local", "/usr", "/opt/weft"):
        yield from _in_prefix(prefix)
    try:
        found = subprocess.run(["pkg-config", "--variable=plugindir", "weft"], capture_output=True, text=True, timeout=10)
        if found.returncode == 0:
            yield os.path.join(found.stdout.strip(), "pjrt_weft.so")
    except (OSError, subprocess.TimeoutExpired):
        pass
    for folder in os.environ.get("PATH", "").split(os.pathsep):  # a prefix that is in the path: its command is beside its library
        command = os.path.join(folder, "weft")
        if os.path.exists(command):
            for prefix in dict.fromkeys((os.path.dirname(folder.rstrip("/")), os.path.dirname(os.path.dirname(os.path.realpath(command))))):
                yield from _in_prefix(prefix)


def library_path():
    """The plugin's file; raises FileNotFoundError naming where it was looked for."""
    tried = []
    for path in _candidates():
        if os.path.exists(path):
            return path
        tried.append(path)
    advice = "where WEFT_PJRT_PLUGIN says it is" if os.environ.get("WEFT_PJRT_PLUGIN") else \
        "it is found if PATH has the folder of the installed command weft, or if WEFT_PJRT_PLUGIN is the plugin's path"
    raise FileNotFoundError(f"the plugin is not at {', '.join(tried)} ({advice})")


class Extension(ctypes.Structure):
    """The head of a PJRT extension; its functions follow."""


Extension._fields_ = [("size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.POINTER(Extension))]
FFI, WEFT, WEFT_AGENT = 5, 0x57656674, 0x57656175  # PJRT_Extension_Type_*


def api(path):
    """The plugin's table, as an array of pointers: its size, its extensions, four words of version, then functions."""
    get_api = ctypes.CDLL(path).GetPjrtApi
    get_api.restype = ctypes.POINTER(ctypes.c_void_p)
    return get_api()


def extension_functions(table, kind):
    """The addresses of the functions of the plugin's extension of that type; none if it has no such extension."""
    extension = ctypes.cast(table[1], ctypes.POINTER(Extension))
    while extension and extension.contents.type != kind:
        extension = extension.contents.next
    if not extension:
        return ()
    head = ctypes.sizeof(Extension)
    count = (extension.contents.size - head) // ctypes.sizeof(ctypes.c_void_p)
    return tuple((ctypes.c_void_p * count).from_address(ctypes.addressof(extension.contents) + head))


class _ErrorArgs(ctypes.Structure):
    """PJRT_Error_Destroy_Args, _Message_Args and _GetCode_Args, of which the longest is the second."""
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("error", ctypes.c_void_p), ("message", ctypes.c_void_p),
                ("message_size", ctypes.c_size_t)]


_ERROR_DESTROY, _ERROR_MESSAGE, _ERROR_GET_CODE = 5, 6, 7  # their places in the table


def check(table, error):
    """Raises the Error that a function of the plugin returned, if it did, and destroys it."""
    if not error:
        return
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorArgs))
    text = _ErrorArgs(ctypes.sizeof(_ErrorArgs), None, error)
    function(table[_ERROR_MESSAGE])(text)
    code = _ErrorArgs(4 * ctypes.sizeof(ctypes.c_void_p), None, error)
    function(table[_ERROR_GET_CODE])(code)
    number = (code.message or 0) & 0xffffffff
    message = ctypes.string_at(text.message, text.message_size).decode(errors="replace")
    function(table[_ERROR_DESTROY])(_ErrorArgs(3 * ctypes.sizeof(ctypes.c_void_p), None, error))
    raise Error(CODES[number] if number < len(CODES) else f"code {number}", message)


# Structs of weft/pjrt_c_api.h after their first two members (size, extensions); p pointer, z size_t, q int64, i int, b bool.
STRUCTS = {
    "NamedValue": "name:p name_size:z type:i value:q value_size:z",
    "Program": "code:p code_size:z format:p format_size:z",
    "ExecuteOptions": "send_callbacks:p recv_callbacks:p num_send_ops:z num_recv_ops:z launch_id:i non_donatable_input_indices:p "
                      "num_non_donatable_input_indices:z",
    "Plugin_Initialize_Args": "",
    "Event_Await_Args": "event:p",
    "Event_Destroy_Args": "event:p",
    "Client_Create_Args": "create_options:p num_options:z kv_get_callback:p kv_get_user_arg:p kv_put_callback:p kv_put_user_arg:p client:p",
    "Client_AddressableDevices_Args": "client:p addressable_devices:p num_addressable_devices:z",
    "Client_Compile_Args": "client:p program:p compile_options:p compile_options_size:z executable:p",
    "Client_BufferFromHostBuffer_Args": "client:p data:p type:i dims:p num_dims:z byte_strides:p num_byte_strides:z "
                                        "host_buffer_semantics:i device:p memory:p device_layout:p done_with_host_buffer:p buffer:p",
    "LoadedExecutable_Destroy_Args": "executable:p",
    "LoadedExecutable_GetExecutable_Args": "loaded_executable:p executable:p",
    "LoadedExecutable_Execute_Args": "executable:p options:p argument_lists:p num_devices:z num_args:z output_lists:p "
                                     "device_complete_events:p execute_device:p",
    "Executable_Destroy_Args": "executable:p",
    "Executable_NumOutputs_Args": "executable:p num_outputs:z",
    "Executable_OutputElementTypes_Args": "executable:p output_types:p num_output_types:z",
    "Executable_GetCompiledMemoryStats_Args": "executable:p generated_code_size_in_bytes:q argument_size_in_bytes:q output_size_in_bytes:q "
                                              "alias_size_in_bytes:q temp_size_in_bytes:q",
    "Buffer_Destroy_Args": "buffer:p",
    "Buffer_ElementType_Args": "buffer:p type:i",
    "Buffer_Dimensions_Args": "buffer:p dims:p num_dims:z",
    "Buffer_UnsafePointer_Args": "buffer:p buffer_pointer:p",
    "Weft_ParameterDimensions_Args": "executable:p parameter:i dims:p num_dims:z type:i",
    "Weft_MemoryBound_Args": "executable:p bytes:q",
}
FUNCTIONS = {  # places in the table
    "Plugin_Initialize": 8, "Event_Destroy": 10, "Event_Await": 13, "Client_Create": 15, "Client_AddressableDevices": 21,
    "Client_Compile": 25, "Client_BufferFromHostBuffer": 27, "Executable_Destroy": 45, "Executable_NumOutputs": 49,
    "LoadedExecutable_Destroy": 55, "LoadedExecutable_GetExecutable": 56, "LoadedExecutable_Execute": 60, "Buffer_Destroy": 63,
    "Buffer_ElementType": 64, "Buffer_Dimensions": 65, "Buffer_UnsafePointer": 78, "Executable_OutputElementTypes": 95,
    "Executable_GetCompiledMemoryStats": 101,
}
_TYPES = {"p": ctypes.c_void_p, "z": ctypes.c_size_t, "q": ctypes.c_int64, "i": ctypes.c_int, "b": ctypes.c_bool}


def _struct(name, text):
    fields = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p)]
    fields += [(field[:-2], _TYPES[field[-1]]) for field in text.split()]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


CLASSES = {name: _struct(name, text) for name, text in STRUCTS.items()}


def struct(name, **fields):
    kind = CLASSES[name]
    return kind(struct_size=ctypes.sizeof(kind), **fields)


def call(table, name, **fields):
    """Calls a function of the table; returns its arguments, with what it filled in.  Raises Error."""
    args = struct(name + "_Args", **fields)
    check(table, ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(table[FUNCTIONS[name]])(ctypes.addressof(args)))
    return args


def call_weft(table, place, name, **fields):
    """The same with a function of Weft's own extension."""
    args, functions = struct(f"Weft_{name}_Args", **fields), extension_functions(table, WEFT)
    if place >= len(functions):
        raise Error("UNIMPLEMENTED", f"the plugin has no function {name}: it is older than this package, or not Weft")
    check(table, ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(functions[place])(ctypes.addressof(args)))
    return args
