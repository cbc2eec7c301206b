#!/usr/bin/env python3
"""bench/peers.py and the programs of users run a case of each group beside XLA and numpy, in its shortest form: results agree, and both reports are written;
a side that dies or stops is reported, started anew, and ends nothing else.  Needs jaxlib (WEFT_PYTHON) and the built plugin."""
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(HERE, "..", "..", "bench", "peers.py")
BUILD = os.environ.get("WEFT_BUILDDIR", "build")
PYTHON = os.environ.get("WEFT_PYTHON", sys.executable)


def skip_reason():
    if os.environ.get("WEFT_SANITIZED"):
        return "Python cannot load a plugin built with a sanitizer"
    if subprocess.run([PYTHON, "-c", "import jax"], capture_output=True, timeout=120).returncode:
        return "no jaxlib"
    if not os.path.exists(os.path.join(BUILD, ".libs", "pjrt_weft.so")):
        return "no plugin in " + BUILD
    return None


def cases_run_and_agree():
    with tempfile.TemporaryDirectory() as out:
        for word in ("f32 64x64 by 64x64", "f32 3x3 512 to 512", "s8 64x64 by 64x64", "f32 encoder layer, 8x1", "f32 sort 1048576", "f32 Cholesky 256x32x32"):
            args = ["--build", BUILD, "--peers", PYTHON, "--only", "xla", "--only", "numpy", "--rounds", "1", "--seconds", "0.01", "-k", word]
            done = subprocess.run([PYTHON, PEERS, *args, "--markdown", f"{out}/p.md", "--svg", f"{out}/p.svg"], capture_output=True, text=True,
                                  timeout=240)
            assert done.returncode == 0, done.stdout + done.stderr
            with open(f"{out}/p.md") as f:
                rows = [line for line in f if line.startswith("| " + word)]
            assert len(rows) == 1 and rows[0].strip().endswith("agree |"), (word, rows, done.stderr)
            assert os.path.getsize(f"{out}/p.svg") > 0


def programs_of_users_run():
    plugin = os.path.join(BUILD, ".libs", "pjrt_weft.so")
    for script, word in (("jax_programs.py", "wave_stencil"), ("jax_programs_small.py", "quaternion_rotations"), ("users.py", "numpyro_hidden_markov_3")):
        done = subprocess.run([PYTHON, os.path.join(os.path.dirname(PEERS), script), "--rounds", "1", "-k", word], capture_output=True, text=True,
                              timeout=240, env=dict(os.environ, PJRT_NAMES_AND_LIBRARY_PATHS="weft:" + os.path.abspath(plugin)))
        assert done.returncode == 0, done.stderr
        rows = [line for line in done.stdout.splitlines() if line.startswith(f"| {word} |")]
        assert len(rows) == 1 and float(rows[0].split("|")[-2]) < 1e-4, done.stdout


def a_dead_or_silent_side_is_started_anew():
    sys.path.insert(0, os.path.dirname(PEERS))
    import peers
    side = peers.Side("numpy", PYTHON, {})
    with tempfile.TemporaryDirectory() as folder:
        index = next(i for i, c in enumerate(peers.all_cases()) if c.name == "f32 64x64 by 64x64")
        assert "seconds" in side.time(index, 0.01, folder + "/numpy.npy")
        side.process.send_signal(signal.SIGKILL)
        side.process.wait()
        assert "error" in side.time(index, 0.01, folder + "/numpy.npy")
        assert "seconds" in side.time(index, 0.01, folder + "/numpy.npy")
        side.process.send_signal(signal.SIGSTOP)
        assert "no answer" in side.time(index, 0.01, folder + "/numpy.npy", 1)["error"]
        assert "seconds" in side.time(index, 0.01, folder + "/numpy.npy")
    side.end()


def main():
    tests, failed = [cases_run_and_agree, programs_of_users_run, a_dead_or_silent_side_is_started_anew], 0
    reason = skip_reason()
    if reason:
        print(f"1..0 # SKIP {reason}")
        return 0
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {test.__name__}", flush=True)
        except AssertionError as error:
            failed = 1
            print(f"not ok {number} - {test.__name__}\n# " + str(error).replace("\n", "\n# "), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
