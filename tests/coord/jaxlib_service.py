"""jaxlib's coordination service as a process: from the first line of standard input to its end."""
import ast
import os
import sys

import jaxlib_common

_jax = jaxlib_common.load()
print('loaded', flush=True)
sys.stdin.readline()

options = ast.literal_eval(sys.argv[1])
address = options['address'] or f'127.0.0.1:{jaxlib_common.free_port()}'
service = _jax.get_distributed_runtime_service(
    address, options['tasks'], heartbeat_timeout=options['hb'], cluster_register_timeout=options['register'],
    shutdown_timeout=options['stop'], recoverable=options['recoverable'])
print('listening on', address, flush=True)
sys.stdin.read()
service.shutdown()
os._exit(0)
