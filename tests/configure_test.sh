#!/bin/sh
# What configure is given and cannot use is an error at once, which names it.  Prints TAP.
source=$(cd "${WEFT_SRCDIR:-.}" && pwd)
[ -x "$source/configure" ] || { echo "1..0 # SKIP no configure"; exit 0; }
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
n=0 failed=0
judge() { # NAME: the test has passed if $wrong is empty
  n=$((n + 1))
  if [ -z "$wrong" ]; then echo "ok $n - $1"; return; fi
  failed=1; echo "not ok $n - $1"; echo "# $wrong"; tail -n 5 "$dir/log" | sed 's/^/# /'
}

# A compiler whose programs with clones of functions do not link: configure finds out, and the library's code, compiled
# without clones, computes what it should.
cat > "$dir/cc" << 'END'
#!/bin/sh
out=a.out link=yes last=
for a; do
  case $a in -c|-E|-S|-M|-MM|--version|-v|-V|-qversion) link=no;; esac
  [ "$last" = -o ] && out=$a
  last=$a
done
${WEFT_REAL_CC:-cc} "$@" || exit
[ $link = yes ] && [ -f "$out" ] && nm "$out" 2> /dev/null | grep -q ' i ' || exit 0
rm -f "$out"
echo "ld: undefined symbol: a function with clones" >&2
exit 1
END
cat > "$dir/solve.c" << 'END'
#include <config.h>
#include "cpu/small_solve.h"
#include <string.h>
#ifdef HAVE_TARGET_CLONES
#error "configure found clones"
#endif
int main(void) /* 2x = 6, x + 4y = 11: all numbers are exact */
{
  double a[] = {2, 1, 0, 4}, x[] = {6, 11};
  cpu_system s = {.type = WEFT_F64, .n = 2, .columns = 1, .a_row = 1, .a_col = 2, .x_row = 1, .x_col = 2, .lower = true};
  cpu_small_systems_solve(&s, 1, a, x);
  return !(x[0] == 3 && x[1] == 2);
}
END
chmod +x "$dir/cc"
wrong=
include="-I$dir -I$source/src -I$source/include"
(cd "$dir" && "$source/configure" --quiet CC="$dir/cc" CFLAGS=-O1 > log 2>&1) || wrong="configure fails"
[ -n "$wrong" ] || "$dir/cc" -std=gnu11 -O1 $include "$dir/solve.c" "$source/src/cpu/small_solve.c" -lm -o "$dir/solve" > "$dir/log" 2>&1 ||
  wrong="what it configured does not build"
[ -n "$wrong" ] || "$dir/solve" || wrong="the result is wrong"
judge "a linker without clones of functions"

# refused PATTERN ARGUMENTS...: configure fails before it looks for a compiler, and says why in its last lines
refused() {
  pattern=$1 wrong=; shift
  if (cd "$dir" && "$source/configure" --quiet "$@" > log 2>&1); then wrong="configure succeeds"
  elif ! tail -n 3 "$dir/log" | grep -q -e "$pattern"; then wrong="the error does not say: $pattern"
  elif grep -q 'C compiler' "$dir/config.log"; then wrong="configure looked for a compiler first"; fi
  judge "$*"
}
refused 'LLVM_CONFIG=/nonexistent/llvm-config is no llvm-config' LLVM_CONFIG=/nonexistent/llvm-config
refused 'LLVM_CONFIG=true is no llvm-config' LLVM_CONFIG=true
refused '--with-llvm=elsewhere: expected static or shared' --with-llvm=elsewhere
refused 'OBJCOPY=/nonexistent/objcopy does not run' OBJCOPY=/nonexistent/objcopy
refused '--with-openblas=/usr: expected yes or no' --with-openblas=/usr
refused '--with-libfabric=/usr: expected yes or no' --with-libfabric=/usr
refused '--with-onednn=maybe: expected yes, no or an absolute path' --with-onednn=maybe
refused '--with-onednn: no headers of oneDNN' --with-onednn="$dir"
refused '--enable-asan and --enable-tsan' --enable-asan --enable-tsan
echo "1..$n"
exit $failed
