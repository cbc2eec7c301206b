#!/bin/sh
# What configure is given and cannot use is an error at once, which names it.  Prints TAP.
source=$(cd "${WEFT_SRCDIR:-.}" && pwd)
[ -x "$source/configure" ] || { echo "1..0 # SKIP no configure"; exit 0; }
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
n=0 failed=0
# refused PATTERN ARGUMENTS...: configure fails and says so in its last lines
refused() {
  pattern=$1; shift; n=$((n + 1))
  if (cd "$dir" && "$source/configure" --quiet "$@" > log 2>&1); then wrong="configure succeeds"
  elif ! tail -n 3 "$dir/log" | grep -q -e "$pattern"; then wrong="the error does not say: $pattern"
  else echo "ok $n - $*"; return; fi
  failed=1; echo "not ok $n - $*"; echo "# $wrong"; tail -n 5 "$dir/log" | sed 's/^/# /'
}
refused 'LLVM_CONFIG=/nonexistent/llvm-config is no llvm-config' LLVM_CONFIG=/nonexistent/llvm-config
refused 'LLVM_CONFIG=true is no llvm-config' LLVM_CONFIG=true
refused '--with-llvm=elsewhere: expected static or shared' --with-llvm=elsewhere
refused 'OBJCOPY=/nonexistent/objcopy does not run' OBJCOPY=/nonexistent/objcopy
refused '--with-openblas=/usr: expected yes or no' --with-openblas=/usr
refused '--with-libfabric=/usr: expected yes or no' --with-libfabric=/usr
refused '--enable-asan and --enable-tsan' --enable-asan --enable-tsan
echo "1..$n"
exit $failed
