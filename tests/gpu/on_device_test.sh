#!/bin/sh
# on_device.sh runs on the emulated GPU, stops at its budget, and goes on where it stopped.  Prints TAP.
[ -z "$WEFT_SANITIZED" ] || { echo "1..0 # SKIP programs of the bundle are linked as a user has them, without a sanitizer"; exit 0; }
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
n=0
check() { # NAME COMMAND...
  name=$1
  shift
  n=$((n + 1))
  if "$@" >"$work/log" 2>&1; then echo "ok $n - $name"; else echo "not ok $n - $name"; sed 's/^/# /' "$work/log" | tail -n 30; fi
}
run() { MAKEFLAGS='' timeout 550 "$here/on_device.sh" --emulated --quick --seeds 8 --out "$work/out" --parts "devices kernels together conformance faults bench" --python /bin/false "$@"; }
run_out_of_time() { run --seconds 0; [ $? = 3 ] && ! ls "$work"/out/*.tap; }
says() { grep -q "^$2" "$work/out/$1" || { cat "$work/out/$1"; false; }; }
# Another result on the device than on the emulated GPU of the bundle
run_with_other_bits() {
  sed -i '2s/.$/x/; 2s/library/kernels/' "$work/out/kernels/device-1" && rm "$work/out/kernels.tap"
  run --parts kernels
  [ $? = 1 ]
}

check "without time nothing is done, and the exit status says so" run_out_of_time
check "it runs whole" run
check "the device is listed" says devices.tap "# .*Emulated sm_90"
check "programs have the bits of the emulated GPU" says kernels.tap "ok 1 - programs 1 to"
check "a rank of NCCL's that never comes" says together.tap "ok 2 - nccl_of_two_ranks_one_of_them_absent_ends"
check "steps as a graph" says together.tap "# 30 steps as a graph"
check "multicast between GPUs, or why not" says together.tap "ok 4 - multicast_has_the_bits_of_the_peers"
check "eight devices have the bits of the emulated GPU" says together.tap "ok 6 - the bits of the emulated GPU"
check "an illegal address" says faults.tap "ok 2 - an_illegal_address"
if [ -d "$here/../../../shared/testdata" ]; then # without it the bundle has no such programs
  check "one GPU does for programs of several devices" says conformance.tap "ok 3 - operations_one_by_one"
fi
check "what needs JAX is skipped by reason" says bench.tap ".*# SKIP /bin/false has no jax"
check "a part that is done is not done again" eval 'run >"$work/again" && grep -q "faults: done before" "$work/again"'
check "other bits are found" run_with_other_bits
check "and shown" says kernels.tap "not ok 1 - programs 1 to"
echo "1..$n"
