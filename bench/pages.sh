#!/bin/bash
# Measures everything that docs/measured shows and writes its pages and plots.
#   bench/pages.sh BUILD [PAGE...]      BUILD: a build folder made with -O2; PAGE: some of those below
# WEFT_PAGES_SUFFIX=-avx2: the pages of another kind of machine, as peers-avx2.md.
# Needs WEFT_PYTHON, an interpreter with jax 0.10.2, a machine with nothing else on it, and half an hour.
set -eu
cd "$(dirname "$0")/.."
build=$1; shift
pages=${*:-programs temporaries reading jax users users-small libraries partitions costs peers convolutions pool collectives collectives-simulated}
python=${WEFT_PYTHON:-python3} suffix=${WEFT_PAGES_SUFFIX:-} out=docs/measured work=${TMPDIR:-/tmp}/weft-pages
data=../shared/testdata/hlo
export WEFT_BUILDDIR=$PWD/$build
export PJRT_NAMES_AND_LIBRARY_PATHS=weft:$PWD/$build/.libs/pjrt_weft.so
mkdir -p $out "$work"
[ -e "$work/suite/adam_4m.hlo" ] || "$python" bench/suite.py "$work/suite"
# gemma3 needs 2 GB and torax 17 s to compile with XLA: they have runs of their own
programs=(examples/train.hlo $(ls $data/*.hlo | grep -vE 'gemma3|torax|xnn.parallel') "$work"/suite/*.hlo)
page() { echo "== $1"; shift; "$@"; }
for p in $pages; do
  to=(--markdown "$out/$p$suffix.md" --svg "$out/$p$suffix.svg")
  case $p in
    programs) page $p "$python" bench/vs_xla.py --best --weft "$build/weft" --rounds 1 --repeat 12 "${to[@]}" "${programs[@]}" ;;
    temporaries) page $p "$python" bench/plan_vs_xla.py --weft "$build/weft" "${to[@]}" "${programs[@]}" || true ;;
    reading)
      [ -d "$work/read" ] || { mkdir "$work/read"; "$python" bench/read_programs.py "$work/read"; }
      make -s -C "$build" bench/read
      page $p "$python" bench/read.py --build "$build" "${to[@]}" "$work"/read/* ;;
    jax) page $p "$python" bench/jax_bench.py --rounds 3 "${to[@]}" ;;
    users) page $p "$python" bench/jax_programs.py --rounds 2 "${to[@]}" ;;
    users-small) page $p "$python" bench/jax_programs_small.py --rounds 2 "${to[@]}" ;;
    libraries) page $p "$python" bench/users.py --rounds 2 "${to[@]}" ;;
    partitions) page $p "$python" bench/jax_partitions.py "${to[@]}" ;;
    costs) page $p "$python" bench/costs.py --weft "$build/weft" "${to[@]}" "${programs[@]}" ;;
    peers) # WEFT_PEERS: an interpreter with the libraries of bench/peers.txt
      make -s -C "$build" bench/peak
      page $p chrt -f 5 "$python" bench/peers.py --build "$build" --peers "${WEFT_PEERS:-$python}" --seconds 0.1 "${to[@]}" ;;
    convolutions) make -s -C "$build" bench/convolutions
      { printf '# Convolutions, oneDNN beside Weft\n\n'
        PYTHONPATH=bench python3 -c 'import report; print(f"Machine: {report.machine()}. Command: `bench/convolutions 0.2 2`. Commit: {report.commit()}.\n")'
        chrt -f 5 "$build/bench/convolutions" 0.2 2; } >"$out/$p$suffix.md" ;;
    pool) make -s -C "$build" bench/pool
      { printf '# Loops over the worker pool\n\n'
        PYTHONPATH=bench python3 -c 'import report; print(f"Machine: {report.machine()}. Command: `chrt -f 3 bench/pool --markdown`. Commit: {report.commit()}.\n")'
        printf 'Each index takes 2 microseconds, and there are as many indices as threads. Asleep: 1.5 ms pass before each call; awake: none, but where there are more threads than cores\nsome have fallen asleep. The last four columns are means over the calls. How loops work: [scaling.md](../scaling.md#a-loop-over-the-workers).\n\n'
        chrt -f 3 "$build/bench/pool" --markdown; } >"$out/$p$suffix.md" ;;
    collectives) page $p "$python" bench/collectives_grid.py "$build" --ranks 2,4,8 --max-bytes 1048576 --rounds 3 --scale 0.5 "${to[@]}" ;;
    collectives-simulated) page $p "$python" bench/collectives_simulated.py "$build" --markdown "$out/$p$suffix.md" ;;
    *) echo "unknown page $p" >&2; exit 2 ;;
  esac
done
