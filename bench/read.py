#!/usr/bin/env python3
"""What reading StableHLO programs costs Weft and jaxlib, in turns in one run.

    $WEFT_PYTHON bench/read.py [--build build/quickstart] FILE ...

Runs bench/read (`make bench/read`) and bench/read_jaxlib.py on each file.  Times are processor time, the least of several
readings.  Memory is the growth of the resident set at its highest, as a multiple of the file.
"""
import argparse
import os
import re
import subprocess
import sys

import report

HERE = os.path.dirname(os.path.abspath(__file__))
NUMBER = r"\s+([\d.]+|nan)"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout


def weft(build, path):
    """Megabytes, ms to HLO, MB/s to HLO, memory, instructions."""
    found = re.search(rf"{NUMBER} MB  read{NUMBER} ms{NUMBER}x  to HLO{NUMBER} ms{NUMBER} MB/s  memory{NUMBER}x, kept{NUMBER}x  (\d+) ",
                      run(os.path.join(build, "bench/read"), path))
    mb, _, _, ms, rate, memory, _, count = map(float, found.groups())
    return mb, ms, rate, memory, int(count)


def jaxlib(path):
    """ms to read and to convert to an HloModuleProto, memory of reading."""
    found = re.search(rf"read{NUMBER} ms  to HLO{NUMBER} ms .* memory{NUMBER}x", run(sys.executable, os.path.join(HERE, "read_jaxlib.py"), path))
    return tuple(map(float, found.groups()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--build", default="build/quickstart")
    report.add_options(parser)
    args = parser.parse_args()
    table = report.Table("Reading programs, Weft beside jaxlib", ["program", "MB", "HLO instructions", "Weft, to HLO", "MB/s", "jaxlib, to HLO",
                                                                "memory: Weft, jaxlib", "ratio of time"], "ratio of time")
    print("\n".join(table.lines()))
    for path in args.programs:
        (mb, ms, rate, memory, count), (read, convert, theirs) = weft(args.build, path), jaxlib(path)
        table.add(os.path.basename(path), f"{mb:.2f}", count, f"{ms:.2f} ms", f"{rate:.0f}", f"{read + convert:.1f} ms",
                  f"{memory:.1f}x, {theirs:.1f}x", f"{ms / (read + convert):.3f}")
        print(list(table.lines())[-1], flush=True)
    table.note("Processor time, the least of several readings; the whole way from bytes to an HLO module. Memory is the growth of the resident set at "
               "its highest as a multiple of the file: for Weft of the whole way, for jaxlib of reading alone.")
    table.write(args)


if __name__ == "__main__":
    main()
