#!/bin/sh
# JAX's jobs that lose a process, get it back, or are preempted, on GPUs of the emulated driver and NCCL: the cases of tests/jax/survive_test.py.  Prints its TAP.
[ -z "$WEFT_SANITIZED" ] || { echo "1..0 # SKIP Python cannot load a plugin built with a sanitizer"; exit 0; }
"${WEFT_PYTHON:-python3}" -c 'import jax' 2>/dev/null || { echo "1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
export WEFT_PLATFORM=cuda WEFT_JAX_NAME=cuda WEFT_EMU_DEVICES=3 WEFT_CUDA_LIBDIR="${WEFT_BUILDDIR:-.}/tests/gpu/emulator/.libs"
export WEFT_TEST_PYTHONPATH="$here/python"
export WEFT_EMU_LEAKS=off # processes are killed, and the interpreter ends without destroying the client
exec timeout 570 "${WEFT_PYTHON:-python3}" "$here/../jax/survive_test.py" "$@"
