#!/usr/bin/env python3
"""`weft inspect --flight` after a process of a job was killed: it names that process, whichever it was and whatever it was doing.
Each rank of a random program is killed at a random moment of its run, in shared memory and over libfabric.  Prints TAP.

    $WEFT_BUILDDIR/weft; $WEFT_TEST_SEED: the seed of programs and moments; $WEFT_TEST_NO_FABRIC: shared memory only.
"""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WEFT = os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), "weft")
RANKS = 4
OPERATIONS = {  # of an array f32[64,64]
    "sum": 'all-reduce({}), replica_groups={{{{0,1,2,3}}}}, to_apply=add',
    "turn": 'collective-permute({}), source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}',
    "product": 'dot({0}, {0}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}',
    "sine": 'sine({})',
}


def program(draw):
    """A loop that does not end in time, of random steps, collectives among them."""
    steps, last = [], "a"
    for i, kind in enumerate(["sum"] + draw.choices(list(OPERATIONS), k=draw.randint(2, 6))):
        steps.append(f"  {kind}.{i} = f32[64,64] {OPERATIONS[kind].format(last)}")
        last = f"{kind}.{i}"
    return "\n".join(["HloModule killed, replica_count=4", "add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }",
                      "cond { p = (s32[], f32[64,64]) parameter(0)  i = s32[] get-tuple-element(p), index=0  n = s32[] constant(1000000000)",
                      "  ROOT c = pred[] compare(i, n), direction=LT }",
                      "body { p = (s32[], f32[64,64]) parameter(0)  i = s32[] get-tuple-element(p), index=0  one = s32[] constant(1)",
                      "  j = s32[] add(i, one)  a = f32[64,64] get-tuple-element(p), index=1", *steps,
                      f"  ROOT r = (s32[], f32[64,64]) tuple(j, {last}) }}",
                      "ENTRY main { x = f32[64,64] parameter(0)  z = s32[] constant(0)  t = (s32[], f32[64,64]) tuple(z, x)",
                      "  w = (s32[], f32[64,64]) while(t), condition=cond, body=body  ROOT y = f32[64,64] get-tuple-element(w), index=1 }"])


def inspect(folder):
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("flight-"))
    if len(files) < RANKS:
        return ""
    return subprocess.run([WEFT, "inspect", "--flight", *files], capture_output=True, text=True, timeout=60).stdout


def pids_at_work(folder, job):
    """Process by rank, once all have done a collective of the program."""
    for _ in range(1200):
        pids = {}
        for name in os.listdir(folder):
            if name.startswith("flight-"):
                with open(os.path.join(folder, name), "rb") as file:
                    data = file.read()
                if data.count(b"sum.0") > 2:
                    head = 8 + 4 + 4 + 8 + 8 + 8 + 8  # of coll_flight_header, before rank, size and pid
                    rank, _, pid = (int.from_bytes(data[head + 4 * i:head + 4 * i + 4], "little") for i in range(3))
                    pids[rank] = pid
        if len(pids) == RANKS:
            return pids
        assert job.poll() is None, "the job has ended: " + job.stdout.read()[-2000:]
        time.sleep(0.05)
    raise AssertionError("the processes do not get to work")


def names_the_killed(draw, transport, victim):
    with tempfile.TemporaryDirectory() as folder:
        source, recorders = os.path.join(folder, "program.hlo"), os.path.join(folder, "recorders")
        os.mkdir(recorders)
        with open(source, "w") as file:
            file.write(program(draw))
        env = dict({k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "PMIX_"))}, WEFT_COLLECTIVE_FLIGHT_DIR=recorders,
                   WEFT_COLLECTIVE_TRANSPORT=transport, WEFT_THREADS="1")
        job = subprocess.Popen([WEFT, "launch", "--local", "-n", str(RANKS), "--", WEFT, "run", "--quiet", source], env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            pids = pids_at_work(recorders, job)
            time.sleep(draw.uniform(0, 0.05))
            os.kill(pids[victim], signal.SIGKILL)
            job.communicate(timeout=120)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.communicate()
        said = inspect(recorders)
        top = re.search(r"who went quiet first on top:\n  pid (\d+) on ", said)
        assert top and int(top[1]) == pids[victim], (f"rank {victim}, pid {pids[victim]}", said)
        assert f"rank {victim} of " in said and f"(pid {pids[victim]} on " in said.split("stopped first")[0], said
        assert said.count(" stopped first") == 1, said
        assert ", running" not in said, said  # nobody runs any more
        assert f"rank {victim} had died" in said, said


def main():
    if not shutil.which(WEFT) and not os.path.exists(WEFT):
        return print("1..0 # SKIP no weft command")
    seed = int(os.environ.get("WEFT_TEST_SEED", "1"))
    transports = ["shm"] if os.environ.get("WEFT_TEST_NO_FABRIC") else ["shm", "fabric"]
    cases = [(transport, victim) for transport in transports for victim in range(RANKS)]
    print(f"1..{len(cases)}")
    failed = 0
    for number, (transport, victim) in enumerate(cases, 1):
        try:
            names_the_killed(random.Random(f"{seed} {transport} {victim}"), transport, victim)
            print(f"ok {number} - rank {victim} is killed, {transport}", flush=True)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"not ok {number} - rank {victim} is killed, {transport}\n# " + "\n# ".join(str(error).replace("\\n", "\n").splitlines()), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
