#!/usr/bin/env python3
"""A program partitioned over N devices gives the tiles of what it gives whole.  Prints TAP; needs numpy.

Each case is one HLO program with shardings; it runs as written on 4 devices of one process, and without its shardings on
one.
"""
import os
import re
import subprocess
import sys
import tempfile

if os.environ.get("WEFT_PYTHON") and "WEFT_SPMD" not in os.environ:
    os.environ["WEFT_SPMD"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
try:
    import numpy as np
except ImportError:
    print("1..0 # SKIP no numpy in this interpreter")
    sys.exit(0)

WEFT = os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), "weft")
HEAD = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
mul { a.1 = f32[] parameter(0)
 b.1 = f32[] parameter(1)
 ROOT c.1 = f32[] multiply(a.1, b.1) }
ENTRY main {
"""
# what the manual region below computes: each row's value, summed over the two tiles of the row
MANUAL = np.repeat(np.arange(8.0, dtype=np.float32)[:, None], 6, 1) * 2

# name, body, the whole result (None: what the same program without shardings gives).  Every program starts from iotas,
# so that no inputs need be cut by hand.
CASES = [
    ("dot over a free dimension",
     'x = f32[8,6] iota(), iota_dimension=0\n s = f32[8,6] custom-call(x), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}\n'
     "w = f32[6,3] iota(), iota_dimension=1\n ROOT d = f32[8,3] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={devices=[4,1]<=[4]}",
     None),
    ("a manual region with a collective",
     'x = f32[8,6] iota(), iota_dimension=0\n s = f32[8,6] custom-call(x), custom_call_target="Sharding", sharding={devices=[2,2]<=[4]}\n'
     'l = f32[4,3] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}\n'
     "r = f32[4,3] all-reduce(l), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add\n"
     'ROOT f = f32[8,6] custom-call(r), custom_call_target="SPMDShardToFullShape", sharding={devices=[2,2]<=[4]}',
     MANUAL),
    ("results cut by a transposed grid",
     "x = f32[4,8] iota(), iota_dimension=1\n ROOT y = f32[4,8] add(x, x), sharding={devices=[2,2]<=[2,2]T(1,0)}", None),
    ("a product over all partitions",
     "x = f32[8] iota(), iota_dimension=0\n o = f32[] constant(1)\n ob = f32[8] broadcast(o), dimensions={}\n xs = f32[8] add(x, ob)\n"
     "ROOT p = f32[] reduce(xs, o), dimensions={0}, to_apply=mul", None),
]


def run(text, devices):
    with tempfile.TemporaryDirectory() as tmp:
        path = f"{tmp}/p.hlo"
        with open(path, "w") as f:
            f.write(text)
        done = subprocess.run([WEFT, "run", path, "--devices", str(devices), "--output-dir", tmp, "--quiet"],
                              capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return [np.load(f"{tmp}/result_{i}.npy") for i in range(devices)]


def grid_of(text):
    """The devices of the root's sharding in tile order."""
    m = re.search(r"ROOT[^\n]*sharding=\{devices=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if not m:
        return None
    reshape = [int(v) for v in m[2].split(",")]
    ids = np.arange(int(np.prod(reshape))).reshape(reshape)
    if m[3]:
        ids = ids.transpose([int(v) for v in m[3].split(",")])
    return ids.reshape([int(v) for v in m[1].split(",")])


def main():
    print(f"1..{len(CASES)}")
    bad = 0
    for number, (name, body, whole) in enumerate(CASES, 1):
        try:
            got = run(HEAD + body + "\n}\n", 4)
            if whole is None:
                whole = run(re.sub(r", sharding=\{[^}]*\}", "", (HEAD + body + "\n}\n").replace(", num_partitions=4", "")), 1)[0]
            grid = grid_of(body)
            want = [whole] * 4
            for at in np.ndindex(grid.shape) if grid is not None else ():
                cut = tuple(slice(i * (n // g), (i + 1) * (n // g)) for i, g, n in zip(at, grid.shape, whole.shape))
                want[grid[at]] = whole[cut]
            for d in range(4):
                np.testing.assert_allclose(got[d], want[d], rtol=1e-6, err_msg=f"device {d}")
            print(f"ok {number} - {name}")
        except Exception as e:
            bad = 1
            print(f"not ok {number} - {name}")
            for line in str(e).strip().splitlines()[:12]:
                print("#   " + line)
    return bad


sys.exit(main())
