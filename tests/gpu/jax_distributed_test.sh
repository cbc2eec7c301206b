#!/bin/sh
# JAX in two processes of two GPUs each, of the emulated driver and NCCL: the cases of tests/jax/distributed_test.py.  Prints its TAP.
# Transfers between the processes' devices go by NCCL, and where it is not used, through the host.
[ -z "$WEFT_SANITIZED" ] || { echo "1..0 # SKIP Python cannot load a plugin built with a sanitizer"; exit 0; }
"${WEFT_PYTHON:-python3}" -c 'import jax' 2>/dev/null || { echo "1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)"; exit 0; }
export WEFT_PLATFORM=cuda WEFT_JAX_NAME=cuda WEFT_EMU_DEVICES=2 WEFT_CUDA_LIBDIR="${WEFT_BUILDDIR:-.}/tests/gpu/emulator/.libs"
export WEFT_EMU_LEAKS=off # the interpreter ends without destroying the client
exec timeout 570 "${WEFT_PYTHON:-python3}" "$(dirname "$0")/../jax/distributed_test.py" "$@"
