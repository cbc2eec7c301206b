"""Brings Weft's agent to jax.distributed.initialize(), so that a job's secret protects JAX programs too.

jaxlib's client cannot carry a secret.  `install` replaces, for the module jax._src.distributed alone, the three functions with which it
makes the client, the service and the preemption manager; `install_when_imported` does so as soon as that module is there.  Weft's agent
is taken where WEFT_JAX_AGENT says so, and by default where the address is WEFT_COORD_ADDRESS and the job has a secret or TLS.
"""
import importlib.abc
import importlib.util
import logging
import os
import sys

_MODULE = "jax._src.distributed"
logger = logging.getLogger(__name__)


def _library():
    """The plugin that JAX will load."""
    from weft import _pjrt
    import jax._src.xla_bridge as xla_bridge

    named = xla_bridge._get_pjrt_plugin_names_and_library_paths(os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "")).get("weft")
    if named and named.endswith(".json"):
        named = xla_bridge._get_pjrt_plugin_config(named)[0]
    return named or _pjrt.library_path()


def _is_chosen(address):
    """Whether the agent is to be Weft's.  ValueError for a choice that there is not."""
    choice = os.environ.get("WEFT_JAX_AGENT", "")
    if choice not in ("", "weft", "jaxlib"):
        raise ValueError(f'WEFT_JAX_AGENT="{choice}": weft and jaxlib are possible')
    if choice:
        return choice == "weft"
    from jax._src import config

    platforms = (config.jax_platforms.value or "weft").split(",")
    is_protected = os.environ.get("WEFT_COORD_SECRET_FILE") or os.environ.get("WEFT_COORD_TLS_CA")
    if not is_protected or address != os.environ.get("WEFT_COORD_ADDRESS") or "weft" not in platforms:
        return False
    try:
        return bool(_library())
    except FileNotFoundError:  # JAX goes on without Weft, or says where it was looked for
        return False


class _NoService:
    """Process 0 starts none: the job has one already, and jaxlib's would let in whoever reaches its port."""

    def shutdown(self):
        pass


class _StandIn:
    """jaxlib's module as jax._src.distributed sees it."""

    def __init__(self, native, distributed):
        self._native, self._distributed = native, distributed

    def __getattr__(self, name):
        return getattr(self._native, name)

    def get_distributed_runtime_service(self, address, num_nodes, **options):
        if _is_chosen(self._distributed.global_state.coordinator_address):
            return _NoService()
        return self._native.get_distributed_runtime_service(address, num_nodes, **options)

    def get_distributed_runtime_client(self, address, node_id, *, init_timeout=0, heartbeat_timeout=0, **options):
        if not _is_chosen(address):
            return self._native.get_distributed_runtime_client(address, node_id, init_timeout=init_timeout,
                                                               heartbeat_timeout=heartbeat_timeout, **options)
        from weft._agent import Agent

        _take_agents()
        if os.environ.get("WEFT_COORD_HEARTBEAT_TIMEOUT"):
            heartbeat_timeout = 0  # the launcher says what the service has; the agent reads it
        logger.info("process %d joins the job at %s with Weft's agent", node_id, address)
        return Agent(_library(), address, node_id, heartbeat_timeout_s=heartbeat_timeout, init_timeout_s=init_timeout)

    def create_preemption_sync_manager(self):
        from weft._agent import Agent, PreemptionSyncManager

        is_ours = isinstance(self._distributed.global_state.client, Agent)
        return PreemptionSyncManager() if is_ours else self._native.create_preemption_sync_manager()


def _take_agents():
    """jaxlib's functions that make a backend take no other client than jaxlib's own: Weft's plugin gets the agent by its number, and
    XLA's CPU backend beside it is made without a client, so that it has the devices of this process alone."""
    from jaxlib import xla_client
    import jax._src.distributed as distributed
    import jax._src.xla_bridge as xla_bridge
    from weft._agent import Agent

    native, cpu = xla_client.make_c_api_client, xla_bridge._backend_factories.get("cpu")
    if getattr(native, "_takes_agents", False):
        return

    def make_c_api_client(plugin_name, options=None, distributed_client=None, *rest, **others):
        if isinstance(distributed_client, Agent):
            if plugin_name != "weft":
                raise RuntimeError(f"the plugin {plugin_name} needs jaxlib's agent in a job of several processes: set WEFT_JAX_AGENT=jaxlib")
            options, distributed_client = {**(options or {}), "weft_agent": distributed_client.id}, None
        return native(plugin_name, options, distributed_client, *rest, **others)

    def make_cpu_client(*args, **kwargs):
        state = distributed.global_state
        if not isinstance(state.client, Agent):
            return cpu.factory(*args, **kwargs)
        alone = distributed.State()
        alone.process_id, alone.num_processes = state.process_id, state.num_processes
        view = type("DistributedWithoutClient", (), {"global_state": alone})
        xla_bridge.distributed = view  # backends are made under a lock
        try:
            return cpu.factory(*args, **kwargs)
        finally:
            xla_bridge.distributed = distributed

    make_c_api_client._takes_agents = True
    xla_client.make_c_api_client = make_c_api_client
    if cpu:
        import dataclasses

        xla_bridge._backend_factories["cpu"] = dataclasses.replace(cpu, factory=make_cpu_client)


def install():
    """Now; JAX is imported if it was not."""
    import jax._src.distributed as distributed

    if not isinstance(distributed._jax, _StandIn):
        distributed._jax = _StandIn(distributed._jax, distributed)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_and_install(module):
                load(module)
                module._jax = _StandIn(module._jax, module)

            spec.loader.exec_module = load_and_install
        return spec


def install_when_imported():
    """Now if JAX is there, else when it is imported; JAX is not imported for it."""
    if _MODULE in sys.modules:
        install()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
