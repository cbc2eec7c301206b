#!/bin/sh
# weft bench collectives --platform cuda on the emulated GPU: devices of one process by peers and by NCCL, and processes
# with a device each.  Every element that a rank receives is right; what cannot be measured is refused.  Prints TAP.
weft=${WEFT_BUILDDIR:-.}/weft
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
export WEFT_CUDA_LIBDIR="${WEFT_BUILDDIR:-.}/tests/gpu/emulator/.libs" WEFT_EMU_DEVICES=4
n=0
result() { # NAME STATUS
  n=$((n + 1))
  if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; sed 's/^/# /' "$tmp/log"; fi
}
bench() { timeout 200 "$weft" bench collectives --platform cuda --scale 0.002 "$@" >"$tmp/log" 2>&1; }

# LINES of operations, and nothing is wrong: 5 operations of 2 sizes, a barrier, and sends of 2 sizes if NCCL does them
is_right() { [ "$(grep -c '^ .* 0$' "$tmp/log")" = "$1" ] && [ "$(grep -c '^ ' "$tmp/log")" = "$1" ] && grep -q '^# devices of cuda' "$tmp/log"; }

for by in peers nccl auto; do
  export WEFT_CUDA_COLLECTIVES=$by
  lines=13
  if [ $by = peers ]; then lines=11; fi
  bench --how devices --ranks 4 --max-bytes 4096 && is_right $lines
  result "devices of one process, $by" $?
done
export WEFT_CUDA_COLLECTIVES=nccl
bench --how shm --ranks 3 --max-bytes 4096 && is_right 13
result "processes with a device each, of which one sends to nobody" $?
WEFT_EMU_NCCL=silent:1@2 WEFT_COLLECTIVE_TIMEOUT=500ms bench --how shm --ranks 2 --max-bytes 64 --ops all-reduce
[ $? = 3 ] && grep -q DEADLINE_EXCEEDED "$tmp/log"
result "a device that hangs ends the measurement" $?
bench --how devices --ranks 5 --max-bytes 64
[ $? != 0 ] && grep -q '5 GPUs are asked for, the driver shows 4' "$tmp/log"
result "more ranks than devices are refused" $?
bench --ops memcpy
[ $? = 2 ] && grep -q 'on the host only' "$tmp/log"
result "copies of the host are refused" $?
echo "1..$n"
