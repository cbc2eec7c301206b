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
less { a.2 = f32[] parameter(0)
 b.2 = f32[] parameter(1)
 ROOT c.2 = pred[] compare(a.2, b.2), direction=LT }
more { a.3 = f32[] parameter(0)
 b.3 = f32[] parameter(1)
 ROOT c.3 = pred[] compare(a.3, b.3), direction=GE }
ENTRY main {
"""
# what the manual region below computes: each row's value, summed over the two tiles of the row
MANUAL = np.repeat(np.arange(8.0, dtype=np.float32)[:, None], 6, 1) * 2


def array(name, shape, tiles=None, iota="[4]"):
    """Numbers 0, 1, 2, ... in that shape, cut by `tiles`."""
    count = int(np.prod(shape))
    dims = ",".join(map(str, shape))
    lines = [f"{name}.i = f32[{count}] iota(), iota_dimension=0", f"{name}.w = f32[{dims}] reshape({name}.i)"]
    cut = f", sharding={{devices=[{','.join(map(str, tiles))}]<={iota}}}" if tiles else ", sharding={replicated}"
    lines.append(f'{name} = f32[{dims}] custom-call({name}.w), custom_call_target="Sharding"{cut}')
    return "\n ".join(lines) + "\n "


ROWS, COLUMNS, BOTH = "sharding={devices=[4,1]<=[4]}", "sharding={devices=[1,4]<=[4]}", "sharding={devices=[2,2]<=[4]}"
ONE = "sharding={devices=[4]<=[4]}"
GATHER = ("offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}")
SCATTER = ("update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add")
INDICES = 'n = s32[4] constant({3,1,0,3})\n n.2 = s32[4] custom-call(n), custom_call_target="Sharding", sharding={devices=[4]<=[4]}\n '
CONV = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
LOOP = """body { t = (s32[], f32[8,6]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 one = s32[] constant(1)
 j = s32[] add(i, one)
 v = f32[8,6] get-tuple-element(t), index=1
 u = f32[8,6] sine(v)
 ROOT r = (s32[], f32[8,6]) tuple(j, u) }
cond { t = (s32[], f32[8,6]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 three = s32[] constant(3)
 ROOT less = pred[] compare(i, three), direction=LT }
"""

# name; body; collectives of the partitioned program (None: any); the whole result (absent: what the same program gives
# without shardings).  Every program starts from iotas, so that no inputs need be cut by hand.
CASES = [
    ("dot over a free dimension", array("x", (8, 6), (4, 1)) + array("w", (6, 3)) +
     f"ROOT d = f32[8,3] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {ROWS}", []),
    ("dot over a batch dimension", array("x", (4, 3, 6), (4, 1, 1)) + array("w", (4, 6, 2), (4, 1, 1)) +
     "ROOT d = f32[4,3,2] dot(x, w), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}, "
     "sharding={devices=[4,1,1]<=[4]}", []),
    ("dot over a contracting dimension: one all-reduce", array("x", (3, 8), (1, 4)) + array("w", (8, 5), (4, 1)) +
     "ROOT d = f32[3,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}", ["all-reduce"]),
    ("dot over a contracting dimension into a cut result: a reduce-scatter", array("x", (8, 8), (1, 4)) + array("w", (8, 5), (4, 1)) +
     f"ROOT d = f32[8,5] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {ROWS}", ["reduce-scatter"]),
    ("dot of a grid: rows by columns", array("x", (8, 6), (2, 1, 2), "[4]").replace("<=[4]", "<=[4] last_tile_dim_replicate") +
     array("w", (6, 4), (1, 2, 2), "[2,2]T(1,0)").replace("T(1,0)", "T(1,0) last_tile_dim_replicate") +
     f"ROOT d = f32[8,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {BOTH}", []),
    ("a small weight is gathered rather than a large activation", array("x", (512, 8), (4, 1)) + array("w", (8, 4), (4, 1)) +
     f"ROOT d = f32[512,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {ROWS}", ["all-gather"]),
    ("a manual region with a collective",
     'x = f32[8,6] iota(), iota_dimension=0\n s = f32[8,6] custom-call(x), custom_call_target="Sharding", sharding={devices=[2,2]<=[4]}\n'
     'l = f32[4,3] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}\n'
     "r = f32[4,3] all-reduce(l), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add\n"
     'ROOT f = f32[8,6] custom-call(r), custom_call_target="SPMDShardToFullShape", sharding={devices=[2,2]<=[4]}', ["all-reduce"],
     MANUAL),
    ("a manual region that leaves an axis free computes a part of it", array("x", (8, 6), (2, 2)) +
     "l = f32[4,6] custom-call(x), custom_call_target=\"SPMDFullToShardShape\", sharding={mesh['a'=2,'b'=2], [{'a'}, {}], manual={'a'}}\n"
     " r = f32[4,6] all-reduce(l), channel_id=1, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=add\n"
     " f = f32[8,6] custom-call(r), custom_call_target=\"SPMDShardToFullShape\", sharding={mesh['a'=2,'b'=2], [{'a'}, {}], manual={'a'}}\n"
     f" ROOT c = f32[8,6] negate(f), {BOTH}", ["all-reduce"],
     -np.tile(np.arange(48, dtype=np.float32).reshape(2, 4, 6).sum(0), (2, 1))),
    ("results cut by a transposed grid",
     "x = f32[4,8] iota(), iota_dimension=1\n ROOT y = f32[4,8] add(x, x), sharding={devices=[2,2]<=[2,2]T(1,0)}", []),
    ("a product over all partitions",
     "x = f32[8] iota(), iota_dimension=0\n o = f32[] constant(1)\n ob = f32[8] broadcast(o), dimensions={}\n xs = f32[8] add(x, ob)\n"
     "ROOT p = f32[] reduce(xs, o), dimensions={0}, to_apply=mul", []),
    ("a sum over a cut dimension", array("x", (8, 4), (4, 1)) +
     "z = f32[] constant(0)\n ROOT p = f32[4] reduce(x, z), dimensions={0}, to_apply=add, sharding={replicated}", ["all-reduce"]),
    ("a sum with another beginning is taken whole", array("x", (8,), (4,)) +
     "z = f32[] constant(5)\n ROOT p = f32[] reduce(x, z), dimensions={0}, to_apply=add, sharding={replicated}", ["all-gather"]),
    ("iota and rows of it", f"ROOT x = f32[8,4] iota(), iota_dimension=0, {ROWS}", []),
    ("a constant", f"ROOT x = f32[4] constant({{1,2,3,5}}), {ONE}", []),
    ("reshape that splits a cut dimension", array("x", (8, 6), (4, 1)) +
     "ROOT y = f32[4,2,6] reshape(x), sharding={devices=[4,1,1]<=[4]}", []),
    ("reshape that splits axes over two dimensions", array("x", (8, 3), (4, 1)) +
     "ROOT y = f32[2,4,3] reshape(x), sharding={devices=[2,2,1]<=[4]}", []),
    ("reshape that merges dimensions", array("x", (4, 2, 3), (4, 1, 1)) + f"ROOT y = f32[8,3] reshape(x), {ROWS}", []),
    ("transpose", array("x", (8, 4), (4, 1)) + f"ROOT y = f32[4,8] transpose(x), dimensions={{1,0}}, {COLUMNS}", []),
    ("a sharding that moves to another dimension: an all-to-all", array("x", (8, 4), (4, 1)) + f"ROOT y = f32[8,4] negate(x), {COLUMNS}",
     ["all-to-all"]),
    ("axes that change places: a permute", array("x", (8,), (4,)) + "ROOT y = f32[8] negate(x), sharding={devices=[4]<=[2,2]T(1,0)}",
     ["collective-permute"]),
    ("slice of a whole dimension", array("x", (8, 6), (4, 1)) + f"ROOT y = f32[8,2] slice(x), slice={{[0:8], [1:5:2]}}, {ROWS}", []),
    ("slice of a cut dimension", array("x", (8, 6), (4, 1)) + "ROOT y = f32[5,6] slice(x), slice={[1:6], [0:6]}, sharding={replicated}", ["all-gather"]),
    ("dynamic-slice and dynamic-update-slice", array("x", (8, 6), (4, 1)) + "z = s32[] constant(0)\n k = s32[] constant(2)\n "
     "y = f32[8,3] dynamic-slice(x, z, k), dynamic_slice_sizes={8,3}\n "
     f"ROOT u = f32[8,6] dynamic-update-slice(x, y, z, z), {ROWS}", []),
    ("concatenate", array("x", (8, 6), (4, 1)) + f"ROOT y = f32[8,12] concatenate(x, x), dimensions={{1}}, {ROWS}", []),
    ("pad", array("x", (8, 3), (4, 1)) + f"z = f32[] constant(7)\n ROOT y = f32[8,6] pad(x, z), padding=0_0x1_2, {ROWS}", []),
    ("reverse", array("x", (8, 3), (4, 1)) + f"ROOT y = f32[8,3] reverse(x), dimensions={{1}}, {ROWS}", []),
    ("reverse of a cut dimension", array("x", (8, 3), (4, 1)) + f"ROOT y = f32[8,3] reverse(x), dimensions={{0}}, {ROWS}", ["collective-permute"]),
    ("sort", array("x", (8, 6), (4, 1)) + f"y = f32[8,6] negate(x)\n ROOT s = f32[8,6] sort(y), dimensions={{1}}, to_apply=less, {ROWS}", []),
    ("gather with cut indices", INDICES + array("x", (8, 6)) + f"ROOT g = f32[4,6] gather(x, n.2), {GATHER}, {ROWS}", []),
    ("gather with cut rows", INDICES.split(" n.2")[0] + " " + array("x", (8, 8), (1, 4)) +
     f"ROOT g = f32[4,8] gather(x, n), {GATHER.replace('1,6', '1,8')}, {COLUMNS}", []),
    ("scatter with cut rows", INDICES.split(" n.2")[0] + " " + array("x", (8, 8), (1, 4)) + array("u", (4, 8), (1, 4)) +
     f"ROOT g = f32[8,8] scatter(x, n, u), {SCATTER}, {COLUMNS}", []),
    ("scatter with cut updates: parts are summed", INDICES + array("x", (8, 6)) + array("u", (4, 6), (4, 1)) +
     f"ROOT g = f32[8,6] scatter(x, n.2, u), {SCATTER}, sharding={{replicated}}", None),
    ("convolution over the batch", array("x", (4, 5, 5, 2), (4, 1, 1, 1)) + array("w", (3, 3, 2, 8)) +
     f"ROOT c = f32[4,5,5,8] convolution(x, w), {CONV}, sharding={{devices=[4,1,1,1]<=[4]}}", []),
    ("convolution over output features", array("x", (4, 5, 5, 2)) + array("w", (3, 3, 2, 8), (1, 1, 1, 4)) +
     f"ROOT c = f32[4,5,5,8] convolution(x, w), {CONV}, sharding={{devices=[1,1,1,4]<=[4]}}", []),
    ("convolution over input features", array("x", (1, 5, 5, 4), (1, 1, 1, 4)) + array("w", (3, 3, 4, 2), (1, 1, 4, 1)) +
     f"ROOT c = f32[1,5,5,2] convolution(x, w), {CONV}, sharding={{replicated}}", ["all-reduce"]),
    ("grouped convolution", array("x", (1, 5, 5, 8), (1, 1, 1, 4)) + array("w", (3, 3, 1, 16), (1, 1, 1, 4)) +
     f"ROOT c = f32[1,5,5,16] convolution(x, w), {CONV}, feature_group_count=8, sharding={{devices=[1,1,1,4]<=[4]}}", []),
    ("convolution over space: a row from each neighbour", array("x", (1, 8, 5, 2), (1, 4, 1, 1)) + array("w", (3, 3, 2, 2)) +
     f"ROOT c = f32[1,8,5,2] convolution(x, w), {CONV}, sharding={{devices=[1,4,1,1]<=[4]}}", ["collective-permute"] * 2),
    ("convolution over two spatial dimensions", array("x", (1, 8, 6, 2), (1, 2, 2, 1)) + array("w", (3, 3, 2, 2)) +
     f"ROOT c = f32[1,8,6,2] convolution(x, w), {CONV}, sharding={{devices=[1,2,2,1]<=[4]}}", ["collective-permute"] * 4),
    ("convolution with strides and dilation over space", array("x", (1, 16, 5, 2), (1, 4, 1, 1)) + array("w", (3, 3, 2, 2)) +
     "ROOT c = f32[1,8,5,2] convolution(x, w), window={size=3x3 stride=2x1 pad=2_1x1_1 rhs_dilate=2x1}, dim_labels=b01f_01io->b01f, "
     "sharding={devices=[1,4,1,1]<=[4]}", ["collective-permute"] * 2),
    ("slice of a cut dimension into a cut one", array("x", (8, 6), (4, 1)) + f"ROOT y = f32[4,6] slice(x), slice={{[2:6], [0:6]}}, {ROWS}",
     ["collective-permute"] * 2),
    ("slice with a stride along a cut dimension", array("x", (16, 6), (4, 1)) + f"ROOT y = f32[8,6] slice(x), slice={{[1:16:2], [0:6]}}, {ROWS}", []),
    ("pad of a cut dimension", array("x", (8, 16), (4, 1)) + f"z = f32[] constant(7)\n ROOT y = f32[12,18] pad(x, z), padding=1_3x0_2, {ROWS}", None),
    ("pad that takes away", array("x", (8, 16), (4, 1)) + f"z = f32[] constant(7)\n ROOT y = f32[8,16] pad(x, z), padding=-1_1x0_0, {ROWS}",
     ["collective-permute"]),
    ("concatenate along a cut dimension", array("x", (8, 16), (4, 1)) + array("v", (4, 16), (4, 1)) +
     f"ROOT y = f32[12,16] concatenate(x, v), dimensions={{0}}, {ROWS}", None),
    ("slices and concatenations of no rows", array("x", (8, 16), (4, 1)) + f"e = f32[0,16] slice(x), slice={{[8:8], [0:16]}}, {ROWS}\n "
     f"ROOT y = f32[8,16] concatenate(e, x), dimensions={{0}}, {ROWS}", None),
    ("windows along a cut dimension", array("x", (8, 6), (4, 1)) + "z = f32[] constant(0)\n "
     f"ROOT y = f32[8,6] reduce-window(x, z), window={{size=3x1 pad=1_1x0_0}}, to_apply=add, {ROWS}", ["collective-permute"] * 2),
    ("windows that start from something else", array("x", (8, 6), (4, 1)) + "z = f32[] constant(100)\n "
     f"ROOT y = f32[4,6] reduce-window(x, z), window={{size=3x1 stride=2x1 pad=0_1x0_0}}, to_apply=add, {ROWS}", None),
    ("a cumulative sum along a cut dimension", array("x", (8, 6), (4, 1)) + "z = f32[] constant(0)\n "
     f"ROOT y = f32[8,6] reduce-window(x, z), window={{size=8x1 pad=7_0x0_0}}, to_apply=add, {ROWS}", ["all-gather"]),
    ("a cumulative sum from the end", array("x", (8, 6), (4, 1)) + "z = f32[] constant(0)\n "
     f"ROOT y = f32[8,6] reduce-window(x, z), window={{size=8x1 pad=0_7x0_0}}, to_apply=add, {ROWS}", ["all-gather"]),
    ("reduce-window", array("x", (8, 6), (4, 1)) + "z = f32[] constant(0)\n "
     f"ROOT y = f32[8,3] reduce-window(x, z), window={{size=1x2 stride=1x2}}, to_apply=add, {ROWS}", []),
    ("dynamic-slice along a cut dimension", array("x", (16, 6), (4, 1)) + "z = s32[] constant(0)\n k = s32[] constant(3)\n "
     "ROOT y = f32[3,6] dynamic-slice(x, k, z), dynamic_slice_sizes={3,6}, sharding={replicated}", ["all-reduce"]),
    ("dynamic-slice past the end", array("x", (16, 6), (4, 1)) + "z = s32[] constant(0)\n k = s32[] constant(99)\n "
     "ROOT y = f32[3,6] dynamic-slice(x, k, z), dynamic_slice_sizes={3,6}, sharding={replicated}", ["all-reduce"]),
    ("dynamic-update-slice along a cut dimension moves nothing", array("x", (16, 6), (4, 1)) + array("u", (3, 6)) +
     f"z = s32[] constant(0)\n k = s32[] constant(6)\n ROOT y = f32[16,6] dynamic-update-slice(x, u, k, z), {ROWS}", []),
    ("dynamic-update-slice before the start", array("x", (16, 6), (4, 1)) + array("u", (3, 6)) +
     f"z = s32[] constant(0)\n k = s32[] constant(-9)\n ROOT y = f32[16,6] dynamic-update-slice(x, u, k, z), {ROWS}", []),
    ("gather from a table whose rows are cut: the owners' rows are added up", INDICES.split(" n.2")[0] + " " + array("x", (64, 6), (4, 1)) +
     f"ROOT g = f32[4,6] gather(x, n), {GATHER}, sharding={{replicated}}", ["all-reduce"]),
    ("gather of rows that are out of range", "n = s32[4] constant({-3,1,99,63})\n " + array("x", (64, 6), (4, 1)) +
     f"ROOT g = f32[4,6] gather(x, n), {GATHER}, sharding={{replicated}}", ["all-reduce"]),
    ("scatter into rows that are cut moves nothing", INDICES.split(" n.2")[0] + " " + array("x", (64, 6), (4, 1)) + array("u", (4, 6)) +
     f"ROOT g = f32[64,6] scatter(x, n, u), {SCATTER}, {ROWS}", []),
    ("scatter of cut updates into cut rows: sums of parts", "i.n = s32[64] iota(), iota_dimension=0\n s = s32[] constant(7)\n "
     "b = s32[64] broadcast(s), dimensions={}\n n = s32[64] and(i.n, b)\n " + array("x", (8, 6), (2, 1, 2)).replace("<=[4]", "<=[4] last_tile_dim_replicate") +
     array("u", (64, 6), (2, 1, 2)).replace("<=[4]", "<=[2,2]T(1,0) last_tile_dim_replicate") +
     f"g = f32[8,6] scatter(x, n, u), {SCATTER}\n ROOT h = f32[8,6] custom-call(g), custom_call_target=\"Sharding\", {BOTH.replace('2,2', '2,1,2')}"
     .replace("<=[4]}", "<=[4] last_tile_dim_replicate}"), None),
    ("the largest and its place along a cut dimension", "pick { a = f32[] parameter(0)\n i = s32[] parameter(1)\n b = f32[] parameter(2)\n "
     "j = s32[] parameter(3)\n g = pred[] compare(a, b), direction=GE\n v = f32[] select(g, a, b)\n w = s32[] select(g, i, j)\n "
     "ROOT t = (f32[], s32[]) tuple(v, w) }\n" + array("x.0", (8, 6), (4, 1)) + "x = f32[8,6] sine(x.0)\n i = s32[8,6] iota(), iota_dimension=0\n "
     "l = f32[] constant(-inf)\n z = s32[] constant(0)\n r = (f32[6], s32[6]) reduce(x, i, l, z), dimensions={0}, to_apply=pick\n "
     "ROOT k = s32[6] get-tuple-element(r), index=1, sharding={replicated}", ["all-gather"] * 2),
    ("select-and-scatter", array("x", (8, 6), (4, 1)) + array("u", (8, 3), (4, 1)) + "z = f32[] constant(0)\n "
     f"ROOT y = f32[8,6] select-and-scatter(x, u, z), window={{size=1x2 stride=1x2}}, select=more, scatter=add, {ROWS}", []),
    ("cholesky and triangular-solve over a batch",
     "i = s32[4,3,3] iota(), iota_dimension=1\n j = s32[4,3,3] iota(), iota_dimension=2\n e = pred[4,3,3] compare(i, j), direction=EQ\n "
     "d = f32[4,3,3] convert(e)\n n.0 = f32[4,3,3] iota(), iota_dimension=0\n o = f32[4,3,3] exponential(n.0)\n a = f32[4,3,3] multiply(d, o)\n "
     "l = f32[4,3,3] cholesky(a), lower=true\n ROOT t = f32[4,3,3] triangular-solve(l, o), left_side=true, lower=true, "
     "transpose_a=NO_TRANSPOSE, sharding={devices=[4,1,1]<=[4]}", []),
    ("a loop that carries tiles", LOOP + array("x", (8, 6), (4, 1)) + "k = s32[] constant(0)\n t = (s32[], f32[8,6]) tuple(k, x)\n "
     f"w = (s32[], f32[8,6]) while(t), body=body, condition=cond\n ROOT y = f32[8,6] get-tuple-element(w), index=1, {ROWS}", []),
    ("branches over tiles", "yes { v = f32[8,6] parameter(0)\n ROOT u = f32[8,6] sine(v) }\n"
     "no { v = f32[8,6] parameter(0)\n ROOT u = f32[8,6] cosine(v) }\n" + array("x", (8, 6), (4, 1)) + "p = pred[] constant(true)\n "
     f"ROOT y = f32[8,6] conditional(p, x, x), true_computation=yes, false_computation=no, {ROWS}", []),
    ("sizes that tiles do not divide", array("x", (7, 6), (4, 1)) + "z = f32[] constant(0)\n y = f32[7,6] sine(x)\n "
     "ROOT p = f32[6] reduce(y, z), dimensions={0}, to_apply=add, sharding={replicated}", []),
]


def program(body, partitions):
    """The program of `body`: the computations at its beginning stand before the entry."""
    head = HEAD if partitions > 1 else HEAD.replace(", num_partitions=4", "")
    at = body.rfind(" }\n") + 3
    if at > 2:
        head, body = head.replace("ENTRY main {", body[:at] + "ENTRY main {"), body[at:]
    text = head + " " + body + "\n}\n"
    return text if partitions > 1 else re.sub(r", sharding=\{[^}\n]*(\{[^}\n]*\}[^}\n]*)*\}", "", text)


def collectives(text):
    """The number of each collective in the partitioned program, by name."""
    with tempfile.NamedTemporaryFile("w", suffix=".hlo") as f:
        f.write(text)
        f.flush()
        done = subprocess.run([WEFT, "inspect", f.name, "--after", "spmd-partitioner"], capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return re.findall(r" (all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute)\(", done.stdout)


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
    for number, (name, body, moves, *whole) in enumerate(CASES, 1):
        try:
            got = run(program(body, 4), 4)
            if not whole:
                whole = [run(program(body, 1), 1)[0]]
            grid = grid_of(body)
            want = whole * 4
            for at in np.ndindex(grid.shape) if grid is not None else ():
                cut = tuple(slice(i * (n // g), (i + 1) * (n // g)) for i, g, n in zip(at, grid.shape, whole[0].shape))
                want[grid[at]] = whole[0][cut]
            for d in range(4):
                np.testing.assert_allclose(got[d], want[d], rtol=1e-5, atol=1e-5, err_msg=f"device {d}")
            found = collectives(program(body, 4))
            assert moves is None or sorted(found) == sorted(moves), f"collectives {found}, expected {moves}"
            print(f"ok {number} - {name}")
        except Exception as e:
            bad = 1
            print(f"not ok {number} - {name}")
            for line in str(e).strip().splitlines()[:12]:
                print("#   " + line)
    return bad


sys.exit(main())
