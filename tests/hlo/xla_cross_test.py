#!/usr/bin/env python3
"""Checks Weft's HLO readers and writers against XLA's (TAP).  For each program: XLA reads what we print and what we
serialise, of its text and of its own dump and proto, and finds the module it finds in the original."""
import glob
import os
import re
import subprocess
import sys

python = os.environ.get("WEFT_PYTHON")
if python and "WEFT_XLA_CROSS" not in os.environ:
    os.execve(python, [python, *sys.argv], dict(os.environ, WEFT_XLA_CROSS="1", TF_CPP_MIN_LOG_LEVEL="3"))
try:
    from jaxlib import _hlo
except ImportError:
    print("1..0 # SKIP no jaxlib 0.10.2 in $WEFT_PYTHON")
    sys.exit(0)

SOURCE = os.environ["WEFT_SRCDIR"]
CONVERT = os.path.join(os.environ["WEFT_BUILDDIR"], "tests/hlo/hlo_convert")
FILES = sorted(glob.glob(SOURCE + "/tests/data/hlo/*.hlo") + glob.glob(SOURCE + "/../shared/testdata/hlo/*.hlo"))
NOT_FOR_XLA = {"topk_logits_k10_1x50000_bf16.hlo": "is_stable of topk is newer than jaxlib 0.10.2",
               "ours.hlo": "forms that XLA does not have"}


def convert(to, program):
    data = program.encode() if isinstance(program, str) else program
    done = subprocess.run([CONVERT, to], input=data, capture_output=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[:1000])
    return done.stdout


def text_of(module):
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return module.to_string(options)


def blocks(module):
    """The computations, whatever their order.  The header is not in a proto, and -0 and complex infinities do not
    survive XLA's own text."""
    return sorted(text_of(module).split("\n\n")[1:])


def from_text(text):
    return _hlo.hlo_module_from_text(text.decode() if isinstance(text, bytes) else text)


def from_proto(data):
    return _hlo.HloModule.from_serialized_hlo_module_proto(data)


def check(path):
    """The fault as text, or None."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    # Names that repeat across computations get numbers as they are met, in text and proto differently; elided
    # constants have any values.
    elided = "{...}" in text
    original = from_text(text)
    unique = from_text(text_of(original))
    want = blocks(unique)
    dump, proto = text_of(unique), unique.as_serialized_hlo_module_proto()
    ways = {
        "XLA reads our text of its text": lambda: from_text(convert("text", dump)),
        "XLA reads our proto of its text": lambda: from_proto(convert("proto", dump)),
        "XLA reads our text of its proto": lambda: from_text(convert("text", proto)),
        "XLA reads our proto of its proto": lambda: from_proto(convert("proto", proto)),
        "XLA reads our text of our proto": lambda: from_text(convert("text", convert("proto", proto))),
    }
    from_text(convert("text", text))   # the original, at least readable
    from_proto(convert("proto", text))
    for way, make in ways.items():
        try:
            got = blocks(make())
        except Exception as error:  # XLA's errors have many types
            return f"{way}: {str(error)[:500]}"
        if got != want and not elided:
            first = next(((a, b) for a, b in zip("\n".join(want).split("\n"), "\n".join(got).split("\n")) if a != b),
                         ("more lines", ""))
            return f"{way}\nwant {first[0][:400]}\ngot  {first[1][:400]}"
    return None


print(f"1..{len(FILES)}")
failed = False
for number, path in enumerate(FILES, 1):
    name = os.path.basename(path)
    if name in NOT_FOR_XLA:
        print(f"ok {number} - {name} # SKIP {NOT_FOR_XLA[name]}")
        continue
    try:
        wrong = check(path)
    except Exception as error:
        wrong = str(error)[:1000]
    failed |= wrong is not None
    print(f"{'not ' if wrong else ''}ok {number} - {name}", flush=True)
    if wrong:
        print(re.sub("^", "# ", wrong, flags=re.M))
sys.exit(failed)
