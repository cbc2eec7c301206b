"""Weft's coordination agent in place of jaxlib's DistributedRuntimeClient: the same methods and errors, with the job's secret.

Calls that wait run on a thread of their own when the main thread makes them, so that Ctrl-C ends the wait at once.
"""
import ctypes
import threading
from concurrent.futures import Future

from weft import _pjrt

_P, _I64, _TEXT, _SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t
# The members of PJRT_WeftAgent_Extension in order, with the types of their arguments.
_FUNCTIONS = {
    "create": (_TEXT, _I64, _I64, _I64, _P, _P), "destroy": (_P,), "connect": (_P,), "shutdown": (_P,),
    "get": (_P, _TEXT, _I64, _P, _P), "set": (_P, _TEXT, _TEXT, _SIZE, ctypes.c_bool), "remove": (_P, _TEXT),
    "increment": (_P, _TEXT, _I64, _P), "list": (_P, _TEXT, _P, _P), "barrier": (_P, _TEXT, _I64, _P, _SIZE),
    "live_tasks": (_P, _P, _SIZE, _P, _P), "preemption_start": (_P,), "preemption_stop": (_P,), "reached_sync_point": (_P, _I64, _P),
    "free_block": (_P,),
}
_NO_ERROR = ("destroy", "preemption_stop", "free_block")  # they return nothing


class _Entry(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _Task(ctypes.Structure):
    _fields_ = [("task", ctypes.c_int32), ("incarnation", ctypes.c_uint64)]


def _key(text):
    data = text.encode() if isinstance(text, str) else bytes(text)
    if b"\0" in data:
        raise ValueError(f"a zero byte in the key {text!r}")
    return data


def _ids(tasks):
    return (ctypes.c_int32 * len(tasks))(*tasks), len(tasks)


def _interruptible(function, *args):
    """function(*args), on a thread that no signal reaches if this is the main thread.  After an interruption that thread still waits,
    until the agent shuts down."""
    if threading.current_thread() is not threading.main_thread():
        return function(*args)
    future = Future()

    def run():
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="weft-agent-call", daemon=True).start()
    return future.result()


class _Functions:
    """The functions of the plugin's agent extension, by name; they raise jax.errors.JaxRuntimeError, as jaxlib's client does."""

    def __init__(self, path):
        self._table = _pjrt.api(path)
        addresses = _pjrt.extension_functions(self._table, _pjrt.WEFT_AGENT)
        if len(addresses) < len(_FUNCTIONS):
            raise RuntimeError(f"{path} has no coordination agent: it is older than this package")
        for (name, args), address in zip(_FUNCTIONS.items(), addresses):
            setattr(self, name, self._wrap(ctypes.CFUNCTYPE(None if name in _NO_ERROR else _P, *args)(address), name in _NO_ERROR))

    def _wrap(self, function, returns_nothing):
        if returns_nothing:
            return function

        def call(*args):
            from jax.errors import JaxRuntimeError
            try:
                _pjrt.check(self._table, function(*args))
            except _pjrt.Error as error:
                raise JaxRuntimeError(str(error)) from None

        return call


class Agent:
    """This process's membership in a job.  Methods are those of jaxlib's DistributedRuntimeClient."""

    def __init__(self, path, address, process_id, *, heartbeat_timeout_s=0, init_timeout_s=0):
        self._c = _Functions(path)
        handle, number = _P(), _I64()
        self._handle = None
        self._c.create(address.encode(), process_id, int(heartbeat_timeout_s * 1000), int(init_timeout_s * 1000),
                       ctypes.byref(handle), ctypes.byref(number))
        self._handle, self.id = handle, number.value  # the number: for the plugin's create option weft_agent

    def __del__(self):
        if getattr(self, "_handle", None):
            self._c.destroy(self._handle)

    def connect(self):
        _interruptible(self._c.connect, self._handle)

    def shutdown(self):
        _interruptible(self._c.shutdown, self._handle)

    def _get(self, key, timeout_ms):
        value, size = _P(), _SIZE()
        self._c.get(self._handle, _key(key), timeout_ms, ctypes.byref(value), ctypes.byref(size))
        try:
            return ctypes.string_at(value, size.value)
        finally:
            self._c.free_block(value)

    def blocking_key_value_get_bytes(self, key, timeout_in_ms):
        return _interruptible(self._get, key, max(0, timeout_in_ms))

    def blocking_key_value_get(self, key, timeout_in_ms):
        return self.blocking_key_value_get_bytes(key, timeout_in_ms).decode()

    def key_value_try_get_bytes(self, key):
        return self._get(key, -1)

    def key_value_try_get(self, key):
        return self._get(key, -1).decode()

    def key_value_set_bytes(self, key, value, allow_overwrite=False):
        data = bytes(value)
        self._c.set(self._handle, _key(key), data, len(data), allow_overwrite)

    def key_value_set(self, key, value, allow_overwrite=False):
        self.key_value_set_bytes(key, value.encode(), allow_overwrite)

    def key_value_increment(self, key, increment):
        total = _I64()
        self._c.increment(self._handle, _key(key), increment, ctypes.byref(total))
        return total.value

    def key_value_delete(self, key):
        self._c.remove(self._handle, _key(key))

    def key_value_dir_get_bytes(self, key):
        entries, count = ctypes.POINTER(_Entry)(), _SIZE()
        self._c.list(self._handle, _key(key), ctypes.byref(entries), ctypes.byref(count))
        try:
            return [(e.key.decode(), ctypes.string_at(e.value, e.size)) for e in entries[:count.value]]
        finally:
            self._c.free_block(entries)

    def key_value_dir_get(self, key):
        return [(name, value.decode()) for name, value in self.key_value_dir_get_bytes(key)]

    def wait_at_barrier(self, barrier_id, timeout_in_ms, process_ids=None):
        _interruptible(self._c.barrier, self._handle, _key(barrier_id), timeout_in_ms, *_ids(process_ids or []))

    def get_live_nodes(self, process_ids):
        def ask():
            tasks, count = ctypes.POINTER(_Task)(), _SIZE()
            self._c.live_tasks(self._handle, *_ids(list(process_ids)), ctypes.byref(tasks), ctypes.byref(count))
            try:
                return {t.task: t.incarnation for t in tasks[:count.value]}
            finally:
                self._c.free_block(tasks)

        return _interruptible(ask)


class PreemptionSyncManager:
    """jaxlib's class of that name, with an Agent."""

    def __init__(self):
        self._agent = None

    def initialize(self, agent):
        agent._c.preemption_start(agent._handle)
        self._agent = agent

    def reached_sync_point(self, step):
        reached = ctypes.c_bool()
        self._agent._c.reached_sync_point(self._agent._handle, step, ctypes.byref(reached))
        return reached.value

    def shutdown(self):
        if self._agent:
            self._agent._c.preemption_stop(self._agent._handle)
        self._agent = None
