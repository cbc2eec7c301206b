#!/usr/bin/env python3
"""Weft's collectives beside Open MPI's and Gloo's, each cell held against its goal, the worst miss first.

    bench/collectives_grid.py BUILDDIR [--ranks 2,4,8] [--max-bytes N] [--rounds N] [--scale X] [--ops LIST] [--markdown FILE]

In a round the implementations take turns; of each cell the round with the lower median (of rank 0, in us) counts.  Goals
(--goals prints them): two ranks of a node, at most 1.2 times Open MPI's shared memory below 64 KiB and 1.0 times from there;
libfabric at most 1.2 times Open MPI over TCP; both at most twice the best peer where there are more ranks than cores.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

import report

HERE = os.path.dirname(os.path.abspath(__file__))
# a line of the peers, and one of `weft bench collectives` below its heading
PEER_LINE = re.compile(r"^(?P<op>\S+)\s+\S+\s+ranks \d+\s+bytes\s+(?P<bytes>\d+)\s+iters\s+\d+\s+p50\s+(?P<us>[\d.]+) us")
WEFT_LINE = re.compile(r"^\s+(?P<bytes>\d+)\s+\d+\s+\S+\s+(?P<op>[a-z-]+)\s+\S+\s+(?P<us>[\d.]+)\s")
PEERS = {"weft-shm": "mpi-shm", "weft-fabric": "mpi-tcp"}


def build(work):
    """The peers that are installed."""
    peers = {}
    for name, command in (("mpi", ["mpicc", "-O2", f"{HERE}/collectives_mpi.c"]),
                          ("gloo", ["c++", "-O2", f"{HERE}/collectives_gloo.cc", "-lgloo", "-lpthread"])):
        try:
            subprocess.run(command + ["-o", f"{work}/{name}"], check=True, capture_output=True)
            peers[name] = f"{work}/{name}"
        except (OSError, subprocess.CalledProcessError):
            print(f"# no {name}: left out", file=sys.stderr)
    return peers


def commands(args, peers, work, ranks, turn):
    """What one round runs, by name: each a list of processes."""
    weft, most, scale = [f"{args.build}/weft", "bench", "collectives", "--ranks", str(ranks), "--max-bytes", str(args.max_bytes),
                         "--scale", str(args.scale)], str(args.max_bytes), str(args.scale)
    if args.ops:
        weft += ["--ops", args.ops]
    mpi = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), "--mca", "btl_base_warn_component_unused", "0",
           "--mca", "pml", "ob1", "--mca", "btl"]
    found = {f"weft-{how}": [weft + ["--how", how]] for how in ("devices", "shm", "fabric")}
    if "mpi" in peers:
        found["mpi-shm"] = [mpi + ["vader,self", peers["mpi"], "mpi-shm", most, scale, args.ops]]
        found["mpi-tcp"] = [mpi + ["tcp,self", peers["mpi"], "mpi-tcp", most, scale, args.ops]]
    if "gloo" in peers:
        store = f"{work}/store-{ranks}-{turn}"
        os.mkdir(store)
        found["gloo-tcp"] = [[peers["gloo"], str(i), str(ranks), store, str(min(args.max_bytes, args.gloo_bytes)), scale]
                             for i in range(ranks)]
    return {name: c for name, c in found.items() if name in args.only.split(",")} if args.only else found


def measure(args, peers, work):
    best = {}
    for ranks in map(int, args.ranks.split(",")):
        for turn in range(args.rounds):
            for name, processes in commands(args, peers, work, ranks, turn).items():
                running = [subprocess.Popen(p, stdout=subprocess.PIPE, text=True) for p in processes]
                for text in [p.communicate(timeout=1800)[0] for p in running]:
                    for line in filter(None, (WEFT_LINE.match(x) or PEER_LINE.match(x) for x in text.splitlines())):
                        cell = (line["op"], ranks, int(line["bytes"]), name)
                        best[cell] = min(best.get(cell, float("inf")), float(line["us"]))
                if any(p.returncode for p in running):
                    print(f"# {name} with {ranks} ranks failed", file=sys.stderr)
    return best


def goal(name, ranks, size, cores):
    if ranks > cores:
        return 2.0
    return 1.0 if name == "weft-shm" and size >= 65536 else 1.2


def us(figure):
    return "" if figure is None else f"{figure:.2f}" if figure < 10 else f"{figure:.0f}"


def show(best, args):
    cores, misses = len(os.sched_getaffinity(0)), []
    names = [n for n in ("weft-devices", "weft-shm", "mpi-shm", "weft-fabric", "mpi-tcp", "gloo-tcp") if any(c[3] == n for c in best)]
    rows = sorted({c[:3] for c in best}, key=lambda c: (c[1], ["all-r", "all-g", "reduc", "all-t", "broad", "send", "barri"].index(c[0][:5]), c[2]))
    table = report.Table("Collectives beside Open MPI and Gloo, p50 in us", ["operation", *names, "worst of its goal"], plot="worst of its goal")
    print("  ".join(f"{t:>{w}}" for t, w in [("operation", 15), ("ranks", 5), ("bytes", 9)] + [(n, 12) for n in names]))
    for kind, ranks, size in rows:
        figures = [us(best.get((kind, ranks, size, n))) for n in names]
        print("  ".join([f"{kind:>15}", f"{ranks:5}", f"{size:9}"] + [f"{f:>12}" for f in figures]))
        worst = 0.0
        for mine, peer in PEERS.items():
            a, b = best.get((kind, ranks, size, mine)), best.get((kind, ranks, size, peer))
            if not a or not b:
                continue
            of_goal = a / b / goal(mine, ranks, size, cores)
            worst = max(worst, of_goal)
            if of_goal > 1:
                misses.append((of_goal, mine, peer, kind, ranks, size, a, b))
        table.add(f"{kind}, {size} B, {ranks} ranks", *figures, f"{worst:.2f}" if worst else "")
    found = [f"{kind} {size} B, {ranks} ranks: {mine} {us(a)} us, {peer} {us(b)} us ({a / b:.2f}, goal {goal(mine, ranks, size, cores)})"
             for _, mine, peer, kind, ranks, size, a, b in sorted(misses, reverse=True)]
    print(f"\n{len(found)} cells miss their goal, the worst first", *found, sep="\n  ")
    table.note(f"f32; bytes: the whole vector, of all-gather the result. `send`: ranks send to each other in pairs. {len(found)} cells miss their "
               "goal (the head of the script has the goals)" + (", the worst first:" if found else "."))
    if found:
        table.note("\n".join(f"- {text}" for text in found))
    table.write(args)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--max-bytes", type=int, default=64 << 20)
    parser.add_argument("--gloo-bytes", type=int, default=1 << 20, help="Gloo stops there")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of iterations")
    parser.add_argument("--ops", default="", help="all-reduce,... (default: all)")
    parser.add_argument("--only", default="", help="weft-shm,mpi-shm,... (default: all)")
    report.add_options(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        show(measure(args, build(work), work), args)


if __name__ == "__main__":
    main()
