#!/usr/bin/env python3
"""How processes that use JAX on Weft start, are interrupted, fork and end.  Each case is a process of its own.  Prints TAP.

    PJRT plugin: $WEFT_BUILDDIR/.libs/pjrt_weft.so.  Interpreter with jax 0.10.2: $WEFT_PYTHON.
"""
import os
import signal
import subprocess
import sys
import tempfile
import textwrap

PYTHON = os.environ.get("WEFT_PYTHON") or sys.executable
PLUGIN = os.path.abspath(os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), ".libs", "pjrt_weft.so"))
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
LIMIT_S = 400
DEVICES = "import jax; print(jax.local_device_count(), *('weft' in d.client.platform_version for d in [jax.devices()[0], jax.devices('cpu')[0]]))"
LOOP = """
    import jax, jax.numpy as jnp
    x = jnp.ones((300, 300))
    def rounds(n):
        return jax.jit(lambda x: jax.lax.fori_loop(0, n, lambda i, x: jnp.sin(x @ x) * 0.5, x))
"""


def run(code, *args, interrupt=None, **settings):
    """Status and output of a Python process; `interrupt`: the signal that it gets when it has printed a line."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "WEFT_NUM"))}
    env.update(WEFT_PJRT_PLUGIN=PLUGIN, PYTHONPATH=PACKAGE, PYTHONWARNINGS="ignore")
    for name, value in dict({"JAX_PLATFORMS": "weft"}, **settings).items():
        env.pop(name, None) if value is None else env.update({name: value})
    p = subprocess.Popen([PYTHON, "-c", textwrap.dedent(code), *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         start_new_session=True)
    try:
        first = ""
        while interrupt and "ready" not in first:
            line = p.stdout.readline()
            assert line, first
            first += line
        if interrupt:
            p.send_signal(interrupt)
        out = first + p.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        raise AssertionError("it hangs")
    return p.returncode, out


def ends_with(expected, result):
    code, out = result
    assert code == 0 and out.strip().splitlines()[-1:] == [expected], (code, out[-2000:])


def the_count_of_devices_is_what_jax_was_told():
    ends_with("4 True True", run(DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=4"))
    ends_with("3 True True", run(DEVICES, JAX_NUM_CPU_DEVICES="3"))
    ends_with("5 True True", run("import jax; jax.config.update('jax_num_cpu_devices', 5)\n" + DEVICES))


def platforms_come_in_the_order_that_was_asked_for():
    ends_with("1 True False", run(DEVICES, JAX_PLATFORMS="weft,cpu"))
    ends_with("1 False False", run(DEVICES, JAX_PLATFORMS="cpu,weft"))
    ends_with("1 True False", run(DEVICES, JAX_PLATFORMS=None))  # Weft is the default where it is installed
    ends_with("1 False False", run(DEVICES, JAX_PLATFORMS="cpu"))


def the_package_and_the_environment_may_both_name_the_plugin():
    ends_with("2 True True", run(DEVICES, PJRT_NAMES_AND_LIBRARY_PATHS="weft:" + PLUGIN, WEFT_NUM_DEVICES="2"))


def devices_say_that_they_are_wefts():
    code, out = run("""
        import jax
        d = jax.devices()[0]
        print(repr(d), "|", d, "|", d.device_kind, "|", d.client.platform_version.splitlines()[-1].split()[0], "|", d.platform)
    """, JAX_PLATFORMS="weft,cpu")
    assert (code, out) == (0, "WeftDevice(id=0) | weft:0 | Weft CPU | weft | cpu\n"), (code, out)  # and not a word of warning


# A program that tries again does not go on, on XLA:CPU, either.
TWICE = """
    import jax
    for _ in range(2):
        try:
            print(jax.devices())
        except RuntimeError as e:
            print("stopped:", e)
"""


def stops_with(words, **settings):
    code, out = run(TWICE, **settings)
    lines = [line for line in out.splitlines() if line.startswith("stopped:")]
    assert code == 0 and len(lines) == 2 and all(words in line for line in lines) and "Traceback" not in out, (code, out[-2000:])


def what_is_wrong_with_weft_stops_a_program():
    for platforms in (None, "weft", "weft,cpu"):
        stops_with("the plugin is not at /nowhere/pjrt_weft.so", JAX_PLATFORMS=platforms, WEFT_PJRT_PLUGIN="/nowhere/pjrt_weft.so")
    stops_with("invalid ELF header", JAX_PLATFORMS=None, WEFT_PJRT_PLUGIN=os.path.abspath(__file__))
    stops_with('WEFT_THREADS: expected 0..4096, got "-4"', JAX_PLATFORMS=None, WEFT_THREADS="-4")
    stops_with("WEFT_COLLECTIVE_TRANSPORT: expected auto|shm|fabric", JAX_PLATFORMS=None, WEFT_COLLECTIVE_TRANSPORT="avian")
    stops_with('WEFT_NUM_DEVICES: expected an integer, got "two"', JAX_PLATFORMS=None, WEFT_NUM_DEVICES="two")


def weft_that_nobody_asked_for_and_that_is_not_there_is_warned_of():
    nothing = {name: None for name in os.environ if name.startswith("WEFT_")}
    code, out = run("""
        import sys; sys.path.insert(0, sys.argv[1])
        import jax_plugins.weft as weft
        weft.library_path = lambda: (_ for _ in ()).throw(FileNotFoundError("it is nowhere"))
        import jax
        print(jax.devices()[0].client.platform_version)
    """, PACKAGE, **dict(nothing, WEFT_PJRT_PLUGIN=None, JAX_PLATFORMS=None))
    assert code == 0 and "Weft is installed and cannot be used: it is nowhere" in out and out.splitlines()[-1] == "cpu", (code, out)


def callbacks_need_no_other_backend():
    ends_with("[2. 4.]", run("""
        import jax, jax.numpy as jnp, numpy as np
        print(jax.jit(lambda x: jax.pure_callback(lambda a: np.asarray(a) * 2, jax.ShapeDtypeStruct((2,), jnp.float32), x))(jnp.array([1., 2.])))
    """))


def an_interrupt_ends_a_wait_for_a_long_run():
    ends_with("interrupted", run(LOOP + """
    f = rounds(300)
    f(x).block_until_ready()
    try:
        print("ready", flush=True)
        while True:
            f(x).block_until_ready()
    except KeyboardInterrupt:
        print("interrupted")
    """, interrupt=signal.SIGINT))


def the_end_does_not_wait_for_nor_fail_on_work_that_nobody_asked_for():
    ends_with("bye", run(LOOP + """
    g = jax.jit(lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((), jnp.float32), x[0, 0]))
    y = rounds(200)(x)
    z = g(y)
    print("bye")
    """))


def a_pool_of_forked_workers_that_leave_jax_alone_works():
    ends_with("[0, 1, 4] 45.0", run("""
        import jax.numpy as jnp, multiprocessing
        x = jnp.arange(10.)
        print(x.sum(), flush=True)
        def square(i):
            return i * i
        with multiprocessing.get_context("fork").Pool(2) as pool:
            squares = pool.map(square, range(3))
        print(squares, x.sum())
    """))


def a_program_is_found_in_the_cache_by_the_next_process():
    code = """
        import jax, jax.numpy as jnp, sys
        from jax._src import compilation_cache, monitoring
        hits = []
        monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        jax.config.update("jax_compilation_cache_dir", sys.argv[1])
        print(float(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.zeros(7))), len(hits) > 0)
    """
    with tempfile.TemporaryDirectory() as folder:
        ends_with("0.0 False", run(code, folder))
        ends_with("0.0 True", run(code, folder))


def memory_that_is_not_there_is_an_error():
    ends_with("RESOURCE_EXHAUSTED True", run("""
        import jax, jax.numpy as jnp
        try:
            jnp.zeros((1 << 20, 1 << 20)).block_until_ready()
        except jax.errors.JaxRuntimeError as e:
            print(str(e).split(":")[0], "4.0 TiB asked for" in str(e))
    """))


def a_program_without_memory_names_its_largest_buffers():
    """What a user of JAX reads: sizes in TiB, the program, and the largest buffers with operation and source line."""
    ends_with("True", run("""
        import re, jax, jax.numpy as jnp
        held = jnp.ones(1 << 22).block_until_ready()
        def attend(w, x):  # sums down the columns: rows need other rows, so the scores are made as a whole
            h = jnp.tanh(x @ w)
            return jnp.sum(jax.nn.softmax(jnp.cumsum(h @ h.T, 0)) @ h)  # line 6
        try:
            jax.block_until_ready(jax.jit(jax.grad(attend))(jnp.ones((8, 8)), jnp.ones((1 << 21, 8))))
        except jax.errors.JaxRuntimeError as e:
            text = str(e)
        for wanted in (r"^RESOURCE_EXHAUSTED: [0-9.]+ TiB asked for, the machine has [0-9.]+ [GT]iB$",
                       r"^  arrays and programs on device 0 hold (8[0-9]|9[0-9])[.][0-9] MiB, its cache ",
                       r'^  program "jit_attend" needs 64.0 MiB of parameters, 256 B of results and [0-9.]+ TiB of temporaries$',
                       r"^  temporary of 16.0 TiB: f32.2097152,2097152. %dot.*[(]jit[(]attend[)]/.*dot_general, .*:6[)]$"):
            assert re.search(wanted, text, re.M), text
        assert "256 B: " not in text, text
        print(True)
    """))


def main():
    if os.environ.get("WEFT_SANITIZED"):
        return print("1..0 # SKIP Python cannot load a plugin built with a sanitizer")
    if subprocess.run([PYTHON, "-c", "import jax"], capture_output=True).returncode:
        return print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    cases = [f for f in list(globals().values()) if callable(f) and getattr(f, "__module__", "") == __name__ and
             f.__name__ not in ("run", "ends_with", "stops_with", "main")]
    print(f"1..{len(cases)}")
    failed = 0
    for number, case in enumerate(cases, 1):
        try:
            case()
            print(f"ok {number} - {case.__name__}", flush=True)
        except AssertionError as e:
            failed += 1
            print(f"not ok {number} - {case.__name__}\n# " + "\n# ".join(str(e).splitlines()), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
