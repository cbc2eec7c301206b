#!/usr/bin/env python3
"""JAX's own tests on XLA:CPU and on Weft, and the table of passes and differences.

    upstream.py --jax DIR [file...]        DIR is a checkout of JAX (tag jax-v0.10.2), never part of this tree; any folder with
                                           tests of JAX's kind in DIR/tests does (optax's, rlax's, ...)

Files are names below DIR/tests, with or without `.py` ("lax_test", "lax_numpy_*", "pallas/ops_test"); without any, the list of issue 6.
Each file runs in worker processes of its own; a worker that crashes or hangs loses one test and is started again behind it.
By default XLA runs only what did not pass on Weft (what passes on Weft is taken to pass on XLA); --full runs all on both.
XLA's results are kept in --cache by file, version and settings; a second run costs Weft's time only.
"""
import argparse
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.join(HERE, "..", "..")
FILES = ["fft_test", "layout_test", "memories_test", "array_test", "python_callback_test", "random_test", "nn_test", "linalg_test",
         "lax_control_flow_test", "api_test", "lax_test", "lax_numpy_test"]
PASSED, SKIPPED, FAILED, CRASHED = "passed", "skipped", "failed", "crashed"


# -- a worker: one process that runs some tests of one file ----------------------------------------------------------------
class Recorder:
    """A pytest plugin: chooses this worker's tests, and appends a line of JSON at the start and end of each."""

    def __init__(self, spec):
        self.spec, self.out, self.first = spec, open(spec["out"], "a", buffering=1), {}

    def say(self, test, outcome, error=""):
        self.out.write(json.dumps([test, outcome, error, round(time.time() - self.started, 2)]) + "\n")

    def pytest_collection_modifyitems(self, items):
        only, done = self.spec["only"], set(self.spec["done"])
        mine = [i for i in items[self.spec["shard"]::self.spec["shards"]] if i.nodeid not in done] if only is None else \
            [i for i in items if i.nodeid in only and i.nodeid not in done]
        items[:] = mine

    def pytest_collectreport(self, report):
        if report.failed or report.skipped:
            self.started = time.time()
            self.say(f"{report.nodeid} (collection)", FAILED if report.failed else SKIPPED, first_error(report))

    def pytest_runtest_logstart(self, nodeid):
        import faulthandler
        self.started = time.time()
        self.say(nodeid, "started")
        faulthandler.dump_traceback_later(self.spec["timeout"], exit=True)

    def pytest_runtest_logreport(self, report):
        worst = self.first.setdefault(report.nodeid, [PASSED, ""])
        if report.failed and worst[0] != FAILED:
            worst[:] = [FAILED, first_error(report)]
        elif report.skipped and worst[0] == PASSED and not hasattr(report, "context"):  # a skipped subtest skips no test
            worst[:] = [SKIPPED, first_error(report)]

    def pytest_runtest_logfinish(self, nodeid):
        import faulthandler
        faulthandler.cancel_dump_traceback_later()
        self.say(nodeid, *self.first.pop(nodeid, [PASSED, ""]))


def first_error(report):
    """The most useful line of the error: the first line of the exception itself."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = [line for line in (crash.message if crash else str(report.longrepr)).splitlines() if line.strip()]
    return " ".join(lines[:6])[:600] if lines else ""


def lend_test_modules(checkout):
    """Modules that only tests use (hypothesis_test_util, pallas_test_util) are in the checkout, not in the installed package."""
    import jax._src.pallas
    for package in (jax._src, jax._src.pallas):
        package.__path__.append(os.path.join(checkout, *package.__name__.split(".")))


def work(spec_path):
    import pytest
    with open(spec_path) as f:
        spec = json.load(f)
    lend_test_modules(spec["jax"])
    test = os.path.join(spec["jax"], "tests", spec["file"] + ".py")
    settings = os.path.join(spec["jax"], "pyproject.toml")
    args = ["-q", "--no-header", "--tb=short", "-p", "no:faulthandler", "-p", "no:cacheprovider", "--rootdir", spec["jax"],
            "-c", settings if os.path.exists(settings) else os.devnull, test]
    return pytest.main(args, plugins=[Recorder(spec)])


# -- the parent ------------------------------------------------------------------------------------------------------------
def environment(args, on):
    env = dict(os.environ, JAX_NUM_GENERATED_CASES=str(args.cases), JAX_SKIP_SLOW_TESTS="true", JAX_ENABLE_X64=str(int(args.x64)),
               PY_COLORS="0", TF_CPP_MIN_LOG_LEVEL="3", PYTHONDONTWRITEBYTECODE="1")
    if args.devices > 1:  # otherwise a test file may ask for more (jax_num_cpu_devices)
        env["XLA_FLAGS"] = f"{env.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={args.devices}".strip()
        env["WEFT_NUM_DEVICES"] = str(args.devices)
    if on == "XLA":
        env["JAX_PLATFORMS"] = "cpu"
        return env
    env.update(JAX_PLATFORMS="weft,cpu", WEFT_PJRT_PLUGIN=args.plugin)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.join(TREE, "python"), env.get("PYTHONPATH")]))
    return env


def tail(path, size=4000):
    with open(path, "rb") as f:
        f.seek(max(0, os.path.getsize(path) - size))
        return f.read().decode(errors="replace")


def why_it_died(code, log):
    text = tail(log)
    if "Timeout (" in text:
        return "time limit"
    signs = [line for line in text.splitlines() if "Check failed" in line or "Assertion" in line or "terminate called" in line]
    return f"worker ended with {code}" + (f": {signs[-1][:200]}" if signs else "")


def run_shard(args, on, name, shard, only=None):
    """{test: [outcome, error, seconds]} of one shard; starts workers until every test has its line."""
    folder = tempfile.mkdtemp(prefix=f"{flat(name)}-{on}-{shard}-", dir=args.work)
    spec = {"jax": args.jax, "file": name, "out": os.path.join(folder, "out.jsonl"), "shard": shard, "shards": args.shards,
            "only": only, "done": [], "timeout": args.timeout}
    spec_path, log = os.path.join(folder, "spec.json"), os.path.join(folder, "log")
    open(spec["out"], "w").close()
    results = {}
    while True:
        with open(spec_path, "w") as f:
            json.dump(dict(spec, done=list(results)), f)
        before = len(results)
        with open(log, "w") as f:
            code = subprocess.run([args.python, os.path.abspath(__file__), "--worker", spec_path], cwd=folder, env=environment(args, on),
                                  stdin=subprocess.DEVNULL, stdout=f, stderr=f).returncode
        running = None
        with open(spec["out"]) as f:
            for line in f:
                test, outcome, error, seconds = json.loads(line)
                if outcome == "started":
                    running = test
                else:
                    results[test] = [outcome, error, seconds]
                    running = None
        if running:
            results[running] = [CRASHED, why_it_died(code, log), 0]
        elif code not in (0, 1, 2, 5) and len(results) == before:
            results[f"{name} (worker)"] = [CRASHED, why_it_died(code, log), 0]
            return results
        else:
            return results


def flat(name):
    """A test file's name as part of a file's name."""
    return name.replace(os.sep, "-")


def digest(args, name):
    with open(os.path.join(args.jax, "tests", name + ".py"), "rb") as f:
        data = f.read()
    return hashlib.sha256(data + json.dumps([args.version, args.cases, args.x64, args.devices]).encode()).hexdigest()[:16]


class Cache:
    """XLA's results of one file, on disk."""

    def __init__(self, args, name):
        self.path = os.path.join(args.cache, f"{flat(name)}-{digest(args, name)}.json")
        try:
            with open(self.path) as f:
                kept = json.load(f)
        except (OSError, ValueError):
            kept = {"complete": False, "results": {}}
        self.complete, self.results = kept["complete"], kept["results"]

    def add(self, results, complete):
        self.results.update(results)
        self.complete = self.complete or complete
        with open(self.path + ".new", "w") as f:
            json.dump({"complete": self.complete, "results": self.results}, f)
        os.replace(self.path + ".new", self.path)


def run_file(args, pool, name):
    """(name, Weft's results, XLA's results) of one file."""
    def everywhere(on):
        merged = {}
        for part in [pool.submit(run_shard, args, on, name, shard) for shard in range(args.shards)]:
            merged.update(part.result())
        return merged

    weft = everywhere("Weft")
    cache = Cache(args, name)
    if args.full and not cache.complete:
        cache.add(everywhere("XLA"), True)
    wanted = [t for t, r in weft.items() if r[0] != PASSED and t not in cache.results]
    if wanted and not cache.complete:
        cache.add(pool.submit(run_shard, args, "XLA", name, 0, wanted).result(), False)
    return weft, cache.results if cache.complete else {t: cache.results.get(t, r) if r[0] != PASSED else r for t, r in weft.items()}


def passes(results):
    return sum(r[0] == PASSED for r in results.values())


def differences(weft, xla):
    missing = [SKIPPED, "not run on Weft", 0]
    return {t: weft.get(t, missing) for t, r in xla.items() if r[0] == PASSED and weft.get(t, missing)[0] != PASSED}


def unknown(weft, xla):
    """Tests that crashed, hung or could not be collected on both platforms, so that they compare nothing."""
    return {t: r for t, r in weft.items() if r[0] == CRASHED and xla.get(t, r)[0] == CRASHED}


def short(test):
    return test.split("::", 1)[-1]


def table(args, done):
    """The results as Markdown."""
    lines = [f"Made by `{args.command}` ({args.version}).", "",
             "| file | passes on XLA:CPU | of these on Weft | ratio | not run on both (skipped) | Weft's time |", "|---|---|---|---|---|---|"]
    total, good = 0, 0
    for name, (weft, xla, seconds) in sorted(done.items()):
        want, lost = passes(xla), len(differences(weft, xla))
        total, good = total + want, good + want - lost
        lines.append(f"| {name} | {want} | {want - lost} | {(want - lost) / max(want, 1):.2%} | "
                     f"{sum(r[0] == SKIPPED for r in xla.values())} | {seconds:.0f} s |")
    lines += [f"| **all** | {total} | {good} | {good / max(total, 1):.2%} | | |", ""]
    for name, (weft, xla, _) in sorted(done.items()):
        lost = [(t, r[0], r[1]) for t, r in sorted(differences(weft, xla).items())]
        lost += [(t, "crashed on both", r[1]) for t, r in sorted(unknown(weft, xla).items())]
        if lost:
            lines += [f"### {name}", ""] + [f"- `{short(t)}`: {what}: {' '.join(why.split())[:args.width]}" for t, what, why in lost] + [""]
    return "\n".join(lines)


def arguments():
    cores = len(os.sched_getaffinity(0))
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="*", metavar="file", help="test files, patterns allowed")
    p.add_argument("--jax", required=True, metavar="DIR", help="checkout of JAX")
    p.add_argument("--plugin", default=os.environ.get("WEFT_PJRT_PLUGIN") or os.path.join(TREE, "build", ".libs", "pjrt_weft.so"), help="pjrt_weft.so (default: %(default)s)")
    p.add_argument("--python", default=os.environ.get("WEFT_PYTHON", sys.executable), help="interpreter with jax, pytest, absl (default: $WEFT_PYTHON)")
    p.add_argument("--devices", type=int, default=1, choices=(1, 8), help="devices of each platform (default: 1)")
    p.add_argument("--jobs", type=int, default=cores, help=f"processes at a time (default: {cores}, the usable cores)")
    p.add_argument("--shards", type=int, help="processes a file is split over (default: --jobs)")
    p.add_argument("--timeout", type=float, default=120, metavar="S", help="time limit of one test (default: 120 s)")
    p.add_argument("--cases", type=int, default=10, metavar="N", help="JAX_NUM_GENERATED_CASES (default: 10, as upstream's CI)")
    p.add_argument("--x64", action="store_true", help="JAX_ENABLE_X64=1; upstream's CI runs both")
    p.add_argument("--full", action="store_true", help="run all tests on XLA too, not only those that did not pass on Weft")
    p.add_argument("--only", metavar="FILE", help="run only the tests named in FILE (lines of file::Class::test), for a second look")
    p.add_argument("--cache", default=os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "weft-upstream"),
                   metavar="DIR", help="where XLA's results are kept (default: %(default)s)")
    p.add_argument("--out", metavar="FILE.md", help="write the table there as well")
    p.add_argument("--results", metavar="FILE.json", help="write every test's outcome on Weft there")
    p.add_argument("--width", type=int, default=160, help="characters of an error in the table (default: 160)")
    args = p.parse_args()
    args.jax, args.plugin = os.path.abspath(args.jax), os.path.abspath(args.plugin)
    args.shards = args.shards or args.jobs
    if not os.path.exists(args.plugin):
        p.error(f"no plugin at {args.plugin}")
    tests = os.path.join(args.jax, "tests")
    have = sorted(os.path.relpath(os.path.join(folder, f), tests)[:-3] for folder, _, names in os.walk(tests) for f in names if fnmatch.fnmatch(f, "*_test.py") or fnmatch.fnmatch(f, "test_*.py"))
    chosen = [n for pattern in (args.files or FILES) for n in have if fnmatch.fnmatch(n, pattern[:-3] if pattern.endswith(".py") else pattern)]
    if not chosen:
        p.error("no such test file in " + tests)
    args.files = list(dict.fromkeys(chosen))
    args.version = subprocess.run([args.python, "-c", "import jax, jaxlib; print('jax', jax.__version__, 'jaxlib', jaxlib.__version__)"], cwd="/",
                                  capture_output=True, text=True, check=True).stdout.strip()
    args.command = " ".join(["tests/jax/upstream.py"] + sys.argv[1:])
    os.makedirs(args.cache, exist_ok=True)
    return args


def main():
    args = arguments()
    done, lock = {}, threading.Lock()
    with tempfile.TemporaryDirectory(prefix="weft-upstream-") as args.work, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, concurrent.futures.ThreadPoolExecutor(2) as files:  # two files overlap
        def one(name):
            start = time.time()
            weft, xla = run_file(args, pool, name)
            with lock:
                done[name] = (weft, xla, sum(r[2] for r in weft.values()))
                print(f"{name}: {passes(xla)} pass on XLA, {len(differences(weft, xla))} of these do not on Weft ({time.time() - start:.0f} s)",
                      file=sys.stderr, flush=True)
        for result in [files.submit(one, name) for name in args.files]:
            result.result()
    text = table(args, done)
    print(text)
    if args.out:
        with open(args.out, "w") as f:
            f.write(text + "\n")
    if args.results:
        with open(args.results, "w") as f:
            json.dump({name: weft for name, (weft, _, _) in done.items()}, f, indent=0)
    return any(differences(weft, xla) for weft, xla, _ in done.values())


if __name__ == "__main__":
    sys.exit(work(sys.argv[2]) if sys.argv[1:2] == ["--worker"] else main())
