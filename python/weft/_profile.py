"""The times of one run: the plugin's profiler extension and the XSpace message that it gives."""
import ctypes
from dataclasses import dataclass

from weft import _pjrt

_CREATE, _DESTROY, _START, _STOP, _COLLECT = 5, 6, 7, 8, 9  # places in PLUGIN_Profiler_Api
_PROFILER = 1  # PJRT_Extension_Type


class _Args(ctypes.Structure):
    """Arguments of those functions: what they have in common, then the longest's."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("a", ctypes.c_void_p), ("b", ctypes.c_void_p), ("c", ctypes.c_size_t)]


@dataclass(frozen=True)
class Step:
    """A step of the program, or a part of the runtime's work: its name, how often it ran and how long, without the steps inside of it."""
    name: str
    count: int
    self_ms: float


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data):
    """(number, value) of the fields of a message of varints and lengths."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        yield tag >> 3, value


def _message(data):
    return dict(_fields(data))


def _steps(space):
    """XSpace: planes 1; XPlane: lines 3, names 4; XLine: events 4; XEvent: name 1, offset 2, duration 3 (ps)."""
    totals = {}
    for _, plane in _fields(space):
        names = {_message(e)[1]: _message(_message(e)[2])[2].decode() for number, e in _fields(plane) if number == 4}
        for line in (value for number, value in _fields(plane) if number == 3):
            events = [_message(value) for number, value in _fields(line) if number == 4]
            open_events = []  # (end, its own time so far as a list of one) from the outermost
            for event in sorted(events, key=lambda e: (e.get(2, 0), -e.get(3, 0))):
                begin, length = event.get(2, 0), event.get(3, 0)
                while open_events and open_events[-1][0] <= begin:
                    open_events.pop()
                if open_events:
                    open_events[-1][1][1] -= length
                total = totals.setdefault(names[event[1]], [0, 0])
                total[0] += 1
                total[1] += length
                open_events.append((begin + length, total))
    steps = [Step(name, count, ps / 1e9) for name, (count, ps) in totals.items()]
    return sorted(steps, key=lambda step: -step.self_ms)


def record(table, run):
    """Calls run() and returns the Steps of what the plugin did meanwhile, the longest first."""
    functions = _pjrt.extension_functions(table, _PROFILER)
    profiler_api = ctypes.cast(functions[0], ctypes.POINTER(ctypes.c_void_p)) if functions else None
    if not profiler_api:
        raise _pjrt.Error("UNIMPLEMENTED", "the plugin has no profiler")

    def call(place, *fields):
        args = _Args(ctypes.sizeof(_Args), *fields)
        if ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Args))(profiler_api[place])(args):
            raise _pjrt.Error("INTERNAL", "the plugin's profiler failed")
        return args

    profiler = call(_CREATE, None, None).c
    try:
        call(_START, profiler)
        try:
            run()
        finally:
            call(_STOP, profiler)
        data = call(_COLLECT, profiler)
        return _steps(ctypes.string_at(data.b, data.c) if data.c else b"")
    finally:
        call(_DESTROY, profiler)
