"""What the tests against jaxlib share, imported before JAX: goes on in $WEFT_PYTHON, on the CPU, or skips the test where
there is no jax.  WEFT is the command; some functions that call functions, for their call stacks."""
import os
import sys

if os.environ.get("WEFT_PYTHON") and os.environ.get("IN_WEFT_PYTHON") != "1":
    os.environ["IN_WEFT_PYTHON"] = "1"
    os.execv(os.environ["WEFT_PYTHON"], [os.environ["WEFT_PYTHON"]] + sys.argv)
os.environ["JAX_PLATFORMS"] = "cpu"
try:
    import jax
except ImportError:
    print("1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)")
    sys.exit(0)

import jax.numpy as jnp  # noqa: E402

WEFT = os.path.join(os.environ.get("WEFT_BUILDDIR", "build"), "weft")


def inner(x):
    return jnp.sin(x) * 2


def middle(x):
    return inner(x) + inner(x - 1)


@jax.jit
def jitted(x):
    return jnp.tanh(middle(x))


def scoped(x):
    with jax.named_scope("scope"):
        y = middle(x)
    return jitted(y)
