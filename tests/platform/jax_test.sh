#!/bin/sh
# JAX on the guarded and the deferred platform: a selection of tests/jax, compared with XLA:CPU.  Prints TAP.
[ -z "$WEFT_SANITIZED" ] || { echo "1..0 # SKIP Python cannot load a plugin built with a sanitizer"; exit 0; }
"${WEFT_PYTHON:-python3}" -c 'import jax' 2>/dev/null || { echo "1..0 # SKIP no jax in this interpreter (set WEFT_PYTHON)"; exit 0; }
jax=$(dirname "$0")/../jax
export WEFT_PLUGIN="${WEFT_BUILDDIR:-.}/tests/platform/.libs/pjrt_platforms.so"
echo "1..11"
n=0
# run PLATFORM TEST [OPTION...]
run() {
  platform=$1; shift
  test=$1; shift
  n=$((n + 1))
  out=$(WEFT_PLATFORM=$platform timeout 120 "${WEFT_PYTHON:-python3}" "$jax/$test" "$@" 2>&1)
  code=$?
  if [ $code -eq 0 ] && echo "$out" | grep -q '^ok' && ! echo "$out" | grep -q '^not ok'; then
    echo "ok $n - $platform: $test $* ($(echo "$out" | grep -c '^ok') cases)"
  else
    echo "not ok $n - $platform: $test $* ended with $code"
    echo "$out" | grep -v '^ok' | sed 's/^/# /' | tail -n 20
  fi
}
for platform in guarded deferred; do
  run $platform plugin_test.py
  for word in callback shard scan; do run $platform e2e_test.py -k $word; done
done
for word in loop copies chain; do run deferred e2e_test.py -k $word; done
