#!/bin/sh
# Jobs of several processes on the platform cuda over the emulated driver and NCCL: the cases of tests/coord/run_test.py.
[ -z "$WEFT_SANITIZED" ] || { echo "1..0 # SKIP jobs on the emulated GPU run without sanitizers only; nccl_programs_test runs with them"; exit 0; }
export WEFT_PLATFORM=cuda WEFT_EMU_DEVICES=8 WEFT_CUDA_LIBDIR="${WEFT_BUILDDIR:-.}/tests/gpu/emulator/.libs"
export WEFT_EMU_LEAKS=off # processes are killed
exec timeout 570 "${WEFT_PYTHON:-python3}" "$(dirname "$0")/../coord/run_test.py" "$@"
