#!/usr/bin/env python3
"""pypjrt, a PJRT client of somebody else's (PyPI), on the plugin: StableHLO text runs, and its conformance checks pass.

    Interpreter with pypjrt: $WEFT_PYTHON.  Prints TAP; skips without it.
"""
import array
import os
import re
import subprocess
import sys

if os.environ.get("WEFT_SANITIZED"):
    print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    sys.exit(0)
if os.environ.get("WEFT_PYTHON") and os.environ.get("WEFT_INSIDE") != "1":
    os.environ["WEFT_INSIDE"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
try:
    import pypjrt
    from pypjrt import conform
except ImportError:
    print("1..0 # SKIP no pypjrt in this interpreter (pip install pypjrt)")
    sys.exit(0)

PLUGIN = os.path.abspath(os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs", "pjrt_weft.so"))
F32 = 11
PROGRAM = """
module @p { func.func public @main(%x: tensor<2x3xf32>, %y: tensor<3x2xf32>) -> (tensor<2x2xf32>, tensor<2x3xf32>) {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
  %w = stablehlo.abs %x : tensor<2x3xf32>
  return %z, %w : tensor<2x2xf32>, tensor<2x3xf32> } }
"""


def runs_text():
    plugin = conform.Plugin(PLUGIN)
    with pypjrt.Client.create(plugin) as client, client.devices() as devices:
        exe = client.compile(PROGRAM)
        x = client.buffer_from_host(array.array("f", [1, -2, 3, 4, 5, -6]), F32, [2, 3], devices[0])
        y = client.buffer_from_host(array.array("f", [1, 0, 0, 1, 1, 1]), F32, [3, 2], devices[0])
        z, w = exe(x, y)
        assert list(memoryview(z.to_host()).cast("B").cast("f")) == [4.0, 1.0, -2.0, -1.0]
        assert list(memoryview(w.to_host()).cast("B").cast("f")) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def conforms():
    done = subprocess.run([sys.executable, "-m", "pypjrt.conform", PLUGIN], capture_output=True, text=True)
    summary = re.search(r"(\d+) pass .* (\d+) FAIL", done.stdout)
    assert summary and int(summary[1]) >= 50 and summary[2] == "0", done.stdout + done.stderr
    print("# " + summary[0])


print("1..2")
failed = 0
for number, check in enumerate((runs_text, conforms), 1):
    try:
        check()
        print(f"ok {number} - {check.__name__}")
    except Exception as e:  # noqa: BLE001
        failed = 1
        print(f"not ok {number} - {check.__name__}\n# {type(e).__name__}: " + str(e).replace("\n", "\n# "))
sys.exit(failed)
