#!/usr/bin/env python3
"""The programs of optable.def on XLA:CPU, against what optable_test computed.

  optable_jax.py [--part K/N]      every Nth cell of the table from the Kth on; (make check) 0/11
  optable_jax.py --all             every program, an hour of one core
  optable_jax.py --generate        writes docs/operations.md anew
  optable_jax.py --row TEXT        rows whose name contains TEXT, each difference in full

Where XLA:CPU and Weft differ on purpose, DIFFERENT says why.  Needs jaxlib: python3's own, or that of WEFT_PYTHON."""
import os, re, subprocess, sys, tempfile

if os.environ.get("WEFT_SANITIZED") and len(sys.argv) == 1:
    print("1..0 # SKIP jaxlib has judged the build without a sanitizer")
    sys.exit(0)

try:
    import jaxlib  # noqa: F401
except ImportError:
    other = os.environ.get("WEFT_PYTHON", "")
    if os.path.isabs(other) and os.path.exists(other) and "WEFT_REEXEC" not in os.environ:
        os.environ["WEFT_REEXEC"] = "1"
        os.execv(other, [other] + sys.argv)
    print("1..0 # SKIP no jaxlib")
    sys.exit(0)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"  # its results matter, not its speed
import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../xla"))
from jaxlib import xla_client as xc
from oracle import dtype_of

SOURCE = os.environ.get("WEFT_SRCDIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
BUILD = os.environ.get("WEFT_BUILDDIR", ".")
PAGE = os.path.join(SOURCE, "docs/operations.md")
client = jax.devices("cpu")[0].client

# (rows, types, why XLA:CPU gives something else).  Patterns are matched whole.
DIFFERENT = [
    ("abs", "c64|c128", "|nan - inf i| is inf, as in C; XLA: nan"),
    (".*", "f8e8m0fnu", "XLA:CPU takes 2^-127 for a denormal f32 and flushes it to zero, which the type lacks"),
    ("convert.*|stochastic-convert", "f4e2m1fn", "XLA:CPU takes 6, the largest value, for one that is out of range"),
    ("sort", "s2", "XLA:CPU overruns memory: it aborts, or the result is anything"),
    ("stochastic-convert", "f8.*", "XLA:CPU computes the fraction in the type itself, where it overflows"),
    ("popcnt", "s4|s2", "XLA:CPU counts the bits of the byte that holds the element"),
    ("power", "[su]\\d+", "XLA:CPU looks at the low six bits of an integer exponent"),
    ("logistic", "f16", "XLA:CPU rounds exp(-x) to f16, where it overflows"),
    ("maximum|minimum|reduce, maximum|reduce, minimum|reduce-window|clamp", "c64|c128", "XLA:CPU orders by the real part, and NaN does not win"),
    ("sine|power|tan|atan2|log-plus-one", "c64|c128", "XLA:CPU is less accurate for small parts and for large exponents"),
    ("topk", "f8e.*", "XLA:CPU takes all NaNs for equal, we order them by their bits"),
    ("while|conditional|call", "f8e5m2fnuz", "XLA:CPU moves values by way of f16, which rounds the smallest"),
]


class Case:
    def __init__(self, row, type_, ulps):
        self.row, self.type, self.ulps, self.text, self.args, self.outs = row, type_, ulps, "", [], []


def read_cases(path):
    cases, in_text = [], False
    for line in open(path):
        if in_text:
            if line == "end\n":
                in_text = False
            else:
                cases[-1].text += line
        elif line.startswith("case "):
            _, type_, ulps, row = line.rstrip("\n").split(" ", 3)
            cases.append(Case(row, type_, float(ulps)))
        elif line.startswith("text"):
            in_text = True
        else:
            kind, type_, dims, *data = line.rstrip("\n").split(" ")
            shape = () if dims == "-" else tuple(map(int, dims.split(",")))
            array = np.frombuffer(bytes.fromhex(data[0] if data else ""), dtype_of(type_)).reshape(shape)
            (cases[-1].args if kind == "arg" else cases[-1].outs).append(array)
    return cases


def run(case):
    module = xc.hlo.hlo_module_from_text(case.text)
    comp = xc.XlaComputation(module.as_serialized_hlo_module_proto())
    mlir = xc._xla.mlir.xla_computation_to_mlir_module(comp)
    devices = xc.DeviceList(tuple(client.devices()[:1]))
    exe = client.compile_and_load(mlir, devices, xc.CompileOptions())
    buffers = [jax.device_put(a, jax.devices("cpu")[0]) for a in case.args]
    return [np.asarray(o[0]) for o in exe.execute_sharded(buffers).disassemble_into_single_device_arrays()]


def ordinal(x, dtype):
    """Position of each float among the values of its type."""
    bits = np.abs(x).astype(dtype).view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]).astype(np.float64)
    return np.where(np.signbit(x.astype(np.float64)), -bits, bits)


def is_denormal(x):
    """Denormals of f32 (of f64, where x is wider), which XLA:CPU flushes and we keep."""
    wide = x.dtype.name in ("float64", "complex128")
    x = x.astype(np.complex128) if x.dtype.kind == "c" else x.astype(np.float64)
    least = 2.0 ** -1022 if wide else 2.0 ** -126
    return ((x.real != 0) & (np.abs(x.real) < least)) | ((x.imag != 0) & (np.abs(x.imag) < least))


def is_real_float(dtype):
    return dtype.kind == "f" or dtype.name.startswith(("float", "bfloat"))


def difference(got, want, case):
    """The first difference, or "" if there is none."""
    if case.row == "rng-bit-generator" and got.dtype.itemsize == want.dtype.itemsize:  # XLA's bits are always unsigned
        want = want.view(got.dtype)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, XLA {want.dtype}{list(want.shape)}"
    ulps, slack = case.ulps, case.ulps + (1 if case.ulps and got.dtype.itemsize <= 2 else 0)
    with np.errstate(all="ignore"):
        if got.dtype.kind == "c":
            size, finite = np.abs(want), np.isfinite(want)
            if ulps > 8:  # sums: relative to the greatest
                size = np.full_like(size, np.max(size[finite], initial=0))
            unit = np.maximum(size, np.finfo(got.dtype).tiny) * np.finfo(got.dtype).eps
            same = np.where(finite, np.abs(got - want) <= (ulps + 4) * unit, ~np.isfinite(got)) | (got == want)
        elif is_real_float(got.dtype):
            g, w = got.astype(np.float64), want.astype(np.float64)
            same = (np.isnan(g) & np.isnan(w)) | ((g == w) & ((np.signbit(g) == np.signbit(w)) | (ulps > 0)))
            same |= ~np.isnan(g) & ~np.isnan(w) & (np.abs(ordinal(g, got.dtype) - ordinal(w, got.dtype)) <= slack)
            if ulps > 8:
                scale = np.max(np.abs(w[np.isfinite(w)]), initial=0)
                off = ordinal(scale + np.abs(g - w), got.dtype) - ordinal(np.full_like(g, scale), got.dtype)
                same |= np.isfinite(g) & np.isfinite(w) & (off <= ulps)
        else:
            same = got == want
        for x in [got] + [a for a in case.args if a.shape == got.shape or a.shape == ()]:
            if is_real_float(x.dtype) or x.dtype.kind == "c":
                same = same | is_denormal(x)
    if np.all(same):
        return ""
    at = np.unravel_index(np.argmin(same), same.shape) if same.shape else ()
    return f"{int((~same).sum())} of {same.size} differ, first at {tuple(map(int, at))}: Weft {got[at]}, XLA {want[at]}"


def reason_for(case):
    for rows, types, why in DIFFERENT:
        if re.fullmatch(rows, case.row) and re.fullmatch(types, case.type):
            return why
    return None


def check(case):
    """'same', 'refused' (XLA:CPU does not do it) or the difference."""
    if "f6e" in case.text:
        return "refused: XLA:CPU has no such type"
    try:
        wants = run(case)
    except Exception as e:
        return "refused: " + str(e).split("\n")[0][:200]
    if case.ulps < 0:
        return "same"
    for i, (got, want) in enumerate(zip(case.outs, wants)):
        text = difference(got, want, case)
        if text:
            at = re.search(r"first at \((\d+),?\)", text)
            args = "" if not at else " for " + ", ".join(str(a[int(at.group(1))]) for a in case.args if a.ndim == 1 and a.shape == got.shape)
            return f"result {i}: {text}{args}"
    return "same"


def work(cases, indices):
    """In a process of its own, since XLA:CPU may abort: a verdict on each of those cases."""
    for i in indices:
        print(i, check(cases[i]).replace("\n", " "), flush=True)


def verdicts(path, indices):
    found = {}
    while True:
        left = [i for i in indices if i not in found]
        if not left:
            return found
        r = subprocess.run([sys.executable, __file__, "--work", path] + list(map(str, left)), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
        for line in r.stdout.splitlines():
            if re.match(r"\d+ ", line):
                i, verdict = line.split(" ", 1)
                found[int(i)] = verdict
        stuck = [i for i in left if i not in found]
        if stuck:
            why = re.search(r"^F\d+ .*?\] (.*)$", r.stderr, re.M)
            found[stuck[0]] = "refused: XLA:CPU aborts" + (f" ({why.group(1)})" if why else "")


def export(path, part):
    env = dict(os.environ, WEFT_SRCDIR=SOURCE)
    subprocess.run([os.path.join(BUILD, "tests/cpu/optable_test"), "--export", path, part], env=env, stdout=subprocess.DEVNULL, check=False)
    return read_cases(path)


PAGE_HEAD = """# Operations and element types

Every operation of HLO with every element type, as small programs (`tests/cpu/optable.def`) that are compiled and run, run by the
reference evaluator, and run by XLA:CPU (jaxlib @VERSION@). `make check` runs them (`tests/cpu/optable_test`, `optable_jax.py`) and
compares this page with what happened; `tests/cpu/optable_jax.py --generate` writes it anew.

| | |
|---|---|
| `*` | compiled; equal to the reference evaluator and to XLA:CPU |
| `+` | compiled; equal to the reference evaluator (XLA:CPU refuses the program, or differs for a reason below) |
| `R` `r` | right, by the reference evaluator inside the compiled program: slow; equal to XLA:CPU, or not run there |
| `U` | UNIMPLEMENTED, named below |
| `.` | not allowed by the specification |

Equal means: integers, predicates and results of data movement bit by bit, floats within the units in the last place that the program's
line in `optable.def` states. Inputs have NaN, infinities, zeros of both signs, the least and greatest values, shifts by the width and
more, divisions by zero, conversions out of range; types of 8 bits and less are tried with all their values.
Only communication between devices (`docs/collectives.md`), custom calls (`docs/jax.md`), infeed and outfeed are not in the table.

```
"""


def mark(line, star):
    """A row of the table with '+' made '*' and 'r' made 'R' where XLA:CPU agrees."""
    name, cells = line[:28], line[28:].split()
    return name + "".join(" " + ({"+": "*", "r": "R"}.get(c, c) if i in star.get(name.strip(), ()) else c) for i, c in enumerate(cells))


def generate(cases, found):
    env = dict(os.environ, WEFT_SRCDIR=SOURCE)
    out = subprocess.run([os.path.join(BUILD, "tests/cpu/optable_test"), "--table"], env=env, stdout=subprocess.PIPE, text=True).stdout
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    types = [t for t in dict.fromkeys(c.type for c in cases)]
    header = lines[:13]
    columns = ["".join(h.ljust(200)[29 + 2 * i] for h in header).strip() for i in range(30)]
    verdicts_of = {}
    for c, verdict in zip(cases, (found[i] for i in range(len(cases)))):
        verdicts_of.setdefault((c.row, columns.index(c.type)), []).append(verdict)
    star = {}
    for (row, column), all_of in verdicts_of.items():
        if all(v == "same" for v in all_of):
            star.setdefault(row, set()).add(column)
    rows = [i for i, line in enumerate(lines) if i >= 13 and len(line) == 28 + 60]
    page = PAGE_HEAD.replace("@VERSION@", jaxlib.__version__) + "\n".join(header) + "\n"
    page += "\n".join(mark(lines[i], star) for i in rows) + "\n```\n\n## UNIMPLEMENTED\n\n"
    page += "".join(f"- {line}\n" for line in dict.fromkeys(lines[13:]) if len(line) != 28 + 60)
    page += "\nXLA:CPU refuses the remainder of complex numbers, too, which the specification leaves open. What is refused for other reasons than the\nelement type is in [unimplemented.md](unimplemented.md).\n"
    page += "\n## Where XLA:CPU gives something else\n\n| rows | types | why |\n|---|---|---|\n"
    page += "".join(f"| {rows.replace('|', ', ')} | {types.replace('|', ', ')} | {why.replace('|', '&#124;')} |\n"
                    for rows, types, why in DIFFERENT)
    page += "| all | floats | XLA:CPU flushes denormals to zero, we keep them unless `WEFT_FLUSH_DENORMALS=1` |\n"
    page += ("| reduce | all | of more than some 32 elements XLA:CPU takes an initial value that is no identity several times "
             "(129 zeros from 1 make 6); we take it once |\n")
    with open(PAGE, "w") as f:
        f.write(page)


def main():
    if "--work" in sys.argv:
        at = sys.argv.index("--work")
        return work(read_cases(sys.argv[at + 1]), map(int, sys.argv[at + 2:]))
    row = sys.argv[sys.argv.index("--row") + 1] if "--row" in sys.argv else None
    part = sys.argv[sys.argv.index("--part") + 1] if "--part" in sys.argv else "0/11"  # the number of types is no multiple of 11
    if row or "--all" in sys.argv or "--generate" in sys.argv:
        part = "0/1"
    with tempfile.TemporaryDirectory() as d:
        path = sys.argv[sys.argv.index("--file") + 1] if "--file" in sys.argv else os.path.join(d, "cases.txt")
        cases = read_cases(path) if os.path.exists(path) else export(path, part)
        chosen = [i for i, c in enumerate(cases) if not row or row in c.row]
        found = verdicts(path, chosen)
    if "--generate" in sys.argv:
        generate(cases, found)
    counts, wrong = dict(same=0, refused=0, explained=0), 0
    for i in chosen:
        kind = found[i].split(":")[0]
        if kind not in counts and reason_for(cases[i]):
            kind = "explained"
        if kind in counts:
            counts[kind] += 1
        else:
            wrong += 1
        if kind not in counts or (row and kind != "same"):
            print(f"# {cases[i].row} of {cases[i].type}: {found[i]}", flush=True)
    print(f"# {len(chosen)} programs: {counts['same']} the same on XLA:CPU, {counts['explained']} differ for a reason, "
          f"{counts['refused']} it refuses, {wrong} differ")
    print(("not " if wrong else "") + "ok 1 - what Weft computes is what XLA:CPU computes\n1..1")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
