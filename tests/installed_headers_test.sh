#!/bin/sh
# What `make install` puts into the include folder is enough: a program outside the tree that includes any public header
# compiles with `pkg-config --cflags weft`.  Prints TAP.
build=${WEFT_BUILDDIR:-.}
root=$(mktemp -d) || exit 99
trap 'rm -rf "$root"' EXIT
make -s -C "$build" DESTDIR="$root" install-pkgincludeHEADERS install-weftbaseHEADERS install-pkgconfigDATA > "$root/log" 2>&1 || {
  sed 's/^/# /' "$root/log"; echo "1..1"; echo "not ok 1 - headers install"; exit 1; }
PKG_CONFIG_LIBDIR=$(dirname "$(find "$root" -name weft.pc)")
export PKG_CONFIG_LIBDIR
cflags=$(PKG_CONFIG_SYSROOT_DIR=$root pkg-config --cflags weft) || { echo "1..0 # SKIP no pkg-config"; exit 0; }
n=0 failed=0
for header in $(find "$root" -path '*/include/weft/*.h' ! -path '*/base/*' | sort); do
  n=$((n + 1)); name=weft/$(basename "$header")
  printf '#include <%s>\nint main(void) { return 0; }\n' "$name" > "$root/outside.c"
  if (cd "$root" && ${CC:-cc} -std=gnu11 -Wall $cflags -c outside.c -o outside.o) 2> "$root/log"; then
    echo "ok $n - $name"
  else
    failed=1; echo "not ok $n - $name"; sed 's/^/# /' "$root/log"
  fi
done
echo "1..$n"
[ $n -ge 4 ] && exit $failed
