#!/bin/sh
# The suites on the deferred platform with other delays than those of seed 1, with which they run by themselves.  Prints TAP.
#     seeds_test.sh [SEED...]
[ $# -gt 0 ] || set -- 2 3
suites="deferred_run deferred_launch deferred_collective deferred_dynamic deferred_ffi deferred_plugin deferred_conformance deferred_golden"
folder=$(dirname "$0")
[ -z "$WEFT_BUILDDIR" ] || folder=$WEFT_BUILDDIR/tests/platform
echo "1..$(($# * $(echo $suites | wc -w)))"
n=0
for seed; do
  for suite in $suites; do
    n=$((n + 1))
    if out=$(WEFT_DEFERRED_SEED=$seed timeout 60 "$folder/${suite}_test" 2>&1); then
      echo "ok $n - $suite with seed $seed"
    else
      echo "not ok $n - $suite with seed $seed ended with $?"
      echo "$out" | sed 's/^/# /' | tail -n 20
    fi
  done
done
