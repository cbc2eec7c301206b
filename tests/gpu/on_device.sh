#!/bin/bash
# All that is to be tried on a real GPU, by one command, resumable, in a time budget; on the emulated GPU it runs whole as well.
#
#   tests/gpu/on_device.sh pack FILE.tar.xz      here: packs a bundle of what is built (make does the rest), at most 64 MiB
#   tar xJf FILE.tar.xz && weft-gpu/on_device.sh there: runs it; needs Linux with glibc 2.36, and for JAX's parts a Python with jax
#   tests/gpu/on_device.sh                       here, both: lays the bundle out in a folder and runs it
#
# Options of a run (also from the environment: ON_DEVICE_OUT, ...):
#   --out DIR       results (default: weft-gpu-results): PART.tap, PART.md, PART.svg, PART.log, and summary.md
#   --seconds N     the budget (default 1500). What is not done when it ends is done by the next run with the same --out
#   --parts "..."   of: devices kernels together conformance programs faults jax bench
#   --seeds N       random programs of part kernels (default 2000)
#   --emulated      on the emulated GPU of the bundle
#   --python FILE   the interpreter with jax (default: $WEFT_PYTHON, or python3)
#   --quick         few and small programs: to try the script (tests/gpu/on_device_test.sh)
#
# Exit status: 0 all is right, 1 something failed, 3 the budget ended first.
set -u
here=$(cd "$(dirname "$0")" && pwd)
PARTS="devices kernels together conformance programs faults jax bench"

# ---- the bundle -------------------------------------------------------------------------------------------------------------------

# needed_libraries FILE...: what they are linked with beyond glibc and the C++ runtime, which every machine has
needed_libraries() {
  ldd "$@" 2>/dev/null | sed -n 's/^.* => \(\/[^ ]*\) .*$/\1/p' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+|cuda|cublas|cublasLt|cudnn|cufft|cusolver|nccl|nvJitLink))\.so'
}

# lay_out FOLDER: the bundle's files
lay_out() {
  local to=$1 build=${WEFT_BUILDDIR:-$PWD} source file
  source=$(cd "$here/../.." && pwd)
  [ -e "$build/config.status" ] || { echo "$build is no build folder; name one in WEFT_BUILDDIR" >&2; return 2; }
  make -s -C "$build" weft pjrt_weft.la tests/gpu/on_device \
    tests/gpu/emulator/lib{cuda,cublas,cublasLt,cudnn,cufft,cusolver,nccl,nvJitLink}.la || return 2
  mkdir -p "$to"/{bin,lib,emulator,src/tests/gpu,src/tests/stablehlo,src/tests/jax,src/bench,src/python,programs} || return 2
  cp "$source/tests/gpu/on_device.sh" "$to/"
  "$build/libtool" --quiet --mode=install cp "$build/weft" "$build/tests/gpu/on_device" "$to/bin/" 2>/dev/null || return 2
  cp -L "$build/.libs/pjrt_weft.so" "$to/lib/"
  for file in cuda:1 cublas:13 cublasLt:13 cudnn:9 cufft:12 cusolver:12 nccl:2 nvJitLink:13; do
    cp -L "$build/tests/gpu/emulator/.libs/lib${file%:*}.so.${file#*:}" "$to/emulator/" || return 2
  done
  chmod u+w "$to"/bin/* "$to"/lib/* "$to"/emulator/*
  strip --strip-unneeded "$to"/bin/* "$to"/lib/* "$to"/emulator/*
  needed_libraries "$to"/bin/* "$to"/lib/* "$to"/emulator/* | while read -r file; do cp -L "$file" "$to/lib/"; done
  chmod u+w "$to"/lib/*
  cp -R "$source/python/jax_plugins" "$source/python/weft" "$to/src/python/"
  cp -R "$source/tests/stablehlo/programs" "$to/src/tests/stablehlo/"
  cp "$source/tests/jax/e2e_test.py" "$to/src/tests/jax/"
  cp "$source"/bench/{gpu_vs_xla,jax_programs,report}.py "$to/src/bench/"
  cp "$source/examples/train.hlo" "$source/bench/kernels.hlo" "$to/programs/" 2>/dev/null
  if [ -d "$source/../shared/testdata" ]; then
    mkdir -p "$to/shared/testdata" && cp -RL "$source"/../shared/testdata/* "$to/shared/testdata/"
  fi
  chmod -R u+w "$to" # the source tree may be read-only
  find "$to" -name __pycache__ -prune -exec rm -rf {} +
  git -C "$source" describe --always --dirty --abbrev=8 >"$to/commit" 2>/dev/null || echo unknown >"$to/commit"
}

pack() {
  local file=${1:?usage: on_device.sh pack FILE.tar.xz} work bytes
  work=$(mktemp -d) || exit 2
  trap 'rm -rf "$work"' EXIT
  lay_out "$work/weft-gpu" || exit 2
  tar -C "$work" -cf - weft-gpu | xz -T0 -6 >"$file" || exit 2
  bytes=$(stat -c %s "$file")
  echo "$file: $((bytes / 1048576)) MiB packed, $(du -sm "$work/weft-gpu" | cut -f 1) MiB raw"
  [ "$bytes" -le $((64 << 20)) ] || { echo "more than 64 MiB" >&2; exit 1; }
}

[ "${1-}" != pack ] || { pack "${2-}"; exit; }

# ---- a run ------------------------------------------------------------------------------------------------------------------------

out=${ON_DEVICE_OUT:-weft-gpu-results} seconds=${ON_DEVICE_SECONDS:-1500} parts=${ON_DEVICE_PARTS:-$PARTS} seeds=${ON_DEVICE_SEEDS:-2000}
python=${WEFT_PYTHON:-python3} emulated= quick=
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --parts) parts=$2; shift ;;
    --seeds) seeds=$2; shift ;;
    --python) python=$2; shift ;;
    --emulated) emulated=1 ;;
    --quick) quick=1 ;;
    *) sed -n '2,/^set -u/s/^# \{0,1\}//p' "$here/on_device.sh" >&2; exit 2 ;;
  esac
  shift
done
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
began=$(date +%s)
left() { echo $((seconds - ($(date +%s) - began))); }

bundle=$here
if [ ! -e "$here/bin/on_device" ]; then # in the source tree
  bundle=$out/weft-gpu
  [ -e "$bundle/commit" ] || lay_out "$bundle" || exit 2
fi

# NVIDIA's libraries may be there as Python's packages only (nvidia-cudnn-cu13 and its like)
packages=$("$python" -c 'import glob, nvidia
print(*(d for p in nvidia.__path__ for d in glob.glob(p + "/*/lib")), sep=":")' 2>/dev/null)
export LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}${packages:+:$packages}
export WEFT_SRCDIR=$bundle/src WEFT_PLATFORM=cuda WEFT_EMU_LEAKS=off PYTHONDONTWRITEBYTECODE=1
if [ -n "$emulated" ]; then export WEFT_CUDA_LIBDIR=$bundle/emulator; fi
has_jax() { "$python" -c 'import jax' 2>/dev/null; }
# JAX's own CUDA plugin, with a device that is no emulated one
has_jax_cuda() {
  [ -z "$emulated" ] && "$python" -c 'import importlib.util as u, sys
sys.exit(not any(u.find_spec("jax_plugins." + p) for p in ("xla_cuda12", "xla_cuda13")))' 2>/dev/null
}

# here_are: the GPUs that the driver shows. share N: each of them is N devices, where a program wants more than there are.
here_are() { grep -c '^  device [0-9]' "$out/devices.info" 2>/dev/null; }
share() { [ "$1" -le "$(here_are)" ] || export WEFT_CUDA_SHARE=$1; }

# A part writes TAP to standard output. Its status: 0 done (ok or not ok, the TAP says), 124 it ran out of time.
part_devices() {
  timeout "$1" "$bundle/bin/weft" info >"$out/devices.info" 2>&1
  grep -A 20 'as platform "cuda" sees it' "$out/devices.info" | sed '/^$/,$d; s/^/# /'
  if grep -q '^  device 0 ' "$out/devices.info"; then echo "ok 1 - the driver shows a device"; else echo "not ok 1 - the driver shows a device"; fi
  ! command -v nvidia-smi >/dev/null || nvidia-smi 2>&1 | sed 's/^/# /'
  echo 1..1
}

# Bits of random programs, on the device and on the emulated GPU of the same kind. Chunks of seeds are kept for a later run.
part_kernels() {
  local deadline=$(($(date +%s) + $1)) step=100 first n=0 kind where
  kind=$(sed -n 's/^  device 0 .*kernels are for \(sm_[0-9]*\).*/\1/p' "$out/devices.info" 2>/dev/null)
  [ -z "$quick" ] || [ "$seeds" -le 20 ] || seeds=20
  [ "$step" -le "$seeds" ] || step=$seeds
  mkdir -p "$out/kernels"
  for ((first = 1; first <= seeds; first += step)); do
    for where in device emulator; do
      local result=$out/kernels/$where-$first
      [ ! -e "$result" ] || continue
      (
        if [ $where = emulator ]; then export WEFT_CUDA_LIBDIR=$bundle/emulator WEFT_EMU_DEVICE=${kind:-sm_90}; fi
        timeout $((deadline - $(date +%s) > 0 ? deadline - $(date +%s) : 1)) "$bundle/bin/on_device" kernels $first $step
      ) >"$result.new" 2>"$result.err"
      case $? in
        124) return 124 ;;
        0) ;;
        *) echo "$first error on the $where" >>"$result.new" ;;
      esac
      mv "$result.new" "$result"
    done
    n=$((n + 1))
    # of lines with results of libraries, which add in an order of their own, the hash is not compared
    if ! grep -q error "$out/kernels/device-$first" &&
      cmp -s <(sed 's/ library .*/ library/' "$out/kernels/device-$first") <(sed 's/ library .*/ library/' "$out/kernels/emulator-$first"); then
      echo "ok $n - programs $first to $((first + step - 1)): the bits of the emulated GPU"
    else
      echo "not ok $n - programs $first to $((first + step - 1)): the bits of the emulated GPU"
      diff "$out/kernels/device-$first" "$out/kernels/emulator-$first" | head -n 20 | sed 's/^/# /'
    fi
  done
  echo "1..$n"
}

# NCCL, peers and graphs, on the device and on the emulated GPU: what both have computed has the same bits.
part_together() {
  local n
  (share 8; CMOCKA_MESSAGE_OUTPUT=TAP timeout "$1" "$bundle/bin/on_device" together) >"$out/together.device" 2>&1 || [ $? != 124 ] || return 124
  (export WEFT_CUDA_LIBDIR=$bundle/emulator WEFT_EMU_DEVICES=1 WEFT_CUDA_SHARE=8
    CMOCKA_MESSAGE_OUTPUT=TAP timeout "$1" "$bundle/bin/on_device" together) >"$out/together.emulator" 2>&1 || [ $? != 124 ] || return 124
  grep -v '^1\.\.' "$out/together.device"
  n=$(($(grep -cE '^(not )?ok ' "$out/together.device") + 1))
  if grep -q '^# bits of' "$out/together.device" && cmp -s <(grep '^# bits of' "$out/together.device") <(grep '^# bits of' "$out/together.emulator"); then
    echo "ok $n - the bits of the emulated GPU"
  else
    echo "not ok $n - the bits of the emulated GPU"
    diff <(grep '^# bits of' "$out/together.device") <(grep '^# bits of' "$out/together.emulator") | head -n 20 | sed 's/^/# /'
  fi
  echo "1..$n"
}

part_conformance() {
  if [ ! -d "$bundle/shared/testdata" ]; then echo "1..0 # SKIP the bundle has no ../shared/testdata"; return; fi
  [ -z "$quick" ] || export CONFORMANCE=all_reduce
  (share 8; CMOCKA_MESSAGE_OUTPUT=TAP timeout "$1" "$bundle/bin/on_device" conformance)
}

# is_sensitive PROGRAM RESULTS INPUTS...: do the CPU's own results differ from those in the folder by rounding alone?  A deep network of
# bf16 with random weights is such a program.
is_sensitive() {
  local file=$1 results=$2
  shift 2
  WEFT_PLATFORM=cpu timeout 120 "$bundle/bin/weft" run "$file" --alone --quiet "$@" --output-dir "$results" >/dev/null 2>&1 || return 1
  ! XLA_FLAGS=--xla_allow_excess_precision=false WEFT_PLATFORM=cpu timeout 120 "$bundle/bin/weft" run "$file" --alone --quiet "$@" \
    --expect "$results" >/dev/null 2>&1
}

# Programs of ../shared/testdata/hlo and of the tree, on the device and by the CPU's kernels.
part_programs() {
  local deadline=$(($(date +%s) + $1)) n=0 file name limit status wanted reasons='RESOURCE_EXHAUSTED|devices, the|no handler is registered'
  mkdir -p "$out/programs"
  for file in "$bundle"/programs/*.hlo "$bundle"/shared/testdata/hlo/*.hlo; do
    [ -e "$file" ] || continue
    name=$(basename "$file" .hlo)
    [ -z "$quick" ] || [ "$(stat -c %s "$file")" -lt 3000 ] || continue
    n=$((n + 1))
    wanted=$(expr "$name" : '.*_1x\([0-9]*\)$') # devices, of a name such as u4_all_gather_1x8
    if [ -n "$emulated" ] && [ "${wanted:-1}" -gt 1 ] && [ "$(stat -c %s "$file")" -gt 20000 ]; then
      echo "ok - $name # SKIP it is a large program for $wanted devices, which are emulated" >"$out/programs/$name"
    elif [ ! -e "$out/programs/$name" ]; then
      limit=$((deadline - $(date +%s)))
      [ $limit -gt 0 ] || return 124
      [ $limit -lt 120 ] || limit=120
      rm -rf "$out/programs/arrays" && mkdir -p "$out/programs/arrays"
      (share "${wanted:-1}"; timeout $limit "$bundle/bin/weft" run "$file" --alone --devices "${wanted:-1}" --quiet --save-inputs "$out/programs/arrays" --output-dir "$out/programs/arrays") >"$out/programs/$name.log" 2>&1
      status=$?
      if [ $status = 0 ]; then
        inputs=()
        for ((i = 0; ; i++)); do
          [ -e "$out/programs/arrays/input_$i.npy" ] || break
          inputs+=(--input "$out/programs/arrays/input_$i.npy")
        done
        WEFT_PLATFORM=cpu timeout $limit "$bundle/bin/weft" run "$file" --alone --devices "${wanted:-1}" --quiet "${inputs[@]}" --expect "$out/programs/arrays" >>"$out/programs/$name.log" 2>&1
        status=$?
        [ $status != 1 ] || [ "${wanted:-1}" != 1 ] || ! is_sensitive "$file" "$out/programs/arrays" "${inputs[@]}" || status=sensitive
      fi
      rm -rf "$out/programs/arrays"
      case $status in
        0) echo "ok - $name" ;;
        sensitive) echo "ok - $name # SKIP the CPU's results with and without excess precision differ as well: rounding decides them" ;;
        124) [ $(($(date +%s) + 2)) -lt $deadline ] || return 124
          echo "ok - $name # SKIP takes longer than $limit s" ;;
        *) if grep -qE "$reasons" "$out/programs/$name.log"; then echo "ok - $name # SKIP $(grep -m 1 -E "$reasons" "$out/programs/$name.log" | cut -c 1-160)"
          else echo "not ok - $name"; tail -n 5 "$out/programs/$name.log" | cut -c 1-300 | sed 's/^/# /'; fi ;;
      esac >"$out/programs/$name.tap"
      mv "$out/programs/$name.tap" "$out/programs/$name"
    fi
    sed "s/^\(not ok\|ok\) - /\1 $n - /" "$out/programs/$name"
  done
  echo "1..$n"
}

part_faults() { CMOCKA_MESSAGE_OUTPUT=TAP timeout "$1" "$bundle/bin/on_device" faults; }

part_jax() {
  if ! has_jax; then echo "1..0 # SKIP $python has no jax"; return; fi
  # JAX's own CUDA plugin would take the name
  WEFT_JAX_NAME=cuda WEFT_PLUGIN=$bundle/lib/pjrt_weft.so WEFT_E2E=1 PYTHONPATH=$bundle/src/python WEFT_EMU_DEVICES=8 \
    timeout "$1" "$python" "$bundle/src/tests/jax/e2e_test.py" ${quick:+-k softmax}
}

part_bench() {
  local peer=cuda small=
  if ! has_jax; then echo "1..0 # SKIP $python has no jax"; return; fi
  if ! has_jax_cuda; then
    peer=none
    echo "ok 1 - the ratios to XLA:GPU # SKIP $([ -n "$emulated" ] && echo 'the device is emulated' || echo "$python has no jax-cuda plugin")"
  else
    echo "ok 1 - jax-cuda is there"
  fi
  [ -z "$emulated$quick" ] || small=--small
  if timeout "$1" "$python" "$bundle/src/bench/gpu_vs_xla.py" --plugin "$bundle/lib/pjrt_weft.so" --peer $peer $small --jobs 8 --seconds $(($1 * 9 / 10)) \
    ${quick:+-k sum} --markdown "$out/bench.md" --svg "$out/bench.svg" >"$out/bench.table" 2>&1; then
    echo "ok 2 - every program runs"
  else
    [ $? != 124 ] || return 124
    echo "not ok 2 - every program runs"
  fi
  sed 's/^/# /' "$out/bench.table"
  echo 1..2
}

status=0
for part in $parts; do
  case " $PARTS " in *" $part "*) ;; *) echo "no part $part; there are: $PARTS" >&2; exit 2 ;; esac
  if [ -e "$out/$part.tap" ]; then echo "# $part: done before"; continue; fi
  if [ "$(left)" -le 0 ]; then echo "# $part: no time left"; status=3; continue; fi
  echo "# $part"
  part_began=$(date +%s)
  "part_$part" "$(left)" >"$out/$part.tap.new" 2>"$out/$part.log"
  if [ $? = 124 ]; then
    echo "# $part: the budget of $seconds s ended; run again with --out $out to go on"
    status=3
    continue
  fi
  echo "# $part took $(($(date +%s) - part_began)) s" >>"$out/$part.tap.new"
  mv "$out/$part.tap.new" "$out/$part.tap"
done

{
  echo "# Weft on a GPU"
  echo
  echo "Commit: $(cat "$bundle/commit"). Device: $(sed -n 's/^  device 0 *//p' "$out/devices.info" 2>/dev/null). $(sed -n 's/^  driver */Driver: /p' "$out/devices.info" 2>/dev/null)."
  echo
  echo "| part | ok | skipped | not ok |"
  echo "|---|---|---|---|"
  for part in $PARTS; do
    if [ -e "$out/$part.tap" ]; then
      echo "| $part | $(grep -E '^ok ' "$out/$part.tap" | grep -vc '# SKIP') | $(grep -cE '^(ok .*|1\.\.0 )# SKIP' "$out/$part.tap") | $(grep -cE '^not ok|^Bail out' "$out/$part.tap") |"
    else
      echo "| $part | not done | | |"
    fi
  done
} | tee "$out/summary.md"
for part in $parts; do
  if [ -e "$out/$part.tap" ] && { grep -qE '^not ok|^Bail out' "$out/$part.tap" || ! grep -qE '^1\.\.|^# ok - units|^ok ' "$out/$part.tap"; }; then status=1; fi
done
exit $status
