#!/usr/bin/env python3
"""Runs JAX's own multi-process tests (tests/multiprocess of a JAX checkout) on Weft or XLA:CPU, with Weft's coordination
service or jaxlib's.  Prints one line a test file, of its worst process; exits 1 if one failed.  Needs portpicker.

    tests/jax/upstream_multiprocess.py --jax ~/jax --backend weft --service weft
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", os.path.join(HERE, "../../build")))

# Python imports this by itself at start-up: process 0 then starts our service where it would start jaxlib's.
SITECUSTOMIZE = '''
import os, subprocess
from jaxlib import _jax

class Service:
    def __init__(self, address, tasks, heartbeat_timeout=100, shutdown_timeout=300, recoverable=False):
        self.process = subprocess.Popen(
            [os.environ["WEFT_COMMAND"], "coord", "serve", "--bind", "127.0.0.1:" + address.rsplit(":", 1)[1], "--tasks", str(tasks),
             "--heartbeat-timeout", f"{heartbeat_timeout}s", "--shutdown-timeout", f"{shutdown_timeout}s"]
            + (["--recoverable"] if recoverable else []), stdout=subprocess.PIPE)
        self.process.stdout.readline()  # "listening on ..."

    def shutdown(self):
        self.process.terminate()
        self.process.wait(20)

_jax.get_distributed_runtime_service = Service
'''


def run(args, path, site):
    env = dict(os.environ, WEFT_COMMAND=f"{BUILD}/weft")
    paths = [site] if args.service == "weft" else []
    if args.backend == "weft":
        paths.append(os.path.join(HERE, "../../python"))
        env.update(WEFT_PJRT_PLUGIN=f"{BUILD}/.libs/pjrt_weft.so", JAX_PLATFORMS="weft,cpu")
    else:
        env["JAX_PLATFORMS"] = "cpu"
    env["PYTHONPATH"] = os.pathsep.join(paths)
    with tempfile.TemporaryDirectory() as logs:
        env["TEST_UNDECLARED_OUTPUTS_DIR"] = logs
        command = [args.python, os.path.basename(path), f"--num_processes={args.processes}", "--initialization_timeout=100",
                   "--heartbeat_timeout=60", "--shutdown_timeout=60"]
        try:
            text = subprocess.run(command, env=env, cwd=os.path.dirname(path), capture_output=True, text=True, timeout=args.timeout).stdout
        except subprocess.TimeoutExpired:
            return False, f"no end within {args.timeout} s"
    ends = re.findall(r"^Process \d+, ret: (-?\d+),.*; (.*)$", text, re.M)
    if len(ends) != args.processes:
        return False, "no summary\n" + text[-2000:]
    worst = max(ends, key=lambda end: abs(int(end[0])))
    failures = sorted(set(re.findall(r"^(?:ERROR|FAIL): .*$", text, re.M)))
    return worst[0] == "0", "\n    ".join([worst[1], *failures])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="test files; default: all but TPU's")
    parser.add_argument("--jax", required=True, help="a checkout of JAX, tag jax-v0.10.2")
    parser.add_argument("--backend", choices=["weft", "xla"], default="weft")
    parser.add_argument("--service", choices=["weft", "jaxlib"], default="weft")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a file")
    parser.add_argument("--python", default=os.environ.get("WEFT_PYTHON", sys.executable))
    args = parser.parse_args()
    folder = f"{args.jax}/tests/multiprocess"
    files = [f if os.path.exists(f) else f"{folder}/{f.removesuffix('.py')}.py" for f in args.files]
    files = files or [f for f in sorted(glob.glob(f"{folder}/*_test.py")) if "tpu_" not in f]
    if not files:
        parser.error(f"no tests/multiprocess in {args.jax}")
    failed = 0
    with tempfile.TemporaryDirectory() as site:
        with open(f"{site}/sitecustomize.py", "w") as f:
            f.write(SITECUSTOMIZE)
        for path in files:
            good, text = run(args, os.path.abspath(path), site)
            failed += not good
            print(f"{'ok    ' if good else 'FAILED'} {os.path.basename(path):28} {text}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
