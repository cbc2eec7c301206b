"""What reading a StableHLO program costs jaxlib: Module.parse of text, deserialize_portable_artifact of bytecode, and
the way from there to an HloModuleProto (what its clients do next).  One line a file, as bench/read prints."""
import os
import sys
import time

import jaxlib.mlir.ir as ir
from jax._src.interpreters import mlir as jax_mlir
from jaxlib import _jax
from jaxlib.mlir.dialects import stablehlo


def status_bytes(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


def measure(path):
    data = open(path, "rb").read()
    read_ms = hlo_ms = 1e9
    grown = 0
    for i in range(3):
        context = jax_mlir.make_ir_context()
        context.allow_unregistered_dialects = True
        open("/proc/self/clear_refs", "w").write("5")
        before = status_bytes("VmRSS")
        start = time.process_time()
        if data[:4] == b"ML\xefR":
            module = stablehlo.deserialize_portable_artifact(context, data)
        else:
            module = ir.Module.parse(data, context)
        middle = time.process_time()
        if i == 0:
            grown = status_bytes("VmHWM") - before
        read_ms = min(read_ms, (middle - start) * 1e3)
        try:
            _jax.mlir.mlir_module_to_xla_computation(str(module) if len(data) < 10 << 20 else data)
            hlo_ms = min(hlo_ms, (time.process_time() - middle) * 1e3)
        except Exception as error:
            hlo_ms = float("nan")
    mb = len(data) / 1e6
    print(f"{path:40} {mb:8.2f} MB  read {read_ms:8.2f} ms  to HLO {hlo_ms:8.2f} ms  {mb / read_ms * 1e3:7.1f} MB/s read"
          f"  memory {grown / len(data):5.1f}x")


for path in sys.argv[1:]:
    child = os.fork()  # memory is measured from a fresh heap
    if child == 0:
        measure(path)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
