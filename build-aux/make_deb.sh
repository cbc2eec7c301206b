#!/bin/sh
# Makes Debian packages of a configured build: `make deb` runs it in the build folder.
#
#   make_deb.sh SOURCE BUILD     the packages go to BUILD/deb/
#
# It needs debhelper and dh-python, and what debian/control names.  The packages are built from the tarball of `make dist`.
set -eu
source=$1 build=$2
version=$(sed -n '1s/.*(\(.*\)-[^-]*).*/\1/p' "$source/debian/changelog")
make -s -C "$build" dist
[ -f "$build/weft-$version.tar.gz" ] || { echo "make_deb.sh: debian/changelog says version $version, which is not configure's" >&2; exit 1; }
rm -rf "$build/deb"
mkdir -p "$build/deb"
mv "$build/weft-$version.tar.gz" "$build/deb/weft_$version.orig.tar.gz"
tar xzf "$build/deb/weft_$version.orig.tar.gz" -C "$build/deb"
cd "$build/deb/weft-$version"
dpkg-buildpackage -b -us -uc
ls -l "$build"/deb/*.deb
