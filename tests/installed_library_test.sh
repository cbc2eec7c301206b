#!/bin/bash
# libweft as a user finds it: what `make install` puts into a prefix exports what its headers declare, and programs in C and C++
# that know nothing but `pkg-config weft` compile, link and run, shared and static.  Prints TAP.
source=${WEFT_SRCDIR:-$(dirname "$0")/..} build=${WEFT_BUILDDIR:-.}
root=$(mktemp -d) || exit 99
trap 'rm -rf "$root"' EXIT
export LC_ALL=C
command -v pkg-config >/dev/null || { echo "1..0 # SKIP no pkg-config"; exit 0; }
if nm -D "$build/.libs/libweft.so" | grep -qE ' U __(asan|tsan|ubsan)'; then
  echo "1..0 # SKIP a library with a sanitizer needs programs with the same"; exit 0
fi
n=0 failed=0
ok() { n=$((n + 1)); echo "ok $n - $1"; }
not_ok() { n=$((n + 1)); failed=1; echo "not ok $n - $1"; sed 's/^/# /' "$root/log"; }
# check NAME COMMAND...: a test that passes if the command does
check() { local name=$1; shift; if "$@" >"$root/log" 2>&1; then ok "$name"; else not_ok "$name"; fi; }

make -s -C "$build" DESTDIR="$root" install-libLTLIBRARIES install-nodist_staticlibDATA install-pkgincludeHEADERS \
  install-weftbaseHEADERS install-pkgconfigDATA >"$root/log" 2>&1 || { not_ok "the library installs"; echo "1..1"; exit 1; }
libraries=$(dirname "$(find "$root" -name libweft.so)") pc=$(dirname "$(find "$root" -name weft.pc)")
export PKG_CONFIG_LIBDIR=$pc:$(pkg-config --variable pc_path pkg-config) PKG_CONFIG_SYSROOT_DIR=$root LD_LIBRARY_PATH=$libraries
# unset, so that programs see their own installation and not a job that runs this test
for variable in $(env | sed -nE 's/^((WEFT_(COORD|COLLECTIVE)|JAX_COORDINATOR)_[A-Z_]*)=.*/\1/p'); do unset "$variable"; done

# ---- symbols ----
headers=$(dirname "$(find "$root" -name collective.h)")
# declared HEADER...: what these installed headers declare
declared() {
  printf '#include <weft/%s>\n' "$@" >"$root/all.c"
  cc -std=gnu11 -E $(pkg-config --cflags weft) "$root/all.c" |
    awk -v within="^$root/" -f "$source/tests/install/declared.awk" | sort -u
}
exported() { nm "$@" --defined-only --format=posix | sed -n 's/^\([^ @]*\)[^ ]* [BDRTVW] .*/\1/p' | sort; }
same() { diff "$1" "$2"; } # < declared only, > exported only
library_headers=$(cd "$headers" && ls ./*.h base/*.h | grep -vE 'pjrt|xla_ffi|program')
declared $library_headers >"$root/declared"
exported -D "$libraries/libweft.so" >"$root/exported"
check "libweft.so exports exactly what the headers declare ($(wc -l <"$root/declared"))" same "$root/declared" "$root/exported"
exported -g "$libraries/libweft.a" >"$root/exported.a"
check "libweft.a exports exactly what the headers declare" same "$root/declared" "$root/exported.a"
cp "$headers/coord.h" "$root/coord.h"
printf 'WEFT_PUBLIC_BEGIN\nint weft_not_there(int x);\nextern const int weft_no_data[2];\nWEFT_PUBLIC_END\n' >>"$headers/coord.h"
declared coord.h >"$root/more"
if [ "$(comm -23 "$root/more" "$root/declared" | tr '\n' ' ')" = "weft_no_data weft_not_there " ]; then ok "a symbol that is only declared is noticed"
else cp "$root/more" "$root/log"; not_ok "a symbol that is only declared is noticed"; fi
mv "$root/coord.h" "$headers/coord.h"
declared pjrt_c_api.h >"$root/declared"
exported -D "$build/.libs/pjrt_weft.so" >"$root/exported"
check "the plugin exports exactly what its header declares" same "$root/declared" "$root/exported"
readelf -d "$libraries/libweft.so" >"$root/log"
if grep -q 'SONAME.*\[libweft\.so\.0\]' "$root/log" && ! grep -qE 'NEEDED.*(LLVM|blas|stdc)' "$root/log"; then ok "SONAME is libweft.so.0; no LLVM, BLAS or C++ is needed"
else not_ok "SONAME is libweft.so.0; no LLVM, BLAS or C++ is needed"; fi

# ---- programs ----
# Two processes sum an array; both have to end well, within the deadline that the program sets.
runs_all_reduce() {
  local other lines
  mkdir "$root/meet" || return
  timeout 60 "$1" "$root/meet" 1 2 >"$root/other" & other=$!
  timeout 60 "$1" "$root/meet" 0 2 && wait $other || return
  lines=$(cat "$root/other"); rm -r "$root/meet"
  [ "$lines" = "rank 1: 1 3 5 7" ]
}
runs_job() { [ "$(timeout 60 "$1" 2 | sort | tr '\n' ';')" = "task 0: task 0 says hello;task 1: task 0 says hello;" ]; }
runs_cxx() { timeout 60 "$1" | tee /dev/stderr | grep -q '^42 42 of '; }
static_libraries() { pkg-config --static --libs weft | sed 's/-lweft\b/-l:libweft.a/'; }
needs_no_libweft() { ! readelf -d "$1" | grep -q 'NEEDED.*libweft'; }
cflags="-O1 -Wall -Wextra -Werror"

for cc in gcc clang clang-14 clang-19; do
  command -v $cc >/dev/null || continue
  for link in shared static; do
    dir=$root/$cc-$link && cp -r "$source/examples/c" "$dir" && chmod -R u+w "$dir"
    check "$cc, $link: the examples build" make -C "$dir" CC=$cc CFLAGS="$cflags" STATIC="$([ $link = shared ] || echo 1)"
    [ $link = shared ] || check "$cc, $link: no shared libweft is needed" needs_no_libweft "$dir/job"
    check "$cc, $link: an all-reduce of two processes" runs_all_reduce "$dir/all_reduce"
    check "$cc, $link: a service and two agents" runs_job "$dir/job"
  done
done
for cxx in g++ clang++ clang++-14 clang++-19; do
  command -v $cxx >/dev/null && echo 'int main() {}' | $cxx -x c++ -include string -o "$root/probe" - 2>/dev/null || continue
  compile="$cxx -std=c++17 $cflags $(pkg-config --cflags weft) $source/tests/install/in_cxx.cc"
  check "$cxx, shared: compiles" $compile -o "$root/cxx" $(pkg-config --libs weft)
  check "$cxx, shared: a service, an agent, two ranks" runs_cxx "$root/cxx"
  check "$cxx, static: compiles" $compile -o "$root/cxx-static" $(static_libraries)
  check "$cxx, static: a service, an agent, two ranks" runs_cxx "$root/cxx-static"
done
# Nothing shared at all, where the C library and all that Weft needs are there as archives.  The linker warns that name services
# and libfabric are looked for at run time.
if echo 'int main(void) { return 0; }' | cc -x c -static -o "$root/probe" - $(pkg-config --static --libs weft) 2>"$root/log"; then
  check "all static: compiles" cc -static $(pkg-config --cflags weft) -o "$root/all-static" "$source/examples/c/job.c" $(pkg-config --static --libs weft)
  check "all static: a service and two agents" runs_job "$root/all-static"
else
  ok "all static # SKIP $(head -n 1 "$root/log")"
fi
echo "1..$n"
exit $failed
