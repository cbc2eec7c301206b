#!/bin/sh
# bench/collectives.sh BUILDDIR [MAX_BYTES [RANKS...]]: Weft's collectives beside Gloo's and Open MPI's, in one run.
# Peers that are not installed are left out with a note.  Output: one line per implementation, operation and size.
set -eu
build=${1:?builddir}; max=${2:-16777216}; shift; [ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- 2 4 8
here=$(dirname "$0"); work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mpicc -O2 "$here/collectives_mpi.c" -o "$work/mpi" 2>/dev/null || echo "# no Open MPI: left out"
c++ -O2 "$here/collectives_gloo.cc" -o "$work/gloo" -lgloo -lpthread 2>/dev/null || echo "# no Gloo: left out"
for n in "$@"; do
  for how in devices shm fabric; do "$build/weft" bench collectives --how $how --ranks "$n" --max-bytes "$max"; done
  if [ -x "$work/mpi" ]; then
    run="mpirun --allow-run-as-root --oversubscribe -n $n --mca btl_base_warn_component_unused 0"
    $run --mca pml ob1 --mca btl vader,self "$work/mpi" mpi-shm "$max" || echo "# mpi-shm failed"
    $run --mca pml ob1 --mca btl tcp,self "$work/mpi" mpi-tcp "$max" || echo "# mpi-tcp failed"
  fi
  if [ -x "$work/gloo" ]; then
    mkdir "$work/store$n"; i=0; pids=
    while [ $i -lt "$n" ]; do "$work/gloo" $i "$n" "$work/store$n" "$max" & pids="$pids $!"; i=$((i + 1)); done
    for p in $pids; do wait "$p" || echo "# gloo failed"; done
  fi
done
