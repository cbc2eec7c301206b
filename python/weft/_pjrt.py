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


def _candidates():
    if os.environ.get("WEFT_PJRT_PLUGIN"):
        yield os.environ["WEFT_PJRT_PLUGIN"]
        return
    yield os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "weft", "pjrt_weft.so")
    for prefix in (sys.prefix, os.path.expanduser("~/.local"), "/usr/local", "/usr", "/opt/weft"):
        yield os.path.join(prefix, "lib", "weft", "pjrt_weft.so")
    try:
        found = subprocess.run(["pkg-config", "--variable=plugindir", "weft"], capture_output=True, text=True, timeout=10)
        if found.returncode == 0:
            yield os.path.join(found.stdout.strip(), "pjrt_weft.so")
    except (OSError, subprocess.TimeoutExpired):
        pass
    for folder in os.environ.get("PATH", "").split(os.pathsep):  # a prefix that is in the path: its command is beside its library
        if os.path.exists(os.path.join(folder, "weft")):
            yield os.path.join(os.path.dirname(folder.rstrip("/")), "lib", "weft", "pjrt_weft.so")


def library_path():
    """The plugin's file; raises FileNotFoundError naming where it was looked for."""
    tried = []
    for path in _candidates():
        if os.path.exists(path):
            return path
        tried.append(path)
    raise FileNotFoundError("the plugin is not at " + ", ".join(tried) + " (the variable WEFT_PJRT_PLUGIN is its path)")


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
