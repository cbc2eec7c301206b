#!/bin/sh
# What `make install` puts into the include folder is enough: a program outside the tree that includes any public header, alone,
# compiles with `pkg-config --cflags weft`, as C and as C++, by gcc and by clang, without a warning.  Prints TAP.
build=${WEFT_BUILDDIR:-.}
root=$(mktemp -d) || exit 99
trap 'rm -rf "$root"' EXIT
make -s -C "$build" DESTDIR="$root" install-pkgincludeHEADERS install-weftbaseHEADERS install-pkgconfigDATA > "$root/log" 2>&1 || {
  sed 's/^/# /' "$root/log"; echo "1..1"; echo "not ok 1 - headers install"; exit 1; }
PKG_CONFIG_LIBDIR=$(dirname "$(find "$root" -name weft.pc)")
export PKG_CONFIG_LIBDIR
cflags=$(PKG_CONFIG_SYSROOT_DIR=$root pkg-config --cflags weft) || { echo "1..0 # SKIP no pkg-config"; exit 0; }
n=0 failed=0 headers=$(find "$root" -path '*/include/weft/*.h' | sort)
for compiler in "cc -std=gnu11" "g++ -std=c++17" "g++ -std=c++20" "clang -std=gnu11" "clang++ -std=c++17" "clang++-19 -std=c++17"; do
  command -v ${compiler%% *} > /dev/null || continue
  case $compiler in *++*) suffix=cc; $compiler -x c++ -include string -fsyntax-only /dev/null 2> /dev/null || continue ;; *) suffix=c ;; esac
  for header in $headers; do
    n=$((n + 1)); name=weft/${header##*/include/weft/}
    printf '#include <%s>\nint main(void) { return 0; }\n' "$name" > "$root/outside.$suffix"
    if (cd "$root" && $compiler -Wall -Wextra -Werror $cflags -fsyntax-only outside.$suffix) > "$root/log" 2>&1; then
      echo "ok $n - $name: $compiler"
    else
      failed=1; echo "not ok $n - $name: $compiler"; sed 's/^/# /' "$root/log"
    fi
  done
done
echo "1..$n"
[ "$(echo "$headers" | wc -l)" -ge 12 ] && exit $failed
