#!/bin/sh
# The suites on the deferred platform with other delays than those of seed 1, with which they run by themselves.  Prints TAP.
#     seeds_test.sh [SEED...]
# A wait that cannot end well ends by itself: the platform gives up after 120 s, the suites' own waits have deadlines, and both say
# for what they wait.  The limits here are for what would never end, and are far from what a busy machine takes: 300 s of
# the processor; on the clock 300 s with the first seed, with the others a minute and five times what the first one took.
[ $# -gt 0 ] || set -- 2
suites="deferred_run deferred_launch deferred_collective deferred_dynamic deferred_ffi deferred_plugin"
# These two are nine tenths of the time; sanitized builds run them with seed 1 only.
[ -n "$WEFT_SANITIZED" ] || suites="$suites deferred_conformance deferred_golden"
folder=$(dirname "$0")
[ -z "$WEFT_BUILDDIR" ] || folder=$WEFT_BUILDDIR/tests/platform
ulimit -t 300
echo "1..$(($# * $(echo $suites | wc -w)))"
n=0
for suite in $suites; do
  limit=300
  for seed; do
    n=$((n + 1))
    begin=$(date +%s)
    kernels=$WEFT_CACHE_DIR
    [ $suite != deferred_launch ] || kernels= # it counts allocations, and lets them fail
    out=$(WEFT_CACHE_DIR=$kernels WEFT_DEFERRED_SEED=$seed timeout "$limit" "$folder/${suite}_test" 2>&1)
    code=$?
    took=$(($(date +%s) - begin))
    if [ $code -eq 0 ]; then
      echo "ok $n - $suite with seed $seed"
      if [ $limit -eq 300 ]; then limit=$((60 + 5 * took)); fi
    else
      echo "not ok $n - $suite with seed $seed ended with $code after $took s (124: the limit of $limit s; 137, 152: 300 s of the processor)"
      echo "$out" | sed 's/^/# /' | tail -n 20
    fi
  done
done
