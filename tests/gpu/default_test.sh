#!/bin/sh
# The platform that a build uses by itself: where a GPU is there, cuda in a build of `configure --with-cuda` and cpu in any other one;
# WEFT_PLATFORM decides otherwise.  Without a driver it is cpu, and `weft info` says why there is no GPU.  Prints TAP.
weft=$WEFT_BUILDDIR/weft emulators=$WEFT_BUILDDIR/tests/gpu/emulator/.libs
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset WEFT_PLATFORM
n=0
cat >"$tmp/program.hlo" <<'END'
HloModule program
ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = f32[4] negate(x)
}
END
result() { # NAME STATUS
  n=$((n + 1))
  if [ "$2" = 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; sed 's/^/# /' "$tmp/log"; fi
}
# runs_on PLATFORM LIBDIR [NAME=VALUE]: the program runs, on a GPU or on none
runs_on() {
  env WEFT_CUDA_LIBDIR="$2" WEFT_LOG=gpu:info $3 timeout 120 "$weft" run "$tmp/program.hlo" >"$tmp/log" 2>&1 || return 1
  if grep -q 'device 0 is GPU 0' "$tmp/log"; then [ "$1" = cuda ]; else [ "$1" = cpu ]; fi
}

default=cpu
grep -q '^#define WEFT_CUDA_FIRST 1' "$WEFT_BUILDDIR/config.h" && default=cuda
runs_on $default "$emulators"; result "with a GPU this build uses $default" $?
runs_on cuda "$emulators" WEFT_PLATFORM=cuda; result "WEFT_PLATFORM=cuda asks for the GPU" $?
runs_on cpu "$emulators" WEFT_PLATFORM=cpu; result "WEFT_PLATFORM=cpu asks for the processor" $?
runs_on cpu "$tmp"; result "without a driver it uses cpu" $?
! runs_on cuda "$tmp" WEFT_PLATFORM=cuda && grep -q 'UNAVAILABLE: cannot open libcuda.so.1' "$tmp/log"
result "without a driver, cuda is UNAVAILABLE" $?
WEFT_CUDA_LIBDIR=$tmp timeout 60 "$weft" info >"$tmp/log" 2>&1 && grep -q 'no GPU *cannot open libcuda.so.1' "$tmp/log"
result "weft info says why there is no GPU" $?
echo "1..$n"
