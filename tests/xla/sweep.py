"""HLO and StableHLO texts on Weft and on XLA:CPU (jaxlib), the same inputs: what differs, and what XLA takes and Weft refuses.

sweep.py [--done FILE] TEXT.hlo TEXT.mlir...     $WEFT_BUILDDIR/weft; with --done a verdict a line is added there, and texts it has
                                                 are left out

For texts from anywhere (XLA's own tests have some ten thousand: extract.py).  Left out: what talks to other devices or the host,
programs of several partitions, sizes past LARGEST elements, sizes that are unknown, tokens and bounded arrays as results, bitcasts and
reshapes with an inferred_dimension (jaxlib drops the layouts and the dimension that they depend on), loops that do not end, and what
jaxlib refuses.  A text that ends jaxlib's process, or that it has not done in PATIENCE, is one that it refuses.  Floats that differ
are the same if Weft's are about as near to the program in wider types as XLA's (oracle.judge).  Not run by make check."""
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
LARGEST = 1 << 22
JUDGED = ("float16", "bfloat16", "float32")
PATIENCE = 60  # seconds for a text
APART = re.compile(r"\b(all-reduce|all-gather|all-to-all|reduce-scatter|collective-\w+|send|recv|infeed|outfeed|custom-call|rng|"
                   r"rng-get-and-update-state|bitcast)(-start)?\(|"
                   r"\b(?:stablehlo|mhlo)\.(all_\w+|reduce_scatter|collective_\w+|send|recv|infeed|outfeed|custom_call|rng|bitcast)\b|"
                   r"tensor<[^>]*\?[^>]*>")


def size_of(text):
    largest = 0
    for dims in re.findall(r"\w\[(?:<=)?(\d+(?:,(?:<=)?\d+)*)\]", text) + re.findall(r"tensor<(\d+(?:x\d+)*)x", text):
        n = 1
        for d in dims.replace("<=", "").replace("x", ",").split(","):
            n *= int(d)
        largest = max(largest, n)
    return largest


def verdict(path):
    import numpy as np
    import oracle
    with open(path, encoding="utf-8") as f:
        text = f.read()
    apart = APART.search(text)
    bounded = re.search(r"ROOT [^\n]*(<=\d|token\[\])|!(?:stablehlo|mhlo)\.token", text)
    parts = re.search(r"(num_partitions ?= ?(?!1\b)|inferred_dimension)", text)
    if apart or parts or bounded or size_of(text) > LARGEST:
        found = apart or parts or bounded
        return "left out: " + ((found[1] or found[0]).replace("\n", " ") if found else "large")
    try:
        program = oracle.Program(path)
    except Exception as error:  # whatever jaxlib says
        return "XLA refuses: " + str(error).split("\n", 1)[0][:160]
    with tempfile.TemporaryDirectory(prefix="weft-sweep-") as folder:
        command = [os.path.join(os.environ["WEFT_BUILDDIR"], "weft"), "run", path, "--quiet", "--save-inputs", folder, "--output-dir", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
        except subprocess.TimeoutExpired:
            return "left out: no end"
        if done.returncode:
            return "WEFT REFUSES: " + " ".join((done.stderr + done.stdout).split())[:300]
        types = [oracle.leaf_dtype(s) for s in oracle.flat_shapes(program.shape.parameter_shapes())]
        arrays = [oracle.load_npy(f"{folder}/input_{i}.npy", t) for i, t in enumerate(types)]
        try:
            results = program.run(program.put(arrays))
        except Exception as error:
            return "XLA refuses: " + str(error).split("\n", 1)[0][:160]
        wrong, kind = "", ""
        for i, result in enumerate(results):
            want = np.asarray(result)
            os.makedirs(f"{folder}/xla", exist_ok=True)
            np.save(f"{folder}/xla/result_{i}.npy", want)
            bad = oracle.compare(oracle.load_npy(f"{folder}/result_{i}.npy", want.dtype), want)
            if bad and (not wrong or kind in JUDGED):  # a difference of another kind counts more, since no tolerance explains it
                wrong, kind = bad.replace("elements", f"of result {i}"), want.dtype.name
        if wrong and kind in JUDGED and path.endswith(".hlo"):
            ours, theirs = oracle.judge(path, folder, folder, folder + "/xla")
            return f"same, ours {ours:.2g} and XLA's {theirs:.2g} from wider types" if ours <= 1.2 * theirs < float("inf") else f"DIFFERS: {wrong}"
    return f"DIFFERS: {wrong}" if wrong else "same"


def work(paths):
    for path in paths:
        signal.alarm(PATIENCE)  # ends the process: jaxlib cannot be told to stop
        try:
            print(path, verdict(path), flush=True)
        except Exception as error:
            print(path, f"DIFFERS: {type(error).__name__} {error}".replace("\n", " ")[:300], flush=True)


def main():
    args = sys.argv[1:]
    if args[:1] == ["--work"]:
        work(args[1:])
        return
    log = args[1] if args[:1] == ["--done"] else os.devnull
    paths, counts = args[2:] if args[:1] == ["--done"] else args, collections.Counter()
    with open(log, "a+", encoding="utf-8") as done:
        done.seek(0)
        known = {line.split(" ", 1)[0] for line in done}
        left = [p for p in paths if p not in known]
        while left:
            child = subprocess.Popen([sys.executable, __file__, "--work", *left[:200]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     text=True)
            taken = 0
            for line in child.stdout:
                if not line.startswith(left[taken] + " "):
                    continue  # jaxlib talks
                taken += 1
                said = line.split(" ", 1)[1].strip()
                counts[said.split(":")[0]] += 1
                done.write(line)
                done.flush()
                if said.startswith(("WEFT", "DIFF")):
                    print(line, end="", flush=True)
                if taken == len(left):
                    break
            if child.wait() and taken < len(left):
                done.write(f"{left[taken]} XLA refuses: its process ends\n")
                counts["XLA refuses"] += 1
                taken += 1
            left = left[taken:]
    print("# " + ", ".join(f"{n} {what}" for what, n in counts.most_common()))


main()
