#!/usr/bin/env python3
"""Weft's agent under jax.distributed: the same programs with it and with jaxlib's, the job's secret, deaths, Ctrl-C.  Prints TAP.

    Plugin and command: of $WEFT_BUILDDIR.  Interpreter with jax: $WEFT_PYTHON.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("WEFT_BUILDDIR", "build"))
PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable
PACKAGE, WEFT, LIMIT_S = os.path.abspath(os.path.join(HERE, "../../python")), f"{BUILD}/weft", 120
ENV = dict(os.environ, WEFT_PJRT_PLUGIN=f"{BUILD}/.libs/pjrt_weft.so", JAX_PLATFORMS="weft,cpu")
for name in ("WEFT_JAX_AGENT", "WEFT_COORD_SECRET_FILE", "PYTHONPATH"):
    ENV.pop(name, None)

EXAMPLES = os.path.abspath(os.path.join(HERE, "../../examples/jax"))

# What the installed package's weft.pth does: the folder becomes one of site-packages.
AS_INSTALLED = f"import runpy, site, sys; site.addsitedir({PACKAGE!r}); del sys.argv[0]; sys.path.insert(0, {EXAMPLES!r}); runpy.run_path(sys.argv[0], run_name='__main__')"


# ---- programs of the processes: this file, run with their names ----

def code_of(function):
    """The canonical code with which it fails."""
    import jax
    try:
        function()
    except jax.errors.JaxRuntimeError as error:
        return str(error).split(":")[0]
    return "OK"


def keys(client, rank, count):
    """What jaxlib's DistributedRuntimeClient offers."""
    if rank == 0:
        client.key_value_set("t/text", "grüße")
        client.key_value_set_bytes("t/bytes", b"\0\1\0")
    assert client.blocking_key_value_get("t/text", 60000) == "grüße"
    assert client.blocking_key_value_get_bytes("t/bytes", 60000) == b"\0\1\0"
    assert client.key_value_try_get("t/text") == "grüße" and client.key_value_try_get_bytes("t/bytes") == b"\0\1\0"
    assert code_of(lambda: client.key_value_try_get("t/none")) == "NOT_FOUND"
    assert code_of(lambda: client.blocking_key_value_get("t/none", 50)) == "DEADLINE_EXCEEDED"
    assert code_of(lambda: client.key_value_set("t/text", "x")) == "ALREADY_EXISTS"
    client.wait_at_barrier("read", 60000)
    client.key_value_set(f"own/{rank}", "a")
    client.key_value_set(f"own/{rank}", "b", allow_overwrite=True)
    client.key_value_increment("sum", rank + 1)
    client.wait_at_barrier("written", 60000)
    assert sorted(client.key_value_dir_get("own")) == [(f"own/{i}", "b") for i in range(count)], client.key_value_dir_get("own")
    assert client.key_value_dir_get_bytes("t/bytes") in ([], [("t/bytes", b"\0\1\0")])  # a key is no directory
    assert client.key_value_increment("sum", 0) == count * (count + 1) // 2
    client.wait_at_barrier("summed", 60000)
    client.key_value_delete(f"own/{rank}")
    client.wait_at_barrier("deleted", 60000)
    assert client.key_value_dir_get("own") == []
    if rank < 2:
        client.wait_at_barrier("two of them", 60000, [0, 1])
    assert code_of(lambda: client.wait_at_barrier(f"alone {rank}", 50)) == "DEADLINE_EXCEEDED"
    live = client.get_live_nodes(list(range(count)))
    assert sorted(live) == list(range(count)) and all(live.values()), live


def arrays(rank, count):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    devices = jax.devices()
    assert jax.process_index() == rank and jax.process_count() == count
    mesh, a = Mesh(np.array(devices), ("x",)), np.arange(2 * len(devices), dtype=np.float32)
    x = jax.make_array_from_callback(a.shape, NamedSharding(mesh, P("x")), lambda i: a[i], dtype=a.dtype)
    assert float(jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, P()))(x)) == a.sum()
    total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))(x)
    np.testing.assert_array_equal(np.asarray(total.addressable_data(0)), a.reshape(-1, 2).sum(0))
    assert multihost_utils.process_allgather(np.float32(rank)).tolist() == list(range(count))
    assert multihost_utils.broadcast_one_to_all(np.float32(rank)) == 0
    multihost_utils.sync_global_devices("here")
    there = NamedSharding(Mesh(np.array(devices[-1:]), ("x",)), P("x"))
    moved = jax.device_put(jax.make_array_from_callback((4,), NamedSharding(Mesh(np.array(devices[:1]), ("x",)), P("x")),
                                                        lambda i: a[:4][i], dtype=a.dtype), there)
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), a[:4])
    with multihost_utils.live_devices(devices) as live:
        assert live == devices, live
    assert multihost_utils.reached_preemption_sync_point(0) is False
    assert [d.process_index for d in jax.local_devices(backend="cpu")] == [rank] * len(jax.local_devices(backend="cpu"))


def program_everything(agent):
    import jax
    from jax._src import distributed

    if "--import" in sys.argv:
        import jax_plugins.weft  # noqa: F401
    jax.distributed.initialize()
    client, rank, count = distributed.global_state.client, jax._src.distributed.global_state.process_id, int(os.environ["WEFT_NUM_PROCESSES"])
    assert type(client).__module__ == {"weft": "weft._agent", "jaxlib": "jaxlib._jax"}[agent], type(client)
    keys(client, rank, count)
    arrays(rank, count)
    if rank == 0:
        status = subprocess.run([WEFT, "coord", "status", os.environ["WEFT_COORD_ADDRESS"], "--json"], capture_output=True, text=True, check=True)
        print("let in by", json.dumps(json.loads(status.stdout)["protection"]), flush=True)
    client.wait_at_barrier("looked", 60000)
    print("done", flush=True)


def program_join():
    import jax
    jax.distributed.initialize(os.environ["WEFT_COORD_ADDRESS"], 1, 0, initialization_timeout=20)
    print("joined", flush=True)


def program_interrupted():
    """Ctrl-C ends a wait at a barrier to which nobody else comes."""
    import jax
    from jax._src import distributed

    jax.distributed.initialize()
    client, rank = distributed.global_state.client, distributed.global_state.process_id
    if rank == 1:
        pid = int(client.blocking_key_value_get("pid", 60000))
        time.sleep(0.3)  # the other process usually waits by this time; if not, the signal comes before the wait, and the end is the same
        os.kill(pid, signal.SIGINT)
        client.blocking_key_value_get("interrupted", 60000)
    else:
        try:
            client.key_value_set("pid", str(os.getpid()))
            client.wait_at_barrier("nobody comes", 600000)
        except KeyboardInterrupt:
            client.key_value_set("interrupted", "yes")
    print("left", flush=True)


# ---- tests ----

def launch(processes, options, *command, **env):
    return subprocess.run([WEFT, "launch", "-n", str(processes), *options, "--", *command], env={**ENV, **env}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)


def installed(*program):
    return [PYTHON, "-c", AS_INSTALLED, *program]


def runs_everywhere(processes, command, devices=2, **env):
    r = launch(processes, ["--devices-per-process", str(devices)], *command, **env)
    assert r.returncode == 0 and r.stdout.count("done") == processes, r.stdout[-3000:]
    return json.loads(r.stdout.split("let in by ")[1].split("\n")[0])


def two_processes_by_the_secret_alone():
    by = runs_everywhere(2, installed(__file__, "everything", "weft"))
    assert by["by_uid"] == by["by_host"] == by["by_anyone"] == 0 and by["by_secret"] >= 3, by


def four_processes():
    runs_everywhere(4, installed(__file__, "everything", "weft"), devices=1)


def the_same_with_jaxlibs_agent():
    by = runs_everywhere(2, installed(__file__, "everything", "jaxlib"), WEFT_JAX_AGENT="jaxlib")
    assert by["by_uid"] >= 2, by


def without_installing_an_import_does():
    """A folder of PYTHONPATH: Python reads no weft.pth there."""
    runs_everywhere(2, [PYTHON, __file__, "everything", "weft", "--import"], PYTHONPATH=PACKAGE)


def another_choice_is_refused():
    r = launch(1, [], *installed(__file__, "join"), WEFT_JAX_AGENT="gloo")
    assert r.returncode and 'WEFT_JAX_AGENT="gloo": weft and jaxlib are possible' in r.stdout, r.stdout[-2000:]


def a_wrong_secret_is_refused():
    with tempfile.TemporaryDirectory() as d:
        for name in ("right", "wrong"):
            with open(os.open(f"{d}/{name}", os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
                f.write(name * 8)
        serve = subprocess.Popen([WEFT, "coord", "serve", "--bind", "127.0.0.1:0", "--tasks", "1"], stdout=subprocess.PIPE, text=True,
                                 env={**ENV, "WEFT_COORD_SECRET_FILE": f"{d}/right"})
        try:
            address = serve.stdout.readline().split()[-1]
            for name in ("wrong", "right"):
                r = subprocess.run(installed(__file__, "join"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
                                   env={**ENV, "WEFT_COORD_SECRET_FILE": f"{d}/{name}", "WEFT_COORD_ADDRESS": address})
                assert ("joined" in r.stdout) == (name == "right") == (r.returncode == 0), r.stdout[-2000:]
                if name == "wrong":
                    assert "JaxRuntimeError: UNAUTHENTICATED" in r.stdout and "DEADLINE" not in r.stdout, r.stdout[-2000:]
        finally:
            serve.kill()
            serve.communicate()


def ctrl_c_ends_a_wait():
    r = launch(2, [], *installed(__file__, "interrupted"))
    assert r.returncode == 0 and r.stdout.count("left") == 2, r.stdout[-3000:]


def example(processes, options, program, *args):
    r = launch(processes, options, *installed(f"{EXAMPLES}/{program}", *args), WEFT_JAX_AGENT="weft")
    assert r.returncode == 0, r.stdout[-3000:]
    return r.stdout


def goes_on_without_the_lost():
    jobs.goes_on_without_the_lost(example)


def goes_on_with_the_one_that_came_back():
    jobs.goes_on_with_the_one_that_came_back(example)


def agrees_on_a_last_step_when_preempted():
    with tempfile.TemporaryDirectory() as d:
        jobs.agrees_on_a_last_step_when_preempted(example, f"{d}/train.npz")


TESTS = (two_processes_by_the_secret_alone, four_processes, the_same_with_jaxlibs_agent, without_installing_an_import_does,
         another_choice_is_refused, a_wrong_secret_is_refused, ctrl_c_ends_a_wait, goes_on_without_the_lost,
         goes_on_with_the_one_that_came_back, agrees_on_a_last_step_when_preempted)

if __name__ == "__main__":
    programs = {"everything": lambda: program_everything(sys.argv[2]), "join": program_join, "interrupted": program_interrupted}
    if len(sys.argv) > 1:
        programs[sys.argv[1]]()
    else:
        import jobs  # not above: the processes of a job read this file from another folder
        sys.exit(jobs.report(PYTHON, TESTS))
