#!/usr/bin/env python3
"""Planned temporary bytes of Weft and of XLA:CPU, compiled only, nothing is run.

    $WEFT_PYTHON bench/plan_vs_xla.py [--weft build/quickstart/weft] PROGRAM.hlo ...

For each program: XLA's temporaries, Weft's by default, and Weft's with XLA's figure as the budget.  Exits 1 if a budget is
not met.  Needs an interpreter with jax 0.10.2.
"""
import argparse
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "xla"))
import oracle
import report


def planned_bytes(weft, program, order):
    text = subprocess.run([weft, "inspect", program, "--memory", "--order", order], capture_output=True, text=True,
                          timeout=600, check=True).stdout
    line = re.search(r"^temporaries .*", text, re.M).group(0)
    return int(re.search(r"(\d+) (?:bytes|B\b)", line).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--weft", default="build/quickstart/weft")
    report.add_options(parser)
    args = parser.parse_args()
    table = report.Table("Temporaries, Weft beside XLA:CPU", ["program", "XLA, bytes", "Weft by default", "Weft in XLA's budget", "ratio by default"],
                         "ratio by default")
    over = 0
    print(f"{'program':46} {'XLA':>10} {'default':>10} {'in budget':>10}  ratio")
    for program in args.programs:
        name = os.path.basename(program).removesuffix(".hlo")[:46]
        try:
            budget = oracle.Program(program).memory()["temp_bytes"]
        except Exception as error:  # XLA's parser or compiler refuses it
            print(f"{name:46} XLA: {str(error).splitlines()[0][:80]}", flush=True)
            continue
        default = planned_bytes(args.weft, program, "topological")
        least = planned_bytes(args.weft, program, f"budget={budget}")
        over += least > budget
        ratio = f"{least / budget:.2f}" if budget else "0" if not least else "inf"
        print(f"{name:46} {budget:10} {default:10} {least:10}  {ratio}{'  over' if least > budget else ''}", flush=True)
        table.add(name, budget, default, least, f"{default / budget:.2f}" if budget else "0" if not default else "inf")
    table.note("Bytes of temporaries as planned. The fourth column is the plan with XLA's figure as its budget (`--memory budget=BYTES`).")
    table.write(args)
    sys.exit(over > 0)


if __name__ == "__main__":
    main()
