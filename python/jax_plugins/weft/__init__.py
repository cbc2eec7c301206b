"""Registers Weft with JAX: `jax.devices("weft")`, or JAX_PLATFORMS=weft.

The library is looked for in $WEFT_PJRT_PLUGIN, beside this file, where `pkg-config weft` says, and in the usual prefixes.
"""
import os
import subprocess


def _candidates():
    if os.environ.get("WEFT_PJRT_PLUGIN"):
        yield os.environ["WEFT_PJRT_PLUGIN"]
    yield os.path.join(os.path.dirname(__file__), "pjrt_weft.so")
    try:
        found = subprocess.run(["pkg-config", "--variable=plugindir", "weft"], capture_output=True, text=True, timeout=10)
        if found.returncode == 0:
            yield os.path.join(found.stdout.strip(), "pjrt_weft.so")
    except (OSError, subprocess.TimeoutExpired):
        pass
    for prefix in ("/usr/local", "/usr"):
        yield os.path.join(prefix, "lib", "weft", "pjrt_weft.so")


def library_path():
    """The plugin's file; raises FileNotFoundError naming where it was looked for."""
    tried = list(_candidates())
    for path in tried:
        if os.path.exists(path):
            return path
    raise FileNotFoundError("pjrt_weft.so is in none of: " + ", ".join(tried) + "; set WEFT_PJRT_PLUGIN to its path")


def initialize():
    """Called by JAX when it looks for plugins."""
    import jax._src.xla_bridge as xla_bridge

    options = {}
    if os.environ.get("WEFT_NUM_DEVICES"):
        options["num_devices"] = int(os.environ["WEFT_NUM_DEVICES"])
    xla_bridge.register_plugin("weft", library_path=library_path(), options=options)
