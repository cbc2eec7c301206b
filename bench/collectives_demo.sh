#!/bin/sh
# bench/collectives_demo.sh BUILDDIR: a job of four processes, one of which falls asleep before its second all-reduce.
# The other three get an error that names it and says what it did last; their reports are printed.
set -eu
build=${1:?builddir}
make -s -C "$build" bench/collectives_demo
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
for rank in 0 1 2 3; do
  "$build/bench/collectives_demo" "$dir" "$rank" 4 > "$dir/out$rank" 2>&1 &
done
wait
for rank in 0 1 2 3; do echo "=== rank $rank"; cat "$dir/out$rank"; done
