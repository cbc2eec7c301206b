#!/bin/bash
# A wheel as a user meets it: installed into a fresh virtual environment with no other package, here or in a bare root file system.
#
#   tests/python/wheel_test.sh WHEEL [ROOT]
#
# ROOT: a file system with Python and nothing of Weft's build (build-aux/bare-root makes one); without it this machine's serves.  WEFT_JAX_WHEELS: a
# folder with the wheels of jax and numpy (pip download jax==0.10.2; default ROOT/wheels); without it what needs them is skipped.  Prints TAP.
set -u
wheel=${1:?usage: wheel_test.sh WHEEL [ROOT]} root=${2-}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${root:-}/tmp/weft-wheel-XXXXXX") || exit 99
mounted=
trap 'rm -rf "$work"; [ -z "$mounted" ] || umount "$mounted"' EXIT
# Programs find their libraries beside themselves by /proc/self/exe, which every system but a bare chroot has.
if [ -n "$root" ] && [ ! -e "$root/proc/self" ]; then mount -t proc proc "$root/proc" && mounted=$root/proc; fi
inside=${work#"$root"} # its name in there
n=0 failed=0
# check NAME COMMAND...: a test that passes if the command does
check() {
  local name=$1
  shift
  n=$((n + 1))
  if "$@" >"$work/log" 2>&1; then echo "ok $n - $name"; else failed=1; echo "not ok $n - $name"; tail -n 20 "$work/log" | sed 's/^/# /'; fi
}
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
# there COMMAND...: in the root, with an environment in which nothing points to a build
there() { ${root:+chroot "$root"} env -i PATH="$inside/venv/bin:/usr/local/bin:/usr/bin:/bin" HOME="$inside" LC_ALL=C.UTF-8 WEFT_THREADS=2 "$@"; }

cp "$wheel" "$source/examples/train.hlo" "$source/examples/python/regression.py" "$work/"
file=$(basename "$wheel")
[ -n "${WEFT_JAX_WHEELS-}" ] || [ -z "$root" ] || [ ! -d "$root/wheels" ] || WEFT_JAX_WHEELS=$root/wheels
[ -z "${WEFT_JAX_WHEELS-}" ] || cp -rl "$WEFT_JAX_WHEELS" "$work/wheels" 2>/dev/null || cp -r "$WEFT_JAX_WHEELS" "$work/wheels"

small() { [ "$(stat -c %s "$wheel")" -lt 60000000 ]; }
# Nothing of Weft's or of its libraries' comes from outside but glibc and the C++ runtime.
self_contained() {
  there find "$inside/venv/lib" -path '*/site-packages/weft/*' \( -name '*.so.*' -o -name 'pjrt_weft.so' -o -path '*/bin/weft' \) -exec ldd {} + >"$work/ldd" 2>/dev/null
  grep -q libc.so.6 "$work/ldd" && ! grep -q 'not found' "$work/ldd" &&
    ! grep '=> /' "$work/ldd" | grep -v "=> $inside/venv/" | grep -vE 'lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+|z)\.so'
}
three_lines() {
  there "$inside/venv/bin/python" -c 'import jax, jax.numpy as jnp
print(jax.devices(), jax.devices()[0].client.platform_version)
print(jax.jit(lambda x: x @ x.T)(jnp.ones((2, 3))))' >"$work/out" 2>&1
  cat "$work/out"
  grep -q 'weft 0' "$work/out" && grep -q '3. 3.' "$work/out"
}
# The package's weft.pth makes JAX use Weft's agent, without a change to the program.
joins_a_job() {
  there weft launch -n 2 -- "$inside/venv/bin/python" -c 'import jax
jax.distributed.initialize()
print(type(jax._src.distributed.global_state.client).__module__, len(jax.devices()))' >"$work/out" 2>&1
  cat "$work/out"
  [ "$(grep -c 'weft._agent 2' "$work/out")" = 2 ]
}
# libfabric is opened by name, so that ldd does not see it.
finds_fabric() {
  there "$inside/venv/bin/python" -c 'import ctypes, weft; ctypes.CDLL(weft.library_path()); ctypes.CDLL(weft.library_path().replace("pjrt_weft.so", "libfabric.so.1"))'
}

check "the wheel is smaller than 60 MB: $(stat -c %s "$wheel" | numfmt --to=si)" small
check "it is of manylinux" eval 'case $file in *manylinux_2_*) ;; *) false ;; esac'
check "a fresh environment" there python3 -m venv "$inside/venv"
check "it installs with no index" there "$inside/venv/bin/pip" install -q --no-index "$inside/$file"
check "its libraries are its own" self_contained
check "libfabric loads" finds_fabric
check "weft run" there weft run "$inside/train.hlo"
check "weft launch" there weft launch -n 2 -- weft run "$inside/train.hlo"
if [ -d "$work/wheels" ]; then
  check "jax installs beside it" there "$inside/venv/bin/pip" install -q --no-index --find-links "$inside/wheels" jax
  check "JAX in three lines" three_lines
  check "JAX joins a job by Weft's agent" joins_a_job
  check "import weft" there "$inside/venv/bin/python" "$inside/regression.py"
else
  skip "JAX in three lines" "no folder of wheels in WEFT_JAX_WHEELS"
fi
echo "1..$n"
exit $failed
