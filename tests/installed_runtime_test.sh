#!/bin/bash
# Machine code for applications in C, as a user finds it: libweft_runtime exports what weft/program.h declares and has nothing of LLVM;
# `weft compile` writes libraries and C sources that compile, link and run outside the tree; what does not fit is refused by name.
# Prints TAP.
source=${WEFT_SRCDIR:-$(dirname "$0")/..} build=${WEFT_BUILDDIR:-.}
root=$(mktemp -d) || exit 99
trap 'rm -rf "$root"' EXIT
export LC_ALL=C TMPDIR=$root
command -v pkg-config >/dev/null || { echo "1..0 # SKIP no pkg-config"; exit 0; }
[ "$(uname -m)" = x86_64 ] || { echo "1..0 # SKIP machine code is saved on x86-64 only"; exit 0; }
if nm -D "$build/.libs/libweft_runtime.so" | grep -qE ' U __(asan|tsan|ubsan)'; then
  echo "1..0 # SKIP a library with a sanitizer needs programs with the same"; exit 0
fi
n=0 failed=0
ok() { n=$((n + 1)); echo "ok $n - $1"; }
not_ok() { n=$((n + 1)); failed=1; echo "not ok $n - $1"; sed 's/^/# /' "$root/log"; }
# check NAME COMMAND...: a test that passes if the command does
check() { local name=$1; shift; if "$@" >"$root/log" 2>&1; then ok "$name"; else not_ok "$name"; fi; }
# prints NAME TEXT COMMAND...: a test that passes if the command succeeds and prints just TEXT
prints() { local name=$1 text=$2; shift 2; if timeout 60 "$@" >"$root/log" 2>&1 && [ "$(cat "$root/log")" = "$text" ]; then ok "$name"; else not_ok "$name"; fi; }
# fails NAME PATTERN COMMAND...: a test that passes if the command fails and says PATTERN
fails() { local name=$1 text=$2; shift 2; if ! timeout 60 "$@" >"$root/log" 2>&1 && grep -q -e "$text" "$root/log"; then ok "$name"; else not_ok "$name"; fi; }

make -s -C "$build" DESTDIR="$root" install-libLTLIBRARIES install-nodist_staticlibDATA install-pkgincludeHEADERS install-weftbaseHEADERS \
  install-pkgconfigDATA install-binPROGRAMS >"$root/log" 2>&1 || { not_ok "Weft installs"; echo "1..1"; exit 1; }
libraries=$(dirname "$(find "$root" -name libweft_runtime.so)") weft=$(find "$root" -path '*/bin/weft')
# the command finds headers and libraries beside itself, wherever the installation has been moved
PKG_CONFIG_LIBDIR=$(dirname "$(find "$root" -name weft-runtime.pc)"):$(pkg-config --variable pc_path pkg-config)
export PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR=$root

# ---- the library ----
headers=$(dirname "$(find "$root" -name program.h)")
echo '#include <weft/program.h>' >"$root/all.c"
cc -std=gnu11 -E $(pkg-config --cflags weft-runtime) "$root/all.c" | awk -v within="^$root/" -f "$source/tests/install/declared.awk" | sort -u >"$root/declared"
exported() { nm "$@" --defined-only --format=posix | sed -n 's/^\([^ @]*\)[^ ]* [BDRTVW] .*/\1/p' | sort; }
exported -D "$libraries/libweft_runtime.so" >"$root/exported"
exported -g "$libraries/libweft_runtime.a" >"$root/exported.a"
check "libweft_runtime.so exports exactly what weft/program.h declares ($(wc -l <"$root/declared"))" diff "$root/declared" "$root/exported"
check "libweft_runtime.a exports exactly what weft/program.h declares" diff "$root/declared" "$root/exported.a"
strangers='LLVM|4llvm|nghttp2|stdc\+\+|libz\.'
{ readelf -d "$libraries/libweft_runtime.so"; ldd "$libraries/libweft_runtime.so"; nm -D "$libraries/libweft_runtime.so"; nm "$libraries/libweft_runtime.a"; } >"$root/log"
if grep -qi 'SONAME.*\[libweft_runtime\.so\.0\]' "$root/log" && ! grep -qE "$strangers" "$root/log"; then ok "nothing of LLVM, of C++ or of nghttp2 is in it"
else grep -E "$strangers" "$root/log" | head >"$root/log2"; mv "$root/log2" "$root/log"; not_ok "nothing of LLVM, of C++ or of nghttp2 is in it"; fi

# ---- the example ----
strict="-O1 -Wall -Wextra -Werror"
for cc in gcc clang clang-14 clang-19; do
  command -v $cc >/dev/null || continue
  for link in shared static; do
    dir=$root/$cc-$link; cp -r "$source/examples/aot" "$dir"; chmod -R u+w "$dir"
    check "$cc, $link: the example builds" make -C "$dir" WEFT="$weft" CC=$cc CFLAGS="$strict" STATIC="$([ $link = shared ] || echo 1)"
    # relu([1 2 3] . w + b) . v = 1 + 20 + 300 + 0; relu([-1 0 1] . w + b) . v = 0 + 0 + 100 + 0
    prints "$cc, $link: the example computes" "321 100" env LD_LIBRARY_PATH="$libraries" "$dir/main"
  done
done
if readelf -d "$root/gcc-static/main" | grep -q 'NEEDED.*libweft'; then not_ok "the static program needs no libweft"; else ok "the static program needs no libweft"; fi
for cxx in "g++ -std=c++17" "g++ -std=c++20" "clang++ -std=c++17" "clang++-19 -std=c++20"; do
  command -v ${cxx%% *} >/dev/null && echo 'int main() {}' | $cxx -x c++ -include string -o "$root/probe" - 2>/dev/null || continue
  check "$cxx takes the header" $cxx $strict -x c++ -fsyntax-only -I"$root/gcc-static" $(pkg-config --cflags weft-runtime) -include mlp.h /dev/null
done

# ---- all kinds of arrays ----
cat >"$root/kinds.hlo" <<'HLO'
HloModule kinds
ENTRY e {
  float = f64[2] parameter(0)
  c = c64[2] parameter(1)
  state = (s32[], bf16[3]) parameter(2)
  flag = pred[] parameter(3)
  none = f32[0,4] parameter(4)
  n = s32[] get-tuple-element(state), index=0
  h = bf16[3] get-tuple-element(state), index=1
  n2 = s32[] add(n, n)
  f2 = f64[2] add(float, float)
  c2 = c64[2] multiply(c, c)
  not = pred[] not(flag)
  ROOT r = (f64[2], c64[2], s32[], bf16[3], pred[], f32[0,4]) tuple(f2, c2, n2, h, not, none)
}
HLO
cat >"$root/kinds_main.c" <<'C'
#include <stdio.h>
#include <string.h>
#include "kinds.h"
int main(void)
{
  double f[2] = {1.5, -2}, f2[2];
  float c[2][2] = {{1, 2}, {0, 1}}, c2[2][2], empty[1];
  int32_t n = 21, n2;
  uint16_t h[3] = {1, 2, 3}, h2[3];
  bool flag = true, not = true;
  weft_program *p, *q;
  weft_status *st = kinds_open(&(weft_program_options){.size = sizeof(weft_program_options), .threads = 1}, &p);
  if (!st) st = kinds_open(NULL, &q); /* two of one program do not disturb each other */
  for (int i = 0; i < 3 && !st; i++)
    st = kinds_run(i % 2 ? q : p, f, c, &n, h, &flag, empty, f2, c2, &n2, h2, &not, empty, WEFT_NO_DEADLINE);
  if (st) return puts(weft_status_text(st, false)), 1;
  printf("%s %g %g (%g,%g) (%g,%g) %d %d%d%d %d;", weft_program_name(p), f2[0], f2[1], c2[0][0], c2[0][1], c2[1][0], c2[1][1], n2, h2[0], h2[1], h2[2], not);
  for (int i = 0; weft_program_param(p, i); i++)
    printf(" %s:%s:%d:%d", weft_program_param(p, i)->name, weft_dtype_name(weft_program_param(p, i)->type), weft_program_param(p, i)->rank, (int)weft_program_param(p, i)->bytes);
  printf(" %d %d\n", weft_program_result_count(p), weft_program_result(p, 9) == NULL);
  st = weft_program_run(p, (const void *[6]){f}, (void *[6]){f2, c2, &n2, h2, &not, NULL}, WEFT_NO_DEADLINE);
  if (strcmp(weft_status_message(st), "parameter 1 (\"c\") of device 0 is NULL")) return puts("a missing pointer"), 1;
  weft_status_free(st);
  weft_program_close(p), weft_program_close(q);
  return 0;
}
C
sed 's/^  //' <<'C' >"$root/open.c"
  #include <stdio.h>
  #include <weft/program.h>
  int main(int argc, char **argv)
  {
    weft_program *p;
    weft_status *st = weft_program_open_file(argv[argc - 1], NULL, &p);
    float in[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}}, out[2][4];
    if (!st && argc > 2) {
      st = weft_program_run(p, (const void *[2]){in[0], in[1]}, (void *[2]){out[0], out[1]}, WEFT_NO_DEADLINE);
      if (!st) printf("%d devices: %g %g %g %g\n", weft_program_device_count(p), out[0][0], out[0][3], out[1][0], out[1][3]);
    }
    if (st) return fprintf(stderr, "%s\n", weft_status_text(st, false)), 1;
    weft_program_close(p);
    return 0;
  }
C
kinds() {
  mkdir "$root/kinds" && "$weft" compile "$root/kinds.hlo" --cpu x86-64,native -o "$root/kinds" &&
    cc $strict -std=gnu11 -I"$root/kinds" $(pkg-config --cflags weft-runtime) "$root/kinds_main.c" "$root/kinds/kinds.c" -o "$root/kinds_main" $(pkg-config --libs weft-runtime)
}
export LD_LIBRARY_PATH=$libraries
check "a program with all kinds of arrays compiles" kinds
# (1+2i)^2 = -3+4i, i^2 = -1
prints "arrays of all kinds arrive and come back" \
  "kinds 3 -4 (-3,4) (-1,0) 42 123 0; float:f64:1:16 c:c64:1:16 state.0:s32:0:4 state.1:bf16:1:6 flag:pred:0:1 none:f32:2:0 6 1" "$root/kinds_main"

# ---- several devices, and what is refused ----
cat >"$root/ring.hlo" <<'HLO'
HloModule ring, replica_count=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  ROOT s = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add
}
HLO
check "a program that opens files compiles" cc $strict $(pkg-config --cflags weft-runtime) "$root/open.c" -o "$root/open" $(pkg-config --libs weft-runtime)
check "a program of two devices" "$weft" compile "$root/ring.hlo" -o "$root/ring.weft"
prints "two devices of one process reduce" "2 devices: 11 44 11 44" "$root/open" run "$root/ring.weft"
fails "a file that is not there" "NOT_FOUND: .*none.weft: no such file" "$root/open" "$root/none.weft"
fails "a file that is no program" "INVALID_ARGUMENT: not a serialized executable of Weft" "$root/open" "$root/ring.hlo"
sed '1s/weft.exe0/weft.exe9/' "$root/ring.weft" >"$root/version.weft"
fails "a file of another version" "FAILED_PRECONDITION: the executable was serialized by Weft 9.*, this is " "$root/open" "$root/version.weft"
printf 0123456789abcdef | { cp "$root/ring.weft" "$root/build.weft"; dd of="$root/build.weft" bs=1 seek=40 conv=notrunc 2>/dev/null; }
fails "a file of another build" "FAILED_PRECONDITION: the executable was serialized by build 0123456789abcdef of Weft .*, this is build [0-9a-f]\{16\}" "$root/open" "$root/build.weft"
head -c 500 "$root/ring.weft" >"$root/cut.weft"
fails "a file that is cut short" "DATA_LOSS: .*damaged" "$root/open" "$root/cut.weft"
fails "no compiler for a library" 'the compiler "no-such-cc" does not start' env CC=no-such-cc "$weft" compile "$root/ring.hlo" -o "$root/ring.so"
fails "a compiler that fails" 'the compiler "false" failed' env CC=false "$weft" compile "$root/ring.hlo" -o "$root/ring.so"
fails "a name that C does not have" '"a-b" is no name for C' "$weft" compile "$root/ring.hlo" --name a-b -o "$root/ring.so"
fails "a name for a file" 'is for -o FILE.so' "$weft" compile "$root/ring.hlo" --name x -o "$root/x.weft"
mv "$headers/program.h" "$headers/elsewhere.h"
fails "headers that are not installed" 'program.h is not there: install' "$weft" compile "$root/ring.hlo" -o "$root/ring.so"
mv "$headers/elsewhere.h" "$headers/program.h"
[ ! -e "$root/ring.so" ] && [ ! -e "$root/x.weft" ] && [ -z "$(find "$root" -maxdepth 1 -name 'weft-compile*')" ] && ok "what fails leaves nothing behind" || { ls "$root" >"$root/log"; not_ok "what fails leaves nothing behind"; }
echo "1..$n"
exit $failed
