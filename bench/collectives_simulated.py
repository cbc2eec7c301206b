#!/usr/bin/env python3
"""What every collective algorithm costs on the simulated network, as a page: runs `weft bench collectives --simulate`.

    bench/collectives_simulated.py BUILDDIR [--markdown FILE]
"""
import argparse
import subprocess

import report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    report.add_options(parser)
    args = parser.parse_args()
    done = subprocess.run([f"{args.build}/weft", "bench", "collectives", "--simulate"], check=True, capture_output=True, text=True)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("|")]
    table = report.Table("Collective algorithms on the simulated network", rows[0])
    for row in rows[2:]:
        table.add(*row)
    table.note("The model: 8 ranks a node, 0.5 us and 10 GB/s within it, 2 us and 12.5 GB/s between nodes, one message at a time on a node's "
               "link. Schedules of more than 4096 steps, or 30 million in all, are left out.")
    print("\n".join(table.lines()))
    table.write(args)


if __name__ == "__main__":
    main()
